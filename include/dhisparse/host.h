/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The host backend as a device: streams whose work runs in any order that
 * stream order allows.  With seed 0 work runs as soon as it may; with any other
 * seed it runs late and out of order, as the seed says, so that a missing wait
 * shows on a machine without a GPU.  Calls from several threads are safe.
 * Ordinary memory is its device memory.  A context without a device of its own
 * choice gets a private one with seed 0: its work has run when a call returns.
 */
#ifndef DHISPARSE_HOST_H
#define DHISPARSE_HOST_H

#include <dhisparse/dhisparse.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dhs_host_options {
	uint32_t size;
	uint32_t flags;                 /* 0 */
	uint64_t seed;                  /* 0: run at once, in order */
	const dhs_allocator *allocator; /* NULL: the C library's; copied */
} dhs_host_options;

/* A device.  options may be NULL. */
DHS_API int dhs_host_create(const dhs_host_options *options, dhs_host **host);

/* Runs what is left, then frees the device and its streams.  Contexts on it
 * must be gone: DHS_ERR_BUSY.  NULL is a no-op. */
DHS_API int dhs_host_destroy(dhs_host *host);

/* How often work ran before work that was enqueued earlier on another stream. */
DHS_API int dhs_host_reorderings(dhs_host *host, uint64_t *count);

/* DHS_ERR_HOST_MEMORY without memory for it. */
DHS_API int dhs_host_stream_create(dhs_host *host, dhs_stream *stream);

/* Runs what is left on the stream, then frees it.  NULL is a no-op. */
DHS_API int dhs_host_stream_destroy(dhs_stream stream);

/* Runs until everything on the stream has run. */
DHS_API int dhs_host_stream_sync(dhs_stream stream);

/* Makes `stream` wait for what is on `other` at this call. */
DHS_API int dhs_host_stream_join(dhs_stream stream, dhs_stream other);

/* Enqueues fn(copy) where copy is a copy of the `bytes` bytes at arg.  fn must
 * not call the library. */
DHS_API int dhs_host_launch(dhs_stream stream, void (*fn)(void *copy), const void *arg,
                            size_t bytes);

/* Between capture_begin and capture_end, work enqueued on `stream` is recorded in a
 * graph instead of run; the graph may be launched any number of times.  Streams do
 * not join while one of them is captured.  Graphs are destroyed before their device,
 * and what a launch enqueued must have run before what it uses, a batch or a context,
 * is destroyed.  DHS_ERR_ORDER: begin on a stream that is captured, end on one that is
 * not; DHS_ERR_CAPTURING: launch on one that is; DHS_ERR_HOST_MEMORY. */
typedef struct dhs_host_graph dhs_host_graph;

DHS_API int dhs_host_capture_begin(dhs_stream stream);
DHS_API int dhs_host_capture_end(dhs_stream stream, dhs_host_graph **graph);
DHS_API int dhs_host_graph_launch(dhs_host_graph *graph, dhs_stream stream);
DHS_API int dhs_host_graph_destroy(dhs_host_graph *graph);

#ifdef __cplusplus
}
#endif

#endif
