/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows at random by the part of host memory that a call touches. */
#include "families.h"
#include "util.h"

#include <stdio.h>

#define ROWS 131072
#define BLOCKS 16

static void one(struct run *run, uint32_t row_bytes, double gib, unsigned char *to)
{
	char load[PART], layout[PART];
	struct samples samples = { 0 };
	struct stopwatch watch;
	struct cell cell;
	double us;

	snprintf(load, sizeof(load), "%g GiB", gib);
	snprintf(layout, sizeof(layout), "%u B", row_bytes);
	cell = cell_named("knee", layout, 0, 0, load, "random rows", "call");
	stopwatch_open(&watch);
	for (uint32_t i = 0; i < run->options.repeat + 2; i++) {
		stopwatch_start(&watch, run->stream);
		CU(kernel_random_rows(run->arena.device, (uint64_t)(gib * (double)GIB), to, row_bytes, ROWS,
		                      BLOCKS, i + 1, run->stream));
		stopwatch_lap(&watch, run->stream);
		stopwatch_read(&watch, &us);
		if (i >= 2)
			samples_add(&samples, us);
	}
	cell.us = samples_spread(&samples);
	cell.bytes = (double)ROWS * row_bytes;
	cell.way = WAY_TO_DEVICE;
	report_add(&run->report, &cell);
	report_line(&run->report, &cell);
	stopwatch_close(&watch);
	samples_free(&samples);
}

void measure_knee(struct run *run)
{
	static const double gib[] = { 1, 2, 4, 8, 16, 32, 60 };
	static const uint32_t rows[] = { 656, 4 * 656 };
	unsigned char *to = new_on_device((size_t)ROWS * 4 * 656);

	report_head(&run->report, "Random rows by the range that a call touches (16 blocks)");
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		for (size_t i = 0; i < sizeof(gib) / sizeof(gib[0]); i++)
			if (gib[i] * (double)GIB <= (double)run->arena.bytes)
				one(run, rows[r], gib[i], to);
	CU(cudaFree(to));
}
