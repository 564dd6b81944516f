/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "arena.h"

#include "timing.h"
#include "util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_GIB 64.0
#define PAGE ((size_t)4096)

/* A number from a file of one, or from the line that begins with `key`. */
static size_t read_number(const char *path, const char *key, size_t unit)
{
	char line[256], format[64];
	uint64_t n, found = 0;
	FILE *file = fopen(path, "r");

	if (!file)
		return 0;
	snprintf(format, sizeof(format), "%s%%" SCNu64, key);
	while (!found && fgets(line, sizeof(line), file))
		if (sscanf(line, format, &n) == 1)
			found = n;
	fclose(file);
	return found * unit;
}

/* What can be had, of the machine's memory and of the control group's. */
static size_t available_memory(void)
{
	size_t have = read_number("/proc/meminfo", "MemAvailable: ", 1024);
	size_t limit = read_number("/sys/fs/cgroup/memory.max", "", 1);
	size_t current = read_number("/sys/fs/cgroup/memory.current", "", 1);

	if (limit && limit > current && limit - current < have)
		have = limit - current;
	return have;
}

static size_t arena_size(double gib, size_t available)
{
	double most = 0.8 * (double)available / (double)GIB;

	if (gib > 0) {
		if (available && gib > (double)available / (double)GIB)
			say("--pool-gib %g is more than the %.1f GiB that seem available", gib,
			    (double)available / (double)GIB);
	} else {
		gib = available && most < DEFAULT_GIB ? most : DEFAULT_GIB;
	}
	return (size_t)(gib * (double)GIB) / PAGE * PAGE;
}

void arena_open(struct arena *a, double gib)
{
	void *host, *device;
	double from;

	*a = (struct arena){ .available = available_memory() };
	a->bytes = arena_size(gib, a->available);
	say("pinning %.1f GiB; %.1f GiB are available", (double)a->bytes / (double)GIB,
	    (double)a->available / (double)GIB);
	from = now_us();
	CU(cudaHostAlloc(&host, a->bytes, cudaHostAllocMapped | cudaHostAllocPortable));
	CU(cudaHostGetDevicePointer(&device, host, 0));
	a->host = host;
	a->device = device;
	a->pin_seconds = (now_us() - from) / 1e6;
	say("pinned in %.1f s", a->pin_seconds);
}

void arena_close(struct arena *a)
{
	CU(cudaFreeHost(a->host));
}

static void *take(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	struct arena *a = arg;
	void *memory = NULL;
	size_t from;

	if (kind != DHS_MEMORY_HOST)
		return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) == 0
		           ? memory
		           : NULL;
	if (align < PAGE)
		align = PAGE;
	from = (a->used + align - 1) / align * align;
	if (from > a->bytes || bytes > a->bytes - from)
		return NULL;
	a->used = from + bytes;
	a->pieces++;
	return a->host + from;
}

static void give(void *arg, uint32_t kind, void *memory, size_t bytes)
{
	struct arena *a = arg;

	(void)bytes;
	if (kind != DHS_MEMORY_HOST)
		free(memory);
	else if (--a->pieces == 0)
		a->used = 0;
}

dhs_allocator arena_allocator(struct arena *a)
{
	dhs_allocator allocator = DHS_INIT(dhs_allocator);

	allocator.flags = DHS_ALLOCATOR_PINNED;
	allocator.alloc = take;
	allocator.free = give;
	allocator.arg = a;
	return allocator;
}
