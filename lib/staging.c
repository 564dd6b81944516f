/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "staging.h"

#include "residency.h"

#include <stdio.h>

/* Each batch rounds its part up to windows, and to a page: so many may do so. */
#define ROUNDED_BATCHES 64
/* Address space of all layers together: what no machine has as memory, and half of what
 * an address can say. */
#define MOST_RANGE ((uint64_t)1 << 46)
#define MOST_BYTES ((uint64_t)1 << 60)

/* Whole windows for so many pages.  Products past 64 bits are more than there can be. */
static uint64_t windows_for(uint64_t pages, uint64_t page_stride)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(pages, page_stride, &bytes))
		bytes = UINT64_MAX - DHS_WINDOW_BYTES;
	return (bytes + DHS_WINDOW_BYTES - 1) / DHS_WINDOW_BYTES;
}

uint64_t dhs_staging_own(uint32_t pages, uint64_t page_stride)
{
	return windows_for(pages, page_stride) * DHS_WINDOW_BYTES;
}

/* A window begins somewhere in a page: one more page than asked for has its rest. */
static uint64_t batch_windows(const struct dhs_staging_shape *shape, uint64_t pages)
{
	return pages ? windows_for(pages + 1, shape->page_stride) : 0;
}

/* Windows that leave slots 31 bits, and addresses theirs. */
static uint64_t most_windows(const struct dhs_geometry *g, const struct dhs_staging_shape *shape)
{
	uint64_t pages = (uint64_t)INT32_MAX / g->page_rows, own = shape->own / DHS_WINDOW_BYTES;
	uint64_t slots = windows_for(pages, shape->page_stride) - 1;
	uint64_t range = MOST_RANGE / g->layers / DHS_WINDOW_BYTES;
	uint64_t most = slots < range ? slots : range;

	return most > own ? most - own : 0;
}

void dhs_staging_shape(const struct dhs_geometry *g, uint64_t rows, struct dhs_staging_shape *shape)
{
	uint64_t windows, most;

	*shape = (struct dhs_staging_shape){ .mapped = 1 };
	shape->page_stride = g->segment[0].page_stride;
	shape->own = dhs_staging_own(g->pages, shape->page_stride);
	windows = batch_windows(shape, rows / g->page_rows + 1) +
	          ROUNDED_BATCHES * (batch_windows(shape, 1) + 1);
	most = most_windows(g, shape);
	shape->windows = (uint32_t)(windows < most ? windows : most);
}

uint64_t dhs_staging_span(const struct dhs_staging_shape *shape)
{
	return shape->own + shape->windows * DHS_WINDOW_BYTES;
}

int dhs_staging_bytes(const struct dhs_geometry *g, const struct dhs_staging_shape *shape,
                      uint32_t pages, uint64_t *bytes)
{
	uint64_t windows = shape->mapped ? batch_windows(shape, pages) : 0;

	return !__builtin_mul_overflow(windows, DHS_WINDOW_BYTES * g->most_layers, bytes) &&
	       *bytes <= MOST_BYTES;
}

/* What could not be had, and the backend's words for why. */
static int explain(int rc, const char *what, uint32_t layer)
{
	char cause[160], text[160];

	snprintf(cause, sizeof(cause), "%s", dhs_last_error());
	snprintf(text, sizeof(text), what, layer);
	return dhs_fail(rc, "%s: %s", text, cause);
}

/* ---- the pool's memory ---- */

static unsigned char *layer_range(const dhs_context *context, uint32_t layer)
{
	return context->staging.range + layer * dhs_staging_span(&context->staging.shape);
}

static void unmap_layers(dhs_context *context, uint32_t layers)
{
	for (uint32_t layer = 0; layer < layers; layer++) {
		void *at = layer_range(context, layer);

		context->ops->range_unmap(context->device, &at, 1, context->staging.shape.own);
	}
}

static int map_layers(dhs_context *context, uint64_t zeroed)
{
	const struct dhs_staging *s = &context->staging;
	uint32_t layers = context->world.geometry.layers;

	for (uint32_t layer = 0; layer < layers; layer++) {
		void *at = layer_range(context, layer);
		int rc = context->ops->range_map(context->device, &at, 1, s->shape.own, zeroed);

		if (rc) {
			unmap_layers(context, layer);
			return explain(rc, "device_pages: no memory for layer %u of the pool", layer);
		}
	}
	return DHS_OK;
}

int dhs_staging_open(dhs_context *context, const struct dhs_staging_shape *shape,
                     uint32_t zeroed_pages)
{
	struct dhs_staging *s = &context->staging;
	uint32_t layers = context->world.geometry.layers;
	void *range;
	int rc;

	s->shape = *shape;
	s->taken = dhs_blocks_book(context, shape->windows * sizeof(*s->taken));
	s->at = dhs_blocks_book(context, layers * sizeof(*s->at));
	if (!s->taken || !s->at)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the books of %u windows",
		                shape->windows);
	rc = context->ops->range_new(context->device, layers * dhs_staging_span(shape), &range);
	if (rc)
		return rc;
	s->range = range;
	rc = map_layers(context, zeroed_pages * shape->page_stride);
	if (rc) {
		context->ops->range_free(context->device, range, layers * dhs_staging_span(shape));
		s->range = NULL;
	}
	return rc;
}

void dhs_staging_close(dhs_context *context)
{
	struct dhs_staging *s = &context->staging;
	uint32_t layers = context->world.geometry.layers;

	if (!s->range)
		return;
	unmap_layers(context, layers);
	context->ops->range_free(context->device, s->range, layers * dhs_staging_span(&s->shape));
	s->range = NULL;
}

/* ---- windows of a batch ---- */

/* The first of `count` free windows that follow each other, or as many as there are. */
static uint32_t find_windows(const struct dhs_staging *s, uint32_t count)
{
	uint32_t run = 0;

	for (uint32_t w = 0; w < s->shape.windows; w++) {
		run = s->taken[w] ? 0 : run + 1;
		if (run == count)
			return w + 1 - count;
	}
	return s->shape.windows;
}

/* The addresses at which the layers at one position of their groups see the windows that
 * begin at `first`; how many. */
static uint32_t window_addresses(dhs_context *context, uint32_t position, uint32_t first)
{
	const struct dhs_staging *s = &context->staging;
	uint32_t n = 0;

	for (uint32_t g = 0; g < context->world.geometry.groups; g++) {
		uint32_t layer = context->group_first[g] + position;

		if (layer < context->group_first[g + 1])
			s->at[n++] = layer_range(context, layer) + s->shape.own + first * DHS_WINDOW_BYTES;
	}
	return n;
}

static void unmap_windows(dhs_context *context, uint32_t positions, uint32_t first, uint32_t count)
{
	for (uint32_t p = 0; p < positions; p++) {
		uint32_t n = window_addresses(context, p, first);

		context->ops->range_unmap(context->device, context->staging.at, n,
		                          count * DHS_WINDOW_BYTES);
	}
}

static int map_windows(dhs_context *context, uint32_t first, uint32_t count)
{
	for (uint32_t p = 0; p < context->world.geometry.most_layers; p++) {
		uint32_t n = window_addresses(context, p, first);
		int rc = context->ops->range_map(context->device, context->staging.at, n,
		                                 count * DHS_WINDOW_BYTES, 0);

		if (rc) {
			unmap_windows(context, p, first, count);
			return explain(rc, "dhs_batch_create: no memory for staging of layer %u of groups", p);
		}
	}
	return DHS_OK;
}

static int take_windows(dhs_context *context, dhs_batch *batch, uint32_t pages)
{
	struct dhs_staging *s = &context->staging;
	uint32_t count = (uint32_t)batch_windows(&s->shape, pages), first = find_windows(s, count);
	uint64_t start = s->shape.own + first * DHS_WINDOW_BYTES;
	int rc = map_windows(context, first, count);

	if (rc)
		return rc;
	for (uint32_t w = first; w < first + count; w++)
		s->taken[w] = 1;
	batch->first_window = first;
	batch->windows = count;
	for (uint32_t i = 0; i < pages; i++)
		batch->staging_page[i] =
			(int32_t)((start + s->shape.page_stride - 1) / s->shape.page_stride + i);
	return DHS_OK;
}

static void give_windows(dhs_context *context, dhs_batch *batch)
{
	unmap_windows(context, context->world.geometry.most_layers, batch->first_window,
	              batch->windows);
	for (uint32_t w = 0; w < batch->windows; w++)
		context->staging.taken[batch->first_window + w] = 0;
	batch->windows = 0;
}

/* ---- pages of the pool ---- */

static int take_pool_pages(dhs_context *context, dhs_batch *batch, uint32_t pages)
{
	struct dhs_work *copy;
	int rc = dhs_residency_copy_new(context, &copy);

	if (rc)
		return rc;
	dhs_residency_make_room(context, pages, 1, copy);
	rc = dhs_residency_copy(context, copy);
	if (rc)
		return dhs_context_lose(context, "dhs_batch_create", rc);
	for (uint32_t i = 0; i < pages; i++)
		batch->staging_page[i] = dhs_pool_take_any(context);
	batch->pool_pages = pages;
	return DHS_OK;
}

static void give_pool_pages(dhs_context *context, dhs_batch *batch)
{
	for (uint32_t i = 0; i < batch->pool_pages; i++)
		dhs_pool_release(context, batch->staging_page[i]);
	batch->pool_pages = 0;
}

/* ---- either ---- */

int dhs_staging_check(dhs_context *context, uint32_t pages)
{
	const struct dhs_staging *s = &context->staging;
	uint64_t windows = batch_windows(&s->shape, pages), room;

	if (s->shape.mapped) {
		if (windows <= s->shape.windows &&
		    (!windows || find_windows(s, (uint32_t)windows) < s->shape.windows))
			return DHS_OK;
		return dhs_fail(DHS_ERR_DEVICE_MEMORY,
		                "dhs_batch_create: staging needs %llu windows of 2 MiB behind the pool; of "
		                "%u so many in a row are not free (the context's max_staging_rows)",
		                (unsigned long long)windows, s->shape.windows);
	}
	room = dhs_residency_room(context, pages, 1);
	if (pages <= room)
		return DHS_OK;
	return dhs_fail(DHS_ERR_DEVICE_MEMORY,
	                "dhs_batch_create: staging needs %u pages; %llu are free or optional", pages,
	                (unsigned long long)room);
}

int dhs_staging_take(dhs_context *context, dhs_batch *batch, uint32_t pages)
{
	int rc = DHS_OK;

	if (pages)
		rc = context->staging.shape.mapped ? take_windows(context, batch, pages)
		                                   : take_pool_pages(context, batch, pages);
	if (rc)
		return rc;
	rc = context->ops->memory_write(context->device, batch->copy.staging_page, batch->staging_page,
	                                pages * sizeof(*batch->staging_page));
	return rc ? dhs_context_lose(context, "dhs_batch_create", rc) : DHS_OK;
}

void dhs_staging_give(dhs_context *context, dhs_batch *batch)
{
	if (batch->windows)
		give_windows(context, batch);
	give_pool_pages(context, batch);
}
