/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ops_avx512.h - the operations of ops.h, and those of step_body.h, in AVX-512: 16 lanes a vector
 *
 * Masks are __mmask16, a bit a lane, so that the grid codec has bodies of its own.
 */
#ifndef KVI_OPS_AVX512_H
#define KVI_OPS_AVX512_H

#include <immintrin.h>

typedef __m512i vec;
enum { PARTS = 2 };
#include "ops.h"

#define SET(x) _mm512_set1_epi32((int)(x))
#define v_add _mm512_add_epi32
#define v_sub _mm512_sub_epi32
#define v_mul _mm512_mullo_epi32
#define v_madd _mm512_madd_epi16
#define v_abs _mm512_abs_epi32
#define v_min _mm512_min_epi32
#define v_max _mm512_max_epi32
#define v_and _mm512_and_si512
#define v_or _mm512_or_si512
#define v_xor _mm512_xor_si512
#define v_shl(v, n) _mm512_slli_epi32(v, (unsigned)(n))
#define v_shr(v, n) _mm512_srli_epi32(v, (unsigned)(n))
#define v_sar(v, n) _mm512_srai_epi32(v, (unsigned)(n))
#define v_shr_any _mm512_srlv_epi32

INLINE vec v_load(const void *p)
{
	return _mm512_loadu_si512(p);
}

INLINE void v_store(void *p, vec v)
{
	_mm512_storeu_si512(p, v);
}

INLINE vec v_load_i16(const int16_t *p)
{
	return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

INLINE vec v_load_u16(const uint16_t *p)
{
	return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

INLINE vec v_load_u8(const uint8_t *p)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

INLINE vec v_sar_by(vec v, unsigned n)
{
	return _mm512_sra_epi32(v, _mm_cvtsi32_si128((int)n));
}

INLINE vec v_where(vec c, vec v)
{
	return _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(c, c), v);
}

INLINE vec v_negated_where(vec x, int bit, vec v)
{
	return _mm512_mask_sub_epi32(v, _mm512_test_epi32_mask(x, SET(1 << bit)),
	                             _mm512_setzero_si512(), v);
}

INLINE vec v_float_bits(vec v)
{
	return _mm512_castps_si512(
		_mm512_cvt_roundepi32_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE vec v_scaled(vec v, int e)
{
	return _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(v_float_bits(v)),
	                                         _mm512_castsi512_ps(SET((e + 127) << 23))));
}

#define SUM_EXPONENT
INLINE vec v_sum_exponent(vec a, vec b)
{
	__m512 sum = _mm512_add_round_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b),
	                                 _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
	return v_shr(_mm512_castps_si512(sum), 23);
}

INLINE vec v_or_some(vec a, vec b, vec m)
{
	return _mm512_ternarylogic_epi32(a, b, m, 0xf8);
}

INLINE vec v_gather(const uint32_t *base, vec index)
{
	return _mm512_i32gather_epi32(index, base, 4);
}

INLINE __m128i load_four(const uint32_t *base, __m128i index)
{
	const uint64_t low = (uint64_t)_mm_cvtsi128_si64(index);
	const uint64_t high = (uint64_t)_mm_extract_epi64(index, 1);
	__m128i v = _mm_cvtsi32_si128((int)base[(uint32_t)low]);
	v = _mm_insert_epi32(v, (int)base[low >> 32], 1);
	v = _mm_insert_epi32(v, (int)base[(uint32_t)high], 2);
	return _mm_insert_epi32(v, (int)base[high >> 32], 3);
}

INLINE __m256i load_eight(const uint32_t *base, __m256i index)
{
	const __m128i low = load_four(base, _mm256_castsi256_si128(index));
	const __m128i high = load_four(base, _mm256_extracti128_si256(index, 1));
	return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* v_gather by loads one by one: a gather of Zen 4 takes 24 cycles, in which it does little else. */
INLINE vec v_gather_each(const uint32_t *base, vec index)
{
	const __m256i low = load_eight(base, _mm512_castsi512_si256(index));
	const __m256i high = load_eight(base, _mm512_extracti64x4_epi64(index, 1));
	return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE vec v_lookup_u16(const uint16_t *table, vec index)
{
	return _mm512_i32gather_epi32(index, table, 2);
}

INLINE vec v_pick(int a, int b, int c, int d, vec k)
{
	return _mm512_permutexvar_epi32(k, _mm512_set4_epi32(d, c, b, a));
}

typedef __mmask16 some_lanes;
#define LANES_DONE(n) (n)

INLINE some_lanes first_lanes(size_t n)
{
	return (some_lanes)(n < 16 ? (1u << n) - 1 : 0xffff);
}

INLINE vec v_load_some(const void *p, some_lanes some)
{
	return _mm512_maskz_loadu_epi32(some, p);
}

INLINE vec v_load_i16_some(const int16_t *p, some_lanes some)
{
	return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(some, p));
}

INLINE void v_store_some(uint32_t *p, vec v, some_lanes some)
{
	_mm512_mask_storeu_epi32(p, some, v);
}

INLINE void v_store_pairs(uint32_t *p, vec a, vec b, some_lanes some)
{
	const vec low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
	uint32_t lanes = _pdep_u32(some, 0x55555555);
	lanes |= lanes << 1;
	_mm512_mask_storeu_epi32(p, (__mmask16)lanes, _mm512_permutex2var_epi32(a, low, b));
	_mm512_mask_storeu_epi32(p + 16, (__mmask16)(lanes >> 16),
	                         _mm512_permutex2var_epi32(a, v_add(low, SET(8)), b));
}

INLINE vec v_side_by_side(vec a, vec b)
{
	return _mm512_mask_blend_epi16(0xaaaaaaaa, a, v_shl(b, 16));
}

INLINE vec v_low_high(vec a, vec b)
{
	return _mm512_mask_mov_epi16(a, 0xaaaaaaaa, b);
}

INLINE vec v_side_by_side_limited(vec a, vec b)
{
	const vec order = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
	vec both = _mm512_shuffle_epi8(_mm512_packs_epi32(a, b), order);
	return _mm512_max_epi16(both, _mm512_set1_epi16(-32767));
}

INLINE vec v_negated_low(vec v)
{
	return _mm512_mask_sub_epi16(v, 0x55555555, _mm512_setzero_si512(), v);
}

INLINE vec v_negated_high(vec v)
{
	return _mm512_mask_sub_epi16(v, 0xaaaaaaaa, _mm512_setzero_si512(), v);
}

INLINE vec v_exchanged(vec v)
{
	return _mm512_rol_epi32(v, 16);
}

typedef struct {
	vec lo, hi;
} class_row;

INLINE class_row class_row_load(const int8_t *row)
{
	class_row c = { _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)row)),
		        _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(row + 32))) };
	return c;
}

INLINE vec class_of(const class_row *row, vec angle)
{
	vec v = _mm512_permutex2var_epi16(row->lo, angle, row->hi);
	return v_sar(v_shl(v, 16), 16);
}

/* ---------------------------------------------------------------- a step */

/* Halves: lane i of such a vector is the low half of word i, lane i + 16 the high half. */
#define HALVES
enum { LOW_HALVES = 0x55555555 };

/* The low halves of two vectors of 32 bits as halves. */
INLINE vec halves_low(vec a, vec b)
{
	return _mm512_mask_mov_epi16(a, ~LOW_HALVES, _mm512_slli_epi32(b, 16));
}

/* The high halves. */
INLINE vec halves_high(vec a, vec b)
{
	return _mm512_mask_mov_epi16(b, LOW_HALVES, _mm512_srli_epi32(a, 16));
}

/* Halves as vectors of 32 bits. */
INLINE struct parts halves_widen(vec v)
{
	struct parts q = { { _mm512_maskz_mov_epi16(LOW_HALVES, v), _mm512_srli_epi32(v, 16) } };
	return q;
}

/* The mask of halves with bit l for lane l. */
INLINE uint32_t halves_lanes(__mmask32 mmask32)
{
	return _pext_u32(mmask32, LOW_HALVES) | _pext_u32(mmask32, ~(uint32_t)LOW_HALVES) << 16;
}

/* Index of the word of lane i (natural order to halves: back == false) in a permutation. */
INLINE vec halves_order(bool back)
{
	uint16_t index[KVI_LANES];
	for (unsigned i = 0; i < KVI_LANES; i++)
		index[i] = (uint16_t)(back ? (i & 15) * 2 + i / 16 : i / 2 + i % 2 * 16);
	return v_load(index);
}

typedef uint32_t active_lanes; /* a bit a lane */
#define ALL_LANES UINT32_MAX
#define ACTIVE(active, h) (__mmask16)((active) >> 16 * (h))

INLINE active_lanes first_active(unsigned lanes)
{
	return lanes == KVI_LANES ? UINT32_MAX : ((uint32_t)1 << lanes) - 1;
}

INLINE struct parts states_load(const uint32_t *st)
{
	struct parts q = { { v_load(st), v_load(st + 16) } };
	return q;
}

INLINE void states_store(uint32_t *st, const struct parts *parts, active_lanes active)
{
	EACH
		_mm512_mask_storeu_epi32(st + 16 * h, ACTIVE(active, h), parts->v[h]);
}

INLINE struct parts contexts_load(const uint32_t *ctx, bool per_step, active_lanes active)
{
	struct parts q;
	EACH
		q.v[h] = per_step ? SET(*ctx)
		                  : _mm512_maskz_loadu_epi32(ACTIVE(active, h), ctx + 16 * h);
	return q;
}

INLINE struct parts words16_load(const uint16_t *p, active_lanes active)
{
	struct parts q;
	EACH
		q.v[h] = _mm512_cvtepu16_epi32(
			_mm256_maskz_loadu_epi16(ACTIVE(active, h), p + 16 * h));
	return q;
}

INLINE void words16_store(uint16_t *p, const struct parts *parts, active_lanes active)
{
	EACH
		_mm512_mask_cvtepi32_storeu_epi16(p + 16 * h, ACTIVE(active, h), parts->v[h]);
}

INLINE uint32_t lanes_equal(const struct parts *parts, vec v, active_lanes active)
{
	uint32_t bits = 0;
	EACH
		bits |= (uint32_t)_mm512_mask_cmpeq_epi32_mask(ACTIVE(active, h), parts->v[h], v)
		        << 16 * h;
	return bits;
}

/* v_renorm; least: 2^16, in a register of the caller. */
INLINE vec renorm(vec st, vec least, __mmask16 active, const uint8_t **p)
{
	__mmask16 m = _mm512_mask_cmplt_epu32_mask(active, st, least);
	vec words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)*p));
	*p += 2 * (unsigned)_mm_popcnt_u32(m);
	words = _mm512_maskz_expand_epi32(m, words);
	return _mm512_or_si512(_mm512_mask_slli_epi32(st, m, st, 16), words);
}

INLINE vec v_renorm(vec st, __mmask16 active, const uint8_t **p)
{
	return renorm(st, SET(KVI_RANS_LOW), active, p);
}

/* State after the symbol of a LUT entry. low: 2047. */
INLINE vec symbol_take(vec st, vec entry, vec low)
{
	vec freq = _mm512_srli_epi32(entry, 20);
	vec off = _mm512_and_si512(_mm512_srli_epi32(entry, 9), low);
	return _mm512_add_epi32(_mm512_mullo_epi32(_mm512_srli_epi32(st, KVI_PROB_BITS), freq),
	                        off);
}

INLINE vec v_words_put(vec st, __mmask16 mmask16, uint16_t **w)
{
	/* low words of n lanes, from the (16 - n)th on, at n */
	static const uint16_t last[32]
		__attribute__((aligned(64))) = { 0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
		                                 22, 24, 26, 28, 30, 0,  2,  4,  6,  8,  10,
		                                 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 };
	unsigned n = (unsigned)_mm_popcnt_u32(mmask16);
	vec order = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(last + n)));
	vec packed = _mm512_permutexvar_epi16(order, _mm512_maskz_compress_epi32(mmask16, st));
	_mm256_storeu_si256((__m256i *)(*w - 16), _mm512_castsi512_si256(packed));
	*w -= n;
	return _mm512_mask_srli_epi32(st, mmask16, st, 16);
}

enum { ROUND_DOWN = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC };

/*
 * 1 / freq, 0 < freq < 2^11, or at most 2^-22.9 of it less: divisions take 16 cycles a vector. The
 * estimate x is within 2^-14, and x (1 + e), e = 1 - freq x, is never above 1 / freq.
 */
INLINE __m512 reciprocal(vec freq)
{
	__m512 f = _mm512_cvt_roundepu32_ps(freq, ROUND_DOWN), x = _mm512_rcp14_ps(f);
	__m512 e = _mm512_fnmadd_round_ps(f, x, _mm512_set1_ps(1), ROUND_DOWN);
	return _mm512_fmadd_round_ps(x, e, x, ROUND_DOWN);
}

/*
 * The state after a symbol; st is below freq * 2^21. Its quotient by way of binary32, everything
 * rounded towards zero, is exact or one too small: the sum of all errors is below 2^-21.4 of it.
 */
INLINE vec divided_put(vec st, vec freq, vec cum)
{
	__m512 ratio = _mm512_mul_round_ps(_mm512_cvt_roundepu32_ps(st, ROUND_DOWN),
	                                   reciprocal(freq), ROUND_DOWN);
	vec q = _mm512_cvtt_roundps_epu32(ratio, _MM_FROUND_NO_EXC);
	vec r = _mm512_sub_epi32(st, _mm512_mullo_epi32(q, freq));
	__mmask16 over = _mm512_cmpge_epu32_mask(r, freq);
	vec base = _mm512_add_epi32(_mm512_slli_epi32(q, KVI_PROB_BITS), _mm512_add_epi32(cum, r));
	return _mm512_mask_add_epi32(base, over, base, _mm512_sub_epi32(SET(KVI_PROB_TOTAL), freq));
}

INLINE vec symbol_put(vec st, vec freq, vec cum, __mmask16 active, uint16_t **w)
{
	__mmask16 m = _mm512_mask_cmpge_epu32_mask(active, _mm512_srli_epi32(st, 21), freq);
	return divided_put(v_words_put(st, m, w), freq, cum);
}

/* Phase 2 of an encoder's step: `bits` raw bits a lane. */
INLINE vec raw_put(vec st, vec raw, vec bits, __mmask16 active, uint16_t **w)
{
	vec over = _mm512_srlv_epi32(st, _mm512_sub_epi32(SET(32), bits));
	__mmask16 m = _mm512_mask_test_epi32_mask(active, over, over);
	st = v_words_put(st, m, w);
	return _mm512_or_si512(_mm512_sllv_epi32(st, bits), raw);
}

/*
 * Phase 1 of a decoder's step. table: number of each lane's table, NULL when
 * lut is the one table of all; returns the symbols.
 */
INLINE struct parts symbols_take(struct parts *st, const uint32_t *lut, const struct parts *table,
                                 active_lanes active, const uint8_t **p)
{
	struct parts symbol;
	EACH {
		vec slot = _mm512_and_si512(st->v[h], SET(KVI_PROB_TOTAL - 1));
		if (table)
			slot = _mm512_or_si512(slot, _mm512_slli_epi32(table->v[h], KVI_PROB_BITS));
		vec entry = v_gather(lut, slot);
		symbol.v[h] = _mm512_and_si512(entry, SET(511));
		st->v[h] = symbol_take(st->v[h], entry, SET(KVI_PROB_TOTAL - 1));
	}
	EACH
		st->v[h] = v_renorm(st->v[h], ACTIVE(active, h), p);
	return symbol;
}

/* The mirror image of an encoder; entry: of kvi_tables.enc. */
INLINE void symbols_put(struct parts *st, const struct parts *entry, active_lanes active,
                        uint16_t **w)
{
	EACH_BACK
	{
		vec freq = _mm512_and_si512(entry->v[h], SET(0xffff));
		vec cum = _mm512_srli_epi32(entry->v[h], 16);
		st->v[h] = symbol_put(st->v[h], freq, cum, ACTIVE(active, h), w);
	}
}

/* Table numbers of a step's lanes. */
INLINE struct parts tab_load(const uint8_t *tab, active_lanes active)
{
	struct parts t;
	EACH
		t.v[h] =
			_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(ACTIVE(active, h), tab + 16 * h));
	return t;
}

/* Phase 1 of a decoder's step under the tables at tab. */
INLINE struct parts tab_step_take(struct parts *st, const struct kvi_tables *tables,
                                  const uint8_t *tab, bool per_step, active_lanes active,
                                  const uint8_t **p)
{
	const uint32_t *lut = tables->lut;
	if (per_step)
		return symbols_take(st, lut + ((size_t)*tab << KVI_PROB_BITS), NULL, active, p);
	struct parts table = tab_load(tab, active);
	return symbols_take(st, lut, &table, active, p);
}

/* Entries of the symbols for an encoder. */
INLINE struct parts tab_entries(const struct kvi_tables *tables, const uint8_t *tab, bool per_step,
                                active_lanes active, const struct parts *symbol)
{
	const int stride = __builtin_ctz((unsigned)tables->stride);
	const uint32_t *enc = tables->enc;
	struct parts index = *symbol, e;
	if (per_step) {
		enc += (size_t)*tab << stride;
	} else {
		struct parts t = tab_load(tab, active);
		EACH
			index.v[h] = _mm512_add_epi32(
				index.v[h], _mm512_sll_epi32(t.v[h], _mm_cvtsi32_si128(stride)));
	}
	EACH
		e.v[h] = v_gather(enc, index.v[h]);
	return e;
}

#endif
