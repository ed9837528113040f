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
#include "repeated.h"
#include "format/frame.h"
#include "format/frame_walk.h"
#include "format/geometry_check.h"
#include "format/segment.h"
#include "reader/reader_errors.h"
#include "reader/reader_frames.h"
#include "reader/reader_index.h"
#include "reader/reader_lists.h"
#include "reader/reader_internal.h"
#include "reader/reader_open.h"
#include "reader/reader_params.h"
#include "reader/reader_predictors.h"
#include "reader/reader_segments.h"
#include "util/arguments.h"
#include "util/error.h"
#include "writer/writer_internal.h"

/* ==== Which segments of a reader can be copied without decoding them ==== */

/* The copy of a chunk of the reader in the new archive. */
struct copied_chunk {
	struct kvi_copied_at at; /* sequence 0: not written */
	bool planned;            /* will be written before chunks of later segments */
};

/* A copy from a reader to a writer: one thread uses it. */
struct segment_copy {
	kvarc_reader *r, *again; /* again: for KVARC_WRITE_VERIFY, NULL: not wanted */
	const struct kvi_alloc *alloc;
	const struct kvi_reader_index *index;
	struct kvi_order order;
	kvarc_writer *w;
	struct kvi_copy_terms terms;
	uint32_t track, to_track;
	const uint32_t *to;
	struct copied_chunk *copied; /* by chunk of the reader */
	struct kvi_list given;
	uint64_t looked_t0; /* first token of the last search; looked: segment where it ended */
	size_t looked;
	uint64_t frames;                           /* of the writer, behind the last copy */
	const struct kvi_predictor_ref *predictor; /* in force in the new archive; NULL: another */
	struct kvi_buffer frame, target;
	struct kvi_out content;
	struct kvi_segment segments[2];
	kvarc_ret ret; /* failure that is not about a chunk */
};

/* Number of a tensor that is left out. */
#define COPY_OUT UINT32_MAX

/* A segment that a copy finds at a token of the source. */
struct copy_found {
	uint64_t t0, n; /* tokens in the reader's track; n = 0: no segment */
	bool lossy;     /* the segment has chunks of a lossy tier */
	bool copied;    /* the segment can be copied as it is */
	uint64_t segment;
	kvarc_ret ret; /* MEM, MEMLIMIT, IO: the rest is not known */
};

/* Whether a call on a chunk succeeded. Errors that are not about the chunk go to copy->ret; a
 * damaged chunk is reported by the call that decodes it. */
static bool good(struct segment_copy *copy, kvarc_ret ret)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO)
		copy->ret = ret;
	return ret == KVARC_OK;
}

static bool same_positions(struct segment_copy *copy, uint64_t a, uint64_t b)
{
	const uint64_t sequences[2] = { a, b };
	if (a == b)
		return true;
	for (int i = 0; i < 2; i++) {
		const struct kvi_segment_ref *s = kvi_index_segment(copy->index, sequences[i]);
		if (!s || !s->offset ||
		    !good(copy, kvi_reader_segment(copy->r, s, &copy->segments[i])))
			return false;
	}
	const struct kvi_segment *s = copy->segments;
	return s[0].n == s[1].n &&
	       !memcmp(s[0].positions, s[1].positions, s[0].n * sizeof *s->positions);
}

/* Whether the payload of chunk `there` decodes to the same elements with the header of another. */
static bool copy_same_shape(struct segment_copy *copy, const struct kvi_chunk_header *header,
                            const struct kvi_chunk_header *there)
{
	const kvarc_geometry *g = kvarc_reader_geometry(copy->r);
	const kvarc_tensor *x = &g->tensors[header->tensor], *y = &g->tensors[there->tensor];
	return header->n == there->n && header->heads == there->heads && x->dtype == y->dtype &&
	       x->channels == y->channels && x->rope == y->rope &&
	       (header->tensor == there->tensor || !kvi_codec_predicts(there->codec)) &&
	       same_positions(copy, header->segment, there->segment);
}

/* The header of a chunk, and what follows it up to extra bytes; what it says is not checked. */
static bool peek(struct segment_copy *copy, const struct kvi_chunk_ref *ref, uint8_t *head,
                 size_t extra, struct kvi_chunk_header *header)
{
	struct kvi_frame f;
	return good(copy, kvi_reader_peek_chunk(copy->r, ref, head, extra, header, &f));
}

/* Reads the header of a chunk, and of the chunk that has its payload: itself, or the target of a
 * REPEAT, which is returned. NULL: one is damaged, which the call that decodes it reports, or
 * copy->ret is set. */
static const struct kvi_chunk_ref *copy_resolve(struct segment_copy *copy,
                                                const struct kvi_chunk_ref *ref,
                                                struct kvi_chunk_header *header,
                                                struct kvi_chunk_header *there)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES];
	if (!peek(copy, ref, head, 0, header))
		return NULL;
	*there = *header;
	if (header->codec != KVI_CODEC_REPEAT)
		return ref;
	if (!peek(copy, ref, head, KVI_REPEAT_BYTES, header))
		return NULL;
	ref = kvi_index_chunk(copy->index, kvi_load64(head + sizeof head - KVI_REPEAT_BYTES));
	return ref && peek(copy, ref, head, 0, there) && there->codec != KVI_CODEC_REPEAT ? ref
	                                                                                  : NULL;
}

/* The entry for the copy of a chunk of the reader; the caller fills it in. */
static struct copied_chunk *copy_of(struct segment_copy *copy, const struct kvi_chunk_ref *ref)
{
	return &copy->copied[ref - KVI_LIST(struct kvi_chunk_ref, copy->index->chunks, 0)];
}

/* Whether tensors that a transform may be predicted from are copied, too: its sources, or where its
 * profile is not known, all tensors before it. */
static bool sources_come_along(struct segment_copy *copy, const struct kvi_chunk_header *header)
{
	const struct kvi_order *order = &copy->order;
	struct kvi_predictor_ref *x = kvi_reader_find_predictor(copy->r, header->params);
	uint32_t first = order->first[copy->track], place = first;
	while (place < order->first[copy->track + 1] && order->tensors[place] != header->tensor)
		place++;
	if (place == order->first[copy->track + 1])
		return false; /* the chunk repeats a chunk of another track */
	if (x && kvi_reader_load_predictor(copy->r, x, NULL) == KVARC_OK &&
	    x->plan->of[place].complete) {
		const struct kvi_planned *of = &x->plan->of[place];
		for (unsigned i = 0; i < of->model->n_lower; i++)
			if (copy->to[order->tensors[of->lower[i]]] == COPY_OUT)
				return false;
		return true;
	}
	for (; first < place; first++)
		if (copy->to[order->tensors[first]] == COPY_OUT)
			return false;
	return true;
}

/* Whether a chunk of codec state refers to another one, which is elsewhere in a copy. */
static bool refers(struct segment_copy *copy, const struct kvi_chunk_ref *ref,
                   const struct kvi_chunk_header *there)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES + KVI_STATE_HEAD];
	struct kvi_chunk_header h;
	uint64_t sequence, offset;
	return there->codec == KVI_CODEC_STATE &&
	       (!peek(copy, ref, head, KVI_STATE_HEAD, &h) ||
	        kvi_state_reference(head + sizeof head - KVI_STATE_HEAD, KVI_STATE_HEAD, &sequence,
	                            &offset));
}

/* The codec of a chunk or of what it repeats. *takes: it can be copied. */
static unsigned look_at(struct segment_copy *copy, const struct kvi_chunk_ref *ref, bool *takes)
{
	struct kvi_chunk_header h, there;
	const struct kvi_chunk_ref *from = copy_resolve(copy, ref, &h, &there);
	*takes = !from || (!refers(copy, from, &there) &&
	                   (from == ref || (copy_of(copy, from)->planned && copy->terms.repeats) ||
	                    copy_same_shape(copy, &h, &there)) &&
	                   (!kvi_codec_predicts(there.codec) ||
	                    (there.codec == KVI_CODEC_KLT && !copy->terms.predicts &&
	                     sources_come_along(copy, &there))));
	if (from == ref)
		copy_of(copy, ref)->planned = *takes;
	return from ? there.codec : KVI_CODEC_RAW;
}

/* The writer's number of the tensor of chunk k of a segment. */
static uint32_t to_of(const struct segment_copy *copy, const struct kvi_segment_ref *segment,
                      uint64_t k)
{
	return copy->to[kvi_segment_chunk(copy->r, segment, k).tensor];
}

static struct copy_found look_into(struct segment_copy *copy, size_t i, bool copied)
{
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, copy->index->segments,
	                                           i);
	struct copy_found f = { s->t0, s->left, false, copied, i, KVARC_OK };
	for (uint64_t k = s->first; k < s->end; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref,
		                                           copy->index->chunks, k);
		bool takes;
		if (to_of(copy, s, k) == COPY_OUT)
			continue;
		f.lossy |= kvi_codec_lossy(look_at(copy, ref, &takes));
		f.copied &= takes;
	}
	for (uint64_t k = s->first; k < s->end && !(f.lossy && f.copied); k++)
		copy->copied[k].planned = false;
	return f;
}

/* The first segment with tokens in t0 .. end - 1 that has lossy chunks. */
static struct copy_found copy_find(struct segment_copy *copy, uint64_t t0, uint64_t end)
{
	const struct kvi_list *l = &copy->index->segments;
	size_t i = t0 >= copy->looked_t0 ? copy->looked : 0;
	copy->looked_t0 = t0;
	for (; i < l->n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (!kvi_segment_has(s, copy->track, t0, end))
			continue;
		struct copy_found f = look_into(copy, i,
		                                copy->terms.copies && s->left == s->n &&
		                                        s->t0 >= t0 && s->t0 + s->n <= end);
		copy->looked = i;
		f.ret = kvi_reader_set_error(copy->r, copy->ret);
		if (f.lossy || f.ret)
			return f;
	}
	copy->looked = i;
	return (struct copy_found){ 0 };
}

/* ==== Chunks of a reader into a writer: new headers, the same payloads (spec 7, lossy) ==== */

/* PARAMS in force for the chunk at an order_index of its segment. */
struct copy_params {
	uint32_t tensor; /* number in the writer */
	uint16_t head, heads;
	uint64_t from, sequence; /* numbers of the reader's frame, the writer's; 0: none */
};

/* A chunk that is read: its header and where its payload comes from. */
struct copy_piece {
	struct kvi_chunk_ref ref; /* PARAMS are those of this chunk */
	struct kvi_frame frame;
	struct kvi_chunk_header h;
};

static void copy_close(struct segment_copy *copy);

/*
 * A track of a reader that can seek goes to track to_track of a writer that has a geometry. to: the
 * writer's number of each of the reader's tensors; the caller's until close. On failure *c is NULL.
 * Returns OK, or what opening a reader does (KVARC_WRITE_VERIFY needs another one).
 */
static kvarc_ret copy_open(struct segment_copy **out, kvarc_reader *r, kvarc_writer *w,
                           uint32_t track, uint32_t to_track, const uint32_t *to)
{
	const struct kvi_alloc *alloc = kvi_reader_alloc(r);
	struct segment_copy *c = kvi_calloc(alloc, 1, sizeof *c);
	kvarc_ret ret = KVARC_OK;
	*out = NULL;
	if (!c)
		return kvi_fail_alloc(kvi_reader_error(r), alloc);
	*c = (struct segment_copy){ .r = r,
		                    .alloc = alloc,
		                    .index = kvi_reader_index(r),
		                    .w = w,
		                    .terms = kvi_writer_copy_terms(w),
		                    .track = track,
		                    .to_track = to_track,
		                    .to = to };
	kvi_out_init(&c->content, alloc);
	ret = kvi_reader_list_all(r);
	c->copied = kvi_calloc(alloc, c->index->chunks.n + 1, sizeof *c->copied);
	if (ret)
		ret = kvi_reader_set_error(r, ret);
	else if (!c->copied || kvi_order_make(&c->order, alloc, kvarc_reader_geometry(r)))
		ret = kvi_fail_alloc(kvi_reader_error(r), alloc);
	else if (c->terms.verifies)
		ret = kvi_reader_open_again(r, 0, &c->again);
	if (ret)
		copy_close(c);
	else
		*out = c;
	return ret;
}

static void copy_close(struct segment_copy *copy)
{
	if (!copy)
		return;
	const struct kvi_alloc *alloc = copy->alloc;
	kvarc_reader_close(&copy->again);
	kvi_out_free(&copy->content);
	kvi_order_free(&copy->order, alloc);
	kvi_free(alloc, copy->frame.p);
	kvi_free(alloc, copy->target.p);
	kvi_free(alloc, copy->given.p);
	kvi_free(alloc, copy->copied);
	kvi_free(alloc, copy);
}

static kvarc_ret bad(struct segment_copy *copy, const struct kvi_frame *frame, const char *what)
{
	return kvi_reader_set_error(copy->r,
	                            kvi_reader_bad(frame, kvi_reader_error(copy->r), what));
}

static kvarc_ret read_piece(struct segment_copy *copy, const struct kvi_chunk_ref *ref,
                            struct kvi_buffer *buf, struct copy_piece *piece)
{
	kvarc_reader *r = copy->r;
	kvarc_ret ret = kvi_reader_read_frame(r, ref->offset, KVI_FRAME_CHUNK, ref->sequence, buf,
	                                      &piece->frame, kvi_reader_error(r));
	if (ret)
		return kvi_reader_set_error(r, ret);
	piece->ref = *ref;
	if (!kvi_chunk_header_parse(&piece->h, piece->frame.payload,
	                            piece->frame.head.payload_bytes))
		return bad(copy, &piece->frame, "its header is not valid");
	ret = kvi_chunk_check(kvarc_reader_geometry(r), &piece->h, &piece->frame,
	                      kvi_reader_error(r));
	if (ret)
		return kvi_reader_set_error(r, ret);
	if (piece->h.tensor != ref->tensor || piece->h.head != ref->head ||
	    piece->h.heads != ref->heads || piece->h.params != ref->params)
		return bad(copy, &piece->frame, "it is not what the index or its segment say");
	return KVARC_OK;
}

/* Whether what is in force is as good as a PREDICTOR. */
static bool serves(const struct segment_copy *copy, const struct kvi_predictor_ref *predictor)
{
	return predictor && copy->predictor && copy->predictor->p.level == predictor->p.level &&
	       kvi_h128_equal(copy->predictor->p.digest, predictor->p.digest);
}

/* Puts a PREDICTOR of the reader in force, with PROFILE frames where the reader has them. */
static kvarc_ret use_predictor(struct segment_copy *copy, uint64_t sequence)
{
	kvarc_reader *r = copy->r;
	kvarc_error *error = kvi_reader_error(r);
	struct kvi_predictor_ref *x = kvi_reader_find_predictor(r, sequence);
	if (!x || x->p.kind != KVI_PREDICTOR_PROFILE)
		return kvi_reader_set_error(
			r, kvi_fail_at(error, KVARC_DATA, KVARC_UNKNOWN, sequence,
		                       "the PREDICTOR frame of chunks is damaged"));
	if (serves(copy, x))
		return KVARC_OK;
	copy->predictor = x;
	const struct kvi_predictor_ref *y = kvi_reader_embedding(r, x);
	uint64_t left = y ? y->p.content_bytes : 0;
	kvarc_ret ret = kvi_writer_use_predictor(copy->w, &x->p, left);
	for (size_t i = 0; y && i < y->parts.n && left && !ret; i++) {
		const struct kvi_blob_ref *part = KVI_LIST(struct kvi_blob_ref, y->parts, i);
		struct kvi_profile_part in;
		ret = kvi_reader_content(r, part->offset, KVI_FRAME_PROFILE, part->sequence,
		                         &copy->content);
		if (!ret && (!kvi_profile_part_parse(&in, copy->content.p, copy->content.n) ||
		             in.offset != y->p.content_bytes - left || in.bytes > left))
			break;
		if (!ret)
			ret = kvi_writer_frame(copy->w, KVI_FRAME_PROFILE, copy->content.p,
			                       copy->content.n, true);
		left -= ret ? 0 : in.bytes;
	}
	return ret || !left
	               ? ret
	               : kvi_reader_set_error(
				 r, kvi_reason(error, KVARC_REASON_SALVAGE,
	                                       kvi_fail_at(error, KVARC_DATA, KVARC_UNKNOWN,
	                                                   x->sequence,
	                                                   "the embedded profile is not complete; "
	                                                   "salvage may give the rest")));
}

static struct copy_params *given_at(struct segment_copy *copy, size_t i)
{
	while (copy->given.n <= i) {
		struct copy_params *g = kvi_list_add(&copy->given, copy->alloc, sizeof *g);
		if (!g)
			return NULL;
		*g = (struct copy_params){ 0 };
	}
	return KVI_LIST(struct copy_params, copy->given, i);
}

/* The PARAMS of a piece, for the chunk at place i with this header. */
static kvarc_ret use_params(struct segment_copy *copy, size_t i, const struct copy_piece *piece,
                            struct kvi_chunk_header *header)
{
	kvarc_reader *r = copy->r;
	struct copy_params *g = given_at(copy, i);
	struct kvi_params_header there;
	if (!g)
		return kvi_fail_alloc(kvi_reader_error(r), copy->alloc);
	if (g->sequence && g->from == piece->ref.params && g->tensor == header->tensor &&
	    g->head == header->head && g->heads == header->heads) {
		header->params = g->sequence;
		return KVARC_OK;
	}
	kvarc_ret ret = kvi_reader_params_content(r, &piece->ref, &copy->content);
	if (ret)
		return kvi_reader_set_error(r, ret);
	if (!kvi_params_header_parse(&there, copy->content.p, copy->content.n) ||
	    there.tensor != piece->ref.tensor || there.head != piece->ref.head ||
	    there.heads != piece->ref.heads || there.codec != kvi_codec_params(piece->h.codec))
		return bad(copy, &piece->frame, "its PARAMS are of another chunk");
	const struct kvi_params_header to = { header->tensor, header->head, header->heads,
		                              there.codec };
	ret = kvi_writer_put_params(copy->w, &to, copy->content.p + KVI_PARAMS_HEADER_BYTES,
	                            copy->content.n - KVI_PARAMS_HEADER_BYTES, &header->params);
	*g = (struct copy_params){ to.tensor, to.head, to.heads, piece->ref.params,
		                   header->params };
	return ret;
}

/* A piece in place of a chunk of the reader, at place i of its segment. */
static kvarc_ret put_piece(struct segment_copy *copy, size_t i, const struct copy_piece *piece,
                           struct kvi_chunk_header *header, struct kvi_copied_at *at)
{
	const struct kvi_frame *f = &piece->frame;
	kvarc_ret ret = KVARC_OK;
	header->codec = piece->h.codec;
	header->cut = piece->h.cut;
	header->params = 0;
	if (kvi_codec_predicts(header->codec) &&
	    !serves(copy, kvi_reader_find_predictor(copy->r, piece->h.params)))
		return bad(copy, f, "it is not of the profile of its segment");
	if (!kvi_codec_predicts(header->codec) && piece->h.params)
		ret = use_params(copy, i, piece, header);
	return ret ? ret
	           : kvi_writer_copy_chunk(copy->w, header, f->payload + KVI_CHUNK_HEADER_BYTES,
	                                   f->head.payload_bytes - KVI_CHUNK_HEADER_BYTES,
	                                   f->head.decoded_bytes, at);
}

/* Copies a REPEAT: as a REPEAT of the copy of its target, else with the payload of the target. */
static kvarc_ret put_repeated(struct segment_copy *copy, size_t i, const struct copy_piece *piece,
                              struct kvi_chunk_header *header)
{
	struct kvi_in in = kvi_in_make(piece->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                               piece->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES);
	const struct kvi_chunk_ref *ref = kvi_index_chunk(copy->index, kvi_get64(&in));
	uint8_t rest[KVI_REPEAT_BYTES];
	struct kvi_copied_at at;
	struct copy_piece there;
	if (in.bad || !ref || ref->sequence >= piece->ref.sequence)
		return bad(copy, &piece->frame, "what it repeats is missing");
	struct copied_chunk *done = copy_of(copy, ref);
	if (done->at.sequence && copy->terms.repeats) {
		header->codec = KVI_CODEC_REPEAT;
		header->cut.section_bytes = 0;
		header->params = 0;
		kvi_store64(rest, done->at.sequence);
		kvi_store64(rest + 8, done->at.offset);
		return kvi_writer_copy_chunk(copy->w, header, rest, sizeof rest,
		                             piece->frame.head.decoded_bytes, &at);
	}
	kvarc_ret ret = read_piece(copy, ref, &copy->target, &there);
	if (ret)
		return ret;
	if (there.h.codec == KVI_CODEC_REPEAT || there.h.raw_check != header->raw_check ||
	    there.h.cut.stream_size != header->cut.stream_size ||
	    there.frame.head.decoded_bytes != piece->frame.head.decoded_bytes ||
	    !copy_same_shape(copy, &piece->h, &there.h))
		return bad(copy, &piece->frame, "what it repeats differs");
	ret = put_piece(copy, i, &there, header, &at);
	if (!ret && at.repeatable)
		*done = (struct copied_chunk){ at, true };
	return ret;
}

/* Copies chunk k of a segment, at place i. */
static kvarc_ret copy_chunk(struct segment_copy *copy, size_t i,
                            const struct kvi_segment_ref *segment, uint64_t k,
                            const struct kvi_segment *to)
{
	const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref, copy->index->chunks, k);
	struct copy_piece p;
	kvarc_ret ret = read_piece(copy, ref, &copy->frame, &p);
	if (ret)
		return ret;
	if (p.h.segment != segment->sequence || p.h.n != segment->n || p.h.t0 != segment->t0)
		return bad(copy, &p.frame, "it is not what the index or its segment say");
	struct kvi_chunk_header h = p.h;
	h.tensor = to_of(copy, segment, k);
	h.segment = to->sequence;
	h.t0 = (uint32_t)to->t0;
	if (h.codec == KVI_CODEC_REPEAT)
		return put_repeated(copy, i, &p, &h);
	return put_piece(copy, i, &p, &h, &copy_of(copy, ref)->at);
}

/* Puts the predictor of the segment's chunks in force, before the SEGMENT frame. */
static kvarc_ret find_predictor(struct segment_copy *copy, const struct kvi_segment_ref *segment)
{
	for (uint64_t k = segment->first; k < segment->end; k++) {
		const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref,
		                                           copy->index->chunks, k);
		struct kvi_chunk_header h, there;
		if (to_of(copy, segment, k) == COPY_OUT)
			continue;
		const struct kvi_chunk_ref *from = copy_resolve(copy, ref, &h, &there);
		kvarc_ret ret = from && kvi_codec_predicts(there.codec)
		                        ? use_predictor(copy, there.params)
		                        : copy->ret;
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

/* Decodes a segment for KVARC_WRITE_VERIFY, to check what is copied, and drops the elements. */
static kvarc_ret verify(struct segment_copy *copy, const struct kvi_segment_ref *segment)
{
	const kvarc_range range = {
		.track = copy->track, .n_layers = UINT32_MAX, .t0 = segment->t0, .n = segment->n
	};
	return copy->again ? kvarc_reader_read_deliver(copy->again, &range, drop, NULL) : KVARC_OK;
}

/* The number of frames that a writer has written. */
static uint64_t frames_of(const kvarc_writer *w)
{
	kvarc_writer_stats stats;
	kvarc_writer_get_stats(w, &stats);
	return stats.frames;
}

/* Appends the segment that was found to the writer's track; none of its tokens may wait there.
 * ids may be NULL. Returns what readers and writers return. */
static kvarc_ret copy_segment(struct segment_copy *copy, const struct copy_found *found,
                              const int32_t *ids, const int32_t *positions)
{
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, copy->index->segments,
	                                           found->segment);
	struct kvi_segment to = { .track = copy->to_track, .n = s->n, .has_ids = ids };
	size_t i = 0;
	for (uint32_t k = 0; k < s->n; k++) {
		to.positions[k] = positions[k];
		to.ids[k] = ids ? ids[k] : 0;
	}
	/* Others may have written PARAMS since the last copy. */
	if (copy->frames != frames_of(copy->w))
		copy->given.n = 0;
	kvarc_ret ret = verify(copy, s);
	if (!ret)
		ret = find_predictor(copy, s);
	if (!ret)
		ret = kvi_writer_begin_copy(copy->w, &to);
	for (uint64_t k = s->first; k < s->end && !ret; k++)
		if (to_of(copy, s, k) != COPY_OUT)
			ret = copy_chunk(copy, i++, s, k, &to);
	copy->given.n = copy->given.n < i ? copy->given.n : i;
	if (!ret)
		ret = kvi_writer_end_copy(copy->w, &to);
	copy->frames = frames_of(copy->w);
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
	struct segment_copy **copies; /* by track; NULL: not opened yet */
	struct named_run *run;
	struct kvi_kept *kept; /* decision for the current segment */
	uint64_t number;       /* number of the last segment that was copied */
};

/* ----- what is named ------------------------------------------------ */

static kvarc_ret flush_run(struct keeping *keeping)
{
	struct named_run *run = keeping->run;
	kvarc_ret ret = KVARC_OK;
	if (run->n)
		ret = kvarc_writer_append_stored(keeping->w, run->n, run->segments,
		                                 run->has_ids ? run->ids : NULL,
		                                 run->has_ids ? run->positions : NULL);
	run->n = run->n_tokens = 0;
	return ret;
}

/* A segment that others have cut is named as a whole, and cut again by what follows it. */
static kvarc_ret put_named(struct keeping *keeping, const kvarc_stored *stored)
{
	struct named_run *run = keeping->run;
	const struct kvi_kept *kept = keeping->kept;
	kvarc_ret ret = KVARC_OK;
	if (run->n == NAMED_MOST ||
	    (run->n && (run->segments->track != stored->track || run->has_ids != kept->has_ids)))
		ret = flush_run(keeping);
	if (ret)
		return ret;
	run->has_ids = kept->has_ids;
	run->segments[run->n++] = *stored;
	memcpy(run->ids + run->n_tokens, kept->ids, stored->n * sizeof *run->ids);
	memcpy(run->positions + run->n_tokens, kept->positions, stored->n * sizeof *run->ids);
	run->n_tokens += stored->n;
	if (stored->left == stored->n)
		return KVARC_OK;
	ret = flush_run(keeping);
	return ret ? ret
	           : kvarc_writer_rewind(keeping->w, stored->track, stored->t0 + stored->left);
}

/* ----- what is copied ------------------------------------------------ */

/* The number of a segment among all segments, also those that rewinds have replaced. */
static uint64_t find_number(struct keeping *keeping, const kvarc_stored *stored)
{
	const struct kvi_list *l = &kvi_reader_index(keeping->r)->segments;
	for (;; keeping->number++) {
		const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, *l,
		                                             keeping->number);
		if (kvi_segment_has(ref, stored->track, stored->t0, stored->t0 + 1))
			return keeping->number;
	}
}

static kvarc_ret put_copied(struct keeping *keeping, const kvarc_stored *stored)
{
	const struct copy_found found = { .t0 = stored->t0,
		                          .n = stored->n,
		                          .segment = find_number(keeping, stored) };
	struct segment_copy **c = &keeping->copies[stored->track];
	kvarc_ret ret = flush_run(keeping);
	if (!ret && !*c)
		ret = copy_open(c, keeping->r, keeping->w, stored->track, stored->track,
		                keeping->same);
	return ret ? ret
	           : copy_segment(*c, &found, keeping->kept->has_ids ? keeping->kept->ids : NULL,
	                          keeping->kept->positions);
}

/* Tokens of a segment that the archive has itself. */
static kvarc_ret read_own_tokens(struct keeping *keeping, const kvarc_stored *stored)
{
	struct kvi_kept *kept = keeping->kept;
	kvarc_ret ret = kvarc_reader_read_tokens(keeping->r, stored->track, stored->t0, stored->n,
	                                         kept->ids, kept->positions);
	kept->has_ids = ret == KVARC_OK;
	return ret == KVARC_OPTIONS
	               ? kvarc_reader_read_tokens(keeping->r, stored->track, stored->t0, stored->n,
	                                          NULL, kept->positions)
	               : ret;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret put_segment(struct keeping *keeping, kvarc_stored *stored, unsigned flags)
{
	const bool own = !(flags & KVARC_SEGMENT_STORED);
	memset(keeping->kept, 0, sizeof *keeping->kept);
	if ((own || !stored->has_chain) && stored->left != stored->n)
		return kvi_reader_fail(keeping->r, KVARC_OPTIONS,
		                       "the archive has segments that no store has cut");
	kvarc_ret ret = keeping->keep(keeping->opaque, stored, flags, keeping->kept);
	if (!ret && own)
		ret = read_own_tokens(keeping, stored);
	if (ret)
		return ret;
	if (own && keeping->kept->copied)
		return put_copied(keeping, stored);
	if (own)
		memcpy(stored->digest, keeping->kept->digest, sizeof stored->digest);
	return put_named(keeping, stored);
}

static kvarc_ret transfer_identity(kvarc_reader *r, kvarc_writer *w, const char *key,
                                   const char *value);

static kvarc_ret write_kept(struct keeping *keeping)
{
	kvarc_ret ret = kvarc_writer_set_geometry(keeping->w, kvarc_reader_geometry(keeping->r));
	if (!ret)
		ret = transfer_identity(keeping->r, keeping->w, NULL, NULL);
	for (uint64_t i = 0; !ret; i++) {
		kvarc_stored s;
		unsigned flags;
		ret = kvarc_reader_segment_at(keeping->r, i, &s, &flags);
		if (ret == KVARC_END)
			return flush_run(keeping);
		if (!ret && s.t0 < keeping->ends[s.track])
			ret = put_segment(keeping, &s, flags);
	}
	return ret;
}

static kvarc_ret begin_keeping(struct keeping *keeping)
{
	const kvarc_geometry *g = kvarc_reader_geometry(keeping->r);
	keeping->same = kvi_array(keeping->alloc, g->n_tensors + 1, sizeof *keeping->same);
	keeping->copies = kvi_calloc(keeping->alloc, g->n_tracks + 1, sizeof *keeping->copies);
	keeping->run = kvi_calloc(keeping->alloc, 1, sizeof *keeping->run);
	keeping->kept = kvi_calloc(keeping->alloc, 1, sizeof *keeping->kept);
	for (uint32_t i = 0; keeping->same && i < g->n_tensors; i++)
		keeping->same[i] = i;
	return keeping->same && keeping->copies && keeping->run && keeping->kept
	               ? KVARC_OK
	               : kvi_reader_fail(keeping->r, kvi_alloc_error(keeping->alloc),
	                                 "not enough memory to copy the archive");
}

static void end(struct keeping *keeping)
{
	for (uint32_t i = 0; keeping->copies && i < kvarc_reader_geometry(keeping->r)->n_tracks;
	     i++)
		copy_close(keeping->copies[i]);
	kvi_free(keeping->alloc, (void *)keeping->copies);
	kvi_free(keeping->alloc, keeping->same);
	kvi_free(keeping->alloc, keeping->run);
	kvi_free(keeping->alloc, keeping->kept);
}

kvarc_ret kvi_keep_segments(kvarc_reader *r, const kvarc_sink *sink,
                            const kvarc_writer_options *options, const uint64_t *ends,
                            kvi_keep_fn keep, void *opaque)
{
	struct keeping k = {
		.r = r, .alloc = kvi_reader_alloc(r), .ends = ends, .keep = keep, .opaque = opaque
	};
	if (kvi_reader_index(r)->forked)
		return kvi_reader_fail(r, KVARC_OPTIONS,
		                       "the archive has forks of tracks, which no store has made");
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
	kvarc_range range;           /* range of the reader, made exact */
	uint32_t track;              /* track of the writer */
	const kvarc_tensor *tensors; /* tensors of the writer */
	size_t n_tensors;
	const uint32_t *source;  /* by tensor of the writer: the reader's tensor */
	const uint32_t *to_of;   /* by tensor of the reader: the writer's, or COPY_OUT */
	uint32_t segment_tokens; /* from the writer's options */
	bool short_segments;     /* several segments may lie in one of the writer */

	const struct kvi_alloc *alloc;
	kvarc_view *views; /* by tensor of the reader, all NULL */
	uint32_t batch;    /* tokens that are appended at once */
	/* All tensors of a batch, so that each is decoded once, where blocks need others to be
	 * decoded, or lie in several segments. */
	uint8_t *ahead; /* NULL: each block is read when it is asked for */
	uint64_t ahead_t0;
	bool ids;
	struct segment_copy *copy; /* copies segments with lossy chunks; NULL: in salvage */
	int32_t *tokens;           /* ids, then positions, of a batch */
	kvarc_ret failed;          /* failure of the reader, in fetch */
	kvarc_error error;         /* error of that failure */
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
static kvarc_ret read_block(struct range_transfer *transfer, uint32_t tensor, uint64_t t0,
                            uint32_t n, void *dst)
{
	const kvarc_tensor *t = &transfer->tensors[tensor];
	kvarc_range range = { .track = transfer->range.track,
		              .layer0 = t->layer,
		              .n_layers = 1,
		              .t0 = transfer->range.t0 + t0,
		              .n = n };
	uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
	uint32_t width = kvi_tensor_width(t);
	kvarc_view *view = &transfer->views[transfer->source[tensor]];
	*view = (kvarc_view){ .data = dst,
		              .token_stride = (uint64_t)width * es,
		              .block_elems = width,
		              .elem_stride = es };
	kvarc_ret ret = kvarc_reader_read(transfer->r, &range, transfer->views);
	view->data = NULL;
	return ret;
}

/* As read_block, for a part of the heads. */
static kvarc_ret read_heads(struct range_transfer *transfer, uint32_t tensor, uint32_t head,
                            uint32_t heads, uint64_t t0, uint32_t n, uint8_t *dst)
{
	const kvarc_tensor *t = &transfer->tensors[tensor];
	size_t row = kvi_tensor_bytes(t), one = row / t->heads;
	uint8_t *all = kvi_array(transfer->alloc, n, row);
	if (!all)
		return kvi_reader_fail(transfer->r, kvi_alloc_error(transfer->alloc),
		                       "not enough memory for a block");
	kvarc_ret ret = read_block(transfer, tensor, t0, n, all);
	for (uint32_t i = 0; i < n && !ret; i++)
		memcpy(dst + i * heads * one, all + i * row + head * one, heads * one);
	kvi_free(transfer->alloc, all);
	return ret;
}

/* Whether a tensor of the writer is among those of the transfer. */
static bool has(const struct range_transfer *transfer, size_t tensor)
{
	return transfer->tensors[tensor].track == transfer->track;
}

/* Allocates a buffer for a batch where blocks are decoded from others, or lie in a store, which is
 * asked for whole segments. Without that memory they are read one by one, which is only slower. */
static void plan_ahead(struct range_transfer *transfer)
{
	uint32_t n = transfer->segment_tokens ? transfer->segment_tokens : KVI_SEGMENT_TOKENS;
	kvarc_predictor_info p;
	kvarc_info info = { .stored_tokens = 0 };
	uint64_t row = 0;
	transfer->batch = BATCH_TOKENS / n * n;
	(void)kvarc_reader_get_info(transfer->r, &info);
	if (!transfer->short_segments && !info.stored_tokens &&
	    kvarc_reader_predictor(transfer->r, 0, &p) != KVARC_OK)
		return;
	for (size_t i = 0; i < transfer->n_tensors; i++)
		row += has(transfer, i) ? kvi_tensor_bytes(&transfer->tensors[i]) : 0;
	if (!row)
		return;
	uint64_t segments = AHEAD_BYTES / (row * n);
	uint32_t batch = n * (uint32_t)(segments < 1 ? 1 : segments);
	batch = batch < transfer->batch ? batch : transfer->batch;
	batch = batch < transfer->range.n ? batch : (uint32_t)transfer->range.n;
	transfer->ahead = kvi_array(transfer->alloc, batch, (size_t)row);
	if (transfer->ahead)
		transfer->batch = batch;
}

static void drop_ahead(struct range_transfer *transfer)
{
	kvi_free(transfer->alloc, transfer->ahead);
	transfer->ahead = NULL;
	memset(transfer->views, 0,
	       kvarc_reader_geometry(transfer->r)->n_tensors * sizeof *transfer->views);
}

/* Reads a batch of all tensors; they lie there one after another. */
static kvarc_ret read_ahead(struct range_transfer *transfer, uint64_t t0, uint32_t n)
{
	kvarc_range range = transfer->range;
	uint8_t *at = transfer->ahead;
	for (size_t i = 0; i < transfer->n_tensors; i++) {
		const kvarc_tensor *t = &transfer->tensors[i];
		uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
		uint32_t width = kvi_tensor_width(t);
		if (!has(transfer, i))
			continue;
		transfer->views[transfer->source[i]] =
			(kvarc_view){ .data = at,
			              .token_stride = (uint64_t)width * es,
			              .block_elems = width,
			              .elem_stride = es };
		at += (size_t)transfer->batch * width * es;
	}
	range.t0 += t0;
	range.n = n;
	transfer->ahead_t0 = t0;
	kvarc_ret ret = kvarc_reader_read(transfer->r, &range, transfer->views);
	if (ret != KVARC_MEMLIMIT)
		return ret;
	drop_ahead(transfer); /* decoding needs the memory */
	return KVARC_OK;
}

static void take_ahead(const struct range_transfer *transfer, uint32_t tensor, uint32_t head,
                       uint32_t heads, uint64_t t0, uint32_t n, uint8_t *dst)
{
	const kvarc_view *v = &transfer->views[transfer->source[tensor]];
	const kvarc_tensor *t = &transfer->tensors[tensor];
	size_t one = (size_t)v->token_stride / t->heads;
	const uint8_t *from = (const uint8_t *)v->data + head * one +
	                      (t0 - transfer->ahead_t0) * v->token_stride;
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
		c->error = *e; /* the writer reports through its own error, maybe the same one */
	pthread_mutex_unlock(&c->lock);
	return ret != KVARC_OK;
}

/* Tokens of the range, to transfer->tokens. */
static kvarc_ret read_range_tokens(struct range_transfer *transfer, uint64_t at, uint32_t n)
{
	return kvarc_reader_read_tokens(transfer->r, transfer->range.track, transfer->range.t0 + at,
	                                n, transfer->ids ? transfer->tokens : NULL,
	                                transfer->tokens + BATCH_TOKENS);
}

/* Tokens at .. end - 1 of the range, decoded and coded again. */
static kvarc_ret code_tokens(struct range_transfer *transfer, uint64_t at, uint64_t end)
{
	kvarc_ret ret = KVARC_OK;
	while (at < end && !ret) {
		uint64_t left = end - at;
		uint32_t n = left < transfer->batch ? (uint32_t)left : transfer->batch;
		ret = read_range_tokens(transfer, at, n);
		if (!ret && transfer->ahead)
			ret = read_ahead(transfer, at, n);
		if (!ret)
			ret = kvarc_writer_append_fetch(transfer->w, transfer->track, n,
			                                transfer->ids ? transfer->tokens : NULL,
			                                transfer->tokens + BATCH_TOKENS, fetch,
			                                transfer);
		at += n;
	}
	return transfer->failed ? transfer->failed : ret;
}

/* The next segment at or behind token `at` of the range that can be copied as it is. */
static struct copy_found next_copied(struct range_transfer *transfer, uint64_t at, uint64_t end)
{
	struct copy_found f = { 0 };
	uint64_t from = transfer->range.t0 + at;
	end += transfer->range.t0;
	while (transfer->copy && (f = copy_find(transfer->copy, from, end)).n && !f.copied &&
	       !f.ret)
		from = f.t0 + f.n;
	return f;
}

/* Checks that tokens of lossy chunks are copied or left, unless the reader may decode them. */
static kvarc_ret check_lossy(struct range_transfer *transfer, uint64_t at, uint64_t end)
{
	at += transfer->range.t0;
	end += transfer->range.t0;
	if (!transfer->copy || kvi_reader_allows_lossy(transfer->r))
		return KVARC_OK;
	for (;;) {
		struct copy_found f = copy_find(transfer->copy, at, end);
		if (!f.n || f.ret)
			return f.ret;
		at = f.t0 + f.n;
		if (f.copied)
			continue;
		bool parted = f.t0 < transfer->range.t0 || at > end;
		return kvi_reader_fail(transfer->r, KVARC_LOSSY,
		                       parted ? "a lossy tier changed tokens %llu to %llu "
		                                "as one: cut before or behind them"
		                              : "tokens %llu to %llu were changed by a lossy tier",
		                       (unsigned long long)f.t0, (unsigned long long)at - 1);
	}
}

/* Tokens at .. end - 1 of the range, of which the writer's track has the first `at`. ids: they have
 * token ids. Returns what readers and writers return; LOSSY: a lossy tier changed tokens that
 * cannot be copied as they are, and the reader does not allow that. */
static kvarc_ret transfer_tokens(struct range_transfer *transfer, uint64_t at, uint64_t end,
                                 bool ids)
{
	kvarc_ret ret = check_lossy(transfer, at, end);
	transfer->ids = ids;
	while (!ret && at < end) {
		struct copy_found f = next_copied(transfer, at, end);
		ret = f.ret;
		if (!ret)
			ret = code_tokens(transfer, at, f.n ? f.t0 - transfer->range.t0 : end);
		at = f.n ? f.t0 + f.n - transfer->range.t0 : end;
		if (!f.n || ret)
			continue;
		ret = read_range_tokens(transfer, f.t0 - transfer->range.t0, (uint32_t)f.n);
		if (!ret)
			ret = copy_segment(transfer->copy, &f,
			                   transfer->ids ? transfer->tokens : NULL,
			                   transfer->tokens + BATCH_TOKENS);
	}
	return ret;
}

/* Makes memory, and a copy of segments if it is needed. transfer_end follows, also after a failure.
 * Returns OK, MEM, MEMLIMIT, and what opening a reader does. */
static kvarc_ret transfer_begin(struct range_transfer *transfer)
{
	pthread_mutex_init(&transfer->lock, NULL);
	transfer->alloc = kvi_reader_alloc(transfer->r);
	transfer->views = kvi_calloc(transfer->alloc,
	                             kvarc_reader_geometry(transfer->r)->n_tensors + 1,
	                             sizeof *transfer->views);
	transfer->tokens = kvi_array(transfer->alloc, 2 * (size_t)BATCH_TOKENS,
	                             sizeof *transfer->tokens);
	if (!transfer->views || !transfer->tokens)
		return kvi_reader_fail(transfer->r, kvi_alloc_error(transfer->alloc),
		                       "not enough memory for the tokens");
	plan_ahead(transfer);
	return kvi_reader_is_salvage(transfer->r)
	               ? KVARC_OK
	               : copy_open(&transfer->copy, transfer->r, transfer->w, transfer->range.track,
	                           transfer->track, transfer->to_of);
}

/* Frees what begin made; the reader's kvarc_error is filled where fetch failed. */
static void transfer_end(struct range_transfer *transfer)
{
	if (!transfer->alloc)
		return;
	if (transfer->failed && kvi_reader_error(transfer->r))
		*kvi_reader_error(transfer->r) = transfer->error;
	copy_close(transfer->copy);
	kvi_free(transfer->alloc, transfer->tokens);
	kvi_free(transfer->alloc, transfer->views);
	kvi_free(transfer->alloc, transfer->ahead);
	pthread_mutex_destroy(&transfer->lock);
	*transfer = (struct range_transfer){ 0 };
}

/* ==== Part of an archive as a new archive ==== */

/* The range that is cut, and the geometry of the new archive. */
struct cutting {
	kvarc_reader *r;
	kvarc_writer *w;
	const struct kvi_alloc *alloc;
	kvarc_range range;
	const kvarc_geometry *from;
	kvarc_geometry to;
	kvarc_tensor *tensors; /* tensors of `to` */
	uint32_t *source;      /* by tensor of `to`: the one of `from` */
	uint32_t *to_of;       /* by tensor of `from`: the one of `to` */
	uint32_t segment_tokens;
};

/* The tensors of the range, on one track; RoPEs stay as they are numbered. */
static kvarc_ret make_geometry(struct cutting *cutting)
{
	size_t n = 0;
	cutting->tensors = kvi_array(cutting->alloc, cutting->from->n_tensors + 1,
	                             sizeof *cutting->tensors);
	cutting->source = kvi_array(cutting->alloc, cutting->from->n_tensors + 1,
	                            sizeof *cutting->source);
	cutting->to_of = kvi_array(cutting->alloc, cutting->from->n_tensors + 1,
	                           sizeof *cutting->to_of);
	if (!cutting->tensors || !cutting->source || !cutting->to_of)
		return kvi_reader_fail(cutting->r, kvi_alloc_error(cutting->alloc),
		                       "not enough memory for the geometry");
	for (uint32_t i = 0; i < cutting->from->n_tensors; i++) {
		cutting->to_of[i] = COPY_OUT;
		if (!kvi_range_has(&cutting->range, &cutting->from->tensors[i]))
			continue;
		cutting->to_of[i] = (uint32_t)n;
		cutting->tensors[n] = cutting->from->tensors[i];
		cutting->tensors[n].track = 0;
		cutting->source[n++] = i;
	}
	if (n == 0)
		return kvi_reader_fail(cutting->r, KVARC_GEOMETRY, "no tensors in this range");
	cutting->to = *cutting->from;
	cutting->to.n_tracks = 1;
	cutting->to.tracks = &cutting->from->tracks[cutting->range.track];
	cutting->to.n_tensors = n;
	cutting->to.tensors = cutting->tensors;
	return KVARC_OK;
}

/* Copies all pairs, and adds what a llama.cpp file has beside tensors, as it is not copied. */
static kvarc_ret copy_identity(struct cutting *cutting)
{
	char text[KVI_LLAMA_PAIR_BYTES];
	kvarc_ret ret = kvi_llama_describe_track(cutting->r, cutting->range.track, text);
	if (ret && ret != KVARC_END)
		return kvi_reader_fail(cutting->r, ret, "not enough memory for the identity");
	return transfer_identity(cutting->r, cutting->w, ret ? NULL : KVI_LLAMA_PAIR, text);
}

static kvarc_ret write_cut(struct cutting *cutting)
{
	struct range_transfer t = { .r = cutting->r,
		                    .w = cutting->w,
		                    .range = cutting->range,
		                    .tensors = cutting->tensors,
		                    .n_tensors = cutting->to.n_tensors,
		                    .source = cutting->source,
		                    .to_of = cutting->to_of,
		                    .segment_tokens = cutting->segment_tokens };
	bool ids;
	kvarc_ret ret = kvi_range_has_ids(cutting->r, &cutting->range, &ids);
	if (!ret)
		ret = kvarc_writer_set_geometry(cutting->w, &cutting->to);
	if (!ret)
		ret = copy_identity(cutting);
	if (!ret)
		ret = transfer_begin(&t);
	if (!ret)
		ret = transfer_tokens(&t, 0, cutting->range.n, ids);
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
	ret = kvi_range_resolve(r, &c.range);
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
	bool forks;     /* the writer may fork tracks */
	bool *repeated; /* by segment: it stays as it is, so that it repeats, or is repeated */
	struct kvi_order order;
	struct kvi_literals literals;
	/* BLOB content that is being filled. */
	struct kvi_out blob;
	uint64_t item, item_bytes; /* item_bytes: literal bytes of it before the BLOB */
	size_t blob_bytes;
};

static kvarc_ret no_memory(const struct compacting *compacting)
{
	return kvi_reader_fail(compacting->r, kvi_alloc_error(compacting->alloc),
	                       "not enough memory to compact the archive");
}

/* ----- items ----------------------------------------------------------- */

static bool is_literal(const struct kvi_piece *piece)
{
	return piece->type != KVI_PIECE_AREA;
}

/* Writes RESTORE: references become literal pieces, of which neighbours are joined. */
static kvarc_ret put_restore(struct compacting *compacting, const struct kvi_restore *from)
{
	struct kvi_restore to = *from;
	struct kvi_out out;
	to.n_pieces = 0;
	to.pieces = kvi_array(compacting->alloc, from->n_pieces + 1, sizeof *to.pieces);
	if (!to.pieces)
		return no_memory(compacting);
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
	kvi_out_init(&out, compacting->alloc);
	kvi_restore_put(&out, &to);
	kvarc_ret ret = out.failed ? no_memory(compacting)
	                           : kvi_writer_frame(compacting->w, KVI_FRAME_RESTORE, out.p,
	                                              out.n, true);
	kvi_out_free(&out);
	kvi_free(compacting->alloc, to.pieces);
	return ret;
}

static kvarc_ret put_blob(struct compacting *compacting)
{
	kvarc_ret ret = compacting->blob_bytes
	                        ? kvi_writer_frame(compacting->w, KVI_FRAME_BLOB,
	                                           compacting->blob.p, compacting->blob.n, true)
	                        : KVARC_OK;
	compacting->item_bytes += compacting->blob_bytes;
	compacting->blob_bytes = 0;
	compacting->blob.n = 0;
	return ret;
}

/* Copies literal bytes of an item of the reader into the current item. */
static kvarc_ret put_bytes(struct compacting *compacting, uint64_t item, uint64_t from,
                           uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t left = KVI_BLOB_BYTES - compacting->blob_bytes;
		size_t n = bytes < left ? (size_t)bytes : left;
		if (!compacting->blob_bytes)
			kvi_blob_put_head(&compacting->blob, compacting->item,
			                  compacting->item_bytes);
		uint8_t *to = kvi_out_reserve(&compacting->blob, n);
		if (!to)
			return no_memory(compacting);
		ret = kvi_literals_read(&compacting->literals, item, from, n, to);
		compacting->blob.n += n;
		compacting->blob_bytes += n;
		from += n;
		bytes -= n;
		if (!ret && compacting->blob_bytes == KVI_BLOB_BYTES)
			ret = put_blob(compacting);
	}
	return ret;
}

static kvarc_ret put_literals(struct compacting *compacting, size_t i)
{
	const struct kvi_restore *x = kvi_reader_restore(compacting->r, i);
	const uint64_t number = kvi_reader_earlier_items(compacting->r) + i;
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	compacting->item = i;
	compacting->item_bytes = 0;
	for (size_t k = 0; k < x->n_pieces && !ret; k++) {
		const struct kvi_piece *p = &x->pieces[k];
		if (p->type == KVI_PIECE_REFERENCE)
			ret = put_bytes(compacting, p->item, p->from, p->bytes);
		else if (p->type == KVI_PIECE_LITERAL)
			ret = put_bytes(compacting, number, at, p->bytes);
		at += p->type == KVI_PIECE_LITERAL ? p->bytes : 0;
	}
	return ret ? ret : put_blob(compacting);
}

/* The tokens of all areas are there, as in an archive that is not cut. */
static kvarc_ret check_areas(struct compacting *compacting)
{
	for (size_t i = 0; i < kvi_reader_n_items(compacting->r); i++) {
		const struct kvi_restore *x = kvi_reader_restore(compacting->r, i);
		for (size_t k = 0; k < x->n_pieces; k++) {
			const struct kvi_piece *p = &x->pieces[k];
			uint64_t n = p->type == KVI_PIECE_AREA
			                     ? kvarc_reader_tokens(compacting->r, p->track)
			                     : UINT64_MAX;
			if (p->t0 > n || p->n_tokens > n - p->t0)
				return kvi_reader_fail(compacting->r, KVARC_DATA,
				                       "packed files need tokens that are not "
				                       "in the archive: it was cut");
		}
	}
	return KVARC_OK;
}

static kvarc_ret put_items(struct compacting *compacting)
{
	const size_t n = kvi_reader_n_items(compacting->r);
	kvarc_ret ret = check_areas(compacting);
	if (!ret && n)
		ret = kvi_literals_open(&compacting->literals, compacting->r);
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_restore(compacting, kvi_reader_restore(compacting->r, i));
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_literals(compacting, i);
	return ret;
}

/* ----- tokens ----------------------------------------------------------- */

/* Tokens of a track that become segments together: all have ids, or none. */
struct id_run {
	uint64_t end; /* tokens of the track up to its end */
	bool ids;
};

/* The next run of tokens of a track from `at` on; a segment that is repeated is one alone. */
static kvarc_ret next_run(struct compacting *compacting, uint32_t track, uint64_t at, size_t *i,
                          struct kvi_segment *segment, struct id_run *run)
{
	const struct kvi_list *l = &kvi_reader_index(compacting->r)->segments;
	*run = (struct id_run){ at, false };
	for (; *i < l->n; ++*i) {
		const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, *l, *i);
		if (ref->track != track || ref->t0 + ref->left <= at)
			continue;
		kvarc_ret ret = kvi_reader_segment(compacting->r, ref, segment);
		if (ret)
			return kvi_reader_set_error(compacting->r, ret);
		const bool ids = segment->has_ids || segment->coded;
		if (run->end > at && (ids != run->ids || compacting->repeated[*i]))
			break;
		*run = (struct id_run){ ref->t0 + ref->left, ids };
		if (compacting->repeated[*i])
			break;
	}
	return KVARC_OK;
}

/* The first segment of a track in the last state (segment NULL), or the next one. NULL: there is
 * none. */
static const struct kvi_segment_ref *state_next(const struct kvi_reader_index *index,
                                                uint32_t track,
                                                const struct kvi_segment_ref *segment)
{
	const struct kvi_list *l = &index->segments;
	size_t i = segment ? (size_t)(segment - KVI_LIST(struct kvi_segment_ref, *l, 0)) + 1 : 0;
	for (; i < l->n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (s->track == track && s->left)
			return s;
	}
	return NULL;
}

/* Number of leading tokens of a track, up to the end of a segment, that another one has, too. */
static uint64_t common(const struct kvi_reader_index *index, uint32_t track, uint32_t other)
{
	const struct kvi_segment_ref *list = KVI_LIST(struct kvi_segment_ref, index->segments, 0);
	const struct kvi_segment_ref *s = NULL, *o = NULL;
	uint64_t n = 0;
	while ((s = state_next(index, track, s)) && (o = state_next(index, other, o))) {
		const uint64_t of_s = s->origin ? s->origin : (uint64_t)(s - list) + 1;
		const uint64_t of_o = o->origin ? o->origin : (uint64_t)(o - list) + 1;
		if (of_s != of_o || o->left < s->left)
			break;
		n = s->t0 + s->left;
		if (o->left != s->left)
			break;
	}
	return n;
}

/* Forks a track of one that was written before it, where they share segments; *n: the tokens that
 * it has then. */
static kvarc_ret put_fork(struct compacting *compacting, uint32_t track, uint64_t *n)
{
	enum { LOOKS = 64 }; /* tracks that are looked at, each of which takes a pass of the list */
	const struct kvi_reader_index *x = kvi_reader_index(compacting->r);
	uint32_t from = 0;
	*n = 0;
	if (!x->forked || !compacting->forks)
		return KVARC_OK;
	for (uint32_t i = track > LOOKS ? track - LOOKS : 0; i < track; i++) {
		uint64_t m = kvi_fork_fits(compacting->geometry, &compacting->order, track, i)
		                     ? common(x, track, i)
		                     : 0;
		from = m > *n ? i : from;
		*n = m > *n ? m : *n;
	}
	return *n ? kvarc_writer_fork(compacting->w, track, from, *n) : KVARC_OK;
}

static kvarc_ret put_runs(struct compacting *compacting, struct range_transfer *transfer,
                          struct kvi_segment *segment)
{
	struct id_run run;
	size_t i = 0;
	uint64_t forked;
	kvarc_ret ret = put_fork(compacting, transfer->track, &forked);
	for (uint64_t at = forked; at < transfer->range.n && !ret; at = run.end) {
		ret = next_run(compacting, transfer->track, at, &i, segment, &run);
		if (!ret)
			ret = transfer_tokens(transfer, at, run.end, run.ids);
	}
	return ret;
}

static kvarc_ret put_track(struct compacting *compacting, uint32_t track)
{
	struct range_transfer t = { .r = compacting->r,
		                    .w = compacting->w,
		                    .range = KVARC_RANGE_ALL(track),
		                    .track = track,
		                    .tensors = compacting->geometry->tensors,
		                    .n_tensors = compacting->geometry->n_tensors,
		                    .source = compacting->same,
		                    .to_of = compacting->same,
		                    .segment_tokens = compacting->segment_tokens,
		                    .short_segments = true };
	t.range.n = kvarc_reader_tokens(compacting->r, track);
	if (!t.range.n)
		return KVARC_OK;
	struct kvi_segment *s = kvi_malloc(compacting->alloc, sizeof *s);
	kvarc_ret ret = s ? transfer_begin(&t) : no_memory(compacting);
	if (!ret)
		ret = put_runs(compacting, &t, s);
	transfer_end(&t);
	kvi_free(compacting->alloc, s);
	return ret;
}

static kvarc_ret write_compact(struct compacting *compacting)
{
	kvarc_ret ret = kvarc_writer_set_geometry(compacting->w, compacting->geometry);
	if (!ret && kvi_order_make(&compacting->order, compacting->alloc, compacting->geometry))
		ret = no_memory(compacting);
	if (!ret)
		ret = transfer_identity(compacting->r, compacting->w, NULL, NULL);
	if (!ret)
		ret = put_items(compacting);
	if (!ret)
		ret = kvi_mark_repeated(compacting->r, compacting->repeated);
	for (uint32_t i = 0; i < compacting->geometry->n_tracks && !ret; i++)
		ret = put_track(compacting, i);
	return ret;
}

/* ----- all of it -------------------------------------------------------- */

static kvarc_ret check(const kvarc_reader *r, const kvarc_writer_options *options)
{
	kvarc_error *e = kvi_reader_error(r);
	kvarc_info info = { .state = KVARC_STATE_UNKNOWN };
	if (!kvi_reader_can_seek(r))
		return kvi_reason(e, KVARC_REASON_NEEDS_SEEK,
		                  kvi_fail(e, KVARC_OPTIONS,
		                           "kvarc_compact needs a source that can seek, not a "
		                           "pipe"));
	if (kvi_reader_is_salvage(r) || kvi_reader_started(r))
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_compact takes a reader without KVARC_READ_SALVAGE, before "
		                "segments are read");
	(void)kvarc_reader_get_info(r, &info);
	if (info.state == KVARC_STATE_DAMAGED)
		return kvi_reason(e, KVARC_REASON_SALVAGE,
		                  kvi_fail(e, KVARC_DATA,
		                           "the archive is damaged behind its last commit: salvage "
		                           "it"));
	if (options && options->lossy)
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
	/* Else what is shared is decoded and coded again. */
	c.forks = !options ||
	          (options->level < KVI_LEVEL_MODEL && !(options->flags & KVARC_WRITE_STREAMABLE));
	c.same = kvi_array(c.alloc, c.geometry->n_tensors + 1, sizeof *c.same);
	for (uint32_t i = 0; c.same && i < c.geometry->n_tensors; i++)
		c.same[i] = i;
	c.repeated = kvi_calloc(c.alloc, kvi_reader_index(r)->segments.n + 1, sizeof *c.repeated);
	ret = c.same && c.repeated ? kvarc_writer_open(&c.w, &counting, options) : no_memory(&c);
	if (!ret)
		ret = write_compact(&c);
	ret = kvi_counted_close(&counted, &c.w, ret, stats);
	kvi_literals_free(&c.literals);
	kvi_out_free(&c.blob);
	kvi_order_free(&c.order, c.alloc);
	kvi_free(c.alloc, c.same);
	kvi_free(c.alloc, c.repeated);
	return ret;
}
