/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What the tests themselves run on a GPU. */
#ifndef TESTS_DEVICE_KERNELS_H
#define TESTS_DEVICE_KERNELS_H

#include "device.h"

#include <driver_types.h>

cudaError_t device_kernel_rows(const struct device_rows *rows, bool write, cudaStream_t stream);
/* A copy that never makes the caller wait, as one between pieces of host memory would. */
cudaError_t device_kernel_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);

/* Rows of one segment, stamped with session, position and layer. */
struct device_stamps {
	const dhs_place *place; /* device memory, [layers] */
	const int32_t *slots;   /* device memory, [count]; below 0: passed over */
	const int32_t *rows;    /* device memory, [count], or NULL: first, first + 1, ... */
	uint64_t count;
	uint32_t first;
	uint32_t session;    /* of the first entry; a row of `each` entries has the next */
	uint32_t each;       /* 0: all are of one session */
	uint32_t from, some; /* layers */
};

#ifdef __CUDACC__
__host__ __device__
#endif
	static inline uint32_t
	device_stamp(uint32_t session, uint32_t row, uint32_t layer, uint32_t word)
{
	uint32_t x = row * 0x9e3779b1u ^ session * 0x85ebca77u ^ layer * 0xc2b2ae3du;

	x ^= x >> 15;
	return (x * 0x2c1b3c6du ^ word * 0x27d4eb2fu) | 1;
}

cudaError_t device_kernel_stamp(const struct device_stamps *stamps, cudaStream_t stream);
/* Adds the rows with other bytes to *wrong, in device memory. */
cudaError_t device_kernel_check(const struct device_stamps *stamps, uint32_t *wrong,
                                cudaStream_t stream);
/* Holds the stream up for a while. */
cudaError_t device_kernel_delay(uint32_t microseconds, cudaStream_t stream);
/* Holds the stream up until *flag, in mapped memory, is not 0; gives up after 20 seconds. */
cudaError_t device_kernel_gate(const volatile uint32_t *flag, cudaStream_t stream);
/* Stops the device for good: every later call of this process fails. */
cudaError_t device_kernel_trap(cudaStream_t stream);

#endif
