/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The CUDA runtime on a device of the host backend (lib/host/device.h): work on its streams
 * runs late and in any order that streams and events allow, drawn from the device's seed.
 */
#include "emulated.h"

#include "cuda_runtime_api.h"

#include "../../lib/host/device.h"

#include <stdlib.h>
#include <string.h>

static dhs_host *host;
static _Thread_local cudaError_t last = cudaSuccess;
static _Thread_local enum cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

void emulated_use(dhs_host *device)
{
	host = device;
}

/* ---- errors ---- */

cudaError_t emulated_error(cudaError_t error)
{
	if (error != cudaSuccess)
		last = error;
	return error;
}

/* What a call of the host device says. */
static cudaError_t answer(int rc)
{
	return emulated_error(rc == DHS_OK                ? cudaSuccess
	                      : rc == DHS_ERR_HOST_MEMORY ? cudaErrorMemoryAllocation
	                                                  : cudaErrorInvalidValue);
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last;

	last = cudaSuccess;
	return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
	switch (error) {
	case cudaSuccess:
		return "cudaSuccess";
	case cudaErrorInvalidValue:
		return "cudaErrorInvalidValue";
	case cudaErrorMemoryAllocation:
		return "cudaErrorMemoryAllocation";
	case cudaErrorInvalidConfiguration:
		return "cudaErrorInvalidConfiguration";
	default:
		return "another error";
	}
}

const char *cudaGetErrorString(cudaError_t error)
{
	return cudaGetErrorName(error);
}

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = 1;
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
	*device = 0;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	return emulated_error(device ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
	dhs_host_idle(host);
	return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void *call, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
	void (*address)(void) = emulated_driver_call(symbol);

	(void)version;
	(void)flags;
	memcpy(call, &address, sizeof(address));
	*found = address ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
	return cudaSuccess;
}

/* ---- memory ---- */

/* A small device: tests of large addresses pass over it. */
cudaError_t cudaMemGetInfo(size_t *spare, size_t *all)
{
	*spare = *all = (size_t)1 << 30;
	return cudaSuccess;
}

/* New memory holds what nobody should read. */
static cudaError_t take(void **memory, size_t bytes)
{
	void *taken = bytes <= SIZE_MAX - 255 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;

	if (!taken)
		return emulated_error(cudaErrorMemoryAllocation);
	*memory = memset(taken, 0xa5, bytes);
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	return take(memory, bytes);
}

cudaError_t cudaFree(void *memory)
{
	free(memory);
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
	(void)flags;
	return take(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
	free(memory);
	return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **address, void *memory, unsigned flags)
{
	(void)flags;
	*address = memory;
	return cudaSuccess;
}

struct bytes {
	void *to;
	const void *from;
	int value;
	size_t count;
};

static void run_copy(void *copy)
{
	const struct bytes *b = copy;

	memcpy(b->to, b->from, b->count);
}

static void run_set(void *copy)
{
	const struct bytes *b = copy;

	memset(b->to, b->value, b->count);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
	struct bytes b = { .to = to, .from = from, .count = bytes };

	(void)kind;
	emulated_enqueue(stream, run_copy, &b, sizeof(b));
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	struct bytes b = { .to = to, .value = value, .count = bytes };

	emulated_enqueue(stream, run_set, &b, sizeof(b));
	return cudaSuccess;
}

/* ---- streams and events ---- */

void emulated_enqueue(cudaStream_t stream, void (*fn)(void *copy), const void *argument,
                      size_t bytes)
{
	dhs_host_enqueue(host, stream, fn, argument, bytes);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	(void)flags;
	return host ? answer(dhs_host_stream_create(host, stream)) : emulated_error(cudaErrorNoDevice);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	return answer(dhs_host_stream_destroy(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return answer(dhs_host_stream_sync(stream));
}

static dhs_event event_of(cudaEvent_t event)
{
	return (dhs_event)(void *)event;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	(void)flags;
	return answer(dhs_host_stream_wait(host, stream, event_of(event)));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	int capturing = 0, rc = dhs_host_stream_check(host, stream, &capturing);

	*status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	return answer(rc);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	enum cudaStreamCaptureMode old = capture_mode;

	capture_mode = *mode;
	*mode = old;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	dhs_event made = NULL;
	int rc = dhs_host_event_new(host, &made);

	(void)flags;
	*event = (cudaEvent_t)(void *)made;
	return answer(rc);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	dhs_host_event_free(host, event_of(event));
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return answer(dhs_host_event_record(host, event_of(event), stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	int passed = 0, rc = dhs_host_event_query(host, event_of(event), &passed);

	return rc || passed ? answer(rc) : emulated_error(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	return answer(dhs_host_event_sync(host, event_of(event)));
}
