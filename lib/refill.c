/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "backup.h"
#include "elastic.h"
#include "residency.h"
#include "worth.h"

int dhs_refill_init(dhs_context *context, uint32_t pages)
{
	context->refill.coming = dhs_blocks_book(context, pages * sizeof(*context->refill.coming));
	if (!context->refill.coming)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "device_pages: no memory for the pages on their way");
	return DHS_OK;
}

static void land(dhs_context *context, const struct dhs_coming *c)
{
	struct dhs_session_state *s = &context->sessions.session[c->session];

	dhs_residency_land(context, s, c->p, c->page, c->work);
	context->totals.refilled_pages++;
}

/* Those that were issued DHS_COPY_LAG ticks ago, or before. */
static void land_old(dhs_context *context)
{
	struct dhs_refill *r = &context->refill;
	uint32_t n = 0;

	for (; n < r->count && r->coming[n].tick + DHS_COPY_LAG <= r->tick; n++) {
		land(context, &r->coming[n]);
		dhs_work_unref(context, &r->coming[n].work);
	}
	r->count -= n;
	for (uint32_t i = 0; i < r->count; i++)
		r->coming[i] = r->coming[i + n];
}

uint32_t dhs_refill_call_off(dhs_context *context, struct dhs_session_state *s)
{
	struct dhs_refill *r = &context->refill;
	uint32_t kept = 0, off;

	if (s && !s->coming)
		return 0;
	for (uint32_t i = 0; i < r->count; i++) {
		struct dhs_coming *c = &r->coming[i];
		struct dhs_session_state *of = &context->sessions.session[c->session];

		if (s && of != s) {
			r->coming[kept++] = *c;
			continue;
		}
		dhs_after_set(context, &context->pool.page[c->page].after, NULL, c->work);
		dhs_pool_release(context, c->page);
		dhs_work_unref(context, &c->work);
		dhs_residency_call_off(of, c->p);
	}
	off = r->count - kept;
	r->count = kept;
	return off;
}

/* A suspended session gets nothing before it is resumed. */
static uint32_t missing(const struct dhs_session_state *s)
{
	return s->suspended ? 0 : s->first_tail - s->resident - s->coming;
}

/* The session that lacks fewest pages to be on the device as a whole: then it needs no
 * plan at all.  NULL: none lacks any, or history is not kept there. */
static struct dhs_session_state *nearest(dhs_context *context)
{
	struct dhs_session_state *best = NULL;

	for (uint32_t i = 0; context->keeps_history && i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];

		if (s->live && !s->failed && missing(s) && !dhs_session_idle(context, s) &&
		    (!best || missing(s) < missing(best)))
			best = s;
	}
	return best;
}

/* The highest page of its history that is neither on the device nor on its way. */
static uint32_t next_page(struct dhs_session_state *s)
{
	uint32_t p = s->refill_from < s->first_tail ? s->refill_from : s->first_tail;

	while (s->page[p - 1] >= 0 || s->on_way[p - 1])
		p--;
	s->refill_from = p - 1;
	return p - 1;
}

/* Pages that the link has room for in this tick: misses of steps come first. */
static uint64_t budget(dhs_context *context)
{
	struct dhs_refill *r = &context->refill;
	uint64_t fetched = context->totals.fetched_bytes - r->fetched;

	r->fetched = context->totals.fetched_bytes;
	return fetched < r->link_bytes ? (r->link_bytes - fetched) / dhs_page_bytes(context) : 0;
}

/* Whether there are pages to give out, and *s, who gets the next one. */
static int still_filling(dhs_context *context, struct dhs_session_state **s)
{
	struct dhs_refill *r = &context->refill;

	if (!r->filling)
		return 0;
	*s = *s && missing(*s) ? *s : nearest(context);
	if (!*s || context->pool.free.count <= r->low)
		r->filling = 0;
	return r->filling;
}

/* Gathers copies in context->copy; how many. */
static uint32_t choose(dhs_context *context, struct dhs_work *work)
{
	struct dhs_refill *r = &context->refill;
	uint64_t most = budget(context);
	struct dhs_session_state *s = NULL;
	uint32_t n = 0;

	if (context->pool.free.count >= r->high)
		r->filling = 1;
	if (r->filling)
		dhs_elastic_grow(context, nearest(context));
	while (still_filling(context, &s) && n < most) {
		uint32_t p;

		p = next_page(s);
		r->coming[r->count] =
			(struct dhs_coming){ s->index, p, dhs_pool_take(context), r->tick, NULL };
		dhs_work_set(context, &r->coming[r->count].work, work);
		context->copy[n++] = (struct dhs_copy){ .page = r->coming[r->count++].page,
			                                    .host_page = s->host[p],
			                                    .rows = context->world.geometry.page_rows };
		dhs_residency_send(s, p);
	}
	return n;
}

/* The copies follow what last used the pages and what wrote the records. */
static int wait_for_both(dhs_context *context, uint32_t n)
{
	struct dhs_refill *r = &context->refill;
	int rc = DHS_OK;

	for (uint32_t i = r->count - n; rc == DHS_OK && i < r->count; i++) {
		const struct dhs_coming *c = &r->coming[i];

		rc = dhs_after_wait(context, &context->pool.page[c->page].after, context->copy_stream);
		if (rc == DHS_OK)
			rc = dhs_work_wait(context, context->sessions.session[c->session].written,
			                   context->copy_stream);
	}
	return rc;
}

static int refill(dhs_context *context, struct dhs_work *work)
{
	uint32_t n = choose(context, work);
	int rc;

	if (!n) {
		dhs_work_cancel(context, work);
		return DHS_OK;
	}
	context->totals.refill_bytes += n * dhs_page_bytes(context);
	rc = wait_for_both(context, n);
	if (rc == DHS_OK)
		rc = context->ops->copy(context->device, &context->world, DHS_COPY_TO_DEVICE, context->copy,
		                        n, context->copy_stream);
	if (rc == DHS_OK)
		rc = dhs_work_record(context, work);
	dhs_work_unref(context, &work);
	return rc;
}

/* A session that is idle keeps nothing from one that lacks history. */
static void free_idle(dhs_context *context, struct dhs_work *copy)
{
	if (!nearest(context))
		return;
	for (uint32_t i = 0; i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];

		if (s->live && dhs_session_idle(context, s) &&
		    s->resident + dhs_elastic_pages(context, s)) {
			dhs_residency_evict(context, s, copy);
			return;
		}
	}
}

/* What a tick of the adaptive policy does once its works are there. */
static int tick_work(dhs_context *context, struct dhs_work *work, struct dhs_work *copy,
                     struct dhs_work *backup)
{
	int rc;

	context->refill.tick++;
	land_old(context);
	rc = refill(context, work);
	if (rc)
		return rc;
	if (context->refill.filling) {
		rc = dhs_residency_copy(context, copy);
	} else {
		free_idle(context, copy);
		rc = dhs_elastic_balance(context, copy);
	}
	return rc ? rc : dhs_backup_tick(context, backup);
}

static int tick(dhs_context *context)
{
	struct dhs_work *work, *copy = NULL, *backup;
	int rc = dhs_work_new(context, context->copy_stream, &work);

	if (rc)
		return rc;
	rc = dhs_residency_copy_new(context, &copy);
	if (rc == DHS_OK)
		rc = dhs_backup_new(context, &backup);
	if (rc) {
		dhs_work_cancel(context, copy);
		dhs_work_cancel(context, work);
		return rc;
	}
	rc = tick_work(context, work, copy, backup);
	return rc ? dhs_context_lose(context, "dhs_context_advance", rc) : DHS_OK;
}

int dhs_refill_tick(dhs_context *context)
{
	int rc = DHS_OK;

	context->works.call++;
	if (context->policy == DHS_POLICY_ADAPTIVE)
		rc = tick(context);
	if (rc && !context->lost)
		return rc;
	context->totals.ticks++;
	dhs_stats_publish(context);
	return rc;
}

int dhs_context_advance(dhs_context *context)
{
	DHS_GUARD(guard);
	int rc = dhs_context_enter("dhs_context_advance", context, &guard);

	return rc ? rc : dhs_refill_tick(context);
}
