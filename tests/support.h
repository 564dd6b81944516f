/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What the suites share: an allocator that counts and fails on demand, a rig
 * (device, streams, context), histories whose rows carry stamps, and turns:
 * steps that write stamped rows and check every row that a plan gives.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include "device.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The call returns 0; else the test fails with the library's words. */
#define ck_good(call)                                                                              \
	do {                                                                                           \
		int good_rc_ = (call);                                                                     \
		ck_assert_msg(good_rc_ == 0, "%s: %d, %s", #call, good_rc_, dhs_last_error());             \
	} while (0)

/* The call returns this code. */
#define ck_code(call, code)                                                                        \
	do {                                                                                           \
		int code_rc_ = (call);                                                                     \
		ck_assert_msg(code_rc_ == (code), "%s: %d, not %d; %s", #call, code_rc_, (code),           \
		              dhs_last_error());                                                           \
	} while (0)

/* The call returns this code and says these two words in dhs_last_error(). */
#define ck_told(call, code, word, limit)                                                           \
	do {                                                                                           \
		ck_code(call, code);                                                                       \
		support_said(#call, word, limit);                                                          \
	} while (0)

/* dhs_last_error() has both words (NULL: any). */
void support_said(const char *call, const char *word, const char *limit);

/* Runs the suite; the exit status of main.  TAP: CK_TAP_LOG_FILE_NAME=-. */
int support_run(Suite *suite);
/* A case; in_pool: its rigs have staging in the library's pool, as rig_stage makes it. */
TCase *support_case(const char *name, bool in_pool);
/* Adds what `add` adds with staging as defaults have it and with staging in the pool,
 * which on a GPU is one and the same. */
void support_both(Suite *suite, void (*add)(Suite *suite, bool in_pool));
/* How much longer than usual tests may take: TEST_SLOW (valgrind, TSan). */
double support_seconds(double seconds);
/* `count` less under valgrind and sanitizers: divided by TEST_LESS. */
uint32_t support_times(uint32_t count);

/* ---- random numbers ------------------------------------------------------- */

struct dice {
	uint64_t state;
};

uint64_t dice_next(struct dice *dice);
/* One of 0 .. below - 1. */
uint32_t dice_below(struct dice *dice, uint32_t below);

/* ---- memory --------------------------------------------------------------- */

struct memory {
	dhs_allocator allocator; /* give this to the library */
	struct device_watch watch;
	pthread_mutex_t lock;
	uint64_t bytes[3]; /* live, by kind */
	uint64_t blocks[3];
	uint64_t asked;   /* allocations since arming */
	uint64_t fail_at; /* this allocation since arming fails; 0: none */
	bool fail_on;     /* and all after it */
	bool failed;      /* one failed since arming */
	uint32_t kind;    /* of the first that failed */
	uint32_t wrong;   /* frees that do not fit, kinds that do not exist */
};

void memory_open(struct memory *memory);
void memory_arm(struct memory *memory, uint64_t fail_at, bool fail_on);
void memory_disarm(struct memory *memory);
uint64_t memory_live(const struct memory *memory);

/* ---- the rig -------------------------------------------------------------- */

#define RIG_LAYERS 128
#define RIG_GROUPS 64

struct scrap;

struct rig {
	struct memory memory;      /* of the context */
	struct memory host_memory; /* of the device */
	dhs_segment segment[8];
	uint32_t group_layers[RIG_GROUPS];
	dhs_layout layout;
	dhs_context_options options;
	uint64_t seed;    /* of the device */
	bool engine_pool; /* rig_open makes a pool, lends all pages but the first */
	bool shared_host; /* the device is another rig's: host */
	dhs_host *host;
	struct device device;
	bool opened; /* the device */
	dhs_stream stream, side;
	dhs_context *context;
	void **pool;
	uint32_t pool_skew; /* bytes that the engine's pool starts past a round address */
	uint64_t pool_layer_bytes;
	dhs_place *place; /* [layers][segments] */
	uint32_t next_stamp;
	_Atomic uint32_t bad; /* what kernels found wrong */
	_Atomic uint32_t ran; /* checks that ran */
	char words[200];      /* the first of it */
	struct scrap *scraps;
};

/* Two groups of one and two layers, rows of 64 bytes, pages of 4 rows, 8 hot
 * rows, a tail of 4, 2 new rows a step, 4 sessions of 256 rows, 64 pages;
 * staging as the case says, and unless it does, behind the pool. */
void rig_default(struct rig *rig);
/* The device, two streams and the context. */
void rig_open(struct rig *rig);
/* The device and two streams only. */
void rig_open_host(struct rig *rig);
/* Destroys all, asserts that nothing leaked and that no kernel complained. */
void rig_close(struct rig *rig);
/* The device is the host backend's. */
bool rig_on_host(const struct rig *rig);
/* Staging in the library's pool or behind it; on a GPU always in it, as functions
 * reach no memory that is mapped. */
void rig_stage(struct rig *rig, bool behind);
bool rig_stages_behind(const struct rig *rig);
/* The pool is an engine's, with these bases. */
void rig_use_pool(struct rig *rig, void **pool);
/* fn(copy of arg) in stream order. */
void rig_launch(struct rig *rig, dhs_stream stream, void (*fn)(void *copy), const void *arg,
                size_t bytes);
/* Runs both streams; asserts that no kernel complained. */
void rig_sync(struct rig *rig);
/* Zeroed memory that lives until rig_close, or rig_forget where nothing was opened; once the
 * device is open, kernels and functions on it can use it. */
void *rig_keep(struct rig *rig, size_t bytes);
void rig_forget(struct rig *rig);
void rig_wrong(struct rig *rig, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rig_group(const struct rig *rig, uint32_t group, uint32_t *first, uint32_t *layers);
uint32_t rig_groups(const struct rig *rig);
uint32_t rig_page_rows(const struct rig *rig);
uint64_t rig_row_bytes(const struct rig *rig);
/* Asserts that the six counts of pages sum to device_pages. */
dhs_stats rig_stats(struct rig *rig);
dhs_session_info rig_info(struct rig *rig, dhs_session session);
/* Sessions, a prefill, steps and reads, all of it new; gives it all back. */
void rig_works(struct rig *rig);

void stamp_write(struct rig *rig, int32_t slot, uint32_t stamp);
/* The row at the slot in layers first .. first + layers - 1. */
bool stamp_is(const struct rig *rig, int32_t slot, uint32_t stamp, uint32_t first, uint32_t layers);

/* ---- histories ------------------------------------------------------------ */

struct history {
	dhs_session id;
	uint64_t rows;    /* as the device will have it */
	uint64_t settled; /* as the host knows it */
	uint32_t *stamp;  /* of each row */
};

void history_open(struct rig *rig, struct history *history);
/* Extends, writes and commits in one piece. */
void history_prefill(struct rig *rig, struct history *history, uint32_t rows);
void history_truncate(struct rig *rig, struct history *history, uint64_t rows);
void history_close(struct rig *rig, struct history *history);

/* ---- turns ---------------------------------------------------------------- */

#define TURN_ENTRIES 64
#define TURN_NEW 64

struct table {
	struct rig *rig;
	dhs_batch *batch;
	dhs_batch_options options; /* zeros replaced by what they mean */
};

void table_open(struct rig *rig, struct table *table, uint32_t sessions, uint32_t queries,
                uint32_t top_k);
void table_open_options(struct rig *rig, struct table *table, const dhs_batch_options *options);
void table_close(struct table *table);
/* Entries of a selection of full shape. */
size_t table_entries(const struct table *table);

struct turn_entry {
	struct history *history; /* NULL: padding */
	uint32_t new_rows;
	uint32_t queries;
	uint32_t kept;   /* what the device will keep */
	bool cancelled;  /* by a truncate or destroy: nothing is kept */
	uint64_t length; /* filled by begin */
	uint32_t stamp[TURN_NEW];
};

struct turn {
	struct rig *rig;
	struct table *table;
	dhs_stream stream;
	dhs_step step;
	uint32_t count;
	struct turn_entry entry[TURN_ENTRIES];
	int32_t *new_slots;         /* device, of turn_slots */
	int32_t *rows[RIG_GROUPS];  /* device, of turn_plan */
	int32_t *slots[RIG_GROUPS]; /* device */
	uint32_t *want[RIG_GROUPS]; /* stamps */
};

void turn_open(struct turn *turn, struct table *table);
void turn_add(struct turn *turn, struct history *history, uint32_t new_rows, uint32_t queries,
              uint32_t kept);
int turn_try_begin(struct turn *turn);
void turn_begin(struct turn *turn);
/* Slots of the new rows, and a kernel that writes and checks them. */
void turn_write(struct turn *turn);
/* rows: [count][queries][top_k] of the table's shape, in ordinary memory. */
void turn_plan(struct turn *turn, uint32_t group, const int32_t *rows);
/* A kernel that checks the slots of the group's plan; all its layers. */
void turn_check(struct turn *turn, uint32_t group);
/* turn_plan, fetch of all layers, turn_check. */
void turn_resolve(struct turn *turn, uint32_t group, const int32_t *rows);
void turn_resolve_all(struct turn *turn, const int32_t *rows);
/* On the device alone; kept counts written by a kernel. */
void turn_commit(struct turn *turn);
void turn_settle(struct turn *turn);
void turn_end(struct turn *turn);
void turn_abort(struct turn *turn);
/* The selection of one entry and query; `rows` as in turn_plan. */
int32_t *turn_at(const struct turn *turn, int32_t *rows, uint32_t entry, uint32_t query);
/* A selection of all -1. */
int32_t *turn_blank(struct turn *turn);
/* A selection with rows from everywhere, edges and nonsense among them. */
int32_t *turn_wild(struct turn *turn, struct dice *dice);

/* Reads every row of the history through steps of the table, in all groups. */
void history_verify(struct table *table, struct history *history);

/* A step with one session, all calls; `kept` of `new_rows`; `rows` or NULL. */
void turn_one(struct table *table, struct history *history, uint32_t new_rows, uint32_t kept,
              const int32_t *rows, uint32_t queries);

/* Enqueues a copy of `bytes` bytes of kept memory, in stream order. */
void launch_copy(struct rig *rig, dhs_stream stream, void *to, const void *from, size_t bytes);

#endif
