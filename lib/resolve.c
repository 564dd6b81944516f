/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The calls of a step that can be captured.  They change nothing on the host:
 * all they do is checked, and enqueued with fixed addresses.  While the stream is
 * captured there need be no begun step, and shapes are only held against the
 * batch; a replay is judged on the device.
 */
#include "context.h"

/* Checks the stream and, unless captured, that a step is begun that `sessions` entries
 * cover.  sessions 0 becomes the batch's most. */
static int check_call(const char *call, dhs_batch *batch, uint32_t *sessions, dhs_stream stream,
                      int *captured)
{
	int rc = dhs_stream_check(call, batch->context, stream, captured);

	if (rc)
		return rc;
	if (!*captured && !batch->current)
		return dhs_fail(DHS_ERR_ORDER, "%s: the batch has no begun step", call);
	if (!*captured && !dhs_work_open(batch->last))
		return dhs_fail(
			DHS_ERR_ORDER,
			"%s: a begin of another batch with a session of step %llu has marked its end", call,
			(unsigned long long)batch->current);
	if (!*sessions)
		*sessions = batch->max_sessions;
	if (*sessions > batch->max_sessions)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: sessions is %u; the batch takes at most %u", call,
		                *sessions, batch->max_sessions);
	if (!*captured && *sessions < batch->count)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: sessions is %u; the begun step has %u entries", call,
		                *sessions, batch->count);
	return DHS_OK;
}

static int check_group(const char *call, const dhs_batch *batch, uint32_t group)
{
	uint32_t groups = batch->context->world.geometry.groups;

	if (group >= groups)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: group is %u; there are %u groups", call, group,
		                groups);
	return DHS_OK;
}

int dhs_step_all_resident(dhs_batch *batch, int *resident)
{
	DHS_GUARD(guard);
	int rc = dhs_batch_enter("dhs_step_all_resident", batch, &guard);

	if (rc)
		return rc;
	rc =
		dhs_options_check_pointer("dhs_step_all_resident", "resident", resident, sizeof(*resident));
	if (rc)
		return rc;
	if (!batch->begun)
		return dhs_fail(DHS_ERR_ORDER, "dhs_step_all_resident: the batch has not begun a step");
	*resident = batch->all_resident;
	return DHS_OK;
}

int dhs_step_slots(dhs_batch *batch, uint32_t sessions, uint32_t rows, int32_t *slots_dev,
                   dhs_stream stream)
{
	DHS_GUARD(guard);
	dhs_context *context;
	int captured = 0, rc = dhs_batch_enter("dhs_step_slots", batch, &guard);

	if (rc == DHS_OK)
		rc = check_call("dhs_step_slots", batch, &sessions, stream, &captured);
	if (rc)
		return rc;
	context = batch->context;
	rc = dhs_options_check_pointer("dhs_step_slots", "slots_dev", slots_dev, sizeof(*slots_dev));
	if (rc)
		return rc;
	if (!rows || rows > context->max_new_rows)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_step_slots: rows is %u; it must be 1 to max_new_rows = %u", rows,
		                context->max_new_rows);
	if (!captured && rows < batch->new_rows)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_step_slots: rows is %u; an entry of the begun step has %u new rows",
		                rows, batch->new_rows);
	return context->ops->slots(context->device, &context->world, batch->state, sessions, rows,
	                           slots_dev, stream);
}

/* Slots may take the place of the rows, but not of some of them. */
static int check_apart(const char *call, const dhs_selection *s)
{
	uint64_t bytes = (uint64_t)s->sessions * s->queries * s->top_k * sizeof(*s->rows);
	uintptr_t rows = (uintptr_t)s->rows, slots = (uintptr_t)s->slots;

	if (rows != slots && rows < slots + bytes && slots < rows + bytes)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: selection->rows %p and slots %p, of %llu bytes each, overlap", call,
		                (const void *)s->rows, (void *)s->slots, (unsigned long long)bytes);
	return DHS_OK;
}

/* Checks a selection and fills in its defaults. */
static int fill_selection(const char *call, const dhs_batch *batch, int captured, dhs_selection *s)
{
	int rc;

	if (s->flags || s->reserved)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: selection->flags is %#x and reserved %u; both must be 0", call,
		                s->flags, s->reserved);
	s->queries = s->queries ? s->queries : batch->max_queries;
	s->top_k = s->top_k ? s->top_k : batch->top_k;
	if (s->queries > batch->max_queries)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: selection->queries is %u; the batch's max_queries is %u", call,
		                s->queries, batch->max_queries);
	if (s->top_k > batch->top_k)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: selection->top_k is %u; the batch's top_k is %u",
		                call, s->top_k, batch->top_k);
	if (!captured && s->queries < batch->queries)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: selection->queries is %u; an entry of the begun step has %u", call,
		                s->queries, batch->queries);
	rc = dhs_options_check_pointer(call, "selection->rows", s->rows, sizeof(*s->rows));
	if (rc == DHS_OK)
		rc = dhs_options_check_pointer(call, "selection->slots", s->slots, sizeof(*s->slots));
	return rc ? rc : check_apart(call, s);
}

static int plan(const char *call, dhs_batch *batch, uint32_t group, const dhs_selection *selection,
                dhs_stream stream)
{
	dhs_selection s = DHS_INIT(dhs_selection);
	dhs_context *context = batch->context;
	int captured = 0, rc = check_group(call, batch, group);

	if (rc == DHS_OK)
		rc = dhs_options_read(call, "selection", selection, &s, sizeof(s), sizeof(s));
	if (rc == DHS_OK)
		rc = check_call(call, batch, &s.sessions, stream, &captured);
	if (rc == DHS_OK)
		rc = fill_selection(call, batch, captured, &s);
	if (rc)
		return rc;
	return context->ops->plan(context->device, &context->world, batch->state, group, &s, stream);
}

int dhs_step_plan(dhs_batch *batch, uint32_t group, const dhs_selection *selection,
                  dhs_stream stream)
{
	DHS_GUARD(guard);
	int rc = dhs_batch_enter("dhs_step_plan", batch, &guard);

	return rc ? rc : plan("dhs_step_plan", batch, group, selection, stream);
}

static int fetch(const char *call, dhs_batch *batch, uint32_t group, uint32_t first,
                 uint32_t layers, dhs_stream stream)
{
	const uint32_t *group_first;
	uint32_t sessions = 0, all;
	int captured, rc = check_call(call, batch, &sessions, stream, &captured);

	if (rc == DHS_OK)
		rc = check_group(call, batch, group);
	if (rc)
		return rc;
	group_first = batch->context->group_first;
	all = group_first[group + 1] - group_first[group];
	if (first >= all || layers > all - first)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: first is %u and layers %u; group %u has %u layers",
		                call, first, layers, group, all);
	return batch->context->ops->fetch(batch->context->device, &batch->context->world, batch->state,
	                                  group, first, layers ? layers : all - first, stream);
}

int dhs_step_fetch(dhs_batch *batch, uint32_t group, uint32_t first, uint32_t layers,
                   dhs_stream stream)
{
	DHS_GUARD(guard);
	int rc = dhs_batch_enter("dhs_step_fetch", batch, &guard);

	return rc ? rc : fetch("dhs_step_fetch", batch, group, first, layers, stream);
}

int dhs_step_resolve(dhs_batch *batch, uint32_t group, const dhs_selection *selection,
                     dhs_stream stream)
{
	DHS_GUARD(guard);
	int rc = dhs_batch_enter("dhs_step_resolve", batch, &guard);

	if (rc == DHS_OK)
		rc = plan("dhs_step_resolve", batch, group, selection, stream);
	return rc ? rc : fetch("dhs_step_resolve", batch, group, 0, 0, stream);
}

int dhs_step_commit(dhs_batch *batch, uint32_t sessions, const int32_t *kept_dev, dhs_stream stream)
{
	DHS_GUARD(guard);
	int captured, rc = dhs_batch_enter("dhs_step_commit", batch, &guard);

	if (rc == DHS_OK)
		rc = check_call("dhs_step_commit", batch, &sessions, stream, &captured);
	if (rc == DHS_OK && kept_dev)
		rc = dhs_options_check_pointer("dhs_step_commit", "kept_dev", kept_dev, sizeof(*kept_dev));
	if (rc)
		return rc;
	return batch->context->ops->commit(batch->context->device, &batch->context->world, batch->state,
	                                   sessions, kept_dev, stream);
}
