/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A GPU emulated on the processor, so that the CUDA backend is tested where there is none.
 * The headers in this folder stand before those of CUDA; all of cuda/ compiles against them
 * with a C and a C++ compiler, unchanged:
 *
 *   cuda_runtime.h      what kernels use: words of the language, and how they are launched
 *   cub/                the algorithms of CUB that they use
 *   block.cpp           runs a kernel, its blocks and threads in an order drawn from a seed
 *   cuda_runtime_api.h, driver_types.h, runtime.c
 *                       the runtime's memory, streams and events, on lib/host/device.c
 *   cudaTypedefs.h, driver.c
 *                       the driver's memory at chosen addresses
 *   device.c, stamps.c  the device of tests/device.h, and the kernels of check_large.c
 *
 * Everything is there that cuda/ uses, and no more: what is missing does not compile.
 *
 * A thread of a block runs until it waits for others, at a barrier or a warp's collective
 * operation; who goes on next is drawn.  So a barrier that is left out shows, as do threads of
 * a warp that do not come together, shared memory that is read before it is written, and more
 * of it used than asked for.  Not seen are: what blocks, or kernels on several streams, do to
 * each other while they run, as they run one after the other; what fences are for, as every
 * store is visible at once; when a kernel may start before the one ahead has ended; memory
 * that the processor reaches and a GPU does not; nvcc's own mistakes; and time.
 */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#include <type_traits>

/* ---- words of the language ---- */

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)

/* One block runs at a time, so that one copy is enough; in a section of its own, which is
 * overwritten for each. */
#define __shared__ static __attribute__((section("emulated_shared")))
#define DHS_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulated_dynamic)
extern void *emulated_dynamic;

struct uint2 {
	alignas(8) unsigned x;
	unsigned y;
};

struct uint4 {
	alignas(16) unsigned x;
	unsigned y, z, w;
};

struct dim3 {
	unsigned x, y, z;

	dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
	{
	}
};

extern dim3 gridDim, blockIdx, threadIdx;

inline int __popc(unsigned x)
{
	return __builtin_popcount(x);
}

inline void __threadfence()
{
}

inline void __threadfence_system()
{
}

/* Nothing comes between the threads of one launch but what block.cpp lets. */
template <typename T, typename U> inline T atomicAdd(T *at, U n)
{
	T old = *at;

	*at = old + T(n);
	return old;
}

template <typename T, typename U> inline T atomicOr(T *at, U bits)
{
	T old = *at;

	*at = old | T(bits);
	return old;
}

/* ---- threads that wait for each other: block.cpp ---- */

void __syncthreads();

/* All lanes of a warp come to the same operation, each with a value; returns all 32. */
const uint64_t *emulated_warp(const char *operation, uint64_t value);
/* A warp's every lane takes part, or it would not be told so here. */
void emulated_whole(unsigned mask);

inline unsigned __ballot_sync(unsigned mask, bool it)
{
	const uint64_t *of = emulated_warp("ballot", it);
	unsigned lanes = 0;

	emulated_whole(mask);
	for (unsigned lane = 0; lane < 32; lane++)
		lanes |= unsigned(of[lane]) << lane;
	return lanes;
}

inline unsigned __shfl_sync(unsigned mask, unsigned value, int lane)
{
	emulated_whole(mask);
	return unsigned(emulated_warp("shuffle", value)[lane]);
}

inline unsigned __match_any_sync(unsigned mask, unsigned value)
{
	const uint64_t *of = emulated_warp("match", value);
	unsigned lanes = 0;

	emulated_whole(mask);
	for (unsigned lane = 0; lane < 32; lane++)
		lanes |= unsigned(of[lane] == value) << lane;
	return lanes;
}

/* ---- launches ---- */

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };

struct cudaLaunchAttribute {
	cudaLaunchAttributeID id;
	struct {
		int programmaticStreamSerializationAllowed;
	} val;
};

struct cudaLaunchConfig_t {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned numAttrs;
};

struct cudaFuncAttributes {
	int ptxVersion;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
	attributes->ptxVersion = 90;
	return cudaSuccess;
}

/* A launch, as it waits in its stream; the kernel's arguments lie behind it. */
struct emulated_launch {
	dim3 grid;
	unsigned threads;
	size_t shared; /* bytes of dynamic shared memory */
	void (*thread)(const emulated_launch *launch);
};

cudaError_t emulated_kernel(const void *kernel, const emulated_launch *launch, size_t bytes,
                            cudaStream_t stream);
cudaError_t emulated_allow_shared(const void *kernel, int bytes);

template <typename Kernel>
inline cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute, int value)
{
	return emulated_allow_shared(reinterpret_cast<const void *>(kernel), value);
}

template <typename Call> struct emulated_call : emulated_launch {
	Call call;

	emulated_call(const cudaLaunchConfig_t &config, Call call)
		: emulated_launch{ config.gridDim, config.blockDim.x, config.dynamicSmemBytes, run },
		  call(call)
	{
		static_assert(std::is_trivially_copyable<Call>::value, "arguments travel as bytes");
	}

	static void run(const emulated_launch *launch)
	{
		static_cast<const emulated_call *>(launch)->call();
	}
};

template <typename... Formal, typename... Actual>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Formal...),
                                      Actual... actual)
{
	auto body = [=] { kernel(actual...); };
	emulated_call<decltype(body)> call(*config, body);

	return emulated_kernel(reinterpret_cast<const void *>(kernel), &call, sizeof(call),
	                       config->stream);
}

#endif
