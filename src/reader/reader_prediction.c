/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_prediction.c - what predicts the chunks of a segment: features of others, a model */
#include "reader_ids.h"
#include "reader_prediction.h"
#include "reader_state.h"

kvarc_ret kvi_reader_open_features(kvarc_reader *r, uint32_t track,
                                   const struct kvi_linear_plan *plan,
                                   struct kvi_feature_table **features, kvarc_error *error)
{
	kvarc_ret ret = kvi_feature_table_open(features, &r->alloc, plan, &r->order, track);
	if (ret)
		return kvi_fail_alloc(error, &r->alloc);
	(*features)->pool = r->workers.pool;
	return KVARC_OK;
}

bool kvi_reader_order_index(const kvarc_reader *r, const struct kvi_segment_ref *segment,
                            const struct kvi_chunk_ref *chunk, uint32_t *at, uint32_t *order_index)
{
	for (uint32_t i = *at; i < r->order.first[segment->track + 1]; i++) {
		if (r->order.tensors[i] != chunk->tensor)
			continue;
		*order_index = i;
		*at = i + (chunk->heads == r->geometry.tensors[chunk->tensor].heads);
		return true;
	}
	return false;
}

bool kvi_range_wants(const kvarc_reader *r, const struct kvi_range *range, uint32_t tensor)
{
	uint32_t layer = r->geometry.tensors[tensor].layer;
	return layer >= range->layer0 && layer < range->layer_end &&
	       (!range->views || range->views[tensor].data);
}

void kvi_reader_plan_features(const kvarc_reader *r, const struct kvi_segment_ref *segment,
                              const struct kvi_range *range, struct kvi_segment_use *use)
{
	struct kvi_feature_table *t = use->features;
	uint32_t at = t->first, order_index;
	const uint64_t end = kvi_segment_chunks_end(r, segment);
	for (uint64_t i = segment->first; i < end; i++) {
		const struct kvi_chunk_ref chunk = kvi_segment_chunk(r, segment, i), *c = &chunk;
		if (!kvi_reader_order_index(r, segment, c, &at, &order_index))
			continue;
		uint8_t *flags = &kvi_feature_slot(t, order_index)->flags;
		if (!range || kvi_range_wants(r, range, c->tensor))
			*flags |= KVI_SLOT_WANTED;
		if (c->linear)
			*flags |= KVI_SLOT_LINEAR;
		if (c->heads == r->geometry.tensors[c->tensor].heads)
			*flags |= KVI_SLOT_WHOLE;
		/* Upper layers are of no use to the range's. */
		uint32_t layer = r->geometry.tensors[c->tensor].layer;
		if (use->prediction && kvi_prediction_covers(use->prediction, order_index) &&
		    (!range || layer < range->layer_end))
			*flags |= KVI_SLOT_PREDICTION;
	}
	/* A chunk that is not there, or not whole, will never be observed. */
	for (uint32_t i = 0; use->prediction && i < t->n; i++)
		if (kvi_prediction_covers(use->prediction, t->first + i) &&
		    !(t->slots[i].flags & KVI_SLOT_WHOLE))
			kvi_prediction_mark_lost(use->prediction, t->first + i, segment->t0);
	kvi_feature_table_plan(t);
}

struct kvi_prediction_options
kvi_reader_prediction_options(const kvarc_reader *r, const struct kvi_predictor_ref *predictor,
                              uint32_t track)
{
	return (struct kvi_prediction_options){
		.predictor = r->options.predictor,
		.description = &predictor->p,
		.plan = predictor->plan,
		.geometry = &r->geometry,
		.order = &r->order,
		.track = track,
		.threads = r->options.common.threads,
		.isa_mask = r->options.common.isa_mask,
		.decodes = true,
	};
}

/* The model that predicts a segment, at its first token, as use->prediction, unless use->
 * predictor_ret says why it cannot; for the first `layers` layers. */
static void open_prediction(kvarc_reader *r, struct kvi_predictor_ref *predictor, uint32_t track,
                            uint64_t layers, struct kvi_segment_use *use)
{
	const struct kvi_prediction_options o = kvi_reader_prediction_options(r, predictor, track);
	const uint64_t t0 = use->segment.t0;
	kvarc_error *e = &use->predictor_error;
	kvarc_ret ret = kvi_reader_ids(r, predictor->p.codes_ids ? predictor : NULL, &use->segment,
	                               e);
	/* In salvage each chunk that needs lost ids reports that itself. */
	if (ret && !(ret == KVARC_DATA && r->salvage)) {
		use->predictor_ret = ret == KVARC_END ? predictor->ids_ret : ret;
		return;
	}
	if (!predictor->sessions[track]) {
		use->predictor_ret = kvi_prediction_fits(&o, e);
		if (!use->predictor_ret)
			use->predictor_ret = kvi_prediction_open(&predictor->sessions[track], &o,
			                                         e);
	}
	struct kvi_prediction *g = predictor->sessions[track];
	if (g && t0 == 0)
		kvi_prediction_restart(g, layers < SIZE_MAX ? (size_t)layers : SIZE_MAX);
	else if (g && kvi_prediction_next(g) >= t0 &&
	         (kvi_prediction_next(g) > t0 || kvi_prediction_is_lost(g)))
		kvi_prediction_rewind(g, t0);
	if (g && kvi_prediction_next(g) != t0) {
		bool lost = r->salvage || kvi_prediction_is_lost(g);
		use->predictor_ret = kvi_fail(e, lost ? KVARC_DATA : KVARC_OPTIONS,
		                              lost ? "earlier tokens that the model needs are lost"
		                                   : "segments that a model predicts are decoded "
		                                     "one after the other, from the first one on");
	}
	if (!use->predictor_ret)
		use->prediction = g;
}

kvarc_ret kvi_reader_predict(kvarc_reader *r, struct kvi_predictor_ref *predictor, uint32_t track,
                             uint64_t layers, struct kvi_segment_use *use)
{
	use->predictor_ret = predictor ? kvi_reader_load_predictor(r, predictor,
	                                                           &use->predictor_error)
	                               : kvi_fail(&use->predictor_error, KVARC_DATA,
	                                          "the PREDICTOR frame of chunks is damaged");
	if (!use->predictor_ret && use->known && predictor->p.kind == KVI_PREDICTOR_MODEL)
		open_prediction(r, predictor, track, layers, use);
	return use->predictor_ret ? KVARC_OK
	                          : kvi_reader_open_features(r, track, predictor->plan,
	                                                     &use->features, r->error);
}

kvarc_ret kvi_reader_foresee(kvarc_reader *r, uint64_t predictor, struct kvi_segment_use *use)
{
	struct kvi_predictor_ref *x = predictor ? kvi_reader_find_predictor(r, predictor) : NULL;
	if (!x)
		return KVARC_OK; /* the walk has checked that none is named */
	kvarc_ret ret = kvi_reader_predict(r, x, use->segment.track, UINT64_MAX, use);
	/* Chunks that need no profile can be read without the predictor. */
	if (ret || use->predictor_ret)
		return ret;
	for (uint32_t i = 0; i < use->features->n; i++) {
		uint32_t order_index = use->features->first + i;
		if (x->plan->of[order_index].model)
			use->features->slots[i].flags = KVI_SLOT_WANTED | KVI_SLOT_LINEAR |
			                                KVI_SLOT_WHOLE;
		if (use->prediction && kvi_prediction_covers(use->prediction, order_index))
			use->features->slots[i].flags |= KVI_SLOT_PREDICTION;
	}
	kvi_feature_table_plan(use->features);
	return KVARC_OK;
}

void kvi_reader_cut_models(kvarc_reader *r, const struct kvi_segment_ref *segment)
{
	if (!segment || segment->left == segment->n)
		return;
	for (size_t i = 0; i < r->predictors.list.n; i++) {
		struct kvi_predictor_ref *x = *KVI_LIST(struct kvi_predictor_ref *,
		                                        r->predictors.list, i);
		struct kvi_prediction *g = x->sessions ? x->sessions[segment->track] : NULL;
		if (g && kvi_prediction_next(g) == segment->t0 + segment->n)
			kvi_prediction_rewind(g, segment->t0 + segment->left);
	}
}
