/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What a backend is: memory, streams, events, and the kernels of a step.  All
 * that decides anything lies above this interface and is the same for every
 * backend.  Calls return 0 or a DHS_ERR_ code with its text set.
 */
#ifndef DHS_LIB_BACKEND_H
#define DHS_LIB_BACKEND_H

#include "memory.h"
#include "world.h"

typedef struct dhs_event *dhs_event; /* the backend's */

struct dhs_backend_ops {
	/* The device of a context: of the options, or a private one. */
	int (*open)(const dhs_context_options *options, const dhs_allocator *allocator, void **device);
	void (*close)(void *device);
	/* Waits until all that is on the device's streams has run, those being captured
	 * included. */
	void (*idle)(void *device);
	/* The calling thread is the library's own, and works for this device only. */
	void (*thread_begin)(void *device);
	/* The geometry is known: memory of the backend's own. */
	int (*prepare)(void *device, const struct dhs_world *world);

	/* kind is DHS_MEMORY_DEVICE or DHS_MEMORY_HOST (readable by the device). */
	void *(*memory_new)(void *device, const dhs_allocator *allocator, uint32_t kind, size_t bytes,
	                    int zeroed);
	/* At once, before any work uses the memory. */
	int (*memory_write)(void *device, void *to, const void *from, size_t bytes);
	int (*memory_set)(void *device, void *to, int value, size_t bytes);
	/* Where the device sees memory of kind DHS_MEMORY_HOST. */
	void *(*memory_address)(void *device, void *memory);
	void (*memory_free)(void *device, const dhs_allocator *allocator, uint32_t kind, void *memory,
	                    size_t bytes);

	/* Memory at addresses of the caller's choice: see staging.h.  alias tells whether the
	 * device of these options has it; where it is not here to be asked, that it does.
	 * Addresses and bytes are multiples of DHS_WINDOW_BYTES. */
	int (*alias)(const dhs_context_options *options);
	int (*range_new)(void *device, size_t bytes, void **range);
	void (*range_free)(void *device, void *range, size_t bytes);
	/* One new memory of `bytes`, of which the first `zeroed` are 0 and the rest undefined,
	 * seen at each of the addresses; and away with it, which no work may use any more. */
	int (*range_map)(void *device, void *const *at, uint32_t count, size_t bytes, size_t zeroed);
	void (*range_unmap)(void *device, void *const *at, uint32_t count, size_t bytes);

	/* Fails for a stream that the device does not know. */
	int (*stream_check)(void *device, dhs_stream stream, int *capturing);
	int (*stream_new)(void *device, dhs_stream *stream);
	void (*stream_free)(void *device, dhs_stream stream);
	int (*stream_wait)(void *device, dhs_stream stream, dhs_event event);

	int (*event_new)(void *device, dhs_event *event);
	void (*event_free)(void *device, dhs_event event);
	int (*event_record)(void *device, dhs_event event, dhs_stream stream);
	int (*event_query)(void *device, dhs_event event, int *passed);
	int (*event_sync)(void *device, dhs_event event);

	/* Kernels.  world and batch stay valid until the context is idle; the upload
	 * is copied, what it points to stays until the step has passed. */
	int (*apply)(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
	             const struct dhs_upload *upload, dhs_stream stream);
	int (*slots)(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
	             uint32_t sessions, uint32_t rows, int32_t *out, dhs_stream stream);
	int (*plan)(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
	            uint32_t group, const dhs_selection *selection, dhs_stream stream);
	int (*fetch)(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
	             uint32_t group, uint32_t first, uint32_t layers, dhs_stream stream);
	int (*commit)(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
	              uint32_t sessions, const int32_t *kept, dhs_stream stream);
	/* Ends a step that is never committed: what the batch has counted goes to the
	 * host, as commit does it, and a replayed graph finds no step. */
	int (*report)(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
	              uint32_t in_flight, dhs_stream stream);
	/* The list is read before the call returns. */
	int (*copy)(void *device, const struct dhs_world *world, enum dhs_copy_way way,
	            const struct dhs_copy *list, uint32_t count, dhs_stream stream);
	/* What the list names is read before the call returns. */
	int (*warm)(void *device, const struct dhs_world *world, const struct dhs_warm *warm,
	            dhs_stream stream);
};

extern const struct dhs_backend_ops dhs_backend_host;

/* Only in a build with CUDA; _here tells whether there is a GPU. */
extern const struct dhs_backend_ops dhs_backend_cuda;
int dhs_backend_cuda_here(void);

#endif
