/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Between the pieces of the emulation. */
#ifndef EMULATED_EMULATED_H
#define EMULATED_EMULATED_H

#include "driver_types.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dhs_host;

/* The device that all calls are about, one of the host backend; NULL: there is none now. */
void emulated_use(struct dhs_host *host);

/* Of block.cpp: the order of blocks and threads from now on. */
void emulated_shuffle(uint64_t seed);

/* Calls fn with a copy of the argument, in the stream's order. */
void emulated_enqueue(cudaStream_t stream, void (*fn)(void *copy), const void *argument,
                      size_t bytes);

/* Notes an error for cudaGetLastError, and returns it. */
cudaError_t emulated_error(cudaError_t error);

/* The driver's call of this name; NULL: there is none. */
void (*emulated_driver_call(const char *name))(void);

#ifdef __cplusplus
}
#endif

#endif
