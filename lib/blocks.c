/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "context.h"

/* What empty blocks and measured ones point to: not NULL, not to be used. */
static max_align_t nothing;

static void *kind_new(dhs_context *context, uint32_t kind, size_t bytes, int zeroed)
{
	if (kind != DHS_MEMORY_CONTROL)
		return context->ops->memory_new(context->device, &context->allocator, kind, bytes, zeroed);
	return zeroed ? dhs_memory_zeroed(&context->allocator, kind, bytes)
	              : dhs_memory_new(&context->allocator, kind, bytes);
}

static void kind_free(dhs_context *context, uint32_t kind, void *memory, size_t bytes)
{
	if (kind != DHS_MEMORY_CONTROL)
		context->ops->memory_free(context->device, &context->allocator, kind, memory, bytes);
	else
		dhs_memory_free(&context->allocator, kind, memory, bytes);
}

void *dhs_blocks_new(dhs_context *context, struct dhs_blocks *blocks, uint32_t kind, size_t bytes,
                     int zeroed)
{
	struct dhs_block *block;

	if (blocks->failed)
		return NULL;
	blocks->bytes[kind] += bytes;
	if (!context || !bytes)
		return &nothing;
	blocks->failed = DHS_ERR_HOST_MEMORY;
	block = dhs_memory_new(&context->allocator, DHS_MEMORY_CONTROL, sizeof(*block));
	if (!block)
		return NULL;
	block->memory = kind_new(context, kind, bytes, zeroed);
	if (!block->memory) {
		if (kind == DHS_MEMORY_DEVICE)
			blocks->failed = DHS_ERR_DEVICE_MEMORY;
		dhs_memory_free(&context->allocator, DHS_MEMORY_CONTROL, block, sizeof(*block));
		return NULL;
	}
	blocks->failed = DHS_OK;
	block->bytes = bytes;
	block->kind = kind;
	block->next = blocks->first;
	blocks->first = block;
	return block->memory;
}

void dhs_blocks_free(dhs_context *context, struct dhs_blocks *blocks)
{
	struct dhs_block *next;

	for (struct dhs_block *b = blocks->first; b; b = next) {
		next = b->next;
		kind_free(context, b->kind, b->memory, b->bytes);
		dhs_memory_free(&context->allocator, DHS_MEMORY_CONTROL, b, sizeof(*b));
	}
	*blocks = (struct dhs_blocks){ 0 };
}

void *dhs_blocks_book(dhs_context *context, size_t bytes)
{
	return dhs_blocks_new(context, &context->blocks, DHS_MEMORY_CONTROL, bytes, 1);
}
