/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Rows kept in the library: everything here that an engine must do to use it is in kv.c. */
#ifndef DECODE_KV_H
#define DECODE_KV_H

#include "model.h"
#include "rows.h"

#include <dhisparse/dhisparse.h>

struct kv_options {
	uint32_t backend, policy; /* DHS_BACKEND_..., DHS_POLICY_... */
	uint32_t sessions;        /* at a time, one a seat */
	uint32_t max_rows;        /* of a session */
	uint32_t max_new_rows;    /* of a session in a step */
	uint32_t hot_rows, tail_rows, page_rows;
	uint64_t device_rows; /* of the pool; 0: as many as are needed to refuse nothing */
	uint64_t host_seed;   /* of the host backend's device; 0: work runs at once, in order */
};

/* Where the rows of all sessions are now. */
struct kv_places {
	uint64_t rows, device_rows, host_only_rows;
	uint64_t hot_rows; /* in hot caches, summed over sessions and groups, while none has left */
	uint64_t pool_rows;
};

struct rows *kv_open(const struct model *model, const struct kv_options *options);
void kv_close(struct rows *rows);

/* Dies, with what the library says, if a call failed. */
void must(int result);

/* The library's counters up to the last step. */
void kv_stats(struct rows *rows, dhs_stats *stats);
/* The same without a wait: what steps counted on the device is that of the last but one. */
void kv_stats_now(struct rows *rows, dhs_stats *stats);
void kv_places(struct rows *rows, struct kv_places *places);

#endif
