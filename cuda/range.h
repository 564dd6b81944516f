/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The CUDA backend's part of dhs_backend_ops that maps memory at chosen addresses. */
#ifndef DHS_CUDA_RANGE_H
#define DHS_CUDA_RANGE_H

#include <cudaTypedefs.h>
#include <stddef.h>
#include <stdint.h>

/* Calls of the driver.  They are not part of the runtime, which is asked where they are,
 * so that the library links and loads without a driver. */
struct dhs_cuda_driver {
	PFN_cuDeviceGetAttribute_v2000 attribute;
	PFN_cuMemAddressReserve_v10020 reserve;
	PFN_cuMemAddressFree_v10020 free;
	PFN_cuMemCreate_v10020 create;
	PFN_cuMemRelease_v10020 release;
	PFN_cuMemMap_v10020 map;
	PFN_cuMemUnmap_v10020 unmap;
	PFN_cuMemSetAccess_v10020 access;
	PFN_cuMemGetAllocationGranularity_v10020 granularity;
	PFN_cuGetErrorName_v6000 name;
};

/* Whether the device has all that is below; fills the calls if it does. */
int dhs_cuda_range_can(int device, struct dhs_cuda_driver *driver);

/* The device is the current one. */
int dhs_cuda_range_new(const struct dhs_cuda_driver *driver, size_t bytes, void **range);
int dhs_cuda_range_free(const struct dhs_cuda_driver *driver, void *range, size_t bytes);
int dhs_cuda_range_map(const struct dhs_cuda_driver *driver, int device, void *const *at,
                       uint32_t count, size_t bytes);
int dhs_cuda_range_unmap(const struct dhs_cuda_driver *driver, void *const *at, uint32_t count,
                         size_t bytes);

#endif
