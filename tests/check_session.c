/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Sessions: where their rows are, who gives way, and ends at any time. */
#include "support.h"

#define R 3        /* tail pages of the rig's sessions */
#define REQUIRED 5 /* and their hot pages */

static const uint32_t policies[] = { DHS_POLICY_ADAPTIVE, DHS_POLICY_FIXED, DHS_POLICY_FULL };

static void open_policy(struct rig *rig, uint64_t seed, uint32_t policy)
{
	rig_default(rig);
	rig->seed = seed;
	rig->options.policy = policy;
	if (policy == DHS_POLICY_FULL)
		rig->options.host_rows = 0;
	rig_open(rig);
}

static dhs_stats waited(struct rig *rig)
{
	ck_good(dhs_context_wait(rig->context));
	return rig_stats(rig);
}

/* ---- extend and commit ---------------------------------------------------- */

START_TEST(test_extend_slots)
{
	struct rig rig;
	struct history history;
	int32_t slots[60];

	open_policy(&rig, 0, policies[_i]);
	history_open(&rig, &history);
	ck_good(dhs_session_extend(rig.context, history.id, 60, rig.stream, slots));
	for (uint32_t i = 0; i < 60; i++) {
		ck_assert_int_ge(slots[i], 0);
		ck_assert_int_lt(slots[i], 64 * 4);
		ck_assert_int_eq(slots[i] % 4, (int32_t)i % 4);
		for (uint32_t j = 0; j < i; j++)
			ck_assert_int_ne(slots[i], slots[j]);
	}
	ck_assert_uint_eq(rig_info(&rig, history.id).rows, 0);
	ck_good(dhs_session_commit(rig.context, history.id, 60, rig.stream));
	ck_assert_uint_eq(rig_info(&rig, history.id).rows, 60);
	rig_close(&rig);
}
END_TEST

/* Pieces of all sizes, commits that are shorter, all policies. */
START_TEST(test_pieces)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct dice dice = { (uint64_t)_i };

	open_policy(&rig, (uint64_t)_i, policies[_i % 3]);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 1, 16);
	while (history.rows < 120) {
		uint32_t more = dice_below(&dice, 7), rows = dice_below(&dice, 9) + 1;
		int32_t slots[16];

		ck_good(dhs_session_extend(rig.context, history.id, rows + more, rig.stream, slots));
		if (dice_below(&dice, 2) == 0)
			ck_good(dhs_session_commit(rig.context, history.id, 0, rig.stream));
		else
			history_truncate(&rig, &history, history.rows);
		history_prefill(&rig, &history, rows);
		ck_assert_uint_eq(rig_info(&rig, history.id).rows, history.rows);
	}
	history_verify(&table, &history);
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

START_TEST(test_short_commit)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t slots[40];
	dhs_session_info info;
	dhs_stats before, after;

	open_policy(&rig, 0, policies[_i]);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 9);
	before = rig_stats(&rig);
	ck_good(dhs_session_extend(rig.context, history.id, 40, rig.stream, slots));
	for (uint32_t i = 0; i < 2; i++) {
		history.stamp[9 + i] = rig.next_stamp++;
		stamp_write(&rig, slots[i], history.stamp[9 + i]);
	}
	ck_good(dhs_session_commit(rig.context, history.id, 2, rig.stream));
	history.rows = history.settled = 11;
	info = rig_info(&rig, history.id);
	after = rig_stats(&rig);
	ck_assert_uint_eq(info.rows, 11);
	ck_assert_uint_eq(info.host_rows, policies[_i] == DHS_POLICY_FULL ? 0 : 12);
	ck_assert_uint_eq(after.pages_free + after.pages_draining,
	                  before.pages_free + before.pages_draining);
	ck_assert_uint_eq(after.host_rows_used, before.host_rows_used);
	table_open(&rig, &table, 1, 1, 16);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

START_TEST(test_longest)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t slots[1];

	rig_default(&rig);
	rig.options.policy = policies[_i];
	rig.options.max_rows = 63;
	if (policies[_i] == DHS_POLICY_FULL)
		rig.options.host_rows = 0;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 62);
	table_open(&rig, &table, 1, 1, 16);
	turn_one(&table, &history, 1, 1, NULL, 1);
	ck_code(dhs_session_extend(rig.context, history.id, 1, rig.stream, slots), DHS_ERR_ARGUMENT);
	history_verify(&table, &history);
	history_truncate(&rig, &history, 0);
	history_prefill(&rig, &history, 63);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- info ----------------------------------------------------------------- */

START_TEST(test_info_adaptive)
{
	struct rig rig;
	struct history history;
	dhs_session_info info;

	rig_default(&rig);
	rig.layout.tokens_per_row = 4;
	rig_open(&rig);
	history_open(&rig, &history);
	info = rig_info(&rig, history.id);
	ck_assert_uint_eq(info.rows + info.tokens + info.device_rows + info.host_rows, 0);
	ck_assert_uint_eq(info.required_pages, REQUIRED);
	history_prefill(&rig, &history, 41);
	info = rig_info(&rig, history.id);
	ck_assert_uint_eq(info.rows, 41);
	ck_assert_uint_eq(info.rows_bound, 41);
	ck_assert_uint_eq(info.tokens, 164);
	ck_assert_uint_eq(info.device_rows, 41);
	ck_assert_uint_eq(info.host_only_rows, 0);
	ck_assert_uint_eq(info.required_pages, REQUIRED);
	ck_assert_uint_eq(info.resident_pages, 37 / 4); /* wholly below 41 - 4 */
	ck_assert_uint_eq(info.host_rows, 44);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	info = rig_info(&rig, history.id);
	ck_assert_uint_eq(info.resident_pages, 0);
	ck_assert_uint_eq(info.host_only_rows, 36);
	ck_assert_uint_eq(info.device_rows, 5);
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, 9);
	ck_assert_uint_eq(rig_stats(&rig).pages_required, REQUIRED);
	rig_close(&rig);
}
END_TEST

START_TEST(test_info_fixed)
{
	struct rig rig;
	struct history history;
	dhs_session_info info;

	open_policy(&rig, 0, DHS_POLICY_FIXED);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 41);
	info = rig_info(&rig, history.id);
	ck_assert_uint_eq(info.resident_pages, 0);
	ck_assert_uint_eq(info.host_only_rows, 36);
	ck_assert_uint_eq(info.device_rows, 5);
	ck_assert_uint_eq(info.tokens, 41);
	ck_assert_uint_eq(rig_stats(&rig).pages_required, REQUIRED);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 64 - REQUIRED);
	rig_close(&rig);
}
END_TEST

START_TEST(test_info_full)
{
	struct rig rig;
	struct history history;
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_session_info info;
	dhs_session reserved = 0;

	open_policy(&rig, 0, DHS_POLICY_FULL);
	history_open(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 64);
	history_prefill(&rig, &history, 41);
	info = rig_info(&rig, history.id);
	ck_assert_uint_eq(info.device_rows, 41);
	ck_assert_uint_eq(info.host_only_rows, 0);
	ck_assert_uint_eq(info.host_rows, 0);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 64 - 11);
	options.reserve_rows = 99;
	ck_good(dhs_session_create(rig.context, &options, &reserved));
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 64 - 11 - 25);
	options.reserve_rows = 29 * 4;
	ck_code(dhs_session_create(rig.context, &options, &reserved), DHS_ERR_DEVICE_MEMORY);
	history_close(&rig, &history);
	ck_good(dhs_session_destroy(rig.context, reserved));
	ck_good(dhs_context_wait(rig.context));
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 64);
	rig_close(&rig);
}
END_TEST

START_TEST(test_reserve)
{
	struct rig rig;
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_session session = 0;
	struct history history = { 0 };

	rig_default(&rig);
	rig_open(&rig);
	options.reserve_rows = 101;
	ck_good(dhs_session_create(rig.context, &options, &session));
	ck_assert_uint_eq(rig_info(&rig, session).host_rows, 104);
	ck_assert_uint_eq(rig_stats(&rig).host_rows_used, 104);
	history.id = session;
	history.stamp = rig_keep(&rig, 4 * 256);
	history_prefill(&rig, &history, 50);
	ck_assert_uint_eq(rig_info(&rig, session).host_rows, 104);
	history_prefill(&rig, &history, 60);
	ck_assert_uint_eq(rig_info(&rig, session).host_rows, 112);
	history_truncate(&rig, &history, 3);
	ck_assert_uint_eq(rig_info(&rig, session).host_rows, 104);
	history_close(&rig, &history);
	ck_good(dhs_context_wait(rig.context));
	ck_assert_uint_eq(rig_stats(&rig).host_rows_used, 0);
	rig_close(&rig);
}
END_TEST

/* tail_rows 0 is a value of its own, when the flag says so. */
START_TEST(test_no_tail)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	rig.options.policy = DHS_POLICY_FIXED;
	rig.options.flags |= DHS_CONTEXT_TAIL_ROWS;
	rig.options.tail_rows = 0;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 40);
	ck_assert_uint_eq(rig_info(&rig, history.id).required_pages, 2 + 2);
	ck_assert_uint_eq(rig_info(&rig, history.id).host_only_rows, 40);
	table_open(&rig, &table, 1, 2, 8);
	turn_one(&table, &history, 2, 2, NULL, 1);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

START_TEST(test_defaults)
{
	struct rig rig;
	dhs_required required = DHS_INIT(dhs_required);

	rig_default(&rig);
	rig.options.tail_rows = 0;
	rig.options.max_new_rows = 0;
	rig.options.hot_rows = 0;
	rig.options.max_sessions = 0;
	rig.layout.page_rows = 0;
	rig.options.device_pages = 100;
	ck_good(dhs_context_required(&rig.options, &required));
	ck_assert_uint_eq(required.hot_pages, 4096 / 64);
	ck_assert_uint_eq(required.tail_pages, (64 + 2 * 16 + 63) / 64 + 1);
	ck_assert_uint_eq(required.session_pages, required.hot_pages + required.tail_pages);
}
END_TEST

/* What the defaults turned out to be. */
START_TEST(test_told_policy)
{
	struct rig rig;
	dhs_stats stats;

	open_policy(&rig, 0, _i < 3 ? policies[_i] : DHS_POLICY_DEFAULT);
	stats = rig_stats(&rig);
	ck_assert_uint_eq(stats.backend, rig.device.backend);
	ck_assert_uint_eq(stats.policy, _i < 3 ? policies[_i] : DHS_POLICY_ADAPTIVE);
	rig_close(&rig);
}
END_TEST

/* A new session gets the index that has been free for longest. */
START_TEST(test_index_order)
{
	struct rig rig;
	struct history history[4];
	struct table table;
	dhs_batch_view view = DHS_INIT(dhs_batch_view);
	static const int32_t order[] = { 2, 0, 3, 2, 0, 3 };

	rig_default(&rig);
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 8);
	ck_good(dhs_batch_get_view(table.batch, &view));
	for (uint32_t i = 0; i < 4; i++) {
		history_open(&rig, &history[i]);
		turn_one(&table, &history[i], 1, 1, NULL, 1);
		rig_sync(&rig);
		ck_assert_int_eq(view.session_index[0], (int32_t)i);
	}
	history_close(&rig, &history[2]);
	history_close(&rig, &history[0]);
	history_close(&rig, &history[3]);
	for (uint32_t i = 0; i < COUNT_OF(order); i++) {
		history_open(&rig, &history[0]);
		turn_one(&table, &history[0], 1, 1, NULL, 1);
		rig_sync(&rig);
		ck_assert_int_eq(view.session_index[0], order[i]);
		history_close(&rig, &history[0]);
	}
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- evict ---------------------------------------------------------------- */

START_TEST(test_evict)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_fence fence = 99;
	int passed = 99;

	open_policy(&rig, (uint64_t)_i, DHS_POLICY_ADAPTIVE);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 2, 8);
	for (uint32_t i = 0; i < 6; i++) {
		history_prefill(&rig, &history, 30);
		ck_good(dhs_session_evict(rig.context, history.id, &fence));
		ck_assert_uint_eq(rig_info(&rig, history.id).resident_pages, 0);
		turn_one(&table, &history, 2, 1, NULL, 2);
		ck_good(dhs_fence_wait(rig.context, fence, rig.side));
		ck_good(dhs_fence_sync(rig.context, fence));
		ck_good(dhs_fence_query(rig.context, fence, &passed));
		ck_assert_int_eq(passed, 1);
		history_verify(&table, &history);
	}
	/* Nothing more to give. */
	ck_good(dhs_session_evict(rig.context, history.id, &fence));
	ck_good(dhs_fence_sync(rig.context, fence));
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

START_TEST(test_evict_without_optional)
{
	struct rig rig;
	struct history history;
	dhs_fence fence = 99;

	open_policy(&rig, 0, policies[_i]);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 4);
	ck_good(dhs_session_evict(rig.context, history.id, &fence));
	ck_good(dhs_fence_sync(rig.context, fence));
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, 0);
	rig_close(&rig);
}
END_TEST

/* Pages that a begun step reads drain; the fence is pending until its end. */
START_TEST(test_evict_in_a_step)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	dhs_fence fence = 0;
	int passed = 99;
	int32_t *rows;

	open_policy(&rig, (uint64_t)_i, DHS_POLICY_ADAPTIVE);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60);
	table_open(&rig, &table, 1, 4, 16);
	turn_open(&turn, &table);
	turn_add(&turn, &history, 2, 4, 1);
	turn_begin(&turn);
	ck_good(dhs_session_evict(rig.context, history.id, &fence));
	ck_assert_uint_eq(rig_stats(&rig).pages_draining, 14);
	ck_code(dhs_fence_query(rig.context, fence, &passed), DHS_ERR_PENDING);
	ck_code(dhs_fence_sync(rig.context, fence), DHS_ERR_PENDING);
	ck_code(dhs_fence_wait(rig.context, fence, rig.side), DHS_ERR_PENDING);
	ck_assert_int_eq(passed, 99);
	turn_write(&turn);
	rows = turn_blank(&turn);
	for (uint32_t i = 0; i < 64; i++)
		rows[i] = (int32_t)i;
	turn_resolve_all(&turn, rows);
	turn_end(&turn);
	ck_good(dhs_fence_wait(rig.context, fence, rig.side));
	ck_good(dhs_fence_sync(rig.context, fence));
	ck_good(dhs_fence_query(rig.context, fence, &passed));
	ck_assert_int_eq(passed, 1);
	ck_assert_uint_eq(waited(&rig).misses, 0);
	history_verify(&table, &history);
	ck_assert_uint_gt(waited(&rig).misses, 0);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- backup on reclaim ---------------------------------------------------- */

START_TEST(test_reclaim)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_stats stats;

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig.options.backup = DHS_BACKUP_RECLAIM;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60);
	rig_sync(&rig);
	stats = waited(&rig);
	ck_assert_uint_eq(stats.mirrored_rows + stats.backup_rows + stats.backup_bytes, 0);
	ck_assert_uint_eq(stats.host_rows_used, 60); /* reserved all the same */
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	stats = waited(&rig);
	ck_assert_uint_eq(stats.backup_rows, 56);
	ck_assert_uint_eq(stats.backup_bytes, 56 * 3 * 64);
	table_open(&rig, &table, 1, 4, 16);
	history_verify(&table, &history);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	rig_sync(&rig);
	ck_assert_uint_eq(waited(&rig).backup_rows, 56);
	ck_assert_uint_eq(waited(&rig).mirrored_rows, 0);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Rows that have a copy are not copied again; rows that were written again are. */
START_TEST(test_reclaim_again)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig.options.backup = DHS_BACKUP_RECLAIM;
	rig_open(&rig);
	table_open(&rig, &table, 1, 2, 8);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, 56);
	history_truncate(&rig, &history, 15); /* cuts a page that is on the host only */
	history_prefill(&rig, &history, 1);   /* brings 12, 13 and 14 back */
	ck_assert_uint_eq(rig_stats(&rig).reload_rows, 3);
	history_truncate(&rig, &history, 14);
	history_prefill(&rig, &history, 26); /* 12 and 13 have copies, 14 and 15 are new */
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, 56 + 36 - 14);
	history_verify(&table, &history);
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A copy waits for what writes the rows: a prefill, a step. */
START_TEST(test_reclaim_at_once)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	rig.seed = 100 + (uint64_t)_i;
	rig.options.backup = DHS_BACKUP_RECLAIM;
	if (_i % 2 == 0) { /* rows age as soon as they are written */
		rig.options.flags |= DHS_CONTEXT_TAIL_ROWS;
		rig.options.tail_rows = 0;
	}
	rig_open(&rig);
	table_open(&rig, &table, 1, 2, 8);
	history_open(&rig, &history);
	for (uint32_t i = 0; i < 6; i++) {
		history_prefill(&rig, &history, 12);
		ck_good(dhs_session_evict(rig.context, history.id, NULL));
		for (uint32_t step = 0; step < 8; step++) {
			turn_one(&table, &history, 2, 2, NULL, 0);
			ck_good(dhs_session_evict(rig.context, history.id, NULL));
		}
		history_verify(&table, &history);
	}
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A context's wait covers the copies of an evict. */
START_TEST(test_wait_for_copies)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct rig rig;
		struct history history;
		dhs_fence fence = 0;
		int passed = 99;

		rig_default(&rig);
		rig.seed = seed;
		rig.options.backup = DHS_BACKUP_RECLAIM;
		rig_open(&rig);
		history_open(&rig, &history);
		history_prefill(&rig, &history, 60);
		ck_good(dhs_session_evict(rig.context, history.id, &fence));
		ck_good(dhs_context_wait(rig.context));
		ck_good(dhs_fence_query(rig.context, fence, &passed));
		ck_assert_int_eq(passed, 1);
		rig_close(&rig);
	}
}
END_TEST

/* When the fence of an evict has passed, both the step that read the pages and
 * their copy have: what is then written there harms nothing. */
static void write_pages(struct rig *rig, const int32_t *pages, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		for (int32_t row = 0; row < 4; row++)
			stamp_write(rig, pages[i] * 4 + row, 0xffff);
}

START_TEST(test_fence_of_both)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	dhs_batch_view view = DHS_INIT(dhs_batch_view);
	dhs_fence fence = 0;
	int32_t pages[14];
	int passed = 0;

	rig_default(&rig);
	rig.seed = 1 + (uint64_t)_i;
	rig.options.backup = DHS_BACKUP_RECLAIM;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60);
	table_open(&rig, &table, 1, 2, 8);
	ck_good(dhs_batch_get_view(table.batch, &view));
	turn_open(&turn, &table);
	turn_add(&turn, &history, 0, 2, 0);
	turn_begin(&turn);
	rig_sync(&rig);
	memcpy(pages, view.page_table + view.session_index[0] * view.page_stride, sizeof(pages));
	turn_resolve_all(&turn, turn_wild(&turn, &(struct dice){ 1 }));
	ck_good(dhs_session_evict(rig.context, history.id, &fence));
	turn_end(&turn);
	if (_i % 2 == 0)
		ck_good(dhs_fence_sync(rig.context, fence));
	while (!passed)
		ck_good(dhs_fence_query(rig.context, fence, &passed));
	write_pages(&rig, pages, COUNT_OF(pages));
	history_verify(&table, &history);
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Much pressure: pages are copied when they are taken. */
START_TEST(test_reclaim_pressure)
{
	struct rig rig;
	struct history history[3];
	struct table table;
	struct dice dice = { (uint64_t)_i };

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig.options.backup = _i % 2 == 0 ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	rig.options.device_pages = 44;
	rig_open(&rig);
	table_open(&rig, &table, 3, 2, 8);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&rig, &history[i]);
	for (uint32_t i = 0; i < 100; i++) {
		struct turn turn;
		struct history *h = &history[dice_below(&dice, 3)];

		if (h->rows < 200)
			history_prefill(&rig, h, dice_below(&dice, 12));
		if (dice_below(&dice, 10) == 0)
			history_truncate(&rig, h, dice_below(&dice, (uint32_t)h->rows + 1));
		turn_open(&turn, &table);
		for (uint32_t e = 0; e < 3; e++)
			turn_add(&turn, &history[e], 2, 2, dice_below(&dice, 3));
		turn_begin(&turn);
		turn_write(&turn);
		turn_resolve_all(&turn, turn_wild(&turn, &dice));
		turn_end(&turn);
	}
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&table, &history[i]);
	rig_sync(&rig);
	ck_assert_uint_gt(waited(&rig).evicted_pages, 0);
	if (_i % 2 == 0)
		ck_assert_uint_gt(waited(&rig).backup_rows, 0);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- who gives way -------------------------------------------------------- */

static const uint32_t reclaims[] = { DHS_RECLAIM_WHOLE, DHS_RECLAIM_DEFAULT };

static void open_three(struct rig *rig, struct history *history, const uint32_t *rows,
                       uint32_t reclaim)
{
	rig_default(rig);
	rig->options.device_pages = 48;
	rig->options.reclaim = reclaim;
	rig_open(rig);
	for (uint32_t i = 0; i < 3; i++) {
		history_open(rig, &history[i]);
		history_prefill(rig, &history[i], rows[i]);
	}
}

static uint32_t resident(struct rig *rig, const struct history *history)
{
	return rig_info(rig, history->id).resident_pages;
}

START_TEST(test_create_takes_most)
{
	static const uint32_t rows[] = { 40, 52, 44 }; /* 9, 12, 10 optional pages */
	struct rig rig;
	struct history history[4];
	uint32_t gone;

	open_three(&rig, history, rows, reclaims[_i]);
	ck_assert_uint_eq(resident(&rig, &history[1]), 12);
	ck_assert_uint_lt(rig_stats(&rig).pages_free, REQUIRED);
	gone = _i == 0 ? 12 : REQUIRED - rig_stats(&rig).pages_free;
	history_open(&rig, &history[3]);
	ck_assert_uint_eq(resident(&rig, &history[0]), 9);
	ck_assert_uint_eq(resident(&rig, &history[1]), 12 - gone);
	ck_assert_uint_eq(resident(&rig, &history[2]), 10);
	ck_assert_uint_eq(rig_info(&rig, history[1].id).host_only_rows, gone * 4);
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, gone);
	ck_assert_uint_eq(rig_stats(&rig).refusals, 0);
	rig_close(&rig);
}
END_TEST

START_TEST(test_create_ties)
{
	static const uint32_t rows[] = { 40, 44, 44 };
	struct rig rig;
	struct history history[4];
	uint32_t gone;

	open_three(&rig, history, rows, reclaims[_i]);
	history_prefill(&rig, &history[0], 4); /* 10 each now */
	gone = _i == 0 ? 10 : REQUIRED - rig_stats(&rig).pages_free;
	history_open(&rig, &history[3]);
	ck_assert_uint_eq(resident(&rig, &history[0]), 10 - gone);
	ck_assert_uint_eq(resident(&rig, &history[1]), 10);
	ck_assert_uint_eq(resident(&rig, &history[2]), 10);
	rig_close(&rig);
}
END_TEST

START_TEST(test_create_refused)
{
	struct rig rig;
	struct history history[3];
	dhs_session more = 99;
	dhs_stats before, after;

	rig_default(&rig);
	rig.options.device_pages = 19;
	rig_open(&rig);
	for (uint32_t i = 0; i < 3; i++) {
		history_open(&rig, &history[i]);
		history_prefill(&rig, &history[i], 6);
	}
	history_prefill(&rig, &history[0], 10);
	before = rig_stats(&rig);
	ck_told(dhs_session_create(rig.context, NULL, &more), DHS_ERR_DEVICE_MEMORY, NULL, "5");
	after = rig_stats(&rig);
	ck_assert_uint_eq(after.refusals, before.refusals + 1);
	after.refusals = before.refusals;
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert_uint_eq(more, 99);
	history_close(&rig, &history[1]);
	ck_good(dhs_session_create(rig.context, NULL, &more));
	rig_close(&rig);
}
END_TEST

START_TEST(test_extend_takes)
{
	struct rig rig;
	struct history history[2];
	struct table table;

	rig_default(&rig);
	rig.options.device_pages = 30;
	rig.options.reclaim = reclaims[_i % 2];
	rig.seed = (uint64_t)_i / 2;
	rig_open(&rig);
	history_open(&rig, &history[0]);
	history_open(&rig, &history[1]);
	history_prefill(&rig, &history[0], 60);
	ck_assert_uint_eq(resident(&rig, &history[0]), 14);
	history_prefill(&rig, &history[1], 50); /* takes the first one's */
	ck_assert_uint_eq(resident(&rig, &history[0]), _i % 2 == 0 ? 0 : 10);
	history_prefill(&rig, &history[1], 70); /* and its own */
	history_prefill(&rig, &history[1], 70);
	table_open(&rig, &table, 1, 1, 8);
	history_verify(&table, &history[0]);
	history_verify(&table, &history[1]);
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

START_TEST(test_extend_refused)
{
	struct rig rig;
	struct history history[2];
	int32_t slots[256];
	dhs_stats before, after;
	dhs_session_info info;

	open_policy(&rig, 0, policies[_i]);
	history_open(&rig, &history[0]);
	history_open(&rig, &history[1]);
	history_prefill(&rig, &history[0], 30);
	history_prefill(&rig, &history[1], 30);
	before = rig_stats(&rig);
	info = rig_info(&rig, history[0].id);
	/* 64 pages: 226 rows are 57. */
	ck_told(dhs_session_extend(rig.context, history[0].id, 226, rig.stream, slots),
	        DHS_ERR_DEVICE_MEMORY, NULL, NULL);
	after = rig_stats(&rig);
	ck_assert_uint_eq(after.refusals, before.refusals + 1);
	after.refusals = before.refusals;
	ck_assert_mem_eq(&before, &after, sizeof(before));
	after = rig_stats(&rig);
	ck_assert_uint_eq(rig_info(&rig, history[0].id).rows, info.rows);
	history_prefill(&rig, &history[0], 30);
	rig_close(&rig);
}
END_TEST

/* Room that only an open step would give. */
START_TEST(test_extend_pending)
{
	struct rig rig;
	struct history history[2];
	struct table table;
	struct turn turn;
	int32_t slots[80];

	rig_default(&rig);
	rig.options.device_pages = 34;
	rig.options.reclaim = reclaims[_i];
	rig_open(&rig);
	history_open(&rig, &history[0]);
	history_open(&rig, &history[1]);
	history_prefill(&rig, &history[0], 60);
	table_open(&rig, &table, 1, 1, 8);
	turn_open(&turn, &table);
	turn_add(&turn, &history[0], 1, 1, 1);
	turn_begin(&turn);
	turn_write(&turn);
	ck_code(dhs_session_extend(rig.context, history[1].id, 80, rig.stream, slots), DHS_ERR_PENDING);
	ck_assert_uint_eq(resident(&rig, &history[0]), 14);
	turn_end(&turn);
	history_prefill(&rig, &history[1], 80);
	ck_assert_uint_eq(resident(&rig, &history[0]), _i == 0 ? 0 : 7);
	history_verify(&table, &history[0]);
	history_verify(&table, &history[1]);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A create needs its pages at the first begin only: draining ones are room. */
START_TEST(test_create_draining)
{
	struct rig rig;
	struct history history[3];
	struct table table, other;
	struct turn turn, late;

	rig_default(&rig);
	rig.options.device_pages = 11;
	rig_open(&rig);
	history_open(&rig, &history[0]);
	history_open(&rig, &history[1]);
	history_prefill(&rig, &history[0], 7);
	table_open(&rig, &table, 1, 1, 8); /* 8 <= hot rows: no staging */
	table_open(&rig, &other, 1, 1, 8);
	turn_open(&turn, &table);
	turn_add(&turn, &history[0], 1, 1, 1);
	turn_begin(&turn);
	ck_good(dhs_session_destroy(rig.context, history[0].id));
	turn.entry[0].cancelled = true;
	ck_assert_uint_eq(rig_stats(&rig).pages_draining, 4); /* one spare was never mapped */
	history_open(&rig, &history[2]);
	turn_open(&late, &other);
	turn_add(&late, &history[2], 1, 1, 1);
	ck_code(turn_try_begin(&late), DHS_ERR_PENDING);
	turn_write(&turn);
	turn_end(&turn);
	turn_begin(&late);
	turn_write(&late);
	turn_end(&late);
	history_verify(&table, &history[2]);
	table_close(&table);
	table_close(&other);
	rig_close(&rig);
}
END_TEST

/* Host room is reserved before anything relies on it. */
START_TEST(test_host_room)
{
	struct rig rig;
	struct history history[2];
	struct table table;
	struct turn turn;
	int32_t slots[16];

	rig_default(&rig);
	rig.options.policy = _i == 0 ? DHS_POLICY_ADAPTIVE : DHS_POLICY_FIXED;
	rig.options.host_rows = 60;
	rig_open(&rig);
	history_open(&rig, &history[0]);
	history_open(&rig, &history[1]);
	history_prefill(&rig, &history[0], 47);
	history_prefill(&rig, &history[1], 11);
	ck_assert_uint_eq(rig_stats(&rig).host_rows_used, 60);
	ck_told(dhs_session_extend(rig.context, history[0].id, 2, rig.stream, slots),
	        DHS_ERR_HOST_MEMORY, NULL, NULL);
	table_open(&rig, &table, 2, 1, 8);
	turn_open(&turn, &table);
	turn_add(&turn, &history[0], 1, 1, 1);
	turn_add(&turn, &history[1], 2, 1, 1);
	ck_code(turn_try_begin(&turn), DHS_ERR_HOST_MEMORY);
	ck_assert_uint_eq(rig_info(&rig, history[0].id).rows_bound, 47);
	ck_assert_uint_eq(rig_stats(&rig).refusals, 2);
	ck_assert_uint_eq(rig_stats(&rig).steps, 0);
	turn.entry[1].new_rows = 1;
	turn_begin(&turn); /* both fit in what they own */
	turn_write(&turn);
	turn_end(&turn);
	history_truncate(&rig, &history[0], 40);
	turn_one(&table, &history[1], 2, 2, NULL, 1);
	history_verify(&table, &history[0]);
	history_verify(&table, &history[1]);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Host pages that an open step reads are room only after its end. */
START_TEST(test_host_draining)
{
	struct rig rig;
	struct history history[2];
	struct table table;
	struct turn turn;
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_session session = 99;
	int32_t slots[48];

	rig_default(&rig);
	rig.options.policy = DHS_POLICY_FIXED;
	rig.options.host_rows = 60;
	rig_open(&rig);
	history_open(&rig, &history[0]);
	history_open(&rig, &history[1]);
	history_prefill(&rig, &history[0], 47);
	table_open(&rig, &table, 1, 2, 8);
	turn_open(&turn, &table);
	turn_add(&turn, &history[0], 1, 2, 1);
	turn_begin(&turn);
	ck_good(dhs_session_destroy(rig.context, history[0].id));
	turn.entry[0].cancelled = true;
	ck_code(dhs_session_extend(rig.context, history[1].id, 48, rig.stream, slots), DHS_ERR_PENDING);
	options.reserve_rows = 48;
	ck_code(dhs_session_create(rig.context, &options, &session), DHS_ERR_PENDING);
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, &(struct dice){ 3 }));
	turn_end(&turn);
	history_prefill(&rig, &history[1], 48);
	history_verify(&table, &history[1]);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

static void swap_streams(struct rig *rig)
{
	dhs_stream stream = rig->stream;

	rig->stream = rig->side;
	rig->side = stream;
}

/* Host records of a session that is gone, used again on another stream while its
 * last step still fetches them. */
START_TEST(test_host_records_again)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;

	rig_default(&rig);
	rig.seed = 1 + (uint64_t)_i;
	rig.options.policy = DHS_POLICY_FIXED;
	rig.options.host_rows = 48;
	rig_open(&rig);
	table_open(&rig, &table, 1, 3, 16);
	for (uint32_t i = 0; i < 10; i++) {
		history_open(&rig, &history);
		history_prefill(&rig, &history, 48);
		turn_open(&turn, &table);
		turn_add(&turn, &history, 0, 3, 0);
		turn_begin(&turn);
		turn_resolve_all(&turn, turn_wild(&turn, &(struct dice){ i }));
		turn_end(&turn);
		history_close(&rig, &history);
		swap_streams(&rig);
	}
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- truncate ------------------------------------------------------------- */

START_TEST(test_truncate_everywhere)
{
	struct rig rig;
	struct history history;
	struct table table;
	uint32_t to = (uint32_t)_i / 3;

	open_policy(&rig, to, policies[_i % 3]);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 2, 8);
	history_prefill(&rig, &history, 45);
	history_verify(&table, &history);
	if (to % 2 == 0)
		ck_good(dhs_session_evict(rig.context, history.id, NULL));
	history_truncate(&rig, &history, to);
	ck_assert_uint_eq(rig_info(&rig, history.id).rows, to);
	if (policies[_i % 3] != DHS_POLICY_FULL)
		ck_assert_uint_eq(rig_info(&rig, history.id).host_rows, (to + 3) / 4 * 4);
	if (to % 4 < 2)
		history_verify(&table, &history);
	/* Other rows where old ones were: old tags must not find them. */
	for (uint32_t i = 0; i < 4; i++)
		turn_one(&table, &history, 2, 2 - i % 2, NULL, 1);
	history_verify(&table, &history);
	history_prefill(&rig, &history, 23);
	history_verify(&table, &history);
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

START_TEST(test_reload)
{
	struct rig rig;
	struct history history;
	struct table table;

	open_policy(&rig, (uint64_t)_i, DHS_POLICY_FIXED);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 2, 8);
	history_prefill(&rig, &history, 60);
	history_truncate(&rig, &history, 14); /* cuts a page that is on the host only */
	ck_assert_uint_eq(rig_stats(&rig).reload_rows, 0);
	turn_one(&table, &history, 2, 2, NULL, 1);
	rig_sync(&rig);
	ck_assert_uint_eq(waited(&rig).reload_rows, 2);
	history_verify(&table, &history);
	history_truncate(&rig, &history, 8); /* cuts no page */
	history_prefill(&rig, &history, 3);
	ck_assert_uint_eq(rig_stats(&rig).reload_rows, 2);
	history_verify(&table, &history);
	history_truncate(&rig, &history, 7);
	history_truncate(&rig, &history, 5);
	history_prefill(&rig, &history, 9);
	history_verify(&table, &history);
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A row that comes back with its page is a page hit, hot or not. */
START_TEST(test_reload_of_hot_rows)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	dhs_stats before, after;

	open_policy(&rig, 0, DHS_POLICY_FIXED);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 1, 2);
	history_prefill(&rig, &history, 40);
	for (uint32_t round = 0; round < 2; round++) {
		before = waited(&rig);
		turn_open(&turn, &table);
		turn_add(&turn, &history, 0, 1, 0);
		turn_begin(&turn);
		turn_resolve_all(&turn, (const int32_t[]){ 12, 13 });
		turn_end(&turn);
		after = waited(&rig);
		ck_assert_uint_eq(after.misses - before.misses, round == 0 ? 4 : 0);
		ck_assert_uint_eq(after.page_hits - before.page_hits, round == 0 ? 0 : 4);
		ck_assert_uint_eq(after.hot_hits, before.hot_hits);
		history_truncate(&rig, &history, 14);
	}
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Of two truncates without a begin between them the lower one drops hot rows. */
START_TEST(test_two_truncates)
{
	struct rig rig;
	struct history history;
	struct table table;

	open_policy(&rig, (uint64_t)_i, DHS_POLICY_FIXED);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 1, 8);
	history_prefill(&rig, &history, 40);
	for (uint32_t i = 0; i < 4; i++) {
		turn_one(&table, &history, 0, 0, (const int32_t[]){ 8, 9, 10, 11, 12, 13, 14, 15 }, 1);
		history_truncate(&rig, &history, 10 + i);
		history_prefill(&rig, &history, 30);
		history_truncate(&rig, &history, 36);
		if (i % 2 == 0)
			history_prefill(&rig, &history, 4);
		turn_one(&table, &history, 0, 0, (const int32_t[]){ 8, 9, 10, 11, 12, 13, 14, 15 }, 1);
		history_verify(&table, &history);
	}
	rig_sync(&rig);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Between begin and settle: what the step keeps does not count. */
static void truncate_in_step(struct rig *rig, uint32_t when, uint32_t to, bool destroy)
{
	struct history history[2];
	struct table table;
	struct turn turn;
	struct dice dice = { to };

	for (uint32_t i = 0; i < 2; i++) {
		history_open(rig, &history[i]);
		history_prefill(rig, &history[i], 41);
	}
	table_open(rig, &table, 2, 2, 8);
	turn_open(&turn, &table);
	turn_add(&turn, &history[0], 2, 2, 2);
	turn_add(&turn, &history[1], 2, 2, 1);
	turn_begin(&turn);
	for (uint32_t at = 0; at < 4; at++) {
		if (at == when) {
			turn.entry[0].cancelled = true;
			if (destroy)
				ck_good(dhs_session_destroy(rig->context, history[0].id));
			else
				history_truncate(rig, &history[0], to);
		}
		if (at == 0)
			turn_write(&turn);
		else if (at == 1)
			turn_resolve_all(&turn, turn_wild(&turn, &dice));
		else if (at == 2)
			turn_commit(&turn);
	}
	turn_settle(&turn);
	ck_assert_uint_eq(rig_info(rig, history[1].id).rows, 42);
	history_verify(&table, &history[1]);
	if (!destroy) {
		ck_assert_uint_eq(rig_info(rig, history[0].id).rows, to);
		history_verify(&table, &history[0]);
		turn_one(&table, &history[0], 2, 1, NULL, 1);
		history_prefill(rig, &history[0], 10);
		history_verify(&table, &history[0]);
	}
	rig_sync(rig);
	waited(rig);
	table_close(&table);
}

START_TEST(test_truncate_in_step)
{
	static const uint32_t to[] = { 0, 1, 20, 37, 40, 41 };
	struct rig rig;

	for (uint32_t p = 0; p < 3; p++)
		for (uint32_t i = 0; i < COUNT_OF(to); i++) {
			open_policy(&rig, i, policies[p]);
			truncate_in_step(&rig, (uint32_t)_i, to[i], false);
			rig_close(&rig);
		}
}
END_TEST

START_TEST(test_destroy_in_step)
{
	struct rig rig;

	for (uint32_t p = 0; p < 3; p++)
		for (uint32_t seed = 0; seed < 4; seed++) {
			open_policy(&rig, seed, policies[p]);
			truncate_in_step(&rig, (uint32_t)_i, seed, true);
			rig_close(&rig);
		}
}
END_TEST

/* A session that was truncated under a step goes on in the next one at once. */
START_TEST(test_truncate_then_begin)
{
	struct rig rig;
	struct history history;
	struct table table[2];
	struct turn turn[2];

	open_policy(&rig, (uint64_t)_i, policies[_i % 3]);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 50);
	table_open(&rig, &table[0], 1, 2, 8);
	table_open(&rig, &table[1], 1, 2, 8);
	for (uint32_t i = 0; i < 10; i++) {
		turn_open(&turn[0], &table[0]);
		turn_add(&turn[0], &history, 2, 2, 2);
		turn_begin(&turn[0]);
		turn_write(&turn[0]);
		turn_commit(&turn[0]);
		turn[0].entry[0].cancelled = true;
		history_truncate(&rig, &history, history.settled - i % 6);
		turn_open(&turn[1], &table[1]);
		turn_add(&turn[1], &history, 2, 2, 2);
		turn_begin(&turn[1]);
		turn_write(&turn[1]);
		turn_resolve_all(&turn[1], turn_wild(&turn[1], &(struct dice){ i }));
		turn_commit(&turn[1]);
		turn_settle(&turn[0]);
		turn_settle(&turn[1]);
		ck_assert_uint_eq(rig_info(&rig, history.id).rows, history.rows);
	}
	history_verify(&table[0], &history);
	rig_sync(&rig);
	waited(&rig);
	table_close(&table[0]);
	table_close(&table[1]);
	rig_close(&rig);
}
END_TEST

/* ---- ends ----------------------------------------------------------------- */

/* The next session at the same place finds nothing of the one before. */
START_TEST(test_no_old_tags)
{
	struct rig rig;
	struct history old, new;
	struct table table;
	struct turn turn;
	dhs_stats before, after;

	open_policy(&rig, (uint64_t)_i, DHS_POLICY_FIXED);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &old);
	history_prefill(&rig, &old, 40);
	history_verify(&table, &old);
	history_close(&rig, &old);
	history_open(&rig, &new);
	history_prefill(&rig, &new, 40);
	rig_sync(&rig);
	before = waited(&rig);
	turn_open(&turn, &table);
	turn_add(&turn, &new, 0, 1, 0);
	turn_begin(&turn);
	turn_resolve_all(&turn, (const int32_t[]){ 32, 33, 34, 35, 0, 1, 2, 3 });
	turn_end(&turn);
	rig_sync(&rig);
	after = waited(&rig);
	ck_assert_uint_eq(after.hot_hits, before.hot_hits);
	ck_assert_uint_eq(after.misses, before.misses + 16);
	ck_assert_uint_eq(after.victims, before.victims);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Many sessions come and go in the middle of everything; bytes are right. */
static uint64_t churn_hash;

static void churn_note(const int32_t *slots, size_t count)
{
	for (size_t i = 0; i < count; i++)
		churn_hash = (churn_hash ^ (uint32_t)slots[i]) * 0x100000001b3u;
}

static void churn_turn(struct rig *rig, struct table *table, struct history *history,
                       struct dice *dice)
{
	struct turn turn;
	uint32_t lost = dice_below(dice, 12);

	turn_open(&turn, table);
	for (uint32_t e = 0; e < 4; e++)
		if (history[e].id != 0 && history[e].rows < 200)
			turn_add(&turn, &history[e], dice_below(dice, 3), dice_below(dice, 3),
			         dice_below(dice, 3));
	if (turn_try_begin(&turn) != 0) {
		rig_sync(rig); /* no room for some of them */
		return;
	}
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, dice));
	if (lost < turn.count) {
		struct history *h = turn.entry[lost].history;

		turn.entry[lost].cancelled = true;
		history_close(rig, h);
	}
	if (dice_below(dice, 8) == 0)
		turn_abort(&turn);
	else
		turn_end(&turn);
	rig_sync(rig);
	churn_note(turn.new_slots, table->options.max_sessions * 2);
	for (uint32_t g = 0; g < 2; g++)
		churn_note(turn.slots[g], table_entries(table));
}

static void churn_session(struct rig *rig, struct history *history, struct dice *dice)
{
	uint32_t face = dice_below(dice, 8);

	if (history->id == 0) {
		memset(history, 0, sizeof(*history));
		if (dhs_session_create(rig->context, NULL, &history->id) != 0)
			history->id = 0;
		history->stamp = rig_keep(rig, sizeof(uint32_t) * 256);
	} else if (face < 3 && history->rows < 180) {
		history_prefill(rig, history, dice_below(dice, 20));
	} else if (face == 3) {
		history_truncate(rig, history, dice_below(dice, (uint32_t)history->rows + 1));
	} else if (face == 4) {
		ck_good(dhs_session_evict(rig->context, history->id, NULL));
	} else if (face == 5) {
		history_close(rig, history);
	}
}

static uint64_t churn(uint64_t seed, uint64_t script, uint32_t policy)
{
	struct rig rig;
	struct history history[4] = { 0 };
	struct table table;
	struct dice dice = { script };

	rig_default(&rig);
	rig.seed = seed;
	rig.options.policy = policy;
	if (policy == DHS_POLICY_FULL)
		rig.options.host_rows = 0;
	rig.options.backup = script % 2 == 0 && policy == DHS_POLICY_ADAPTIVE ? DHS_BACKUP_RECLAIM : 0;
	rig.options.device_pages = policy == DHS_POLICY_FULL ? 256 : 90;
	rig_open(&rig);
	table_open(&rig, &table, 4, 2, 8);
	churn_hash = 0xcbf29ce484222325u;
	for (uint32_t i = 0; i < support_times(150); i++) {
		churn_session(&rig, &history[dice_below(&dice, 4)], &dice);
		churn_turn(&rig, &table, history, &dice);
	}
	for (uint32_t i = 0; i < 4; i++)
		if (history[i].id != 0) {
			history_verify(&table, &history[i]);
			history_close(&rig, &history[i]);
		}
	rig_sync(&rig);
	ck_assert_uint_eq(waited(&rig).host_rows_used, 0);
	ck_assert_uint_eq(rig_stats(&rig).pages_required + rig_stats(&rig).pages_resident, 0);
	table_close(&table);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, rig.options.device_pages);
	rig_close(&rig);
	return churn_hash;
}

/* No decision depends on timing: the same slots for every seed of the device. */
START_TEST(test_churn)
{
	uint64_t script = (uint64_t)_i / 3;
	uint64_t first = churn(0, script, policies[_i % 3]);

	for (uint64_t seed = 1; seed < 4; seed++)
		ck_assert_uint_eq(churn(seed, script, policies[_i % 3]), first);
}
END_TEST

static TCase *room_case(bool in_pool)
{
	TCase *room = support_case("room", in_pool);

	tcase_set_timeout(room, support_seconds(30));
	tcase_add_loop_test(room, test_create_takes_most, 0, 2);
	tcase_add_loop_test(room, test_create_ties, 0, 2);
	tcase_add_test(room, test_create_refused);
	tcase_add_loop_test(room, test_extend_takes, 0, 10);
	tcase_add_loop_test(room, test_extend_refused, 0, 3);
	tcase_add_loop_test(room, test_extend_pending, 0, 2);
	tcase_add_test(room, test_create_draining);
	tcase_add_loop_test(room, test_host_room, 0, 2);
	tcase_add_test(room, test_host_draining);
	tcase_add_loop_test(room, test_host_records_again, 0, 20);
	return room;
}

static TCase *rows_case(bool in_pool)
{
	TCase *rows = support_case("rows", in_pool);

	tcase_set_timeout(rows, support_seconds(30));
	tcase_add_loop_test(rows, test_extend_slots, 0, 3);
	tcase_add_loop_test(rows, test_pieces, 0, 15);
	tcase_add_loop_test(rows, test_short_commit, 0, 3);
	tcase_add_loop_test(rows, test_longest, 0, 3);
	tcase_add_test(rows, test_info_adaptive);
	tcase_add_test(rows, test_info_fixed);
	tcase_add_test(rows, test_info_full);
	tcase_add_test(rows, test_reserve);
	tcase_add_test(rows, test_no_tail);
	tcase_add_loop_test(rows, test_told_policy, 0, 4);
	tcase_add_test(rows, test_index_order);
	tcase_add_test(rows, test_defaults);
	return rows;
}

static TCase *evict_case(bool in_pool)
{
	TCase *evict = support_case("evict", in_pool);

	tcase_set_timeout(evict, support_seconds(30));
	tcase_add_loop_test(evict, test_evict, 0, 5);
	tcase_add_loop_test(evict, test_evict_without_optional, 0, 3);
	tcase_add_loop_test(evict, test_evict_in_a_step, 0, 5);
	tcase_add_loop_test(evict, test_reclaim, 0, 5);
	tcase_add_loop_test(evict, test_reclaim_again, 0, 5);
	tcase_add_test(evict, test_wait_for_copies);
	tcase_add_loop_test(evict, test_fence_of_both, 0, 30);
	tcase_add_loop_test(evict, test_reclaim_at_once, 0, 20);
	tcase_add_loop_test(evict, test_reclaim_pressure, 0, 10);
	return evict;
}

static TCase *end_case(bool in_pool)
{
	TCase *end = support_case("truncate and destroy", in_pool);

	tcase_set_timeout(end, support_seconds(60));
	tcase_add_loop_test(end, test_truncate_everywhere, 0, 3 * 46);
	tcase_add_loop_test(end, test_reload, 0, 5);
	tcase_add_test(end, test_reload_of_hot_rows);
	tcase_add_loop_test(end, test_two_truncates, 0, 5);
	tcase_add_loop_test(end, test_truncate_in_step, 0, 4);
	tcase_add_loop_test(end, test_destroy_in_step, 0, 4);
	tcase_add_loop_test(end, test_truncate_then_begin, 0, 9);
	tcase_add_loop_test(end, test_no_old_tags, 0, 3);
	tcase_add_loop_test(end, test_churn, 0, 12);
	return end;
}

static void add_cases(Suite *suite, bool in_pool)
{
	suite_add_tcase(suite, rows_case(in_pool));
	suite_add_tcase(suite, evict_case(in_pool));
	suite_add_tcase(suite, room_case(in_pool));
	suite_add_tcase(suite, end_case(in_pool));
}

int main(void)
{
	Suite *suite = suite_create("session");

	support_both(suite, add_cases);
	return support_run(suite);
}
