/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The rows of a hot cache come from their host records to the pages that it has now. */
#include "kernels.h"

/* The row that will be found in the place, -1: none. */
static int32_t row_of(const struct dhs_hot *hot, uint32_t place, int32_t limit)
{
	int32_t row = hot->row[place] - 1;
	int unfetched = hot->plan->missed && hot->stamp[place] == hot->plan->plans;

	return row < limit && !unfetched ? row : -1;
}

static void warm_place(const struct dhs_world *world, uint32_t index, uint32_t group, int32_t row,
                       int32_t page, uint32_t offset)
{
	const struct dhs_geometry *g = &world->geometry;
	const int32_t *host_page = world->tables.host_page + (size_t)index * g->max_pages;
	uint32_t p = (uint32_t)row / g->page_rows, at = (uint32_t)row % g->page_rows;
	uint32_t layers = g->group_first[group + 1] - g->group_first[group];

	for (uint32_t i = 0; i < layers; i++)
		dhs_host_copy_row(g, DHS_COPY_TO_DEVICE, g->group_first[group] + i, page, offset,
		                  dhs_record_address(g, group, i, host_page[p], at));
	world->tables.warmed[index].rows++;
	world->tables.warmed[index].bytes += (uint64_t)layers * g->row_bytes;
}

void dhs_host_warm(const struct dhs_world *world, uint32_t index, int32_t limit, uint32_t first,
                   const int32_t *page, uint32_t pages)
{
	const struct dhs_geometry *g = &world->geometry;

	for (uint32_t group = 0; group < g->groups; group++) {
		struct dhs_hot hot = dhs_hot_of(world, index, group);

		for (uint32_t i = 0; i < pages * g->page_rows && first + i < g->hot_rows; i++) {
			int32_t row = row_of(&hot, first + i, limit);

			if (row >= 0)
				warm_place(world, index, group, row, page[i / g->page_rows], i % g->page_rows);
		}
	}
}
