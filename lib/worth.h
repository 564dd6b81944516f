/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What a page of optional state is worth: the misses that it saves a plan.  Worths order what
 * is given back, and where spare pages go; docs/residency.md has the rule.
 */
#ifndef DHS_LIB_WORTH_H
#define DHS_LIB_WORTH_H

#include "context.h"

/* misses / pages, of one plan.  Both are of any scale: only what they are together counts. */
struct dhs_worth {
	uint64_t misses;
	uint64_t pages;
};

/* Steps after which a session that stood in none of them, and was not extended, is idle. */
#define DHS_IDLE_STEPS 64

int dhs_session_idle(const dhs_context *context, const struct dhs_session_state *s);

/* An elastic page that the session has, or would have. */
struct dhs_worth dhs_worth_elastic(const dhs_context *context, const struct dhs_session_state *s);

/* A page of its history; `usual` is what dhs_worth_usual tells. */
struct dhs_worth dhs_worth_history(const dhs_context *context, const struct dhs_session_state *s,
                                   struct dhs_worth usual);

/* A page of history, on average of those that are not on the device. */
struct dhs_worth dhs_worth_usual(const dhs_context *context);

static inline int dhs_worth_less(struct dhs_worth a, struct dhs_worth b)
{
	__extension__ typedef unsigned __int128 product;

	return (product)a.misses * b.pages < (product)b.misses * a.pages;
}

#endif
