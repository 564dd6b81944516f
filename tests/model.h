/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A reference model of the library, written from docs/residency.md and
 * docs/resolve.md alone: arrays, scans and counts, no device, no bytes.  It
 * predicts what each call returns, where each selected row lies, which rows give
 * way, and every counter.
 *
 * Host calls come in pairs: model_may_...() tells which codes the call may
 * return and changes nothing; after a call that returned 0 the other one does
 * to the model what the call did.  Device calls (slots, plan, fetch, commit) are
 * played in the order in which the device must run them.
 *
 * Which page of the pool is taken is the library's choice: the model names a
 * page by who has it and learns the number when it sees a slot for the first
 * time; from then on, as long as this owner has it, the number must stay, and no
 * other owner may show it.
 */
#ifndef DHS_TESTS_MODEL_H
#define DHS_TESTS_MODEL_H

#include <dhisparse/dhisparse.h>

#define MODEL_GROUPS 8
#define MODEL_ENTRIES 16 /* most entries of a step */

/* A set of codes that a call may return. */
#define MODEL_CODE(code) (1u << -(code))

struct model_config {
	uint32_t policy; /* a DHS_POLICY_..., not the default */
	int eager;
	int background; /* and not eager: ticks copy history */
	uint32_t max_sessions;
	uint32_t max_rows;
	uint32_t max_new_rows;
	uint32_t hot_rows;
	uint32_t elastic_pages; /* of a session, at most */
	int no_history;         /* is kept on the device */
	uint32_t tail_rows;
	uint32_t page_rows;
	uint32_t tokens_per_row;
	uint32_t groups;
	uint32_t group_layers[MODEL_GROUPS];
	uint32_t row_bytes;
	uint32_t device_pages;
	uint32_t host_pages;
	int engine_pool;
	int behind; /* staging lies behind the pool, and takes none of its pages */
	uint64_t link_bytes;
	uint32_t refill_low, refill_high;
	int whole; /* room is made of whole sessions */
	uint32_t reserved_pages;
};

struct model_step;

/* Steps that read or write a page and whose end may not be recorded yet. */
struct model_readers {
	struct model_step *step[DHS_MAX_STEPS_IN_FLIGHT];
};

/* A device page for as long as one owner has it. */
struct model_page {
	int32_t number; /* -1: not seen yet */
	int released;
	int behind; /* the pool: it is of staging, with a number past the pool's */
};

/* A place for one row in a hot cache or a staging buffer. */
struct model_place {
	int32_t slot; /* -1: not seen yet */
	struct model_places *of;
};

/* Places that lie in some pages, in an order that is the library's choice. */
struct model_places {
	uint32_t pages;
	struct model_page **page;
	uint32_t count;
	struct model_place *place;
};

/* The hot cache of a session for one group: places in required pages, and in elastic ones. */
struct model_hot {
	struct model_places places;
	struct model_places **more; /* [elastic pages] */
	uint32_t count;             /* places in use */
	int64_t *row;               /* of each place, -1: empty */
	uint64_t *stamp;            /* number of the plan that last read it */
	uint64_t plan;              /* number of the last plan */
	uint32_t misses;            /* of the last plan */
	uint32_t fetched;           /* layers of it, from the first on without a gap */
};

#define MODEL_AGES 24

/* What one plan of a step saw of a session's hot cache. */
struct model_sample {
	int plans, looked;
	uint32_t misses, empty;
	uint32_t places[MODEL_AGES], hits[MODEL_AGES];
};

/* The samples of a session, weighed. */
struct model_curve {
	uint32_t empty, misses;
	uint32_t places[MODEL_AGES], hits[MODEL_AGES];
};

struct model_session {
	dhs_session handle;
	uint32_t serial; /* 1, 2, ... in the order of creation */
	uint32_t index;
	int alive;
	int failed; /* a settle contradicted the device */
	int suspended;
	uint64_t since; /* steps that were begun before it was resumed last */
	uint64_t settled;
	uint64_t device_rows; /* length once the enqueued commits have run */
	uint64_t reserve;
	uint64_t drop_from;        /* hot rows from here on go at the next begin or extend */
	uint32_t history;          /* pages that have aged */
	uint32_t mapped;           /* pages that exist, on the device or in host memory only */
	struct model_page **table; /* NULL: host memory only */
	uint32_t *copied; /* rows of each page, from its first on, with a copy that no commit made */
	uint32_t spares;
	struct model_readers *spare;
	uint64_t used; /* steps begun when it was used last */
	struct model_curve curve;
	uint32_t hot_pages; /* elastic ones last */
	uint32_t told;      /* of these, the first ones that a begin has told the device of */
	struct model_readers *hot_page_readers;
	struct model_page **hot_page;
	uint32_t host_pages;
	struct model_readers *host_page;
	int extending;
	uint32_t extension;          /* rows */
	struct model_step *last;     /* that it stood in; an extension counts as one */
	struct model_readers before; /* of the session that had the index before */
	uint32_t *version;           /* of each row: who wrote it last */
	struct model_hot hot[MODEL_GROUPS];
};

struct model_entry {
	struct model_session *session; /* NULL: padding */
	uint32_t new_rows;
	uint32_t queries;
	int cancelled;
	uint64_t base;    /* device length before the step's new rows */
	uint32_t version; /* that the new rows are written with */
	uint32_t kept;
	uint32_t share; /* staging rows */
	struct model_sample sample;
	uint32_t mapped;
	struct model_page **table; /* as begin left it */
};

struct model_step {
	dhs_step handle;
	uint64_t number; /* 0, 1, ... in the order of begin */
	struct model_batch *batch;
	int open;      /* its end is not recorded */
	int unsettled; /* neither settled nor aborted */
	int committed; /* the commit is enqueued */
	int closing;   /* scratch: the begin in question would record its end */
	int resident;  /* what all_resident says */
	int passed;    /* its samples are taken over */
	int ran;       /* the driver's: the last function of the step has run */
	uint32_t count;
	struct model_entry entry[MODEL_ENTRIES];
};

enum { MODEL_PAD, MODEL_PAGE, MODEL_PLACE };

/* What one slot must be, and what must lie there. */
struct model_want {
	uint32_t kind;
	int32_t pad;
	struct model_page *page;
	uint32_t offset;
	struct model_place *place;
	struct model_hot *hot; /* of a place in a hot cache */
	int missed;            /* its bytes come with this plan's fetch */
	uint32_t serial;
	uint32_t row;
	uint32_t version;
};

/* A plan: the slots it gives, and what a fetch has to copy. */
struct model_plan {
	struct model_step *step;
	uint32_t group;
	uint64_t turn; /* of the batch's staging buffers */
	uint32_t sessions;
	uint32_t queries;
	uint32_t top_k;
	uint32_t misses;                 /* of all entries */
	uint64_t fetched;                /* layers of the group, a bit each */
	uint64_t numbers[MODEL_ENTRIES]; /* of each entry's plan, 0: not planned */
	uint32_t count;
	struct model_want *want; /* [sessions][queries][top_k] */
};

struct model_batch {
	dhs_batch *handle;
	int alive;
	uint32_t max_sessions;
	uint32_t max_queries;
	uint32_t top_k;
	uint32_t staging_rows;
	uint32_t buffers;
	int32_t read_pad;
	int32_t write_pad;
	struct model_places staging; /* [buffers][staging_rows] */
	struct model_readers *staging_readers;
	struct model_step *step; /* the last begun */
	uint64_t turn;
	struct model_plan *plan[MODEL_GROUPS];
};

/* What came back into hot caches, until a step tells it. */
struct model_warmed {
	uint64_t rows;
	uint64_t bytes;
};

struct model_index {
	uint32_t number;
	struct model_readers readers;
};

/* A page of history on its way back to the device. */
struct model_coming {
	struct model_session *session;
	uint32_t p;
	uint64_t tick;
	struct model_page *page;
};

struct model {
	struct model_config config;
	struct model_coming *coming; /* oldest first */
	uint32_t comings;
	int filling;
	uint64_t fetched;    /* by the last tick */
	uint32_t hot_pages;  /* of a session */
	uint32_t tail_pages; /* of a session */
	uint32_t max_pages;  /* of a session's history */
	uint32_t frees;
	struct model_readers *free;
	uint32_t host_frees;
	struct model_readers *host_free;
	uint32_t sessions;
	struct model_session **session; /* [max_sessions], NULL: no session has the index */
	struct model_warmed *warmed;    /* by index of the session */
	uint32_t indices;
	struct model_index *index; /* free ones, the longest free first */
	uint32_t serial;
	uint32_t batches;
	uint64_t steps;
	struct model_step *flight[DHS_MAX_STEPS_IN_FLIGHT]; /* unsettled, oldest first */
	struct model_step *recent[DHS_MAX_STEPS_IN_FLIGHT]; /* the last ones */
	uint32_t versions;
	dhs_stats stats;            /* counters only */
	struct model_page **behind; /* pages behind the pool that have shown a number */
	uint32_t behinds, most_behinds;
	struct model_page **holder;  /* [device_pages] who showed a number last */
	struct model_readers *taken; /* [device_pages] of pages that the engine took */
	struct model_page engine;    /* holds what is not the library's */
	const char *fault;           /* what a model_see_...() found */
	void *memory;                /* all of it, freed with the model */
};

struct model_entry_ask {
	struct model_session *session; /* NULL: padding */
	uint32_t new_rows;
	uint32_t queries;
};

struct model *model_new(const struct model_config *config);
void model_free(struct model *m);
void *model_memory(struct model *m, size_t bytes);

/* What stats and info must show now.  Only the page counts, sessions, batches
 * and host rows of `stats`; the counters are m->stats. */
void model_pages(const struct model *m, dhs_stats *stats);
void model_info(const struct model *m, const struct model_session *s, dhs_session_info *info);
uint64_t model_bound(const struct model *m, const struct model_session *s);
int model_busy(const struct model *m, const struct model_session *s);
int model_open(const struct model_session *s);

/* The state of a page of a session, as docs/residency.md has them. */
enum model_state {
	MODEL_NONE, /* there is no such page */
	MODEL_TAIL,
	MODEL_BACKED, /* resident, backed up */
	MODEL_ONLY,   /* resident only */
	MODEL_COMING, /* on its way */
	MODEL_HOST,   /* host only */
	MODEL_STATES
};
enum model_state model_state(const struct model *m, const struct model_session *s, uint32_t p);

/* A refused create, extend or begin counts. */
void model_refused(struct model *m, int code);

void model_admission(const struct model *m, uint64_t reserve, dhs_admission *a);
/* Pages of a session that has not begun and that still drain. */
uint32_t model_draining(const struct model_session *s);
unsigned model_may_create(struct model *m, uint64_t reserve);
struct model_session *model_create(struct model *m, uint64_t reserve, dhs_session handle);
unsigned model_may_extend(struct model *m, struct model_session *s, uint32_t rows);
void model_extend(struct model *m, struct model_session *s, uint32_t rows);
void model_commit_rows(struct model *m, struct model_session *s, uint32_t rows, uint32_t version);
void model_truncate(struct model *m, struct model_session *s, uint64_t rows);
uint32_t model_evict(struct model *m, struct model_session *s); /* pages given back */
unsigned model_may_suspend(const struct model *m, const struct model_session *s);
void model_suspend(struct model *m, struct model_session *s);
unsigned model_may_resume(const struct model *m, const struct model_session *s);
void model_resume(struct model *m, struct model_session *s);
void model_destroy(struct model *m, struct model_session *s);

unsigned model_may_lend(const struct model *m, const int32_t *pages, size_t count);
void model_lend(struct model *m, const int32_t *pages, size_t count);
/* How many pages a take may get: at nobody's cost, and all. */
size_t model_idle_pages(const struct model *m);
size_t model_may_take(const struct model *m);
/* steps[i]: what page i may still be read by, NULL if by nothing. */
int model_take(struct model *m, const int32_t *pages, size_t count, struct model_step **steps);

/* A tick; `fetched` is what the library has taken over of fetched bytes. */
void model_advance(struct model *m, uint64_t fetched);
uint32_t model_comings(const struct model *m, const struct model_session *s);

unsigned model_may_batch(const struct model *m, uint32_t staging_pages);
struct model_batch *model_batch_create(struct model *m, const dhs_batch_options *o,
                                       uint32_t staging_pages, uint32_t staging_rows);
void model_batch_destroy(struct model *m, struct model_batch *b);

unsigned model_may_begin(struct model *m, struct model_batch *b, const struct model_entry_ask *ask,
                         uint32_t count);
struct model_step *model_begin(struct model *m, struct model_batch *b,
                               const struct model_entry_ask *ask, uint32_t count);
/* The library has seen the device pass: what it did before any begin but one that is refused for
 * order, all steps (NULL), or those of a batch. */
void model_begins(struct model *m);
void model_passed(struct model *m, const struct model_batch *b);
unsigned model_may_settle(const struct model *m, const struct model_step *t);
void model_settle(struct model *m, struct model_step *t, const uint32_t *kept);
void model_abort(struct model *m, struct model_step *t);

/* Device calls.  `rows` is the selection as the device will read it. */
struct model_want *model_slots(struct model *m, struct model_batch *b, uint32_t sessions,
                               uint32_t rows);
struct model_plan *model_plan(struct model *m, struct model_batch *b, uint32_t group,
                              const dhs_selection *shape, const int32_t *rows);
void model_fetch(struct model *m, struct model_batch *b, uint32_t group, uint32_t first,
                 uint32_t layers);
void model_commit(struct model *m, struct model_batch *b, uint32_t sessions, const int32_t *kept);

/* A slot or page that the library showed: 1 if it is what it must be. */
int model_see_page(struct model *m, struct model_page *page, int32_t number);
int model_see(struct model *m, const struct model_want *want, int32_t slot);

#endif
