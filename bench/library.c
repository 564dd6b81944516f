/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "library.h"
#include "util.h"

#include <dhisparse/dhisparse.h>

#include <stdlib.h>

/* Rows of the history that are added at once before the first plan. */
#define PREFILL_ROWS 4096

struct player {
	const struct trace *trace;
	dhs_context *context;
	dhs_batch *batch;
	dhs_session session;
	int32_t *slots;
};

static void must(int rc, const char *call)
{
	if (rc != DHS_OK)
		bench_die("%s: %s (%s)", call, dhs_last_error(), dhs_strerror(rc));
}

#define MUST(call) must(call, #call)

static void open_player(struct player *p, const struct demand *d, uint32_t places)
{
	const struct trace *t = p->trace;
	dhs_segment segment = { .bytes = 16 };
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_context_options options = DHS_INIT(dhs_context_options);
	dhs_batch_options batch = DHS_INIT(dhs_batch_options);
	dhs_required session = DHS_INIT(dhs_required), staging = DHS_INIT(dhs_required);

	layout.layers = 1;
	layout.segments = 1;
	layout.segment_size = sizeof(segment);
	layout.segment = &segment;
	layout.page_rows = d->page_rows;
	options.flags = DHS_CONTEXT_TAIL_ROWS;
	options.backend = DHS_BACKEND_HOST;
	options.policy = DHS_POLICY_FIXED;
	options.max_sessions = 1;
	options.max_rows = d->max_rows;
	options.max_new_rows = trace_max_queries(t);
	options.hot_rows = places;
	options.tail_rows = d->tail_rows;
	options.host_rows = (uint64_t)d->max_rows + d->page_rows;
	options.layout = &layout;
	batch.max_queries = trace_max_queries(t);
	batch.top_k = t->top_k;
	MUST(dhs_context_required(&options, &session));
	MUST(dhs_batch_required(&options, &batch, &staging));
	options.device_pages =
		session.session_pages + staging.staging_pages + PREFILL_ROWS / d->page_rows + 2;
	MUST(dhs_context_create(&options, &p->context));
	MUST(dhs_batch_create(p->context, &batch, &p->batch));
	MUST(dhs_session_create(p->context, NULL, &p->session));
	p->slots = bench_zeros((uint64_t)batch.max_queries * t->top_k, sizeof(*p->slots));
}

static void prefill(struct player *p, uint32_t rows)
{
	int32_t *slots = bench_zeros(PREFILL_ROWS, sizeof(*slots));

	while (rows) {
		uint32_t some = rows < PREFILL_ROWS ? rows : PREFILL_ROWS;

		MUST(dhs_session_extend(p->context, p->session, some, NULL, slots));
		MUST(dhs_session_commit(p->context, p->session, some, NULL));
		rows -= some;
	}
	free(slots);
}

static void play(struct player *p, const struct plan *plan)
{
	dhs_step_entry entry = { p->session, plan->queries, plan->queries };
	dhs_selection selection = DHS_INIT(dhs_selection);
	dhs_step step = 0;

	selection.queries = plan->queries;
	selection.rows = plan->rows;
	selection.slots = p->slots;
	MUST(dhs_step_begin(p->batch, &entry, 1, sizeof(entry), NULL, &step));
	MUST(dhs_step_resolve(p->batch, 0, &selection, NULL));
	MUST(dhs_step_end(p->context, step, &plan->queries, 1));
}

static struct counts counted(struct player *p)
{
	dhs_stats s = DHS_INIT(dhs_stats);

	MUST(dhs_context_wait(p->context));
	MUST(dhs_context_stats(p->context, &s));
	return (struct counts){ s.page_hits, s.hot_hits, s.misses, s.repeats, s.staged, s.victims };
}

void library_run(const struct demand *d, uint32_t places, uint32_t from, struct counts *counts)
{
	struct player p = { .trace = d->trace };
	struct counts before = { 0 };

	open_player(&p, d, places);
	prefill(&p, d->trace->plan[0].length);
	for (uint32_t i = 0; i < d->trace->plans; i++) {
		if (i == from)
			before = counted(&p);
		play(&p, &d->trace->plan[i]);
	}
	*counts = counted(&p);
	counts->page_hits -= before.page_hits;
	counts->hot_hits -= before.hot_hits;
	counts->misses -= before.misses;
	counts->repeats -= before.repeats;
	counts->staged -= before.staged;
	counts->victims -= before.victims;
	MUST(dhs_session_destroy(p.context, p.session));
	MUST(dhs_batch_destroy(p.batch));
	dhs_context_destroy(p.context);
	free(p.slots);
}
