/* SPDX-License-Identifier: BSD-3-Clause */
/* ops_avx2.h - the operations of ops.h in AVX2, 8 lanes a vector */
#ifndef KVI_OPS_AVX2_H
#define KVI_OPS_AVX2_H

#include <immintrin.h>

typedef __m256i vec;
enum { PARTS = 4 };
#include "ops.h"

#define SET(x) _mm256_set1_epi32((int)(x))
#define v_add _mm256_add_epi32
#define v_sub _mm256_sub_epi32
#define v_mul _mm256_mullo_epi32
#define v_madd _mm256_madd_epi16
#define v_abs _mm256_abs_epi32
#define v_min _mm256_min_epi32
#define v_max _mm256_max_epi32
#define v_and _mm256_and_si256
#define v_or _mm256_or_si256
#define v_xor _mm256_xor_si256
#define v_except _mm256_andnot_si256
#define v_shl _mm256_slli_epi32
#define v_shr _mm256_srli_epi32
#define v_sar _mm256_srai_epi32
#define v_shl_each _mm256_sllv_epi32
#define v_shr_each _mm256_srlv_epi32
#define v_shl_any _mm256_sllv_epi32
#define v_shr_any _mm256_srlv_epi32
#define v_gt _mm256_cmpgt_epi32
#define v_eq _mm256_cmpeq_epi32
#define v_blend _mm256_blendv_epi8

INLINE vec v_load(const void *p)
{
	return _mm256_loadu_si256((const vec *)p);
}

INLINE void v_store(void *p, vec v)
{
	_mm256_storeu_si256((vec *)p, v);
}

INLINE vec v_load_u8(const uint8_t *p)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

INLINE vec v_load_u16(const uint16_t *p)
{
	return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}

INLINE vec v_load_i16(const int16_t *p)
{
	return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p));
}

INLINE struct parts v_load_bytes(const uint8_t *p)
{
	struct parts q;
	EACH
		q.v[h] = v_load_u8(p + WIDTH * h);
	return q;
}

INLINE __m128i narrow16(vec v) /* numbers below 2^16 */
{
	return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

INLINE void v_store_u16(uint16_t *p, vec v)
{
	_mm_storeu_si128((__m128i *)p, narrow16(v));
}

INLINE vec v_sar_by(vec v, unsigned n)
{
	return _mm256_sra_epi32(v, _mm_cvtsi32_si128((int)n));
}

INLINE vec v_is_zero(vec v)
{
	return _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
}

INLINE unsigned v_bits(vec mask)
{
	return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(mask));
}

INLINE vec v_where(vec some, vec v)
{
	return v_except(v_is_zero(some), v);
}

INLINE vec v_negated_where(vec x, int bit, vec v)
{
	return _mm256_sign_epi32(v, v_or(v_shl(x, 31 - bit), SET(1)));
}

INLINE vec v_or_some(vec a, vec b, vec m)
{
	return v_or(a, v_and(b, m));
}

INLINE vec v_scaled(vec v, int e)
{
	return _mm256_castps_si256(
		_mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_castsi256_ps(SET((e + 127) << 23))));
}

INLINE vec v_float_bits(vec v)
{
	return _mm256_castps_si256(_mm256_cvtepi32_ps(v));
}

INLINE vec v_log2(vec v)
{
	return v_sub(v_shr(v_float_bits(v), 23), SET(127));
}

/* Divides n / 2 by d / 2, because conversions are signed; n's lowest bit and two roundings move the
 * quotient by less than one. */
INLINE vec v_quotient(vec n, vec d)
{
	__m256 half = _mm256_mul_ps(_mm256_cvtepi32_ps(d), _mm256_set1_ps(0.5f));
	return _mm256_cvttps_epi32(_mm256_div_ps(_mm256_cvtepi32_ps(v_shr(n, 1)), half));
}

/* Loads one by one: as fast as a gather, and never slow (Downfall microcode,
 * Zen 4). The empty statement keeps compilers from going through registers. */
INLINE vec v_gather(const uint32_t *base, vec index)
{
	uint32_t i[8] __attribute__((aligned(32)));
	_mm256_store_si256((vec *)i, index);
	__asm__ volatile("" ::: "memory");
#define PICK(a) _mm_insert_epi32(_mm_cvtsi32_si128((int)base[i[a]]), (int)base[i[a + 1]], 1)
	__m128i lo = _mm_unpacklo_epi64(PICK(0), PICK(2));
	__m128i hi = _mm_unpacklo_epi64(PICK(4), PICK(6));
#undef PICK
	return _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
}

INLINE vec v_lookup_u16(const uint16_t *table, vec index)
{
	return _mm256_i32gather_epi32((const int *)(const void *)table, index, 2);
}

INLINE vec v_pick(int a, int b, int c, int d, vec k)
{
	return _mm256_permutevar8x32_epi32(_mm256_setr_epi32(a, b, c, d, a, b, c, d), k);
}

typedef int some_lanes; /* empty: loops run over whole vectors */
#define LANES_DONE(n) ((n) / WIDTH * WIDTH)
#define first_lanes(n) 0
#define v_load_some(p, some) ((void)(some), v_load(p))
#define v_load_i16_some(p, some) ((void)(some), v_load_i16(p))
#define v_store_some(p, v, some) ((void)(some), v_store(p, v))

INLINE void v_store_pairs(uint32_t *p, vec a, vec b, some_lanes all)
{
	vec lo = _mm256_unpacklo_epi32(a, b), hi = _mm256_unpackhi_epi32(a, b);
	(void)all;
	v_store(p, _mm256_permute2x128_si256(lo, hi, 0x20));
	v_store(p + WIDTH, _mm256_permute2x128_si256(lo, hi, 0x31));
}

INLINE vec v_side_by_side(vec a, vec b)
{
	return _mm256_blend_epi16(a, v_shl(b, 16), 0xaa);
}

INLINE vec v_low_high(vec a, vec b)
{
	return _mm256_blend_epi16(a, b, 0xaa);
}

INLINE vec v_side_by_side_limited(vec a, vec b)
{
	const vec order = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
	vec both = _mm256_shuffle_epi8(_mm256_packs_epi32(a, b), order);
	return _mm256_max_epi16(both, _mm256_set1_epi16(-32767));
}

INLINE vec v_negated_low(vec v)
{
	return _mm256_sign_epi16(v, SET(0x0001ffff));
}

INLINE vec v_negated_high(vec v)
{
	return _mm256_sign_epi16(v, SET(0xffff0001));
}

INLINE vec v_exchanged(vec v)
{
	return v_or(v_shl(v, 16), v_shr(v, 16));
}

/* Tables by mask of 8 lanes, a byte a lane. Spread: the index, among the words in order, of a
 * lane's word. Packed: the lane that each of the words, pushed to the end, comes from. */
#define ONES(m)                                                                        \
	(((m)&1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1) + ((m) >> 4 & 1) + \
	 ((m) >> 5 & 1) + ((m) >> 6 & 1) + ((m) >> 7 & 1))
#define SPREAD1(m, i) ((uint64_t)ONES((m) & ((1 << (i)) - 1)) << 8 * (i))
#define SPREAD(m)                                                                        \
	(SPREAD1(m, 0) | SPREAD1(m, 1) | SPREAD1(m, 2) | SPREAD1(m, 3) | SPREAD1(m, 4) | \
	 SPREAD1(m, 5) | SPREAD1(m, 6) | SPREAD1(m, 7))
#define PACKED1(m, i) ((m) >> (i)&1 ? (uint64_t)(i) << 8 * (7 - ONES((m) >> ((i) + 1))) : 0)
#define PACKED(m)                                                                        \
	(PACKED1(m, 0) | PACKED1(m, 1) | PACKED1(m, 2) | PACKED1(m, 3) | PACKED1(m, 4) | \
	 PACKED1(m, 5) | PACKED1(m, 6) | PACKED1(m, 7))
#define FOUR(f, m) f(m), f((m) + 1), f((m) + 2), f((m) + 3)
#define SIXTEEN(f, m) FOUR(f, m), FOUR(f, (m) + 4), FOUR(f, (m) + 8), FOUR(f, (m) + 12)
#define ALL(f)                                                                                     \
	SIXTEEN(f, 0), SIXTEEN(f, 16), SIXTEEN(f, 32), SIXTEEN(f, 48), SIXTEEN(f, 64),             \
		SIXTEEN(f, 80), SIXTEEN(f, 96), SIXTEEN(f, 112), SIXTEEN(f, 128), SIXTEEN(f, 144), \
		SIXTEEN(f, 160), SIXTEEN(f, 176), SIXTEEN(f, 192), SIXTEEN(f, 208),                \
		SIXTEEN(f, 224), SIXTEEN(f, 240)

static const uint64_t spread_lanes[256] = { ALL(SPREAD) };
static const uint64_t packed_lanes[256] = { ALL(PACKED) };

INLINE vec lane_index(uint64_t each)
{
	return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)each));
}

INLINE vec v_renorm(vec st, vec active, const uint8_t **p)
{
	vec low = v_and(v_is_zero(v_shr(st, 16)), active);
	unsigned m = v_bits(low);
	vec words = v_load_u16((const uint16_t *)(const void *)*p);
	*p += 2 * (unsigned)_mm_popcnt_u32(m);
	words = _mm256_permutevar8x32_epi32(words, lane_index(spread_lanes[m]));
	return v_blend(st, v_or(v_shl(st, 16), words), low);
}

INLINE vec v_words_put(vec st, vec mask, uint16_t **w)
{
	unsigned m = v_bits(mask);
	v_store_u16(*w - 8, _mm256_permutevar8x32_epi32(v_and(st, SET(0xffff)),
	                                                lane_index(packed_lanes[m])));
	*w -= _mm_popcnt_u32(m);
	return v_blend(st, v_shr(st, 16), mask);
}

INLINE vec twice16(const void *table) /* 16 bytes in each half */
{
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
}

/* Token pairs 0 to 15, then 16 to 19 from entry 1; `far_lo` has halves. */
typedef struct {
	vec lo, nb, far_lo, far_nb;
} token_tables;

INLINE token_tables token_tables_load(void)
{
	static const uint8_t lo[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28 };
	static const uint8_t nb[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2 };
	static const uint8_t far_lo[16] = { 0, 16, 32, 64, 128 };
	static const uint8_t far_nb[16] = { 0, 5, 6, 7, 9 };
	token_tables t = { twice16(lo), twice16(nb), twice16(far_lo), twice16(far_nb) };
	return t;
}

/* An index byte with bit 7 set looks up 0. */
INLINE void token_info(const token_tables *tables, vec pair, vec *lo, vec *nb)
{
	vec near = v_add(pair, SET(0x70)), far = v_sub(pair, SET(15));
	vec far_lo = _mm256_shuffle_epi8(tables->far_lo, far);
	*lo = v_or(_mm256_shuffle_epi8(tables->lo, near), v_shl(far_lo, 1));
	*nb = v_or(_mm256_shuffle_epi8(tables->nb, near), _mm256_shuffle_epi8(tables->far_nb, far));
}

typedef struct {
	vec part[4]; /* 16 entries in each half of a vector */
} class_row;

INLINE class_row class_row_load(const int8_t *row)
{
	class_row c;
	for (int i = 0; i < 4; i++)
		c.part[i] = twice16(row + 16 * i);
	return c;
}

INLINE vec class_of(const class_row *row, vec angle)
{
	vec v = SET(0);
	for (int i = 0; i < 4; i++) {
		vec at = v_sub(angle, SET(16 * i));
		at = v_or(at, v_gt(at, SET(15)));
		v = v_or(v, _mm256_shuffle_epi8(row->part[i], at));
	}
	return v_sar(v_shl(v, 24), 24);
}

#endif
