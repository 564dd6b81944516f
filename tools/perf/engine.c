/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "engine.h"

#include "kernels.h"
#include "timing.h"
#include "util.h"

#include <math.h>

#define MOST_BYTES ((size_t)1 << 30)
/* kernel_device_copy's blocks copy so much each. */
#define UNIT_BYTES ((size_t)32 << 10)
#define ROUNDS 512
#define KERNELS 8

const char *const compute_names[COMPUTES] = { "device copy", "products" };

void engine_compute(const struct engine *e, enum compute what, cudaStream_t stream)
{
	if (what == COMPUTE_COPY)
		CU(kernel_device_copy(e->memory, e->memory + MOST_BYTES, e->bytes, stream));
	else
		CU(kernel_products(e->sink, e->blocks, e->rounds, stream));
}

/* Microseconds of one kernel, without the first ones. */
static double time_of(const struct engine *e, enum compute what, cudaStream_t stream)
{
	struct stopwatch watch;
	double us[2];

	stopwatch_open(&watch);
	stopwatch_start(&watch, stream);
	for (int lap = 0; lap < 2; lap++) {
		for (int i = 0; i < KERNELS; i++)
			engine_compute(e, what, stream);
		stopwatch_lap(&watch, stream);
	}
	stopwatch_read(&watch, us);
	stopwatch_close(&watch);
	return us[1] / KERNELS;
}

static void time_products(struct engine *e, cudaStream_t stream)
{
	double few = time_of(e, COMPUTE_PRODUCTS, stream), many;

	e->rounds = 4 * ROUNDS;
	many = time_of(e, COMPUTE_PRODUCTS, stream);
	e->us_a_round = (many - few) / (3 * ROUNDS);
	e->us_besides = few - ROUNDS * e->us_a_round;
}

void engine_open(struct engine *e, int multiprocessors, cudaStream_t stream)
{
	*e = (struct engine){ .blocks = (uint32_t)multiprocessors * 16,
		                  .bytes = MOST_BYTES,
		                  .rounds = ROUNDS };
	e->memory = new_on_device(2 * MOST_BYTES);
	e->sink = new_on_device(sizeof(*e->sink));
	e->bytes_per_us = (double)MOST_BYTES / time_of(e, COMPUTE_COPY, stream);
	time_products(e, stream);
}

void engine_close(struct engine *e)
{
	CU(cudaFree(e->memory));
	CU(cudaFree(e->sink));
}

void engine_size(struct engine *e, double us)
{
	double bytes = fmin(us * e->bytes_per_us, (double)MOST_BYTES);

	e->bytes = (size_t)fmax(1, bytes / (double)UNIT_BYTES) * UNIT_BYTES;
	e->rounds = (uint32_t)fmax(1, (us - e->us_besides) / e->us_a_round);
}
