/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What could beat address translation where a layer has a selection of its own: records of
 * several layers, rows that miss together placed together, other orders of the list.  By the
 * tool's own copies over the arena, with lists that are new at each call.
 */
#include "families.h"
#include "lists.h"
#include "model.h"
#include "util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROW_BYTES 656
#define BLOCKS 16
#define MOST_LAYERS 4
#define MOST_SESSIONS 128
#define PAGE_ROWS 64

static const uint32_t all_sessions[] = { 16, 32, 128 };
static const double all_percent[] = { 5, 20, 100 };

enum { SESSIONS = 3, PERCENT = 3 };

struct trial {
	struct run *run;
	struct lists lists;
	struct model model;
	unsigned char *to;
	uint32_t *page;      /* where pages lie that are scattered, [MOST_SESSIONS * pages] */
	uint32_t rows;       /* of a session, whole pages */
	uint32_t sessions;   /* of this trial */
	uint32_t misses;     /* of a session */
	uint32_t sample;     /* calls of a variant so far */
	uint32_t all_layers; /* whose work a trial is */
};

/* One way to do the work of a trial: makes its lists, and tells which copies to launch. */
struct variant {
	char work[PART];
	void (*prepare)(struct trial *t, struct variant *v);
	uint32_t overlap; /* percent of the other layers' misses with the first's */
	uint32_t times;   /* rows that misses come from, over the misses; 0: all */
	bool sorted, one_front;
	uint32_t blocks; /* 0: BLOCKS */
	struct gather gather[MOST_LAYERS];
	int gathers;
	struct samples samples;
	double moved; /* bytes of all samples */
};

/* ---- copies and their times ---- */

static size_t region_bytes(const struct trial *t, uint32_t layers)
{
	return (size_t)t->sessions * t->rows * layers * ROW_BYTES;
}

/* Pieces of the arena take turns, as layers do, in no order: none of the variants would
 * always see the same. */
static const unsigned char *region(const struct trial *t, uint32_t layers, uint32_t layer)
{
	size_t bytes = region_bytes(t, layers), regions = t->run->arena.bytes / bytes;

	return t->run->arena.device + ((t->sample * 0x9e3779b1u >> 8) + layer) % regions * bytes;
}

static void launch(struct trial *t, struct variant *v)
{
	struct stopwatch watch;
	double us;

	stopwatch_open(&watch);
	stopwatch_start(&watch, t->run->stream);
	for (int i = 0; i < v->gathers; i++) {
		CU(kernel_gather(&v->gather[i], v->blocks ? v->blocks : BLOCKS, t->run->stream));
		v->moved += (double)v->gather[i].count * v->gather[i].parts * ROW_BYTES;
	}
	stopwatch_lap(&watch, t->run->stream);
	stopwatch_read(&watch, &us);
	stopwatch_close(&watch);
	samples_add(&v->samples, us);
}

static void report(struct trial *t, const struct variant *v, const char *layout, const char *load,
                   double present, double useful)
{
	struct report *r = &t->run->report;
	struct cell c = cell_named("translations", layout, t->sessions, 1, load, v->work, "call");

	c.us = samples_spread(&v->samples);
	c.bytes = useful;
	c.moved = v->moved / (double)v->samples.count;
	c.of_present = c.us.median / present;
	c.misses = useful / ROW_BYTES / t->all_layers / t->sessions;
	c.way = WAY_TO_DEVICE;
	report_add(r, &c);
	report_text(r, "%-10s %8u %-7s %-22s %9.1f %9.1f %9.1f %7.1f %5.2f %8.2f %8.2f %6.2f\n", layout,
	            t->sessions, load, v->work, c.us.median, c.us.low, c.us.high, cell_rate(&c),
	            cell_share(r, &c), useful / 1e6, c.moved / 1e6, c.of_present);
}

static void head(struct run *run, const char *what)
{
	report_title(&run->report, "%s", what);
	report_text(&run->report, "%-10s %8s %-7s %-22s %9s %9s %9s %7s %5s %8s %8s %6s\n", "layout",
	            "sessions", "misses", "way", "us", "p10", "p90", "GB/s", "copy", "MB", "moved",
	            "time");
}

/* The first variant is the present way; all take turns. */
static void measure(struct trial *t, struct variant *v, int count, const char *layout,
                    const char *load)
{
	double useful, present;

	for (uint32_t i = 0; i < t->run->options.repeat + 2; i++) {
		for (int j = 0; j < count; j++) {
			lists_reset(&t->lists);
			v[j].gathers = 0;
			v[j].prepare(t, &v[j]);
			launch(t, &v[j]);
			t->sample++;
		}
		for (int j = 0; i < 2 && j < count; j++) {
			samples_clear(&v[j].samples);
			v[j].moved = 0;
		}
	}
	useful = v[0].moved / (double)v[0].samples.count;
	present = samples_spread(&v[0].samples).median;
	for (int j = 0; j < count; j++) {
		report(t, &v[j], layout, load, present, useful);
		samples_free(&v[j].samples);
	}
}

/* ---- lists ---- */

/* `each` misses of every session, at the list's end. */
static size_t draw(struct trial *t, uint32_t each, uint32_t span, bool sorted)
{
	struct list_load load = { t->sessions, t->rows, span ? span : t->rows, each };
	uint32_t *list = lists_next(&t->lists);
	size_t count = lists_draw(&t->lists, &load, list);

	if (sorted)
		lists_sort(&t->lists, list, count);
	return count;
}

/* The last list drawn is copied from records of `layers` layers: so many of them, from
 * the `first` on, each to a part of the trial's room of its own. */
static void add(struct trial *t, struct variant *v, size_t count, const unsigned char *from,
                uint32_t layers, uint32_t first, uint32_t parts)
{
	size_t room = (size_t)t->sessions * t->misses * ROW_BYTES;

	v->gather[v->gathers++] = (struct gather){
		.from = from + (size_t)first * ROW_BYTES,
		.to = t->to + first * room,
		.list = lists_upload(&t->lists, count, t->run->stream),
		.count = (uint32_t)count,
		.stride = layers * ROW_BYTES,
		.parts = parts,
		.part_bytes = ROW_BYTES,
		.one_front = v->one_front,
	};
}

/* ---- records of several layers ---- */

static void apart(struct trial *t, struct variant *v)
{
	for (uint32_t l = 0; l < t->all_layers; l++) {
		size_t count = draw(t, t->misses, 0, true);

		add(t, v, count, region(t, 1, l), 1, 0, 1);
		v->gather[l].to = t->to + l * (size_t)t->sessions * t->misses * ROW_BYTES;
	}
}

static void together(struct trial *t, struct variant *v)
{
	const unsigned char *from = region(t, t->all_layers, 0);
	uint32_t rest = (uint32_t)lround((100 - v->overlap) / 100.0 * t->misses);

	add(t, v, draw(t, t->misses, 0, true), from, t->all_layers, 0, t->all_layers);
	for (uint32_t l = 1; rest && l < t->all_layers; l++)
		add(t, v, draw(t, rest, 0, true), from, t->all_layers, l, 1);
}

static void measure_together(struct trial *t, const char *load)
{
	static const uint32_t overlap[] = { 100, 90, 80, 70 };
	struct variant v[5] = { { .work = "one layer a record", .prepare = apart } };
	char layout[PART];

	snprintf(layout, sizeof(layout), "%u x %u B", t->all_layers, ROW_BYTES);
	for (int i = 0; i < 4; i++) {
		v[i + 1].prepare = together;
		v[i + 1].overlap = overlap[i];
		snprintf(v[i + 1].work, PART, "all, %u %% the same", overlap[i]);
	}
	measure(t, v, 5, layout, load);
}

/* ---- placement ---- */

static void compact(struct trial *t, struct variant *v)
{
	size_t count = draw(t, t->misses, v->times * t->misses, true);

	add(t, v, count, region(t, 1, 0), 1, 0, 1);
}

static void measure_compact(struct trial *t, const char *load)
{
	static const uint32_t times[] = { 1, 4, 16, 32, 64 };
	struct variant v[6] = { { .work = "out of all rows", .prepare = compact } };
	int count = 1;

	for (int i = 0; i < 5 && times[i] * t->misses < t->rows; i++, count++) {
		v[count].prepare = compact;
		v[count].times = times[i];
		snprintf(v[count].work, PART, "out of %u x misses", times[i]);
	}
	measure(t, v, count, "single", load);
}

/* The misses of a step of the model; `times` 1: rows that missed before lie in the order
 * of their first miss, behind the history. */
static void modelled(struct trial *t, struct variant *v)
{
	uint32_t *list = lists_next(&t->lists);
	size_t count = 0, most = (size_t)t->sessions * t->misses;

	for (uint32_t s = 0; s < t->sessions; s++) {
		uint32_t step = (t->sample / 2 + s / MODEL_SESSIONS) % MODEL_STEPS;
		const struct model_step *m = &t->model.step[s % MODEL_SESSIONS][step];

		for (uint32_t i = 0; i < m->count && count < most; i++) {
			const struct missed *one = &m->missed[i];
			bool moved = v->times && one->order >= 0;

			if (one->row < t->rows && one->order < (int32_t)t->rows)
				list[count++] =
					2 * s * t->rows + (moved ? t->rows + (uint32_t)one->order : one->row);
		}
	}
	lists_sort(&t->lists, list, count);
	add(t, v, count, region(t, 2, 0), 1, 0, 1);
}

static void measure_model(struct trial *t)
{
	struct variant v[2] = { { .work = "model, by position", .prepare = modelled },
		                    { .work = "model, by first miss", .prepare = modelled, .times = 1 } };
	char load[PART];

	t->misses = t->run->options.top_k;
	snprintf(load, sizeof(load), "%.1f %%", 100 * t->model.misses / t->run->options.top_k);
	measure(t, v, 2, "single", load);
}

/* ---- orders ---- */

static void ordered(struct trial *t, struct variant *v)
{
	size_t count = draw(t, t->misses, 0, v->sorted);

	add(t, v, count, region(t, 1, 0), 1, 0, 1);
}

/* Sessions' pages lie in no order: their rows stand in the list by position, or all of it
 * by address. */
static void scattered(struct trial *t, struct variant *v)
{
	uint32_t *list = lists_next(&t->lists);
	size_t count = draw(t, t->misses, 0, true);

	for (size_t i = 0; i < count; i++)
		list[i] = t->page[list[i] / PAGE_ROWS] * PAGE_ROWS + list[i] % PAGE_ROWS;
	if (v->sorted)
		lists_sort(&t->lists, list, count);
	add(t, v, count, region(t, 1, 0), 1, 0, 1);
}

static void measure_orders(struct trial *t, const char *load)
{
	struct variant v[] = {
		{ .work = "extents, by address", .prepare = ordered, .sorted = true },
		{ .work = "extents, one front", .prepare = ordered, .sorted = true, .one_front = true },
		{ .work = "extents, 8 blocks", .prepare = ordered, .sorted = true, .blocks = 8 },
		{ .work = "extents, 64 blocks", .prepare = ordered, .sorted = true, .blocks = 64 },
		{ .work = "extents, as selected", .prepare = ordered },
		{ .work = "scattered, by position", .prepare = scattered },
		{ .work = "scattered, by address", .prepare = scattered, .sorted = true },
		{ .work = "scattered, one front", .prepare = scattered, .sorted = true, .one_front = true },
	};

	lists_shuffle(&t->lists, t->page, t->sessions * t->rows / PAGE_ROWS);
	measure(t, v, sizeof(v) / sizeof(v[0]), "single", load);
}

/* ---- all of them ---- */

/* Calls fn for all sessions and misses that the arena has room for. */
static void each_load(struct trial *t, uint32_t layers,
                      void (*fn)(struct trial *t, const char *load))
{
	char load[PART];

	t->all_layers = layers;
	for (int s = 0; s < SESSIONS; s++)
		for (int m = 0; m < PERCENT; m++) {
			t->sessions = all_sessions[s];
			t->misses = (uint32_t)lround(all_percent[m] / 100 * t->run->options.top_k);
			if (!t->misses || region_bytes(t, layers) > t->run->arena.bytes)
				continue;
			snprintf(load, sizeof(load), "%g %%", all_percent[m]);
			fn(t, load);
		}
}

static void measure_models(struct trial *t)
{
	const struct options *o = &t->run->options;

	model_open(&t->model, t->rows, o->hot_rows, o->top_k);
	head(t->run, "Rows that missed before placed in the order of their first miss");
	report_text(&t->run->report,
	            "(a model of selections: %.0f misses of a session and step, %.0f of them first)\n",
	            t->model.misses, t->model.first);
	t->all_layers = 1;
	for (int s = 0; s < SESSIONS; s++) {
		t->sessions = all_sessions[s];
		if (2 * region_bytes(t, 1) <= t->run->arena.bytes)
			measure_model(t);
	}
	model_close(&t->model);
}

void measure_translations(struct run *run)
{
	struct trial t = { .run = run, .rows = run->options.rows / PAGE_ROWS * PAGE_ROWS };
	size_t entries = (size_t)MOST_SESSIONS * run->options.top_k;

	lists_open(&t.lists, MOST_LAYERS * entries, 2 * (size_t)MOST_SESSIONS * t.rows);
	t.to = new_on_device(MOST_LAYERS * entries * ROW_BYTES);
	t.page = new_zeroed((size_t)MOST_SESSIONS * t.rows / PAGE_ROWS, sizeof(*t.page));
	head(run, "Misses of several layers: records of one layer, or of all, of which a miss of the "
	          "first brings all\n(and the others fetch what else they miss, singly)");
	for (uint32_t layers = 2; layers <= MOST_LAYERS; layers++)
		each_load(&t, layers, measure_together);
	head(run, "Misses of a session out of fewer rows, side by side");
	each_load(&t, 1, measure_compact);
	measure_models(&t);
	head(run,
	     "Orders of the list, where a session's rows are one extent, or its pages lie anywhere");
	each_load(&t, 1, measure_orders);
	lists_close(&t.lists);
	CU(cudaFree(t.to));
	free(t.page);
}
