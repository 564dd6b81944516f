/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What the decoder knows of the store of its KV rows: it hands over the new rows of a layer and is
 * handed the selected ones.  A row is row_numbers bfloat16 numbers.  kv.c keeps the rows in the
 * library; plain.c keeps them in plain arrays, to compare with.
 */
#ifndef DECODE_ROWS_H
#define DECODE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* A session has a seat as long as it lasts: a number from 0 on.  A step is of some of the sessions,
 * in any order; arrays of the step have them in this one. */
struct step {
	const int *seat; /* [sessions] */
	int sessions;
	int new_rows; /* that each of them adds, with as many queries */
};

struct rows {
	/* A new session, which has no rows yet, takes an empty seat.  False if there is no room for
	 * it before another one leaves. */
	bool (*arrive)(struct rows *rows, int seat);
	void (*leave)(struct rows *rows, int seat);

	/* Begins a step, which must last until it ends. */
	void (*begin)(struct rows *rows, const struct step *step);

	/* Writes the step's new rows of a layer, which the caller put here:
	 * [session][new_rows][row_numbers]. */
	void (*write)(struct rows *rows, int layer);
	uint16_t *new_numbers;

	/* Makes the rows of one group's selection readable, in all its layers: positions
	 * [session][new_rows][top_k], -1 where fewer rows are selected. */
	void (*resolve)(struct rows *rows, int group, const int32_t *selection);

	/* Reads the rows of a layer that its group's last selection names, the new ones among them:
	 * [session][new_rows][top_k][row_numbers], until the next read. */
	void (*read)(struct rows *rows, int layer);
	const uint16_t *selected;

	/* The new rows are written: they are history now. */
	void (*end)(struct rows *rows);
};

#endif
