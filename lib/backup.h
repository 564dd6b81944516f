/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Backup in the background: which pages of history a tick copies to the host, so that who
 * takes them back later need not.  How a page is copied, and what waits for that, is
 * residency.h's.
 */
#ifndef DHS_LIB_BACKUP_H
#define DHS_LIB_BACKUP_H

#include "context.h"

/* The work of a tick's copies, or NULL where ticks make none. */
int dhs_backup_new(dhs_context *context, struct dhs_work **work);
/* Copies what the link has room for in a tick. */
int dhs_backup_tick(dhs_context *context, struct dhs_work *work);

#endif
