/* SPDX-License-Identifier: BSD-3-Clause */
/* train_kernels_avx512.c - the trainer's loops with AVX-512 */
#include <immintrin.h>
#include <stdint.h>

/* Sums a[t] * f + b[t] * g of 16-bit rows a and b, in two vectors: the first has the tokens 0 to 3
 * of every 8 (of 128 bits), the second the tokens 4 to 7, as unpack orders them. */
typedef struct {
	__m512i v;
} pairs;
#define WEIGH_PAIRS 32 /* tokens of one add_pair */

/* Adds WEIGH_PAIRS tokens of two rows; factors: that of a in the lower 16 bits, of b above. */
static inline void add_pair(pairs sums[2], const int16_t *a, const int16_t *b, int32_t factors)
{
	__m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b),
		c = _mm512_set1_epi32(factors);
	sums[0].v = _mm512_add_epi32(sums[0].v, _mm512_madd_epi16(_mm512_unpacklo_epi16(x, y), c));
	sums[1].v = _mm512_add_epi32(sums[1].v, _mm512_madd_epi16(_mm512_unpackhi_epi16(x, y), c));
}

/* Adds the sums to acc[0 .. WEIGH_PAIRS - 1], in the order of the tokens. */
static inline void put_pairs(int32_t *acc, const pairs sums[2])
{
	const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
	const __m512i last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	__m512i lo = _mm512_permutex2var_epi64(sums[0].v, first, sums[1].v);
	__m512i hi = _mm512_permutex2var_epi64(sums[0].v, last, sums[1].v);
	_mm512_storeu_si512(acc, _mm512_add_epi32(_mm512_loadu_si512(acc), lo));
	_mm512_storeu_si512(acc + 16, _mm512_add_epi32(_mm512_loadu_si512(acc + 16), hi));
}

/* Size of a vector, for train_kernels_body.h. */
#define BYTES 64
#include "train_kernels_body.h"

/* The sum of the numbers of 32 bits, in 64 bits. */
static inline int64_t sum_of(__m512i v)
{
	__m512i lo = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(v));
	__m512i hi = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(v, 1));
	return _mm512_reduce_add_epi64(_mm512_add_epi64(lo, hi));
}

static void gram(int64_t sums[16], const int16_t *a, const int16_t *b, size_t stride, size_t n)
{
	__m512i s[KVI_GRAM_TILE][KVI_GRAM_TILE];
	memset(s, 0, sizeof s);
	for (size_t t = 0; t < n; t += 32) {
		__m512i y[KVI_GRAM_TILE];
		KVI_UNROLL
		for (size_t j = 0; j < KVI_GRAM_TILE; j++)
			y[j] = _mm512_load_si512(b + j * stride + t);
		KVI_UNROLL
		for (size_t i = 0; i < KVI_GRAM_TILE; i++) {
			__m512i x = _mm512_load_si512(a + i * stride + t);
			KVI_UNROLL
			for (size_t j = 0; j < KVI_GRAM_TILE; j++)
				s[i][j] = _mm512_add_epi32(s[i][j], _mm512_madd_epi16(x, y[j]));
		}
	}
	KVI_UNROLL
	for (size_t i = 0; i < KVI_GRAM_TILE; i++)
		KVI_UNROLL
	for (size_t j = 0; j < KVI_GRAM_TILE; j++)
		sums[i * KVI_GRAM_TILE + j] = sum_of(s[i][j]);
}

const struct kvi_train_kernels kvi_train_kernels_avx512 = KERNELS;
