/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* What the machine has, by hwloc. */
#ifndef DHS_LIB_MACHINE_H
#define DHS_LIB_MACHINE_H

#include <stdint.h>

/* Bytes of memory of all nodes that this process may use; 0 if unknown. */
uint64_t dhs_machine_memory(void);

#endif
