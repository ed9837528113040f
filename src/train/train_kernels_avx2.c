/* SPDX-License-Identifier: BSD-3-Clause */
/* train_kernels_avx2.c - the trainer's loops with AVX2 */
#include <immintrin.h>
#include <stdint.h>

/* Sums a[t] * f + b[t] * g of 16-bit rows a and b, in two vectors: the first has the tokens 0 to 3
 * of every 8 (of 128 bits), the second the tokens 4 to 7, as unpack orders them. */
typedef struct {
	__m256i v;
} pairs;
#define WEIGH_PAIRS 16 /* tokens of one add_pair */

/* Adds WEIGH_PAIRS tokens of two rows; factors: that of a in the lower 16 bits, of b above. */
static inline void add_pair(pairs sums[2], const int16_t *a, const int16_t *b, int32_t factors)
{
	__m256i x = _mm256_loadu_si256((const __m256i *)a);
	__m256i y = _mm256_loadu_si256((const __m256i *)b), c = _mm256_set1_epi32(factors);
	__m256i lo = _mm256_madd_epi16(_mm256_unpacklo_epi16(x, y), c);
	__m256i hi = _mm256_madd_epi16(_mm256_unpackhi_epi16(x, y), c);
	sums[0].v = _mm256_add_epi32(sums[0].v, lo);
	sums[1].v = _mm256_add_epi32(sums[1].v, hi);
}

/* Adds the sums to acc[0 .. WEIGH_PAIRS - 1], in the order of the tokens. */
static inline void put_pairs(int32_t *acc, const pairs sums[2])
{
	__m256i *to = (__m256i *)acc;
	__m256i lo = _mm256_permute2x128_si256(sums[0].v, sums[1].v, 0x20);
	__m256i hi = _mm256_permute2x128_si256(sums[0].v, sums[1].v, 0x31);
	_mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), lo));
	_mm256_storeu_si256(to + 1, _mm256_add_epi32(_mm256_loadu_si256(to + 1), hi));
}

/* Size of a vector, for train_kernels_body.h. */
#define BYTES 32
#include "train_kernels_body.h"

/* The sum of the numbers of 32 bits, in 64 bits. */
static inline int64_t sum_of(__m256i m256i)
{
	__m256i lo = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(m256i));
	__m256i hi = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(m256i, 1));
	__m256i s = _mm256_add_epi64(lo, hi);
	__m128i t = _mm_add_epi64(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
	return _mm_extract_epi64(t, 0) + _mm_extract_epi64(t, 1);
}

/* Two rows of a and all of b: what fits 16 registers. */
static inline void half_tile(int64_t *sums, const int16_t *a, const int16_t *b, size_t stride,
                             size_t n)
{
	__m256i s[2][KVI_GRAM_TILE];
	memset(s, 0, sizeof s);
	for (size_t t = 0; t < n; t += 16) {
		__m256i y[KVI_GRAM_TILE];
		KVI_UNROLL
		for (size_t j = 0; j < KVI_GRAM_TILE; j++)
			y[j] = _mm256_load_si256(
				(const __m256i *)(const void *)(b + j * stride + t));
		KVI_UNROLL
		for (size_t i = 0; i < 2; i++) {
			__m256i x = _mm256_load_si256(
				(const __m256i *)(const void *)(a + i * stride + t));
			KVI_UNROLL
			for (size_t j = 0; j < KVI_GRAM_TILE; j++)
				s[i][j] = _mm256_add_epi32(s[i][j], _mm256_madd_epi16(x, y[j]));
		}
	}
	KVI_UNROLL
	for (size_t i = 0; i < 2; i++)
		KVI_UNROLL
	for (size_t j = 0; j < KVI_GRAM_TILE; j++)
		sums[i * KVI_GRAM_TILE + j] = sum_of(s[i][j]);
}

static void gram(int64_t sums[16], const int16_t *a, const int16_t *b, size_t stride, size_t n)
{
	half_tile(sums, a, b, stride, n);
	half_tile(sums + 8, a + 2 * stride, b, stride, n);
}

const struct kvi_train_kernels kvi_train_kernels_avx2 = KERNELS;
