/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Several queries of a session in one plan, their selections from disjoint to equal. */
#include "families.h"
#include "util.h"

#include <math.h>
#include <stdio.h>

#define SESSIONS 32

static void head(struct run *run)
{
	report_title(&run->report,
	             "Queries: %d sessions, rows of 576 B, all missing; overlap: rows that all queries "
	             "share",
	             SESSIONS);
	report_text(&run->report, "%7s %8s %9s %9s | %10s %21s %7s %5s %9s | %9s %9s\n", "queries",
	            "overlap", "misses", "MB", "resolve us", "p10 to p90", "GB/s", "copy", "disjoint",
	            "plan us", "fetch us");
}

static void line(struct run *run, const struct figures *f, double disjoint)
{
	const struct report *r = &run->report;
	const struct cell *c = &f->resolve;
	char range[32];

	snprintf(range, sizeof(range), "%.1f to %.1f", c->us.low, c->us.high);
	report_text(r, "%7u %8s %9.1f %9.2f | %10.1f %21s %7.1f %5.2f    1/%5.2f | %9.1f %9.1f\n",
	            c->queries, c->load, c->misses, c->bytes / 1e6, c->us.median, range, cell_rate(c),
	            cell_share(r, c), c->us.median > 0 ? disjoint / c->us.median : 0,
	            f->plan_call.us.median, f->fetch_call.us.median);
}

static void one_count(struct run *run, struct bench *b, uint32_t queries)
{
	static const uint32_t overlaps[] = { 0, 25, 50, 75, 100 };
	double disjoint = 0;

	for (int i = 0; i < (queries == 1 ? 1 : 5); i++) {
		struct load load = { .family = "queries", .queries = queries, .fresh = b->o.top_k };
		struct figures f;

		load.shared = (uint32_t)lround(overlaps[i] / 100.0 * b->o.top_k);
		snprintf(load.name, sizeof(load.name), "%u %%", overlaps[i]);
		f = measure_load(run, b, &load);
		if (i == 0)
			disjoint = f.resolve.us.median;
		report_add(&run->report, &f.resolve);
		report_add(&run->report, &f.resolve_call);
		report_add(&run->report, &f.plan_call);
		report_add(&run->report, &f.fetch_call);
		line(run, &f, disjoint);
	}
}

void measure_queries(struct run *run)
{
	const struct numbers *list = &run->options.queries;
	struct bench_options o = { .shape = &shape_query_test,
		                       .sessions = SESSIONS,
		                       .rows = run->options.rows,
		                       .queries = 1,
		                       .selections = GRAPH_CALLS,
		                       .buffers = 1,
		                       .policy = DHS_POLICY_FIXED };
	struct bench b;

	for (int i = 0; i < list->count; i++)
		if (list->value[i] > o.queries)
			o.queries = (uint32_t)list->value[i];
	if (!bench_open(&b, &o, &run->arena, &run->options, run->stream))
		return;
	head(run);
	for (int i = 0; i < list->count; i++)
		one_count(run, &b, (uint32_t)list->value[i]);
	bench_close(&b);
}
