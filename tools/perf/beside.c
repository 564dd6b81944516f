/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A fetch beside compute: how much each slows the other down.  The library's fetch, on
 * streams of several priorities, and the tool's own copy with few and many blocks.
 */
#include "engine.h"
#include "families.h"
#include "util.h"

#include <math.h>
#include <stdio.h>

#define SESSIONS 32
#define LAYERS 4
#define ROW_BYTES 656
#define COPIES 24        /* of the tool's own, launched one after the other */
#define COMPUTE_US 500.0 /* of one compute kernel */
/* What the short stretch of compute takes about, well within the fetch. */
#define SHORT_US 12000.0
/* Runs of each figure, of which the first does not count. */
#define TIMES 5

struct beside {
	struct run *run;
	struct bench bench;
	cudaStream_t compute, fetch;
	struct engine engine;
	unsigned char *to; /* of own copies */
	uint32_t blocks;   /* of the tool's copy; 0: the library's fetch */
	uint32_t call;
};

/* The rows are drawn before, on the bench's stream: `dhs_step_begin`'s. */
static void fetch_library(struct beside *s)
{
	for (uint32_t g = 0; g < s->bench.o.groups; g++) {
		dhs_selection sel = bench_selection(&s->bench, g, 1);

		LIB(dhs_step_resolve(s->bench.batch, g, &sel, s->fetch));
	}
}

static void fetch_own(struct beside *s)
{
	struct options *o = &s->run->options;
	size_t region = (size_t)SESSIONS * o->rows * LAYERS * ROW_BYTES;
	size_t regions = s->run->arena.bytes / region;
	struct plain_rows p = { .to = s->to,
		                    .sessions = SESSIONS,
		                    .rows = o->rows,
		                    .layers = LAYERS,
		                    .row_bytes = ROW_BYTES,
		                    .misses = o->top_k };

	for (int i = 0; i < COPIES; i++) {
		p.seed = ++s->call;
		p.from = s->run->arena.device + s->call % regions * region;
		CU(kernel_records(&p, s->blocks, s->fetch));
	}
}

static void join(cudaStream_t from, cudaStream_t to)
{
	cudaEvent_t event;

	CU(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CU(cudaEventRecord(event, from));
	CU(cudaStreamWaitEvent(to, event, 0));
	CU(cudaEventDestroy(event));
}

/* One fetch and `kernels` compute kernels start together; us[0] is the fetch, us[1] one
 * compute kernel.  Either may be left out. */
static void together(struct beside *s, bool fetch, enum compute what, int kernels, double *us)
{
	cudaStream_t main = s->bench.stream;
	struct stopwatch f, c;
	dhs_step step = 0;

	stopwatch_open(&f);
	stopwatch_open(&c);
	if (fetch && !s->blocks) {
		step = bench_begin(&s->bench, 0, 1);
		for (uint32_t g = 0; g < s->bench.o.groups; g++)
			bench_draw(&s->bench, g, 1, s->bench.o.top_k, 0);
	}
	/* Long enough to enqueue everything. */
	CU(kernel_hold(3000000, main));
	join(main, s->fetch);
	join(main, s->compute);
	stopwatch_start_idle(&f, s->fetch);
	stopwatch_start_idle(&c, s->compute);
	if (fetch && s->blocks)
		fetch_own(s);
	else if (fetch)
		fetch_library(s);
	stopwatch_lap(&f, s->fetch);
	for (int i = 0; i < kernels; i++)
		engine_compute(&s->engine, what, s->compute);
	stopwatch_lap(&c, s->compute);
	join(s->fetch, main);
	join(s->compute, main);
	if (step)
		bench_end(&s->bench, step);
	stopwatch_read(&f, &us[0]);
	stopwatch_read(&c, &us[1]);
	if (kernels)
		us[1] /= kernels;
	stopwatch_close(&f);
	stopwatch_close(&c);
	CU(cudaDeviceSynchronize());
}

struct outcome {
	struct spread fetch_alone, fetch_beside, compute_alone, compute_beside;
};

static struct spread repeat(struct beside *s, bool fetch, enum compute what, int kernels, int which)
{
	struct samples samples = { 0 };
	struct spread r;

	for (int i = 0; i < TIMES; i++) {
		double us[2];

		together(s, fetch, what, kernels, us);
		if (i)
			samples_add(&samples, us[which]);
	}
	r = samples_spread(&samples);
	samples_free(&samples);
	return r;
}

/* A short stretch of compute lies within the fetch; a long one covers it. */
static struct outcome measure(struct beside *s, enum compute what)
{
	struct outcome o;
	int few, many;

	o.compute_alone = repeat(s, false, what, 10, 1);
	o.fetch_alone = repeat(s, true, what, 0, 0);
	few = (int)fmax(1, fmin(SHORT_US, o.fetch_alone.median / 3) / o.compute_alone.median);
	many = (int)(1.5 * o.fetch_alone.median / o.compute_alone.median) + 1;
	o.compute_beside = repeat(s, true, what, few, 1);
	o.fetch_beside = repeat(s, true, what, many, 0);
	return o;
}

static void add(struct run *run, const char *layout, const char *load, const char *how,
                const char *work, struct spread us, double bytes)
{
	struct cell cell = cell_named("beside", layout, SESSIONS, 1, load, work, how);

	cell.us = us;
	cell.bytes = bytes;
	cell.way = bytes > 0 ? WAY_TO_DEVICE : WAY_NONE;
	report_add(&run->report, &cell);
}

static double fetch_bytes(const struct beside *s)
{
	double bytes = (double)SESSIONS * s->run->options.top_k * LAYERS * ROW_BYTES;

	return bytes * (s->blocks ? COPIES : (double)s->bench.o.groups);
}

static void one(struct beside *s, enum compute what, const char *layout, const char *how)
{
	const char *load = compute_names[what];
	struct report *r = &s->run->report;
	struct outcome o = measure(s, what);
	double bytes = fetch_bytes(s);

	add(s->run, layout, load, how, "compute alone", o.compute_alone, 0);
	add(s->run, layout, load, how, "compute beside", o.compute_beside, 0);
	add(s->run, layout, load, how, "fetch alone", o.fetch_alone, bytes);
	add(s->run, layout, load, how, "fetch beside", o.fetch_beside, bytes);
	report_text(r, "%-12s %-12s %-14s | %12.1f %12.1f %7.3f | %10.1f %10.1f %7.3f\n", layout, load,
	            how, o.compute_alone.median, o.compute_beside.median,
	            o.compute_beside.median / o.compute_alone.median,
	            bytes / o.fetch_alone.median / 1e3, bytes / o.fetch_beside.median / 1e3,
	            o.fetch_beside.median / o.fetch_alone.median);
}

static void priorities(struct beside *s)
{
	const char *const names[] = { "below compute", "as compute", "above compute" };
	int low = s->run->low, high = s->run->high, middle = low + (high - low) / 2;
	int priority[] = { low, middle, high };

	for (int i = 0; i < 3; i++) {
		CU(cudaStreamCreateWithPriority(&s->fetch, cudaStreamNonBlocking, priority[i]));
		one(s, COMPUTE_COPY, "library", names[i]);
		one(s, COMPUTE_PRODUCTS, "library", names[i]);
		CU(cudaStreamDestroy(s->fetch));
	}
}

static void blocks(struct beside *s)
{
	static const uint32_t counts[] = { 2, 4, 8, 16, 32, 64 };
	const int n = sizeof(counts) / sizeof(counts[0]);
	char how[PART];

	CU(cudaStreamCreateWithPriority(&s->fetch, cudaStreamNonBlocking, s->run->high));
	for (int i = 0; i < n; i++) {
		s->blocks = counts[i];
		snprintf(how, sizeof(how), "%u blocks", counts[i]);
		one(s, COMPUTE_COPY, "own copy", how);
		one(s, COMPUTE_PRODUCTS, "own copy", how);
	}
	s->blocks = 0;
	CU(cudaStreamDestroy(s->fetch));
}

static void head(struct run *run)
{
	report_title(&run->report,
	             "Fetch beside compute: %d sessions, all missing, 4 x 656 B; priority of the "
	             "fetch's stream\n(own copies: above compute); us of one compute kernel, GB/s of "
	             "the fetch",
	             SESSIONS);
	report_text(&run->report, "%-12s %-12s %-14s | %12s %12s %7s | %10s %10s %7s\n", "fetch",
	            "compute", "priority", "compute us", "beside", "ratio", "GB/s", "beside", "ratio");
}

void measure_beside(struct run *run)
{
	struct bench_options o = { .shape = &shapes[SHAPE_GLM],
		                       .sessions = SESSIONS,
		                       .rows = run->options.rows,
		                       .queries = 1,
		                       .buffers = 1,
		                       .policy = DHS_POLICY_FIXED };
	struct beside s = { .run = run };
	int middle = run->low + (run->high - run->low) / 2;

	if (!bench_open(&s.bench, &o, &run->arena, &run->options, run->stream))
		return;
	engine_open(&s.engine, run->report.multiprocessors, run->stream);
	engine_size(&s.engine, COMPUTE_US);
	s.to = new_on_device((size_t)SESSIONS * run->options.top_k * LAYERS * ROW_BYTES);
	CU(cudaStreamCreateWithPriority(&s.compute, cudaStreamNonBlocking, middle));
	head(run);
	priorities(&s);
	blocks(&s);
	CU(cudaStreamDestroy(s.compute));
	CU(cudaFree(s.to));
	engine_close(&s.engine);
	bench_close(&s.bench);
}
