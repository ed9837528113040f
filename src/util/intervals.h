/* SPDX-License-Identifier: BSD-3-Clause */
/* intervals.h - finds the intervals of an array that overlap a range */
#ifndef KVI_INTERVALS_H
#define KVI_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

/*
 * The interval [start, end), never empty, with an id of the caller's. An array of them that is
 * sorted by start is a binary tree whose root is the middle element; reach is the highest end in
 * the subtree of an element, so that a search leaves out the subtrees that end before it starts.
 */
struct kvi_interval {
	uint64_t start, end;
	uint64_t reach; /* set by kvi_intervals_sort */
	size_t id;
};

/* Called for an interval that overlaps; not 0 ends the search. */
typedef int (*kvi_interval_fn)(void *opaque, size_t id);

/* Sorts n intervals by start, then by id, and computes their reaches. */
void kvi_intervals_sort(struct kvi_interval *list, size_t n);
/*
 * Calls fn for each of n sorted intervals that overlaps [start, end), which is not empty, in
 * their order. Takes O(log n) steps for each one found. Returns what fn returned last, 0 if
 * nothing was found. Several threads may search one array.
 */
int kvi_intervals_search(const struct kvi_interval *list, size_t n, uint64_t start, uint64_t end,
                         kvi_interval_fn fn, void *opaque);

#endif
