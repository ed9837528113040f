/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_avx512.c - exact products and activations with AVX-512 */
#include "config.h"

/* FUNCTION, KERNEL: see matmul_body.h. */
#define FUNCTION
#define KERNEL static inline __attribute__((always_inline))
#include "matmul_avx512.h"

/* Operations that quantise_body.h names; those that matmul_body.h names are in the header. */
#define f_abs _mm512_abs_ps
#define f_sub _mm512_sub_ps
#define f_min _mm512_min_ps
#define f_max _mm512_max_ps
#define f_most _mm512_reduce_max_ps
#define f_ints(v) ((vint)_mm512_cvttps_epi32(v))
#define v_sum(v) _mm512_reduce_add_epi32((vec)(v))

KERNEL vint v_dot(vint sum, vec a, vec b)
{
	return sum + (vint)_mm512_madd_epi16(a, b);
}

/* A8: 16 integers as bytes a + 128. */
KERNEL void store_a8(uint8_t *to, const vint v[1])
{
	vec a = _mm512_add_epi32((vec)v[0], _mm512_set1_epi32(128));
	_mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(a));
}

/* A15: each quad in the order 0, 2, 1, 3 (matmul.h); DBCA names the highest first. */
KERNEL void store_a15(int16_t *to, const vint v[1])
{
	vec a = _mm512_shuffle_epi32((vec)v[0], _MM_PERM_DBCA);
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(a));
}

/* Writes A8 as integers a in the order of A15. Whole vectors: reads up to a multiple of 64 bytes,
 * writes up to a multiple of 64 integers, which both buffers have. */
KERNEL void widen_bytes(int16_t *to, const uint8_t *a, size_t quads)
{
	const vec low = _mm512_set1_epi16(255), middle = _mm512_set1_epi16(128);

	for (size_t q = 0; q < quads; q += LANES, a += 64, to += 64) {
		vec x = v_load(a);
		vec e = _mm512_sub_epi16(_mm512_and_si512(x, low), middle);
		vec o = _mm512_sub_epi16(_mm512_srli_epi16(x, 8), middle);
		const vec first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
		                                    7, 23);
		const vec second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
		v_store(to, _mm512_permutex2var_epi32(e, first, o));
		v_store(to + 32, _mm512_permutex2var_epi32(e, second, o));
	}
}

#include "matmul_x86.h"
#include "matmul_body.h"
#include "quantise_body.h"
#include "float8_body.h"

/* For kvi_exact_avx512vnni, which has a product of its own. */
void kvi_avx512_quantise(struct kvi_activations *activations, const float *x, size_t x_stride,
                         size_t first, size_t n)
{
	quantise(activations, x, x_stride, first, n);
}

void kvi_avx512_product_floats(const struct kvi_product *product)
{
	product_floats(product);
}

const struct kvi_exact_kernels kvi_exact_avx512 = { "avx512", quantise, product, product_floats,
	                                            NULL };
