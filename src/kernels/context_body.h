/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * context_body.h - contexts of a vector of elements from their mu and class (spec grid 3)
 *
 * Included after the operations of a set. Uses SET, v_add, v_sub, v_max, v_and, v_or, v_shl,
 * v_shr, v_sar, v_shr_any, v_float_bits, v_where, v_pick (contracts in ops.h).
 */
#ifndef KVI_CONTEXT_BODY_H
#define KVI_CONTEXT_BODY_H

/* A binary32 pattern's mantissa, the leading one included. */
INLINE vec mantissa(vec bits)
{
	return v_or(v_and(bits, SET(0x7fffff)), SET(0x800000));
}

/*
 * kvi_grid_context of each lane, in the same steps. mu: binary32 patterns; k: classes, -400 to
 * 400. The exponent of 2 sigma is 28 at least, so that a mu with exponent 0 is shifted out
 * without a test; and k - 4 G is 7 at most, as G is at least fl(k/4) - 1.
 */
INLINE vec contexts_of(vec mu, vec k, const struct kvi_grid_format *fmt)
{
	const int m = fmt->mant_bits;
	vec am = v_and(mu, SET(0x7fffffff));
	vec kq = v_sar(k, 2);
	vec xa = v_shr(am, 23), xs = v_add(kq, SET(128));
	vec x = v_max(xa, xs);
	vec ma = v_shr_any(mantissa(am), v_sub(x, xa));
	/* mantissas of 2^(k / 4), the leading one included */
	vec ms = v_shr_any(v_pick(0x800000, 0x9837f0, 0xb504f3, 0xd744fd, k), v_sub(x, xs));
	vec e = v_add(x, v_shr(v_add(ma, ms), 24));
	vec g = v_max(v_add(kq, SET(126)), v_sub(e, SET(m)));
	g = v_max(g, SET(fmt->emin - m + 127));

	vec ar = v_add(am, SET(fmt->whole ? 0 : 1 << (22 - m)));
	vec sh = v_sub(v_add(g, SET(20)), v_shr(ar, 23));
	vec y = v_shr_any(mantissa(ar), sh);
	vec class = v_max(v_sub(k, v_shl(g, 2)), SET(-4 * 127 - 16));
	vec table = v_add(v_shl(class, 3), v_add(v_and(y, SET(7)), SET(8 * (4 * 127 + 16))));
	vec high = v_or(v_and(v_shl(y, 13), SET(0x7fff0000)), v_and(mu, SET(0x80000000)));
	return v_or(v_or(table, high), v_shl(g, 8));
}

/* v * 2^e as binary32 patterns; |v| <= 2^24, the products are normal numbers or 0. */
INLINE vec scaled_bits(vec v, vec e)
{
	return v_where(v, v_add(v_float_bits(v), v_shl(e, 23)));
}

INLINE vec clamp(vec v, int limit)
{
	return v_max(v_min(v, SET(limit)), SET(-limit));
}

#endif
