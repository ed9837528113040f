/* SPDX-License-Identifier: BSD-3-Clause */
/* literals.c - literal bytes of the items of an archive, at any offset (spec 10) */
#include "literals.h"

#include <stdlib.h>
#include <string.h>

#include "reader/reader_errors.h"
#include "reader/reader_frames.h"
#include "reader/reader_index.h"
#include "reader/reader_internal.h"
#include "util/error.h"

/* A BLOB frame. */
struct kvi_literal_blob {
	uint64_t item, offset, bytes;
	uint64_t frame, sequence; /* frame: its offset in the file */
};

/* Leaves out a damaged BLOB: only who needs its bytes fails. */
static kvarc_ret leave_out(struct kvi_literals *literals)
{
	if (!literals->lost && kvi_reader_error(literals->r))
		literals->error = *kvi_reader_error(literals->r);
	literals->lost = true;
	kvi_reader_forgive(literals->r);
	return KVARC_OK;
}

/* Adds a BLOB frame of the index. */
static kvarc_ret add_blob(struct kvi_literals *literals, const struct kvi_blob_ref *ref)
{
	struct kvi_blob b;
	kvarc_ret ret = kvi_reader_content(literals->r, ref->offset, KVI_FRAME_BLOB, ref->sequence,
	                                   &literals->content);
	if (!ret && !kvi_blob_parse(&b, literals->content.p, literals->content.n))
		ret = kvi_fail(kvi_reader_error(literals->r), KVARC_DATA,
		               "a BLOB frame is not valid");
	if (ret)
		return ret == KVARC_DATA ? leave_out(literals) : ret;
	const struct kvi_alloc *alloc = kvi_reader_alloc(literals->r);
	struct kvi_literal_blob *to = kvi_list_add(&literals->blobs, alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(kvi_reader_error(literals->r), alloc);
	*to = (struct kvi_literal_blob){ b.item, b.offset, b.bytes, ref->offset, ref->sequence };
	literals->loaded = ref->offset;
	return KVARC_OK;
}

static int by_offset(const void *a, const void *b)
{
	const struct kvi_literal_blob *x = a, *y = b;
	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

kvarc_ret kvi_literals_open(struct kvi_literals *literals, kvarc_reader *r)
{
	const struct kvi_list *l = &kvi_reader_index(r)->blobs;
	kvarc_ret ret = KVARC_OK;
	*literals = (struct kvi_literals){ .r = r };
	kvi_out_init(&literals->content, kvi_reader_alloc(r));
	for (size_t i = 0; i < l->n && !ret; i++)
		ret = add_blob(literals, KVI_LIST(struct kvi_blob_ref, *l, i));
	if (literals->blobs.n)
		qsort(literals->blobs.p, literals->blobs.n, sizeof(struct kvi_literal_blob),
		      by_offset);
	return kvi_reader_set_error(r, ret);
}

void kvi_literals_free(struct kvi_literals *literals)
{
	if (!literals->r)
		return;
	kvi_free(kvi_reader_alloc(literals->r), literals->blobs.p);
	kvi_out_free(&literals->content);
	*literals = (struct kvi_literals){ 0 };
}

/* The BLOB that holds a byte of an item; NULL: none does. */
static const struct kvi_literal_blob *find(const struct kvi_literals *literals, uint64_t item,
                                           uint64_t byte)
{
	size_t lo = 0, hi = literals->blobs.n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct kvi_literal_blob *b = KVI_LIST(struct kvi_literal_blob,
		                                            literals->blobs, mid);
		if (b->item < item || (b->item == item && b->offset <= byte))
			lo = mid + 1;
		else
			hi = mid;
	}
	const struct kvi_literal_blob *b =
		lo ? KVI_LIST(struct kvi_literal_blob, literals->blobs, lo - 1) : NULL;
	return b && b->item == item && byte - b->offset < b->bytes ? b : NULL;
}

kvarc_ret kvi_literals_read(struct kvi_literals *literals, uint64_t item, uint64_t from,
                            size_t bytes, uint8_t *to)
{
	while (bytes) {
		const struct kvi_literal_blob *b = find(literals, item, from);
		struct kvi_blob content;
		if (!b && literals->lost && kvi_reader_error(literals->r))
			*kvi_reader_error(literals->r) = literals->error;
		if (!b && literals->lost)
			return kvi_reader_set_error(literals->r, KVARC_DATA);
		if (!b)
			return kvi_reader_fail(literals->r, KVARC_DATA,
			                       "bytes of packed files are missing");
		kvarc_ret ret = KVARC_OK;
		if (literals->loaded != b->frame)
			ret = kvi_reader_content(literals->r, b->frame, KVI_FRAME_BLOB, b->sequence,
			                         &literals->content);
		if (!ret && !kvi_blob_parse(&content, literals->content.p, literals->content.n))
			ret = KVARC_DATA;
		if (ret)
			return kvi_reader_set_error(literals->r, ret);
		literals->loaded = b->frame;
		size_t left = (size_t)(b->bytes - (from - b->offset));
		size_t n = left < bytes ? left : bytes;
		memcpy(to, content.data + (from - b->offset), n);
		to += n;
		from += n;
		bytes -= n;
	}
	return KVARC_OK;
}
