/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The figures of a run: each is a cell with a name made of its parts.  Families print
 * their own tables as they go; here is what they share, and what is compared and written.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include "arena.h"
#include "options.h"
#include "timing.h"

#include <stdio.h>

enum way { WAY_NONE, WAY_TO_DEVICE, WAY_TO_HOST };

#define PART 24

struct cell {
	/* its name */
	char family[PART], layout[PART], load[PART], work[PART], how[PART];
	uint32_t sessions, queries;
	/* its figures */
	struct spread us;
	double bytes;      /* of one call, over the link unless the way is none */
	double misses;     /* of a session, as counted by the library; below 0: none were planned */
	double moved;      /* bytes, where more than `bytes` are */
	double of_present; /* time, over that of the present way beside it; 0: there is none */
	enum way way;
};

/* What the project aims at, beside what was measured. */
struct target {
	char what[80];
	double measured, target;
	bool at_least; /* else at most */
	int places;    /* behind the point */
};

#define MOST_TARGETS 64

struct report {
	const struct options *options;
	const struct arena *arena;
	char device[256];
	int multiprocessors, driver, runtime;
	double copy[3];  /* GB/s of each way */
	double empty_us; /* an empty kernel, event to event, enqueued ahead */
	double seconds;  /* of the run, pinning included */
	struct cell *cell;
	size_t count, room;
	struct target target[MOST_TARGETS];
	size_t targets;
	FILE *out; /* tables go there; NULL: nowhere */
};

/* A cell whose name's parts are given; the rest is for the caller to fill. */
struct cell cell_named(const char *family, const char *layout, uint32_t sessions, uint32_t queries,
                       const char *load, const char *work, const char *how);
void report_add(struct report *r, const struct cell *cell);
const struct cell *report_find(const struct report *r, const struct cell *name);
double cell_rate(const struct cell *cell);                          /* GB/s */
double cell_share(const struct report *r, const struct cell *cell); /* of the copy, 0: unknown */

/* A title and a line of column names, where there are tables. */
void report_title(const struct report *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void report_text(const struct report *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* A heading for, and the lines of, cells that have no table of their own. */
void report_head(const struct report *r, const char *family);
void report_line(const struct report *r, const struct cell *cell);

/* Finds the targets that this run's cells say something about, and prints them. */
void report_targets(struct report *r);
bool target_met(const struct target *t);
/* Where a report is to be written; what is there stays until then.  - is standard output. */
FILE *report_open(const char *path);
/* Writes, and closes the file unless it is standard output. */
void report_write(const struct report *r, FILE *file);

/* A report that was written before: its cells, which the caller frees, and what they rest on. */
struct earlier {
	const char *path;
	struct cell *cell;
	size_t count;
	char device[256];
	double pinned_bytes, rows, hot_rows, top_k;
};
void report_read(const char *path, struct earlier *earlier);
/* On standard error where there are no tables. */
void report_compare(const struct report *r, const struct earlier *earlier);

#endif
