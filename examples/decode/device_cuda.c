/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows on a GPU.  new_rows and selected are pinned memory that the kernels of device_rows.cu
 * write and read in place: of each layer one kernel takes all new rows to their slots and one
 * brings all selected rows, and a wait for the latter is the only one. */
#include "device.h"
#include "device_rows.h"
#include "util.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>

struct cuda_device {
	struct device device; /* first: a struct device * of ours is a struct cuda_device * */
	struct device_shape shape;
	int32_t *selection; /* pinned: on its way to device memory */
	int32_t *lost;      /* pinned: a selected row without a slot, or -1 */
};

/* ---- CUDA ------------------------------------------------------------------------------------ */

static void check(const char *what, cudaError_t rc)
{
	if (rc != cudaSuccess)
		die(STATUS_LIBRARY, "%s: %s (%s)", what, cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static void *device_memory(size_t count, size_t size)
{
	void *memory;

	check("cudaMalloc", cudaMalloc(&memory, count * size));
	return memory;
}

static void *pinned_memory(size_t count, size_t size)
{
	void *memory;

	check("cudaHostAlloc", cudaHostAlloc(&memory, count * size, cudaHostAllocMapped));
	return memory;
}

/* ---- the device ------------------------------------------------------------------------------ */

static void select_rows(struct device *device, const int32_t *selection, size_t rows)
{
	struct cuda_device *d = (struct cuda_device *)device;
	size_t bytes = rows * d->shape.top_k * sizeof(*selection);

	memcpy(d->selection, selection, bytes);
	check("cudaMemcpyAsync", cudaMemcpyAsync(device->selection, d->selection, bytes,
	                                         cudaMemcpyHostToDevice, device->stream));
}

static void write_rows(struct device *device, int layer, size_t rows)
{
	struct cuda_device *d = (struct cuda_device *)device;

	check("scatter", device_scatter(&d->shape.place[layer], device->new_slots, device->new_rows,
	                                rows, device->stream));
}

static void read_rows(struct device *device, int layer, size_t rows)
{
	struct cuda_device *d = (struct cuda_device *)device;

	check("gather",
	      device_gather(&d->shape.place[layer], device->selection, device->slots, device->selected,
	                    rows * d->shape.top_k, d->lost, device->stream));
	check("cudaStreamSynchronize", cudaStreamSynchronize(device->stream));
	if (*d->lost >= 0)
		device_no_slot(*d->lost);
}

static void close_cuda(struct device *device)
{
	struct cuda_device *d = (struct cuda_device *)device;

	check("cudaStreamSynchronize", cudaStreamSynchronize(device->stream));
	check("cudaStreamDestroy", cudaStreamDestroy(device->stream));
	check("cudaFree", cudaFree(device->new_slots));
	check("cudaFree", cudaFree(device->selection));
	check("cudaFree", cudaFree(device->slots));
	check("cudaFreeHost", cudaFreeHost(device->new_rows));
	check("cudaFreeHost", cudaFreeHost(device->selected));
	check("cudaFreeHost", cudaFreeHost(d->selection));
	check("cudaFreeHost", cudaFreeHost(d->lost));
	free(d);
}

struct device *device_open_cuda(const struct device_shape *shape)
{
	struct cuda_device *d = zeros(1, sizeof(*d));
	size_t entries = shape->rows * shape->top_k;

	d->shape = *shape;
	check("cudaStreamCreate", cudaStreamCreateWithFlags(&d->device.stream, cudaStreamNonBlocking));
	d->device.new_slots = device_memory(shape->rows, sizeof(int32_t));
	d->device.selection = device_memory(entries, sizeof(int32_t));
	d->device.slots = device_memory(entries, sizeof(int32_t));
	d->device.new_rows = pinned_memory(shape->rows, shape->place[0].bytes);
	d->device.selected = pinned_memory(entries, shape->place[0].bytes);
	d->selection = pinned_memory(entries, sizeof(int32_t));
	d->lost = pinned_memory(1, sizeof(*d->lost));
	*d->lost = -1;
	d->device.select = select_rows;
	d->device.write = write_rows;
	d->device.read = read_rows;
	d->device.close = close_cuda;
	return &d->device;
}
