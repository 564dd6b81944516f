/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "plain.h"
#include "util.h"

#include <stdlib.h>

struct plain {
	struct rows rows; /* first: a struct rows * of ours is a struct plain * */
	int sessions, max_rows, top_k, layers;
	int length, new_rows;
	int32_t *new_slots, *slots;
};

/* Row r of session s has slot s * max_rows + r. */
static void begin(struct rows *rows, int new_rows)
{
	struct plain *p = (struct plain *)rows;
	int32_t *to = p->new_slots;

	p->new_rows = new_rows;
	for (int s = 0; s < p->sessions; s++)
		for (int i = 0; i < new_rows; i++)
			*to++ = s * p->max_rows + p->length + i;
}

static void resolve(struct rows *rows, int group, const int32_t *selection)
{
	struct plain *p = (struct plain *)rows;
	int32_t *to = p->slots;

	(void)group;
	for (int s = 0; s < p->sessions; s++)
		for (int i = 0; i < p->new_rows * p->top_k; i++, selection++)
			*to++ = *selection < 0 ? -1 : s * p->max_rows + *selection;
}

static void end(struct rows *rows)
{
	struct plain *p = (struct plain *)rows;

	p->length += p->new_rows;
}

struct rows *plain_open(const struct model *model, int sessions, int max_rows, int max_new_rows)
{
	size_t row_bytes = (size_t)model->row_numbers * sizeof(uint16_t);
	size_t queries = (size_t)sessions * (size_t)max_new_rows;
	struct plain *p = zeros(1, sizeof(*p));

	p->sessions = sessions;
	p->max_rows = max_rows;
	p->top_k = model->top_k;
	p->layers = model->layers;
	p->rows.begin = begin;
	p->rows.resolve = resolve;
	p->rows.end = end;
	p->rows.new_slots = p->new_slots = zeros(queries, sizeof(int32_t));
	p->rows.slots = p->slots = zeros(queries * (size_t)model->top_k, sizeof(int32_t));
	p->rows.page_rows = 1;
	p->rows.page_stride = p->rows.row_stride = row_bytes;
	p->rows.base = zeros((size_t)model->layers, sizeof(*p->rows.base));
	for (int l = 0; l < model->layers; l++)
		p->rows.base[l] = zeros((size_t)sessions * (size_t)max_rows, row_bytes);
	return &p->rows;
}

void plain_close(struct rows *rows)
{
	struct plain *p = (struct plain *)rows;

	for (int l = 0; l < p->layers; l++)
		free(rows->base[l]);
	free(rows->base);
	free(p->new_slots);
	free(p->slots);
	free(p);
}
