/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Where the new rows of a step are written. */
#include "kernels.h"

static int32_t new_row_slot(const struct dhs_world *world, const struct dhs_world_entry *e,
                            uint32_t i)
{
	uint32_t page_rows = world->geometry.page_rows;
	uint32_t row = (uint32_t)world->tables.length[e->index] + i;
	size_t first = (size_t)e->index * world->geometry.max_pages;

	return world->tables.page[first + row / page_rows] * (int32_t)page_rows +
	       (int32_t)(row % page_rows);
}

void dhs_host_slots(const struct dhs_world *world, struct dhs_batch_state *batch, uint32_t sessions,
                    uint32_t rows, int32_t *out)
{
	int open = dhs_batch_open(world, batch);

	if (open && (sessions < batch->count || rows < batch->new_rows))
		batch->counts.order_errors++;
	for (uint32_t e = 0; e < sessions; e++)
		for (uint32_t i = 0; i < rows; i++, out++) {
			const struct dhs_world_entry *entry = &batch->entry[e];
			int given = open && e < batch->count && entry->index >= 0 &&
			            i < (uint32_t)entry->new_rows &&
			            world->tables.length[entry->index] + (int32_t)i < entry->bound;

			*out = given ? new_row_slot(world, entry, i) : batch->write_pad;
		}
}
