/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The host backend's kernels: what a step does on the device, in plain C.  They
 * run in stream order, one at a time; docs/resolve.md is their contract.
 */
#ifndef DHS_LIB_HOST_KERNELS_H
#define DHS_LIB_HOST_KERNELS_H

#include "../world.h"

#include <stddef.h>

/* Memory of the planner, between the passes of one entry. */
struct dhs_scratch {
	uint64_t *missing; /* [ceil(max_rows / 64)] bit of a missing row; all 0 between plans */
	uint32_t *before;  /* [the same] misses in the words below */
	uint64_t *age;     /* [most_hot_rows] of the places of the hot cache that may give way, */
	uint32_t *place;   /* [most_hot_rows] and which those are */
	uint16_t *map;     /* [max_rows] place + 1 of a row, 0 none; all 0 between plans */
};

void dhs_host_apply(const struct dhs_world *world, struct dhs_batch_state *batch,
                    const struct dhs_upload *upload);
void dhs_host_slots(const struct dhs_world *world, struct dhs_batch_state *batch, uint32_t sessions,
                    uint32_t rows, int32_t *out);
void dhs_host_plan(const struct dhs_world *world, struct dhs_batch_state *batch,
                   struct dhs_scratch *scratch, uint32_t group, const dhs_selection *selection);
void dhs_host_fetch(const struct dhs_world *world, struct dhs_batch_state *batch, uint32_t group,
                    uint32_t first, uint32_t layers);
void dhs_host_commit(const struct dhs_world *world, struct dhs_batch_state *batch,
                     uint32_t sessions, const int32_t *kept);
void dhs_host_report(const struct dhs_world *world, struct dhs_batch_state *batch,
                     uint32_t in_flight);
void dhs_host_copy(const struct dhs_world *world, enum dhs_copy_way way,
                   const struct dhs_copy *list, uint32_t count);
/* Those places whose pages are `page`, the ones from place `first` on. */
void dhs_host_warm(const struct dhs_world *world, uint32_t index, int32_t limit, uint32_t first,
                   const int32_t *page, uint32_t pages);

/* ---- the hot cache of one session and group ---- */

struct dhs_hot {
	int32_t *row;
	uint32_t *stamp;
	const int32_t *slot;
	uint32_t places;
	struct dhs_plan_state *plan;
};

static inline struct dhs_hot dhs_hot_of(const struct dhs_world *world, uint32_t index,
                                        uint32_t group)
{
	const struct dhs_geometry *g = &world->geometry;
	const struct dhs_tables *t = &world->tables;
	size_t at = (size_t)index * g->groups + group;

	return (struct dhs_hot){ .row = t->hot_row + at * g->most_hot_rows,
		                     .stamp = t->hot_stamp + at * g->most_hot_rows,
		                     .slot = t->hot_slot + (size_t)index * g->most_hot_rows,
		                     .places = (uint32_t)t->hot_places[index],
		                     .plan = t->plan + at };
}

/* victim.c: the places that `count` misses take, by index, to scratch->place.
 * Returns how many there are, at most `count`. */
uint32_t dhs_host_victims(const struct dhs_hot *hot, uint32_t count, struct dhs_scratch *scratch);

/* ---- addresses ---- */

static inline unsigned char *dhs_row_address(const struct dhs_geometry *g, uint32_t layer,
                                             uint32_t segment, int32_t page, uint32_t offset)
{
	const struct dhs_world_segment *s = &g->segment[segment];

	return g->base[layer * g->segments + segment] + (uint64_t)page * s->page_stride +
	       offset * s->row_stride;
}

/* The part of layer `position` of a group in a host record. */
static inline unsigned char *dhs_record_address(const struct dhs_geometry *g, uint32_t group,
                                                uint32_t position, int32_t host_page,
                                                uint32_t offset)
{
	uint32_t chunk = (uint32_t)host_page >> g->chunk_shift;
	uint64_t page = (uint32_t)host_page & ((UINT32_C(1) << g->chunk_shift) - 1);
	uint64_t layers = g->group_first[group + 1] - g->group_first[group];

	return g->records[(size_t)chunk * g->groups + group] +
	       ((page * g->page_rows + offset) * layers + position) * g->row_bytes;
}

/* One row of one layer, all segments, between its slot and its part of the record. */
void dhs_host_copy_row(const struct dhs_geometry *g, enum dhs_copy_way way, uint32_t layer,
                       int32_t page, uint32_t offset, unsigned char *record);

/* 1 if the batch's step is open.  A call after its commit is counted with the host,
 * as the batch may have no later commit that tells it. */
static inline int dhs_batch_open(const struct dhs_world *world, const struct dhs_batch_state *batch)
{
	if (batch->phase == DHS_BATCH_COMMITTED)
		world->result[batch->in_flight].counts->order_errors++;
	return batch->phase == DHS_BATCH_BEGUN;
}

#endif
