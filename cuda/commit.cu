/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The end of a step on the device: blocks mirror kept rows to the host tier; the
 * last of them lets lengths grow and tells the host.
 */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 128;
constexpr unsigned group_blocks = 32;

/* Never past the new rows, nor past what places are reserved for. */
__device__ int32_t kept_of(const dhs_world &world, const dhs_batch_state *batch, uint32_t sessions,
                           const int32_t *kept, uint32_t e)
{
	dhs_world_entry entry = batch->entry[e];
	int32_t n, room;

	if (e >= sessions || entry.index < 0)
		return 0;
	room = entry.bound - world.tables.length[entry.index];
	n = kept && kept[e] < entry.new_rows ? kept[e] : entry.new_rows;
	n = n < room ? n : room;
	return n < 0 ? 0 : n;
}

/* The block's groups of the kept rows of entry e, a warp a row. */
template <typename Unit>
__device__ void mirror(const dhs_world &world, const dhs_batch_state *batch, uint32_t e,
                       uint32_t kept)
{
	const dhs_geometry &g = world.geometry;
	size_t table = size_t(batch->entry[e].index) * g.max_pages;
	uint32_t from = uint32_t(world.tables.length[batch->entry[e].index]);

	for (uint32_t group = blockIdx.y; group < g.groups; group += gridDim.y) {
		uint32_t layers = dhs::group_layers(g, group);

		for (uint32_t i = threadIdx.x / dhs::warp_size; i < kept; i += threads / dhs::warp_size) {
			uint32_t p = (from + i) / g.page_rows, offset = (from + i) % g.page_rows;

			dhs::copy_row<Unit, DHS_COPY_TO_HOST>(
				g, g.group_first[group], layers, world.tables.page[table + p], offset,
				dhs::record_address(g, group, layers, world.tables.host_page[table + p], offset));
		}
	}
}

/* Thread 0: what the batch has counted goes to the host.  All is read before anything is
 * written, so that the reads of host memory take the time of one. */
__device__ void report(dhs_counts *to, dhs_counts *from)
{
	dhs_counts sum = *to, more = *from;

	sum.plans += more.plans;
	sum.page_hits += more.page_hits;
	sum.hot_hits += more.hot_hits;
	sum.misses += more.misses;
	sum.repeats += more.repeats;
	sum.staged += more.staged;
	sum.victims += more.victims;
	sum.bad_rows += more.bad_rows;
	sum.fetched_bytes += more.fetched_bytes;
	sum.mirrored_rows += more.mirrored_rows;
	sum.order_errors += more.order_errors;
	sum.warmed_rows += more.warmed_rows;
	sum.warm_bytes += more.warm_bytes;
	*to = sum;
	*from = dhs_counts();
}

__device__ void finish(const dhs_world &world, dhs_batch_state *batch, uint32_t sessions,
                       const int32_t *kept)
{
	const dhs_result &result = world.result[batch->in_flight];

	for (uint32_t e = threadIdx.x; e < batch->count; e += threads) {
		int32_t n = kept_of(world, batch, sessions, kept, e), index = batch->entry[e].index;

		if (index < 0)
			continue;
		world.tables.length[index] += n;
		result.length[e] = world.tables.length[index];
		result.kept[e] = n;
		if (world.geometry.mirror)
			dhs::count(&batch->counts.mirrored_rows, uint64_t(n));
	}
	__threadfence();
	__syncthreads();
	if (threadIdx.x)
		return;
	if (sessions < batch->count)
		dhs::count(&batch->counts.order_errors, 1);
	report(result.counts, &batch->counts);
	*result.committed = 1;
	batch->phase = DHS_BATCH_COMMITTED;
}

template <typename Unit>
__global__ void __launch_bounds__(threads)
	commit_kernel(const __grid_constant__ dhs_world world, dhs_batch_state *batch,
                  uint32_t sessions, const int32_t *kept)
{
	uint32_t e = blockIdx.x;

	if (batch->phase != DHS_BATCH_BEGUN) {
		if (batch->phase == DHS_BATCH_COMMITTED && e == 0 && blockIdx.y == 0 && threadIdx.x == 0)
			dhs::late(world, batch);
		return;
	}
	if (world.geometry.mirror && e < batch->count && batch->entry[e].index >= 0)
		mirror<Unit>(world, batch, e, uint32_t(kept_of(world, batch, sessions, kept, e)));
	if (dhs::last_block(&batch->done, gridDim.x * gridDim.y))
		finish(world, batch, sessions, kept);
}

__global__ void report_kernel(const __grid_constant__ dhs_world world, dhs_batch_state *batch,
                              uint32_t in_flight)
{
	report(world.result[in_flight].counts, &batch->counts);
	/* Unless a later step of the batch has begun, nothing is left for a replay. */
	if (batch->in_flight == in_flight)
		batch->phase = DHS_BATCH_NONE;
}

} // namespace

extern "C" cudaError_t dhs_cuda_commit_load(const dhs_world *world)
{
	cudaError_t rc = dhs::load(report_kernel);

	return rc != cudaSuccess ? rc : dhs::with_unit(world->geometry.unit, [](auto unit) {
		return dhs::load(commit_kernel<decltype(unit)>);
	});
}

extern "C" cudaError_t dhs_cuda_commit(const dhs_world *world, dhs_batch_state *batch,
                                       uint32_t sessions, const int32_t *kept, cudaStream_t stream)
{
	const dhs_geometry &g = world->geometry;
	uint32_t wide = !g.mirror ? 1 : g.groups < group_blocks ? g.groups : group_blocks;

	return dhs::with_unit(g.unit, [&](auto unit) {
		return dhs::launch(false, commit_kernel<decltype(unit)>,
		                   dim3(g.mirror && sessions ? sessions : 1, wide), threads, 0, stream,
		                   *world, batch, sessions, kept);
	});
}

extern "C" cudaError_t dhs_cuda_report(const dhs_world *world, dhs_batch_state *batch,
                                       uint32_t in_flight, cudaStream_t stream)
{
	return dhs::launch(false, report_kernel, dim3(1), 1, 0, stream, *world, batch, in_flight);
}
