/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * halves_vbmi.h - 32 states as two vectors, their low and their high halves, lane i in word i
 *
 * For exp_vbmi.c and exp_vbmi_encode.c, which need AVX-512 VBMI and VBMI2.
 */
#ifndef KVI_HALVES_VBMI_H
#define KVI_HALVES_VBMI_H

#include "ops_avx512.h"

#define VBMI __attribute__((target("avx512vbmi,avx512vbmi2")))
#define SET16(x) _mm512_set1_epi16((short)(x))

/* Frequencies are multiples of 2^5 in words: their total, 2^16, is not needed. */
enum { SCALE = 16 - KVI_PROB_BITS };

/* 32 numbers of 32 bits as 16 bits. */
INLINE vec narrowed(vec a, vec b)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
	                          _mm512_cvtepi32_epi16(b), 1);
}

/* The halves of 32 states in memory. */
INLINE void halves_of(const uint32_t *st, vec *low, vec *high)
{
	const vec a = v_load(st), b = v_load(st + 16);
	*low = narrowed(a, b);
	*high = narrowed(v_shr(a, 16), v_shr(b, 16));
}

/* The inverse: 32 states to memory. */
INLINE void halves_join(uint32_t *st, vec low, vec high)
{
	const vec a = _mm512_unpacklo_epi16(low, high), b = _mm512_unpackhi_epi16(low, high);
	const vec even = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
	const vec odd = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	v_store(st, _mm512_permutex2var_epi64(a, even, b));
	v_store(st + 16, _mm512_permutex2var_epi64(a, odd, b));
}

#endif
