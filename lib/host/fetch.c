/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The misses of a plan come from their host records. */
#include "kernels.h"

static void fetch_row(const struct dhs_geometry *g, const int32_t *host_page, uint32_t group,
                      const struct dhs_miss *miss, uint32_t first, uint32_t layers)
{
	uint32_t row = (uint32_t)miss->row, slot = (uint32_t)miss->slot;

	for (uint32_t p = first; p < first + layers; p++)
		dhs_host_copy_row(g, DHS_COPY_TO_DEVICE, group, p, (int32_t)(slot / g->page_rows),
		                  slot % g->page_rows, host_page[row / g->page_rows], row % g->page_rows);
}

/* Marks layers as fetched; 1 once all of the group are, in whatever order. */
static int all_fetched(const struct dhs_world *world, const struct dhs_batch_state *batch,
                       uint32_t buffer, uint32_t first, uint32_t layers, uint32_t all)
{
	uint32_t *fetched = batch->fetched + (size_t)buffer * world->geometry.layer_words, n = 0;

	for (uint32_t p = first; p < first + layers; p++)
		fetched[p / 32] |= UINT32_C(1) << p % 32;
	for (uint32_t p = 0; p < all; p++)
		n += fetched[p / 32] >> p % 32 & 1;
	return n == all;
}

void dhs_host_fetch(const struct dhs_world *world, struct dhs_batch_state *batch, uint32_t group,
                    uint32_t first, uint32_t layers)
{
	const struct dhs_geometry *g = &world->geometry;
	uint32_t all = g->group_first[group + 1] - g->group_first[group], buffer;
	int complete;

	if (!dhs_batch_open(world, batch))
		return;
	buffer = batch->group_buffer[group];
	if (!buffer || batch->buffer_group[buffer - 1] != (int32_t)group) {
		batch->counts.order_errors++;
		return;
	}
	buffer--;
	complete = all_fetched(world, batch, buffer, first, layers, all);
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct dhs_world_entry *e = &batch->entry[i];
		uint32_t n = batch->miss_count[(size_t)buffer * batch->max_sessions + i];
		const struct dhs_miss *miss = batch->miss + (size_t)buffer * batch->miss_rows;
		const int32_t *host_page;

		if (!n)
			continue;
		miss += e->miss_first;
		host_page = world->tables.host_page + (size_t)e->index * g->max_pages;
		for (uint32_t m = 0; m < n; m++)
			fetch_row(g, host_page, group, &miss[m], first, layers);
		batch->counts.fetched_bytes += (uint64_t)n * layers * g->row_bytes;
		if (complete)
			dhs_hot_of(world, (uint32_t)e->index, group).plan->missed = 0;
	}
}
