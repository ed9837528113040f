/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_copy_find.c - which segments of a reader can be copied without decoding them */
#include "archive_copy_state.h"

#include "reader/reader_decode.h"
#include "writer/writer_state.h"

/* Whether a call on a chunk succeeded. Errors that are not about the chunk go to c->ret; a damaged
 * chunk is reported by the call that decodes it. */
static bool good(struct kvi_copy *c, kvarc_ret ret)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO)
		c->ret = ret;
	return ret == KVARC_OK;
}

static bool same_positions(struct kvi_copy *c, uint64_t a, uint64_t b)
{
	const uint64_t sequences[2] = { a, b };
	if (a == b)
		return true;
	for (int i = 0; i < 2; i++) {
		const struct kvi_segment_ref *s = kvi_index_segment(&c->r->index, sequences[i]);
		if (!s || !s->offset ||
		    !good(c, kvi_reader_read_segment(c->r, &c->r->packer, s, &c->segments[i],
		                                     c->r->error)))
			return false;
	}
	const struct kvi_segment *s = c->segments;
	return s[0].n == s[1].n &&
	       !memcmp(s[0].positions, s[1].positions, s[0].n * sizeof *s->positions);
}

/* Whether payloads of one chunk mean the same in place of another. */
bool kvi_copy_same_shape(struct kvi_copy *c, const struct kvi_chunk_header *a,
                         const struct kvi_chunk_header *b)
{
	const kvarc_geometry *g = &c->r->geometry;
	const kvarc_tensor *x = &g->tensors[a->tensor], *y = &g->tensors[b->tensor];
	return a->n == b->n && a->heads == b->heads && x->dtype == y->dtype &&
	       x->channels == y->channels && x->rope == y->rope &&
	       (a->tensor == b->tensor || !kvi_codec_predicts(b->codec)) &&
	       same_positions(c, a->segment, b->segment);
}

/* The header of a chunk, and what follows it up to extra bytes; what it says is not checked. */
static bool peek(struct kvi_copy *c, const struct kvi_chunk_ref *ref, uint8_t *head, size_t extra,
                 struct kvi_chunk_header *h)
{
	struct kvi_frame f;
	return good(c, kvi_frame_peek(&c->r->in, ref->offset, head, KVI_CHUNK_HEADER_BYTES + extra,
	                              &f, c->r->error)) &&
	       f.head.type == KVI_FRAME_CHUNK && f.head.sequence == ref->sequence &&
	       f.head.payload_bytes >= KVI_CHUNK_HEADER_BYTES + extra &&
	       kvi_chunk_header_parse(h, f.payload, f.head.payload_bytes) &&
	       h->tensor == ref->tensor && h->head == ref->head && h->heads == ref->heads;
}

/* Headers of a chunk and of the one that has its payload, which is itself but for a REPEAT. NULL:
 * it is damaged, which the call that decodes it reports. */
const struct kvi_chunk_ref *kvi_copy_resolve(struct kvi_copy *c, const struct kvi_chunk_ref *ref,
                                             struct kvi_chunk_header *h,
                                             struct kvi_chunk_header *there)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES];
	if (!peek(c, ref, head, 0, h))
		return NULL;
	*there = *h;
	if (h->codec != KVI_CODEC_REPEAT)
		return ref;
	if (!peek(c, ref, head, KVI_REPEAT_BYTES, h))
		return NULL;
	ref = kvi_index_chunk(&c->r->index, kvi_load64(head + sizeof head - KVI_REPEAT_BYTES));
	return ref && peek(c, ref, head, 0, there) && there->codec != KVI_CODEC_REPEAT ? ref : NULL;
}

struct kvi_copied_chunk *kvi_copy_of(struct kvi_copy *c, const struct kvi_chunk_ref *ref)
{
	return &c->copied[ref - KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks, 0)];
}

static bool may_repeat(struct kvi_copy *c, const struct kvi_chunk_ref *target)
{
	return kvi_copy_of(c, target)->planned && !(c->w->options.flags & KVARC_WRITE_STREAMABLE);
}

/* Whether what a transform may be predicted from is copied, too: its sources, or as long as nobody
 * knows its profile, all tensors before it. */
static bool sources_come_along(struct kvi_copy *c, const struct kvi_chunk_header *h)
{
	const struct kvi_order *order = &c->r->order;
	struct kvi_predictor_ref *x = kvi_reader_find_predictor(c->r, h->params);
	uint32_t first = order->first[c->track], place = first;
	while (place < order->first[c->track + 1] && order->tensors[place] != h->tensor)
		place++;
	if (place == order->first[c->track + 1])
		return false; /* a repeat of another track's */
	if (x && kvi_reader_load_predictor(c->r, x, NULL) == KVARC_OK &&
	    x->plan->of[place].complete) {
		const struct kvi_planned *of = &x->plan->of[place];
		for (unsigned i = 0; i < of->model->n_lower; i++)
			if (c->to[order->tensors[of->lower[i]]] == KVI_COPY_OUT)
				return false;
		return true;
	}
	for (; first < place; first++)
		if (c->to[order->tensors[first]] == KVI_COPY_OUT)
			return false;
	return true;
}

/* Whether a chunk of codec state refers to another one, which is elsewhere in a copy. */
static bool refers(struct kvi_copy *c, const struct kvi_chunk_ref *ref,
                   const struct kvi_chunk_header *there)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES + KVI_STATE_HEAD];
	struct kvi_chunk_header h;
	uint64_t sequence, offset;
	return there->codec == KVI_CODEC_STATE &&
	       (!peek(c, ref, head, KVI_STATE_HEAD, &h) ||
	        kvi_state_reference(head + sizeof head - KVI_STATE_HEAD, KVI_STATE_HEAD, &sequence,
	                            &offset));
}

/* The codec of a chunk or of what it repeats. *takes: it can be copied. */
static unsigned look_at(struct kvi_copy *c, const struct kvi_chunk_ref *ref, bool *takes)
{
	struct kvi_chunk_header h, there;
	const struct kvi_chunk_ref *from = kvi_copy_resolve(c, ref, &h, &there);
	*takes = !from ||
	         (!refers(c, from, &there) &&
	          (from == ref || may_repeat(c, from) || kvi_copy_same_shape(c, &h, &there)) &&
	          (!kvi_codec_predicts(there.codec) ||
	           (there.codec == KVI_CODEC_KLT && !c->w->plan && sources_come_along(c, &there))));
	if (from == ref)
		kvi_copy_of(c, ref)->planned = *takes;
	return from ? there.codec : KVI_CODEC_RAW;
}

/* Whether the writer leaves elements as it gets them, and needs none for what it expects. */
static bool copies(const kvarc_writer *w)
{
	return !w->options.lossy && w->options.level < KVI_LEVEL_MODEL;
}

static struct kvi_copy_found look_into(struct kvi_copy *c, size_t i, bool copied)
{
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, c->r->index.segments, i);
	struct kvi_copy_found f = { s->t0, s->left, false, copied, i, KVARC_OK };
	for (uint64_t k = s->first; k < s->end; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks,
		                                           k);
		bool takes;
		if (c->to[ref->tensor] == KVI_COPY_OUT)
			continue;
		f.lossy |= kvi_codec_lossy(look_at(c, ref, &takes));
		f.copied &= takes;
	}
	for (uint64_t k = s->first; k < s->end && !(f.lossy && f.copied); k++)
		c->copied[k].planned = false;
	return f;
}

struct kvi_copy_found kvi_copy_find(struct kvi_copy *c, uint64_t t0, uint64_t end)
{
	const kvarc_reader *r = c->r;
	size_t i = t0 >= c->looked_t0 ? c->looked : 0;
	c->looked_t0 = t0;
	for (; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (!kvi_segment_has(s, c->track, t0, end))
			continue;
		struct kvi_copy_found f = look_into(c, i,
		                                    copies(c->w) && s->left == s->n &&
		                                            s->t0 >= t0 && s->t0 + s->n <= end);
		c->looked = i;
		f.ret = kvi_reader_set_error(c->r, c->ret);
		if (f.lossy || f.ret)
			return f;
	}
	c->looked = i;
	return (struct kvi_copy_found){ 0 };
}
