/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_model.c - the model of levels 4 to 8, for a decoder that is not this library's */
#include "reader_located.h"
#include "reader_state.h"

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
		*m = (struct kvi_located_model){
			.predictor = r->options.predictor,
			.arithmetic = { x->p.wide_weights, x->p.wide_activations, x->p.fp8 },
		};
		return ret ? ret : is_transformer(r) ? KVARC_OK : KVARC_END;
	}
	return KVARC_END;
}
