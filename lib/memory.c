/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* From this size on a default block is mapped: it starts zeroed without being
 * touched, which page tables of mostly short sessions live on. */
#define MAPPED_BYTES ((size_t)1 << 20)

static void *default_alloc(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	void *memory;

	(void)arg;
	(void)kind;
	if (bytes >= MAPPED_BYTES) {
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		return memory == MAP_FAILED ? NULL : memory;
	}
	return posix_memalign(&memory, align, bytes) == 0 ? memory : NULL;
}

static void default_free(void *arg, uint32_t kind, void *memory, size_t bytes)
{
	(void)arg;
	(void)kind;
	if (bytes >= MAPPED_BYTES)
		munmap(memory, bytes);
	else
		free(memory);
}

const dhs_allocator dhs_default_allocator = {
	.size = sizeof(dhs_allocator),
	.alloc = default_alloc,
	.free = default_free,
};

void *dhs_memory_new(const dhs_allocator *allocator, uint32_t kind, size_t bytes)
{
	return allocator->alloc(allocator->arg, kind, bytes, DHS_MEMORY_ALIGN);
}

void *dhs_memory_zeroed(const dhs_allocator *allocator, uint32_t kind, size_t bytes)
{
	void *memory = dhs_memory_new(allocator, kind, bytes);

	if (memory && !(allocator->alloc == default_alloc && bytes >= MAPPED_BYTES))
		memset(memory, 0, bytes);
	return memory;
}

void dhs_memory_free(const dhs_allocator *allocator, uint32_t kind, void *memory, size_t bytes)
{
	if (memory)
		allocator->free(allocator->arg, kind, memory, bytes);
}
