/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Errors in words.  Every failure in the library goes through dhs_fail. */
#ifndef DHS_LIB_ERROR_H
#define DHS_LIB_ERROR_H

#include <dhisparse/dhisparse.h>

/* Keeps the text as the thread's last error and returns `code`. */
int dhs_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
