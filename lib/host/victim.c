/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Where a miss gets its victim: the places of the hot cache that give way. */
#include "kernels.h"

#include <string.h>

#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)
/* A stamp, and above it whether the place is filled. */
#define AGE_BITS 40

/* Smaller ages give way first: empty places, then the oldest stamps. */
static uint64_t age_of(const struct dhs_hot *hot, uint32_t place)
{
	return hot->row[place] ? (uint64_t)1 << 32 | hot->stamp[place] : 0;
}

/* The age of the `count`-th place to give way, found digit by digit from the
 * highest; *ties is how many places of just that age do. */
static uint64_t last_age(const uint64_t *age, uint32_t n, uint32_t count, uint32_t *ties)
{
	uint32_t bin[DIGITS], digit;
	uint64_t known = 0, differ = 0;

	for (uint32_t i = 1; i < n; i++)
		differ |= age[i] ^ age[0];
	for (int shift = AGE_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
		/* A digit that all share, as most are, chooses nothing. */
		if (!(differ >> shift & (DIGITS - 1))) {
			known = known << DIGIT_BITS | (age[0] >> shift & (DIGITS - 1));
			continue;
		}
		memset(bin, 0, sizeof(bin));
		for (uint32_t i = 0; i < n; i++)
			if (age[i] >> shift >> DIGIT_BITS == known)
				bin[age[i] >> shift & (DIGITS - 1)]++;
		for (digit = 0; bin[digit] < count; digit++)
			count -= bin[digit];
		known = known << DIGIT_BITS | digit;
	}
	*ties = count;
	return known;
}

uint32_t dhs_host_victims(const struct dhs_hot *hot, uint32_t count, struct dhs_scratch *scratch)
{
	uint32_t n = 0, chosen = 0, ties = 0;
	uint64_t last;

	/* Ages of the places that may give way, and behind them which those are. */
	for (uint32_t place = 0; place < hot->places; place++)
		if (!hot->row[place] || hot->stamp[place] != hot->plan->plans) {
			scratch->age[n] = age_of(hot, place);
			scratch->place[n++] = place;
		}
	if (n <= count)
		return n;
	last = last_age(scratch->age, n, count, &ties);
	for (uint32_t i = 0; i < n; i++)
		if (scratch->age[i] < last || (scratch->age[i] == last && ties && ties--))
			scratch->place[chosen++] = scratch->place[i];
	return chosen;
}
