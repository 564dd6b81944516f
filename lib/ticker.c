/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "context.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

static struct timespec now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t;
}

static struct timespec after(struct timespec t, uint32_t us)
{
	t.tv_sec += us / 1000000;
	t.tv_nsec += us % 1000000 * 1000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

static int earlier(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* Until the time, or until the thread is to end. */
static void sleep_until(struct dhs_ticker *t, const struct timespec *time)
{
	while (!t->stop && pthread_cond_timedwait(&t->wake, &t->inside, time) != ETIMEDOUT)
		;
}

/* One tick; of failures in a row the first is told. */
static void tick(dhs_context *context, int *failed)
{
	int rc = dhs_refill_tick(context);

	if (rc && !*failed && !context->lost)
		dhs_context_log(context, DHS_LOG_WARNING, "a tick of the library's thread failed: %s",
		                dhs_last_error());
	*failed = rc != DHS_OK;
}

static void *run(void *arg)
{
	dhs_context *context = arg;
	struct dhs_ticker *t = &context->ticker;
	struct timespec next = after(now(), t->us);
	int failed = 0;

	context->ops->thread_begin(context->device);
	pthread_mutex_lock(&t->inside);
	for (;;) {
		sleep_until(t, &next);
		if (t->stop || context->lost)
			break;
		tick(context, &failed);
		/* Ticks that a long call kept it from are not made up for. */
		next = after(next, t->us);
		if (earlier(next, now()))
			next = after(now(), t->us);
	}
	if (!t->stop)
		dhs_context_log(context, DHS_LOG_ERROR, "the library's thread ticks no more");
	pthread_mutex_unlock(&t->inside);
	return NULL;
}

/* Sleeps by a clock that nobody sets. */
static void open_ticker(struct dhs_ticker *t)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&t->inside, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &attr);
	pthread_condattr_destroy(&attr);
}

static void close_ticker(struct dhs_ticker *t)
{
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->inside);
	t->us = 0;
}

int dhs_ticker_start(dhs_context *context, uint32_t us)
{
	struct dhs_ticker *t = &context->ticker;
	sigset_t all, old;
	int rc;

	if (!us)
		return DHS_OK;
	open_ticker(t);
	t->us = us;
	/* The engine's signals are for the engine's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&t->thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		return DHS_OK;
	close_ticker(t);
	return dhs_fail(DHS_ERR_HOST_MEMORY,
	                "dhs_context_create: options->tick_us is %u; no thread can be started "
	                "(error %d)",
	                us, rc);
}

void dhs_ticker_stop(dhs_context *context)
{
	struct dhs_ticker *t = &context->ticker;

	if (!t->us)
		return;
	pthread_mutex_lock(&t->inside);
	t->stop = 1;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->inside);
	pthread_join(t->thread, NULL);
	close_ticker(t);
}
