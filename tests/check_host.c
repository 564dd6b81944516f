/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The host backend as a device: what its streams promise and what they don't. */
#include "support.h"

#define STREAMS 4
#define LOG 4096

struct bare {
	struct memory memory;
	dhs_host *host;
	dhs_stream stream[STREAMS];
	uint32_t log[LOG]; /* what ran, in order */
	_Atomic uint32_t logged;
	uint32_t done[STREAMS]; /* last mark that ran, by stream */
	uint32_t early;         /* marks that ran too early or twice */
	uint32_t marks[STREAMS];
	uint32_t knows[STREAMS][STREAMS]; /* marks that a stream's next work comes after */
};

static void bare_open(struct bare *device, uint64_t seed)
{
	dhs_host_options options = DHS_INIT(dhs_host_options);

	memset(device, 0, sizeof(*device));
	memory_open(&device->memory);
	options.seed = seed;
	options.allocator = &device->memory.allocator;
	ck_good(dhs_host_create(&options, &device->host));
	for (uint32_t i = 0; i < STREAMS; i++)
		ck_good(dhs_host_stream_create(device->host, &device->stream[i]));
}

static void bare_sync(struct bare *device)
{
	for (uint32_t i = 0; i < STREAMS; i++)
		ck_good(dhs_host_stream_sync(device->stream[i]));
}

static void bare_close(struct bare *device)
{
	for (uint32_t i = 0; i < STREAMS; i++)
		ck_good(dhs_host_stream_destroy(device->stream[i]));
	ck_good(dhs_host_destroy(device->host));
	ck_assert_uint_eq(memory_live(&device->memory), 0);
	ck_assert_uint_eq(device->memory.wrong, 0);
}

struct mark {
	struct bare *device;
	uint32_t stream, number;
	uint32_t after[STREAMS];
};

static void mark_kernel(void *copy)
{
	struct mark *mark = copy;
	struct bare *device = mark->device;
	uint32_t at = atomic_fetch_add(&device->logged, 1);

	if (at < LOG)
		device->log[at] = mark->stream << 24 | mark->number;
	for (uint32_t i = 0; i < STREAMS; i++)
		device->early += device->done[i] < mark->after[i];
	device->early += mark->number != device->done[mark->stream] + 1;
	device->done[mark->stream] = mark->number;
}

static void bare_mark(struct bare *device, uint32_t stream)
{
	struct mark mark = { .device = device, .stream = stream };

	mark.number = ++device->marks[stream];
	memcpy(mark.after, device->knows[stream], sizeof(mark.after));
	device->knows[stream][stream] = mark.number;
	ck_good(dhs_host_launch(device->stream[stream], mark_kernel, &mark, sizeof(mark)));
	memset(&mark, 0xee, sizeof(mark));
}

static void bare_join(struct bare *device, uint32_t stream, uint32_t other)
{
	ck_good(dhs_host_stream_join(device->stream[stream], device->stream[other]));
	for (uint32_t i = 0; i < STREAMS; i++)
		if (device->knows[stream][i] < device->knows[other][i])
			device->knows[stream][i] = device->knows[other][i];
}

static void check_all_ran(const struct bare *device)
{
	ck_assert_uint_eq(device->early, 0);
	for (uint32_t i = 0; i < STREAMS; i++)
		ck_assert_uint_eq(device->done[i], device->marks[i]);
}

static void play_marks(struct bare *device, struct dice *dice, uint32_t count, bool join)
{
	for (uint32_t i = 0; i < count; i++) {
		bare_mark(device, dice_below(dice, STREAMS));
		if (join && dice_below(dice, 3) == 0)
			bare_join(device, dice_below(dice, STREAMS), dice_below(dice, STREAMS));
		if (dice_below(dice, 50) == 0)
			ck_good(dhs_host_stream_sync(device->stream[dice_below(dice, STREAMS)]));
	}
}

START_TEST(test_order)
{
	struct bare device;
	struct dice dice = { (uint64_t)_i };
	uint64_t reorderings = 99;

	bare_open(&device, (uint64_t)_i);
	play_marks(&device, &dice, 2000, true);
	bare_sync(&device);
	check_all_ran(&device);
	ck_good(dhs_host_reorderings(device.host, &reorderings));
	if (_i == 0)
		ck_assert_uint_eq(reorderings, 0);
	else
		ck_assert_uint_gt(reorderings, 10);
	bare_close(&device);
}
END_TEST

START_TEST(test_chain_of_joins)
{
	struct bare device;
	uint64_t reorderings = 99;

	bare_open(&device, (uint64_t)_i);
	for (uint32_t i = 0; i < 200; i++) {
		bare_mark(&device, i % STREAMS);
		bare_join(&device, (i + 1) % STREAMS, i % STREAMS);
	}
	bare_sync(&device);
	check_all_ran(&device);
	for (uint32_t i = 0; i < 200; i++)
		ck_assert_uint_eq(device.log[i], (i % STREAMS) << 24 | (i / STREAMS + 1));
	ck_good(dhs_host_reorderings(device.host, &reorderings));
	ck_assert_uint_eq(reorderings, 0);
	bare_close(&device);
}
END_TEST

START_TEST(test_join_is_a_point)
{
	uint32_t before = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct bare device;

		bare_open(&device, seed);
		bare_mark(&device, 0);
		bare_join(&device, 1, 0);
		for (uint32_t i = 0; i < 20; i++)
			bare_mark(&device, 0);
		bare_mark(&device, 1);
		bare_sync(&device);
		check_all_ran(&device);
		for (uint32_t i = 0; i + 1 < 22; i++)
			before += device.log[i] >> 24 == 1;
		bare_close(&device);
	}
	/* What came after the join on the other stream is not waited for. */
	ck_assert_uint_gt(before, 0);
}
END_TEST

START_TEST(test_join_itself)
{
	struct bare device;

	bare_open(&device, 5);
	bare_mark(&device, 0);
	bare_join(&device, 0, 0);
	bare_mark(&device, 0);
	bare_join(&device, 1, 2); /* nothing on it */
	bare_mark(&device, 1);
	bare_sync(&device);
	check_all_ran(&device);
	bare_close(&device);
}
END_TEST

START_TEST(test_seed_zero_at_once)
{
	struct bare device;

	bare_open(&device, 0);
	for (uint32_t i = 0; i < 100; i++) {
		bare_mark(&device, i % STREAMS);
		ck_assert_uint_eq(device.done[i % STREAMS], device.marks[i % STREAMS]);
	}
	bare_close(&device);
}
END_TEST

START_TEST(test_other_seeds_late)
{
	uint32_t late = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct bare device;

		bare_open(&device, seed);
		for (uint32_t i = 0; i < 20; i++) {
			bare_mark(&device, 0);
			late += device.done[0] < device.marks[0];
		}
		bare_sync(&device);
		check_all_ran(&device);
		bare_close(&device);
	}
	ck_assert_uint_gt(late, 40);
}
END_TEST

static void log_of(uint64_t seed, uint32_t *log)
{
	struct bare device;
	struct dice dice = { 77 };

	bare_open(&device, seed);
	play_marks(&device, &dice, 1000, true);
	bare_sync(&device);
	memcpy(log, device.log, sizeof(device.log));
	bare_close(&device);
}

START_TEST(test_same_seed_same_order)
{
	static uint32_t a[LOG], b[LOG], c[LOG];

	log_of(11, a);
	log_of(11, b);
	log_of(12, c);
	ck_assert_mem_eq(a, b, sizeof(a));
	ck_assert_int_ne(memcmp(a, c, sizeof(a)), 0);
}
END_TEST

START_TEST(test_sync_one_stream)
{
	struct bare device;

	bare_open(&device, 3);
	for (uint32_t i = 0; i < 100; i++)
		bare_mark(&device, i % STREAMS);
	ck_good(dhs_host_stream_sync(device.stream[2]));
	ck_assert_uint_eq(device.done[2], 25);
	bare_sync(&device);
	check_all_ran(&device);
	bare_close(&device);
}
END_TEST

/* ---- arguments of launches ------------------------------------------------ */

static _Atomic uint64_t summed;

static void sum_kernel(void *copy)
{
	uint64_t number;

	memcpy(&number, copy, sizeof(number));
	atomic_fetch_add(&summed, number);
}

static void nothing_kernel(void *copy)
{
	(void)copy;
	atomic_fetch_add(&summed, 1);
}

START_TEST(test_launch_copies)
{
	struct bare device;

	bare_open(&device, (uint64_t)_i);
	summed = 0;
	for (uint64_t i = 1; i <= 100; i++) {
		uint64_t number = i;

		ck_good(dhs_host_launch(device.stream[i % STREAMS], sum_kernel, &number, sizeof(number)));
		number = UINT64_MAX / 2;
		ck_assert_uint_ne(number, i);
	}
	bare_sync(&device);
	ck_assert_uint_eq(summed, 5050);
	ck_good(dhs_host_launch(device.stream[0], nothing_kernel, NULL, 0));
	bare_sync(&device);
	ck_assert_uint_eq(summed, 5051);
	bare_close(&device);
}
END_TEST

struct block {
	_Alignas(16) unsigned char byte[65536];
};

static void block_kernel(void *copy)
{
	const struct block *block = copy;

	for (uint32_t i = 0; i < sizeof(block->byte); i++)
		if (block->byte[i] != (unsigned char)(i * 7))
			return;
	if ((uintptr_t)copy % 16 == 0)
		atomic_fetch_add(&summed, 1);
}

START_TEST(test_launch_large)
{
	static struct block block;
	struct bare device;

	bare_open(&device, 9);
	summed = 0;
	for (uint32_t i = 0; i < sizeof(block.byte); i++)
		block.byte[i] = (unsigned char)(i * 7);
	for (uint32_t i = 0; i < 10; i++)
		ck_good(dhs_host_launch(device.stream[i % STREAMS], block_kernel, &block, sizeof(block)));
	memset(&block, 0, sizeof(block));
	bare_sync(&device);
	ck_assert_uint_eq(summed, 10);
	bare_close(&device);
}
END_TEST

/* ---- graphs --------------------------------------------------------------- */

static dhs_host_graph *graph_of(dhs_stream stream, uint64_t first, uint64_t last)
{
	dhs_host_graph *graph = NULL;

	ck_good(dhs_host_capture_begin(stream));
	for (uint64_t i = first; i <= last; i++)
		ck_good(dhs_host_launch(stream, sum_kernel, &i, sizeof(i)));
	ck_good(dhs_host_capture_end(stream, &graph));
	ck_assert_ptr_nonnull(graph);
	return graph;
}

START_TEST(test_capture_records)
{
	struct bare device;
	dhs_host_graph *graph;

	bare_open(&device, (uint64_t)_i);
	summed = 0;
	graph = graph_of(device.stream[0], 1, 10);
	bare_sync(&device);
	ck_assert_uint_eq(summed, 0);
	ck_good(dhs_host_graph_launch(graph, device.stream[0]));
	bare_sync(&device);
	ck_assert_uint_eq(summed, 55);
	for (uint32_t i = 0; i < 99; i++)
		ck_good(dhs_host_graph_launch(graph, device.stream[i % STREAMS]));
	bare_sync(&device);
	ck_assert_uint_eq(summed, 5500);
	ck_good(dhs_host_graph_destroy(graph));
	bare_close(&device);
}
END_TEST

START_TEST(test_capture_other_stream_runs)
{
	struct bare device;
	dhs_host_graph *graph = NULL;
	uint64_t one = 1, ten = 10;

	bare_open(&device, (uint64_t)_i);
	summed = 0;
	ck_good(dhs_host_capture_begin(device.stream[0]));
	ck_good(dhs_host_launch(device.stream[0], sum_kernel, &ten, sizeof(ten)));
	ck_good(dhs_host_launch(device.stream[1], sum_kernel, &one, sizeof(one)));
	ck_good(dhs_host_stream_sync(device.stream[1]));
	ck_assert_uint_eq(summed, 1);
	ck_good(dhs_host_capture_end(device.stream[0], &graph));
	ck_good(dhs_host_graph_launch(graph, device.stream[1]));
	bare_sync(&device);
	ck_assert_uint_eq(summed, 11);
	ck_good(dhs_host_graph_destroy(graph));
	bare_close(&device);
}
END_TEST

START_TEST(test_capture_nothing)
{
	struct bare device;
	dhs_host_graph *graph = NULL;

	bare_open(&device, 2);
	ck_good(dhs_host_capture_begin(device.stream[0]));
	ck_good(dhs_host_capture_end(device.stream[0], &graph));
	ck_good(dhs_host_graph_launch(graph, device.stream[0]));
	ck_good(dhs_host_graph_launch(graph, device.stream[0]));
	ck_good(dhs_host_graph_destroy(graph));
	bare_mark(&device, 0);
	bare_sync(&device);
	check_all_ran(&device);
	bare_close(&device);
}
END_TEST

/* A graph's work comes in order, behind what is on the stream and before what
 * comes after it. */
static uint32_t steps[64];
static uint32_t step_count;

static void step_kernel(void *copy)
{
	uint32_t number;

	memcpy(&number, copy, sizeof(number));
	if (step_count < COUNT_OF(steps))
		steps[step_count++] = number;
}

static void launch_step(dhs_stream stream, uint32_t number)
{
	ck_good(dhs_host_launch(stream, step_kernel, &number, sizeof(number)));
}

START_TEST(test_graph_in_stream_order)
{
	struct bare device;
	dhs_host_graph *graph = NULL;

	bare_open(&device, (uint64_t)_i);
	step_count = 0;
	ck_good(dhs_host_capture_begin(device.stream[0]));
	for (uint32_t i = 1; i <= 3; i++)
		launch_step(device.stream[0], i);
	ck_good(dhs_host_capture_end(device.stream[0], &graph));
	for (uint32_t i = 0; i < 10; i++) {
		launch_step(device.stream[1], 0);
		ck_good(dhs_host_graph_launch(graph, device.stream[1]));
		launch_step(device.stream[1], 4);
	}
	ck_good(dhs_host_graph_destroy(graph)); /* while it is queued */
	bare_sync(&device);
	ck_assert_uint_eq(step_count, 50);
	for (uint32_t i = 0; i < 50; i++)
		ck_assert_uint_eq(steps[i], i % 5);
	bare_close(&device);
}
END_TEST

/* ---- ends while busy ------------------------------------------------------ */

START_TEST(test_stream_destroy_busy)
{
	struct bare device;

	bare_open(&device, (uint64_t)_i);
	for (uint32_t i = 0; i < 100; i++)
		bare_mark(&device, i % STREAMS);
	ck_good(dhs_host_stream_destroy(device.stream[1]));
	ck_assert_uint_eq(device.done[1], 25);
	ck_good(dhs_host_stream_create(device.host, &device.stream[1]));
	bare_mark(&device, 1);
	bare_sync(&device);
	check_all_ran(&device);
	ck_good(dhs_host_stream_destroy(NULL));
	bare_close(&device);
}
END_TEST

START_TEST(test_stream_destroy_joined)
{
	struct bare device;

	bare_open(&device, (uint64_t)_i);
	for (uint32_t i = 0; i < 10; i++)
		bare_mark(&device, 0);
	bare_join(&device, 1, 0);
	bare_mark(&device, 1);
	ck_good(dhs_host_stream_destroy(device.stream[0]));
	bare_mark(&device, 1);
	ck_good(dhs_host_stream_create(device.host, &device.stream[0]));
	bare_sync(&device);
	check_all_ran(&device);
	bare_close(&device);
}
END_TEST

START_TEST(test_host_destroy_busy)
{
	struct bare device;

	bare_open(&device, (uint64_t)_i);
	for (uint32_t i = 0; i < 100; i++)
		bare_mark(&device, i % STREAMS);
	ck_good(dhs_host_destroy(device.host)); /* streams go with it */
	check_all_ran(&device);
	ck_assert_uint_eq(memory_live(&device.memory), 0);
	ck_good(dhs_host_destroy(NULL));
}
END_TEST

START_TEST(test_context_destroy_busy)
{
	struct rig rig;
	struct history history[3];

	rig_default(&rig);
	rig.seed = 21 + (uint64_t)_i;
	rig_open(&rig);
	for (uint32_t i = 0; i < 3; i++) {
		struct table table;

		history_open(&rig, &history[i]);
		history_prefill(&rig, &history[i], 40);
		table_open(&rig, &table, 2, 1, 16);
		turn_one(&table, &history[i], 2, 1, NULL, 1);
		ck_good(dhs_session_evict(rig.context, history[i].id, NULL));
	}
	dhs_context_destroy(rig.context);
	rig.context = NULL;
	ck_assert_uint_eq(memory_live(&rig.memory), 0);
	rig_close(&rig);
}
END_TEST

START_TEST(test_host_outlives_contexts)
{
	struct rig rig;

	rig_default(&rig);
	rig_open(&rig);
	ck_code(dhs_host_destroy(rig.host), DHS_ERR_BUSY);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

START_TEST(test_default_options)
{
	dhs_host *host = NULL;
	dhs_stream stream = NULL;
	uint64_t number = 3, reorderings = 1;

	summed = 0;
	ck_good(dhs_host_create(NULL, &host));
	ck_good(dhs_host_stream_create(host, &stream));
	ck_good(dhs_host_launch(stream, sum_kernel, &number, sizeof(number)));
	ck_assert_uint_eq(summed, 3);
	ck_good(dhs_host_reorderings(host, &reorderings));
	ck_assert_uint_eq(reorderings, 0);
	ck_good(dhs_host_stream_destroy(stream));
	ck_good(dhs_host_destroy(host));
}
END_TEST

/* ---- threads -------------------------------------------------------------- */

struct worker {
	dhs_host *host;
	uint32_t number;
	uint32_t ran; /* by kernels of this worker's stream, one after the other */
	uint32_t wrong;
};

struct worker_job {
	struct worker *worker;
	uint32_t number;
};

static void worker_kernel(void *copy)
{
	struct worker_job *job = copy;

	job->worker->wrong += job->worker->ran != job->number;
	job->worker->ran++;
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	dhs_stream stream;

	if (dhs_host_stream_create(worker->host, &stream) != 0)
		return arg;
	for (uint32_t i = 0; i < 2000; i++) {
		struct worker_job job = { worker, i };

		if (dhs_host_launch(stream, worker_kernel, &job, sizeof(job)) != 0)
			return arg;
		if (i % 100 == 0 && dhs_host_stream_sync(stream) != 0)
			return arg;
	}
	if (dhs_host_stream_sync(stream) != 0 || worker->ran != 2000)
		return arg;
	return dhs_host_stream_destroy(stream) != 0 ? arg : NULL;
}

START_TEST(test_threads)
{
	struct bare device;
	struct worker worker[4];
	pthread_t thread[4];

	bare_open(&device, (uint64_t)_i);
	for (uint32_t i = 0; i < 4; i++) {
		worker[i] = (struct worker){ .host = device.host, .number = i };
		ck_assert_int_eq(pthread_create(&thread[i], NULL, worker_main, &worker[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		void *failed = NULL;

		ck_assert_int_eq(pthread_join(thread[i], &failed), 0);
		ck_assert_ptr_null(failed);
		ck_assert_uint_eq(worker[i].wrong, 0);
	}
	bare_close(&device);
}
END_TEST

static TCase *order_case(void)
{
	TCase *order = tcase_create("order");

	tcase_set_timeout(order, support_seconds(20));
	tcase_add_loop_test(order, test_order, 0, 20);
	tcase_add_loop_test(order, test_chain_of_joins, 0, 10);
	tcase_add_test(order, test_join_is_a_point);
	tcase_add_test(order, test_join_itself);
	tcase_add_test(order, test_seed_zero_at_once);
	tcase_add_test(order, test_other_seeds_late);
	tcase_add_test(order, test_same_seed_same_order);
	tcase_add_test(order, test_sync_one_stream);
	tcase_add_loop_test(order, test_launch_copies, 0, 3);
	tcase_add_test(order, test_launch_large);
	return order;
}

static TCase *graph_case(void)
{
	TCase *graph = tcase_create("graph");

	tcase_set_timeout(graph, support_seconds(20));
	tcase_add_loop_test(graph, test_capture_records, 0, 3);
	tcase_add_loop_test(graph, test_capture_other_stream_runs, 0, 3);
	tcase_add_test(graph, test_capture_nothing);
	tcase_add_loop_test(graph, test_graph_in_stream_order, 0, 10);
	return graph;
}

static TCase *life_case(void)
{
	TCase *life = tcase_create("life");

	tcase_set_timeout(life, support_seconds(20));
	tcase_add_loop_test(life, test_stream_destroy_busy, 0, 5);
	tcase_add_loop_test(life, test_stream_destroy_joined, 0, 5);
	tcase_add_loop_test(life, test_host_destroy_busy, 0, 5);
	tcase_add_loop_test(life, test_context_destroy_busy, 0, 5);
	tcase_add_test(life, test_host_outlives_contexts);
	tcase_add_test(life, test_default_options);
	tcase_add_loop_test(life, test_threads, 0, 3);
	return life;
}

int main(void)
{
	Suite *suite = suite_create("host");

	suite_add_tcase(suite, order_case());
	suite_add_tcase(suite, graph_case());
	suite_add_tcase(suite, life_case());
	return support_run(suite);
}
