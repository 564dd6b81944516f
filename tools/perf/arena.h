/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * One block of pinned host memory for the whole run: pinning takes longer than all
 * measurements in it.  Contexts get pieces of it, one after the other.
 */
#ifndef PERF_ARENA_H
#define PERF_ARENA_H

#include <dhisparse/dhisparse.h>

#include <stddef.h>

struct arena {
	unsigned char *host;   /* as the processor sees it */
	unsigned char *device; /* as the GPU sees it */
	size_t bytes, used;
	size_t pieces;    /* given out; when all are back the arena is empty again */
	size_t available; /* memory of the machine before, 0: unknown */
	double pin_seconds;
};

/* gib 0: 64, or less where the machine has less. */
void arena_open(struct arena *a, double gib);
void arena_close(struct arena *a);
/* Host memory from the arena, the library's own books from the C library. */
dhs_allocator arena_allocator(struct arena *a);

#endif
