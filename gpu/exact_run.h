/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exact_run.h - the host's part: the jobs that take all tokens of a sequence through the layers of
 * a model, one after the other (spec/arithmetic.md 8)
 */
#ifndef KVI_GPU_EXACT_RUN_H
#define KVI_GPU_EXACT_RUN_H

#include <kvarc.h>

#include "exact_model.h"

/* A job of exact_job.h, and the kernel for it. */
enum kvi_gpu_exact_kind {
	KVI_GPU_EXACT_QUANTISE,
	KVI_GPU_EXACT_VALUES,
	KVI_GPU_EXACT_PRODUCT,
	KVI_GPU_EXACT_EMBED,
	KVI_GPU_EXACT_NORM,
	KVI_GPU_EXACT_ROTATE,
	KVI_GPU_EXACT_ROWS,
	KVI_GPU_EXACT_ATTENTION
};
/* See kvi_gpu_exact_kind. */
struct kvi_gpu_exact_step {
	enum kvi_gpu_exact_kind kind;
	union {
		struct kvi_gpu_quantise quantise;
		struct kvi_gpu_values values;
		struct kvi_gpu_product product;
		struct kvi_gpu_embed embed;
		struct kvi_gpu_norm norm;
		struct kvi_gpu_rotate rotate;
		struct kvi_gpu_rows rows;
		struct kvi_gpu_attention attention;
	} job;
};
/* Runs a job, or queues it. What is not OK ends the run. */
typedef kvarc_ret (*kvi_gpu_exact_do)(void *opaque, const struct kvi_gpu_exact_step *step);

/* Rows of integers in memory: two where they have more than 8 bits, scales, and sums of groups. */
struct kvi_gpu_integers {
	uint64_t to[2], scale, sum;
};

/*
 * A sequence. The caller sets the first members, kvi_gpu_exact_place the others. Rows of all tokens
 * come one after the other: h and x have `width` numbers a token, predicted k and v `kv`, root one.
 */
struct kvi_gpu_exact_run {
	const struct kvi_gpu_exact_model *m;
	uint32_t tokens; /* not 0 */
	/* ids, and positions where the model has a table of them: i32[tokens]; turns of the model's
	 * ropes: kvi_rotations, `capacity` tokens a pair */
	uint64_t ids, positions, turns[2];
	uint32_t capacity;
	kvi_gpu_exact_do run_step;
	void *opaque;

	uint32_t width, kv, heads, ffn; /* numbers of rows: whole 16 */
	uint64_t h, x, k, v, root;
	uint64_t q, attended, gate, up;
	struct kvi_gpu_integers activations, query, key, value;

	kvarc_ret ret;
	/* The quantised input that the activations are of; x 0: of none. */
	struct kvi_gpu_quantise quantised;
};

/* Lays a run of r->tokens tokens of r->m into memory at `base`, a multiple of 16: of the returned
 * size. 0: an array would have 2^32 bytes. */
uint64_t kvi_gpu_exact_place(struct kvi_gpu_exact_run *r, uint64_t base);
/* Tokens come to the first layer. Returns what r->run_step returned, as the next ones do. */
kvarc_ret kvi_gpu_exact_begin(struct kvi_gpu_exact_run *r);
/* Rows k and v of a layer: keys in slots before RoPE. */
kvarc_ret kvi_gpu_exact_predict(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l);
/* Applies RoPE to keys of all tokens in place; stride: numbers from row to row. */
kvarc_ret kvi_gpu_exact_turn(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l,
                             uint64_t k, uint32_t stride);
/* Through the layer, with rows of its keys (in slots, with RoPE) and values of all tokens;
 * corrected: h has changed since the prediction. */
kvarc_ret kvi_gpu_exact_advance(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l,
                                uint64_t k, uint64_t v, uint32_t stride, bool corrected);

#endif
