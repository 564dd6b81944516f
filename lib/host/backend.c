/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The host backend behind the backend interface. */
#include "../backend.h"

#include "device.h"
#include "kernels.h"
#include "range.h"

#include "../error.h"

#include <string.h>

/* What a context has of its device. */
struct device {
	dhs_host *host;
	int private; /* made for this context */
	dhs_allocator allocator;
	struct dhs_scratch scratch;
	size_t words, places, rows; /* sizes of the scratch arrays, never 0 */
};

static int make_private(const dhs_allocator *allocator, dhs_host **host)
{
	dhs_host_options options = DHS_INIT(dhs_host_options);

	options.allocator = allocator;
	return dhs_host_create(&options, host);
}

static int device_open(const dhs_context_options *options, const dhs_allocator *allocator,
                       void **device)
{
	struct device *d = dhs_memory_zeroed(allocator, DHS_MEMORY_CONTROL, sizeof(*d));
	int rc;

	if (!d)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the host device's record");
	d->allocator = *allocator;
	d->private = !options->host;
	d->host = options->host;
	rc = d->private ? make_private(allocator, &d->host)
	                : dhs_host_check("dhs_context_create: options", d->host);
	if (rc) {
		dhs_memory_free(allocator, DHS_MEMORY_CONTROL, d, sizeof(*d));
		return rc;
	}
	dhs_host_hold(d->host);
	*device = d;
	return DHS_OK;
}

static void device_close(void *device)
{
	struct device *d = device;
	dhs_allocator allocator = d->allocator;

	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, d->scratch.missing,
	                d->words * sizeof(*d->scratch.missing));
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, d->scratch.before,
	                d->words * sizeof(*d->scratch.before));
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, d->scratch.age,
	                d->places * sizeof(*d->scratch.age));
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, d->scratch.place,
	                d->places * sizeof(*d->scratch.place));
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, d->scratch.map,
	                d->rows * sizeof(*d->scratch.map));
	dhs_host_release(d->host);
	if (d->private)
		dhs_host_destroy(d->host);
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, d, sizeof(*d));
}

static void device_idle(void *device)
{
	dhs_host_idle(((struct device *)device)->host);
}

static void thread_begin(void *device)
{
	(void)device;
}

static int device_prepare(void *device, const struct dhs_world *world)
{
	struct device *d = device;
	struct dhs_scratch *s = &d->scratch;

	d->rows = world->geometry.max_rows;
	d->words = (d->rows + 63) / 64;
	d->places = world->geometry.most_hot_rows ? world->geometry.most_hot_rows : 1;
	s->missing =
		dhs_memory_zeroed(&d->allocator, DHS_MEMORY_CONTROL, d->words * sizeof(*s->missing));
	s->before = dhs_memory_new(&d->allocator, DHS_MEMORY_CONTROL, d->words * sizeof(*s->before));
	s->age = dhs_memory_new(&d->allocator, DHS_MEMORY_CONTROL, d->places * sizeof(*s->age));
	s->place = dhs_memory_new(&d->allocator, DHS_MEMORY_CONTROL, d->places * sizeof(*s->place));
	s->map = dhs_memory_zeroed(&d->allocator, DHS_MEMORY_CONTROL, d->rows * sizeof(*s->map));
	if (!s->missing || !s->before || !s->age || !s->place || !s->map)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "max_rows: no memory for the planner's bitmap");
	return DHS_OK;
}

static void *memory_new(void *device, const dhs_allocator *allocator, uint32_t kind, size_t bytes,
                        int zeroed)
{
	(void)device;
	return zeroed ? dhs_memory_zeroed(allocator, kind, bytes)
	              : dhs_memory_new(allocator, kind, bytes);
}

static int memory_write(void *device, void *to, const void *from, size_t bytes)
{
	(void)device;
	memcpy(to, from, bytes);
	return DHS_OK;
}

static int memory_set(void *device, void *to, int value, size_t bytes)
{
	(void)device;
	memset(to, value, bytes);
	return DHS_OK;
}

static void *memory_address(void *device, void *memory)
{
	(void)device;
	return memory;
}

static void memory_free(void *device, const dhs_allocator *allocator, uint32_t kind, void *memory,
                        size_t bytes)
{
	(void)device;
	dhs_memory_free(allocator, kind, memory, bytes);
}

static int alias(const dhs_context_options *options)
{
	(void)options;
	return 1;
}

static int range_new(void *device, size_t bytes, void **range)
{
	(void)device;
	return dhs_host_range_new(bytes, range);
}

static void range_free(void *device, void *range, size_t bytes)
{
	(void)device;
	dhs_host_range_free(range, bytes);
}

static int range_map(void *device, void *const *at, uint32_t count, size_t bytes, size_t zeroed)
{
	(void)device;
	(void)zeroed;
	return dhs_host_range_map(at, count, bytes);
}

static void range_unmap(void *device, void *const *at, uint32_t count, size_t bytes)
{
	(void)device;
	dhs_host_range_unmap(at, count, bytes);
}

static dhs_host *host_of(void *device)
{
	return ((struct device *)device)->host;
}

static int stream_check(void *device, dhs_stream stream, int *capturing)
{
	return dhs_host_stream_check(host_of(device), stream, capturing);
}

static int stream_new(void *device, dhs_stream *stream)
{
	return dhs_host_stream_create(host_of(device), stream);
}

static void stream_free(void *device, dhs_stream stream)
{
	(void)device;
	dhs_host_stream_destroy(stream);
}

static int stream_wait(void *device, dhs_stream stream, dhs_event event)
{
	return dhs_host_stream_wait(host_of(device), stream, event);
}

static int event_new(void *device, dhs_event *event)
{
	return dhs_host_event_new(host_of(device), event);
}

static void event_free(void *device, dhs_event event)
{
	dhs_host_event_free(host_of(device), event);
}

static int event_record(void *device, dhs_event event, dhs_stream stream)
{
	return dhs_host_event_record(host_of(device), event, stream);
}

static int event_query(void *device, dhs_event event, int *passed)
{
	return dhs_host_event_query(host_of(device), event, passed);
}

static int event_sync(void *device, dhs_event event)
{
	return dhs_host_event_sync(host_of(device), event);
}

/* ---- kernels: their arguments travel in the queue ---- */

struct launch {
	const struct dhs_world *world;
	struct dhs_batch_state *batch;
	struct dhs_scratch *scratch;
	struct dhs_upload upload;
	dhs_selection selection;
	const int32_t *kept;
	int32_t *out;
	uint32_t sessions, rows, group, first, layers, in_flight;
};

static void run_apply(void *copy)
{
	const struct launch *l = copy;

	dhs_host_apply(l->world, l->batch, &l->upload);
}

static void run_slots(void *copy)
{
	const struct launch *l = copy;

	dhs_host_slots(l->world, l->batch, l->sessions, l->rows, l->out);
}

static void run_plan(void *copy)
{
	const struct launch *l = copy;

	dhs_host_plan(l->world, l->batch, l->scratch, l->group, &l->selection);
}

static void run_fetch(void *copy)
{
	const struct launch *l = copy;

	dhs_host_fetch(l->world, l->batch, l->group, l->first, l->layers);
}

static void run_commit(void *copy)
{
	const struct launch *l = copy;

	dhs_host_commit(l->world, l->batch, l->sessions, l->kept);
}

static int launch(void *device, dhs_stream stream, void (*fn)(void *), const struct launch *l)
{
	dhs_host_enqueue(host_of(device), stream, fn, l, sizeof(*l));
	return DHS_OK;
}

static int enqueue_apply(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                         const struct dhs_upload *upload, dhs_stream stream)
{
	struct launch l = { .world = world, .batch = batch, .upload = *upload };

	return launch(device, stream, run_apply, &l);
}

static int enqueue_slots(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                         uint32_t sessions, uint32_t rows, int32_t *out, dhs_stream stream)
{
	struct launch l = {
		.world = world, .batch = batch, .sessions = sessions, .rows = rows, .out = out
	};

	return launch(device, stream, run_slots, &l);
}

static int enqueue_plan(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                        uint32_t group, const dhs_selection *selection, dhs_stream stream)
{
	struct launch l = { .world = world,
		                .batch = batch,
		                .scratch = &((struct device *)device)->scratch,
		                .group = group,
		                .selection = *selection };

	return launch(device, stream, run_plan, &l);
}

static int enqueue_fetch(void *device, const struct dhs_world *world, struct dhs_batch_state *batch,
                         uint32_t group, uint32_t first, uint32_t layers, dhs_stream stream)
{
	struct launch l = {
		.world = world, .batch = batch, .group = group, .first = first, .layers = layers
	};

	return launch(device, stream, run_fetch, &l);
}

static int enqueue_commit(void *device, const struct dhs_world *world,
                          struct dhs_batch_state *batch, uint32_t sessions, const int32_t *kept,
                          dhs_stream stream)
{
	struct launch l = { .world = world, .batch = batch, .sessions = sessions, .kept = kept };

	return launch(device, stream, run_commit, &l);
}

static void run_report(void *copy)
{
	const struct launch *l = copy;

	dhs_host_report(l->world, l->batch, l->in_flight);
}

static int enqueue_report(void *device, const struct dhs_world *world,
                          struct dhs_batch_state *batch, uint32_t in_flight, dhs_stream stream)
{
	struct launch l = { .world = world, .batch = batch, .in_flight = in_flight };

	return launch(device, stream, run_report, &l);
}

/* A copy's list travels piece by piece, so that its size has no bound here. */
#define COPIES 32

struct copies {
	const struct dhs_world *world;
	enum dhs_copy_way way;
	uint32_t count;
	struct dhs_copy list[COPIES];
};

static void run_copy(void *copy)
{
	const struct copies *c = copy;

	dhs_host_copy(c->world, c->way, c->list, c->count);
}

static int enqueue_copy(void *device, const struct dhs_world *world, enum dhs_copy_way way,
                        const struct dhs_copy *list, uint32_t count, dhs_stream stream)
{
	for (uint32_t at = 0; at < count; at += COPIES) {
		struct copies c = { .world = world, .way = way };

		for (; c.count < COPIES && at + c.count < count; c.count++)
			c.list[c.count] = list[at + c.count];
		dhs_host_enqueue(host_of(device), stream, run_copy, &c, sizeof(c));
	}
	return DHS_OK;
}

/* Its pages, as a copy's list. */
struct warm {
	const struct dhs_world *world;
	uint32_t index;
	int32_t limit;
	uint32_t first, pages;
	int32_t page[COPIES];
};

static void run_warm(void *copy)
{
	const struct warm *w = copy;

	dhs_host_warm(w->world, w->index, w->limit, w->first, w->page, w->pages);
}

static int enqueue_warm(void *device, const struct dhs_world *world, const struct dhs_warm *warm,
                        dhs_stream stream)
{
	for (uint32_t at = 0; at < warm->pages; at += COPIES) {
		struct warm w = { .world = world,
			              .index = (uint32_t)warm->index,
			              .limit = warm->limit,
			              .first = at * world->geometry.page_rows };

		for (; w.pages < COPIES && at + w.pages < warm->pages; w.pages++)
			w.page[w.pages] = warm->page[at + w.pages];
		dhs_host_enqueue(host_of(device), stream, run_warm, &w, sizeof(w));
	}
	return DHS_OK;
}

const struct dhs_backend_ops dhs_backend_host = {
	.open = device_open,
	.close = device_close,
	.idle = device_idle,
	.thread_begin = thread_begin,
	.prepare = device_prepare,
	.memory_new = memory_new,
	.memory_write = memory_write,
	.memory_set = memory_set,
	.memory_address = memory_address,
	.memory_free = memory_free,
	.alias = alias,
	.range_new = range_new,
	.range_free = range_free,
	.range_map = range_map,
	.range_unmap = range_unmap,
	.stream_check = stream_check,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.stream_wait = stream_wait,
	.event_new = event_new,
	.event_free = event_free,
	.event_record = event_record,
	.event_query = event_query,
	.event_sync = event_sync,
	.apply = enqueue_apply,
	.slots = enqueue_slots,
	.plan = enqueue_plan,
	.fetch = enqueue_fetch,
	.commit = enqueue_commit,
	.report = enqueue_report,
	.copy = enqueue_copy,
	.warm = enqueue_warm,
};
