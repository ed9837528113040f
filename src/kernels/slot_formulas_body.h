/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slot_formulas_body.h - predictions and observations of a vector of tokens (spec linear 3, 4)
 *
 * Included by slots_body.h. Uses SET, the arithmetic, v_load, v_store, v_load_i16, v_pick and the
 * pairs of 16-bit numbers of ops.h, and clamp (in context_body.h).
 */
#ifndef KVI_SLOT_FORMULAS_BODY_H
#define KVI_SLOT_FORMULAS_BODY_H

#include "slot_integers_body.h"

/* ----------------------------------------------------------- prediction */

/* The index of token t in sums. */
INLINE size_t sum_at(size_t sum_step, size_t t)
{
	return t / KVI_LANES * sum_step + t % KVI_LANES;
}

/* The index of token t in feature rows. */
INLINE size_t feature_at(const struct kvi_slot_job *job, size_t t)
{
	return t / KVI_LANES * job->feature_step + 2 * (t % KVI_LANES);
}

/* Two coefficients of a row, for all lanes. */
INLINE vec coefficients(const int16_t *p)
{
	int32_t both;
	memcpy(&both, p, sizeof(both));
	return SET(both);
}

/* The base of a slot (spec linear 3): the prediction of tokens from t on without the same layer. */
INLINE vec base_of(const struct kvi_slot *slot, size_t t)
{
	vec base = SET(slot->mean);
	if (slot->table)
		base = v_add(base, v_load_i16(slot->table + t));
	if (slot->below)
		base = v_add(base,
		             v_sar_by(v_load(slot->below + sum_at(slot->below_step, t)), slot->qa));
	return clamp(base, LIMIT);
}

/* The prediction of those tokens, with the same layer and without its limits. */
INLINE vec pred_of(const struct kvi_slot *slot, const struct kvi_slot_job *job, size_t t, vec base)
{
	if (!slot->sum)
		return base;
	vec sum = v_load(slot->sum + sum_at(slot->sum_step, t));
	const int16_t *f = job->near + feature_at(job, t);
	for (size_t p = 0; p < job->n_near; p++, f += KVI_PAIR_STEP)
		sum = v_add(sum, v_madd(v_load(f), coefficients(slot->coef + 2 * p)));
	return v_add(base, v_sar_by(sum, slot->qb));
}

/* o of spec linear 4; start: bits(13 n) - 2^20. */
INLINE vec token_class(const struct kvi_slot_block *block, size_t t, vec start)
{
	if (!block->w)
		return SET(0);
	vec d = v_sub(v_float_bits(v_load(block->w + t)), start);
	return v_max(v_sar(d, 21), SET(-32));
}

/* The start for token_class(), the same for all tokens of a job. */
INLINE vec token_start(const struct kvi_slot_job *job)
{
	return v_sub(v_float_bits(SET(13 * job->n)), SET(1 << 20));
}

/* ---------------------------------------------------------- observation */

/* v of spec linear 4; shifts beyond 31 give 0 as 31 does. bias: of k, a multiple of 4. */
INLINE vec distance(vec x, vec expected, vec k, int bias, int step)
{
	vec far = v_min(v_abs(v_sub(x, expected)), SET(65535));
	vec sh = v_max(v_add(v_sar(k, 2), SET(11 - step - bias / 4)), SET(0));
	vec scaled = v_mul(far, v_pick(32768, 27554, 23170, 19484, k));
	return v_min(v_shr_any(scaled, sh), SET(127));
}

/* Adds distances to w from token t on, where the job wants that. */
INLINE void scale_add(const struct kvi_slot_block *block, const struct kvi_slot_job *job, size_t t,
                      vec v)
{
	if (block->w && job->grow)
		v_store(block->w + t, v_add(v_load(block->w + t), v));
}

/* Stores one slot of a feature row; the second one must follow the first one. */
INLINE void store_half(int16_t *row, unsigned half, vec v)
{
	v = clamp(v, LIMIT);
	v_store(row, half ? v_side_by_side(v_load(row), v) : v_and(v, SET(0xffff)));
}

/* Stores both slots of a feature row. */
INLINE void store_both(int16_t *row, vec a, vec b)
{
	v_store(row, v_side_by_side_limited(a, b));
}

#endif
