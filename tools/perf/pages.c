/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Taking pages back: with a backup that is still to be made, and without. */
#include "families.h"
#include "util.h"

#include <stdio.h>

#define SESSIONS 12
#define GROUPS 4

/* A session is evicted once; its samples are the sessions. */
struct evictions {
	struct samples call, until_free;
	double bytes; /* copied of a session */
};

static void evict_all(struct bench *b, struct evictions *e)
{
	dhs_stats before = bench_stats(b), after;

	for (uint32_t i = 0; i < b->o.sessions; i++) {
		double from, called;
		dhs_fence fence;

		CU(cudaStreamSynchronize(b->stream));
		from = now_us();
		LIB(dhs_session_evict(b->context, b->session[i], &fence));
		called = now_us();
		LIB(dhs_fence_sync(b->context, fence));
		samples_add(&e->until_free, now_us() - from);
		samples_add(&e->call, called - from);
	}
	after = bench_stats(b);
	e->bytes = (double)(after.backup_bytes - before.backup_bytes) / b->o.sessions;
	if (after.evicted_pages == before.evicted_pages)
		die(STATUS_FAILED, "evict took no pages back");
}

/* What was taken back must be found in host memory. */
static void read_back(struct bench *b)
{
	for (uint32_t g = 0; g < b->o.groups; g++) {
		dhs_step step = bench_begin(b, 0, 1);
		dhs_selection s = bench_selection(b, g, 1);

		bench_draw(b, g, 1, b->o.top_k, 0);
		LIB(dhs_step_resolve(b->batch, g, &s, b->stream));
		bench_check(b, g, 1);
		bench_end(b, step);
	}
	bench_verify(b);
}

static void add(struct run *run, const struct bench *b, const char *family, const char *work,
                const struct samples *samples, double bytes)
{
	char load[PART];
	struct cell cell;

	snprintf(load, sizeof(load), "%u rows", b->o.rows);
	cell = cell_named(family, b->o.shape->name, 1, 0, load, work, "clock");
	cell.us = samples_spread(samples);
	cell.bytes = bytes;
	cell.way = bytes > 0 ? WAY_TO_HOST : WAY_NONE;
	report_add(&run->report, &cell);
	report_line(&run->report, &cell);
}

static void one(struct run *run, const char *family, int layout, uint32_t backup)
{
	struct bench_options o = { .shape = &shapes[layout],
		                       .sessions = SESSIONS,
		                       .groups = GROUPS * 4 / shapes[layout].group_layers,
		                       .rows = run->options.rows,
		                       .queries = 1,
		                       .buffers = 1,
		                       .policy = DHS_POLICY_ADAPTIVE,
		                       .backup = backup,
		                       .resident = true };
	struct evictions e = { 0 };
	struct bench b;

	if (!bench_open(&b, &o, &run->arena, &run->options, run->stream))
		return;
	evict_all(&b, &e);
	read_back(&b);
	add(run, &b, family, "evict call", &e.call, 0);
	add(run, &b, family, "evict until free", &e.until_free, e.bytes);
	bench_close(&b);
	samples_free(&e.call);
	samples_free(&e.until_free);
}

void measure_backup(struct run *run)
{
	report_head(
		&run->report,
		"Backup on reclaim: a session's pages, 16 layers, are copied as they are taken back");
	one(run, "backup", SHAPE_GLM, DHS_BACKUP_RECLAIM);
	one(run, "backup", SHAPE_SINGLE, DHS_BACKUP_RECLAIM);
}

void measure_evict(struct run *run)
{
	report_head(&run->report, "Evict of a session whose pages are backed up");
	one(run, "evict", SHAPE_GLM, DHS_BACKUP_EAGER);
}
