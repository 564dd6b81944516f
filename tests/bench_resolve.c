/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * How long a resolve takes on the host backend, on one core: 2,048 of 100,000
 * rows of 656 bytes, 4,096 hot rows; and what a step costs on the host.  Prints
 * a table, asserts nothing about time.
 *
 *   bench_resolve [repeats]
 */
#include <dhisparse/dhisparse.h>
#include <dhisparse/host.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS 100000
#define TOP_K 2048
#define HOT 4096
#define PAGE 64
#define SESSIONS 256

static void need(int rc, const char *call)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s: %d, %s\n", call, rc, dhs_last_error());
	exit(1);
}

#define NEED(call) need(call, #call)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *numbers, size_t count)
{
	qsort(numbers, count, sizeof(numbers[0]), by_number);
	return numbers[count / 2];
}

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 27);
}

/* A row that the hot cache should hold, and the call that last read it. */
struct recent {
	int32_t row;
	uint32_t call;
};

static int by_call(const void *a, const void *b)
{
	const struct recent *x = a, *y = b;

	return (x->call > y->call) - (x->call < y->call);
}

struct bench {
	dhs_context *context;
	dhs_batch *batch;
	dhs_session session;
	int32_t *fresh;        /* rows of the history, shuffled */
	uint32_t at;           /* the next of these */
	struct recent *recent; /* [HOT] rows that were read last, oldest first */
	int32_t *rows, *slots;
	uint32_t calls;
	uint64_t state;
};

static dhs_context *context_of(uint32_t policy, uint32_t sessions, uint32_t max_rows,
                               uint32_t pages, uint32_t bytes, uint32_t hot_rows)
{
	dhs_segment segment = { .bytes = bytes };
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_context_options options = DHS_INIT(dhs_context_options);
	dhs_context *context = NULL;

	layout.layers = 1;
	layout.segments = 1;
	layout.segment_size = sizeof(segment);
	layout.segment = &segment;
	layout.page_rows = PAGE;
	options.policy = policy;
	options.max_sessions = sessions;
	options.max_rows = max_rows;
	options.max_new_rows = 1;
	options.hot_rows = hot_rows;
	options.device_pages = pages;
	options.host_rows = (uint64_t)sessions * (max_rows + PAGE);
	options.layout = &layout;
	NEED(dhs_context_create(&options, &context));
	return context;
}

static void prefill(dhs_context *context, dhs_session session, uint32_t rows)
{
	int32_t *slots = calloc(rows, sizeof(slots[0]));

	NEED(dhs_session_extend(context, session, rows, NULL, slots));
	NEED(dhs_session_commit(context, session, rows, NULL));
	free(slots);
}

/* Rows that no tail holds. */
#define OLD_ROWS (ROWS - PAGE * 4)

static void shuffle_rows(int32_t *rows, uint32_t count, uint64_t *state)
{
	for (uint32_t i = count - 1; i > 0; i--) {
		uint32_t j = (uint32_t)(draw(state) % (i + 1));
		int32_t row = rows[i];

		rows[i] = rows[j];
		rows[j] = row;
	}
}

static void shuffle(struct bench *b)
{
	for (uint32_t i = 0; i < OLD_ROWS; i++)
		b->fresh[i] = (int32_t)i;
	shuffle_rows(b->fresh, OLD_ROWS, &b->state);
	b->at = 0;
}

static int32_t fresh_row(struct bench *b)
{
	if (b->at == OLD_ROWS)
		shuffle(b);
	return b->fresh[b->at++];
}

static void bench_open(struct bench *b, uint32_t policy)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	uint32_t pages = ROWS / PAGE + HOT / PAGE + 200;

	memset(b, 0, sizeof(*b));
	b->state = 1;
	b->context = context_of(policy, 1, ROWS, pages, 656, HOT);
	NEED(dhs_session_create(b->context, NULL, &b->session));
	for (uint32_t rows = 0; rows < ROWS; rows += 10000)
		prefill(b->context, b->session, 10000);
	options.top_k = TOP_K;
	NEED(dhs_batch_create(b->context, &options, &b->batch));
	b->fresh = calloc(ROWS, sizeof(int32_t));
	b->rows = calloc(TOP_K, sizeof(int32_t));
	b->slots = calloc(TOP_K, sizeof(int32_t));
	b->recent = calloc(HOT, sizeof(struct recent));
	shuffle(b);
}

static void bench_close(struct bench *b)
{
	dhs_context_destroy(b->context);
	free(b->fresh);
	free(b->recent);
	free(b->rows);
	free(b->slots);
}

/* A selection of its own at each call: `misses` rows that were not read lately,
 * the rest drawn from those that were; the oldest of these are forgotten. */
static void choose(struct bench *b, uint32_t misses)
{
	uint32_t hits = TOP_K - misses, count = 0;

	b->calls++;
	for (uint32_t i = 0; i < HOT; i++)
		if (draw(&b->state) % (HOT - i) < hits - count) {
			b->rows[count++] = b->recent[i].row;
			b->recent[i].call = b->calls;
		}
	qsort(b->recent, HOT, sizeof(b->recent[0]), by_call);
	for (uint32_t i = 0; i < misses; i++) {
		b->recent[i] = (struct recent){ fresh_row(b), b->calls };
		b->rows[count++] = b->recent[i].row;
	}
	shuffle_rows(b->rows, TOP_K, &b->state);
}

/* Any rows of the history. */
static void choose_any(struct bench *b)
{
	for (uint32_t i = 0; i < TOP_K; i++)
		b->rows[i] = fresh_row(b);
}

/* One step of one resolve; the time of the resolve alone. */
static double resolve(struct bench *b)
{
	dhs_step_entry entry = { b->session, 0, 1 };
	dhs_selection selection = DHS_INIT(dhs_selection);
	uint32_t kept[1] = { 0 };
	dhs_step step = 0;
	double from, to;

	selection.rows = b->rows;
	selection.slots = b->slots;
	NEED(dhs_step_begin(b->batch, &entry, 1, sizeof(entry), NULL, &step));
	from = now_us();
	NEED(dhs_step_resolve(b->batch, 0, &selection, NULL));
	to = now_us();
	NEED(dhs_step_end(b->context, step, kept, 1));
	return to - from;
}

static dhs_stats stats_of(struct bench *b)
{
	dhs_stats stats = DHS_INIT(dhs_stats);

	NEED(dhs_context_wait(b->context));
	NEED(dhs_context_stats(b->context, &stats));
	return stats;
}

static void bench_resolve(const char *what, uint32_t policy, uint32_t misses, size_t repeats)
{
	struct bench b;
	double *us = calloc(repeats, sizeof(us[0]));
	dhs_stats before, after;

	bench_open(&b, policy);
	for (uint32_t i = 0; i < 20; i++) { /* fills the hot cache first */
		choose(&b, i < HOT / TOP_K ? TOP_K : misses);
		resolve(&b);
	}
	before = stats_of(&b);
	for (size_t i = 0; i < repeats; i++) {
		if (policy == DHS_POLICY_ADAPTIVE)
			choose_any(&b);
		else
			choose(&b, misses);
		us[i] = resolve(&b);
	}
	after = stats_of(&b);
	printf("%-16s %9.1f us   %8.1f page hits %8.1f hot hits %8.1f misses\n", what,
	       median(us, repeats), (double)(after.page_hits - before.page_hits) / (double)repeats,
	       (double)(after.hot_hits - before.hot_hits) / (double)repeats,
	       (double)(after.misses - before.misses) / (double)repeats);
	free(us);
	bench_close(&b);
}

/* Begin, commit and settle of 256 sessions that each add a row. */
static void bench_step(size_t repeats)
{
	dhs_context *context = context_of(DHS_POLICY_ADAPTIVE, SESSIONS, 4096, SESSIONS * 60, 16, PAGE);
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_step_entry entries[SESSIONS];
	uint32_t kept[SESSIONS];
	double *us = calloc(repeats, sizeof(us[0])), from;
	dhs_batch *batch = NULL;
	dhs_step step = 0;

	options.top_k = PAGE;
	NEED(dhs_batch_create(context, &options, &batch));
	for (uint32_t i = 0; i < SESSIONS; i++) {
		entries[i] = (dhs_step_entry){ 0, 1, 1 };
		kept[i] = 1;
		NEED(dhs_session_create(context, NULL, &entries[i].session));
		prefill(context, entries[i].session, 100);
	}
	for (size_t i = 0; i < repeats; i++) {
		from = now_us();
		NEED(dhs_step_begin(batch, entries, SESSIONS, sizeof(entries[0]), NULL, &step));
		NEED(dhs_step_commit(batch, 0, NULL, NULL));
		NEED(dhs_step_settle(context, step, kept, SESSIONS));
		us[i] = now_us() - from;
	}
	printf("%-16s %9.1f us   begin, commit and settle; the commit's copies included\n",
	       "256 sessions", median(us, repeats));
	free(us);
	dhs_context_destroy(context);
}

int main(int argc, char **argv)
{
	size_t repeats = argc > 1 ? strtoul(argv[1], NULL, 10) : 300;

	if (repeats == 0 || repeats > 3000)
		repeats = 300;
	printf("2,048 of 100,000 rows of 656 bytes, 4,096 hot rows: median of %zu resolves\n", repeats);
	bench_resolve("all hot hits", DHS_POLICY_FIXED, 0, repeats);
	bench_resolve("all page hits", DHS_POLICY_ADAPTIVE, 0, repeats);
	bench_resolve("misses 5 %", DHS_POLICY_FIXED, TOP_K / 20, repeats);
	bench_resolve("misses 20 %", DHS_POLICY_FIXED, TOP_K / 5, repeats);
	bench_resolve("misses 100 %", DHS_POLICY_FIXED, TOP_K, repeats);
	bench_step(repeats);
	return 0;
}
