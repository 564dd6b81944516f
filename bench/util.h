/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#ifndef BENCH_UTIL_H
#define BENCH_UTIL_H

#include <stdint.h>

/* Prints the words on stderr and exits. */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Memory of zeros; exits if there is none. */
void *bench_zeros(uint64_t count, uint64_t size);

/* The next random number: splitmix64. */
uint64_t bench_draw(uint64_t *state);

/* The n-th smallest of the numbers, n from 1 on; moves them about. */
uint64_t bench_nth(uint64_t *x, uint32_t count, uint32_t n);

#endif
