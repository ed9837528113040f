/* SPDX-License-Identifier: BSD-3-Clause */
/* train_kernels.c - the trainer's loops in C, and the choice between sets */
#include "config.h"
#include "kernels/rans.h"

#define BYTES 16
#include "train_kernels_body.h"

static void gram(int64_t sums[16], const int16_t *a, const int16_t *b, size_t stride, size_t n)
{
	enum { PART = 64 };
	for (size_t i = 0; i < KVI_GRAM_TILE; i++)
		for (size_t j = 0; j < KVI_GRAM_TILE; j++) {
			const int16_t *x = a + i * stride, *y = b + j * stride;
			int64_t sum = 0;
			for (size_t t = 0; t < n; t += PART) {
				int32_t part = 0;
				for (size_t v = t; v < t + PART; v++)
					part += x[v] * y[v];
				sum += part;
			}
			sums[i * KVI_GRAM_TILE + j] = sum;
		}
}

const struct kvi_train_kernels kvi_train_kernels_scalar = KERNELS;

const struct kvi_train_kernels *kvi_train_kernels_get(uint32_t isa_mask)
{
	switch (kvi_kernels_get(isa_mask)->isa) {
#if defined(KVI_AVX512)
	case KVARC_ISA_AVX512:
		return &kvi_train_kernels_avx512;
#endif
#if defined(KVI_AVX2)
	case KVARC_ISA_AVX2:
		return &kvi_train_kernels_avx2;
#endif
	default:
		return &kvi_train_kernels_scalar;
	}
}
