/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * libdhisparse: the KV cache of sparse-attention models in two tiers, device
 * memory and host memory.  This header needs neither CUDA nor hwloc.
 *
 * Conventions of every call
 *
 * Result   0, or a negative DHS_ERR_... code.  Outputs come last and are
 *          written only when 0 is returned.  A call that fails changes nothing
 *          and the context goes on working (but a begin that fails may have
 *          waited and taken counters over); dhs_last_error() names the
 *          argument, its value and the limit.
 * Structs  that the caller fills begin with their size (use DHS_INIT) and have
 *          flags; zero means the default; where zero is a value of its own a
 *          flag says that it counts.  Structs that the library fills: the
 *          caller sets the size, the library writes at most that much.
 * Handles  contexts and batches are pointers, the rest are 64-bit values.  0 is
 *          never a session or a step.  A session or step that is dead or that
 *          belongs to another context is told: DHS_ERR_ARGUMENT.
 * Units    rows, unless the name says bytes or pages.
 * Threads  one caller at a time for a context and its batches;
 *          dhs_context_stats() and dhs_last_error() from any thread.  The
 *          library has no threads, but one in a context with tick_us, which
 *          is no caller: the library sees to it.
 * Streams  a stream is the backend's: a cudaStream_t, or one made by
 *          <dhisparse/host.h>.  NULL is the device's default stream.
 * Capture  dhs_step_slots, _plan, _fetch, _resolve and _commit may be captured
 *          in a graph and replayed.  Every other call that enqueues work on a
 *          stream that is being captured returns DHS_ERR_CAPTURING.
 */
#ifndef DHISPARSE_DHISPARSE_H
#define DHISPARSE_DHISPARSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DHS_API __attribute__((visibility("default")))
#else
#define DHS_API
#endif

#define DHS_VERSION_MAJOR 0
#define DHS_VERSION_MINOR 1
#define DHS_VERSION_PATCH 0
/* MAJOR * 10000 + MINOR * 100 + PATCH, as dhs_version() returns it. */
#define DHS_VERSION (DHS_VERSION_MAJOR * 10000 + DHS_VERSION_MINOR * 100 + DHS_VERSION_PATCH)

/* Starts a sized struct: `dhs_layout l = DHS_INIT(dhs_layout);` */
#ifdef __cplusplus
extern "C++" {
template <typename T> inline T dhs_init_()
{
	T value = T();

	value.size = sizeof(T);
	return value;
}
}
#define DHS_INIT(type) dhs_init_<type>()
#else
#define DHS_INIT(type) { .size = sizeof(type) }
#endif

/* ---- errors -------------------------------------------------------------- */

enum {
	DHS_OK = 0,
	DHS_ERR_ARGUMENT = -1,      /* an argument is out of its range, dead or foreign */
	DHS_ERR_ORDER = -2,         /* not the time for this call */
	DHS_ERR_DEVICE_MEMORY = -3, /* no room on the device: pages, staging, tables, sessions */
	DHS_ERR_HOST_MEMORY = -4,   /* no room in the host tier, or in ordinary memory */
	DHS_ERR_BUSY = -5,          /* in use by an unsettled step */
	DHS_ERR_PENDING = -6,       /* relies on a step or a prefill whose end is not recorded yet */
	DHS_ERR_MISMATCH = -7,      /* device and host disagree about a session's length */
	DHS_ERR_CAPTURING = -8,     /* the stream is being captured */
	DHS_ERR_UNSUPPORTED = -9,   /* not in this build, or not with this policy */
	DHS_ERR_DEVICE = -10,       /* the device is lost */
	DHS_ERR_CORRUPT = -11,      /* bytes that are not what was written */
	DHS_ERR_VERSION = -12,      /* a struct of a newer version with fields in use */
	DHS_ERR_QUARANTINED = -13   /* the resource is kept out of use after a fault */
};

/* A short English text for a code; never NULL, static storage. */
DHS_API const char *dhs_strerror(int code);

/* The calling thread's last error in words, "" if none; valid until this
 * thread's next call into the library. */
DHS_API const char *dhs_last_error(void);

/* ---- version ------------------------------------------------------------- */

/* The version of the library that runs: compare with DHS_VERSION. */
DHS_API uint32_t dhs_version(void);
/* The same in words, such as "0.1.0"; static storage. */
DHS_API const char *dhs_version_string(void);

/* ---- types --------------------------------------------------------------- */

typedef struct dhs_context dhs_context; /* opaque */
typedef struct dhs_batch dhs_batch;     /* opaque */
typedef struct dhs_host dhs_host;       /* a device of the host backend, <dhisparse/host.h> */
typedef struct CUstream_st *dhs_stream; /* the type of a cudaStream_t */

typedef uint64_t dhs_session; /* one request's history */
typedef uint64_t dhs_step;    /* one begun step */
typedef uint64_t dhs_fence;   /* a point in stream order; 0 has always passed */

/* Steps that may be begun and not yet settled, in one context. */
#define DHS_MAX_STEPS_IN_FLIGHT 2

/* A slot is page * page_rows + offset.  The address of segment g of a row:
 * base[layer][g] + offset + page * page_stride + (slot % page_rows) * row_stride,
 * computed in 64 bits. */
typedef struct dhs_segment {
	uint32_t bytes;       /* of one row, a multiple of 4 */
	uint32_t flags;       /* 0 */
	uint64_t offset;      /* from the layer's base, a multiple of 4 */
	uint64_t row_stride;  /* 0: bytes */
	uint64_t page_stride; /* 0, library-owned pool: the segments of a page one behind the other
	                         (0 then for all segments, and for their offsets);
	                         0, engine-owned pool: page_rows * row_stride.
	                         Library-owned pools have one page_stride for all segments, and a
	                         page's rows, offsets included, end within it */
} dhs_segment;

/* The shape of the rows: the same for all layers.  The bytes of a row, all
 * segments together, are 16 to 16,384, a multiple of 4. */
typedef struct dhs_layout {
	uint32_t size;
	uint32_t flags;               /* 0 */
	uint32_t layers;              /* 1 to 4,096 */
	uint32_t groups;              /* 0: each layer is a group of its own */
	const uint32_t *group_layers; /* [groups] layers of each group, consecutive; sum is layers */
	uint32_t segments;            /* 1 to 8 */
	uint32_t segment_size;        /* sizeof(dhs_segment) */
	const dhs_segment *segment;   /* [segments] */
	uint32_t page_rows;           /* 0: 64.  1 to 65,536 */
	uint32_t tokens_per_row;      /* 0: 1.  Only scales reports */
} dhs_layout;

/* Kinds of memory, as an allocator is asked for them. */
enum {
	DHS_MEMORY_CONTROL = 0, /* ordinary memory for the library's own books */
	DHS_MEMORY_DEVICE = 1,  /* device tables (host backend only), and with
	                           DHS_CONTEXT_POOL_STAGING the library's pool */
	DHS_MEMORY_HOST = 2     /* host tier and upload buffers (host backend, and any with
	                           DHS_ALLOCATOR_PINNED) */
};

enum {
	/* What alloc returns for DHS_MEMORY_HOST is pinned and mapped for the GPU, as
	 * cudaHostAlloc with cudaHostAllocMapped | cudaHostAllocPortable makes it: the cuda
	 * backend asks for it here.  The host backend does not look at the flag. */
	DHS_ALLOCATOR_PINNED = 1
};

/* Where memory comes from.  alloc returns memory aligned to `align` (a power
 * of two), contents undefined, or NULL.  free gets what alloc was asked for.
 * Both may be called from any thread that calls the library, and, as the log, from
 * the thread of a context with tick_us. */
typedef struct dhs_allocator {
	uint32_t size;
	uint32_t flags; /* DHS_ALLOCATOR_... */
	void *(*alloc)(void *arg, uint32_t kind, size_t bytes, size_t align);
	void (*free)(void *arg, uint32_t kind, void *memory, size_t bytes);
	void *arg;
} dhs_allocator;

enum { DHS_LOG_ERROR = 1, DHS_LOG_WARNING = 2, DHS_LOG_INFO = 3 };

/* Called on the thread that calls the library, and with tick_us on the context's own: never
 * on two at a time for one context, so a lock that it takes must not be held where the
 * library is called.  Must not call the library back. */
typedef void (*dhs_log_fn)(void *arg, uint32_t level, const char *text);

enum {
	DHS_BACKEND_AUTO = 0, /* cuda where there is a GPU and no dhs_host is given, else host */
	DHS_BACKEND_HOST = 1, /* ordinary memory and the processor */
	DHS_BACKEND_CUDA = 2  /* an NVIDIA GPU, compute capability 8.0 or newer */
};

enum {
	DHS_POLICY_DEFAULT = 0,  /* DHS_POLICY_ADAPTIVE */
	DHS_POLICY_ADAPTIVE = 1, /* hot cache and tail, and history as long as there is room */
	DHS_POLICY_FIXED = 2,    /* hot cache and tail only */
	DHS_POLICY_FULL = 3      /* everything on the device, no host tier */
};

enum {
	DHS_BACKUP_DEFAULT = 0, /* DHS_BACKUP_EAGER */
	DHS_BACKUP_EAGER = 1,   /* the commit that keeps a row copies it to the host */
	DHS_BACKUP_RECLAIM = 2, /* a page is copied when it is taken back (adaptive only) */
	DHS_BACKUP_BACKGROUND = 3 /* dhs_context_advance copies pages of history, a few in a tick;
	                             one that it has not come to is copied when it is taken back
	                             (adaptive only) */
};

enum {
	DHS_RECLAIM_DEFAULT = 0, /* DHS_RECLAIM_PARTIAL */
	DHS_RECLAIM_WHOLE = 1,   /* room is made of all history of one session after another
	                            (adaptive only, as is the next) */
	DHS_RECLAIM_PARTIAL = 2  /* the last of these gives no more than is wanted, its oldest rows
	                            first */
};

enum {
	DHS_CONTEXT_TAIL_ROWS = 1,   /* tail_rows counts though it is 0 */
	DHS_CONTEXT_DEVICE = 2,      /* device counts, also as 0 */
	DHS_CONTEXT_POOL_STAGING = 4, /* library-owned pool: staging is made of its pages, as in an
	                                engine's; each layer's memory is an allocation of its own */
	DHS_CONTEXT_REFILL = 8,      /* link_bytes, refill_low and refill_high count, also as 0 */
	DHS_CONTEXT_NO_HISTORY = 16  /* adaptive: spare pages go to hot caches alone, history leaves
	                                the device as under fixed */
};

typedef struct dhs_context_options {
	uint32_t size;
	uint32_t flags;            /* DHS_CONTEXT_... */
	uint32_t backend;          /* DHS_BACKEND_... */
	uint32_t policy;           /* DHS_POLICY_... */
	uint32_t backup;           /* DHS_BACKUP_... */
	uint32_t max_sessions;     /* 0: 256.  1 to 65,536 */
	uint32_t max_rows;         /* longest history of a session; no default, to 2^30 */
	uint32_t max_new_rows;     /* most rows a session adds in one step; 0: 16; to 65,536 */
	uint32_t hot_rows;         /* hot cache of a session; 0: 4,096; 1 to 32,767 */
	uint32_t tail_rows;        /* newest rows that stay on the device; 0: 64 (see flags) */
	uint32_t reserved_pages;   /* library-owned pool: pages 0 .. n-1 are the engine's, zeroed */
	uint32_t device_pages;     /* pages of the pool, reserved ones included; no default */
	uint64_t host_rows;        /* records of the host tier, rounded up to pages; 0 under full */
	const dhs_layout *layout;  /* copied */
	void *const *pool;         /* NULL: the library allocates the pool.  Else the engine's:
	                              [layers][segments] bases, copied; pages are lent later */
	dhs_host *host;            /* host backend: the device to run on; NULL: a private one */
	const dhs_allocator *allocator; /* NULL: the C library's; copied */
	dhs_log_fn log;            /* NULL: silent */
	void *log_arg;
	int32_t device;            /* cuda: which GPU (see flags); else the current one */
	uint32_t max_staging_rows; /* library-owned pool: addresses behind it for staging rows of
	                              all batches; 0: 2 * max_sessions * min(max_rows, 32,768) */
	uint64_t link_bytes;       /* host to device in a tick, misses and refill together, and
	                              device to host, backup in the background;
	                              0 (see flags): 64 MiB */
	uint32_t refill_low;       /* free pages at which refill ends and, */
	uint32_t refill_high;      /* at least refill_low, from which on it begins; 0 (see flags):
	                              one and two sessions' required pages */
	uint32_t tick_us;          /* adaptive: a thread of the library ticks every so many
	                              microseconds, 100 to 60,000,000; 0: the engine does, by
	                              dhs_context_advance */
	uint32_t max_hot_rows;     /* adaptive: hot cache of a session with elastic pages, rounded
	                              down to whole ones; 0: 2 * hot_rows; hot_rows: no elastic
	                              pages; to 32,767.  Tables on the device are that large */
	uint32_t reclaim;          /* DHS_RECLAIM_... */
	uint32_t reserved;         /* 0 */
} dhs_context_options;

/* What a context or a batch takes, exactly. */
typedef struct dhs_required {
	uint32_t size;
	uint32_t flags;          /* 0 */
	uint64_t device_bytes;   /* device memory allocated: pool (if the library's) and tables */
	uint64_t host_bytes;     /* host memory allocated: host tier and upload buffers */
	uint64_t pool_bytes;     /* of device_bytes: the pool */
	uint64_t tier_bytes;     /* of host_bytes: the host tier */
	uint32_t session_pages;  /* context: pages of one session that are never lent */
	uint32_t hot_pages;      /* of these: the hot cache */
	uint32_t tail_pages;     /* of these: the tail */
	uint32_t staging_pages;  /* batch: pages taken from the pool; 0 where staging lies behind it */
	uint32_t staging_rows;   /* batch: rows of one staging buffer */
	uint32_t reserved;
	uint64_t staging_bytes;  /* batch: of device_bytes: staging behind the pool */
} dhs_required;

enum {
	DHS_STATS_REPEATABLE = 1 /* the same calls give the same slots, victims and pages again; not
	                            so where a thread of the library ticks */
};

/* Counters run from the context's creation; those of resolving are taken over
 * from the device when a step is two steps old, by begin (also one that then
 * fails), by dhs_context_wait, or with the batch's end. */
typedef struct dhs_stats {
	uint32_t size;
	uint32_t flags;           /* DHS_STATS_... */
	/* pages of the pool: these six and pages_elastic sum to device_pages */
	uint32_t pages_reserved;  /* the engine's, or not lent */
	uint32_t pages_free;      /* ready, or ready once recorded work has passed */
	uint32_t pages_draining;  /* free once a begun step is settled */
	uint32_t pages_required;  /* hot caches and tails of sessions; under full: all theirs */
	uint32_t pages_resident;  /* optional: history on the device or on its way, prefill not yet
	                             aged */
	uint32_t pages_staging;   /* of batches; 0 where their staging lies behind the pool */
	uint32_t sessions;
	uint32_t batches;
	uint32_t backend;         /* DHS_BACKEND_ and DHS_POLICY_ that defaults turned out to be */
	uint32_t policy;
	uint64_t host_rows;       /* records of the host tier, and how many are owned */
	uint64_t host_rows_used;
	uint64_t steps;           /* begun */
	uint64_t steps_settled;
	uint64_t steps_aborted;
	uint64_t plans;           /* of one group for one session */
	uint64_t page_hits;       /* entries of selections found in a tail or resident page */
	uint64_t hot_hits;        /* entries found in the hot cache */
	uint64_t misses;          /* distinct rows of a plan that are only in host memory */
	uint64_t repeats;         /* entries that selected a miss of the same plan again */
	uint64_t staged;          /* of misses: rows that went to staging */
	uint64_t victims;         /* hot rows that gave way */
	uint64_t bad_rows;        /* entries outside the history, padding -1 included */
	uint64_t fetched_bytes;   /* host to device, by fetch */
	uint64_t mirrored_rows;   /* copied to the host by a commit */
	uint64_t backup_rows;     /* copied to the host when pages were taken back, or by ticks */
	uint64_t backup_bytes;    /* device to host, all ways of backup */
	uint64_t reload_rows;     /* copied back into tail pages: by resume, or because a
	                             truncate cut a page on the host */
	uint64_t evicted_pages;   /* optional pages taken back (adaptive) */
	uint64_t refusals;        /* session creates, resumes, extends and begins refused for lack of
	                             room (DHS_ERR_DEVICE_MEMORY, DHS_ERR_HOST_MEMORY) */
	uint64_t order_errors;    /* told on the device: a second commit, a fetch without plan */
	uint64_t flow_waits;      /* begins that had to wait for the device */
	uint64_t staging_bytes;   /* device memory of batches' staging behind the pool */
	uint64_t ticks;           /* calls of dhs_context_advance, and those of the library's thread */
	uint64_t refilled_pages;  /* optional pages that came back */
	uint64_t refill_bytes;    /* host to device, by dhs_context_advance */
	uint32_t pages_coming;    /* of pages_resident: on their way */
	uint32_t pages_unbacked;  /* of pages_resident: history without a whole host copy, which has
	                             to be copied before the page can go */
	uint64_t suspends;
	uint64_t resumes;
	uint64_t warmed_rows;     /* rows of a group that resume brought back into a hot cache; told
	                             by the session's next step */
	uint64_t warm_bytes;      /* of these, host to device */
	uint32_t sessions_suspended; /* of sessions */
	uint32_t pages_elastic;   /* optional: more places for hot caches */
	uint64_t granted_pages;   /* elastic pages that sessions were given, and that were */
	uint64_t withdrawn_pages; /* taken back */
} dhs_stats;

/* ---- context ------------------------------------------------------------- */

/* Computes, without creating anything, what dhs_context_create would take.
 * device_pages may be 0 here: to ask for the pages of a session before sizing a pool. */
DHS_API int dhs_context_required(const dhs_context_options *options, dhs_required *required);

/* Creates a context and allocates all that dhs_context_required tells. */
DHS_API int dhs_context_create(const dhs_context_options *options, dhs_context **context);

/* Frees a context, its sessions and batches; all work of begun steps must have
 * been enqueued; waits for it.  NULL is a no-op. */
DHS_API void dhs_context_destroy(dhs_context *context);

/* A snapshot of the counters; any thread. */
DHS_API int dhs_context_stats(dhs_context *context, dhs_stats *stats);

/* Waits until all recorded work of the context has passed and takes over its
 * counters.  DHS_ERR_PENDING while a step is begun and neither settled nor
 * aborted. */
DHS_API int dhs_context_wait(dhs_context *context);

/* One tick of the scheduler: brings history back that was taken from the device, a few pages
 * at a time, when there is room (adaptive only).  Call it once a step, or so.  A page that is
 * issued in one tick is its session's from the second tick after it and that session's next
 * begin on.  With DHS_BACKUP_BACKGROUND it also copies history that has no host copy yet.
 * Enqueues on a stream of the library, and waits for nothing. */
DHS_API int dhs_context_advance(dhs_context *context);

/* Where segment `segment` of layer `layer` lies in the pool: row r of slot s
 * is at base + (s / page_rows) * page_stride + (s % page_rows) * row_stride. */
typedef struct dhs_place {
	uint32_t size;
	uint32_t flags;
	void *base; /* the segment's offset included */
	uint64_t page_stride;
	uint64_t row_stride;
	uint32_t bytes;
	uint32_t page_rows;
} dhs_place;

DHS_API int dhs_context_place(dhs_context *context, uint32_t layer, uint32_t segment,
                              dhs_place *place);

/* Engine-owned pool: gives `count` page numbers in.  The library uses them
 * after the work that is on `stream` at this call, which it makes wait for what a page
 * still waited for when it was taken.  A page that is already lent, or not below
 * device_pages, fails the whole call; DHS_ERR_PENDING if the fence of one is pending. */
DHS_API int dhs_lend_pages(dhs_context *context, const int32_t *pages, size_t count,
                           dhs_stream stream);

/* Engine-owned pool: takes up to `count` pages back, at any time, the cheapest first: free
 * ones, those on their way to sessions, under adaptive optional pages of sessions, no
 * more than are wanted and backed up first, then draining ones.  What is required stays.
 * pages[i] is the engine's again once fences[i] has passed, which is pending while a begun
 * step or an extension still reads the page; *taken tells how many came. */
DHS_API int dhs_take_pages(dhs_context *context, size_t count, int32_t *pages,
                           dhs_fence *fences, size_t *taken);

/* ---- session ------------------------------------------------------------- */

typedef struct dhs_session_options {
	uint32_t size;
	uint32_t flags;        /* 0 */
	uint64_t reserve_rows; /* host records (under full: pages) reserved now; 0: none */
} dhs_session_options;

enum { DHS_SESSION_SUSPENDED = 1 }; /* all its rows lie in host memory only */

typedef struct dhs_session_info {
	uint32_t size;
	uint32_t flags;         /* DHS_SESSION_... */
	uint64_t rows;          /* settled length */
	uint64_t rows_bound;    /* settled length plus the new rows of unsettled steps */
	uint64_t tokens;        /* rows * tokens_per_row */
	uint64_t device_rows;   /* settled rows that lie in tail or resident pages */
	uint64_t host_only_rows;/* settled rows that lie only in host memory */
	uint32_t resident_pages;/* optional pages: what evict would give back */
	uint32_t required_pages;
	uint64_t host_rows;     /* host records owned */
	uint32_t elastic_pages; /* optional, too: more places for its hot cache */
	uint32_t reserved;
} dhs_session_info;

/* Creates a session of no rows and takes its required pages.  options may be
 * NULL.  Under adaptive, optional pages of other sessions are taken back when
 * that makes room, whole sessions at a time, the one with most of them first.
 * DHS_ERR_DEVICE_MEMORY and DHS_ERR_HOST_MEMORY say what is missing. */
DHS_API int dhs_session_create(dhs_context *context, const dhs_session_options *options,
                               dhs_session *session);

/* What dhs_session_create would say now. */
enum {
	DHS_ADMISSION_YES = 1,   /* it succeeds, and takes nothing from a session */
	DHS_ADMISSION_AFTER = 2, /* it succeeds after what `lack` tells */
	DHS_ADMISSION_NO = 3     /* not as long as the sessions and batches that there are stay */
};

/* What a no is for, and an after.  Of several the first of this order is told. */
enum {
	DHS_LACK_NOTHING = 0,
	DHS_LACK_HOST_ROWS = 1, /* no: DHS_ERR_HOST_MEMORY.  after: DHS_ERR_PENDING until begun
	                           steps are settled that still use host records */
	DHS_LACK_SESSIONS = 2,  /* no, max_sessions are in use: DHS_ERR_DEVICE_MEMORY */
	DHS_LACK_PAGES = 3      /* no: DHS_ERR_DEVICE_MEMORY.  after: create takes evicted_pages
	                           from other sessions; pending_pages of its own still drain, until
	                           when its first begin or extend is DHS_ERR_PENDING */
};

typedef struct dhs_admission {
	uint32_t size;
	uint32_t flags;
	uint32_t verdict;            /* DHS_ADMISSION_... */
	uint32_t lack;               /* DHS_LACK_... */
	uint64_t host_rows_needed;   /* to reserve, in whole pages; 0 under full */
	uint64_t host_rows_free;
	uint64_t host_rows_draining; /* free once begun steps are settled */
	uint32_t pages_needed;       /* the session's required ones */
	uint32_t pages_free;         /* these four can be had: ready, */
	uint32_t pages_coming;       /* on their way to sessions, */
	uint32_t pages_optional;     /* of sessions, */
	uint32_t pages_draining;     /* and free once begun steps are settled */
	uint32_t sessions_free;
	uint32_t evicted_pages;      /* optional pages that create would take back */
	uint32_t pending_pages;      /* of those that it would take: still draining */
} dhs_admission;

/* Tells, and changes nothing, what dhs_session_create with these options would meet with if
 * it were the next call.  Host room is judged first.  options may be NULL. */
DHS_API int dhs_session_admission(dhs_context *context, const dhs_session_options *options,
                                  dhs_admission *admission);

/* Room for `rows` rows of prefill behind the settled length.  slots[i], in
 * ordinary memory, is where row length + i is to be written, in every layer,
 * by work enqueued on `stream` after this call.  DHS_ERR_BUSY with an
 * unsettled step; DHS_ERR_ORDER with an extension that is not committed;
 * DHS_ERR_PENDING if the room relies on a step that is not settled. */
DHS_API int dhs_session_extend(dhs_context *context, dhs_session session, uint32_t rows,
                               dhs_stream stream, int32_t *slots);

/* The first `rows` rows of the extension are written by what is on `stream`,
 * which must be the extension's; the rest of the extension is given back. */
DHS_API int dhs_session_commit(dhs_context *context, dhs_session session, uint32_t rows,
                               dhs_stream stream);

/* Drops the rows from `rows` on, at most the settled length.  Cancels an
 * uncommitted extension and the session's part in unsettled steps: what they
 * keep does not count. */
DHS_API int dhs_session_truncate(dhs_context *context, dhs_session session, uint64_t rows);

/* Takes the session's optional pages back, backing up what has no host copy.
 * They are free once *fence has passed (fence may be NULL).  Begun steps still
 * read them. */
DHS_API int dhs_session_evict(dhs_context *context, dhs_session session, dhs_fence *fence);

/* Retracts a session: all of its device pages go back, the hot cache and the tail too,
 * backing up what has no host copy.  They are free once *fence has passed (fence may be
 * NULL).  Rows, host records and handle stay; truncate, evict, destroy and get_info work.
 * DHS_ERR_BUSY with an unsettled step; DHS_ERR_ORDER with an extension that is not
 * committed, or if it is suspended already; DHS_ERR_PENDING while its pages are used by a
 * step whose end is not recorded; DHS_ERR_UNSUPPORTED under full. */
DHS_API int dhs_session_suspend(dhs_context *context, dhs_session session, dhs_fence *fence);

/* Takes the required pages of a suspended session again, as create does, and brings its
 * tail, and the rows that its hot cache held, back on a stream of the library; its next
 * begin or extend waits for that.  DHS_ERR_DEVICE_MEMORY, or DHS_ERR_PENDING if pages that
 * a step still uses would suffice, leave it suspended. */
DHS_API int dhs_session_resume(dhs_context *context, dhs_session session);

/* Ends a session, at any time; its part in unsettled steps is cancelled.  An extension
 * that is not committed ends on its stream, as with truncate. */
DHS_API int dhs_session_destroy(dhs_context *context, dhs_session session);

/* How the session stands; what is settled is counted. */
DHS_API int dhs_session_get_info(dhs_context *context, dhs_session session,
                                 dhs_session_info *info);

/* ---- batch --------------------------------------------------------------- */

enum {
	DHS_BATCH_READ_PAD = 1,    /* read_pad counts though it is 0 */
	DHS_BATCH_WRITE_PAD = 2,   /* write_pad counts though it is 0 */
	DHS_BATCH_STAGING_ROWS = 4 /* staging_rows counts though it is 0 */
};

typedef struct dhs_batch_options {
	uint32_t size;
	uint32_t flags;           /* DHS_BATCH_... */
	uint32_t max_sessions;    /* 0: the context's */
	uint32_t max_queries;     /* of a session in one step; 0: 1; 1 to 16 */
	uint32_t top_k;           /* most selected rows of a query; no default; to 65,536 */
	uint32_t staging_rows;    /* 0: the worst case, so that no begin fails for staging */
	uint32_t staging_buffers; /* 0: 1.  1 to 8: staging slots hold until the n-th next plan */
	int32_t read_pad;         /* 0: -1.  The slot given for positions outside the history, and */
	int32_t write_pad;        /* 0: -1.  for rows that are not new: below 0, or of a page that is
	                             never lent (a reserved one; of an engine's pool, its to know) */
} dhs_batch_options;

/* What dhs_batch_create would take in a context of these options, of which
 * device_pages may be 0. */
DHS_API int dhs_batch_required(const dhs_context_options *context, const dhs_batch_options *options,
                               dhs_required *required);

/* What there is of a device's memory, and what an engine keeps there that is never lent. */
typedef struct dhs_budget {
	uint32_t size;
	uint32_t flags;         /* 0 */
	uint64_t device_bytes;  /* for all that follows and the pool; to 2^60, no default */
	uint64_t row_bytes;     /* of the engine's for every row of every session, all layers
	                           together: indexer keys, rows of dense layers; below 2^32 */
	uint64_t session_bytes; /* of the engine's for every session */
	uint64_t rows;          /* of a session; 1 to max_rows */
	uint32_t sessions;      /* 0: as many as there is room for; to max_sessions */
	uint32_t batches;
	const dhs_batch_options *const *batch; /* [batches] */
} dhs_budget;

typedef struct dhs_budget_result {
	uint32_t size;
	uint32_t flags;
	uint32_t device_pages;   /* for the context: the most that fit, reserved ones included */
	uint32_t sessions;       /* that can be there at once, with what they require */
	uint32_t whole_sessions; /* of these at once: with all their rows on the device */
	uint32_t reserved;
	uint64_t host_rows;      /* for the context: its own, or where that is 0 what these need */
	uint64_t engine_bytes;   /* of device_bytes: rows and sessions of the engine, */
	uint64_t context_bytes;  /* tables of the context, */
	uint64_t batch_bytes;    /* batches, with their staging behind the pool, */
	uint64_t pool_bytes;     /* the pool, */
	uint64_t left_bytes;     /* and less than a page */
} dhs_budget_result;

/* Computes, without creating anything, the pages of the pool that a device's memory leaves,
 * and the sessions that they hold.  device_pages of the context must be 0.
 * DHS_ERR_HOST_MEMORY and DHS_ERR_DEVICE_MEMORY if the sessions, or one, do not fit. */
DHS_API int dhs_pool_budget(const dhs_context_options *context, const dhs_budget *budget,
                            dhs_budget_result *result);

/* One batch serves steps of all sizes up to its own, at fixed addresses.
 * Its staging lies behind a library-owned pool, and takes pages of an engine's. */
DHS_API int dhs_batch_create(dhs_context *context, const dhs_batch_options *options,
                             dhs_batch **batch);

/* DHS_ERR_BUSY while one of its steps is not settled.  NULL is a no-op. */
DHS_API int dhs_batch_destroy(dhs_batch *batch);

/* Device memory of a batch that the engine may read in kernels of a step. */
typedef struct dhs_batch_view {
	uint32_t size;
	uint32_t flags;
	const int32_t *session_index; /* [max_sessions] row of the tables below, -1: padding */
	const int32_t *lengths;       /* [index] rows before this step's new rows; the step's
	                                 commit adds what it kept */
	const int32_t *page_table;    /* [index][page_stride] pool page of a session's page, -1:
	                                 not on the device */
	uint64_t page_stride;
} dhs_batch_view;

/* The addresses stay for the batch's life; their contents are those of the step that
 * runs, in stream order. */
DHS_API int dhs_batch_get_view(dhs_batch *batch, dhs_batch_view *view);

/* ---- step ---------------------------------------------------------------- */

typedef struct dhs_step_entry {
	dhs_session session; /* 0: a padding entry */
	uint32_t new_rows;   /* rows that this step may add; to max_new_rows */
	uint32_t queries;    /* rows of selections of this session; to max_queries */
} dhs_step_entry;

/* Begins a step of `count` entries (0 is legal), each of `entry_size` bytes.
 * A session stands in a step once.  Needs the step before the last settled or
 * aborted and waits until the device has passed it: the only wait.  Enqueues
 * on `stream` what makes the tables those of this step.  Ends the enqueueing of
 * earlier steps of this batch and of these sessions.  Fails for host room, for
 * staging or, under full, for pages; DHS_ERR_PENDING if pages rely on a step of
 * another batch that is not settled; DHS_ERR_MISMATCH for a failed session. */
DHS_API int dhs_step_begin(dhs_batch *batch, const dhs_step_entry *entries, size_t count,
                           size_t entry_size, dhs_stream stream, dhs_step *step);

/* 1 if every row of every session of the batch's last begun step is on the
 * device: plan and fetch have nothing to do but to translate. */
DHS_API int dhs_step_all_resident(dhs_batch *batch, int *resident);

/* slots_dev [sessions][rows]: where new row i of entry e is written in every
 * layer; the write pad for i at or past the entry's new rows and for entries
 * past the step's.  sessions 0: the batch's most. */
DHS_API int dhs_step_slots(dhs_batch *batch, uint32_t sessions, uint32_t rows,
                           int32_t *slots_dev, dhs_stream stream);

/* One group's selections of a step, both arrays in device memory:
 * [sessions][queries][top_k].  A row is a position of the entry's history, new
 * rows of the step included; anything else gives the read pad.  Every slot is
 * written.  Order is kept. */
typedef struct dhs_selection {
	uint32_t size;
	uint32_t flags;      /* 0 */
	uint32_t sessions;   /* 0: the batch's most */
	uint32_t queries;    /* 0: the batch's most */
	uint32_t top_k;      /* 0: the batch's */
	uint32_t reserved;   /* 0 */
	const int32_t *rows; /* read */
	int32_t *slots;      /* written; may be rows, else apart from them */
} dhs_selection;

/* Finds the slot of every selected row of a group and chooses places for those
 * that are missing; docs/resolve.md has the rule.  In any order of groups; a group may be
 * planned again in a step, by a plan like any other.
 * Slots in the hot cache hold their rows until the session's next plan of this
 * group (with elastic pages at least until the step's commit), staging slots until
 * the batch's staging_buffers-th next plan, page slots until the step's commit. */
DHS_API int dhs_step_plan(dhs_batch *batch, uint32_t group, const dhs_selection *selection,
                          dhs_stream stream);

/* Copies the missing rows of the group's last plan, `layers` layers from the
 * `first`-th of the group on; layers 0: all from first.  In one call or in several, on
 * one stream or on several that join before the staging buffer is used again.  Rows
 * that are not fetched in all layers of the group are not found by later plans. */
DHS_API int dhs_step_fetch(dhs_batch *batch, uint32_t group, uint32_t first, uint32_t layers,
                           dhs_stream stream);

/* dhs_step_plan, then dhs_step_fetch of all layers. */
DHS_API int dhs_step_resolve(dhs_batch *batch, uint32_t group, const dhs_selection *selection,
                             dhs_stream stream);

/* After the work that writes the new rows: keeps kept_dev[e] of entry e's new
 * rows (device memory, [sessions], clipped to 0 .. new_rows), the first ones;
 * kept_dev NULL: all.  sessions 0: the batch's most. */
DHS_API int dhs_step_commit(dhs_batch *batch, uint32_t sessions, const int32_t *kept_dev,
                            dhs_stream stream);

/* Tells the host what the commit kept: kept[count] in the order of begin's
 * entries, in ordinary memory, the same numbers as on the device.  All work of
 * the step must be enqueued and joined to begin's stream.  Steps settle in
 * order. */
DHS_API int dhs_step_settle(dhs_context *context, dhs_step step, const uint32_t *kept,
                            size_t count);

/* Commit, on begin's stream, and settle in one: for a step that dhs_step_commit was not
 * called for, before a later begin of this batch or of one of these sessions marks
 * the step's end (DHS_ERR_ORDER). */
DHS_API int dhs_step_end(dhs_context *context, dhs_step step, const uint32_t *kept,
                         size_t count);

/* Gives up a step whose commit is never enqueued; nothing of it is kept. */
DHS_API int dhs_step_abort(dhs_context *context, dhs_step step);

/* ---- fences -------------------------------------------------------------- */

/* All three: DHS_ERR_PENDING while the step that the fence relies on is begun
 * and its end not recorded. */
DHS_API int dhs_fence_wait(dhs_context *context, dhs_fence fence, dhs_stream stream);
DHS_API int dhs_fence_sync(dhs_context *context, dhs_fence fence);
DHS_API int dhs_fence_query(dhs_context *context, dhs_fence fence, int *passed);

#ifdef __cplusplus
}
#endif

#endif
