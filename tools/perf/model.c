/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "model.h"

#include "util.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define POWER 2.0
#define BEFORE 160 /* steps that are not kept */

struct simulation {
	uint32_t rows, hot_rows;
	uint64_t seed;
	double *chance; /* [rows] */
	int32_t *order; /* [rows] of the first miss, or -1 */
	uint32_t *last; /* [rows] the step of the last selection, from 1 on; 0: not in the cache */
	uint32_t *used; /* rows of all selections, one behind the other */
	size_t uses, room;
	size_t oldest;     /* use that gives way next */
	uint32_t *step_of; /* of each use */
	uint32_t held;     /* rows in the cache */
	int32_t missed;    /* rows that ever did */
};

static double uniform(struct simulation *s)
{
	uint64_t z = s->seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static double selected(double k, uint32_t rows)
{
	double sum = 0;

	for (uint32_t r = 1; r <= rows; r++)
		sum += fmin(1, pow(k / r, POWER));
	return sum;
}

/* Chances that sum up to top_k, by bisection, then in an order of their own. */
static void set_chances(struct simulation *s, uint32_t top_k)
{
	double low = 1, high = s->rows;

	for (int i = 0; i < 20; i++) {
		double k = (low + high) / 2;

		if (selected(k, s->rows) < top_k)
			low = k;
		else
			high = k;
	}
	for (uint32_t r = 0; r < s->rows; r++) {
		uint32_t at = (uint32_t)(uniform(s) * (r + 1));

		s->chance[r] = s->chance[at];
		s->chance[at] = fmin(1, pow(low / (r + 1), POWER));
	}
}

static void use(struct simulation *s, uint32_t row, uint32_t step)
{
	if (s->uses == s->room) {
		s->room = s->room ? 2 * s->room : 1u << 18;
		s->used = realloc(s->used, s->room * sizeof(*s->used));
		s->step_of = realloc(s->step_of, s->room * sizeof(*s->step_of));
		if (!s->used || !s->step_of)
			die(STATUS_FAILED, "no memory for %zu selected rows", s->room);
	}
	s->used[s->uses] = row;
	s->step_of[s->uses++] = step;
	s->held += !s->last[row];
	s->last[row] = step;
}

static void shrink(struct simulation *s)
{
	for (; s->held > s->hot_rows; s->oldest++) {
		uint32_t row = s->used[s->oldest];

		if (s->last[row] != s->step_of[s->oldest])
			continue;
		s->last[row] = 0;
		s->held--;
	}
}

/* Adds the misses to `to` unless it is NULL; tells how many missed for the first time. */
static uint32_t run_step(struct simulation *s, uint32_t step, struct model_step *to)
{
	uint32_t first = 0;

	for (uint32_t row = 0; row < s->rows; row++) {
		if (uniform(s) >= s->chance[row])
			continue;
		if (!s->last[row]) {
			if (to)
				to->missed[to->count++] = (struct missed){ row, s->order[row] };
			if (s->order[row] < 0) {
				s->order[row] = s->missed++;
				first++;
			}
		}
		use(s, row, step);
	}
	shrink(s);
	return first;
}

static void simulate(struct model *m, int session, uint32_t rows, uint32_t hot_rows, uint32_t top_k)
{
	struct simulation s = { .rows = rows, .hot_rows = hot_rows, .seed = (uint64_t)session << 40 };

	s.chance = new_zeroed(rows, sizeof(*s.chance));
	s.order = new_zeroed(rows, sizeof(*s.order));
	s.last = new_zeroed(rows, sizeof(*s.last));
	for (uint32_t r = 0; r < rows; r++)
		s.order[r] = -1;
	set_chances(&s, top_k);
	for (uint32_t i = 1; i <= BEFORE; i++)
		run_step(&s, i, NULL);
	for (uint32_t i = 0; i < MODEL_STEPS; i++) {
		struct model_step *step = &m->step[session][i];

		step->missed = new_zeroed(4 * (size_t)top_k, sizeof(*step->missed));
		m->first += run_step(&s, BEFORE + 1 + i, step) / (double)(MODEL_SESSIONS * MODEL_STEPS);
		m->misses += step->count / (double)(MODEL_SESSIONS * MODEL_STEPS);
	}
	free(s.chance);
	free(s.order);
	free(s.last);
	free(s.used);
	free(s.step_of);
}

void model_open(struct model *m, uint32_t rows, uint32_t hot_rows, uint32_t top_k)
{
	*m = (struct model){ 0 };
	for (int i = 0; i < MODEL_SESSIONS; i++)
		simulate(m, i, rows, hot_rows, top_k);
}

void model_close(struct model *m)
{
	for (int i = 0; i < MODEL_SESSIONS; i++)
		for (int j = 0; j < MODEL_STEPS; j++)
			free(m->step[i][j].missed);
}
