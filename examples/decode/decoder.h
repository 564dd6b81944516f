/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */
#ifndef DECODE_DECODER_H
#define DECODE_DECODER_H

#include "model.h"
#include "rows.h"

/* A model at work on sessions that come and go.  Their KV rows are in `rows`; the indexer's keys,
 * which every step reads all of, stay here. */
struct decoder;

struct decoder *decoder_open(const struct model *model, struct rows *rows, int seats, int max_rows,
                             int max_new_rows);
void decoder_close(struct decoder *d);

/* As those of rows.h. */
bool decoder_arrive(struct decoder *d, int seat);
void decoder_leave(struct decoder *d, int seat);

/* One step: tokens[session][new_rows] are the next bytes of each session.  Returns the logits
 * [session][new_rows][vocab] behind each of them, valid until the next step. */
const float *decoder_step(struct decoder *d, const struct step *step, const uint8_t *tokens);

#endif
