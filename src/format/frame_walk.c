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
                            const struct kvi_order *order, kvarc_error *error)
{
	const struct kvi_alloc *alloc = w->in->alloc;
	w->geometry = geometry;
	w->order = order;
	w->tokens = kvi_calloc(alloc, geometry->n_tracks, sizeof(uint64_t));
	w->committed = kvi_calloc(alloc, geometry->n_tracks, sizeof(uint64_t));
	return w->tokens && w->committed ? KVARC_OK : kvi_fail_alloc(error, alloc);
}

kvarc_ret kvi_frame_meaning(const struct kvi_frame *frame, kvarc_error *error)
{
	/* The feature bit is set, and its fields were looked at. */
	if (frame->of_encrypted && frame->head.type == KVI_FRAME_KEY)
		return KVARC_OK;
	kvarc_ret ret = kvi_frame_head_check(&frame->head);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, ret, frame->offset, frame->head.sequence,
		                    "frame %llu at offset %llu has type %u, which needs a newer "
		                    "version of kvarc",
		                    (unsigned long long)frame->head.sequence,
		                    (unsigned long long)frame->offset, (unsigned)frame->head.type));
	return ret ? kvi_frame_bad(frame, error, "type, flags or sizes") : KVARC_OK;
}

static bool is_packed(uint16_t type)
{
	return type != KVI_FRAME_CHUNK && type != KVI_FRAME_COMMIT && type != KVI_FRAME_FOOTER &&
	       kvi_frame_known(type);
}

kvarc_ret kvi_chunk_check(const kvarc_geometry *geometry, const struct kvi_chunk_header *header,
                          const struct kvi_frame *frame, kvarc_error *error)
{
	if (header->tensor >= geometry->n_tensors)
		return kvi_frame_bad(frame, error, "its tensor does not exist");
	const kvarc_tensor *t = &geometry->tensors[header->tensor];
	if ((uint32_t)header->head + header->heads > t->heads)
		return kvi_frame_bad(frame, error, "its heads do not exist");
	uint64_t bytes = (uint64_t)header->n * header->heads * t->channels *
	                 kvarc_dtype_bytes(t->dtype);
	if (bytes != frame->head.decoded_bytes)
		return kvi_frame_bad(frame, error, "decoded_bytes does not fit its shape");
	if (!kvi_codec_name(header->codec))
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, KVARC_OPTIONS, frame->offset, frame->head.sequence,
		                    "frame %llu at offset %llu uses codec %u, which needs a newer "
		                    "version of kvarc",
		                    (unsigned long long)frame->head.sequence,
		                    (unsigned long long)frame->offset, (unsigned)header->codec));
	bool params = kvi_codec_has_params(header->codec) || kvi_codec_predicts(header->codec);
	if (params ? header->params == 0 || header->params >= frame->head.sequence
	           : header->params != 0)
		return kvi_frame_bad(frame, error, "its PARAMS do not fit its codec");
	if (!kvi_codec_has_streams(header->codec) &&
	    (header->cut.section_bytes ||
	     (header->cut.stream_size != KVI_ONE_STREAM && header->codec != KVI_CODEC_REPEAT)))
		return kvi_frame_bad(frame, error, "its streams do not fit its codec");
	if (kvi_codec_predicts(header->codec) && header->heads != t->heads)
		return kvi_frame_bad(frame, error, "its heads do not fit its codec");
	return KVARC_OK;
}

kvarc_ret kvi_params_check(const kvarc_geometry *geometry, const struct kvi_params_header *header,
                           const struct kvi_frame *frame, kvarc_error *error)
{
	if (header->tensor >= geometry->n_tensors ||
	    (uint32_t)header->head + header->heads > geometry->tensors[header->tensor].heads)
		return kvi_frame_bad(frame, error, "its tensor or heads do not exist");
	if (!kvi_codec_name(header->codec))
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, KVARC_OPTIONS, frame->offset, frame->head.sequence,
		                    "frame %llu at offset %llu has parameters of codec %u, which "
		                    "needs a newer version of kvarc",
		                    (unsigned long long)frame->head.sequence,
		                    (unsigned long long)frame->offset, (unsigned)header->codec));
	return kvi_codec_has_params(header->codec)
	               ? KVARC_OK
	               : kvi_frame_bad(frame, error, "its codec has no parameters");
}

/* Folds the INDEX entry of a frame into a hash. The number of the frame that a PARAMS frame copies
 * is left out: it is not known when the frame passes. */
static void list(struct kvi_h128 *hash, const struct kvi_index_entry *entry)
{
	uint8_t b[75];
	b[0] = entry->type;
	b[1] = entry->codec;
	kvi_store32(b + 2, entry->tensor);
	kvi_store32(b + 6, entry->n);
	kvi_store16(b + 10, entry->head);
	kvi_store16(b + 12, entry->heads);
	kvi_store64(b + 14, entry->offset);
	kvi_store64(b + 22, entry->sequence);
	kvi_store64(b + 30, entry->segment);
	kvi_store64(b + 38, entry->type == KVI_FRAME_PARAMS ? 0 : entry->params);
	kvi_store32(b + 46, 0);
	b[50] = entry->has_chain;
	kvi_store_h128(b + 51, entry->chain);
	kvi_store64(b + 67, entry->number);
	*hash = kvi_h128_fold(*hash, b, sizeof b);
}

static kvarc_ret on_params(struct kvi_walk *w, kvarc_error *error)
{
	const struct kvi_params_header *h = &w->params;
	if (!kvi_params_header_parse(&w->params, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, error, "it is too short");
	w->entry.tensor = h->tensor;
	w->entry.head = h->head;
	w->entry.heads = h->heads;
	w->entry.codec = h->codec;
	return kvi_params_check(w->geometry, h, &w->frame, error);
}

/* The first token of a SEGMENT or STOREREF. */
static kvarc_ret check_t0(const struct kvi_walk *w, uint32_t track, uint64_t t0, kvarc_error *error)
{
	if (track >= w->geometry->n_tracks || t0 > w->tokens[track] || t0 > UINT32_MAX)
		return kvi_frame_bad(&w->frame, error, "its track or first token");
	if (t0 != w->tokens[track] && !kvi_input_seekable(w->in))
		return kvi_reason(
			error, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(error, KVARC_OPTIONS, w->frame.offset, w->frame.head.sequence,
		                    "frame %llu replaces earlier tokens: the file needs a source "
		                    "that can seek",
		                    (unsigned long long)w->frame.head.sequence));
	return KVARC_OK;
}

/* A STOREREF stands for all of its segments, as if all but the last had a COMMIT (spec frames
 * 12.3). */
static kvarc_ret on_storeref(struct kvi_walk *w, kvarc_error *error)
{
	if (!w->in->stored)
		return kvi_frame_bad(&w->frame, error, "the superblock says that there are none");
	if (w->in_segment)
		return kvi_frame_bad(&w->frame, error, "the segment before has no COMMIT");
	kvarc_ret ret = kvi_storeref_parse(&w->stored, w->in->alloc, w->geometry, w->order,
	                                   w->content, w->content_bytes);
	if (ret)
		return ret == KVARC_DATA ? kvi_frame_bad(&w->frame, error, "its fields")
		                         : kvi_fail_alloc(error, w->in->alloc);
	const kvarc_stored *first = KVI_LIST(kvarc_stored, w->stored, 0);
	const kvarc_stored *last = first + w->stored.n - 1;
	ret = check_t0(w, first->track, first->t0, error);
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

static kvarc_ret on_segment(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_segment *s = &w->segment;
	if (w->in_segment)
		return kvi_frame_bad(&w->frame, error, "the segment before has no COMMIT");
	if (!kvi_segment_parse(s, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, error, "its fields");
	kvarc_ret ret = check_t0(w, s->track, s->t0, error);
	if (ret)
		return ret;
	if (s->coded && !w->predictor_codes)
		return kvi_frame_bad(&w->frame, error,
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

static kvarc_ret on_chunk(struct kvi_walk *w, kvarc_error *error)
{
	const struct kvi_chunk_header *h = &w->chunk;
	if (!kvi_chunk_header_parse(&w->chunk, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, error, "its header");
	if (!w->in_segment || kvi_order_done(&w->chunks) || h->segment != w->segment_sequence ||
	    h->n != w->segment.n || h->t0 != w->segment.t0)
		return kvi_frame_bad(&w->frame, error, "it does not fit its SEGMENT");
	kvarc_ret ret = kvi_chunk_check(w->geometry, h, &w->frame, error);
	if (ret)
		return ret;
	if (kvi_codec_predicts(h->codec) &&
	    (h->params != w->segment_predictor ||
	     kvi_codec_uses_prediction(h->codec) != w->segment_guided))
		return kvi_frame_bad(&w->frame, error,
		                     "it does not name the PREDICTOR of its segment");
	w->order_index = w->chunks.at;
	if (!kvi_order_next(&w->chunks, w->order, w->geometry, h->tensor, h->head, h->heads))
		return kvi_frame_bad(&w->frame, error, "it is not the next chunk of its segment");
	w->entry.tensor = h->tensor;
	w->entry.head = h->head;
	w->entry.heads = h->heads;
	w->entry.segment = h->segment;
	w->entry.params = h->params;
	return KVARC_OK;
}

/* Order alone (spec 3.4); what they say is the reader's. */
static kvarc_ret on_restore(struct kvi_walk *w, kvarc_error *error)
{
	if (w->in_segment)
		return kvi_frame_bad(&w->frame, error, "it stands in a segment");
	if (w->past_items && !kvi_input_seekable(w->in))
		return kvi_reason(
			error, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(error, KVARC_OPTIONS, w->frame.offset, w->frame.head.sequence,
		                    "frame %llu adds a file behind tokens: the archive needs a "
		                    "source that can seek",
		                    (unsigned long long)w->frame.head.sequence));
	w->n_items++;
	return KVARC_OK;
}

static kvarc_ret on_blob(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_blob b;
	if (!kvi_blob_parse(&b, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, error, "its fields");
	return b.item < w->n_items
	               ? KVARC_OK
	               : kvi_frame_bad(&w->frame, error, "its item does not come before it");
}

static kvarc_ret on_predictor(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_predictor p;
	kvarc_ret ret = kvi_predictor_parse(&p, w->in->alloc, w->content, w->content_bytes);
	if (ret == KVARC_DATA)
		return kvi_frame_bad(&w->frame, error, "its fields");
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, ret, w->frame.offset, w->frame.head.sequence,
		                    "the archive needs a predictor that a newer version of kvarc "
		                    "has"));
	if (ret)
		return kvi_fail_alloc(error, w->in->alloc);
	w->predictor = p.kind != KVI_PREDICTOR_NONE ? w->sequence : 0;
	w->predictor_guides = p.kind == KVI_PREDICTOR_MODEL;
	w->predictor_codes = p.codes_ids;
	w->profile_next = 0;
	w->profile_bytes = p.content_bytes;
	kvi_predictor_free(&p, w->in->alloc);
	return KVARC_OK;
}

static kvarc_ret on_profile(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_profile_part p;
	if (!kvi_profile_part_parse(&p, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, error, "its fields");
	if (p.offset != w->profile_next || p.bytes > w->profile_bytes - w->profile_next)
		return kvi_frame_bad(&w->frame, error, "it is not the next part of a profile");
	w->profile_next += p.bytes;
	return KVARC_OK;
}

static kvarc_ret on_commit(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_commit c;
	size_t n = w->geometry->n_tracks;
	if (w->in_segment && !kvi_order_done(&w->chunks))
		return kvi_frame_bad(&w->frame, error, "chunks of its segment are missing");
	if (w->in_segment)
		w->tokens[w->segment.track] = w->segment_end;
	w->in_segment = false;
	if (!kvi_commit_parse(&c, w->committed, n, w->content, w->content_bytes) ||
	    c.frames != w->sequence || c.offset != w->frame.offset)
		return kvi_frame_bad(&w->frame, error, "its fields");
	if (memcmp(w->committed, w->tokens, n * sizeof *w->tokens))
		return kvi_frame_bad(&w->frame, error, "its token counts");
	if (c.checkpoint.number && c.checkpoint.number <= w->checkpoint)
		return kvi_frame_bad(&w->frame, error, "the number of its checkpoint");
	if (c.checkpoint.number)
		w->checkpoint = c.checkpoint.number;
	w->entry.number = c.checkpoint.number;
	w->last_commit = w->frame.offset;
	w->commit_end = w->frame.offset + w->frame.bytes;
	return KVARC_OK;
}

static kvarc_ret on_index(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_index_reader r;
	struct kvi_index_entry entry;
	struct kvi_h128 c = { 0, 0 };
	uint64_t n = 0;
	if (!kvi_index_begin(&r, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, error, "its fields");
	while (kvi_index_next(&r, &entry)) {
		list(&c, &entry);
		n++;
	}
	if (!kvi_index_end(&r) || r.previous != w->last_index)
		return kvi_frame_bad(&w->frame, error, "its fields");
	if (n != w->n_listed || !kvi_h128_equal(c, w->listed))
		return kvi_frame_bad(&w->frame, error, "it does not list the frames before it");
	w->last_index = w->frame.offset;
	w->listed = (struct kvi_h128){ 0, 0 };
	w->n_listed = 0;
	return KVARC_OK;
}

static kvarc_ret on_footer(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_footer f;
	if (!kvi_footer_parse(&f, w->content, w->content_bytes))
		return kvi_frame_bad(&w->frame, error, "its size");
	if (w->uncommitted || w->n_listed || f.index != w->last_index ||
	    f.commit != w->last_commit || f.frames != w->sequence)
		return kvi_frame_bad(&w->frame, error, "it does not fit the frames before");
	return KVARC_OK;
}

/* Whether a RESTORE may come behind a frame of this type on a pipe (spec 3.5). */
static bool before_items(uint16_t type)
{
	return !kvi_frame_counts(type) || type == KVI_FRAME_GEOMETRY ||
	       type == KVI_FRAME_IDENTITY || type == KVI_FRAME_PREDICTOR ||
	       type == KVI_FRAME_PROFILE || type == KVI_FRAME_RESTORE;
}

static kvarc_ret interpret(struct kvi_walk *w, kvarc_error *error)
{
	uint16_t type = w->frame.head.type;
	if (w->profile_next < w->profile_bytes && type != KVI_FRAME_PROFILE &&
	    kvi_frame_counts(type))
		return kvi_frame_bad(&w->frame, error, "PROFILE frames before it are missing");
	switch (type) {
	case KVI_FRAME_GEOMETRY:
		return w->begun ? kvi_frame_bad(&w->frame, error, "there is one already")
		                : KVARC_OK;
	case KVI_FRAME_RESTORE:
		return on_restore(w, error);
	case KVI_FRAME_BLOB:
		return on_blob(w, error);
	case KVI_FRAME_PARAMS:
		return on_params(w, error);
	case KVI_FRAME_SEGMENT:
		return on_segment(w, error);
	case KVI_FRAME_STOREREF:
		return on_storeref(w, error);
	case KVI_FRAME_CHUNK:
		return on_chunk(w, error);
	case KVI_FRAME_PREDICTOR:
		return on_predictor(w, error);
	case KVI_FRAME_PROFILE:
		return on_profile(w, error);
	case KVI_FRAME_COMMIT:
		return on_commit(w, error);
	case KVI_FRAME_INDEX:
		return on_index(w, error);
	case KVI_FRAME_FOOTER:
		return on_footer(w, error);
	default:
		return KVARC_OK;
	}
}

static kvarc_ret get_content(struct kvi_walk *w, kvarc_error *error)
{
	const struct kvi_frame *f = &w->frame;
	w->content = f->payload;
	w->content_bytes = f->head.payload_bytes;
	if (is_packed(f->head.type)) {
		bool skims = w->skim && kvi_frame_skims(&f->head);
		w->content_bytes = f->head.decoded_bytes;
		w->content = w->head;
		if (skims)
			return kvi_frame_skim(w->packer, f, w->head, error);
		kvarc_ret ret = kvi_frame_spend(f, w->decode_left, error);
		return ret ? ret : kvi_frame_content(w->packer, f, &w->content, &w->owned, error);
	}
	if ((f->head.type == KVI_FRAME_COMMIT || f->head.type == KVI_FRAME_FOOTER) &&
	    f->head.decoded_bytes != f->head.payload_bytes)
		return kvi_frame_bad(f, error, "decoded_bytes");
	return KVARC_OK;
}

kvarc_ret kvi_walk_next(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_frame *f = &w->frame;
	kvi_free(w->in->alloc, w->owned);
	w->owned = NULL;
	kvarc_ret ret = kvi_frame_read(w->in, w->offset, &w->buffer, f, error);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(f, error);
	if (ret)
		return ret;
	if (f->head.sequence != w->sequence)
		return kvi_frame_bad(f, error, "frames are missing or repeated before it");
	if (!w->begun && f->head.type != KVI_FRAME_GEOMETRY && f->head.type != KVI_FRAME_KEY)
		return kvi_frame_bad(f, error, "the first frame must be GEOMETRY");
	w->entry = (struct kvi_index_entry){ .type = f->head.type > UINT8_MAX
		                                             ? 0
		                                             : (uint8_t)f->head.type,
		                             .offset = w->offset,
		                             .sequence = w->sequence };
	ret = get_content(w, error);
	if (ret == KVARC_OK)
		ret = interpret(w, error);
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
