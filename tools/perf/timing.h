/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Times: samples and their spread, CUDA events around work, and the processor's clock.
 * Work that is timed by events is held back by a kernel that waits until it is enqueued
 * whole, so that the time to submit it is not in the figure; `idle` leaves that out.
 */
#ifndef PERF_TIMING_H
#define PERF_TIMING_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

struct samples {
	double *us;
	size_t count, room;
};

/* Of microseconds: median, 10th and 90th percentile. */
struct spread {
	double median, low, high;
	size_t count;
};

void samples_add(struct samples *s, double us);
struct spread samples_spread(const struct samples *s);
/* (whole[i] - part[i]) / by: what one of `by` more calls costs. */
struct spread samples_marginal(const struct samples *whole, const struct samples *part, double by);
void samples_clear(struct samples *s);
void samples_free(struct samples *s);

#define LAPS 3

struct stopwatch {
	cudaEvent_t event[LAPS + 1];
	int laps;
};

void stopwatch_open(struct stopwatch *w);
void stopwatch_close(struct stopwatch *w);
/* Starts in stream order, after a wait on the device that hides how long it takes to
 * enqueue what follows; `idle` without one. */
void stopwatch_start(struct stopwatch *w, cudaStream_t stream);
void stopwatch_start_idle(struct stopwatch *w, cudaStream_t stream);
void stopwatch_lap(struct stopwatch *w, cudaStream_t stream);
/* Waits for the last lap; us[i] is the time of lap i. */
void stopwatch_read(struct stopwatch *w, double *us);

/* Microseconds of the steady clock. */
double now_us(void);

#endif
