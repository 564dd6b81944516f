/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "backup.h"

#include "residency.h"

/* A failed session's rows are of no use. */
static int to_copy(const struct dhs_session_state *s)
{
	return !s->failed && s->unbacked;
}

/* The lowest of its pages that has to be copied: the first that would be taken back. */
static uint32_t next_page(const dhs_context *context, struct dhs_session_state *s)
{
	uint32_t p = s->backup_from;

	while (s->page[p] < 0 || dhs_residency_backed_up(context, s, p))
		p++;
	s->backup_from = p + 1;
	return p;
}

int dhs_backup_new(dhs_context *context, struct dhs_work **work)
{
	*work = NULL;
	if (context->backup != DHS_BACKUP_BACKGROUND || !context->unbacked)
		return DHS_OK;
	return dhs_work_new(context, context->copy_stream, work);
}

int dhs_backup_tick(dhs_context *context, struct dhs_work *work)
{
	uint64_t most = context->refill.link_bytes / dhs_page_bytes(context);
	struct dhs_session_state *s = NULL;

	while (work && context->copies < most) {
		s = s && s->unbacked ? s : dhs_residency_cheapest(context, to_copy);
		if (!s)
			break;
		dhs_residency_back_up(context, s, next_page(context, s));
		dhs_work_set(context, &s->saving, work);
	}
	return dhs_residency_copy(context, work);
}
