/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Between the library and the CUDA runtime, by --wrap of the linker: memory that the
 * library takes is counted, refused on demand, and lies in mapped host memory, so that
 * functions of the tests find rows, tables and views where they lie.
 */
#include "device.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>

extern bool device_watched;
extern const struct device_watch *device_watcher;
extern _Thread_local bool device_own_call;

cudaError_t __real_cudaMalloc(void **memory, size_t bytes);
cudaError_t __real_cudaFree(void *memory);
cudaError_t __real_cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t __real_cudaFreeHost(void *memory);
cudaError_t __real_cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t __wrap_cudaMalloc(void **memory, size_t bytes);
cudaError_t __wrap_cudaFree(void *memory);
cudaError_t __wrap_cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t __wrap_cudaFreeHost(void *memory);
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t stream);

struct block {
	struct block *next;
	void *memory;
	size_t bytes;
	uint32_t kind;
	const struct device_watch *watch;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

__attribute__((constructor)) static void watch(void)
{
	device_watched = true;
}

static cudaError_t take(void **memory, size_t bytes, uint32_t kind, unsigned flags)
{
	const struct device_watch *watch = device_watcher;
	struct block *block;
	cudaError_t rc;

	if (watch && !watch->take(watch->arg, kind, bytes))
		return cudaErrorMemoryAllocation;
	rc = __real_cudaHostAlloc(memory, bytes, flags);
	if (rc != cudaSuccess)
		return rc;
	block = malloc(sizeof(*block));
	if (!block)
		abort();
	pthread_mutex_lock(&lock);
	*block = (struct block){ blocks, *memory, bytes, kind, watch };
	blocks = block;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* A free of what was not taken so ends the program. */
static cudaError_t give(void *memory, uint32_t kind)
{
	struct block **link = &blocks, *block;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->memory != memory)
		link = &(*link)->next;
	block = *link;
	if (!block || block->kind != kind)
		abort();
	*link = block->next;
	pthread_mutex_unlock(&lock);
	if (block->watch)
		block->watch->give(block->watch->arg, kind, block->bytes);
	free(block);
	return __real_cudaFreeHost(memory);
}

cudaError_t __wrap_cudaMalloc(void **memory, size_t bytes)
{
	if (device_own_call)
		return __real_cudaMalloc(memory, bytes);
	return take(memory, bytes, DHS_MEMORY_DEVICE, cudaHostAllocMapped | cudaHostAllocPortable);
}

cudaError_t __wrap_cudaFree(void *memory)
{
	return device_own_call || !memory ? __real_cudaFree(memory) : give(memory, DHS_MEMORY_DEVICE);
}

cudaError_t __wrap_cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
	if (device_own_call)
		return __real_cudaHostAlloc(memory, bytes, flags);
	return take(memory, bytes, DHS_MEMORY_HOST, flags);
}

cudaError_t __wrap_cudaFreeHost(void *memory)
{
	return device_own_call || !memory ? __real_cudaFreeHost(memory) : give(memory, DHS_MEMORY_HOST);
}

/* What was device memory to the caller may not be. */
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)kind;
	return __real_cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
