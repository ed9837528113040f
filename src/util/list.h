/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h - arrays that grow */
#ifndef KVI_LIST_H
#define KVI_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/alloc.h"

/* Reserves memory for element n of an array of elements of `size` bytes. array points to the
 * caller's pointer, *cap is its capacity in elements; both change when the array moves. False:
 * no memory, and nothing changed. */
bool kvi_array_grow(const struct kvi_alloc *alloc, void *array, size_t *cap, size_t n, size_t size);

/* An array of entries of one type; all zero: empty. Its owner frees p. */
struct kvi_list {
	void *p;
	size_t n, cap;
};

#define KVI_LIST(type, list, i) (&((type *)(list).p)[i])

/* Adds one entry at the end, zeroed. NULL: no memory, and nothing changed. */
void *kvi_list_add(struct kvi_list *l, const struct kvi_alloc *alloc, size_t entry_bytes);

#endif
