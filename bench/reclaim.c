/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What spare pages save, by the forms that they may have and by how they are taken back: sessions
 * come, decode and go in the library on the host backend, more at some times than at others,
 * with selections as classes.c makes them up, of histories and top_k a sixteenth as long.
 * Counts are the same on any device and in any run.  Prints markdown tables; docs/reclaim.md has
 * them, and what follows.
 */
#include "classes.h"
#include "util.h"

#include <dhisparse/dhisparse.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALE 16
#define TRACES 16  /* different sessions */
#define LIFE 300   /* steps that a session decodes: from half of it to one and a half */
#define PERIOD 800 /* steps from full to half load and back */
#define WHOLE 16   /* sessions that fit whole */
#define MOST_SESSIONS (4 * WHOLE)
#define PAGE_ROWS 16
#define ROW_BYTES 16
#define PAGE_BYTES ((uint64_t)PAGE_ROWS * ROW_BYTES)
#define PIECE 1024 /* rows of prefill in a call */

struct client {
	dhs_session session; /* 0: none */
	const struct trace *trace;
	uint32_t next; /* plan */
};

struct load {
	dhs_context *context;
	dhs_batch *batch;
	const struct trace *traces;
	struct client client[MOST_SESSIONS];
	uint32_t live, top_k;
	int32_t *rows, *slots;
	uint64_t dice;
	/* what is counted */
	uint64_t arrivals, session_steps, whole_session_steps, whole_steps;
};

static uint32_t steps = 4800;

/* What spare pages may be, and how they are taken back. */
struct variant {
	const char *name;
	uint32_t policy, flags;
	uint32_t most_hot; /* max_hot_rows in hot_rows */
	uint32_t reclaim;
};

static const struct variant variants[] = {
	{ "none: fixed", DHS_POLICY_FIXED, 0, 1, 0 },
	{ "history", DHS_POLICY_ADAPTIVE, 0, 1, DHS_RECLAIM_PARTIAL },
	{ "hot caches, 4 x", DHS_POLICY_ADAPTIVE, DHS_CONTEXT_NO_HISTORY, 4, DHS_RECLAIM_PARTIAL },
	{ "both, 2 x", DHS_POLICY_ADAPTIVE, 0, 2, DHS_RECLAIM_PARTIAL },
	{ "both, 4 x", DHS_POLICY_ADAPTIVE, 0, 4, DHS_RECLAIM_PARTIAL },
	{ "both, 4 x, whole", DHS_POLICY_ADAPTIVE, 0, 4, DHS_RECLAIM_WHOLE },
};

struct pressure {
	uint32_t percent;    /* sessions, of those that fit whole */
	uint32_t tick_pages; /* link_bytes */
	const struct variant *variant;
};

static void must(int rc)
{
	if (rc)
		bench_die("%s", dhs_last_error());
}

/* From half of `mean` to one and a half. */
static uint32_t roll(uint64_t *dice, uint32_t mean)
{
	return mean / 2 + (uint32_t)(bench_draw(dice) % mean);
}

/* ---- sessions --------------------------------------------------------------------------- */

static struct locality scaled(const struct locality *l)
{
	struct locality s = *l;

	s.rows = l->rows / SCALE;
	s.top_k = l->top_k / SCALE;
	s.recent_rows = l->recent_rows / SCALE;
	return s;
}

/* Sessions of either class by turns. */
static struct trace *make_traces(const struct locality *l, const struct locality *other)
{
	struct trace *traces = bench_zeros(TRACES, sizeof(*traces));
	uint64_t dice = 7;

	for (uint32_t i = 0; i < TRACES; i++) {
		struct locality one = i % 2 ? *other : *l;

		one.rows = roll(&dice, l->rows);
		locality_trace(&traces[i], &one, roll(&dice, LIFE), 1 + i);
	}
	return traces;
}

/* Pages of a session of mean length that is whole: those that it requires, and history. */
static uint32_t whole_pages(const struct locality *l, uint32_t required)
{
	return required + (l->rows + LIFE / 2) / PAGE_ROWS;
}

static void open_load(struct load *l, const struct locality *locality, const struct pressure *p)
{
	const dhs_segment segment = { .bytes = ROW_BYTES };
	const struct variant *v = p->variant;
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_context_options o = DHS_INIT(dhs_context_options);
	dhs_batch_options b = DHS_INIT(dhs_batch_options);
	dhs_required required = DHS_INIT(dhs_required);

	layout.layers = layout.segments = 1;
	layout.segment_size = sizeof(segment);
	layout.segment = &segment;
	layout.page_rows = PAGE_ROWS;
	o.backend = DHS_BACKEND_HOST;
	o.max_sessions = MOST_SESSIONS;
	o.max_rows = 2 * locality->rows + 2 * LIFE;
	o.max_new_rows = 1;
	o.hot_rows = 2 * locality->top_k;
	o.layout = &layout;
	o.host_rows = (uint64_t)MOST_SESSIONS * o.max_rows;
	o.policy = v->policy;
	o.flags = DHS_CONTEXT_REFILL | v->flags;
	o.max_hot_rows = v->most_hot * o.hot_rows;
	o.link_bytes = p->tick_pages * PAGE_BYTES;
	o.reclaim = v->reclaim;
	must(dhs_context_required(&o, &required));
	o.refill_low = required.session_pages;
	o.refill_high = 2 * required.session_pages;
	o.device_pages = WHOLE * whole_pages(locality, required.session_pages) + o.refill_low;
	b.top_k = locality->top_k;
	must(dhs_context_create(&o, &l->context));
	must(dhs_batch_create(l->context, &b, &l->batch));
	l->top_k = b.top_k;
	l->rows = bench_zeros((uint64_t)MOST_SESSIONS * b.top_k, sizeof(*l->rows));
	l->slots = bench_zeros((uint64_t)MOST_SESSIONS * b.top_k + PIECE, sizeof(*l->slots));
}

static void arrive(struct load *l)
{
	struct client *c = l->client;
	uint32_t rows;

	while (c->session)
		c++;
	*c = (struct client){ .trace = &l->traces[bench_draw(&l->dice) % TRACES] };
	must(dhs_session_create(l->context, NULL, &c->session));
	for (rows = c->trace->plan[0].length; rows;) {
		uint32_t some = rows < PIECE ? rows : PIECE;

		must(dhs_session_extend(l->context, c->session, some, NULL, l->slots));
		must(dhs_session_commit(l->context, c->session, some, NULL));
		rows -= some;
	}
	l->live++;
	l->arrivals++;
}

static void leave(struct load *l, struct client *c)
{
	must(dhs_session_destroy(l->context, c->session));
	c->session = 0;
	l->live--;
}

/* ---- steps ------------------------------------------------------------------------------ */

static void count_whole(struct load *l)
{
	int resident;

	for (struct client *c = l->client; c < l->client + MOST_SESSIONS; c++) {
		dhs_session_info info = DHS_INIT(dhs_session_info);

		if (!c->session)
			continue;
		must(dhs_session_get_info(l->context, c->session, &info));
		l->session_steps++;
		l->whole_session_steps += !info.host_only_rows;
	}
	must(dhs_step_all_resident(l->batch, &resident));
	l->whole_steps += resident;
}

static void decode(struct load *l)
{
	dhs_step_entry entry[MOST_SESSIONS] = { { 0 } };
	dhs_selection selection = DHS_INIT(dhs_selection);
	uint32_t kept[MOST_SESSIONS], count = 0;
	dhs_step step;

	for (struct client *c = l->client; c < l->client + MOST_SESSIONS; c++) {
		if (!c->session)
			continue;
		memcpy(l->rows + (size_t)count * l->top_k, c->trace->plan[c->next++].rows,
		       l->top_k * sizeof(*l->rows));
		entry[count] = (dhs_step_entry){ c->session, 1, 1 };
		kept[count++] = 1;
	}
	selection.rows = l->rows;
	selection.slots = l->slots;
	selection.sessions = count;
	must(dhs_step_begin(l->batch, entry, count, sizeof(*entry), NULL, &step));
	count_whole(l);
	if (count)
		must(dhs_step_resolve(l->batch, 0, &selection, NULL));
	must(dhs_step_end(l->context, step, kept, count));
}

static void play(struct load *l, uint32_t most)
{
	for (uint32_t t = 0; t < steps; t++) {
		if (l->live < (t / (PERIOD / 2) % 2 ? most / 2 : most))
			arrive(l);
		decode(l);
		for (struct client *c = l->client; c < l->client + MOST_SESSIONS; c++)
			if (c->session && c->next == c->trace->plans)
				leave(l, c);
		must(dhs_context_advance(l->context));
	}
	must(dhs_context_wait(l->context));
}

/* ---- tables ------------------------------------------------------------------------------ */

static void measure(const struct locality *locality, const struct trace *traces,
                    const struct pressure *p)
{
	struct load l = { .traces = traces, .dice = 1 };
	dhs_stats s = DHS_INIT(dhs_stats);

	open_load(&l, locality, p);
	play(&l, WHOLE * p->percent / 100);
	must(dhs_context_stats(l.context, &s));
	printf("| %.1f | %s | %.2f | %.0f | %.0f | %.0f | %.1f | %.1f |\n", p->percent / 100.0,
	       p->variant->name, 100.0 * (double)s.misses / ((double)l.session_steps * l.top_k),
	       (double)s.fetched_bytes / steps, (double)s.refill_bytes / steps,
	       (double)s.evicted_pages / (double)l.arrivals,
	       100.0 * (double)l.whole_session_steps / (double)l.session_steps,
	       100.0 * (double)l.whole_steps / steps);
	fflush(stdout);
	dhs_context_destroy(l.context);
	free(l.rows);
	free(l.slots);
}

static struct locality class_of(const char *name)
{
	for (const struct locality_class *c = locality_classes; c->name; c++)
		if (!strcmp(c->name, name))
			return scaled(&c->locality);
	bench_die("no class '%s'", name);
}

static void print_load(const char *one, const char *other, uint32_t tick_pages)
{
	static const uint32_t percents[] = { 50, 100, 200, 400 };
	struct locality locality = class_of(one), second = class_of(other);
	struct trace *traces = make_traces(&locality, &second);

	printf(
		"### %s%s%s, %u pages a tick\n\n"
		"| sessions, of those that fit whole | spare pages | misses, %% of entries | fetched, B a "
		"step | refill, B a step | evicted pages a session | session-steps whole, %% | steps "
		"whole, %% |\n| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
		one, strcmp(one, other) ? " and " : "", strcmp(one, other) ? other : "", tick_pages);
	for (size_t i = 0; i < sizeof(percents) / sizeof(*percents); i++)
		for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++)
			measure(&locality, traces, &(struct pressure){ percents[i], tick_pages, &variants[v] });
	printf("\n");
	for (uint32_t i = 0; i < TRACES; i++)
		trace_free(&traces[i]);
	free(traces);
}

/* reclaim [STEPS] */
int main(int argc, char **argv)
{
	if (argc > 1)
		steps = (uint32_t)strtoul(argv[1], NULL, 10);
	if (argc > 2 || !steps || steps > 1000000)
		bench_die("usage: reclaim [STEPS], 1 to 1000000");
	print_load("middle", "middle", 4);
	print_load("middle", "middle", 40);
	print_load("curve, drifting", "curve, drifting", 4);
	print_load("middle", "first", 4);
	return 0;
}
