/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Sized structs: how they are read from and written to a caller who may have
 * been compiled against an older or a newer header. */
#ifndef DHS_LIB_OPTIONS_H
#define DHS_LIB_OPTIONS_H

#include "error.h"

/* Copies the struct at `from`, whose first word is its size, to `to` (`known`
 * bytes).  Bytes past `known` must be zero; fewer than `least`, the size in the
 * first version that had the struct, are an error. */
int dhs_options_read(const char *call, const char *name, const void *from, void *to, size_t known,
                     size_t least);

/* The same for one element, of `given` bytes, of an array of structs. */
int dhs_options_read_element(const char *call, const char *name, size_t index, const void *from,
                             size_t given, void *to, size_t known);

/* The pointer is not NULL and a multiple of `align`. */
int dhs_options_check_pointer(const char *call, const char *name, const void *pointer,
                              size_t align);

/* options->`name` is within its limits. */
int dhs_options_check_range(const char *call, const char *name, uint64_t value, uint64_t least,
                            uint64_t most);

/* Checks an output struct before anything is done, and fills it at the end; its
 * size word is the caller's and stays. */
int dhs_options_check_output(const char *call, const char *name, const void *to);
void dhs_options_write(const void *from, size_t known, void *to);

#endif
