/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Sessions come and go.  One that arrives is first fed its prompt, in steps of its own or together
 * with others that arrive at the same time; then all that have a seat generate, a byte of each in a
 * step, and one whose text is done leaves. */
#include "run.h"
#include "util.h"

#include <math.h>
#include <stdlib.h>

struct served {
	struct run *run;
	const uint8_t *prompt;
	size_t bytes;
	void (*said)(int session, uint8_t byte);
	int64_t turn;    /* steps in which bytes were generated, so far */
	int *seat;       /* [options->sessions] those of a step */
	uint8_t *tokens; /* [options->sessions][options->step_rows] and its bytes */
};

/* ---- the next byte --------------------------------------------------------------------------- */

/* A number in [0, 1): splitmix64. */
static double chance(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int choose(const float *logits, int n, double temperature, uint64_t *state)
{
	int best = largest(logits, n);
	double sum = 0, left;

	if (temperature <= 0)
		return best;
	for (int i = 0; i < n; i++)
		sum += exp(((double)logits[i] - (double)logits[best]) / temperature);
	left = sum * chance(state);
	for (int i = 0; i < n; i++) {
		left -= exp(((double)logits[i] - (double)logits[best]) / temperature);
		if (left < 0)
			return i;
	}
	return best;
}

/* Of each session of the step the next byte, by the logits behind its last row. */
static void generate(struct served *g, const struct step *step)
{
	struct run *run = g->run;
	const struct options *o = run->options;
	int vocab = run->model->vocab;

	for (int s = 0; s < step->sessions; s++) {
		struct seat *seat = &run->seat[step->seat[s]];
		size_t row = (size_t)(s + 1) * (size_t)step->new_rows - 1;
		const float *logits = run->logits + row * (size_t)vocab;
		uint8_t *text = run_text(run, seat->session);

		if (seat->tokens == o->tokens)
			continue;
		text[seat->tokens] = (uint8_t)choose(logits, vocab, o->temperature, &seat->chance);
		g->said(seat->session, text[seat->tokens++]);
	}
}

/* ---- who is there ---------------------------------------------------------------------------- */

/* Where nobody is left to wait for, the next one need not be waited for either. */
static bool due(const struct served *g)
{
	const struct run *run = g->run;

	if (run->arrived == run->options->requests)
		return false;
	return !run->present || (int64_t)run->arrived * run->options->arrive <= g->turn;
}

static struct step arrivals(struct served *g)
{
	struct run *run = g->run;
	struct step step = { .seat = g->seat };

	for (int s = 0; s < run->options->sessions && due(g); s++) {
		if (run->seat[s].session >= 0)
			continue;
		if (!run_arrive(run, s))
			break;
		g->seat[step.sessions++] = s;
	}
	return step;
}

static struct step everybody(struct served *g)
{
	struct step step = { .seat = g->seat, .new_rows = 1 };

	for (int s = 0; s < g->run->options->sessions; s++)
		if (g->run->seat[s].session >= 0)
			g->seat[step.sessions++] = s;
	return step;
}

static bool done(const struct run *run, int seat)
{
	return run->seat[seat].rows == run->options->prompt_rows + run->options->tokens;
}

/* Those whose text is done leave, but for the last ones, so that the table can tell where their
 * rows are.  False when all is done. */
static bool departures(struct served *g)
{
	struct run *run = g->run;
	struct step step = everybody(g);
	int n = 0;

	for (int s = 0; s < step.sessions; s++)
		n += done(run, step.seat[s]);
	if (n == run->present && run->arrived == run->options->requests)
		return false;
	for (int s = 0; s < step.sessions; s++)
		if (done(run, step.seat[s]))
			run_leave(run, step.seat[s]);
	return true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

size_t prompt_offset(const struct run *run, int session, size_t bytes)
{
	return (size_t)session * bytes / (size_t)run->options->requests;
}

/* Rows of the next step of a prompt: no step goes past its end, or past where counting begins. */
static int prompt_step(const struct options *o, int rows)
{
	int count = o->step_rows;

	if (count > o->prompt_rows - rows)
		count = o->prompt_rows - rows;
	if (rows < o->stats_from && count > o->stats_from - rows)
		count = (int)(o->stats_from - rows);
	return count;
}

static void feed_prompts(struct served *g, struct step step)
{
	struct run *run = g->run;
	const struct options *o = run->options;

	for (int row = 0; row < o->prompt_rows; row += step.new_rows) {
		step.new_rows = prompt_step(o, row);
		for (int s = 0; s < step.sessions; s++) {
			int session = run->seat[step.seat[s]].session;
			size_t from = prompt_offset(run, session, g->bytes) + (size_t)row;

			for (int i = 0; i < step.new_rows; i++)
				g->tokens[s * step.new_rows + i] = g->prompt[(from + (size_t)i) % g->bytes];
		}
		run->prompt_seconds += run_step(run, &step, g->tokens);
		run->prompt_rows += (uint64_t)step.sessions * (uint64_t)step.new_rows;
	}
	generate(g, &step);
}

/* The last byte of each becomes a row, and gives the next one. */
static void feed_bytes(struct served *g)
{
	struct run *run = g->run;
	struct step step = everybody(g);

	for (int s = 0; s < step.sessions; s++) {
		const struct seat *seat = &run->seat[step.seat[s]];

		g->tokens[s] = run_text(run, seat->session)[seat->tokens - 1];
	}
	run->tokens_seconds += run_step(run, &step, g->tokens);
	run->tokens += (uint64_t)step.sessions;
	generate(g, &step);
}

void serve(struct run *run, const uint8_t *prompt, size_t bytes,
           void (*said)(int session, uint8_t byte))
{
	const struct options *o = run->options;
	struct served g = { .run = run, .prompt = prompt, .bytes = bytes, .said = said };

	g.seat = zeros((size_t)o->sessions, sizeof(*g.seat));
	g.tokens = zeros((size_t)o->sessions * (size_t)o->step_rows, 1);
	do {
		struct step newcomers = arrivals(&g);

		if (newcomers.sessions)
			feed_prompts(&g, newcomers);
		if (o->tokens)
			feed_bytes(&g);
		g.turn++;
	} while (departures(&g));
	free(g.seat);
	free(g.tokens);
}
