/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* From the caller's layout to the geometry that kernels use. */
#ifndef DHS_LIB_LAYOUT_H
#define DHS_LIB_LAYOUT_H

#include "error.h"
#include "world.h"

/* A checked copy of a dhs_layout with its defaults filled in. */
struct dhs_layout_copy {
	dhs_layout layout;
	dhs_segment segment[DHS_MAX_SEGMENTS];
	uint32_t row_bytes;
	uint64_t page_stride; /* library-owned pool: bytes of a page of one layer */
};

/* Reads and checks everything but what depends on the pool's bases. */
int dhs_layout_read(const char *call, const dhs_layout *from, int owns_pool,
                    struct dhs_layout_copy *copy);

/* Layers of group g, and the sum over all groups must be layers. */
uint32_t dhs_layout_group_layers(const struct dhs_layout_copy *copy, uint32_t g);

/* Checks an engine-owned pool of `pages` pages: bases are not null, aligned, in
 * range, and no two segments of any two layers overlap. */
int dhs_layout_check_pool(const char *call, const struct dhs_layout_copy *copy, void *const *pool,
                          uint32_t pages);

#endif
