/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Tables of sizes: history, top_k, hot cache, page and tail at each other's
 * size, one less and one more; rows of all sizes; selections of all kinds; and
 * what went wrong in the field. */
#include "support.h"

#include <sys/mman.h>
#include <sys/resource.h>

static dhs_stats waited(struct rig *rig)
{
	rig_sync(rig);
	ck_good(dhs_context_wait(rig->context));
	return rig_stats(rig);
}

static uint64_t entries_counted(const dhs_stats *s)
{
	return s->page_hits + s->hot_hits + s->misses + s->repeats + s->bad_rows;
}

/* Bytes of a table of numbers without repeats, ascending from `least`. */
static uint32_t add_number(uint32_t *numbers, uint32_t count, int64_t number, int64_t least)
{
	if (number < least)
		return count;
	for (uint32_t i = 0; i < count; i++)
		if (numbers[i] == (uint32_t)number)
			return count;
	numbers[count] = (uint32_t)number;
	return count + 1;
}

static uint32_t add_around(uint32_t *numbers, uint32_t count, int64_t number, int64_t least)
{
	for (int64_t by = -1; by <= 1; by++)
		count = add_number(numbers, count, number + by, least);
	return count;
}

/* ---- history, top_k, hot cache, page, tail -------------------------------- */

struct sizes {
	uint32_t page, top_k, hot, tail, policy;
};

/* Ends of the history first, then whatever turn_wild gives. */
static int32_t *edge_rows(struct turn *turn, struct dice *dice)
{
	const struct turn_entry *entry = &turn->entry[0];
	const dhs_batch_options *o = &turn->table->options;
	int32_t all = (int32_t)(entry->length + entry->new_rows);
	const int32_t edge[] = { all - 1, all, 0, -1, all - 1, (int32_t)entry->length, INT32_MIN };
	int32_t *rows = turn_wild(turn, dice);

	for (uint32_t i = 0; i < COUNT_OF(edge) && i < o->max_queries * o->top_k; i++)
		rows[i] = edge[i];
	return rows;
}

/* As many distinct rows as fit, from `from` on, around the end of the history. */
static int32_t *run_of_rows(struct turn *turn, uint64_t from)
{
	const dhs_batch_options *o = &turn->table->options;
	uint64_t all = turn->entry[0].length + turn->entry[0].new_rows;
	int32_t *rows = turn_blank(turn);

	for (uint32_t i = 0; all > 0 && i < o->max_queries * o->top_k; i++)
		rows[i] = (int32_t)((from + i) % all);
	return rows;
}

static void sizes_step(struct table *table, struct history *history, struct dice *dice,
                       uint32_t number)
{
	struct rig *rig = table->rig;
	dhs_stats before = waited(rig), after;
	struct turn turn;

	turn_open(&turn, table);
	turn_add(&turn, history, number % 3, 2, dice_below(dice, 3));
	turn_begin(&turn);
	turn_write(&turn);
	turn_resolve(&turn, 0, edge_rows(&turn, dice));
	turn_resolve(&turn, 1, run_of_rows(&turn, dice_below(dice, 64)));
	turn_end(&turn);
	after = waited(rig);
	ck_assert_uint_eq(entries_counted(&after) - entries_counted(&before), 4 * table->options.top_k);
	ck_assert_uint_eq(after.plans, before.plans + 2);
	ck_assert_uint_eq(after.order_errors, 0);
}

static void sizes_history(struct table *table, uint32_t rows, struct dice *dice)
{
	struct rig *rig = table->rig;
	struct history history;

	history_open(rig, &history);
	history_prefill(rig, &history, rows / 2);
	history_prefill(rig, &history, rows - rows / 2);
	if (rows % 2 == 0)
		ck_good(dhs_session_evict(rig->context, history.id, NULL));
	for (uint32_t i = 0; i < 3; i++)
		sizes_step(table, &history, dice, i);
	history_verify(table, &history);
	history_close(rig, &history);
}

static void sizes_context(const struct sizes *s, struct dice *dice)
{
	uint32_t rows[32], count = 0;
	struct rig rig;
	struct table table;

	rig_default(&rig);
	rig.layout.layers = 2;
	rig.group_layers[1] = 1;
	rig.segment[0].bytes = 16;
	rig.layout.page_rows = s->page;
	rig.options.policy = s->policy;
	rig.options.hot_rows = s->hot;
	rig.options.flags |= DHS_CONTEXT_TAIL_ROWS;
	rig.options.tail_rows = s->tail;
	rig.options.device_pages = 400 / s->page + 40;
	rig.seed = dice_below(dice, 3);
	rig_open(&rig);
	table_open(&rig, &table, 1, 2, s->top_k);
	count = add_number(rows, count, 0, 0);
	count = add_around(rows, count, s->page, 0);
	count = add_around(rows, count, s->top_k, 0);
	count = add_around(rows, count, s->hot, 0);
	count = add_around(rows, count, s->tail, 0);
	count = add_around(rows, count, 2 * s->top_k, 0);
	for (uint32_t i = 0; i < count; i++)
		sizes_history(&table, rows[i], dice);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}

static const uint32_t page_sizes[] = { 1, 7, 8, 9, 32 };
static const uint32_t top_ks[] = { 1, 31, 32, 33 };

START_TEST(test_sizes)
{
	struct sizes s = { .page = page_sizes[_i / 4], .top_k = top_ks[_i % 4] };
	struct dice dice = { (uint64_t)_i };
	uint32_t hot[8], tail[8], hots = 0, tails = 0;

	hots = add_around(hot, hots, s.page, 1);
	hots = add_around(hot, hots, s.top_k, 1);
	tails = add_around(tail, tails, s.page, 0);
	tails = add_number(tail, tails, s.top_k, 0);
	tails = add_number(tail, tails, 0, 0);
	for (uint32_t h = 0; h < hots; h++)
		for (uint32_t t = 0; t < tails; t++) {
			if (support_times(100) < 100 && (h + t) % 5 != 0)
				continue;
			s.hot = hot[h];
			s.tail = tail[t];
			s.policy = dice_below(&dice, 2) == 0 ? DHS_POLICY_FIXED : DHS_POLICY_ADAPTIVE;
			sizes_context(&s, &dice);
		}
}
END_TEST

/* top_k 2,048 with histories and hot caches of its size. */
START_TEST(test_top_k_2048)
{
	static const uint32_t hot[] = { 2047, 2048, 2049, 4096 };
	static const uint32_t rows[] = { 2047, 2048, 2049, 4095, 4096, 4097, 5000 };
	struct dice dice = { (uint64_t)_i };
	struct rig rig;
	struct table table;

	rig_default(&rig);
	rig.layout.layers = 2;
	rig.group_layers[1] = 1;
	rig.segment[0].bytes = 16;
	rig.layout.page_rows = 64;
	rig.options.policy = DHS_POLICY_FIXED;
	rig.options.hot_rows = hot[_i];
	rig.options.tail_rows = 64;
	rig.options.max_rows = 5100;
	rig.options.host_rows = 5200;
	rig.options.device_pages = 250;
	rig_open(&rig);
	table_open(&rig, &table, 1, 2, 2048);
	for (uint32_t i = 0; i < COUNT_OF(rows); i++)
		sizes_history(&table, rows[i], &dice);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- layouts of the field ------------------------------------------------- */

struct shape {
	const char *what;
	uint32_t segments;
	dhs_segment segment[4];
	uint32_t page_rows, layers;
};

static const struct shape shapes[] = {
	{ "least", 1, { { 16, 0, 0, 0, 0 } }, 64, 3 },
	{ "20", 1, { { 20, 0, 0, 0, 0 } }, 64, 3 },
	{ "most", 1, { { 16384, 0, 0, 0, 0 } }, 4, 2 },
	{ "most in two", 2, { { 16380, 0, 0, 0, 0 }, { 4, 0, 0, 0, 0 } }, 4, 2 },
	{ "MLA", 1, { { 1152, 0, 0, 0, 0 } }, 64, 3 },
	{ "DSA fp8", 1, { { 656, 0, 0, 0, 0 } }, 64, 5 },
	{ "raw fp8", 1, { { 576, 0, 0, 0, 0 } }, 64, 3 },
	{ "V4", 2, { { 576, 0, 0, 0, 37440 }, { 8, 0, 36864, 0, 37440 } }, 64, 3 },
	{ "V4 packed", 2, { { 576, 0, 0, 0, 0 }, { 8, 0, 0, 0, 0 } }, 64, 3 },
	{ "K and V", 2, { { 256, 0, 0, 0, 0 }, { 256, 0, 0, 0, 0 } }, 16, 4 },
	{ "K and V by row", 2, { { 128, 0, 0, 256, 4096 }, { 128, 0, 128, 256, 4096 } }, 16, 4 },
	{ "three", 3, { { 4, 0, 0, 0, 0 }, { 8, 0, 0, 0, 0 }, { 4, 0, 0, 0, 0 } }, 8, 3 },
	{ "gaps", 1, { { 48, 0, 16, 64, 1152 } }, 16, 3 },
	{ "page of one row", 1, { { 64, 0, 0, 0, 0 } }, 1, 3 },
	{ "odd page", 2, { { 36, 0, 0, 0, 0 }, { 12, 0, 0, 0, 0 } }, 5, 3 },
};

static void shape_open(struct rig *rig, const struct shape *shape, int number)
{
	rig_default(rig);
	rig->seed = (uint64_t)number % 3;
	rig->engine_pool = number % 2 == 1;
	rig->layout.segments = shape->segments;
	memcpy(rig->segment, shape->segment, sizeof(shape->segment));
	rig->layout.page_rows = shape->page_rows;
	rig->layout.layers = shape->layers;
	rig->group_layers[1] = shape->layers - 1;
	rig->options.policy = number / 2 % 2 == 0 ? DHS_POLICY_FIXED : DHS_POLICY_ADAPTIVE;
	rig->options.max_rows = 5 * shape->page_rows + 40;
	rig->options.host_rows = 3 * (6 * shape->page_rows + 40);
	rig->options.device_pages = 24 + 160 / shape->page_rows;
	rig_open(rig);
}

static void shape_play(struct rig *rig, struct dice *dice)
{
	struct history history[2];
	struct table table;
	uint32_t page = rig_page_rows(rig);

	table_open(rig, &table, 2, 2, 8);
	for (uint32_t i = 0; i < 2; i++) {
		history_open(rig, &history[i]);
		history_prefill(rig, &history[i], 3 * page + 7 + i);
	}
	ck_good(dhs_session_evict(rig->context, history[0].id, NULL));
	for (uint32_t i = 0; i < 8; i++) {
		struct turn turn;

		turn_open(&turn, &table);
		for (uint32_t e = 0; e < 2; e++)
			turn_add(&turn, &history[e], 2, 2, dice_below(dice, 3));
		turn_begin(&turn);
		turn_write(&turn);
		turn_resolve_all(&turn, turn_wild(&turn, dice));
		turn_end(&turn);
	}
	history_truncate(rig, &history[0], page + page / 2);
	history_prefill(rig, &history[0], page + 1);
	for (uint32_t i = 0; i < 2; i++)
		history_verify(&table, &history[i]);
	waited(rig);
	table_close(&table);
}

START_TEST(test_shapes)
{
	struct dice dice = { (uint64_t)_i };

	for (int number = 0; number < 4; number++) {
		struct rig rig;

		/* An engine's segments with strides of their own start at one base. */
		shape_open(&rig, &shapes[_i], number);
		shape_play(&rig, &dice);
		rig_close(&rig);
	}
}
END_TEST

/* All sizes in steps of four bytes, in one, two and three pieces. */
START_TEST(test_row_bytes)
{
	struct dice dice = { (uint64_t)_i };

	for (uint32_t bytes = 16 + 4 * (uint32_t)_i; bytes <= 700; bytes += 4 * 12) {
		struct shape shape = { "", 1, { { bytes, 0, 0, 0, 0 } }, 8, 2 };
		struct rig rig;

		if (bytes >= 24 && _i % 3 != 0) {
			shape.segments = 1 + (uint32_t)_i % 3;
			shape.segment[0].bytes = bytes - 4 * (shape.segments - 1);
			for (uint32_t g = 1; g < shape.segments; g++)
				shape.segment[g].bytes = 4;
		}
		shape_open(&rig, &shape, (int)dice_below(&dice, 4));
		shape_play(&rig, &dice);
		rig_close(&rig);
	}
}
END_TEST

/* Large blocks with nothing behind them for 4 GiB; untouched until they are used. */
#define GUARD (UINT64_C(1) << 32)

static void *guarded_alloc(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	char *block = NULL;

	(void)arg;
	if (kind != DHS_MEMORY_HOST)
		return posix_memalign((void **)&block, align, bytes) == 0 ? block : NULL;
	block =
		mmap(NULL, bytes + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (block == MAP_FAILED)
		return NULL;
	return mprotect(block, bytes, PROT_READ | PROT_WRITE) == 0 ? block : NULL;
}

static void guarded_free(void *arg, uint32_t kind, void *block, size_t bytes)
{
	(void)arg;
	if (kind == DHS_MEMORY_HOST)
		munmap(block, bytes + GUARD);
	else
		free(block);
}

/* KiB that this process has had in memory at most. */
static long most_resident(void)
{
	struct rusage usage;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

/* Rows whose bytes lie past 4 GiB of the pool, and a host tier of two chunks.
 * Neither is touched but where the rows are. */
static void large_play(struct rig *rig, dhs_session *reserving)
{
	dhs_session_options options = DHS_INIT(dhs_session_options);
	struct dice dice = { 6 };

	rig->options.policy = DHS_POLICY_FIXED;
	rig->layout.layers = 2;
	rig->group_layers[1] = 1;
	rig->segment[0].bytes = 16384;
	rig->layout.page_rows = 8;
	rig_open(rig);
	if (reserving != NULL) {
		options.reserve_rows = rig->options.host_rows - 2 * 104;
		ck_good(dhs_session_create(rig->context, &options, reserving));
	}
	shape_play(rig, &dice);
	rig_close(rig);
}

START_TEST(test_large_pool)
{
	long before = most_resident();
	struct rig rig;

	rig_default(&rig);
	rig.options.allocator = NULL;
	rig.options.reserved_pages = 40000; /* of 128 KiB a layer */
	rig.options.device_pages = 40060;
	large_play(&rig, NULL);
	if (device_backend() == DHS_BACKEND_HOST)
		ck_assert_int_lt(most_resident() - before, 1 << 20);
}
END_TEST

START_TEST(test_large_tier)
{
	struct rig rig;
	dhs_session reserving = 0;
	dhs_allocator guarded = DHS_INIT(dhs_allocator);

	guarded.alloc = guarded_alloc;
	guarded.free = guarded_free;
	rig_default(&rig);
	rig.options.allocator = &guarded;
	rig.options.host_rows = 40000; /* of 32 KiB */
	rig.options.max_rows = 40000;
	large_play(&rig, &reserving);
}
END_TEST

/* ---- selections ----------------------------------------------------------- */

struct reader {
	struct rig rig;
	struct history history[3];
	struct table table;
};

static void reader_open(struct reader *r, uint64_t seed, uint32_t policy, uint32_t queries,
                        uint32_t top_k)
{
	rig_default(&r->rig);
	r->rig.seed = seed;
	r->rig.options.policy = policy;
	r->rig.options.device_pages = 300;
	if (policy == DHS_POLICY_FULL)
		r->rig.options.host_rows = 0;
	rig_open(&r->rig);
	for (uint32_t i = 0; i < 3; i++) {
		history_open(&r->rig, &r->history[i]);
		history_prefill(&r->rig, &r->history[i], 60 + i);
	}
	table_open(&r->rig, &r->table, 3, queries, top_k);
}

static void reader_close(struct reader *r)
{
	waited(&r->rig);
	table_close(&r->table);
	rig_close(&r->rig);
}

static void read_all(struct reader *r, const int32_t *rows)
{
	struct turn turn;

	turn_open(&turn, &r->table);
	for (uint32_t e = 0; e < 3; e++)
		turn_add(&turn, &r->history[e], 0, r->table.options.max_queries, 0);
	turn_begin(&turn);
	turn_resolve_all(&turn, rows);
	turn_end(&turn);
}

static const uint32_t policies[] = { DHS_POLICY_FIXED, DHS_POLICY_ADAPTIVE, DHS_POLICY_FULL };

/* Each kind of entry, at each place of a selection, alone and among others. */
START_TEST(test_entries_everywhere)
{
	static const int32_t odd[] = { -1,  -2,         INT32_MIN,  INT32_MAX, 62, 63,
		                           256, 0x7fffff00, 1000000000, 5,         0,  59 };
	struct reader r;

	reader_open(&r, 0, policies[_i], 2, 5);
	for (uint32_t kind = 0; kind < COUNT_OF(odd); kind++)
		for (uint32_t at = 0; at < 10; at++) {
			int32_t rows[3 * 10];

			for (uint32_t i = 0; i < 30; i++)
				rows[i] = kind % 2 == 0 ? (int32_t)(i * 7 + kind) % 60 : 5;
			for (uint32_t e = 0; e < 3; e++)
				rows[e * 10 + at] = odd[kind];
			read_all(&r, rows);
		}
	for (uint32_t kind = 0; kind < COUNT_OF(odd); kind++) {
		int32_t rows[3 * 10];

		for (uint32_t i = 0; i < 30; i++)
			rows[i] = odd[kind];
		read_all(&r, rows);
	}
	reader_close(&r);
}
END_TEST

/* Ids that were rows before a truncate. */
START_TEST(test_stale_entries)
{
	struct reader r;
	struct dice dice = { (uint64_t)_i };
	int32_t rows[3 * 2 * 8];

	reader_open(&r, (uint64_t)_i, policies[_i % 3], 2, 8);
	for (uint32_t i = 0; i < 30; i++) {
		struct history *h = &r.history[i % 3];

		for (uint32_t j = 0; j < COUNT_OF(rows); j++)
			rows[j] = (int32_t)dice_below(&dice, 70);
		read_all(&r, rows);
		history_truncate(&r.rig, h, h->rows - dice_below(&dice, (uint32_t)h->rows + 1));
		if (i % 2 == 0)
			read_all(&r, rows);
		history_prefill(&r.rig, h, dice_below(&dice, 20));
		read_all(&r, rows);
	}
	reader_close(&r);
}
END_TEST

/* The same rows in another order, and all of one row: order is kept, a row has
 * one slot. */
START_TEST(test_order_and_duplicates)
{
	struct reader r;
	struct turn turn;
	int32_t rows[3 * 16], slots[3 * 16];

	reader_open(&r, 0, policies[_i], 1, 16);
	for (uint32_t i = 0; i < 48; i++)
		rows[i] = (int32_t)(i % 16 * 37 % 11);
	for (uint32_t round = 0; round < 2; round++) {
		turn_open(&turn, &r.table);
		for (uint32_t e = 0; e < 3; e++)
			turn_add(&turn, &r.history[e], 0, 1, 0);
		turn_begin(&turn);
		turn_resolve(&turn, 0, rows);
		turn_end(&turn);
		rig_sync(&r.rig);
		memcpy(slots, turn.slots[0], sizeof(slots));
		for (uint32_t i = 0; i < 48; i++)
			for (uint32_t j = 0; j < 48; j++)
				ck_assert_int_eq(slots[i] == slots[j], i / 16 == j / 16 && rows[i] == rows[j]);
		for (uint32_t e = 0; e < 3; e++)
			for (uint32_t i = 0; i < 8; i++) {
				int32_t row = rows[e * 16 + i];

				rows[e * 16 + i] = rows[e * 16 + 15 - i];
				rows[e * 16 + 15 - i] = row;
			}
	}
	reader_close(&r);
}
END_TEST

/* ---- staging -------------------------------------------------------------- */

/* 16 queries of 33 rows against 8 hot rows: most of the union is staged. */
START_TEST(test_large_unions)
{
	struct reader r;
	struct turn turn;
	struct dice dice = { (uint64_t)_i };
	dhs_stats stats;

	reader_open(&r, (uint64_t)_i, DHS_POLICY_FIXED, 16, 33);
	for (uint32_t i = 0; i < 10; i++) {
		turn_open(&turn, &r.table);
		for (uint32_t e = 0; e < 3; e++)
			turn_add(&turn, &r.history[e], 2, 1 + dice_below(&dice, 16), dice_below(&dice, 3));
		turn_begin(&turn);
		turn_write(&turn);
		turn_resolve_all(&turn, i == 0 ? run_of_rows(&turn, 0) : turn_wild(&turn, &dice));
		turn_end(&turn);
	}
	stats = waited(&r.rig);
	ck_assert_uint_gt(stats.staged, 500);
	ck_assert_uint_gt(stats.misses, stats.staged);
	reader_close(&r);
}
END_TEST

/* Every row of the history in one plan: the union is the worst case, exactly. */
START_TEST(test_worst_union)
{
	struct reader r;
	struct turn turn;
	int32_t *rows;
	dhs_stats before, after;

	reader_open(&r, (uint64_t)_i, DHS_POLICY_FIXED, 4, 16);
	before = waited(&r.rig);
	turn_open(&turn, &r.table);
	for (uint32_t e = 0; e < 3; e++)
		turn_add(&turn, &r.history[e], 2, 4, 2);
	turn_begin(&turn);
	turn_write(&turn);
	rows = turn_blank(&turn);
	for (uint32_t e = 0; e < 3; e++)
		for (uint32_t i = 0; i < 64; i++)
			turn_at(&turn, rows, e, 0)[i] = 63 - (int32_t)i;
	turn_resolve_all(&turn, rows);
	turn_end(&turn);
	after = waited(&r.rig);
	ck_assert_uint_eq(after.misses - before.misses, 2 * 3 * 56);
	ck_assert_uint_eq(after.staged - before.staged, 2 * 3 * (56 - 8));
	reader_close(&r);
}
END_TEST

/* A batch with just the staging rows that a step needs; one less is refused. */
static int staged_begin(struct reader *r, uint32_t staging_rows, uint32_t new_rows,
                        uint32_t queries)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	struct turn turn;
	struct table table;
	int rc;

	options.flags = DHS_BATCH_STAGING_ROWS;
	options.max_sessions = 3;
	options.max_queries = 4;
	options.top_k = 16;
	options.staging_rows = staging_rows;
	table_open_options(&r->rig, &table, &options);
	turn_open(&turn, &table);
	for (uint32_t e = 0; e < 3; e++)
		turn_add(&turn, &r->history[e], new_rows, queries, 0);
	rc = turn_try_begin(&turn);
	if (rc == 0) {
		turn_write(&turn);
		turn_resolve_all(&turn, run_of_rows(&turn, 7));
		turn_end(&turn);
	}
	waited(&r->rig);
	table_close(&table);
	return rc;
}

START_TEST(test_staging_rows)
{
	struct reader r;
	dhs_stats before, after;

	reader_open(&r, 0, DHS_POLICY_FIXED, 4, 16);
	/* Histories of 60, 61, 62; 8 hot rows. */
	ck_code(staged_begin(&r, 3 * (16 - 8), 0, 1), 0);
	before = waited(&r.rig);
	ck_code(staged_begin(&r, 3 * (16 - 8) - 1, 0, 1), DHS_ERR_DEVICE_MEMORY);
	support_said("begin", "staging", NULL);
	after = waited(&r.rig);
	ck_assert_uint_eq(after.refusals, before.refusals + 1);
	ck_assert_uint_eq(after.steps, before.steps);
	/* Four queries: the length bound counts, new rows included. */
	ck_code(staged_begin(&r, 52 + 53 + 54, 0, 4), 0);
	ck_code(staged_begin(&r, 52 + 53 + 54 - 1, 0, 4), DHS_ERR_DEVICE_MEMORY);
	ck_code(staged_begin(&r, 54 + 55 + 56, 2, 4), 0);
	ck_code(staged_begin(&r, 54 + 55 + 56 - 1, 2, 4), DHS_ERR_DEVICE_MEMORY);
	ck_code(staged_begin(&r, 0, 2, 0), 0);
	ck_code(staged_begin(&r, 0, 2, 1), DHS_ERR_DEVICE_MEMORY);
	reader_close(&r);
}
END_TEST

/* top_k within the hot cache needs no staging, whatever the history. */
START_TEST(test_no_staging)
{
	struct reader r;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_required required = DHS_INIT(dhs_required);

	reader_open(&r, 0, DHS_POLICY_FIXED, 1, 8);
	options.top_k = 8;
	ck_good(dhs_batch_required(&r.rig.options, &options, &required));
	ck_assert_uint_eq(required.staging_rows, 0);
	ck_assert_uint_eq(required.staging_pages, 0);
	ck_assert_uint_eq(required.staging_bytes, 0);
	options.top_k = 9;
	ck_good(dhs_batch_required(&r.rig.options, &options, &required));
	ck_assert_uint_eq(required.staging_rows, 4);
	ck_assert(rig_stages_behind(&r.rig) ? required.staging_bytes > 0 : required.staging_pages > 0);
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&r.table, &r.history[i]);
	ck_assert_uint_eq(waited(&r.rig).staged, 0);
	reader_close(&r);
}
END_TEST

/* ---- what comes and goes -------------------------------------------------- */

/* A health check: a session of one row, created and destroyed, again and again. */
START_TEST(test_one_row_100000)
{
	struct rig rig;
	struct table table;
	uint32_t times = support_times(100000);
	uint64_t live = 0;
	int32_t slot = -1;

	rig_default(&rig);
	rig.seed = _i == 1;
	rig.options.policy = policies[_i % 3];
	if (rig.options.policy == DHS_POLICY_FULL)
		rig.options.host_rows = 0;
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 4);
	for (uint32_t i = 0; i < times; i++) {
		dhs_step_entry entry = { 0, 1, 0 };
		uint32_t kept[1] = { 1 };
		dhs_step step;

		ck_good(dhs_session_create(rig.context, NULL, &entry.session));
		if (i % 2 == 0) {
			ck_good(dhs_session_extend(rig.context, entry.session, 1, rig.stream, &slot));
			ck_good(dhs_session_commit(rig.context, entry.session, 1, rig.stream));
		} else {
			ck_good(dhs_step_begin(table.batch, &entry, 1, sizeof(entry), rig.stream, &step));
			ck_good(dhs_step_end(rig.context, step, kept, 1));
		}
		ck_good(dhs_session_destroy(rig.context, entry.session));
		if (i == 1000)
			live = memory_live(&rig.memory);
	}
	if (times > 1000)
		ck_assert_uint_le(memory_live(&rig.memory), live + 65536);
	ck_assert_uint_eq(waited(&rig).sessions, 0);
	ck_assert_uint_eq(rig_stats(&rig).host_rows_used, 0);
	table_close(&table);
	ck_assert_uint_eq(rig_stats(&rig).pages_free, 64);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

/* Pages in use and a page short of it, with a step between. */
START_TEST(test_last_page)
{
	struct rig rig;
	struct history history[2];
	struct table table;

	rig_default(&rig);
	rig.options.policy = DHS_POLICY_FULL;
	rig.options.host_rows = 0;
	rig.options.device_pages = 10;
	rig_open(&rig);
	for (uint32_t i = 0; i < 2; i++)
		history_open(&rig, &history[i]);
	history_prefill(&rig, &history[0], 20);
	history_prefill(&rig, &history[1], 19); /* the last place but one */
	table_open(&rig, &table, 2, 1, 8);
	turn_one(&table, &history[1], 1, 1, NULL, 1);
	for (uint32_t i = 0; i < 2; i++) {
		struct turn turn;

		turn_open(&turn, &table);
		turn_add(&turn, &history[i], 1, 1, 1);
		ck_code(turn_try_begin(&turn), DHS_ERR_DEVICE_MEMORY);
		history_verify(&table, &history[i]);
	}
	history_truncate(&rig, &history[0], 16);
	waited(&rig);
	turn_one(&table, &history[1], 2, 2, NULL, 1);
	history_verify(&table, &history[0]);
	history_verify(&table, &history[1]);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* The host tier full to the last record, and rows only on the device: reclaim
 * still finishes, for its room was reserved. */
START_TEST(test_host_full)
{
	struct rig rig;
	struct history history[3];
	struct table table;

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig.options.backup = DHS_BACKUP_RECLAIM;
	rig.options.device_pages = 42;
	rig.options.host_rows = 124;
	rig_open(&rig);
	for (uint32_t i = 0; i < 2; i++) {
		history_open(&rig, &history[i]);
		history_prefill(&rig, &history[i], 60);
	}
	ck_assert_uint_eq(rig_stats(&rig).host_rows_used, 120);
	history_open(&rig, &history[2]); /* evicts, and so copies, one of them */
	ck_assert_uint_gt(rig_stats(&rig).backup_rows, 0);
	history_prefill(&rig, &history[2], 4);
	ck_assert_uint_eq(rig_stats(&rig).host_rows_used, 124);
	table_open(&rig, &table, 1, 1, 8);
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&table, &history[i]);
	waited(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- tables that an engine's kernels read --------------------------------- */

struct table_job {
	struct rig *rig;
	dhs_batch_view view;
	uint32_t stamps[256];
	uint32_t entry, length;
	uint32_t added; /* by the step's commit */
};

static void table_kernel(void *copy)
{
	const struct table_job *job = copy;
	int32_t index = job->view.session_index[job->entry];
	const int32_t *pages = job->view.page_table + (uint64_t)index * job->view.page_stride;

	if (job->view.lengths[index] != (int32_t)(job->length + job->added))
		rig_wrong(job->rig, "length %d, not %u", job->view.lengths[index], job->length);
	for (uint32_t row = 0; job->added == 0 && row < job->length; row++) {
		int32_t page = pages[row / 4];

		if (page >= 0 && !stamp_is(job->rig, page * 4 + (int32_t)(row % 4), job->stamps[row], 0, 3))
			rig_wrong(job->rig, "row %u is not in page %d", row, page);
	}
}

static void launch_table(struct turn *turn, uint32_t entry, uint32_t added)
{
	struct table_job job = { .rig = turn->rig, .view = DHS_INIT(dhs_batch_view) };

	ck_good(dhs_batch_get_view(turn->table->batch, &job.view));
	job.entry = entry;
	job.length = (uint32_t)turn->entry[entry].length;
	job.added = added;
	memcpy(job.stamps, turn->entry[entry].history->stamp, sizeof(job.stamps));
	rig_launch(turn->rig, turn->stream, table_kernel, &job, sizeof(job));
}

/* Kernels of step t read t's tables although the host has begun t + 1. */
START_TEST(test_tables_in_order)
{
	struct reader r;
	struct table second;
	struct turn turn[2];
	struct dice dice = { (uint64_t)_i };
	uint32_t steps = 2 + support_times(40);

	reader_open(&r, (uint64_t)_i, policies[_i % 3], 1, 8);
	table_open(&r.rig, &second, 3, 1, 8);
	for (uint32_t i = 0; i < steps; i++) {
		struct turn *now = &turn[i % 2];

		if (i >= 2)
			turn_settle(now);
		turn_open(now, i % 2 == 0 ? &r.table : &second);
		for (uint32_t e = 0; e < 3; e++)
			turn_add(now, &r.history[(e + i) % 3], 2, 1, dice_below(&dice, 3));
		turn_begin(now);
		turn_write(now);
		for (uint32_t e = 0; e < 3; e++)
			launch_table(now, e, 0);
		turn_resolve_all(now, turn_wild(now, &dice));
		turn_commit(now);
		for (uint32_t e = 0; e < 3; e++)
			if (now->entry[e].kept > 0)
				launch_table(now, e, now->entry[e].kept);
		if (i % 5 == 0)
			ck_good(dhs_session_evict(r.rig.context, r.history[i % 3].id, NULL));
	}
	turn_settle(&turn[steps % 2]);
	turn_settle(&turn[(steps + 1) % 2]);
	waited(&r.rig);
	table_close(&second);
	reader_close(&r);
}
END_TEST

static TCase *sizes_case(bool in_pool)
{
	TCase *sizes = support_case("sizes", in_pool);

	tcase_set_timeout(sizes, support_seconds(120));
	tcase_add_loop_test(sizes, test_sizes, 0, 20);
	tcase_add_loop_test(sizes, test_top_k_2048, 0, 4);
	tcase_add_loop_test(sizes, test_shapes, 0, COUNT_OF(shapes));
	tcase_add_loop_test(sizes, test_row_bytes, 0, 12);
	tcase_add_test(sizes, test_large_pool);
	tcase_add_test(sizes, test_large_tier);
	return sizes;
}

static TCase *selection_case(bool in_pool)
{
	TCase *selection = support_case("selections", in_pool);

	tcase_set_timeout(selection, support_seconds(60));
	tcase_add_loop_test(selection, test_entries_everywhere, 0, 3);
	tcase_add_loop_test(selection, test_stale_entries, 0, 9);
	tcase_add_loop_test(selection, test_order_and_duplicates, 0, 3);
	tcase_add_loop_test(selection, test_large_unions, 0, 6);
	tcase_add_loop_test(selection, test_worst_union, 0, 3);
	tcase_add_test(selection, test_staging_rows);
	tcase_add_test(selection, test_no_staging);
	return selection;
}

static TCase *life_case(bool in_pool)
{
	TCase *life = support_case("life", in_pool);

	tcase_set_timeout(life, support_seconds(120));
	tcase_add_loop_test(life, test_one_row_100000, 0, 3);
	tcase_add_test(life, test_last_page);
	tcase_add_loop_test(life, test_host_full, 0, 4);
	tcase_add_loop_test(life, test_tables_in_order, 0, 12);
	return life;
}

static void add_cases(Suite *suite, bool in_pool)
{
	suite_add_tcase(suite, sizes_case(in_pool));
	suite_add_tcase(suite, selection_case(in_pool));
	suite_add_tcase(suite, life_case(in_pool));
}

int main(void)
{
	Suite *suite = suite_create("boundary");

	support_both(suite, add_cases);
	return support_run(suite);
}
