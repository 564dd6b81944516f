/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What the project aims at, beside what was measured: facts, no verdict on the run. */
#include "report.h"

#include <stdio.h>
#include <string.h>

bool target_met(const struct target *t)
{
	return t->at_least ? t->measured >= t->target : t->measured <= t->target;
}

static void add(struct report *r, const char *what, double measured, int places, double target,
                bool at_least)
{
	struct target *t = &r->target[r->targets];

	if (r->targets == MOST_TARGETS)
		return;
	*t = (struct target){
		.measured = measured, .target = target, .at_least = at_least, .places = places
	};
	snprintf(t->what, sizeof(t->what), "%s", what);
	r->targets++;
}

static void print(const struct report *r)
{
	report_title(r,
	             "Targets, which are for K 2,048 of 100,000 rows and pools of 60 GiB or more; this "
	             "run: %u of %u, %.0f GiB",
	             r->options->top_k, r->options->rows, (double)r->arena->bytes / (1u << 30));
	for (size_t i = 0; i < r->targets; i++) {
		const struct target *t = &r->target[i];

		report_text(r, "%-70s %9.*f %s %7.*f  %s\n", t->what, t->places, t->measured,
		            t->at_least ? ">=" : "<=", t->places, t->target,
		            target_met(t) ? "met" : "not met");
	}
}

static const struct cell *find(const struct report *r, const char *family, const char *layout,
                               uint32_t sessions, uint32_t queries, const char *load,
                               const char *work, const char *how)
{
	struct cell name = cell_named(family, layout, sessions, queries, load, work, how);

	return report_find(r, &name);
}

static void share(struct report *r, const char *layout, const char *load, double target)
{
	static const uint32_t sessions[] = { 16, 32, 64, 128 };
	char what[80];

	for (int i = 0; i < 4; i++) {
		const struct cell *c = find(r, "resolve", layout, sessions[i], 1, load, "resolve", "graph");

		snprintf(what, sizeof(what), "%s, %u sessions, %s missing: resolve, of the copy", layout,
		         sessions[i], load);
		if (c && r->copy[WAY_TO_DEVICE] > 0)
			add(r, what, cell_share(r, c), 2, target, true);
	}
}

/* The worst of the small loads. */
static void small(struct report *r)
{
	double worst = 0;
	char what[80];

	for (size_t i = 0; i < r->count; i++) {
		const struct cell *c = &r->cell[i];
		double over = c->us.median - c->bytes / r->copy[WAY_TO_DEVICE] / 1e3;

		if (strcmp(c->family, "small") || strcmp(c->work, "resolve") || strcmp(c->how, "graph") ||
		    over < worst)
			continue;
		worst = over;
		snprintf(what, sizeof(what), "1 to 8 sessions, few misses: over the bytes (%u, %s), us",
		         c->sessions, c->load);
	}
	if (worst > 0 && r->copy[WAY_TO_DEVICE] > 0)
		add(r, what, worst, 1, 15, false);
}

static void duration(struct report *r, const char *what, const struct cell *c, double target)
{
	if (c)
		add(r, what, c->us.median, 1, target, false);
}

static void queries(struct report *r)
{
	const struct cell *apart = find(r, "queries", "576", 32, 8, "0 %", "resolve", "graph");
	const struct cell *same = find(r, "queries", "576", 32, 8, "100 %", "resolve", "graph");

	if (apart && r->copy[WAY_TO_DEVICE] > 0)
		add(r, "32 sessions x 8 queries, disjoint: resolve, of the copy", cell_share(r, apart), 2,
		    0.86, true);
	if (apart && same)
		add(r, "the same, equal selections: disjoint time over their time",
		    apart->us.median / same->us.median, 2, 7.5, true);
}

/* Cells of one kind, whatever their load's name. */
static const struct cell *first(const struct report *r, const char *family, const char *layout,
                                const char *work)
{
	for (size_t i = 0; i < r->count; i++)
		if (!strcmp(r->cell[i].family, family) && !strcmp(r->cell[i].layout, layout) &&
		    !strcmp(r->cell[i].work, work))
			return &r->cell[i];
	return NULL;
}

void report_targets(struct report *r)
{
	const struct cell *backup = first(r, "backup", "glm", "evict until free");

	share(r, "glm", "5 %", 0.85);
	share(r, "glm", "20 %", 0.87);
	share(r, "glm", "100 %", 0.87);
	share(r, "single", "5 %", 0.46);
	share(r, "single", "20 %", 0.52);
	share(r, "single", "100 %", 0.80);
	small(r);
	duration(r, "1 session, 2,048 misses of 656 B, us",
	         find(r, "resolve", "single", 1, 1, "100 %", "resolve", "graph"), 45);
	duration(r, "128 sessions, single, hot hits, us",
	         find(r, "resolve", "single", 128, 1, "hot hits", "resolve", "graph"), 10);
	duration(r, "128 sessions, glm, hot hits, us",
	         find(r, "resolve", "glm", 128, 1, "hot hits", "resolve", "graph"), 10);
	duration(r, "128 sessions, page hits, us",
	         find(r, "resolve", "single", 128, 1, "page hits", "resolve", "graph"), 5);
	queries(r);
	if (backup && r->copy[WAY_TO_HOST] > 0)
		add(r, "backup of whole pages, of the copy", cell_share(r, backup), 2, 0.88, true);
	duration(r, "evict of a backed-up session until its pages are free, us",
	         first(r, "evict", "glm", "evict until free"), 100);
	duration(r, "begin + commit + settle, 256 sessions, on the processor, us",
	         first(r, "step", "glm", "begin+commit+settle"), 50);
	print(r);
}
