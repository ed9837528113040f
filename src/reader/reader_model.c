/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_model.c - the model of levels 4 to 8, for a decoder that is not this library's */
#include "reader_located.h"
#include "reader_range.h"
#include "reader_stored.h"
#include "util/error.h"

/* A frame as the decoder sees it. */
static void describe(const kvarc_reader *r, struct kvi_predictor_ref *x,
                     struct kvi_located_model *m)
{
	*m = (struct kvi_located_model){
		.predictor = r->options.predictor,
		.arithmetic = { x->p.wide_weights, x->p.wide_activations, x->p.fp8 },
		.closed = x->p.closed,
		.weights = x->p.weights,
		.frame = x,
	};
}

/* Whether a loaded PREDICTOR is of a transformer that sees the token. */
static bool is_transformer(const kvarc_reader *r)
{
	const kvarc_predictor *p = r->options.predictor;
	return kvi_predictor_file(p) && !kvi_predictor_token_blind(p);
}

kvarc_ret kvi_reader_model(kvarc_reader *r, struct kvi_located_model *m, kvarc_error *e)
{
	for (size_t i = 0; i < r->predictors.list.n; i++) {
		struct kvi_predictor_ref *x = *KVI_LIST(struct kvi_predictor_ref *,
		                                        r->predictors.list, i);
		if (x->p.kind != KVI_PREDICTOR_MODEL)
			continue;
		kvarc_ret ret = kvi_reader_load_predictor(r, x, e);
		describe(r, x, m);
		return ret ? ret : is_transformer(r) ? KVARC_OK : KVARC_END;
	}
	return KVARC_END;
}

/* The PREDICTOR of the first chunk of a range that needs a model; NULL: none does. */
static struct kvi_predictor_ref *first_model(kvarc_reader *r, const struct kvi_range *g)
{
	struct kvi_predictor_ref *x = NULL;
	bool needed;
	for (size_t i = 0; i < r->index.segments.n && !x; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (kvi_segment_has(s, g->track, g->t0, g->t_end))
			x = kvi_range_predictor(r, s, g, &needed);
	}
	return x && x->p.kind == KVI_PREDICTOR_MODEL ? x : NULL;
}

/* Whether all that a segment has of a range needs no other PREDICTOR. */
static bool segment_fits(kvarc_reader *r, const struct kvi_segment_ref *s,
                         const struct kvi_range *g, const struct kvi_predictor_ref *x)
{
	const uint64_t end = kvi_segment_chunks_end(r, s);
	if (s->stored || !s->offset ||
	    kvi_reader_predictor_before(&r->predictors, s->sequence) != x)
		return false;
	for (uint64_t i = s->first; i < end; i++) {
		const struct kvi_chunk_ref c = kvi_segment_chunk(r, s, i);
		if (c.linear && kvi_range_wants(r, g, c.tensor) && c.params != x->sequence)
			return false;
	}
	return true;
}

bool kvi_reader_model_of_range(kvarc_reader *r, const kvarc_range *range,
                               struct kvi_located_model *m)
{
	struct kvi_range g;
	if (kvi_range_check(r, range, &g) || g.t0 || g.layer0 || r->salvage || r->in.crypt)
		return false;
	struct kvi_predictor_ref *x = first_model(r, &g);
	if (!x || kvi_reader_load_predictor(r, x, NULL) || !is_transformer(r))
		return false;
	uint64_t next = 0;
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (!kvi_segment_has(s, g.track, 0, g.t_end))
			continue;
		/* one that a rewind has cut may be the last one alone */
		if (s->t0 != next || !segment_fits(r, s, &g, x))
			return false;
		next = s->t0 + s->n;
	}
	const struct kvi_prediction_options o = kvi_reader_prediction_options(r, x, g.track);
	describe(r, x, m);
	return !kvi_prediction_fits(&o, NULL) && !kvi_prediction_ropes(&o, m->freq, NULL);
}
