/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Work of an engine that a fetch runs beside: one kernel bound by device memory, one by
 * the matrix units.  Blocks are short, so that the scheduler can mix them with others. */
#include "kernels.h"

#include <mma.h>

namespace
{

constexpr uint32_t copy_threads = 256;
constexpr uint32_t units_a_thread = 8;
constexpr uint32_t product_threads = 256;
constexpr uint32_t accumulators = 4;

__global__ void device_copy(const uint4 *from, uint4 *to)
{
	size_t at = size_t(blockIdx.x) * copy_threads * units_a_thread + threadIdx.x;
	uint4 value[units_a_thread];

#pragma unroll
	for (uint32_t i = 0; i < units_a_thread; i++)
		value[i] = from[at + i * copy_threads];
#pragma unroll
	for (uint32_t i = 0; i < units_a_thread; i++)
		to[at + i * copy_threads] = value[i];
}

__global__ void products(float *sink, uint32_t rounds)
{
	using namespace nvcuda::wmma;
	fragment<matrix_a, 16, 16, 16, __half, row_major> a;
	fragment<matrix_b, 16, 16, 16, __half, col_major> b;
	fragment<accumulator, 16, 16, 16, float> c[accumulators];

	/* Numbers that differ from lane to lane: zeros would run cooler than real data. */
	for (int i = 0; i < a.num_elements; i++)
		a.x[i] = __float2half(float((threadIdx.x * 7 + i * 13) % 31) / 31 - 0.5f);
	for (int i = 0; i < b.num_elements; i++)
		b.x[i] = __float2half(float((threadIdx.x * 11 + i * 5) % 29) / 29 - 0.5f);
	for (auto &one : c)
		fill_fragment(one, 0.0f);
	for (uint32_t r = 0; r < rounds; r++)
#pragma unroll
		for (auto &one : c)
			mma_sync(one, a, b, one);
	for (auto &one : c)
		if (one.x[0] == 12345.678f)
			*sink = one.x[0];
}

} // namespace

extern "C" cudaError_t kernel_device_copy(const void *from, void *to, size_t bytes,
                                          cudaStream_t stream)
{
	size_t each = copy_threads * units_a_thread * sizeof(uint4);

	device_copy<<<unsigned(bytes / each), copy_threads, 0, stream>>>(
		static_cast<const uint4 *>(from), static_cast<uint4 *>(to));
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_products(float *sink, uint32_t blocks, uint32_t rounds,
                                       cudaStream_t stream)
{
	products<<<blocks, product_threads, 0, stream>>>(sink, rounds);
	return cudaGetLastError();
}
