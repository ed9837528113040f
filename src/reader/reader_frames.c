/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_frames.c - frames that others name, read where they are */
#include "reader_frames.h"
#include "reader_state.h"

kvarc_ret kvi_reader_bad(const struct kvi_frame *frame, kvarc_error *error, const char *what)
{
	return kvi_reason(error, KVARC_REASON_SALVAGE,
	                  kvi_fail_at(error, KVARC_DATA, frame->offset, frame->head.sequence,
	                              "%s frame %llu at offset %llu: %s; salvage may give the rest",
	                              kvi_frame_name(frame->head.type),
	                              (unsigned long long)frame->head.sequence,
	                              (unsigned long long)frame->offset, what));
}

kvarc_ret kvi_reader_not_valid(const struct kvi_frame *frame, kvarc_error *error)
{
	return kvi_fail_at(
		error, KVARC_DATA, frame->offset, frame->head.sequence,
		"%s frame %llu at offset %llu is not valid", kvi_frame_name(frame->head.type),
		(unsigned long long)frame->head.sequence, (unsigned long long)frame->offset);
}

/* The size of a frame that the index gives, at most; 0: none. */
static uint64_t expected_bytes(const kvarc_reader *r, uint64_t offset, uint16_t type,
                               uint64_t sequence)
{
	const struct kvi_chunk_ref *c = type == KVI_FRAME_CHUNK
	                                        ? kvi_index_chunk_at(&r->index, offset)
	                                        : NULL;
	const struct kvi_segment_ref *s = type == KVI_FRAME_SEGMENT
	                                          ? kvi_index_segment(&r->index, sequence)
	                                          : NULL;
	const struct kvi_params_ref *p = type == KVI_FRAME_PARAMS
	                                         ? kvi_index_params(&r->index, sequence)
	                                         : NULL;
	const size_t list =
		type == KVI_FRAME_LIST
			? kvi_list_search(&r->index.lists, sizeof(struct kvi_chunk_list),
	                                  offsetof(struct kvi_chunk_list, sequence), sequence)
			: r->index.lists.n;
	if (list < r->index.lists.n)
		return KVI_LIST(struct kvi_chunk_list, r->index.lists, list)->bytes;
	if (c)
		return c->bytes;
	if (s)
		return s->bytes;
	return p ? p->bytes : 0;
}

kvarc_ret kvi_reader_read_frame(kvarc_reader *r, uint64_t offset, uint16_t type, uint64_t sequence,
                                struct kvi_buffer *buf, struct kvi_frame *frame, kvarc_error *error)
{
	uint64_t expected = expected_bytes(r, offset, type, sequence);
	kvarc_ret ret = kvi_frame_read_expected(&r->in, offset, expected, buf, frame, error);
	if (ret == KVARC_END)
		return kvi_fail_at(error, KVARC_DATA, offset, sequence,
		                   "the file ends before the frame at offset %llu that it names",
		                   (unsigned long long)offset);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(frame, error);
	if (ret)
		return ret;
	if (frame->head.type != type || frame->head.sequence != sequence)
		return kvi_reader_bad(frame, error, "another frame was expected here");
	return KVARC_OK;
}

kvarc_ret kvi_reader_peek_chunk(kvarc_reader *r, const struct kvi_chunk_ref *chunk, uint8_t *head,
                                size_t extra, struct kvi_chunk_header *header,
                                struct kvi_frame *frame)
{
	kvarc_ret ret = kvi_frame_peek(&r->in, chunk->offset, head, KVI_CHUNK_HEADER_BYTES + extra,
	                               frame, r->error);
	if (ret)
		return ret;
	return frame->head.type == KVI_FRAME_CHUNK && frame->head.sequence == chunk->sequence &&
	                       frame->head.payload_bytes >= KVI_CHUNK_HEADER_BYTES + extra &&
	                       kvi_chunk_header_parse(header, frame->payload,
	                                              frame->head.payload_bytes) &&
	                       header->tensor == chunk->tensor && header->head == chunk->head &&
	                       header->heads == chunk->heads
	               ? KVARC_OK
	               : KVARC_DATA;
}

kvarc_ret kvi_reader_load_frame(kvarc_reader *r, struct kvi_packer *packer, uint64_t offset,
                                uint16_t type, uint64_t sequence, struct kvi_loaded *loaded,
                                kvarc_error *error)
{
	kvi_free(&r->alloc, loaded->owned);
	loaded->owned = NULL;
	kvarc_ret ret = kvi_reader_read_frame(r, offset, type, sequence, &loaded->buffer,
	                                      &loaded->frame, error);
	return ret ? ret
	           : kvi_frame_content(packer, &loaded->frame, &loaded->content, &loaded->owned,
	                               error);
}

void kvi_loaded_free(struct kvi_loaded *loaded, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, loaded->owned);
	kvi_free(alloc, loaded->buffer.p);
}

kvarc_ret kvi_reader_content(kvarc_reader *r, uint64_t offset, uint16_t type, uint64_t sequence,
                             struct kvi_out *to)
{
	struct kvi_loaded x = { 0 };
	kvarc_ret ret = kvi_reader_load_frame(r, &r->packer, offset, type, sequence, &x, r->error);
	to->n = 0;
	if (ret == KVARC_OK)
		kvi_put_bytes(to, x.content, x.frame.head.decoded_bytes);
	if (ret == KVARC_OK && to->failed)
		ret = kvi_fail_alloc(r->error, &r->alloc);
	kvi_loaded_free(&x, &r->alloc);
	return ret;
}
