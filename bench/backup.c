/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * How many rows each way of backup copies to the host, and how many of these only when a page
 * is taken, where its next owner waits for them: sessions come, grow and go, so many at a
 * time, in pools that hold twice their rows, or less.  Counts on the host backend, which are
 * the same on any device and in any run.  Prints a markdown table; docs/residency.md has it.
 */
#include <dhisparse/dhisparse.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SESSIONS 16
#define PROMPT 4096 /* rows; from half of it to one and a half */
#define CHUNK 512   /* rows of prefill a step */
#define ANSWER 1024 /* rows, the same */
#define STEPS 12000
#define PAGE_ROWS 64
#define ROW_BYTES 16
#define PAGE_BYTES ((uint64_t)PAGE_ROWS * ROW_BYTES)

struct client {
	dhs_session session; /* 0: none */
	uint32_t prompt, answer;
};

struct load {
	dhs_context *context;
	dhs_batch *batch;
	struct client client[SESSIONS];
	uint64_t dice, kept, backlog, by_ticks;
};

static void must(int rc)
{
	if (rc) {
		fprintf(stderr, "backup: %s\n", dhs_last_error());
		exit(1);
	}
}

/* From half of `mean` to one and a half. */
static uint32_t roll(struct load *l, uint32_t mean)
{
	l->dice = l->dice * 6364136223846793005u + 1442695040888963407u;
	return mean / 2 + (uint32_t)(l->dice >> 33) % mean;
}

static dhs_stats stats_of(struct load *l)
{
	dhs_stats stats = DHS_INIT(dhs_stats);

	must(dhs_context_stats(l->context, &stats));
	return stats;
}

static void open_load(struct load *l, uint32_t backup, uint32_t percent, uint32_t tick_pages)
{
	const dhs_segment segment = { .bytes = ROW_BYTES };
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_context_options o = DHS_INIT(dhs_context_options);
	dhs_batch_options b = DHS_INIT(dhs_batch_options);

	layout.layers = layout.segments = 1;
	layout.segment_size = sizeof(segment);
	layout.segment = &segment;
	o.backend = DHS_BACKEND_HOST;
	o.backup = backup;
	o.max_sessions = SESSIONS;
	o.max_rows = 2 * (PROMPT + ANSWER);
	o.hot_rows = 512;
	o.layout = &layout;
	o.device_pages = SESSIONS * (PROMPT + ANSWER) / PAGE_ROWS * 100 / percent;
	o.host_rows = (uint64_t)SESSIONS * o.max_rows;
	o.flags = DHS_CONTEXT_REFILL;
	o.link_bytes = tick_pages * PAGE_BYTES;
	o.refill_low = 32;
	o.refill_high = 64;
	b.top_k = 16;
	must(dhs_context_create(&o, &l->context));
	must(dhs_batch_create(l->context, &b, &l->batch));
}

/* A session comes, or takes the next chunk of its prompt; 1: it decodes. */
static int prefill(struct load *l, struct client *c)
{
	static int32_t slots[CHUNK];
	uint32_t rows = c->prompt < CHUNK ? c->prompt : CHUNK;

	if (!c->session) {
		c->prompt = roll(l, PROMPT);
		c->answer = roll(l, ANSWER);
		must(dhs_session_create(l->context, NULL, &c->session));
		return 0;
	}
	if (!rows)
		return 1;
	must(dhs_session_extend(l->context, c->session, rows, NULL, slots));
	must(dhs_session_commit(l->context, c->session, rows, NULL));
	c->prompt -= rows;
	l->kept += rows;
	return 0;
}

static void step(struct load *l)
{
	dhs_step_entry entry[SESSIONS] = { { 0 } };
	uint32_t kept[SESSIONS], count = 0, fed = 0;
	uint64_t before = stats_of(l).backup_rows;
	dhs_step number;

	must(dhs_context_advance(l->context));
	l->by_ticks += stats_of(l).backup_rows - before;
	for (uint32_t i = 0; i < SESSIONS; i++) {
		struct client *c = &l->client[i];

		/* One prompt at a time. */
		if ((!c->session || c->prompt) && (fed++ || !prefill(l, c)))
			continue;
		entry[count] = (dhs_step_entry){ .session = c->session, .new_rows = 1 };
		kept[count++] = 1;
		c->answer--;
	}
	must(dhs_step_begin(l->batch, entry, count, sizeof(*entry), NULL, &number));
	must(dhs_step_end(l->context, number, kept, count));
	l->kept += count;
	l->backlog += stats_of(l).pages_unbacked;
	for (uint32_t i = 0; i < SESSIONS; i++)
		if (l->client[i].session && !l->client[i].answer) {
			must(dhs_session_destroy(l->context, l->client[i].session));
			l->client[i].session = 0;
		}
}

static void measure(const char *name, uint32_t backup, uint32_t percent, uint32_t tick_pages)
{
	struct load l = { .dice = 1 };
	dhs_stats s;

	open_load(&l, backup, percent, tick_pages);
	for (uint32_t i = 0; i < STEPS; i++)
		step(&l);
	must(dhs_context_wait(l.context));
	s = stats_of(&l);
	printf("| %.1f | %s | %.0f | %.0f | %.0f | %.0f |\n", percent / 100.0, name,
	       1000.0 * (double)s.mirrored_rows / (double)l.kept,
	       1000.0 * (double)l.by_ticks / (double)l.kept,
	       1000.0 * (double)(s.backup_rows - l.by_ticks) / (double)l.kept,
	       (double)l.backlog / STEPS);
	dhs_context_destroy(l.context);
}

int main(void)
{
	static const uint32_t percents[] = { 50, 100, 200, 400 };

	printf("| rows, of the pool | backup | by commits | by ticks | when taken | backlog |\n"
	       "| --- | --- | --- | --- | --- | --- |\n");
	for (size_t i = 0; i < sizeof(percents) / sizeof(*percents); i++) {
		measure("eager", DHS_BACKUP_EAGER, percents[i], 8);
		measure("reclaim", DHS_BACKUP_RECLAIM, percents[i], 8);
		measure("background, 1 page a tick", DHS_BACKUP_BACKGROUND, percents[i], 1);
		measure("background, 2 pages a tick", DHS_BACKUP_BACKGROUND, percents[i], 2);
		measure("background, 8 pages a tick", DHS_BACKUP_BACKGROUND, percents[i], 8);
	}
	return 0;
}
