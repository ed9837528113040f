/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_walk.c - the grammar of a file, frame by frame */
#include "frame_walk.h"

#include "codec_ids.h"
#include "commit.h"
#include "predictor_frame.h"
#include "restore.h"
#include "storeref.h"
#include "superblock.h"

void kvi_walk_init(struct kvi_walk *w, const struct kvi_input *in, struct kvi_packer *packer)
{
	*w = (struct kvi_walk){ .own = *in, .packer = packer, .offset = KVI_SUPERBLOCK_BYTES };
	w->in = &w->own;
}

void kvi_walk_all(struct kvi_walk *w)
{
	if (kvi_input_seekable(w->in))
		w->own.window = &w->window;
}

void kvi_walk_free(struct kvi_walk *w)
{
	if (!w->in)
		return;
	kvi_free(w->in->alloc, w->window.buffer.p);
	kvi_free(w->in->alloc, w->buffer.p);
	kvi_free(w->in->alloc, w->owned);
	kvi_free(w->in->alloc, w->tokens);
	kvi_free(w->in->alloc, w->committed);
	kvi_free(w->in->alloc, w->stored.p);
	*w = (struct kvi_walk){ 0 };
}

kvarc_ret kvi_walk_geometry(struct kvi_walk *w, const kvarc_geometry *geometry,
                            const struct kvi_order *order, kvarc_error *e)
{
	const struct kvi_alloc *alloc = w->in->alloc;
	w->geometry = geometry;
	w->order = order;
	w->tokens = kvi_calloc(alloc, geometry->n_tracks, sizeof(uint64_t));
	w->committed = kvi_calloc(alloc, geometry->n_tracks, sizeof(uint64_t));
	return w->tokens && w->committed ? KVARC_OK : kvi_fail_alloc(e, alloc);
}

kvarc_ret kvi_frame_meaning(const struct kvi_frame *f, kvarc_error *e)
{
	/* The feature bit is set, and its fields were looked at. */
	if (f->of_encrypted && f->head.type == KVI_FRAME_KEY)
		return KVARC_OK;
	kvarc_ret ret = kvi_frame_head_check(&f->head);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, ret, f->offset, f->head.sequence,
		                    "frame %llu at offset %llu has type %u, which needs a newer "
		                    "version of kvarc",
		                    (unsigned long long)f->head.sequence,
		                    (unsigned long long)f->offset, (unsigned)f->head.type));
	return ret ? kvi_frame_bad(f, e, "type, flags or sizes") : KVARC_OK;
}

static bool is_packed(uint16_t type)
{
	return type != KVI_FRAME_CHUNK && type != KVI_FRAME_COMMIT && type != KVI_FRAME_FOOTER &&
	       kvi_frame_known(type);
}

kvarc_ret kvi_chunk_check(const kvarc_geometry *g, const struct kvi_chunk_header *h,
                          const struct kvi_frame *f, kvarc_error *e)
{
	if (h->tensor >= g->n_tensors)
		return kvi_frame_bad(f, e, "its tensor does not exist");
	const kvarc_tensor *t = &g->tensors[h->tensor];
	if ((uint32_t)h->head + h->heads > t->heads)
		return kvi_frame_bad(f, e, "its heads do not exist");
	uint64_t bytes = (uint64_t)h->n * h->heads * t->channels * kvarc_dtype_bytes(t->dtype);
	if (bytes != f->head.decoded_bytes)
		return kvi_frame_bad(f, e, "decoded_bytes does not fit its shape");
	if (!kvi_codec_name(h->codec))
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, KVARC_OPTIONS, f->offset, f->head.sequence,
		                    "frame %llu at offset %llu uses codec %u, which needs a newer "
		                    "version of kvarc",
		                    (unsigned long long)f->head.sequence,
		                    (unsigned long long)f->offset, (unsigned)h->codec));
	bool params = kvi_codec_has_params(h->codec) || kvi_codec_predicts(h->codec);
	if (params ? h->params == 0 || h->params >= f->head.sequence : h->params != 0)
		return kvi_frame_bad(f, e, "its PARAMS do not fit its codec");
	if (!kvi_codec_has_streams(h->codec) &&
	    (h->cut.section_bytes ||
	     (h->cut.stream_size != KVI_ONE_STREAM && h->codec != KVI_CODEC_REPEAT)))
		return kvi_frame_bad(f, e, "its streams do not fit its codec");
	if (kvi_codec_predicts(h->codec) && h->heads != t->heads)
		return kvi_frame_bad(f, e, "its heads do not fit its codec");
	return KVARC_OK;
}

kvarc_ret kvi_params_check(const kvarc_geometry *g, const struct kvi_params_header *h,
                           const struct kvi_frame *f, kvarc_error *e)
{
	if (h->tensor >= g->n_tensors || (uint32_t)h->head + h->heads > g->tensors[h->tensor].heads)
		return kvi_frame_bad(f, e, "its tensor or heads do not exist");
	if (!kvi_codec_name(h->codec))
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, KVARC_OPTIONS, f->offset, f->head.sequence,
		                    "frame %llu at offset %llu has parameters of codec %u, which "
		                    "needs a newer version of kvarc",
		                    (unsigned long long)f->head.sequence,
		                    (unsigned long long)f->offset, (unsigned)h->codec));
	return kvi_codec_has_params(h->codec) ? KVARC_OK
	                                      : kvi_frame_bad(f, e, "its codec has no parameters");
}

/* One frame's part in the INDEX, folded; the copied frame's number is not
 * known when a PARAMS frame passes, and is left out. */
static void list(struct kvi_h128 *c, const struct kvi_index_entry *e)
{
	uint8_t b[75];
	b[0] = e->type;
	b[1] = e->codec;
	kvi_store32(b + 2, e->tensor);
	kvi_store32(b + 6, e->n);
	kvi_store16(b + 10, e->head);
	kvi_store16(b + 12, e->heads);
	kvi_store64(b + 14, e->offset);
	kvi_store64(b + 22, e->sequence);
	kvi_store64(b + 30, e->segment);
	kvi_store64(b + 38, e->type == KVI_FRAME_PARAMS ? 0 : e->params);
	kvi_store32(b + 46, 0);
	b[50] = e->has_chain;
	kvi_store_h128(b + 51, e->chain);
	kvi_store64(b + 67, e->number);
	*c = kvi_h128_fold(*c, b, sizeof b);
}

static kvarc_ret on_params(struct kvi_walk *w, kvarc_error *e)
{
	const struct kvi_params_header *h = &w->params;
	if (!kvi_params_header_parse(&w->params, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, e, "it is too short");
	w->entry.tensor = h->tensor;
	w->entry.head = h->head;
	w->entry.heads = h->heads;
	w->entry.codec = h->codec;
	return kvi_params_check(w->geometry, h, &w->frame, e);
}

/* The first token of a SEGMENT or STOREREF. */
static kvarc_ret check_t0(const struct kvi_walk *w, uint32_t track, uint64_t t0, kvarc_error *e)
{
	if (track >= w->geometry->n_tracks || t0 > w->tokens[track] || t0 > UINT32_MAX)
		return kvi_frame_bad(&w->frame, e, "its track or first token");
	if (t0 != w->tokens[track] && !kvi_input_seekable(w->in))
		return kvi_reason(
			e, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(e, KVARC_OPTIONS, w->frame.offset, w->frame.head.sequence,
		                    "frame %llu replaces earlier tokens: the file needs a source "
		                    "that can seek",
		                    (unsigned long long)w->frame.head.sequence));
	return KVARC_OK;
}

/* All of its segments, as if the first ones had a COMMIT each (spec frames 12.3). */
static kvarc_ret on_storeref(struct kvi_walk *w, kvarc_error *e)
{
	if (!w->in->stored)
		return kvi_frame_bad(&w->frame, e, "the superblock says that there are none");
	if (w->in_segment)
		return kvi_frame_bad(&w->frame, e, "the segment before has no COMMIT");
	kvarc_ret ret = kvi_storeref_parse(&w->stored, w->in->alloc, w->geometry, w->order,
	                                   w->content, w->content_bytes);
	if (ret)
		return ret == KVARC_DATA ? kvi_frame_bad(&w->frame, e, "its fields")
		                         : kvi_fail_alloc(e, w->in->alloc);
	const kvarc_stored *first = KVI_LIST(kvarc_stored, w->stored, 0);
	const kvarc_stored *last = first + w->stored.n - 1;
	ret = check_t0(w, first->track, first->t0, e);
	if (ret)
		return ret;
	w->in_segment = true;
	w->segment_sequence = w->frame.head.sequence;
	w->segment_predictor = w->predictor;
	w->segment_guided = w->predictor_guides;
	w->segment.track = first->track;
	w->segment_end = last->t0 + last->n;
	w->entry.tensor = first->track;
	w->entry.segment = first->t0;
	w->entry.n = (uint32_t)(w->segment_end - first->t0);
	return KVARC_OK;
}

static kvarc_ret on_segment(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_segment *s = &w->segment;
	if (w->in_segment)
		return kvi_frame_bad(&w->frame, e, "the segment before has no COMMIT");
	if (!kvi_segment_parse(s, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, e, "its fields");
	kvarc_ret ret = check_t0(w, s->track, s->t0, e);
	if (ret)
		return ret;
	if (s->coded && !w->predictor_codes)
		return kvi_frame_bad(&w->frame, e,
		                     "its token ids are coded, and its PREDICTOR does not say so");
	w->in_segment = true;
	w->segment_sequence = w->frame.head.sequence;
	w->segment_predictor = w->predictor;
	w->segment_guided = w->predictor_guides;
	w->segment_end = s->t0 + s->n;
	kvi_order_begin(&w->chunks, w->order, s->track);
	w->entry.tensor = s->track;
	w->entry.segment = s->t0;
	w->entry.n = s->n;
	w->entry.has_chain = s->has_chain;
	w->entry.chain = s->chain;
	return KVARC_OK;
}

static kvarc_ret on_chunk(struct kvi_walk *w, kvarc_error *e)
{
	const struct kvi_chunk_header *h = &w->chunk;
	if (!kvi_chunk_header_parse(&w->chunk, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, e, "its header");
	if (!w->in_segment || kvi_order_done(&w->chunks) || h->segment != w->segment_sequence ||
	    h->n != w->segment.n || h->t0 != w->segment.t0)
		return kvi_frame_bad(&w->frame, e, "it does not fit its SEGMENT");
	kvarc_ret ret = kvi_chunk_check(w->geometry, h, &w->frame, e);
	if (ret)
		return ret;
	if (kvi_codec_predicts(h->codec) &&
	    (h->params != w->segment_predictor ||
	     kvi_codec_uses_prediction(h->codec) != w->segment_guided))
		return kvi_frame_bad(&w->frame, e, "it does not name the PREDICTOR of its segment");
	w->order_index = w->chunks.at;
	if (!kvi_order_next(&w->chunks, w->order, w->geometry, h->tensor, h->head, h->heads))
		return kvi_frame_bad(&w->frame, e, "it is not the next chunk of its segment");
	w->entry.tensor = h->tensor;
	w->entry.head = h->head;
	w->entry.heads = h->heads;
	w->entry.segment = h->segment;
	w->entry.params = h->params;
	return KVARC_OK;
}

/* Order alone (spec 3.4); what they say is the reader's. */
static kvarc_ret on_restore(struct kvi_walk *w, kvarc_error *e)
{
	if (w->in_segment)
		return kvi_frame_bad(&w->frame, e, "it stands in a segment");
	if (w->past_items && !kvi_input_seekable(w->in))
		return kvi_reason(
			e, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(e, KVARC_OPTIONS, w->frame.offset, w->frame.head.sequence,
		                    "frame %llu adds a file behind tokens: the archive needs a "
		                    "source that can seek",
		                    (unsigned long long)w->frame.head.sequence));
	w->n_items++;
	return KVARC_OK;
}

static kvarc_ret on_blob(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_blob b;
	if (!kvi_blob_parse(&b, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, e, "its fields");
	return b.item < w->n_items
	               ? KVARC_OK
	               : kvi_frame_bad(&w->frame, e, "its item does not come before it");
}

static kvarc_ret on_predictor(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_predictor p;
	kvarc_ret ret = kvi_predictor_parse(&p, w->in->alloc, w->content, w->content_bytes);
	if (ret == KVARC_DATA)
		return kvi_frame_bad(&w->frame, e, "its fields");
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, ret, w->frame.offset, w->frame.head.sequence,
		                    "the archive needs a predictor that a newer version of kvarc "
		                    "has"));
	if (ret)
		return kvi_fail_alloc(e, w->in->alloc);
	w->predictor = p.kind != KVI_PREDICTOR_NONE ? w->sequence : 0;
	w->predictor_guides = p.kind == KVI_PREDICTOR_MODEL;
	w->predictor_codes = p.codes_ids;
	w->profile_next = 0;
	w->profile_bytes = p.content_bytes;
	kvi_predictor_free(&p, w->in->alloc);
	return KVARC_OK;
}

static kvarc_ret on_profile(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_profile_part p;
	if (!kvi_profile_part_parse(&p, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, e, "its fields");
	if (p.offset != w->profile_next || p.bytes > w->profile_bytes - w->profile_next)
		return kvi_frame_bad(&w->frame, e, "it is not the next part of a profile");
	w->profile_next += p.bytes;
	return KVARC_OK;
}

static kvarc_ret on_commit(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_commit c;
	size_t n = w->geometry->n_tracks;
	if (w->in_segment && !kvi_order_done(&w->chunks))
		return kvi_frame_bad(&w->frame, e, "chunks of its segment are missing");
	if (w->in_segment)
		w->tokens[w->segment.track] = w->segment_end;
	w->in_segment = false;
	if (!kvi_commit_parse(&c, w->committed, n, w->content, w->content_bytes) ||
	    c.frames != w->sequence || c.offset != w->frame.offset)
		return kvi_frame_bad(&w->frame, e, "its fields");
	if (memcmp(w->committed, w->tokens, n * sizeof *w->tokens))
		return kvi_frame_bad(&w->frame, e, "its token counts");
	if (c.checkpoint.number && c.checkpoint.number <= w->checkpoint)
		return kvi_frame_bad(&w->frame, e, "the number of its checkpoint");
	if (c.checkpoint.number)
		w->checkpoint = c.checkpoint.number;
	w->entry.number = c.checkpoint.number;
	w->last_commit = w->frame.offset;
	w->commit_end = w->frame.offset + w->frame.bytes;
	return KVARC_OK;
}

static kvarc_ret on_index(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_index_reader r;
	struct kvi_index_entry entry;
	struct kvi_h128 c = { 0, 0 };
	uint64_t n = 0;
	if (!kvi_index_begin(&r, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, e, "its fields");
	while (kvi_index_next(&r, &entry)) {
		list(&c, &entry);
		n++;
	}
	if (!kvi_index_end(&r) || r.previous != w->last_index)
		return kvi_frame_bad(&w->frame, e, "its fields");
	if (n != w->n_listed || !kvi_h128_equal(c, w->listed))
		return kvi_frame_bad(&w->frame, e, "it does not list the frames before it");
	w->last_index = w->frame.offset;
	w->listed = (struct kvi_h128){ 0, 0 };
	w->n_listed = 0;
	return KVARC_OK;
}

static kvarc_ret on_footer(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_footer f;
	if (!kvi_footer_parse(&f, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, e, "its size");
	if (w->uncommitted || w->n_listed || f.index != w->last_index ||
	    f.commit != w->last_commit || f.frames != w->sequence)
		return kvi_frame_bad(&w->frame, e, "it does not fit the frames before");
	return KVARC_OK;
}

/* Whether a RESTORE may come behind a frame of this type on a pipe (spec 3.5). */
static bool before_items(uint16_t type)
{
	return !kvi_frame_counts(type) || type == KVI_FRAME_GEOMETRY ||
	       type == KVI_FRAME_IDENTITY || type == KVI_FRAME_PREDICTOR ||
	       type == KVI_FRAME_PROFILE || type == KVI_FRAME_RESTORE;
}

static kvarc_ret interpret(struct kvi_walk *w, kvarc_error *e)
{
	uint16_t type = w->frame.head.type;
	if (w->profile_next < w->profile_bytes && type != KVI_FRAME_PROFILE &&
	    kvi_frame_counts(type))
		return kvi_frame_bad(&w->frame, e, "PROFILE frames before it are missing");
	switch (type) {
	case KVI_FRAME_GEOMETRY:
		return w->begun ? kvi_frame_bad(&w->frame, e, "there is one already") : KVARC_OK;
	case KVI_FRAME_RESTORE:
		return on_restore(w, e);
	case KVI_FRAME_BLOB:
		return on_blob(w, e);
	case KVI_FRAME_PARAMS:
		return on_params(w, e);
	case KVI_FRAME_SEGMENT:
		return on_segment(w, e);
	case KVI_FRAME_STOREREF:
		return on_storeref(w, e);
	case KVI_FRAME_CHUNK:
		return on_chunk(w, e);
	case KVI_FRAME_PREDICTOR:
		return on_predictor(w, e);
	case KVI_FRAME_PROFILE:
		return on_profile(w, e);
	case KVI_FRAME_COMMIT:
		return on_commit(w, e);
	case KVI_FRAME_INDEX:
		return on_index(w, e);
	case KVI_FRAME_FOOTER:
		return on_footer(w, e);
	default:
		return KVARC_OK;
	}
}

static kvarc_ret get_content(struct kvi_walk *w, kvarc_error *e)
{
	const struct kvi_frame *f = &w->frame;
	w->content = f->payload;
	w->content_bytes = f->head.payload_bytes;
	if (is_packed(f->head.type)) {
		bool skims = w->skim && kvi_frame_skims(&f->head);
		w->content_bytes = f->head.decoded_bytes;
		w->content = w->head;
		if (skims)
			return kvi_frame_skim(w->packer, f, w->head, e);
		kvarc_ret ret = kvi_frame_spend(f, w->decode_left, e);
		return ret ? ret : kvi_frame_content(w->packer, f, &w->content, &w->owned, e);
	}
	if ((f->head.type == KVI_FRAME_COMMIT || f->head.type == KVI_FRAME_FOOTER) &&
	    f->head.decoded_bytes != f->head.payload_bytes)
		return kvi_frame_bad(f, e, "decoded_bytes");
	return KVARC_OK;
}

kvarc_ret kvi_walk_next(struct kvi_walk *w, kvarc_error *e)
{
	struct kvi_frame *f = &w->frame;
	kvi_free(w->in->alloc, w->owned);
	w->owned = NULL;
	kvarc_ret ret = kvi_frame_read(w->in, w->offset, &w->buffer, f, e);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(f, e);
	if (ret)
		return ret;
	if (f->head.sequence != w->sequence)
		return kvi_frame_bad(f, e, "frames are missing or repeated before it");
	if (!w->begun && f->head.type != KVI_FRAME_GEOMETRY && f->head.type != KVI_FRAME_KEY)
		return kvi_frame_bad(f, e, "the first frame must be GEOMETRY");
	w->entry = (struct kvi_index_entry){ .type = f->head.type > UINT8_MAX
		                                             ? 0
		                                             : (uint8_t)f->head.type,
		                             .offset = w->offset,
		                             .sequence = w->sequence };
	ret = get_content(w, e);
	if (ret == KVARC_OK)
		ret = interpret(w, e);
	if (ret)
		return ret;
	w->begun = w->begun || f->head.type == KVI_FRAME_GEOMETRY;
	w->past_items = w->past_items || !before_items(f->head.type);
	if (f->head.type != KVI_FRAME_INDEX && f->head.type != KVI_FRAME_FOOTER) {
		list(&w->listed, &w->entry);
		w->n_listed++;
	}
	if (kvi_frame_counts(f->head.type)) {
		w->last_type = f->head.type;
		w->uncommitted = f->head.type != KVI_FRAME_COMMIT &&
		                 f->head.type != KVI_FRAME_FOOTER;
	}
	w->offset += f->bytes;
	w->sequence++;
	return KVARC_OK;
}
