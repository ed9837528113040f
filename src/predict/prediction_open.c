/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_open.c - whether a model could have made a track, and what a prediction session of
 * it needs */
#include <string.h>

#include "util/error.h"
#include "prediction_state.h"

const char kvi_prediction_failed_text[] = "the external predictor failed";
static const char missing_layer[] = "a layer of it is missing, or kept apart";

/* The first tensor of a layer and kind in the track; UINT32_MAX: none. */
static uint32_t first_of(const struct kvi_prediction_options *options, uint32_t layer,
                         unsigned kind)
{
	uint32_t end = options->order->first[options->track + 1];
	for (uint32_t i = options->order->first[options->track]; i < end; i++)
		if (kvi_prediction_tensor(options, i)->layer == layer &&
		    kvi_prediction_tensor(options, i)->kind == kind)
			return i;
	return UINT32_MAX;
}

/* Attention rotates with the cache's own frequencies (spec/arithmetic.md 5): one set for each of
 * the model's. */
static bool same_rope(const struct kvi_prediction_options *options,
                      const struct kvi_model_file *file, uint32_t layer, const kvarc_rope *rope)
{
	uint32_t first = 0;
	while (file->layers[first].rope != file->layers[layer].rope)
		first++;
	uint32_t order_index = first_of(options, first, KVARC_KEY);
	const kvarc_rope *other =
		order_index == UINT32_MAX
			? NULL
			: kvi_tensor_rope(options->geometry,
	                                  kvi_prediction_tensor(options, order_index));
	return other && other->rotary == rope->rotary &&
	       !memcmp(other->freq, rope->freq, rope->rotary / 2 * sizeof *rope->freq);
}

static const char *why_no_rope(const struct kvi_prediction_options *options, uint32_t layer,
                               const kvarc_rope *rope)
{
	const struct kvi_model_file *m = kvi_predictor_file(options->predictor);
	if (!m)
		return NULL; /* an external predictor gets keys as they are stored */
	uint32_t rotary = m->n_ropes ? m->ropes[m->layers[layer].rope].rotary : 0;
	if ((rope ? rope->rotary : 0) != rotary)
		return "the RoPE of its keys is not known, or not the model's";
	return rope && !same_rope(options, m, layer, rope)
	               ? "layers that the model turns alike have several RoPEs"
	               : NULL;
}

static const char *why_not(const struct kvi_prediction_options *options, uint32_t layer,
                           unsigned kind)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(options->predictor);
	uint32_t order_index = first_of(options, layer, kind);
	if (order_index == UINT32_MAX)
		return missing_layer;
	const kvarc_tensor *t = kvi_prediction_tensor(options, order_index);
	if (t->heads != m->heads || t->channels != m->channels)
		return "its heads are not those of the model";
	const char *why = kind == KVARC_KEY ? why_no_rope(options, layer,
	                                                  kvi_tensor_rope(options->geometry, t))
	                                    : NULL;
	if (why)
		return why;
	const struct kvi_model_file *file = kvi_predictor_file(options->predictor);
	const struct kvi_planned *p = &options->plan->of[order_index];
	if (file && p->complete && p->model->flags & KVI_MODEL_CORRECTS &&
	    p->model->width != file->width)
		return "the profile corrects a state of another width";
	return p->complete ? NULL : "the profile is not one for it";
}

static kvarc_ret fail_why(const struct kvi_prediction_options *options, uint32_t layer,
                          const char *why, kvarc_error *error)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(options->predictor);
	return kvi_fail(error, KVARC_PREDICTOR,
	                "the model (%s, %u layers of %u x %u) does not "
	                "predict this cache: %s (layer %u)",
	                m->arch, (unsigned)m->layers, (unsigned)m->heads, (unsigned)m->channels,
	                why, (unsigned)layer);
}

kvarc_ret kvi_prediction_fits(const struct kvi_prediction_options *options, kvarc_error *error)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(options->predictor);
	if (kvi_predictor_token_blind(options->predictor) && options->description->closed)
		return kvi_fail(error, KVARC_PREDICTOR,
		                "a predictor without the current token has no closed loop");
	for (uint32_t l = 0; l < m->layers; l++) {
		const char *why = why_not(options, l, KVARC_KEY);
		if (!why)
			why = why_not(options, l, KVARC_VALUE);
		if (why)
			return fail_why(options, l, why, error);
	}
	return KVARC_OK;
}

kvarc_ret kvi_prediction_ropes(const struct kvi_prediction_options *options,
                               const uint64_t *freq[2], kvarc_error *error)
{
	const struct kvi_model_file *m = kvi_predictor_file(options->predictor);
	for (uint32_t l = m->n_layers; l-- > 0;) {
		uint32_t order_index = first_of(options, l, KVARC_KEY);
		const kvarc_rope *rope =
			order_index == UINT32_MAX
				? NULL
				: kvi_tensor_rope(options->geometry,
		                                  kvi_prediction_tensor(options, order_index));
		const char *why = order_index == UINT32_MAX ? missing_layer
		                                            : why_no_rope(options, l, rope);
		if (why)
			return fail_why(options, l, why, error);
		if (rope)
			freq[m->layers[l].rope] = rope->freq;
	}
	return KVARC_OK;
}

static kvarc_ret open_layers(struct kvi_prediction *session)
{
	session->layers = kvi_calloc(session->alloc, session->shape->layers,
	                             sizeof *session->layers);
	if (!session->layers)
		return kvi_alloc_error(session->alloc);
	for (uint32_t l = 0; l < session->shape->layers; l++)
		for (unsigned k = KEY; k < BOTH; k++) {
			uint32_t order_index = first_of(&session->o, l,
			                                k == KEY ? KVARC_KEY : KVARC_VALUE);
			session->layers[l].order_index[k] = order_index;
			session->layers[l].model[k] = session->o.plan->of[order_index].model;
		}
	return KVARC_OK;
}

/* Allocates features, of all layers where a second pass over a segment may need them: they take as
 * much as the keys and values that attention looks at take for 256 tokens. */
static kvarc_ret open_features(struct kvi_prediction *session, unsigned k)
{
	for (uint32_t l = 0; l < session->shape->layers; l++) {
		struct layer *x = &session->layers[l];
		x->f[k] = session->layers[0].f[k];
		if ((l == 0 || session->keeps) &&
		    kvi_features_open(&x->f[k], session->alloc, x->model[k], KVI_SEGMENT_TOKENS))
			return kvi_alloc_error(session->alloc);
	}
	return KVARC_OK;
}

static kvarc_ret open_rooms(struct kvi_prediction *session)
{
	session->keeps = session->o.decodes && session->o.description->closed;
	for (unsigned k = KEY; k < BOTH; k++) {
		session->true_values[k] = kvi_array(session->alloc, KVI_SEGMENT_TOKENS * session->C,
		                                    sizeof(float));
		if (!session->true_values[k])
			return kvi_alloc_error(session->alloc);
		kvarc_ret ret = open_features(session, k);
		if (ret)
			return ret;
	}
	session->scratch = kvi_malloc(session->alloc, kvi_model_correct_bytes(KVI_SEGMENT_TOKENS));
	/* rows of a run are whole blocks of 16 */
	session->turned = kvi_array(session->alloc, session->C + 15, sizeof *session->turned);
	session->channels = kvi_array(session->alloc, session->C, sizeof *session->channels);
	session->elements = kvi_array(session->alloc, session->C, sizeof(float));
	return session->scratch && session->turned && session->channels && session->elements
	               ? KVARC_OK
	               : kvi_alloc_error(session->alloc);
}

static kvarc_ret open_run(struct kvi_prediction *session)
{
	const struct kvi_arithmetic a = { session->o.description->wide_weights,
		                          session->o.description->wide_activations,
		                          session->o.description->fp8 };
	struct kvi_run_options run = { .alloc = session->alloc,
		                       .pool = session->pool,
		                       .isa_mask = session->o.isa_mask,
		                       .kernels = kvi_predictor_kernels(session->o.predictor,
		                                                        session->o.isa_mask) };
	kvarc_ret ret = kvi_prediction_ropes(&session->o, run.freq, NULL);
	if (!ret)
		ret = kvi_predictor_engine(session->o.predictor, &a, session->o.isa_mask,
		                           &run.engine, NULL);
	unsigned blind = kvi_predictor_token_blind(session->o.predictor);
	struct kvi_run *opened = NULL;
	session->ops = blind ? &kvi_prediction_token_blind : &kvi_prediction_model;
	if (!ret && blind)
		return kvi_prediction_token_blind_open(&session->run, &run, blind);
	if (!ret)
		ret = kvi_run_open(&opened, &run);
	session->run = opened;
	return ret;
}

static kvarc_ret open_external(struct kvi_prediction *session)
{
	const struct kvi_external_options o = {
		session->alloc, kvi_predictor_external(session->o.predictor),
		session->external = kvi_calloc(session->alloc, session->shape->layers,
		                               sizeof *session->external)
	};
	if (!session->external)
		return kvi_alloc_error(session->alloc);
	for (uint32_t l = 0; l < session->shape->layers; l++)
		session->external[l] = (struct kvi_external_layer){
			session->layers[l].model[KEY],
			kvi_tensor_rope(session->o.geometry,
			                kvi_prediction_tensor(&session->o,
			                                      session->layers[l].order_index[KEY]))
		};
	session->ops = &kvi_prediction_external;
	return kvi_external_open(&session->run, &o);
}

static kvarc_ret open_all(struct kvi_prediction *session)
{
	if (pthread_mutex_init(&session->lock, NULL))
		return KVARC_MEM;
	session->has_lock = true;
	if (pthread_cond_init(&session->changed, NULL))
		return KVARC_MEM;
	session->has_changed = true;
	kvarc_ret ret = kvi_pool_open(&session->pool, session->alloc, session->o.threads);
	if (!ret)
		ret = open_layers(session);
	if (!ret)
		ret = open_rooms(session);
	if (ret)
		return ret;
	return session->file ? open_run(session) : open_external(session);
}

kvarc_ret kvi_prediction_open(struct kvi_prediction **out,
                              const struct kvi_prediction_options *options, kvarc_error *error)
{
	const struct kvi_alloc *alloc = kvi_predictor_alloc(options->predictor);
	struct kvi_prediction *g = kvi_calloc(alloc, 1, sizeof *g);
	*out = NULL;
	if (!g)
		return kvi_fail_alloc(error, alloc);
	g->o = *options;
	g->alloc = alloc;
	g->file = kvi_predictor_file(options->predictor);
	g->shape = kvi_predictor_shape(options->predictor);
	g->limit = g->shape->layers;
	g->lost_t0 = UINT64_MAX;
	g->lost_from = SIZE_MAX;
	g->ret = KVARC_DATA;
	g->kernels = kvi_kernels_get(options->isa_mask);
	g->C = (size_t)g->shape->heads * g->shape->channels;
	kvarc_ret ret = open_all(g);
	if (ret)
		kvi_prediction_close(g);
	else
		*out = g;
	return ret == KVARC_PREDICTOR && !kvi_predictor_file(options->predictor)
	               ? kvi_fail(error, ret, "%s", kvi_prediction_failed_text)
	               : kvi_fail_memory(error, ret, alloc);
}

void kvi_prediction_close(struct kvi_prediction *session)
{
	if (!session)
		return;
	const bool inherited =
		kvi_pool_inherited(session->pool); /* threads that do not exist may wait */
	if (session->run)
		session->ops->close(session->run);
	kvi_pool_close(session->pool);
	for (unsigned k = KEY; k < BOTH; k++) {
		kvi_free(session->alloc, session->true_values[k]);
		for (size_t l = 0; session->layers && l < session->shape->layers; l++)
			if (l == 0 || session->keeps)
				kvi_features_close(session->layers[l].f[k], session->alloc);
	}
	kvi_free(session->alloc, session->layers);
	kvi_free(session->alloc, session->external);
	kvi_free(session->alloc, session->scratch);
	kvi_free(session->alloc, session->turned);
	kvi_free(session->alloc, session->channels);
	kvi_free(session->alloc, session->elements);
	if (session->has_changed && !inherited)
		pthread_cond_destroy(&session->changed);
	if (session->has_lock && !inherited)
		pthread_mutex_destroy(&session->lock);
	kvi_free(session->alloc, session);
}
