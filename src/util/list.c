/* SPDX-License-Identifier: BSD-3-Clause */
/* list.c - arrays that grow */
#include "list.h"

#include <string.h>

bool kvi_array_grow(const struct kvi_alloc *alloc, void *array, size_t *cap, size_t n, size_t size)
{
	void *old, *p;
	if (n < *cap)
		return true;
	memcpy(&old, array, sizeof old);
	size_t want = *cap ? *cap * 2 : 16;
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

void *kvi_list_add(struct kvi_list *l, const struct kvi_alloc *alloc, size_t entry_bytes)
{
	if (!kvi_array_grow(alloc, &l->p, &l->cap, l->n, entry_bytes))
		return NULL;
	void *at = (uint8_t *)l->p + l->n * entry_bytes;
	l->n++;
	return memset(at, 0, entry_bytes);
}
