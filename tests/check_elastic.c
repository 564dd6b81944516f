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
	struct history history[8];
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
	int32_t slots[256];

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

/* What a suspended session missed does not count: its ten pages would make the others' worth less
 * than the elastic one. */
START_TEST(test_suspended_does_not_count)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.link_bytes = 1 << 20;
	scene_open(&s);
	enter(&s, 3);
	looks(&s, 3, 0, 4, 0);
	ck_good(dhs_session_suspend(s.rig.context, s.history[3].id, NULL));
	enter_measured(&s, 0, 1);
	enter_short(&s, 1);
	swallow(&s, 2, 1);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_coming, 1);
	scene_close(&s);
}
END_TEST

/* An elastic page that is worth less than history usually is stays where history of an idle session
 * can go. */
START_TEST(test_idle_before_elastic)
{
	struct scene s;
	dhs_session fifth;

	scene_default(&s);
	s.rig.options.max_sessions = 5;
	scene_open(&s);
	history_open(&s.rig, &s.history[2]);
	history_prefill(&s.rig, &s.history[2], 21);
	enter_measured(&s, 0, 1);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	enter_short(&s, 1);
	idle_steps(&s, 0, 64);
	swallow(&s, 3, 1);
	ck_assert_uint_eq(resident(&s, 2), 4);
	ck_good(dhs_session_create(s.rig.context, NULL, &fifth));
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(resident(&s, 2), 0);
	scene_close(&s);
}
END_TEST

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

/* ---- who gives first ------------------------------------------------------- */

/* Session i has `absent` pages of history on the host and as many on the device as are
 * `present`, and missed so many rows in a plan. */
struct past {
	uint32_t absent, present, misses;
};

static void enter_past(struct scene *s, uint32_t i, const struct past *p)
{
	history_open(&s->rig, &s->history[i]);
	if (p->absent == 0 && p->misses) {
		history_prefill(&s->rig, &s->history[i], 40);
		ck_good(dhs_session_evict(s->rig.context, s->history[i].id, NULL));
		looks(s, i, 0, p->misses, 0);
		history_truncate(&s->rig, &s->history[i], 0);
	}
	if (p->absent) {
		history_prefill(&s->rig, &s->history[i], 4 * p->absent + 4);
		ck_good(dhs_session_evict(s->rig.context, s->history[i].id, NULL));
		if (p->misses)
			looks(s, i, 0, p->misses, 0);
	}
	history_prefill(&s->rig, &s->history[i], 4 * p->present + (p->absent ? 0 : 4));
	ck_assert_uint_eq(resident(s, i), p->present);
}

static int by_create(struct scene *s, uint32_t pages)
{
	(void)pages;
	history_open(&s->rig, &s->history[4]);
	return 0;
}

static int by_extend(struct scene *s, uint32_t pages)
{
	int32_t slots[4 * REQUIRED + 64];

	ck_good(dhs_session_extend(s->rig.context, s->history[3].id, 4 * (REQUIRED - 2 + pages),
	                           s->rig.stream, slots));
	return 0;
}

static int by_resume(struct scene *s, uint32_t pages)
{
	(void)pages;
	ck_good(dhs_session_resume(s->rig.context, s->history[3].id));
	return 0;
}

/* Staging of so many pages more, in the pool. */
static int by_batch(struct scene *s, uint32_t pages)
{
	struct table table;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	options.max_sessions = 1;
	options.top_k = 12;
	options.staging_rows = 4 * pages;
	table_open_options(&s->rig, &table, &options);
	return rig_stages_behind(&s->rig);
}

static int by_take(struct scene *s, uint32_t pages)
{
	int32_t page[REQUIRED];
	dhs_fence fence[REQUIRED];
	size_t taken;

	ck_good(dhs_take_pages(s->rig.context, pages, page, fence, &taken));
	ck_assert_uint_eq(taken, pages);
	return 0;
}

/* Takes REQUIRED pages, or so many; 1: of other memory. */
typedef int take_fn(struct scene *s, uint32_t pages);

static take_fn *const takers[] = { by_create, by_extend, by_resume, by_batch, by_take };

/* Three sessions with an elastic page each; a page is worth hits / 2 misses there. */
static void enter_three(struct scene *s, const uint32_t *hits)
{
	for (uint32_t i = 0; i < 3; i++)
		enter_measured(s, i, hits[i]);
	tick(s);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(elastic(s, i), 1);
}

static const uint32_t givers[][3] = {
	{ 3, 7, 5 }, { 1, 3, 2 }, { 2, 1, 1 }, { 1, 1, 1 }, { 5, 5, 2 }
};

/* Page n of those that are given, from 0 on, is an elastic one of which session?  3: two pages of
 * history are, which is worth less here. */
static uint32_t giver(const uint32_t *hits, uint32_t n)
{
	if (n < 2)
		return 3;
	n -= 2;
	for (uint32_t worth = 1; worth <= HOT; worth++)
		for (uint32_t i = 0; i < 3; i++)
			if (hits[i] == worth && !n--)
				return i;
	return 3;
}

/* Whoever needs pages: what is worth least goes first, one by one. */
static void check_givers(take_fn *take, const uint32_t *hits, uint32_t pages)
{
	static const struct past past = { 1, 2, 4 };
	struct scene s;
	dhs_stats before, after;
	uint32_t gives[4] = { 0 };

	scene_default(&s);
	s.rig.options.max_sessions = 8;
	s.rig.engine_pool = take == by_take;
	scene_open(&s);
	enter_three(&s, hits);
	if (take == by_extend || take == by_resume)
		history_open(&s.rig, &s.history[3]);
	if (take == by_resume)
		ck_good(dhs_session_suspend(s.rig.context, s.history[3].id, NULL));
	enter_past(&s, 5, &past);
	swallow(&s, 6, take == by_create || take == by_resume ? REQUIRED - pages : 0);
	before = waited(&s);
	if (take(&s, pages))
		pages = 0;
	after = waited(&s);
	for (uint32_t n = 0; n < pages; n++)
		gives[giver(hits, n)]++;
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(elastic(&s, i), 1 - gives[i]);
	ck_assert_uint_eq(resident(&s, 5), 2 - gives[3]);
	ck_assert_uint_eq(after.withdrawn_pages, before.withdrawn_pages + pages - gives[3]);
	ck_assert_uint_eq(after.evicted_pages, before.evicted_pages + gives[3]);
	scene_close(&s);
}

START_TEST(test_who_gives)
{
	for (uint32_t pages = 1; pages <= REQUIRED; pages++)
		check_givers(takers[_i % 5], givers[_i / 5], pages);
}
END_TEST

/* Admission says beforehand what create takes. */
START_TEST(test_admission)
{
	dhs_admission a = DHS_INIT(dhs_admission);
	struct scene s;

	scene_default(&s);
	s.rig.options.max_sessions = 6;
	scene_open(&s);
	enter_three(&s, givers[0]);
	fill_up(&s, 5, 3 - (uint32_t)_i);
	ck_good(dhs_session_admission(s.rig.context, NULL, &a));
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_AFTER);
	ck_assert_uint_eq(a.pages_optional, 3 + resident(&s, 5));
	ck_assert_uint_eq(a.evicted_pages, 2 + (uint32_t)_i);
	ck_assert_uint_eq(a.pending_pages, 0);
	scene_close(&s);
}
END_TEST

/* ---- whose history --------------------------------------------------------- */

/* All is worth as much, whatever its session misses: the most pages, then the lower index. */
static const struct {
	struct past past[3];
	uint32_t order[2]; /* the first two that give */
} pasts[] = {
	{ { { 9, 3, 8 }, { 9, 3, 4 }, { 9, 4, 6 } }, { 2, 0 } },
	{ { { 4, 3, 4 }, { 4, 4, 4 }, { 4, 3, 4 } }, { 1, 0 } },
	{ { { 0, 2, 0 }, { 0, 4, 0 }, { 2, 3, 1 } }, { 1, 2 } },
	{ { { 9, 3, 0 }, { 0, 2, 8 }, { 1, 3, 4 } }, { 0, 2 } },
	{ { { 9, 3, 8 }, { 0, 20, 0 }, { 9, 3, 4 } }, { 1, 0 } },
};

/* Of the first all, and one of the next. */
START_TEST(test_whose_history)
{
	uint32_t row = (uint32_t)_i / 5, first = pasts[row].order[0], then = pasts[row].order[1];
	take_fn *take = takers[_i % 5];
	uint32_t pages = pasts[row].past[first].present + 1, taken = pages;
	struct scene s;

	if (pages > REQUIRED)
		pages = taken = REQUIRED;
	scene_default(&s);
	s.rig.options.max_sessions = 6;
	s.rig.options.device_pages = 80;
	s.rig.options.refill_high = UINT32_MAX;
	s.rig.engine_pool = take == by_take;
	scene_open(&s);
	for (uint32_t i = 0; i < 3; i++)
		enter_past(&s, i, &pasts[row].past[i]);
	if (take == by_extend || take == by_resume)
		history_open(&s.rig, &s.history[3]);
	if (take == by_resume)
		ck_good(dhs_session_suspend(s.rig.context, s.history[3].id, NULL));
	swallow(&s, 5, take == by_create || take == by_resume ? REQUIRED - pages : 0);
	if (take(&s, pages))
		taken = 0;
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t gives = 0, all = pasts[row].past[first].present;

		if (i == first)
			gives = taken < all ? taken : all;
		if (i == then && taken > all)
			gives = taken - all;
		ck_assert_uint_eq(resident(&s, i), pasts[row].past[i].present - gives);
	}
	scene_close(&s);
}
END_TEST

/* ---- from where they are worth less ---------------------------------------- */

static const struct {
	uint32_t hits; /* of the session that wants: a page is worth half of that */
	bool dear;     /* a page of history is worth 0.56, else 0.1 */
	uint32_t moves;
} halves[] = {
	{ 1, true, 0 }, { 2, true, 0 }, { 3, true, 1 }, { 8, true, 1 }, { 1, false, 1 },
};

/* A page of history moves where it is worth more than twice as much, the lowest first. */
START_TEST(test_history_moves)
{
	static const struct past cheap = { 4, 3, 0 };
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	enter(&s, 0);
	if (halves[_i].dear) {
		enter_short(&s, 1);
		history_prefill(&s.rig, &s.history[1], 12);
	} else {
		enter_past(&s, 1, &cheap);
	}
	ck_assert_uint_eq(resident(&s, 1), 3);
	swallow(&s, 2, 0);
	measure(&s, 0, halves[_i].hits);
	for (uint32_t i = 0; i < 4; i++)
		tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), halves[_i].moves);
	ck_assert_uint_eq(resident(&s, 1), 3 - halves[_i].moves);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_free, 0);
	ck_assert_uint_eq(look(&s, 1, 16, 4).misses, 4 * halves[_i].moves);
	ck_assert_uint_eq(look(&s, 1, 20, 8).misses, 0);
	scene_close(&s);
}
END_TEST

static const struct {
	uint32_t from, to; /* hits */
	uint32_t moves;
} moved[] = {
	{ 4, 8, 0 }, { 3, 8, 1 }, { 2, 4, 0 }, { 2, 5, 1 }, { 1, 2, 0 }, { 1, 3, 1 }, { 8, 8, 0 },
};

/* So does an elastic page, and does not come back. */
START_TEST(test_elastic_moves)
{
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	enter_measured(&s, 0, moved[_i].from);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	enter(&s, 1);
	swallow(&s, 2, 0);
	measure(&s, 1, moved[_i].to);
	for (uint32_t i = 0; i < 4; i++)
		tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1 - moved[_i].moves);
	ck_assert_uint_eq(elastic(&s, 1), moved[_i].moves);
	ck_assert_uint_eq(rig_stats(&s.rig).withdrawn_pages, moved[_i].moves);
	ck_assert_uint_eq(rig_stats(&s.rig).granted_pages, 1 + moved[_i].moves);
	scene_close(&s);
}
END_TEST

/* History goes first, also that of the session itself, and elastic pages stay. */
START_TEST(test_moves_first)
{
	static const struct past cheap = { 9, 2, 0 };
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	enter_measured(&s, 0, 1); /* 1/2 */
	tick(&s);
	enter(&s, 1);
	if (_i)
		history_prefill(&s.rig, &s.history[1], 8);
	else
		enter_past(&s, 2, &cheap);
	swallow(&s, 3, 0);
	measure(&s, 1, HOT);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 1), 1);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(resident(&s, _i ? 1 : 2), 1);
	scene_close(&s);
}
END_TEST

/* As many as a portion, if there are so many. */
START_TEST(test_portion_moves)
{
	struct scene s;
	struct past past = { 9, 1 + (uint32_t)_i, 0 };
	uint32_t pages = past.present < 2 ? past.present : 2;

	scene_default(&s);
	s.rig.options.hot_rows = LARGE;
	s.rig.options.device_pages = 2 * 19 + 22 + past.present;
	s.rig.options.refill_high = UINT32_MAX;
	rig_open(&s.rig);
	table_open(&s.rig, &s.table, 1, 1, LARGE);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], 88);
	ck_good(dhs_session_evict(s.rig.context, s.history[0].id, NULL));
	enter_past(&s, 1, &past);
	large_looks(&s, 0, LARGE, 0);
	large_looks(&s, 0, LARGE, LARGE);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), pages);
	ck_assert_uint_eq(resident(&s, 1), past.present - pages);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), pages);
	scene_close(&s);
}
END_TEST

/* ---- idle sessions --------------------------------------------------------- */

/* Session 0 has elastic pages and history, session 1 lacks history if `lacks`, nothing is free. */
static void idle_open(struct scene *s, bool lacks)
{
	scene_default(s);
	s->rig.options.max_sessions = 6;
	scene_open(s);
	enter_grown(s, 0);
	history_prefill(&s->rig, &s->history[0], 8);
	ck_assert_uint_eq(resident(s, 0), 2);
	if (lacks)
		enter(s, 1);
	else
		history_open(&s->rig, &s->history[1]);
	swallow(s, 2, 0);
}

static void keeps(struct scene *s, bool all)
{
	tick(s);
	ck_assert_uint_eq(elastic(s, 0), all ? 2 : 0);
	ck_assert_uint_eq(resident(s, 0), all ? 2 : 0);
}

/* After 64 steps without it a session gives all back, but only where another lacks history. */
START_TEST(test_idle)
{
	struct scene s;

	idle_open(&s, _i == 0);
	idle_steps(&s, 1, 63);
	keeps(&s, true);
	idle_steps(&s, 1, 1);
	keeps(&s, _i != 0);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_free, _i == 0 ? 4 : 0);
	scene_close(&s);
}
END_TEST

/* Nor while there are pages to be given. */
START_TEST(test_idle_while_filling)
{
	struct scene s;

	scene_default(&s);
	scene_open(&s);
	enter_grown(&s, 0);
	enter(&s, 1);
	idle_steps(&s, 1, 64);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 2);
	swallow(&s, 2, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	scene_close(&s);
}
END_TEST

/* Nor for the history of one that is idle itself, suspended, or has none any more. */
START_TEST(test_idle_for_nobody)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.max_sessions = 6;
	scene_open(&s);
	enter_grown(&s, 0);
	history_prefill(&s.rig, &s.history[0], 8);
	enter(&s, 1);
	history_open(&s.rig, &s.history[3]);
	swallow(&s, 2, 0);
	idle_steps(&s, 3, 40);
	if (_i == 1)
		ck_good(dhs_session_suspend(s.rig.context, s.history[1].id, NULL));
	if (_i == 2)
		history_truncate(&s.rig, &s.history[1], 4);
	idle_steps(&s, 3, 30);
	keeps(&s, true);
	scene_close(&s);
}
END_TEST

static void use_step(struct scene *s, struct history *h)
{
	struct turn turn;

	turn_open(&turn, &s->table);
	turn_add(&turn, h, 0, 0, 0);
	turn_begin(&turn);
	turn_end(&turn);
}

static void use_extend(struct scene *s, struct history *h)
{
	int32_t slots[4];

	ck_good(dhs_session_extend(s->rig.context, h->id, 1, s->rig.stream, slots));
}

static void use_extend_commit(struct scene *s, struct history *h)
{
	use_extend(s, h);
	ck_good(dhs_session_commit(s->rig.context, h->id, 0, s->rig.stream));
}

static void use_none(struct scene *s, struct history *h)
{
	history_truncate(&s->rig, h, h->rows - 1);
	rig_info(&s->rig, h->id);
}

static void (*const uses[])(struct scene *s, struct history *h) = { use_none, use_step, use_extend,
	                                                                use_extend_commit };

/* A step, an extension and a commit are uses of a session; a truncate is none. */
START_TEST(test_use)
{
	struct scene s;

	idle_open(&s, true);
	idle_steps(&s, 1, 63);
	uses[_i](&s, &s.history[0]);
	idle_steps(&s, 1, 63);
	keeps(&s, _i != 0);
	idle_steps(&s, 1, 1);
	keeps(&s, false);
	scene_close(&s);
}
END_TEST

/* A commit is a use though the extension was one. */
START_TEST(test_commit_is_use)
{
	struct scene s;

	idle_open(&s, true);
	use_extend(&s, &s.history[0]);
	idle_steps(&s, 1, 63);
	ck_good(dhs_session_commit(s.rig.context, s.history[0].id, 0, s.rig.stream));
	idle_steps(&s, 1, 63);
	keeps(&s, true);
	idle_steps(&s, 1, 1);
	keeps(&s, false);
	scene_close(&s);
}
END_TEST

/* One idle session in a tick, that of the lowest index; a failed one, too. */
START_TEST(test_one_a_tick)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.max_sessions = 6;
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	enter_measured(&s, 1, 1);
	tick(&s);
	enter(&s, 2);
	swallow(&s, 3, 0);
	idle_steps(&s, 2, 64);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	ck_assert_uint_eq(elastic(&s, 1), 1);
	ck_good(dhs_session_destroy(s.rig.context, s.history[3].id));
	swallow(&s, 3, 0);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 1), 0);
	ck_assert_uint_eq(rig_stats(&s.rig).withdrawn_pages, 2);
	scene_close(&s);
}
END_TEST

/* Create and resume are uses: what waited long comes back with its history lacking, and is
 * served. */
START_TEST(test_fresh_is_not_idle)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.max_sessions = 6;
	s.rig.options.link_bytes = 1 << 20;
	scene_open(&s);
	history_open(&s.rig, &s.history[1]);
	idle_steps(&s, 1, 70);
	enter(&s, 0);
	if (_i) {
		ck_good(dhs_session_suspend(s.rig.context, s.history[0].id, NULL));
		idle_steps(&s, 1, 70);
		ck_good(dhs_session_resume(s.rig.context, s.history[0].id));
	}
	idle_steps(&s, 1, 63);
	for (uint32_t i = 0; i < 3; i++)
		tick(&s);
	ck_assert_uint_eq(resident(&s, 0), HISTORY);
	scene_close(&s);
}
END_TEST

/* What is idle is worth nothing, and so moves to anybody, also where no history is kept. */
START_TEST(test_idle_worth_nothing)
{
	struct scene s;

	scene_default(&s);
	s.rig.options.max_sessions = 6;
	s.rig.options.flags |= NO_HISTORY;
	scene_open(&s);
	enter_measured(&s, 0, HOT);
	tick(&s);
	enter(&s, 1);
	swallow(&s, 3, 0);
	measure(&s, 1, 1);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(elastic(&s, 1), 0);
	idle_steps(&s, 1, 64);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	ck_assert_uint_eq(elastic(&s, 1), 1);
	scene_close(&s);
}
END_TEST

/* ---- samples --------------------------------------------------------------- */

/* Rows first on in group g, nothing in the other. */
static void look_group(struct scene *s, uint32_t g, uint32_t first, uint32_t rows)
{
	struct turn turn;
	int32_t *all;

	turn_open(&turn, &s->table);
	turn_add(&turn, &s->history[0], 0, 1, 0);
	turn_begin(&turn);
	all = turn_blank(&turn);
	turn_resolve(&turn, !g, all);
	for (uint32_t r = 0; r < rows; r++)
		all[r] = (int32_t)(first + r);
	turn_resolve(&turn, g, all);
	turn_end(&turn);
	waited(s);
}

/* Step n measures group n mod groups, and no other. */
START_TEST(test_turns)
{
	struct scene s;

	scene_default(&s);
	s.rig.layout.groups = 2;
	s.rig.group_layers[0] = 1;
	s.rig.group_layers[1] = 2;
	scene_open(&s);
	enter(&s, 0);
	for (uint32_t step = 1; step <= 3; step++) {
		look_group(&s, (uint32_t)_i, 0, HOT);
		tick(&s);
		ck_assert_uint_eq(elastic(&s, 0), step >= 2 + (uint32_t)_i);
	}
	scene_close(&s);
}
END_TEST

/* A step in which the group is planned twice: the last plan counts. */
START_TEST(test_last_plan)
{
	struct scene s;
	struct turn turn;
	int32_t *hits, *others;

	scene_default(&s);
	scene_open(&s);
	enter(&s, 0);
	looks(&s, 0, 0, HOT, 0);
	turn_open(&turn, &s.table);
	turn_add(&turn, &s.history[0], 0, 1, 0);
	turn_begin(&turn);
	hits = turn_blank(&turn);
	others = turn_blank(&turn);
	for (int32_t r = 0; r < HOT; r++)
		hits[r] = r;
	others[0] = 20;
	turn_resolve(&turn, 0, _i ? hits : others);
	turn_resolve(&turn, 0, _i ? others : hits);
	turn_end(&turn);
	waited(&s);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), !_i);
	scene_close(&s);
}
END_TEST

/* Of a plan that finds all in pages, or nothing, or has no queries, nothing is known of places. */
START_TEST(test_not_looked)
{
	struct scene s;
	struct turn turn;
	int32_t *rows;

	scene_default(&s);
	scene_open(&s);
	enter(&s, 0);
	looks(&s, 0, 0, HOT, 0);
	looks(&s, 0, 0, 2, 2); /* a page is worth 1 */
	for (uint32_t step = 0; step < 40; step++) {
		turn_open(&turn, &s.table);
		turn_add(&turn, &s.history[0], 0, _i != 2, 0);
		turn_begin(&turn);
		rows = turn_blank(&turn);
		if (_i == 0)
			rows[3] = ROWS - 1;
		turn_resolve_all(&turn, rows);
		turn_end(&turn);
	}
	waited(&s);
	enter_measured(&s, 1, 1); /* 1/2 */
	swallow(&s, 2, 1);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(elastic(&s, 1), 0);
	scene_close(&s);
}
END_TEST

/* Misses are weighed by all plans with queries: they fade with plans that find all in pages. */
START_TEST(test_misses_fade)
{
	struct scene s;
	struct turn turn;

	scene_default(&s);
	scene_open(&s);
	enter_measured(&s, 0, 1); /* 1/2 */
	enter_short(&s, 1);       /* 0.56 */
	for (uint32_t step = 0; step < 2; step++) {
		turn_open(&turn, &s.table);
		turn_add(&turn, &s.history[1], 0, (uint32_t)_i, 0);
		turn_begin(&turn);
		turn_resolve_all(&turn, turn_blank(&turn));
		turn_end(&turn);
	}
	waited(&s);
	swallow(&s, 2, 1);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), (uint32_t)_i);
	scene_close(&s);
}
END_TEST

/* An aborted step leaves its sample, and so does one whose part a truncate cancelled. */
START_TEST(test_aborted)
{
	struct scene s;
	struct turn turn;

	scene_default(&s);
	scene_open(&s);
	enter(&s, 0);
	looks(&s, 0, 0, HOT, 0);
	look_begin(&s, &turn, 0, 0, HOT);
	if (_i == 0) {
		turn_abort(&turn);
	} else {
		history_truncate(&s.rig, &s.history[0], ROWS - 1);
		turn.entry[0].cancelled = true;
		turn_end(&turn);
	}
	waited(&s);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	scene_close(&s);
}
END_TEST

/* A session does not get what one before it at the same index left. */
START_TEST(test_sample_of_another)
{
	struct scene s;
	struct turn turn;

	scene_default(&s);
	s.rig.options.max_sessions = 1;
	scene_open(&s);
	enter(&s, 0);
	looks(&s, 0, 0, HOT, 0);
	look_begin(&s, &turn, 0, 0, HOT);
	turn_end(&turn);
	history_close(&s.rig, &s.history[0]);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], ROWS);
	ck_good(dhs_session_evict(s.rig.context, s.history[0].id, NULL));
	waited(&s);
	tick(&s);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	scene_close(&s);
}
END_TEST

/* Plans of a replayed graph leave samples, each of its own step. */
START_TEST(test_replayed)
{
	struct scene s;
	struct device_graph *graph = NULL;
	dhs_selection selection = DHS_INIT(dhs_selection);
	int32_t *rows;

	scene_default(&s);
	scene_open(&s);
	enter(&s, 0);
	rows = rig_keep(&s.rig, 12 * sizeof(*rows));
	selection.rows = rows;
	selection.slots = rig_keep(&s.rig, 12 * sizeof(*rows));
	for (int32_t r = 0; r < 12; r++)
		rows[r] = r < HOT ? r : -1;
	ck_good(device_capture_begin(&s.rig.device, s.rig.stream));
	ck_good(dhs_step_resolve(s.table.batch, 0, &selection, s.rig.stream));
	ck_good(device_capture_end(&s.rig.device, s.rig.stream, &graph));
	for (uint32_t step = 1; step <= 2; step++) {
		struct turn turn;

		turn_open(&turn, &s.table);
		turn_add(&turn, &s.history[0], 0, 1, 0);
		turn_begin(&turn);
		ck_good(device_graph_launch(&s.rig.device, graph, s.rig.stream));
		turn_end(&turn);
		waited(&s);
		tick(&s);
		ck_assert_uint_eq(elastic(&s, 0), step - 1);
	}
	ck_good(device_graph_destroy(&s.rig.device, graph));
	scene_close(&s);
}
END_TEST

/* ---- fences ---------------------------------------------------------------- */

/* What evict gives back is free once the step that reads it has ended. */
START_TEST(test_evict_fence)
{
	struct scene s;
	struct turn turn;
	dhs_fence fence = 0;
	int passed = 1;

	scene_default(&s);
	scene_open(&s);
	enter_grown(&s, 0);
	look_begin(&s, &turn, 0, 0, 12);
	ck_good(dhs_session_evict(s.rig.context, s.history[0].id, &fence));
	ck_assert_uint_ne(fence, 0);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_draining, 2);
	ck_code(dhs_fence_query(s.rig.context, fence, &passed), DHS_ERR_PENDING);
	turn_end(&turn);
	ck_assert_uint_eq(rig_stats(&s.rig).pages_draining, 0);
	ck_good(dhs_fence_sync(s.rig.context, fence));
	fence = 0;
	ck_good(dhs_session_evict(s.rig.context, s.history[0].id, &fence));
	ck_assert_uint_eq(fence, 0); /* nothing was taken */
	looks(&s, 0, 8, 4, 0);
	scene_close(&s);
}
END_TEST

#define MARK 0xffff

/* A page that an engine takes is its own once its fence has passed: the step that reads the
 * rows there has them to its end, and nobody writes it afterwards. */
START_TEST(test_taken)
{
	struct scene s;
	struct turn turn;
	int32_t pages[PAGES];
	dhs_fence fences[PAGES];
	size_t taken;
	int passed = 1;

	scene_default(&s);
	s.rig.seed = (uint64_t)_i;
	s.rig.engine_pool = true;
	scene_open(&s);
	enter_grown(&s, 0);
	ck_good(dhs_take_pages(s.rig.context, rig_stats(&s.rig).pages_free, pages, fences, &taken));
	look_begin(&s, &turn, 0, 4, 12);
	ck_good(dhs_take_pages(s.rig.context, 2, pages, fences, &taken));
	ck_assert_uint_eq(taken, 2);
	ck_assert_uint_eq(elastic(&s, 0), 0);
	for (uint32_t i = 0; i < 2; i++)
		ck_code(dhs_fence_query(s.rig.context, fences[i], &passed), DHS_ERR_PENDING);
	turn_end(&turn);
	for (uint32_t i = 0; i < 2; i++)
		ck_good(dhs_fence_sync(s.rig.context, fences[i]));
	for (int32_t i = 0; i < 8; i++)
		stamp_write(&s.rig, pages[i / 4] * 4 + i % 4, MARK);
	history_verify(&s.table, &s.history[0]);
	waited(&s);
	for (int32_t i = 0; i < 8; i++)
		ck_assert(stamp_is(&s.rig, pages[i / 4] * 4 + i % 4, MARK, 0, 3));
	scene_close(&s);
}
END_TEST

/* ---- many sessions --------------------------------------------------------- */

#define MANY 48

/* Every session of a context has a place in the order. */
START_TEST(test_many)
{
	static struct history history[MANY];
	struct scene s;
	struct turn turn;
	uint32_t left = 20;

	scene_default(&s);
	s.rig.options.max_sessions = MANY + 1;
	s.rig.options.device_pages = (MANY + 1) * REQUIRED + 40;
	s.rig.options.host_rows = (MANY + 1) * 256;
	rig_open(&s.rig);
	table_open(&s.rig, &s.table, MANY, 1, HOT);
	for (uint32_t i = 0; i < MANY; i++) {
		history_open(&s.rig, &history[i]);
		history_prefill(&s.rig, &history[i], ROWS);
		ck_good(dhs_session_evict(s.rig.context, history[i].id, NULL));
	}
	for (uint32_t look = 0; look < 2; look++) {
		int32_t *rows;

		turn_open(&turn, &s.table);
		for (uint32_t i = 0; i < MANY; i++)
			turn_add(&turn, &history[i], 0, 1, 0);
		turn_begin(&turn);
		rows = turn_blank(&turn);
		for (uint32_t i = 0; i < MANY; i++)
			for (uint32_t r = 0; r < (look ? 1 + i * 5 % HOT : HOT); r++)
				turn_at(&turn, rows, i, 0)[r] = (int32_t)r;
		turn_resolve_all(&turn, rows);
		turn_end(&turn);
	}
	waited(&s);
	swallow(&s, 0, left);
	tick(&s);
	for (uint32_t hits = HOT; hits > 0; hits--)
		for (uint32_t i = 0; i < MANY; i++)
			if (1 + i * 5 % HOT == hits) {
				ck_assert_uint_eq(rig_info(&s.rig, history[i].id).elastic_pages, left != 0);
				left -= left != 0;
			}
	scene_close(&s);
}
END_TEST

/* ---- a tick that fails ----------------------------------------------------- */

/* Records of work are in use until they are looked at: so many that a tick needs more. */
static void use_records(struct scene *s, const struct history *history)
{
	int32_t slots[1];

	for (uint32_t i = 0; i < 20; i++) {
		ck_good(dhs_session_extend(s->rig.context, history->id, 1, s->rig.stream, slots));
		ck_good(dhs_session_commit(s->rig.context, history->id, 0, s->rig.stream));
	}
}

/* Without memory for what it enqueues a tick changes nothing; the next one does it. */
START_TEST(test_no_memory)
{
	static const struct past cheap = { 9, 3, 0 };
	struct scene s;
	uint64_t fails = 0;

	scene_default(&s);
	s.rig.options.max_sessions = 6;
	s.rig.options.backup = (uint32_t)_i;
	s.rig.options.link_bytes = 1 << 20;
	scene_open(&s);
	enter(&s, 0);
	enter_past(&s, 1, &cheap);
	history_open(&s.rig, &s.history[3]);
	swallow(&s, 2, 0);
	measure(&s, 0, HOT);
	use_records(&s, &s.history[3]);
	for (uint64_t at = 1;; at++) {
		dhs_stats before = rig_stats(&s.rig), after;
		int rc;

		memory_arm(&s.rig.memory, at, false);
		rc = dhs_context_advance(s.rig.context);
		memory_disarm(&s.rig.memory);
		if (rc == 0)
			break;
		ck_assert_int_eq(rc, DHS_ERR_HOST_MEMORY);
		after = rig_stats(&s.rig);
		ck_assert_mem_eq(&before, &after, sizeof(after));
		ck_assert_uint_lt(++fails, 20);
	}
	if (_i == DHS_BACKUP_EAGER)
		ck_assert_uint_eq(fails, 1);
	ck_assert_uint_eq(elastic(&s, 0), 1);
	ck_assert_uint_eq(resident(&s, 1), 2);
	scene_close(&s);
}
END_TEST

/* ---- the same calls -------------------------------------------------------- */

#define NOTES 40000

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

static void note_pages(struct scene *s, struct notes *notes)
{
	dhs_stats stats = rig_stats(&s->rig);

	note(notes, stats.pages_free);
	note(notes, stats.pages_draining);
	note(notes, stats.pages_resident);
	note(notes, stats.granted_pages);
	note(notes, stats.withdrawn_pages);
	note(notes, stats.evicted_pages);
	for (uint32_t i = 0; i < 3; i++)
		note(notes, elastic(s, i));
}

/* Rows that come again, some of them soon. */
static int32_t *zipf(struct scene *s, struct turn *turn, struct dice *dice)
{
	int32_t *rows = turn_blank(turn);

	for (uint32_t e = 0; e < turn->count; e++)
		for (uint32_t r = 0; r < s->table.options.top_k; r++) {
			uint32_t below = 1 + dice_below(dice, 20);

			turn_at(turn, rows, e, 0)[r] = (int32_t)dice_below(dice, below);
		}
	return rows;
}

/* A step of all three; where it finds their rows. */
static void note_step(struct scene *s, struct dice *dice, struct notes *notes)
{
	struct turn turn;

	turn_open(&turn, &s->table);
	for (uint32_t i = 0; i < 3; i++)
		turn_add(&turn, &s->history[i], 2, 1, dice_below(dice, 3));
	turn_begin(&turn);
	turn_write(&turn);
	turn_resolve_all(&turn, zipf(s, &turn, dice));
	turn_end(&turn);
	rig_sync(&s->rig);
	for (uint32_t i = 0; i < table_entries(&s->table); i++)
		note(notes, (uint32_t)turn.slots[0][i]);
}

static void play_notes(uint64_t seed, int number, struct notes *notes)
{
	struct scene s;
	struct dice dice = { (uint64_t)number };

	memset(notes, 0, sizeof(*notes));
	scene_default(&s);
	s.rig.seed = seed;
	s.rig.options.device_pages = 44;
	s.rig.options.backup = (uint32_t)number % 3;
	s.rig.options.link_bytes = 768;
	s.rig.options.refill_low = 1;
	s.rig.options.refill_high = 4;
	s.rig.options.max_hot_rows = 24;
	rig_open(&s.rig);
	table_open(&s.rig, &s.table, 3, 1, 12);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&s.rig, &s.history[i]);
	for (uint32_t i = 0; i < 150; i++) {
		struct history *h = &s.history[dice_below(&dice, 3)];

		if (h->rows < 100)
			history_prefill(&s.rig, h, dice_below(&dice, 20));
		if (dice_below(&dice, 20) == 0)
			history_truncate(&s.rig, h, dice_below(&dice, (uint32_t)h->rows + 1));
		if (dice_below(&dice, 8) == 0)
			ck_good(dhs_session_evict(s.rig.context, h->id, NULL));
		for (uint32_t ticks = dice_below(&dice, 3); ticks; ticks--)
			tick(&s);
		note_pages(&s, notes);
		note_step(&s, &dice, notes);
	}
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&s.table, &s.history[i]);
	ck_assert_uint_gt(waited(&s).granted_pages, 20);
	ck_assert_uint_gt(waited(&s).withdrawn_pages, 10);
	scene_close(&s);
}

/* However late the device is, the same pages go to the same sessions, and rows to the same
 * slots. */
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

static void add_order_cases(Suite *suite, bool in_pool)
{
	TCase *gives = support_case("gives", in_pool), *shift = support_case("moves", in_pool);

	tcase_set_timeout(gives, support_seconds(60));
	tcase_add_loop_test(gives, test_who_gives, 0, 5 * COUNT_OF(givers));
	tcase_add_loop_test(gives, test_admission, 0, 4);
	tcase_add_loop_test(gives, test_whose_history, 0, 5 * COUNT_OF(pasts));
	suite_add_tcase(suite, gives);
	tcase_set_timeout(shift, support_seconds(60));
	tcase_add_loop_test(shift, test_history_moves, 0, COUNT_OF(halves));
	tcase_add_loop_test(shift, test_elastic_moves, 0, COUNT_OF(moved));
	tcase_add_loop_test(shift, test_moves_first, 0, 2);
	tcase_add_loop_test(shift, test_portion_moves, 0, 3);
	suite_add_tcase(suite, shift);
}

static void add_measure_cases(Suite *suite, bool in_pool)
{
	TCase *idle_case = support_case("idle", in_pool), *samples = support_case("samples", in_pool);

	tcase_set_timeout(idle_case, support_seconds(60));
	tcase_add_loop_test(idle_case, test_idle, 0, 2);
	tcase_add_test(idle_case, test_idle_while_filling);
	tcase_add_loop_test(idle_case, test_idle_for_nobody, 0, 3);
	tcase_add_loop_test(idle_case, test_use, 0, COUNT_OF(uses));
	tcase_add_test(idle_case, test_commit_is_use);
	tcase_add_test(idle_case, test_one_a_tick);
	tcase_add_loop_test(idle_case, test_fresh_is_not_idle, 0, 2);
	tcase_add_test(idle_case, test_idle_worth_nothing);
	suite_add_tcase(suite, idle_case);
	tcase_set_timeout(samples, support_seconds(60));
	tcase_add_loop_test(samples, test_turns, 0, 2);
	tcase_add_loop_test(samples, test_last_plan, 0, 2);
	tcase_add_loop_test(samples, test_not_looked, 0, 3);
	tcase_add_loop_test(samples, test_misses_fade, 0, 2);
	tcase_add_loop_test(samples, test_aborted, 0, 2);
	tcase_add_test(samples, test_sample_of_another);
	tcase_add_test(samples, test_replayed);
	suite_add_tcase(suite, samples);
}

static void add_rest(Suite *suite, bool in_pool)
{
	TCase *fences = support_case("fences", in_pool), *all = support_case("all", in_pool);

	tcase_set_timeout(fences, support_seconds(60));
	tcase_add_test(fences, test_evict_fence);
	tcase_add_loop_test(fences, test_taken, 0, 10);
	suite_add_tcase(suite, fences);
	tcase_set_timeout(all, support_seconds(60));
	tcase_add_test(all, test_many);
	tcase_add_loop_test(all, test_no_memory, 1, 4);
	tcase_add_loop_test(all, test_same_pages, 0, 6);
	suite_add_tcase(suite, all);
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
	tcase_add_test(whom, test_idle_before_elastic);
	tcase_add_test(whom, test_suspended_does_not_count);
	tcase_add_test(whom, test_then_history);
	tcase_add_loop_test(whom, test_no_history, 0, 2);
	tcase_add_loop_test(whom, test_most, 0, COUNT_OF(others));
	tcase_add_test(whom, test_full);
	tcase_add_loop_test(whom, test_defaults, 0, COUNT_OF(defaults));
	tcase_add_loop_test(whom, test_required, 0, 7);
	suite_add_tcase(suite, whom);
	add_place_cases(suite, in_pool);
	add_order_cases(suite, in_pool);
	add_measure_cases(suite, in_pool);
	add_rest(suite, in_pool);
}

int main(void)
{
	Suite *suite = suite_create("elastic");

	support_both(suite, add_cases);
	return support_run(suite);
}
