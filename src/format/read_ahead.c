/* SPDX-License-Identifier: BSD-3-Clause */
/* read_ahead.c - blocks of a source: joined, fetched, copied from */
#include "config.h"

#include "read_ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"

/* A lock in memory of its own: in strict C11 a pthread_rwlock_t wants config.h, which headers do
 * not include. */
struct kvi_ahead_lock {
	pthread_rwlock_t lock;
};

bool kvi_ahead_open(struct kvi_ahead *ahead, const struct kvi_alloc *alloc, uint64_t cost)
{
	*ahead = (struct kvi_ahead){ .alloc = alloc, .cost = cost ? cost : KVI_AHEAD_COST };
	ahead->lock = kvi_malloc(alloc, sizeof *ahead->lock);
	if (ahead->lock && pthread_rwlock_init(&ahead->lock->lock, NULL)) {
		kvi_free(alloc, ahead->lock);
		ahead->lock = NULL;
	}
	return ahead->lock != NULL;
}

void kvi_ahead_close(struct kvi_ahead *ahead)
{
	if (!ahead->lock)
		return;
	for (int g = 0; g < KVI_AHEAD_GROUPS; g++) {
		kvi_ahead_drop(ahead, (enum kvi_ahead_group)g);
		kvi_free(ahead->alloc, ahead->memory[g].p);
	}
	kvi_free(ahead->alloc, ahead->blocks.p);
	pthread_rwlock_destroy(&ahead->lock->lock);
	kvi_free(ahead->alloc, ahead->lock);
	ahead->lock = NULL;
}

/* The first block that ends behind an offset; blocks.n: there is none. */
static size_t first_behind(const struct kvi_ahead *ahead, uint64_t offset)
{
	const struct kvi_ahead_block *b = ahead->blocks.p;
	size_t lo = 0, hi = ahead->blocks.n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (b[mid].offset + b[mid].bytes > offset)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

size_t kvi_ahead_copy(struct kvi_ahead *ahead, void *buf, size_t bytes, uint64_t offset,
                      uint64_t *until)
{
	size_t n = 0;
	*until = offset + bytes;
	pthread_rwlock_rdlock(&ahead->lock->lock);
	size_t i = first_behind(ahead, offset);
	if (i < ahead->blocks.n) {
		const struct kvi_ahead_block *b = KVI_LIST(struct kvi_ahead_block, ahead->blocks,
		                                           i);
		if (b->offset > offset) {
			*until = b->offset < *until ? b->offset : *until;
		} else {
			uint64_t there = b->offset + b->bytes - offset;
			n = there < bytes ? (size_t)there : bytes;
			memcpy(buf, b->p + (offset - b->offset), n);
		}
	}
	pthread_rwlock_unlock(&ahead->lock->lock);
	return n;
}

uint64_t kvi_ahead_budget(const struct kvi_ahead *ahead)
{
	enum { MOST = 8 << 20, SHARE = 32 };
	const struct kvi_alloc *alloc = ahead->alloc->counted;
	uint64_t used = atomic_load(&alloc->used);
	uint64_t left = used < alloc->limit ? (alloc->limit - used) / SHARE : 0;
	return left < MOST ? left : MOST;
}

static int by_offset(const void *x, const void *y)
{
	const kvarc_byte_range *a = x, *b = y;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Whether a block begins in [from, to). */
static bool block_between(const struct kvi_ahead *ahead, uint64_t from, uint64_t to)
{
	size_t i = first_behind(ahead, from);
	return from < to && i < ahead->blocks.n &&
	       KVI_LIST(struct kvi_ahead_block, ahead->blocks, i)->offset < to;
}

/* Appends the parts of [from, to) that are in no block to a list of n ranges. */
static size_t add_missing(const struct kvi_ahead *ahead, kvarc_byte_range *list, size_t n,
                          size_t capacity, uint64_t from, uint64_t to)
{
	for (size_t i = first_behind(ahead, from); from < to && n < capacity; i++) {
		const struct kvi_ahead_block *b =
			i < ahead->blocks.n ? KVI_LIST(struct kvi_ahead_block, ahead->blocks, i)
					    : NULL;
		uint64_t end = b && b->offset < to ? b->offset : to;
		if (end > from)
			list[n++] = (kvarc_byte_range){ .offset = from, .bytes = end - from };
		from = end < to ? b->offset + b->bytes : to;
	}
	return n;
}

size_t kvi_ahead_join(const struct kvi_ahead *ahead, kvarc_byte_range *list, size_t n,
                      size_t capacity)
{
	size_t merged = 0, all, joined = 0;
	qsort(list, n, sizeof *list, by_offset);
	for (size_t i = 0; i < n; i++) {
		kvarc_byte_range *last = merged ? &list[merged - 1] : NULL;
		uint64_t end = list[i].offset + list[i].bytes;
		if (last && list[i].offset <= last->offset + last->bytes)
			last->bytes = end > last->offset + last->bytes ? end - last->offset
			                                               : last->bytes;
		else
			list[merged++] = list[i];
	}
	all = merged;
	for (size_t i = 0; i < merged; i++)
		all = add_missing(ahead, list, all, capacity, list[i].offset,
		                  list[i].offset + list[i].bytes);
	for (size_t i = merged; i < all; i++) {
		kvarc_byte_range *last = joined ? &list[joined - 1] : NULL;
		uint64_t end = last ? last->offset + last->bytes : 0;
		if (last && list[i].offset - end < ahead->cost &&
		    !block_between(ahead, end, list[i].offset))
			last->bytes = list[i].offset + list[i].bytes - last->offset;
		else
			list[joined++] = list[i];
	}
	return joined;
}

/* Fills the ranges. A source that has become shorter gives less. */
static kvarc_ret read_all(const kvarc_source *source, kvarc_byte_range *list, size_t n,
                          kvarc_error *error)
{
	errno = 0;
	if (source->read_ranges)
		return source->read_ranges(source->opaque, list, n)
		               ? kvi_fail_callback(error, list[0].offset, KVARC_UNKNOWN,
		                                   "reading %zu ranges from offset %llu on failed",
		                                   n, (unsigned long long)list[0].offset)
		               : KVARC_OK;
	for (size_t i = 0; i < n; i++) {
		uint8_t *p = list[i].buf;
		size_t got = 0;
		while (got < list[i].bytes) {
			uint64_t at = list[i].offset + got;
			size_t want = (size_t)list[i].bytes - got;
			errno = 0;
			int64_t k = source->read(source->opaque, p + got, want, at);
			if (k == 0)
				break;
			if (k < 0 || (uint64_t)k > want)
				return kvi_fail_callback(error, at, KVARC_UNKNOWN,
				                         "reading at offset %llu failed",
				                         (unsigned long long)at);
			got += (size_t)k;
		}
		list[i].bytes = got;
	}
	return KVARC_OK;
}

/* Memory for the blocks of a list. False: there is none. */
static bool reserve(struct kvi_ahead *ahead, size_t n, uint64_t bytes, enum kvi_ahead_group group,
                    uint8_t **memory)
{
	*memory = kvi_malloc(ahead->alloc, (size_t)bytes);
	pthread_rwlock_wrlock(&ahead->lock->lock);
	bool good = kvi_array_reserve(ahead->alloc, &ahead->blocks.p, &ahead->blocks.cap,
	                              ahead->blocks.n, ahead->blocks.n + n,
	                              sizeof(struct kvi_ahead_block));
	pthread_rwlock_unlock(&ahead->lock->lock);
	uint8_t **m = *memory && good ? kvi_list_add(&ahead->memory[group], ahead->alloc, sizeof *m)
	                              : NULL;
	if (m)
		*m = *memory;
	else
		kvi_free(ahead->alloc, *memory);
	return m != NULL;
}

kvarc_ret kvi_ahead_fetch(struct kvi_ahead *ahead, const kvarc_source *source,
                          kvarc_byte_range *list, size_t n, enum kvi_ahead_group group,
                          kvarc_error *error)
{
	uint64_t budget = kvi_ahead_budget(ahead), bytes = 0;
	size_t fits = 0;
	uint8_t *memory;
	for (; fits < n && bytes < budget; fits++) {
		if (list[fits].bytes > budget - bytes)
			list[fits].bytes = budget - bytes;
		bytes += list[fits].bytes;
	}
	if (!bytes)
		return KVARC_OK;
	if (!reserve(ahead, fits, bytes, group, &memory))
		return kvi_alloc_error(ahead->alloc) == KVARC_MEMLIMIT
		               ? KVARC_OK
		               : kvi_fail_alloc(error, ahead->alloc);
	for (size_t i = 0; i < fits; memory += list[i++].bytes)
		list[i].buf = memory;
	kvarc_ret ret = read_all(source, list, fits, error);
	if (ret)
		return ret;
	pthread_rwlock_wrlock(&ahead->lock->lock);
	struct kvi_ahead_block *b = ahead->blocks.p;
	for (size_t i = 0; i < fits; i++) {
		size_t at = first_behind(ahead, list[i].offset);
		if (!list[i].bytes)
			continue;
		memmove(&b[at + 1], &b[at], (ahead->blocks.n - at) * sizeof *b);
		b[at] = (struct kvi_ahead_block){ list[i].offset, list[i].bytes, list[i].buf,
			                          group };
		ahead->blocks.n++;
	}
	pthread_rwlock_unlock(&ahead->lock->lock);
	return KVARC_OK;
}

bool kvi_ahead_join_list(const struct kvi_ahead *ahead, struct kvi_list *ranges)
{
	if (!ranges->n)
		return true;
	if (!kvi_array_reserve(ahead->alloc, &ranges->p, &ranges->cap, ranges->n,
	                       2 * ranges->n + ahead->blocks.n, sizeof(kvarc_byte_range)))
		return false;
	ranges->n = kvi_ahead_join(ahead, ranges->p, ranges->n, ranges->cap);
	return true;
}

kvarc_ret kvi_ahead_read(struct kvi_ahead *ahead, const kvarc_source *source,
                         struct kvi_list *ranges, enum kvi_ahead_group group, kvarc_error *error)
{
	if (!ranges->n)
		return KVARC_OK;
	return kvi_ahead_join_list(ahead, ranges)
	               ? kvi_ahead_fetch(ahead, source, ranges->p, ranges->n, group, error)
	               : kvi_fail_alloc(error, ahead->alloc);
}

void kvi_ahead_drop(struct kvi_ahead *ahead, enum kvi_ahead_group group)
{
	struct kvi_ahead_block *b = ahead->blocks.p;
	size_t n = 0;
	if (!ahead->memory[group].n)
		return;
	pthread_rwlock_wrlock(&ahead->lock->lock);
	for (size_t i = 0; i < ahead->blocks.n; i++)
		if (b[i].group != group)
			b[n++] = b[i];
	ahead->blocks.n = n;
	pthread_rwlock_unlock(&ahead->lock->lock);
	while (ahead->memory[group].n)
		kvi_free(ahead->alloc,
		         *KVI_LIST(uint8_t *, ahead->memory[group], --ahead->memory[group].n));
}
