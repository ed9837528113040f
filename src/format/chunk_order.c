/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_order.c - sorts tensors into file order and follows it (spec 3.4) */
#include "chunk_order.h"

/* By track, layer, kind, then number in the geometry. */
static uint64_t sort_key(const kvarc_geometry *g, uint32_t tensor)
{
	const kvarc_tensor *t = &g->tensors[tensor];
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

kvarc_ret kvi_order_make(struct kvi_order *o, const struct kvi_alloc *alloc,
                         const kvarc_geometry *g)
{
	/* One spare entry keeps an empty geometry from asking for 0 bytes. */
	uint64_t *keys = kvi_calloc(alloc, g->n_tensors + 1, sizeof *keys);
	o->tensors = kvi_calloc(alloc, g->n_tensors + 1, sizeof *o->tensors);
	o->first = kvi_calloc(alloc, g->n_tracks + 1, sizeof *o->first);
	if (!keys || !o->tensors || !o->first) {
		kvi_free(alloc, keys);
		kvi_order_free(o, alloc);
		return kvi_alloc_error(alloc);
	}
	for (uint32_t i = 0; i < g->n_tensors; i++)
		keys[i] = sort_key(g, i);
	sort(keys, g->n_tensors);
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		o->tensors[i] = (uint32_t)(keys[i] & 0xffff);
		o->first[(keys[i] >> 40) + 1]++;
	}
	for (size_t i = 0; i < g->n_tracks; i++)
		o->first[i + 1] += o->first[i];
	kvi_free(alloc, keys);
	return KVARC_OK;
}

void kvi_order_free(struct kvi_order *o, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, o->tensors);
	kvi_free(alloc, o->first);
	*o = (struct kvi_order){ 0 };
}

void kvi_order_begin(struct kvi_order_walk *w, const struct kvi_order *o, uint32_t track)
{
	*w = (struct kvi_order_walk){ o->first[track], o->first[track + 1], 0 };
}

bool kvi_order_next(struct kvi_order_walk *w, const struct kvi_order *o, const kvarc_geometry *g,
                    uint32_t tensor, uint32_t head, uint32_t heads)
{
	if (w->at == w->end || o->tensors[w->at] != tensor || head != w->head || heads == 0 ||
	    heads > g->tensors[tensor].heads - head)
		return false;
	w->head += heads;
	if (w->head == g->tensors[tensor].heads) {
		w->head = 0;
		w->at++;
	}
	return true;
}
