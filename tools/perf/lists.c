/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "lists.h"

#include "util.h"

#include <stdbool.h>
#include <stdlib.h>

#define WORD 64

static uint32_t random_below(struct lists *l, uint32_t n)
{
	uint64_t z = l->seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)(((z ^ (z >> 31)) >> 32) * n >> 32);
}

void lists_open(struct lists *l, size_t room, size_t records)
{
	*l = (struct lists){ .room = room };
	CU(cudaHostAlloc((void **)&l->host, room * sizeof(*l->host), cudaHostAllocDefault));
	l->device = new_on_device(room * sizeof(*l->device));
	l->bits = new_zeroed(records / WORD + 1, sizeof(*l->bits));
}

void lists_close(struct lists *l)
{
	CU(cudaFreeHost(l->host));
	CU(cudaFree(l->device));
	free(l->bits);
}

void lists_reset(struct lists *l)
{
	l->used = 0;
}

uint32_t *lists_next(struct lists *l)
{
	return l->host + l->used;
}

const uint32_t *lists_upload(struct lists *l, size_t count, cudaStream_t stream)
{
	uint32_t *to = l->device + l->used;

	if (count > l->room - l->used)
		die(STATUS_FAILED, "a list of %zu entries does not fit", count);
	CU(cudaMemcpyAsync(to, l->host + l->used, count * sizeof(*to), cudaMemcpyHostToDevice, stream));
	l->used += count;
	return to;
}

/* False if it was set before. */
static bool set_bit(struct lists *l, uint32_t record)
{
	uint64_t bit = (uint64_t)1 << record % WORD, old = l->bits[record / WORD];

	l->bits[record / WORD] = old | bit;
	return !(old & bit);
}

size_t lists_draw(struct lists *l, const struct list_load *load, uint32_t *list)
{
	size_t count = 0;

	for (uint32_t s = 0; s < load->sessions; s++)
		for (uint32_t i = 0; i < load->each; i++) {
			uint32_t record;

			do
				record = s * load->rows + random_below(l, load->span);
			while (!set_bit(l, record));
			list[count++] = record;
		}
	for (size_t i = 0; i < count; i++)
		l->bits[list[i] / WORD] = 0;
	return count;
}

void lists_sort(struct lists *l, uint32_t *list, size_t count)
{
	size_t done = 0;

	for (size_t i = 0; i < count; i++)
		set_bit(l, list[i]);
	for (size_t w = 0; done < count; w++) {
		uint64_t bits = l->bits[w];

		for (l->bits[w] = 0; bits; bits &= bits - 1)
			list[done++] = (uint32_t)(w * WORD + (size_t)__builtin_ctzll(bits));
	}
}

void lists_shuffle(struct lists *l, uint32_t *list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = random_below(l, i + 1);

		list[i] = list[j];
		list[j] = i;
	}
}
