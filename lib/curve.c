/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "curve.h"

/* A new sample weighs an eighth. */
static void add(uint32_t *mean, uint32_t sample)
{
	*mean += sample * (DHS_CURVE_ONE / 8) - *mean / 8;
}

/* From the oldest bin on, until an eighth of the places are together. */
static void find_edge(struct dhs_curve *c)
{
	uint64_t all = 0;

	for (uint32_t b = 0; b < DHS_AGE_BINS; b++)
		all += c->places[b];
	c->edge_places = c->edge_hits = 0;
	for (uint32_t b = DHS_AGE_BINS; b-- && c->edge_places < all / 8;) {
		c->edge_places += c->places[b];
		c->edge_hits += c->hits[b];
	}
}

void dhs_curve_add(struct dhs_curve *c, const struct dhs_sample *s)
{
	if (!s->plans)
		return;
	add(&c->misses, s->misses);
	if (!s->looked)
		return;
	c->empty = s->empty;
	for (uint32_t b = 0; b < DHS_AGE_BINS; b++) {
		add(&c->places[b], s->places[b]);
		add(&c->hits[b], s->hits[b]);
	}
	find_edge(c);
}
