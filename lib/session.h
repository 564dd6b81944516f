/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A session as the host sees it: its pages in both tiers, and what the device
 * must be told at its next begin.  docs/residency.md explains the states.
 *
 * Logical page p holds rows p * page_rows on.  Pages below first_tail are
 * history; those on the device are optional.  Pages from there to extent are the
 * tail (and, while an extension is not committed, prefill).
 */
#ifndef DHS_LIB_SESSION_H
#define DHS_LIB_SESSION_H

#include "curve.h"
#include "work.h"

struct dhs_session_state {
	uint32_t index;
	uint32_t generation;
	uint8_t live;
	uint8_t failed;     /* DHS_ERR_MISMATCH until destroyed */
	uint8_t suspended;  /* no pages on the device */
	uint8_t fresh;      /* not begun since it has its spares: not waited for */
	uint8_t set_length; /* the next begin tells the device the length */
	uint32_t epoch;     /* raised by truncate and destroy: cancels parts of begun steps */

	uint32_t settled;
	uint32_t unsettled_rows, unsettled_steps;
	uint32_t drop_from; /* hot rows from here on are dropped by the next begin */

	int32_t *page;    /* [max_pages] pool page, -1: not on the device */
	int32_t *host;    /* [max_pages] host page, -1 none */
	uint32_t *backed; /* [max_pages] rows of a page that are copied, or being so (not eager) */
	uint8_t *on_way;  /* [max_pages] 1: on its way */
	int32_t *hot;     /* [most_hot_pages] pages of its hot cache, elastic ones last */
	int32_t *spare;   /* [max_pages + tail_pages] a stack */
	uint32_t spares;
	uint32_t hot_pages; /* in hot[] */
	uint32_t
		hot_told; /* of these, the first ones, which the device has and its streams waited for */
	uint32_t hot_kept;     /* pages of it whose rows the device still knows: to its next begin these
	                          are as many as told, or those that a suspended session had */
	uint8_t hot_withdrawn; /* the device still has one that is gone */
	uint32_t keep;         /* pages that spares and tail are together at least: the tail's R, or
	                          what was reserved under full */
	uint32_t extent;       /* logical pages in use */
	uint32_t first_tail;
	uint32_t lowest;        /* no page below is on the device */
	uint32_t resident;      /* pages below first_tail on the device */
	uint32_t tail_used;     /* pages from first_tail on that are on the device */
	uint32_t coming;        /* pages of history on their way to the device */
	uint32_t refill_from;   /* history from here on is on the device or on its way */
	uint32_t unbacked;      /* of resident: without a whole host copy */
	uint32_t backup_from;   /* none of these lies below */
	uint32_t host_pages;    /* owned: [0, host_pages) of host */
	uint32_t host_ready;    /* of these, waited for: [0, host_ready) */
	uint32_t reserve_pages; /* host pages owned at least */

	uint32_t dirty_low, dirty_high; /* logical pages that the device must be told */

	struct dhs_work *last;    /* last step or prefill that reads or writes its memory */
	struct dhs_work *written; /* last one whose rows are settled: what backup waits for */
	struct dhs_work *copies;  /* last backup of its pages, refill of one that has landed, or
	                             resume, until a begin waited for it, be it of the next
	                             session of the index */
	struct dhs_work *saving;  /* last copy by a tick of pages that stay: what takes or cuts one
	                             moves it to copies, no begin waits for it before */

	struct dhs_curve curve; /* what its hot cache misses, by size */

	uint64_t seen;     /* the last begin that named it: tells a session named twice */
	uint64_t begun_in; /* number of the last step it stood in */
	uint64_t
		used_at; /* steps that had begun when it was last created, extended, committed or begun */
	uint32_t extension; /* rows of an uncommitted extension, 0 none */
};

struct dhs_session_table {
	struct dhs_session_state *session; /* [max_sessions] */
	uint32_t *free; /* ring of free indexes, in the order in which they became free */
	uint32_t free_first, free_count;
	uint32_t live;
	uint32_t suspended; /* of these */
};

int dhs_sessions_init(dhs_context *context);

/* The session of a handle, checked; also a failed one if `failed_too`. */
int dhs_session_find(const char *call, dhs_context *context, dhs_session handle, int failed_too,
                     struct dhs_session_state **session);

/* Options of a new session, checked; NULL is all defaults, which `o` has. */
int dhs_session_read_options(const char *call, const dhs_context *context,
                             const dhs_session_options *options, dhs_session_options *o);

/* A hot cache, not begun with yet, and the spares that the session keeps; there must be so
 * many pages. */
void dhs_session_take_pages(dhs_context *context, struct dhs_session_state *s);
/* The pages of the hot cache go back to the pool. */
void dhs_session_release_hot(dhs_context *context, struct dhs_session_state *s);

static inline uint32_t dhs_session_bound(const struct dhs_session_state *s)
{
	return s->settled + s->unsettled_rows;
}

#endif
