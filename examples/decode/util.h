/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#ifndef DECODE_UTIL_H
#define DECODE_UTIL_H

#include <stddef.h>
#include <stdint.h>

/* Exit statuses of the program. */
enum {
	STATUS_MISMATCH = 1, /* --check or --report found a difference */
	STATUS_USAGE = 2,    /* an option or a file is not as it must be */
	STATUS_LIBRARY = 3   /* a call into the library failed, or memory ran out */
};

/* Prints "decode: ..." on stderr and exits. */
_Noreturn void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* count * size bytes of zeros; dies when there are none. */
void *zeros(size_t count, size_t size);

/* A whole file, its size in *size and one NUL byte behind it; dies when it cannot be read. */
unsigned char *read_file(const char *path, size_t *size);

/* Seconds since some point in the past. */
double seconds(void);

#endif
