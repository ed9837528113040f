/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * driver_bridge.c - memory for check_plans and check_outputs that the host and a real GPU have at
 * the same addresses
 *
 * Behind their stand-in of the driver these programs take memory of the host for that of the
 * device: aligned_alloc(256, n). This library is preloaded, and takes such memory from an arena
 * that is pinned and mapped; and it is the driver of these programs (DRIVER): libcuda.so.1, which
 * it needs, but for copies, which may be between addresses of the arena.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *p);

enum { ALIGN = 256, ARENA = 1 << 30, PORTABLE = 1, MAPPED = 2 };

/* In front of a piece of the arena; the next one follows it. */
struct arena_piece {
	size_t bytes; /* without this */
	int used;
};
static char *arena;

static void *call(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static struct arena_piece *piece_at(size_t at)
{
	return (struct arena_piece *)(void *)(arena + at);
}

static void require(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "bridge: %s: %d\n", what, result);
	_Exit(96);
}

/* Pins the arena; its addresses must be the GPU's, too. */
static void open_arena(void)
{
	int device;
	void *context, *memory = NULL;
	uint64_t address;
	int (*address_of)(uint64_t *, void *, unsigned) =
		(int (*)(uint64_t *, void *, unsigned))call("cuMemHostGetDevicePointer_v2");
	require(((int (*)(unsigned))call("cuInit"))(0), "cuInit");
	require(((int (*)(int *, int))call("cuDeviceGet"))(&device, 0), "cuDeviceGet");
	require(((int (*)(void **, int))call("cuDevicePrimaryCtxRetain"))(&context, device),
	        "cuDevicePrimaryCtxRetain");
	require(((int (*)(void *))call("cuCtxPushCurrent_v2"))(context), "cuCtxPushCurrent");
	require(((int (*)(void **, size_t, unsigned))call("cuMemHostAlloc"))(&memory, ARENA,
	                                                                     PORTABLE | MAPPED),
	        "cuMemHostAlloc");
	/* the stand-in does without */
	if (address_of && (address_of(&address, memory, 0) || address != (uintptr_t)memory))
		require(1, "addresses of the host are not those of the GPU");
	require(((int (*)(void **))call("cuCtxPopCurrent_v2"))(&context), "cuCtxPopCurrent");
	arena = memory;
	*piece_at(0) = (struct arena_piece){ ARENA - ALIGN, 0 };
}

/* The first piece that is free and large enough; free ones behind each other become one. */
static void *take(size_t bytes)
{
	bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	for (size_t next, at = 0; at < ARENA; at = next) {
		struct arena_piece *p = piece_at(at);
		next = at + ALIGN + p->bytes;
		while (!p->used && next < ARENA && !piece_at(next)->used) {
			p->bytes += ALIGN + piece_at(next)->bytes;
			next = at + ALIGN + p->bytes;
		}
		if (p->used || p->bytes < bytes)
			continue;
		if (p->bytes > bytes + ALIGN) {
			*piece_at(at + ALIGN + bytes) =
				(struct arena_piece){ p->bytes - bytes - ALIGN, 0 };
			p->bytes = bytes;
		}
		p->used = 1;
		return (char *)p + ALIGN;
	}
	return NULL;
}

void *aligned_alloc(size_t align, size_t bytes)
{
	static int opens; /* the driver may call this */
	if (align != ALIGN || opens)
		return __libc_memalign(align, bytes);
	if (!arena) {
		opens = 1;
		open_arena();
		opens = 0;
	}
	return take(bytes);
}

void free(void *p)
{
	if (arena && (char *)p >= arena && (char *)p < arena + ARENA)
		((struct arena_piece *)(void *)((char *)p - ALIGN))->used = 0;
	else
		__libc_free(p);
}

/* A copy between addresses of any kind; the stand-in knows none. */
static int copy(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	int (*any)(uint64_t, uint64_t, size_t,
	           void *) = (int (*)(uint64_t, uint64_t, size_t, void *))call("cuMemcpyAsync");
	return any ? any(to, from, bytes, stream) : -1;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
	const int result = copy(to, (uintptr_t)from, bytes, stream);
	return result >= 0 ? result
	                   : ((int (*)(uint64_t, const void *, size_t, void *))call(
				     "cuMemcpyHtoDAsync_v2"))(to, from, bytes, stream);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
	const int result = copy((uintptr_t)to, from, bytes, stream);
	return result >= 0 ? result
	                   : ((int (*)(void *, uint64_t, size_t, void *))call(
				     "cuMemcpyDtoHAsync_v2"))(to, from, bytes, stream);
}
