/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The misses of a plan come from their host records: a warp a record, each
 * block on a contiguous part of the list, which is sorted by address within a session.
 */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 1024;
/* A handful saturates the link; more would only take the GPU from others. */
constexpr unsigned blocks = 16;

/* The entry in whose part of the list miss m lies: the last that starts at or
 * before it. */
__device__ uint32_t entry_of(const uint32_t *start, uint32_t count, uint32_t m)
{
	uint32_t low = 0, high = count;

	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if (start[middle] <= m)
			low = middle;
		else
			high = middle;
	}
	return low;
}

template <typename Unit>
__device__ void fetch_misses(const dhs_world &world, const dhs_batch_state *batch, uint32_t group,
                             uint32_t buffer, uint32_t first, uint32_t layers)
{
	const dhs_geometry &g = world.geometry;
	const uint32_t *start = batch->miss_start + size_t(buffer) * (batch->max_sessions + 1);
	const dhs_miss *miss = batch->miss + size_t(buffer) * batch->miss_rows;
	uint32_t total = start[batch->count], part = (total + gridDim.x - 1) / gridDim.x;
	uint32_t from = blockIdx.x * part, to = from + part < total ? from + part : total;

	for (uint32_t m = from + threadIdx.x / dhs::warp_size; m < to; m += threads / dhs::warp_size) {
		uint32_t e = entry_of(start, batch->count, m);
		dhs_world_entry entry = batch->entry[e];
		dhs_miss one = miss[entry.miss_first + m - start[e]];
		uint32_t row = uint32_t(one.row), slot = uint32_t(one.slot);
		int32_t host_page =
			world.tables.host_page[size_t(entry.index) * g.max_pages + row / g.page_rows];

		dhs::copy_row<Unit, DHS_COPY_TO_DEVICE>(
			g, group, first, layers, int32_t(slot / g.page_rows), slot % g.page_rows,
			dhs::record_address(g, group, first, host_page, row % g.page_rows));
	}
}

/* Marks layers as fetched; true once all of the group are, in whatever order and on
 * whatever streams: the call that sets the last bit sees all of them. */
__device__ bool all_fetched(uint32_t *fetched, uint32_t first, uint32_t layers, uint32_t all)
{
	uint32_t n = 0;

	for (uint32_t p = first; p < first + layers; p++)
		atomicOr(&fetched[p / 32], 1u << p % 32);
	__threadfence();
	for (uint32_t w = 0; w * 32 < all; w++)
		n += __popc(atomicOr(&fetched[w], 0));
	return n == all;
}

__device__ void note(const dhs_world &world, dhs_batch_state *batch, uint32_t group,
                     uint32_t buffer, uint32_t first, uint32_t layers)
{
	__shared__ bool complete;
	const uint32_t *n = batch->miss_count + size_t(buffer) * batch->max_sessions;
	const uint32_t *start = batch->miss_start + size_t(buffer) * (batch->max_sessions + 1);

	if (threadIdx.x == 0) {
		complete = all_fetched(batch->fetched + size_t(buffer) * world.geometry.layer_words, first,
		                       layers, dhs::group_layers(world.geometry, group));
		dhs::count(&batch->counts.fetched_bytes,
		           uint64_t(start[batch->count]) * layers * world.geometry.row_bytes);
	}
	__syncthreads();
	for (uint32_t e = threadIdx.x; complete && e < batch->count; e += threads)
		if (n[e])
			world.tables.plan[size_t(batch->entry[e].index) * world.geometry.groups + group]
				.missed = 0;
}

template <typename Unit>
__global__ void __launch_bounds__(threads)
	fetch_kernel(const __grid_constant__ dhs_world world, dhs_batch_state *batch, uint32_t group,
                 uint32_t first, uint32_t layers)
{
	uint32_t buffer;

	if (batch->phase != DHS_BATCH_BEGUN) {
		if (batch->phase == DHS_BATCH_COMMITTED && blockIdx.x == 0 && threadIdx.x == 0)
			dhs::late(world, batch);
		return;
	}
	buffer = batch->group_buffer[group];
	if (!buffer || batch->buffer_group[buffer - 1] != int32_t(group)) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			dhs::count(&batch->counts.order_errors, 1);
		return;
	}
	fetch_misses<Unit>(world, batch, group, buffer - 1, first, layers);
	if (blockIdx.x == 0)
		note(world, batch, group, buffer - 1, first, layers);
}

} // namespace

extern "C" cudaError_t dhs_cuda_fetch_load(const dhs_world *world)
{
	return dhs::with_unit(world->geometry.unit,
	                      [](auto unit) { return dhs::load(fetch_kernel<decltype(unit)>); });
}

extern "C" cudaError_t dhs_cuda_fetch(const dhs_world *world, dhs_batch_state *batch,
                                      uint32_t group, uint32_t first, uint32_t layers,
                                      cudaStream_t stream)
{
	return dhs::with_unit(world->geometry.unit, [&](auto unit) {
		return dhs::launch(fetch_kernel<decltype(unit)>, dim3(blocks), threads, 0, stream, *world,
		                   batch, group, first, layers);
	});
}
