/* SPDX-License-Identifier: BSD-3-Clause */
/* assembly.c - rows of several planes, kept until every plane has come */
#include "assembly.h"

#include <string.h>

#include "util/ckd.h"

void kvi_assembly_init(struct kvi_assembly *a, const struct kvi_alloc *alloc)
{
	a->alloc = alloc;
	a->list = NULL;
}

struct kvi_token_rows *kvi_assembly_get(struct kvi_assembly *a, size_t area,
                                  uint64_t t0, uint32_t n, size_t row_bytes)
{
	size_t size;
	for (struct kvi_token_rows *r = a->list; r; r = r->next)
		if (r->area == area && r->t0 == t0 && r->n == n)
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
	*r = (struct kvi_token_rows){ a->list, area, t0, n, size, 0, NULL, 0, bytes };
	a->list = r;
	return r;
}

static int finish(struct kvi_assembly *a, struct kvi_token_rows **link)
{
	struct kvi_token_rows *r = *link;
	int ret = r->sink->write(r->sink->opaque, r->bytes, r->size, r->at);
	*link = r->next;
	kvi_free(a->alloc, r->bytes);
	kvi_free(a->alloc, r);
	return ret;
}

int kvi_assembly_put(struct kvi_assembly *a, struct kvi_token_rows *rows, size_t bytes)
{
	rows->filled += bytes;
	if (rows->filled < rows->size)
		return 0;
	for (struct kvi_token_rows **link = &a->list; *link; link = &(*link)->next)
		if (*link == rows)
			return finish(a, link);
	return 0;
}

int kvi_assembly_flush(struct kvi_assembly *a)
{
	int ret = 0;
	while (a->list)
		ret |= finish(a, &a->list);
	return ret;
}

void kvi_assembly_free(struct kvi_assembly *a)
{
	while (a->list) {
		struct kvi_token_rows *r = a->list;
		a->list = r->next;
		kvi_free(a->alloc, r->bytes);
		kvi_free(a->alloc, r);
	}
}
