/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Where a miss gets its victim: a block chooses the places of a hot cache that
 * give way.  The oldest are a set: their last age is found digit by digit with
 * counts, then one scan over the places numbers the chosen ones by index.
 */
#ifndef DHS_CUDA_VICTIM_CUH
#define DHS_CUDA_VICTIM_CUH

#include "kernels.cuh"

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

namespace dhs
{

constexpr unsigned plan_threads = 1024;

/* The hot cache of one session and group. */
struct hot_cache {
	int32_t *row;
	uint32_t *stamp;
	uint16_t *map;
	const int32_t *slot;
	uint32_t rows; /* places */
	uint32_t now;  /* this plan's number */
};

class victims
{
	using scan = cub::BlockScan<uint32_t, plan_threads>;
	using reduce = cub::BlockReduce<uint32_t, plan_threads>;
	static constexpr uint32_t digit_bits = 8, digits = 1 << digit_bits;

  public:
	struct shared {
		union {
			typename scan::TempStorage scan;
			typename reduce::TempStorage reduce;
		};
		uint32_t bin[digits];
		uint32_t value, rest;
	};

	__device__ victims(shared &s, const hot_cache &hot) : s(s), hot(hot)
	{
	}

	/* Calls take(rank, place) for each of the places that `count` misses take, rank
	 * by index; returns how many there are. */
	template <typename Take> __device__ uint32_t choose(uint32_t count, Take take)
	{
		uint32_t oldest = 0, empty = 0, filled = 0;

		for (uint32_t p = threadIdx.x; p < hot.rows; p += plan_threads) {
			uint32_t age = age_of(p);

			empty += age == nobody;
			filled += age != 0 && age != nobody;
			oldest = age != nobody && age > oldest ? age : oldest;
		}
		empty = sum(empty);
		filled = sum(filled);
		if (count >= empty + filled)
			return number(0, 0, empty + filled, take);
		if (count <= empty)
			return number(nobody, count, count, take);
		return number(last_age(count - empty, max(oldest)), s.rest, count, take);
	}

  private:
	static constexpr uint32_t nobody = UINT32_MAX; /* the age of an empty place */

	shared &s;
	const hot_cache &hot;

	/* Plans since the place was read; 0 if this one read it: it does not give way. */
	__device__ uint32_t age_of(uint32_t place) const
	{
		return hot.row[place] ? hot.now - hot.stamp[place] : nobody;
	}

	__device__ uint32_t sum(uint32_t value)
	{
		value = reduce(s.reduce).Sum(value);
		return all(value);
	}

	__device__ uint32_t max(uint32_t value)
	{
		value =
			reduce(s.reduce).Reduce(value, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
		return all(value);
	}

	/* What thread 0 has, for all. */
	__device__ uint32_t all(uint32_t value)
	{
		if (threadIdx.x == 0)
			s.value = value;
		__syncthreads();
		value = s.value;
		__syncthreads();
		return value;
	}

	/* The age of the count-th filled place to give way; s.rest is how many of just
	 * that age do. */
	__device__ uint32_t last_age(uint32_t count, uint32_t oldest)
	{
		uint32_t known = 0;
		int shift = 0;

		while (shift < 24 && oldest >> shift >> digit_bits)
			shift += digit_bits;
		for (; shift >= 0; shift -= digit_bits) {
			count_digits(shift, known);
			if (threadIdx.x == 0)
				find_digit(count);
			__syncthreads();
			known = known << digit_bits | s.value;
			count = s.rest;
			__syncthreads();
		}
		return known;
	}

	__device__ void count_digits(int shift, uint32_t known)
	{
		for (uint32_t d = threadIdx.x; d < digits; d += plan_threads)
			s.bin[d] = 0;
		__syncthreads();
		for (uint32_t p = threadIdx.x; p < hot.rows; p += plan_threads) {
			uint32_t age = age_of(p);

			if (age && age != nobody && uint64_t(age) >> shift >> digit_bits == known)
				atomicAdd(&s.bin[age >> shift & (digits - 1)], 1);
		}
		__syncthreads();
	}

	/* From the oldest down to the digit in which the count-th lies. */
	__device__ void find_digit(uint32_t count)
	{
		uint32_t d = digits - 1;

		for (; s.bin[d] < count; d--)
			count -= s.bin[d];
		s.value = d;
		s.rest = count;
	}

	/* Numbers the places older than `last` and the first `ties` of that age. */
	template <typename Take>
	__device__ uint32_t number(uint32_t last, uint32_t ties, uint32_t count, Take take)
	{
		uint32_t each = (hot.rows + plan_threads - 1) / plan_threads;
		uint32_t from = threadIdx.x * each, to = from + each < hot.rows ? from + each : hot.rows;
		uint32_t older = 0, same = 0, before;

		/* Both counts are below 2^15: one scan takes them together. */
		for (uint32_t p = from; p < to; p++) {
			older += age_of(p) > last;
			same += last && age_of(p) == last;
		}
		__syncthreads();
		scan(s.scan).ExclusiveSum(older | same << 16, before);
		__syncthreads();
		older = before & 0xffff;
		same = before >> 16;
		for (uint32_t p = from; p < to; p++) {
			uint32_t age = age_of(p);
			bool tie = last && age == last;

			if (age > last || (tie && same < ties))
				take(older + (same < ties ? same : ties), p);
			older += age > last;
			same += tie;
		}
		return count;
	}
};

} // namespace dhs

#endif
