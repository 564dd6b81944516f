/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The context: all that the host knows.  One thread at a time is in here, a caller or the
 * library's own that ticks (see DHS_GUARD), but for `stats`, a copy that `lock` guards.
 */
#ifndef DHS_LIB_CONTEXT_H
#define DHS_LIB_CONTEXT_H

#include "backend.h"
#include "blocks.h"
#include "error.h"
#include "options.h"
#include "pool.h"
#include "refill.h"
#include "session.h"
#include "staging.h"
#include "ticker.h"
#include "tier.h"
#include "work.h"

#include <pthread.h>

#define DHS_CONTEXT_MAGIC 0x64687363u /* "dhsc" */

enum dhs_step_state { DHS_STEP_NONE, DHS_STEP_BEGUN, DHS_STEP_SETTLED, DHS_STEP_ABORTED };

/* What the host keeps of one entry of a step. */
struct dhs_step_part {
	uint32_t index;      /* of the session; DHS_PADDING */
	uint32_t generation; /* of the session's handle */
	uint32_t epoch;      /* the session's at begin: a later one has cancelled the part */
	uint32_t new_rows;
	int64_t length; /* expected after the step, once settled; -1: not compared */
};

#define DHS_PADDING UINT32_MAX

/* One of the steps in flight: step n lies at n % DHS_MAX_STEPS_IN_FLIGHT. */
struct dhs_step_record {
	enum dhs_step_state state;
	uint64_t number;
	dhs_batch *batch;      /* NULL once that is gone */
	struct dhs_work *work; /* a reference until the step is taken over */
	uint32_t count;
	struct dhs_step_part *part; /* [max_sessions] */
	struct dhs_upload upload;
	int taken; /* counters and lengths have been taken over */
};

struct dhs_context {
	uint32_t magic;
	uint32_t tag; /* in every handle, tells foreign ones */
	const struct dhs_backend_ops *ops;
	void *device;
	dhs_allocator allocator;
	dhs_log_fn log;
	void *log_arg;

	/* options with defaults filled in */
	uint32_t backend, policy, backup, reclaim;
	uint32_t max_sessions, max_new_rows, tail_rows;
	uint32_t tail_pages; /* R of docs/residency.md; 0 under full */
	uint32_t tokens_per_row;
	uint32_t reserved_pages;
	int owns_pool;
	int keeps_history; /* on the device, as long as there is room */

	struct dhs_blocks blocks;
	struct dhs_world world; /* what the device sees, and: */
	uint32_t *group_first;  /* the host's copies of what world.geometry has in device memory */
	unsigned char **base;
	struct dhs_pool pool;
	struct dhs_staging staging;
	struct dhs_tier tier;
	struct dhs_refill refill;
	struct dhs_ticker ticker;
	uint32_t elastic_pages; /* of all sessions */
	struct dhs_works works;
	struct dhs_session_table sessions;
	dhs_stream copy_stream;

	uint32_t unbacked; /* pages of history on the device without a whole host copy */

	/* Page copies to the host that a call has gathered and not yet enqueued. */
	struct dhs_copy *copy; /* [device_pages] */
	uint32_t copies;

	struct dhs_step_record step[DHS_MAX_STEPS_IN_FLIGHT];
	uint64_t next_step; /* numbers start at 1 */
	dhs_batch *batches; /* a list */

	int lost;                /* the device failed: only destroy, stats and last_error work */
	struct dhs_stats totals; /* counters; gauges are computed when published */
	pthread_mutex_t lock;
	struct dhs_stats stats; /* the published copy */
};

struct dhs_batch {
	uint32_t magic;
	dhs_context *context;
	dhs_batch *next; /* in the context's list */
	struct dhs_blocks blocks;
	struct dhs_batch_state *state; /* as the device sees it: device memory */
	struct dhs_batch_state copy;   /* as it was made: what is fixed of it, for the host */
	uint32_t max_sessions, max_queries, top_k;
	uint32_t staging_rows;
	int32_t *staging_page; /* [pages of all its staging buffers] their numbers */
	uint32_t pool_pages;   /* of these, pages of the pool: all, or none and: */
	uint32_t first_window, windows;
	int fresh;                  /* its staging pages have not been waited for */
	struct dhs_work *last;      /* of its last begun step */
	int begun;                  /* it has had a step */
	uint64_t current;           /* number of the step that plan and the others serve, 0 none */
	int all_resident;           /* of that step */
	uint32_t queries, new_rows; /* most of any of its entries */
	uint32_t count;             /* its entries */
};

#define DHS_BATCH_MAGIC 0x64687362u /* "dhsb" */

/* ---- shared by the calls ---- */

/* What the start of a call took, given back when the variable leaves its scope. */
struct dhs_guard {
	dhs_context *context; /* NULL: nothing */
};

#define DHS_GUARD(name) struct dhs_guard name __attribute__((cleanup(dhs_context_leave))) = { NULL }

/* The start of every call but create, destroy and stats: a live context whose device is not
 * lost, and, where a thread of the library ticks, the context to itself as long as the guard
 * lives. */
int dhs_context_enter(const char *call, dhs_context *context, struct dhs_guard *guard);
int dhs_batch_enter(const char *call, dhs_batch *batch, struct dhs_guard *guard);
void dhs_context_leave(struct dhs_guard *guard);
/* Whether the stream is being captured; DHS_ERR_ARGUMENT if it is not the device's, and a
 * device that cannot say is lost. */
int dhs_stream_check(const char *call, dhs_context *context, dhs_stream stream, int *capturing);
/* The stream is the device's and not being captured. */
int dhs_stream_ready(const char *call, dhs_context *context, dhs_stream stream);
/* A failure of the backend after something was changed: the device is lost. */
int dhs_context_lose(dhs_context *context, const char *call, int rc);
void dhs_context_log(dhs_context *context, uint32_t level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Makes counters and gauges visible to dhs_context_stats: the end of a call. */
void dhs_stats_publish(dhs_context *context);
int dhs_context_refuse(dhs_context *context, int code); /* counts a refusal, returns code */

/* The i-th oldest of the steps that are remembered. */
static inline struct dhs_step_record *dhs_step_oldest(dhs_context *context, uint32_t i)
{
	return &context->step[(context->next_step + i) % DHS_MAX_STEPS_IN_FLIGHT];
}

/* Waits until the device has passed the step and takes its counters and samples over; older
 * steps first. */
int dhs_step_take_over(dhs_context *context, struct dhs_step_record *step);

/* 64-bit handles: kind (4 bits), context tag (16), then 44 bits. */
enum dhs_kind { DHS_KIND_SESSION = 1, DHS_KIND_STEP = 2, DHS_KIND_FENCE = 3 };

#define DHS_NUMBER_BITS 44
#define DHS_NUMBER_MASK (((uint64_t)1 << DHS_NUMBER_BITS) - 1)

static inline uint64_t dhs_handle(const dhs_context *context, enum dhs_kind kind, uint64_t number)
{
	return (uint64_t)kind << 60 | (uint64_t)context->tag << DHS_NUMBER_BITS |
	       (number & DHS_NUMBER_MASK);
}

/* DHS_OK if the handle is of this kind and context. */
int dhs_handle_check(const char *call, const char *name, const dhs_context *context,
                     enum dhs_kind kind, uint64_t handle);

/* Of all layers. */
static inline uint64_t dhs_page_bytes(const dhs_context *context)
{
	const struct dhs_geometry *g = &context->world.geometry;

	return (uint64_t)g->page_rows * g->row_bytes * g->layers;
}

static inline uint32_t dhs_min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t dhs_max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static inline uint32_t dhs_ceil_div(uint64_t a, uint32_t b)
{
	return (uint32_t)((a + b - 1) / b);
}

#endif
