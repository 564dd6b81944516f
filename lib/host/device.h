/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * The host backend's asynchronous device: streams are queues of operations,
 * and which queue goes on next is drawn from the seed.  Operations run on the
 * thread that calls, under the device's lock.
 */
#ifndef DHS_LIB_HOST_DEVICE_H
#define DHS_LIB_HOST_DEVICE_H

#include <dhisparse/host.h>

#include "../backend.h"

/* Runs fn(copy of arg) in the stream's order; a capturing stream records it. */
void dhs_host_enqueue(dhs_host *host, dhs_stream stream, void (*fn)(void *copy), const void *arg,
                      size_t bytes);

/* DHS_OK for a live device. */
int dhs_host_check(const char *what, const dhs_host *host);

/* Runs all that can run. */
void dhs_host_idle(dhs_host *host);

/* Contexts hold a device; destroying it meanwhile is told. */
void dhs_host_hold(dhs_host *host);
void dhs_host_release(dhs_host *host);

/* As dhs_backend_ops has them; NULL is the default stream. */
int dhs_host_stream_check(dhs_host *host, dhs_stream stream, int *capturing);
int dhs_host_stream_wait(dhs_host *host, dhs_stream stream, dhs_event event);
int dhs_host_event_new(dhs_host *host, dhs_event *event);
void dhs_host_event_free(dhs_host *host, dhs_event event);
int dhs_host_event_record(dhs_host *host, dhs_event event, dhs_stream stream);
int dhs_host_event_query(dhs_host *host, dhs_event event, int *passed);
int dhs_host_event_sync(dhs_host *host, dhs_event event);

#endif
