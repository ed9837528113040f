/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel_sets.c - which instruction sets this build and this processor have */
#include "config.h"

#if defined(HAVE_GETAUXVAL)
#include <sys/auxv.h>
#endif

#include "slots.h"

/*
 * The compiler's runtime reads CPUID once, before main, and counts a set only
 * when the operating system saves its registers (OSXSAVE, XCR0): nothing to
 * cache here, and no CPUID in a call, which costs microseconds in a guest.
 * Processors with AVX2 and BMI2 have LZCNT too.
 */
#if defined(KVI_AVX2)
static bool have_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
	       __builtin_cpu_supports("popcnt");
}
#endif

#if defined(KVI_AVX512)
static bool have_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2") &&
	       __builtin_cpu_supports("popcnt");
}
#endif

#if defined(KVI_AVX512VNNI)
static bool have_vbmi(void)
{
	return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
	       __builtin_cpu_supports("avx512bitalg");
}

/*
 * A gather of 16 numbers takes 9 to 12 cycles on a Granite Rapids, 20 to 22 on a Zen 5. Intel's
 * processors before Sapphire Rapids, with AVX512_BF16, gather slowly since microcode fixes a leak.
 */
static bool gathers_are_fast(void)
{
	return __builtin_cpu_is("intel") && have_vbmi() && __builtin_cpu_supports("avx512bf16");
}
#endif

#if defined(KVI_NEON)
/* The compiler's target decides, or what the system reports of this processor. */
bool kvi_arm_has_dots(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
	return true;
#elif defined(HAVE_GETAUXVAL) && defined(HWCAP_ASIMDDP)
	return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#else
	return false;
#endif
}
#endif

uint32_t kvarc_isa_available(void)
{
	uint32_t isa = KVARC_ISA_SCALAR;
#if defined(KVI_AVX2)
	if (have_avx2())
		isa |= KVARC_ISA_AVX2;
#endif
#if defined(KVI_AVX512)
	if (have_avx512())
		isa |= KVARC_ISA_AVX512;
#endif
#if defined(KVI_NEON)
	isa |= KVARC_ISA_NEON; /* part of every aarch64 */
#endif
	return isa;
}

const struct kvi_kernels *kvi_kernels_get(uint32_t isa_mask)
{
	uint32_t isa = kvarc_isa_available();
	if (isa_mask)
		isa &= isa_mask;
#if defined(KVI_AVX512)
#if defined(KVI_AVX512VNNI)
	if (isa & KVARC_ISA_AVX512 && __builtin_cpu_supports("avx512vnni")) {
		if (gathers_are_fast())
			return &kvi_kernels_avx512gather;
		return have_vbmi() ? &kvi_kernels_avx512vbmi : &kvi_kernels_avx512vnni;
	}
#endif
	if (isa & KVARC_ISA_AVX512)
		return &kvi_kernels_avx512;
#endif
#if defined(KVI_AVX2)
	if (isa & KVARC_ISA_AVX2)
		return &kvi_kernels_avx2;
#endif
#if defined(KVI_NEON)
	if (isa & KVARC_ISA_NEON)
		return &kvi_kernels_neon;
#endif
	return &kvi_kernels_scalar;
}

const char *kvarc_isa_name(uint32_t isa_mask)
{
	return kvi_kernels_get(isa_mask)->name;
}
