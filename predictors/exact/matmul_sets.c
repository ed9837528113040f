/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_sets.c - the choice between kernels of exact products */
#include "config.h"

#include "kernels/slots.h"
#include "matmul.h"

const struct kvi_exact_kernels *kvi_exact_kernels_get(uint32_t isa_mask)
{
	const struct kvi_kernels *k = kvi_kernels_get(isa_mask);

	switch (k->isa) {
#if defined(KVI_AVX512)
	case KVARC_ISA_AVX512:
#if defined(KVI_AVX512VNNI)
		if (k->vnni)
			return &kvi_exact_avx512vnni;
#endif
		return &kvi_exact_avx512;
#endif
#if defined(KVI_AVX2)
	case KVARC_ISA_AVX2:
		return &kvi_exact_avx2;
#endif
#if defined(KVI_NEON)
	case KVARC_ISA_NEON:
#if defined(KVI_NEONDOT)
		if (kvi_arm_has_dots())
			return &kvi_exact_neondot;
#endif
		return &kvi_exact_neon;
#endif
	default:
		return &kvi_exact_scalar;
	}
}
