/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What the decoder knows of the store of its KV rows: where new rows are to be written and where
 * selected rows are to be read, as slots, and the address that a slot stands for.  kv.c keeps the
 * rows in the library; plain.c keeps them in plain arrays, to compare with.
 */
#ifndef DECODE_ROWS_H
#define DECODE_ROWS_H

#include <stdint.h>

struct rows {
	/* Begins a step in which each session adds `new_rows` rows and has as many queries.  Then
	 * new_slots[session][new_rows] tells where they go, in every layer. */
	void (*begin)(struct rows *rows, int new_rows);
	const int32_t *new_slots;

	/* Makes the rows of one group's selection readable: selection, and after the call slots,
	 * are [session][new_rows][top_k], -1 where fewer rows are selected. */
	void (*resolve)(struct rows *rows, int group, const int32_t *selection);
	const int32_t *slots;

	/* The new rows are written: they are history now. */
	void (*end)(struct rows *rows);

	/* How slots become addresses. */
	unsigned char **base; /* of each layer */
	uint64_t page_stride, row_stride;
	uint32_t page_rows;
};

/* The row of `slot` in a layer: bfloat16 numbers. */
static inline uint16_t *row_at(const struct rows *rows, int layer, int32_t slot)
{
	uint32_t page = (uint32_t)slot / rows->page_rows, at = (uint32_t)slot % rows->page_rows;

	return (uint16_t *)(rows->base[layer] + page * rows->page_stride + at * rows->row_stride);
}

#endif
