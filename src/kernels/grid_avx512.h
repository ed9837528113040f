/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_avx512.h - a step of the grid codec's decoder on 2 x 16 lanes */
#ifndef KVI_GRID_AVX512_H
#define KVI_GRID_AVX512_H

#include "avx512.h"
#include "escapes.h"
#include "grid_numbers.h"

/* A table of 64 entries. */
struct tokens {
	vec lo, hi;
};

INLINE struct tokens tokens_from(const uint16_t *table)
{
	struct tokens t = { _mm512_loadu_si512(table),
		            _mm512_loadu_si512(table + 32) };
	return t;
}

INLINE struct tokens tokens_load(void)
{
	return tokens_from(kvi_grid_tokens);
}

INLINE vec token_info(const struct tokens *t, vec symbol)
{
	return _mm512_permutex2var_epi16(t->lo, symbol, t->hi);
}

/* The same for pairs of entries that are alike but for bit 15, which is that of
 * their number: one instruction instead of three. */
INLINE vec token_pair(const struct tokens *t, vec symbol)
{
	return _mm512_permutex2var_epi32(t->lo, _mm512_srli_epi32(symbol, 1),
	                                 t->hi);
}

INLINE vec log2_floor(vec v) /* -1 for 0 */
{
	return _mm512_sub_epi32(SET(31), _mm512_lzcnt_epi32(v));
}

INLINE vec low_bits(vec v, vec n)
{
	return _mm512_andnot_si512(_mm512_sllv_epi32(SET(-1), n), v);
}

INLINE vec grid_start(vec ctx, const struct numbers *f) /* G - emin */
{
	vec g = _mm512_and_si512(_mm512_srli_epi32(ctx, 8), SET(255));
	return _mm512_sub_epi32(g, SET(127 + f->emin));
}

INLINE vec grid_mean(vec ctx)
{
	return _mm512_and_si512(_mm512_srli_epi32(ctx, 16), SET(0x7fff));
}

/* The cell at zero: an element's magnitude (decoder) or raw bits (encoder), how
 * many raw bits there are, and who is escaped. */
struct zero_cell {
	vec value, bits;
	__mmask16 escaped;
};

INLINE struct zero_cell zero_decode(vec st, vec gs, const struct numbers *f)
{
	struct zero_cell c;
	vec one = SET(1), z = SET(f->z);
	vec deepest = f->subnormals ? _mm512_min_epi32(gs, z) : z;
	vec stop = _mm512_or_si512(st, _mm512_sllv_epi32(one, deepest));
	vec zeros = log2_floor(_mm512_and_si512(
		stop, _mm512_sub_epi32(_mm512_setzero_si512(), stop)));
	__mmask16 found = _mm512_cmplt_epi32_mask(zeros, deepest);
	vec skip = _mm512_mask_add_epi32(deepest, found, zeros, one);
	vec mant = _mm512_and_si512(_mm512_srlv_epi32(st, skip),
	                            SET((1 << f->m) - 1));
	vec field = _mm512_maskz_sub_epi32(found, gs, zeros);
	c.value = _mm512_add_epi32(_mm512_slli_epi32(field, (unsigned)f->m),
	                               mant);
	c.escaped = (__mmask16)~found;
	if (f->subnormals)
		c.escaped &= _mm512_cmpgt_epi32_mask(gs, z);
	c.bits = _mm512_add_epi32(skip, SET(f->m));
	c.bits = _mm512_mask_mov_epi32(c.bits, c.escaped, deepest);
	if (f->subnormals) {
		__mmask16 flat = _mm512_cmple_epi32_mask(
			gs, _mm512_setzero_si512());
		vec n = _mm512_add_epi32(gs, SET(f->m));
		c.bits = _mm512_mask_mov_epi32(c.bits, flat, n);
		c.value = _mm512_mask_mov_epi32(c.value, flat,
		                                    low_bits(st, n));
		c.escaped &= (__mmask16)~flat;
	}
	return c;
}

/* 16 lanes between the phases of a step: states, raw bits that are left to take
 * from them, magnitudes, sign bits, and the lanes that are escaped. */
struct taken {
	vec st, up, magnitude, sign;
	__mmask16 escaped;
};

/* Cells as magnitudes; some are at zero. */
INLINE void cells_any(struct taken *a, vec j, vec nb, vec gs, __mmask16 at_zero,
                      __mmask16 esc40, const struct numbers *f)
{
	vec st = a->st, zero = _mm512_setzero_si512();
	vec level = log2_floor(j), n = _mm512_sub_epi32(SET(f->m), level);
	vec base = _mm512_slli_epi32(_mm512_add_epi32(gs, level),
	                             (unsigned)f->m);
	vec n_max = _mm512_add_epi32(gs, SET(f->m));
	__mmask16 normal = _mm512_cmple_epi32_mask(n, n_max);
	base = _mm512_maskz_mov_epi32(normal, base);
	n = _mm512_min_epi32(n, n_max);
	vec up = _mm512_max_epi32(n, zero);
	vec down = _mm512_max_epi32(_mm512_sub_epi32(zero, n), zero);
	vec full = _mm512_or_si512(_mm512_sllv_epi32(j, up), low_bits(st, up));
	a->magnitude = _mm512_add_epi32(base, _mm512_srlv_epi32(full, down));
	a->escaped = esc40;
	if (at_zero) {
		struct zero_cell c = zero_decode(st, gs, f);
		__mmask16 far = _mm512_mask_cmpgt_epi32_mask(at_zero, nb,
		                                             SET(1));
		up = _mm512_mask_mov_epi32(up, at_zero, c.bits);
		up = _mm512_mask_mov_epi32(up, far, zero);
		a->magnitude = _mm512_mask_mov_epi32(a->magnitude, at_zero,
		                                     c.value);
		a->escaped |= far | (at_zero & c.escaped);
	}
	/* Symbol 40 takes nothing; its NB is 0 in the table. */
	a->st = _mm512_srlv_epi32(st, _mm512_mask_mov_epi32(up, esc40, zero));
	a->up = zero;
}

/*
 * Where no grid is near subnormals: a cell at zero, after the zeros that say
 * its binade and the 1 that ends them, is as cell 1 that many binades lower. No
 * branch, as most steps have such a cell, but many have none.
 */
INLINE void cells_normal(struct taken *a, vec j, vec nb, vec gs,
                         __mmask16 at_zero, __mmask16 esc40,
                         const struct numbers *f)
{
	vec zero = _mm512_setzero_si512(), st = a->st;
	vec some = _mm512_max_epi32(j, SET(1)), lz = _mm512_lzcnt_epi32(some);
	vec lowest = _mm512_and_si512(st, _mm512_sub_epi32(zero, st));
	vec zeros = _mm512_sub_epi32(SET(32), _mm512_lzcnt_epi32(lowest));
	__mmask16 none = _mm512_mask_cmpgt_epi32_mask(at_zero, nb, SET(1));
	none |= esc40;
	at_zero &= (__mmask16)~none;
	zeros = _mm512_maskz_min_epi32(at_zero, zeros, SET(f->z));
	a->escaped = none | _mm512_mask_testn_epi32_mask(at_zero, st,
	                                                 SET((1 << f->z) - 1));
	a->st = st = _mm512_srlv_epi32(st, zeros);

	vec n = _mm512_add_epi32(lz, SET(f->m - 31));
	vec up = _mm512_max_epi32(n, zero);
	vec down = _mm512_max_epi32(_mm512_sub_epi32(zero, n), zero);
	vec full = _mm512_or_si512(_mm512_sllv_epi32(some, up),
	                           low_bits(st, up));
	vec level = _mm512_sub_epi32(_mm512_add_epi32(gs, SET(31)),
	                             _mm512_add_epi32(lz, zeros));
	a->magnitude = _mm512_add_epi32(_mm512_slli_epi32(level,
	                                                  (unsigned)f->m),
	                                _mm512_srlv_epi32(full, down));
	a->up = up;
}

/* Phase 2 of 16 lanes. */
INLINE struct taken raw_take(vec st, vec symbol, vec ctx,
                             const struct tokens *t, const struct numbers *f)
{
	struct taken a;
	vec gs = grid_start(ctx, f), token = token_pair(t, symbol);
	__mmask16 esc40 = _mm512_cmpeq_epi32_mask(
		symbol, SET(KVI_GRID_SYMBOLS - 1));
	vec nb = _mm512_and_si512(_mm512_srli_epi32(token, 11), SET(15));
	vec e = _mm512_add_epi32(_mm512_and_si512(token, SET(511)),
	                         low_bits(st, nb));
	a.st = _mm512_srlv_epi32(st, nb);
	vec side = _mm512_srai_epi32(_mm512_slli_epi32(symbol, 31), 31);
	vec pos = _mm512_add_epi32(grid_mean(ctx), _mm512_xor_si512(e, side));
	vec j = _mm512_xor_si512(pos, _mm512_srai_epi32(pos, 31));
	__mmask16 at_zero = _mm512_testn_epi32_mask(j, j);
	a.sign = _mm512_xor_si512(pos, ctx);
	if (f->subnormals)
		cells_any(&a, j, nb, gs, at_zero, esc40, f);
	else
		cells_normal(&a, j, nb, gs, at_zero, esc40, f);
	return a;
}

INLINE vec taken_element(const struct taken *a, const struct numbers *f)
{
	vec sign = _mm512_and_si512(
		_mm512_srli_epi32(a->sign, 32 - (unsigned)f->w),
		SET(1 << (f->w - 1)));
	vec x = _mm512_or_si512(sign, a->magnitude);
	return f->w == 16 ? x : _mm512_and_si512(x, SET(255));
}

/*
 * One step of the first lanes: elements to x and, the same, to y, with 0 in the
 * other lanes. The words of a step are there (kvi_feed).
 */
INLINE const uint8_t *step_take(struct pair *st, const vec *ctx,
                                const uint32_t *lut, const struct tokens *tokens,
                                const struct numbers *f, unsigned lanes,
                                const uint8_t *p, uint16_t *x, vec *y)
{
	const uint32_t active = lanes_mask(lanes);
	struct pair table, symbol;
	struct taken a[2];
	HALVES
		table.v[h] = _mm512_and_si512(ctx[h], SET(255));
	symbol = symbols_take(st, lut, &table, active, &p);
	HALVES
		a[h] = raw_take(st->v[h], symbol.v[h], ctx[h], tokens, f);
	uint32_t escaped = (a[0].escaped | (uint32_t)a[1].escaped << 16) &
	                   active;
	if (__builtin_expect(escaped != 0, 0)) {
		HALVES
			a[h].up = _mm512_mask_mov_epi32(
				a[h].up, a[h].escaped, _mm512_setzero_si512());
	}
	HALVES {
		__mmask16 act = (__mmask16)(active >> 16 * h);
		st->v[h] = renorm(_mm512_srlv_epi32(a[h].st, a[h].up), act, &p);
		y[h] = _mm512_maskz_mov_epi32(act, taken_element(&a[h], f));
		_mm512_mask_cvtepi32_storeu_epi16(x + 16 * h, act, y[h]);
	}
	if (__builtin_expect(escaped != 0, 0)) {
		uint32_t s[KVI_LANES];
		states_store(s, st, UINT32_MAX);
		p = kvi_escapes_take16(escaped, s, x, p, (unsigned)f->w);
		*st = states_load(s);
		HALVES {
			__mmask16 act = (__mmask16)(active >> 16 * h);
			y[h] = _mm512_cvtepu16_epi32(
				_mm256_maskz_loadu_epi16(act, x + 16 * h));
		}
	}
	return p;
}

#endif
