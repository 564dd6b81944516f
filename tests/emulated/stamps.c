/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Of the kernels that tests have, device_kernels.h, those of stamped rows. */
#include "../device_kernels.h"

#include "emulated.h"

struct check {
	struct device_stamps stamps;
	uint32_t *wrong; /* NULL: rows are written */
};

/* Row i of layer l: writes it, or tells whether it has other bytes. */
static int one(const struct check *c, uint64_t i, uint32_t l)
{
	const struct device_stamps *t = &c->stamps;
	const dhs_place *p = &t->place[l];
	uint32_t slot = (uint32_t)t->slots[i], other = 0;
	uint32_t row = t->rows ? (uint32_t)t->rows[i] : t->first + (uint32_t)i;
	uint32_t session = t->session + (t->each ? (uint32_t)(i / t->each) : 0);
	uint32_t *words = (void *)((char *)p->base + slot / p->page_rows * p->page_stride +
	                           slot % p->page_rows * p->row_stride);

	for (uint32_t w = 0; w < p->bytes / 4; w++)
		if (c->wrong)
			other |= words[w] ^ device_stamp(session, row, l, w);
		else
			words[w] = device_stamp(session, row, l, w);
	return other != 0;
}

static void run(void *copy)
{
	const struct check *c = copy;
	const struct device_stamps *t = &c->stamps;

	for (uint64_t i = 0; i < t->count; i++) {
		int other = 0;

		for (uint32_t l = t->from; l < t->from + t->some && t->slots[i] >= 0; l++)
			other |= one(c, i, l);
		if (other)
			++*c->wrong;
	}
}

cudaError_t device_kernel_stamp(const struct device_stamps *stamps, cudaStream_t stream)
{
	struct check c = { *stamps, NULL };

	emulated_enqueue(stream, run, &c, sizeof(c));
	return cudaSuccess;
}

cudaError_t device_kernel_check(const struct device_stamps *stamps, uint32_t *wrong,
                                cudaStream_t stream)
{
	struct check c = { *stamps, wrong };

	emulated_enqueue(stream, run, &c, sizeof(c));
	return cudaSuccess;
}
