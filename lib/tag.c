/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "tag.h"

#include <pthread.h>

#define TAGS (UINT32_C(1) << DHS_TAG_BITS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t live[TAGS];
static uint32_t next;

int32_t dhs_tag_take(void)
{
	int32_t tag = -1;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; tag < 0 && i < TAGS; i++, next = (next + 1) % TAGS)
		if (!live[next])
			tag = (int32_t)next;
	if (tag >= 0)
		live[tag] = 1;
	pthread_mutex_unlock(&lock);
	return tag;
}

void dhs_tag_give(uint32_t tag)
{
	pthread_mutex_lock(&lock);
	live[tag] = 0;
	pthread_mutex_unlock(&lock);
}
