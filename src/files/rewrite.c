/* SPDX-License-Identifier: BSD-3-Clause */
/* rewrite.c - an archive out of another: copied, cut, compacted, transferred */
#include "rewrite.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "counted.h"
#include "literals.h"
#include "llama_describe.h"
#include "reader_bounds.h"
#include "format/frame.h"
#include "format/geometry_check.h"
#include "format/segment.h"
#include "reader/reader_frames.h"
#include "reader/reader_open.h"
#include "reader/reader_segments.h"
#include "reader/reader_state.h"
#include "util/arguments.h"
#include "util/error.h"
#include "writer/writer_frames.h"
#include "writer/writer_internal.h"
#include "writer/writer_state.h"

/* ==== Which segments of a reader can be copied without decoding them ==== */

/* Where a chunk of the reader is in the new archive. */
struct copied_chunk {
	uint64_t sequence, offset; /* 0: it is not there */
	bool planned;              /* it will be, before chunks of later segments */
};

/* A copy from a reader to a writer: one thread uses it. */
struct segment_copy {
	kvarc_reader *r, *again; /* again: of KVARC_WRITE_VERIFY, NULL: not wanted */
	kvarc_writer *w;
	uint32_t track, to_track;
	const uint32_t *to;
	struct copied_chunk *copied; /* of each chunk of the reader */
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

/* Of a tensor that is left out. */
#define COPY_OUT UINT32_MAX

/* What a copy finds at a token of the source. */
struct copy_found {
	uint64_t t0, n; /* its tokens in the reader's track; n = 0: there is none */
	bool lossy;     /* it has chunks of a lossy tier */
	bool copied;    /* it can be taken as it is */
	uint64_t segment;
	kvarc_ret ret; /* MEM, MEMLIMIT, IO: the rest is not known */
};

/* Whether a call on a chunk succeeded. Errors that are not about the chunk go to c->ret; a damaged
 * chunk is reported by the call that decodes it. */
static bool good(struct segment_copy *c, kvarc_ret ret)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO)
		c->ret = ret;
	return ret == KVARC_OK;
}

static bool same_positions(struct segment_copy *c, uint64_t a, uint64_t b)
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

/* Whether payloads of chunk b decode to the same elements with the header of chunk a. */
/* Whether payloads of one chunk mean the same in place of another. */
static bool copy_same_shape(struct segment_copy *c, const struct kvi_chunk_header *a,
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
static bool peek(struct segment_copy *c, const struct kvi_chunk_ref *ref, uint8_t *head,
                 size_t extra, struct kvi_chunk_header *h)
{
	struct kvi_frame f;
	return good(c, kvi_frame_peek(&c->r->in, ref->offset, head, KVI_CHUNK_HEADER_BYTES + extra,
	                              &f, c->r->error)) &&
	       f.head.type == KVI_FRAME_CHUNK && f.head.sequence == ref->sequence &&
	       f.head.payload_bytes >= KVI_CHUNK_HEADER_BYTES + extra &&
	       kvi_chunk_header_parse(h, f.payload, f.head.payload_bytes) &&
	       h->tensor == ref->tensor && h->head == ref->head && h->heads == ref->heads;
}

/* Reads the header of a chunk, and of the chunk that has its payload: itself, or the target of a
 * REPEAT, which is returned. NULL: one is damaged, which the call that decodes it reports, or
 * c->ret is set. */
/* Headers of a chunk and of the one that has its payload, which is itself but for a REPEAT. NULL:
 * it is damaged, which the call that decodes it reports. */
static const struct kvi_chunk_ref *copy_resolve(struct segment_copy *c,
                                                const struct kvi_chunk_ref *ref,
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

/* Where the copy of a chunk of the reader is; the caller fills it in. */
static struct copied_chunk *copy_of(struct segment_copy *c, const struct kvi_chunk_ref *ref)
{
	return &c->copied[ref - KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks, 0)];
}

static bool may_repeat(struct segment_copy *c, const struct kvi_chunk_ref *target)
{
	return copy_of(c, target)->planned && !(c->w->options.flags & KVARC_WRITE_STREAMABLE);
}

/* Whether what a transform may be predicted from is copied, too: its sources, or as long as nobody
 * knows its profile, all tensors before it. */
static bool sources_come_along(struct segment_copy *c, const struct kvi_chunk_header *h)
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
			if (c->to[order->tensors[of->lower[i]]] == COPY_OUT)
				return false;
		return true;
	}
	for (; first < place; first++)
		if (c->to[order->tensors[first]] == COPY_OUT)
			return false;
	return true;
}

/* Whether a chunk of codec state refers to another one, which is elsewhere in a copy. */
static bool refers(struct segment_copy *c, const struct kvi_chunk_ref *ref,
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
static unsigned look_at(struct segment_copy *c, const struct kvi_chunk_ref *ref, bool *takes)
{
	struct kvi_chunk_header h, there;
	const struct kvi_chunk_ref *from = copy_resolve(c, ref, &h, &there);
	*takes = !from ||
	         (!refers(c, from, &there) &&
	          (from == ref || may_repeat(c, from) || copy_same_shape(c, &h, &there)) &&
	          (!kvi_codec_predicts(there.codec) ||
	           (there.codec == KVI_CODEC_KLT && !c->w->plan && sources_come_along(c, &there))));
	if (from == ref)
		copy_of(c, ref)->planned = *takes;
	return from ? there.codec : KVI_CODEC_RAW;
}

/* Whether the writer leaves elements as it gets them, and needs none for what it expects. */
static bool copies(const kvarc_writer *w)
{
	return !w->options.lossy && w->options.level < KVI_LEVEL_MODEL;
}

static struct copy_found look_into(struct segment_copy *c, size_t i, bool copied)
{
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, c->r->index.segments, i);
	struct copy_found f = { s->t0, s->left, false, copied, i, KVARC_OK };
	for (uint64_t k = s->first; k < s->end; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks,
		                                           k);
		bool takes;
		if (c->to[ref->tensor] == COPY_OUT)
			continue;
		f.lossy |= kvi_codec_lossy(look_at(c, ref, &takes));
		f.copied &= takes;
	}
	for (uint64_t k = s->first; k < s->end && !(f.lossy && f.copied); k++)
		c->copied[k].planned = false;
	return f;
}

struct keeping;
static void end(struct keeping *k);

/* The first segment with tokens in t0 .. end - 1 that has lossy chunks. */
static struct copy_found copy_find(struct segment_copy *c, uint64_t t0, uint64_t end)
{
	const kvarc_reader *r = c->r;
	size_t i = t0 >= c->looked_t0 ? c->looked : 0;
	c->looked_t0 = t0;
	for (; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (!kvi_segment_has(s, c->track, t0, end))
			continue;
		struct copy_found f = look_into(c, i,
		                                copies(c->w) && s->left == s->n && s->t0 >= t0 &&
		                                        s->t0 + s->n <= end);
		c->looked = i;
		f.ret = kvi_reader_set_error(c->r, c->ret);
		if (f.lossy || f.ret)
			return f;
	}
	c->looked = i;
	return (struct copy_found){ 0 };
}

/*
 * ==== Copies chunks of a reader to a writer: new headers, the same payloads (spec 7, lossy)
 */

/* PARAMS in force for the chunk at an order_index of its segment. */
struct copy_params {
	uint32_t tensor; /* of the writer */
	uint16_t head, heads;
	uint64_t from, sequence; /* the reader's frame, the writer's; 0: none */
};

/* A chunk that is read: its header and where its payload comes from. */
struct copy_piece {
	struct kvi_chunk_ref ref; /* PARAMS are those of this chunk */
	struct kvi_frame frame;
	struct kvi_chunk_header h;
};

static void copy_close(struct segment_copy *c);

/*
 * A track of a reader that can seek goes to track to_track of a writer that has a geometry. to: the
 * writer's number of each of the reader's tensors; the caller's until close. On failure *c is NULL.
 * Returns OK, or what opening a reader does (KVARC_WRITE_VERIFY needs another one).
 */
static kvarc_ret copy_open(struct segment_copy **out, kvarc_reader *r, kvarc_writer *w,
                           uint32_t track, uint32_t to_track, const uint32_t *to)
{
	struct segment_copy *c = kvi_calloc(&r->alloc, 1, sizeof *c);
	kvarc_ret ret = KVARC_OK;
	*out = NULL;
	if (!c)
		return kvi_fail_alloc(r->error, &r->alloc);
	*c = (struct segment_copy){
		.r = r, .w = w, .track = track, .to_track = to_track, .to = to
	};
	kvi_out_init(&c->content, &r->alloc);
	c->copied = kvi_calloc(&r->alloc, r->index.chunks.n + 1, sizeof *c->copied);
	if (!c->copied)
		ret = kvi_fail_alloc(r->error, &r->alloc);
	else if (w->options.flags & KVARC_WRITE_VERIFY)
		ret = kvi_reader_open_again(r, 0, &c->again);
	if (ret)
		copy_close(c);
	else
		*out = c;
	return ret;
}

static void copy_close(struct segment_copy *c)
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

static kvarc_ret bad(struct segment_copy *c, const struct kvi_frame *f, const char *what)
{
	return kvi_reader_set_error(c->r, kvi_reader_bad(f, c->r->error, what));
}

static kvarc_ret read_piece(struct segment_copy *c, const struct kvi_chunk_ref *ref,
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
static bool serves(const struct segment_copy *c, const struct kvi_predictor_ref *x)
{
	return x && c->predictor && c->predictor->p.level == x->p.level &&
	       kvi_h128_equal(c->predictor->p.digest, x->p.digest);
}

/* PREDICTOR, and PROFILE frames where the reader has them. */
static kvarc_ret use_predictor(struct segment_copy *c, uint64_t sequence)
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
				 r, kvi_reason(r->error, KVARC_REASON_SALVAGE,
	                                       kvi_fail_at(r->error, KVARC_DATA, KVARC_UNKNOWN,
	                                                   x->sequence,
	                                                   "the embedded profile is not complete; "
	                                                   "salvage may give the rest")));
}

static struct copy_params *given_at(struct segment_copy *c, size_t i)
{
	while (c->given.n <= i) {
		struct copy_params *g = kvi_list_add(&c->given, &c->r->alloc, sizeof *g);
		if (!g)
			return NULL;
		*g = (struct copy_params){ 0 };
	}
	return KVI_LIST(struct copy_params, c->given, i);
}

/* The PARAMS of a piece, for the chunk at place i with header h. */
static kvarc_ret use_params(struct segment_copy *c, size_t i, const struct copy_piece *p,
                            struct kvi_chunk_header *h)
{
	kvarc_reader *r = c->r;
	struct copy_params *g = given_at(c, i);
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
	*g = (struct copy_params){ h->tensor, h->head, h->heads, p->ref.params,
		                   group.params_sequence };
	h->params = g->sequence;
	return ret;
}

/* Writes a chunk frame with this header and rest of the payload; decoded as in frame f. */
static kvarc_ret put_chunk(struct segment_copy *c, const struct kvi_chunk_header *h,
                           const uint8_t *rest, size_t bytes, const struct kvi_frame *f,
                           struct copied_chunk *at)
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
static kvarc_ret put_piece(struct segment_copy *c, size_t i, const struct copy_piece *p,
                           struct kvi_chunk_header *h, struct copied_chunk *at)
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
static kvarc_ret put_repeated(struct segment_copy *c, size_t i, const struct copy_piece *p,
                              struct kvi_chunk_header *h)
{
	kvarc_writer *w = c->w;
	struct kvi_in in = kvi_in_make(p->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                               p->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES);
	const struct kvi_chunk_ref *ref = kvi_index_chunk(&c->r->index, kvi_get64(&in));
	uint8_t rest[KVI_REPEAT_BYTES];
	struct copied_chunk at;
	struct copy_piece there;
	if (in.bad || !ref || ref->sequence >= p->ref.sequence)
		return bad(c, &p->frame, "what it repeats is missing");
	struct copied_chunk *done = copy_of(c, ref);
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
	    !copy_same_shape(c, &p->h, &there.h))
		return bad(c, &p->frame, "what it repeats differs");
	ret = put_piece(c, i, &there, h, &at);
	/* As spec repeat has it. */
	if (!ret && !(kvi_codec_predicts(h->codec) && w->segment_repeats))
		*done = (struct copied_chunk){ at.sequence, at.offset, true };
	return ret;
}

static kvarc_ret copy_chunk(struct segment_copy *c, size_t i, const struct kvi_segment_ref *s,
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
	return put_piece(c, i, &p, &h, copy_of(c, ref));
}

/* What chunks of the segment are decoded with, before its frame: it is in force there. */
static kvarc_ret find_predictor(struct segment_copy *c, const struct kvi_segment_ref *s)
{
	for (uint64_t k = s->first; k < s->end; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks,
		                                           k);
		struct kvi_chunk_header h, there;
		if (c->to[ref->tensor] == COPY_OUT)
			continue;
		const struct kvi_chunk_ref *from = copy_resolve(c, ref, &h, &there);
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
static kvarc_ret verify(struct segment_copy *c, const struct kvi_segment_ref *s)
{
	const kvarc_range range = {
		.track = c->track, .n_layers = UINT32_MAX, .t0 = s->t0, .n = s->n
	};
	return c->again ? kvarc_reader_read_deliver(c->again, &range, drop, NULL) : KVARC_OK;
}

/* Encoders start with new PARAMS after a copied segment: its PARAMS came after theirs. */
static kvarc_ret begin_copy(struct segment_copy *c, struct kvi_writer_track *t)
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

/* Appends the segment that was found to the writer's track; none of its tokens may wait there.
 * ids may be NULL. Returns what readers and writers return. */
static kvarc_ret copy_segment(struct segment_copy *c, const struct copy_found *found,
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
	kvarc_ret ret = begin_copy(c, t);
	if (!ret)
		ret = verify(c, s);
	if (!ret)
		ret = find_predictor(c, s);
	if (!ret)
		ret = kvi_writer_begin_segment(w, &to);
	for (uint64_t k = s->first; k < s->end && !ret; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks,
		                                           k);
		if (c->to[ref->tensor] != COPY_OUT)
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

/* ==== An archive of a store again, without elements that are not needed any more ==== */

/* Segments that are named in one frame. */
enum { NAMED_MOST = 64 };

/* Segments of one track that wait to be named together, and their tokens. */
struct named_run {
	kvarc_stored segments[NAMED_MOST];
	int32_t ids[NAMED_MOST * KVI_SEGMENT_TOKENS], positions[NAMED_MOST * KVI_SEGMENT_TOKENS];
	size_t n, n_tokens;
	bool has_ids;
};

struct keeping {
	kvarc_reader *r;
	kvarc_writer *w;
	const struct kvi_alloc *alloc;
	const uint64_t *ends;
	kvi_keep_fn keep;
	void *opaque;
	uint32_t *same;               /* i, of each tensor */
	struct segment_copy **copies; /* of each track; NULL: not opened yet */
	struct named_run *run;
	struct kvi_kept *kept; /* of the segment in hand */
	uint64_t number;       /* of the last one that was copied */
};

/* ----- what is named ------------------------------------------------ */

static kvarc_ret flush_run(struct keeping *k)
{
	struct named_run *run = k->run;
	kvarc_ret ret = KVARC_OK;
	if (run->n)
		ret = kvarc_writer_append_stored(k->w, run->n, run->segments,
		                                 run->has_ids ? run->ids : NULL,
		                                 run->has_ids ? run->positions : NULL);
	run->n = run->n_tokens = 0;
	return ret;
}

/* A segment that others have cut is named as a whole, and cut again by what follows it. */
static kvarc_ret put_named(struct keeping *k, const kvarc_stored *s)
{
	struct named_run *run = k->run;
	const struct kvi_kept *kept = k->kept;
	kvarc_ret ret = KVARC_OK;
	if (run->n == NAMED_MOST ||
	    (run->n && (run->segments->track != s->track || run->has_ids != kept->has_ids)))
		ret = flush_run(k);
	if (ret)
		return ret;
	run->has_ids = kept->has_ids;
	run->segments[run->n++] = *s;
	memcpy(run->ids + run->n_tokens, kept->ids, s->n * sizeof *run->ids);
	memcpy(run->positions + run->n_tokens, kept->positions, s->n * sizeof *run->ids);
	run->n_tokens += s->n;
	if (s->left == s->n)
		return KVARC_OK;
	ret = flush_run(k);
	return ret ? ret : kvarc_writer_rewind(k->w, s->track, s->t0 + s->left);
}

/* ----- what is copied ------------------------------------------------ */

/* The number of a segment among all segments, also those that rewinds have replaced. */
static uint64_t find_number(struct keeping *k, const kvarc_stored *s)
{
	const struct kvi_list *l = &k->r->index.segments;
	for (;; k->number++) {
		const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, *l, k->number);
		if (kvi_segment_has(ref, s->track, s->t0, s->t0 + 1))
			return k->number;
	}
}

static kvarc_ret put_copied(struct keeping *k, const kvarc_stored *s)
{
	const struct copy_found found = { .t0 = s->t0, .n = s->n, .segment = find_number(k, s) };
	struct segment_copy **c = &k->copies[s->track];
	kvarc_ret ret = flush_run(k);
	if (!ret && !*c)
		ret = copy_open(c, k->r, k->w, s->track, s->track, k->same);
	return ret ? ret
	           : copy_segment(*c, &found, k->kept->has_ids ? k->kept->ids : NULL,
	                          k->kept->positions);
}

/* Tokens of a segment that the archive has itself. */
static kvarc_ret read_own_tokens(struct keeping *k, const kvarc_stored *s)
{
	struct kvi_kept *kept = k->kept;
	kvarc_ret ret = kvarc_reader_read_tokens(k->r, s->track, s->t0, s->n, kept->ids,
	                                         kept->positions);
	kept->has_ids = ret == KVARC_OK;
	return ret == KVARC_OPTIONS ? kvarc_reader_read_tokens(k->r, s->track, s->t0, s->n, NULL,
	                                                       kept->positions)
	                            : ret;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret put_segment(struct keeping *k, kvarc_stored *s, unsigned flags)
{
	const bool own = !(flags & KVARC_SEGMENT_STORED);
	memset(k->kept, 0, sizeof *k->kept);
	if ((own || !s->has_chain) && s->left != s->n)
		return kvi_reader_fail(k->r, KVARC_OPTIONS,
		                       "the archive has segments that no store has cut");
	kvarc_ret ret = k->keep(k->opaque, s, flags, k->kept);
	if (!ret && own)
		ret = read_own_tokens(k, s);
	if (ret)
		return ret;
	if (own && k->kept->copied)
		return put_copied(k, s);
	if (own)
		memcpy(s->digest, k->kept->digest, sizeof s->digest);
	return put_named(k, s);
}

static kvarc_ret transfer_identity(kvarc_reader *r, kvarc_writer *w, const char *key,
                                   const char *value);

static kvarc_ret write_kept(struct keeping *k)
{
	kvarc_ret ret = kvarc_writer_set_geometry(k->w, kvarc_reader_geometry(k->r));
	if (!ret)
		ret = transfer_identity(k->r, k->w, NULL, NULL);
	for (uint64_t i = 0; !ret; i++) {
		kvarc_stored s;
		unsigned flags;
		ret = kvarc_reader_segment_at(k->r, i, &s, &flags);
		if (ret == KVARC_END)
			return flush_run(k);
		if (!ret && s.t0 < k->ends[s.track])
			ret = put_segment(k, &s, flags);
	}
	return ret;
}

static kvarc_ret begin_keeping(struct keeping *k)
{
	const kvarc_geometry *g = kvarc_reader_geometry(k->r);
	k->same = kvi_array(k->alloc, g->n_tensors + 1, sizeof *k->same);
	k->copies = kvi_calloc(k->alloc, g->n_tracks + 1, sizeof *k->copies);
	k->run = kvi_calloc(k->alloc, 1, sizeof *k->run);
	k->kept = kvi_calloc(k->alloc, 1, sizeof *k->kept);
	for (uint32_t i = 0; k->same && i < g->n_tensors; i++)
		k->same[i] = i;
	return k->same && k->copies && k->run && k->kept
	               ? KVARC_OK
	               : kvi_reader_fail(k->r, kvi_alloc_error(k->alloc),
	                                 "not enough memory to copy the archive");
}

static void end(struct keeping *k)
{
	for (uint32_t i = 0; k->copies && i < kvarc_reader_geometry(k->r)->n_tracks; i++)
		copy_close(k->copies[i]);
	kvi_free(k->alloc, (void *)k->copies);
	kvi_free(k->alloc, k->same);
	kvi_free(k->alloc, k->run);
	kvi_free(k->alloc, k->kept);
}

kvarc_ret kvi_keep_segments(kvarc_reader *r, const kvarc_sink *sink,
                            const kvarc_writer_options *options, const uint64_t *ends,
                            kvi_keep_fn keep, void *opaque)
{
	struct keeping k = {
		.r = r, .alloc = kvi_reader_alloc(r), .ends = ends, .keep = keep, .opaque = opaque
	};
	kvarc_ret ret = begin_keeping(&k);
	if (!ret)
		ret = kvarc_writer_open(&k.w, sink, options);
	if (!ret)
		ret = write_kept(&k);
	if (ret)
		kvarc_writer_abort(&k.w);
	else
		ret = kvarc_writer_close(&k.w);
	end(&k);
	return ret;
}

/* ==== Tokens of an archive into another one: decoded and coded again, or as they are ==== */

/*
 * Tokens of one track of a reader that go to one track of a writer, which has a geometry. The
 * caller fills in the first part; what it points to must stay until transfer_end.
 */
struct range_transfer {
	kvarc_reader *r;
	kvarc_writer *w;
	kvarc_range range;           /* of the reader, settled */
	uint32_t track;              /* of the writer */
	const kvarc_tensor *tensors; /* the writer's */
	size_t n_tensors;
	const uint32_t *source;  /* tensor i of the writer is this one of the reader */
	const uint32_t *to_of;   /* tensor i of the reader is this one of the writer, or COPY_OUT */
	uint32_t segment_tokens; /* of the writer's options */
	bool short_segments;     /* several may lie in one of the writer */

	const struct kvi_alloc *alloc;
	kvarc_view *views; /* one a tensor of the reader, all NULL */
	uint32_t batch;    /* tokens that are appended at once */
	/* Where blocks need others to be decoded, or lie in several segments: all tensors of a
	 * batch, so that each is decoded once. */
	uint8_t *ahead; /* NULL: each block is read when it is asked for */
	uint64_t ahead_t0;
	bool ids;
	struct segment_copy *copy; /* of segments with lossy chunks; NULL: in salvage */
	int32_t *tokens;           /* ids, then positions, of a batch */
	kvarc_ret failed;          /* of the reader, in fetch */
	kvarc_error error;         /* why */
	pthread_mutex_t lock;      /* a reader serves one thread at a time */
};

enum {
	BATCH_TOKENS = 4096,
	PAIRS_MAX = 4096,
	AHEAD_BYTES = 32 << 20 /* more only when one segment needs it */
};

/* The identity of the reader, and one more pair (key NULL: none), becomes that of the writer.
 * Returns what kvarc_writer_identity does. */
static kvarc_ret transfer_identity(kvarc_reader *r, kvarc_writer *w, const char *key,
                                   const char *value)
{
	const struct kvi_alloc *alloc = kvi_reader_alloc(r);
	const char **pairs = kvi_array(alloc, 2 * (size_t)PAIRS_MAX + 2, sizeof *pairs);
	size_t n = 0;
	if (!pairs)
		return kvi_reader_fail(r, kvi_alloc_error(alloc),
		                       "not enough memory for the identity");
	const char **values = pairs + PAIRS_MAX + 1;
	while (n < PAIRS_MAX && kvarc_reader_identity_at(r, n, &pairs[n], &values[n]) == KVARC_OK)
		n++;
	if (key) {
		pairs[n] = key;
		values[n++] = value;
	}
	kvarc_ret ret = n ? kvarc_writer_identity(w, n, pairs, values) : KVARC_OK;
	kvi_free(alloc, (void *)pairs);
	return ret;
}

/* Reads all heads of a block into dst, which has capacity for them. */
static kvarc_ret read_block(struct range_transfer *c, uint32_t tensor, uint64_t t0, uint32_t n,
                            void *dst)
{
	const kvarc_tensor *t = &c->tensors[tensor];
	kvarc_range range = { .track = c->range.track,
		              .layer0 = t->layer,
		              .n_layers = 1,
		              .t0 = c->range.t0 + t0,
		              .n = n };
	uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
	uint32_t width = kvi_tensor_width(t);
	kvarc_view *view = &c->views[c->source[tensor]];
	*view = (kvarc_view){ .data = dst,
		              .token_stride = (uint64_t)width * es,
		              .block_elems = width,
		              .elem_stride = es };
	kvarc_ret ret = kvarc_reader_read(c->r, &range, c->views);
	view->data = NULL;
	return ret;
}

/* The same for a part of the heads. */
static kvarc_ret read_heads(struct range_transfer *c, uint32_t tensor, uint32_t head,
                            uint32_t heads, uint64_t t0, uint32_t n, uint8_t *dst)
{
	const kvarc_tensor *t = &c->tensors[tensor];
	size_t row = kvi_tensor_bytes(t), one = row / t->heads;
	uint8_t *all = kvi_array(c->alloc, n, row);
	if (!all)
		return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
		                       "not enough memory for a block");
	kvarc_ret ret = read_block(c, tensor, t0, n, all);
	for (uint32_t i = 0; i < n && !ret; i++)
		memcpy(dst + i * heads * one, all + i * row + head * one, heads * one);
	kvi_free(c->alloc, all);
	return ret;
}

/* Whether a tensor of the writer is among those of the transfer. */
static bool has(const struct range_transfer *c, size_t tensor)
{
	return c->tensors[tensor].track == c->track;
}

/* Allocates a buffer for a batch where blocks are decoded from others, or lie in a store, which is
 * asked for whole segments. Without that memory they are read one by one, which is only slower. */
static void plan_ahead(struct range_transfer *c)
{
	uint32_t n = c->segment_tokens ? c->segment_tokens : KVI_SEGMENT_TOKENS;
	kvarc_predictor_info p;
	uint64_t row = 0;
	c->batch = BATCH_TOKENS / n * n;
	if (!c->short_segments && !kvi_reader_stored_tokens(c->r) &&
	    kvarc_reader_predictor(c->r, 0, &p) != KVARC_OK)
		return;
	for (size_t i = 0; i < c->n_tensors; i++)
		row += has(c, i) ? kvi_tensor_bytes(&c->tensors[i]) : 0;
	if (!row)
		return;
	uint64_t segments = AHEAD_BYTES / (row * n);
	uint32_t batch = n * (uint32_t)(segments < 1 ? 1 : segments);
	batch = batch < c->batch ? batch : c->batch;
	batch = batch < c->range.n ? batch : (uint32_t)c->range.n;
	c->ahead = kvi_array(c->alloc, batch, (size_t)row);
	if (c->ahead)
		c->batch = batch;
}

static void drop_ahead(struct range_transfer *c)
{
	kvi_free(c->alloc, c->ahead);
	c->ahead = NULL;
	memset(c->views, 0, kvarc_reader_geometry(c->r)->n_tensors * sizeof *c->views);
}

/* Reads a batch of all tensors; they lie there one after another. */
static kvarc_ret read_ahead(struct range_transfer *c, uint64_t t0, uint32_t n)
{
	kvarc_range range = c->range;
	uint8_t *at = c->ahead;
	for (size_t i = 0; i < c->n_tensors; i++) {
		const kvarc_tensor *t = &c->tensors[i];
		uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
		uint32_t width = kvi_tensor_width(t);
		if (!has(c, i))
			continue;
		c->views[c->source[i]] = (kvarc_view){ .data = at,
			                               .token_stride = (uint64_t)width * es,
			                               .block_elems = width,
			                               .elem_stride = es };
		at += (size_t)c->batch * width * es;
	}
	range.t0 += t0;
	range.n = n;
	c->ahead_t0 = t0;
	kvarc_ret ret = kvarc_reader_read(c->r, &range, c->views);
	if (ret != KVARC_MEMLIMIT)
		return ret;
	drop_ahead(c); /* what it holds is needed more elsewhere */
	return KVARC_OK;
}

static void take_ahead(const struct range_transfer *c, uint32_t tensor, uint32_t head,
                       uint32_t heads, uint64_t t0, uint32_t n, uint8_t *dst)
{
	const kvarc_view *v = &c->views[c->source[tensor]];
	const kvarc_tensor *t = &c->tensors[tensor];
	size_t one = (size_t)v->token_stride / t->heads;
	const uint8_t *from = (const uint8_t *)v->data + head * one +
	                      (t0 - c->ahead_t0) * v->token_stride;
	for (uint32_t i = 0; i < n; i++)
		memcpy(dst + i * heads * one, from + i * v->token_stride, heads * one);
}

static int fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, void *dst)
{
	struct range_transfer *c = opaque;
	if (c->ahead) {
		take_ahead(c, tensor, head, heads, t0, n, dst);
		return 0;
	}
	pthread_mutex_lock(&c->lock);
	if (!c->failed)
		c->failed = heads == c->tensors[tensor].heads
		                    ? read_block(c, tensor, t0, n, dst)
		                    : read_heads(c, tensor, head, heads, t0, n, dst);
	kvarc_ret ret = c->failed;
	const kvarc_error *e = kvi_reader_error(c->r);
	if (ret && e && c->error.code == KVARC_OK)
		c->error = *e; /* the writer has one of its own, maybe the same */
	pthread_mutex_unlock(&c->lock);
	return ret != KVARC_OK;
}

/* Tokens of the range, to c->tokens. */
static kvarc_ret read_range_tokens(struct range_transfer *c, uint64_t at, uint32_t n)
{
	return kvarc_reader_read_tokens(c->r, c->range.track, c->range.t0 + at, n,
	                                c->ids ? c->tokens : NULL, c->tokens + BATCH_TOKENS);
}

/* Tokens at .. end - 1 of the range, decoded and coded again. */
static kvarc_ret code_tokens(struct range_transfer *c, uint64_t at, uint64_t end)
{
	kvarc_ret ret = KVARC_OK;
	while (at < end && !ret) {
		uint64_t left = end - at;
		uint32_t n = left < c->batch ? (uint32_t)left : c->batch;
		ret = read_range_tokens(c, at, n);
		if (!ret && c->ahead)
			ret = read_ahead(c, at, n);
		if (!ret)
			ret = kvarc_writer_append_fetch(c->w, c->track, n,
			                                c->ids ? c->tokens : NULL,
			                                c->tokens + BATCH_TOKENS, fetch, c);
		at += n;
	}
	return c->failed ? c->failed : ret;
}

/* The next segment at or behind token `at` of the range that can be taken as it is. */
static struct copy_found next_copied(struct range_transfer *c, uint64_t at, uint64_t end)
{
	struct copy_found f = { 0 };
	uint64_t from = c->range.t0 + at;
	end += c->range.t0;
	while (c->copy && (f = copy_find(c->copy, from, end)).n && !f.copied && !f.ret)
		from = f.t0 + f.n;
	return f;
}

/* Without permission tokens of lossy chunks are copied or left, not decoded. */
static kvarc_ret check_lossy(struct range_transfer *c, uint64_t at, uint64_t end)
{
	at += c->range.t0;
	end += c->range.t0;
	if (!c->copy || kvi_reader_allows_lossy(c->r))
		return KVARC_OK;
	for (;;) {
		struct copy_found f = copy_find(c->copy, at, end);
		if (!f.n || f.ret)
			return f.ret;
		at = f.t0 + f.n;
		if (f.copied)
			continue;
		bool parted = f.t0 < c->range.t0 || at > end;
		return kvi_reader_fail(c->r, KVARC_LOSSY,
		                       parted ? "a lossy tier changed tokens %llu to %llu "
		                                "as one: cut before or behind them"
		                              : "tokens %llu to %llu were changed by a lossy tier",
		                       (unsigned long long)f.t0, (unsigned long long)at - 1);
	}
}

/* Tokens at .. end - 1 of the range, of which the writer's track has the first `at`. ids: they have
 * token ids. Returns what readers and writers return; LOSSY: a lossy tier changed tokens that
 * cannot be copied as they are, and the reader does not allow that. */
static kvarc_ret transfer_tokens(struct range_transfer *c, uint64_t at, uint64_t end, bool ids)
{
	kvarc_ret ret = check_lossy(c, at, end);
	c->ids = ids;
	while (!ret && at < end) {
		struct copy_found f = next_copied(c, at, end);
		ret = f.ret;
		if (!ret)
			ret = code_tokens(c, at, f.n ? f.t0 - c->range.t0 : end);
		at = f.n ? f.t0 + f.n - c->range.t0 : end;
		if (!f.n || ret)
			continue;
		ret = read_range_tokens(c, f.t0 - c->range.t0, (uint32_t)f.n);
		if (!ret)
			ret = copy_segment(c->copy, &f, c->ids ? c->tokens : NULL,
			                   c->tokens + BATCH_TOKENS);
	}
	return ret;
}

/* Memory, and what the copies of segments need. transfer_end follows, also after a failure.
 * Returns OK, MEM, MEMLIMIT, and what opening a reader does. */
static kvarc_ret transfer_begin(struct range_transfer *c)
{
	pthread_mutex_init(&c->lock, NULL);
	c->alloc = kvi_reader_alloc(c->r);
	c->views = kvi_calloc(c->alloc, kvarc_reader_geometry(c->r)->n_tensors + 1,
	                      sizeof *c->views);
	c->tokens = kvi_array(c->alloc, 2 * (size_t)BATCH_TOKENS, sizeof *c->tokens);
	if (!c->views || !c->tokens)
		return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
		                       "not enough memory for the tokens");
	plan_ahead(c);
	return kvi_reader_is_salvage(c->r)
	               ? KVARC_OK
	               : copy_open(&c->copy, c->r, c->w, c->range.track, c->track, c->to_of);
}

/* Frees what begin made; the reader's kvarc_error is filled where fetch failed. */
static void transfer_end(struct range_transfer *c)
{
	if (!c->alloc)
		return;
	if (c->failed && kvi_reader_error(c->r))
		*kvi_reader_error(c->r) = c->error;
	copy_close(c->copy);
	kvi_free(c->alloc, c->tokens);
	kvi_free(c->alloc, c->views);
	kvi_free(c->alloc, c->ahead);
	pthread_mutex_destroy(&c->lock);
	*c = (struct range_transfer){ 0 };
}

/* ==== Part of an archive as a new archive ==== */

/* What is cut, and the geometry of the new archive. */
struct cutting {
	kvarc_reader *r;
	kvarc_writer *w;
	const struct kvi_alloc *alloc;
	kvarc_range range;
	const kvarc_geometry *from;
	kvarc_geometry to;
	kvarc_tensor *tensors; /* of to */
	uint32_t *source;      /* tensor i of to is this one of from */
	uint32_t *to_of;       /* tensor i of from is this one of to */
	uint32_t segment_tokens;
};

/* The tensors of the range, on one track; RoPEs stay as they are numbered. */
static kvarc_ret make_geometry(struct cutting *c)
{
	size_t n = 0;
	c->tensors = kvi_array(c->alloc, c->from->n_tensors + 1, sizeof *c->tensors);
	c->source = kvi_array(c->alloc, c->from->n_tensors + 1, sizeof *c->source);
	c->to_of = kvi_array(c->alloc, c->from->n_tensors + 1, sizeof *c->to_of);
	if (!c->tensors || !c->source || !c->to_of)
		return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
		                       "not enough memory for the geometry");
	for (uint32_t i = 0; i < c->from->n_tensors; i++) {
		c->to_of[i] = COPY_OUT;
		if (!kvi_range_has(&c->range, &c->from->tensors[i]))
			continue;
		c->to_of[i] = (uint32_t)n;
		c->tensors[n] = c->from->tensors[i];
		c->tensors[n].track = 0;
		c->source[n++] = i;
	}
	if (n == 0)
		return kvi_reader_fail(c->r, KVARC_GEOMETRY, "no tensors in this range");
	c->to = *c->from;
	c->to.n_tracks = 1;
	c->to.tracks = &c->from->tracks[c->range.track];
	c->to.n_tensors = n;
	c->to.tensors = c->tensors;
	return KVARC_OK;
}

/* All pairs, and what a llama.cpp file has beside tensors: the file is not copied. */
static kvarc_ret copy_identity(struct cutting *c)
{
	char text[KVI_LLAMA_PAIR_BYTES];
	kvarc_ret ret = kvi_llama_describe_track(c->r, c->range.track, text);
	if (ret && ret != KVARC_END)
		return kvi_reader_fail(c->r, ret, "not enough memory for the identity");
	return transfer_identity(c->r, c->w, ret ? NULL : KVI_LLAMA_PAIR, text);
}

static kvarc_ret write_cut(struct cutting *c)
{
	struct range_transfer t = { .r = c->r,
		                    .w = c->w,
		                    .range = c->range,
		                    .tensors = c->tensors,
		                    .n_tensors = c->to.n_tensors,
		                    .source = c->source,
		                    .to_of = c->to_of,
		                    .segment_tokens = c->segment_tokens };
	bool ids;
	kvarc_ret ret = kvi_range_has_ids(c->r, &c->range, &ids);
	if (!ret)
		ret = kvarc_writer_set_geometry(c->w, &c->to);
	if (!ret)
		ret = copy_identity(c);
	if (!ret)
		ret = transfer_begin(&t);
	if (!ret)
		ret = transfer_tokens(&t, 0, c->range.n, ids);
	transfer_end(&t);
	return ret;
}

kvarc_ret kvarc_cut(kvarc_reader *r, const kvarc_range *range, const kvarc_sink *sink,
                    const kvarc_writer_options *options, kvarc_writer_stats *stats)
{
	if (!r || !range)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_sink(kvi_reader_error(r), "kvarc_cut", sink);
	if (ret)
		return ret;
	struct kvi_counted counted = { .to = *sink };
	kvarc_sink counting = kvi_counted_sink(&counted);
	struct cutting c = { .r = r,
		             .range = *range,
		             .from = kvarc_reader_geometry(r),
		             .segment_tokens = options ? options->segment_tokens : 0,
		             .alloc = kvi_reader_alloc(r) };
	ret = kvi_range_settle(r, &c.range);
	if (ret)
		return ret;
	ret = make_geometry(&c);
	if (!ret)
		ret = kvarc_writer_open(&c.w, &counting, options);
	if (!ret)
		ret = write_cut(&c);
	ret = kvi_counted_close(&counted, &c.w, ret, stats);
	kvi_free(c.alloc, c.tensors);
	kvi_free(c.alloc, c.source);
	kvi_free(c.alloc, c.to_of);
	return ret;
}

/* ==== The last state of an archive as a new archive, without what it no longer needs ==== */

/* An archive on its way. */
struct compacting {
	kvarc_reader *r;
	kvarc_writer *w;
	const struct kvi_alloc *alloc;
	const kvarc_geometry *geometry;
	uint32_t *same; /* i, of each tensor */
	uint32_t segment_tokens;
	struct kvi_literals literals;
	/* BLOB content that is being filled. */
	struct kvi_out blob;
	uint64_t item, item_bytes; /* item_bytes: literal bytes of it before the BLOB */
	size_t blob_bytes;
};

static kvarc_ret no_memory(const struct compacting *c)
{
	return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
	                       "not enough memory to compact the archive");
}

/* ----- items ----------------------------------------------------------- */

static bool is_literal(const struct kvi_piece *p)
{
	return p->type != KVI_PIECE_AREA;
}

/* RESTORE: references become literal pieces, of which neighbours are one. */
static kvarc_ret put_restore(struct compacting *c, const struct kvi_restore *from)
{
	struct kvi_restore to = *from;
	struct kvi_out out;
	to.n_pieces = 0;
	to.pieces = kvi_array(c->alloc, from->n_pieces + 1, sizeof *to.pieces);
	if (!to.pieces)
		return no_memory(c);
	for (size_t i = 0; i < from->n_pieces; i++) {
		const struct kvi_piece *p = &from->pieces[i];
		if (is_literal(p) && to.n_pieces && is_literal(&to.pieces[to.n_pieces - 1])) {
			to.pieces[to.n_pieces - 1].bytes += p->bytes;
			continue;
		}
		to.pieces[to.n_pieces] = *p;
		if (is_literal(p))
			to.pieces[to.n_pieces].type = KVI_PIECE_LITERAL;
		to.n_pieces++;
	}
	kvi_out_init(&out, c->alloc);
	kvi_restore_put(&out, &to);
	kvarc_ret ret = out.failed ? no_memory(c)
	                           : kvi_writer_frame(c->w, KVI_FRAME_RESTORE, out.p, out.n, true);
	kvi_out_free(&out);
	kvi_free(c->alloc, to.pieces);
	return ret;
}

static kvarc_ret put_blob(struct compacting *c)
{
	kvarc_ret ret = c->blob_bytes
	                        ? kvi_writer_frame(c->w, KVI_FRAME_BLOB, c->blob.p, c->blob.n, true)
	                        : KVARC_OK;
	c->item_bytes += c->blob_bytes;
	c->blob_bytes = 0;
	c->blob.n = 0;
	return ret;
}

/* Literal bytes of an item of the reader, for the item in hand. */
static kvarc_ret put_bytes(struct compacting *c, uint64_t item, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t left = KVI_BLOB_BYTES - c->blob_bytes;
		size_t n = bytes < left ? (size_t)bytes : left;
		if (!c->blob_bytes)
			kvi_blob_put_head(&c->blob, c->item, c->item_bytes);
		uint8_t *to = kvi_out_reserve(&c->blob, n);
		if (!to)
			return no_memory(c);
		ret = kvi_literals_read(&c->literals, item, from, n, to);
		c->blob.n += n;
		c->blob_bytes += n;
		from += n;
		bytes -= n;
		if (!ret && c->blob_bytes == KVI_BLOB_BYTES)
			ret = put_blob(c);
	}
	return ret;
}

static kvarc_ret put_literals(struct compacting *c, size_t i)
{
	const struct kvi_restore *x = kvi_reader_restore(c->r, i);
	const uint64_t number = kvi_reader_earlier_items(c->r) + i;
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	c->item = i;
	c->item_bytes = 0;
	for (size_t k = 0; k < x->n_pieces && !ret; k++) {
		const struct kvi_piece *p = &x->pieces[k];
		if (p->type == KVI_PIECE_REFERENCE)
			ret = put_bytes(c, p->item, p->from, p->bytes);
		else if (p->type == KVI_PIECE_LITERAL)
			ret = put_bytes(c, number, at, p->bytes);
		at += p->type == KVI_PIECE_LITERAL ? p->bytes : 0;
	}
	return ret ? ret : put_blob(c);
}

/* The tokens of all areas are there, as in an archive that is not cut. */
static kvarc_ret check_areas(struct compacting *c)
{
	for (size_t i = 0; i < kvi_reader_n_items(c->r); i++) {
		const struct kvi_restore *x = kvi_reader_restore(c->r, i);
		for (size_t k = 0; k < x->n_pieces; k++) {
			const struct kvi_piece *p = &x->pieces[k];
			uint64_t n = p->type == KVI_PIECE_AREA ? kvarc_reader_tokens(c->r, p->track)
			                                       : UINT64_MAX;
			if (p->t0 > n || p->n_tokens > n - p->t0)
				return kvi_reader_fail(c->r, KVARC_DATA,
				                       "packed files need tokens that are not "
				                       "in the archive: it was cut");
		}
	}
	return KVARC_OK;
}

static kvarc_ret put_items(struct compacting *c)
{
	const size_t n = kvi_reader_n_items(c->r);
	kvarc_ret ret = check_areas(c);
	if (!ret && n)
		ret = kvi_literals_open(&c->literals, c->r);
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_restore(c, kvi_reader_restore(c->r, i));
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_literals(c, i);
	return ret;
}

/* ----- tokens ----------------------------------------------------------- */

/* A segment of a track whose tokens have ids, or not. */
struct id_run {
	uint64_t end; /* tokens of the track up to its last one */
	bool ids;
};

/* The next run of tokens of a track from `at` on that all have ids, or none of which has. */
static kvarc_ret next_run(struct compacting *c, uint32_t track, uint64_t at, size_t *i,
                          struct kvi_segment *s, struct id_run *run)
{
	const struct kvi_list *l = &c->r->index.segments;
	*run = (struct id_run){ at, false };
	for (; *i < l->n; ++*i) {
		const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, *l, *i);
		if (ref->track != track || !ref->left)
			continue;
		kvarc_ret ret = kvi_reader_read_segment(c->r, &c->r->packer, ref, s, c->r->error);
		if (ret)
			return kvi_reader_set_error(c->r, ret);
		const bool ids = s->has_ids || s->coded;
		if (run->end > at && ids != run->ids)
			break;
		*run = (struct id_run){ ref->t0 + ref->left, ids };
	}
	return KVARC_OK;
}

static kvarc_ret put_runs(struct compacting *c, struct range_transfer *t, struct kvi_segment *s)
{
	struct id_run run;
	size_t i = 0;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t at = 0; at < t->range.n && !ret; at = run.end) {
		ret = next_run(c, t->track, at, &i, s, &run);
		if (!ret)
			ret = transfer_tokens(t, at, run.end, run.ids);
	}
	return ret;
}

static kvarc_ret put_track(struct compacting *c, uint32_t track)
{
	struct range_transfer t = { .r = c->r,
		                    .w = c->w,
		                    .range = KVARC_RANGE_ALL(track),
		                    .track = track,
		                    .tensors = c->geometry->tensors,
		                    .n_tensors = c->geometry->n_tensors,
		                    .source = c->same,
		                    .to_of = c->same,
		                    .segment_tokens = c->segment_tokens,
		                    .short_segments = true };
	t.range.n = kvarc_reader_tokens(c->r, track);
	if (!t.range.n)
		return KVARC_OK;
	struct kvi_segment *s = kvi_malloc(c->alloc, sizeof *s);
	kvarc_ret ret = s ? transfer_begin(&t) : no_memory(c);
	if (!ret)
		ret = put_runs(c, &t, s);
	transfer_end(&t);
	kvi_free(c->alloc, s);
	return ret;
}

static kvarc_ret write_compact(struct compacting *c)
{
	kvarc_ret ret = kvarc_writer_set_geometry(c->w, c->geometry);
	if (!ret)
		ret = transfer_identity(c->r, c->w, NULL, NULL);
	if (!ret)
		ret = put_items(c);
	for (uint32_t i = 0; i < c->geometry->n_tracks && !ret; i++)
		ret = put_track(c, i);
	return ret;
}

/* ----- all of it -------------------------------------------------------- */

static kvarc_ret check(const kvarc_reader *r, const kvarc_writer_options *o)
{
	kvarc_error *e = kvi_reader_error(r);
	if (!kvi_reader_can_seek(r))
		return kvi_reason(e, KVARC_REASON_NEEDS_SEEK,
		                  kvi_fail(e, KVARC_OPTIONS,
		                           "kvarc_compact needs a source that can seek, not a "
		                           "pipe"));
	if (kvi_reader_is_salvage(r) || kvi_reader_started(r))
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_compact takes a reader without KVARC_READ_SALVAGE, before "
		                "segments are read");
	if (r->state == KVARC_STATE_DAMAGED)
		return kvi_reason(e, KVARC_REASON_SALVAGE,
		                  kvi_fail(e, KVARC_DATA,
		                           "the archive is damaged behind its last commit: salvage "
		                           "it"));
	if (o && o->lossy)
		return kvi_fail(e, KVARC_PROG, "kvarc_compact takes no lossy tier");
	return KVARC_OK;
}

kvarc_ret kvarc_compact(kvarc_reader *r, const kvarc_sink *sink,
                        const kvarc_writer_options *options, kvarc_writer_stats *stats)
{
	if (!r)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_sink(kvi_reader_error(r), "kvarc_compact", sink);
	if (ret)
		return ret;
	struct kvi_counted counted = { .to = *sink };
	kvarc_sink counting = kvi_counted_sink(&counted);
	struct compacting c = { .r = r,
		                .alloc = kvi_reader_alloc(r),
		                .geometry = kvarc_reader_geometry(r),
		                .segment_tokens = options ? options->segment_tokens : 0 };
	ret = check(r, options);
	if (ret)
		return ret;
	kvi_out_init(&c.blob, c.alloc);
	c.same = kvi_array(c.alloc, c.geometry->n_tensors + 1, sizeof *c.same);
	for (uint32_t i = 0; c.same && i < c.geometry->n_tensors; i++)
		c.same[i] = i;
	ret = c.same ? kvarc_writer_open(&c.w, &counting, options) : no_memory(&c);
	if (!ret)
		ret = write_compact(&c);
	ret = kvi_counted_close(&counted, &c.w, ret, stats);
	kvi_literals_free(&c.literals);
	kvi_out_free(&c.blob);
	kvi_free(c.alloc, c.same);
	return ret;
}
