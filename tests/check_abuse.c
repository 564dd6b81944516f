/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What an engine does wrong must hurt nobody else: counts that contradict each
 * other, streams that are gone or being captured, pads where rows lie. */
#include "support.h"

#include <time.h>

/* ---- counts that contradict what the device kept ---------------------------- */

struct liar {
	struct rig rig;
	struct table table;
	struct history honest;
	dhs_session liar;
	int32_t *slots;
};

/* The rows that the liar may have at most are as few as its settle says. */
static void liar_open(struct liar *l, uint64_t seed, uint32_t policy)
{
	rig_default(&l->rig);
	l->rig.seed = seed;
	l->rig.options.policy = policy;
	l->rig.options.max_rows = 16;
	l->rig.options.max_new_rows = 8;
	l->rig.options.host_rows = policy == DHS_POLICY_FULL ? 0 : 64;
	rig_open(&l->rig);
	table_open(&l->rig, &l->table, 2, 1, 8);
	ck_assert_int_eq(dhs_session_create(l->rig.context, NULL, &l->liar), DHS_OK);
	history_open(&l->rig, &l->honest);
	history_prefill(&l->rig, &l->honest, 12);
	l->slots = rig_keep(&l->rig, 8 * sizeof(*l->slots));
}

/* Keeps eight rows on the device, whatever the host is told then. */
static dhs_step lie(struct liar *l)
{
	dhs_step_entry entry = { l->liar, 8, 0 };
	dhs_step step;

	ck_assert_int_eq(dhs_step_begin(l->table.batch, &entry, 1, sizeof(entry), l->rig.stream, &step),
	                 DHS_OK);
	ck_assert_int_eq(dhs_step_slots(l->table.batch, 1, 8, l->slots, l->rig.stream), DHS_OK);
	ck_assert_int_eq(dhs_step_commit(l->table.batch, 1, NULL, l->rig.stream), DHS_OK);
	return step;
}

static void tell(struct liar *l, dhs_step step, int aborts)
{
	uint32_t none = 0;

	if (aborts)
		ck_assert_int_eq(dhs_step_abort(l->rig.context, step), DHS_OK);
	else
		ck_assert_int_eq(dhs_step_settle(l->rig.context, step, &none, 1), DHS_OK);
	rig_sync(&l->rig);
}

START_TEST(test_contradiction)
{
	static const uint32_t policies[] = { DHS_POLICY_FIXED, DHS_POLICY_ADAPTIVE, DHS_POLICY_FULL };
	dhs_step_entry entry = { 0 };
	struct liar l;
	dhs_step step;

	liar_open(&l, (uint64_t)(_i / 6), policies[_i % 3]);
	tell(&l, lie(&l), _i / 3 % 2);
	for (int i = 0; i < 8; i++)
		ck_assert_int_ge(l.slots[i], 0);
	tell(&l, lie(&l), _i / 3 % 2);
	/* The device has 8 rows where places for 8 are reserved: no slot is left to give. */
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(l.slots[i], -1);
	entry.session = l.liar;
	ck_assert_int_eq(dhs_step_begin(l.table.batch, &entry, 1, sizeof(entry), l.rig.stream, &step),
	                 DHS_ERR_MISMATCH);
	ck_assert_int_eq(dhs_session_destroy(l.rig.context, l.liar), DHS_OK);
	history_verify(&l.table, &l.honest);
	history_close(&l.rig, &l.honest);
	table_close(&l.table);
	rig_close(&l.rig);
}
END_TEST

/* ---- streams that are gone, or being captured ------------------------------- */

static dhs_step begin_late(struct rig *rig, struct table *table, const struct history *history,
                           dhs_stream stream)
{
	dhs_step_entry entry = { history->id, 1, 0 };
	dhs_step step;

	ck_assert_int_eq(dhs_step_begin(table->batch, &entry, 1, sizeof(entry), stream, &step), DHS_OK);
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(
			dhs_step_slots(table->batch, 1, 2, rig_keep(rig, 2 * sizeof(int32_t)), stream), DHS_OK);
	return step;
}

static void set(void *copy)
{
	*(*(int **)copy) = 1;
}

START_TEST(test_destroy_while_captured)
{
	int ran = 0, *flag = &ran;
	struct rig rig;
	struct table table;
	struct history history;
	dhs_host_graph *graph;

	rig_default(&rig);
	rig.seed = (uint64_t)_i + 1;
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 4);
	history_open(&rig, &history);
	begin_late(&rig, &table, &history, rig.stream);
	ck_assert_int_eq(dhs_host_launch(rig.stream, set, &flag, sizeof(flag)), DHS_OK);
	ck_assert_int_eq(dhs_host_capture_begin(rig.stream), DHS_OK);
	dhs_context_destroy(rig.context); /* what was enqueued before the capture has run */
	rig.context = NULL;
	ck_assert_int_eq(ran, 1);
	ck_assert_int_eq(dhs_host_capture_end(rig.stream, &graph), DHS_OK);
	ck_assert_int_eq(dhs_host_graph_destroy(graph), DHS_OK);
	rig_close(&rig);
}
END_TEST

START_TEST(test_stream_gone)
{
	uint32_t kept = 1;
	struct rig rig;
	struct table table;
	struct history history;
	dhs_stream gone;
	dhs_step step;
	int32_t slots[4];

	rig_default(&rig);
	rig.seed = (uint64_t)_i + 1;
	rig_open(&rig);
	table_open(&rig, &table, 1, 1, 4);
	history_open(&rig, &history);
	ck_assert_int_eq(dhs_host_stream_create(rig.host, &gone), DHS_OK);
	ck_assert_int_eq(dhs_session_extend(rig.context, history.id, 4, gone, slots), DHS_OK);
	ck_assert_int_eq(dhs_host_stream_destroy(gone), DHS_OK);
	ck_assert_int_eq(dhs_session_commit(rig.context, history.id, 4, gone), DHS_ERR_ARGUMENT);
	ck_assert_int_eq(dhs_session_truncate(rig.context, history.id, 0), DHS_OK);

	ck_assert_int_eq(dhs_host_stream_create(rig.host, &gone), DHS_OK);
	step = begin_late(&rig, &table, &history, gone);
	ck_assert_int_eq(dhs_host_stream_destroy(gone), DHS_OK);
	ck_assert_int_eq(dhs_step_end(rig.context, step, &kept, 1), DHS_ERR_ARGUMENT);
	ck_assert_int_eq(dhs_step_abort(rig.context, step), DHS_OK);
	ck_assert_int_eq(dhs_context_wait(rig.context), DHS_OK);

	history_prefill(&rig, &history, 9);
	history_verify(&table, &history);
	history_close(&rig, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* ---- handles and pads ------------------------------------------------------- */

/* A handle of a context is of no other one that lives at the same time, however many
 * came and went. */
START_TEST(test_many_contexts)
{
	struct rig rig, other;
	dhs_session session;
	dhs_context *context;

	rig_default(&rig);
	rig_open(&rig);
	ck_assert_int_eq(dhs_session_create(rig.context, NULL, &session), DHS_OK);
	rig_default(&other);
	rig_open_host(&other);
	other.options.host = other.host;
	for (uint32_t i = support_times(65536 + 2); i; i--) {
		dhs_session theirs;

		ck_assert_int_eq(dhs_context_create(&other.options, &context), DHS_OK);
		ck_assert_int_eq(dhs_session_create(context, NULL, &theirs), DHS_OK);
		ck_assert(theirs != session);
		ck_assert_int_eq(dhs_session_destroy(context, session), DHS_ERR_ARGUMENT);
		dhs_context_destroy(context);
	}
	ck_assert_int_eq(dhs_session_destroy(rig.context, session), DHS_OK);
	rig_close(&other);
	rig_close(&rig);
}
END_TEST

START_TEST(test_pads_where_rows_lie)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_batch *batch;
	struct rig rig;

	rig_default(&rig);
	rig.options.reserved_pages = (uint32_t)_i;
	rig_open(&rig);
	options.top_k = 4;
	options.flags = DHS_BATCH_READ_PAD | DHS_BATCH_WRITE_PAD;
	options.read_pad = -1;
	options.write_pad = 4 * _i; /* the first slot behind the reserved pages */
	ck_assert_int_eq(dhs_batch_create(rig.context, &options, &batch), DHS_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(dhs_last_error(), "write_pad"));
	options.write_pad--;
	ck_assert_int_eq(dhs_batch_create(rig.context, &options, &batch), DHS_OK);
	ck_assert_int_eq(dhs_batch_destroy(batch), DHS_OK);
	rig_close(&rig);
}
END_TEST

/* ---- growth ------------------------------------------------------------------ */

/* Prefills without steps leave nothing behind. */
START_TEST(test_prefill_only)
{
	struct rig rig;
	uint64_t before = 0;

	rig_default(&rig);
	rig_open(&rig);
	for (uint32_t i = 0; i < 5000; i++) {
		dhs_session session;
		int32_t slot;

		if (i == 100)
			before = memory_live(&rig.memory);
		ck_assert_int_eq(dhs_session_create(rig.context, NULL, &session), DHS_OK);
		ck_assert_int_eq(dhs_session_extend(rig.context, session, 1, rig.stream, &slot), DHS_OK);
		ck_assert_int_eq(dhs_session_commit(rig.context, session, 1, rig.stream), DHS_OK);
		ck_assert_int_eq(dhs_session_destroy(rig.context, session), DHS_OK);
		ck_assert_int_eq(dhs_host_stream_sync(rig.stream), DHS_OK);
	}
	ck_assert_uint_le(memory_live(&rig.memory), before + 1024);
	rig_close(&rig);
}
END_TEST

/* Every pair of 1,024 layers whose rows lie interleaved is told apart. */
START_TEST(test_interleaved_layers)
{
	enum { LAYERS = 1024, ROWS = 4096, BYTES = 16 };
	dhs_required required = DHS_INIT(dhs_required);
	uint64_t stride = (uint64_t)LAYERS * BYTES;
	dhs_segment segment = { .bytes = BYTES, .row_stride = stride, .page_stride = stride * ROWS };
	static void *pool[LAYERS];
	struct rig rig;

	rig_default(&rig);
	rig.options.layout = &rig.layout;
	rig.layout = (dhs_layout){ .size = sizeof(dhs_layout),
		                       .layers = LAYERS,
		                       .segments = 1,
		                       .segment_size = sizeof(segment),
		                       .segment = &segment,
		                       .page_rows = ROWS };
	for (int i = 0; i < LAYERS; i++)
		pool[i] = (char *)(uintptr_t)65536 + i * BYTES;
	rig_use_pool(&rig, pool);
	ck_assert_int_eq(dhs_context_required(&rig.options, &required), DHS_OK);
	pool[LAYERS - 1] = (char *)pool[LAYERS - 1] + 4; /* into the next row of layer 0 */
	ck_assert_int_eq(dhs_context_required(&rig.options, &required), DHS_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(dhs_last_error(), "layer 1023"));
	pool[LAYERS - 1] = (char *)pool[LAYERS - 1] - 8; /* into layer 1022 */
	ck_assert_int_eq(dhs_context_required(&rig.options, &required), DHS_ERR_ARGUMENT);
	rig_forget(&rig);
}
END_TEST

static Suite *abuse_suite(void)
{
	Suite *suite = suite_create("abuse");
	TCase *wrong = tcase_create("wrong"), *growth = tcase_create("growth");

	tcase_set_timeout(wrong, support_seconds(60));
	tcase_set_timeout(growth, support_seconds(60));
	tcase_add_loop_test(wrong, test_contradiction, 0, 24);
	tcase_add_loop_test(wrong, test_destroy_while_captured, 0, 10);
	tcase_add_loop_test(wrong, test_stream_gone, 0, 10);
	tcase_add_test(wrong, test_many_contexts);
	tcase_add_loop_test(wrong, test_pads_where_rows_lie, 0, 3);
	tcase_add_test(growth, test_prefill_only);
	tcase_add_test(growth, test_interleaved_layers);
	suite_add_tcase(suite, wrong);
	suite_add_tcase(suite, growth);
	return suite;
}

int main(void)
{
	return support_run(abuse_suite());
}
