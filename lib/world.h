/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What device code sees: the geometry of pool and host tier, the tables of the
 * sessions, the state of a batch, and what goes up with a step and comes back.
 * Plain structs over plain arrays, the same on every backend.
 *
 * The tables are written by work on streams only (dhs_backend_ops.apply and
 * the kernels behind it); the host keeps shadows of its own and sends patches.
 */
#ifndef DHS_LIB_WORLD_H
#define DHS_LIB_WORLD_H

#include <dhisparse/dhisparse.h>

#define DHS_MAX_SEGMENTS 8
#define DHS_MAX_QUERIES 16
#define DHS_MAX_TOP_K 65536
#define DHS_MAX_HOT_ROWS 32767
#define DHS_MAX_BUFFERS 8

/* Functions that kernels of every backend call. */
#ifdef __CUDACC__
#define DHS_KERNEL __device__ static inline
#else
#define DHS_KERNEL static inline
#endif

struct dhs_world_segment {
	uint64_t page_stride;
	uint64_t row_stride;
	uint32_t bytes;
	uint32_t record_offset; /* in a layer's part of a host record */
};

/* Fixed when the context is created. */
struct dhs_geometry {
	uint32_t layers;
	uint32_t groups;
	uint32_t segments;
	uint32_t page_rows;
	uint32_t row_bytes; /* all segments of one layer: a layer's part of a host record */
	uint32_t pages;     /* of the pool */
	uint32_t pad_pages; /* pads may lie in the first of them: the reserved ones, or, as the engine
	                       knows which it never lends, all of its own pool */
	uint32_t max_sessions;
	uint32_t max_rows;
	uint32_t max_pages;     /* ceil(max_rows / page_rows) */
	uint32_t tiered;        /* there is a host tier: not under full */
	uint32_t hot_rows;      /* places of a hot cache that are never lent; 0 under full */
	uint32_t hot_pages;     /* in which they lie */
	uint32_t most_hot_rows; /* with elastic pages, which have page_rows places each */
	uint32_t most_hot_pages;
	uint32_t unit;        /* 16, 8 or 4: all rows and records consist of such pieces, aligned */
	uint32_t most_layers; /* of the largest group */
	uint32_t layer_words; /* 32-bit words with a bit for each of these */
	uint32_t mirror;      /* commit copies what it keeps to the host tier */
	uint32_t chunk_shift; /* a chunk of the host tier holds 1 << chunk_shift host pages */
	struct dhs_world_segment segment[DHS_MAX_SEGMENTS];
	/* in device memory; the context has copies of its own */
	uint32_t *group_first;   /* [groups + 1] first layer of a group */
	unsigned char **base;    /* [layers][segments] of the pool, offsets included */
	unsigned char **records; /* [chunks][groups] where a group's records start in a chunk */
};

/* The plans of one session and group. */
struct dhs_plan_state {
	uint32_t plans;  /* so far; the stamp of the last one */
	uint32_t missed; /* the last plan had misses and they are not fetched in all layers */
};

/* What came back into a hot cache, until a step of the session counts it. */
struct dhs_warmed {
	uint64_t rows, bytes;
};

/* Rows of the session tables: index i is the session's place in the context. */
struct dhs_tables {
	int32_t *length;             /* [sessions] committed rows */
	int32_t *page;               /* [sessions][max_pages] pool page, -1 none */
	int32_t *host_page;          /* [sessions][max_pages] page of the host tier, -1 none */
	int32_t *hot_places;         /* [sessions] places of its hot cache, hot_rows or more */
	int32_t *hot_slot;           /* [sessions][most_hot_rows] slot of a place */
	int32_t *hot_row;            /* [sessions][groups][most_hot_rows] row + 1, 0 empty */
	uint32_t *hot_stamp;         /* [sessions][groups][most_hot_rows] plan that last read it */
	struct dhs_plan_state *plan; /* [sessions][groups] */
	struct dhs_warmed *warmed;   /* [sessions] */
};

/* The slot of a place of a hot cache that lies in these pages.  hot_rows places lie in the first
 * hot_pages of them, which may have room for more; an elastic page has page_rows. */
DHS_KERNEL int32_t dhs_hot_slot(const struct dhs_geometry *g, const int32_t *pages, uint32_t place)
{
	uint32_t at = place < g->hot_rows ? place : place - g->hot_rows + g->hot_pages * g->page_rows;

	return pages[at / g->page_rows] * (int32_t)g->page_rows + (int32_t)(at % g->page_rows);
}

/* What the device counts; names as in dhs_stats. */
struct dhs_counts {
	uint64_t plans, page_hits, hot_hits, misses, repeats, staged, victims, bad_rows;
	uint64_t fetched_bytes, mirrored_rows, order_errors, warmed_rows, warm_bytes;
};

/*
 * How well the hot cache of a session does, as one plan of a step saw it: its places by age,
 * and which of them were hit.  An age is how many plans of the group ago a place was last read,
 * 1 the plan before; ages of a bin are told by dhs_age_bin.  A cache of the places below an age
 * would have missed what was hit above it: so one sample holds the curve of misses by size.
 */
#define DHS_AGE_BINS 24

struct dhs_sample {
	uint32_t plans;  /* measured: 0 or 1 */
	uint32_t looked; /* the hot cache was looked at: not all selected rows were in pages or bad */
	uint32_t misses; /* distinct rows */
	uint32_t empty;  /* places */
	uint32_t places[DHS_AGE_BINS]; /* filled ones, by age */
	uint32_t hits[DHS_AGE_BINS];   /* of these, those that the plan read */
};

/* Bin of an age of 1 or more: 1, 2, 3, then two bins an octave; the last has all that is older. */
DHS_KERNEL uint32_t dhs_age_bin(uint32_t age)
{
#ifdef __CUDACC__
	uint32_t octave = 31 - (uint32_t)__clz((int)age);
#else
	uint32_t octave = 31 - (uint32_t)__builtin_clz(age);
#endif
	uint32_t bin = age < 4 ? age - 1 : 2 * octave - 1 + (age >> (octave - 1) & 1);

	return bin < DHS_AGE_BINS ? bin : DHS_AGE_BINS - 1;
}

/* What a step tells the host; in host memory, read once the step has passed. */
struct dhs_result {
	uint32_t *committed;       /* [1] */
	int32_t *length;           /* [max_sessions] after the commit, by entry */
	int32_t *kept;             /* [max_sessions] by entry */
	struct dhs_counts *counts; /* [1] */
	struct dhs_sample *sample; /* [max_sessions] by entry, of the group that the step measures */
};

struct dhs_world {
	struct dhs_geometry geometry;
	struct dhs_tables tables;
	struct dhs_result result[DHS_MAX_STEPS_IN_FLIGHT];
};

/* One session's part of a step, as the device needs it. */
struct dhs_world_entry {
	int32_t index; /* -1: padding */
	int32_t new_rows;
	int32_t queries;
	int32_t bound; /* rows that places are reserved for: nothing is written from here on, even
	                  if the device kept more rows than settle said */
	int32_t staging_first; /* start of its share of a staging buffer */
};

/* A row that a fetch brings; all that it needs is here. */
struct dhs_miss {
	unsigned char *record; /* the row's host record */
	int32_t page;          /* where it goes */
	uint32_t offset;       /* in the page */
};

/* A plan, for the fetches of its misses. */
struct dhs_turn {
	int32_t group; /* -1: none in this step */
	uint32_t misses;
};

/* Where a batch's step is, in stream order. */
enum dhs_batch_phase { DHS_BATCH_NONE, DHS_BATCH_BEGUN, DHS_BATCH_COMMITTED };

struct dhs_batch_state {
	/* fixed */
	uint32_t max_sessions, max_queries, top_k, buffers;
	uint32_t staging_rows, miss_rows; /* of one buffer */
	int32_t read_pad, write_pad;
	int32_t *staging_page; /* staging row i of buffer b lies at row b * staging_rows + i of these */
	/* of the begun step, set by apply */
	uint32_t count;             /* entries */
	uint32_t queries, new_rows; /* most of any entry */
	enum dhs_batch_phase phase;
	uint32_t in_flight;            /* which result it reports to */
	uint32_t measured;             /* the group whose plans leave samples there */
	struct dhs_world_entry *entry; /* [max_sessions], right behind this struct */
	int32_t *session_index;        /* [max_sessions] for the engine */
	/* of its plans */
	uint32_t next_turn; /* plans so far, mod 2 * buffers: turn mod buffers is a plan's buffer */
	struct dhs_turn turn[2 * DHS_MAX_BUFFERS]; /* the last `buffers` are those whose misses are
	                                              still there; misses of the next are 0 */
	struct dhs_miss *miss; /* [buffers][miss_rows] an entry's misses lie together, by row */
	uint32_t *miss_count;  /* [buffers][max_sessions] how many of an entry */
	uint32_t *
		fetched; /* [buffers][layer_words of the geometry] bit of a layer: its misses are fetched */
	uint32_t done;            /* blocks of the running kernel that are done; 0 between kernels */
	struct dhs_counts counts; /* not told to the host yet: commit and report do */
};

/* A change of one session's tables. */
struct dhs_patch {
	int32_t index;
	int32_t length;            /* -1: leave */
	int32_t drop_from;         /* hot rows from here on are dropped; -1: none */
	int32_t first_page, pages; /* a range of both page tables is new */
	int32_t hot_pages;         /* the hot cache lies in these pages; 0: as before */
	int32_t hot_places;        /* and has so many places, */
	int32_t hot_kept; /* of which the first so many hold what they held; the rest is empty */
	uint64_t data;    /* where its numbers start: pages, host pages, hot pages */
};

/* What a begin sends to the device; in host memory, one a step in flight. */
struct dhs_upload {
	uint32_t count, queries, new_rows, in_flight, measured, patches;
	struct dhs_world_entry *entry; /* [max_sessions] */
	struct dhs_patch *patch;       /* [max_sessions] */
	int32_t *data;                 /* [max_sessions][2 * max_pages + most_hot_pages] */
	int32_t *kept;                 /* [max_sessions] for dhs_step_end */
};

/* Rows first .. first + rows - 1 of a page, all layers, between the tiers. */
struct dhs_copy {
	int32_t page;
	int32_t host_page;
	uint32_t first;
	uint32_t rows;
};

/* The hot cache of a session moves to other pages: the rows that it holds come there from
 * their records, all layers. */
struct dhs_warm {
	int32_t index;
	int32_t limit;       /* rows from here on are dropped by the next begin and do not come */
	const int32_t *page; /* [pages] */
	uint32_t pages;
};

enum dhs_copy_way { DHS_COPY_TO_HOST, DHS_COPY_TO_DEVICE };

#endif
