/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "worth.h"

int dhs_session_idle(const dhs_context *context, const struct dhs_session_state *s)
{
	return context->next_step - 1 - s->used_at >= DHS_IDLE_STEPS;
}

struct dhs_worth dhs_worth_elastic(const dhs_context *context, const struct dhs_session_state *s)
{
	const struct dhs_curve *c = &s->curve;

	if (!c->edge_places || dhs_session_idle(context, s))
		return (struct dhs_worth){ 0, 1 };
	return (struct dhs_worth){ (uint64_t)c->edge_hits * context->world.geometry.page_rows,
		                       c->edge_places };
}

struct dhs_worth dhs_worth_history(const dhs_context *context, const struct dhs_session_state *s,
                                   struct dhs_worth usual)
{
	return dhs_session_idle(context, s) ? (struct dhs_worth){ 0, 1 } : usual;
}

struct dhs_worth dhs_worth_usual(const dhs_context *context)
{
	struct dhs_worth usual = { 0, 0 };

	for (uint32_t i = 0; i < context->max_sessions; i++) {
		const struct dhs_session_state *s = &context->sessions.session[i];

		if (!s->live || s->suspended || s->first_tail == s->resident || !s->curve.misses)
			continue;
		usual.misses += s->curve.misses;
		usual.pages += (uint64_t)(s->first_tail - s->resident) * DHS_CURVE_ONE;
	}
	return usual.pages ? usual : (struct dhs_worth){ 0, 1 };
}
