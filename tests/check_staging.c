/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Staging behind the library's pool: one memory that the layers at one position of
 * their groups see, with page numbers behind the pool's.  The system's calls for it are
 * this program's, so that they can be counted and refused. */
#define _GNU_SOURCE /* memfd_create */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WINDOW (UINT64_C(2) << 20)
#define TOLD "max_staging_rows"

static uint64_t whole_windows(uint64_t bytes)
{
	return (bytes + WINDOW - 1) / WINDOW;
}

/* ---- the system's calls --------------------------------------------------- */

/* A mapping at an address of the library's choice; file 0: memory of its own. */
struct mapping {
	unsigned char *at;
	size_t bytes;
	uint32_t file;
};

/* Of this thread, which makes all calls of a test but those of threads of libraries. */
struct system {
	struct mapping mapping[8192];
	uint32_t mappings;
	uint32_t reserved;       /* ranges of addresses */
	uint64_t reserved_bytes; /* of the last of them */
	void *range[8];
	uint32_t files; /* ever made */
	uint32_t asked; /* calls that can fail, since arming */
	uint32_t fail_at;
	bool fail_on; /* and all after it */
	uint32_t wrong;
};

static _Thread_local struct system *watched; /* NULL: nobody watches */

static bool refuses(struct system *s)
{
	s->asked++;
	if (s->fail_at == 0 || s->asked < s->fail_at || (s->asked > s->fail_at && !s->fail_on))
		return false;
	errno = ENOMEM;
	return true;
}

static void forget(struct system *s, const void *at, size_t bytes)
{
	const unsigned char *from = at;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->mappings; i++) {
		const struct mapping *m = &s->mapping[i];

		if (m->at + m->bytes <= from || m->at >= from + bytes)
			s->mapping[n++] = *m;
		else if (m->at < from || m->at + m->bytes > from + bytes)
			s->wrong++; /* a part of one */
	}
	s->mappings = n;
}

static void remember(struct system *s, void *at, size_t bytes, uint32_t file)
{
	uint32_t before = s->mappings;

	forget(s, at, bytes);
	s->wrong += s->mappings != before; /* over what was there */
	if (s->mappings == COUNT_OF(s->mapping))
		s->wrong++;
	else
		s->mapping[s->mappings++] = (struct mapping){ at, bytes, file };
}

static void remember_range(struct system *s, void *at, size_t bytes)
{
	s->reserved_bytes = bytes;
	if (s->reserved == COUNT_OF(s->range))
		s->wrong++;
	else
		s->range[s->reserved++] = at;
}

/* Called before sanitizers are ready, too. */
#define EARLY __attribute__((no_sanitize("thread")))

EARLY static void *map(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
	return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}

EARLY void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
	struct system *s = watched;
	bool fixed = flags & MAP_FIXED, empty = access == PROT_NONE;
	void *made;

	if (!s || (!fixed && !empty))
		return map(at, bytes, access, flags, file, offset);
	if (!(fixed && empty) && refuses(s))
		return MAP_FAILED;
	made = map(at, bytes, access, flags, file, offset);
	if (made == MAP_FAILED)
		return made;
	if (!fixed)
		remember_range(s, made, bytes);
	else if (empty)
		forget(s, at, bytes);
	else
		remember(s, at, bytes, file < 0 ? 0 : s->files);
	return made;
}

EARLY int munmap(void *at, size_t bytes)
{
	struct system *s = watched;

	if (s)
		for (uint32_t i = 0; i < s->reserved; i++)
			if (s->range[i] == at) {
				forget(s, at, bytes);
				s->range[i] = s->range[--s->reserved];
				break;
			}
	return (int)syscall(SYS_munmap, at, bytes);
}

EARLY int memfd_create(const char *name, unsigned flags)
{
	if (watched && refuses(watched))
		return -1;
	if (watched)
		watched->files++;
	return (int)syscall(SYS_memfd_create, name, flags);
}

EARLY int ftruncate(int file, off_t bytes)
{
	if (watched && refuses(watched))
		return -1;
	return (int)syscall(SYS_ftruncate, file, bytes);
}

/* Bytes of memory behind all mappings: each file once. */
static uint64_t mapped_bytes(const struct system *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->mappings; i++) {
		bool again = false;

		for (uint32_t j = 0; s->mapping[i].file && j < i; j++)
			again |= s->mapping[j].file == s->mapping[i].file;
		bytes += again ? 0 : s->mapping[i].bytes;
	}
	return bytes;
}

static uint32_t open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t count = 0;

	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Lines of /proc/self/maps that show memory of staging. */
static uint32_t shown_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[400];
	uint32_t count = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "dhisparse-staging") != NULL;
	fclose(maps);
	return count;
}

/* ---- a context that is watched ---------------------------------------------- */

struct stage {
	struct rig rig;
	struct system system;
	uint32_t files, shown; /* before */
	uint64_t pool_bytes;   /* mapped for the pool */
};

/* Three groups, of two layers, one and three. */
static void stage_default(struct stage *t)
{
	memset(&t->system, 0, sizeof(t->system));
	rig_default(&t->rig);
	t->rig.options.policy = DHS_POLICY_FIXED;
	t->rig.layout.layers = 6;
	t->rig.layout.groups = 3;
	t->rig.group_layers[0] = 2;
	t->rig.group_layers[1] = 1;
	t->rig.group_layers[2] = 3;
	t->files = open_files();
	t->shown = shown_mappings();
	watched = &t->system;
}

static void stage_open(struct stage *t)
{
	rig_open(&t->rig);
	t->pool_bytes = mapped_bytes(&t->system);
	ck_assert_uint_gt(t->pool_bytes, 0);
}

static void nothing_left(struct stage *t)
{
	ck_assert_uint_eq(t->system.mappings, 0);
	ck_assert_uint_eq(t->system.reserved, 0);
	ck_assert_uint_eq(t->system.wrong, 0);
	ck_assert_uint_eq(shown_mappings(), t->shown);
	ck_assert_uint_eq(open_files(), t->files);
}

static void stage_close(struct stage *t)
{
	rig_close(&t->rig);
	nothing_left(t);
	watched = NULL;
}

/* What is mapped now is the pool and what the gauge tells. */
static void check_mapped(struct stage *t)
{
	dhs_stats stats = rig_stats(&t->rig);

	ck_assert_uint_eq(mapped_bytes(&t->system) - t->pool_bytes, stats.staging_bytes);
	ck_assert_uint_eq(stats.pages_staging, 0);
}

static uint64_t stride_of(const struct stage *t)
{
	return t->rig.place[0].page_stride;
}

/* The first page number behind the pool's part of a layer's addresses. */
static uint32_t first_behind(const struct stage *t)
{
	uint64_t own = whole_windows(t->rig.options.device_pages * stride_of(t)) * WINDOW;

	return (uint32_t)((own + stride_of(t) - 1) / stride_of(t));
}

/* One session whose selections leave `staged` rows without a place in the hot cache. */
static void open_staged(struct stage *t, struct table *table, uint32_t staged, uint32_t buffers)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	options.max_sessions = 1;
	options.top_k = t->rig.options.hot_rows + staged;
	options.staging_buffers = buffers;
	table_open_options(&t->rig, table, &options);
}

/* Page by page, so that the pool need not hold it. */
static void open_history(struct stage *t, struct history *history, uint32_t rows)
{
	uint32_t page_rows = rig_page_rows(&t->rig);

	history_open(&t->rig, history);
	for (uint32_t left = rows; left > 0; left -= left < page_rows ? left : page_rows)
		history_prefill(&t->rig, history, left < page_rows ? left : page_rows);
}

/* Selects the first rows, so that all hot places and all of staging are used. */
static const int32_t *first_rows(struct turn *turn)
{
	int32_t *rows = turn_blank(turn);

	for (uint32_t i = 0; i < turn->table->options.top_k; i++)
		rows[i] = (int32_t)i;
	return rows;
}

static void start_turn(struct turn *turn, struct table *table, struct history *history)
{
	turn_open(turn, table);
	turn_add(turn, history, 1, 1, 1);
	turn_begin(turn);
	turn_write(turn);
}

static void plan_and_fetch(struct turn *turn, uint32_t group)
{
	turn_plan(turn, group, first_rows(turn));
	ck_good(dhs_step_fetch(turn->table->batch, group, 0, 0, turn->stream));
}

/* The slots behind the pool of a group's plan; how many. */
static uint32_t staged_slots(const struct turn *turn, uint32_t group, int32_t *slots)
{
	uint32_t pages = turn->rig->options.device_pages, count = 0;

	for (size_t i = 0; i < table_entries(turn->table); i++)
		if ((uint32_t)turn->slots[group][i] / rig_page_rows(turn->rig) >= pages)
			slots[count++] = turn->slots[group][i];
	return count;
}

/* Plans a group alone and gives its slots behind the pool. */
static uint32_t stage_once(struct table *table, struct history *history, uint32_t group,
                           int32_t *slots)
{
	struct turn turn;
	uint32_t count;

	start_turn(&turn, table, history);
	plan_and_fetch(&turn, group);
	turn_check(&turn, group);
	turn_end(&turn);
	rig_sync(table->rig);
	count = staged_slots(&turn, group, slots);
	return count;
}

/* ---- one memory for all groups ------------------------------------------------ */

static uint32_t position_of(const struct rig *rig, uint32_t layer)
{
	uint32_t first = 0, layers = 0;

	for (uint32_t g = 0; layer >= first + layers; g++)
		rig_group(rig, g, &first, &layers);
	return layer - first;
}

static uint32_t *word_at(const struct stage *t, uint32_t layer, int32_t slot, uint32_t word)
{
	const dhs_place *p = &t->rig.place[layer];
	uint64_t page = (uint32_t)slot / p->page_rows, row = (uint32_t)slot % p->page_rows;

	return (uint32_t *)((char *)p->base + page * p->page_stride + row * p->row_stride) + word;
}

/* A word written through one layer shows in the layers of its position, and in no other. */
static void check_aliases(const struct stage *t, int32_t slot, uint32_t word)
{
	uint32_t layers = t->rig.layout.layers;

	for (uint32_t l = 0; l < layers; l++) {
		for (uint32_t m = 0; m < layers; m++)
			*word_at(t, m, slot, word) = 1;
		*word_at(t, l, slot, word) = 2;
		for (uint32_t m = 0; m < layers; m++) {
			bool same = position_of(&t->rig, m) == position_of(&t->rig, l);

			ck_assert_uint_eq(*word_at(t, m, slot, word), same ? 2 : 1);
		}
	}
}

static const uint32_t group_shapes[][RIG_GROUPS] = { { 2, 1, 3 },    { 1, 1, 1 }, { 3 },
	                                                 { 1, 4, 4, 2 }, { 4, 1, 2 }, { 1 } };

static void shape_groups(struct stage *t, const uint32_t *group_layers)
{
	struct rig *rig = &t->rig;

	rig->layout.layers = rig->layout.groups = 0;
	for (uint32_t g = 0; group_layers[g] != 0; g++) {
		rig->group_layers[g] = group_layers[g];
		rig->layout.layers += group_layers[g];
		rig->layout.groups++;
	}
}

START_TEST(test_aliases)
{
	struct stage t;
	struct history history;
	struct table table[2];
	int32_t slots[20];

	stage_default(&t);
	shape_groups(&t, group_shapes[_i]);
	stage_open(&t);
	open_history(&t, &history, 40);
	for (uint32_t i = 0; i < 2; i++) {
		open_staged(&t, &table[i], 12, 1);
		ck_assert_uint_eq(stage_once(&table[i], &history, 0, slots), 12);
		for (uint32_t s = 0; s < 12; s++)
			check_aliases(&t, slots[s], s);
	}
	stage_close(&t);
}
END_TEST

/* Pages of the pool are each layer's own. */
START_TEST(test_pool_is_apart)
{
	struct stage t;

	stage_default(&t);
	stage_open(&t);
	for (int32_t slot = 0; slot < 64 * 4; slot++)
		stamp_write(&t.rig, slot, (uint32_t)slot + 1);
	for (int32_t slot = 0; slot < 64 * 4; slot++)
		ck_assert(stamp_is(&t.rig, slot, (uint32_t)slot + 1, 0, 6));
	stage_close(&t);
}
END_TEST

/* ---- pages, bytes and slots ------------------------------------------------------ */

START_TEST(test_takes_no_page)
{
	struct stage t;
	struct table table;
	dhs_required required = DHS_INIT(dhs_required);
	dhs_stats before, with;

	stage_default(&t);
	stage_open(&t);
	ck_good(dhs_context_required(&t.rig.options, &required));
	ck_assert_uint_eq(t.pool_bytes, required.pool_bytes);
	before = rig_stats(&t.rig);
	ck_assert_uint_eq(before.staging_bytes, 0);
	open_staged(&t, &table, 100, 3);
	ck_good(dhs_batch_required(&t.rig.options, &table.options, &required));
	ck_assert_uint_eq(required.staging_pages, 0);
	with = rig_stats(&t.rig);
	ck_assert_uint_eq(with.staging_bytes, required.staging_bytes);
	ck_assert_uint_eq(with.staging_bytes, 3 * WINDOW);
	check_mapped(&t);
	ck_assert_uint_eq(with.pages_free, before.pages_free);
	ck_assert_uint_eq(with.pages_staging, 0);
	table_close(&table);
	with = rig_stats(&t.rig);
	ck_assert_mem_eq(&with, &before, sizeof(with));
	check_mapped(&t);
	stage_close(&t);
}
END_TEST

/* All pages are sessions', and a batch is made all the same. */
START_TEST(test_full_pool)
{
	struct stage t;
	struct history history;
	struct table table;

	stage_default(&t);
	t.rig.options.device_pages = 5;
	stage_open(&t);
	open_history(&t, &history, 40);
	ck_assert_uint_eq(rig_stats(&t.rig).pages_free, 0);
	open_staged(&t, &table, 30, 2);
	history_verify(&table, &history);
	stage_close(&t);
}
END_TEST

static void check_behind(const struct stage *t, const int32_t *slots, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_ge((uint32_t)slots[i] / 4, first_behind(t));
}

static void check_apart(const int32_t *a, uint32_t a_count, const int32_t *b, uint32_t b_count)
{
	for (uint32_t i = 0; i < a_count; i++)
		for (uint32_t j = 0; j < b_count; j++)
			ck_assert_int_ne(a[i], b[j]);
}

/* Two batches of two buffers hold the rows of two groups each, all at the same time. */
START_TEST(test_rows)
{
	enum { STAGED = 11 };
	struct stage t;
	struct history history[2];
	struct table table[2];
	struct turn turn[2];
	int32_t slots[4][STAGED];

	stage_default(&t);
	t.rig.seed = (uint64_t)_i;
	stage_open(&t);
	for (uint32_t i = 0; i < 2; i++) {
		open_history(&t, &history[i], 40);
		open_staged(&t, &table[i], STAGED, 2);
	}
	for (uint32_t i = 0; i < 2; i++) {
		start_turn(&turn[i], &table[i], &history[i]);
		plan_and_fetch(&turn[i], 0);
		plan_and_fetch(&turn[i], 2);
	}
	for (uint32_t i = 0; i < 2; i++) {
		turn_check(&turn[i], 0);
		turn_check(&turn[i], 2);
	}
	turn_end(&turn[0]);
	turn_end(&turn[1]);
	rig_sync(&t.rig);
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(staged_slots(&turn[i / 2], i % 2 * 2, slots[i]), STAGED);
		check_behind(&t, slots[i], STAGED);
		for (uint32_t j = 0; j < i; j++)
			check_apart(slots[j], STAGED, slots[i], STAGED);
	}
	stage_close(&t);
}
END_TEST

/* ---- shapes ------------------------------------------------------------------------ */

struct page_shape {
	uint32_t row_bytes, page_rows, pages, staged;
	uint64_t page_stride; /* 0: what the rows take */
};

static const struct page_shape page_shapes[] = {
	{ 656, 64, 60, 300, 0 },              /* of the field: 41 KiB */
	{ 20, 7, 40, 100, 0 },                /* 140 bytes */
	{ 16384, 96, 5, 4 * 96, 0 },          /* 1.5 MiB: four of them are just three windows */
	{ 16384, 96, 5, 4 * 96 - 1, 0 },      /* and a row less */
	{ 16384, 128, 5, 2 * 128, 0 },        /* one window each */
	{ 16384, 160, 5, 200, 0 },            /* 2.5 MiB */
	{ 64, 4, 30, 30, WINDOW - 4 },        /* pages nearly as far apart as windows are */
	{ 64, 4, 30, 30, WINDOW + 4 },        /* and a little more */
	{ 64, 4, 30, 30, 5 * WINDOW + 1024 }, /* further */
	{ 64, 1, 60, 50, 4096 },
};

static void shape_pages(struct stage *t, const struct page_shape *shape)
{
	struct rig *rig = &t->rig;

	rig->segment[0].bytes = shape->row_bytes;
	rig->segment[0].page_stride = shape->page_stride;
	rig->layout.page_rows = shape->page_rows;
	rig->layout.layers = 3;
	rig->layout.groups = 2;
	rig->group_layers[0] = 1;
	rig->group_layers[1] = 2;
	rig->options.max_sessions = 2;
	rig->options.max_rows = 600;
	rig->options.host_rows = 1200;
	rig->options.hot_rows = 2;
	rig->options.tail_rows = 1;
	rig->options.max_new_rows = 1;
	rig->options.device_pages = shape->pages;
}

/* All rows of all staging pages are used at once. */
START_TEST(test_page_shapes)
{
	const struct page_shape *shape = &page_shapes[_i];
	struct stage t;
	struct history history;
	struct table table[2];
	int32_t slots[2][512];

	stage_default(&t);
	shape_pages(&t, shape);
	stage_open(&t);
	ck_assert_uint_eq(stride_of(&t) % 4, 0);
	open_history(&t, &history, shape->staged + 2 * shape->page_rows + 10);
	for (uint32_t i = 0; i < 2; i++) {
		open_staged(&t, &table[i], shape->staged, 1);
		check_mapped(&t);
	}
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t count = stage_once(&table[i], &history, 1, slots[i]);

		ck_assert_uint_eq(count, shape->staged);
		for (uint32_t s = 0; s < count; s++)
			ck_assert_uint_ge((uint32_t)slots[i][s] / shape->page_rows, first_behind(&t));
	}
	check_apart(slots[0], shape->staged, slots[1], shape->staged);
	stage_close(&t);
}
END_TEST

/* ---- windows come and go -------------------------------------------------------------- */

/* Where the newest mapping of a batch lies, counted in windows behind the pool. */
static uint64_t newest_window(const struct stage *t)
{
	const struct mapping *m = &t->system.mapping[t->system.mappings - 1];
	uint64_t own = whole_windows(t->rig.options.device_pages * stride_of(t)) * WINDOW;
	uint64_t span = t->system.reserved_bytes / t->rig.layout.layers;

	return ((uint64_t)(m->at - (unsigned char *)t->rig.place[0].base) % span - own) / WINDOW;
}

enum { BATCHES = 4 };

/* Batches of one, two, three and four windows: pages of 1 MiB. */
static void coarse(struct stage *t)
{
	t->rig.segment[0].page_stride = WINDOW / 2;
	t->rig.options.max_rows = 64;
	t->rig.options.host_rows = 128;
	t->rig.options.device_pages = 20;
}

static void open_windows(struct stage *t, struct table *table, uint32_t windows)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	options.flags = DHS_BATCH_STAGING_ROWS;
	options.max_sessions = 1;
	options.top_k = 4;
	options.staging_rows = (windows * 2 - 1) * 4; /* pages, and one more for the rest */
	table_open_options(&t->rig, table, &options);
	check_mapped(t);
}

static void nth_order(uint32_t n, uint32_t order[BATCHES])
{
	uint32_t left[BATCHES] = { 0, 1, 2, 3 };

	for (uint32_t i = 0, radix = 24; i < BATCHES; i++) {
		uint32_t at;

		radix /= BATCHES - i;
		at = n / radix % (BATCHES - i);
		order[i] = left[at];
		memmove(left + at, left + at + 1, (BATCHES - 1 - at) * sizeof(left[0]));
	}
}

/* Destroyed in any order; the lowest windows that suffice are used again first. */
START_TEST(test_orders)
{
	static const uint32_t first[BATCHES] = { 0, 1, 3, 6 };
	struct stage t;
	struct table table[BATCHES];
	uint32_t order[BATCHES];

	stage_default(&t);
	coarse(&t);
	stage_open(&t);
	nth_order((uint32_t)_i, order);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < BATCHES; i++) {
			open_windows(&t, &table[i], i + 1);
			ck_assert_uint_eq(newest_window(&t), first[i]);
		}
		for (uint32_t i = 0; i < BATCHES; i++) {
			uint32_t gone = order[i];

			table_close(&table[gone]);
			check_mapped(&t);
			open_windows(&t, &table[gone], gone + 1);
			ck_assert_uint_le(newest_window(&t), first[gone]);
			table_close(&table[gone]);
			check_mapped(&t);
		}
		ck_assert_uint_eq(rig_stats(&t.rig).staging_bytes, 0);
		ck_assert_uint_eq(shown_mappings(), t.shown);
	}
	stage_close(&t);
}
END_TEST

/* More batches, one after the other, than there are windows. */
START_TEST(test_again_and_again)
{
	struct stage t;
	struct table table;

	stage_default(&t);
	coarse(&t);
	t.rig.options.max_staging_rows = 1;
	stage_open(&t);
	for (uint32_t i = 0; i < 200; i++) {
		open_windows(&t, &table, 1 + i % 5);
		ck_assert_uint_eq(newest_window(&t), 0);
		table_close(&table);
	}
	stage_close(&t);
}
END_TEST

/* Random batches of random sizes: the model is a map of windows. */
START_TEST(test_random_windows)
{
	enum { MOST = 12, ROOM = 200 };
	struct stage t;
	struct table table[MOST] = { { 0 } };
	uint32_t first[MOST], count[MOST];
	unsigned char taken[ROOM] = { 0 };
	struct dice dice = { (uint64_t)_i };

	stage_default(&t);
	coarse(&t);
	stage_open(&t);
	for (uint32_t n = 0; n < support_times(300); n++) {
		uint32_t i = dice_below(&dice, MOST), run = 0, w = 0;

		if (table[i].batch) {
			table_close(&table[i]);
			memset(taken + first[i], 0, count[i]);
			check_mapped(&t);
			continue;
		}
		count[i] = 1 + dice_below(&dice, 8);
		while (run < count[i])
			run = taken[w++] ? 0 : run + 1;
		first[i] = w - count[i];
		memset(taken + first[i], 1, count[i]);
		open_windows(&t, &table[i], count[i]);
		ck_assert_uint_eq(newest_window(&t), first[i]);
	}
	stage_close(&t);
}
END_TEST

/* ---- how many there are ------------------------------------------------------------------ */

static int try_windows(struct stage *t, uint32_t windows, dhs_batch **batch)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	options.flags = DHS_BATCH_STAGING_ROWS;
	options.max_sessions = 1;
	options.top_k = 4;
	options.staging_rows = (windows * 2 - 1) * 4;
	return dhs_batch_create(t->rig.context, &options, batch);
}

/* Refused, with nothing changed. */
static void refused(struct stage *t, uint32_t windows)
{
	dhs_stats before = rig_stats(&t->rig), after;
	uint64_t live = memory_live(&t->rig.memory);
	uint32_t mappings = t->system.mappings;
	dhs_batch *batch = NULL;

	ck_told(try_windows(t, windows, &batch), DHS_ERR_DEVICE_MEMORY, TOLD, NULL);
	ck_assert_ptr_null(batch);
	after = rig_stats(&t->rig);
	ck_assert_mem_eq(&before, &after, sizeof(after));
	ck_assert_uint_eq(memory_live(&t->rig.memory), live);
	ck_assert_uint_eq(t->system.mappings, mappings);
	ck_assert_uint_eq(open_files(), t->files);
}

/* A batch that takes the whole of so many windows fits. */
static void fits(struct stage *t, uint32_t windows)
{
	dhs_batch *batch = NULL;

	ck_good(try_windows(t, windows, &batch));
	ck_good(dhs_batch_destroy(batch));
}

START_TEST(test_run_out)
{
	struct stage t;
	struct history history;
	struct table table[4];
	uint32_t all;

	stage_default(&t);
	coarse(&t);
	t.rig.options.max_staging_rows = 8;
	stage_open(&t);
	all = (uint32_t)((t.system.reserved_bytes - t.pool_bytes) / 6 / WINDOW);
	ck_assert_uint_ge(all, 64);
	open_history(&t, &history, 40);
	refused(&t, all + 1);
	fits(&t, all);
	for (uint32_t i = 0; i < 3; i++)
		open_windows(&t, &table[i], 20);
	refused(&t, all - 59);
	open_windows(&t, &table[3], all - 60);
	refused(&t, 1);
	rig_works(&t.rig); /* with a batch that stages nothing */
	table_close(&table[1]);
	refused(&t, 21);
	fits(&t, 20);
	table_close(&table[2]); /* two holes side by side are one */
	refused(&t, 41);
	fits(&t, 40);
	rig_works(&t.rig);
	stage_close(&t);
}
END_TEST

static const uint64_t strides[] = { 0, 41984, WINDOW / 2, WINDOW, 3 * WINDOW };

/* 64 batches of so many rows each. */
static void open_64(struct stage *t, uint32_t rows)
{
	dhs_batch_options options = DHS_INIT(dhs_batch_options);

	options.flags = DHS_BATCH_STAGING_ROWS;
	options.max_sessions = 1;
	options.top_k = 4;
	options.staging_rows = rows;
	for (uint32_t i = 0; i < 64; i++) {
		struct table table;

		table_open_options(&t->rig, &table, &options);
	}
	check_mapped(t);
}

static void stage_promised(struct stage *t, uint64_t stride, uint32_t rows)
{
	stage_default(t);
	t->rig.segment[0].page_stride = stride;
	t->rig.options.device_pages = 10;
	t->rig.options.max_staging_rows = rows;
	stage_open(t);
}

/* However few are asked for. */
START_TEST(test_small_batches)
{
	struct stage t;

	stage_promised(&t, strides[_i], 1);
	open_64(&t, 1);
	stage_close(&t);
}
END_TEST

/* As many rows as were asked for, in 64 batches that each begin another page. */
START_TEST(test_promised_rows)
{
	static const uint32_t rows[] = { 4, 5, 8, 9, 40, 41 };

	for (uint32_t n = 0; n < COUNT_OF(rows); n++) {
		struct stage t;

		stage_promised(&t, strides[_i], 64 * rows[n]);
		open_64(&t, rows[n]);
		stage_close(&t);
	}
}
END_TEST

/* What stands for 0: twice all sessions' rows, of 32,768 each at most. */
START_TEST(test_default_rows)
{
	static const uint32_t most[] = { 100, 32768, 100000 };

	for (uint32_t n = 0; n < COUNT_OF(most); n++) {
		uint32_t rows = 2 * 4 * (most[n] < 32768 ? most[n] : 32768);
		struct stage t;
		uint64_t bytes;

		stage_default(&t);
		t.rig.options.max_rows = most[n];
		stage_open(&t);
		bytes = t.system.reserved_bytes;
		stage_close(&t);
		stage_default(&t);
		t.rig.options.max_rows = most[n];
		t.rig.options.max_staging_rows = rows;
		stage_open(&t);
		ck_assert_uint_eq(t.system.reserved_bytes, bytes);
		ck_assert_uint_ge(bytes, t.pool_bytes + UINT64_C(6) * rows * 64);
		stage_close(&t);
	}
}
END_TEST

/* ---- slots have 31 bits --------------------------------------------------------------------- */

/* Rows of 16 bytes in pages of 1 MiB, one layer: addresses alone. */
static void fine(struct stage *t, uint32_t pages)
{
	t->rig.segment[0].bytes = 16;
	t->rig.layout.page_rows = 65536;
	t->rig.layout.layers = 1;
	t->rig.layout.groups = 0;
	t->rig.layout.group_layers = NULL;
	t->rig.options.max_sessions = 2;
	t->rig.options.max_rows = 3 * 65536;
	t->rig.options.host_rows = 5 * 65536;
	t->rig.options.max_staging_rows = UINT32_MAX;
	t->rig.options.device_pages = pages;
}

START_TEST(test_last_slots)
{
	enum { MOST_PAGES = INT32_MAX / 65536 };
	struct stage t;

	stage_default(&t);
	fine(&t, 100);
	stage_open(&t);
	ck_assert_uint_le(t.system.reserved_bytes, MOST_PAGES * (WINDOW / 2));
	ck_assert_uint_gt(t.system.reserved_bytes, (MOST_PAGES - 4) * (WINDOW / 2));
	rig_works(&t.rig);
	stage_close(&t);
}
END_TEST

/* hwloc finds memory for pools that nobody touches. */
static void pretend_memory(void)
{
	ck_assert_int_eq(setenv("HWLOC_SYNTHETIC", "NUMANode:1(memory=1099511627776) PU:1", 1), 0);
}

/* A pool of so many pages is created, and leaves slots for `behind` pages. */
static void check_last_slots(uint32_t pages, bool behind)
{
	struct stage t;
	struct history history;
	struct table table;
	int32_t slots[12];
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_batch *batch = NULL;

	stage_default(&t);
	fine(&t, pages);
	stage_open(&t);
	ck_assert_uint_eq(t.pool_bytes, whole_windows(pages * (WINDOW / 2)) * WINDOW);
	options.top_k = 20;
	open_history(&t, &history, 65536 + 40); /* a page that is history */
	if (behind) {
		open_staged(&t, &table, 12, 1);
		ck_assert_uint_eq(stage_once(&table, &history, 0, slots), 12);
		ck_assert_int_ge(slots[0], (int32_t)pages * 65536); /* and so not below 0 */
		table_close(&table);
	} else {
		ck_told(dhs_batch_create(t.rig.context, &options, &batch), DHS_ERR_DEVICE_MEMORY, TOLD,
		        NULL);
	}
	rig_works(&t.rig);
	stage_close(&t);
}

START_TEST(test_no_slots_left)
{
	static const uint32_t pages[] = { 32760, 32763, 32764, 32765, 32766, 32767 };

	pretend_memory();
	check_last_slots(pages[_i], pages[_i] <= 32764);
	unsetenv("HWLOC_SYNTHETIC");
}
END_TEST

/* ---- calculators -------------------------------------------------------------------------------
 */

START_TEST(test_calculators)
{
	struct rig rig;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_required behind = DHS_INIT(dhs_required), again = DHS_INIT(dhs_required);
	dhs_required in_pool = DHS_INIT(dhs_required);

	rig_default(&rig);
	rig.options.max_staging_rows = 12345;
	options.top_k = 40;
	options.staging_buffers = 3;
	ck_good(dhs_batch_required(&rig.options, &options, &behind));
	rig.options.device_pages = 0;
	rig.options.max_staging_rows = 1; /* addresses are not memory */
	ck_good(dhs_batch_required(&rig.options, &options, &again));
	ck_assert_mem_eq(&behind, &again, sizeof(again));
	ck_assert_uint_eq(behind.staging_bytes, 2 * WINDOW);
	rig.options.max_staging_rows = 0;
	rig.options.flags = DHS_CONTEXT_POOL_STAGING;
	ck_good(dhs_batch_required(&rig.options, &options, &in_pool));
	ck_assert_uint_eq(in_pool.staging_bytes, 0);
	ck_assert_uint_eq(in_pool.staging_pages, 4 * (40 - 8) * 3 / 4);
	ck_assert_uint_eq(in_pool.staging_rows, behind.staging_rows);
	ck_assert_uint_eq(in_pool.device_bytes, behind.device_bytes - behind.staging_bytes);
	ck_assert_uint_eq(in_pool.host_bytes, behind.host_bytes);
}
END_TEST

/* No number of bytes comes out small because it was too large. */
START_TEST(test_too_many_bytes)
{
	static const uint32_t layers[] = { 1, 2, 64 };

	for (uint32_t n = 0; n < COUNT_OF(layers); n++)
		for (uint32_t bits = 40; bits < 63; bits++) {
			struct rig rig;
			dhs_batch_options options = DHS_INIT(dhs_batch_options);
			dhs_required r = DHS_INIT(dhs_required);
			int rc;

			rig_default(&rig);
			rig.layout.layers = rig.group_layers[0] = layers[n];
			rig.layout.groups = 1;
			rig.layout.page_rows = 1;
			rig.segment[0].page_stride = UINT64_C(1) << bits;
			rig.options.device_pages = 0;
			options.flags = DHS_BATCH_STAGING_ROWS;
			options.top_k = 8;
			options.staging_rows = 1 << 20;
			rc = dhs_batch_required(&rig.options, &options, &r);
			if (rc) {
				ck_assert(rc == DHS_ERR_DEVICE_MEMORY || rc == DHS_ERR_ARGUMENT);
				ck_assert_uint_ge(bits + 20, 60);
				continue;
			}
			ck_assert_uint_lt(bits + 20, 64);
			ck_assert_uint_ge(r.staging_bytes, layers[n] * (UINT64_C(1) << (bits + 20)));
			ck_assert_uint_gt(r.device_bytes, r.staging_bytes);
		}
}
END_TEST

/* Addresses behind the pool and staging in it: one or the other. */
START_TEST(test_both_asked_for)
{
	struct rig rig;
	dhs_required required = DHS_INIT(dhs_required);

	rig_default(&rig);
	rig.options.max_staging_rows = 1;
	ck_good(dhs_context_required(&rig.options, &required));
	rig.options.flags = DHS_CONTEXT_POOL_STAGING;
	ck_told(dhs_context_required(&rig.options, &required), DHS_ERR_ARGUMENT, TOLD,
	        "max_staging_rows");
	rig.options.max_staging_rows = 0;
	ck_good(dhs_context_required(&rig.options, &required));
}
END_TEST

/* In an engine's pool staging is pages of it, and nothing is to be said. */
START_TEST(test_engine_pool)
{
	static const char *const word[] = { "max_staging_rows", "DHS_CONTEXT_POOL_STAGING" };
	struct rig rig;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	dhs_required required = DHS_INIT(dhs_required);
	dhs_context *context = NULL;
	static unsigned char memory[3][64 * 4 * 64];
	void *pool[3] = { memory[0], memory[1], memory[2] };

	rig_default(&rig);
	options.top_k = 20;
	rig_use_pool(&rig, pool);
	for (uint32_t i = 0; i < 2; i++) {
		rig.options.max_staging_rows = i == 0 ? 1 : 0;
		rig.options.flags = i == 0 ? 0 : DHS_CONTEXT_POOL_STAGING;
		ck_told(dhs_context_required(&rig.options, &required), DHS_ERR_ARGUMENT, word[i], NULL);
		ck_told(dhs_batch_required(&rig.options, &options, &required), DHS_ERR_ARGUMENT, word[i],
		        NULL);
		ck_told(dhs_context_create(&rig.options, &context), DHS_ERR_ARGUMENT, word[i], NULL);
	}
	rig.options.flags = 0;
	ck_good(dhs_context_required(&rig.options, &required));
	ck_assert_uint_eq(required.pool_bytes, 0);
	ck_good(dhs_batch_required(&rig.options, &options, &required));
	ck_assert_uint_eq(required.staging_bytes, 0);
	ck_assert_uint_eq(required.staging_pages, 4 * 12 / 4);
	ck_assert_ptr_null(context);
}
END_TEST

/* With the flag, and in an engine's pool, nothing is mapped. */
START_TEST(test_nothing_mapped)
{
	struct stage t;
	struct history history;
	struct table table;

	stage_default(&t);
	rig_stage(&t.rig, false);
	t.rig.engine_pool = _i == 1;
	rig_open(&t.rig);
	open_history(&t, &history, 40);
	open_staged(&t, &table, 12, 1);
	ck_assert_uint_eq(rig_stats(&t.rig).pages_staging, 3);
	ck_assert_uint_eq(rig_stats(&t.rig).staging_bytes, 0);
	history_verify(&table, &history);
	ck_assert_uint_eq(t.system.asked, 0);
	stage_close(&t);
}
END_TEST

/* The allocator is asked for neither pool nor staging. */
START_TEST(test_allocator)
{
	struct stage t;
	struct table table;
	dhs_required required = DHS_INIT(dhs_required);
	uint64_t device;

	stage_default(&t);
	stage_open(&t);
	ck_good(dhs_context_required(&t.rig.options, &required));
	device = t.rig.memory.bytes[DHS_MEMORY_DEVICE];
	ck_assert_uint_eq(device, required.device_bytes - required.pool_bytes);
	open_staged(&t, &table, 30, 1);
	ck_good(dhs_batch_required(&t.rig.options, &table.options, &required));
	ck_assert_uint_eq(t.rig.memory.bytes[DHS_MEMORY_DEVICE] - device,
	                  required.device_bytes - required.staging_bytes);
	stage_close(&t);
}
END_TEST

/* ---- the system refuses
 * ---------------------------------------------------------------------------- */

static void arm(struct stage *t, uint32_t at, bool on)
{
	t->system.asked = 0;
	t->system.fail_at = at;
	t->system.fail_on = on;
}

static void find_places(struct stage *t)
{
	t->rig.place = rig_keep(&t->rig, 6 * sizeof(dhs_place));
	for (uint32_t l = 0; l < 6; l++) {
		t->rig.place[l].size = sizeof(dhs_place);
		ck_good(dhs_context_place(t->rig.context, l, 0, &t->rig.place[l]));
	}
}

/* What can fail: the addresses, and each layer. */
START_TEST(test_create_refused)
{
	struct stage t;
	uint32_t n;

	stage_default(&t);
	rig_open_host(&t.rig);
	for (n = 1;; n++) {
		uint64_t live = memory_live(&t.rig.memory);
		int rc;

		arm(&t, n, _i == 1);
		rc = dhs_context_create(&t.rig.options, &t.rig.context);
		arm(&t, 0, false);
		if (rc == 0)
			break;
		ck_code(rc, DHS_ERR_DEVICE_MEMORY);
		ck_assert_str_ne(dhs_last_error(), "");
		ck_assert_ptr_null(t.rig.context);
		ck_assert_uint_eq(memory_live(&t.rig.memory), live);
		nothing_left(&t);
	}
	ck_assert_uint_eq(n, 1 + 1 + 6);
	ck_assert_uint_eq(t.system.mappings, 6);
	find_places(&t);
	rig_works(&t.rig);
	stage_close(&t);
}
END_TEST

/* What can fail: a file, its size and a mapping for each layer that shares it, or a
 * mapping alone. */
START_TEST(test_batch_refused)
{
	struct stage t;
	struct history history;
	struct table table, other;
	dhs_batch_options options = DHS_INIT(dhs_batch_options);
	uint32_t n;

	stage_default(&t);
	stage_open(&t);
	open_history(&t, &history, 40);
	open_staged(&t, &other, 12, 1);
	options.max_sessions = 1;
	options.top_k = 20;
	for (n = 1;; n++) {
		dhs_stats before = rig_stats(&t.rig), after;
		uint64_t live = memory_live(&t.rig.memory);
		dhs_batch *batch = NULL;
		int rc;

		arm(&t, n, _i == 1);
		rc = dhs_batch_create(t.rig.context, &options, &batch);
		arm(&t, 0, false);
		if (rc == 0) {
			ck_good(dhs_batch_destroy(batch));
			break;
		}
		ck_code(rc, DHS_ERR_DEVICE_MEMORY);
		ck_assert_str_ne(dhs_last_error(), "");
		ck_assert_ptr_null(batch);
		after = rig_stats(&t.rig);
		ck_assert_mem_eq(&before, &after, sizeof(after));
		ck_assert_uint_eq(memory_live(&t.rig.memory), live);
		ck_assert_uint_eq(open_files(), t.files);
		check_mapped(&t);
		history_verify(&other, &history); /* the context goes on */
	}
	/* Position 0 of three groups, 1 of two, 2 of one. */
	ck_assert_uint_eq(n, 1 + (2 + 3) + (2 + 2) + 1);
	open_staged(&t, &table, 12, 1);
	history_verify(&table, &history);
	stage_close(&t);
}
END_TEST

/* ---- the end
 * ------------------------------------------------------------------------------------------ */

/* A batch waits for its work: what reads staging runs before its memory goes. */
START_TEST(test_late_work)
{
	struct stage t;
	struct history history;
	struct table table;
	struct turn turn;

	stage_default(&t);
	t.rig.seed = (uint64_t)_i + 1;
	stage_open(&t);
	open_history(&t, &history, 40);
	open_staged(&t, &table, 20, 2);
	for (uint32_t i = 0; i < 2; i++) {
		start_turn(&turn, &table, &history);
		for (uint32_t g = 0; g < 3; g++) {
			plan_and_fetch(&turn, g);
			turn_check(&turn, g);
		}
		turn_end(&turn);
	}
	table_close(&table);
	ck_assert_uint_eq(rig_stats(&t.rig).staging_bytes, 0);
	check_mapped(&t);
	rig_sync(&t.rig);
	stage_close(&t);
}
END_TEST

/* A context ends with all that it has: batches with and without work, an open step. */
START_TEST(test_context_destroy)
{
	struct stage t;
	struct history history;
	struct table table[5];
	struct turn turn;

	stage_default(&t);
	t.rig.seed = (uint64_t)_i;
	stage_open(&t);
	open_history(&t, &history, 60);
	for (uint32_t i = 0; i < 5; i++)
		open_staged(&t, &table[i], 5 + 10 * i, 1 + i % 2);
	table_close(&table[2]);
	history_verify(&table[1], &history);
	start_turn(&turn, &table[3], &history);
	plan_and_fetch(&turn, 1);
	turn_check(&turn, 1);
	stage_close(&t);
}
END_TEST

/* Contexts beside each other have memory of their own. */
START_TEST(test_two_contexts)
{
	struct stage t, *other = malloc(sizeof(*other));
	struct history history[2];
	struct table table[2];
	int32_t slots[2][12];

	ck_assert_ptr_nonnull(other);
	stage_default(&t);
	stage_open(&t);
	stage_default(other);
	stage_open(other);
	open_history(&t, &history[0], 40);
	open_history(other, &history[1], 40);
	open_staged(&t, &table[0], 12, 1);
	open_staged(other, &table[1], 12, 1);
	ck_assert_uint_eq(stage_once(&table[0], &history[0], 2, slots[0]), 12);
	ck_assert_uint_eq(stage_once(&table[1], &history[1], 2, slots[1]), 12);
	ck_assert_mem_eq(slots[0], slots[1], sizeof(slots[0]));
	for (uint32_t i = 0; i < 12; i++) {
		stamp_write(&other->rig, slots[1][i], 99 + i);
		ck_assert(!stamp_is(&t.rig, slots[0][i], 99 + i, 3, 3));
	}
	watched = NULL;
	rig_close(&other->rig);
	rig_close(&t.rig);
	ck_assert_uint_eq(shown_mappings(), t.shown);
	ck_assert_uint_eq(open_files(), t.files);
	free(other);
}
END_TEST

static TCase *memory_case(void)
{
	TCase *memory = tcase_create("memory");

	tcase_set_timeout(memory, support_seconds(30));
	tcase_add_loop_test(memory, test_aliases, 0, COUNT_OF(group_shapes));
	tcase_add_test(memory, test_pool_is_apart);
	tcase_add_test(memory, test_takes_no_page);
	tcase_add_test(memory, test_full_pool);
	tcase_add_loop_test(memory, test_rows, 0, 10);
	tcase_add_loop_test(memory, test_page_shapes, 0, COUNT_OF(page_shapes));
	tcase_add_loop_test(memory, test_nothing_mapped, 0, 2);
	tcase_add_test(memory, test_allocator);
	return memory;
}

static TCase *windows_case(void)
{
	TCase *windows = tcase_create("windows");

	tcase_set_timeout(windows, support_seconds(30));
	tcase_add_loop_test(windows, test_orders, 0, 24);
	tcase_add_test(windows, test_again_and_again);
	tcase_add_loop_test(windows, test_random_windows, 0, 5);
	tcase_add_test(windows, test_run_out);
	tcase_add_loop_test(windows, test_small_batches, 0, COUNT_OF(strides));
	tcase_add_loop_test(windows, test_promised_rows, 0, COUNT_OF(strides));
	tcase_add_test(windows, test_default_rows);
	tcase_add_test(windows, test_last_slots);
	tcase_add_loop_test(windows, test_no_slots_left, 0, 6);
	return windows;
}

static TCase *options_case(void)
{
	TCase *options = tcase_create("options");

	tcase_set_timeout(options, support_seconds(30));
	tcase_add_test(options, test_calculators);
	tcase_add_test(options, test_too_many_bytes);
	tcase_add_test(options, test_both_asked_for);
	tcase_add_test(options, test_engine_pool);
	return options;
}

static TCase *end_case(void)
{
	TCase *end = tcase_create("refused and ended");

	tcase_set_timeout(end, support_seconds(30));
	tcase_add_loop_test(end, test_create_refused, 0, 2);
	tcase_add_loop_test(end, test_batch_refused, 0, 2);
	tcase_add_loop_test(end, test_late_work, 0, 10);
	tcase_add_loop_test(end, test_context_destroy, 0, 5);
	tcase_add_test(end, test_two_contexts);
	return end;
}

int main(void)
{
	Suite *suite = suite_create("staging");

	suite_add_tcase(suite, memory_case());
	suite_add_tcase(suite, windows_case());
	suite_add_tcase(suite, options_case());
	suite_add_tcase(suite, end_case());
	return support_run(suite);
}
