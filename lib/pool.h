/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The device pool: who owns each page, and what must pass before a freed one
 * may be used.  Pages are given out in the order in which they became free, so
 * that the work that last read them has mostly passed.
 */
#ifndef DHS_LIB_POOL_H
#define DHS_LIB_POOL_H

#include "work.h"

enum dhs_page_state {
	DHS_PAGE_ENGINE,   /* reserved, or not lent */
	DHS_PAGE_FREE,     /* its works are recorded */
	DHS_PAGE_DRAINING, /* one of them is open */
	DHS_PAGE_OWNED     /* by a session or a batch */
};

struct dhs_page {
	struct dhs_after after;
	int32_t next; /* in the list of free or of draining pages, -1 ends */
	uint32_t state;
};

struct dhs_page_list {
	int32_t first, last;
	uint32_t count;
};

struct dhs_pool {
	struct dhs_page *page; /* [pages] */
	uint32_t pages;
	uint32_t engine; /* pages in DHS_PAGE_ENGINE */
	struct dhs_page_list free, draining;
};

int dhs_pool_init(dhs_context *context, uint32_t pages);

/* The page is the library's once its works have passed: an engine lends it. */
void dhs_pool_lend(dhs_context *context, int32_t page);
/* An owned page is the engine's once its works have passed.  It keeps them: who lends it
 * again may not have waited. */
void dhs_pool_return(dhs_context *context, int32_t page);

/* The page that has been free for longest, or -1.  _any takes a draining page
 * when no other is left. */
int32_t dhs_pool_take(dhs_context *context);
int32_t dhs_pool_take_any(dhs_context *context);

/* Gives an owned page back; it is used until the works in its `after` passed. */
void dhs_pool_release(dhs_context *context, int32_t page);

/* Moves draining pages whose works are recorded by now to the free ones. */
void dhs_pool_recorded(dhs_context *context);

/* Free pages, counting those that drain only for `work`. */
uint32_t dhs_pool_free_after(const dhs_context *context, const struct dhs_work *work);

#endif
