/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Elastic pages: more places for a session's hot cache, page_rows each, as long as there is
 * room.  What lies in them has a copy in host memory, so that they can be taken back at once.
 * They stand behind the required ones in hot[]; the last goes first.
 */
#ifndef DHS_LIB_ELASTIC_H
#define DHS_LIB_ELASTIC_H

#include "context.h"

/* Places of a hot cache of so many pages: none, or the required ones and more. */
uint32_t dhs_elastic_places(const dhs_context *context, uint32_t pages);
uint32_t dhs_elastic_pages(const dhs_context *context, const struct dhs_session_state *s);
/* Of these, those that would be free at once if all were taken back. */
uint32_t dhs_elastic_ready(const dhs_context *context, const struct dhs_session_state *s);

/* The last page of the hot cache goes back to the pool. */
void dhs_elastic_drop(dhs_context *context, struct dhs_session_state *s);
/* The same of up to `most` elastic pages; how many. */
uint32_t dhs_elastic_evict(dhs_context *context, struct dhs_session_state *s, uint32_t most);
/* The elastic page that is worth least goes back; without `draining`, of the sessions that have
 * some that do not drain.  0 if there is none. */
int dhs_elastic_take_back(dhs_context *context, int draining);
/* How many pages the same would give if `most` were taken; adds to *free those that would be free
 * and to *later those that would drain. */
uint32_t dhs_elastic_forecast(const dhs_context *context, uint64_t most, uint64_t *free,
                              uint64_t *later);
/* Takes the elastic page that is worth least for somebody else than the pool; -1: there is none. */
int32_t dhs_elastic_lift(dhs_context *context);
/* Whether there is one, and what it will wait for. */
int dhs_elastic_next(const dhs_context *context, struct dhs_after *after);

/* In a tick: free pages above the low watermark go to sessions to which they are worth more than
 * they are to the history that would come back next (NULL: none would). */
void dhs_elastic_grow(dhs_context *context, const struct dhs_session_state *history);
/* In a tick without such pages: the session to which some are worth most gets a portion of those
 * that are worth least where they are.  Enqueues the copies that `copy` is of. */
int dhs_elastic_balance(dhs_context *context, struct dhs_work *copy);

#endif
