/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The rows of a hot cache come from their host records to the pages that it has now, a warp a
 * place and group.  The pages travel in the kernel's arguments, a piece at a time. */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 1024;
/* As in fetch.cu: a handful saturates the link, and steps of others run meanwhile. */
constexpr unsigned blocks = 16;
constexpr uint32_t pieces = 256;

struct part {
	int32_t index;
	int32_t limit;
	uint32_t first; /* page of the hot cache, and those behind it: */
	uint32_t count;
	int32_t page[pieces];
};

/* The row that will be found in the place, -1: none. */
__device__ int32_t row_of(const dhs_world &world, const part &p, uint32_t group, uint32_t place)
{
	const dhs_tables &t = world.tables;
	size_t at = size_t(p.index) * world.geometry.groups + group;
	dhs_plan_state plan = t.plan[at];
	int32_t row = t.hot_row[at * world.geometry.most_hot_rows + place] - 1;
	bool unfetched =
		plan.missed && t.hot_stamp[at * world.geometry.most_hot_rows + place] == plan.plans;

	return row < p.limit && !unfetched ? row : -1;
}

template <typename Unit>
__global__ void __launch_bounds__(threads)
	warm_kernel(const __grid_constant__ dhs_world world, const __grid_constant__ part p)
{
	const dhs_geometry &g = world.geometry;
	const int32_t *host_page = world.tables.host_page + size_t(p.index) * g.max_pages;
	uint32_t first = p.first * g.page_rows, rest = g.hot_rows - first;
	uint32_t places = p.count * g.page_rows < rest ? p.count * g.page_rows : rest;
	uint64_t rows = 0, bytes = 0;

	for (uint32_t i = (blockIdx.x * threads + threadIdx.x) / dhs::warp_size; i < places * g.groups;
	     i += blocks * threads / dhs::warp_size) {
		uint32_t group = i / places, place = i % places, layers = dhs::group_layers(g, group);
		int32_t row = row_of(world, p, group, first + place);

		if (row < 0)
			continue;
		dhs::copy_row<Unit, DHS_COPY_TO_DEVICE>(
			g, g.group_first[group], layers, p.page[place / g.page_rows], place % g.page_rows,
			dhs::record_address(g, group, layers, host_page[uint32_t(row) / g.page_rows],
		                        uint32_t(row) % g.page_rows));
		rows++;
		bytes += uint64_t(layers) * g.row_bytes;
	}
	if (threadIdx.x % dhs::warp_size == 0) {
		dhs::count(&world.tables.warmed[p.index].rows, rows);
		dhs::count(&world.tables.warmed[p.index].bytes, bytes);
	}
}

} // namespace

extern "C" cudaError_t dhs_cuda_warm_load(const dhs_world *world)
{
	return dhs::with_unit(world->geometry.unit,
	                      [](auto unit) { return dhs::load(warm_kernel<decltype(unit)>); });
}

extern "C" cudaError_t dhs_cuda_warm(const dhs_world *world, const dhs_warm *warm,
                                     cudaStream_t stream)
{
	cudaError_t rc = cudaSuccess;

	for (uint32_t at = 0; rc == cudaSuccess && at < warm->pages; at += pieces) {
		part p = { warm->index, warm->limit, at, 0, {} };

		for (; p.count < pieces && at + p.count < warm->pages; p.count++)
			p.page[p.count] = warm->page[at + p.count];
		rc = dhs::with_unit(world->geometry.unit, [&](auto unit) {
			return dhs::launch(false, warm_kernel<decltype(unit)>, dim3(blocks), threads, 0, stream,
			                   *world, p);
		});
	}
	return rc;
}
