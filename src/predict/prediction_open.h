/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_open.h - prediction sessions: their engines, and which tracks a model can have made */
#ifndef KVI_PREDICTION_OPEN_H
#define KVI_PREDICTION_OPEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "predictor_handle.h"
#include "exact/engine.h"
#include "format/segment.h"
#include "profile/linear_model.h"
#include "profile/profile_io.h"

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

/* A layer's keys: their slots, and the RoPE that was applied to them; NULL: none. */
struct kvi_external_layer {
	const struct kvi_model *model;
	const kvarc_rope *rope;
};

#endif
