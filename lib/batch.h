/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Batches: fixed addresses for the steps that use them. */
#ifndef DHS_LIB_BATCH_H
#define DHS_LIB_BATCH_H

#include "residency.h"

/* Frees all batches of a context whose work has passed. */
void dhs_batches_free(dhs_context *context);

#endif
