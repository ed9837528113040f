/* SPDX-License-Identifier: BSD-3-Clause */
/* alloc.h - the allocator of a handle, with its memory limit */
#ifndef KVI_ALLOC_H
#define KVI_ALLOC_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

#define KVI_MEMLIMIT_DEFAULT ((uint64_t)256 << 20)

/*
 * The allocator of a handle, through which all of its allocations go. Counts the bytes that are
 * held, so that limit is honoured whatever a file declares. Must not move after kvi_alloc_init. Any
 * thread may allocate.
 */
struct kvi_alloc {
	kvarc_allocator fn;
	uint64_t limit;
	struct kvi_alloc *counted; /* itself: requests through a const pointer count, too */
	_Atomic uint64_t used;
	_Atomic uint64_t peak;
	_Atomic int hit_limit;   /* a request failed because of limit */
	_Atomic uint64_t needed; /* the limit that would have been enough for it */
};

/* Starts an allocator; user may be NULL (malloc), limit 0 means the default. */
void kvi_alloc_init(struct kvi_alloc *alloc, const kvarc_allocator *user, uint64_t limit);
/* Allocates memory, 64-byte aligned, not initialised. NULL on failure and for 0 bytes. */
void *kvi_malloc(const struct kvi_alloc *a, size_t bytes);
/* Allocates n * size zeroed bytes; NULL also where the product overflows. */
void *kvi_calloc(const struct kvi_alloc *alloc, size_t n, size_t size);
/* Allocates n * size bytes, not initialised; NULL also where the product overflows. */
void *kvi_array(const struct kvi_alloc *alloc, size_t n, size_t size);
/* Frees memory of these calls, also the block that *a is in. p NULL: nothing, whatever a is. */
void kvi_free(const struct kvi_alloc *a, void *p);
/* KVARC_MEMLIMIT if a request failed because of the limit, else KVARC_MEM. */
kvarc_ret kvi_alloc_error(const struct kvi_alloc *alloc);

#endif
