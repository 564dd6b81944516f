/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Pages that an engine lends out of a pool of its own, and takes back. */
#include "context.h"

static int check_engine_pool(const char *call, const dhs_context *context)
{
	int rc = dhs_context_check(call, context);

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
	struct dhs_work *work;
	int rc = check_engine_pool("dhs_lend_pages", context);

	if (rc == DHS_OK && count)
		rc = dhs_options_check_pointer("dhs_lend_pages", "pages", pages, sizeof(*pages));
	if (rc == DHS_OK)
		rc = check_lent(context, pages, count);
	if (rc == DHS_OK)
		rc = dhs_stream_ready("dhs_lend_pages", context, stream);
	if (rc || !count)
		return rc;
	rc = dhs_work_new(context, stream, &work);
	if (rc)
		return rc;
	rc = mark_lent(context, pages, count);
	if (rc) {
		dhs_work_cancel(context, work);
		return rc;
	}
	rc = dhs_work_record(context, work);
	for (size_t i = 0; rc == DHS_OK && i < count; i++) {
		dhs_after_set(context, &context->pool.page[pages[i]].after, work, NULL);
		dhs_pool_lend(context, pages[i]);
	}
	dhs_work_unref(context, &work);
	dhs_stats_publish(context);
	return rc ? dhs_context_lose(context, "dhs_lend_pages", rc) : DHS_OK;
}

/* One fence for the two works of a page: a work behind both, on the library's
 * stream.  Pages that were freed together share it. */
static int join(dhs_context *context, const struct dhs_after *after, struct dhs_work **joined)
{
	struct dhs_work *work;
	int rc = dhs_work_new(context, context->copy_stream, &work);

	if (rc)
		return rc;
	/* The second work is one of that stream, which is in order. */
	rc = dhs_work_wait(context, after->work[0], context->copy_stream);
	if (rc == DHS_OK)
		rc = dhs_work_record(context, work);
	*joined = work;
	return rc ? dhs_context_lose(context, "dhs_take_pages", rc) : DHS_OK;
}

static int fence_of(dhs_context *context, const struct dhs_after *after, struct dhs_after *last,
                    struct dhs_work **joined, dhs_fence *fence)
{
	struct dhs_work *work = after->work[0] ? after->work[0] : after->work[1];
	int rc = DHS_OK;

	if (after->work[0] && after->work[1]) {
		if (!*joined || last->work[0] != after->work[0] || last->work[1] != after->work[1]) {
			dhs_work_unref(context, joined);
			rc = join(context, after, joined);
			*last = *after;
		}
		work = *joined;
	}
	if (rc == DHS_OK)
		*fence = work && work->state != DHS_WORK_PASSED
		             ? dhs_handle(context, DHS_KIND_FENCE, work->number)
		             : 0;
	return rc;
}

static int take(dhs_context *context, size_t count, int32_t *pages, dhs_fence *fences,
                size_t *taken)
{
	struct dhs_pool *pool = &context->pool;
	struct dhs_work *joined = NULL;
	struct dhs_after last = { { NULL, NULL } };
	size_t n = 0;
	int rc = DHS_OK;

	while (n < count && (pool->free.count || dhs_refill_call_off(context, NULL))) {
		int32_t page = pool->free.first;

		rc = fence_of(context, &pool->page[page].after, &last, &joined, &fences[n]);
		if (rc)
			break;
		dhs_pool_take(context);
		dhs_after_set(context, &pool->page[page].after, NULL, NULL);
		pool->page[page].state = DHS_PAGE_ENGINE;
		pool->engine++;
		pages[n++] = page;
	}
	dhs_work_unref(context, &joined);
	/* Memory for a fence ran out: what came so far is the engine's all the same. */
	if (rc && !n)
		return rc;
	*taken = n;
	return DHS_OK;
}

int dhs_take_pages(dhs_context *context, size_t count, int32_t *pages, dhs_fence *fences,
                   size_t *taken)
{
	int rc = check_engine_pool("dhs_take_pages", context);

	if (rc == DHS_OK)
		rc = dhs_options_check_pointer("dhs_take_pages", "taken", taken, sizeof(*taken));
	if (rc == DHS_OK && count)
		rc = dhs_options_check_pointer("dhs_take_pages", "pages", pages, sizeof(*pages));
	if (rc == DHS_OK && count)
		rc = dhs_options_check_pointer("dhs_take_pages", "fences", fences, sizeof(*fences));
	if (rc)
		return rc;
	context->works.call++;
	rc = take(context, count, pages, fences, taken);
	dhs_stats_publish(context);
	return rc;
}
