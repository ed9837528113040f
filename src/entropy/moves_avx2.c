/* SPDX-License-Identifier: BSD-3-Clause */
/* moves_avx2.c - transpositions, and bf16 to and from exponents and the rest */
#include "config.h"

#include <immintrin.h>

#include "scalar.h"

#define INLINE static inline __attribute__((always_inline))
/* gcc -O2 keeps the rows of a tile in memory otherwise. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

void kvi_avx2_bf16_split(uint8_t *e, uint8_t *rest, const uint16_t *x,
                         size_t n)
{
	const __m256i low = _mm256_set1_epi16(0xff);
	const __m256i mant = _mm256_set1_epi16(0x7f);
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m256i a = _mm256_loadu_si256((const __m256i *)(x + i));
		__m256i b = _mm256_loadu_si256((const __m256i *)(x + i + 16));
		__m256i ea = _mm256_and_si256(_mm256_srli_epi16(a, 7), low);
		__m256i eb = _mm256_and_si256(_mm256_srli_epi16(b, 7), low);
		__m256i sa = _mm256_slli_epi16(_mm256_srli_epi16(a, 15), 7);
		__m256i sb = _mm256_slli_epi16(_mm256_srli_epi16(b, 15), 7);
		__m256i ra = _mm256_or_si256(sa, _mm256_and_si256(a, mant));
		__m256i rb = _mm256_or_si256(sb, _mm256_and_si256(b, mant));
		_mm256_storeu_si256(
			(__m256i *)(e + i),
			_mm256_permute4x64_epi64(_mm256_packus_epi16(ea, eb),
		                                 0xd8));
		_mm256_storeu_si256(
			(__m256i *)(rest + i),
			_mm256_permute4x64_epi64(_mm256_packus_epi16(ra, rb),
		                                 0xd8));
	}
	kvi_scalar_bf16_split(e + i, rest + i, x + i, n - i);
}

void kvi_avx2_bf16_merge(uint16_t *x, const uint8_t *e, const uint8_t *rest,
                         size_t n)
{
	const __m256i mant = _mm256_set1_epi16(0x7f);
	const __m256i sign = _mm256_set1_epi16((short)0x8000);
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i ev = _mm256_cvtepu8_epi16(
			_mm_loadu_si128((const __m128i *)(e + i)));
		__m256i r = _mm256_cvtepu8_epi16(
			_mm_loadu_si128((const __m128i *)(rest + i)));
		__m256i s = _mm256_and_si256(_mm256_slli_epi16(r, 8), sign);
		__m256i m = _mm256_and_si256(r, mant);
		__m256i v = _mm256_or_si256(_mm256_or_si256(s, m),
		                            _mm256_slli_epi16(ev, 7));
		_mm256_storeu_si256((__m256i *)(x + i), v);
	}
	kvi_scalar_bf16_merge(x + i, e + i, rest + i, n - i);
}

/* 16 x 16 bytes; strides in bytes. */
INLINE void tile8(uint8_t *dst, size_t dst_stride, const uint8_t *src,
                  size_t src_stride)
{
	__m128i a[16], b[16];
	UNROLL
	for (int i = 0; i < 16; i++)
		a[i] = _mm_loadu_si128(
			(const __m128i *)(src + (size_t)i * src_stride));
	/* Four rounds of a perfect shuffle of rows i and i + 8. */
	UNROLL
	for (int round = 0; round < 4; round++) {
		UNROLL
		for (int i = 0; i < 8; i++) {
			b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
			b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
		}
		UNROLL
		for (int i = 0; i < 16; i++)
			a[i] = b[i];
	}
	UNROLL
	for (int i = 0; i < 16; i++)
		_mm_storeu_si128((__m128i *)(dst + (size_t)i * dst_stride),
		                 a[i]);
}

/* 8 x 8 elements; strides in elements. */
INLINE void tile16(uint16_t *dst, size_t dst_stride, const uint16_t *src,
                   size_t src_stride)
{
	__m128i a[8], b[8];
	UNROLL
	for (int i = 0; i < 8; i++)
		a[i] = _mm_loadu_si128(
			(const __m128i *)(src + (size_t)i * src_stride));
	UNROLL
	for (int round = 0; round < 3; round++) {
		UNROLL
		for (int i = 0; i < 4; i++) {
			b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
			b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
		}
		UNROLL
		for (int i = 0; i < 8; i++)
			a[i] = b[i];
	}
	UNROLL
	for (int i = 0; i < 8; i++)
		_mm_storeu_si128((__m128i *)(dst + (size_t)i * dst_stride),
		                 a[i]);
}

/*
 * Blocks of 64 x 64 bytes, so that a cache line is used while it is there: the
 * side with the longer stride, whose lines share few cache sets, is the inner
 * one. What is left at the edges goes one by one.
 */
#define TRANSPOSE(name, type, SIDE, tile)                                     \
	static void block_##name(type *dst, const type *src, size_t rows,     \
	                         size_t cols, size_t n_rows, size_t n_cols)   \
	{                                                                     \
		const bool wide = cols > rows;                                \
		const size_t outer = wide ? n_rows : n_cols;                  \
		const size_t inner = wide ? n_cols : n_rows;                  \
		for (size_t i = 0; i < outer; i += SIDE)                      \
			for (size_t j = 0; j < inner; j += SIDE) {            \
				size_t r = wide ? i : j, c = wide ? j : i;    \
				tile(dst + c * rows + r, rows,                \
				     src + r * cols + c, cols);               \
			}                                                     \
	}                                                                     \
	void name(type *dst, const type *src, size_t rows, size_t cols)       \
	{                                                                     \
		const size_t line = 64 / sizeof(type);                        \
		const size_t r_end = rows / SIDE * SIDE;                      \
		const size_t c_end = cols / SIDE * SIDE;                      \
		for (size_t c = 0; c < c_end; c += line)                      \
			for (size_t r = 0; r < r_end; r += line)              \
				block_##name(dst + c * rows + r,              \
				             src + r * cols + c, rows, cols,  \
				             r_end - r < line ? r_end - r     \
				                              : line,         \
				             c_end - c < line ? c_end - c     \
				                              : line);        \
		for (size_t c = 0; c < cols; c++)                             \
			for (size_t r = c < c_end ? r_end : 0; r < rows; r++) \
				dst[c * rows + r] = src[r * cols + c];        \
	}
TRANSPOSE(kvi_avx2_transpose8, uint8_t, 16, tile8)
TRANSPOSE(kvi_avx2_transpose16, uint16_t, 8, tile16)
