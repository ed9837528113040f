/* SPDX-License-Identifier: BSD-3-Clause */
/* fits_avx2.c - fits in vectors of 256 bits */
#include "config.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* See fits_body.h: numbers are below 2^15, sums of their products below 2^31. */
static inline uint32_t price(const uint16_t *counts, const uint16_t *lengths, size_t stride)
{
	__m256i sum = _mm256_setzero_si256();
	for (size_t s = 0; s < stride; s += 16) {
		__m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(counts + s));
		__m256i l = _mm256_loadu_si256((const __m256i *)(const void *)(lengths + s));
		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, l));
	}
	__m128i v = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
	v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
	return (uint32_t)_mm_cvtsi128_si32(v) + (uint32_t)_mm_extract_epi32(v, 1);
}

#define FIT_PRICE
#define FIT(name) kvi_avx2_##name
#define FIT_BYTES 32
#include "fits_body.h"
