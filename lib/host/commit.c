/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The end of a step on the device: kept rows are mirrored, lengths grow. */
#include "kernels.h"

static void mirror(const struct dhs_world *world, uint32_t index, uint32_t from, uint32_t rows)
{
	const struct dhs_geometry *g = &world->geometry;
	const int32_t *page = world->tables.page + (size_t)index * g->max_pages;
	const int32_t *host_page = world->tables.host_page + (size_t)index * g->max_pages;

	for (uint32_t row = from; row < from + rows; row++) {
		uint32_t p = row / g->page_rows, offset = row % g->page_rows;

		for (uint32_t group = 0; group < g->groups; group++)
			for (uint32_t i = 0; i < g->group_first[group + 1] - g->group_first[group]; i++)
				dhs_host_copy_row(g, DHS_COPY_TO_HOST, g->group_first[group] + i, page[p], offset,
				                  dhs_record_address(g, group, i, host_page[p], offset));
	}
}

/* Never past the new rows, nor past what places are reserved for. */
static int32_t clip(const struct dhs_world_entry *e, int32_t length, int32_t kept)
{
	kept = kept > e->new_rows ? e->new_rows : kept;
	kept = kept > e->bound - length ? e->bound - length : kept;
	return kept < 0 ? 0 : kept;
}

static void commit_entry(const struct dhs_world *world, struct dhs_batch_state *batch,
                         const struct dhs_world_entry *e, int32_t kept,
                         const struct dhs_result *result, uint32_t i)
{
	int32_t *length = &world->tables.length[e->index];

	if (world->geometry.mirror) {
		mirror(world, (uint32_t)e->index, (uint32_t)*length, (uint32_t)kept);
		batch->counts.mirrored_rows += (uint32_t)kept;
	}
	*length += kept;
	result->length[i] = *length;
	result->kept[i] = kept;
}

static void tell(const struct dhs_world *world, struct dhs_batch_state *batch, uint32_t in_flight)
{
	struct dhs_counts *to = world->result[in_flight].counts, *from = &batch->counts;

	to->plans += from->plans;
	to->page_hits += from->page_hits;
	to->hot_hits += from->hot_hits;
	to->misses += from->misses;
	to->repeats += from->repeats;
	to->staged += from->staged;
	to->victims += from->victims;
	to->bad_rows += from->bad_rows;
	to->fetched_bytes += from->fetched_bytes;
	to->mirrored_rows += from->mirrored_rows;
	to->order_errors += from->order_errors;
	to->warmed_rows += from->warmed_rows;
	to->warm_bytes += from->warm_bytes;
	*from = (struct dhs_counts){ 0 };
}

void dhs_host_report(const struct dhs_world *world, struct dhs_batch_state *batch,
                     uint32_t in_flight)
{
	tell(world, batch, in_flight);
	/* Unless a later step of the batch has begun, nothing is left for a replay. */
	if (batch->in_flight == in_flight)
		batch->phase = DHS_BATCH_NONE;
}

void dhs_host_commit(const struct dhs_world *world, struct dhs_batch_state *batch,
                     uint32_t sessions, const int32_t *kept)
{
	const struct dhs_result *result = &world->result[batch->in_flight];

	if (!dhs_batch_open(world, batch))
		return;
	if (sessions < batch->count)
		batch->counts.order_errors++;
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct dhs_world_entry *e = &batch->entry[i];
		int32_t n = i >= sessions ? 0 : kept ? kept[i] : e->new_rows;

		if (e->index >= 0)
			commit_entry(world, batch, e, clip(e, world->tables.length[e->index], n), result, i);
	}
	*result->committed = 1;
	tell(world, batch, batch->in_flight);
	batch->phase = DHS_BATCH_COMMITTED;
}
