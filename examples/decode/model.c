/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "model.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

/* The file as bfloat16 numbers, handed out from front to back. */
struct tensors {
	const char *path;
	const uint16_t *next;
	size_t left;
};

static const uint16_t *take(struct tensors *t, size_t count)
{
	const uint16_t *from = t->next;

	if (count > t->left)
		die(STATUS_USAGE, "%s: too short for its dimensions", t->path);
	t->next += count;
	t->left -= count;
	return from;
}

static float *vector(struct tensors *t, int n)
{
	const uint16_t *from = take(t, (size_t)n);
	float *to = zeros((size_t)n, sizeof(float));

	for (int i = 0; i < n; i++)
		to[i] = from_bfloat16(from[i]);
	return to;
}

static void matrix(struct tensors *t, struct matrix *m, int out, int in)
{
	matrix_load(m, out, in, take(t, (size_t)out * (size_t)in), false);
}

/* A tensor [heads * n][in] as one matrix a head. */
static struct matrix *per_head(struct tensors *t, int heads, int n, int in, bool transposed)
{
	struct matrix *m = zeros((size_t)heads, sizeof(*m));

	for (int h = 0; h < heads; h++) {
		const uint16_t *from = take(t, (size_t)n * (size_t)in);

		if (transposed)
			matrix_load(&m[h], in, n, from, true);
		else
			matrix_load(&m[h], n, in, from, false);
	}
	return m;
}

static void load_layer(struct tensors *t, const struct model *m, struct layer *l)
{
	l->n1 = vector(t, m->width);
	matrix(t, &l->wq, m->heads * (m->nope + m->rotary), m->width);
	matrix(t, &l->wkva, m->row_numbers, m->width);
	l->nkv = vector(t, m->latent);
	/* q . (wkb c) = (wkb^T q) . c: with wkb applied to the query, rows are read as they lie. */
	l->wkb = per_head(t, m->heads, m->nope, m->latent, true);
	l->wvb = per_head(t, m->heads, m->value, m->latent, false);
	matrix(t, &l->wo, m->width, m->heads * m->value);
	l->n2 = vector(t, m->width);
	matrix(t, &l->w1, m->hidden, m->width);
	matrix(t, &l->w3, m->hidden, m->width);
	matrix(t, &l->w2, m->width, m->hidden);
	if (!l->leader)
		return;
	matrix(t, &l->iq, m->index_heads * m->index_width, m->width);
	matrix(t, &l->ik, m->index_width, m->width);
	l->nik = vector(t, m->index_width);
	matrix(t, &l->iw, m->index_heads, m->width);
}

/* A dimension of the file: the arithmetic asks for multiples, and the limits keep every product
 * of dimensions far from overflow. */
struct dimension {
	const char *name;
	int *value;
	int most, multiple;
};

static void read_dimensions(struct model *m, const char *path, const unsigned char *at)
{
	int theta;
	const struct dimension all[] = {
		{ "VOCAB", &m->vocab, 256, 256 }, /* tokens are bytes */
		{ "D", &m->width, 4096, 2 },       { "L", &m->layers, 256, 1 },
		{ "H", &m->heads, 128, 1 },        { "DN", &m->nope, 512, 1 },
		{ "DR", &m->rotary, 512, 2 },      { "DV", &m->value, 512, 1 },
		{ "R", &m->latent, 2048, LANES },  { "FFN", &m->hidden, 16384, 1 },
		{ "GROUP", &m->group, 256, 1 },    { "IH", &m->index_heads, 128, 1 },
		{ "ID", &m->index_width, 512, 2 }, { "TOPK", &m->top_k, 65536, 1 },
		{ "THETA", &theta, 100000000, 1 },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++, at += 4) {
		uint32_t bits =
			at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;

		if (bits < 1 || bits > (uint32_t)all[i].most || bits % (uint32_t)all[i].multiple)
			die(STATUS_USAGE, "%s: %s is %lu, not a multiple of %d up to %d", path, all[i].name,
			    (unsigned long)bits, all[i].multiple, all[i].most);
		*all[i].value = (int)bits;
	}
	m->theta = (float)theta;
	if (m->layers % m->group)
		die(STATUS_USAGE, "%s: %d layers are not whole groups of %d", path, m->layers, m->group);
	m->groups = m->layers / m->group;
	m->row_numbers = m->latent + m->rotary;
	if (m->row_numbers % LANES)
		die(STATUS_USAGE, "%s: a row has %d numbers, not a multiple of %d", path, m->row_numbers,
		    LANES);
}

struct model *model_load(const char *path)
{
	enum { MAGIC = 8, DIMENSIONS = 14, HEADER = MAGIC + 4 * DIMENSIONS };
	struct model *m = zeros(1, sizeof(*m));
	struct tensors t = { .path = path }, start;
	size_t size;
	unsigned char *bytes = read_file(path, &size);
	uint16_t *numbers;

	if (size < HEADER || memcmp(bytes, "DSAT0001", MAGIC))
		die(STATUS_USAGE, "%s: not a model of format DSAT0001", path);
	read_dimensions(m, path, bytes + MAGIC);

	t.left = (size - HEADER) / 2;
	t.next = numbers = zeros(t.left, sizeof(*numbers));
	for (size_t i = 0; i < t.left; i++)
		numbers[i] = (uint16_t)(bytes[HEADER + 2 * i] | bytes[HEADER + 2 * i + 1] << 8);
	free(bytes);

	start = t;
	m->embedding = vector(&t, m->vocab * m->width);
	matrix(&start, &m->head, m->vocab, m->width);
	m->layer = zeros((size_t)m->layers, sizeof(*m->layer));
	for (int l = 0; l < m->layers; l++) {
		m->layer[l].leader = l % m->group == 0;
		load_layer(&t, m, &m->layer[l]);
	}
	m->nf = vector(&t, m->width);
	if (t.left || size % 2)
		die(STATUS_USAGE, "%s: longer than its dimensions say", path);
	free(numbers);
	return m;
}

void model_free(struct model *m)
{
	for (int i = 0; i < m->layers; i++) {
		struct layer *l = &m->layer[i];

		for (int h = 0; h < m->heads; h++) {
			matrix_free(&l->wkb[h]);
			matrix_free(&l->wvb[h]);
		}
		free(l->wkb);
		free(l->wvb);
		matrix_free(&l->wq);
		matrix_free(&l->wkva);
		matrix_free(&l->wo);
		matrix_free(&l->w1);
		matrix_free(&l->w3);
		matrix_free(&l->w2);
		matrix_free(&l->iq);
		matrix_free(&l->ik);
		matrix_free(&l->iw);
		free(l->n1);
		free(l->nkv);
		free(l->n2);
		free(l->nik);
	}
	matrix_free(&m->head);
	free(m->embedding);
	free(m->layer);
	free(m->nf);
	free(m);
}
