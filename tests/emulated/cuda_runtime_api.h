/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Calls of the CUDA runtime, as far as cuda/ uses them: runtime.c has them. */
#ifndef EMULATED_CUDA_RUNTIME_API_H
#define EMULATED_CUDA_RUNTIME_API_H

#include "driver_types.h"

#include <stddef.h>
#include <stdint.h>

#define CUDART_VERSION 12050

enum { cudaEnableDefault };

enum cudaDriverEntryPointQueryResult {
	cudaDriverEntryPointSuccess,
	cudaDriverEntryPointSymbolNotFound
};

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void *call, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found);

cudaError_t cudaMemGetInfo(size_t *spare, size_t *all);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostGetDevicePointer(void **address, void *memory, unsigned flags);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

#ifdef __cplusplus
}
#endif

#endif
