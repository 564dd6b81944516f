/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "record.h"
#include "util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct record {
	struct rows rows; /* first: a struct rows * of ours is a struct record * */
	struct rows *inner;
	const char *path;
	FILE *file;
	int top_k;
	int *session, *length; /* [seat] */
	int sessions;          /* that have arrived */
	const struct step *step;
	int steps;
};

static bool arrive(struct rows *rows, int seat)
{
	struct record *r = (struct record *)rows;

	if (!r->inner->arrive(r->inner, seat))
		return false;
	r->session[seat] = r->sessions++;
	r->length[seat] = 0;
	return true;
}

static void leave(struct rows *rows, int seat)
{
	struct record *r = (struct record *)rows;

	r->inner->leave(r->inner, seat);
}

static void begin(struct rows *rows, const struct step *step)
{
	struct record *r = (struct record *)rows;

	r->step = step;
	r->inner->begin(r->inner, step);
}

static void write_rows(struct rows *rows, int layer)
{
	struct record *r = (struct record *)rows;

	r->inner->write(r->inner, layer);
}

static void resolve(struct rows *rows, int group, const int32_t *selection)
{
	struct record *r = (struct record *)rows;
	const int32_t *row = selection;

	for (int s = 0; s < r->step->sessions; s++) {
		int seat = r->step->seat[s], new_rows = r->step->new_rows;

		fprintf(r->file, "%d %d %d %d %d", r->steps, group, r->session[seat], r->length[seat],
		        new_rows);
		for (int i = 0; i < new_rows * r->top_k; i++)
			fprintf(r->file, " %d", *row++);
		fputc('\n', r->file);
	}
	r->inner->resolve(r->inner, group, selection);
}

static void read_rows(struct rows *rows, int layer)
{
	struct record *r = (struct record *)rows;

	r->inner->read(r->inner, layer);
}

static void end(struct rows *rows)
{
	struct record *r = (struct record *)rows;

	r->inner->end(r->inner);
	for (int s = 0; s < r->step->sessions; s++)
		r->length[r->step->seat[s]] += r->step->new_rows;
	r->steps++;
}

struct rows *record_open(struct rows *inner, const char *path, const struct model *model, int seats)
{
	FILE *file = fopen(path, "w");
	struct record *r;

	if (!file)
		die(STATUS_USAGE, "--selections: %s: %s", path, strerror(errno));
	r = zeros(1, sizeof(*r));
	r->file = file;
	r->inner = inner;
	r->path = path;
	r->session = zeros((size_t)seats, sizeof(*r->session));
	r->length = zeros((size_t)seats, sizeof(*r->length));
	r->top_k = model->top_k;
	fprintf(r->file, "selections 1 %d\n", r->top_k);
	r->rows = (struct rows){ .arrive = arrive,
		                     .leave = leave,
		                     .begin = begin,
		                     .write = write_rows,
		                     .new_numbers = inner->new_numbers,
		                     .resolve = resolve,
		                     .read = read_rows,
		                     .selected = inner->selected,
		                     .end = end };
	return &r->rows;
}

void record_close(struct rows *rows)
{
	struct record *r = (struct record *)rows;
	int failed = ferror(r->file);

	if (fclose(r->file) || failed)
		die(STATUS_USAGE, "--selections: %s: %s", r->path, strerror(errno));
	free(r->session);
	free(r->length);
	free(r);
}
