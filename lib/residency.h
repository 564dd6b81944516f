/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The one place that moves pages between the states of docs/residency.md.
 * Functions that take pages back gather their copies in context->copy;
 * dhs_residency_copy enqueues what was gathered.  Callers make sure of
 * room first: nothing here can fail but the device.
 */
#ifndef DHS_LIB_RESIDENCY_H
#define DHS_LIB_RESIDENCY_H

#include "context.h"
#include "worth.h"

/* `copy` is the open work of the copies that this call gathers, or NULL where
 * pages always have their host copy. */

/* Logical page p of history, on the host only, is on its way to the device; and is not any more,
 * but on the host only. */
void dhs_residency_send(struct dhs_session_state *s, uint32_t p);
void dhs_residency_call_off(struct dhs_session_state *s, uint32_t p);
/* A page that was on its way is the session's logical page p once `copy` has passed. */
void dhs_residency_land(dhs_context *context, struct dhs_session_state *s, uint32_t p, int32_t page,
                        struct dhs_work *copy);

/* Pages that now lie below settled - tail_rows become history. */
void dhs_residency_age(dhs_context *context, struct dhs_session_state *s, struct dhs_work *copy);

/* Whether logical page p, of history, has a whole host copy, or a copy on its way there. */
int dhs_residency_backed_up(const dhs_context *context, const struct dhs_session_state *s,
                            uint32_t p);
/* Gathers the copy of what of logical page p has none yet. */
void dhs_residency_back_up(dhs_context *context, struct dhs_session_state *s, uint32_t p);

/* Up to `most` of its history pages go back to the pool, the lowest first; how many. */
uint32_t dhs_residency_take(dhs_context *context, struct dhs_session_state *s, uint32_t most,
                            struct dhs_work *copy);

/* All optional pages of the session go back to the pool; how many. */
uint32_t dhs_residency_evict(dhs_context *context, struct dhs_session_state *s,
                             struct dhs_work *copy);

/* The session whose history is taken back next: an idle one first, then one with most pages on the
 * device, then the lower index; of those for which may() is not 0 (NULL: any).  NULL: there is
 * none on the device. */
struct dhs_session_state *dhs_residency_cheapest(const dhs_context *context,
                                                 int (*may)(const struct dhs_session_state *s));

/* Takes its lowest optional page, which there must be, for somebody else than the pool. */
int32_t dhs_residency_lift(dhs_context *context, struct dhs_session_state *s,
                           struct dhs_work *copy);

/* Pages that dhs_residency_age would turn into history. */
uint32_t dhs_residency_aging(const dhs_context *context, const struct dhs_session_state *s);

/* Pages that dhs_residency_make_room can have in the pool, at most; sessions are only
 * looked at if fewer than `wanted` are there already. */
uint64_t dhs_residency_room(dhs_context *context, uint64_t wanted, int draining);

/* Optional pages of all sessions. */
uint32_t dhs_residency_optional(const dhs_context *context);

/* What dhs_residency_make_room with `draining` would do for `pages` that can be had: optional
 * pages that it would take back, and how many of those that it leaves would still drain. */
void dhs_residency_forecast(const dhs_context *context, uint32_t pages, uint32_t *taken,
                            uint32_t *draining);

/* Takes pages back, the cheapest first and as the context's reclaim tells, until `pages` are in the
 * pool: free ones, or with `draining` those too.  They must be among dhs_residency_room. */
void dhs_residency_make_room(dhs_context *context, uint32_t pages, int draining,
                             struct dhs_work *copy);

/* Maps pages up to `rows` rows, spares first, waiting for them on `stream`;
 * needs enough spares and free pages.  If the page at the settled length is only
 * in host memory its rows are reloaded. */
int dhs_residency_map(dhs_context *context, struct dhs_session_state *s, uint32_t rows,
                      dhs_stream stream);
/* Pages that this takes beyond the session's spares. */
uint32_t dhs_residency_map_needs(const dhs_context *context, const struct dhs_session_state *s,
                                 uint32_t rows);

/* All pages of the session but its hot cache go back to the pool, and it keeps none. */
void dhs_residency_leave(dhs_context *context, struct dhs_session_state *s, struct dhs_work *copy);
/* Maps the pages of the tail, which are in host memory only, from the session's spares, and
 * reloads their rows, both on `stream`. */
int dhs_residency_return(dhs_context *context, struct dhs_session_state *s, dhs_stream stream);

/* Takes host pages for `rows` rows; they must be free.  Those not waited for
 * yet are waited for on `stream` by dhs_residency_host_ready. */
void dhs_residency_host_take(dhs_context *context, struct dhs_session_state *s, uint32_t rows);
uint32_t dhs_residency_host_needs(const dhs_context *context, const struct dhs_session_state *s,
                                  uint32_t rows);
int dhs_residency_host_ready(dhs_context *context, struct dhs_session_state *s, dhs_stream stream);

/* Pages and host pages past `rows` rows go back. */
void dhs_residency_cut(dhs_context *context, struct dhs_session_state *s, uint32_t rows);

/* Enqueues the gathered copies on the library's stream and records them as
 * `copy`; without any, `copy` is cancelled. */
int dhs_residency_copy(dhs_context *context, struct dhs_work *copy);
/* An open work for copies, or NULL where the policy never needs one. */
int dhs_residency_copy_new(dhs_context *context, struct dhs_work **copy);

#endif
