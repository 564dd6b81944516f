/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "setup.h"

#include "tables.h"

#define MOST_SESSIONS 65536
#define MOST_NEW_ROWS 65536
#define MOST_ROWS (1 << 30)
/* What the queries of a session select together at most, as models are: 16 of 2,048. */
#define STAGED_ROWS 32768
/* A tenth of what PCIe 5.0 x16 carries in a step of 15 ms. */
#define LINK_BYTES ((uint64_t)64 << 20)
#define KNOWN_FLAGS                                                                                \
	(DHS_CONTEXT_TAIL_ROWS | DHS_CONTEXT_DEVICE | DHS_CONTEXT_POOL_STAGING | DHS_CONTEXT_REFILL |  \
	 DHS_CONTEXT_NO_HISTORY)
/* A thread that ticks more often does little else, and a minute is a mistake. */
#define LEAST_TICK_US 100
#define MOST_TICK_US 60000000
/* No machine has more: sizes past it are told before they overflow anything. */
#define MOST_BYTES ((uint64_t)1 << 60)

/* ---- which backend ---- */

#ifdef HAVE_CUDA

const struct dhs_backend_ops *dhs_setup_ops(uint32_t backend)
{
	return backend == DHS_BACKEND_CUDA ? &dhs_backend_cuda : &dhs_backend_host;
}

/* What auto means here and now. */
static uint32_t best_backend(const dhs_context_options *o)
{
	return !o->host && dhs_backend_cuda_here() ? DHS_BACKEND_CUDA : DHS_BACKEND_HOST;
}

#else

const struct dhs_backend_ops *dhs_setup_ops(uint32_t backend)
{
	return backend == DHS_BACKEND_HOST ? &dhs_backend_host : NULL;
}

static uint32_t best_backend(const dhs_context_options *o)
{
	(void)o;
	return DHS_BACKEND_HOST;
}

#endif

int dhs_setup_backend(const char *call, dhs_context_options *o)
{
	if (o->backend == DHS_BACKEND_AUTO)
		o->backend = best_backend(o);
	if (!dhs_setup_ops(o->backend))
		return dhs_fail(DHS_ERR_UNSUPPORTED,
		                "%s: options->backend is cuda; this library was built without it", call);
	return DHS_OK;
}

/* ---- checks of options ---- */

static int check_reclaim(const char *call, dhs_context_options *o)
{
	int rc = dhs_options_check_range(call, "reclaim", o->reclaim, DHS_RECLAIM_DEFAULT,
	                                 DHS_RECLAIM_PARTIAL);

	if (rc == DHS_OK && o->reclaim != DHS_RECLAIM_DEFAULT && o->policy != DHS_POLICY_ADAPTIVE)
		rc = dhs_fail(
			DHS_ERR_UNSUPPORTED,
			"%s: options->reclaim is DHS_RECLAIM_%s; only policy adaptive takes pages back", call,
			o->reclaim == DHS_RECLAIM_WHOLE ? "WHOLE" : "PARTIAL");
	if (o->reclaim == DHS_RECLAIM_DEFAULT)
		o->reclaim = DHS_RECLAIM_PARTIAL;
	return rc;
}

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
		                             DHS_BACKUP_BACKGROUND);
	if (rc == DHS_OK && o->flags & DHS_CONTEXT_NO_HISTORY && o->policy != DHS_POLICY_ADAPTIVE)
		rc = dhs_fail(DHS_ERR_UNSUPPORTED,
		              "%s: options->flags has DHS_CONTEXT_NO_HISTORY; only policy adaptive has it",
		              call);
	if (rc == DHS_OK && o->backup != DHS_BACKUP_EAGER && o->policy != DHS_POLICY_ADAPTIVE)
		rc = dhs_fail(DHS_ERR_UNSUPPORTED,
		              "%s: options->backup is DHS_BACKUP_%s; only policy adaptive has it", call,
		              o->backup == DHS_BACKUP_RECLAIM ? "RECLAIM" : "BACKGROUND");
	return rc == DHS_OK ? check_reclaim(call, o) : rc;
}

static int check_max_hot_rows(const char *call, dhs_context_options *o)
{
	int adaptive = o->policy == DHS_POLICY_ADAPTIVE;

	if (!o->max_hot_rows)
		o->max_hot_rows = adaptive ? dhs_min_u32(2 * o->hot_rows, DHS_MAX_HOT_ROWS) : o->hot_rows;
	return dhs_options_check_range(call, "max_hot_rows", o->max_hot_rows, o->hot_rows,
	                               adaptive ? DHS_MAX_HOT_ROWS : o->hot_rows);
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
		rc = check_max_hot_rows(call, o);
	if (rc == DHS_OK)
		rc = dhs_options_check_range(call, "tail_rows", o->tail_rows, 0, MOST_ROWS);
	return rc;
}

static int check_allocator(const char *call, struct dhs_setup *u)
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

static int check_refill(const char *call, struct dhs_setup *u)
{
	dhs_context_options *o = &u->o;
	uint32_t session = u->hot_pages + u->tail_pages;

	if (!(o->flags & DHS_CONTEXT_REFILL)) {
		o->link_bytes = o->link_bytes ? o->link_bytes : LINK_BYTES;
		o->refill_low = o->refill_low ? o->refill_low : session;
		o->refill_high = o->refill_high ? o->refill_high : dhs_max_u32(o->refill_low, 2 * session);
	}
	return dhs_options_check_range(call, "refill_high", o->refill_high, o->refill_low, UINT32_MAX);
}

static int check_ticks(const char *call, const dhs_context_options *o)
{
	if (o->reserved)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: options->reserved is %u; it must be 0", call,
		                o->reserved);
	if (!o->tick_us)
		return DHS_OK;
	return dhs_options_check_range(call, "tick_us", o->tick_us, LEAST_TICK_US, MOST_TICK_US);
}

/* A session's required pages must be in the pool, its host room in the tier. */
static int check_budgets(const char *call, const struct dhs_setup *u)
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

static int check_pages(const char *call, const struct dhs_setup *u)
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

static int check_sizes(const char *call, struct dhs_setup *u)
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

void dhs_setup_geometry(const struct dhs_setup *u, struct dhs_geometry *g)
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
	g->most_hot_pages = u->hot_pages + u->elastic_pages;
	g->most_hot_rows = g->hot_rows + u->elastic_pages * l->page_rows;
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
		dhs_setup_ops(o->backend == DHS_BACKEND_AUTO ? best_backend(o) : o->backend);

	return !o->pool && !(o->flags & DHS_CONTEXT_POOL_STAGING) && (!ops || ops->alias(o));
}

uint64_t dhs_setup_pool_bytes(const struct dhs_setup *u, uint32_t pages)
{
	const dhs_layout *l = &u->layout.layout;
	uint64_t stride =
		u->o.pool ? (uint64_t)l->page_rows * u->layout.row_bytes : u->layout.page_stride;
	uint64_t layer = u->staging.mapped ? dhs_staging_own(pages, stride) : pages * stride, bytes;

	return __builtin_mul_overflow(layer, l->layers, &bytes) ? UINT64_MAX : bytes;
}

static void fill_staging(struct dhs_setup *u, const struct dhs_geometry *g)
{
	uint64_t rows = g->tiered ? dhs_min_u32(g->max_rows, STAGED_ROWS) : 0;

	rows = u->o.max_staging_rows ? u->o.max_staging_rows : 2 * rows * g->max_sessions;
	if (stages_behind(&u->o))
		dhs_staging_shape(g, rows, &u->staging);
	if (!u->o.pool)
		u->pool_bytes = dhs_setup_pool_bytes(u, g->pages);
}

int dhs_setup_read(const char *call, const char *name, const dhs_context_options *options,
                   int calculate, struct dhs_setup *u)
{
	dhs_context_options *o = &u->o;
	struct dhs_geometry shape = { 0 };
	int rc;

	*u = (struct dhs_setup){ .calculate = calculate };
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
		u->elastic_pages = (o->max_hot_rows - o->hot_rows) / u->layout.layout.page_rows;
		u->tail_pages = dhs_ceil_div(tail, u->layout.layout.page_rows) + 1;
	}
	rc = check_refill(call, u);
	if (rc == DHS_OK)
		rc = check_ticks(call, o);
	if (rc == DHS_OK)
		rc = check_budgets(call, u);
	if (rc == DHS_OK)
		rc = check_sizes(call, u);
	if (rc == DHS_OK && o->pool)
		rc = dhs_options_check_pointer(call, "options->pool", o->pool, sizeof(*o->pool));
	if (rc == DHS_OK && o->pool && o->device_pages)
		rc = dhs_layout_check_pool(call, &u->layout, o->pool, o->device_pages);
	if (rc)
		return rc;
	dhs_setup_geometry(u, &shape);
	dhs_tier_shape(&shape, o->host_rows, &u->tier);
	fill_staging(u, &shape);
	return DHS_OK;
}

/* ---- calculators ---- */

int dhs_setup_calculate(const char *call, const dhs_context_options *options,
                        struct dhs_geometry *geometry, struct dhs_staging_shape *staging)
{
	struct dhs_setup u;
	int rc = dhs_setup_read(call, "context", options, 1, &u);

	*geometry = (struct dhs_geometry){ 0 };
	if (rc == DHS_OK)
		dhs_setup_geometry(&u, geometry);
	*staging = u.staging;
	return rc;
}

int dhs_context_required(const dhs_context_options *options, dhs_required *required)
{
	dhs_required out = DHS_INIT(dhs_required);
	struct dhs_upload upload[DHS_MAX_STEPS_IN_FLIGHT];
	struct dhs_blocks blocks = { 0 };
	struct dhs_world world = { 0 };
	struct dhs_setup u;
	int rc = dhs_setup_read("dhs_context_required", "options", options, 1, &u);

	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_context_required", "required", required);
	if (rc)
		return rc;
	dhs_setup_geometry(&u, &world.geometry);
	dhs_tables_new(NULL, &blocks, &world, u.tier.chunks, upload);
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
