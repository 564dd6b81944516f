/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The figures of a run as JSON, written and read. */
#include "report.h"

#include "util.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1

static const char *const ways[] = { "none", "to device", "to host" };

static void add_text(struct json_object *to, const char *key, const char *text)
{
	json_object_object_add(to, key, json_object_new_string(text));
}

static void add_count(struct json_object *to, const char *key, uint64_t n)
{
	json_object_object_add(to, key, json_object_new_int64((int64_t)n));
}

/* Microseconds and rates to four places: more is noise, and hard to read. */
static void add_real(struct json_object *to, const char *key, double x)
{
	char text[32];

	snprintf(text, sizeof(text), "%.4f", x);
	json_object_object_add(to, key, json_object_new_double_s(x, text));
}

static struct json_object *cell_to_json(const struct report *r, const struct cell *c)
{
	struct json_object *o = json_object_new_object();

	add_text(o, "family", c->family);
	add_text(o, "layout", c->layout);
	add_count(o, "sessions", c->sessions);
	add_count(o, "queries", c->queries);
	add_text(o, "load", c->load);
	add_text(o, "work", c->work);
	add_text(o, "how", c->how);
	add_real(o, "us", c->us.median);
	add_real(o, "us_p10", c->us.low);
	add_real(o, "us_p90", c->us.high);
	add_count(o, "samples", c->us.count);
	add_real(o, "bytes", c->bytes);
	add_text(o, "way", ways[c->way]);
	if (c->misses >= 0)
		add_real(o, "misses", c->misses);
	if (c->moved > 0)
		add_real(o, "bytes_moved", c->moved);
	if (c->of_present > 0)
		add_real(o, "of_present", c->of_present);
	if (c->bytes > 0)
		add_real(o, "gb_per_s", cell_rate(c));
	if (cell_share(r, c) > 0)
		add_real(o, "of_copy", cell_share(r, c));
	return o;
}

static struct json_object *machine_to_json(const struct report *r)
{
	struct json_object *o = json_object_new_object();

	add_text(o, "device", r->device);
	add_count(o, "multiprocessors", (uint64_t)r->multiprocessors);
	add_count(o, "cuda_driver", (uint64_t)r->driver);
	add_count(o, "cuda_runtime", (uint64_t)r->runtime);
	add_count(o, "pinned_bytes", r->arena->bytes);
	add_count(o, "available_bytes", r->arena->available);
	add_real(o, "pin_seconds", r->arena->pin_seconds);
	add_real(o, "run_seconds", r->seconds);
	return o;
}

static struct json_object *options_to_json(const struct options *options)
{
	struct json_object *o = json_object_new_object();

	add_count(o, "rows", options->rows);
	add_count(o, "hot_rows", options->hot_rows);
	add_count(o, "top_k", options->top_k);
	add_count(o, "repeat", options->repeat);
	return o;
}

static struct json_object *target_to_json(const struct target *t)
{
	struct json_object *o = json_object_new_object();

	add_text(o, "what", t->what);
	add_real(o, "measured", t->measured);
	add_real(o, t->at_least ? "at_least" : "at_most", t->target);
	json_object_object_add(o, "met", json_object_new_boolean(target_met(t)));
	return o;
}

void report_write(const struct report *r, const char *path)
{
	struct json_object *root = json_object_new_object(), *cells = json_object_new_array();
	struct json_object *targets = json_object_new_array();
	FILE *file = strcmp(path, "-") ? fopen(path, "w") : stdout;

	if (!file)
		die(STATUS_USAGE, "%s: cannot be written", path);
	add_count(root, "format", FORMAT);
	add_text(root, "library", dhs_version_string());
	json_object_object_add(root, "machine", machine_to_json(r));
	json_object_object_add(root, "options", options_to_json(r->options));
	for (size_t i = 0; i < r->count; i++)
		json_object_array_add(cells, cell_to_json(r, &r->cell[i]));
	json_object_object_add(root, "cells", cells);
	for (size_t i = 0; i < r->targets; i++)
		json_object_array_add(targets, target_to_json(&r->target[i]));
	json_object_object_add(root, "targets", targets);
	fprintf(file, "%s\n", json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY));
	if (fflush(file) || (file != stdout && fclose(file)))
		die(STATUS_USAGE, "%s: cannot be written", path);
	json_object_put(root);
}

static double number_in(struct json_object *o, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(o, key, &value) ? json_object_get_double(value) : 0;
}

static void text_in(struct json_object *o, const char *key, char *to)
{
	struct json_object *value;

	*to = 0;
	if (json_object_object_get_ex(o, key, &value))
		snprintf(to, PART, "%s", json_object_get_string(value));
}

static struct cell cell_from_json(struct json_object *o)
{
	struct cell c = { .sessions = (uint32_t)number_in(o, "sessions"),
		              .queries = (uint32_t)number_in(o, "queries"),
		              .us = { number_in(o, "us"), number_in(o, "us_p10"), number_in(o, "us_p90"),
		                      (size_t)number_in(o, "samples") },
		              .bytes = number_in(o, "bytes") };

	text_in(o, "family", c.family);
	text_in(o, "layout", c.layout);
	text_in(o, "load", c.load);
	text_in(o, "work", c.work);
	text_in(o, "how", c.how);
	return c;
}

static void read_basis(struct json_object *root, struct basis *basis)
{
	struct json_object *machine, *options, *device;

	*basis = (struct basis){ 0 };
	if (json_object_object_get_ex(root, "machine", &machine)) {
		basis->pinned_bytes = number_in(machine, "pinned_bytes");
		if (json_object_object_get_ex(machine, "device", &device))
			snprintf(basis->device, sizeof(basis->device), "%s", json_object_get_string(device));
	}
	if (json_object_object_get_ex(root, "options", &options)) {
		basis->rows = number_in(options, "rows");
		basis->hot_rows = number_in(options, "hot_rows");
		basis->top_k = number_in(options, "top_k");
	}
}

struct cell *report_read(const char *path, size_t *count, struct basis *basis)
{
	struct json_object *root = json_object_from_file(path), *cells;
	struct cell *all;

	if (!root)
		die(STATUS_USAGE, "%s: %s", path, json_util_get_last_err());
	if (number_in(root, "format") != FORMAT || !json_object_object_get_ex(root, "cells", &cells) ||
	    !json_object_is_type(cells, json_type_array))
		die(STATUS_USAGE, "%s: not written by this program, or by another version of it", path);
	read_basis(root, basis);
	*count = json_object_array_length(cells);
	all = new_zeroed(*count, sizeof(*all));
	for (size_t i = 0; i < *count; i++)
		all[i] = cell_from_json(json_object_array_get_idx(cells, i));
	json_object_put(root);
	return all;
}
