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

INLINE vec log2_floor(vec v) /* -1 for 0 */
{
	return _mm512_sub_epi32(SET(31), _mm512_lzcnt_epi32(v));
}

INLINE vec low_bits(vec v, vec n)
{
	vec mask = _mm512_sub_epi32(_mm512_sllv_epi32(SET(1), n), SET(1));
	return _mm512_and_si512(v, mask);
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

/* Phase 2 of 16 lanes: the elements, the lanes that are escaped. */
INLINE vec raw_take(vec *state, vec symbol, vec ctx, const struct tokens *t,
                    const struct numbers *f, __mmask16 *escaped)
{
	vec st = *state, zero = _mm512_setzero_si512();
	vec gs = grid_start(ctx, f), token = token_info(t, symbol);
	__mmask16 esc40 = _mm512_cmpeq_epi32_mask(
		symbol, SET(KVI_GRID_SYMBOLS - 1));
	__mmask16 esc = esc40;
	vec nb = _mm512_and_si512(_mm512_srli_epi32(token, 11), SET(15));
	vec e = _mm512_add_epi32(_mm512_and_si512(token, SET(511)),
	                         low_bits(st, nb));
	st = _mm512_srlv_epi32(st, nb);
	vec side = _mm512_srai_epi32(_mm512_slli_epi32(token, 16), 31);
	vec pos = _mm512_add_epi32(grid_mean(ctx), _mm512_xor_si512(e, side));
	vec below = _mm512_srai_epi32(pos, 31);
	vec j = _mm512_xor_si512(pos, below);

	vec level = log2_floor(j), n = _mm512_sub_epi32(SET(f->m), level);
	vec base = _mm512_slli_epi32(_mm512_add_epi32(gs, level),
	                             (unsigned)f->m);
	if (f->subnormals) {
		vec n_max = _mm512_add_epi32(gs, SET(f->m));
		__mmask16 normal = _mm512_cmple_epi32_mask(n, n_max);
		base = _mm512_maskz_mov_epi32(normal, base);
		n = _mm512_min_epi32(n, n_max);
	}
	vec up = _mm512_max_epi32(n, zero);
	vec down = _mm512_max_epi32(_mm512_sub_epi32(zero, n), zero);
	vec full = _mm512_or_si512(_mm512_sllv_epi32(j, up), low_bits(st, up));
	vec magnitude = _mm512_add_epi32(base, _mm512_srlv_epi32(full, down));

	__mmask16 at_zero = _mm512_testn_epi32_mask(j, j);
	if (at_zero) {
		struct zero_cell c = zero_decode(st, gs, f);
		__mmask16 far = _mm512_mask_cmpgt_epi32_mask(at_zero, nb,
		                                             SET(1));
		up = _mm512_mask_mov_epi32(up, at_zero, c.bits);
		up = _mm512_mask_mov_epi32(up, far, zero);
		magnitude = _mm512_mask_mov_epi32(magnitude, at_zero,
		                                  c.value);
		esc |= far | (at_zero & c.escaped);
	}
	/* Symbol 40 takes nothing; its NB is 0 in the table. */
	up = _mm512_mask_mov_epi32(up, esc40, zero);
	*state = _mm512_srlv_epi32(st, up);
	*escaped = esc;
	vec sign = _mm512_xor_si512(_mm512_srli_epi32(below, 31),
	                            _mm512_srli_epi32(ctx, 31));
	vec x = _mm512_or_si512(
		_mm512_slli_epi32(sign, (unsigned)f->w - 1), magnitude);
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
	__mmask16 esc[2];
	HALVES
		table.v[h] = _mm512_and_si512(ctx[h], SET(255));
	symbol = symbols_take(st, lut, &table, active, &p);
	HALVES
		y[h] = raw_take(&st->v[h], symbol.v[h], ctx[h], tokens, f,
		                &esc[h]);
	HALVES {
		__mmask16 act = (__mmask16)(active >> 16 * h);
		st->v[h] = renorm(st->v[h], act, &p);
		y[h] = _mm512_maskz_mov_epi32(act, y[h]);
		_mm512_mask_cvtepi32_storeu_epi16(x + 16 * h, act, y[h]);
	}
	uint32_t escaped = (esc[0] | (uint32_t)esc[1] << 16) & active;
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
