/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "context.h"

/* Pages of all sessions together, kept as what is left of the pool. */
static void page_gauges(const dhs_context *context, struct dhs_stats *s)
{
	uint32_t owned, staging = 0, sessions = context->sessions.live - context->sessions.suspended;
	uint32_t required = context->world.geometry.hot_pages + context->tail_pages;
	uint64_t window_bytes = DHS_WINDOW_BYTES * context->world.geometry.most_layers;

	s->staging_bytes = 0;
	for (const dhs_batch *b = context->batches; b; b = b->next) {
		staging += b->pool_pages;
		s->staging_bytes += b->windows * window_bytes;
	}
	s->pages_reserved = context->pool.engine;
	s->pages_free = context->pool.free.count;
	s->pages_draining = context->pool.draining.count;
	s->pages_staging = staging;
	s->pages_coming = context->refill.count;
	s->pages_unbacked = context->unbacked;
	owned = context->pool.pages - s->pages_reserved - s->pages_free - s->pages_draining - staging;
	s->pages_required = context->policy == DHS_POLICY_FULL ? owned : sessions * required;
	s->pages_elastic = context->elastic_pages;
	s->pages_resident = owned - s->pages_required - s->pages_elastic;
}

void dhs_stats_publish(dhs_context *context)
{
	struct dhs_stats *s = &context->totals;
	uint64_t page_rows = context->world.geometry.page_rows;
	uint32_t used = context->tier.pages - context->tier.free_count - context->tier.draining_count;
	uint32_t batches = 0;

	page_gauges(context, s);
	for (const dhs_batch *b = context->batches; b; b = b->next)
		batches++;
	s->backend = context->backend;
	s->policy = context->policy;
	s->sessions = context->sessions.live;
	s->sessions_suspended = context->sessions.suspended;
	s->batches = batches;
	s->host_rows = context->tier.pages * page_rows;
	s->host_rows_used = used * page_rows;
	s->steps = context->next_step - 1;
	pthread_mutex_lock(&context->lock);
	context->stats = *s;
	pthread_mutex_unlock(&context->lock);
}

int dhs_context_stats(dhs_context *context, dhs_stats *stats)
{
	dhs_stats out;
	int rc;

	/* Not dhs_context_enter: `lost` belongs to who is in the context. */
	if (!context || context->magic != DHS_CONTEXT_MAGIC)
		return dhs_fail(DHS_ERR_ARGUMENT, "dhs_context_stats: context is %s",
		                context ? "dead" : "NULL");
	rc = dhs_options_check_output("dhs_context_stats", "stats", stats);
	if (rc)
		return rc;
	pthread_mutex_lock(&context->lock);
	out = context->stats;
	pthread_mutex_unlock(&context->lock);
	out.flags = context->ticker.us ? 0 : DHS_STATS_REPEATABLE;
	dhs_options_write(&out, sizeof(out), stats);
	return DHS_OK;
}
