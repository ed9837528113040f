/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * context_body.h - contexts of a vector of elements from their mu and class (spec grid 3)
 *
 * Included after the operations of a set. Uses SET, v_add, v_sub, v_max, v_min, v_and, v_or_some,
 * v_low_high, v_shl, v_shr, v_sar, v_shr_any, v_float_bits, v_where, v_pick (contracts in ops.h)
 * and, where SUM_EXPONENT says that the set has it, v_sum_exponent.
 */
#ifndef KVI_CONTEXT_BODY_H
#define KVI_CONTEXT_BODY_H

/* A binary32 pattern's mantissa, the leading one included. */
INLINE vec mantissa(vec bits)
{
	return v_or_some(SET(0x800000), bits, SET(0x7fffff));
}

/* Exponent fields of am + 2^(k / 4 + 1), rounded towards zero. am: binary32 patterns without
 * their signs; kq: k / 4. */
INLINE vec sum_exponent(vec am, vec k, vec kq)
{
#ifdef SUM_EXPONENT
	vec sigma = v_pick(128 << 23, (128 << 23) + 0x1837f0, (128 << 23) + 0x3504f3,
	                   (128 << 23) + 0x5744fd, k);
	return v_sum_exponent(am, v_add(sigma, v_shl(kq, 23)));
#else
	vec xa = v_shr(am, 23), xs = v_add(kq, SET(128));
	vec x = v_max(xa, xs);
	vec ma = v_shr_any(mantissa(am), v_sub(x, xa));
	/* mantissas of 2^(k / 4), the leading one included */
	vec ms = v_shr_any(v_pick(0x800000, 0x9837f0, 0xb504f3, 0xd744fd, k), v_sub(x, xs));
	return v_add(x, v_shr(v_add(ma, ms), 24));
#endif
}

/*
 * kvi_grid_context of each lane, in the same steps. mu: binary32 patterns; k: classes, -400 to
 * 400. The exponent of 2 sigma is 28 at least, so that a mu with exponent 0 is shifted out
 * without a test; and k - 4 G is 7 at most, as G is at least fl(k/4) - 1.
 */
INLINE vec contexts_of(vec mu, vec k, const struct kvi_grid_format *fmt)
{
	const int m = fmt->mant_bits, least = fmt->emin - m + 127;
	vec am = v_and(mu, SET(0x7fffffff));
	vec kq = v_sar(k, 2);
	/* g + m; 2 sigma alone gives at least 26 for g */
	vec g = v_max(v_add(kq, SET(126 + m)), sum_exponent(am, k, kq));
	if (least > 26)
		g = v_max(g, SET(least + m));

	vec ar = v_add(am, SET(fmt->whole ? 0 : 1 << (22 - m)));
	vec sh = v_sub(v_add(g, SET(20 - m)), v_shr(ar, 23));
	vec y = v_shr_any(mantissa(ar), sh);
	vec class = v_max(v_sub(k, v_shl(g, 2)), SET(-4 * (127 + m) - 16));
	vec table = v_or_some(v_shl(class, 3), y, SET(7));
	vec low = v_add(v_add(table, v_shl(g, 8)), SET(8 * (4 * (127 + m) + 16) - (m << 8)));
	return v_low_high(low, v_or_some(v_shl(y, 13), mu, SET(0x80000000)));
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
