/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Replacement rules of a hot cache.  What they have in common is docs/resolve.md: a plan's
 * hits are found first, then its missing rows, ascending, take places that this plan did not
 * read, empty ones first.  A rule says which of the filled ones give way.
 */
#ifndef BENCH_RULES_H
#define BENCH_RULES_H

#include "trace.h"

/* One hot cache under one rule. */
struct cache {
	const struct demand *demand;
	uint32_t places;
	uint32_t now;       /* number of the plan, from 1 on */
	uint64_t turn;      /* of the row that is touched, in the order of all selections */
	uint32_t length;    /* rows before the step */
	uint64_t draws;     /* state of random numbers */
	uint32_t hand;      /* of the clock */
	int32_t *row;       /* of each place, -1: empty */
	uint32_t *stamp;    /* the plan that last read it */
	uint64_t *word;     /* what else the rule keeps of each place */
	uint32_t *place_of; /* of each row: 1 + its place, 0: none */
	uint64_t *left;     /* what the rule keeps of each row that is not there */
	uint64_t *age;      /* scratch, [places] */
	uint64_t *sorted;   /* scratch, [places] */
};

/* All but age may be NULL. */
struct rule {
	const char *name;
	uint32_t option; /* the rule's own */
	/* This plan reads the place's row again; stamp[place] is still the plan before. */
	void (*hit)(const struct rule *rule, struct cache *cache, uint32_t place, uint32_t next);
	/* A row has come into the place; `next`: the next plan that wants it. */
	void (*enter)(const struct rule *rule, struct cache *cache, uint32_t place, uint32_t next);
	void (*leave)(const struct rule *rule, struct cache *cache, uint32_t place);
	/* Smaller ages, below 2^48, give way first; ties by index. */
	uint64_t (*age)(const struct rule *rule, struct cache *cache, uint32_t place);
	/* Places with ages up to `last` have been chosen. */
	void (*chosen)(const struct rule *rule, struct cache *cache, uint64_t last);
};

/* Ends with a rule without a name.  The first is that of docs/resolve.md. */
extern const struct rule rules[];

struct counts {
	uint64_t page_hits, hot_hits, misses, repeats, staged, victims;
};

/* Runs the rule over all plans; counts from plan `from` on. */
void rule_run(const struct rule *rule, const struct demand *demand, uint32_t places, uint32_t from,
              struct counts *counts);

#endif
