/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What only a GPU shows: that no call waits for it in secret, that capture in the
 * strictest mode bears the library's work on another thread, which errors come and
 * that none is left behind, memory that is mapped, every device, and a device that is
 * lost.
 *
 * check_cuda --device prints the device, its driver and how many there are; it fails
 * where there is none.  check_cuda --sticky loses the device and makes every call.
 */
#include "device_kernels.h"
#include "support.h"

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *program;

/* No error of CUDA is left for the engine. */
static void no_error_left(void)
{
	cudaError_t rc = cudaPeekAtLastError();

	ck_assert_msg(rc == cudaSuccess, "left behind: %s", cudaGetErrorName(rc));
}

#define ck_cuda(call)                                                                              \
	ck_assert_msg((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorName(cudaGetLastError()))
#define ck_clean(call, code)                                                                       \
	do {                                                                                           \
		ck_code(call, code);                                                                       \
		no_error_left();                                                                           \
	} while (0)

/* What the driver keeps, or gives out of what it kept, without telling. */
#define SLACK ((size_t)32 << 20)

static size_t free_bytes(void)
{
	size_t bytes = 0, all = 0;

	ck_cuda(cudaDeviceSynchronize());
	ck_cuda(cudaMemGetInfo(&bytes, &all));
	return bytes;
}

/* ---- a small engine ---------------------------------------------------------- */

enum { SESSIONS = 4, QUERIES = 4, TOP_K = 32, NEW = 2, LAYERS = 3 };
enum { ROW_BYTES = 656, PAGE_ROWS = 16, PAGE_BYTES = ROW_BYTES * PAGE_ROWS };

struct engine {
	struct device device;
	dhs_segment segment;
	uint32_t group_layers[2];
	dhs_layout layout;
	dhs_context_options options;
	dhs_context *context;
	dhs_batch *batch;
	dhs_stream stream;
	dhs_session session[SESSIONS];
	uint32_t length[SESSIONS];
	uint32_t queries; /* of each session */
	dhs_place *place;
	int32_t *rows, *slots[2], *new_slots, *kept;
	uint32_t *wrong, *gate;
};

static void engine_default(struct engine *e)
{
	memset(e, 0, sizeof(*e));
	e->queries = 1;
	e->segment.bytes = ROW_BYTES;
	e->group_layers[0] = 1;
	e->group_layers[1] = 2;
	e->layout = (dhs_layout)DHS_INIT(dhs_layout);
	e->layout.layers = LAYERS;
	e->layout.groups = 2;
	e->layout.group_layers = e->group_layers;
	e->layout.segments = 1;
	e->layout.segment_size = sizeof(dhs_segment);
	e->layout.segment = &e->segment;
	e->layout.page_rows = PAGE_ROWS;
	e->options = (dhs_context_options)DHS_INIT(dhs_context_options);
	e->options.backend = DHS_BACKEND_CUDA;
	e->options.layout = &e->layout;
	e->options.max_sessions = SESSIONS + 2;
	e->options.max_rows = 2048;
	e->options.max_new_rows = NEW;
	e->options.hot_rows = 64;
	e->options.tail_rows = 32;
	e->options.device_pages = 512;
	e->options.host_rows = 16384;
}

static void *engine_memory(struct engine *e, size_t bytes)
{
	void *memory = device_memory(&e->device, bytes);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

/* Selections that leave most rows without a place in the hot cache. */
static void engine_staging(struct engine *e)
{
	engine_default(e);
	e->options.policy = DHS_POLICY_FIXED;
	e->options.hot_rows = 8;
	e->queries = QUERIES;
}

/* The first so many entries of the arrays. */
static uint32_t entries_of(const struct engine *e)
{
	return SESSIONS * e->queries * TOP_K;
}

static void engine_open(struct engine *e)
{
	size_t entries = sizeof(int32_t) * entries_of(e);
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	ck_good(device_open(&e->device, DHS_BACKEND_CUDA, 0, NULL));
	ck_good(device_stream_create(&e->device, &e->stream));
	ck_good(dhs_context_create(&e->options, &e->context));
	options.max_sessions = SESSIONS;
	options.max_queries = e->queries;
	options.top_k = TOP_K;
	ck_good(dhs_batch_create(e->context, &options, &e->batch));
	e->place = engine_memory(e, sizeof(dhs_place) * LAYERS);
	for (uint32_t l = 0; l < LAYERS; l++) {
		e->place[l].size = sizeof(dhs_place);
		ck_good(dhs_context_place(e->context, l, 0, &e->place[l]));
	}
	e->rows = engine_memory(e, entries);
	e->slots[0] = engine_memory(e, entries);
	e->slots[1] = engine_memory(e, entries);
	e->new_slots = engine_memory(e, sizeof(int32_t) * SESSIONS * NEW);
	e->kept = engine_memory(e, sizeof(int32_t) * SESSIONS);
	e->wrong = engine_memory(e, sizeof(uint32_t));
	e->gate = engine_memory(e, sizeof(uint32_t));
	for (uint32_t i = 0; i < SESSIONS; i++)
		e->kept[i] = NEW;
	no_error_left();
}

static void engine_sync(struct engine *e)
{
	ck_good(device_stream_sync(&e->device, e->stream));
	ck_assert_uint_eq(*e->wrong, 0);
	no_error_left();
}

static void engine_close(struct engine *e)
{
	engine_sync(e);
	dhs_context_destroy(e->context);
	ck_good(device_stream_destroy(&e->device, e->stream));
	ck_good(device_stop(&e->device));
	ck_good(device_close(&e->device));
	no_error_left();
}

static void stamp(struct engine *e, uint32_t session, const int32_t *slots, uint32_t first,
                  uint32_t count)
{
	struct device_stamps t = { .place = e->place, .slots = slots, .count = count, .first = first };

	t.session = session;
	t.some = LAYERS;
	ck_assert_int_eq(device_kernel_stamp(&t, e->stream), cudaSuccess);
}

static void engine_prefill(struct engine *e, uint32_t i, uint32_t rows)
{
	int32_t *slots = engine_memory(e, sizeof(int32_t) * rows);

	if (!e->session[i])
		ck_good(dhs_session_create(e->context, NULL, &e->session[i]));
	ck_good(dhs_session_extend(e->context, e->session[i], rows, e->stream, slots));
	stamp(e, i, slots, e->length[i], rows);
	ck_good(dhs_session_commit(e->context, e->session[i], rows, e->stream));
	e->length[i] += rows;
}

static int begin(struct engine *e, dhs_step *step)
{
	dhs_step_entry entry[SESSIONS];

	for (uint32_t i = 0; i < SESSIONS; i++)
		entry[i] = (dhs_step_entry){ e->session[i], NEW, e->queries };
	return dhs_step_begin(e->batch, entry, SESSIONS, sizeof(entry[0]), e->stream, step);
}

/* Rows for all entries: any of the history. */
static void draw(struct engine *e, struct dice *dice)
{
	uint32_t each = e->queries * TOP_K;

	for (uint32_t i = 0; i < entries_of(e); i++)
		e->rows[i] = (int32_t)dice_below(dice, e->length[i / each] + NEW);
}

static void check_group(struct engine *e, uint32_t group)
{
	struct device_stamps t = { .place = e->place, .slots = e->slots[group], .rows = e->rows };

	t.count = entries_of(e);
	t.each = e->queries * TOP_K;
	t.from = group ? 1 : 0;
	t.some = group ? 2 : 1;
	ck_assert_int_eq(device_kernel_check(&t, e->wrong, e->stream), cudaSuccess);
}

static void enqueue_resolve(struct engine *e, uint32_t group)
{
	dhs_selection selection = DHS_INIT(dhs_selection);

	selection.rows = e->rows;
	selection.slots = e->slots[group];
	if (group) {
		ck_good(dhs_step_plan(e->batch, group, &selection, e->stream));
		ck_good(dhs_step_fetch(e->batch, group, 0, 0, e->stream));
	} else {
		ck_good(dhs_step_resolve(e->batch, group, &selection, e->stream));
	}
}

/* Slots to commit.  The new rows are stamped from what the host knows of them. */
static void enqueue_step(struct engine *e, const uint32_t *length, bool check)
{
	ck_good(dhs_step_slots(e->batch, 0, NEW, e->new_slots, e->stream));
	for (uint32_t i = 0; check && i < SESSIONS; i++)
		stamp(e, i, e->new_slots + i * NEW, length[i], NEW);
	for (uint32_t group = 0; group < 2; group++) {
		enqueue_resolve(e, group);
		if (check)
			check_group(e, group);
	}
	ck_good(dhs_step_commit(e->batch, 0, e->kept, e->stream));
}

static void settle(struct engine *e, dhs_step step)
{
	uint32_t kept[SESSIONS] = { NEW, NEW, NEW, NEW };

	ck_good(dhs_step_settle(e->context, step, kept, SESSIONS));
}

static void grow(struct engine *e)
{
	for (uint32_t i = 0; i < SESSIONS; i++)
		e->length[i] += NEW;
}

static void play(struct engine *e, uint32_t steps, struct dice *dice)
{
	for (uint32_t n = 0; n < steps; n++) {
		dhs_step step;

		ck_good(device_stream_sync(&e->device, e->stream));
		draw(e, dice);
		ck_good(begin(e, &step));
		enqueue_step(e, e->length, true);
		settle(e, step);
		grow(e);
	}
	engine_sync(e);
}

/* ---- no hidden synchronisation ------------------------------------------------- */

static void close_gate(struct engine *e)
{
	*e->gate = 0;
	ck_assert_int_eq(device_kernel_gate(e->gate, e->stream), cudaSuccess);
}

static void open_gate(struct engine *e)
{
	ck_assert_msg(cudaStreamQuery(e->stream) == cudaErrorNotReady, "a call opened the gate");
	*(volatile uint32_t *)e->gate = 1;
	cudaGetLastError();
}

/* Every call but those that may wait, while nothing of the stream runs. */
static void calls_while_closed(struct engine *e, dhs_step step[2])
{
	dhs_session_info info = DHS_INIT(dhs_session_info);
	dhs_stats stats = DHS_INIT(dhs_stats);
	dhs_session other;
	dhs_fence fence;
	int32_t slots[40];
	int passed, resident;

	ck_good(dhs_context_advance(e->context));
	ck_good(begin(e, &step[0]));
	ck_good(dhs_step_all_resident(e->batch, &resident));
	enqueue_step(e, e->length, false);
	settle(e, step[0]);
	ck_good(dhs_context_advance(e->context));
	ck_good(dhs_context_advance(e->context));
	ck_good(dhs_session_evict(e->context, e->session[1], &fence));
	ck_good(dhs_fence_query(e->context, fence, &passed));
	ck_assert_int_eq(passed, 0);
	ck_good(dhs_fence_wait(e->context, fence, e->stream));
	ck_good(dhs_session_create(e->context, NULL, &other));
	ck_good(dhs_session_extend(e->context, other, 40, e->stream, slots));
	ck_good(dhs_session_commit(e->context, other, 30, e->stream));
	ck_good(dhs_session_truncate(e->context, other, 17));
	ck_good(dhs_session_evict(e->context, other, NULL));
	ck_good(dhs_session_get_info(e->context, other, &info));
	ck_good(begin(e, &step[1]));
	enqueue_step(e, e->length, false);
	ck_good(dhs_context_advance(e->context));
	ck_good(dhs_session_destroy(e->context, other));
	settle(e, step[1]);
	ck_good(dhs_context_stats(e->context, &stats));
	ck_assert_uint_eq(stats.flow_waits, 0);
	ck_assert_uint_eq(stats.ticks, 4);
	ck_assert_uint_gt(stats.refilled_pages, 0);
}

static void abort_while_closed(struct engine *e)
{
	uint32_t kept[SESSIONS] = { 0 };
	dhs_step step;

	ck_good(begin(e, &step));
	ck_good(dhs_step_abort(e->context, step));
	ck_good(begin(e, &step));
	ck_good(dhs_step_end(e->context, step, kept, SESSIONS));
}

/* Opens it as it is, and plays until its sessions have rows everywhere. */
static void engine_run(struct engine *e, struct dice *dice)
{
	engine_open(e);
	for (uint32_t i = 0; i < SESSIONS; i++)
		engine_prefill(e, i, 300 + 100 * i);
	play(e, 4, dice);
	ck_good(dhs_session_evict(e->context, e->session[0], NULL));
	play(e, 4, dice);
	ck_good(dhs_context_wait(e->context));
}

static void engine_start(struct engine *e, struct dice *dice)
{
	engine_default(e);
	e->options.backup = DHS_BACKUP_RECLAIM;
	engine_run(e, dice);
}

START_TEST(test_nothing_waits)
{
	struct dice dice = { 5 };
	struct engine e;
	dhs_step step[2];

	engine_start(&e, &dice);
	draw(&e, &dice);
	close_gate(&e);
	calls_while_closed(&e, step);
	open_gate(&e);
	engine_sync(&e);
	close_gate(&e);
	abort_while_closed(&e);
	open_gate(&e);
	engine_sync(&e);
	ck_good(dhs_context_wait(e.context));
	engine_close(&e);
}
END_TEST

/* Pages of an engine's pool go back and forth meanwhile. */
START_TEST(test_lending_waits_for_nothing)
{
	struct engine e;
	void *pool[LAYERS];
	int32_t pages[511], taken_page[20];
	dhs_fence fence[20];
	size_t taken = 0;

	engine_default(&e);
	for (uint32_t l = 0; l < LAYERS; l++) {
		ck_cuda(cudaMalloc(&pool[l], (size_t)512 * PAGE_BYTES));
		ck_cuda(cudaMemset(pool[l], 0, (size_t)512 * PAGE_BYTES));
	}
	ck_cuda(cudaDeviceSynchronize());
	e.options.pool = pool;
	ck_good(device_open(&e.device, DHS_BACKEND_CUDA, 0, NULL));
	ck_good(device_close(&e.device));
	for (int32_t i = 0; i < 511; i++)
		pages[i] = i + 1;
	ck_good(device_open(&e.device, DHS_BACKEND_CUDA, 0, NULL));
	ck_good(device_stream_create(&e.device, &e.stream));
	ck_good(dhs_context_create(&e.options, &e.context));
	e.gate = engine_memory(&e, sizeof(uint32_t));
	e.wrong = engine_memory(&e, sizeof(uint32_t));
	close_gate(&e);
	ck_good(dhs_lend_pages(e.context, pages, 511, e.stream));
	ck_good(dhs_take_pages(e.context, 20, taken_page, fence, &taken));
	ck_assert_uint_eq(taken, 20);
	ck_good(dhs_lend_pages(e.context, taken_page, 10, e.stream));
	open_gate(&e);
	engine_sync(&e);
	ck_good(dhs_fence_sync(e.context, fence[19]));
	engine_close(&e);
	for (uint32_t l = 0; l < LAYERS; l++)
		ck_cuda(cudaFree(pool[l]));
}
END_TEST

/* ---- capture -------------------------------------------------------------------- */

struct worker {
	pthread_t thread;
	atomic_int stop;
	atomic_int played;
	uint32_t tick_us; /* of its contexts */
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct dice dice = { 77 };
	struct engine e;

	engine_staging(&e);
	while (!atomic_load(&w->stop)) {
		memset(e.session, 0, sizeof(e.session));
		memset(e.length, 0, sizeof(e.length));
		e.options.policy =
			atomic_load(&w->played) % 2 == 0 ? DHS_POLICY_FIXED : DHS_POLICY_ADAPTIVE;
		e.options.tick_us = w->tick_us;
		engine_open(&e);
		for (uint32_t i = 0; i < SESSIONS; i++)
			engine_prefill(&e, i, 200);
		play(&e, 3, &dice);
		ck_good(dhs_session_evict(e.context, e.session[0], NULL));
		for (uint32_t i = 0; i < 3; i++)
			ck_good(dhs_context_advance(e.context));
		play(&e, 3, &dice);
		engine_close(&e);
		atomic_fetch_add(&w->played, 1);
	}
	return NULL;
}

/* Captures again and again in the mode in which any thread's unsafe call ends it; also where
 * threads of the library tick, for the context that is captured and for the other. */
START_TEST(test_capture_beside_a_thread)
{
	struct worker w = { .stop = 0, .tick_us = _i == 1 ? 200 : 0 };
	struct dice dice = { 6 };
	struct engine e;

	engine_default(&e);
	e.options.backup = DHS_BACKUP_BACKGROUND;
	e.options.tick_us = w.tick_us;
	engine_run(&e, &dice);
	ck_assert_int_eq(pthread_create(&w.thread, NULL, work, &w), 0);
	for (uint32_t n = 0; n < 300 || atomic_load(&w.played) < 3; n++) {
		struct device_graph *graph = NULL;
		dhs_step step;

		draw(&e, &dice);
		ck_good(device_capture_begin(&e.device, e.stream));
		ck_clean(dhs_step_begin(e.batch, NULL, 0, sizeof(dhs_step_entry), e.stream, &step),
		         DHS_ERR_CAPTURING);
		ck_good(dhs_context_advance(e.context));
		enqueue_step(&e, e.length, true);
		ck_good(device_capture_end(&e.device, e.stream, &graph));
		ck_good(begin(&e, &step));
		ck_good(device_graph_launch(&e.device, graph, e.stream));
		settle(&e, step);
		engine_sync(&e);
		ck_good(device_graph_destroy(&e.device, graph));
		for (uint32_t i = 0; i < SESSIONS; i++)
			ck_good(dhs_session_truncate(e.context, e.session[i], e.length[i]));
	}
	atomic_store(&w.stop, 1);
	pthread_join(w.thread, NULL);
	engine_close(&e);
}
END_TEST

static void *wait_beside(void *arg)
{
	struct engine *e = arg;
	int *code = calloc(2, sizeof(int));

	code[0] = dhs_context_wait(e->context);
	code[1] = cudaPeekAtLastError();
	return code;
}

/* Waiting for other streams is allowed while one is being captured. */
START_TEST(test_wait_beside_a_capture)
{
	struct dice dice = { 8 };
	struct device_graph *graph = NULL;
	struct engine e;
	dhs_stream other;
	pthread_t thread;
	void *code;

	engine_start(&e, &dice);
	ck_good(device_stream_create(&e.device, &other));
	ck_good(device_capture_begin(&e.device, other));
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_beside, &e), 0);
	pthread_join(thread, &code);
	ck_assert_int_eq(((int *)code)[0], DHS_OK);
	ck_assert_int_eq(((int *)code)[1], cudaSuccess);
	free(code);
	ck_good(device_capture_end(&e.device, other, &graph));
	ck_good(device_graph_destroy(&e.device, graph));
	ck_good(device_stream_destroy(&e.device, other));
	engine_close(&e);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------- */

START_TEST(test_device_numbers)
{
	static const int32_t bad[] = { -1, -2, INT32_MIN, INT32_MAX, 64 };
	struct engine e;
	dhs_host *host = NULL;

	engine_default(&e);
	for (uint32_t i = 0; i < COUNT_OF(bad); i++) {
		e.options.flags = DHS_CONTEXT_DEVICE;
		e.options.device = bad[i];
		ck_clean(dhs_context_create(&e.options, &e.context), DHS_ERR_ARGUMENT);
		support_said("dhs_context_create", "device", NULL);
		e.options.flags = 0;
		ck_clean(dhs_context_create(&e.options, &e.context), DHS_ERR_ARGUMENT);
		support_said("dhs_context_create", "device", NULL);
	}
	e.options.device = 0;
	ck_good(dhs_host_create(NULL, &host));
	e.options.host = host;
	ck_clean(dhs_context_create(&e.options, &e.context), DHS_ERR_ARGUMENT);
	ck_good(dhs_host_destroy(host));
	ck_assert_ptr_null(e.context);
}
END_TEST

/* More than the GPU has: at once, and once the first layer has its part. */
START_TEST(test_no_room)
{
	struct dice dice = { 2 };
	struct engine e;
	size_t before;

	engine_start(&e, &dice); /* the device has what it keeps for good */
	engine_close(&e);
	before = free_bytes();
	engine_default(&e);
	e.options.device_pages = 1 << 26; /* 2 TB */
	ck_clean(dhs_context_create(&e.options, &e.context), DHS_ERR_DEVICE_MEMORY);
	ck_assert_uint_ge(free_bytes() + SLACK, before);
	for (uint32_t i = 0; i < 2; i++) {
		e.options.flags = i == 0 ? 0 : DHS_CONTEXT_POOL_STAGING;
		e.options.device_pages = (uint32_t)(before / 10 * 6 / PAGE_BYTES);
		ck_clean(dhs_context_create(&e.options, &e.context), DHS_ERR_DEVICE_MEMORY);
		ck_assert_uint_ge(free_bytes() + SLACK, before);
		ck_assert_ptr_null(e.context);
	}
	engine_start(&e, &dice);
	engine_close(&e);
}
END_TEST

/* ---- memory that is mapped --------------------------------------------------------- */

static dhs_stats stats_of(const struct engine *e)
{
	dhs_stats stats = DHS_INIT(dhs_stats);

	ck_good(dhs_context_stats(e->context, &stats));
	return stats;
}

/* Several queries of each session, most of whose rows are staged. */
static void play_staged(struct engine *e, struct dice *dice, uint32_t flags)
{
	engine_staging(e);
	e->options.flags |= flags;
	engine_run(e, dice);
	play(e, 30, dice);
	ck_good(dhs_context_wait(e->context));
	ck_assert_uint_gt(stats_of(e).staged, 1000);
}

START_TEST(test_staged_rows)
{
	struct dice dice = { 12 };
	struct engine e;
	bool in_pool = _i == 1;

	play_staged(&e, &dice, in_pool ? DHS_CONTEXT_POOL_STAGING : 0);
	ck_assert_int_eq(stats_of(&e).pages_staging != 0, in_pool);
	ck_assert_int_eq(stats_of(&e).staging_bytes == 0, in_pool);
	engine_close(&e);
}
END_TEST

static uint32_t *word_at(const struct engine *e, uint32_t layer, int32_t slot)
{
	const dhs_place *p = &e->place[layer];

	return (uint32_t *)(void *)((char *)p->base + (uint64_t)slot / p->page_rows * p->page_stride +
	                            (uint64_t)slot % p->page_rows * p->row_stride);
}

static uint32_t read_word(const struct engine *e, uint32_t layer, int32_t slot)
{
	uint32_t word = 0;

	ck_cuda(cudaMemcpy(&word, word_at(e, layer, slot), 4, cudaMemcpyDefault));
	return word;
}

static void write_word(const struct engine *e, uint32_t layer, int32_t slot, uint32_t word)
{
	ck_cuda(cudaMemcpy(word_at(e, layer, slot), &word, 4, cudaMemcpyDefault));
}

/* Layers 0 and 1 are the first of their groups, layer 2 is the second of its. */
static void check_aliases(const struct engine *e, int32_t slot, bool behind)
{
	for (uint32_t l = 0; l < LAYERS; l++) {
		for (uint32_t m = 0; m < LAYERS; m++)
			write_word(e, m, slot, 1);
		write_word(e, l, slot, 2);
		for (uint32_t m = 0; m < LAYERS; m++) {
			bool same = m == l || (behind && l < 2 && m < 2);

			ck_assert_uint_eq(read_word(e, m, slot), same ? 2 : 1);
		}
	}
}

START_TEST(test_aliases)
{
	struct dice dice = { 13 };
	struct engine e;
	uint32_t staged = 0;

	play_staged(&e, &dice, 0);
	for (uint32_t i = 0; i < entries_of(&e); i++) {
		int32_t slot = e.slots[1][i];

		if (slot < (int32_t)e.options.device_pages * PAGE_ROWS)
			continue;
		if (staged++ % 50 == 0)
			check_aliases(&e, slot, true);
	}
	ck_assert_uint_gt(staged, 50);
	check_aliases(&e, 5, false);
	engine_close(&e);
}
END_TEST

/* Pool and staging of a gigabyte and more, to the granule of mapped memory.  Small tables
 * come from blocks that the driver has or keeps, which is what SLACK is for. */
START_TEST(test_mapped_bytes)
{
	struct dice dice = { 14 };
	struct engine e;
	dhs_required context = DHS_INIT(dhs_required), batch = DHS_INIT(dhs_required);
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_batch *made = NULL;
	size_t before, pool, staging;

	engine_start(&e, &dice);
	engine_close(&e);
	engine_default(&e);
	e.options.device_pages = 60001;
	options.flags = DHS_BATCH_STAGING_ROWS;
	options.max_sessions = SESSIONS;
	options.top_k = TOP_K;
	options.staging_rows = 1000000;
	e.options.max_staging_rows = 1000000;
	ck_good(dhs_context_required(&e.options, &context));
	ck_good(dhs_batch_required(&e.options, &options, &batch));
	before = free_bytes();
	ck_good(dhs_context_create(&e.options, &e.context));
	pool = free_bytes();
	ck_assert_uint_ge(before - pool, context.pool_bytes);
	ck_assert_uint_le(before - pool, context.device_bytes + SLACK);
	ck_good(dhs_batch_create(e.context, &options, &made));
	staging = free_bytes();
	ck_assert_uint_ge(pool - staging, batch.staging_bytes);
	ck_assert_uint_le(pool - staging, batch.device_bytes + SLACK);
	ck_assert_uint_eq(stats_of(&e).staging_bytes, batch.staging_bytes);
	ck_good(dhs_batch_destroy(made));
	ck_assert_uint_ge(free_bytes() + SLACK, pool);
	dhs_context_destroy(e.context);
	ck_assert_uint_ge(free_bytes() + SLACK, before);
	no_error_left();
}
END_TEST

/* An allocator whose host memory is pinned, or is not though it says so. */
struct pinned {
	dhs_allocator allocator;
	bool pins;
	size_t bytes; /* of host memory that is out */
};

static void *pinned_alloc(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	struct pinned *p = arg;
	void *memory = NULL;

	ck_assert_uint_ne(kind, DHS_MEMORY_DEVICE);
	if (kind == DHS_MEMORY_CONTROL || !p->pins)
		return posix_memalign(&memory, align, bytes) == 0 ? memory : NULL;
	p->bytes += bytes;
	ck_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
	return memory;
}

static void pinned_free(void *arg, uint32_t kind, void *memory, size_t bytes)
{
	struct pinned *p = arg;

	if (kind == DHS_MEMORY_CONTROL || !p->pins) {
		free(memory);
		return;
	}
	p->bytes -= bytes;
	ck_cuda(cudaFreeHost(memory));
}

static void engine_pinned(struct engine *e, struct pinned *p, bool pins)
{
	engine_staging(e);
	*p = (struct pinned){ .allocator = DHS_INIT(dhs_allocator), .pins = pins };
	p->allocator.flags = DHS_ALLOCATOR_PINNED;
	p->allocator.alloc = pinned_alloc;
	p->allocator.free = pinned_free;
	p->allocator.arg = p;
	e->options.allocator = &p->allocator;
}

/* The host tier and the upload buffers come from there, to the byte, and rows are right. */
START_TEST(test_pinned_allocator)
{
	struct dice dice = { 21 };
	struct engine e;
	struct pinned pinned;
	dhs_required required = DHS_INIT(dhs_required);

	engine_pinned(&e, &pinned, true);
	ck_good(dhs_context_required(&e.options, &required));
	engine_run(&e, &dice);
	ck_assert_uint_eq(pinned.bytes, required.host_bytes);
	play(&e, 10, &dice);
	engine_close(&e);
	ck_assert_uint_eq(pinned.bytes, 0);
}
END_TEST

/* Memory that the GPU cannot reach is none; nothing is left behind. */
START_TEST(test_allocator_not_pinned)
{
	struct engine e;
	struct pinned pinned;

	engine_pinned(&e, &pinned, false);
	ck_told(dhs_context_create(&e.options, &e.context), DHS_ERR_HOST_MEMORY, NULL, NULL);
	ck_assert_ptr_null(e.context);
	no_error_left();
}
END_TEST

/* Staging of more than the GPU has: the context goes on, with all its memory. */
START_TEST(test_no_staging_room)
{
	struct dice dice = { 15 };
	struct engine e;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_batch *made = NULL;
	size_t before;

	engine_staging(&e);
	e.options.max_staging_rows = 1 << 30;
	engine_run(&e, &dice);
	before = free_bytes();
	options.flags = DHS_BATCH_STAGING_ROWS;
	options.top_k = TOP_K;
	/* The second position finds no memory. */
	options.staging_rows = (uint32_t)(before / 10 * 6 / e.segment.bytes);
	ck_clean(dhs_batch_create(e.context, &options, &made), DHS_ERR_DEVICE_MEMORY);
	ck_assert_ptr_null(made);
	ck_assert_uint_ge(free_bytes() + SLACK, before);
	play(&e, 10, &dice);
	engine_close(&e);
}
END_TEST

static void *make_beside(void *arg)
{
	struct engine *e = arg, other;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_batch *made = NULL;
	int *code = calloc(4, sizeof(int));

	options.top_k = TOP_K;
	options.max_queries = QUERIES;
	code[0] = dhs_batch_create(e->context, &options, &made);
	code[1] = dhs_batch_destroy(made);
	engine_staging(&other);
	code[2] = dhs_context_create(&other.options, &other.context);
	dhs_context_destroy(other.context);
	code[3] = cudaPeekAtLastError();
	return code;
}

/* Memory is mapped and unmapped while a stream is captured in the strictest mode. */
START_TEST(test_map_beside_a_capture)
{
	struct dice dice = { 16 };
	struct device_graph *graph = NULL;
	struct engine e;
	pthread_t thread;
	dhs_step step;
	void *code;

	engine_staging(&e);
	engine_run(&e, &dice);
	draw(&e, &dice);
	ck_good(device_capture_begin(&e.device, e.stream));
	enqueue_step(&e, e.length, true);
	ck_assert_int_eq(pthread_create(&thread, NULL, make_beside, &e), 0);
	pthread_join(thread, &code);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(((int *)code)[i], 0);
	free(code);
	ck_good(device_capture_end(&e.device, e.stream, &graph));
	ck_good(begin(&e, &step));
	ck_good(device_graph_launch(&e.device, graph, e.stream));
	settle(&e, step);
	engine_sync(&e);
	ck_good(device_graph_destroy(&e.device, graph));
	engine_close(&e);
}
END_TEST

/* Refused calls, each without a trace. */
START_TEST(test_refused_calls)
{
	struct dice dice = { 3 };
	struct engine e;
	dhs_session_options reserve = DHS_INIT(dhs_session_options);
	dhs_selection selection = DHS_INIT(dhs_selection);
	dhs_session session;
	int32_t slots[4];
	dhs_step step;
	int passed;

	engine_start(&e, &dice);
	selection.rows = e.rows;
	selection.slots = e.slots[0];
	ck_clean(dhs_step_plan(e.batch, 0, &selection, e.stream), DHS_ERR_ORDER);
	ck_clean(dhs_step_commit(e.batch, 0, NULL, e.stream), DHS_ERR_ORDER);
	reserve.reserve_rows = 1 << 20;
	ck_clean(dhs_session_create(e.context, &reserve, &session), DHS_ERR_ARGUMENT);
	ck_clean(dhs_session_extend(e.context, 12345, 4, e.stream, slots), DHS_ERR_ARGUMENT);
	ck_good(begin(&e, &step));
	ck_clean(dhs_step_plan(e.batch, 7, &selection, e.stream), DHS_ERR_ARGUMENT);
	ck_clean(dhs_session_extend(e.context, e.session[0], 4, e.stream, slots), DHS_ERR_BUSY);
	ck_clean(dhs_context_wait(e.context), DHS_ERR_PENDING);
	ck_clean(dhs_fence_query(e.context, UINT64_MAX, &passed), DHS_ERR_ARGUMENT);
	ck_good(dhs_step_abort(e.context, step));
	play(&e, 3, &dice);
	engine_close(&e);
}
END_TEST

/* ---- devices ---------------------------------------------------------------------- */

START_TEST(test_every_device)
{
	int count = 0, current = -1;

	ck_cuda(cudaGetDeviceCount(&count));
	for (int id = 0; id < count; id++) {
		struct dice dice = { (uint64_t)id };
		struct engine e;

		engine_default(&e);
		e.options.flags = DHS_CONTEXT_DEVICE;
		e.options.device = id;
		ck_cuda(cudaSetDevice(id));
		engine_open(&e);
		for (uint32_t i = 0; i < SESSIONS; i++)
			engine_prefill(&e, i, 500);
		play(&e, 10, &dice);
		/* Calls while another device is current: it stays so. */
		ck_cuda(cudaSetDevice((id + 1) % count));
		ck_good(dhs_session_evict(e.context, e.session[0], NULL));
		ck_good(dhs_context_wait(e.context));
		ck_cuda(cudaGetDevice(&current));
		ck_assert_int_eq(current, (id + 1) % count);
		ck_cuda(cudaSetDevice(id));
		play(&e, 10, &dice);
		engine_close(&e);
	}
	ck_cuda(cudaSetDevice(0));
}
END_TEST

START_TEST(test_auto_is_cuda)
{
	struct engine e;
	dhs_stats stats = DHS_INIT(dhs_stats);

	engine_default(&e);
	e.options.backend = DHS_BACKEND_AUTO;
	engine_open(&e);
	ck_good(dhs_context_stats(e.context, &stats));
	ck_assert_uint_eq(stats.backend, DHS_BACKEND_CUDA);
	engine_close(&e);
}
END_TEST

/* The legacy default stream is as good as any. */
START_TEST(test_default_stream)
{
	struct dice dice = { 4 };
	struct engine e;

	engine_default(&e);
	engine_open(&e);
	ck_good(device_stream_destroy(&e.device, e.stream));
	e.stream = NULL;
	for (uint32_t i = 0; i < SESSIONS; i++)
		engine_prefill(&e, i, 400);
	play(&e, 10, &dice);
	engine_close(&e);
}
END_TEST

/* ---- a device that is lost ---------------------------------------------------------- */

static int lost_calls;
static int lost_wrong;
static uint32_t sticky_ticks; /* tick_us */

static void lost(const char *call, int code)
{
	lost_calls++;
	if (code == DHS_ERR_DEVICE && dhs_last_error()[0])
		return;
	fprintf(stderr, "%s: %d (%s)\n", call, code, dhs_last_error());
	lost_wrong++;
}

#define LOST(call) lost(#call, call)

/* Every call that reaches the device, after it is lost. */
static void call_lost(struct engine *e, dhs_step open)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_selection selection = DHS_INIT(dhs_selection);
	uint32_t kept[SESSIONS] = { 0 };
	dhs_batch *batch = NULL;
	dhs_context *context = NULL;
	dhs_session session;
	dhs_fence fence;
	int32_t slots[8];
	dhs_step step;

	selection.rows = e->rows;
	selection.slots = e->slots[0];
	options.top_k = 4;
	LOST(dhs_step_slots(e->batch, 0, NEW, e->new_slots, e->stream));
	LOST(dhs_step_plan(e->batch, 0, &selection, e->stream));
	LOST(dhs_step_fetch(e->batch, 0, 0, 0, e->stream));
	LOST(dhs_step_resolve(e->batch, 0, &selection, e->stream));
	LOST(dhs_step_commit(e->batch, 0, NULL, e->stream));
	LOST(dhs_step_end(e->context, open, kept, SESSIONS));
	LOST(dhs_step_abort(e->context, open));
	LOST(begin(e, &step));
	LOST(dhs_context_wait(e->context));
	LOST(dhs_context_advance(e->context));
	LOST(dhs_session_create(e->context, NULL, &session));
	LOST(dhs_session_extend(e->context, e->session[0], 8, e->stream, slots));
	LOST(dhs_session_evict(e->context, e->session[1], &fence));
	LOST(dhs_batch_create(e->context, &options, &batch));
	LOST(dhs_context_create(&e->options, &context));
}

static int sticky(void)
{
	struct dice dice = { 9 };
	struct engine e;
	dhs_step step;

	engine_default(&e);
	e.options.backup = DHS_BACKUP_RECLAIM;
	e.options.tick_us = sticky_ticks;
	engine_run(&e, &dice);
	if (begin(&e, &step) || device_kernel_trap(e.stream))
		return 1;
	cudaStreamSynchronize(e.stream);
	call_lost(&e, step);
	dhs_context_destroy(e.context);
	printf("%d calls on a lost device, %d wrong\n", lost_calls, lost_wrong);
	return lost_wrong != 0;
}

/* Runs alone in a program of its own: asserting needs a test around it. */
START_TEST(test_lost_device)
{
	ck_assert_int_eq(sticky(), 0);
}
END_TEST

START_TEST(test_sticky_error)
{
	char command[600];
	int status;

	snprintf(command, sizeof(command), "CK_FORK=no '%s' --sticky%s", program,
	         _i == 1 ? "-ticking" : "");
	status = system(command);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
}
END_TEST

static int print_device(void)
{
	struct cudaDeviceProp p;
	int count = 0, driver = 0;

	if (cudaGetDeviceCount(&count) != cudaSuccess || !count ||
	    cudaGetDeviceProperties(&p, 0) != cudaSuccess)
		return 1;
	(void)cudaDriverGetVersion(&driver);
	printf("%s (compute capability %d.%d), CUDA driver %d.%d, %d device%s\n", p.name, p.major,
	       p.minor, driver / 1000, driver % 1000 / 10, count, count == 1 ? "" : "s");
	return 0;
}

int main(int argc, char **argv)
{
	Suite *suite = suite_create("cuda");
	TCase *cuda = tcase_create("cuda");

	program = argv[0];
	if (argc > 1 && strcmp(argv[1], "--device") == 0)
		return print_device();
	sticky_ticks = argc > 1 && strcmp(argv[1], "--sticky-ticking") == 0 ? 500 : 0;
	if (sticky_ticks || (argc > 1 && strcmp(argv[1], "--sticky") == 0)) {
		tcase_add_test(cuda, test_lost_device);
		suite_add_tcase(suite, cuda);
		return support_run(suite);
	}
	tcase_set_timeout(cuda, support_seconds(120));
	tcase_add_test(cuda, test_device_numbers);
	tcase_add_test(cuda, test_nothing_waits);
	tcase_add_test(cuda, test_lending_waits_for_nothing);
	tcase_add_test(cuda, test_wait_beside_a_capture);
	tcase_add_loop_test(cuda, test_capture_beside_a_thread, 0, 2);
	tcase_add_test(cuda, test_no_room);
	tcase_add_loop_test(cuda, test_staged_rows, 0, 2);
	tcase_add_test(cuda, test_aliases);
	tcase_add_test(cuda, test_mapped_bytes);
	tcase_add_test(cuda, test_pinned_allocator);
	tcase_add_test(cuda, test_allocator_not_pinned);
	tcase_add_test(cuda, test_no_staging_room);
	tcase_add_test(cuda, test_map_beside_a_capture);
	tcase_add_test(cuda, test_refused_calls);
	tcase_add_test(cuda, test_every_device);
	tcase_add_test(cuda, test_auto_is_cuda);
	tcase_add_test(cuda, test_default_stream);
	tcase_add_loop_test(cuda, test_sticky_error, 0, 2);
	suite_add_tcase(suite, cuda);
	return support_run(suite);
}
