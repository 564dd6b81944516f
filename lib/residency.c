/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "residency.h"

#include "elastic.h"
#include "worth.h"

static uint32_t page_rows(const dhs_context *context)
{
	return context->world.geometry.page_rows;
}

/* The next begin tells the device about logical page p. */
static void mark(struct dhs_session_state *s, uint32_t p)
{
	s->dirty_low = dhs_min_u32(s->dirty_low, p);
	s->dirty_high = dhs_max_u32(s->dirty_high, p + 1);
}

/* A pool page that the session no longer maps stays with it as a spare, or goes
 * back to the pool. */
static void put_page(dhs_context *context, struct dhs_session_state *s, int32_t page)
{
	if (s->spares + s->tail_used < s->keep)
		s->spare[s->spares++] = page;
	else
		dhs_pool_release(context, page);
}

int dhs_residency_backed_up(const dhs_context *context, const struct dhs_session_state *s,
                            uint32_t p)
{
	return context->backup == DHS_BACKUP_EAGER || s->backed[p] == page_rows(context);
}

/* Logical page p is, or is no longer, history on the device without a whole host copy. */
static void count_unbacked(dhs_context *context, struct dhs_session_state *s, uint32_t p, int more)
{
	if (dhs_residency_backed_up(context, s, p))
		return;
	s->unbacked += (uint32_t)more;
	context->unbacked += (uint32_t)more;
}

/* Gathers the copy of what of the first `end` rows of logical page p has none yet. */
static void copy_rows(dhs_context *context, struct dhs_session_state *s, uint32_t p, uint32_t end)
{
	uint32_t done = s->backed[p];
	uint32_t rows = end - done;

	context->copy[context->copies++] = (struct dhs_copy){
		.page = s->page[p], .host_page = s->host[p], .first = done, .rows = rows
	};
	s->backed[p] = end;
	context->totals.backup_rows += rows;
	context->totals.backup_bytes +=
		(uint64_t)rows * context->world.geometry.row_bytes * context->world.geometry.layers;
}

void dhs_residency_back_up(dhs_context *context, struct dhs_session_state *s, uint32_t p)
{
	count_unbacked(context, s, p, -1);
	copy_rows(context, s, p, page_rows(context));
}

/* Of two works of the library's stream, which is in order. */
static struct dhs_work *later(struct dhs_work *a, struct dhs_work *b)
{
	return !a || (b && b->number > a->number) ? b : a;
}

/* From here on the session's next begin waits for what ticks copied of its pages, too. */
static void join_saving(dhs_context *context, struct dhs_session_state *s)
{
	dhs_work_set(context, &s->copies, later(s->copies, s->saving));
	dhs_work_unref(context, &s->saving);
}

/* Takes a page of history from the device, its host copy made sure of: the pool page, which
 * is nobody's then. */
static int32_t lift(dhs_context *context, struct dhs_session_state *s, uint32_t p,
                    struct dhs_work *copy)
{
	int32_t page = s->page[p];

	if (!dhs_residency_backed_up(context, s, p)) {
		dhs_residency_back_up(context, s, p);
		dhs_work_set(context, &s->copies, copy);
	}
	join_saving(context, s);
	/* A copy may still read it, or a refill write it. */
	dhs_after_set(context, &context->pool.page[page].after, s->last, s->copies);
	s->page[p] = -1;
	s->resident--;
	s->refill_from = dhs_max_u32(s->refill_from, p + 1);
	mark(s, p);
	if (context->keeps_history)
		context->totals.evicted_pages++;
	return page;
}

static void drop(dhs_context *context, struct dhs_session_state *s, uint32_t p,
                 struct dhs_work *copy)
{
	put_page(context, s, lift(context, s, p, copy));
}

void dhs_residency_send(struct dhs_session_state *s, uint32_t p)
{
	s->on_way[p] = 1;
	s->coming++;
}

void dhs_residency_call_off(struct dhs_session_state *s, uint32_t p)
{
	s->on_way[p] = 0;
	s->coming--;
	s->refill_from = UINT32_MAX;
}

void dhs_residency_land(dhs_context *context, struct dhs_session_state *s, uint32_t p, int32_t page,
                        struct dhs_work *copy)
{
	s->page[p] = page;
	s->on_way[p] = 0;
	s->coming--;
	s->resident++;
	s->lowest = dhs_min_u32(s->lowest, p);
	mark(s, p);
	dhs_work_set(context, &s->copies, later(s->copies, copy));
}

static uint32_t lowest_resident(struct dhs_session_state *s)
{
	while (s->page[s->lowest] < 0)
		s->lowest++;
	return s->lowest;
}

static uint32_t history_pages(const dhs_context *context, uint32_t rows)
{
	return rows > context->tail_rows ? (rows - context->tail_rows) / page_rows(context) : 0;
}

/* A page turned history under adaptive: the session needs another one for its
 * tail, and without a free one it gives up the oldest that it has. */
static void replace(dhs_context *context, struct dhs_session_state *s, struct dhs_work *copy)
{
	int32_t page;

	if (s->spares + s->tail_used >= s->keep)
		return;
	page = dhs_pool_take(context);
	if (page < 0 && dhs_refill_call_off(context, NULL))
		page = dhs_pool_take(context);
	if (page >= 0)
		s->spare[s->spares++] = page;
	else
		drop(context, s, lowest_resident(s), copy);
}

void dhs_residency_age(dhs_context *context, struct dhs_session_state *s, struct dhs_work *copy)
{
	uint32_t target = history_pages(context, s->settled);

	if (context->policy == DHS_POLICY_FULL)
		return;
	while (s->first_tail < target) {
		uint32_t p = s->first_tail++;

		if (s->page[p] < 0) {
			s->refill_from = dhs_max_u32(s->refill_from, p + 1);
			continue;
		}
		s->tail_used--;
		s->resident++;
		count_unbacked(context, s, p, 1);
		if (!context->keeps_history)
			drop(context, s, p, copy);
		else
			replace(context, s, copy);
	}
}

uint32_t dhs_residency_aging(const dhs_context *context, const struct dhs_session_state *s)
{
	uint32_t target = history_pages(context, s->settled), pages = 0;

	if (context->policy == DHS_POLICY_FULL)
		return 0;
	for (uint32_t p = s->first_tail; p < target; p++)
		pages += s->page[p] >= 0;
	return pages;
}

uint32_t dhs_residency_take(dhs_context *context, struct dhs_session_state *s, uint32_t most,
                            struct dhs_work *copy)
{
	uint32_t pages = dhs_min_u32(most, s->resident);

	for (uint32_t i = 0; i < pages; i++)
		drop(context, s, lowest_resident(s), copy);
	return pages;
}

uint32_t dhs_residency_evict(dhs_context *context, struct dhs_session_state *s,
                             struct dhs_work *copy)
{
	return dhs_elastic_evict(context, s, UINT32_MAX) +
	       dhs_residency_take(context, s, UINT32_MAX, copy);
}

/* Pages of history that a session gives where `missing` are wanted. */
static uint32_t share(const dhs_context *context, const struct dhs_session_state *s,
                      uint64_t missing)
{
	if (context->reclaim == DHS_RECLAIM_WHOLE || s->resident < missing)
		return s->resident;
	return (uint32_t)missing;
}

/* Whether the history of a is taken before that of b: of one that is idle, then of the one with
 * most. */
static int comes_first(const dhs_context *context, const struct dhs_session_state *a,
                       const struct dhs_session_state *b)
{
	int idle = dhs_session_idle(context, a);

	if (idle != dhs_session_idle(context, b))
		return idle;
	return a->resident != b->resident ? a->resident > b->resident : a->index < b->index;
}

/* The first of those that may() allows (NULL: all) and that come after `after` (NULL: all). */
static struct dhs_session_state *first_of(const dhs_context *context,
                                          int (*may)(const struct dhs_session_state *s),
                                          const struct dhs_session_state *after)
{
	struct dhs_session_state *best = NULL;

	for (uint32_t i = 0; i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];

		if (!s->live || !s->resident || (may && !may(s)) ||
		    (after && !comes_first(context, after, s)))
			continue;
		if (!best || comes_first(context, s, best))
			best = s;
	}
	return best;
}

struct dhs_session_state *dhs_residency_cheapest(const dhs_context *context,
                                                 int (*may)(const struct dhs_session_state *s))
{
	return first_of(context, may, NULL);
}

/* What it gives back does not drain. */
static int closed(const struct dhs_session_state *s)
{
	return !dhs_work_open(s->last);
}

static uint64_t optional(const dhs_context *context, int draining)
{
	uint64_t pages = 0;

	for (uint32_t i = 0; i < context->max_sessions; i++) {
		const struct dhs_session_state *s = &context->sessions.session[i];

		if (!s->live)
			continue;
		if (draining)
			pages += s->resident + dhs_elastic_pages(context, s);
		else if (closed(s))
			pages += s->resident + dhs_elastic_ready(context, s);
	}
	return pages;
}

uint32_t dhs_residency_optional(const dhs_context *context)
{
	return (uint32_t)optional(context, 1);
}

int32_t dhs_residency_lift(dhs_context *context, struct dhs_session_state *s, struct dhs_work *copy)
{
	return lift(context, s, lowest_resident(s), copy);
}

static uint64_t in_pool(const dhs_context *context, int draining, const struct dhs_work *copy)
{
	return draining ? context->pool.free.count + (uint64_t)context->pool.draining.count
	                : dhs_pool_free_after(context, copy);
}

uint64_t dhs_residency_room(dhs_context *context, uint64_t wanted, int draining)
{
	uint64_t have = in_pool(context, draining, NULL);

	return have < wanted ? have + optional(context, draining) + context->refill.count : have;
}

/* Where a forecast is: which elastic page would be taken next, and whose history. */
struct forecast {
	const struct dhs_session_state *elastic, *history;
	uint32_t left; /* elastic pages of that session */
	struct dhs_worth usual;
	uint64_t free, later; /* pages in the pool: ready, and draining */
};

static void next_elastic(const dhs_context *context, struct forecast *f)
{
	f->elastic = dhs_elastic_next(context, 1, f->elastic);
	f->left = f->elastic ? dhs_elastic_pages(context, f->elastic) : 0;
}

/* Takes the cheapest: an elastic page, or a session's history; how many pages. */
static uint32_t forecast_one(const dhs_context *context, struct forecast *f, uint64_t missing)
{
	uint32_t pages = 1;

	if (dhs_elastic_first(context, f->elastic, f->history, f->usual)) {
		uint32_t at = context->world.geometry.hot_pages + --f->left;

		*(dhs_elastic_drains(context, f->elastic, at) ? &f->later : &f->free) += 1;
		if (!f->left)
			next_elastic(context, f);
		return pages;
	}
	pages = f->history ? share(context, f->history, missing) : 0;
	if (pages) {
		*(closed(f->history) ? &f->free : &f->later) += pages;
		f->history = first_of(context, NULL, f->history);
	}
	return pages;
}

/* As dhs_residency_make_room with `draining` goes about it. */
void dhs_residency_forecast(const dhs_context *context, uint32_t pages, uint32_t *taken,
                            uint32_t *draining)
{
	struct forecast f = { .usual = dhs_worth_usual(context),
		                  .free = context->pool.free.count,
		                  .later = context->pool.draining.count };
	uint32_t some = 1;

	*taken = 0;
	if (f.free + f.later < pages) {
		f.free += context->refill.count;
		f.history = first_of(context, NULL, NULL);
		next_elastic(context, &f);
	}
	while (some && f.free + f.later < pages)
		*taken += some = forecast_one(context, &f, pages - (f.free + f.later));
	*draining = pages > f.free ? (uint32_t)(pages - f.free) : 0;
}

void dhs_residency_make_room(dhs_context *context, uint32_t pages, int draining,
                             struct dhs_work *copy)
{
	uint64_t have = in_pool(context, draining, copy);
	struct dhs_worth usual;

	if (have >= pages)
		return;
	usual = dhs_worth_usual(context);
	while ((have = in_pool(context, draining, copy)) < pages) {
		struct dhs_session_state *s, *elastic;
		uint32_t gives;

		if (dhs_refill_call_off(context, NULL))
			continue;
		s = first_of(context, draining ? NULL : closed, NULL);
		elastic = dhs_elastic_next(context, draining, NULL);
		if (dhs_elastic_first(context, elastic, s, usual)) {
			dhs_elastic_evict(context, elastic, 1);
			continue;
		}
		gives = share(context, s, pages - have);
		dhs_context_log(context, DHS_LOG_INFO,
		                "session %u gives %u of its %u pages of history back to make room for %u",
		                s->index, gives, s->resident, pages);
		dhs_residency_take(context, s, gives, copy);
	}
}

/* 1 if rows below the settled length lie in a page that is cut there and is not
 * on the device. */
static int cut_page_missing(const dhs_context *context, const struct dhs_session_state *s)
{
	return s->settled % page_rows(context) != 0 && s->page[s->settled / page_rows(context)] < 0;
}

static uint32_t new_pages(const dhs_context *context, const struct dhs_session_state *s,
                          uint32_t rows)
{
	uint32_t extent = dhs_ceil_div(rows, page_rows(context));

	return (extent > s->extent ? extent - s->extent : 0) + (uint32_t)cut_page_missing(context, s);
}

uint32_t dhs_residency_map_needs(const dhs_context *context, const struct dhs_session_state *s,
                                 uint32_t rows)
{
	uint32_t pages = new_pages(context, s, rows);

	return pages > s->spares ? pages - s->spares : 0;
}

/* The rows of logical page p that are settled. */
static uint32_t settled_rows(const dhs_context *context, const struct dhs_session_state *s,
                             uint32_t p)
{
	uint32_t first = p * page_rows(context);

	return s->settled > first ? dhs_min_u32(page_rows(context), s->settled - first) : 0;
}

static int map_page(dhs_context *context, struct dhs_session_state *s, uint32_t p,
                    dhs_stream stream)
{
	int32_t page = s->spares ? s->spare[--s->spares] : dhs_pool_take(context);

	s->page[p] = page;
	s->backed[p] = dhs_min_u32(s->backed[p], settled_rows(context, s, p));
	s->lowest = dhs_min_u32(s->lowest, p);
	s->tail_used++;
	mark(s, p);
	return dhs_after_wait(context, &context->pool.page[page].after, stream);
}

/* Reloads the settled rows of the mapped pages [p, end). */
static int reload(dhs_context *context, const struct dhs_session_state *s, uint32_t p, uint32_t end,
                  dhs_stream stream)
{
	uint32_t n = 0;

	for (; p < end; p++) {
		uint32_t rows = settled_rows(context, s, p);

		context->copy[n++] =
			(struct dhs_copy){ .page = s->page[p], .host_page = s->host[p], .rows = rows };
		context->totals.reload_rows += rows;
	}
	return context->ops->copy(context->device, &context->world, DHS_COPY_TO_DEVICE, context->copy,
	                          n, stream);
}

int dhs_residency_map(dhs_context *context, struct dhs_session_state *s, uint32_t rows,
                      dhs_stream stream)
{
	uint32_t extent = dhs_ceil_div(rows, page_rows(context));
	int rc = DHS_OK;

	if (cut_page_missing(context, s)) {
		uint32_t p = s->settled / page_rows(context);

		rc = map_page(context, s, p, stream);
		if (rc == DHS_OK)
			rc = reload(context, s, p, p + 1, stream);
	}
	for (; rc == DHS_OK && s->extent < extent; s->extent++)
		rc = map_page(context, s, s->extent, stream);
	return rc;
}

int dhs_residency_return(dhs_context *context, struct dhs_session_state *s, dhs_stream stream)
{
	int rc = DHS_OK;

	for (uint32_t p = s->first_tail; rc == DHS_OK && p < s->extent; p++)
		rc = map_page(context, s, p, stream);
	return rc ? rc : reload(context, s, s->first_tail, s->extent, stream);
}

uint32_t dhs_residency_host_needs(const dhs_context *context, const struct dhs_session_state *s,
                                  uint32_t rows)
{
	uint32_t pages = dhs_ceil_div(rows, page_rows(context));

	if (context->policy == DHS_POLICY_FULL)
		return 0;
	return pages > s->host_pages ? pages - s->host_pages : 0;
}

void dhs_residency_host_take(dhs_context *context, struct dhs_session_state *s, uint32_t rows)
{
	for (uint32_t n = dhs_residency_host_needs(context, s, rows); n; n--) {
		uint32_t p = s->host_pages++;

		s->host[p] = dhs_tier_take(context, p ? s->host[p - 1] : -1);
		s->backed[p] = 0;
	}
}

int dhs_residency_host_ready(dhs_context *context, struct dhs_session_state *s, dhs_stream stream)
{
	for (; s->host_ready < s->host_pages; s->host_ready++) {
		int rc = dhs_after_wait(context, &context->tier.after[s->host[s->host_ready]], stream);

		if (rc)
			return rc;
	}
	return DHS_OK;
}

/* History that a truncate brought within tail_rows of the end is tail again. */
static void lower_first_tail(dhs_context *context, struct dhs_session_state *s, uint32_t rows)
{
	uint32_t target = history_pages(context, rows);

	/* Pages that are written again: copies of them may still run. */
	if (s->first_tail > target)
		join_saving(context, s);
	while (s->first_tail > target) {
		uint32_t p = --s->first_tail;

		if (p < s->extent && s->page[p] >= 0) {
			count_unbacked(context, s, p, -1);
			s->resident--;
			s->tail_used++;
		}
	}
	s->backup_from = dhs_min_u32(s->backup_from, s->first_tail);
}

static void cut_pages(dhs_context *context, struct dhs_session_state *s, uint32_t extent)
{
	while (s->extent > extent) {
		uint32_t p = --s->extent;
		int32_t page = s->page[p];

		mark(s, p);
		if (page < 0)
			continue;
		s->page[p] = -1;
		s->tail_used--;
		dhs_after_set(context, &context->pool.page[page].after, s->last, s->copies);
		put_page(context, s, page);
	}
	while (s->spares && s->spares + s->tail_used > s->keep)
		dhs_pool_release(context, s->spare[--s->spares]);
}

void dhs_residency_leave(dhs_context *context, struct dhs_session_state *s, struct dhs_work *copy)
{
	dhs_refill_call_off(context, s);
	s->keep = 0;
	dhs_residency_age(context, s, copy);
	dhs_residency_evict(context, s, copy);
	for (uint32_t p = s->first_tail; copy && settled_rows(context, s, p); p++)
		if (s->page[p] >= 0 && s->backed[p] < settled_rows(context, s, p)) {
			copy_rows(context, s, p, settled_rows(context, s, p));
			dhs_work_set(context, &s->copies, copy);
		}
	cut_pages(context, s, s->first_tail);
	s->extent = dhs_ceil_div(s->settled, page_rows(context));
}

static void cut_host_pages(dhs_context *context, struct dhs_session_state *s, uint32_t pages)
{
	struct dhs_tier *tier = &context->tier;

	while (s->host_pages > dhs_max_u32(pages, s->reserve_pages)) {
		uint32_t p = --s->host_pages;

		if (p < s->host_ready)
			dhs_after_set(context, &tier->after[s->host[p]], s->last, s->copies);
		mark(s, p);
		dhs_tier_release(context, s->host[p]);
		s->host[p] = -1;
	}
	s->host_ready = dhs_min_u32(s->host_ready, s->host_pages);
}

void dhs_residency_cut(dhs_context *context, struct dhs_session_state *s, uint32_t rows)
{
	uint32_t pages = dhs_ceil_div(rows, page_rows(context));

	lower_first_tail(context, s, rows);
	for (uint32_t p = rows / page_rows(context); p < s->extent; p++)
		s->backed[p] = p < pages ? dhs_min_u32(s->backed[p], rows % page_rows(context)) : 0;
	cut_pages(context, s, pages);
	cut_host_pages(context, s, pages);
}

int dhs_residency_copy_new(dhs_context *context, struct dhs_work **copy)
{
	*copy = NULL;
	if (context->backup == DHS_BACKUP_EAGER)
		return DHS_OK;
	return dhs_work_new(context, context->copy_stream, copy);
}

/* The copies read rows that steps on other streams wrote. */
static int wait_for_writers(dhs_context *context, struct dhs_work *copy)
{
	for (uint32_t i = 0; i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];
		int rc = s->live && (s->copies == copy || s->saving == copy)
		             ? dhs_work_wait(context, s->written, context->copy_stream)
		             : DHS_OK;

		if (rc)
			return rc;
	}
	return DHS_OK;
}

int dhs_residency_copy(dhs_context *context, struct dhs_work *copy)
{
	uint32_t copies = context->copies;
	int rc;

	context->copies = 0;
	if (!copies) {
		dhs_work_cancel(context, copy);
		return DHS_OK;
	}
	rc = wait_for_writers(context, copy);
	if (rc == DHS_OK)
		rc = context->ops->copy(context->device, &context->world, DHS_COPY_TO_HOST, context->copy,
		                        copies, context->copy_stream);
	if (rc == DHS_OK)
		rc = dhs_work_record(context, copy);
	dhs_work_unref(context, &copy);
	return rc;
}
