/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_avx512.h - vectors of 16 lanes for matmul_body.h; KERNEL is defined before */
#ifndef KVI_MATMUL_AVX512_H
#define KVI_MATMUL_AVX512_H

#include <immintrin.h>

/* Shape of the tiles of matmul_tile.h. */
enum { LANES = 16, TILE_ROWS = 8 };
#define TILE_BLOCKS 2
#include "matmul_tile.h"

/* Sums are vectors of int32_t, not __m512i: gcc adds moves to loops in which a sum changes its
 * type. */
typedef int32_t vint __attribute__((vector_size(64)));
typedef __m512i vec;
typedef __m512 vflt;
#define v_zero() ((vint)_mm512_setzero_si512())
#define v_load(p) _mm512_loadu_si512(p)
#define v_store(p, v) _mm512_storeu_si512(p, v)
#define v_add(a, b) ((a) + (b))
/* Start of a sum of byte products: -128 times the sum of the weights at p, since A8 is a + 128. */
#define v_start(p) ((vint)_mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), v_load(p)), 7))
#define v_even(v) _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8)
#define v_odd(v) _mm512_srai_epi16(v, 8)
#define f_zero _mm512_setzero_ps
#define f_load _mm512_loadu_ps
#define f_store _mm512_storeu_ps
#define f_set _mm512_set1_ps
#define f_add _mm512_add_ps
#define f_mul _mm512_mul_ps
#define f_fma _mm512_fmadd_ps
#define f_int(p) _mm512_cvtepi32_ps(_mm512_set1_epi32(*(p)))
#define f_of(v) _mm512_cvtepi32_ps((vec)(v))
#define v_bytes(p) ((vint)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))

/* Copies the four bytes at p, of any alignment, to every lane. */
KERNEL vec v_pair(const void *p)
{
	int32_t x;

	memcpy(&x, p, sizeof x);
	return _mm512_set1_epi32(x);
}

/* kvi_exact_kernels.quantise. */
void kvi_avx512_quantise(struct kvi_activations *activations, const float *x, size_t x_stride,
                         size_t first, size_t n);
/* kvi_exact_kernels.product_floats. */
void kvi_avx512_product_floats(const struct kvi_product *product);

#endif
