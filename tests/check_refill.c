/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Refill: when history comes back, which and how much of it, when it is there, and that it
 * makes room for everything else at any moment. */
#include "support.h"

#define REQUIRED 5                        /* pages of the rig's sessions */
#define PAGE_BYTES (UINT64_C(4) * 64 * 3) /* of a page in all layers */
#define ROWS 41                           /* of a session with */
#define HISTORY 9                         /* pages of history */

static void open_refill(struct rig *rig, uint64_t seed, uint64_t link_bytes, uint32_t low,
                        uint32_t high)
{
	rig->seed = seed;
	rig->options.flags |= DHS_CONTEXT_REFILL;
	rig->options.link_bytes = link_bytes;
	rig->options.refill_low = low;
	rig->options.refill_high = high;
	rig_open(rig);
}

static void advance(struct rig *rig, uint32_t ticks)
{
	while (ticks--)
		ck_good(dhs_context_advance(rig->context));
}

static uint32_t coming(struct rig *rig)
{
	return rig_stats(rig).pages_coming;
}

static uint32_t resident(struct rig *rig, const struct history *history)
{
	return rig_info(rig, history->id).resident_pages;
}

/* A session with so many rows, its history on the host only. */
static void open_evicted(struct rig *rig, struct history *history, uint32_t rows)
{
	history_open(rig, history);
	history_prefill(rig, history, rows);
	ck_good(dhs_session_evict(rig->context, history->id, NULL));
	ck_assert_uint_eq(resident(rig, history), 0);
}

static dhs_stats waited(struct rig *rig)
{
	rig_sync(rig);
	ck_good(dhs_context_wait(rig->context));
	return rig_stats(rig);
}

/* Begins a step of the session; which of its pages are on the device, as bits. */
static uint64_t begin_map(struct turn *turn, struct table *table, struct history *history)
{
	dhs_batch_view view = DHS_INIT(dhs_batch_view);
	const int32_t *pages;
	uint64_t map = 0;

	ck_good(dhs_batch_get_view(table->batch, &view));
	turn_open(turn, table);
	turn_add(turn, history, 0, 1, 0);
	turn_begin(turn);
	rig_sync(table->rig);
	pages = view.page_table + (uint64_t)view.session_index[0] * view.page_stride;
	for (uint32_t p = 0; p < 64; p++)
		map |= (uint64_t)(pages[p] >= 0) << p;
	return map;
}

static void finish(struct turn *turn)
{
	turn_resolve_all(turn, turn_blank(turn));
	turn_end(turn);
}

static uint64_t map_of(struct table *table, struct history *history)
{
	struct turn turn;
	uint64_t map = begin_map(&turn, table, history);

	finish(&turn);
	return map;
}

static int all_resident(struct table *table)
{
	int all = 99;

	ck_good(dhs_step_all_resident(table->batch, &all));
	return all;
}

/* ---- landing -------------------------------------------------------------- */

#define ALL_PAGES UINT64_C(0x7ff)  /* of ROWS rows */
#define TAIL_PAGES UINT64_C(0x600) /* beyond HISTORY */

/* Pages of the second tick after are there, with their bytes. */
START_TEST(test_landing)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_stats before, after;

	rig_default(&rig);
	open_refill(&rig, (uint64_t)_i, 1 << 20, 0, 0);
	open_evicted(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	for (uint32_t tick = 1; tick <= 2; tick++) {
		advance(&rig, 1);
		ck_assert_uint_eq(coming(&rig), HISTORY);
		ck_assert_uint_eq(rig_stats(&rig).pages_resident, HISTORY);
		ck_assert_uint_eq(rig_stats(&rig).refill_bytes, HISTORY * PAGE_BYTES);
		ck_assert_uint_eq(rig_stats(&rig).refilled_pages, 0);
		ck_assert_uint_eq(resident(&rig, &history), 0);
		ck_assert_uint_eq(rig_info(&rig, history.id).host_only_rows, HISTORY * 4);
		ck_assert_uint_eq(map_of(&table, &history), TAIL_PAGES);
		ck_assert_int_eq(all_resident(&table), 0);
	}
	advance(&rig, 1);
	ck_assert_uint_eq(coming(&rig), 0);
	ck_assert_uint_eq(rig_stats(&rig).pages_resident, HISTORY);
	ck_assert_uint_eq(rig_stats(&rig).refilled_pages, HISTORY);
	ck_assert_uint_eq(rig_stats(&rig).ticks, 3);
	ck_assert_uint_eq(resident(&rig, &history), HISTORY);
	ck_assert_uint_eq(rig_info(&rig, history.id).device_rows, ROWS);
	before = waited(&rig);
	history_verify(&table, &history);
	ck_assert_int_eq(all_resident(&table), 1);
	after = waited(&rig);
	ck_assert_uint_eq(after.misses, before.misses);
	ck_assert_uint_eq(after.page_hits, before.page_hits + 2 * ROWS);
	ck_assert_uint_eq(map_of(&table, &history), ALL_PAGES);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* The session's begin, or an extension of it, waits for the copy. */
START_TEST(test_begin_waits)
{
	for (uint64_t seed = 1; seed <= support_times(40); seed++) {
		struct rig rig;
		struct history history;
		struct table table;

		rig_default(&rig);
		rig.options.backup = _i & 1 ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
		open_refill(&rig, seed, 1 << 20, 0, 0);
		open_evicted(&rig, &history, ROWS);
		table_open(&rig, &table, 1, 2, 16);
		advance(&rig, 3);
		if (_i & 2)
			history_prefill(&rig, &history, 3);
		history_verify(&table, &history);
		ck_assert_int_eq(all_resident(&table), 1);
		ck_assert_uint_eq(waited(&rig).misses, 0);
		table_close(&table);
		rig_close(&rig);
	}
}
END_TEST

/* Ticks beside a begun step and a stream that is captured: the step keeps its pages. */
START_TEST(test_beside_a_step)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	struct device_graph *graph = NULL;
	int32_t *rows;

	rig_default(&rig);
	open_refill(&rig, (uint64_t)_i, 1 << 20, 0, 0);
	open_evicted(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	ck_assert_uint_eq(begin_map(&turn, &table, &history), TAIL_PAGES);
	ck_good(device_capture_begin(&rig.device, rig.side));
	advance(&rig, 3);
	ck_good(device_capture_end(&rig.device, rig.side, &graph));
	ck_good(device_graph_destroy(&rig.device, graph));
	ck_assert_uint_eq(resident(&rig, &history), HISTORY);
	ck_assert_int_eq(all_resident(&table), 0);
	rows = turn_blank(&turn);
	for (int32_t i = 0; i < 8; i++)
		rows[i] = i;
	turn_resolve_all(&turn, rows);
	turn_end(&turn);
	ck_assert_uint_eq(waited(&rig).misses, 2 * 8);
	ck_assert_uint_eq(map_of(&table, &history), ALL_PAGES);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- how much ------------------------------------------------------------- */

static const struct {
	uint64_t link_bytes;
	uint32_t pages;
} links[] = {
	{ 0, 0 },
	{ 1, 0 },
	{ PAGE_BYTES - 1, 0 },
	{ PAGE_BYTES, 1 },
	{ 2 * PAGE_BYTES - 1, 1 },
	{ 2 * PAGE_BYTES, 2 },
	{ HISTORY * PAGE_BYTES, HISTORY },
	{ UINT64_MAX, HISTORY },
};

START_TEST(test_link)
{
	struct rig rig;
	struct history history;

	rig_default(&rig);
	open_refill(&rig, 0, links[_i].link_bytes, 0, 0);
	open_evicted(&rig, &history, ROWS);
	for (uint32_t tick = 1; tick <= 12; tick++) {
		uint32_t pages = tick * links[_i].pages;

		advance(&rig, 1);
		pages = pages < HISTORY ? pages : HISTORY;
		ck_assert_uint_eq(rig_stats(&rig).refill_bytes, pages * PAGE_BYTES);
		pages = tick > 2 ? (tick - 2) * links[_i].pages : 0;
		pages = pages < HISTORY ? pages : HISTORY;
		ck_assert_uint_eq(rig_stats(&rig).refilled_pages, pages);
	}
	rig_close(&rig);
}
END_TEST

/* Reads all rows, most of them from the host; bytes fetched. */
static uint64_t miss(struct table *table, struct history *history)
{
	history_verify(table, history);
	return (uint64_t)HISTORY * 4 * 3 * 64;
}

static const struct {
	int64_t more; /* link_bytes are the misses and these */
	uint32_t pages;
} shares[] = {
	{ -1, 0 },
	{ 0, 0 },
	{ 1, 0 },
	{ PAGE_BYTES - 1, 0 },
	{ PAGE_BYTES, 1 },
	{ 3 * PAGE_BYTES, 3 },
	{ -(int64_t)PAGE_BYTES * HISTORY, 0 },
};

/* Misses that are taken over since the last tick come first; then the link is free again. */
START_TEST(test_misses_come_first)
{
	struct rig rig;
	struct history history;
	struct table table;
	uint64_t link = (uint64_t)((int64_t)HISTORY * PAGE_BYTES + shares[_i].more), all, bytes;

	rig_default(&rig);
	open_refill(&rig, 0, link, 0, 0);
	open_evicted(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	bytes = miss(&table, &history);
	ck_assert_uint_eq(waited(&rig).fetched_bytes, bytes);
	advance(&rig, 1);
	ck_assert_uint_eq(coming(&rig), shares[_i].pages);
	advance(&rig, 1);
	all = shares[_i].pages + link / PAGE_BYTES;
	ck_assert_uint_eq(rig_stats(&rig).refill_bytes, (all < HISTORY ? all : HISTORY) * PAGE_BYTES);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* What a step fetches counts once it is taken over, however far the device is. */
START_TEST(test_misses_taken_over)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t rows[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };

	rig_default(&rig);
	open_refill(&rig, (uint64_t)_i, 2 * PAGE_BYTES, 0, 0);
	open_evicted(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	turn_one(&table, &history, 0, 0, rows, 1); /* two pages' bytes */
	if (_i % 2 == 0)
		rig_sync(&rig);
	advance(&rig, 1);
	ck_assert_uint_eq(coming(&rig), 2);
	waited(&rig);
	advance(&rig, 1);
	ck_assert_uint_eq(coming(&rig), 2);
	advance(&rig, 1);
	ck_assert_uint_eq(rig_stats(&rig).refill_bytes, 4 * PAGE_BYTES);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- when ----------------------------------------------------------------- */

#define FREE (64 - REQUIRED) /* with one session */

static const struct {
	uint32_t low, high, pages;
} waters[] = {
	{ 0, FREE, HISTORY },
	{ 0, FREE + 1, 0 },
	{ FREE, FREE, 0 },
	{ FREE - 1, FREE - 1, 1 },
	{ FREE - 1, FREE, 1 },
	{ FREE - 4, FREE, 4 },
	{ FREE - 4, FREE - 4, 4 },
	{ FREE - HISTORY, FREE, HISTORY },
	{ FREE - HISTORY + 1, FREE, HISTORY - 1 },
	{ FREE + 1, FREE + 1, 0 },
	{ UINT32_MAX, UINT32_MAX, 0 },
};

/* Slowly, and all at once. */
START_TEST(test_waters)
{
	for (uint64_t pages = 1; pages <= HISTORY; pages += HISTORY - 1) {
		struct rig rig;
		struct history history;

		rig_default(&rig);
		open_refill(&rig, 0, pages * PAGE_BYTES, waters[_i].low, waters[_i].high);
		open_evicted(&rig, &history, ROWS);
		advance(&rig, 14);
		ck_assert_uint_eq(rig_stats(&rig).refilled_pages, waters[_i].pages);
		ck_assert_uint_eq(rig_stats(&rig).pages_free, FREE - waters[_i].pages);
		rig_close(&rig);
	}
}
END_TEST

/* Below high it goes on, but does not begin again once no session lacks history. */
START_TEST(test_ends_when_whole)
{
	struct rig rig;
	struct history one, two;

	rig_default(&rig);
	open_refill(&rig, 0, 3 * PAGE_BYTES, 10, FREE);
	open_evicted(&rig, &one, ROWS);
	advance(&rig, _i == 0 ? 3 : 2); /* the third issues the last, and ends it */
	ck_assert_uint_eq(resident(&rig, &one) + coming(&rig), _i == 0 ? HISTORY : 6);
	open_evicted(&rig, &two, ROWS);
	advance(&rig, 7);
	ck_assert_uint_eq(resident(&rig, &two), _i == 0 ? 0 : HISTORY);
	history_close(&rig, &two);
	ck_good(dhs_session_evict(rig.context, one.id, NULL)); /* FREE again */
	advance(&rig, 3);
	ck_assert_uint_eq(resident(&rig, &one), 3);
	rig_close(&rig);
}
END_TEST

/* Where nothing is said: from two sessions' pages on, down to one's. */
START_TEST(test_defaults)
{
	for (uint32_t pages = 14; pages <= 15; pages++) {
		struct rig rig;
		struct history history;

		rig_default(&rig);
		rig.options.device_pages = pages;
		rig.options.refill_low = _i == 1 ? 6 : 0; /* high: as ever */
		rig.options.refill_high = _i == 2 ? 9 : 0;
		rig_open(&rig);
		open_evicted(&rig, &history, ROWS);
		advance(&rig, 1);
		ck_assert_uint_eq(coming(&rig),
		                  pages == 14 && _i != 2 ? 0 : pages - REQUIRED - (_i == 1 ? 6 : 5));
		rig_close(&rig);
	}
}
END_TEST

/* A low water above two sessions' pages is high water, too. */
START_TEST(test_default_high)
{
	struct rig rig;
	struct history history;

	rig_default(&rig);
	rig.options.refill_low = FREE - 3 + (uint32_t)_i * 4;
	rig_open(&rig);
	open_evicted(&rig, &history, ROWS);
	advance(&rig, 2);
	ck_assert_uint_eq(coming(&rig), _i == 0 ? 3 : 0);
	rig_close(&rig);
}
END_TEST

static const uint32_t others[] = { DHS_POLICY_FIXED, DHS_POLICY_FULL };

/* Of the other policies ticks are counted. */
START_TEST(test_other_policies)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_stats before, after;

	rig_default(&rig);
	rig.options.policy = others[_i];
	if (others[_i] == DHS_POLICY_FULL)
		rig.options.host_rows = 0;
	open_refill(&rig, 1, UINT64_MAX, 0, 0);
	open_evicted(&rig, &history, ROWS);
	before = rig_stats(&rig);
	advance(&rig, 4);
	after = rig_stats(&rig);
	ck_assert_uint_eq(after.ticks, 4);
	before.ticks = 4;
	ck_assert_mem_eq(&before, &after, sizeof(after));
	table_open(&rig, &table, 1, 1, 8);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- which ---------------------------------------------------------------- */

/* Lacking 9, 4, 4 and 3 pages; after so many ticks of a page each, they have: */
static const uint32_t lacking[] = { 41, 21, 21, 17 };
static const uint32_t turns[][5] = {
	{ 2, 0, 0, 0, 0 },  { 3, 0, 0, 0, 1 },  { 5, 0, 0, 0, 3 },  { 6, 0, 1, 0, 3 },
	{ 9, 0, 4, 0, 3 },  { 10, 0, 4, 1, 3 }, { 13, 0, 4, 4, 3 }, { 14, 1, 4, 4, 3 },
	{ 22, 9, 4, 4, 3 }, { 23, 9, 4, 4, 3 },
};

START_TEST(test_order_of_sessions)
{
	struct rig rig;
	struct history history[4];
	uint32_t ticks = 0;

	rig_default(&rig);
	open_refill(&rig, 0, PAGE_BYTES, 0, 0);
	for (uint32_t i = 0; i < 4; i++)
		open_evicted(&rig, &history[i], lacking[i]);
	for (uint32_t t = 0; t < COUNT_OF(turns); t++) {
		advance(&rig, turns[t][0] - ticks);
		ticks = turns[t][0];
		for (uint32_t i = 0; i < 4; i++)
			ck_assert_uint_eq(resident(&rig, &history[i]), turns[t][1 + i]);
	}
	rig_close(&rig);
}
END_TEST

/* In one tick the same; pages on their way are not lacking. */
START_TEST(test_order_in_a_tick)
{
	struct rig rig;
	struct history history[4];

	rig_default(&rig);
	open_refill(&rig, 0, 9 * PAGE_BYTES, 0, 0);
	for (uint32_t i = 0; i < 4; i++)
		open_evicted(&rig, &history[i], lacking[i]);
	advance(&rig, 2);
	ck_good(dhs_session_evict(rig.context, history[3].id, NULL)); /* lacks 3 again */
	ck_assert_uint_eq(coming(&rig), 15);
	advance(&rig, 1);
	ck_assert_uint_eq(resident(&rig, &history[1]), 4);
	ck_assert_uint_eq(resident(&rig, &history[2]), 2);
	ck_assert_uint_eq(resident(&rig, &history[3]), 0);
	advance(&rig, 2);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(resident(&rig, &history[i]), (lacking[i] - 4) / 4);
	rig_close(&rig);
}
END_TEST

/* The highest page first, also of those that age later and of those that were there. */
START_TEST(test_highest_page_first)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	open_refill(&rig, (uint64_t)_i, PAGE_BYTES, 0, 0);
	open_evicted(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	advance(&rig, 4);
	ck_assert_uint_eq(map_of(&table, &history), TAIL_PAGES | 0x180);
	history_prefill(&rig, &history, 8); /* 9 and 10 are history, on the device */
	ck_assert_uint_eq(resident(&rig, &history), 4);
	advance(&rig, 2);
	ck_assert_uint_eq(map_of(&table, &history), 0x1fe0);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	advance(&rig, 3);
	ck_assert_uint_eq(map_of(&table, &history), 0x1800 | 0x400);
	history_truncate(&rig, &history, 30);
	advance(&rig, 3);
	ck_assert_uint_eq(map_of(&table, &history) & 0x3f, 0x20);
	advance(&rig, 12);
	ck_assert_uint_eq(resident(&rig, &history), 6);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- called off ----------------------------------------------------------- */

/* Two sessions: the first's history is on its way, or has landed but not been used yet;
 * the second has 27 or 29 pages of history on the device, and two or no pages are free. */
struct way {
	struct rig rig;
	struct history one, two, other;
	struct table table;
	uint32_t free;
	uint32_t ticks; /* 1, 2: on its way; 3: landed */
	uint64_t evicted, backed_up;
};

static void way_open(struct way *w, uint64_t seed, int variant, uint32_t free, bool engine_pool)
{
	struct rig *rig = &w->rig;

	memset(w, 0, sizeof(*w));
	rig_default(rig);
	w->free = free;
	w->ticks = 1 + (uint32_t)variant % 3;
	rig->engine_pool = engine_pool;
	rig->options.backup = variant / 3 % 2 ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	rig->options.device_pages = 48 + (rig->engine_pool ? 1 : 0);
	open_refill(rig, seed, 1 << 20, 0, 0);
	history_open(rig, &w->one);
	history_prefill(rig, &w->one, ROWS);
	history_open(rig, &w->two);
	history_prefill(rig, &w->two, w->free == 2 ? 112 : 120);
	ck_good(dhs_session_evict(rig->context, w->one.id, NULL));
	advance(rig, w->ticks);
	ck_assert_uint_eq(coming(rig), w->ticks < 3 ? HISTORY : 0);
	ck_assert_uint_eq(rig_stats(rig).pages_free, w->free);
	w->evicted = rig_stats(rig).evicted_pages;
	w->backed_up = rig_stats(rig).backup_rows;
}

static bool on_its_way(const struct way *w)
{
	return w->ticks < 3;
}

/* Nothing comes any more; pages of sessions went only where none were on their way. */
static void called_off(struct way *w, bool evicted)
{
	dhs_stats stats = rig_stats(&w->rig);

	ck_assert_uint_eq(stats.pages_coming, 0);
	ck_assert_uint_eq(stats.refilled_pages, on_its_way(w) ? 0 : HISTORY);
	if (on_its_way(w)) {
		ck_assert_uint_eq(stats.evicted_pages, w->evicted);
		ck_assert_uint_eq(stats.backup_rows, w->backed_up);
	} else if (evicted) {
		ck_assert_uint_gt(stats.evicted_pages, w->evicted);
	}
}

/* The pages are used again at once: what the copies write then is in nobody's way. */
static void way_close(struct way *w)
{
	struct rig *rig = &w->rig;
	struct history more;
	uint32_t pages;

	if (!w->other.id)
		history_open(rig, &w->other);
	pages = rig_stats(rig).pages_free;
	history_prefill(rig, &w->other, 8 + 4 * (pages < 40 ? pages : 40));
	table_open(rig, &w->table, 1, 2, 16);
	history_verify(&w->table, &w->other);
	if (w->one.id)
		history_verify(&w->table, &w->one);
	history_verify(&w->table, &w->two);
	advance(rig, 4);
	if (w->one.id)
		history_verify(&w->table, &w->one);
	history_close(rig, &w->other);
	history_open(rig, &more);
	history_prefill(rig, &more, 60);
	history_verify(&w->table, &more);
	if (w->one.id)
		history_verify(&w->table, &w->one);
	waited(rig);
	table_close(&w->table);
	rig_close(rig);
}

typedef void way_fn(uint64_t seed, int variant);

/* On many schedules: what is not waited for is late on one of them. */
static void play(way_fn *body, int variant)
{
	uint32_t times = support_times(30);

	for (uint64_t seed = 0; seed < times; seed++)
		body(seed, variant);
}

static void by_truncate(uint64_t seed, int variant)
{
	static const uint32_t rows[] = { 0, 17, 30, 40, ROWS };
	struct way w;

	way_open(&w, seed, variant, 2, false);
	history_truncate(&w.rig, &w.one, rows[seed % COUNT_OF(rows)]);
	called_off(&w, false);
	way_close(&w);
}

/* Asks the fence of it, or uses the pages at once. */
static void by_evict(uint64_t seed, int variant)
{
	struct way w;
	dhs_fence fence = 99;
	int passed = 0;

	way_open(&w, seed, variant, 2, false);
	ck_good(dhs_session_evict(w.rig.context, w.one.id, seed % 3 ? NULL : &fence));
	called_off(&w, true);
	ck_assert_uint_eq(rig_stats(&w.rig).pages_free, 2 + HISTORY);
	ck_assert_uint_eq(rig_stats(&w.rig).backup_rows, w.backed_up);
	if (seed % 3 == 0) {
		ck_good(dhs_fence_wait(w.rig.context, fence, w.rig.side));
		ck_good(dhs_fence_sync(w.rig.context, fence));
		ck_good(dhs_fence_query(w.rig.context, fence, &passed));
		ck_assert_int_eq(passed, 1);
	}
	way_close(&w);
}

static void by_destroy(uint64_t seed, int variant)
{
	struct way w;

	way_open(&w, seed, variant, 2, false);
	history_close(&w.rig, &w.one);
	called_off(&w, false);
	way_close(&w);
}

static void by_create(uint64_t seed, int variant)
{
	struct way w;

	way_open(&w, seed, variant, 2, false);
	history_open(&w.rig, &w.other);
	called_off(&w, true);
	ck_assert_uint_eq(resident(&w.rig, &w.two), on_its_way(&w) ? 27 : 24);
	way_close(&w);
}

static void by_extend(uint64_t seed, int variant)
{
	struct way w;
	int32_t slots[24];

	way_open(&w, seed, variant, 2, false);
	ck_good(dhs_session_extend(w.rig.context, w.two.id, 24, w.rig.stream, slots));
	called_off(&w, true);
	ck_good(dhs_session_commit(w.rig.context, w.two.id, 0, w.rig.stream));
	way_close(&w);
}

static void by_batch(uint64_t seed, int variant)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_batch *batch = NULL;
	struct way w;

	way_open(&w, seed, variant, 2, false);
	options.max_sessions = 1;
	options.top_k = 32;
	options.staging_rows = 20;
	ck_good(dhs_batch_create(w.rig.context, &options, &batch));
	if (!rig_stages_behind(&w.rig))
		called_off(&w, true);
	else if (on_its_way(&w))
		ck_assert_uint_eq(coming(&w.rig), HISTORY);
	ck_good(dhs_batch_destroy(batch));
	way_close(&w);
}

/* The second session's page turns history, and it needs another one. */
static void by_aging(uint64_t seed, int variant)
{
	struct way w;

	way_open(&w, seed, variant, 0, false);
	history_prefill(&w.rig, &w.two, 4);
	called_off(&w, false);
	ck_assert_uint_eq(rig_stats(&w.rig).evicted_pages, w.evicted + !on_its_way(&w));
	ck_assert_uint_eq(resident(&w.rig, &w.two), 29 + on_its_way(&w));
	way_close(&w);
}

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

/* The engine has its pages once their fences have passed, and nobody else writes them. */
static void by_take(uint64_t seed, int variant)
{
	struct way w;
	int32_t pages[20];
	dhs_fence fences[20];
	size_t taken = 0;
	uint32_t more;

	way_open(&w, seed, variant, 2, true);
	more = on_its_way(&w) ? HISTORY : 0;
	ck_good(dhs_take_pages(w.rig.context, 2, pages, fences, &taken));
	ck_assert_uint_eq(taken, 2);
	ck_assert_uint_eq(coming(&w.rig), more);
	ck_good(dhs_take_pages(w.rig.context, more, pages + 2, fences + 2, &taken));
	ck_assert_uint_eq(taken, more);
	called_off(&w, false);
	for (uint32_t i = 0; i < 2 + more; i++)
		ck_good(dhs_fence_sync(w.rig.context, fences[i]));
	write_pages(&w.rig, pages, 2 + more);
	waited(&w.rig);
	check_pages(&w.rig, pages, 2 + more);
	ck_good(dhs_lend_pages(w.rig.context, pages, 2 + more, w.rig.side));
	way_close(&w);
}

static way_fn *const ways[] = { by_truncate, by_evict, by_destroy, by_create,
	                            by_extend,   by_batch, by_aging,   by_take };

/* Each way, before it lands and after it has, with either backup. */
START_TEST(test_called_off)
{
	play(ways[_i / 6], _i % 6);
}
END_TEST

/* The fence of an evict covers copies to the pages: then they are the next owner's. */
static void evict_fence(uint64_t seed, int variant)
{
	struct way w;
	int32_t pages[20];
	dhs_fence fence = 0, fences[20];
	size_t taken = 0;
	int passed = 0;

	way_open(&w, seed, variant, 2, true);
	ck_good(dhs_session_evict(w.rig.context, w.one.id, &fence));
	ck_good(dhs_take_pages(w.rig.context, 2 + HISTORY, pages, fences, &taken));
	ck_assert_uint_eq(taken, 2 + HISTORY);
	if (seed % 2)
		ck_good(dhs_fence_sync(w.rig.context, fence));
	while (!passed)
		ck_good(dhs_fence_query(w.rig.context, fence, &passed));
	write_pages(&w.rig, pages, taken);
	waited(&w.rig);
	check_pages(&w.rig, pages, taken);
	ck_good(dhs_lend_pages(w.rig.context, pages, taken, w.rig.side));
	way_close(&w);
}

START_TEST(test_evict_fence)
{
	play(evict_fence, _i);
}
END_TEST

/* A context's wait covers the copies of ticks: nobody writes the pages after it. */
START_TEST(test_wait_for_copies)
{
	for (uint64_t seed = 1; seed <= support_times(40); seed++) {
		struct way w;
		int32_t pages[20];
		dhs_fence fences[20];
		size_t taken = 0;

		way_open(&w, seed, _i, 2, true);
		waited(&w.rig);
		ck_good(dhs_session_truncate(w.rig.context, w.one.id, 0));
		w.one.rows = w.one.settled = 0;
		ck_good(dhs_take_pages(w.rig.context, rig_stats(&w.rig).pages_free, pages, fences, &taken));
		ck_assert_uint_ge(taken, 2 + HISTORY);
		write_pages(&w.rig, pages, taken);
		rig_sync(&w.rig);
		check_pages(&w.rig, pages, taken);
		ck_good(dhs_lend_pages(w.rig.context, pages, taken, w.rig.side));
		way_close(&w);
	}
}
END_TEST

/* What needs no room calls nothing off, nor does another session's end. */
START_TEST(test_not_called_off)
{
	struct way w;

	way_open(&w, 0, _i, 2, false);
	history_truncate(&w.rig, &w.two, 90);
	ck_good(dhs_session_evict(w.rig.context, w.two.id, NULL));
	ck_assert_uint_eq(coming(&w.rig), HISTORY);
	history_open(&w.rig, &w.other);
	history_prefill(&w.rig, &w.other, 20);
	ck_assert_uint_eq(coming(&w.rig), HISTORY);
	history_close(&w.rig, &w.two);
	ck_assert_uint_eq(coming(&w.rig), HISTORY);
	advance(&w.rig, 2);
	ck_assert_uint_eq(resident(&w.rig, &w.one), HISTORY);
	history_open(&w.rig, &w.two);
	way_close(&w);
}
END_TEST

/* Room that only pages on their way make is room; less than that calls nothing off. */
START_TEST(test_refused)
{
	struct rig rig;
	struct history one, two;
	int32_t slots[80];

	rig_default(&rig);
	rig.options.device_pages = 2 * REQUIRED + HISTORY;
	open_refill(&rig, 0, 1 << 20, 0, 0);
	open_evicted(&rig, &one, ROWS);
	history_open(&rig, &two);
	advance(&rig, 1);
	ck_assert_uint_eq(coming(&rig), HISTORY);
	ck_code(dhs_session_extend(rig.context, two.id, 4 * (3 + HISTORY + 1), rig.stream, slots),
	        DHS_ERR_DEVICE_MEMORY);
	ck_assert_uint_eq(coming(&rig), HISTORY);
	ck_good(dhs_session_extend(rig.context, two.id, 4 * (3 + HISTORY), rig.stream, slots));
	ck_assert_uint_eq(coming(&rig), 0);
	rig_close(&rig);
}
END_TEST

/* ---- backup --------------------------------------------------------------- */

/* A page that came back has its copy still; rows that are written again have not. */
START_TEST(test_not_copied_again)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	rig.options.backup = DHS_BACKUP_RECLAIM;
	open_refill(&rig, (uint64_t)_i, 1 << 20, 0, 0);
	open_evicted(&rig, &history, ROWS);
	table_open(&rig, &table, 1, 2, 8);
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, 4 * HISTORY);
	for (uint32_t ticks = 1; ticks <= 4; ticks++) {
		advance(&rig, ticks);
		if (ticks == 4)
			history_verify(&table, &history);
		ck_good(dhs_session_evict(rig.context, history.id, NULL));
		ck_assert_uint_eq(rig_stats(&rig).backup_rows, 4 * HISTORY);
	}
	advance(&rig, 3);
	history_truncate(&rig, &history, 30); /* in a page that came back */
	ck_assert_uint_eq(rig_stats(&rig).reload_rows, 0);
	history_prefill(&rig, &history, 11);
	ck_assert_uint_eq(rig_stats(&rig).reload_rows, 0);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, 4 * HISTORY + 6);
	history_verify(&table, &history);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* A backup and a refill of the same page in a row, either way around. */
static void back_and_forth(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	rig.options.backup = variant % 2 ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	open_refill(&rig, seed, 1 << 20, 0, 0);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 2, 8);
	for (uint32_t i = 0; i < 6; i++) {
		history_prefill(&rig, &history, 17);
		turn_one(&table, &history, 2, 2, NULL, 0);
		ck_good(dhs_session_evict(rig.context, history.id, NULL));
		advance(&rig, 1 + i % 4);
		turn_one(&table, &history, 2, 2, NULL, 0);
		advance(&rig, 3);
		history_truncate(&rig, &history, history.rows - i);
	}
	history_verify(&table, &history);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}

START_TEST(test_back_and_forth)
{
	play(back_and_forth, _i);
}
END_TEST

/* ---- failed sessions ------------------------------------------------------ */

/* Settles another number than the device kept. */
static void fail_session(struct rig *rig, struct table *table, struct history *history)
{
	struct turn turn;
	uint32_t kept = 2;

	turn_open(&turn, table);
	turn_add(&turn, history, 2, 0, 1);
	turn_begin(&turn);
	turn_write(&turn);
	turn_commit(&turn);
	ck_good(dhs_step_settle(rig->context, turn.step, &kept, 1));
	waited(rig);
	ck_code(dhs_session_evict(rig->context, history->id, NULL), DHS_ERR_MISMATCH);
}

/* It gets nothing more; what was on its way is in nobody's way. */
START_TEST(test_failed_session)
{
	struct rig rig;
	struct history one, two;
	struct table table;

	rig_default(&rig);
	open_refill(&rig, (uint64_t)_i, 4 * PAGE_BYTES, 0, 0);
	open_evicted(&rig, &one, ROWS);
	table_open(&rig, &table, 1, 1, 8);
	advance(&rig, 1 + (uint32_t)_i % 3);
	fail_session(&rig, &table, &one);
	open_evicted(&rig, &two, ROWS);
	advance(&rig, 6);
	ck_assert_uint_eq(resident(&rig, &two), HISTORY);
	ck_assert_uint_eq(rig_stats(&rig).refill_bytes,
	                  (HISTORY + (_i % 3 == 2 ? HISTORY : 4 * (1 + (uint64_t)_i % 3))) *
	                      PAGE_BYTES);
	if (_i >= 3)
		ck_good(dhs_session_evict(rig.context, two.id, NULL));
	advance(&rig, 1);
	history_close(&rig, &one);
	history_verify(&table, &two);
	history_close(&rig, &two);
	ck_assert_uint_eq(waited(&rig).pages_free,
	                  rig_stages_behind(&rig) ? 64 : 64 - rig_stats(&rig).pages_staging);
	table_close(&table);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

/* ---- the same calls ------------------------------------------------------- */

#define NOTES 20000

/* What two contexts must agree on, in the order in which it was seen. */
struct notes {
	int32_t note[NOTES];
	size_t count;
};

static void note(struct notes *notes, uint64_t what)
{
	ck_assert_uint_lt(notes->count, NOTES);
	notes->note[notes->count++] = (int32_t)what;
}

static void note_stats(struct rig *rig, struct notes *notes)
{
	dhs_stats stats = rig_stats(rig);

	note(notes, stats.pages_free);
	note(notes, stats.pages_draining);
	note(notes, stats.pages_resident);
	note(notes, stats.pages_coming);
	note(notes, stats.refilled_pages);
	note(notes, stats.evicted_pages);
}

/* A step of all three; the pages that they have in it. */
static void note_step(struct table *table, struct history *history, struct dice *dice,
                      struct notes *notes)
{
	dhs_batch_view view = DHS_INIT(dhs_batch_view);
	struct turn turn;

	ck_good(dhs_batch_get_view(table->batch, &view));
	turn_open(&turn, table);
	for (uint32_t i = 0; i < 3; i++)
		turn_add(&turn, &history[i], 2, 2, dice_below(dice, 3));
	turn_begin(&turn);
	rig_sync(table->rig);
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t p = 0; p < 30; p++)
			note(notes,
			     (uint32_t)view.page_table[(uint64_t)view.session_index[i] * view.page_stride + p]);
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, dice));
	turn_end(&turn);
}

static void play_notes(uint64_t seed, int number, struct notes *notes)
{
	struct rig rig;
	struct history history[3];
	struct table table;
	struct dice dice = { (uint64_t)number };

	memset(notes, 0, sizeof(*notes));
	rig_default(&rig);
	rig.options.device_pages = 44;
	rig.options.backup = number % 2 ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	open_refill(&rig, seed, 6 * PAGE_BYTES, 1, 4);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&rig, &history[i]);
	table_open(&rig, &table, 3, 2, 8);
	for (uint32_t i = 0; i < 120; i++) {
		struct history *h = &history[dice_below(&dice, 3)];

		if (h->rows < 100)
			history_prefill(&rig, h, dice_below(&dice, 20));
		if (dice_below(&dice, 12) == 0 || h->rows > 115)
			history_truncate(&rig, h, dice_below(&dice, (uint32_t)h->rows + 1));
		if (dice_below(&dice, 8) == 0)
			ck_good(dhs_session_evict(rig.context, h->id, NULL));
		advance(&rig, dice_below(&dice, 3));
		note_stats(&rig, notes);
		note_step(&table, history, &dice, notes);
	}
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&table, &history[i]);
	ck_assert_uint_gt(waited(&rig).refilled_pages, 0);
	table_close(&table);
	rig_close(&rig);
}

/* However late the device is, the same pages come back to the same places. */
START_TEST(test_same_pages)
{
	static struct notes first, then;

	play_notes(0, _i, &first);
	for (uint64_t seed = 1; seed < 4; seed++) {
		play_notes(seed, _i, &then);
		ck_assert_uint_eq(first.count, then.count);
		for (size_t i = 0; i < first.count; i++)
			ck_assert_msg(first.note[i] == then.note[i], "seed %u: note %zu is %d, not %d",
			              (unsigned)seed, i, then.note[i], first.note[i]);
	}
}
END_TEST

/* A context that ends while pages are on their way, or have landed. */
START_TEST(test_context_ends)
{
	struct rig rig;
	struct history history;

	rig_default(&rig);
	open_refill(&rig, 1 + (uint64_t)_i, PAGE_BYTES, 0, 0);
	open_evicted(&rig, &history, ROWS);
	advance(&rig, (uint32_t)_i % 5);
	rig_close(&rig);
}
END_TEST

/* ---- all ------------------------------------------------------------------ */

static void add_way_cases(Suite *suite, bool in_pool)
{
	TCase *off = support_case("called off", in_pool), *way = support_case("on its way", in_pool);

	tcase_set_timeout(off, support_seconds(60));
	tcase_add_loop_test(off, test_called_off, 0, 6 * (int)COUNT_OF(ways));
	tcase_add_loop_test(off, test_evict_fence, 0, 6);
	tcase_add_loop_test(off, test_wait_for_copies, 0, 6);
	tcase_add_loop_test(off, test_not_called_off, 0, 2);
	tcase_add_test(off, test_refused);
	suite_add_tcase(suite, off);
	tcase_set_timeout(way, support_seconds(60));
	tcase_add_loop_test(way, test_not_copied_again, 0, 10);
	tcase_add_loop_test(way, test_back_and_forth, 0, 2);
	tcase_add_loop_test(way, test_failed_session, 0, 6);
	tcase_add_loop_test(way, test_same_pages, 0, 6);
	tcase_add_loop_test(way, test_context_ends, 0, 10);
	suite_add_tcase(suite, way);
}

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *when = support_case("when", in_pool), *which = support_case("which", in_pool);

	tcase_set_timeout(when, support_seconds(60));
	tcase_add_loop_test(when, test_landing, 0, 5);
	tcase_add_loop_test(when, test_begin_waits, 0, 4);
	tcase_add_loop_test(when, test_beside_a_step, 0, 10);
	tcase_add_loop_test(when, test_waters, 0, COUNT_OF(waters));
	tcase_add_loop_test(when, test_ends_when_whole, 0, 2);
	tcase_add_loop_test(when, test_defaults, 0, 3);
	tcase_add_loop_test(when, test_default_high, 0, 2);
	tcase_add_loop_test(when, test_other_policies, 0, COUNT_OF(others));
	suite_add_tcase(suite, when);
	tcase_set_timeout(which, support_seconds(60));
	tcase_add_loop_test(which, test_link, 0, COUNT_OF(links));
	tcase_add_loop_test(which, test_misses_come_first, 0, COUNT_OF(shares));
	tcase_add_loop_test(which, test_misses_taken_over, 0, 8);
	tcase_add_test(which, test_order_of_sessions);
	tcase_add_test(which, test_order_in_a_tick);
	tcase_add_loop_test(which, test_highest_page_first, 0, 4);
	suite_add_tcase(suite, which);
	add_way_cases(suite, in_pool);
}

int main(void)
{
	Suite *suite = suite_create("refill");

	support_both(suite, add_cases);
	return support_run(suite);
}
