/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "report.h"

#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void part(char *to, const char *from)
{
	snprintf(to, PART, "%s", from);
}

struct cell cell_named(const char *family, const char *layout, uint32_t sessions, uint32_t queries,
                       const char *load, const char *work, const char *how)
{
	struct cell c = { .sessions = sessions, .queries = queries, .misses = -1 };

	part(c.family, family);
	part(c.layout, layout);
	part(c.load, load);
	part(c.work, work);
	part(c.how, how);
	return c;
}

void report_add(struct report *r, const struct cell *cell)
{
	if (r->count == r->room) {
		r->room = r->room ? 2 * r->room : 256;
		r->cell = realloc(r->cell, r->room * sizeof(*r->cell));
		if (!r->cell)
			die(STATUS_FAILED, "no memory for %zu cells", r->room);
	}
	r->cell[r->count++] = *cell;
}

static bool same_name(const struct cell *a, const struct cell *b)
{
	return !strcmp(a->family, b->family) && !strcmp(a->layout, b->layout) &&
	       !strcmp(a->load, b->load) && !strcmp(a->work, b->work) && !strcmp(a->how, b->how) &&
	       a->sessions == b->sessions && a->queries == b->queries;
}

const struct cell *report_find(const struct report *r, const struct cell *name)
{
	for (size_t i = 0; i < r->count; i++)
		if (same_name(&r->cell[i], name))
			return &r->cell[i];
	return NULL;
}

double cell_rate(const struct cell *cell)
{
	return cell->us.median > 0 ? cell->bytes / cell->us.median / 1e3 : 0;
}

double cell_share(const struct report *r, const struct cell *cell)
{
	double copy = r->copy[cell->way];

	return cell->way != WAY_NONE && copy > 0 ? cell_rate(cell) / copy : 0;
}

void report_text(const struct report *r, const char *format, ...)
{
	va_list args;

	if (!r->out)
		return;
	va_start(args, format);
	vfprintf(r->out, format, args);
	va_end(args);
	fflush(r->out);
}

void report_title(const struct report *r, const char *format, ...)
{
	va_list args;

	if (!r->out)
		return;
	fprintf(r->out, "\n");
	va_start(args, format);
	vfprintf(r->out, format, args);
	va_end(args);
	fprintf(r->out, "\n");
}

void report_head(const struct report *r, const char *family)
{
	report_title(r, "%s", family);
	report_text(r, "%-10s %8s %7s  %-13s %-19s %-6s %10s %10s %10s %7s %6s\n", "layout", "sessions",
	            "queries", "load", "work", "how", "us", "p10", "p90", "GB/s", "copy");
}

void report_line(const struct report *r, const struct cell *c)
{
	char sessions[16] = "", queries[16] = "", rate[16] = "", share[16] = "";

	if (c->sessions)
		snprintf(sessions, sizeof(sessions), "%u", c->sessions);
	if (c->queries)
		snprintf(queries, sizeof(queries), "%u", c->queries);
	if (c->bytes > 0)
		snprintf(rate, sizeof(rate), "%.1f", cell_rate(c));
	if (cell_share(r, c) > 0 && c->bytes > 0)
		snprintf(share, sizeof(share), "%.2f", cell_share(r, c));
	report_text(r, "%-10s %8s %7s  %-13s %-19s %-6s %10.1f %10.1f %10.1f %7s %6s\n", c->layout,
	            sessions, queries, c->load, c->work, c->how, c->us.median, c->us.low, c->us.high,
	            rate, share);
}
