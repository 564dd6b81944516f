/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Types and calls of the CUDA driver, as far as cuda/range.c uses them: driver.c has them. */
#ifndef EMULATED_CUDA_TYPEDEFS_H
#define EMULATED_CUDA_TYPEDEFS_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2
} CUresult;

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUmemGenericAllocationHandle;

typedef enum {
	CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
} CUdevice_attribute;

typedef enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM } CUmemAllocationGranularity_flags;

typedef enum {
	CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
} CUmemAccess_flags;

typedef struct {
	enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 } type;
	int id;
} CUmemLocation;

typedef struct {
	enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 } type;
	CUmemLocation location;
	struct {
		unsigned char gpuDirectRDMACapable;
	} allocFlags;
} CUmemAllocationProp;

typedef struct {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef CUresult (*PFN_cuDeviceGetAttribute_v2000)(int *value, CUdevice_attribute attribute,
                                                   CUdevice device);
typedef CUresult (*PFN_cuMemAddressReserve_v10020)(CUdeviceptr *at, size_t bytes, size_t alignment,
                                                   CUdeviceptr wish, unsigned long long flags);
typedef CUresult (*PFN_cuMemAddressFree_v10020)(CUdeviceptr at, size_t bytes);
typedef CUresult (*PFN_cuMemCreate_v10020)(CUmemGenericAllocationHandle *memory, size_t bytes,
                                           const CUmemAllocationProp *kind,
                                           unsigned long long flags);
typedef CUresult (*PFN_cuMemRelease_v10020)(CUmemGenericAllocationHandle memory);
typedef CUresult (*PFN_cuMemMap_v10020)(CUdeviceptr at, size_t bytes, size_t offset,
                                        CUmemGenericAllocationHandle memory,
                                        unsigned long long flags);
typedef CUresult (*PFN_cuMemUnmap_v10020)(CUdeviceptr at, size_t bytes);
typedef CUresult (*PFN_cuMemSetAccess_v10020)(CUdeviceptr at, size_t bytes,
                                              const CUmemAccessDesc *access, size_t count);
typedef CUresult (*PFN_cuMemGetAllocationGranularity_v10020)(
	size_t *granule, const CUmemAllocationProp *kind, CUmemAllocationGranularity_flags flags);
typedef CUresult (*PFN_cuGetErrorName_v6000)(CUresult error, const char **name);

#endif
