/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* A host tier of more than one chunk.  A chunk has a gigabyte, of which the tests
 * touch a little: memory is mapped, and behind each block lies a space as large
 * that nobody may touch. */
#include "support.h"

#include <sys/mman.h>

#define LARGE ((size_t)1 << 20)
#define GUARD ((size_t)2 << 30)

static void *map_large(size_t bytes)
{
	char *block = mmap(NULL, bytes + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (block == MAP_FAILED)
		return NULL;
	if (mprotect(block, bytes, PROT_READ | PROT_WRITE) == 0)
		return block;
	munmap(block, bytes + GUARD);
	return NULL;
}

static void *sparse_alloc(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	void *block;

	(void)arg;
	(void)kind;
	if (bytes >= LARGE)
		return map_large(bytes);
	return posix_memalign(&block, align < 16 ? 16 : align, bytes) == 0 ? block : NULL;
}

static void sparse_free(void *arg, uint32_t kind, void *block, size_t bytes)
{
	(void)arg;
	(void)kind;
	if (bytes >= LARGE)
		munmap(block, bytes + GUARD);
	else
		free(block);
}

/* Pages of a megabyte, 1,024 in a chunk: one and a half chunks. */
static void open_tier(struct rig *rig, dhs_allocator *allocator)
{
	rig_default(rig);
	*allocator = (dhs_allocator)DHS_INIT(dhs_allocator);
	allocator->alloc = sparse_alloc;
	allocator->free = sparse_free;
	rig->segment[0].bytes = 8192;
	rig->layout.layers = 16;
	rig->group_layers[0] = 4;
	rig->group_layers[1] = 12;
	rig->layout.page_rows = 8;
	rig->options.max_rows = 4096;
	rig->options.device_pages = 20;
	rig->options.host_rows = 1536 * 8;
	rig->options.allocator = allocator;
	rig->seed = 1;
	rig_open(rig);
}

/* 510 pages are somebody's, so the next session begins in the middle of the other
 * 1,026: its first page is the last of the first chunk. */
START_TEST(test_chunks)
{
	dhs_session_options options = DHS_INIT(dhs_session_options);
	dhs_allocator allocator;
	dhs_session first;
	struct rig rig;
	struct history history, other;
	struct table table;

	open_tier(&rig, &allocator);
	options.reserve_rows = 510 * 8;
	ck_good(dhs_session_create(rig.context, &options, &first));
	history_open(&rig, &history);
	history_prefill(&rig, &history, 21);
	history_open(&rig, &other);
	history_prefill(&rig, &other, 13);
	ck_good(dhs_session_evict(rig.context, history.id, NULL));
	ck_good(dhs_session_evict(rig.context, other.id, NULL));
	ck_assert_uint_ge(rig_info(&rig, history.id).host_only_rows, 16);
	table_open(&rig, &table, 1, 1, 8);
	history_verify(&table, &history);
	history_verify(&table, &other);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tier");
	TCase *tier = tcase_create("tier");

	tcase_add_test(tier, test_chunks);
	suite_add_tcase(suite, tier);
	return support_run(suite);
}
