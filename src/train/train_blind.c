/* SPDX-License-Identifier: BSD-3-Clause */
/* train_blind.c - the sequences of a stack through a predictor that does not see the token */
#include "token_blind/token_blind.h"

#include <string.h>

#include "train_predict.h"
#include "util/ckd.h"
#include "util/error.h"

static kvarc_ret blind_cache(kvarc_trainer *t, const struct kvi_train_stack *s,
                             struct kvi_token_blind *b, const struct kvi_train_cache *c)
{
	const struct kvi_train_predictor *p = t->predictor;
	kvarc_ret ret = KVARC_OK;
	kvi_token_blind_restart(b);
	for (size_t t0 = 0; t0 < c->n && !ret; t0 += KVI_TRAIN_BLOCK) {
		size_t n = c->n - t0 < KVI_TRAIN_BLOCK ? c->n - t0 : KVI_TRAIN_BLOCK;
		if (kvi_token_blind_segment(b, c->ids + t0, c->positions + t0, n))
			return kvi_train_no_memory(t);
		for (uint32_t l = 0; l < p->file->n_layers; l++) {
			const struct kvi_predicted x = kvi_token_blind_predict(b, l);
			size_t at = (l * s->n_tokens + c->first + t0) * p->kv;
			memcpy(p->blind_k + at, x.k, n * p->kv * sizeof *x.k);
			memcpy(p->blind_v + at, x.v, n * p->kv * sizeof *x.v);
		}
		ret = kvi_train_progress(t, n * p->layer_work * p->file->n_layers);
	}
	return ret;
}

kvarc_ret kvi_train_token_blind_start(kvarc_trainer *t, const struct kvi_train_stack *s)
{
	struct kvi_train_predictor *p = t->predictor;
	const struct kvi_run_options o = {
		.engine = p->engine,
		.alloc = &t->alloc,
		.pool = t->pool,
		.isa_mask = t->options.common.isa_mask,
	};
	size_t floats;
	struct kvi_token_blind *b = NULL;
	if (kvi_mul(s->n_tokens * p->kv, p->file->n_layers, &floats))
		return kvi_train_no_memory(t);
	p->blind_k = kvi_array(&t->alloc, floats, 2 * sizeof *p->blind_k);
	if (!p->blind_k)
		return kvi_train_no_memory(t);
	p->blind_v = p->blind_k + floats;
	kvarc_ret ret = kvi_token_blind_open(&b, &o, t->options.model.blind);
	ret = kvi_fail_memory(t->error, ret, &t->alloc);
	for (size_t i = 0; i < s->n_caches && !ret; i++)
		ret = blind_cache(t, s, b, s->caches[i]);
	kvi_token_blind_close(&b);
	return ret;
}

void kvi_train_token_blind_take(kvarc_trainer *t, const struct kvi_train_stack *s, uint32_t layer)
{
	const struct kvi_train_predictor *p = t->predictor;
	size_t n = s->n_tokens * p->kv;
	memcpy(p->real.k, p->blind_k + layer * n, n * sizeof *p->real.k);
	memcpy(p->real.v, p->blind_v + layer * n, n * sizeof *p->real.v);
}
