/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "elastic.h"

#include "residency.h"
#include "worth.h"

/* Sessions that get pages of others in a tick. */
#define MOST_MOVES 8

uint32_t dhs_elastic_places(const dhs_context *context, uint32_t pages)
{
	const struct dhs_geometry *g = &context->world.geometry;

	return pages < g->hot_pages ? 0 : g->hot_rows + (pages - g->hot_pages) * g->page_rows;
}

uint32_t dhs_elastic_pages(const dhs_context *context, const struct dhs_session_state *s)
{
	uint32_t required = context->world.geometry.hot_pages;

	return s->hot_pages > required ? s->hot_pages - required : 0;
}

uint32_t dhs_elastic_ready(const dhs_context *context, const struct dhs_session_state *s)
{
	uint32_t pages = 0;

	if (dhs_work_open(s->last))
		return 0;
	for (uint32_t i = context->world.geometry.hot_pages; i < s->hot_pages; i++)
		pages += i < s->hot_told || !dhs_after_open(&context->pool.page[s->hot[i]].after, NULL);
	return pages;
}

/* The last page of the hot cache is nobody's then. */
static int32_t lift(dhs_context *context, struct dhs_session_state *s)
{
	int32_t page = s->hot[--s->hot_pages];

	/* One that the device was not told of waits for what it waited for when it was taken. */
	if (s->hot_pages < s->hot_told) {
		dhs_after_set(context, &context->pool.page[page].after, s->last, NULL);
		s->hot_told = s->hot_pages;
		s->hot_withdrawn = 1;
		s->hot_kept = s->hot_pages;
	}
	context->elastic_pages -= s->hot_pages >= context->world.geometry.hot_pages;
	return page;
}

void dhs_elastic_drop(dhs_context *context, struct dhs_session_state *s)
{
	dhs_pool_release(context, lift(context, s));
}

uint32_t dhs_elastic_evict(dhs_context *context, struct dhs_session_state *s, uint32_t most)
{
	uint32_t pages = dhs_min_u32(most, dhs_elastic_pages(context, s));

	for (uint32_t i = 0; i < pages; i++)
		dhs_elastic_drop(context, s);
	context->totals.withdrawn_pages += pages;
	return pages;
}

/* Whether elastic pages of a are taken before those of b. */
static int comes_first(const dhs_context *context, const struct dhs_session_state *a,
                       const struct dhs_session_state *b)
{
	struct dhs_worth of_a = dhs_worth_elastic(context, a), of_b = dhs_worth_elastic(context, b);

	return dhs_worth_less(of_a, of_b) || (!dhs_worth_less(of_b, of_a) && a->index < b->index);
}

struct dhs_session_state *dhs_elastic_next(const dhs_context *context, int draining,
                                           const struct dhs_session_state *after)
{
	struct dhs_session_state *best = NULL;

	for (uint32_t i = 0; context->elastic_pages && i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];

		if (!s->live || !dhs_elastic_pages(context, s) ||
		    (!draining && !dhs_elastic_ready(context, s)) ||
		    (after && !comes_first(context, after, s)))
			continue;
		if (!best || comes_first(context, s, best))
			best = s;
	}
	return best;
}

int dhs_elastic_first(const dhs_context *context, const struct dhs_session_state *elastic,
                      const struct dhs_session_state *history, struct dhs_worth usual)
{
	return elastic && (!history || !dhs_worth_less(dhs_worth_history(context, history, usual),
	                                               dhs_worth_elastic(context, elastic)));
}

struct dhs_after dhs_elastic_after(const dhs_context *context, const struct dhs_session_state *s)
{
	return s->hot_pages > s->hot_told ? context->pool.page[s->hot[s->hot_pages - 1]].after
	                                  : (struct dhs_after){ { s->last, NULL } };
}

int dhs_elastic_drains(const dhs_context *context, const struct dhs_session_state *s, uint32_t i)
{
	return i < s->hot_told ? dhs_work_open(s->last)
	                       : dhs_after_open(&context->pool.page[s->hot[i]].after, NULL);
}

int32_t dhs_elastic_lift(dhs_context *context, struct dhs_session_state *s)
{
	context->totals.withdrawn_pages++;
	return lift(context, s);
}

/* ---- a tick ---- */

/* Pages that a session gets at once, so that it is measured again before it gets more. */
static uint32_t portion(const dhs_context *context)
{
	return dhs_max_u32(1, context->world.geometry.hot_pages / 8);
}

/* It would use a larger hot cache: this one was full at its last sample, and what is read
 * least of it is hit. */
static int wants(const dhs_context *context, const struct dhs_session_state *s)
{
	const struct dhs_geometry *g = &context->world.geometry;

	return s->live && !s->failed && !s->suspended && s->first_tail > s->resident &&
	       s->hot_pages < g->most_hot_pages && s->curve.empty < g->page_rows &&
	       s->curve.edge_hits && !dhs_session_idle(context, s);
}

/* The session to which pages are worth most, ties by the lower index. */
static struct dhs_session_state *neediest(dhs_context *context)
{
	struct dhs_session_state *best = NULL;
	struct dhs_worth worth = { 0, 1 };

	for (uint32_t i = 0; i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];
		struct dhs_worth w;

		if (!wants(context, s))
			continue;
		w = dhs_worth_elastic(context, s);
		if (dhs_worth_less(worth, w)) {
			best = s;
			worth = w;
		}
	}
	return best;
}

/* Pages that a session will have count as empty places, so that it is measured with them before
 * it gets more. */
static void promise(const dhs_context *context, struct dhs_session_state *s, uint32_t pages)
{
	s->curve.empty += pages * context->world.geometry.page_rows;
}

static void grant(dhs_context *context, struct dhs_session_state *s, uint32_t pages)
{
	for (uint32_t i = 0; i < pages; i++)
		s->hot[s->hot_pages++] = dhs_pool_take_any(context);
	context->elastic_pages += pages;
	context->totals.granted_pages += pages;
}

static uint32_t room_of(const dhs_context *context, const struct dhs_session_state *s)
{
	return dhs_min_u32(portion(context), context->world.geometry.most_hot_pages - s->hot_pages);
}

/* A page of history that came instead would save less. */
static int beats_history(const dhs_context *context, const struct dhs_session_state *s,
                         const struct dhs_session_state *history, struct dhs_worth usual)
{
	return !history || dhs_worth_less(dhs_worth_history(context, history, usual),
	                                  dhs_worth_elastic(context, s));
}

void dhs_elastic_grow(dhs_context *context, const struct dhs_session_state *history)
{
	struct dhs_worth usual = dhs_worth_usual(context);
	struct dhs_session_state *s;

	while (context->pool.free.count > context->refill.low && (s = neediest(context)) &&
	       beats_history(context, s, history, usual)) {
		uint32_t pages =
			dhs_min_u32(room_of(context, s), context->pool.free.count - context->refill.low);

		promise(context, s, pages);
		grant(context, s, pages);
	}
}

/* Twice as much to another session, lest pages move to and fro. */
static int worth_moving(struct dhs_worth from, struct dhs_worth to)
{
	from.misses *= 2;
	return dhs_worth_less(from, to);
}

/* Takes up to so many pages from where they are worth least, if that is less than half. */
static uint32_t take_for(dhs_context *context, const struct dhs_session_state *to,
                         struct dhs_worth usual, struct dhs_work *copy)
{
	struct dhs_worth worth = dhs_worth_elastic(context, to);
	struct dhs_session_state *elastic = dhs_elastic_next(context, 1, NULL);
	struct dhs_session_state *history = dhs_residency_cheapest(context, NULL);
	uint32_t most = room_of(context, to);

	if (history && worth_moving(dhs_worth_history(context, history, usual), worth))
		return dhs_residency_take(context, history, most, copy);
	if (elastic && elastic != to && worth_moving(dhs_worth_elastic(context, elastic), worth))
		return dhs_elastic_evict(context, elastic, most);
	return 0;
}

int dhs_elastic_balance(dhs_context *context, struct dhs_work *copy)
{
	struct dhs_worth usual = dhs_worth_usual(context);
	struct dhs_session_state *to[MOST_MOVES];
	uint32_t pages[MOST_MOVES], n = 0;
	int rc;

	for (; n < MOST_MOVES && (to[n] = neediest(context)); n++) {
		pages[n] = take_for(context, to[n], usual, copy);
		if (!pages[n])
			break;
		promise(context, to[n], pages[n]);
	}
	rc = dhs_residency_copy(context, copy);
	/* What was taken is in the pool by now, some of it free, and the rest draining. */
	for (uint32_t i = 0; i < n; i++)
		grant(context, to[i], pages[i]);
	return rc;
}
