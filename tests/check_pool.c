/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Pools: the engine's own, whose pages are lent and taken; fences; reserved
 * pages; that one page has one owner. */
#include "support.h"

static void open_engine(struct rig *rig, uint64_t seed, uint32_t pages)
{
	rig_default(rig);
	rig->seed = seed;
	rig->engine_pool = true;
	rig->options.device_pages = pages;
	rig_open(rig);
}

/* ---- who owns what -------------------------------------------------------- */

START_TEST(test_unlent_is_reserved)
{
	struct rig rig;
	int32_t page = 7;
	dhs_session session = 99;

	rig_default(&rig);
	rig.engine_pool = true;
	rig_open(&rig);
	ck_assert_uint_eq(rig_stats(&rig).pages_reserved, 1);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 63);
	dhs_context_destroy(rig.context);
	ck_good(dhs_context_create(&rig.options, &rig.context));
	ck_assert_uint_eq(rig_stats(&rig).pages_reserved, 64);
	ck_code(dhs_session_create(rig.context, NULL, &session), DHS_ERR_DEVICE_MEMORY);
	for (page = 7; page < 12; page++)
		ck_good(dhs_lend_pages(rig.context, &page, 1, rig.stream));
	ck_assert_uint_eq(rig_stats(&rig).pages_reserved, 59);
	ck_good(dhs_session_create(rig.context, NULL, &session));
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 0);
	rig_close(&rig);
}
END_TEST

/* Slots come only from pages that are lent. */
START_TEST(test_lent_only)
{
	struct rig rig;
	struct history history;
	int32_t slots[40], pages[20];

	rig_default(&rig);
	rig.engine_pool = true;
	rig_open(&rig);
	dhs_context_destroy(rig.context);
	ck_good(dhs_context_create(&rig.options, &rig.context));
	for (int32_t i = 0; i < 20; i++)
		pages[i] = 63 - 3 * i;
	ck_good(dhs_lend_pages(rig.context, pages, 20, rig.stream));
	history_open(&rig, &history);
	ck_good(dhs_session_extend(rig.context, history.id, 40, rig.stream, slots));
	for (uint32_t i = 0; i < 40; i++) {
		ck_assert_int_eq(slots[i] / 4 % 3, 0);
		ck_assert_int_ge(slots[i] / 4, 6);
	}
	rig_close(&rig);
}
END_TEST

static int by_number(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

START_TEST(test_take_all)
{
	struct rig rig;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken = 99;

	open_engine(&rig, (uint64_t)_i, 64);
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &taken));
	ck_assert_uint_eq(taken, 63);
	qsort(pages, taken, sizeof(pages[0]), by_number);
	for (int32_t i = 0; i < 63; i++)
		ck_assert_int_eq(pages[i], i + 1);
	ck_assert_uint_eq(rig_stats(&rig).pages_reserved, 64);
	for (size_t i = 0; i < taken; i++)
		ck_good(dhs_fence_sync(rig.context, fences[i]));
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &taken));
	ck_assert_uint_eq(taken, 0);
	rig_close(&rig);
}
END_TEST

/* Free pages come first, and cost no session anything. */
START_TEST(test_take_free_first)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken = 99;

	open_engine(&rig, (uint64_t)_i, 64);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60); /* 5 required, 14 optional */
	ck_good(dhs_take_pages(rig.context, 63 - 19, pages, fences, &taken));
	ck_assert_uint_eq(taken, 63 - 19);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 0);
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, 0);
	ck_assert_uint_eq(rig_info(&rig, history.id).resident_pages, 14);
	ck_good(dhs_lend_pages(rig.context, pages, taken, rig.stream));
	table_open(&rig, &table, 1, 1, 8);
	history_verify(&table, &history);
	rig_sync(&rig);
	ck_good(dhs_context_wait(rig.context));
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- order: what the engine writes in pages it lends and takes ------------ */

struct scribble {
	struct rig *rig;
	int32_t pages[64];
	size_t count;
	uint32_t stamp;
};

/* The engine's own use of its pages. */
static void scribble_kernel(void *copy)
{
	const struct scribble *s = copy;

	for (size_t i = 0; i < s->count; i++)
		for (int32_t row = 0; row < 4; row++)
			stamp_write(s->rig, s->pages[i] * 4 + row, s->stamp);
}

static void check_scribble_kernel(void *copy)
{
	const struct scribble *s = copy;

	for (size_t i = 0; i < s->count; i++)
		for (int32_t row = 0; row < 4; row++)
			if (!stamp_is(s->rig, s->pages[i] * 4 + row, s->stamp, 0, 3))
				rig_wrong(s->rig, "page %d is not the engine's", s->pages[i]);
}

/* Pages go back and forth between the engine on one stream and sessions on the
 * other; each finds only its own bytes. */
static void borrow(struct rig *rig, struct dice *dice, uint32_t most)
{
	struct scribble s = { .rig = rig, .stamp = rig->next_stamp++ };
	dhs_fence fences[64];

	ck_good(dhs_take_pages(rig->context, dice_below(dice, most), s.pages, fences, &s.count));
	for (size_t i = 0; i < s.count; i++)
		ck_good(dhs_fence_wait(rig->context, fences[i], rig->side));
	rig_launch(rig, rig->side, scribble_kernel, &s, sizeof(s));
	rig_launch(rig, rig->side, check_scribble_kernel, &s, sizeof(s));
	ck_good(dhs_lend_pages(rig->context, s.pages, s.count, rig->side));
}

START_TEST(test_lend_in_order)
{
	struct rig rig;
	struct history history[3];
	struct table table;
	struct turn turn;
	struct dice dice = { (uint64_t)_i };

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig.engine_pool = true;
	rig.options.device_pages = 61;
	rig.options.backup = _i % 2 == 0 ? DHS_BACKUP_EAGER : DHS_BACKUP_RECLAIM;
	rig_open(&rig);
	table_open(&rig, &table, 3, 2, 8);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&rig, &history[i]);
	for (uint32_t i = 0; i < support_times(80); i++) {
		struct history *h = &history[dice_below(&dice, 3)];

		borrow(&rig, &dice, 30);
		if (h->rows < 100)
			history_prefill(&rig, h, dice_below(&dice, 20));
		borrow(&rig, &dice, 10);
		if (dice_below(&dice, 4) == 0)
			ck_good(dhs_session_evict(rig.context, h->id, NULL));
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
	ck_good(dhs_context_wait(rig.context));
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- pages of live sessions, in the middle of steps ------------------------ */

/* Two sessions of 60 and 40 rows (14 and 9 optional pages), none of the pool's free, and
 * the pages of their rows. */
struct load {
	struct rig rig;
	struct history history[2];
	struct table table;
	struct turn turn;
	int32_t slots[2][60];
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken;
};

static void load_fill(struct load *l, uint32_t i, uint32_t rows)
{
	struct history *h = &l->history[i];

	history_open(&l->rig, h);
	ck_good(dhs_session_extend(l->rig.context, h->id, rows, l->rig.stream, l->slots[i]));
	for (uint32_t row = 0; row < rows; row++) {
		h->stamp[row] = l->rig.next_stamp++;
		stamp_write(&l->rig, l->slots[i][row], h->stamp[row]);
	}
	ck_good(dhs_session_commit(l->rig.context, h->id, rows, l->rig.stream));
	h->rows = h->settled = rows;
}

static void load_take_free(struct load *l)
{
	while (rig_stats(&l->rig).pages_free)
		ck_good(dhs_take_pages(l->rig.context, rig_stats(&l->rig).pages_free, l->pages, l->fences,
		                       &l->taken));
}

static void load_open(struct load *l, uint64_t seed, int reclaim)
{
	memset(l, 0, sizeof(*l));
	rig_default(&l->rig);
	l->rig.seed = seed;
	l->rig.engine_pool = true;
	l->rig.options.backup = reclaim ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	l->rig.options.device_pages = 1 + 19 + 14 + 14; /* the last: staging of the table */
	rig_open(&l->rig);
	load_fill(l, 0, 60);
	load_fill(l, 1, 40);
	table_open(&l->rig, &l->table, 2, 2, 16);
	load_take_free(l);
	ck_assert_uint_eq(rig_info(&l->rig, l->history[0].id).resident_pages, 14);
	ck_assert_uint_eq(rig_info(&l->rig, l->history[1].id).resident_pages, 9);
}

/* Asserts that pages `from` on are pages `first` on of session i, in that order. */
static void load_came(const struct load *l, size_t from, uint32_t i, uint32_t first, uint32_t count)
{
	for (uint32_t p = 0; p < count; p++)
		ck_assert_int_eq(l->pages[from + p], l->slots[i][(first + p) * 4] / 4);
}

/* The engine's own work on what it took, behind the fences. */
static void load_write(struct load *l)
{
	struct scribble s = { .rig = &l->rig, .count = 1, .stamp = l->rig.next_stamp++ };

	for (size_t i = 0; i < l->taken; i++) {
		s.pages[0] = l->pages[i];
		ck_good(dhs_fence_wait(l->rig.context, l->fences[i], l->rig.side));
		rig_launch(&l->rig, l->rig.side, scribble_kernel, &s, sizeof(s));
		rig_launch(&l->rig, l->rig.side, check_scribble_kernel, &s, sizeof(s));
	}
}

static void load_pending(const struct load *l, size_t from, size_t to, int code)
{
	int passed;

	for (size_t i = from; i < to; i++)
		ck_code(dhs_fence_query(l->rig.context, l->fences[i], &passed), code);
}

static void load_close(struct load *l)
{
	for (uint32_t i = 0; i < 2; i++)
		if (l->history[i].id)
			history_verify(&l->table, &l->history[i]);
	rig_sync(&l->rig);
	ck_good(dhs_context_wait(l->rig.context));
	table_close(&l->table);
	rig_close(&l->rig);
}

/* The session with most optional pages gives first, its lowest page first, and no more
 * than is wanted; it goes on until it has none. */
START_TEST(test_take_optional)
{
	struct load l;

	load_open(&l, (uint64_t)_i / 2, _i % 2);
	ck_good(dhs_take_pages(l.rig.context, 6, l.pages, l.fences, &l.taken));
	ck_assert_uint_eq(l.taken, 6);
	load_came(&l, 0, 0, 0, 6);
	ck_assert_uint_eq(rig_info(&l.rig, l.history[0].id).resident_pages, 8);
	ck_assert_uint_eq(rig_info(&l.rig, l.history[0].id).host_only_rows, 24);
	ck_assert_uint_eq(rig_stats(&l.rig).evicted_pages, 6);
	ck_assert_uint_eq(rig_stats(&l.rig).backup_rows, _i % 2 ? 24 : 0);
	load_write(&l);
	/* Now the other one has more: all of it, then of the first. */
	ck_good(dhs_take_pages(l.rig.context, 11, l.pages, l.fences, &l.taken));
	ck_assert_uint_eq(l.taken, 11);
	load_came(&l, 0, 1, 0, 9);
	load_came(&l, 9, 0, 6, 2);
	load_write(&l);
	/* What is required stays. */
	ck_good(dhs_take_pages(l.rig.context, 64, l.pages, l.fences, &l.taken));
	ck_assert_uint_eq(l.taken, 6);
	load_write(&l);
	ck_good(dhs_take_pages(l.rig.context, 64, l.pages, l.fences, &l.taken));
	ck_assert_uint_eq(l.taken, 0);
	ck_assert_uint_eq(rig_stats(&l.rig).evicted_pages, 23);
	load_close(&l);
}
END_TEST

/* Between begin and settle: a page that the step reads is the engine's after the step's
 * end, which is pending until it is recorded; another session's is at once. */
START_TEST(test_take_in_step)
{
	struct load l;
	int32_t *rows;

	load_open(&l, (uint64_t)_i / 2, _i % 2);
	turn_open(&l.turn, &l.table);
	turn_add(&l.turn, &l.history[0], 1, 2, 1);
	turn_begin(&l.turn);
	ck_good(dhs_take_pages(l.rig.context, 14 + 9, l.pages, l.fences, &l.taken));
	ck_assert_uint_eq(l.taken, 14 + 9);
	load_came(&l, 0, 0, 0, 14);
	load_came(&l, 14, 1, 0, 9);
	load_pending(&l, 0, 14, DHS_ERR_PENDING);
	load_pending(&l, 14, 23, DHS_OK);
	/* The engine cannot lend them yet either. */
	ck_told(dhs_lend_pages(l.rig.context, &l.pages[3], 1, l.rig.side), DHS_ERR_PENDING, "pages[0]",
	        NULL);
	turn_write(&l.turn);
	rows = turn_blank(&l.turn);
	for (uint32_t i = 0; i < 32; i++)
		rows[i] = (int32_t)i;
	turn_resolve_all(&l.turn, rows);
	turn_end(&l.turn);
	load_pending(&l, 0, 23, DHS_OK);
	load_write(&l);
	load_close(&l);
}
END_TEST

/* The same with an extension in flight: its session's pages are pending until its commit. */
START_TEST(test_take_in_extension)
{
	struct load l;
	int32_t slots[4];

	load_open(&l, (uint64_t)_i / 2, _i % 2);
	ck_good(dhs_session_extend(l.rig.context, l.history[0].id, 4, l.rig.stream, slots));
	ck_good(dhs_take_pages(l.rig.context, 3, l.pages, l.fences, &l.taken));
	ck_assert_uint_eq(l.taken, 3);
	load_pending(&l, 0, 3, DHS_ERR_PENDING);
	ck_good(dhs_session_commit(l.rig.context, l.history[0].id, 0, l.rig.stream));
	load_pending(&l, 0, 3, DHS_OK);
	load_write(&l);
	load_close(&l);
}
END_TEST

/* Pages that drain come last, each with its step's end. */
START_TEST(test_take_draining)
{
	struct load l;

	load_open(&l, (uint64_t)_i / 2, _i % 2);
	turn_open(&l.turn, &l.table);
	turn_add(&l.turn, &l.history[0], 1, 2, 1);
	turn_begin(&l.turn);
	ck_good(dhs_session_evict(l.rig.context, l.history[0].id, NULL));
	ck_assert_uint_eq(rig_stats(&l.rig).pages_draining, 14);
	ck_good(dhs_take_pages(l.rig.context, 12, l.pages, l.fences, &l.taken));
	ck_assert_uint_eq(l.taken, 12);
	load_came(&l, 0, 1, 0, 9);
	load_came(&l, 9, 0, 0, 3);
	load_pending(&l, 0, 9, DHS_OK);
	load_pending(&l, 9, 12, DHS_ERR_PENDING);
	ck_assert_uint_eq(rig_stats(&l.rig).pages_draining, 11);
	turn_write(&l.turn);
	turn_resolve_all(&l.turn, turn_wild(&l.turn, &(struct dice){ (uint64_t)_i }));
	turn_end(&l.turn);
	ck_assert_uint_eq(rig_stats(&l.rig).pages_free, 11);
	load_write(&l);
	load_close(&l);
}
END_TEST

/* Pages that the engine took and lends again without a look at their fences: what the
 * library writes there comes after their readers and copies all the same. */
START_TEST(test_lend_at_once)
{
	struct load l;
	struct history *h = l.history;
	int32_t *rows;

	load_open(&l, (uint64_t)_i / 2, _i % 2);
	turn_open(&l.turn, &l.table);
	turn_add(&l.turn, &h[0], 1, 2, 1);
	turn_begin(&l.turn);
	turn_write(&l.turn);
	ck_good(dhs_take_pages(l.rig.context, 14, l.pages, l.fences, &l.taken));
	rows = turn_blank(&l.turn);
	for (uint32_t i = 0; i < 32; i++)
		rows[i] = (int32_t)i;
	turn_resolve_all(&l.turn, rows);
	turn_end(&l.turn);
	ck_good(dhs_lend_pages(l.rig.context, l.pages, 14, l.rig.side));
	history_prefill(&l.rig, &h[1], 56);
	load_close(&l);
}
END_TEST

/* Where memory for fences runs out, what came so far is the engine's, and nothing else has
 * changed. */
START_TEST(test_take_without_memory)
{
	uint32_t refused = 0, fewer = 0;

	for (uint64_t n = 1; n < 12; n++) {
		struct load l;
		dhs_stats before, after;
		int rc;

		load_open(&l, (uint64_t)_i / 2, _i % 2);
		turn_open(&l.turn, &l.table);
		turn_add(&l.turn, &l.history[0], 1, 2, 1);
		turn_begin(&l.turn);
		before = rig_stats(&l.rig);
		l.taken = 99;
		memory_arm(&l.rig.memory, n, true);
		rc = dhs_take_pages(l.rig.context, 23, l.pages, l.fences, &l.taken);
		memory_disarm(&l.rig.memory);
		after = rig_stats(&l.rig);
		if (rc) {
			ck_assert_int_eq(rc, DHS_ERR_HOST_MEMORY);
			ck_assert_uint_eq(l.taken, 99);
			l.taken = 0;
		}
		refused += rc != 0;
		fewer += l.taken && l.taken < 23;
		ck_assert_uint_eq(after.evicted_pages, before.evicted_pages + l.taken);
		ck_assert_uint_eq(after.pages_reserved, before.pages_reserved + l.taken);
		ck_assert_uint_eq(after.pages_resident, before.pages_resident - l.taken);
		turn_write(&l.turn);
		turn_resolve_all(&l.turn, turn_wild(&l.turn, &(struct dice){ n }));
		turn_end(&l.turn);
		load_write(&l);
		load_close(&l);
	}
	if (_i % 2) /* else no fence needs memory */
		ck_assert_uint_gt(refused + fewer, 0);
}
END_TEST

/* A session that has elastic pages, of those that an eviction has just freed: each of these
 * waits for a step and for a copy. */
static void elastic_open(struct load *l)
{
	dhs_fence fence;

	memset(l, 0, sizeof(*l));
	rig_default(&l->rig);
	l->rig.seed = 1;
	l->rig.engine_pool = true;
	l->rig.options.backup = DHS_BACKUP_RECLAIM;
	l->rig.options.flags |= DHS_CONTEXT_REFILL; /* no bytes for history, but a tick fills */
	rig_open(&l->rig);
	load_fill(l, 0, 60);
	load_fill(l, 1, 40);
	table_open(&l->rig, &l->table, 1, 1, 12);
	ck_good(dhs_session_evict(l->rig.context, l->history[0].id, &fence));
	for (uint32_t i = 0; i < 40; i++) {
		int32_t rows[12];

		for (uint32_t k = 0; k < 12; k++)
			rows[k] = (int32_t)((i + k) % 40);
		turn_one(&l->table, &l->history[0], 0, 0, rows, 1);
	}
	turn_one(&l->table, &l->history[1], 0, 0, NULL, 1);
	load_take_free(l);
	ck_good(dhs_session_evict(l->rig.context, l->history[1].id, NULL));
	ck_good(dhs_context_advance(l->rig.context));
	load_take_free(l);
}

/* Lends and takes until no memory is at hand for what a stream's work needs. */
static void use_up_works(struct load *l)
{
	memory_arm(&l->rig.memory, 1, true);
	for (size_t i = 0; i < l->taken; i++)
		if (dhs_lend_pages(l->rig.context, &l->pages[i], 1, l->rig.side))
			break;
	while (rig_stats(&l->rig).pages_free)
		if (dhs_take_pages(l->rig.context, 1, l->pages, l->fences, &l->taken))
			break;
}

/* Also an elastic page stays where it is if its fence cannot be had. */
START_TEST(test_take_elastic_without_memory)
{
	struct load l;
	dhs_stats before, after;
	int rc;

	elastic_open(&l);
	ck_assert_uint_gt(rig_stats(&l.rig).pages_elastic, 0);
	use_up_works(&l);
	before = rig_stats(&l.rig);
	ck_assert_uint_eq(before.pages_free, 0);
	rc = dhs_take_pages(l.rig.context, 1, l.pages, l.fences, &l.taken);
	after = rig_stats(&l.rig);
	memory_disarm(&l.rig.memory);
	if (rc)
		ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert_int_eq(rc, DHS_ERR_HOST_MEMORY);
	load_close(&l);
}
END_TEST

/* Under fixed and full there is nothing optional. */
START_TEST(test_take_required)
{
	struct rig rig;
	struct history history;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken = 99;

	rig_default(&rig);
	rig.engine_pool = true;
	rig.options.policy = _i ? DHS_POLICY_FIXED : DHS_POLICY_FULL;
	rig.options.host_rows = _i ? rig.options.host_rows : 0;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60);
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &taken));
	ck_assert_uint_eq(taken, 63 - (_i ? 5 : 15));
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, 0);
	rig_close(&rig);
}
END_TEST

/* The engine's part: waits for the fence in one of three ways, then writes. */
static void take_and_write(struct rig *rig, int way)
{
	struct scribble s = { .rig = rig, .count = 1, .stamp = rig->next_stamp++ };
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken = 0;
	int passed = 0;

	ck_good(dhs_take_pages(rig->context, 64, pages, fences, &taken));
	for (size_t i = 0; i < taken; i++) {
		s.pages[0] = pages[i];
		if (way == 0) {
			ck_good(dhs_fence_sync(rig->context, fences[i]));
			scribble_kernel(&s);
		} else if (way == 1) {
			ck_good(dhs_fence_wait(rig->context, fences[i], rig->side));
			rig_launch(rig, rig->side, scribble_kernel, &s, sizeof(s));
		} else {
			do
				ck_good(dhs_fence_query(rig->context, fences[i], &passed));
			while (!passed);
			scribble_kernel(&s);
		}
	}
	ck_good(dhs_lend_pages(rig->context, pages, taken, rig->side));
}

/* Pages are taken with their copy and the step that reads them on their way. */
START_TEST(test_take_then_write)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;

	rig_default(&rig);
	rig.seed = 1 + (uint64_t)_i;
	rig.engine_pool = true;
	rig.options.backup = DHS_BACKUP_RECLAIM;
	rig_open(&rig);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 2, 8);
	for (uint32_t i = 0; i < 6; i++) {
		history_prefill(&rig, &history, 24);
		turn_open(&turn, &table);
		turn_add(&turn, &history, 2, 2, 1);
		turn_begin(&turn);
		turn_write(&turn);
		if (i % 2 == 0)
			ck_good(dhs_session_evict(rig.context, history.id, NULL));
		turn_resolve_all(&turn, turn_wild(&turn, &(struct dice){ i }));
		turn_end(&turn);
		if (i % 2 == 1)
			ck_good(dhs_session_evict(rig.context, history.id, NULL));
		take_and_write(&rig, _i % 3);
		history_verify(&table, &history);
	}
	rig_sync(&rig);
	ck_good(dhs_context_wait(rig.context));
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* The page that has been free for longest is taken. */
START_TEST(test_page_order)
{
	static const int32_t lent[] = { 5, 30, 3, 9, 1, 7, 22, 11 };
	struct rig rig;
	dhs_session session = 0;
	int32_t slots[8];

	rig_default(&rig);
	rig.engine_pool = true;
	rig.options.policy = DHS_POLICY_FULL;
	rig.options.host_rows = 0;
	rig_open(&rig);
	dhs_context_destroy(rig.context);
	ck_good(dhs_context_create(&rig.options, &rig.context));
	for (uint32_t i = 0; i < 4; i++)
		ck_good(dhs_lend_pages(rig.context, lent + 2 * i, 2, rig.stream));
	for (uint32_t i = 0; i < 12; i += 2) {
		int32_t first = lent[i % 8], second = lent[i % 8 + 1];

		ck_good(dhs_session_create(rig.context, NULL, &session));
		ck_good(dhs_session_extend(rig.context, session, 8, rig.stream, slots));
		if (slots[0] / 4 != first && i >= 8) { /* the two that came back together */
			first = second;
			second = lent[i % 8];
		}
		ck_assert_int_eq(slots[0] / 4, first);
		ck_assert_int_eq(slots[4] / 4, second);
		ck_good(dhs_session_commit(rig.context, session, 8, rig.stream));
		ck_good(dhs_session_destroy(rig.context, session));
	}
	rig_close(&rig);
}
END_TEST

/* ---- layouts of an engine's tensors --------------------------------------- */

/* One buffer for all layers, page by page. */
START_TEST(test_packed_pool)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t pages[48];
	char *buffer;

	rig_default(&rig);
	rig_open_host(&rig);
	buffer = rig_keep(&rig, (size_t)48 * 3 * 256);
	rig.segment[0].page_stride = 3 * 256;
	rig.options.device_pages = 48;
	rig.pool = rig_keep(&rig, 3 * sizeof(void *));
	rig.place = rig_keep(&rig, 3 * sizeof(dhs_place));
	for (uint32_t l = 0; l < 3; l++)
		rig.pool[l] = buffer + 256 * l;
	rig_use_pool(&rig, rig.pool);
	ck_good(dhs_context_create(&rig.options, &rig.context));
	for (uint32_t l = 0; l < 3; l++) {
		rig.place[l].size = sizeof(dhs_place);
		ck_good(dhs_context_place(rig.context, l, 0, &rig.place[l]));
		ck_assert_ptr_eq(rig.place[l].base, buffer + 256 * l);
		ck_assert_uint_eq(rig.place[l].page_stride, 768);
		ck_assert_uint_eq(rig.place[l].row_stride, 64);
		ck_assert_uint_eq(rig.place[l].bytes, 64);
		ck_assert_uint_eq(rig.place[l].page_rows, 4);
	}
	for (int32_t i = 0; i < 48; i++)
		pages[i] = i;
	ck_good(dhs_lend_pages(rig.context, pages, 48, rig.stream));
	history_open(&rig, &history);
	history_prefill(&rig, &history, 80);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	table_open(&rig, &table, 1, 1, 16);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Bases at any multiple of four bytes; rows, scales and records of odd widths. */
START_TEST(test_skewed_pool)
{
	static const uint32_t bytes[] = { 16, 20, 24, 40, 64, 656, 1152 };
	struct dice dice = { 1 };

	for (uint32_t i = 0; i < COUNT_OF(bytes); i++) {
		struct rig rig;
		struct history history;
		struct table table;

		rig_default(&rig);
		rig.engine_pool = true;
		rig.pool_skew = 4 * (uint32_t)_i;
		rig.segment[0].bytes = bytes[i];
		rig.segment[1].bytes = 4 + 4 * dice_below(&dice, 5);
		rig.layout.segments = 1 + dice_below(&dice, 2);
		rig_open(&rig);
		history_open(&rig, &history);
		history_prefill(&rig, &history, 61);
		ck_good(dhs_session_evict(rig.context, history.id, NULL));
		table_open(&rig, &table, 1, 2, 8);
		turn_one(&table, &history, 2, 2, NULL, 1);
		history_verify(&table, &history);
		table_close(&table);
		rig_close(&rig);
	}
}
END_TEST

/* The pool and its bases are the engine's; the library allocates none of it. */
START_TEST(test_engine_bytes)
{
	struct rig rig;
	dhs_required required = DHS_INIT(dhs_required);

	open_engine(&rig, 0, 64);
	ck_good(dhs_context_required(&rig.options, &required));
	ck_assert_uint_eq(required.pool_bytes, 0);
	ck_assert_uint_eq(rig.memory.bytes[DHS_MEMORY_DEVICE], required.device_bytes);
	rig_close(&rig);
}
END_TEST

/* ---- the library's pool --------------------------------------------------- */

static char *place_byte(const struct rig *rig, uint32_t layer, uint32_t segment, uint32_t page,
                        uint32_t row, uint32_t byte)
{
	const dhs_place *place = &rig->place[layer * rig->layout.segments + segment];

	return (char *)place->base + page * place->page_stride + row * place->row_stride + byte;
}

START_TEST(test_reserved_pages)
{
	struct rig rig;
	struct history history;
	struct table table;

	rig_default(&rig);
	rig.options.reserved_pages = 3;
	rig_open(&rig);
	ck_assert_uint_eq(rig_stats(&rig).pages_reserved, 3);
	for (uint32_t l = 0; l < 3; l++)
		for (uint32_t page = 0; page < 3; page++)
			for (uint32_t row = 0; row < 4; row++)
				for (uint32_t byte = 0; byte < 64; byte++)
					ck_assert_int_eq(*place_byte(&rig, l, 0, page, row, byte), 0);
	/* They are the engine's: what it writes there stays. */
	stamp_write(&rig, 0, 4711);
	stamp_write(&rig, 11, 4712);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 200);
	table_open(&rig, &table, 1, 2, 8);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	history_verify(&table, &history);
	ck_assert(stamp_is(&rig, 0, 4711, 0, 3));
	ck_assert(stamp_is(&rig, 11, 4712, 0, 3));
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* No two places of a pool share a byte, in no layout. */
static void check_places_apart(struct rig *rig)
{
	uint32_t stamp = 1;

	for (uint32_t slot = 0; slot < rig->options.device_pages * rig_page_rows(rig); slot++)
		stamp_write(rig, (int32_t)slot, stamp++);
	stamp = 1;
	for (uint32_t slot = 0; slot < rig->options.device_pages * rig_page_rows(rig); slot++)
		ck_assert(stamp_is(rig, (int32_t)slot, stamp++, 0, rig->layout.layers));
}

START_TEST(test_places)
{
	static const dhs_segment segments[][2] = {
		{ { 64, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 } },
		{ { 64, 0, 0, 0, 0 }, { 8, 0, 0, 0, 0 } },
		{ { 64, 0, 0, 0, 288 }, { 8, 0, 256, 0, 288 } },
		{ { 64, 0, 0, 80, 320 }, { 8, 0, 64, 80, 320 } },
		{ { 16, 0, 128, 0, 192 }, { 16, 0, 0, 32, 192 } },
	};
	struct rig rig;

	rig_default(&rig);
	memcpy(rig.segment, segments[_i], sizeof(segments[_i]));
	rig.layout.segments = segments[_i][1].bytes != 0 ? 2 : 1;
	rig_open(&rig);
	check_places_apart(&rig);
	for (uint32_t g = 0; g < rig.layout.segments; g++) {
		ck_assert_uint_eq(rig.place[g].bytes, segments[_i][g].bytes);
		ck_assert_uint_eq(rig.place[g].page_rows, 4);
		if (segments[_i][g].page_stride != 0)
			ck_assert_uint_eq(rig.place[g].page_stride, segments[_i][g].page_stride);
		ck_assert_uint_eq(rig.place[g].row_stride, segments[_i][g].row_stride != 0
		                                               ? segments[_i][g].row_stride
		                                               : segments[_i][g].bytes);
	}
	rig_close(&rig);
}
END_TEST

/* ---- fences --------------------------------------------------------------- */

START_TEST(test_fence_zero)
{
	struct rig rig;
	int passed = 0;

	rig_default(&rig);
	rig_open(&rig);
	ck_good(dhs_fence_wait(rig.context, 0, rig.stream));
	ck_good(dhs_fence_sync(rig.context, 0));
	ck_good(dhs_fence_query(rig.context, 0, &passed));
	ck_assert_int_eq(passed, 1);
	rig_close(&rig);
}
END_TEST

/* A fence says the truth about work that is late, and passes by itself. */
START_TEST(test_fence_late)
{
	uint32_t late = 0;

	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct rig rig;
		struct history history;
		dhs_fence fence = 0;
		int passed = 99;

		rig_default(&rig);
		rig.seed = seed;
		rig.options.backup = DHS_BACKUP_RECLAIM;
		rig_open(&rig);
		history_open(&rig, &history);
		history_prefill(&rig, &history, 100);
		ck_good(dhs_session_evict(rig.context, history.id, &fence));
		ck_good(dhs_fence_query(rig.context, fence, &passed));
		ck_assert(passed == 0 || passed == 1);
		late += passed == 0;
		ck_good(dhs_fence_sync(rig.context, fence));
		ck_good(dhs_fence_query(rig.context, fence, &passed));
		ck_assert_int_eq(passed, 1);
		rig_close(&rig);
	}
	ck_assert_uint_gt(late, 5);
}
END_TEST

/* Fences of long ago have passed: they don't die with what they stood for. */
START_TEST(test_fence_old)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_fence fence[20];
	int passed = 0;

	rig_default(&rig);
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 8);
	for (uint32_t i = 0; i < 20; i++) {
		history_open(&rig, &history);
		history_prefill(&rig, &history, 60);
		turn_one(&table, &history, 1, 1, NULL, 1);
		ck_good(dhs_session_evict(rig.context, history.id, &fence[i]));
		history_close(&rig, &history);
	}
	rig_sync(&rig);
	for (uint32_t i = 0; i < 20; i++) {
		ck_good(dhs_fence_query(rig.context, fence[i], &passed));
		ck_assert_int_eq(passed, 1);
	}
	table_close(&table);
	rig_close(&rig);
}
END_TEST

static void add_places(Suite *suite, bool in_pool)
{
	TCase *place = support_case("places", in_pool);

	tcase_set_timeout(place, support_seconds(30));
	tcase_add_test(place, test_reserved_pages);
	tcase_add_loop_test(place, test_places, 0, 5);
	tcase_add_test(place, test_fence_zero);
	tcase_add_test(place, test_fence_late);
	tcase_add_test(place, test_fence_old);
	suite_add_tcase(suite, place);
}

int main(void)
{
	Suite *suite = suite_create("pool");
	TCase *lend = tcase_create("lend and take");

	tcase_set_timeout(lend, support_seconds(30));
	tcase_add_test(lend, test_unlent_is_reserved);
	tcase_add_test(lend, test_lent_only);
	tcase_add_loop_test(lend, test_take_all, 0, 3);
	tcase_add_loop_test(lend, test_take_free_first, 0, 3);
	tcase_add_loop_test(lend, test_lend_in_order, 0, 20);
	tcase_add_loop_test(lend, test_take_optional, 0, 10);
	tcase_add_loop_test(lend, test_take_in_step, 0, 10);
	tcase_add_loop_test(lend, test_take_in_extension, 0, 10);
	tcase_add_loop_test(lend, test_take_draining, 0, 10);
	tcase_add_loop_test(lend, test_lend_at_once, 0, 30);
	tcase_add_loop_test(lend, test_take_without_memory, 0, 2);
	tcase_add_test(lend, test_take_elastic_without_memory);
	tcase_add_loop_test(lend, test_take_required, 0, 2);
	tcase_add_loop_test(lend, test_take_then_write, 0, 30);
	tcase_add_test(lend, test_page_order);
	tcase_add_test(lend, test_packed_pool);
	tcase_add_loop_test(lend, test_skewed_pool, 0, 5);
	tcase_add_test(lend, test_engine_bytes);
	suite_add_tcase(suite, lend);
	support_both(suite, add_places);
	return support_run(suite);
}
