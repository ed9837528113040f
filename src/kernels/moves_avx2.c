/* SPDX-License-Identifier: BSD-3-Clause */
/* moves_avx2.c - transpositions in vectors of 256 bits */
#include "config.h"

#include <immintrin.h>
#include <string.h>

#include "scalar.h"
#include "util/unroll.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL KVI_UNROLL(16)

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
