/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The figures of one load.  In a graph: what one more call costs, from a graph of several
 * calls of a step and one of a single call; enqueued one by one: event to event.
 * Successive calls go to successive groups, as layers do, and successive samples to other
 * groups where there are: the rows of one that was just used would find their
 * translations held.  Where there are few groups a step resolves each several times.  A plan
 * whose fetch comes later cannot be repeated so, as the next one would drop it: then
 * samples are more instead.
 */
#include "families.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

/* Resolves of a group before it is measured: its hot cache is full then. */
#define WARM 3
/* Calls that the larger graph has at least: groups are planned again where they are fewer. */
#define LEAST_CALLS 6
/* Unmeasured rounds of each load. */
#define LEAD 2

enum what { RESOLVE = 1, PLAN = 2, FETCH = 4 };

struct graphs {
	cudaGraphExec_t resolve[2], plan[2], fetch[2]; /* of one call, or none; of all; or not yet */
};

struct work {
	struct run *run;
	struct bench *b;
	const struct load *load;
	struct stopwatch watch;
	uint32_t calls[2]; /* of the smaller and the larger graph */
	uint32_t split[2]; /* the same of plans and fetches apart */
	uint32_t sets;     /* of groups that take turns */
	struct graphs *graphs;
	struct samples resolve[2], plan[2], fetch[2];
	struct samples resolve_call, plan_call, fetch_call;
};

/* ---- graphs ---- */

static void enqueue(struct work *w, enum what what, uint32_t i)
{
	dhs_selection s = bench_selection(w->b, i, w->load->queries);
	uint32_t group = bench_group(w->b, i);

	if (what == RESOLVE)
		LIB(dhs_step_resolve(w->b->batch, group, &s, w->b->stream));
	else if (what == PLAN)
		LIB(dhs_step_plan(w->b->batch, group, &s, w->b->stream));
	else
		LIB(dhs_step_fetch(w->b->batch, group, 0, 0, w->b->stream));
}

static cudaGraphExec_t capture(struct work *w, enum what what, uint32_t first, uint32_t count)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CU(cudaStreamBeginCapture(w->b->stream, cudaStreamCaptureModeThreadLocal));
	if (!count)
		CU(kernel_empty(w->b->stream));
	for (uint32_t i = 0; i < count; i++)
		enqueue(w, what, first + i);
	CU(cudaStreamEndCapture(w->b->stream, &graph));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphDestroy(graph));
	return exec;
}

/* Captured when it is first used: not every set sees every graph. */
static cudaGraphExec_t graph_of(struct work *w, enum what what, uint32_t set, int i)
{
	struct graphs *g = &w->graphs[set];
	cudaGraphExec_t *exec = what == RESOLVE ? &g->resolve[i]
	                        : what == PLAN  ? &g->plan[i]
	                                        : &g->fetch[i];

	if (!*exec)
		*exec = capture(w, what, set * w->calls[1], what == RESOLVE ? w->calls[i] : w->split[i]);
	return *exec;
}

static void destroy(cudaGraphExec_t exec)
{
	if (exec)
		CU(cudaGraphExecDestroy(exec));
}

static void destroy_set(struct graphs *g)
{
	for (int i = 0; i < 2; i++) {
		destroy(g->resolve[i]);
		destroy(g->plan[i]);
		destroy(g->fetch[i]);
	}
}

/* ---- steps ---- */

static void draw(struct work *w, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		bench_draw(w->b, i, w->load->queries, w->load->fresh, w->load->shared);
}

/* The last plan of each group. */
static void check(struct work *w, uint32_t first, uint32_t count)
{
	uint32_t groups = w->b->o.groups, from = count > groups ? first + count - groups : first;

	for (uint32_t i = from; i < first + count; i++)
		bench_check(w->b, i, w->load->queries);
}

/* Fills hot caches of groups that were not used yet; their misses must not be counted as
 * the load's. */
static void warm_set(struct work *w, uint32_t set)
{
	uint32_t first = set * w->calls[1], top_k = w->b->o.top_k;

	if (w->b->calls[bench_group(w->b, first)])
		return;
	for (int round = 0; round < WARM; round++) {
		dhs_step step = bench_begin(w->b, 0, w->load->queries);

		for (uint32_t i = first; i < first + w->calls[1]; i++) {
			bench_draw(w->b, i, w->load->queries, top_k, 0);
			enqueue(w, RESOLVE, i);
		}
		bench_end(w->b, step);
	}
}

/* The set whose turn it is. */
static uint32_t next_set(struct work *w)
{
	return w->b->turn++ % w->sets;
}

static void step_of_graph(struct work *w, int i, struct samples *resolve)
{
	uint32_t set = next_set(w), first = set * w->calls[1];
	cudaGraphExec_t graph = graph_of(w, RESOLVE, set, i);
	dhs_step step = bench_begin(w->b, 0, w->load->queries);
	double us;

	draw(w, first, w->calls[i]);
	stopwatch_start(&w->watch, w->b->stream);
	CU(cudaGraphLaunch(graph, w->b->stream));
	stopwatch_lap(&w->watch, w->b->stream);
	check(w, first, w->calls[i]);
	bench_end(w->b, step);
	stopwatch_read(&w->watch, &us);
	samples_add(resolve, us);
}

static void step_of_two_graphs(struct work *w, int i, struct samples *plan, struct samples *fetch)
{
	uint32_t set = next_set(w), first = set * w->calls[1];
	cudaGraphExec_t plans = graph_of(w, PLAN, set, i), fetches = graph_of(w, FETCH, set, i);
	dhs_step step = bench_begin(w->b, 0, w->load->queries);
	double us[2];

	draw(w, first, w->split[i]);
	stopwatch_start(&w->watch, w->b->stream);
	CU(cudaGraphLaunch(plans, w->b->stream));
	stopwatch_lap(&w->watch, w->b->stream);
	CU(cudaGraphLaunch(fetches, w->b->stream));
	stopwatch_lap(&w->watch, w->b->stream);
	check(w, first, w->split[i]);
	bench_end(w->b, step);
	stopwatch_read(&w->watch, us);
	samples_add(plan, us[0]);
	samples_add(fetch, us[1]);
}

static void step_of_calls(struct work *w)
{
	uint32_t call = next_set(w) * w->calls[1] + w->calls[1] / 2;
	dhs_step step = bench_begin(w->b, 0, w->load->queries);
	double us;

	draw(w, call, 1);
	stopwatch_start(&w->watch, w->b->stream);
	enqueue(w, RESOLVE, call);
	stopwatch_lap(&w->watch, w->b->stream);
	check(w, call, 1);
	bench_end(w->b, step);
	stopwatch_read(&w->watch, &us);
	samples_add(&w->resolve_call, us);
}

static void step_of_split_calls(struct work *w)
{
	uint32_t call = next_set(w) * w->calls[1] + w->calls[1] - 1;
	dhs_step step = bench_begin(w->b, 0, w->load->queries);
	double us[2];

	draw(w, call, 1);
	stopwatch_start(&w->watch, w->b->stream);
	enqueue(w, PLAN, call);
	stopwatch_lap(&w->watch, w->b->stream);
	enqueue(w, FETCH, call);
	stopwatch_lap(&w->watch, w->b->stream);
	check(w, call, 1);
	bench_end(w->b, step);
	stopwatch_read(&w->watch, us);
	samples_add(&w->plan_call, us[0]);
	samples_add(&w->fetch_call, us[1]);
}

static void round_of(struct work *w)
{
	uint32_t more = w->split[1] - w->split[0];

	for (int i = 1; i >= 0; i--)
		step_of_graph(w, i, &w->resolve[i]);
	for (uint32_t n = 0; w->load->split && n < LEAST_CALLS - 1; n += more)
		for (int i = 1; i >= 0; i--)
			step_of_two_graphs(w, i, &w->plan[i], &w->fetch[i]);
	step_of_calls(w);
	step_of_split_calls(w);
}

static void clear_samples(struct work *w)
{
	for (int i = 0; i < 2; i++) {
		samples_clear(&w->resolve[i]);
		samples_clear(&w->plan[i]);
		samples_clear(&w->fetch[i]);
	}
	samples_clear(&w->resolve_call);
	samples_clear(&w->plan_call);
	samples_clear(&w->fetch_call);
}

static void work_open(struct work *w, struct run *run, struct bench *b, const struct load *load)
{
	*w = (struct work){ .run = run, .b = b, .load = load };
	w->split[1] = b->o.groups < GRAPH_CALLS ? b->o.groups : GRAPH_CALLS;
	w->split[0] = w->split[1] > 1;
	w->calls[1] = w->split[1] < LEAST_CALLS ? LEAST_CALLS : w->split[1];
	w->calls[0] = 1;
	w->sets = b->o.groups / w->split[1];
	w->graphs = new_zeroed(w->sets, sizeof(*w->graphs));
	stopwatch_open(&w->watch);
	for (uint32_t set = 0; set < w->sets; set++)
		warm_set(w, set);
}

static void work_close(struct work *w)
{
	for (uint32_t set = 0; set < w->sets; set++)
		destroy_set(&w->graphs[set]);
	free(w->graphs);
	stopwatch_close(&w->watch);
	for (int i = 0; i < 2; i++) {
		samples_free(&w->resolve[i]);
		samples_free(&w->plan[i]);
		samples_free(&w->fetch[i]);
	}
	samples_free(&w->resolve_call);
	samples_free(&w->plan_call);
	samples_free(&w->fetch_call);
}

/* ---- cells ---- */

/* What a load did, by the library's own count. */
struct counted {
	double misses, bytes; /* of a session; of a call */
};

static struct counted count(struct work *w, const dhs_stats *before, const dhs_stats *after)
{
	double plans = (double)(after->plans - before->plans);
	struct counted c = { (double)(after->misses - before->misses) / plans,
		                 (double)(after->fetched_bytes - before->fetched_bytes) / plans *
		                     w->b->o.sessions };

	if (after->order_errors != before->order_errors || after->bad_rows != before->bad_rows)
		die(STATUS_FAILED, "%s, %s: the library counts %llu order errors and %llu bad rows",
		    w->b->o.shape->name, w->load->name,
		    (unsigned long long)(after->order_errors - before->order_errors),
		    (unsigned long long)(after->bad_rows - before->bad_rows));
	if (w->load->pages && after->misses + after->hot_hits != before->misses + before->hot_hits)
		die(STATUS_FAILED, "%s: not all entries are page hits", w->load->name);
	return c;
}

static struct cell cell_of(const struct work *w, const struct counted *c, const char *work,
                           const char *how, struct spread us)
{
	struct cell cell = cell_named(w->load->family, w->b->o.shape->name, w->b->o.sessions,
	                              w->load->queries, w->load->name, work, how);

	cell.us = us;
	cell.misses = c->misses;
	cell.bytes = strcmp(work, "plan") ? c->bytes : 0;
	cell.way = cell.bytes > 0 ? WAY_TO_DEVICE : WAY_NONE;
	return cell;
}

static struct figures figures_of(const struct work *w, const struct counted *c)
{
	double by = w->calls[1] - w->calls[0], split = w->split[1] - w->split[0];
	struct figures f = {
		.resolve =
			cell_of(w, c, "resolve", "graph", samples_marginal(&w->resolve[1], &w->resolve[0], by)),
		.plan = cell_of(w, c, "plan", "graph", samples_marginal(&w->plan[1], &w->plan[0], split)),
		.fetch =
			cell_of(w, c, "fetch", "graph", samples_marginal(&w->fetch[1], &w->fetch[0], split)),
		.resolve_call = cell_of(w, c, "resolve", "call", samples_spread(&w->resolve_call)),
		.plan_call = cell_of(w, c, "plan", "call", samples_spread(&w->plan_call)),
		.fetch_call = cell_of(w, c, "fetch", "call", samples_spread(&w->fetch_call)),
	};

	return f;
}

struct figures measure_load(struct run *run, struct bench *b, const struct load *load)
{
	struct work w;
	struct counted c;
	dhs_stats before, after;
	struct figures f;

	work_open(&w, run, b, load);
	for (uint32_t r = 0; r < LEAD; r++)
		round_of(&w);
	clear_samples(&w);
	before = bench_stats(b);
	for (uint32_t r = 0; r < run->options.repeat; r++)
		round_of(&w);
	after = bench_stats(b);
	bench_verify(b);
	c = count(&w, &before, &after);
	f = figures_of(&w, &c);
	work_close(&w);
	return f;
}
