/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Tags of live contexts: what tells a handle of one from a handle of another. */
#ifndef DHS_LIB_TAG_H
#define DHS_LIB_TAG_H

#include <stdint.h>

#define DHS_TAG_BITS 16

/* A tag that no live context has, and the one that has been unused for longest but
 * for those skipped; -1 if there is none. */
int32_t dhs_tag_take(void);
void dhs_tag_give(uint32_t tag);

#endif
