/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Memory at addresses of the caller's choice: mappings of the operating system. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "range.h"

#include "../error.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int failed(int code, const char *what, size_t bytes)
{
	return dhs_fail(code, "%s of %zu bytes: %s", what, bytes, strerror(errno));
}

int dhs_host_range_new(size_t bytes, void **range)
{
	void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return failed(DHS_ERR_DEVICE_MEMORY, "mmap, for addresses,", bytes);
	*range = memory;
	return DHS_OK;
}

void dhs_host_range_free(void *range, size_t bytes)
{
	munmap(range, bytes);
}

/* One mapping needs no file behind it. */
static int map_alone(void *at, size_t bytes)
{
	int rc;

	if (mmap(at, bytes, PROT_READ | PROT_WRITE,
	         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED)
		return DHS_OK;
	rc = failed(DHS_ERR_DEVICE_MEMORY, "mmap", bytes);
	dhs_host_range_unmap(&at, 1, bytes);
	return rc;
}

/* A process that may not write files so large would be killed for it. */
static int grow(int file, size_t bytes)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
	    most.rlim_cur < bytes) {
		errno = EFBIG;
		return -1;
	}
	return ftruncate(file, (off_t)bytes);
}

static int map_shared(void *const *at, uint32_t count, size_t bytes)
{
	int file = memfd_create("dhisparse-staging", MFD_CLOEXEC), rc = DHS_OK;

	if (file < 0)
		return failed(DHS_ERR_DEVICE_MEMORY, "memfd_create", bytes);
	if (grow(file, bytes))
		rc = failed(DHS_ERR_DEVICE_MEMORY, "ftruncate", bytes);
	for (uint32_t i = 0; rc == DHS_OK && i < count; i++) {
		if (mmap(at[i], bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
		    MAP_FAILED) {
			rc = failed(DHS_ERR_DEVICE_MEMORY, "mmap, shared,", bytes);
			/* A mapping that failed may have left a hole. */
			dhs_host_range_unmap(at, i + 1, bytes);
			break;
		}
		/* Or a child of the process would write what the parent reads. */
		madvise(at[i], bytes, MADV_DONTFORK);
	}
	close(file);
	return rc;
}

int dhs_host_range_map(void *const *at, uint32_t count, size_t bytes)
{
	return count == 1 ? map_alone(at[0], bytes) : map_shared(at, count, bytes);
}

/* The addresses stay the range's: a mapping without memory takes the place.  A process with
 * as many mappings as it may have cannot make one: then the memory goes alone. */
void dhs_host_range_unmap(void *const *at, uint32_t count, size_t bytes)
{
	for (uint32_t i = 0; i < count; i++)
		if (mmap(at[i], bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		         -1, 0) == MAP_FAILED &&
		    madvise(at[i], bytes, MADV_REMOVE))
			madvise(at[i], bytes, MADV_DONTNEED);
}
