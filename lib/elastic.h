/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Elastic pages: more places for a session's hot cache, page_rows each, as long as there is
 * room.  What lies in them has a copy in host memory, so that they can be taken back at once.
 * They stand behind the required ones in hot[]; the last goes first.
 */
#ifndef DHS_LIB_ELASTIC_H
#define DHS_LIB_ELASTIC_H

#include "worth.h"

/* Places of a hot cache of so many pages: none, or the required ones and more. */
uint32_t dhs_elastic_places(const dhs_context *context, uint32_t pages);
uint32_t dhs_elastic_pages(const dhs_context *context, const struct dhs_session_state *s);
/* Of these, those that would be free at once if all were taken back. */
uint32_t dhs_elastic_ready(const dhs_context *context, const struct dhs_session_state *s);

/* The last page of the hot cache goes back to the pool. */
void dhs_elastic_drop(dhs_context *context, struct dhs_session_state *s);
/* The same of up to `most` elastic pages; how many. */
uint32_t dhs_elastic_evict(dhs_context *context, struct dhs_session_state *s, uint32_t most);
/* The session whose elastic pages are taken back next: to which they are worth least, ties by the
 * lower index; of those that come after `after` (NULL: of all) and, without `draining`, that
 * have some that do not drain.  NULL: there is none. */
struct dhs_session_state *dhs_elastic_next(const dhs_context *context, int draining,
                                           const struct dhs_session_state *after);
/* Whether its elastic pages are taken before that history (NULL: there is none); they are, where
 * both are worth as much. */
int dhs_elastic_first(const dhs_context *context, const struct dhs_session_state *elastic,
                      const struct dhs_session_state *history, struct dhs_worth usual);
/* Takes its last elastic page, which there must be, for somebody else than the pool. */
int32_t dhs_elastic_lift(dhs_context *context, struct dhs_session_state *s);
/* What its last elastic page will wait for once it is taken. */
struct dhs_after dhs_elastic_after(const dhs_context *context, const struct dhs_session_state *s);
/* Whether page i of its hot cache, an elastic one, would drain. */
int dhs_elastic_drains(const dhs_context *context, const struct dhs_session_state *s, uint32_t i);

/* In a tick: free pages above the low watermark go to sessions to which they are worth more than
 * they are to the history that would come back next (NULL: none would). */
void dhs_elastic_grow(dhs_context *context, const struct dhs_session_state *history);
/* In a tick without such pages: the sessions to which some are worth most get a portion each of
 * those that are worth least where they are.  Enqueues the copies that `copy` is of. */
int dhs_elastic_balance(dhs_context *context, struct dhs_work *copy);

#endif
