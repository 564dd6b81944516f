/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What a step costs besides its resolves: begin, slots, commit and settle. */
#include "families.h"
#include "util.h"

#include <stdio.h>

#define SESSIONS 256
#define MIRRORED 128
#define GROUPS 20
#define ROWS 1024
/* Few, so that memory goes to sessions and layers: a page's. */
#define HOT_ROWS 64
/* Steps after which the first page of rows that they wrote is in no tail: the page's rows, the
 * tail's, and those of steps in flight. */
#define AGED (64 + 64 + 2 * DHS_MAX_STEPS_IN_FLIGHT)
#define CALLS 8

struct step_times {
	struct samples begin, commit, settle, all;
	struct samples mirror, slots_call, slots_one, slots_many;
};

/* `sessions` of the bench's take part; each of them has `rows` rows. */
static dhs_step begin(struct bench *b, uint32_t sessions)
{
	dhs_step step;

	for (uint32_t i = 0; i < sessions; i++)
		b->entry[i] = (dhs_step_entry){ .session = b->session[i], .new_rows = 1, .queries = 0 };
	LIB(dhs_step_begin(b->batch, b->entry, sessions, sizeof(*b->entry), b->stream, &step));
	return step;
}

static void keep_all(struct bench *b, dhs_step step, uint32_t sessions)
{
	for (uint32_t i = 0; i < sessions; i++)
		b->kept[i] = 1;
	LIB(dhs_step_settle(b->context, step, b->kept, sessions));
}

static void write_rows(struct bench *b, uint32_t sessions, uint32_t row)
{
	LIB(dhs_step_slots(b->batch, sessions, 1, b->new_slots, b->stream));
	CU(kernel_write_new(b->shape, b->new_slots, sessions, row, b->stream));
}

/* Two steps are in flight, and the device is idle when one begins: what is left is the
 * processor's own work. */
static uint32_t on_the_processor(struct bench *b, struct step_times *t, uint32_t steps)
{
	uint32_t row = b->o.rows;
	dhs_step previous = 0;

	for (uint32_t i = 0; i < steps; i++) {
		double from, begun, to_commit, committed, settled;
		dhs_step step;

		CU(cudaStreamSynchronize(b->stream));
		from = now_us();
		step = begin(b, SESSIONS);
		begun = now_us();
		write_rows(b, SESSIONS, row++);
		to_commit = now_us();
		LIB(dhs_step_commit(b->batch, SESSIONS, NULL, b->stream));
		committed = now_us();
		if (previous)
			keep_all(b, previous, SESSIONS);
		settled = now_us();
		previous = step;
		if (i < 3)
			continue;
		samples_add(&t->begin, begun - from);
		samples_add(&t->commit, committed - to_commit);
		samples_add(&t->settle, settled - committed);
		samples_add(&t->all, begun - from + committed - to_commit + settled - committed);
	}
	keep_all(b, previous, SESSIONS);
	return row;
}

static uint32_t mirror(struct bench *b, struct step_times *t, uint32_t row, uint32_t steps)
{
	struct stopwatch watch;

	stopwatch_open(&watch);
	for (uint32_t i = 0; i < steps; i++) {
		dhs_step step = begin(b, MIRRORED);
		double us[2];

		stopwatch_start(&watch, b->stream);
		LIB(dhs_step_slots(b->batch, MIRRORED, 1, b->new_slots, b->stream));
		stopwatch_lap(&watch, b->stream);
		CU(kernel_write_new(b->shape, b->new_slots, MIRRORED, row++, b->stream));
		stopwatch_lap(&watch, b->stream);
		stopwatch_read(&watch, us);
		samples_add(&t->slots_call, us[0]);
		stopwatch_start(&watch, b->stream);
		LIB(dhs_step_commit(b->batch, MIRRORED, NULL, b->stream));
		stopwatch_lap(&watch, b->stream);
		keep_all(b, step, MIRRORED);
		stopwatch_read(&watch, us);
		samples_add(&t->mirror, us[0]);
	}
	stopwatch_close(&watch);
	return row;
}

/* More steps, until the first rows that steps wrote are in no tail. */
static void age(struct bench *b, uint32_t row)
{
	for (; row < b->o.rows + AGED; row++) {
		dhs_step step = begin(b, MIRRORED);

		write_rows(b, MIRRORED, row);
		LIB(dhs_step_commit(b->batch, MIRRORED, NULL, b->stream));
		keep_all(b, step, MIRRORED);
	}
}

/* Selects the first rows that steps wrote, in a step of its own. */
static void read_group(struct bench *b, uint32_t group)
{
	dhs_selection s = bench_selection(b, group, 1);
	uint32_t layers = b->o.shape->group_layers;
	dhs_step step;

	s.sessions = MIRRORED;
	CU(kernel_select(b->selection + (s.rows - b->selection), MIRRORED, b->o.top_k,
	                 (int32_t)b->o.rows, b->stream));
	for (uint32_t i = 0; i < MIRRORED; i++) {
		b->entry[i] = (dhs_step_entry){ .session = b->session[i], .queries = 1 };
		b->kept[i] = 0;
	}
	LIB(dhs_step_begin(b->batch, b->entry, MIRRORED, sizeof(*b->entry), b->stream, &step));
	LIB(dhs_step_resolve(b->batch, group, &s, b->stream));
	CU(kernel_check(b->shape, group * layers, layers, s.rows, s.slots, MIRRORED, b->o.top_k, 1,
	                b->wrong, b->stream));
	LIB(dhs_step_end(b->context, step, b->kept, MIRRORED));
}

/* What commits mirrored is found in host memory: every row misses, and has its bytes. */
static void read_back(struct bench *b)
{
	dhs_stats before = bench_stats(b), after;
	uint64_t misses;

	for (uint32_t g = 0; g < b->o.groups; g++)
		read_group(b, g);
	after = bench_stats(b);
	bench_verify(b);
	misses = after.misses - before.misses;
	if (misses != (uint64_t)MIRRORED * b->o.top_k * b->o.groups)
		die(STATUS_FAILED, "%llu of the rows that steps wrote were read from host memory, not %llu",
		    (unsigned long long)misses, (unsigned long long)MIRRORED * b->o.top_k * b->o.groups);
}

static cudaGraphExec_t slots_graph(struct bench *b, int calls)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CU(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < calls; i++)
		LIB(dhs_step_slots(b->batch, MIRRORED, 1, b->new_slots, b->stream));
	CU(cudaStreamEndCapture(b->stream, &graph));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphDestroy(graph));
	return exec;
}

/* A step of which nothing is kept, over and over in a graph. */
static void slots(struct bench *b, struct step_times *t, uint32_t repeat)
{
	cudaGraphExec_t graph[2] = { slots_graph(b, 1), slots_graph(b, CALLS) };
	dhs_step step = begin(b, MIRRORED);
	struct stopwatch watch;

	stopwatch_open(&watch);
	for (uint32_t i = 0; i < repeat; i++)
		for (int g = 0; g < 2; g++) {
			double us;

			stopwatch_start(&watch, b->stream);
			CU(cudaGraphLaunch(graph[g], b->stream));
			stopwatch_lap(&watch, b->stream);
			stopwatch_read(&watch, &us);
			samples_add(g ? &t->slots_many : &t->slots_one, us);
		}
	LIB(dhs_step_abort(b->context, step));
	stopwatch_close(&watch);
	CU(cudaStreamSynchronize(b->stream));
	CU(cudaGraphExecDestroy(graph[0]));
	CU(cudaGraphExecDestroy(graph[1]));
}

static void add(struct run *run, uint32_t sessions, const char *work, const char *how,
                struct spread us, double bytes)
{
	struct cell cell = cell_named("step", "glm", sessions, 0, "1 new row", work, how);

	cell.us = us;
	cell.bytes = bytes;
	cell.way = bytes > 0 ? WAY_TO_HOST : WAY_NONE;
	report_add(&run->report, &cell);
	report_line(&run->report, &cell);
}

static void add_all(struct run *run, const struct bench *b, const struct step_times *t)
{
	double bytes = (double)MIRRORED * (double)bench_group_bytes(b) * b->o.groups;

	add(run, SESSIONS, "begin", "clock", samples_spread(&t->begin), 0);
	add(run, SESSIONS, "commit", "clock", samples_spread(&t->commit), 0);
	add(run, SESSIONS, "settle", "clock", samples_spread(&t->settle), 0);
	add(run, SESSIONS, "begin+commit+settle", "clock", samples_spread(&t->all), 0);
	add(run, MIRRORED, "slots", "call", samples_spread(&t->slots_call), 0);
	add(run, MIRRORED, "slots", "graph", samples_marginal(&t->slots_many, &t->slots_one, CALLS - 1),
	    0);
	add(run, MIRRORED, "commit, mirrored", "call", samples_spread(&t->mirror), bytes);
}

static void free_all(struct step_times *t)
{
	samples_free(&t->begin);
	samples_free(&t->commit);
	samples_free(&t->settle);
	samples_free(&t->all);
	samples_free(&t->mirror);
	samples_free(&t->slots_call);
	samples_free(&t->slots_one);
	samples_free(&t->slots_many);
}

void measure_step(struct run *run)
{
	uint32_t steps = 4 * run->options.repeat + 3;
	struct bench_options o = { .shape = &shapes[SHAPE_GLM],
		                       .sessions = SESSIONS,
		                       .groups = GROUPS,
		                       .rows = ROWS,
		                       .grow = steps + run->options.repeat + AGED,
		                       .hot_rows = HOT_ROWS,
		                       .top_k = HOT_ROWS,
		                       .queries = 1,
		                       .buffers = 1,
		                       .policy = DHS_POLICY_FIXED };
	struct step_times t = { 0 };
	struct bench b;
	uint32_t row;

	if (!bench_open(&b, &o, &run->arena, &run->options, run->stream))
		return;
	row = on_the_processor(&b, &t, steps);
	row = mirror(&b, &t, row, run->options.repeat);
	age(&b, row);
	read_back(&b);
	slots(&b, &t, run->options.repeat);
	report_head(&run->report, "A step besides its resolves: 80 layers in groups of 4, rows of "
	                          "656 B; clock: on the processor");
	add_all(run, &b, &t);
	bench_close(&b);
	free_all(&t);
}
