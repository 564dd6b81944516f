/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The misses of a plan come from their host records: a warp a record, each
 * block on a contiguous part of the list, which is sorted by address within a session.
 * One more block keeps the books.
 */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 1024;
/* A handful saturates the link; more would only take the GPU from others. */
constexpr unsigned blocks = 16;

constexpr uint32_t none = UINT32_MAX;

/* The group's plan, if its misses are still there: the last one with this group. */
__device__ uint32_t turn_of(const dhs_batch_state *batch, uint32_t group)
{
	uint32_t turn = batch->next_turn;

	for (uint32_t i = 0; i < batch->buffers; i++) {
		turn = turn ? turn - 1 : 2 * batch->buffers - 1;
		if (batch->turn[turn].group == int32_t(group))
			return turn;
	}
	return none;
}

template <typename Unit>
__device__ void fetch_misses(const dhs_geometry &g, const dhs_miss *miss, uint32_t total,
                             uint32_t group, uint32_t first, uint32_t layers)
{
	uint32_t part = (total + blocks - 1) / blocks;
	uint32_t from = blockIdx.x * part, to = from + part < total ? from + part : total;

	for (uint32_t m = from + threadIdx.x / dhs::warp_size; m < to; m += threads / dhs::warp_size) {
		dhs_miss one = miss[m];

		dhs::copy_row<Unit, DHS_COPY_TO_DEVICE>(g, g.group_first[group] + first, layers, one.page,
		                                        one.offset,
		                                        one.record + size_t(first) * g.row_bytes);
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
                     uint32_t buffer, uint32_t total, uint32_t first, uint32_t layers)
{
	__shared__ bool complete;
	const uint32_t *n = batch->miss_count + size_t(buffer) * batch->max_sessions;

	if (threadIdx.x == 0) {
		complete = all_fetched(batch->fetched + size_t(buffer) * world.geometry.layer_words, first,
		                       layers, dhs::group_layers(world.geometry, group));
		dhs::count(&batch->counts.fetched_bytes,
		           uint64_t(total) * layers * world.geometry.row_bytes);
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
	uint32_t turn, buffer, total;

	dhs::wait_for_previous();
	if (batch->phase != DHS_BATCH_BEGUN) {
		if (batch->phase == DHS_BATCH_COMMITTED && blockIdx.x == 0 && threadIdx.x == 0)
			dhs::late(world, batch);
		return;
	}
	turn = turn_of(batch, group);
	if (turn == none) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			dhs::count(&batch->counts.order_errors, 1);
		return;
	}
	buffer = turn % batch->buffers;
	total = batch->turn[turn].misses;
	if (!total)
		return;
	if (blockIdx.x == blocks)
		note(world, batch, group, buffer, total, first, layers);
	else
		fetch_misses<Unit>(world.geometry, batch->miss + size_t(buffer) * batch->miss_rows, total,
		                   group, first, layers);
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
		return dhs::launch(true, fetch_kernel<decltype(unit)>, dim3(blocks + 1), threads, 0, stream,
		                   *world, batch, group, first, layers);
	});
}
