/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_model.c - the model of levels 4 to 8, for a device that computes its layers */
#include "writer_coded.h"
#include "writer_state.h"

kvarc_ret kvi_writer_model(const kvarc_writer *w, struct kvi_located_model *m)
{
	const kvarc_writer_options *o = &w->options;
	const struct kvi_predictor *p = &w->predictor;
	if (o->level < KVI_LEVEL_MODEL || !w->has_geometry || !w->plan ||
	    p->kind != KVI_PREDICTOR_MODEL || !kvi_predictor_file(o->predictor) ||
	    kvi_predictor_token_blind(o->predictor))
		return KVARC_END;
	*m = (struct kvi_located_model){
		.predictor = o->predictor,
		.arithmetic = { p->wide_weights, p->wide_activations, p->fp8 },
	};
	return KVARC_OK;
}
