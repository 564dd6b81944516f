/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * What the hot cache of a session misses, by its size, as it is measured while the session
 * runs: the samples of its steps, each weighing 7/8 of the next.  docs/residency.md has the
 * arithmetic, which is of whole numbers, so that all who make the same calls decide alike.
 */
#ifndef DHS_LIB_CURVE_H
#define DHS_LIB_CURVE_H

#include "world.h"

/* A plan's worth of a count that has been the same for long. */
#define DHS_CURVE_ONE 256

struct dhs_curve {
	uint32_t empty;  /* places, at the last sample; elastic ones that came since, too */
	uint32_t misses; /* DHS_CURVE_ONE times the mean, as all below */
	uint32_t places[DHS_AGE_BINS];
	uint32_t hits[DHS_AGE_BINS];
	/* The places that are read least, an eighth of all or more, and what of them is hit: so
	 * much a place more would be. */
	uint32_t edge_places, edge_hits;
};

void dhs_curve_add(struct dhs_curve *curve, const struct dhs_sample *sample);

#endif
