/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Elastic pages: when ticks give them, to whom and how many, what lies in them, who gives way
 * first, and the samples by which all of that is decided. */
#include "support.h"

#define REQUIRED 5 /* pages of the rig's sessions: hot cache */
#define HOT 8      /* places in two pages, and tail */
#define ROWS 41    /* of a session with */
#define HISTORY 9  /* pages of history */
#define PAGES 60

/* One group unless a case says otherwise, so that every step measures it; and no refill. */
struct scene {
	struct rig rig;
	struct table table;
	struct history history[4];
};

static void one_group(struct scene *s)
{
	s->rig.layout.groups = 1;
	s->rig.group_layers[0] = 3;
}

static void scene_default(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	rig_default(&s->rig);
	one_group(s);
	s->rig.options.device_pages = PAGES;
	s->rig.options.flags |= DHS_CONTEXT_REFILL;
	s->rig.options.refill_high = 1;
}

/* Twelve rows a query: more than the required places. */
static void scene_open(struct scene *s)
{
	rig_open(&s->rig);
	table_open(&s->rig, &s->table, 1, 1, 12);
}

static void scene_close(struct scene *s)
{
	rig_sync(&s->rig);
	ck_good(dhs_context_wait(s->rig.context));
	table_close(&s->table);
	rig_close(&s->rig);
}

static void tick(struct scene *s)
{
	ck_good(dhs_context_advance(s->rig.context));
}

static dhs_stats waited(struct scene *s)
{
	rig_sync(&s->rig);
	ck_good(dhs_context_wait(s->rig.context));
	return rig_stats(&s->rig);
}

static uint32_t elastic(struct scene *s, uint32_t i)
{
	return rig_info(&s->rig, s->history[i].id).elastic_pages;
}

static uint32_t resident(struct scene *s, uint32_t i)
{
	return rig_info(&s->rig, s->history[i].id).resident_pages;
}

/* Pages of staging, where it is in the pool: of four rows. */
static uint32_t staging(const struct scene *s)
{
	return rig_stages_behind(&s->rig) ? 0 : 1;
}

/* A session with ROWS rows, its history on the host only. */
static void enter(struct scene *s, uint32_t i)
{
	history_open(&s->rig, &s->history[i]);
	history_prefill(&s->rig, &s->history[i], ROWS);
	ck_good(dhs_session_evict(s->rig.context, s->history[i].id, NULL));
}

/* A step that selects these rows, as yet begun: rows first on, -1 behind them. */
static void look_begin(struct scene *s, struct turn *turn, uint32_t i, uint32_t first,
                       uint32_t rows)
{
	int32_t *all;

	turn_open(turn, &s->table);
	turn_add(turn, &s->history[i], 0, 1, 0);
	turn_begin(turn);
	all = turn_blank(turn);
	for (uint32_t r = 0; r < rows; r++)
		all[r] = (int32_t)(first + r);
	turn_resolve_all(turn, all);
}

/* What a step counts. */
struct seen {
	uint64_t hot_hits, misses;
};

/* The same, settled and taken over. */
static struct seen look(struct scene *s, uint32_t i, uint32_t first, uint32_t rows)
{
	dhs_stats before = waited(s), after;
	struct turn turn;

	look_begin(s, &turn, i, first, rows);
	turn_end(&turn);
	after = waited(s);
	return (struct seen){ after.hot_hits - before.hot_hits, after.misses - before.misses };
}

static void looks(struct scene *s, uint32_t i, uint32_t first, uint32_t rows, uint64_t hits)
{
	struct seen seen = look(s, i, first, rows);

	ck_assert_uint_eq(seen.hot_hits, hits);
	ck_assert_uint_eq(seen.misses, rows - hits);
}

/* The session wants elastic pages: its hot cache is full, and `hits` of its places were hit.
 * A page is worth hits / 2 misses a plan then: 4 * hits / HOT. */
static void measure(struct scene *s, uint32_t i, uint32_t hits)
{
	looks(s, i, 0, HOT, 0);
	looks(s, i, 0, hits, hits);
}

static void enter_measured(struct scene *s, uint32_t i, uint32_t hits)
{
	enter(s, i);
	measure(s, i, hits);
}

/* A page more is full, too, and every place of the first twelve is hit. */
static void measure_more(struct scene *s, uint32_t i)
{
	looks(s, i, HOT, 4, 0);
	looks(s, i, 0, 12, 12);
}

/* Session i has pages of an uncommitted extension, so many that `left` stay free. */
static void swallow(struct scene *s, uint32_t i, uint32_t left)
{
	static int32_t slots[4 * PAGES];

	history_open(&s->rig, &s->history[i]);
	ck_good(dhs_session_extend(s->rig.context, s->history[i].id,
	                           4 * (rig_stats(&s->rig).pages_free - left + REQUIRED - 2),
	                           s->rig.stream, slots));
	ck_assert_uint_eq(rig_stats(&s->rig).pages_free, left);
}

/* Session i has so much history on the device that `left` pages stay free. */
static void fill_up(struct scene *s, uint32_t i, uint32_t left)
{
	uint32_t pages;

	history_open(&s->rig, &s->history[i]);
	pages = rig_stats(&s->rig).pages_free - left;
	history_prefill(&s->rig, &s->history[i], 4 * pages + 4);
	ck_assert_uint_eq(resident(s, i), pages);
	ck_assert_uint_eq(rig_stats(&s->rig).pages_free, left);
}

/* ---- when they are given --------------------------------------------------- */

/* A portion, and no more before the next sample; then until there are as many as may be. */
START_TEST(test_given)
{
	struct scene s;
	dhs_stats before, after;

	scene_default(&s);
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	before = rig_stats(&s.rig);
	ck_assert_uint_eq(before.pages_elastic, 0);
	for (uint32_t i = 0; i < 3; i++)
		tick(&s);
	after = rig_stats(&s.rig);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(after.pages_elastic, 1);
	ck_assert_uint_eq(after.granted_pages, 1);
	ck_assert_uint_eq(after.pages_free, before.pages_free - 1);
	ck_assert_uint_eq(after.pages_required, before.pages_required);
	ck_assert_uint_eq(rig_info(&s.rig, s.history[0].id).required_pages, REQUIRED);
	looks(&s, 0, 0, HOT, HOT); /* four places are empty */
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	looks(&s, 0, 8, 4, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	looks(&s, 0, 0, 12, 12);
	for (uint32_t i = 0; i < 3; i++)
		tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 2);
	looks(&s, 0, 12, 4, 0);
	looks(&s, 0, 4, 12, 12);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 2); /* of 16 rows */
	ck_assert_uint_eq(rig_stats(&s.rig).granted_pages, 2);
	ck_assert_uint_eq(rig_stats(&s.rig).withdrawn_pages, 0);
	scene_close(&s);
}
END_TEST

/* So many places are empty at the last sample. */
START_TEST(test_full_hot_cache)
{
	struct scene s;
	uint32_t rows = HOT - (uint32_t)_i;

	scene_default(&s);
	scene_open(&s);
	enter(&s, 0);
	looks(&s, 0, 0, rows, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0); /* no hits so far */
	looks(&s, 0, 0, rows, rows);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), _i < 4);
	scene_close(&s);
}
END_TEST

static void never_measured(struct scene *s)
{
	enter(s, 0);
}

/* The sample is not taken over. */
static void not_known(struct scene *s)
{
	struct turn turn;

	enter(s, 0);
	looks(s, 0, 0, HOT, 0);
	look_begin(s, &turn, 0, 0, HOT);
	turn_end(&turn);
	rig_sync(&s->rig);
}

static void no_hits(struct scene *s)
{
	enter(s, 0);
	looks(s, 0, 0, HOT, 0);
	looks(s, 0, HOT, HOT, 0);
	looks(s, 0, 2 * HOT, HOT, 0);
}

/* All history is there, and was not when it was measured. */
static void whole(struct scene *s)
{
	enter_measured(s, 0, HOT);
	history_truncate(&s->rig, &s->history[0], 0);
	history_prefill(&s->rig, &s->history[0], ROWS);
	ck_assert_uint_eq(resident(s, 0), HISTORY);
}

static void suspended(struct scene *s)
{
	enter_measured(s, 0, HOT);
	ck_good(dhs_session_suspend(s->rig.context, s->history[0].id, NULL));
}

/* Settles another number than the device kept. */
static void failed(struct scene *s)
{
	struct turn turn;
	uint32_t kept = 2;

	enter_measured(s, 0, HOT);
	turn_open(&turn, &s->table);
	turn_add(&turn, &s->history[0], 2, 0, 1);
	turn_begin(&turn);
	turn_write(&turn);
	turn_commit(&turn);
	ck_good(dhs_step_settle(s->rig.context, turn.step, &kept, 1));
	waited(s);
	ck_code(dhs_session_evict(s->rig.context, s->history[0].id, NULL), DHS_ERR_MISMATCH);
}

/* Steps in which only another session stands. */
static void idle_steps(struct scene *s, uint32_t i, uint32_t steps)
{
	while (steps--) {
		struct turn turn;

		turn_open(&turn, &s->table);
		turn_add(&turn, &s->history[i], 0, 0, 0);
		turn_begin(&turn);
		turn_end(&turn);
	}
}

static void idle(struct scene *s)
{
	enter_measured(s, 0, HOT);
	history_open(&s->rig, &s->history[1]);
	idle_steps(s, 1, 64);
}

/* One step fewer, as an example that they are given here. */
static void not_idle(struct scene *s)
{
	enter_measured(s, 0, HOT);
	history_open(&s->rig, &s->history[1]);
	idle_steps(s, 1, 63);
}

static const struct {
	void (*play)(struct scene *s);
	uint32_t pages;
} states[] = {
	{ not_idle, 1 }, { never_measured, 0 }, { not_known, 0 }, { no_hits, 0 },
	{ whole, 0 },    { suspended, 0 },      { failed, 0 },    { idle, 0 },
};

START_TEST(test_who_wants)
{
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	states[_i].play(&s);
	tick(&s);
	ck_assert_uint_eq(rig_info(&s.rig, s.history[0].id).elastic_pages, states[_i].pages);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_elastic, states[_i].pages);
	scene_close(&s);
}
END_TEST

/* Places that are hit lie in the newest half, or also in the oldest eighth. */
START_TEST(test_edge)
{
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	enter(&s, 0);
	looks(&s, 0, 0, HOT, 0);
	for (uint32_t i = 0; i < 40; i++)
		looks(&s, 0, 0, 4, 4);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	looks(&s, 0, 0, 4 + (uint32_t)_i, 4 + (uint64_t)_i);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), _i != 0);
	scene_close(&s);
}
END_TEST

#define FREE (PAGES - REQUIRED) /* with one session, and staging behind the pool */

static const struct {
	uint32_t low, high, pages; /* the first two are below the free pages */
} waters[] = {
	{ 2, 0, 1 }, { 1, 0, 1 }, { 0, 0, 0 }, { 1, 1, 1 }, { 5, 5, 1 },
};

START_TEST(test_waters)
{
	struct scene s;
	uint32_t free;

	scene_default(&s);
	free = FREE - staging(&s);
	s.rig.options.refill_low = free - waters[_i].low;
	s.rig.options.refill_high = free - waters[_i].high;
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_free, free);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), waters[_i].pages);
	scene_close(&s);
}
END_TEST

/* Below high water filling does not begin, but goes on. */
START_TEST(test_goes_on)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.refill_high = FREE - staging(&s);
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_lt(rig_stats(&s.rig).pages_free, s.rig.options.refill_high);
	measure_more(&s, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 2);
	scene_close(&s);
}
END_TEST

/* It ends where nobody lacks history. */
START_TEST(test_ends)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.refill_high = FREE - staging(&s);
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	tick(&s);
	ck_good(dhs_session_suspend(s.rig.context, s.history[0].id, NULL));
	if (_i)
		tick(&s); /* still fills: all is free */
	history_open(&s.rig, &s.history[1]);
	tick(&s); /* nobody lacks any */
	ck_good(dhs_session_resume(s.rig.context, s.history[0].id));
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	scene_close(&s);
}
END_TEST

/* Also where misses take all of the link: then pages move. */
START_TEST(test_no_link)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.link_bytes = (uint64_t)_i;
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	fill_up(&s, 1, 1);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_free, 0);
	measure_more(&s, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 2);
	ck_assert_uint_eq(rig_stats(&s.rig).evicted_pages, HISTORY + 1);
	scene_close(&s);
}
END_TEST

/* ---- to whom, and how many ------------------------------------------------- */

static const struct {
	uint32_t hits[3]; /* a session's page is worth half of that */
	uint32_t first, then;
} worths[] = {
	{ { 3, 7, 5 }, 1, 2 }, { { 7, 3, 5 }, 0, 2 }, { { 3, 5, 7 }, 2, 1 },
	{ { 5, 5, 5 }, 0, 1 }, { { 3, 5, 5 }, 1, 2 }, { { 5, 3, 5 }, 0, 2 },
};

/* Two pages are to be had: those to whom they are worth most get them, the lower index first. */
START_TEST(test_most_worth)
{
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	for (uint32_t i = 0; i < 3; i++)
		enter_measured(&s, i, worths[_i].hits[i]);
	swallow(&s, 3, 1);
	tick(&s);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(elastic(&s, i), i == worths[_i].first);
	ck_good(dhs_session_truncate(s.rig.context, s.history[3].id, 0));
	ck_good(dhs_session_destroy(s.rig.context, s.history[3].id));
	swallow(&s, 3, 1);
	tick(&s);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(elastic(&s, i), i == worths[_i].first || i == worths[_i].then);
	scene_close(&s);
}
END_TEST

#define LARGE 64 /* required places: 16 pages */

static void large_looks(struct scene *s, uint32_t first, uint32_t rows, uint64_t hits)
{
	struct turn turn;
	dhs_stats before = waited(s);

	look_begin(s, &turn, 0, first, rows);
	turn_end(&turn);
	ck_assert_uint_eq(waited(s).hot_hits, before.hot_hits + hits);
}

static const struct {
	uint32_t more; /* places */
	uint32_t left; /* free pages */
	uint32_t first, then;
} portions[] = {
	{ 64, 9, 2, 4 }, { 64, 1, 1, 1 }, { 64, 3, 2, 3 },
	{ 12, 9, 2, 3 }, { 7, 9, 1, 1 },  { 3, 9, 0, 0 },
};

/* An eighth of the required pages at a time. */
START_TEST(test_portion)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.hot_rows = LARGE;
	s.rig.options.max_hot_rows = LARGE + portions[_i].more;
	s.rig.options.device_pages = 16 + 3 + 22 + portions[_i].left;
	s.rig.options.refill_low = 22;
	s.rig.options.refill_high = 22;
	rig_open(&s.rig);
	table_open(&s.rig, &s.table, 1, 1, LARGE);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], 88);
	ck_good(dhs_session_evict(s.rig.context, s.history[0].id, NULL));
	large_looks(&s, 0, LARGE, 0);
	large_looks(&s, 0, LARGE, LARGE);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), portions[_i].first);
	large_looks(&s, LARGE, 4 * portions[_i].first, 0);
	large_looks(&s, 0, LARGE, LARGE);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), portions[_i].then);
	ck_assert_uint_eq(rig_stats(&s.rig).granted_pages, portions[_i].then);
	scene_close(&s);
}
END_TEST

/* ---- or history ------------------------------------------------------------ */

/* A session that lacks four pages of its history and misses eight rows in each plan.  With the
 * nine that the other lacks, which has missed eight once, a page is worth 0.56 misses a plan. */
static void enter_short(struct scene *s, uint32_t i)
{
	history_open(&s->rig, &s->history[i]);
	history_prefill(&s->rig, &s->history[i], 20);
	ck_good(dhs_session_evict(s->rig.context, s->history[i].id, NULL));
	for (uint32_t n = 0; n < 12; n++)
		looks(s, i, n % 2 * 8, 8, 0);
}

/* History of an idle session goes before any other; without one the most of it does. */
START_TEST(test_idle_gives_first)
{
	struct scene s;
	dhs_session fifth;

	scene_default(&s);
	s.rig.options.max_sessions = 5;
	scene_open(&s);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], ROWS);
	history_open(&s.rig, &s.history[1]);
	history_prefill(&s.rig, &s.history[1], 21);
	enter_short(&s, 2);
	idle_steps(&s, 0, _i ? 63 - 12 : 64 - 12);
	swallow(&s, 3, 0);
	ck_assert_uint_eq(resident(&s, 1), 4);
	ck_good(dhs_session_create(s.rig.context, NULL, &fifth));
	ck_assert_uint_eq(resident(&s, 1), _i ? 4 : 0);
	ck_assert_uint_eq(resident(&s, 0), HISTORY - (_i ? REQUIRED : REQUIRED - 4));
	scene_close(&s);
}
END_TEST

/* Elastic pages are given where they are worth more than the page that would come instead. */
START_TEST(test_or_history)
{
	for (uint32_t hits = 1; hits <= 3; hits++) {
		struct scene s;

		scene_default(&s);
		s.rig.options.link_bytes = _i ? 1 << 20 : 0;
		scene_open(&s);
		enter_measured(&s, 0, hits);
		enter_short(&s, 1);
		swallow(&s, 2, 1);
		tick(&s);
		ck_assert_uint_eq(elastic(&s, 0), hits > 1);
		ck_assert_uint_eq(rig_stats(&s.rig).pages_coming, _i && hits == 1);
		scene_close(&s);
	}
}
END_TEST

/* Elastic pages first, then history with the rest. */
START_TEST(test_then_history)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.link_bytes = 1 << 20;
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	enter(&s, 1);
	swallow(&s, 2, 5);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_coming, 4);
	tick(&s);
	tick(&s);
	ck_assert_uint_eq(resident(&s, 0), 4);
	scene_close(&s);
}
END_TEST

#define NO_HISTORY (uint32_t) DHS_CONTEXT_NO_HISTORY

/* History leaves the device as it ages, and none comes back. */
START_TEST(test_no_history)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.flags |= NO_HISTORY;
	s.rig.options.link_bytes = 1 << 20;
	s.rig.options.backup = _i ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	scene_open(&s);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], ROWS);
	ck_assert_uint_eq(resident(&s, 0), 0);
	measure(&s, 0, HOT);
	for (uint32_t i = 0; i < 3; i++)
		tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	measure_more(&s, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 2);
	ck_assert_uint_eq(resident(&s, 0), 0);
	ck_assert_uint_eq(rig_stats(&s.rig).refill_bytes, 0);
	ck_assert_uint_eq(rig_stats(&s.rig).evicted_pages, 0);
	history_verify(&s.table, &s.history[0]);
	scene_close(&s);
}
END_TEST

static const struct {
	uint32_t policy, max_hot_rows, pages;
} others[] = {
	{ DHS_POLICY_ADAPTIVE, 0, 1 },   { DHS_POLICY_ADAPTIVE, HOT, 0 },
	{ DHS_POLICY_ADAPTIVE, 11, 0 },  { DHS_POLICY_ADAPTIVE, 12, 1 },
	{ DHS_POLICY_FIXED, 0, 0 },      { DHS_POLICY_FIXED, HOT, 0 },
	{ DHS_POLICY_ADAPTIVE, 300, 1 },
};

/* Who may have none gets none. */
START_TEST(test_most)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.policy = others[_i].policy;
	s.rig.options.max_hot_rows = others[_i].max_hot_rows;
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), others[_i].pages);
	ck_assert_uint_eq(rig_stats(&s.rig).granted_pages, others[_i].pages);
	ck_assert_uint_eq(rig_stats(&s.rig).ticks, 1);
	scene_close(&s);
}
END_TEST

/* Nothing is measured under full. */
START_TEST(test_full)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.policy = DHS_POLICY_FULL;
	s.rig.options.host_rows = 0;
	scene_open(&s);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], ROWS);
	looks(&s, 0, 0, 0, 0);
	history_verify(&s.table, &s.history[0]);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	ck_assert_uint_eq(rig_stats(&s.rig).granted_pages, 0);
	scene_close(&s);
}
END_TEST

static dhs_required required_of(uint32_t hot_rows, uint32_t max_hot_rows, uint32_t policy)
{
	dhs_required r = DHS_INIT(dhs_required);
	struct scene s;

	scene_default(&s);
	s.rig.options.policy = policy;
	s.rig.options.hot_rows = hot_rows;
	s.rig.options.max_hot_rows = max_hot_rows;
	s.rig.options.device_pages = 20000;
	ck_good(dhs_context_required(&s.rig.options, &r));
	rig_forget(&s.rig);
	return r;
}

static const struct {
	uint32_t policy, hot_rows, max_hot_rows;
} defaults[] = {
	{ DHS_POLICY_ADAPTIVE, 8, 16 },        { DHS_POLICY_ADAPTIVE, 4096, 8192 },
	{ DHS_POLICY_ADAPTIVE, 16383, 32766 }, { DHS_POLICY_ADAPTIVE, 16384, 32767 },
	{ DHS_POLICY_ADAPTIVE, 32767, 32767 }, { DHS_POLICY_FIXED, 4096, 4096 },
};

/* Where nothing is said: twice the places, but never more than 32,767. */
START_TEST(test_defaults)
{
	uint32_t hot_rows = defaults[_i].hot_rows, most = defaults[_i].max_hot_rows;
	dhs_required unsaid = required_of(hot_rows, 0, defaults[_i].policy);
	dhs_required said = required_of(hot_rows, most, defaults[_i].policy);

	ck_assert_mem_eq(&unsaid, &said, sizeof(said));
	if (most / 4 == hot_rows / 4)
		return;
	said = required_of(hot_rows, most - 4, defaults[_i].policy);
	ck_assert_uint_lt(said.device_bytes, unsaid.device_bytes);
	ck_assert_uint_eq(said.session_pages, unsaid.session_pages);
}
END_TEST

/* What is computed is what is allocated. */
START_TEST(test_required)
{
	static const uint32_t most[] = { 8, 11, 12, 16, 100, 3000, 32767 };
	dhs_required r = DHS_INIT(dhs_required);
	struct scene s;

	scene_default(&s);
	s.rig.options.max_hot_rows = most[_i];
	scene_open(&s);
	ck_good(dhs_context_required(&s.rig.options, &r));
	table_close(&s.table);
	ck_assert_uint_eq(s.rig.memory.bytes[DHS_MEMORY_HOST], r.host_bytes);
	ck_assert_uint_eq(s.rig.memory.bytes[DHS_MEMORY_DEVICE],
	                  r.device_bytes - (rig_stages_behind(&s.rig) ? r.pool_bytes : 0));
	ck_assert_uint_eq(r.session_pages, REQUIRED);
	table_open(&s.rig, &s.table, 1, 1, 12);
	rig_works(&s.rig);
	scene_close(&s);
}
END_TEST

/* ---- what lies in them ----------------------------------------------------- */

#define ODD 9 /* required places, in three pages */

/* Rows first on of the session are found in places; where. */
static void slots_of(struct scene *s, uint32_t group, uint32_t first, uint32_t rows, int32_t *slots)
{
	struct turn turn;

	look_begin(s, &turn, 0, first, rows);
	turn_end(&turn);
	rig_sync(&s->rig);
	memcpy(slots, turn.slots[group], rows * sizeof(*slots));
}

/* All places are behind those of the required pages, in a page for four of them. */
static void check_slots(const int32_t *slots, uint32_t places)
{
	int32_t page[8];
	uint32_t pages = 0;

	for (uint32_t i = 0; i < places; i++) {
		uint32_t offset = i < ODD ? i % 4 : (i - ODD) % 4;

		if (offset == 0)
			page[pages++] = slots[i] / 4;
		ck_assert_int_eq(slots[i], page[pages - 1] * 4 + (int32_t)offset);
	}
	for (uint32_t i = 0; i < pages; i++)
		for (uint32_t j = 0; j < i; j++)
			ck_assert_int_ne(page[i], page[j]);
}

/* Elastic places are behind the required ones, four a page, in all groups alike; rows are found
 * there with their bytes, which turns check. */
START_TEST(test_places)
{
	int32_t slots[2][ODD + 8];
	struct scene s;

	scene_default(&s);
	if (_i) {
		s.rig.layout.groups = 2;
		s.rig.group_layers[0] = 1;
		s.rig.group_layers[1] = 2;
	}
	s.rig.options.hot_rows = ODD;
	s.rig.options.max_hot_rows = ODD + 11;
	rig_open(&s.rig);
	table_open(&s.rig, &s.table, 1, 1, ODD + 8);
	enter(&s, 0);
	look(&s, 0, 0, ODD);
	for (uint32_t pages = 1; pages <= 2; pages++) {
		for (uint32_t i = 0; i < 2; i++)
			look(&s, 0, 0, ODD + 4 * pages - 4);
		tick(&s);
		ck_assert_uint_eq(elastic(&s, 0), pages);
		look(&s, 0, ODD + 4 * pages - 4, 4);
	}
	ck_assert_uint_eq(look(&s, 0, 0, ODD + 8).hot_hits, (ODD + 8) * (uint64_t)(1 + _i));
	for (uint32_t g = 0; g <= (uint32_t)_i; g++) {
		slots_of(&s, g, 0, ODD + 8, slots[g]);
		check_slots(slots[g], ODD + 8);
	}
	ck_assert_mem_eq(slots[0], slots[_i], sizeof(slots[0]));
	history_verify(&s.table, &s.history[0]);
	scene_close(&s);
}
END_TEST

/* With two elastic pages: rows 0 to 15 are in its places, in this order. */
static void enter_grown(struct scene *s, uint32_t i)
{
	enter_measured(s, i, HOT);
	tick(s);
	measure_more(s, i);
	tick(s);
	ck_assert_uint_eq(elastic(s, i), 2);
	looks(s, i, 12, 4, 0);
	looks(s, i, 4, 12, 12);
}

/* What lay in pages that are gone is missed; what lay elsewhere is hit. */
START_TEST(test_withdrawn)
{
	struct scene s;
	dhs_fence fence = 0;

	scene_default(&s);
	scene_open(&s);
	enter_grown(&s, 0);
	ck_good(dhs_session_evict(s.rig.context, s.history[0].id, &fence));
	ck_assert_uint_eq(elastic(&s, 0), 0);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_elastic, 0);
	ck_assert_uint_eq(rig_stats(&s.rig).withdrawn_pages, 2);
	ck_assert_uint_eq(rig_stats(&s.rig).evicted_pages, HISTORY); /* by enter */
	if (_i == 1)
		tick(&s); /* one comes back before the device knows, as a new one */
	ck_assert_uint_eq(elastic(&s, 0), (uint32_t)_i);
	looks(&s, 0, 0, HOT, HOT);
	looks(&s, 0, 12, 4, 0);
	if (_i == 1)
		looks(&s, 0, 0, HOT, HOT); /* they took the places that are new */
	looks(&s, 0, 8, 4, 0);
	history_verify(&s.table, &s.history[0]);
	scene_close(&s);
}
END_TEST

/* Of two pages the last one goes first, and what lies in the other stays. */
START_TEST(test_last_goes_first)
{
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	enter_grown(&s, 0);
	swallow(&s, 1, REQUIRED - 1);
	history_open(&s.rig, &s.history[2]);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	looks(&s, 0, 0, 12, 12);
	looks(&s, 0, 12, 4, 0);
	scene_close(&s);
}
END_TEST

/* With evict, suspend, destroy and a truncate, which takes none. */
START_TEST(test_given_back)
{
	struct scene s;
	dhs_stats before, after;
	uint32_t pages = _i == 1 ? REQUIRED + 2 : _i == 2 ? REQUIRED + 2 : _i == 3 ? 0 : 2;

	scene_default(&s);
	scene_open(&s);
	enter_grown(&s, 0);
	before = waited(&s);
	switch (_i) {
	case 0:
		ck_good(dhs_session_evict(s.rig.context, s.history[0].id, NULL));
		break;
	case 1:
		ck_good(dhs_session_suspend(s.rig.context, s.history[0].id, NULL));
		break;
	case 2:
		ck_good(dhs_session_destroy(s.rig.context, s.history[0].id));
		break;
	default:
		history_truncate(&s.rig, &s.history[0], 30);
	}
	after = rig_stats(&s.rig);
	ck_assert_uint_eq(after.pages_free, before.pages_free + pages);
	ck_assert_uint_eq(after.pages_elastic, _i == 3 ? 2 : 0);
	ck_assert_uint_eq(after.withdrawn_pages, _i < 2 ? 2 : 0);
	ck_assert_uint_eq(after.granted_pages, 2);
	if (_i == 1) {
		ck_good(dhs_session_resume(s.rig.context, s.history[0].id));
		ck_assert_uint_eq(elastic(&s, 0), 0);
		looks(&s, 0, 0, HOT, HOT);
		looks(&s, 0, 8, 4, 0);
	}
	if (_i != 2)
		history_verify(&s.table, &s.history[0]);
	scene_close(&s);
}
END_TEST

/* The next session of the index has none of it. */
START_TEST(test_next_session)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.max_sessions = 1;
	scene_open(&s);
	enter_grown(&s, 0);
	history_close(&s.rig, &s.history[0]);
	enter(&s, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0); /* not measured */
	looks(&s, 0, 0, 12, 0);
	looks(&s, 0, 0, 8, 8);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	looks(&s, 0, 20, 4, 0);
	looks(&s, 0, 0, 8, 8);
	scene_close(&s);
}
END_TEST

/* Places that are gone do not stay in the way of what resume brings, nor of those that come. */
START_TEST(test_after_resume)
{
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	enter_grown(&s, 0);
	ck_good(dhs_session_suspend(s.rig.context, s.history[0].id, NULL));
	ck_good(dhs_session_resume(s.rig.context, s.history[0].id));
	if (_i)
		tick(&s); /* it was full when it was measured */
	ck_assert_uint_eq(elastic(&s, 0), (uint32_t)_i);
	looks(&s, 0, 0, HOT, HOT);
	looks(&s, 0, 8, 4, 0);
	if (_i)
		looks(&s, 0, 0, 12, 12);
	ck_assert_uint_eq(waited(&s).warmed_rows, HOT);
	scene_close(&s);
}
END_TEST

/* ---- pages that drain ------------------------------------------------------ */

/* A second session reads its history, which is all that could be free, in a step of another
 * batch; the first one gets a page of it. */
struct draining {
	struct scene s;
	struct table other;
	struct turn turn;
};

static void drain_open(struct draining *d)
{
	scene_default(&d->s);
	d->s.rig.options.max_sessions = 6;
	scene_open(&d->s);
	table_open(&d->s.rig, &d->other, 1, 1, 12);
	enter_measured(&d->s, 0, HOT);
	history_open(&d->s.rig, &d->s.history[2]);
	fill_up(&d->s, 1, 0);
	turn_open(&d->turn, &d->other);
	turn_add(&d->turn, &d->s.history[1], 0, 1, 0);
	turn_begin(&d->turn);
	tick(&d->s);
	ck_assert_uint_eq(elastic(&d->s, 0), 1);
	ck_assert_uint_eq(rig_stats(&d->s.rig).pages_free, 0);
	ck_assert_uint_eq(rig_stats(&d->s.rig).pages_draining, 0);
}

static void drain_end(struct draining *d)
{
	turn_resolve_all(&d->turn, turn_blank(&d->turn));
	turn_end(&d->turn);
}

static void drain_close(struct draining *d)
{
	table_close(&d->other);
	scene_close(&d->s);
}

/* It is used once the step is recorded, and no begin is told to wait for it. */
START_TEST(test_draining)
{
	struct draining d;
	struct turn turn;

	drain_open(&d);
	look_begin(&d.s, &turn, 0, 8, 4);
	drain_end(&d);
	turn_end(&turn);
	waited(&d.s);
	looks(&d.s, 0, 4, 8, 8); /* not used: rows 0 to 3 went */
	looks(&d.s, 0, 0, 4, 0);
	looks(&d.s, 0, 0, 12, 12);
	history_verify(&d.s.table, &d.s.history[0]);
	history_verify(&d.s.table, &d.s.history[1]);
	drain_close(&d);
}
END_TEST

/* One that was never used drains on when it is given back. */
START_TEST(test_drains_on)
{
	struct draining d;

	drain_open(&d);
	ck_good(dhs_session_evict(d.s.rig.context, d.s.history[0].id, NULL));
	ck_assert_uint_eq(rig_stats(&d.s.rig).pages_draining, 1);
	drain_end(&d);
	ck_assert_uint_eq(rig_stats(&d.s.rig).pages_draining, 0);
	ck_assert_uint_eq(rig_stats(&d.s.rig).pages_free, 1);
	drain_close(&d);
}
END_TEST

/* What cannot wait for a step does not count on it. */
START_TEST(test_no_room)
{
	struct draining d;
	int32_t slots[64];
	uint32_t rows = 4 * (REQUIRED - 2) + 4; /* a page more than it has */

	drain_open(&d);
	if (_i)
		ck_code(dhs_session_suspend(d.s.rig.context, d.s.history[0].id, NULL), DHS_ERR_PENDING);
	ck_code(dhs_session_extend(d.s.rig.context, d.s.history[2].id, rows, d.s.rig.stream, slots),
	        DHS_ERR_PENDING);
	ck_assert_uint_eq(elastic(&d.s, 0), 1);
	drain_end(&d);
	ck_good(dhs_session_extend(d.s.rig.context, d.s.history[2].id, rows, d.s.rig.stream, slots));
	ck_assert_uint_eq(elastic(&d.s, 0), 1); /* the page that drained, or history, is worth less */
	ck_good(dhs_session_commit(d.s.rig.context, d.s.history[2].id, 0, d.s.rig.stream));
	drain_close(&d);
}
END_TEST

/* ---- all ------------------------------------------------------------------ */

static void add_place_cases(Suite *suite, bool in_pool)
{
	TCase *places = support_case("places", in_pool), *drain = support_case("draining", in_pool);

	tcase_set_timeout(places, support_seconds(60));
	tcase_add_loop_test(places, test_places, 0, 2);
	tcase_add_loop_test(places, test_withdrawn, 0, 2);
	tcase_add_test(places, test_last_goes_first);
	tcase_add_loop_test(places, test_given_back, 0, 4);
	tcase_add_test(places, test_next_session);
	tcase_add_loop_test(places, test_after_resume, 0, 2);
	suite_add_tcase(suite, places);
	tcase_set_timeout(drain, support_seconds(60));
	tcase_add_test(drain, test_draining);
	tcase_add_test(drain, test_drains_on);
	tcase_add_loop_test(drain, test_no_room, 0, 2);
	suite_add_tcase(suite, drain);
}

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *when = support_case("when", in_pool), *whom = support_case("whom", in_pool);

	tcase_set_timeout(when, support_seconds(60));
	tcase_add_test(when, test_given);
	tcase_add_loop_test(when, test_full_hot_cache, 0, 6);
	tcase_add_loop_test(when, test_who_wants, 0, COUNT_OF(states));
	tcase_add_loop_test(when, test_edge, 0, 2);
	tcase_add_loop_test(when, test_waters, 0, COUNT_OF(waters));
	tcase_add_test(when, test_goes_on);
	tcase_add_loop_test(when, test_ends, 0, 2);
	tcase_add_loop_test(when, test_no_link, 0, 2);
	suite_add_tcase(suite, when);
	tcase_set_timeout(whom, support_seconds(60));
	tcase_add_loop_test(whom, test_most_worth, 0, COUNT_OF(worths));
	tcase_add_loop_test(whom, test_portion, 0, COUNT_OF(portions));
	tcase_add_loop_test(whom, test_or_history, 0, 2);
	tcase_add_loop_test(whom, test_idle_gives_first, 0, 2);
	tcase_add_test(whom, test_then_history);
	tcase_add_loop_test(whom, test_no_history, 0, 2);
	tcase_add_loop_test(whom, test_most, 0, COUNT_OF(others));
	tcase_add_test(whom, test_full);
	tcase_add_loop_test(whom, test_defaults, 0, COUNT_OF(defaults));
	tcase_add_loop_test(whom, test_required, 0, 7);
	suite_add_tcase(suite, whom);
	add_place_cases(suite, in_pool);
}

int main(void)
{
	Suite *suite = suite_create("elastic");

	support_both(suite, add_cases);
	return support_run(suite);
}
