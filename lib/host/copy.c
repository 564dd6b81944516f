/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows between the pool and the host tier. */
#include "kernels.h"

#include <string.h>

void dhs_host_copy_row(const struct dhs_geometry *g, enum dhs_copy_way way, uint32_t layer,
                       int32_t page, uint32_t offset, unsigned char *record)
{
	for (uint32_t i = 0; i < g->segments; i++) {
		const struct dhs_world_segment *s = &g->segment[i];
		unsigned char *row = dhs_row_address(g, layer, i, page, offset);

		if (way == DHS_COPY_TO_HOST)
			memcpy(record + s->record_offset, row, s->bytes);
		else
			memcpy(row, record + s->record_offset, s->bytes);
	}
}

void dhs_host_copy(const struct dhs_world *world, enum dhs_copy_way way,
                   const struct dhs_copy *list, uint32_t count)
{
	const struct dhs_geometry *g = &world->geometry;

	for (uint32_t group = 0; group < g->groups; group++)
		for (uint32_t i = 0; i < count; i++)
			for (uint32_t r = list[i].first; r < list[i].first + list[i].rows; r++)
				for (uint32_t p = 0; p < g->group_first[group + 1] - g->group_first[group]; p++)
					dhs_host_copy_row(g, way, g->group_first[group] + p, list[i].page, r,
					                  dhs_record_address(g, group, p, list[i].host_page, r));
}
