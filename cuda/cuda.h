/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Between the C side of the CUDA backend (backend.c) and its kernels. */
#ifndef DHS_CUDA_CUDA_H
#define DHS_CUDA_CUDA_H

#include "../lib/world.h"

#include <driver_types.h>

/* Before any stream is busy, once a device: no later call waits for a kernel to be loaded,
 * and plan may use the shared memory that it needs. */
cudaError_t dhs_cuda_apply_load(void);
cudaError_t dhs_cuda_slots_load(void);
cudaError_t dhs_cuda_plan_load(void);
cudaError_t dhs_cuda_fetch_load(const struct dhs_world *world);
cudaError_t dhs_cuda_commit_load(const struct dhs_world *world);
cudaError_t dhs_cuda_copy_load(const struct dhs_world *world);
cudaError_t dhs_cuda_warm_load(const struct dhs_world *world);

cudaError_t dhs_cuda_apply(const struct dhs_world *world, struct dhs_batch_state *batch,
                           const struct dhs_upload *upload, cudaStream_t stream);
cudaError_t dhs_cuda_slots(const struct dhs_world *world, struct dhs_batch_state *batch,
                           uint32_t sessions, uint32_t rows, int32_t *out, cudaStream_t stream);
cudaError_t dhs_cuda_plan(const struct dhs_world *world, struct dhs_batch_state *batch,
                          uint32_t group, const dhs_selection *selection, cudaStream_t stream);
cudaError_t dhs_cuda_fetch(const struct dhs_world *world, struct dhs_batch_state *batch,
                           uint32_t group, uint32_t first, uint32_t layers, cudaStream_t stream);
cudaError_t dhs_cuda_commit(const struct dhs_world *world, struct dhs_batch_state *batch,
                            uint32_t sessions, const int32_t *kept, cudaStream_t stream);
cudaError_t dhs_cuda_report(const struct dhs_world *world, struct dhs_batch_state *batch,
                            uint32_t in_flight, cudaStream_t stream);
cudaError_t dhs_cuda_copy(const struct dhs_world *world, enum dhs_copy_way way,
                          const struct dhs_copy *list, uint32_t count, cudaStream_t stream);
cudaError_t dhs_cuda_warm(const struct dhs_world *world, const struct dhs_warm *warm,
                          cudaStream_t stream);

#endif
