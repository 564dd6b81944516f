/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The CUDA driver's memory at chosen addresses: files without a name, mapped where they are
 * wanted.  Mappings are written down, so that what a driver refuses is refused here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "emulated.h"

#include "cudaTypedefs.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

enum { MOST_MAPPINGS = 65536 };

static struct {
	CUdeviceptr at; /* 0: unused */
	size_t bytes;
} mapping[MOST_MAPPINGS];

static void *pointer(CUdeviceptr at)
{
	return (void *)(uintptr_t)at;
}

static int mapped(CUdeviceptr at, size_t bytes)
{
	for (int i = 0; i < MOST_MAPPINGS; i++)
		if (mapping[i].at && mapping[i].at < at + bytes && at < mapping[i].at + mapping[i].bytes)
			return 1;
	return 0;
}

/* Addresses without memory behind them. */
static int empty(void *at, size_t bytes)
{
	return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
	            0) != MAP_FAILED;
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
	(void)device;
	*value = which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult granularity(size_t *granule, const CUmemAllocationProp *kind,
                            CUmemAllocationGranularity_flags flags)
{
	(void)kind;
	(void)flags;
	*granule = GRANULE;
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wish,
                        unsigned long long flags)
{
	size_t all = bytes + alignment;
	char *range, *aligned;

	(void)wish;
	(void)flags;
	if (!bytes || bytes % GRANULE || alignment & (alignment - 1))
		return CUDA_ERROR_INVALID_VALUE;
	range = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	aligned = range + (alignment - (uintptr_t)range % alignment) % alignment;
	if (aligned > range)
		munmap(range, (size_t)(aligned - range));
	if (aligned + bytes < range + all)
		munmap(aligned + bytes, (size_t)(range + all - (aligned + bytes)));
	*at = (CUdeviceptr)(uintptr_t)aligned;
	return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr at, size_t bytes)
{
	if (mapped(at, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return munmap(pointer(at), bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *memory, size_t bytes,
                       const CUmemAllocationProp *kind, unsigned long long flags)
{
	int file;

	(void)kind;
	(void)flags;
	if (!bytes || bytes % GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	file = memfd_create("emulated", MFD_CLOEXEC);
	if (file < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (ftruncate(file, (off_t)bytes)) {
		close(file);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*memory = (CUmemGenericAllocationHandle)file;
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle memory)
{
	return close((int)memory) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle memory, unsigned long long flags)
{
	int i;

	(void)flags;
	if (at % GRANULE || bytes % GRANULE || mapped(at, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < MOST_MAPPINGS && mapping[i].at; i++)
		;
	if (i == MOST_MAPPINGS || mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
	                               (int)memory, (off_t)offset) == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping[i].at = at;
	mapping[i].bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
	for (int i = 0; i < MOST_MAPPINGS; i++)
		if (mapping[i].at == at && mapping[i].bytes == bytes) {
			mapping[i].at = 0;
			return empty(pointer(at), bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access,
                           size_t count)
{
	int protection =
		access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : PROT_READ;

	if (count != 1 || !mapped(at, bytes) || mprotect(pointer(at), bytes, protection))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult error_name(CUresult error, const char **name)
{
	*name = error == CUDA_SUCCESS               ? "CUDA_SUCCESS"
	        : error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
	                                            : "CUDA_ERROR_OUT_OF_MEMORY";
	return CUDA_SUCCESS;
}

void (*emulated_driver_call(const char *name))(void)
{
	static const struct {
		const char *name;
		void (*call)(void);
	} calls[] = {
		{ "cuDeviceGetAttribute", (void (*)(void))attribute },
		{ "cuGetErrorName", (void (*)(void))error_name },
		{ "cuMemAddressFree", (void (*)(void))address_free },
		{ "cuMemAddressReserve", (void (*)(void))reserve },
		{ "cuMemCreate", (void (*)(void))create },
		{ "cuMemGetAllocationGranularity", (void (*)(void))granularity },
		{ "cuMemMap", (void (*)(void))map },
		{ "cuMemRelease", (void (*)(void))release },
		{ "cuMemSetAccess", (void (*)(void))set_access },
		{ "cuMemUnmap", (void (*)(void))unmap },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].call;
	return NULL;
}
