/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_copy.c - copies chunks of a reader to a writer: new headers, the same payloads (spec 7,
 * lossy) */
#include "archive_copy.h"

#include "reader/reader_decode.h"
#include "writer/writer_state.h"

/* Where a chunk of the reader is in the new archive. */
struct copied {
	uint64_t sequence, offset; /* 0: it is not there */
	bool planned;              /* it will be, before chunks of later segments */
};

/* PARAMS in force for the chunk at an order_index of its segment. */
struct given {
	uint32_t tensor; /* of the writer */
	uint16_t head, heads;
	uint64_t from, sequence; /* the reader's frame, the writer's; 0: none */
};

struct kvi_copy {
	kvarc_reader *r, *again; /* again: of KVARC_WRITE_VERIFY, NULL: not wanted */
	kvarc_writer *w;
	uint32_t track;
	const uint32_t *to;
	struct copied *copied; /* of each chunk of the reader */
	struct kvi_list given;
	uint64_t looked_t0; /* of the last search, and where it ended */
	size_t looked;
	uint64_t sequence;                         /* the writer's behind the last copied segment */
	const struct kvi_predictor_ref *predictor; /* in force in the new archive; NULL: another */
	struct kvi_buffer frame, target;
	struct kvi_out content;
	struct kvi_segment segments[2];
	kvarc_ret ret; /* of looking at chunks: what is not about them */
};

/* A chunk that is read: its header and where its payload comes from. */
struct copy_piece {
	struct kvi_chunk_ref ref; /* PARAMS are those of this chunk */
	struct kvi_frame frame;
	struct kvi_chunk_header h;
};

kvarc_ret kvi_copy_open(struct kvi_copy **out, kvarc_reader *r, kvarc_writer *w, uint32_t track,
                        const uint32_t *to)
{
	struct kvi_copy *c = kvi_calloc(&r->alloc, 1, sizeof *c);
	kvarc_ret ret = KVARC_OK;
	*out = NULL;
	if (!c)
		return kvi_fail_alloc(r->error, &r->alloc);
	*c = (struct kvi_copy){ .r = r, .w = w, .track = track, .to = to };
	kvi_out_init(&c->content, &r->alloc);
	c->copied = kvi_calloc(&r->alloc, r->index.chunks.n + 1, sizeof *c->copied);
	if (!c->copied)
		ret = kvi_fail_alloc(r->error, &r->alloc);
	else if (w->options.flags & KVARC_WRITE_VERIFY)
		ret = kvi_reader_open_again(r, 0, &c->again);
	if (ret)
		kvi_copy_close(c);
	else
		*out = c;
	return ret;
}

void kvi_copy_close(struct kvi_copy *c)
{
	if (!c)
		return;
	const struct kvi_alloc *alloc = &c->r->alloc;
	kvarc_reader_close(&c->again);
	kvi_out_free(&c->content);
	kvi_free(alloc, c->frame.p);
	kvi_free(alloc, c->target.p);
	kvi_free(alloc, c->given.p);
	kvi_free(alloc, c->copied);
	kvi_free(alloc, c);
}

/* What can be copied. */

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
static bool same_shape(struct kvi_copy *c, const struct kvi_chunk_header *a,
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
static const struct kvi_chunk_ref *resolve(struct kvi_copy *c, const struct kvi_chunk_ref *ref,
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

static struct copied *copied_of(struct kvi_copy *c, const struct kvi_chunk_ref *ref)
{
	return &c->copied[ref - KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks, 0)];
}

static bool may_repeat(struct kvi_copy *c, const struct kvi_chunk_ref *target)
{
	return copied_of(c, target)->planned && !(c->w->options.flags & KVARC_WRITE_STREAMABLE);
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

/* The codec of a chunk or of what it repeats. *takes: it can be copied. */
static unsigned look_at(struct kvi_copy *c, const struct kvi_chunk_ref *ref, bool *takes)
{
	struct kvi_chunk_header h, there;
	const struct kvi_chunk_ref *from = resolve(c, ref, &h, &there);
	*takes = !from ||
	         ((from == ref || may_repeat(c, from) || same_shape(c, &h, &there)) &&
	          (!kvi_codec_predicts(there.codec) ||
	           (there.codec == KVI_CODEC_KLT && !c->w->plan && sources_come_along(c, &there))));
	if (from == ref)
		copied_of(c, ref)->planned = *takes;
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
	struct kvi_copy_found f = { s->t0, s->n, false, copied, i, KVARC_OK };
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
		if (s->track != c->track || s->t0 >= end || s->t0 + s->n <= t0)
			continue;
		struct kvi_copy_found f =
			look_into(c, i, copies(c->w) && s->t0 >= t0 && s->t0 + s->n <= end);
		c->looked = i;
		f.ret = kvi_reader_set_error(c->r, c->ret);
		if (f.lossy || f.ret)
			return f;
	}
	c->looked = i;
	return (struct kvi_copy_found){ 0 };
}

/* Copying. */

static kvarc_ret bad(struct kvi_copy *c, const struct kvi_frame *f, const char *what)
{
	return kvi_reader_set_error(c->r, kvi_reader_bad(f, c->r->error, what));
}

static kvarc_ret read_piece(struct kvi_copy *c, const struct kvi_chunk_ref *ref,
                            struct kvi_buffer *buf, struct copy_piece *p)
{
	kvarc_reader *r = c->r;
	kvarc_ret ret = kvi_reader_read_frame(r, ref->offset, KVI_FRAME_CHUNK, ref->sequence, buf,
	                                      &p->frame, r->error);
	if (ret)
		return kvi_reader_set_error(r, ret);
	p->ref = *ref;
	if (!kvi_chunk_header_parse(&p->h, p->frame.payload, p->frame.head.payload_bytes))
		return bad(c, &p->frame, "its header is not valid");
	ret = kvi_chunk_check(&r->geometry, &p->h, &p->frame, r->error);
	if (ret)
		return kvi_reader_set_error(r, ret);
	if (p->h.tensor != ref->tensor || p->h.head != ref->head || p->h.heads != ref->heads ||
	    p->h.params != ref->params)
		return bad(c, &p->frame, "it is not what the index or its segment say");
	return KVARC_OK;
}

/* Whether what is in force is as good as a PREDICTOR. */
static bool serves(const struct kvi_copy *c, const struct kvi_predictor_ref *x)
{
	return x && c->predictor && c->predictor->p.level == x->p.level &&
	       kvi_h128_equal(c->predictor->p.digest, x->p.digest);
}

/* PREDICTOR, and PROFILE frames where the reader has them. */
static kvarc_ret use_predictor(struct kvi_copy *c, uint64_t sequence)
{
	kvarc_reader *r = c->r;
	kvarc_writer *w = c->w;
	struct kvi_predictor_ref *x = kvi_reader_find_predictor(r, sequence);
	if (!x || x->p.kind != KVI_PREDICTOR_PROFILE)
		return kvi_reader_fail(r, KVARC_DATA, KVARC_UNKNOWN, sequence,
		                       "the PREDICTOR frame of chunks is damaged");
	if (serves(c, x))
		return KVARC_OK;
	c->predictor = x;
	w->predictor = x->p;
	const struct kvi_predictor_ref *y = kvi_reader_embedding(&r->predictors, x);
	uint64_t left = y ? y->p.content_bytes : 0;
	kvarc_ret ret = kvi_writer_emit_predictor(w, left);
	for (size_t i = 0; y && i < y->parts.n && left && !ret; i++) {
		const struct kvi_blob_ref *part = KVI_LIST(struct kvi_blob_ref, y->parts, i);
		struct kvi_index_entry entry = { 0 };
		struct kvi_profile_part in;
		ret = kvi_reader_content(r, part->offset, KVI_FRAME_PROFILE, part->sequence,
		                         &c->content);
		if (!ret && (!kvi_profile_part_parse(&in, c->content.p, c->content.n) ||
		             in.offset != y->p.content_bytes - left || in.bytes > left))
			break;
		if (!ret)
			ret = kvi_writer_emit_content(w, KVI_FRAME_PROFILE, c->content.p,
			                              c->content.n, true, &entry);
		left -= ret ? 0 : in.bytes;
	}
	return ret || !left
	               ? ret
	               : kvi_reader_fail(r, KVARC_DATA, KVARC_UNKNOWN, x->sequence,
	                                 "the embedded profile is not complete; salvage may give "
	                                 "the rest");
}

static struct given *given_at(struct kvi_copy *c, size_t i)
{
	while (c->given.n <= i) {
		struct given *g = kvi_list_add(&c->given, &c->r->alloc, sizeof *g);
		if (!g)
			return NULL;
		*g = (struct given){ 0 };
	}
	return KVI_LIST(struct given, c->given, i);
}

/* The PARAMS of a piece, for the chunk at place i with header h. */
static kvarc_ret use_params(struct kvi_copy *c, size_t i, const struct copy_piece *p,
                            struct kvi_chunk_header *h)
{
	kvarc_reader *r = c->r;
	struct given *g = given_at(c, i);
	struct kvi_group group = { .tensor = h->tensor, .head = h->head, .heads = h->heads };
	struct kvi_params_header there;
	if (!g)
		return kvi_fail_alloc(r->error, &r->alloc);
	if (g->sequence && g->from == p->ref.params && g->tensor == h->tensor &&
	    g->head == h->head && g->heads == h->heads) {
		h->params = g->sequence;
		return KVARC_OK;
	}
	kvarc_ret ret = kvi_reader_params_content(r, &p->ref, &c->content);
	if (ret)
		return kvi_reader_set_error(r, ret);
	if (!kvi_params_header_parse(&there, c->content.p, c->content.n) ||
	    there.tensor != p->ref.tensor || there.head != p->ref.head ||
	    there.heads != p->ref.heads || there.codec != p->h.codec)
		return bad(c, &p->frame, "its PARAMS are of another chunk");
	ret = kvi_writer_emit_params(c->w, &group, there.codec,
	                             c->content.p + KVI_PARAMS_HEADER_BYTES,
	                             c->content.n - KVI_PARAMS_HEADER_BYTES);
	*g = (struct given){ h->tensor, h->head, h->heads, p->ref.params, group.params_sequence };
	h->params = g->sequence;
	return ret;
}

/* Writes a chunk frame with this header and rest of the payload; decoded as in frame f. */
static kvarc_ret put_chunk(struct kvi_copy *c, const struct kvi_chunk_header *h,
                           const uint8_t *rest, size_t bytes, const struct kvi_frame *f,
                           struct copied *at)
{
	kvarc_writer *w = c->w;
	const size_t payload = KVI_CHUNK_HEADER_BYTES + bytes;
	struct kvi_index_entry entry = { .tensor = h->tensor,
		                         .head = h->head,
		                         .heads = h->heads,
		                         .segment = h->segment,
		                         .params = h->params };
	struct kvi_out *out = &w->scratch;
	out->n = 0;
	if (!kvi_out_reserve(out, (size_t)kvi_frame_bytes((uint32_t)payload)))
		return kvi_fail_alloc(w->error, &w->alloc);
	kvi_chunk_header_write(out->p + KVI_FRAME_HEAD_BYTES, h);
	memcpy(out->p + KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES, rest, bytes);
	at->sequence = w->sequence;
	at->offset = w->offset;
	kvarc_ret ret = kvi_writer_emit(w, KVI_FRAME_CHUNK, out->p, (uint32_t)payload,
	                                f->head.decoded_bytes, &entry);
	return ret ? ret : kvi_writer_count(w, h->tensor, f->head.decoded_bytes);
}

/* A piece in place of a chunk of the reader, at place i of its segment. */
static kvarc_ret put_piece(struct kvi_copy *c, size_t i, const struct copy_piece *p,
                           struct kvi_chunk_header *h, struct copied *at)
{
	kvarc_ret ret = KVARC_OK;
	h->codec = p->h.codec;
	h->lane_order = p->h.lane_order;
	h->params = 0;
	if (h->codec == KVI_CODEC_KLT && !serves(c, kvi_reader_find_predictor(c->r, p->h.params)))
		return bad(c, &p->frame, "it is not of the profile of its segment");
	if (h->codec == KVI_CODEC_KLT)
		h->params = c->w->predictor_sequence;
	else if (p->h.params)
		ret = use_params(c, i, p, h);
	return ret ? ret
	           : put_chunk(c, h, p->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                       p->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &p->frame, at);
}

/* Copies a REPEAT: as a REPEAT of the copy of its target, else with the payload of the target. */
static kvarc_ret put_repeated(struct kvi_copy *c, size_t i, const struct copy_piece *p,
                              struct kvi_chunk_header *h)
{
	kvarc_writer *w = c->w;
	struct kvi_in in = kvi_in_make(p->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                               p->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES);
	const struct kvi_chunk_ref *ref = kvi_index_chunk(&c->r->index, kvi_get64(&in));
	uint8_t rest[KVI_REPEAT_BYTES];
	struct copied at;
	struct copy_piece there;
	if (in.bad || !ref || ref->sequence >= p->ref.sequence)
		return bad(c, &p->frame, "what it repeats is missing");
	struct copied *done = copied_of(c, ref);
	if (done->sequence && !(w->options.flags & KVARC_WRITE_STREAMABLE)) {
		h->codec = KVI_CODEC_REPEAT;
		h->lane_order = 0;
		h->params = 0;
		kvi_store64(rest, done->sequence);
		kvi_store64(rest + 8, done->offset);
		w->segment_repeats = true;
		return put_chunk(c, h, rest, sizeof rest, &p->frame, &at);
	}
	kvarc_ret ret = read_piece(c, ref, &c->target, &there);
	if (ret)
		return ret;
	if (there.h.codec == KVI_CODEC_REPEAT || there.h.raw_check != h->raw_check ||
	    there.frame.head.decoded_bytes != p->frame.head.decoded_bytes ||
	    !same_shape(c, &p->h, &there.h))
		return bad(c, &p->frame, "what it repeats differs");
	ret = put_piece(c, i, &there, h, &at);
	/* As spec repeat has it. */
	if (!ret && !(kvi_codec_predicts(h->codec) && w->segment_repeats))
		*done = (struct copied){ at.sequence, at.offset, true };
	return ret;
}

static kvarc_ret copy_chunk(struct kvi_copy *c, size_t i, const struct kvi_segment_ref *s,
                            const struct kvi_chunk_ref *ref, const struct kvi_open_segment *to)
{
	struct copy_piece p;
	kvarc_ret ret = read_piece(c, ref, &c->frame, &p);
	if (ret)
		return ret;
	if (p.h.segment != s->sequence || p.h.n != s->n || p.h.t0 != s->t0)
		return bad(c, &p.frame, "it is not what the index or its segment say");
	struct kvi_chunk_header h = p.h;
	h.tensor = c->to[h.tensor];
	h.segment = to->sequence;
	h.t0 = (uint32_t)to->s.t0;
	if (h.codec == KVI_CODEC_REPEAT)
		return put_repeated(c, i, &p, &h);
	return put_piece(c, i, &p, &h, copied_of(c, ref));
}

/* What chunks of the segment are decoded with, before its frame: it is in force there. */
static kvarc_ret find_predictor(struct kvi_copy *c, const struct kvi_segment_ref *s)
{
	for (uint64_t k = s->first; k < s->end; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks,
		                                           k);
		struct kvi_chunk_header h, there;
		if (c->to[ref->tensor] == KVI_COPY_OUT)
			continue;
		const struct kvi_chunk_ref *from = resolve(c, ref, &h, &there);
		kvarc_ret ret = from && there.codec == KVI_CODEC_KLT
		                        ? use_predictor(c, there.params)
		                        : c->ret;
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static int drop(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, const void *src)
{
	(void)opaque, (void)tensor, (void)head, (void)heads;
	(void)t0, (void)n, (void)src;
	return 0;
}

/* KVARC_WRITE_VERIFY: what is copied is good, though nobody gets it. */
static kvarc_ret verify(struct kvi_copy *c, const struct kvi_segment_ref *s)
{
	const kvarc_range range = { c->track, 0, UINT32_MAX, s->t0, s->n };
	return c->again ? kvarc_reader_read_deliver(c->again, &range, drop, NULL) : KVARC_OK;
}

/* Encoders start with new PARAMS after a copied segment: its PARAMS came after theirs. */
static kvarc_ret begin(struct kvi_copy *c, struct kvi_writer_track *t)
{
	kvarc_writer *w = c->w;
	kvarc_ret ret = w->started ? KVARC_OK : kvi_writer_start(w);
	for (uint32_t g = t->first_group; g < t->end_group; g++) {
		kvi_params_free(w->groups[g].params);
		w->groups[g].params = NULL;
	}
	if (c->sequence != w->sequence)
		c->given.n = 0;
	return ret;
}

kvarc_ret kvi_copy_segment(struct kvi_copy *c, const struct kvi_copy_found *found,
                           const int32_t *ids, const int32_t *positions)
{
	kvarc_writer *w = c->w;
	struct kvi_writer_track *t = &w->tracks[0];
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, c->r->index.segments,
	                                           found->segment);
	struct kvi_open_segment to = { .s = { .n = s->n, .t0 = t->n_written, .has_ids = ids } };
	size_t i = 0;
	for (uint32_t k = 0; k < s->n; k++) {
		to.s.positions[k] = positions[k];
		to.s.ids[k] = ids ? ids[k] : 0;
	}
	kvarc_ret ret = begin(c, t);
	if (!ret)
		ret = verify(c, s);
	if (!ret)
		ret = find_predictor(c, s);
	if (!ret)
		ret = kvi_writer_begin_segment(w, &to);
	for (uint64_t k = s->first; k < s->end && !ret; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks,
		                                           k);
		if (c->to[ref->tensor] != KVI_COPY_OUT)
			ret = copy_chunk(c, i++, s, ref, &to);
	}
	c->given.n = c->given.n < i ? c->given.n : i;
	t->n_submitted += s->n;
	t->n_appended += s->n;
	t->next_position = (int64_t)positions[s->n - 1] + 1;
	if (!ret)
		ret = kvi_writer_end_segment(w, &to);
	c->sequence = w->sequence;
	return ret;
}
