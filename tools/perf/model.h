/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Misses of a session over many steps, from a model of selections: rows are selected
 * independently of each other, the r-th most popular with probability min(1, (k/r)^2),
 * where popular rows lie anywhere in the history; a hot cache holds the latest.  With
 * top_k 2,048 of 100,000 rows, hot caches of 1, 2, 4 and 8 times top_k miss 33, 18, 9 and 4 %,
 * about as is reported from real models.
 */
#ifndef PERF_MODEL_H
#define PERF_MODEL_H

#include <stddef.h>
#include <stdint.h>

struct missed {
	uint32_t row;
	int32_t order; /* how many rows had missed when it first did, or -1: it does now */
};

struct model_step {
	struct missed *missed;
	uint32_t count;
};

#define MODEL_SESSIONS 4
#define MODEL_STEPS 40 /* that are kept, of more that came before */

struct model {
	struct model_step step[MODEL_SESSIONS][MODEL_STEPS];
	double misses, first; /* of a step, and how many of them for the first time */
};

void model_open(struct model *m, uint32_t rows, uint32_t hot_rows, uint32_t top_k);
void model_close(struct model *m);

#endif
