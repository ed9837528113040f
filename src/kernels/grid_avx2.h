/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_avx2.h - a step of the grid codec's decoder on 4 x 8 lanes */
#ifndef KVI_GRID_AVX2_H
#define KVI_GRID_AVX2_H

#include "avx2.h"
#include "escapes.h"
#include "grid_numbers.h"

INLINE vec both(vec a, vec b)
{
	return _mm256_and_si256(a, b);
}

INLINE vec either(vec a, vec b)
{
	return _mm256_or_si256(a, b);
}

/* a where the mask is not set */
INLINE vec except(vec mask, vec a)
{
	return _mm256_andnot_si256(mask, a);
}

INLINE vec greater(vec a, vec b)
{
	return _mm256_cmpgt_epi32(a, b);
}

INLINE vec is_zero(vec v)
{
	return _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
}

/* Of numbers 1 .. 2^24; anything for 0. */
INLINE vec log2_floor(vec v)
{
	vec bits = _mm256_castps_si256(_mm256_cvtepi32_ps(v));
	return _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), SET(127));
}

INLINE vec low_bits(vec v, vec n)
{
	vec mask = _mm256_sub_epi32(_mm256_sllv_epi32(SET(1), n), SET(1));
	return both(v, mask);
}

INLINE vec bytes16(const uint8_t *table)
{
	return _mm256_broadcastsi128_si256(
		_mm_loadu_si128((const __m128i *)table));
}

/* LO and NB of token pairs (spec grid 4): 0..15, then 16..19 from entry 1. */
struct tokens {
	vec lo, nb, far_lo, far_nb;
};

INLINE struct tokens tokens_load(void)
{
	static const uint8_t lo[16] = { 0, 1,  2,  3,  4,  5,  6,  7,
		                        8, 10, 12, 14, 16, 20, 24, 28 };
	static const uint8_t nb[16] = { 0, 0, 0, 0, 0, 0, 0, 0,
		                        1, 1, 1, 1, 2, 2, 2, 2 };
	static const uint8_t far_lo[16] = { 0, 16, 32, 64, 128 }; /* halves */
	static const uint8_t far_nb[16] = { 0, 5, 6, 7, 9 };
	struct tokens t = { bytes16(lo), bytes16(nb), bytes16(far_lo),
		            bytes16(far_nb) };
	return t;
}

/* An index byte with bit 7 set looks up 0. */
INLINE void token_info(const struct tokens *t, vec pair, vec *lo, vec *nb)
{
	vec near = _mm256_add_epi32(pair, SET(0x70));
	vec far = _mm256_sub_epi32(pair, SET(15));
	vec far_lo = _mm256_shuffle_epi8(t->far_lo, far);
	*lo = either(_mm256_shuffle_epi8(t->lo, near),
	             _mm256_slli_epi32(far_lo, 1));
	*nb = either(_mm256_shuffle_epi8(t->nb, near),
	             _mm256_shuffle_epi8(t->far_nb, far));
}

INLINE vec grid_start(vec ctx, const struct numbers *f) /* G - emin */
{
	vec g = both(_mm256_srli_epi32(ctx, 8), SET(255));
	return _mm256_sub_epi32(g, SET(127 + f->emin));
}

INLINE vec grid_mean(vec ctx)
{
	return both(_mm256_srli_epi32(ctx, 16), SET(0x7fff));
}

/* The cell at zero: an element's magnitude (decoder) or raw bits (encoder), how
 * many raw bits there are, and who is escaped. */
struct zero_cell {
	vec value, bits, escaped;
};

INLINE struct zero_cell zero_decode(vec st, vec gs, const struct numbers *f)
{
	struct zero_cell c;
	vec one = SET(1), z = SET(f->z), zero = _mm256_setzero_si256();
	vec deepest = f->subnormals ? _mm256_min_epi32(gs, z) : z;
	vec stop = either(st, _mm256_sllv_epi32(one, deepest));
	/* At most 2^11; where gs < 0, st's own lowest bit is cut off. */
	stop = both(stop, _mm256_sub_epi32(zero, stop));
	vec zeros = log2_floor(f->subnormals ? both(stop, SET(0xffff)) : stop);
	vec found = greater(deepest, zeros);
	vec skip = _mm256_min_epi32(_mm256_add_epi32(zeros, one), deepest);
	vec mant = both(_mm256_srlv_epi32(st, skip), SET((1 << f->m) - 1));
	vec field = both(found, _mm256_sub_epi32(gs, zeros));
	c.value = _mm256_add_epi32(_mm256_slli_epi32(field, f->m), mant);
	c.escaped = except(found, f->subnormals ? greater(gs, z) : SET(-1));
	c.bits = blend(_mm256_add_epi32(skip, SET(f->m)), deepest, c.escaped);
	if (f->subnormals) {
		vec above = greater(gs, zero);
		vec n = _mm256_add_epi32(gs, SET(f->m));
		c.bits = blend(n, c.bits, above);
		c.value = blend(low_bits(st, n), c.value, above);
		c.escaped = both(c.escaped, above);
	}
	return c;
}

/*
 * Cells beside zero: the element's magnitude of cell j in *magnitude and the
 * number of raw bits in it. As binary32, j is exact and has the exponent and
 * the upper bits of the mantissa where the element wants them.
 */
INLINE vec cell_bits(vec st, vec j, vec gs, const struct numbers *f,
                     vec *magnitude)
{
	vec zero = _mm256_setzero_si256(), up;
	if (!f->subnormals) {
		vec bits = _mm256_castps_si256(_mm256_cvtepi32_ps(j));
		up = _mm256_sub_epi32(SET(127 + f->m),
		                      _mm256_srli_epi32(bits, 23));
		up = _mm256_max_epi32(up, zero);
		vec base = _mm256_slli_epi32(
			_mm256_sub_epi32(gs, SET(126)), f->m);
		*magnitude = _mm256_add_epi32(
			_mm256_add_epi32(_mm256_srli_epi32(bits, 23 - f->m),
			                 base),
			low_bits(st, up));
		return up;
	}
	vec level = log2_floor(j), n = _mm256_sub_epi32(SET(f->m), level);
	vec base = _mm256_slli_epi32(_mm256_add_epi32(gs, level), f->m);
	vec n_max = _mm256_add_epi32(gs, SET(f->m));
	base = except(greater(n, n_max), base);
	n = _mm256_min_epi32(n, n_max);
	up = _mm256_max_epi32(n, zero);
	vec down = _mm256_max_epi32(_mm256_sub_epi32(zero, n), zero);
	vec full = either(_mm256_sllv_epi32(j, up), low_bits(st, up));
	*magnitude = _mm256_add_epi32(base, _mm256_srlv_epi32(full, down));
	return up;
}

/* Phase 2 of 8 lanes: the elements, the lanes that are escaped. */
INLINE vec raw_take(vec *state, vec symbol, vec ctx, const struct tokens *t,
                    const struct numbers *f, vec *escaped)
{
	vec st = *state, zero = _mm256_setzero_si256(), lo, nb;
	vec gs = grid_start(ctx, f);
	vec esc40 = _mm256_cmpeq_epi32(symbol, SET(KVI_GRID_SYMBOLS - 1));
	token_info(t, _mm256_srli_epi32(symbol, 1), &lo, &nb);
	vec e = _mm256_add_epi32(lo, low_bits(st, nb));
	st = _mm256_srlv_epi32(st, nb);
	vec side = _mm256_sub_epi32(zero, both(symbol, SET(1)));
	vec pos = _mm256_add_epi32(grid_mean(ctx), _mm256_xor_si256(e, side));
	vec below = _mm256_srai_epi32(pos, 31);
	vec j = _mm256_xor_si256(pos, below);

	vec magnitude, up = cell_bits(st, j, gs, f, &magnitude);

	vec at_zero = is_zero(j), esc = esc40;
	if (lane_bits(at_zero)) {
		struct zero_cell c = zero_decode(st, gs, f);
		vec far = both(at_zero, greater(nb, SET(1)));
		up = except(far, blend(up, c.bits, at_zero));
		magnitude = blend(magnitude, c.value, at_zero);
		esc = either(esc, either(far, both(at_zero, c.escaped)));
	}
	/* Symbol 40 takes nothing; its NB is 0 in the tables. */
	*state = _mm256_srlv_epi32(st, except(esc40, up));
	*escaped = esc;
	vec sign = _mm256_srli_epi32(_mm256_xor_si256(below, ctx), 31);
	vec x = either(_mm256_slli_epi32(sign, f->w - 1), magnitude);
	return both(x, SET(f->w == 16 ? 0xffff : 0xff));
}

/* The elements of a step that has escaped ones, as they are in memory. */
INLINE void elements_again(const uint16_t *x, unsigned lanes, vec *y)
{
	uint16_t room[KVI_LANES] = { 0 };
	memcpy(room, x, lanes * sizeof(*x));
	EACH
		y[h] = _mm256_cvtepu16_epi32(
			_mm_loadu_si128((const __m128i *)(room + 8 * h)));
}

/*
 * One step of the first lanes: elements to x and, the same, to y, with 0 in the
 * other lanes. The words of a step are there (kvi_feed).
 */
INLINE const uint8_t *step_take(struct quad *st, const vec *ctx,
                                const uint32_t *lut, const struct tokens *tokens,
                                const struct numbers *f, unsigned lanes,
                                const uint8_t *p, uint16_t *x, vec *y)
{
	const bool full = lanes == KVI_LANES;
	const struct quad active = lanes_active(lanes);
	uint16_t room[KVI_LANES], *to = full ? x : room;
	struct quad table, symbol;
	uint32_t escaped = 0;
	EACH
		table.v[h] = both(ctx[h], SET(255));
	symbol = symbols_take(st, lut, &table, &active, &p);
	EACH {
		vec esc;
		y[h] = raw_take(&st->v[h], symbol.v[h], ctx[h], tokens, f,
		                &esc);
		esc = both(esc, active.v[h]);
		escaped |= lane_bits(esc) << 8 * h;
	}
	EACH {
		st->v[h] = renorm(st->v[h], active.v[h], &p);
		y[h] = both(y[h], active.v[h]);
		_mm_storeu_si128((__m128i *)(to + 8 * h), narrow16(y[h]));
	}
	if (!full)
		memcpy(x, room, lanes * sizeof(*x));
	if (__builtin_expect(escaped != 0, 0)) {
		uint32_t s[KVI_LANES];
		states_store(s, st, KVI_LANES);
		p = kvi_escapes_take16(escaped, s, x, p, (unsigned)f->w);
		*st = states_load(s);
		elements_again(x, lanes, y);
	}
	return p;
}

#endif
