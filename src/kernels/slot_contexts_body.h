/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slot_contexts_body.h - contexts of bf16 elements of slots (spec grid 3) in AVX-512
 *
 * Included by slots_body.h in sets with vectors of halves. As contexts_of of context_body.h, in
 * fewer instructions: numbers that the loops of all slots have in common are hidden from compilers,
 * which otherwise make them in each iteration, and classes have CLASS_BIAS added to them, so that
 * none of the differences that count is below 0.
 */
#ifndef KVI_SLOT_CONTEXTS_BODY_H
#define KVI_SLOT_CONTEXTS_BODY_H

/* Classes k - 4 G stop at its negative; a multiple of 4. */
enum { CLASS_BIAS = 4 * (127 + WORDS_M) + 16 };

struct context_numbers {
	vec least, most; /* biased classes */
	vec sigma;       /* binary32 patterns of 2^(k / 4 + 1) for k of 0 to 3, for biased k */
	vec no_sign, sign;
	vec start; /* G + m of a mean of 0, less k / 4 */
	vec half;  /* half of the unit of a rounded mean, less 2^13 as an exponent field */
	vec mantissa, one;
	vec table, grid; /* 7, and -m * 2^8 */
};

INLINE struct context_numbers context_numbers_load(void)
{
	const int sigma = (128 - CLASS_BIAS / 4) * (1 << 23);
	struct context_numbers n = {
		.least = SET(CLASS_BIAS - KVI_LINEAR_K_LIMIT),
		.most = SET(CLASS_BIAS + KVI_LINEAR_K_LIMIT),
		.sigma = _mm512_set4_epi32(sigma + 0x5744fd, sigma + 0x3504f3, sigma + 0x1837f0,
		                           sigma),
		.no_sign = SET(0x7fffffff),
		.sign = SET(0x80000000),
		.start = SET(126 + WORDS_M - CLASS_BIAS / 4),
		.half = SET((1 << (22 - WORDS_M)) - ((20 - WORDS_M) << 23)),
		.mantissa = SET(0x7fffff),
		.one = SET(0x800000),
		.table = SET(7),
		.grid = SET(-WORDS_M * (1 << 8)),
	};
	OPAQUE(n.least);
	OPAQUE(n.most);
	OPAQUE(n.sigma);
	OPAQUE(n.no_sign);
	OPAQUE(n.sign);
	OPAQUE(n.start);
	OPAQUE(n.half);
	OPAQUE(n.mantissa);
	OPAQUE(n.one);
	OPAQUE(n.table);
	OPAQUE(n.grid);
	return n;
}

/* Contexts of bf16 elements. mu: binary32 patterns; k: biased classes, limited here. */
INLINE vec bf16_contexts(const struct context_numbers *n, vec mu, vec k)
{
	k = v_max(v_min(k, n->most), n->least);
	const vec am = v_and(mu, n->no_sign), kq = v_shr(k, 2);
	const vec sigma = v_add(_mm512_permutexvar_epi32(k, n->sigma), v_shl(kq, 23));
	const vec g = v_max(v_add(kq, n->start), v_sum_exponent(am, sigma)); /* G + m */
	const vec ar = v_add(am, n->half);
	const vec y = v_shr_any(v_or_some(n->one, ar, n->mantissa), v_sub(g, v_sar(ar, 23)));
	const vec class = _mm512_subs_epu16(v_shl(k, 3), v_shl(g, 5));
	const vec low = v_or_some(v_add(v_add(class, n->grid), v_shl(g, 8)), y, n->table);
	return v_low_high(low, v_or_some(v_shl(y, 13), mu, n->sign));
}

#endif
