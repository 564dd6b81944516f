/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "maths.h"
#include "util.h"

#include <math.h>
#include <stdlib.h>

/* Four floats in one register, on any processor that gcc and clang know; may lie anywhere. */
typedef float vec __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(16), aligned(4), may_alias));

void matrix_load(struct matrix *m, int out, int in, const uint16_t *from, bool transposed)
{
	size_t panels = ((size_t)out + LANES - 1) / LANES;

	m->out = out;
	m->in = in;
	m->panels = zeros(panels * (size_t)in * LANES, sizeof(float));
	for (int o = 0; o < out; o++)
		for (int i = 0; i < in; i++) {
			size_t at = transposed ? (size_t)i * (size_t)out + (size_t)o
			                       : (size_t)o * (size_t)in + (size_t)i;
			size_t panel = (size_t)(o / LANES) * (size_t)in + (size_t)i;

			m->panels[panel * LANES + (size_t)(o % LANES)] = from_bfloat16(from[at]);
		}
}

void matrix_free(struct matrix *m)
{
	free(m->panels);
	m->panels = NULL;
}

/* y[LANES] = sum over i of x[i] * w[i * stride], in registers: the heart of it all. */
static inline void sum_lanes(vec y[4], int count, const float *x, const float *w, size_t stride)
{
	vec a = { 0 }, b = a, c = a, d = a;

	for (int i = 0; i < count; i++, w += stride) {
		const vec *p = (const vec *)w;

		a += x[i] * p[0];
		b += x[i] * p[1];
		c += x[i] * p[2];
		d += x[i] * p[3];
	}
	y[0] = a;
	y[1] = b;
	y[2] = c;
	y[3] = d;
}

void matmul(const struct matrix *m, int rows, const float *x, size_t x_stride, float *y,
            size_t y_stride)
{
	/* Rows inside: a panel is read from memory once for all of them. */
	for (int o = 0; o < m->out; o += LANES) {
		const float *panel = m->panels + (size_t)o * (size_t)m->in;
		int n = m->out - o < LANES ? m->out - o : LANES;

		for (int r = 0; r < rows; r++) {
			vec sum[4];

			sum_lanes(sum, m->in, x + (size_t)r * x_stride, panel, LANES);
			memcpy(y + (size_t)r * y_stride + o, sum, (size_t)n * sizeof(float));
		}
	}
}

float dot(const float *x, const float *y, int n)
{
	vec sum[4] = { { 0 } };

	for (int i = 0; i < n; i += LANES)
		for (int l = 0; l < 4; l++)
			sum[l] += *(const vec *)(x + i + 4 * l) * *(const vec *)(y + i + 4 * l);
	sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
	return (sum[0][0] + sum[0][1]) + (sum[0][2] + sum[0][3]);
}

void weighted_sum(float *y, int n, const float *p, int count, const float *x, size_t stride)
{
	for (int k = 0; k < n; k += LANES) {
		vec sum[4];

		sum_lanes(sum, count, p, x + k, stride);
		memcpy(y + k, sum, sizeof(sum));
	}
}

void rms(float *y, const float *x, const float *w, int n)
{
	float square = 0;

	for (int i = 0; i < n; i++)
		square += x[i] * x[i];
	square = 1 / sqrtf(square / (float)n + 1e-6f);
	for (int i = 0; i < n; i++)
		y[i] = x[i] * square * w[i];
}

void rope_turns(float *turn, int64_t position, float theta, int n)
{
	for (int i = 0; i < n; i += 2) {
		float angle = (float)position * powf(theta, -(float)i / (float)n);

		turn[i] = cosf(angle);
		turn[i + 1] = sinf(angle);
	}
}

void rope(float *x, const float *turn, int n)
{
	for (int i = 0; i < n; i += 2) {
		float a = x[i], b = x[i + 1];

		x[i] = a * turn[i] - b * turn[i + 1];
		x[i + 1] = a * turn[i + 1] + b * turn[i];
	}
}

void softmax(float *x, int n)
{
	float most = x[0], sum = 0;

	for (int i = 1; i < n; i++)
		most = x[i] > most ? x[i] : most;
	for (int i = 0; i < n; i++)
		sum += x[i] = expf(x[i] - most);
	for (int i = 0; i < n; i++)
		x[i] /= sum;
}

void silu_times(float *x, const float *y, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = x[i] / (1 + expf(-x[i])) * y[i];
}

void index_scores(float *score, const float *block, const float *query, const float *weight,
                  int heads, int width)
{
	vec total[4] = { { 0 } };

	for (int j = 0; j < heads; j++) {
		vec sum[4];

		sum_lanes(sum, width, query + (size_t)j * (size_t)width, block, LANES);
		for (int l = 0; l < 4; l++)
			total[l] += weight[j] * (vec)((ivec)sum[l] & (sum[l] > 0));
	}
	memcpy(score, total, sizeof(total));
}

/* The bits of a float as an unsigned number that sorts as the float does. */
static uint32_t sortable(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

int select_top(int32_t *rows, int k, const float *score, int n, uint32_t *bits)
{
	uint32_t known = 0, value = 0;
	int wanted = k, count = 0;

	if (n <= k) {
		for (int i = 0; i < n; i++)
			rows[i] = i;
		return n;
	}
	/* The k-th highest score, eight bits at a time: of the scores that begin with the bits
	 * known so far it is the wanted-th highest. */
	for (int i = 0; i < n; i++)
		bits[i] = sortable(score[i]);
	for (int shift = 24; shift >= 0; shift -= 8) {
		int tally[256] = { 0 }, digit = 255;

		for (int i = 0; i < n; i++)
			if ((bits[i] & known) == value)
				tally[bits[i] >> shift & 255]++;
		for (; tally[digit] < wanted; digit--)
			wanted -= tally[digit];
		known |= 255u << shift;
		value |= (uint32_t)digit << shift;
	}
	for (int i = 0; count < k; i++)
		if (bits[i] > value || (bits[i] == value && wanted-- > 0))
			rows[count++] = i;
	return count;
}
