/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_engine.c - models and predictors of applications behind one table of functions */
#include "prediction_engine.h"

#include <string.h>

#include "token_blind/token_blind.h"
#include "util/fpmode.h"

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

const struct kvi_prediction_ops kvi_prediction_model = {
	exact_segment, exact_again,   exact_predict, exact_keys, exact_advance,
	exact_rotate,  exact_restart, exact_rewind,  exact_close
};

/* ---- a model that does not see the token ---- */

struct blind_run {
	const struct kvi_alloc *alloc;
	struct kvi_token_blind *b;
	uint32_t layer;
};

kvarc_ret kvi_prediction_token_blind_open(void **run, const struct kvi_run_options *options,
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

const struct kvi_prediction_ops kvi_prediction_token_blind = {
	blind_segment, blind_again,   blind_predict, blind_keys, blind_advance,
	NULL,          blind_restart, NULL,          blind_close
};

/* ---- an application's ---- */

struct external_run {
	struct kvi_external_options o;
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

static size_t turns_bytes(const struct kvi_external_options *options)
{
	size_t most = 0;
	for (uint32_t l = 0; l < options->external->layers; l++) {
		const kvarc_rope *rope = options->layers[l].rope;
		size_t n = rope ? kvi_rotations_bytes(rope->rotary / 2, KVI_SEGMENT_TOKENS) : 0;
		most = n > most ? n : most;
	}
	return most;
}

static kvarc_ret open_rooms(struct external_run *r)
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

kvarc_ret kvi_external_open(void **run, const struct kvi_external_options *options)
{
	struct external_run *r = kvi_calloc(options->alloc, 1, sizeof *r);
	*run = NULL;
	if (!r)
		return kvi_alloc_error(options->alloc);
	r->o = *options;
	r->x = options->external;
	r->C = (size_t)r->x->heads * r->x->channels;
	kvarc_ret ret = open_rooms(r);
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

const struct kvi_prediction_ops kvi_prediction_external = {
	external_segment, external_again, external_predict, external_keys, external_advance, NULL,
	external_restart, NULL,           external_close
};
