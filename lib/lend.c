/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Pages that an engine lends out of a pool of its own, and takes back. */
#include "elastic.h"
#include "residency.h"

static int enter_engine_pool(const char *call, dhs_context *context, struct dhs_guard *guard)
{
	int rc = dhs_context_enter(call, context, guard);

	if (rc == DHS_OK && context->owns_pool)
		rc = dhs_fail(DHS_ERR_UNSUPPORTED, "%s: the library owns this context's pool", call);
	return rc;
}

static int check_lent(dhs_context *context, const int32_t *pages, size_t count)
{
	struct dhs_pool *pool = &context->pool;

	for (size_t i = 0; i < count; i++) {
		if (pages[i] < 0 || (uint32_t)pages[i] >= pool->pages)
			return dhs_fail(DHS_ERR_ARGUMENT,
			                "dhs_lend_pages: pages[%zu] is %d; the pool has pages 0 to %u", i,
			                pages[i], pool->pages - 1);
		if (pool->page[pages[i]].state != DHS_PAGE_ENGINE)
			return dhs_fail(DHS_ERR_ARGUMENT, "dhs_lend_pages: pages[%zu] = %d is lent already", i,
			                pages[i]);
		if (dhs_after_open(&pool->page[pages[i]].after, NULL))
			return dhs_fail(
				DHS_ERR_PENDING,
				"dhs_lend_pages: pages[%zu] = %d was taken and its fence relies on a step "
				"or a prefill whose end is not recorded",
				i, pages[i]);
	}
	return DHS_OK;
}

/* Marks pages owned one by one, which tells a page that is named twice; takes
 * the marks back when it does. */
static int mark_lent(dhs_context *context, const int32_t *pages, size_t count)
{
	struct dhs_page *page = context->pool.page;

	for (size_t i = 0; i < count; i++) {
		if (page[pages[i]].state == DHS_PAGE_ENGINE) {
			page[pages[i]].state = DHS_PAGE_OWNED;
			continue;
		}
		for (size_t j = 0; j < i; j++)
			page[pages[j]].state = DHS_PAGE_ENGINE;
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_lend_pages: pages[%zu] = %d is named twice", i,
		                pages[i]);
	}
	return DHS_OK;
}

int dhs_lend_pages(dhs_context *context, const int32_t *pages, size_t count, dhs_stream stream)
{
	DHS_GUARD(guard);
	struct dhs_work *work;
	int rc = enter_engine_pool("dhs_lend_pages", context, &guard);

	if (rc == DHS_OK && count)
		rc = dhs_options_check_pointer("dhs_lend_pages", "pages", pages, sizeof(*pages));
	if (rc == DHS_OK)
		rc = check_lent(context, pages, count);
	if (rc == DHS_OK)
		rc = dhs_stream_ready("dhs_lend_pages", context, stream);
	if (rc || !count)
		return rc;
	context->works.call++;
	rc = dhs_work_new(context, stream, &work);
	if (rc)
		return rc;
	rc = mark_lent(context, pages, count);
	if (rc) {
		dhs_work_cancel(context, work);
		return rc;
	}
	/* The engine need not have waited for the fence of a page that it did not use. */
	for (size_t i = 0; rc == DHS_OK && i < count; i++)
		rc = dhs_after_wait(context, &context->pool.page[pages[i]].after, stream);
	if (rc == DHS_OK)
		rc = dhs_work_record(context, work);
	for (size_t i = 0; rc == DHS_OK && i < count; i++) {
		dhs_after_set(context, &context->pool.page[pages[i]].after, work, NULL);
		dhs_pool_lend(context, pages[i]);
	}
	dhs_work_unref(context, &work);
	dhs_stats_publish(context);
	return rc ? dhs_context_lose(context, "dhs_lend_pages", rc) : DHS_OK;
}

/* ---- take ---- */

/* What a call gives, and has given so far. */
struct taking {
	size_t count, taken;
	int32_t *pages;
	dhs_fence *fences;
	struct dhs_work *both; /* passes with the two works of: */
	struct dhs_after last; /* the page before */
};

static void give(dhs_context *context, struct taking *t, int32_t page, dhs_fence fence)
{
	dhs_pool_return(context, page);
	t->pages[t->taken] = page;
	t->fences[t->taken++] = fence;
}

static dhs_fence fence_of_work(dhs_context *context, const struct dhs_work *work)
{
	if (!work || (work->state == DHS_WORK_PASSED && !work->also))
		return 0;
	return dhs_handle(context, DHS_KIND_FENCE, work->number);
}

/* A work that passes with all copies of the library's stream so far and with a reader, which
 * may be open. */
static int pass_with(dhs_context *context, struct dhs_work *reader, struct dhs_work **both)
{
	struct dhs_work *work;
	int rc = dhs_work_new(context, context->copy_stream, &work);

	if (rc)
		return rc;
	dhs_work_set(context, &work->also, reader);
	rc = dhs_work_record(context, work);
	*both = work;
	return rc ? dhs_context_lose(context, "dhs_take_pages", rc) : DHS_OK;
}

/* Pages that were freed together share the fence of two works. */
static int fence_of(dhs_context *context, struct taking *t, const struct dhs_after *after,
                    dhs_fence *fence)
{
	struct dhs_work *work = after->work[0] ? after->work[0] : after->work[1];
	int rc = DHS_OK;

	if (after->work[0] && after->work[1]) {
		if (!t->both || t->last.work[0] != after->work[0] || t->last.work[1] != after->work[1]) {
			dhs_work_unref(context, &t->both);
			rc = pass_with(context, after->work[0], &t->both);
			t->last = *after;
		}
		work = t->both;
	}
	if (rc == DHS_OK)
		*fence = fence_of_work(context, work);
	return rc;
}

/* Pages that nobody has: free ones and, `draining`, those too. */
static int take_idle(dhs_context *context, struct taking *t, int draining)
{
	struct dhs_pool *pool = &context->pool;
	int rc = DHS_OK;

	while (t->taken < t->count && (pool->free.count || (draining && pool->draining.count))) {
		int32_t page = pool->free.count ? pool->free.first : pool->draining.first;
		dhs_fence fence = 0;

		rc = fence_of(context, t, &pool->page[page].after, &fence);
		if (rc)
			break;
		give(context, t, dhs_pool_take_any(context), fence);
	}
	return rc;
}

/* An elastic page: nothing is to be copied. */
static int take_elastic(dhs_context *context, struct taking *t, struct dhs_session_state *s)
{
	struct dhs_after after = dhs_elastic_after(context, s);
	dhs_fence fence = 0;
	int rc = fence_of(context, t, &after, &fence);

	if (rc == DHS_OK)
		give(context, t, dhs_elastic_lift(context, s), fence);
	return rc;
}

/* The fence of a page of history that was just taken: behind its last reader and its copy, of
 * this call or of an earlier one. */
static dhs_fence fence_of_lifted(dhs_context *context, int32_t page, struct dhs_work *copy,
                                 const struct dhs_work *behind)
{
	const struct dhs_after *after = &context->pool.page[page].after;

	if (!after->work[1])
		return fence_of_work(context, after->work[0]);
	if (after->work[1] != copy)
		return fence_of_work(context, behind);
	dhs_work_set(context, &copy->also, after->work[0]);
	return fence_of_work(context, copy);
}

/* Pages of a session's history, no more than are wanted.  What may fail is done before the
 * first of them is taken. */
static int take_history(dhs_context *context, struct taking *t, struct dhs_session_state *s)
{
	struct dhs_work *copy, *behind = NULL;
	uint32_t pages = s->resident;
	int rc = dhs_residency_copy_new(context, &copy);

	if (rc == DHS_OK && (s->copies || s->saving))
		rc = pass_with(context, s->last, &behind);
	if (rc) {
		dhs_work_cancel(context, copy);
		return rc;
	}
	if (pages > t->count - t->taken)
		pages = (uint32_t)(t->count - t->taken);
	dhs_context_log(context, DHS_LOG_INFO,
	                "session %u gives %u of its %u optional pages back to the engine", s->index,
	                pages, s->resident);
	for (; pages; pages--) {
		int32_t page = dhs_residency_lift(context, s, copy);

		give(context, t, page, fence_of_lifted(context, page, copy, behind));
	}
	dhs_work_unref(context, &behind);
	rc = dhs_residency_copy(context, copy);
	return rc ? dhs_context_lose(context, "dhs_take_pages", rc) : DHS_OK;
}

/* What is worth least where it is: an elastic page, or history of a session.  0 if there is
 * nothing. */
static int take_cheapest(dhs_context *context, struct taking *t, struct dhs_worth usual, int *rc)
{
	struct dhs_session_state *history = dhs_residency_cheapest(context, NULL);
	struct dhs_session_state *elastic = dhs_elastic_next(context, 1, NULL);

	if (dhs_elastic_first(context, elastic, history, usual))
		*rc = take_elastic(context, t, elastic);
	else if (history)
		*rc = take_history(context, t, history);
	return elastic || history;
}

/* The cheapest first. */
static int take(dhs_context *context, struct taking *t)
{
	struct dhs_worth usual = dhs_worth_usual(context);
	int rc = take_idle(context, t, 0);

	if (rc == DHS_OK && t->taken < t->count && dhs_refill_call_off(context, NULL))
		rc = take_idle(context, t, 0);
	while (rc == DHS_OK && t->taken < t->count && take_cheapest(context, t, usual, &rc))
		;
	if (rc == DHS_OK)
		rc = take_idle(context, t, 1);
	dhs_work_unref(context, &t->both);
	if (rc == DHS_OK || context->lost || !t->taken)
		return rc;
	dhs_context_log(context, DHS_LOG_WARNING,
	                "dhs_take_pages: %zu of %zu pages came, as memory for a fence ran out",
	                t->taken, t->count);
	return DHS_OK;
}

int dhs_take_pages(dhs_context *context, size_t count, int32_t *pages, dhs_fence *fences,
                   size_t *taken)
{
	DHS_GUARD(guard);
	struct taking t = { .count = count, .pages = pages, .fences = fences };
	int rc = enter_engine_pool("dhs_take_pages", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_options_check_pointer("dhs_take_pages", "taken", taken, sizeof(*taken));
	if (rc == DHS_OK && count)
		rc = dhs_options_check_pointer("dhs_take_pages", "pages", pages, sizeof(*pages));
	if (rc == DHS_OK && count)
		rc = dhs_options_check_pointer("dhs_take_pages", "fences", fences, sizeof(*fences));
	if (rc)
		return rc;
	context->works.call++;
	rc = take(context, &t);
	if (rc == DHS_OK)
		*taken = t.taken;
	dhs_stats_publish(context);
	return rc;
}
