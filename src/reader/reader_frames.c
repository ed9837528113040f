/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_frames.c - frames that others name: parameters, segments */
#include "reader_decode.h"
#include "reader_stored.h"

kvarc_ret kvi_reader_bad(const struct kvi_frame *f, kvarc_error *e, const char *what)
{
	return kvi_reason(e, KVARC_REASON_SALVAGE,
	                  kvi_fail_at(e, KVARC_DATA, f->offset, f->head.sequence,
	                              "%s frame %llu at offset %llu: %s; salvage may give the rest",
	                              kvi_frame_name(f->head.type),
	                              (unsigned long long)f->head.sequence,
	                              (unsigned long long)f->offset, what));
}

kvarc_ret kvi_reader_not_valid(const struct kvi_frame *f, kvarc_error *e)
{
	return kvi_fail_at(e, KVARC_DATA, f->offset, f->head.sequence,
	                   "%s frame %llu at offset %llu is not valid",
	                   kvi_frame_name(f->head.type), (unsigned long long)f->head.sequence,
	                   (unsigned long long)f->offset);
}

/* How many bytes the index gives to a frame, 0: none. */
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
	if (c)
		return c->bytes;
	if (s)
		return s->bytes;
	return p ? p->bytes : 0;
}

kvarc_ret kvi_reader_read_frame(kvarc_reader *r, uint64_t offset, uint16_t type, uint64_t sequence,
                                struct kvi_buffer *buf, struct kvi_frame *f, kvarc_error *e)
{
	uint64_t expected = expected_bytes(r, offset, type, sequence);
	kvarc_ret ret = kvi_frame_read_expected(&r->in, offset, expected, buf, f, e);
	if (ret == KVARC_END)
		return kvi_fail_at(e, KVARC_DATA, offset, sequence,
		                   "the file ends before the frame at offset %llu that it names",
		                   (unsigned long long)offset);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(f, e);
	if (ret)
		return ret;
	if (f->head.type != type || f->head.sequence != sequence)
		return kvi_reader_bad(f, e, "another frame was expected here");
	return KVARC_OK;
}

kvarc_ret kvi_reader_load_frame(kvarc_reader *r, struct kvi_packer *packer, uint64_t offset,
                                uint16_t type, uint64_t sequence, struct kvi_loaded *x,
                                kvarc_error *e)
{
	kvi_free(&r->alloc, x->owned);
	x->owned = NULL;
	kvarc_ret ret = kvi_reader_read_frame(r, offset, type, sequence, &x->buffer, &x->frame, e);
	return ret ? ret : kvi_frame_content(packer, &x->frame, &x->content, &x->owned, e);
}

void kvi_loaded_free(struct kvi_loaded *x, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, x->owned);
	kvi_free(alloc, x->buffer.p);
}

kvarc_ret kvi_reader_add_params(kvarc_reader *r, const struct kvi_frame *f, uint64_t sequence,
                                const uint8_t *content, size_t bytes, struct kvi_params_use **use,
                                kvarc_error *e)
{
	struct kvi_params_header h;
	struct kvi_params *params;
	if (!kvi_params_header_parse(&h, content, bytes))
		return kvi_reader_bad(f, e, "it is too short");
	kvarc_ret ret = kvi_params_check(&r->geometry, &h, f, e);
	if (ret)
		return ret;
	const kvarc_tensor *t = &r->geometry.tensors[h.tensor];
	ret = kvi_params_parse(&params, &r->alloc, h.codec, t->dtype, h.heads, t->channels,
	                       kvi_tensor_rope(&r->geometry, t), content + KVI_PARAMS_HEADER_BYTES,
	                       bytes - KVI_PARAMS_HEADER_BYTES);
	if (ret == KVARC_DATA)
		return kvi_reader_bad(f, e, "its parameters are not valid");
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, ret, f->offset, f->head.sequence,
		                    "frame %llu at offset %llu has parameters that need a newer "
		                    "version of kvarc",
		                    (unsigned long long)f->head.sequence,
		                    (unsigned long long)f->offset));
	if (ret == KVARC_OK)
		ret = kvi_params_store_add(&r->workers.store, params, &h, sequence, use);
	return ret ? kvi_fail_alloc(e, &r->alloc) : KVARC_OK;
}

/* The frame with this sequence number, else a copy of it. */
static const struct kvi_params_ref *find_params(const kvarc_reader *r, uint64_t sequence)
{
	const struct kvi_params_ref *p = kvi_index_params(&r->index, sequence);
	if (p)
		return p;
	p = r->index.params.p;
	for (size_t i = 0; r->salvage && i < r->index.params.n; i++)
		if (p[i].copy_of == sequence)
			return &p[i];
	return NULL;
}

static kvarc_ret load_params(kvarc_reader *r, struct kvi_packer *packer,
                             const struct kvi_params_ref *ref, uint64_t sequence,
                             struct kvi_params_use **use, kvarc_error *e)
{
	struct kvi_loaded x = { 0 };
	kvarc_ret ret = kvi_reader_load_frame(r, packer, ref->offset, KVI_FRAME_PARAMS,
	                                      ref->sequence, &x, e);
	if (ret == KVARC_OK)
		ret = kvi_reader_add_params(r, &x.frame, sequence, x.content,
		                            x.frame.head.decoded_bytes, use, e);
	kvi_loaded_free(&x, &r->alloc);
	return ret;
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

static kvarc_ret missing_params(const struct kvi_chunk_ref *c, kvarc_error *e)
{
	return kvi_fail_at(e, KVARC_DATA, c->offset, c->sequence,
	                   "PARAMS frame %llu, which chunk %llu uses, is missing",
	                   (unsigned long long)c->params, (unsigned long long)c->sequence);
}

kvarc_ret kvi_reader_params_content(kvarc_reader *r, const struct kvi_chunk_ref *c,
                                    struct kvi_out *content)
{
	const struct kvi_params_ref *p = find_params(r, c->params);
	return p ? kvi_reader_content(r, p->offset, KVI_FRAME_PARAMS, p->sequence, content)
	         : missing_params(c, r->error);
}

kvarc_ret kvi_reader_params(kvarc_reader *r, struct kvi_packer *packer,
                            const struct kvi_chunk_ref *c, struct kvi_params_use **use,
                            kvarc_error *e)
{
	*use = NULL;
	if (!c->params || c->linear)
		return KVARC_OK;
	*use = kvi_params_store_find(&r->workers.store, c->tensor, c->head, c->params);
	if (!*use && !kvi_input_seekable(&r->in))
		return kvi_reason(
			e, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(e, KVARC_OPTIONS, c->offset, c->sequence,
		                    "chunk %llu uses PARAMS frame %llu, which is not the last one "
		                    "before it: the file needs a source that can seek",
		                    (unsigned long long)c->sequence,
		                    (unsigned long long)c->params));
	if (!*use) {
		const struct kvi_params_ref *ref = find_params(r, c->params);
		if (!ref)
			return missing_params(c, e);
		kvarc_ret ret = load_params(r, packer, ref, c->params, use, e);
		if (ret)
			return ret;
	}
	const struct kvi_params_header *got = &(*use)->header;
	if (got->tensor == c->tensor && got->head == c->head && got->heads == c->heads)
		return KVARC_OK;
	kvi_params_store_release(&r->workers.store, *use);
	*use = NULL;
	return kvi_fail_at(e, KVARC_DATA, c->offset, c->sequence,
	                   "PARAMS frame %llu is not of the tensor of chunk %llu, which uses it",
	                   (unsigned long long)c->params, (unsigned long long)c->sequence);
}

kvarc_ret kvi_reader_read_segment(kvarc_reader *r, struct kvi_packer *packer,
                                  const struct kvi_segment_ref *ref, struct kvi_segment *s,
                                  kvarc_error *e)
{
	struct kvi_loaded x = { 0 };
	if (ref->stored)
		return kvi_stored_segment(r, ref, s, e);
	kvarc_ret ret = kvi_reader_load_frame(r, packer, ref->offset, KVI_FRAME_SEGMENT,
	                                      ref->sequence, &x, e);
	if (ret == KVARC_OK &&
	    (!kvi_segment_parse(s, x.content, x.frame.head.decoded_bytes) ||
	     s->track != ref->track || s->t0 != ref->t0 || s->n != ref->n ||
	     s->has_chain != ref->chain.known || !kvi_h128_equal(s->chain, ref->chain.value)))
		ret = kvi_reader_bad(&x.frame, e, "it is not valid, or not what the index says");
	s->left = ref->left;
	s->sequence = ref->sequence;
	kvi_loaded_free(&x, &r->alloc);
	return ret;
}

kvarc_ret kvi_segment_use_load(kvarc_reader *r, struct kvi_packer *packer,
                               const struct kvi_segment_ref *ref, struct kvi_segment_use **use,
                               kvarc_error *e)
{
	*use = kvi_segment_use_new(r);
	if (!*use)
		return kvi_fail_alloc(e, &r->alloc);
	(*use)->known = ref->offset != 0;
	if (ref->stored)
		return kvi_stored_use(r, ref, *use, e);
	return ref->offset ? kvi_reader_read_segment(r, packer, ref, &(*use)->segment, e)
	                   : KVARC_OK;
}
