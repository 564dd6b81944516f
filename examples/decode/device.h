/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What kv.c needs of the device that has the rows, besides the library: a stream, arrays in
 * device memory, and rows brought to their slots and from their slots, since this engine computes
 * on the processor.  device_host.c is this for the host backend, device_cuda.c for a GPU.
 */
#ifndef DECODE_DEVICE_H
#define DECODE_DEVICE_H

#include <dhisparse/dhisparse.h>

/* How much there is of what, at most. */
struct device_shape {
	size_t rows;            /* new rows of a step, of all sessions */
	size_t top_k;           /* selected rows of each of them */
	const dhs_place *place; /* of each layer; must outlive the device */
};

struct device {
	dhs_stream stream;

	/* In device memory, for the library's calls. */
	int32_t *new_slots;         /* [rows] */
	int32_t *selection, *slots; /* [rows][top_k] */

	/* In ordinary memory, rows one behind the other. */
	uint16_t *new_rows; /* [rows] */
	uint16_t *selected; /* [rows][top_k] */

	/* All of these go behind what is on the stream, for the first `rows` rows of the arrays.
	 * select copies the caller's array to selection; write brings new_rows to the new_slots of a
	 * layer; read brings the rows of a layer from slots to selected, where something is selected,
	 * and waits for that.  So what was given to select and write may change after the next read. */
	void (*select)(struct device *device, const int32_t *selection, size_t rows);
	void (*write)(struct device *device, int layer, size_t rows);
	void (*read)(struct device *device, int layer, size_t rows);
	void (*close)(struct device *device);
};

/* Of the backend that a context has.  `host` is the context's device, NULL if it has none. */
struct device *device_open(uint32_t backend, dhs_host *host, const struct device_shape *shape);

/* Only in a build with CUDA. */
struct device *device_open_cuda(const struct device_shape *shape);

/* Dies because a row that is selected was given no slot. */
_Noreturn void device_no_slot(int32_t row);

#endif
