/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Description: the states of pages, docs/residency.md, checked exhaustively.  A small context is
 * brought into every state that its calls can bring it into, one call at a time, by the library as
 * it is shipped.  After each call the library's own books are looked at: every page has one owner,
 * counts count what they say, no page that a begun step reads is free, and no page went from one
 * state to another but as the document's table has it.  In each new state the device runs all its
 * work, and each committed row must lie where the books say.  Every line of the table must have
 * been seen.  What a call does may depend on the calls alone: each is made with the device late,
 * and again with all its work done, and must come to the same.
 *
 * Two states of the books are one if all later decisions are the same: page numbers, handles,
 * counters and what the device has done are left out.  All memory of library and device is one
 * arena, so that a state is come back to by a copy; it is reached first by the fewest calls.
 *
 * check_states [--states N] [--shape NAME] [--long] [--apart]
 * --states stops in each shape after so many states; --long adds shapes that take half a minute;
 * --apart lets other calls come between every extension and its commit, which takes many minutes.
 * With TEST_LESS only a part is looked at.
 */
#include "context.h"
#include "host/device.h"
#include "host/kernels.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SESSIONS = 3, /* at most, as of all of these: */
	PAGE_ROWS = 2,
	ROWS = 5,
	PAGES = 64,
	HOST_PAGES = SESSIONS * ROWS,
	ROW_BYTES = 16,
	FEW_STATES = 40000, /* of a shape, where TEST_LESS is to divide them */
	MANY_STATES = 1024, /* which take less than */
	TOO_LONG = 60       /* seconds */
};

/* ---- shapes ------------------------------------------------------------------- */

/* What a context may have; a kind of backup each. */
enum { EAGER = 1, RECLAIM = 2, BACKGROUND = 4, FIXED = 8, ADAPTIVE = 7, EVERY = 15 };

struct shape {
	const char *name;
	uint32_t kind;
	uint32_t sessions;
	uint32_t page_rows;
	uint32_t rows;      /* longest session */
	uint32_t tail;      /* rows */
	uint32_t extension; /* rows */
	uint32_t pages;     /* of the pool, one the engine's and one of staging among them */
	uint32_t in_flight; /* steps */
	int whole;          /* no other call between an extension and its commit */
	uint32_t lends;     /* pages that the engine takes back at most; 0: the pool is not its own */
	int elastic;        /* a hot cache may have a page more */
	int only_long;      /* looked at with --long only */
};

/* With a hot cache of one page a session needs four pages where pages have one row, three where
 * they have two, and one more for a tail of a row.  So three sessions of two rows leave two pages
 * for the six of their history; two sessions of four rows leave two for four, which can be cut.
 * Where there are elastic pages an extension takes pages of the pool, too. */
/* name, kind, sessions, page_rows, rows, tail, extension, pages, in_flight, whole, lends, elastic,
 * only_long
 */
static const struct shape shapes[] = {
	{ "eager", EAGER, 3, 1, 2, 0, 1, 16, 1, 1, 0, 0, 0 },
	{ "reclaim", RECLAIM, 3, 1, 2, 0, 1, 16, 1, 1, 0, 0, 1 },
	{ "background", BACKGROUND, 3, 1, 2, 0, 1, 16, 1, 1, 0, 0, 1 },
	{ "fixed", FIXED, 3, 1, 2, 0, 1, 14, 2, 0, 0, 0, 0 },
	{ "eager, cut", EAGER, 2, 2, 4, 0, 2, 10, 2, 0, 0, 0, 0 },
	{ "reclaim, cut", RECLAIM, 2, 2, 4, 0, 2, 10, 1, 0, 0, 0, 0 },
	{ "background, cut", BACKGROUND, 2, 2, 4, 0, 2, 10, 1, 0, 0, 0, 0 },
	{ "fixed, cut", FIXED, 2, 2, 4, 0, 2, 8, 2, 0, 0, 0, 0 },
	{ "eager, tail", EAGER, 2, 1, 3, 1, 1, 14, 1, 1, 0, 0, 0 },
	{ "reclaim, tail", RECLAIM, 2, 1, 3, 1, 1, 14, 1, 1, 0, 0, 0 },
	{ "eager, lent", EAGER, 2, 1, 2, 0, 1, 12, 1, 1, 2, 0, 0 },
	{ "eager, elastic", EAGER, 2, 1, 5, 0, 4, 12, 1, 1, 0, 1, 0 },
	{ "reclaim, lent", RECLAIM, 2, 1, 2, 0, 1, 12, 1, 1, 2, 0, 0 },
};

static const struct shape *shape;
static int apart; /* --apart */

/* ---- calls -------------------------------------------------------------------- */

enum call {
	CREATE,
	EXTEND,
	COMMIT,
	BEGIN,
	SETTLE,
	EVICT,
	ADVANCE,
	TAKE,
	LEND,
	SUSPEND,
	RESUME,
	TRUNCATE,
	DESTROY,
	CALLS
};

static const char *const call_name[CALLS] = { "create",     "extend",  "commit",  "begin",
	                                          "settle",     "evict",   "advance", "take_pages",
	                                          "lend_pages", "suspend", "resume",  "truncate",
	                                          "destroy" };

struct event {
	uint8_t call;
	uint8_t sessions; /* that it is about, a bit each */
	uint8_t rows;     /* truncate */
};

/* ---- the table ---------------------------------------------------------------- */

enum state { NONE, TAIL, BACKED, ONLY, COMING, HOST, STATES };

static const char *const state_name[STATES] = {
	"none", "tail", "resident, backed up", "resident only", "on its way", "host only"
};

#define ON(call) (1u << (call))
#define AGING (ON(EXTEND) | ON(COMMIT) | ON(BEGIN) | ON(EVICT) | ON(SUSPEND))
#define TAKING (ON(CREATE) | ON(EXTEND) | ON(RESUME) | ON(TAKE))

/* From a state to another one, by a call about the page's session or by one that is about
 * another session or none.  `must`: the kinds that have to show it, all of them or those where
 * pages can be cut. */
static const struct line {
	enum state from, to;
	uint32_t own, other;
	uint32_t must;
	int cut;
	const char *says;
} lines[] = {
	{ NONE, TAIL, ON(BEGIN) | ON(EXTEND), 0, EVERY, 0, "begin or extend maps it" },
	{ TAIL, BACKED, ON(BEGIN) | ON(EXTEND) | ON(COMMIT), 0, EAGER, 0, "ages" },
	{ TAIL, ONLY, ON(BEGIN) | ON(EXTEND) | ON(COMMIT), 0, RECLAIM | BACKGROUND, 0, "ages" },
	{ TAIL, HOST, AGING, 0, EVERY, 0, "ages, and is taken" },
	{ BACKED, HOST, AGING, TAKING | ON(ADVANCE), ADAPTIVE, 0, "taken" },
	{ ONLY, HOST, AGING, TAKING | ON(ADVANCE), RECLAIM | BACKGROUND, 0, "taken, copied first" },
	{ ONLY, BACKED, 0, ON(ADVANCE), BACKGROUND, 0, "a tick issues its copy to the host" },
	{ HOST, COMING, 0, ON(ADVANCE), ADAPTIVE, 0, "a tick issues its copy from the host" },
	{ COMING, BACKED, 0, ON(ADVANCE), ADAPTIVE, 0, "lands" },
	{ COMING, HOST, AGING | ON(TRUNCATE), AGING | TAKING, ADAPTIVE, 0, "is called off" },
	{ COMING, HOST, 0, ON(ADVANCE), 0, 0, "lands, and is taken" },
	{ BACKED, TAIL, ON(TRUNCATE), 0, ADAPTIVE, 1, "a truncate into history" },
	{ ONLY, TAIL, ON(TRUNCATE), 0, RECLAIM | BACKGROUND, 1, "a truncate into history" },
	{ HOST, TAIL, ON(BEGIN) | ON(EXTEND) | ON(RESUME), 0, EVERY, 1, "its kept rows are reloaded" },
	{ TAIL, NONE, ON(TRUNCATE) | ON(DESTROY), 0, EVERY, 0, "truncate" },
	{ BACKED, NONE, ON(TRUNCATE) | ON(DESTROY), 0, ADAPTIVE, 0, "truncate" },
	{ ONLY, NONE, ON(TRUNCATE) | ON(DESTROY), 0, RECLAIM | BACKGROUND, 0, "truncate" },
	{ COMING, NONE, ON(TRUNCATE) | ON(DESTROY), 0, ADAPTIVE, 0, "truncate" },
	{ HOST, NONE, ON(TRUNCATE) | ON(DESTROY), 0, EVERY, 0, "truncate" },
};

#define LINES (sizeof(lines) / sizeof(lines[0]))

static uint64_t seen[LINES];

/* ---- memory: one arena -------------------------------------------------------- */

enum { ARENA = 1 << 20, GRAIN = 64, CLASSES = 32, LONGEST_PATH = 256 };

/* What the engine knows. */
struct player {
	dhs_session session; /* 0: none */
	uint32_t stamp[ROWS];
};

struct flight {
	dhs_step step;
	uint64_t number;
	uint32_t count;
	uint8_t cancelled;        /* entries, a bit each */
	uint8_t index[SESSIONS];  /* of each entry */
	uint64_t reads[SESSIONS]; /* pages that it reads of each, a bit each */
};

struct game {
	dhs_context *context;
	dhs_batch *batch;
	dhs_host *host;
	dhs_stream stream;
	int32_t *kept; /* ones, for commits on the device */
	struct player player[SESSIONS];
	struct flight flight[DHS_MAX_STEPS_IN_FLIGHT]; /* oldest first */
	uint32_t flights;
	uint32_t stamps;
};

struct arena {
	size_t used;
	void *free[CLASSES]; /* blocks that were given back, by size */
	struct game game;
	_Alignas(GRAIN) unsigned char bytes[ARENA];
};

static struct arena arena, fresh, reached, aside;

#define G (&arena.game)
#define C (arena.game.context)

static void copy_arena(struct arena *to, const struct arena *from)
{
	memcpy(to, from, offsetof(struct arena, bytes) + from->used);
}

static void *take(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	size_t grains = (bytes + GRAIN - 1) / GRAIN;
	void *block = grains < CLASSES ? arena.free[grains] : NULL;

	(void)arg;
	(void)kind;
	if (align > GRAIN || bytes > ARENA - arena.used - GRAIN)
		return NULL;
	if (block) {
		memcpy(&arena.free[grains], block, sizeof(void *));
		return block;
	}
	block = arena.bytes + arena.used;
	arena.used += (grains ? grains : 1) * GRAIN;
	return block;
}

static void give(void *arg, uint32_t kind, void *memory, size_t bytes)
{
	size_t grains = (bytes + GRAIN - 1) / GRAIN;

	(void)arg;
	(void)kind;
	if (!grains || grains >= CLASSES)
		return;
	memcpy(memory, &arena.free[grains], sizeof(void *));
	arena.free[grains] = memory;
}

/* ---- states that were found --------------------------------------------------- */

struct node {
	uint32_t parent;
	struct event by;
};

static struct {
	struct node *node;
	uint32_t count, room;
	uint64_t *table; /* hashes of states, 0: empty */
	uint64_t slots;
	uint64_t tried, refused; /* calls */
} found;

static int line_number; /* of the results so far */

static void print_event(const struct event *e)
{
	fprintf(stderr, "#   %s sessions %#x rows %u\n", call_name[e->call], e->sessions, e->rows);
}

static void print_path(uint32_t n)
{
	struct event path[LONGEST_PATH];
	uint32_t length = 0;

	for (; n && length < LONGEST_PATH; n = found.node[n].parent)
		path[length++] = found.node[n].by;
	while (length--)
		print_event(&path[length]);
}

static uint32_t at;       /* the state that a call is made in */
static struct event call; /* this one */

_Noreturn static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

_Noreturn static void fail(const char *format, ...)
{
	va_list arguments;

	printf("not ok %d - %s, states in which all is as it must be: %" PRIu32 "\n1..%d\n",
	       line_number + 1, shape->name, found.count, line_number + 1);
	fflush(stdout);
	fprintf(stderr, "# FAILED: %s: ", shape->name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n# after\n");
	print_path(at);
	print_event(&call);
	exit(1);
}

#define CHECK(condition, ...)                                                                      \
	do {                                                                                           \
		if (!(condition))                                                                          \
			fail(__VA_ARGS__);                                                                     \
	} while (0)

static void must(int rc)
{
	CHECK(rc == DHS_OK, "%d, %s", rc, dhs_last_error());
}

static int add_hash(uint64_t hash)
{
	uint64_t slot = hash % found.slots;

	for (; found.table[slot]; slot = (slot + 1) % found.slots)
		if (found.table[slot] == hash)
			return 0;
	found.table[slot] = hash;
	return 1;
}

static void grow(void)
{
	uint64_t *old = found.table, slots = found.slots;

	found.slots = slots ? 2 * slots : 1 << 16;
	found.table = calloc(found.slots, sizeof(*found.table));
	found.room = (uint32_t)(found.slots / 2);
	found.node = realloc(found.node, found.room * sizeof(*found.node));
	if (!found.table || !found.node)
		exit(99);
	for (uint64_t i = 0; i < slots; i++)
		if (old[i])
			add_hash(old[i]);
	free(old);
}

static void add_node(uint32_t parent, struct event by)
{
	found.node[found.count++] = (struct node){ parent, by };
}

/* ---- what the books say ------------------------------------------------------- */

static struct dhs_session_state *session(uint32_t i)
{
	return &C->sessions.session[i];
}

static uint32_t elastic_pages(const struct dhs_session_state *s)
{
	return s->suspended ? 0 : s->hot_pages - C->world.geometry.hot_pages;
}

/* Rows of a page of history that have a host copy, or one on its way there. */
static uint32_t copied_rows(const struct dhs_session_state *s, uint32_t p)
{
	return C->backup == DHS_BACKUP_EAGER ? shape->page_rows : s->backed[p];
}

static enum state state_of(const struct dhs_session_state *s, uint32_t p)
{
	if (!s->live || p >= s->extent)
		return NONE;
	if (s->on_way[p])
		return COMING;
	if (s->page[p] < 0)
		return HOST;
	if (p >= s->first_tail)
		return TAIL;
	return copied_rows(s, p) == shape->page_rows ? BACKED : ONLY;
}

/* An open work by what has it: 1 the newest step, 2 + i the extension of session i. */
static uint32_t open_id(const struct dhs_work *work)
{
	if (!dhs_work_open(work))
		return 0;
	for (uint32_t i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (C->step[i].state == DHS_STEP_BEGUN && C->step[i].work == work)
			return 1;
	for (uint32_t i = 0; i < shape->sessions; i++)
		if (session(i)->live && session(i)->extension && session(i)->last == work)
			return 2 + i;
	fail("an open work that nothing will end");
}

static int newest_step_open(void)
{
	const struct dhs_step_record *step = &C->step[(C->next_step - 1) % DHS_MAX_STEPS_IN_FLIGHT];

	return step->state != DHS_STEP_NONE && dhs_work_open(step->work);
}

static uint32_t after_id(const struct dhs_after *after)
{
	return open_id(after->work[0]) | open_id(after->work[1]) << 4;
}

/* ---- the books as decisions see them ------------------------------------------ */

struct canon {
	uint32_t count;
	uint8_t byte[512];
};

static void put(struct canon *c, uint32_t value)
{
	CHECK(value < 256 && c->count < sizeof(c->byte), "a state too large to tell from others");
	c->byte[c->count++] = (uint8_t)value;
}

static void put_session(struct canon *c, const struct dhs_session_state *s)
{
	put(c, s->live);
	put(c, open_id(s->last));
	if (!s->live)
		return;
	put(c, s->failed | s->fresh << 1 | s->suspended << 2);
	put(c, s->settled);
	put(c, s->unsettled_rows);
	put(c, s->unsettled_steps);
	put(c, s->extension);
	put(c, s->extent);
	put(c, s->first_tail);
	put(c, s->host_pages);
	put(c, newest_step_open() && s->begun_in == C->next_step - 1);
	for (uint32_t p = 0; p < s->extent; p++) {
		put(c, state_of(s, p));
		put(c, copied_rows(s, p));
	}
	put(c, s->spares);
	for (uint32_t i = 0; i < s->spares; i++)
		put(c, after_id(&C->pool.page[s->spare[i]].after));
	put(c, s->hot_pages);
	put(c, s->hot_told);
	for (uint32_t i = s->hot_told; i < s->hot_pages; i++)
		put(c, after_id(&C->pool.page[s->hot[i]].after));
}

static void put_pool(struct canon *c)
{
	int32_t page = C->pool.draining.first;

	put(c, C->pool.free.count);
	put(c, C->pool.draining.count);
	for (uint32_t i = 0; i < C->pool.draining.count; i++, page = C->pool.page[page].next)
		put(c, after_id(&C->pool.page[page].after));
	for (uint32_t p = 1; shape->lends && p < C->pool.pages; p++)
		if (C->pool.page[p].state == DHS_PAGE_ENGINE)
			put(c, 1 + after_id(&C->pool.page[p].after));
	put(c, 0);
	put(c, C->tier.free_count);
	put(c, C->tier.draining_count);
	for (uint32_t i = 0, p = C->tier.draining_first; i < C->tier.draining_count; i++) {
		put(c, after_id(&C->tier.after[p]));
		p = C->tier.next[p];
	}
}

static void put_refill(struct canon *c)
{
	const struct dhs_refill *r = &C->refill;

	put(c, (uint32_t)r->filling);
	put(c, r->count);
	for (uint32_t i = 0; i < r->count; i++) {
		put(c, r->coming[i].session);
		put(c, r->coming[i].p);
		put(c, (uint32_t)(r->tick - r->coming[i].tick));
	}
}

static void put_steps(struct canon *c)
{
	put(c, G->flights);
	for (uint32_t f = 0; f < G->flights; f++) {
		const struct dhs_step_record *step =
			&C->step[G->flight[f].number % DHS_MAX_STEPS_IN_FLIGHT];

		uint32_t sessions = 0;

		for (uint32_t i = 0; i < step->count; i++)
			sessions |= (~(uint32_t)G->flight[f].cancelled >> i & 1) << step->part[i].index;
		put(c, open_id(step->work));
		put(c, sessions);
	}
	put(c, (uint32_t)G->batch->fresh);
	put(c, after_id(&C->pool.page[G->batch->staging_page[0]].after));
}

static void make_canon(struct canon *c)
{
	c->count = 0;
	for (uint32_t i = 0; i < shape->sessions; i++)
		put_session(c, session(i));
	put(c, C->sessions.free_count);
	for (uint32_t i = 0; i < C->sessions.free_count; i++)
		put(c, C->sessions.free[(C->sessions.free_first + i) % shape->sessions]);
	put_pool(c);
	put_refill(c);
	put_steps(c);
}

static int same_canon(const struct canon *a, const struct canon *b)
{
	return a->count == b->count && !memcmp(a->byte, b->byte, a->count);
}

static uint64_t hash_canon(const struct canon *c)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (uint32_t i = 0; i < c->count; i++) {
		hash = (hash ^ c->byte[i]) * 0x100000001b3u;
		hash ^= hash >> 29;
	}
	hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
	return hash | 1;
}

/* ---- every page has one owner -------------------------------------------------- */

struct owners {
	const char *of[PAGES];
	const char *of_host[HOST_PAGES];
};

static void own(struct owners *o, int32_t page, const char *who, uint32_t state)
{
	CHECK(page >= 0 && (uint32_t)page < C->pool.pages, "%s has page %d", who, page);
	CHECK(!o->of[page], "page %d is %s and %s", page, o->of[page], who);
	CHECK(C->pool.page[page].state == state, "page %d, %s, is in state %u", page, who,
	      C->pool.page[page].state);
	o->of[page] = who;
}

static void own_session(struct owners *o, const struct dhs_session_state *s)
{
	for (uint32_t p = 0; p < C->world.geometry.max_pages; p++)
		if (s->page[p] >= 0)
			own(o, s->page[p], "in a table", DHS_PAGE_OWNED);
	for (uint32_t i = 0; i < s->spares; i++)
		own(o, s->spare[i], "a spare", DHS_PAGE_OWNED);
	for (uint32_t i = 0; i < s->hot_pages; i++)
		own(o, s->hot[i], "hot", DHS_PAGE_OWNED);
}

static void own_list(struct owners *o, const struct dhs_page_list *list, const char *who,
                     uint32_t state)
{
	int32_t page = list->first;

	for (uint32_t i = 0; i < list->count; i++, page = C->pool.page[page].next) {
		own(o, page, who, state);
		CHECK((after_id(&C->pool.page[page].after) != 0) == (state == DHS_PAGE_DRAINING),
		      "page %d is %s, and what it waits for says otherwise", page, who);
	}
}

static void own_host(struct owners *o, uint32_t page, const char *who)
{
	CHECK(page < C->tier.pages, "%s has host page %u", who, page);
	CHECK(!o->of_host[page], "host page %u is %s and %s", page, o->of_host[page], who);
	o->of_host[page] = who;
}

static void own_tier(struct owners *o)
{
	uint32_t page = C->tier.draining_first, count = 0;

	for (uint32_t i = 0; i < shape->sessions; i++)
		for (uint32_t p = 0; session(i)->live && p < session(i)->host_pages; p++)
			own_host(o, (uint32_t)session(i)->host[p], "a session's");
	for (uint32_t i = 0; i < C->tier.draining_count; i++, page = C->tier.next[page])
		own_host(o, page, "draining");
	for (uint32_t p = 0; p < C->tier.pages; p++)
		if (C->tier.free[0] >> p & 1) {
			own_host(o, p, "free");
			count++;
		}
	CHECK(count == C->tier.free_count, "%u host pages are free, counted as %u", count,
	      C->tier.free_count);
	for (uint32_t p = 0; p < C->tier.pages; p++)
		CHECK(o->of_host[p], "host page %u is nobody's", p);
}

static void check_owners(void)
{
	struct owners o = { 0 };
	uint32_t engine = 0;

	for (uint32_t i = 0; i < shape->sessions; i++)
		if (session(i)->live)
			own_session(&o, session(i));
	for (uint32_t i = 0; i < C->refill.count; i++)
		own(&o, C->refill.coming[i].page, "on its way", DHS_PAGE_OWNED);
	for (uint32_t i = 0; i < G->batch->pool_pages; i++)
		own(&o, G->batch->staging_page[i], "staging", DHS_PAGE_OWNED);
	own_list(&o, &C->pool.free, "free", DHS_PAGE_FREE);
	own_list(&o, &C->pool.draining, "draining", DHS_PAGE_DRAINING);
	for (uint32_t p = 0; p < C->pool.pages; p++)
		if (C->pool.page[p].state == DHS_PAGE_ENGINE) {
			own(&o, (int32_t)p, "the engine's", DHS_PAGE_ENGINE);
			engine++;
		}
	CHECK(engine == C->pool.engine, "%u pages are the engine's, counted as %u", engine,
	      C->pool.engine);
	for (uint32_t p = 0; p < C->pool.pages; p++)
		CHECK(o.of[p], "page %u is nobody's", p);
	own_tier(&o);
}

/* ---- counts are what they count ------------------------------------------------ */

static void check_page(const struct dhs_session_state *s, uint32_t p)
{
	enum state state = state_of(s, p);

	CHECK(!s->on_way[p] || (p < s->first_tail && s->page[p] < 0),
	      "page %u of session %u is on its way, and is not history on the host", p, s->index);
	CHECK(p < s->host_pages, "page %u of session %u has no host page", p, s->index);
	/* What lets the library not look at all pages. */
	CHECK(s->page[p] < 0 || p >= s->lowest, "page %u of session %u lies below the lowest", p,
	      s->index);
	CHECK(state != HOST || p >= s->first_tail || p < s->refill_from,
	      "page %u of session %u lies past where refill looks", p, s->index);
	CHECK(state != ONLY || p >= s->backup_from || shape->kind != BACKGROUND,
	      "page %u of session %u lies before where backup looks", p, s->index);
}

static void check_session(const struct dhs_session_state *s)
{
	uint32_t states[STATES] = { 0 }, tail = 0;

	for (uint32_t p = 0; p < s->extent; p++) {
		check_page(s, p);
		states[state_of(s, p)]++;
		tail += p >= s->first_tail && s->page[p] >= 0;
	}
	CHECK(s->resident == states[BACKED] + states[ONLY] && s->coming == states[COMING] &&
	          s->unbacked == states[ONLY] && s->tail_used == tail,
	      "session %u: %u + %u resident, %u coming, %u tail pages; counted as %u, %u unbacked, %u, "
	      "%u",
	      s->index, states[BACKED], states[ONLY], states[COMING], tail, s->resident, s->unbacked,
	      s->coming, s->tail_used);
	CHECK(s->spares + tail == s->keep || (s->extension && s->spares + tail > s->keep),
	      "session %u: %u spares and %u tail pages, %u to keep", s->index, s->spares, tail,
	      s->keep);
}

static void check_gauges(void)
{
	uint32_t sessions = 0, suspended = 0, resident = 0, required = 0, coming = 0, only = 0,
			 elastic = 0;
	dhs_stats stats = DHS_INIT(dhs_stats);

	for (uint32_t i = 0; i < shape->sessions; i++) {
		const struct dhs_session_state *s = session(i);

		if (!s->live)
			continue;
		check_session(s);
		sessions++;
		required += s->hot_pages - elastic_pages(s) + s->keep;
		elastic += elastic_pages(s);
		suspended += s->suspended;
		resident += s->resident + s->coming + s->spares + s->tail_used - s->keep;
		coming += s->coming;
		only += s->unbacked;
	}
	must(dhs_context_stats(C, &stats));
	CHECK(stats.sessions == sessions && stats.sessions_suspended == suspended &&
	          stats.pages_required == required && stats.pages_resident == resident &&
	          stats.pages_coming == coming && stats.pages_unbacked == only &&
	          stats.pages_elastic == elastic && stats.pages_staging == G->batch->pool_pages &&
	          stats.pages_free == C->pool.free.count && stats.pages_reserved == C->pool.engine &&
	          stats.pages_draining == C->pool.draining.count,
	      "the statistics have %u sessions, %u required, %u resident, %u coming, %u unbacked",
	      stats.sessions, stats.pages_required, stats.pages_resident, stats.pages_coming,
	      stats.pages_unbacked);
}

/* ---- what a begun step reads ----------------------------------------------------- */

/* Pages of a session that a step may read. */
static uint64_t pages_of(const struct dhs_session_state *s)
{
	uint64_t pages = 0;

	for (uint32_t p = 0; p < s->extent; p++)
		if (s->page[p] >= 0)
			pages |= UINT64_C(1) << s->page[p];
	for (uint32_t i = 0; i < s->hot_pages; i++)
		pages |= UINT64_C(1) << s->hot[i];
	return pages;
}

/* A page that an open step reads is still its session's, or waits for the step. */
static void check_reads(void)
{
	for (uint32_t f = 0; f < G->flights; f++) {
		const struct flight *flight = &G->flight[f];
		const struct dhs_work *work = C->step[flight->number % DHS_MAX_STEPS_IN_FLIGHT].work;

		for (uint32_t i = 0; dhs_work_open(work) && i < flight->count; i++) {
			const struct dhs_session_state *s = session(flight->index[i]);
			uint64_t own = s->live && s->last == work ? pages_of(s) : 0;

			for (uint32_t p = 0; p < C->pool.pages; p++) {
				const struct dhs_after *after = &C->pool.page[p].after;

				if (!(flight->reads[i] >> p & 1) || own >> p & 1)
					continue;
				CHECK(C->pool.page[p].state != DHS_PAGE_FREE && after->work[0] == work,
				      "page %u is %s while a step reads it", p,
				      C->pool.page[p].state == DHS_PAGE_FREE ? "free" : "not held");
			}
		}
	}
}

/* ---- bytes ------------------------------------------------------------------------ */

static void stamp_row(unsigned char *row, uint32_t stamp)
{
	for (uint32_t i = 0; i < ROW_BYTES / sizeof(stamp); i++)
		memcpy(row + i * sizeof(stamp), &stamp, sizeof(stamp));
}

static int row_is(const unsigned char *row, uint32_t stamp)
{
	unsigned char expected[ROW_BYTES];

	stamp_row(expected, stamp);
	return !memcmp(row, expected, ROW_BYTES);
}

static void check_row(const struct dhs_session_state *s, uint32_t row, uint32_t stamp)
{
	const struct dhs_geometry *g = &C->world.geometry;
	uint32_t p = row / shape->page_rows, at_row = row % shape->page_rows;
	int backed = at_row < copied_rows(s, p);

	if (s->page[p] >= 0)
		CHECK(row_is(dhs_row_address(g, 0, 0, s->page[p], at_row), stamp),
		      "row %u of session %u is not in its page", row, s->index);
	CHECK(s->page[p] >= 0 || backed, "row %u of session %u is nowhere", row, s->index);
	if (backed)
		CHECK(row_is(dhs_record_address(g, 0, 0, s->host[p], at_row), stamp),
		      "row %u of session %u is not in its record", row, s->index);
}

/* What the device knows of a session is what its next begin will not tell. */
static void check_tables(const struct dhs_session_state *s)
{
	const struct dhs_geometry *g = &C->world.geometry;
	const struct dhs_tables *t = &C->world.tables;

	if (s->fresh)
		return;
	CHECK(s->set_length || t->length[s->index] == (int32_t)dhs_session_bound(s),
	      "session %u has %d rows on the device, not %u", s->index, t->length[s->index],
	      dhs_session_bound(s));
	for (uint32_t p = 0; p < g->max_pages; p++)
		CHECK((p >= s->dirty_low && p < s->dirty_high) ||
		          (t->page[s->index * g->max_pages + p] == s->page[p] &&
		           t->host_page[s->index * g->max_pages + p] == s->host[p]),
		      "the device is not told about page %u of session %u", p, s->index);
}

/* Once the device has run all its work; the state is as before then. */
static void check_bytes(void)
{
	copy_arena(&aside, &arena);
	dhs_host_idle(G->host);
	for (uint32_t i = 0; i < shape->sessions; i++) {
		const struct dhs_session_state *s = session(i);

		for (uint32_t row = 0; s->live && row < s->settled; row++)
			check_row(s, row, G->player[i].stamp[row]);
		if (s->live)
			check_tables(s);
	}
	for (uint32_t i = 0; i < C->refill.count; i++) {
		const struct dhs_coming *c = &C->refill.coming[i];

		for (uint32_t r = 0; r < shape->page_rows; r++)
			CHECK(row_is(dhs_row_address(&C->world.geometry, 0, 0, c->page, r),
			             G->player[c->session].stamp[c->p * shape->page_rows + r]),
			      "page %u of session %u comes with other rows", c->p, c->session);
	}
	copy_arena(&arena, &aside);
}

/* ---- the engine's part ------------------------------------------------------------- */

struct rows {
	const struct dhs_geometry *geometry;
	const int32_t *slots;
	uint32_t count;
	uint32_t stamp[ROWS];
};

static void write_rows(void *copy)
{
	const struct rows *rows = copy;

	for (uint32_t i = 0; i < rows->count; i++)
		if (rows->slots[i] >= 0)
			stamp_row(dhs_row_address(rows->geometry, 0, 0, rows->slots[i] / shape->page_rows,
			                          (uint32_t)rows->slots[i] % shape->page_rows),
			          rows->stamp[i]);
}

static int32_t *new_slots(uint32_t count)
{
	int32_t *slots = take(NULL, 0, count * sizeof(*slots), GRAIN);

	if (!slots)
		exit(99);
	return slots;
}

static uint32_t new_stamp(uint32_t i, uint32_t row)
{
	return G->player[i].stamp[row] = ++G->stamps;
}

/* Pages of a new session that drain. */
static uint32_t draining_of(const struct dhs_session_state *s)
{
	uint32_t pages = 0;

	for (uint32_t i = 0; i < s->hot_pages; i++)
		pages += after_id(&C->pool.page[s->hot[i]].after) != 0;
	for (uint32_t i = 0; i < s->spares; i++)
		pages += after_id(&C->pool.page[s->spare[i]].after) != 0;
	return pages;
}

/* What creation does is what admission told just before. */
static int create(void)
{
	uint64_t taken = C->totals.evicted_pages + C->totals.withdrawn_pages;
	dhs_admission told = DHS_INIT(dhs_admission);
	uint32_t i, draining;
	dhs_session made;
	int rc;

	must(dhs_session_admission(C, NULL, &told));
	rc = dhs_session_create(C, NULL, &made);
	CHECK((rc == DHS_OK) == (told.verdict != DHS_ADMISSION_NO), "admission told %u, and create %d",
	      told.verdict, rc);
	if (rc)
		return rc;
	i = (uint32_t)(made & 0xffff);
	G->player[i].session = made;
	taken = C->totals.evicted_pages + C->totals.withdrawn_pages - taken;
	draining = draining_of(session(i));
	CHECK(told.evicted_pages == taken && told.pending_pages == draining,
	      "admission told %u optional and %u draining pages; there were %" PRIu64 " and %u",
	      told.evicted_pages, told.pending_pages, taken, draining);
	return DHS_OK;
}

static int extend(uint32_t i)
{
	struct rows rows = { .geometry = &C->world.geometry, .count = shape->extension };
	int32_t *slots = new_slots(ROWS);
	int rc = dhs_session_extend(C, G->player[i].session, shape->extension, G->stream, slots);

	if (rc)
		return rc;
	rows.slots = slots;
	for (uint32_t r = 0; r < shape->extension; r++)
		rows.stamp[r] = new_stamp(i, session(i)->settled + r);
	must(dhs_host_launch(G->stream, write_rows, &rows, sizeof(rows)));
	return DHS_OK;
}

/* A step in which each session adds a row, written and committed by the device. */
static int begin(uint32_t sessions)
{
	struct flight flight = { .count = 0 };
	struct rows rows = { .geometry = &C->world.geometry };
	dhs_step_entry entry[SESSIONS] = { 0 };
	int32_t *slots = new_slots(SESSIONS);
	int rc;

	for (uint32_t i = 0; i < shape->sessions; i++) {
		if (!(sessions >> i & 1))
			continue;
		flight.index[flight.count] = (uint8_t)i;
		entry[flight.count++] = (dhs_step_entry){ .session = G->player[i].session, .new_rows = 1 };
	}
	rc = dhs_step_begin(G->batch, entry, flight.count, sizeof(entry[0]), G->stream, &flight.step);
	if (rc)
		return rc;
	must(dhs_step_slots(G->batch, flight.count, 1, slots, G->stream));
	rows.slots = slots;
	rows.count = flight.count;
	for (uint32_t i = 0; i < flight.count; i++) {
		const struct dhs_session_state *s = session(flight.index[i]);

		rows.stamp[i] = new_stamp(s->index, dhs_session_bound(s) - 1);
		flight.reads[i] = pages_of(s);
	}
	must(dhs_host_launch(G->stream, write_rows, &rows, sizeof(rows)));
	must(dhs_step_commit(G->batch, flight.count, G->kept, G->stream));
	flight.number = C->next_step - 1;
	G->flight[G->flights++] = flight;
	return DHS_OK;
}

static int take_page(void)
{
	size_t taken = 0;
	dhs_fence fence;
	int32_t page;

	return dhs_take_pages(C, 1, &page, &fence, &taken);
}

/* The lowest that the engine has, but for page 0, which it keeps. */
static int lend_page(void)
{
	int32_t page = 1;

	while (C->pool.page[page].state != DHS_PAGE_ENGINE)
		page++;
	return dhs_lend_pages(C, &page, 1, G->stream);
}

static int settle(void)
{
	uint32_t kept[SESSIONS] = { 1, 1, 1 };
	int rc = dhs_step_settle(C, G->flight[0].step, kept, G->flight[0].count);

	if (rc == DHS_OK) {
		G->flights--;
		G->flight[0] = G->flight[1];
	}
	return rc;
}

/* A truncate or destroy cancels the session's part in every begun step. */
static void cancel(uint32_t i)
{
	for (uint32_t f = 0; f < G->flights; f++)
		for (uint32_t e = 0; e < G->flight[f].count; e++)
			if (G->flight[f].index[e] == i)
				G->flight[f].cancelled |= (uint8_t)(1 << e);
}

static int shorten(uint32_t i, const struct event *e)
{
	int rc = e->call == DESTROY ? dhs_session_destroy(C, G->player[i].session)
	                            : dhs_session_truncate(C, G->player[i].session, e->rows);

	if (rc)
		return rc;
	cancel(i);
	if (e->call == DESTROY)
		G->player[i].session = 0;
	return DHS_OK;
}

/* As if each session had missed and hit so much, always: what elastic pages are worth. */
static void set_curves(void)
{
	static const uint32_t hits[SESSIONS] = { 4, 12, 40 };

	for (uint32_t i = 0; i < shape->sessions; i++)
		session(i)->curve =
			(struct dhs_curve){ .misses = 1, .edge_places = 1, .edge_hits = hits[i] };
}

static int apply(const struct event *e)
{
	uint32_t i = (uint32_t)__builtin_ctz(e->sessions | 1u << SESSIONS);

	if (shape->elastic)
		set_curves();
	switch (e->call) {
	case CREATE:
		return create();
	case EXTEND:
		return extend(i);
	case COMMIT:
		return dhs_session_commit(C, G->player[i].session, session(i)->extension, G->stream);
	case BEGIN:
		return begin(e->sessions);
	case SETTLE:
		return settle();
	case EVICT:
		return dhs_session_evict(C, G->player[i].session, NULL);
	case ADVANCE:
		return dhs_context_advance(C);
	case TAKE:
		return take_page();
	case LEND:
		return lend_page();
	case SUSPEND:
		return dhs_session_suspend(C, G->player[i].session, NULL);
	case RESUME:
		return dhs_session_resume(C, G->player[i].session);
	default:
		return shorten(i, e);
	}
}

/* ---- which calls there are ------------------------------------------------------------ */

struct choices {
	uint32_t count;
	struct event event[64];
};

static void choice(struct choices *c, enum call kind, uint32_t sessions, uint32_t rows)
{
	c->event[c->count++] = (struct event){ (uint8_t)kind, (uint8_t)sessions, (uint8_t)rows };
}

static void choices_of(struct choices *c, uint32_t i, int extending)
{
	const struct dhs_session_state *s = session(i);

	choice(c, s->suspended ? RESUME : SUSPEND, 1u << i, 0);
	if (s->extension)
		choice(c, COMMIT, 1u << i, 0);
	else if (!extending && !s->suspended && s->settled + shape->extension <= shape->rows)
		choice(c, EXTEND, 1u << i, 0);
	if (C->policy == DHS_POLICY_ADAPTIVE)
		choice(c, EVICT, 1u << i, 0);
	for (uint32_t n = s->settled; n-- > 0 && n + shape->page_rows >= s->settled;)
		choice(c, TRUNCATE, 1u << i, n);
	if (s->settled > shape->page_rows)
		choice(c, TRUNCATE, 1u << i, 0);
	choice(c, DESTROY, 1u << i, 0);
}

static void find_choices(struct choices *c)
{
	uint32_t ready = 0;
	int extending = 0;

	c->count = 0;
	for (uint32_t i = 0; i < shape->sessions; i++)
		extending |= session(i)->live && session(i)->extension;
	if (C->sessions.free_count)
		choice(c, CREATE, 0, 0);
	for (uint32_t i = 0; i < shape->sessions; i++) {
		if (!session(i)->live)
			continue;
		choices_of(c, i, extending);
		if (dhs_session_bound(session(i)) < shape->rows && !session(i)->extension &&
		    !session(i)->suspended)
			ready |= 1u << i;
	}
	if (G->flights < shape->in_flight) {
		for (uint32_t i = 0; i < shape->sessions; i++)
			if (ready >> i & 1)
				choice(c, BEGIN, 1u << i, 0);
		if (ready & (ready - 1))
			choice(c, BEGIN, ready, 0);
	}
	if (G->flights)
		choice(c, SETTLE, 0, 0);
	if (C->policy == DHS_POLICY_ADAPTIVE)
		choice(c, ADVANCE, 0, 0);
	if (C->pool.engine > 1)
		choice(c, LEND, 0, 0);
	if (C->pool.engine <= shape->lends)
		choice(c, TAKE, 0, 0);
}

/* ---- one call ------------------------------------------------------------------------- */

typedef enum state map[SESSIONS][ROWS];

static void make_map(map m)
{
	for (uint32_t i = 0; i < shape->sessions; i++)
		for (uint32_t p = 0; p < C->world.geometry.max_pages; p++)
			m[i][p] = state_of(session(i), p);
}

static void see(enum state from, enum state to, const struct event *e, uint32_t i, uint32_t p)
{
	if (from == to)
		return;
	for (uint32_t l = 0; l < LINES; l++) {
		uint32_t calls = e->sessions >> i & 1 ? lines[l].own : lines[l].other;

		if (lines[l].from == from && lines[l].to == to && calls >> e->call & 1) {
			seen[l]++;
			return;
		}
	}
	fail("page %u of session %u went from %s to %s", p, i, state_name[from], state_name[to]);
}

static void check_books(void)
{
	check_owners();
	check_gauges();
	check_reads();
}

/* The call, and what may have become of each page by it. */
static int make_call(const struct event *e)
{
	map from, to;
	int rc;

	call = *e;
	make_map(from);
	rc = apply(e);
	if (rc)
		return rc;
	make_map(to);
	for (uint32_t i = 0; i < shape->sessions; i++)
		for (uint32_t p = 0; p < C->world.geometry.max_pages; p++)
			see(from[i][p], to[i][p], e, i, p);
	check_books();
	if (e->call == EXTEND && shape->whole && !apart)
		must(make_call(&(struct event){ COMMIT, e->sessions, 0 }));
	return DHS_OK;
}

/* The call in the state that the arena has, and the state that it leads to. */
static int try_call(const struct event *e, const struct canon *before, struct canon *after)
{
	int rc = make_call(e);

	make_canon(after);
	found.tried++;
	if (rc == DHS_OK)
		return rc;
	found.refused++;
	CHECK(rc == DHS_ERR_PENDING || rc == DHS_ERR_BUSY || rc == DHS_ERR_ORDER ||
	          rc == DHS_ERR_DEVICE_MEMORY || rc == DHS_ERR_HOST_MEMORY,
	      "%d, %s", rc, dhs_last_error());
	CHECK(same_canon(before, after), "a refused call changed the books: %s", dhs_last_error());
	return rc;
}

/* The call, and no look at what came of it. */
static int play(const struct event *e)
{
	int rc = apply(e);

	if (rc == DHS_OK && e->call == EXTEND && shape->whole && !apart)
		rc = apply(&(struct event){ COMMIT, e->sessions, 0 });
	return rc;
}

/* The same once the device has run all that it has: it must come to the same. */
static void try_late(const struct event *e, int rc, const struct canon *after)
{
	struct canon late;

	copy_arena(&arena, &reached);
	dhs_host_idle(G->host);
	call = *e;
	CHECK(play(e) == rc, "not %d once all copies are done", rc);
	make_canon(&late);
	CHECK(same_canon(&late, after), "another state once all copies are done");
}

/* ---- all of them ----------------------------------------------------------------------- */

static void replay(uint32_t n)
{
	struct event path[LONGEST_PATH];
	uint32_t length = 0;

	for (uint32_t i = n; i; i = found.node[i].parent)
		path[length++] = found.node[i].by;
	copy_arena(&arena, &fresh);
	while (length--)
		must(play(&path[length]));
}

/* All calls in state n. */
static void expand(uint32_t n)
{
	struct canon before, after;
	struct choices choices;

	at = n;
	if (n % MANY_STATES == 0)
		alarm(TOO_LONG);
	replay(n);
	make_canon(&before);
	copy_arena(&reached, &arena);
	find_choices(&choices);
	for (uint32_t i = 0; i < choices.count; i++) {
		const struct event *e = &choices.event[i];
		int rc;

		if (2 * (uint64_t)found.count >= found.slots)
			grow();
		copy_arena(&arena, &reached);
		rc = try_call(e, &before, &after);
		if (rc == DHS_OK && add_hash(hash_canon(&after))) {
			check_bytes();
			add_node(n, *e);
		}
		try_late(e, rc, &after);
	}
}

static void open_context(const dhs_allocator *allocator)
{
	static uint32_t group_layers[] = { 1 };
	dhs_segment segment = { .bytes = ROW_BYTES };
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_context_options options = DHS_INIT(dhs_context_options);
	void *pool = take(NULL, 0, (size_t)PAGES * PAGE_ROWS * ROW_BYTES, GRAIN);

	layout.layers = 1;
	layout.groups = 1;
	layout.group_layers = group_layers;
	layout.segments = 1;
	layout.segment_size = sizeof(segment);
	layout.segment = &segment;
	layout.page_rows = shape->page_rows;
	options.flags = DHS_CONTEXT_TAIL_ROWS | DHS_CONTEXT_REFILL;
	options.backend = DHS_BACKEND_HOST;
	options.policy = shape->kind == FIXED ? DHS_POLICY_FIXED : DHS_POLICY_ADAPTIVE;
	options.backup = shape->kind == RECLAIM      ? DHS_BACKUP_RECLAIM
	                 : shape->kind == BACKGROUND ? DHS_BACKUP_BACKGROUND
	                                             : DHS_BACKUP_EAGER;
	options.max_sessions = shape->sessions;
	options.max_rows = shape->rows;
	options.max_new_rows = 1;
	options.tail_rows = shape->tail;
	options.hot_rows = shape->page_rows;
	options.max_hot_rows = (1 + (uint32_t)shape->elastic) * shape->page_rows;
	if (shape->lends)
		options.pool = &pool;
	options.flags |= shape->lends ? 0 : DHS_CONTEXT_POOL_STAGING;
	options.reserved_pages = shape->lends ? 0 : 1;
	options.device_pages = shape->pages;
	options.host_rows = shape->sessions * shape->rows;
	options.layout = &layout;
	options.host = G->host;
	options.allocator = allocator;
	options.link_bytes = shape->page_rows * ROW_BYTES; /* a page */
	options.refill_low = 0;
	options.refill_high = 1;
	must(dhs_context_create(&options, &C));
	for (int32_t p = 1; shape->lends && p < (int32_t)shape->pages; p++)
		must(dhs_lend_pages(C, &p, 1, G->stream));
}

static void open_game(void)
{
	dhs_allocator allocator = DHS_INIT(dhs_allocator);
	dhs_host_options host = DHS_INIT(dhs_host_options);
	dhs_batch_options batch = DHS_INIT(dhs_batch_options);

	arena = (struct arena){ 0 };
	allocator.alloc = take;
	allocator.free = give;
	host.seed = 1;
	host.allocator = &allocator;
	must(dhs_host_create(&host, &G->host));
	must(dhs_host_stream_create(G->host, &G->stream));
	open_context(&allocator);
	batch.flags = DHS_BATCH_STAGING_ROWS;
	batch.top_k = 1;
	batch.staging_rows = 1;
	must(dhs_batch_create(C, &batch, &G->batch));
	G->kept = new_slots(SESSIONS);
	for (uint32_t i = 0; i < shape->sessions; i++)
		G->kept[i] = 1;
}

static int failed;

static void line(int good, const char *what, uint64_t count)
{
	failed |= !good;
	printf("%sok %d - %s, %s: %" PRIu64 "\n", good ? "" : "not ", ++line_number, shape->name, what,
	       count);
}

static void close_game(void)
{
	copy_arena(&arena, &fresh);
	dhs_context_destroy(C);
	must(dhs_host_stream_destroy(G->stream));
	must(dhs_host_destroy(G->host));
}

static void report(int stopped)
{
	uint32_t missing = 0;

	printf("# %s: %" PRIu32 " states, %" PRIu64 " calls, %" PRIu64 " of them refused%s\n",
	       shape->name, found.count, found.tried, found.refused,
	       stopped ? "; stopped before the end" : "");
	for (uint32_t l = 0; l < LINES; l++) {
		int wanted = lines[l].must & shape->kind && (shape->page_rows > 1 || !lines[l].cut);

		if (seen[l] || wanted)
			printf("# %10" PRIu64 "  %s -> %s: %s\n", seen[l], state_name[lines[l].from],
			       state_name[lines[l].to], lines[l].says);
		missing += wanted && !seen[l];
	}
	line(1, "states in which all is as it must be", found.count);
	line(!missing || stopped, "lines of the table that were not seen", missing);
}

/* Breadth first, so that what fails is reached by the fewest calls. */
static void explore(uint64_t most)
{
	struct canon canon;
	uint32_t n = 0;

	memset(&found, 0, sizeof(found));
	memset(seen, 0, sizeof(seen));
	at = 0;
	grow();
	open_game();
	copy_arena(&fresh, &arena);
	make_canon(&canon);
	add_hash(hash_canon(&canon));
	add_node(0, (struct event){ 0 });
	for (; n < found.count && n < most; n++)
		expand(n);
	close_game();
	report(n < found.count);
	free(found.node);
	free(found.table);
}

static void caught(int number)
{
	if (number == SIGALRM)
		fail("the call does not return");
	fail("signal %d", number);
}

static void usage(void)
{
	fprintf(stderr, "usage: check_states [--states N] [--shape NAME] [--long] [--apart]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	const char *less = getenv("TEST_LESS"), *only = NULL;
	uint64_t most = UINT64_MAX;
	int longer = 0;

	if (less && strtoull(less, NULL, 10) > 1)
		most = FEW_STATES / strtoull(less, NULL, 10);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--apart"))
			apart = 1;
		else if (!strcmp(argv[i], "--long"))
			longer = 1;
		else if (i + 1 == argc)
			usage();
		else if (!strcmp(argv[i], "--states"))
			most = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--shape"))
			only = argv[++i];
		else
			usage();
	}
	signal(SIGALRM, caught);
	signal(SIGSEGV, caught);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		shape = &shapes[i];
		if (only ? !strcmp(only, shape->name) : longer || !shape->only_long)
			explore(most);
	}
	printf("1..%d\n", line_number);
	return failed;
}
