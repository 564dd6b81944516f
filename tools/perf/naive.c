/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Other orders of a fetch beside the library's, each over the arena as a plain array. */
#include "families.h"
#include "lists.h"
#include "util.h"

#include <math.h>
#include <stdio.h>

#define MOST_SESSIONS 128
#define BLOCKS 16

enum order { RECORDS, UNSORTED, BLOCK, APART, ORDERS };

static const struct {
	const char *name;
	unsigned option;
} orders[ORDERS] = {
	[RECORDS] = { "library's order", 0 },
	[UNSORTED] = { "unsorted", NAIVE_UNSORTED },
	[BLOCK] = { "block a session", NAIVE_BLOCK },
	[APART] = { "layers apart", NAIVE_LAYERS },
};

struct naive {
	struct run *run;
	struct lists lists;
	unsigned char *to;
	const struct shape *shape;
};

static void launch(const struct plain_rows *p, enum order order, cudaStream_t stream)
{
	if (order == BLOCK)
		CU(kernel_block_a_session(p, stream));
	else if (order == APART)
		CU(kernel_layers_apart(p, BLOCKS, stream));
	else
		CU(kernel_records(p, BLOCKS, stream));
}

static const uint32_t *draw(struct naive *n, const struct plain_rows *p, bool sorted)
{
	struct list_load load = { p->sessions, p->rows, p->rows, p->misses };
	uint32_t *list;
	size_t count;

	lists_reset(&n->lists);
	list = lists_next(&n->lists);
	count = lists_draw(&n->lists, &load, list);
	if (sorted)
		lists_sort(&n->lists, list, count);
	return lists_upload(&n->lists, count, n->run->stream);
}

static void sample(struct naive *n, struct plain_rows *p, enum order order, struct samples *samples)
{
	struct stopwatch watch;
	double us;

	p->list = draw(n, p, order != UNSORTED);
	stopwatch_open(&watch);
	stopwatch_start(&watch, n->run->stream);
	launch(p, order, n->run->stream);
	stopwatch_lap(&watch, n->run->stream);
	stopwatch_read(&watch, &us);
	stopwatch_close(&watch);
	samples_add(samples, us);
}

static void one(struct naive *n, enum order order, uint32_t sessions, double percent)
{
	struct options *o = &n->run->options;
	size_t row = (size_t)n->shape->group_layers * n->shape->row_bytes;
	size_t region = (size_t)sessions * o->rows * row, regions = n->run->arena.bytes / region;
	struct plain_rows p = { .to = n->to,
		                    .sessions = sessions,
		                    .rows = o->rows,
		                    .layers = n->shape->group_layers,
		                    .row_bytes = n->shape->row_bytes,
		                    .misses = (uint32_t)lround(percent / 100 * o->top_k) };
	struct samples samples = { 0 };
	char load[PART];
	struct cell cell;

	if (!regions || !p.misses)
		return;
	snprintf(load, sizeof(load), "%g %%", percent);
	cell = cell_named("naive", n->shape->name, sessions, 1, load, orders[order].name, "call");
	for (uint32_t i = 0; i < o->repeat + 2; i++) {
		p.from = n->run->arena.device + i % regions * region;
		sample(n, &p, order, &samples);
		if (i < 2)
			samples_clear(&samples);
	}
	cell.us = samples_spread(&samples);
	cell.misses = p.misses;
	cell.bytes = (double)sessions * p.misses * (double)row;
	cell.way = WAY_TO_DEVICE;
	report_add(&n->run->report, &cell);
	report_line(&n->run->report, &cell);
	samples_free(&samples);
}

static void all_orders(struct naive *n, uint32_t sessions, double percent)
{
	for (int i = 0; i < ORDERS; i++)
		if ((!orders[i].option || n->run->options.naive & orders[i].option) &&
		    (i != APART || n->shape->group_layers > 1))
			one(n, i, sessions, percent);
}

void measure_naive(struct run *run)
{
	static const uint32_t sessions[] = { 1, 32, MOST_SESSIONS };
	static const double percent[] = { 5, 100 };
	static const int layouts[] = { SHAPE_GLM, SHAPE_SINGLE };
	size_t entries = (size_t)MOST_SESSIONS * run->options.top_k;
	struct naive n = { .run = run };

	lists_open(&n.lists, entries, (size_t)MOST_SESSIONS * run->options.rows);
	n.to = new_on_device(entries * shapes[SHAPE_GLM].group_layers * shapes[SHAPE_GLM].row_bytes);
	report_head(&run->report, "Orders of a fetch, copies only, the tool's own kernels");
	for (int l = 0; l < 2; l++)
		for (int s = 0; s < 3; s++)
			for (int m = 0; m < 2; m++) {
				n.shape = &shapes[layouts[l]];
				all_orders(&n, sessions[s], percent[m]);
			}
	lists_close(&n.lists);
	CU(cudaFree(n.to));
}
