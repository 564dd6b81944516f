/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory, arithmetic ------------------------------------------------------- */

struct block {
	struct block *next;
	uint64_t align;
};

/* Zeroed memory that lives as long as the model. */
void *model_memory(struct model *m, size_t bytes)
{
	struct block *b = calloc(1, sizeof *b + bytes);

	if (!b) {
		fprintf(stderr, "model: out of memory\n");
		exit(2);
	}
	b->next = m->memory;
	m->memory = b;
	return b + 1;
}

static uint64_t up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int full(const struct model *m)
{
	return m->config.policy == DHS_POLICY_FULL;
}

static int adaptive(const struct model *m)
{
	return m->config.policy == DHS_POLICY_ADAPTIVE;
}

static int keeps_history(const struct model *m)
{
	return adaptive(m) && !m->config.no_history;
}

struct model *model_new(const struct model_config *c)
{
	struct model *m = calloc(1, sizeof *m);
	uint32_t window = c->tail_rows + DHS_MAX_STEPS_IN_FLIGHT * c->max_new_rows;

	if (!m)
		exit(2);
	m->config = *c;
	m->hot_pages = full(m) ? 0 : (uint32_t)up(c->hot_rows, c->page_rows);
	m->tail_pages = full(m) ? 0 : (uint32_t)up(window, c->page_rows) + 1;
	m->max_pages = (uint32_t)up(c->max_rows, c->page_rows);
	m->free = model_memory(m, c->device_pages * sizeof *m->free);
	m->host_free = model_memory(m, c->host_pages * sizeof *m->host_free);
	m->session = model_memory(m, c->max_sessions * sizeof(void *));
	m->warmed = model_memory(m, c->max_sessions * sizeof *m->warmed);
	m->holder = model_memory(m, c->device_pages * sizeof(void *));
	m->taken = model_memory(m, c->device_pages * sizeof *m->taken);
	m->index = model_memory(m, c->max_sessions * sizeof *m->index);
	m->coming = model_memory(m, c->device_pages * sizeof *m->coming);
	for (m->indices = 0; m->indices < c->max_sessions; m->indices++)
		m->index[m->indices].number = m->indices;
	m->host_frees = c->host_pages;
	for (uint32_t i = 0; i < c->device_pages; i++)
		if (c->engine_pool || i < c->reserved_pages)
			m->holder[i] = &m->engine;
		else
			m->frees++;
	return m;
}

void model_free(struct model *m)
{
	for (struct block *b = m->memory, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	free(m);
}

/* ---- what still reads a page -------------------------------------------------- */

static int step_done(const struct model_step *t)
{
	return !t || !t->open || t->closing;
}

static int ready(const struct model_readers *r)
{
	return step_done(r->step[0]) && step_done(r->step[1]);
}

static void add_reader(struct model_readers *r, struct model_step *t)
{
	if (!t || !t->open || r->step[0] == t || r->step[1] == t)
		return;
	r->step[r->step[0] && r->step[0]->open ? 1 : 0] = t;
}

static uint32_t count_ready(const struct model_readers *r, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		n += (uint32_t)ready(&r[i]);
	return n;
}

/* Takes one out of a list: one that is ready, if there is one. */
static struct model_readers take_one(struct model_readers *list, uint32_t *count)
{
	uint32_t at = 0;
	struct model_readers r;

	while (at < *count && !ready(&list[at]))
		at++;
	if (at == *count)
		at = 0;
	r = list[at];
	memmove(&list[at], &list[at + 1], (*count - at - 1) * sizeof *list);
	--*count;
	return r;
}

static void put_one(struct model_readers *list, uint32_t *count, struct model_readers r)
{
	list[(*count)++] = r;
}

static struct model_page *new_page(struct model *m)
{
	struct model_page *page = model_memory(m, sizeof *page);

	page->number = -1;
	return page;
}

static struct model_places new_places(struct model *m, struct model_page **page, uint32_t pages,
                                      uint32_t count)
{
	struct model_places p = { pages, page, count, NULL };

	p.place = model_memory(m, count * sizeof *p.place);
	for (uint32_t i = 0; i < count; i++)
		p.place[i].slot = -1;
	return p;
}

static void own_places(struct model_places *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		p->place[i].of = p;
}

/* ---- pages of a session ------------------------------------------------------- */

/* Pages that lie wholly below settled length - tail_rows. */
static uint32_t aged_pages(const struct model *m, uint64_t settled)
{
	if (full(m) || settled < m->config.tail_rows)
		return 0;
	return (uint32_t)((settled - m->config.tail_rows) / m->config.page_rows);
}

static uint32_t pages_on_device(const struct model_session *s, uint32_t from, uint32_t to)
{
	uint32_t n = 0;

	for (uint32_t p = from; p < to; p++)
		n += s->table[p] != NULL;
	return n;
}

static uint32_t optional_pages(const struct model_session *s)
{
	return pages_on_device(s, 0, s->history);
}

static int lacks_copy(const struct model *m, const struct model_session *s, uint32_t p)
{
	return !m->config.eager && s->table[p] && s->copied[p] < m->config.page_rows;
}

/* Pages of history on the device that are not whole in host memory. */
static uint32_t pages_to_copy(const struct model *m, const struct model_session *s)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < s->history; p++)
		n += (uint32_t)lacks_copy(m, s, p);
	return n;
}

/* Tail pages, prefill and spares. */
static uint32_t working_pages(const struct model_session *s)
{
	return s->spares + pages_on_device(s, s->history, s->mapped);
}

/* Pages that a session keeps though it may not need them. */
static uint32_t kept_pages(const struct model *m, const struct model_session *s)
{
	return full(m) ? (uint32_t)up(s->reserve, m->config.page_rows) : m->tail_pages;
}

/* A page leaves the table and becomes a spare. */
static void unmap(struct model_session *s, uint32_t p)
{
	struct model_readers r = { { NULL, NULL } };

	s->table[p]->released = 1;
	s->table[p] = NULL;
	add_reader(&r, s->last);
	put_one(s->spare, &s->spares, r);
}

/* A spare, or a page of the pool where there is no spare, becomes page p. */
static void map(struct model *m, struct model_session *s, uint32_t p)
{
	if (s->spares)
		take_one(s->spare, &s->spares);
	else
		take_one(m->free, &m->frees);
	s->table[p] = new_page(m);
}

/* Spares beyond what the session keeps go back to the pool, the newest first. */
static void trim(struct model *m, struct model_session *s)
{
	while (s->spares && working_pages(s) > kept_pages(m, s))
		put_one(m->free, &m->frees, s->spare[--s->spares]);
}

/* A page of history leaves the device, with a copy, and becomes a spare. */
static void take_back(struct model *m, struct model_session *s, uint32_t p)
{
	unmap(s, p);
	m->stats.evicted_pages += (uint64_t)keeps_history(m);
	if (!m->config.eager)
		m->stats.backup_rows += m->config.page_rows - s->copied[p];
	s->copied[p] = m->config.page_rows;
}

enum model_state model_state(const struct model *m, const struct model_session *s, uint32_t p)
{
	if (p >= s->mapped)
		return MODEL_NONE;
	if (s->table[p])
		return p >= s->history ? MODEL_TAIL : lacks_copy(m, s, p) ? MODEL_ONLY : MODEL_BACKED;
	for (uint32_t i = 0; i < m->comings; i++)
		if (m->coming[i].session == s && m->coming[i].p == p)
			return MODEL_COMING;
	return MODEL_HOST;
}

uint32_t model_comings(const struct model *m, const struct model_session *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->comings; i++)
		n += !s || m->coming[i].session == s;
	return n;
}

/* Pages on their way to a session, or to all, are free again. */
static uint32_t call_off(struct model *m, const struct model_session *s)
{
	struct model_readers none = { { NULL, NULL } };
	uint32_t kept = 0, all = m->comings;

	for (uint32_t i = 0; i < all; i++)
		if (s && m->coming[i].session != s) {
			m->coming[kept++] = m->coming[i];
		} else {
			m->coming[i].page->released = 1;
			put_one(m->free, &m->frees, none);
		}
	m->comings = kept;
	return all - kept;
}

/* The page that ages under adaptive stays; another takes its place among the
 * session's own. */
static void replace(struct model *m, struct model_session *s)
{
	uint32_t p = 0;

	if (count_ready(m->free, m->frees) || call_off(m, NULL)) {
		put_one(s->spare, &s->spares, take_one(m->free, &m->frees));
		return;
	}
	while (!s->table[p])
		p++;
	take_back(m, s, p);
}

static void age(struct model *m, struct model_session *s)
{
	uint32_t to = aged_pages(m, s->settled);

	while (s->history < to) {
		uint32_t p = s->history++;

		if (!s->table[p])
			continue;
		if (!keeps_history(m))
			take_back(m, s, p);
		else if (working_pages(s) < m->tail_pages)
			replace(m, s);
	}
	trim(m, s);
}

/* ---- what optional pages are worth: docs/residency.md ---- */

struct fraction {
	uint64_t up, down;
};

static int below(struct fraction a, struct fraction b)
{
	return a.up * b.down < b.up * a.down;
}

static int idle(const struct model *m, const struct model_session *s)
{
	return m->steps >= s->used + 64;
}

static uint32_t elastic_pages(const struct model *m, const struct model_session *s)
{
	return s->hot_pages > m->hot_pages ? s->hot_pages - m->hot_pages : 0;
}

/* Hits by places, of the oldest bins that hold an eighth of the places together. */
static struct fraction edge(const struct model_session *s)
{
	struct fraction f = { 0, 0 };
	uint64_t all = 0;

	for (int b = 0; b < MODEL_AGES; b++)
		all += s->curve.places[b];
	for (int b = MODEL_AGES - 1; b >= 0 && f.down < all / 8; b--) {
		f.down += s->curve.places[b];
		f.up += s->curve.hits[b];
	}
	return f;
}

static struct fraction elastic_worth(const struct model *m, const struct model_session *s)
{
	struct fraction f = edge(s), none = { 0, 1 };

	if (idle(m, s) || !f.down)
		return none;
	f.up *= m->config.page_rows;
	return f;
}

/* Misses by absent pages of all sessions that are not on the device as a whole, and have missed. */
static struct fraction usual_worth(const struct model *m)
{
	struct fraction f = { 0, 0 }, none = { 0, 1 };

	for (uint32_t i = 0; i < m->config.max_sessions; i++) {
		const struct model_session *s = m->session[i];

		if (!s || s->suspended || optional_pages(s) == s->history || !s->curve.misses)
			continue;
		f.up += s->curve.misses;
		f.down += 256 * (uint64_t)(s->history - optional_pages(s));
	}
	return f.down ? f : none;
}

static struct fraction history_worth(const struct model *m, const struct model_session *s,
                                     struct fraction usual)
{
	return idle(m, s) ? (struct fraction){ 0, 1 } : usual;
}

enum { ANY, CLOSED, TO_COPY };

static int counts(const struct model *m, const struct model_session *s, int which)
{
	if (which == CLOSED)
		return !model_open(s);
	return which == ANY || (!s->failed && pages_to_copy(m, s));
}

/* Whose history is taken first: an idle one's, then that of the most pages. */
static int history_before(const struct model *m, const struct model_session *a,
                          const struct model_session *b)
{
	if (idle(m, a) != idle(m, b))
		return idle(m, a);
	return optional_pages(a) > optional_pages(b);
}

static struct model_session *cheapest_of(const struct model *m, int which, const char *gone)
{
	struct model_session *best = NULL;

	for (uint32_t i = 0; i < m->config.max_sessions; i++) {
		struct model_session *s = m->session[i];

		if (s && optional_pages(s) && counts(m, s, which) && !(gone && gone[i]) &&
		    (!best || history_before(m, s, best)))
			best = s;
	}
	return best;
}

static struct model_session *cheapest(const struct model *m, int which)
{
	return cheapest_of(m, which, NULL);
}

/* Those that would be free at once: no open step or extension uses them, or used them before. */
static uint32_t closed_elastic(const struct model *m, const struct model_session *s)
{
	uint32_t n = 0;

	for (uint32_t i = m->hot_pages; i < s->hot_pages && !model_open(s); i++)
		n += i < s->told || ready(&s->hot_page_readers[i]);
	return n;
}

/* The session whose elastic pages are worth least; closed: of those with some to be had at once. */
static struct model_session *cheapest_elastic(const struct model *m, int closed, const char *gone)
{
	struct model_session *best = NULL;

	for (uint32_t i = 0; i < m->config.max_sessions; i++) {
		struct model_session *s = m->session[i];

		if (!s || !(closed ? closed_elastic(m, s) : elastic_pages(m, s)) || (gone && gone[i]))
			continue;
		if (!best || below(elastic_worth(m, s), elastic_worth(m, best)))
			best = s;
	}
	return best;
}

/* ---- taking optional pages back ---- */

static void drop_hot_page(struct model *m, struct model_session *s)
{
	struct model_readers r = s->hot_page_readers[--s->hot_pages];

	s->hot_page[s->hot_pages]->released = 1;
	if (s->hot_pages < s->told) {
		add_reader(&r, s->last);
		s->told = s->hot_pages;
	}
	put_one(m->free, &m->frees, r);
}

static uint32_t take_elastic(struct model *m, struct model_session *s, uint32_t most)
{
	uint32_t n = 0;

	for (; n < most && elastic_pages(m, s); n++)
		drop_hot_page(m, s);
	m->stats.withdrawn_pages += n;
	return n;
}

static uint32_t take_history(struct model *m, struct model_session *s, uint32_t most)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < s->history && n < most; p++)
		if (s->table[p]) {
			take_back(m, s, p);
			n++;
		}
	trim(m, s);
	return n;
}

static uint32_t give_optional(struct model *m, struct model_session *s)
{
	uint32_t n = take_elastic(m, s, UINT32_MAX);

	return n + take_history(m, s, UINT32_MAX);
}

/* Pages of history that a session gives where so many are missing. */
static uint32_t gives(const struct model *m, const struct model_session *s, uint32_t missing)
{
	return m->config.whole ? optional_pages(s) : (uint32_t)smaller(optional_pages(s), missing);
}

/* An elastic page, or the history of a session: what is worth less. */
static int elastic_first(const struct model *m, const struct model_session *elastic,
                         const struct model_session *history, struct fraction usual)
{
	return elastic &&
	       (!history || !below(history_worth(m, history, usual), elastic_worth(m, elastic)));
}

/* The cheapest there is, what is on its way before all. */
static void reclaim(struct model *m, int closed, struct fraction usual, uint32_t missing)
{
	struct model_session *elastic, *history;

	if (call_off(m, NULL))
		return;
	elastic = cheapest_elastic(m, closed, NULL);
	history = cheapest_of(m, closed ? CLOSED : ANY, NULL);
	if (elastic_first(m, elastic, history, usual))
		take_elastic(m, elastic, 1);
	else
		take_history(m, history, gives(m, history, missing));
}

static uint32_t all_optional(const struct model *m, int closed)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->config.max_sessions; i++) {
		const struct model_session *s = m->session[i];

		if (s && !closed)
			n += optional_pages(s) + elastic_pages(m, s);
		else if (s && !model_open(s))
			n += optional_pages(s) + closed_elastic(m, s);
	}
	return n;
}

/* ---- host pages --------------------------------------------------------------- */

static uint32_t host_need(const struct model *m, const struct model_session *s, uint64_t bound)
{
	uint64_t need = up(larger(s->reserve, bound), m->config.page_rows);

	if (full(m) || need <= s->host_pages)
		return 0;
	return (uint32_t)need - s->host_pages;
}

static unsigned host_codes(const struct model *m, uint32_t need)
{
	if (need > m->host_frees)
		return MODEL_CODE(DHS_ERR_HOST_MEMORY);
	if (need > count_ready(m->host_free, m->host_frees))
		return MODEL_CODE(DHS_ERR_PENDING);
	return 0;
}

static void host_grow(struct model *m, struct model_session *s, uint64_t bound)
{
	for (uint32_t n = host_need(m, s, bound); n; n--)
		put_one(s->host_page, &s->host_pages, take_one(m->host_free, &m->host_frees));
}

static void host_shrink(struct model *m, struct model_session *s, uint64_t keep)
{
	uint64_t pages = up(keep, m->config.page_rows);

	while (s->host_pages > pages) {
		struct model_readers r = s->host_page[--s->host_pages];

		add_reader(&r, s->last);
		put_one(m->host_free, &m->host_frees, r);
	}
}

/* ---- what can be seen --------------------------------------------------------- */

uint64_t model_bound(const struct model *m, const struct model_session *s)
{
	uint64_t bound = s->settled;

	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		for (uint32_t e = 0; m->flight[i] && e < m->flight[i]->count; e++)
			if (m->flight[i]->entry[e].session == s && !m->flight[i]->entry[e].cancelled)
				bound += m->flight[i]->entry[e].new_rows;
	return bound;
}

/* An unsettled step counts the session in. */
int model_busy(const struct model *m, const struct model_session *s)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		for (uint32_t e = 0; m->flight[i] && e < m->flight[i]->count; e++)
			if (m->flight[i]->entry[e].session == s && !m->flight[i]->entry[e].cancelled)
				return 1;
	return 0;
}

int model_open(const struct model_session *s)
{
	return s->last && s->last->open; /* a step, or an extension that is not committed */
}

static uint32_t session_pages(const struct model_session *s)
{
	return s->hot_pages + s->spares + pages_on_device(s, 0, s->mapped);
}

static uint32_t required_pages(const struct model *m, const struct model_session *s)
{
	if (s->suspended)
		return 0;
	return full(m) ? session_pages(s) : m->hot_pages + m->tail_pages;
}

void model_pages(const struct model *m, dhs_stats *stats)
{
	uint32_t host_owned = 0;

	memset(stats, 0, sizeof *stats);
	stats->pages_free = count_ready(m->free, m->frees);
	stats->pages_draining = m->frees - stats->pages_free;
	for (uint32_t i = 0; i < m->config.device_pages; i++)
		stats->pages_reserved += m->holder[i] == &m->engine;
	for (uint32_t i = 0; i < m->config.max_sessions; i++) {
		struct model_session *s = m->session[i];

		if (!s)
			continue;
		stats->pages_required += required_pages(m, s);
		stats->pages_elastic += elastic_pages(m, s);
		stats->pages_resident += session_pages(s) - required_pages(m, s) - elastic_pages(m, s);
		stats->pages_unbacked += pages_to_copy(m, s);
		host_owned += s->host_pages;
		stats->sessions_suspended += (uint32_t)s->suspended;
	}
	stats->pages_coming = m->comings;
	stats->pages_resident += m->comings;
	stats->pages_staging = m->stats.pages_staging;
	stats->sessions = m->sessions;
	stats->batches = m->batches;
	stats->host_rows = (uint64_t)m->config.host_pages * m->config.page_rows;
	stats->host_rows_used = (uint64_t)host_owned * m->config.page_rows;
}

void model_info(const struct model *m, const struct model_session *s, dhs_session_info *info)
{
	uint32_t rows = m->config.page_rows;

	memset(info, 0, sizeof *info);
	info->rows = s->settled;
	info->rows_bound = model_bound(m, s);
	info->tokens = s->settled * m->config.tokens_per_row;
	for (uint32_t p = 0; (uint64_t)p * rows < s->settled; p++)
		if (s->table[p])
			info->device_rows += smaller(rows, s->settled - (uint64_t)p * rows);
	info->host_only_rows = s->settled - info->device_rows;
	info->flags = s->suspended ? DHS_SESSION_SUSPENDED : 0;
	info->resident_pages = optional_pages(s);
	info->required_pages = required_pages(m, s);
	info->elastic_pages = elastic_pages(m, s);
	info->host_rows = (uint64_t)s->host_pages * rows;
}

void model_refused(struct model *m, int code)
{
	if (code == DHS_ERR_DEVICE_MEMORY || code == DHS_ERR_HOST_MEMORY)
		m->stats.refusals++;
}

/* ---- sessions ----------------------------------------------------------------- */

/* Optional pages that a create takes back, and pages that it gets and that drain. */
static void foresee(const struct model *m, dhs_admission *a)
{
	char *gone = calloc(m->config.max_sessions, 1), *bare = calloc(m->config.max_sessions, 1);
	uint32_t now = a->pages_free, later = a->pages_draining, left = 0;
	struct fraction usual = usual_worth(m);
	struct model_session *elastic = NULL, *history;

	if (now + later < a->pages_needed)
		now += m->comings;
	while (now + later < a->pages_needed) {
		uint32_t pages;

		if (!left && (elastic = cheapest_elastic(m, 0, bare))) {
			left = elastic_pages(m, elastic);
			bare[elastic->index] = 1;
		}
		history = cheapest_of(m, ANY, gone);
		if (left && elastic_first(m, elastic, history, usual)) {
			uint32_t i = m->hot_pages + --left;
			int drains =
				i < elastic->told ? model_open(elastic) : !ready(&elastic->hot_page_readers[i]);

			a->evicted_pages++;
			++*(drains ? &later : &now);
			continue;
		}
		gone[history->index] = 1;
		pages = gives(m, history, a->pages_needed - now - later);
		a->evicted_pages += pages;
		*(model_open(history) ? &later : &now) += pages;
	}
	a->pending_pages = a->pages_needed > now ? a->pages_needed - now : 0;
	free(gone);
	free(bare);
}

void model_admission(const struct model *m, uint64_t reserve, dhs_admission *a)
{
	uint32_t pages = (uint32_t)up(reserve, m->config.page_rows), host;

	memset(a, 0, sizeof *a);
	host = count_ready(m->host_free, m->host_frees);
	if (!full(m)) {
		a->host_rows_needed = (uint64_t)pages * m->config.page_rows;
		a->host_rows_free = (uint64_t)host * m->config.page_rows;
		a->host_rows_draining = (uint64_t)(m->host_frees - host) * m->config.page_rows;
	}
	a->pages_needed = full(m) ? pages : m->hot_pages + m->tail_pages;
	a->pages_free = count_ready(m->free, m->frees);
	a->pages_draining = m->frees - a->pages_free;
	a->pages_coming = m->comings;
	a->pages_optional = all_optional(m, 0);
	a->sessions_free = m->config.max_sessions - m->sessions;
	a->verdict = DHS_ADMISSION_NO;
	if (!full(m) && pages > m->host_frees) {
		a->lack = DHS_LACK_HOST_ROWS;
	} else if (!a->sessions_free) {
		a->lack = DHS_LACK_SESSIONS;
	} else if (a->pages_needed > m->frees + a->pages_optional + m->comings) {
		a->lack = DHS_LACK_PAGES;
	} else {
		foresee(m, a);
		if (!full(m) && pages > host)
			a->lack = DHS_LACK_HOST_ROWS;
		else if (a->evicted_pages || a->pending_pages)
			a->lack = DHS_LACK_PAGES;
		a->verdict = a->lack ? DHS_ADMISSION_AFTER : DHS_ADMISSION_YES;
	}
}

uint32_t model_draining(const struct model_session *s)
{
	return s->hot_pages + s->spares - count_ready(s->hot_page_readers, s->hot_pages) -
	       count_ready(s->spare, s->spares);
}

unsigned model_may_create(struct model *m, uint64_t reserve)
{
	dhs_admission a;

	if (reserve > m->config.max_rows)
		return MODEL_CODE(DHS_ERR_ARGUMENT);
	model_admission(m, reserve, &a);
	if (a.verdict == DHS_ADMISSION_NO)
		return MODEL_CODE(a.lack == DHS_LACK_HOST_ROWS ? DHS_ERR_HOST_MEMORY
		                                               : DHS_ERR_DEVICE_MEMORY);
	return MODEL_CODE(a.lack == DHS_LACK_HOST_ROWS ? DHS_ERR_PENDING : 0);
}

/* The pages that a session needs at least. */
static void take_required(struct model *m, struct model_session *s)
{
	/* Places that were looked at may still name the pages of before. */
	s->hot_page = model_memory(m, (m->hot_pages + m->config.elastic_pages) * sizeof(void *));
	while (s->hot_pages < m->hot_pages) {
		s->hot_page[s->hot_pages] = new_page(m);
		put_one(s->hot_page_readers, &s->hot_pages, take_one(m->free, &m->frees));
	}
	while (s->spares < kept_pages(m, s))
		put_one(s->spare, &s->spares, take_one(m->free, &m->frees));
}

static void new_hot(struct model *m, struct model_session *s, struct model_hot *hot)
{
	uint32_t rows = full(m) ? 0 : m->config.hot_rows;

	hot->places = new_places(m, s->hot_page, s->hot_pages, rows);
	own_places(&hot->places);
	hot->count = rows;
	hot->more = model_memory(m, m->config.elastic_pages * sizeof(void *));
	rows += m->config.elastic_pages * m->config.page_rows;
	hot->row = model_memory(m, rows * sizeof *hot->row);
	hot->stamp = model_memory(m, rows * sizeof *hot->stamp);
	for (uint32_t i = 0; i < rows; i++)
		hot->row[i] = -1;
}

static struct model_session *new_session(struct model *m, uint64_t reserve)
{
	struct model_session *s = model_memory(m, sizeof *s);

	s->serial = ++m->serial;
	s->alive = 1;
	s->reserve = reserve;
	s->drop_from = UINT64_MAX;
	s->table = model_memory(m, m->max_pages * sizeof(void *));
	s->spare = model_memory(m, m->config.device_pages * sizeof *s->spare);
	s->hot_page_readers =
		model_memory(m, (m->hot_pages + m->config.elastic_pages) * sizeof *s->hot_page_readers);
	s->used = m->steps;
	s->copied = model_memory(m, m->max_pages * sizeof *s->copied);
	s->host_page = model_memory(m, m->config.host_pages * sizeof *s->host_page);
	s->version = model_memory(m, m->config.max_rows * sizeof *s->version);
	return s;
}

/* Evicts until so many pages are free or drain. */
static void make_room(struct model *m, uint32_t pages)
{
	struct fraction usual = usual_worth(m);

	while (m->frees < pages)
		reclaim(m, 0, usual, pages - m->frees);
}

struct model_session *model_create(struct model *m, uint64_t reserve, dhs_session handle)
{
	struct model_session *s = new_session(m, reserve);

	make_room(m, m->hot_pages + kept_pages(m, s));
	s->index = m->index[0].number;
	s->before = m->index[0].readers;
	memmove(&m->index[0], &m->index[1], (--m->indices) * sizeof m->index[0]);
	m->session[s->index] = s;
	m->sessions++;
	s->handle = handle;
	take_required(m, s);
	host_grow(m, s, 0);
	for (uint32_t g = 0; g < m->config.groups; g++)
		new_hot(m, s, &s->hot[g]);
	return s;
}

/* The page that a truncate cut and that is in host memory only. */
static int cut_page(const struct model *m, const struct model_session *s)
{
	return s->settled % m->config.page_rows && !s->table[s->settled / m->config.page_rows];
}

static uint32_t map_need(const struct model *m, const struct model_session *s, uint64_t bound)
{
	uint64_t pages = up(bound, m->config.page_rows);

	return (uint32_t)(pages > s->mapped ? pages - s->mapped : 0) + (uint32_t)cut_page(m, s);
}

/* Sets the length, reloads the cut page, and maps pages up to the bound. */
static void grow(struct model *m, struct model_session *s, uint64_t bound)
{
	if (cut_page(m, s)) {
		map(m, s, (uint32_t)(s->settled / m->config.page_rows));
		m->stats.reload_rows += s->settled % m->config.page_rows;
	}
	while (s->mapped < up(bound, m->config.page_rows))
		map(m, s, s->mapped++);
	host_grow(m, s, bound);
}

static void drop_hot(struct model *m, struct model_session *s)
{
	for (uint32_t g = 0; g < m->config.groups; g++)
		for (uint32_t i = 0; i < s->hot[g].count; i++)
			if (s->hot[g].row[i] >= 0 && (uint64_t)s->hot[g].row[i] >= s->drop_from)
				s->hot[g].row[i] = -1;
	s->drop_from = UINT64_MAX;
}

/* Device pages that an extend misses once the session has aged. */
static uint32_t extend_need(const struct model *m, const struct model_session *s, uint64_t bound)
{
	uint32_t need = map_need(m, s, bound);
	uint32_t from = (uint32_t)larger(s->history, aged_pages(m, s->settled));
	uint32_t spares;

	if (full(m))
		spares = s->spares;
	else
		spares = m->tail_pages - pages_on_device(s, from, s->mapped);
	return need > spares ? need - spares : 0;
}

static unsigned device_codes(const struct model *m, uint32_t need)
{
	if (need <= count_ready(m->free, m->frees) + all_optional(m, 1) + m->comings)
		return 0;
	if (need <= m->frees + all_optional(m, 0) + m->comings)
		return MODEL_CODE(DHS_ERR_PENDING);
	return MODEL_CODE(DHS_ERR_DEVICE_MEMORY);
}

unsigned model_may_extend(struct model *m, struct model_session *s, uint32_t rows)
{
	uint64_t bound = s->settled + rows;
	unsigned codes = 0;

	if (!rows || bound > m->config.max_rows)
		codes |= MODEL_CODE(DHS_ERR_ARGUMENT);
	if (s->extending || s->suspended)
		codes |= MODEL_CODE(DHS_ERR_ORDER);
	if (model_busy(m, s))
		codes |= MODEL_CODE(DHS_ERR_BUSY);
	if (codes)
		return codes;
	if (model_open(s) || !ready(&s->before) || count_ready(s->spare, s->spares) < s->spares)
		codes |= MODEL_CODE(DHS_ERR_PENDING);
	codes |= host_codes(m, host_need(m, s, bound));
	codes |= device_codes(m, extend_need(m, s, bound));
	return codes ? codes : MODEL_CODE(0);
}

/* Takes pages back until so many are free at once. */
static void free_pages(struct model *m, uint32_t pages)
{
	struct fraction usual = usual_worth(m);
	uint32_t have;

	while ((have = count_ready(m->free, m->frees)) < pages)
		reclaim(m, 1, usual, pages - have);
}

void model_extend(struct model *m, struct model_session *s, uint32_t rows)
{
	uint64_t bound = s->settled + rows;

	age(m, s);
	free_pages(m, map_need(m, s, bound) > s->spares ? map_need(m, s, bound) - s->spares : 0);
	drop_hot(m, s);
	grow(m, s, bound);
	s->device_rows = s->settled;
	s->extending = 1;
	s->used = m->steps;
	s->extension = rows;
	s->last = model_memory(m, sizeof *s->last);
	s->last->open = 1;
}

static void close_extension(struct model_session *s)
{
	if (s->extending)
		s->last->open = 0;
	s->extending = 0;
	s->extension = 0;
}

/* Pages from `page` on leave the table. */
static void unmap_from(struct model_session *s, uint64_t page)
{
	while (s->mapped > page)
		if (s->table[--s->mapped])
			unmap(s, s->mapped);
}

void model_commit_rows(struct model *m, struct model_session *s, uint32_t rows, uint32_t version)
{
	for (uint32_t i = 0; i < rows; i++)
		s->version[s->settled + i] = version;
	close_extension(s);
	s->used = m->steps;
	s->settled += rows;
	s->device_rows = s->settled;
	unmap_from(s, up(s->settled, m->config.page_rows));
	host_shrink(m, s, larger(s->reserve, s->settled));
	if (m->config.eager && !full(m))
		m->stats.mirrored_rows += rows;
	age(m, s);
}

/* Host copies of rows from `rows` on are void. */
static void forget_copies(const struct model *m, struct model_session *s, uint64_t rows)
{
	for (uint32_t p = (uint32_t)(rows / m->config.page_rows); p < m->max_pages; p++)
		s->copied[p] =
			(uint32_t)smaller(s->copied[p], larger(rows, (uint64_t)p * m->config.page_rows) -
		                                        (uint64_t)p * m->config.page_rows);
}

static void cancel(struct model *m, struct model_session *s)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		for (uint32_t e = 0; m->flight[i] && e < m->flight[i]->count; e++)
			if (m->flight[i]->entry[e].session == s)
				m->flight[i]->entry[e].cancelled = 1;
	close_extension(s);
}

void model_truncate(struct model *m, struct model_session *s, uint64_t rows)
{
	cancel(m, s);
	call_off(m, s);
	s->settled = rows;
	s->device_rows = rows;
	s->drop_from = smaller(s->drop_from, rows);
	unmap_from(s, up(rows, m->config.page_rows));
	forget_copies(m, s, rows);
	s->history = (uint32_t)smaller(s->history, aged_pages(m, rows));
	trim(m, s);
	host_shrink(m, s, larger(s->reserve, rows));
}

uint32_t model_evict(struct model *m, struct model_session *s)
{
	call_off(m, s);
	age(m, s);
	return give_optional(m, s);
}

/* Every page goes. */
static void give_all(struct model *m, struct model_session *s)
{
	call_off(m, s);
	while (s->mapped)
		if (s->table[--s->mapped]) {
			unmap(s, s->mapped);
			put_one(m->free, &m->frees, s->spare[--s->spares]);
		}
	while (s->spares)
		put_one(m->free, &m->frees, s->spare[--s->spares]);
	while (s->hot_pages)
		drop_hot_page(m, s);
}

void model_destroy(struct model *m, struct model_session *s)
{
	cancel(m, s);
	give_all(m, s);
	host_shrink(m, s, 0);
	s->alive = 0;
	m->session[s->index] = NULL;
	m->sessions--;
	m->index[m->indices].number = s->index;
	m->index[m->indices].readers = s->before;
	add_reader(&m->index[m->indices++].readers, s->last);
}

/* ---- suspend and resume ------------------------------------------------------- */

unsigned model_may_suspend(const struct model *m, const struct model_session *s)
{
	unsigned codes = 0;

	if (full(m))
		return MODEL_CODE(DHS_ERR_UNSUPPORTED);
	if (s->suspended || s->extending)
		return MODEL_CODE(DHS_ERR_ORDER);
	if (model_busy(m, s))
		codes |= MODEL_CODE(DHS_ERR_BUSY);
	else if (model_open(s) || !ready(&s->before) || count_ready(s->spare, s->spares) < s->spares ||
	         count_ready(s->hot_page_readers, s->hot_pages) < s->hot_pages)
		codes |= MODEL_CODE(DHS_ERR_PENDING);
	return codes ? codes : MODEL_CODE(0);
}

/* What leaves has a copy, those rows that had one already none more. */
static void leave(struct model *m, struct model_session *s, uint32_t p)
{
	uint64_t first = (uint64_t)p * m->config.page_rows;
	uint32_t rows =
		s->settled > first ? (uint32_t)smaller(s->settled - first, m->config.page_rows) : 0;

	if (!s->table[p])
		return;
	if (p < s->history && keeps_history(m))
		m->stats.evicted_pages++;
	if (!m->config.eager)
		m->stats.backup_rows += rows - s->copied[p];
	s->copied[p] = rows;
}

void model_suspend(struct model *m, struct model_session *s)
{
	s->history = (uint32_t)larger(s->history, aged_pages(m, s->settled));
	take_elastic(m, s, UINT32_MAX);
	for (uint32_t p = 0; p < s->mapped; p++)
		leave(m, s, p);
	give_all(m, s);
	s->mapped = (uint32_t)up(s->settled, m->config.page_rows);
	s->suspended = 1;
	m->stats.suspends++;
}

unsigned model_may_resume(const struct model *m, const struct model_session *s)
{
	unsigned codes;

	if (full(m))
		return MODEL_CODE(DHS_ERR_UNSUPPORTED);
	if (!s->suspended)
		return MODEL_CODE(DHS_ERR_ORDER);
	codes = device_codes(m, m->hot_pages + m->tail_pages);
	return codes ? codes : MODEL_CODE(0);
}

/* The rows of a hot cache are the same in other places. */
static void move_hot(struct model *m, struct model_session *s, uint32_t group)
{
	struct model_hot *hot = &s->hot[group];
	struct model_places *old = model_memory(m, sizeof *old);
	int unfinished = hot->misses && hot->fetched < m->config.group_layers[group];

	*old = hot->places;
	own_places(old);
	hot->places = new_places(m, s->hot_page, s->hot_pages, old->count);
	own_places(&hot->places);
	for (uint32_t i = 0; i < old->count; i++) {
		if (hot->row[i] < 0 || (uint64_t)hot->row[i] >= s->drop_from ||
		    (unfinished && hot->stamp[i] == hot->plan))
			continue;
		m->warmed[s->index].rows++;
		m->warmed[s->index].bytes += (uint64_t)m->config.group_layers[group] * m->config.row_bytes;
	}
}

void model_resume(struct model *m, struct model_session *s)
{
	free_pages(m, m->hot_pages + m->tail_pages);
	take_required(m, s);
	for (uint32_t p = s->history; p < s->mapped; p++)
		map(m, s, p);
	if (s->settled > (uint64_t)s->history * m->config.page_rows)
		m->stats.reload_rows += s->settled - (uint64_t)s->history * m->config.page_rows;
	for (uint32_t g = 0; g < m->config.groups; g++)
		move_hot(m, s, g);
	s->suspended = 0;
	s->used = m->steps;
	s->since = m->steps;
	m->stats.resumes++;
}

/* ---- pages of the engine ------------------------------------------------------ */

unsigned model_may_lend(const struct model *m, const int32_t *pages, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!ready(&m->taken[pages[i]]))
			return MODEL_CODE(DHS_ERR_PENDING);
	return MODEL_CODE(0);
}

void model_lend(struct model *m, const int32_t *pages, size_t count)
{
	struct model_readers none = { { NULL, NULL } };

	for (size_t i = 0; i < count; i++) {
		m->holder[pages[i]] = NULL;
		put_one(m->free, &m->frees, none);
	}
}

size_t model_idle_pages(const struct model *m)
{
	return count_ready(m->free, m->frees) + m->comings;
}

size_t model_may_take(const struct model *m)
{
	return m->frees + m->comings + (adaptive(m) ? all_optional(m, 0) : 0);
}

/* The lowest optional page of a session goes to the engine. */
static int take_lowest(struct model *m, struct model_session *s, int32_t number,
                       struct model_readers *readers)
{
	uint32_t p = 0;

	while (!s->table[p])
		p++;
	if (!model_see_page(m, s->table[p], number))
		return 0;
	take_back(m, s, p);
	*readers = s->spare[--s->spares];
	return 1;
}

/* The cheapest elastic page goes to the engine. */
static int take_last(struct model *m, struct model_session *s, int32_t number,
                     struct model_readers *readers)
{
	if (!model_see_page(m, s->hot_page[s->hot_pages - 1], number))
		return 0;
	take_elastic(m, s, 1);
	*readers = m->free[--m->frees];
	return 1;
}

/* Free pages first, then those on their way, then the cheapest: an elastic page, or history of
 * one session as far as it goes; then pages that drain. */
int model_take(struct model *m, const int32_t *pages, size_t count, struct model_step **steps)
{
	struct model_session *from = NULL, *elastic;
	struct fraction usual = usual_worth(m);

	for (size_t i = 0; i < count; i++) {
		struct model_readers *readers = &m->taken[pages[i]];

		from = from && optional_pages(from) ? from : NULL;
		elastic = NULL;
		if (!count_ready(m->free, m->frees))
			call_off(m, NULL);
		if (!count_ready(m->free, m->frees) && !from) {
			elastic = cheapest_elastic(m, 0, NULL);
			from = adaptive(m) ? cheapest_of(m, ANY, NULL) : NULL;
			if (elastic_first(m, elastic, from, usual))
				from = NULL;
		}
		if (from && !take_lowest(m, from, pages[i], readers))
			return 0;
		if (!from && elastic && !take_last(m, elastic, pages[i], readers))
			return 0;
		if (!from && !elastic)
			*readers = take_one(m->free, &m->frees);
		if (!model_see_page(m, &m->engine, pages[i]))
			return 0;
		steps[i] = from ? from->last : readers->step[step_done(readers->step[0])];
	}
	return 1;
}

/* ---- the scheduler ------------------------------------------------------------ */

static uint32_t lacks(const struct model *m, const struct model_session *s)
{
	return s->history - optional_pages(s) - model_comings(m, s);
}

static struct model_session *next_session(const struct model *m)
{
	struct model_session *best = NULL;

	for (uint32_t i = 0; i < m->config.max_sessions && keeps_history(m); i++) {
		struct model_session *s = m->session[i];

		if (s && !s->failed && !s->suspended && lacks(m, s) && !idle(m, s) &&
		    (!best || lacks(m, s) < lacks(m, best)))
			best = s;
	}
	return best;
}

static struct model_session *neediest(const struct model *m)
{
	struct model_session *best = NULL;

	for (uint32_t i = 0; i < m->config.max_sessions; i++) {
		struct model_session *s = m->session[i];

		if (!s || s->failed || s->suspended || s->history == optional_pages(s) || idle(m, s) ||
		    elastic_pages(m, s) == m->config.elastic_pages ||
		    s->curve.empty >= m->config.page_rows || !edge(s).up)
			continue;
		if (!best || below(elastic_worth(m, best), elastic_worth(m, s)))
			best = s;
	}
	return best;
}

/* How many elastic pages a session gets at a time. */
static uint32_t portion(const struct model *m, const struct model_session *s)
{
	return (uint32_t)smaller(larger(1, m->hot_pages / 8),
	                         m->config.elastic_pages - elastic_pages(m, s));
}

static void grant(struct model *m, struct model_session *s, uint32_t pages)
{
	for (uint32_t i = 0; i < pages; i++) {
		s->hot_page[s->hot_pages] = new_page(m);
		put_one(s->hot_page_readers, &s->hot_pages, take_one(m->free, &m->frees));
	}
	m->stats.granted_pages += pages;
}

/* Free pages above the low watermark, to those who gain more by them than history would. */
static void grow_elastic(struct model *m)
{
	const struct model_session *next = next_session(m);
	struct model_session *s;

	while ((s = neediest(m))) {
		uint32_t free = count_ready(m->free, m->frees);

		if (free <= m->config.refill_low ||
		    (next && !below(history_worth(m, next, usual_worth(m)), elastic_worth(m, s))))
			return;
		free = (uint32_t)smaller(portion(m, s), free - m->config.refill_low);
		s->curve.empty += free * m->config.page_rows;
		grant(m, s, free);
	}
}

static struct fraction twice(struct fraction f)
{
	f.up *= 2;
	return f;
}

/* Pages for one session that are worth less than half where they are. */
static uint32_t take_for(struct model *m, const struct model_session *to, struct fraction usual)
{
	struct model_session *from = cheapest(m, ANY);

	if (from && below(twice(history_worth(m, from, usual)), elastic_worth(m, to)))
		return take_history(m, from, portion(m, to));
	from = cheapest_elastic(m, 0, NULL);
	if (from && from != to && below(twice(elastic_worth(m, from)), elastic_worth(m, to)))
		return take_elastic(m, from, portion(m, to));
	return 0;
}

/* For up to eight sessions, which get them when all are taken. */
static void balance(struct model *m)
{
	struct fraction usual = usual_worth(m);
	struct model_session *to[8];
	uint32_t pages[8], n = 0;

	for (; n < 8 && (to[n] = neediest(m)); n++) {
		pages[n] = take_for(m, to[n], usual);
		if (!pages[n])
			break;
		to[n]->curve.empty += pages[n] * m->config.page_rows;
	}
	for (uint32_t i = 0; i < n; i++)
		grant(m, to[i], pages[i]);
}

/* One idle session, if somebody lacks history. */
static void free_idle(struct model *m)
{
	for (uint32_t i = 0; i < m->config.max_sessions && next_session(m); i++) {
		struct model_session *s = m->session[i];

		if (s && idle(m, s) && optional_pages(s) + elastic_pages(m, s)) {
			give_optional(m, s);
			return;
		}
	}
}

static int comes(const struct model *m, const struct model_session *s, uint32_t p)
{
	for (uint32_t i = 0; i < m->comings; i++)
		if (m->coming[i].session == s && m->coming[i].p == p)
			return 1;
	return 0;
}

static void land(struct model *m)
{
	uint32_t n = 0;

	for (; n < m->comings && m->coming[n].tick + 2 <= m->stats.ticks; n++) {
		m->coming[n].session->table[m->coming[n].p] = m->coming[n].page;
		m->stats.refilled_pages++;
	}
	m->comings -= n;
	memmove(m->coming, m->coming + n, m->comings * sizeof *m->coming);
}

static uint64_t bytes_of_page(const struct model *m)
{
	uint64_t layers = 0;

	for (uint32_t g = 0; g < m->config.groups; g++)
		layers += m->config.group_layers[g];
	return layers * m->config.page_rows * m->config.row_bytes;
}

static uint64_t pages_in_tick(struct model *m, uint64_t fetched)
{
	uint64_t used = fetched - m->fetched;

	m->fetched = fetched;
	if (used >= m->config.link_bytes)
		return 0;
	return (m->config.link_bytes - used) / bytes_of_page(m);
}

static void refill(struct model *m, uint64_t most)
{
	struct model_session *s = NULL;

	while (m->filling) {
		uint32_t p;

		s = s && lacks(m, s) ? s : next_session(m);
		if (!s || count_ready(m->free, m->frees) <= m->config.refill_low)
			m->filling = 0;
		if (!m->filling || !most--)
			return;
		for (p = s->history - 1; s->table[p] || comes(m, s, p); p--)
			;
		take_one(m->free, &m->frees);
		m->coming[m->comings++] = (struct model_coming){ s, p, m->stats.ticks, new_page(m) };
		m->stats.refill_bytes += bytes_of_page(m);
	}
}

static void copy_history(struct model *m)
{
	uint64_t most = m->config.link_bytes / bytes_of_page(m);

	for (; most; most--) {
		struct model_session *s = cheapest(m, TO_COPY);
		uint32_t p = 0;

		if (!s)
			return;
		while (!lacks_copy(m, s, p))
			p++;
		m->stats.backup_rows += m->config.page_rows - s->copied[p];
		s->copied[p] = m->config.page_rows;
	}
}

void model_advance(struct model *m, uint64_t fetched)
{
	uint64_t most;

	m->stats.ticks++;
	if (!adaptive(m))
		return;
	land(m);
	most = pages_in_tick(m, fetched);
	if (count_ready(m->free, m->frees) >= m->config.refill_high)
		m->filling = 1;
	if (m->filling)
		grow_elastic(m);
	refill(m, most);
	if (!m->filling) {
		free_idle(m);
		balance(m);
	}
	if (m->config.background)
		copy_history(m);
}

/* ---- batches ------------------------------------------------------------------ */

unsigned model_may_batch(const struct model *m, uint32_t staging_pages)
{
	if (m->config.behind && staging_pages)
		return 0; /* nothing is right then */
	if (staging_pages > m->frees + all_optional(m, 0) + m->comings)
		return MODEL_CODE(DHS_ERR_DEVICE_MEMORY);
	return MODEL_CODE(0);
}

struct model_batch *model_batch_create(struct model *m, const dhs_batch_options *o,
                                       uint32_t staging_pages, uint32_t staging_rows)
{
	struct model_batch *b = model_memory(m, sizeof *b);
	struct model_page **page;
	uint32_t pages = staging_pages;

	b->alive = 1;
	b->max_sessions = o->max_sessions ? o->max_sessions : m->config.max_sessions;
	b->max_queries = o->max_queries ? o->max_queries : 1;
	b->top_k = o->top_k;
	b->buffers = o->staging_buffers ? o->staging_buffers : 1;
	b->staging_rows = staging_rows;
	b->read_pad = o->read_pad || (o->flags & DHS_BATCH_READ_PAD) ? o->read_pad : -1;
	b->write_pad = o->write_pad || (o->flags & DHS_BATCH_WRITE_PAD) ? o->write_pad : -1;
	make_room(m, staging_pages);
	if (m->config.behind)
		pages = (uint32_t)up((uint64_t)b->buffers * staging_rows, m->config.page_rows);
	page = model_memory(m, pages * sizeof(void *));
	b->staging_readers = model_memory(m, pages * sizeof *b->staging_readers);
	for (uint32_t i = 0; i < pages; i++) {
		page[i] = new_page(m);
		page[i]->behind = m->config.behind;
		if (!m->config.behind)
			b->staging_readers[i] = take_one(m->free, &m->frees);
	}
	b->staging = new_places(m, page, pages, b->buffers * staging_rows);
	own_places(&b->staging);
	m->stats.pages_staging += staging_pages;
	m->batches++;
	return b;
}

void model_batch_destroy(struct model *m, struct model_batch *b)
{
	for (uint32_t i = 0; i < b->staging.pages; i++) {
		b->staging.page[i]->released = 1;
		if (!m->config.behind)
			put_one(m->free, &m->frees, b->staging_readers[i]);
	}
	if (!m->config.behind)
		m->stats.pages_staging -= b->staging.pages;
	m->batches--;
	b->alive = 0;
}

/* ---- begin, settle, abort ----------------------------------------------------- */

/* Marks the steps whose end this begin records. */
static void mark_closing(struct model *m, struct model_batch *b, const struct model_entry_ask *ask,
                         uint32_t count, int mark)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++) {
		struct model_step *t = m->flight[i];

		if (!t)
			continue;
		t->closing = mark && t->batch == b;
		for (uint32_t e = 0; mark && e < count; e++)
			if (ask[e].session && ask[e].session->last == t)
				t->closing = 1;
	}
}

static uint32_t staging_share(const struct model *m, const struct model_batch *b, uint32_t queries,
                              uint64_t bound)
{
	uint64_t most = smaller((uint64_t)queries * b->top_k, bound);

	if (full(m) || most <= m->config.hot_rows)
		return 0;
	return (uint32_t)(most - m->config.hot_rows);
}

static unsigned session_codes(const struct model *m, const struct model_session *s, uint64_t bound)
{
	unsigned codes = 0;

	if (s->failed)
		codes |= MODEL_CODE(DHS_ERR_MISMATCH);
	if (s->extending || s->suspended)
		codes |= MODEL_CODE(DHS_ERR_ORDER);
	if (bound > m->config.max_rows)
		codes |= MODEL_CODE(DHS_ERR_ARGUMENT);
	if (!ready(&s->before) || count_ready(s->spare, s->spares) < s->spares ||
	    count_ready(s->hot_page_readers, m->hot_pages) < m->hot_pages)
		codes |= MODEL_CODE(DHS_ERR_PENDING);
	return codes;
}

static unsigned begin_codes(struct model *m, struct model_batch *b,
                            const struct model_entry_ask *ask, uint32_t count)
{
	uint32_t device = 0, host = 0, staging = 0;
	unsigned codes = 0;

	for (uint32_t e = 0; e < count; e++) {
		struct model_session *s = ask[e].session;
		uint64_t bound;
		uint32_t need;

		if (!s)
			continue;
		bound = model_bound(m, s) + ask[e].new_rows;
		codes |= session_codes(m, s, bound);
		need = map_need(m, s, bound);
		device += full(m) && need > s->spares ? need - s->spares : 0;
		host += host_need(m, s, bound);
		staging += staging_share(m, b, ask[e].queries, bound);
	}
	codes |= host_codes(m, host);
	if (staging > b->staging_rows || device > m->frees)
		codes |= MODEL_CODE(DHS_ERR_DEVICE_MEMORY);
	else if (device > count_ready(m->free, m->frees))
		codes |= MODEL_CODE(DHS_ERR_PENDING);
	return codes;
}

unsigned model_may_begin(struct model *m, struct model_batch *b, const struct model_entry_ask *ask,
                         uint32_t count)
{
	unsigned codes = 0;

	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (m->flight[i] && m->flight[i]->number + DHS_MAX_STEPS_IN_FLIGHT <= m->steps)
			codes |= MODEL_CODE(DHS_ERR_ORDER);
	mark_closing(m, b, ask, count, 1);
	codes |= begin_codes(m, b, ask, count);
	if (count_ready(b->staging_readers, b->staging.pages) < b->staging.pages)
		codes |= MODEL_CODE(DHS_ERR_PENDING);
	mark_closing(m, b, ask, count, 0);
	return codes ? codes : MODEL_CODE(0);
}

/* The device has a group's hot cache up to this page, the ones from `from` on as new pages. */
static void place_pages(struct model *m, struct model_session *s, struct model_hot *hot,
                        uint32_t from, uint32_t to)
{
	for (uint32_t p = from; p < to; p++) {
		struct model_places *places = model_memory(m, sizeof *places);

		*places = new_places(m, &s->hot_page[p], 1, m->config.page_rows);
		places->page = model_memory(m, sizeof(void *));
		places->page[0] = s->hot_page[p];
		own_places(places);
		hot->more[p - m->hot_pages] = places;
	}
	for (uint32_t i = m->config.hot_rows + (from - m->hot_pages) * m->config.page_rows;
	     i < m->config.hot_rows + (to - m->hot_pages) * m->config.page_rows; i++)
		hot->row[i] = -1;
	hot->count = m->config.hot_rows + (to - m->hot_pages) * m->config.page_rows;
}

/* Elastic pages up to the first that still drains are the hot cache's from this step on. */
static void tell_hot(struct model *m, struct model_session *s)
{
	uint32_t from = (uint32_t)larger(s->told, m->hot_pages), to = from;

	if (full(m))
		return;
	while (to < s->hot_pages && ready(&s->hot_page_readers[to]))
		to++;
	for (uint32_t g = 0; g < m->config.groups; g++)
		place_pages(m, s, &s->hot[g], from, to);
	s->told = to;
}

static void begin_entry(struct model *m, struct model_step *t, struct model_entry *e,
                        const struct model_entry_ask *ask)
{
	struct model_session *s = ask->session;
	uint64_t bound;

	e->session = s;
	if (!s)
		return;
	bound = model_bound(m, s) + ask->new_rows;
	e->new_rows = ask->new_rows;
	e->queries = ask->queries;
	e->version = ++m->versions;
	e->share = staging_share(m, t->batch, ask->queries, bound);
	m->stats.warmed_rows += m->warmed[s->index].rows;
	m->stats.warm_bytes += m->warmed[s->index].bytes;
	m->warmed[s->index] = (struct model_warmed){ 0, 0 };
	age(m, s);
	drop_hot(m, s);
	tell_hot(m, s);
	s->used = m->steps;
	grow(m, s, bound);
	e->base = s->device_rows;
	e->mapped = s->mapped;
	e->table = model_memory(m, s->mapped * sizeof(void *));
	memcpy(e->table, s->table, s->mapped * sizeof(void *));
	if (pages_on_device(s, 0, (uint32_t)up(bound, m->config.page_rows)) <
	    up(bound, m->config.page_rows))
		t->resident = 0;
	s->last = t;
}

struct model_step *model_begin(struct model *m, struct model_batch *b,
                               const struct model_entry_ask *ask, uint32_t count)
{
	struct model_step *t = model_memory(m, sizeof *t);

	mark_closing(m, b, ask, count, 1);
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (m->flight[i] && m->flight[i]->closing)
			m->flight[i]->open = m->flight[i]->closing = 0;
	m->recent[m->steps % DHS_MAX_STEPS_IN_FLIGHT] = t;
	t->number = m->steps++;
	t->batch = b;
	t->open = t->unsettled = t->resident = 1;
	t->count = count;
	for (uint32_t e = 0; e < count; e++)
		begin_entry(m, t, &t->entry[e], &ask[e]);
	m->flight[m->flight[0] ? 1 : 0] = t;
	b->step = t;
	m->stats.steps++;
	return t;
}

/* An eighth of the new, seven of the old. */
static void weigh(uint32_t *mean, uint32_t sample)
{
	*mean = *mean - *mean / 8 + 32 * sample;
}

static void weigh_sample(struct model_curve *c, const struct model_sample *x)
{
	if (x->plans)
		weigh(&c->misses, x->misses);
	if (!x->looked)
		return;
	c->empty = x->empty;
	for (int b = 0; b < MODEL_AGES; b++) {
		weigh(&c->places[b], x->places[b]);
		weigh(&c->hits[b], x->hits[b]);
	}
}

static void pass(struct model_step *t)
{
	for (uint32_t e = 0; !t->passed && e < t->count; e++)
		if (t->entry[e].session && t->entry[e].session->alive)
			weigh_sample(&t->entry[e].session->curve, &t->entry[e].sample);
	t->passed = 1;
}

void model_begins(struct model *m)
{
	struct model_step *t = m->recent[m->steps % DHS_MAX_STEPS_IN_FLIGHT];

	if (t && !t->unsettled)
		pass(t);
}

void model_passed(struct model *m, const struct model_batch *b)
{
	for (uint64_t i = m->steps; i < m->steps + DHS_MAX_STEPS_IN_FLIGHT; i++) {
		struct model_step *t = m->recent[i % DHS_MAX_STEPS_IN_FLIGHT];

		if (t && (!b || t->batch == b))
			pass(t);
	}
}

static void leave_flight(struct model *m, struct model_step *t)
{
	if (m->flight[0] == t)
		m->flight[0] = m->flight[1];
	m->flight[1] = NULL;
	t->open = t->unsettled = 0;
}

unsigned model_may_settle(const struct model *m, const struct model_step *t)
{
	if (!t->unsettled)
		return MODEL_CODE(DHS_ERR_ARGUMENT);
	return MODEL_CODE(m->flight[0] == t ? 0 : DHS_ERR_ORDER);
}

void model_settle(struct model *m, struct model_step *t, const uint32_t *kept)
{
	for (uint32_t e = 0; e < t->count; e++)
		if (t->entry[e].session && !t->entry[e].cancelled)
			t->entry[e].session->settled += kept[e];
	leave_flight(m, t);
	m->stats.steps_settled++;
}

void model_abort(struct model *m, struct model_step *t)
{
	leave_flight(m, t);
	m->stats.steps_aborted++;
}

/* ---- device: where new rows go ------------------------------------------------ */

static struct model_want pad(int32_t slot)
{
	struct model_want w = { 0 };

	w.kind = MODEL_PAD;
	w.pad = slot;
	return w;
}

static struct model_want row_want(const struct model_entry *e, uint64_t row)
{
	struct model_want w = { 0 };

	w.serial = e->session->serial;
	w.row = (uint32_t)row;
	w.version = row < e->base ? e->session->version[row] : e->version;
	return w;
}

/* Row `row` of the entry in its page, which is on the device. */
static struct model_want page_want(const struct model *m, const struct model_entry *e, uint64_t row)
{
	struct model_want w = row_want(e, row);

	w.kind = MODEL_PAGE;
	w.page = e->table[row / m->config.page_rows];
	w.offset = (uint32_t)(row % m->config.page_rows);
	return w;
}

/* The step that device calls of a batch are for; a call after its commit counts. */
static struct model_step *device_step(struct model *m, struct model_batch *b)
{
	if (!b->step)
		return NULL;
	if (!b->step->committed)
		return b->step;
	m->stats.order_errors++;
	return NULL;
}

struct model_want *model_slots(struct model *m, struct model_batch *b, uint32_t sessions,
                               uint32_t rows)
{
	struct model_want *w = model_memory(m, (size_t)sessions * rows * sizeof *w);
	struct model_step *t = device_step(m, b);
	int beyond = t && sessions < t->count;

	for (uint32_t e = 0; t && e < t->count; e++)
		beyond |= t->entry[e].new_rows > rows;
	m->stats.order_errors += (uint64_t)beyond;
	for (uint32_t e = 0; e < sessions; e++)
		for (uint32_t i = 0; i < rows; i++) {
			struct model_entry *entry = t && e < t->count ? &t->entry[e] : NULL;

			if (entry && entry->session && i < entry->new_rows)
				w[e * rows + i] = page_want(m, entry, entry->base + i);
			else
				w[e * rows + i] = pad(b->write_pad);
		}
	return w;
}

/* ---- device: plan ------------------------------------------------------------- */

/* Step 0: rows whose bytes never came are dropped. */
static void undo_unfinished(const struct model *m, uint32_t group, struct model_hot *hot)
{
	if (!hot->misses || hot->fetched >= m->config.group_layers[group])
		return;
	for (uint32_t i = 0; i < hot->count; i++)
		if (hot->row[i] >= 0 && hot->stamp[i] == hot->plan)
			hot->row[i] = -1;
}

static struct model_place *place_at(const struct model *m, struct model_hot *hot, uint32_t at)
{
	uint32_t behind = at - hot->places.count;

	return at < hot->places.count
	           ? &hot->places.place[at]
	           : &hot->more[behind / m->config.page_rows]->place[behind % m->config.page_rows];
}

static int find_hot(const struct model_hot *hot, int64_t row)
{
	for (uint32_t i = 0; i < hot->count; i++)
		if (hot->row[i] == row)
			return (int)i;
	return -1;
}

/* The place that gives way next, of those not chosen yet: the first empty one, else
 * the oldest; -1: none. */
static int oldest_place(const struct model_hot *hot, const char *chosen)
{
	int best = -1;

	for (uint32_t i = 0; i < hot->count; i++)
		if (hot->row[i] < 0 && !chosen[i])
			return (int)i;
	for (uint32_t i = 0; i < hot->count; i++)
		if (hot->row[i] >= 0 && hot->stamp[i] != hot->plan && !chosen[i] &&
		    (best < 0 || hot->stamp[i] < hot->stamp[best]))
			best = (int)i;
	return best;
}

struct miss {
	int64_t row;
	struct model_place *place;
	struct model_hot *hot; /* NULL: in staging */
};

static int compare_misses(const void *a, const void *b)
{
	const struct miss *x = a, *y = b;

	return x->row < y->row ? -1 : x->row > y->row;
}

/* Step 1 for one entry of the selection: its slot, or 0 for a miss. */
static int translate(struct model *m, struct model_entry *e, struct model_hot *hot, int64_t row,
                     int32_t read_pad, struct model_want *w)
{
	int at;

	if (row < 0 || (uint64_t)row >= e->base + e->new_rows) {
		*w = pad(read_pad);
		m->stats.bad_rows++;
		return 1;
	}
	if (e->table[row / m->config.page_rows]) {
		*w = page_want(m, e, (uint64_t)row);
		m->stats.page_hits++;
		return 1;
	}
	*w = row_want(e, (uint64_t)row);
	w->kind = MODEL_PLACE;
	at = find_hot(hot, row);
	w->missed = at < 0;
	if (at < 0)
		return 0;
	w->place = place_at(m, hot, (uint32_t)at);
	w->hot = hot;
	hot->stamp[at] = hot->plan;
	m->stats.hot_hits++;
	return 1;
}

static void fill_place(struct model *m, struct model_hot *hot, uint32_t at, struct miss *miss)
{
	m->stats.victims += hot->row[at] >= 0;
	hot->row[at] = miss->row;
	hot->stamp[at] = hot->plan;
	miss->place = place_at(m, hot, at);
	miss->hot = hot;
}

/* Step 2: places for the sorted misses of one session. */
static void place_misses(struct model *m, struct model_hot *hot, struct miss *miss, uint32_t count,
                         struct model_place *staging)
{
	char *chosen = calloc(hot->count + 1, 1);
	uint32_t next = 0;
	int at;

	for (uint32_t i = 0; i < count && (at = oldest_place(hot, chosen)) >= 0; i++)
		chosen[at] = 1;
	for (uint32_t i = 0; i < hot->count; i++)
		if (chosen[i])
			fill_place(m, hot, i, &miss[next++]);
	for (; next < count; next++) {
		miss[next].place = staging++;
		m->stats.staged++;
	}
	free(chosen);
}

static uint32_t collect_misses(const struct model_want *w, const char *missed, uint32_t count,
                               struct miss *miss)
{
	uint32_t n = 0, distinct = 0;

	for (uint32_t i = 0; i < count; i++)
		if (missed[i])
			miss[n++] = (struct miss){ w[i].row, NULL, NULL };
	qsort(miss, n, sizeof *miss, compare_misses);
	for (uint32_t i = 0; i < n; i++)
		if (!i || miss[i].row != miss[distinct - 1].row)
			miss[distinct++] = miss[i];
	return distinct;
}

static int age_bin(uint64_t age)
{
	int bin = 0;
	uint64_t from = 1, octave = 4;

	/* Ages 1, 2, 3, then each half of [4, 8), [8, 16) and so on. */
	while (bin < MODEL_AGES - 1) {
		uint64_t next = from < 4 ? from + 1 : from == octave ? octave + octave / 2 : 2 * octave;

		if (age < next)
			break;
		if (next == 2 * octave)
			octave = next;
		from = next;
		bin++;
	}
	return bin;
}

/* The hot cache before the plan. */
static void see_places(struct model_sample *x, const struct model_hot *hot)
{
	memset(x, 0, sizeof *x);
	x->plans = 1;
	for (uint32_t i = 0; i < hot->count; i++)
		if (hot->row[i] < 0)
			x->empty++;
		else
			x->places[age_bin(hot->plan - hot->stamp[i])]++;
}

/* And behind it: `before` are the stamps of then. */
static void see_hits(struct model_sample *x, const struct model_hot *hot, const uint64_t *before,
                     uint32_t misses, int looked)
{
	if (!looked)
		memset(x, 0, sizeof *x);
	x->plans = 1;
	x->looked = looked;
	x->misses = misses;
	for (uint32_t i = 0; looked && i < hot->count; i++)
		if (hot->row[i] >= 0 && hot->stamp[i] == hot->plan)
			x->hits[age_bin(hot->plan - before[i])]++;
}

/* One session's plan of one group: `count` selected rows, `w` their slots. */
static uint32_t plan_session(struct model *m, struct model_batch *b, struct model_entry *e,
                             struct model_hot *hot, const int32_t *rows, uint32_t count,
                             struct model_want *w, struct model_place *staging,
                             struct model_sample *sample)
{
	char *missed = calloc(count + 1, 1);
	struct miss *miss = calloc(count + 1, sizeof *miss);
	uint64_t *before = calloc(hot->count + 1, sizeof *before);
	uint32_t total = 0, n;
	int looked = 0;

	hot->plan++;
	if (sample) {
		see_places(sample, hot);
		memcpy(before, hot->stamp, hot->count * sizeof *before);
	}
	for (uint32_t i = 0; i < count; i++) {
		missed[i] = (char)!translate(m, e, hot, rows[i], b->read_pad, &w[i]);
		total += (uint32_t)missed[i];
		looked |= w[i].kind == MODEL_PLACE || missed[i];
	}
	n = collect_misses(w, missed, count, miss);
	if (sample)
		see_hits(sample, hot, before, n, looked);
	free(before);
	place_misses(m, hot, miss, n, staging);
	for (uint32_t i = 0; i < count; i++) {
		struct miss key = { w[i].row, NULL, NULL }, *found;

		if (!missed[i])
			continue;
		found = bsearch(&key, miss, n, sizeof *miss, compare_misses);
		w[i].place = found->place;
		w[i].hot = found->hot;
	}
	hot->misses = n;
	hot->fetched = 0;
	m->stats.plans++;
	m->stats.misses += n;
	m->stats.repeats += total - n;
	free(missed);
	free(miss);
	return n;
}

static struct model_plan *new_plan(struct model *m, struct model_batch *b, uint32_t group,
                                   const dhs_selection *shape)
{
	struct model_plan *p = model_memory(m, sizeof *p);

	p->group = group;
	p->sessions = shape->sessions ? shape->sessions : b->max_sessions;
	p->queries = shape->queries ? shape->queries : b->max_queries;
	p->top_k = shape->top_k ? shape->top_k : b->top_k;
	p->count = p->sessions * p->queries * p->top_k;
	p->want = model_memory(m, p->count * sizeof *p->want);
	for (uint32_t i = 0; i < p->count; i++)
		p->want[i] = pad(b->read_pad);
	return p;
}

/* A step leaves samples of one group: they take turns, by the steps' numbers from 1 on. */
static int measured(const struct model *m, const struct model_plan *p)
{
	return (p->step->number + 1) % m->config.groups == p->group;
}

static void plan_entries(struct model *m, struct model_batch *b, struct model_plan *p,
                         const int32_t *rows)
{
	uint64_t share = (b->turn % b->buffers) * b->staging_rows;
	uint32_t stride = p->queries * p->top_k;
	int beyond = 0;

	for (uint32_t i = 0; i < p->step->count; i++) {
		struct model_entry *e = &p->step->entry[i];
		uint32_t queries = (uint32_t)smaller(e->queries, p->queries);
		struct model_hot *hot;

		beyond |= i >= p->sessions || e->queries > p->queries;
		if (!e->session || !e->queries)
			continue;
		if (i < p->sessions) {
			hot = &e->session->hot[p->group];
			undo_unfinished(m, p->group, hot);
			p->misses += plan_session(m, b, e, hot, rows + (size_t)i * stride, queries * p->top_k,
			                          p->want + (size_t)i * stride, b->staging.place + share,
			                          measured(m, p) ? &e->sample : NULL);
			p->numbers[i] = hot->plan;
		}
		share += e->share;
	}
	m->stats.order_errors += (uint64_t)beyond;
}

struct model_plan *model_plan(struct model *m, struct model_batch *b, uint32_t group,
                              const dhs_selection *shape, const int32_t *rows)
{
	struct model_plan *p = new_plan(m, b, group, shape);

	p->step = device_step(m, b);
	if (!p->step)
		return p;
	plan_entries(m, b, p, rows);
	p->turn = b->turn++;
	b->plan[group] = p;
	return p;
}

/* ---- device: fetch, commit ---------------------------------------------------- */

static void mark_fetched(const struct model *m, struct model_plan *p, uint32_t first,
                         uint32_t layers)
{
	for (uint32_t l = first; l < first + layers; l++)
		p->fetched |= UINT64_C(1) << l;
	for (uint32_t i = 0; i < p->step->count; i++) {
		struct model_hot *hot;

		if (!p->numbers[i])
			continue;
		hot = &p->step->entry[i].session->hot[p->group];
		if (hot->plan != p->numbers[i])
			continue;
		while (hot->fetched < m->config.group_layers[p->group] && p->fetched >> hot->fetched & 1)
			hot->fetched++;
	}
}

void model_fetch(struct model *m, struct model_batch *b, uint32_t group, uint32_t first,
                 uint32_t layers)
{
	struct model_plan *p = b->plan[group];
	struct model_step *t = device_step(m, b);

	if (!layers)
		layers = m->config.group_layers[group] - first;
	if (!t)
		return;
	if (!p || p->step != t || b->turn > p->turn + b->buffers) {
		m->stats.order_errors++;
		return;
	}
	m->stats.fetched_bytes += (uint64_t)p->misses * layers * m->config.row_bytes;
	mark_fetched(m, p, first, layers);
}

static uint32_t clip(int64_t kept, uint32_t new_rows)
{
	return kept < 0 ? 0 : (uint32_t)smaller((uint64_t)kept, new_rows);
}

static void commit_entry(struct model *m, struct model_entry *e)
{
	if (m->config.eager && !full(m))
		m->stats.mirrored_rows += e->kept;
	if (e->cancelled)
		return;
	for (uint32_t i = 0; i < e->kept; i++)
		e->session->version[e->base + i] = e->version;
	e->session->device_rows = e->base + e->kept;
}

void model_commit(struct model *m, struct model_batch *b, uint32_t sessions, const int32_t *kept)
{
	struct model_step *t = device_step(m, b);
	int beyond = 0;

	if (!t)
		return;
	if (!sessions)
		sessions = b->max_sessions;
	for (uint32_t i = 0; i < t->count; i++) {
		struct model_entry *e = &t->entry[i];

		beyond |= i >= sessions;
		if (!e->session || i >= sessions)
			continue;
		e->kept = kept ? clip(kept[i], e->new_rows) : e->new_rows;
		commit_entry(m, e);
	}
	m->stats.order_errors += (uint64_t)beyond;
	t->committed = 1;
}

/* ---- slots that the library shows --------------------------------------------- */

/* A page of staging behind the pool: no two have one number at a time. */
static int see_behind(struct model *m, struct model_page *page, int32_t number)
{
	struct model_page **old = m->behind;
	uint32_t n = 0;

	m->fault = "a page of the pool";
	if ((uint32_t)number < m->config.device_pages)
		return 0;
	m->fault = "another page than before";
	if (page->number >= 0)
		return page->number == number;
	m->fault = "a page that another owner has";
	for (uint32_t i = 0; i < m->behinds; i++) {
		if (old[i]->released)
			continue;
		if (old[i]->number == number)
			return 0;
		m->behind[n++] = old[i];
	}
	m->behinds = n;
	if (n == m->most_behinds) {
		m->most_behinds = 2 * n + 16;
		m->behind = model_memory(m, m->most_behinds * sizeof(void *));
		for (uint32_t i = 0; i < n; i++)
			m->behind[i] = old[i];
	}
	m->behind[m->behinds++] = page;
	page->number = number;
	return 1;
}

int model_see_page(struct model *m, struct model_page *page, int32_t number)
{
	struct model_page *before;

	if (page->behind && number >= 0)
		return see_behind(m, page, number);
	m->fault = "a page outside the pool";
	if (number < 0 || (uint32_t)number >= m->config.device_pages)
		return 0;
	m->fault = "another page than before";
	if (page != &m->engine && page->number >= 0)
		return page->number == number;
	if (page->released) { /* seen late: the owner of now is not in question */
		page->number = number;
		return 1;
	}
	m->fault = "a page that another owner has";
	before = m->holder[number];
	if (before && !before->released)
		return 0;
	m->holder[number] = page;
	page->number = number;
	return 1;
}

/* The slot must lie in the owner's pages, and in no other place's. */
static int see_place(struct model *m, struct model_place *place, int32_t slot)
{
	struct model_places *of = place->of;
	int32_t number = slot / (int32_t)m->config.page_rows;
	struct model_page *page = NULL;

	m->fault = "another slot than before";
	if (place->slot >= 0)
		return place->slot == slot;
	m->fault = "a slot of another place";
	for (uint32_t i = 0; i < of->count; i++)
		if (of->place[i].slot == slot)
			return 0;
	for (uint32_t i = 0; i < of->pages && !page; i++)
		if (of->page[i]->number == number)
			page = of->page[i];
	for (uint32_t i = 0; i < of->pages && !page; i++)
		if (of->page[i]->number < 0)
			page = of->page[i];
	m->fault = "a slot outside the owner's pages";
	if (!page || !model_see_page(m, page, number))
		return 0;
	place->slot = slot;
	return 1;
}

int model_see(struct model *m, const struct model_want *w, int32_t slot)
{
	int32_t rows = (int32_t)m->config.page_rows;

	m->fault = "not the pad";
	if (w->kind == MODEL_PAD)
		return slot == w->pad;
	m->fault = "a negative slot";
	if (slot < 0)
		return 0;
	if (w->kind == MODEL_PLACE)
		return see_place(m, w->place, slot);
	m->fault = "another offset in the page";
	if ((uint32_t)(slot % rows) != w->offset)
		return 0;
	return model_see_page(m, w->page, slot / rows);
}
