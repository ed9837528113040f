/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_engine.h - what a prediction session drives through a track: a model in exact
 * arithmetic, or the predictor of an application (kvarc/predictor.h) */
#ifndef KVI_PREDICTION_ENGINE_H
#define KVI_PREDICTION_ENGINE_H

#include "format/segment.h"
#include "predictor_handle.h"
#include "profile/linear_model.h"

/* The functions of a run, which do what those of engine.h with these names do; one call at a
 * time. */
struct kvi_prediction_ops {
	kvarc_ret (*segment)(void *run, const struct kvi_segment *s);
	kvarc_ret (*again)(void *run, const struct kvi_segment *s);
	kvarc_ret (*predict)(void *run, struct kvi_predicted *p);
	/* Returns a token's predicted keys as a cache has them, after RoPE, in fp32: a row of p, or
	 * buffer. */
	const float *(*keys)(void *run, const struct kvi_predicted *p, size_t t, float *buffer);
	/* Advances through the layer; keys are in slots for an engine, in the order of channels for
	 * an external predictor. */
	kvarc_ret (*advance)(void *run, const float *k, const float *v, size_t stride,
	                     bool corrected);
	/* Applies RoPE to the keys of p, in place; NULL: attention does not use them. */
	void (*rotate)(void *run, struct kvi_predicted *p);
	kvarc_ret (*restart)(void *run);
	/* Rewinds to the first `tokens` tokens; NULL: the predictor cannot rewind. */
	kvarc_ret (*rewind)(void *run, uint64_t tokens);
	void (*close)(void *run);
};
extern const struct kvi_prediction_ops kvi_prediction_model; /* run: struct kvi_run */
extern const struct kvi_prediction_ops kvi_prediction_external;
extern const struct kvi_prediction_ops kvi_prediction_token_blind;

/* A layer's keys: their slots, and the RoPE that was applied to them; NULL: none. */
struct kvi_external_layer {
	const struct kvi_model *model;
	const kvarc_rope *rope;
};
/* Options of a sequence of an external predictor. */
struct kvi_external_options {
	const struct kvi_alloc *alloc;
	const kvarc_external *external;
	const struct kvi_external_layer *layers;
};
/* Opens a run for kvi_prediction_token_blind. On failure *run is NULL. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_prediction_token_blind_open(void **run, const struct kvi_run_options *options,
                                          unsigned blind);
/* Opens a sequence of an external predictor, for kvi_prediction_external. On failure *run is NULL.
 * Returns OK, MEM, MEMLIMIT, PREDICTOR (the predictor's open failed). */
kvarc_ret kvi_external_open(void **run, const struct kvi_external_options *options);

#endif
