/* SPDX-License-Identifier: BSD-3-Clause */
/* elementwise.c - elementwise.h for any processor, and the choice between sets */
#include "config.h"

#include "kernels/rans.h"
#include "exact/elementwise_body.h"

KVI_ELEMENTWISE(kvi_elementwise_scalar);

const struct kvi_elementwise *kvi_elementwise_get(uint32_t isa_mask)
{
	switch (kvi_kernels_get(isa_mask)->isa) {
#if defined(KVI_AVX512)
	case KVARC_ISA_AVX512:
		return &kvi_elementwise_avx512;
#endif
#if defined(KVI_AVX2)
	case KVARC_ISA_AVX2:
		return &kvi_elementwise_avx2;
#endif
	default:
		return &kvi_elementwise_scalar;
	}
}
