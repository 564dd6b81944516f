/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows at random out of host memory: where address translation begins to limit. */
#include "kernels.h"

namespace
{

constexpr uint32_t threads = 1024;
constexpr uint32_t warp_size = 32;
constexpr uint32_t rows_at_once = 4;

__device__ inline uint64_t mix64(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* A warp takes four rows at a time, so that all their loads are in flight. */
__global__ void __launch_bounds__(threads)
	random_rows(const unsigned char *from, uint64_t places, unsigned char *to, uint32_t row_bytes,
                uint32_t count, uint32_t seed)
{
	uint32_t units = row_bytes / sizeof(uint4), lane = threadIdx.x % warp_size;
	uint32_t warps = gridDim.x * (threads / warp_size);
	uint32_t warp = blockIdx.x * (threads / warp_size) + threadIdx.x / warp_size;

	for (uint32_t r = warp * rows_at_once; r < count; r += warps * rows_at_once) {
		const uint4 *row[rows_at_once];

#pragma unroll
		for (uint32_t i = 0; i < rows_at_once; i++)
			row[i] = reinterpret_cast<const uint4 *>(from + mix64(uint64_t(seed) << 32 | (r + i)) %
			                                                    places * row_bytes);
		for (uint32_t u = lane; u < units; u += warp_size) {
			uint4 value[rows_at_once];

#pragma unroll
			for (uint32_t i = 0; i < rows_at_once; i++)
				value[i] = row[i][u];
#pragma unroll
			for (uint32_t i = 0; i < rows_at_once; i++)
				reinterpret_cast<uint4 *>(to + uint64_t(r + i) * row_bytes)[u] = value[i];
		}
	}
}

} // namespace

extern "C" cudaError_t kernel_random_rows(const unsigned char *from, uint64_t range,
                                          unsigned char *to, uint32_t row_bytes, uint32_t count,
                                          uint32_t blocks, uint32_t seed, cudaStream_t stream)
{
	random_rows<<<blocks, threads, 0, stream>>>(from, range / row_bytes, to, row_bytes,
	                                            count / rows_at_once * rows_at_once, seed);
	return cudaGetLastError();
}
