/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Admission: what is said of a session before it is created comes true, and what a
 * session has reserved is there for it, whatever others do. */
#include "support.h"

#define REQUIRED 5 /* pages of a session: two of its hot cache and R = 3 */

static dhs_admission ask(struct rig *rig, uint64_t reserve)
{
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_admission a = DHS_INIT(dhs_admission);

	options.reserve_rows = reserve;
	ck_good(dhs_session_admission(rig->context, reserve ? &options : NULL, &a));
	ck_assert_uint_eq(a.flags, 0);
	return a;
}

static int create(struct rig *rig, uint64_t reserve, dhs_session *session)
{
	dhs_session_options options = DHS_INIT(dhs_session_options);

	options.reserve_rows = reserve;
	return dhs_session_create(rig->context, &options, session);
}

static void open_pages(struct rig *rig, uint32_t pages)
{
	rig_default(rig);
	rig->options.device_pages = pages;
	rig_open(rig);
}

/* ---- verdicts ------------------------------------------------------------- */

START_TEST(test_yes)
{
	struct rig rig;
	dhs_admission a;
	dhs_session session;

	open_pages(&rig, 64);
	a = ask(&rig, 21);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_YES);
	ck_assert_uint_eq(a.lack, DHS_LACK_NOTHING);
	ck_assert_uint_eq(a.host_rows_needed, 24);
	ck_assert_uint_eq(a.host_rows_free, 1024);
	ck_assert_uint_eq(a.host_rows_draining, 0);
	ck_assert_uint_eq(a.pages_needed, REQUIRED);
	ck_assert_uint_eq(a.pages_free, 64);
	ck_assert_uint_eq(a.pages_coming + a.pages_optional + a.pages_draining, 0);
	ck_assert_uint_eq(a.sessions_free, 4);
	ck_assert_uint_eq(a.evicted_pages + a.pending_pages, 0);
	ck_good(create(&rig, 21, &session));
	a = ask(&rig, 0);
	ck_assert_uint_eq(a.pages_free, 64 - REQUIRED);
	ck_assert_uint_eq(a.host_rows_free, 1024 - 24);
	ck_assert_uint_eq(a.sessions_free, 3);
	rig_close(&rig);
}
END_TEST

/* Optional pages are told, and exactly those are taken. */
START_TEST(test_after_eviction)
{
	struct rig rig;
	struct history history[2], late;
	struct table table;
	dhs_admission a;

	rig_default(&rig);
	rig.options.device_pages = 2 * REQUIRED + 9 + 4 + 2;
	rig.options.reclaim = _i ? DHS_RECLAIM_WHOLE : DHS_RECLAIM_PARTIAL;
	rig_open(&rig);
	for (uint32_t i = 0; i < 2; i++) {
		history_open(&rig, &history[i]);
		history_prefill(&rig, &history[i], i ? 20 : 40); /* 9 and 4 optional pages */
	}
	a = ask(&rig, 0);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_AFTER);
	ck_assert_uint_eq(a.lack, DHS_LACK_PAGES);
	ck_assert_uint_eq(a.pages_free, 2);
	ck_assert_uint_eq(a.pages_optional, 13);
	ck_assert_uint_eq(a.evicted_pages, _i ? 9 : REQUIRED - 2);
	ck_assert_uint_eq(a.pending_pages, 0);
	history_open(&rig, &late);
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, a.evicted_pages);
	history_prefill(&rig, &late, 4);
	table_open(&rig, &table, 3, 1, 4);
	for (uint32_t i = 0; i < 2; i++)
		history_verify(&table, &history[i]);
	rig_sync(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Where one session has too few, those of the next are told, too. */
START_TEST(test_after_two_evictions)
{
	struct rig rig;
	struct history history[2], late;
	dhs_admission a;

	rig_default(&rig);
	rig.options.device_pages = 2 * REQUIRED + 4 + 2;
	rig.options.reclaim = _i ? DHS_RECLAIM_WHOLE : DHS_RECLAIM_PARTIAL;
	rig_open(&rig);
	for (uint32_t i = 0; i < 2; i++) {
		history_open(&rig, &history[i]);
		history_prefill(&rig, &history[i], i ? 20 : 12); /* 2 and 4 optional pages */
	}
	a = ask(&rig, 0);
	ck_assert_uint_eq(a.pages_free, 0);
	ck_assert_uint_eq(a.evicted_pages, _i ? 6 : REQUIRED);
	history_open(&rig, &late);
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, a.evicted_pages);
	rig_close(&rig);
}
END_TEST

/* Pages that a step still reads are room, but not yet. */
START_TEST(test_after_draining)
{
	struct rig rig;
	struct history history, late;
	struct table table;
	struct turn turn, next;
	dhs_admission a;

	open_pages(&rig, REQUIRED + 9 + 1);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 40);
	table_open(&rig, &table, 1, 1, 4);
	turn_open(&turn, &table);
	turn_add(&turn, &history, 1, 1, 1);
	turn_begin(&turn);
	a = ask(&rig, 0);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_AFTER);
	ck_assert_uint_eq(a.evicted_pages, REQUIRED - 1);
	ck_assert_uint_eq(a.pending_pages, REQUIRED - 1);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	a = ask(&rig, 0);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_AFTER);
	ck_assert_uint_eq(a.lack, DHS_LACK_PAGES);
	ck_assert_uint_eq(a.pages_draining, 9);
	ck_assert_uint_eq(a.evicted_pages, 0);
	ck_assert_uint_eq(a.pending_pages, REQUIRED - 1);
	history_open(&rig, &late);
	turn_write(&turn);
	turn_resolve_all(&turn, turn_blank(&turn));
	turn_end(&turn);
	turn_open(&next, &table);
	turn_add(&next, &late, 1, 1, 1);
	turn_begin(&next);
	turn_write(&next);
	turn_end(&next);
	history_verify(&table, &history);
	rig_sync(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Host records that a step still uses make create wait; its device pages are told as well. */
START_TEST(test_after_host_rows)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;
	dhs_session session;
	dhs_admission a;

	rig_default(&rig);
	rig.options.host_rows = 60;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 47);
	table_open(&rig, &table, 1, 1, 4);
	turn_open(&turn, &table);
	turn_add(&turn, &history, 1, 1, 1);
	turn_begin(&turn);
	ck_good(dhs_session_destroy(rig.context, history.id));
	turn.entry[0].cancelled = true;
	a = ask(&rig, 13);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_AFTER);
	ck_assert_uint_eq(a.lack, DHS_LACK_HOST_ROWS);
	ck_assert_uint_eq(a.host_rows_needed, 16);
	ck_assert_uint_eq(a.host_rows_free, 12);
	ck_assert_uint_eq(a.host_rows_draining, 48);
	ck_code(create(&rig, 13, &session), DHS_ERR_PENDING);
	ck_assert_uint_eq(ask(&rig, 12).verdict, DHS_ADMISSION_YES);
	turn_write(&turn);
	turn_end(&turn);
	ck_assert_uint_eq(ask(&rig, 13).verdict, DHS_ADMISSION_YES);
	ck_good(create(&rig, 13, &session));
	rig_sync(&rig);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Of several things that lack the host's is told first, then sessions, then pages. */
START_TEST(test_no)
{
	struct rig rig;
	dhs_session session;
	dhs_admission a;

	rig_default(&rig);
	rig.options.device_pages = 2 * REQUIRED + 4;
	rig.options.host_rows = 100;
	rig.options.max_sessions = 3;
	rig_open(&rig);
	ck_good(create(&rig, 0, &session));
	ck_good(create(&rig, 0, &session));
	a = ask(&rig, 101);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_NO);
	ck_assert_uint_eq(a.lack, DHS_LACK_HOST_ROWS);
	ck_code(create(&rig, 101, &session), DHS_ERR_HOST_MEMORY);
	a = ask(&rig, 100);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_NO);
	ck_assert_uint_eq(a.lack, DHS_LACK_PAGES);
	ck_code(create(&rig, 100, &session), DHS_ERR_DEVICE_MEMORY);
	rig_close(&rig);

	rig_default(&rig);
	rig.options.max_sessions = 1;
	rig.options.device_pages = REQUIRED;
	rig.options.host_rows = 100;
	rig_open(&rig);
	ck_good(create(&rig, 50, &session));
	a = ask(&rig, 50);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_NO);
	ck_assert_uint_eq(a.lack, DHS_LACK_HOST_ROWS);
	a = ask(&rig, 48);
	ck_assert_uint_eq(a.lack, DHS_LACK_SESSIONS);
	ck_assert_uint_eq(a.sessions_free, 0);
	ck_code(create(&rig, 48, &session), DHS_ERR_DEVICE_MEMORY);
	rig_close(&rig);
}
END_TEST

/* Pages on their way to a session are called off before one is taken from anybody. */
START_TEST(test_coming)
{
	struct rig rig;
	struct history history;
	dhs_session session;
	dhs_admission a;

	rig_default(&rig);
	rig.options.device_pages = REQUIRED + 9 + 2;
	rig.options.flags |= DHS_CONTEXT_REFILL;
	rig.options.link_bytes = UINT64_MAX;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 40);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	ck_good(dhs_context_advance(rig.context));
	a = ask(&rig, 0);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_YES);
	ck_assert_uint_eq(a.pages_free, 2);
	ck_assert_uint_eq(a.pages_coming, 9);
	ck_assert_uint_eq(rig_stats(&rig).pages_coming, 9);
	ck_good(create(&rig, 0, &session));
	ck_assert_uint_eq(rig_stats(&rig).evicted_pages, 9);
	ck_assert_uint_eq(rig_stats(&rig).pages_coming, 0);
	rig_close(&rig);
}
END_TEST

/* Under full the reserve is pages, and the host does not matter. */
START_TEST(test_full)
{
	struct rig rig;
	dhs_session session;
	dhs_admission a;

	rig_default(&rig);
	rig.options.policy = DHS_POLICY_FULL;
	rig.options.host_rows = 0;
	rig_open(&rig);
	a = ask(&rig, 250);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_YES);
	ck_assert_uint_eq(a.host_rows_needed, 0);
	ck_assert_uint_eq(a.pages_needed, 63);
	ck_good(create(&rig, 250, &session));
	ck_assert_uint_eq(ask(&rig, 4).verdict, DHS_ADMISSION_YES);
	a = ask(&rig, 5);
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_NO);
	ck_assert_uint_eq(a.lack, DHS_LACK_PAGES);
	ck_assert_uint_eq(ask(&rig, 0).pages_needed, 0);
	rig_close(&rig);
}
END_TEST

/* ---- nobody starves --------------------------------------------------------- */

#define GUESTS 4

/* Two sessions that have reserved all that they will ever have, and guests that come and go
 * and reserve nothing. */
struct house {
	struct rig rig;
	struct dice dice;
	struct history host[2];
	struct history guest[GUESTS];
	struct table table;
	int32_t pages[32];
	dhs_fence fences[32];
	size_t taken;
};

static void house_open(struct house *h, uint64_t seed, uint32_t variant)
{
	memset(h, 0, sizeof(*h));
	h->dice.state = seed;
	rig_default(&h->rig);
	h->rig.seed = seed;
	h->rig.engine_pool = true;
	h->rig.options.max_sessions = 2 + GUESTS;
	h->rig.options.device_pages = 1 + 4 * REQUIRED + 12 + 20; /* the last: staging */
	h->rig.options.host_rows = 2 * 256 + 200;
	h->rig.options.policy = variant == 3 ? DHS_POLICY_FIXED : DHS_POLICY_ADAPTIVE;
	h->rig.options.backup = variant == 3 ? DHS_BACKUP_EAGER : DHS_BACKUP_EAGER + variant;
	rig_open(&h->rig);
	for (uint32_t i = 0; i < 2; i++) {
		history_open(&h->rig, &h->host[i]);
		ck_good(dhs_session_destroy(h->rig.context, h->host[i].id));
		ck_good(create(&h->rig, 256, &h->host[i].id));
	}
	table_open(&h->rig, &h->table, 2, 2, 16); /* its staging is the worst case's */
}

static uint32_t guest_room(const struct history *g)
{
	return 256 - (uint32_t)g->rows;
}

static void guest_comes(struct house *h, struct history *g)
{
	dhs_session session;

	if (create(&h->rig, 0, &session))
		return;
	if (!g->stamp)
		g->stamp = rig_keep(&h->rig, 257 * sizeof(*g->stamp));
	g->id = session;
	g->rows = g->settled = 0;
}

/* A prefill that may be refused; its rows are never read. */
static void guest_grows(struct house *h, struct history *g)
{
	uint32_t rows = dice_below(&h->dice, guest_room(g) + 1);
	int32_t slots[256];

	if (!rows || dhs_session_extend(h->rig.context, g->id, rows, h->rig.stream, slots))
		return;
	ck_good(dhs_session_commit(h->rig.context, g->id, rows, h->rig.stream));
	g->rows = g->settled = g->rows + rows;
}

static void guest_acts(struct house *h)
{
	struct history *g = &h->guest[dice_below(&h->dice, GUESTS)];

	if (!g->id) {
		guest_comes(h, g);
		return;
	}
	switch (dice_below(&h->dice, 5)) {
	case 0:
		ck_good(dhs_session_destroy(h->rig.context, g->id));
		g->id = 0;
		break;
	case 1:
		ck_good(dhs_session_evict(h->rig.context, g->id, NULL));
		break;
	default:
		guest_grows(h, g);
		break;
	}
}

/* The engine takes what it can get, or gives it back. */
static void engine_acts(struct house *h)
{
	if (h->taken) {
		for (size_t i = 0; i < h->taken; i++)
			ck_good(dhs_fence_sync(h->rig.context, h->fences[i]));
		ck_good(dhs_lend_pages(h->rig.context, h->pages, h->taken, h->rig.stream));
		h->taken = 0;
		return;
	}
	ck_good(
		dhs_take_pages(h->rig.context, dice_below(&h->dice, 33), h->pages, h->fences, &h->taken));
}

/* Both go on: by a step, or by a prefill of what can always be had. */
static void hosts_act(struct house *h)
{
	struct history *first = &h->host[dice_below(&h->dice, 2)];
	struct turn turn;

	if (first->rows == 256)
		history_truncate(&h->rig, first, dice_below(&h->dice, 256));
	if (dice_below(&h->dice, 2)) {
		history_prefill(&h->rig, first,
		                dice_below(&h->dice, 2) ? 1
		                : guest_room(first) > 4 ? 4
		                                        : guest_room(first));
		return;
	}
	turn_open(&turn, &h->table);
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t rows = guest_room(&h->host[i]) < 2 ? 0 : 2;

		turn_add(&turn, &h->host[i], rows, 2, dice_below(&h->dice, rows + 1));
	}
	turn_begin(&turn);
	turn_write(&turn);
	for (uint32_t n = dice_below(&h->dice, 3); n; n--)
		guest_acts(h);
	turn_resolve_all(&turn, turn_wild(&turn, &h->dice));
	turn_end(&turn);
}

START_TEST(test_not_starved)
{
	struct house h;

	house_open(&h, 1 + (uint64_t)_i, (uint32_t)_i % 4);
	for (uint32_t i = 0; i < support_times(300); i++) {
		switch (dice_below(&h.dice, 8)) {
		case 0:
			engine_acts(&h);
			break;
		case 1:
			ck_good(dhs_context_advance(h.rig.context));
			break;
		case 2:
			hosts_act(&h);
			break;
		default:
			guest_acts(&h);
			break;
		}
	}
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_uint_ge(rig_info(&h.rig, h.host[i].id).host_rows, 256);
		history_verify(&h.table, &h.host[i]);
	}
	rig_sync(&h.rig);
	ck_good(dhs_context_wait(h.rig.context));
	table_close(&h.table);
	rig_close(&h.rig);
}
END_TEST

/* What is reserved can be prefilled to the last row in pieces of 2 x max_new_rows, with every
 * other page of the pool required by others or the engine's; a larger piece may be refused. */
START_TEST(test_reserve_to_the_end)
{
	struct rig rig;
	dhs_session session[3];
	int32_t slots[256], pages[64];
	dhs_fence fences[64];
	size_t taken;

	rig_default(&rig);
	rig.engine_pool = true;
	rig_open(&rig);
	ck_good(create(&rig, 256, &session[0]));
	ck_good(create(&rig, 0, &session[1]));
	ck_good(dhs_take_pages(rig.context, 64, pages, fences, &taken));
	ck_assert_uint_eq(taken, 63 - 2 * REQUIRED);
	ck_code(dhs_session_extend(rig.context, session[0], 16, rig.stream, slots),
	        DHS_ERR_DEVICE_MEMORY);
	for (uint32_t row = 0; row < 256; row += 4) {
		ck_good(dhs_session_extend(rig.context, session[0], 4, rig.stream, slots));
		ck_good(dhs_session_commit(rig.context, session[0], 4, rig.stream));
	}
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("admission");
	TCase *verdicts = tcase_create("verdicts"), *starved = tcase_create("nobody starves");

	tcase_add_test(verdicts, test_yes);
	tcase_add_loop_test(verdicts, test_after_eviction, 0, 2);
	tcase_add_loop_test(verdicts, test_after_two_evictions, 0, 2);
	tcase_add_test(verdicts, test_after_draining);
	tcase_add_test(verdicts, test_after_host_rows);
	tcase_add_test(verdicts, test_no);
	tcase_add_test(verdicts, test_coming);
	tcase_add_test(verdicts, test_full);
	suite_add_tcase(suite, verdicts);
	tcase_set_timeout(starved, support_seconds(30));
	tcase_add_loop_test(starved, test_not_starved, 0, 40);
	tcase_add_test(starved, test_reserve_to_the_end);
	suite_add_tcase(suite, starved);
	return support_run(suite);
}
