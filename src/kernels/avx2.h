/* SPDX-License-Identifier: BSD-3-Clause */
/* avx2.h - parts of a step on 8 lanes, shared by the AVX2 kernels */
#ifndef KVI_AVX2_H
#define KVI_AVX2_H

#include <immintrin.h>

#include "feed.h"
#include "util/unroll.h"

#define INLINE static inline __attribute__((always_inline))
typedef __m256i vec;
#define SET(x) _mm256_set1_epi32((int)(x))

/* All parts of a step; without it gcc -O2 keeps them in memory. */
enum { PARTS = 4 };
#define EACH KVI_UNROLL(4) for (int h = 0; h < PARTS; h++)
#define EACH_BACK KVI_UNROLL(4) for (int h = PARTS - 1; h >= 0; h--)

/* Lanes 8h .. 8h + 7 in v[h]. */
struct quad {
	vec v[PARTS];
};

INLINE vec load(const void *p)
{
	return _mm256_loadu_si256((const vec *)p);
}

INLINE void store(void *p, vec v)
{
	_mm256_storeu_si256((vec *)p, v);
}

INLINE struct quad states_load(const uint32_t *st)
{
	struct quad q;
	EACH
		q.v[h] = load(st + 8 * h);
	return q;
}

/* Only the first lanes change. */
INLINE void states_store(uint32_t *st, const struct quad *q, unsigned lanes)
{
	uint32_t all[KVI_LANES];
	EACH
		store(all + 8 * h, q->v[h]);
	memcpy(st, all, lanes * sizeof(*st));
}

/* Ones in the lanes that take part. */
INLINE struct quad lanes_active(unsigned lanes)
{
	const vec iota = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
	struct quad q;
	EACH
		q.v[h] = _mm256_cmpgt_epi32(SET((int)lanes - 8 * h), iota);
	return q;
}

INLINE unsigned lane_bits(vec mask)
{
	return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(mask));
}

INLINE vec blend(vec a, vec b, vec mask) /* b where mask */
{
	return _mm256_blendv_epi8(a, b, mask);
}

/* Loads one by one: as fast as a gather, and never slow (Downfall microcode,
 * Zen 4). The empty statement keeps compilers from going through registers. */
INLINE vec gather(const uint32_t *base, vec index)
{
	uint32_t i[8] __attribute__((aligned(32)));
	_mm256_store_si256((vec *)i, index);
	__asm__ volatile("" ::: "memory");
#define PICK(a)                                              \
	_mm_insert_epi32(_mm_cvtsi32_si128((int)base[i[a]]), \
	                 (int)base[i[a + 1]], 1)
	__m128i lo = _mm_unpacklo_epi64(PICK(0), PICK(2));
	__m128i hi = _mm_unpacklo_epi64(PICK(4), PICK(6));
#undef PICK
	return _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
}

/* For each mask of 8 lanes, a byte a lane: which of the words that follow each
 * other is a lane's (spread); which lane the words, pushed to the end, come
 * from (gathered). */
extern const uint64_t kvi_avx2_spread[256], kvi_avx2_gathered[256];

INLINE vec lane_index(uint64_t bytes)
{
	return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}

/* spec rans 2: renorm of 8 lanes. */
INLINE vec renorm(vec st, vec active, const uint8_t **p)
{
	vec low = _mm256_cmpeq_epi32(_mm256_srli_epi32(st, 16),
	                             _mm256_setzero_si256());
	low = _mm256_and_si256(low, active);
	unsigned m = lane_bits(low);
	vec words = _mm256_cvtepu16_epi32(
		_mm_loadu_si128((const __m128i *)*p));
	*p += 2 * (unsigned)_mm_popcnt_u32(m);
	words = _mm256_permutevar8x32_epi32(words,
	                                    lane_index(kvi_avx2_spread[m]));
	words = _mm256_or_si256(_mm256_slli_epi32(st, 16), words);
	return blend(st, words, low);
}

/* State after the symbol of a LUT entry. */
INLINE vec symbol_take(vec st, vec entry)
{
	vec freq = _mm256_srli_epi32(entry, 20);
	vec off = _mm256_and_si256(_mm256_srli_epi32(entry, 9), SET(2047));
	return _mm256_add_epi32(
		_mm256_mullo_epi32(_mm256_srli_epi32(st, KVI_PROB_BITS), freq),
		off);
}

/* Phase 1 of a decoder's step; returns the symbols. */
INLINE struct quad symbols_take(struct quad *st, const uint32_t *lut,
                                const struct quad *table,
                                const struct quad *active, const uint8_t **p)
{
	struct quad symbol;
	EACH {
		vec slot = _mm256_and_si256(st->v[h], SET(KVI_PROB_TOTAL - 1));
		vec row = _mm256_slli_epi32(table->v[h], KVI_PROB_BITS);
		vec entry = gather(lut, _mm256_or_si256(row, slot));
		symbol.v[h] = _mm256_and_si256(entry, SET(511));
		st->v[h] = symbol_take(st->v[h], entry);
	}
	EACH
		st->v[h] = renorm(st->v[h], active->v[h], p);
	return symbol;
}

/* 8 numbers below 2^16 as words. */
INLINE __m128i narrow16(vec v)
{
	return _mm_packus_epi32(_mm256_castsi256_si128(v),
	                        _mm256_extracti128_si256(v, 1));
}

/* Writes the low words of the lanes in mask downwards from *w. Stores 8 words,
 * those below the ones in mask are overwritten later. */
INLINE vec words_put(vec st, vec mask, uint16_t **w)
{
	unsigned m = lane_bits(mask);
	vec packed = _mm256_permutevar8x32_epi32(
		_mm256_and_si256(st, SET(0xffff)),
		lane_index(kvi_avx2_gathered[m]));
	_mm_storeu_si128((__m128i *)(*w - 8), narrow16(packed));
	*w -= _mm_popcnt_u32(m);
	return blend(st, _mm256_srli_epi32(st, 16), mask);
}

/*
 * st / freq by way of binary32, in whatever rounding mode is set. The state is
 * below freq * 2^21; its lowest bit, and two roundings, move the quotient by
 * less than one.
 */
INLINE vec symbol_put(vec st, vec enc, vec active, uint16_t **w)
{
	vec freq = _mm256_and_si256(enc, SET(0xffff));
	vec cum = _mm256_srli_epi32(enc, 16);
	vec over = _mm256_cmpgt_epi32(freq, _mm256_srli_epi32(st, 21));
	st = words_put(st, _mm256_andnot_si256(over, active), w);
	__m256 half = _mm256_mul_ps(_mm256_cvtepi32_ps(freq),
	                            _mm256_set1_ps(0.5f));
	vec q = _mm256_cvttps_epi32(_mm256_div_ps(
		_mm256_cvtepi32_ps(_mm256_srli_epi32(st, 1)), half));
	vec r = _mm256_sub_epi32(st, _mm256_mullo_epi32(q, freq));
	vec less = _mm256_srai_epi32(r, 31);
	q = _mm256_add_epi32(q, less);
	r = _mm256_add_epi32(r, _mm256_and_si256(less, freq));
	vec inside = _mm256_cmpgt_epi32(freq, r);
	q = _mm256_sub_epi32(q, _mm256_andnot_si256(inside, SET(-1)));
	r = _mm256_sub_epi32(r, _mm256_andnot_si256(inside, freq));
	return _mm256_add_epi32(_mm256_slli_epi32(q, KVI_PROB_BITS),
	                        _mm256_add_epi32(cum, r));
}

/* Entries of kvi_tables.enc. */
INLINE struct quad entries_load(const struct kvi_tables *tables,
                                const struct quad *table,
                                const struct quad *symbol)
{
	const __m128i stride =
		_mm_cvtsi32_si128(__builtin_ctz((unsigned)tables->stride));
	struct quad e;
	EACH
		e.v[h] = gather(tables->enc,
		                _mm256_add_epi32(
					_mm256_sll_epi32(table->v[h], stride),
					symbol->v[h]));
	return e;
}

INLINE void symbols_put(struct quad *st, const struct quad *entry,
                        const struct quad *active, uint16_t **w)
{
	EACH_BACK
		st->v[h] = symbol_put(st->v[h], entry->v[h], active->v[h], w);
}

#endif
