/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Memory that lives as long as a context or a batch: blocks that are freed
 * together.  A null `context` measures: nothing is allocated, bytes are added up,
 * so that what is computed and what is taken come from the same lines.
 */
#ifndef DHS_LIB_BLOCKS_H
#define DHS_LIB_BLOCKS_H

#include <dhisparse/dhisparse.h>

struct dhs_block {
	struct dhs_block *next;
	void *memory;
	size_t bytes;
	uint32_t kind;
};

struct dhs_blocks {
	struct dhs_block *first;
	uint64_t bytes[3]; /* by kind */
	int failed;        /* the code of the allocation that failed; later ones give NULL */
};

/* NULL when there is no memory; when measuring, and for 0 bytes, a pointer that is
 * not NULL and must not be used. */
void *dhs_blocks_new(dhs_context *context, struct dhs_blocks *blocks, uint32_t kind, size_t bytes,
                     int zeroed);
void dhs_blocks_free(dhs_context *context, struct dhs_blocks *blocks);

/* Zeroed ordinary memory for the life of the context. */
void *dhs_blocks_book(dhs_context *context, size_t bytes);

#endif
