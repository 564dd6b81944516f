/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The memory that kernels read and write but rows and records: tables, results, uploads. */
#ifndef DHS_LIB_TABLES_H
#define DHS_LIB_TABLES_H

#include "context.h"

/* Allocates all of it; a null context measures. */
void dhs_tables_new(dhs_context *context, struct dhs_blocks *blocks, struct dhs_world *world,
                    uint32_t chunks, struct dhs_upload *upload);

/* The same for a context, with what the tables hold before any work. */
int dhs_tables_open(dhs_context *context, uint32_t chunks);

#endif
