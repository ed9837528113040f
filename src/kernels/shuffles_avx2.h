/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffles_avx2.h - vectors of AVX2 in memory, expanded and compressed by a mask */
#ifndef KVI_SHUFFLES_AVX2_H
#define KVI_SHUFFLES_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "layers_shuffles.h"

#define SET8(x) _mm256_set1_epi8((char)(x))
#define TABLE(bytes) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(bytes)))

enum { WIDTH = 32 }; /* bytes of a vector */

/* Loads a vector, of any alignment. */
INLINE vec load(const void *from)
{
	return _mm256_loadu_si256(from);
}

/* Stores a vector, of any alignment. */
INLINE void store(void *to, vec v)
{
	_mm256_storeu_si256(to, v);
}

/* The first n of 32 lanes, all for more. */
INLINE uint32_t first_lanes(size_t n)
{
	return n >= WIDTH ? UINT32_MAX : (UINT32_C(1) << n) - 1;
}

/* The highest bit of each byte. */
INLINE uint32_t lanes_of(vec mask)
{
	return (uint32_t)_mm256_movemask_epi8(mask);
}

/* 8 bytes from each of two addresses. */
INLINE __m128i load_two(const void *a, const void *b)
{
	return _mm_castpd_si128(
		_mm_loadh_pd(_mm_castsi128_pd(_mm_loadl_epi64((const __m128i *)a)), b));
}

/* The number of bytes that the first 8 of 16 lanes take, in the other 8. */
#define TAKEN(n)                                               \
	{                                                      \
		0, 0, 0, 0, 0, 0, 0, 0, n, n, n, n, n, n, n, n \
	}
static const uint8_t taken[9][16] = { TAKEN(0), TAKEN(1), TAKEN(2), TAKEN(3), TAKEN(4),
	                              TAKEN(5), TAKEN(6), TAKEN(7), TAKEN(8) };

/* 16 bytes from each of two addresses. */
INLINE vec load_halves(const void *a, const void *b)
{
	return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
	                               _mm_loadu_si128((const __m128i *)b), 1);
}

/* The bytes from *next on in the lanes of a mask, 0 elsewhere. */
INLINE vec expanded(uint32_t lanes, const uint8_t **next)
{
	const uint8_t *from = *next;
	const vec bytes = load_halves(from, from + _mm_popcnt_u32(lanes & 0xffff));
	const vec first = load_halves(taken[_mm_popcnt_u32(lanes & 0xff)],
	                              taken[_mm_popcnt_u32(lanes & 0xff0000)]);
	const vec numbers = _mm256_set_m128i(
		load_two(&expansions[lanes >> 16 & 0xff], &expansions[lanes >> 24]),
		load_two(&expansions[lanes & 0xff], &expansions[lanes >> 8 & 0xff]));
	*next = from + _mm_popcnt_u32(lanes);
	return _mm256_shuffle_epi8(bytes, _mm256_add_epi8(numbers, first));
}

/* Writes 8 bytes: first those of v that the mask has. */
INLINE void store_compressed(__m128i v, uint32_t lanes, uint8_t *to)
{
	const __m128i numbers = _mm_loadl_epi64((const __m128i *)&compressions[lanes & 0xff]);
	_mm_storel_epi64((__m128i *)to, _mm_shuffle_epi8(v, numbers));
}

/* Writes v's bytes in the lanes of a mask, and others behind them. Returns their end. */
INLINE uint8_t *compressed(vec v, uint32_t lanes, uint8_t *to)
{
	const __m128i a = _mm256_castsi256_si128(v), b = _mm256_extracti128_si256(v, 1);
	store_compressed(a, lanes, to);
	store_compressed(_mm_unpackhi_epi64(a, a), lanes >> 8, to + _mm_popcnt_u32(lanes & 0xff));
	store_compressed(b, lanes >> 16, to + _mm_popcnt_u32(lanes & 0xffff));
	store_compressed(_mm_unpackhi_epi64(b, b), lanes >> 24,
	                 to + _mm_popcnt_u32(lanes & 0xffffff));
	return to + _mm_popcnt_u32(lanes);
}

#endif
