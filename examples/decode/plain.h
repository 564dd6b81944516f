/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#ifndef DECODE_PLAIN_H
#define DECODE_PLAIN_H

#include "model.h"
#include "rows.h"

/* Rows in plain arrays, every one for ever at the same place. */
struct rows *plain_open(const struct model *model, int seats, int max_rows, int max_new_rows);
void plain_close(struct rows *rows);

#endif
