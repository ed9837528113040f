/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_model.c - the model of levels 4 to 7, for an encoder that is not this library's */
#include "writer_coded.h"
#include "writer_state.h"

kvarc_ret kvi_writer_model(const kvarc_writer *w, struct kvi_located_model *m)
{
	const kvarc_writer_options *o = &w->options;
	const struct kvi_predictor *p = &w->predictor;
	if (o->level < KVI_LEVEL_MODEL || o->level >= KVI_LEVEL_PREDICTED || !w->has_geometry ||
	    !w->plan || p->kind != KVI_PREDICTOR_MODEL || w->verify_given ||
	    !kvi_predictor_file(o->predictor) || kvi_predictor_token_blind(o->predictor))
		return KVARC_END;
	*m = (struct kvi_located_model){
		.predictor = o->predictor,
		.arithmetic = { p->wide_weights, p->wide_activations, p->fp8 },
		.closed = p->closed,
		.weights = p->weights,
	};
	return KVARC_OK;
}

/* Whether the session of a track predicts all of its tensors that have a model: chunks of others
 * are predicted from these, and need their features. */
static bool covers_all(const kvarc_writer *w, uint32_t track)
{
	const struct kvi_prediction *p = w->tracks[track].prediction;
	for (uint32_t i = w->order.first[track]; i < w->order.first[track + 1]; i++)
		if (w->plan->of[i].complete && !kvi_prediction_covers(p, i))
			return false;
	return true;
}

bool kvi_writer_model_of_append(const kvarc_writer *w, uint32_t track, struct kvi_located_model *m)
{
	if (kvi_writer_model(w, m) || track >= w->geometry.n_tracks)
		return false;
	const struct kvi_writer_track *t = &w->tracks[track];
	const struct kvi_prediction_options o = kvi_writer_prediction_options(w, track);
	return t->prediction && !t->n_appended && covers_all(w, track) &&
	       !kvi_prediction_ropes(&o, m->freq, NULL);
}
