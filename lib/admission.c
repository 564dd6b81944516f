/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "admission.h"

#include "residency.h"

static void count_host_room(const dhs_context *context, uint32_t reserve, dhs_admission *a)
{
	uint64_t page_rows = context->world.geometry.page_rows;

	if (context->policy == DHS_POLICY_FULL)
		return;
	a->host_rows_needed = reserve * page_rows;
	a->host_rows_free = context->tier.free_count * page_rows;
	a->host_rows_draining = context->tier.draining_count * page_rows;
}

static void count_pages(const dhs_context *context, uint32_t reserve, dhs_admission *a)
{
	a->pages_needed = context->world.geometry.hot_pages +
	                  (context->policy == DHS_POLICY_FULL ? reserve : context->tail_pages);
	a->pages_free = context->pool.free.count;
	a->pages_coming = context->refill.count;
	a->pages_optional = dhs_residency_optional(context);
	a->pages_draining = context->pool.draining.count;
	a->sessions_free = context->sessions.free_count;
}

/* What cannot be had even if all begun steps were settled. */
static uint32_t lacking(const dhs_admission *a)
{
	uint64_t pages = (uint64_t)a->pages_free + a->pages_coming + a->pages_optional;

	if (a->host_rows_needed > a->host_rows_free + a->host_rows_draining)
		return DHS_LACK_HOST_ROWS;
	if (!a->sessions_free)
		return DHS_LACK_SESSIONS;
	return a->pages_needed > pages + a->pages_draining ? DHS_LACK_PAGES : DHS_LACK_NOTHING;
}

void dhs_admission_judge(const dhs_context *context, uint32_t reserve, dhs_admission *admission)
{
	dhs_admission a = DHS_INIT(dhs_admission);

	count_host_room(context, reserve, &a);
	count_pages(context, reserve, &a);
	a.verdict = DHS_ADMISSION_NO;
	a.lack = lacking(&a);
	if (!a.lack) {
		dhs_residency_forecast(context, a.pages_needed, &a.evicted_pages, &a.pending_pages);
		if (a.host_rows_needed > a.host_rows_free)
			a.lack = DHS_LACK_HOST_ROWS;
		else if (a.evicted_pages || a.pending_pages)
			a.lack = DHS_LACK_PAGES;
		a.verdict = a.lack ? DHS_ADMISSION_AFTER : DHS_ADMISSION_YES;
	}
	*admission = a;
}

static int refuse(dhs_context *context, const dhs_admission *a)
{
	uint32_t page_rows = context->world.geometry.page_rows;

	switch (a->lack) {
	case DHS_LACK_HOST_ROWS:
		return dhs_fail(DHS_ERR_HOST_MEMORY,
		                "dhs_session_create: reserve_rows needs %llu host pages of %u rows; %llu "
		                "of %u are free",
		                (unsigned long long)a->host_rows_needed / page_rows, page_rows,
		                (unsigned long long)a->host_rows_free / page_rows, context->tier.pages);
	case DHS_LACK_SESSIONS:
		return dhs_fail(DHS_ERR_DEVICE_MEMORY,
		                "dhs_session_create: all of max_sessions = %u sessions are in use",
		                context->max_sessions);
	default:
		return dhs_fail(
			DHS_ERR_DEVICE_MEMORY,
			"dhs_session_create: a session needs %u pages (hot cache and tail, or what is "
			"reserved under full); %llu are free or optional",
			a->pages_needed,
			(unsigned long long)a->pages_free + a->pages_coming + a->pages_optional +
				a->pages_draining);
	}
}

int dhs_admission_check(dhs_context *context, const dhs_admission *a)
{
	uint32_t page_rows = context->world.geometry.page_rows;

	if (a->verdict == DHS_ADMISSION_NO)
		return dhs_context_refuse(context, refuse(context, a));
	if (a->lack == DHS_LACK_HOST_ROWS)
		return dhs_fail(DHS_ERR_PENDING,
		                "dhs_session_create: reserve_rows needs %llu host pages; %llu are free and "
		                "%llu more once begun steps are settled",
		                (unsigned long long)a->host_rows_needed / page_rows,
		                (unsigned long long)a->host_rows_free / page_rows,
		                (unsigned long long)a->host_rows_draining / page_rows);
	return DHS_OK;
}

int dhs_session_admission(dhs_context *context, const dhs_session_options *options,
                          dhs_admission *admission)
{
	DHS_GUARD(guard);
	dhs_session_options o = DHS_INIT(dhs_session_options);
	dhs_admission a;
	int rc = dhs_context_enter("dhs_session_admission", context, &guard);

	if (rc == DHS_OK)
		rc = dhs_session_read_options("dhs_session_admission", context, options, &o);
	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_session_admission", "admission", admission);
	if (rc)
		return rc;
	dhs_admission_judge(context, dhs_ceil_div(o.reserve_rows, context->world.geometry.page_rows),
	                    &a);
	dhs_options_write(&a, sizeof(a), admission);
	return DHS_OK;
}
