/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include <cuda_runtime.h>

extern "C" {
#include "device_kernels.h"
}

namespace
{

/* A block a row and layer; words, since all sizes are multiples of 4. */
__global__ void rows_kernel(device_rows r, bool write)
{
	int32_t slot = r.slots[blockIdx.x];
	uint32_t layer = blockIdx.y, at = 0;
	unsigned char *bytes =
		r.bytes + (uint64_t(blockIdx.x) * r.layers + layer) * uint64_t(r.row_bytes);

	if (slot < 0 || uint32_t(slot) >= r.slots_end || (r.some && !(r.some[blockIdx.x] >> layer & 1)))
		return;
	for (uint32_t s = 0; s < r.segments; s++) {
		const dhs_place &p = r.place[layer * r.segments + s];
		unsigned char *row = static_cast<unsigned char *>(p.base) +
		                     uint64_t(uint32_t(slot) / p.page_rows) * p.page_stride +
		                     uint64_t(uint32_t(slot) % p.page_rows) * p.row_stride;

		for (uint32_t i = threadIdx.x * 4; i < p.bytes; i += blockDim.x * 4) {
			uint32_t *here = reinterpret_cast<uint32_t *>(row + i);
			uint32_t *there = reinterpret_cast<uint32_t *>(bytes + at + i);

			if (write)
				*here = *there;
			else
				*there = *here;
		}
		at += p.bytes;
	}
}

__global__ void copy_kernel(unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t i = threadIdx.x; i < bytes; i += blockDim.x)
		to[i] = from[i];
}

/* A warp an entry. */
template <bool write> __global__ void stamps_kernel(device_stamps t, uint32_t *wrong)
{
	uint64_t i = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
	uint32_t lane = threadIdx.x % 32, row, session;
	bool bad = false;

	if (i >= t.count || t.slots[i] < 0)
		return;
	row = t.rows ? uint32_t(t.rows[i]) : t.first + uint32_t(i);
	session = t.session + (t.each ? uint32_t(i / t.each) : 0);
	for (uint32_t l = t.from; l < t.from + t.some; l++) {
		const dhs_place &p = t.place[l];
		uint32_t *words = reinterpret_cast<uint32_t *>(
			static_cast<unsigned char *>(p.base) +
			uint64_t(uint32_t(t.slots[i]) / p.page_rows) * p.page_stride +
			uint64_t(uint32_t(t.slots[i]) % p.page_rows) * p.row_stride);

		for (uint32_t w = lane; w < p.bytes / 4; w += 32)
			if (write)
				words[w] = device_stamp(session, row, l, w);
			else
				bad |= words[w] != device_stamp(session, row, l, w);
	}
	if (!write && __any_sync(__activemask(), bad) && lane == 0)
		atomicAdd(wrong, 1);
}

template <bool write>
cudaError_t stamps(const device_stamps &t, uint32_t *wrong, cudaStream_t stream)
{
	if (!t.count)
		return cudaSuccess;
	stamps_kernel<write><<<unsigned((t.count + 7) / 8), 256, 0, stream>>>(t, wrong);
	return cudaGetLastError();
}

__device__ uint64_t nanoseconds()
{
	uint64_t now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	return now;
}

__global__ void delay_kernel(uint64_t time)
{
	uint64_t end = nanoseconds() + time;

	while (nanoseconds() < end)
		__nanosleep(1000);
}

__global__ void gate_kernel(const volatile uint32_t *flag)
{
	uint64_t end = nanoseconds() + 20000000000ull;

	while (!*flag && nanoseconds() < end)
		__nanosleep(1000);
}

__global__ void trap_kernel()
{
	__trap();
}

} // namespace

extern "C" cudaError_t device_kernel_rows(const device_rows *rows, bool write, cudaStream_t stream)
{
	if (!rows->count)
		return cudaSuccess;
	rows_kernel<<<dim3(rows->count, rows->layers), 64, 0, stream>>>(*rows, write);
	return cudaGetLastError();
}

extern "C" cudaError_t device_kernel_copy(void *to, const void *from, size_t bytes,
                                          cudaStream_t stream)
{
	copy_kernel<<<1, 256, 0, stream>>>(static_cast<unsigned char *>(to),
	                                   static_cast<const unsigned char *>(from), bytes);
	return cudaGetLastError();
}

extern "C" cudaError_t device_kernel_stamp(const device_stamps *t, cudaStream_t stream)
{
	return stamps<true>(*t, nullptr, stream);
}

extern "C" cudaError_t device_kernel_check(const device_stamps *t, uint32_t *wrong,
                                           cudaStream_t stream)
{
	return stamps<false>(*t, wrong, stream);
}

extern "C" cudaError_t device_kernel_delay(uint32_t microseconds, cudaStream_t stream)
{
	delay_kernel<<<1, 1, 0, stream>>>(uint64_t(microseconds) * 1000);
	return cudaGetLastError();
}

extern "C" cudaError_t device_kernel_gate(const volatile uint32_t *flag, cudaStream_t stream)
{
	gate_kernel<<<1, 1, 0, stream>>>(flag);
	return cudaGetLastError();
}

extern "C" cudaError_t device_kernel_trap(cudaStream_t stream)
{
	trap_kernel<<<1, 1, 0, stream>>>();
	return cudaGetLastError();
}
