/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "tables.h"

static void result_new(dhs_context *context, struct dhs_blocks *blocks, uint32_t n,
                       struct dhs_result *r)
{
	r->committed = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, sizeof(*r->committed), 1);
	r->counts = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, sizeof(*r->counts), 1);
	r->length = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*r->length), 1);
	r->kept = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*r->kept), 1);
	r->sample = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*r->sample), 1);
}

static void upload_new(dhs_context *context, struct dhs_blocks *blocks,
                       const struct dhs_geometry *g, struct dhs_upload *u)
{
	uint64_t n = g->max_sessions, numbers = 2 * (uint64_t)g->max_pages + g->most_hot_pages;

	u->entry = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*u->entry), 1);
	u->patch = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*u->patch), 1);
	u->data = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * numbers * sizeof(*u->data), 1);
	u->kept = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*u->kept), 1);
}

/* Under full there is no hot cache, so its tables are empty. */
void dhs_tables_new(dhs_context *context, struct dhs_blocks *blocks, struct dhs_world *world,
                    uint32_t chunks, struct dhs_upload *upload)
{
	struct dhs_geometry *g = &world->geometry;
	uint64_t n = g->max_sessions;
	struct dhs_tables *t = &world->tables;

#define TAKE(count, type)                                                                          \
	dhs_blocks_new(context, blocks, DHS_MEMORY_DEVICE, (size_t)(count) * sizeof(type), 1)
	g->group_first = TAKE(g->groups + 1, uint32_t);
	g->base = TAKE(g->layers * g->segments, unsigned char *);
	g->records = TAKE((uint64_t)chunks * g->groups, unsigned char *);
	t->length = TAKE(n, int32_t);
	t->page = TAKE(n * g->max_pages, int32_t);
	t->host_page = TAKE(n * g->max_pages, int32_t);
	t->hot_places = TAKE(n, int32_t);
	t->hot_slot = TAKE(n * g->most_hot_rows, int32_t);
	t->hot_row = TAKE(n * g->groups * g->most_hot_rows, int32_t);
	t->hot_stamp = TAKE(n * g->groups * g->most_hot_rows, uint32_t);
	t->plan = TAKE(n * g->groups, struct dhs_plan_state);
	t->warmed = TAKE(n, struct dhs_warmed);
#undef TAKE
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++) {
		result_new(context, blocks, g->max_sessions, &world->result[i]);
		upload_new(context, blocks, g, &upload[i]);
	}
}

/* What the tables hold before any work; memory is zeroed already. */
static int tables_init(dhs_context *context)
{
	const struct dhs_geometry *g = &context->world.geometry;
	const struct dhs_tables *t = &context->world.tables;
	const struct dhs_backend_ops *ops = context->ops;
	size_t bytes = (size_t)g->max_sessions * g->max_pages * sizeof(*t->page);
	int rc = ops->memory_set(context->device, t->page, -1, bytes);

	if (rc == DHS_OK)
		rc = ops->memory_set(context->device, t->host_page, -1, bytes);
	if (rc == DHS_OK)
		rc = ops->memory_write(context->device, g->group_first, context->group_first,
		                       (g->groups + 1) * sizeof(*g->group_first));
	if (rc == DHS_OK)
		rc = ops->memory_write(context->device, g->base, context->base,
		                       (size_t)g->layers * g->segments * sizeof(*g->base));
	return rc;
}

int dhs_tables_open(dhs_context *context, uint32_t chunks)
{
	const struct dhs_geometry *g = &context->world.geometry;
	struct dhs_upload upload[DHS_MAX_STEPS_IN_FLIGHT];

	dhs_tables_new(context, &context->blocks, &context->world, chunks, upload);
	if (context->blocks.failed)
		return dhs_fail(
			context->blocks.failed,
			"max_sessions, max_rows: no memory for the tables of %u sessions of %u rows",
			g->max_sessions, g->max_rows);
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		context->step[i].upload = upload[i];
	return tables_init(context);
}
