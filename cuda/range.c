/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Memory at addresses of the caller's choice: the driver's virtual memory calls. */
#include "range.h"

#include "../lib/error.h"
#include "../lib/staging.h"

#include <cuda_runtime_api.h>

#define FIRST_VERSION 11000 /* of the driver that has all of these calls */

static int find(const char *symbol, void *call)
{
	enum cudaDriverEntryPointQueryResult found;
	cudaError_t rc;

#if CUDART_VERSION >= 12050
	rc = cudaGetDriverEntryPointByVersion(symbol, call, FIRST_VERSION, cudaEnableDefault, &found);
#else
	rc = cudaGetDriverEntryPoint(symbol, call, cudaEnableDefault, &found);
#endif
	if (rc == cudaSuccess && found == cudaDriverEntryPointSuccess)
		return 1;
	cudaGetLastError();
	return 0;
}

static int find_all(struct dhs_cuda_driver *d)
{
	return find("cuDeviceGetAttribute", &d->attribute) &&
	       find("cuMemAddressReserve", &d->reserve) && find("cuMemAddressFree", &d->free) &&
	       find("cuMemCreate", &d->create) && find("cuMemRelease", &d->release) &&
	       find("cuMemMap", &d->map) && find("cuMemUnmap", &d->unmap) &&
	       find("cuMemSetAccess", &d->access) &&
	       find("cuMemGetAllocationGranularity", &d->granularity) &&
	       find("cuGetErrorName", &d->name);
}

static int has(const struct dhs_cuda_driver *d, CUdevice_attribute attribute, int device)
{
	int value = 0;

	return d->attribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

/* Memory of the device; network cards may reach it where the system lets them. */
static CUmemAllocationProp kind_of_memory(const struct dhs_cuda_driver *d, int device)
{
	CUmemAllocationProp kind = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		                         .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };

	kind.location.id = device;
	kind.allocFlags.gpuDirectRDMACapable =
		(unsigned char)has(d, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
	return kind;
}

int dhs_cuda_range_can(int device, struct dhs_cuda_driver *d)
{
	CUmemAllocationProp kind;
	size_t granule = 0;

	if (!find_all(d) || !has(d, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
		return 0;
	kind = kind_of_memory(d, device);
	return d->granularity(&granule, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
	       granule && DHS_WINDOW_BYTES % granule == 0;
}

static int failed(const struct dhs_cuda_driver *d, const char *what, size_t bytes, CUresult rc)
{
	const char *name = "?";

	d->name(rc, &name);
	return dhs_fail(rc == CUDA_ERROR_OUT_OF_MEMORY ? DHS_ERR_DEVICE_MEMORY : DHS_ERR_DEVICE,
	                "%s of %zu bytes: %s", what, bytes, name);
}

int dhs_cuda_range_new(const struct dhs_cuda_driver *d, size_t bytes, void **range)
{
	CUdeviceptr at = 0;
	CUresult rc = d->reserve(&at, bytes, DHS_WINDOW_BYTES, 0, 0);

	if (rc != CUDA_SUCCESS)
		return failed(d, "cuMemAddressReserve", bytes, rc);
	*range = (void *)(uintptr_t)at;
	return DHS_OK;
}

int dhs_cuda_range_free(const struct dhs_cuda_driver *d, void *range, size_t bytes)
{
	CUresult rc = d->free((CUdeviceptr)(uintptr_t)range, bytes);

	return rc == CUDA_SUCCESS ? DHS_OK : failed(d, "cuMemAddressFree", bytes, rc);
}

int dhs_cuda_range_unmap(const struct dhs_cuda_driver *d, void *const *at, uint32_t count,
                         size_t bytes)
{
	int result = DHS_OK;

	for (uint32_t i = 0; i < count; i++) {
		CUresult rc = d->unmap((CUdeviceptr)(uintptr_t)at[i], bytes);

		if (rc != CUDA_SUCCESS)
			result = failed(d, "cuMemUnmap", bytes, rc);
	}
	return result;
}

static int map_one(const struct dhs_cuda_driver *d, int device, void *at, size_t bytes,
                   CUmemGenericAllocationHandle memory)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
		                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult rc = d->map((CUdeviceptr)(uintptr_t)at, bytes, 0, memory, 0);

	if (rc != CUDA_SUCCESS)
		return failed(d, "cuMemMap", bytes, rc);
	access.location.id = device;
	rc = d->access((CUdeviceptr)(uintptr_t)at, bytes, &access, 1);
	if (rc == CUDA_SUCCESS)
		return DHS_OK;
	dhs_cuda_range_unmap(d, &at, 1, bytes);
	return failed(d, "cuMemSetAccess", bytes, rc);
}

int dhs_cuda_range_map(const struct dhs_cuda_driver *d, int device, void *const *at, uint32_t count,
                       size_t bytes)
{
	CUmemAllocationProp kind = kind_of_memory(d, device);
	CUmemGenericAllocationHandle memory;
	CUresult made = d->create(&memory, bytes, &kind, 0);
	int rc = DHS_OK;

	if (made != CUDA_SUCCESS)
		return failed(d, "cuMemCreate", bytes, made);
	for (uint32_t i = 0; rc == DHS_OK && i < count; i++) {
		rc = map_one(d, device, at[i], bytes, memory);
		if (rc)
			dhs_cuda_range_unmap(d, at, i, bytes);
	}
	/* The mappings keep the memory: it goes with the last of them. */
	made = d->release(memory);
	if (rc || made == CUDA_SUCCESS)
		return rc;
	dhs_cuda_range_unmap(d, at, count, bytes);
	return failed(d, "cuMemRelease", bytes, made);
}
