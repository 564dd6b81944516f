/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows to their slots and from their slots: a thread for each four bytes. */
#include "device_rows.h"

namespace {

constexpr unsigned threads = 256;

/* Where the row of a slot is. */
__device__ uint32_t *row_at(const dhs_place &place, int32_t slot)
{
	uint32_t page = uint32_t(slot) / place.page_rows, at = uint32_t(slot) % place.page_rows;

	return reinterpret_cast<uint32_t *>(static_cast<unsigned char *>(place.base) +
	                                    page * place.page_stride + at * place.row_stride);
}

__global__ void scatter(const __grid_constant__ dhs_place place, const int32_t *slots,
                        const uint32_t *rows, size_t count)
{
	size_t i = size_t(blockIdx.x) * threads + threadIdx.x, words = place.bytes / 4;

	if (i < count * words)
		row_at(place, slots[i / words])[i % words] = rows[i];
}

__global__ void gather(const __grid_constant__ dhs_place place, const int32_t *selection,
                       const int32_t *slots, uint32_t *rows, size_t count, int32_t *lost)
{
	size_t i = size_t(blockIdx.x) * threads + threadIdx.x, words = place.bytes / 4;

	if (i >= count * words || selection[i / words] < 0)
		return;
	if (slots[i / words] < 0)
		*lost = selection[i / words];
	else
		rows[i] = row_at(place, slots[i / words])[i % words];
}

unsigned blocks(const dhs_place *place, size_t count)
{
	return unsigned((count * (place->bytes / 4) + threads - 1) / threads);
}

} // namespace

cudaError_t device_scatter(const dhs_place *place, const int32_t *slots, const void *rows,
                           size_t count, cudaStream_t stream)
{
	scatter<<<blocks(place, count), threads, 0, stream>>>(
		*place, slots, static_cast<const uint32_t *>(rows), count);
	return cudaGetLastError();
}

cudaError_t device_gather(const dhs_place *place, const int32_t *selection, const int32_t *slots,
                          void *rows, size_t count, int32_t *lost, cudaStream_t stream)
{
	gather<<<blocks(place, count), threads, 0, stream>>>(
		*place, selection, slots, static_cast<uint32_t *>(rows), count, lost);
	return cudaGetLastError();
}
