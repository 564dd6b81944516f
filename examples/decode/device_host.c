/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows on the host backend, where device memory is ordinary memory: what is on the stream has to
 * be waited for, and then rows are copied. */
#include "device.h"
#include "kv.h"
#include "util.h"

#include <dhisparse/host.h>

#include <stdlib.h>
#include <string.h>

struct host_device {
	struct device device; /* first: a struct device * of ours is a struct host_device * */
	struct device_shape shape;
};

/* The default stream, NULL, has nothing to wait for: that of a context's private device, whose
 * work has run when a call returns. */
static void wait(struct device *device)
{
	if (device->stream)
		must(dhs_host_stream_sync(device->stream));
}

/* Where the row of a slot is in a layer. */
static void *row_at(const dhs_place *place, int32_t slot)
{
	uint32_t page = (uint32_t)slot / place->page_rows, at = (uint32_t)slot % place->page_rows;

	return (unsigned char *)place->base + page * place->page_stride + at * place->row_stride;
}

static void select_rows(struct device *device, const int32_t *selection, size_t rows)
{
	struct host_device *d = (struct host_device *)device;

	wait(device);
	memcpy(device->selection, selection, rows * d->shape.top_k * sizeof(*selection));
}

static void write_rows(struct device *device, int layer, size_t rows)
{
	struct host_device *d = (struct host_device *)device;
	const dhs_place *place = &d->shape.place[layer];
	const unsigned char *from = (const unsigned char *)device->new_rows;

	wait(device);
	for (size_t i = 0; i < rows; i++)
		memcpy(row_at(place, device->new_slots[i]), from + i * place->bytes, place->bytes);
}

static void read_rows(struct device *device, int layer, size_t rows)
{
	struct host_device *d = (struct host_device *)device;
	const dhs_place *place = &d->shape.place[layer];
	unsigned char *to = (unsigned char *)device->selected;

	wait(device);
	for (size_t i = 0; i < rows * d->shape.top_k; i++) {
		if (device->selection[i] < 0)
			continue;
		if (device->slots[i] < 0)
			device_no_slot(device->selection[i]);
		memcpy(to + i * place->bytes, row_at(place, device->slots[i]), place->bytes);
	}
}

static void close_host(struct device *device)
{
	must(dhs_host_stream_destroy(device->stream));
	free(device->new_slots);
	free(device->selection);
	free(device->slots);
	free(device->new_rows);
	free(device->selected);
	free(device);
}

static struct device *open_host(dhs_host *host, const struct device_shape *shape)
{
	struct host_device *d = zeros(1, sizeof(*d));
	size_t entries = shape->rows * shape->top_k;

	d->shape = *shape;
	if (host)
		must(dhs_host_stream_create(host, &d->device.stream));
	d->device.new_slots = zeros(shape->rows, sizeof(int32_t));
	d->device.selection = zeros(entries, sizeof(int32_t));
	d->device.slots = zeros(entries, sizeof(int32_t));
	d->device.new_rows = zeros(shape->rows, shape->place[0].bytes);
	d->device.selected = zeros(entries, shape->place[0].bytes);
	d->device.select = select_rows;
	d->device.write = write_rows;
	d->device.read = read_rows;
	d->device.close = close_host;
	return &d->device;
}

/* ---- either device --------------------------------------------------------------------------- */

struct device *device_open(uint32_t backend, dhs_host *host, const struct device_shape *shape)
{
#ifdef HAVE_CUDA
	if (backend == DHS_BACKEND_CUDA)
		return device_open_cuda(shape);
#endif
	if (backend != DHS_BACKEND_HOST)
		die(STATUS_LIBRARY, "the context has backend %u, which decode does not know", backend);
	return open_host(host, shape);
}

_Noreturn void device_no_slot(int32_t row)
{
	die(STATUS_LIBRARY, "row %d was selected and has no slot", (int)row);
}
