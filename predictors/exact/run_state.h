/* SPDX-License-Identifier: BSD-3-Clause */
/* run_state.h - a run's insides, shared by its own sources */
#ifndef KVI_RUN_STATE_H
#define KVI_RUN_STATE_H

#include "exact/engine_internal.h"
#include "exact/round.h"
#include "numeric/rope_angles.h"

/* A sequence of tokens on its way through an engine. */
struct kvi_run {
	struct kvi_run_options o;
	const struct kvi_model_file *m;
	const struct kvi_exact_kernels *kernels;
	const struct kvi_elementwise *elementwise;
	const struct kvi_grid_format *format; /* format to round to; NULL: exact arithmetic */
	float *ones;                          /* gains, when the norm is rounded before its own */
	size_t n, before, layer;
	const size_t *at;             /* candidates: indices of their tokens; NULL: a segment */
	size_t width, kv, heads, ffn; /* floats of a row, whole operand blocks */
	float *h, *x, *k, *v, *q, *attended, *gate, *up, *root;
	void *activations;
	struct kvi_activations a; /* integers of the rows that were quantised last */
	const float *quantised;
	struct kvi_rotations turns[2];
	void *rotations_memory[2];
	struct kvi_cache *caches; /* caches by layer and lane; the last layer's if it is run */
	uint8_t *scratch;         /* memory of attention, by worker */
	size_t scratch_bytes;
};

/* The current layer. */
static inline const struct kvi_engine_layer *kvi_run_layer(const struct kvi_run *r)
{
	return &r->o.engine->layers[r->layer];
}

/* Number of sequences side by side, at least 1. */
static inline size_t kvi_run_lanes(const struct kvi_run *r)
{
	return r->o.lanes ? r->o.lanes : 1;
}

/* Rounds n numbers as an engine in the run's dtype does; nothing in exact arithmetic. */
static inline void kvi_run_round(const struct kvi_run *r, float *x, size_t n)
{
	if (r->format)
		kvi_round_floats(x, n, r->format);
}

#endif
