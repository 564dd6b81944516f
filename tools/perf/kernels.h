/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The tool's own kernels, as its C sources call them. */
#ifndef PERF_KERNELS_H
#define PERF_KERNELS_H

#include <cuda_runtime_api.h>
#include <dhisparse/dhisparse.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- load.cu: rows with a pattern, selections, waits ---- */

/* What the rows of a context are, in device memory. */
struct rows_shape {
	const dhs_place *place; /* [layers][segments] */
	uint32_t layers, segments;
};

cudaError_t kernel_empty(cudaStream_t stream);
/* Keeps the stream for so long. */
cudaError_t kernel_hold(uint64_t ns, cudaStream_t stream);
/* Writes rows first .. first + count - 1 of a session to their slots. */
cudaError_t kernel_write(struct rows_shape shape, const int32_t *slots, uint32_t session,
                         uint32_t first, uint32_t count, cudaStream_t stream);
/* The same for one new row of each of `sessions` sessions; all have `row` rows. */
cudaError_t kernel_write_new(struct rows_shape shape, const int32_t *slots, uint32_t sessions,
                             uint32_t row, cudaStream_t stream);

struct drawing {
	uint32_t sessions, queries, top_k;
	uint32_t rows;   /* are drawn from 0 .. rows - 1 */
	uint32_t fresh;  /* of each query of one session: rows that are drawn anew */
	uint32_t shared; /* of them, the first so many are the same in all queries */
	uint32_t first;  /* how many were drawn for a session of this group before */
	uint32_t group;
	uint32_t call; /* makes the order another one each time */
};

/* Turns the selection of a group's last call into that of the next, which may take its
 * place: all but `fresh` rows of the old one stay, in another order. */
cudaError_t kernel_draw(const struct drawing *d, const int32_t *from, int32_t *to,
                        cudaStream_t stream);
/* A selection of rows first .. first + top_k - 1, the same for all. */
cudaError_t kernel_select(int32_t *selection, uint32_t sessions, uint32_t top_k, int32_t first,
                          cudaStream_t stream);

/* Compares every `each`-th entry's slot with the pattern, in `layers` layers from the
 * `first` on; adds to *wrong. */
cudaError_t kernel_check(struct rows_shape shape, uint32_t first, uint32_t layers,
                         const int32_t *selection, const int32_t *slots, uint32_t sessions,
                         uint32_t entries, uint32_t each, unsigned long long *wrong,
                         cudaStream_t stream);

/* ---- copies.cu: copies by the tool itself ---- */

/* Rows at random out of the first `range` bytes of `from`, new ones for each seed. */
cudaError_t kernel_random_rows(const unsigned char *from, uint64_t range, unsigned char *to,
                               uint32_t row_bytes, uint32_t count, uint32_t blocks, uint32_t seed,
                               cudaStream_t stream);

/* ---- naive.cu: other orders of a fetch ---- */

/* Host memory as a plain array: region after region, of sessions x rows records. */
struct plain_rows {
	const unsigned char *from;
	unsigned char *to;
	uint32_t sessions, rows, layers, row_bytes;
	uint32_t misses;      /* of a session */
	uint32_t seed;        /* which rows, unless there is a list: in ascending order */
	const uint32_t *list; /* NULL, or records, [sessions][misses] */
};

/* The library's order: a warp a record of all layers, each block on a part of the list. */
cudaError_t kernel_records(const struct plain_rows *p, uint32_t blocks, cudaStream_t stream);
/* A block copies all misses of its session. */
cudaError_t kernel_block_a_session(const struct plain_rows *p, cudaStream_t stream);
/* Each layer's rows lie apart: layers x sessions x rows. */
cudaError_t kernel_layers_apart(const struct plain_rows *p, uint32_t blocks, cudaStream_t stream);

/* ---- gather.cu: records by a list ---- */

struct gather {
	const unsigned char *from;
	unsigned char *to;    /* [parts][count] */
	const uint32_t *list; /* device memory: which records */
	uint32_t count;
	uint32_t stride;            /* of records */
	uint32_t parts, part_bytes; /* that are taken of a record, from `from` on */
	uint32_t one_front; /* all blocks walk along the list together; 0: each has a part of it */
};

cudaError_t kernel_gather(const struct gather *g, uint32_t blocks, cudaStream_t stream);

/* ---- compute.cu: what a fetch runs beside ---- */

/* Copies within device memory, in many short blocks. */
cudaError_t kernel_device_copy(const void *from, void *to, size_t bytes, cudaStream_t stream);
/* Matrix products out of registers, `rounds` times four of them a warp. */
cudaError_t kernel_products(float *sink, uint32_t blocks, uint32_t rounds, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
