/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The thread of a context that ticks: that it does, how often, what it leaves alone, that each
 * call has the context to itself meanwhile, and how it ends.  Meant for a thread sanitizer as
 * well. */
#include "support.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define ROWS 41   /* of a session with */
#define HISTORY 9 /* pages of history */

static void pause_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

static void open_ticking(struct rig *rig, uint64_t seed, uint32_t us)
{
	rig->seed = seed;
	rig->options.tick_us = us;
	rig->options.flags |= DHS_CONTEXT_REFILL;
	rig->options.link_bytes = 1 << 20;
	rig_open(rig);
}

/* Until the thread has ticked so often again. */
static void wait_for_ticks(struct rig *rig, uint64_t ticks)
{
	uint64_t wanted = rig_stats(rig).ticks + ticks;

	while (rig_stats(rig).ticks < wanted)
		pause_ms(1);
}

static void fill(struct rig *rig, struct history *history, uint32_t rows)
{
	history_open(rig, history);
	history_prefill(rig, history, rows);
}

static void finish(struct rig *rig)
{
	rig_sync(rig);
	ck_good(dhs_context_wait(rig->context));
}

/* ---- that it ticks ------------------------------------------------------------ */

/* What an engine's own ticks do happens without any. */
START_TEST(test_ticks)
{
	struct rig rig;
	struct history one, two;
	struct table table;

	rig_default(&rig);
	rig.options.backup = DHS_BACKUP_BACKGROUND;
	open_ticking(&rig, (uint64_t)_i, 200);
	ck_assert_uint_eq(rig_stats(&rig).flags & DHS_STATS_REPEATABLE, 0);
	table_open(&rig, &table, 1, 2, 8);
	fill(&rig, &one, ROWS);
	fill(&rig, &two, ROWS);
	while (rig_stats(&rig).pages_unbacked != 0)
		pause_ms(1);
	ck_good(dhs_session_evict(rig.context, one.id, NULL));
	ck_assert_uint_eq(rig_stats(&rig).backup_rows, 2 * 4 * HISTORY);
	while (rig_info(&rig, one.id).resident_pages != HISTORY)
		pause_ms(1);
	ck_good(dhs_context_advance(rig.context)); /* one more */
	history_verify(&table, &one);
	history_verify(&table, &two);
	finish(&rig);
	ck_assert_uint_eq(rig_stats(&rig).misses, 0);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

static double seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Not more often than asked for, and at all. */
START_TEST(test_how_often)
{
	struct rig rig;
	double start = seconds();
	uint64_t ticks;

	rig_default(&rig);
	open_ticking(&rig, 0, 5000);
	while (rig_stats(&rig).ticks < 8)
		pause_ms(1);
	pause_ms(20);
	ticks = rig_stats(&rig).ticks;
	ck_assert_uint_le(ticks, (uint64_t)((seconds() - start) / 0.005));
	rig_close(&rig);
}
END_TEST

/* Where none ticks, what is told is that the same calls do the same. */
START_TEST(test_repeatable)
{
	static const uint32_t policies[] = { DHS_POLICY_ADAPTIVE, DHS_POLICY_FIXED, DHS_POLICY_FULL };
	struct rig rig;

	rig_default(&rig);
	rig.options.policy = policies[_i];
	if (policies[_i] == DHS_POLICY_FULL)
		rig.options.host_rows = 0;
	open_ticking(&rig, 0, policies[_i] == DHS_POLICY_ADAPTIVE ? 0 : 100);
	pause_ms(20);
	ck_assert_uint_eq(rig_stats(&rig).flags, DHS_STATS_REPEATABLE);
	ck_assert_uint_eq(rig_stats(&rig).ticks, 0);
	rig_close(&rig);
}
END_TEST

/* ---- that calls have the context to themselves -------------------------------- */

/* An allocator that holds up one call, in it, for as long as it is wanted. */
struct gate {
	struct rig rig;
	dhs_allocator own; /* the rig's */
	atomic_bool closed, held;
	struct history history;
	struct table table;
	dhs_step step;
	dhs_session made;
	int32_t *rows; /* device */
	uint32_t number;
	atomic_int rc; /* of the call, 99: it has not returned */
};

static void *gate_alloc(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	struct gate *g = arg;

	if (atomic_exchange(&g->closed, false)) {
		atomic_store(&g->held, true);
		while (atomic_load(&g->held))
			pause_ms(1);
	}
	return g->own.alloc(g->own.arg, kind, bytes, align);
}

static void gate_free(void *arg, uint32_t kind, void *memory, size_t bytes)
{
	struct gate *g = arg;

	g->own.free(g->own.arg, kind, memory, bytes);
}

static void gate_open(struct gate *g, dhs_allocator *allocator, uint32_t us)
{
	struct rig *rig = &g->rig;

	memset(g, 0, sizeof(*g));
	rig_default(rig);
	g->own = rig->memory.allocator;
	*allocator = (dhs_allocator)DHS_INIT(dhs_allocator);
	allocator->alloc = gate_alloc;
	allocator->free = gate_free;
	allocator->arg = g;
	rig->options.allocator = allocator;
	open_ticking(rig, 0, us);
	table_open(rig, &g->table, 1, 1, 4);
	fill(rig, &g->history, ROWS);
	g->rows = rig_keep(rig, 4 * sizeof(*g->rows));
}

static int call_begin(struct gate *g)
{
	dhs_step_entry entry = { g->history.id, 2, 1 };

	return dhs_step_begin(g->table.batch, &entry, 1, sizeof(entry), g->rig.stream, &g->step);
}

static int call_end(struct gate *g)
{
	const uint32_t kept = 0;

	return dhs_step_end(g->rig.context, g->step, &kept, 1);
}

static int call_settle(struct gate *g)
{
	const uint32_t kept = 2; /* commit keeps all */

	return dhs_step_settle(g->rig.context, g->step, &kept, 1);
}

static int call_abort(struct gate *g)
{
	return dhs_step_abort(g->rig.context, g->step);
}

static int call_slots(struct gate *g)
{
	return dhs_step_slots(g->table.batch, 0, 2, g->rows, g->rig.stream);
}

static dhs_selection selection_of(struct gate *g)
{
	dhs_selection s = DHS_INIT(dhs_selection);

	s.rows = s.slots = g->rows;
	return s;
}

static int call_plan(struct gate *g)
{
	dhs_selection s = selection_of(g);

	return dhs_step_plan(g->table.batch, 0, &s, g->rig.stream);
}

static int call_fetch(struct gate *g)
{
	return dhs_step_fetch(g->table.batch, 0, 0, 0, g->rig.stream);
}

static int call_resolve(struct gate *g)
{
	dhs_selection s = selection_of(g);

	return dhs_step_resolve(g->table.batch, 1, &s, g->rig.stream);
}

static int call_commit(struct gate *g)
{
	return dhs_step_commit(g->table.batch, 0, NULL, g->rig.stream);
}

static int call_all_resident(struct gate *g)
{
	int all;

	return dhs_step_all_resident(g->table.batch, &all);
}

static int call_view(struct gate *g)
{
	dhs_batch_view view = DHS_INIT(dhs_batch_view);

	return dhs_batch_get_view(g->table.batch, &view);
}

static int call_place(struct gate *g)
{
	dhs_place place = DHS_INIT(dhs_place);

	return dhs_context_place(g->rig.context, 0, 0, &place);
}

static int call_advance(struct gate *g)
{
	return dhs_context_advance(g->rig.context);
}

static int call_wait(struct gate *g)
{
	return dhs_context_wait(g->rig.context);
}

static int call_info(struct gate *g)
{
	dhs_session_info info = DHS_INIT(dhs_session_info);

	return dhs_session_get_info(g->rig.context, g->history.id, &info);
}

static int call_admission(struct gate *g)
{
	dhs_admission admission = DHS_INIT(dhs_admission);

	return dhs_session_admission(g->rig.context, NULL, &admission);
}

static int call_create(struct gate *g)
{
	return dhs_session_create(g->rig.context, NULL, &g->made);
}

static int call_extend(struct gate *g)
{
	static int32_t slots[4];

	return dhs_session_extend(g->rig.context, g->made, 4, g->rig.stream, slots);
}

static int call_session_commit(struct gate *g)
{
	return dhs_session_commit(g->rig.context, g->made, 4, g->rig.stream);
}

static int call_truncate(struct gate *g)
{
	return dhs_session_truncate(g->rig.context, g->made, 0);
}

static int call_evict(struct gate *g)
{
	return dhs_session_evict(g->rig.context, g->history.id, NULL);
}

static int call_suspend(struct gate *g)
{
	return dhs_session_suspend(g->rig.context, g->history.id, NULL);
}

static int call_resume(struct gate *g)
{
	return dhs_session_resume(g->rig.context, g->history.id);
}

static int call_destroy(struct gate *g)
{
	return dhs_session_destroy(g->rig.context, g->made);
}

static int call_fence_wait(struct gate *g)
{
	return dhs_fence_wait(g->rig.context, 0, g->rig.stream);
}

static int call_fence_sync(struct gate *g)
{
	return dhs_fence_sync(g->rig.context, 0);
}

static int call_fence_query(struct gate *g)
{
	int passed;

	return dhs_fence_query(g->rig.context, 0, &passed);
}

static int call_lend(struct gate *g)
{
	return dhs_lend_pages(g->rig.context, NULL, 0, g->rig.stream);
}

static int call_take(struct gate *g)
{
	size_t taken;

	return dhs_take_pages(g->rig.context, 0, NULL, NULL, &taken);
}

static int call_batch_destroy(struct gate *g)
{
	return dhs_batch_destroy(g->table.batch);
}

/* In an order in which each of them succeeds, but for lending: the pool is the library's. */
static int (*const calls[])(struct gate *g) = {
	call_begin,          call_slots,         call_plan,        call_fetch,   call_resolve,
	call_commit,         call_all_resident,  call_settle,      call_begin,   call_end,
	call_begin,          call_abort,         call_view,        call_place,   call_advance,
	call_wait,           call_info,          call_admission,   call_create,  call_extend,
	call_session_commit, call_truncate,      call_evict,       call_suspend, call_resume,
	call_fence_wait,     call_fence_sync,    call_fence_query, call_destroy, call_lend,
	call_take,           call_batch_destroy,
};

static void *call_main(void *arg)
{
	struct gate *g = arg;

	atomic_store(&g->rc, calls[g->number](g));
	return NULL;
}

/* A call that takes memory, and waits for it. */
static void *held_main(void *arg)
{
	struct gate *g = arg;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_batch *batch = NULL;

	options.top_k = 1;
	if (dhs_batch_create(g->rig.context, &options, &batch) == 0)
		dhs_batch_destroy(batch);
	return NULL;
}

/* While one call is in the context no other gets in: each of them waits. */
START_TEST(test_calls_wait)
{
	struct gate g;
	dhs_allocator allocator;

	gate_open(&g, &allocator, 60000000);
	for (g.number = 0; g.number < COUNT_OF(calls); g.number++) {
		pthread_t held, call;
		int lends = calls[g.number] == call_lend || calls[g.number] == call_take;

		atomic_store(&g.rc, 99);
		atomic_store(&g.closed, true);
		ck_assert_int_eq(pthread_create(&held, NULL, held_main, &g), 0);
		while (!atomic_load(&g.held))
			pause_ms(1);
		ck_assert_int_eq(pthread_create(&call, NULL, call_main, &g), 0);
		pause_ms(20);
		ck_assert_msg(atomic_load(&g.rc) == 99, "call %u did not wait", g.number);
		rig_stats(&g.rig); /* this one need not */
		atomic_store(&g.held, false);
		ck_assert_int_eq(pthread_join(held, NULL), 0);
		ck_assert_int_eq(pthread_join(call, NULL), 0);
		ck_assert_msg(atomic_load(&g.rc) == (lends ? DHS_ERR_UNSUPPORTED : 0),
		              "call %u returned %d", g.number, atomic_load(&g.rc));
	}
	rig_close(&g.rig);
}
END_TEST

/* After a call that took long the thread ticks as often as ever. */
START_TEST(test_not_made_up_for)
{
	struct gate g;
	dhs_allocator allocator;
	pthread_t held;
	uint64_t ticks;
	double start;

	gate_open(&g, &allocator, 2000);
	atomic_store(&g.closed, true);
	ck_assert_int_eq(pthread_create(&held, NULL, held_main, &g), 0);
	while (!atomic_load(&g.held))
		pause_ms(1);
	pause_ms(400);
	ticks = rig_stats(&g.rig).ticks;
	start = seconds();
	atomic_store(&g.held, false);
	ck_assert_int_eq(pthread_join(held, NULL), 0);
	while (rig_stats(&g.rig).ticks < ticks + 4)
		pause_ms(1);
	ticks = rig_stats(&g.rig).ticks - ticks;
	ck_assert_uint_le(ticks, (uint64_t)((seconds() - start) / 0.002) + 2);
	table_close(&g.table);
	rig_close(&g.rig);
}
END_TEST

/* An engine at work beside the thread, and one more thread that looks on. */
struct engine {
	struct rig rig;
	struct history history[3];
	struct table table;
	struct dice dice;
	atomic_bool stop;
	const char *wrong;
};

static void *look_main(void *arg)
{
	struct engine *e = arg;
	uint64_t ticks = 0;

	while (!atomic_load(&e->stop) && !e->wrong) {
		dhs_stats s = DHS_INIT(dhs_stats);

		if (dhs_context_stats(e->rig.context, &s) != 0 || s.flags != 0)
			e->wrong = "an error";
		else if (s.pages_reserved + s.pages_free + s.pages_draining + s.pages_required +
		             s.pages_resident + s.pages_staging + s.pages_elastic !=
		         e->rig.options.device_pages)
			e->wrong = "a torn snapshot";
		else if (s.ticks < ticks)
			e->wrong = "ticks that went back";
		ticks = s.ticks;
	}
	return NULL;
}

static void engine_open(struct engine *e, uint64_t seed)
{
	memset(e, 0, sizeof(*e));
	rig_default(&e->rig);
	e->rig.options.device_pages = 44;
	e->rig.options.backup = (uint32_t)seed % 4; /* DHS_BACKUP_... */
	e->dice.state = seed;
	open_ticking(&e->rig, seed, 100);
	table_open(&e->rig, &e->table, 3, 2, 8);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&e->rig, &e->history[i]);
}

static void engine_step(struct engine *e)
{
	struct history *h = &e->history[dice_below(&e->dice, 3)];
	struct turn turn;

	if (h->rows < 150)
		history_prefill(&e->rig, h, dice_below(&e->dice, 12));
	if (dice_below(&e->dice, 10) == 0)
		history_truncate(&e->rig, h, dice_below(&e->dice, (uint32_t)h->rows + 1));
	if (dice_below(&e->dice, 8) == 0)
		ck_good(dhs_session_evict(e->rig.context, h->id, NULL));
	if (dice_below(&e->dice, 8) == 0) {
		ck_good(dhs_session_suspend(e->rig.context, h->id, NULL));
		ck_good(dhs_session_resume(e->rig.context, h->id));
	}
	if (dice_below(&e->dice, 12) == 0) {
		history_close(&e->rig, h);
		history_open(&e->rig, h);
	}
	if (dice_below(&e->dice, 6) == 0)
		ck_good(dhs_context_advance(e->rig.context));
	turn_open(&turn, &e->table);
	for (uint32_t i = 0; i < 3; i++)
		turn_add(&turn, &e->history[i], 2, 2, dice_below(&e->dice, 3));
	turn_begin(&turn);
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, &e->dice));
	if (dice_below(&e->dice, 6) == 0)
		turn_abort(&turn);
	else
		turn_end(&turn);
}

START_TEST(test_engine)
{
	struct engine e;
	pthread_t look;

	engine_open(&e, (uint64_t)_i);
	ck_assert_int_eq(pthread_create(&look, NULL, look_main, &e), 0);
	for (uint32_t i = 0; i < support_times(400); i++)
		engine_step(&e);
	wait_for_ticks(&e.rig, 3);
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&e.table, &e.history[i]);
	atomic_store(&e.stop, true);
	ck_assert_int_eq(pthread_join(look, NULL), 0);
	ck_assert_msg(e.wrong == NULL, "the other thread saw %s", e.wrong);
	finish(&e.rig);
	table_close(&e.table);
	rig_close(&e.rig);
}
END_TEST

/* A step is captured while it ticks, and replayed. */
START_TEST(test_capture)
{
	struct engine e;
	struct turn turn;
	struct device_graph *graph = NULL;

	engine_open(&e, (uint64_t)_i);
	for (uint32_t i = 0; i < 20; i++)
		engine_step(&e);
	turn_open(&turn, &e.table);
	for (uint32_t i = 0; i < 3; i++)
		turn_add(&turn, &e.history[i], 2, 2, 0);
	turn_begin(&turn);
	ck_good(device_capture_begin(&e.rig.device, e.rig.stream));
	wait_for_ticks(&e.rig, 2);
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, &e.dice));
	wait_for_ticks(&e.rig, 2);
	ck_good(device_capture_end(&e.rig.device, e.rig.stream, &graph));
	ck_good(device_graph_launch(&e.rig.device, graph, e.rig.stream));
	turn_end(&turn);
	rig_sync(&e.rig);
	ck_good(device_graph_destroy(&e.rig.device, graph));
	finish(&e.rig);
	table_close(&e.table);
	rig_close(&e.rig);
}
END_TEST

/* ---- how it fails and ends ---------------------------------------------------- */

/* An allocator that has nothing for other threads, and a log that counts. */
struct picky {
	dhs_allocator own;
	pthread_t main;
	atomic_bool refuse;
	atomic_uint refused, warnings, others;
};

static void *picky_alloc(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	struct picky *p = arg;

	if (!pthread_equal(pthread_self(), p->main) && atomic_load(&p->refuse)) {
		atomic_fetch_add(&p->refused, 1);
		return NULL;
	}
	return p->own.alloc(p->own.arg, kind, bytes, align);
}

static void picky_free(void *arg, uint32_t kind, void *memory, size_t bytes)
{
	struct picky *p = arg;

	p->own.free(p->own.arg, kind, memory, bytes);
}

static void picky_log(void *arg, uint32_t level, const char *text)
{
	struct picky *p = arg;

	if (level == DHS_LOG_WARNING && strstr(text, "tick") != NULL)
		atomic_fetch_add(&p->warnings, 1);
	else
		atomic_fetch_add(&p->others, 1);
}

/* Ticks that fail are told once, and it goes on when it can. */
START_TEST(test_no_memory)
{
	struct rig rig;
	struct picky p = { .main = pthread_self() };
	dhs_allocator allocator = DHS_INIT(dhs_allocator);

	rig_default(&rig);
	p.own = rig.memory.allocator;
	atomic_store(&p.refuse, true);
	allocator.alloc = picky_alloc;
	allocator.free = picky_free;
	allocator.arg = &p;
	rig.options.allocator = &allocator;
	rig.options.log = picky_log;
	rig.options.log_arg = &p;
	open_ticking(&rig, 0, 200);
	while (atomic_load(&p.refused) < 5)
		pause_ms(1);
	ck_assert_uint_eq(rig_stats(&rig).ticks, 0);
	ck_assert_uint_eq(atomic_load(&p.warnings), 1);
	atomic_store(&p.refuse, false);
	wait_for_ticks(&rig, 3);
	ck_assert_uint_eq(atomic_load(&p.warnings), 1);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

/* However long it would sleep. */
START_TEST(test_ends_at_once)
{
	struct rig rig;

	rig_default(&rig);
	open_ticking(&rig, 0, 60000000);
	pause_ms(20);
	rig_close(&rig); /* the test has less than a minute */
}
END_TEST

/* In the middle of whatever it does. */
START_TEST(test_ends)
{
	for (uint64_t seed = 0; seed < support_times(40); seed++) {
		struct rig rig;
		struct history history;

		rig_default(&rig);
		rig.options.backup = DHS_BACKUP_BACKGROUND;
		open_ticking(&rig, seed, 100);
		fill(&rig, &history, ROWS);
		if (_i == 1)
			ck_good(dhs_session_evict(rig.context, history.id, NULL));
		if (seed % 2)
			wait_for_ticks(&rig, seed % 5);
		rig_close(&rig);
	}
}
END_TEST

/* Signals are the engine's. */
START_TEST(test_signals)
{
	struct rig rig;
	struct timespec second = { 10, 0 };
	sigset_t set, old;

	rig_default(&rig);
	open_ticking(&rig, 0, 200);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
	ck_assert_int_eq(sigismember(&old, SIGUSR1), 0); /* create left the mask as it was */
	ck_assert_int_eq(kill(getpid(), SIGUSR1), 0);
	wait_for_ticks(&rig, 3);
	ck_assert_int_eq(sigtimedwait(&set, NULL, &second), SIGUSR1);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	rig_close(&rig);
}
END_TEST

/* Two contexts with a thread each, on one device. */
START_TEST(test_two)
{
	struct engine e;
	struct rig other;
	struct history history;

	engine_open(&e, 1 + (uint64_t)_i);
	rig_default(&other);
	other.host = e.rig.host;
	other.shared_host = true;
	open_ticking(&other, 0, 100);
	fill(&other, &history, ROWS);
	for (uint32_t i = 0; i < support_times(100); i++) {
		engine_step(&e);
		if (i % 10 == 0)
			ck_good(dhs_session_evict(other.context, history.id, NULL));
	}
	finish(&other);
	rig_close(&other);
	finish(&e.rig);
	table_close(&e.table);
	rig_close(&e.rig);
}
END_TEST

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *ticks = support_case("ticks", in_pool), *ends = support_case("ends", in_pool);

	tcase_set_timeout(ticks, support_seconds(20));
	tcase_add_loop_test(ticks, test_ticks, 0, 4);
	tcase_add_test(ticks, test_how_often);
	tcase_add_loop_test(ticks, test_repeatable, 0, 3);
	tcase_add_test(ticks, test_calls_wait);
	tcase_add_test(ticks, test_not_made_up_for);
	tcase_add_loop_test(ticks, test_engine, 0, 8);
	tcase_add_loop_test(ticks, test_capture, 0, 4);
	suite_add_tcase(suite, ticks);
	tcase_set_timeout(ends, support_seconds(10));
	tcase_add_test(ends, test_no_memory);
	tcase_add_test(ends, test_ends_at_once);
	tcase_add_loop_test(ends, test_ends, 0, 2);
	tcase_add_test(ends, test_signals);
	tcase_add_loop_test(ends, test_two, 0, 2);
	suite_add_tcase(suite, ends);
}

int main(void)
{
	Suite *suite = suite_create("ticker");

	support_both(suite, add_cases);
	return support_run(suite);
}
