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
	int sessions, top_k;
	int step, length, new_rows;
};

static void begin(struct rows *rows, int new_rows)
{
	struct record *r = (struct record *)rows;

	r->new_rows = new_rows;
	r->inner->begin(r->inner, new_rows);
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

	for (int s = 0; s < r->sessions; s++) {
		fprintf(r->file, "%d %d %d %d %d", r->step, group, s, r->length, r->new_rows);
		for (int i = 0; i < r->new_rows * r->top_k; i++)
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
	r->length += r->new_rows;
	r->step++;
}

struct rows *record_open(struct rows *inner, const char *path, const struct model *model,
                         int sessions)
{
	FILE *file = fopen(path, "w");
	struct record *r;

	if (!file)
		die(STATUS_USAGE, "--selections: %s: %s", path, strerror(errno));
	r = zeros(1, sizeof(*r));
	r->file = file;
	r->inner = inner;
	r->path = path;
	r->sessions = sessions;
	r->top_k = model->top_k;
	fprintf(r->file, "selections 1 %d\n", r->top_k);
	r->rows = (struct rows){ .begin = begin,
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
	free(r);
}
