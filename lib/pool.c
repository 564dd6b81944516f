/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "context.h"

static void append(struct dhs_pool *pool, struct dhs_page_list *list, int32_t page)
{
	pool->page[page].next = -1;
	if (list->count++)
		pool->page[list->last].next = page;
	else
		list->first = page;
	list->last = page;
}

static int32_t take_first(struct dhs_pool *pool, struct dhs_page_list *list)
{
	int32_t page = list->first;

	if (!list->count)
		return -1;
	list->first = pool->page[page].next;
	list->count--;
	pool->page[page].state = DHS_PAGE_OWNED;
	return page;
}

int dhs_pool_init(dhs_context *context, uint32_t pages)
{
	struct dhs_pool *pool = &context->pool;

	pool->page = dhs_blocks_book(context, pages * sizeof(*pool->page));
	if (!pool->page)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the books of %u pages", pages);
	pool->pages = pages;
	pool->engine = pages;
	return DHS_OK;
}

void dhs_pool_lend(dhs_context *context, int32_t page)
{
	context->pool.engine--;
	context->pool.page[page].state = DHS_PAGE_OWNED;
	dhs_pool_release(context, page);
}

void dhs_pool_return(dhs_context *context, int32_t page)
{
	context->pool.engine++;
	context->pool.page[page].state = DHS_PAGE_ENGINE;
}

int32_t dhs_pool_take(dhs_context *context)
{
	return take_first(&context->pool, &context->pool.free);
}

int32_t dhs_pool_take_any(dhs_context *context)
{
	int32_t page = dhs_pool_take(context);

	return page >= 0 ? page : take_first(&context->pool, &context->pool.draining);
}

static void settle(struct dhs_pool *pool, int32_t page)
{
	int open = dhs_after_open(&pool->page[page].after, NULL);

	pool->page[page].state = open ? DHS_PAGE_DRAINING : DHS_PAGE_FREE;
	append(pool, open ? &pool->draining : &pool->free, page);
}

void dhs_pool_release(dhs_context *context, int32_t page)
{
	settle(&context->pool, page);
}

void dhs_pool_recorded(dhs_context *context)
{
	struct dhs_pool *pool = &context->pool;
	struct dhs_page_list old = pool->draining;
	int32_t page, next;

	pool->draining = (struct dhs_page_list){ 0 };
	for (page = old.first; old.count; page = next, old.count--) {
		next = pool->page[page].next;
		settle(pool, page);
	}
}

uint32_t dhs_pool_free_after(const dhs_context *context, const struct dhs_work *work)
{
	const struct dhs_pool *pool = &context->pool;
	uint32_t n = pool->free.count;
	int32_t page = pool->draining.first;

	for (uint32_t i = 0; i < pool->draining.count; i++, page = pool->page[page].next)
		n += !dhs_after_open(&pool->page[page].after, work);
	return n;
}
