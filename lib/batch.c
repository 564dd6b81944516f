/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "batch.h"

#include "setup.h"

#include <string.h>

int dhs_batch_enter(const char *call, dhs_batch *batch, struct dhs_guard *guard)
{
	if (!batch || batch->magic != DHS_BATCH_MAGIC)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: batch is %s", call, batch ? "dead" : "NULL");
	return dhs_context_enter(call, batch->context, guard);
}

/* A pad is a slot of a page that is never lent, or a number below 0 that plan does
 * not use for rows still without a slot. */
static int check_pad(const char *call, const char *name, const struct dhs_geometry *g, int32_t pad)
{
	int64_t slots = (int64_t)g->pad_pages * g->page_rows;

	if (pad >= slots || pad < -(1 << 30))
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: options->%s is %d; it must be -2^30 to %lld: below 0, or a slot that is never "
			"lent",
			call, name, pad, (long long)slots - 1);
	return DHS_OK;
}

/* Staging that lets no begin fail, whatever the sessions select. */
static uint64_t worst_staging(const struct dhs_geometry *g, const dhs_batch_options *o)
{
	uint64_t most = (uint64_t)o->max_queries * o->top_k;

	if (!g->tiered)
		return 0;
	if (most > g->max_rows)
		most = g->max_rows;
	return most > g->hot_rows ? (most - g->hot_rows) * o->max_sessions : 0;
}

/* Most misses of one plan: what finds a place in the hot caches, and staging. */
static uint64_t miss_rows(const struct dhs_geometry *g, const dhs_batch_options *o)
{
	uint64_t rows = (uint64_t)o->max_queries * o->top_k;

	if (rows > g->hot_rows)
		rows = g->hot_rows;
	return rows * o->max_sessions + o->staging_rows;
}

static int fill_options(const char *call, const struct dhs_geometry *g, dhs_batch_options *o)
{
	uint64_t worst;
	int rc;

	if (o->flags & ~(uint32_t)(DHS_BATCH_READ_PAD | DHS_BATCH_WRITE_PAD | DHS_BATCH_STAGING_ROWS))
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: options->flags is %#x; known flags are %#x", call,
		                o->flags,
		                DHS_BATCH_READ_PAD | DHS_BATCH_WRITE_PAD | DHS_BATCH_STAGING_ROWS);
	o->max_sessions = o->max_sessions ? o->max_sessions : g->max_sessions;
	o->max_queries = o->max_queries ? o->max_queries : 1;
	o->staging_buffers = o->staging_buffers ? o->staging_buffers : 1;
	if (!o->read_pad && !(o->flags & DHS_BATCH_READ_PAD))
		o->read_pad = -1;
	if (!o->write_pad && !(o->flags & DHS_BATCH_WRITE_PAD))
		o->write_pad = -1;
	rc = dhs_options_check_range(call, "max_sessions", o->max_sessions, 1, g->max_sessions);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "max_queries", o->max_queries, 1, DHS_MAX_QUERIES);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "top_k", o->top_k, 1, DHS_MAX_TOP_K);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "staging_buffers", o->staging_buffers, 1,
		                             DHS_MAX_BUFFERS);
	if (rc == DHS_OK)
		rc = check_pad(call, "read_pad", g, o->read_pad);
	if (rc == DHS_OK)
		rc = check_pad(call, "write_pad", g, o->write_pad);
	if (rc)
		return rc;
	worst = worst_staging(g, o);
	if (!o->staging_rows && !(o->flags & DHS_BATCH_STAGING_ROWS))
		o->staging_rows = worst > INT32_MAX ? INT32_MAX : (uint32_t)worst;
	rc = dhs_options_check_range(call, "staging_rows", o->staging_rows, 0, INT32_MAX);
	/* Places in the list of misses are 32-bit numbers. */
	if (rc == DHS_OK && miss_rows(g, o) > INT32_MAX)
		rc =
			dhs_fail(DHS_ERR_ARGUMENT,
		             "%s: max_sessions, max_queries, top_k and staging_rows allow %llu misses in a "
		             "plan; at most %d",
		             call, (unsigned long long)miss_rows(g, o), INT32_MAX);
	return rc;
}

static uint32_t staging_pages(const struct dhs_geometry *g, const dhs_batch_options *o)
{
	uint64_t rows = (uint64_t)o->staging_rows * o->staging_buffers;
	uint64_t pages = (rows + g->page_rows - 1) / g->page_rows;

	return pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
}

static int state_init(dhs_context *context, struct dhs_batch_state *state,
                      const struct dhs_batch_state *b)
{
	const struct dhs_backend_ops *ops = context->ops;
	int rc = ops->memory_write(context->device, state, b, sizeof(*b));

	if (rc == DHS_OK)
		rc = ops->memory_set(context->device, b->session_index, -1,
		                     b->max_sessions * sizeof(*b->session_index));
	return rc;
}

/* All of a batch's device memory; a null `from` measures it. */
static struct dhs_batch_state *state_new(dhs_context *from, const struct dhs_geometry *g,
                                         struct dhs_blocks *blocks, const dhs_batch_options *o,
                                         struct dhs_batch_state *copy)
{
	uint64_t misses = miss_rows(g, o), n = o->max_sessions, buffers = o->staging_buffers;
	struct dhs_batch_state b = { .max_sessions = o->max_sessions,
		                         .max_queries = o->max_queries,
		                         .top_k = o->top_k,
		                         .buffers = o->staging_buffers,
		                         .staging_rows = o->staging_rows,
		                         .miss_rows = (uint32_t)misses,
		                         .read_pad = o->read_pad,
		                         .write_pad = o->write_pad };
	struct dhs_batch_state *state;

#define TAKE(count, type)                                                                          \
	dhs_blocks_new(from, blocks, DHS_MEMORY_DEVICE, (size_t)(count) * sizeof(type), 1)
	state = TAKE(sizeof(*state) + n * sizeof(*b.entry), char);
	b.entry = from && state ? (struct dhs_world_entry *)(state + 1) : NULL;
	b.staging_page = TAKE(staging_pages(g, o), int32_t);
	b.session_index = TAKE(n, int32_t);
	b.miss = TAKE(buffers * misses, struct dhs_miss);
	b.miss_count = TAKE(buffers * n, uint32_t);
	b.fetched = TAKE(buffers * g->layer_words, uint32_t);
#undef TAKE
	for (uint32_t i = 0; i < 2 * DHS_MAX_BUFFERS; i++)
		b.turn[i].group = -1;
	*copy = b;
	if (!from || blocks->failed || state_init(from, state, &b))
		return NULL;
	return state;
}

static int read_options(const char *call, const struct dhs_geometry *g,
                        const dhs_batch_options *options, dhs_batch_options *o)
{
	int rc = dhs_options_read(call, "options", options, o, sizeof(*o), sizeof(*o));

	return rc ? rc : fill_options(call, g, o);
}

int dhs_batch_required(const dhs_context_options *context, const dhs_batch_options *options,
                       dhs_required *required)
{
	dhs_required out = DHS_INIT(dhs_required);
	struct dhs_batch_state unused;
	struct dhs_blocks blocks = { 0 };
	dhs_batch_options o;
	struct dhs_geometry g;
	struct dhs_staging_shape staging;
	int rc = dhs_setup_calculate("dhs_batch_required: of the context", context, &g, &staging);

	if (rc)
		return rc;
	/* Pads are held against an engine's pool if its size is told. */
	if (context->pool && !g.pages)
		g.pad_pages = INT32_MAX / g.page_rows;
	rc = read_options("dhs_batch_required", &g, options, &o);
	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_batch_required", "required", required);
	if (rc)
		return rc;
	state_new(NULL, &g, &blocks, &o, &unused);
	if (!dhs_staging_bytes(&g, &staging, staging_pages(&g, &o), &out.staging_bytes))
		return dhs_fail(
			DHS_ERR_DEVICE_MEMORY,
			"dhs_batch_required: options->staging_rows is %u; the staging would be past "
			"2^60 bytes",
			o.staging_rows);
	out.device_bytes = blocks.bytes[DHS_MEMORY_DEVICE] + out.staging_bytes;
	out.host_bytes = blocks.bytes[DHS_MEMORY_HOST];
	out.staging_rows = o.staging_rows;
	out.staging_pages = staging.mapped ? 0 : staging_pages(&g, &o);
	dhs_options_write(&out, sizeof(out), required);
	return DHS_OK;
}

static void batch_free(dhs_context *context, dhs_batch *batch)
{
	dhs_blocks_free(context, &batch->blocks);
	batch->magic = 0;
	dhs_memory_free(&context->allocator, DHS_MEMORY_CONTROL, batch, sizeof(*batch));
}

static int batch_new(dhs_context *context, const dhs_batch_options *o, uint32_t pages,
                     dhs_batch **made)
{
	dhs_batch *batch = dhs_memory_zeroed(&context->allocator, DHS_MEMORY_CONTROL, sizeof(*batch));
	int rc;

	if (!batch)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_batch_create: no memory for the batch");
	batch->magic = DHS_BATCH_MAGIC;
	batch->context = context;
	batch->max_sessions = o->max_sessions;
	batch->max_queries = o->max_queries;
	batch->top_k = o->top_k;
	batch->staging_rows = o->staging_rows;
	batch->fresh = 1;
	batch->staging_page = dhs_blocks_new(context, &batch->blocks, DHS_MEMORY_CONTROL,
	                                     pages * sizeof(*batch->staging_page), 1);
	batch->state = state_new(context, &context->world.geometry, &batch->blocks, o, &batch->copy);
	if (batch->state) {
		*made = batch;
		return DHS_OK;
	}
	rc = dhs_fail(batch->blocks.failed ? batch->blocks.failed : DHS_ERR_DEVICE,
	              "dhs_batch_create: no memory for the batch's tables");
	batch_free(context, batch);
	return rc;
}

int dhs_batch_create(dhs_context *context, const dhs_batch_options *options, dhs_batch **batch)
{
	DHS_GUARD(guard);
	dhs_batch_options o;
	dhs_batch *made = NULL;
	uint32_t pages;
	int rc = dhs_context_enter("dhs_batch_create", context, &guard);

	if (rc == DHS_OK)
		rc = read_options("dhs_batch_create", &context->world.geometry, options, &o);
	if (rc == DHS_OK)
		rc = dhs_options_check_pointer("dhs_batch_create", "batch", batch, sizeof(*batch));
	if (rc)
		return rc;
	pages = staging_pages(&context->world.geometry, &o);
	context->works.call++;
	rc = dhs_staging_check(context, pages);
	if (rc == DHS_OK)
		rc = batch_new(context, &o, pages, &made);
	if (rc == DHS_OK)
		rc = dhs_staging_take(context, made, pages);
	if (rc) {
		if (made) {
			dhs_staging_give(context, made);
			batch_free(context, made);
		}
		dhs_stats_publish(context);
		return rc;
	}
	made->next = context->batches;
	context->batches = made;
	dhs_stats_publish(context);
	*batch = made;
	return DHS_OK;
}

static int batch_idle(dhs_context *context, const dhs_batch *batch)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (context->step[i].state == DHS_STEP_BEGUN && context->step[i].batch == batch)
			return dhs_fail(DHS_ERR_BUSY, "dhs_batch_destroy: step %llu is not settled",
			                (unsigned long long)context->step[i].number);
	return DHS_OK;
}

/* Its device memory goes at once, so its steps must have passed: those in flight are
 * waited for, older ones have. */
static int wait_for_steps(dhs_context *context, dhs_batch *batch)
{
	int rc = DHS_OK;

	for (uint32_t i = 0; i < DHS_MAX_STEPS_IN_FLIGHT && rc == DHS_OK; i++) {
		struct dhs_step_record *step = dhs_step_oldest(context, i);

		if (step->batch != batch)
			continue;
		rc = dhs_step_take_over(context, step);
		step->batch = NULL;
	}
	return rc ? dhs_context_lose(context, "dhs_batch_destroy", rc) : DHS_OK;
}

int dhs_batch_destroy(dhs_batch *batch)
{
	DHS_GUARD(guard);
	dhs_context *context;
	dhs_batch **link;
	int rc;

	if (!batch)
		return DHS_OK;
	rc = dhs_batch_enter("dhs_batch_destroy", batch, &guard);
	if (rc)
		return rc;
	context = batch->context;
	rc = batch_idle(context, batch);
	if (rc == DHS_OK)
		rc = wait_for_steps(context, batch);
	if (rc)
		return rc;
	dhs_staging_give(context, batch);
	dhs_work_unref(context, &batch->last);
	for (link = &context->batches; *link != batch; link = &(*link)->next)
		;
	*link = batch->next;
	batch_free(context, batch);
	dhs_stats_publish(context);
	return DHS_OK;
}

int dhs_batch_get_view(dhs_batch *batch, dhs_batch_view *view)
{
	DHS_GUARD(guard);
	dhs_batch_view out = DHS_INIT(dhs_batch_view);
	const struct dhs_world *world;
	int rc = dhs_batch_enter("dhs_batch_get_view", batch, &guard);

	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_batch_get_view", "view", view);
	if (rc)
		return rc;
	world = &batch->context->world;
	out.session_index = batch->copy.session_index;
	out.lengths = world->tables.length;
	out.page_table = world->tables.page;
	out.page_stride = world->geometry.max_pages;
	dhs_options_write(&out, sizeof(out), view);
	return DHS_OK;
}

void dhs_batches_free(dhs_context *context)
{
	while (context->batches) {
		dhs_batch *batch = context->batches;

		context->batches = batch->next;
		dhs_staging_give(context, batch);
		batch_free(context, batch);
	}
}
