/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What every file of the tool needs: ends with a message, checked calls, memory. */
#ifndef PERF_UTIL_H
#define PERF_UTIL_H

#include <cuda_runtime_api.h>
#include <dhisparse/dhisparse.h>

#include <stddef.h>

#define GIB ((size_t)1 << 30)
#define GB 1e9

enum { STATUS_USAGE = 2, STATUS_FAILED = 3 };

__attribute__((noreturn, format(printf, 2, 3))) void die(int status, const char *format, ...);
/* Progress and warnings, on stderr. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

void check_cuda(cudaError_t rc, const char *call, const char *file, int line);
void check_library(int rc, const char *call, const char *file, int line);
#define CU(call) check_cuda(call, #call, __FILE__, __LINE__)
#define LIB(call) check_library(call, #call, __FILE__, __LINE__)

void *new_zeroed(size_t count, size_t bytes);
/* Zeroed device memory. */
void *new_on_device(size_t bytes);

#endif
