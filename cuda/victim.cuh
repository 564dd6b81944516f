/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The places of a hot cache, as a block sees them in one plan: which rows they hold, and
 * which of them give way to a miss.  The oldest are a set: counts of the places of each age
 * tell its last age, then one scan over the places numbers the chosen ones by index.
 */
#ifndef DHS_CUDA_VICTIM_CUH
#define DHS_CUDA_VICTIM_CUH

#include "kernels.cuh"

#include <cub/block/block_scan.cuh>

namespace dhs
{

/* The hot cache of one session and group. */
struct hot_cache {
	int32_t *row;
	uint32_t *stamp;
	const int32_t *slot;
	uint32_t rows; /* places */
	uint32_t now;  /* this plan's number */
};

template <unsigned threads>
using plan_scan = cub::BlockScan<uint32_t, threads, cub::BLOCK_SCAN_WARP_SCANS>;

__device__ inline uint32_t lanes_with(bool it)
{
	return __popc(__ballot_sync(~0u, it));
}

__device__ inline uint32_t lanes_below_with(bool it)
{
	return __popc(__ballot_sync(~0u, it) & ((1u << threadIdx.x % warp_size) - 1));
}

/* The sum of what the warps before this one have; all lanes of a warp have the same. */
template <unsigned threads>
__device__ inline uint32_t before_warp(typename plan_scan<threads>::TempStorage &s, uint32_t n)
{
	uint32_t before;

	plan_scan<threads>(s).ExclusiveSum(threadIdx.x % warp_size ? 0 : n, before);
	return __shfl_sync(~0u, before, 0);
}

/* A warp has `items` times 32 consecutive places at most, whose rows and ages it reads once:
 * lane l places l, l + 32, ... of them. */
template <unsigned threads, unsigned items> class places
{
	using block_scan = plan_scan<threads>;
	static constexpr uint32_t digit_bits = 10, bins = 1 << digit_bits;
	static constexpr int top = 3 * digit_bits; /* where the highest digit of an age begins */

  public:
	struct shared {
		typename block_scan::TempStorage scan;
		uint32_t bin[bins];
		uint32_t found, rest, empty, taken;
	};

	__device__ places(shared &s, const hot_cache &hot) : s(s), hot(hot)
	{
		uint32_t each = (hot.rows + threads - 1) / threads;

		first = threadIdx.x / warp_size * each * warp_size + threadIdx.x % warp_size;
		/* Loads without conditions, so that all are under way before any is waited for. */
#pragma unroll
		for (uint32_t i = 0; i < items; i++) {
			row[i] = hot.row[inside(i)];
			age[i] = hot.stamp[inside(i)];
		}
#pragma unroll
		for (uint32_t i = 0; i < items; i++) {
			bool here = i < each && place(i) < hot.rows;

			row[i] = here ? row[i] : -1;
			age[i] = !here ? 0 : row[i] ? hot.now - age[i] : nobody;
		}
	}

	__device__ static void clear_bins(shared &s)
	{
		for (uint32_t b = threadIdx.x; b < bins; b += threads)
			s.bin[b] = 0;
	}

	/* For each place whose row is wanted, which wanted(row) tells: found(row, slot). */
	template <typename Wanted, typename Found> __device__ void find(Wanted wanted, Found found)
	{
		int32_t slot[items];

#pragma unroll
		for (uint32_t i = 0; i < items; i++)
			slot[i] = hot.slot[inside(i)];
#pragma unroll
		for (uint32_t i = 0; i < items; i++)
			if (row[i] <= 0 || !wanted(uint32_t(row[i]) - 1))
				slot[i] = nowhere;
#pragma unroll
		for (uint32_t i = 0; i < items; i++)
			if (slot[i] != nowhere) {
				found(uint32_t(row[i]) - 1, slot[i]);
				hot.stamp[place(i)] = hot.now;
				age[i] = 0;
			}
	}

	/* Puts the places that `count` misses take into place_of, by index; returns how many
	 * there are.  Bins are clear.  s.empty: how many held no row.  The caller waits for all
	 * threads. */
	__device__ uint32_t choose(uint32_t count, uint16_t *place_of)
	{
		uint32_t last = last_age(&count);

		number(last, s.rest, place_of);
		return count;
	}

  private:
	static constexpr uint32_t nobody = UINT32_MAX; /* the age of an empty place */
	static constexpr int32_t nowhere = -1;

	shared &s;
	const hot_cache &hot;
	uint32_t first;
	int32_t row[items]; /* as in the table; -1 past its end */
	/* Plans since the place was read; 0 if this one read it: it does not give way. */
	uint32_t age[items];

	__device__ uint32_t place(uint32_t i) const
	{
		return first + i * warp_size;
	}

	/* For loads of what is not needed past the end. */
	__device__ uint32_t inside(uint32_t i) const
	{
		return place(i) < hot.rows ? place(i) : 0;
	}

	/* Bins are in the order in which places give way.  At first there is one for empty places,
	 * one for those that are too old to be told apart, and then one an age; if the latter are
	 * to be, one for a digit of the ages that begin with what is known.  bins: none. */
	__device__ static uint32_t bin_of(uint32_t age, int shift, uint32_t known)
	{
		if (shift > top)
			return age == nobody ? 0 : age ? bins - (age < bins ? age : bins - 1) : bins;
		return age != nobody && age >= bins - 1 && uint64_t(age) >> shift >> digit_bits == known
		           ? ~(age >> shift) & (bins - 1)
		           : bins;
	}

	/* Few ages are most common: lanes with the same add it once. */
	__device__ void count_ages(int shift, uint32_t known)
	{
		if (shift <= top) {
			__syncthreads();
			clear_bins(s);
			__syncthreads();
		}
#pragma unroll
		for (uint32_t i = 0; i < items; i++) {
			uint32_t bin = bin_of(age[i], shift, known), same = __match_any_sync(~0u, bin);

			if (bin < bins && !(same & ((1u << threadIdx.x % warp_size) - 1)))
				atomicAdd(&s.bin[bin], __popc(same));
		}
		__syncthreads();
	}

	/* The age of the *count-th place to give way, and to s.rest how many of just this age do;
	 * 0 if there are no more than *count, which becomes how many there are. */
	__device__ uint32_t last_age(uint32_t *count)
	{
		uint32_t nth = *count, known = 0, all;

#pragma unroll 1
		for (int shift = top + 1;; shift -= shift > top ? 1 : digit_bits) {
			count_ages(shift, known);
			all = find_bin(nth);
			if (shift > top && threadIdx.x == 0)
				s.empty = s.bin[0];
			__syncthreads();
			if (shift > top && nth >= all) {
				*count = all;
				return 0;
			}
			if (shift > top && s.found != 1)
				return s.found ? bins - s.found : nobody;
			known = shift > top ? 0 : known << digit_bits | (bins - 1 - s.found);
			if (shift == 0)
				return known;
			nth = s.rest;
		}
	}

	/* The bin in which the count-th place lies, and the how manieth of it that is, to
	 * s.found and s.rest; returns what all bins hold. */
	__device__ uint32_t find_bin(uint32_t count)
	{
		constexpr uint32_t each = bins / threads;
		uint32_t n[each], before[each], all;

#pragma unroll
		for (uint32_t i = 0; i < each; i++)
			n[i] = s.bin[threadIdx.x * each + i];
		block_scan(s.scan).ExclusiveSum(n, before, all);
#pragma unroll
		for (uint32_t i = 0; i < each; i++)
			if (before[i] < count && count <= before[i] + n[i]) {
				s.found = threadIdx.x * each + i;
				s.rest = count - before[i];
			}
		return all;
	}

	/* Numbers the places older than `last` and the first `ties` of that age. */
	__device__ void number(uint32_t last, uint32_t ties, uint16_t *place_of)
	{
		uint32_t older = 0, same = 0, before;

#pragma unroll
		for (uint32_t i = 0; i < items; i++) {
			older += lanes_with(age[i] > last);
			same += lanes_with(last && age[i] == last);
		}
		__syncthreads();
		/* Both counts are at most 2^15: one scan takes them together. */
		before = before_warp<threads>(s.scan, older | same << 16);
		older = before & 0xffff;
		same = before >> 16;
#pragma unroll
		for (uint32_t i = 0; i < items; i++) {
			bool old = age[i] > last, tie = last && age[i] == last;
			uint32_t tied = same + lanes_below_with(tie), rank = older + lanes_below_with(old);

			if (old || (tie && tied < ties))
				place_of[rank + (tied < ties ? tied : ties)] = uint16_t(place(i));
			older += lanes_with(old);
			same += lanes_with(tie);
		}
	}
};

} // namespace dhs

#endif
