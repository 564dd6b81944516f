/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Records by a list: a warp a record, as the library's fetch does it. */
#include "kernels.h"

namespace
{

constexpr uint32_t threads = 1024;
constexpr uint32_t warp_size = 32;
constexpr uint32_t warps = threads / warp_size;
constexpr uint32_t in_flight = 4;

/* Entry m of the list: each part of the record goes to a place of its own. */
__device__ void bring(const gather &g, uint32_t m)
{
	const uint4 *record = reinterpret_cast<const uint4 *>(g.from + uint64_t(g.list[m]) * g.stride);
	uint32_t part_units = g.part_bytes / sizeof(uint4), units = g.parts * part_units;
	uint32_t lane = threadIdx.x % warp_size, part = lane / part_units, unit = lane % part_units;

	for (uint32_t u = lane; u < units; u += in_flight * warp_size) {
		uint4 *to[in_flight], value[in_flight];

#pragma unroll
		for (uint32_t i = 0; i < in_flight; i++) {
			to[i] = nullptr;
			if (u + i * warp_size >= units)
				continue;
			value[i] = record[u + i * warp_size];
			to[i] = reinterpret_cast<uint4 *>(g.to) + (uint64_t(part) * g.count + m) * part_units +
			        unit;
			for (unit += warp_size; unit >= part_units; unit -= part_units)
				part++;
		}
#pragma unroll
		for (uint32_t i = 0; i < in_flight; i++)
			if (to[i])
				*to[i] = value[i];
	}
}

__global__ void __launch_bounds__(threads) in_parts(const __grid_constant__ gather g)
{
	uint32_t part = (g.count + gridDim.x - 1) / gridDim.x;
	uint32_t from = blockIdx.x * part, to = from + part < g.count ? from + part : g.count;

	for (uint32_t m = from + threadIdx.x / warp_size; m < to; m += warps)
		bring(g, m);
}

__global__ void __launch_bounds__(threads) one_front(const __grid_constant__ gather g)
{
	uint32_t warp = blockIdx.x * warps + threadIdx.x / warp_size;

	for (uint32_t m = warp; m < g.count; m += gridDim.x * warps)
		bring(g, m);
}

} // namespace

extern "C" cudaError_t kernel_gather(const struct gather *g, uint32_t blocks, cudaStream_t stream)
{
	if (!g->count)
		return cudaSuccess;
	if (g->one_front)
		one_front<<<blocks, threads, 0, stream>>>(*g);
	else
		in_parts<<<blocks, threads, 0, stream>>>(*g);
	return cudaGetLastError();
}
