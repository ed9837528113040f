/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_copy.c - copies chunks of a reader to a writer: new headers, the same payloads (spec 7,
 * lossy) */
#include "archive_copy_state.h"

#include "reader/reader_decode.h"
#include "writer/writer_state.h"

/* A chunk that is read: its header and where its payload comes from. */
struct copy_piece {
	struct kvi_chunk_ref ref; /* PARAMS are those of this chunk */
	struct kvi_frame frame;
	struct kvi_chunk_header h;
};

kvarc_ret kvi_copy_open(struct kvi_copy **out, kvarc_reader *r, kvarc_writer *w, uint32_t track,
                        uint32_t to_track, const uint32_t *to)
{
	struct kvi_copy *c = kvi_calloc(&r->alloc, 1, sizeof *c);
	kvarc_ret ret = KVARC_OK;
	*out = NULL;
	if (!c)
		return kvi_fail_alloc(r->error, &r->alloc);
	*c = (struct kvi_copy){ .r = r, .w = w, .track = track, .to_track = to_track, .to = to };
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
		return kvi_reader_set_error(
			r, kvi_fail_at(r->error, KVARC_DATA, KVARC_UNKNOWN, sequence,
		                       "the PREDICTOR frame of chunks is damaged"));
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
	               : kvi_reader_set_error(
				 r,
				 kvi_reason(
					 r->error, KVARC_REASON_SALVAGE,
					 kvi_fail_at(
						 r->error, KVARC_DATA, KVARC_UNKNOWN, x->sequence,
						 "the embedded profile is not complete; "
						 "salvage may give the rest")));
}

static struct kvi_copy_params *given_at(struct kvi_copy *c, size_t i)
{
	while (c->given.n <= i) {
		struct kvi_copy_params *g = kvi_list_add(&c->given, &c->r->alloc, sizeof *g);
		if (!g)
			return NULL;
		*g = (struct kvi_copy_params){ 0 };
	}
	return KVI_LIST(struct kvi_copy_params, c->given, i);
}

/* The PARAMS of a piece, for the chunk at place i with header h. */
static kvarc_ret use_params(struct kvi_copy *c, size_t i, const struct copy_piece *p,
                            struct kvi_chunk_header *h)
{
	kvarc_reader *r = c->r;
	struct kvi_copy_params *g = given_at(c, i);
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
	*g = (struct kvi_copy_params){ h->tensor, h->head, h->heads, p->ref.params,
		                       group.params_sequence };
	h->params = g->sequence;
	return ret;
}

/* Writes a chunk frame with this header and rest of the payload; decoded as in frame f. */
static kvarc_ret put_chunk(struct kvi_copy *c, const struct kvi_chunk_header *h,
                           const uint8_t *rest, size_t bytes, const struct kvi_frame *f,
                           struct kvi_copied_chunk *at)
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
                           struct kvi_chunk_header *h, struct kvi_copied_chunk *at)
{
	kvarc_ret ret = KVARC_OK;
	h->codec = p->h.codec;
	h->cut = p->h.cut;
	h->params = 0;
	if (kvi_codec_predicts(h->codec) &&
	    !serves(c, kvi_reader_find_predictor(c->r, p->h.params)))
		return bad(c, &p->frame, "it is not of the profile of its segment");
	if (kvi_codec_predicts(h->codec))
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
	struct kvi_copied_chunk at;
	struct copy_piece there;
	if (in.bad || !ref || ref->sequence >= p->ref.sequence)
		return bad(c, &p->frame, "what it repeats is missing");
	struct kvi_copied_chunk *done = kvi_copy_of(c, ref);
	if (done->sequence && !(w->options.flags & KVARC_WRITE_STREAMABLE)) {
		h->codec = KVI_CODEC_REPEAT;
		h->cut.section_bytes = 0;
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
	    there.h.cut.stream_size != h->cut.stream_size ||
	    there.frame.head.decoded_bytes != p->frame.head.decoded_bytes ||
	    !kvi_copy_same_shape(c, &p->h, &there.h))
		return bad(c, &p->frame, "what it repeats differs");
	ret = put_piece(c, i, &there, h, &at);
	/* As spec repeat has it. */
	if (!ret && !(kvi_codec_predicts(h->codec) && w->segment_repeats))
		*done = (struct kvi_copied_chunk){ at.sequence, at.offset, true };
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
	return put_piece(c, i, &p, &h, kvi_copy_of(c, ref));
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
		const struct kvi_chunk_ref *from = kvi_copy_resolve(c, ref, &h, &there);
		kvarc_ret ret = from && kvi_codec_predicts(there.codec)
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
	const kvarc_range range = {
		.track = c->track, .n_layers = UINT32_MAX, .t0 = s->t0, .n = s->n
	};
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
	struct kvi_writer_track *t = &w->tracks[c->to_track];
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, c->r->index.segments,
	                                           found->segment);
	struct kvi_open_segment to = {
		.s = { .track = c->to_track, .n = s->n, .t0 = t->n_written, .has_ids = ids }
	};
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
