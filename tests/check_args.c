/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Bad input: each argument of each call.  A code, words that name the argument
 * and the limit, and nothing changed. */
#include "support.h"

#define ANY_ERROR 1 /* a code that is not fixed; never 0 */

static void check_code(const char *what, int rc, int code)
{
	if (code == ANY_ERROR)
		ck_assert_msg(rc < 0, "%s: %d", what, rc);
	else
		ck_assert_msg(rc == code, "%s: %d, not %d; %s", what, rc, code, dhs_last_error());
}

/* ---- context options ------------------------------------------------------ */

struct spoiled {
	const char *what;
	void (*spoil)(struct rig *rig);
	int code;
	const char *word, *limit;
	bool create_only; /* the calculator accepts it */
};

/* clang-format off */
#define SPOIL(name, statement) static void spoil_##name(struct rig *r) { statement; }
#define BAD(name, code, word, limit) { #name, spoil_##name, code, word, limit, false }
/* clang-format on */

SPOIL(size_0, r->options.size = 0)
SPOIL(size_4, r->options.size = 4)
SPOIL(size_small, r->options.size -= 8)
SPOIL(flags, r->options.flags = 1 << 20)
SPOIL(device, r->options.device = 1)
SPOIL(flags_high, r->options.flags = 0x80000001)
SPOIL(backend, r->options.backend = 77)
SPOIL(policy, r->options.policy = 4)
SPOIL(policy_high, r->options.policy = UINT32_MAX)
SPOIL(backup, r->options.backup = 4)
SPOIL(max_sessions, r->options.max_sessions = 65537)
SPOIL(max_sessions_high, r->options.max_sessions = UINT32_MAX)
SPOIL(max_rows_0, r->options.max_rows = 0)
SPOIL(max_rows, r->options.max_rows = (1u << 30) + 1)
SPOIL(max_rows_high, r->options.max_rows = UINT32_MAX)
SPOIL(max_new_rows, r->options.max_new_rows = 65537)
SPOIL(max_new_rows_high, r->options.max_new_rows = UINT32_MAX)
SPOIL(hot_rows, r->options.hot_rows = 32768)
SPOIL(hot_rows_high, r->options.hot_rows = UINT32_MAX)
SPOIL(tail_high, r->options.tail_rows = UINT32_MAX)
SPOIL(tail_wraps, r->options.tail_rows = UINT32_MAX - 3)
SPOIL(tail_room, r->options.tail_rows = 64 * 4)
SPOIL(device_pages_0, r->options.device_pages = 0)
SPOIL(device_pages_few, r->options.device_pages = 4)
SPOIL(device_pages_slots, r->options.device_pages = (1u << 29) + 1)
SPOIL(device_pages_high, r->options.device_pages = UINT32_MAX)
SPOIL(reserved_all, r->options.reserved_pages = 64)
SPOIL(reserved_most, r->options.reserved_pages = 60)
SPOIL(reserved_high, r->options.reserved_pages = UINT32_MAX)
SPOIL(host_rows_0, r->options.host_rows = 0)
SPOIL(host_rows_high, r->options.host_rows = UINT64_MAX)
SPOIL(host_rows_wraps, r->options.host_rows = UINT64_MAX / 64)
SPOIL(host_rows_full, r->options.policy = DHS_POLICY_FULL)
SPOIL(refill_low, r->options.refill_low = 7; r->options.refill_high = 6)
SPOIL(refill_low_high, r->options.refill_low = UINT32_MAX; r->options.refill_high = 1)
SPOIL(refill_high, r->options.refill_high = 4)
SPOIL(tick_us, r->options.tick_us = 99)
SPOIL(tick_us_high, r->options.tick_us = 60000001)
SPOIL(max_hot_small, r->options.max_hot_rows = r->options.hot_rows - 1)
SPOIL(max_hot_large, r->options.max_hot_rows = 32768)
SPOIL(max_hot_fixed, r->options.policy = DHS_POLICY_FIXED;
      r->options.max_hot_rows = r->options.hot_rows + 1)
SPOIL(no_history_fixed, r->options.policy = DHS_POLICY_FIXED;
      r->options.flags = DHS_CONTEXT_NO_HISTORY)
SPOIL(reclaim, r->options.reclaim = 3)
SPOIL(partial_full, r->options.reclaim = 2; r->options.policy = DHS_POLICY_FULL;
      r->options.host_rows = 0)
SPOIL(whole_fixed, r->options.reclaim = 1; r->options.policy = DHS_POLICY_FIXED)
SPOIL(reserved, r->options.reserved = 1)
SPOIL(layout, r->options.layout = NULL)

static void spoil_refill_zero(struct rig *r)
{
	r->options.flags |= DHS_CONTEXT_REFILL;
	r->options.refill_low = 1;
}

static void spoil_reclaim_fixed(struct rig *r)
{
	r->options.policy = DHS_POLICY_FIXED;
	r->options.backup = DHS_BACKUP_RECLAIM;
}

static void spoil_reclaim_full(struct rig *r)
{
	r->options.policy = DHS_POLICY_FULL;
	r->options.host_rows = 0;
	r->options.backup = DHS_BACKUP_RECLAIM;
}

static void spoil_background_fixed(struct rig *r)
{
	r->options.policy = DHS_POLICY_FIXED;
	r->options.backup = DHS_BACKUP_BACKGROUND;
}

static void spoil_full_no_pages(struct rig *r)
{
	r->options.policy = DHS_POLICY_FULL;
	r->options.host_rows = 0;
	r->options.device_pages = 0;
}

static const struct spoiled spoiled_options[] = {
	BAD(size_0, DHS_ERR_ARGUMENT, "size", NULL),
	BAD(size_4, DHS_ERR_ARGUMENT, "size", NULL),
	BAD(size_small, DHS_ERR_ARGUMENT, "size", "144"),
	BAD(flags, DHS_ERR_ARGUMENT, "flags", NULL),
	BAD(device, DHS_ERR_ARGUMENT, "device", "DHS_CONTEXT_DEVICE"),
	BAD(flags_high, DHS_ERR_ARGUMENT, "flags", NULL),
	BAD(backend, ANY_ERROR, "backend", NULL),
	BAD(policy, DHS_ERR_ARGUMENT, "policy", NULL),
	BAD(policy_high, DHS_ERR_ARGUMENT, "policy", NULL),
	BAD(backup, DHS_ERR_ARGUMENT, "backup", NULL),
	BAD(reclaim_fixed, DHS_ERR_UNSUPPORTED, "backup", NULL),
	BAD(reclaim_full, DHS_ERR_UNSUPPORTED, "backup", NULL),
	BAD(background_fixed, DHS_ERR_UNSUPPORTED, "backup", "BACKGROUND"),
	BAD(max_sessions, DHS_ERR_ARGUMENT, "max_sessions", "65536"),
	BAD(max_sessions_high, DHS_ERR_ARGUMENT, "max_sessions", "65536"),
	BAD(max_rows_0, DHS_ERR_ARGUMENT, "max_rows", "1073741824"),
	BAD(max_rows, DHS_ERR_ARGUMENT, "max_rows", "1073741824"),
	BAD(max_rows_high, DHS_ERR_ARGUMENT, "max_rows", "1073741824"),
	BAD(max_new_rows, DHS_ERR_ARGUMENT, "max_new_rows", "65536"),
	BAD(max_new_rows_high, DHS_ERR_ARGUMENT, "max_new_rows", "65536"),
	BAD(hot_rows, DHS_ERR_ARGUMENT, "hot_rows", "32767"),
	BAD(hot_rows_high, DHS_ERR_ARGUMENT, "hot_rows", "32767"),
	BAD(tail_high, DHS_ERR_ARGUMENT, "tail_rows", "1073741824"),
	BAD(tail_wraps, DHS_ERR_ARGUMENT, "tail_rows", "1073741824"),
	BAD(tail_room, DHS_ERR_DEVICE_MEMORY, "device_pages", "64"),
	{ "no pages", spoil_device_pages_0, DHS_ERR_ARGUMENT, "device_pages", "1", true },
	BAD(device_pages_few, DHS_ERR_DEVICE_MEMORY, "device_pages", "4"),
	BAD(device_pages_slots, DHS_ERR_ARGUMENT, "device_pages", "536870911"),
	BAD(device_pages_high, DHS_ERR_ARGUMENT, "device_pages", "536870911"),
	BAD(reserved_all, DHS_ERR_ARGUMENT, "reserved_pages", NULL),
	BAD(reserved_most, DHS_ERR_DEVICE_MEMORY, "device_pages", "4"),
	BAD(reserved_high, DHS_ERR_ARGUMENT, "reserved_pages", NULL),
	BAD(host_rows_0, DHS_ERR_HOST_MEMORY, "host_rows", NULL),
	BAD(host_rows_high, ANY_ERROR, "host_rows", NULL),
	BAD(host_rows_wraps, ANY_ERROR, "host_rows", NULL),
	BAD(host_rows_full, DHS_ERR_ARGUMENT, "host_rows", NULL),
	{ "full, no pages", spoil_full_no_pages, DHS_ERR_ARGUMENT, "device_pages", "1", true },
	BAD(refill_low, DHS_ERR_ARGUMENT, "refill_high", "7"),
	BAD(refill_low_high, DHS_ERR_ARGUMENT, "refill_high", "4294967295"),
	BAD(refill_high, DHS_ERR_ARGUMENT, "refill_high", "5"), /* refill_low is a session's pages */
	BAD(refill_zero, DHS_ERR_ARGUMENT, "refill_high", "1"),
	BAD(tick_us, DHS_ERR_ARGUMENT, "tick_us", "100"),
	BAD(tick_us_high, DHS_ERR_ARGUMENT, "tick_us", "60000000"),
	BAD(max_hot_small, DHS_ERR_ARGUMENT, "max_hot_rows", NULL),
	BAD(max_hot_large, DHS_ERR_ARGUMENT, "max_hot_rows", "32767"),
	BAD(max_hot_fixed, DHS_ERR_ARGUMENT, "max_hot_rows", NULL),
	BAD(no_history_fixed, DHS_ERR_UNSUPPORTED, "DHS_CONTEXT_NO_HISTORY", NULL),
	BAD(reclaim, DHS_ERR_ARGUMENT, "reclaim", "2"),
	BAD(partial_full, DHS_ERR_UNSUPPORTED, "reclaim", "PARTIAL"),
	BAD(whole_fixed, DHS_ERR_UNSUPPORTED, "reclaim", "WHOLE"),
	BAD(reserved, DHS_ERR_ARGUMENT, "reserved", "0"),
	BAD(layout, DHS_ERR_ARGUMENT, "layout", NULL),
};

SPOIL(layout_size_0, r->layout.size = 0)
SPOIL(layout_size_small, r->layout.size -= 4)
SPOIL(layout_flags, r->layout.flags = 1)
SPOIL(layers_0, r->layout.layers = 0)
SPOIL(group_null, r->layout.group_layers = NULL)
SPOIL(group_0, (r->group_layers[0] = 0, r->group_layers[1] = 3))
SPOIL(group_last_0, (r->group_layers[0] = 3, r->group_layers[1] = 0))
SPOIL(group_few, r->group_layers[1] = 1)
SPOIL(group_many, r->group_layers[1] = 3)
SPOIL(group_wraps, (r->group_layers[0] = UINT32_MAX, r->group_layers[1] = 4))
SPOIL(groups_many, r->layout.groups = 4)
SPOIL(groups_high, r->layout.groups = UINT32_MAX)
SPOIL(segments_0, r->layout.segments = 0)
SPOIL(segments_9, r->layout.segments = 9)
SPOIL(segments_high, r->layout.segments = UINT32_MAX)
SPOIL(segment_null, r->layout.segment = NULL)
SPOIL(segment_size_0, r->layout.segment_size = 0)
SPOIL(segment_size_16, r->layout.segment_size = 16)
SPOIL(segment_size_31, r->layout.segment_size = 31)
SPOIL(page_rows, r->layout.page_rows = 65537)
SPOIL(page_rows_high, r->layout.page_rows = UINT32_MAX)
SPOIL(bytes_0, r->segment[0].bytes = 0)
SPOIL(bytes_2, r->segment[0].bytes = 66)
SPOIL(bytes_1, r->segment[0].bytes = 65)
SPOIL(bytes_12, r->segment[0].bytes = 12)
SPOIL(bytes_many, r->segment[0].bytes = 16388)
SPOIL(bytes_high, r->segment[0].bytes = UINT32_MAX - 3)
SPOIL(segment_flags, r->segment[0].flags = 1)
SPOIL(offset_packed, r->segment[0].offset = 64)
SPOIL(layers_high, r->layout.layers = UINT32_MAX)
SPOIL(layers_many, (r->layout.groups = 0, r->layout.group_layers = NULL, r->layout.layers = 4097))
SPOIL(groups_none, r->layout.groups = 0)

static const struct spoiled spoiled_layouts[] = {
	BAD(layout_size_0, DHS_ERR_ARGUMENT, "layout", "size"),
	BAD(layout_size_small, DHS_ERR_ARGUMENT, "layout", "48"),
	BAD(layout_flags, DHS_ERR_ARGUMENT, "layout", "flags"),
	BAD(layers_0, DHS_ERR_ARGUMENT, "layers", NULL),
	BAD(group_null, DHS_ERR_ARGUMENT, "group_layers", NULL),
	BAD(group_0, DHS_ERR_ARGUMENT, "group_layers[0]", NULL),
	BAD(group_last_0, DHS_ERR_ARGUMENT, "group_layers[1]", NULL),
	BAD(group_few, DHS_ERR_ARGUMENT, "group_layers", "3"),
	BAD(group_many, DHS_ERR_ARGUMENT, "group_layers", "3"),
	BAD(group_wraps, DHS_ERR_ARGUMENT, "group_layers", "3"),
	BAD(groups_many, DHS_ERR_ARGUMENT, "group", "3"),
	BAD(groups_high, DHS_ERR_ARGUMENT, "group", "3"),
	BAD(segments_0, DHS_ERR_ARGUMENT, "segments", "8"),
	BAD(segments_9, DHS_ERR_ARGUMENT, "segments", "8"),
	BAD(segments_high, DHS_ERR_ARGUMENT, "segments", "8"),
	BAD(segment_null, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(segment_size_0, DHS_ERR_ARGUMENT, "segment_size", "32"),
	BAD(segment_size_16, DHS_ERR_ARGUMENT, "segment_size", "32"),
	BAD(segment_size_31, DHS_ERR_ARGUMENT, "segment_size", "32"),
	BAD(page_rows, DHS_ERR_ARGUMENT, "page_rows", "65536"),
	BAD(page_rows_high, DHS_ERR_ARGUMENT, "page_rows", "65536"),
	BAD(bytes_0, DHS_ERR_ARGUMENT, "bytes", NULL),
	BAD(bytes_1, DHS_ERR_ARGUMENT, "bytes", "4"),
	BAD(bytes_2, DHS_ERR_ARGUMENT, "bytes", "4"),
	BAD(bytes_12, DHS_ERR_ARGUMENT, "bytes", "16"),
	BAD(bytes_many, DHS_ERR_ARGUMENT, "bytes", "16384"),
	BAD(bytes_high, DHS_ERR_ARGUMENT, "bytes", "16384"),
	BAD(segment_flags, DHS_ERR_ARGUMENT, "flags", NULL),
	BAD(offset_packed, DHS_ERR_ARGUMENT, "offset", NULL),
	BAD(layers_high, DHS_ERR_ARGUMENT, "layers", "4096"),
	BAD(layers_many, DHS_ERR_ARGUMENT, "layers", "4096"),
	BAD(groups_none, DHS_ERR_ARGUMENT, "group_layers", NULL),
};

/* Two segments of 32 bytes with strides of their own. */
static void place_segments(struct rig *r, uint64_t offset, uint64_t row, uint64_t page0,
                           uint64_t page1)
{
	r->layout.segments = 2;
	r->segment[0] = (dhs_segment){ 32, 0, 0, row, page0 };
	r->segment[1] = (dhs_segment){ 32, 0, offset, row, page1 };
}

/* Of the library's pool a page lies within one stride. */
SPOIL(planes, place_segments(r, 64 * 128, 0, 128, 128))
SPOIL(same_place, place_segments(r, 0, 0, 256, 256))
SPOIL(overlap_word, place_segments(r, 124, 0, 256, 256))
SPOIL(overlap_next_page, place_segments(r, 192, 0, 256, 256))
SPOIL(overlap_last_page, place_segments(r, 64 * 128 - 4, 0, 128, 128))
SPOIL(overlap_strides, place_segments(r, 128, 0, 256, 128))
SPOIL(overlap_rows, place_segments(r, 28, 64, 256, 256))
SPOIL(overlap_rows_end, place_segments(r, 36, 64, 256, 256))
SPOIL(row_stride_short, place_segments(r, 8192, 28, 128, 128))
SPOIL(page_stride_short, place_segments(r, 8192, 0, 124, 128))
SPOIL(page_stride_of_one, place_segments(r, 8192, 0, 128, 0))
SPOIL(page_stride_of_other, place_segments(r, 8192, 0, 0, 128))
SPOIL(offset_odd, place_segments(r, 8194, 0, 128, 128))
SPOIL(row_stride_odd, place_segments(r, 8192, 33, 132, 132))
SPOIL(page_stride_odd, place_segments(r, 8320, 0, 130, 130))
SPOIL(offset_high, place_segments(r, UINT64_MAX - 3, 0, 128, 128))
SPOIL(offset_wraps, place_segments(r, UINT64_MAX - 64 * 128 + 5, 0, 128, 128))
SPOIL(row_stride_high, place_segments(r, 32, UINT64_C(1) << 62, 256, 256))
SPOIL(row_stride_wraps, place_segments(r, 32, (UINT64_C(1) << 62) + 64, 256, 256))
SPOIL(page_stride_high, place_segments(r, 128, 0, UINT64_C(1) << 63, UINT64_C(1) << 63))
SPOIL(page_stride_wraps,
      place_segments(r, 128, 0, (UINT64_C(1) << 58) + 256, (UINT64_C(1) << 58) + 256))

static const struct spoiled spoiled_segments[] = {
	BAD(planes, DHS_ERR_ARGUMENT, "page_stride", "8320"),
	BAD(same_place, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(overlap_word, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(overlap_next_page, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(overlap_last_page, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(overlap_strides, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(overlap_rows, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(overlap_rows_end, DHS_ERR_ARGUMENT, "segment", NULL),
	BAD(row_stride_short, DHS_ERR_ARGUMENT, "row_stride", "32"),
	BAD(page_stride_short, DHS_ERR_ARGUMENT, "page_stride", NULL),
	BAD(page_stride_of_one, DHS_ERR_ARGUMENT, "page_stride", NULL),
	BAD(page_stride_of_other, DHS_ERR_ARGUMENT, "page_stride", NULL),
	BAD(offset_odd, DHS_ERR_ARGUMENT, "offset", "4"),
	BAD(row_stride_odd, DHS_ERR_ARGUMENT, "row_stride", "4"),
	BAD(page_stride_odd, DHS_ERR_ARGUMENT, "page_stride", "4"),
	BAD(offset_high, ANY_ERROR, NULL, NULL),
	BAD(offset_wraps, ANY_ERROR, NULL, NULL),
	BAD(row_stride_high, ANY_ERROR, NULL, NULL),
	BAD(row_stride_wraps, ANY_ERROR, NULL, NULL),
	BAD(page_stride_high, ANY_ERROR, NULL, NULL),
	BAD(page_stride_wraps, ANY_ERROR, NULL, NULL),
};

static void *allocates_nothing(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	(void)arg, (void)kind, (void)bytes, (void)align;
	return NULL;
}

SPOIL(allocator_size, r->memory.allocator.size = 0)
SPOIL(allocator_size_small, r->memory.allocator.size = 24)
SPOIL(allocator_flags, r->memory.allocator.flags = 2)
SPOIL(allocator_alloc, r->memory.allocator.alloc = NULL)
SPOIL(allocator_free, r->memory.allocator.free = NULL)

static const struct spoiled spoiled_allocators[] = {
	BAD(allocator_size, DHS_ERR_ARGUMENT, "allocator", "size"),
	BAD(allocator_size_small, DHS_ERR_ARGUMENT, "allocator", "32"),
	BAD(allocator_flags, DHS_ERR_ARGUMENT, "allocator", "flags"),
	BAD(allocator_alloc, DHS_ERR_ARGUMENT, "alloc", NULL),
	BAD(allocator_free, DHS_ERR_ARGUMENT, "free", NULL),
};

/* The calculators say what creating says, and write nothing. */
static void refuses_required(struct rig *rig, const struct spoiled *s)
{
	dhs_batch_options batch = DHS_INIT(dhs_batch_options);
	dhs_required required, before;

	batch.top_k = 8;
	memset(&required, 0xc3, sizeof(required));
	required.size = sizeof(required);
	before = required;
	check_code(s->what, dhs_context_required(&rig->options, &required), s->code);
	support_said(s->what, s->word, s->limit);
	ck_assert_mem_eq(&required, &before, sizeof(required));
	if (s->code == DHS_ERR_DEVICE_MEMORY || s->code == DHS_ERR_HOST_MEMORY)
		return; /* no room for a session: no matter to a batch's calculator */
	check_code(s->what, dhs_batch_required(&rig->options, &batch, &required), s->code);
	support_said(s->what, s->word, s->limit);
	ck_assert_mem_eq(&required, &before, sizeof(required));
}

/* All calls refuse these options; nothing is allocated or written. */
static void refuses_options(struct rig *rig, const struct spoiled *s)
{
	dhs_context *context = (dhs_context *)rig;

	if (!s->create_only)
		refuses_required(rig, s);
	check_code(s->what, dhs_context_create(&rig->options, &context), s->code);
	support_said(s->what, s->word, s->limit);
	ck_assert_ptr_eq(context, (dhs_context *)rig);
	ck_assert_uint_eq(memory_live(&rig->memory), 0);
}

static void check_spoiled(const struct spoiled *spoiled, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct rig rig;
		uint64_t live;

		rig_default(&rig);
		rig_open_host(&rig);
		live = memory_live(&rig.host_memory);
		spoiled[i].spoil(&rig);
		refuses_options(&rig, &spoiled[i]);
		ck_assert_uint_eq(memory_live(&rig.host_memory), live);
		rig_close(&rig);
	}
}

START_TEST(test_options)
{
	check_spoiled(spoiled_options, COUNT_OF(spoiled_options));
}
END_TEST

START_TEST(test_layouts)
{
	check_spoiled(spoiled_layouts, COUNT_OF(spoiled_layouts));
}
END_TEST

START_TEST(test_segments)
{
	check_spoiled(spoiled_segments, COUNT_OF(spoiled_segments));
}
END_TEST

START_TEST(test_allocators)
{
	check_spoiled(spoiled_allocators, COUNT_OF(spoiled_allocators));
}
END_TEST

START_TEST(test_no_memory_at_all)
{
	struct rig rig;
	dhs_context *context = NULL;

	rig_default(&rig);
	rig_open_host(&rig);
	rig.memory.allocator.alloc = allocates_nothing;
	ck_code(dhs_context_create(&rig.options, &context), DHS_ERR_HOST_MEMORY);
	ck_assert_ptr_null(context);
	rig_close(&rig);
}
END_TEST

/* ---- layouts that are legal ----------------------------------------------- */

SPOIL(rows_interleaved, place_segments(r, 32, 64, 256, 256))
SPOIL(scales_at_end, place_segments(r, 128, 0, 256, 256))
SPOIL(gaps, place_segments(r, 512, 64, 1024, 1024))
SPOIL(packed, place_segments(r, 0, 0, 0, 0))
SPOIL(groups_0, (r->layout.groups = 0, r->layout.group_layers = NULL))
/* Addresses behind so many layers are a terabyte, which valgrind does not have. */
SPOIL(most_layers,
      (r->layout.groups = 1, r->layout.layers = r->group_layers[0] = 4096, rig_stage(r, false)))
SPOIL(page_rows_1, r->layout.page_rows = 1)
SPOIL(page_rows_0, (r->layout.page_rows = 0, r->options.device_pages = 24))
SPOIL(tokens, r->layout.tokens_per_row = UINT32_MAX)
SPOIL(least_row, r->segment[0].bytes = 16)
SPOIL(most_row, r->segment[0].bytes = 16384)

static void (*const legal[])(struct rig *rig) = {
	spoil_rows_interleaved, spoil_scales_at_end, spoil_gaps,        spoil_packed,
	spoil_groups_0,         spoil_page_rows_1,   spoil_page_rows_0, spoil_most_layers,
	spoil_tokens,           spoil_least_row,     spoil_most_row,
};

START_TEST(test_legal_layouts)
{
	struct rig rig;

	rig_default(&rig);
	legal[_i](&rig);
	rig_open(&rig);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

START_TEST(test_least_budget)
{
	struct rig rig;
	struct history history;

	rig_default(&rig);
	rig.options.device_pages = 5;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 4);
	history_close(&rig, &history);
	rig_close(&rig);
}
END_TEST

/* ---- the engine's pool ---------------------------------------------------- */

#define POOL_BYTES (64 * 4 * 64) /* of one layer: pages, rows, bytes */

static void engine_open(struct rig *rig, unsigned char *memory, const uint64_t at[3])
{
	rig_default(rig);
	rig_open_host(rig);
	rig->pool = rig_keep(rig, 3 * sizeof(void *));
	for (uint32_t l = 0; l < 3; l++)
		rig->pool[l] = memory + at[l];
	rig_use_pool(rig, rig->pool);
}

struct pool_case {
	const char *what;
	uint64_t row_stride, page_stride;
	uint64_t at[3];
	bool legal;
};

static const struct pool_case pool_cases[] = {
	{ "apart", 0, 256, { 0, POOL_BYTES, 2 * POOL_BYTES }, true },
	{ "packed by the library", 0, 0, { 0, POOL_BYTES, 2 * POOL_BYTES }, true },
	{ "backwards", 0, 256, { 2 * POOL_BYTES, POOL_BYTES, 0 }, true },
	{ "page by page", 0, 768, { 0, 256, 512 }, true },
	{ "row by row", 192, 768, { 0, 64, 128 }, true },
	{ "one base", 0, 256, { 0, 0, 0 }, false },
	{ "one base, packed", 0, 0, { 0, 0, 0 }, false },
	{ "two of one base", 0, 256, { 0, POOL_BYTES, 0 }, false },
	{ "last word", 0, 256, { 0, POOL_BYTES - 4, 2 * POOL_BYTES }, false },
	{ "last word, packed", 0, 0, { 0, POOL_BYTES, 2 * POOL_BYTES - 4 }, false },
	{ "page by page, a word", 0, 768, { 0, 252, 512 }, false },
	{ "page by page, the next", 0, 768, { 0, 256, 516 }, false },
	{ "row by row, a word", 192, 768, { 0, 60, 128 }, false },
	{ "row by row, the next", 192, 768, { 0, 64, 132 }, false },
	{ "pages too near", 0, 512, { 0, 256, 512 }, false },
};

static void refuses_pool(struct rig *rig, const char *what, const char *limit)
{
	struct spoiled s = { what, NULL, DHS_ERR_ARGUMENT, "pool", limit, false };

	refuses_options(rig, &s);
}

START_TEST(test_engine_pool)
{
	const struct pool_case *c = &pool_cases[_i];
	unsigned char *memory = calloc(4, POOL_BYTES);
	struct rig rig;

	engine_open(&rig, memory, c->at);
	rig.segment[0].row_stride = c->row_stride;
	rig.segment[0].page_stride = c->page_stride;
	if (!c->legal)
		refuses_pool(&rig, c->what, NULL);
	else
		ck_good(dhs_context_create(&rig.options, &rig.context));
	rig_close(&rig);
	free(memory);
}
END_TEST

START_TEST(test_engine_pool_bases)
{
	static const uint64_t apart[3] = { 0, POOL_BYTES, 2 * POOL_BYTES };
	unsigned char *memory = calloc(4, POOL_BYTES);
	struct rig rig;

	engine_open(&rig, memory, apart);
	rig.pool[1] = NULL;
	refuses_pool(&rig, "NULL base", NULL);
	rig.pool[1] = memory + POOL_BYTES + 2;
	refuses_pool(&rig, "odd base", "4");
	rig.pool[1] = memory + POOL_BYTES + 1;
	refuses_pool(&rig, "odd base", "4");
	rig.pool[1] = (void *)(UINTPTR_MAX - 15);
	refuses_pool(&rig, "high base", NULL);
	rig.pool[1] = memory + POOL_BYTES;
	rig.options.reserved_pages = 1;
	refuses_options(&rig, &(struct spoiled){ "reserved", NULL, DHS_ERR_ARGUMENT, "reserved_pages",
	                                         NULL, false });
	rig_close(&rig);
	free(memory);
}
END_TEST

/* ---- a struct of a newer version ------------------------------------------ */

#define NEWER 24

/* A copy of a struct with `NEWER` bytes behind it, all zero or one of them not. */
static void *newer(struct rig *rig, const void *from, size_t bytes, uint32_t odd)
{
	unsigned char *copy = rig_keep(rig, bytes + NEWER);
	uint32_t size = (uint32_t)bytes + NEWER;

	memcpy(copy, from, bytes);
	memcpy(copy, &size, sizeof(size));
	if (odd < NEWER)
		copy[bytes + odd] = 1;
	return copy;
}

static void newer_options(struct rig *rig, const dhs_context_options *options, int code,
                          const char *word)
{
	dhs_required required = DHS_INIT(dhs_required);
	dhs_context *context = NULL;

	if (code != 0) {
		ck_told(dhs_context_required(options, &required), code, word, NULL);
		ck_told(dhs_context_create(options, &context), code, word, NULL);
		ck_assert_ptr_null(context);
		ck_assert_uint_eq(memory_live(&rig->memory), 0);
		return;
	}
	ck_good(dhs_context_required(options, &required));
	ck_good(dhs_context_create(options, &context));
	dhs_context_destroy(context);
}

START_TEST(test_newer_options)
{
	static const uint32_t odd[] = { 0, 7, NEWER - 1, NEWER };
	struct rig rig;

	rig_default(&rig);
	rig_open_host(&rig);
	for (uint32_t i = 0; i < COUNT_OF(odd); i++) {
		int code = odd[i] < NEWER ? DHS_ERR_VERSION : 0;

		newer_options(&rig, newer(&rig, &rig.options, sizeof(rig.options), odd[i]), code,
		              "options");
		rig.options.layout = newer(&rig, &rig.layout, sizeof(rig.layout), odd[i]);
		newer_options(&rig, &rig.options, code, "layout");
		rig.options.layout = &rig.layout;
		rig.options.allocator = newer(&rig, &rig.memory.allocator, sizeof(dhs_allocator), odd[i]);
		newer_options(&rig, &rig.options, code, "allocator");
		rig.options.allocator = &rig.memory.allocator;
	}
	rig_close(&rig);
}
END_TEST

START_TEST(test_newer_segments)
{
	struct rig rig;
	unsigned char *segments;

	rig_default(&rig);
	rig_open_host(&rig);
	place_segments(&rig, 128, 0, 256, 256);
	segments = rig_keep(&rig, 2 * (sizeof(dhs_segment) + NEWER));
	memcpy(segments, &rig.segment[0], sizeof(dhs_segment));
	memcpy(segments + sizeof(dhs_segment) + NEWER, &rig.segment[1], sizeof(dhs_segment));
	rig.layout.segment = (const dhs_segment *)segments;
	rig.layout.segment_size = sizeof(dhs_segment) + NEWER;
	newer_options(&rig, &rig.options, 0, NULL);
	segments[2 * (sizeof(dhs_segment) + NEWER) - 1] = 1;
	newer_options(&rig, &rig.options, DHS_ERR_VERSION, "segment");
	rig_close(&rig);
}
END_TEST

/* ---- a context that works, and all that can be wrong beside it ------------ */

struct world {
	struct rig rig, other;
	struct history live, busy, foreign;
	dhs_session dead;
	struct table table, busy_table;
	struct turn turn; /* of busy, begun */
	dhs_stats stats;
	dhs_session_info info, busy_info;
	uint64_t bytes;
};

static void world_open(struct world *w)
{
	rig_default(&w->rig);
	rig_default(&w->other);
	rig_open(&w->rig);
	w->other.host = w->rig.host;
	w->other.shared_host = true;
	rig_open(&w->other);
	history_open(&w->rig, &w->live);
	history_open(&w->rig, &w->busy);
	w->dead = w->busy.id;
	history_close(&w->rig, &w->busy);
	history_open(&w->rig, &w->busy);
	history_open(&w->other, &w->foreign);
	history_prefill(&w->rig, &w->live, 21);
	history_prefill(&w->rig, &w->busy, 13);
	history_prefill(&w->other, &w->foreign, 9);
	table_open(&w->rig, &w->table, 2, 2, 8);
	table_open(&w->rig, &w->busy_table, 2, 2, 8);
	turn_open(&w->turn, &w->busy_table);
	turn_add(&w->turn, &w->busy, 2, 1, 1);
	turn_begin(&w->turn);
}

static void world_close(struct world *w)
{
	turn_write(&w->turn);
	turn_resolve_all(&w->turn, turn_blank(&w->turn));
	turn_end(&w->turn);
	history_verify(&w->table, &w->live);
	history_verify(&w->table, &w->busy);
	history_close(&w->rig, &w->live);
	history_close(&w->rig, &w->busy);
	history_close(&w->other, &w->foreign);
	rig_sync(&w->rig);
	ck_good(dhs_context_wait(w->rig.context));
	table_close(&w->table);
	table_close(&w->busy_table);
	rig_works(&w->rig);
	rig_works(&w->other);
	rig_sync(&w->other);
	dhs_context_destroy(w->other.context);
	w->other.context = NULL;
	rig_close(&w->other);
	rig_close(&w->rig);
}

static void world_keep(struct world *w)
{
	w->stats = rig_stats(&w->rig);
	w->info = rig_info(&w->rig, w->live.id);
	w->busy_info = rig_info(&w->rig, w->busy.id);
	w->bytes = memory_live(&w->rig.memory);
}

static void world_same(struct world *w, const char *what)
{
	dhs_stats stats = rig_stats(&w->rig);
	dhs_session_info info = rig_info(&w->rig, w->live.id);
	dhs_session_info busy_info = rig_info(&w->rig, w->busy.id);

	stats.refusals = w->stats.refusals;
	ck_assert_msg(memcmp(&stats, &w->stats, sizeof(stats)) == 0, "%s: stats changed", what);
	ck_assert_msg(memcmp(&info, &w->info, sizeof(info)) == 0, "%s: info changed", what);
	ck_assert_msg(memcmp(&busy_info, &w->busy_info, sizeof(info)) == 0, "%s: info changed", what);
	ck_assert_msg(memory_live(&w->rig.memory) == w->bytes, "%s: memory changed", what);
}

/* The call is refused so, in these words, and changes nothing. */
#define refused(w, call, code, word, limit)                                                        \
	do {                                                                                           \
		world_keep(w);                                                                             \
		check_code(#call, call, code);                                                             \
		support_said(#call, word, limit);                                                          \
		world_same(w, #call);                                                                      \
	} while (0)

START_TEST(test_world)
{
	struct world w;

	world_open(&w);
	world_keep(&w);
	world_same(&w, "nothing");
	world_close(&w);
}
END_TEST

START_TEST(test_context_calls)
{
	struct world w;
	dhs_required required = DHS_INIT(dhs_required);
	dhs_stats stats = DHS_INIT(dhs_stats);
	dhs_place place = DHS_INIT(dhs_place);
	static uint64_t blank[512]; /* no context, or no more */
	dhs_context *context = NULL;

	world_open(&w);
	refused(&w, dhs_context_required(NULL, &required), DHS_ERR_ARGUMENT, "options", NULL);
	refused(&w, dhs_context_required(&w.rig.options, NULL), DHS_ERR_ARGUMENT, "required", NULL);
	refused(&w, dhs_context_create(NULL, &context), DHS_ERR_ARGUMENT, "options", NULL);
	refused(&w, dhs_context_create(&w.rig.options, NULL), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_context_stats(NULL, &stats), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_context_stats(w.rig.context, NULL), DHS_ERR_ARGUMENT, "stats", NULL);
	refused(&w, dhs_context_wait(NULL), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_context_wait(w.rig.context), DHS_ERR_PENDING, NULL, NULL);
	refused(&w, dhs_context_advance(NULL), DHS_ERR_ARGUMENT, "context", "NULL");
	refused(&w, dhs_context_advance((dhs_context *)(void *)blank), DHS_ERR_ARGUMENT, "context",
	        "dead");
	refused(&w, dhs_context_place(NULL, 0, 0, &place), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_context_place(w.rig.context, 3, 0, &place), DHS_ERR_ARGUMENT, "layer", "3");
	refused(&w, dhs_context_place(w.rig.context, UINT32_MAX, 0, &place), DHS_ERR_ARGUMENT, "layer",
	        "3");
	refused(&w, dhs_context_place(w.rig.context, 0, 1, &place), DHS_ERR_ARGUMENT, "segment", "1");
	refused(&w, dhs_context_place(w.rig.context, 0, 0, NULL), DHS_ERR_ARGUMENT, "place", NULL);
	stats.size = 0;
	refused(&w, dhs_context_stats(w.rig.context, &stats), DHS_ERR_ARGUMENT, "size", NULL);
	place.size = 3;
	refused(&w, dhs_context_place(w.rig.context, 0, 0, &place), DHS_ERR_ARGUMENT, "size", NULL);
	ck_assert_ptr_null(context);
	ck_assert_ptr_null(place.base);
	dhs_context_destroy(NULL);
	world_close(&w);
}
END_TEST

START_TEST(test_pool_calls_library)
{
	struct world w;
	int32_t pages[2] = { 1, 2 };
	dhs_fence fences[2] = { 7, 7 };
	size_t taken = 99;

	world_open(&w);
	refused(&w, dhs_lend_pages(w.rig.context, pages, 2, w.rig.stream), DHS_ERR_UNSUPPORTED, "pool",
	        NULL);
	refused(&w, dhs_take_pages(w.rig.context, 2, pages, fences, &taken), DHS_ERR_UNSUPPORTED,
	        "pool", NULL);
	refused(&w, dhs_lend_pages(NULL, pages, 2, w.rig.stream), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_take_pages(NULL, 2, pages, fences, &taken), DHS_ERR_ARGUMENT, "context", NULL);
	ck_assert_int_eq(pages[0], 1);
	ck_assert_uint_eq(fences[0], 7);
	ck_assert_uint_eq(taken, 99);
	world_close(&w);
}
END_TEST

/* ---- lend and take -------------------------------------------------------- */

static void lend_refused(struct rig *rig, int32_t first, int32_t second, int32_t third,
                         const char *limit)
{
	int32_t pages[3] = { first, second, third };
	dhs_stats before = rig_stats(rig), after;

	ck_told(dhs_lend_pages(rig->context, pages, 3, rig->stream), DHS_ERR_ARGUMENT, "pages", limit);
	after = rig_stats(rig);
	ck_assert_mem_eq(&before, &after, sizeof(before));
}

/* A page of 1 .. 63 that is none of these. */
static int32_t lent_page(const int32_t *pages, uint32_t count)
{
	int32_t page = 1;

	for (uint32_t i = 0; i < count; i++)
		if (pages[i] == page) {
			page++;
			i = UINT32_MAX;
		}
	return page;
}

START_TEST(test_lend)
{
	struct rig rig;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken = 99;

	rig_default(&rig);
	rig.engine_pool = true;
	rig_open(&rig); /* lends 1 .. 63 */
	for (uint32_t i = 0; i < 10; i++)
		ck_good(dhs_take_pages(rig.context, 1, &pages[i], &fences[i], &taken));
	lend_refused(&rig, pages[0], pages[1], -1, "-1");
	lend_refused(&rig, pages[0], 64, pages[1], "64");
	lend_refused(&rig, INT32_MAX, pages[0], pages[1], "64");
	lend_refused(&rig, INT32_MIN, pages[0], pages[1], NULL);
	lend_refused(&rig, pages[0], pages[1], pages[0], NULL); /* twice in one call */
	lend_refused(&rig, pages[0], pages[1], lent_page(pages, 10), NULL);
	ck_told(dhs_lend_pages(rig.context, NULL, 1, rig.stream), DHS_ERR_ARGUMENT, "pages", NULL);
	ck_good(dhs_lend_pages(rig.context, NULL, 0, rig.stream));
	ck_good(dhs_lend_pages(rig.context, pages, 10, rig.stream));
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

START_TEST(test_take)
{
	struct rig rig;
	int32_t pages[64];
	dhs_fence fences[64];
	size_t taken = 99;
	dhs_stats before, after;

	rig_default(&rig);
	rig.engine_pool = true;
	rig_open(&rig);
	before = rig_stats(&rig);
	ck_told(dhs_take_pages(rig.context, 1, NULL, fences, &taken), DHS_ERR_ARGUMENT, "pages", NULL);
	ck_told(dhs_take_pages(rig.context, 1, pages, NULL, &taken), DHS_ERR_ARGUMENT, "fences", NULL);
	ck_told(dhs_take_pages(rig.context, 1, pages, fences, NULL), DHS_ERR_ARGUMENT, "taken", NULL);
	ck_assert_uint_eq(taken, 99);
	after = rig_stats(&rig);
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_good(dhs_take_pages(rig.context, 0, pages, fences, &taken));
	ck_assert_uint_eq(taken, 0);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

/* ---- session calls -------------------------------------------------------- */

static int call_extend(struct world *w, dhs_session session)
{
	int32_t slots[1];

	return dhs_session_extend(w->rig.context, session, 1, w->rig.stream, slots);
}

static int call_commit(struct world *w, dhs_session session)
{
	return dhs_session_commit(w->rig.context, session, 1, w->rig.stream);
}

static int call_truncate(struct world *w, dhs_session session)
{
	return dhs_session_truncate(w->rig.context, session, 0);
}

static int call_evict(struct world *w, dhs_session session)
{
	return dhs_session_evict(w->rig.context, session, NULL);
}

static int call_suspend(struct world *w, dhs_session session)
{
	return dhs_session_suspend(w->rig.context, session, NULL);
}

static int call_resume(struct world *w, dhs_session session)
{
	return dhs_session_resume(w->rig.context, session);
}

static int call_destroy(struct world *w, dhs_session session)
{
	return dhs_session_destroy(w->rig.context, session);
}

static int call_info(struct world *w, dhs_session session)
{
	dhs_session_info info = DHS_INIT(dhs_session_info);

	return dhs_session_get_info(w->rig.context, session, &info);
}

static int (*const session_calls[])(struct world *w, dhs_session session) = {
	call_extend,  call_commit, call_truncate, call_evict,
	call_suspend, call_resume, call_destroy,  call_info,
};

START_TEST(test_session_handles)
{
	struct world w;
	int (*call)(struct world *, dhs_session) = session_calls[_i];

	world_open(&w);
	refused(&w, call(&w, 0), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, call(&w, w.dead), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, call(&w, w.foreign.id), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, call(&w, w.turn.step), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, call(&w, UINT64_MAX), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, call(&w, 1), DHS_ERR_ARGUMENT, "session", NULL);
	for (uint32_t bit = 0; bit < 64; bit++)
		if ((w.live.id ^ UINT64_C(1) << bit) != w.busy.id)
			refused(&w, call(&w, w.live.id ^ UINT64_C(1) << bit), DHS_ERR_ARGUMENT, "session",
			        NULL);
	world_close(&w);
}
END_TEST

START_TEST(test_session_create)
{
	struct world w;
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_session session = 99;

	world_open(&w);
	refused(&w, dhs_session_create(NULL, NULL, &session), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_create(w.rig.context, NULL, NULL), DHS_ERR_ARGUMENT, "session", NULL);
	options.size = 0;
	refused(&w, dhs_session_create(w.rig.context, &options, &session), DHS_ERR_ARGUMENT, "size",
	        NULL);
	options.size = 8;
	refused(&w, dhs_session_create(w.rig.context, &options, &session), DHS_ERR_ARGUMENT, "size",
	        "16");
	options.size = sizeof(options);
	options.flags = 1;
	refused(&w, dhs_session_create(w.rig.context, &options, &session), DHS_ERR_ARGUMENT, "flags",
	        NULL);
	options.flags = 0;
	options.reserve_rows = 257;
	refused(&w, dhs_session_create(w.rig.context, &options, &session), DHS_ERR_ARGUMENT,
	        "reserve_rows", "256");
	options.reserve_rows = UINT64_MAX;
	refused(&w, dhs_session_create(w.rig.context, &options, &session), DHS_ERR_ARGUMENT,
	        "reserve_rows", "256");
	options.reserve_rows = UINT64_C(1) << 32;
	refused(&w, dhs_session_create(w.rig.context, &options, &session), DHS_ERR_ARGUMENT,
	        "reserve_rows", "256");
	options.reserve_rows = 0;
	refused(
		&w,
		dhs_session_create(w.rig.context, newer(&w.rig, &options, sizeof(options), 3), &session),
		DHS_ERR_VERSION, "options", NULL);
	ck_assert_uint_eq(session, 99);
	ck_good(dhs_session_create(w.rig.context, newer(&w.rig, &options, sizeof(options), NEWER),
	                           &session));
	ck_good(dhs_session_destroy(w.rig.context, session));
	world_close(&w);
}
END_TEST

/* dhs_pool_budget: what is refused, and which words it says. */
START_TEST(test_pool_budget)
{
	dhs_batch_options batch = DHS_INIT(dhs_batch_options);
	const dhs_batch_options *batches[] = { &batch };
	dhs_budget b = DHS_INIT(dhs_budget);
	dhs_budget_result r = { .size = sizeof(r), .sessions = 99 };
	dhs_context_options o;
	struct rig rig;

	rig_default(&rig);
	o = rig.options;
	b.device_bytes = UINT64_C(1) << 32;
	b.rows = 256;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "device_pages", "64");
	o.device_pages = 0;
	ck_told(dhs_pool_budget(NULL, &b, &r), DHS_ERR_ARGUMENT, "context", NULL);
	ck_told(dhs_pool_budget(&o, NULL, &r), DHS_ERR_ARGUMENT, "budget", NULL);
	ck_told(dhs_pool_budget(&o, &b, NULL), DHS_ERR_ARGUMENT, "result", NULL);
	b.size = 55;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "size", "56");
	b.size = sizeof(b);
	b.flags = 4;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "flags", NULL);
	b.flags = 0;
	b.rows = 257;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "rows", "256");
	b.rows = 0;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "rows", "256");
	b.rows = 256;
	b.sessions = 5;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "sessions", "4");
	b.sessions = 0;
	b.row_bytes = UINT64_C(1) << 32;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "row_bytes", "4294967295");
	b.row_bytes = 0;
	b.session_bytes = UINT64_MAX;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "session_bytes", NULL);
	b.session_bytes = 0;
	b.device_bytes = 0;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "device_bytes", NULL);
	b.device_bytes = UINT64_MAX;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "device_bytes", NULL);
	b.device_bytes = UINT64_C(1) << 32;
	b.batches = 1;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "batch", NULL);
	b.batch = batches;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "batch[0]", "top_k");
	batch.top_k = 4;
	o.max_rows = 0;
	ck_told(dhs_pool_budget(&o, &b, &r), DHS_ERR_ARGUMENT, "max_rows", NULL);
	o.max_rows = 256;
	ck_assert_uint_eq(r.sessions, 99);
	ck_good(dhs_pool_budget(&o, &b, &r));
	ck_assert_uint_eq(r.sessions, 4);
	rig_forget(&rig);
}
END_TEST

START_TEST(test_session_admission)
{
	struct world w;
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_admission a = { .size = sizeof(a), .verdict = 99 };

	world_open(&w);
	refused(&w, dhs_session_admission(NULL, NULL, &a), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_admission(w.rig.context, NULL, NULL), DHS_ERR_ARGUMENT, "admission",
	        NULL);
	options.size = 8;
	refused(&w, dhs_session_admission(w.rig.context, &options, &a), DHS_ERR_ARGUMENT, "size", "16");
	options.size = sizeof(options);
	options.flags = 1;
	refused(&w, dhs_session_admission(w.rig.context, &options, &a), DHS_ERR_ARGUMENT, "flags",
	        NULL);
	options.flags = 0;
	options.reserve_rows = 257;
	refused(&w, dhs_session_admission(w.rig.context, &options, &a), DHS_ERR_ARGUMENT,
	        "reserve_rows", "256");
	options.reserve_rows = 0;
	refused(&w,
	        dhs_session_admission(w.rig.context, newer(&w.rig, &options, sizeof(options), 3), &a),
	        DHS_ERR_VERSION, "options", NULL);
	a.size = 4;
	refused(&w, dhs_session_admission(w.rig.context, NULL, &a), DHS_ERR_ARGUMENT, "size", "8");
	a.size = sizeof(a);
	ck_assert_uint_eq(a.verdict, 99);
	ck_good(
		dhs_session_admission(w.rig.context, newer(&w.rig, &options, sizeof(options), NEWER), &a));
	ck_assert_uint_eq(a.verdict, DHS_ADMISSION_YES);
	world_close(&w);
}
END_TEST

START_TEST(test_session_room)
{
	struct world w;
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_session session[3] = { 0 }, more = 99;

	world_open(&w); /* two of four sessions; 36 of 1,024 host records */
	options.reserve_rows = 256;
	for (uint32_t i = 0; i < 2; i++)
		ck_good(dhs_session_create(w.rig.context, &options, &session[i]));
	refused(&w, dhs_session_create(w.rig.context, NULL, &more), DHS_ERR_DEVICE_MEMORY, "session",
	        "4");
	ck_assert_uint_eq(more, 99);
	for (uint32_t i = 0; i < 2; i++)
		ck_good(dhs_session_destroy(w.rig.context, session[i]));
	world_close(&w);
}
END_TEST

START_TEST(test_session_host_room)
{
	struct rig rig;
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_session session = 0, more = 99;
	dhs_stats before, after;

	rig_default(&rig);
	rig.options.host_rows = 300;
	rig_open(&rig);
	options.reserve_rows = 256;
	ck_good(dhs_session_create(rig.context, &options, &session));
	before = rig_stats(&rig);
	ck_told(dhs_session_create(rig.context, &options, &more), DHS_ERR_HOST_MEMORY, "reserve_rows",
	        "75");
	after = rig_stats(&rig);
	ck_assert_uint_eq(after.refusals, before.refusals + 1);
	after.refusals = before.refusals;
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert_uint_eq(more, 99);
	options.reserve_rows = 44;
	ck_good(dhs_session_create(rig.context, &options, &more));
	ck_good(dhs_session_destroy(rig.context, more));
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

START_TEST(test_extend)
{
	struct world w;
	int32_t slots[300];

	world_open(&w);
	memset(slots, 0x77, sizeof(slots));
	refused(&w, dhs_session_extend(NULL, w.live.id, 1, w.rig.stream, slots), DHS_ERR_ARGUMENT,
	        "context", NULL);
	refused(&w, dhs_session_extend(w.rig.context, w.live.id, 0, w.rig.stream, slots),
	        DHS_ERR_ARGUMENT, "rows", NULL);
	refused(&w, dhs_session_extend(w.rig.context, w.live.id, 236, w.rig.stream, slots),
	        DHS_ERR_ARGUMENT, "rows", "256");
	refused(&w, dhs_session_extend(w.rig.context, w.live.id, UINT32_MAX, w.rig.stream, slots),
	        DHS_ERR_ARGUMENT, "rows", "256");
	refused(&w, dhs_session_extend(w.rig.context, w.live.id, UINT32_MAX - 20, w.rig.stream, slots),
	        DHS_ERR_ARGUMENT, "rows", "256");
	refused(&w, dhs_session_extend(w.rig.context, w.live.id, 1, w.rig.stream, NULL),
	        DHS_ERR_ARGUMENT, "slots", NULL);
	refused(&w, dhs_session_extend(w.rig.context, w.busy.id, 1, w.rig.stream, slots), DHS_ERR_BUSY,
	        NULL, NULL);
	ck_good(dhs_session_extend(w.rig.context, w.live.id, 1, w.rig.stream, slots));
	refused(&w, dhs_session_extend(w.rig.context, w.live.id, 1, w.rig.stream, slots), DHS_ERR_ORDER,
	        NULL, NULL);
	ck_good(dhs_session_commit(w.rig.context, w.live.id, 0, w.rig.stream));
	for (uint32_t i = 1; i < COUNT_OF(slots); i++)
		ck_assert_int_eq(slots[i], 0x77777777);
	world_close(&w);
}
END_TEST

START_TEST(test_session_commit)
{
	struct world w;
	int32_t slots[4];

	world_open(&w);
	refused(&w, dhs_session_commit(NULL, w.live.id, 1, w.rig.stream), DHS_ERR_ARGUMENT, "context",
	        NULL);
	refused(&w, dhs_session_commit(w.rig.context, w.live.id, 1, w.rig.stream), DHS_ERR_ORDER, NULL,
	        NULL);
	refused(&w, dhs_session_commit(w.rig.context, w.live.id, 0, w.rig.stream), DHS_ERR_ORDER, NULL,
	        NULL);
	ck_good(dhs_session_extend(w.rig.context, w.live.id, 4, w.rig.stream, slots));
	refused(&w, dhs_session_commit(w.rig.context, w.live.id, 5, w.rig.stream), DHS_ERR_ARGUMENT,
	        "rows", "4");
	refused(&w, dhs_session_commit(w.rig.context, w.live.id, UINT32_MAX, w.rig.stream),
	        DHS_ERR_ARGUMENT, "rows", "4");
	refused(&w, dhs_session_commit(w.rig.context, w.live.id, 4, w.rig.side), DHS_ERR_ARGUMENT,
	        "stream", NULL);
	ck_good(dhs_session_truncate(w.rig.context, w.live.id, 21));
	refused(&w, dhs_session_commit(w.rig.context, w.live.id, 4, w.rig.stream), DHS_ERR_ORDER, NULL,
	        NULL);
	world_close(&w);
}
END_TEST

START_TEST(test_truncate)
{
	struct world w;

	world_open(&w);
	refused(&w, dhs_session_truncate(NULL, w.live.id, 1), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_truncate(w.rig.context, w.live.id, 22), DHS_ERR_ARGUMENT, "rows", "21");
	refused(&w, dhs_session_truncate(w.rig.context, w.live.id, UINT64_MAX), DHS_ERR_ARGUMENT,
	        "rows", "21");
	refused(&w, dhs_session_truncate(w.rig.context, w.live.id, (UINT64_C(1) << 32) + 1),
	        DHS_ERR_ARGUMENT, "rows", "21");
	/* The new rows of an unsettled step are no settled length. */
	refused(&w, dhs_session_truncate(w.rig.context, w.busy.id, 14), DHS_ERR_ARGUMENT, "rows", "13");
	world_close(&w);
}
END_TEST

START_TEST(test_session_rest)
{
	struct world w;
	dhs_session_info info = DHS_INIT(dhs_session_info);

	world_open(&w);
	refused(&w, dhs_session_evict(NULL, w.live.id, NULL), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_suspend(NULL, w.live.id, NULL), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_resume(NULL, w.live.id), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_destroy(NULL, w.live.id), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_get_info(NULL, w.live.id, &info), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_session_get_info(w.rig.context, w.live.id, NULL), DHS_ERR_ARGUMENT, "info",
	        NULL);
	info.size = 0;
	refused(&w, dhs_session_get_info(w.rig.context, w.live.id, &info), DHS_ERR_ARGUMENT, "size",
	        NULL);
	world_close(&w);
}
END_TEST

/* Handles of a place that was used again and again stay dead. */
START_TEST(test_dead_handles)
{
	struct rig rig;
	dhs_session dead[40], live = 0;

	rig_default(&rig);
	rig_open(&rig);
	for (uint32_t i = 0; i < COUNT_OF(dead); i++) {
		ck_good(dhs_session_create(rig.context, NULL, &dead[i]));
		ck_good(dhs_session_destroy(rig.context, dead[i]));
	}
	for (uint32_t sessions = 0; sessions < 4; sessions++) {
		ck_good(dhs_session_create(rig.context, NULL, &live));
		for (uint32_t i = 0; i < COUNT_OF(dead); i++) {
			ck_assert_uint_ne(dead[i], live);
			ck_told(dhs_session_truncate(rig.context, dead[i], 0), DHS_ERR_ARGUMENT, "session",
			        NULL);
		}
	}
	ck_assert_uint_eq(rig_stats(&rig).sessions, 4);
	rig_close(&rig);
}
END_TEST

START_TEST(test_dead_context_id)
{
	struct rig rig;
	struct history history;
	dhs_session old;

	rig_default(&rig);
	rig_open(&rig);
	history_open(&rig, &history);
	old = history.id;
	rig_sync(&rig);
	dhs_context_destroy(rig.context);
	ck_good(dhs_context_create(&rig.options, &rig.context));
	history_open(&rig, &history);
	/* A handle of a context that is gone is foreign to the next one. */
	ck_told(dhs_session_destroy(rig.context, old), DHS_ERR_ARGUMENT, "session", NULL);
	ck_assert_uint_ne(old, history.id);
	rig_close(&rig);
}
END_TEST

/* ---- batch calls ---------------------------------------------------------- */

struct bad_batch {
	dhs_batch_options options;
	int code;
	const char *word, *limit;
};

#define SIZE sizeof(dhs_batch_options)

static const struct bad_batch bad_batches[] = {
	{ { .size = 0, .top_k = 8 }, DHS_ERR_ARGUMENT, "size", NULL },
	{ { .size = 32, .top_k = 8 }, DHS_ERR_ARGUMENT, "size", "36" },
	{ { .size = SIZE, .flags = 8, .top_k = 8 }, DHS_ERR_ARGUMENT, "flags", NULL },
	{ { .size = SIZE, .flags = 0x80000000, .top_k = 8 }, DHS_ERR_ARGUMENT, "flags", NULL },
	{ { .size = SIZE, .max_sessions = 5, .top_k = 8 }, DHS_ERR_ARGUMENT, "max_sessions", "4" },
	{ { .size = SIZE, .max_sessions = UINT32_MAX, .top_k = 8 },
	  DHS_ERR_ARGUMENT,
	  "max_sessions",
	  "4" },
	{ { .size = SIZE, .max_queries = 17, .top_k = 8 }, DHS_ERR_ARGUMENT, "max_queries", "16" },
	{ { .size = SIZE, .max_queries = UINT32_MAX, .top_k = 8 },
	  DHS_ERR_ARGUMENT,
	  "max_queries",
	  "16" },
	{ { .size = SIZE, .top_k = 0 }, DHS_ERR_ARGUMENT, "top_k", "65536" },
	{ { .size = SIZE, .top_k = 65537 }, DHS_ERR_ARGUMENT, "top_k", "65536" },
	{ { .size = SIZE, .top_k = UINT32_MAX }, DHS_ERR_ARGUMENT, "top_k", "65536" },
	{ { .size = SIZE, .top_k = 8, .staging_buffers = 9 },
	  DHS_ERR_ARGUMENT,
	  "staging_buffers",
	  "8" },
	{ { .size = SIZE, .top_k = 8, .staging_buffers = UINT32_MAX },
	  DHS_ERR_ARGUMENT,
	  "staging_buffers",
	  "8" },
	{ { .size = SIZE, .top_k = 8, .staging_rows = UINT32_MAX }, ANY_ERROR, NULL, NULL },
	{ { .size = SIZE, .top_k = 8, .staging_rows = UINT32_MAX / 4, .staging_buffers = 8 },
	  ANY_ERROR,
	  NULL,
	  NULL },
};

START_TEST(test_batch_options)
{
	struct world w;
	dhs_batch *batch = (dhs_batch *)&w;

	world_open(&w);
	for (uint32_t i = 0; i < COUNT_OF(bad_batches); i++) {
		const struct bad_batch *b = &bad_batches[i];
		dhs_required required = DHS_INIT(dhs_required);

		if (b->code != ANY_ERROR) /* too many pages: that is what required tells */
			refused(&w, dhs_batch_required(&w.rig.options, &b->options, &required), b->code,
			        b->word, b->limit);
		refused(&w, dhs_batch_create(w.rig.context, &b->options, &batch), b->code, b->word,
		        b->limit);
		ck_assert_uint_eq(required.device_bytes, 0);
		ck_assert_ptr_eq(batch, (dhs_batch *)&w);
	}
	world_close(&w);
}
END_TEST

START_TEST(test_batch_calls)
{
	struct world w;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_required required = DHS_INIT(dhs_required);
	dhs_batch_view view = DHS_INIT(dhs_batch_view);
	dhs_batch *batch = NULL;
	dhs_context *context;

	world_open(&w);
	context = w.rig.context;
	options.top_k = 8;
	refused(&w, dhs_batch_required(NULL, &options, &required), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_batch_required(&w.rig.options, NULL, &required), DHS_ERR_ARGUMENT, "options",
	        NULL);
	refused(&w, dhs_batch_required(&w.rig.options, &options, NULL), DHS_ERR_ARGUMENT, "required",
	        NULL);
	refused(&w, dhs_batch_create(NULL, &options, &batch), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_batch_create(context, NULL, &batch), DHS_ERR_ARGUMENT, "options", NULL);
	refused(&w, dhs_batch_create(context, &options, NULL), DHS_ERR_ARGUMENT, "batch", NULL);
	refused(&w, dhs_batch_create(context, newer(&w.rig, &options, sizeof(options), 1), &batch),
	        DHS_ERR_VERSION, "options", NULL);
	refused(&w, dhs_batch_get_view(NULL, &view), DHS_ERR_ARGUMENT, "batch", NULL);
	refused(&w, dhs_batch_get_view(w.table.batch, NULL), DHS_ERR_ARGUMENT, "view", NULL);
	refused(&w, dhs_batch_destroy(w.busy_table.batch), DHS_ERR_BUSY, NULL, NULL);
	ck_assert_ptr_null(batch);
	ck_good(dhs_batch_destroy(NULL));
	ck_good(dhs_batch_create(context, newer(&w.rig, &options, sizeof(options), NEWER), &batch));
	ck_good(dhs_batch_destroy(batch));
	world_close(&w);
}
END_TEST

START_TEST(test_batch_room)
{
	struct world w;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_required required = DHS_INIT(dhs_required);
	dhs_batch *batch = NULL;

	world_open(&w);
	options.top_k = 256;
	options.max_queries = 16;
	options.staging_buffers = 8;
	ck_good(dhs_batch_required(&w.rig.options, &options, &required));
	if (rig_stages_behind(&w.rig)) {
		ck_assert_uint_eq(required.staging_pages, 0);
		ck_good(dhs_batch_create(w.rig.context, &options, &batch));
		ck_good(dhs_batch_destroy(batch));
	} else {
		ck_assert_uint_gt(required.staging_pages, 64);
		refused(&w, dhs_batch_create(w.rig.context, &options, &batch), DHS_ERR_DEVICE_MEMORY,
		        "staging", NULL);
		ck_assert_ptr_null(batch);
	}
	world_close(&w);
}
END_TEST

/* ---- begin ---------------------------------------------------------------- */

static int begin_one(struct world *w, dhs_session session, uint32_t new_rows, uint32_t queries)
{
	dhs_step_entry entry = { session, new_rows, queries };
	dhs_step step = 99;
	int rc = dhs_step_begin(w->table.batch, &entry, 1, sizeof(entry), w->rig.stream, &step);

	ck_assert(rc == 0 || step == 99);
	return rc;
}

START_TEST(test_begin_entries)
{
	struct world w;

	world_open(&w);
	refused(&w, begin_one(&w, w.dead, 1, 1), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, begin_one(&w, w.foreign.id, 1, 1), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, begin_one(&w, w.turn.step, 1, 1), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, begin_one(&w, UINT64_MAX, 1, 1), DHS_ERR_ARGUMENT, "session", NULL);
	refused(&w, begin_one(&w, w.live.id, 3, 1), DHS_ERR_ARGUMENT, "new_rows", "2");
	refused(&w, begin_one(&w, w.live.id, UINT32_MAX, 1), DHS_ERR_ARGUMENT, "new_rows", "2");
	refused(&w, begin_one(&w, w.live.id, 1, 3), DHS_ERR_ARGUMENT, "queries", "2");
	refused(&w, begin_one(&w, w.live.id, 1, UINT32_MAX), DHS_ERR_ARGUMENT, "queries", "2");
	world_close(&w);
}
END_TEST

START_TEST(test_begin_arguments)
{
	struct world w;
	dhs_step_entry entry[3] = { 0 };
	dhs_step step = 99;
	dhs_batch *batch;

	world_open(&w);
	batch = w.table.batch;
	entry[0] = (dhs_step_entry){ w.live.id, 1, 1 };
	entry[1] = entry[0];
	refused(&w, dhs_step_begin(NULL, entry, 1, sizeof(entry[0]), w.rig.stream, &step),
	        DHS_ERR_ARGUMENT, "batch", NULL);
	refused(&w, dhs_step_begin(batch, NULL, 1, sizeof(entry[0]), w.rig.stream, &step),
	        DHS_ERR_ARGUMENT, "entries", NULL);
	refused(&w, dhs_step_begin(batch, entry, 3, sizeof(entry[0]), w.rig.stream, &step),
	        DHS_ERR_ARGUMENT, "count", "2");
	refused(&w, dhs_step_begin(batch, entry, SIZE_MAX, sizeof(entry[0]), w.rig.stream, &step),
	        DHS_ERR_ARGUMENT, "count", "2");
	refused(&w, dhs_step_begin(batch, entry, 1, 0, w.rig.stream, &step), DHS_ERR_ARGUMENT,
	        "entry_size", "16");
	refused(&w, dhs_step_begin(batch, entry, 1, 12, w.rig.stream, &step), DHS_ERR_ARGUMENT,
	        "entry_size", "16");
	refused(&w, dhs_step_begin(batch, entry, 1, sizeof(entry[0]), w.rig.stream, NULL),
	        DHS_ERR_ARGUMENT, "step", NULL);
	refused(&w, dhs_step_begin(batch, entry, 2, sizeof(entry[0]), w.rig.stream, &step),
	        DHS_ERR_ARGUMENT, "session", NULL);
	ck_assert_uint_eq(step, 99);
	world_close(&w);
}
END_TEST

struct newer_entry {
	dhs_step_entry entry;
	uint64_t more;
};

START_TEST(test_begin_newer)
{
	struct world w;
	struct newer_entry entry[2] = { 0 };
	dhs_step step = 99;
	uint32_t kept[2] = { 0, 0 };

	world_open(&w);
	entry[1].entry = (dhs_step_entry){ w.live.id, 1, 1 };
	entry[1].more = UINT64_C(1) << 63;
	refused(
		&w,
		dhs_step_begin(w.table.batch, &entry[0].entry, 2, sizeof(entry[0]), w.rig.stream, &step),
		DHS_ERR_VERSION, "entries", NULL);
	entry[1].more = 0;
	ck_good(
		dhs_step_begin(w.table.batch, &entry[0].entry, 2, sizeof(entry[0]), w.rig.stream, &step));
	turn_write(&w.turn);
	turn_resolve_all(&w.turn, turn_blank(&w.turn));
	turn_end(&w.turn); /* steps settle in order */
	ck_good(dhs_step_end(w.rig.context, step, kept, 2));
	turn_begin(&w.turn);
	world_close(&w);
}
END_TEST

START_TEST(test_begin_order)
{
	struct world w;
	int32_t slots[4];
	uint32_t kept[1] = { 0 };
	dhs_step_entry entry;
	dhs_step step = 99;

	world_open(&w);
	ck_good(dhs_session_extend(w.rig.context, w.live.id, 4, w.rig.stream, slots));
	refused(&w, begin_one(&w, w.live.id, 1, 1), DHS_ERR_ORDER, NULL, NULL);
	ck_good(dhs_session_truncate(w.rig.context, w.live.id, 21));
	entry = (dhs_step_entry){ w.live.id, 1, 1 };
	ck_good(dhs_step_begin(w.table.batch, &entry, 1, sizeof(entry), w.rig.stream, &step));
	/* Two are in flight. */
	refused(&w, begin_one(&w, w.live.id, 1, 1), DHS_ERR_ORDER, NULL, "2");
	refused(&w, dhs_step_settle(w.rig.context, step, kept, 1), DHS_ERR_ORDER, NULL, NULL);
	refused(&w, dhs_step_end(w.rig.context, step, kept, 1), DHS_ERR_ORDER, NULL, NULL);
	ck_good(dhs_step_abort(w.rig.context, step));
	world_close(&w);
}
END_TEST

START_TEST(test_begin_bound)
{
	struct rig rig;
	struct history history;
	struct table table;
	struct turn turn;

	rig_default(&rig);
	rig.options.max_rows = 20;
	rig.options.host_rows = 100;
	rig_open(&rig);
	history_open(&rig, &history);
	history_prefill(&rig, &history, 17);
	table_open(&rig, &table, 2, 1, 4);
	turn_open(&turn, &table);
	turn_add(&turn, &history, 2, 1, 1);
	turn_begin(&turn);
	turn_write(&turn);
	turn_commit(&turn);
	/* 17 settled, 2 unsettled: one more may come, not two. */
	ck_assert_uint_eq(rig_info(&rig, history.id).rows_bound, 19);
	turn.entry[0].new_rows = 2;
	ck_told(turn_try_begin(&turn), DHS_ERR_ARGUMENT, "new_rows", "20");
	ck_assert_uint_eq(rig_info(&rig, history.id).rows_bound, 19);
	turn.entry[0].new_rows = 2;
	turn_settle(&turn);
	ck_assert_uint_eq(rig_info(&rig, history.id).rows_bound, 18);
	turn_one(&table, &history, 2, 2, NULL, 1);
	history_verify(&table, &history);
	history_close(&rig, &history);
	rig_close(&rig);
}
END_TEST

/* ---- the calls within a step ---------------------------------------------- */

START_TEST(test_all_resident)
{
	struct world w;
	int resident = 99;

	world_open(&w);
	refused(&w, dhs_step_all_resident(NULL, &resident), DHS_ERR_ARGUMENT, "batch", NULL);
	refused(&w, dhs_step_all_resident(w.busy_table.batch, NULL), DHS_ERR_ARGUMENT, "resident",
	        NULL);
	refused(&w, dhs_step_all_resident(w.table.batch, &resident), DHS_ERR_ORDER, NULL, NULL);
	ck_assert_int_eq(resident, 99);
	world_close(&w);
}
END_TEST

START_TEST(test_slots)
{
	struct world w;
	int32_t *slots;
	dhs_batch *batch;
	dhs_stream stream;

	world_open(&w);
	batch = w.busy_table.batch;
	stream = w.rig.stream;
	slots = rig_keep(&w.rig, 64);
	refused(&w, dhs_step_slots(NULL, 2, 2, slots, stream), DHS_ERR_ARGUMENT, "batch", NULL);
	refused(&w, dhs_step_slots(batch, 3, 2, slots, stream), DHS_ERR_ARGUMENT, "sessions", "2");
	refused(&w, dhs_step_slots(batch, UINT32_MAX, 2, slots, stream), DHS_ERR_ARGUMENT, "sessions",
	        "2");
	refused(&w, dhs_step_slots(batch, 2, 3, slots, stream), DHS_ERR_ARGUMENT, "rows", "2");
	refused(&w, dhs_step_slots(batch, 2, UINT32_MAX, slots, stream), DHS_ERR_ARGUMENT, "rows", "2");
	refused(&w, dhs_step_slots(batch, 2, 0, slots, stream), DHS_ERR_ARGUMENT, "rows", NULL);
	refused(&w, dhs_step_slots(batch, 2, 2, NULL, stream), DHS_ERR_ARGUMENT, "slots_dev", NULL);
	refused(&w, dhs_step_slots(batch, 2, 2, (int32_t *)((char *)slots + 2), stream),
	        DHS_ERR_ARGUMENT, "slots_dev", "4");
	world_close(&w);
}
END_TEST

typedef int (*plan_call)(dhs_batch *batch, uint32_t group, const dhs_selection *selection,
                         dhs_stream stream);

static void check_plan_shapes(struct world *w, plan_call plan, dhs_selection good)
{
	dhs_batch *batch = w->busy_table.batch;
	dhs_stream stream = w->rig.stream;
	dhs_selection s = good;

	s.sessions = 3;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "sessions", "2");
	s.sessions = UINT32_MAX;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "sessions", "2");
	s = good;
	s.queries = 3;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "queries", "2");
	s = good;
	s.top_k = 9;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "top_k", "8");
	s.top_k = UINT32_MAX;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "top_k", "8");
	s = good;
	s.reserved = 1;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "reserved", NULL);
	s = good;
	s.flags = 1;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "flags", NULL);
	s = good;
	s.size = 0;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "size", NULL);
	s.size = 32;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "size", "40");
}

static void check_plan_pointers(struct world *w, plan_call plan, dhs_selection good)
{
	dhs_batch *batch = w->busy_table.batch;
	dhs_stream stream = w->rig.stream;
	dhs_selection s = good;

	s.rows = NULL;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "rows", NULL);
	s.rows = (const int32_t *)((const char *)good.rows + 1);
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "rows", "4");
	s = good;
	s.slots = NULL;
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "slots", NULL);
	s.slots = (int32_t *)((char *)good.slots + 2);
	refused(w, plan(batch, 0, &s, stream), DHS_ERR_ARGUMENT, "slots", "4");
	refused(w, plan(NULL, 0, &good, stream), DHS_ERR_ARGUMENT, "batch", NULL);
	refused(w, plan(batch, 0, NULL, stream), DHS_ERR_ARGUMENT, "selection", NULL);
	refused(w, plan(batch, 2, &good, stream), DHS_ERR_ARGUMENT, "group", "2");
	refused(w, plan(batch, UINT32_MAX, &good, stream), DHS_ERR_ARGUMENT, "group", "2");
	refused(w, plan(batch, 0, newer(&w->rig, &good, sizeof(good), NEWER - 1), stream),
	        DHS_ERR_VERSION, "selection", NULL);
	ck_good(plan(batch, 0, newer(&w->rig, &good, sizeof(good), NEWER), stream));
}

START_TEST(test_plan)
{
	struct world w;
	plan_call plan = _i == 0 ? dhs_step_plan : dhs_step_resolve;
	dhs_selection good = DHS_INIT(dhs_selection);

	world_open(&w);
	good.rows = rig_keep(&w.rig, 4 * 2 * 2 * 8);
	good.slots = rig_keep(&w.rig, 4 * 2 * 2 * 8);
	check_plan_shapes(&w, plan, good);
	check_plan_pointers(&w, plan, good);
	ck_good(dhs_step_abort(w.rig.context, w.turn.step));
	turn_begin(&w.turn);
	world_close(&w);
}
END_TEST

START_TEST(test_fetch)
{
	struct world w;
	dhs_batch *batch;
	dhs_stream stream;

	world_open(&w);
	batch = w.busy_table.batch;
	stream = w.rig.stream;
	refused(&w, dhs_step_fetch(NULL, 0, 0, 0, stream), DHS_ERR_ARGUMENT, "batch", NULL);
	refused(&w, dhs_step_fetch(batch, 2, 0, 0, stream), DHS_ERR_ARGUMENT, "group", "2");
	refused(&w, dhs_step_fetch(batch, UINT32_MAX, 0, 0, stream), DHS_ERR_ARGUMENT, "group", "2");
	refused(&w, dhs_step_fetch(batch, 0, 1, 0, stream), DHS_ERR_ARGUMENT, "first", "1");
	refused(&w, dhs_step_fetch(batch, 1, 2, 0, stream), DHS_ERR_ARGUMENT, "first", "2");
	refused(&w, dhs_step_fetch(batch, 1, UINT32_MAX, 0, stream), DHS_ERR_ARGUMENT, "first", "2");
	refused(&w, dhs_step_fetch(batch, 1, 0, 3, stream), DHS_ERR_ARGUMENT, "layers", "2");
	refused(&w, dhs_step_fetch(batch, 1, 1, 2, stream), DHS_ERR_ARGUMENT, "layers", "2");
	refused(&w, dhs_step_fetch(batch, 1, 1, UINT32_MAX, stream), DHS_ERR_ARGUMENT, "layers", "2");
	world_close(&w);
}
END_TEST

START_TEST(test_commit)
{
	struct world w;
	dhs_batch *batch;
	int32_t *kept;

	world_open(&w);
	batch = w.busy_table.batch;
	kept = rig_keep(&w.rig, 64);
	refused(&w, dhs_step_commit(NULL, 2, kept, w.rig.stream), DHS_ERR_ARGUMENT, "batch", NULL);
	refused(&w, dhs_step_commit(batch, 3, kept, w.rig.stream), DHS_ERR_ARGUMENT, "sessions", "2");
	refused(&w, dhs_step_commit(batch, UINT32_MAX, kept, w.rig.stream), DHS_ERR_ARGUMENT,
	        "sessions", "2");
	refused(&w, dhs_step_commit(batch, 2, (int32_t *)((char *)kept + 1), w.rig.stream),
	        DHS_ERR_ARGUMENT, "kept_dev", "4");
	world_close(&w);
}
END_TEST

/* ---- settle, end, abort --------------------------------------------------- */

typedef int (*settle_call)(dhs_context *context, dhs_step step, const uint32_t *kept, size_t count);

static int abort_as_settle(dhs_context *context, dhs_step step, const uint32_t *kept, size_t count)
{
	(void)kept, (void)count;
	return dhs_step_abort(context, step);
}

static dhs_step foreign_step(struct world *w)
{
	struct table table;
	struct turn turn;

	table_open(&w->other, &table, 1, 1, 4);
	turn_open(&turn, &table);
	turn_add(&turn, &w->foreign, 1, 1, 1);
	turn_begin(&turn);
	turn_write(&turn);
	turn_end(&turn);
	turn_begin(&turn);
	return turn.step;
}

static void check_step_handles(struct world *w, settle_call call)
{
	uint32_t kept[1] = { 1 };
	dhs_step dead, live = w->turn.step;
	dhs_step foreign = foreign_step(w);
	dhs_context *context = w->rig.context;

	ck_good(dhs_step_abort(context, live));
	dead = live;
	turn_begin(&w->turn);
	refused(w, call(context, 0, kept, 1), DHS_ERR_ARGUMENT, "step", NULL);
	refused(w, call(context, dead, kept, 1), DHS_ERR_ARGUMENT, "step", NULL);
	refused(w, call(context, foreign, kept, 1), DHS_ERR_ARGUMENT, "step", NULL);
	refused(w, call(context, w->live.id, kept, 1), DHS_ERR_ARGUMENT, "step", NULL);
	refused(w, call(context, UINT64_MAX, kept, 1), DHS_ERR_ARGUMENT, "step", NULL);
	refused(w, call(NULL, w->turn.step, kept, 1), DHS_ERR_ARGUMENT, "context", NULL);
	for (uint32_t bit = 0; bit < 64; bit++)
		refused(w, call(context, w->turn.step ^ UINT64_C(1) << bit, kept, 1), DHS_ERR_ARGUMENT,
		        "step", NULL);
	ck_good(dhs_step_abort(w->other.context, foreign));
}

static const settle_call settle_calls[] = { dhs_step_settle, dhs_step_end, abort_as_settle };

START_TEST(test_step_handles)
{
	struct world w;

	world_open(&w);
	check_step_handles(&w, settle_calls[_i]);
	world_close(&w);
}
END_TEST

START_TEST(test_settle_arguments)
{
	struct world w;
	settle_call call = settle_calls[_i];
	uint32_t kept[2] = { 1, 0 };

	world_open(&w);
	if (_i == 0)
		ck_good(dhs_step_commit(w.busy_table.batch, 0, NULL, w.rig.stream));
	refused(&w, call(w.rig.context, w.turn.step, NULL, 1), DHS_ERR_ARGUMENT, "kept", NULL);
	refused(&w, call(w.rig.context, w.turn.step, kept, 0), DHS_ERR_ARGUMENT, "count", "1");
	refused(&w, call(w.rig.context, w.turn.step, kept, 2), DHS_ERR_ARGUMENT, "count", "1");
	refused(&w, call(w.rig.context, w.turn.step, kept, SIZE_MAX), DHS_ERR_ARGUMENT, "count", "1");
	kept[0] = 3;
	refused(&w, call(w.rig.context, w.turn.step, kept, 1), DHS_ERR_ARGUMENT, "kept", "2");
	kept[0] = UINT32_MAX;
	refused(&w, call(w.rig.context, w.turn.step, kept, 1), DHS_ERR_ARGUMENT, "kept", "2");
	kept[0] = 2;
	if (_i == 0) {
		/* What the device kept is true; the rows were never written, so drop them. */
		ck_good(dhs_step_settle(w.rig.context, w.turn.step, kept, 1));
		ck_good(dhs_session_truncate(w.rig.context, w.busy.id, 13));
		turn_begin(&w.turn);
	}
	world_close(&w);
}
END_TEST

/* ---- fences --------------------------------------------------------------- */

static int wait_fence(struct world *w, dhs_fence fence)
{
	return dhs_fence_wait(w->rig.context, fence, w->rig.stream);
}

static int sync_fence(struct world *w, dhs_fence fence)
{
	return dhs_fence_sync(w->rig.context, fence);
}

static int query_fence(struct world *w, dhs_fence fence)
{
	int passed = 99, rc = dhs_fence_query(w->rig.context, fence, &passed);

	ck_assert(rc == 0 ? passed == 0 || passed == 1 : passed == 99);
	return rc;
}

static int (*const fence_calls[])(struct world *w, dhs_fence fence) = {
	wait_fence,
	sync_fence,
	query_fence,
};

START_TEST(test_fences)
{
	struct world w;
	int (*call)(struct world *, dhs_fence) = fence_calls[_i];
	dhs_fence fence = 0, foreign = 0;

	world_open(&w);
	history_prefill(&w.other, &w.foreign, 100);
	ck_good(dhs_session_evict(w.other.context, w.foreign.id, &foreign));
	history_prefill(&w.rig, &w.live, 100);
	ck_good(dhs_session_evict(w.rig.context, w.live.id, &fence));
	ck_good(call(&w, 0));
	ck_good(call(&w, fence));
	refused(&w, call(&w, UINT64_MAX), DHS_ERR_ARGUMENT, "fence", NULL);
	refused(&w, call(&w, w.live.id), DHS_ERR_ARGUMENT, "fence", NULL);
	refused(&w, call(&w, w.turn.step), DHS_ERR_ARGUMENT, "fence", NULL);
	if (foreign != 0)
		refused(&w, call(&w, foreign), DHS_ERR_ARGUMENT, "fence", NULL);
	world_close(&w);
}
END_TEST

START_TEST(test_fence_arguments)
{
	struct world w;
	int passed = 0;

	world_open(&w);
	refused(&w, dhs_fence_wait(NULL, 0, w.rig.stream), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_fence_sync(NULL, 0), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_fence_query(NULL, 0, &passed), DHS_ERR_ARGUMENT, "context", NULL);
	refused(&w, dhs_fence_query(w.rig.context, 0, NULL), DHS_ERR_ARGUMENT, "passed", NULL);
	world_close(&w);
}
END_TEST

/* ---- streams of another device -------------------------------------------- */

START_TEST(test_foreign_stream)
{
	struct world w;
	dhs_host *host = NULL;
	dhs_stream stream = NULL;
	int32_t slots[4];
	dhs_step_entry entry;
	dhs_step step = 99;

	world_open(&w);
	ck_good(dhs_host_create(NULL, &host));
	ck_good(dhs_host_stream_create(host, &stream));
	entry = (dhs_step_entry){ w.live.id, 1, 1 };
	refused(&w, dhs_step_begin(w.table.batch, &entry, 1, sizeof(entry), stream, &step),
	        DHS_ERR_ARGUMENT, "stream", NULL);
	refused(&w, dhs_session_extend(w.rig.context, w.live.id, 1, stream, slots), DHS_ERR_ARGUMENT,
	        "stream", NULL);
	refused(&w, dhs_step_slots(w.busy_table.batch, 1, 1, slots, stream), DHS_ERR_ARGUMENT, "stream",
	        NULL);
	refused(&w, dhs_step_fetch(w.busy_table.batch, 0, 0, 0, stream), DHS_ERR_ARGUMENT, "stream",
	        NULL);
	refused(&w, dhs_step_commit(w.busy_table.batch, 0, NULL, stream), DHS_ERR_ARGUMENT, "stream",
	        NULL);
	refused(&w, dhs_fence_wait(w.rig.context, 0, stream), DHS_ERR_ARGUMENT, "stream", NULL);
	refused(&w, dhs_host_stream_join(w.rig.stream, stream), DHS_ERR_ARGUMENT, "other", NULL);
	ck_good(dhs_host_destroy(host));
	world_close(&w);
}
END_TEST

/* ---- the host backend's calls --------------------------------------------- */

START_TEST(test_host_options)
{
	struct memory memory;
	dhs_host_options options = DHS_INIT(dhs_host_options);
	dhs_host *host = NULL;
	struct rig rig;

	memory_open(&memory);
	rig_default(&rig);
	options.allocator = &memory.allocator;
	ck_told(dhs_host_create(&options, NULL), DHS_ERR_ARGUMENT, "host", NULL);
	options.flags = 1;
	ck_told(dhs_host_create(&options, &host), DHS_ERR_ARGUMENT, "flags", NULL);
	options.flags = 0;
	options.size = 0;
	ck_told(dhs_host_create(&options, &host), DHS_ERR_ARGUMENT, "size", NULL);
	options.size = 16;
	ck_told(dhs_host_create(&options, &host), DHS_ERR_ARGUMENT, "size", "24");
	options.size = sizeof(options);
	ck_told(dhs_host_create(newer(&rig, &options, sizeof(options), 0), &host), DHS_ERR_VERSION,
	        "options", NULL);
	memory.allocator.free = NULL;
	ck_told(dhs_host_create(&options, &host), DHS_ERR_ARGUMENT, "free", NULL);
	ck_assert_ptr_null(host);
	ck_assert_uint_eq(memory_live(&memory), 0);
	rig_forget(&rig);
}
END_TEST

static void host_kernel(void *copy)
{
	(void)copy;
}

START_TEST(test_host_calls)
{
	dhs_host *host = NULL;
	dhs_stream stream = NULL;
	uint64_t count = 99;

	ck_good(dhs_host_create(NULL, &host));
	ck_told(dhs_host_reorderings(NULL, &count), DHS_ERR_ARGUMENT, "host", NULL);
	ck_told(dhs_host_reorderings(host, NULL), DHS_ERR_ARGUMENT, "count", NULL);
	ck_told(dhs_host_stream_create(NULL, &stream), DHS_ERR_ARGUMENT, "host", NULL);
	ck_told(dhs_host_stream_create(host, NULL), DHS_ERR_ARGUMENT, "stream", NULL);
	ck_assert_ptr_null(stream);
	ck_good(dhs_host_stream_create(host, &stream));
	ck_told(dhs_host_stream_sync(NULL), DHS_ERR_ARGUMENT, "stream", NULL);
	ck_told(dhs_host_stream_join(NULL, stream), DHS_ERR_ARGUMENT, "stream", NULL);
	ck_told(dhs_host_stream_join(stream, NULL), DHS_ERR_ARGUMENT, "other", NULL);
	ck_told(dhs_host_launch(NULL, host_kernel, NULL, 0), DHS_ERR_ARGUMENT, "stream", NULL);
	ck_told(dhs_host_launch(stream, NULL, NULL, 0), DHS_ERR_ARGUMENT, "fn", NULL);
	ck_told(dhs_host_launch(stream, host_kernel, NULL, 4), DHS_ERR_ARGUMENT, "arg", NULL);
	check_code("launch of SIZE_MAX", dhs_host_launch(stream, host_kernel, &count, SIZE_MAX),
	           ANY_ERROR);
	ck_assert_uint_eq(count, 99);
	ck_good(dhs_host_stream_sync(stream));
	ck_good(dhs_host_destroy(host));
}
END_TEST

START_TEST(test_host_capture_calls)
{
	dhs_host *host = NULL;
	dhs_stream stream = NULL;
	dhs_host_graph *graph = NULL, *empty = NULL;

	ck_good(dhs_host_create(NULL, &host));
	ck_good(dhs_host_stream_create(host, &stream));
	ck_told(dhs_host_capture_begin(NULL), DHS_ERR_ARGUMENT, "stream", NULL);
	ck_told(dhs_host_capture_end(NULL, &graph), DHS_ERR_ARGUMENT, "stream", NULL);
	ck_told(dhs_host_capture_end(stream, &graph), DHS_ERR_ORDER, NULL, NULL);
	ck_good(dhs_host_capture_begin(stream));
	ck_told(dhs_host_capture_begin(stream), DHS_ERR_ORDER, "stream", NULL);
	ck_told(dhs_host_capture_end(stream, NULL), DHS_ERR_ARGUMENT, "graph", NULL);
	ck_told(dhs_host_stream_sync(stream), DHS_ERR_CAPTURING, NULL, NULL);
	ck_good(dhs_host_capture_end(stream, &empty));
	ck_told(dhs_host_graph_launch(NULL, stream), DHS_ERR_ARGUMENT, "graph", NULL);
	ck_told(dhs_host_graph_launch(empty, NULL), DHS_ERR_ARGUMENT, "stream", NULL);
	ck_good(dhs_host_graph_launch(empty, stream));
	ck_good(dhs_host_graph_destroy(empty));
	ck_good(dhs_host_graph_destroy(NULL));
	ck_assert_ptr_null(graph);
	ck_good(dhs_host_destroy(host));
}
END_TEST

/* ---- the log -------------------------------------------------------------- */

static void count_log(void *arg, uint32_t level, const char *text)
{
	uint32_t *lines = arg;

	ck_assert(level >= DHS_LOG_ERROR && level <= DHS_LOG_INFO);
	ck_assert_ptr_nonnull(text);
	*lines += 1;
}

START_TEST(test_log)
{
	struct rig rig;
	uint32_t lines = 0;

	rig_default(&rig);
	rig.options.log = count_log;
	rig.options.log_arg = &lines;
	rig_open(&rig);
	rig_works(&rig);
	rig_close(&rig);
}
END_TEST

static void *other_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)(dhs_last_error()[0] == '\0');
}

START_TEST(test_last_error_per_thread)
{
	pthread_t thread;
	void *empty = NULL;

	ck_code(dhs_context_wait(NULL), DHS_ERR_ARGUMENT);
	ck_assert_str_ne(dhs_last_error(), "");
	ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &empty), 0);
	ck_assert_ptr_nonnull(empty);
	ck_assert_str_ne(dhs_last_error(), "");
}
END_TEST

static TCase *options_case(bool in_pool)
{
	TCase *options = support_case("options", in_pool);

	tcase_set_timeout(options, support_seconds(20));
	tcase_add_test(options, test_options);
	tcase_add_test(options, test_layouts);
	tcase_add_test(options, test_segments);
	tcase_add_test(options, test_allocators);
	tcase_add_test(options, test_no_memory_at_all);
	tcase_add_loop_test(options, test_legal_layouts, 0, COUNT_OF(legal));
	tcase_add_test(options, test_least_budget);
	tcase_add_loop_test(options, test_engine_pool, 0, COUNT_OF(pool_cases));
	tcase_add_test(options, test_engine_pool_bases);
	tcase_add_test(options, test_newer_options);
	tcase_add_test(options, test_newer_segments);
	return options;
}

static TCase *session_case(bool in_pool)
{
	TCase *session = support_case("context and session", in_pool);

	tcase_set_timeout(session, support_seconds(20));
	tcase_add_test(session, test_world);
	tcase_add_test(session, test_context_calls);
	tcase_add_test(session, test_pool_calls_library);
	tcase_add_test(session, test_lend);
	tcase_add_test(session, test_take);
	tcase_add_loop_test(session, test_session_handles, 0, COUNT_OF(session_calls));
	tcase_add_test(session, test_session_create);
	tcase_add_test(session, test_session_admission);
	tcase_add_test(session, test_pool_budget);
	tcase_add_test(session, test_session_room);
	tcase_add_test(session, test_session_host_room);
	tcase_add_test(session, test_extend);
	tcase_add_test(session, test_session_commit);
	tcase_add_test(session, test_truncate);
	tcase_add_test(session, test_session_rest);
	tcase_add_test(session, test_dead_handles);
	tcase_add_test(session, test_dead_context_id);
	return session;
}

static TCase *step_case(bool in_pool)
{
	TCase *step = support_case("batch and step", in_pool);

	tcase_set_timeout(step, support_seconds(20));
	tcase_add_test(step, test_batch_options);
	tcase_add_test(step, test_batch_calls);
	tcase_add_test(step, test_batch_room);
	tcase_add_test(step, test_begin_entries);
	tcase_add_test(step, test_begin_arguments);
	tcase_add_test(step, test_begin_newer);
	tcase_add_test(step, test_begin_order);
	tcase_add_test(step, test_begin_bound);
	tcase_add_test(step, test_all_resident);
	tcase_add_test(step, test_slots);
	tcase_add_loop_test(step, test_plan, 0, 2);
	tcase_add_test(step, test_fetch);
	tcase_add_test(step, test_commit);
	tcase_add_loop_test(step, test_step_handles, 0, COUNT_OF(settle_calls));
	tcase_add_loop_test(step, test_settle_arguments, 0, 2);
	return step;
}

static TCase *rest_case(bool in_pool)
{
	TCase *rest = support_case("fences and host", in_pool);

	tcase_set_timeout(rest, support_seconds(20));
	tcase_add_loop_test(rest, test_fences, 0, COUNT_OF(fence_calls));
	tcase_add_test(rest, test_fence_arguments);
	tcase_add_test(rest, test_foreign_stream);
	tcase_add_test(rest, test_host_options);
	tcase_add_test(rest, test_host_calls);
	tcase_add_test(rest, test_host_capture_calls);
	tcase_add_test(rest, test_log);
	tcase_add_test(rest, test_last_error_per_thread);
	return rest;
}

static void add_cases(Suite *suite, bool in_pool)
{
	suite_add_tcase(suite, options_case(in_pool));
	suite_add_tcase(suite, session_case(in_pool));
	suite_add_tcase(suite, step_case(in_pool));
	suite_add_tcase(suite, rest_case(in_pool));
}

int main(void)
{
	Suite *suite = suite_create("args");

	support_both(suite, add_cases);
	return support_run(suite);
}
