/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Every allocation of every call fails once, and once with all that follow: the
 * call says so, nothing leaks or changes, and the same call then works.  Work
 * that the device has no memory to queue may run at once instead. */
#include "support.h"

#define KEPT_BYTES 256

static uint64_t injected;     /* in this test */
static uint64_t tolerated;    /* the device did without */
static bool fail_on;          /* all after it, too */
static dhs_context *observed; /* its stats must not change; NULL: none yet */

static uint64_t live_bytes(struct rig *rig)
{
	return memory_live(&rig->memory) + memory_live(&rig->host_memory);
}

static void arm_both(struct rig *rig, uint32_t which, uint64_t at)
{
	memory_arm(&rig->memory, which == 0 ? at : 0, fail_on);
	memory_arm(&rig->host_memory, which == 1 ? at : 0, fail_on);
}

/* What the host decides.  The device's counters, which a begin takes over even
 * if it fails then, tell of the past. */
static dhs_stats observe(void)
{
	dhs_stats stats = DHS_INIT(dhs_stats);

	if (observed != NULL)
		ck_good(dhs_context_stats(observed, &stats));
	stats.refusals = stats.flow_waits = stats.order_errors = 0;
	stats.plans = stats.page_hits = stats.hot_hits = stats.misses = stats.repeats = 0;
	stats.staged = stats.victims = stats.bad_rows = 0;
	stats.fetched_bytes = stats.mirrored_rows = stats.backup_bytes = 0;
	stats.warmed_rows = stats.warm_bytes = 0;
	return stats;
}

static void check_failed(const struct memory *memory, int rc, const char *call)
{
	int code = memory->kind == DHS_MEMORY_DEVICE ? DHS_ERR_DEVICE_MEMORY : DHS_ERR_HOST_MEMORY;

	ck_assert_msg(rc == code, "%s: %d when an allocation of kind %u failed; %s", call, rc,
	              memory->kind, dhs_last_error());
	ck_assert_str_ne(dhs_last_error(), "");
	injected++;
}

/* What one attempt left behind: true when nothing failed and the call worked. */
static bool attempt_done(struct rig *rig, uint32_t which, int rc, uint64_t live, dhs_stats before,
                         const char *call)
{
	const struct memory *memory = which == 0 ? &rig->memory : &rig->host_memory;
	dhs_stats after;

	memory_disarm(&rig->memory);
	memory_disarm(&rig->host_memory);
	if (!memory->failed) {
		ck_assert_msg(rc == 0, "%s: %d; %s", call, rc, dhs_last_error());
		return true;
	}
	if (rc == 0 && which == 1) {
		tolerated++;
		return true;
	}
	check_failed(memory, rc, call);
	after = observe();
	ck_assert_msg(memcmp(&before, &after, sizeof(after)) == 0, "%s: stats changed", call);
	/* A record of work may be kept for the next; rig_close finds what is lost. */
	ck_assert_msg(live_bytes(rig) <= live + (observed != NULL ? KEPT_BYTES : 0),
	              "%s: leaks %lld bytes", call, (long long)(live_bytes(rig) - live));
	return false;
}

/* Attempts the call with the n-th allocation failing, n = 1, 2, ..., of the
 * context's allocator (which 0) or the device's (1), until it succeeds. */
#define TRY_ALL_OF(rig, which, call)                                                               \
	for (uint64_t n_ = 1;; n_++) {                                                                 \
		uint64_t live_ = live_bytes(rig);                                                          \
		dhs_stats before_ = observe();                                                             \
                                                                                                   \
		arm_both(rig, which, n_);                                                                  \
		if (attempt_done(rig, which, call, live_, before_, #call))                                 \
			break;                                                                                 \
	}

struct alloc {
	struct rig rig;
	uint32_t which; /* whose allocator fails: 0 the context's, 1 the device's */
	dhs_session session[2];
	dhs_batch *batch;
	uint32_t *stamp[2];
	uint32_t rows[2];
};

#define TRY_ALL(a, call) TRY_ALL_OF(&(a)->rig, (a)->which, call)

static void alloc_open(struct alloc *a, uint32_t which, uint64_t seed, bool on)
{
	struct rig *rig = &a->rig;
	dhs_host_options host = DHS_INIT(dhs_host_options);
	dhs_host *made = NULL;

	memset(a, 0, sizeof(*a));
	injected = tolerated = 0;
	fail_on = on;
	observed = NULL;
	a->which = which;
	rig_default(rig);
	rig->options.policy = DHS_POLICY_ADAPTIVE;
	rig->options.backup = seed % 2 ? DHS_BACKUP_BACKGROUND : DHS_BACKUP_RECLAIM;
	host.seed = seed;
	host.allocator = &rig->host_memory.allocator;
	TRY_ALL(a, dhs_host_create(&host, &made));
	device_of_host(&rig->device, made);
	rig->host = made;
	TRY_ALL(a, dhs_host_stream_create(rig->host, &rig->stream));
	TRY_ALL(a, dhs_host_stream_create(rig->host, &rig->side));
	rig->options.host = rig->host;
	TRY_ALL(a, dhs_context_create(&rig->options, &rig->context));
	observed = rig->context;
	rig->place = rig_keep(rig, 3 * sizeof(dhs_place));
	for (uint32_t l = 0; l < 3; l++) {
		rig->place[l].size = sizeof(dhs_place);
		TRY_ALL(a, dhs_context_place(rig->context, l, 0, &rig->place[l]));
	}
}

struct write_rows {
	struct rig *rig;
	const int32_t *slots;
	const uint32_t *stamps;
	uint32_t count;
};

static void write_rows_kernel(void *copy)
{
	const struct write_rows *w = copy;

	for (uint32_t i = 0; i < w->count; i++)
		stamp_write(w->rig, w->slots[i], w->stamps[i]);
}

static void check_rows_kernel(void *copy)
{
	const struct write_rows *w = copy;

	for (uint32_t i = 0; i < w->count; i++)
		if (w->slots[i] < 0 || !stamp_is(w->rig, w->slots[i], w->stamps[i], 1, 2))
			rig_wrong(w->rig, "row %u at %d", i, w->slots[i]);
}

static void alloc_prefill(struct alloc *a, uint32_t i, uint32_t rows)
{
	struct rig *rig = &a->rig;
	struct write_rows w = { rig, NULL, a->stamp[i] + a->rows[i], rows };
	int32_t *slots = rig_keep(rig, sizeof(int32_t) * rows);

	w.slots = slots;
	TRY_ALL(a, dhs_session_extend(rig->context, a->session[i], rows, rig->stream, slots));
	TRY_ALL(a, dhs_host_launch(rig->stream, write_rows_kernel, &w, sizeof(w)));
	TRY_ALL(a, dhs_session_commit(rig->context, a->session[i], rows, rig->stream));
	a->rows[i] += rows;
}

static void alloc_sessions(struct alloc *a)
{
	for (uint32_t i = 0; i < 2; i++) {
		a->stamp[i] = rig_keep(&a->rig, sizeof(uint32_t) * 256);
		for (uint32_t r = 0; r < 256; r++)
			a->stamp[i][r] = i * 1000 + r + 1;
		TRY_ALL(a, dhs_session_create(a->rig.context, NULL, &a->session[i]));
		alloc_prefill(a, i, 30);
	}
}

/* One step with all its calls; group 1's rows 0 .. 7 of both sessions. */
static void alloc_step(struct alloc *a, uint32_t first)
{
	struct rig *rig = &a->rig;
	dhs_step_entry entries[2] = { { a->session[0], 1, 1 }, { a->session[1], 1, 1 } };
	int32_t *rows = rig_keep(rig, 4 * 16), *slots = rig_keep(rig, 4 * 16);
	int32_t *news = rig_keep(rig, 4 * 2);
	uint32_t *want = rig_keep(rig, 4 * 16), *fresh = rig_keep(rig, 4 * 2), kept[2] = { 1, 1 };
	struct write_rows write = { rig, news, fresh, 2 }, check = { rig, slots, want, 16 };
	dhs_selection selection = DHS_INIT(dhs_selection);
	dhs_step step = 0;
	int resident = 0;

	for (uint32_t i = 0; i < 16; i++) {
		rows[i] = (int32_t)(first + i % 8);
		want[i] = a->stamp[i / 8][first + i % 8];
	}
	for (uint32_t i = 0; i < 2; i++)
		fresh[i] = a->stamp[i][a->rows[i]++];
	selection.rows = rows;
	selection.slots = slots;
	TRY_ALL(a, dhs_step_begin(a->batch, entries, 2, sizeof(entries[0]), rig->stream, &step));
	TRY_ALL(a, dhs_step_all_resident(a->batch, &resident));
	TRY_ALL(a, dhs_step_slots(a->batch, 2, 1, news, rig->stream));
	TRY_ALL(a, dhs_host_launch(rig->stream, write_rows_kernel, &write, sizeof(write)));
	TRY_ALL(a, dhs_step_plan(a->batch, 1, &selection, rig->stream));
	TRY_ALL(a, dhs_host_stream_join(rig->side, rig->stream));
	TRY_ALL(a, dhs_step_fetch(a->batch, 1, 0, 0, rig->side));
	TRY_ALL(a, dhs_host_stream_join(rig->stream, rig->side));
	TRY_ALL(a, dhs_host_launch(rig->stream, check_rows_kernel, &check, sizeof(check)));
	if (first % 2 == 0) {
		TRY_ALL(a, dhs_step_end(rig->context, step, kept, 2));
		return;
	}
	TRY_ALL(a, dhs_step_commit(a->batch, 2, NULL, rig->stream));
	TRY_ALL(a, dhs_step_settle(rig->context, step, kept, 2));
}

static void alloc_resolve_aborted(struct alloc *a)
{
	struct rig *rig = &a->rig;
	dhs_step_entry entry = { a->session[0], 1, 1 };
	int32_t *rows = rig_keep(rig, 4 * 16);
	dhs_selection selection = DHS_INIT(dhs_selection);
	dhs_step step = 0;

	selection.rows = selection.slots = rows;
	TRY_ALL(a, dhs_step_begin(a->batch, &entry, 1, sizeof(entry), rig->stream, &step));
	TRY_ALL(a, dhs_step_resolve(a->batch, 0, &selection, rig->stream));
	TRY_ALL(a, dhs_step_abort(rig->context, step));
}

static void alloc_batch(struct alloc *a)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_required required = DHS_INIT(dhs_required);
	dhs_batch_view view = DHS_INIT(dhs_batch_view);
	dhs_batch *other = NULL;

	options.max_sessions = 2;
	options.top_k = 8;
	options.staging_buffers = 2;
	TRY_ALL(a, dhs_batch_required(&a->rig.options, &options, &required));
	TRY_ALL(a, dhs_batch_create(a->rig.context, &options, &a->batch));
	TRY_ALL(a, dhs_batch_create(a->rig.context, &options, &other));
	TRY_ALL(a, dhs_batch_get_view(a->batch, &view));
	TRY_ALL(a, dhs_batch_destroy(other));
}

/* Brings history back, or begins to. */
static void alloc_refill(struct alloc *a, uint32_t ticks)
{
	uint64_t issued = observe().refill_bytes, landed = observe().refilled_pages;

	for (uint32_t i = 0; i < ticks; i++)
		TRY_ALL(a, dhs_context_advance(a->rig.context));
	ck_assert_uint_gt(observe().refill_bytes, issued);
	if (ticks > 2)
		ck_assert_uint_gt(observe().refilled_pages, landed);
}

static void alloc_close(struct alloc *a)
{
	struct rig *rig = &a->rig;

	rig_works(rig);
	for (uint32_t i = 0; i < 2; i++)
		TRY_ALL(a, dhs_session_destroy(rig->context, a->session[i]));
	TRY_ALL(a, dhs_context_wait(rig->context));
	TRY_ALL(a, dhs_batch_destroy(a->batch));
	rig_close(rig);
}

START_TEST(test_everything)
{
	struct alloc a;
	dhs_fence fence = 0;
	int passed = 0;

	alloc_open(&a, (uint32_t)_i % 2, (uint64_t)_i / 4, _i / 2 % 2 == 1);
	alloc_sessions(&a);
	alloc_batch(&a);
	for (uint32_t i = 0; i < 4; i++)
		alloc_step(&a, i);
	TRY_ALL(&a, dhs_session_evict(a.rig.context, a.session[0], &fence));
	TRY_ALL(&a, dhs_fence_wait(a.rig.context, fence, a.rig.side));
	TRY_ALL(&a, dhs_fence_query(a.rig.context, fence, &passed));
	TRY_ALL(&a, dhs_fence_sync(a.rig.context, fence));
	alloc_refill(&a, 1);
	for (uint32_t i = 4; i < 8; i++)
		alloc_step(&a, i);
	alloc_resolve_aborted(&a);
	a.rows[0] = 13;
	TRY_ALL(&a, dhs_session_truncate(a.rig.context, a.session[0], 13));
	alloc_prefill(&a, 0, 20);
	TRY_ALL(&a, dhs_session_evict(a.rig.context, a.session[1], NULL));
	for (uint32_t i = 0; i < 3; i++)
		alloc_step(&a, 3 * i);
	for (uint32_t ticks = 1; ticks <= 3; ticks++) {
		TRY_ALL(&a, dhs_session_evict(a.rig.context, a.session[0], NULL));
		alloc_refill(&a, ticks);
		TRY_ALL(&a, dhs_session_evict(a.rig.context, a.session[0], &fence));
		TRY_ALL(&a, dhs_fence_wait(a.rig.context, fence, a.rig.side));
		alloc_step(&a, ticks);
	}
	for (uint32_t i = 0; i < 3; i++) {
		TRY_ALL(&a, dhs_session_suspend(a.rig.context, a.session[i % 2], &fence));
		TRY_ALL(&a, dhs_fence_wait(a.rig.context, fence, a.rig.side));
		TRY_ALL(&a, dhs_session_resume(a.rig.context, a.session[i % 2]));
		alloc_step(&a, i);
	}
	alloc_close(&a);
	ck_assert_uint_gt(injected + tolerated, 5);
}
END_TEST

/* Creates, extends and begins that first take pages of others back. */
START_TEST(test_pressure)
{
	struct alloc a;
	dhs_session more = 0;

	alloc_open(&a, (uint32_t)_i % 2, (uint64_t)_i / 2, false);
	alloc_sessions(&a);
	alloc_batch(&a);
	alloc_prefill(&a, 0, 100);
	alloc_prefill(&a, 1, 120);
	alloc_step(&a, 0);
	TRY_ALL(&a, dhs_session_create(a.rig.context, NULL, &more));
	alloc_step(&a, 3);
	TRY_ALL(&a, dhs_session_evict(a.rig.context, a.session[0], NULL));
	alloc_refill(&a, 1);
	TRY_ALL(&a, dhs_session_destroy(a.rig.context, more));
	alloc_prefill(&a, 1, 60);
	ck_assert_uint_eq(observe().pages_coming, 0); /* called off to make room */
	alloc_step(&a, 5);
	TRY_ALL(&a, dhs_session_suspend(a.rig.context, a.session[0], NULL));
	alloc_prefill(&a, 1, 40);
	TRY_ALL(&a, dhs_session_resume(a.rig.context, a.session[0]));
	alloc_step(&a, 5);
	alloc_close(&a);
}
END_TEST

static int capture_all(struct alloc *a, const dhs_selection *selection, dhs_host_graph **graph)
{
	dhs_stream stream = a->rig.stream;
	int rc = dhs_host_capture_begin(stream), end;

	if (rc != 0)
		return rc;
	rc = dhs_step_slots(a->batch, 2, 1, selection->slots, stream);
	if (rc == 0)
		rc = dhs_step_plan(a->batch, 0, selection, stream);
	if (rc == 0)
		rc = dhs_step_fetch(a->batch, 0, 0, 0, stream);
	if (rc == 0)
		rc = dhs_step_resolve(a->batch, 1, selection, stream);
	if (rc == 0)
		rc = dhs_step_commit(a->batch, 2, NULL, stream);
	end = dhs_host_capture_end(stream, graph);
	if (rc != 0 && end == 0)
		dhs_host_graph_destroy(*graph);
	return rc != 0 ? rc : end;
}

/* A capture that lacked memory for a part gives no graph. */
START_TEST(test_graphs)
{
	struct alloc a;
	dhs_host_graph *graph = NULL;
	dhs_selection selection = DHS_INIT(dhs_selection);

	alloc_open(&a, (uint32_t)_i % 2, (uint64_t)_i / 2, false);
	alloc_sessions(&a);
	alloc_batch(&a);
	selection.rows = selection.slots = rig_keep(&a.rig, 4 * 16);
	tolerated = 0;
	TRY_ALL(&a, capture_all(&a, &selection, &graph));
	ck_assert_uint_eq(tolerated, 0);
	TRY_ALL(&a, dhs_host_graph_launch(graph, a.rig.stream)); /* no step: pads */
	TRY_ALL(&a, dhs_host_graph_launch(graph, a.rig.side));
	TRY_ALL(&a, dhs_host_graph_destroy(graph));
	alloc_step(&a, 0);
	alloc_close(&a);
}
END_TEST

/* With memory or without, a kernel gets a copy of its own. */
static void scribbling_kernel(void *copy)
{
	memset(copy, 0xff, 64);
}

START_TEST(test_launch_copy)
{
	struct alloc a;
	unsigned char arg[64] = { 0 };
	dhs_host_graph *graph = NULL;

	alloc_open(&a, 1, (uint64_t)_i, true);
	alloc_sessions(&a);
	alloc_batch(&a);
	for (uint32_t i = 0; i < 3; i++)
		TRY_ALL(&a, dhs_host_launch(a.rig.stream, scribbling_kernel, arg, sizeof(arg)));
	ck_good(dhs_host_capture_begin(a.rig.stream));
	ck_good(dhs_host_launch(a.rig.stream, scribbling_kernel, arg, sizeof(arg)));
	ck_good(dhs_host_capture_end(a.rig.stream, &graph));
	TRY_ALL(&a, dhs_host_graph_launch(graph, a.rig.stream));
	rig_sync(&a.rig);
	for (uint32_t i = 0; i < sizeof(arg); i++)
		ck_assert_uint_eq(arg[i], 0);
	ck_good(dhs_host_graph_destroy(graph));
	alloc_close(&a);
}
END_TEST

START_TEST(test_engine_pool)
{
	struct alloc a;
	struct rig *rig = &a.rig;
	void *pool[3];
	char *memory = calloc(3, 64 * 256);
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken = 0;

	alloc_open(&a, 0, 0, false);
	observed = NULL;
	dhs_context_destroy(rig->context);
	for (uint32_t l = 0; l < 3; l++)
		pool[l] = memory + (size_t)l * 64 * 256;
	for (int32_t i = 0; i < 64; i++)
		pages[i] = i;
	rig_use_pool(rig, pool);
	TRY_ALL(&a, dhs_context_create(&rig->options, &rig->context));
	observed = rig->context;
	for (uint32_t l = 0; l < 3; l++)
		ck_good(dhs_context_place(rig->context, l, 0, &rig->place[l]));
	TRY_ALL(&a, dhs_lend_pages(rig->context, pages, 64, rig->stream));
	alloc_sessions(&a);
	alloc_batch(&a);
	TRY_ALL(&a, dhs_take_pages(rig->context, 10, pages, fences, &taken));
	ck_assert_uint_eq(taken, 10);
	TRY_ALL(&a, dhs_fence_wait(rig->context, fences[0], rig->stream));
	TRY_ALL(&a, dhs_lend_pages(rig->context, pages, 10, rig->side));
	alloc_step(&a, 0);
	alloc_close(&a);
	free(memory);
}
END_TEST

/* A context without a device of the caller's makes one, with its allocator. */
START_TEST(test_private_device)
{
	struct rig rig;

	rig_default(&rig);
	fail_on = _i == 1;
	injected = 0;
	observed = NULL;
	TRY_ALL_OF(&rig, 0, dhs_context_create(&rig.options, &rig.context));
	ck_assert_uint_gt(injected, 5);
	dhs_context_destroy(rig.context);
	ck_assert_uint_eq(memory_live(&rig.memory), 0);
	ck_assert_uint_eq(rig.memory.wrong, 0);
}
END_TEST

/* The host backend asks the allocator for everything, whatever it says of pinning. */
START_TEST(test_pinned)
{
	struct rig rig;
	dhs_required required = DHS_INIT(dhs_required);

	rig_default(&rig);
	rig.memory.allocator.flags = DHS_ALLOCATOR_PINNED;
	ck_good(dhs_context_required(&rig.options, &required));
	ck_good(dhs_context_create(&rig.options, &rig.context));
	ck_assert_uint_eq(rig.memory.bytes[DHS_MEMORY_HOST], required.host_bytes);
	dhs_context_destroy(rig.context);
	ck_assert_uint_eq(memory_live(&rig.memory), 0);
	ck_assert_uint_eq(rig.memory.wrong, 0);
}
END_TEST

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *fail = support_case("fail", in_pool);

	tcase_set_timeout(fail, support_seconds(60));
	tcase_add_loop_test(fail, test_everything, 0, 12);
	tcase_add_loop_test(fail, test_pressure, 0, 4);
	tcase_add_loop_test(fail, test_graphs, 0, 4);
	tcase_add_loop_test(fail, test_launch_copy, 0, 3);
	tcase_add_test(fail, test_engine_pool);
	tcase_add_loop_test(fail, test_private_device, 0, 2);
	tcase_add_test(fail, test_pinned);
	suite_add_tcase(suite, fail);
}

int main(void)
{
	Suite *suite = suite_create("alloc");

	support_both(suite, add_cases);
	return support_run(suite);
}
