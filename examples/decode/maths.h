/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The arithmetic of the decoder.  Everything is float32, and each result is the sum of the same
 * products in the same order however many rows are computed at once: so two decoders that see
 * the same KV rows compute the same bits.
 */
#ifndef DECODE_MATHS_H
#define DECODE_MATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The numbers that are computed side by side: matrices are kept in panels of so many outputs,
 * indexer keys in blocks of so many rows. */
enum { LANES = 16 };

/* y = W x, W [out][in] kept as panels [out / LANES][in][LANES], padded with zeros. */
struct matrix {
	int out, in;
	float *panels;
};

/* From bfloat16 [out][in], or [in][out] when transposed. */
void matrix_load(struct matrix *m, int out, int in, const uint16_t *from, bool transposed);
void matrix_free(struct matrix *m);

/* y[i] = W x[i] for `rows` vectors; strides in floats. */
void matmul(const struct matrix *m, int rows, const float *x, size_t x_stride, float *y,
            size_t y_stride);

/* x . y; n is a multiple of LANES. */
float dot(const float *x, const float *y, int n);

/* y[k] = sum over i of p[i] * x[i * stride + k], 0 <= k < n; n is a multiple of LANES. */
void weighted_sum(float *y, int n, const float *p, int count, const float *x, size_t stride);

/* y = x / sqrt(mean(x^2) + 1e-6) * w; y may be x. */
void rms(float *y, const float *x, const float *w, int n);

/* Rotates the pairs (2i, 2i + 1) of x by the angles whose cosine and sine are turn[2i, 2i + 1]. */
void rope(float *x, const float *turn, int n);

/* The turns of position `position` for vectors of n numbers. */
void rope_turns(float *turn, int64_t position, float theta, int n);

void softmax(float *x, int n);

/* x = silu(x) * y */
void silu_times(float *x, const float *y, int n);

/* Scores of LANES rows whose indexer keys are block[width][LANES]: for each the sum over heads of
 * weight[j] * max(0, query[j] . key). */
void index_scores(float *score, const float *block, const float *query, const float *weight,
                  int heads, int width);

/* The k rows with the highest of n scores (all, if n <= k), ascending; of equal scores the older
 * row.  bits is scratch of n numbers.  Returns how many. */
int select_top(int32_t *rows, int k, const float *score, int n, uint32_t *bits);

/* The bfloat16 next to x (ties to even), and back. */
static inline uint16_t to_bfloat16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	bits += 0x7fff + ((bits >> 16) & 1);
	return (uint16_t)(bits >> 16);
}

static inline float from_bfloat16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float number;

	memcpy(&number, &bits, sizeof(number));
	return number;
}

#endif
