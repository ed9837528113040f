/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_prepare.c - what a range needs of a segment: predictors, features, tokens */
#include "reader_range.h"
#include "reader_stored.h"

struct kvi_predictor_ref *kvi_range_predictor(kvarc_reader *r, const struct kvi_segment_ref *s,
                                              const struct kvi_range *g, bool *needed)
{
	*needed = false;
	for (uint64_t i = s->first; i < s->end; i++) {
		const struct kvi_chunk_ref *c = KVI_LIST(struct kvi_chunk_ref, r->index.chunks, i);
		if (!c->linear || !kvi_range_wants(r, g, c->tensor))
			continue;
		*needed = true;
		return kvi_reader_find_predictor(r, c->params);
	}
	return NULL;
}

/* The predictor of a segment, if it is a model. */
static struct kvi_predictor_ref *model_before(const struct kvi_reader_predictors *p,
                                              const struct kvi_segment_ref *s)
{
	struct kvi_predictor_ref *x = kvi_reader_predictor_before(p, s->sequence);
	return x && x->p.kind == KVI_PREDICTOR_MODEL ? x : NULL;
}

/* Whether the model predicts tensors of a track: it has their layers and shapes. */
static bool can_predict(const kvarc_reader *r, const struct kvi_predictor_ref *x, uint32_t track)
{
	const struct kvi_prediction_options o = kvi_reader_prediction_options(r, x, track);
	return x->sessions[track] || !kvi_prediction_fits(&o, NULL);
}

/* Whether a model that nobody needs here can go through the segment. */
static bool is_at(const struct kvi_predictor_ref *x, const struct kvi_segment_ref *s)
{
	const struct kvi_prediction *g = x->sessions[s->track];
	return s->t0 == 0 || (g && kvi_prediction_next(g) == s->t0);
}

struct kvi_predictor_ref *kvi_range_passes_model(kvarc_reader *r, const struct kvi_segment_ref *s,
                                                 bool needed)
{
	struct kvi_predictor_ref *y = needed ? NULL : model_before(&r->predictors, s);
	return y && !kvi_reader_load_predictor(r, y, NULL) && is_at(y, s) &&
	                       can_predict(r, y, s->track)
	               ? y
	               : NULL;
}

/* The segment, with the features of its tensors if there are any. */
static kvarc_ret load_segment(kvarc_reader *r, const struct kvi_segment_ref *s,
                              const struct kvi_range *g, struct kvi_segment_use **use)
{
	bool needed;
	struct kvi_predictor_ref *x = kvi_range_predictor(r, s, g, &needed);
	/* Only its payload says whether a chunk needs positions: they are always read. */
	kvarc_ret ret = kvi_segment_use_load(r, &r->packer, s, use, r->error);
	/* A model goes through all segments, also where nothing needs it; a range that does not
	 * need it at all is not led to. */
	struct kvi_predictor_ref *y = kvi_range_passes_model(r, s, needed);
	if (y) {
		needed = true;
		x = y;
	}
	if (ret || !needed)
		return ret;
	ret = x ? kvi_reader_load_predictor(r, x, &(*use)->predictor_error)
	        : kvi_fail(&(*use)->predictor_error, KVARC_DATA,
	                   "the PREDICTOR frame of chunks is damaged");
	(*use)->predictor_ret = ret;
	/* That the profile is damaged is the chunks' loss; that it is missing
	 * can be helped. */
	if (ret == KVARC_DATA && r->salvage)
		return KVARC_OK;
	if (ret) {
		if (r->error)
			*r->error = (*use)->predictor_error;
		return ret;
	}
	if ((*use)->known)
		kvi_reader_open_prediction(r, x, s->track, s->t0, g->layer_end, *use);
	if ((*use)->predictor_ret == KVARC_DATA && r->salvage)
		return KVARC_OK;
	if ((*use)->predictor_ret) {
		if (r->error)
			*r->error = (*use)->predictor_error;
		return (*use)->predictor_ret;
	}
	if (ret == KVARC_OK)
		ret = kvi_reader_open_features(r, s->track, x->plan, &(*use)->features, r->error);
	if (ret == KVARC_OK)
		kvi_reader_plan_features(r, s, g, *use);
	return ret;
}

/*
 * The most tokens that a stream of a chunk has whose features others need, or that needs those of
 * others. Its frame is not verified yet: its job finds out if the header is not as it was.
 */
static size_t stream_tokens(kvarc_reader *r, const struct kvi_chunk_ref *c)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES];
	struct kvi_chunk_header h;
	struct kvi_frame f;
	if (kvi_frame_peek(&r->in, c->offset, head, KVI_CHUNK_HEADER_BYTES, &f, NULL) ||
	    !kvi_chunk_header_parse(&h, f.payload, f.head.payload_bytes) ||
	    !kvi_codec_has_streams(h.codec) || kvi_codec_uses_prediction(h.codec))
		return KVI_SEGMENT_TOKENS;
	return (size_t)KVI_SMALLEST_STREAM << h.cut.stream_size;
}

/*
 * The tokens that chunks need that are predicted from each other: whole streams, of the chunk that
 * has the longest ones, so that each chunk has what those that are predicted from it need.
 */
static void plan_tokens(kvarc_reader *r, const struct kvi_range *g, struct kvi_part *p)
{
	struct kvi_feature_table *t = p->use->features;
	uint32_t at = t->first, order_index;
	size_t tokens = KVI_SMALLEST_STREAM;
	for (uint64_t i = p->s->first; i < p->s->end && tokens < p->s->n; i++) {
		const struct kvi_chunk_ref *c = KVI_LIST(struct kvi_chunk_ref, r->index.chunks, i);
		if (!kvi_reader_order_index(r, p->s, c, &at, &order_index) || !c->linear ||
		    !(kvi_range_wants(r, g, c->tensor) ||
		      kvi_feature_slot_needed(kvi_feature_slot(t, order_index))))
			continue;
		size_t n = stream_tokens(r, c);
		tokens = n > tokens ? n : tokens;
	}
	p->need_from = (uint32_t)(p->from / tokens * tokens);
	p->need_to = (uint32_t)((p->to + tokens - 1) / tokens * tokens);
	p->need_to = p->need_to < p->s->n ? p->need_to : p->s->n;
}

kvarc_ret kvi_range_prepare(kvarc_reader *r, const struct kvi_range *g, struct kvi_part *p)
{
	const struct kvi_segment_ref *s = p->s;
	const uint64_t end = s->t0 + s->left < g->t_end ? s->t0 + s->left : g->t_end;
	p->next = s->first;
	p->end = kvi_segment_chunks_end(r, s);
	p->order_index = r->order.first[s->track];
	p->from = s->t0 < g->t0 ? (uint32_t)(g->t0 - s->t0) : 0;
	p->to = (uint32_t)(end - s->t0);
	p->need_from = p->need_to = 0;
	kvarc_ret ret = load_segment(r, s, g, &p->use);
	if (ret || p->use->prediction || (p->from == 0 && p->to == s->n))
		return ret;
	p->need_from = p->from;
	p->need_to = p->to;
	if (p->use->features)
		plan_tokens(r, g, p);
	return KVARC_OK;
}
