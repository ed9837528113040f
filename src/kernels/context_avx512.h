/* SPDX-License-Identifier: BSD-3-Clause */
/* context_avx512.h - contexts of 16 elements from their mu and class (spec grid 3) */
#ifndef KVI_CONTEXT_AVX512_H
#define KVI_CONTEXT_AVX512_H

#include "avx512.h"

/* A binary32 pattern's mantissa, the leading one included. */
INLINE vec mantissa(vec bits)
{
	return _mm512_or_si512(_mm512_and_si512(bits, SET(0x7fffff)),
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
	const vec m4 = _mm512_set4_epi32(0xd744fd, 0xb504f3, 0x9837f0,
	                                 0x800000);
	const int m = fmt->mant_bits;
	vec am = _mm512_min_epu32(_mm512_and_si512(mu, SET(0x7fffffff)),
	                          SET(0x7f000000));
	vec kq = _mm512_srai_epi32(k, 2);
	vec xa = _mm512_srli_epi32(am, 23), xs = _mm512_add_epi32(kq, SET(128));
	vec x = _mm512_max_epi32(xa, xs);
	vec ma = _mm512_srlv_epi32(mantissa(am), _mm512_sub_epi32(x, xa));
	vec ms = _mm512_srlv_epi32(
		_mm512_permutexvar_epi32(k, m4), /* by its low bits */
		_mm512_sub_epi32(x, xs));
	vec e = _mm512_add_epi32(
		x, _mm512_srli_epi32(_mm512_add_epi32(ma, ms), 24));
	vec g = _mm512_max_epi32(_mm512_add_epi32(kq, SET(126)),
	                         _mm512_sub_epi32(e, SET(m)));
	g = _mm512_max_epi32(g, SET(fmt->emin - m + 127));

	vec ar = _mm512_add_epi32(am, SET(fmt->whole ? 0 : 1 << (22 - m)));
	vec sh = _mm512_sub_epi32(_mm512_add_epi32(g, SET(20)),
	                          _mm512_srli_epi32(ar, 23));
	vec y = _mm512_srlv_epi32(mantissa(ar), sh);
	vec class = _mm512_sub_epi32(k, _mm512_slli_epi32(g, 2));
	class = _mm512_max_epi32(class, SET(-4 * 127 - 16));
	vec table = _mm512_add_epi32(
		_mm512_slli_epi32(class, 3),
		_mm512_add_epi32(_mm512_and_si512(y, SET(7)),
		                 SET(8 * (4 * 127 + 16))));
	vec high = _mm512_or_si512(
		_mm512_and_si512(_mm512_slli_epi32(y, 13), SET(0x7fff0000)),
		_mm512_and_si512(mu, SET(0x80000000)));
	return _mm512_or_si512(_mm512_or_si512(table, high),
	                       _mm512_slli_epi32(g, 8));
}

/* v * 2^e as binary32 patterns. */
INLINE vec scaled_bits(vec v, vec e)
{
	vec bits = _mm512_castps_si512(_mm512_cvt_roundepi32_ps(
		v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	__mmask16 some = _mm512_test_epi32_mask(v, v);
	return _mm512_maskz_add_epi32(some, bits, _mm512_slli_epi32(e, 23));
}

#endif
