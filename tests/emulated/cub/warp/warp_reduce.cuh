/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The sum of a warp; as CUB has it, only lane 0 gets it. */
#ifndef EMULATED_CUB_WARP_REDUCE_CUH
#define EMULATED_CUB_WARP_REDUCE_CUH

#include "../../cuda_runtime.h"

namespace cub
{

template <typename T> class WarpReduce
{
  public:
	struct TempStorage {
	};

	explicit WarpReduce(TempStorage &)
	{
	}

	T Sum(T value)
	{
		const uint64_t *of = emulated_warp("sum", value);
		T sum = 0;

		for (unsigned lane = 0; lane < 32; lane++)
			sum += T(of[lane]);
		return threadIdx.x % 32 ? T(0xdead) : sum;
	}
};

} // namespace cub

#endif
