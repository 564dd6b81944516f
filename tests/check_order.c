/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Waits whose lack the random driver sees never or seldom: it runs its streams dry
 * before it gives memory back, asks fences only what they say, and must be lucky
 * to use again just those pages that a late step still reads.  Each test is played
 * on many schedules of the device, as some are needed until one is late enough. */
#include "support.h"

/* A test's body, played on one schedule. */
typedef void play_fn(uint64_t seed, int variant);

static void play(play_fn *body, int variant)
{
	uint32_t times = support_times(200);

	for (uint64_t seed = 1; seed <= times; seed++) /* 0 runs everything at once */
		body(seed, variant);
}

/* A kernel that sets a flag: so far the stream has come. */
static void set_kernel(void *copy)
{
	atomic_int *flag;

	memcpy(&flag, copy, sizeof(flag));
	atomic_store(flag, 1);
}

static void launch_set(struct rig *rig, dhs_stream stream, atomic_int *flag)
{
	rig_launch(rig, stream, set_kernel, &flag, sizeof(flag));
}

/* A kernel that needs a flag to be set. */
struct need {
	struct rig *rig;
	atomic_int *flag;
};

static void need_kernel(void *copy)
{
	const struct need *need = copy;

	if (!atomic_load(need->flag))
		rig_wrong(need->rig, "work ran before what it waits for");
}

static void launch_need(struct rig *rig, dhs_stream stream, atomic_int *flag)
{
	struct need need = { rig, flag };

	rig_launch(rig, stream, need_kernel, &need, sizeof(need));
}

static atomic_int *new_flag(struct rig *rig)
{
	return rig_keep(rig, sizeof(atomic_int));
}

static void check_set(const atomic_int *flag)
{
	ck_assert_msg(atomic_load(flag) == 1, "a call returned before work that it waits for ran");
}

static void open_late(struct rig *rig, uint64_t seed, uint32_t backup)
{
	rig_default(rig);
	rig->seed = seed;
	rig->options.backup = backup;
	rig_open(rig);
}

/* What follows is enqueued on the other stream. */
static void swap_streams(struct rig *rig)
{
	dhs_stream stream = rig->stream;

	rig->stream = rig->side;
	rig->side = stream;
}

/* A step of one session that reads rows first, first + 1, ... of it: all but commit. */
static void begin_turn(struct turn *turn, struct table *table, struct history *history,
                       uint32_t new_rows, int32_t first)
{
	int32_t *rows;

	turn_open(turn, table);
	turn_add(turn, history, new_rows, 1, new_rows);
	turn_begin(turn);
	turn_write(turn);
	rows = turn_blank(turn);
	for (uint32_t i = 0; i < table->options.top_k; i++)
		rows[i] = first + (int32_t)i;
	turn_resolve_all(turn, rows);
}

static void one_turn(struct table *table, struct history *history, uint32_t new_rows)
{
	struct turn turn;

	begin_turn(&turn, table, history, new_rows, 0);
	turn_end(&turn);
}

/* ---- calls that wait ------------------------------------------------------ */

static void batch_destroy(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	atomic_int *flag;

	(void)variant;
	open_late(&rig, seed, DHS_BACKUP_EAGER);
	flag = new_flag(&rig);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 1, 4);
	begin_turn(&turn, &table, &history, 1, 0);
	turn_commit(&turn);
	launch_set(&rig, rig.stream, flag);
	turn_settle(&turn);
	table_close(&table);
	check_set(flag);
	rig_close(&rig);
}

/* How a context is left. */
enum { LEFT_SETTLED, LEFT_COMMITTED, LEFT_BEGUN, LEFT_EXTENDED, LEFT_ABORTED, WAYS_TO_LEAVE };

/* A step that has passed as far as a begin of another batch marked its end, and is
 * aborted then, which enqueues more on its stream. */
static void leave_aborted(struct rig *rig, struct history *history, struct table *table,
                          atomic_int *flag)
{
	struct table other;
	struct turn turn, next;

	table_open(rig, &other, 1, 1, 4);
	begin_turn(&turn, table, history, 1, 0);
	swap_streams(rig);
	turn_open(&next, &other);
	turn_add(&next, history, 0, 0, 0);
	turn_begin(&next);
	rig_sync(rig);
	ck_good(dhs_session_evict(rig->context, history->id, NULL)); /* sees what has passed */
	launch_set(turn.rig, turn.stream, flag);
	turn_abort(&turn);
}

static void leave(struct rig *rig, struct history *history, struct table *table, int how,
                  atomic_int *flag)
{
	int32_t *slots = rig_keep(rig, sizeof(int32_t) * 4);
	struct turn turn;

	if (how == LEFT_EXTENDED || how == LEFT_COMMITTED) {
		ck_good(dhs_session_extend(rig->context, history->id, 4, rig->stream, slots));
		launch_set(rig, rig->stream, flag);
		if (how == LEFT_COMMITTED)
			ck_good(dhs_session_commit(rig->context, history->id, 4, rig->stream));
		return;
	}
	if (how == LEFT_ABORTED) {
		leave_aborted(rig, history, table, flag);
		return;
	}
	begin_turn(&turn, table, history, 1, 0);
	launch_set(rig, rig->stream, flag);
	if (how == LEFT_SETTLED)
		turn_end(&turn);
}

static void open_left(struct rig *rig, uint64_t seed, int how, atomic_int **flag)
{
	struct history history;
	struct table table;

	open_late(rig, seed, seed & 1 ? DHS_BACKUP_EAGER : DHS_BACKUP_RECLAIM);
	*flag = new_flag(rig);
	history_open(rig, &history);
	table_open(rig, &table, 1, 1, 4);
	history_prefill(rig, &history, 5);
	leave(rig, &history, &table, how, *flag);
}

static void context_destroy(uint64_t seed, int how)
{
	struct rig rig;
	atomic_int *flag;

	open_left(&rig, seed, how, &flag);
	dhs_context_destroy(rig.context);
	rig.context = NULL;
	check_set(flag);
	rig_close(&rig);
}

static void context_wait(uint64_t seed, int how)
{
	struct rig rig;
	atomic_int *flag;

	open_left(&rig, seed, how, &flag);
	ck_good(dhs_context_wait(rig.context));
	check_set(flag);
	rig_close(&rig);
}

static void stream_wait(uint64_t seed, int destroy)
{
	struct rig rig;
	dhs_stream stream;
	atomic_int *flag;

	open_late(&rig, seed, DHS_BACKUP_EAGER);
	flag = new_flag(&rig);
	ck_good(device_stream_create(&rig.device, &stream));
	launch_set(&rig, stream, flag);
	if (!destroy)
		ck_good(device_stream_sync(&rig.device, stream));
	else
		ck_good(device_stream_destroy(&rig.device, stream));
	check_set(flag);
	if (!destroy)
		ck_good(device_stream_destroy(&rig.device, stream));
	rig_close(&rig);
}

START_TEST(test_batch_destroy)
{
	play(batch_destroy, 0);
}
END_TEST

START_TEST(test_context_destroy)
{
	play(context_destroy, _i);
}
END_TEST

START_TEST(test_context_wait)
{
	play(context_wait, _i);
}
END_TEST

START_TEST(test_stream_wait)
{
	play(stream_wait, _i);
}
END_TEST

/* ---- fences --------------------------------------------------------------- */

/* The fence of an eviction: not passed before *flag is set by the session's last step,
 * which is not settled.  Under reclaim it stands for a copy, too, which only waits
 * for the prefill. */
static dhs_fence evict_what_is_read(struct rig *rig, struct table *table, struct history *history,
                                    atomic_int *flag)
{
	struct turn turn, next;
	dhs_fence fence = 0;

	history_open(rig, history);
	history_prefill(rig, history, 40);
	ck_good(dhs_context_wait(rig->context));
	begin_turn(&turn, table, history, 1, 0);
	turn_commit(&turn);
	launch_set(rig, rig->stream, flag);
	turn_open(&next, table); /* marks the end of the step before */
	turn_begin(&next);
	ck_good(dhs_session_evict(rig->context, history->id, &fence));
	ck_assert_uint_ne(fence, 0);
	turn_settle(&turn);
	turn_end(&next);
	return fence;
}

static void ask_sync(struct rig *rig, dhs_fence fence, atomic_int *flag)
{
	ck_good(dhs_fence_sync(rig->context, fence));
	check_set(flag);
}

static void ask_wait(struct rig *rig, dhs_fence fence, atomic_int *flag)
{
	ck_good(dhs_fence_wait(rig->context, fence, rig->side));
	launch_need(rig, rig->side, flag);
}

/* Without memory to queue the wait, the call itself waits. */
static void ask_wait_without_memory(struct rig *rig, dhs_fence fence, atomic_int *flag)
{
	memory_arm(&rig->host_memory, 1, true);
	ck_good(dhs_fence_wait(rig->context, fence, rig->side));
	memory_disarm(&rig->host_memory);
	launch_need(rig, rig->side, flag);
}

static void ask_query(struct rig *rig, dhs_fence fence, atomic_int *flag)
{
	int passed = 0;

	for (uint32_t i = 0; i < 100 && !passed; i++)
		ck_good(dhs_fence_query(rig->context, fence, &passed));
	if (passed)
		check_set(flag);
}

typedef void ask_fn(struct rig *rig, dhs_fence fence, atomic_int *flag);

static ask_fn *const asks[] = { ask_sync, ask_wait, ask_wait_without_memory, ask_query };

static void evict_fence(uint64_t seed, int ask)
{
	struct rig rig;
	struct history history;
	struct table table;
	atomic_int *flag;
	dhs_fence fence;

	open_late(&rig, seed, seed & 1 ? DHS_BACKUP_EAGER : DHS_BACKUP_RECLAIM);
	flag = new_flag(&rig);
	table_open(&rig, &table, 1, 1, 4);
	fence = evict_what_is_read(&rig, &table, &history, flag);
	asks[ask](&rig, fence, flag);
	rig_close(&rig);
}

START_TEST(test_evict_fence)
{
	play(evict_fence, _i);
}
END_TEST

/* A page that the engine has back, and writes. */
struct taken {
	struct rig *rig;
	int32_t page;
};

static void scribble_kernel(void *copy)
{
	const struct taken *taken = copy;

	for (int32_t row = 0; row < 4; row++)
		stamp_write(taken->rig, taken->page * 4 + row, UINT32_MAX);
}

/* Pages that a step still reads and a copy still backs up are the engine's behind
 * their fences: the step has passed, and what the engine writes is not backed up. */
static void take_fences(uint64_t seed, int reclaim)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t count;
	atomic_int *flag;

	rig_default(&rig);
	rig.seed = seed;
	rig.engine_pool = true;
	rig.options.backup = reclaim ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	rig_open(&rig);
	flag = new_flag(&rig);
	table_open(&rig, &table, 1, 1, 4);
	evict_what_is_read(&rig, &table, &history, flag);
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &count));
	for (size_t i = 0; i < count; i++) {
		struct taken taken = { &rig, pages[i] };

		ck_good(dhs_fence_wait(rig.context, fences[i], rig.side));
		if (fences[i])
			launch_need(&rig, rig.side, flag);
		rig_launch(&rig, rig.side, scribble_kernel, &taken, sizeof(taken));
	}
	history_verify(&table, &history);
	rig_close(&rig);
}

static void check_scribble_kernel(void *copy)
{
	const struct taken *taken = copy;

	for (int32_t row = 0; row < 4; row++)
		if (!stamp_is(taken->rig, taken->page * 4 + row, UINT32_MAX, 0, 3))
			rig_wrong(taken->rig, "page %d of the engine was written", taken->page);
}

/* The engine writes what it takes, behind the fences. */
static void take_and_scribble(struct rig *rig, struct taken *taken, size_t want)
{
	int32_t pages[64];
	dhs_fence fences[64];
	size_t count;

	ck_good(dhs_take_pages(rig->context, want, pages, fences, &count));
	ck_assert_uint_eq(count, want);
	for (size_t i = 0; i < count; i++) {
		taken[i] = (struct taken){ rig, pages[i] };
		ck_good(dhs_fence_wait(rig->context, fences[i], rig->side));
		rig_launch(rig, rig->side, scribble_kernel, &taken[i], sizeof(taken[i]));
	}
}

/* Pages of a session that ticks have brought back, or have copied to the host, and that no
 * begin has waited for since: their fences cover those copies. */
static void take_from_ticks(uint64_t seed, int refilled)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct taken taken[64];
	uint32_t resident;

	rig_default(&rig);
	rig.seed = seed;
	rig.engine_pool = true;
	rig.options.backup = refilled ? DHS_BACKUP_EAGER : DHS_BACKUP_BACKGROUND;
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 4);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 40);
	if (refilled)
		ck_good(dhs_session_evict(rig.context, history.id, NULL));
	for (int i = 0; i < 3; i++)
		ck_good(dhs_context_advance(rig.context));
	resident = rig_info(&rig, history.id).resident_pages;
	ck_assert_uint_eq(resident, 9);
	while (rig_stats(&rig).pages_free)
		take_and_scribble(&rig, taken, rig_stats(&rig).pages_free);
	take_and_scribble(&rig, taken, resident);
	history_verify(&table, &history);
	rig_sync(&rig);
	for (uint32_t i = 0; i < resident; i++)
		rig_launch(&rig, rig.stream, check_scribble_kernel, &taken[i], sizeof(taken[i]));
	rig_close(&rig);
}

START_TEST(test_take_from_ticks)
{
	play(take_from_ticks, _i);
}
END_TEST

/* Pages that are lent again and whose fences the engine did not look at: the stream waits. */
static void lend_at_once(uint64_t seed, int reclaim)
{
	struct rig rig;
	struct history history;
	struct table table;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t count;
	atomic_int *flag;

	rig_default(&rig);
	rig.seed = seed;
	rig.engine_pool = true;
	rig.options.backup = reclaim ? DHS_BACKUP_RECLAIM : DHS_BACKUP_EAGER;
	rig_open(&rig);
	flag = new_flag(&rig);
	table_open(&rig, &table, 1, 1, 4);
	evict_what_is_read(&rig, &table, &history, flag);
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &count));
	ck_good(dhs_lend_pages(rig.context, pages, count, rig.side));
	launch_need(&rig, rig.side, flag);
	history_verify(&table, &history);
	rig_close(&rig);
}

START_TEST(test_lend_at_once)
{
	play(lend_at_once, _i);
}
END_TEST

START_TEST(test_take_fences)
{
	play(take_fences, _i);
}
END_TEST

/* The page that has been free for longest is taken first, and each once: a call that
 * names one twice lends none. */
START_TEST(test_page_order)
{
	static const int32_t lent[] = { 7, 3, 5, 2, 11 }, twice[] = { 4, 7, 4 };
	struct rig rig;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t count;

	rig_default(&rig);
	rig.engine_pool = true;
	rig_open(&rig);
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &count));
	ck_assert_uint_eq(count, 63);
	ck_code(dhs_lend_pages(rig.context, twice, 3, rig.stream), DHS_ERR_ARGUMENT);
	ck_good(dhs_lend_pages(rig.context, lent, 2, rig.stream));
	ck_good(dhs_lend_pages(rig.context, lent + 2, 3, rig.stream));
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &count));
	ck_assert_uint_eq(count, COUNT_OF(lent));
	for (size_t i = 0; i < count; i++)
		ck_assert_int_eq(pages[i], lent[i]);
	rig_close(&rig);
}
END_TEST

/* ---- pages that are used again while a late step still reads them ------------ */

/* A session whose last step is late, and whose two optional pages are the first
 * free ones once it is evicted; nothing keeps the free ones behind them. */
struct crowd {
	struct rig rig;
	struct history late, filler;
	struct table table;
};

static void open_crowd(struct crowd *c, uint64_t seed)
{
	struct rig *rig = &c->rig;

	open_late(rig, seed, DHS_BACKUP_EAGER);
	history_open(rig, &c->late);
	history_prefill(rig, &c->late, 12); /* two pages, then the tail */
	table_open(rig, &c->table, 1, 1, 8);
}

static void fill_and_evict(struct crowd *c)
{
	struct rig *rig = &c->rig;

	history_open(rig, &c->filler);
	history_prefill(rig, &c->filler, 4 + 4 * (uint32_t)rig_stats(rig).pages_free);
	ck_assert_uint_eq(rig_stats(rig).pages_free, 0);
	ck_good(dhs_context_wait(rig->context));
	one_turn(&c->table, &c->late, 0);
	ck_good(dhs_session_evict(rig->context, c->late.id, NULL));
	ck_assert_uint_eq(rig_stats(rig).pages_free, 2);
	history_close(rig, &c->filler);
	swap_streams(rig);
}

/* They become the hot cache of a new session. */
static void hot_pages(uint64_t seed, int variant)
{
	struct crowd c;
	struct history history;
	struct table table;

	(void)variant;
	open_crowd(&c, seed);
	table_open(&c.rig, &table, 1, 1, 8);
	fill_and_evict(&c);
	history_open(&c.rig, &history);
	history_prefill(&c.rig, &history, 24);
	ck_good(dhs_session_evict(c.rig.context, history.id, NULL));
	one_turn(&table, &history, 0);
	rig_close(&c.rig);
}

/* They become the staging of a new batch. */
static void staging_pages(uint64_t seed, int variant)
{
	struct crowd c;
	struct history history;
	struct table table;

	(void)variant;
	open_crowd(&c, seed);
	ck_assert(!rig_stages_behind(&c.rig));
	history_open(&c.rig, &history);
	history_prefill(&c.rig, &history, 24);
	ck_good(dhs_session_evict(c.rig.context, history.id, NULL));
	fill_and_evict(&c);
	table_open(&c.rig, &table, 1, 1, 16); /* 8 rows more than are hot */
	ck_assert_uint_eq(rig_stats(&c.rig).pages_staging, 2);
	one_turn(&table, &history, 0);
	rig_close(&c.rig);
}

START_TEST(test_hot_pages)
{
	play(hot_pages, 0);
}
END_TEST

START_TEST(test_staging_pages)
{
	play(staging_pages, 0);
}
END_TEST

/* A step fetches late from host pages that are a new session's by then, which writes
 * its rows by prefill or by a step. */
static void host_pages(uint64_t seed, int by_step)
{
	struct rig rig;
	struct history late, history;
	struct table table, other;

	rig_default(&rig);
	rig.seed = seed;
	rig.options.host_rows = 12;
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 8);
	table_open(&rig, &other, 1, 1, 8);
	history_open(&rig, &late);
	history_prefill(&rig, &late, 12);
	ck_good(dhs_session_evict(rig.context, late.id, NULL));
	ck_good(dhs_context_wait(rig.context));
	one_turn(&table, &late, 0);
	history_close(&rig, &late);
	swap_streams(&rig);
	history_open(&rig, &history);
	if (by_step)
		one_turn(&other, &history, 2);
	else
		history_prefill(&rig, &history, 4);
	rig_close(&rig);
}

START_TEST(test_host_pages)
{
	play(host_pages, _i);
}
END_TEST

/* Rows that a late copy backs up are fetched, or reloaded for prefill that takes no
 * host page: one from the truncate would be waited for, and with it the copy. */
static void late_copy(uint64_t seed, int reload)
{
	struct rig rig;
	struct history history;
	struct table table;

	open_late(&rig, seed, DHS_BACKUP_RECLAIM);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 40);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	swap_streams(&rig);
	if (reload) {
		history_truncate(&rig, &history, 10);
		history_prefill(&rig, &history, 1);
		ck_assert_uint_eq(rig_stats(&rig).reload_rows, 2);
	}
	history_verify(&table, &history);
	rig_close(&rig);
}

/* Rows that a step writes late are backed up right after it is settled: without a tail
 * they are history at once. */
static void late_rows(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;

	(void)variant;
	rig_default(&rig);
	rig.seed = seed;
	rig.options.backup = DHS_BACKUP_RECLAIM;
	rig.options.tail_rows = 0;
	rig.options.flags |= DHS_CONTEXT_TAIL_ROWS;
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 8);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 6);
	one_turn(&table, &history, 2);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	ck_assert_uint_eq(rig_info(&rig, history.id).host_only_rows, 8);
	history_verify(&table, &history);
	rig_close(&rig);
}

START_TEST(test_late_rows)
{
	play(late_rows, 0);
}
END_TEST

START_TEST(test_late_copy)
{
	play(late_copy, _i);
}
END_TEST

/* ---- a device without memory to queue work: the same order ------------------- */

/* The commit is done at once, and not before the rows are written. */
static void commit_without_memory(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;

	(void)variant;
	open_late(&rig, seed, DHS_BACKUP_EAGER);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 1, 4);
	begin_turn(&turn, &table, &history, 1, 0);
	memory_arm(&rig.host_memory, 1, true);
	turn_end(&turn);
	memory_disarm(&rig.host_memory);
	history_prefill(&rig, &history, 20);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	history_verify(&table, &history);
	rig_close(&rig);
}

/* The end of a step is marked at once, and not before the step's work. */
static void record_without_memory(uint64_t seed, int variant)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	atomic_int *flag;

	(void)variant;
	open_late(&rig, seed, DHS_BACKUP_EAGER);
	flag = new_flag(&rig);
	history_open(&rig, &history);
	table_open(&rig, &table, 1, 1, 4);
	begin_turn(&turn, &table, &history, 1, 0);
	turn_commit(&turn);
	launch_set(&rig, rig.stream, flag);
	memory_arm(&rig.host_memory, 1, true);
	turn_settle(&turn);
	memory_disarm(&rig.host_memory);
	ck_good(dhs_context_wait(rig.context));
	check_set(flag);
	rig_close(&rig);
}

START_TEST(test_commit_without_memory)
{
	play(commit_without_memory, 0);
}
END_TEST

START_TEST(test_record_without_memory)
{
	play(record_without_memory, 0);
}
END_TEST

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *calls = support_case("calls that wait", in_pool);
	TCase *fences = support_case("fences", in_pool);
	TCase *again = support_case("used again", in_pool);
	TCase *memory = support_case("no memory to queue work", in_pool);

	tcase_add_test(calls, test_batch_destroy);
	tcase_add_loop_test(calls, test_context_destroy, 0, WAYS_TO_LEAVE);
	tcase_add_loop_test(calls, test_context_wait, 0, LEFT_BEGUN);
	tcase_add_loop_test(calls, test_stream_wait, 0, 2);
	suite_add_tcase(suite, calls);
	tcase_add_loop_test(fences, test_evict_fence, 0, COUNT_OF(asks));
	tcase_add_loop_test(fences, test_take_fences, 0, 2);
	tcase_add_loop_test(fences, test_take_from_ticks, 0, 2);
	tcase_add_loop_test(fences, test_lend_at_once, 0, 2);
	tcase_add_test(fences, test_page_order);
	suite_add_tcase(suite, fences);
	tcase_add_test(again, test_hot_pages);
	if (in_pool || device_backend() != DHS_BACKEND_HOST)
		tcase_add_test(again, test_staging_pages);
	tcase_add_loop_test(again, test_host_pages, 0, 2);
	tcase_add_loop_test(again, test_late_copy, 0, 2);
	tcase_add_test(again, test_late_rows);
	suite_add_tcase(suite, again);
	tcase_add_test(memory, test_commit_without_memory);
	tcase_add_test(memory, test_record_without_memory);
	suite_add_tcase(suite, memory);
}

int main(void)
{
	Suite *suite = suite_create("order");

	support_both(suite, add_cases);
	return support_run(suite);
}
