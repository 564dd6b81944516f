/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "run.h"
#include "util.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

/* The report's choices are PyTorch's in bfloat16, ours come from float32: a right decoder may
 * choose otherwise where its two best bytes are close, and only there. */
#define LEAST_EQUAL 0.988
#define MOST_APART 0.2

struct report {
	struct json_object *all, *choices;
	const uint8_t *prompt;
	int rows;
};

static struct report read_report(const char *path)
{
	struct json_object *prompt = NULL;
	struct report r = { 0 };
	size_t bytes;
	unsigned char *text = read_file(path, &bytes);

	r.all = json_tokener_parse((const char *)text);
	free(text);
	if (!json_object_object_get_ex(r.all, "check_prompt", &prompt) ||
	    !json_object_object_get_ex(r.all, "check_argmax_sparse", &r.choices) ||
	    !json_object_is_type(prompt, json_type_string) ||
	    !json_object_is_type(r.choices, json_type_array))
		die(STATUS_USAGE, "%s: no check_prompt and check_argmax_sparse", path);
	r.prompt = (const uint8_t *)json_object_get_string(prompt);
	r.rows = json_object_get_string_len(prompt);
	if (r.rows < 1 || json_object_array_length(r.choices) != (size_t)r.rows)
		die(STATUS_USAGE, "%s: check_prompt and check_argmax_sparse differ in length", path);
	return r;
}

void check_report(const struct options *given, const struct model *model)
{
	struct options options = *given;
	struct report report = read_report(options.report);
	double apart = 0;
	int seat = 0, equal = 0;
	struct run run;

	options.sessions = options.requests = 1;
	options.tokens = 0;
	run_open(&run, &options, model, report.rows);
	run_arrive(&run, seat);
	for (int row = 0, count; row < report.rows; row += count) {
		count = report.rows - row < options.step_rows ? report.rows - row : options.step_rows;
		run_step(&run, &(struct step){ &seat, 1, count }, report.prompt + row);
		for (int i = 0; i < count; i++) {
			const float *logits = run.logits + (size_t)i * (size_t)model->vocab;
			int ours = largest(logits, model->vocab);
			int theirs =
				json_object_get_int(json_object_array_get_idx(report.choices, (size_t)(row + i)));

			if (theirs < 0 || theirs >= model->vocab)
				die(STATUS_USAGE, "%s: choice %d is %d", options.report, row + i, theirs);
			equal += ours == theirs;
			if (apart < (double)(logits[ours] - logits[theirs]))
				apart = (double)(logits[ours] - logits[theirs]);
		}
	}
	run_close(&run);
	if (options.json)
		printf("{\"choices\":%d,\"equal\":%d,\"apart\":%.4f}\n", report.rows, equal, apart);
	else
		printf("%d of %d choices as in the report (%.2f %%), the others apart by %.4f at most\n",
		       equal, report.rows, 100.0 * equal / report.rows, apart);
	if (equal < LEAST_EQUAL * report.rows || apart > MOST_APART)
		die(STATUS_MISMATCH, "--report: less than %.1f %% equal, or apart by more than %.1f",
		    100 * LEAST_EQUAL, MOST_APART);
	json_object_put(report.all);
}
