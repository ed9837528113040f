/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_open.c - prediction sessions: their engines, and which tracks a model can have made */
#include "prediction_open.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "prediction_state.h"
#include "numeric/formats.h"
#include "token_blind/token_blind.h"
#include "util/error.h"
#include "util/fpmode.h"

/* ==== Predicted elements, bit for bit (spec predicted 1) ==== */

/* A model's keys from slots into the order of channels. */
static const float *in_channels(struct kvi_prediction *session, const kvarc_tensor *tensor,
                                const float *x)
{
	const struct kvi_model *m = session->layers[session->layer].model[KEY];
	const kvarc_rope *rope = kvi_tensor_rope(session->o.geometry, tensor);
	for (size_t c = 0; c < tensor->channels; c++) {
		size_t to = kvi_slot_channel(m, rope, c);
		for (size_t i = 0; i < session->C; i += tensor->channels)
			session->channels[i + to] = x[i + c];
	}
	return session->channels;
}

static void of_token(struct kvi_prediction *session, const kvarc_tensor *tensor, size_t token,
                     uint8_t *to)
{
	const float *x = session->p.v + token * session->p.stride;
	if (tensor->kind == KVARC_KEY)
		x = session->ops->keys(session->run, &session->p, token, session->turned);
	if (tensor->kind == KVARC_KEY && session->file)
		x = in_channels(session, tensor, x);
	kvi_floats_store(tensor->dtype, x, session->C, to);
}

void kvi_prediction_elements(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             uint8_t *to)
{
	size_t row = session->C * kvarc_dtype_bytes(tensor->dtype);
	for (size_t i = 0; i < session->n; i++)
		of_token(session, tensor, i, to + i * row);
}

bool kvi_prediction_is_exact(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             const uint8_t *raw)
{
	size_t row = session->C * kvarc_dtype_bytes(tensor->dtype);
	for (size_t i = 0; i < session->n; i++) {
		of_token(session, tensor, i, session->elements);
		if (memcmp(session->elements, raw + i * row, row))
			return false;
	}
	return kvi_floats_finite(tensor->dtype, raw, session->n * session->C);
}

/* ==== Models and predictors of applications behind one table of functions ==== */

/* Options of a sequence of an external predictor. */
struct external_options {
	const struct kvi_alloc *alloc;
	const kvarc_external *external;
	const struct kvi_external_layer *layers;
};

/* ---- a model ---- */

static kvarc_ret exact_segment(void *run, const struct kvi_segment *segment)
{
	return kvi_run_segment(run, segment->ids, segment->positions, segment->n);
}

static kvarc_ret exact_again(void *run, const struct kvi_segment *segment)
{
	return kvi_run_again(run, segment->ids, segment->positions);
}

static kvarc_ret exact_predict(void *run, struct kvi_predicted *predicted)
{
	*predicted = kvi_run_predict(run);
	return KVARC_OK;
}

static const float *exact_keys(void *opaque, const struct kvi_predicted *predicted, size_t t,
                               float *buffer)
{
	const struct kvi_run *run = opaque;
	memcpy(buffer, predicted->k + t * predicted->stride, predicted->stride * sizeof *buffer);
	kvi_run_rotate_row(run, t, buffer);
	return buffer;
}

static kvarc_ret exact_advance(void *run, const float *k, const float *v, size_t stride,
                               bool corrected)
{
	return kvi_run_advance(run, k, v, stride, corrected);
}

static void exact_rotate(void *run, struct kvi_predicted *predicted)
{
	kvi_run_rotate(run, predicted->k, predicted->stride);
}

static kvarc_ret exact_restart(void *run)
{
	kvi_run_restart(run);
	return KVARC_OK;
}

static kvarc_ret exact_rewind(void *run, uint64_t tokens)
{
	kvi_run_rewind(run, (size_t)tokens);
	return KVARC_OK;
}

static void exact_close(void *opaque)
{
	struct kvi_run *run = opaque;
	kvi_run_close(&run);
}

static const struct kvi_prediction_ops prediction_model = {
	exact_segment, exact_again,   exact_predict, exact_keys, exact_advance,
	exact_rotate,  exact_restart, exact_rewind,  exact_close
};

/* ---- a model that does not see the token ---- */

struct blind_run {
	const struct kvi_alloc *alloc;
	struct kvi_token_blind *b;
	uint32_t layer;
};

/* Opens a run for prediction_token_blind. On failure *run is NULL. Returns OK, MEM,
 * MEMLIMIT. */
static kvarc_ret prediction_token_blind_open(void **run, const struct kvi_run_options *options,
                                                 unsigned blind)
{
	struct blind_run *r = kvi_calloc(options->alloc, 1, sizeof *r);
	*run = NULL;
	if (!r)
		return kvi_alloc_error(options->alloc);
	r->alloc = options->alloc;
	kvarc_ret ret = kvi_token_blind_open(&r->b, options, blind);
	if (ret)
		kvi_free(options->alloc, r);
	else
		*run = r;
	return ret;
}

static kvarc_ret blind_segment(void *run, const struct kvi_segment *segment)
{
	struct blind_run *r = run;
	r->layer = 0;
	return kvi_token_blind_segment(r->b, segment->ids, segment->positions, segment->n);
}

/* Fails: a run without the current token has no scalar arithmetic to repeat the segment in. */
static kvarc_ret blind_again(void *run, const struct kvi_segment *segment)
{
	(void)run;
	(void)segment;
	return KVARC_PREDICTOR;
}

static kvarc_ret blind_predict(void *run, struct kvi_predicted *predicted)
{
	struct blind_run *r = run;
	*predicted = kvi_token_blind_predict(r->b, r->layer);
	return KVARC_OK;
}

static const float *blind_keys(void *run, const struct kvi_predicted *predicted, size_t t,
                               float *buffer)
{
	const struct blind_run *r = run;
	memcpy(buffer, predicted->k + t * predicted->stride, predicted->stride * sizeof *buffer);
	kvi_token_blind_rotate_row(r->b, t, buffer);
	return buffer;
}

/* Moves to the next layer: kvi_token_blind_segment has predicted all of them. */
static kvarc_ret blind_advance(void *run, const float *k, const float *v, size_t stride,
                               bool corrected)
{
	struct blind_run *r = run;
	(void)k, (void)v, (void)stride, (void)corrected;
	r->layer++;
	return KVARC_OK;
}

static kvarc_ret blind_restart(void *run)
{
	struct blind_run *r = run;
	kvi_token_blind_restart(r->b);
	return KVARC_OK;
}

static void blind_close(void *run)
{
	struct blind_run *r = run;
	kvi_token_blind_close(&r->b);
	kvi_free(r->alloc, r);
}

static const struct kvi_prediction_ops prediction_token_blind = {
	blind_segment, blind_again,   blind_predict, blind_keys, blind_advance,
	NULL,          blind_restart, NULL,          blind_close
};

/* ---- an application's ---- */

struct external_run {
	struct external_options o;
	const kvarc_external *x;
	void *sequence;
	size_t C, n;
	uint32_t layer;
	float *k, *v, *slots; /* KVI_SEGMENT_TOKENS rows; k, v: as the application gives them */
	int32_t positions[KVI_SEGMENT_TOKENS];
	struct kvi_rotations turns;
	void *rotations_memory;
};

static void external_close(void *opaque)
{
	struct external_run *r = opaque;
	const struct kvi_alloc *alloc = r->o.alloc;
	if (r->sequence)
		r->x->close(r->sequence);
	kvi_free(alloc, r->k);
	kvi_free(alloc, r->v);
	kvi_free(alloc, r->slots);
	kvi_free(alloc, r->rotations_memory);
	kvi_free(alloc, r);
}

static size_t turns_bytes(const struct external_options *options)
{
	size_t most = 0;
	for (uint32_t l = 0; l < options->external->layers; l++) {
		const kvarc_rope *rope = options->layers[l].rope;
		size_t n = rope ? kvi_rotations_bytes(rope->rotary / 2, KVI_SEGMENT_TOKENS) : 0;
		most = n > most ? n : most;
	}
	return most;
}

static kvarc_ret open_engine_rooms(struct external_run *r)
{
	const struct kvi_alloc *alloc = r->o.alloc;
	size_t row = r->C * sizeof(float), turns = turns_bytes(&r->o);
	r->k = kvi_array(alloc, KVI_SEGMENT_TOKENS, row);
	r->v = kvi_array(alloc, KVI_SEGMENT_TOKENS, row);
	r->slots = kvi_array(alloc, KVI_SEGMENT_TOKENS, row);
	r->rotations_memory = turns ? kvi_malloc(alloc, turns) : NULL;
	return r->k && r->v && r->slots && (r->rotations_memory || !turns) ? KVARC_OK
	                                                                   : kvi_alloc_error(alloc);
}

/* Opens a sequence of an external predictor, for prediction_external. On failure *run is NULL.
 * Returns OK, MEM, MEMLIMIT, PREDICTOR (the predictor's open failed). */
static kvarc_ret external_open(void **run, const struct external_options *options)
{
	struct external_run *r = kvi_calloc(options->alloc, 1, sizeof *r);
	*run = NULL;
	if (!r)
		return kvi_alloc_error(options->alloc);
	r->o = *options;
	r->x = options->external;
	r->C = (size_t)r->x->heads * r->x->channels;
	kvarc_ret ret = open_engine_rooms(r);
	if (!ret && r->x->open(r->x->opaque, &r->sequence)) {
		r->sequence = NULL;
		ret = KVARC_PREDICTOR;
	}
	if (ret)
		external_close(r);
	else
		*run = r;
	return ret;
}

static kvarc_ret answer(int failed)
{
	return failed ? KVARC_PREDICTOR : KVARC_OK;
}

static kvarc_ret external_segment(void *opaque, const struct kvi_segment *segment)
{
	struct external_run *r = opaque;
	r->n = segment->n;
	r->layer = 0;
	memcpy(r->positions, segment->positions, segment->n * sizeof *r->positions);
	return answer(r->x->segment(r->sequence, segment->ids, segment->positions, segment->n));
}

/* Fails: an external predictor cannot repeat a segment in other arithmetic. */
static kvarc_ret external_again(void *opaque, const struct kvi_segment *segment)
{
	(void)opaque;
	(void)segment;
	return KVARC_PREDICTOR;
}

/* Removes the RoPE of the cache (spec model 5). */
static void turn_back(struct external_run *r, const kvarc_rope *rope)
{
	if (!kvi_rotations_equal(&r->turns, rope, r->positions, r->n))
		kvi_rotations_make(&r->turns, r->rotations_memory, rope, r->positions, r->n);
	for (size_t t = 0; t < r->n; t++)
		for (size_t h = 0; h < r->x->heads; h++) {
			float *x = r->slots + t * r->C + h * r->x->channels;
			const int16_t *turn = r->turns.turn + 2 * t;
			for (size_t p = 0; p < r->turns.pairs; p++, x += 2) {
				float c = (float)turn[0] * 0x1p-14f;
				float s = (float)turn[1] * 0x1p-14f;
				float a = x[0], b = x[1];
				x[0] = a * c + b * s;
				x[1] = b * c - a * s;
				turn += 2 * r->turns.tokens_capacity;
			}
		}
}

static kvarc_ret external_predict(void *opaque, struct kvi_predicted *predicted)
{
	struct external_run *r = opaque;
	const struct kvi_external_layer *l = &r->o.layers[r->layer];
	size_t hd = r->x->channels;
	if (r->x->predict(r->sequence, r->layer, r->k, r->v))
		return KVARC_PREDICTOR;
	uint64_t mode = kvi_fp_exact();
	for (size_t i = 0; i < r->n * r->x->heads; i++)
		for (size_t c = 0; c < hd; c++)
			r->slots[i * hd + c] =
				r->k[i * hd + kvi_slot_channel(l->model, l->rope, c)];
	if (l->rope)
		turn_back(r, l->rope);
	kvi_fp_restore(mode);
	*predicted = (struct kvi_predicted){ r->slots, r->v, r->C };
	return KVARC_OK;
}

static const float *external_keys(void *opaque, const struct kvi_predicted *predicted, size_t t,
                                  float *buffer)
{
	const struct external_run *r = opaque;
	(void)predicted; /* RoPE was removed */
	(void)buffer;
	return r->k + t * r->C;
}

static kvarc_ret external_advance(void *opaque, const float *k, const float *v, size_t stride,
                                  bool corrected)
{
	struct external_run *r = opaque;
	(void)stride; /* rows follow each other */
	(void)corrected;
	return answer(r->x->advance(r->sequence, r->layer++, k, v));
}

static kvarc_ret external_restart(void *opaque)
{
	struct external_run *r = opaque;
	return answer(r->x->restart(r->sequence));
}

static const struct kvi_prediction_ops prediction_external = {
	external_segment, external_again, external_predict, external_keys, external_advance, NULL,
	external_restart, NULL,           external_close
};

/* ==== Whether a model could have made a track, and what a prediction session of it needs ==== */

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

static kvarc_ret open_track_rooms(struct kvi_prediction *session)
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
	session->ops = blind ? &prediction_token_blind : &prediction_model;
	if (!ret && blind)
		return prediction_token_blind_open(&session->run, &run, blind);
	if (!ret)
		ret = kvi_run_open(&opened, &run);
	session->run = opened;
	return ret;
}

static kvarc_ret open_external(struct kvi_prediction *session)
{
	const struct external_options o = {
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
	session->ops = &prediction_external;
	return external_open(&session->run, &o);
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
		ret = open_track_rooms(session);
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
