/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The rows of a hot cache come from their host records to the pages that it has now: a
 * block a page and group, a warp a place.  The pages travel in the kernel's arguments, a
 * piece at a time. */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 256;
constexpr uint32_t pieces = 256;

struct part {
	int32_t index;
	int32_t limit;
	uint32_t first; /* page of the hot cache, and those behind it: */
	uint32_t count;
	int32_t page[pieces];
};

/* The hot cache of a session and group, from a place on. */
struct hot {
	const int32_t *row;
	const uint32_t *stamp;
	dhs_plan_state plan;
};

__device__ hot hot_of(const dhs_world &world, size_t at, uint32_t first)
{
	const dhs_tables &t = world.tables;
	size_t place = at * world.geometry.hot_rows + first;

	return { t.hot_row + place, t.hot_stamp + place, t.plan[at] };
}

/* The row that will be found in the place, -1: none. */
__device__ int32_t row_of(const hot &h, uint32_t place, int32_t limit)
{
	int32_t row = h.row[place] - 1;
	bool unfetched = h.plan.missed && h.stamp[place] == h.plan.plans;

	return row < limit && !unfetched ? row : -1;
}

/* The rows of the block's page in a group that the calling warp brings; how many. */
template <typename Unit>
__device__ uint32_t warm_page(const dhs_world &world, const part &p, uint32_t group,
                              uint32_t layers)
{
	const dhs_geometry &g = world.geometry;
	const int32_t *host_page = world.tables.host_page + size_t(p.index) * g.max_pages;
	uint32_t first = (p.first + blockIdx.x) * g.page_rows;
	uint32_t places = g.hot_rows - first < g.page_rows ? g.hot_rows - first : g.page_rows;
	hot h = hot_of(world, size_t(p.index) * g.groups + group, first);
	uint32_t n = 0;

	for (uint32_t i = threadIdx.x / dhs::warp_size; i < places; i += threads / dhs::warp_size) {
		int32_t row = row_of(h, i, p.limit);

		if (row < 0)
			continue;
		dhs::copy_row<Unit, DHS_COPY_TO_DEVICE>(
			g, g.group_first[group], layers, p.page[blockIdx.x], i,
			dhs::record_address(g, group, layers, host_page[uint32_t(row) / g.page_rows],
		                        uint32_t(row) % g.page_rows));
		n++;
	}
	return n;
}

template <typename Unit>
__global__ void __launch_bounds__(threads)
	warm_kernel(const __grid_constant__ dhs_world world, const __grid_constant__ part p)
{
	const dhs_geometry &g = world.geometry;
	dhs_warmed *warmed = &world.tables.warmed[p.index];

	for (uint32_t group = blockIdx.y; group < g.groups; group += gridDim.y) {
		uint32_t layers = dhs::group_layers(g, group);
		uint32_t n = warm_page<Unit>(world, p, group, layers);

		if (threadIdx.x % dhs::warp_size == 0) {
			dhs::count(&warmed->rows, n);
			dhs::count(&warmed->bytes, uint64_t(n) * layers * g.row_bytes);
		}
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
	uint32_t groups = world->geometry.groups < 32 ? world->geometry.groups : 32;
	cudaError_t rc = cudaSuccess;

	for (uint32_t at = 0; rc == cudaSuccess && at < warm->pages; at += pieces) {
		part p = { warm->index, warm->limit, at, 0, {} };

		for (; p.count < pieces && at + p.count < warm->pages; p.count++)
			p.page[p.count] = warm->page[at + p.count];
		rc = dhs::with_unit(world->geometry.unit, [&](auto unit) {
			return dhs::launch(false, warm_kernel<decltype(unit)>, dim3(p.count, groups), threads,
			                   0, stream, *world, p);
		});
	}
	return rc;
}
