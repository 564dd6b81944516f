/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "device.h"

#include "../error.h"
#include "../options.h"

#include <pthread.h>
#include <stdalign.h>
#include <string.h>

#define HOST_MAGIC 0x64687368u /* "dhsh" */

/* Numbers of recordings: `enqueued` counts those enqueued, `passed` is the last that ran. */
struct dhs_event {
	uint32_t refs; /* the owner's and one of each operation that names it */
	uint64_t enqueued, passed;
};

enum op_kind { OP_RUN, OP_RECORD, OP_WAIT };

struct op {
	struct op *next;
	size_t bytes; /* of arg */
	enum op_kind kind;
	void (*fn)(void *copy);
	dhs_event event;
	uint64_t number; /* of the recording */
	uint64_t order;  /* among all operations of the device, as they were enqueued */
	alignas(16) unsigned char arg[];
};

struct queue {
	struct op *first, *last;
};

/* What a dhs_stream of this backend points to. */
struct stream {
	dhs_host *host;
	struct stream *next; /* of the device's list */
	struct queue queue;
	uint64_t rank;           /* of those that can go on, the lowest does */
	dhs_host_graph *capture; /* NULL: operations run */
};

struct dhs_host_graph {
	dhs_host *host;
	struct queue queue; /* of OP_RUN only */
	int failed;         /* there was no memory for all of it */
};

struct dhs_host {
	uint32_t magic;
	dhs_allocator allocator;
	pthread_mutex_t lock;
	uint64_t seed, random; /* seed 0: run at once */
	uint32_t lull;         /* enqueues left during which nothing runs */
	uint64_t order;        /* operations enqueued */
	uint64_t reorderings;
	uint32_t contexts;
	struct stream *streams;  /* the default stream is the last */
	struct stream *fallback; /* the default stream */
};

/* ---- operations ---- */

static struct op *op_new(dhs_host *host, size_t bytes)
{
	struct op *op = NULL;

	if (bytes <= SIZE_MAX - sizeof(*op))
		op = dhs_memory_new(&host->allocator, DHS_MEMORY_CONTROL, sizeof(*op) + bytes);
	if (op)
		*op = (struct op){ .bytes = bytes };
	return op;
}

static struct op *run_op(dhs_host *host, void (*fn)(void *copy), const void *arg, size_t bytes)
{
	struct op *op = op_new(host, bytes);

	if (!op)
		return NULL;
	op->fn = fn;
	if (bytes)
		memcpy(op->arg, arg, bytes);
	return op;
}

static void event_unref(dhs_host *host, dhs_event event)
{
	if (event && --event->refs == 0)
		dhs_memory_free(&host->allocator, DHS_MEMORY_CONTROL, event, sizeof(*event));
}

static void op_free(dhs_host *host, struct op *op)
{
	event_unref(host, op->event);
	dhs_memory_free(&host->allocator, DHS_MEMORY_CONTROL, op, sizeof(*op) + op->bytes);
}

static void append(struct queue *queue, struct op *op)
{
	op->next = NULL;
	if (queue->first)
		queue->last->next = op;
	else
		queue->first = op;
	queue->last = op;
}

static void queue_free(dhs_host *host, struct queue *queue)
{
	struct op *next;

	for (struct op *op = queue->first; op; op = next) {
		next = op->next;
		op_free(host, op);
	}
	*queue = (struct queue){ NULL, NULL };
}

/* ---- the order in which things run ---- */

/* splitmix64: small, and the same everywhere. */
static uint64_t draw(dhs_host *host)
{
	uint64_t z = host->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static int ready(const struct stream *s)
{
	const struct op *op = s->queue.first;

	return op && (op->kind != OP_WAIT || op->event->passed >= op->number);
}

static void count_reordering(dhs_host *host, const struct stream *of)
{
	for (const struct stream *s = host->streams; s; s = s->next)
		if (s != of && s->queue.first && s->queue.first->order < of->queue.first->order) {
			host->reorderings++;
			return;
		}
}

static void run_first(dhs_host *host, struct stream *s)
{
	struct op *op = s->queue.first;

	if (op->kind == OP_RUN) {
		count_reordering(host, s);
		op->fn(op->arg);
	} else if (op->kind == OP_RECORD) {
		op->event->passed = op->number;
	}
	s->queue.first = op->next;
	op_free(host, op);
}

/* One choice in so many draws ranks anew. */
#define RANK_CHOICES 32

/* A stream that can go on; NULL if none can.  Ranks keep a stream behind the others
 * for long stretches, which drawing at each choice would not: most missing waits
 * show only then. */
static struct stream *choose(dhs_host *host)
{
	struct stream *chosen = NULL;

	for (struct stream *s = host->streams; s; s = s->next) {
		if (host->seed && draw(host) % RANK_CHOICES == 0)
			s->rank = draw(host);
		if (ready(s) && (!chosen || s->rank < chosen->rank))
			chosen = s;
	}
	return chosen;
}

static int run_one(dhs_host *host)
{
	struct stream *s = choose(host);

	if (!s)
		return 0;
	run_first(host, s);
	return 1;
}

/* What happens by itself while a caller goes on: with seed 0 everything, else
 * bursts and lulls, so that some work runs much later than other. */
static void progress(dhs_host *host)
{
	uint64_t burst;

	if (!host->seed) {
		while (run_one(host))
			;
		return;
	}
	if (host->lull) {
		host->lull--;
		return;
	}
	for (burst = draw(host) % 4; burst && run_one(host); burst--)
		;
	if (draw(host) % 32 == 0)
		host->lull = (uint32_t)(draw(host) % 64);
}

static int run_until_passed(dhs_host *host, dhs_event event, uint64_t number)
{
	while (event->passed < number)
		if (!run_one(host))
			return dhs_fail(DHS_ERR_DEVICE,
			                "the host device waits for work that was never enqueued");
	return DHS_OK;
}

static void run_until_empty(dhs_host *host, struct stream *s)
{
	while (s->queue.first && run_one(host))
		;
}

/* ---- enqueueing ---- */

static struct stream *stream_of(dhs_host *host, dhs_stream stream)
{
	return stream ? (struct stream *)(void *)stream : host->fallback;
}

static void enqueue(dhs_host *host, struct stream *s, struct op *op)
{
	op->order = host->order++;
	append(&s->queue, op);
	progress(host);
}

/* Without memory for an operation the stream is emptied and the work is done at once,
 * on the library's own argument, which its kernels leave alone: slower, in the same
 * order, and nothing fails. */
void dhs_host_enqueue(dhs_host *host, dhs_stream stream, void (*fn)(void *copy), const void *arg,
                      size_t bytes)
{
	struct stream *s = stream_of(host, stream);
	struct op *op;

	pthread_mutex_lock(&host->lock);
	op = run_op(host, fn, arg, bytes);
	if (s->capture) {
		if (op)
			append(&s->capture->queue, op);
		else
			s->capture->failed = 1;
	} else if (op) {
		enqueue(host, s, op);
	} else {
		run_until_empty(host, s);
		fn((void *)(uintptr_t)arg);
	}
	pthread_mutex_unlock(&host->lock);
}

static int event_new(dhs_host *host, dhs_event *event)
{
	dhs_event e = dhs_memory_zeroed(&host->allocator, DHS_MEMORY_CONTROL, sizeof(*e));

	if (!e)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for an event of the host device");
	e->refs = 1;
	*event = e;
	return DHS_OK;
}

static struct op *event_op(dhs_host *host, enum op_kind kind, dhs_event event)
{
	struct op *op = op_new(host, 0);

	if (!op)
		return NULL;
	op->kind = kind;
	op->event = event;
	op->number = event->enqueued;
	event->refs++;
	return op;
}

static void record(dhs_host *host, struct stream *s, dhs_event event)
{
	struct op *op;

	event->enqueued++;
	op = event_op(host, OP_RECORD, event);
	if (op) {
		enqueue(host, s, op);
	} else {
		run_until_empty(host, s);
		event->passed = event->enqueued;
	}
}

static int wait(dhs_host *host, struct stream *s, dhs_event event)
{
	struct op *op = event_op(host, OP_WAIT, event);

	if (op) {
		enqueue(host, s, op);
		return DHS_OK;
	}
	return run_until_passed(host, event, event->enqueued);
}

/* ---- the backend's view ---- */

void dhs_host_hold(dhs_host *host)
{
	pthread_mutex_lock(&host->lock);
	host->contexts++;
	pthread_mutex_unlock(&host->lock);
}

void dhs_host_release(dhs_host *host)
{
	pthread_mutex_lock(&host->lock);
	host->contexts--;
	pthread_mutex_unlock(&host->lock);
}

void dhs_host_idle(dhs_host *host)
{
	pthread_mutex_lock(&host->lock);
	while (run_one(host))
		;
	pthread_mutex_unlock(&host->lock);
}

int dhs_host_stream_check(dhs_host *host, dhs_stream stream, int *capturing)
{
	struct stream *wanted = stream_of(host, stream), *s;

	pthread_mutex_lock(&host->lock);
	for (s = host->streams; s && s != wanted; s = s->next)
		;
	*capturing = s && s->capture;
	pthread_mutex_unlock(&host->lock);
	return s ? DHS_OK : DHS_ERR_ARGUMENT;
}

int dhs_host_stream_wait(dhs_host *host, dhs_stream stream, dhs_event event)
{
	int rc;

	pthread_mutex_lock(&host->lock);
	rc = wait(host, stream_of(host, stream), event);
	pthread_mutex_unlock(&host->lock);
	return rc;
}

int dhs_host_event_new(dhs_host *host, dhs_event *event)
{
	int rc;

	pthread_mutex_lock(&host->lock);
	rc = event_new(host, event);
	pthread_mutex_unlock(&host->lock);
	return rc;
}

void dhs_host_event_free(dhs_host *host, dhs_event event)
{
	pthread_mutex_lock(&host->lock);
	event_unref(host, event);
	pthread_mutex_unlock(&host->lock);
}

int dhs_host_event_record(dhs_host *host, dhs_event event, dhs_stream stream)
{
	pthread_mutex_lock(&host->lock);
	record(host, stream_of(host, stream), event);
	pthread_mutex_unlock(&host->lock);
	return DHS_OK;
}

int dhs_host_event_query(dhs_host *host, dhs_event event, int *passed)
{
	pthread_mutex_lock(&host->lock);
	progress(host);
	*passed = event->passed >= event->enqueued;
	pthread_mutex_unlock(&host->lock);
	return DHS_OK;
}

int dhs_host_event_sync(dhs_host *host, dhs_event event)
{
	int rc;

	pthread_mutex_lock(&host->lock);
	rc = run_until_passed(host, event, event->enqueued);
	pthread_mutex_unlock(&host->lock);
	return rc;
}

/* ---- <dhisparse/host.h> ---- */

int dhs_host_check(const char *what, const dhs_host *host)
{
	if (!host || host->magic != HOST_MAGIC)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: host is %s", what, host ? "dead" : "NULL");
	return DHS_OK;
}

static struct stream *stream_new(dhs_host *host)
{
	struct stream *s = dhs_memory_zeroed(&host->allocator, DHS_MEMORY_CONTROL, sizeof(*s));

	if (!s)
		return NULL;
	s->host = host;
	s->rank = host->seed ? draw(host) : 0;
	s->next = host->streams;
	host->streams = s;
	return s;
}

static int read_options(const dhs_host_options *options, dhs_host_options *o,
                        dhs_allocator *allocator)
{
	int rc = DHS_OK;

	*allocator = dhs_default_allocator;
	if (options)
		rc = dhs_options_read("dhs_host_create", "options", options, o, sizeof(*o), sizeof(*o));
	if (rc == DHS_OK && o->flags)
		rc = dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_create: options->flags is %#x; no flag is known",
		              o->flags);
	if (rc == DHS_OK && o->allocator)
		rc = dhs_options_read("dhs_host_create", "options->allocator", o->allocator, allocator,
		                      sizeof(*allocator), sizeof(*allocator));
	if (rc == DHS_OK && (!allocator->alloc || !allocator->free ||
	                     allocator->flags & ~(uint32_t)DHS_ALLOCATOR_PINNED))
		rc = dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_create: options->allocator->%s",
		              !allocator->alloc  ? "alloc is NULL"
		              : !allocator->free ? "free is NULL"
		                                 : "flags has a flag that is not known");
	return rc;
}

int dhs_host_create(const dhs_host_options *options, dhs_host **host)
{
	dhs_host_options o = DHS_INIT(dhs_host_options);
	dhs_allocator allocator;
	dhs_host *h;
	int rc = read_options(options, &o, &allocator);

	if (rc)
		return rc;
	if (!host)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_create: host is NULL");
	h = dhs_memory_zeroed(&allocator, DHS_MEMORY_CONTROL, sizeof(*h));
	if (h) {
		h->allocator = allocator;
		h->seed = h->random = o.seed;
		h->fallback = stream_new(h);
	}
	if (!h || !h->fallback) {
		dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, h, sizeof(*h));
		return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_host_create: no memory for the device");
	}
	h->magic = HOST_MAGIC;
	pthread_mutex_init(&h->lock, NULL);
	*host = h;
	return DHS_OK;
}

static void stream_free(dhs_host *host, struct stream *s)
{
	if (s->capture) {
		queue_free(host, &s->capture->queue);
		dhs_memory_free(&host->allocator, DHS_MEMORY_CONTROL, s->capture, sizeof(*s->capture));
	}
	queue_free(host, &s->queue);
	dhs_memory_free(&host->allocator, DHS_MEMORY_CONTROL, s, sizeof(*s));
}

int dhs_host_destroy(dhs_host *host)
{
	dhs_allocator allocator;
	struct stream *next;
	int rc;

	if (!host)
		return DHS_OK;
	rc = dhs_host_check("dhs_host_destroy", host);
	if (rc)
		return rc;
	pthread_mutex_lock(&host->lock);
	if (host->contexts) {
		rc = dhs_fail(DHS_ERR_BUSY, "dhs_host_destroy: %u contexts are on the device",
		              host->contexts);
		pthread_mutex_unlock(&host->lock);
		return rc;
	}
	while (run_one(host))
		;
	for (struct stream *s = host->streams; s; s = next) {
		next = s->next;
		stream_free(host, s);
	}
	pthread_mutex_unlock(&host->lock);
	pthread_mutex_destroy(&host->lock);
	host->magic = 0;
	allocator = host->allocator;
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, host, sizeof(*host));
	return DHS_OK;
}

int dhs_host_reorderings(dhs_host *host, uint64_t *count)
{
	int rc = dhs_host_check("dhs_host_reorderings", host);

	if (rc)
		return rc;
	if (!count)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_reorderings: count is NULL");
	pthread_mutex_lock(&host->lock);
	*count = host->reorderings;
	pthread_mutex_unlock(&host->lock);
	return DHS_OK;
}

int dhs_host_stream_create(dhs_host *host, dhs_stream *stream)
{
	struct stream *s;
	int rc = dhs_host_check("dhs_host_stream_create", host);

	if (rc)
		return rc;
	if (!stream)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_stream_create: stream is NULL");
	pthread_mutex_lock(&host->lock);
	s = stream_new(host);
	pthread_mutex_unlock(&host->lock);
	if (!s)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_host_stream_create: no memory for the stream");
	*stream = (dhs_stream)(void *)s;
	return DHS_OK;
}

/* The calls that name a stream alone know its device from it, so the default
 * stream, which NULL names, is not for them. */
static int check_stream(const char *call, dhs_stream stream, struct stream **s)
{
	*s = (struct stream *)(void *)stream;
	if (!stream)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: stream is NULL", call);
	return dhs_host_check(call, (*s)->host);
}

int dhs_host_stream_destroy(dhs_stream stream)
{
	struct stream *s, **link;
	dhs_host *host;
	int rc;

	if (!stream)
		return DHS_OK;
	rc = check_stream("dhs_host_stream_destroy", stream, &s);
	if (rc)
		return rc;
	host = s->host;
	pthread_mutex_lock(&host->lock);
	run_until_empty(host, s);
	for (link = &host->streams; *link != s; link = &(*link)->next)
		;
	*link = s->next;
	s->host = NULL;
	stream_free(host, s);
	pthread_mutex_unlock(&host->lock);
	return DHS_OK;
}

int dhs_host_stream_sync(dhs_stream stream)
{
	struct stream *s;
	int rc = check_stream("dhs_host_stream_sync", stream, &s);

	if (rc)
		return rc;
	pthread_mutex_lock(&s->host->lock);
	if (s->capture)
		rc = dhs_fail(DHS_ERR_CAPTURING, "dhs_host_stream_sync: the stream is being captured");
	else
		run_until_empty(s->host, s);
	pthread_mutex_unlock(&s->host->lock);
	return rc;
}

int dhs_host_stream_join(dhs_stream stream, dhs_stream other)
{
	struct stream *s, *o;
	dhs_event event = NULL;
	int rc = check_stream("dhs_host_stream_join", stream, &s);

	if (rc == DHS_OK)
		rc = check_stream("dhs_host_stream_join: other", other, &o);
	if (rc)
		return rc;
	if (s->host != o->host)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "dhs_host_stream_join: stream and other are of two devices");
	pthread_mutex_lock(&s->host->lock);
	if (s->capture || o->capture)
		rc = dhs_fail(DHS_ERR_CAPTURING, "dhs_host_stream_join: a stream is being captured");
	if (rc == DHS_OK)
		rc = event_new(s->host, &event);
	if (rc == DHS_OK) {
		record(s->host, o, event);
		rc = wait(s->host, s, event);
		event_unref(s->host, event);
	}
	pthread_mutex_unlock(&s->host->lock);
	return rc;
}

int dhs_host_launch(dhs_stream stream, void (*fn)(void *copy), const void *arg, size_t bytes)
{
	struct stream *s;
	struct op *op;
	int rc = check_stream("dhs_host_launch", stream, &s);

	if (rc)
		return rc;
	if (!fn || (bytes && !arg))
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_launch: %s is NULL", fn ? "arg" : "fn");
	pthread_mutex_lock(&s->host->lock);
	op = run_op(s->host, fn, arg, bytes);
	if (op && s->capture)
		append(&s->capture->queue, op);
	else if (op)
		enqueue(s->host, s, op);
	pthread_mutex_unlock(&s->host->lock);
	return op ? DHS_OK
	          : dhs_fail(DHS_ERR_HOST_MEMORY,
	                     "dhs_host_launch: no memory for a copy of bytes = %zu bytes", bytes);
}

/* ---- graphs ---- */

int dhs_host_capture_begin(dhs_stream stream)
{
	struct stream *s;
	int rc = check_stream("dhs_host_capture_begin", stream, &s);

	if (rc)
		return rc;
	pthread_mutex_lock(&s->host->lock);
	if (s->capture) {
		rc = dhs_fail(DHS_ERR_ORDER, "dhs_host_capture_begin: the stream is being captured");
	} else {
		s->capture =
			dhs_memory_zeroed(&s->host->allocator, DHS_MEMORY_CONTROL, sizeof(*s->capture));
		if (s->capture)
			s->capture->host = s->host;
		else
			rc = dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_host_capture_begin: no memory for a graph");
	}
	pthread_mutex_unlock(&s->host->lock);
	return rc;
}

static void graph_free(dhs_host_graph *graph)
{
	dhs_host *host = graph->host;

	queue_free(host, &graph->queue);
	dhs_memory_free(&host->allocator, DHS_MEMORY_CONTROL, graph, sizeof(*graph));
}

int dhs_host_capture_end(dhs_stream stream, dhs_host_graph **graph)
{
	struct stream *s;
	int rc = check_stream("dhs_host_capture_end", stream, &s);

	if (rc)
		return rc;
	if (!graph)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_capture_end: graph is NULL");
	pthread_mutex_lock(&s->host->lock);
	if (!s->capture) {
		rc = dhs_fail(DHS_ERR_ORDER, "dhs_host_capture_end: the stream is not being captured");
	} else if (s->capture->failed) {
		rc = dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_host_capture_end: no memory for all of the graph");
		graph_free(s->capture);
		s->capture = NULL;
	} else {
		*graph = s->capture;
		s->capture = NULL;
	}
	pthread_mutex_unlock(&s->host->lock);
	return rc;
}

/* Every launch gets operations of its own: what a function does to its copy is not
 * seen by the next. */
static int copy_queue(dhs_host *host, const struct queue *from, struct queue *to)
{
	for (const struct op *op = from->first; op; op = op->next) {
		struct op *copy = run_op(host, op->fn, op->arg, op->bytes);

		if (!copy) {
			queue_free(host, to);
			return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_host_graph_launch: no memory for a copy");
		}
		append(to, copy);
	}
	return DHS_OK;
}

int dhs_host_graph_launch(dhs_host_graph *graph, dhs_stream stream)
{
	struct queue copies = { NULL, NULL };
	struct op *next;
	struct stream *s;
	int rc = check_stream("dhs_host_graph_launch", stream, &s);

	if (rc)
		return rc;
	if (!graph || graph->host != s->host)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_host_graph_launch: graph is %s",
		                graph ? "of another device" : "NULL");
	pthread_mutex_lock(&s->host->lock);
	if (s->capture)
		rc = dhs_fail(DHS_ERR_CAPTURING, "dhs_host_graph_launch: the stream is being captured");
	else
		rc = copy_queue(s->host, &graph->queue, &copies);
	for (struct op *op = copies.first; op; op = next) {
		next = op->next;
		enqueue(s->host, s, op);
	}
	pthread_mutex_unlock(&s->host->lock);
	return rc;
}

int dhs_host_graph_destroy(dhs_host_graph *graph)
{
	dhs_host *host;

	if (!graph)
		return DHS_OK;
	host = graph->host;
	pthread_mutex_lock(&host->lock);
	graph_free(graph);
	pthread_mutex_unlock(&host->lock);
	return DHS_OK;
}
