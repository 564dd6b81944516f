/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Computed bytes are the bytes asked of the allocator, by kind, for all shapes;
 * and all of it comes back. */
#include "support.h"

static uint32_t pages_for(uint64_t rows, uint32_t page_rows)
{
	return (uint32_t)((rows + page_rows - 1) / page_rows);
}

/* The granule of memory that is mapped: whole ones of it hold so many bytes. */
#define WINDOW (UINT64_C(2) << 20)

static uint64_t mapped(uint64_t bytes)
{
	return (bytes + WINDOW - 1) / WINDOW * WINDOW;
}

static uint32_t most_layers(const struct rig *rig)
{
	uint32_t most = 1;

	for (uint32_t g = 0; g < rig->layout.groups; g++)
		most = rig->group_layers[g] > most ? rig->group_layers[g] : most;
	return most;
}

static uint64_t page_stride(const struct rig *rig)
{
	uint64_t stride = rig->segment[0].page_stride;

	return stride ? stride : rig_row_bytes(rig) * rig_page_rows(rig);
}

static uint64_t pool_bytes(const struct rig *rig)
{
	uint64_t bytes = page_stride(rig) * rig->options.device_pages;

	return (rig_stages_behind(rig) ? mapped(bytes) : bytes) * rig->layout.layers;
}

/* Bytes that a layer has behind its pages at least. */
static uint64_t promised_behind(const struct rig *rig)
{
	const dhs_context_options *o = &rig->options;
	uint64_t rows = o->max_rows < 32768 ? o->max_rows : 32768;

	rows = o->max_staging_rows ? o->max_staging_rows : 2 * rows * o->max_sessions;
	return mapped((rows / rig_page_rows(rig) + 2) * page_stride(rig));
}

/* What the allocator is asked for of a context's device memory, and of a batch's: the
 * rest is mapped. */
static uint64_t context_asks(const struct rig *rig, const dhs_required *r)
{
	return r->device_bytes - (rig_stages_behind(rig) ? r->pool_bytes : 0);
}

static uint64_t batch_asks(const dhs_required *r)
{
	return r->device_bytes - r->staging_bytes;
}

/* ---- random shapes -------------------------------------------------------- */

static void roll_groups(struct rig *rig, struct dice *dice)
{
	rig->layout.layers = 0;
	rig->layout.groups = dice_below(dice, 6);
	rig->layout.group_layers = rig->layout.groups != 0 ? rig->group_layers : NULL;
	for (uint32_t g = 0; g < rig->layout.groups; g++)
		rig->layout.layers += rig->group_layers[g] = 1 + dice_below(dice, 5);
	if (rig->layout.groups == 0)
		rig->layout.layers = 1 + dice_below(dice, 9);
}

static void roll_segments(struct rig *rig, struct dice *dice)
{
	uint32_t page_rows = rig_page_rows(rig), pad = 4 * dice_below(dice, 20);
	bool packed = dice_below(dice, 2) == 0;
	uint64_t offset = 0;

	rig->layout.segments = 1 + dice_below(dice, 4);
	memset(rig->segment, 0, sizeof(rig->segment));
	for (uint32_t g = 0; g < rig->layout.segments; g++) {
		rig->segment[g].bytes = 16 + 4 * dice_below(dice, 200);
		rig->segment[g].offset = packed ? 0 : offset;
		offset += (uint64_t)rig->segment[g].bytes * page_rows + pad;
	}
	for (uint32_t g = 0; !packed && g < rig->layout.segments; g++)
		rig->segment[g].page_stride = offset;
}

static void roll_options(struct rig *rig, struct dice *dice)
{
	static const uint32_t rows[] = { 1, 2, 3, 4, 7, 8, 16, 31, 64, 65 };
	dhs_context_options *o = &rig->options;

	rig_default(rig);
	rig_stage(rig, dice_below(dice, 2) == 0);
	rig->seed = dice_below(dice, 3);
	rig->layout.page_rows = rows[dice_below(dice, COUNT_OF(rows))];
	roll_groups(rig, dice);
	roll_segments(rig, dice);
	o->policy = dice_below(dice, 4);
	o->backup = o->policy < 2 ? dice_below(dice, 4) : 0;
	o->max_sessions = 1 + dice_below(dice, 20);
	o->max_rows = 1 + dice_below(dice, 3000);
	o->max_new_rows = 1 + dice_below(dice, 10);
	o->hot_rows = 1 + dice_below(dice, 200);
	o->tail_rows = dice_below(dice, 70);
	o->flags |= dice_below(dice, 2) * DHS_CONTEXT_TAIL_ROWS;
	o->max_staging_rows =
		rig_stages_behind(rig) ? dice_below(dice, 2) * dice_below(dice, 10000) : 0;
	o->host_rows = o->policy == DHS_POLICY_FULL ? 0 : 1 + dice_below(dice, 2000);
	rig->engine_pool = dice_below(dice, 4) == 0;
	o->reserved_pages = rig->engine_pool ? 0 : dice_below(dice, 4);
	if (rig->engine_pool) {
		o->max_staging_rows = 0;
		o->flags &= ~(uint32_t)DHS_CONTEXT_POOL_STAGING;
	}
	o->device_pages = o->reserved_pages + pages_for(o->hot_rows, rig->layout.page_rows) +
	                  pages_for(o->tail_rows + (o->tail_rows == 0 ? 64 : 0) + 2 * o->max_new_rows,
	                            rig->layout.page_rows) +
	                  2 + dice_below(dice, 40);
}

/* The parts of it that the header fixes. */
static void check_context_required(const struct rig *rig, const dhs_required *r)
{
	const dhs_context_options *o = &rig->options;
	uint32_t page_rows = rig_page_rows(rig);
	uint64_t tail = o->tail_rows != 0 || o->flags & DHS_CONTEXT_TAIL_ROWS ? o->tail_rows : 64;
	uint64_t row = rig_row_bytes(rig) * rig->layout.layers;

	ck_assert_uint_eq(r->size, sizeof(*r));
	ck_assert_uint_le(r->pool_bytes, r->device_bytes);
	ck_assert_uint_le(r->tier_bytes, r->host_bytes);
	ck_assert_uint_eq(r->session_pages, r->hot_pages + r->tail_pages);
	ck_assert_uint_eq(r->staging_pages + r->staging_rows + r->staging_bytes, 0);
	ck_assert_uint_eq(r->pool_bytes, rig->engine_pool ? 0 : pool_bytes(rig));
	if (o->policy == DHS_POLICY_FULL) {
		ck_assert_uint_eq(r->session_pages, 0);
		ck_assert_uint_eq(r->tier_bytes, 0);
		return;
	}
	ck_assert_uint_eq(r->tier_bytes, row * page_rows * pages_for(o->host_rows, page_rows));
	ck_assert_uint_eq(r->hot_pages, pages_for(o->hot_rows, page_rows));
	ck_assert_uint_eq(r->tail_pages, pages_for(tail + 2 * o->max_new_rows, page_rows) + 1);
}

/* Pages of the pool, or bytes behind it: that many pages, and room for one to begin in. */
static void check_staging_required(const struct rig *rig, const dhs_required *r, uint32_t buffers)
{
	uint32_t pages = pages_for((uint64_t)r->staging_rows * buffers, rig_page_rows(rig));
	uint64_t bytes = pages ? mapped((pages + UINT64_C(1)) * page_stride(rig)) : 0;

	if (rig_stages_behind(rig)) {
		ck_assert_uint_eq(r->staging_pages, 0);
		ck_assert_uint_eq(r->staging_bytes, bytes * most_layers(rig));
		return;
	}
	ck_assert_uint_eq(r->staging_bytes, 0);
	ck_assert_uint_eq(r->staging_pages, pages);
}

static void check_batch(struct rig *rig, struct dice *dice)
{
	const dhs_context_options *c = &rig->options;
	dhs_batch_options o = DHS_INIT(dhs_batch_options);
	dhs_required r = DHS_INIT(dhs_required);
	dhs_batch *batch = NULL;
	dhs_stats before = rig_stats(rig), after;
	uint64_t device = rig->memory.bytes[DHS_MEMORY_DEVICE];
	uint64_t host = rig->memory.bytes[DHS_MEMORY_HOST], most;
	int rc;

	o.max_sessions = dice_below(dice, c->max_sessions + 1);
	o.max_queries = dice_below(dice, 17);
	o.top_k = 1 + dice_below(dice, 60);
	o.staging_buffers = dice_below(dice, 4);
	if (dice_below(dice, 3) == 0) {
		o.flags = DHS_BATCH_STAGING_ROWS;
		o.staging_rows = dice_below(dice, 50);
	}
	ck_good(dhs_batch_required(&rig->options, &o, &r));
	most = (uint64_t)(o.max_queries ? o.max_queries : 1) * o.top_k;
	most = most < c->max_rows ? most : c->max_rows;
	most = most > c->hot_rows ? most - c->hot_rows : 0;
	most *= o.max_sessions != 0 ? o.max_sessions : c->max_sessions;
	if (o.flags != 0 || c->policy == DHS_POLICY_FULL)
		most = o.staging_rows;
	if (c->policy != DHS_POLICY_FULL)
		ck_assert_uint_eq(r.staging_rows, most);
	check_staging_required(rig, &r, o.staging_buffers ? o.staging_buffers : 1);
	ck_assert_uint_eq(r.pool_bytes + r.tier_bytes + r.session_pages, 0);
	rc = dhs_batch_create(rig->context, &o, &batch);
	if (r.staging_pages > before.pages_free ||
	    (rc != 0 && r.staging_bytes > promised_behind(rig) * most_layers(rig))) {
		ck_assert_int_eq(rc, DHS_ERR_DEVICE_MEMORY);
	} else {
		ck_assert_int_eq(rc, 0);
		after = rig_stats(rig);
		ck_assert_uint_eq(rig->memory.bytes[DHS_MEMORY_DEVICE], device + batch_asks(&r));
		ck_assert_uint_eq(rig->memory.bytes[DHS_MEMORY_HOST], host + r.host_bytes);
		ck_assert_uint_eq(after.staging_bytes, before.staging_bytes + r.staging_bytes);
		ck_assert_uint_eq(after.pages_staging, before.pages_staging + r.staging_pages);
		ck_assert_uint_eq(after.batches, before.batches + 1);
		ck_good(dhs_batch_destroy(batch));
	}
	ck_assert_uint_eq(rig->memory.bytes[DHS_MEMORY_DEVICE], device);
	ck_assert_uint_eq(rig->memory.bytes[DHS_MEMORY_HOST], host);
	after = rig_stats(rig);
	ck_assert_uint_eq(after.pages_free + after.pages_draining, before.pages_free);
	ck_assert_uint_eq(after.staging_bytes, before.staging_bytes);
}

static void check_shape(struct rig *rig, struct dice *dice)
{
	dhs_required required = DHS_INIT(dhs_required);
	uint64_t control;

	if (rig->engine_pool)
		rig->options.pool = rig_keep(rig, sizeof(void *)); /* set again by rig_open */
	rig_open(rig);
	ck_good(dhs_context_required(&rig->options, &required));
	check_context_required(rig, &required);
	ck_assert_uint_eq(rig->memory.bytes[DHS_MEMORY_DEVICE], context_asks(rig, &required));
	ck_assert_uint_eq(rig->memory.bytes[DHS_MEMORY_HOST], required.host_bytes);
	check_batch(rig, dice);
	control = rig->memory.bytes[DHS_MEMORY_CONTROL];
	for (uint32_t i = 0; i < 8; i++)
		check_batch(rig, dice);
	/* Records of work are kept for the next; nothing that grows with each batch. */
	ck_assert_uint_le(rig->memory.bytes[DHS_MEMORY_CONTROL], control + 128);
	rig_close(rig);
}

START_TEST(test_random_shapes)
{
	struct dice dice = { (uint64_t)_i * 1000 };

	for (uint32_t i = 0; i < support_times(60); i++) {
		struct rig rig;

		roll_options(&rig, &dice);
		check_shape(&rig, &dice);
	}
}
END_TEST

/* Required says it without allocating, whatever the size. */
START_TEST(test_required_allocates_nothing)
{
	struct rig rig;
	dhs_required required = DHS_INIT(dhs_required);

	rig_default(&rig);
	rig.layout.page_rows = 64;
	rig.layout.layers = 61;
	rig.layout.groups = 0;
	rig.layout.group_layers = NULL;
	rig.segment[0].bytes = 656;
	rig.options.max_sessions = 64;
	rig.options.max_rows = 131072;
	rig.options.hot_rows = 4096;
	rig.options.tail_rows = 64;
	rig.options.device_pages = 20000;
	rig.options.host_rows = UINT64_C(64) * 131072;
	memory_arm(&rig.memory, 0, false);
	ck_good(dhs_context_required(&rig.options, &required));
	ck_assert_uint_eq(rig.memory.asked, 0);
	ck_assert_uint_eq(required.pool_bytes, pool_bytes(&rig));
	ck_assert_uint_ge(required.pool_bytes, UINT64_C(20000) * 64 * 656 * 61);
	ck_assert_uint_lt(required.pool_bytes, (UINT64_C(20000) * 64 * 656 + WINDOW) * 61);
	ck_assert_uint_eq(required.tier_bytes, UINT64_C(64) * 131072 * 656 * 61);
	ck_assert_uint_eq(required.hot_pages, 64);
	ck_assert_uint_eq(required.tail_pages, 3);
	/* Tables are small beside what they tell of. */
	ck_assert_uint_lt(required.device_bytes - required.pool_bytes, required.pool_bytes / 20);
}
END_TEST

/* What a pool must hold can be asked before it is sized. */
START_TEST(test_before_sizing)
{
	struct rig rig;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_required unsized = DHS_INIT(dhs_required), sized = DHS_INIT(dhs_required);

	rig_default(&rig);
	rig.options.device_pages = 0;
	options.top_k = 20;
	ck_good(dhs_context_required(&rig.options, &unsized));
	ck_assert_uint_eq(unsized.session_pages, 5);
	ck_assert_uint_eq(unsized.pool_bytes, 0);
	rig.options.device_pages = unsized.session_pages;
	ck_good(dhs_context_required(&rig.options, &sized));
	ck_assert_uint_eq(sized.session_pages, 5);
	ck_assert_uint_eq(sized.pool_bytes, rig_stages_behind(&rig) ? 3 * WINDOW : 5 * 4 * 3 * 64);
	ck_assert_uint_eq(sized.tier_bytes, unsized.tier_bytes);
	ck_good(dhs_batch_required(&rig.options, &options, &sized));
	rig.options.device_pages = 0;
	ck_good(dhs_batch_required(&rig.options, &options, &unsized));
	ck_assert_mem_eq(&sized, &unsized, sizeof(sized));
	ck_assert_uint_eq(sized.staging_rows, 4 * (20 - 8));
}
END_TEST

/* The GLM-5.3 shape of the field: 78 layers, 21 groups. */
START_TEST(test_glm)
{
	struct rig rig;
	struct history history;
	struct table table;
	dhs_required required = DHS_INIT(dhs_required);

	rig_default(&rig);
	rig.layout.layers = 78;
	rig.layout.groups = 21;
	rig.group_layers[0] = rig.group_layers[1] = 1;
	for (uint32_t g = 2; g < 21; g++)
		rig.group_layers[g] = 4;
	rig.segment[0].bytes = 656;
	rig.layout.page_rows = 64;
	rig.options.max_rows = 2048;
	rig.options.hot_rows = 256;
	rig.options.tail_rows = 64;
	rig.options.host_rows = 2048;
	rig.options.device_pages = 24;
	rig.options.policy = DHS_POLICY_FIXED;
	ck_good(dhs_context_required(&rig.options, &required));
	rig_open(&rig);
	ck_assert_uint_eq(rig.memory.bytes[DHS_MEMORY_DEVICE], context_asks(&rig, &required));
	ck_assert_uint_eq(rig.memory.bytes[DHS_MEMORY_HOST], required.host_bytes);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 700);
	table_open(&rig, &table, 1, 2, 128);
	history_verify(&table, &history);
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Nothing that a context does later takes device or host memory. */
START_TEST(test_nothing_later)
{
	struct rig rig;
	struct history history[4];
	struct table table;
	struct dice dice = { 4 };
	uint64_t device, host;

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig_open(&rig);
	table_open(&rig, &table, 4, 2, 8);
	device = rig.memory.bytes[DHS_MEMORY_DEVICE];
	host = rig.memory.bytes[DHS_MEMORY_HOST];
	for (uint32_t i = 0; i < 4; i++)
		history_open(&rig, &history[i]);
	for (uint32_t i = 0; i < 20; i++) {
		struct turn turn;

		history_prefill(&rig, &history[i % 4], dice_below(&dice, 20));
		ck_good(dhs_session_evict(rig.context, history[(i + 1) % 4].id, NULL));
		turn_open(&turn, &table);
		for (uint32_t e = 0; e < 4; e++)
			turn_add(&turn, &history[e], 2, 2, 1);
		turn_begin(&turn);
		turn_write(&turn);
		turn_resolve_all(&turn, turn_wild(&turn, &dice));
		turn_end(&turn);
		ck_assert_uint_eq(rig.memory.bytes[DHS_MEMORY_DEVICE], device);
		ck_assert_uint_eq(rig.memory.bytes[DHS_MEMORY_HOST], host);
	}
	rig_sync(&rig);
	ck_good(dhs_context_wait(rig.context));
	table_close(&table);
	rig_close(&rig);
}
END_TEST

/* Destroyed with all in use: batches, sessions, an open step. */
START_TEST(test_destroy_all)
{
	struct rig rig;
	struct history history[3];
	struct table table[2];
	struct turn turn;

	rig_default(&rig);
	rig.seed = (uint64_t)_i;
	rig_open(&rig);
	table_open(&rig, &table[0], 4, 2, 8);
	table_open(&rig, &table[1], 4, 2, 8);
	turn_open(&turn, &table[0]);
	for (uint32_t i = 0; i < 3; i++) {
		history_open(&rig, &history[i]);
		history_prefill(&rig, &history[i], 30);
		turn_add(&turn, &history[i], 1, 1, 1);
	}
	turn_begin(&turn);
	turn_write(&turn);
	rig_close(&rig);
}
END_TEST

/* ---- budgets -------------------------------------------------------------- */

struct plan {
	struct rig rig;
	dhs_batch_options batch;
	const dhs_batch_options *batches[1];
	dhs_budget budget;
	dhs_budget_result result;
};

static void roll_plan(struct plan *p, struct dice *dice)
{
	memset(p, 0, sizeof(*p));
	roll_options(&p->rig, dice);
	p->rig.options.device_pages = 0;
	p->rig.options.host_rows = 0;
	p->batch = (dhs_batch_options)DHS_INIT(dhs_batch_options);
	p->batch.max_queries = 1 + dice_below(dice, 4);
	p->batch.top_k = 1 + dice_below(dice, 100);
	p->batches[0] = &p->batch;
	p->budget = (dhs_budget)DHS_INIT(dhs_budget);
	p->budget.batches = 1;
	p->budget.batch = p->batches;
	p->budget.row_bytes = dice_below(dice, 2) * dice_below(dice, 3000);
	p->budget.session_bytes = dice_below(dice, 2) * dice_below(dice, 100000);
	p->budget.rows = 1 + dice_below(dice, p->rig.options.max_rows);
	p->budget.device_bytes = 1 + dice_next(dice) % (UINT64_C(1) << (16 + dice_below(dice, 18)));
	p->result = (dhs_budget_result)DHS_INIT(dhs_budget_result);
}

static int ask_budget(const struct plan *p, dhs_budget_result *result)
{
	*result = (dhs_budget_result)DHS_INIT(dhs_budget_result);
	return dhs_pool_budget(&p->rig.options, &p->budget, result);
}

/* Bytes of the device that a context of these pages takes with its batch and the engine's. */
static uint64_t all_bytes(const struct plan *p, const dhs_budget_result *r, uint32_t pages)
{
	dhs_context_options o = p->rig.options;
	dhs_required context = DHS_INIT(dhs_required), batch = DHS_INIT(dhs_required);
	uint64_t bytes = r->sessions * (p->budget.rows * p->budget.row_bytes + p->budget.session_bytes);

	o.device_pages = o.pool ? 0 : pages;
	o.host_rows = r->host_rows;
	ck_good(dhs_context_required(&o, &context));
	ck_good(dhs_batch_required(&o, &p->batch, &batch));
	ck_assert_uint_eq(r->engine_bytes, bytes);
	ck_assert_uint_eq(r->context_bytes, context.device_bytes - context.pool_bytes);
	ck_assert_uint_eq(r->batch_bytes, batch.device_bytes);
	if (o.pool)
		context.pool_bytes = (uint64_t)pages * rig_page_rows(&p->rig) * rig_row_bytes(&p->rig) *
		                     p->rig.layout.layers;
	return bytes + r->context_bytes + r->batch_bytes + context.pool_bytes;
}

/* The pages that are told fit to the byte, and one more page does not. */
static void check_plan(const struct plan *p, const dhs_budget_result *r)
{
	uint64_t bytes = all_bytes(p, r, r->device_pages);

	ck_assert_uint_le(bytes, p->budget.device_bytes);
	ck_assert_uint_eq(r->left_bytes, p->budget.device_bytes - bytes);
	ck_assert_uint_gt(all_bytes(p, r, r->device_pages + 1), p->budget.device_bytes);
	ck_assert_uint_ge(r->sessions, 1);
	ck_assert_uint_le(r->sessions, p->rig.options.max_sessions);
	ck_assert_uint_le(r->whole_sessions, r->sessions);
}

START_TEST(test_random_budgets)
{
	struct dice dice = { 77 + (uint64_t)_i };
	void *somewhere = NULL;
	uint32_t fit = 0;

	for (uint32_t i = 0; i < support_times(300); i++) {
		dhs_budget_result fewer;
		struct plan p;
		int rc;

		roll_plan(&p, &dice);
		if (p.rig.engine_pool)
			p.rig.options.pool = &somewhere;
		rc = ask_budget(&p, &p.result);
		if (rc) {
			ck_assert_int_eq(rc, DHS_ERR_DEVICE_MEMORY);
			continue;
		}
		fit++;
		check_plan(&p, &p.result);
		/* One session more is one too many, and so many can be asked for. */
		p.budget.sessions = p.result.sessions + 1;
		ck_code(ask_budget(&p, &fewer), p.result.sessions == p.rig.options.max_sessions
		                                    ? DHS_ERR_ARGUMENT
		                                    : DHS_ERR_DEVICE_MEMORY);
		p.budget.sessions = 1 + dice_below(&dice, p.result.sessions);
		ck_good(ask_budget(&p, &fewer));
		ck_assert_uint_eq(fewer.sessions, p.budget.sessions);
		check_plan(&p, &fewer);
		rig_forget(&p.rig);
	}
	ck_assert_uint_gt(fit, support_times(300) / 10);
}
END_TEST

/* As many sessions as are told can be created, and as many of them be whole. */
static void live_by(struct plan *p)
{
	struct rig *rig = &p->rig;
	dhs_session_options o = DHS_INIT(dhs_session_options);
	struct history history[20];
	dhs_batch *batch;

	rig->options.device_pages = p->result.device_pages;
	rig->options.host_rows = p->result.host_rows;
	rig_open(rig);
	ck_good(dhs_batch_create(rig->context, &p->batch, &batch));
	o.reserve_rows = p->budget.rows;
	for (uint32_t i = 0; i < p->result.sessions; i++) {
		history[i] = (struct history){ .stamp = rig_keep(rig, 4 * (p->budget.rows + 1)) };
		ck_good(dhs_session_create(rig->context, &o, &history[i].id));
	}
	for (uint32_t i = 0; i < p->result.whole_sessions; i++)
		for (uint64_t left = p->budget.rows, n; left; left -= n) {
			n = left < rig->options.max_new_rows ? left : rig->options.max_new_rows;
			history_prefill(rig, &history[i], (uint32_t)n);
		}
	ck_assert_uint_eq(rig_stats(rig).evicted_pages, 0);
	for (uint32_t i = 0; i < p->result.whole_sessions; i++)
		ck_assert_uint_eq(rig_info(rig, history[i].id).host_only_rows, 0);
	rig_sync(rig);
	ck_good(dhs_context_wait(rig->context));
	ck_good(dhs_batch_destroy(batch));
	rig_close(rig);
}

START_TEST(test_live_by_budget)
{
	struct dice dice = { 7 + (uint64_t)_i };

	for (uint32_t i = 0, lived = 0; lived < 3 && i < 100; i++) {
		struct plan p;

		roll_plan(&p, &dice);
		if (p.rig.engine_pool || p.rig.options.max_rows > 600)
			continue;
		if (ask_budget(&p, &p.result) || p.result.device_pages > 20000)
			continue;
		live_by(&p);
		lived++;
	}
}
END_TEST

/* What does not fit is told with its numbers, the host's first. */
START_TEST(test_no_budget)
{
	struct plan p;
	struct dice dice = { 1 };

	roll_plan(&p, &dice);
	rig_default(&p.rig);
	p.rig.options.device_pages = 0;
	p.budget.rows = 200;
	p.budget.row_bytes = 1000;
	p.budget.session_bytes = 0;
	p.budget.device_bytes = 150000;
	ck_told(ask_budget(&p, &p.result), DHS_ERR_DEVICE_MEMORY, "150000", "200000");
	p.rig.options.host_rows = 199;
	ck_told(ask_budget(&p, &p.result), DHS_ERR_HOST_MEMORY, "199", "200");
	p.rig.options.host_rows = 500;
	p.budget.device_bytes = UINT64_C(1) << 30;
	ck_good(ask_budget(&p, &p.result));
	ck_assert_uint_eq(p.result.sessions, 2);
	ck_assert_uint_eq(p.result.whole_sessions, 2);
	ck_assert_uint_eq(p.result.host_rows, 500);
	p.budget.sessions = 3;
	ck_told(ask_budget(&p, &p.result), DHS_ERR_HOST_MEMORY, "500", "600");
}
END_TEST

static void add_budgets(Suite *suite)
{
	TCase *budgets = tcase_create("budgets");

	tcase_set_timeout(budgets, support_seconds(60));
	tcase_add_loop_test(budgets, test_random_budgets, 0, 3);
	tcase_add_loop_test(budgets, test_live_by_budget, 0, 10);
	tcase_add_test(budgets, test_no_budget);
	suite_add_tcase(suite, budgets);
}

static void add_cases(Suite *suite, bool in_pool)
{
	TCase *bytes = support_case("bytes", in_pool);

	tcase_set_timeout(bytes, support_seconds(60));
	if (!in_pool) /* of both kinds */
		tcase_add_loop_test(bytes, test_random_shapes, 0, 10);
	tcase_add_test(bytes, test_required_allocates_nothing);
	tcase_add_test(bytes, test_before_sizing);
	tcase_add_test(bytes, test_glm);
	tcase_add_loop_test(bytes, test_nothing_later, 0, 3);
	tcase_add_loop_test(bytes, test_destroy_all, 0, 3);
	suite_add_tcase(suite, bytes);
}

int main(void)
{
	Suite *suite = suite_create("calculators");

	support_both(suite, add_cases);
	add_budgets(suite);
	return support_run(suite);
}
