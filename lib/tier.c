/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "context.h"

/* The most bytes of a chunk: one registration of much more holds driver-wide
 * locks for long, and some kernels cap a single pin at 2 GB. */
#define CHUNK_BYTES ((uint64_t)1 << 30)

#define WORD_BITS 64

/* Runs of fewer free pages than this are not worth a search. */
#define SHORT_RUN 16

void dhs_tier_shape(const struct dhs_geometry *g, uint64_t rows, struct dhs_tier_shape *shape)
{
	uint64_t pages = (rows + g->page_rows - 1) / g->page_rows;
	uint32_t shift = 0;

	*shape = (struct dhs_tier_shape){ .pages = (uint32_t)pages };
	shape->page_bytes = (uint64_t)g->page_rows * g->row_bytes * g->layers;
	while ((uint64_t)1 << shift < pages && shape->page_bytes << (shift + 1) <= CHUNK_BYTES)
		shift++;
	shape->chunk_shift = shift;
	shape->chunks = (uint32_t)((pages + ((uint64_t)1 << shift) - 1) >> shift);
	shape->bytes = pages * shape->page_bytes;
}

/* Pages of chunk c; only the last one may have fewer than all. */
static uint32_t chunk_pages(const struct dhs_tier *tier, uint32_t shift, uint32_t c)
{
	uint64_t first = (uint64_t)c << shift;
	uint64_t left = tier->pages - first;
	uint64_t all = (uint64_t)1 << shift;

	return (uint32_t)(left < all ? left : all);
}

/* The region of group g begins behind those of the groups before it. */
static void place_groups(dhs_context *context, uint32_t c, uint32_t pages)
{
	const struct dhs_geometry *g = &context->world.geometry;
	unsigned char *at = context->ops->memory_address(context->device, context->tier.chunk[c]);

	for (uint32_t i = 0; i < g->groups; i++) {
		uint32_t layers = context->group_first[i + 1] - context->group_first[i];

		context->tier.records[(size_t)c * g->groups + i] = at;
		at += (uint64_t)pages * g->page_rows * layers * g->row_bytes;
	}
}

static int chunks_new(dhs_context *context, const struct dhs_tier_shape *shape)
{
	struct dhs_tier *tier = &context->tier;

	for (uint32_t c = 0; c < tier->chunks; c++) {
		uint32_t pages = chunk_pages(tier, shape->chunk_shift, c);
		uint64_t bytes = pages * shape->page_bytes;

		tier->chunk[c] = dhs_blocks_new(context, &context->blocks, DHS_MEMORY_HOST, bytes, 0);
		if (!tier->chunk[c])
			return dhs_fail(DHS_ERR_HOST_MEMORY,
			                "host_rows: no memory for chunk %u of %u of the host tier (%llu bytes)",
			                c, tier->chunks, (unsigned long long)bytes);
		place_groups(context, c, pages);
	}
	return DHS_OK;
}

int dhs_tier_init(dhs_context *context, const struct dhs_tier_shape *shape)
{
	struct dhs_tier *tier = &context->tier;
	struct dhs_geometry *g = &context->world.geometry;
	size_t words = (shape->pages + WORD_BITS - 1) / WORD_BITS;
	int rc;

	tier->pages = shape->pages;
	tier->chunks = shape->chunks;
	g->chunk_shift = shape->chunk_shift;
	tier->free = dhs_blocks_book(context, words * sizeof(*tier->free));
	tier->after = dhs_blocks_book(context, shape->pages * sizeof(*tier->after));
	tier->next = dhs_blocks_book(context, shape->pages * sizeof(*tier->next));
	tier->chunk = dhs_blocks_book(context, shape->chunks * sizeof(*tier->chunk));
	tier->records =
		dhs_blocks_book(context, (size_t)shape->chunks * g->groups * sizeof(*tier->records));
	if (!tier->free || !tier->after || !tier->next || !tier->chunk || !tier->records)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the books of %u host pages",
		                shape->pages);
	for (uint32_t p = 0; p < shape->pages; p++)
		tier->free[p / WORD_BITS] |= (uint64_t)1 << p % WORD_BITS;
	tier->free_count = shape->pages;
	rc = chunks_new(context, shape);
	return rc ? rc
	          : context->ops->memory_write(context->device, g->records, tier->records,
	                                       (size_t)shape->chunks * g->groups *
	                                           sizeof(*tier->records));
}

static int is_free(const struct dhs_tier *tier, uint32_t page)
{
	return tier->free[page / WORD_BITS] >> page % WORD_BITS & 1;
}

/* First page at or past `page` whose freedom is `want`, or pages.  Looks at a
 * word at a time. */
static uint32_t next_page(const struct dhs_tier *tier, uint32_t page, int want)
{
	while (page < tier->pages) {
		uint64_t word = tier->free[page / WORD_BITS];

		word = (want ? word : ~word) >> page % WORD_BITS;
		if (word) {
			page += (uint32_t)__builtin_ctzll(word);
			break;
		}
		page = (page / WORD_BITS + 1) * WORD_BITS;
	}
	return page < tier->pages ? page : tier->pages;
}

/* Where a new extent begins: in the longest run of free pages, in its middle if
 * the page before the run is somebody's, who may want to go on there. */
static uint32_t extent_start(const struct dhs_tier *tier, uint32_t *length)
{
	uint32_t best = 0, best_length = 0, from, to;

	for (from = next_page(tier, 0, 1); from < tier->pages; from = next_page(tier, to, 1)) {
		to = next_page(tier, from, 0);
		if (to - from > best_length) {
			best = from;
			best_length = to - from;
		}
	}
	*length = best_length;
	return best ? best + best_length / 2 : 0;
}

/* Where a session goes on whose next page is somebody's.  Where only short runs are left
 * the next free page will do, and looking for a longer one each time would cost more
 * than it gains. */
static uint32_t next_extent(struct dhs_tier *tier, int32_t previous)
{
	uint32_t page = tier->pages, length;

	if (!tier->scattered) {
		page = extent_start(tier, &length);
		tier->scattered = length < SHORT_RUN;
	}
	if (tier->scattered)
		page = next_page(tier, (uint32_t)(previous + 1), 1);
	return page < tier->pages ? page : next_page(tier, 0, 1);
}

int32_t dhs_tier_take(dhs_context *context, int32_t previous)
{
	struct dhs_tier *tier = &context->tier;
	uint32_t page = (uint32_t)(previous + 1);

	if (previous < 0 || page >= tier->pages || !is_free(tier, page))
		page = next_extent(tier, previous);
	tier->free[page / WORD_BITS] &= ~((uint64_t)1 << page % WORD_BITS);
	tier->free_count--;
	return (int32_t)page;
}

static void set_free(struct dhs_tier *tier, uint32_t page)
{
	tier->free[page / WORD_BITS] |= (uint64_t)1 << page % WORD_BITS;
	tier->free_count++;
	tier->scattered = 0;
}

static void set_draining(struct dhs_tier *tier, uint32_t page)
{
	if (tier->draining_count++)
		tier->next[tier->draining_last] = page;
	else
		tier->draining_first = page;
	tier->draining_last = page;
}

void dhs_tier_release(dhs_context *context, int32_t page)
{
	struct dhs_tier *tier = &context->tier;

	if (dhs_after_open(&tier->after[page], NULL))
		set_draining(tier, (uint32_t)page);
	else
		set_free(tier, (uint32_t)page);
}

void dhs_tier_recorded(dhs_context *context)
{
	struct dhs_tier *tier = &context->tier;
	uint32_t count = tier->draining_count, page = tier->draining_first, next;

	tier->draining_count = 0;
	for (; count; count--, page = next) {
		next = tier->next[page];
		if (dhs_after_open(&tier->after[page], NULL))
			set_draining(tier, page);
		else
			set_free(tier, page);
	}
}

uint32_t dhs_tier_free_after(const dhs_context *context, const struct dhs_work *work)
{
	const struct dhs_tier *tier = &context->tier;
	uint32_t n = tier->free_count, page = tier->draining_first;

	for (uint32_t i = 0; i < tier->draining_count; i++, page = tier->next[page])
		n += !dhs_after_open(&tier->after[page], work);
	return n;
}
