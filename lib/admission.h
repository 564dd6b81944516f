/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Whether a session can be created, and what that takes from others: said before it is
 * asked for, and by the same words when it is.  Host room is judged first, since device pages
 * can be taken back and host records cannot.
 */
#ifndef DHS_LIB_ADMISSION_H
#define DHS_LIB_ADMISSION_H

#include "context.h"

/* What creating a session that reserves `reserve` pages would meet with now. */
void dhs_admission_judge(const dhs_context *context, uint32_t reserve, dhs_admission *admission);

/* DHS_OK if a session that was judged so can be created; else why not, which counts as a
 * refusal unless it is pending. */
int dhs_admission_check(dhs_context *context, const dhs_admission *admission);

#endif
