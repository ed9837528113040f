/* SPDX-License-Identifier: BSD-3-Clause */
/* alloc.c - aligned allocation on a user's allocator, counted against a limit */
#include "alloc.h"

#include <stdlib.h>
#include <string.h>

#include "ckd.h"

/* The head in front of each block: the pointer that the user's allocator returned, and the size. */
struct alloc_head {
	void *base;
	size_t bytes;
};
enum { ALIGN = 64 };

static void *default_alloc(void *opaque, size_t bytes)
{
	(void)opaque;
	return malloc(bytes);
}

static void default_free(void *opaque, void *ptr)
{
	(void)opaque;
	free(ptr);
}

void kvi_alloc_init(struct kvi_alloc *alloc, const kvarc_allocator *user, uint64_t limit)
{
	alloc->fn = user ? *user
	                 : (kvarc_allocator){ .alloc = default_alloc, .free = default_free };
	alloc->counted = alloc;
	alloc->limit = limit ? limit : KVI_MEMLIMIT_DEFAULT;
	atomic_init(&alloc->used, 0);
	atomic_init(&alloc->peak, 0);
	atomic_init(&alloc->hit_limit, 0);
	atomic_init(&alloc->needed, 0);
}

void *kvi_malloc(const struct kvi_alloc *shared, size_t bytes)
{
	struct kvi_alloc *a = shared->counted;
	size_t total;
	if (bytes == 0 || kvi_add(bytes, sizeof(struct alloc_head) + ALIGN, &total))
		return NULL;
	uint64_t used = atomic_fetch_add(&a->used, total) + total;
	if (used > a->limit) {
		atomic_fetch_sub(&a->used, total);
		atomic_store(&a->needed, used);
		atomic_store(&a->hit_limit, 1);
		return NULL;
	}
	void *base = a->fn.alloc(a->fn.opaque, total);
	if (!base) {
		atomic_fetch_sub(&a->used, total);
		return NULL;
	}
	uint64_t peak = atomic_load(&a->peak);
	while (used > peak && !atomic_compare_exchange_weak(&a->peak, &peak, used))
		;
	uintptr_t at = ((uintptr_t)base + sizeof(struct alloc_head) + ALIGN - 1) &
	               ~(uintptr_t)(ALIGN - 1);
	struct alloc_head h = { base, total };
	memcpy((void *)(at - sizeof h), &h, sizeof h);
	return (void *)at;
}

void *kvi_array(const struct kvi_alloc *alloc, size_t n, size_t size)
{
	size_t bytes;
	return kvi_mul(n, size, &bytes) ? NULL : kvi_malloc(alloc, bytes);
}

void *kvi_calloc(const struct kvi_alloc *alloc, size_t n, size_t size)
{
	void *p = kvi_array(alloc, n, size);
	return p ? memset(p, 0, n * size) : NULL;
}

void kvi_free(const struct kvi_alloc *shared, void *p)
{
	struct alloc_head h;
	if (!p)
		return;
	struct kvi_alloc *a = shared->counted;
	memcpy(&h, (char *)p - sizeof h, sizeof h);
	atomic_fetch_sub(&a->used, h.bytes);
	a->fn.free(a->fn.opaque, h.base);
}

kvarc_ret kvi_alloc_error(const struct kvi_alloc *alloc)
{
	return atomic_load(&alloc->hit_limit) ? KVARC_MEMLIMIT : KVARC_MEM;
}
