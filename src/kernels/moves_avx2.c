/* SPDX-License-Identifier: BSD-3-Clause */
/* moves_avx2.c - transpositions, and bf16 and f16 to and from exponents and the rest */
#include "config.h"

#include <immintrin.h>
#include <string.h>

#include "scalar.h"
#include "util/unroll.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL KVI_UNROLL(16)

/* 32 values of 0..255 in words, in order. */
INLINE __m256i packed_bytes(__m256i m256i, __m256i b)
{
	return _mm256_permute4x64_epi64(_mm256_packus_epi16(m256i, b), 0xd8);
}

void kvi_avx2_bf16_split(uint8_t *e, uint8_t *rest, const uint16_t *x, size_t n)
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
		_mm256_storeu_si256((__m256i *)(e + i), packed_bytes(ea, eb));
		_mm256_storeu_si256((__m256i *)(rest + i), packed_bytes(ra, rb));
	}
	kvi_scalar_bf16_split(e + i, rest + i, x + i, n - i);
}

void kvi_avx2_bf16_merge(uint16_t *x, const uint8_t *e, const uint8_t *rest, size_t n)
{
	const __m256i mant = _mm256_set1_epi16(0x7f);
	const __m256i sign = _mm256_set1_epi16((short)0x8000);
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i ev = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(e + i)));
		__m256i r = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(rest + i)));
		__m256i s = _mm256_and_si256(_mm256_slli_epi16(r, 8), sign);
		__m256i m = _mm256_and_si256(r, mant);
		__m256i v = _mm256_or_si256(_mm256_or_si256(s, m), _mm256_slli_epi16(ev, 7));
		_mm256_storeu_si256((__m256i *)(x + i), v);
	}
	kvi_scalar_bf16_merge(x + i, e + i, rest + i, n - i);
}

/* 32 values of 0..3 to 8 bytes. */
INLINE void store_twos(uint8_t *to, __m256i m256i)
{
	__m256i fours = _mm256_maddubs_epi16(m256i, _mm256_set1_epi16(0x0401));
	__m256i whole = _mm256_madd_epi16(fours, _mm256_set1_epi32(0x00100001));
	whole = _mm256_packus_epi32(whole, whole);
	whole = _mm256_packus_epi16(whole, whole);
	whole = _mm256_permutevar8x32_epi32(whole, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
	_mm_storel_epi64((__m128i *)(void *)to, _mm256_castsi256_si128(whole));
}

void kvi_avx2_f16_split(uint8_t *e, uint8_t *const planes[3], const uint16_t *x, size_t n)
{
	const __m256i field = _mm256_set1_epi16(31);
	const __m256i low = _mm256_set1_epi16(0xff);
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m256i a = _mm256_loadu_si256((const __m256i *)(x + i));
		__m256i b = _mm256_loadu_si256((const __m256i *)(x + i + 16));
		__m256i fields = packed_bytes(_mm256_and_si256(_mm256_srli_epi16(a, 10), field),
		                              _mm256_and_si256(_mm256_srli_epi16(b, 10), field));
		__m256i high = packed_bytes(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
		uint32_t signs = (uint32_t)_mm256_movemask_epi8(high);
		_mm256_storeu_si256((__m256i *)(e + i), fields);
		_mm256_storeu_si256(
			(__m256i *)(planes[0] + i),
			packed_bytes(_mm256_and_si256(a, low), _mm256_and_si256(b, low)));
		store_twos(planes[1] + i / 4, _mm256_and_si256(high, _mm256_set1_epi8(3)));
		memcpy(planes[2] + i / 8, &signs, sizeof signs);
	}
	kvi_scalar_f16_split(
		e + i, (uint8_t *const[3]){ planes[0] + i, planes[1] + i / 4, planes[2] + i / 8 },
		x + i, n - i);
}

/* Value i of 16 in 4 bytes to bits 8 and 9 of word i. */
INLINE __m256i load_twos(const uint8_t *from)
{
	const __m256i each = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1,
	                                      -1, 2, -1, 2, -1, 2, -1, 2, -1, 3, -1, 3, -1, 3, -1,
	                                      3, -1);
	const __m256i shift = _mm256_set1_epi64x(0x0004001000400100);
	int32_t four;
	memcpy(&four, from, sizeof four);
	__m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32(four), each);
	return _mm256_and_si256(_mm256_mullo_epi16(v, shift), _mm256_set1_epi16(0x300));
}

/* Bit i of 16 to bit 15 of word i. */
INLINE __m256i load_signs(const uint8_t *from)
{
	const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
	                                      4096, 8192, 16384, (short)0x8000);
	int16_t two;
	memcpy(&two, from, sizeof two);
	__m256i v = _mm256_and_si256(_mm256_set1_epi16(two), bit);
	return _mm256_slli_epi16(_mm256_cmpeq_epi16(v, bit), 15);
}

void kvi_avx2_f16_merge(uint16_t *x, const uint8_t *e, const uint8_t *const planes[3], size_t n)
{
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i field = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(e + i)));
		__m256i low =
			_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(planes[0] + i)));
		__m256i high = _mm256_or_si256(load_twos(planes[1] + i / 4),
		                               load_signs(planes[2] + i / 8));
		__m256i v = _mm256_or_si256(_mm256_slli_epi16(field, 10), low);
		_mm256_storeu_si256((__m256i *)(x + i), _mm256_or_si256(v, high));
	}
	kvi_scalar_f16_merge(
		x + i, e + i,
		(const uint8_t *const[3]){ planes[0] + i, planes[1] + i / 4, planes[2] + i / 8 },
		n - i);
}

/* 16 x 16 bytes; strides in bytes. */
INLINE void tile8(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride)
{
	__m128i a[16], b[16];
	UNROLL
	for (int i = 0; i < 16; i++)
		a[i] = _mm_loadu_si128((const __m128i *)(src + (size_t)i * src_stride));
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
		_mm_storeu_si128((__m128i *)(dst + (size_t)i * dst_stride), a[i]);
}

/* 8 x 8 elements; strides in elements. */
INLINE void tile16(uint16_t *dst, size_t dst_stride, const uint16_t *src, size_t src_stride)
{
	__m128i a[8], b[8];
	UNROLL
	for (int i = 0; i < 8; i++)
		a[i] = _mm_loadu_si128((const __m128i *)(src + (size_t)i * src_stride));
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
		_mm_storeu_si128((__m128i *)(dst + (size_t)i * dst_stride), a[i]);
}

/*
 * Blocks of 64 x 64 bytes, so that a cache line is used while it is there: the
 * side with the longer stride, whose lines share few cache sets, is the inner
 * one. The rest at the edges is moved one by one.
 */
#define TRANSPOSE(name, type, SIDE, tile)                                                        \
	static void block_##name(type *dst, const type *src, size_t rows, size_t cols,           \
	                         size_t n_rows, size_t n_cols)                                   \
	{                                                                                        \
		const bool wide = cols > rows;                                                   \
		const size_t outer = wide ? n_rows : n_cols;                                     \
		const size_t inner = wide ? n_cols : n_rows;                                     \
		for (size_t i = 0; i < outer; i += SIDE)                                         \
			for (size_t j = 0; j < inner; j += SIDE) {                               \
				size_t r = wide ? i : j, c = wide ? j : i;                       \
				tile(dst + c * rows + r, rows, src + r * cols + c, cols);        \
			}                                                                        \
	}                                                                                        \
	void name(type *dst, const type *src, size_t rows, size_t cols)                          \
	{                                                                                        \
		const size_t line = 64 / sizeof(type);                                           \
		const size_t r_end = rows / SIDE * SIDE;                                         \
		const size_t c_end = cols / SIDE * SIDE;                                         \
		for (size_t c = 0; c < c_end; c += line)                                         \
			for (size_t r = 0; r < r_end; r += line)                                 \
				block_##name(dst + c * rows + r, src + r * cols + c, rows, cols, \
				             r_end - r < line ? r_end - r : line,                \
				             c_end - c < line ? c_end - c : line);               \
		for (size_t c = 0; c < cols; c++)                                                \
			for (size_t r = c < c_end ? r_end : 0; r < rows; r++)                    \
				dst[c * rows + r] = src[r * cols + c];                           \
	}
TRANSPOSE(kvi_avx2_transpose8, uint8_t, 16, tile8)
TRANSPOSE(kvi_avx2_transpose16, uint16_t, 8, tile16)
