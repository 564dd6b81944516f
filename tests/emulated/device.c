/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The emulated GPU behind device.h: a device of the host backend, for contexts of the CUDA
 * backend.  One at a time. */
#include "../device.h"

#include "cuda_runtime_api.h"
#include "emulated.h"

static struct device host;
static struct device_ops ops;

static int stop(struct device *device)
{
	int rc = device_stop(&host);

	(void)device;
	if (rc == DHS_OK)
		emulated_use(NULL);
	return rc;
}

/* What goes wrong in a call of the library is not left for its caller to find. */
static int close_device(struct device *device)
{
	(void)device;
	return cudaGetLastError() == cudaSuccess ? DHS_OK : DHS_ERR_DEVICE;
}

static int reorderings(struct device *device, uint64_t *count)
{
	(void)device;
	return device_reorderings(&host, count);
}

static int stream_create(struct device *device, dhs_stream *stream)
{
	(void)device;
	return device_stream_create(&host, stream);
}

int device_open_cuda(struct device *device, uint64_t seed)
{
	int rc = device_open_host(&host, seed, NULL);

	if (rc)
		return rc;
	emulated_use(host.host);
	emulated_shuffle(seed);
	ops = *host.ops;
	ops.stop = stop;
	ops.close = close_device;
	ops.reorderings = reorderings;
	ops.stream_create = stream_create;
	*device = (struct device){ .ops = &ops, .backend = DHS_BACKEND_CUDA, .direct = true };
	return DHS_OK;
}

const char *device_error(void)
{
	return dhs_last_error();
}

void device_watch(const struct device_watch *watch)
{
	(void)watch;
}
