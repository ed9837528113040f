/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h - arrays that grow */
#ifndef KVI_LIST_H
#define KVI_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/alloc.h"

/* Makes the capacity of an array of n elements of `size` bytes at least `want` elements. array
 * points to the caller's pointer, *cap is the capacity; both change when the array moves. Grows by
 * factors of 2. False: no memory, and nothing changed. */
bool kvi_array_reserve(const struct kvi_alloc *alloc, void *array, size_t *cap, size_t n,
                       size_t want, size_t size);
/* kvi_array_reserve for one element behind the n of the array. */
bool kvi_array_grow(const struct kvi_alloc *alloc, void *array, size_t *cap, size_t n, size_t size);

/* An array of entries of one type; all zero: empty. Its owner frees p. */
struct kvi_list {
	void *p;
	size_t n, cap;
};

#define KVI_LIST(type, list, i) (&((type *)(list).p)[i])

/* Adds one entry at the end, zeroed. NULL: no memory, and nothing changed. */
void *kvi_list_add(struct kvi_list *list, const struct kvi_alloc *alloc, size_t entry_bytes);

/* The index of the first entry whose key is `value` or more; list->n: there is none. The
 * entries ascend by their keys: uint64_t members at byte `key` of each. */
size_t kvi_list_search(const struct kvi_list *list, size_t entry_bytes, size_t key, uint64_t value);

#endif
