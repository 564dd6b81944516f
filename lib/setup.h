/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * From a caller's options to what a context is built from: defaults filled in, all
 * checked, and the shapes that follow.  Nothing here allocates; the calculators
 * of the interface are here.
 */
#ifndef DHS_LIB_SETUP_H
#define DHS_LIB_SETUP_H

#include "context.h"
#include "layout.h"

/* Options with defaults, the layout, and what follows from them. */
struct dhs_setup {
	int calculate; /* nothing will be created: device_pages may be 0 */
	dhs_context_options o;
	dhs_allocator allocator;
	struct dhs_layout_copy layout;
	struct dhs_tier_shape tier;
	uint32_t tail_pages, hot_pages, elastic_pages; /* of a session; the last: at most */
	struct dhs_staging_shape staging;
	uint64_t pool_bytes;
};

/* `calculate`: options for a calculator, see the struct. */
int dhs_setup_read(const char *call, const char *name, const dhs_context_options *options,
                   int calculate, struct dhs_setup *u);

/* Bytes of a pool of `pages` pages; of an engine's those of its rows. */
uint64_t dhs_setup_pool_bytes(const struct dhs_setup *u, uint32_t pages);

/* Everything about the geometry that is a number. */
void dhs_setup_geometry(const struct dhs_setup *u, struct dhs_geometry *g);

/* The geometry that a context of these options would have, and where its batches would
 * have their staging. */
int dhs_setup_calculate(const char *call, const dhs_context_options *options,
                        struct dhs_geometry *geometry, struct dhs_staging_shape *staging);

/* Settles what DHS_BACKEND_AUTO means here and now. */
int dhs_setup_backend(const char *call, dhs_context_options *o);
/* NULL for a backend that this build lacks. */
const struct dhs_backend_ops *dhs_setup_ops(uint32_t backend);

#endif
