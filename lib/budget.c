/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * How many pages of a pool a device's memory leaves, beside what an engine keeps there for
 * every row of its sessions and never lends, and how many sessions that holds.  All bytes come
 * from the calculators by which contexts and batches are made.
 */
#include "setup.h"

#include <stdio.h>

#define MOST_BYTES ((uint64_t)1 << 60)

/* The parts of a budget for some number of sessions. */
struct parts {
	uint32_t sessions, session_pages, staging_pages, pages;
	uint32_t usable; /* of pages: neither reserved nor staging */
	uint64_t host_rows, engine, tables, batches, left;
	struct dhs_setup u;
};

/* ---- checks ---- */

static int read_budget(const dhs_budget *from, dhs_budget *b)
{
	int rc = dhs_options_read("dhs_pool_budget", "budget", from, b, sizeof(*b), sizeof(*b));

	if (rc == DHS_OK && b->flags)
		rc = dhs_fail(DHS_ERR_ARGUMENT, "dhs_pool_budget: budget->flags is %#x; no flag is known",
		              b->flags);
	if (rc == DHS_OK && b->batches)
		rc = dhs_options_check_pointer("dhs_pool_budget", "budget->batch", b->batch,
		                               sizeof(*b->batch));
	return rc;
}

static int check_limit(const char *name, uint64_t value, uint64_t least, uint64_t most)
{
	if (value < least || value > most)
		return dhs_fail(
			DHS_ERR_ARGUMENT, "dhs_pool_budget: budget->%s is %llu; it must be %llu to %llu", name,
			(unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
	return DHS_OK;
}

static int check_budget(const dhs_budget *b, const dhs_context_options *o)
{
	int rc = check_limit("device_bytes", b->device_bytes, 1, MOST_BYTES);

	if (rc == DHS_OK)
		rc = check_limit("row_bytes", b->row_bytes, 0, UINT32_MAX);
	if (rc == DHS_OK)
		rc = check_limit("session_bytes", b->session_bytes, 0, MOST_BYTES);
	if (rc == DHS_OK)
		rc = check_limit("rows", b->rows, 1, o->max_rows);
	if (rc == DHS_OK)
		rc = check_limit("sessions", b->sessions, 0, o->max_sessions);
	return rc;
}

/* Pages of the pool are what is asked for. */
static int read_context(const dhs_context_options *from, dhs_context_options *o)
{
	int rc = dhs_options_read("dhs_pool_budget", "context", from, o, sizeof(*o), sizeof(*o));

	if (rc == DHS_OK && o->device_pages)
		rc =
			dhs_fail(DHS_ERR_ARGUMENT,
		             "dhs_pool_budget: context->device_pages is %u; it must be 0, as it is what is "
		             "asked for",
		             o->device_pages);
	o->size = sizeof(*o);
	return rc;
}

/* ---- parts ---- */

static uint64_t session_rows(const dhs_budget *b, const struct dhs_setup *u)
{
	uint32_t page_rows = u->layout.layout.page_rows;

	return u->o.policy == DHS_POLICY_FULL ? 0
	                                      : (uint64_t)dhs_ceil_div(b->rows, page_rows) * page_rows;
}

/* Host rows of the context: its own, or what the sessions need, as far as a tier can be. */
static uint64_t context_rows(const dhs_budget *b, const struct parts *p)
{
	uint64_t page_rows = p->u.layout.layout.page_rows;
	uint64_t page_bytes = page_rows * p->u.layout.row_bytes * p->u.layout.layout.layers;
	uint64_t pages = MOST_BYTES / page_bytes - 1, need = p->sessions * session_rows(b, &p->u);

	if (pages >= INT32_MAX)
		pages = INT32_MAX - 1;
	if (p->u.o.host_rows)
		return p->u.o.host_rows;
	return need < pages * page_rows ? need : pages * page_rows;
}

static int add_batches(const dhs_context_options *o, const dhs_budget *b, struct parts *p)
{
	p->staging_pages = 0;
	p->batches = 0;
	for (uint32_t i = 0; i < b->batches; i++) {
		dhs_required r = DHS_INIT(dhs_required);
		char cause[300];
		int rc = dhs_batch_required(o, b->batch[i], &r);

		if (rc) {
			snprintf(cause, sizeof(cause), "%s", dhs_last_error());
			return dhs_fail(rc, "dhs_pool_budget: budget->batch[%u]: %s", i, cause);
		}
		p->staging_pages += r.staging_pages;
		p->batches += r.device_bytes;
	}
	return DHS_OK;
}

/* The most pages that so many bytes are enough for. */
static uint32_t pages_in(const struct dhs_setup *u, uint64_t bytes)
{
	uint32_t fit = 0, most = INT32_MAX / u->layout.layout.page_rows;

	while (fit < most) {
		uint32_t middle = fit + (most - fit + 1) / 2;

		if (dhs_setup_pool_bytes(u, middle) <= bytes)
			fit = middle;
		else
			most = middle - 1;
	}
	return fit;
}

/* What `sessions` sessions leave of the bytes, and the pages in that. */
static int measure(const dhs_context_options *context, const dhs_budget *b, uint32_t sessions,
                   struct parts *p)
{
	dhs_context_options o = *context;
	dhs_required r = DHS_INIT(dhs_required);
	uint64_t taken;
	int rc;

	p->sessions = sessions;
	o.host_rows = p->host_rows = context_rows(b, p);
	rc = dhs_context_required(&o, &r);
	if (rc == DHS_OK)
		rc = add_batches(&o, b, p);
	if (rc)
		return rc;
	p->tables = r.device_bytes - r.pool_bytes;
	p->session_pages = p->u.o.policy == DHS_POLICY_FULL
	                       ? dhs_ceil_div(b->rows, p->u.layout.layout.page_rows)
	                       : r.session_pages;
	if (__builtin_mul_overflow(b->rows * b->row_bytes + b->session_bytes, sessions, &p->engine) ||
	    __builtin_add_overflow(p->engine, p->tables + p->batches, &taken))
		taken = UINT64_MAX;
	p->left = taken < b->device_bytes ? b->device_bytes - taken : 0;
	p->pages = pages_in(&p->u, p->left);
	p->usable = p->pages - dhs_min_u32(p->pages, p->u.o.reserved_pages);
	p->usable -= dhs_min_u32(p->usable, p->staging_pages);
	return DHS_OK;
}

static int host_fits(const dhs_budget *b, const struct parts *p)
{
	return p->sessions * session_rows(b, &p->u) <= p->host_rows;
}

static int fits(const dhs_budget *b, const struct parts *p)
{
	return host_fits(b, p) && p->usable >= (uint64_t)p->sessions * p->session_pages;
}

static int explain(const dhs_budget *b, const struct parts *p)
{
	if (!host_fits(b, p))
		return dhs_fail(
			DHS_ERR_HOST_MEMORY,
			"dhs_pool_budget: context->host_rows is %llu; %u sessions of %llu rows need "
			"%llu, in whole pages",
			(unsigned long long)p->host_rows, p->sessions, (unsigned long long)b->rows,
			(unsigned long long)(p->sessions * session_rows(b, &p->u)));
	return dhs_fail(
		DHS_ERR_DEVICE_MEMORY,
		"dhs_pool_budget: budget->device_bytes is %llu; %u sessions take %llu of the engine's, "
		"tables %llu and batches %llu, which leaves %u pages, %u without reserved ones and "
		"staging; "
		"they need %llu",
		(unsigned long long)b->device_bytes, p->sessions, (unsigned long long)p->engine,
		(unsigned long long)p->tables, (unsigned long long)p->batches, p->pages, p->usable,
		(unsigned long long)p->sessions * p->session_pages);
}

/* The most sessions that fit; more of them never fit better. */
static int most_sessions(const dhs_context_options *o, const dhs_budget *b, struct parts *p)
{
	uint32_t fit = 1, most = p->u.o.max_sessions;

	while (fit < most) {
		uint32_t middle = fit + (most - fit + 1) / 2;
		int rc = measure(o, b, middle, p);

		if (rc)
			return rc;
		if (fits(b, p))
			fit = middle;
		else
			most = middle - 1;
	}
	return measure(o, b, fit, p);
}

/* ---- the call ---- */

/* Sessions that can have all their rows on the device while the others have what they
 * require. */
static uint32_t whole_sessions(const dhs_budget *b, const struct parts *p)
{
	const dhs_context_options *o = &p->u.o;
	uint64_t aged = b->rows > o->tail_rows ? b->rows - o->tail_rows : 0;
	uint64_t history = aged / p->u.layout.layout.page_rows;
	uint64_t spare = p->usable - (uint64_t)p->sessions * p->session_pages;

	if (o->policy == DHS_POLICY_FULL || !history)
		return p->sessions;
	if (o->policy == DHS_POLICY_FIXED)
		return 0;
	return spare / history < p->sessions ? (uint32_t)(spare / history) : p->sessions;
}

static void write_result(const dhs_budget *b, const struct parts *p, dhs_budget_result *result)
{
	dhs_budget_result out = DHS_INIT(dhs_budget_result);

	out.device_pages = p->pages;
	out.sessions = p->sessions;
	out.whole_sessions = whole_sessions(b, p);
	out.host_rows = p->host_rows;
	out.engine_bytes = p->engine;
	out.context_bytes = p->tables;
	out.batch_bytes = p->batches;
	out.pool_bytes = dhs_setup_pool_bytes(&p->u, p->pages);
	out.left_bytes = p->left - out.pool_bytes;
	dhs_options_write(&out, sizeof(out), result);
}

int dhs_pool_budget(const dhs_context_options *context, const dhs_budget *budget,
                    dhs_budget_result *result)
{
	dhs_context_options o;
	dhs_budget b;
	struct parts p;
	int rc = read_context(context, &o);

	if (rc == DHS_OK)
		rc = dhs_setup_read("dhs_pool_budget", "context", &o, 1, &p.u);
	if (rc == DHS_OK)
		rc = read_budget(budget, &b);
	if (rc == DHS_OK)
		rc = check_budget(&b, &p.u.o);
	if (rc == DHS_OK)
		rc = dhs_options_check_output("dhs_pool_budget", "result", result);
	if (rc)
		return rc;
	rc = b.sessions ? measure(&o, &b, b.sessions, &p) : most_sessions(&o, &b, &p);
	if (rc == DHS_OK && !fits(&b, &p))
		rc = explain(&b, &p);
	if (rc == DHS_OK)
		write_result(&b, &p, result);
	return rc;
}
