/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What the kernels share: addresses, copies of rows by a warp, and launching.
 * docs/resolve.md is the contract, lib/host/ its readable form.
 */
#ifndef DHS_CUDA_KERNELS_CUH
#define DHS_CUDA_KERNELS_CUH

#include <cuda_runtime.h>

extern "C" {
#include "../lib/world.h"
#include "cuda.h"
}

/* Shared memory of the size that the launch says; tests have another way to declare it. */
#ifndef DHS_DYNAMIC_SHARED
#define DHS_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

namespace dhs
{
constexpr unsigned warp_size = 32;

/* Whether the kernels of this file may start before the one ahead of them on the stream has
 * ended: their code must know how to wait for it, which it does from compute capability 9.0
 * on.  Set when kernels are loaded, by device. */
constexpr int most_devices = 64;
inline bool starts_early[most_devices];

/* A kernel's name and arguments, launched with an error for an answer.  early: the kernel
 * begins with wait_for_previous. */
template <typename... Formal, typename... Actual>
inline cudaError_t launch(bool early, void (*kernel)(Formal...), dim3 grid, unsigned block,
                          size_t shared, cudaStream_t stream, Actual... actual)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute = {};
	int device = 0;

	config.gridDim = grid;
	config.blockDim = dim3(block);
	config.dynamicSmemBytes = shared;
	config.stream = stream;
	if (early && cudaGetDevice(&device) == cudaSuccess && device < most_devices &&
	    __atomic_load_n(&starts_early[device], __ATOMIC_RELAXED)) {
		attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
		attribute.val.programmaticStreamSerializationAllowed = 1;
		config.attrs = &attribute;
		config.numAttrs = 1;
	}
	return cudaLaunchKernelEx(&config, kernel, Formal(actual)...);
}

/* Loads a kernel now: its first launch would otherwise, and wait for the device. */
template <typename... Formal> inline cudaError_t load(void (*kernel)(Formal...))
{
	cudaFuncAttributes attributes;
	int device = 0;
	cudaError_t rc = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(kernel));

	if (rc == cudaSuccess)
		rc = cudaGetDevice(&device);
	if (rc == cudaSuccess && device < most_devices)
		__atomic_store_n(&starts_early[device], attributes.ptxVersion >= 90, __ATOMIC_RELAXED);
	return rc;
}

/* Until the kernel ahead on the stream has ended and what it wrote is visible. */
__device__ inline void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel on the stream may start, as far as it can before it waits. */
__device__ inline void let_next_start()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline uint32_t group_layers(const dhs_geometry &g, uint32_t group)
{
	return g.group_first[group + 1] - g.group_first[group];
}

/* A row's host record in a group of so many layers. */
__device__ inline unsigned char *record_address(const dhs_geometry &g, uint32_t group,
                                                uint32_t layers, int32_t host_page, uint32_t offset)
{
	uint32_t chunk = uint32_t(host_page) >> g.chunk_shift;
	uint64_t page = uint32_t(host_page) & ((1u << g.chunk_shift) - 1);

	return g.records[size_t(chunk) * g.groups + group] +
	       (page * g.page_rows + offset) * layers * g.row_bytes;
}

/* Where a unit of a row of one layer lies in the pool; `at` is its byte in the row. */
__device__ inline unsigned char *pool_address(const dhs_geometry &g, uint32_t layer, uint32_t at,
                                              int32_t page, uint32_t offset)
{
	uint32_t i = 0;

	while (i + 1 < g.segments && at >= g.segment[i + 1].record_offset)
		i++;
	return g.base[layer * g.segments + i] + uint64_t(page) * g.segment[i].page_stride +
	       offset * g.segment[i].row_stride + (at - g.segment[i].record_offset);
}

/* A warp copies one row, `layers` layers from the `first` on, between its slot and where
 * these lie in its record.  There the bytes are contiguous: lane l takes units l, l + 32,
 * ...; several loads are in flight before the first store. */
template <typename Unit, dhs_copy_way way>
__device__ inline void copy_row(const dhs_geometry &g, uint32_t first, uint32_t layers,
                                int32_t page, uint32_t offset, unsigned char *record)
{
	constexpr uint32_t in_flight = 6;
	const uint32_t row_units = g.row_bytes / sizeof(Unit), units = layers * row_units;
	const uint32_t lane = threadIdx.x % warp_size;
	uint32_t layer = first + lane / row_units, unit = lane % row_units;
	Unit *in_record = reinterpret_cast<Unit *>(record);
	auto next_in_pool = [&] {
		unsigned char *at = pool_address(g, layer, unit * sizeof(Unit), page, offset);

		for (unit += warp_size; unit >= row_units; unit -= row_units)
			layer++;
		return reinterpret_cast<Unit *>(at);
	};

	for (uint32_t from = lane; from < units; from += in_flight * warp_size) {
		Unit value[in_flight];

#pragma unroll
		for (uint32_t i = 0, u = from; i < in_flight; i++, u += warp_size)
			if (u < units)
				value[i] = way == DHS_COPY_TO_HOST ? *next_in_pool() : in_record[u];
#pragma unroll
		for (uint32_t i = 0, u = from; i < in_flight; i++, u += warp_size)
			if (u < units)
				*(way == DHS_COPY_TO_HOST ? in_record + u : next_in_pool()) = value[i];
	}
}

/* A call after a step's commit is counted with the host at once, as the batch may have
 * no later commit that tells it.  One thread of a kernel calls this.  Not an atomic: those
 * do not reach host memory on every system, and nobody else adds but other calls that come
 * too late. */
__device__ inline void late(const dhs_world &world, const dhs_batch_state *batch)
{
	volatile uint64_t *errors = &world.result[batch->in_flight].counts->order_errors;

	*errors = *errors + 1;
	__threadfence_system();
}

__device__ inline void count(uint64_t *counter, uint64_t n)
{
	if (n)
		atomicAdd(reinterpret_cast<unsigned long long *>(counter), (unsigned long long)n);
}

/* 1 for all threads of the last block of a grid to come here; what other blocks
 * wrote before is visible to it.  `done` is 0 again for the next kernel. */
__device__ inline bool last_block(uint32_t *done, uint32_t blocks)
{
	__shared__ bool last;

	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		last = atomicAdd(done, 1) == blocks - 1;
		if (last)
			*done = 0;
		__threadfence();
	}
	__syncthreads();
	return last;
}

/* Runs fn with the type of the widest access that all rows allow. */
template <typename Fn> inline cudaError_t with_unit(uint32_t unit, Fn fn)
{
	if (unit == 16)
		return fn(uint4());
	if (unit == 8)
		return fn(uint2());
	return fn(uint32_t());
}

} // namespace dhs

#endif
