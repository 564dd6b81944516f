/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "run.h"
#include "decoder.h"
#include "plain.h"
#include "record.h"
#include "util.h"

#include <math.h>
#include <stdlib.h>

void run_open(struct run *run, const struct options *options, const struct model *model,
              int max_rows)
{
	struct kv_options kv = options->kv;

	*run = (struct run){ .options = options, .model = model };
	kv.sessions = (uint32_t)options->sessions;
	kv.max_rows = (uint32_t)max_rows;
	kv.max_new_rows = (uint32_t)options->step_rows;
	run->rows = kv_open(model, &kv);
	if (options->selections)
		run->record = record_open(run->rows, options->selections, model, options->sessions);
	run->decoder = decoder_open(model, run->record ? run->record : run->rows, options->sessions,
	                            max_rows, options->step_rows);
	if (options->check) {
		run->plain = plain_open(model, options->sessions, max_rows, options->step_rows);
		run->plain_decoder =
			decoder_open(model, run->plain, options->sessions, max_rows, options->step_rows);
	}
	run->text = zeros((size_t)options->sessions * (size_t)options->tokens, 1);
	kv_stats(run->rows, &run->since);
}

void run_close(struct run *run)
{
	if (run->plain) {
		decoder_close(run->plain_decoder);
		plain_close(run->plain);
	}
	decoder_close(run->decoder);
	if (run->record)
		record_close(run->record);
	kv_close(run->rows);
	free(run->text);
}

/* Bits, not numbers: a difference in the last place is a wrong row all the same. */
static void compare(const struct run *run, const float *expected, int count)
{
	int vocab = run->model->vocab;
	size_t n = (size_t)run->options->sessions * (size_t)count * (size_t)vocab;

	if (!memcmp(run->logits, expected, n * sizeof(float)))
		return;
	for (size_t i = 0; i < n; i++) {
		size_t row = i / (size_t)vocab;

		if (!memcmp(&run->logits[i], &expected[i], sizeof(float)))
			continue;
		die(STATUS_MISMATCH,
		    "--check: session %zu, row %zu, logit %zu is %.9g (%a), with plain arrays %.9g (%a)",
		    row / (size_t)count, (size_t)run->length + row % (size_t)count, i % (size_t)vocab,
		    (double)run->logits[i], (double)run->logits[i], (double)expected[i],
		    (double)expected[i]);
	}
}

double run_step(struct run *run, const uint8_t *tokens, int count)
{
	double start = seconds(), took;

	run->logits = decoder_step(run->decoder, tokens, count);
	took = seconds() - start;
	if (run->plain)
		compare(run, decoder_step(run->plain_decoder, tokens, count), count);
	run->length += count;
	run->step_rows = count;
	if (run->length == run->options->stats_from)
		kv_stats(run->rows, &run->since);
	return took;
}

size_t run_offset(const struct run *run, int session, size_t prompt_bytes)
{
	return (size_t)session * prompt_bytes / (size_t)run->options->sessions;
}

void run_prompt(struct run *run, const uint8_t *prompt, size_t bytes)
{
	const struct options *o = run->options;
	uint8_t *tokens = zeros((size_t)o->sessions * (size_t)o->step_rows, 1);

	while (run->length < o->prompt_rows) {
		int count = o->step_rows;

		if (count > o->prompt_rows - run->length)
			count = o->prompt_rows - run->length;
		if (run->length < o->stats_from && count > o->stats_from - run->length)
			count = (int)(o->stats_from - run->length);
		for (int s = 0; s < o->sessions; s++)
			for (int i = 0; i < count; i++) {
				size_t at = run_offset(run, s, bytes) + (size_t)(run->length + i);

				tokens[s * count + i] = prompt[at % bytes];
			}
		run->prompt_seconds += run_step(run, tokens, count);
	}
	free(tokens);
}

int largest(const float *x, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

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

void run_generate(struct run *run, void (*said)(const struct run *run))
{
	const struct options *o = run->options;
	uint64_t *state = zeros((size_t)o->sessions, sizeof(*state));
	uint8_t *tokens = zeros((size_t)o->sessions, 1);
	int vocab = run->model->vocab;

	for (int s = 0; s < o->sessions; s++)
		state[s] = o->seed + ((uint64_t)s << 32);
	while (run->tokens < o->tokens) {
		for (int s = 0; s < o->sessions; s++) {
			/* Behind the session's last row. */
			size_t row = (size_t)(s + 1) * (size_t)run->step_rows - 1;
			const float *logits = run->logits + row * (size_t)vocab;

			tokens[s] = (uint8_t)choose(logits, vocab, o->temperature, &state[s]);
			run->text[(size_t)s * (size_t)o->tokens + (size_t)run->tokens] = tokens[s];
		}
		run->tokens++;
		said(run);
		run->tokens_seconds += run_step(run, tokens, 1);
	}
	free(state);
	free(tokens);
}
