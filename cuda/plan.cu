/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * From selected rows to slots, a block a session.  Rows that no page holds are a bitmap in
 * shared memory, of a window of the history at a time: a prefix count over its words gives
 * each such row its rank, in ascending order and however often it was selected, and by rank
 * lies what is known of it.  The places of the hot cache look up their rows there, not the
 * rows their places: that is one coalesced read, and needs no table of rows.  Ranks that no
 * place has answered are the misses, in ascending order.
 */
#include "victim.cuh"

#include <cub/warp/warp_reduce.cuh>

namespace
{

using dhs::warp_size;

constexpr int32_t unplaced = INT32_MIN;
constexpr uint32_t none = UINT32_MAX;
constexpr uint32_t word_bits = 32;
/* Entries of the selection, or ranks, that a thread handles at once, so that their loads
 * overlap. */
constexpr uint32_t ahead = 4;
/* With the rest, below what every device since compute capability 8.0 lets a block have. */
constexpr uint32_t most_dynamic = 92 * 1024;
constexpr uint32_t most_ranks = 16384;
/* The thread that keeps the batch's books, so that thread 0, which has others, need not. */
constexpr uint32_t books = warp_size;

/* Division by a number that all threads share, of numbers below 2^31, in two instructions. */
struct divisor {
	uint32_t by, shift;
	uint64_t factor;

	explicit divisor(uint32_t by) : by(by), shift(31)
	{
		while (uint64_t(1) << (shift - 31) < by)
			shift++;
		factor = ((uint64_t(1) << shift) + by - 1) / by;
	}

	__device__ uint32_t quotient(uint32_t n) const
	{
		return uint32_t(n * factor >> shift);
	}

	__device__ uint32_t rest(uint32_t n) const
	{
		return n - quotient(n) * by;
	}
};

/* What of shared memory depends on the context and the selection. */
struct sizes {
	uint32_t ranks;  /* most different rows of a window */
	uint32_t places; /* most that misses take */
	uint32_t words;  /* of the window */

	__host__ __device__ sizes(const dhs_geometry &g, uint32_t entries)
	{
		uint32_t history = (g.max_rows + word_bits - 1) / word_bits, left;

		places = entries < g.most_hot_rows ? entries : g.most_hot_rows;
		left = most_dynamic - places * sizeof(uint16_t);
		/* Of more entries than there is room for, a window has no more rows than that. */
		ranks = left / (sizeof(int32_t) * word_bits + word_bytes) * word_bits;
		ranks = ranks < most_ranks ? ranks : most_ranks;
		words = ranks / word_bits;
		if (entries <= ranks) {
			ranks = entries;
			words = (left - ranks * sizeof(int32_t)) / word_bytes;
		}
		words = history < words ? history : words;
	}

	__host__ __device__ size_t bytes() const
	{
		return ranks * sizeof(int32_t) + words * word_bytes + places * sizeof(uint16_t);
	}

  private:
	static constexpr uint32_t word_bytes = sizeof(uint32_t) + sizeof(uint16_t);
};

/* A thread's entries that it handles together. */
struct some_rows {
	uint32_t row[ahead];
};

/* One entry of the plan, as all threads of its block see it. */
struct planned {
	const dhs_world &world;
	const divisor &page_rows;
	dhs_batch_state *batch;
	dhs::hot_cache hot;
	dhs_sample *sample; /* nullptr: it is not measured */
	dhs_plan_state *state;
	const int32_t *page, *host_page;
	uint32_t rows; /* positions below this are the history */
	uint32_t group, layers;
	int32_t *slots;
	uint32_t entries; /* of the selection */
	uint32_t staging_first;
	/* in shared memory */
	uint32_t *bits;     /* [words] rows of the window that no page holds */
	int32_t *answer;    /* [ranks] a slot; ~slot of a miss; before it has one, unplaced + row */
	uint16_t *place_of; /* [places] that a miss takes, by its rank among the misses */
	uint16_t *before;   /* [words] rows of the window below the word */
	uint32_t words;

	__device__ uint32_t window() const
	{
		return words * word_bits;
	}

	__device__ bool in_window(uint32_t row, uint32_t from) const
	{
		return row >= from && row - from < window();
	}

	__device__ bool wanted(uint32_t at) const
	{
		return bits[at / word_bits] >> at % word_bits & 1;
	}

	/* Of the row `at` rows into the window, which is wanted. */
	__device__ uint32_t rank(uint32_t at) const
	{
		return before[at / word_bits] + __popc(bits[at / word_bits] & ((1u << at % word_bits) - 1));
	}

	__device__ void want(uint32_t at)
	{
		atomicOr(&bits[at / word_bits], 1u << at % word_bits);
	}
};

__device__ int32_t slot_of(const planned &p, int32_t page, uint32_t row)
{
	return page * int32_t(p.page_rows.by) + int32_t(p.page_rows.rest(row));
}

/* A pool has fewer than 2^31 rows, staging included. */
__device__ int32_t staging_slot(const planned &p, uint32_t buffer, uint32_t i)
{
	uint32_t row = buffer * p.batch->staging_rows + p.staging_first + i;

	return slot_of(p, p.batch->staging_page[p.page_rows.quotient(row)], row);
}

template <unsigned threads, unsigned items> class planner
{
	using block_scan = dhs::plan_scan<threads>;
	using warp_sum = cub::WarpReduce<uint32_t>;

  public:
	using hot_places = dhs::places<threads, items>;

	struct shared {
		typename hot_places::shared places;
		typename block_scan::TempStorage scan;
		typename warp_sum::TempStorage sum[threads / warp_size];
		uint32_t page_hits, bad, hot_rows, missing;
		uint32_t empty; /* places, if it is measured */
		uint32_t age_places[DHS_AGE_BINS], age_hits[DHS_AGE_BINS];
		uint32_t turn;  /* of the batch's plans */
		uint32_t first; /* where the entry's misses lie on the list */
		uint32_t rank;  /* behind the misses of a window */
	};

	__device__ planner(shared &s, planned &p) : s(s), p(p)
	{
	}

	__device__ static some_rows read(const int32_t *selected, uint32_t from, uint32_t entries)
	{
		some_rows r;

#pragma unroll
		for (uint32_t j = 0; j < ahead; j++) {
			uint32_t i = from + j * threads + threadIdx.x;

			r.row[j] = i < entries ? uint32_t(selected[i]) : none;
		}
		return r;
	}

	/* Returns the misses of the entry; `first` are the first of the selected rows. */
	__device__ uint32_t plan(const int32_t *selected, const some_rows &first)
	{
		uint32_t misses = 0, elsewhere;

		look_up(selected, first);
		undo_unfetched();
		elsewhere = p.entries - s.page_hits - s.bad;
		if (elsewhere)
			misses = place_rows();
		if (threadIdx.x == 0) {
			p.state->plans = p.hot.now;
			p.state->missed = misses != 0;
			tell(elsewhere, misses);
		}
		if (p.sample)
			tell_sample(elsewhere != 0, misses);
		return misses;
	}

  private:
	shared &s;
	planned &p;
	some_rows kept; /* of a selection that a block handles at once: rows that no page holds */

	/* Rows of a plan whose misses never came are not to be found. */
	__device__ void undo_unfetched()
	{
		if (!p.state->missed)
			return;
#pragma unroll 1
		for (uint32_t i = threadIdx.x; i < p.hot.rows; i += threads)
			if (p.hot.stamp[i] == p.hot.now - 1)
				p.hot.row[i] = 0;
		__syncthreads();
	}

	/* Adds up what all threads have, to *to: one shared atomic a warp. */
	__device__ void add(uint32_t *to, uint32_t n)
	{
		n = warp_sum(s.sum[threadIdx.x / warp_size]).Sum(n);
		if (n && threadIdx.x % warp_size == 0)
			atomicAdd(to, n);
	}

	/* First pass: bad positions and page hits get their slots, other rows are wanted.  Pages are
	 * read before it is known how long the history is: that takes as long. */
	__device__ void look_up(const int32_t *selected, some_rows r)
	{
		uint32_t page_hits = 0, bad = 0;

#pragma unroll 1
		for (uint32_t from = 0; from < p.entries; from += ahead * threads) {
			if (from)
				r = read(selected, from, p.entries);
			look_up_some(r, from, &page_hits, &bad);
		}
		kept = r;
		add(&s.page_hits, page_hits);
		add(&s.bad, bad);
		__syncthreads();
	}

	__device__ void look_up_some(some_rows &r, uint32_t from, uint32_t *page_hits, uint32_t *bad)
	{
		int32_t page[ahead];

#pragma unroll
		for (uint32_t j = 0; j < ahead; j++)
			page[j] =
				r.row[j] < p.world.geometry.max_rows ? p.page[p.page_rows.quotient(r.row[j])] : -1;
#pragma unroll
		for (uint32_t j = 0; j < ahead; j++) {
			uint32_t i = from + j * threads + threadIdx.x, row = r.row[j];

			r.row[j] = none;
			if (i >= p.entries)
				continue;
			if (row >= p.rows) {
				p.slots[i] = p.batch->read_pad;
				++*bad;
			} else if (page[j] >= 0) {
				p.slots[i] = slot_of(p, page[j], row);
				++*page_hits;
			} else {
				r.row[j] = row;
				if (!at_once())
					p.slots[i] = unplaced + int32_t(row);
				if (row < p.window())
					p.want(row);
			}
		}
	}

	__device__ bool at_once() const
	{
		return p.entries <= ahead * threads;
	}

	/* The entries from `from` on that no page holds, others are none. */
	__device__ some_rows wanted_rows(uint32_t from) const
	{
		some_rows r;

		if (at_once())
			return kept;
#pragma unroll
		for (uint32_t j = 0; j < ahead; j++) {
			uint32_t i = from + j * threads + threadIdx.x;
			int32_t slot = i < p.entries ? p.slots[i] : 0;

			r.row[j] = slot < unplaced / 2 ? uint32_t(slot) - uint32_t(unplaced) : none;
		}
		return r;
	}

	/* Calls fn(entry, row) for all entries that are wanted in the window. */
	template <typename Fn> __device__ void for_wanted(uint32_t from, Fn fn) const
	{
#pragma unroll 1
		for (uint32_t first = 0; first < p.entries; first += ahead * threads) {
			some_rows r = wanted_rows(first);

#pragma unroll
			for (uint32_t j = 0; j < ahead; j++)
				if (r.row[j] != none && p.in_window(r.row[j], from))
					fn(first + j * threads + threadIdx.x, r.row[j]);
		}
	}

	/* Bits of the wanted rows of the window that begins at `from`. */
	__device__ void mark_window(uint32_t from)
	{
		__syncthreads();
#pragma unroll 1
		for (uint32_t w = threadIdx.x; w < p.words; w += threads)
			p.bits[w] = 0;
		__syncthreads();
		for_wanted(from, [&](uint32_t, uint32_t row) { p.want(row - from); });
		__syncthreads();
	}

	/* Counts below each word; returns how many rows are wanted. */
	__device__ uint32_t rank_window()
	{
		uint32_t each = (p.words + threads - 1) / threads;
		uint32_t from = threadIdx.x * each, to = from + each < p.words ? from + each : p.words;
		uint32_t n = 0, below, all;

		for (uint32_t w = from; w < to; w++)
			n += __popc(p.bits[w]);
		block_scan(s.scan).ExclusiveSum(n, below, all);
		for (uint32_t w = from; w < to; w++) {
			p.before[w] = uint16_t(below);
			below += __popc(p.bits[w]);
		}
		__syncthreads();
		return all;
	}

	/* Calls fn(row, age) for all places, of an empty one with row 0, else row + 1.  Reads them
	 * once more, as few plans are measured and registers are rare. */
	template <typename Fn> __device__ void for_places(Fn fn) const
	{
#pragma unroll 1
		for (uint32_t i = threadIdx.x; i < p.hot.rows; i += threads)
			fn(uint32_t(p.hot.row[i]), p.hot.now - p.hot.stamp[i]);
	}

	/* Both before any place is hit. */
	__device__ void measure_places()
	{
		for_places([&](uint32_t row, uint32_t age) {
			atomicAdd(row ? &s.age_places[dhs_age_bin(age)] : &s.empty, 1);
		});
	}

	__device__ void measure_hits(uint32_t from)
	{
		for_places([&](uint32_t row, uint32_t age) {
			if (row && p.in_window(row - 1, from) && p.wanted(row - 1 - from))
				atomicAdd(&s.age_hits[dhs_age_bin(age)], 1);
		});
	}

	/* Answers the rows of the window that the hot cache holds; returns how many rows are
	 * wanted, and adds to *hot_rows. */
	__device__ uint32_t find_window(hot_places &hot, uint32_t from, bool measured,
	                                uint32_t *hot_rows)
	{
		uint32_t wanted = rank_window();

		for_wanted(from, [&](uint32_t, uint32_t row) {
			p.answer[p.rank(row - from)] = unplaced + int32_t(row);
		});
		if (measured)
			measure_hits(from);
		__syncthreads();
		hot.find([&](uint32_t row) { return p.in_window(row, from) && p.wanted(row - from); },
		         [&](uint32_t row, int32_t slot) {
					 p.answer[p.rank(row - from)] = slot;
					 ++*hot_rows;
				 });
		return wanted;
	}

	/* Slots for all rows that no page holds; returns the misses.  Twice over all windows: the
	 * places that misses take are chosen when all that the hot cache holds is found. */
	__device__ uint32_t place_rows()
	{
		hot_places hot(s.places, p.hot);
		uint32_t wanted = 0, all_wanted = 0, hot_rows = 0, missing = 0;
		uint32_t misses = 0, taken = 0, rank = 0;
		bool several = p.rows > p.window();

		if (p.sample)
			measure_places();
#pragma unroll 1
		for (int pass = 0; pass < 2; pass++) {
#pragma unroll 1
			for (uint32_t from = 0; from < p.rows; from += p.window()) {
				if (several && (pass || from))
					mark_window(from);
				if (several || !pass)
					wanted = find_window(hot, from, p.sample && !pass, &hot_rows);
				all_wanted += wanted;
				if (!pass)
					continue;
				__syncthreads();
				if (misses)
					rank = place_window(wanted, rank, taken);
				missing += answer_window(from);
			}
			if (pass)
				break;
			add(&s.hot_rows, hot_rows);
			__syncthreads();
			misses = all_wanted - s.hot_rows;
			if (misses)
				taken = take_places(hot, misses);
		}
		add(&s.missing, missing);
		__syncthreads();
		return misses;
	}

	/* Room on the list is asked for as soon as it is known how much, and looked at when it
	 * is needed. */
	__device__ uint32_t take_places(hot_places &hot, uint32_t misses)
	{
		uint32_t first, taken;

		if (threadIdx.x == 0)
			first = atomicAdd(&p.batch->turn[s.turn].misses, misses);
		taken = hot.choose(misses, p.place_of);
		if (threadIdx.x == 0) {
			s.first = first;
			s.places.taken = taken;
		}
		__syncthreads();
		return taken;
	}

	__device__ bool missed(uint32_t u, uint32_t wanted) const
	{
		return u < wanted && p.answer[u] < unplaced / 2;
	}

	/* Places for the misses of the window, whose first is the rank-th of all; returns the
	 * rank behind them.  A warp has consecutive ranks of wanted rows: lane l l, l + 32, ... */
	__device__ uint32_t place_window(uint32_t wanted, uint32_t rank, uint32_t taken)
	{
		uint32_t each = (wanted + threads - 1) / threads, n = 0;
		uint32_t first = threadIdx.x / warp_size * each * warp_size + threadIdx.x % warp_size;

#pragma unroll 1
		for (uint32_t i = 0; i < each; i++)
			n += dhs::lanes_with(missed(first + i * warp_size, wanted));
		rank += dhs::before_warp<threads>(s.scan, n);
#pragma unroll 1
		for (uint32_t i = 0; i < each; i += ahead)
			rank = place_some(first + i * warp_size, each - i, wanted, rank, taken);
		if (threadIdx.x == threads - 1)
			s.rank = rank;
		__syncthreads();
		return s.rank;
	}

	/* At most `ahead` of them. */
	__device__ uint32_t place_some(uint32_t first, uint32_t most, uint32_t wanted, uint32_t rank,
	                               uint32_t taken)
	{
		const dhs_geometry &g = p.world.geometry;
		uint32_t buffer = s.turn % p.batch->buffers, row[ahead], place[ahead], miss[ahead];
		int32_t host_page[ahead], slot[ahead];
		dhs_miss *list = p.batch->miss + size_t(buffer) * p.batch->miss_rows + s.first;

#pragma unroll
		for (uint32_t j = 0; j < ahead; j++) {
			uint32_t u = first + j * warp_size;
			bool here = j < most && missed(u, wanted);

			row[j] = here ? uint32_t(p.answer[u]) - uint32_t(unplaced) : none;
			miss[j] = rank + dhs::lanes_below_with(here);
			rank += dhs::lanes_with(here);
		}
#pragma unroll
		for (uint32_t j = 0; j < ahead; j++)
			if (row[j] != none) {
				host_page[j] = p.host_page[p.page_rows.quotient(row[j])];
				place[j] = miss[j] < taken ? p.place_of[miss[j]] : none;
				slot[j] = place[j] != none ? p.hot.slot[place[j]]
				                           : staging_slot(p, buffer, miss[j] - taken);
			}
#pragma unroll
		for (uint32_t j = 0; j < ahead; j++)
			if (row[j] != none) {
				if (place[j] != none) {
					p.hot.row[place[j]] = int32_t(row[j]) + 1;
					p.hot.stamp[place[j]] = p.hot.now;
				}
				p.answer[first + j * warp_size] = ~slot[j];
				list[miss[j]] = { dhs::record_address(g, p.group, p.layers, host_page[j],
					                                  p.page_rows.rest(row[j])),
					              int32_t(p.page_rows.quotient(uint32_t(slot[j]))),
					              p.page_rows.rest(uint32_t(slot[j])) };
			}
		return rank;
	}

	/* Returns how many entries were misses. */
	__device__ uint32_t answer_window(uint32_t from)
	{
		uint32_t missing = 0;

		for_wanted(from, [&](uint32_t entry, uint32_t row) {
			int32_t slot = p.answer[p.rank(row - from)];

			missing += slot < 0;
			p.slots[entry] = slot < 0 ? ~slot : slot;
		});
		return missing;
	}

	/* What the plan saw of the hot cache; all that it adds to is complete. */
	__device__ void tell_sample(bool looked, uint32_t misses)
	{
		if (threadIdx.x == 0) {
			p.sample->plans = 1;
			p.sample->looked = looked;
			p.sample->misses = misses;
			p.sample->empty = s.empty;
		}
		for (uint32_t b = threadIdx.x; b < DHS_AGE_BINS; b += threads) {
			p.sample->places[b] = s.age_places[b];
			p.sample->hits[b] = s.age_hits[b];
		}
	}

	/* Thread 0. */
	__device__ void tell(uint32_t elsewhere, uint32_t misses)
	{
		dhs_counts *c = &p.batch->counts;
		uint32_t taken = s.places.taken, empty = s.places.empty;

		dhs::count(&c->plans, 1);
		dhs::count(&c->page_hits, s.page_hits);
		dhs::count(&c->bad_rows, s.bad);
		dhs::count(&c->hot_hits, elsewhere - s.missing);
		if (!misses)
			return;
		dhs::count(&c->misses, misses);
		dhs::count(&c->repeats, s.missing - misses);
		dhs::count(&c->victims, taken > empty ? taken - empty : 0);
		dhs::count(&c->staged, misses - taken);
	}
};

template <unsigned threads> __device__ void pad(int32_t *slots, uint64_t n, int32_t value)
{
#pragma unroll 1
	for (uint64_t i = threadIdx.x; i < n; i += threads)
		slots[i] = value;
}

/* Where apply puts what batch->entry points to: read from here, it waits for one load less. */
__device__ const dhs_world_entry &entry_of(const dhs_batch_state *batch, uint32_t e)
{
	return reinterpret_cast<const dhs_world_entry *>(batch + 1)[e];
}

/* Queries that the block of entry `e` plans; 0 for padding. */
__device__ uint32_t queries_of(const dhs_batch_state *batch, uint32_t e,
                               const dhs_world_entry &entry, uint32_t most)
{
	uint32_t queries = uint32_t(entry.queries);

	if (batch->phase != DHS_BATCH_BEGUN || e >= batch->count || entry.index < 0)
		return 0;
	return queries < most ? queries : most;
}

/* Positions below this are the entry's history, and never past what places are
 * reserved for. */
__device__ uint32_t history_rows(const dhs_world &world, const dhs_world_entry &entry)
{
	int32_t rows = world.tables.length[entry.index] + entry.new_rows;

	return uint32_t(rows < entry.bound ? rows : entry.bound);
}

/* What the buffer still holds of an older plan: the blocks share the work. */
template <unsigned threads>
__device__ void empty_buffer(const dhs_world &world, dhs_batch_state *batch, uint32_t buffer)
{
	uint32_t *count = batch->miss_count + size_t(buffer) * batch->max_sessions;
	uint32_t *fetched = batch->fetched + size_t(buffer) * world.geometry.layer_words;

#pragma unroll 1
	for (uint32_t e = blockIdx.x + (1 + threadIdx.x) * gridDim.x; e < batch->max_sessions;
	     e += threads * gridDim.x)
		count[e] = 0;
	if (blockIdx.x == 0)
#pragma unroll 1
		for (uint32_t i = threadIdx.x; i < world.geometry.layer_words; i += threads)
			fetched[i] = 0;
}

/* The last block to come, which all others have told their turn: the buffer is the group's
 * until it comes round again. */
__device__ void take_turn(dhs_batch_state *batch, uint32_t turn, uint32_t group,
                          const dhs_selection &selection)
{
	uint32_t next = turn + 1 < 2 * batch->buffers ? turn + 1 : 0;

	batch->done = 0;
	batch->next_turn = next;
	batch->turn[next].misses = 0;
	batch->turn[turn].group = int32_t(group);
	if (selection.sessions < batch->count || selection.queries < batch->queries)
		dhs::count(&batch->counts.order_errors, 1);
}

template <unsigned threads, unsigned items>
__global__ void __launch_bounds__(threads)
	plan_kernel(const __grid_constant__ dhs_world world, dhs_batch_state *batch, uint32_t group,
                const __grid_constant__ dhs_selection selection,
                const __grid_constant__ divisor page_rows)
{
	using block_planner = planner<threads, items>;
	DHS_DYNAMIC_SHARED(int32_t, dynamic);
	__shared__ typename block_planner::shared s;
	const dhs_geometry &g = world.geometry;
	uint32_t e = blockIdx.x, all = selection.queries * selection.top_k, misses = 0, queries, used;
	uint32_t came = 0;
	const sizes size(g, all);
	int32_t *answer = dynamic, *slots = selection.slots + size_t(e) * all;
	const int32_t *selected = selection.rows + size_t(e) * all;
	uint32_t *bits = reinterpret_cast<uint32_t *>(answer + size.ranks);
	uint16_t *place_of = reinterpret_cast<uint16_t *>(bits + size.words);
	dhs_world_entry entry;
	some_rows first;

#pragma unroll 1
	for (uint32_t w = threadIdx.x; w < size.words; w += threads)
		bits[w] = 0;
	block_planner::hot_places::clear_bins(s.places);
	if (threadIdx.x == 0)
		s.page_hits = s.bad = s.hot_rows = s.missing = s.empty = 0;
	if (threadIdx.x < DHS_AGE_BINS)
		s.age_places[threadIdx.x] = s.age_hits[threadIdx.x] = 0;
	dhs::wait_for_previous();
	dhs::let_next_start();
	first = block_planner::read(selected, 0, all);
	entry = entry_of(batch, e);
	queries = queries_of(batch, e, entry, selection.queries);
	used = queries * selection.top_k;
	/* The turn is known here before the last block to come ends it. */
	if (threadIdx.x == books && batch->phase == DHS_BATCH_BEGUN) {
		s.turn = *static_cast<volatile uint32_t *>(&batch->next_turn);
		came = atomicAdd(&batch->done, 1);
	}
	__syncthreads();
	if (queries) {
		size_t at = size_t(entry.index) * g.groups + group;
		size_t pages = size_t(entry.index) * g.max_pages;
		dhs_plan_state *state = world.tables.plan + at;
		planned p = {
			world,
			page_rows,
			batch,
			{ world.tables.hot_row + at * g.most_hot_rows,
			  world.tables.hot_stamp + at * g.most_hot_rows,
			  world.tables.hot_slot + size_t(entry.index) * g.most_hot_rows,
			  uint32_t(world.tables.hot_places[entry.index]), state->plans + 1 },
			group == batch->measured ? &world.result[batch->in_flight].sample[e] : nullptr,
			state,
			world.tables.page + pages,
			world.tables.host_page + pages,
			history_rows(world, entry),
			group,
			dhs::group_layers(g, group),
			slots,
			used,
			uint32_t(entry.staging_first),
			bits,
			answer,
			place_of,
			place_of + size.places,
			size.words,
		};

		misses = block_planner(s, p).plan(selected, first);
	}
	pad<threads>(slots + used, all - used, batch->read_pad);
	if (batch->phase != DHS_BATCH_BEGUN) {
		if (batch->phase == DHS_BATCH_COMMITTED && e == 0 && threadIdx.x == 0)
			dhs::late(world, batch);
		return;
	}
	empty_buffer<threads>(world, batch, s.turn % batch->buffers);
	if (threadIdx.x == 0)
		batch->miss_count[size_t(s.turn % batch->buffers) * batch->max_sessions + e] = misses;
	if (threadIdx.x == books && came == gridDim.x - 1)
		take_turn(batch, s.turn, group, selection);
}

/* Runs fn with the kernel for a hot cache of this size. */
template <typename Fn> cudaError_t with_kernel(uint32_t hot_rows, uint32_t entries, Fn fn)
{
	if (hot_rows <= 4096 && entries <= 4096)
		return fn(plan_kernel<512, 8>, 512);
	if (hot_rows <= 8192)
		return fn(plan_kernel<1024, 8>, 1024);
	return fn(plan_kernel<1024, 32>, 1024);
}

template <typename Kernel> cudaError_t load(Kernel kernel)
{
	cudaError_t rc = dhs::load(kernel);

	return rc != cudaSuccess
	           ? rc
	           : cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                                  int(most_dynamic));
}

} // namespace

extern "C" cudaError_t dhs_cuda_plan_load()
{
	cudaError_t rc = load(plan_kernel<512, 8>);

	if (rc == cudaSuccess)
		rc = load(plan_kernel<1024, 8>);
	return rc != cudaSuccess ? rc : load(plan_kernel<1024, 32>);
}

extern "C" cudaError_t dhs_cuda_plan(const dhs_world *world, dhs_batch_state *batch, uint32_t group,
                                     const dhs_selection *selection, cudaStream_t stream)
{
	uint32_t entries = selection->queries * selection->top_k;

	return with_kernel(world->geometry.most_hot_rows, entries, [&](auto kernel, unsigned threads) {
		return dhs::launch(true, kernel, dim3(selection->sessions), threads,
		                   sizes(world->geometry, entries).bytes(), stream, *world, batch, group,
		                   *selection, divisor(world->geometry.page_rows));
	});
}
