/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The forward pass, in the order and the words of examples/tiny-dsa/README.md. */
#include "decoder.h"
#include "util.h"

#include <math.h>
#include <stdlib.h>

struct decoder {
	const struct model *m;
	struct rows *rows;
	int max_rows;
	int *length;  /* [seat] rows before the step */
	float **keys; /* [group]: [seat][max_rows / LANES][index_width][LANES] */
	size_t session_keys;
	struct step step;

	/* Of the step's new rows, [session][new_rows] each. */
	float *x, *h, *query, *kv, *heads, *gate, *up, *logits;
	float *turn, *index_turn; /* rotation by the row's position */
	float *index_query, *index_key, *index_weight;
	int32_t *selection, *count;

	/* Of one of them. */
	float *score;                     /* [max_rows rounded up to LANES] */
	uint32_t *bits;                   /* [max_rows] */
	float *latent_query, *latent_sum; /* [row_numbers], [latent] */
	float *tile;                      /* [top_k][row_numbers]: the rows that are read */
	float *share;                     /* [top_k]: attention to each */
};

static float *floats(size_t count, int size)
{
	return zeros(count * (size_t)size, sizeof(float));
}

struct decoder *decoder_open(const struct model *m, struct rows *rows, int seats, int max_rows,
                             int max_new_rows)
{
	struct decoder *d = zeros(1, sizeof(*d));
	size_t blocks = ((size_t)max_rows + LANES - 1) / LANES;
	size_t n = (size_t)seats * (size_t)max_new_rows;

	d->m = m;
	d->rows = rows;
	d->max_rows = max_rows;
	d->length = zeros((size_t)seats, sizeof(*d->length));
	d->session_keys = blocks * (size_t)m->index_width * LANES;
	d->keys = zeros((size_t)m->groups, sizeof(*d->keys));
	for (int g = 0; g < m->groups; g++)
		d->keys[g] = zeros((size_t)seats * d->session_keys, sizeof(float));

	d->x = floats(n, m->width);
	d->h = floats(n, m->width);
	d->query = floats(n, m->heads * (m->nope + m->rotary));
	d->kv = floats(n, m->row_numbers);
	d->heads = floats(n, m->heads * m->value);
	d->gate = floats(n, m->hidden);
	d->up = floats(n, m->hidden);
	d->logits = floats(n, m->vocab);
	d->turn = floats(n, m->rotary);
	d->index_turn = floats(n, m->index_width);
	d->index_query = floats(n, m->index_heads * m->index_width);
	d->index_key = floats(n, m->index_width);
	d->index_weight = floats(n, m->index_heads);
	d->selection = zeros(n * (size_t)m->top_k, sizeof(*d->selection));
	d->count = zeros(n, sizeof(*d->count));

	d->score = floats(blocks, LANES);
	d->bits = zeros((size_t)max_rows, sizeof(*d->bits));
	d->latent_query = floats(1, m->row_numbers);
	d->latent_sum = floats(1, m->latent);
	d->tile = floats((size_t)m->top_k, m->row_numbers);
	d->share = floats((size_t)m->top_k, 1);
	return d;
}

void decoder_close(struct decoder *d)
{
	void *const all[] = {
		d->x,           d->h,         d->query,        d->kv,         d->heads,
		d->gate,        d->up,        d->logits,       d->turn,       d->index_turn,
		d->index_query, d->index_key, d->index_weight, d->selection,  d->count,
		d->score,       d->bits,      d->latent_query, d->latent_sum, d->tile,
		d->share,       d->length
	};

	for (int g = 0; g < d->m->groups; g++)
		free(d->keys[g]);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
	free(d->keys);
	free(d);
}

bool decoder_arrive(struct decoder *d, int seat)
{
	d->length[seat] = 0;
	return d->rows->arrive(d->rows, seat);
}

void decoder_leave(struct decoder *d, int seat)
{
	d->rows->leave(d->rows, seat);
}

static int positions(const struct decoder *d)
{
	return d->step.sessions * d->step.new_rows;
}

/* Computes the layer's new KV rows and writes them, rounded to bfloat16. */
static void write_rows(struct decoder *d, int layer)
{
	const struct model *m = d->m;
	const struct layer *l = &m->layer[layer];

	matmul(&l->wkva, positions(d), d->h, (size_t)m->width, d->kv, (size_t)m->row_numbers);
	for (int i = 0; i < positions(d); i++) {
		float *row = d->kv + (size_t)i * (size_t)m->row_numbers;
		uint16_t *to = d->rows->new_numbers + (size_t)i * (size_t)m->row_numbers;

		rms(row, row, l->nkv, m->latent);
		rope(row + m->latent, d->turn + (size_t)i * (size_t)m->rotary, m->rotary);
		for (int k = 0; k < m->row_numbers; k++)
			to[k] = to_bfloat16(row[k]);
	}
	d->rows->write(d->rows, layer);
}

/* A leader's indexer: keeps the new rows' keys, then selects for each new row the top_k best of
 * the rows up to it. */
static void select_rows(struct decoder *d, int layer)
{
	const struct model *m = d->m;
	const struct layer *l = &m->layer[layer];
	int n = positions(d), width = m->index_width, heads = m->index_heads;
	float scale = 1 / sqrtf((float)(heads * width));

	matmul(&l->ik, n, d->h, (size_t)m->width, d->index_key, (size_t)width);
	matmul(&l->iq, n, d->h, (size_t)m->width, d->index_query, (size_t)(heads * width));
	matmul(&l->iw, n, d->h, (size_t)m->width, d->index_weight, (size_t)heads);
	for (int i = 0; i < n * heads; i++)
		d->index_weight[i] *= scale;

	for (int s = 0; s < d->step.sessions; s++) {
		int seat = d->step.seat[s], new_rows = d->step.new_rows, first = s * new_rows;
		float *keys = d->keys[layer / m->group] + (size_t)seat * d->session_keys;

		/* All keys of the step before the first query: a step's rows see each other. */
		for (int i = first; i < first + new_rows; i++) {
			int position = d->length[seat] + i - first;
			float *key = d->index_key + (size_t)i * (size_t)width;
			float *to = keys + (size_t)(position / LANES) * (size_t)width * LANES;

			rms(key, key, l->nik, width);
			rope(key, d->index_turn + (size_t)i * (size_t)width, width);
			for (int k = 0; k < width; k++)
				to[(size_t)k * LANES + (size_t)(position % LANES)] = key[k];
		}
		for (int i = first; i < first + new_rows; i++) {
			int rows = d->length[seat] + i - first + 1, k = m->top_k;
			int32_t *selection = d->selection + (size_t)i * (size_t)k;
			float *query = d->index_query + (size_t)i * (size_t)(heads * width);

			for (int j = 0; j < heads; j++)
				rope(query + (size_t)j * (size_t)width, d->index_turn + (size_t)i * (size_t)width,
				     width);
			for (int r = 0; r < rows && rows > k; r += LANES)
				index_scores(d->score + r, keys + (size_t)r * (size_t)width, query,
				             d->index_weight + (size_t)i * (size_t)heads, heads, width);
			d->count[i] = select_top(selection, k, d->score, rows, d->bits);
			for (int e = d->count[i]; e < k; e++)
				selection[e] = -1;
		}
	}
}

/* The rows of one query, as numbers to compute with. */
static void load_tile(struct decoder *d, int query)
{
	size_t numbers = (size_t)d->m->row_numbers;
	const uint16_t *from = d->rows->selected + (size_t)query * (size_t)d->m->top_k * numbers;

	for (size_t k = 0; k < (size_t)d->count[query] * numbers; k++)
		d->tile[k] = from_bfloat16(from[k]);
}

/* One head's attention to the rows in the tile. */
static void attend(struct decoder *d, const struct layer *l, int head, float *query,
                   const float *turn, int count, float *value)
{
	const struct model *m = d->m;
	size_t numbers = (size_t)m->row_numbers;
	float scale = 1 / sqrtf((float)(m->nope + m->rotary));

	matmul(&l->wkb[head], 1, query, 0, d->latent_query, 0);
	rope(query + m->nope, turn, m->rotary);
	memcpy(d->latent_query + m->latent, query + m->nope, (size_t)m->rotary * sizeof(float));
	for (int e = 0; e < count; e++)
		d->share[e] = scale * dot(d->latent_query, d->tile + (size_t)e * numbers, (int)numbers);
	softmax(d->share, count);
	weighted_sum(d->latent_sum, m->latent, d->share, count, d->tile, numbers);
	matmul(&l->wvb[head], 1, d->latent_sum, 0, value, 0);
}

/* What each new row reads: for each head the sum of the selected rows by its attention. */
static void read_rows(struct decoder *d, int layer)
{
	const struct model *m = d->m;
	const struct layer *l = &m->layer[layer];
	size_t numbers = (size_t)(m->nope + m->rotary);

	d->rows->read(d->rows, layer);
	matmul(&l->wq, positions(d), d->h, (size_t)m->width, d->query, (size_t)m->heads * numbers);
	for (int i = 0; i < positions(d); i++) {
		load_tile(d, i);
		for (int j = 0; j < m->heads; j++) {
			size_t at = (size_t)i * (size_t)m->heads + (size_t)j;

			attend(d, l, j, d->query + at * numbers, d->turn + (size_t)i * (size_t)m->rotary,
			       d->count[i], d->heads + at * (size_t)m->value);
		}
	}
}

static void add(float *x, const float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] += y[i];
}

static void normalize(struct decoder *d, const float *w)
{
	for (int i = 0; i < positions(d); i++) {
		size_t at = (size_t)i * (size_t)d->m->width;

		rms(d->h + at, d->x + at, w, d->m->width);
	}
}

static void run_layer(struct decoder *d, int layer)
{
	const struct model *m = d->m;
	const struct layer *l = &m->layer[layer];
	int n = positions(d);
	size_t width = (size_t)m->width, hidden = (size_t)m->hidden;

	normalize(d, l->n1);
	write_rows(d, layer);
	if (l->leader) {
		select_rows(d, layer);
		d->rows->resolve(d->rows, layer / m->group, d->selection);
	}
	read_rows(d, layer);
	matmul(&l->wo, n, d->heads, (size_t)(m->heads * m->value), d->h, width);
	add(d->x, d->h, (size_t)n * width);

	normalize(d, l->n2);
	matmul(&l->w1, n, d->h, width, d->gate, hidden);
	matmul(&l->w3, n, d->h, width, d->up, hidden);
	silu_times(d->gate, d->up, n * m->hidden);
	matmul(&l->w2, n, d->gate, hidden, d->h, width);
	add(d->x, d->h, (size_t)n * width);
}

const float *decoder_step(struct decoder *d, const struct step *step, const uint8_t *tokens)
{
	const struct model *m = d->m;
	size_t width = (size_t)m->width;

	d->step = *step;
	for (int i = 0; i < positions(d); i++) {
		int position = d->length[step->seat[i / step->new_rows]] + i % step->new_rows;

		memcpy(d->x + (size_t)i * width, m->embedding + tokens[i] * width, width * sizeof(float));
		rope_turns(d->turn + (size_t)i * (size_t)m->rotary, position, m->theta, m->rotary);
		rope_turns(d->index_turn + (size_t)i * (size_t)m->index_width, position, m->theta,
		           m->index_width);
	}
	d->rows->begin(d->rows, step);
	for (int l = 0; l < m->layers; l++)
		run_layer(d, l);
	d->rows->end(d->rows);
	for (int s = 0; s < step->sessions; s++)
		d->length[step->seat[s]] += step->new_rows;

	normalize(d, m->nf);
	matmul(&m->head, positions(d), d->h, width, d->logits, (size_t)m->vocab);
	return d->logits;
}
