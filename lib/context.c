/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "batch.h"
#include "layout.h"
#include "machine.h"
#include "tag.h"

#include <stdarg.h>
#include <stdio.h>

#define MOST_SESSIONS 65536
#define MOST_NEW_ROWS 65536
#define MOST_ROWS (1 << 30)
/* What the queries of a session select together at most, as models are: 16 of 2,048. */
#define STAGED_ROWS 32768
#define KNOWN_FLAGS (DHS_CONTEXT_TAIL_ROWS | DHS_CONTEXT_DEVICE | DHS_CONTEXT_POOL_STAGING)
/* Pool and tier of fewer bytes than this are not held against the machine's memory:
 * small contexts are to be made fast. */
#define CHECKED_BYTES ((uint64_t)256 << 20)
/* No machine has more: sizes past it are told before they overflow anything. */
#define MOST_BYTES ((uint64_t)1 << 60)

/* Options with defaults, the layout, and what follows from them. */
struct setup {
	int calculate; /* nothing will be created: device_pages may be 0 */
	dhs_context_options o;
	dhs_allocator allocator;
	struct dhs_layout_copy layout;
	struct dhs_tier_shape tier;
	uint32_t tail_pages, hot_pages;
	struct dhs_staging_shape staging;
	uint64_t pool_bytes;
};

/* ---- which backend ---- */

#ifdef HAVE_CUDA

static const struct dhs_backend_ops *backend_ops(uint32_t backend)
{
	return backend == DHS_BACKEND_CUDA ? &dhs_backend_cuda : &dhs_backend_host;
}

/* What auto means here and now. */
static uint32_t best_backend(const dhs_context_options *o)
{
	return !o->host && dhs_backend_cuda_here() ? DHS_BACKEND_CUDA : DHS_BACKEND_HOST;
}

#else

static const struct dhs_backend_ops *backend_ops(uint32_t backend)
{
	return backend == DHS_BACKEND_HOST ? &dhs_backend_host : NULL;
}

static uint32_t best_backend(const dhs_context_options *o)
{
	(void)o;
	return DHS_BACKEND_HOST;
}

#endif

static int choose_backend(const char *call, dhs_context_options *o)
{
	if (o->backend == DHS_BACKEND_AUTO)
		o->backend = best_backend(o);
	if (!backend_ops(o->backend))
		return dhs_fail(DHS_ERR_UNSUPPORTED,
		                "%s: options->backend is cuda; this library was built without it", call);
	return DHS_OK;
}

/* ---- checks of options ---- */

static int check_choices(const char *call, dhs_context_options *o)
{
	int rc;

	if (o->flags & ~(uint32_t)KNOWN_FLAGS)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: options->flags is %#x; known flags are %#x", call,
		                o->flags, KNOWN_FLAGS);
	if (o->device && !(o->flags & DHS_CONTEXT_DEVICE))
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: options->device is %d; without DHS_CONTEXT_DEVICE it must be 0", call,
		                o->device);
	if (o->pool && o->flags & DHS_CONTEXT_POOL_STAGING)
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: options->flags has DHS_CONTEXT_POOL_STAGING; in a pool of the engine's "
			"staging is pages of the pool without it",
			call);
	if (o->max_staging_rows && (o->pool || o->flags & DHS_CONTEXT_POOL_STAGING))
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: options->max_staging_rows is %u; it must be 0 where staging is pages of "
			"the pool",
			call, o->max_staging_rows);
	if (o->policy == DHS_POLICY_DEFAULT)
		o->policy = DHS_POLICY_ADAPTIVE;
	if (o->backup == DHS_BACKUP_DEFAULT)
		o->backup = DHS_BACKUP_EAGER;
	rc = dhs_options_check_range(call, "backend", o->backend, DHS_BACKEND_AUTO, DHS_BACKEND_CUDA);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "policy", o->policy, DHS_POLICY_ADAPTIVE,
		                             DHS_POLICY_FULL);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "backup", o->backup, DHS_BACKUP_EAGER,
		                             DHS_BACKUP_RECLAIM);
	if (rc == DHS_OK && o->backup == DHS_BACKUP_RECLAIM && o->policy != DHS_POLICY_ADAPTIVE)
		rc = dhs_fail(DHS_ERR_UNSUPPORTED,
		              "%s: options->backup is DHS_BACKUP_RECLAIM; only policy adaptive has it",
		              call);
	return rc;
}

static int check_numbers(const char *call, dhs_context_options *o)
{
	int rc;

	o->max_sessions = o->max_sessions ? o->max_sessions : 256;
	o->max_new_rows = o->max_new_rows ? o->max_new_rows : 16;
	o->hot_rows = o->hot_rows ? o->hot_rows : 4096;
	if (!o->tail_rows && !(o->flags & DHS_CONTEXT_TAIL_ROWS))
		o->tail_rows = 64;
	rc = dhs_options_check_range(call, "max_sessions", o->max_sessions, 1, MOST_SESSIONS);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "max_rows", o->max_rows, 1, MOST_ROWS);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "max_new_rows", o->max_new_rows, 1, MOST_NEW_ROWS);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "hot_rows", o->hot_rows, 1, DHS_MAX_HOT_ROWS);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "tail_rows", o->tail_rows, 0, MOST_ROWS);
	return rc;
}

static int check_allocator(const char *call, struct setup *u)
{
	int rc;

	u->allocator = dhs_default_allocator;
	if (!u->o.allocator)
		return DHS_OK;
	rc = dhs_options_read(call, "options->allocator", u->o.allocator, &u->allocator,
	                      sizeof(u->allocator), sizeof(u->allocator));
	if (rc == DHS_OK && u->allocator.flags & ~(uint32_t)DHS_ALLOCATOR_PINNED)
		rc = dhs_fail(DHS_ERR_ARGUMENT, "%s: options->allocator->flags is %#x; known flags are %#x",
		              call, u->allocator.flags, DHS_ALLOCATOR_PINNED);
	if (rc == DHS_OK && (!u->allocator.alloc || !u->allocator.free))
		rc = dhs_fail(DHS_ERR_ARGUMENT, "%s: options->allocator->%s is NULL", call,
		              u->allocator.alloc ? "free" : "alloc");
	return rc;
}

/* A session's required pages must be in the pool, its host room in the tier. */
static int check_budgets(const char *call, const struct setup *u)
{
	const dhs_context_options *o = &u->o;
	uint32_t usable = o->device_pages - o->reserved_pages;
	int full = o->policy == DHS_POLICY_FULL, sized = o->device_pages != 0;

	if (sized && usable < u->hot_pages + (uint64_t)u->tail_pages)
		return dhs_fail(
			DHS_ERR_DEVICE_MEMORY,
			"%s: options->device_pages leaves %u pages; one session needs %u for its hot "
			"cache and %u for its tail",
			call, usable, u->hot_pages, u->tail_pages);
	if (full && o->host_rows)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: options->host_rows is %llu; policy full has no host tier", call,
		                (unsigned long long)o->host_rows);
	if (sized && !full && !o->host_rows)
		return dhs_fail(DHS_ERR_HOST_MEMORY,
		                "%s: options->host_rows is 0; one session needs a page of %u", call,
		                u->layout.layout.page_rows);
	return DHS_OK;
}

static int check_pages(const char *call, const struct setup *u)
{
	const dhs_context_options *o = &u->o;
	uint32_t most = INT32_MAX / u->layout.layout.page_rows;
	int rc =
		dhs_options_check_range(call, "device_pages", o->device_pages, u->calculate ? 0 : 1, most);

	if (rc == DHS_OK && o->device_pages)
		rc = dhs_options_check_range(call, "reserved_pages", o->reserved_pages, 0,
		                             o->pool ? 0 : o->device_pages - 1);
	if (rc == DHS_OK && o->host_rows)
		rc = dhs_options_check_range(call, "host_rows", o->host_rows, 1,
		                             (uint64_t)(INT32_MAX - 1) * u->layout.layout.page_rows);
	return rc;
}

static int check_sizes(const char *call, struct setup *u)
{
	uint64_t layers = u->layout.layout.layers;
	uint64_t page_bytes = (uint64_t)u->layout.layout.page_rows * u->layout.row_bytes * layers;

	if (u->o.device_pages && u->layout.page_stride > MOST_BYTES / layers / u->o.device_pages)
		return dhs_fail(DHS_ERR_DEVICE_MEMORY,
		                "%s: options->device_pages is %u; the pool would be past 2^60 bytes", call,
		                u->o.device_pages);
	if (u->o.host_rows / u->layout.layout.page_rows + 1 > MOST_BYTES / page_bytes)
		return dhs_fail(DHS_ERR_HOST_MEMORY,
		                "%s: options->host_rows is %llu; the host tier would be past 2^60 bytes",
		                call, (unsigned long long)u->o.host_rows);
	return DHS_OK;
}

/* Everything about the geometry that is a number. */
static void fill_geometry(const struct setup *u, struct dhs_geometry *g)
{
	const dhs_layout *l = &u->layout.layout;
	uint32_t at = 0, most = 0;

	g->layers = l->layers;
	g->groups = l->groups;
	g->segments = l->segments;
	g->page_rows = l->page_rows;
	g->row_bytes = u->layout.row_bytes;
	g->pages = u->o.device_pages;
	g->pad_pages = u->o.pool ? u->o.device_pages : u->o.reserved_pages;
	g->max_sessions = u->o.max_sessions;
	g->max_rows = u->o.max_rows;
	g->max_pages = dhs_ceil_div(u->o.max_rows, l->page_rows);
	g->tiered = u->o.policy != DHS_POLICY_FULL;
	g->hot_rows = g->tiered ? u->o.hot_rows : 0;
	g->hot_pages = u->hot_pages;
	g->mirror = g->tiered && u->o.backup == DHS_BACKUP_EAGER;
	for (uint32_t i = 0; i < l->groups; i++)
		most = dhs_max_u32(most, dhs_layout_group_layers(&u->layout, i));
	g->most_layers = most;
	g->layer_words = dhs_ceil_div(most, 32);
	for (uint32_t i = 0; i < l->segments; i++) {
		const dhs_segment *s = &u->layout.segment[i];

		g->segment[i] = (struct dhs_world_segment){ s->page_stride, s->row_stride, s->bytes, at };
		at += s->bytes;
	}
}

/* Whether the staging of batches lies behind the pool. */
static int stages_behind(const dhs_context_options *o)
{
	const struct dhs_backend_ops *ops =
		backend_ops(o->backend == DHS_BACKEND_AUTO ? best_backend(o) : o->backend);

	return !o->pool && !(o->flags & DHS_CONTEXT_POOL_STAGING) && (!ops || ops->alias(o));
}

static void fill_staging(struct setup *u, const struct dhs_geometry *g)
{
	uint64_t rows = dhs_min_u32(g->max_rows, STAGED_ROWS);

	rows = u->o.max_staging_rows ? u->o.max_staging_rows : 2 * rows * g->max_sessions;
	if (stages_behind(&u->o))
		dhs_staging_shape(g, rows, &u->staging);
	if (!u->o.pool)
		u->pool_bytes =
			g->layers * (u->staging.mapped ? u->staging.own : g->pages * u->layout.page_stride);
}

static int setup_read(const char *call, const char *name, const dhs_context_options *options,
                      int calculate, struct setup *u)
{
	dhs_context_options *o = &u->o;
	struct dhs_geometry shape = { 0 };
	int rc;

	*u = (struct setup){ .calculate = calculate };
	rc = dhs_options_read(call, name, options, o, sizeof(*o), sizeof(*o));
	if (rc == DHS_OK)
		rc = check_choices(call, o);
	if (rc == DHS_OK)
		rc = check_numbers(call, o);
	if (rc == DHS_OK)
		rc = check_allocator(call, u);
	if (rc == DHS_OK)
		rc = dhs_layout_read(call, o->layout, !o->pool, &u->layout);
	if (rc == DHS_OK)
		rc = check_pages(call, u);
	if (rc)
		return rc;
	if (o->policy != DHS_POLICY_FULL) {
		uint64_t tail =
			(uint64_t)o->tail_rows + DHS_MAX_STEPS_IN_FLIGHT * (uint64_t)o->max_new_rows;

		u->hot_pages = dhs_ceil_div(o->hot_rows, u->layout.layout.page_rows);
		u->tail_pages = dhs_ceil_div(tail, u->layout.layout.page_rows) + 1;
	}
	rc = check_budgets(call, u);
	if (rc == DHS_OK)
		rc = check_sizes(call, u);
	if (rc == DHS_OK && o->pool)
		rc = dhs_options_check_pointer(call, "options->pool", o->pool, sizeof(*o->pool));
	if (rc == DHS_OK && o->pool && o->device_pages)
		rc = dhs_layout_check_pool(call, &u->layout, o->pool, o->device_pages);
	if (rc)
		return rc;
	fill_geometry(u, &shape);
	dhs_tier_shape(&shape, o->host_rows, &u->tier);
	fill_staging(u, &shape);
	return DHS_OK;
}

/* ---- memory that the device uses ---- */

static void result_new(dhs_context *context, struct dhs_blocks *blocks, uint32_t n,
                       struct dhs_result *r)
{
	r->committed = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, sizeof(*r->committed), 1);
	r->counts = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, sizeof(*r->counts), 1);
	r->length = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*r->length), 1);
	r->kept = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*r->kept), 1);
}

static void upload_new(dhs_context *context, struct dhs_blocks *blocks,
                       const struct dhs_geometry *g, struct dhs_upload *u)
{
	uint64_t n = g->max_sessions, numbers = 2 * (uint64_t)g->max_pages + g->hot_pages;

	u->entry = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*u->entry), 1);
	u->patch = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*u->patch), 1);
	u->data = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * numbers * sizeof(*u->data), 1);
	u->kept = dhs_blocks_new(context, blocks, DHS_MEMORY_HOST, n * sizeof(*u->kept), 1);
}

/* Tables, results and uploads; a null context measures.  Under full there is no
 * hot cache, so its tables are empty. */
static void tables_new(dhs_context *context, struct dhs_blocks *blocks, struct dhs_world *world,
                       uint32_t chunks, struct dhs_upload *upload)
{
	struct dhs_geometry *g = &world->geometry;
	uint64_t n = g->max_sessions, map_rows = g->hot_rows ? g->max_rows : 0;
	struct dhs_tables *t = &world->tables;

#define TAKE(count, type)                                                                          \
	dhs_blocks_new(context, blocks, DHS_MEMORY_DEVICE, (size_t)(count) * sizeof(type), 1)
	g->group_first = TAKE(g->groups + 1, uint32_t);
	g->base = TAKE(g->layers * g->segments, unsigned char *);
	g->records = TAKE((uint64_t)chunks * g->groups, unsigned char *);
	t->length = TAKE(n, int32_t);
	t->page = TAKE(n * g->max_pages, int32_t);
	t->host_page = TAKE(n * g->max_pages, int32_t);
	t->hot_slot = TAKE(n * g->hot_rows, int32_t);
	t->hot_row = TAKE(n * g->groups * g->hot_rows, int32_t);
	t->hot_stamp = TAKE(n * g->groups * g->hot_rows, uint32_t);
	t->hot_map = TAKE(n * g->groups * map_rows, uint16_t);
	t->plan = TAKE(n * g->groups, struct dhs_plan_state);
#undef TAKE
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++) {
		result_new(context, blocks, g->max_sessions, &world->result[i]);
		upload_new(context, blocks, g, &upload[i]);
	}
}

int dhs_context_geometry(const char *call, const dhs_context_options *options,
                         struct dhs_geometry *geometry, struct dhs_staging_shape *staging)
{
	struct setup u;
	int rc = setup_read(call, "context", options, 1, &u);

	*geometry = (struct dhs_geometry){ 0 };
	if (rc == DHS_OK)
		fill_geometry(&u, geometry);
	*staging = u.staging;
	return rc;
}

int dhs_context_required(const dhs_context_options *options, dhs_required *required)
{
	dhs_required out = DHS_INIT(dhs_required);
	struct dhs_upload upload[DHS_MAX_STEPS_IN_FLIGHT];
	struct dhs_blocks blocks = { 0 };
	struct dhs_world world = { 0 };
	struct setup u;
	int rc = setup_read("dhs_context_required", "options", options, 1, &u);

	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_context_required", "required", required);
	if (rc)
		return rc;
	fill_geometry(&u, &world.geometry);
	tables_new(NULL, &blocks, &world, u.tier.chunks, upload);
	out.pool_bytes = u.pool_bytes;
	out.tier_bytes = u.tier.bytes;
	out.device_bytes = u.pool_bytes + blocks.bytes[DHS_MEMORY_DEVICE];
	out.host_bytes = u.tier.bytes + blocks.bytes[DHS_MEMORY_HOST];
	out.hot_pages = u.hot_pages;
	out.tail_pages = u.tail_pages;
	out.session_pages = u.hot_pages + u.tail_pages;
	dhs_options_write(&out, sizeof(out), required);
	return DHS_OK;
}

/* ---- create ---- */

static int check_machine(const char *call, const struct setup *u)
{
	uint64_t bytes = u->pool_bytes + u->tier.bytes, have;

	if (u->o.allocator || bytes < CHECKED_BYTES || u->o.backend != DHS_BACKEND_HOST)
		return DHS_OK;
	have = dhs_machine_memory();
	if (have && bytes > have)
		return dhs_fail(
			u->pool_bytes > have ? DHS_ERR_DEVICE_MEMORY : DHS_ERR_HOST_MEMORY,
			"%s: device_pages take %llu bytes and host_rows %llu bytes, more than this machine's "
			"memory of %llu bytes",
			call, (unsigned long long)u->pool_bytes, (unsigned long long)u->tier.bytes,
			(unsigned long long)have);
	return DHS_OK;
}

/* Where a layer of the library's own pool lies; NULL if there is no memory for it. */
static unsigned char *layer_memory(dhs_context *context, uint32_t layer, size_t bytes)
{
	const struct dhs_staging *s = &context->staging;

	if (s->range)
		return s->range + layer * dhs_staging_span(&s->shape);
	return dhs_blocks_new(context, &context->blocks, DHS_MEMORY_DEVICE, bytes,
	                      context->reserved_pages != 0);
}

/* The library's own pool: one range or block a layer, the reserved pages zeroed. */
static int pool_memory(dhs_context *context, const struct setup *u)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint64_t stride = u->layout.page_stride;
	int rc =
		u->staging.mapped ? dhs_staging_open(context, &u->staging, u->o.reserved_pages) : DHS_OK;

	if (rc)
		return rc;
	for (uint32_t layer = 0; layer < g->layers; layer++) {
		unsigned char *memory = layer_memory(context, layer, stride * u->o.device_pages);

		if (!memory)
			return dhs_fail(context->blocks.failed,
			                "device_pages: no memory for layer %u of the pool (%llu bytes)", layer,
			                (unsigned long long)(stride * u->o.device_pages));
		for (uint32_t i = 0; i < g->segments; i++)
			context->base[layer * g->segments + i] = memory + u->layout.segment[i].offset;
	}
	return DHS_OK;
}

/* The widest piece that all rows and records can be copied by: the lowest bit of
 * anything that adds to their addresses. */
static uint32_t widest_unit(const dhs_context *context)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint64_t all = 16 | g->row_bytes;

	for (uint32_t i = 0; i < g->segments; i++)
		all |= g->segment[i].page_stride | g->segment[i].row_stride | g->segment[i].bytes;
	for (uint32_t i = 0; i < g->layers * g->segments; i++)
		all |= (uintptr_t)context->base[i];
	return (uint32_t)(all & -all);
}

static int bases(dhs_context *context, const struct setup *u)
{
	const struct dhs_geometry *g = &context->world.geometry;
	uint32_t all = g->layers * g->segments;

	context->group_first = dhs_blocks_book(context, (g->groups + 1) * sizeof(*g->group_first));
	context->base = dhs_blocks_book(context, all * sizeof(*g->base));
	if (!context->group_first || !context->base)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "no memory for the books of %u layers", g->layers);
	for (uint32_t i = 0; i < g->groups; i++)
		context->group_first[i + 1] =
			context->group_first[i] + dhs_layout_group_layers(&u->layout, i);
	if (!u->o.pool)
		return pool_memory(context, u);
	for (uint32_t i = 0; i < all; i++)
		context->base[i] =
			(unsigned char *)u->o.pool[i] + u->layout.segment[i % g->segments].offset;
	return DHS_OK;
}

static int books(dhs_context *context, const struct setup *u)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++) {
		context->step[i].part =
			dhs_blocks_book(context, context->max_sessions * sizeof(*context->step[i].part));
		if (!context->step[i].part)
			return dhs_fail(DHS_ERR_HOST_MEMORY, "max_sessions: no memory for the books of steps");
	}
	context->copy = dhs_blocks_book(context, u->o.device_pages * sizeof(*context->copy));
	if (!context->copy)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "device_pages: no memory for the list of copies");
	return DHS_OK;
}

/* What the tables hold before any work; memory is zeroed already. */
static int tables_init(dhs_context *context)
{
	const struct dhs_geometry *g = &context->world.geometry;
	const struct dhs_tables *t = &context->world.tables;
	const struct dhs_backend_ops *ops = context->ops;
	size_t bytes = (size_t)g->max_sessions * g->max_pages * sizeof(*t->page);
	int rc = ops->memory_set(context->device, t->page, -1, bytes);

	if (rc == DHS_OK)
		rc = ops->memory_set(context->device, t->host_page, -1, bytes);
	if (rc == DHS_OK)
		rc = ops->memory_write(context->device, g->group_first, context->group_first,
		                       (g->groups + 1) * sizeof(*g->group_first));
	if (rc == DHS_OK)
		rc = ops->memory_write(context->device, g->base, context->base,
		                       (size_t)g->layers * g->segments * sizeof(*g->base));
	return rc;
}

static int tables(dhs_context *context, const struct setup *u)
{
	const struct dhs_geometry *g = &context->world.geometry;
	struct dhs_upload upload[DHS_MAX_STEPS_IN_FLIGHT];

	tables_new(context, &context->blocks, &context->world, u->tier.chunks, upload);
	if (context->blocks.failed)
		return dhs_fail(
			context->blocks.failed,
			"max_sessions, max_rows: no memory for the tables of %u sessions of %u rows",
			g->max_sessions, g->max_rows);
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		context->step[i].upload = upload[i];
	return tables_init(context);
}

static void fill_context(dhs_context *context, const struct setup *u, uint32_t tag)
{
	context->magic = DHS_CONTEXT_MAGIC;
	context->tag = tag;
	context->ops = backend_ops(u->o.backend);
	context->allocator = u->allocator;
	context->log = u->o.log;
	context->log_arg = u->o.log_arg;
	context->backend = u->o.backend;
	context->policy = u->o.policy;
	context->backup = u->o.backup;
	context->max_sessions = u->o.max_sessions;
	context->max_new_rows = u->o.max_new_rows;
	context->tail_rows = u->o.tail_rows;
	context->tail_pages = u->tail_pages;
	context->tokens_per_row = u->layout.layout.tokens_per_row;
	context->reserved_pages = u->o.reserved_pages;
	context->owns_pool = !u->o.pool;
	context->next_step = 1;
	dhs_works_init(context);
	fill_geometry(u, &context->world.geometry);
}

static int build(dhs_context *context, const struct setup *u)
{
	int rc = bases(context, u);

	if (rc == DHS_OK) {
		context->world.geometry.unit = widest_unit(context);
		rc = tables(context, u);
	}
	if (rc == DHS_OK)
		rc = dhs_tier_init(context, &u->tier);
	if (rc == DHS_OK)
		rc = books(context, u);
	if (rc == DHS_OK)
		rc = dhs_sessions_init(context);
	if (rc == DHS_OK)
		rc = dhs_pool_init(context, u->o.device_pages);
	if (rc == DHS_OK)
		rc = context->ops->prepare(context->device, &context->world);
	if (rc == DHS_OK)
		rc = context->ops->stream_new(context->device, &context->copy_stream);
	if (rc)
		return rc;
	for (uint32_t p = u->o.reserved_pages; context->owns_pool && p < u->o.device_pages; p++)
		dhs_pool_lend(context, (int32_t)p);
	return DHS_OK;
}

static void context_free(dhs_context *context)
{
	dhs_allocator allocator = context->allocator;

	dhs_batches_free(context);
	dhs_works_free(context);
	if (context->copy_stream)
		context->ops->stream_free(context->device, context->copy_stream);
	dhs_staging_close(context);
	dhs_blocks_free(context, &context->blocks);
	if (context->device)
		context->ops->close(context->device);
	pthread_mutex_destroy(&context->lock);
	dhs_tag_give(context->tag);
	context->magic = 0;
	dhs_memory_free(&allocator, DHS_MEMORY_CONTROL, context, sizeof(*context));
}

/* What was asked for by nobody is told. */
static void report_fallback(dhs_context *context, const struct setup *u)
{
	if (u->o.pool || u->staging.mapped || u->o.policy == DHS_POLICY_FULL ||
	    u->o.flags & DHS_CONTEXT_POOL_STAGING)
		return;
	dhs_context_log(
		context, DHS_LOG_WARNING,
		"dhs_context_create: staging is made of pages of the pool: the device cannot map "
		"memory at several addresses");
}

int dhs_context_create(const dhs_context_options *options, dhs_context **context)
{
	struct setup u;
	dhs_context *c;
	int32_t tag;
	int rc = setup_read("dhs_context_create", "options", options, 0, &u);

	if (rc == DHS_OK)
		rc = dhs_options_check_pointer("dhs_context_create", "context", context, sizeof(*context));
	if (rc == DHS_OK)
		rc = choose_backend("dhs_context_create", &u.o);
	if (rc == DHS_OK)
		rc = check_machine("dhs_context_create", &u);
	if (rc)
		return rc;
	c = dhs_memory_zeroed(&u.allocator, DHS_MEMORY_CONTROL, sizeof(*c));
	if (!c)
		return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_context_create: no memory for the context");
	tag = dhs_tag_take();
	if (tag < 0) {
		dhs_memory_free(&u.allocator, DHS_MEMORY_CONTROL, c, sizeof(*c));
		return dhs_fail(DHS_ERR_HOST_MEMORY, "dhs_context_create: %d contexts are alive already",
		                1 << DHS_TAG_BITS);
	}
	fill_context(c, &u, (uint32_t)tag);
	pthread_mutex_init(&c->lock, NULL);
	rc = c->ops->open(&u.o, &c->allocator, &c->device);
	if (rc == DHS_OK)
		rc = build(c, &u);
	if (rc) {
		context_free(c);
		return rc;
	}
	report_fallback(c, &u);
	dhs_stats_publish(c);
	*context = c;
	return DHS_OK;
}

/* ---- destroy, wait, place ---- */

/* Marks the ends of steps and prefills that the engine left open: their work is
 * enqueued, and memory must outlive it. */
static void record_open(dhs_context *context)
{
	int capturing;

	for (struct dhs_work *w = context->works.first; w; w = w->next) {
		if (!dhs_work_open(w))
			continue;
		if (context->ops->stream_check(context->device, w->stream, &capturing) == DHS_OK &&
		    !capturing) {
			dhs_work_record(context, w);
			continue;
		}
		/* No event can mark the end on a stream that is gone or being captured, but what was
		 * enqueued before may still run. */
		context->ops->idle(context->device);
		w->state = DHS_WORK_PASSED;
	}
}

/* References in the books go with the books; the list holds every work that
 * has not passed, so all can be waited for first. */
static void drop_references(dhs_context *context)
{
	for (uint32_t i = 0; i < context->max_sessions; i++) {
		struct dhs_session_state *s = &context->sessions.session[i];

		dhs_work_unref(context, &s->last);
		dhs_work_unref(context, &s->written);
		dhs_work_unref(context, &s->copies);
	}
	for (uint32_t p = 0; p < context->pool.pages; p++)
		dhs_after_set(context, &context->pool.page[p].after, NULL, NULL);
	for (uint32_t p = 0; p < context->tier.pages; p++)
		dhs_after_set(context, &context->tier.after[p], NULL, NULL);
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		dhs_work_unref(context, &context->step[i].work);
	for (dhs_batch *b = context->batches; b; b = b->next)
		dhs_work_unref(context, &b->last);
	dhs_works_collect(context);
}

void dhs_context_destroy(dhs_context *context)
{
	if (!context || context->magic != DHS_CONTEXT_MAGIC)
		return;
	record_open(context);
	dhs_works_sync(context);
	/* An abort moves the end of a step that may have left the list before. */
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		dhs_work_sync(context, context->step[i].work);
	drop_references(context);
	context_free(context);
}

int dhs_context_wait(dhs_context *context)
{
	int rc = dhs_context_check("dhs_context_wait", context);

	if (rc)
		return rc;
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (context->step[i].state == DHS_STEP_BEGUN)
			return dhs_fail(DHS_ERR_PENDING,
			                "dhs_context_wait: step %llu is begun and neither settled nor aborted",
			                (unsigned long long)context->step[i].number);
	rc = dhs_works_sync(context);
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT && rc == DHS_OK; i++)
		rc = dhs_step_take_over(context, &context->step[i]);
	dhs_stats_publish(context);
	return rc ? dhs_context_lose(context, "dhs_context_wait", rc) : DHS_OK;
}

int dhs_context_place(dhs_context *context, uint32_t layer, uint32_t segment, dhs_place *place)
{
	dhs_place out = DHS_INIT(dhs_place);
	const struct dhs_geometry *g;
	int rc = dhs_context_check("dhs_context_place", context);

	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_context_place", "place", place);
	if (rc)
		return rc;
	g = &context->world.geometry;
	if (layer >= g->layers)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_context_place: layer is %u; there are %u layers",
		                layer, g->layers);
	if (segment >= g->segments)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_context_place: segment is %u; there are %u segments",
		                segment, g->segments);
	out.base = context->base[layer * g->segments + segment];
	out.page_stride = g->segment[segment].page_stride;
	out.row_stride = g->segment[segment].row_stride;
	out.bytes = g->segment[segment].bytes;
	out.page_rows = g->page_rows;
	dhs_options_write(&out, sizeof(out), place);
	return DHS_OK;
}

/* ---- shared by the calls ---- */

int dhs_context_check(const char *call, const dhs_context *context)
{
	if (!context || context->magic != DHS_CONTEXT_MAGIC)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: context is %s", call, context ? "dead" : "NULL");
	if (context->lost)
		return dhs_fail(DHS_ERR_DEVICE, "%s: the context's device is lost", call);
	return DHS_OK;
}

int dhs_handle_check(const char *call, const char *name, const dhs_context *context,
                     enum dhs_kind kind, uint64_t handle)
{
	static const char *const kinds[] = { "nothing", "session", "step", "fence" };

	if (handle >> 60 != kind)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s is %#llx, which is not a %s", call, name,
		                (unsigned long long)handle, kinds[kind]);
	if ((handle >> DHS_NUMBER_BITS & 0xffff) != context->tag)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s %#llx belongs to another context", call, name,
		                (unsigned long long)handle);
	return DHS_OK;
}

int dhs_stream_check(const char *call, dhs_context *context, dhs_stream stream, int *capturing)
{
	int rc = context->ops->stream_check(context->device, stream, capturing);

	if (rc == DHS_ERR_ARGUMENT)
		return dhs_fail(rc, "%s: stream %p is not of the context's device", call, (void *)stream);
	return rc ? dhs_context_lose(context, call, rc) : DHS_OK;
}

int dhs_stream_ready(const char *call, dhs_context *context, dhs_stream stream)
{
	int capturing, rc = dhs_stream_check(call, context, stream, &capturing);

	if (rc)
		return rc;
	if (capturing)
		return dhs_fail(DHS_ERR_CAPTURING, "%s: the stream is being captured", call);
	return DHS_OK;
}

int dhs_context_lose(dhs_context *context, const char *call, int rc)
{
	char cause[400];

	snprintf(cause, sizeof(cause), "%s", dhs_last_error());
	context->lost = 1;
	dhs_context_log(context, DHS_LOG_ERROR, "%s: the device is lost: %s", call, cause);
	return dhs_fail(DHS_ERR_DEVICE, "%s: the device is lost (%s: %s)", call, dhs_strerror(rc),
	                cause);
}

void dhs_context_log(dhs_context *context, uint32_t level, const char *format, ...)
{
	char text[512];
	va_list args;

	if (!context->log)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	context->log(context->log_arg, level, text);
}

int dhs_context_refuse(dhs_context *context, int code)
{
	context->totals.refusals++;
	dhs_context_log(context, DHS_LOG_WARNING, "%s", dhs_last_error());
	return code;
}
