/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "run.h"
#include "decoder.h"
#include "plain.h"
#include "record.h"
#include "util.h"

#include <stdlib.h>

void run_open(struct run *run, const struct options *options, const struct model *model,
              int max_rows)
{
	struct kv_options kv = options->kv;
	int seats = options->sessions;

	*run = (struct run){ .options = options, .model = model };
	kv.sessions = (uint32_t)seats;
	kv.max_rows = (uint32_t)max_rows;
	kv.max_new_rows = (uint32_t)options->step_rows;
	run->rows = kv_open(model, &kv);
	if (options->selections)
		run->record = record_open(run->rows, options->selections, model, seats);
	run->decoder = decoder_open(model, run->record ? run->record : run->rows, seats, max_rows,
	                            options->step_rows);
	if (options->check) {
		run->plain = plain_open(model, seats, max_rows, options->step_rows);
		run->plain_decoder = decoder_open(model, run->plain, seats, max_rows, options->step_rows);
	}
	run->seat = zeros((size_t)seats, sizeof(*run->seat));
	for (int s = 0; s < seats; s++)
		run->seat[s].session = -1;
	run->text = zeros((size_t)options->requests * (size_t)options->tokens, 1);
	kv_stats(run->rows, &run->since);
	run->told = run->since;
	run->told_at = seconds();
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
	free(run->seat);
	free(run->text);
}

bool run_arrive(struct run *run, int seat)
{
	if (!decoder_arrive(run->decoder, seat))
		return false;
	if (run->plain)
		decoder_arrive(run->plain_decoder, seat);
	run->seat[seat] =
		(struct seat){ .session = run->arrived,
		               .chance = run->options->seed + ((uint64_t)run->arrived << 32) };
	run->arrived++;
	run->present++;
	if (run->most < run->present)
		run->most = run->present;
	return true;
}

void run_leave(struct run *run, int seat)
{
	decoder_leave(run->decoder, seat);
	if (run->plain)
		decoder_leave(run->plain_decoder, seat);
	run->seat[seat].session = -1;
	run->present--;
	run->left++;
}

/* Bits, not numbers: a difference in the last place is a wrong row all the same. */
static void compare(const struct run *run, const struct step *step, const float *expected)
{
	size_t vocab = (size_t)run->model->vocab, count = (size_t)step->new_rows;
	size_t n = (size_t)step->sessions * count * vocab;

	if (!memcmp(run->logits, expected, n * sizeof(float)))
		return;
	for (size_t i = 0; i < n; i++) {
		size_t row = i / vocab;
		const struct seat *seat = &run->seat[step->seat[row / count]];

		if (!memcmp(&run->logits[i], &expected[i], sizeof(float)))
			continue;
		die(STATUS_MISMATCH,
		    "--check: session %d, row %zu, logit %zu is %.9g (%a), with plain arrays %.9g (%a)",
		    seat->session, (size_t)seat->rows + row % count, i % vocab, (double)run->logits[i],
		    (double)run->logits[i], (double)expected[i], (double)expected[i]);
	}
}

double run_step(struct run *run, const struct step *step, const uint8_t *tokens)
{
	double start = seconds(), took;

	run->logits = decoder_step(run->decoder, step, tokens);
	took = seconds() - start;
	if (run->plain)
		compare(run, step, decoder_step(run->plain_decoder, step, tokens));
	run->steps++;
	for (int s = 0; s < step->sessions; s++) {
		struct seat *seat = &run->seat[step->seat[s]];

		seat->rows += step->new_rows;
		if (seat->session == 0 && seat->rows == run->options->stats_from)
			kv_stats(run->rows, &run->since);
	}
	progress(run, false);
	return took;
}

int largest(const float *x, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}
