/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#ifndef DECODE_RECORD_H
#define DECODE_RECORD_H

#include "model.h"
#include "rows.h"

/* Rows kept elsewhere, in `inner`, and every selection written to a file on its way there.
 *
 * The file is text.  Its first line is "selections 1 TOP_K"; then there is a line for each step,
 * layer group and session of the step, in this order, of numbers with a space between them:
 *
 *   STEP GROUP SESSION LENGTH QUERIES ROW...
 *
 * Sessions are numbered from 0 on as they arrive.  LENGTH is how many rows the session has before
 * the step, which adds QUERIES rows, one for each query; then come the TOP_K rows of each query,
 * positions of the session's history, new rows included, -1 where fewer are selected. */
struct rows *record_open(struct rows *inner, const char *path, const struct model *model,
                         int seats);
/* Leaves the inner rows open.  Dies if not all could be written. */
void record_close(struct rows *rows);

#endif
