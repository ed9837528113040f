/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_repeat.c - the chunk that a REPEAT names (spec/codecs/repeat.md) */
#include "reader_decode.h"
#include "reader_range.h"

static struct kvi_repeated *open_repeated(kvarc_reader *r)
{
	pthread_mutex_lock(&r->predictors.lock);
	if (!r->workers.repeated) {
		r->workers.repeated = kvi_calloc(&r->alloc, 1, sizeof *r->workers.repeated);
		if (r->workers.repeated && pthread_mutex_init(&r->workers.repeated->lock, NULL)) {
			kvi_free(&r->alloc, r->workers.repeated);
			r->workers.repeated = NULL;
		}
	}
	struct kvi_repeated *x = r->workers.repeated;
	pthread_mutex_unlock(&r->predictors.lock);
	return x;
}

void kvi_reader_free_repeated(kvarc_reader *r)
{
	struct kvi_repeated *x = r->workers.repeated;
	if (!x)
		return;
	kvi_segment_use_release(r, x->use);
	kvi_free(&r->alloc, x->job.buffer.p);
	kvi_free(&r->alloc, x->job.scratch.p);
	pthread_mutex_destroy(&x->lock);
	kvi_free(&r->alloc, x);
}

/* Begins a segment: any of its chunks may be repeated. */
static kvarc_ret begin(kvarc_reader *r, struct kvi_repeated *x, const struct kvi_segment_ref *s,
                       uint64_t predictor, kvarc_error *e)
{
	struct kvi_predictor_ref *p = kvi_reader_find_predictor(r, predictor);
	struct kvi_packer packer;
	kvi_segment_use_release(r, x->use);
	kvi_packer_init(&packer, &r->alloc); /* a worker has none */
	kvarc_ret ret = kvi_segment_use_load(r, &packer, s, &x->use, e);
	kvi_packer_free(&packer);
	x->segment = s->sequence;
	x->next = s->first;
	x->order_index = r->order.first[s->track];
	if (ret == KVARC_OK)
		ret = p ? kvi_reader_load_predictor(r, p, e)
		        : kvi_fail_at(e, KVARC_DATA, KVARC_UNKNOWN, predictor,
		                      "the PREDICTOR frame of a repeated chunk is missing");
	if (ret == KVARC_OK)
		ret = kvi_reader_open_features(r, s->track, p->plan, &x->use->features, e);
	if (ret == KVARC_OK)
		kvi_reader_plan_features(r, s, NULL, x->use);
	return ret;
}

/* Goes past one chunk: decodes it when it is the target, or when others are
 * predicted from it. */
static kvarc_ret pass(kvarc_reader *r, struct kvi_repeated *x, const struct kvi_segment_ref *s,
                      const struct kvi_chunk_ref *c, bool target, struct kvi_coder *coder,
                      kvarc_error *e)
{
	struct kvi_decode_job *j = &x->job;
	uint32_t order_index;
	if (!kvi_reader_order_index(r, s, c, &x->order_index, &order_index) ||
	    c->heads != r->geometry.tensors[c->tensor].heads)
		return KVARC_OK;
	if (!target && !kvi_feature_slot(x->use->features, order_index)->asked) {
		kvi_feature_table_leave(x->use->features, order_index);
		return KVARC_OK;
	}
	struct kvi_packer packer;
	kvi_packer_init(&packer, &r->alloc);
	kvarc_ret ret = kvi_reader_params(r, &packer, c, &j->params, e);
	kvi_packer_free(&packer);
	if (ret) {
		kvi_feature_table_leave(x->use->features, order_index);
		return target ? ret : KVARC_OK;
	}
	kvi_reader_assign(r, j, s, c, x->use, order_index);
	kvi_reader_decode_job(j, coder);
	kvi_params_store_release(&r->workers.store, j->params);
	j->params = NULL;
	if (j->ret)
		*e = j->error;
	return target ? j->ret : KVARC_OK; /* chunks that need its features report it */
}

/* Passes all chunks up to the one with this sequence number. */
static kvarc_ret go_to(kvarc_reader *r, struct kvi_repeated *x, const struct kvi_segment_ref *s,
                       uint64_t sequence, struct kvi_coder *coder, kvarc_error *e)
{
	kvarc_ret ret = KVARC_OK;
	while (x->next < s->end && ret == KVARC_OK) {
		const struct kvi_chunk_ref *c = KVI_LIST(struct kvi_chunk_ref, r->index.chunks,
		                                         x->next++);
		ret = pass(r, x, s, c, c->sequence == sequence, coder, e);
		if (c->sequence == sequence)
			return ret;
	}
	return ret ? ret
	           : kvi_fail_at(e, KVARC_DATA, KVARC_UNKNOWN, sequence,
	                         "a repeated chunk is not in its segment");
}

/* A chunk of codec linear of this or another segment; its features are made on the way. */
static kvarc_ret decode_linear(kvarc_reader *r, struct kvi_coder *coder, const struct kvi_frame *f,
                               const struct kvi_chunk_header *h, uint8_t *raw, kvarc_error *e)
{
	const struct kvi_segment_ref *s = kvi_index_segment(&r->index, h->segment);
	struct kvi_repeated *x = open_repeated(r);
	kvarc_ret ret = KVARC_OK;
	if (!s || s->stored || s->n != h->n)
		return kvi_reader_bad(f, e, "its SEGMENT is missing");
	if (!x)
		return kvi_fail_alloc(e, &r->alloc);
	pthread_mutex_lock(&x->lock);
	if (!x->use || x->segment != s->sequence || x->next >= s->end ||
	    KVI_LIST(struct kvi_chunk_ref, r->index.chunks, x->next)->sequence > f->head.sequence)
		ret = begin(r, x, s, h->params, e);
	if (ret == KVARC_OK)
		ret = go_to(r, x, s, f->head.sequence, coder, e);
	if (ret == KVARC_OK)
		memcpy(raw, x->job.scratch.p, f->head.decoded_bytes);
	else if (x->use) { /* from the first chunk again next time */
		kvi_segment_use_release(r, x->use);
		x->use = NULL;
	}
	pthread_mutex_unlock(&x->lock);
	return ret;
}

/* Whether a chunk refers to another one (spec/codecs/state.md). */
static bool refers(const struct kvi_frame *f, const struct kvi_chunk_header *h)
{
	uint64_t sequence, offset;
	return h->codec == KVI_CODEC_STATE &&
	       kvi_state_reference(f->payload + KVI_CHUNK_HEADER_BYTES,
	                           f->head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &sequence,
	                           &offset);
}

kvarc_ret kvi_reader_decode_target(kvarc_reader *r, struct kvi_coder *coder,
                                   const struct kvi_frame *f, uint8_t *raw, kvarc_error *e)
{
	struct kvi_packer packer;
	struct kvi_params_use *use = NULL;
	struct kvi_segment *segment = NULL;
	struct kvi_chunk_header h;
	struct kvi_chunk_piece p = { .frame = f, .h = &h };
	kvarc_ret ret = KVARC_OK;
	kvi_packer_init(&packer, &r->alloc);
	if (!kvi_chunk_header_parse(&h, f->payload, f->head.payload_bytes))
		ret = kvi_reader_bad(f, e, "its header is not valid");
	if (ret == KVARC_OK)
		ret = kvi_chunk_check(&r->geometry, &h, f, e);
	if (ret == KVARC_OK && kvi_codec_uses_prediction(h.codec))
		ret = kvi_reader_bad(f, e, "a chunk that a model predicts cannot be repeated");
	if (ret == KVARC_OK && refers(f, &h))
		ret = kvi_reader_bad(f, e,
		                     "a chunk with a reference cannot be repeated, or be "
		                     "one itself");
	if (ret == KVARC_OK && kvi_codec_predicts(h.codec)) {
		kvi_packer_free(&packer);
		return decode_linear(r, coder, f, &h, raw, e);
	}
	if (ret == KVARC_OK) {
		const struct kvi_chunk_ref c = kvi_chunk_ref(f, &h);
		ret = kvi_reader_params(r, &packer, &c, &use, e);
	}
	if (ret == KVARC_OK && use && kvi_params_rotates(use->params)) {
		const struct kvi_segment_ref *ref = kvi_index_segment(&r->index, h.segment);
		segment = kvi_malloc(&r->alloc, sizeof *segment);
		if (!segment)
			ret = kvi_fail_alloc(e, &r->alloc);
		else if (!ref || !ref->offset || ref->stored || ref->n != h.n)
			ret = kvi_reader_bad(f, e, "its SEGMENT is missing");
		else
			ret = kvi_reader_read_segment(r, &packer, ref, segment, e);
		p.positions = ret ? NULL : segment->positions;
	}
	p.use = use;
	if (ret == KVARC_OK)
		ret = kvi_piece_decode(r, coder, &p, raw, e);
	kvi_params_store_release(&r->workers.store, use);
	kvi_free(&r->alloc, segment);
	kvi_packer_free(&packer);
	return ret;
}

kvarc_ret kvi_reader_read_earlier(struct kvi_decode_job *j, uint64_t sequence, uint64_t offset,
                                  struct kvi_frame *f)
{
	kvarc_reader *r = j->r;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			&j->error, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(
				&j->error, KVARC_OPTIONS, j->frame.offset, j->frame.head.sequence,
				"the chunk at offset %llu needs an "
				"earlier one: this file needs a source that can seek, not a pipe",
				(unsigned long long)j->frame.offset));
	if (sequence >= j->frame.head.sequence || offset >= j->frame.offset ||
	    offset % KVI_FRAME_ALIGN)
		return kvi_reader_bad(&j->frame, &j->error, "it names a later frame");
	return kvi_reader_read_frame(r, offset, KVI_FRAME_CHUNK, sequence, &j->other, f, &j->error);
}

kvarc_ret kvi_reader_decode_repeat(struct kvi_decode_job *j, struct kvi_coder *coder,
                                   const struct kvi_chunk_header *h)
{
	kvarc_reader *r = j->r;
	const uint8_t *p = j->frame.payload + KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	if (j->frame.head.payload_bytes != KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES)
		return kvi_reader_bad(&j->frame, &j->error, "its size");
	kvarc_ret ret = kvi_reader_read_earlier(j, kvi_load64(p), kvi_load64(p + 8), &f);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    there.codec == KVI_CODEC_REPEAT || there.raw_check != h->raw_check ||
	    there.cut.stream_size != h->cut.stream_size || there.n != h->n ||
	    f.head.decoded_bytes != j->frame.head.decoded_bytes)
		return kvi_reader_bad(&j->frame, &j->error, "what it repeats differs");
	return kvi_reader_decode_target(r, coder, &f, j->raw, &j->error);
}
