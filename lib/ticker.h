/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * A thread of the library that makes a context's ticks, for engines that have no place for
 * dhs_context_advance.  It and the calls have the context in turn, by a mutex that a call
 * takes with its guard (context.h) and the thread does not hold while it sleeps.
 */
#ifndef DHS_LIB_TICKER_H
#define DHS_LIB_TICKER_H

#include <dhisparse/dhisparse.h>

#include <pthread.h>

struct dhs_ticker {
	uint32_t us; /* from one tick to the next; 0: no thread, and nothing below is in use */
	pthread_t thread;
	pthread_mutex_t inside; /* whose it is has the context */
	pthread_cond_t wake;    /* stop is set */
	int stop;
};

/* The last thing that a creation does: from here on the context is shared. */
int dhs_ticker_start(dhs_context *context, uint32_t us);
/* The first thing that its end does. */
void dhs_ticker_stop(dhs_context *context);

#endif
