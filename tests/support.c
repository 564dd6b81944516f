/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "support.h"

#include <stdarg.h>

void support_said(const char *call, const char *word, const char *limit)
{
	const char *text = dhs_last_error();

	ck_assert_msg(text != NULL && text[0] != '\0', "%s: no words", call);
	ck_assert_msg(word == NULL || strstr(text, word) != NULL, "%s: \"%s\" lacks \"%s\"", call, text,
	              word);
	ck_assert_msg(limit == NULL || strstr(text, limit) != NULL, "%s: \"%s\" lacks \"%s\"", call,
	              text, limit);
}

int support_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, getenv("CK_TAP_LOG_FILE_NAME") != NULL ? CK_SILENT : CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- cases ---------------------------------------------------------------- */

static bool stage_in_pool; /* of rig_default */

static void start_in_pool(void)
{
	stage_in_pool = true;
}

static void end_in_pool(void)
{
	stage_in_pool = false;
}

TCase *support_case(const char *name, bool in_pool)
{
	static char names[16][60]; /* Check keeps them */
	static uint32_t used;
	TCase *made;

	if (!in_pool)
		return tcase_create(name);
	snprintf(names[used % 16], sizeof(names[0]), "%s, staging in the pool", name);
	made = tcase_create(names[used++ % 16]);
	tcase_add_checked_fixture(made, start_in_pool, end_in_pool);
	return made;
}

void support_both(Suite *suite, void (*add)(Suite *suite, bool in_pool))
{
	add(suite, false);
	if (device_backend() == DHS_BACKEND_HOST)
		add(suite, true);
}

static double number_from(const char *name)
{
	const char *text = getenv(name);
	double number = text != NULL ? atof(text) : 1.0;

	return number >= 1.0 ? number : 1.0;
}

double support_seconds(double seconds)
{
	return seconds * number_from("TEST_SLOW");
}

uint32_t support_times(uint32_t count)
{
	uint32_t less = (uint32_t)(count / number_from("TEST_LESS"));

	return less > 0 ? less : 1;
}

/* ---- random numbers ------------------------------------------------------- */

uint64_t dice_next(struct dice *dice)
{
	uint64_t z = dice->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint32_t dice_below(struct dice *dice, uint32_t below)
{
	return (uint32_t)(dice_next(dice) % below);
}

/* ---- memory --------------------------------------------------------------- */

/* In front of each block, at its end so that the block keeps its alignment. */
struct label {
	uint64_t magic;
	size_t bytes;
	size_t front;
	uint32_t kind;
};

#define LABEL_LIVE UINT64_C(0x6c69766520626c6b)
#define LABEL_DEAD UINT64_C(0x6465616420626c6b)

static bool memory_refuses(struct memory *memory, uint32_t kind)
{
	memory->asked++;
	if (memory->fail_at == 0 || memory->asked < memory->fail_at)
		return false;
	if (memory->asked > memory->fail_at && !memory->fail_on)
		return false;
	if (!memory->failed)
		memory->kind = kind;
	memory->failed = true;
	return true;
}

static void *memory_take(struct memory *memory, uint32_t kind, size_t bytes, size_t align)
{
	size_t front = align > 64 ? align : 64;
	struct label *label;
	char *block;

	if (kind > DHS_MEMORY_HOST || align == 0 || (align & (align - 1)) != 0 || bytes == 0) {
		memory->wrong++;
		return NULL;
	}
	if (memory_refuses(memory, kind) || bytes > SIZE_MAX - front)
		return NULL;
	if (posix_memalign((void **)&block, front, front + bytes) != 0)
		return NULL;
	memset(block + front, 0xa5, bytes);
	label = (struct label *)(block + front) - 1;
	*label = (struct label){ LABEL_LIVE, bytes, front, kind };
	memory->bytes[kind] += bytes;
	memory->blocks[kind]++;
	return block + front;
}

static void *memory_alloc(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	struct memory *memory = arg;
	void *taken;

	pthread_mutex_lock(&memory->lock);
	taken = memory_take(memory, kind, bytes, align);
	pthread_mutex_unlock(&memory->lock);
	return taken;
}

static void memory_free(void *arg, uint32_t kind, void *block, size_t bytes)
{
	struct memory *memory = arg;
	struct label *label = (struct label *)block - 1;

	pthread_mutex_lock(&memory->lock);
	if (label->magic != LABEL_LIVE || label->kind != kind || label->bytes != bytes) {
		memory->wrong++;
		pthread_mutex_unlock(&memory->lock);
		return;
	}
	memory->bytes[kind] -= bytes;
	memory->blocks[kind]--;
	label->magic = LABEL_DEAD;
	memset(block, 0x5a, bytes);
	pthread_mutex_unlock(&memory->lock);
	free((char *)block - label->front);
}

/* The library's memory on a GPU, which no allocator gives. */
static bool watch_take(void *arg, uint32_t kind, size_t bytes)
{
	struct memory *memory = arg;
	bool refused;

	pthread_mutex_lock(&memory->lock);
	refused = memory_refuses(memory, kind);
	if (!refused) {
		memory->bytes[kind] += bytes;
		memory->blocks[kind]++;
	}
	pthread_mutex_unlock(&memory->lock);
	return !refused;
}

static void watch_give(void *arg, uint32_t kind, size_t bytes)
{
	struct memory *memory = arg;

	pthread_mutex_lock(&memory->lock);
	memory->bytes[kind] -= bytes;
	memory->blocks[kind]--;
	pthread_mutex_unlock(&memory->lock);
}

void memory_open(struct memory *memory)
{
	memset(memory, 0, sizeof(*memory));
	pthread_mutex_init(&memory->lock, NULL);
	memory->allocator.size = sizeof(memory->allocator);
	memory->allocator.alloc = memory_alloc;
	memory->allocator.free = memory_free;
	memory->allocator.arg = memory;
	memory->watch = (struct device_watch){ watch_take, watch_give, memory };
}

void memory_arm(struct memory *memory, uint64_t fail_at, bool fail_on)
{
	pthread_mutex_lock(&memory->lock);
	memory->asked = 0;
	memory->fail_at = fail_at;
	memory->fail_on = fail_on;
	memory->failed = false;
	pthread_mutex_unlock(&memory->lock);
}

void memory_disarm(struct memory *memory)
{
	pthread_mutex_lock(&memory->lock);
	memory->fail_at = 0;
	pthread_mutex_unlock(&memory->lock);
}

uint64_t memory_live(const struct memory *memory)
{
	return memory->bytes[0] + memory->bytes[1] + memory->bytes[2];
}

/* ---- the rig -------------------------------------------------------------- */

struct scrap {
	struct scrap *next;
	void *device; /* whose the block is; NULL: ordinary memory */
};

/* TEST_SEED: another order of work in tests that ask for none. */
static uint64_t rig_seed(const struct rig *rig)
{
	const char *seed = getenv("TEST_SEED");

	return rig->seed == 0 && seed != NULL ? strtoull(seed, NULL, 10) : rig->seed;
}

void rig_default(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	device_watch(NULL); /* a test that failed may have left one */
	memory_open(&rig->memory);
	memory_open(&rig->host_memory);
	rig->segment[0].bytes = 64;
	rig->group_layers[0] = 1;
	rig->group_layers[1] = 2;
	rig->layout = (dhs_layout)DHS_INIT(dhs_layout);
	rig->layout.layers = 3;
	rig->layout.groups = 2;
	rig->layout.group_layers = rig->group_layers;
	rig->layout.segments = 1;
	rig->layout.segment_size = sizeof(dhs_segment);
	rig->layout.segment = rig->segment;
	rig->layout.page_rows = 4;
	rig->options = (dhs_context_options)DHS_INIT(dhs_context_options);
	rig->options.backend = device_backend();
	rig->options.max_sessions = 4;
	rig->options.max_rows = 256;
	rig->options.max_new_rows = 2;
	rig->options.hot_rows = 8;
	rig->options.tail_rows = 4;
	rig->options.device_pages = 64;
	rig->options.host_rows = 1024;
	rig->options.layout = &rig->layout;
	rig->options.allocator = &rig->memory.allocator;
	rig->next_stamp = 1;
	rig_stage(rig, !stage_in_pool);
}

void rig_stage(struct rig *rig, bool behind)
{
	rig->options.flags &= ~(uint32_t)DHS_CONTEXT_POOL_STAGING;
	if (!behind || device_backend() != DHS_BACKEND_HOST)
		rig->options.flags |= DHS_CONTEXT_POOL_STAGING;
}

bool rig_stages_behind(const struct rig *rig)
{
	return !rig->engine_pool && rig->options.pool == NULL &&
	       !(rig->options.flags & DHS_CONTEXT_POOL_STAGING);
}

void rig_use_pool(struct rig *rig, void **pool)
{
	rig->options.pool = pool;
	rig->options.flags &= ~(uint32_t)DHS_CONTEXT_POOL_STAGING;
}

uint32_t rig_page_rows(const struct rig *rig)
{
	return rig->layout.page_rows != 0 ? rig->layout.page_rows : 64;
}

uint32_t rig_groups(const struct rig *rig)
{
	return rig->layout.groups != 0 ? rig->layout.groups : rig->layout.layers;
}

uint64_t rig_row_bytes(const struct rig *rig)
{
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < rig->layout.segments; g++)
		bytes += rig->segment[g].bytes;
	return bytes;
}

void rig_group(const struct rig *rig, uint32_t group, uint32_t *first, uint32_t *layers)
{
	if (rig->layout.groups == 0) {
		*first = group;
		*layers = 1;
		return;
	}
	*first = 0;
	for (uint32_t g = 0; g < group; g++)
		*first += rig->group_layers[g];
	*layers = rig->group_layers[group];
}

void *rig_keep(struct rig *rig, size_t bytes)
{
	struct scrap *scrap =
		rig->opened ? device_memory(&rig->device, 64 + bytes) : calloc(1, 64 + bytes);

	ck_assert_ptr_nonnull(scrap);
	scrap->next = rig->scraps;
	scrap->device = rig->opened ? &rig->device : NULL;
	rig->scraps = scrap;
	return (char *)scrap + 64;
}

void rig_wrong(struct rig *rig, const char *format, ...)
{
	va_list arguments;

	if (atomic_fetch_add(&rig->bad, 1) != 0)
		return;
	va_start(arguments, format);
	vsnprintf(rig->words, sizeof(rig->words), format, arguments);
	va_end(arguments);
}

/* What a layer of a pool takes; segments without strides lie one behind the other. */
static uint64_t rig_layer_bytes(const struct rig *rig)
{
	uint64_t pages = rig->options.device_pages, most = 0;

	if (rig->segment[0].page_stride == 0)
		return pages * rig_page_rows(rig) * rig_row_bytes(rig);
	for (uint32_t g = 0; g < rig->layout.segments; g++) {
		const dhs_segment *s = &rig->segment[g];
		uint64_t end = s->offset + pages * s->page_stride;

		most = end > most ? end : most;
	}
	return most;
}

static void rig_make_pool(struct rig *rig)
{
	uint32_t layers = rig->layout.layers, segments = rig->layout.segments;
	uint64_t places = (uint64_t)rig->options.device_pages * rig_page_rows(rig), at = 0;
	char *memory;

	rig->pool_layer_bytes = rig_layer_bytes(rig);
	rig->pool = rig_keep(rig, sizeof(void *) * layers * segments);
	memory = rig_keep(rig, rig->pool_layer_bytes * layers + 64);
	memory += rig->pool_skew;
	for (uint32_t l = 0; l < layers; l++)
		for (uint32_t g = 0; g < segments; g++) {
			rig->pool[l * segments + g] = memory + l * rig->pool_layer_bytes + at;
			if (rig->segment[0].page_stride == 0)
				at = g + 1 < segments ? at + places * rig->segment[g].bytes : 0;
		}
	rig_use_pool(rig, rig->pool);
}

static void rig_lend_all(struct rig *rig)
{
	uint32_t count = rig->options.device_pages - 1;
	int32_t *pages = calloc(count, sizeof(int32_t));

	ck_assert_ptr_nonnull(pages);
	for (uint32_t i = 0; i < count; i++)
		pages[i] = (int32_t)i + 1;
	ck_good(dhs_lend_pages(rig->context, pages, count, rig->stream));
	free(pages);
}

static void rig_find_places(struct rig *rig)
{
	uint32_t layers = rig->layout.layers, segments = rig->layout.segments;

	rig->place = rig_keep(rig, sizeof(dhs_place) * layers * segments);
	for (uint32_t l = 0; l < layers; l++)
		for (uint32_t g = 0; g < segments; g++) {
			dhs_place *place = &rig->place[l * segments + g];

			place->size = sizeof(*place);
			ck_good(dhs_context_place(rig->context, l, g, place));
		}
}

void rig_open_host(struct rig *rig)
{
	uint32_t backend = device_backend();

	if (rig->shared_host)
		device_of_host(&rig->device, rig->host);
	else
		ck_good(device_open(&rig->device, backend, rig_seed(rig), &rig->host_memory.allocator));
	rig->opened = true;
	rig->host = rig->device.host;
	device_watch(&rig->memory.watch);
	ck_good(device_stream_create(&rig->device, &rig->stream));
	ck_good(device_stream_create(&rig->device, &rig->side));
	rig->options.backend = rig->device.backend;
	rig->options.host = rig->host;
}

bool rig_on_host(const struct rig *rig)
{
	return rig->device.backend == DHS_BACKEND_HOST;
}

void rig_launch(struct rig *rig, dhs_stream stream, void (*fn)(void *copy), const void *arg,
                size_t bytes)
{
	ck_good(device_launch(&rig->device, stream, fn, arg, bytes));
}

void rig_open(struct rig *rig)
{
	rig_open_host(rig);
	if (rig->engine_pool)
		rig_make_pool(rig);
	ck_good(dhs_context_create(&rig->options, &rig->context));
	if (rig->engine_pool)
		rig_lend_all(rig);
	rig_find_places(rig);
}

void rig_sync(struct rig *rig)
{
	ck_good(device_stream_sync(&rig->device, rig->stream));
	ck_good(device_stream_sync(&rig->device, rig->side));
	ck_assert_msg(atomic_load(&rig->bad) == 0, "%u wrong, first: %s", rig->bad, rig->words);
}

void rig_forget(struct rig *rig)
{
	while (rig->scraps != NULL) {
		struct scrap *scrap = rig->scraps;

		rig->scraps = scrap->next;
		if (scrap->device)
			device_release(scrap->device, scrap);
		else
			free(scrap);
	}
}

void rig_close(struct rig *rig)
{
	rig_sync(rig);
	dhs_context_destroy(rig->context);
	rig->context = NULL;
	ck_good(device_stream_destroy(&rig->device, rig->stream));
	ck_good(device_stream_destroy(&rig->device, rig->side));
	if (!rig->shared_host)
		ck_good(device_stop(&rig->device));
	device_watch(NULL);
	rig->host = NULL;
	for (uint32_t kind = 0; kind < 3; kind++) {
		ck_assert_uint_eq(rig->memory.bytes[kind], 0);
		ck_assert_uint_eq(rig->memory.blocks[kind], 0);
		ck_assert_uint_eq(rig->host_memory.bytes[kind], 0);
	}
	ck_assert_uint_eq(rig->memory.wrong, 0);
	ck_assert_uint_eq(rig->host_memory.wrong, 0);
	rig_forget(rig);
	ck_good(device_close(&rig->device));
	rig->opened = false;
}

dhs_stats rig_stats(struct rig *rig)
{
	dhs_stats s = DHS_INIT(dhs_stats);

	ck_good(dhs_context_stats(rig->context, &s));
	ck_assert_uint_eq(s.pages_reserved + s.pages_free + s.pages_draining + s.pages_required +
	                      s.pages_resident + s.pages_staging + s.pages_elastic,
	                  rig->options.device_pages);
	ck_assert_uint_le(s.host_rows_used, s.host_rows);
	return s;
}

dhs_session_info rig_info(struct rig *rig, dhs_session session)
{
	dhs_session_info info = DHS_INIT(dhs_session_info);

	ck_good(dhs_session_get_info(rig->context, session, &info));
	ck_assert_uint_le(info.rows, info.rows_bound);
	return info;
}

void rig_works(struct rig *rig)
{
	struct history history;
	struct table table;
	uint32_t rows = rig->options.max_rows < 30 ? rig->options.max_rows / 2 : 15;

	history_open(rig, &history);
	history_prefill(rig, &history, rows);
	table_open(rig, &table, 1, 1, 8);
	turn_one(&table, &history, 1, 1, NULL, 1);
	history_verify(&table, &history);
	history_close(rig, &history);
	rig_sync(rig);
	ck_good(dhs_context_wait(rig->context));
	table_close(&table);
}

/* ---- stamps --------------------------------------------------------------- */

static uint32_t stamp_word(uint32_t stamp, uint32_t layer, uint32_t segment, uint32_t word)
{
	uint32_t x = stamp * 0x9e3779b1u ^ layer * 0x85ebca77u ^ segment * 0xc2b2ae3du ^ word;

	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	x ^= x >> 12;
	return x | 1; /* never zero: zeroed memory holds no row */
}

static char *stamp_at(const dhs_place *place, int32_t slot)
{
	uint64_t page = (uint32_t)slot / place->page_rows, row = (uint32_t)slot % place->page_rows;

	return (char *)place->base + page * place->page_stride + row * place->row_stride;
}

void stamp_write(struct rig *rig, int32_t slot, uint32_t stamp)
{
	uint32_t segments = rig->layout.segments;

	for (uint32_t l = 0; l < rig->layout.layers; l++)
		for (uint32_t g = 0; g < segments; g++) {
			const dhs_place *place = &rig->place[l * segments + g];
			char *at = stamp_at(place, slot);

			for (uint32_t w = 0; w < place->bytes / 4; w++) {
				uint32_t word = stamp_word(stamp, l, g, w);

				memcpy(at + 4 * w, &word, 4);
			}
		}
}

static bool stamp_part_is(const dhs_place *place, int32_t slot, uint32_t stamp, uint32_t layer,
                          uint32_t segment)
{
	const char *at = stamp_at(place, slot);

	for (uint32_t w = 0; w < place->bytes / 4; w++) {
		uint32_t word;

		memcpy(&word, at + 4 * w, 4);
		if (word != stamp_word(stamp, layer, segment, w))
			return false;
	}
	return true;
}

bool stamp_is(const struct rig *rig, int32_t slot, uint32_t stamp, uint32_t first, uint32_t layers)
{
	uint32_t segments = rig->layout.segments;

	for (uint32_t l = first; l < first + layers; l++)
		for (uint32_t g = 0; g < segments; g++)
			if (!stamp_part_is(&rig->place[l * segments + g], slot, stamp, l, g))
				return false;
	return true;
}

static bool slot_in_pool(const struct rig *rig, int32_t slot)
{
	return slot >= 0 && (uint32_t)slot / rig_page_rows(rig) < rig->options.device_pages &&
	       (uint32_t)slot / rig_page_rows(rig) >= rig->options.reserved_pages;
}

/* What is behind a layer's pages, in whole 2 MiB, can be staging.  Where that ends is the
 * end of memory, too. */
static bool slot_behind_pool(const struct rig *rig, int32_t slot)
{
	uint64_t stride = rig->place[0].page_stride, window = UINT64_C(2) << 20;
	uint64_t own = (rig->options.device_pages * stride + window - 1) / window * window;

	return slot >= 0 && (uint32_t)slot / rig_page_rows(rig) * stride >= own;
}

static bool slot_has_row(const struct rig *rig, int32_t slot)
{
	return slot_in_pool(rig, slot) || (rig_stages_behind(rig) && slot_behind_pool(rig, slot));
}

/* ---- kernels -------------------------------------------------------------- */

void launch_copy(struct rig *rig, dhs_stream stream, void *to, const void *from, size_t bytes)
{
	ck_good(device_copy(&rig->device, stream, to, from, bytes));
}

/* Writes want[i] at slots[i]; want 0: the slot is the pad. */
struct write_job {
	struct rig *rig;
	const int32_t *slots;
	const uint32_t *want;
	size_t count;
	int32_t pad;
};

static void write_kernel(void *copy)
{
	const struct write_job *job = copy;

	for (size_t i = 0; i < job->count; i++) {
		int32_t slot = job->slots[i];

		if (job->want[i] == 0 ? slot != job->pad : !slot_in_pool(job->rig, slot))
			rig_wrong(job->rig, "new row %zu has slot %d", i, slot);
		else if (job->want[i] != 0)
			stamp_write(job->rig, slot, job->want[i]);
	}
	atomic_fetch_add(&job->rig->ran, 1);
}

/* Checks that slots[i] holds want[i] in these layers; want 0: the pad. */
struct check_job {
	struct rig *rig;
	const int32_t *slots;
	const uint32_t *want;
	const int32_t *rows;
	size_t count;
	uint32_t group, first, layers;
	int32_t pad;
};

static void check_kernel(void *copy)
{
	const struct check_job *job = copy;

	for (size_t i = 0; i < job->count; i++) {
		int32_t slot = job->slots[i];

		if (job->want[i] == 0 ? slot != job->pad : !slot_has_row(job->rig, slot))
			rig_wrong(job->rig, "group %u entry %zu, row %d, has slot %d", job->group, i,
			          job->rows[i], slot);
		else if (job->want[i] != 0 &&
		         !stamp_is(job->rig, slot, job->want[i], job->first, job->layers))
			rig_wrong(job->rig, "group %u entry %zu, row %d, slot %d: wrong bytes", job->group, i,
			          job->rows[i], slot);
	}
	atomic_fetch_add(&job->rig->ran, 1);
}

/* ---- histories ------------------------------------------------------------ */

void history_open(struct rig *rig, struct history *history)
{
	memset(history, 0, sizeof(*history));
	ck_good(dhs_session_create(rig->context, NULL, &history->id));
	ck_assert_uint_ne(history->id, 0);
	history->stamp = rig_keep(rig, sizeof(uint32_t) * rig->options.max_rows);
}

void history_prefill(struct rig *rig, struct history *history, uint32_t rows)
{
	struct write_job job = { .rig = rig, .count = rows, .pad = -1 };
	int32_t *slots = rig_keep(rig, sizeof(int32_t) * rows);
	uint32_t *want = rig_keep(rig, sizeof(uint32_t) * rows);

	if (rows == 0)
		return;
	ck_good(dhs_session_extend(rig->context, history->id, rows, rig->stream, slots));
	for (uint32_t i = 0; i < rows; i++)
		want[i] = history->stamp[history->rows + i] = rig->next_stamp++;
	job.slots = slots;
	job.want = want;
	rig_launch(rig, rig->stream, write_kernel, &job, sizeof(job));
	ck_good(dhs_session_commit(rig->context, history->id, rows, rig->stream));
	history->rows += rows;
	history->settled += rows;
}

void history_truncate(struct rig *rig, struct history *history, uint64_t rows)
{
	ck_good(dhs_session_truncate(rig->context, history->id, rows));
	history->rows = history->settled = rows;
}

void history_close(struct rig *rig, struct history *history)
{
	ck_good(dhs_session_destroy(rig->context, history->id));
	history->id = 0;
}

/* ---- tables --------------------------------------------------------------- */

void table_open_options(struct rig *rig, struct table *table, const dhs_batch_options *options)
{
	dhs_batch_options *o = &table->options;

	*o = *options;
	table->rig = rig;
	ck_good(dhs_batch_create(rig->context, options, &table->batch));
	if (o->max_sessions == 0)
		o->max_sessions = rig->options.max_sessions != 0 ? rig->options.max_sessions : 256;
	if (o->max_queries == 0)
		o->max_queries = 1;
	if (o->read_pad == 0 && !(o->flags & DHS_BATCH_READ_PAD))
		o->read_pad = -1;
	if (o->write_pad == 0 && !(o->flags & DHS_BATCH_WRITE_PAD))
		o->write_pad = -1;
}

void table_open(struct rig *rig, struct table *table, uint32_t sessions, uint32_t queries,
                uint32_t top_k)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	options.max_sessions = sessions;
	options.max_queries = queries;
	options.top_k = top_k;
	table_open_options(rig, table, &options);
}

void table_close(struct table *table)
{
	ck_good(dhs_batch_destroy(table->batch));
	table->batch = NULL;
}

size_t table_entries(const struct table *table)
{
	return (size_t)table->options.max_sessions * table->options.max_queries * table->options.top_k;
}

/* ---- turns ---------------------------------------------------------------- */

void turn_open(struct turn *turn, struct table *table)
{
	memset(turn, 0, sizeof(*turn));
	turn->rig = table->rig;
	turn->table = table;
	turn->stream = table->rig->stream;
}

void turn_add(struct turn *turn, struct history *history, uint32_t new_rows, uint32_t queries,
              uint32_t kept)
{
	struct turn_entry *entry = &turn->entry[turn->count++];

	ck_assert_uint_le(turn->count, TURN_ENTRIES);
	ck_assert_uint_le(new_rows, TURN_NEW);
	*entry = (struct turn_entry){
		.history = history, .new_rows = new_rows, .queries = queries, .kept = kept
	};
}

static void turn_stamp(struct turn *turn)
{
	for (uint32_t e = 0; e < turn->count; e++) {
		struct turn_entry *entry = &turn->entry[e];

		if (entry->history == NULL)
			continue;
		entry->length = entry->history->rows;
		for (uint32_t i = 0; i < entry->new_rows; i++)
			entry->stamp[i] = turn->rig->next_stamp++;
	}
}

int turn_try_begin(struct turn *turn)
{
	dhs_step_entry entries[TURN_ENTRIES];
	int rc;

	memset(entries, 0, sizeof(entries));
	for (uint32_t e = 0; e < turn->count; e++)
		if (turn->entry[e].history != NULL) {
			entries[e].session = turn->entry[e].history->id;
			entries[e].new_rows = turn->entry[e].new_rows;
			entries[e].queries = turn->entry[e].queries;
		}
	rc = dhs_step_begin(turn->table->batch, entries, turn->count, sizeof(entries[0]), turn->stream,
	                    &turn->step);
	if (rc == 0)
		turn_stamp(turn);
	return rc;
}

void turn_begin(struct turn *turn)
{
	ck_good(turn_try_begin(turn));
	ck_assert_uint_ne(turn->step, 0);
}

void turn_write(struct turn *turn)
{
	uint32_t sessions = turn->table->options.max_sessions;
	uint32_t rows = turn->rig->options.max_new_rows != 0 ? turn->rig->options.max_new_rows : 16;
	struct write_job job = { .rig = turn->rig, .count = (size_t)sessions * rows };
	uint32_t *want = rig_keep(turn->rig, sizeof(uint32_t) * job.count);

	turn->new_slots = rig_keep(turn->rig, sizeof(int32_t) * job.count);
	memset(turn->new_slots, 0x77, sizeof(int32_t) * job.count);
	for (uint32_t e = 0; e < turn->count; e++)
		for (uint32_t i = 0; turn->entry[e].history != NULL && i < turn->entry[e].new_rows; i++)
			want[(size_t)e * rows + i] = turn->entry[e].stamp[i];
	ck_good(dhs_step_slots(turn->table->batch, sessions, rows, turn->new_slots, turn->stream));
	job.slots = turn->new_slots;
	job.want = want;
	job.pad = turn->table->options.write_pad;
	rig_launch(turn->rig, turn->stream, write_kernel, &job, sizeof(job));
}

int32_t *turn_at(const struct turn *turn, int32_t *rows, uint32_t entry, uint32_t query)
{
	const dhs_batch_options *o = &turn->table->options;

	return rows + ((size_t)entry * o->max_queries + query) * o->top_k;
}

int32_t *turn_blank(struct turn *turn)
{
	size_t count = table_entries(turn->table);
	int32_t *rows = rig_keep(turn->rig, sizeof(int32_t) * count);

	memset(rows, 0xff, sizeof(int32_t) * count);
	return rows;
}

static int32_t wild_row(struct dice *dice, uint64_t all, int32_t before)
{
	static const int32_t odd[] = { -1, -1, INT32_MIN, INT32_MAX, -2, 0x00ffffff };
	uint32_t face = dice_below(dice, 16);

	if (face == 0)
		return odd[dice_below(dice, COUNT_OF(odd))];
	if (face == 1)
		return before;
	if (face == 2)
		return (int32_t)all - 2 + (int32_t)dice_below(dice, 4);
	if (face == 3 || all == 0)
		return (int32_t)dice_below(dice, 3);
	return (int32_t)dice_below(dice, (uint32_t)all);
}

int32_t *turn_wild(struct turn *turn, struct dice *dice)
{
	const dhs_batch_options *o = &turn->table->options;
	int32_t *rows = turn_blank(turn);

	for (uint32_t e = 0; e < turn->count; e++)
		for (uint32_t i = 0; i < o->max_queries * o->top_k; i++) {
			const struct turn_entry *entry = &turn->entry[e];
			int32_t *at = turn_at(turn, rows, e, 0);

			at[i] = wild_row(dice, entry->length + entry->new_rows,
			                 i > 0 ? at[dice_below(dice, i)] : 0);
		}
	return rows;
}

static uint32_t turn_wants(const struct turn_entry *entry, int32_t row)
{
	if (row < 0 || (uint64_t)row >= entry->length + entry->new_rows)
		return 0;
	if ((uint64_t)row >= entry->length)
		return entry->stamp[(uint64_t)row - entry->length];
	return entry->history->stamp[row];
}

static void turn_expect(struct turn *turn, uint32_t group, const int32_t *rows)
{
	const dhs_batch_options *o = &turn->table->options;
	uint32_t *want = rig_keep(turn->rig, sizeof(uint32_t) * table_entries(turn->table));

	for (uint32_t e = 0; e < turn->count; e++) {
		const struct turn_entry *entry = &turn->entry[e];
		size_t from = (size_t)e * o->max_queries * o->top_k;

		if (entry->history == NULL)
			continue;
		for (uint32_t i = 0; i < entry->queries * o->top_k; i++)
			want[from + i] = turn_wants(entry, rows[from + i]);
	}
	turn->want[group] = want;
}

void turn_plan(struct turn *turn, uint32_t group, const int32_t *rows)
{
	size_t bytes = sizeof(int32_t) * table_entries(turn->table);
	dhs_selection selection = DHS_INIT(dhs_selection);
	int32_t *kept = rig_keep(turn->rig, bytes); /* the copy may run late */

	memcpy(kept, rows, bytes);
	turn->rows[group] = rig_keep(turn->rig, bytes);
	turn->slots[group] = rig_keep(turn->rig, bytes);
	memset(turn->rows[group], 0x66, bytes);
	memset(turn->slots[group], 0x77, bytes);
	launch_copy(turn->rig, turn->stream, turn->rows[group], kept, bytes);
	selection.rows = turn->rows[group];
	selection.slots = turn->slots[group];
	ck_good(dhs_step_plan(turn->table->batch, group, &selection, turn->stream));
	turn_expect(turn, group, rows);
}

void turn_check(struct turn *turn, uint32_t group)
{
	struct check_job job = { .rig = turn->rig, .group = group };

	job.slots = turn->slots[group];
	job.want = turn->want[group];
	job.rows = turn->rows[group];
	job.count = table_entries(turn->table);
	job.pad = turn->table->options.read_pad;
	rig_group(turn->rig, group, &job.first, &job.layers);
	rig_launch(turn->rig, turn->stream, check_kernel, &job, sizeof(job));
}

void turn_resolve(struct turn *turn, uint32_t group, const int32_t *rows)
{
	turn_plan(turn, group, rows);
	ck_good(dhs_step_fetch(turn->table->batch, group, 0, 0, turn->stream));
	turn_check(turn, group);
}

void turn_resolve_all(struct turn *turn, const int32_t *rows)
{
	for (uint32_t g = 0; g < rig_groups(turn->rig); g++)
		turn_resolve(turn, g, rows);
}

static uint32_t turn_keeps(const struct turn_entry *entry)
{
	return entry->kept < entry->new_rows ? entry->kept : entry->new_rows;
}

/* What the device keeps becomes part of the histories. */
static void turn_append(struct turn *turn)
{
	for (uint32_t e = 0; e < turn->count; e++) {
		struct turn_entry *entry = &turn->entry[e];

		if (entry->history == NULL || entry->cancelled)
			continue;
		for (uint32_t i = 0; i < turn_keeps(entry); i++)
			entry->history->stamp[entry->history->rows++] = entry->stamp[i];
	}
}

void turn_commit(struct turn *turn)
{
	uint32_t sessions = turn->table->options.max_sessions;
	int32_t *kept = rig_keep(turn->rig, sizeof(int32_t) * sessions);
	int32_t *kept_dev = rig_keep(turn->rig, sizeof(int32_t) * sessions);

	memset(kept_dev, 0x55, sizeof(int32_t) * sessions);
	for (uint32_t e = 0; e < sessions; e++)
		kept[e] = e < turn->count ? (int32_t)turn->entry[e].kept : 0x44444444;
	launch_copy(turn->rig, turn->stream, kept_dev, kept, sizeof(int32_t) * sessions);
	ck_good(dhs_step_commit(turn->table->batch, sessions, kept_dev, turn->stream));
	turn_append(turn);
}

static void turn_count(struct turn *turn, uint32_t *kept)
{
	for (uint32_t e = 0; e < turn->count; e++) {
		struct turn_entry *entry = &turn->entry[e];

		kept[e] = entry->history == NULL ? 0 : turn_keeps(entry);
		if (entry->history != NULL && !entry->cancelled)
			entry->history->settled += kept[e];
	}
}

void turn_settle(struct turn *turn)
{
	uint32_t kept[TURN_ENTRIES];

	turn_count(turn, kept);
	ck_good(dhs_step_settle(turn->rig->context, turn->step, kept, turn->count));
}

void turn_end(struct turn *turn)
{
	uint32_t kept[TURN_ENTRIES];

	turn_count(turn, kept);
	ck_good(dhs_step_end(turn->rig->context, turn->step, kept, turn->count));
	turn_append(turn);
}

void turn_abort(struct turn *turn)
{
	ck_good(dhs_step_abort(turn->rig->context, turn->step));
}

void turn_one(struct table *table, struct history *history, uint32_t new_rows, uint32_t kept,
              const int32_t *rows, uint32_t queries)
{
	struct turn turn;

	turn_open(&turn, table);
	turn_add(&turn, history, new_rows, queries, kept);
	turn_begin(&turn);
	turn_write(&turn);
	turn_resolve_all(&turn, rows != NULL ? rows : turn_blank(&turn));
	turn_end(&turn);
}

void history_verify(struct table *table, struct history *history)
{
	uint32_t each = table->options.max_queries * table->options.top_k;

	for (uint64_t at = 0; at < history->rows; at += each) {
		struct turn turn;
		int32_t *rows;

		turn_open(&turn, table);
		turn_add(&turn, history, 0, table->options.max_queries, 0);
		turn_begin(&turn);
		rows = turn_blank(&turn);
		for (uint32_t i = 0; i < each && at + i < history->rows; i++)
			rows[i] = (int32_t)(at + i);
		turn_resolve_all(&turn, rows);
		turn_end(&turn);
	}
}
