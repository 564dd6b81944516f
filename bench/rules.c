/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "rules.h"
#include "util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what all rules share ------------------------------------------------------------ */

static void cache_open(struct cache *c, const struct demand *d, uint32_t places)
{
	*c = (struct cache){ .demand = d, .places = places, .draws = 1 };
	c->row = bench_zeros(places, sizeof(*c->row));
	memset(c->row, -1, places * sizeof(*c->row));
	c->stamp = bench_zeros(places, sizeof(*c->stamp));
	c->word = bench_zeros(places, sizeof(*c->word));
	c->place_of = bench_zeros(d->max_rows, sizeof(*c->place_of));
	c->left = bench_zeros(d->max_rows, sizeof(*c->left));
	c->age = bench_zeros(places, sizeof(*c->age));
	c->sorted = bench_zeros(places, sizeof(*c->sorted));
}

static void cache_close(struct cache *c)
{
	free(c->row);
	free(c->stamp);
	free(c->word);
	free(c->place_of);
	free(c->left);
	free(c->age);
	free(c->sorted);
}

/* Ages are made different by the index, so that the oldest are a set: those up to this one.
 * Places of this plan have none. */
#define NO_AGE UINT64_MAX
#define INDEX_BITS 15

static uint64_t last_age(const struct rule *rule, struct cache *c, uint32_t count, uint32_t *found)
{
	uint32_t n = 0;

	for (uint32_t place = 0; place < c->places; place++) {
		uint64_t age = 0;

		c->age[place] = NO_AGE;
		if (c->row[place] >= 0 && c->stamp[place] == c->now)
			continue;
		if (c->row[place] >= 0)
			age = 1 + rule->age(rule, c, place);
		c->age[place] = age << INDEX_BITS | place;
		c->sorted[n++] = c->age[place];
	}
	*found = count < n ? count : n;
	return *found ? bench_nth(c->sorted, n, *found) : 0;
}

static void give_way(const struct rule *rule, struct cache *c, uint32_t place,
                     struct counts *counts)
{
	if (c->row[place] < 0)
		return;
	if (rule->leave)
		rule->leave(rule, c, place);
	c->place_of[c->row[place]] = 0;
	counts->victims++;
}

static void take_place(const struct rule *rule, struct cache *c, uint32_t place,
                       const struct want *want)
{
	c->row[place] = want->row;
	c->stamp[place] = c->now;
	c->place_of[want->row] = place + 1;
	if (rule->enter)
		rule->enter(rule, c, place, want->next);
}

static uint32_t look_up(const struct rule *rule, struct cache *c, uint32_t p, struct counts *counts)
{
	const struct demand *d = c->demand;
	uint32_t misses = 0;

	for (uint64_t i = d->first[p]; i < d->first[p + 1]; i++) {
		const struct want *want = &d->want[i];
		uint32_t place = c->place_of[want->row];

		if (!place) {
			misses++;
			counts->repeats += want->entries - 1;
			continue;
		}
		c->turn = i;
		if (rule->hit)
			rule->hit(rule, c, place - 1, want->next);
		c->stamp[place - 1] = c->now;
		counts->hot_hits += want->entries;
	}
	counts->misses += misses;
	return misses;
}

/* The places up to the last age, by index, get the missing rows in ascending order. */
static void place_misses(const struct rule *rule, struct cache *c, uint32_t p, uint32_t misses,
                         struct counts *counts)
{
	const struct demand *d = c->demand;
	uint32_t places, place = 0;
	uint64_t last = last_age(rule, c, misses, &places), i = d->first[p];

	counts->staged += misses - places;
	for (; places; places--, place++, i++) {
		while (c->age[place] > last)
			place++;
		while (c->place_of[d->want[d->first[p] + d->by_row[i]].row])
			i++;
		c->turn = d->first[p] + d->by_row[i];
		give_way(rule, c, place, counts);
		take_place(rule, c, place, &d->want[c->turn]);
	}
	if (rule->chosen)
		rule->chosen(rule, c, last >> INDEX_BITS);
}

void rule_run(const struct rule *rule, const struct demand *d, uint32_t places, uint32_t from,
              struct counts *counts)
{
	struct cache c;

	cache_open(&c, d, places);
	*counts = (struct counts){ 0 };
	for (uint32_t p = 0; p < d->trace->plans; p++) {
		uint32_t misses;

		if (p == from)
			*counts = (struct counts){ 0 };
		c.now++;
		c.length = d->trace->plan[p].length;
		counts->page_hits += d->page_hits[p];
		misses = look_up(rule, &c, p, counts);
		if (misses)
			place_misses(rule, &c, p, misses, counts);
	}
	cache_close(&c);
}

/* ---- by time ------------------------------------------------------------------------- */

static uint64_t stamp_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	(void)rule;
	return c->stamp[place];
}

static uint64_t word_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	(void)rule;
	return c->word[place];
}

static void note_turn(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule, (void)next;
	c->word[place] = c->turn;
}

static void note_plan(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule, (void)next;
	c->word[place] = c->now;
}

/* ---- by chance ----------------------------------------------------------------------- */

/* Any place, or any that the last `option` plans did not read. */
static uint64_t random_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	if (c->now - c->stamp[place] <= rule->option)
		return (uint64_t)1 << 40 | c->stamp[place];
	return bench_draw(&c->draws) >> 32;
}

/* ---- clock --------------------------------------------------------------------------- */

static void set_bit(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule, (void)next;
	c->word[place] = 1;
}

static uint32_t from_hand(const struct cache *c, uint32_t place)
{
	return (place + c->places - c->hand) % c->places;
}

/* The first round takes places without the bit and clears the others'; the second takes
 * these. */
static uint64_t clock_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	(void)rule;
	return c->word[place] * c->places + from_hand(c, place);
}

static void move_hand(const struct rule *rule, struct cache *c, uint64_t last)
{
	(void)rule;
	if (!last--) /* empty places only */
		return;
	for (uint32_t place = 0; place < c->places; place++)
		if (from_hand(c, place) < last && c->stamp[place] != c->now)
			c->word[place] = 0;
	c->hand = (uint32_t)((c->hand + last + 1) % c->places);
}

/* ---- by use -------------------------------------------------------------------------- */

/* The word: bit i set if the plan i before the stamp read the row. */
static void add_use(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	uint32_t gap = c->now - c->stamp[place];

	(void)rule, (void)next;
	c->word[place] = (gap < 64 ? c->word[place] << gap : 0) | 1;
}

/* How many of the last `plans` plans read the row. */
static uint32_t uses(const struct cache *c, uint32_t place, uint32_t plans)
{
	uint32_t gap = c->now - c->stamp[place];
	uint64_t read = gap < 64 ? c->word[place] << gap : 0;

	return (uint32_t)__builtin_popcountll(read & (((uint64_t)2 << plans) - 2));
}

static uint64_t uses_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	return (uint64_t)uses(c, place, rule->option) << 32 | c->stamp[place];
}

static uint64_t twice_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	return (uint64_t)(uses(c, place, rule->option) >= 2) << 32 | c->stamp[place];
}

/* The word: hits since the row came, at most 3; each counts as `option` plans. */
static void add_hit(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule, (void)next;
	c->word[place] += c->word[place] < 3;
}

static void no_hit(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule, (void)next;
	c->word[place] = 0;
}

static uint64_t bonus_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	return c->stamp[place] + c->word[place] * rule->option;
}

/* ---- by the last two uses ------------------------------------------------------------ */

/* The word: the stamp before the stamp; 0: none that is known. */
static void keep_stamp(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule, (void)next;
	c->word[place] = c->stamp[place];
}

static void leave_stamp(const struct rule *rule, struct cache *c, uint32_t place)
{
	(void)rule;
	c->left[c->row[place]] = c->stamp[place];
}

static void find_left(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule, (void)next;
	c->word[place] = c->left[c->row[place]];
}

static uint64_t second_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	(void)rule;
	return c->word[place] << 24 | c->stamp[place];
}

/* As LIRS ranks: by the longer of the gap between the last two uses and that since. */
static uint64_t gap_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	uint32_t since = c->now - c->stamp[place];
	uint32_t gap = c->word[place] ? c->stamp[place] - (uint32_t)c->word[place] : 1 << 22;

	(void)rule;
	return (uint64_t)((1 << 23) - (gap > since ? gap : since)) << 24 | c->stamp[place];
}

/* ---- by uses that fade --------------------------------------------------------------- */

/*
 * LRFU: a use counts 2^-(its age / option).  All fade alike, so the order of places stays
 * while they are not read, and what is kept is log2 of the sum of 2^(plan / option), in
 * units of 1/256: it changes with a use only.
 */
#define FADE_UNIT 256

static uint64_t fade_now(const struct rule *rule, const struct cache *c)
{
	return (uint64_t)c->now * FADE_UNIT / rule->option;
}

/* log2(2^a + 2^b) in these units. */
static uint64_t log_add(uint64_t a, uint64_t b)
{
	static uint16_t more[16 * FADE_UNIT];
	uint64_t high = a > b ? a : b, apart = high - (a > b ? b : a);

	if (!more[0])
		for (uint32_t i = 0; i < 16 * FADE_UNIT; i++)
			more[i] = (uint16_t)lround(FADE_UNIT * log2(1 + exp2(-(double)i / FADE_UNIT)));
	return high + (apart < 16 * FADE_UNIT ? more[apart] : 0);
}

static void fade_hit(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)next;
	c->word[place] = log_add(c->word[place], fade_now(rule, c));
}

static void fade_enter(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)next;
	c->word[place] = fade_now(rule, c);
}

static void fade_leave(const struct rule *rule, struct cache *c, uint32_t place)
{
	(void)rule;
	c->left[c->row[place]] = c->word[place];
}

static void fade_again(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	uint64_t left = c->left[c->row[place]];

	(void)next;
	c->word[place] = left ? log_add(left, fade_now(rule, c)) : fade_now(rule, c);
}

/* ---- by position --------------------------------------------------------------------- */

/* Blocks of `option` rows: the last plan that wanted a row of one is in left[]. */
static void note_block(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)next;
	c->left[(uint32_t)c->row[place] / rule->option] = c->now;
}

static uint64_t block_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	return c->stamp[place] + c->left[(uint32_t)c->row[place] / rule->option];
}

/* The newest rows, as many as a 1/option of the places, give way last. */
static uint64_t newest_age(const struct rule *rule, struct cache *c, uint32_t place)
{
	uint64_t newest = (uint32_t)c->row[place] + c->places / rule->option >= c->length;

	return newest << 32 | c->stamp[place];
}

/* ---- the bound ----------------------------------------------------------------------- */

static void note_next(const struct rule *rule, struct cache *c, uint32_t place, uint32_t next)
{
	(void)rule;
	c->word[place] = UINT32_MAX - next;
}

#define BY(name, option, hit, enter, leave, age)                                                   \
	{                                                                                              \
		name, option, hit, enter, leave, age, NULL                                                 \
	}

const struct rule rules[] = {
	BY("step stamps", 0, NULL, NULL, NULL, stamp_age),
	BY("exact LRU", 0, note_turn, note_turn, NULL, word_age),
	BY("FIFO", 0, NULL, note_plan, NULL, word_age),
	BY("random", 0, NULL, NULL, NULL, random_age),
	BY("random of old", 4, NULL, NULL, NULL, random_age),
	{ "CLOCK", 0, set_bit, set_bit, NULL, clock_age, move_hand },
	BY("2 uses in 8", 8, add_use, set_bit, NULL, twice_age),
	BY("uses in 8", 8, add_use, set_bit, NULL, uses_age),
	BY("uses in 32", 32, add_use, set_bit, NULL, uses_age),
	BY("bonus 1", 1, add_hit, no_hit, NULL, bonus_age),
	BY("bonus 4", 4, add_hit, no_hit, NULL, bonus_age),
	BY("LRU-2", 0, keep_stamp, no_hit, NULL, second_age),
	BY("LRU-2, history", 0, keep_stamp, find_left, leave_stamp, second_age),
	BY("LIRS, history", 0, keep_stamp, find_left, leave_stamp, gap_age),
	BY("LRFU 3", 3, fade_hit, fade_enter, NULL, word_age),
	BY("LRFU 8", 8, fade_hit, fade_enter, NULL, word_age),
	BY("LRFU 64", 64, fade_hit, fade_enter, NULL, word_age),
	BY("LRFU 4, history", 4, fade_hit, fade_again, fade_leave, word_age),
	BY("near 8", 8, note_block, note_block, NULL, block_age),
	BY("newest quarter", 4, NULL, NULL, NULL, newest_age),
	BY("optimum", 0, note_next, note_next, NULL, word_age),
	{ 0 },
};
