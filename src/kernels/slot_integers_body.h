/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slot_integers_body.h - elements of a slot as integers in units of 2^step (spec linear 2)
 *
 * Included after the operations of a set, by slots_body.h. Uses EACH, SET, v_add, v_sub, v_and,
 * v_or_some, v_min, v_max, v_shl, v_shr, v_shr_any, v_where, v_negated_where (contracts in ops.h),
 * and halves_low where HALVES says that the set has vectors of halves.
 */
#ifndef KVI_SLOT_INTEGERS_BODY_H
#define KVI_SLOT_INTEGERS_BODY_H

#include "slots.h"

enum { LIMIT = KVI_LINEAR_LIMIT };

static const struct kvi_grid_format bf16_format = { 7, -126, 16, 7, false };

/*
 * Elements of a vector as integers in units of 2^step. The rounded shift (man + 2^(sh - 1)) >> sh
 * is ((man >> (sh - 1)) + 1) >> 1, 0 for shifts beyond the word. With bf16 even the smallest normal
 * number is 0.
 */
INLINE vec integers_of(vec x, const struct kvi_grid_format *fmt, int step)
{
	const int m = fmt->mant_bits, top = fmt->elem_bits - 1;
	vec magnitude = v_and(x, SET((1 << top) - 1));
	vec field = v_shr(magnitude, m), man = v_shl(magnitude, 23 - m);
	vec one = SET(0x800000);
	if (fmt->emin != bf16_format.emin) {
		one = v_where(field, one);
		field = v_max(field, SET(1));
	}
	man = v_or_some(one, man, SET(0x7fffff));
	vec sh = v_max(v_sub(SET(23 - fmt->emin + step), field), SET(0));
	vec v = v_shr(v_add(v_shr_any(man, sh), SET(1)), 1);
	return v_negated_where(x, top, v_min(v, SET(LIMIT)));
}

#ifdef HALVES
/* A step of bf16, in halves: mantissas are shifted down from bit 15, and rounded by an average. */
INLINE struct parts integers_bf16(vec x, int step)
{
	const vec zero = _mm512_setzero_si512();
	const vec most = _mm512_set1_epi16((short)(23 + 126 - 8 + step));
	vec field = _mm512_srli_epi16(_mm512_add_epi16(x, x), 8);
	vec man = _mm512_or_si512(_mm512_slli_epi16(x, 8), _mm512_set1_epi16((short)0x8000));
	vec v = _mm512_srlv_epi16(man, _mm512_subs_epu16(most, field));
	v = _mm512_avg_epu16(v, zero);
	v = _mm512_mask_mov_epi16(v, _mm512_cmpgt_epu16_mask(field, most),
	                          _mm512_set1_epi16(LIMIT));
	v = _mm512_mask_sub_epi16(v, _mm512_movepi16_mask(x), zero, v);
	struct parts y = { { v_sar(v_shl(v, 16), 16), v_sar(v, 16) } };
	return y;
}
#endif

/* The elements *parts of a step become integers. */
INLINE void integers(struct parts *parts, const struct kvi_grid_format *fmt, int step)
{
#ifdef HALVES
	if (fmt->emin == bf16_format.emin) {
		*parts = integers_bf16(halves_low(parts->v[0], parts->v[1]), step);
		return;
	}
#endif
	EACH
		parts->v[h] = integers_of(parts->v[h], fmt, step);
}

#endif
