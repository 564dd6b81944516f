/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Rows whose bytes tell session, position and layer, and selections that miss as many
 * rows as asked.  Rows are drawn by walking through a permutation of the history, one for
 * each session and group: a row comes again only after all others came, when no hot
 * cache holds it any more.
 */
#include "kernels.h"

namespace
{

constexpr uint32_t warp_size = 32;
constexpr uint32_t write_threads = 256;
constexpr uint32_t draw_threads = 512;

__host__ __device__ inline uint32_t mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ x >> 16;
}

__device__ inline uint32_t pattern(uint32_t session, uint32_t row, uint32_t layer)
{
	return mix(session * 0x9e3779b1u ^ row * 0x85ebca77u ^ layer * 0xc2b2ae3du);
}

/* A permutation of 0 .. n - 1, another one for each key: four rounds over the next power of
 * four, walked until it is in range. */
__device__ inline uint32_t permute(uint32_t i, uint32_t n, uint32_t key)
{
	uint32_t half = 1;

	while (1u << 2 * half < n)
		half++;
	uint32_t mask = (1u << half) - 1;

	do {
		uint32_t left = i >> half, right = i & mask;

		for (uint32_t round = 0; round < 4; round++) {
			uint32_t next = left ^ (mix(right + key + round * 0x9e3779b9u) & mask);

			left = right;
			right = next;
		}
		i = left << half | right;
	} while (i >= n);
	return i;
}

__device__ inline uint32_t *segment_of(const dhs_place &place, int32_t slot)
{
	uint32_t page = uint32_t(slot) / place.page_rows, at = uint32_t(slot) % place.page_rows;

	return reinterpret_cast<uint32_t *>(static_cast<unsigned char *>(place.base) +
	                                    page * place.page_stride + at * place.row_stride);
}

/* Calls fn(word, value) for each word of the row that the warp has to see. */
template <typename Fn>
__device__ void each_word(const rows_shape &shape, uint32_t layer, int32_t slot, uint32_t value,
                          Fn fn)
{
	for (uint32_t s = 0; s < shape.segments; s++) {
		const dhs_place &place = shape.place[size_t(layer) * shape.segments + s];
		uint32_t *words = segment_of(place, slot), count = place.bytes / 4;

		for (uint32_t w = threadIdx.x % warp_size; w < count; w += warp_size)
			fn(words[w], value + w);
		value += count;
	}
}

__device__ void write_row(const rows_shape &shape, uint32_t layer, int32_t slot, uint32_t value)
{
	if (slot >= 0)
		each_word(shape, layer, slot, value, [](uint32_t &word, uint32_t v) { word = v; });
}

__global__ void write(const rows_shape shape, const int32_t *slots, uint32_t session,
                      uint32_t first, uint32_t count)
{
	uint32_t i = blockIdx.x * (write_threads / warp_size) + threadIdx.x / warp_size;

	if (i < count)
		write_row(shape, blockIdx.y, slots[i], pattern(session, first + i, blockIdx.y));
}

__global__ void write_new(const rows_shape shape, const int32_t *slots, uint32_t sessions,
                          uint32_t row)
{
	uint32_t i = blockIdx.x * (write_threads / warp_size) + threadIdx.x / warp_size;

	if (i < sessions)
		write_row(shape, blockIdx.y, slots[i], pattern(i, row, blockIdx.y));
}

/* A block a query of a session. */
__global__ void draw(const __grid_constant__ drawing d, const int32_t *from, int32_t *to)
{
	extern __shared__ int32_t last[];
	uint32_t session = blockIdx.x, query = blockIdx.y;
	size_t at_query = (size_t(session) * d.queries + query) * d.top_k;
	uint32_t key = mix(session * 0x51ed270bu ^ d.group * 0xd168aaadu);
	uint32_t order = mix(key ^ d.call * 0x632be59bu ^ query * 0x1b873593u);
	/* Own rows of a query come behind those that all share. */
	uint32_t own = d.first + d.shared + query * (d.fresh - d.shared);

	for (uint32_t i = threadIdx.x; i < d.top_k; i += draw_threads)
		last[i] = from[at_query + i];
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < d.top_k; i += draw_threads) {
		uint32_t p = permute(i, d.top_k, order);
		uint32_t at = p < d.shared ? d.first + p : own + p - d.shared;

		to[at_query + i] = p < d.fresh ? int32_t(permute(at % d.rows, d.rows, key)) : last[p];
	}
}

__global__ void select(int32_t *selection, uint32_t top_k, int32_t first)
{
	for (uint32_t i = threadIdx.x; i < top_k; i += draw_threads)
		selection[size_t(blockIdx.x) * top_k + i] = first + int32_t(i);
}

/* A warp an entry and layer. */
__global__ void check(const rows_shape shape, uint32_t first, const int32_t *selection,
                      const int32_t *slots, uint32_t entries, uint32_t each, uint32_t samples,
                      unsigned long long *wrong)
{
	uint32_t i = blockIdx.x * (write_threads / warp_size) + threadIdx.x / warp_size;
	uint32_t layer = first + blockIdx.y, session = blockIdx.z, bad = 0;

	if (i >= samples)
		return;
	/* Another entry of each `each` in every session and layer. */
	i = i * each + mix(session + layer * 77) % each;
	if (i >= entries)
		return;
	size_t at = size_t(session) * entries + i;
	if (slots[at] < 0)
		bad = threadIdx.x % warp_size == 0;
	else
		each_word(shape, layer, slots[at], pattern(session, uint32_t(selection[at]), layer),
		          [&](uint32_t word, uint32_t v) { bad += word != v; });
	if (bad)
		atomicAdd(wrong, (unsigned long long)bad);
}

__global__ void empty()
{
}

__global__ void hold(uint64_t ns)
{
	uint64_t from, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - from < ns);
}

constexpr uint32_t rows_a_block = write_threads / warp_size;

} // namespace

extern "C" cudaError_t kernel_empty(cudaStream_t stream)
{
	empty<<<1, 32, 0, stream>>>();
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_hold(uint64_t ns, cudaStream_t stream)
{
	hold<<<1, 1, 0, stream>>>(ns);
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_write(struct rows_shape shape, const int32_t *slots, uint32_t session,
                                    uint32_t first, uint32_t count, cudaStream_t stream)
{
	write<<<dim3((count + rows_a_block - 1) / rows_a_block, shape.layers), write_threads, 0,
	        stream>>>(shape, slots, session, first, count);
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_write_new(struct rows_shape shape, const int32_t *slots,
                                        uint32_t sessions, uint32_t row, cudaStream_t stream)
{
	write_new<<<dim3((sessions + rows_a_block - 1) / rows_a_block, shape.layers), write_threads, 0,
	            stream>>>(shape, slots, sessions, row);
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_draw(const struct drawing *d, const int32_t *from, int32_t *to,
                                   cudaStream_t stream)
{
	draw<<<dim3(d->sessions, d->queries), draw_threads, d->top_k * sizeof(int32_t), stream>>>(
		*d, from, to);
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_select(int32_t *selection, uint32_t sessions, uint32_t top_k,
                                     int32_t first, cudaStream_t stream)
{
	select<<<sessions, draw_threads, 0, stream>>>(selection, top_k, first);
	return cudaGetLastError();
}

extern "C" cudaError_t kernel_check(struct rows_shape shape, uint32_t first, uint32_t layers,
                                    const int32_t *selection, const int32_t *slots,
                                    uint32_t sessions, uint32_t entries, uint32_t each,
                                    unsigned long long *wrong, cudaStream_t stream)
{
	uint32_t samples = (entries + each - 1) / each;

	check<<<dim3((samples + rows_a_block - 1) / rows_a_block, layers, sessions), write_threads, 0,
	        stream>>>(shape, first, selection, slots, entries, each, samples, wrong);
	return cudaGetLastError();
}
