/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* All memory that the library takes comes through here. */
#ifndef DHS_LIB_MEMORY_H
#define DHS_LIB_MEMORY_H

#include <dhisparse/dhisparse.h>

/* Alignment of every block: a cache line, and more than any device load needs. */
#define DHS_MEMORY_ALIGN 64

/* The C library's allocator behind the hook's shape. */
extern const dhs_allocator dhs_default_allocator;

/* NULL when there is none; bytes is at least 1.  dhs_memory_zeroed leaves large
 * default blocks to the kernel's own zero pages. */
void *dhs_memory_new(const dhs_allocator *allocator, uint32_t kind, size_t bytes);
void *dhs_memory_zeroed(const dhs_allocator *allocator, uint32_t kind, size_t bytes);
void dhs_memory_free(const dhs_allocator *allocator, uint32_t kind, void *memory, size_t bytes);

#endif
