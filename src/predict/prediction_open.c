/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_open.c - whether a model could have made a track, and what a prediction session of
 * it needs */
#include <string.h>

#include "util/error.h"
#include "prediction_state.h"

const char kvi_prediction_failed_text[] = "the external predictor failed";
static const char missing_layer[] = "a layer of it is missing, or kept apart";

/* The first tensor of a layer and kind in the track; UINT32_MAX: none. */
static uint32_t first_of(const struct kvi_prediction_options *o, uint32_t layer, unsigned kind)
{
	uint32_t end = o->order->first[o->track + 1];
	for (uint32_t i = o->order->first[o->track]; i < end; i++)
		if (kvi_prediction_tensor(o, i)->layer == layer &&
		    kvi_prediction_tensor(o, i)->kind == kind)
			return i;
	return UINT32_MAX;
}

/* Attention rotates with the cache's own frequencies (spec/arithmetic.md 5): one set for each of
 * the model's. */
static bool same_rope(const struct kvi_prediction_options *o, const struct kvi_model_file *m,
                      uint32_t layer, const kvarc_rope *rope)
{
	uint32_t first = 0;
	while (m->layers[first].rope != m->layers[layer].rope)
		first++;
	uint32_t order_index = first_of(o, first, KVARC_KEY);
	const kvarc_rope *other = order_index == UINT32_MAX
	                                  ? NULL
	                                  : kvi_tensor_rope(o->geometry,
	                                                    kvi_prediction_tensor(o, order_index));
	return other && other->rotary == rope->rotary &&
	       !memcmp(other->freq, rope->freq, rope->rotary / 2 * sizeof *rope->freq);
}

static const char *why_no_rope(const struct kvi_prediction_options *o, uint32_t layer,
                               const kvarc_rope *rope)
{
	const struct kvi_model_file *m = kvi_predictor_file(o->predictor);
	if (!m)
		return NULL; /* its keys are as they are stored */
	uint32_t rotary = m->n_ropes ? m->ropes[m->layers[layer].rope].rotary : 0;
	if ((rope ? rope->rotary : 0) != rotary)
		return "the RoPE of its keys is not known, or not the model's";
	return rope && !same_rope(o, m, layer, rope)
	               ? "layers that the model turns alike have several RoPEs"
	               : NULL;
}

static const char *why_not(const struct kvi_prediction_options *o, uint32_t layer, unsigned kind)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(o->predictor);
	uint32_t order_index = first_of(o, layer, kind);
	if (order_index == UINT32_MAX)
		return missing_layer;
	const kvarc_tensor *t = kvi_prediction_tensor(o, order_index);
	if (t->heads != m->heads || t->channels != m->channels)
		return "its heads are not those of the model";
	const char *why = kind == KVARC_KEY ? why_no_rope(o, layer, kvi_tensor_rope(o->geometry, t))
	                                    : NULL;
	if (why)
		return why;
	const struct kvi_model_file *file = kvi_predictor_file(o->predictor);
	const struct kvi_planned *p = &o->plan->of[order_index];
	if (file && p->complete && p->model->flags & KVI_MODEL_CORRECTS &&
	    p->model->width != file->width)
		return "the profile corrects a state of another width";
	return p->complete ? NULL : "the profile is not one for it";
}

static kvarc_ret fail_why(const struct kvi_prediction_options *o, uint32_t layer, const char *why,
                          kvarc_error *error)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(o->predictor);
	return kvi_fail(error, KVARC_PREDICTOR,
	                "the model (%s, %u layers of %u x %u) does not "
	                "predict this cache: %s (layer %u)",
	                m->arch, (unsigned)m->layers, (unsigned)m->heads, (unsigned)m->channels,
	                why, (unsigned)layer);
}

kvarc_ret kvi_prediction_fits(const struct kvi_prediction_options *o, kvarc_error *error)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(o->predictor);
	if (kvi_predictor_token_blind(o->predictor) && o->description->closed)
		return kvi_fail(error, KVARC_PREDICTOR,
		                "a predictor without the current token has no closed loop");
	for (uint32_t l = 0; l < m->layers; l++) {
		const char *why = why_not(o, l, KVARC_KEY);
		if (!why)
			why = why_not(o, l, KVARC_VALUE);
		if (why)
			return fail_why(o, l, why, error);
	}
	return KVARC_OK;
}

kvarc_ret kvi_prediction_ropes(const struct kvi_prediction_options *o, const uint64_t *freq[2],
                               kvarc_error *error)
{
	const struct kvi_model_file *m = kvi_predictor_file(o->predictor);
	for (uint32_t l = m->n_layers; l-- > 0;) {
		uint32_t order_index = first_of(o, l, KVARC_KEY);
		const kvarc_rope *rope =
			order_index == UINT32_MAX
				? NULL
				: kvi_tensor_rope(o->geometry,
		                                  kvi_prediction_tensor(o, order_index));
		const char *why = order_index == UINT32_MAX ? missing_layer
		                                            : why_no_rope(o, l, rope);
		if (why)
			return fail_why(o, l, why, error);
		if (rope)
			freq[m->layers[l].rope] = rope->freq;
	}
	return KVARC_OK;
}

static kvarc_ret open_layers(struct kvi_prediction *g)
{
	g->layers = kvi_calloc(g->alloc, g->shape->layers, sizeof *g->layers);
	if (!g->layers)
		return kvi_alloc_error(g->alloc);
	for (uint32_t l = 0; l < g->shape->layers; l++)
		for (unsigned k = KEY; k < BOTH; k++) {
			uint32_t order_index = first_of(&g->o, l,
			                                k == KEY ? KVARC_KEY : KVARC_VALUE);
			g->layers[l].order_index[k] = order_index;
			g->layers[l].model[k] = g->o.plan->of[order_index].model;
		}
	return KVARC_OK;
}

/* To go through a segment again takes the features of its layers: as much as the keys and values
 * that attention looks at take for 256 tokens. */
static kvarc_ret open_features(struct kvi_prediction *g, unsigned k)
{
	for (uint32_t l = 0; l < g->shape->layers; l++) {
		struct layer *x = &g->layers[l];
		x->f[k] = g->layers[0].f[k];
		if ((l == 0 || g->keeps) &&
		    kvi_features_open(&x->f[k], g->alloc, x->model[k], KVI_SEGMENT_TOKENS))
			return kvi_alloc_error(g->alloc);
	}
	return KVARC_OK;
}

static kvarc_ret open_rooms(struct kvi_prediction *g)
{
	g->keeps = g->o.decodes && g->o.description->closed;
	for (unsigned k = KEY; k < BOTH; k++) {
		g->true_values[k] = kvi_array(g->alloc, KVI_SEGMENT_TOKENS * g->C, sizeof(float));
		if (!g->true_values[k])
			return kvi_alloc_error(g->alloc);
		kvarc_ret ret = open_features(g, k);
		if (ret)
			return ret;
	}
	g->scratch = kvi_malloc(g->alloc, kvi_model_correct_bytes(KVI_SEGMENT_TOKENS));
	/* rows of a run are whole blocks of 16 */
	g->turned = kvi_array(g->alloc, g->C + 15, sizeof *g->turned);
	g->channels = kvi_array(g->alloc, g->C, sizeof *g->channels);
	g->elements = kvi_array(g->alloc, g->C, sizeof(float));
	return g->scratch && g->turned && g->channels && g->elements ? KVARC_OK
	                                                             : kvi_alloc_error(g->alloc);
}

static kvarc_ret open_run(struct kvi_prediction *g)
{
	const struct kvi_arithmetic a = { g->o.description->wide_weights,
		                          g->o.description->wide_activations,
		                          g->o.description->fp8 };
	struct kvi_run_options run = { .alloc = g->alloc,
		                       .pool = g->pool,
		                       .isa_mask = g->o.isa_mask,
		                       .kernels = kvi_predictor_kernels(g->o.predictor,
		                                                        g->o.isa_mask) };
	kvarc_ret ret = kvi_prediction_ropes(&g->o, run.freq, NULL);
	if (!ret)
		ret = kvi_predictor_engine(g->o.predictor, &a, g->o.isa_mask, &run.engine, NULL);
	unsigned blind = kvi_predictor_token_blind(g->o.predictor);
	struct kvi_run *opened = NULL;
	g->ops = blind ? &kvi_prediction_token_blind : &kvi_prediction_model;
	if (!ret && blind)
		return kvi_prediction_token_blind_open(&g->run, &run, blind);
	if (!ret)
		ret = kvi_run_open(&opened, &run);
	g->run = opened;
	return ret;
}

static kvarc_ret open_external(struct kvi_prediction *g)
{
	const struct kvi_external_options o = { g->alloc, kvi_predictor_external(g->o.predictor),
		                                g->external = kvi_calloc(g->alloc, g->shape->layers,
		                                                         sizeof *g->external) };
	if (!g->external)
		return kvi_alloc_error(g->alloc);
	for (uint32_t l = 0; l < g->shape->layers; l++)
		g->external[l] = (struct kvi_external_layer){
			g->layers[l].model[KEY],
			kvi_tensor_rope(g->o.geometry,
			                kvi_prediction_tensor(&g->o, g->layers[l].order_index[KEY]))
		};
	g->ops = &kvi_prediction_external;
	return kvi_external_open(&g->run, &o);
}

static kvarc_ret open_all(struct kvi_prediction *g)
{
	if (pthread_mutex_init(&g->lock, NULL))
		return KVARC_MEM;
	g->has_lock = true;
	if (pthread_cond_init(&g->changed, NULL))
		return KVARC_MEM;
	g->has_changed = true;
	kvarc_ret ret = kvi_pool_open(&g->pool, g->alloc, g->o.threads);
	if (!ret)
		ret = open_layers(g);
	if (!ret)
		ret = open_rooms(g);
	if (ret)
		return ret;
	return g->file ? open_run(g) : open_external(g);
}

kvarc_ret kvi_prediction_open(struct kvi_prediction **out, const struct kvi_prediction_options *o,
                              kvarc_error *error)
{
	const struct kvi_alloc *alloc = kvi_predictor_alloc(o->predictor);
	struct kvi_prediction *g = kvi_calloc(alloc, 1, sizeof *g);
	*out = NULL;
	if (!g)
		return kvi_fail_alloc(error, alloc);
	g->o = *o;
	g->alloc = alloc;
	g->file = kvi_predictor_file(o->predictor);
	g->shape = kvi_predictor_shape(o->predictor);
	g->limit = g->shape->layers;
	g->lost_t0 = UINT64_MAX;
	g->lost_from = SIZE_MAX;
	g->ret = KVARC_DATA;
	g->kernels = kvi_kernels_get(o->isa_mask);
	g->C = (size_t)g->shape->heads * g->shape->channels;
	kvarc_ret ret = open_all(g);
	if (ret)
		kvi_prediction_close(g);
	else
		*out = g;
	return ret == KVARC_PREDICTOR && !kvi_predictor_file(o->predictor)
	               ? kvi_fail(error, ret, "%s", kvi_prediction_failed_text)
	               : kvi_fail_memory(error, ret, alloc);
}

void kvi_prediction_close(struct kvi_prediction *g)
{
	if (!g)
		return;
	const bool inherited = kvi_pool_inherited(g->pool); /* threads that do not exist may wait */
	if (g->run)
		g->ops->close(g->run);
	kvi_pool_close(g->pool);
	for (unsigned k = KEY; k < BOTH; k++) {
		kvi_free(g->alloc, g->true_values[k]);
		for (size_t l = 0; g->layers && l < g->shape->layers; l++)
			if (l == 0 || g->keeps)
				kvi_features_close(g->layers[l].f[k], g->alloc);
	}
	kvi_free(g->alloc, g->layers);
	kvi_free(g->alloc, g->external);
	kvi_free(g->alloc, g->scratch);
	kvi_free(g->alloc, g->turned);
	kvi_free(g->alloc, g->channels);
	kvi_free(g->alloc, g->elements);
	if (g->has_changed && !inherited)
		pthread_cond_destroy(&g->changed);
	if (g->has_lock && !inherited)
		pthread_mutex_destroy(&g->lock);
	kvi_free(g->alloc, g);
}
