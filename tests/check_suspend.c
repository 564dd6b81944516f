/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Suspend and resume: what may be suspended when, that nothing of it stays on the device and
 * no row is lost, that what comes back is what left, its hot cache too, and that nobody is in
 * the way of copies that still run. */
#include "support.h"

#define REQUIRED 5 /* pages of the rig's sessions */
#define ROWS 41    /* of a session with */
#define HISTORY 9  /* pages of history; 5 rows are tail */
#define TAIL 5
#define ROW_BYTES 64

static const struct {
	uint32_t policy, backup;
} ways[] = {
	{ DHS_POLICY_FIXED, DHS_BACKUP_EAGER },
	{ DHS_POLICY_ADAPTIVE, DHS_BACKUP_EAGER },
	{ DHS_POLICY_ADAPTIVE, DHS_BACKUP_RECLAIM },
	{ DHS_POLICY_ADAPTIVE, DHS_BACKUP_BACKGROUND },
};

#define WAYS (int)COUNT_OF(ways)

static void open_way(struct rig *rig, uint64_t seed, int way, uint32_t pages)
{
	rig->seed = seed;
	rig->options.policy = ways[way].policy;
	rig->options.backup = ways[way].backup;
	rig->options.device_pages = pages;
	rig_open(rig);
}

static void suspend(struct rig *rig, const struct history *history)
{
	ck_good(dhs_session_suspend(rig->context, history->id, NULL));
}

static void resume(struct rig *rig, const struct history *history)
{
	ck_good(dhs_session_resume(rig->context, history->id));
}

static dhs_stats waited(struct rig *rig)
{
	rig_sync(rig);
	ck_good(dhs_context_wait(rig->context));
	return rig_stats(rig);
}

/* Uses every free page at once, and gives it back. */
static void trample(struct rig *rig)
{
	struct history other;
	uint32_t pages;

	history_open(rig, &other);
	pages = rig_stats(rig).pages_free;
	history_prefill(rig, &other, 4 * (pages < 55 ? pages : 55) + 8);
	history_close(rig, &other);
}

/* A step that reads rows first, first + 1, ... in all groups. */
static void read_rows(struct table *table, struct history *history, uint32_t new_rows,
                      int32_t first)
{
	int32_t *rows = rig_keep(table->rig, table_entries(table) * sizeof(int32_t));

	for (size_t i = 0; i < table_entries(table); i++)
		rows[i] = first + (int32_t)i;
	turn_one(table, history, new_rows, new_rows, rows, table->options.max_queries);
}

typedef void play_fn(uint64_t seed, int variant);

/* On many schedules: what is not waited for is late on one of them. */
static void play(play_fn *body, int variant)
{
	uint32_t times = support_times(40);

	for (uint64_t seed = 0; seed < times; seed++)
		body(seed, variant);
}

/* ---- what is told ---------------------------------------------------------- */

/* All pages are free but those of others; the rest is as it was. */
START_TEST(test_nothing_stays)
{
	struct rig rig;
	struct history history;
	dhs_session_info before, info;
	dhs_stats stats;

	rig_default(&rig);
	open_way(&rig, (uint64_t)_i / WAYS, _i % WAYS, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	before = rig_info(&rig, history.id);
	ck_assert_uint_eq(before.flags, 0);
	ck_assert_uint_eq(before.required_pages, REQUIRED);
	suspend(&rig, &history);
	info = rig_info(&rig, history.id);
	ck_assert_uint_eq(info.flags, DHS_SESSION_SUSPENDED);
	ck_assert_uint_eq(info.rows, ROWS);
	ck_assert_uint_eq(info.rows_bound, ROWS);
	ck_assert_uint_eq(info.device_rows, 0);
	ck_assert_uint_eq(info.host_only_rows, ROWS);
	ck_assert_uint_eq(info.resident_pages, 0);
	ck_assert_uint_eq(info.required_pages, 0);
	ck_assert_uint_eq(info.host_rows, before.host_rows);
	stats = rig_stats(&rig);
	ck_assert_uint_eq(stats.pages_free, 64);
	ck_assert_uint_eq(stats.pages_required + stats.pages_resident + stats.pages_unbacked, 0);
	ck_assert_uint_eq(stats.sessions, 1);
	ck_assert_uint_eq(stats.sessions_suspended, 1);
	ck_assert_uint_eq(stats.suspends, 1);
	ck_assert_uint_eq(stats.evicted_pages, _i % WAYS ? HISTORY : 0);
	resume(&rig, &history);
	stats = rig_stats(&rig);
	info = rig_info(&rig, history.id);
	ck_assert_uint_eq(info.flags, 0);
	ck_assert_uint_eq(info.device_rows, TAIL);
	ck_assert_uint_eq(info.required_pages, REQUIRED);
	ck_assert_uint_eq(stats.pages_free, 64 - REQUIRED);
	ck_assert_uint_eq(stats.sessions_suspended, 0);
	ck_assert_uint_eq(stats.resumes, 1);
	ck_assert_uint_eq(stats.reload_rows, TAIL);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

/* The same counters and the same session after a refused call. */
static void refused(struct rig *rig, const struct history *history, int rc, int code,
                    const dhs_stats *stats, const dhs_session_info *info)
{
	dhs_stats now = rig_stats(rig);
	dhs_session_info here = rig_info(rig, history->id);

	ck_assert_msg(rc == code, "%d, not %d; %s", rc, code, dhs_last_error());
	ck_assert_mem_eq(&now, stats, sizeof(now));
	ck_assert_mem_eq(&here, info, sizeof(here));
}

START_TEST(test_order_of_calls)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	int32_t slots[4];
	dhs_fence fence = 99;
	dhs_session_info info;
	dhs_stats stats;

	rig_default(&rig);
	open_way(&rig, 0, _i, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	ck_told(dhs_session_resume(rig.context, history.id), DHS_ERR_ORDER, "resume", "not suspended");
	ck_good(dhs_session_extend(rig.context, history.id, 4, rig.stream, slots));
	ck_told(dhs_session_suspend(rig.context, history.id, &fence), DHS_ERR_ORDER, "extension", "4");
	ck_good(dhs_session_commit(rig.context, history.id, 0, rig.stream));
	ck_good(dhs_session_suspend(rig.context, history.id, NULL));
	stats = rig_stats(&rig);
	info = rig_info(&rig, history.id);
#define REFUSED(call) refused(&rig, &history, call, DHS_ERR_ORDER, &stats, &info)
	REFUSED(dhs_session_suspend(rig.context, history.id, &fence));
	REFUSED(dhs_session_extend(rig.context, history.id, 4, rig.stream, slots));
	support_said("extend", "suspended", "resume it first");
	REFUSED(dhs_session_commit(rig.context, history.id, 0, rig.stream));
	turn_open(&turn, &table);
	turn_add(&turn, &history, 1, 1, 1);
	REFUSED(turn_try_begin(&turn));
	support_said("begin", "suspended", "resume it first");
	ck_assert_uint_eq(fence, 99);
#undef REFUSED
	resume(&rig, &history);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* While a step is not settled, and while one whose part is cancelled is not ended. */
START_TEST(test_in_a_step)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	dhs_fence fence = 99;

	rig_default(&rig);
	open_way(&rig, 1 + (uint64_t)_i / WAYS, _i % WAYS, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	turn_open(&turn, &table);
	turn_add(&turn, &history, 2, 1, 1);
	turn_begin(&turn);
	turn_write(&turn);
	ck_told(dhs_session_suspend(rig.context, history.id, &fence), DHS_ERR_BUSY, "unsettled", "1");
	turn_commit(&turn);
	ck_code(dhs_session_suspend(rig.context, history.id, &fence), DHS_ERR_BUSY);
	history_truncate(&rig, &history, 30);
	turn.entry[0].cancelled = true;
	ck_told(dhs_session_suspend(rig.context, history.id, &fence), DHS_ERR_PENDING, "step", "end");
	ck_assert_uint_eq(fence, 99);
	turn_settle(&turn);
	ck_good(dhs_session_suspend(rig.context, history.id, &fence));
	trample(&rig);
	resume(&rig, &history);
	history_prefill(&rig, &history, 7);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

START_TEST(test_policy_full)
{
	struct rig rig;
	dhs_session session = 0;
	dhs_fence fence = 99;

	rig_default(&rig);
	rig.options.policy = DHS_POLICY_FULL;
	rig.options.host_rows = 0;
	rig_open(&rig);
	ck_good(dhs_session_create(rig.context, NULL, &session));
	ck_told(dhs_session_suspend(rig.context, session, &fence), DHS_ERR_UNSUPPORTED, "suspend",
	        "full");
	ck_told(dhs_session_resume(rig.context, session), DHS_ERR_UNSUPPORTED, "resume", "full");
	ck_assert_uint_eq(fence, 99);
	rig_close(&rig);
}
END_TEST

/* Evict finds nothing, truncate and destroy work. */
START_TEST(test_while_suspended)
{
	static const uint32_t rows[] = { ROWS, ROWS - 1, 36, 30, 4, 3, 0 };
	struct rig rig;
	struct history history;
	struct table table;
	dhs_fence fence = 99;
	uint32_t left = rows[_i / WAYS];

	rig_default(&rig);
	open_way(&rig, 1, _i % WAYS, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	read_rows(&table, &history, 0, 0);
	suspend(&rig, &history);
	ck_good(dhs_session_evict(rig.context, history.id, &fence));
	ck_assert_uint_eq(fence, 0);
	history_truncate(&rig, &history, left);
	ck_assert_uint_eq(rig_info(&rig, history.id).flags, DHS_SESSION_SUSPENDED);
	ck_assert_uint_eq(rig_info(&rig, history.id).rows, left);
	ck_assert_uint_eq(rig_info(&rig, history.id).host_rows, (left + 3) / 4 * 4);
	trample(&rig);
	resume(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).reload_rows, left > 4 ? left - (left - 4) / 4 * 4 : left);
	history_prefill(&rig, &history, 13);
	history_verify(&table, &history);
	read_rows(&table, &history, 2, 0);
	suspend(&rig, &history);
	history_close(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).sessions_suspended, 0);
	ck_assert_uint_eq(waited(&rig).pages_free, 64 - rig_stats(&rig).pages_staging);
	ck_assert_uint_eq(rig_stats(&rig).host_rows_used, 0);
	rig_works(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- rows ------------------------------------------------------------------ */

/* Steps, and away, and back, at once or when others have used the pages; every row has one
 * copy. */
static void round_trip(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_stats stats;

	rig_default(&rig);
	open_way(&rig, seed, variant % WAYS, 26);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	for (uint32_t i = 0; i < 6; i++) {
		read_rows(&table, &history, i % 3, 3 * (int32_t)i);
		if (i % 3 == 1)
			ck_good(dhs_context_advance(rig.context));
		suspend(&rig, &history);
		if (variant / WAYS % 2)
			trample(&rig);
		resume(&rig, &history);
		if (i % 2)
			history_prefill(&rig, &history, 1 + i);
		if (i == 4) {
			suspend(&rig, &history);
			resume(&rig, &history);
		}
	}
	suspend(&rig, &history);
	stats = rig_stats(&rig);
	if (ways[variant % WAYS].backup != DHS_BACKUP_EAGER && variant / WAYS == 0)
		ck_assert_uint_eq(stats.backup_rows, history.rows);
	resume(&rig, &history);
	history_verify(&table, &history);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_round_trip)
{
	play(round_trip, _i);
}
END_TEST

/* A row is copied once, however often its page goes; what is written again once more. */
START_TEST(test_one_copy)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	open_way(&rig, (uint64_t)_i, 2, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	suspend(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, ROWS);
	resume(&rig, &history);
	suspend(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, ROWS);
	resume(&rig, &history);
	read_rows(&table, &history, 2, 0); /* two rows more in the last page */
	suspend(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, ROWS + 2);
	history_truncate(&rig, &history, ROWS - 2); /* 3 rows of the last page but one */
	resume(&rig, &history);
	suspend(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, ROWS + 2);
	resume(&rig, &history);
	history_prefill(&rig, &history, 10);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	suspend(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, ROWS + 2 + 10);
	ck_assert_uint_eq(rig_stats(&rig).backup_bytes, (ROWS + 12) * ROW_BYTES * 3);
	resume(&rig, &history);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A session that was never begun, with rows and without: only its tail comes back. */
static void never_begun(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	open_way(&rig, seed, variant % WAYS, 64);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &history);
	history_prefill(&rig, &history, variant / WAYS % 2 ? ROWS : 0);
	suspend(&rig, &history);
	trample(&rig);
	resume(&rig, &history);
	if (seed % 2) {
		suspend(&rig, &history);
		resume(&rig, &history);
	}
	if (variant / WAYS / 2)
		history_prefill(&rig, &history, 9);
	read_rows(&table, &history, 1, ROWS - TAIL);
	history_verify(&table, &history);
	ck_assert_uint_eq(waited(&rig).warmed_rows, 0);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_never_begun)
{
	play(never_begun, _i);
}
END_TEST

/* ---- the hot cache ---------------------------------------------------------- */

/* The rows of the last selections come back, all layers of both groups, and are found. */
static const struct {
	uint32_t before, between, after; /* truncates: to so many rows */
	uint32_t warmed, found;          /* of eight in each group */
} cuts[] = {
	{ ROWS, ROWS, ROWS, 8, 8 }, { 39, 39, 39, 8, 8 },    { 5, ROWS, ROWS, 5, 5 },
	{ ROWS, 5, ROWS, 5, 5 },    { ROWS, ROWS, 5, 8, 5 }, { 6, 5, 3, 5, 3 },
	{ 0, ROWS, ROWS, 0, 0 },    { ROWS, 0, ROWS, 0, 0 }, { ROWS, ROWS, 0, 8, 0 },
};

static void cut(struct rig *rig, struct history *history, uint32_t rows)
{
	if (rows < history->rows)
		history_truncate(rig, history, rows);
}

START_TEST(test_warmed)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_stats before, after;
	uint32_t warmed = cuts[_i / 2].warmed, found = cuts[_i / 2].found;

	rig_default(&rig);
	open_way(&rig, (uint64_t)_i, _i % 2 ? 2 : 0, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	read_rows(&table, &history, 0, 0);
	cut(&rig, &history, cuts[_i / 2].before);
	suspend(&rig, &history);
	cut(&rig, &history, cuts[_i / 2].between);
	trample(&rig);
	resume(&rig, &history);
	cut(&rig, &history, cuts[_i / 2].after);
	before = waited(&rig);
	ck_assert_uint_eq(before.warmed_rows, 0); /* no step told */
	if (history.rows < ROWS)
		history_prefill(&rig, &history, ROWS - (uint32_t)history.rows);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	read_rows(&table, &history, 0, 0);
	after = waited(&rig);
	ck_assert_uint_eq(after.warmed_rows, 2 * warmed);
	ck_assert_uint_eq(after.warm_bytes, (uint64_t)warmed * ROW_BYTES * 3);
	ck_assert_uint_eq(after.hot_hits - before.hot_hits, 2 * found);
	ck_assert_uint_eq(after.misses - before.misses, 2 * (8 - found));
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Rows of a plan that was not fetched, or not in all layers, do not come and are not found. */
START_TEST(test_unfetched)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	dhs_stats before, after;
	int32_t *rows;

	rig_default(&rig);
	open_way(&rig, (uint64_t)_i, 0, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 4);
	read_rows(&table, &history, 0, 0); /* 0 to 3 */
	turn_open(&turn, &table);
	turn_add(&turn, &history, 0, 1, 0);
	turn_begin(&turn);
	rows = turn_blank(&turn);
	rows[0] = 20;
	rows[1] = 2; /* has the stamp of the plan that is undone */
	turn_plan(&turn, 0, rows);
	turn_plan(&turn, 1, rows);
	ck_good(dhs_step_fetch(table.batch, 1, 1, 1, rig.stream));
	if (_i % 2)
		turn_abort(&turn);
	else
		turn_end(&turn);
	before = waited(&rig);
	suspend(&rig, &history);
	trample(&rig);
	resume(&rig, &history);
	rows[2] = 3;
	rows[3] = 20;
	turn_one(&table, &history, 0, 0, rows, 1);
	after = waited(&rig);
	ck_assert_uint_eq(after.warmed_rows, 2 * 3);
	ck_assert_uint_eq(after.hot_hits - before.hot_hits, 2 * 1);
	ck_assert_uint_eq(after.misses - before.misses, 2 * 2);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* The counters of wild selections, with naps in between or with evictions instead. */
static dhs_stats play_wild(uint64_t seed, int variant, bool naps)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct dice dice = { (uint64_t)variant };
	dhs_stats stats;

	rig_default(&rig);
	open_way(&rig, seed, variant % WAYS, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60);
	table_open(&rig, &table, 1, 2, 6);
	for (uint32_t i = 0; i < 40; i++) {
		struct turn turn;

		ck_good(dhs_session_evict(rig.context, history.id, NULL));
		if (naps && i % 3 == 0) {
			suspend(&rig, &history);
			resume(&rig, &history);
		}
		turn_open(&turn, &table);
		turn_add(&turn, &history, 2, 2, dice_below(&dice, 3));
		turn_begin(&turn);
		turn_write(&turn);
		turn_resolve_all(&turn, turn_wild(&turn, &dice));
		turn_end(&turn);
	}
	stats = waited(&rig);
	table_close(&table);
	rig_close(&rig);
	return stats;
}

START_TEST(test_hits_as_ever)
{
	for (uint64_t seed = 0; seed < 6; seed++) {
		dhs_stats with = play_wild(seed, _i, true), without = play_wild(seed, _i, false);

		ck_assert_uint_gt(with.warmed_rows, 0);
		ck_assert_uint_gt(with.hot_hits, 0);
		ck_assert_uint_eq(with.hot_hits, without.hot_hits);
		ck_assert_uint_eq(with.page_hits, without.page_hits);
		ck_assert_uint_eq(with.misses, without.misses);
		ck_assert_uint_eq(with.victims, without.victims);
		ck_assert_uint_eq(with.staged, without.staged);
		ck_assert_uint_eq(with.fetched_bytes, without.fetched_bytes);
	}
}
END_TEST

/* The next session of the index finds nothing of one that was suspended, or resumed. */
START_TEST(test_next_of_the_index)
{
	struct rig rig;
	struct history one, two;
	struct table table;
	dhs_stats before, after;

	rig_default(&rig);
	rig.options.max_sessions = 1;
	open_way(&rig, (uint64_t)_i, 0, 64);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &one);
	history_prefill(&rig, &one, ROWS);
	read_rows(&table, &one, 0, 0);
	suspend(&rig, &one);
	if (_i % 2)
		resume(&rig, &one);
	history_close(&rig, &one);
	before = waited(&rig);
	history_open(&rig, &two);
	history_prefill(&rig, &two, ROWS);
	read_rows(&table, &two, 0, 0);
	after = waited(&rig);
	ck_assert_uint_eq(after.hot_hits, before.hot_hits);
	ck_assert_uint_eq(after.warmed_rows, _i % 2 ? 16 : 0); /* told by the index's next step */
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Nor does it begin before all has come back to the one before, which would look at the tables of
 * the new session then.  A third one has the host records, so that nobody waits for these. */
START_TEST(test_next_of_the_index_at_once)
{
	dhs_session_options options = DHS_INIT(dhs_session_options);
	struct rig rig;
	struct history one, two;
	struct table table;
	dhs_session third;

	rig_default(&rig);
	rig.options.max_sessions = 2;
	open_way(&rig, 1 + (uint64_t)_i, 0, 64);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &one);
	history_prefill(&rig, &one, ROWS);
	read_rows(&table, &one, 0, 0);
	suspend(&rig, &one);
	resume(&rig, &one);
	history_close(&rig, &one);
	options.reserve_rows = ROWS;
	ck_good(dhs_session_create(rig.context, &options, &third));
	history_open(&rig, &two);
	turn_one(&table, &two, 1, 1, NULL, 0);
	ck_assert_uint_eq(waited(&rig).warmed_rows, 16);
	history_close(&rig, &two);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Places that are more than fill their pages, in more pages than one launch takes. */
START_TEST(test_many_places)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_stats before, after;

	rig_default(&rig);
	rig.layout.page_rows = _i ? 3 : 1;
	rig.options.hot_rows = 100;
	rig.options.policy = DHS_POLICY_FIXED;
	rig.options.device_pages = 500;
	rig.seed = (uint64_t)_i;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 200);
	table_open(&rig, &table, 1, 1, 100);
	read_rows(&table, &history, 0, 50);
	suspend(&rig, &history);
	trample(&rig);
	resume(&rig, &history);
	before = waited(&rig);
	read_rows(&table, &history, 0, 50);
	after = waited(&rig);
	ck_assert_uint_eq(after.warmed_rows, 200);
	ck_assert_uint_eq(after.hot_hits - before.hot_hits, 200);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- room ------------------------------------------------------------------ */

/* Resume takes optional pages of others, with a copy where they have none. */
static void under_pressure(uint64_t seed, int variant)
{
	struct rig rig;
	struct history one, two;
	struct table table;
	uint32_t had, free;

	rig_default(&rig);
	open_way(&rig, seed, 1 + variant % (WAYS - 1), 26);
	history_open(&rig, &one);
	history_prefill(&rig, &one, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	read_rows(&table, &one, 1, 0);
	suspend(&rig, &one);
	history_open(&rig, &two);
	history_prefill(&rig, &two, 92);
	read_rows(&table, &two, 1, 0);
	had = rig_info(&rig, two.id).resident_pages;
	free = rig_stats(&rig).pages_free;
	ck_assert_uint_lt(free, REQUIRED);
	resume(&rig, &one);
	ck_assert_uint_eq(rig_info(&rig, two.id).resident_pages, had - (REQUIRED - free));
	history_verify(&table, &one);
	history_verify(&table, &two);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_under_pressure)
{
	play(under_pressure, _i);
}
END_TEST

/* Without room it stays suspended, whatever comes then. */
START_TEST(test_refused)
{
	struct rig rig;
	struct history one, more[3];
	struct table table;
	dhs_session_info info;
	dhs_stats stats;

	rig_default(&rig);
	open_way(&rig, 1, _i % WAYS, 3 * REQUIRED + 4);
	history_open(&rig, &one);
	history_prefill(&rig, &one, 11);
	table_open(&rig, &table, 1, 1, 8);
	read_rows(&table, &one, 1, 0);
	suspend(&rig, &one);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&rig, &more[i]);
	stats = rig_stats(&rig);
	info = rig_info(&rig, one.id);
	stats.refusals++;
	refused(&rig, &one, dhs_session_resume(rig.context, one.id), DHS_ERR_DEVICE_MEMORY, &stats,
	        &info);
	support_said("resume", "5 pages", "4 are free");
	if (_i / WAYS)
		history_truncate(&rig, &one, 6);
	history_close(&rig, &more[1]);
	resume(&rig, &one);
	history_prefill(&rig, &one, 5);
	history_verify(&table, &one);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Pages that drain for a step whose end is not recorded would do: later. */
START_TEST(test_pending)
{
	struct rig rig;
	struct history one, more[3];
	struct table table;
	struct turn turn;
	dhs_session_info info;
	dhs_stats stats;

	rig_default(&rig);
	open_way(&rig, 1 + (uint64_t)_i / WAYS, _i % WAYS, 3 * REQUIRED + 2);
	history_open(&rig, &one);
	history_prefill(&rig, &one, 11);
	table_open(&rig, &table, 1, 1, 8);
	read_rows(&table, &one, 1, 0);
	suspend(&rig, &one);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&rig, &more[i]);
	turn_open(&turn, &table);
	turn_add(&turn, &more[0], 1, 0, 0);
	turn_begin(&turn);
	turn_write(&turn);
	history_close(&rig, &more[0]);
	turn.entry[0].cancelled = true;
	stats = rig_stats(&rig);
	info = rig_info(&rig, one.id);
	refused(&rig, &one, dhs_session_resume(rig.context, one.id), DHS_ERR_PENDING, &stats, &info);
	turn_end(&turn);
	resume(&rig, &one);
	history_verify(&table, &one);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A session that has pages of another's open step, and never used them. */
START_TEST(test_suspend_pending)
{
	struct rig rig;
	struct history one, two;
	struct table table;
	struct turn turn;

	rig_default(&rig);
	open_way(&rig, 1, _i, REQUIRED);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &one);
	turn_open(&turn, &table);
	turn_add(&turn, &one, 1, 0, 0);
	turn_begin(&turn);
	turn_write(&turn);
	history_close(&rig, &one);
	turn.entry[0].cancelled = true;
	history_open(&rig, &two);
	ck_code(dhs_session_suspend(rig.context, two.id, NULL), DHS_ERR_PENDING);
	turn_end(&turn);
	suspend(&rig, &two);
	resume(&rig, &two);
	history_prefill(&rig, &two, 9);
	history_verify(&table, &two);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Of pages of two open steps the hot ones are those of the later: then that is in the way. */
START_TEST(test_hot_pending)
{
	struct rig rig;
	struct history one[2], two[2];
	struct table table[2];
	struct turn turn[2];

	rig_default(&rig);
	open_way(&rig, 1, _i, 2 * REQUIRED);
	for (int i = 0; i < 2; i++)
		history_open(&rig, &one[i]);
	for (int i = 0; i < 2; i++) {
		table_open(&rig, &table[i], 1, 1, 8);
		turn_open(&turn[i], &table[i]);
		turn_add(&turn[i], &one[i], 1, 0, 0);
		turn_begin(&turn[i]);
		turn_write(&turn[i]);
	}
	for (int i = 1; i >= 0; i--) {
		history_close(&rig, &one[i]);
		turn[i].entry[0].cancelled = true;
	}
	for (int i = 0; i < 2; i++)
		history_open(&rig, &two[i]);
	ck_code(dhs_session_suspend(rig.context, two[1].id, NULL), DHS_ERR_PENDING);
	turn_end(&turn[0]);
	ck_code(dhs_session_suspend(rig.context, two[1].id, NULL), DHS_ERR_PENDING);
	turn_end(&turn[1]);
	suspend(&rig, &two[1]);
	rig_close(&rig);
}
END_TEST

/* ---- beside refill and other contexts --------------------------------------- */

/* History on its way or landed; none comes to a session that is suspended. */
static void beside_refill(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;
	uint32_t ticks = 1 + (uint32_t)variant / WAYS % 3;
	uint64_t issued;

	rig_default(&rig);
	open_way(&rig, seed, 1 + variant % (WAYS - 1), 40);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	while (ticks--)
		ck_good(dhs_context_advance(rig.context));
	suspend(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).pages_coming, 0);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 40 - rig_stats(&rig).pages_staging);
	trample(&rig);
	issued = rig_stats(&rig).refill_bytes;
	for (uint32_t i = 0; i < 4; i++)
		ck_good(dhs_context_advance(rig.context));
	ck_assert_uint_eq(rig_stats(&rig).refill_bytes, issued);
	resume(&rig, &history);
	read_rows(&table, &history, 1, 0);
	for (uint32_t i = 0; i < 3; i++)
		ck_good(dhs_context_advance(rig.context));
	ck_assert_uint_eq(rig_info(&rig, history.id).resident_pages, HISTORY);
	history_verify(&table, &history);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_beside_refill)
{
	play(beside_refill, _i);
}
END_TEST

/* Two contexts of one device keep out of each other's way. */
START_TEST(test_two_contexts)
{
	struct rig rig[2];
	struct history history[2];
	struct table table[2];

	for (int i = 0; i < 2; i++) {
		rig_default(&rig[i]);
		rig[i].shared_host = i == 1 && rig_on_host(&rig[0]);
		rig[i].host = i ? rig[0].host : NULL;
		open_way(&rig[i], (uint64_t)_i / WAYS, _i % WAYS, 26);
		history_open(&rig[i], &history[i]);
		history_prefill(&rig[i], &history[i], ROWS);
		table_open(&rig[i], &table[i], 1, 1, 8);
		read_rows(&table[i], &history[i], 1, 0);
		suspend(&rig[i], &history[i]);
	}
	ck_code(dhs_session_resume(rig[0].context, history[1].id), DHS_ERR_ARGUMENT);
	ck_code(dhs_session_suspend(rig[1].context, history[0].id, NULL), DHS_ERR_ARGUMENT);
	for (int i = 0; i < 2; i++) {
		trample(&rig[1 - i]);
		resume(&rig[i], &history[i]);
	}
	for (int i = 1; i >= 0; i--) {
		history_verify(&table[i], &history[i]);
		table_close(&table[i]);
		rig_close(&rig[i]);
	}
}
END_TEST

/* One that has failed, before it is suspended or after. */
START_TEST(test_failed_session)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	uint32_t kept = 2;

	rig_default(&rig);
	open_way(&rig, (uint64_t)_i / 2, 1 + _i / 2 % 2, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	turn_open(&turn, &table);
	turn_add(&turn, &history, 2, 0, 1);
	turn_begin(&turn);
	turn_write(&turn);
	turn_commit(&turn);
	ck_good(dhs_step_settle(rig.context, turn.step, &kept, 1));
	if (_i % 2)
		suspend(&rig, &history);
	waited(&rig);
	ck_code(dhs_session_suspend(rig.context, history.id, NULL), DHS_ERR_MISMATCH);
	ck_code(dhs_session_resume(rig.context, history.id), DHS_ERR_MISMATCH);
	ck_assert_uint_eq(rig_stats(&rig).sessions_suspended, _i % 2);
	history_close(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).sessions_suspended, 0);
	rig_works(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A context ends with sessions suspended, or hardly resumed. */
START_TEST(test_context_ends)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	open_way(&rig, 1 + (uint64_t)_i, _i % WAYS, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	read_rows(&table, &history, 1, 0);
	suspend(&rig, &history);
	if (_i / WAYS % 2)
		resume(&rig, &history);
	rig_close(&rig);
}
END_TEST

/* ---- fences, and pages that change hands ------------------------------------ */

static void write_pages(struct rig *rig, const int32_t *pages, size_t count)
{
	for (size_t i = 0; i < count * 4; i++)
		stamp_write(rig, pages[i / 4] * 4 + (int32_t)i % 4, 0xffff);
}

static void check_pages(struct rig *rig, const int32_t *pages, size_t count)
{
	for (size_t i = 0; i < count * 4; i++)
		ck_assert(stamp_is(rig, pages[i / 4] * 4 + (int32_t)i % 4, 0xffff, 0, 3));
}

/* The fence covers all that still uses any of the pages: steps, backups, refills, and the
 * copies of a resume. */
static void fence_of(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t pages[40];
	dhs_fence fence = 0, fences[40];
	size_t taken = 0;
	int passed = 0;

	rig_default(&rig);
	rig.engine_pool = true;
	open_way(&rig, seed, variant % WAYS, 30);
	history_open(&rig, &history);
	history_prefill(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	read_rows(&table, &history, 2, 0);
	if (variant / WAYS % 2) {
		ck_good(dhs_session_evict(rig.context, history.id, NULL));
		ck_good(dhs_context_advance(rig.context));
	}
	if (variant / WAYS / 2) {
		suspend(&rig, &history);
		resume(&rig, &history);
	}
	ck_good(dhs_session_suspend(rig.context, history.id, &fence));
	ck_assert_uint_ne(fence, 0);
	ck_good(dhs_take_pages(rig.context, 40, pages, fences, &taken));
	ck_assert_uint_eq(taken, 29 - rig_stats(&rig).pages_staging);
	if (seed % 2)
		ck_good(dhs_fence_sync(rig.context, fence));
	while (!passed)
		ck_good(dhs_fence_query(rig.context, fence, &passed));
	write_pages(&rig, pages, taken);
	waited(&rig);
	check_pages(&rig, pages, taken);
	ck_good(dhs_lend_pages(rig.context, pages, taken, rig.side));
	resume(&rig, &history);
	history_verify(&table, &history);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_fence)
{
	play(fence_of, _i);
}
END_TEST

static void set_kernel(void *copy)
{
	atomic_int *flag;

	memcpy(&flag, copy, sizeof(flag));
	atomic_store(flag, 1);
}

/* What comes behind so much is late on most schedules. */
static void launch_much(struct rig *rig)
{
	atomic_int *flag = rig_keep(rig, sizeof(*flag));

	for (uint32_t i = 0; i < 64; i++)
		rig_launch(rig, rig->stream, set_kernel, &flag, sizeof(flag));
}

/* Pages that the session got from another, whose work still runs, and never used. */
static void fence_of_unused(uint64_t seed, int variant)
{
	struct rig rig;
	struct history one, two;
	atomic_int *flag;
	dhs_fence fence = 0;
	int32_t slots[4];

	rig_default(&rig);
	open_way(&rig, seed, variant, REQUIRED);
	flag = rig_keep(&rig, sizeof(*flag));
	history_open(&rig, &one);
	launch_much(&rig);
	ck_good(dhs_session_extend(rig.context, one.id, 4, rig.stream, slots));
	rig_launch(&rig, rig.stream, set_kernel, &flag, sizeof(flag));
	ck_good(dhs_session_commit(rig.context, one.id, 4, rig.stream));
	history_close(&rig, &one);
	history_open(&rig, &two);
	ck_good(dhs_session_suspend(rig.context, two.id, &fence));
	ck_good(dhs_fence_sync(rig.context, fence));
	ck_assert_msg(atomic_load(flag) == 1, "the fence passed before work on the pages ran");
	rig_close(&rig);
}

START_TEST(test_fence_of_unused)
{
	play(fence_of_unused, _i);
}
END_TEST

/* A hot cache comes back into a page that another session still writes. */
static void into_used(uint64_t seed, int variant)
{
	struct rig rig;
	struct history one, two;
	struct table table;

	rig_default(&rig);
	open_way(&rig, seed, variant, REQUIRED);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &one);
	for (uint32_t i = 0; i < 5; i++)
		history_prefill(&rig, &one, 4);
	read_rows(&table, &one, 0, 0);
	suspend(&rig, &one);
	waited(&rig);
	history_open(&rig, &two);
	launch_much(&rig);
	history_prefill(&rig, &two, 4);
	history_close(&rig, &two);
	resume(&rig, &one);
	read_rows(&table, &one, 0, 0);
	ck_assert_uint_eq(waited(&rig).warmed_rows, 16);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_into_used)
{
	play(into_used, _i);
}
END_TEST

/* Sessions that go while what resume copies is still on its way. */
static void gone_at_once(uint64_t seed, int variant)
{
	struct rig rig;
	struct history one, two;
	struct table table;

	rig_default(&rig);
	open_way(&rig, seed, variant % WAYS, 26);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &one);
	history_prefill(&rig, &one, ROWS);
	read_rows(&table, &one, 1, 0);
	suspend(&rig, &one);
	waited(&rig);
	resume(&rig, &one);
	switch (variant / WAYS) {
	case 0:
		history_close(&rig, &one);
		break;
	case 1:
		suspend(&rig, &one);
		break;
	default:
		history_truncate(&rig, &one, 0);
		history_close(&rig, &one);
		break;
	}
	history_open(&rig, &two);
	history_prefill(&rig, &two, 4 * (rig_stats(&rig).pages_free + 2));
	read_rows(&table, &two, 0, 0);
	history_verify(&table, &two);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}

/* The engine gets such pages: each is its own once the page's fence has passed. */
static void taken_at_once(uint64_t seed, int variant)
{
	struct rig rig;
	struct history one;
	struct table table;
	int32_t pages[40];
	dhs_fence fences[40];
	size_t taken = 0;

	rig_default(&rig);
	rig.engine_pool = true;
	open_way(&rig, seed, variant % WAYS, 26);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &one);
	history_prefill(&rig, &one, ROWS);
	read_rows(&table, &one, 1, 0);
	suspend(&rig, &one);
	waited(&rig);
	resume(&rig, &one);
	if (variant / WAYS)
		suspend(&rig, &one);
	else
		history_close(&rig, &one);
	ck_good(dhs_take_pages(rig.context, 40, pages, fences, &taken));
	for (size_t i = taken; i-- > 0;) { /* hot pages first, which were freed last */
		ck_good(dhs_fence_sync(rig.context, fences[i]));
		write_pages(&rig, pages + i, 1);
	}
	waited(&rig);
	check_pages(&rig, pages, taken);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_taken_at_once)
{
	play(taken_at_once, _i);
}
END_TEST

START_TEST(test_gone_at_once)
{
	play(gone_at_once, _i);
}
END_TEST

/* ---- all -------------------------------------------------------------------- */

static void add_later_cases(Suite *suite, bool in_pool)
{
	TCase *room = support_case("room", in_pool), *hands = support_case("hands", in_pool);

	tcase_set_timeout(room, support_seconds(60));
	tcase_add_loop_test(room, test_under_pressure, 0, WAYS - 1);
	tcase_add_loop_test(room, test_refused, 0, 2 * WAYS);
	tcase_add_loop_test(room, test_pending, 0, 2 * WAYS);
	tcase_add_loop_test(room, test_suspend_pending, 0, WAYS);
	tcase_add_loop_test(room, test_hot_pending, 0, WAYS);
	suite_add_tcase(suite, room);
	tcase_set_timeout(hands, support_seconds(60));
	tcase_add_loop_test(hands, test_beside_refill, 0, 3 * WAYS);
	tcase_add_loop_test(hands, test_two_contexts, 0, 3 * WAYS);
	tcase_add_loop_test(hands, test_failed_session, 0, 8);
	tcase_add_loop_test(hands, test_context_ends, 0, 4 * WAYS);
	tcase_add_loop_test(hands, test_fence, 0, 4 * WAYS);
	tcase_add_loop_test(hands, test_fence_of_unused, 0, WAYS);
	tcase_add_loop_test(hands, test_into_used, 0, WAYS);
	tcase_add_loop_test(hands, test_gone_at_once, 0, 3 * WAYS);
	tcase_add_loop_test(hands, test_taken_at_once, 0, 2 * WAYS);
	suite_add_tcase(suite, hands);
}

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *told = support_case("told", in_pool), *rows = support_case("rows", in_pool);

	tcase_set_timeout(told, support_seconds(60));
	tcase_add_loop_test(told, test_nothing_stays, 0, 2 * WAYS);
	tcase_add_loop_test(told, test_order_of_calls, 0, WAYS);
	tcase_add_loop_test(told, test_in_a_step, 0, 3 * WAYS);
	tcase_add_test(told, test_policy_full);
	tcase_add_loop_test(told, test_while_suspended, 0, 7 * WAYS);
	suite_add_tcase(suite, told);
	tcase_set_timeout(rows, support_seconds(60));
	tcase_add_loop_test(rows, test_round_trip, 0, 2 * WAYS);
	tcase_add_loop_test(rows, test_one_copy, 0, 4);
	tcase_add_loop_test(rows, test_never_begun, 0, 4 * WAYS);
	tcase_add_loop_test(rows, test_warmed, 0, 2 * (int)COUNT_OF(cuts));
	tcase_add_loop_test(rows, test_unfetched, 0, 8);
	tcase_add_loop_test(rows, test_hits_as_ever, 0, WAYS);
	tcase_add_loop_test(rows, test_next_of_the_index, 0, 6);
	tcase_add_loop_test(rows, test_next_of_the_index_at_once, 0, 40);
	tcase_add_loop_test(rows, test_many_places, 0, 2);
	suite_add_tcase(suite, rows);
	add_later_cases(suite, in_pool);
}

int main(void)
{
	Suite *suite = suite_create("suspend");

	support_both(suite, add_cases);
	return support_run(suite);
}
