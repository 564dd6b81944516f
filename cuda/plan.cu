/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * From selected rows to slots, a block a session.  The missing rows are a bitmap
 * in shared memory, of a window of the history at a time: a prefix count over
 * its words lists them without duplicates, in ascending order, and gives each
 * its rank.  Between the passes a missing row stands in its slot's place as
 * unplaced + row, which no slot and no pad is.
 */
#include "victim.cuh"

namespace
{

using dhs::plan_threads;
using dhs::warp_size;

constexpr int32_t unplaced = INT32_MIN;
constexpr uint32_t word_bits = 32;
/* 32 KB of bits, and as much of counts: with what CUB needs, below what every
 * device since compute capability 8.0 lets a block have. */
constexpr uint32_t window_words = 8192;
constexpr uint32_t window_rows = window_words * word_bits;

struct plan_shared {
	dhs::victims::shared victims;
	cub::BlockScan<uint32_t, plan_threads>::TempStorage scan;
	uint32_t bad, page_hits, hot_hits, missing, gone;
};

__device__ uint32_t history_words(const dhs_geometry &g)
{
	uint32_t words = (g.max_rows + word_bits - 1) / word_bits;

	return words < window_words ? words : window_words;
}

/* One entry of the plan, as all threads of its block see it. */
struct planned {
	const dhs_world &world;
	dhs_batch_state *batch;
	plan_shared &s;
	uint32_t *bits, *before; /* [words] of the window: missing rows, and how many lie below */
	dhs::hot_cache hot;
	dhs_plan_state *state;
	const int32_t *page;
	uint32_t rows; /* positions below this are the history */
	const int32_t *selected;
	int32_t *slots;
	uint32_t entries; /* of the selection */
	dhs_miss *miss;
};

/* Rows of a plan whose misses never came are not to be found. */
__device__ void undo_unfetched(planned &p)
{
	if (!p.state->missed)
		return;
	for (uint32_t i = threadIdx.x; i < p.hot.rows; i += plan_threads)
		if (p.hot.row[i] && p.hot.stamp[i] == p.hot.now - 1) {
			p.hot.map[p.hot.row[i] - 1] = 0;
			p.hot.row[i] = 0;
		}
	__syncthreads();
}

/* The slot of one position, or unplaced + position; *counter is what it counts as. */
__device__ int32_t look_up(planned &p, uint32_t row, uint32_t **counter)
{
	uint32_t page_rows = p.world.geometry.page_rows, place;
	int32_t page;

	*counter = &p.s.bad;
	if (row >= p.rows)
		return p.batch->read_pad;
	*counter = &p.s.page_hits;
	page = p.page[row / page_rows];
	if (page >= 0)
		return page * int32_t(page_rows) + int32_t(row % page_rows);
	place = p.hot.rows ? p.hot.map[row] : 0;
	*counter = place ? &p.s.hot_hits : &p.s.missing;
	if (!place)
		return unplaced + int32_t(row);
	p.hot.stamp[place - 1] = p.hot.now;
	return p.hot.slot[place - 1];
}

__device__ void look_up_all(planned &p)
{
	for (uint32_t i = threadIdx.x; i < p.entries; i += plan_threads) {
		uint32_t *counter;

		p.slots[i] = look_up(p, uint32_t(p.selected[i]), &counter);
		atomicAdd(counter, 1);
	}
	__syncthreads();
}

/* Bits of the missing rows of the window that begins at `from`. */
__device__ void mark_window(planned &p, uint32_t from, uint32_t words)
{
	for (uint32_t w = threadIdx.x; w < words; w += plan_threads)
		p.bits[w] = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < p.entries; i += plan_threads) {
		uint32_t row = uint32_t(p.slots[i]) - uint32_t(unplaced);

		if (p.slots[i] < unplaced / 2 && row >= from && row - from < words * word_bits)
			atomicOr(&p.bits[(row - from) / word_bits], 1u << (row - from) % word_bits);
	}
	__syncthreads();
}

/* Counts below each word, from `rank` on; returns the rank behind the window. */
__device__ uint32_t rank_window(planned &p, uint32_t rank, uint32_t words)
{
	uint32_t each = (words + plan_threads - 1) / plan_threads;
	uint32_t from = threadIdx.x * each, to = from + each < words ? from + each : words;
	uint32_t n = 0, below, total;

	for (uint32_t w = from; w < to; w++)
		n += __popc(p.bits[w]);
	cub::BlockScan<uint32_t, plan_threads>(p.s.scan).ExclusiveSum(n, below, total);
	below += rank;
	for (uint32_t w = from; w < to; w++) {
		p.before[w] = below;
		below += __popc(p.bits[w]);
	}
	__syncthreads();
	return rank + total;
}

__device__ void list_window(planned &p, uint32_t from, uint32_t words)
{
	for (uint32_t w = threadIdx.x; w < words; w += plan_threads) {
		uint32_t rank = p.before[w];

		for (uint32_t bits = p.bits[w]; bits; bits &= bits - 1)
			p.miss[rank++].row = int32_t(from + w * word_bits + __ffs(bits) - 1);
	}
	__syncthreads();
}

/* The missing rows in ascending order; how many. */
__device__ uint32_t list_misses(planned &p)
{
	uint32_t words = history_words(p.world.geometry), misses = 0;

	for (uint32_t from = 0; from < p.rows; from += window_rows) {
		mark_window(p, from, words);
		uint32_t after = rank_window(p, misses, words);

		if (after > misses)
			list_window(p, from, words);
		misses = after;
	}
	return misses;
}

__device__ int32_t staging_slot(const planned &p, uint64_t row)
{
	uint32_t page_rows = p.world.geometry.page_rows;

	return p.batch->staging_page[row / page_rows] * int32_t(page_rows) + int32_t(row % page_rows);
}

/* Every missing row gets a place; how many of them in staging. */
__device__ uint32_t place_misses(planned &p, uint32_t misses, uint64_t staging)
{
	dhs::victims victims(p.s.victims, p.hot);
	uint32_t places = victims.choose(misses, [&](uint32_t rank, uint32_t place) {
		dhs_miss &miss = p.miss[rank];

		if (p.hot.row[place]) {
			p.hot.map[p.hot.row[place] - 1] = 0;
			atomicAdd(&p.s.gone, 1);
		}
		p.hot.row[place] = miss.row + 1;
		p.hot.stamp[place] = p.hot.now;
		p.hot.map[miss.row] = uint16_t(place + 1);
		miss.slot = p.hot.slot[place];
	});

	for (uint32_t i = places + threadIdx.x; i < misses; i += plan_threads)
		p.miss[i].slot = staging_slot(p, staging + i - places);
	__syncthreads();
	return misses - places;
}

__device__ void answer_window(planned &p, uint32_t from, uint32_t words)
{
	for (uint32_t i = threadIdx.x; i < p.entries; i += plan_threads) {
		uint32_t row = uint32_t(p.slots[i]) - uint32_t(unplaced), at = row - from;

		if (p.slots[i] >= unplaced / 2 || row < from || at >= words * word_bits)
			continue;
		p.slots[i] = p.miss[p.before[at / word_bits] +
		                    __popc(p.bits[at / word_bits] & ((1u << at % word_bits) - 1))]
		                 .slot;
	}
	__syncthreads();
}

/* A history of one window has its ranks still in place. */
__device__ void answer_misses(planned &p)
{
	uint32_t words = history_words(p.world.geometry), rank = 0;

	for (uint32_t from = 0; from < p.rows; from += window_rows) {
		if (p.rows > window_rows) {
			mark_window(p, from, words);
			rank = rank_window(p, rank, words);
		}
		answer_window(p, from, words);
	}
}

__device__ void tell(planned &p, uint32_t misses, uint32_t staged)
{
	dhs_counts *c = &p.batch->counts;

	dhs::count(&c->plans, 1);
	dhs::count(&c->page_hits, p.s.page_hits);
	dhs::count(&c->hot_hits, p.s.hot_hits);
	dhs::count(&c->bad_rows, p.s.bad);
	dhs::count(&c->misses, misses);
	dhs::count(&c->repeats, p.s.missing - misses);
	dhs::count(&c->victims, p.s.gone);
	dhs::count(&c->staged, staged);
}

/* Returns the misses of the entry. */
__device__ uint32_t plan_entry(planned &p, uint64_t staging)
{
	uint32_t misses = 0, staged = 0;

	if (threadIdx.x == 0)
		p.s.bad = p.s.page_hits = p.s.hot_hits = p.s.missing = p.s.gone = 0;
	__syncthreads();
	undo_unfetched(p);
	look_up_all(p);
	if (p.s.missing) {
		misses = list_misses(p);
		staged = place_misses(p, misses, staging);
		answer_misses(p);
	}
	if (threadIdx.x == 0) {
		p.state->plans = p.hot.now;
		p.state->missed = misses != 0;
		tell(p, misses, staged);
	}
	return misses;
}

__device__ void pad(int32_t *slots, uint64_t n, int32_t value)
{
	for (uint64_t i = threadIdx.x; i < n; i += plan_threads)
		slots[i] = value;
}

/* Where each entry's misses begin among all of the plan, for the fetch. */
__device__ void start_misses(plan_shared &s, dhs_batch_state *batch, uint32_t buffer)
{
	uint32_t *count = batch->miss_count + size_t(buffer) * batch->max_sessions;
	uint32_t *start = batch->miss_start + size_t(buffer) * (batch->max_sessions + 1);
	uint32_t sum = 0;

	for (uint32_t from = 0; from < batch->max_sessions; from += plan_threads) {
		uint32_t e = from + threadIdx.x, n = e < batch->count ? count[e] : 0, below, total;

		cub::BlockScan<uint32_t, plan_threads>(s.scan).ExclusiveSum(n, below, total);
		__syncthreads();
		if (e < batch->max_sessions)
			start[e] = sum + below;
		sum += total;
	}
	if (threadIdx.x == 0)
		start[batch->max_sessions] = sum;
}

/* The last block of the plan: the buffer is the group's until it comes round again. */
__device__ void finish(const dhs_world &world, plan_shared &s, dhs_batch_state *batch,
                       uint32_t group, const dhs_selection &selection)
{
	uint32_t buffer = batch->next_buffer;

	if (batch->phase != DHS_BATCH_BEGUN) {
		if (batch->phase == DHS_BATCH_COMMITTED && threadIdx.x == 0)
			dhs::late(world, batch);
		return;
	}
	for (uint32_t e = selection.sessions + threadIdx.x; e < batch->max_sessions; e += plan_threads)
		batch->miss_count[size_t(buffer) * batch->max_sessions + e] = 0;
	for (uint32_t i = threadIdx.x; i < world.geometry.layer_words; i += plan_threads)
		batch->fetched[size_t(buffer) * world.geometry.layer_words + i] = 0;
	__syncthreads();
	start_misses(s, batch, buffer);
	if (threadIdx.x)
		return;
	if (selection.sessions < batch->count || selection.queries < batch->queries)
		dhs::count(&batch->counts.order_errors, 1);
	batch->next_buffer = (buffer + 1) % batch->buffers;
	batch->group_buffer[group] = buffer + 1;
	batch->buffer_group[buffer] = int32_t(group);
}

/* Queries that the block of entry `e` plans; 0 for padding. */
__device__ uint32_t queries_of(const dhs_batch_state *batch, uint32_t e, uint32_t most)
{
	uint32_t queries;

	if (batch->phase != DHS_BATCH_BEGUN || e >= batch->count || batch->entry[e].index < 0)
		return 0;
	queries = uint32_t(batch->entry[e].queries);
	return queries < most ? queries : most;
}

/* Positions below this are the entry's history, and never past what places are
 * reserved for. */
__device__ uint32_t history_rows(const dhs_world &world, const dhs_world_entry &entry)
{
	int32_t rows = world.tables.length[entry.index] + entry.new_rows;

	return uint32_t(rows < entry.bound ? rows : entry.bound);
}

__global__ void __launch_bounds__(plan_threads)
	plan_kernel(const __grid_constant__ dhs_world world, dhs_batch_state *batch, uint32_t group,
                const __grid_constant__ dhs_selection selection)
{
	extern __shared__ uint32_t window[];
	__shared__ plan_shared s;
	const dhs_geometry &g = world.geometry;
	uint32_t e = blockIdx.x, queries = queries_of(batch, e, selection.queries), misses = 0;
	size_t all = size_t(selection.queries) * selection.top_k;
	size_t used = size_t(queries) * selection.top_k;
	int32_t *slots = selection.slots + e * all;
	uint32_t buffer = batch->next_buffer;

	if (queries) {
		dhs_world_entry entry = batch->entry[e];
		size_t at = size_t(entry.index) * g.groups + group;
		dhs_plan_state *state = world.tables.plan + at;
		planned p = {
			world,
			batch,
			s,
			window,
			window + history_words(g),
			{ world.tables.hot_row + at * g.hot_rows, world.tables.hot_stamp + at * g.hot_rows,
			  world.tables.hot_map + at * g.max_rows,
			  world.tables.hot_slot + size_t(entry.index) * g.hot_rows, g.hot_rows,
			  state->plans + 1 },
			state,
			world.tables.page + size_t(entry.index) * g.max_pages,
			history_rows(world, entry),
			selection.rows + e * all,
			slots,
			uint32_t(used),
			batch->miss + size_t(buffer) * batch->miss_rows + entry.miss_first,
		};

		misses = plan_entry(p, uint64_t(buffer) * batch->staging_rows + entry.staging_first);
	}
	if (batch->phase == DHS_BATCH_BEGUN && threadIdx.x == 0)
		batch->miss_count[size_t(buffer) * batch->max_sessions + e] = misses;
	pad(slots + used, all - used, batch->read_pad);
	if (dhs::last_block(&batch->done, gridDim.x))
		finish(world, s, batch, group, selection);
}

size_t window_bytes(const dhs_world *world)
{
	uint32_t words = (world->geometry.max_rows + word_bits - 1) / word_bits;

	return 2 * sizeof(uint32_t) * (words < window_words ? words : window_words);
}

} // namespace

extern "C" cudaError_t dhs_cuda_plan_load()
{
	cudaError_t rc = dhs::load(plan_kernel);

	return rc != cudaSuccess
	           ? rc
	           : cudaFuncSetAttribute(plan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                                  int(2 * sizeof(uint32_t) * window_words));
}

extern "C" cudaError_t dhs_cuda_plan(const dhs_world *world, dhs_batch_state *batch, uint32_t group,
                                     const dhs_selection *selection, cudaStream_t stream)
{
	return dhs::launch(plan_kernel, dim3(selection->sessions), plan_threads, window_bytes(world),
	                   stream, *world, batch, group, *selection);
}
