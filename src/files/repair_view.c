/* SPDX-License-Identifier: BSD-3-Clause */
/* repair_view.c - a damaged archive with what was restored of it so far */
#include "repair_view.h"

#include <string.h>

kvarc_ret kvi_view_patch(struct kvi_repair_view *v, uint64_t offset, uint64_t bytes, uint8_t *p)
{
	struct kvi_patch *patch = kvi_list_add(&v->patches, v->alloc, sizeof *patch);
	if (!patch) {
		kvi_free(v->alloc, p);
		return kvi_fail_alloc(v->error, v->alloc);
	}
	*patch = (struct kvi_patch){ offset, bytes, p };
	v->size = offset + bytes > v->size ? offset + bytes : v->size;
	return KVARC_OK;
}

void kvi_view_free(struct kvi_repair_view *v)
{
	for (size_t i = 0; i < v->patches.n; i++)
		kvi_free(v->alloc, KVI_LIST(struct kvi_patch, v->patches, i)->p);
	kvi_free(v->alloc, v->patches.p);
	v->patches = (struct kvi_list){ 0 };
}

/* Of the source alone. */
static kvarc_ret read_source(const struct kvi_repair_view *v, uint8_t *buf, size_t bytes,
                             uint64_t offset)
{
	const struct kvi_input in = { .source = *v->source, .alloc = v->alloc };
	size_t got;
	kvarc_ret ret = kvi_input_read(&in, buf, bytes, offset, &got, v->error);
	if (ret == KVARC_OK)
		memset(buf + got, 0, bytes - got);
	return ret;
}

kvarc_ret kvi_view_read(const struct kvi_repair_view *v, void *buf, size_t bytes, uint64_t offset,
                        size_t *got)
{
	*got = 0;
	if (offset >= v->size)
		return KVARC_OK;
	bytes = bytes < v->size - offset ? bytes : (size_t)(v->size - offset);
	kvarc_ret ret = read_source(v, buf, bytes, offset);
	for (size_t i = 0; i < v->patches.n && !ret; i++) {
		const struct kvi_patch *p = KVI_LIST(struct kvi_patch, v->patches, i);
		const uint64_t from = p->offset > offset ? p->offset : offset;
		const uint64_t p_end = p->offset + p->bytes, end = offset + bytes;
		const uint64_t to = p_end < end ? p_end : end;
		if (from < to)
			memcpy((uint8_t *)buf + (from - offset), p->p + (from - p->offset),
			       (size_t)(to - from));
	}
	*got = ret ? 0 : bytes;
	return ret;
}

kvarc_ret kvi_view_hash(const struct kvi_repair_view *v, uint64_t offset, uint32_t bytes,
                        struct kvi_h128 *h, bool *there)
{
	size_t got;
	*there = offset <= v->size && bytes <= v->size - offset;
	if (!*there)
		return KVARC_OK;
	uint8_t *p = kvi_malloc(v->alloc, bytes);
	kvarc_ret ret = p ? kvi_view_read(v, p, bytes, offset, &got)
	                  : kvi_fail_alloc(v->error, v->alloc);
	if (!ret)
		*h = kvi_h128(p, bytes);
	kvi_free(v->alloc, p);
	return ret;
}

static int64_t view_source_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	size_t got;
	return kvi_view_read(opaque, buf, bytes, offset, &got) ? -1 : (int64_t)got;
}

kvarc_source kvi_view_source(struct kvi_repair_view *v, uint64_t size)
{
	return (kvarc_source){ .read = view_source_read, .opaque = v, .size = size };
}
