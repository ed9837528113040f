/* SPDX-License-Identifier: BSD-3-Clause */
/* intervals.c - finds the intervals of an array that overlap a range */
#include "intervals.h"

#include <stdlib.h>

static int by_start(const void *a, const void *b)
{
	const struct kvi_interval *x = a, *y = b;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

/* Returns the reach of the subtree of n elements. Recursion is as deep as the tree: log2(n). */
static uint64_t set_reaches(struct kvi_interval *list, size_t n)
{
	if (n == 0)
		return 0;
	struct kvi_interval *root = &list[n / 2];
	uint64_t left = set_reaches(list, n / 2);
	uint64_t right = set_reaches(root + 1, n - n / 2 - 1);
	root->reach = root->end;
	if (left > root->reach)
		root->reach = left;
	if (right > root->reach)
		root->reach = right;
	return root->reach;
}

void kvi_intervals_sort(struct kvi_interval *list, size_t n)
{
	if (n)
		qsort(list, n, sizeof *list, by_start);
	set_reaches(list, n);
}

int kvi_intervals_search(const struct kvi_interval *list, size_t n, uint64_t start, uint64_t end,
                         kvi_interval_fn fn, void *opaque)
{
	while (n) {
		const struct kvi_interval *root = &list[n / 2];
		if (root->reach <= start)
			return 0;
		int ret = kvi_intervals_search(list, n / 2, start, end, fn, opaque);
		if (ret || root->start >= end)
			return ret;
		if (root->end > start)
			ret = fn(opaque, root->id);
		if (ret)
			return ret;
		n -= n / 2 + 1;
		list = root + 1;
	}
	return 0;
}
