/* SPDX-License-Identifier: BSD-3-Clause */
/* context_avx2.h - contexts of 8 elements from their mu and class (spec grid 3) */
#ifndef KVI_CONTEXT_AVX2_H
#define KVI_CONTEXT_AVX2_H

#include "avx2.h"

/* A binary32 pattern's mantissa, the leading one included. */
INLINE vec mantissa(vec bits)
{
	return _mm256_or_si256(_mm256_and_si256(bits, SET(0x7fffff)),
	                       SET(0x800000));
}

/*
 * The steps of kvi_grid_context, in the same order. The exponent of 2 sigma is
 * 28 at least, so that a mu with exponent 0 is shifted out without a test; and
 * k - 4 G is 7 at most, as G is at least fl(k/4) - 1.
 */
INLINE vec contexts_of(vec mu, vec k, const struct kvi_grid_format *fmt)
{
	/* mantissas of 2^(k / 4), the leading one included */
	const vec m4 = _mm256_setr_epi32(0x800000, 0x9837f0, 0xb504f3, 0xd744fd,
	                                 0x800000, 0x9837f0, 0xb504f3,
	                                 0xd744fd);
	const int m = fmt->mant_bits;
	vec am = _mm256_min_epu32(_mm256_and_si256(mu, SET(0x7fffffff)),
	                          SET(0x7f000000));
	vec kq = _mm256_srai_epi32(k, 2);
	vec xa = _mm256_srli_epi32(am, 23), xs = _mm256_add_epi32(kq, SET(128));
	vec x = _mm256_max_epi32(xa, xs);
	vec ma = _mm256_srlv_epi32(mantissa(am), _mm256_sub_epi32(x, xa));
	vec ms = _mm256_srlv_epi32(
		_mm256_permutevar8x32_epi32(m4, k), /* by its low bits */
		_mm256_sub_epi32(x, xs));
	vec e = _mm256_add_epi32(
		x, _mm256_srli_epi32(_mm256_add_epi32(ma, ms), 24));
	vec g = _mm256_max_epi32(_mm256_add_epi32(kq, SET(126)),
	                         _mm256_sub_epi32(e, SET(m)));
	g = _mm256_max_epi32(g, SET(fmt->emin - m + 127));

	vec ar = _mm256_add_epi32(am, SET(fmt->whole ? 0 : 1 << (22 - m)));
	vec sh = _mm256_sub_epi32(_mm256_add_epi32(g, SET(20)),
	                          _mm256_srli_epi32(ar, 23));
	vec y = _mm256_srlv_epi32(mantissa(ar), sh);
	vec class = _mm256_sub_epi32(k, _mm256_slli_epi32(g, 2));
	class = _mm256_max_epi32(class, SET(-4 * 127 - 16));
	vec table = _mm256_add_epi32(
		_mm256_slli_epi32(class, 3),
		_mm256_add_epi32(_mm256_and_si256(y, SET(7)),
		                 SET(8 * (4 * 127 + 16))));
	vec high = _mm256_or_si256(
		_mm256_and_si256(_mm256_slli_epi32(y, 13), SET(0x7fff0000)),
		_mm256_and_si256(mu, SET(0x80000000)));
	return _mm256_or_si256(_mm256_or_si256(table, high),
	                       _mm256_slli_epi32(g, 8));
}

/* v * 2^e as binary32 patterns; |v| <= 2^24 is exact in any rounding mode. */
INLINE vec scaled_bits(vec v, vec e)
{
	vec bits = _mm256_castps_si256(_mm256_cvtepi32_ps(v));
	vec none = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
	return _mm256_andnot_si256(
		none, _mm256_add_epi32(bits, _mm256_slli_epi32(e, 23)));
}

#endif
