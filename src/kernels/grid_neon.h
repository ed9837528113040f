/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_neon.h - a step of the grid codec's decoder on 8 x 4 lanes */
#ifndef KVI_GRID_NEON_H
#define KVI_GRID_NEON_H

#include "neon.h"
#include "escapes.h"
#include "grid_numbers.h"

INLINE vec both(vec a, vec b)
{
	return vandq_u32(a, b);
}

INLINE vec either(vec a, vec b)
{
	return vorrq_u32(a, b);
}

/* a where the mask is not set */
INLINE vec except(vec mask, vec a)
{
	return vbicq_u32(a, mask);
}

/* Signed. */
INLINE vec greater(vec a, vec b)
{
	return vcgtq_s32(SIGNED(a), SIGNED(b));
}

INLINE vec greatest(vec a, vec b)
{
	return UNSIGNED(vmaxq_s32(SIGNED(a), SIGNED(b)));
}

INLINE vec least(vec a, vec b)
{
	return UNSIGNED(vminq_s32(SIGNED(a), SIGNED(b)));
}

INLINE vec is_zero(vec v)
{
	return vceqq_u32(v, SET(0));
}

/* -1 for 0 */
INLINE vec log2_floor(vec v)
{
	return vsubq_u32(SET(31), vclzq_u32(v));
}

INLINE vec low_bits(vec v, vec n)
{
	return both(v, vsubq_u32(shift(SET(1), n), SET(1)));
}

/* LO, less one for the last, and NB of token pairs (spec grid 4). */
struct tokens {
	uint8x16x2_t lo, nb;
};

INLINE struct tokens tokens_load(void)
{
	static const uint8_t lo[32] = { 0,  1,  2,  3,  4,  5,  6,
		                        7,  8,  10, 12, 14, 16, 20,
		                        24, 28, 32, 64, 128, 255 };
	static const uint8_t nb[32] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1,
		                        1, 1, 2, 2, 2, 2, 5, 6, 7, 9 };
	struct tokens t = { { { vld1q_u8(lo), vld1q_u8(lo + 16) } },
		            { { vld1q_u8(nb), vld1q_u8(nb + 16) } } };
	return t;
}

INLINE vec lookup(uint8x16x2_t table, vec index)
{
	return vreinterpretq_u32_u8(
		vqtbl2q_u8(table, vreinterpretq_u8_u32(index)));
}

/* The upper bytes of an index look up entry 0, which is 0. */
INLINE void token_info(const struct tokens *t, vec pair, vec *lo, vec *nb)
{
	*lo = vsubq_u32(lookup(t->lo, pair), vceqq_u32(pair, SET(19)));
	*nb = lookup(t->nb, pair);
}

INLINE vec grid_start(vec ctx, const struct numbers *f) /* G - emin */
{
	vec g = both(vshrq_n_u32(ctx, 8), SET(255));
	return vsubq_u32(g, SET(127 + f->emin));
}

INLINE vec grid_mean(vec ctx)
{
	return both(vshrq_n_u32(ctx, 16), SET(0x7fff));
}

/* The cell at zero: an element's magnitude (decoder) or raw bits (encoder), how
 * many raw bits there are, and who is escaped. */
struct zero_cell {
	vec value, bits, escaped;
};

INLINE struct zero_cell zero_decode(vec st, vec gs, const struct numbers *f)
{
	struct zero_cell c;
	vec one = SET(1), z = SET(f->z), zero = SET(0);
	vec deepest = f->subnormals ? least(gs, z) : z;
	vec stop = either(st, shift(one, deepest));
	vec zeros = log2_floor(both(stop, vsubq_u32(zero, stop)));
	vec found = greater(deepest, zeros);
	vec skip = blend(deepest, vaddq_u32(zeros, one), found);
	vec mant = both(shift(st, negative(skip)), SET((1 << f->m) - 1));
	vec field = both(found, vsubq_u32(gs, zeros));
	c.value = vaddq_u32(shift(field, SET(f->m)), mant);
	c.escaped = except(found, f->subnormals ? greater(gs, z) : SET(-1));
	c.bits = blend(vaddq_u32(skip, SET(f->m)), deepest, c.escaped);
	if (f->subnormals) {
		vec above = greater(gs, zero);
		vec n = vaddq_u32(gs, SET(f->m));
		c.bits = blend(n, c.bits, above);
		c.value = blend(low_bits(st, n), c.value, above);
		c.escaped = both(c.escaped, above);
	}
	return c;
}

/* Phase 2 of 4 lanes: the elements, the lanes that are escaped. */
INLINE vec raw_take(vec *state, vec symbol, vec ctx, const struct tokens *t,
                    const struct numbers *f, vec *escaped)
{
	vec st = *state, zero = SET(0), lo, nb;
	vec gs = grid_start(ctx, f);
	vec esc40 = vceqq_u32(symbol, SET(KVI_GRID_SYMBOLS - 1));
	token_info(t, vshrq_n_u32(symbol, 1), &lo, &nb);
	vec e = vaddq_u32(lo, low_bits(st, nb));
	st = shift(st, negative(nb));
	vec side = vsubq_u32(zero, both(symbol, SET(1)));
	vec pos = vaddq_u32(grid_mean(ctx), veorq_u32(e, side));
	vec below = UNSIGNED(vshrq_n_s32(SIGNED(pos), 31));
	vec j = veorq_u32(pos, below);

	vec level = log2_floor(j), n = vsubq_u32(SET(f->m), level);
	vec base = shift(vaddq_u32(gs, level), SET(f->m));
	if (f->subnormals) {
		vec n_max = vaddq_u32(gs, SET(f->m));
		base = except(greater(n, n_max), base);
		n = least(n, n_max);
	}
	vec up = greatest(n, zero);
	vec down = greatest(vsubq_u32(zero, n), zero);
	vec full = either(shift(j, up), low_bits(st, up));
	vec magnitude = vaddq_u32(base, shift(full, negative(down)));

	vec at_zero = is_zero(j), esc = esc40;
	if (lane_bits(at_zero)) {
		struct zero_cell c = zero_decode(st, gs, f);
		vec far = both(at_zero, greater(nb, SET(1)));
		up = except(far, blend(up, c.bits, at_zero));
		magnitude = blend(magnitude, c.value, at_zero);
		esc = either(esc, either(far, both(at_zero, c.escaped)));
	}
	/* Symbol 40 takes nothing; its NB is 0 in the tables. */
	*state = shift(st, negative(except(esc40, up)));
	*escaped = esc;
	vec sign = veorq_u32(vshrq_n_u32(below, 31),
	                            vshrq_n_u32(ctx, 31));
	vec x = either(shift(sign, SET(f->w - 1)), magnitude);
	return both(x, SET(f->w == 16 ? 0xffff : 0xff));
}

/* The elements of a step that has escaped ones, as they are in memory. */
INLINE void elements_again(const uint16_t *x, unsigned lanes, vec *y)
{
	uint16_t room[KVI_LANES] = { 0 };
	memcpy(room, x, lanes * sizeof(*x));
	EACH
		y[h] = vmovl_u16(vld1_u16(room + 4 * h));
}

/*
 * One step of the first lanes: elements to x and, the same, to y, with 0 in the
 * other lanes. The words of a step are there (kvi_feed).
 */
INLINE const uint8_t *step_take(struct parts *st, const vec *ctx,
                                const uint32_t *lut, const struct tokens *tokens,
                                const struct numbers *f, unsigned lanes,
                                const uint8_t *p, uint16_t *x, vec *y)
{
	const bool full = lanes == KVI_LANES;
	const struct parts active = lanes_active(lanes);
	uint16_t room[KVI_LANES], *to = full ? x : room;
	struct parts table, symbol;
	uint32_t escaped = 0;
	EACH
		table.v[h] = both(ctx[h], SET(255));
	symbol = symbols_take(st, lut, &table, &active, &p);
	EACH {
		vec esc;
		y[h] = raw_take(&st->v[h], symbol.v[h], ctx[h], tokens, f,
		                &esc);
		esc = both(esc, active.v[h]);
		escaped |= lane_bits(esc) << 4 * h;
	}
	EACH {
		st->v[h] = renorm(st->v[h], active.v[h], &p);
		y[h] = both(y[h], active.v[h]);
		vst1_u16(to + 4 * h, vmovn_u32(y[h]));
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
