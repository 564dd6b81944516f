/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "bench.h"

#include "timing.h"
#include "util.h"

#include <stdio.h>
#include <stdlib.h>

#define PAGE_ROWS 64
#define MOST_LAYERS 4096
/* Rows of one prefill are so many bytes at most: what the pool has spare for it. */
#define CHUNK_BYTES (768u << 20)
/* Each so-manieth entry is checked. */
#define CHECK_EACH 61

const struct shape shapes[SHAPES] = {
	[SHAPE_GLM] = { "glm", 4, 656, 1, 1, { { .bytes = 656 } } },
	[SHAPE_SINGLE] = { "single", 1, 656, 1, 1, { { .bytes = 656 } } },
	[SHAPE_V4] = { "v4",
	               1,
	               584,
	               2,
	               4,
	               { { .bytes = 576, .row_stride = 576, .page_stride = 37440 },
	                 { .bytes = 8, .offset = 36864, .row_stride = 8, .page_stride = 37440 } } },
	[SHAPE_MHA] = { "mha", 1, 1024, 2, 1, { { .bytes = 512 }, { .bytes = 512 } } },
};

const struct shape shape_query_test = { "576", 1, 576, 1, 1, { { .bytes = 576 } } };

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
	return (a + b - 1) / b;
}

static uint32_t layers_of(const struct bench *b)
{
	return b->o.groups * b->o.shape->group_layers;
}

size_t bench_group_bytes(const struct bench *b)
{
	return (size_t)b->o.shape->group_layers * b->o.shape->row_bytes;
}

static uint32_t chunk_rows(const struct bench *b)
{
	size_t row = (size_t)layers_of(b) * b->o.shape->row_bytes;
	uint32_t rows = (uint32_t)(CHUNK_BYTES / row) / PAGE_ROWS * PAGE_ROWS;

	if (rows < PAGE_ROWS)
		rows = PAGE_ROWS;
	return rows < b->o.rows ? rows : b->o.rows;
}

static uint32_t session_rows(const struct bench *b)
{
	return b->o.rows + b->o.grow;
}

/* ---- options of context and batch ---- */

/* A layout's groups refer to memory of the caller. */
struct description {
	uint32_t group_layers[MOST_LAYERS];
	dhs_layout layout;
	dhs_allocator allocator;
	dhs_context_options context;
	dhs_batch_options batch;
};

static void describe(const struct bench *b, const struct options *options, struct description *d)
{
	const struct shape *s = b->o.shape;

	d->layout = (dhs_layout)DHS_INIT(dhs_layout);
	for (uint32_t i = 0; i < b->o.groups; i++)
		d->group_layers[i] = s->group_layers;
	d->layout.layers = layers_of(b);
	d->layout.groups = b->o.groups;
	d->layout.group_layers = d->group_layers;
	d->layout.segments = s->segments;
	d->layout.segment_size = sizeof(dhs_segment);
	d->layout.segment = s->segment;
	d->layout.page_rows = PAGE_ROWS;
	d->layout.tokens_per_row = s->tokens_per_row;
	d->allocator = arena_allocator(b->arena);
	d->context = (dhs_context_options)DHS_INIT(dhs_context_options);
	d->context.flags = DHS_CONTEXT_DEVICE;
	d->context.device = options->device;
	d->context.backend = DHS_BACKEND_CUDA;
	d->context.policy = b->o.policy;
	d->context.backup = b->o.backup;
	d->context.max_sessions = b->o.sessions;
	d->context.max_rows = session_rows(b);
	d->context.max_new_rows = b->o.max_new_rows;
	d->context.hot_rows = b->o.hot_rows;
	d->context.host_rows =
		(uint64_t)b->o.sessions * ceil_div(session_rows(b), PAGE_ROWS) * PAGE_ROWS;
	d->context.layout = &d->layout;
	d->context.allocator = &d->allocator;
	d->batch = (dhs_batch_options)DHS_INIT(dhs_batch_options);
	d->batch.max_queries = b->o.queries;
	d->batch.top_k = b->o.top_k;
	d->batch.staging_buffers = b->o.buffers;
}

static void size_pool(const struct bench *b, struct description *d, dhs_required *context)
{
	dhs_required batch = DHS_INIT(dhs_required);
	uint32_t history = b->o.resident ? ceil_div(session_rows(b), PAGE_ROWS) : 0;

	*context = (dhs_required)DHS_INIT(dhs_required);
	LIB(dhs_context_required(&d->context, context));
	LIB(dhs_batch_required(&d->context, &d->batch, &batch));
	d->context.device_pages = b->o.sessions * (context->session_pages + history) +
	                          batch.staging_pages + ceil_div(chunk_rows(b), PAGE_ROWS) + 2;
	LIB(dhs_context_required(&d->context, context));
	context->device_bytes += batch.device_bytes;
}

/* The arena has room for so many groups, page bounds of its pieces included. */
static uint32_t groups_that_fit(const struct bench *b)
{
	size_t session = (size_t)ceil_div(session_rows(b), PAGE_ROWS) * PAGE_ROWS;
	size_t group = session * b->o.sessions * bench_group_bytes(b), books;
	uint32_t most = MOST_LAYERS / b->o.shape->group_layers;
	size_t fit;

	/* Upload buffers and results, of which dhs_context_required tells the bytes. */
	books =
		b->o.sessions * (16 * session / PAGE_ROWS + 8 * (size_t)b->o.hot_rows / PAGE_ROWS + 256) +
		(1u << 20);
	if (books > b->arena->bytes)
		return 0;
	fit = (b->arena->bytes - books) / group;
	return fit < most ? (uint32_t)fit : most;
}

/* ---- filling it ---- */

static void place_table(struct bench *b)
{
	uint32_t layers = layers_of(b), segments = b->o.shape->segments;
	dhs_place *host = new_zeroed((size_t)layers * segments, sizeof(*host));

	for (uint32_t layer = 0; layer < layers; layer++)
		for (uint32_t s = 0; s < segments; s++) {
			dhs_place *place = &host[layer * segments + s];

			place->size = sizeof(*place);
			LIB(dhs_context_place(b->context, layer, s, place));
		}
	b->place = new_on_device((size_t)layers * segments * sizeof(*host));
	CU(cudaMemcpy(b->place, host, (size_t)layers * segments * sizeof(*host),
	              cudaMemcpyHostToDevice));
	free(host);
	b->shape = (struct rows_shape){ b->place, layers, segments };
}

static void prefill(struct bench *b, uint32_t session, int32_t *slots, int32_t *slots_dev)
{
	uint32_t chunk = chunk_rows(b);

	for (uint32_t at = 0; at < b->o.rows; at += chunk) {
		uint32_t rows = b->o.rows - at < chunk ? b->o.rows - at : chunk;

		LIB(dhs_session_extend(b->context, b->session[session], rows, b->stream, slots));
		CU(cudaMemcpyAsync(slots_dev, slots, rows * sizeof(*slots), cudaMemcpyHostToDevice,
		                   b->stream));
		CU(kernel_write(b->shape, slots_dev, session, at, rows, b->stream));
		LIB(dhs_session_commit(b->context, b->session[session], rows, b->stream));
	}
}

static void populate(struct bench *b)
{
	int32_t *slots = new_zeroed(b->o.rows, sizeof(*slots));
	int32_t *slots_dev = new_on_device(b->o.rows * sizeof(*slots));
	dhs_session_options options = DHS_INIT(dhs_session_options);
	double from = now_us();

	options.reserve_rows = session_rows(b);
	for (uint32_t i = 0; i < b->o.sessions; i++) {
		LIB(dhs_session_create(b->context, &options, &b->session[i]));
		prefill(b, i, slots, slots_dev);
	}
	CU(cudaStreamSynchronize(b->stream));
	b->populate_seconds = (now_us() - from) / 1e6;
	CU(cudaFree(slots_dev));
	free(slots);
}

static void tables(struct bench *b)
{
	size_t entries = (size_t)b->o.selections * b->o.sessions * b->o.queries * b->o.top_k;

	b->session = new_zeroed(b->o.sessions, sizeof(*b->session));
	b->entry = new_zeroed(b->o.sessions, sizeof(*b->entry));
	b->kept = new_zeroed(b->o.sessions, sizeof(*b->kept));
	b->drawn = new_zeroed(b->o.groups, sizeof(*b->drawn));
	b->calls = new_zeroed(b->o.groups, sizeof(*b->calls));
	b->last = new_zeroed(b->o.groups, sizeof(*b->last));
	for (uint32_t g = 0; g < b->o.groups; g++)
		b->last[g] = g;
	b->selection = new_on_device(entries * sizeof(*b->selection));
	b->slots = new_on_device(entries * sizeof(*b->slots));
	b->new_slots = new_on_device((size_t)b->o.sessions * b->o.max_new_rows * sizeof(*b->new_slots));
	b->wrong = new_on_device(sizeof(*b->wrong));
	/* Neither the tail nor the page that its first row lies in. */
	b->draw_rows = (b->o.rows / PAGE_ROWS - 2) * PAGE_ROWS;
}

/* Some memory is left for what a family takes beside. */
static bool device_has_room(uint64_t bytes)
{
	size_t have, all;

	CU(cudaMemGetInfo(&have, &all));
	return bytes + GIB < have;
}

bool bench_open(struct bench *b, const struct bench_options *o, struct arena *arena,
                const struct options *options, cudaStream_t stream)
{
	struct description *d = new_zeroed(1, sizeof(*d));
	dhs_required required;
	uint32_t fit;

	*b = (struct bench){ .o = *o, .arena = arena, .stream = stream };
	b->o.hot_rows = o->hot_rows ? o->hot_rows : options->hot_rows;
	b->o.top_k = o->top_k ? o->top_k : options->top_k;
	b->o.max_new_rows = o->max_new_rows ? o->max_new_rows : 1;
	fit = groups_that_fit(b);
	b->o.groups = o->groups && o->groups < fit ? o->groups : fit;
	b->o.selections = o->selections > b->o.groups ? o->selections : b->o.groups;
	if (!fit) {
		say("%s, %u sessions: one group does not fit in %.1f GiB of host memory: left out",
		    o->shape->name, o->sessions, (double)arena->bytes / (double)GIB);
		free(d);
		return false;
	}
	describe(b, options, d);
	size_pool(b, d, &required);
	if (!device_has_room(required.device_bytes)) {
		say("%s, %u sessions, %u groups: %.1f GiB of device memory are not there: left out",
		    o->shape->name, o->sessions, b->o.groups, (double)required.device_bytes / (double)GIB);
		free(d);
		return false;
	}
	LIB(dhs_context_create(&d->context, &b->context));
	LIB(dhs_batch_create(b->context, &d->batch, &b->batch));
	free(d);
	tables(b);
	place_table(b);
	populate(b);
	say("%s, %u sessions, %u groups of %u layers: %.1f GiB of host records, filled in %.1f s",
	    o->shape->name, o->sessions, b->o.groups, o->shape->group_layers,
	    (double)required.tier_bytes / (double)GIB, b->populate_seconds);
	return true;
}

void bench_close(struct bench *b)
{
	CU(cudaStreamSynchronize(b->stream));
	dhs_context_destroy(b->context);
	CU(cudaFree(b->place));
	CU(cudaFree(b->selection));
	CU(cudaFree(b->slots));
	CU(cudaFree(b->new_slots));
	CU(cudaFree(b->wrong));
	free(b->session);
	free(b->entry);
	free(b->kept);
	free(b->drawn);
	free(b->calls);
	free(b->last);
	*b = (struct bench){ 0 };
}

/* ---- loading it ---- */

uint32_t bench_group(const struct bench *b, uint32_t i)
{
	return i % b->o.groups;
}

/* Of selection i, its rows or its slots. */
static int32_t *part_of(const struct bench *b, int32_t *all, uint32_t i)
{
	return all + (size_t)i * b->o.sessions * b->o.queries * b->o.top_k;
}

dhs_selection bench_selection(const struct bench *b, uint32_t i, uint32_t queries)
{
	dhs_selection s = DHS_INIT(dhs_selection);

	s.sessions = b->o.sessions;
	s.queries = queries;
	s.top_k = b->o.top_k;
	s.rows = part_of(b, b->selection, i);
	s.slots = part_of(b, b->slots, i);
	return s;
}

void bench_draw(struct bench *b, uint32_t i, uint32_t queries, uint32_t fresh, uint32_t shared)
{
	uint32_t group = bench_group(b, i);
	struct drawing d = { .sessions = b->o.sessions,
		                 .queries = queries,
		                 .top_k = b->o.top_k,
		                 .rows = b->draw_rows,
		                 .fresh = fresh,
		                 .shared = shared,
		                 .first = b->drawn[group],
		                 .group = group,
		                 .call = b->calls[group]++ };

	CU(kernel_draw(&d, part_of(b, b->selection, b->last[group]), part_of(b, b->selection, i),
	               b->stream));
	b->drawn[group] = (b->drawn[group] + shared + queries * (fresh - shared)) % b->draw_rows;
	b->last[group] = i;
}

void bench_check(struct bench *b, uint32_t i, uint32_t queries)
{
	uint32_t layers = b->o.shape->group_layers;

	CU(kernel_check(b->shape, bench_group(b, i) * layers, layers, part_of(b, b->selection, i),
	                part_of(b, b->slots, i), b->o.sessions, queries * b->o.top_k, CHECK_EACH,
	                b->wrong, b->stream));
}

void bench_verify(struct bench *b)
{
	unsigned long long wrong;

	CU(cudaStreamSynchronize(b->stream));
	CU(cudaMemcpy(&wrong, b->wrong, sizeof(wrong), cudaMemcpyDeviceToHost));
	if (wrong)
		die(STATUS_FAILED,
		    "%s, %u sessions: slots do not hold the selected rows: %llu words are wrong",
		    b->o.shape->name, b->o.sessions, wrong);
}

dhs_step bench_begin(struct bench *b, uint32_t new_rows, uint32_t queries)
{
	dhs_step step;

	for (uint32_t i = 0; i < b->o.sessions; i++)
		b->entry[i] =
			(dhs_step_entry){ .session = b->session[i], .new_rows = new_rows, .queries = queries };
	LIB(dhs_step_begin(b->batch, b->entry, b->o.sessions, sizeof(*b->entry), b->stream, &step));
	return step;
}

void bench_end(struct bench *b, dhs_step step)
{
	for (uint32_t i = 0; i < b->o.sessions; i++)
		b->kept[i] = 0;
	LIB(dhs_step_end(b->context, step, b->kept, b->o.sessions));
}

dhs_stats bench_stats(struct bench *b)
{
	dhs_stats s = DHS_INIT(dhs_stats);

	LIB(dhs_context_wait(b->context));
	LIB(dhs_context_stats(b->context, &s));
	return s;
}
