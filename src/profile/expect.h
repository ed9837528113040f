/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * expect.h - between a transformer's floats and the integers of codec model
 * (spec/codecs/model.md 2 to 4)
 *
 * The caller has set rounding to nearest with subnormals (util/fpmode.h).
 */
#ifndef KVI_EXPECT_H
#define KVI_EXPECT_H

#include "linear_model.h"

/* E of a prediction in units of 2^step. */
static inline int16_t kvi_expected(float q)
{
	const float rounds = 12582912.0f; /* 1.5 x 2^23 (spec arithmetic 1) */
	q = q > KVI_UNIT_MAX ? KVI_UNIT_MAX : q;
	q = q < -KVI_UNIT_MAX ? -KVI_UNIT_MAX : q;
	q = q == q ? q : 0; /* NaN */
	return (int16_t)(int32_t)((q + rounds) - rounds);
}

/* E of n tokens: expected[t * model->C + c] of p[t * stride + c]. */
void kvi_model_expect(const struct kvi_model *model, const float *p, size_t stride, size_t n,
                      int16_t *expected);

/* The check of a payload (spec model 4): of E, in->expected, and of the E that the features of the
 * model's sources were made with. All sources are there. */
uint64_t kvi_expected_check(const struct kvi_linear_in *in);
/* H64 of E of a chunk. */
uint64_t kvi_expected_hash(const struct kvi_linear_in *in);

/* Scratch memory, 64-aligned, for kvi_model_correct of n tokens. */
size_t kvi_model_correct_bytes(size_t n);
/*
 * Corrects the hidden state by a model with KVI_MODEL_CORRECTS: for each t from first, a multiple
 * of 32, to first + n, the model->width numbers at h[t * h_stride]. t counts as in the features,
 * which are of a whole segment: same[i] are those of the sources in model->same, own those of the
 * model's tensor. root[t]: the root of the norm of token t. Several threads may correct different
 * tokens.
 */
void kvi_model_correct(const struct kvi_model *model, const struct kvi_features *const same[],
                       const struct kvi_features *own, const struct kvi_kernels *kernels, float *h,
                       size_t h_stride, const float *root, size_t first, size_t n, void *scratch);

#endif
