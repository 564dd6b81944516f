/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A GPU behind device.h.  With a seed other than 0 streams are held up here and there,
 * so that work which nothing orders runs in another order than it was enqueued.
 */
#include "device_kernels.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In front of each piece of device memory; pieces given back are used again: freeing
 * one would wait for the GPU. */
struct piece {
	struct piece *next;
	size_t bytes;
	struct owner *owner;
	uint32_t size; /* class: 1 << size bytes */
	uint32_t live;
};

/* Small pieces are cut from chunks: a process has not room for very many mappings. */
struct chunk {
	struct chunk *next;
	size_t used;
};

enum { PIECE_FRONT = 256, SIZES = 48, SMALL = 18, CHUNK = 1 << 23 };

/* A launched function and its argument. */
struct call {
	struct call *next;
	struct owner *owner;
	void (*fn)(void *copy);
	bool kept; /* in a graph: lives as long as the device */
	max_align_t copy[];
};

struct owner {
	pthread_mutex_t running; /* functions, or whoever holds the device */
	pthread_mutex_t lock;    /* of the lists */
	struct piece *idle[SIZES];
	struct chunk *chunks;
	struct call *kept;
	dhs_stream captured;
	uint64_t dice;
};

/* Set by the wrappers of device_watch.c, where they are linked. */
bool device_watched;
const struct device_watch *device_watcher;
/* The calls of this thread are the tests' own. */
_Thread_local bool device_own_call;

static _Thread_local char words[300];

void device_watch(const struct device_watch *watch)
{
	device_watcher = watch;
}

const char *device_error(void)
{
	return words[0] ? words : dhs_last_error();
}

static int answer(const char *what, cudaError_t rc)
{
	words[0] = '\0';
	if (rc == cudaSuccess)
		return DHS_OK;
	snprintf(words, sizeof(words), "%s: %s (%s)", what, cudaGetErrorName(rc),
	         cudaGetErrorString(rc));
	return DHS_ERR_DEVICE;
}

/* A call of the tests' own: not watched, and allowed while a stream is captured. */
static void own(void)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

	device_own_call = true;
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
}

static cudaError_t owned(cudaError_t rc)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	device_own_call = false;
	return rc;
}

#define ANSWER(call) answer(#call, (own(), owned(call)))

static struct owner *owner_of(struct device *device)
{
	return device->state;
}

/* ---- memory --------------------------------------------------------------------- */

static struct piece *piece_idle(struct owner *owner, uint32_t size)
{
	struct piece *piece;

	pthread_mutex_lock(&owner->lock);
	piece = owner->idle[size];
	if (piece)
		owner->idle[size] = piece->next;
	pthread_mutex_unlock(&owner->lock);
	return piece;
}

static void *host_alloc(size_t bytes)
{
	void *memory = NULL;

	if (ANSWER(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable)))
		return NULL;
	return memory;
}

static void *piece_cut(struct owner *owner, size_t bytes)
{
	struct chunk *chunk = owner->chunks;

	if (!chunk || chunk->used + bytes > CHUNK) {
		chunk = host_alloc(CHUNK);
		if (!chunk)
			return NULL;
		*chunk = (struct chunk){ owner->chunks, 1024 };
		owner->chunks = chunk;
	}
	chunk->used += bytes;
	return (char *)chunk + chunk->used - bytes;
}

static void *cuda_memory(struct device *device, size_t bytes)
{
	struct owner *owner = owner_of(device);
	uint32_t size = 10;
	struct piece *piece;

	while ((size_t)1 << size < bytes + PIECE_FRONT)
		size++;
	piece = piece_idle(owner, size);
	if (!piece)
		piece = size < SMALL ? piece_cut(owner, (size_t)1 << size) : host_alloc((size_t)1 << size);
	if (!piece)
		return NULL;
	*piece = (struct piece){ NULL, bytes, owner, size, 1 };
	return memset((char *)piece + PIECE_FRONT, 0, bytes);
}

static void cuda_release(struct device *device, void *memory)
{
	struct piece *piece = (struct piece *)(void *)((char *)memory - PIECE_FRONT);
	struct owner *owner = owner_of(device);

	if (!memory)
		return;
	if (piece->owner != owner || !piece->live)
		abort();
	piece->live = 0;
	pthread_mutex_lock(&owner->lock);
	piece->next = owner->idle[piece->size];
	owner->idle[piece->size] = piece;
	pthread_mutex_unlock(&owner->lock);
}

static void *cuda_pool(struct device *device, size_t bytes)
{
	void *pool;

	(void)device;
	if (ANSWER(cudaMalloc(&pool, bytes)) || ANSWER(cudaMemset(pool, 0, bytes)) ||
	    ANSWER(cudaDeviceSynchronize()))
		return NULL;
	return pool;
}

static void cuda_pool_release(void *pool)
{
	(void)ANSWER(cudaFree(pool));
}

static int cuda_read(void *to, const void *pool, size_t bytes)
{
	return ANSWER(cudaMemcpy(to, pool, bytes, cudaMemcpyDeviceToHost));
}

static int cuda_write(void *pool, const void *from, size_t bytes)
{
	int rc = ANSWER(cudaMemcpy(pool, from, bytes, cudaMemcpyHostToDevice));

	return rc ? rc : ANSWER(cudaDeviceSynchronize());
}

/* ---- streams ---------------------------------------------------------------------- */

/* Every eighth time or so, for up to a fifth of a millisecond. */
static int hold_up(struct owner *owner, dhs_stream stream)
{
	uint32_t dice;

	if (!owner->dice || owner->captured)
		return DHS_OK;
	owner->dice = owner->dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	dice = (uint32_t)(owner->dice >> 33);
	return dice % 8 ? DHS_OK : ANSWER(device_kernel_delay(dice / 8 % 200, stream));
}

static int cuda_stream_create(struct device *device, dhs_stream *stream)
{
	(void)device;
	return ANSWER(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

static int cuda_stream_sync(struct device *device, dhs_stream stream)
{
	(void)device;
	return ANSWER(cudaStreamSynchronize(stream));
}

static int cuda_stream_destroy(struct device *device, dhs_stream stream)
{
	int rc = stream ? cuda_stream_sync(device, stream) : DHS_OK;

	return rc || !stream ? rc : ANSWER(cudaStreamDestroy(stream));
}

static int cuda_stream_join(struct device *device, dhs_stream stream, dhs_stream other)
{
	cudaEvent_t event;
	int rc = ANSWER(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));

	(void)device;
	if (rc)
		return rc;
	rc = ANSWER(cudaEventRecord(event, other));
	if (rc == DHS_OK)
		rc = ANSWER(cudaStreamWaitEvent(stream, event, 0));
	(void)cudaEventDestroy(event);
	return rc;
}

/* ---- functions -------------------------------------------------------------------- */

static void run_call(void *arg)
{
	struct call *call = arg;

	pthread_mutex_lock(&call->owner->running);
	call->fn(call->copy);
	pthread_mutex_unlock(&call->owner->running);
	if (!call->kept)
		free(call);
}

static int cuda_launch(struct device *device, dhs_stream stream, void (*fn)(void *copy),
                       const void *arg, size_t bytes)
{
	struct owner *owner = owner_of(device);
	struct call *call = malloc(sizeof(*call) + bytes);
	int rc = call ? hold_up(owner, stream) : DHS_ERR_HOST_MEMORY;

	if (rc) {
		free(call);
		return rc;
	}
	*call = (struct call){ NULL, owner, fn, owner->captured == stream && stream };
	memcpy(call->copy, arg, bytes);
	if (call->kept) {
		call->next = owner->kept;
		owner->kept = call;
	}
	return ANSWER(cudaLaunchHostFunc(stream, run_call, call));
}

static int cuda_copy(struct device *device, dhs_stream stream, void *to, const void *from,
                     size_t bytes)
{
	int rc = hold_up(owner_of(device), stream);

	return rc ? rc : ANSWER(device_kernel_copy(to, from, bytes, stream));
}

static int cuda_rows(struct device *device, const struct device_rows *rows, bool write,
                     dhs_stream stream)
{
	(void)device;
	return ANSWER(device_kernel_rows(rows, write, stream));
}

static void cuda_hold(struct device *device)
{
	pthread_mutex_lock(&owner_of(device)->running);
}

static void cuda_let(struct device *device)
{
	pthread_mutex_unlock(&owner_of(device)->running);
}

/* ---- graphs ------------------------------------------------------------------------ */

/* The strictest mode: what the library does meanwhile must not end the capture. */
static int cuda_capture_begin(struct device *device, dhs_stream stream)
{
	owner_of(device)->captured = stream;
	return ANSWER(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
}

static int cuda_capture_end(struct device *device, dhs_stream stream, struct device_graph **graph)
{
	cudaGraph_t made;
	cudaGraphExec_t ready;
	int rc = ANSWER(cudaStreamEndCapture(stream, &made));

	owner_of(device)->captured = NULL;
	if (rc)
		return rc;
	rc = ANSWER(cudaGraphInstantiate(&ready, made, 0));
	(void)cudaGraphDestroy(made);
	if (rc == DHS_OK)
		*graph = (struct device_graph *)(void *)ready;
	return rc;
}

static int cuda_graph_launch(struct device *device, struct device_graph *graph, dhs_stream stream)
{
	int rc = hold_up(owner_of(device), stream);

	return rc ? rc : ANSWER(cudaGraphLaunch((cudaGraphExec_t)(void *)graph, stream));
}

static int cuda_graph_destroy(struct device *device, struct device_graph *graph)
{
	(void)device;
	return ANSWER(cudaGraphExecDestroy((cudaGraphExec_t)(void *)graph));
}

/* ---- open and close ---------------------------------------------------------------- */

static int cuda_reorderings(struct device *device, uint64_t *count)
{
	(void)device;
	*count = 0;
	return DHS_OK;
}

static int cuda_stop(struct device *device)
{
	(void)device; /* streams were waited for when they were destroyed */
	return DHS_OK;
}

static int cuda_close(struct device *device)
{
	struct owner *owner = owner_of(device);
	int rc = DHS_OK;

	for (uint32_t size = SMALL; size < SIZES; size++)
		for (struct piece *piece = owner->idle[size], *next; piece; piece = next) {
			next = piece->next;
			rc |= ANSWER(cudaFreeHost(piece));
		}
	for (struct chunk *chunk = owner->chunks, *next; chunk; chunk = next) {
		next = chunk->next;
		rc |= ANSWER(cudaFreeHost(chunk));
	}
	for (struct call *call = owner->kept, *next; call; call = next) {
		next = call->next;
		free(call);
	}
	pthread_mutex_destroy(&owner->running);
	pthread_mutex_destroy(&owner->lock);
	free(owner);
	return rc ? rc : ANSWER(cudaGetLastError());
}

static const struct device_ops cuda_ops = {
	.stop = cuda_stop,
	.close = cuda_close,
	.reorderings = cuda_reorderings,
	.hold = cuda_hold,
	.let = cuda_let,
	.memory = cuda_memory,
	.release = cuda_release,
	.pool = cuda_pool,
	.pool_release = cuda_pool_release,
	.read = cuda_read,
	.write = cuda_write,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_sync = cuda_stream_sync,
	.stream_join = cuda_stream_join,
	.launch = cuda_launch,
	.copy = cuda_copy,
	.rows = cuda_rows,
	.capture_begin = cuda_capture_begin,
	.capture_end = cuda_capture_end,
	.graph_launch = cuda_graph_launch,
	.graph_destroy = cuda_graph_destroy,
};

int device_open_cuda(struct device *device, uint64_t seed)
{
	struct owner *owner = calloc(1, sizeof(*owner));

	*device = (struct device){
		.ops = &cuda_ops, .backend = DHS_BACKEND_CUDA, .state = owner, .direct = device_watched
	};
	if (!owner)
		return DHS_ERR_HOST_MEMORY;
	pthread_mutex_init(&owner->running, NULL);
	pthread_mutex_init(&owner->lock, NULL);
	owner->dice = seed;
	return ANSWER(cudaFree(NULL));
}
