/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fpmode.h - rounding to nearest and subnormals, whatever the caller's threads are set to
 *
 * Other libraries switch subnormals off (FTZ, DAZ, FZ) for a whole process.
 */
#ifndef KVI_FPMODE_H
#define KVI_FPMODE_H

#include <stdint.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* Sets the mode; returns what kvi_fp_restore needs. */
static inline uint64_t kvi_fp_exact(void)
{
#if defined(__SSE2__)
	unsigned old = _mm_getcsr();
	_mm_setcsr(0x1f80); /* masks all exceptions; nearest, no FTZ, no DAZ */
	return old;
#elif defined(__aarch64__)
	uint64_t old;
	__asm__ volatile("mrs %0, fpcr" : "=r"(old));
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
	return old;
#else
	return 0;
#endif
}

/* Restores the mode that kvi_fp_exact returned, in the same thread. */
static inline void kvi_fp_restore(uint64_t old)
{
#if defined(__SSE2__)
	_mm_setcsr((unsigned)old);
#elif defined(__aarch64__)
	__asm__ volatile("msr fpcr, %0" : : "r"(old));
#else
	(void)old;
#endif
}

#endif
