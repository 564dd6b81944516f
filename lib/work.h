/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Work: a stretch of a stream's work that something relies on, a step, a
 * prefill, or copies of the library's own.  It is open while its stretch may
 * still grow, recorded once its end is marked by an event, passed once the
 * device has been seen past it.  Whether it is recorded follows from the calls
 * alone, so decisions may look at it; whether it has passed depends on time,
 * so they may not.
 */
#ifndef DHS_LIB_WORK_H
#define DHS_LIB_WORK_H

#include "backend.h"

enum dhs_work_state { DHS_WORK_OPEN, DHS_WORK_RECORDED, DHS_WORK_PASSED };

struct dhs_work {
	uint64_t number; /* of the fence that names it */
	uint32_t refs;
	enum dhs_work_state state;
	dhs_stream stream;
	dhs_event event;
	struct dhs_work *also;    /* a fence for this one waits for that one, too */
	uint64_t waited_call;     /* the last call that made a stream wait for it, */
	dhs_stream waited_stream; /* and which stream: one wait a call will do */
	struct dhs_work *next;    /* in the list of those not passed, or of idle ones */
};

/* Two works at most keep a page from being used again: the last step (or
 * prefill) that reads it, and the last copy that moves it. */
struct dhs_after {
	struct dhs_work *work[2];
};

/* All works of a context that have not passed, oldest first, and idle ones. */
struct dhs_works {
	struct dhs_work *first, *last;
	struct dhs_work *idle;
	uint64_t next_number;
	uint64_t call; /* counts the calls that enqueue */
};

void dhs_works_init(dhs_context *context);
void dhs_works_free(dhs_context *context);

/* An open work on `stream`, with a reference for the caller. */
int dhs_work_new(dhs_context *context, dhs_stream stream, struct dhs_work **work);
/* The same, taken back before anything relied on it. */
void dhs_work_cancel(dhs_context *context, struct dhs_work *work);
void dhs_work_unref(dhs_context *context, struct dhs_work **work);
/* *place = work, with references. */
void dhs_work_set(dhs_context *context, struct dhs_work **place, struct dhs_work *work);

/* Marks the end of a work, or moves it to here; pages that only waited for that are
 * free. */
int dhs_work_record(dhs_context *context, struct dhs_work *work);
/* The same where the engine may have destroyed the stream: that ran what was on it, so
 * the work has passed.  DHS_ERR_CAPTURING while it is captured. */
int dhs_work_end(const char *call, dhs_context *context, struct dhs_work *work);
/* Whether dhs_work_end would be refused. */
int dhs_work_end_ready(const char *call, dhs_context *context, const struct dhs_work *work);
/* Makes `stream` wait for a recorded work; NULL is nothing.  Also when the work
 * ran on a stream of that name: an engine may have destroyed it, and the name may
 * be another stream's by now. */
int dhs_work_wait(dhs_context *context, struct dhs_work *work, dhs_stream stream);
int dhs_work_sync(dhs_context *context, struct dhs_work *work);
int dhs_work_query(dhs_context *context, struct dhs_work *work, int *passed);
/* Forgets works that have passed. */
void dhs_works_collect(dhs_context *context);
/* Waits for every recorded work. */
int dhs_works_sync(dhs_context *context);

static inline int dhs_work_open(const struct dhs_work *work)
{
	return work && work->state == DHS_WORK_OPEN;
}

/* 1 if an open work other than `but` keeps what `after` belongs to. */
static inline int dhs_after_open(const struct dhs_after *after, const struct dhs_work *but)
{
	return (dhs_work_open(after->work[0]) && after->work[0] != but) ||
	       (dhs_work_open(after->work[1]) && after->work[1] != but);
}

void dhs_after_set(dhs_context *context, struct dhs_after *after, struct dhs_work *reader,
                   struct dhs_work *copy);
/* `stream` waits for both, and they are forgotten. */
int dhs_after_wait(dhs_context *context, struct dhs_after *after, dhs_stream stream);

#endif
