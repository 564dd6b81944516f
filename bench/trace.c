/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "trace.h"
#include "util.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
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
};

static int next_line(struct reader *r)
{
	r->number++;
	r->length = getline(&r->line, &r->room, r->file);
	if (r->length < 0 && ferror(r->file))
		bench_die("%s:%u: %s", r->path, r->number, strerror(errno));
	r->at = r->line;
	return r->length >= 0;
}

static int64_t next_number(struct reader *r, int64_t least, int64_t most)
{
	char *end;
	int64_t n = strtoll(r->at, &end, 10);

	if (end == r->at || n < least || n > most || (*end && !isspace((unsigned char)*end)))
		bench_die("%s:%u: no number from %" PRId64 " to %" PRId64 " at column %td", r->path,
		          r->number, least, most, r->at - r->line + 1);
	r->at = end;
	return n;
}

static void end_line(struct reader *r)
{
	r->at += strspn(r->at, " \t\r\n");
	if (r->at != r->line + r->length)
		bench_die("%s:%u: more than the line should have, from column %td on", r->path, r->number,
		          r->at - r->line + 1);
}

/* The first line; returns top_k. */
static uint32_t read_title(struct reader *r, uint32_t most_top_k)
{
	static const char title[] = "selections 1 ";
	uint32_t top_k;

	if (!next_line(r) || strncmp(r->line, title, strlen(title)) != 0)
		bench_die("%s: not what decode --selections writes", r->path);
	r->at += strlen(title);
	top_k = (uint32_t)next_number(r, 1, INT32_MAX);
	if (top_k > most_top_k)
		bench_die("%s:%u: top-k is %u; at most %u, as the library has hot caches of up to %d "
		          "places",
		          r->path, r->number, top_k, most_top_k, TRACE_MOST_PLACES);
	end_line(r);
	return top_k;
}

static uint32_t read_queries(struct reader *r, uint32_t length)
{
	uint32_t queries = (uint32_t)next_number(r, 1, INT32_MAX);

	if (queries > TRACE_MOST_QUERIES)
		bench_die("%s:%u: %u queries; the library takes at most %d of a session in a step", r->path,
		          r->number, queries, TRACE_MOST_QUERIES);
	if (length > TRACE_MOST_ROWS - queries)
		bench_die("%s:%u: %u rows and %u new ones; a session of the library has at most %d",
		          r->path, r->number, length, queries, TRACE_MOST_ROWS);
	return queries;
}

/* All lines are checked, the wanted ones kept; `rows` has room for the largest. */
static void read_line(struct trace *t, struct reader *r, const struct wanted *wanted, int32_t *rows)
{
	uint32_t group, session, length, queries;

	next_number(r, 0, INT32_MAX); /* the step */
	group = (uint32_t)next_number(r, 0, INT32_MAX);
	session = (uint32_t)next_number(r, 0, INT32_MAX);
	length = (uint32_t)next_number(r, 0, INT32_MAX);
	queries = read_queries(r, length);
	for (size_t i = 0; i < (size_t)queries * t->top_k; i++)
		rows[i] = (int32_t)next_number(r, -1, INT32_MAX);
	end_line(r);
	if (group != wanted->group || session != wanted->session)
		return;
	if (t->plans && trace_end(t) != length)
		bench_die("%s:%u: a step from %u rows on, after one to %u", r->path, r->number, length,
		          trace_end(t));
	trace_add(t, length, queries, rows);
}

void trace_read(struct trace *t, const char *path, const struct wanted *wanted)
{
	struct reader r = { .path = path, .file = fopen(path, "r") };
	int32_t *rows;

	*t = (struct trace){ 0 };
	if (!r.file)
		bench_die("%s: %s", path, strerror(errno));
	t->top_k = read_title(&r, wanted->most_top_k);
	rows = bench_zeros((uint64_t)TRACE_MOST_QUERIES * t->top_k, sizeof(*rows));
	while (next_line(&r))
		read_line(t, &r, wanted, rows);
	free(rows);
	free(r.line);
	fclose(r.file);
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
