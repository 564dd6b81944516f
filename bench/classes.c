/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "classes.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

#define TOP_K 2048

/* Two of them are made in two ways, since overlap and curve do not tell what made them.  Of
 * `locality`: rows, top_k; weights of lasting, kind, slow, fast, noise, recency; kinds, slow
 * steps, fast steps, recent rows. */
const struct locality_class locality_classes[] = {
	{ "middle",
	  "V3.2, 68K rows, middle layers",
	  { 35, 50 },
	  { 0 },
	  { 69632, TOP_K, 58, 40, 95, 50, 45, 50, 8, 528, 8, 2080 } },
	{ "middle, drifting",
	  "the same, with topics that drift only",
	  { 35, 50 },
	  { 0 },
	  { 69632, TOP_K, 0, 0, 11, 60, 30, 161, 0, 294, 30, 1800 } },
	{ "short",
	  "V4, 17K rows",
	  { 53, 61 },
	  { 0 },
	  { 17408, TOP_K, 58, 40, 80, 50, 35, 50, 8, 528, 8, 2080 } },
	{ "first",
	  "V3.2, 68K rows, first layers",
	  { 2, 10 },
	  { 0 },
	  { 69632, TOP_K, 20, 70, 0, 0, 50, 15, 64, 0, 0, 2080 } },
	{ "curve, drifting",
	  "one report of misses; here 24K rows",
	  { 0 },
	  { 34, 17, 10, 7, 2.4 },
	  { 24289, TOP_K, 0, 0, 17, 40, 31, 239, 0, 1146, 41, 1694 } },
	{ "curve, mixed",
	  "one report of misses; here 61K rows",
	  { 0 },
	  { 34, 17, 10, 7, 2.4 },
	  { 62669, TOP_K, 63, 33, 95, 59, 4, 80, 16, 482, 7, 1025 } },
	{ 0 },
};

/* ---- numbers ------------------------------------------------------------------------- */

#define DEVIATION 37837 /* of normal() */

/* The sum of a word's four quarters: near enough to normally distributed, around 0. */
static int32_t normal(uint64_t *state)
{
	uint64_t z = bench_draw(state);

	return (int32_t)((z & 65535) + (z >> 16 & 65535) + (z >> 32 & 65535) + (z >> 48)) - 131070;
}

static uint32_t root(uint64_t square)
{
	uint64_t x = 0;

	for (uint64_t bit = (uint64_t)1 << 31; bit; bit >>= 1)
		if ((x | bit) * (x | bit) <= square)
			x |= bit;
	return (uint32_t)x;
}

/* ---- scores -------------------------------------------------------------------------- */

#define SINK_ROWS 4
#define ONE 65536 /* in fixed point */

/* A part that drifts: each step keeps `keep` of it, and adds so much that it stays as wide. */
struct drift {
	int32_t *value; /* of each row */
	int64_t keep, add;
};

struct score {
	const struct locality *l;
	uint64_t state;
	uint32_t rows;
	int32_t *lasting, *kind; /* [rows], [row][kinds] */
	struct drift slow, fast;
	uint64_t *score, *sorted; /* with the row in the low bits, so that none are equal */
};

#define ROW_BITS 20

static void drift_open(struct drift *d, uint32_t most, uint32_t steps)
{
	d->value = bench_zeros(most, sizeof(*d->value));
	d->keep = steps ? ONE - ONE / (int64_t)steps : 0;
	d->add = root((uint64_t)(ONE * (int64_t)ONE - d->keep * d->keep));
}

static void add_row(struct score *s)
{
	uint32_t row = s->rows++;

	s->lasting[row] = normal(&s->state);
	for (uint32_t k = 0; k < s->l->kinds; k++)
		s->kind[(size_t)row * s->l->kinds + k] = normal(&s->state);
	s->slow.value[row] = normal(&s->state);
	s->fast.value[row] = normal(&s->state);
}

static int64_t drifted(struct score *s, struct drift *d, uint32_t row)
{
	int64_t value = d->value[row] * d->keep + normal(&s->state) * d->add;

	return d->value[row] = (int32_t)(value / ONE);
}

static int64_t recency(const struct score *s, uint32_t row)
{
	uint32_t age = s->rows - 1 - row;

	if (age >= s->l->recent_rows)
		return 0;
	return (int64_t)DEVIATION * (s->l->recent_rows - age) / s->l->recent_rows;
}

static int64_t score_of(struct score *s, uint32_t row, uint32_t kind)
{
	const struct locality *l = s->l;
	int64_t sum = (int64_t)l->lasting * s->lasting[row] + l->recency * recency(s, row);

	if (row < SINK_ROWS)
		return (int64_t)1 << 42;
	if (l->kind)
		sum += (int64_t)l->kind * s->kind[(size_t)row * l->kinds + kind];
	if (l->slow)
		sum += l->slow * drifted(s, &s->slow, row);
	if (l->fast)
		sum += l->fast * drifted(s, &s->fast, row);
	if (l->noise)
		sum += (int64_t)l->noise * normal(&s->state);
	return sum;
}

/* The top_k best in random order. */
static void select_rows(struct score *s, uint32_t kind, int32_t *rows)
{
	uint32_t count = 0, k = s->l->top_k;
	uint64_t least;

	for (uint32_t row = 0; row < s->rows; row++) {
		uint64_t score = (uint64_t)(score_of(s, row, kind) + ((int64_t)1 << 42));

		s->sorted[row] = s->score[row] = score << ROW_BITS | row;
	}
	least = bench_nth(s->sorted, s->rows, s->rows - k + 1);
	for (uint32_t row = 0; row < s->rows; row++) {
		uint32_t to;

		if (s->score[row] < least)
			continue;
		to = (uint32_t)(bench_draw(&s->state) % (count + 1));
		rows[count++] = rows[to];
		rows[to] = (int32_t)row;
	}
}

void locality_trace(struct trace *t, const struct locality *l, uint32_t plans, uint64_t seed)
{
	uint32_t most = l->rows + plans;
	struct score s = { .l = l, .state = seed };
	int32_t *rows = bench_zeros(l->top_k, sizeof(*rows));

	if (l->top_k > l->rows || most >> ROW_BITS)
		bench_die("a history of %u to %u rows: not what this was made for", l->rows, most);
	*t = (struct trace){ .top_k = l->top_k };
	s.lasting = bench_zeros(most, sizeof(*s.lasting));
	s.kind = bench_zeros((uint64_t)most * l->kinds, sizeof(*s.kind));
	s.score = bench_zeros(most, sizeof(*s.score));
	s.sorted = bench_zeros(most, sizeof(*s.sorted));
	drift_open(&s.slow, most, l->slow_steps);
	drift_open(&s.fast, most, l->fast_steps);
	while (s.rows < l->rows)
		add_row(&s);
	for (uint32_t p = 0; p < plans; p++) {
		add_row(&s);
		select_rows(&s, l->kinds ? (uint32_t)(bench_draw(&s.state) % l->kinds) : 0, rows);
		trace_add(t, l->rows + p, 1, rows);
	}
	free(rows);
	free(s.lasting);
	free(s.kind);
	free(s.score);
	free(s.sorted);
	free(s.slow.value);
	free(s.fast.value);
}
