/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.c - decodes one or two chunks: frame, parameters, payload, raw_check */
#include "stream/reader_state.h"

static kvarc_ret bad(const struct kvi_frame *f, kvarc_error *e,
                     const char *what)
{
	return kvi_fail(e, KVARC_DATA, f->offset, f->head.sequence,
	                "%s frame %llu at offset %llu: %s; salvage may give "
	                "the rest", kvi_frame_name(f->head.type),
	                (unsigned long long)f->head.sequence,
	                (unsigned long long)f->offset, what);
}

kvarc_ret kvi_reader_read_frame(kvarc_reader *r, uint64_t offset,
                                uint16_t type, uint64_t sequence,
                                struct kvi_buffer *buf, struct kvi_frame *f,
                                kvarc_error *e)
{
	kvarc_ret ret = kvi_frame_read(&r->in, offset, buf, f, e);
	if (ret == KVARC_END)
		return kvi_fail(e, KVARC_DATA, offset, sequence, "the file "
		                "ends before the frame at offset %llu that it "
		                "names", (unsigned long long)offset);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(f, e);
	if (ret)
		return ret;
	if (f->head.type != type || f->head.sequence != sequence)
		return bad(f, e, "another frame was expected here");
	return KVARC_OK;
}

kvarc_ret kvi_reader_add_params(kvarc_reader *r, const struct kvi_frame *f,
                                uint64_t sequence, const uint8_t *content,
                                size_t bytes, struct kvi_params_use **use,
                                kvarc_error *e)
{
	struct kvi_params_header h;
	struct kvi_params *params;
	if (!kvi_params_header_parse(&h, content, bytes))
		return bad(f, e, "it is too short");
	kvarc_ret ret = kvi_params_check(&r->geometry, &h, f, e);
	if (ret)
		return ret;
	const kvarc_tensor *t = &r->geometry.tensors[h.tensor];
	ret = kvi_params_parse(&params, &r->alloc, h.codec, t->dtype, h.heads,
	                       t->channels, kvi_tensor_rope(&r->geometry, t),
	                       content + KVI_PARAMS_HEADER_BYTES,
	                       bytes - KVI_PARAMS_HEADER_BYTES);
	if (ret == KVARC_DATA)
		return bad(f, e, "its parameters are not valid");
	if (ret == KVARC_OPTIONS)
		return kvi_fail(e, ret, f->offset, f->head.sequence,
		                "frame %llu at offset %llu has parameters that "
		                "a newer version of kvarc is needed for",
		                (unsigned long long)f->head.sequence,
		                (unsigned long long)f->offset);
	if (ret == KVARC_OK)
		ret = kvi_params_store_add(&r->store, params, &h, sequence, use);
	return ret ? kvi_fail_alloc(e, &r->alloc) : KVARC_OK;
}

/* The frame with this sequence number, else a copy of it. */
static const struct kvi_params_ref *find_params(const kvarc_reader *r,
                                                uint64_t sequence)
{
	size_t i = kvi_reader_params_at(r, sequence);
	const struct kvi_params_ref *p = r->params.p;
	if (i < r->params.n && p[i].sequence == sequence)
		return &p[i];
	for (i = 0; r->salvage && i < r->params.n; i++)
		if (p[i].copy_of == sequence)
			return &p[i];
	return NULL;
}

static kvarc_ret load_params(kvarc_reader *r, struct kvi_packer *packer,
                             const struct kvi_params_ref *ref,
                             uint64_t sequence, struct kvi_params_use **use,
                             kvarc_error *e)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	const uint8_t *content;
	uint8_t *owned = NULL;
	kvarc_ret ret = kvi_reader_read_frame(r, ref->offset, KVI_FRAME_PARAMS,
	                                      ref->sequence, &buf, &f, e);
	if (ret == KVARC_OK)
		ret = kvi_frame_content(packer, &f, &content, &owned, e);
	if (ret == KVARC_OK)
		ret = kvi_reader_add_params(r, &f, sequence, content,
		                            f.head.decoded_bytes, use, e);
	kvi_free(&r->alloc, owned);
	kvi_free(&r->alloc, buf.p);
	return ret;
}

kvarc_ret kvi_reader_params(kvarc_reader *r, struct kvi_packer *packer,
                            const struct kvi_chunk_ref *c,
                            struct kvi_params_use **use, kvarc_error *e)
{
	*use = NULL;
	if (!c->params)
		return KVARC_OK;
	*use = kvi_params_store_find(&r->store, c->tensor, c->head, c->params);
	if (!*use && !kvi_input_seekable(&r->in))
		return kvi_fail(e, KVARC_OPTIONS, c->offset, c->sequence,
		                "chunk %llu uses PARAMS frame %llu, which is "
		                "not the last one before it: the file needs a "
		                "source that can seek",
		                (unsigned long long)c->sequence,
		                (unsigned long long)c->params);
	if (!*use) {
		const struct kvi_params_ref *ref = find_params(r, c->params);
		if (!ref)
			return kvi_fail(e, KVARC_DATA, c->offset, c->sequence,
			                "PARAMS frame %llu, which chunk %llu "
			                "uses, is missing",
			                (unsigned long long)c->params,
			                (unsigned long long)c->sequence);
		kvarc_ret ret = load_params(r, packer, ref, c->params, use, e);
		if (ret)
			return ret;
	}
	const struct kvi_params_header *got = &(*use)->header;
	if (got->tensor == c->tensor && got->head == c->head &&
	    got->heads == c->heads)
		return KVARC_OK;
	kvi_params_store_release(&r->store, *use);
	*use = NULL;
	return kvi_fail(e, KVARC_DATA, c->offset, c->sequence, "PARAMS frame "
	                "%llu is not of the tensor of chunk %llu, which uses "
	                "it", (unsigned long long)c->params,
	                (unsigned long long)c->sequence);
}

kvarc_ret kvi_reader_read_segment(kvarc_reader *r, struct kvi_packer *packer,
                                  const struct kvi_segment_ref *ref,
                                  struct kvi_segment *s, kvarc_error *e)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	const uint8_t *content;
	uint8_t *owned = NULL;
	kvarc_ret ret = kvi_reader_read_frame(r, ref->offset, KVI_FRAME_SEGMENT,
	                                      ref->sequence, &buf, &f, e);
	if (ret == KVARC_OK)
		ret = kvi_frame_content(packer, &f, &content, &owned, e);
	if (ret == KVARC_OK &&
	    (!kvi_segment_parse(s, content, f.head.decoded_bytes) ||
	     s->track != ref->track || s->t0 != ref->t0 || s->n != ref->n))
		ret = bad(&f, e, "it is not valid, or not what the index says");
	kvi_free(&r->alloc, owned);
	kvi_free(&r->alloc, buf.p);
	return ret;
}

/* One chunk frame in memory, ready to be decoded. */
struct piece {
	const struct kvi_frame *frame;
	const struct kvi_chunk_header *h;
	const int32_t *positions; /* NULL: not known */
	const struct kvi_params_use *use; /* NULL: the codec has none */
};

static kvarc_ret open_payload(const kvarc_reader *r, const struct piece *p,
                              struct kvi_chunk *chunk,
                              struct kvi_chunk_payload *payload,
                              kvarc_error *e)
{
	const kvarc_tensor *t = &r->geometry.tensors[p->h->tensor];
	const struct kvi_params *params = p->use ? p->use->params : NULL;
	*chunk = (struct kvi_chunk){
		.dtype = t->dtype, .n_tokens = p->h->n, .heads = p->h->heads,
		.head_channels = t->channels, .positions = p->positions,
		.rope = kvi_tensor_rope(&r->geometry, t)
	};
	*payload = (struct kvi_chunk_payload){
		chunk, p->h->codec, p->h->lane_order, params,
		p->frame->payload + KVI_CHUNK_HEADER_BYTES,
		p->frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES
	};
	if (p->use && p->use->header.codec != p->h->codec)
		return bad(p->frame, e, "its PARAMS are of another codec");
	if (!p->positions && params && kvi_params_rotates(params))
		return bad(p->frame, e, "the positions of its tokens are lost");
	return KVARC_OK;
}

/* What came of it. */
static kvarc_ret close_payload(const kvarc_reader *r, const struct piece *p,
                               kvarc_ret ret, const uint8_t *raw,
                               kvarc_error *e)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(e, &r->alloc);
	if (ret == KVARC_OPTIONS)
		return kvi_fail(e, ret, p->frame->offset,
		                p->frame->head.sequence, "a newer version of "
		                "kvarc is needed for the chunk at offset %llu",
		                (unsigned long long)p->frame->offset);
	if (ret)
		return bad(p->frame, e, "its payload does not decode");
	if (kvi_h64(raw, p->frame->head.decoded_bytes) != p->h->raw_check)
		return bad(p->frame, e, "raw_check does not hold");
	return KVARC_OK;
}

static kvarc_ret decode_payload(kvarc_reader *r, struct kvi_coder *coder,
                                const struct piece *p, uint8_t *raw,
                                kvarc_error *e)
{
	struct kvi_chunk chunk;
	struct kvi_chunk_payload in;
	kvarc_ret ret = open_payload(r, p, &chunk, &in, e);
	if (ret)
		return ret;
	ret = kvi_chunk_decode(coder, &chunk, in.codec, in.lane_order,
	                       in.params, in.payload, in.payload_bytes, raw);
	return close_payload(r, p, ret, raw, e);
}

/* Decodes the chunk that a REPEAT names (spec/codecs/repeat.md). */
static kvarc_ret decode_target(kvarc_reader *r, struct kvi_coder *coder,
                               const struct kvi_frame *f, uint8_t *raw,
                               kvarc_error *e)
{
	struct kvi_packer packer;
	struct kvi_params_use *use = NULL;
	struct kvi_segment *segment = NULL;
	struct kvi_chunk_header h;
	struct piece p = { f, &h, NULL, NULL };
	kvarc_ret ret = KVARC_OK;
	kvi_packer_init(&packer, &r->alloc);
	if (!kvi_chunk_header_parse(&h, f->payload, f->head.payload_bytes))
		ret = bad(f, e, "its header is not valid");
	if (ret == KVARC_OK)
		ret = kvi_chunk_check(&r->geometry, &h, f, e);
	if (ret == KVARC_OK) {
		struct kvi_chunk_ref c = { f->offset, f->head.sequence,
		                           h.params, h.tensor, h.head, h.heads };
		ret = kvi_reader_params(r, &packer, &c, &use, e);
	}
	if (ret == KVARC_OK && use && kvi_params_rotates(use->params)) {
		const struct kvi_segment_ref *ref =
			kvi_reader_find_segment(r, h.segment);
		segment = kvi_malloc(&r->alloc, sizeof *segment);
		if (!segment)
			ret = kvi_fail_alloc(e, &r->alloc);
		else if (!ref || !ref->offset || ref->n != h.n)
			ret = bad(f, e, "its SEGMENT is missing");
		else
			ret = kvi_reader_read_segment(r, &packer, ref, segment,
			                              e);
		p.positions = ret ? NULL : segment->positions;
	}
	p.use = use;
	if (ret == KVARC_OK)
		ret = decode_payload(r, coder, &p, raw, e);
	kvi_params_store_release(&r->store, use);
	kvi_free(&r->alloc, segment);
	kvi_packer_free(&packer);
	return ret;
}

static kvarc_ret decode_repeat(struct kvi_decode_job *j,
                               struct kvi_coder *coder,
                               const struct kvi_chunk_header *h)
{
	kvarc_reader *r = j->r;
	const uint8_t *p = j->frame.payload + KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	if (!kvi_input_seekable(&r->in))
		return kvi_fail(&j->error, KVARC_OPTIONS, j->frame.offset,
		                j->frame.head.sequence, "the chunk at offset "
		                "%llu repeats an earlier one: this file needs "
		                "a source that can seek, not a pipe",
		                (unsigned long long)j->frame.offset);
	if (j->frame.head.payload_bytes !=
	    KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES)
		return bad(&j->frame, &j->error, "its size");
	uint64_t sequence = kvi_load64(p), offset = kvi_load64(p + 8);
	if (sequence >= j->frame.head.sequence || offset >= j->frame.offset ||
	    offset % KVI_FRAME_ALIGN)
		return bad(&j->frame, &j->error, "it repeats a later frame");
	kvarc_ret ret = kvi_reader_read_frame(r, offset, KVI_FRAME_CHUNK,
	                                      sequence, &j->other, &f,
	                                      &j->error);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    there.codec == KVI_CODEC_REPEAT ||
	    there.raw_check != h->raw_check ||
	    f.head.decoded_bytes != j->frame.head.decoded_bytes)
		return bad(&j->frame, &j->error, "what it repeats differs");
	return decode_target(r, coder, &f, j->raw.p, &j->error);
}

/* The header that was read against what the index or the segment say. */
static bool as_expected(const struct kvi_decode_job *j,
                        const struct kvi_chunk_header *h)
{
	return h->tensor == j->ref.tensor && h->head == j->ref.head &&
	       h->heads == j->ref.heads && h->params == j->ref.params &&
	       h->segment == j->segment_sequence && h->t0 == j->t0 &&
	       h->n == j->n;
}

static kvarc_ret get_frame(struct kvi_decode_job *j, struct kvi_chunk_header *h)
{
	kvarc_reader *r = j->r;
	kvarc_ret ret = j->have_frame ? KVARC_OK
		: kvi_reader_read_frame(r, j->ref.offset, KVI_FRAME_CHUNK,
		                        j->ref.sequence, &j->buffer, &j->frame,
		                        &j->error);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(h, j->frame.payload,
	                            j->frame.head.payload_bytes))
		return bad(&j->frame, &j->error, "its header is not valid");
	ret = kvi_chunk_check(&r->geometry, h, &j->frame, &j->error);
	if (ret)
		return ret;
	if (!as_expected(j, h))
		return bad(&j->frame, &j->error, "it is not what the index or "
		           "its segment say");
	j->raw_bytes = j->frame.head.decoded_bytes;
	if (!kvi_buffer_grow(&j->raw, &r->alloc, j->raw_bytes, 0))
		return kvi_fail_alloc(&j->error, &r->alloc);
	return KVARC_OK;
}

static struct piece piece_of(const struct kvi_decode_job *j,
                             const struct kvi_chunk_header *h)
{
	struct piece p = {
		&j->frame, h,
		j->segment->known ? j->segment->segment.positions : NULL,
		j->params
	};
	return p;
}

static kvarc_ret decode_chunk(struct kvi_decode_job *j,
                              struct kvi_coder *coder,
                              const struct kvi_chunk_header *h)
{
	struct piece p = piece_of(j, h);
	return h->codec == KVI_CODEC_REPEAT
	       ? decode_repeat(j, coder, h)
	       : decode_payload(j->r, coder, &p, j->raw.p, &j->error);
}

/* Fills ret of two jobs whose frames are there. */
static void decode_two(struct kvi_decode_job *const j[2],
                       struct kvi_coder *const coders[2],
                       const struct kvi_chunk_header h[2])
{
	struct piece piece[2];
	struct kvi_chunk chunk[2];
	struct kvi_chunk_payload in[2];
	kvarc_ret ret[2];
	for (int i = 0; i < 2; i++) {
		piece[i] = piece_of(j[i], &h[i]);
		j[i]->ret = open_payload(j[i]->r, &piece[i], &chunk[i], &in[i],
		                         &j[i]->error);
	}
	if (j[0]->ret || j[1]->ret) {
		for (int i = 0; i < 2; i++)
			j[i]->ret = decode_chunk(j[i], coders[i], &h[i]);
		return;
	}
	kvi_chunk_decode2(coders, in,
	                  (uint8_t *const[2]){ j[0]->raw.p, j[1]->raw.p }, ret);
	for (int i = 0; i < 2; i++)
		j[i]->ret = close_payload(j[i]->r, &piece[i], ret[i],
		                          j[i]->raw.p, &j[i]->error);
}

static kvarc_ret hand_over(struct kvi_decode_job *j)
{
	const struct kvi_chunk_ref *c = &j->ref;
	if (!j->deliver)
		return KVARC_OK;
	size_t row = j->raw_bytes / j->n;
	if (j->deliver(j->opaque, c->tensor, c->head, c->heads, j->from,
	               j->count, j->raw.p + (size_t)(j->from - j->t0) * row))
		return kvi_fail(&j->error, KVARC_IO, j->frame.offset,
		                j->frame.head.sequence, "taking the decoded "
		                "tokens from %llu on of tensor %u failed",
		                (unsigned long long)j->from,
		                (unsigned)c->tensor);
	return KVARC_OK;
}

/* Nothing is delivered after a failure that ends the reading. */
static bool goes_on(const struct kvi_decode_job *j)
{
	return !j->ret || (j->ret == KVARC_DATA && j->r->salvage);
}

void kvi_reader_run_job(struct kvi_job *job, unsigned worker)
{
	struct kvi_decode_job *first = (struct kvi_decode_job *)job;
	struct kvi_decode_job *const j[2] = { first, first->partner };
	struct kvi_coder *const *coders = &first->r->coders[2 * worker];
	const int n = j[1] ? 2 : 1;
	struct kvi_chunk_header h[2];
	for (int i = 0; i < n; i++)
		j[i]->ret = get_frame(j[i], &h[i]);
	if (n == 2 && !j[0]->ret && !j[1]->ret &&
	    h[0].codec != KVI_CODEC_REPEAT && h[1].codec != KVI_CODEC_REPEAT)
		decode_two(j, coders, h);
	else
		for (int i = 0; i < n; i++)
			if (!j[i]->ret)
				j[i]->ret = decode_chunk(j[i], coders[0],
				                         &h[i]);
	for (int i = 0; i < n; i++) {
		if (i == 1 && !goes_on(j[0])) {
			j[1]->ret = j[0]->ret;
			j[1]->error = j[0]->error;
		} else if (!j[i]->ret) {
			j[i]->ret = hand_over(j[i]);
		}
	}
}
