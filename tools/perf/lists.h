/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Lists of records in host memory, made on the processor and new at each call: the tool's
 * own copies follow them.  The lists of one call lie one behind the other.
 */
#ifndef PERF_LISTS_H
#define PERF_LISTS_H

#include <cuda_runtime_api.h>

#include <stddef.h>
#include <stdint.h>

struct lists {
	uint32_t *host, *device; /* [room]; pinned, and its copy */
	uint64_t *bits;          /* of records, all 0 between calls */
	size_t room, used;
	uint64_t seed;
};

/* Records 0 .. records - 1, in lists of `room` entries together. */
void lists_open(struct lists *l, size_t room, size_t records);
void lists_close(struct lists *l);

/* The lists of the last call are not needed any more. */
void lists_reset(struct lists *l);
/* Where the next list is to be written. */
uint32_t *lists_next(struct lists *l);
/* The next list has `count` entries: enqueues its copy and tells where that is. */
const uint32_t *lists_upload(struct lists *l, size_t count, cudaStream_t stream);

/* `each` records of every session, of the first `span` of its `rows`, without duplicates and
 * in no order, session after session. */
struct list_load {
	uint32_t sessions, rows, span, each;
};
size_t lists_draw(struct lists *l, const struct list_load *load, uint32_t *list);
/* By address; the list has no duplicates. */
void lists_sort(struct lists *l, uint32_t *list, size_t count);
/* A random order of 0 .. count - 1. */
void lists_shuffle(struct lists *l, uint32_t *list, uint32_t count);

#endif
