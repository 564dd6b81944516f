/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Description: plays long random call sequences against the library, on the host
 * backend with an asynchronous device, and against the reference model of
 * model.h, and compares: every code, every slot, every counter, the page tables
 * that the engine can read, and the bytes of every selected row, stamped with
 * session, row, layer, segment and version.  What an engine's kernels would do is
 * done by functions that run on the device's schedule, so a missing wait shows
 * as wrong bytes.
 *
 * A run is a row of rounds.  Each has a device and a context of its own, with
 * dimensions and policy from the round's seed, and plays some thousand calls.
 * Every eighth round is played again on a device with another schedule and must
 * give the same codes and slots.
 *
 * random_driver [--seed S] [--calls N] [--steps N] [--round SEED] [--round-calls N]
 *               [--verbose] [--often] [--backend host|cuda|both]
 * It goes on until it has made so many calls and begun so many steps.
 * DHS_RANDOM_SEED and DHS_RANDOM_CALLS stand in for the first two.
 */

#include "device.h"
#include "model.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MOST_LAYERS = 8,
	MOST_SEGMENTS = 3,
	MOST_STREAMS = 3,
	MOST_BATCHES = 2,
	MOST_SESSIONS = 8,
	MOST_OPS = 192,
	MOST_FENCES = 16,
	MOST_DEAD = 16,
	GUARD = 8,    /* words behind each array, never written */
	HISTORY = 48, /* calls that a failure prints */
	LEAST = 1000, /* of each event in a long run */
	LONG_RUN = 200000,
	MANY_STEPS = 100000 /* of a run in which each transition of a page is seen LEAST times */
};

#define GUARD_WORD 0x5a5a1234

/* ---- the run ------------------------------------------------------------------ */

struct batch;
struct step;

struct allocation {
	uint64_t bytes[3]; /* by kind */
};

struct host_block {
	struct host_block *next;
	unsigned char *memory;
	size_t bytes;
};

/* A page of an engine-owned pool. */
struct engine_page {
	int lent;
	dhs_stream stream; /* its pattern was written by work on this stream */
	int late;          /* it was taken, and its fence has not been waited for */
	dhs_fence fence;
	struct model_step *step; /* that the fence relies on, or NULL */
};

struct fence {
	dhs_fence value;
	struct model_step *step; /* or extension, that it relies on, or NULL */
	int passed;
};

struct extension {
	struct model_session *session;
	uint32_t version;
	uint32_t rows;
	dhs_stream stream;
};

/* Rows on their way to or from a pool that functions do not reach themselves. */
struct tray {
	int32_t *slot;
	uint32_t *some;       /* layers that are looked at, a bit each */
	unsigned char *bytes; /* as in struct device_rows, all layers */
};

/* What the random shape of a round is. */
struct shape {
	uint32_t layers;
	uint32_t segments;
	dhs_segment segment[MOST_SEGMENTS];
	uint32_t segment_place[MOST_SEGMENTS]; /* of the engine's packing, from the page's start */
	uint64_t layer_bytes;                  /* of a page */
	int packed;                            /* one buffer, page by page */
	int packed_by_library;                 /* page_stride 0 */
	uint32_t streams;
	uint64_t device_seed;
	uint32_t aim; /* sessions that the engine likes to have */
	dhs_batch_options batch[MOST_BATCHES];
	uint32_t batches;
};

enum op_kind {
	OP_VIEW,
	OP_RESIDENT,
	OP_SLOTS,
	OP_SELECT,
	OP_PLAN,
	OP_RESOLVE,
	OP_FETCH,
	OP_FORK,
	OP_JOIN,
	OP_CHECK,
	OP_AGAIN,
	OP_COMMIT,
	OP_SCRIBBLE,
	OP_GRAPH
};

static const char *const op_name[] = { "view",    "all_resident", "slots",    "select", "plan",
	                                   "resolve", "fetch",        "fork",     "join",   "check",
	                                   "again",   "commit",       "scribble", "graph" };

struct op {
	enum op_kind kind;
	uint32_t group;
	uint32_t first;
	uint32_t layers;
	uint32_t sessions;
	uint32_t rows;
	int kept; /* commit: with kept_dev */
	dhs_stream side;
	dhs_selection shape;
};

enum step_mode { STEP_SETTLE, STEP_END, STEP_ABORT };

struct step {
	struct model_step *model; /* NULL: not in use */
	struct batch *batch;
	dhs_stream stream;
	enum step_mode mode;
	dhs_stream forked; /* a fetch on this stream is not joined back */
	int last;          /* nothing more is enqueued */
	uint32_t ops;
	uint32_t at;
	struct op op[MOST_OPS];
};

enum job_kind {
	JOB_VIEW,
	JOB_NEW_ROWS,
	JOB_SELECT,
	JOB_CHECK,
	JOB_AGAIN,
	JOB_KEPT,
	JOB_SCRIBBLE,
	JOB_PREFILL,
	JOB_PATTERN,
	JOB_PATTERN_CHECK,
	JOB_LAST,
	JOB_FENCE
};

/* What one function on the device does. */
struct job {
	struct job *next; /* first: newest() relies on it */
	enum job_kind kind;
	struct tray tray; /* of a job without a batch */
	uint64_t call;
	struct batch *batch;
	uint32_t group;
	struct model_plan *plan;
	uint64_t layers; /* of the group, a bit each */
	int pages;       /* page slots still hold */
	int staging;     /* staging slots still hold */
	uint32_t hot;    /* entries whose hot slots still hold, a bit each */
	struct model_want *want;
	uint32_t sessions;
	uint32_t rows;
	struct model_step *step;
	int committed;
	uint32_t serial;
	uint32_t first_row;
	uint32_t version;
	int32_t page;
	int32_t *numbers;
	uint32_t count;
};

struct batch {
	struct model_batch *model; /* NULL: not created */
	dhs_batch *handle;
	dhs_batch_view view;
	uint64_t device_bytes;
	uint64_t staging_bytes; /* of these, not of the allocator */
	uint64_t host_bytes;
	struct job *first; /* jobs that the device has not run, in stream order */
	struct job **last;
	uint32_t entries; /* of a selection's array */
	int32_t *rows[MODEL_GROUPS];
	int32_t *slots[MODEL_GROUPS]; /* may be rows */
	int32_t *host_rows[MODEL_GROUPS];
	struct model_plan *plan[MODEL_GROUPS];
	struct model_plan *recent[4];
	int32_t *new_slots;
	int32_t *kept;
	struct tray tray;     /* its work comes in stream order, so one serves all of it */
	dhs_batch_view shown; /* a copy of the view, where functions do not reach it */
	struct device_graph *graph;
	int graph_commits;
	uint32_t graph_ops;
	struct op graph_op[MOST_OPS];
};

struct round {
	uint64_t seed;
	uint64_t random;
	uint64_t calls;
	uint64_t most_calls;
	struct model_config config;
	struct shape shape;
	dhs_allocator allocator;
	struct allocation taken;
	uint64_t context_device_bytes;
	uint64_t context_host_bytes;
	struct device device;
	dhs_context *context;
	dhs_context *foreign; /* another one on the same device, or NULL */
	struct model *model;
	dhs_place *place; /* [layers][segments], in device memory */
	unsigned char *pool;
	unsigned char *at_hand; /* the pool's bytes at the end of the round */
	uint64_t pool_bytes;
	void *pool_base[MOST_LAYERS][MOST_SEGMENTS];
	struct engine_page *engine_page;
	dhs_stream stream[MOST_STREAMS];
	struct batch batch[MOST_BATCHES];
	struct step step[DHS_MAX_STEPS_IN_FLIGHT];
	struct extension extension[MOST_SESSIONS];
	struct fence fence[MOST_FENCES];
	uint32_t fences;
	uint64_t dead[MOST_DEAD]; /* handles of sessions and steps that are no more */
	uint32_t deads;
	uint64_t digest;        /* of what the host was told, in order */
	uint64_t device_digest; /* of what the device was told, in any order */
	uint64_t truncates;
	uint64_t aborts;
	uint64_t *reject; /* the first words of rows that were written and not kept */
	uint32_t rejects;
	uint32_t reject_room;
	struct host_block *host_block;  /* of the host tier and upload buffers */
	unsigned char *state;           /* [max_sessions][max_pages] of pages before the last call */
	uint32_t mapped[MOST_SESSIONS]; /* pages of each session then */
	uint32_t serial[MOST_SESSIONS]; /* and which it was */
	int again;                      /* the round was played before */
};

/* How pages go from one state to another: the table of docs/residency.md. */
static struct transition {
	enum model_state from, to;
	const char *what;
	uint64_t count;
} transitions[] = {
	{ MODEL_NONE, MODEL_TAIL, "pages: new ones", 0 },
	{ MODEL_TAIL, MODEL_BACKED, "pages: tail to resident, backed up", 0 },
	{ MODEL_TAIL, MODEL_ONLY, "pages: tail to resident only", 0 },
	{ MODEL_TAIL, MODEL_HOST, "pages: tail to host only", 0 },
	{ MODEL_BACKED, MODEL_HOST, "pages: resident, backed up, to host only", 0 },
	{ MODEL_ONLY, MODEL_HOST, "pages: resident only to host only", 0 },
	{ MODEL_ONLY, MODEL_BACKED, "pages: resident only to resident, backed up", 0 },
	{ MODEL_HOST, MODEL_COMING, "pages: host only to on its way", 0 },
	{ MODEL_COMING, MODEL_BACKED, "pages: landed", 0 },
	{ MODEL_COMING, MODEL_HOST, "pages: called off", 0 },
	{ MODEL_BACKED, MODEL_TAIL, "pages: resident, backed up, to tail", 0 },
	{ MODEL_ONLY, MODEL_TAIL, "pages: resident only to tail", 0 },
	{ MODEL_HOST, MODEL_TAIL, "pages: reloaded", 0 },
	{ MODEL_TAIL, MODEL_NONE, "pages: tail, cut", 0 },
	{ MODEL_BACKED, MODEL_NONE, "pages: resident, backed up, cut", 0 },
	{ MODEL_ONLY, MODEL_NONE, "pages: resident only, cut", 0 },
	{ MODEL_COMING, MODEL_NONE, "pages: on its way, cut", 0 },
	{ MODEL_HOST, MODEL_NONE, "pages: host only, cut", 0 },
};

#define TRANSITIONS (sizeof transitions / sizeof *transitions)

struct totals {
	uint64_t calls, rounds, steps, misses, victims, staged, mirrored, backed_up, truncates, aborts;
	uint64_t refusals, reorderings, page_hits, hot_hits, repeats, bad_rows, reloads, evicted,
		refilled, ticked, resumes, warmed, granted, withdrawn;
	uint64_t order_errors, rows_checked, pendings, mismatches, graphs, flow_waits;
};

static struct round *R;
static struct totals totals;
static uint64_t run_seed = 1;
static uint32_t backend = DHS_BACKEND_HOST; /* of the rounds */
static int both; /* each round is played on the host backend, then on CUDA */
static int verbose;
static int often; /* compare the counters as often as they can be taken */

/* ---- failure ------------------------------------------------------------------ */

static char history[HISTORY][200];
static uint64_t said;

static void print_history(void)
{
	uint64_t from = said > HISTORY ? said - HISTORY : 0;

	for (uint64_t i = from; i < said; i++)
		fprintf(stderr, "#   %s\n", history[i % HISTORY]);
}

static void print_round(void)
{
	const struct model_config *c = &R->config;

	fprintf(stderr,
	        "# policy %u%s%s page_rows %u layers %u groups %u segments %u row %u B hot %u tail %u "
	        "new %u sessions %u max_rows %u pages %u (%s) host pages %u streams %u device seed "
	        "%#" PRIx64 "\n",
	        c->policy, c->eager ? " eager" : " reclaim", c->whole ? " whole" : "", c->page_rows,
	        R->shape.layers, c->groups, R->shape.segments, c->row_bytes, c->hot_rows, c->tail_rows,
	        c->max_new_rows, c->max_sessions, c->max_rows, c->device_pages,
	        c->engine_pool ? "engine's"
	        : c->behind    ? "library's, staging behind it"
	                       : "library's",
	        c->host_pages, R->shape.streams, R->shape.device_seed);
}

static void print_where(void)
{
	fprintf(stderr, "# the last calls:\n");
	print_history();
	if (R) {
		print_round();
		fprintf(stderr, "# run seed %" PRIu64 ", round seed %#" PRIx64 ", call %" PRIu64 "\n",
		        run_seed, R->seed, R->calls);
		fprintf(stderr,
		        "# replay: random_driver --round %#" PRIx64 " --round-calls %" PRIu64
		        " --backend %s\n",
		        R->seed, R->most_calls, backend == DHS_BACKEND_CUDA ? "cuda" : "host");
	}
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list args;

	printf("not ok 1 - calls as the model says\n1..1\n");
	fflush(stdout);
	print_where();
	fprintf(stderr, "# FAILED: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	_exit(1); /* perhaps on a thread of the device */
}

static void caught(int number)
{
	signal(number, SIG_DFL);
	if (number == SIGALRM)
		fail("no progress: a call does not return");
	printf("not ok 1 - calls as the model says\n1..1\n");
	fflush(stdout);
	print_where();
	fprintf(stderr, "# FAILED: signal %d\n", number);
	raise(number);
}

static void keep_text(const char *format, va_list args)
{
	char *text = history[said++ % HISTORY];
	int n = snprintf(text, sizeof history[0], "%" PRIu64 " ", R->calls);

	vsnprintf(text + n, sizeof history[0] - (size_t)n, format, args);
	if (verbose)
		fprintf(stderr, "%s\n", text);
}

/* Keeps the text of what is done for a failure. */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	keep_text(format, args);
	va_end(args);
}

static void count_transitions(void);

/* The same for a call, and counts it, and what the call before did to pages. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;

	if (++R->calls % 256 == 0)
		alarm(300);
	count_transitions();
	va_start(args, format);
	keep_text(format, args);
	va_end(args);
}

/* ---- transitions ---------------------------------------------------------------- */

static void count_transition(uint32_t index, uint32_t p, enum model_state from, enum model_state to)
{
	if (from == to)
		return;
	for (size_t i = 0; i < TRANSITIONS; i++)
		if (transitions[i].from == from && transitions[i].to == to) {
			transitions[i].count += !R->again;
			return;
		}
	fail("page %u of the session with index %u went from state %d to %d", p, index, from, to);
}

/* Of one index: a session that is no more has cut all its pages. */
static void count_session(uint32_t index)
{
	const struct model_session *s = R->model->session[index];
	unsigned char *state = R->state + (size_t)index * R->model->max_pages;
	uint32_t serial = s ? s->serial : 0, mapped = s ? s->mapped : 0;

	for (uint32_t p = 0; p < R->mapped[index] || p < mapped; p++) {
		enum model_state from = p < R->mapped[index] ? state[p] : MODEL_NONE;
		enum model_state to = s ? model_state(R->model, s, p) : MODEL_NONE;

		if (serial != R->serial[index]) {
			count_transition(index, p, from, MODEL_NONE);
			from = MODEL_NONE;
		}
		count_transition(index, p, from, to);
		state[p] = (unsigned char)to;
	}
	R->serial[index] = serial;
	R->mapped[index] = mapped;
}

static void count_transitions(void)
{
	if (!R->model)
		return;
	for (uint32_t i = 0; i < R->config.max_sessions; i++)
		count_session(i);
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void digest(uint64_t value)
{
	R->digest = mix(R->digest * 31 + value);
}

/* What the device runs may run during a call, and only then. */
static void let_run(void)
{
	device_let(&R->device);
}

static int hold(int code)
{
	device_hold(&R->device);
	return code;
}

#define CALL(call) (let_run(), hold(call))

/* The code must be one of those that the model allows. */
static int check_told(int code, unsigned allowed)
{
	char *text = history[(said - 1) % HISTORY];
	size_t n = strlen(text);

	snprintf(text + n, sizeof history[0] - n, " = %d", code);
	if (verbose)
		fprintf(stderr, "    = %d %s\n", code, code ? dhs_last_error() : "");
	if (code > 0 || code < -13 || !(allowed & MODEL_CODE(code)))
		fail("code %d (%s), the model allows the set %#x", code, dhs_last_error(), allowed);
	if (code && !dhs_last_error()[0])
		fail("code %d without a text", code);
	totals.pendings += code == DHS_ERR_PENDING;
	digest((uint64_t)(uint32_t)code);
	return code;
}

static void check_must(int code, const char *what)
{
	if (code)
		fail("%s: code %d (%s)", what, code, device_error());
}

#define told(call, allowed) check_told(CALL(call), allowed)
#define must(call) check_must(CALL(call), #call)
#define must_now(call) check_must(call, #call)

/* ---- chance ------------------------------------------------------------------- */

static uint64_t random64(void)
{
	R->random += UINT64_C(0x9e3779b97f4a7c15);
	return mix(R->random);
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)((random64() >> 32) * n >> 32);
}

static uint32_t between(uint32_t least, uint32_t most)
{
	return least + below(most - least + 1);
}

/* True `percent` times of a hundred. */
static int chance(uint32_t percent)
{
	return below(100) < percent;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void *zeroed(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory) {
		fprintf(stderr, "# out of memory\n");
		exit(2);
	}
	return memory;
}

static void *device_zeroed(size_t count, size_t size)
{
	void *memory = device_memory(&R->device, count * size);

	if (!memory) {
		fprintf(stderr, "# out of device memory: %s\n", device_error());
		exit(2);
	}
	return memory;
}

static void device_free(void *memory)
{
	device_release(&R->device, memory);
}

/* An array of the engine, with words behind it that nobody may write. */
static int32_t *guarded(uint32_t count)
{
	int32_t *array = device_zeroed(count + GUARD, sizeof *array);

	for (uint32_t i = 0; i < GUARD; i++)
		array[count + i] = GUARD_WORD;
	return array;
}

static void check_guard(const int32_t *array, uint32_t count)
{
	for (uint32_t i = 0; i < GUARD; i++)
		if (array[count + i] != GUARD_WORD)
			fail("a word behind an array of the engine was written");
}

/* ---- the allocator: counts by kind, contents poisoned ------------------------- */

static void note_block(struct round *r, void *memory, size_t bytes)
{
	struct host_block *b = zeroed(1, sizeof *b);

	*b = (struct host_block){ r->host_block, memory, bytes };
	r->host_block = b;
}

static void forget_block(struct round *r, const void *memory)
{
	struct host_block **link = &r->host_block, *b;

	while ((*link)->memory != memory)
		link = &(*link)->next;
	b = *link;
	*link = b->next;
	free(b);
}

static void *give_memory(void *arg, uint32_t kind, size_t bytes, size_t align)
{
	struct round *r = arg;
	void *memory;

	if (align < sizeof(void *))
		align = sizeof(void *);
	if (kind > DHS_MEMORY_HOST)
		fail("an allocation of kind %u", kind);
	if (posix_memalign(&memory, align, bytes ? bytes : 1))
		return NULL;
	memset(memory, 0xcd, bytes);
	r->taken.bytes[kind] += bytes;
	if (kind == DHS_MEMORY_HOST)
		note_block(r, memory, bytes);
	return memory;
}

static void free_memory(void *arg, uint32_t kind, void *memory, size_t bytes)
{
	struct round *r = arg;

	if (kind > DHS_MEMORY_HOST || r->taken.bytes[kind] < bytes)
		fail("a free of kind %u that was not asked for", kind);
	if (!memory)
		return;
	r->taken.bytes[kind] -= bytes;
	if (kind == DHS_MEMORY_HOST)
		forget_block(r, memory);
	memset(memory, 0xee, bytes);
	free(memory);
}

static void check_bytes(void)
{
	uint64_t device = R->context_device_bytes, host = R->context_host_bytes;

	if (R->device.backend != DHS_BACKEND_HOST)
		device = host = 0; /* not of the allocator */
	for (int i = 0; i < MOST_BATCHES; i++)
		if (R->batch[i].model && R->device.backend == DHS_BACKEND_HOST) {
			device += R->batch[i].device_bytes - R->batch[i].staging_bytes;
			host += R->batch[i].host_bytes;
		}
	if (R->taken.bytes[DHS_MEMORY_DEVICE] != device)
		fail("device bytes taken %" PRIu64 ", computed %" PRIu64, R->taken.bytes[DHS_MEMORY_DEVICE],
		     device);
	if (R->taken.bytes[DHS_MEMORY_HOST] != host)
		fail("host bytes taken %" PRIu64 ", computed %" PRIu64, R->taken.bytes[DHS_MEMORY_HOST],
		     host);
}

/* ---- stamps ------------------------------------------------------------------- */

static uint32_t segment_start(uint32_t segment)
{
	uint32_t at = 0;

	for (uint32_t g = 0; g < segment; g++)
		at += R->shape.segment[g].bytes;
	return at;
}

static unsigned char *pool_at(uint32_t layer, uint32_t segment, uint64_t slot)
{
	const dhs_place *p = &R->place[layer * R->shape.segments + segment];
	uint64_t rows = R->config.page_rows;

	return (unsigned char *)p->base + slot / rows * p->page_stride + slot % rows * p->row_stride;
}

/* A row as functions see it: where it lies, or on a tray. */
struct spot {
	uint64_t slot;
	const struct tray *tray;
	uint32_t at; /* on the tray */
};

static unsigned char *row_at(uint32_t layer, uint32_t segment, struct spot spot)
{
	if (R->at_hand)
		return R->at_hand + (pool_at(layer, segment, spot.slot) - R->pool);
	if (R->device.direct)
		return pool_at(layer, segment, spot.slot);
	return spot.tray->bytes + ((size_t)spot.at * R->shape.layers + layer) * R->config.row_bytes +
	       segment_start(segment);
}

static uint64_t stamp_seed(uint32_t serial, uint32_t row, uint32_t version, uint32_t layer,
                           uint32_t segment)
{
	uint64_t a = (uint64_t)serial << 32 | row, b = (uint64_t)version << 32 | layer << 8 | segment;

	return mix(a * 31 + mix(b));
}

static uint32_t stamp_word(uint64_t seed, uint32_t i)
{
	return (uint32_t)(i & 1 ? seed >> 32 : seed) + i * 0x9e3779b9u;
}

static void write_stamp(uint32_t serial, uint32_t row, uint32_t version, struct spot spot)
{
	for (uint32_t l = 0; l < R->shape.layers; l++)
		for (uint32_t g = 0; g < R->shape.segments; g++) {
			uint32_t *words = (void *)row_at(l, g, spot);
			uint64_t seed = stamp_seed(serial, row, version, l, g);

			for (uint32_t i = 0; i < R->shape.segment[g].bytes / 4; i++)
				words[i] = stamp_word(seed, i);
		}
}

/* ---- rows that were rejected leave no trace in the host tier ------------------ */

static uint64_t first_words(uint32_t serial, uint32_t row, uint32_t version)
{
	uint64_t seed = stamp_seed(serial, row, version, 0, 0);

	return (uint64_t)stamp_word(seed, 1) << 32 | stamp_word(seed, 0);
}

static void note_rejects(const struct model_entry *e)
{
	for (uint32_t i = e->kept; e->session && i < e->new_rows; i++) {
		if (R->rejects == R->reject_room) {
			R->reject_room = 2 * R->reject_room + 64;
			R->reject = realloc(R->reject, R->reject_room * sizeof *R->reject);
			if (!R->reject)
				exit(2);
		}
		R->reject[R->rejects++] =
			first_words(e->session->serial, (uint32_t)(e->base + i), e->version);
	}
}

static int compare_words(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void check_rejects(struct round *r)
{
	if (!r->rejects || r->shape.segment[0].bytes < 8)
		return;
	qsort(r->reject, r->rejects, sizeof *r->reject, compare_words);
	for (struct host_block *b = r->host_block; b; b = b->next)
		for (size_t i = 0; i + 8 <= b->bytes; i += 4) {
			uint64_t words;

			memcpy(&words, b->memory + i, sizeof words);
			if (bsearch(&words, r->reject, r->rejects, sizeof words, compare_words))
				fail("a row that was not kept lies in host memory");
		}
}

static int stamp_holds(uint32_t serial, uint32_t row, uint32_t version, uint32_t layer,
                       struct spot spot)
{
	for (uint32_t g = 0; g < R->shape.segments; g++) {
		const uint32_t *words = (const void *)row_at(layer, g, spot);
		uint64_t seed = stamp_seed(serial, row, version, layer, g);

		for (uint32_t i = 0; i < R->shape.segment[g].bytes / 4; i++)
			if (words[i] != stamp_word(seed, i))
				return 0;
	}
	return 1;
}

/* Pages of the engine hold a pattern; the reserved ones of the library's pool zeros. */
static uint32_t pattern(uint32_t layer, uint32_t segment, uint64_t slot)
{
	if (!R->config.engine_pool)
		return 0;
	return (uint32_t)mix(slot << 16 | layer << 8 | segment) | 1;
}

static int pattern_holds(struct spot spot)
{
	for (uint32_t l = 0; l < R->shape.layers; l++)
		for (uint32_t g = 0; g < R->shape.segments; g++) {
			const uint32_t *words = (const void *)row_at(l, g, spot);

			for (uint32_t i = 0; i < R->shape.segment[g].bytes / 4; i++)
				if (words[i] != pattern(l, g, spot.slot))
					return 0;
		}
	return 1;
}

static void write_pattern(struct spot spot)
{
	for (uint32_t l = 0; l < R->shape.layers; l++)
		for (uint32_t g = 0; g < R->shape.segments; g++) {
			uint32_t *words = (void *)row_at(l, g, spot);

			for (uint32_t i = 0; i < R->shape.segment[g].bytes / 4; i++)
				words[i] = pattern(l, g, spot.slot);
		}
}

static uint32_t first_layer(uint32_t group)
{
	uint32_t layer = 0;

	for (uint32_t g = 0; g < group; g++)
		layer += R->config.group_layers[g];
	return layer;
}

static uint32_t shape_count(const struct batch *b, const dhs_selection *shape)
{
	return (shape->sessions ? shape->sessions : b->model->max_sessions) *
	       (shape->queries ? shape->queries : b->model->max_queries) *
	       (shape->top_k ? shape->top_k : b->model->top_k);
}

/* ---- trays: rows on their way ------------------------------------------------- */

static void make_tray(struct tray *tray, uint32_t rows)
{
	if (R->device.direct)
		return;
	tray->slot = device_zeroed(rows, sizeof(int32_t));
	tray->some = device_zeroed(rows, sizeof(uint32_t));
	tray->bytes = device_zeroed((size_t)rows * R->shape.layers, R->config.row_bytes);
}

static void drop_tray(struct tray *tray)
{
	device_free(tray->slot);
	device_free(tray->some);
	device_free(tray->bytes);
}

/* Behind the entries of a selection and the new rows of a step: the read pad's row. */
static uint32_t pad_place(const struct batch *b)
{
	return most(b->entries, b->model->max_sessions * R->config.max_new_rows);
}

static struct device_rows tray_rows(const struct tray *tray, const int32_t *slots, uint32_t count)
{
	return (struct device_rows){
		.slots = slots,
		.bytes = tray->bytes,
		.place = R->place,
		.count = count,
		.layers = R->shape.layers,
		.segments = R->shape.segments,
		.row_bytes = R->config.row_bytes,
		/* Behind the pool there is no telling where staging ends. */
		.slots_end = R->config.behind ? INT32_MAX : R->config.device_pages * R->config.page_rows,
	};
}

/* ---- what runs on the device -------------------------------------------------- */

static void print_places(const struct model_want *w, int32_t slot)
{
	const struct model_places *of = w->place->of;

	for (uint32_t i = 0; i < of->count; i++)
		if (&of->place[i] == w->place || of->place[i].slot == slot)
			fprintf(stderr, "# place %u is slot %d%s%s\n", i, of->place[i].slot,
			        &of->place[i] == w->place ? ", the one expected" : "",
			        w->missed ? " for a miss" : "");
}

static void see(const struct job *j, const struct model_want *w, int32_t slot, const char *what,
                uint32_t at)
{
	R->device_digest += mix(j->call << 40 ^ (uint64_t)at << 32 ^ (uint32_t)slot);
	if (model_see(R->model, w, slot))
		return;
	if (w->kind == MODEL_PLACE)
		print_places(w, slot);
	fail("%s of call %" PRIu64 ", group %u, entry %u: slot %d of session %u row %u: %s", what,
	     j->call, j->group, at, slot, w->serial, w->row, R->model->fault);
}

static void check_row(const struct job *j, const struct model_want *w, struct spot spot,
                      uint32_t layer, const char *what)
{
	totals.rows_checked++;
	if (!stamp_holds(w->serial, w->row, w->version, layer, spot))
		fail("%s of call %" PRIu64 ", group %u: layer %u of session %u row %u version %u, slot "
		     "%d (%s): other bytes",
		     what, j->call, j->group, layer, w->serial, w->row, w->version, (int)spot.slot,
		     w->kind == MODEL_PAGE ? "page"
		     : w->hot              ? "hot"
		                           : "staging");
}

/* The layers in which a row must hold its bytes, a bit each. */
static uint32_t layers_of(const struct job *j, const struct model_want *w)
{
	uint32_t first = first_layer(j->group), layers = R->config.group_layers[j->group];
	uint32_t all = (1u << layers) - 1;

	return (w->missed ? (uint32_t)j->layers & all : all) << first;
}

/* Entry `at` of what the job looks at. */
static void check_bytes_of(const struct job *j, const struct model_want *w, int32_t slot,
                           uint32_t at, const char *what)
{
	uint32_t layers = layers_of(j, w);
	struct spot spot = { (uint64_t)slot, &j->batch->tray, at };

	for (uint32_t l = 0; l < R->shape.layers; l++)
		if (layers >> l & 1)
			check_row(j, w, spot, l, what);
}

static void run_view(struct job *j)
{
	const dhs_batch_view *v = R->device.direct ? &j->batch->view : &j->batch->shown;
	struct model_step *t = j->step;

	for (uint32_t i = 0; i < j->batch->model->max_sessions; i++) {
		struct model_entry *e = i < t->count ? &t->entry[i] : NULL;
		int32_t index = e && e->session ? (int32_t)e->session->index : -1;
		const int32_t *table;

		if (v->session_index[i] != index)
			fail("view: entry %u has index %d, not %d", i, v->session_index[i], index);
		if (index < 0)
			continue;
		if ((uint64_t)v->lengths[index] != e->base + (j->committed ? j->numbers[i] : 0))
			fail("view: entry %u has length %d, not %" PRIu64 " + %d", i, v->lengths[index],
			     e->base, j->committed ? j->numbers[i] : 0);
		table = v->page_table + (uint64_t)index * v->page_stride;
		for (uint32_t p = 0; p < v->page_stride; p++)
			if (p >= e->mapped || !e->table[p] ? table[p] != -1
			                                   : !model_see_page(R->model, e->table[p], table[p]))
				fail("view: entry %u (session %u), page %u is %d: %s", i, e->session->serial, p,
				     table[p], R->model->fault);
	}
}

static void run_new_rows(struct job *j)
{
	struct batch *b = j->batch;
	uint32_t count = j->sessions * j->rows;

	for (uint32_t i = 0; i < count; i++) {
		const struct model_want *w = &j->want[i];
		int32_t slot = b->new_slots[i];
		struct spot spot = { (uint64_t)slot, &b->tray, i };

		see(j, w, slot, "slots", i / j->rows);
		if (w->kind != MODEL_PAD)
			write_stamp(w->serial, w->row, w->version, spot);
		else if (slot >= 0)
			write_stamp(0, i, (uint32_t)j->call, spot);
	}
}

static void run_select(struct job *j)
{
	struct batch *b = j->batch;

	memcpy(b->rows[j->group], j->numbers, j->count * sizeof *j->numbers);
	for (uint32_t i = 0; i < b->entries && b->slots[j->group] != b->rows[j->group]; i++)
		b->slots[j->group][i] = GUARD_WORD;
	for (uint32_t i = j->count; i < b->entries; i++)
		b->rows[j->group][i] = GUARD_WORD;
}

/* Whether a plan's slot holds the row's bytes. */
static int holds(const struct job *j, const struct model_want *w)
{
	return w->kind == MODEL_PAGE ? j->pages : w->kind == MODEL_PLACE && (w->hot || j->staging);
}

static void prepare_check(const struct job *j)
{
	for (uint32_t i = 0; i < j->plan->count; i++)
		j->batch->tray.some[i] = holds(j, &j->plan->want[i]) ? layers_of(j, &j->plan->want[i]) : 0;
}

static void run_check(struct job *j)
{
	struct model_plan *p = j->plan;
	const int32_t *slots = j->batch->slots[j->group];
	uint32_t stride = p->queries * p->top_k;
	struct spot pad;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct model_want *w = &p->want[i];

		see(j, w, slots[i], "plan", i / stride);
		if (holds(j, w))
			check_bytes_of(j, w, slots[i], i, "plan");
	}
	for (uint32_t i = p->count; i < j->batch->entries + GUARD; i++)
		if (slots[i] != GUARD_WORD)
			fail("plan of call %" PRIu64 " wrote behind its slots", j->call);
	pad =
		(struct spot){ (uint64_t)j->batch->model->read_pad, &j->batch->tray, pad_place(j->batch) };
	if (j->batch->model->read_pad >= 0 && !pattern_holds(pad))
		fail("the read pad's row has changed");
}

/* Where an entry of an earlier plan must still hold; -1: nowhere, or not known. */
static int32_t again_slot(const struct job *j, uint32_t i)
{
	const struct model_want *w = &j->plan->want[i];
	uint32_t stride = j->plan->queries * j->plan->top_k;

	if (w->kind == MODEL_PAGE && j->pages && w->page->number >= 0)
		return w->page->number * (int32_t)R->config.page_rows + (int32_t)w->offset;
	/* Elastic pages may be taken back behind the step. */
	if (w->kind == MODEL_PLACE && w->hot && w->place->of != &w->hot->places && !j->pages)
		return -1;
	if (w->kind == MODEL_PLACE && (w->hot ? j->hot >> (i / stride) & 1 : (uint32_t)j->staging))
		return w->place->slot;
	return -1;
}

/* Puts the slots that a later look needs on the tray's list. */
static void prepare_again(const struct job *j)
{
	const struct tray *tray = &j->batch->tray;

	for (uint32_t i = 0; i < j->batch->entries; i++) {
		tray->slot[i] = j->plan && i < j->plan->count ? again_slot(j, i) : -1;
		tray->some[i] = tray->slot[i] >= 0 ? layers_of(j, &j->plan->want[i]) : 0;
	}
}

static void run_again(struct job *j)
{
	for (uint32_t i = 0; j->plan && i < j->plan->count; i++) {
		int32_t slot = R->device.direct ? again_slot(j, i) : j->batch->tray.slot[i];

		if (slot >= 0)
			check_bytes_of(j, &j->plan->want[i], slot, i, "a later look");
	}
}

static void run_scribble(struct job *j)
{
	struct batch *b = j->batch;

	for (uint32_t g = 0; g < R->config.groups; g++)
		for (uint32_t i = 0; i < b->entries; i++)
			b->rows[g][i] = b->slots[g][i] = (int32_t)(i * 7) - 3;
	for (uint32_t i = 0; i < b->model->max_sessions; i++)
		b->kept[i] = (int32_t)(j->call % 3);
	for (uint32_t i = 0; i < b->model->max_sessions * R->config.max_new_rows; i++)
		b->new_slots[i] = 1;
}

static void write_prefill(const struct job *j)
{
	for (uint32_t i = 0; i < j->count; i++)
		write_stamp(j->serial, j->first_row + i, j->version,
		            (struct spot){ (uint64_t)j->numbers[i], &j->tray, i });
}

static void write_page(const struct job *j)
{
	for (uint32_t i = 0; i < R->config.page_rows; i++)
		write_pattern((struct spot){ (uint64_t)j->page * R->config.page_rows + i, &j->tray, i });
}

static void check_page(const struct job *j)
{
	uint64_t slot = (uint64_t)j->page * R->config.page_rows;

	for (uint32_t i = 0; i < R->config.page_rows; i++)
		if (!pattern_holds((struct spot){ slot + i, &j->tray, i }))
			fail("page %d of the engine was written (call %" PRIu64 ")", j->page, j->call);
}

static void run_job(struct job *j)
{
	switch (j->kind) {
	case JOB_VIEW:
		run_view(j);
		break;
	case JOB_NEW_ROWS:
		run_new_rows(j);
		break;
	case JOB_SELECT:
		run_select(j);
		break;
	case JOB_CHECK:
		run_check(j);
		break;
	case JOB_AGAIN:
		run_again(j);
		break;
	case JOB_KEPT:
		memcpy(j->batch->kept, j->numbers, j->count * sizeof *j->numbers);
		break;
	case JOB_SCRIBBLE:
		run_scribble(j);
		break;
	case JOB_PREFILL:
		j->step->ran = 1;
		if (R->device.direct)
			write_prefill(j);
		break;
	case JOB_PATTERN:
		if (R->device.direct)
			write_page(j);
		break;
	case JOB_PATTERN_CHECK:
		check_page(j);
		break;
	case JOB_LAST:
		j->step->ran = 1;
		break;
	case JOB_FENCE:
		if (!j->step->ran)
			fail("a stream that waited for a fence (call %" PRIu64 ") runs too early", j->call);
		break;
	}
	drop_tray(&j->tray);
	free(j->numbers);
	free(j);
}

/* ---- jobs: what the device will find when it comes to a launched function ----- */

struct launch {
	struct batch *batch;
	struct job *job; /* NULL: in a graph */
};

/* A batch's functions run in stream order, so its jobs form a queue. */
static void run_launch(void *copy)
{
	struct launch *l = copy;
	struct job *j = l->job;

	if (l->batch) {
		j = l->batch->first;
		if (!j || (l->job && l->job != j))
			fail("the device runs work of a batch out of order: call %" PRIu64 " before %" PRIu64,
			     l->job ? l->job->call : 0, j ? j->call : 0);
		l->batch->first = j->next;
		if (!j->next)
			l->batch->last = &l->batch->first;
	}
	run_job(j);
}

static struct job *new_job(enum job_kind kind, struct batch *b)
{
	struct job *j = zeroed(1, sizeof *j);

	j->kind = kind;
	j->batch = b;
	j->call = R->calls;
	if (b) {
		*b->last = j;
		b->last = &j->next;
	}
	return j;
}

static int32_t *copy_numbers(const int32_t *numbers, uint32_t count)
{
	int32_t *copy = zeroed(count, sizeof *copy);

	memcpy(copy, numbers, count * sizeof *copy);
	return copy;
}

static void launch_call(void (*fn)(void *copy), struct batch *b, struct job *j, dhs_stream stream)
{
	struct launch l = { b, j };

	must(device_launch(&R->device, stream, fn, &l, sizeof l));
}

/* A function of a batch's step; kind and shape are the job's, which in a graph is
 * found later.  Rows and views that it needs are brought before it, or taken after. */
static void launch(struct batch *b, struct job *j, dhs_stream stream)
{
	launch_call(run_launch, b, j, stream);
}

/* Before the function of the job: what rows it will look at. */
static void run_prepare(void *copy)
{
	const struct launch *l = copy;
	const struct job *j = l->batch->first;

	if (j && j->kind == JOB_CHECK)
		prepare_check(j);
	else if (j && j->kind == JOB_AGAIN)
		prepare_again(j);
	else
		fail("the device runs work of a batch out of order");
}

static void bring_view(struct batch *b, dhs_stream stream)
{
	const dhs_batch_view *from = &b->view, *to = &b->shown;
	size_t sessions = R->config.max_sessions * sizeof(int32_t);

	must(device_copy(&R->device, stream, (void *)(uintptr_t)to->session_index, from->session_index,
	                 b->model->max_sessions * sizeof(int32_t)));
	must(device_copy(&R->device, stream, (void *)(uintptr_t)to->lengths, from->lengths, sessions));
	must(device_copy(&R->device, stream, (void *)(uintptr_t)to->page_table, from->page_table,
	                 sessions * from->page_stride));
}

static void bring_rows(struct batch *b, const int32_t *slots, uint32_t count, dhs_stream stream)
{
	struct device_rows rows = tray_rows(&b->tray, slots, count);

	rows.some = b->tray.some;
	launch_call(run_prepare, b, NULL, stream);
	must(device_rows_read(&R->device, &rows, stream));
}

static void bring_pad(struct batch *b, dhs_stream stream)
{
	uint32_t pad = pad_place(b);
	struct device_rows rows = tray_rows(&b->tray, b->tray.slot + pad, 1);

	rows.bytes += (size_t)pad * rows.layers * rows.row_bytes;
	must(device_rows_read(&R->device, &rows, stream));
}

/* Before an operation's function, where it does not reach rows itself. */
static void bring(struct batch *b, const struct op *op, dhs_stream stream)
{
	if (R->device.direct)
		return;
	if (op->kind == OP_VIEW)
		bring_view(b, stream);
	if (op->kind == OP_AGAIN)
		bring_rows(b, b->tray.slot, b->entries, stream);
	if (op->kind == OP_CHECK) {
		bring_rows(b, b->slots[op->group], shape_count(b, &op->shape), stream);
		bring_pad(b, stream);
	}
}

/* After the function that has written new rows to the tray. */
static void take_new_rows(struct batch *b, const struct op *op, dhs_stream stream)
{
	uint32_t sessions = op->sessions ? op->sessions : b->model->max_sessions;
	struct device_rows rows = tray_rows(&b->tray, b->new_slots, sessions * op->rows);

	if (!R->device.direct)
		must(device_rows_write(&R->device, &rows, stream));
}

/* A job without a batch, over the rows at these slots. */
static void launch_rows(struct job *j, uint32_t count, dhs_stream stream)
{
	struct device_rows rows;

	if (!R->device.direct) {
		make_tray(&j->tray, count);
		for (uint32_t i = 0; i < count; i++)
			j->tray.slot[i] =
				j->numbers ? j->numbers[i] : j->page * (int32_t)R->config.page_rows + (int32_t)i;
		rows = tray_rows(&j->tray, j->tray.slot, count);
		if (j->kind == JOB_PREFILL)
			write_prefill(j);
		if (j->kind == JOB_PATTERN)
			write_page(j);
		if (j->kind == JOB_PATTERN_CHECK)
			must(device_rows_read(&R->device, &rows, stream));
		else
			must(device_rows_write(&R->device, &rows, stream));
	}
	launch(NULL, j, stream);
}

/* ---- the shape of a round ----------------------------------------------------- */

static const uint32_t page_sizes[] = { 1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 33, 64, 65 };

static void choose_rows(struct model_config *c, struct shape *s)
{
	c->row_bytes = 0;
	s->segments = between(1, MOST_SEGMENTS);
	for (uint32_t g = 0; g < s->segments; g++) {
		s->segment[g].bytes = 4 * between(1, chance(10) ? 64 : 12);
		c->row_bytes += s->segment[g].bytes;
	}
	if (c->row_bytes < 16) {
		s->segment[0].bytes += 16;
		c->row_bytes += 16;
	}
}

static void choose_groups(struct model_config *c, struct shape *s)
{
	s->layers = between(1, MOST_LAYERS);
	c->groups = between(1, least(s->layers, 4));
	for (uint32_t g = 0; g < c->groups; g++)
		c->group_layers[g] = 1;
	for (uint32_t l = c->groups; l < s->layers; l++)
		c->group_layers[below(c->groups)]++;
}

/* Where the segments lie in a page: one behind the other (values, then scales), or
 * side by side in each row; with gaps that nobody may write. */
static void choose_layout(struct model_config *c, struct shape *s)
{
	uint64_t at = 0, stride = 0;
	int side_by_side = chance(30);

	s->packed_by_library = !c->engine_pool && chance(50);
	for (uint32_t g = 0; g < s->segments; g++) {
		dhs_segment *segment = &s->segment[g];

		segment->row_stride = segment->bytes + (chance(30) ? 4 * below(5) : 0);
		stride += segment->row_stride;
	}
	for (uint32_t g = 0; g < s->segments && !s->packed_by_library; g++) {
		dhs_segment *segment = &s->segment[g];

		segment->offset = at;
		at += side_by_side ? segment->row_stride : segment->row_stride * c->page_rows;
		if (side_by_side)
			segment->row_stride = stride;
	}
	at = stride * c->page_rows + 4 * below(20);
	s->layer_bytes = at;
	s->packed = c->engine_pool && chance(50);
	for (uint32_t g = 0; g < s->segments && !s->packed_by_library; g++)
		s->segment[g].page_stride = s->packed ? at * s->layers : at;
	for (uint32_t g = 0; g < s->segments; g++)
		if (s->segment[g].row_stride == s->segment[g].bytes && chance(50))
			s->segment[g].row_stride = 0;
}

static void choose_batch(const struct model_config *c, struct shape *s, dhs_batch_options *o)
{
	uint32_t worst;

	memset(o, 0, sizeof *o);
	o->size = sizeof *o;
	o->max_sessions = chance(20) ? 0 : between(1, c->max_sessions);
	o->max_queries = chance(20) ? 0 : chance(5) ? between(5, 16) : between(1, 4);
	o->top_k = chance(50) ? between(1, 12) : between(1, 70);
	o->staging_buffers = chance(40) ? 0 : between(1, 3);
	if (most(o->max_queries, 1) > 4)
		o->top_k = least(o->top_k, 12);
	worst = least(most(o->max_queries, 1) * o->top_k, c->max_rows);
	worst = worst > c->hot_rows ? worst - c->hot_rows : 0;
	if (c->policy == DHS_POLICY_FULL)
		worst = 0;
	if (chance(60)) {
		o->flags |= DHS_BATCH_STAGING_ROWS;
		o->staging_rows =
			worst ? between(worst / 2, worst * (o->max_sessions ? o->max_sessions : 2)) : 0;
	}
	(void)s;
}

static uint32_t staging_guess(const struct model_config *c, const dhs_batch_options *o)
{
	uint32_t sessions = o->max_sessions ? o->max_sessions : c->max_sessions;
	uint32_t rows = least(most(o->max_queries, 1) * o->top_k, c->max_rows);

	rows = rows > c->hot_rows && c->policy != DHS_POLICY_FULL ? rows - c->hot_rows : 0;
	rows *= sessions;
	if (o->flags & DHS_BATCH_STAGING_ROWS)
		rows = o->staging_rows;
	return most(o->staging_buffers, 1) * (rows / c->page_rows + 1);
}

/* Pools that are small for what the engine likes to do. */
static void choose_pools(struct model_config *c, struct shape *s)
{
	uint32_t window = (c->tail_rows + 2 * c->max_new_rows + c->page_rows - 1) / c->page_rows + 1;
	uint32_t session = (c->hot_rows + c->page_rows - 1) / c->page_rows + window;
	uint32_t history = (c->max_rows + c->page_rows - 1) / c->page_rows;
	uint32_t sessions = s->aim = between(1, c->max_sessions);

	c->device_pages = c->reserved_pages;
	for (uint32_t i = 0; i < s->batches; i++)
		c->device_pages += c->behind ? 0 : staging_guess(c, &s->batch[i]);
	c->host_pages =
		chance(35) ? most(1, sessions * history * between(20, 90) / 100) : sessions * (history + 2);
	if (c->policy == DHS_POLICY_FULL) {
		c->host_pages = 0;
		c->device_pages += 2 + sessions * history * between(30, 120) / 100;
		return;
	}
	c->device_pages += sessions * session + below(window + 1);
	if (c->policy == DHS_POLICY_ADAPTIVE || chance(30))
		c->device_pages += sessions * history * below(chance(70) ? 50 : 120) / 100;
}

static void choose_policy(struct model_config *c)
{
	uint32_t dice = below(100);

	c->policy = dice < 58 ? DHS_POLICY_ADAPTIVE : dice < 90 ? DHS_POLICY_FIXED : DHS_POLICY_FULL;
	c->eager = c->policy != DHS_POLICY_ADAPTIVE || chance(40);
	c->background = !c->eager && chance(50);
	c->whole = chance(50);
	c->engine_pool = chance(45);
	c->behind = !c->engine_pool && chance(60);
	c->reserved_pages = c->engine_pool ? 0 : below(4);
}

/* Rooms of no, few and many pages, and links that misses fill now and then. */
static void choose_refill(struct model_config *c, const struct shape *s)
{
	uint64_t page = (uint64_t)s->layers * c->page_rows * c->row_bytes;

	c->link_bytes = chance(10) ? below((uint32_t)page) : page * between(1, 30);
	c->refill_low = chance(60) ? 0 : below(c->device_pages / 4 + 2);
	c->refill_high = c->refill_low + (chance(50) ? 0 : below(c->device_pages / 4 + 2));
}

static void choose_elastic(struct model_config *c)
{
	if (c->policy != DHS_POLICY_ADAPTIVE)
		return;
	c->elastic_pages = chance(15) ? 0 : between(1, 4 * c->hot_rows / c->page_rows + 2);
	c->no_history = chance(40);
}

static void choose_shape(struct round *r)
{
	struct model_config *c = &r->config;
	struct shape *s = &r->shape;

	choose_policy(c);
	c->page_rows =
		chance(60) ? page_sizes[below(sizeof page_sizes / sizeof *page_sizes)] : between(1, 65);
	c->tokens_per_row = between(1, 4);
	c->hot_rows = chance(25) ? between(1, 6) : chance(60) ? between(1, 24) : between(1, 100);
	choose_elastic(c);
	c->tail_rows = chance(20) ? 0 : chance(60) ? below(20) : below(71);
	c->max_new_rows = between(1, 8);
	c->max_sessions = between(1, MOST_SESSIONS);
	c->max_rows = c->tail_rows + 8 + between(c->page_rows, 3 * c->page_rows + 300);
	choose_groups(c, s);
	choose_rows(c, s);
	choose_layout(c, s);
	s->batches = between(1, MOST_BATCHES);
	for (uint32_t i = 0; i < s->batches; i++)
		choose_batch(c, s, &s->batch[i]);
	choose_pools(c, s);
	if (c->engine_pool)
		c->device_pages += 2;
	choose_refill(c, s);
	s->streams = chance(15) ? 1 : between(2, MOST_STREAMS);
	s->device_seed = chance(8) ? 0 : random64() | 1;
}

/* Pads in pages that the library never uses, where there are any. */
static void choose_pads(const struct round *r, dhs_batch_options *o)
{
	uint32_t rows = r->config.page_rows, free_slots = r->config.reserved_pages * rows;

	if (!r->config.engine_pool && free_slots < 2)
		return;
	if (r->config.engine_pool)
		free_slots = rows > 1 ? rows : 2;
	o->read_pad = (int32_t)(free_slots > 2 && chance(50) ? 2 + below(free_slots - 2) : 0);
	o->flags |= DHS_BATCH_READ_PAD;
	if (chance(80)) {
		o->write_pad = 1;
		o->flags |= chance(50) ? DHS_BATCH_WRITE_PAD : 0;
	}
}

/* ---- setting up and taking down ----------------------------------------------- */

static void build_pool(struct round *r)
{
	struct shape *s = &r->shape;
	uint64_t pages = r->config.device_pages;

	r->pool_bytes = s->layer_bytes * s->layers * pages;
	r->pool = device_pool(&r->device, r->pool_bytes);
	if (!r->pool)
		fail("no pool: %s", device_error());
	for (uint32_t l = 0; l < s->layers; l++)
		for (uint32_t g = 0; g < s->segments; g++)
			r->pool_base[l][g] = r->pool + l * s->layer_bytes * (s->packed ? 1 : pages);
}

static void fill_options(struct round *r, dhs_context_options *o, dhs_layout *layout, void **bases)
{
	const struct model_config *c = &r->config;

	*layout = (dhs_layout)DHS_INIT(dhs_layout);
	layout->layers = r->shape.layers;
	layout->groups = c->groups == r->shape.layers && chance(50) ? 0 : c->groups;
	layout->group_layers = layout->groups ? c->group_layers : NULL;
	layout->segments = r->shape.segments;
	layout->segment_size = sizeof(dhs_segment);
	layout->segment = r->shape.segment;
	layout->page_rows = c->page_rows == 64 ? 0 : c->page_rows;
	layout->tokens_per_row = c->tokens_per_row == 1 ? 0 : c->tokens_per_row;
	*o = (dhs_context_options)DHS_INIT(dhs_context_options);
	o->backend = r->device.backend;
	o->policy = c->policy == DHS_POLICY_ADAPTIVE && chance(50) ? 0 : c->policy;
	if (c->policy == DHS_POLICY_ADAPTIVE)
		o->backup = c->background ? DHS_BACKUP_BACKGROUND
		            : !c->eager   ? DHS_BACKUP_RECLAIM
		            : chance(50)  ? DHS_BACKUP_DEFAULT
		                          : DHS_BACKUP_EAGER;
	if (c->policy == DHS_POLICY_ADAPTIVE)
		o->reclaim = c->whole     ? DHS_RECLAIM_WHOLE
		             : chance(50) ? DHS_RECLAIM_DEFAULT
		                          : DHS_RECLAIM_PARTIAL;
	o->max_sessions = c->max_sessions;
	o->max_rows = c->max_rows;
	o->max_new_rows = c->max_new_rows;
	o->hot_rows = c->hot_rows;
	o->max_hot_rows = c->hot_rows + c->elastic_pages * c->page_rows;
	if (c->elastic_pages)
		o->max_hot_rows += below(c->page_rows);
	o->flags = c->no_history ? DHS_CONTEXT_NO_HISTORY : 0;
	o->tail_rows = c->tail_rows;
	o->flags |= c->tail_rows == 0 ? DHS_CONTEXT_TAIL_ROWS : 0;
	o->flags |= DHS_CONTEXT_REFILL;
	o->link_bytes = c->link_bytes;
	o->refill_low = c->refill_low;
	o->refill_high = c->refill_high;
	if (!c->engine_pool && !c->behind)
		o->flags |= DHS_CONTEXT_POOL_STAGING;
	o->reserved_pages = c->reserved_pages;
	o->device_pages = c->device_pages;
	o->host_rows = (uint64_t)c->host_pages * c->page_rows;
	if (o->host_rows)
		o->host_rows -= below(c->page_rows);
	o->layout = layout;
	o->host = r->device.host;
	o->allocator = &r->allocator;
	for (uint32_t l = 0; l < r->shape.layers; l++)
		for (uint32_t g = 0; g < r->shape.segments; g++)
			bases[l * r->shape.segments + g] = r->pool_base[l][g];
	o->pool = c->engine_pool ? (void *const *)bases : NULL;
}

static void check_place(struct round *r, uint32_t layer, uint32_t g)
{
	const dhs_segment *s = &r->shape.segment[g];
	dhs_place *p = &r->place[layer * r->shape.segments + g];
	uint64_t stride = s->row_stride ? s->row_stride : s->bytes;

	*p = (dhs_place)DHS_INIT(dhs_place);
	must(dhs_context_place(r->context, layer, g, p));
	if (p->row_stride != stride || p->bytes != s->bytes || p->page_rows != r->config.page_rows)
		fail("place of layer %u segment %u is wrong", layer, g);
	if (!r->shape.packed_by_library && p->page_stride != s->page_stride)
		fail("page stride of layer %u segment %u is wrong", layer, g);
	if (r->config.engine_pool &&
	    (unsigned char *)p->base != (unsigned char *)r->pool_base[layer][g] + s->offset)
		fail("base of layer %u segment %u is wrong", layer, g);
}

static void launch_page(enum job_kind kind, int32_t page, dhs_stream stream)
{
	struct job *j = new_job(kind, NULL);

	j->page = page;
	launch_rows(j, R->config.page_rows, stream);
}

static void check_pool_start(struct round *r)
{
	for (uint32_t p = 0; p < r->config.device_pages; p++)
		if (r->config.engine_pool)
			launch_page(JOB_PATTERN, (int32_t)p, r->stream[0]);
		else if (p < r->config.reserved_pages)
			launch_page(JOB_PATTERN_CHECK, (int32_t)p, r->stream[0]);
	must(device_stream_sync(&r->device, r->stream[0]));
}

static void create_context(struct round *r)
{
	dhs_layout layout;
	dhs_context_options o;
	dhs_required required = DHS_INIT(dhs_required);
	void *bases[MOST_LAYERS * MOST_SEGMENTS];

	fill_options(r, &o, &layout, bases);
	must(dhs_context_required(&o, &required));
	if (required.hot_pages != r->model->hot_pages || required.tail_pages != r->model->tail_pages ||
	    required.session_pages != required.hot_pages + required.tail_pages)
		fail("required pages %u hot, %u tail, %u a session; the model has %u and %u",
		     required.hot_pages, required.tail_pages, required.session_pages, r->model->hot_pages,
		     r->model->tail_pages);
	must(dhs_context_create(&o, &r->context));
	/* Memory that is mapped is not the allocator's. */
	r->context_device_bytes = required.device_bytes - (r->config.behind ? required.pool_bytes : 0);
	r->context_host_bytes = required.host_bytes;
	memset(&o, 0xff, sizeof o); /* all of it is copied */
	memset(&layout, 0xff, sizeof layout);
	memset(bases, 0xff, sizeof bases);
	check_bytes();
	for (uint32_t l = 0; l < r->shape.layers; l++)
		for (uint32_t g = 0; g < r->shape.segments; g++)
			check_place(r, l, g);
	check_pool_start(r);
}

/* A session of another context is as dead as one that is no more. */
static void create_foreign(struct round *r)
{
	dhs_segment segment = { .bytes = 16 };
	dhs_layout layout = DHS_INIT(dhs_layout);
	dhs_context_options o = DHS_INIT(dhs_context_options);
	dhs_session session;

	layout.layers = layout.segments = layout.page_rows = 1;
	layout.segment_size = sizeof segment;
	layout.segment = &segment;
	o.backend = r->device.backend;
	o.policy = DHS_POLICY_FULL;
	o.max_rows = o.device_pages = 4;
	o.layout = &layout;
	o.host = r->device.host;
	must(dhs_context_create(&o, &r->foreign));
	must(dhs_session_create(r->foreign, NULL, &session));
	r->dead[r->deads++] = session;
}

static void open_round(struct round *r, uint64_t seed, uint64_t calls, uint64_t twist)
{
	memset(r, 0, sizeof *r);
	R = r;
	r->seed = seed;
	r->random = mix(seed);
	r->most_calls = calls;
	r->allocator = (dhs_allocator)DHS_INIT(dhs_allocator);
	r->allocator.alloc = give_memory;
	r->allocator.free = free_memory;
	r->allocator.arg = r;
	choose_shape(r);
	if (twist)
		r->shape.device_seed = mix(r->shape.device_seed + twist) | 1;
	if (verbose)
		print_round();
	r->model = model_new(&r->config);
	r->state = model_memory(r->model, (size_t)r->config.max_sessions * r->model->max_pages);
	r->again = twist != 0;
	must_now(device_open(&r->device, backend, r->shape.device_seed, NULL));
	device_hold(&r->device);
	for (uint32_t i = 0; i < r->shape.streams; i++)
		must(device_stream_create(&r->device, &r->stream[i]));
	r->place = device_zeroed((size_t)r->shape.layers * r->shape.segments, sizeof *r->place);
	if (r->config.engine_pool)
		build_pool(r);
	r->engine_page = zeroed(r->config.device_pages, sizeof *r->engine_page);
	create_context(r);
	if (chance(20))
		create_foreign(r);
	for (uint32_t i = 0; i < r->config.device_pages && r->config.engine_pool; i++)
		r->engine_page[i].stream = r->stream[0];
}

/* Bytes between and behind the rows of an engine's pool are nobody's. */
static void check_gaps(struct round *r)
{
	unsigned char *row = zeroed(r->pool_bytes, 1);

	for (uint64_t slot = 0; slot < (uint64_t)r->config.device_pages * r->config.page_rows; slot++)
		for (uint32_t l = 0; l < r->shape.layers; l++)
			for (uint32_t g = 0; g < r->shape.segments; g++)
				memset(row + (pool_at(l, g, slot) - r->pool), 1, r->shape.segment[g].bytes);
	for (uint64_t i = 0; i < r->pool_bytes; i++)
		if (!row[i] && r->at_hand[i])
			fail("byte %" PRIu64 " between the rows of the engine's pool was written", i);
	free(row);
}

static void check_engine_pages(struct round *r)
{
	uint32_t rows = r->config.page_rows;

	for (uint32_t p = 0; p < r->config.device_pages; p++)
		for (uint32_t i = 0; i < rows && !r->engine_page[p].lent && !r->engine_page[p].late; i++)
			if (p * rows + i != 1 &&
			    !pattern_holds((struct spot){ (uint64_t)p * rows + i, NULL, 0 }))
				fail("page %u of the engine was written", p);
}

/* The engine's pool, after everything has run. */
static void check_pool_end(struct round *r)
{
	r->at_hand = zeroed(r->pool_bytes, 1);
	must_now(r->device.ops->read(r->at_hand, r->pool, r->pool_bytes));
	check_engine_pages(r);
	check_gaps(r);
	free(r->at_hand);
	r->device.ops->pool_release(r->pool);
}

static void free_batch_arrays(struct batch *b)
{
	if (b->first)
		fail("work of the steps of a batch has not run when the batch goes");
	for (uint32_t g = 0; g < R->config.groups; g++) {
		check_guard(b->rows[g], b->entries);
		check_guard(b->slots[g], b->entries);
		if (b->slots[g] != b->rows[g])
			device_free(b->slots[g]);
		device_free(b->rows[g]);
		free(b->host_rows[g]);
	}
	check_guard(b->new_slots, b->model->max_sessions * R->config.max_new_rows);
	check_guard(b->kept, b->model->max_sessions);
	device_free(b->new_slots);
	device_free(b->kept);
	drop_tray(&b->tray);
	device_free((void *)(uintptr_t)b->shown.session_index);
	device_free((void *)(uintptr_t)b->shown.lengths);
	device_free((void *)(uintptr_t)b->shown.page_table);
	memset(b, 0, sizeof *b);
}

/* ---- comparing what can be seen ----------------------------------------------- */

#define SAME(what, lib, model)                                                                     \
	do {                                                                                           \
		if ((uint64_t)(lib) != (uint64_t)(model))                                                  \
			fail("%s is %" PRIu64 ", the model has %" PRIu64, what, (uint64_t)(lib),               \
			     (uint64_t)(model));                                                               \
	} while (0)

static uint64_t staging_bytes(void)
{
	uint64_t bytes = 0;

	for (int i = 0; i < MOST_BATCHES; i++)
		bytes += R->batch[i].model ? R->batch[i].staging_bytes : 0;
	return bytes;
}

static void verify_pages(const dhs_stats *got)
{
	dhs_stats want;

	model_pages(R->model, &want);
	SAME("pages_reserved", got->pages_reserved, want.pages_reserved);
	SAME("pages_free", got->pages_free, want.pages_free);
	SAME("pages_draining", got->pages_draining, want.pages_draining);
	SAME("pages_required", got->pages_required, want.pages_required);
	SAME("pages_resident", got->pages_resident, want.pages_resident);
	SAME("pages_staging", got->pages_staging, want.pages_staging);
	SAME("pages_coming", got->pages_coming, want.pages_coming);
	SAME("pages_unbacked", got->pages_unbacked, want.pages_unbacked);
	SAME("pages_elastic", got->pages_elastic, want.pages_elastic);
	SAME("staging_bytes", got->staging_bytes, staging_bytes());
	SAME("sessions", got->sessions, want.sessions);
	SAME("sessions_suspended", got->sessions_suspended, want.sessions_suspended);
	SAME("batches", got->batches, want.batches);
	SAME("host_rows", got->host_rows, want.host_rows);
	SAME("host_rows_used", got->host_rows_used, want.host_rows_used);
	SAME("the sum of the page counts",
	     got->pages_reserved + got->pages_free + got->pages_draining + got->pages_required +
	         got->pages_resident + got->pages_staging + got->pages_elastic,
	     R->config.device_pages);
}

static void verify_session(const struct model_session *s)
{
	dhs_session_info got = DHS_INIT(dhs_session_info), want;

	must(dhs_session_get_info(R->context, s->handle, &got));
	model_info(R->model, s, &want);
	SAME("rows", got.rows, want.rows);
	SAME("rows_bound", got.rows_bound, want.rows_bound);
	SAME("tokens", got.tokens, want.tokens);
	SAME("device_rows", got.device_rows, want.device_rows);
	SAME("host_only_rows", got.host_only_rows, want.host_only_rows);
	SAME("resident_pages", got.resident_pages, want.resident_pages);
	SAME("required_pages", got.required_pages, want.required_pages);
	SAME("flags of a session", got.flags, want.flags);
	SAME("elastic_pages", got.elastic_pages, want.elastic_pages);
	SAME("host_rows of a session", got.host_rows, want.host_rows);
}

/* After each call, the failed ones too. */
static void verify(void)
{
	const dhs_stats *want = &R->model->stats;
	dhs_stats got = DHS_INIT(dhs_stats);

	must(dhs_context_stats(R->context, &got));
	verify_pages(&got);
	SAME("steps", got.steps, want->steps);
	SAME("steps_settled", got.steps_settled, want->steps_settled);
	SAME("steps_aborted", got.steps_aborted, want->steps_aborted);
	SAME("evicted_pages", got.evicted_pages, want->evicted_pages);
	SAME("granted_pages", got.granted_pages, want->granted_pages);
	SAME("withdrawn_pages", got.withdrawn_pages, want->withdrawn_pages);
	SAME("ticks", got.ticks, want->ticks);
	SAME("refilled_pages", got.refilled_pages, want->refilled_pages);
	SAME("refill_bytes", got.refill_bytes, want->refill_bytes);
	SAME("suspends", got.suspends, want->suspends);
	SAME("resumes", got.resumes, want->resumes);
	SAME("refusals", got.refusals, want->refusals);
	for (uint32_t i = 0; i < R->config.max_sessions; i++)
		if (R->model->session[i])
			verify_session(R->model->session[i]);
}

/* With everything settled and waited for: each counter. */
static void verify_counters(void)
{
	const dhs_stats *want = &R->model->stats;
	uint64_t bytes = (uint64_t)R->config.row_bytes * R->shape.layers;
	dhs_stats got = DHS_INIT(dhs_stats);

	must(dhs_context_stats(R->context, &got));
	SAME("plans", got.plans, want->plans);
	SAME("page_hits", got.page_hits, want->page_hits);
	SAME("hot_hits", got.hot_hits, want->hot_hits);
	SAME("misses", got.misses, want->misses);
	SAME("repeats", got.repeats, want->repeats);
	SAME("staged", got.staged, want->staged);
	SAME("victims", got.victims, want->victims);
	SAME("bad_rows", got.bad_rows, want->bad_rows);
	SAME("fetched_bytes", got.fetched_bytes, want->fetched_bytes);
	SAME("mirrored_rows", got.mirrored_rows, want->mirrored_rows);
	SAME("backup_rows", got.backup_rows, want->backup_rows);
	SAME("backup_bytes", got.backup_bytes, (want->backup_rows + want->mirrored_rows) * bytes);
	SAME("reload_rows", got.reload_rows, want->reload_rows);
	SAME("order_errors", got.order_errors, want->order_errors);
	SAME("warmed_rows", got.warmed_rows, want->warmed_rows);
	SAME("warm_bytes", got.warm_bytes, want->warm_bytes);
	check_bytes();
}

/* ---- choosing ----------------------------------------------------------------- */

static int full_policy(void)
{
	return R->config.policy == DHS_POLICY_FULL;
}

static struct model_session *any_session(void)
{
	struct model_session *alive[MOST_SESSIONS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < R->config.max_sessions; i++)
		if (R->model->session[i])
			alive[n++] = R->model->session[i];
	return n ? alive[below(n)] : NULL;
}

static dhs_stream any_stream(void)
{
	return R->stream[below(R->shape.streams)];
}

static struct batch *any_batch(void)
{
	struct batch *b = &R->batch[below(R->shape.batches)];

	return b->model ? b : NULL;
}

static struct extension *extension_of(const struct model_session *s)
{
	for (int i = 0; i < MOST_SESSIONS; i++)
		if (R->extension[i].session == s)
			return &R->extension[i];
	return NULL;
}

static struct step *step_of(const struct model_step *t)
{
	for (int i = 0; t && i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (R->step[i].model == t)
			return &R->step[i];
	return NULL;
}

static void remember_dead(uint64_t handle)
{
	R->dead[R->deads++ % MOST_DEAD] = handle;
}

static struct fence *remember_fence(dhs_fence value, struct model_step *step)
{
	struct fence *f = &R->fence[R->fences < MOST_FENCES ? R->fences++ : below(MOST_FENCES)];

	*f = (struct fence){ value, step, 0 };
	return f;
}

/* ---- sessions ----------------------------------------------------------------- */

/* What a create would say; 0 and an empty answer if its options are wrong. */
static int ask(const dhs_session_options *o, dhs_admission *got)
{
	dhs_admission want;
	dhs_stats before = DHS_INIT(dhs_stats), after = DHS_INIT(dhs_stats);
	unsigned allowed = MODEL_CODE(o->reserve_rows > R->config.max_rows ? DHS_ERR_ARGUMENT : 0);

	*got = (dhs_admission)DHS_INIT(dhs_admission);
	say("admission reserve %" PRIu64, o->reserve_rows);
	must(dhs_context_stats(R->context, &before));
	if (told(dhs_session_admission(R->context, o, got), allowed))
		return 0;
	must(dhs_context_stats(R->context, &after));
	if (memcmp(&before, &after, sizeof before))
		fail("a question about admission changed the statistics");
	model_admission(R->model, o->reserve_rows, &want);
	SAME("verdict", got->verdict, want.verdict);
	SAME("lack", got->lack, want.lack);
	SAME("host_rows_needed", got->host_rows_needed, want.host_rows_needed);
	SAME("host_rows_free", got->host_rows_free, want.host_rows_free);
	SAME("host_rows_draining", got->host_rows_draining, want.host_rows_draining);
	SAME("pages_needed", got->pages_needed, want.pages_needed);
	SAME("pages_free", got->pages_free, want.pages_free);
	SAME("pages_coming", got->pages_coming, want.pages_coming);
	SAME("pages_optional", got->pages_optional, want.pages_optional);
	SAME("pages_draining", got->pages_draining, want.pages_draining);
	SAME("sessions_free", got->sessions_free, want.sessions_free);
	SAME("evicted_pages to be", got->evicted_pages, want.evicted_pages);
	SAME("pending_pages", got->pending_pages, want.pending_pages);
	return 1;
}

/* What was said before a create came true. */
static void check_admission(const dhs_admission *a, int code, const struct model_session *s)
{
	dhs_stats got = DHS_INIT(dhs_stats);
	int want = 0;

	if (a->lack == DHS_LACK_HOST_ROWS)
		want = a->verdict == DHS_ADMISSION_NO ? DHS_ERR_HOST_MEMORY : DHS_ERR_PENDING;
	else if (a->verdict == DHS_ADMISSION_NO)
		want = DHS_ERR_DEVICE_MEMORY;
	if (code != want)
		fail("admission: verdict %u lack %u, and create says %d", a->verdict, a->lack, code);
	if (!s)
		return;
	must(dhs_context_stats(R->context, &got));
	SAME("evicted pages", got.evicted_pages, R->model->stats.evicted_pages);
	SAME("draining pages of a new session", model_draining(s), a->pending_pages);
}

static uint64_t taken_back(void)
{
	return R->model->stats.evicted_pages + R->model->stats.withdrawn_pages;
}

static void act_create(void)
{
	struct model_session *s = NULL;
	dhs_admission a;
	uint64_t evicted = taken_back();
	int asked;
	dhs_session_options o = DHS_INIT(dhs_session_options);
	dhs_session handle = 77;
	unsigned allowed;
	int code;

	if (chance(25))
		o.reserve_rows = below(R->config.max_rows + (chance(5) ? 10 : 1));
	allowed = model_may_create(R->model, o.reserve_rows);
	asked = chance(70) && ask(&o, &a);
	say("create reserve %" PRIu64, o.reserve_rows);
	code = told(dhs_session_create(R->context, o.reserve_rows || chance(50) ? &o : NULL, &handle),
	            allowed);
	if (code) {
		model_refused(R->model, code);
		SAME("the output of a failed create", handle, 77);
	} else {
		s = model_create(R->model, o.reserve_rows, handle);
	}
	if (!asked)
		return;
	check_admission(&a, code, s);
	if (s)
		SAME("pages that create took back", taken_back() - evicted, a.evicted_pages);
}

static void prefill(struct model_session *s, struct extension *x, const int32_t *slots)
{
	struct job *j = new_job(JOB_PREFILL, NULL);

	j->serial = s->serial;
	j->first_row = (uint32_t)s->settled;
	j->version = x->version;
	j->count = x->rows;
	j->numbers = copy_numbers(slots, x->rows);
	j->step = s->last;
	launch_rows(j, x->rows, x->stream);
}

/* The slots of an extension are told at once. */
static void see_extension(struct model_session *s, const int32_t *slots, uint32_t rows)
{
	for (uint32_t i = 0; i < rows; i++) {
		struct model_want w = { 0 };

		w.kind = MODEL_PAGE;
		w.page = s->table[(s->settled + i) / R->config.page_rows];
		w.offset = (uint32_t)((s->settled + i) % R->config.page_rows);
		digest((uint64_t)(uint32_t)slots[i]);
		if (!model_see(R->model, &w, slots[i]))
			fail("extend of session %u: row %u in slot %d: %s", s->serial, i, slots[i],
			     R->model->fault);
	}
}

/* What is reserved is there, whatever others do. */
static void refused(const struct model_session *s, uint64_t bound, int code)
{
	if ((code == DHS_ERR_HOST_MEMORY || code == DHS_ERR_DEVICE_MEMORY) && bound <= s->reserve)
		fail("session %u has %" PRIu64 " rows reserved and is refused %" PRIu64 ": %d", s->serial,
		     s->reserve, bound, code);
}

static void extend(struct model_session *s, uint32_t rows)
{
	struct extension *x = extension_of(NULL);
	int32_t *slots = guarded(rows);
	dhs_stream stream = any_stream();
	unsigned allowed = model_may_extend(R->model, s, rows);
	int code;

	say("extend session %u by %u", s->serial, rows);
	code = told(dhs_session_extend(R->context, s->handle, rows, stream, slots), allowed);
	if (code) {
		model_refused(R->model, code);
		if (full_policy() || rows <= DHS_MAX_STEPS_IN_FLIGHT * R->config.max_new_rows)
			refused(s, s->settled + rows, code);
	} else {
		model_extend(R->model, s, rows);
		see_extension(s, slots, rows);
		*x = (struct extension){ s, ++R->model->versions, rows, stream };
		prefill(s, x, slots);
	}
	check_guard(slots, rows);
	device_free(slots);
}

static void act_extend(void)
{
	struct model_session *s = any_session();
	uint64_t room;

	if (!s)
		return;
	room = R->config.max_rows - s->settled;
	if (s->settled > R->config.max_rows / 2 && chance(70))
		room = least((uint32_t)room, 30);
	extend(s, chance(3) ? 0 : between(1, (uint32_t)room + (chance(5) ? 3 : 0)));
}

static void commit_rows(struct model_session *s)
{
	struct extension *x = extension_of(s);
	dhs_stream stream = x ? x->stream : any_stream();
	uint32_t rows;
	unsigned allowed = MODEL_CODE(0);

	rows = x ? chance(70) ? x->rows : below(x->rows + 1) : 0;
	if (!x)
		allowed = MODEL_CODE(DHS_ERR_ORDER);
	else if (chance(5)) {
		rows = x->rows + 1 + below(3);
		allowed = MODEL_CODE(DHS_ERR_ARGUMENT);
	} else if (R->shape.streams > 1 && chance(5)) {
		while (stream == x->stream)
			stream = any_stream();
		allowed = MODEL_CODE(DHS_ERR_ARGUMENT);
	}
	say("commit %u rows of session %u", rows, s->serial);
	if (told(dhs_session_commit(R->context, s->handle, rows, stream), allowed))
		return;
	model_commit_rows(R->model, s, rows, x->version);
	x->session = NULL;
}

static void act_commit_rows(void)
{
	struct model_session *s = any_session();

	if (s && (extension_of(s) || chance(20)))
		commit_rows(s);
}

static void truncate_to(struct model_session *s, uint64_t rows)
{
	struct extension *x = extension_of(s);

	say("truncate session %u to %" PRIu64 " of %" PRIu64, s->serial, rows, s->settled);
	if (told(dhs_session_truncate(R->context, s->handle, rows),
	         MODEL_CODE(rows > s->settled ? DHS_ERR_ARGUMENT : 0)))
		return;
	model_truncate(R->model, s, rows);
	R->truncates++;
	if (x)
		x->session = NULL;
}

static void truncate_rows(struct model_session *s)
{
	uint64_t rows = chance(80) ? s->settled - below((uint32_t)least((uint32_t)s->settled, 40) + 1)
	                           : below((uint32_t)s->settled + 1);

	truncate_to(s, chance(4) ? s->settled + 1 + below(5) : rows);
}

/* A page of history in this state, of any session; NULL if there is none.  The lowest that is on
 * its way, so that a cut there reaches all, else the highest. */
static struct model_session *find_page(enum model_state state, uint32_t *page)
{
	uint32_t first = below(R->config.max_sessions);

	for (uint32_t i = 0; i < R->config.max_sessions; i++) {
		struct model_session *s = R->model->session[(first + i) % R->config.max_sessions];

		for (uint32_t k = 0; s && k < s->history; k++) {
			*page = state == MODEL_COMING ? k : s->history - 1 - k;
			if (model_state(R->model, s, *page) == state)
				return s;
		}
	}
	return NULL;
}

/* A cut in a page of history that is in this state, or a little below. */
static void truncate_history(enum model_state state)
{
	uint32_t p = 0, page_rows = R->config.page_rows;
	struct model_session *s = find_page(state, &p);

	if (!s)
		return;
	p -= chance(50) ? below((uint32_t)least(p, 3) + 1) : 0;
	truncate_to(s, (uint64_t)p * page_rows + below(page_rows));
}

static void act_truncate(void)
{
	struct model_session *s = any_session();

	if (s)
		truncate_rows(s);
}

/* The fence of the pages, or NULL. */
static struct fence *evict(struct model_session *s)
{
	dhs_fence fence = 99;
	int with_fence = chance(80);
	uint32_t pages, coming;

	say("evict session %u", s->serial);
	told(dhs_session_evict(R->context, s->handle, with_fence ? &fence : NULL), MODEL_CODE(0));
	coming = model_comings(R->model, s);
	pages = model_evict(R->model, s);
	if (!with_fence)
		return NULL;
	if (!pages && !coming)
		SAME("the fence of an evict without pages", fence, 0);
	return remember_fence(fence, pages ? s->last : NULL);
}

static void suspend(struct model_session *s)
{
	dhs_fence fence = 99;
	int with_fence = chance(80);

	say("suspend session %u", s->serial);
	if (told(dhs_session_suspend(R->context, s->handle, with_fence ? &fence : NULL),
	         model_may_suspend(R->model, s))) {
		SAME("the output of a failed suspend", fence, 99);
		return;
	}
	model_suspend(R->model, s);
	if (with_fence)
		remember_fence(fence, s->last);
}

static void resume(struct model_session *s)
{
	int code;

	say("resume session %u", s->serial);
	code = told(dhs_session_resume(R->context, s->handle), model_may_resume(R->model, s));
	if (code)
		model_refused(R->model, code);
	else
		model_resume(R->model, s);
}

/* Mostly what may be done. */
static void act_suspend(void)
{
	struct model_session *s = any_session();

	if (!s)
		return;
	if (s->suspended ? chance(90) : chance(5))
		resume(s);
	else
		suspend(s);
}

static void act_tick(void)
{
	dhs_stats stats = DHS_INIT(dhs_stats);

	for (uint32_t n = between(1, 3); n; n--) {
		uint64_t rows = R->model->stats.backup_rows;

		say("advance");
		must(dhs_context_stats(R->context, &stats));
		told(dhs_context_advance(R->context), MODEL_CODE(0));
		model_advance(R->model, stats.fetched_bytes);
		totals.ticked += R->model->stats.backup_rows - rows;
	}
	if (chance(25))
		truncate_history(MODEL_COMING);
	else if (chance(60))
		truncate_history(chance(90) ? MODEL_ONLY : MODEL_BACKED);
}

static void act_evict(void)
{
	struct model_session *s = any_session();

	if (s)
		evict(s);
}

static void destroy(struct model_session *s)
{
	struct extension *x = extension_of(s);

	say("destroy session %u", s->serial);
	told(dhs_session_destroy(R->context, s->handle), MODEL_CODE(0));
	model_destroy(R->model, s);
	remember_dead(s->handle);
	if (x)
		x->session = NULL;
}

static void act_destroy(void)
{
	struct model_session *s = any_session();

	if (s && (R->model->sessions > R->shape.aim || chance(15)))
		destroy(s);
}

/* ---- pages of an engine-owned pool -------------------------------------------- */

/* The pattern is the engine's proof that nobody wrote. */
static void check_pattern(int32_t page, dhs_stream stream)
{
	if (R->engine_page[page].late)
		return;
	must(device_stream_join(&R->device, stream, R->engine_page[page].stream));
	launch_page(JOB_PATTERN_CHECK, page, stream);
}

/* Also pages that were taken and never used, whose fences the engine did not look at. */
static void lend(uint32_t want)
{
	int32_t pages[64];
	uint32_t n = 0, first = R->config.page_rows > 1 ? 1 : 2;
	dhs_stream stream = any_stream();
	uint32_t at = below(R->config.device_pages);

	for (uint32_t i = 0; i < R->config.device_pages && n < want; i++) {
		uint32_t p = (at + i) % R->config.device_pages;

		if (p < first || R->engine_page[p].lent || (R->engine_page[p].late && chance(70)))
			continue;
		check_pattern((int32_t)p, stream);
		pages[n++] = (int32_t)p;
	}
	if (!n)
		return;
	say("lend %u pages", n);
	if (told(dhs_lend_pages(R->context, pages, n, stream), model_may_lend(R->model, pages, n)))
		return;
	model_lend(R->model, pages, n);
	for (uint32_t i = 0; i < n; i++) {
		R->engine_page[pages[i]].lent = 1;
		R->engine_page[pages[i]].late = 0;
	}
	memset(pages, 0xff, sizeof pages);
}

/* Writes a page that was taken, once its fence has passed. */
static void own_page(int32_t page)
{
	struct engine_page *e = &R->engine_page[page];
	dhs_stream stream = any_stream();

	if (told(dhs_fence_wait(R->context, e->fence, stream),
	         MODEL_CODE(e->step && e->step->open ? DHS_ERR_PENDING : 0)))
		return;
	launch_page(JOB_PATTERN, page, stream);
	e->stream = stream;
	e->late = 0;
}

static void own_late_pages(void)
{
	for (uint32_t p = 0; p < R->config.device_pages; p++)
		if (R->engine_page[p].late && chance(30))
			own_page((int32_t)p);
}

static void act_lend(void)
{
	lend(between(1, 64));
}

static void take(size_t want)
{
	int32_t pages[32];
	dhs_fence fences[32];
	struct model_step *steps[32];
	size_t taken = 0, may = model_may_take(R->model);

	say("take %zu pages", want);
	told(dhs_take_pages(R->context, want, pages, fences, &taken), MODEL_CODE(0));
	SAME("the pages taken", taken, want < may ? want : may);
	if (!model_take(R->model, pages, taken, steps))
		fail("take_pages: %s", R->model->fault);
	for (size_t i = 0; i < taken; i++) {
		digest((uint64_t)pages[i]);
		R->engine_page[pages[i]] =
			(struct engine_page){ .late = 1, .fence = fences[i], .step = steps[i] };
		remember_fence(fences[i], steps[i]);
		if (chance(70))
			own_page(pages[i]);
	}
}

static void act_take(void)
{
	take(below(chance(50) ? 6 : 33));
}

/* All that costs nobody a page. */
static void take_idle(void)
{
	while (model_idle_pages(R->model))
		take(least((uint32_t)model_idle_pages(R->model), 32));
}

/* ---- batches ------------------------------------------------------------------ */

static void make_arrays(struct batch *b)
{
	b->entries = b->model->max_sessions * b->model->max_queries * b->model->top_k;
	b->last = &b->first;
	for (uint32_t g = 0; g < R->config.groups; g++) {
		b->rows[g] = guarded(b->entries);
		b->slots[g] = chance(30) ? b->rows[g] : guarded(b->entries);
		b->host_rows[g] = zeroed(b->entries, sizeof(int32_t));
	}
	b->new_slots = guarded(b->model->max_sessions * R->config.max_new_rows);
	b->kept = guarded(b->model->max_sessions);
	if (R->device.direct)
		return;
	make_tray(&b->tray, pad_place(b) + 1);
	b->tray.slot[pad_place(b)] = b->model->read_pad;
	b->shown.session_index = device_zeroed(b->model->max_sessions, sizeof(int32_t));
	b->shown.lengths = device_zeroed(R->config.max_sessions, sizeof(int32_t));
	b->shown.page_table =
		device_zeroed(R->config.max_sessions * b->view.page_stride, sizeof(int32_t));
	b->shown.page_stride = b->view.page_stride;
}

static void create_batch(struct batch *b, dhs_batch_options *o)
{
	dhs_required required = DHS_INIT(dhs_required);
	void *bases[MOST_LAYERS * MOST_SEGMENTS];
	dhs_context_options context;
	dhs_layout layout;
	unsigned allowed;

	fill_options(R, &context, &layout, bases);
	must(dhs_batch_required(&context, o, &required));
	allowed = model_may_batch(R->model, required.staging_pages);
	say("batch create, %u staging pages", required.staging_pages);
	if (told(dhs_batch_create(R->context, o, &b->handle), allowed))
		return;
	b->model = model_batch_create(R->model, o, required.staging_pages, required.staging_rows);
	b->model->handle = b->handle;
	b->device_bytes = required.device_bytes;
	b->staging_bytes = required.staging_bytes;
	b->host_bytes = required.host_bytes;
	b->view = (dhs_batch_view)DHS_INIT(dhs_batch_view);
	must(dhs_batch_get_view(b->handle, &b->view));
	if (b->view.page_stride < R->model->max_pages)
		fail("page_stride %" PRIu64 " is below %u", b->view.page_stride, R->model->max_pages);
	make_arrays(b);
	check_bytes();
}

static int batch_busy(const struct batch *b)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (R->step[i].model && R->step[i].batch == b)
			return 1;
	return 0;
}

static void drop_graph(struct batch *b)
{
	if (b->graph)
		must(device_graph_destroy(&R->device, b->graph));
	b->graph = NULL;
}

/* Runs what is left, so that nothing reads the engine's arrays any more. */
static void sync_streams(void)
{
	for (uint32_t i = 0; i < R->shape.streams; i++)
		must(device_stream_sync(&R->device, R->stream[i]));
}

/* The library waits for the batch's steps, and so for all that we launched in them. */
static void destroy_batch(struct batch *b)
{
	say("batch destroy");
	told(dhs_batch_destroy(b->handle), MODEL_CODE(0));
	drop_graph(b);
	model_passed(R->model, b->model);
	model_batch_destroy(R->model, b->model);
	free_batch_arrays(b);
	check_bytes();
}

static void act_batch(void)
{
	uint32_t i = below(R->shape.batches);
	struct batch *b = &R->batch[i];

	if (!b->model) {
		choose_pads(R, &R->shape.batch[i]);
		create_batch(b, &R->shape.batch[i]);
	} else if (batch_busy(b)) {
		say("batch destroy while busy");
		told(dhs_batch_destroy(b->handle), MODEL_CODE(DHS_ERR_BUSY));
	} else if (chance(25)) {
		destroy_batch(b);
	}
}

/* ---- selections --------------------------------------------------------------- */

static int32_t bad_row(uint32_t length)
{
	switch (below(6)) {
	case 0:
		return (int32_t)length;
	case 1:
		return (int32_t)(length + below(70));
	case 2:
		return INT32_MAX - (int32_t)below(3);
	case 3:
		return INT32_MIN + (int32_t)below(3);
	case 4:
		return -(int32_t)between(2, 60);
	default:
		return -1;
	}
}

enum { ANYWHERE, OLD, WORKING_SET, RECENT, IN_ORDER, THE_SAME, EDGES, STYLES };

/* How a query looks at a history. */
struct look {
	const struct model_entry *entry;
	uint32_t group;
	uint32_t style;
	uint32_t start;
	uint32_t old; /* rows that have left the tail, or all */
};

static struct look choose_look(const struct model_entry *e, uint32_t group)
{
	struct look l = { e, group, chance(40) ? WORKING_SET : below(STYLES), below(1000), 0 };
	uint32_t length = (uint32_t)(e->base + e->new_rows);
	uint32_t tail = R->config.tail_rows + R->config.page_rows;

	if (chance(20))
		l.style = OLD;
	l.old = length > tail && chance(80) ? length - tail : length;
	return l;
}

/* Row j of a query: where an indexer might look. */
static int32_t choose_row(const struct look *l, uint32_t j)
{
	uint32_t length = (uint32_t)(l->entry->base + l->entry->new_rows);
	uint32_t rows = R->config.page_rows;
	uint64_t set = below(R->config.hot_rows + R->config.hot_rows / 2 + 1);

	if (!length || chance(5))
		return bad_row(length);
	switch (l->style) {
	case OLD:
		return (int32_t)below(l->old);
	case WORKING_SET:
		set += R->calls / 400 * 3;
		set |= (uint64_t)l->entry->session->serial << 40 | (uint64_t)l->group << 32;
		return (int32_t)(mix(set) % l->old);
	case RECENT:
		return (int32_t)(length - 1 - below(least(length, R->config.tail_rows + 2 * rows)));
	case IN_ORDER:
		return (int32_t)((l->start + j) % length);
	case THE_SAME:
		return (int32_t)(l->start % length);
	case EDGES:
		return (int32_t)(below(length / rows + 1) * rows + (chance(50) ? 0 : rows - 1));
	default:
		return (int32_t)below(length);
	}
}

/* The rows of one query; sometimes mostly those of the query before. */
static void choose_query(const struct model_entry *e, uint32_t group, uint32_t top_k, int32_t *rows,
                         const int32_t *before)
{
	struct look look = choose_look(e, group);
	int share = before && chance(50);

	for (uint32_t j = 0; j < top_k; j++)
		rows[j] = share && chance(80) ? before[below(top_k)] : choose_row(&look, j);
}

/* Rows in order from `sweep` on, instead of chosen ones; below 0: chosen. */
static int64_t sweep = -1;

static void choose_selection(struct batch *b, uint32_t group, const dhs_selection *shape)
{
	uint32_t sessions = shape->sessions ? shape->sessions : b->model->max_sessions;
	uint32_t queries = shape->queries ? shape->queries : b->model->max_queries;
	uint32_t top_k = shape->top_k ? shape->top_k : b->model->top_k;
	struct model_step *t = b->model->step;

	for (uint32_t i = 0; i < sessions; i++)
		for (uint32_t q = 0; q < queries; q++) {
			int32_t *rows = b->host_rows[group] + (i * queries + q) * top_k;

			if (sweep >= 0)
				for (uint32_t j = 0; j < top_k; j++)
					rows[j] = (int32_t)(sweep + q * top_k + j);
			else if (t && i < t->count && t->entry[i].session && q < t->entry[i].queries)
				choose_query(&t->entry[i], group, top_k, rows, q ? rows - top_k : NULL);
			else
				for (uint32_t j = 0; j < top_k; j++)
					rows[j] = chance(50) ? (int32_t)below(40) : bad_row(40);
		}
}

/* ---- the operations of a step: what the model and the jobs say ---------------- */

static void play_view(struct batch *b)
{
	struct job *j = new_job(JOB_VIEW, b);
	struct model_step *t = b->model->step;

	j->step = t;
	j->committed = t->committed;
	j->numbers = zeroed(MODEL_ENTRIES, sizeof *j->numbers);
	for (uint32_t i = 0; i < t->count; i++)
		j->numbers[i] = (int32_t)t->entry[i].kept;
}

static void play_slots(struct batch *b, const struct op *op)
{
	struct job *j = new_job(JOB_NEW_ROWS, b);

	j->sessions = op->sessions ? op->sessions : b->model->max_sessions;
	j->rows = op->rows;
	j->want = model_slots(R->model, b->model, j->sessions, op->rows);
}

static void play_select(struct batch *b, const struct op *op)
{
	struct job *j = new_job(JOB_SELECT, b);

	choose_selection(b, op->group, &op->shape);
	j->group = op->group;
	j->count = shape_count(b, &op->shape);
	j->numbers = copy_numbers(b->host_rows[op->group], j->count);
}

static void play_plan(struct batch *b, const struct op *op)
{
	struct model_plan *p;

	p = model_plan(R->model, b->model, op->group, &op->shape, b->host_rows[op->group]);
	b->plan[op->group] = p;
	memmove(&b->recent[1], &b->recent[0], 3 * sizeof b->recent[0]);
	b->recent[0] = p;
}

static int staging_holds(const struct batch *b, const struct model_plan *p)
{
	return p->step && b->model->turn <= p->turn + b->model->buffers;
}

static void play_check(struct batch *b, const struct op *op)
{
	struct job *j = new_job(JOB_CHECK, b);
	struct model_plan *p = b->plan[op->group];

	j->group = op->group;
	j->plan = p;
	j->layers = p->fetched;
	j->pages = p->step && !p->step->committed;
	j->staging = staging_holds(b, p);
}

/* Slots of an earlier plan of the batch that must still hold. */
static void play_again(struct batch *b)
{
	struct job *j = new_job(JOB_AGAIN, b);
	struct model_plan *p = b->recent[below(4)];
	struct model_step *now = b->model->step;

	if (!p || !p->step)
		return;
	j->plan = p;
	j->group = p->group;
	j->layers = p->fetched;
	j->pages = p->step == now && !now->committed;
	j->staging = staging_holds(b, p);
	for (uint32_t i = 0; i < p->step->count; i++) {
		struct model_session *s = p->step->entry[i].session;

		if (s && p->numbers[i] && s->hot[p->group].plan == p->numbers[i] && !s->suspended &&
		    p->step->number >= s->since && (p->step == now || (s->alive && s->last == now)))
			j->hot |= 1u << i;
	}
}

static void play_commit(struct batch *b, const struct op *op)
{
	struct model_step *t = b->model->step;
	int32_t kept[MODEL_ENTRIES] = { 0 };
	struct job *j;

	for (uint32_t i = 0; t && i < t->count; i++) {
		uint32_t rows = t->entry[i].new_rows;

		kept[i] = chance(40) ? (int32_t)rows : (int32_t)below(rows + 1);
		if (chance(5))
			kept[i] = chance(50) ? -(int32_t)below(5) : (int32_t)(rows + below(5));
	}
	model_commit(R->model, b->model, op->sessions, op->kept ? kept : NULL);
	for (uint32_t i = 0; t && i < t->count; i++)
		note_rejects(&t->entry[i]);
	if (!op->kept)
		return;
	j = new_job(JOB_KEPT, b);
	j->count = op->sessions ? op->sessions : b->model->max_sessions;
	j->numbers = copy_numbers(kept, j->count);
}

static void play(struct batch *b, const struct op *op)
{
	switch (op->kind) {
	case OP_VIEW:
		play_view(b);
		break;
	case OP_SLOTS:
		play_slots(b, op);
		break;
	case OP_SELECT:
		play_select(b, op);
		break;
	case OP_PLAN:
		play_plan(b, op);
		break;
	case OP_RESOLVE:
		play_plan(b, op);
		model_fetch(R->model, b->model, op->group, 0, 0);
		break;
	case OP_FETCH:
	case OP_FORK:
		model_fetch(R->model, b->model, op->group, op->first, op->layers);
		break;
	case OP_CHECK:
		play_check(b, op);
		break;
	case OP_AGAIN:
		play_again(b);
		break;
	case OP_COMMIT:
		play_commit(b, op);
		break;
	case OP_SCRIBBLE:
		new_job(JOB_SCRIBBLE, b);
		break;
	case OP_RESIDENT:
	case OP_JOIN:
	case OP_GRAPH:
		break;
	}
}

/* ---- the operations of a step: calls ------------------------------------------ */

/* The job that play() has just queued. */
static struct job *newest(struct batch *b)
{
	struct job *j = b->first;

	return j && b->last != &b->first ? (struct job *)(void *)b->last : j;
}

static void call_selection(struct batch *b, const struct op *op, dhs_stream stream)
{
	dhs_selection s = op->shape;

	s.rows = b->rows[op->group];
	s.slots = b->slots[op->group];
	if (op->kind == OP_PLAN)
		told(dhs_step_plan(b->handle, op->group, &s, stream), MODEL_CODE(0));
	else
		told(dhs_step_resolve(b->handle, op->group, &s, stream), MODEL_CODE(0));
	memset(&s, 0xff, sizeof s);
}

/* A fetch on another stream; OP_JOIN joins it back. */
static void call_fork(struct batch *b, const struct op *op, dhs_stream stream)
{
	must(device_stream_join(&R->device, op->side, stream));
	told(dhs_step_fetch(b->handle, op->group, op->first, op->layers, op->side), MODEL_CODE(0));
}

static void call_resident(struct batch *b)
{
	int resident = -1;

	told(dhs_step_all_resident(b->handle, &resident), MODEL_CODE(0));
	SAME("all_resident", resident, b->model->step->resident);
}

/* Enqueues an operation on the stream; in a graph the jobs are found later. */
static void enqueue(struct batch *b, const struct op *op, dhs_stream stream, int in_graph)
{
	struct job *j = in_graph ? NULL : newest(b);

	switch (op->kind) {
	case OP_SLOTS:
		told(dhs_step_slots(b->handle, op->sessions, op->rows, b->new_slots, stream),
		     MODEL_CODE(0));
		launch(b, j, stream);
		take_new_rows(b, op, stream);
		break;
	case OP_PLAN:
	case OP_RESOLVE:
		call_selection(b, op, stream);
		break;
	case OP_FETCH:
		told(dhs_step_fetch(b->handle, op->group, op->first, op->layers, stream), MODEL_CODE(0));
		break;
	case OP_FORK:
		call_fork(b, op, stream);
		break;
	case OP_COMMIT:
		if (op->kept)
			launch(b, j, stream);
		told(dhs_step_commit(b->handle, op->sessions, op->kept ? b->kept : NULL, stream),
		     MODEL_CODE(0));
		break;
	case OP_RESIDENT:
		call_resident(b);
		break;
	case OP_JOIN:
		must(device_stream_join(&R->device, stream, op->side));
		break;
	default:
		bring(b, op, stream);
		launch(b, j, stream);
		break;
	}
}

static void say_op(const struct op *op)
{
	const char *name = op_name[op->kind];

	switch (op->kind) {
	case OP_VIEW:
	case OP_SELECT:
	case OP_JOIN:
	case OP_CHECK:
	case OP_AGAIN:
	case OP_SCRIBBLE:
		note("  engine: %s group %u", name, op->group);
		break;
	case OP_SLOTS:
	case OP_COMMIT:
		say("%s sessions %u rows %u%s", name, op->sessions, op->rows, op->kept ? " kept" : "");
		break;
	case OP_PLAN:
	case OP_RESOLVE:
		say("%s group %u shape %u x %u x %u", name, op->group, op->shape.sessions,
		    op->shape.queries, op->shape.top_k);
		break;
	default:
		say("%s group %u layers %u+%u", name, op->group, op->first, op->layers);
		break;
	}
}

static void run_graph(struct batch *b, dhs_stream stream)
{
	say("launch the graph");
	for (uint32_t i = 0; i < b->graph_ops; i++)
		play(b, &b->graph_op[i]);
	told(device_graph_launch(&R->device, b->graph, stream), MODEL_CODE(0));
	totals.graphs++;
}

static void run_op(struct batch *b, const struct op *op, dhs_stream stream)
{
	if (op->kind == OP_GRAPH) {
		run_graph(b, stream);
		return;
	}
	say_op(op);
	play(b, op);
	enqueue(b, op, stream, 0);
}

/* ---- programs ----------------------------------------------------------------- */

struct program {
	struct batch *batch;
	struct op *op;
	uint32_t ops;
	uint32_t sessions; /* least that shapes must cover */
	uint32_t queries;
	uint32_t rows;
	dhs_stream side;  /* NULL: no forks */
	uint32_t forking; /* groups that are fetched there, a bit each: a group's layers in order */
};

static struct op *add_op(struct program *p, enum op_kind kind)
{
	struct op *op;

	if (p->ops == MOST_OPS)
		fail("a program is too long");
	op = &p->op[p->ops++];
	memset(op, 0, sizeof *op);
	op->kind = kind;
	return op;
}

static void choose_selection_shape(struct program *p, dhs_selection *s)
{
	const struct model_batch *b = p->batch->model;

	*s = (dhs_selection)DHS_INIT(dhs_selection);
	if (chance(60))
		s->sessions = between(most(p->sessions, 1), b->max_sessions);
	if (chance(60))
		s->queries = between(most(p->queries, 1), b->max_queries);
	if (chance(40))
		s->top_k = between(1, b->top_k);
}

static void add_fetch(struct program *p, uint32_t group, uint32_t first, uint32_t layers)
{
	struct op *op = add_op(p, p->side && p->forking >> group & 1 ? OP_FORK : OP_FETCH);

	op->group = group;
	op->first = first;
	op->layers = layers;
	op->side = p->side;
}

/* The layers in one to three calls; now and then some are left out. */
static void add_fetches(struct program *p, uint32_t group)
{
	uint32_t layers = R->config.group_layers[group], at = chance(2) ? below(layers) : 0;

	if (chance(4))
		return;
	while (at < layers) {
		uint32_t n = chance(60) ? layers - at : between(1, layers - at);

		add_fetch(p, group, at, at + n == layers && chance(50) ? 0 : n);
		at += n;
		if (chance(3))
			return;
	}
}

static void add_join(struct program *p)
{
	if (p->side)
		add_op(p, OP_JOIN)->side = p->side;
}

static void add_group_op(struct program *p, enum op_kind kind, uint32_t group,
                         const dhs_selection *shape)
{
	struct op *op = add_op(p, kind);

	op->group = group;
	op->shape = *shape;
}

static void add_group(struct program *p, uint32_t group)
{
	dhs_selection shape;

	choose_selection_shape(p, &shape);
	add_group_op(p, OP_SELECT, group, &shape);
	if (chance(35)) {
		add_group_op(p, OP_RESOLVE, group, &shape);
	} else {
		add_group_op(p, OP_PLAN, group, &shape);
		add_fetches(p, group);
		add_join(p);
	}
	add_group_op(p, OP_CHECK, group, &shape);
	if (chance(20))
		add_op(p, OP_AGAIN);
}

/* Two groups planned before the first is checked.  A fetch that is forked off
 * before the second plan needs the second staging buffer. */
static void add_two_groups(struct program *p, uint32_t a, uint32_t b)
{
	dhs_selection shape[2];
	int early = chance(50);

	for (uint32_t i = 0; i < 2; i++) {
		choose_selection_shape(p, &shape[i]);
		add_group_op(p, OP_SELECT, i ? b : a, &shape[i]);
		add_group_op(p, OP_PLAN, i ? b : a, &shape[i]);
		if (early)
			add_fetches(p, i ? b : a);
		if (early && p->batch->model->buffers == 1)
			add_join(p);
	}
	if (!early) {
		add_fetches(p, chance(50) ? a : b);
		add_fetches(p, a);
		add_fetches(p, b);
	}
	add_join(p);
	add_group_op(p, OP_CHECK, a, &shape[0]);
	add_group_op(p, OP_CHECK, b, &shape[1]);
}

static void add_groups(struct program *p)
{
	uint32_t groups = R->config.groups, start = chance(80) ? 0 : below(groups);

	for (uint32_t i = 0; i < groups; i++) {
		uint32_t g = (start + i) % groups;

		if (chance(6))
			continue;
		if (i + 1 < groups && chance(p->batch->model->buffers > 1 ? 35 : 3)) {
			add_two_groups(p, g, (start + ++i) % groups);
			continue;
		}
		if (chance(1)) {
			add_fetch(p, g, 0, 0); /* perhaps without a plan */
			add_join(p);
		}
		add_group(p, g);
		if (chance(3))
			add_group(p, g);
	}
}

static void add_slots(struct program *p)
{
	struct op *op = add_op(p, OP_SLOTS);
	const struct model_batch *b = p->batch->model;

	op->sessions = chance(50) ? 0 : between(most(p->sessions, 1), b->max_sessions);
	op->rows = between(most(p->rows, 1), R->config.max_new_rows);
}

static void add_commit(struct program *p)
{
	struct op *op = add_op(p, OP_COMMIT);

	op->sessions = chance(50) ? 0 : between(most(p->sessions, 1), p->batch->model->max_sessions);
	op->kept = chance(70);
}

static void add_after_commit(struct program *p)
{
	if (chance(15))
		add_op(p, OP_VIEW);
	if (chance(30))
		add_op(p, OP_AGAIN);
	if (chance(2))
		add_group(p, below(R->config.groups));
	if (chance(2))
		add_commit(p);
	if (chance(1))
		add_slots(p);
	if (chance(60))
		add_op(p, OP_SCRIBBLE);
}

static void add_resolving(struct program *p)
{
	if (p->rows || chance(10))
		add_slots(p);
	if (chance(90))
		add_groups(p);
}

/* A graph that commits is for steps that are settled. */
static int may_use_graph(const struct step *s)
{
	return s->batch->graph && (s->mode != STEP_ABORT || !s->batch->graph_commits);
}

static void add_middle(struct program *p, struct step *s)
{
	int commits = 0;

	if (may_use_graph(s) && chance(50)) {
		add_op(p, OP_GRAPH);
		commits = s->batch->graph_commits;
		if (commits)
			s->mode = STEP_SETTLE;
	} else {
		add_resolving(p);
	}
	if (s->mode == STEP_SETTLE && !commits)
		add_commit(p);
	if (s->mode == STEP_SETTLE)
		add_after_commit(p);
}

/* A step that will be aborted is left off somewhere, or at the end if `whole`. */
static void write_program(struct step *s, int whole)
{
	struct model_step *t = s->model;
	struct program p = { s->batch, s->op, 0, t->count, 0, 0, NULL, below(256) };

	for (uint32_t i = 0; i < t->count; i++) {
		p.queries = most(p.queries, t->entry[i].queries);
		p.rows = most(p.rows, t->entry[i].new_rows);
	}
	if (R->shape.streams > 1 && chance(40))
		while (!p.side || p.side == s->stream)
			p.side = any_stream();
	if (chance(25))
		add_op(&p, OP_VIEW);
	if (chance(30))
		add_op(&p, OP_RESIDENT);
	if (chance(15))
		add_op(&p, OP_AGAIN);
	add_middle(&p, s);
	s->ops = s->mode == STEP_ABORT && !whole ? below(p.ops + 1) : p.ops;
	s->at = 0;
}

/* ---- steps -------------------------------------------------------------------- */

static void run_next(struct step *s)
{
	const struct op *op = &s->op[s->at++];

	run_op(s->batch, op, s->stream);
	if (op->kind == OP_FORK)
		s->forked = op->side;
	if (op->kind == OP_JOIN)
		s->forked = NULL;
}

/* The end of what the engine enqueues for a step. */
static void put_last(struct step *s)
{
	struct job *j;

	if (s->forked)
		must(device_stream_join(&R->device, s->stream, s->forked));
	s->forked = NULL;
	if (s->last)
		return;
	s->last = 1;
	j = new_job(JOB_LAST, s->batch);
	j->step = s->model;
	launch(s->batch, j, s->stream);
}

/* Enqueues all that is left of a step. */
static void finish(struct step *s)
{
	while (s->at < s->ops)
		run_next(s);
	put_last(s);
}

/* Before a begin that records the step's end: nothing may come after it. */
static void finish_for_begin(struct step *s)
{
	struct op commit = { .kind = OP_COMMIT, .kept = chance(70) };

	if (s->mode == STEP_ABORT)
		s->at = s->ops;
	if (s->mode == STEP_END) {
		while (s->at < s->ops)
			run_next(s);
		run_op(s->batch, &commit, s->stream);
		s->mode = STEP_SETTLE;
	}
	finish(s);
}

static struct step *free_step(void)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++)
		if (!R->step[i].model)
			return &R->step[i];
	return NULL;
}

static void close_step(struct step *s)
{
	remember_dead(s->model->handle);
	s->model = NULL;
}

/* The numbers that the step kept, those of cancelled entries made up. */
static void kept_numbers(const struct model_step *t, uint32_t *kept)
{
	for (uint32_t i = 0; i < t->count; i++) {
		const struct model_entry *e = &t->entry[i];

		kept[i] = e->kept;
		if (e->session && e->cancelled && chance(50))
			kept[i] = below(e->new_rows + 1);
	}
}

static void settle(struct step *s)
{
	uint32_t kept[MODEL_ENTRIES] = { 0 };
	struct model_step *t = s->model;

	finish(s);
	kept_numbers(t, kept);
	say("settle step %" PRIu64, t->number);
	if (told(dhs_step_settle(R->context, t->handle, kept, t->count), model_may_settle(R->model, t)))
		return;
	model_settle(R->model, t, kept);
	close_step(s);
}

/* Commit and settle in one. */
static void end(struct step *s)
{
	uint32_t kept[MODEL_ENTRIES] = { 0 };
	int32_t device[MODEL_ENTRIES] = { 0 };
	struct model_step *t = s->model;
	unsigned allowed = model_may_settle(R->model, t);

	finish(s);
	for (uint32_t i = 0; i < t->count; i++) {
		kept[i] = chance(50) ? t->entry[i].new_rows : below(t->entry[i].new_rows + 1);
		device[i] = (int32_t)kept[i];
	}
	say("end step %" PRIu64, t->number);
	if (told(dhs_step_end(R->context, t->handle, kept, t->count), allowed))
		return;
	model_commit(R->model, s->batch->model, 0, device);
	for (uint32_t i = 0; i < t->count; i++)
		note_rejects(&t->entry[i]);
	model_settle(R->model, t, kept);
	close_step(s);
}

static void abort_step(struct step *s)
{
	put_last(s);
	say("abort step %" PRIu64, s->model->number);
	told(dhs_step_abort(R->context, s->model->handle), MODEL_CODE(0));
	model_abort(R->model, s->model);
	R->aborts++;
	close_step(s);
}

static void settle_any(struct step *s)
{
	if (s->mode == STEP_ABORT)
		abort_step(s);
	else if (s->mode == STEP_END)
		end(s);
	else
		settle(s);
}

/* Mostly the oldest; a newer one must be refused, unless it is aborted. */
static void act_settle(void)
{
	int newer = R->model->flight[1] && chance(4);
	struct step *s = step_of(R->model->flight[newer]);

	if (!s)
		return;
	while (s->mode == STEP_ABORT && s->model->open && s->at < s->ops && chance(70))
		run_next(s);
	settle_any(s);
}

static void settle_all(void)
{
	while (R->model->flight[0])
		settle_any(step_of(R->model->flight[0]));
}

static void act_advance(void)
{
	struct step *s = &R->step[below(DHS_MAX_STEPS_IN_FLIGHT)];

	for (uint32_t n = between(1, 6); s->model && s->at < s->ops && n; n--)
		run_next(s);
}

/* Other work of the sessions and of the batch comes to its end first. */
static void make_way(const struct batch *b, const struct model_entry_ask *ask, uint32_t count)
{
	for (int i = 0; i < DHS_MAX_STEPS_IN_FLIGHT; i++) {
		struct step *s = &R->step[i];
		int concerned = s->model && s->model->open && s->batch == b;

		for (uint32_t e = 0; s->model && e < count; e++)
			concerned |= ask[e].session && s->model->open && ask[e].session->last == s->model;
		if (concerned)
			finish_for_begin(s);
	}
}

static uint32_t choose_entries(const struct batch *b, struct model_entry_ask *ask)
{
	uint32_t room = least(b->model->max_sessions, MODEL_ENTRIES), count = 0;
	uint32_t start = below(R->config.max_sessions), want = below(room + 1);

	if (chance(60))
		want = room;
	for (uint32_t i = 0; i < R->config.max_sessions && count < want; i++) {
		struct model_session *s = R->model->session[(start + i) % R->config.max_sessions];

		if (chance(4))
			ask[count++] = (struct model_entry_ask){ NULL, below(3), 0 };
		if (!s || count == want || chance(12) || s->failed ||
		    ((s->extending || s->suspended) && !chance(3)))
			continue;
		ask[count].session = s;
		ask[count].new_rows = chance(12) ? 0 : between(1, R->config.max_new_rows);
		ask[count].queries = chance(8) ? 0 : between(1, b->model->max_queries);
		if (model_bound(R->model, s) + ask[count].new_rows > R->config.max_rows && !chance(2))
			ask[count].new_rows = 0;
		count++;
	}
	return count;
}

static void fill_entries(const struct model_entry_ask *ask, uint32_t count, dhs_step_entry *entry)
{
	for (uint32_t i = 0; i < count; i++) {
		entry[i].session = ask[i].session ? ask[i].session->handle : 0;
		entry[i].new_rows = ask[i].session ? ask[i].new_rows : 0;
		entry[i].queries = ask[i].session ? ask[i].queries : 0;
	}
}

static struct step *begin(struct batch *b, const struct model_entry_ask *ask, uint32_t count)
{
	struct {
		dhs_step_entry entry;
		uint64_t newer[2]; /* fields of a later version, not in use */
	} entry[MODEL_ENTRIES];
	dhs_step_entry plain[MODEL_ENTRIES];
	int wide = chance(30);
	struct step *s = free_step();
	dhs_stream stream = any_stream();
	dhs_step handle = 55;
	unsigned allowed;
	int code;

	make_way(b, ask, count);
	allowed = model_may_begin(R->model, b->model, ask, count);
	fill_entries(ask, count, plain);
	memset(entry, 0, sizeof entry);
	for (uint32_t i = 0; i < count; i++)
		entry[i].entry = plain[i];
	say("begin batch %d, %u entries, step %" PRIu64, (int)(b - R->batch), count, R->model->steps);
	code = told(dhs_step_begin(b->handle, wide ? &entry->entry : plain, count,
	                           wide ? sizeof *entry : sizeof *plain, stream, &handle),
	            allowed);
	memset(entry, 0xff, sizeof entry);
	memset(plain, 0xff, sizeof plain);
	model_begins(R->model);
	if (code) {
		model_refused(R->model, code);
		SAME("the output of a failed begin", handle, 55);
		if (count == 1 && ask[0].session && !(ask[0].queries && code == DHS_ERR_DEVICE_MEMORY))
			refused(ask[0].session, model_bound(R->model, ask[0].session) + ask[0].new_rows, code);
		return NULL;
	}
	s->model = model_begin(R->model, b->model, ask, count);
	s->model->handle = handle;
	s->batch = b;
	s->stream = stream;
	s->mode = chance(10) ? STEP_ABORT : chance(20) ? STEP_END : STEP_SETTLE;
	s->forked = NULL;
	s->last = 0;
	return s;
}

static void act_begin(void)
{
	struct model_entry_ask ask[MODEL_ENTRIES];
	struct batch *b = any_batch();
	struct step *s;
	uint32_t count;

	if (!b)
		return;
	if (R->model->flight[1] && !chance(6)) {
		settle_any(step_of(R->model->flight[0]));
		verify();
	}
	if (R->model->flight[0] && R->model->flight[0]->number + 2 <= R->model->steps && !chance(6))
		settle_any(step_of(R->model->flight[0]));
	count = choose_entries(b, ask);
	s = begin(b, ask, count);
	if (s)
		write_program(s, 0);
}

/* ---- fences ------------------------------------------------------------------- */

static void launch_fence_check(const struct fence *f, dhs_stream stream)
{
	struct job *j = new_job(JOB_FENCE, NULL);

	j->step = f->step;
	launch(NULL, j, stream);
}

static void try_fence(struct fence *f)
{
	dhs_stream stream = any_stream();
	unsigned allowed = MODEL_CODE(f->step && f->step->open ? DHS_ERR_PENDING : 0);
	int passed = -1;

	switch (below(3)) {
	case 0:
		say("fence wait");
		if (!told(dhs_fence_wait(R->context, f->value, stream), allowed) && f->step)
			launch_fence_check(f, stream);
		break;
	case 1:
		say("fence sync");
		if (told(dhs_fence_sync(R->context, f->value), allowed))
			break;
		f->passed = 1;
		if (f->step && !f->step->ran)
			fail("fence sync comes back before the step's work has run");
		break;
	default:
		break;
	}
	say("fence query");
	if (told(dhs_fence_query(R->context, f->value, &passed), allowed))
		return;
	if ((passed != 0 && passed != 1) || passed < f->passed || (!f->value && !passed))
		fail("a fence that had passed or is 0: query says %d", passed);
	if (passed && f->step && !f->step->ran)
		fail("fence query says passed before the step's work has run");
	f->passed = passed;
}

static void act_fence(void)
{
	try_fence(&R->fence[below(MOST_FENCES)]);
}

/* ---- at once ------------------------------------------------------------------ */

static void settle_steps_of(struct model_session *s)
{
	while (model_busy(R->model, s))
		settle_any(step_of(R->model->flight[0]));
}

/* A step of one session, mostly enqueued to its end, or one that only reads. */
static struct step *step_at_once(struct model_session *s, struct batch *b, int reads)
{
	struct model_entry_ask ask = { s, 0, 0 };
	struct step *t;

	if (!b || s->extending || s->failed || s->suspended)
		return NULL;
	if (R->model->flight[1])
		settle_any(step_of(R->model->flight[0]));
	if (R->model->flight[0] && R->model->flight[0]->number + 2 <= R->model->steps)
		settle_any(step_of(R->model->flight[0]));
	ask.queries = b->model->max_queries;
	ask.new_rows =
		least(R->config.max_new_rows, R->config.max_rows - (uint32_t)model_bound(R->model, s));
	t = begin(b, &ask, 1);
	if (!t)
		return NULL;
	if (reads)
		t->mode = STEP_ABORT;
	write_program(t, reads);
	while (t->at < t->ops && chance(97))
		run_next(t);
	return t;
}

/* A step that reads, whose end is recorded and that is not settled. */
static void read_at_once(struct model_session *s)
{
	struct step *t = step_at_once(s, any_batch(), 1), *next;

	if (!t)
		return;
	if (chance(50)) {
		abort_step(t);
		return;
	}
	next = begin(t->batch, NULL, 0);
	if (next)
		write_program(next, 0);
}

static struct model_session *newest_session(void)
{
	struct model_session *newest = NULL;

	for (uint32_t i = 0; i < R->config.max_sessions; i++) {
		struct model_session *s = R->model->session[i];

		if (s && (!newest || s->serial > newest->serial))
			newest = s;
	}
	return newest;
}

static void grow_at_once(struct model_session *s)
{
	uint32_t room, rows;

	settle_steps_of(s);
	room = R->config.max_rows - (uint32_t)s->settled;
	rows = least(room, 200);
	if (chance(60) && s->spares)
		rows = least(room, s->spares * R->config.page_rows); /* what its spares take */
	else if (rows)
		rows = between(1, rows);
	if (!s->extending && !s->suspended)
		extend(s, most(rows, 1));
	while (extension_of(s) && chance(95))
		commit_rows(s);
}

/* The session's work is enqueued and hardly begun when its pages go. */
static void give_up(struct model_session *s)
{
	if (chance(60))
		settle_steps_of(s);
	if (chance(30))
		grow_at_once(s);
	if (chance(40))
		step_at_once(s, any_batch(), 0);
	if (chance(70))
		settle_steps_of(s);
	if (chance(40))
		destroy(s);
	else if (chance(70))
		evict(s);
	else
		truncate_rows(s);
	verify();
}

/* A batch's staging takes pages over, too. */
static struct batch *renew_batch(void)
{
	uint32_t i = below(R->shape.batches);
	struct batch *b = &R->batch[i];

	if (b->model && batch_busy(b))
		return any_batch();
	if (b->model)
		destroy_batch(b);
	create_batch(b, &R->shape.batch[i]);
	verify();
	return b->model ? b : NULL;
}

/* A session takes over what another gives up while that is still in use. */
static void act_turnover(void)
{
	struct model_session *s = any_session(), *other;
	struct batch *b;

	if (!s)
		return;
	give_up(s);
	other = any_session();
	if (R->config.engine_pool && chance(30))
		act_lend();
	if (other && other != s && chance(60))
		destroy(other);
	b = chance(40) ? renew_batch() : any_batch();
	if (chance(80))
		act_create();
	other = any_session();
	if (!other)
		return;
	grow_at_once(other);
	step_at_once(other, b, 0);
}

/* What was taken back is wanted again before its copies have landed. */
static void act_recall(void)
{
	struct model_session *s = any_session(), *other = any_session();
	struct fence *f;

	if (!s)
		return;
	if (chance(50))
		settle_steps_of(s);
	if (chance(40))
		read_at_once(s);
	else if (chance(50) && step_at_once(s, any_batch(), 0))
		settle_steps_of(s);
	f = evict(s);
	verify();
	if (R->config.engine_pool && chance(60))
		take_idle();
	if (f && chance(50)) {
		if (chance(50))
			settle_steps_of(s);
		try_fence(f);
		return;
	}
	if (chance(40))
		truncate_rows(s);
	if (chance(20) && other != s)
		grow_at_once(other);
	if (chance(40))
		grow_at_once(s);
	step_at_once(s, any_batch(), 0);
}

/* A session leaves the device while its work has hardly begun, others use its pages, and
 * it comes back. */
static void act_nap(void)
{
	struct model_session *s = any_session(), *other;

	if (!s || s->extending)
		return;
	if (!s->suspended) {
		step_at_once(s, any_batch(), 0);
		settle_steps_of(s);
		suspend(s);
		verify();
	}
	if (R->config.engine_pool && chance(30))
		take_idle();
	if (chance(15))
		truncate_rows(s);
	if (chance(20))
		act_tick();
	if (chance(40))
		act_create();
	other = any_session();
	if (other && chance(50))
		grow_at_once(other);
	if (R->config.engine_pool && chance(30))
		act_lend();
	if (chance(8))
		destroy(s);
	if (!s->alive || chance(10))
		return;
	resume(s);
	verify();
	if (chance(10))
		suspend(s);
	else if (chance(5))
		destroy(s);
	else if (chance(10))
		truncate_rows(s);
	if (s->alive && chance(20))
		grow_at_once(s);
	if (s->alive)
		step_at_once(s, any_batch(), 0);
}

/* Pages that are lent while the engine's work on them is hardly begun become the
 * first hot pages, or staging, of the next who comes. */
static void act_handover(void)
{
	struct model_session *s;
	struct batch *b;

	if (!R->config.engine_pool || full_policy())
		return;
	settle_all();
	sync_streams();
	take_idle();
	lend(between(1, least(R->model->hot_pages + 1, 60)));
	s = any_session();
	if (s)
		destroy(s);
	b = chance(60) ? renew_batch() : any_batch();
	verify();
	act_create();
	s = newest_session();
	if (!s)
		return;
	if (s->spares)
		extend(s,
		       least(R->config.max_rows - (uint32_t)s->settled, s->spares * R->config.page_rows));
	while (extension_of(s))
		commit_rows(s);
	step_at_once(s, b, 0);
	lend(64);
}

/* ---- graphs ------------------------------------------------------------------- */

static void refuse_capturing_end(dhs_stream stream)
{
	struct step *t = step_of(R->model->flight[0]);
	uint32_t kept[MODEL_ENTRIES] = { 0 };

	if (!t || t->stream != stream || !t->model->open)
		return;
	say("settle on a stream that is captured");
	told(dhs_step_settle(R->context, t->model->handle, kept, t->model->count),
	     MODEL_CODE(DHS_ERR_CAPTURING));
	say("abort on a stream that is captured");
	told(dhs_step_abort(R->context, t->model->handle), MODEL_CODE(DHS_ERR_CAPTURING));
}

static void refuse_capturing_extension(dhs_stream stream)
{
	unsigned capturing = MODEL_CODE(DHS_ERR_CAPTURING);
	struct extension *x = &R->extension[0];

	while (x < &R->extension[MOST_SESSIONS] && (!x->session || x->stream != stream))
		x++;
	if (x == &R->extension[MOST_SESSIONS])
		return;
	say("commit, truncate and destroy with an extension on a stream that is captured");
	told(dhs_session_commit(R->context, x->session->handle, x->rows, stream), capturing);
	told(dhs_session_truncate(R->context, x->session->handle, 0), capturing);
	told(dhs_session_destroy(R->context, x->session->handle), capturing);
}

static void refuse_capturing(struct batch *b, dhs_stream stream)
{
	unsigned capturing = MODEL_CODE(DHS_ERR_CAPTURING);
	struct model_session *s = any_session();
	dhs_step handle;
	int32_t slot;

	say("begin on a stream that is captured");
	told(dhs_step_begin(b->handle, NULL, 0, sizeof(dhs_step_entry), stream, &handle),
	     capturing | (R->model->flight[0] ? MODEL_CODE(DHS_ERR_ORDER) : 0));
	say("fence wait on a stream that is captured");
	told(dhs_fence_wait(R->context, 0, stream), capturing);
	refuse_capturing_end(stream);
	refuse_capturing_extension(stream);
	if (!s || model_busy(R->model, s) || s->extending || s->settled == R->config.max_rows)
		return;
	say("extend on a stream that is captured");
	told(dhs_session_extend(R->context, s->handle, 1, stream, &slot),
	     capturing | (model_may_extend(R->model, s, 1) & ~MODEL_CODE(0)));
}

static void write_graph(struct batch *b)
{
	struct program p = { b, b->graph_op, 0, 0, 0, R->config.max_new_rows, NULL, 0 };
	struct op *op = add_op(&p, OP_SLOTS);

	op->rows = R->config.max_new_rows;
	if (chance(30)) { /* too small for some steps, which is counted */
		op = add_op(&p, OP_SLOTS);
		op->sessions = between(1, b->model->max_sessions);
		op->rows = between(1, R->config.max_new_rows);
	}
	if (chance(75))
		p.sessions = b->model->max_sessions;
	if (chance(75))
		p.queries = b->model->max_queries;
	add_groups(&p);
	b->graph_commits = chance(60);
	if (b->graph_commits) {
		add_commit(&p);
		if (chance(50))
			add_op(&p, OP_SCRIBBLE);
	}
	b->graph_ops = p.ops;
}

static void act_capture(void)
{
	struct batch *b = any_batch();
	dhs_stream stream = any_stream();

	if (!b || batch_busy(b))
		return;
	drop_graph(b);
	write_graph(b);
	say("capture a graph of %u", b->graph_ops);
	must(device_capture_begin(&R->device, stream));
	for (uint32_t i = 0; i < b->graph_ops; i++) {
		say_op(&b->graph_op[i]);
		enqueue(b, &b->graph_op[i], stream, 1);
	}
	if (chance(30))
		refuse_capturing(b, stream);
	must(device_capture_end(&R->device, stream, &b->graph));
}

/* ---- waiting ------------------------------------------------------------------ */

static void act_wait(void)
{
	int unsettled = R->model->flight[0] != NULL;

	say("context wait");
	told(dhs_context_wait(R->context), MODEL_CODE(unsettled ? DHS_ERR_PENDING : 0));
	if (!unsettled) {
		model_passed(R->model, NULL);
		verify_counters();
	}
}

static void act_sync(void)
{
	say("stream sync");
	must(device_stream_sync(&R->device, any_stream()));
}

/* A new stream in the place of one that nothing of the library will use again. */
static void act_stream(void)
{
	uint32_t i = below(R->shape.streams);
	dhs_stream old = R->stream[i];

	for (int k = 0; k < DHS_MAX_STEPS_IN_FLIGHT; k++)
		if (R->step[k].model)
			return;
	for (int k = 0; k < MOST_SESSIONS; k++)
		if (R->extension[k].session)
			return;
	say("a new stream");
	must(device_stream_create(&R->device, &R->stream[i]));
	for (uint32_t p = 0; p < R->config.device_pages; p++)
		if (R->engine_page[p].stream == old)
			R->engine_page[p].stream = R->stream[i];
	must(device_stream_destroy(&R->device, old));
}

/* ---- calls that must be refused ----------------------------------------------- */

#define REFUSED MODEL_CODE(DHS_ERR_ARGUMENT)

static void wrong_session(void)
{
	uint64_t dead = R->deads ? R->dead[below(least(R->deads, MOST_DEAD))] : 12345;
	unsigned policy = full_policy() ? MODEL_CODE(DHS_ERR_UNSUPPORTED) : REFUSED;
	dhs_session_info info = DHS_INIT(dhs_session_info);
	dhs_fence fence;
	int32_t slot;

	say("calls with a dead session");
	switch (below(8)) {
	case 6:
		told(dhs_session_suspend(R->context, dead, &fence), policy);
		break;
	case 7:
		told(dhs_session_resume(R->context, dead), policy);
		break;
	case 0:
		told(dhs_session_extend(R->context, dead, 1, any_stream(), &slot), REFUSED);
		break;
	case 1:
		told(dhs_session_commit(R->context, dead, 1, any_stream()), REFUSED);
		break;
	case 2:
		told(dhs_session_truncate(R->context, dead, 0), REFUSED);
		break;
	case 3:
		told(dhs_session_evict(R->context, dead, &fence), REFUSED);
		break;
	case 4:
		told(dhs_session_destroy(R->context, dead), REFUSED);
		break;
	default:
		told(dhs_session_get_info(R->context, dead, &info), REFUSED);
		break;
	}
}

static void wrong_step(void)
{
	uint64_t dead = R->deads ? R->dead[below(least(R->deads, MOST_DEAD))] : 12345;
	struct model_step *t = R->model->flight[0];
	struct step *s = step_of(t);
	uint32_t kept[MODEL_ENTRIES + 1] = { 0 };

	if (t && s->at == s->ops && s->mode == STEP_SETTLE && chance(50)) {
		say("settle with wrong numbers");
		for (uint32_t i = 0; i < t->count; i++)
			kept[i] = t->entry[i].new_rows;
		if (chance(50) || !t->count) {
			told(dhs_step_settle(R->context, t->handle, kept, t->count + 1), REFUSED);
			return;
		}
		kept[below(t->count)] += R->config.max_new_rows + 1;
		told(dhs_step_settle(R->context, t->handle, kept, t->count), REFUSED);
		return;
	}
	say("calls with a dead step");
	switch (below(3)) {
	case 0:
		told(dhs_step_settle(R->context, dead, kept, 0), REFUSED);
		break;
	case 1:
		told(dhs_step_end(R->context, dead, kept, 0), REFUSED);
		break;
	default:
		told(dhs_step_abort(R->context, dead), REFUSED);
		break;
	}
}

static void wrong_begin(void)
{
	struct model_entry_ask ask[MODEL_ENTRIES];
	dhs_step_entry entry[MODEL_ENTRIES + 1] = { { 0 } };
	struct batch *b = any_batch();
	struct model_session *s = any_session();
	dhs_step handle = 55;
	uint32_t count;
	unsigned allowed;

	if (!b || !s)
		return;
	count = choose_entries(b, ask);
	if (count == MODEL_ENTRIES || count == b->model->max_sessions)
		count = 0;
	allowed = model_may_begin(R->model, b->model, ask, count);
	fill_entries(ask, count, entry);
	entry[count] = (dhs_step_entry){ s->handle, 0, 0 };
	say("begin with a wrong entry");
	switch (below(4)) {
	case 0:
		entry[count].session = R->deads ? R->dead[(R->deads - 1) % MOST_DEAD] : 999;
		break;
	case 1:
		entry[count].queries = b->model->max_queries + 1;
		break;
	case 2:
		entry[count].new_rows = R->config.max_new_rows + 1;
		break;
	default:
		if (!count || entry[0].session == 0)
			entry[count].queries = UINT32_MAX;
		else
			entry[count].session = entry[0].session;
		break;
	}
	allowed = (allowed & ~MODEL_CODE(0)) | REFUSED;
	allowed |= MODEL_CODE(DHS_ERR_PENDING) | MODEL_CODE(DHS_ERR_ORDER);
	allowed |= s->failed ? MODEL_CODE(DHS_ERR_MISMATCH) : 0;
	told(dhs_step_begin(b->handle, entry, count + 1, sizeof *entry, any_stream(), &handle),
	     allowed);
	model_begins(R->model);
	SAME("the output of a failed begin", handle, 55);
}

static void wrong_resolve(void)
{
	struct batch *b = any_batch();
	dhs_selection s = DHS_INIT(dhs_selection);
	dhs_stream stream = any_stream();
	uint32_t groups = R->config.groups;
	unsigned refused = REFUSED | MODEL_CODE(DHS_ERR_ORDER); /* it may have no step */

	if (!b)
		return;
	s.rows = b->rows[0];
	s.slots = b->slots[0];
	say("a wrong call of a step");
	switch (below(7)) {
	case 0:
		told(dhs_step_plan(b->handle, groups, &s, stream), refused);
		break;
	case 1:
		told(dhs_step_fetch(b->handle, groups + 3, 0, 0, stream), refused);
		break;
	case 2:
		told(dhs_step_fetch(b->handle, 0, R->config.group_layers[0], 0, stream), refused);
		break;
	case 3:
		told(dhs_step_fetch(b->handle, 0, 0, R->config.group_layers[0] + 1, stream), refused);
		break;
	case 4:
		s.top_k = b->model->top_k + 1;
		told(dhs_step_resolve(b->handle, 0, &s, stream), refused);
		break;
	case 5:
		s.queries = b->model->max_queries + 1;
		told(dhs_step_plan(b->handle, 0, &s, stream), refused);
		break;
	default:
		told(dhs_step_commit(b->handle, b->model->max_sessions + 1, NULL, stream), refused);
		break;
	}
}

static void wrong_pages(void)
{
	int32_t page = (int32_t)R->config.device_pages, taken_page;
	unsigned allowed = R->config.engine_pool ? REFUSED : MODEL_CODE(DHS_ERR_UNSUPPORTED);
	dhs_fence fence;
	size_t taken;

	say("lend or take what cannot be");
	for (int32_t p = 0; p < page && chance(60); p++)
		if (R->engine_page[p].lent)
			page = p;
	if (chance(20))
		page = -1;
	told(dhs_lend_pages(R->context, &page, 1, any_stream()), allowed);
	if (!R->config.engine_pool)
		told(dhs_take_pages(R->context, 1, &taken_page, &fence, &taken), allowed);
}

static void wrong_order(void)
{
	int32_t slots[4];
	struct model_session *s = any_session();
	struct batch *b = any_batch();
	int passed;

	switch (below(3)) {
	case 0:
		if (!s || (!model_busy(R->model, s) && !s->extending))
			return;
		say("extend out of order");
		told(dhs_session_extend(R->context, s->handle, 1, any_stream(), slots),
		     model_may_extend(R->model, s, 1));
		break;
	case 1:
		if (!b || b->model->step)
			return;
		say("all_resident without a step");
		told(dhs_step_all_resident(b->handle, &passed), MODEL_CODE(DHS_ERR_ORDER));
		break;
	default:
		say("a foreign fence");
		told(dhs_fence_query(R->context, UINT64_MAX - below(9), &passed), REFUSED);
		break;
	}
}

static void act_wrong(void)
{
	switch (below(6)) {
	case 0:
		wrong_session();
		break;
	case 1:
		wrong_step();
		break;
	case 2:
		wrong_begin();
		break;
	case 3:
		wrong_resolve();
		break;
	case 4:
		wrong_pages();
		break;
	default:
		wrong_order();
		break;
	}
}

/* ---- a settle that contradicts the device ------------------------------------- */

static int empty_step(struct batch *b)
{
	struct step *s = begin(b, NULL, 0);

	if (!s)
		return 0;
	s->mode = STEP_END;
	s->ops = s->at = 0;
	end(s);
	return 1;
}

/* The numbers of settle are not those of the commit, or a committed step is
 * aborted: once the step is two steps old, its session is refused and can only be
 * destroyed. */
static void act_mismatch(void)
{
	struct batch *b = any_batch();
	struct model_session *s = any_session();
	struct model_entry_ask ask = { s, 1, 0 };
	struct op slots = { .kind = OP_SLOTS, .rows = 1 }, commit = { .kind = OP_COMMIT };
	uint32_t kept = 0;
	struct step *t;

	if (!b || !s || s->extending)
		return;
	settle_all();
	if (model_bound(R->model, s) == R->config.max_rows)
		return;
	t = begin(b, &ask, 1);
	if (!t)
		return;
	run_op(b, &slots, t->stream);
	run_op(b, &commit, t->stream);
	put_last(t);
	if (chance(50)) {
		abort_step(t);
	} else {
		say("settle with numbers that contradict the device");
		told(dhs_step_settle(R->context, t->model->handle, &kept, 1), MODEL_CODE(0));
		model_settle(R->model, t->model, &kept);
		close_step(t);
	}
	if (!empty_step(b) || !empty_step(b)) {
		destroy(s);
		return;
	}
	s->failed = 1;
	totals.mismatches++;
	begin(b, &ask, 1);
	say("truncate a failed session");
	told(dhs_session_truncate(R->context, s->handle, 0), MODEL_CODE(DHS_ERR_MISMATCH));
	say("evict a failed session");
	told(dhs_session_evict(R->context, s->handle, NULL), MODEL_CODE(DHS_ERR_MISMATCH));
	verify();
	destroy(s);
}

/* ---- no row is lost: every row of a session is read --------------------------- */

static int sweep_step(struct batch *b, struct model_session *s)
{
	struct model_entry_ask ask = { s, 0, b->model->max_queries };
	struct op op[] = { { .kind = OP_SELECT }, { .kind = OP_RESOLVE }, { .kind = OP_CHECK } };
	struct step *t = begin(b, &ask, 1);

	if (!t)
		return 0;
	for (uint32_t g = 0; g < R->config.groups; g++)
		for (int i = 0; i < 3; i++) {
			op[i].group = g;
			op[i].shape = (dhs_selection)DHS_INIT(dhs_selection);
			run_op(b, &op[i], t->stream);
		}
	t->mode = STEP_END;
	t->ops = t->at = 0;
	end(t);
	verify();
	return 1;
}

static void act_sweep(void)
{
	struct batch *b = any_batch();
	struct model_session *s = any_session();
	uint32_t rows;

	if (!b || !s || s->extending || s->failed)
		return;
	settle_all();
	if (s->suspended)
		resume(s);
	rows = b->model->max_queries * b->model->top_k;
	for (sweep = 0; sweep < (int64_t)s->settled; sweep += rows)
		if (sweep / rows == 20 || !sweep_step(b, s))
			break;
	sweep = -1;
}

/* An empty step on the device's default stream. */
static void act_default_stream(void)
{
	struct batch *b = any_batch();
	struct model_step *t;
	dhs_step handle;

	if (!b)
		return;
	settle_all();
	say("begin an empty step on the default stream");
	if (told(dhs_step_begin(b->handle, NULL, 0, sizeof(dhs_step_entry), NULL, &handle),
	         model_may_begin(R->model, b->model, NULL, 0)))
		return;
	model_begins(R->model);
	t = model_begin(R->model, b->model, NULL, 0);
	say("end step %" PRIu64, t->number);
	told(dhs_step_end(R->context, handle, NULL, 0), MODEL_CODE(0));
	model_commit(R->model, b->model, 0, NULL);
	model_settle(R->model, t, NULL);
	remember_dead(handle);
}

/* ---- rounds ------------------------------------------------------------------- */

static const struct {
	void (*act)(void);
	uint32_t weight;
} actions[] = {
	{ act_advance, 300 }, { act_begin, 130 },      { act_settle, 60 },        { act_create, 30 },
	{ act_extend, 40 },   { act_commit_rows, 50 }, { act_truncate, 30 },      { act_evict, 12 },
	{ act_tick, 90 },     { act_destroy, 10 },     { act_batch, 12 },         { act_capture, 4 },
	{ act_fence, 12 },    { act_wait, 4 },         { act_sync, 6 },           { act_stream, 1 },
	{ act_wrong, 25 },    { act_mismatch, 1 },     { act_turnover, 12 },      { act_recall, 14 },
	{ act_handover, 6 },  { act_sweep, 1 },        { act_default_stream, 1 }, { act_suspend, 16 },
	{ act_nap, 16 },
};

static void act(void)
{
	uint32_t sum = 0, dice;
	size_t i = 0;

	for (size_t k = 0; k < sizeof actions / sizeof *actions; k++)
		sum += actions[k].weight;
	dice = below(sum);
	while (dice >= actions[i].weight)
		dice -= actions[i++].weight;
	actions[i].act();
	if (R->config.engine_pool && chance(6)) {
		if (chance(60))
			act_lend();
		else
			act_take();
	}
	if (R->config.engine_pool)
		own_late_pages();
	verify();
	if (often && !R->model->flight[0])
		act_wait();
}

static void start(void)
{
	for (uint32_t i = 0; R->config.engine_pool && i < 2 * R->config.device_pages; i++) {
		act_lend();
		if (R->model->frees >= R->config.device_pages * 9 / 10)
			break;
	}
	for (uint32_t i = 0; i < R->shape.batches; i++) {
		choose_pads(R, &R->shape.batch[i]);
		create_batch(&R->batch[i], &R->shape.batch[i]);
		verify();
	}
}

static void add_totals(struct totals *t)
{
	const dhs_stats *s = &R->model->stats;
	dhs_stats got = DHS_INIT(dhs_stats);
	uint64_t reorderings;

	must(device_reorderings(&R->device, &reorderings));
	must(dhs_context_stats(R->context, &got));
	t->calls += R->calls;
	t->rounds++;
	t->misses += s->misses;
	t->victims += s->victims;
	t->staged += s->staged;
	t->mirrored += s->mirrored_rows;
	t->backed_up += s->backup_rows;
	t->truncates += R->truncates;
	t->aborts += R->aborts;
	t->refusals += s->refusals;
	t->reorderings += reorderings;
	t->page_hits += s->page_hits;
	t->hot_hits += s->hot_hits;
	t->repeats += s->repeats;
	t->bad_rows += s->bad_rows;
	t->reloads += s->reload_rows;
	t->evicted += s->evicted_pages;
	t->refilled += s->refilled_pages;
	t->resumes += s->resumes;
	t->warmed += s->warmed_rows;
	t->granted += s->granted_pages;
	t->withdrawn += s->withdrawn_pages;
	t->order_errors += s->order_errors;
	t->flow_waits += got.flow_waits;
}

static void stop_sessions(void)
{
	for (uint32_t i = 0; i < R->config.max_sessions; i++)
		if (R->model->session[i] && chance(50))
			destroy(R->model->session[i]);
	verify();
}

static void close_round(struct round *r)
{
	settle_all();
	act_sweep();
	verify();
	act_wait();
	stop_sessions();
	add_totals(&totals);
	sync_streams();
	check_rejects(r);
	for (uint32_t i = 0; i < r->shape.batches; i++)
		if (r->batch[i].model) {
			if (chance(50))
				destroy_batch(&r->batch[i]);
			else
				drop_graph(&r->batch[i]);
		}
	let_run();
	dhs_context_destroy(r->context);
	dhs_context_destroy(r->foreign);
	for (uint32_t i = 0; i < r->shape.streams; i++)
		must_now(device_stream_destroy(&r->device, r->stream[i]));
	must_now(device_stop(&r->device));
	for (int k = 0; k <= DHS_MEMORY_HOST; k++)
		SAME("bytes that are left", r->taken.bytes[k], 0);
	for (uint32_t i = 0; i < r->shape.batches; i++)
		if (r->batch[i].model)
			free_batch_arrays(&r->batch[i]);
	if (r->config.engine_pool)
		check_pool_end(r);
	device_free(r->place);
	must_now(device_close(&r->device));
	free(r->reject);
	free(r->engine_page);
	model_free(r->model);
	R = NULL;
}

/* One round; the result is a digest of all that the library told. */
static uint64_t play_round(uint64_t seed, uint64_t calls, uint64_t twist)
{
	static struct round round;

	open_round(&round, seed, calls, twist);
	start();
	while (round.calls < calls)
		act();
	/* Those of a round that is played twice count once. */
	totals.steps += twist ? 0 : round.model->steps;
	close_round(&round);
	return mix(round.digest) + round.device_digest;
}

/* The same calls on another schedule, or on the other backend. */
static void play_twice(uint64_t seed, uint64_t calls)
{
	uint64_t first = play_round(seed, calls, 0), second;

	backend = both ? DHS_BACKEND_CUDA : backend;
	second = play_round(seed, calls, 1);
	backend = both ? DHS_BACKEND_HOST : backend;
	if (first == second)
		return;
	printf("not ok 1 - calls as the model says\n1..1\n");
	fflush(stdout);
	fprintf(stderr, "# FAILED: round %#" PRIx64 ": another %s, other results\n", seed,
	        both ? "backend" : "device schedule");
	exit(1);
}

/* ---- the run ------------------------------------------------------------------ */

static void print_totals(void)
{
	printf("# %" PRIu64 " calls in %" PRIu64 " rounds, %" PRIu64 " steps, seed %" PRIu64 "\n",
	       totals.calls, totals.rounds, totals.steps, run_seed);
	printf("# page hits %" PRIu64 ", hot hits %" PRIu64 ", repeats %" PRIu64 ", bad rows %" PRIu64
	       ", rows checked %" PRIu64 "\n",
	       totals.page_hits, totals.hot_hits, totals.repeats, totals.bad_rows, totals.rows_checked);
	printf("# evicted pages %" PRIu64 ", refilled pages %" PRIu64 ", reloaded rows %" PRIu64
	       ", order errors %" PRIu64 ", pending %" PRIu64 ", mismatches %" PRIu64
	       ", graphs %" PRIu64 ", flow waits %" PRIu64 "\n",
	       totals.evicted, totals.refilled, totals.reloads, totals.order_errors, totals.pendings,
	       totals.mismatches, totals.graphs, totals.flow_waits);
}

static int lines, failed;

static void line(int good, const char *what, uint64_t count)
{
	failed |= !good;
	printf("%sok %d - %s: %" PRIu64 "\n", good ? "" : "not ", ++lines, what, count);
}

static void enough(const char *what, uint64_t count)
{
	line(totals.calls < LONG_RUN || count >= LEAST, what, count);
}

static int report(void)
{
	print_totals();
	line(1, "calls as the model says", totals.calls);
	enough("misses", totals.misses);
	enough("victims", totals.victims);
	enough("staged rows", totals.staged);
	enough("rows mirrored by commits", totals.mirrored);
	enough("rows backed up by reclaim or ticks", totals.backed_up);
	enough("of these, by ticks", totals.ticked);
	enough("pages refilled", totals.refilled);
	enough("sessions resumed", totals.resumes);
	enough("rows warmed by resume", totals.warmed);
	line(totals.calls < LONG_RUN || totals.granted >= LEAST / 10, "pages granted", totals.granted);
	line(totals.calls < LONG_RUN || totals.withdrawn >= LEAST / 10, "pages withdrawn",
	     totals.withdrawn);
	enough("truncates", totals.truncates);
	enough("aborts", totals.aborts);
	for (size_t i = 0; i < TRANSITIONS; i++)
		line(totals.steps < MANY_STEPS || transitions[i].count >= LEAST, transitions[i].what,
		     transitions[i].count);
	enough("refusals", totals.refusals);
	if (backend == DHS_BACKEND_HOST && !both)
		enough("reorderings", totals.reorderings);
	printf("1..%d\n", lines);
	return failed;
}

static uint64_t number(const char *text)
{
	char *end_of_number;
	uint64_t n = strtoull(text, &end_of_number, 0);

	if (!*text || *end_of_number) {
		fprintf(stderr, "random_driver: not a number: %s\n", text);
		exit(2);
	}
	return n;
}

static void usage(void)
{
	fprintf(stderr, "usage: random_driver [--seed S] [--calls N] [--steps N] [--round SEED] "
	                "[--round-calls N] [--verbose] [--often] [--backend host|cuda|both]\n");
	exit(2);
}

static void read_backend(const char *name)
{
	both = !strcmp(name, "both");
	backend = !strcmp(name, "cuda") ? DHS_BACKEND_CUDA : DHS_BACKEND_HOST;
	if (backend == DHS_BACKEND_HOST && !both && strcmp(name, "host"))
		usage();
}

struct arguments {
	uint64_t calls; /* at least so many, and */
	uint64_t steps;
	uint64_t round;
	uint64_t round_calls;
};

static void read_arguments(struct arguments *a, int argc, char **argv)
{
	if (getenv("DHS_RANDOM_SEED"))
		run_seed = number(getenv("DHS_RANDOM_SEED"));
	if (getenv("DHS_RANDOM_CALLS"))
		a->calls = number(getenv("DHS_RANDOM_CALLS"));
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose"))
			verbose = 1;
		else if (!strcmp(argv[i], "--often"))
			often = 1;
		else if (i + 1 == argc)
			usage();
		else if (!strcmp(argv[i], "--seed"))
			run_seed = number(argv[++i]);
		else if (!strcmp(argv[i], "--calls"))
			a->calls = number(argv[++i]);
		else if (!strcmp(argv[i], "--steps"))
			a->steps = number(argv[++i]);
		else if (!strcmp(argv[i], "--backend"))
			read_backend(argv[++i]);
		else if (!strcmp(argv[i], "--round"))
			a->round = number(argv[++i]);
		else if (!strcmp(argv[i], "--round-calls"))
			a->round_calls = number(argv[++i]);
		else
			usage();
	}
}

int main(int argc, char **argv)
{
	struct arguments a = { .calls = 1000000, .round_calls = 2500 };

	backend = device_backend();
	read_arguments(&a, argc, argv);
	for (size_t i = 0; i < 4; i++)
		signal((int[]){ SIGSEGV, SIGBUS, SIGABRT, SIGALRM }[i], caught);
	if (a.round) {
		play_twice(a.round, a.round_calls);
		return report();
	}
	printf("# random_driver --seed %" PRIu64 " --calls %" PRIu64 " --backend %s\n", run_seed,
	       a.calls,
	       both                          ? "both"
	       : backend == DHS_BACKEND_CUDA ? "cuda"
	                                     : "host");
	fflush(stdout);
	for (uint64_t i = 0; totals.calls < a.calls || totals.steps < a.steps; i++) {
		uint64_t seed = mix(mix(run_seed) + i) | 1;

		if (both || i % 8 == 7)
			play_twice(seed, a.round_calls);
		else
			play_round(seed, a.round_calls, 0);
	}
	return report();
}
