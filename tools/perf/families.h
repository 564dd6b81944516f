/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The families of measurements; each adds its cells to the report and prints them. */
#ifndef PERF_FAMILIES_H
#define PERF_FAMILIES_H

#include "bench.h"
#include "report.h"

struct run {
	struct options options;
	struct arena arena;
	struct report report;
	cudaStream_t stream;
	int low, high; /* priorities of streams */
};

void measure_copy(struct run *run);
void measure_knee(struct run *run);
/* Plan, fetch and resolve, and small numbers of misses. */
void measure_resolve(struct run *run);
void measure_queries(struct run *run);
void measure_naive(struct run *run);
void measure_translations(struct run *run);
void measure_leader(struct run *run);
void measure_beside(struct run *run);
void measure_backup(struct run *run);
void measure_evict(struct run *run);
void measure_step(struct run *run);

/* Calls of the larger graph, and the most staging buffers of a batch: plans whose misses
 * are fetched later need one each. */
#define GRAPH_CALLS 8

/* One load of a bench, in all ways that are measured. */
struct load {
	const char *family;
	char name[PART];
	uint32_t queries;
	uint32_t fresh;  /* rows of a query that are drawn anew */
	uint32_t shared; /* of them, the same in all queries */
	bool split;      /* plan and fetch apart in graphs, too: needs a buffer a plan */
	bool pages;      /* all entries are page hits: none is to miss */
};

/* Figures of a load: graph ones are of one more call in a graph. */
struct figures {
	struct cell resolve, plan, fetch;                /* in a graph; us.count 0: not measured */
	struct cell resolve_call, plan_call, fetch_call; /* enqueued one by one */
};

struct figures measure_load(struct run *run, struct bench *b, const struct load *load);

#endif
