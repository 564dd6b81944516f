/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Where the memory of a library-owned pool and the staging of batches lie.
 *
 * A staging buffer serves one layer group at a time, so one memory for each
 * position in a group is enough for all groups, if every layer sees it behind its
 * own pages.  Where the device can show one memory at several addresses each layer
 * has an address range of its own:
 *
 *     [pages of the pool][window][window]...
 *
 * A batch takes windows that follow each other, in all layers the same; in layers at
 * the same position of their groups they show the same memory.  Its page numbers go on
 * behind the pool's, so one base and one index serve attention, and no page of the
 * pool is spent.  Elsewhere, and in an engine's pool, staging is pages of the pool.
 * docs/residency.md has the rule to the letter.
 */
#ifndef DHS_LIB_STAGING_H
#define DHS_LIB_STAGING_H

#include "world.h"

/* The granule in which memory is mapped: that of GPUs. */
#define DHS_WINDOW_BYTES ((uint64_t)2 << 20)

/* Follows from the options alone. */
struct dhs_staging_shape {
	int mapped;           /* 0: staging is pages of the pool, and the rest is 0 */
	uint64_t own;         /* bytes of a layer's range for pages of the pool, whole windows */
	uint32_t windows;     /* behind them */
	uint64_t page_stride; /* of all segments */
};

struct dhs_staging {
	struct dhs_staging_shape shape;
	unsigned char *range; /* [layers][own + windows * DHS_WINDOW_BYTES] addresses */
	unsigned char *taken; /* [windows] 1: of a batch */
	void **at;            /* [layers] room for the addresses of one mapping */
};

/* Bytes of a layer's range for `pages` pages of the pool. */
uint64_t dhs_staging_own(uint32_t pages, uint64_t page_stride);

/* The range of a pool of `pages` pages with room for `rows` staging rows of all batches. */
void dhs_staging_shape(const struct dhs_geometry *g, uint64_t rows,
                       struct dhs_staging_shape *shape);

/* Bytes that `pages` staging pages take behind the pool, 0 if they are the pool's; false
 * if they are past 2^60. */
int dhs_staging_bytes(const struct dhs_geometry *g, const struct dhs_staging_shape *shape,
                      uint32_t pages, uint64_t *bytes);

/* Reserves the ranges and maps the pool's memory, the first pages zeroed; layer l begins
 * at range + l * dhs_staging_span. */
int dhs_staging_open(dhs_context *context, const struct dhs_staging_shape *shape,
                     uint32_t zeroed_pages);
void dhs_staging_close(dhs_context *context);
uint64_t dhs_staging_span(const struct dhs_staging_shape *shape);

/* Whether there is room for `pages` staging pages; DHS_ERR_DEVICE_MEMORY if not. */
int dhs_staging_check(dhs_context *context, uint32_t pages);
/* The batch gets its pages, and its table on the device their numbers. */
int dhs_staging_take(dhs_context *context, dhs_batch *batch, uint32_t pages);
/* No work of the batch is left. */
void dhs_staging_give(dhs_context *context, dhs_batch *batch);

#endif
