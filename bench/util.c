/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#include "util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void bench_die(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

void *bench_zeros(uint64_t count, uint64_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		bench_die("no memory for %" PRIu64 " x %" PRIu64 " bytes", count, size);
	return memory;
}

uint64_t bench_draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t bench_nth(uint64_t *x, uint32_t count, uint32_t n)
{
	uint64_t *low = x, *high = x + count - 1, *want = x + n - 1;

	while (low < high) {
		uint64_t *i = low, *j = high, pivot = low[(high - low) / 2];

		while (i <= j) {
			while (*i < pivot)
				i++;
			while (*j > pivot)
				j--;
			if (i <= j) {
				uint64_t t = *i;

				*i++ = *j;
				*j-- = t;
			}
		}
		if (want <= j)
			high = j;
		else if (want >= i)
			low = i;
		else
			break;
	}
	return *want;
}
