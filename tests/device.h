/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A device as the tests use it, on either backend: memory, streams, functions that
 * run in stream order, graphs.  The same sources then test both.
 *
 * Functions.  On the host backend a launched function runs when the device's schedule
 * comes to it.  On CUDA it is a host function of the stream and runs on another thread:
 * one at a time, and never while the caller holds the device (device_hold), so what
 * it touches must be memory of its own, constant, atomic, or touched by others only
 * while they hold the device.  It must call neither the library nor this interface,
 * but may give memory back.
 *
 * Rows.  Where `direct` is set functions find a pool's rows where they lie.  Else
 * device_rows_read and device_rows_write move them between slots and plain memory, in
 * stream order.
 */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H

#include <dhisparse/dhisparse.h>
#include <dhisparse/host.h>

#include <stdbool.h>

struct device_graph;

struct device {
	const struct device_ops *ops;
	uint32_t backend; /* these two are for the context's options */
	dhs_host *host;
	bool direct;
	void *state;
};

/* Rows of a pool at a list of slots, in plain memory: bytes[count][layers][row_bytes],
 * the segments of a row side by side. */
struct device_rows {
	const int32_t *slots;   /* device memory; those outside the pool are passed over */
	unsigned char *bytes;   /* device memory */
	const dhs_place *place; /* device memory, [layers][segments] */
	const uint32_t *some;   /* device memory, [count] bits of layers; NULL: all of them */
	uint32_t count;
	uint32_t layers;
	uint32_t segments;
	uint32_t row_bytes;
	uint32_t slots_end; /* of the pool */
};

struct device_ops {
	int (*stop)(struct device *device);
	int (*close)(struct device *device);
	int (*reorderings)(struct device *device, uint64_t *count);
	void (*hold)(struct device *device);
	void (*let)(struct device *device);
	void *(*memory)(struct device *device, size_t bytes);
	void (*release)(struct device *device, void *memory);
	void *(*pool)(struct device *device, size_t bytes);
	void (*pool_release)(void *pool);
	int (*read)(void *to, const void *pool, size_t bytes);
	int (*write)(void *pool, const void *from, size_t bytes);
	int (*stream_create)(struct device *device, dhs_stream *stream);
	int (*stream_destroy)(struct device *device, dhs_stream stream);
	int (*stream_sync)(struct device *device, dhs_stream stream);
	int (*stream_join)(struct device *device, dhs_stream stream, dhs_stream other);
	int (*launch)(struct device *device, dhs_stream stream, void (*fn)(void *copy), const void *arg,
	              size_t bytes);
	int (*copy)(struct device *device, dhs_stream stream, void *to, const void *from, size_t bytes);
	int (*rows)(struct device *device, const struct device_rows *rows, bool write,
	            dhs_stream stream);
	int (*capture_begin)(struct device *device, dhs_stream stream);
	int (*capture_end)(struct device *device, dhs_stream stream, struct device_graph **graph);
	int (*graph_launch)(struct device *device, struct device_graph *graph, dhs_stream stream);
	int (*graph_destroy)(struct device *device, struct device_graph *graph);
};

/* The library's memory on a GPU, in programs linked with the wrappers of device_watch.c:
 * take may refuse it, and all of it is memory that functions reach, so that `direct` is
 * true there.  NULL: nobody watches. */
struct device_watch {
	bool (*take)(void *arg, uint32_t kind, size_t bytes);
	void (*give)(void *arg, uint32_t kind, size_t bytes);
	void *arg;
};

void device_watch(const struct device_watch *watch);

int device_open_host(struct device *device, uint64_t seed, const dhs_allocator *allocator);
/* A device of the host backend that is somebody else's. */
void device_of_host(struct device *device, dhs_host *host);
/* DHS_ERR_UNSUPPORTED in a build without CUDA. */
int device_open_cuda(struct device *device, uint64_t seed);

/* All calls return 0 or a DHS_ERR_ code; its words: */
const char *device_error(void);

/* DHS_BACKEND_ of the environment variable TEST_BACKEND, host or cuda; host if unset. */
uint32_t device_backend(void);

/* seed: the device's order of work; of CUDA, where streams are held up. */
static inline int device_open(struct device *device, uint32_t backend, uint64_t seed,
                              const dhs_allocator *allocator)
{
	return backend == DHS_BACKEND_CUDA ? device_open_cuda(device, seed)
	                                   : device_open_host(device, seed, allocator);
}

/* Runs what is left; streams, graphs and contexts must be gone.  Only memory is left. */
static inline int device_stop(struct device *device)
{
	return device->ops->stop(device);
}

static inline int device_close(struct device *device)
{
	return device->ops->close(device);
}

/* How often work overtook other work; 0 where that is not known. */
static inline int device_reorderings(struct device *device, uint64_t *count)
{
	return device->ops->reorderings(device, count);
}

/* Between these two no launched function runs.  Let go around every call that waits. */
static inline void device_hold(struct device *device)
{
	device->ops->hold(device);
}

static inline void device_let(struct device *device)
{
	device->ops->let(device);
}

/* Zeroed memory that functions and kernels both use; NULL if there is none. */
static inline void *device_memory(struct device *device, size_t bytes)
{
	return device->ops->memory(device, bytes);
}

static inline void device_release(struct device *device, void *memory)
{
	device->ops->release(device, memory);
}

/* Zeroed memory for an engine's pool.  read and write are at once, also after
 * device_stop. */
static inline void *device_pool(struct device *device, size_t bytes)
{
	return device->ops->pool(device, bytes);
}

static inline int device_launch(struct device *device, dhs_stream stream, void (*fn)(void *copy),
                                const void *arg, size_t bytes)
{
	return device->ops->launch(device, stream, fn, arg, bytes);
}

/* A copy in stream order, between any kinds of memory. */
static inline int device_copy(struct device *device, dhs_stream stream, void *to, const void *from,
                              size_t bytes)
{
	return device->ops->copy(device, stream, to, from, bytes);
}

static inline int device_rows_read(struct device *device, const struct device_rows *rows,
                                   dhs_stream stream)
{
	return device->ops->rows(device, rows, false, stream);
}

static inline int device_rows_write(struct device *device, const struct device_rows *rows,
                                    dhs_stream stream)
{
	return device->ops->rows(device, rows, true, stream);
}

static inline int device_stream_create(struct device *device, dhs_stream *stream)
{
	return device->ops->stream_create(device, stream);
}

static inline int device_stream_destroy(struct device *device, dhs_stream stream)
{
	return device->ops->stream_destroy(device, stream);
}

static inline int device_stream_sync(struct device *device, dhs_stream stream)
{
	return device->ops->stream_sync(device, stream);
}

/* `stream` waits for what is on `other` now. */
static inline int device_stream_join(struct device *device, dhs_stream stream, dhs_stream other)
{
	return device->ops->stream_join(device, stream, other);
}

static inline int device_capture_begin(struct device *device, dhs_stream stream)
{
	return device->ops->capture_begin(device, stream);
}

static inline int device_capture_end(struct device *device, dhs_stream stream,
                                     struct device_graph **graph)
{
	return device->ops->capture_end(device, stream, graph);
}

static inline int device_graph_launch(struct device *device, struct device_graph *graph,
                                      dhs_stream stream)
{
	return device->ops->graph_launch(device, graph, stream);
}

static inline int device_graph_destroy(struct device *device, struct device_graph *graph)
{
	return device->ops->graph_destroy(device, graph);
}

#endif
