/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What cannot change any more: sizes, offsets and values, and how much of a
 * caller's struct the library writes. */
#include "support.h"

struct golden {
	const char *name;
	size_t is, expected;
};

/* clang-format off */
#define SIZE(type, bytes) { "sizeof " #type, sizeof(type), bytes }
#define AT(type, member, offset) { #type "." #member, offsetof(type, member), offset }
#define VALUE(name, value) { #name, (size_t)(int64_t)(name), (size_t)(int64_t)(value) }
/* clang-format on */

static void check_goldens(const struct golden *golden, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ck_assert_msg(golden[i].is == golden[i].expected, "%s is %zu, not %zu", golden[i].name,
		              golden[i].is, golden[i].expected);
}

START_TEST(test_layout_structs)
{
	static const struct golden golden[] = {
		SIZE(dhs_segment, 32),
		AT(dhs_segment, bytes, 0),
		AT(dhs_segment, flags, 4),
		AT(dhs_segment, offset, 8),
		AT(dhs_segment, row_stride, 16),
		AT(dhs_segment, page_stride, 24),
		SIZE(dhs_layout, 48),
		AT(dhs_layout, size, 0),
		AT(dhs_layout, flags, 4),
		AT(dhs_layout, layers, 8),
		AT(dhs_layout, groups, 12),
		AT(dhs_layout, group_layers, 16),
		AT(dhs_layout, segments, 24),
		AT(dhs_layout, segment_size, 28),
		AT(dhs_layout, segment, 32),
		AT(dhs_layout, page_rows, 40),
		AT(dhs_layout, tokens_per_row, 44),
		SIZE(dhs_allocator, 32),
		AT(dhs_allocator, size, 0),
		AT(dhs_allocator, flags, 4),
		AT(dhs_allocator, alloc, 8),
		AT(dhs_allocator, free, 16),
		AT(dhs_allocator, arg, 24),
		SIZE(dhs_place, 40),
		AT(dhs_place, size, 0),
		AT(dhs_place, flags, 4),
		AT(dhs_place, base, 8),
		AT(dhs_place, page_stride, 16),
		AT(dhs_place, row_stride, 24),
		AT(dhs_place, bytes, 32),
		AT(dhs_place, page_rows, 36),
		SIZE(dhs_host_options, 24),
		AT(dhs_host_options, size, 0),
		AT(dhs_host_options, flags, 4),
		AT(dhs_host_options, seed, 8),
		AT(dhs_host_options, allocator, 16),
	};

	check_goldens(golden, COUNT_OF(golden));
}
END_TEST

START_TEST(test_context_structs)
{
	static const struct golden golden[] = {
		SIZE(dhs_context_options, 144),
		AT(dhs_context_options, size, 0),
		AT(dhs_context_options, flags, 4),
		AT(dhs_context_options, backend, 8),
		AT(dhs_context_options, policy, 12),
		AT(dhs_context_options, backup, 16),
		AT(dhs_context_options, max_sessions, 20),
		AT(dhs_context_options, max_rows, 24),
		AT(dhs_context_options, max_new_rows, 28),
		AT(dhs_context_options, hot_rows, 32),
		AT(dhs_context_options, tail_rows, 36),
		AT(dhs_context_options, reserved_pages, 40),
		AT(dhs_context_options, device_pages, 44),
		AT(dhs_context_options, host_rows, 48),
		AT(dhs_context_options, layout, 56),
		AT(dhs_context_options, pool, 64),
		AT(dhs_context_options, host, 72),
		AT(dhs_context_options, allocator, 80),
		AT(dhs_context_options, log, 88),
		AT(dhs_context_options, log_arg, 96),
		AT(dhs_context_options, device, 104),
		AT(dhs_context_options, max_staging_rows, 108),
		AT(dhs_context_options, link_bytes, 112),
		AT(dhs_context_options, refill_low, 120),
		AT(dhs_context_options, refill_high, 124),
		AT(dhs_context_options, tick_us, 128),
		AT(dhs_context_options, max_hot_rows, 132),
		AT(dhs_context_options, reclaim, 136),
		AT(dhs_context_options, reserved, 140),
		SIZE(dhs_required, 72),
		AT(dhs_required, size, 0),
		AT(dhs_required, flags, 4),
		AT(dhs_required, device_bytes, 8),
		AT(dhs_required, host_bytes, 16),
		AT(dhs_required, pool_bytes, 24),
		AT(dhs_required, tier_bytes, 32),
		AT(dhs_required, session_pages, 40),
		AT(dhs_required, hot_pages, 44),
		AT(dhs_required, tail_pages, 48),
		AT(dhs_required, staging_pages, 52),
		AT(dhs_required, staging_rows, 56),
		AT(dhs_required, reserved, 60),
		AT(dhs_required, staging_bytes, 64),
		SIZE(dhs_session_options, 16),
		AT(dhs_session_options, size, 0),
		AT(dhs_session_options, flags, 4),
		AT(dhs_session_options, reserve_rows, 8),
		SIZE(dhs_session_info, 72),
		AT(dhs_session_info, size, 0),
		AT(dhs_session_info, flags, 4),
		AT(dhs_session_info, rows, 8),
		AT(dhs_session_info, rows_bound, 16),
		AT(dhs_session_info, tokens, 24),
		AT(dhs_session_info, device_rows, 32),
		AT(dhs_session_info, host_only_rows, 40),
		AT(dhs_session_info, resident_pages, 48),
		AT(dhs_session_info, required_pages, 52),
		AT(dhs_session_info, host_rows, 56),
		AT(dhs_session_info, elastic_pages, 64),
		AT(dhs_session_info, reserved, 68),
		SIZE(dhs_admission, 72),
		AT(dhs_admission, size, 0),
		AT(dhs_admission, flags, 4),
		AT(dhs_admission, verdict, 8),
		AT(dhs_admission, lack, 12),
		AT(dhs_admission, host_rows_needed, 16),
		AT(dhs_admission, host_rows_free, 24),
		AT(dhs_admission, host_rows_draining, 32),
		AT(dhs_admission, pages_needed, 40),
		AT(dhs_admission, pages_free, 44),
		AT(dhs_admission, pages_coming, 48),
		AT(dhs_admission, pages_optional, 52),
		AT(dhs_admission, pages_draining, 56),
		AT(dhs_admission, sessions_free, 60),
		AT(dhs_admission, evicted_pages, 64),
		AT(dhs_admission, pending_pages, 68),
	};

	check_goldens(golden, COUNT_OF(golden));
}
END_TEST

START_TEST(test_stats_struct)
{
	static const struct golden golden[] = {
		SIZE(dhs_stats, 320),
		AT(dhs_stats, size, 0),
		AT(dhs_stats, flags, 4),
		AT(dhs_stats, pages_reserved, 8),
		AT(dhs_stats, pages_free, 12),
		AT(dhs_stats, pages_draining, 16),
		AT(dhs_stats, pages_required, 20),
		AT(dhs_stats, pages_resident, 24),
		AT(dhs_stats, pages_staging, 28),
		AT(dhs_stats, sessions, 32),
		AT(dhs_stats, batches, 36),
		AT(dhs_stats, backend, 40),
		AT(dhs_stats, policy, 44),
		AT(dhs_stats, host_rows, 48),
		AT(dhs_stats, host_rows_used, 56),
		AT(dhs_stats, steps, 64),
		AT(dhs_stats, steps_settled, 72),
		AT(dhs_stats, steps_aborted, 80),
		AT(dhs_stats, plans, 88),
		AT(dhs_stats, page_hits, 96),
		AT(dhs_stats, hot_hits, 104),
		AT(dhs_stats, misses, 112),
		AT(dhs_stats, repeats, 120),
		AT(dhs_stats, staged, 128),
		AT(dhs_stats, victims, 136),
		AT(dhs_stats, bad_rows, 144),
		AT(dhs_stats, fetched_bytes, 152),
		AT(dhs_stats, mirrored_rows, 160),
		AT(dhs_stats, backup_rows, 168),
		AT(dhs_stats, backup_bytes, 176),
		AT(dhs_stats, reload_rows, 184),
		AT(dhs_stats, evicted_pages, 192),
		AT(dhs_stats, refusals, 200),
		AT(dhs_stats, order_errors, 208),
		AT(dhs_stats, flow_waits, 216),
		AT(dhs_stats, staging_bytes, 224),
		AT(dhs_stats, ticks, 232),
		AT(dhs_stats, refilled_pages, 240),
		AT(dhs_stats, refill_bytes, 248),
		AT(dhs_stats, pages_coming, 256),
		AT(dhs_stats, pages_unbacked, 260),
		AT(dhs_stats, suspends, 264),
		AT(dhs_stats, resumes, 272),
		AT(dhs_stats, warmed_rows, 280),
		AT(dhs_stats, warm_bytes, 288),
		AT(dhs_stats, sessions_suspended, 296),
		AT(dhs_stats, pages_elastic, 300),
		AT(dhs_stats, granted_pages, 304),
		AT(dhs_stats, withdrawn_pages, 312),
	};

	check_goldens(golden, COUNT_OF(golden));
}
END_TEST

START_TEST(test_step_structs)
{
	static const struct golden golden[] = {
		SIZE(dhs_batch_options, 36),
		AT(dhs_batch_options, size, 0),
		AT(dhs_batch_options, flags, 4),
		AT(dhs_batch_options, max_sessions, 8),
		AT(dhs_batch_options, max_queries, 12),
		AT(dhs_batch_options, top_k, 16),
		AT(dhs_batch_options, staging_rows, 20),
		AT(dhs_batch_options, staging_buffers, 24),
		AT(dhs_batch_options, read_pad, 28),
		AT(dhs_batch_options, write_pad, 32),
		SIZE(dhs_budget, 56),
		AT(dhs_budget, size, 0),
		AT(dhs_budget, flags, 4),
		AT(dhs_budget, device_bytes, 8),
		AT(dhs_budget, row_bytes, 16),
		AT(dhs_budget, session_bytes, 24),
		AT(dhs_budget, rows, 32),
		AT(dhs_budget, sessions, 40),
		AT(dhs_budget, batches, 44),
		AT(dhs_budget, batch, 48),
		SIZE(dhs_budget_result, 72),
		AT(dhs_budget_result, size, 0),
		AT(dhs_budget_result, flags, 4),
		AT(dhs_budget_result, device_pages, 8),
		AT(dhs_budget_result, sessions, 12),
		AT(dhs_budget_result, whole_sessions, 16),
		AT(dhs_budget_result, reserved, 20),
		AT(dhs_budget_result, host_rows, 24),
		AT(dhs_budget_result, engine_bytes, 32),
		AT(dhs_budget_result, context_bytes, 40),
		AT(dhs_budget_result, batch_bytes, 48),
		AT(dhs_budget_result, pool_bytes, 56),
		AT(dhs_budget_result, left_bytes, 64),
		SIZE(dhs_batch_view, 40),
		AT(dhs_batch_view, size, 0),
		AT(dhs_batch_view, flags, 4),
		AT(dhs_batch_view, session_index, 8),
		AT(dhs_batch_view, lengths, 16),
		AT(dhs_batch_view, page_table, 24),
		AT(dhs_batch_view, page_stride, 32),
		SIZE(dhs_step_entry, 16),
		AT(dhs_step_entry, session, 0),
		AT(dhs_step_entry, new_rows, 8),
		AT(dhs_step_entry, queries, 12),
		SIZE(dhs_selection, 40),
		AT(dhs_selection, size, 0),
		AT(dhs_selection, flags, 4),
		AT(dhs_selection, sessions, 8),
		AT(dhs_selection, queries, 12),
		AT(dhs_selection, top_k, 16),
		AT(dhs_selection, reserved, 20),
		AT(dhs_selection, rows, 24),
		AT(dhs_selection, slots, 32),
		SIZE(dhs_session, 8),
		SIZE(dhs_step, 8),
		SIZE(dhs_fence, 8),
	};

	check_goldens(golden, COUNT_OF(golden));
}
END_TEST

START_TEST(test_values)
{
	static const struct golden golden[] = {
		VALUE(DHS_OK, 0),
		VALUE(DHS_ERR_ARGUMENT, -1),
		VALUE(DHS_ERR_ORDER, -2),
		VALUE(DHS_ERR_DEVICE_MEMORY, -3),
		VALUE(DHS_ERR_HOST_MEMORY, -4),
		VALUE(DHS_ERR_BUSY, -5),
		VALUE(DHS_ERR_PENDING, -6),
		VALUE(DHS_ERR_MISMATCH, -7),
		VALUE(DHS_ERR_CAPTURING, -8),
		VALUE(DHS_ERR_UNSUPPORTED, -9),
		VALUE(DHS_ERR_DEVICE, -10),
		VALUE(DHS_ERR_CORRUPT, -11),
		VALUE(DHS_ERR_VERSION, -12),
		VALUE(DHS_ERR_QUARANTINED, -13),
		VALUE(DHS_MEMORY_CONTROL, 0),
		VALUE(DHS_MEMORY_DEVICE, 1),
		VALUE(DHS_MEMORY_HOST, 2),
		VALUE(DHS_ALLOCATOR_PINNED, 1),
		VALUE(DHS_LOG_ERROR, 1),
		VALUE(DHS_LOG_WARNING, 2),
		VALUE(DHS_LOG_INFO, 3),
		VALUE(DHS_BACKEND_AUTO, 0),
		VALUE(DHS_BACKEND_HOST, 1),
		VALUE(DHS_POLICY_DEFAULT, 0),
		VALUE(DHS_POLICY_ADAPTIVE, 1),
		VALUE(DHS_POLICY_FIXED, 2),
		VALUE(DHS_POLICY_FULL, 3),
		VALUE(DHS_BACKUP_DEFAULT, 0),
		VALUE(DHS_BACKUP_EAGER, 1),
		VALUE(DHS_BACKUP_RECLAIM, 2),
		VALUE(DHS_BACKUP_BACKGROUND, 3),
		VALUE(DHS_RECLAIM_DEFAULT, 0),
		VALUE(DHS_RECLAIM_WHOLE, 1),
		VALUE(DHS_RECLAIM_PARTIAL, 2),
		VALUE(DHS_CONTEXT_TAIL_ROWS, 1),
		VALUE(DHS_CONTEXT_DEVICE, 2),
		VALUE(DHS_CONTEXT_POOL_STAGING, 4),
		VALUE(DHS_CONTEXT_REFILL, 8),
		VALUE(DHS_STATS_REPEATABLE, 1),
		VALUE(DHS_BACKEND_CUDA, 2),
		VALUE(DHS_BATCH_READ_PAD, 1),
		VALUE(DHS_BATCH_WRITE_PAD, 2),
		VALUE(DHS_BATCH_STAGING_ROWS, 4),
		VALUE(DHS_MAX_STEPS_IN_FLIGHT, 2),
		VALUE(DHS_ADMISSION_YES, 1),
		VALUE(DHS_ADMISSION_AFTER, 2),
		VALUE(DHS_ADMISSION_NO, 3),
		VALUE(DHS_LACK_NOTHING, 0),
		VALUE(DHS_LACK_HOST_ROWS, 1),
		VALUE(DHS_LACK_SESSIONS, 2),
		VALUE(DHS_LACK_PAGES, 3),
	};

	check_goldens(golden, COUNT_OF(golden));
}
END_TEST

START_TEST(test_init)
{
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_layout zero;

	memset(&zero, 0, sizeof(zero));
	zero.size = sizeof(zero);
	ck_assert_mem_eq(&layout, &zero, sizeof(zero));
	ck_assert_uint_eq(layout.size, 48);
}
END_TEST

START_TEST(test_version)
{
	char text[32];

	ck_assert_uint_eq(DHS_VERSION,
	                  DHS_VERSION_MAJOR * 10000 + DHS_VERSION_MINOR * 100 + DHS_VERSION_PATCH);
	ck_assert_uint_eq(dhs_version(), DHS_VERSION);
	snprintf(text, sizeof(text), "%d.%d.%d", DHS_VERSION_MAJOR, DHS_VERSION_MINOR,
	         DHS_VERSION_PATCH);
	ck_assert_str_eq(dhs_version_string(), text);
}
END_TEST

START_TEST(test_strerror)
{
	for (int code = DHS_ERR_QUARANTINED; code <= 0; code++) {
		ck_assert_ptr_nonnull(dhs_strerror(code));
		ck_assert_str_ne(dhs_strerror(code), "");
		ck_assert_ptr_eq(dhs_strerror(code), dhs_strerror(code));
		for (int other = DHS_ERR_QUARANTINED; other < code; other++)
			ck_assert_str_ne(dhs_strerror(code), dhs_strerror(other));
	}
	ck_assert_ptr_nonnull(dhs_strerror(1));
	ck_assert_ptr_nonnull(dhs_strerror(-14));
	ck_assert_ptr_nonnull(dhs_strerror(INT32_MIN));
	ck_assert_ptr_nonnull(dhs_strerror(INT32_MAX));
}
END_TEST

START_TEST(test_last_error_starts_empty)
{
	ck_assert_str_eq(dhs_last_error(), "");
}
END_TEST

/* ---- output structs ------------------------------------------------------- */

struct outputs {
	struct rig rig;
	struct table table;
	struct history history;
};

static int output_context_required(struct outputs *o, void *out)
{
	return dhs_context_required(&o->rig.options, out);
}

static int output_batch_required(struct outputs *o, void *out)
{
	return dhs_batch_required(&o->rig.options, &o->table.options, out);
}

static int output_stats(struct outputs *o, void *out)
{
	return dhs_context_stats(o->rig.context, out);
}

static int output_place(struct outputs *o, void *out)
{
	return dhs_context_place(o->rig.context, 1, 0, out);
}

static int output_info(struct outputs *o, void *out)
{
	return dhs_session_get_info(o->rig.context, o->history.id, out);
}

static int output_admission(struct outputs *o, void *out)
{
	return dhs_session_admission(o->rig.context, NULL, out);
}

static int output_budget(struct outputs *o, void *out)
{
	dhs_context_options context = o->rig.options;
	dhs_budget budget = DHS_INIT(dhs_budget);

	context.device_pages = 0;
	budget.device_bytes = UINT64_C(1) << 32;
	budget.rows = 99;
	return dhs_pool_budget(&context, &budget, out);
}

static int output_view(struct outputs *o, void *out)
{
	return dhs_batch_get_view(o->table.batch, out);
}

struct output {
	int (*call)(struct outputs *o, void *out);
	uint32_t bytes;
};

static const struct output output_calls[] = {
	{ output_context_required, sizeof(dhs_required) },
	{ output_batch_required, sizeof(dhs_required) },
	{ output_stats, sizeof(dhs_stats) },
	{ output_place, sizeof(dhs_place) },
	{ output_info, sizeof(dhs_session_info) },
	{ output_admission, sizeof(dhs_admission) },
	{ output_budget, sizeof(dhs_budget_result) },
	{ output_view, sizeof(dhs_batch_view) },
};

#define OUTPUT_MOST 512

/* Calls with a struct of `size` bytes; nothing but those may be written. */
static int output_with(struct outputs *o, const struct output *output, uint32_t size,
                       unsigned char *out)
{
	int rc;

	memset(out, 0xc3, OUTPUT_MOST);
	memcpy(out, &size, sizeof(size));
	rc = output->call(o, out);
	ck_assert_mem_eq(out, &size, sizeof(size));
	for (uint32_t i = rc == 0 ? size : 4; i < OUTPUT_MOST; i++)
		ck_assert_msg(out[i] == 0xc3, "rc %d: byte %u of %u written", rc, i, size);
	return rc;
}

/* The same, but a newer caller's fields are the library's to zero or leave. */
static void output_larger(struct outputs *o, const struct output *output, uint32_t more)
{
	unsigned char out[OUTPUT_MOST], exact[OUTPUT_MOST];

	ck_good(output_with(o, output, output->bytes, exact));
	ck_good(output_with(o, output, output->bytes + more, out));
	ck_assert_mem_eq(out + 4, exact + 4, output->bytes - 4);
}

static void output_smaller(struct outputs *o, const struct output *output, uint32_t size)
{
	unsigned char out[OUTPUT_MOST], exact[OUTPUT_MOST];

	ck_good(output_with(o, output, output->bytes, exact));
	if (output_with(o, output, size, out) == 0)
		ck_assert_mem_eq(out + 4, exact + 4, size - 4);
	else
		ck_assert_str_ne(dhs_last_error(), "");
}

static void outputs_open(struct outputs *o)
{
	rig_default(&o->rig);
	rig_open(&o->rig);
	history_open(&o->rig, &o->history);
	history_prefill(&o->rig, &o->history, 21);
	table_open(&o->rig, &o->table, 2, 2, 4);
}

static void outputs_close(struct outputs *o)
{
	history_close(&o->rig, &o->history);
	table_close(&o->table);
	rig_close(&o->rig);
}

START_TEST(test_outputs)
{
	struct outputs o;
	const struct output *output = &output_calls[_i];
	unsigned char out[OUTPUT_MOST];

	outputs_open(&o);
	output_larger(&o, output, 4);
	output_larger(&o, output, 8);
	output_larger(&o, output, 100);
	for (uint32_t size = 8; size < output->bytes; size += 4)
		output_smaller(&o, output, size);
	for (uint32_t size = 0; size < 8; size++)
		ck_assert_int_eq(output_with(&o, output, size, out), DHS_ERR_ARGUMENT);
	outputs_close(&o);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("abi");
	TCase *fixed = tcase_create("fixed"), *outputs = tcase_create("outputs");

	tcase_add_test(fixed, test_layout_structs);
	tcase_add_test(fixed, test_context_structs);
	tcase_add_test(fixed, test_stats_struct);
	tcase_add_test(fixed, test_step_structs);
	tcase_add_test(fixed, test_values);
	tcase_add_test(fixed, test_init);
	tcase_add_test(fixed, test_version);
	tcase_add_test(fixed, test_strerror);
	tcase_add_test(fixed, test_last_error_starts_empty);
	suite_add_tcase(suite, fixed);
	tcase_set_timeout(outputs, support_seconds(20));
	tcase_add_loop_test(outputs, test_outputs, 0, COUNT_OF(output_calls));
	suite_add_tcase(suite, outputs);
	return support_run(suite);
}
