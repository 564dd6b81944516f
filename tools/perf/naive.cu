/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A fetch as it is done elsewhere, beside the library's order of copies, over the same
 * lists: what each idea is worth.  Without a list, miss i of m lies somewhere in the i-th of
 * m equal parts of the history: sorted and without duplicates, and new for each seed.
 */
#include "kernels.h"

namespace
{

constexpr uint32_t threads = 1024;
constexpr uint32_t warp_size = 32;
constexpr uint32_t warps = threads / warp_size;
constexpr uint32_t in_flight = 4;

__device__ inline uint32_t mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ x >> 16;
}

__device__ inline uint32_t missing_row(const plain_rows &p, uint32_t session, uint32_t i)
{
	if (p.list)
		return p.list[session * p.misses + i] - session * p.rows;
	uint32_t from = uint32_t(uint64_t(p.rows) * i / p.misses);
	uint32_t to = uint32_t(uint64_t(p.rows) * (i + 1) / p.misses);

	return from + mix(p.seed * 0x9e3779b1u ^ session * 0x85ebca77u ^ i) % (to - from);
}

/* A warp copies `bytes` bytes with several loads in flight. */
__device__ void copy(const unsigned char *from, unsigned char *to, uint32_t bytes)
{
	uint32_t units = bytes / sizeof(uint4);

	for (uint32_t u = threadIdx.x % warp_size; u < units; u += in_flight * warp_size) {
		uint4 value[in_flight];

#pragma unroll
		for (uint32_t i = 0; i < in_flight; i++)
			if (u + i * warp_size < units)
				value[i] = reinterpret_cast<const uint4 *>(from)[u + i * warp_size];
#pragma unroll
		for (uint32_t i = 0; i < in_flight; i++)
			if (u + i * warp_size < units)
				reinterpret_cast<uint4 *>(to)[u + i * warp_size] = value[i];
	}
}

/* Miss m of all sessions: the record of all layers. */
__device__ void copy_record(const plain_rows &p, uint32_t m)
{
	uint32_t session = m / p.misses, bytes = p.layers * p.row_bytes;
	uint64_t row = uint64_t(session) * p.rows + missing_row(p, session, m % p.misses);

	copy(p.from + row * bytes, p.to + uint64_t(m) * bytes, bytes);
}

__global__ void __launch_bounds__(threads) records(const __grid_constant__ plain_rows p)
{
	uint32_t total = p.sessions * p.misses, part = (total + gridDim.x - 1) / gridDim.x;
	uint32_t from = blockIdx.x * part, to = from + part < total ? from + part : total;

	for (uint32_t m = from + threadIdx.x / warp_size; m < to; m += warps)
		copy_record(p, m);
}

__global__ void __launch_bounds__(threads) block_a_session(const __grid_constant__ plain_rows p)
{
	for (uint32_t i = threadIdx.x / warp_size; i < p.misses; i += warps)
		copy_record(p, blockIdx.x * p.misses + i);
}

__global__ void __launch_bounds__(threads) layers_apart(const __grid_constant__ plain_rows p)
{
	uint32_t misses = p.sessions * p.misses, total = misses * p.layers;
	uint32_t part = (total + gridDim.x - 1) / gridDim.x;
	uint32_t from = blockIdx.x * part, to = from + part < total ? from + part : total;

	for (uint32_t i = from + threadIdx.x / warp_size; i < to; i += warps) {
		uint32_t layer = i / misses, m = i % misses, session = m / p.misses;
		uint64_t row = (uint64_t(layer) * p.sessions + session) * p.rows +
		               missing_row(p, session, m % p.misses);

		copy(p.from + row * p.row_bytes, p.to + uint64_t(i) * p.row_bytes, p.row_bytes);
	}
}

} // namespace

extern "C" cudaError_t kernel_records(const struct plain_rows *p, uint32_t blocks,
                                      cudaStream_t stream)
{
	records<<<blocks, threads, 0, stream>>>(*p);
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_block_a_session(const struct plain_rows *p, cudaStream_t stream)
{
	block_a_session<<<p->sessions, threads, 0, stream>>>(*p);
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_layers_apart(const struct plain_rows *p, uint32_t blocks,
                                           cudaStream_t stream)
{
	layers_apart<<<blocks, threads, 0, stream>>>(*p);
	return cudaGetLastError();
}
