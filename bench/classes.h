/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Selections as large models make them, as far as reports tell: classes of locality, each
 * fitted to what was reported of one model or layer.
 *
 * An indexer gives each row of the history a score and selects the top_k best, so that is
 * what is made up here.  The score of a row is a sum, each part normally distributed over
 * rows and multiplied by a weight of the class:
 *
 *   lasting   drawn once: rows that are read for ever
 *   kind      drawn once for each of `kinds` kinds of token; a step's kind is drawn at
 *             random: rows that are read again when that kind comes again
 *   slow,     change a little at each step (an autoregressive process) and are forgotten
 *   fast      after some `slow_steps`, `fast_steps`: topics that drift
 *   noise     drawn anew at each step
 *   recency   not drawn: falls from one standard deviation for the newest row to 0 at
 *             `recent_rows`
 *
 * The first four rows are selected always.  Only ratios of weights matter.  All is in
 * integers from one seed, so selections are the same everywhere; their order is random.
 * Rows have no neighbours here: nothing that the generator draws depends on the position but
 * recency.
 */
#ifndef BENCH_CLASSES_H
#define BENCH_CLASSES_H

#include "trace.h"

struct locality {
	uint32_t rows; /* of the history before the first step; each step adds one */
	uint32_t top_k;
	uint32_t lasting, kind, slow, fast, noise, recency; /* weights */
	uint32_t kinds;
	uint32_t slow_steps, fast_steps, recent_rows;
};

struct locality_class {
	const char *name, *says; /* and what it is like */
	double overlap[2];       /* reported, at least and at most, in %; 0: unknown */
	double misses[5];        /* of exact LRU at 1, 2, 3, 4, 8 times top_k, in %; 0: unknown */
	struct locality locality;
};

/* Ends with a class without a name. */
extern const struct locality_class locality_classes[];

void locality_trace(struct trace *trace, const struct locality *locality, uint32_t plans,
                    uint64_t seed);

#endif
