/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "context.h"

/* The work that a fence names; NULL if it has passed.  Works not passed are few:
 * steps in flight, prefills, copies. */
static int find(const char *call, dhs_context *context, dhs_fence fence, struct dhs_guard *guard,
                struct dhs_work **work)
{
	uint64_t number = fence & DHS_NUMBER_MASK;
	int rc = dhs_context_enter(call, context, guard);

	*work = NULL;
	if (rc || !fence)
		return rc;
	rc = dhs_handle_check(call, "fence", context, DHS_KIND_FENCE, fence);
	if (rc)
		return rc;
	if (!number || number >= context->works.next_number)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: fence %#llx was never given", call,
		                (unsigned long long)fence);
	for (struct dhs_work *w = context->works.first; w; w = w->next)
		if (w->number == number)
			*work = w;
	if (dhs_work_open(*work) || (*work && dhs_work_open((*work)->also)))
		return dhs_fail(DHS_ERR_PENDING,
		                "%s: the fence relies on a step or a prefill whose end is not recorded",
		                call);
	return DHS_OK;
}

int dhs_fence_wait(dhs_context *context, dhs_fence fence, dhs_stream stream)
{
	DHS_GUARD(guard);
	struct dhs_work *work;
	int rc = find("dhs_fence_wait", context, fence, &guard, &work);

	if (rc == DHS_OK)
		rc = dhs_stream_ready("dhs_fence_wait", context, stream);
	if (rc || !work)
		return rc;
	context->works.call++;
	rc = dhs_work_wait(context, work, stream);
	if (rc == DHS_OK)
		rc = dhs_work_wait(context, work->also, stream);
	return rc ? dhs_context_lose(context, "dhs_fence_wait", rc) : DHS_OK;
}

int dhs_fence_sync(dhs_context *context, dhs_fence fence)
{
	DHS_GUARD(guard);
	struct dhs_work *work;
	int rc = find("dhs_fence_sync", context, fence, &guard, &work);

	if (rc || !work)
		return rc;
	rc = dhs_work_sync(context, work);
	if (rc == DHS_OK)
		rc = dhs_work_sync(context, work->also);
	return rc ? dhs_context_lose(context, "dhs_fence_sync", rc) : DHS_OK;
}

int dhs_fence_query(dhs_context *context, dhs_fence fence, int *passed)
{
	DHS_GUARD(guard);
	struct dhs_work *work;
	int one = 1, also = 1, rc = find("dhs_fence_query", context, fence, &guard, &work);

	if (rc)
		return rc;
	rc = dhs_options_check_pointer("dhs_fence_query", "passed", passed, sizeof(*passed));
	if (rc)
		return rc;
	if (work) {
		rc = dhs_work_query(context, work, &one);
		if (rc == DHS_OK)
			rc = dhs_work_query(context, work->also, &also);
	}
	if (rc)
		return dhs_context_lose(context, "dhs_fence_query", rc);
	*passed = one && also;
	return DHS_OK;
}
