/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "elastic.h"
#include "residency.h"

#include <string.h>

static struct dhs_step_record *record_of(dhs_context *context, uint64_t number)
{
	return &context->step[number % DHS_MAX_STEPS_IN_FLIGHT];
}

/* ---- what the device said about a step ---- */

static void add_counts(dhs_context *context, const struct dhs_counts *c)
{
	const struct dhs_geometry *g = &context->world.geometry;
	struct dhs_stats *t = &context->totals;

	t->plans += c->plans;
	t->page_hits += c->page_hits;
	t->hot_hits += c->hot_hits;
	t->misses += c->misses;
	t->repeats += c->repeats;
	t->staged += c->staged;
	t->victims += c->victims;
	t->bad_rows += c->bad_rows;
	t->fetched_bytes += c->fetched_bytes;
	t->mirrored_rows += c->mirrored_rows;
	t->backup_bytes += c->mirrored_rows * g->row_bytes * g->layers;
	t->order_errors += c->order_errors;
	t->warmed_rows += c->warmed_rows;
	t->warm_bytes += c->warm_bytes;
}

/* A session whose device length is not what settle said is of no use any more:
 * nobody knows which of its rows are whose. */
static void compare(dhs_context *context, const struct dhs_step_record *step)
{
	const struct dhs_result *r = &context->world.result[step->number % DHS_MAX_STEPS_IN_FLIGHT];
	int committed = *r->committed != 0;

	for (uint32_t i = 0; i < step->count; i++) {
		const struct dhs_step_part *part = &step->part[i];
		struct dhs_session_state *s;
		int64_t length = committed ? r->length[i] : -1;

		if (part->index == DHS_PADDING || part->length < 0)
			continue;
		if (step->state == DHS_STEP_ABORTED && (!committed || !r->kept[i]))
			continue;
		if (step->state == DHS_STEP_SETTLED && length == part->length)
			continue;
		s = &context->sessions.session[part->index];
		if (!s->live || s->generation != part->generation)
			continue;
		s->failed = 1;
		dhs_context_log(
			context, DHS_LOG_ERROR,
			"step %llu, entry %u: the device has %lld rows, settle said %lld: the session "
			"has failed",
			(unsigned long long)step->number, i, (long long)length, (long long)part->length);
	}
}

static struct dhs_session_state *part_session(dhs_context *context,
                                              const struct dhs_step_part *part)
{
	return part->index == DHS_PADDING ? NULL : &context->sessions.session[part->index];
}

/* What the step measured of its sessions' hot caches. */
static void take_samples(dhs_context *context, const struct dhs_step_record *step,
                         struct dhs_result *r)
{
	for (uint32_t i = 0; i < step->count; i++) {
		const struct dhs_step_part *part = &step->part[i];
		struct dhs_session_state *s = part_session(context, part);

		if (s && s->live && s->generation == part->generation)
			dhs_curve_add(&s->curve, &r->sample[i]);
		r->sample[i] = (struct dhs_sample){ 0 };
	}
}

int dhs_step_take_over(dhs_context *context, struct dhs_step_record *step)
{
	struct dhs_result *r;
	int rc;

	if (step->state == DHS_STEP_NONE || step->taken)
		return DHS_OK;
	rc = dhs_work_sync(context, step->work);
	if (rc)
		return rc;
	r = &context->world.result[step->number % DHS_MAX_STEPS_IN_FLIGHT];
	add_counts(context, r->counts);
	*r->counts = (struct dhs_counts){ 0 };
	compare(context, step);
	take_samples(context, step, r);
	*r->committed = 0;
	step->taken = 1;
	dhs_work_unref(context, &step->work);
	return DHS_OK;
}

/* ---- begin: checks ---- */

static int check_entry(const dhs_batch *batch, size_t i, const dhs_step_entry *e)
{
	if (!e->session && (e->new_rows || e->queries))
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"dhs_step_begin: entries[%zu] has no session but %u new rows and %u queries", i,
			e->new_rows, e->queries);
	if (e->new_rows > batch->context->max_new_rows)
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"dhs_step_begin: entries[%zu].new_rows is %u; the context's max_new_rows is %u", i,
			e->new_rows, batch->context->max_new_rows);
	if (e->queries > batch->max_queries)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_step_begin: entries[%zu].queries is %u; the batch's max_queries is %u",
		                i, e->queries, batch->max_queries);
	return DHS_OK;
}

static int check_session(dhs_context *context, size_t i, const dhs_step_entry *e,
                         const struct dhs_session_state *s)
{
	uint32_t max_rows = context->world.geometry.max_rows;

	if (s->extension)
		return dhs_fail(DHS_ERR_ORDER,
		                "dhs_step_begin: entries[%zu]: an extension of %u rows is not committed", i,
		                s->extension);
	if (s->suspended)
		return dhs_fail(DHS_ERR_ORDER,
		                "dhs_step_begin: entries[%zu]: the session is suspended; resume it first",
		                i);
	if (e->new_rows > max_rows - dhs_session_bound(s))
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_step_begin: entries[%zu].new_rows is %u; the session may have %u rows "
		                "already and max_rows is %u",
		                i, e->new_rows, dhs_session_bound(s), max_rows);
	return DHS_OK;
}

/* Reads the entries into the step's parts (index, generation, new rows) and its
 * world entries (queries); both are free, as the step before the last has passed.
 * Nothing of the context's state is in them until the step begins. */
static int read_entries(dhs_batch *batch, struct dhs_step_record *step, const void *entries,
                        size_t count, size_t entry_size)
{
	dhs_context *context = batch->context;

	for (size_t i = 0; i < count; i++) {
		struct dhs_step_part *part = &step->part[i];
		struct dhs_session_state *s = NULL;
		dhs_step_entry e;
		int rc = dhs_options_read_element("dhs_step_begin", "entries", i, entries, entry_size, &e,
		                                  sizeof(e));

		if (rc == DHS_OK)
			rc = check_entry(batch, i, &e);
		if (rc == DHS_OK && e.session)
			rc = dhs_session_find("dhs_step_begin", context, e.session, 0, &s);
		if (rc == DHS_OK && s)
			rc = check_session(context, i, &e, s);
		if (rc)
			return rc;
		for (size_t j = 0; s && j < i && s->seen == context->works.call; j++)
			if (step->part[j].index == s->index)
				return dhs_fail(
					DHS_ERR_ARGUMENT,
					"dhs_step_begin: entries[%zu].session stands in the step already, as "
					"entries[%zu]",
					i, j);
		if (s)
			s->seen = context->works.call;
		*part = (struct dhs_step_part){ .index = s ? s->index : DHS_PADDING,
			                            .generation = s ? s->generation : 0,
			                            .epoch = s ? s->epoch : 0,
			                            .new_rows = e.new_rows,
			                            .length = -1 };
		step->upload.entry[i].queries = (int32_t)e.queries;
	}
	return DHS_OK;
}

/* The step before this one, if its end is open and this begin marks it: it is of
 * this batch, or one of these sessions stands in it. */
static struct dhs_step_record *ended_step(dhs_batch *batch, const struct dhs_step_record *step,
                                          uint32_t count)
{
	dhs_context *context = batch->context;
	struct dhs_step_record *previous = record_of(context, context->next_step - 1);

	if (previous->state == DHS_STEP_NONE || !dhs_work_open(previous->work))
		return NULL;
	if (previous->batch == batch)
		return previous;
	for (uint32_t i = 0; i < count; i++) {
		struct dhs_session_state *s = part_session(context, &step->part[i]);

		if (s && s->begun_in == previous->number)
			return previous;
	}
	return NULL;
}

static int pending(const char *what, uint32_t i)
{
	return dhs_fail(DHS_ERR_PENDING,
	                "dhs_step_begin: %s %u relies on a step of another batch whose end is not "
	                "recorded: settle it first",
	                what, i);
}

/* Everything that the step relies on must be recorded, or be recorded by this
 * very call (`ended`). */
static int check_open(dhs_batch *batch, const struct dhs_step_record *step, uint32_t count,
                      const struct dhs_work *ended)
{
	dhs_context *context = batch->context;
	const struct dhs_page *page = context->pool.page;

	for (uint32_t i = 0; batch->fresh && i < batch->pool_pages; i++)
		if (dhs_after_open(&page[batch->staging_page[i]].after, ended))
			return pending("staging page", i);
	for (uint32_t i = 0; i < count; i++) {
		struct dhs_session_state *s = part_session(context, &step->part[i]);

		if (!s)
			continue;
		if (dhs_work_open(s->last) && s->last != ended)
			return pending("the session of entry", i);
		for (uint32_t j = s->hot_told; j < context->world.geometry.hot_pages; j++)
			if (dhs_after_open(&page[s->hot[j]].after, ended))
				return pending("a hot page of entry", i);
		for (uint32_t j = 0; s->fresh && j < s->spares; j++)
			if (dhs_after_open(&page[s->spare[j]].after, ended))
				return pending("a tail page of entry", i);
	}
	return DHS_OK;
}

/* Rows of the step's sessions that may find no place in their hot caches. */
static uint64_t staging_share(const dhs_context *context, uint32_t top_k, uint32_t queries,
                              uint32_t bound)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint64_t rows = (uint64_t)queries * top_k;

	if (context->policy == DHS_POLICY_FULL)
		return 0;
	if (rows > bound)
		rows = bound;
	return rows > g->hot_rows ? rows - g->hot_rows : 0;
}

struct needs {
	uint64_t host_pages, pages, staging;
};

static struct needs needs_of(dhs_batch *batch, const struct dhs_step_record *step, uint32_t count)
{
	dhs_context *context = batch->context;
	struct needs n = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		struct dhs_session_state *s = part_session(context, &step->part[i]);
		uint32_t bound;

		if (!s)
			continue;
		bound = dhs_session_bound(s) + step->part[i].new_rows;
		n.host_pages += dhs_residency_host_needs(context, s, bound);
		if (context->policy == DHS_POLICY_FULL)
			n.pages += dhs_residency_map_needs(context, s, bound);
		n.staging +=
			staging_share(context, batch->top_k, (uint32_t)step->upload.entry[i].queries, bound);
	}
	return n;
}

static int refuse(dhs_context *context, int code, const char *what, uint64_t need, uint64_t have)
{
	return dhs_context_refuse(
		context, dhs_fail(code, "dhs_step_begin: the step needs %llu %s; there are %llu",
	                      (unsigned long long)need, what, (unsigned long long)have));
}

static int room_pending(const char *what, uint64_t need, uint64_t have, uint64_t later)
{
	return dhs_fail(
		DHS_ERR_PENDING,
		"dhs_step_begin: the step needs %llu %s; there are %llu, and %llu more once steps "
		"of other batches are settled",
		(unsigned long long)need, what, (unsigned long long)have, (unsigned long long)later);
}

static int check_room(dhs_batch *batch, const struct dhs_step_record *step, uint32_t count,
                      const struct dhs_work *ended)
{
	dhs_context *context = batch->context;
	struct needs n = needs_of(batch, step, count);
	uint64_t host = dhs_tier_free_after(context, ended);
	uint64_t host_later = context->tier.free_count + context->tier.draining_count - host;
	uint64_t pages = dhs_pool_free_after(context, ended);
	uint64_t later = context->pool.free.count + (uint64_t)context->pool.draining.count - pages;

	if (n.host_pages > host + host_later)
		return refuse(context, DHS_ERR_HOST_MEMORY, "free host pages", n.host_pages, host);
	if (n.host_pages > host)
		return room_pending("free host pages", n.host_pages, host, host_later);
	if (n.staging > batch->staging_rows)
		return refuse(context, DHS_ERR_DEVICE_MEMORY, "staging rows", n.staging,
		              batch->staging_rows);
	if (n.pages > pages + later)
		return refuse(context, DHS_ERR_DEVICE_MEMORY, "free pages", n.pages, pages);
	if (n.pages > pages)
		return room_pending("free pages", n.pages, pages, later);
	return DHS_OK;
}

/* ---- begin: what cannot fail but by losing the device ---- */

static int wait_for_staging(dhs_batch *batch, dhs_stream stream)
{
	dhs_context *context = batch->context;
	int rc = DHS_OK;

	for (uint32_t i = 0; rc == DHS_OK && batch->fresh && i < batch->pool_pages; i++)
		rc = dhs_after_wait(context, &context->pool.page[batch->staging_page[i]].after, stream);
	batch->fresh = 0;
	return rc;
}

/* Pages of the hot cache that the step may use: an elastic one that drains comes later. */
static uint32_t ready_hot_pages(const dhs_context *context, const struct dhs_session_state *s)
{
	uint32_t n = s->hot_told;

	while (n < s->hot_pages && !dhs_after_open(&context->pool.page[s->hot[n]].after, NULL))
		n++;
	return n;
}

static int wait_for_hot_pages(dhs_context *context, struct dhs_session_state *s, uint32_t pages,
                              dhs_stream stream)
{
	int rc = DHS_OK;

	for (uint32_t i = s->hot_told; rc == DHS_OK && i < pages; i++)
		rc = dhs_after_wait(context, &context->pool.page[s->hot[i]].after, stream);
	return rc;
}

/* Aging of all sessions first: what it copies must be enqueued before a page
 * is used again. */
static int age_sessions(dhs_context *context, const struct dhs_step_record *step, uint32_t count,
                        struct dhs_work *copy)
{
	for (uint32_t i = 0; i < count; i++) {
		struct dhs_session_state *s = part_session(context, &step->part[i]);

		if (s)
			dhs_residency_age(context, s, copy);
	}
	return dhs_residency_copy(context, copy);
}

/* The device has none but these pages of the hot cache, and all of them. */
static int hot_is_told(const struct dhs_session_state *s, uint32_t pages)
{
	return s->hot_told == pages && !s->hot_withdrawn;
}

/* What of a session has changed, with so many pages of the hot cache. */
static void fill_patch(dhs_context *context, struct dhs_session_state *s, uint32_t hot,
                       struct dhs_upload *u, uint64_t *data)
{
	struct dhs_patch *p = &u->patch[u->patches++];
	uint32_t hot_pages = hot_is_told(s, hot) ? 0 : hot;
	uint32_t pages = s->dirty_low < s->dirty_high ? s->dirty_high - s->dirty_low : 0;
	int32_t *to = u->data + *data;

	*p = (struct dhs_patch){ .index = (int32_t)s->index,
		                     .length = s->set_length ? (int32_t)s->settled : -1,
		                     .drop_from = s->drop_from == UINT32_MAX ? -1 : (int32_t)s->drop_from,
		                     .first_page = pages ? (int32_t)s->dirty_low : 0,
		                     .pages = (int32_t)pages,
		                     .hot_pages = (int32_t)hot_pages,
		                     .hot_places = (int32_t)dhs_elastic_places(context, hot),
		                     .hot_kept = (int32_t)dhs_elastic_places(context, s->hot_kept),
		                     .data = *data };
	memcpy(to, s->page + p->first_page, pages * sizeof(*to));
	memcpy(to + pages, s->host + p->first_page, pages * sizeof(*to));
	memcpy(to + 2 * (size_t)pages, s->hot, hot_pages * sizeof(*to));
	*data += 2 * (uint64_t)pages + hot_pages;
	s->hot_told = hot;
	s->hot_kept = hot;
	s->hot_withdrawn = 0;
	s->fresh = 0;
	s->set_length = 0;
	s->drop_from = UINT32_MAX;
	s->dirty_low = UINT32_MAX;
	s->dirty_high = 0;
}

static int begin_session(dhs_batch *batch, struct dhs_step_record *step, uint32_t i,
                         dhs_stream stream, uint64_t *data)
{
	dhs_context *context = batch->context;
	struct dhs_step_part *part = &step->part[i];
	struct dhs_session_state *s = part_session(context, part);
	uint32_t bound = dhs_session_bound(s) + part->new_rows, hot = ready_hot_pages(context, s);
	int rc = dhs_work_wait(context, s->last, stream);

	if (rc == DHS_OK)
		rc = dhs_work_wait(context, s->copies, stream);
	if (rc == DHS_OK)
		rc = wait_for_hot_pages(context, s, hot, stream);
	dhs_work_unref(context, &s->copies);
	dhs_residency_host_take(context, s, bound);
	if (rc == DHS_OK)
		rc = dhs_residency_host_ready(context, s, stream);
	if (rc == DHS_OK)
		rc = dhs_residency_map(context, s, bound, stream);
	if (rc)
		return rc;
	if (s->fresh || s->set_length || s->drop_from != UINT32_MAX || !hot_is_told(s, hot) ||
	    s->dirty_low < s->dirty_high)
		fill_patch(context, s, hot, &step->upload, data);
	batch->all_resident &= s->extent == s->resident + s->tail_used;
	s->unsettled_rows += part->new_rows;
	s->unsettled_steps++;
	s->begun_in = s->used_at = step->number;
	dhs_work_set(context, &s->last, step->work);
	return DHS_OK;
}

/* Where each entry's share of staging begins. */
static void fill_world_entries(dhs_batch *batch, struct dhs_step_record *step)
{
	dhs_context *context = batch->context;
	uint64_t staging = 0;

	batch->queries = 0;
	batch->new_rows = 0;
	for (uint32_t i = 0; i < step->count; i++) {
		struct dhs_world_entry *e = &step->upload.entry[i];
		struct dhs_session_state *s = part_session(context, &step->part[i]);
		uint64_t share = 0;

		if (s)
			share =
				staging_share(context, batch->top_k, (uint32_t)e->queries, dhs_session_bound(s));
		e->index = s ? (int32_t)s->index : -1;
		e->new_rows = (int32_t)step->part[i].new_rows;
		e->bound = s ? (int32_t)dhs_session_bound(s) : 0;
		e->staging_first = (int32_t)staging;
		staging += share;
		batch->queries = dhs_max_u32(batch->queries, (uint32_t)e->queries);
		batch->new_rows = dhs_max_u32(batch->new_rows, (uint32_t)e->new_rows);
	}
}

static int begin_work(dhs_batch *batch, struct dhs_step_record *step, struct dhs_step_record *ended,
                      struct dhs_work *copy, dhs_stream stream)
{
	dhs_context *context = batch->context;
	struct dhs_upload *u = &step->upload;
	uint64_t data = 0;
	int rc = ended ? dhs_work_end("dhs_step_begin", context, ended->work) : DHS_OK;

	if (rc == DHS_OK)
		rc = age_sessions(context, step, step->count, copy);
	if (rc == DHS_OK)
		rc = dhs_work_wait(context, batch->last, stream);
	if (rc == DHS_OK)
		rc = wait_for_staging(batch, stream);
	u->patches = 0;
	batch->all_resident = 1;
	for (uint32_t i = 0; rc == DHS_OK && i < step->count; i++)
		if (part_session(context, &step->part[i]))
			rc = begin_session(batch, step, i, stream, &data);
	if (rc)
		return rc;
	fill_world_entries(batch, step);
	u->count = step->count;
	u->queries = batch->queries;
	u->new_rows = batch->new_rows;
	u->in_flight = step->number % DHS_MAX_STEPS_IN_FLIGHT;
	u->measured = (uint32_t)(step->number % context->world.geometry.groups);
	dhs_work_set(context, &batch->last, step->work);
	return context->ops->apply(context->device, &context->world, batch->state, u, stream);
}

/* The parts of begin that may fail; *ended is the step whose end this one marks. */
static int begin_checks(dhs_batch *batch, struct dhs_step_record *step, const void *entries,
                        size_t count, size_t entry_size, struct dhs_step_record **ended)
{
	dhs_context *context = batch->context;
	int passed = 1, rc;

	rc = dhs_work_query(context, step->work, &passed);
	if (rc == DHS_OK) {
		context->totals.flow_waits += !passed;
		rc = dhs_step_take_over(context, step);
	}
	if (rc)
		return dhs_context_lose(context, "dhs_step_begin", rc);
	dhs_works_collect(context);
	rc = read_entries(batch, step, entries, count, entry_size);
	if (rc)
		return rc;
	*ended = ended_step(batch, step, (uint32_t)count);
	rc = check_open(batch, step, (uint32_t)count, *ended ? (*ended)->work : NULL);
	if (rc == DHS_OK)
		rc = check_room(batch, step, (uint32_t)count, *ended ? (*ended)->work : NULL);
	return rc;
}

static int begin(dhs_batch *batch, const void *entries, size_t count, size_t entry_size,
                 dhs_stream stream, dhs_step *out)
{
	dhs_context *context = batch->context;
	struct dhs_step_record *step = record_of(context, context->next_step), *ended = NULL;
	struct dhs_work *work, *copy;
	int rc;

	if (step->state == DHS_STEP_BEGUN)
		return dhs_fail(
			DHS_ERR_ORDER,
			"dhs_step_begin: step %llu is neither settled nor aborted; at most %d steps "
			"are in flight",
			(unsigned long long)step->number, DHS_MAX_STEPS_IN_FLIGHT);
	rc = begin_checks(batch, step, entries, count, entry_size, &ended);
	if (rc == DHS_OK && ended)
		rc = dhs_work_end_ready("dhs_step_begin", context, ended->work);
	if (rc == DHS_OK)
		rc = dhs_work_new(context, stream, &work);
	if (rc)
		return rc;
	rc = dhs_residency_copy_new(context, &copy);
	if (rc) {
		dhs_work_cancel(context, work);
		return rc;
	}
	step->state = DHS_STEP_BEGUN;
	step->number = context->next_step++;
	step->batch = batch;
	step->work = work;
	step->count = (uint32_t)count;
	step->taken = 0;
	rc = begin_work(batch, step, ended, copy, stream);
	if (rc)
		return dhs_context_lose(context, "dhs_step_begin", rc);
	batch->current = step->number;
	batch->count = (uint32_t)count;
	batch->begun = 1;
	*out = dhs_handle(context, DHS_KIND_STEP, step->number);
	return DHS_OK;
}

int dhs_step_begin(dhs_batch *batch, const dhs_step_entry *entries, size_t count, size_t entry_size,
                   dhs_stream stream, dhs_step *step)
{
	DHS_GUARD(guard);
	int rc = dhs_batch_enter("dhs_step_begin", batch, &guard);

	if (rc)
		return rc;
	rc = dhs_options_check_pointer("dhs_step_begin", "step", step, sizeof(*step));
	if (rc)
		return rc;
	if (count > batch->max_sessions)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_step_begin: count is %zu; the batch takes at most %u entries", count,
		                batch->max_sessions);
	if (count && !entries)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_step_begin: entries is NULL and count is %zu",
		                count);
	if (entry_size < sizeof(dhs_step_entry) || entry_size > 4096)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_step_begin: entry_size is %zu; it must be %zu to 4096", entry_size,
		                sizeof(dhs_step_entry));
	rc = dhs_stream_ready("dhs_step_begin", batch->context, stream);
	if (rc)
		return rc;
	batch->context->works.call++;
	rc = begin(batch, entries, count, entry_size, stream, step);
	dhs_stats_publish(batch->context);
	return rc;
}

/* ---- settle, end, abort ---- */

static int find_step(const char *call, dhs_context *context, dhs_step handle,
                     struct dhs_guard *guard, struct dhs_step_record **step)
{
	uint64_t number = handle & DHS_NUMBER_MASK;
	int rc = dhs_context_enter(call, context, guard);

	if (rc == DHS_OK)
		rc = dhs_handle_check(call, "step", context, DHS_KIND_STEP, handle);
	if (rc)
		return rc;
	*step = record_of(context, number);
	if ((*step)->number != number || (*step)->state != DHS_STEP_BEGUN)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: step %llu is dead: settled, aborted or never begun",
		                call, (unsigned long long)number);
	return DHS_OK;
}

static int check_kept(const char *call, dhs_context *context, const struct dhs_step_record *step,
                      const uint32_t *kept, size_t count)
{
	const struct dhs_step_record *before = record_of(context, step->number - 1);

	if (before->state == DHS_STEP_BEGUN && before->number < step->number)
		return dhs_fail(DHS_ERR_ORDER, "%s: step %llu is not settled yet", call,
		                (unsigned long long)before->number);
	if (count != step->count)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: count is %zu; the step has %u entries", call, count,
		                step->count);
	if (count && dhs_options_check_pointer(call, "kept", kept, sizeof(*kept)))
		return DHS_ERR_ARGUMENT;
	for (size_t i = 0; i < count; i++)
		if (kept[i] > step->part[i].new_rows)
			return dhs_fail(DHS_ERR_ARGUMENT, "%s: kept[%zu] is %u; the entry has %u new rows",
			                call, i, kept[i], step->part[i].new_rows);
	return DHS_OK;
}

/* The session of an entry, unless truncate or destroy cancelled its part. */
static struct dhs_session_state *live_part(dhs_context *context, const struct dhs_step_part *part)
{
	struct dhs_session_state *s = part_session(context, part);

	return s && s->live && s->generation == part->generation && s->epoch == part->epoch ? s : NULL;
}

static void leave(dhs_context *context, struct dhs_step_record *step, enum dhs_step_state state)
{
	if (step->batch && step->batch->current == step->number)
		step->batch->current = 0;
	step->state = state;
	if (state == DHS_STEP_SETTLED)
		context->totals.steps_settled++;
	else
		context->totals.steps_aborted++;
}

static int record_end(const char *call, dhs_context *context, struct dhs_step_record *step)
{
	return dhs_work_open(step->work) ? dhs_work_end(call, context, step->work) : DHS_OK;
}

static int settle(const char *call, dhs_context *context, struct dhs_step_record *step,
                  const uint32_t *kept)
{
	int rc = record_end(call, context, step);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < step->count; i++) {
		struct dhs_step_part *part = &step->part[i];
		struct dhs_session_state *s = live_part(context, part);

		if (!s)
			continue;
		s->settled += kept[i];
		s->unsettled_rows -= part->new_rows;
		s->unsettled_steps--;
		part->length = s->settled;
		dhs_work_set(context, &s->written, step->work);
	}
	leave(context, step, DHS_STEP_SETTLED);
	return DHS_OK;
}

/* The stream of a step whose end is not marked must be able to take an event. */
static int end_ready(const char *call, dhs_context *context, const struct dhs_step_record *step)
{
	return dhs_work_open(step->work) ? dhs_work_end_ready(call, context, step->work) : DHS_OK;
}

int dhs_step_settle(dhs_context *context, dhs_step step, const uint32_t *kept, size_t count)
{
	DHS_GUARD(guard);
	struct dhs_step_record *record;
	int rc = find_step("dhs_step_settle", context, step, &guard, &record);

	if (rc == DHS_OK)
		rc = check_kept("dhs_step_settle", context, record, kept, count);
	if (rc == DHS_OK)
		rc = end_ready("dhs_step_settle", context, record);
	if (rc)
		return rc;
	rc = settle("dhs_step_settle", context, record, kept);
	dhs_stats_publish(context);
	return rc;
}

static int commit_known(dhs_context *context, struct dhs_step_record *step, const uint32_t *kept)
{
	for (uint32_t i = 0; i < step->count; i++)
		step->upload.kept[i] = (int32_t)kept[i];
	return context->ops->commit(context->device, &context->world, step->batch->state, step->count,
	                            step->upload.kept, step->work->stream);
}

int dhs_step_end(dhs_context *context, dhs_step step, const uint32_t *kept, size_t count)
{
	DHS_GUARD(guard);
	struct dhs_step_record *record;
	int rc = find_step("dhs_step_end", context, step, &guard, &record);

	if (rc == DHS_OK)
		rc = check_kept("dhs_step_end", context, record, kept, count);
	if (rc)
		return rc;
	if (!dhs_work_open(record->work))
		return dhs_fail(DHS_ERR_ORDER,
		                "dhs_step_end: a later begin has marked the end of step %llu; settle it",
		                (unsigned long long)record->number);
	rc = dhs_stream_ready("dhs_step_end", context, record->work->stream);
	if (rc)
		return rc;
	rc = commit_known(context, record, kept);
	if (rc)
		return dhs_context_lose(context, "dhs_step_end", rc);
	rc = settle("dhs_step_end", context, record, kept);
	dhs_stats_publish(context);
	return rc;
}

/* What the step counted before it was given up; its end moves behind that, also
 * when a begin of another batch has marked it.  Where its own batch has begun a later
 * step, that one tells, and nothing may be enqueued beside it. */
static int report(dhs_context *context, struct dhs_step_record *step)
{
	int capturing, rc = DHS_OK;

	if (step->batch->last != step->work)
		return DHS_OK;
	if (dhs_stream_check("dhs_step_abort", context, step->work->stream, &capturing) == DHS_OK)
		rc = context->ops->report(context->device, &context->world, step->batch->state,
		                          step->number % DHS_MAX_STEPS_IN_FLIGHT, step->work->stream);
	if (rc)
		return dhs_context_lose(context, "dhs_step_abort", rc);
	return dhs_work_end("dhs_step_abort", context, step->work);
}

int dhs_step_abort(dhs_context *context, dhs_step step)
{
	DHS_GUARD(guard);
	struct dhs_step_record *record;
	int rc = find_step("dhs_step_abort", context, step, &guard, &record);

	if (rc == DHS_OK)
		rc = dhs_work_end_ready("dhs_step_abort", context, record->work);
	if (rc == DHS_OK)
		rc = report(context, record);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < record->count; i++) {
		struct dhs_step_part *part = &record->part[i];
		struct dhs_session_state *s = live_part(context, part);

		if (!s)
			continue;
		s->unsettled_rows -= part->new_rows;
		s->unsettled_steps--;
		part->length = s->settled;
	}
	leave(context, record, DHS_STEP_ABORTED);
	dhs_stats_publish(context);
	return DHS_OK;
}
