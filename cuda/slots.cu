/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Where the new rows of a step are written. */
#include "kernels.cuh"

namespace
{

constexpr unsigned threads = 256;

__device__ int32_t new_row_slot(const dhs_world &world, const dhs_world_entry &e, uint32_t i)
{
	uint32_t page_rows = world.geometry.page_rows, row = uint32_t(world.tables.length[e.index]) + i;
	int32_t page = world.tables.page[size_t(e.index) * world.geometry.max_pages + row / page_rows];

	return page * int32_t(page_rows) + int32_t(row % page_rows);
}

__global__ void __launch_bounds__(threads)
	slots_kernel(const __grid_constant__ dhs_world world, dhs_batch_state *batch, uint32_t sessions,
                 uint32_t rows, int32_t *out)
{
	uint32_t i = blockIdx.x * threads + threadIdx.x, e = i / rows;
	bool open = batch->phase == DHS_BATCH_BEGUN;

	if (i == 0) {
		if (batch->phase == DHS_BATCH_COMMITTED)
			dhs::late(world, batch);
		else if (open && (sessions < batch->count || rows < batch->new_rows))
			dhs::count(&batch->counts.order_errors, 1);
	}
	if (e >= sessions)
		return;
	out[i] = batch->write_pad;
	if (open && e < batch->count) {
		dhs_world_entry entry = batch->entry[e];

		if (entry.index >= 0 && i % rows < uint32_t(entry.new_rows) &&
		    world.tables.length[entry.index] + int32_t(i % rows) < entry.bound)
			out[i] = new_row_slot(world, entry, i % rows);
	}
}

} // namespace

extern "C" cudaError_t dhs_cuda_slots_load()
{
	return dhs::load(slots_kernel);
}

extern "C" cudaError_t dhs_cuda_slots(const dhs_world *world, dhs_batch_state *batch,
                                      uint32_t sessions, uint32_t rows, int32_t *out,
                                      cudaStream_t stream)
{
	uint32_t blocks = uint32_t((uint64_t(sessions) * rows + threads - 1) / threads);

	return dhs::launch(false, slots_kernel, dim3(blocks), threads, 0, stream, *world, batch,
	                   sessions, rows, out);
}
