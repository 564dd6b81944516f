/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getopt_long */
#endif
#include "options.h"

#include "bench.h"
#include "util.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(void)
{
	printf("Usage: dhisparse-perf [OPTION]...\n"
	       "Measures on a GPU what the link allows and what libdhisparse's calls cost.\n"
	       "\n"
	       "What is measured; lists have commas\n"
	       "  --only LIST         of copy, knee, plan, fetch, resolve, small, queries, naive,\n"
	       "                      translations, beside, leader, backup, evict, step (all)\n"
	       "  --layout LIST       of glm, single, v4, mha (all)\n"
	       "  --sessions LIST     sessions of a step (1,8,16,32,64,128)\n"
	       "  --queries LIST      queries of a session, in queries (1,2,4,8)\n"
	       "  --misses LIST       percent of a selection (0,1,5,20,100)\n"
	       "  --naive LIST        of block, layers, unsorted: other orders of a fetch (all)\n"
	       "\n"
	       "How\n"
	       "  --pool-gib N        pinned host memory in GiB, that all runs use in turn (64, or\n"
	       "                      four fifths of what is available)\n"
	       "  --rows N            history of a session (100000)\n"
	       "  --hot-rows N        hot cache of a session (4096)\n"
	       "  --top-k N           rows of a selection (2048)\n"
	       "  --repeat N          samples of a cell (15)\n"
	       "  --device N          which GPU (0)\n"
	       "\n"
	       "What comes out\n"
	       "  --json FILE         write all figures as JSON; - is standard output, then\n"
	       "                      without the table\n"
	       "  --compare FILE      compare with the figures of an earlier --json; on standard\n"
	       "                      error where --json is -\n"
	       "  --help              print this\n"
	       "\n"
	       "Exit status: 0; 2 when an option or a file is wrong; 3 when CUDA or the library\n"
	       "fails, or a slot has wrong bytes.\n");
}

static double real(const char *option, const char *text, char **end, double least, double most)
{
	double x;

	errno = 0;
	x = strtod(text, end);
	if (*end == text || errno || !(x >= least && x <= most))
		die(STATUS_USAGE, "--%s: '%.*s' is not a number from %.0f to %.0f", option,
		    (int)strcspn(text, ","), text, least, most);
	return x;
}

static double one_number(const char *option, double least, double most)
{
	char *end;
	double x = real(option, optarg, &end, least, most);

	if (*end)
		die(STATUS_USAGE, "--%s: '%s' is not a number", option, optarg);
	return x;
}

static double whole_number(const char *option, double least, double most)
{
	double x = one_number(option, least, most);

	if (x != floor(x))
		die(STATUS_USAGE, "--%s: '%s' is not a whole number", option, optarg);
	return x;
}

static void number_list(const char *option, double least, double most, bool whole,
                        struct numbers *numbers)
{
	const char *at = optarg;

	numbers->count = 0;
	for (;; at++) {
		char *end;

		if (numbers->count == MOST_NUMBERS)
			die(STATUS_USAGE, "--%s: more than %d numbers", option, MOST_NUMBERS);
		numbers->value[numbers->count] = real(option, at, &end, least, most);
		if (whole && numbers->value[numbers->count] != floor(numbers->value[numbers->count]))
			die(STATUS_USAGE, "--%s: '%s': not all are whole numbers", option, optarg);
		numbers->count++;
		at = end;
		if (!*at)
			return;
		if (*at != ',')
			die(STATUS_USAGE, "--%s: '%s': numbers are separated by commas", option, optarg);
	}
}

/* Bits of the names in a list. */
static unsigned name_list(const char *option, const char *(*name)(int), int count)
{
	unsigned bits = 0;
	const char *at = optarg;

	for (;; at++) {
		size_t length = strcspn(at, ",");
		int i = 0;

		while (i < count && (strlen(name(i)) != length || strncmp(name(i), at, length) != 0))
			i++;
		if (i == count)
			die(STATUS_USAGE, "--%s: no '%.*s' (see --help)", option, (int)length, at);
		bits |= 1u << i;
		at += length;
		if (!*at)
			return bits;
	}
}

static const char *family_name(int i)
{
	static const char *const names[FAMILIES] = {
		"copy",  "knee",         "plan",   "fetch",  "resolve", "small", "queries",
		"naive", "translations", "beside", "leader", "backup",  "evict", "step",
	};

	return names[i];
}

static const char *naive_name(int i)
{
	static const char *const names[] = { "block", "layers", "unsorted" };

	return names[i];
}

static const char *shape_name(int i)
{
	return shapes[i].name;
}

bool options_want(const struct options *o, enum family family)
{
	return o->families >> family & 1;
}

bool options_layout(const struct options *o, int layout)
{
	return o->layouts >> layout & 1;
}

static void defaults(struct options *o)
{
	*o = (struct options){
		.families = (1u << FAMILIES) - 1,
		.layouts = (1u << SHAPES) - 1,
		.naive = NAIVE_BLOCK | NAIVE_LAYERS | NAIVE_UNSORTED,
		.sessions = { { 1, 8, 16, 32, 64, 128 }, 6 },
		.queries = { { 1, 2, 4, 8 }, 4 },
		.misses = { { 0, 1, 5, 20, 100 }, 5 },
		.repeat = 15,
		.rows = 100000,
		.hot_rows = 4096,
		.top_k = 2048,
	};
}

void options_read(int argc, char **argv, struct options *o)
{
	enum {
		ONLY = 256,
		LAYOUT,
		SESSIONS,
		QUERIES,
		MISSES,
		NAIVE,
		POOL_GIB,
		ROWS,
		HOT_ROWS,
		TOP_K,
		REPEAT,
		DEVICE,
		JSON,
		COMPARE,
		HELP
	};
	static const struct option all[] = {
		{ "only", 1, NULL, ONLY },         { "layout", 1, NULL, LAYOUT },
		{ "sessions", 1, NULL, SESSIONS }, { "queries", 1, NULL, QUERIES },
		{ "misses", 1, NULL, MISSES },     { "naive", 1, NULL, NAIVE },
		{ "pool-gib", 1, NULL, POOL_GIB }, { "rows", 1, NULL, ROWS },
		{ "hot-rows", 1, NULL, HOT_ROWS }, { "top-k", 1, NULL, TOP_K },
		{ "repeat", 1, NULL, REPEAT },     { "device", 1, NULL, DEVICE },
		{ "json", 1, NULL, JSON },         { "compare", 1, NULL, COMPARE },
		{ "help", 0, NULL, HELP },         { NULL, 0, NULL, 0 },
	};
	int option, at = 0;

	defaults(o);
	while ((option = getopt_long(argc, argv, "", all, &at)) != -1) {
		const char *name = all[at].name;

		switch (option) {
		case ONLY:
			o->families = name_list(name, family_name, FAMILIES);
			break;
		case LAYOUT:
			o->layouts = name_list(name, shape_name, SHAPES);
			break;
		case SESSIONS:
			number_list(name, 1, 1024, true, &o->sessions);
			break;
		case QUERIES:
			number_list(name, 1, 16, true, &o->queries);
			break;
		case MISSES:
			number_list(name, 0, 100, false, &o->misses);
			break;
		case NAIVE:
			o->naive = name_list(name, naive_name, 3);
			break;
		case POOL_GIB:
			o->pool_gib = one_number(name, 1, 4096);
			break;
		case ROWS:
			o->rows = (uint32_t)whole_number(name, 4096, 1 << 24);
			break;
		case HOT_ROWS:
			o->hot_rows = (uint32_t)whole_number(name, 1, 32767);
			break;
		case TOP_K:
			o->top_k = (uint32_t)whole_number(name, 1, 8192);
			break;
		case REPEAT:
			o->repeat = (uint32_t)whole_number(name, 1, 1000);
			break;
		case DEVICE:
			o->device = (int)whole_number(name, 0, 1024);
			break;
		case JSON:
			o->json = optarg;
			break;
		case COMPARE:
			o->compare = optarg;
			break;
		case HELP:
			usage();
			exit(0);
		default: /* getopt_long said what */
			exit(STATUS_USAGE);
		}
	}
	if (optind < argc)
		die(STATUS_USAGE, "'%s' is not an option (see --help)", argv[optind]);
	if (o->hot_rows < o->top_k || o->rows < 4 * o->hot_rows)
		die(STATUS_USAGE,
		    "--hot-rows must be at least --top-k, and --rows at least 4 times --hot-rows, so that "
		    "hits and misses can be had as asked: these are %u, %u and %u",
		    o->hot_rows, o->top_k, o->rows);
}
