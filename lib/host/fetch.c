/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The misses of a plan come from their host records. */
#include "kernels.h"

/* The group's plan, if its misses are still there: the last one with this group. */
static const struct dhs_turn *turn_of(const struct dhs_batch_state *batch, uint32_t group)
{
	uint32_t turns = 2 * batch->buffers;

	for (uint32_t i = 1; i <= batch->buffers; i++) {
		const struct dhs_turn *turn = &batch->turn[(batch->next_turn + turns - i) % turns];

		if (turn->group == (int32_t)group)
			return turn;
	}
	return NULL;
}

static void fetch_row(const struct dhs_geometry *g, const struct dhs_miss *miss, uint32_t group,
                      uint32_t first, uint32_t layers)
{
	for (uint32_t p = first; p < first + layers; p++)
		dhs_host_copy_row(g, DHS_COPY_TO_DEVICE, g->group_first[group] + p, miss->page,
		                  miss->offset, miss->record + (size_t)p * g->row_bytes);
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
	const struct dhs_turn *turn;
	const struct dhs_miss *miss;
	const uint32_t *n;

	if (!dhs_batch_open(world, batch))
		return;
	turn = turn_of(batch, group);
	if (!turn) {
		batch->counts.order_errors++;
		return;
	}
	buffer = (uint32_t)(turn - batch->turn) % batch->buffers;
	miss = batch->miss + (size_t)buffer * batch->miss_rows;
	n = batch->miss_count + (size_t)buffer * batch->max_sessions;
	for (uint32_t m = 0; m < turn->misses; m++)
		fetch_row(g, &miss[m], group, first, layers);
	batch->counts.fetched_bytes += (uint64_t)turn->misses * layers * g->row_bytes;
	if (!all_fetched(world, batch, buffer, first, layers, all))
		return;
	for (uint32_t i = 0; i < batch->count; i++)
		if (n[i])
			dhs_hot_of(world, (uint32_t)batch->entry[i].index, group).plan->missed = 0;
}
