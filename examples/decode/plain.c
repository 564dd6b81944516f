/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "plain.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

struct plain {
	struct rows rows; /* first: a struct rows * of ours is a struct plain * */
	int max_rows, top_k, layers;
	int *length; /* [seat] */
	const struct step *step;
	size_t row_bytes;
	unsigned char **layer;    /* [layers]: [seat][max_rows][row_bytes] */
	const int32_t *selection; /* the caller's, of this group */
	unsigned char *selected;
};

static unsigned char *row_at(struct plain *p, int layer, int seat, int row)
{
	size_t at = (size_t)seat * (size_t)p->max_rows + (size_t)row;

	return p->layer[layer] + at * p->row_bytes;
}

static bool arrive(struct rows *rows, int seat)
{
	((struct plain *)rows)->length[seat] = 0;
	return true;
}

static void leave(struct rows *rows, int seat)
{
	(void)rows;
	(void)seat;
}

static void begin(struct rows *rows, const struct step *step)
{
	((struct plain *)rows)->step = step;
}

static void write_rows(struct rows *rows, int layer)
{
	struct plain *p = (struct plain *)rows;
	const unsigned char *from = (const unsigned char *)rows->new_numbers;
	size_t bytes = (size_t)p->step->new_rows * p->row_bytes;

	for (int s = 0; s < p->step->sessions; s++, from += bytes) {
		int seat = p->step->seat[s];

		memcpy(row_at(p, layer, seat, p->length[seat]), from, bytes);
	}
}

/* All rows are readable. */
static void resolve(struct rows *rows, int group, const int32_t *selection)
{
	(void)group;
	((struct plain *)rows)->selection = selection;
}

static void read_rows(struct rows *rows, int layer)
{
	struct plain *p = (struct plain *)rows;
	const int32_t *selection = p->selection;
	unsigned char *to = p->selected;

	for (int s = 0; s < p->step->sessions; s++)
		for (int i = 0; i < p->step->new_rows * p->top_k; i++, selection++, to += p->row_bytes)
			if (*selection >= 0)
				memcpy(to, row_at(p, layer, p->step->seat[s], *selection), p->row_bytes);
}

static void end(struct rows *rows)
{
	struct plain *p = (struct plain *)rows;

	for (int s = 0; s < p->step->sessions; s++)
		p->length[p->step->seat[s]] += p->step->new_rows;
}

struct rows *plain_open(const struct model *model, int seats, int max_rows, int max_new_rows)
{
	size_t queries = (size_t)seats * (size_t)max_new_rows;
	struct plain *p = zeros(1, sizeof(*p));

	p->length = zeros((size_t)seats, sizeof(*p->length));
	p->max_rows = max_rows;
	p->top_k = model->top_k;
	p->layers = model->layers;
	p->row_bytes = (size_t)model->row_numbers * sizeof(uint16_t);
	p->rows.arrive = arrive;
	p->rows.leave = leave;
	p->rows.begin = begin;
	p->rows.write = write_rows;
	p->rows.resolve = resolve;
	p->rows.read = read_rows;
	p->rows.end = end;
	p->rows.new_numbers = zeros(queries, p->row_bytes);
	p->selected = zeros(queries * (size_t)model->top_k, p->row_bytes);
	p->rows.selected = (const uint16_t *)p->selected;
	p->layer = zeros((size_t)model->layers, sizeof(*p->layer));
	for (int l = 0; l < model->layers; l++)
		p->layer[l] = zeros((size_t)seats * (size_t)max_rows, p->row_bytes);
	return &p->rows;
}

void plain_close(struct rows *rows)
{
	struct plain *p = (struct plain *)rows;

	for (int l = 0; l < p->layers; l++)
		free(p->layer[l]);
	free(p->layer);
	free(p->length);
	free(p->selected);
	free(rows->new_numbers);
	free(p);
}
