/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The rule that bench/ calls the library's is the library's: both count the same on the same
 * selections.  So what docs/hit-rate.md says of it holds.  And files of selections are read as
 * they are, or refused. */
#include "classes.h"
#include "library.h"
#include "support.h"

#include <unistd.h>

/* Rows that come again and new ones, duplicates, and some that are none. */
static void any_rows(struct dice *dice, int32_t *rows, uint32_t count, uint32_t end)
{
	uint32_t near = end < 40 ? end : 40, from = dice_below(dice, end - near + 1);

	for (uint32_t i = 0; i < count; i++)
		switch (dice_below(dice, 8)) {
		case 0:
			rows[i] = (int32_t)dice_below(dice, end + 3) - 1;
			break;
		case 1:
			rows[i] = -1;
			break;
		case 2:
			rows[i] = (int32_t)(from + dice_below(dice, near));
			break;
		default: /* what was there before, where there was something */
			if (rows[i] < 0 || (uint32_t)rows[i] >= end)
				rows[i] = (int32_t)dice_below(dice, end);
			break;
		}
}

static void any_trace(struct dice *dice, struct trace *t, uint32_t plans)
{
	uint32_t length = dice_below(dice, 300), most = 1 + dice_below(dice, 4);
	int32_t *rows;

	*t = (struct trace){ .top_k = 1 + dice_below(dice, 48) };
	rows = calloc((size_t)most * t->top_k, sizeof(*rows));
	ck_assert_ptr_nonnull(rows);
	for (uint32_t p = 0; p < plans; p++) {
		uint32_t queries = 1 + dice_below(dice, most);

		any_rows(dice, rows, queries * t->top_k, length + queries);
		trace_add(t, length, queries, rows);
		length += queries;
	}
	free(rows);
}

static void assert_counts(const struct demand *d, uint32_t places, uint32_t from)
{
	struct counts rule, library;

	rule_run(&rules[0], d, places, from, &rule);
	library_run(d, places, from, &library);
	ck_assert_uint_eq(rule.page_hits, library.page_hits);
	ck_assert_uint_eq(rule.hot_hits, library.hot_hits);
	ck_assert_uint_eq(rule.misses, library.misses);
	ck_assert_uint_eq(rule.repeats, library.repeats);
	ck_assert_uint_eq(rule.staged, library.staged);
	ck_assert_uint_eq(rule.victims, library.victims);
}

START_TEST(test_any)
{
	struct dice dice = { 1 };
	uint32_t times = support_times(150);
	uint64_t victims = 0, staged = 0;

	for (uint32_t i = 0; i < times; i++) {
		struct trace t;
		struct demand d;
		struct counts counts;
		uint32_t places = 1 + dice_below(&dice, 200);

		any_trace(&dice, &t, 60);
		demand_open(&d, &t, dice_below(&dice, 30), 1 + dice_below(&dice, 20));
		assert_counts(&d, places, dice_below(&dice, 30));
		rule_run(&rules[0], &d, places, 0, &counts);
		victims += counts.victims;
		staged += counts.staged;
		demand_close(&d);
		trace_free(&t);
	}
	ck_assert_uint_gt(victims, 0);
	ck_assert_uint_gt(staged, 0);
}
END_TEST

/* The first made-up class an eighth as large. */
static void small_class(struct trace *t, struct demand *d)
{
	struct locality l = locality_classes[0].locality;

	l.rows /= 8;
	l.top_k /= 8;
	l.recent_rows /= 8;
	locality_trace(t, &l, 60, 1);
	demand_open(d, t, 64, 64);
}

START_TEST(test_class)
{
	struct trace t;
	struct demand d;

	small_class(&t, &d);
	for (uint32_t times = 1; times <= 8; times *= 2)
		assert_counts(&d, times * t.top_k, 20);
	demand_close(&d);
	trace_free(&t);
}
END_TEST

/* No rule misses less than the optimum, or gives way more often than it misses; all of them miss
 * the same once there is room for everything. */
START_TEST(test_bound)
{
	struct trace t;
	struct demand d;
	struct counts best = { 0 }, all = { 0 }, counts;
	const struct rule *last = rules;

	small_class(&t, &d);
	while (last[1].name)
		last++;
	ck_assert_str_eq(last->name, "optimum");
	rule_run(last, &d, 2 * t.top_k, 0, &best);
	rule_run(last, &d, d.max_rows, 0, &all);
	ck_assert_uint_gt(all.misses, 0);
	ck_assert_uint_gt(best.misses, all.misses);
	for (const struct rule *rule = rules; rule->name; rule++) {
		rule_run(rule, &d, 2 * t.top_k, 0, &counts);
		ck_assert_msg(counts.misses >= best.misses, "%s", rule->name);
		ck_assert_msg(counts.victims == counts.misses - 2 * t.top_k, "%s", rule->name);
		rule_run(rule, &d, d.max_rows, 0, &counts);
		ck_assert_msg(counts.misses == all.misses, "%s", rule->name);
	}
	demand_close(&d);
	trace_free(&t);
}
END_TEST

/* ---- files --------------------------------------------------------------------------- */

static const struct wanted wanted = { .session = 0, .group = 1, .most_top_k = 3 };

static void write_file(char *path, const char *text)
{
	int file = mkstemp(path);
	size_t bytes = strlen(text);

	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(write(file, text, bytes), (ssize_t)bytes);
	ck_assert_int_eq(close(file), 0);
}

START_TEST(test_read)
{
	char path[] = "/tmp/check_hit_rate.XXXXXX";
	struct trace_refusal why = { "" };
	struct trace t;

	write_file(path, "selections 1 2\n"
	                 "0 0 0 5 1 1 2\n"
	                 "0 1 0 5 1 3 -1\n"
	                 "0 1 1 9 1 1 2\n"
	                 "1 1 0 6 2 0 1  7 2147483647 \r\n"
	                 "2 1 0 8 1 8 0");
	ck_assert_msg(trace_read(&t, path, &wanted, &why) == 0, "%s", why.text);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_uint_eq(t.top_k, 2);
	ck_assert_uint_eq(t.plans, 3);
	ck_assert_uint_eq(trace_end(&t), 9);
	ck_assert_uint_eq(t.plan[1].queries, 2);
	ck_assert_int_eq(t.plan[0].rows[1], -1);
	ck_assert_int_eq(t.plan[1].rows[2], 7);
	ck_assert_int_eq(t.plan[2].rows[0], 8);
	trace_free(&t);
}
END_TEST

static const struct {
	const char *text, *says;
} refused[] = {
	{ "", "not what decode" },
	{ "selections 2 2\n", "not what decode" },
	{ "selections 1 0\n", ":1: no number from 1" },
	{ "selections 1 4\n", ":1: top-k is 4; at most 3" },
	{ "selections 1 2 3\n", ":1: more than the line should have, from column 16" },
	{ "selections 1 2\n0 1 0 5 1 3 4\n1 1 0 6 17 0 0\n",
	  ":3: 17 queries; the library takes at most 16" },
	{ "selections 1 2\n0 0 7 5 17 0 0\n", ":2: 17 queries" },
	{ "selections 1 2\n0 1 0 5 0\n", ":2: no number from 1" },
	{ "selections 1 2\n0 1 0 1073741824 1 3 4\n", ":2: 1073741824 rows and 1 new ones" },
	{ "selections 1 2\n0 1 0 5 1 3\n", ":2: no number from -1" },
	{ "selections 1 2\n0 1 0 5 1 3 4 5\n", ":2: more than the line should have, from column 15" },
	{ "selections 1 2\n0 1 0 5 1 3 4 rows\n", ":2: more than" },
	{ "selections 1 2\n0 0 0 5 1 3 4 5\n", ":2: more than" },
	{ "selections 1 2\n0 1 0 5 1 3 4x\n", ":2: no number from -1" },
	{ "selections 1 2\n0 1 0 5 1 3.5 4\n", ":2: no number from -1" },
	{ "selections 1 2\n0 1 0 5 1 3 4\n1 1 0 7 1 0 0\n",
	  ":3: a step from 7 rows on, after one to 6" },
};

START_TEST(test_refused)
{
	char path[] = "/tmp/check_hit_rate.XXXXXX";
	struct trace_refusal why = { "" };
	struct trace t;

	write_file(path, refused[_i].text);
	ck_assert_int_eq(trace_read(&t, path, &wanted, &why), -1);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_msg(strstr(why.text, refused[_i].says) != NULL, "%s", why.text);
	ck_assert_ptr_null(t.plan);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hit rate");
	TCase *rule = tcase_create("rules"), *file = tcase_create("files");

	tcase_set_timeout(rule, support_seconds(20));
	tcase_add_test(rule, test_any);
	tcase_add_test(rule, test_class);
	tcase_add_test(rule, test_bound);
	suite_add_tcase(suite, rule);
	tcase_set_timeout(file, support_seconds(20));
	tcase_add_test(file, test_read);
	tcase_add_loop_test(file, test_refused, 0, COUNT_OF(refused));
	suite_add_tcase(suite, file);
	return support_run(suite);
}
