/* SPDX-License-Identifier: BSD-3-Clause */
/* words_avx2.h - operations of AVX2 on 16 lanes of 16 bits, and powers of two there */
#ifndef KVI_WORDS_AVX2_H
#define KVI_WORDS_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
typedef __m256i vec;
#include "shuffles_avx2.h"

/* Names of operations: v_ on all bits, b_ on bytes, w_ on words of 16 bits, d_ on 32 bits.
 * v_except(m, v): v & ~m. b_lookup(table, i): 0 for i with bit 7 set. w_mul_rounded:
 * (a * b + 2^14) >> 15. */
#define v_and _mm256_and_si256
#define v_or _mm256_or_si256
#define v_xor _mm256_xor_si256
#define v_except _mm256_andnot_si256
#define v_blend _mm256_blendv_epi8
#define b_lookup _mm256_shuffle_epi8
#define b_add _mm256_add_epi8
#define b_sub _mm256_sub_epi8
#define b_eq _mm256_cmpeq_epi8
#define b_min _mm256_min_epu8
#define w_add _mm256_add_epi16
#define w_sub _mm256_sub_epi16
#define w_mul _mm256_mullo_epi16
#define w_mul_high _mm256_mulhi_epu16
#define w_mul_rounded _mm256_mulhrs_epi16
#define w_add_limited _mm256_adds_epi16
#define w_sub_limited _mm256_subs_epi16
#define w_min _mm256_min_epi16
#define w_max _mm256_max_epi16
#define w_eq _mm256_cmpeq_epi16
#define w_gt _mm256_cmpgt_epi16
#define w_shl _mm256_slli_epi16
#define w_shr _mm256_srli_epi16
#define w_sar _mm256_srai_epi16
#define w_of_bytes _mm256_cvtepi8_epi16
#define d_shl _mm256_slli_epi32
#define d_shr _mm256_srli_epi32
#define d_shl_each _mm256_sllv_epi32
#define d_shr_each _mm256_srlv_epi32

#define SET16(x) _mm256_set1_epi16((short)(x))

enum { HALF = 16 }; /* lanes of 16 bits, half of a step */

/* Returns v, of which compilers then know nothing: gcc makes constants and tables that it knows
 * again in each round of a loop, of a general register. */
INLINE vec opaque(vec v)
{
	__asm__("" : "+x"(v));
	return v;
}

#define KEPT16(x) opaque(SET16(x))
#define KEPT_TABLE(bytes) opaque(TABLE(bytes))

/* Powers of two as bytes. A byte of an index that is negative, or 8 or more, gives 0. */
static const uint8_t powers[16] = { 1, 2, 4, 8, 16, 32, 64, 128 };

/* Vectors for powers of two. */
struct powers {
	vec table, high_only, eight_more, down_from_15;
};

/* Loads them. */
INLINE struct powers powers_load(void)
{
	return (struct powers){ KEPT_TABLE(powers), KEPT16(0x8000), KEPT16(0xf800),
		                KEPT16(0x070f) };
}

/* 2^n in lanes, n < 8. */
INLINE vec small_power(const struct powers *c, vec n)
{
	return b_lookup(c->table, v_or(n, c->high_only));
}

/* n in both bytes of a lane. */
INLINE vec twice(vec n)
{
	return v_or(n, w_shl(n, 8));
}

/* 2^n in lanes, n < 16, given twice. */
INLINE vec power(const struct powers *c, vec twice_n)
{
	return b_lookup(c->table, b_add(twice_n, c->eight_more));
}

/* 2^(15 - n) in lanes, n < 16, given twice. */
INLINE vec power_from_15(const struct powers *c, vec twice_n)
{
	return b_lookup(c->table, b_sub(c->down_from_15, twice_n));
}

#endif
