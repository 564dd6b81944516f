/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Brings history back from host memory when there is room.  A tick issues copies of some
 * pages; a page is on its way until the tick that is DHS_COPY_LAG later lands it: then it is
 * in the session's table from the session's next begin on, which waits for the copy.
 * Until then it can be called off at any moment.
 */
#ifndef DHS_LIB_REFILL_H
#define DHS_LIB_REFILL_H

#include "work.h"

#define DHS_COPY_LAG 2

struct dhs_session_state;

/* A page on its way. */
struct dhs_coming {
	uint32_t session; /* its place in the context */
	uint32_t p;       /* logical page */
	int32_t page;
	uint64_t tick; /* that issued the copy */
	struct dhs_work *work;
};

struct dhs_refill {
	uint64_t link_bytes; /* a tick */
	uint32_t low, high;  /* free pages: refill begins at high and ends at low */
	uint64_t tick;
	uint64_t fetched; /* bytes that steps had fetched by the last tick */
	int filling;
	struct dhs_coming *coming; /* [device_pages] oldest first */
	uint32_t count;
};

int dhs_refill_init(dhs_context *context, uint32_t pages);

/* What dhs_context_advance does in a context that was entered. */
int dhs_refill_tick(dhs_context *context);

/* Calls off the pages that are on their way to a session, or to all (NULL): they are free
 * once their copies have run.  How many. */
uint32_t dhs_refill_call_off(dhs_context *context, struct dhs_session_state *s);

#endif
