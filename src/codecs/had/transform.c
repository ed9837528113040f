/* SPDX-License-Identifier: BSD-3-Clause */
/* transform.c - transform.h for any processor, and the choice between sets */
#include "config.h"

#include "codecs/had/transform_body.h"

KVI_TRANSFORM(kvi_transform_scalar, "scalar");

const struct kvi_transform *kvi_transform_get(uint32_t isa_mask)
{
	switch (kvi_kernels_get(isa_mask)->isa) {
#if defined(KVI_AVX512)
	case KVARC_ISA_AVX512:
		return &kvi_transform_avx512;
#endif
#if defined(KVI_AVX2)
	case KVARC_ISA_AVX2:
		return &kvi_transform_avx2;
#endif
	default:
		return &kvi_transform_scalar;
	}
}
