/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* This run beside an earlier one. */
#include "report.h"

#include "util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The ranges from p10 to p90 have nothing in common. */
static bool apart(const struct spread *a, const struct spread *b)
{
	return a->low > b->high || b->low > a->high;
}

static void compare_cell(const struct report *r, const struct cell *now, const struct cell *old)
{
	double ratio = old->us.median > 0 ? now->us.median / old->us.median : NAN;

	report_text(r, "%-12s %-10s %4u %2u %-20s %-23s %-6s %11.1f %11.1f %7.3f %s\n", now->family,
	            now->layout, now->sessions, now->queries, now->load, now->work, now->how,
	            old->us.median, now->us.median, ratio,
	            !apart(&now->us, &old->us) ? ""
	            : ratio > 1                ? "slower"
	                                       : "faster");
}

/* Figures of other machines or loads can be compared, but are told. */
static void compare_basis(const struct report *r, const struct earlier *old)
{
	if (strcmp(old->device, r->device) != 0)
		report_text(r, "Another GPU: %s before\n", old->device);
	if (old->pinned_bytes != (double)r->arena->bytes)
		report_text(r, "Another pool: %.1f GiB before, %.1f now\n", old->pinned_bytes / (double)GIB,
		            (double)r->arena->bytes / (double)GIB);
	if (old->rows != r->options->rows || old->hot_rows != r->options->hot_rows ||
	    old->top_k != r->options->top_k)
		report_text(r, "Another load: %.0f of %.0f rows, %.0f hot before\n", old->top_k, old->rows,
		            old->hot_rows);
}

static void compare(const struct report *r, const struct earlier *earlier)
{
	const struct report before = { .cell = earlier->cell, .count = earlier->count };
	size_t matching = 0, differing = 0;

	report_title(r,
	             "Compared with %s: us before, now, and their ratio; slower or faster where the "
	             "spreads are apart",
	             earlier->path);
	compare_basis(r, earlier);
	for (size_t i = 0; i < r->count; i++) {
		const struct cell *old = report_find(&before, &r->cell[i]);

		if (!old)
			continue;
		matching++;
		differing += apart(&r->cell[i].us, &old->us);
		compare_cell(r, &r->cell[i], old);
	}
	report_text(r, "%zu cells of %zu are in both; %zu are outside of the spread\n", matching,
	            r->count, differing);
}

void report_compare(const struct report *r, const struct earlier *earlier)
{
	struct report shown = *r;

	if (!shown.out)
		shown.out = stderr;
	compare(&shown, earlier);
}
