/* SPDX-License-Identifier: BSD-3-Clause */
/* klt_predict.h - predicts elements of the codec klt from decoded tensors of lower layers (spec klt
 * 2) */
#ifndef KVI_KLT_PREDICT_H
#define KVI_KLT_PREDICT_H

#include "codecs/had/transform.h"
#include "codecs/lossy/lossy_codec.h"
#include "profile/linear_model.h"

/* The prediction of a chunk's coefficients from decoded tensors of lower layers. */
struct kvi_klt_below {
	const struct kvi_coder_job *job;
	const struct kvi_linear_in *in;
	const struct kvi_kernels *kernels;
	const struct kvi_transform *transform;
	struct kvi_rows_part all[KVI_LOWER_MAX]; /* of a block: all heads of the sources */
	int16_t *rows[KVI_LOWER_MAX];            /* buffers for blocks that are gathered */
	int32_t *sums;                           /* of a head */
	float *unit;                             /* of slots, C */
	int16_t *expected; /* of a block, in those units: C rows of KVI_LANES */
};

/* 2^e, -149..127; 0 for others */
float kvi_klt_power(int e);

/* Whether all sources of the linear model of a KLT profile are there. */
bool kvi_klt_has_sources(const struct kvi_linear_in *in);
/* Returns OK, MEM, MEMLIMIT. With a model without sources the other functions do nothing. */
kvarc_ret kvi_klt_below_open(struct kvi_klt_below *b, struct kvi_coder *c,
                             const struct kvi_coder_job *job);
/* The 32 tokens of the job from `first` on. */
void kvi_klt_below_tile(struct kvi_klt_below *b, size_t first);
/* Predicts the slots of a head of these tokens. */
void kvi_klt_below_head(struct kvi_klt_below *b, size_t head);
/* Adds the predicted slots of a head to x, rows of KVI_LANES, or subtracts them. */
void kvi_klt_below_add(const struct kvi_klt_below *b, size_t head, bool minus, float *x);

#endif
