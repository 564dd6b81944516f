/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The host backend's part of dhs_backend_ops that maps memory at chosen addresses. */
#ifndef DHS_LIB_HOST_RANGE_H
#define DHS_LIB_HOST_RANGE_H

#include <stddef.h>
#include <stdint.h>

int dhs_host_range_new(size_t bytes, void **range);
void dhs_host_range_free(void *range, size_t bytes);
/* All of it is zeroed: pages come so, and stay untouched. */
int dhs_host_range_map(void *const *at, uint32_t count, size_t bytes);
void dhs_host_range_unmap(void *const *at, uint32_t count, size_t bytes);

#endif
