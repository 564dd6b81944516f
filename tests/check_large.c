/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The sizes that the CUDA backend must bear, and that small tests do not reach: long
 * histories, large hot caches, many sessions, addresses past 32 bits.  Where the host
 * backend can follow it plays the same calls, and all slots must be equal.
 */
#include "device_kernels.h"
#include "support.h"

#include <cuda_runtime_api.h>

enum { MOST = 256, LAYERS = 3 };

/* One context on one backend. */
struct side {
	struct device device;
	dhs_stream stream;
	dhs_context *context;
	dhs_batch *batch;
	dhs_session session[MOST];
	dhs_place *place;
	int32_t *rows, *slots, *new_slots;
	uint32_t *wrong;
};

struct large {
	uint32_t sessions, queries, top_k, new_rows;
	uint32_t length[MOST];
	uint32_t group_layers[2];
	dhs_segment segment;
	dhs_layout layout;
	dhs_context_options options;
	dhs_batch_options batch;
	struct side side[2];
	uint32_t sides; /* 1: CUDA alone */
	struct dice dice;
};

static uint64_t entries_of(const struct large *l)
{
	return (uint64_t)l->sessions * l->queries * l->top_k;
}

/* One group of one layer and one of two; the numbers can be changed before large_open. */
static void large_default(struct large *l, uint32_t sessions, uint32_t queries, uint32_t top_k)
{
	memset(l, 0, sizeof(*l));
	l->sessions = sessions;
	l->queries = queries;
	l->top_k = top_k;
	l->new_rows = 4;
	l->dice.state = 1;
	l->segment.bytes = 64;
	l->group_layers[0] = 1;
	l->group_layers[1] = 2;
	l->layout = (dhs_layout)DHS_INIT(dhs_layout);
	l->layout.layers = LAYERS;
	l->layout.groups = 2;
	l->layout.group_layers = l->group_layers;
	l->layout.segments = 1;
	l->layout.segment_size = sizeof(dhs_segment);
	l->layout.segment = &l->segment;
	l->options = (dhs_context_options)DHS_INIT(dhs_context_options);
	l->options.layout = &l->layout;
	l->options.policy = DHS_POLICY_FIXED;
	l->options.max_sessions = sessions;
	l->options.max_new_rows = l->new_rows;
	l->batch = (dhs_batch_options)DHS_INIT(dhs_batch_options);
	l->batch.max_sessions = sessions;
	l->batch.max_queries = queries;
	l->batch.top_k = top_k;
	l->sides = 2;
}

/* Pages for the sessions, the batch and `spare` rows of prefill. */
static void large_pages(struct large *l, uint32_t spare)
{
	dhs_required context = DHS_INIT(dhs_required), batch = DHS_INIT(dhs_required);

	ck_good(dhs_context_required(&l->options, &context));
	ck_good(dhs_batch_required(&l->options, &l->batch, &batch));
	l->options.device_pages =
		l->sessions * context.session_pages + batch.staging_pages + spare / 64 + 2;
}

static void *side_memory(struct side *s, size_t bytes)
{
	void *memory = device_memory(&s->device, bytes);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static void side_open(struct large *l, struct side *s, uint32_t backend)
{
	ck_good(device_open(&s->device, backend, 0, NULL));
	ck_good(device_stream_create(&s->device, &s->stream));
	l->options.backend = backend;
	l->options.host = s->device.host;
	ck_good(dhs_context_create(&l->options, &s->context));
	ck_good(dhs_batch_create(s->context, &l->batch, &s->batch));
	s->place = side_memory(s, sizeof(dhs_place) * l->layout.layers);
	for (uint32_t i = 0; i < l->layout.layers; i++) {
		s->place[i].size = sizeof(dhs_place);
		ck_good(dhs_context_place(s->context, i, 0, &s->place[i]));
	}
	for (uint32_t i = 0; i < l->sessions; i++)
		ck_good(dhs_session_create(s->context, NULL, &s->session[i]));
	s->rows = side_memory(s, sizeof(int32_t) * entries_of(l));
	s->slots = side_memory(s, sizeof(int32_t) * entries_of(l));
	s->new_slots = side_memory(s, sizeof(int32_t) * l->sessions * l->new_rows);
	s->wrong = side_memory(s, sizeof(uint32_t));
}

static void large_open(struct large *l)
{
	side_open(l, &l->side[0], DHS_BACKEND_CUDA);
	if (l->sides == 2)
		side_open(l, &l->side[1], DHS_BACKEND_HOST);
}

static void side_close(struct side *s)
{
	ck_good(device_stream_sync(&s->device, s->stream));
	ck_good(dhs_context_wait(s->context));
	dhs_context_destroy(s->context);
	device_release(&s->device, s->place);
	device_release(&s->device, s->rows);
	device_release(&s->device, s->slots);
	device_release(&s->device, s->new_slots);
	device_release(&s->device, s->wrong);
	ck_good(device_stream_destroy(&s->device, s->stream));
	ck_good(device_stop(&s->device));
	ck_good(device_close(&s->device));
}

static void large_close(struct large *l)
{
	for (uint32_t i = 0; i < l->sides; i++)
		side_close(&l->side[i]);
}

/* ---- rows ------------------------------------------------------------------- */

static void write_rows_host(const struct large *l, const struct device_stamps *t)
{
	for (uint64_t i = 0; i < t->count; i++)
		for (uint32_t layer = 0; layer < l->layout.layers && t->slots[i] >= 0; layer++) {
			const dhs_place *p = &t->place[layer];
			uint32_t slot = (uint32_t)t->slots[i];
			uint32_t *words = (void *)((char *)p->base + slot / p->page_rows * p->page_stride +
			                           slot % p->page_rows * p->row_stride);

			for (uint32_t w = 0; w < p->bytes / 4; w++)
				words[w] = device_stamp(t->session, t->first + (uint32_t)i, layer, w);
		}
}

/* Writes rows first, first + 1, ... of session e at these slots. */
static void write_rows(struct large *l, struct side *s, uint32_t e, const int32_t *slots,
                       uint32_t first, uint32_t count)
{
	struct device_stamps t = { .place = s->place, .slots = slots, .count = count };

	t.first = first;
	t.session = e;
	t.some = l->layout.layers;
	if (s->device.direct)
		write_rows_host(l, &t);
	else
		ck_assert_int_eq(device_kernel_stamp(&t, s->stream), 0);
}

static void prefill_side(struct large *l, struct side *s, uint32_t e, uint32_t count)
{
	int32_t *slots = side_memory(s, sizeof(int32_t) * count);

	ck_good(dhs_session_extend(s->context, s->session[e], count, s->stream, slots));
	write_rows(l, s, e, slots, l->length[e], count);
	ck_good(dhs_session_commit(s->context, s->session[e], count, s->stream));
	ck_good(device_stream_sync(&s->device, s->stream));
	device_release(&s->device, slots);
}

/* In pieces: what is left behind goes to the host tier with the next piece. */
static void prefill(struct large *l, uint32_t e, uint32_t count, uint32_t piece)
{
	for (uint32_t at = 0; at < count; at += piece) {
		uint32_t n = count - at < piece ? count - at : piece;

		for (uint32_t i = 0; i < l->sides; i++)
			prefill_side(l, &l->side[i], e, n);
		l->length[e] += n;
	}
}

/* ---- steps ------------------------------------------------------------------ */

/* Anywhere, in a working set, at multiples of powers of two, and what is no row. */
static int32_t draw_row(struct large *l, uint32_t length)
{
	uint32_t face = dice_below(&l->dice, 20), row;

	if (face == 0)
		return -1 - (int32_t)dice_below(&l->dice, 3);
	if (face == 1)
		return (int32_t)(length + dice_below(&l->dice, 100));
	row = dice_below(&l->dice, length);
	if (face < 10)
		row = row % 40000 * 23 % length;
	if (face == 10)
		row = (row >> dice_below(&l->dice, 20) << dice_below(&l->dice, 20)) % length;
	return (int32_t)row;
}

static void draw(struct large *l)
{
	struct side *s = &l->side[0];
	uint64_t each = (uint64_t)l->queries * l->top_k;

	for (uint64_t i = 0; i < entries_of(l); i++)
		s->rows[i] = draw_row(l, l->length[i / each] + l->new_rows);
	if (l->sides == 2)
		memcpy(l->side[1].rows, s->rows, sizeof(int32_t) * entries_of(l));
}

static void resolve(struct side *s, uint32_t group)
{
	dhs_selection selection = DHS_INIT(dhs_selection);

	selection.rows = s->rows;
	selection.slots = s->slots;
	ck_good(dhs_step_plan(s->batch, group, &selection, s->stream));
	ck_good(dhs_step_fetch(s->batch, group, 0, 0, s->stream));
}

static void check_bytes(struct large *l, struct side *s, uint32_t group)
{
	struct device_stamps t = { .place = s->place, .slots = s->slots, .rows = s->rows };

	t.count = entries_of(l);
	t.each = l->queries * l->top_k;
	t.from = group ? l->group_layers[0] : 0;
	t.some = l->group_layers[group];
	ck_assert_int_eq(device_kernel_check(&t, s->wrong, s->stream), 0);
}

static void check_slots(const struct large *l, uint32_t group)
{
	const struct side *a = &l->side[0], *b = &l->side[1];

	for (uint64_t i = 0; i < entries_of(l); i++)
		ck_assert_msg(a->slots[i] == b->slots[i], "group %u entry %llu row %d: cuda %d, host %d",
		              group, (unsigned long long)i, a->rows[i], a->slots[i], b->slots[i]);
}

static void group_step(struct large *l, uint32_t group)
{
	draw(l);
	for (uint32_t i = 0; i < l->sides; i++)
		resolve(&l->side[i], group);
	check_bytes(l, &l->side[0], group);
	for (uint32_t i = 0; i < l->sides; i++)
		ck_good(device_stream_sync(&l->side[i].device, l->side[i].stream));
	ck_assert_msg(*l->side[0].wrong == 0, "group %u: %u entries with other bytes", group,
	              *l->side[0].wrong);
	if (l->sides == 2)
		check_slots(l, group);
}

static void begin(struct large *l, struct side *s, dhs_step *step)
{
	static dhs_step_entry entry[MOST];

	for (uint32_t e = 0; e < l->sessions; e++)
		entry[e] = (dhs_step_entry){ s->session[e], l->new_rows, l->queries };
	ck_good(dhs_step_begin(s->batch, entry, l->sessions, sizeof(entry[0]), s->stream, step));
	ck_good(dhs_step_slots(s->batch, 0, l->new_rows, s->new_slots, s->stream));
	ck_good(device_stream_sync(&s->device, s->stream));
	for (uint32_t e = 0; e < l->sessions; e++)
		write_rows(l, s, e, s->new_slots + (size_t)e * l->new_rows, l->length[e], l->new_rows);
}

static void large_step(struct large *l)
{
	static uint32_t kept[MOST];
	dhs_step step[2];

	for (uint32_t i = 0; i < l->sides; i++)
		begin(l, &l->side[i], &step[i]);
	for (uint32_t group = 0; group < l->layout.groups; group++)
		group_step(l, group);
	for (uint32_t e = 0; e < l->sessions; e++)
		kept[e] = l->new_rows;
	for (uint32_t i = 0; i < l->sides; i++)
		ck_good(dhs_step_end(l->side[i].context, step[i], kept, l->sessions));
	for (uint32_t e = 0; e < l->sessions; e++)
		l->length[e] += l->new_rows;
}

/* An emulated device takes a thousand times as long. */
static void large_steps(struct large *l, uint32_t steps)
{
	if (l->side[0].device.direct)
		steps = 2;
	for (uint32_t i = 0; i < steps; i++)
		large_step(l);
}

static dhs_stats large_stats(struct side *s)
{
	dhs_stats stats = DHS_INIT(dhs_stats);

	ck_good(dhs_context_wait(s->context));
	ck_good(dhs_context_stats(s->context, &stats));
	stats.flow_waits = 0;
	stats.backend = 0;
	return stats;
}

static void check_counts(struct large *l)
{
	dhs_stats a = large_stats(&l->side[0]), b = large_stats(&l->side[1]);

	ck_assert_uint_eq(a.order_errors, 0);
	ck_assert_uint_gt(a.misses, 0);
	ck_assert_uint_gt(a.victims, 0);
	ck_assert_mem_eq(&a, &b, sizeof(a));
}

/* ---- tests ------------------------------------------------------------------ */

START_TEST(test_long_history)
{
	static const uint32_t hot[] = { 32767, 32766, 4096, 33 };
	struct large l;

	large_default(&l, 1, 16, 2048);
	l.options.max_rows = 1000000 + 200;
	l.options.host_rows = 1000000 + 400;
	l.options.hot_rows = hot[_i];
	large_pages(&l, 65536 + 4096);
	large_open(&l);
	prefill(&l, 0, 1000000, 65536);
	large_steps(&l, 12);
	check_counts(&l);
	large_close(&l);
}
END_TEST

/* Histories that end just before, at and behind a window of the plan. */
START_TEST(test_window_edges)
{
	struct large l;

	large_default(&l, 1, 2, 2048);
	l.options.max_rows = 262144 + 64 * (uint32_t)_i;
	l.options.host_rows = 262144 + 512;
	l.options.hot_rows = 1000;
	large_pages(&l, 65536 + 4096);
	large_open(&l);
	prefill(&l, 0, 262144 - 16, 65536);
	large_steps(&l, 4 + 8 * (uint32_t)(_i != 0));
	check_counts(&l);
	large_close(&l);
}
END_TEST

START_TEST(test_many_sessions)
{
	struct large l;

	large_default(&l, 256, 1, 2048);
	l.options.max_rows = 20000;
	l.options.host_rows = 256 * 9000;
	l.options.hot_rows = 2500;
	large_pages(&l, 20000);
	large_open(&l);
	for (uint32_t e = 0; e < 256; e++)
		prefill(&l, e, 3000 + 17 * e, 20000);
	large_steps(&l, 8);
	check_counts(&l);
	large_close(&l);
}
END_TEST

/* Rows of 16 KB: both tiers are larger than 4 GiB, on one layer. */
START_TEST(test_far_addresses)
{
	struct large l;
	size_t spare = 0, all = 0;

	ck_assert_int_eq(cudaMemGetInfo(&spare, &all), 0);
	if (spare < (size_t)12 << 30)
		return;
	large_default(&l, 1, 4, 2048);
	l.sides = 1;
	l.segment.bytes = 16384;
	l.layout.layers = 1;
	l.layout.groups = 1;
	l.options.policy = DHS_POLICY_ADAPTIVE;
	l.options.max_rows = 300000;
	l.options.host_rows = 300000;
	l.options.hot_rows = 4096;
	large_pages(&l, 300000);
	large_open(&l);
	prefill(&l, 0, 290000, 50000);
	for (uint32_t i = 0; i < 3; i++)
		large_step(&l);
	ck_good(dhs_session_evict(l.side[0].context, l.side[0].session[0], NULL));
	for (uint32_t i = 0; i < 6; i++)
		large_step(&l);
	ck_assert_uint_gt(large_stats(&l.side[0]).misses, 10000);
	large_close(&l);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("large");
	TCase *large = tcase_create("large");

	tcase_set_timeout(large, support_seconds(300));
	tcase_add_loop_test(large, test_window_edges, 0, 3);
	tcase_add_loop_test(large, test_long_history, 0, 4);
	tcase_add_test(large, test_many_sessions);
	tcase_add_test(large, test_far_addresses);
	suite_add_tcase(suite, large);
	return support_run(suite);
}
