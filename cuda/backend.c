/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The CUDA backend behind the backend interface: memory, streams, events, and the
 * way to the kernels.  Calls return cudaError_t codes as DHS_ERR_ codes; an error
 * of ours is taken from the runtime's last error, so that the engine does not
 * find it there.
 */
#include "../lib/backend.h"

#include "cuda.h"
#include "range.h"

#include "../lib/error.h"

#include <cuda_runtime_api.h>

struct device {
	int id;
	dhs_allocator allocator;
	struct dhs_cuda_driver driver; /* filled if the context uses it */
	cudaStream_t stream;           /* for what is to be done at once */
};

/* ---- errors ---- */

static int failed(const char *what, cudaError_t rc)
{
	cudaGetLastError();
	return dhs_fail(rc == cudaErrorMemoryAllocation ? DHS_ERR_DEVICE_MEMORY : DHS_ERR_DEVICE,
	                "%s: %s (%s)", what, cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static int check(const char *what, cudaError_t rc)
{
	return rc == cudaSuccess ? DHS_OK : failed(what, rc);
}

/* Our calls may come while another thread captures a stream in the strictest mode,
 * and while another device is current: both are set aside and put back. */
struct entered {
	int device;
	enum cudaStreamCaptureMode mode;
};

static struct entered enter(const struct device *d)
{
	struct entered e = { .device = d->id, .mode = cudaStreamCaptureModeRelaxed };

	cudaThreadExchangeStreamCaptureMode(&e.mode);
	if (cudaGetDevice(&e.device) == cudaSuccess && e.device != d->id)
		cudaSetDevice(d->id);
	return e;
}

static void leave(const struct device *d, struct entered e)
{
	if (e.device != d->id)
		cudaSetDevice(e.device);
	cudaThreadExchangeStreamCaptureMode(&e.mode);
}

/* Runs one expression on the device and gives its error code. */
#define ON(d, expression)                                                                          \
	__extension__({                                                                                \
		struct entered entered_ = enter(d);                                                        \
		cudaError_t rc_ = (expression);                                                            \
		leave(d, entered_);                                                                        \
		rc_;                                                                                       \
	})

/* ---- open and close ---- */

static int choose(const dhs_context_options *options, int *id)
{
	int count = 0;
	cudaError_t rc = cudaGetDeviceCount(&count);

	if (rc != cudaSuccess || !count) {
		cudaGetLastError();
		return dhs_fail(DHS_ERR_UNSUPPORTED, "options->backend is cuda; there is no device (%s)",
		                rc == cudaSuccess ? "none found" : cudaGetErrorString(rc));
	}
	if (options->host)
		return dhs_fail(DHS_ERR_ARGUMENT, "options->host is not NULL; the cuda backend has no host "
		                                  "device");
	if (!(options->flags & DHS_CONTEXT_DEVICE))
		return check("cudaGetDevice", cudaGetDevice(id));
	if (options->device < 0 || options->device >= count)
		return dhs_fail(DHS_ERR_ARGUMENT, "options->device is %d; there are %d devices",
		                options->device, count);
	*id = options->device;
	return DHS_OK;
}

static int device_open(const dhs_context_options *options, const dhs_allocator *allocator,
                       void **device)
{
	struct device *d;
	int id = 0, rc = choose(options, &id);

	if (rc)
		return rc;
	d = dhs_memory_zeroed(allocator, DHS_MEMORY_CONTROL, sizeof(*d));
	if (!d)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the device's record");
	d->id = id;
	d->allocator = *allocator;
	rc = check("cudaStreamCreate",
	           ON(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking)));
	if (rc) {
		dhs_memory_free(allocator, DHS_MEMORY_CONTROL, d, sizeof(*d));
		return rc;
	}
	*device = d;
	return DHS_OK;
}

static void device_close(void *device)
{
	struct device *d = device;
	dhs_allocator allocator = d->allocator;

	if (ON(d, cudaStreamDestroy(d->stream)) != cudaSuccess)
		cudaGetLastError();
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, d, sizeof(*d));
}

/* What waits for a capture to end cannot be waited for: then there is an error to
 * forget, and nothing of it runs. */
static void device_idle(void *device)
{
	struct device *d = device;

	if (ON(d, cudaDeviceSynchronize()) != cudaSuccess)
		cudaGetLastError();
}

/* Else each call would make another device current again, which takes memory there. */
static void thread_begin(void *device)
{
	const struct device *d = device;

	if (cudaSetDevice(d->id) != cudaSuccess)
		cudaGetLastError();
}

static int device_prepare(void *device, const struct dhs_world *world)
{
	struct device *d = device;
	int rc = check("apply", ON(d, dhs_cuda_apply_load()));

	if (rc == DHS_OK)
		rc = check("slots", ON(d, dhs_cuda_slots_load()));
	if (rc == DHS_OK)
		rc = check("plan", ON(d, dhs_cuda_plan_load()));
	if (rc == DHS_OK)
		rc = check("fetch", ON(d, dhs_cuda_fetch_load(world)));
	if (rc == DHS_OK)
		rc = check("commit", ON(d, dhs_cuda_commit_load(world)));
	if (rc == DHS_OK)
		rc = check("copy", ON(d, dhs_cuda_copy_load(world)));
	return rc ? rc : check("warm", ON(d, dhs_cuda_warm_load(world)));
}

/* ---- memory ---- */

static int is_callers(const dhs_allocator *allocator, uint32_t kind)
{
	return kind == DHS_MEMORY_HOST && allocator->flags & DHS_ALLOCATOR_PINNED;
}

/* Memory that the GPU cannot reach, or not at the same address, is none. */
static void *callers_memory(struct device *d, const dhs_allocator *allocator, size_t bytes,
                            int zeroed)
{
	void *address, *memory = zeroed ? dhs_memory_zeroed(allocator, DHS_MEMORY_HOST, bytes)
	                                : dhs_memory_new(allocator, DHS_MEMORY_HOST, bytes);

	if (!memory ||
	    (ON(d, cudaHostGetDevicePointer(&address, memory, 0)) == cudaSuccess && address == memory))
		return memory;
	cudaGetLastError();
	dhs_memory_free(allocator, DHS_MEMORY_HOST, memory, bytes);
	return NULL;
}

static void *memory_new(void *device, const dhs_allocator *allocator, uint32_t kind, size_t bytes,
                        int zeroed)
{
	struct device *d = device;
	void *memory = NULL;
	cudaError_t rc;

	if (is_callers(allocator, kind))
		return callers_memory(d, allocator, bytes, zeroed);
	if (kind == DHS_MEMORY_DEVICE)
		rc = ON(d, cudaMalloc(&memory, bytes));
	else
		rc = ON(d, cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
	if (rc == cudaSuccess && zeroed)
		rc = ON(d, cudaMemsetAsync(memory, 0, bytes, d->stream));
	if (rc == cudaSuccess && zeroed)
		rc = ON(d, cudaStreamSynchronize(d->stream));
	if (rc == cudaSuccess)
		return memory;
	cudaGetLastError();
	return NULL;
}

static void memory_free(void *device, const dhs_allocator *allocator, uint32_t kind, void *memory,
                        size_t bytes)
{
	struct device *d = device;
	cudaError_t rc;

	if (is_callers(allocator, kind)) {
		dhs_memory_free(allocator, kind, memory, bytes);
		return;
	}
	rc = kind == DHS_MEMORY_DEVICE ? ON(d, cudaFree(memory)) : ON(d, cudaFreeHost(memory));
	if (rc != cudaSuccess)
		cudaGetLastError();
}

static int memory_write(void *device, void *to, const void *from, size_t bytes)
{
	struct device *d = device;
	cudaError_t rc = cudaSuccess;

	if (bytes)
		rc = ON(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->stream));
	if (bytes && rc == cudaSuccess)
		rc = ON(d, cudaStreamSynchronize(d->stream));
	return check("cudaMemcpyAsync", rc);
}

static int memory_set(void *device, void *to, int value, size_t bytes)
{
	struct device *d = device;
	cudaError_t rc = cudaSuccess;

	if (bytes)
		rc = ON(d, cudaMemsetAsync(to, value, bytes, d->stream));
	if (bytes && rc == cudaSuccess)
		rc = ON(d, cudaStreamSynchronize(d->stream));
	return check("cudaMemsetAsync", rc);
}

static void *memory_address(void *device, void *memory)
{
	struct device *d = device;
	void *address = NULL;

	if (ON(d, cudaHostGetDevicePointer(&address, memory, 0)) == cudaSuccess)
		return address;
	cudaGetLastError();
	return memory;
}

/* ---- memory at chosen addresses ---- */

static int alias(const dhs_context_options *options)
{
	struct dhs_cuda_driver driver;
	int id = options->device, count = 0, rc = cudaGetDeviceCount(&count);

	if (rc == cudaSuccess && !(options->flags & DHS_CONTEXT_DEVICE))
		rc = cudaGetDevice(&id);
	if (rc != cudaSuccess || id < 0 || id >= count) {
		cudaGetLastError();
		return 1;
	}
	return dhs_cuda_range_can(id, &driver);
}

/* As ON, with the device made the current one of the driver, too. */
#define ON_DRIVER(d, expression)                                                                   \
	__extension__({                                                                                \
		struct entered entered_ = enter(d);                                                        \
		int rc_ = check("cudaSetDevice", cudaSetDevice((d)->id));                                  \
		if (rc_ == DHS_OK)                                                                         \
			rc_ = (expression);                                                                    \
		leave(d, entered_);                                                                        \
		rc_;                                                                                       \
	})

static int range_new(void *device, size_t bytes, void **range)
{
	struct device *d = device;

	if (!dhs_cuda_range_can(d->id, &d->driver))
		return dhs_fail(DHS_ERR_UNSUPPORTED,
		                "the device cannot map memory at several addresses (see "
		                "DHS_CONTEXT_POOL_STAGING)");
	return ON_DRIVER(d, dhs_cuda_range_new(&d->driver, bytes, range));
}

static void range_free(void *device, void *range, size_t bytes)
{
	struct device *d = device;

	ON_DRIVER(d, dhs_cuda_range_free(&d->driver, range, bytes));
}

static void range_unmap(void *device, void *const *at, uint32_t count, size_t bytes)
{
	struct device *d = device;

	ON_DRIVER(d, dhs_cuda_range_unmap(&d->driver, at, count, bytes));
}

static int range_map(void *device, void *const *at, uint32_t count, size_t bytes, size_t zeroed)
{
	struct device *d = device;
	int rc = ON_DRIVER(d, dhs_cuda_range_map(&d->driver, d->id, at, count, bytes));

	if (rc)
		return rc;
	rc = memory_set(d, at[0], 0, zeroed);
	if (rc)
		range_unmap(d, at, count, bytes);
	return rc;
}

/* ---- streams and events ---- */

static int stream_check(void *device, dhs_stream stream, int *capturing)
{
	struct device *d = device;
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	cudaError_t rc = ON(d, cudaStreamIsCapturing(stream, &status));

	/* The legacy default stream cannot be asked while a stream is captured that it
	 * would wait for; it is not being captured itself. */
	if (rc == cudaErrorStreamCaptureImplicit) {
		cudaGetLastError();
		rc = cudaSuccess;
	}
	*capturing = status != cudaStreamCaptureStatusNone;
	return check("cudaStreamIsCapturing", rc);
}

static int stream_new(void *device, dhs_stream *stream)
{
	struct device *d = device;

	return check("cudaStreamCreate",
	             ON(d, cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking)));
}

static void stream_free(void *device, dhs_stream stream)
{
	struct device *d = device;

	if (ON(d, cudaStreamDestroy(stream)) != cudaSuccess)
		cudaGetLastError();
}

static cudaEvent_t event_of(dhs_event event)
{
	return (cudaEvent_t)(void *)event;
}

static int stream_wait(void *device, dhs_stream stream, dhs_event event)
{
	struct device *d = device;

	return check("cudaStreamWaitEvent", ON(d, cudaStreamWaitEvent(stream, event_of(event), 0)));
}

static int event_new(void *device, dhs_event *event)
{
	struct device *d = device;
	cudaEvent_t e;
	cudaError_t rc = ON(d, cudaEventCreateWithFlags(&e, cudaEventDisableTiming));

	if (rc != cudaSuccess)
		return failed("cudaEventCreate", rc);
	*event = (dhs_event)(void *)e;
	return DHS_OK;
}

static void event_free(void *device, dhs_event event)
{
	struct device *d = device;

	if (ON(d, cudaEventDestroy(event_of(event))) != cudaSuccess)
		cudaGetLastError();
}

static int event_record(void *device, dhs_event event, dhs_stream stream)
{
	struct device *d = device;

	return check("cudaEventRecord", ON(d, cudaEventRecord(event_of(event), stream)));
}

static int event_query(void *device, dhs_event event, int *passed)
{
	struct device *d = device;
	cudaError_t rc = ON(d, cudaEventQuery(event_of(event)));

	*passed = rc == cudaSuccess;
	if (rc == cudaErrorNotReady) {
		cudaGetLastError();
		return DHS_OK;
	}
	return check("cudaEventQuery", rc);
}

static int event_sync(void *device, dhs_event event)
{
	struct device *d = device;

	return check("cudaEventSynchronize", ON(d, cudaEventSynchronize(event_of(event))));
}

/* ---- kernels ---- */

static int apply(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                 const struct dhs_upload *upload, dhs_stream stream)
{
	return check("apply",
	             ON((struct device *)device, dhs_cuda_apply(world, batch, upload, stream)));
}

static int slots(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                 uint32_t sessions, uint32_t rows, int32_t *out, dhs_stream stream)
{
	return check("slots", ON((struct device *)device,
	                         dhs_cuda_slots(world, batch, sessions, rows, out, stream)));
}

static int plan(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                uint32_t group, const dhs_selection *selection, dhs_stream stream)
{
	return check(
		"plan", ON((struct device *)device, dhs_cuda_plan(world, batch, group, selection, stream)));
}

static int fetch(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                 uint32_t group, uint32_t first, uint32_t layers, dhs_stream stream)
{
	return check("fetch", ON((struct device *)device,
	                         dhs_cuda_fetch(world, batch, group, first, layers, stream)));
}

static int commit(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                  uint32_t sessions, const int32_t *kept, dhs_stream stream)
{
	return check("commit", ON((struct device *)device,
	                          dhs_cuda_commit(world, batch, sessions, kept, stream)));
}

static int report(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                  uint32_t in_flight, dhs_stream stream)
{
	return check("report",
	             ON((struct device *)device, dhs_cuda_report(world, batch, in_flight, stream)));
}

static int copy(void *device, const struct dhs_world *world, enum dhs_copy_way way,
                const struct dhs_copy *list, uint32_t count, dhs_stream stream)
{
	return check("copy",
	             ON((struct device *)device, dhs_cuda_copy(world, way, list, count, stream)));
}

static int warm(void *device, const struct dhs_world *world, const struct dhs_warm *warm,
                dhs_stream stream)
{
	return check("warm", ON((struct device *)device, dhs_cuda_warm(world, warm, stream)));
}

const struct dhs_backend_ops dhs_backend_cuda = {
	.open = device_open,
	.close = device_close,
	.idle = device_idle,
	.thread_begin = thread_begin,
	.prepare = device_prepare,
	.memory_new = memory_new,
	.memory_free = memory_free,
	.memory_write = memory_write,
	.memory_set = memory_set,
	.memory_address = memory_address,
	.alias = alias,
	.range_new = range_new,
	.range_free = range_free,
	.range_map = range_map,
	.range_unmap = range_unmap,
	.stream_check = stream_check,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.stream_wait = stream_wait,
	.event_new = event_new,
	.event_free = event_free,
	.event_record = event_record,
	.event_query = event_query,
	.event_sync = event_sync,
	.apply = apply,
	.slots = slots,
	.plan = plan,
	.fetch = fetch,
	.commit = commit,
	.report = report,
	.copy = copy,
	.warm = warm,
};

int dhs_backend_cuda_here(void)
{
	int count = 0;

	if (cudaGetDeviceCount(&count) != cudaSuccess)
		cudaGetLastError();
	return count > 0;
}
