/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Compute that a fetch runs beside, as an engine's layers would: bound by device memory
 * or by the matrix units, as long as asked. */
#ifndef PERF_ENGINE_H
#define PERF_ENGINE_H

#include <cuda_runtime_api.h>

#include <stddef.h>
#include <stdint.h>

enum compute { COMPUTE_COPY, COMPUTE_PRODUCTS, COMPUTES };

extern const char *const compute_names[COMPUTES];

struct engine {
	unsigned char *memory; /* two buffers */
	float *sink;
	uint32_t blocks; /* of the products */
	double bytes_per_us;
	double us_a_round, us_besides; /* of the products: a round, and what comes on top */
	size_t bytes;                  /* of one copy, see engine_size */
	uint32_t rounds;               /* of one kernel of products */
};

void engine_open(struct engine *e, int multiprocessors, cudaStream_t stream);
void engine_close(struct engine *e);
/* From now on a kernel takes about so long, alone. */
void engine_size(struct engine *e, double us);
void engine_compute(const struct engine *e, enum compute what, cudaStream_t stream);

#endif
