/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * dhisparse-perf: what the link to host memory allows on this machine's GPU, and what each
 * call of libdhisparse costs beside it.  Uses the public interface only, as an engine does.
 */
#include "families.h"
#include "util.h"

#include <stdio.h>
#include <stdlib.h>

static void device_select(int device)
{
	int count = 0;
	cudaError_t rc = cudaGetDeviceCount(&count);

	if (rc == cudaSuccess && device >= count && count)
		die(STATUS_USAGE, "--device %d: CUDA counts 0 to %d here", device, count - 1);
	if (rc == cudaSuccess)
		rc = cudaSetDevice(device);
	if (rc != cudaSuccess)
		die(STATUS_USAGE, "no usable GPU: %s", cudaGetErrorString(rc));
}

static void device_open(struct run *run)
{
	struct cudaDeviceProp p;
	struct report *r = &run->report;

	device_select(run->options.device);
	CU(cudaGetDeviceProperties(&p, run->options.device));
	CU(cudaDriverGetVersion(&r->driver));
	CU(cudaRuntimeGetVersion(&r->runtime));
	CU(cudaDeviceGetStreamPriorityRange(&run->low, &run->high));
	CU(cudaStreamCreateWithFlags(&run->stream, cudaStreamNonBlocking));
	snprintf(r->device, sizeof(r->device), "%s", p.name);
	r->multiprocessors = p.multiProcessorCount;
}

static void title(const struct run *run)
{
	const struct report *r = &run->report;

	report_text(r,
	            "%s, %d multiprocessors; CUDA driver %d.%d, runtime %d.%d; libdhisparse %s\n"
	            "%.1f GiB pinned in %.1f s; GB are 10^9 bytes; times are medians of %u samples\n",
	            r->device, r->multiprocessors, r->driver / 1000, r->driver % 1000 / 10,
	            r->runtime / 1000, r->runtime % 1000 / 10, dhs_version_string(),
	            (double)run->arena.bytes / (double)GIB, run->arena.pin_seconds,
	            run->options.repeat);
}

static void measure_all(struct run *run)
{
	static const struct {
		unsigned families;
		void (*measure)(struct run *run);
	} all[] = {
		{ 1u << FAMILY_KNEE, measure_knee },
		{ 1u << FAMILY_NAIVE, measure_naive },
		{ 1u << FAMILY_TRANSLATIONS, measure_translations },
		{ 1u << FAMILY_PLAN | 1u << FAMILY_FETCH | 1u << FAMILY_RESOLVE | 1u << FAMILY_SMALL,
		  measure_resolve },
		{ 1u << FAMILY_QUERIES, measure_queries },
		{ 1u << FAMILY_BACKUP, measure_backup },
		{ 1u << FAMILY_EVICT, measure_evict },
		{ 1u << FAMILY_STEP, measure_step },
		{ 1u << FAMILY_BESIDE, measure_beside },
		{ 1u << FAMILY_LEADER, measure_leader },
	};

	/* Always: all shares are of the copy in the same run. */
	measure_copy(run);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (run->options.families & all[i].families)
			all[i].measure(run);
}

/* The file as soon as it can be: nothing that is told later may cost it. */
static void report_all(struct report *r, FILE *json, const struct earlier *before)
{
	report_targets(r);
	if (json)
		report_write(r, json);
	if (before->path)
		report_compare(r, before);
	report_text(r, "\n%.0f s in all\n", r->seconds);
}

int main(int argc, char **argv)
{
	static struct run run;
	struct earlier before = { 0 };
	FILE *json = NULL;
	double from = now_us();

	options_read(argc, argv, &run.options);
	/* Before anything is measured: a wrong file must not cost a run. */
	if (run.options.compare)
		report_read(run.options.compare, &before);
	if (run.options.json)
		json = report_open(run.options.json);
	run.report.options = &run.options;
	run.report.arena = &run.arena;
	run.report.out = json == stdout ? NULL : stdout;
	device_open(&run);
	arena_open(&run.arena, run.options.pool_gib);
	title(&run);
	measure_all(&run);
	run.report.seconds = (now_us() - from) / 1e6;
	report_all(&run.report, json, &before);
	arena_close(&run.arena);
	CU(cudaStreamDestroy(run.stream));
	free(run.report.cell);
	free(before.cell);
	if (fflush(stdout) || ferror(stdout))
		die(STATUS_USAGE, "standard output cannot be written");
	return 0;
}
