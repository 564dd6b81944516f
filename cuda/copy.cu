/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows of pages between the pool and the host tier.  The list travels in the
 * kernel's arguments, a piece at a time. */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 256;
constexpr uint32_t pieces = 64;

struct copies {
	uint32_t count;
	dhs_copy list[pieces];
};

template <typename Unit, dhs_copy_way way>
__global__ void __launch_bounds__(threads)
	copy_kernel(const __grid_constant__ dhs_world world, const __grid_constant__ copies c)
{
	const dhs_geometry &g = world.geometry;
	const dhs_copy &one = c.list[blockIdx.x];

	for (uint32_t group = blockIdx.y; group < g.groups; group += gridDim.y) {
		uint32_t layers = dhs::group_layers(g, group);

		for (uint32_t i = threadIdx.x / dhs::warp_size; i < one.rows; i += threads / dhs::warp_size)
			dhs::copy_row<Unit, way>(
				g, g.group_first[group], layers, one.page, one.first + i,
				dhs::record_address(g, group, layers, one.host_page, one.first + i));
	}
}

template <dhs_copy_way way>
cudaError_t copy(const dhs_world *world, const copies &c, cudaStream_t stream)
{
	uint32_t groups = world->geometry.groups < 32 ? world->geometry.groups : 32;

	return dhs::with_unit(world->geometry.unit, [&](auto unit) {
		return dhs::launch(false, copy_kernel<decltype(unit), way>, dim3(c.count, groups), threads,
		                   0, stream, *world, c);
	});
}

} // namespace

extern "C" cudaError_t dhs_cuda_copy_load(const dhs_world *world)
{
	return dhs::with_unit(world->geometry.unit, [](auto unit) {
		cudaError_t rc = dhs::load(copy_kernel<decltype(unit), DHS_COPY_TO_HOST>);

		return rc != cudaSuccess ? rc : dhs::load(copy_kernel<decltype(unit), DHS_COPY_TO_DEVICE>);
	});
}

extern "C" cudaError_t dhs_cuda_copy(const dhs_world *world, dhs_copy_way way, const dhs_copy *list,
                                     uint32_t count, cudaStream_t stream)
{
	cudaError_t rc = cudaSuccess;

	for (uint32_t at = 0; rc == cudaSuccess && at < count; at += pieces) {
		copies c = {};

		for (; c.count < pieces && at + c.count < count; c.count++)
			c.list[c.count] = list[at + c.count];
		rc = way == DHS_COPY_TO_HOST ? copy<DHS_COPY_TO_HOST>(world, c, stream)
		                             : copy<DHS_COPY_TO_DEVICE>(world, c, stream);
	}
	return rc;
}
