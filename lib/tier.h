/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The host tier: pages of page_rows records each, for all groups alike.  It is
 * a table of chunks, allocated apart; in a chunk each group has a region of
 * records, so that a row's layers are one contiguous read.  A session's pages
 * follow one another where they can: rows fetched together lie together.
 */
#ifndef DHS_LIB_TIER_H
#define DHS_LIB_TIER_H

#include "work.h"

struct dhs_tier {
	uint32_t pages;
	uint32_t free_count;
	uint32_t draining_count;
	uint32_t draining_first, draining_last; /* list through `next` */
	int scattered;           /* a search found short runs only, and no page was freed since */
	uint64_t *free;          /* bit of a page: free, and its works recorded */
	struct dhs_after *after; /* [pages] */
	uint32_t *next;          /* [pages] */
	uint32_t chunks;
	void **chunk;            /* [chunks] */
	unsigned char **records; /* the host's copy of what the geometry has in device memory */
};

/* How `rows` records are cut into chunks. */
struct dhs_tier_shape {
	uint32_t pages;
	uint32_t chunk_shift;
	uint32_t chunks;
	uint64_t page_bytes; /* all groups */
	uint64_t bytes;      /* all chunks */
};

void dhs_tier_shape(const struct dhs_geometry *geometry, uint64_t rows,
                    struct dhs_tier_shape *shape);
int dhs_tier_init(dhs_context *context, const struct dhs_tier_shape *shape);

/* A free page, the one behind `previous` (-1: none) if it can be.  There must
 * be one. */
int32_t dhs_tier_take(dhs_context *context, int32_t previous);
/* Gives a page back; it is used until the works in its `after` passed. */
void dhs_tier_release(dhs_context *context, int32_t page);
void dhs_tier_recorded(dhs_context *context);
uint32_t dhs_tier_free_after(const dhs_context *context, const struct dhs_work *work);

#endif
