/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A context under load: sessions with a history of rows whose bytes tell where they
 * belong, in a pool that its groups fill; and selections that are new at each call.
 */
#ifndef PERF_BENCH_H
#define PERF_BENCH_H

#include "arena.h"
#include "kernels.h"
#include "options.h"

#include <dhisparse/dhisparse.h>

/* How rows lie: what --layout names. */
struct shape {
	const char *name;
	uint32_t group_layers, row_bytes, segments, tokens_per_row;
	dhs_segment segment[2];
};

enum { SHAPE_GLM, SHAPE_SINGLE, SHAPE_V4, SHAPE_MHA, SHAPES };

extern const struct shape shapes[SHAPES];
extern const struct shape shape_query_test; /* 576 bytes, a layer a group: the published test */

struct bench_options {
	const struct shape *shape;
	uint32_t sessions;
	uint32_t groups; /* 0: as many as fill the arena */
	uint32_t rows;   /* history of each session */
	uint32_t grow;   /* rows that steps may add */
	uint32_t hot_rows, top_k, queries, buffers;
	uint32_t selections; /* at least so many, a whole step's; 0: one a group */
	uint32_t policy, backup, max_new_rows;
	bool resident; /* the pool has room for all of the history */
};

struct bench {
	struct bench_options o;
	struct arena *arena;
	cudaStream_t stream;
	dhs_context *context;
	dhs_batch *batch;
	dhs_session *session;
	dhs_step_entry *entry;
	uint32_t *kept;
	dhs_place *place; /* device memory, [layers][segments] */
	struct rows_shape shape;
	int32_t *selection, *slots; /* device memory, [selections][sessions][queries][top_k] */
	uint32_t *drawn;            /* [groups] rows drawn of each session so far */
	uint32_t *calls;            /* [groups] */
	uint32_t *last;             /* [groups] the selection that was drawn last */
	int32_t *new_slots;         /* device memory, [sessions][max_new_rows] */
	unsigned long long *wrong;  /* device memory */
	uint32_t draw_rows;         /* rows that no tail holds */
	uint32_t turn;              /* which groups are next, see figures.c */
	double populate_seconds;
};

/* False, and nothing is open, where the arena or the device has no room for it: told
 * as progress. */
bool bench_open(struct bench *b, const struct bench_options *o, struct arena *arena,
                const struct options *options, cudaStream_t stream);
void bench_close(struct bench *b);

size_t bench_group_bytes(const struct bench *b); /* of one row in all layers of a group */
/* Selection i is of group i modulo the number of groups: a step with more calls than there
 * are groups plans a group again. */
uint32_t bench_group(const struct bench *b, uint32_t i);
dhs_selection bench_selection(const struct bench *b, uint32_t i, uint32_t queries);
/* Makes selection i the next one of its group; it stays in place until it is drawn again. */
void bench_draw(struct bench *b, uint32_t i, uint32_t queries, uint32_t fresh, uint32_t shared);
/* Whether a sample of the slots of selection i, the last of its group that was resolved,
 * holds what it should: enqueued. */
void bench_check(struct bench *b, uint32_t i, uint32_t queries);
/* Waits; ends the program if any checked slot was wrong. */
void bench_verify(struct bench *b);

dhs_step bench_begin(struct bench *b, uint32_t new_rows, uint32_t queries);
/* Ends a step of which nothing is kept. */
void bench_end(struct bench *b, dhs_step step);
dhs_stats bench_stats(struct bench *b);

#endif
