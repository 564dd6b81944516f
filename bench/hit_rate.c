/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * How many of the selected rows a hot cache misses, by replacement rule and size: on
 * selections that examples/decode wrote, or on made-up ones like those of large models
 * (classes.h).  Prints markdown tables; docs/hit-rate.md has some, and what follows from them.
 * The rule of docs/resolve.md is run in the library, too: status 1 if it counts otherwise.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getopt_long */
#endif
#include "classes.h"
#include "library.h"
#include "util.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES 5
static const uint32_t sizes[SIZES] = { 1, 2, 3, 4, 8 }; /* times top_k */

struct options {
	const char *selections; /* the file, or NULL */
	const char *only;
	uint32_t plans;
	uint32_t from;
	uint32_t tail_rows, page_rows;
	uint64_t seed;
};

static void usage(void)
{
	printf(
		"Usage: hit_rate [OPTION]...\n"
		"Prints which share of selected rows a hot cache misses, by replacement rule and by\n"
		"its size, 1, 2, 3, 4 and 8 times top-k.\n"
		"\n"
		"  --selections FILE  what decode --selections FILE wrote, the first session's; without\n"
		"                     it: selections made up to be as those of large models\n"
		"  --only NAME        one of the made-up classes\n"
		"  --plans N          plans of a made-up class (1000)\n"
		"  --from N           count from plan N on (400; half of a file's)\n"
		"  --tail-rows N      newest rows that stay on the device (64)\n"
		"  --page-rows N      rows of a page (64)\n"
		"  --seed S           of what is made up (1)\n"
		"  --help             print this\n");
}

static uint64_t number(const char *name, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long n = strtoull(optarg, &end, 10);

	if (*optarg < '0' || *optarg > '9' || *end || n < least || n > most)
		bench_die("--%s: '%s' is not a number from %" PRIu64 " to %" PRIu64, name, optarg, least,
		          most);
	return n;
}

static void parse(int argc, char **argv, struct options *o)
{
	static const struct option all[] = {
		{ "selections", 1, NULL, 'S' }, { "only", 1, NULL, 'o' },
		{ "plans", 1, NULL, 'p' },      { "from", 1, NULL, 'f' },
		{ "tail-rows", 1, NULL, 't' },  { "page-rows", 1, NULL, 'r' },
		{ "seed", 1, NULL, 's' },       { "help", 0, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option, at = 0;

	while ((option = getopt_long(argc, argv, "", all, &at)) != -1) {
		const char *name = all[at].name;

		switch (option) {
		case 'S':
			o->selections = optarg;
			break;
		case 'o':
			o->only = optarg;
			break;
		case 'p':
			o->plans = (uint32_t)number(name, 2, 100000);
			break;
		case 'f':
			o->from = (uint32_t)number(name, 1, 1000000);
			break;
		case 't':
			o->tail_rows = (uint32_t)number(name, 0, 1000000);
			break;
		case 'r':
			o->page_rows = (uint32_t)number(name, 1, 65536);
			break;
		case 's':
			o->seed = number(name, 0, UINT64_MAX);
			break;
		case 'h':
			usage();
			exit(0);
		default:
			exit(2);
		}
	}
	if (optind < argc)
		bench_die("'%s' is not an option (see --help)", argv[optind]);
}

/* ---- a table ------------------------------------------------------------------------- */

static double percent(const struct demand *d, uint32_t from, uint64_t misses)
{
	uint64_t entries = 0;

	for (uint32_t p = from; p < d->trace->plans; p++)
		entries += (uint64_t)d->trace->plan[p].queries * d->trace->top_k;
	return 100.0 * (double)misses / (double)entries;
}

static void print_head(const char *what)
{
	printf("| %s |", what);
	for (int i = 0; i < SIZES; i++)
		printf(" %u x |", sizes[i]);
	printf(" at 2 x |\n| --- |");
	for (int i = 0; i < SIZES + 1; i++)
		printf(" ---: |");
	printf("\n");
}

static int same(const struct counts *a, const struct counts *b)
{
	return a->page_hits == b->page_hits && a->hot_hits == b->hot_hits && a->misses == b->misses &&
	       a->repeats == b->repeats && a->staged == b->staged && a->victims == b->victims;
}

/* Exits where the library counts otherwise than the rule that is its own. */
static void compare(const struct demand *d, uint32_t from, uint32_t places,
                    const struct counts *ours)
{
	struct counts theirs;

	library_run(d, places, from, &theirs);
	if (same(ours, &theirs))
		return;
	fflush(stdout);
	fprintf(stderr,
	        "%u places: the library counts %" PRIu64 " hot hits, %" PRIu64 " misses, %" PRIu64
	        " victims, the rule %" PRIu64 ", %" PRIu64 ", %" PRIu64 "\n",
	        places, theirs.hot_hits, theirs.misses, theirs.victims, ours->hot_hits, ours->misses,
	        ours->victims);
	exit(1);
}

/* By how many percent there are more; to a tenth, and never -0. */
static double against(uint64_t misses, uint64_t own)
{
	return own ? round(1000.0 * ((double)misses / (double)own - 1)) / 10 + 0.0 : 0.0;
}

/* Misses by size, and the last column: at 2 x, against the library's own rule. */
static void print_rule(const struct rule *rule, const struct demand *d, uint32_t from,
                       uint64_t *own)
{
	uint64_t misses[SIZES];

	printf("| %s |", rule->name);
	for (int i = 0; i < SIZES; i++) {
		uint32_t places = sizes[i] * d->trace->top_k;
		struct counts counts;

		rule_run(rule, d, places, from, &counts);
		if (rule == rules)
			compare(d, from, places, &counts);
		misses[i] = counts.misses;
		printf(" %.2f |", percent(d, from, misses[i]));
	}
	if (rule == rules)
		*own = misses[1];
	printf(" %+.1f %% |\n", against(misses[1], *own));
	fflush(stdout);
}

static void print_rules(const struct options *o, const struct trace *t, uint32_t from)
{
	struct demand d;
	uint64_t own = 0;

	demand_open(&d, t, o->tail_rows, o->page_rows);
	for (const struct rule *rule = rules; rule->name; rule++)
		print_rule(rule, &d, from, &own);
	demand_close(&d);
}

static void print_overlap(const struct trace *t, uint32_t from)
{
	struct overlap o = trace_overlap(t, from);

	printf(
		"%u plans, counted from the %u-th on; %.1f %% of a plan's rows were selected by the plan "
		"before, %.1f %% at least.\n",
		t->plans, from, 100 * o.mean, 100 * o.least);
}

/* ---- what is measured ---------------------------------------------------------------- */

static void print_file(const struct options *o)
{
	for (uint32_t group = 0;; group++) {
		struct wanted wanted = { 0, group, TRACE_MOST_PLACES / sizes[SIZES - 1] };
		struct trace_refusal why;
		struct trace t;
		uint32_t from;

		if (trace_read(&t, o->selections, &wanted, &why))
			bench_die("%s", why.text);
		if (!t.plans && group)
			return;
		if (t.plans < 2)
			bench_die("%s: %u plans of the first session", o->selections, t.plans);
		from = o->from && o->from < t.plans ? o->from : t.plans / 2;
		printf("### Group %u\n\n", group);
		print_overlap(&t, from);
		printf("\n");
		print_head("misses, %");
		print_rules(o, &t, from);
		printf("\n");
		trace_free(&t);
	}
}

static void print_class(const struct options *o, const struct locality_class *c)
{
	struct trace t;
	uint32_t plans = o->plans ? o->plans : 1000;
	uint32_t from = o->from ? o->from : 400;

	from = from < plans ? from : plans / 2;
	locality_trace(&t, &c->locality, plans, o->seed);
	printf("### %s: %s\n\n", c->name, c->says);
	print_overlap(&t, from);
	if (c->overlap[1] > 0)
		printf("Reported: %.0f to %.0f %%.\n", c->overlap[0], c->overlap[1]);
	printf("\n");
	print_head("misses, %");
	if (c->misses[0] > 0) {
		printf("| reported |");
		for (int i = 0; i < SIZES; i++)
			printf(" %.3g |", c->misses[i]);
		printf(" |\n");
	}
	print_rules(o, &t, from);
	printf("\n");
	trace_free(&t);
}

int main(int argc, char **argv)
{
	struct options o = { .tail_rows = 64, .page_rows = 64, .seed = 1 };
	int printed = 0;

	parse(argc, argv, &o);
	if (o.selections) {
		print_file(&o);
		return 0;
	}
	for (const struct locality_class *c = locality_classes; c->name; c++)
		if (!o.only || !strcmp(o.only, c->name)) {
			print_class(&o, c);
			printed++;
		}
	if (!printed)
		bench_die("--only: no class '%s'", o.only);
	return 0;
}
