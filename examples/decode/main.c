/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * decode: generates text with the model of examples/tiny-dsa, whose KV rows are kept by
 * libdhisparse.  To see how an engine uses the library, read kv.c; decoder.c is the model, which
 * hands it new rows and is handed those that it selects; serve.c is who is decoded when.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getopt_long */
#endif
#include "run.h"
#include "util.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DECODE_DATA
#define DECODE_DATA "examples/tiny-dsa" /* where model.dsat and prompt.txt are */
#endif

static void usage(void)
{
	printf("Usage: decode [OPTION]...\n"
	       "Generates text with a sparse-attention model whose KV rows libdhisparse keeps.\n"
	       "\n"
	       "The model and its text\n"
	       "  --model FILE        the model (%s/model.dsat)\n"
	       "  --prompt FILE       the prompt, any bytes (%s/prompt.txt)\n"
	       "  --prompt-rows N     bytes of the prompt that are read (4000, or all)\n"
	       "  --tokens N          bytes that each session generates (400)\n"
	       "  --step-rows N       rows of the prompt in one step, 1 to 16 (4)\n"
	       "  --temperature T     sample; without it, or with 0, the likeliest byte is taken\n"
	       "  --seed S            of sampling (1)\n"
	       "\n"
	       "Sessions that come and go\n"
	       "  --sessions N        sessions that are decoded together (1), fewer while the pool\n"
	       "                      has no room for one more\n"
	       "  --requests N        sessions in all (as many); session i of N starts from byte\n"
	       "                      i/N of the prompt on and around its end, and leaves when it\n"
	       "                      has generated its bytes\n"
	       "  --arrive N          the next one arrives N steps of generating after the last, or\n"
	       "                      later, when one of those there has left (0: as soon as one\n"
	       "                      has left)\n"
	       "\n"
	       "Where the rows are\n"
	       "  --backend NAME      host; cuda; or auto: a GPU if there is one (auto)\n"
	       "  --policy NAME       full, fixed or adaptive (adaptive)\n"
	       "  --device-rows N     rows of the device pool, in whole pages (enough)\n"
	       "  --hot-rows N        rows of a session's hot cache, of each layer group (512)\n"
	       "  --tail-rows N       newest rows that stay on the device (64)\n"
	       "  --page-rows N       rows of a page (64)\n"
	       "  --host-seed N       the host device runs work late and out of order, as N says;\n"
	       "                      0: at once (0).  With another seed auto is host\n"
	       "\n"
	       "What is checked and told\n"
	       "  --check             decode with plain arrays, too, and compare all logits\n"
	       "  --report FILE       decode the report's prompt and compare with its choices\n"
	       "  --stats-from ROW    count from when the first session has ROW rows (0)\n"
	       "  --progress SECONDS  so often a line on standard error that tells who has the\n"
	       "                      pages, and texts after it; 0: none (1 for several sessions\n"
	       "                      on a terminal)\n"
	       "  --progress-steps N  the same every N steps\n"
	       "  --selections FILE   write the selected rows of every step, as text (record.h)\n"
	       "  --json              print one JSON object only\n"
	       "  --help              print this\n"
	       "\n"
	       "Exit status: 0; 1 when --check or --report finds a difference; 2 when an option or\n"
	       "a file is wrong; 3 when the library refuses, which says why.\n",
	       DECODE_DATA, DECODE_DATA);
}

static uint64_t number(const char *name, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(optarg, &end, 10);
	if (*optarg < '0' || *optarg > '9' || *end || errno || n < least || n > most)
		die(STATUS_USAGE, "--%s: '%s' is not a number from %llu to %llu", name, optarg,
		    (unsigned long long)least, (unsigned long long)most);
	return n;
}

static double real(const char *name, double most)
{
	char *end;
	double x = strtod(optarg, &end);

	if (end == optarg || *end || !(x >= 0 && x <= most))
		die(STATUS_USAGE, "--%s: '%s' is not a number from 0 to %g", name, optarg, most);
	return x;
}

struct name {
	const char *name;
	uint32_t value;
};

static const struct name backends[] = { { "host", DHS_BACKEND_HOST },
	                                    { "cuda", DHS_BACKEND_CUDA },
	                                    { "auto", DHS_BACKEND_AUTO },
	                                    { NULL, 0 } };
static const struct name policies[] = { { "full", DHS_POLICY_FULL },
	                                    { "fixed", DHS_POLICY_FIXED },
	                                    { "adaptive", DHS_POLICY_ADAPTIVE },
	                                    { NULL, 0 } };

static uint32_t named(const char *option, const struct name *names)
{
	for (; names->name; names++)
		if (!strcmp(optarg, names->name))
			return names->value;
	die(STATUS_USAGE, "--%s: no '%s' (see --help)", option, optarg);
}

static void parse(int argc, char **argv, struct options *o)
{
	enum {
		MODEL = 256,
		PROMPT,
		PROMPT_ROWS,
		TOKENS,
		SESSIONS,
		REQUESTS,
		ARRIVE,
		STEP_ROWS,
		TEMPERATURE,
		SEED,
		BACKEND,
		POLICY,
		DEVICE_ROWS,
		HOT_ROWS,
		TAIL_ROWS,
		PAGE_ROWS,
		HOST_SEED,
		CHECK,
		REPORT,
		STATS_FROM,
		PROGRESS,
		PROGRESS_STEPS,
		SELECTIONS,
		JSON,
		HELP
	};
	static const struct option all[] = {
		{ "model", 1, NULL, MODEL },
		{ "prompt", 1, NULL, PROMPT },
		{ "prompt-rows", 1, NULL, PROMPT_ROWS },
		{ "tokens", 1, NULL, TOKENS },
		{ "sessions", 1, NULL, SESSIONS },
		{ "requests", 1, NULL, REQUESTS },
		{ "arrive", 1, NULL, ARRIVE },
		{ "step-rows", 1, NULL, STEP_ROWS },
		{ "temperature", 1, NULL, TEMPERATURE },
		{ "seed", 1, NULL, SEED },
		{ "backend", 1, NULL, BACKEND },
		{ "policy", 1, NULL, POLICY },
		{ "device-rows", 1, NULL, DEVICE_ROWS },
		{ "hot-rows", 1, NULL, HOT_ROWS },
		{ "tail-rows", 1, NULL, TAIL_ROWS },
		{ "page-rows", 1, NULL, PAGE_ROWS },
		{ "host-seed", 1, NULL, HOST_SEED },
		{ "check", 0, NULL, CHECK },
		{ "report", 1, NULL, REPORT },
		{ "stats-from", 1, NULL, STATS_FROM },
		{ "progress", 1, NULL, PROGRESS },
		{ "progress-steps", 1, NULL, PROGRESS_STEPS },
		{ "selections", 1, NULL, SELECTIONS },
		{ "json", 0, NULL, JSON },
		{ "help", 0, NULL, HELP },
		{ NULL, 0, NULL, 0 },
	};
	int option, at = 0;

	while ((option = getopt_long(argc, argv, "", all, &at)) != -1) {
		const char *name = all[at].name;

		switch (option) {
		case MODEL:
			o->model = optarg;
			break;
		case PROMPT:
			o->prompt = optarg;
			break;
		case PROMPT_ROWS:
			o->prompt_rows = (int)number(name, 1, 1000000);
			break;
		case TOKENS:
			o->tokens = (int)number(name, 0, 1000000);
			break;
		case SESSIONS:
			o->sessions = (int)number(name, 1, 256);
			break;
		case REQUESTS:
			o->requests = (int)number(name, 1, 100000);
			break;
		case ARRIVE:
			o->arrive = (int)number(name, 0, 1000000);
			break;
		case STEP_ROWS:
			o->step_rows = (int)number(name, 1, 16);
			break;
		case TEMPERATURE:
			o->temperature = real(name, 100);
			break;
		case SEED:
			o->seed = number(name, 0, UINT64_MAX);
			break;
		case BACKEND:
			o->kv.backend = named(name, backends);
			break;
		case POLICY:
			o->kv.policy = named(name, policies);
			break;
		case DEVICE_ROWS:
			o->kv.device_rows = number(name, 1, INT32_MAX);
			break;
		case HOT_ROWS:
			o->kv.hot_rows = (uint32_t)number(name, 1, 32767);
			break;
		case TAIL_ROWS:
			o->kv.tail_rows = (uint32_t)number(name, 0, 1000000);
			break;
		case PAGE_ROWS:
			o->kv.page_rows = (uint32_t)number(name, 1, 65536);
			break;
		case HOST_SEED:
			o->kv.host_seed = number(name, 0, UINT64_MAX);
			break;
		case CHECK:
			o->check = true;
			break;
		case REPORT:
			o->report = optarg;
			break;
		case STATS_FROM:
			o->stats_from = (int64_t)number(name, 0, 2000000);
			break;
		case PROGRESS:
			o->progress = real(name, 1e6);
			break;
		case PROGRESS_STEPS:
			o->progress_steps = (int)number(name, 1, 1000000);
			break;
		case SELECTIONS:
			o->selections = optarg;
			break;
		case JSON:
			o->json = true;
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
	if (o->kv.backend == DHS_BACKEND_CUDA && o->kv.host_seed)
		die(STATUS_USAGE, "--host-seed is of the host backend, not of --backend cuda");
	if (!o->requests)
		o->requests = o->sessions;
	if (o->requests < o->sessions)
		die(STATUS_USAGE, "--requests: %d, but --sessions is %d", o->requests, o->sessions);
	if (o->progress < 0)
		o->progress = o->requests > 1 && !o->json && isatty(STDERR_FILENO);
}

/* The first session's text, as it comes. */
static void say(int session, uint8_t byte)
{
	if (session)
		return;
	print_byte(byte);
	fflush(stdout);
}

static void say_nothing(int session, uint8_t byte)
{
	(void)session;
	(void)byte;
}

static void title(const struct run *run, int session, size_t prompt_bytes)
{
	if (run->options->requests > 1)
		printf("%s--- session %d, prompt from byte %zu on ---\n", session ? "\n\n" : "", session,
		       prompt_offset(run, session, prompt_bytes));
}

/* Texts `from` on. */
static void print_texts(const struct run *run, int from, size_t prompt_bytes)
{
	for (int s = from; s < run->options->requests; s++) {
		title(run, s, prompt_bytes);
		for (int i = 0; i < run->options->tokens; i++)
			print_byte(run_text(run, s)[i]);
	}
	printf("\n\n");
}

/* For people the first session's text is printed as it comes, unless lines of progress would
 * tear it. */
static void decode_and_tell(struct run *run, const unsigned char *prompt, size_t bytes)
{
	const struct options *o = run->options;
	bool as_it_comes = !o->json && !progress_wanted(o);

	if (as_it_comes)
		title(run, 0, bytes);
	serve(run, prompt, bytes, as_it_comes ? say : say_nothing);
	progress(run, true);
	if (o->json) {
		print_json(run);
	} else {
		print_texts(run, as_it_comes, bytes);
		print_table(run);
	}
}

static void decode(struct options *o, const struct model *model)
{
	size_t bytes;
	unsigned char *prompt = read_file(o->prompt, &bytes);
	struct run run;

	if (!bytes)
		die(STATUS_USAGE, "%s: an empty prompt", o->prompt);
	if (!o->prompt_rows)
		o->prompt_rows = bytes < 4000 ? (int)bytes : 4000;
	if ((size_t)o->prompt_rows > bytes)
		die(STATUS_USAGE, "--prompt-rows: %d, but %s has %zu bytes", o->prompt_rows, o->prompt,
		    bytes);
	if (o->stats_from > o->prompt_rows + o->tokens)
		die(STATUS_USAGE, "--stats-from: %lld, but sessions end at row %d",
		    (long long)o->stats_from, o->prompt_rows + o->tokens);

	run_open(&run, o, model, o->prompt_rows + o->tokens);
	decode_and_tell(&run, prompt, bytes);
	run_close(&run);
	free(prompt);
}

int main(int argc, char **argv)
{
	struct options options = {
		.model = DECODE_DATA "/model.dsat",
		.prompt = DECODE_DATA "/prompt.txt",
		.sessions = 1,
		.tokens = 400,
		.step_rows = 4,
		.stats_from = -1,
		.seed = 1,
		.progress = -1, /* as it turns out */
		.kv = { .policy = DHS_POLICY_ADAPTIVE, .hot_rows = 512, .tail_rows = 64, .page_rows = 64 },
	};
	struct model *model;

	parse(argc, argv, &options);
	model = model_load(options.model);
	if (options.report)
		check_report(&options, model);
	else
		decode(&options, model);
	model_free(model);
	if (fflush(stdout) || ferror(stdout))
		die(STATUS_USAGE, "standard output: %s", strerror(errno));
	return 0;
}
