/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void die(int status, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("decode: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(status);
}

void *zeros(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size ? size : 1);

	if (!memory)
		die(STATUS_LIBRARY, "no memory for %zu x %zu bytes", count, size);
	return memory;
}

unsigned char *read_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	unsigned char *bytes = NULL;
	size_t room = 0, used = 0, got;

	if (!file)
		die(STATUS_USAGE, "%s: %s", path, strerror(errno));
	do {
		if (room - used < 2) {
			room = room ? 2 * room : 65536;
			bytes = realloc(bytes, room);
			if (!bytes)
				die(STATUS_LIBRARY, "%s: no memory", path);
		}
		got = fread(bytes + used, 1, room - used - 1, file);
		used += got;
	} while (got);
	if (ferror(file))
		die(STATUS_USAGE, "%s: %s", path, strerror(errno));
	fclose(file);
	bytes[used] = 0;
	*size = used;
	return bytes;
}

double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
