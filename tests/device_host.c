/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The host backend's device behind device.h. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

static int host_stop(struct device *device)
{
	return dhs_host_destroy(device->host);
}

static int host_close(struct device *device)
{
	(void)device;
	return DHS_OK;
}

static int host_reorderings(struct device *device, uint64_t *count)
{
	return dhs_host_reorderings(device->host, count);
}

/* Functions run in the caller's own calls. */
static void host_hold(struct device *device)
{
	(void)device;
}

static void *host_memory(struct device *device, size_t bytes)
{
	(void)device;
	return calloc(1, bytes ? bytes : 1);
}

static void host_release(struct device *device, void *memory)
{
	(void)device;
	free(memory);
}

static int host_read(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return DHS_OK;
}

static int host_stream_create(struct device *device, dhs_stream *stream)
{
	return dhs_host_stream_create(device->host, stream);
}

static int host_stream_destroy(struct device *device, dhs_stream stream)
{
	(void)device;
	return dhs_host_stream_destroy(stream);
}

static int host_stream_sync(struct device *device, dhs_stream stream)
{
	(void)device;
	return dhs_host_stream_sync(stream);
}

static int host_stream_join(struct device *device, dhs_stream stream, dhs_stream other)
{
	(void)device;
	return dhs_host_stream_join(stream, other);
}

static int host_launch(struct device *device, dhs_stream stream, void (*fn)(void *copy),
                       const void *arg, size_t bytes)
{
	(void)device;
	return dhs_host_launch(stream, fn, arg, bytes);
}

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static void run_copy(void *arg)
{
	const struct copy *copy = arg;

	memcpy(copy->to, copy->from, copy->bytes);
}

static int host_copy(struct device *device, dhs_stream stream, void *to, const void *from,
                     size_t bytes)
{
	struct copy copy = { to, from, bytes };

	(void)device;
	return dhs_host_launch(stream, run_copy, &copy, sizeof(copy));
}

/* Rows are found where they lie. */
static int host_rows(struct device *device, const struct device_rows *rows, bool write,
                     dhs_stream stream)
{
	(void)device;
	(void)rows;
	(void)write;
	(void)stream;
	return DHS_ERR_UNSUPPORTED;
}

static int host_capture_begin(struct device *device, dhs_stream stream)
{
	(void)device;
	return dhs_host_capture_begin(stream);
}

static int host_capture_end(struct device *device, dhs_stream stream, struct device_graph **graph)
{
	dhs_host_graph *made;
	int rc = dhs_host_capture_end(stream, &made);

	(void)device;
	if (rc == 0)
		*graph = (struct device_graph *)(void *)made;
	return rc;
}

static int host_graph_launch(struct device *device, struct device_graph *graph, dhs_stream stream)
{
	(void)device;
	return dhs_host_graph_launch((dhs_host_graph *)(void *)graph, stream);
}

static int host_graph_destroy(struct device *device, struct device_graph *graph)
{
	(void)device;
	return dhs_host_graph_destroy((dhs_host_graph *)(void *)graph);
}

static const struct device_ops host_ops = {
	.stop = host_stop,
	.close = host_close,
	.reorderings = host_reorderings,
	.hold = host_hold,
	.let = host_hold,
	.memory = host_memory,
	.release = host_release,
	.pool = host_memory,
	.pool_release = free,
	.read = host_read,
	.write = host_read,
	.stream_create = host_stream_create,
	.stream_destroy = host_stream_destroy,
	.stream_sync = host_stream_sync,
	.stream_join = host_stream_join,
	.launch = host_launch,
	.copy = host_copy,
	.rows = host_rows,
	.capture_begin = host_capture_begin,
	.capture_end = host_capture_end,
	.graph_launch = host_graph_launch,
	.graph_destroy = host_graph_destroy,
};

int device_open_host(struct device *device, uint64_t seed, const dhs_allocator *allocator)
{
	dhs_host_options options = DHS_INIT(dhs_host_options);

	*device = (struct device){ .ops = &host_ops, .backend = DHS_BACKEND_HOST, .direct = true };
	options.seed = seed;
	options.allocator = allocator;
	return dhs_host_create(&options, &device->host);
}

void device_of_host(struct device *device, dhs_host *host)
{
	*device = (struct device){
		.ops = &host_ops, .backend = DHS_BACKEND_HOST, .host = host, .direct = true
	};
}

uint32_t device_backend(void)
{
	const char *name = getenv("TEST_BACKEND");

	return name && strcmp(name, "cuda") == 0 ? DHS_BACKEND_CUDA : DHS_BACKEND_HOST;
}

#ifndef HAVE_CUDA

int device_open_cuda(struct device *device, uint64_t seed)
{
	(void)device;
	(void)seed;
	return DHS_ERR_UNSUPPORTED;
}

const char *device_error(void)
{
	return dhs_last_error();
}

void device_watch(const struct device_watch *watch)
{
	(void)watch;
}

#endif
