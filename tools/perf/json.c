/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The figures of a run as JSON, written and read. */
#include "report.h"

#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FORMAT 1
/* Of what is read: more than any machine takes or has. */
#define MOST_US 1e12
#define MOST_BYTES 1e18

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

FILE *report_open(const char *path)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "a") : stdout;

	if (!file)
		die(STATUS_USAGE, "%s: cannot be written: %s", path, strerror(errno));
	return file;
}

static struct json_object *report_to_json(const struct report *r)
{
	struct json_object *root = json_object_new_object(), *cells = json_object_new_array();
	struct json_object *targets = json_object_new_array();

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
	return root;
}

void report_write(const struct report *r, FILE *file)
{
	struct json_object *root = report_to_json(r);

	/* Not of a pipe or a terminal: EINVAL. */
	if (file != stdout && ftruncate(fileno(file), 0) && errno != EINVAL)
		die(STATUS_USAGE, "%s: cannot be written: %s", r->options->json, strerror(errno));
	fprintf(file, "%s\n", json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY));
	if (fflush(file) || ferror(file) || (file != stdout && fclose(file)))
		die(STATUS_USAGE, "%s: cannot be written: %s", r->options->json, strerror(errno));
	json_object_put(root);
}

/* ---- reading ---- */

/* An object of the file, and what messages call it. */
struct section {
	const char *path;
	char name[32];
	struct json_object *object;
};

static double number_in(const struct section *s, const char *key, double least, double most)
{
	struct json_object *value = NULL;
	double x = NAN;

	json_object_object_get_ex(s->object, key, &value);
	if (json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double))
		x = json_object_get_double(value);
	if (!(x >= least && x <= most))
		die(STATUS_USAGE, "%s: %s: %s is not a number from %.0f to %.0f", s->path, s->name, key,
		    least, most);
	return x;
}

static double count_in(const struct section *s, const char *key)
{
	double x = number_in(s, key, 0, UINT32_MAX);

	if (x != floor(x))
		die(STATUS_USAGE, "%s: %s: %s is not a whole number", s->path, s->name, key);
	return x;
}

static void text_in(const struct section *s, const char *key, char *to, size_t room)
{
	struct json_object *value = NULL;

	json_object_object_get_ex(s->object, key, &value);
	if (!json_object_is_type(value, json_type_string) ||
	    (size_t)json_object_get_string_len(value) >= room)
		die(STATUS_USAGE, "%s: %s: %s is not a text of less than %zu bytes", s->path, s->name, key,
		    room);
	snprintf(to, room, "%s", json_object_get_string(value));
}

static struct cell read_cell(const struct section *s)
{
	struct cell c = {
		.sessions = (uint32_t)count_in(s, "sessions"),
		.queries = (uint32_t)count_in(s, "queries"),
		.us = { number_in(s, "us", -MOST_US, MOST_US), number_in(s, "us_p10", -MOST_US, MOST_US),
		        number_in(s, "us_p90", -MOST_US, MOST_US), (size_t)count_in(s, "samples") },
		.bytes = number_in(s, "bytes", 0, MOST_BYTES)
	};

	text_in(s, "family", c.family, sizeof(c.family));
	text_in(s, "layout", c.layout, sizeof(c.layout));
	text_in(s, "load", c.load, sizeof(c.load));
	text_in(s, "work", c.work, sizeof(c.work));
	text_in(s, "how", c.how, sizeof(c.how));
	return c;
}

static struct section section_in(const char *path, struct json_object *root, const char *key)
{
	struct section s = { .path = path };

	snprintf(s.name, sizeof(s.name), "%s", key);
	json_object_object_get_ex(root, key, &s.object);
	return s;
}

static void read_basis(const char *path, struct json_object *root, struct earlier *e)
{
	struct section machine = section_in(path, root, "machine");
	struct section options = section_in(path, root, "options");

	text_in(&machine, "device", e->device, sizeof(e->device));
	e->pinned_bytes = number_in(&machine, "pinned_bytes", 0, MOST_BYTES);
	e->rows = count_in(&options, "rows");
	e->hot_rows = count_in(&options, "hot_rows");
	e->top_k = count_in(&options, "top_k");
}

static struct json_object *read_file(const char *path)
{
	int file = open(path, O_RDONLY);
	struct json_object *root;

	if (file < 0)
		die(STATUS_USAGE, "%s: %s", path, strerror(errno));
	root = json_object_from_fd(file);
	close(file);
	if (!root)
		die(STATUS_USAGE, "%s: not a JSON object, or not all of one", path);
	return root;
}

/* Whether it is an object of this format, with cells. */
static bool is_report(struct json_object *root, struct json_object **cells)
{
	struct json_object *format;

	return json_object_object_get_ex(root, "format", &format) &&
	       json_object_is_type(format, json_type_int) && json_object_get_int64(format) == FORMAT &&
	       json_object_object_get_ex(root, "cells", cells) &&
	       json_object_is_type(*cells, json_type_array);
}

void report_read(const char *path, struct earlier *e)
{
	struct json_object *root = read_file(path), *cells;
	struct section cell = { .path = path };

	if (!is_report(root, &cells))
		die(STATUS_USAGE, "%s: not written by this program, or by another version of it", path);
	*e = (struct earlier){ .path = path, .count = json_object_array_length(cells) };
	read_basis(path, root, e);
	e->cell = new_zeroed(e->count, sizeof(*e->cell));
	for (size_t i = 0; i < e->count; i++) {
		snprintf(cell.name, sizeof(cell.name), "cells[%zu]", i);
		cell.object = json_object_array_get_idx(cells, i);
		e->cell[i] = read_cell(&cell);
	}
	json_object_put(root);
}
