/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Between device_cuda.c and its kernels. */
#ifndef DECODE_DEVICE_ROWS_H
#define DECODE_DEVICE_ROWS_H

#include <dhisparse/dhisparse.h>

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Brings `count` rows, one behind the other in memory that the device can read, to their slots in
 * a layer. */
cudaError_t device_scatter(const dhs_place *place, const int32_t *slots, const void *rows,
                           size_t count, cudaStream_t stream);

/* Brings the rows of `count` slots of a layer one behind the other.  Nothing is written where
 * selection is negative.  A selected row without a slot goes to *lost. */
cudaError_t device_gather(const dhs_place *place, const int32_t *selection, const int32_t *slots,
                          void *rows, size_t count, int32_t *lost, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
