/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The start of a step: block 0 takes the batch's entries, each other block one
 * session's changes. */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 256;

__device__ void drop_hot_rows(const dhs_world &world, uint32_t index, int32_t from)
{
	const dhs_geometry &g = world.geometry;

	for (size_t i = threadIdx.x; i < size_t(g.groups) * g.most_hot_rows; i += threads) {
		size_t at = size_t(index) * g.groups * g.most_hot_rows + i;

		if (world.tables.hot_row[at] > from)
			world.tables.hot_row[at] = 0;
	}
}

/* The step tells what came back into the hot cache before it. */
__device__ void count_warmed(dhs_counts *counts, dhs_warmed *warmed)
{
	dhs::count(&counts->warmed_rows, warmed->rows);
	dhs::count(&counts->warm_bytes, warmed->bytes);
	*warmed = {};
}

/* The hot cache of a session has other pages; places whose rows are not kept hold nothing. */
__device__ void place_hot_cache(const dhs_world &world, const dhs_patch &p, const int32_t *pages)
{
	const dhs_geometry &g = world.geometry;
	const dhs_tables &t = world.tables;
	uint32_t places = uint32_t(p.hot_places), kept = uint32_t(p.hot_kept);

	for (uint32_t i = threadIdx.x; i < places; i += threads)
		t.hot_slot[size_t(p.index) * g.most_hot_rows + i] = dhs_hot_slot(&g, pages, i);
	for (uint32_t group = 0; group < g.groups; group++)
		for (uint32_t i = kept + threadIdx.x; i < places; i += threads)
			t.hot_row[(size_t(p.index) * g.groups + group) * g.most_hot_rows + i] = 0;
	if (threadIdx.x == 0)
		t.hot_places[p.index] = p.hot_places;
}

__device__ void apply_patch(const dhs_world &world, dhs_counts *counts, const dhs_patch &p,
                            const int32_t *data)
{
	const dhs_geometry &g = world.geometry;
	const dhs_tables &t = world.tables;
	size_t first = size_t(p.index) * g.max_pages + p.first_page;

	if (p.drop_from >= 0)
		drop_hot_rows(world, p.index, p.drop_from);
	if (p.length >= 0 && threadIdx.x == 0)
		t.length[p.index] = p.length;
	for (uint32_t i = threadIdx.x; i < uint32_t(p.pages); i += threads) {
		t.page[first + i] = data[i];
		t.host_page[first + i] = data[p.pages + i];
	}
	if (p.hot_pages)
		place_hot_cache(world, p, data + 2 * size_t(p.pages));
	if (p.hot_pages && threadIdx.x == 0)
		count_warmed(counts, &t.warmed[p.index]);
}

__device__ void take_entries(dhs_batch_state *batch, const dhs_upload &upload)
{
	for (uint32_t i = threadIdx.x; i < batch->max_sessions; i += threads) {
		if (i < upload.count)
			batch->entry[i] = upload.entry[i];
		batch->session_index[i] = i < upload.count ? upload.entry[i].index : -1;
	}
	for (uint32_t i = threadIdx.x; i < 2 * batch->buffers; i += threads)
		batch->turn[i].group = -1;
	if (threadIdx.x)
		return;
	batch->count = upload.count;
	batch->queries = upload.queries;
	batch->new_rows = upload.new_rows;
	batch->in_flight = upload.in_flight;
	batch->measured = upload.measured;
	batch->phase = DHS_BATCH_BEGUN;
}

__global__ void __launch_bounds__(threads)
	apply_kernel(const __grid_constant__ dhs_world world, dhs_batch_state *batch,
                 const __grid_constant__ dhs_upload upload)
{
	if (blockIdx.x == 0) {
		take_entries(batch, upload);
	} else {
		dhs_patch p = upload.patch[blockIdx.x - 1];

		apply_patch(world, &batch->counts, p, upload.data + p.data);
	}
}

} // namespace

extern "C" cudaError_t dhs_cuda_apply_load()
{
	return dhs::load(apply_kernel);
}

extern "C" cudaError_t dhs_cuda_apply(const dhs_world *world, dhs_batch_state *batch,
                                      const dhs_upload *upload, cudaStream_t stream)
{
	return dhs::launch(false, apply_kernel, dim3(1 + upload->patches), threads, 0, stream, *world,
	                   batch, *upload);
}
