/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/*
 * Kernels on the processor: the blocks of a grid one after the other, the threads of a block
 * as fibers, each with a stack of its own.  A fiber runs until it waits for others.
 */
#include "cuda_runtime.h"

#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the linker: where the section begins and ends. */
extern "C" unsigned char __start_emulated_shared[], __stop_emulated_shared[];

dim3 gridDim, blockIdx, threadIdx;

namespace
{

constexpr unsigned lanes = 32, most_threads = 1024;
constexpr size_t stack_bytes = 128 << 10;
/* Dynamic shared memory that a launch may ask for, at first and at all; behind it lies what
 * nobody may change. */
constexpr size_t usual_shared = 48 << 10, most_shared = 227 << 10, guard_bytes = 1024;
constexpr unsigned char guard = 0x5a;
constexpr unsigned most_blocks = 1 << 16;

/* Where threads wait for each other; the last to come lets all go on, in another round. */
struct meeting {
	unsigned here;
	uint64_t round;
};

/* What lanes bring to a meeting.  Those of the round before may still look at theirs. */
struct warp {
	meeting meets;
	const char *operation;
	uint64_t value[2][lanes];
};

struct fiber {
	void *at;             /* where it goes on; nullptr: it has not begun */
	unsigned stack;       /* of `stacks` */
	const meeting *waits; /* nullptr: for nothing */
	uint64_t round;       /* in which it waits */
	bool ended;
};

struct allowance {
	const void *kernel;
	size_t shared;
};

alignas(64) unsigned char stacks[most_threads][stack_bytes];
alignas(16) unsigned char dynamic[most_shared + guard_bytes];
unsigned spare[most_threads], spares; /* stacks that no fiber has */
fiber fibers[most_threads];
warp warps[most_threads / lanes];
meeting block;
unsigned current, live;
void *scheduler; /* where it goes on */
const emulated_launch *running;
allowance allowed[16];
uint64_t state = 1;

/* splitmix64 */
uint64_t draw()
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void shuffle(unsigned *order, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned j = unsigned(draw() % (i + 1));

		order[i] = order[j];
		order[j] = i;
	}
}

[[noreturn]] void wrong(const char *what, const char *more)
{
	fprintf(stderr, "# emulated GPU: block %u,%u, thread %u: %s%s\n", blockIdx.x, blockIdx.y,
	        threadIdx.x, what, more);
	abort();
}

/* ---- fibers ---- */

/* Saves where it is called in *from, and goes on at `to`. */
extern "C" void emulated_switch(void **from, void *to);

asm(".text\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "	push %rbp\n"
    "	push %rbx\n"
    "	push %r12\n"
    "	push %r13\n"
    "	push %r14\n"
    "	push %r15\n"
    "	mov %rsp, (%rdi)\n"
    "	mov %rsi, %rsp\n"
    "	pop %r15\n"
    "	pop %r14\n"
    "	pop %r13\n"
    "	pop %r12\n"
    "	pop %rbx\n"
    "	pop %rbp\n"
    "	ret\n");

void wait(const meeting *at, uint64_t round)
{
	fiber &me = fibers[current];

	me.waits = at;
	me.round = round;
	emulated_switch(&me.at, scheduler);
	me.waits = nullptr;
}

/* Of `all` that are to come; those that have ended are not waited for. */
void meet(meeting &at, unsigned all)
{
	if (++at.here < all) {
		wait(&at, at.round);
		return;
	}
	at.here = 0;
	at.round++;
}

void begin()
{
	fiber &me = fibers[current];

	running->thread(running);
	me.ended = true;
	spare[spares++] = me.stack;
	live--;
	if (live && block.here == live) {
		block.here = 0;
		block.round++;
	}
	emulated_switch(&me.at, scheduler);
	abort();
}

/* The first switch to it finds six registers, then where it begins.  It takes the stack that
 * was used last: most kernels need few of them, which then stay in the cache. */
void give_stack(fiber &f)
{
	void **top;

	f.stack = spare[--spares];
	/* Not all at the same place of a page, which would be the same place of the cache. */
	top = reinterpret_cast<void **>(stacks[f.stack] + stack_bytes - (f.stack % 32 + 1) * 320);
	*--top = nullptr;
	*--top = reinterpret_cast<void *>(begin);
	for (int r = 0; r < 6; r++)
		*--top = nullptr;
	f.at = top;
}

/* ---- blocks ---- */

bool can_go_on(const fiber &f)
{
	return !f.ended && (!f.waits || f.waits->round != f.round);
}

/* Whether any of the warp's threads could go on; they do as far as they can. */
bool run_warp(unsigned w)
{
	bool any = false;
	unsigned from = unsigned(draw() % lanes);

	for (unsigned l = 0; l < lanes; l++) {
		unsigned i = w * lanes + (l ^ from);

		if (i >= running->threads || !can_go_on(fibers[i]))
			continue;
		if (!fibers[i].at)
			give_stack(fibers[i]);
		current = threadIdx.x = i;
		emulated_switch(&scheduler, fibers[i].at);
		any = true;
	}
	return any;
}

/* A warp goes on for as long as the dice say; another may overtake it at any point. */
void run_threads()
{
	unsigned order[most_threads / lanes], n = (running->threads + lanes - 1) / lanes;

	while (live) {
		bool any = false;

		shuffle(order, n);
		for (unsigned i = 0; i < n; i++)
			while (run_warp(order[i])) {
				any = true;
				if (draw() % 4 == 0)
					break;
			}
		if (!any)
			wrong("threads wait for each other for ever", "");
	}
}

/* A new block finds what other kernels left there. */
void spoil_shared()
{
	int with = int(draw() & 0xff);

	memset(__start_emulated_shared, with, size_t(__stop_emulated_shared - __start_emulated_shared));
	memset(dynamic, with, running->shared);
	memset(dynamic + running->shared, guard, guard_bytes);
}

void run_block(unsigned index)
{
	blockIdx = dim3(index % running->grid.x, index / running->grid.x);
	spoil_shared();
	live = running->threads;
	block = {};
	memset(warps, 0, sizeof(warps));
	memset(fibers, 0, sizeof(fibers));
	for (spares = 0; spares < live; spares++)
		spare[spares] = spares;
	run_threads();
	for (size_t i = 0; i < guard_bytes; i++)
		if (dynamic[running->shared + i] != guard)
			wrong("wrote past its dynamic shared memory", "");
}

void run(void *copy)
{
	static unsigned order[most_blocks];
	unsigned blocks;

	running = static_cast<const emulated_launch *>(copy);
	gridDim = running->grid;
	blocks = gridDim.x * gridDim.y;
	shuffle(order, blocks);
	for (unsigned i = 0; i < blocks; i++)
		run_block(order[i]);
}

} // namespace

void *emulated_dynamic = dynamic;

/* ---- what kernels and launches call ---- */

void __syncthreads()
{
	meet(block, live);
}

const uint64_t *emulated_warp(const char *operation, uint64_t value)
{
	warp &w = warps[current / lanes];
	uint64_t *values = w.value[w.meets.round % 2];

	if (w.meets.here && strcmp(w.operation, operation))
		wrong("lanes of its warp are at another operation than ", operation);
	w.operation = operation;
	values[current % lanes] = value;
	meet(w.meets, lanes);
	return values;
}

void emulated_whole(unsigned mask)
{
	if (mask != ~0u)
		wrong("an operation of some lanes", "");
}

void emulated_shuffle(uint64_t seed)
{
	state = seed;
}

cudaError_t emulated_allow_shared(const void *kernel, int bytes)
{
	for (allowance &a : allowed)
		if (size_t(bytes) <= most_shared && (!a.kernel || a.kernel == kernel)) {
			a = { kernel, size_t(bytes) };
			return cudaSuccess;
		}
	return emulated_error(cudaErrorInvalidValue);
}

/* Whether a GPU would take it. */
static bool possible(const void *kernel, const emulated_launch &l)
{
	size_t most = usual_shared;

	for (const allowance &a : allowed)
		if (a.kernel == kernel)
			most = a.shared;
	return l.grid.x && l.grid.y && l.grid.y < 65536 && l.grid.z == 1 &&
	       uint64_t(l.grid.x) * l.grid.y <= most_blocks && l.threads && l.threads <= most_threads &&
	       l.shared <= most;
}

cudaError_t emulated_kernel(const void *kernel, const emulated_launch *launch, size_t bytes,
                            cudaStream_t stream)
{
	if (!possible(kernel, *launch))
		return emulated_error(cudaErrorInvalidConfiguration);
	emulated_enqueue(stream, run, launch, bytes);
	return cudaSuccess;
}
