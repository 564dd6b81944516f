/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What may be called from any thread, while one works; and contexts in threads
 * of their own on one device.  Meant for a thread sanitizer as well. */
#include "support.h"

struct watch {
	dhs_context *context;
	uint32_t device_pages;
	_Atomic bool stop;
	_Atomic uint32_t looks;
	const char *wrong; /* what this thread saw, NULL: nothing */
};

static const char *watch_stats(struct watch *watch, dhs_stats *before)
{
	dhs_stats s = DHS_INIT(dhs_stats);

	if (dhs_context_stats(watch->context, &s) != 0)
		return "an error";
	if (s.pages_reserved + s.pages_free + s.pages_draining + s.pages_required + s.pages_resident +
	        s.pages_staging + s.pages_elastic !=
	    watch->device_pages)
		return "a torn snapshot";
	if (s.host_rows_used > s.host_rows)
		return "too many host rows";
	if (s.pages_coming > s.pages_resident)
		return "too many pages on their way";
	if (s.pages_unbacked > s.pages_resident)
		return "too many pages without a copy";
	if (s.steps < before->steps || s.page_hits < before->page_hits ||
	    s.steps_settled < before->steps_settled || s.misses < before->misses ||
	    s.ticks < before->ticks || s.refilled_pages < before->refilled_pages)
		return "a counter that went back";
	if (s.steps_settled + s.steps_aborted > s.steps)
		return "a step settled before it was begun";
	*before = s;
	return NULL;
}

static void *watch_main(void *arg)
{
	struct watch *watch = arg;
	dhs_stats before = DHS_INIT(dhs_stats);

	if (dhs_last_error()[0] != '\0')
		watch->wrong = "another thread's error";
	while (!atomic_load(&watch->stop) && watch->wrong == NULL) {
		watch->wrong = watch_stats(watch, &before);
		atomic_fetch_add(&watch->looks, 1);
	}
	return NULL;
}

/* This thread's errors stay its own. */
static void *error_main(void *arg)
{
	struct watch *watch = arg;

	while (!atomic_load(&watch->stop) && watch->wrong == NULL) {
		if (dhs_context_stats(watch->context, NULL) != DHS_ERR_ARGUMENT)
			watch->wrong = "no error";
		else if (strstr(dhs_last_error(), "stats") == NULL)
			watch->wrong = "another thread's words";
		atomic_fetch_add(&watch->looks, 1);
	}
	return NULL;
}

struct work {
	struct rig rig;
	struct history history[3];
	struct table table;
	struct dice dice;
};

static void work_open(struct work *w, uint64_t seed, dhs_host *host)
{
	rig_default(&w->rig);
	w->rig.seed = seed;
	w->rig.host = host;
	w->rig.shared_host = host != NULL;
	w->rig.options.device_pages = 48;
	w->rig.options.backup = seed % 2 ? DHS_BACKUP_BACKGROUND : DHS_BACKUP_EAGER;
	w->rig.options.flags |= DHS_CONTEXT_REFILL;
	w->rig.options.link_bytes = 1 << 20;
	rig_open(&w->rig);
	for (uint32_t i = 0; i < 3; i++)
		history_open(&w->rig, &w->history[i]);
	table_open(&w->rig, &w->table, 3, 2, 8);
	w->dice.state = seed;
}

static void work_step(struct work *w)
{
	struct turn turn;
	struct history *h = &w->history[dice_below(&w->dice, 3)];

	if (h->rows > 150)
		history_truncate(&w->rig, h, dice_below(&w->dice, (uint32_t)h->rows));
	history_prefill(&w->rig, h, dice_below(&w->dice, 12));
	if (dice_below(&w->dice, 5) == 0)
		ck_good(dhs_session_evict(w->rig.context, h->id, NULL));
	ck_good(dhs_context_advance(w->rig.context));
	turn_open(&turn, &w->table);
	for (uint32_t e = 0; e < 3; e++)
		turn_add(&turn, &w->history[e], 2, 2, dice_below(&w->dice, 3));
	turn_begin(&turn);
	turn_write(&turn);
	turn_resolve_all(&turn, turn_wild(&turn, &w->dice));
	if (dice_below(&w->dice, 6) == 0)
		turn_abort(&turn);
	else
		turn_end(&turn);
	ck_code(dhs_context_wait(NULL), DHS_ERR_ARGUMENT); /* words of this thread */
	ck_assert_ptr_nonnull(strstr(dhs_last_error(), "context"));
}

static void work_close(struct work *w)
{
	for (uint32_t i = 0; i < 3; i++)
		history_verify(&w->table, &w->history[i]);
	rig_sync(&w->rig);
	ck_good(dhs_context_wait(w->rig.context));
	ck_assert_uint_gt(rig_stats(&w->rig).ticks, 0);
	table_close(&w->table);
	rig_close(&w->rig);
}

START_TEST(test_stats_from_any_thread)
{
	struct work w;
	struct watch watch[3];
	pthread_t thread[3];

	work_open(&w, (uint64_t)_i, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		memset(&watch[i], 0, sizeof(watch[i]));
		watch[i].context = w.rig.context;
		watch[i].device_pages = w.rig.options.device_pages;
		ck_assert_int_eq(
			pthread_create(&thread[i], NULL, i < 2 ? watch_main : error_main, &watch[i]), 0);
	}
	for (uint32_t i = 0; i < support_times(300); i++)
		work_step(&w);
	for (uint32_t i = 0; i < 3; i++) {
		while (atomic_load(&watch[i].looks) == 0 && watch[i].wrong == NULL)
			work_step(&w);
		atomic_store(&watch[i].stop, true);
	}
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
		ck_assert_msg(watch[i].wrong == NULL, "thread %u saw %s", i, watch[i].wrong);
	}
	work_close(&w);
}
END_TEST

/* ---- two contexts on one device ------------------------------------------- */

/* Threads must not fail a test by a jump, so they count instead. */
struct pair {
	dhs_host *host;
	uint64_t seed;
	uint32_t steps;
	const char *wrong;
};

struct pair_write {
	const int32_t *slots;
	dhs_place place[3];
	uint32_t count, tag;
	_Atomic uint32_t *bad;
	bool check;
	uint32_t first, layers;
};

static void pair_kernel(void *copy)
{
	const struct pair_write *w = copy;

	for (uint32_t i = 0; i < w->count; i++)
		for (uint32_t l = w->first; l < w->first + w->layers; l++) {
			const dhs_place *p = &w->place[l];
			uint32_t slot = (uint32_t)w->slots[i], word = w->tag + i + 1000 * l;
			char *at = (char *)p->base + slot / p->page_rows * p->page_stride +
			           slot % p->page_rows * p->row_stride;

			if (!w->check)
				memcpy(at, &word, 4);
			else if (w->slots[i] < 0 || memcmp(at, &word, 4) != 0)
				atomic_fetch_add(w->bad, 1);
		}
}

#define PAIR_ROWS 60
#define PAIR_GOOD(pair, call)                                                                      \
	do {                                                                                           \
		if ((call) != 0) {                                                                         \
			(pair)->wrong = #call;                                                                 \
			return;                                                                                \
		}                                                                                          \
	} while (0)

struct pair_state {
	dhs_context *context;
	dhs_stream stream;
	dhs_session session;
	dhs_batch *batch;
	int32_t slots[PAIR_ROWS], rows[16];
	struct pair_write write;
	_Atomic uint32_t bad;
};

static void pair_open(struct pair *pair, struct pair_state *s)
{
	struct rig rig;
	dhs_batch_options batch = DHS_INIT(dhs_batch_options);

	rig_default(&rig);
	rig.options.policy = DHS_POLICY_FIXED;
	rig.options.allocator = NULL;
	rig.options.host = pair->host;
	batch.max_sessions = 1;
	batch.top_k = 16;
	PAIR_GOOD(pair, dhs_host_stream_create(pair->host, &s->stream));
	PAIR_GOOD(pair, dhs_context_create(&rig.options, &s->context));
	PAIR_GOOD(pair, dhs_session_create(s->context, NULL, &s->session));
	PAIR_GOOD(pair, dhs_batch_create(s->context, &batch, &s->batch));
	s->write = (struct pair_write){ .slots = s->slots,
		                            .count = PAIR_ROWS,
		                            .tag = (uint32_t)pair->seed * 100000,
		                            .bad = &s->bad,
		                            .layers = 3 };
	for (uint32_t l = 0; l < 3; l++) {
		s->write.place[l].size = sizeof(dhs_place);
		PAIR_GOOD(pair, dhs_context_place(s->context, l, 0, &s->write.place[l]));
	}
	PAIR_GOOD(pair, dhs_session_extend(s->context, s->session, PAIR_ROWS, s->stream, s->slots));
	PAIR_GOOD(pair, dhs_host_launch(s->stream, pair_kernel, &s->write, sizeof(s->write)));
	PAIR_GOOD(pair, dhs_session_commit(s->context, s->session, PAIR_ROWS, s->stream));
}

static void pair_step(struct pair *pair, struct pair_state *s, uint32_t number)
{
	dhs_step_entry entry = { s->session, 0, 1 };
	dhs_selection selection = DHS_INIT(dhs_selection);
	struct pair_write check = s->write;
	uint32_t first = number * 7 % (PAIR_ROWS - 16), kept[1] = { 0 };
	dhs_step step = 0;

	PAIR_GOOD(pair, dhs_host_stream_sync(s->stream));
	for (uint32_t i = 0; i < 16; i++)
		s->rows[i] = (int32_t)(first + i);
	selection.rows = selection.slots = s->rows;
	check.slots = s->rows;
	check.count = 16;
	check.tag += first;
	check.check = true;
	check.first = 1;
	check.layers = 2;
	PAIR_GOOD(pair, dhs_step_begin(s->batch, &entry, 1, sizeof(entry), s->stream, &step));
	PAIR_GOOD(pair, dhs_step_resolve(s->batch, 1, &selection, s->stream));
	PAIR_GOOD(pair, dhs_host_launch(s->stream, pair_kernel, &check, sizeof(check)));
	PAIR_GOOD(pair, dhs_step_end(s->context, step, kept, 1));
}

static void pair_close(struct pair *pair, struct pair_state *s)
{
	PAIR_GOOD(pair, dhs_host_stream_sync(s->stream));
	dhs_context_destroy(s->context);
	PAIR_GOOD(pair, dhs_host_stream_destroy(s->stream));
	if (atomic_load(&s->bad) != 0)
		pair->wrong = "wrong bytes";
}

static void *pair_main(void *arg)
{
	struct pair *pair = arg;
	struct pair_state *s = calloc(1, sizeof(*s));

	pair_open(pair, s);
	for (uint32_t i = 0; i < pair->steps && pair->wrong == NULL; i++)
		pair_step(pair, s, i);
	if (pair->wrong == NULL)
		pair_close(pair, s);
	free(s);
	return NULL;
}

START_TEST(test_contexts_on_one_device)
{
	dhs_host_options options = DHS_INIT(dhs_host_options);
	dhs_host *host = NULL;
	struct pair pair[3];
	pthread_t thread[3];

	options.seed = (uint64_t)_i;
	ck_good(dhs_host_create(&options, &host));
	for (uint32_t i = 0; i < 3; i++) {
		pair[i] = (struct pair){ host, i + 1, support_times(200), NULL };
		ck_assert_int_eq(pthread_create(&thread[i], NULL, pair_main, &pair[i]), 0);
	}
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_msg(pair[i].wrong == NULL, "thread %u: %s", i, pair[i].wrong);
	ck_good(dhs_host_destroy(host));
}
END_TEST

/* One thread creates and destroys contexts while another works. */
static void *churn_main(void *arg)
{
	struct pair *pair = arg;

	for (uint32_t i = 0; i < pair->steps && pair->wrong == NULL; i++) {
		struct pair one = { pair->host, pair->seed, 3, NULL };

		pair_main(&one);
		pair->wrong = one.wrong;
	}
	return NULL;
}

START_TEST(test_contexts_come_and_go)
{
	dhs_host_options options = DHS_INIT(dhs_host_options);
	dhs_host *host = NULL;
	struct pair pair[2];
	pthread_t thread[2];

	options.seed = (uint64_t)_i;
	ck_good(dhs_host_create(&options, &host));
	pair[0] = (struct pair){ host, 1, support_times(300), NULL };
	pair[1] = (struct pair){ host, 2, support_times(50), NULL };
	ck_assert_int_eq(pthread_create(&thread[0], NULL, pair_main, &pair[0]), 0);
	ck_assert_int_eq(pthread_create(&thread[1], NULL, churn_main, &pair[1]), 0);
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
		ck_assert_msg(pair[i].wrong == NULL, "thread %u: %s", i, pair[i].wrong);
	}
	ck_good(dhs_host_destroy(host));
}
END_TEST

/* A context may change hands, as long as one thread has it at a time. */
static void *hand_main(void *arg)
{
	struct work *w = arg;

	for (uint32_t i = 0; i < 20; i++)
		work_step(w);
	return NULL;
}

START_TEST(test_change_hands)
{
	struct work w;

	work_open(&w, (uint64_t)_i, NULL);
	for (uint32_t i = 0; i < 5; i++) {
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, hand_main, &w), 0);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
	work_close(&w);
}
END_TEST

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *any = support_case("any", in_pool), *own = support_case("own", in_pool);

	tcase_set_timeout(any, support_seconds(60));
	tcase_add_loop_test(any, test_stats_from_any_thread, 0, 3);
	tcase_add_loop_test(any, test_change_hands, 0, 2);
	suite_add_tcase(suite, any);
	tcase_set_timeout(own, support_seconds(60));
	tcase_add_loop_test(own, test_contexts_on_one_device, 0, 4);
	tcase_add_loop_test(own, test_contexts_come_and_go, 0, 4);
	suite_add_tcase(suite, own);
}

int main(void)
{
	Suite *suite = suite_create("threads");

	support_both(suite, add_cases);
	return support_run(suite);
}
