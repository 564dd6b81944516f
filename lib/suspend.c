/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* A session leaves the device as a whole, and comes back as it was. */
#include "residency.h"

/* ---- suspend ---- */

static int enter_tiered(const char *call, dhs_context *context, struct dhs_guard *guard)
{
	int rc = dhs_context_enter(call, context, guard);

	if (rc == DHS_OK && context->policy == DHS_POLICY_FULL)
		rc = dhs_fail(DHS_ERR_UNSUPPORTED, "%s: policy full has no host tier", call);
	return rc;
}

/* Begun steps still use its memory, or what it got from another session and never used. */
static int in_open_work(const dhs_context *context, const struct dhs_session_state *s)
{
	const struct dhs_page *page = context->pool.page;
	int open = dhs_work_open(s->last);

	for (uint32_t i = s->hot_told; i < s->hot_pages; i++)
		open |= dhs_after_open(&page[s->hot[i]].after, NULL);
	for (uint32_t i = 0; i < s->spares; i++)
		open |= dhs_after_open(&page[s->spare[i]].after, NULL);
	return open;
}

static int suspend_check(const dhs_context *context, const struct dhs_session_state *s)
{
	if (s->suspended)
		return dhs_fail(DHS_ERR_ORDER, "dhs_session_suspend: the session is suspended already");
	if (s->extension)
		return dhs_fail(DHS_ERR_ORDER,
		                "dhs_session_suspend: an extension of %u rows is not committed",
		                s->extension);
	if (s->unsettled_steps)
		return dhs_fail(DHS_ERR_BUSY, "dhs_session_suspend: the session is in %u unsettled steps",
		                s->unsettled_steps);
	if (in_open_work(context, s))
		return dhs_fail(
			DHS_ERR_PENDING,
			"dhs_session_suspend: a step that still uses the session's pages is begun and its "
			"end is not recorded");
	return DHS_OK;
}

/* What the pages wait for that were never used: works of others, which the session's own
 * do not stand for. */
static int wait_for_unused(dhs_context *context, const struct dhs_session_state *s)
{
	const struct dhs_page *page = context->pool.page;
	int rc = DHS_OK;

	for (uint32_t i = s->hot_told; rc == DHS_OK && i < s->hot_pages + s->spares; i++) {
		int32_t at = i < s->hot_pages ? s->hot[i] : s->spare[i - s->hot_pages];

		/* The second work is one of that stream, which is in order. */
		rc = dhs_work_wait(context, page[at].after.work[0], context->copy_stream);
	}
	return rc;
}

/* `behind` is the fence: behind the session's last work, and all that the library's stream
 * does for its pages. */
static int suspend(dhs_context *context, struct dhs_session_state *s, struct dhs_work *behind,
                   struct dhs_work *copy)
{
	uint32_t kept = dhs_min_u32(s->hot_kept, context->world.geometry.hot_pages);
	int rc = wait_for_unused(context, s);

	dhs_work_set(context, &behind->also, s->last);
	dhs_residency_leave(context, s, copy);
	dhs_session_release_hot(context, s);
	/* The device forgets where its rows lie, not which they are. */
	s->hot_kept = kept;
	s->suspended = 1;
	context->sessions.suspended++;
	context->totals.suspends++;
	if (rc == DHS_OK)
		rc = dhs_residency_copy(context, copy);
	if (rc == DHS_OK)
		rc = dhs_work_record(context, behind);
	dhs_work_unref(context, &behind);
	return rc;
}

int dhs_session_suspend(dhs_context *context, dhs_session session, dhs_fence *fence)
{
	DHS_GUARD(guard);
	struct dhs_session_state *s;
	struct dhs_work *behind, *copy;
	uint64_t number;
	int rc = enter_tiered("dhs_session_suspend", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_suspend", context, session, 0, &s);
	if (rc == DHS_OK)
		rc = suspend_check(context, s);
	if (rc == DHS_OK)
		rc = dhs_work_new(context, context->copy_stream, &behind);
	if (rc)
		return rc;
	rc = dhs_residency_copy_new(context, &copy);
	if (rc) {
		dhs_work_cancel(context, behind);
		return rc;
	}
	context->works.call++;
	number = behind->number;
	rc = suspend(context, s, behind, copy);
	if (rc)
		rc = dhs_context_lose(context, "dhs_session_suspend", rc);
	else if (fence)
		*fence = dhs_handle(context, DHS_KIND_FENCE, number);
	dhs_stats_publish(context);
	return rc;
}

/* ---- resume ---- */

static uint32_t required(const dhs_context *context)
{
	return context->world.geometry.hot_pages + context->tail_pages;
}

/* Free pages only: what comes back is copied to them at once. */
static int resume_room(dhs_context *context)
{
	uint32_t need = required(context);
	uint64_t room = dhs_residency_room(context, need, 0), later;

	if (need <= room)
		return DHS_OK;
	later = dhs_residency_room(context, need, 1);
	if (need <= later)
		return dhs_fail(
			DHS_ERR_PENDING,
			"dhs_session_resume: %u pages are needed; %llu can be had now and %llu once "
			"begun steps are settled",
			need, (unsigned long long)room, (unsigned long long)later);
	return dhs_context_refuse(
		context, dhs_fail(DHS_ERR_DEVICE_MEMORY,
	                      "dhs_session_resume: %u pages are needed; %llu are free or optional",
	                      need, (unsigned long long)later));
}

/* The hot cache has its rows again.  A session that was not begun since it was created, or
 * truncated to nothing, has none; its pages wait for their last owner, as in create. */
static int warm(dhs_context *context, struct dhs_session_state *s, struct dhs_work *work)
{
	uint32_t pages = context->world.geometry.hot_pages;
	struct dhs_warm warm = { .index = (int32_t)s->index,
		                     .limit = (int32_t)dhs_min_u32(s->drop_from, INT32_MAX),
		                     .page = s->hot,
		                     .pages = pages };

	if (!warm.limit)
		return DHS_OK;
	for (uint32_t i = 0; i < pages; i++) {
		struct dhs_after *after = &context->pool.page[s->hot[i]].after;
		int rc = dhs_after_wait(context, after, work->stream);

		if (rc)
			return rc;
		dhs_after_set(context, after, NULL, work);
	}
	return context->ops->warm(context->device, &context->world, &warm, work->stream);
}

/* What cannot fail but by losing the device. */
static int resume(dhs_context *context, struct dhs_session_state *s, struct dhs_work *work,
                  struct dhs_work *copy)
{
	int rc;

	dhs_residency_make_room(context, required(context), 0, copy);
	rc = dhs_residency_copy(context, copy);
	s->keep = context->tail_pages;
	dhs_session_take_pages(context, s);
	s->suspended = 0;
	s->used_at = context->next_step - 1;
	context->sessions.suspended--;
	context->totals.resumes++;
	/* It wrote records, and the tags of the hot cache. */
	if (rc == DHS_OK)
		rc = dhs_work_wait(context, s->last, work->stream);
	if (rc == DHS_OK)
		rc = dhs_residency_return(context, s, work->stream);
	if (rc == DHS_OK)
		rc = warm(context, s, work);
	if (rc == DHS_OK)
		rc = dhs_work_record(context, work);
	dhs_work_set(context, &s->copies, work);
	dhs_work_unref(context, &work);
	return rc;
}

int dhs_session_resume(dhs_context *context, dhs_session session)
{
	DHS_GUARD(guard);
	struct dhs_session_state *s;
	struct dhs_work *work, *copy;
	int rc = enter_tiered("dhs_session_resume", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_find("dhs_session_resume", context, session, 0, &s);
	if (rc == DHS_OK && !s->suspended)
		rc = dhs_fail(DHS_ERR_ORDER, "dhs_session_resume: the session is not suspended");
	if (rc)
		return rc;
	context->works.call++;
	rc = resume_room(context);
	if (rc == DHS_OK)
		rc = dhs_work_new(context, context->copy_stream, &work);
	if (rc == DHS_OK) {
		rc = dhs_residency_copy_new(context, &copy);
		if (rc)
			dhs_work_cancel(context, work);
	}
	if (rc == DHS_OK) {
		rc = resume(context, s, work, copy);
		rc = rc ? dhs_context_lose(context, "dhs_session_resume", rc) : DHS_OK;
	}
	dhs_stats_publish(context);
	return rc;
}
