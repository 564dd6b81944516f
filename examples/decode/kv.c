/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The library in an engine.  A step of this engine is:
 *
 *   dhs_step_begin       what the step adds and asks, of each session
 *   dhs_step_slots       where its new rows are to be written
 *   of each layer group:
 *     dhs_step_resolve   the slots of the rows that the group's indexer selected
 *   dhs_step_end         the new rows are written, keep them
 *   dhs_context_advance  bring history back, where there is room
 *
 * and between steps sessions arrive (dhs_session_create) and leave (dhs_session_destroy).
 *
 * All of these but begin only enqueue work on the engine's stream, and slots, selections and rows
 * are in device memory.  What works on these in an engine are kernels on the same stream: here it
 * is device.h, and since this engine computes on the processor, reading rows waits for the stream.
 * An engine whose attention runs on the stream itself has nothing to wait for.
 */
#include "kv.h"
#include "device.h"
#include "util.h"

#include <dhisparse/host.h>

#include <stdlib.h>

struct kv {
	struct rows rows; /* first: a struct rows * of ours is a struct kv * */
	uint32_t seats, top_k, page_rows;
	uint32_t sessions, new_rows; /* of the step */
	dhs_host *host;              /* NULL, or a device of the host backend that runs work late */
	dhs_context *context;
	dhs_batch *batch;
	dhs_session *session; /* [seats], 0: empty */
	dhs_step step;
	dhs_step_entry *entries;
	uint32_t *kept;
	dhs_place *place; /* [layers]: how slots become addresses */
	struct device *device;
};

/* Every call of the library returns 0 or an error, and then dhs_last_error says what is wrong. */
void must(int result)
{
	if (result != DHS_OK)
		die(STATUS_LIBRARY, "%s (%s)", dhs_last_error(), dhs_strerror(result));
}

/* ---- sessions -------------------------------------------------------------------------------- */

static bool others(const struct kv *kv)
{
	for (uint32_t s = 0; s < kv->seats; s++)
		if (kv->session[s])
			return true;
	return false;
}

/* A session's hot cache and tail must be in the pool; history of others gives way to them.  Without
 * room even so an engine lets the session wait for another one to leave. */
static bool arrive(struct rows *rows, int seat)
{
	struct kv *kv = (struct kv *)rows;
	int rc = dhs_session_create(kv->context, NULL, &kv->session[seat]);

	if (rc == DHS_ERR_DEVICE_MEMORY && others(kv))
		return false;
	must(rc);
	return true;
}

static void leave(struct rows *rows, int seat)
{
	struct kv *kv = (struct kv *)rows;

	must(dhs_session_destroy(kv->context, kv->session[seat]));
	kv->session[seat] = 0;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void begin(struct rows *rows, const struct step *step)
{
	struct kv *kv = (struct kv *)rows;

	kv->sessions = (uint32_t)step->sessions;
	kv->new_rows = (uint32_t)step->new_rows;
	for (uint32_t s = 0; s < kv->sessions; s++) {
		kv->entries[s].session = kv->session[step->seat[s]];
		kv->entries[s].new_rows = kv->new_rows;
		kv->entries[s].queries = kv->new_rows;
		kv->kept[s] = kv->new_rows;
	}
	must(dhs_step_begin(kv->batch, kv->entries, kv->sessions, sizeof(kv->entries[0]),
	                    kv->device->stream, &kv->step));
	must(dhs_step_slots(kv->batch, kv->sessions, kv->new_rows, kv->device->new_slots,
	                    kv->device->stream));
}

/* The step's new rows of one layer, to the slots that begin gave. */
static void write_rows(struct rows *rows, int layer)
{
	struct kv *kv = (struct kv *)rows;

	kv->device->write(kv->device, layer, (size_t)kv->sessions * kv->new_rows);
}

/* Finds the selected rows and fetches those that are only in host memory, for all layers of the
 * group.  The new rows of the step may be selected, too: their slots are those that begin gave. */
static void resolve(struct rows *rows, int group, const int32_t *selection)
{
	struct kv *kv = (struct kv *)rows;
	dhs_selection s = DHS_INIT(dhs_selection);

	kv->device->select(kv->device, selection, (size_t)kv->sessions * kv->new_rows);
	s.sessions = kv->sessions;
	s.queries = kv->new_rows;
	s.top_k = kv->top_k;
	s.rows = kv->device->selection;
	s.slots = kv->device->slots;
	must(dhs_step_resolve(kv->batch, (uint32_t)group, &s, kv->device->stream));
}

/* The selected rows of one layer, from the slots that resolve gave. */
static void read_rows(struct rows *rows, int layer)
{
	struct kv *kv = (struct kv *)rows;

	kv->device->read(kv->device, layer, (size_t)kv->sessions * kv->new_rows);
}

/* The step is done and all its rows are kept, so commit and settle are one call.  The copies to
 * host memory that it enqueues need no wait: the rows stay where they are until they are made.
 * Then history that gave way to other sessions may come back, if there is room again, a few pages
 * a step. */
static void end(struct rows *rows)
{
	struct kv *kv = (struct kv *)rows;

	must(dhs_step_end(kv->context, kv->step, kv->kept, kv->sessions));
	must(dhs_context_advance(kv->context));
}

/* ---- opening and closing --------------------------------------------------------------------- */

static uint32_t pages(uint64_t rows, uint32_t page_rows)
{
	return (uint32_t)((rows + page_rows - 1) / page_rows);
}

/* A pool that refuses nothing: what every session must have, its whole history besides (under
 * fixed it would stay unused), and the batch's staging. */
static uint32_t enough_pages(const dhs_context_options *options, const struct kv_options *o,
                             const dhs_batch_options *batch)
{
	dhs_required session = DHS_INIT(dhs_required), staging = DHS_INIT(dhs_required);
	uint32_t count;

	must(dhs_context_required(options, &session));
	must(dhs_batch_required(options, batch, &staging));
	count = o->sessions * session.session_pages + staging.staging_pages;
	if (o->policy != DHS_POLICY_FIXED)
		count += o->sessions * pages(o->max_rows, o->page_rows);
	return count;
}

static void create_context(struct kv *kv, const struct model *model, const struct kv_options *o,
                           const dhs_batch_options *batch)
{
	dhs_host_options host = DHS_INIT(dhs_host_options);
	dhs_segment row = { .bytes = (uint32_t)model->row_numbers * 2 };
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_context_options options = DHS_INIT(dhs_context_options);
	uint32_t *group_layers = zeros((size_t)model->groups, sizeof(*group_layers));
	uint32_t session_pages = pages(o->max_rows, o->page_rows);

	/* A device of the host backend is only made where its work shall run late, since auto takes
	 * no GPU when it is given one. */
	host.seed = o->host_seed;
	if (o->host_seed)
		must(dhs_host_create(&host, &kv->host));

	/* One segment: the row as it is.  The layers of a group share a selection. */
	for (int g = 0; g < model->groups; g++)
		group_layers[g] = (uint32_t)model->group;
	layout.layers = (uint32_t)model->layers;
	layout.groups = (uint32_t)model->groups;
	layout.group_layers = group_layers;
	layout.segments = 1;
	layout.segment_size = sizeof(row);
	layout.segment = &row;
	layout.page_rows = o->page_rows;

	options.flags = DHS_CONTEXT_TAIL_ROWS; /* no tail, where that is asked for */
	options.backend = o->backend;
	options.policy = o->policy;
	options.max_sessions = o->sessions;
	options.max_rows = o->max_rows;
	options.max_new_rows = o->max_new_rows;
	options.hot_rows = o->hot_rows;
	options.tail_rows = o->tail_rows;
	options.layout = &layout;
	options.host = kv->host;
	if (o->policy != DHS_POLICY_FULL)
		options.host_rows = (uint64_t)o->sessions * session_pages * o->page_rows;

	options.device_pages = (uint32_t)(o->device_rows / o->page_rows);
	if (!o->device_rows)
		options.device_pages = enough_pages(&options, o, batch);
	must(dhs_context_create(&options, &kv->context));
	free(group_layers);
}

/* Its stream and arrays, for the backend that the context has. */
static void open_device(struct kv *kv, const struct model *model, uint32_t max_new_rows)
{
	dhs_stats stats = DHS_INIT(dhs_stats);
	struct device_shape shape = { .rows = (size_t)kv->seats * max_new_rows, .top_k = kv->top_k };

	kv->place = zeros((size_t)model->layers, sizeof(*kv->place));
	for (int l = 0; l < model->layers; l++) {
		kv->place[l].size = sizeof(kv->place[l]);
		must(dhs_context_place(kv->context, (uint32_t)l, 0, &kv->place[l]));
	}
	shape.place = kv->place;
	must(dhs_context_stats(kv->context, &stats));
	kv->device = device_open(stats.backend, kv->host, &shape);
}

struct rows *kv_open(const struct model *model, const struct kv_options *o)
{
	struct kv *kv = zeros(1, sizeof(*kv));
	dhs_batch_options batch = DHS_INIT(dhs_batch_options);

	kv->seats = o->sessions;
	kv->top_k = (uint32_t)model->top_k;
	kv->page_rows = o->page_rows;
	batch.max_queries = o->max_new_rows;
	batch.top_k = kv->top_k;
	create_context(kv, model, o, &batch);
	open_device(kv, model, o->max_new_rows);
	must(dhs_batch_create(kv->context, &batch, &kv->batch));

	kv->session = zeros(kv->seats, sizeof(*kv->session));
	kv->entries = zeros(kv->seats, sizeof(*kv->entries));
	kv->kept = zeros(kv->seats, sizeof(*kv->kept));
	kv->rows.arrive = arrive;
	kv->rows.leave = leave;
	kv->rows.begin = begin;
	kv->rows.write = write_rows;
	kv->rows.new_numbers = kv->device->new_rows;
	kv->rows.resolve = resolve;
	kv->rows.read = read_rows;
	kv->rows.selected = kv->device->selected;
	kv->rows.end = end;
	return &kv->rows;
}

void kv_close(struct rows *rows)
{
	struct kv *kv = (struct kv *)rows;

	for (uint32_t s = 0; s < kv->seats; s++)
		if (kv->session[s])
			leave(rows, (int)s);
	must(dhs_batch_destroy(kv->batch));
	dhs_context_destroy(kv->context);
	kv->device->close(kv->device);
	must(dhs_host_destroy(kv->host));
	free(kv->place);
	free(kv->session);
	free(kv->entries);
	free(kv->kept);
	free(kv);
}

/* ---- what the library counted ---------------------------------------------------------------- */

void kv_stats(struct rows *rows, dhs_stats *stats)
{
	struct kv *kv = (struct kv *)rows;

	/* Counters of a step come from the device two steps later, or when waited for. */
	must(dhs_context_wait(kv->context));
	kv_stats_now(rows, stats);
}

void kv_stats_now(struct rows *rows, dhs_stats *stats)
{
	struct kv *kv = (struct kv *)rows;

	*stats = (dhs_stats)DHS_INIT(dhs_stats);
	must(dhs_context_stats(kv->context, stats));
}

void kv_places(struct rows *rows, struct kv_places *places)
{
	struct kv *kv = (struct kv *)rows;
	dhs_stats stats;

	*places = (struct kv_places){ 0 };
	for (uint32_t s = 0; s < kv->seats; s++) {
		dhs_session_info info = DHS_INIT(dhs_session_info);

		if (!kv->session[s])
			continue;
		must(dhs_session_get_info(kv->context, kv->session[s], &info));
		places->rows += info.rows;
		places->device_rows += info.device_rows;
		places->host_only_rows += info.host_only_rows;
	}
	/* A miss that is not staged takes a place of a hot cache, an empty one or a victim's. */
	kv_stats(rows, &stats);
	places->hot_rows = stats.misses - stats.staged - stats.victims;
	places->pool_rows =
		(uint64_t)kv->page_rows *
		(stats.pages_reserved + stats.pages_free + stats.pages_draining + stats.pages_required +
	     stats.pages_resident + stats.pages_elastic + stats.pages_staging);
}
