/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "context.h"

void dhs_works_init(dhs_context *context)
{
	context->works = (struct dhs_works){ .next_number = 1, .call = 1 };
}

static void work_free(dhs_context *context, struct dhs_work *work)
{
	context->ops->event_free(context->device, work->event);
	dhs_memory_free(&context->allocator, DHS_MEMORY_CONTROL, work, sizeof(*work));
}

void dhs_works_free(dhs_context *context)
{
	struct dhs_work *next;

	for (struct dhs_work *w = context->works.first; w; w = next) {
		next = w->next;
		work_free(context, w);
	}
	for (struct dhs_work *w = context->works.idle; w; w = next) {
		next = w->next;
		work_free(context, w);
	}
	dhs_works_init(context);
}

static int work_take(dhs_context *context, struct dhs_work **work)
{
	struct dhs_work *w = context->works.idle;
	int rc;

	if (w) {
		context->works.idle = w->next;
		*work = w;
		return DHS_OK;
	}
	w = dhs_memory_zeroed(&context->allocator, DHS_MEMORY_CONTROL, sizeof(*w));
	if (!w)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the record of a step or a copy");
	rc = context->ops->event_new(context->device, &w->event);
	if (rc) {
		dhs_memory_free(&context->allocator, DHS_MEMORY_CONTROL, w, sizeof(*w));
		return rc;
	}
	*work = w;
	return DHS_OK;
}

/* Passed works at the front go, so that prefills alone do not pile them up. */
static void collect_front(dhs_context *context)
{
	struct dhs_works *works = &context->works;

	while (works->first) {
		struct dhs_work *w = works->first;
		int passed = 0, also = 0;

		dhs_work_query(context, w, &passed);
		dhs_work_query(context, w->also, &also);
		if (!passed || !also)
			return;
		works->first = w->next;
		if (!works->first)
			works->last = NULL;
		dhs_work_unref(context, &w->also);
		dhs_work_unref(context, &w);
	}
}

int dhs_work_new(dhs_context *context, dhs_stream stream, struct dhs_work **work)
{
	struct dhs_works *works = &context->works;
	struct dhs_work *w = NULL;
	int rc;

	collect_front(context);
	rc = work_take(context, &w);

	if (rc)
		return rc;
	w->number = works->next_number++;
	w->refs = 2; /* the caller's and the list's */
	w->state = DHS_WORK_OPEN;
	w->stream = stream;
	w->waited_call = 0;
	w->also = NULL;
	w->next = NULL;
	if (works->last)
		works->last->next = w;
	else
		works->first = w;
	works->last = w;
	*work = w;
	return DHS_OK;
}

void dhs_work_unref(dhs_context *context, struct dhs_work **place)
{
	struct dhs_work *work = *place;

	*place = NULL;
	if (!work || --work->refs)
		return;
	work->next = context->works.idle;
	context->works.idle = work;
}

void dhs_work_set(dhs_context *context, struct dhs_work **place, struct dhs_work *work)
{
	if (work && work->state == DHS_WORK_PASSED)
		work = NULL;
	if (work)
		work->refs++;
	dhs_work_unref(context, place);
	*place = work;
}

void dhs_works_collect(dhs_context *context)
{
	struct dhs_works *works = &context->works;
	struct dhs_work **link = &works->first;

	works->last = NULL;
	while (*link) {
		struct dhs_work *w = *link;
		int passed = 0, also = 0;

		dhs_work_query(context, w, &passed);
		dhs_work_query(context, w->also, &also);
		if (passed && also) {
			*link = w->next;
			dhs_work_unref(context, &w->also);
			dhs_work_unref(context, &w);
		} else {
			works->last = w;
			link = &w->next;
		}
	}
}

void dhs_work_cancel(dhs_context *context, struct dhs_work *work)
{
	if (!work)
		return;
	work->state = DHS_WORK_PASSED;
	dhs_work_unref(context, &work);
	dhs_works_collect(context);
}

/* The work is open no more: what drained for that alone is free. */
static int ended(dhs_context *context, struct dhs_work *work, enum dhs_work_state state)
{
	work->state = state;
	dhs_pool_recorded(context);
	dhs_tier_recorded(context);
	return DHS_OK;
}

int dhs_work_record(dhs_context *context, struct dhs_work *work)
{
	int rc = context->ops->event_record(context->device, work->event, work->stream);

	if (rc)
		return rc;
	return ended(context, work, DHS_WORK_RECORDED);
}

int dhs_work_end_ready(const char *call, dhs_context *context, const struct dhs_work *work)
{
	int capturing = 0, rc = dhs_stream_check(call, context, work->stream, &capturing);

	if (rc == DHS_OK && capturing)
		return dhs_fail(DHS_ERR_CAPTURING, "%s: the stream of the work to end is being captured",
		                call);
	/* A stream that is gone has run what was on it. */
	return rc == DHS_ERR_ARGUMENT ? DHS_OK : rc;
}

int dhs_work_end(const char *call, dhs_context *context, struct dhs_work *work)
{
	int capturing = 0, rc = dhs_stream_check(call, context, work->stream, &capturing);

	if (rc == DHS_ERR_ARGUMENT) {
		dhs_context_log(context, DHS_LOG_WARNING, "%s: the stream of the work is gone: it has run",
		                call);
		return ended(context, work, DHS_WORK_PASSED);
	}
	if (rc == DHS_OK) {
		rc = dhs_work_record(context, work);
		rc = rc ? dhs_context_lose(context, call, rc) : DHS_OK;
	}
	return rc;
}

int dhs_work_wait(dhs_context *context, struct dhs_work *work, dhs_stream stream)
{
	if (!work || work->state == DHS_WORK_PASSED)
		return DHS_OK;
	if (work->waited_call == context->works.call && work->waited_stream == stream)
		return DHS_OK;
	work->waited_call = context->works.call;
	work->waited_stream = stream;
	return context->ops->stream_wait(context->device, stream, work->event);
}

int dhs_work_sync(dhs_context *context, struct dhs_work *work)
{
	int rc;

	if (!work || work->state == DHS_WORK_PASSED)
		return DHS_OK;
	rc = context->ops->event_sync(context->device, work->event);
	if (rc == DHS_OK)
		work->state = DHS_WORK_PASSED;
	return rc;
}

int dhs_work_query(dhs_context *context, struct dhs_work *work, int *passed)
{
	int rc = DHS_OK;

	*passed = !work || work->state == DHS_WORK_PASSED;
	if (!*passed && work->state == DHS_WORK_RECORDED) {
		rc = context->ops->event_query(context->device, work->event, passed);
		if (rc == DHS_OK && *passed)
			work->state = DHS_WORK_PASSED;
	}
	return rc;
}

int dhs_works_sync(dhs_context *context)
{
	for (struct dhs_work *w = context->works.first; w; w = w->next) {
		int rc = w->state == DHS_WORK_RECORDED ? dhs_work_sync(context, w) : DHS_OK;

		if (rc)
			return rc;
	}
	dhs_works_collect(context);
	return DHS_OK;
}

void dhs_after_set(dhs_context *context, struct dhs_after *after, struct dhs_work *reader,
                   struct dhs_work *copy)
{
	dhs_work_set(context, &after->work[0], reader);
	dhs_work_set(context, &after->work[1], copy);
}

int dhs_after_wait(dhs_context *context, struct dhs_after *after, dhs_stream stream)
{
	for (int i = 0; i < 2; i++) {
		int rc = dhs_work_wait(context, after->work[i], stream);

		if (rc)
			return rc;
		dhs_work_unref(context, &after->work[i]);
	}
	return DHS_OK;
}
