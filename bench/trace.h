/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A trace: the selections of one session and layer group, plan after plan, and what of
 * them a hot cache is asked for.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdint.h>

/* What the library takes: queries of a session in a step, rows of a session, places of a hot
 * cache. */
#define TRACE_MOST_QUERIES 16
#define TRACE_MOST_ROWS (1 << 30)
#define TRACE_MOST_PLACES 32767

struct plan {
	uint32_t length;  /* rows of the session before the step */
	uint32_t queries; /* and rows that the step adds: the next plan's length is the sum */
	int32_t *rows;    /* [queries][top_k] as the indexer gave them */
};

struct trace {
	uint32_t top_k;
	uint32_t plans;
	uint32_t room; /* of plan[] */
	struct plan *plan;
};

void trace_add(struct trace *trace, uint32_t length, uint32_t queries, const int32_t *rows);
void trace_free(struct trace *trace);
/* Rows of the session behind the last plan. */
uint32_t trace_end(const struct trace *trace);
uint32_t trace_max_queries(const struct trace *trace);

/* Which lines of a file are wanted, and how large its top_k may be. */
struct wanted {
	uint32_t session, group, most_top_k;
};

/* Why a file is refused, in words that name it and the line. */
struct trace_refusal {
	char text[256];
};

/* What `examples/decode --selections` wrote of one session and group; without plans where it has
 * no such group.  -1, and no trace, if any line of the file is not as examples/decode/record.h
 * says, or is more than the library takes. */
int trace_read(struct trace *trace, const char *path, const struct wanted *wanted,
               struct trace_refusal *why);

/* Share of a plan's rows that the plan before selected, too: of plans from `from` on. */
struct overlap {
	double mean, least;
};

struct overlap trace_overlap(const struct trace *trace, uint32_t from);

/* A distinct row that a plan wants of the hot cache. */
struct want {
	int32_t row;
	uint32_t entries; /* how often it is selected */
	uint32_t next;    /* the next plan that wants it; UINT32_MAX: none */
};

/* The same of all plans, once the rows in the tail and the bad ones are taken out: this part
 * is the same under every rule. */
struct demand {
	const struct trace *trace;
	uint32_t tail_rows, page_rows;
	uint32_t max_rows; /* every row is below */
	uint64_t *first;   /* [plans + 1] of want[], which is in the order of the selections */
	struct want *want;
	uint32_t *by_row;    /* of each plan: indices of its wants, ascending by row */
	uint32_t *page_hits; /* [plans] entries in the tail */
};

void demand_open(struct demand *demand, const struct trace *trace, uint32_t tail_rows,
                 uint32_t page_rows);
void demand_close(struct demand *demand);

#endif
