/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Plan, fetch and resolve, by layout, sessions and misses. */
#include "families.h"
#include "util.h"

#include <math.h>
#include <stdio.h>

/* Works that are asked for. */
enum what { RESOLVE = 1, PLAN = 2, FETCH = 4 };

static void head(struct run *run)
{
	report_title(&run->report,
	             "Resolve: plan and fetch.  In a graph: one more call, median (p10 to p90); "
	             "over: on top of\nthe bytes at copy rate; calls: event to event, medians");
	report_text(&run->report,
	            "%-7s %8s %-10s %7s | %9s %19s %6s %5s %8s | %8s %8s %8s | %8s %8s %8s\n", "layout",
	            "sessions", "load", "misses", "resolve", "us", "GB/s", "copy", "over", "plan us",
	            "fetch us", "GB/s", "calls:", "plan", "fetch");
}

static void line(struct run *run, const struct figures *f)
{
	const struct report *r = &run->report;
	const struct cell *c = &f->resolve;
	double copied = r->copy[WAY_TO_DEVICE] > 0 ? c->bytes / r->copy[WAY_TO_DEVICE] / 1e3 : 0;
	char range[32];

	snprintf(range, sizeof(range), "(%.1f to %.1f)", c->us.low, c->us.high);
	report_text(r,
	            "%-7s %8u %-10s %7.1f | %9.1f %19s %6.1f %5.2f %8.1f | %8.1f %8.1f %8.1f | %8.1f "
	            "%8.1f %8.1f\n",
	            c->layout, c->sessions, c->load, c->misses, c->us.median, range, cell_rate(c),
	            cell_share(r, c), c->us.median - copied, f->plan.us.median, f->fetch.us.median,
	            cell_rate(&f->fetch), f->resolve_call.us.median, f->plan_call.us.median,
	            f->fetch_call.us.median);
}

static void add(struct run *run, const struct figures *f, unsigned what)
{
	const struct cell *cells[] = { &f->resolve,      &f->plan,      &f->fetch,
		                           &f->resolve_call, &f->plan_call, &f->fetch_call };

	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
		if (cells[i]->us.count && what & 1u << i % 3)
			report_add(&run->report, cells[i]);
	line(run, f);
}

static unsigned wanted(const struct run *run)
{
	return (options_want(&run->options, FAMILY_RESOLVE) ? RESOLVE : 0u) |
	       (options_want(&run->options, FAMILY_PLAN) ? PLAN : 0u) |
	       (options_want(&run->options, FAMILY_FETCH) ? FETCH : 0u);
}

static void loads(struct run *run, struct bench *b)
{
	const struct numbers *misses = &run->options.misses;

	for (int i = 0; i < misses->count; i++) {
		double percent = misses->value[i];
		struct load load = { .family = "resolve", .queries = 1, .split = true };
		struct figures f;

		load.fresh = (uint32_t)lround(percent / 100 * b->o.top_k);
		if (percent > 0)
			snprintf(load.name, sizeof(load.name), "%g %%", percent);
		else
			snprintf(load.name, sizeof(load.name), "hot hits");
		f = measure_load(run, b, &load);
		add(run, &f, wanted(run));
	}
}

#define SMALL 4

static const uint32_t small_sessions[SMALL] = { 1, 2, 4, 8 };

static bool is_small(uint32_t sessions)
{
	for (int i = 0; i < SMALL; i++)
		if (small_sessions[i] == sessions)
			return true;
	return false;
}

static void small_loads(struct run *run, struct bench *b)
{
	static const uint32_t rows[] = { 20, 64, 200, 350 };

	for (int i = 0; i < 4; i++) {
		struct load load = { .family = "small", .queries = 1, .split = true, .fresh = rows[i] };
		struct figures f;

		snprintf(load.name, sizeof(load.name), "%u rows", rows[i]);
		f = measure_load(run, b, &load);
		add(run, &f, RESOLVE | PLAN | FETCH);
	}
}

static bool in_list(const struct numbers *n, uint32_t value)
{
	for (int i = 0; i < n->count; i++)
		if ((uint32_t)n->value[i] == value)
			return true;
	return false;
}

static void sessions_of_layout(struct run *run, int layout, uint32_t sessions)
{
	bool small =
		layout == SHAPE_GLM && is_small(sessions) && options_want(&run->options, FAMILY_SMALL);
	bool all = wanted(run) && in_list(&run->options.sessions, sessions);
	struct bench_options o = { .shape = &shapes[layout],
		                       .sessions = sessions,
		                       .rows = run->options.rows,
		                       .queries = 1,
		                       .selections = GRAPH_CALLS,
		                       .buffers = GRAPH_CALLS,
		                       .policy = DHS_POLICY_FIXED };
	struct bench b;

	if ((!small && !all) || !bench_open(&b, &o, &run->arena, &run->options, run->stream))
		return;
	if (all)
		loads(run, &b);
	if (small)
		small_loads(run, &b);
	bench_close(&b);
}

/* Everything on the device: the layout does not matter to a plan then. */
static void page_hits(struct run *run, uint32_t sessions)
{
	struct bench_options o = { .shape = &shapes[SHAPE_SINGLE],
		                       .sessions = sessions,
		                       .groups = 4,
		                       .rows = run->options.rows,
		                       .queries = 1,
		                       .selections = GRAPH_CALLS,
		                       .buffers = GRAPH_CALLS,
		                       .policy = DHS_POLICY_ADAPTIVE,
		                       .backup = DHS_BACKUP_RECLAIM,
		                       .resident = true };
	struct load load = { .family = "resolve",
		                 .name = "page hits",
		                 .queries = 1,
		                 .fresh = run->options.top_k,
		                 .split = true,
		                 .pages = true };
	struct figures f;
	struct bench b;

	if (!bench_open(&b, &o, &run->arena, &run->options, run->stream))
		return;
	f = measure_load(run, &b, &load);
	add(run, &f, wanted(run));
	bench_close(&b);
}

/* The sessions that are asked for and those of small loads, in ascending order. */
static int all_sessions(const struct run *run, uint32_t *sessions)
{
	const struct numbers *list = &run->options.sessions;
	int count = 0;

	for (int i = 0; i < list->count; i++)
		sessions[count++] = (uint32_t)list->value[i];
	for (int i = 0; i < SMALL; i++)
		if (!in_list(list, small_sessions[i]))
			sessions[count++] = small_sessions[i];
	for (int i = 1; i < count; i++)
		for (int j = i; j > 0 && sessions[j - 1] > sessions[j]; j--) {
			uint32_t n = sessions[j];

			sessions[j] = sessions[j - 1];
			sessions[j - 1] = n;
		}
	return count;
}

void measure_resolve(struct run *run)
{
	uint32_t sessions[MOST_NUMBERS + SMALL];
	int count = all_sessions(run, sessions);

	head(run);
	for (int layout = 0; layout < SHAPES; layout++)
		for (int i = 0; i < count && options_layout(&run->options, layout); i++)
			sessions_of_layout(run, layout, sessions[i]);
	if (!wanted(run) || !options_layout(&run->options, SHAPE_SINGLE))
		return;
	for (int i = 0; i < count; i++)
		if (in_list(&run->options.sessions, sessions[i]))
			page_hits(run, sessions[i]);
}
