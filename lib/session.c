/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "admission.h"
#include "elastic.h"
#include "residency.h"

#include <string.h>

/* A session's number: generation above, index below.  An index whose
 * generations are used up is retired, so that a dead handle stays dead. */
#define INDEX_BITS 16
#define MOST_GENERATIONS ((UINT32_C(1) << (DHS_NUMBER_BITS - INDEX_BITS)) - 1)

int dhs_sessions_init(dhs_context *context)
{
	const struct dhs_geometry *g = &context->world.geometry;
	struct dhs_session_table *table = &context->sessions;
	size_t ints = 3 * (size_t)g->max_pages + context->tail_pages;
	size_t stride = ints + g->max_pages + g->most_hot_pages;
	uint32_t n = context->max_sessions;
	int32_t *numbers;
	uint8_t *on_way;

	table->session = dhs_blocks_book(context, n * sizeof(*table->session));
	table->free = dhs_blocks_book(context, n * sizeof(*table->free));
	numbers = dhs_blocks_book(context, n * stride * sizeof(*numbers));
	on_way = dhs_blocks_book(context, n * (size_t)g->max_pages);
	if (!table->session || !table->free || !numbers || !on_way)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "max_sessions: no memory for the books of %u sessions",
		                n);
	for (uint32_t i = 0; i < n; i++, numbers += stride, on_way += g->max_pages) {
		struct dhs_session_state *s = &table->session[i];

		s->index = i;
		s->page = numbers;
		s->host = s->page + g->max_pages;
		s->spare = s->host + g->max_pages;
		s->backed = (uint32_t *)(numbers + ints);
		s->hot = numbers + ints + g->max_pages;
		s->on_way = on_way;
		memset(s->page, -1, 2 * (size_t)g->max_pages * sizeof(*s->page));
		table->free[i] = i;
		s->dirty_low = UINT32_MAX;
	}
	table->free_count = n;
	return DHS_OK;
}

static uint32_t take_index(struct dhs_session_table *table, uint32_t max)
{
	uint32_t index = table->free[table->free_first];

	table->free_first = (table->free_first + 1) % max;
	table->free_count--;
	return index;
}

static void give_index(struct dhs_session_table *table, uint32_t max, uint32_t index)
{
	if (table->session[index].generation == MOST_GENERATIONS)
		return;
	table->free[(table->free_first + table->free_count) % max] = index;
	table->free_count++;
}

int dhs_session_find(const char *call, dhs_context *context, dhs_session handle, int failed_too,
                     struct dhs_session_state **session)
{
	int rc = dhs_handle_check(call, "session", context, DHS_KIND_SESSION, handle);
	uint32_t index = (uint32_t)(handle & ((1 << INDEX_BITS) - 1));
	uint32_t generation = (uint32_t)((handle & DHS_NUMBER_MASK) >> INDEX_BITS);
	struct dhs_session_state *s;

	if (rc)
		return rc;
	s = index < context->max_sessions ? &context->sessions.session[index] : NULL;
	if (!s || !s->live || s->generation != generation)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: session %#llx is dead", call,
		                (unsigned long long)handle);
	if (s->failed && !failed_too)
		return dhs_fail(
			DHS_ERR_MISMATCH,
			"%s: session %#llx has failed: the device kept other rows than settle said; "
			"it can only be destroyed",
			call, (unsigned long long)handle);
	*session = s;
	return DHS_OK;
}

/* ---- create ---- */

int dhs_session_read_options(const char *call, const dhs_context *context,
                             const dhs_session_options *options, dhs_session_options *o)
{
	uint32_t max_rows = context->world.geometry.max_rows;
	int rc = DHS_OK;

	if (options)
		rc = dhs_options_read(call, "options", options, o, sizeof(*o), sizeof(*o));
	if (rc == DHS_OK && o->flags)
		rc = dhs_fail(DHS_ERR_ARGUMENT, "%s: options->flags is %#x; no flag is known", call,
		              o->flags);
	if (rc == DHS_OK && o->reserve_rows > max_rows)
		rc = dhs_fail(DHS_ERR_ARGUMENT,
		              "%s: options->reserve_rows is %llu; a session has at most max_rows = %u",
		              call, (unsigned long long)o->reserve_rows, max_rows);
	return rc;
}

static void take_pages(dhs_context *context, int32_t *pages, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		pages[i] = dhs_pool_take_any(context);
}

void dhs_session_take_pages(dhs_context *context, struct dhs_session_state *s)
{
	s->hot_pages = context->world.geometry.hot_pages;
	s->hot_told = 0;
	take_pages(context, s->hot, s->hot_pages);
	take_pages(context, s->spare, s->keep);
	s->spares = s->keep;
	s->fresh = 1;
}

static void session_start(dhs_context *context, struct dhs_session_state *s, uint32_t reserve)
{
	const struct dhs_geometry *g = &context->world.geometry;
	int full = context->policy == DHS_POLICY_FULL;

	s->generation++;
	s->live = 1;
	s->failed = 0;
	s->suspended = 0;
	s->set_length = 1;
	s->settled = s->unsettled_rows = s->unsettled_steps = 0;
	s->drop_from = 0;
	s->extent = s->first_tail = s->lowest = s->resident = s->tail_used = 0;
	s->host_pages = s->host_ready = 0;
	s->reserve_pages = full ? 0 : reserve;
	s->keep = full ? reserve : context->tail_pages;
	s->begun_in = 0;
	s->used_at = context->next_step - 1;
	s->extension = 0;
	s->coming = 0;
	s->refill_from = UINT32_MAX;
	s->unbacked = s->backup_from = 0;
	s->curve = (struct dhs_curve){ 0 };
	s->hot_kept = 0;
	dhs_session_take_pages(context, s);
	if (s->reserve_pages)
		dhs_residency_host_take(context, s, s->reserve_pages * g->page_rows);
	context->sessions.live++;
}

/* Pages for the hot cache and the tail (under full: the reserve) are in the pool
 * when this returns 0: they can be had. */
static int create_room(dhs_context *context, uint32_t need)
{
	struct dhs_work *copy;
	int rc = dhs_residency_copy_new(context, &copy);

	if (rc)
		return rc;
	dhs_residency_make_room(context, need, 1, copy);
	rc = dhs_residency_copy(context, copy);
	return rc ? dhs_context_lose(context, "dhs_session_create", rc) : DHS_OK;
}

int dhs_session_create(dhs_context *context, const dhs_session_options *options,
                       dhs_session *session)
{
	DHS_GUARD(guard);
	dhs_session_options o = DHS_INIT(dhs_session_options);
	struct dhs_session_state *s;
	dhs_admission a;
	uint32_t reserve;
	int rc = dhs_context_enter("dhs_session_create", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_read_options("dhs_session_create", context, options, &o);
	if (rc == DHS_OK)
		rc = dhs_options_check_pointer("dhs_session_create", "session", session, sizeof(*session));
	if (rc)
		return rc;
	context->works.call++;
	reserve = dhs_ceil_div(o.reserve_rows, context->world.geometry.page_rows);
	dhs_admission_judge(context, reserve, &a);
	rc = dhs_admission_check(context, &a);
	if (rc == DHS_OK)
		rc = create_room(context, a.pages_needed);
	if (rc == DHS_OK) {
		s = &context->sessions.session[take_index(&context->sessions, context->max_sessions)];
		session_start(context, s, reserve);
		*session =
			dhs_handle(context, DHS_KIND_SESSION, (uint64_t)s->generation << INDEX_BITS | s->index);
	}
	dhs_stats_publish(context);
	return rc;
}

/* ---- extend ---- */

static int extend_check(dhs_context *context, const struct dhs_session_state *s, uint32_t rows)
{
	uint32_t max_rows = context->world.geometry.max_rows;

	if (!rows)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_session_extend: rows is 0; it must be at least 1");
	if (s->suspended)
		return dhs_fail(DHS_ERR_ORDER,
		                "dhs_session_extend: the session is suspended; resume it first");
	if (s->extension)
		return dhs_fail(DHS_ERR_ORDER,
		                "dhs_session_extend: an extension of %u rows is not committed yet",
		                s->extension);
	if (s->unsettled_steps)
		return dhs_fail(DHS_ERR_BUSY, "dhs_session_extend: the session is in %u unsettled steps",
		                s->unsettled_steps);
	if (rows > max_rows - s->settled)
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"dhs_session_extend: rows is %u; the session has %u rows and max_rows is %u", rows,
			s->settled, max_rows);
	if (dhs_work_open(s->last))
		return dhs_fail(
			DHS_ERR_PENDING,
			"dhs_session_extend: a step that still uses the session is begun and its end "
			"is not recorded");
	return DHS_OK;
}

static int extend_host_room(dhs_context *context, const struct dhs_session_state *s, uint32_t rows)
{
	const struct dhs_tier *tier = &context->tier;
	uint32_t need = dhs_residency_host_needs(context, s, rows);

	if (need <= tier->free_count)
		return DHS_OK;
	if (need <= tier->free_count + tier->draining_count)
		return dhs_fail(
			DHS_ERR_PENDING,
			"dhs_session_extend: %u host pages are needed; %u are free and %u more once "
			"begun steps are settled",
			need, tier->free_count, tier->draining_count);
	return dhs_context_refuse(
		context, dhs_fail(DHS_ERR_HOST_MEMORY,
	                      "dhs_session_extend: %u host pages are needed; %u of %u are free", need,
	                      tier->free_count, tier->pages));
}

/* Pages needed from the pool once the session has aged: every page that ages
 * leaves the session one more spare, and what that takes from the pool it adds
 * to the optional pages. */
static uint32_t extend_needs(const dhs_context *context, const struct dhs_session_state *s,
                             uint32_t rows)
{
	uint32_t need = dhs_residency_map_needs(context, s, rows);
	uint32_t aging = dhs_residency_aging(context, s);

	return need > aging ? need - aging : 0;
}

static int extend_device_room(dhs_context *context, const struct dhs_session_state *s,
                              uint32_t rows)
{
	uint32_t need = extend_needs(context, s, rows);
	uint64_t room = dhs_residency_room(context, need, 0), later;

	for (uint32_t i = 0; i < s->spares; i++)
		if (dhs_after_open(&context->pool.page[s->spare[i]].after, NULL))
			return dhs_fail(
				DHS_ERR_PENDING,
				"dhs_session_extend: page %d is used by a step whose end is not recorded",
				s->spare[i]);
	if (need <= room)
		return DHS_OK;
	later = dhs_residency_room(context, need, 1);
	if (need <= later)
		return dhs_fail(
			DHS_ERR_PENDING,
			"dhs_session_extend: %u pages are needed; %llu can be had now and %llu once "
			"begun steps are settled",
			need, (unsigned long long)room, (unsigned long long)later);
	return dhs_context_refuse(
		context, dhs_fail(DHS_ERR_DEVICE_MEMORY,
	                      "dhs_session_extend: %u pages are needed; %llu are free or optional",
	                      need, (unsigned long long)later));
}

/* What cannot fail but by losing the device. */
static int extend_take(dhs_context *context, struct dhs_session_state *s, uint32_t rows,
                       struct dhs_work *work, struct dhs_work *copy)
{
	dhs_stream stream = work->stream;
	int rc;

	dhs_residency_age(context, s, copy);
	dhs_residency_make_room(context, dhs_residency_map_needs(context, s, rows), 0, copy);
	rc = dhs_residency_copy(context, copy);
	if (rc == DHS_OK)
		rc = dhs_work_wait(context, s->last, stream);
	if (rc == DHS_OK)
		rc = dhs_work_wait(context, s->copies, stream);
	dhs_work_unref(context, &s->copies);
	dhs_residency_host_take(context, s, rows);
	if (rc == DHS_OK)
		rc = dhs_residency_host_ready(context, s, stream);
	if (rc == DHS_OK)
		rc = dhs_residency_map(context, s, rows, stream);
	dhs_work_set(context, &s->last, work);
	dhs_work_unref(context, &work);
	return rc;
}

static void extension_slots(const dhs_context *context, const struct dhs_session_state *s,
                            uint32_t rows, int32_t *slots)
{
	uint32_t page_rows = context->world.geometry.page_rows;

	for (uint32_t i = 0; i < rows; i++) {
		uint32_t row = s->settled + i;

		slots[i] = s->page[row / page_rows] * (int32_t)page_rows + (int32_t)(row % page_rows);
	}
}

static int extend(dhs_context *context, struct dhs_session_state *s, uint32_t rows,
                  dhs_stream stream, int32_t *slots)
{
	struct dhs_work *work, *copy;
	uint32_t bound = s->settled + rows;
	int rc = extend_host_room(context, s, bound);

	if (rc == DHS_OK)
		rc = extend_device_room(context, s, bound);
	if (rc)
		return rc;
	rc = dhs_work_new(context, stream, &work);
	if (rc)
		return rc;
	rc = dhs_residency_copy_new(context, &copy);
	if (rc) {
		dhs_work_cancel(context, work);
		return rc;
	}
	rc = extend_take(context, s, bound, work, copy);
	if (rc)
		return dhs_context_lose(context, "dhs_session_extend", rc);
	s->extension = rows;
	s->used_at = context->next_step - 1;
	extension_slots(context, s, rows, slots);
	return DHS_OK;
}

int dhs_session_extend(dhs_context *context, dhs_session session, uint32_t rows, dhs_stream stream,
                       int32_t *slots)
{
	DHS_GUARD(guard);
	struct dhs_session_state *s;
	int rc = dhs_context_enter("dhs_session_extend", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_extend", context, session, 0, &s);
	if (rc == DHS_OK)
		rc = dhs_options_check_pointer("dhs_session_extend", "slots", slots, sizeof(*slots));
	if (rc == DHS_OK)
		rc = extend_check(context, s, rows);
	if (rc == DHS_OK)
		rc = dhs_stream_ready("dhs_session_extend", context, stream);
	if (rc)
		return rc;
	context->works.call++;
	rc = extend(context, s, rows, stream, slots);
	dhs_stats_publish(context);
	return rc;
}

/* ---- commit ---- */

/* Copies rows [from, to) to their host records on the prefill's stream. */
static int mirror(dhs_context *context, const struct dhs_session_state *s, uint32_t from,
                  uint32_t to, dhs_stream stream)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint32_t n = 0;

	for (uint32_t row = from; row < to; n++) {
		uint32_t p = row / g->page_rows, first = row % g->page_rows;
		uint32_t rows = dhs_min_u32(g->page_rows - first, to - row);

		context->copy[n] = (struct dhs_copy){
			.page = s->page[p], .host_page = s->host[p], .first = first, .rows = rows
		};
		row += rows;
	}
	context->totals.mirrored_rows += to - from;
	context->totals.backup_bytes += (uint64_t)(to - from) * g->row_bytes * g->layers;
	return n ? context->ops->copy(context->device, &context->world, DHS_COPY_TO_HOST, context->copy,
	                              n, stream)
	         : DHS_OK;
}

static int commit(dhs_context *context, struct dhs_session_state *s, uint32_t rows,
                  struct dhs_work *copy)
{
	int rc = DHS_OK;

	if (context->world.geometry.mirror)
		rc = mirror(context, s, s->settled, s->settled + rows, s->last->stream);
	if (rc == DHS_OK)
		rc = dhs_work_record(context, s->last);
	if (rc)
		return rc;
	dhs_work_set(context, &s->written, s->last);
	s->settled += rows;
	s->set_length = 1;
	s->extension = 0;
	s->used_at = context->next_step - 1;
	dhs_residency_cut(context, s, s->settled);
	dhs_residency_age(context, s, copy);
	return dhs_residency_copy(context, copy);
}

int dhs_session_commit(dhs_context *context, dhs_session session, uint32_t rows, dhs_stream stream)
{
	DHS_GUARD(guard);
	struct dhs_session_state *s;
	struct dhs_work *copy;
	int rc = dhs_context_enter("dhs_session_commit", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_commit", context, session, 0, &s);
	if (rc)
		return rc;
	if (!s->extension)
		return dhs_fail(DHS_ERR_ORDER, "dhs_session_commit: the session has no extension");
	if (rows > s->extension)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_session_commit: rows is %u; the extension has %u",
		                rows, s->extension);
	if (stream != s->last->stream)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_session_commit: stream is %p; the extension is on stream %p",
		                (void *)stream, (void *)s->last->stream);
	rc = dhs_stream_ready("dhs_session_commit", context, stream);
	if (rc == DHS_OK)
		rc = dhs_residency_copy_new(context, &copy);
	if (rc)
		return rc;
	context->works.call++;
	rc = commit(context, s, rows, copy);
	if (rc)
		rc = dhs_context_lose(context, "dhs_session_commit", rc);
	dhs_stats_publish(context);
	return rc;
}

/* ---- truncate, evict, destroy ---- */

/* Marks the end of an uncommitted extension: what was written there is dropped. */
static int drop_extension(const char *call, dhs_context *context, struct dhs_session_state *s)
{
	int rc;

	if (!s->extension)
		return DHS_OK;
	rc = dhs_work_end_ready(call, context, s->last);
	if (rc == DHS_OK)
		rc = dhs_work_end(call, context, s->last);
	if (rc == DHS_OK)
		s->extension = 0;
	return rc;
}

static void cancel_steps(struct dhs_session_state *s)
{
	s->epoch++;
	s->unsettled_steps = 0;
	s->unsettled_rows = 0;
}

int dhs_session_truncate(dhs_context *context, dhs_session session, uint64_t rows)
{
	DHS_GUARD(guard);
	struct dhs_session_state *s;
	int rc = dhs_context_enter("dhs_session_truncate", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_truncate", context, session, 0, &s);
	if (rc)
		return rc;
	if (rows > s->settled)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_session_truncate: rows is %llu; the settled length is %u",
		                (unsigned long long)rows, s->settled);
	rc = drop_extension("dhs_session_truncate", context, s);
	if (rc)
		return rc;
	cancel_steps(s);
	s->settled = (uint32_t)rows;
	s->set_length = 1;
	s->drop_from = dhs_min_u32(s->drop_from, s->settled);
	dhs_refill_call_off(context, s);
	s->refill_from = UINT32_MAX;
	dhs_residency_cut(context, s, s->settled);
	dhs_stats_publish(context);
	return DHS_OK;
}

int dhs_session_evict(dhs_context *context, dhs_session session, dhs_fence *fence)
{
	DHS_GUARD(guard);
	struct dhs_session_state *s;
	struct dhs_work *copy, *after, *behind = NULL;
	uint64_t number;
	uint32_t pages, coming;
	int rc = dhs_context_enter("dhs_session_evict", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_evict", context, session, 0, &s);
	/* Refills may still write its pages, and copies read them: these are free behind what the
	 * library's stream has by now. */
	coming = rc == DHS_OK ? s->coming : 0;
	if (rc == DHS_OK && (coming || s->copies || s->saving))
		rc = dhs_work_new(context, context->copy_stream, &behind);
	if (rc == DHS_OK)
		rc = dhs_residency_copy_new(context, &copy);
	if (rc) {
		dhs_work_cancel(context, behind);
		return rc;
	}
	context->works.call++;
	dhs_refill_call_off(context, s);
	dhs_residency_age(context, s, copy);
	pages = dhs_residency_evict(context, s, copy);
	after = pages ? s->last : NULL;
	if (pages && context->copies) {
		dhs_work_set(context, &copy->also, s->last);
		after = copy;
	}
	if (behind && (pages || coming)) {
		if (pages)
			dhs_work_set(context, &behind->also, s->last);
		after = behind;
	}
	number = after && after->state != DHS_WORK_PASSED ? after->number : 0;
	rc = dhs_residency_copy(context, copy);
	if (rc == DHS_OK && behind)
		rc = dhs_work_record(context, behind);
	dhs_work_unref(context, &behind);
	if (rc)
		rc = dhs_context_lose(context, "dhs_session_evict", rc);
	else if (fence)
		*fence = number ? dhs_handle(context, DHS_KIND_FENCE, number) : 0;
	dhs_stats_publish(context);
	return rc;
}

void dhs_session_release_hot(dhs_context *context, struct dhs_session_state *s)
{
	while (s->hot_pages)
		dhs_elastic_drop(context, s);
}

int dhs_session_destroy(dhs_context *context, dhs_session session)
{
	DHS_GUARD(guard);
	struct dhs_session_state *s;
	int rc = dhs_context_enter("dhs_session_destroy", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_destroy", context, session, 1, &s);
	if (rc == DHS_OK)
		rc = drop_extension("dhs_session_destroy", context, s);
	if (rc)
		return rc;
	cancel_steps(s);
	s->keep = 0;
	s->reserve_pages = 0;
	s->settled = 0;
	dhs_refill_call_off(context, s);
	dhs_residency_cut(context, s, 0);
	if (s->suspended)
		context->sessions.suspended--;
	else
		dhs_session_release_hot(context, s);
	/* `last` and `copies` stay: a step and a resume may still use the tables of the index. */
	dhs_work_unref(context, &s->written);
	s->live = 0;
	context->sessions.live--;
	give_index(&context->sessions, context->max_sessions, s->index);
	dhs_stats_publish(context);
	return DHS_OK;
}

int dhs_session_get_info(dhs_context *context, dhs_session session, dhs_session_info *info)
{
	DHS_GUARD(guard);
	dhs_session_info out = DHS_INIT(dhs_session_info);
	struct dhs_session_state *s;
	uint32_t page_rows;
	int rc = dhs_context_enter("dhs_session_get_info", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_get_info", context, session, 1, &s);
	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_session_get_info", "info", info);
	if (rc)
		return rc;
	page_rows = context->world.geometry.page_rows;
	out.rows = s->settled;
	out.rows_bound = dhs_session_bound(s);
	out.tokens = out.rows * context->tokens_per_row;
	for (uint32_t p = 0; p < dhs_ceil_div(s->settled, page_rows); p++)
		if (s->page[p] < 0)
			out.host_only_rows += dhs_min_u32(page_rows, s->settled - p * page_rows);
	out.device_rows = out.rows - out.host_only_rows;
	out.resident_pages = s->resident;
	out.elastic_pages = dhs_elastic_pages(context, s);
	if (s->suspended)
		out.flags |= DHS_SESSION_SUSPENDED;
	else
		out.required_pages = context->policy == DHS_POLICY_FULL
		                         ? s->spares + s->tail_used
		                         : context->world.geometry.hot_pages + s->keep;
	out.host_rows = (uint64_t)s->host_pages * page_rows;
	dhs_options_write(&out, sizeof(out), info);
	return DHS_OK;
}
