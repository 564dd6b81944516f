/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void print(const char *format, va_list args)
{
	fflush(stdout);
	fputs("dhisparse-perf: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

void die(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print(format, args);
	va_end(args);
	exit(status);
}

void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print(format, args);
	va_end(args);
}

void check_cuda(cudaError_t rc, const char *call, const char *file, int line)
{
	if (rc != cudaSuccess)
		die(STATUS_FAILED, "%s:%d: %s: %s (%s)", file, line, call, cudaGetErrorString(rc),
		    cudaGetErrorName(rc));
}

void check_library(int rc, const char *call, const char *file, int line)
{
	if (rc != DHS_OK)
		die(STATUS_FAILED, "%s:%d: %s: %s (%s)", file, line, call, dhs_strerror(rc),
		    dhs_last_error());
}

void *new_zeroed(size_t count, size_t bytes)
{
	void *memory = calloc(count ? count : 1, bytes);

	if (!memory)
		die(STATUS_FAILED, "no memory for %zu x %zu bytes", count, bytes);
	return memory;
}

void *new_on_device(size_t bytes)
{
	void *memory = NULL;

	CU(cudaMalloc(&memory, bytes ? bytes : 1));
	CU(cudaMemset(memory, 0, bytes ? bytes : 1));
	CU(cudaDeviceSynchronize());
	return memory;
}
