/* SPDX-License-Identifier: BSD-3-Clause */
/* list.c - arrays that grow */
#include "list.h"

#include <string.h>

bool kvi_array_reserve(const struct kvi_alloc *alloc, void *array, size_t *cap, size_t n,
                       size_t want, size_t size)
{
	void *old, *p;
	if (want <= *cap)
		return true;
	memcpy(&old, array, sizeof old);
	size_t twice = *cap ? *cap * 2 : 16;
	want = want > twice ? want : twice;
	p = kvi_array(alloc, want, size);
	if (!p)
		return false;
	if (n)
		memcpy(p, old, n * size);
	kvi_free(alloc, old);
	memcpy(array, &p, sizeof p);
	*cap = want;
	return true;
}

bool kvi_array_grow(const struct kvi_alloc *alloc, void *array, size_t *cap, size_t n, size_t size)
{
	return kvi_array_reserve(alloc, array, cap, n, n + 1, size);
}

void *kvi_list_add(struct kvi_list *list, const struct kvi_alloc *alloc, size_t entry_bytes)
{
	if (!kvi_array_grow(alloc, &list->p, &list->cap, list->n, entry_bytes))
		return NULL;
	void *at = (uint8_t *)list->p + list->n * entry_bytes;
	list->n++;
	return memset(at, 0, entry_bytes);
}

size_t kvi_list_search(const struct kvi_list *list, size_t entry_bytes, size_t key, uint64_t value)
{
	size_t lo = 0, hi = list->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		uint64_t x;
		memcpy(&x, (const uint8_t *)list->p + mid * entry_bytes + key, sizeof x);
		if (x < value)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}
