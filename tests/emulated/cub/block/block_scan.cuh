/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Sums over the threads before one.  As CUB has it, temporary storage is free again once all
 * threads have come to another barrier. */
#ifndef EMULATED_CUB_BLOCK_SCAN_CUH
#define EMULATED_CUB_BLOCK_SCAN_CUH

#include "../../cuda_runtime.h"

namespace cub
{

enum BlockScanAlgorithm { BLOCK_SCAN_WARP_SCANS };

template <typename T, int threads, BlockScanAlgorithm> class BlockScan
{
  public:
	struct TempStorage {
		T of[threads];
	};

	explicit BlockScan(TempStorage &storage) : storage(storage)
	{
	}

	void ExclusiveSum(T value, T &before)
	{
		T all;

		ExclusiveSum(value, before, all);
	}

	void ExclusiveSum(T value, T &before, T &all)
	{
		storage.of[threadIdx.x] = value;
		__syncthreads();
		before = all = 0;
		for (unsigned i = 0; i < threads; i++) {
			before += i < threadIdx.x ? storage.of[i] : 0;
			all += storage.of[i];
		}
	}

	template <int items> void ExclusiveSum(T (&value)[items], T (&before)[items], T &all)
	{
		T sum = 0, below;

		for (T one : value)
			sum += one;
		ExclusiveSum(sum, below, all);
		for (int i = 0; i < items; i++) {
			before[i] = below;
			below += value[i];
		}
	}

  private:
	TempStorage &storage;
};

} // namespace cub

#endif
