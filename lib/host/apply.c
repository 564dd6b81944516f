/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The start of a step: the device's tables become those that the host has. */
#include "kernels.h"

#include <string.h>

static void drop_hot_rows(const struct dhs_world *world, uint32_t index, int32_t from)
{
	const struct dhs_geometry *g = &world->geometry;

	for (uint32_t group = 0; group < g->groups; group++) {
		struct dhs_hot hot = dhs_hot_of(world, index, group);

		for (uint32_t place = 0; place < hot.places; place++)
			if (hot.row[place] > from)
				hot.row[place] = 0;
	}
}

/* Places whose rows are not kept hold nothing. */
static void empty_places(const struct dhs_world *world, uint32_t index, uint32_t from)
{
	for (uint32_t group = 0; group < world->geometry.groups; group++) {
		struct dhs_hot hot = dhs_hot_of(world, index, group);

		for (uint32_t place = from; place < hot.places; place++)
			hot.row[place] = 0;
	}
}

static void place_hot_cache(const struct dhs_world *world, const struct dhs_patch *p,
                            const int32_t *pages)
{
	const struct dhs_geometry *g = &world->geometry;
	uint32_t index = (uint32_t)p->index, places = (uint32_t)p->hot_places;
	int32_t *slot = world->tables.hot_slot + (size_t)index * g->most_hot_rows;

	for (uint32_t i = 0; i < places; i++)
		slot[i] = dhs_hot_slot(g, pages, i);
	world->tables.hot_places[index] = p->hot_places;
	empty_places(world, index, (uint32_t)p->hot_kept);
}

/* The step tells what came back into the hot cache before it. */
static void count_warmed(struct dhs_counts *counts, struct dhs_warmed *warmed)
{
	counts->warmed_rows += warmed->rows;
	counts->warm_bytes += warmed->bytes;
	*warmed = (struct dhs_warmed){ 0 };
}

static void apply_patch(const struct dhs_world *world, struct dhs_counts *counts,
                        const struct dhs_patch *p, const int32_t *data)
{
	const struct dhs_tables *t = &world->tables;
	size_t first = (size_t)p->index * world->geometry.max_pages + (size_t)p->first_page;
	size_t pages = (size_t)p->pages;

	if (p->drop_from >= 0)
		drop_hot_rows(world, (uint32_t)p->index, p->drop_from);
	if (p->length >= 0)
		t->length[p->index] = p->length;
	memcpy(t->page + first, data, pages * sizeof(*data));
	memcpy(t->host_page + first, data + pages, pages * sizeof(*data));
	if (p->hot_pages) {
		place_hot_cache(world, p, data + 2 * pages);
		count_warmed(counts, &t->warmed[p->index]);
	}
}

void dhs_host_apply(const struct dhs_world *world, struct dhs_batch_state *batch,
                    const struct dhs_upload *upload)
{
	for (uint32_t i = 0; i < upload->patches; i++)
		apply_patch(world, &batch->counts, &upload->patch[i], upload->data + upload->patch[i].data);
	memcpy(batch->entry, upload->entry, upload->count * sizeof(*batch->entry));
	for (uint32_t i = 0; i < batch->max_sessions; i++)
		batch->session_index[i] = i < upload->count ? upload->entry[i].index : -1;
	for (uint32_t i = 0; i < 2 * batch->buffers; i++)
		batch->turn[i].group = -1;
	batch->count = upload->count;
	batch->queries = upload->queries;
	batch->new_rows = upload->new_rows;
	batch->in_flight = upload->in_flight;
	batch->measured = upload->measured;
	batch->phase = DHS_BATCH_BEGUN;
}
