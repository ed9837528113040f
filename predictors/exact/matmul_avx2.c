/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_avx2.c - exact products and activations on 8 lanes */
#include "config.h"

#include <immintrin.h>

#define FUNCTION
#define KERNEL static inline __attribute__((always_inline))
enum { LANES = 8, TILE_ROWS = 4 };
#define TILE_BLOCKS 1
#include "matmul_tile.h"

typedef int32_t vint __attribute__((vector_size(32)));
typedef __m256i vec;
typedef __m256 vflt;
#define v_zero() ((vint)_mm256_setzero_si256())
#define v_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define v_store(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define v_add(a, b) ((a) + (b))
#define v_even(v) _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8)
#define v_odd(v) _mm256_srai_epi16(v, 8)
#define f_zero _mm256_setzero_ps
#define f_load _mm256_loadu_ps
#define f_store _mm256_storeu_ps
#define f_set _mm256_set1_ps
#define f_add _mm256_add_ps
#define f_mul _mm256_mul_ps
#define f_fma _mm256_fmadd_ps
#define f_int(p) _mm256_cvtepi32_ps(_mm256_set1_epi32(*(p)))
#define f_of(v) _mm256_cvtepi32_ps((vec)(v))
#define v_bytes(p) ((vint)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define f_abs(v) _mm256_andnot_ps(f_set(-0.0f), v)
#define f_sub _mm256_sub_ps
#define f_min _mm256_min_ps
#define f_max _mm256_max_ps
#define f_ints(v) ((vint)_mm256_cvttps_epi32(v))

KERNEL vec v_pair(const void *p)
{
	int32_t x;

	memcpy(&x, p, sizeof x);
	return _mm256_set1_epi32(x);
}

KERNEL vint v_dot(vint sum, vec a, vec b)
{
	return sum + (vint)_mm256_madd_epi16(a, b);
}

KERNEL float f_most(vflt v)
{
	__m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

KERNEL int32_t v_sum(vint v)
{
	return v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
}

KERNEL void store_a8(uint8_t *to, const vint v[2])
{
	vec words = _mm256_packs_epi32((vec)v[0], (vec)v[1]); /* 0 2 1 3, of 4 integers */
	words = _mm256_add_epi16(_mm256_permute4x64_epi64(words, 0xd8), _mm256_set1_epi16(128));
	_mm_storeu_si128((__m128i *)to, _mm_packus_epi16(_mm256_castsi256_si128(words),
	                                                 _mm256_extracti128_si256(words, 1)));
}

KERNEL void store_a15(int16_t *to, const vint v[2])
{
	vec words = _mm256_packs_epi32(_mm256_shuffle_epi32((vec)v[0], 0xd8),
	                               _mm256_shuffle_epi32((vec)v[1], 0xd8));
	v_store(to, _mm256_permute4x64_epi64(words, 0xd8));
}

/* A8 as 16-bit integers in the order of A15; reads and writes whole vectors. */
KERNEL void widen_bytes(int16_t *to, const uint8_t *a, size_t quads)
{
	const vec low = _mm256_set1_epi16(255), middle = _mm256_set1_epi16(128);

	for (size_t q = 0; q < quads; q += LANES, a += 32, to += 32) {
		vec x = v_load(a);
		vec e = _mm256_sub_epi16(_mm256_and_si256(x, low), middle);
		vec o = _mm256_sub_epi16(_mm256_srli_epi16(x, 8), middle);
		vec first = _mm256_unpacklo_epi32(e, o), second = _mm256_unpackhi_epi32(e, o);
		v_store(to, _mm256_permute2x128_si256(first, second, 0x20));
		v_store(to + 16, _mm256_permute2x128_si256(first, second, 0x31));
	}
}

#include "matmul_x86.h"
#include "matmul_body.h"
#include "quantise_body.h"
#include "float8_body.h"

const struct kvi_exact_kernels kvi_exact_avx2 = { "avx2", quantise, product, product_floats, NULL };
