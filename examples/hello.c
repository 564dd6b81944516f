/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
/* A session of 100 rows, most of them in host memory, takes two steps that read four rows each. */
#include <dhisparse/dhisparse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 100, STEPS = 2, TOP_K = 4, ROW_BYTES = 64 };

static dhs_place at = { .size = sizeof(at) }; /* where slots lie */

static unsigned char *row_at(int32_t slot)
{
	uint32_t page = (uint32_t)slot / at.page_rows, row = (uint32_t)slot % at.page_rows;
	return (unsigned char *)at.base + page * at.page_stride + row * at.row_stride;
}

static void must(int result)
{
	if (result != DHS_OK) {
		fprintf(stderr, "hello: %s\n", dhs_last_error());
		exit(1);
	}
}

int main(void)
{
	/* clang-format off */
	dhs_segment segment = { .bytes = ROW_BYTES };
	dhs_layout layout = { .size = sizeof(layout), .layers = 1, .segments = 1, .segment = &segment,
	                      .segment_size = sizeof(segment), .page_rows = 8 };
	dhs_context_options options = { .size = sizeof(options), .layout = &layout, .hot_rows = 8,
	                                .policy = DHS_POLICY_FIXED, .backend = DHS_BACKEND_HOST,
	                                .max_rows = PROMPT + STEPS, .max_new_rows = 1, .tail_rows = 16,
	                                .device_pages = 20, .host_rows = 128 };
	/* clang-format on */
	dhs_batch_options sizes = { .size = sizeof(sizes), .max_sessions = 1, .top_k = TOP_K };
	dhs_stats stats = { .size = sizeof(stats) };
	dhs_context *context;
	dhs_session session;
	dhs_batch *batch;
	int32_t slots[PROMPT], selected[TOP_K] = { 3, 50, PROMPT - 1 };

	must(dhs_context_create(&options, &context));
	must(dhs_context_place(context, 0, 0, &at));
	must(dhs_batch_create(context, &sizes, &batch));
	must(dhs_session_create(context, NULL, &session));

	/* The prompt: ask where its rows go, write them there, say that they are written. */
	must(dhs_session_extend(context, session, PROMPT, NULL, slots));
	for (int row = 0; row < PROMPT; row++)
		memset(row_at(slots[row]), row, ROW_BYTES);
	must(dhs_session_commit(context, session, PROMPT, NULL));

	for (int row = PROMPT; row < PROMPT + STEPS; row++) { /* a step writes this row */
		dhs_step_entry entry = { session, 1, 1 };         /* one new row, one query */
		dhs_selection query = { .size = sizeof(query), .rows = selected, .slots = slots };
		uint32_t kept = 1;
		dhs_step step;

		selected[3] = row; /* a query may read its own row */
		must(dhs_step_begin(batch, &entry, 1, sizeof(entry), NULL, &step));
		must(dhs_step_slots(batch, 1, 1, slots + TOP_K, NULL));
		must(dhs_step_resolve(batch, 0, &query, NULL));
		/* This device runs work at once; on any other, wait for the stream here. */
		memset(row_at(slots[TOP_K]), row, ROW_BYTES);
		for (int i = 0; i < TOP_K; i++)
			if (*row_at(slots[i]) != selected[i])
				return 1;
		must(dhs_step_end(context, step, &kept, 1));
	}
	must(dhs_context_wait(context));
	must(dhs_context_stats(context, &stats));
	printf("%d rows read: %d in pages on the device, %d in the hot cache, %d from the host\n",
	       STEPS * TOP_K, (int)stats.page_hits, (int)stats.hot_hits, (int)stats.misses);
	dhs_context_destroy(context);
	return 0;
}
