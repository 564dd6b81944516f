/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#ifndef BENCH_LIBRARY_H
#define BENCH_LIBRARY_H

#include "rules.h"

/* The same plans in the library itself, on the host backend under the fixed policy: what it
 * counted from plan `from` on.  Exits if it refuses. */
void library_run(const struct demand *demand, uint32_t places, uint32_t from,
                 struct counts *counts);

#endif
