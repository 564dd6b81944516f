/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Backup in the background: how much a tick copies and which pages, that no row is copied
 * twice, that no step waits for it that need not, and that pages which are taken, cut or
 * given up in the middle of a copy are used again after it. */
#include "support.h"

#define ROW_BYTES (UINT64_C(3) * 64) /* of a row in all layers */
#define PAGE_BYTES (UINT64_C(4) * ROW_BYTES)
#define ROWS 41   /* of a session with */
#define HISTORY 9 /* pages of history */

static void open_refilling(struct rig *rig, uint64_t seed, uint64_t link_bytes)
{
	rig->seed = seed;
	rig->options.backup = DHS_BACKUP_BACKGROUND;
	rig->options.flags |= DHS_CONTEXT_REFILL;
	rig->options.link_bytes = link_bytes;
	rig_open(rig);
}

/* The same where refill never has room. */
static void open_backup(struct rig *rig, uint64_t seed, uint64_t link_bytes)
{
	rig->options.refill_low = rig->options.refill_high = UINT32_MAX;
	open_refilling(rig, seed, link_bytes);
}

static void advance(struct rig *rig, uint32_t ticks)
{
	while (ticks--)
		ck_good(dhs_context_advance(rig->context));
}

static uint32_t backlog(struct rig *rig)
{
	return rig_stats(rig).pages_unbacked;
}

static uint64_t copied(struct rig *rig)
{
	dhs_stats stats = rig_stats(rig);

	ck_assert_uint_eq(stats.backup_bytes, stats.backup_rows * ROW_BYTES);
	return stats.backup_rows;
}

static void evict(struct rig *rig, struct history *history)
{
	ck_good(dhs_session_evict(rig->context, history->id, NULL));
}

static void fill(struct rig *rig, struct history *history, uint32_t rows)
{
	history_open(rig, history);
	history_prefill(rig, history, rows);
}

static void finish(struct rig *rig)
{
	rig_sync(rig);
	ck_good(dhs_context_wait(rig->context));
}

/* On many schedules: what is not waited for is late on one of them. */
static void play(void (*body)(uint64_t seed, int variant), int variant)
{
	uint32_t times = support_times(60);

	for (uint64_t seed = 0; seed < times; seed++)
		body(seed, variant);
}

/* ---- how much ------------------------------------------------------------- */

static const struct {
	uint64_t link_bytes;
	uint32_t pages;
} links[] = {
	{ 0, 0 },
	{ PAGE_BYTES - 1, 0 },
	{ PAGE_BYTES, 1 },
	{ 2 * PAGE_BYTES - 1, 1 },
	{ 4 * PAGE_BYTES, 4 },
	{ HISTORY * PAGE_BYTES, HISTORY },
	{ UINT64_MAX, HISTORY },
};

/* Every page of history once, none of the tail, and nothing any more when it goes. */
START_TEST(test_link)
{
	struct rig rig;
	struct history history;

	rig_default(&rig);
	open_backup(&rig, 0, links[_i].link_bytes);
	fill(&rig, &history, ROWS);
	ck_assert_uint_eq(backlog(&rig), HISTORY);
	for (uint32_t tick = 1; tick <= 12; tick++) {
		uint32_t pages = tick * links[_i].pages;

		pages = pages < HISTORY ? pages : HISTORY;
		advance(&rig, 1);
		ck_assert_uint_eq(copied(&rig), 4 * pages);
		ck_assert_uint_eq(backlog(&rig), HISTORY - pages);
		ck_assert_uint_eq(rig_info(&rig, history.id).resident_pages, HISTORY);
	}
	evict(&rig, &history);
	ck_assert_uint_eq(copied(&rig), 4 * HISTORY);
	ck_assert_uint_eq(backlog(&rig), 0);
	finish(&rig);
	ck_assert_uint_eq(rig_stats(&rig).mirrored_rows, 0);
	rig_close(&rig);
}
END_TEST

/* Misses and refill have the other direction to themselves. */
START_TEST(test_directions)
{
	struct rig rig;
	struct history one, two;

	rig_default(&rig);
	open_refilling(&rig, 0, 2 * PAGE_BYTES);
	fill(&rig, &one, ROWS);
	evict(&rig, &one);
	fill(&rig, &two, ROWS);
	for (uint32_t tick = 1; tick <= 3; tick++) {
		advance(&rig, 1);
		ck_assert_uint_eq(rig_stats(&rig).refill_bytes, tick * 2 * PAGE_BYTES);
		ck_assert_uint_eq(copied(&rig), 4 * HISTORY + 4 * 2 * tick);
	}
	advance(&rig, 12);
	ck_assert_uint_eq(rig_stats(&rig).refilled_pages, HISTORY);
	ck_assert_uint_eq(copied(&rig), 2 * 4 * HISTORY); /* what came back has its copy */
	ck_assert_uint_eq(backlog(&rig), 0);
	rig_close(&rig);
}
END_TEST

/* However many ticks there were: each row once. */
START_TEST(test_once)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	open_backup(&rig, (uint64_t)_i, 2 * PAGE_BYTES);
	table_open(&rig, &table, 1, 2, 8);
	fill(&rig, &history, ROWS);
	advance(&rig, (uint32_t)_i % 7);
	evict(&rig, &history);
	ck_assert_uint_eq(copied(&rig), 4 * HISTORY);
	ck_assert_uint_eq(backlog(&rig), 0);
	history_verify(&table, &history);
	history_prefill(&rig, &history, 8);
	ck_assert_uint_eq(backlog(&rig), 2);
	advance(&rig, 1);
	evict(&rig, &history);
	advance(&rig, 3);
	ck_assert_uint_eq(copied(&rig), 4 * HISTORY + 8);
	history_verify(&table, &history);
	finish(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Rows of a page that a truncate cut: those that stay have their copies. */
START_TEST(test_cut_page)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	open_backup(&rig, (uint64_t)_i, _i % 2 ? UINT64_MAX : 8 * PAGE_BYTES);
	table_open(&rig, &table, 1, 2, 8);
	fill(&rig, &history, ROWS);
	advance(&rig, 1);
	ck_assert_uint_eq(copied(&rig), _i % 2 ? 4 * HISTORY : 4 * 8);
	history_truncate(&rig, &history, 30); /* page 7 is cut, 6 is tail */
	ck_assert_uint_eq(backlog(&rig), 0);
	history_prefill(&rig, &history, 11);
	ck_assert_uint_eq(backlog(&rig), 2); /* 7, of which two rows are copied, and 8 */
	advance(&rig, 1);
	ck_assert_uint_eq(backlog(&rig), 0);
	ck_assert_uint_eq(copied(&rig), (_i % 2 ? 4 * HISTORY : 4 * 8) + 2 + 4);
	evict(&rig, &history);
	ck_assert_uint_eq(rig_stats(&rig).reload_rows, 0);
	history_verify(&table, &history);
	finish(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

static const uint32_t others[] = { DHS_BACKUP_EAGER, DHS_BACKUP_RECLAIM };

/* The other ways: no tick copies anything, and the backlog is what a reclaim would copy. */
START_TEST(test_other_ways)
{
	struct rig rig;
	struct history history;
	uint32_t pages = others[_i] == DHS_BACKUP_EAGER ? 0 : HISTORY;

	rig_default(&rig);
	rig.options.backup = others[_i];
	rig_open(&rig);
	fill(&rig, &history, ROWS);
	advance(&rig, 4);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, 0);
	ck_assert_uint_eq(backlog(&rig), pages);
	history_truncate(&rig, &history, ROWS - 8);
	ck_assert_uint_eq(backlog(&rig), pages ? pages - 2 : 0);
	history_prefill(&rig, &history, 8);
	ck_assert_uint_eq(backlog(&rig), pages);
	evict(&rig, &history);
	ck_assert_uint_eq(backlog(&rig), 0);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, 4 * pages);
	history_close(&rig, &history);
	fill(&rig, &history, ROWS);
	ck_assert_uint_eq(backlog(&rig), pages);
	history_close(&rig, &history);
	ck_assert_uint_eq(backlog(&rig), 0);
	rig_close(&rig);
}
END_TEST

/* ---- which ---------------------------------------------------------------- */

/* The lowest first: pages from `after` on are gone, and with them what is left to copy. */
START_TEST(test_lowest_page_first)
{
	struct rig rig;
	struct history history;

	rig_default(&rig);
	open_backup(&rig, 0, PAGE_BYTES);
	fill(&rig, &history, ROWS);
	advance(&rig, 3);
	history_truncate(&rig, &history, 4 * (2 + (uint64_t)_i) + 4); /* history: 2 + _i pages */
	ck_assert_uint_eq(rig_info(&rig, history.id).resident_pages, 2 + (uint32_t)_i);
	ck_assert_uint_eq(backlog(&rig), _i == 2 ? 1 : 0);
	history_prefill(&rig, &history, 16);
	advance(&rig, 12);
	ck_assert_uint_eq(backlog(&rig), 0);
	evict(&rig, &history);
	/* Of the pages that were copied before, those stay copied whose rows were kept. */
	ck_assert_uint_eq(copied(&rig), 4 * 3 + 4 * (2 + (uint64_t)_i + 4 - 3));
	rig_close(&rig);
}
END_TEST

/* Of 4, 9, 9 and 3 pages; after so many ticks of a page each, there are left: */
static const uint32_t rows_of[] = { 21, 41, 41, 17 };
static const uint32_t turns[][5] = {
	{ 0, 4, 9, 9, 3 },  { 1, 4, 8, 9, 3 },  { 9, 4, 0, 9, 3 },  { 10, 4, 0, 8, 3 },
	{ 18, 4, 0, 0, 3 }, { 19, 3, 0, 0, 3 }, { 22, 0, 0, 0, 3 }, { 24, 0, 0, 0, 1 },
	{ 25, 0, 0, 0, 0 }, { 30, 0, 0, 0, 0 },
};

/* What a reclaim would take first is copied first. */
START_TEST(test_order_of_sessions)
{
	struct rig rig;
	struct history history[4];
	uint32_t left = 0;

	rig_default(&rig);
	rig.options.max_sessions = 4;
	open_backup(&rig, 0, _i % 2 ? PAGE_BYTES : turns[_i / 2][0] * PAGE_BYTES);
	for (uint32_t i = 0; i < 4; i++)
		fill(&rig, &history[i], rows_of[i]);
	advance(&rig, _i % 2 ? turns[_i / 2][0] : 1);
	for (uint32_t i = 0; i < 4; i++)
		left += turns[_i / 2][1 + i];
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(backlog(&rig), left);
		history_close(&rig, &history[i]);
		left -= turns[_i / 2][1 + i];
	}
	ck_assert_uint_eq(backlog(&rig), 0);
	rig_close(&rig);
}
END_TEST

/* A session that has failed gets no copies; its pages are counted until it ends. */
START_TEST(test_failed_session)
{
	struct rig rig;
	struct history one, two;
	struct table table;
	struct turn turn;
	uint32_t kept = 2;

	rig_default(&rig);
	open_backup(&rig, (uint64_t)_i, UINT64_MAX);
	table_open(&rig, &table, 1, 1, 8);
	fill(&rig, &one, ROWS);
	turn_open(&turn, &table);
	turn_add(&turn, &one, 2, 0, 1);
	turn_begin(&turn);
	turn_write(&turn);
	turn_commit(&turn);
	ck_good(dhs_step_settle(rig.context, turn.step, &kept, 1));
	finish(&rig);
	ck_code(dhs_session_evict(rig.context, one.id, NULL), DHS_ERR_MISMATCH);
	fill(&rig, &two, 21);
	advance(&rig, 2);
	ck_assert_uint_eq(copied(&rig), 4 * 4);
	ck_assert_uint_eq(backlog(&rig), HISTORY);
	history_close(&rig, &one);
	ck_assert_uint_eq(backlog(&rig), 0);
	evict(&rig, &two);
	history_verify(&table, &two);
	finish(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- what waits ----------------------------------------------------------- */

struct flag_job {
	atomic_int *set, *seen;
};

static void set_kernel(void *copy)
{
	const struct flag_job *job = copy;

	atomic_store(job->set, 1);
}

/* Whether the flag is set by now. */
static void see_kernel(void *copy)
{
	const struct flag_job *job = copy;

	atomic_store(job->seen, atomic_load(job->set) + 1);
}

enum { STAYS, TAKEN, CUT };

/* Two sessions are copied by one tick, and the copies wait for what writes the one: a step
 * of the other does not wait for them; unless its pages were taken, as its rows come from
 * the host now, or cut, as it may write them again.  Whether it ran before that. */
static bool early(uint64_t seed, int how)
{
	struct rig rig;
	struct history one, two;
	struct table table;
	struct turn turn;
	struct flag_job job;
	bool seen;

	rig_default(&rig);
	open_backup(&rig, seed, UINT64_MAX);
	job =
		(struct flag_job){ rig_keep(&rig, sizeof(atomic_int)), rig_keep(&rig, sizeof(atomic_int)) };
	table_open(&rig, &table, 1, 1, 8);
	fill(&rig, &one, ROWS);
	rig_sync(&rig);
	history_open(&rig, &two);
	rig_launch(&rig, rig.stream, set_kernel, &job, sizeof(job));
	history_prefill(&rig, &two, ROWS);
	advance(&rig, 1);
	ck_assert_uint_eq(backlog(&rig), 0);
	if (how == TAKEN)
		evict(&rig, &one);
	if (how == CUT)
		history_truncate(&rig, &one, 30);
	turn_open(&turn, &table);
	turn.stream = rig.side;
	turn_add(&turn, &one, 0, 1, 0);
	turn_begin(&turn);
	rig_launch(&rig, rig.side, see_kernel, &job, sizeof(job));
	turn_resolve_all(&turn, turn_blank(&turn));
	turn_end(&turn);
	rig_sync(&rig);
	/* A GPU runs it when it likes. */
	seen = rig_on_host(&rig) ? atomic_load(job.seen) == 1 : how == STAYS;
	finish(&rig);
	table_close(&table);
	rig_close(&rig);
	return seen;
}

/* On one schedule, at least, the step is there first. */
START_TEST(test_no_step_waits)
{
	uint64_t seed = 1;

	while (!early(seed, STAYS))
		ck_assert_uint_lt(seed++, 500);
}
END_TEST

START_TEST(test_step_waits)
{
	uint32_t times = support_times(60);

	for (uint64_t seed = 1; seed <= times; seed++)
		ck_assert(!early(seed, _i));
}
END_TEST

struct need {
	struct rig *rig;
	atomic_int *set;
};

static void need_kernel(void *copy)
{
	const struct need *need = copy;

	if (!atomic_load(need->set))
		rig_wrong(need->rig, "a fence passed before a copy that reads the page");
}

/* The same of the fences of pages that an engine takes back after a truncate. */
static void given_back(uint64_t seed, int variant)
{
	struct rig rig;
	struct history one, two;
	struct flag_job job;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t count;

	rig_default(&rig);
	rig.engine_pool = true;
	open_backup(&rig, seed, UINT64_MAX);
	job.set = rig_keep(&rig, sizeof(atomic_int));
	fill(&rig, &one, ROWS);
	rig_sync(&rig);
	history_open(&rig, &two);
	rig_launch(&rig, rig.stream, set_kernel, &job, sizeof(job));
	history_prefill(&rig, &two, ROWS);
	advance(&rig, 1);
	if (variant)
		history_close(&rig, &one);
	else
		history_truncate(&rig, &one, 3);
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &count));
	for (size_t i = 0; i < count; i++)
		ck_good(dhs_fence_wait(rig.context, fences[i], rig.side));
	rig_launch(&rig, rig.side, need_kernel, &(struct need){ &rig, job.set }, sizeof(struct need));
	finish(&rig);
	rig_close(&rig);
}

START_TEST(test_given_back)
{
	play(given_back, _i);
}
END_TEST

/* What a body begins with: a session that a tick is copying, on a device that is late. */
struct middle {
	struct rig rig;
	struct history one, other;
	struct table table;
};

static void middle_open(struct middle *m, uint64_t seed, int variant)
{
	memset(m, 0, sizeof(*m));
	rig_default(&m->rig);
	m->rig.options.device_pages = 24;
	m->rig.options.host_rows = 80;
	rig_stage(&m->rig, true);
	open_backup(&m->rig, seed, variant % 2 ? 5 * PAGE_BYTES : UINT64_MAX);
	table_open(&m->rig, &m->table, 1, 2, 8);
	fill(&m->rig, &m->one, ROWS);
	if (variant % 4 >= 2)
		turn_one(&m->table, &m->one, 2, 2, NULL, 0);
	advance(&m->rig, 1);
}

/* Another session uses what is free now, pages and records. */
static void middle_close(struct middle *m, uint32_t rows)
{
	fill(&m->rig, &m->other, rows);
	history_verify(&m->table, &m->other);
	if (m->one.id) {
		evict(&m->rig, &m->one);
		history_verify(&m->table, &m->one);
	}
	evict(&m->rig, &m->other);
	history_verify(&m->table, &m->other);
	finish(&m->rig);
	table_close(&m->table);
	rig_close(&m->rig);
}

/* Pages that are taken, by an evict or by who needs room, are used after their copies. */
static void taken(uint64_t seed, int variant)
{
	struct middle m;

	middle_open(&m, seed, variant);
	if (variant % 3)
		evict(&m.rig, &m.one);
	middle_close(&m, 36);
}

START_TEST(test_taken)
{
	play(taken, _i);
}
END_TEST

static void truncated(uint64_t seed, int variant)
{
	static const uint32_t rows[] = { 0, 17, 22, 30, 36 };
	struct middle m;

	middle_open(&m, seed, variant);
	history_truncate(&m.rig, &m.one, rows[seed % COUNT_OF(rows)]);
	history_prefill(&m.rig, &m.one, 41 - rows[seed % COUNT_OF(rows)]);
	ck_assert_uint_eq(m.one.rows, 41);
	history_verify(&m.table, &m.one);
	advance(&m.rig, (uint32_t)variant % 3);
	middle_close(&m, 30);
}

/* The pages that were cut are written again, in place or by others, after the copies. */
START_TEST(test_truncated)
{
	play(truncated, _i);
}
END_TEST

/* Rows that a step writes again, at once, into a page that is being copied: neither is the
 * page written before, nor the record by an older copy after. */
static void rewritten(uint64_t seed, int variant)
{
	struct middle m;

	middle_open(&m, seed, variant);
	history_truncate(&m.rig, &m.one, 18);
	for (uint32_t i = 0; i < 8; i++) {
		turn_one(&m.table, &m.one, 2, 2, NULL, 0);
		advance(&m.rig, 1);
	}
	evict(&m.rig, &m.one);
	history_verify(&m.table, &m.one);
	middle_close(&m, 36);
}

START_TEST(test_rewritten)
{
	play(rewritten, _i);
}
END_TEST

static void destroyed(uint64_t seed, int variant)
{
	struct middle m;

	middle_open(&m, seed, variant);
	history_close(&m.rig, &m.one);
	ck_assert_uint_eq(backlog(&m.rig), 0);
	middle_close(&m, 60);
}

START_TEST(test_destroyed)
{
	play(destroyed, _i);
}
END_TEST

struct scribble {
	struct rig *rig;
	int32_t page;
};

static void scribble_kernel(void *copy)
{
	const struct scribble *s = copy;

	for (int32_t row = 0; row < 4; row++)
		stamp_write(s->rig, s->page * 4 + row, 0xffff);
}

/* The fence of an evict that had nothing left to copy passes after the copies: what is
 * written to the pages then harms nothing. */
static void fenced(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	dhs_batch_view view = DHS_INIT(dhs_batch_view);
	dhs_fence fence = 0;
	int32_t pages[HISTORY];

	rig_default(&rig);
	open_backup(&rig, seed, UINT64_MAX);
	table_open(&rig, &table, 1, 2, 8);
	fill(&rig, &history, ROWS);
	ck_good(dhs_batch_get_view(table.batch, &view));
	turn_open(&turn, &table);
	turn_add(&turn, &history, 0, 1, 0);
	turn_begin(&turn);
	turn_resolve_all(&turn, turn_blank(&turn));
	rig_sync(&rig);
	memcpy(pages, view.page_table + view.session_index[0] * view.page_stride, sizeof(pages));
	turn_end(&turn);
	advance(&rig, 1);
	if (variant % 2)
		turn_one(&table, &history, 2, 2, NULL, 0);
	ck_good(dhs_session_evict(rig.context, history.id, &fence));
	ck_assert_uint_ge(copied(&rig), 4 * HISTORY);
	if (variant / 2)
		ck_good(dhs_fence_sync(rig.context, fence));
	else
		ck_good(dhs_fence_wait(rig.context, fence, rig.side));
	for (uint32_t i = 0; i < HISTORY; i++) {
		struct scribble s = { &rig, pages[i] };

		rig_launch(&rig, rig.side, scribble_kernel, &s, sizeof(s));
	}
	history_verify(&table, &history);
	finish(&rig);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_fenced)
{
	play(fenced, _i);
}
END_TEST

/* A context that ends, or is waited for, in the middle of copies. */
static void ended(uint64_t seed, int variant)
{
	struct middle m;

	middle_open(&m, seed, variant);
	table_close(&m.table);
	if (variant == 1)
		ck_good(dhs_context_wait(m.rig.context));
	rig_close(&m.rig);
}

START_TEST(test_ended)
{
	play(ended, _i);
}
END_TEST

/* ---- under pressure ------------------------------------------------------- */

static void step_of_three(struct table *table, struct history *history, struct dice *dice)
{
	struct turn turn;

	turn_open(&turn, table);
	for (uint32_t e = 0; e < 3; e++)
		turn_add(&turn, &history[e], 2, 2, dice_below(dice, 3));
	turn_begin(&turn);
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, dice));
	turn_end(&turn);
}

/* Three sessions that grow and are cut where there is no room for them. */
START_TEST(test_pressure)
{
	struct rig rig;
	struct history history[3];
	struct table table;
	struct dice dice = { (uint64_t)_i };
	uint64_t rows;

	rig_default(&rig);
	rig.options.device_pages = 44;
	if (_i % 2)
		open_refilling(&rig, (uint64_t)_i, 4 * PAGE_BYTES);
	else
		open_backup(&rig, (uint64_t)_i, 2 * PAGE_BYTES);
	table_open(&rig, &table, 3, 2, 8);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&rig, &history[i]);
	for (uint32_t i = 0; i < support_times(150); i++) {
		struct history *h = &history[dice_below(&dice, 3)];

		if (h->rows < 150)
			history_prefill(&rig, h, dice_below(&dice, 12));
		if (dice_below(&dice, 10) == 0)
			history_truncate(&rig, h, dice_below(&dice, (uint32_t)h->rows + 1));
		if (dice_below(&dice, 20) == 0)
			evict(&rig, h);
		advance(&rig, dice_below(&dice, 3));
		step_of_three(&table, history, &dice);
	}
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&table, &history[i]);
	advance(&rig, 60);
	ck_assert_uint_eq(backlog(&rig), 0);
	rows = copied(&rig);
	for (uint32_t i = 0; i < 3; i++)
		evict(&rig, &history[i]);
	if (_i % 2 == 0)
		ck_assert_uint_le(copied(&rig) - rows, 3 * 4 * 2); /* what aged just now */
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&table, &history[i]);
	finish(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- all ------------------------------------------------------------------ */

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *which = support_case("which", in_pool), *middle = support_case("middle", in_pool);

	tcase_set_timeout(which, support_seconds(60));
	tcase_add_loop_test(which, test_link, 0, COUNT_OF(links));
	tcase_add_test(which, test_directions);
	tcase_add_loop_test(which, test_once, 0, 14);
	tcase_add_loop_test(which, test_cut_page, 0, 6);
	tcase_add_loop_test(which, test_other_ways, 0, COUNT_OF(others));
	tcase_add_loop_test(which, test_lowest_page_first, 0, 3);
	tcase_add_loop_test(which, test_order_of_sessions, 0, 2 * COUNT_OF(turns));
	tcase_add_loop_test(which, test_failed_session, 0, 3);
	suite_add_tcase(suite, which);
	tcase_set_timeout(middle, support_seconds(60));
	tcase_add_test(middle, test_no_step_waits);
	tcase_add_loop_test(middle, test_step_waits, TAKEN, CUT + 1);
	tcase_add_loop_test(middle, test_given_back, 0, 2);
	tcase_add_loop_test(middle, test_taken, 0, 12);
	tcase_add_loop_test(middle, test_truncated, 0, 12);
	tcase_add_loop_test(middle, test_rewritten, 0, 4);
	tcase_add_loop_test(middle, test_destroyed, 0, 4);
	tcase_add_loop_test(middle, test_fenced, 0, 4);
	tcase_add_loop_test(middle, test_ended, 0, 2);
	tcase_add_loop_test(middle, test_pressure, 0, 8);
	suite_add_tcase(suite, middle);
}

int main(void)
{
	Suite *suite = suite_create("backup");

	support_both(suite, add_cases);
	return support_run(suite);
}
