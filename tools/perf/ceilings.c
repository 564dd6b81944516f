/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What the machine allows, whatever the library does: copies, and launches of nothing. */
#include "families.h"
#include "util.h"

#include <stdio.h>

#define COPY_BYTES GIB
#define NODES 64

static void add(struct run *run, struct cell *cell)
{
	report_add(&run->report, cell);
	report_line(&run->report, cell);
}

static void copy(struct run *run, enum way way, void *device)
{
	size_t bytes = COPY_BYTES < run->arena.bytes ? COPY_BYTES : run->arena.bytes;
	const char *name = way == WAY_TO_DEVICE ? "host to device" : "device to host";
	struct cell cell = cell_named("copy", "", 0, 0, "1 GiB", name, "call");
	struct samples samples = { 0 };
	struct stopwatch watch;
	double us;

	stopwatch_open(&watch);
	for (uint32_t i = 0; i < run->options.repeat + 2; i++) {
		stopwatch_start(&watch, run->stream);
		if (way == WAY_TO_DEVICE)
			CU(cudaMemcpyAsync(device, run->arena.host, bytes, cudaMemcpyHostToDevice,
			                   run->stream));
		else
			CU(cudaMemcpyAsync(run->arena.host, device, bytes, cudaMemcpyDeviceToHost,
			                   run->stream));
		stopwatch_lap(&watch, run->stream);
		stopwatch_read(&watch, &us);
		if (i >= 2)
			samples_add(&samples, us);
	}
	cell.us = samples_spread(&samples);
	cell.bytes = (double)bytes;
	cell.way = way;
	run->report.copy[way] = cell_rate(&cell);
	add(run, &cell);
	stopwatch_close(&watch);
	samples_free(&samples);
}

/* An empty kernel: with the stream idle, and enqueued ahead as all that is timed here. */
static void empty_kernel(struct run *run, bool idle)
{
	struct cell cell =
		cell_named("copy", "", 0, 0, idle ? "idle stream" : "busy stream", "empty kernel", "call");
	struct samples samples = { 0 };
	struct stopwatch watch;
	double us;

	stopwatch_open(&watch);
	for (uint32_t i = 0; i < 4 * run->options.repeat; i++) {
		if (idle)
			stopwatch_start_idle(&watch, run->stream);
		else
			stopwatch_start(&watch, run->stream);
		CU(kernel_empty(run->stream));
		stopwatch_lap(&watch, run->stream);
		stopwatch_read(&watch, &us);
		samples_add(&samples, us);
	}
	cell.us = samples_spread(&samples);
	if (!idle)
		run->report.empty_us = cell.us.median;
	add(run, &cell);
	stopwatch_close(&watch);
	samples_free(&samples);
}

static cudaGraphExec_t empty_graph(struct run *run, int nodes)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CU(cudaStreamBeginCapture(run->stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < nodes; i++)
		CU(kernel_empty(run->stream));
	CU(cudaStreamEndCapture(run->stream, &graph));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphDestroy(graph));
	return exec;
}

static void time_graph(struct run *run, struct stopwatch *watch, cudaGraphExec_t graph,
                       struct samples *samples)
{
	double us;

	stopwatch_start(watch, run->stream);
	CU(cudaGraphLaunch(graph, run->stream));
	stopwatch_lap(watch, run->stream);
	stopwatch_read(watch, &us);
	samples_add(samples, us);
}

static void empty_nodes(struct run *run)
{
	struct cell node = cell_named("copy", "", 0, 0, "one more node", "empty kernel", "graph");
	struct cell one = cell_named("copy", "", 0, 0, "one node", "empty kernel", "graph");
	cudaGraphExec_t many = empty_graph(run, NODES), single = empty_graph(run, 1);
	struct samples whole = { 0 }, part = { 0 };
	struct stopwatch watch;

	stopwatch_open(&watch);
	for (uint32_t i = 0; i < 2 * run->options.repeat; i++) {
		time_graph(run, &watch, many, &whole);
		time_graph(run, &watch, single, &part);
	}
	one.us = samples_spread(&part);
	node.us = samples_marginal(&whole, &part, NODES - 1);
	add(run, &one);
	add(run, &node);
	CU(cudaGraphExecDestroy(many));
	CU(cudaGraphExecDestroy(single));
	stopwatch_close(&watch);
	samples_free(&whole);
	samples_free(&part);
}

void measure_copy(struct run *run)
{
	void *device = new_on_device(COPY_BYTES);

	report_head(&run->report, "Ceilings: cudaMemcpyAsync, and empty kernels event to event");
	copy(run, WAY_TO_DEVICE, device);
	copy(run, WAY_TO_HOST, device);
	empty_kernel(run, true);
	empty_kernel(run, false);
	empty_nodes(run);
	CU(cudaFree(device));
}
