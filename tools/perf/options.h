/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What the command line asks for. */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Families of measurements, in the order in which they run. */
enum family {
	FAMILY_COPY,
	FAMILY_KNEE,
	FAMILY_PLAN,
	FAMILY_FETCH,
	FAMILY_RESOLVE,
	FAMILY_SMALL,
	FAMILY_QUERIES,
	FAMILY_NAIVE,
	FAMILY_TRANSLATIONS,
	FAMILY_BESIDE,
	FAMILY_LEADER,
	FAMILY_BACKUP,
	FAMILY_EVICT,
	FAMILY_STEP,
	FAMILIES
};

enum { NAIVE_BLOCK = 1, NAIVE_LAYERS = 2, NAIVE_UNSORTED = 4 };

#define MOST_NUMBERS 16

struct numbers {
	double value[MOST_NUMBERS];
	int count;
};

struct options {
	unsigned families;                        /* bits 1 << enum family */
	unsigned layouts;                         /* bits 1 << index in shapes */
	unsigned naive;                           /* NAIVE_... */
	struct numbers sessions, queries, misses; /* misses: percent of top_k */
	double pool_gib;                          /* 0: 64, or what the machine has */
	uint32_t repeat, rows, hot_rows, top_k;
	int device;
	const char *json, *compare; /* files, or NULL */
};

void options_read(int argc, char **argv, struct options *o);
bool options_want(const struct options *o, enum family family);
bool options_layout(const struct options *o, int layout);

#endif
