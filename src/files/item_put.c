/* SPDX-License-Identifier: BSD-3-Clause */
/* item_put.c - the files of an import become RESTORE and BLOB frames (spec 10) */
#include "item_put.h"

#include "format/frame.h"
#include "util/error.h"
#include "util/source.h"
#include "writer/writer_internal.h"

enum { LITERAL_BYTES = 256 << 10 }; /* literal bytes of a BLOB frame, at most */

kvarc_ret kvi_item_put_plan(kvarc_writer *w, kvarc_error *error, const struct kvi_alloc *alloc,
                            const struct kvi_restore *plan)
{
	struct kvi_out out;
	kvi_out_init(&out, alloc);
	kvi_restore_put(&out, plan);
	kvarc_ret ret = out.failed ? kvi_fail_alloc(error, alloc)
	                           : kvi_writer_frame(w, KVI_FRAME_RESTORE, out.p, out.n, true);
	kvi_out_free(&out);
	return ret;
}

void kvi_item_put_begin(struct kvi_item_put *put, kvarc_writer *w, kvarc_error *error,
                        const struct kvi_alloc *alloc, uint64_t item)
{
	*put = (struct kvi_item_put){ .w = w, .error = error, .item = item };
	kvi_out_init(&put->out, alloc);
}

static kvarc_ret put_blob(struct kvi_item_put *put)
{
	kvarc_ret ret = KVARC_OK;
	if (put->out.failed)
		return kvi_fail_alloc(put->error, put->out.alloc);
	if (put->bytes)
		ret = kvi_writer_frame(put->w, KVI_FRAME_BLOB, put->out.p, put->out.n, true);
	put->offset += put->bytes;
	put->bytes = 0;
	put->out.n = 0;
	return ret;
}

/* The next bytes of the item, from an offset of a source on. Returns OK, MEM, MEMLIMIT, IO. */
static kvarc_ret item_put(struct kvi_item_put *put, const kvarc_source *source, uint64_t at,
                          uint64_t bytes)
{
	while (bytes) {
		uint64_t capacity = LITERAL_BYTES - put->bytes;
		size_t n = (size_t)(bytes < capacity ? bytes : capacity);
		if (put->bytes == 0)
			kvi_blob_put_head(&put->out, put->item, put->offset);
		uint8_t *dst = kvi_out_reserve(&put->out, n);
		if (!dst)
			return kvi_fail_alloc(put->error, put->out.alloc);
		if (kvi_source_read(source, dst, n, at))
			return kvi_fail(put->error, KVARC_IO, "reading the input failed");
		put->out.n += n;
		put->bytes += n;
		at += n;
		bytes -= n;
		kvarc_ret ret = KVARC_OK;
		if (put->bytes == LITERAL_BYTES)
			ret = put_blob(put);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

kvarc_ret kvi_item_put_literals(struct kvi_item_put *put, const struct kvi_restore *plan,
                                const kvarc_source *file)
{
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < plan->n_pieces && !ret; i++) {
		if (plan->pieces[i].type == KVI_PIECE_LITERAL)
			ret = item_put(put, file, at, plan->pieces[i].bytes);
		at += plan->pieces[i].bytes;
	}
	return ret;
}

kvarc_ret kvi_item_put_end(struct kvi_item_put *put, kvarc_ret ret)
{
	if (!ret)
		ret = put_blob(put);
	kvi_out_free(&put->out);
	return ret;
}
