/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "batch.h"
#include "machine.h"
#include "setup.h"
#include "tables.h"
#include "tag.h"

#include <stdarg.h>
#include <stdio.h>

/* Pool and tier of fewer bytes than this are not held against the machine's memory:
 * small contexts are to be made fast. */
#define CHECKED_BYTES ((uint64_t)256 << 20)

/* ---- create ---- */

static int check_machine(const char *call, const struct dhs_setup *u)
{
	uint64_t bytes = u->pool_bytes + u->tier.bytes, have;

	if (u->o.allocator || bytes < CHECKED_BYTES || u->o.backend != DHS_BACKEND_HOST)
		return DHS_OK;
	have = dhs_machine_memory();
	if (have && bytes > have)
		return dhs_fail(
			u->pool_bytes > have ? DHS_ERR_DEVICE_MEMORY : DHS_ERR_HOST_MEMORY,
			"%s: device_pages take %llu bytes and host_rows %llu bytes, more than this machine's "
			"memory of %llu bytes",
			call, (unsigned long long)u->pool_bytes, (unsigned long long)u->tier.bytes,
			(unsigned long long)have);
	return DHS_OK;
}

/* Where a layer of the library's own pool lies; NULL if there is no memory for it. */
static unsigned char *layer_memory(dhs_context *context, uint32_t layer, size_t bytes)
{
	const struct dhs_staging *s = &context->staging;

	if (s->range)
		return s->range + layer * dhs_staging_span(&s->shape);
	return dhs_blocks_new(context, &context->blocks, DHS_MEMORY_DEVICE, bytes,
	                      context->reserved_pages != 0);
}

/* The library's own pool: one range or block a layer, the reserved pages zeroed. */
static int pool_memory(dhs_context *context, const struct dhs_setup *u)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint64_t stride = u->layout.page_stride;
	int rc =
		u->staging.mapped ? dhs_staging_open(context, &u->staging, u->o.reserved_pages) : DHS_OK;

	if (rc)
		return rc;
	for (uint32_t layer = 0; layer < g->layers; layer++) {
		unsigned char *memory = layer_memory(context, layer, stride * u->o.device_pages);

		if (!memory)
			return dhs_fail(context->blocks.failed,
			                "device_pages: no memory for layer %u of the pool (%llu bytes)", layer,
			                (unsigned long long)(stride * u->o.device_pages));
		for (uint32_t i = 0; i < g->segments; i++)
			context->base[layer * g->segments + i] = memory + u->layout.segment[i].offset;
	}
	return DHS_OK;
}

/* The widest piece that all rows and records can be copied by: the lowest bit of
 * anything that adds to their addresses. */
static uint32_t widest_unit(const dhs_context *context)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint64_t all = 16 | g->row_bytes;

	for (uint32_t i = 0; i < g->segments; i++)
		all |= g->segment[i].page_stride | g->segment[i].row_stride | g->segment[i].bytes;
	for (uint32_t i = 0; i < g->layers * g->segments; i++)
		all |= (uintptr_t)context->base[i];
	return (uint32_t)(all & -all);
}

static int bases(dhs_context *context, const struct dhs_setup *u)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint32_t all = g->layers * g->segments;

	context->group_first = dhs_blocks_book(context, (g->groups + 1) * sizeof(*g->group_first));
	context->base = dhs_blocks_book(context, all * sizeof(*g->base));
	if (!context->group_first || !context->base)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the books of %u layers", g->layers);
	for (uint32_t i = 0; i < g->groups; i++)
		context->group_first[i + 1] =
			context->group_first[i] + dhs_layout_group_layers(&u->layout, i);
	if (!u->o.pool)
		return pool_memory(context, u);
	for (uint32_t i = 0; i < all; i++)
		context->base[i] =
			(unsigned char *)u->o.pool[i] + u->layout.segment[i % g->segments].offset;
	return DHS_OK;
}

static int books(dhs_context *context, const struct dhs_setup *u)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++) {
		context->step[i].part =
			dhs_blocks_book(context, context->max_sessions * sizeof(*context->step[i].part));
		if (!context->step[i].part)
			return dhs_fail(DHS_ERR_HOST_MEMORY, "max_sessions: no memory for the books of steps");
	}
	context->copy = dhs_blocks_book(context, u->o.device_pages * sizeof(*context->copy));
	if (!context->copy)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "device_pages: no memory for the list of copies");
	return DHS_OK;
}

static void fill_context(dhs_context *context, const struct dhs_setup *u, uint32_t tag)
{
	context->magic = DHS_CONTEXT_MAGIC;
	context->tag = tag;
	context->ops = dhs_setup_ops(u->o.backend);
	context->allocator = u->allocator;
	context->log = u->o.log;
	context->log_arg = u->o.log_arg;
	context->backend = u->o.backend;
	context->policy = u->o.policy;
	context->keeps_history =
		u->o.policy == DHS_POLICY_ADAPTIVE && !(u->o.flags & DHS_CONTEXT_NO_HISTORY);
	context->backup = u->o.backup;
	context->reclaim = u->o.reclaim;
	context->max_sessions = u->o.max_sessions;
	context->max_new_rows = u->o.max_new_rows;
	context->tail_rows = u->o.tail_rows;
	context->tail_pages = u->tail_pages;
	context->tokens_per_row = u->layout.layout.tokens_per_row;
	context->reserved_pages = u->o.reserved_pages;
	context->owns_pool = !u->o.pool;
	context->next_step = 1;
	context->refill.link_bytes = u->o.link_bytes;
	context->refill.low = u->o.refill_low;
	context->refill.high = u->o.refill_high;
	dhs_works_init(context);
	dhs_setup_geometry(u, &context->world.geometry);
}

static int build(dhs_context *context, const struct dhs_setup *u)
{
	int rc = bases(context, u);

	if (rc == DHS_OK) {
		context->world.geometry.unit = widest_unit(context);
		rc = dhs_tables_open(context, u->tier.chunks);
	}
	if (rc == DHS_OK)
		rc = dhs_tier_init(context, &u->tier);
	if (rc == DHS_OK)
		rc = books(context, u);
	if (rc == DHS_OK)
		rc = dhs_sessions_init(context);
	if (rc == DHS_OK)
		rc = dhs_pool_init(context, u->o.device_pages);
	if (rc == DHS_OK)
		rc = dhs_refill_init(context, u->o.device_pages);
	if (rc == DHS_OK)
		rc = context->ops->prepare(context->device, &context->world);
	if (rc == DHS_OK)
		rc = context->ops->stream_new(context->device, &context->copy_stream);
	if (rc)
		return rc;
	for (uint32_t p = u->o.reserved_pages; context->owns_pool && p < u->o.device_pages; p++)
		dhs_pool_lend(context, (int32_t)p);
	return DHS_OK;
}

static void context_free(dhs_context *context)
{
	dhs_allocator allocator = context->allocator;

	dhs_batches_free(context);
	dhs_works_free(context);
	if (context->copy_stream)
		context->ops->stream_free(context->device, context->copy_stream);
	dhs_staging_close(context);
	dhs_blocks_free(context, &context->blocks);
	if (context->device)
		context->ops->close(context->device);
	pthread_mutex_destroy(&context->lock);
	dhs_tag_give(context->tag);
	context->magic = 0;
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, context, sizeof(*context));
}

/* What was asked for by nobody is told. */
static void report_fallback(dhs_context *context, const struct dhs_setup *u)
{
	if (u->o.pool || u->staging.mapped || u->o.policy == DHS_POLICY_FULL ||
	    u->o.flags & DHS_CONTEXT_POOL_STAGING)
		return;
	dhs_context_log(
		context, DHS_LOG_WARNING,
		"dhs_context_create: staging is made of pages of the pool: the device cannot map "
		"memory at several addresses");
}

int dhs_context_create(const dhs_context_options *options, dhs_context **context)
{
	struct dhs_setup u;
	dhs_context *c;
	int32_t tag;
	int rc = dhs_setup_read("dhs_context_create", "options", options, 0, &u);

	if (rc == DHS_OK)
		rc = dhs_options_check_pointer("dhs_context_create", "context", context, sizeof(*context));
	if (rc == DHS_OK)
		rc = dhs_setup_backend("dhs_context_create", &u.o);
	if (rc == DHS_OK)
		rc = check_machine("dhs_context_create", &u);
	if (rc)
		return rc;
	c = dhs_memory_zeroed(&u.allocator, DHS_MEMORY_CONTROL, sizeof(*c));
	if (!c)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_context_create: no memory for the context");
	tag = dhs_tag_take();
	if (tag < 0) {
		dhs_memory_free(&u.allocator, DHS_MEMORY_CONTROL, c, sizeof(*c));
		return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_context_create: %d contexts are alive already",
		                1 << DHS_TAG_BITS);
	}
	fill_context(c, &u, (uint32_t)tag);
	pthread_mutex_init(&c->lock, NULL);
	rc = c->ops->open(&u.o, &c->allocator, &c->device);
	if (rc == DHS_OK)
		rc = build(c, &u);
	if (rc == DHS_OK) {
		report_fallback(c, &u);
		dhs_stats_publish(c);
		rc = dhs_ticker_start(c, c->policy == DHS_POLICY_ADAPTIVE ? u.o.tick_us : 0);
	}
	if (rc) {
		context_free(c);
		return rc;
	}
	*context = c;
	return DHS_OK;
}

/* ---- destroy, wait, place ---- */

/* Marks the ends of steps and prefills that the engine left open: their work is
 * enqueued, and memory must outlive it. */
static void record_open(dhs_context *context)
{
	int capturing;

	for (struct dhs_work *w = context->works.first; w; w = w->next) {
		if (!dhs_work_open(w))
			continue;
		if (context->ops->stream_check(context->device, w->stream, &capturing) == DHS_OK &&
		    !capturing) {
			dhs_work_record(context, w);
			continue;
		}
		/* No event can mark the end on a stream that is gone or being captured, but what was
		 * enqueued before may still run. */
		context->ops->idle(context->device);
		w->state = DHS_WORK_PASSED;
	}
}

/* References in the books go with the books; the list holds every work that
 * has not passed, so all can be waited for first. */
static void drop_references(dhs_context *context)
{
	for (uint32_t i = 0; i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];

		dhs_work_unref(context, &s->last);
		dhs_work_unref(context, &s->written);
		dhs_work_unref(context, &s->copies);
		dhs_work_unref(context, &s->saving);
	}
	for (uint32_t i = 0; i < context->refill.count; i++)
		dhs_work_unref(context, &context->refill.coming[i].work);
	for (uint32_t p = 0; p < context->pool.pages; p++)
		dhs_after_set(context, &context->pool.page[p].after, NULL, NULL);
	for (uint32_t p = 0; p < context->tier.pages; p++)
		dhs_after_set(context, &context->tier.after[p], NULL, NULL);
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		dhs_work_unref(context, &context->step[i].work);
	for (dhs_batch *b = context->batches; b; b = b->next)
		dhs_work_unref(context, &b->last);
	dhs_works_collect(context);
}

void dhs_context_destroy(dhs_context *context)
{
	if (!context || context->magic != DHS_CONTEXT_MAGIC)
		return;
	dhs_ticker_stop(context);
	record_open(context);
	dhs_works_sync(context);
	/* An abort moves the end of a step that may have left the list before. */
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		dhs_work_sync(context, context->step[i].work);
	drop_references(context);
	context_free(context);
}

int dhs_context_wait(dhs_context *context)
{
	DHS_GUARD(guard);
	int rc = dhs_context_enter("dhs_context_wait", context, &guard);

	if (rc)
		return rc;
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (context->step[i].state == DHS_STEP_BEGUN)
			return dhs_fail(DHS_ERR_PENDING,
			                "dhs_context_wait: step %llu is begun and neither settled nor aborted",
			                (unsigned long long)context->step[i].number);
	rc = dhs_works_sync(context);
	for (uint32_t i = 0; i < DHS_MAX_STEPS_IN_FLIGHT && rc == DHS_OK; i++)
		rc = dhs_step_take_over(context, dhs_step_oldest(context, i));
	dhs_stats_publish(context);
	return rc ? dhs_context_lose(context, "dhs_context_wait", rc) : DHS_OK;
}

int dhs_context_place(dhs_context *context, uint32_t layer, uint32_t segment, dhs_place *place)
{
	DHS_GUARD(guard);
	dhs_place out = DHS_INIT(dhs_place);
	const struct dhs_geometry *g;
	int rc = dhs_context_enter("dhs_context_place", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_context_place", "place", place);
	if (rc)
		return rc;
	g = &context->world.geometry;
	if (layer >= g->layers)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_context_place: layer is %u; there are %u layers",
		                layer, g->layers);
	if (segment >= g->segments)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_context_place: segment is %u; there are %u segments",
		                segment, g->segments);
	out.base = context->base[layer * g->segments + segment];
	out.page_stride = g->segment[segment].page_stride;
	out.row_stride = g->segment[segment].row_stride;
	out.bytes = g->segment[segment].bytes;
	out.page_rows = g->page_rows;
	dhs_options_write(&out, sizeof(out), place);
	return DHS_OK;
}

/* ---- shared by the calls ---- */

int dhs_context_enter(const char *call, dhs_context *context, struct dhs_guard *guard)
{
	if (!context || context->magic != DHS_CONTEXT_MAGIC)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: context is %s", call, context ? "dead" : "NULL");
	if (context->ticker.us) {
		pthread_mutex_lock(&context->ticker.inside);
		guard->context = context;
	}
	if (context->lost)
		return dhs_fail(DHS_ERR_DEVICE, "%s: the context's device is lost", call);
	return DHS_OK;
}

void dhs_context_leave(struct dhs_guard *guard)
{
	if (guard->context)
		pthread_mutex_unlock(&guard->context->ticker.inside);
}

int dhs_handle_check(const char *call, const char *name, const dhs_context *context,
                     enum dhs_kind kind, uint64_t handle)
{
	static const char *const kinds[] = { "nothing", "session", "step", "fence" };

	if (handle >> 60 != kind)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s is %#llx, which is not a %s", call, name,
		                (unsigned long long)handle, kinds[kind]);
	if ((handle >> DHS_NUMBER_BITS & 0xffff) != context->tag)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s %#llx belongs to another context", call, name,
		                (unsigned long long)handle);
	return DHS_OK;
}

int dhs_stream_check(const char *call, dhs_context *context, dhs_stream stream, int *capturing)
{
	int rc = context->ops->stream_check(context->device, stream, capturing);

	if (rc == DHS_ERR_ARGUMENT)
		return dhs_fail(rc, "%s: stream %p is not of the context's device", call, (void *)stream);
	return rc ? dhs_context_lose(context, call, rc) : DHS_OK;
}

int dhs_stream_ready(const char *call, dhs_context *context, dhs_stream stream)
{
	int capturing, rc = dhs_stream_check(call, context, stream, &capturing);

	if (rc)
		return rc;
	if (capturing)
		return dhs_fail(DHS_ERR_CAPTURING, "%s: the stream is being captured", call);
	return DHS_OK;
}

int dhs_context_lose(dhs_context *context, const char *call, int rc)
{
	char cause[400];

	snprintf(cause, sizeof(cause), "%s", dhs_last_error());
	context->lost = 1;
	dhs_context_log(context, DHS_LOG_ERROR, "%s: the device is lost: %s", call, cause);
	return dhs_fail(DHS_ERR_DEVICE, "%s: the device is lost (%s: %s)", call, dhs_strerror(rc),
	                cause);
}

void dhs_context_log(dhs_context *context, uint32_t level, const char *format, ...)
{
	char text[512];
	va_list args;

	if (!context->log)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	context->log(context->log_arg, level, text);
}

int dhs_context_refuse(dhs_context *context, int code)
{
	context->totals.refusals++;
	dhs_context_log(context, DHS_LOG_WARNING, "%s", dhs_last_error());
	return code;
}
