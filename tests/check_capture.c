/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Graphs: which calls may be captured, and one captured step replayed for
 * batches that shrink, grow and change. */
#include "support.h"

#define SESSIONS 6
#define QUERIES 2
#define TOP_K 8
#define NEW 2
#define ENTRIES (SESSIONS * QUERIES * TOP_K)

/* What a replay reads and writes, at fixed addresses, in device memory. */
struct board {
	struct rig *rig;
	int32_t rows[2][ENTRIES]; /* by group */
	int32_t slots[2][ENTRIES];
	int32_t new_slots[SESSIONS * NEW];
	int32_t kept[SESSIONS];
	uint32_t want[2][ENTRIES]; /* stamps; 0: the pad */
	uint32_t stamp[SESSIONS * NEW];
};

struct replay {
	struct rig rig;
	struct table table;
	struct history history[8];
	struct board *board;
	struct device_graph *graph;
	struct dice dice;
};

static void write_new_kernel(void *copy)
{
	struct board *board = *(struct board **)copy;

	for (uint32_t i = 0; i < SESSIONS * NEW; i++)
		if (board->stamp[i] == 0 && board->new_slots[i] != -1)
			rig_wrong(board->rig, "new row %u is no pad", i);
		else if (board->stamp[i] != 0 && board->new_slots[i] < 0)
			rig_wrong(board->rig, "new row %u is a pad", i);
		else if (board->stamp[i] != 0)
			stamp_write(board->rig, board->new_slots[i], board->stamp[i]);
}

static void check_group(const struct board *board, uint32_t group)
{
	for (uint32_t i = 0; i < ENTRIES; i++) {
		int32_t slot = board->slots[group][i];
		uint32_t want = board->want[group][i];

		if (want == 0 ? slot != -1 : slot < 0)
			rig_wrong(board->rig, "group %u, entry %u: slot %d", group, i, slot);
		else if (want != 0 && !stamp_is(board->rig, slot, want, group, group + 1))
			rig_wrong(board->rig, "group %u, entry %u: bytes", group, i);
	}
}

static void check_0_kernel(void *copy)
{
	check_group(*(struct board **)copy, 0);
}

static void check_1_kernel(void *copy)
{
	check_group(*(struct board **)copy, 1);
}

/* The whole step, as an engine captures it. */
static void enqueue_step(struct replay *r, dhs_stream stream)
{
	struct board *board = r->board;
	dhs_batch *batch = r->table.batch;
	dhs_selection selection = DHS_INIT(dhs_selection);

	ck_good(dhs_step_slots(batch, 0, NEW, board->new_slots, stream));
	rig_launch(&r->rig, stream, write_new_kernel, &board, sizeof(board));
	selection.rows = board->rows[0];
	selection.slots = board->slots[0];
	ck_good(dhs_step_resolve(batch, 0, &selection, stream));
	rig_launch(&r->rig, stream, check_0_kernel, &board, sizeof(board));
	selection.rows = board->rows[1];
	selection.slots = board->slots[1];
	ck_good(dhs_step_plan(batch, 1, &selection, stream));
	ck_good(dhs_step_fetch(batch, 1, 0, 1, stream));
	ck_good(dhs_step_fetch(batch, 1, 1, 0, stream));
	rig_launch(&r->rig, stream, check_1_kernel, &board, sizeof(board));
	ck_good(dhs_step_commit(batch, 0, board->kept, stream));
}

static void replay_open(struct replay *r, uint64_t seed, uint32_t policy)
{
	rig_default(&r->rig);
	r->rig.seed = seed;
	r->rig.options.policy = policy;
	r->rig.options.max_sessions = 8;
	r->rig.options.device_pages = 160;
	r->rig.options.host_rows = policy == DHS_POLICY_FULL ? 0 : 2100;
	rig_open(&r->rig);
	for (uint32_t i = 0; i < 8; i++) {
		history_open(&r->rig, &r->history[i]);
		history_prefill(&r->rig, &r->history[i], 9 * i);
	}
	table_open(&r->rig, &r->table, SESSIONS, QUERIES, TOP_K);
	r->board = rig_keep(&r->rig, sizeof(struct board));
	r->board->rig = &r->rig;
	r->dice.state = seed;
	ck_good(device_capture_begin(&r->rig.device, r->rig.stream));
	enqueue_step(r, r->rig.stream);
	ck_good(device_capture_end(&r->rig.device, r->rig.stream, &r->graph));
}

static void replay_close(struct replay *r)
{
	for (uint32_t i = 0; i < 8; i++)
		history_verify(&r->table, &r->history[i]);
	rig_sync(&r->rig);
	ck_good(dhs_context_wait(r->rig.context));
	ck_assert_uint_eq(rig_stats(&r->rig).order_errors, 0);
	ck_good(device_graph_destroy(&r->rig.device, r->graph));
	table_close(&r->table);
	rig_close(&r->rig);
}

static uint32_t want_of(const struct turn_entry *entry, int32_t row)
{
	if (row < 0 || (uint64_t)row >= entry->length + entry->new_rows)
		return 0;
	return (uint64_t)row < entry->length ? entry->history->stamp[row]
	                                     : entry->stamp[(uint64_t)row - entry->length];
}

static void fill_board(struct board *next, struct turn *turn, uint32_t group, struct dice *dice)
{
	int32_t *rows = turn_wild(turn, dice);

	for (uint32_t i = 0; i < ENTRIES; i++) {
		uint32_t e = i / (QUERIES * TOP_K), q = i / TOP_K % QUERIES;
		bool live = e < turn->count && turn->entry[e].history != NULL && q < turn->entry[e].queries;

		/* What padding has from earlier steps is nonsense that must not matter. */
		next->rows[group][i] = live ? rows[i] : (int32_t)dice_below(dice, 70);
		next->slots[group][i] = 0x77777777;
		next->want[group][i] = live ? want_of(&turn->entry[e], rows[i]) : 0;
	}
}

static void fill_news(struct board *next, const struct turn *turn)
{
	for (uint32_t e = 0; e < SESSIONS; e++) {
		const struct turn_entry *entry = &turn->entry[e];
		bool live = e < turn->count && entry->history != NULL;

		next->kept[e] = live ? (int32_t)entry->kept : 0x55555555;
		for (uint32_t i = 0; i < NEW; i++)
			next->stamp[e * NEW + i] = live && i < entry->new_rows ? entry->stamp[i] : 0;
	}
}

/* Other sessions, other places, some padding. */
static void draw_entries(struct replay *r, struct turn *turn, uint32_t count)
{
	uint32_t shift = dice_below(&r->dice, 8);

	for (uint32_t e = 0; e < count; e++) {
		struct history *h = &r->history[(e * 3 + shift) % 8];

		if (dice_below(&r->dice, 5) == 0 || h->rows > 240)
			turn_add(turn, NULL, 0, 0, 0);
		else
			turn_add(turn, h, dice_below(&r->dice, NEW + 1), dice_below(&r->dice, QUERIES + 1),
			         dice_below(&r->dice, NEW + 1));
	}
}

static void keep_rows(struct turn *turn)
{
	for (uint32_t e = 0; e < turn->count; e++) {
		struct turn_entry *entry = &turn->entry[e];

		for (uint32_t i = 0; entry->history != NULL && i < entry->kept && i < entry->new_rows; i++)
			entry->history->stamp[entry->history->rows++] = entry->stamp[i];
	}
}

static void replay_step(struct replay *r, struct turn *turn, uint32_t count)
{
	struct board *next = rig_keep(&r->rig, sizeof(struct board));

	turn_open(turn, &r->table);
	draw_entries(r, turn, count);
	turn_begin(turn);
	next->rig = &r->rig;
	fill_board(next, turn, 0, &r->dice);
	fill_board(next, turn, 1, &r->dice);
	fill_news(next, turn);
	launch_copy(&r->rig, r->rig.stream, r->board, next, sizeof(*next));
	ck_good(device_graph_launch(&r->rig.device, r->graph, r->rig.stream));
	keep_rows(turn);
}

START_TEST(test_replay)
{
	static const uint32_t policies[] = { DHS_POLICY_FIXED, DHS_POLICY_ADAPTIVE, DHS_POLICY_FULL };
	static const uint32_t counts[] = { 6, 1, 3, 0, 6, 2, 5, 4 };
	struct replay r;
	struct turn turn;

	replay_open(&r, (uint64_t)_i, policies[_i % 3]);
	for (uint32_t i = 0; i < support_times(60); i++) {
		replay_step(&r, &turn, counts[i % COUNT_OF(counts)]);
		turn_settle(&turn);
	}
	replay_close(&r);
}
END_TEST

/* The host runs ahead; begin(t + 1) while t's replay is on its way. */
START_TEST(test_replay_ahead)
{
	struct replay r;
	struct turn turn[2];
	uint32_t steps = 2 + support_times(60);

	replay_open(&r, 50 + (uint64_t)_i, _i % 2 == 0 ? DHS_POLICY_FIXED : DHS_POLICY_ADAPTIVE);
	for (uint32_t i = 0; i < steps; i++) {
		if (i >= 2)
			turn_settle(&turn[i % 2]);
		replay_step(&r, &turn[i % 2], 6 - i % 4);
	}
	turn_settle(&turn[steps % 2]);
	turn_settle(&turn[(steps + 1) % 2]);
	replay_close(&r);
}
END_TEST

/* Replayed and enqueued one by one: the same bytes, turn about. */
START_TEST(test_replay_mixed)
{
	struct replay r;
	struct turn turn;

	replay_open(&r, 90 + (uint64_t)_i, DHS_POLICY_FIXED);
	for (uint32_t i = 0; i < support_times(40); i++) {
		replay_step(&r, &turn, 6);
		turn_settle(&turn);
		turn_open(&turn, &r.table);
		draw_entries(&r, &turn, 4);
		turn_begin(&turn);
		turn_write(&turn);
		turn_resolve_all(&turn, turn_wild(&turn, &r.dice));
		turn_end(&turn);
		history_truncate(&r.rig, &r.history[i % 8],
		                 dice_below(&r.dice, (uint32_t)r.history[i % 8].rows + 1));
		history_prefill(&r.rig, &r.history[i % 8], dice_below(&r.dice, 30));
	}
	replay_close(&r);
}
END_TEST

/* A replay without a begun step gives pads and changes nothing. */
START_TEST(test_replay_without_step)
{
	struct replay r;
	struct turn turn;
	dhs_session_info before, after;

	replay_open(&r, (uint64_t)_i, DHS_POLICY_FIXED);
	before = rig_info(&r.rig, r.history[3].id);
	ck_good(
		device_graph_launch(&r.rig.device, r.graph, r.rig.stream)); /* the board wants all pads */
	rig_sync(&r.rig);
	for (uint32_t i = 0; i < ENTRIES; i++)
		ck_assert_int_eq(r.board->slots[0][i], -1);
	after = rig_info(&r.rig, r.history[3].id);
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_good(dhs_context_wait(r.rig.context));
	replay_step(&r, &turn, 6);
	turn_settle(&turn);
	rig_sync(&r.rig);
	for (uint32_t i = 0; i < 8; i++)
		history_verify(&r.table, &r.history[i]);
	rig_sync(&r.rig);
	ck_good(dhs_context_wait(r.rig.context));
	ck_good(device_graph_destroy(&r.rig.device, r.graph));
	table_close(&r.table);
	rig_close(&r.rig);
}
END_TEST

/* Capturing enqueues nothing: an open step is left as it is. */
START_TEST(test_capture_in_a_step)
{
	struct replay r;
	struct turn turn;
	struct device_graph *graph = NULL;

	replay_open(&r, (uint64_t)_i, DHS_POLICY_FIXED);
	turn_open(&turn, &r.table);
	for (uint32_t e = 0; e < 3; e++)
		turn_add(&turn, &r.history[e], 1, 1, 1);
	turn_begin(&turn);
	ck_good(device_capture_begin(&r.rig.device, r.rig.side));
	enqueue_step(&r, r.rig.side);
	ck_good(device_capture_end(&r.rig.device, r.rig.side, &graph));
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, &r.dice));
	turn_end(&turn);
	ck_good(device_graph_destroy(&r.rig.device, graph));
	replay_close(&r);
}
END_TEST

/* ---- calls that cannot be captured ---------------------------------------- */

struct capturing {
	struct rig rig;
	struct history history, other;
	struct table table;
	struct turn turn;
	dhs_fence fence;
	dhs_stats stats;
};

static void capturing_same(struct capturing *c)
{
	dhs_stats stats = rig_stats(&c->rig);

	ck_assert_mem_eq(&stats, &c->stats, sizeof(stats));
}

#define not_captured(c, call)                                                                      \
	do {                                                                                           \
		(c)->stats = rig_stats(&(c)->rig);                                                         \
		ck_code(call, DHS_ERR_CAPTURING);                                                          \
		ck_assert_str_ne(dhs_last_error(), "");                                                    \
		capturing_same(c);                                                                         \
	} while (0)

static void check_capturing(struct capturing *c)
{
	dhs_context *context = c->rig.context;
	dhs_stream stream = c->rig.stream;
	dhs_step_entry entry = { c->other.id, 1, 1 };
	dhs_step step = 99;
	int32_t slots[8];
	uint32_t kept[1] = { 1 };

	memset(slots, 0x77, sizeof(slots));
	not_captured(c, dhs_session_extend(context, c->other.id, 4, stream, slots));
	ck_assert_int_eq(slots[0], 0x77777777);
	not_captured(c, dhs_step_begin(c->table.batch, &entry, 1, sizeof(entry), stream, &step));
	ck_assert_uint_eq(step, 99);
	not_captured(c, dhs_step_end(context, c->turn.step, kept, 1));
	not_captured(c, dhs_fence_wait(context, c->fence, stream));
	if (!rig_on_host(&c->rig))
		return;
	not_captured(c, dhs_host_stream_sync(stream));
	ck_code(dhs_host_capture_begin(stream), DHS_ERR_ORDER);
}

START_TEST(test_not_captured)
{
	struct capturing c;
	struct table table;
	struct device_graph *graph = NULL;
	int32_t slots[4];

	rig_default(&c.rig);
	c.rig.seed = (uint64_t)_i;
	rig_open(&c.rig);
	history_open(&c.rig, &c.history);
	history_open(&c.rig, &c.other);
	history_prefill(&c.rig, &c.history, 60);
	history_prefill(&c.rig, &c.other, 60);
	ck_good(dhs_session_evict(c.rig.context, c.other.id, &c.fence));
	table_open(&c.rig, &c.table, 1, 1, 8);
	table_open(&c.rig, &table, 1, 1, 8);
	turn_open(&c.turn, &table);
	turn_add(&c.turn, &c.history, 1, 1, 1);
	turn_begin(&c.turn);
	turn_write(&c.turn);
	ck_good(device_capture_begin(&c.rig.device, c.rig.stream));
	check_capturing(&c);
	ck_good(device_capture_end(&c.rig.device, c.rig.stream, &graph));
	ck_good(device_graph_destroy(&c.rig.device, graph));
	/* A commit of prefill, too. */
	ck_good(dhs_session_extend(c.rig.context, c.other.id, 4, c.rig.stream, slots));
	ck_good(device_capture_begin(&c.rig.device, c.rig.stream));
	not_captured(&c, dhs_session_commit(c.rig.context, c.other.id, 4, c.rig.stream));
	ck_good(device_capture_end(&c.rig.device, c.rig.stream, &graph));
	ck_good(device_graph_destroy(&c.rig.device, graph));
	ck_good(dhs_session_truncate(c.rig.context, c.other.id, 60));
	turn_end(&c.turn);
	history_verify(&table, &c.history);
	history_verify(&c.table, &c.other);
	rig_works(&c.rig);
	table_close(&table);
	table_close(&c.table);
	rig_close(&c.rig);
}
END_TEST

START_TEST(test_lend_not_captured)
{
	struct rig rig;
	struct device_graph *graph = NULL;
	int32_t page[1];
	dhs_fence fence[1];
	size_t taken = 0;

	rig_default(&rig);
	rig.engine_pool = true;
	rig_open(&rig);
	ck_good(dhs_take_pages(rig.context, 1, page, fence, &taken));
	ck_good(device_capture_begin(&rig.device, rig.stream));
	ck_code(dhs_lend_pages(rig.context, page, 1, rig.stream), DHS_ERR_CAPTURING);
	ck_good(device_capture_end(&rig.device, rig.stream, &graph));
	ck_good(dhs_lend_pages(rig.context, page, 1, rig.stream));
	ck_good(device_graph_destroy(&rig.device, graph));
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

/* Calls that enqueue on other streams, or on none, go on beside a capture. */
START_TEST(test_beside_a_capture)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	struct device_graph *graph = NULL;
	dhs_session other = 0;

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 60);
	table_open(&rig, &table, 1, 1, 8);
	ck_good(device_capture_begin(&rig.device, rig.side));
	turn_open(&turn, &table);
	turn_add(&turn, &history, 2, 1, 1);
	turn_begin(&turn);
	turn_write(&turn);
	ck_good(dhs_session_create(rig.context, NULL, &other));
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	turn_end(&turn);
	ck_good(dhs_session_suspend(rig.context, history.id, NULL));
	ck_good(dhs_session_resume(rig.context, history.id));
	ck_good(dhs_session_destroy(rig.context, other));
	history_verify(&table, &history);
	ck_good(dhs_context_wait(rig.context));
	ck_good(device_capture_end(&rig.device, rig.side, &graph));
	ck_good(device_graph_destroy(&rig.device, graph));
	table_close(&table);
	rig_close(&rig);
}
END_TEST

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *replay = support_case("replay", in_pool), *refuse = support_case("refuse", in_pool);

	tcase_set_timeout(replay, support_seconds(60));
	tcase_add_loop_test(replay, test_replay, 0, 9);
	tcase_add_loop_test(replay, test_replay_ahead, 0, 6);
	tcase_add_loop_test(replay, test_replay_mixed, 0, 6);
	tcase_add_loop_test(replay, test_replay_without_step, 0, 3);
	tcase_add_loop_test(replay, test_capture_in_a_step, 0, 3);
	suite_add_tcase(suite, replay);
	tcase_set_timeout(refuse, support_seconds(60));
	tcase_add_loop_test(refuse, test_not_captured, 0, 3);
	tcase_add_test(refuse, test_lend_not_captured);
	tcase_add_loop_test(refuse, test_beside_a_capture, 0, 3);
	suite_add_tcase(suite, refuse);
}

int main(void)
{
	Suite *suite = suite_create("capture");

	support_both(suite, add_cases);
	return support_run(suite);
}
