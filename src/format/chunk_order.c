/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_order.c - sorts tensors into file order and follows it (spec 3.4) */
#include "chunk_order.h"

/* Sorts by track, layer, kind, then number in the geometry. */
static uint64_t sort_key(const kvarc_geometry *geometry, uint32_t tensor)
{
	const kvarc_tensor *t = &geometry->tensors[tensor];
	return (uint64_t)t->track << 40 | (uint64_t)t->layer << 24 | (uint64_t)t->kind << 16 |
	       tensor;
}

static void sift(uint64_t *v, size_t root, size_t n)
{
	for (;;) {
		size_t child = 2 * root + 1;
		if (child >= n)
			return;
		if (child + 1 < n && v[child + 1] > v[child])
			child++;
		if (v[root] >= v[child])
			return;
		uint64_t t = v[root];
		v[root] = v[child];
		v[child] = t;
		root = child;
	}
}

/* Heapsort: qsort of some C libraries allocates behind our back. */
static void sort(uint64_t *v, size_t n)
{
	for (size_t i = n / 2; i-- > 0;)
		sift(v, i, n);
	for (size_t i = n; i-- > 1;) {
		uint64_t t = v[0];
		v[0] = v[i];
		v[i] = t;
		sift(v, 0, i);
	}
}

kvarc_ret kvi_order_make(struct kvi_order *order, const struct kvi_alloc *alloc,
                         const kvarc_geometry *geometry)
{
	/* A spare entry keeps an empty geometry from asking for 0 bytes. */
	uint64_t *keys = kvi_calloc(alloc, geometry->n_tensors + 1, sizeof *keys);
	order->tensors = kvi_calloc(alloc, geometry->n_tensors + 1, sizeof *order->tensors);
	order->first = kvi_calloc(alloc, geometry->n_tracks + 1, sizeof *order->first);
	order->place = kvi_calloc(alloc, geometry->n_tensors + 1, sizeof *order->place);
	if (!keys || !order->tensors || !order->first || !order->place) {
		kvi_free(alloc, keys);
		kvi_order_free(order, alloc);
		return kvi_alloc_error(alloc);
	}
	for (uint32_t i = 0; i < geometry->n_tensors; i++)
		keys[i] = sort_key(geometry, i);
	sort(keys, geometry->n_tensors);
	for (uint32_t i = 0; i < geometry->n_tensors; i++) {
		order->tensors[i] = (uint32_t)(keys[i] & 0xffff);
		order->place[order->tensors[i]] = i;
		order->first[(keys[i] >> 40) + 1]++;
	}
	for (size_t i = 0; i < geometry->n_tracks; i++)
		order->first[i + 1] += order->first[i];
	kvi_free(alloc, keys);
	return KVARC_OK;
}

void kvi_order_free(struct kvi_order *order, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, order->tensors);
	kvi_free(alloc, order->first);
	kvi_free(alloc, order->place);
	*order = (struct kvi_order){ 0 };
}

void kvi_order_begin(struct kvi_order_walk *w, const struct kvi_order *order, uint32_t track)
{
	*w = (struct kvi_order_walk){ order->first[track], order->first[track + 1], 0 };
}

bool kvi_order_next(struct kvi_order_walk *w, const struct kvi_order *order,
                    const kvarc_geometry *geometry, uint32_t tensor, uint32_t head, uint32_t heads)
{
	if (w->at == w->end || order->tensors[w->at] != tensor || head != w->head || heads == 0 ||
	    heads > geometry->tensors[tensor].heads - head)
		return false;
	w->head += heads;
	if (w->head == geometry->tensors[tensor].heads) {
		w->head = 0;
		w->at++;
	}
	return true;
}
