/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What the decoder knows of the store of its KV rows: it hands over the new rows of a layer and is
 * handed the selected ones.  A row is row_numbers bfloat16 numbers.  kv.c keeps the rows in the
 * library; plain.c keeps them in plain arrays, to compare with.
 */
#ifndef DECODE_ROWS_H
#define DECODE_ROWS_H

#include <stdint.h>

struct rows {
	/* Begins a step in which each session adds `new_rows` rows and has as many queries. */
	void (*begin)(struct rows *rows, int new_rows);

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
