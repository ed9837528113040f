/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * step_body.h - the parts of a coder's step (spec rans 2) in sets whose masks are vectors
 *
 * Included after ops_avx2.h or ops_neon.h. Uses SET, v_add, v_sub, v_mul, v_and, v_or,
 * v_except, v_shl, v_shr, v_sar, v_shl_each, v_gt, v_eq, v_load, v_store, v_load_u16,
 * v_load_bytes, v_store_u16, v_gather, v_quotient, v_bits, v_renorm, v_words_put (contracts in
 * ops.h). What it defines, ops_avx512.h defines for AVX-512:
 *
 *   active_lanes            how many lanes of a step take part, from the first one on
 *   ALL_LANES
 *   first_active(lanes)     the first 1 to 32 lanes
 *   states_load(st), states_store(st, q, active)
 *                           32 states; those of other lanes stay as they are in memory
 *   contexts_load(ctx, per_step, active)
 *                           a number a lane, or one for all
 *   words16_load(p, active), words16_store(p, q, active)
 *                           a number below 2^16 a lane; others are read as 0, and not written
 *   lanes_equal(q, v, active)
 *                           bit l: lane l takes part and is as that of v
 *   tab_step_take(st, tables, tab, per_step, active, p)
 *                           phase 1 of a decoder's step with the table numbers at `tab`, one a
 *                           lane or one for all; the symbols
 *   tab_entries(tables, tab, per_step, active, symbol)
 *                           an encoder's entries of the symbols
 *   symbols_put(st, entry, active, w)
 *                           the encoder's mirror image of phase 1
 *   take8, take16, put8, put16 (escapes.h)
 *
 * A step of a tail touches no memory behind its lanes. The words of a step are there: a decoder
 * calls KVI_FEED_CHECK before.
 */
#ifndef KVI_STEP_BODY_H
#define KVI_STEP_BODY_H

#include "ops.h"

typedef struct {
	struct parts mask;
	unsigned lanes;
} active_lanes;
#define ALL_LANES first_active(KVI_LANES)

INLINE active_lanes first_active(unsigned lanes)
{
	static const uint32_t iota[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	active_lanes a = { .lanes = lanes };
	EACH
		a.mask.v[h] = lanes == KVI_LANES ? SET(-1)
		                                 : v_gt(SET((int)lanes - WIDTH * h), v_load(iota));
	return a;
}

INLINE struct parts states_load(const uint32_t *st)
{
	struct parts q;
	EACH
		q.v[h] = v_load(st + WIDTH * h);
	return q;
}

INLINE void states_store(uint32_t *st, const struct parts *parts, active_lanes active)
{
	uint32_t all[KVI_LANES];
	EACH
		v_store(all + WIDTH * h, parts->v[h]);
	memcpy(st, all, active.lanes * sizeof(*st));
}

INLINE struct parts contexts_load(const uint32_t *ctx, bool per_step, active_lanes active)
{
	struct parts q;
	uint32_t padded[KVI_LANES] = { 0 };
	if (per_step) {
		EACH
			q.v[h] = SET(*ctx);
		return q;
	}
	if (active.lanes < KVI_LANES) {
		memcpy(padded, ctx, active.lanes * sizeof(*ctx));
		ctx = padded;
	}
	return states_load(ctx);
}

INLINE struct parts words16_load(const uint16_t *p, active_lanes active)
{
	uint16_t padded[KVI_LANES] = { 0 };
	struct parts q;
	if (active.lanes < KVI_LANES) {
		memcpy(padded, p, active.lanes * sizeof(*p));
		p = padded;
	}
	EACH
		q.v[h] = v_load_u16(p + WIDTH * h);
	return q;
}

INLINE void words16_store(uint16_t *p, const struct parts *parts, active_lanes active)
{
	uint16_t all[KVI_LANES], *to = active.lanes == KVI_LANES ? p : all;
	EACH
		v_store_u16(to + WIDTH * h, parts->v[h]);
	if (active.lanes < KVI_LANES)
		memcpy(p, all, active.lanes * sizeof(*p));
}

INLINE uint32_t lanes_equal(const struct parts *parts, vec v, active_lanes active)
{
	uint32_t bits = 0;
	EACH
		bits |= v_bits(v_and(v_eq(parts->v[h], v), active.mask.v[h])) << WIDTH * h;
	return bits;
}

/* Bytes of a step in memory of 32: p itself, or a copy. */
INLINE const uint8_t *bytes_padded(const uint8_t *p, active_lanes active, uint8_t copy[KVI_LANES])
{
	if (active.lanes == KVI_LANES)
		return p;
	memset(copy, 0, KVI_LANES);
	memcpy(copy, p, active.lanes);
	return copy;
}

INLINE struct parts tab_load(const uint8_t *tab, bool per_step, active_lanes active)
{
	uint8_t copy[KVI_LANES];
	struct parts q;
	if (!per_step)
		return v_load_bytes(bytes_padded(tab, active, copy));
	EACH
		q.v[h] = SET(*tab);
	return q;
}

/* Phase 1 of a decoder's step; the symbols. table: its number, a lane. */
INLINE struct parts symbols_take(struct parts *st, const uint32_t *lut, const struct parts *table,
                                 active_lanes active, const uint8_t **p)
{
	struct parts symbol;
	EACH {
		vec slot = v_and(st->v[h], SET(KVI_PROB_TOTAL - 1));
		vec row = v_shl(table->v[h], KVI_PROB_BITS);
		vec entry = v_gather(lut, v_or(row, slot));
		vec off = v_and(v_shr(entry, 9), SET(2047));
		symbol.v[h] = v_and(entry, SET(511));
		st->v[h] = v_add(v_mul(v_shr(st->v[h], KVI_PROB_BITS), v_shr(entry, 20)), off);
	}
	EACH
		st->v[h] = v_renorm(st->v[h], active.mask.v[h], p);
	return symbol;
}

INLINE struct parts tab_step_take(struct parts *st, const struct kvi_tables *tables,
                                  const uint8_t *tab, bool per_step, active_lanes active,
                                  const uint8_t **p)
{
	struct parts table = tab_load(tab, per_step, active);
	return symbols_take(st, tables->lut, &table, active, p);
}

/* An encoder's entries of the symbols. */
INLINE struct parts entries_load(const struct kvi_tables *tables, const struct parts *table,
                                 const struct parts *symbol)
{
	const vec stride = SET(__builtin_ctz((unsigned)tables->stride));
	struct parts e;
	EACH
		e.v[h] = v_gather(tables->enc,
		                  v_add(v_shl_each(table->v[h], stride), symbol->v[h]));
	return e;
}

INLINE struct parts tab_entries(const struct kvi_tables *tables, const uint8_t *tab, bool per_step,
                                active_lanes active, const struct parts *symbol)
{
	struct parts table = tab_load(tab, per_step, active);
	return entries_load(tables, &table, symbol);
}

INLINE vec symbol_put(vec st, vec entry, vec active, uint16_t **w)
{
	vec freq = v_and(entry, SET(0xffff)), cum = v_shr(entry, 16);
	vec over = v_gt(freq, v_shr(st, 21));
	st = v_words_put(st, v_except(over, active), w);
	vec q = v_quotient(st, freq), r = v_sub(st, v_mul(q, freq));
	vec less = v_sar(r, 31);
	q = v_add(q, less);
	r = v_add(r, v_and(less, freq));
	vec next = v_except(v_gt(freq, r), v_sub(SET(KVI_PROB_TOTAL), freq));
	return v_add(v_add(v_shl(q, KVI_PROB_BITS), v_add(cum, r)), next);
}

INLINE void symbols_put(struct parts *st, const struct parts *entry, active_lanes active,
                        uint16_t **w)
{
	EACH_BACK
	st->v[h] = symbol_put(st->v[h], entry->v[h], active.mask.v[h], w);
}

#endif
