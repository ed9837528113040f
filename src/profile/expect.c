/* SPDX-License-Identifier: BSD-3-Clause */
/* expect.c - between a transformer's floats and the integers of codec model (spec model) */
#include "expect.h"

#include <string.h>

/* 2^e, -126..127 */
static inline float power(int e)
{
	uint32_t bits = (uint32_t)(127 + e) << 23;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

void kvi_model_expect(const struct kvi_model *model, const float *p, size_t stride, size_t n,
                      int16_t *expected)
{
	for (size_t t = 0; t < n; t++, p += stride, expected += model->C)
		for (size_t c = 0; c < model->C; c++)
			expected[c] = kvi_expected(p[c] * power(-model->step[c]));
}

uint64_t kvi_expected_hash(const struct kvi_linear_in *in)
{
	return kvi_h64_i16(in->expected, in->model->C * in->n_tokens);
}

uint64_t kvi_expected_check(const struct kvi_linear_in *in)
{
	uint8_t hash[(KVI_SAME_MAX + 2) * sizeof(uint64_t)], *at = hash;
	for (unsigned i = 0; i < in->model->n_same; i++, at += sizeof(uint64_t))
		kvi_store64(at, in->same[i]->expected_hash);
	if (in->model->scale_source) {
		kvi_store64(at, in->scale->expected_hash);
		at += sizeof(uint64_t);
	}
	kvi_store64(at, kvi_expected_hash(in));
	return kvi_h64(hash, (size_t)(at - hash) + sizeof(uint64_t));
}

/* Channels of the state that are corrected together. */
enum { STRETCH = 32 };

size_t kvi_model_correct_bytes(size_t n)
{
	return kvi_padded_tokens(n) * STRETCH * sizeof(int32_t);
}

/* A tensor's features, of all heads, from a token on. */
static struct kvi_rows_part part_of(const struct kvi_model *model,
                                    const struct kvi_features *features, size_t first)
{
	size_t slots = model->heads * kvi_head_stride(model), step = slots * KVI_LANES;
	return (struct kvi_rows_part){ features->r + first / KVI_LANES * step, slots / 2, step };
}

/* h + root * (f(S) * 2^-e) of one token; a sum every KVI_LANES. */
static void add_sums(float *h, float root, const int32_t *sum, const uint8_t *e, size_t rows)
{
	for (size_t k = 0; k < rows; k++) {
		float s = (float)sum[k * KVI_LANES] * power(-(int)e[k]);
		float d = root * s;
		h[k] = h[k] + d;
	}
}

void kvi_model_correct(const struct kvi_model *model, const struct kvi_features *const same[],
                       const struct kvi_features *own, const struct kvi_kernels *kernels, float *h,
                       size_t h_stride, const float *root, size_t first, size_t n, void *scratch)
{
	static const uint8_t no_shift[STRETCH];
	struct kvi_rows_part part[KVI_SAME_MAX + 1];
	int32_t *sum = scratch;
	struct kvi_rows r = {
		.sum = sum,
		.q = no_shift,
		.part = part,
		.n_parts = model->n_same + 1,
		.steps = kvi_padded_tokens(n) / KVI_LANES,
		.coef_row = model->d_stride,
	};
	for (unsigned k = 0; k < model->n_same; k++)
		part[k] = part_of(model->same[k].model, same[k], first);
	part[model->n_same] = part_of(model, own, first);
	for (size_t i = 0; i < model->width; i += STRETCH) {
		r.rows = model->width - i < STRETCH ? model->width - i : STRETCH;
		r.sum_step = r.rows * KVI_LANES;
		r.coef = model->d + i * model->d_stride;
		kernels->slots.slot_rows(&r);
		for (size_t t = 0; t < n; t++)
			add_sums(h + (first + t) * h_stride + i, root[first + t],
			         sum + t / KVI_LANES * r.sum_step + t % KVI_LANES, model->e + i,
			         r.rows);
	}
}
