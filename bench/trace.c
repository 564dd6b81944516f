/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "trace.h"
#include "util.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

void trace_add(struct trace *t, uint32_t length, uint32_t queries, const int32_t *rows)
{
	size_t bytes = (size_t)queries * t->top_k * sizeof(*rows);
	struct plan *plan;

	if (t->plans == t->room) {
		t->room = t->room ? 2 * t->room : 256;
		t->plan = realloc(t->plan, t->room * sizeof(*t->plan));
		if (!t->plan)
			bench_die("no memory for %u plans", t->room);
	}
	plan = &t->plan[t->plans++];
	*plan = (struct plan){ length, queries, bench_zeros(bytes, 1) };
	memcpy(plan->rows, rows, bytes);
}

void trace_free(struct trace *t)
{
	for (uint32_t p = 0; p < t->plans; p++)
		free(t->plan[p].rows);
	free(t->plan);
	*t = (struct trace){ 0 };
}

uint32_t trace_end(const struct trace *t)
{
	const struct plan *last = &t->plan[t->plans - 1];

	return last->length + last->queries;
}

uint32_t trace_max_queries(const struct trace *t)
{
	uint32_t most = 0;

	for (uint32_t p = 0; p < t->plans; p++)
		most = t->plan[p].queries > most ? t->plan[p].queries : most;
	return most;
}

/* ---- the file ------------------------------------------------------------------------ */

struct reader {
	FILE *file;
	const char *path;
	char *line;
	size_t room;
	ssize_t length;
	uint32_t number; /* of the line */
	char *at;
	int32_t *rows; /* of a line: room for the largest */
	struct trace_refusal *why;
};

static int refuse(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int refuse(struct reader *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->why->text, sizeof(r->why->text), format, args);
	va_end(args);
	return -1;
}

/* 1, or 0 at the end of the file. */
static int next_line(struct reader *r)
{
	r->number++;
	r->length = getline(&r->line, &r->room, r->file);
	if (r->length < 0 && ferror(r->file))
		return refuse(r, "%s:%u: %s", r->path, r->number, strerror(errno));
	r->at = r->line;
	return r->length >= 0;
}

static int next_number(struct reader *r, int32_t least, int32_t most, int32_t *number)
{
	char *end;
	int64_t n = strtoll(r->at, &end, 10);

	if (end == r->at || n < least || n > most || (*end && !isspace((unsigned char)*end)))
		return refuse(r, "%s:%u: no number from %d to %d at column %td", r->path, r->number, least,
		              most, r->at - r->line + 1);
	r->at = end;
	*number = (int32_t)n;
	return 0;
}

static int end_line(struct reader *r)
{
	r->at += strspn(r->at, " \t\r\n");
	if (r->at != r->line + r->length)
		return refuse(r, "%s:%u: more than the line should have, from column %td on", r->path,
		              r->number, r->at - r->line + 1);
	return 0;
}

/* The first line. */
static int read_title(struct reader *r, uint32_t most_top_k, uint32_t *top_k)
{
	static const char title[] = "selections 1 ";
	int32_t n;
	int rc = next_line(r);

	if (rc < 0)
		return rc;
	if (!rc || strncmp(r->line, title, strlen(title)) != 0)
		return refuse(r, "%s: not what decode --selections writes", r->path);
	r->at += strlen(title);
	if (next_number(r, 1, INT32_MAX, &n))
		return -1;
	*top_k = (uint32_t)n;
	if (*top_k > most_top_k)
		return refuse(r,
		              "%s:%u: top-k is %u; at most %u, as the library has hot caches of up to %d "
		              "places",
		              r->path, r->number, *top_k, most_top_k, TRACE_MOST_PLACES);
	return end_line(r);
}

/* What a line begins with. */
struct line {
	int32_t step, group, session, length, queries;
};

static int read_start(struct reader *r, struct line *l)
{
	if (next_number(r, 0, INT32_MAX, &l->step) || next_number(r, 0, INT32_MAX, &l->group) ||
	    next_number(r, 0, INT32_MAX, &l->session) || next_number(r, 0, INT32_MAX, &l->length) ||
	    next_number(r, 1, INT32_MAX, &l->queries))
		return -1;
	if (l->queries > TRACE_MOST_QUERIES)
		return refuse(r, "%s:%u: %d queries; the library takes at most %d of a session in a step",
		              r->path, r->number, l->queries, TRACE_MOST_QUERIES);
	if (l->length > TRACE_MOST_ROWS - l->queries)
		return refuse(r, "%s:%u: %d rows and %d new ones; a session of the library has at most %d",
		              r->path, r->number, l->length, l->queries, TRACE_MOST_ROWS);
	return 0;
}

/* All lines are checked, the wanted ones kept. */
static int read_line(struct trace *t, struct reader *r, const struct wanted *wanted)
{
	struct line l;

	if (read_start(r, &l))
		return -1;
	for (size_t i = 0; i < (size_t)l.queries * t->top_k; i++)
		if (next_number(r, -1, INT32_MAX, &r->rows[i]))
			return -1;
	if (end_line(r))
		return -1;
	if ((uint32_t)l.group != wanted->group || (uint32_t)l.session != wanted->session)
		return 0;
	if (t->plans && trace_end(t) != (uint32_t)l.length)
		return refuse(r, "%s:%u: a step from %d rows on, after one to %u", r->path, r->number,
		              l.length, trace_end(t));
	trace_add(t, (uint32_t)l.length, (uint32_t)l.queries, r->rows);
	return 0;
}

static int read_lines(struct trace *t, struct reader *r, const struct wanted *wanted)
{
	int rc = read_title(r, wanted->most_top_k, &t->top_k);

	if (rc)
		return rc;
	r->rows = bench_zeros((uint64_t)TRACE_MOST_QUERIES * t->top_k, sizeof(*r->rows));
	while ((rc = next_line(r)) > 0) {
		rc = read_line(t, r, wanted);
		if (rc)
			break;
	}
	return rc;
}

int trace_read(struct trace *t, const char *path, const struct wanted *wanted,
               struct trace_refusal *why)
{
	struct reader r = { .path = path, .file = fopen(path, "r"), .why = why };
	int rc;

	*t = (struct trace){ 0 };
	if (!r.file)
		return refuse(&r, "%s: %s", path, strerror(errno));
	rc = read_lines(t, &r, wanted);
	if (rc)
		trace_free(t);
	free(r.rows);
	free(r.line);
	fclose(r.file);
	return rc;
}

/* ---- overlap ------------------------------------------------------------------------- */

/* Marks the plan's rows with its number; returns its distinct rows, and in *shared how many
 * of them had the mark of the plan before. */
static uint32_t mark(const struct trace *t, uint32_t p, uint32_t *marks, uint32_t *shared)
{
	const struct plan *plan = &t->plan[p];
	uint32_t end = plan->length + plan->queries, distinct = 0;

	*shared = 0;
	for (size_t i = 0; i < (size_t)plan->queries * t->top_k; i++) {
		uint32_t row = (uint32_t)plan->rows[i];

		if (row >= end || marks[row] == p + 1)
			continue;
		*shared += p && marks[row] == p;
		distinct++;
		marks[row] = p + 1;
	}
	return distinct;
}

struct overlap trace_overlap(const struct trace *t, uint32_t from)
{
	uint32_t *marks = bench_zeros(trace_end(t), sizeof(*marks));
	struct overlap o = { 0, 1 };
	uint32_t counted = 0;

	for (uint32_t p = 0; p < t->plans; p++) {
		uint32_t shared, distinct = mark(t, p, marks, &shared);
		double share = distinct ? (double)shared / distinct : 0;

		if (p < from || !p)
			continue;
		o.mean += share;
		o.least = share < o.least ? share : o.least;
		counted++;
	}
	o.mean /= counted ? counted : 1;
	free(marks);
	return o;
}

/* ---- demand -------------------------------------------------------------------------- */

/* Rows from here on are in the tail: pages wholly below length - tail_rows have left the
 * device under the fixed policy (docs/residency.md). */
static uint32_t tail_start(const struct demand *d, const struct plan *plan)
{
	uint32_t old = plan->length < d->tail_rows ? 0 : plan->length - d->tail_rows;

	return old / d->page_rows * d->page_rows;
}

/* seen[row]: 1 + the row's index in want[], where the last plan that wanted it put it. */
static void demand_plan(struct demand *d, uint32_t p, uint64_t *seen)
{
	const struct plan *plan = &d->trace->plan[p];
	uint32_t end = plan->length + plan->queries, tail = tail_start(d, plan);
	uint64_t n = d->first[p];

	for (size_t i = 0; i < (size_t)plan->queries * d->trace->top_k; i++) {
		uint32_t row = (uint32_t)plan->rows[i];

		if (row >= end)
			continue;
		if (row >= tail) {
			d->page_hits[p]++;
		} else if (seen[row] > d->first[p]) {
			d->want[seen[row] - 1].entries++;
		} else {
			if (seen[row])
				d->want[seen[row] - 1].next = p;
			d->want[n] = (struct want){ (int32_t)row, 1, UINT32_MAX };
			seen[row] = ++n;
		}
	}
	d->first[p + 1] = n;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void sort_plan(struct demand *d, uint32_t p, uint64_t *sorted)
{
	uint64_t first = d->first[p], n = d->first[p + 1] - first;

	for (uint64_t i = 0; i < n; i++)
		sorted[i] = (uint64_t)d->want[first + i].row << 32 | i;
	qsort(sorted, n, sizeof(*sorted), by_number);
	for (uint64_t i = 0; i < n; i++)
		d->by_row[first + i] = (uint32_t)sorted[i];
}

void demand_open(struct demand *d, const struct trace *trace, uint32_t tail_rows,
                 uint32_t page_rows)
{
	uint64_t entries = 0, *seen, *sorted;

	for (uint32_t p = 0; p < trace->plans; p++)
		entries += (uint64_t)trace->plan[p].queries * trace->top_k;
	*d = (struct demand){ trace, tail_rows, page_rows, trace_end(trace), NULL, NULL, NULL, NULL };
	d->first = bench_zeros((uint64_t)trace->plans + 1, sizeof(*d->first));
	d->want = bench_zeros(entries, sizeof(*d->want));
	d->by_row = bench_zeros(entries, sizeof(*d->by_row));
	d->page_hits = bench_zeros(trace->plans, sizeof(*d->page_hits));
	seen = bench_zeros(d->max_rows, sizeof(*seen));
	for (uint32_t p = 0; p < trace->plans; p++)
		demand_plan(d, p, seen);
	free(seen);
	sorted = bench_zeros((uint64_t)trace_max_queries(trace) * trace->top_k, sizeof(*sorted));
	for (uint32_t p = 0; p < trace->plans; p++)
		sort_plan(d, p, sorted);
	free(sorted);
}

void demand_close(struct demand *d)
{
	free(d->first);
	free(d->want);
	free(d->by_row);
	free(d->page_hits);
}
