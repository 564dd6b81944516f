/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "timing.h"

#include "kernels.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longer than it takes to enqueue a few calls. */
#define HOLD_NS 60000

void samples_add(struct samples *s, double us)
{
	if (s->count == s->room) {
		s->room = s->room ? 2 * s->room : 32;
		s->us = realloc(s->us, s->room * sizeof(*s->us));
		if (!s->us)
			die(STATUS_FAILED, "no memory for %zu samples", s->room);
	}
	s->us[s->count++] = us;
}

void samples_clear(struct samples *s)
{
	s->count = 0;
}

void samples_free(struct samples *s)
{
	free(s->us);
	*s = (struct samples){ 0 };
}

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct spread spread_of(double *sorted, size_t count)
{
	struct spread r = { .count = count };

	if (!count)
		return r;
	qsort(sorted, count, sizeof(*sorted), by_number);
	r.median = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
	r.low = sorted[(count - 1) / 10];
	r.high = sorted[count - 1 - (count - 1) / 10];
	return r;
}

struct spread samples_spread(const struct samples *s)
{
	double *copy = new_zeroed(s->count, sizeof(*copy));
	struct spread r;

	if (s->count)
		memcpy(copy, s->us, s->count * sizeof(*copy));
	r = spread_of(copy, s->count);
	free(copy);
	return r;
}

struct spread samples_marginal(const struct samples *whole, const struct samples *part, double by)
{
	size_t count = whole->count < part->count ? whole->count : part->count;
	double *each = new_zeroed(count, sizeof(*each));
	struct spread r;

	for (size_t i = 0; i < count; i++)
		each[i] = (whole->us[i] - part->us[i]) / by;
	r = spread_of(each, count);
	free(each);
	return r;
}

void stopwatch_open(struct stopwatch *w)
{
	for (int i = 0; i <= LAPS; i++)
		CU(cudaEventCreate(&w->event[i]));
	w->laps = 0;
}

void stopwatch_close(struct stopwatch *w)
{
	for (int i = 0; i <= LAPS; i++)
		CU(cudaEventDestroy(w->event[i]));
}

void stopwatch_start_idle(struct stopwatch *w, cudaStream_t stream)
{
	w->laps = 0;
	CU(cudaEventRecord(w->event[0], stream));
}

void stopwatch_start(struct stopwatch *w, cudaStream_t stream)
{
	CU(kernel_hold(HOLD_NS, stream));
	stopwatch_start_idle(w, stream);
}

void stopwatch_lap(struct stopwatch *w, cudaStream_t stream)
{
	if (w->laps == LAPS)
		die(STATUS_FAILED, "more than %d laps", LAPS);
	CU(cudaEventRecord(w->event[++w->laps], stream));
}

void stopwatch_read(struct stopwatch *w, double *us)
{
	CU(cudaEventSynchronize(w->event[w->laps]));
	for (int i = 0; i < w->laps; i++) {
		float ms;

		CU(cudaEventElapsedTime(&ms, w->event[i], w->event[i + 1]));
		us[i] = (double)ms * 1e3;
	}
}

double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}
