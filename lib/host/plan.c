/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * From selected rows to slots.  Two passes over an entry's selections: the
 * first answers what is on the device and marks what is missing in a bitmap over
 * the session's rows; then places are chosen; the second gives them to the missing
 * rows, in ascending order.  Between the passes a missing row stands in its slot's
 * place as UNPLACED + row, which no slot and no pad is.
 */
#include "kernels.h"

#include <string.h>

#define UNPLACED INT32_MIN
#define WORD_BITS 64

/* One entry of the plan. */
struct planned {
	const struct dhs_world *world;
	struct dhs_batch_state *batch;
	struct dhs_scratch *scratch;
	struct dhs_counts *counts;
	struct dhs_hot hot;
	struct dhs_sample *sample; /* NULL: it is not measured */
	int looked;                /* at the hot cache */
	const int32_t *page;       /* the session's page table */
	uint32_t rows;             /* positions below this are its history */
	uint32_t low, high;        /* words of the bitmap in use: [low, high) */
	uint32_t group;
	const int32_t *host_page; /* where the records of its rows are */
	struct dhs_miss *miss;    /* its part of the list */
	uint64_t staging;         /* row of staging where its share begins */
	uint32_t misses, places;  /* the first so many of the misses get places of the hot cache */
};

/* Rows of a plan whose misses never came are not to be found. */
static void undo_unfetched(struct planned *p)
{
	if (!p->hot.plan->missed)
		return;
	for (uint32_t place = 0; place < p->hot.places; place++)
		if (p->hot.row[place] && p->hot.stamp[place] == p->hot.plan->plans)
			p->hot.row[place] = 0;
}

/* Where in the hot cache rows lie; in_place 0 forgets it. */
static void map_places(const struct planned *p, int in_place)
{
	for (uint32_t place = 0; place < p->hot.places; place++)
		if (p->hot.row[place])
			p->scratch->map[p->hot.row[place] - 1] = (uint16_t)(in_place ? place + 1 : 0);
}

static int32_t note_miss(struct planned *p, uint32_t row)
{
	uint32_t word = row / WORD_BITS;
	uint64_t bit = (uint64_t)1 << row % WORD_BITS;

	if (p->scratch->missing[word] & bit) {
		p->counts->repeats++;
	} else {
		p->scratch->missing[word] |= bit;
		p->low = word < p->low ? word : p->low;
		p->high = word >= p->high ? word + 1 : p->high;
		p->counts->misses++;
	}
	return (int32_t)(UNPLACED + (int64_t)row);
}

/* ---- measuring: see struct dhs_sample ---- */

static void measure_places(const struct planned *p)
{
	struct dhs_sample *s = p->sample;

	*s = (struct dhs_sample){ .plans = 1 };
	for (uint32_t place = 0; place < p->hot.places; place++)
		if (p->hot.row[place])
			s->places[dhs_age_bin(p->hot.plan->plans - p->hot.stamp[place])]++;
		else
			s->empty++;
}

/* A plan that has not looked at the places says nothing of them. */
static void measure_end(const struct planned *p)
{
	if (p->looked)
		p->sample->looked = 1;
	else
		*p->sample = (struct dhs_sample){ .plans = 1 };
	p->sample->misses = p->misses;
}

/* The first entry of a plan that selects a place's row hits it. */
static void measure_hit(const struct planned *p, uint32_t stamp)
{
	if (stamp != p->hot.plan->plans)
		p->sample->hits[dhs_age_bin(p->hot.plan->plans - stamp)]++;
}

/* First pass over one query: what is on the device. */
static void look_up(struct planned *p, const int32_t *rows, int32_t *slots, uint32_t n)
{
	uint32_t page_rows = p->world->geometry.page_rows, now = p->hot.plan->plans;
	uint64_t bad = 0, page_hits = 0, hot_hits = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = (uint32_t)rows[i], place;
		int32_t page;

		if (row >= p->rows) {
			slots[i] = p->batch->read_pad;
			bad++;
			continue;
		}
		page = p->page[row / page_rows];
		if (page >= 0) {
			slots[i] = page * (int32_t)page_rows + (int32_t)(row % page_rows);
			page_hits++;
			continue;
		}
		p->looked = 1;
		place = p->scratch->map[row];
		if (place) {
			slots[i] = p->hot.slot[place - 1];
			if (p->sample)
				measure_hit(p, p->hot.stamp[place - 1]);
			p->hot.stamp[place - 1] = now;
			hot_hits++;
			continue;
		}
		slots[i] = note_miss(p, row);
	}
	p->counts->bad_rows += bad;
	p->counts->page_hits += page_hits;
	p->counts->hot_hits += hot_hits;
}

/* How many of the missing rows lie below each word: a row's rank among them in
 * ascending order is this and what its word has below it. */
static void rank_misses(struct planned *p)
{
	uint32_t n = 0;

	for (uint32_t word = p->low; word < p->high; word++) {
		p->scratch->before[word] = n;
		n += (uint32_t)__builtin_popcountll(p->scratch->missing[word]);
	}
	p->misses = n;
}

/* What lay in the places that are taken is gone. */
static void choose_places(struct planned *p)
{
	p->places = dhs_host_victims(&p->hot, p->misses, p->scratch);
	for (uint32_t i = 0; i < p->places; i++) {
		uint32_t place = p->scratch->place[i];

		if (p->hot.row[place]) {
			p->scratch->map[p->hot.row[place] - 1] = 0;
			p->hot.row[place] = 0;
			p->counts->victims++;
		}
	}
	p->counts->staged += p->misses - p->places;
	p->hot.plan->missed = 1;
}

/* The row moves into the place. */
static int32_t take_place(struct planned *p, uint32_t row, uint32_t place)
{
	p->hot.row[place] = (int32_t)row + 1;
	p->hot.stamp[place] = p->hot.plan->plans;
	p->scratch->map[row] = (uint16_t)(place + 1);
	return p->hot.slot[place];
}

/* The slot of row `row` of all staging buffers together. */
static int32_t staging_slot(const struct planned *p, uint64_t row)
{
	uint32_t page_rows = p->world->geometry.page_rows;

	return p->batch->staging_page[row / page_rows] * (int32_t)page_rows +
	       (int32_t)(row % page_rows);
}

/* The slot of the missing row of this rank, which goes on the list.  The second time is
 * as the first. */
static int32_t place_miss(struct planned *p, uint32_t row, uint32_t rank)
{
	const struct dhs_geometry *g = &p->world->geometry;
	int32_t slot = rank < p->places ? take_place(p, row, p->scratch->place[rank])
	                                : staging_slot(p, p->staging + rank - p->places);

	p->miss[rank] = (struct dhs_miss){
		.record = dhs_record_address(g, p->group, 0, p->host_page[row / g->page_rows],
		                             row % g->page_rows),
		.page = slot / (int32_t)g->page_rows,
		.offset = (uint32_t)slot % g->page_rows,
	};
	return slot;
}

/* Second pass over one query: the missing rows. */
static void answer_misses(struct planned *p, int32_t *slots, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = (uint32_t)slots[i] - (uint32_t)UNPLACED, word = row / WORD_BITS;
		uint64_t below = ((uint64_t)1 << row % WORD_BITS) - 1;

		if (slots[i] >= UNPLACED / 2)
			continue;
		slots[i] = place_miss(p, row,
		                      p->scratch->before[word] + (uint32_t)__builtin_popcountll(
															 p->scratch->missing[word] & below));
	}
}

static void place_misses(struct planned *p, uint32_t queries, uint32_t top_k, int32_t *slots)
{
	rank_misses(p);
	choose_places(p);
	for (uint32_t q = 0; q < queries; q++)
		answer_misses(p, slots + (size_t)q * top_k, top_k);
	memset(p->scratch->missing + p->low, 0, (p->high - p->low) * sizeof(*p->scratch->missing));
}

static void pad(int32_t *slots, uint64_t n, int32_t value)
{
	for (uint64_t i = 0; i < n; i++)
		slots[i] = value;
}

/* Plans the first `queries` rows of an entry's selections. */
static void plan_entry(struct planned *p, const struct dhs_world_entry *e, uint32_t queries,
                       uint32_t top_k, const int32_t *rows, int32_t *slots)
{
	const struct dhs_geometry *g = &p->world->geometry;

	p->page = p->world->tables.page + (size_t)e->index * g->max_pages;
	p->host_page = p->world->tables.host_page + (size_t)e->index * g->max_pages;
	p->rows = (uint32_t)(p->world->tables.length[e->index] + e->new_rows);
	p->rows = p->rows < (uint32_t)e->bound ? p->rows : (uint32_t)e->bound;
	p->low = UINT32_MAX;
	p->high = 0;
	p->misses = 0;
	undo_unfetched(p);
	p->hot.plan->plans++;
	p->hot.plan->missed = 0;
	p->counts->plans++;
	map_places(p, 1);
	if (p->sample)
		measure_places(p);
	for (uint32_t q = 0; q < queries; q++)
		look_up(p, rows + (size_t)q * top_k, slots + (size_t)q * top_k, top_k);
	if (p->low < p->high)
		place_misses(p, queries, top_k, slots);
	map_places(p, 0);
	if (p->sample)
		measure_end(p);
}

/* The batch's next staging buffer is this group's until it comes round again. */
static uint32_t take_turn(const struct dhs_world *world, struct dhs_batch_state *batch,
                          uint32_t group)
{
	uint32_t turn = batch->next_turn, buffer = turn % batch->buffers;

	batch->next_turn = (turn + 1) % (2 * batch->buffers);
	batch->turn[turn].group = (int32_t)group;
	memset(batch->miss_count + (size_t)buffer * batch->max_sessions, 0,
	       batch->max_sessions * sizeof(*batch->miss_count));
	memset(batch->fetched + (size_t)buffer * world->geometry.layer_words, 0,
	       world->geometry.layer_words * sizeof(*batch->fetched));
	return turn;
}

void dhs_host_plan(const struct dhs_world *world, struct dhs_batch_state *batch,
                   struct dhs_scratch *scratch, uint32_t group, const dhs_selection *selection)
{
	const dhs_selection *s = selection;
	size_t stride = (size_t)s->queries * s->top_k;
	int open = dhs_batch_open(world, batch);
	uint32_t turn = open ? take_turn(world, batch, group) : 0, buffer = turn % batch->buffers;
	uint32_t misses = 0;

	if (open && (s->sessions < batch->count || s->queries < batch->queries))
		batch->counts.order_errors++;
	for (uint32_t i = 0; i < s->sessions; i++) {
		const struct dhs_world_entry *e = &batch->entry[i];
		int here = open && i < batch->count && e->index >= 0;
		uint32_t queries = here ? (uint32_t)e->queries : 0;
		struct planned p = { .world = world, .batch = batch, .scratch = scratch };

		queries = queries < s->queries ? queries : s->queries;
		if (queries) {
			p.counts = &batch->counts;
			p.hot = dhs_hot_of(world, (uint32_t)e->index, group);
			p.group = group;
			if (group == batch->measured)
				p.sample = &world->result[batch->in_flight].sample[i];
			p.miss = batch->miss + (size_t)buffer * batch->miss_rows + misses;
			p.staging = (uint64_t)buffer * batch->staging_rows + (uint64_t)e->staging_first;
			plan_entry(&p, e, queries, s->top_k, s->rows + i * stride, s->slots + i * stride);
			batch->miss_count[(size_t)buffer * batch->max_sessions + i] = p.misses;
			misses += p.misses;
		}
		pad(s->slots + i * stride + (size_t)queries * s->top_k, stride - (size_t)queries * s->top_k,
		    batch->read_pad);
	}
	if (open)
		batch->turn[turn].misses = misses;
}
