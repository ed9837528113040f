/* SPDX-License-Identifier: BSD-3-Clause */
/* import_read.c - tokens and elements of an import, from where they lie in its files */
#include "import_internal.h"

/* The first area of a tensor that holds a token, NULL: none does. */
static const struct kvi_imp_area *area_of(const kvarc_import *im,
                                          const struct kvi_imp_tensor *tensor, uint64_t token)
{
	const struct kvi_imp_area *a = &im->areas[tensor->area];
	const struct kvi_imp_area *end = im->areas + im->n_areas;
	for (uint32_t first = a->first_tensor; a < end && a->first_tensor == first; a++)
		if (token >= a->t0 && token - a->t0 < a->n_tokens)
			return a;
	return NULL;
}

kvarc_ret kvarc_import_read_tokens(const kvarc_import *im, uint32_t track, uint64_t t0, uint64_t n,
                                   int32_t *ids, int32_t *positions)
{
	int32_t unused[2][256];
	if (!im)
		return KVARC_PROG;
	if (track >= im->n_tracks || t0 > im->tracks[track].n || n > im->tracks[track].n - t0)
		return KVARC_GEOMETRY;
	if (ids && !im->tracks[track].has_ids)
		return KVARC_OPTIONS;
	for (uint64_t i = 0; i < n; i += 256) {
		uint32_t k = n - i < 256 ? (uint32_t)(n - i) : 256;
		kvarc_ret ret = kvi_import_tokens(im, track, t0 + i, k,
		                                  positions ? positions + i : unused[0],
		                                  ids ? ids + i : unused[1]);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

int kvarc_import_fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                       uint32_t n, void *dst)
{
	const kvarc_import *im = opaque;
	if (tensor >= im->n_tensors)
		return 1;
	const struct kvi_imp_tensor *t = &im->tensors[tensor];
	const struct kvi_imp_area *area = &im->areas[t->area];
	uint64_t tokens = im->tracks[area->track].n;
	if (n == 0 || heads == 0 || t0 > tokens || n > tokens - t0 || head > t->pub.heads ||
	    heads > t->pub.heads - head)
		return 1;
	struct kvi_block b = { .c0 = head * t->pub.channels,
		               .channels = heads * t->pub.channels,
		               .elem_bytes = (uint32_t)kvarc_dtype_bytes(t->pub.dtype) };
	uint8_t *to = dst;
	for (uint64_t at = t0; at < t0 + n; at += b.n) {
		area = area_of(im, t, at);
		if (!area)
			return 1;
		uint64_t left = area->t0 + area->n_tokens - at;
		b.t0 = at - area->t0;
		b.n = left < t0 + n - at ? (uint32_t)left : (uint32_t)(t0 + n - at);
		if (kvi_strided_read(&im->alloc, &im->items[area->item].src, area->offset, &t->at,
		                     &b, to))
			return 1;
		to += (size_t)b.n * b.channels * b.elem_bytes;
	}
	return 0;
}
