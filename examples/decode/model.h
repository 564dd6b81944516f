/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* The model of examples/tiny-dsa; its README.md has the format and names these tensors. */
#ifndef DECODE_MODEL_H
#define DECODE_MODEL_H

#include "maths.h"

#include <stdbool.h>
#include <stdint.h>

struct layer {
	bool leader; /* has an indexer, and chooses the rows for its group */
	float *n1, *nkv, *n2, *nik;
	struct matrix wq, wkva, wo, w1, w3, w2;
	struct matrix *wkb, *wvb; /* of each head: query to latent, latent to value */
	struct matrix iq, ik, iw;
};

struct model {
	int vocab, width, layers, heads;
	int nope, rotary, value; /* numbers of a head: query without and with rotation, value */
	int latent;              /* a KV row is `latent` numbers, then `rotary` */
	int hidden;              /* of the feed-forward part */
	int group;               /* layers that share a selection */
	int index_heads, index_width, top_k;
	float theta;

	int groups;         /* layers / group */
	int row_numbers;    /* latent + rotary */
	float *embedding;   /* [vocab][width] */
	struct matrix head; /* the same as a matrix */
	struct layer *layer;
	float *nf;
};

/* Dies, with what is wrong, when the file is not a model. */
struct model *model_load(const char *path);
void model_free(struct model *m);

#endif
