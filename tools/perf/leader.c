/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Groups of four layers, with compute of four layers behind each plan: all rows fetched
 * first, or only the leader's, and the followers' on a stream of their own behind the
 * leader's compute: all together, or layer by layer.  Captured in one graph.
 */
#include "engine.h"
#include "families.h"
#include "util.h"

#include <math.h>
#include <stdio.h>

#define LAYERS 4
#define MOST_GROUPS 4
/* Resolves of a group before it is measured: its hot cache is full then. */
#define WARM 3

enum mode { COMPUTE_ONLY, ALL_FIRST, LEADER_FIRST, BY_LAYER, MODES };

static const char *const mode_names[MODES] = { "compute only", "all first", "leader first",
	                                           "by layer" };

struct leader {
	struct run *run;
	struct bench bench;
	struct engine engine;
	cudaStream_t side;
	cudaEvent_t fork, joined[LAYERS];
	enum compute compute;
	uint32_t us; /* of a layer */
	uint32_t misses;
	cudaGraphExec_t graph[MODES];
	struct samples samples[MODES];
};

/* ---- one group ---- */

static void plan(struct leader *l, uint32_t group)
{
	dhs_selection s = bench_selection(&l->bench, group, 1);

	LIB(dhs_step_plan(l->bench.batch, group, &s, l->bench.stream));
}

static void compute(struct leader *l, uint32_t layers)
{
	for (uint32_t i = 0; i < layers; i++)
		engine_compute(&l->engine, l->compute, l->bench.stream);
}

static void all_first(struct leader *l, uint32_t group)
{
	plan(l, group);
	LIB(dhs_step_fetch(l->bench.batch, group, 0, 0, l->bench.stream));
	compute(l, LAYERS);
}

static void fetch_aside(struct leader *l, uint32_t group, uint32_t first, uint32_t layers)
{
	LIB(dhs_step_fetch(l->bench.batch, group, first, layers, l->side));
	CU(cudaEventRecord(l->joined[first], l->side));
}

static void leader_first(struct leader *l, uint32_t group, uint32_t at_once)
{
	plan(l, group);
	LIB(dhs_step_fetch(l->bench.batch, group, 0, 1, l->bench.stream));
	CU(cudaEventRecord(l->fork, l->bench.stream));
	CU(cudaStreamWaitEvent(l->side, l->fork, 0));
	for (uint32_t i = 1; i < LAYERS; i += at_once)
		fetch_aside(l, group, i, at_once);
	compute(l, 1);
	for (uint32_t i = 1; i < LAYERS; i += at_once) {
		CU(cudaStreamWaitEvent(l->bench.stream, l->joined[i], 0));
		compute(l, at_once);
	}
}

static void one_group(struct leader *l, enum mode mode, uint32_t group)
{
	if (mode == COMPUTE_ONLY)
		compute(l, LAYERS);
	else if (mode == ALL_FIRST)
		all_first(l, group);
	else
		leader_first(l, group, mode == BY_LAYER ? 1 : LAYERS - 1);
}

static cudaGraphExec_t capture(struct leader *l, enum mode mode)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CU(cudaStreamBeginCapture(l->bench.stream, cudaStreamCaptureModeThreadLocal));
	for (uint32_t g = 0; g < l->bench.o.groups; g++)
		one_group(l, mode, g);
	CU(cudaStreamEndCapture(l->bench.stream, &graph));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphDestroy(graph));
	return exec;
}

/* ---- steps ---- */

static void draw(struct leader *l, uint32_t fresh)
{
	for (uint32_t g = 0; g < l->bench.o.groups; g++)
		bench_draw(&l->bench, g, 1, fresh, 0);
}

static void warm(struct leader *l)
{
	for (int round = 0; round < WARM; round++) {
		dhs_step step = bench_begin(&l->bench, 0, 1);

		draw(l, l->bench.o.top_k);
		for (uint32_t g = 0; g < l->bench.o.groups; g++) {
			dhs_selection s = bench_selection(&l->bench, g, 1);

			LIB(dhs_step_resolve(l->bench.batch, g, &s, l->bench.stream));
		}
		bench_end(&l->bench, step);
	}
}

static double step_of(struct leader *l, enum mode mode)
{
	dhs_step step = bench_begin(&l->bench, 0, 1);
	struct stopwatch watch;
	double us;

	if (mode != COMPUTE_ONLY)
		draw(l, l->misses);
	stopwatch_open(&watch);
	stopwatch_start(&watch, l->bench.stream);
	CU(cudaGraphLaunch(l->graph[mode], l->bench.stream));
	stopwatch_lap(&watch, l->bench.stream);
	for (uint32_t g = 0; mode != COMPUTE_ONLY && g < l->bench.o.groups; g++)
		bench_check(&l->bench, g, 1);
	bench_end(&l->bench, step);
	stopwatch_read(&watch, &us);
	stopwatch_close(&watch);
	return us / l->bench.o.groups;
}

/* ---- figures ---- */

static void head(struct run *run)
{
	report_title(&run->report,
	             "Leader first: groups of 4 x 656 B; all rows fetched before the leader's compute, "
	             "or the followers'\nbeside it, together or layer by layer; us of a group; hidden: "
	             "of what plan and fetch add");
	report_text(&run->report, "%-12s %8s %-7s %8s | %12s %10s | %12s %6s %7s | %10s %6s %7s\n",
	            "compute", "sessions", "misses", "a layer", "compute only", "all first",
	            "leader first", "ratio", "hidden", "by layer", "ratio", "hidden");
}

/* Percent of what all first adds to compute. */
static double hidden(const double *us, enum mode mode)
{
	return 100 * (us[ALL_FIRST] - us[mode]) / (us[ALL_FIRST] - us[COMPUTE_ONLY]);
}

static void report(struct leader *l, uint32_t percent)
{
	struct report *r = &l->run->report;
	double us[MODES];
	char load[PART], work[PART];

	snprintf(load, sizeof(load), "%u %%, %u us a layer", percent, l->us);
	for (int m = 0; m < MODES; m++) {
		struct cell c;

		snprintf(work, sizeof(work), "%s, %s", l->compute == COMPUTE_COPY ? "copy" : "products",
		         mode_names[m]);
		c = cell_named("leader", "glm", l->bench.o.sessions, 1, load, work, "graph");
		c.us = samples_spread(&l->samples[m]);
		c.misses = m == COMPUTE_ONLY ? 0 : l->misses;
		us[m] = c.us.median;
		report_add(r, &c);
	}
	report_text(r,
	            "%-12s %8u %5u %% %8u | %12.1f %10.1f | %12.1f %6.3f %5.0f %% | %10.1f %6.3f %5.0f "
	            "%%\n",
	            compute_names[l->compute], l->bench.o.sessions, percent, l->us, us[COMPUTE_ONLY],
	            us[ALL_FIRST], us[LEADER_FIRST], us[LEADER_FIRST] / us[ALL_FIRST],
	            hidden(us, LEADER_FIRST), us[BY_LAYER], us[BY_LAYER] / us[ALL_FIRST],
	            hidden(us, BY_LAYER));
}

/* One kind and length of compute, and one number of misses. */
static void one(struct leader *l, uint32_t percent)
{
	l->misses = (uint32_t)lround(percent / 100.0 * l->bench.o.top_k);
	engine_size(&l->engine, l->us);
	for (int m = 0; m < MODES; m++)
		l->graph[m] = capture(l, m);
	for (uint32_t i = 0; i < l->run->options.repeat + 2; i++)
		for (int m = 0; m < MODES; m++) {
			double us = step_of(l, m);

			if (i >= 2)
				samples_add(&l->samples[m], us);
		}
	bench_verify(&l->bench);
	report(l, percent);
	for (int m = 0; m < MODES; m++) {
		CU(cudaGraphExecDestroy(l->graph[m]));
		samples_free(&l->samples[m]);
	}
}

static void some_sessions(struct leader *l, uint32_t sessions)
{
	static const uint32_t percent[] = { 5, 20 }, us[] = { 100, 200, 400 };
	struct bench_options o = { .shape = &shapes[SHAPE_GLM],
		                       .sessions = sessions,
		                       .groups = MOST_GROUPS,
		                       .rows = l->run->options.rows,
		                       .queries = 1,
		                       .buffers = 1,
		                       .policy = DHS_POLICY_FIXED };

	if (!bench_open(&l->bench, &o, &l->run->arena, &l->run->options, l->run->stream))
		return;
	warm(l);
	for (int c = 0; c < COMPUTES; c++)
		for (int p = 0; p < 2; p++)
			for (int i = 0; i < 3; i++) {
				l->compute = c;
				l->us = us[i];
				one(l, percent[p]);
			}
	bench_close(&l->bench);
}

void measure_leader(struct run *run)
{
	static const uint32_t sessions[] = { 16, 32, 128 };
	struct leader l = { .run = run };

	engine_open(&l.engine, run->report.multiprocessors, run->stream);
	/* Copies wait for the link, not for multiprocessors: they go first where both may run. */
	CU(cudaStreamCreateWithPriority(&l.side, cudaStreamNonBlocking, run->high));
	CU(cudaEventCreateWithFlags(&l.fork, cudaEventDisableTiming));
	for (int i = 0; i < LAYERS; i++)
		CU(cudaEventCreateWithFlags(&l.joined[i], cudaEventDisableTiming));
	head(run);
	for (int i = 0; i < 3; i++)
		some_sessions(&l, sessions[i]);
	CU(cudaEventDestroy(l.fork));
	for (int i = 0; i < LAYERS; i++)
		CU(cudaEventDestroy(l.joined[i]));
	CU(cudaStreamDestroy(l.side));
	engine_close(&l.engine);
}
