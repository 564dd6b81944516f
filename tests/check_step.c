/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Steps: the rule of docs/resolve.md place by place, commits that keep less,
 * two steps in flight, and everything out of order that only the device sees. */
#include "support.h"

static dhs_stats settled_stats(struct rig *rig)
{
	ck_good(dhs_context_wait(rig->context));
	return rig_stats(rig);
}

/* ---- the rule of the hot cache, place by place ---------------------------- */

#define HOT 8
#define MOST 1024

/* One session and group as docs/resolve.md has it. */
struct shadow {
	uint32_t hot;
	int32_t row[MOST]; /* of a place; -1: empty */
	uint32_t stamp[MOST];
	int32_t slot[MOST]; /* learned; -1: not yet */
	uint32_t plans;
	uint64_t page_hits, hot_hits, misses, repeats, staged, victims, bad;
};

/* What a plan must give for an entry: a place, or one of these. */
enum { GIVES_PAD = -1, GIVES_PAGE = -2, GIVES_STAGING = -3 };

static void shadow_open(struct shadow *shadow, uint32_t hot)
{
	memset(shadow, 0, sizeof(*shadow));
	shadow->hot = hot;
	for (uint32_t i = 0; i < hot; i++)
		shadow->row[i] = shadow->slot[i] = -1;
}

static int shadow_find(const struct shadow *shadow, int32_t row)
{
	for (uint32_t i = 0; i < shadow->hot; i++)
		if (shadow->row[i] == row)
			return (int)i;
	return -1;
}

/* The place that gives way next: empty, then the oldest; not this plan's. */
static int shadow_victim(const struct shadow *shadow, const bool *chosen)
{
	int best = -1;

	for (uint32_t i = 0; i < shadow->hot; i++) {
		if (chosen[i])
			continue;
		if (shadow->row[i] < 0)
			return (int)i;
		if (shadow->stamp[i] != shadow->plans &&
		    (best < 0 || shadow->stamp[i] < shadow->stamp[best]))
			best = (int)i;
	}
	return best;
}

static int by_number(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/* As many places as there are misses, if so many may give way, filled in the
 * order of their index. */
static void shadow_place(struct shadow *shadow, int32_t *missing, uint32_t count)
{
	bool chosen[MOST] = { false };
	uint32_t placed = 0;

	qsort(missing, count, sizeof(missing[0]), by_number);
	for (uint32_t i = 0; i < count; i++) {
		int place = shadow_victim(shadow, chosen);

		if (place >= 0)
			chosen[place] = true;
	}
	for (uint32_t i = 0; i < shadow->hot; i++) {
		if (!chosen[i])
			continue;
		shadow->victims += shadow->row[i] >= 0;
		shadow->row[i] = missing[placed++];
		shadow->stamp[i] = shadow->plans;
	}
	shadow->staged += count - placed;
}

/* Plans: gives[i] for each entry of the selection. */
static void shadow_plan(struct shadow *shadow, const int32_t *rows, uint32_t count, uint64_t all,
                        const int32_t *pages, uint32_t page_rows, int *gives)
{
	int32_t missing[MOST];
	uint32_t missed = 0;

	shadow->plans++;
	for (uint32_t i = 0; i < count; i++) {
		int place = shadow_find(shadow, rows[i]);
		bool bad = rows[i] < 0 || (uint64_t)rows[i] >= all;
		bool page = !bad && pages[(uint32_t)rows[i] / page_rows] >= 0;
		bool again = false;

		gives[i] = bad ? GIVES_PAD : page ? GIVES_PAGE : GIVES_STAGING;
		shadow->bad += bad;
		shadow->page_hits += page;
		if (bad || page)
			continue;
		if (place >= 0) {
			shadow->stamp[place] = shadow->plans;
			shadow->hot_hits++;
			continue;
		}
		for (uint32_t m = 0; m < missed && !again; m++)
			again = missing[m] == rows[i];
		shadow->repeats += again;
		shadow->misses += !again;
		if (!again)
			missing[missed++] = rows[i];
	}
	shadow_place(shadow, missing, missed);
	for (uint32_t i = 0; i < count; i++)
		if (gives[i] == GIVES_STAGING && shadow_find(shadow, rows[i]) >= 0)
			gives[i] = shadow_find(shadow, rows[i]);
}

/* A place has one slot for ever, and no other place has it. */
static void shadow_slot(struct shadow *shadow, int place, int32_t slot)
{
	if (shadow->slot[place] < 0)
		for (uint32_t i = 0; i < shadow->hot; i++)
			ck_assert_int_ne(shadow->slot[i], slot);
	else
		ck_assert_int_eq(shadow->slot[place], slot);
	shadow->slot[place] = slot;
}

static void shadow_check(struct shadow *shadow, const int32_t *rows, const int32_t *slots,
                         uint32_t count, const int *gives, const int32_t *pages, uint32_t page_rows)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t row = (uint32_t)rows[i];

		if (gives[i] == GIVES_PAD)
			ck_assert_int_eq(slots[i], -1);
		else if (gives[i] == GIVES_PAGE)
			ck_assert_int_eq(slots[i], pages[row / page_rows] * (int32_t)page_rows +
			                               (int32_t)(row % page_rows));
		else if (gives[i] >= 0)
			shadow_slot(shadow, gives[i], slots[i]);
		else
			for (uint32_t p = 0; p < shadow->hot; p++)
				ck_assert_int_ne(shadow->slot[p], slots[i]);
	}
}

struct model {
	struct rig rig;
	struct history history;
	struct table table;
	struct shadow shadow[2];
	const int32_t *pages; /* of the session, in the view */
};

static void model_open(struct model *m, uint32_t policy, uint32_t queries, uint32_t top_k)
{
	dhs_batch_view view = DHS_INIT(dhs_batch_view);

	rig_default(&m->rig);
	m->rig.options.policy = policy;
	rig_open(&m->rig);
	history_open(&m->rig, &m->history);
	history_prefill(&m->rig, &m->history, 90);
	if (policy == DHS_POLICY_ADAPTIVE)
		ck_good(dhs_session_evict(m->rig.context, m->history.id, NULL));
	table_open(&m->rig, &m->table, 1, queries, top_k);
	ck_good(dhs_batch_get_view(m->table.batch, &view));
	turn_one(&m->table, &m->history, 0, 0, NULL, 0);
	rig_sync(&m->rig);
	m->pages = view.page_table + view.session_index[0] * view.page_stride;
	shadow_open(&m->shadow[0], HOT);
	shadow_open(&m->shadow[1], HOT);
}

static void model_plan(struct model *m, struct turn *turn, uint32_t group, const int32_t *rows)
{
	uint32_t count = turn->entry[0].queries * m->table.options.top_k;
	uint64_t all = turn->entry[0].length + turn->entry[0].new_rows;
	int gives[MOST];

	turn_resolve(turn, group, rows);
	rig_sync(&m->rig);
	shadow_plan(&m->shadow[group], rows, count, all, m->pages, 4, gives);
	shadow_check(&m->shadow[group], rows, turn->slots[group], count, gives, m->pages, 4);
}

static void model_step(struct model *m, const int32_t *rows, struct dice *dice)
{
	struct turn turn;

	turn_open(&turn, &m->table);
	turn_add(&turn, &m->history, dice != NULL && m->history.rows < 250 ? 1 : 0,
	         m->table.options.max_queries, 1);
	turn_begin(&turn);
	turn_write(&turn);
	model_plan(m, &turn, 0, rows != NULL ? rows : turn_wild(&turn, dice));
	if (dice != NULL)
		model_plan(m, &turn, 1, turn_wild(&turn, dice));
	turn_end(&turn);
}

static void model_counts(struct model *m)
{
	const struct shadow *a = &m->shadow[0], *b = &m->shadow[1];
	dhs_stats s = settled_stats(&m->rig);

	ck_assert_uint_eq(s.page_hits, a->page_hits + b->page_hits);
	ck_assert_uint_eq(s.hot_hits, a->hot_hits + b->hot_hits);
	ck_assert_uint_eq(s.misses, a->misses + b->misses);
	ck_assert_uint_eq(s.repeats, a->repeats + b->repeats);
	ck_assert_uint_eq(s.staged, a->staged + b->staged);
	ck_assert_uint_eq(s.victims, a->victims + b->victims);
	ck_assert_uint_eq(s.bad_rows, a->bad + b->bad);
	ck_assert_uint_eq(s.plans, a->plans + b->plans);
	ck_assert_uint_eq(s.fetched_bytes, 64 * a->misses + 128 * b->misses);
	ck_assert_uint_eq(s.order_errors, 0);
}

static void model_close(struct model *m)
{
	model_counts(m);
	table_close(&m->table);
	rig_close(&m->rig);
}

START_TEST(test_rule_random)
{
	static const uint32_t shape[][2] = { { 1, 4 }, { 2, 5 }, { 3, 8 }, { 1, 32 }, { 4, 33 } };
	struct model m;
	struct dice dice = { (uint64_t)_i };
	uint32_t policy = _i % 2 == 0 ? DHS_POLICY_FIXED : DHS_POLICY_ADAPTIVE;

	model_open(&m, policy, shape[_i % 5][0], shape[_i % 5][1]);
	for (uint32_t i = 0; i < support_times(200); i++)
		model_step(&m, NULL, &dice);
	if (support_times(200) == 200)
		ck_assert_uint_gt(m.shadow[0].victims, 100);
	model_close(&m);
}
END_TEST

/* A selection in pieces: -1 ends it. */
static void model_rows(struct model *m, const int32_t *row)
{
	int32_t rows[MOST];

	memset(rows, 0xff, sizeof(rows));
	for (uint32_t i = 0; row[i] >= 0; i++)
		rows[i] = row[i];
	model_step(m, rows, NULL);
}

#define ROWS(...) ((const int32_t[]){ __VA_ARGS__, -1 })

START_TEST(test_rule_by_hand)
{
	struct model m;

	model_open(&m, DHS_POLICY_FIXED, 1, 16);
	/* Ascending order, whatever the order of the selection. */
	model_rows(&m, ROWS(30, 10, 20, 0));
	ck_assert_int_eq(m.shadow[0].row[0], 0);
	ck_assert_int_eq(m.shadow[0].row[3], 30);
	model_rows(&m, ROWS(1, 2, 3, 4));
	/* 10 and 20 are read again; the oldest two, 0 and 30, give way. */
	model_rows(&m, ROWS(10, 20, 50, 49));
	ck_assert_int_eq(m.shadow[0].row[0], 49);
	ck_assert_int_eq(m.shadow[0].row[3], 50);
	/* Seven read; one is left for two misses: the higher goes to staging. */
	model_rows(&m, ROWS(10, 20, 50, 49, 1, 2, 3, 60, 61));
	ck_assert_uint_eq(m.shadow[0].staged, 1);
	ck_assert_int_lt(shadow_find(&m.shadow[0], 61), 0);
	/* All of it again: what was staged is a miss again. */
	model_rows(&m, ROWS(61, 61, 60, 60));
	ck_assert_uint_eq(m.shadow[0].repeats, 1);
	/* Twice the hot cache in one plan: half of it staged. */
	model_rows(&m, ROWS(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
	ck_assert_uint_eq(m.shadow[0].staged, 1 + 8);
	model_close(&m);
}
END_TEST

/* ---- selections ----------------------------------------------------------- */

struct simple {
	struct rig rig;
	struct history history[4];
	struct table table;
	struct turn turn;
};

static void simple_open(struct simple *s, uint64_t seed, uint32_t policy, uint32_t histories,
                        uint32_t queries, uint32_t top_k)
{
	rig_default(&s->rig);
	s->rig.seed = seed;
	s->rig.options.policy = policy;
	s->rig.options.device_pages = 128;
	if (policy == DHS_POLICY_FULL)
		s->rig.options.host_rows = 0;
	rig_open(&s->rig);
	for (uint32_t i = 0; i < histories; i++) {
		history_open(&s->rig, &s->history[i]);
		history_prefill(&s->rig, &s->history[i], 40 + i);
	}
	table_open(&s->rig, &s->table, 4, queries, top_k);
}

static void simple_begin(struct simple *s, uint32_t histories, uint32_t new_rows, uint32_t queries,
                         uint32_t kept)
{
	turn_open(&s->turn, &s->table);
	for (uint32_t i = 0; i < histories; i++)
		turn_add(&s->turn, &s->history[i], new_rows, queries, kept);
	turn_begin(&s->turn);
}

static void simple_close(struct simple *s)
{
	rig_sync(&s->rig);
	ck_good(dhs_context_wait(s->rig.context));
	table_close(&s->table);
	rig_close(&s->rig);
}

/* Slots written over the rows that were read. */
static void resolve_in_place(struct turn *turn, const int32_t *rows)
{
	dhs_selection selection = DHS_INIT(dhs_selection);
	size_t bytes = sizeof(int32_t) * table_entries(turn->table);
	int32_t *both = rig_keep(turn->rig, bytes);

	turn_plan(turn, 1, rows); /* for what is wanted */
	launch_copy(turn->rig, turn->stream, both, rows, bytes);
	selection.rows = selection.slots = both;
	ck_good(dhs_step_resolve(turn->table->batch, 0, &selection, turn->stream));
	turn->slots[0] = both;
	turn->want[0] = turn->want[1];
	turn->rows[0] = turn->rows[1];
	turn_check(turn, 0);
}

START_TEST(test_in_place)
{
	struct simple s;
	struct dice dice = { 3 };

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 3, 2, 8);
	for (uint32_t i = 0; i < 20; i++) {
		simple_begin(&s, 3, 1, 2, 1);
		turn_write(&s.turn);
		resolve_in_place(&s.turn, turn_wild(&s.turn, &dice));
		turn_end(&s.turn);
	}
	simple_close(&s);
}
END_TEST

START_TEST(test_smaller_shapes)
{
	struct simple s;
	dhs_selection selection = DHS_INIT(dhs_selection);
	int32_t *rows, *slots;

	simple_open(&s, 0, DHS_POLICY_FIXED, 2, 4, 16);
	rows = rig_keep(&s.rig, 6 * sizeof(*rows));
	slots = rig_keep(&s.rig, 7 * sizeof(*slots));
	simple_begin(&s, 2, 0, 1, 0);
	for (uint32_t i = 0; i < 6; i++)
		rows[i] = (int32_t)i * 5;
	memset(slots, 0x77, 7 * sizeof(*slots));
	selection.sessions = 2;
	selection.queries = 1;
	selection.top_k = 3;
	selection.rows = rows;
	selection.slots = slots;
	ck_good(dhs_step_resolve(s.table.batch, 0, &selection, s.rig.stream));
	rig_sync(&s.rig);
	for (uint32_t i = 0; i < 6; i++)
		ck_assert(stamp_is(&s.rig, slots[i], s.history[i / 3].stamp[i * 5], 0, 1));
	ck_assert_int_eq(slots[6], 0x77777777);
	turn_end(&s.turn);
	ck_assert_uint_eq(settled_stats(&s.rig).order_errors, 0);
	simple_close(&s);
}
END_TEST

/* Fewer sessions or queries than the step has: what is beyond is not planned;
 * refused where the host knows. */
START_TEST(test_too_small_shapes)
{
	struct simple s;
	struct device_graph *graph = NULL;
	dhs_selection selection = DHS_INIT(dhs_selection);
	int32_t *rows, *slots;

	simple_open(&s, 0, DHS_POLICY_FIXED, 2, 2, 4);
	rows = rig_keep(&s.rig, 16 * sizeof(*rows));
	slots = rig_keep(&s.rig, 16 * sizeof(*slots));
	for (int32_t i = 0; i < 4; i++)
		rows[i] = i + 1;
	selection.sessions = 1;
	selection.queries = 1;
	selection.rows = rows;
	selection.slots = slots;
	ck_good(device_capture_begin(&s.rig.device, s.rig.stream));
	ck_good(dhs_step_resolve(s.table.batch, 0, &selection, s.rig.stream));
	ck_good(device_capture_end(&s.rig.device, s.rig.stream, &graph));
	simple_begin(&s, 2, 0, 2, 0);
	ck_told(dhs_step_resolve(s.table.batch, 0, &selection, s.rig.stream), DHS_ERR_ARGUMENT,
	        "sessions", "2");
	selection.sessions = 0;
	ck_told(dhs_step_resolve(s.table.batch, 0, &selection, s.rig.stream), DHS_ERR_ARGUMENT,
	        "queries", "2");
	ck_good(device_graph_launch(&s.rig.device, graph, s.rig.stream));
	rig_sync(&s.rig);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert(stamp_is(&s.rig, slots[i], s.history[0].stamp[rows[i]], 0, 1));
	turn_end(&s.turn);
	ck_good(device_graph_destroy(&s.rig.device, graph));
	ck_assert_uint_gt(settled_stats(&s.rig).order_errors, 0);
	ck_assert_uint_eq(settled_stats(&s.rig).misses, 4);
	simple_begin(&s, 2, 0, 2, 0);
	turn_resolve_all(&s.turn, turn_wild(&s.turn, &(struct dice){ 1 }));
	turn_end(&s.turn);
	simple_close(&s);
}
END_TEST

START_TEST(test_pads)
{
	struct simple s;
	struct table table;
	struct dice dice = { 5 };
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	rig_default(&s.rig);
	s.rig.options.reserved_pages = 2;
	rig_open(&s.rig);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], 50);
	options.flags = DHS_BATCH_READ_PAD | DHS_BATCH_WRITE_PAD;
	options.max_queries = 2;
	options.top_k = 6;
	options.read_pad = _i == 0 ? 0 : 3;
	options.write_pad = _i == 0 ? 7 : 0;
	table_open_options(&s.rig, &table, &options);
	for (uint32_t i = 0; i < 10; i++) {
		turn_open(&s.turn, &table);
		turn_add(&s.turn, NULL, 0, 0, 0);
		turn_add(&s.turn, &s.history[0], 1, 1, 1);
		turn_begin(&s.turn);
		turn_write(&s.turn);
		turn_resolve_all(&s.turn, turn_wild(&s.turn, &dice));
		turn_end(&s.turn);
	}
	/* Reserved pages are zero and stay so. */
	for (uint32_t l = 0; l < 3; l++)
		for (uint32_t i = 0; i < 2 * 256; i++)
			ck_assert_int_eq(((char *)s.rig.place[l].base)[i], 0);
	table_close(&table);
	rig_close(&s.rig);
}
END_TEST

/* -1 without the flag, whatever the options have beside it. */
START_TEST(test_pads_by_default)
{
	struct simple s;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	rig_default(&s.rig);
	s.rig.options.reserved_pages = 2;
	rig_open(&s.rig);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], 50);
	options.top_k = 6;
	table_open_options(&s.rig, &s.table, &options);
	ck_assert_int_eq(s.table.options.read_pad, -1);
	simple_begin(&s, 1, 1, 1, 1);
	turn_write(&s.turn);
	turn_resolve_all(&s.turn, turn_blank(&s.turn));
	turn_end(&s.turn);
	simple_close(&s);
}
END_TEST

START_TEST(test_empty_steps)
{
	struct simple s;
	dhs_step step = 0;
	int resident = 99;

	simple_open(&s, (uint64_t)_i, DHS_POLICY_ADAPTIVE, 1, 2, 8);
	/* Nothing at all. */
	ck_good(dhs_step_begin(s.table.batch, NULL, 0, sizeof(dhs_step_entry), s.rig.stream, &step));
	ck_good(dhs_step_all_resident(s.table.batch, &resident));
	ck_assert_int_eq(resident, 1);
	ck_good(dhs_step_end(s.rig.context, step, NULL, 0));
	/* No entries, all calls. */
	simple_begin(&s, 0, 0, 0, 0);
	turn_write(&s.turn);
	turn_resolve_all(&s.turn, turn_blank(&s.turn));
	turn_commit(&s.turn);
	turn_settle(&s.turn);
	/* Padding entries only. */
	turn_open(&s.turn, &s.table);
	for (uint32_t i = 0; i < 4; i++)
		turn_add(&s.turn, NULL, 0, 0, 0);
	turn_begin(&s.turn);
	turn_write(&s.turn);
	turn_resolve_all(&s.turn, turn_wild(&s.turn, &(struct dice){ 9 }));
	turn_end(&s.turn);
	rig_sync(&s.rig);
	ck_assert_uint_eq(settled_stats(&s.rig).bad_rows, 0);
	ck_assert_uint_eq(settled_stats(&s.rig).plans, 0);
	history_verify(&s.table, &s.history[0]);
	simple_close(&s);
}
END_TEST

START_TEST(test_no_queries)
{
	struct simple s;
	int32_t *rows;
	dhs_stats before, after;

	simple_open(&s, 0, DHS_POLICY_FIXED, 2, 1, 8);
	simple_begin(&s, 2, 0, 1, 0);
	rows = turn_blank(&s.turn);
	for (uint32_t i = 0; i < 8; i++)
		turn_at(&s.turn, rows, 0, 0)[i] = turn_at(&s.turn, rows, 1, 0)[i] = (int32_t)i;
	turn_resolve(&s.turn, 0, rows);
	turn_end(&s.turn);
	before = settled_stats(&s.rig);
	/* An entry without queries is not planned: pads, no stamp, no count. */
	simple_begin(&s, 2, 0, 0, 0);
	turn_resolve(&s.turn, 0, rows);
	turn_end(&s.turn);
	after = settled_stats(&s.rig);
	ck_assert_uint_eq(after.plans, before.plans);
	ck_assert_uint_eq(after.bad_rows, before.bad_rows);
	simple_begin(&s, 2, 0, 1, 0);
	turn_resolve(&s.turn, 0, rows);
	turn_end(&s.turn);
	ck_assert_uint_eq(settled_stats(&s.rig).hot_hits, before.hot_hits + 16);
	simple_close(&s);
}
END_TEST

/* Several queries that select the same rows: one fetch a row. */
START_TEST(test_union)
{
	struct simple s;
	int32_t *rows;
	dhs_stats stats;

	simple_open(&s, 0, DHS_POLICY_FIXED, 1, 4, 8);
	simple_begin(&s, 1, 0, 4, 0);
	rows = turn_blank(&s.turn);
	for (uint32_t q = 0; q < 4; q++)
		for (uint32_t i = 0; i < 8; i++)
			turn_at(&s.turn, rows, 0, q)[i] = (int32_t)((i * 3 + q) % 12);
	turn_resolve_all(&s.turn, rows);
	turn_end(&s.turn);
	stats = settled_stats(&s.rig);
	ck_assert_uint_eq(stats.misses, 2 * 12);
	ck_assert_uint_eq(stats.repeats, 2 * 20);
	ck_assert_uint_eq(stats.staged, 2 * 4);
	ck_assert_uint_eq(stats.fetched_bytes, 12 * 3 * 64);
	simple_close(&s);
}
END_TEST

/* ---- fetch ---------------------------------------------------------------- */

static int32_t *first_rows(struct turn *turn, int32_t from, uint32_t count)
{
	int32_t *rows = turn_blank(turn);

	for (uint32_t e = 0; e < turn->count; e++)
		for (uint32_t i = 0; i < count; i++)
			turn_at(turn, rows, e, 0)[i] = from + (int32_t)i;
	return rows;
}

/* An unfinished plan is undone: its rows are missed again.  `layers` are those
 * of the group that are fetched, one by one, -1 ends them. */
static void check_unfinished(const int *layers, uint64_t misses)
{
	struct simple s;
	dhs_stats before;

	simple_open(&s, 0, DHS_POLICY_FIXED, 1, 1, 8);
	simple_begin(&s, 1, 0, 1, 0);
	turn_resolve(&s.turn, 1, first_rows(&s.turn, 0, 4));
	turn_end(&s.turn);
	simple_begin(&s, 1, 0, 1, 0);
	turn_plan(&s.turn, 1, first_rows(&s.turn, 2, 4)); /* two hits, two misses */
	for (uint32_t i = 0; layers[i] >= 0; i++)
		ck_good(dhs_step_fetch(s.table.batch, 1, (uint32_t)layers[i], 1, s.rig.stream));
	turn_end(&s.turn);
	before = settled_stats(&s.rig);
	ck_assert_uint_eq(before.misses, 6);
	simple_begin(&s, 1, 0, 1, 0);
	turn_resolve(&s.turn, 1, first_rows(&s.turn, 0, 6));
	turn_end(&s.turn);
	ck_assert_uint_eq(settled_stats(&s.rig).misses, before.misses + misses);
	simple_close(&s);
}

START_TEST(test_unfinished_plans)
{
	check_unfinished((const int[]){ -1 }, 4); /* rows 2 to 5 bear that plan's stamp */
	check_unfinished((const int[]){ 0, -1 }, 4);
	check_unfinished((const int[]){ 1, -1 }, 4);
	check_unfinished((const int[]){ 1, 1, -1 }, 4);
	check_unfinished((const int[]){ 0, 1, -1 }, 0);
	check_unfinished((const int[]){ 1, 0, -1 }, 0); /* in any order */
	check_unfinished((const int[]){ 1, 0, 1, -1 }, 0);
}
END_TEST

START_TEST(test_fetch_in_pieces)
{
	struct simple s;
	struct dice dice = { 8 };

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 3, 2, 8);
	for (uint32_t i = 0; i < 20; i++) {
		simple_begin(&s, 3, 1, 2, 1);
		turn_write(&s.turn);
		turn_plan(&s.turn, 1, turn_wild(&s.turn, &dice));
		ck_good(dhs_step_fetch(s.table.batch, 1, 0, 1, s.rig.stream));
		ck_good(dhs_step_fetch(s.table.batch, 1, 1, i % 2, s.rig.stream));
		turn_check(&s.turn, 1);
		turn_end(&s.turn);
	}
	rig_sync(&s.rig);
	ck_assert_uint_eq(settled_stats(&s.rig).order_errors, 0);
	simple_close(&s);
}
END_TEST

/* The followers' fetch on another stream, joined before the commit. */
START_TEST(test_fetch_forked)
{
	struct simple s;
	struct dice dice = { 8 };

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 3, 2, 8);
	for (uint32_t i = 0; i < 20; i++) {
		simple_begin(&s, 3, 1, 2, 1);
		turn_write(&s.turn);
		turn_plan(&s.turn, 1, turn_wild(&s.turn, &dice));
		ck_good(dhs_step_fetch(s.table.batch, 1, 0, 1, s.rig.stream));
		ck_good(device_stream_join(&s.rig.device, s.rig.side, s.rig.stream));
		ck_good(dhs_step_fetch(s.table.batch, 1, 1, 0, s.rig.side));
		ck_good(device_stream_join(&s.rig.device, s.rig.stream, s.rig.side));
		turn_check(&s.turn, 1);
		turn_commit(&s.turn);
		turn_settle(&s.turn);
	}
	simple_close(&s);
}
END_TEST

/* Staging slots hold until the n-th next plan of any group. */
START_TEST(test_staging_buffers)
{
	uint32_t buffers = (uint32_t)_i + 1;
	struct simple s;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	struct dice dice = { 2 };

	rig_default(&s.rig);
	s.rig.options.policy = DHS_POLICY_FIXED;
	s.rig.layout.layers = 10;
	s.rig.layout.groups = 0;
	s.rig.layout.group_layers = NULL;
	s.rig.options.device_pages = 256;
	s.rig.seed = buffers;
	rig_open(&s.rig);
	history_open(&s.rig, &s.history[0]);
	history_prefill(&s.rig, &s.history[0], 100);
	options.max_sessions = 1;
	options.max_queries = 2;
	options.top_k = 16;
	options.staging_buffers = buffers;
	table_open_options(&s.rig, &s.table, &options);
	for (uint32_t i = 0; i < 5; i++) {
		simple_begin(&s, 1, 1, 2, 1);
		turn_write(&s.turn);
		for (uint32_t g = 0; g < 10; g++) {
			turn_resolve(&s.turn, g, turn_wild(&s.turn, &dice));
			for (uint32_t b = 1; b < buffers && b <= g; b++)
				turn_check(&s.turn, g - b);
		}
		turn_end(&s.turn);
	}
	rig_sync(&s.rig);
	ck_assert_uint_gt(settled_stats(&s.rig).staged, 50);
	simple_close(&s);
}
END_TEST

/* A fetch whose buffer has been used again copies nothing and is counted. */
START_TEST(test_fetch_too_late)
{
	struct simple s;
	dhs_stats stats;

	simple_open(&s, 0, DHS_POLICY_FIXED, 1, 1, 8);
	simple_begin(&s, 1, 0, 1, 0);
	turn_plan(&s.turn, 0, first_rows(&s.turn, 0, 8));
	turn_resolve(&s.turn, 1, first_rows(&s.turn, 0, 8));
	ck_good(dhs_step_fetch(s.table.batch, 0, 0, 0, s.rig.stream));
	turn_end(&s.turn);
	stats = settled_stats(&s.rig);
	ck_assert_uint_eq(stats.order_errors, 1);
	ck_assert_uint_eq(stats.fetched_bytes, 8 * 2 * 64);
	simple_begin(&s, 1, 0, 1, 0);
	turn_resolve(&s.turn, 0, first_rows(&s.turn, 0, 8));
	turn_end(&s.turn);
	ck_assert_uint_eq(settled_stats(&s.rig).misses, stats.misses + 8);
	simple_close(&s);
}
END_TEST

START_TEST(test_fetch_within_buffers)
{
	struct simple s;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 1, 1, 8);
	rig_sync(&s.rig);
	ck_good(dhs_context_wait(s.rig.context));
	table_close(&s.table);
	options.top_k = 8;
	options.staging_buffers = 2;
	table_open_options(&s.rig, &s.table, &options);
	simple_begin(&s, 1, 0, 1, 0);
	turn_plan(&s.turn, 0, first_rows(&s.turn, 0, 8));
	turn_plan(&s.turn, 1, first_rows(&s.turn, 5, 8));
	ck_good(dhs_step_fetch(s.table.batch, 0, 0, 0, s.rig.stream));
	turn_check(&s.turn, 0);
	ck_good(dhs_step_fetch(s.table.batch, 1, 0, 0, s.rig.stream));
	turn_check(&s.turn, 1);
	turn_end(&s.turn);
	rig_sync(&s.rig);
	ck_assert_uint_eq(settled_stats(&s.rig).order_errors, 0);
	simple_close(&s);
}
END_TEST

START_TEST(test_fetch_without_plan)
{
	struct simple s;

	simple_open(&s, 0, DHS_POLICY_FIXED, 1, 1, 8);
	simple_begin(&s, 1, 0, 1, 0);
	turn_resolve(&s.turn, 0, first_rows(&s.turn, 0, 8));
	turn_end(&s.turn);
	simple_begin(&s, 1, 0, 1, 0);
	ck_good(dhs_step_fetch(s.table.batch, 0, 0, 0, s.rig.stream));
	turn_end(&s.turn);
	ck_assert_uint_eq(settled_stats(&s.rig).order_errors, 1);
	ck_assert_uint_eq(settled_stats(&s.rig).fetched_bytes, 8 * 64);
	simple_close(&s);
}
END_TEST

/* ---- what only the device sees -------------------------------------------- */

START_TEST(test_without_step)
{
	struct simple s;
	dhs_batch *batch;
	dhs_stream stream;
	dhs_selection selection = DHS_INIT(dhs_selection);
	int32_t rows[32] = { 0 }, slots[32];

	simple_open(&s, 0, DHS_POLICY_FIXED, 1, 1, 8);
	batch = s.table.batch;
	stream = s.rig.stream;
	memset(slots, 0x77, sizeof(slots));
	selection.rows = rows;
	selection.slots = slots;
	ck_told(dhs_step_resolve(batch, 0, &selection, stream), DHS_ERR_ORDER, "batch", NULL);
	ck_told(dhs_step_plan(batch, 0, &selection, stream), DHS_ERR_ORDER, "batch", NULL);
	ck_told(dhs_step_fetch(batch, 0, 0, 0, stream), DHS_ERR_ORDER, "batch", NULL);
	ck_told(dhs_step_slots(batch, 0, 2, slots, stream), DHS_ERR_ORDER, "batch", NULL);
	ck_told(dhs_step_commit(batch, 0, NULL, stream), DHS_ERR_ORDER, "batch", NULL);
	for (uint32_t i = 0; i < 32; i++)
		ck_assert_int_eq(slots[i], 0x77777777);
	simple_begin(&s, 1, 1, 1, 1);
	turn_write(&s.turn);
	turn_end(&s.turn);
	history_verify(&s.table, &s.history[0]);
	simple_close(&s);
}
END_TEST

static void check_pads_after_commit(struct simple *s)
{
	dhs_selection selection = DHS_INIT(dhs_selection);
	int32_t *rows = rig_keep(&s->rig, 32 * sizeof(*rows));
	int32_t *slots = rig_keep(&s->rig, 32 * sizeof(*slots));

	memset(slots, 0x77, 32 * sizeof(*slots));
	selection.rows = rows;
	selection.slots = slots;
	ck_good(dhs_step_plan(s->table.batch, 0, &selection, s->rig.stream));
	rig_sync(&s->rig);
	for (uint32_t i = 0; i < 32; i++)
		ck_assert_int_eq(slots[i], -1);
	memset(slots, 0x77, 32 * sizeof(*slots));
	ck_good(dhs_step_slots(s->table.batch, 4, 2, slots, s->rig.stream));
	rig_sync(&s->rig);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(slots[i], -1);
	ck_good(dhs_step_fetch(s->table.batch, 0, 0, 0, s->rig.stream));
	ck_good(dhs_step_commit(s->table.batch, 0, NULL, s->rig.stream));
}

START_TEST(test_after_commit)
{
	struct simple s;

	simple_open(&s, 0, DHS_POLICY_FIXED, 1, 1, 8);
	simple_begin(&s, 1, 2, 1, 1);
	turn_write(&s.turn);
	turn_resolve(&s.turn, 0, first_rows(&s.turn, 0, 8));
	turn_commit(&s.turn);
	check_pads_after_commit(&s);
	turn_settle(&s.turn);
	ck_assert_uint_eq(settled_stats(&s.rig).order_errors, 4);
	/* The second commit kept nothing. */
	simple_begin(&s, 1, 1, 1, 1);
	turn_write(&s.turn);
	turn_end(&s.turn);
	history_verify(&s.table, &s.history[0]);
	simple_close(&s);
}
END_TEST

/* ---- commit --------------------------------------------------------------- */

START_TEST(test_kept_clipped)
{
	struct simple s;
	static const int32_t wild[4] = { -5, INT32_MAX, 0, 1 };
	uint32_t says[4] = { 0, 2, 0, 1 };
	int32_t *kept;

	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 4, 1, 8);
	kept = rig_keep(&s.rig, sizeof(wild));
	memcpy(kept, wild, sizeof(wild));
	simple_begin(&s, 4, 2, 0, 0);
	turn_write(&s.turn);
	ck_good(dhs_step_commit(s.table.batch, 4, kept, s.rig.stream));
	ck_good(dhs_step_settle(s.rig.context, s.turn.step, says, 4));
	for (uint32_t e = 0; e < 4; e++) {
		struct history *h = &s.history[e];

		for (uint32_t i = 0; i < says[e]; i++)
			h->stamp[h->rows++] = s.turn.entry[e].stamp[i];
		h->settled = h->rows;
		ck_assert_uint_eq(rig_info(&s.rig, h->id).rows, h->rows);
		history_verify(&s.table, h);
	}
	ck_assert_uint_eq(settled_stats(&s.rig).order_errors, 0);
	simple_close(&s);
}
END_TEST

START_TEST(test_kept_all)
{
	struct simple s;

	simple_open(&s, (uint64_t)_i, DHS_POLICY_ADAPTIVE, 3, 1, 8);
	for (uint32_t i = 0; i < 10; i++) {
		simple_begin(&s, 3, 2, 0, 2);
		turn_write(&s.turn);
		ck_good(dhs_step_commit(s.table.batch, 0, NULL, s.rig.stream));
		for (uint32_t e = 0; e < 3; e++) {
			struct history *h = &s.history[e];

			for (uint32_t r = 0; r < 2; r++)
				h->stamp[h->rows++] = s.turn.entry[e].stamp[r];
		}
		turn_settle(&s.turn);
	}
	for (uint32_t e = 0; e < 3; e++)
		history_verify(&s.table, &s.history[e]);
	simple_close(&s);
}
END_TEST

START_TEST(test_mirrored)
{
	struct simple s;
	dhs_stats before;

	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 2, 1, 8);
	before = settled_stats(&s.rig);
	ck_assert_uint_eq(before.mirrored_rows, 40 + 41);
	ck_assert_uint_eq(before.backup_bytes, 81 * 3 * 64);
	simple_begin(&s, 2, 2, 0, 1);
	turn_write(&s.turn);
	turn_end(&s.turn);
	ck_assert_uint_eq(settled_stats(&s.rig).mirrored_rows, before.mirrored_rows + 2);
	simple_close(&s);
}
END_TEST

START_TEST(test_view)
{
	struct simple s;
	dhs_batch_view view = DHS_INIT(dhs_batch_view);

	simple_open(&s, 0, DHS_POLICY_FULL, 2, 1, 8);
	ck_good(dhs_batch_get_view(s.table.batch, &view));
	turn_open(&s.turn, &s.table);
	turn_add(&s.turn, &s.history[1], 2, 0, 1);
	turn_add(&s.turn, NULL, 0, 0, 0);
	turn_add(&s.turn, &s.history[0], 1, 0, 1);
	turn_begin(&s.turn);
	rig_sync(&s.rig);
	ck_assert_int_eq(view.session_index[1], -1);
	ck_assert_int_eq(view.session_index[3], -1);
	ck_assert_int_eq(view.lengths[view.session_index[0]], 41);
	ck_assert_int_eq(view.lengths[view.session_index[2]], 40);
	turn_write(&s.turn);
	rig_sync(&s.rig);
	for (uint32_t row = 0; row < 41; row++) {
		const int32_t *pages = view.page_table + (uint64_t)view.session_index[0] * view.page_stride;
		int32_t slot = pages[row / 4] * 4 + (int32_t)(row % 4);

		ck_assert(stamp_is(&s.rig, slot, s.history[1].stamp[row], 0, 3));
	}
	turn_commit(&s.turn);
	rig_sync(&s.rig);
	ck_assert_int_eq(view.lengths[view.session_index[0]], 42);
	ck_assert_int_eq(view.lengths[view.session_index[2]], 41);
	turn_settle(&s.turn);
	simple_close(&s);
}
END_TEST

/* ---- two steps in flight -------------------------------------------------- */

static void play_ahead(struct simple *s, uint32_t steps, struct dice *dice)
{
	struct turn turn[2];
	struct table second;

	table_open(&s->rig, &second, 4, 2, 8);
	for (uint32_t i = 0; i < steps; i++) {
		struct turn *now = &turn[i % 2];

		if (i >= 2)
			turn_settle(now);
		turn_open(now, dice_below(dice, 3) == 0 ? &second : &s->table);
		for (uint32_t e = 0; e < 3; e++)
			turn_add(now, &s->history[(e + i) % 3], dice_below(dice, 3), dice_below(dice, 3),
			         dice_below(dice, 3));
		turn_begin(now);
		turn_write(now);
		turn_resolve_all(now, turn_wild(now, dice));
		turn_commit(now);
	}
	turn_settle(&turn[steps % 2]);
	turn_settle(&turn[(steps + 1) % 2]);
	rig_sync(&s->rig);
	ck_good(dhs_context_wait(s->rig.context));
	table_close(&second);
}

START_TEST(test_two_in_flight)
{
	static const uint32_t policies[] = { DHS_POLICY_ADAPTIVE, DHS_POLICY_FIXED, DHS_POLICY_FULL };
	struct simple s;
	struct dice dice = { (uint64_t)_i };

	simple_open(&s, (uint64_t)_i, policies[_i % 3], 3, 2, 8);
	play_ahead(&s, 2 + support_times(120), &dice);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(rig_info(&s.rig, s.history[i].id).rows, s.history[i].rows);
		history_verify(&s.table, &s.history[i]);
	}
	rig_sync(&s.rig);
	ck_assert_uint_eq(settled_stats(&s.rig).order_errors, 0);
	simple_close(&s);
}
END_TEST

START_TEST(test_steps_counted)
{
	struct simple s;
	dhs_stats before, after;

	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 1, 1, 8);
	before = settled_stats(&s.rig);
	simple_begin(&s, 1, 1, 1, 1);
	turn_write(&s.turn);
	turn_end(&s.turn);
	simple_begin(&s, 1, 1, 1, 1);
	turn_abort(&s.turn);
	after = settled_stats(&s.rig);
	ck_assert_uint_eq(after.steps, before.steps + 2);
	ck_assert_uint_eq(after.steps_settled, before.steps_settled + 1);
	ck_assert_uint_eq(after.steps_aborted, before.steps_aborted + 1);
	simple_close(&s);
}
END_TEST

/* The commit on the device and settle on the host disagree. */
START_TEST(test_mismatch)
{
	struct simple s;
	uint32_t says[2] = { 2, 1 };
	int rc = 0;

	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 2, 1, 8);
	simple_begin(&s, 2, 2, 0, 1);
	turn_write(&s.turn);
	turn_commit(&s.turn); /* keeps one of each */
	ck_good(dhs_step_settle(s.rig.context, s.turn.step, says, 2));
	s.history[1].settled = s.history[1].rows;
	for (uint32_t i = 0; i < 3; i++) {
		turn_open(&s.turn, &s.table);
		turn_add(&s.turn, &s.history[0], 1, 0, 0);
		rc = turn_try_begin(&s.turn);
		if (rc != 0)
			break;
		turn_end(&s.turn);
	}
	ck_assert_int_eq(rc, DHS_ERR_MISMATCH);
	ck_assert_str_ne(dhs_last_error(), "");
	/* The other session goes on; the failed one can be destroyed. */
	history_verify(&s.table, &s.history[1]);
	ck_good(dhs_session_destroy(s.rig.context, s.history[0].id));
	rig_works(&s.rig);
	simple_close(&s);
}
END_TEST

/* The begin after a step of the batch marks that step's end. */
START_TEST(test_begin_marks_end)
{
	struct simple s;
	struct turn first;
	dhs_fence fence = 0;
	int passed = 99;

	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 2, 1, 8);
	simple_begin(&s, 1, 1, 1, 1);
	first = s.turn;
	turn_write(&first);
	ck_good(dhs_session_evict(s.rig.context, s.history[0].id, &fence));
	turn_commit(&first);
	ck_code(dhs_fence_query(s.rig.context, fence, &passed), DHS_ERR_PENDING);
	simple_begin(&s, 2, 1, 1, 1);
	rig_sync(&s.rig);
	ck_good(dhs_fence_query(s.rig.context, fence, &passed));
	ck_assert_int_eq(passed, 1);
	turn_write(&s.turn);
	turn_commit(&s.turn);
	turn_settle(&first);
	turn_settle(&s.turn);
	history_verify(&s.table, &s.history[0]);
	simple_close(&s);
}
END_TEST

/* Steps of one batch with other sessions on another stream follow each other. */
START_TEST(test_batch_on_two_streams)
{
	struct simple s;
	struct turn turn[2];
	struct dice dice = { (uint64_t)_i };
	uint32_t steps = 2 + support_times(40);

	simple_open(&s, 1 + (uint64_t)_i, DHS_POLICY_FIXED, 4, 2, 8);
	for (uint32_t i = 0; i < steps; i++) {
		struct turn *now = &turn[i % 2];

		if (i >= 2)
			turn_settle(now);
		turn_open(now, &s.table);
		now->stream = i % 2 == 0 ? s.rig.stream : s.rig.side;
		for (uint32_t e = 0; e < 2; e++)
			turn_add(now, &s.history[i % 2 * 2 + e], 2, 2, dice_below(&dice, 3));
		turn_begin(now);
		turn_write(now);
		turn_resolve_all(now, turn_wild(now, &dice));
		turn_commit(now);
	}
	turn_settle(&turn[steps % 2]);
	turn_settle(&turn[(steps + 1) % 2]);
	for (uint32_t i = 0; i < 4; i++)
		history_verify(&s.table, &s.history[i]);
	simple_close(&s);
}
END_TEST

/* A wait brings the counters of all that was enqueued, however late it runs. */
START_TEST(test_wait_counts)
{
	struct simple s;
	dhs_stats stats;
	uint64_t selected = 0;

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 3, 2, 8);
	for (uint32_t i = 0; i < 12; i++) {
		simple_begin(&s, 3, 1, 2, 1);
		turn_write(&s.turn);
		turn_resolve_all(&s.turn, turn_wild(&s.turn, &(struct dice){ i }));
		turn_end(&s.turn);
		selected += 2 * 3 * 2 * 8;
		if (i % 3 == 1)
			continue;
		ck_good(dhs_context_wait(s.rig.context));
		stats = rig_stats(&s.rig);
		ck_assert_uint_eq(stats.page_hits + stats.hot_hits + stats.misses + stats.repeats +
		                      stats.bad_rows,
		                  selected);
		ck_assert_uint_eq(stats.plans, 6 * (i + 1));
		ck_assert_uint_eq(stats.mirrored_rows, 40 + 41 + 42 + 3 * (i + 1));
	}
	simple_close(&s);
}
END_TEST

/* A batch goes while its last step is still on its way. */
START_TEST(test_destroy_late_batch)
{
	struct simple s;
	struct table table;
	struct dice dice = { (uint64_t)_i };

	simple_open(&s, 1 + (uint64_t)_i, DHS_POLICY_FIXED, 3, 2, 8);
	for (uint32_t i = 0; i < 8; i++) {
		table_open(&s.rig, &table, 3, 2, 9);
		for (uint32_t steps = 0; steps < 2; steps++) {
			turn_open(&s.turn, &table);
			for (uint32_t e = 0; e < 3; e++)
				turn_add(&s.turn, &s.history[e], 1, 2, 1);
			turn_begin(&s.turn);
			turn_write(&s.turn);
			turn_resolve_all(&s.turn, turn_wild(&s.turn, &dice));
			turn_end(&s.turn);
		}
		table_close(&table);
	}
	for (uint32_t e = 0; e < 3; e++)
		history_verify(&s.table, &s.history[e]);
	simple_close(&s);
}
END_TEST

/* ---- abort ---------------------------------------------------------------- */

START_TEST(test_abort)
{
	struct simple s;
	struct dice dice = { (uint64_t)_i };

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 3, 2, 8);
	for (uint32_t i = 0; i < 40; i++) {
		simple_begin(&s, 3, 2, 2, 1);
		if (i % 4 != 0)
			turn_write(&s.turn);
		if (i % 4 > 1)
			turn_resolve_all(&s.turn, turn_wild(&s.turn, &dice));
		if (i % 4 < 3)
			turn_abort(&s.turn);
		else
			turn_end(&s.turn);
	}
	for (uint32_t e = 0; e < 3; e++)
		history_verify(&s.table, &s.history[e]);
	simple_close(&s);
}
END_TEST

START_TEST(test_abort_order)
{
	struct simple s;
	struct turn first;

	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 2, 1, 8);
	simple_begin(&s, 1, 1, 0, 1);
	first = s.turn;
	turn_write(&first);
	turn_commit(&first);
	simple_begin(&s, 2, 1, 0, 1);
	turn_abort(&s.turn); /* before the first has settled */
	turn_settle(&first);
	ck_assert_uint_eq(rig_info(&s.rig, s.history[0].id).rows, 41);
	ck_assert_uint_eq(rig_info(&s.rig, s.history[1].id).rows, 41);
	history_verify(&s.table, &s.history[0]);
	simple_close(&s);
}
END_TEST

/* ---- residence ------------------------------------------------------------ */

static int all_resident(struct simple *s)
{
	int resident = 99;

	simple_begin(s, 2, 0, 0, 0);
	ck_good(dhs_step_all_resident(s->table.batch, &resident));
	turn_end(&s->turn);
	return resident;
}

START_TEST(test_all_resident)
{
	struct simple s;

	simple_open(&s, 0, DHS_POLICY_FULL, 2, 1, 8);
	ck_assert_int_eq(all_resident(&s), 1);
	simple_close(&s);
	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 2, 1, 8);
	ck_assert_int_eq(all_resident(&s), 1);
	ck_good(dhs_session_evict(s.rig.context, s.history[1].id, NULL));
	ck_assert_int_eq(all_resident(&s), 0);
	history_verify(&s.table, &s.history[1]);
	simple_close(&s);
	simple_open(&s, 0, DHS_POLICY_FIXED, 2, 1, 8);
	ck_assert_int_eq(all_resident(&s), 0);
	history_truncate(&s.rig, &s.history[0], 0);
	history_truncate(&s.rig, &s.history[1], 0);
	ck_assert_int_eq(all_resident(&s), 1);
	simple_close(&s);
}
END_TEST

/* A selection that is all page hits leaves the hot cache alone. */
START_TEST(test_page_hits_only)
{
	struct simple s;
	dhs_stats stats;

	simple_open(&s, 0, DHS_POLICY_ADAPTIVE, 2, 2, 8);
	history_verify(&s.table, &s.history[0]);
	history_verify(&s.table, &s.history[1]);
	stats = settled_stats(&s.rig);
	ck_assert_uint_eq(stats.page_hits, 2 * (40 + 41));
	ck_assert_uint_eq(stats.misses + stats.hot_hits + stats.fetched_bytes, 0);
	simple_close(&s);
}
END_TEST

/* Hot slots hold their rows until the session's next plan of the group, in any
 * batch. */
START_TEST(test_hot_across_batches)
{
	struct simple s;
	struct table other;
	dhs_stats before;

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 2, 1, 8);
	table_open(&s.rig, &other, 1, 1, 8);
	simple_begin(&s, 1, 0, 1, 0);
	turn_resolve_all(&s.turn, first_rows(&s.turn, 0, 8));
	turn_end(&s.turn);
	rig_sync(&s.rig);
	before = settled_stats(&s.rig);
	turn_open(&s.turn, &other);
	turn_add(&s.turn, &s.history[0], 0, 1, 0);
	turn_begin(&s.turn);
	turn_resolve_all(&s.turn, first_rows(&s.turn, 0, 8));
	turn_end(&s.turn);
	rig_sync(&s.rig);
	ck_assert_uint_eq(settled_stats(&s.rig).hot_hits, before.hot_hits + 16);
	table_close(&other);
	simple_close(&s);
}
END_TEST

/* The default stream, on a device of the context's own. */
START_TEST(test_private_device)
{
	struct rig rig;
	dhs_context *context = NULL;
	dhs_session session = 0;
	dhs_batch *batch = NULL;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_selection selection = DHS_INIT(dhs_selection);
	dhs_step_entry entry = { 0, 1, 1 };
	dhs_step step = 0;
	int32_t slots[30], rows[8] = { 0, 1, 2, 3, 19, 20, 21, -1 };
	uint32_t kept[1] = { 1 };

	rig_default(&rig);
	rig.options.backend = DHS_BACKEND_HOST;
	rig.options.host = NULL;
	rig.options.policy = DHS_POLICY_FIXED;
	ck_good(dhs_context_create(&rig.options, &context));
	rig.context = context;
	ck_good(dhs_session_create(context, NULL, &session));
	ck_good(dhs_session_extend(context, session, 20, NULL, slots));
	ck_good(dhs_session_commit(context, session, 20, NULL));
	options.top_k = 8;
	ck_good(dhs_batch_create(context, &options, &batch));
	entry.session = session;
	ck_good(dhs_step_begin(batch, &entry, 1, sizeof(entry), NULL, &step));
	ck_good(dhs_step_slots(batch, 1, 1, slots, NULL));
	selection.sessions = 1;
	selection.rows = selection.slots = rows;
	ck_good(dhs_step_resolve(batch, 0, &selection, NULL));
	ck_good(dhs_step_end(context, step, kept, 1));
	ck_good(dhs_context_wait(context));
	for (uint32_t i = 0; i < 6; i++)
		ck_assert_int_ge(rows[i], 0);
	ck_assert_int_eq(rows[6], -1);
	ck_assert_int_eq(rows[7], -1);
	ck_assert_int_eq(rows[5], slots[0]);
	dhs_context_destroy(context);
	ck_assert_uint_eq(memory_live(&rig.memory), 0);
}
END_TEST

/* Steps on two streams, one after the other: begin makes its stream wait. */
START_TEST(test_streams_change)
{
	struct simple s;
	struct dice dice = { (uint64_t)_i };
	struct table other;

	simple_open(&s, (uint64_t)_i, DHS_POLICY_FIXED, 3, 2, 8);
	table_open(&s.rig, &other, 4, 2, 8);
	for (uint32_t i = 0; i < 40; i++) {
		turn_open(&s.turn, dice_below(&dice, 2) == 0 ? &other : &s.table);
		s.turn.stream = dice_below(&dice, 2) == 0 ? s.rig.side : s.rig.stream;
		for (uint32_t e = 0; e < 3; e++)
			turn_add(&s.turn, &s.history[e], 2, 2, dice_below(&dice, 3));
		turn_begin(&s.turn);
		turn_write(&s.turn);
		turn_resolve_all(&s.turn, turn_wild(&s.turn, &dice));
		turn_commit(&s.turn);
		turn_settle(&s.turn);
	}
	rig_sync(&s.rig);
	ck_good(dhs_context_wait(s.rig.context));
	table_close(&other);
	simple_close(&s);
}
END_TEST

static TCase *rule_case(bool in_pool)
{
	TCase *rule = support_case("rule", in_pool);

	tcase_set_timeout(rule, support_seconds(30));
	tcase_add_loop_test(rule, test_rule_random, 0, 10);
	tcase_add_test(rule, test_rule_by_hand);
	return rule;
}

static TCase *selection_case(bool in_pool)
{
	TCase *selection = support_case("selection", in_pool);

	tcase_set_timeout(selection, support_seconds(30));
	tcase_add_loop_test(selection, test_in_place, 0, 5);
	tcase_add_test(selection, test_smaller_shapes);
	tcase_add_test(selection, test_too_small_shapes);
	tcase_add_loop_test(selection, test_pads, 0, 2);
	tcase_add_test(selection, test_pads_by_default);
	tcase_add_loop_test(selection, test_empty_steps, 0, 3);
	tcase_add_test(selection, test_no_queries);
	tcase_add_test(selection, test_union);
	tcase_add_test(selection, test_all_resident);
	tcase_add_test(selection, test_page_hits_only);
	tcase_add_loop_test(selection, test_hot_across_batches, 0, 5);
	return selection;
}

static TCase *fetch_case(bool in_pool)
{
	TCase *fetch = support_case("fetch", in_pool);

	tcase_set_timeout(fetch, support_seconds(30));
	tcase_add_test(fetch, test_unfinished_plans);
	tcase_add_loop_test(fetch, test_fetch_in_pieces, 0, 5);
	tcase_add_loop_test(fetch, test_fetch_forked, 0, 10);
	tcase_add_loop_test(fetch, test_staging_buffers, 0, 8);
	tcase_add_test(fetch, test_fetch_too_late);
	tcase_add_loop_test(fetch, test_fetch_within_buffers, 0, 5);
	tcase_add_test(fetch, test_fetch_without_plan);
	tcase_add_test(fetch, test_without_step);
	tcase_add_test(fetch, test_after_commit);
	return fetch;
}

static TCase *commit_case(bool in_pool)
{
	TCase *commit = support_case("commit", in_pool);

	tcase_set_timeout(commit, support_seconds(30));
	tcase_add_test(commit, test_kept_clipped);
	tcase_add_loop_test(commit, test_kept_all, 0, 5);
	tcase_add_test(commit, test_mirrored);
	tcase_add_test(commit, test_view);
	tcase_add_loop_test(commit, test_two_in_flight, 0, 30);
	tcase_add_test(commit, test_begin_marks_end);
	tcase_add_loop_test(commit, test_batch_on_two_streams, 0, 20);
	tcase_add_loop_test(commit, test_wait_counts, 0, 12);
	tcase_add_loop_test(commit, test_destroy_late_batch, 0, 12);
	tcase_add_test(commit, test_steps_counted);
	tcase_add_test(commit, test_mismatch);
	tcase_add_loop_test(commit, test_abort, 0, 10);
	tcase_add_test(commit, test_abort_order);
	tcase_add_test(commit, test_private_device);
	tcase_add_loop_test(commit, test_streams_change, 0, 20);
	return commit;
}

static void add_cases(Suite *suite, bool in_pool)
{
	suite_add_tcase(suite, rule_case(in_pool));
	suite_add_tcase(suite, selection_case(in_pool));
	suite_add_tcase(suite, fetch_case(in_pool));
	suite_add_tcase(suite, commit_case(in_pool));
}

int main(void)
{
	Suite *suite = suite_create("step");

	support_both(suite, add_cases);
	return support_run(suite);
}
