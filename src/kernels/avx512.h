/* SPDX-License-Identifier: BSD-3-Clause */
/* avx512.h - parts of a step on 16 lanes, shared by the AVX-512 kernels */
#ifndef KVI_AVX512_H
#define KVI_AVX512_H

#include <immintrin.h>

#include "feed.h"
#include "util/unroll.h"

#define INLINE static inline __attribute__((always_inline))
typedef __m512i vec;
#define SET(x) _mm512_set1_epi32((int)(x))

/* Both halves of a step; without it gcc -O2 keeps them in memory. */
#define HALVES KVI_UNROLL(2) for (int h = 0; h < 2; h++)
#define HALVES_BACK KVI_UNROLL(2) for (int h = 1; h >= 0; h--)

/* Lanes 0..15 and 16..31; active: the lanes that take part. */
struct pair {
	vec v[2];
};

INLINE struct pair states_load(const uint32_t *st)
{
	struct pair p = { { _mm512_loadu_si512(st),
		            _mm512_loadu_si512(st + 16) } };
	return p;
}

INLINE void states_store(uint32_t *st, const struct pair *p, uint32_t active)
{
	_mm512_mask_storeu_epi32(st, (__mmask16)active, p->v[0]);
	_mm512_mask_storeu_epi32(st + 16, (__mmask16)(active >> 16), p->v[1]);
}

INLINE uint32_t lanes_mask(unsigned lanes)
{
	return lanes == KVI_LANES ? UINT32_MAX : ((uint32_t)1 << lanes) - 1;
}

INLINE vec gather(const uint32_t *base, vec index)
{
	return _mm512_i32gather_epi32(index, base, 4);
}

/* spec rans 2: renorm of 16 lanes. */
INLINE vec renorm(vec st, __mmask16 active, const uint8_t **p)
{
	__mmask16 m = _mm512_mask_cmplt_epu32_mask(active, st,
	                                           SET(KVI_RANS_LOW));
	vec words = _mm512_cvtepu16_epi32(
		_mm256_loadu_si256((const __m256i *)*p));
	*p += 2 * (unsigned)_mm_popcnt_u32(m);
	words = _mm512_maskz_expand_epi32(m, words);
	return _mm512_or_si512(_mm512_mask_slli_epi32(st, m, st, 16), words);
}

/* State after the symbol of a LUT entry. */
INLINE vec symbol_take(vec st, vec entry)
{
	vec freq = _mm512_srli_epi32(entry, 20);
	vec off = _mm512_and_si512(_mm512_srli_epi32(entry, 9), SET(2047));
	return _mm512_add_epi32(
		_mm512_mullo_epi32(_mm512_srli_epi32(st, KVI_PROB_BITS), freq),
		off);
}

/* Writes the low words of the lanes in m downwards from *w. Stores 16 words,
 * those below the ones in m are overwritten later. */
INLINE vec words_put(vec st, __mmask16 m, uint16_t **w)
{
	const vec iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5,
	                                  4, 3, 2, 1, 0);
	int n = _mm_popcnt_u32(m);
	vec packed = _mm512_maskz_compress_epi32(m, st);
	packed = _mm512_permutexvar_epi32(_mm512_add_epi32(iota, SET(n)),
	                                  packed);
	_mm256_storeu_si256((__m256i *)(*w - 16),
	                    _mm512_cvtepi32_epi16(packed));
	*w -= n;
	return _mm512_mask_srli_epi32(st, m, st, 16);
}

/*
 * st / freq by way of binary32, everything rounded towards zero: the state is
 * below freq * 2^21, so that the quotient is right or one too small.
 */
INLINE vec symbol_put(vec st, vec enc, __mmask16 active, uint16_t **w)
{
	enum { RZ = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC };
	vec freq = _mm512_and_si512(enc, SET(0xffff));
	vec cum = _mm512_srli_epi32(enc, 16);
	__mmask16 m = _mm512_mask_cmpge_epu32_mask(
		active, _mm512_srli_epi32(st, 21), freq);
	st = words_put(st, m, w);
	__m512 ratio = _mm512_div_round_ps(_mm512_cvt_roundepu32_ps(st, RZ),
	                                   _mm512_cvt_roundepu32_ps(freq, RZ),
	                                   RZ);
	vec q = _mm512_cvtt_roundps_epu32(ratio, _MM_FROUND_NO_EXC);
	vec r = _mm512_sub_epi32(st, _mm512_mullo_epi32(q, freq));
	__mmask16 over = _mm512_cmpge_epu32_mask(r, freq);
	vec base = _mm512_add_epi32(_mm512_slli_epi32(q, KVI_PROB_BITS),
	                            _mm512_add_epi32(cum, r));
	return _mm512_mask_add_epi32(
		base, over, base,
		_mm512_sub_epi32(SET(KVI_PROB_TOTAL), freq));
}

/*
 * Phase 1 of a decoder's step. table: number of each lane's table, NULL when
 * lut is the one table of all; returns the symbols.
 */
INLINE struct pair symbols_take(struct pair *st, const uint32_t *lut,
                                const struct pair *table, uint32_t active,
                                const uint8_t **p)
{
	struct pair symbol;
	HALVES {
		vec slot = _mm512_and_si512(st->v[h], SET(KVI_PROB_TOTAL - 1));
		if (table)
			slot = _mm512_or_si512(
				slot, _mm512_slli_epi32(table->v[h],
		                                        KVI_PROB_BITS));
		vec entry = gather(lut, slot);
		symbol.v[h] = _mm512_and_si512(entry, SET(511));
		st->v[h] = symbol_take(st->v[h], entry);
	}
	HALVES
		st->v[h] = renorm(st->v[h], (__mmask16)(active >> 16 * h), p);
	return symbol;
}

/* The mirror image of an encoder; entry: of kvi_tables.enc. */
INLINE void symbols_put(struct pair *st, const struct pair *entry,
                        uint32_t active, uint16_t **w)
{
	HALVES_BACK
		st->v[h] = symbol_put(st->v[h], entry->v[h],
		                      (__mmask16)(active >> 16 * h), w);
}

/* Table numbers of a step's lanes. */
INLINE struct pair tables_load(const uint8_t *tab, uint32_t active)
{
	struct pair t;
	HALVES
		t.v[h] = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(
			(__mmask16)(active >> 16 * h), tab + 16 * h));
	return t;
}

/* Phase 1 of a decoder's step under the tables at tab. */
INLINE struct pair table_step_take(struct pair *st, const struct kvi_tables *tables,
                             const uint8_t *tab, bool per_step,
                             uint32_t active, const uint8_t **p)
{
	const uint32_t *lut = tables->lut;
	if (per_step)
		return symbols_take(st, lut + ((size_t)*tab << KVI_PROB_BITS),
		                    NULL, active, p);
	struct pair table = tables_load(tab, active);
	return symbols_take(st, lut, &table, active, p);
}

/* Entries of the symbols for an encoder. */
INLINE struct pair entries_load(const struct kvi_tables *tables,
                                const uint8_t *tab, bool per_step,
                                uint32_t active, const struct pair *symbol)
{
	const int stride = __builtin_ctz((unsigned)tables->stride);
	const uint32_t *enc = tables->enc;
	struct pair index = *symbol, e;
	if (per_step) {
		enc += (size_t)*tab << stride;
	} else {
		struct pair t = tables_load(tab, active);
		HALVES
			index.v[h] = _mm512_add_epi32(
				index.v[h],
				_mm512_sll_epi32(t.v[h],
			                         _mm_cvtsi32_si128(stride)));
	}
	HALVES
		e.v[h] = gather(enc, index.v[h]);
	return e;
}

#endif
