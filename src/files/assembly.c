/* SPDX-License-Identifier: BSD-3-Clause */
/* assembly.c - rows of several planes, kept until every plane has come */
#include "assembly.h"

#include <string.h>

#include "util/ckd.h"

kvarc_ret kvi_assembly_open(struct kvi_assembly *assembly, const struct kvi_alloc *alloc,
                            size_t n_areas)
{
	*assembly = (struct kvi_assembly){ .alloc = alloc };
	if (n_areas == 0)
		return KVARC_OK;
	assembly->of_area = kvi_calloc(alloc, n_areas, sizeof(struct kvi_token_rows *));
	return assembly->of_area ? KVARC_OK : kvi_alloc_error(alloc);
}

static void insert(struct kvi_assembly *assembly, struct kvi_token_rows *r)
{
	r->next = assembly->list;
	if (r->next)
		r->next->previous = r;
	assembly->list = r;
	r->next_in_area = assembly->of_area[r->area];
	assembly->of_area[r->area] = r;
}

static void take_out(struct kvi_assembly *assembly, struct kvi_token_rows *r)
{
	struct kvi_token_rows **link = &assembly->of_area[r->area];
	while (*link != r)
		link = &(*link)->next_in_area;
	*link = r->next_in_area;
	if (r->previous)
		r->previous->next = r->next;
	else
		assembly->list = r->next;
	if (r->next)
		r->next->previous = r->previous;
}

static void release(struct kvi_assembly *assembly, struct kvi_token_rows *r)
{
	take_out(assembly, r);
	kvi_free(assembly->alloc, r->bytes);
	kvi_free(assembly->alloc, r);
}

struct kvi_token_rows *kvi_assembly_get(struct kvi_assembly *assembly, size_t area, uint64_t t0,
                                        uint32_t n, size_t row_bytes)
{
	size_t size;
	for (struct kvi_token_rows *r = assembly->of_area[area]; r; r = r->next_in_area)
		if (r->t0 == t0 && r->n == n)
			return r;
	if (kvi_mul(row_bytes, n, &size))
		return NULL;
	struct kvi_token_rows *r = kvi_calloc(assembly->alloc, 1, sizeof *r);
	uint8_t *bytes = kvi_calloc(assembly->alloc, size, 1);
	if (!r || !bytes) {
		kvi_free(assembly->alloc, r);
		kvi_free(assembly->alloc, bytes);
		return NULL;
	}
	*r = (struct kvi_token_rows){
		.area = area, .t0 = t0, .n = n, .size = size, .bytes = bytes
	};
	insert(assembly, r);
	return r;
}

static int finish(struct kvi_assembly *assembly, struct kvi_token_rows *r)
{
	int ret = r->sink->write(r->sink->opaque, r->bytes, r->size, r->at);
	release(assembly, r);
	return ret;
}

int kvi_assembly_put(struct kvi_assembly *assembly, struct kvi_token_rows *rows, size_t bytes)
{
	rows->filled += bytes;
	return rows->filled < rows->size ? 0 : finish(assembly, rows);
}

int kvi_assembly_flush(struct kvi_assembly *assembly)
{
	int ret = 0;
	while (assembly->list)
		ret |= finish(assembly, assembly->list);
	return ret;
}

void kvi_assembly_free(struct kvi_assembly *assembly)
{
	while (assembly->list)
		release(assembly, assembly->list);
	kvi_free(assembly->alloc, assembly->of_area);
	assembly->of_area = NULL;
}
