/* SPDX-License-Identifier: BSD-3-Clause */
/* model_tensors.c - the tensors of a model by name */
#include "model_internal.h"

#include <stdlib.h>
#include <string.h>

const char *kvi_shown(char dst[KVI_SHOWN_BYTES], const char *name, size_t n)
{
	size_t keep = n < KVI_SHOWN_BYTES - 1 ? n : KVI_SHOWN_BYTES - 1;
	for (size_t i = 0; i < keep; i++)
		dst[i] = (char)(name[i] > 31 && name[i] < 127 ? name[i] : '?');
	dst[keep] = '\0';
	return dst;
}

static int by_place(const void *a, const void *b)
{
	const struct kvi_weight *x = a, *y = b;
	uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
	if (p != q)
		return p < q ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_names(const char *a, size_t an, const char *b, size_t bn)
{
	int c = memcmp(a, b, an < bn ? an : bn);
	return c ? c : (an > bn) - (an < bn);
}

static int by_name(const void *a, const void *b)
{
	const struct kvi_weight *x = a, *y = b;
	return compare_names(x->name, x->name_n, y->name, y->name_n);
}

kvarc_ret kvi_weights_sort(struct kvi_weights *weights, kvarc_error *error)
{
	char a[KVI_SHOWN_BYTES], b[KVI_SHOWN_BYTES];
	struct kvi_weight *w = weights->w;
	if (weights->n == 0)
		return kvi_fail(error, KVARC_DATA, "the model has no tensors");
	qsort(w, weights->n, sizeof *w, by_place);
	for (size_t i = 0, last = 0; i < weights->n; i++) {
		if (w[i].bytes == 0)
			continue;
		if (i != last && (uintptr_t)w[i].data - (uintptr_t)w[last].data < w[last].bytes)
			return kvi_fail(error, KVARC_DATA,
			                "tensors %s and %s overlap: the file is damaged",
			                kvi_shown(a, w[last].name, w[last].name_n),
			                kvi_shown(b, w[i].name, w[i].name_n));
		last = i;
	}
	qsort(w, weights->n, sizeof *w, by_name);
	for (size_t i = 1; i < weights->n; i++)
		if (by_name(&w[i - 1], &w[i]) == 0)
			return kvi_fail(error, KVARC_DATA,
			                "tensor %s is there twice: the file is damaged",
			                kvi_shown(a, w[i].name, w[i].name_n));
	return KVARC_OK;
}

struct kvi_weight *kvi_weights_find(const struct kvi_weights *weights, const char *name)
{
	size_t n = strlen(name), low = 0, high = weights->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int c = compare_names(weights->w[mid].name, weights->w[mid].name_n, name, n);
		if (c == 0)
			return &weights->w[mid];
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}
