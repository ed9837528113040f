/* SPDX-License-Identifier: BSD-3-Clause */
/* assembly.c - rows of several planes, kept until every plane has come */
#include "assembly.h"

#include <string.h>

#include "util/ckd.h"

kvarc_ret kvi_assembly_open(struct kvi_assembly *a, const struct kvi_alloc *alloc, size_t n_areas)
{
	*a = (struct kvi_assembly){ .alloc = alloc };
	if (n_areas == 0)
		return KVARC_OK;
	a->of_area = kvi_calloc(alloc, n_areas, sizeof(struct kvi_token_rows *));
	return a->of_area ? KVARC_OK : kvi_alloc_error(alloc);
}

static void insert(struct kvi_assembly *a, struct kvi_token_rows *r)
{
	r->next = a->list;
	if (r->next)
		r->next->previous = r;
	a->list = r;
	r->next_in_area = a->of_area[r->area];
	a->of_area[r->area] = r;
}

static void take_out(struct kvi_assembly *a, struct kvi_token_rows *r)
{
	struct kvi_token_rows **link = &a->of_area[r->area];
	while (*link != r)
		link = &(*link)->next_in_area;
	*link = r->next_in_area;
	if (r->previous)
		r->previous->next = r->next;
	else
		a->list = r->next;
	if (r->next)
		r->next->previous = r->previous;
}

static void release(struct kvi_assembly *a, struct kvi_token_rows *r)
{
	take_out(a, r);
	kvi_free(a->alloc, r->bytes);
	kvi_free(a->alloc, r);
}

struct kvi_token_rows *kvi_assembly_get(struct kvi_assembly *a, size_t area, uint64_t t0,
                                        uint32_t n, size_t row_bytes)
{
	size_t size;
	for (struct kvi_token_rows *r = a->of_area[area]; r; r = r->next_in_area)
		if (r->t0 == t0 && r->n == n)
			return r;
	if (kvi_mul(row_bytes, n, &size))
		return NULL;
	struct kvi_token_rows *r = kvi_calloc(a->alloc, 1, sizeof *r);
	uint8_t *bytes = kvi_calloc(a->alloc, size, 1);
	if (!r || !bytes) {
		kvi_free(a->alloc, r);
		kvi_free(a->alloc, bytes);
		return NULL;
	}
	*r = (struct kvi_token_rows){
		.area = area, .t0 = t0, .n = n, .size = size, .bytes = bytes
	};
	insert(a, r);
	return r;
}

static int finish(struct kvi_assembly *a, struct kvi_token_rows *r)
{
	int ret = r->sink->write(r->sink->opaque, r->bytes, r->size, r->at);
	release(a, r);
	return ret;
}

int kvi_assembly_put(struct kvi_assembly *a, struct kvi_token_rows *rows, size_t bytes)
{
	rows->filled += bytes;
	return rows->filled < rows->size ? 0 : finish(a, rows);
}

int kvi_assembly_flush(struct kvi_assembly *a)
{
	int ret = 0;
	while (a->list)
		ret |= finish(a, a->list);
	return ret;
}

void kvi_assembly_free(struct kvi_assembly *a)
{
	while (a->list)
		release(a, a->list);
	kvi_free(a->alloc, a->of_area);
	a->of_area = NULL;
}
