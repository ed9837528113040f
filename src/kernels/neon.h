/* SPDX-License-Identifier: BSD-3-Clause */
/* neon.h - parts of a step on 4 lanes, shared by the NEON kernels */
#ifndef KVI_NEON_H
#define KVI_NEON_H

#include <arm_neon.h>

#include "feed.h"
#include "util/unroll.h"

#define INLINE static inline __attribute__((always_inline))
typedef uint32x4_t vec;
#define SET(x) vdupq_n_u32((uint32_t)(x))
#define SIGNED(v) vreinterpretq_s32_u32(v)
#define UNSIGNED(v) vreinterpretq_u32_s32(v)

/* All parts of a step. */
enum { PARTS = 8 };
#define EACH KVI_UNROLL(8) for (int h = 0; h < PARTS; h++)
#define EACH_BACK KVI_UNROLL(8) for (int h = PARTS - 1; h >= 0; h--)

/* Lanes 4h .. 4h + 3 in v[h]. */
struct parts {
	vec v[PARTS];
};

INLINE struct parts states_load(const uint32_t *st)
{
	struct parts q;
	EACH
		q.v[h] = vld1q_u32(st + 4 * h);
	return q;
}

/* Only the first lanes change. */
INLINE void states_store(uint32_t *st, const struct parts *q, unsigned lanes)
{
	uint32_t all[KVI_LANES];
	EACH
		vst1q_u32(all + 4 * h, q->v[h]);
	memcpy(st, all, lanes * sizeof(*st));
}

/* Ones in the lanes that take part. */
INLINE struct parts lanes_active(unsigned lanes)
{
	static const uint32_t iota[4] = { 0, 1, 2, 3 };
	struct parts q;
	EACH
		q.v[h] = vcltq_u32(vaddq_u32(vld1q_u32(iota), SET(4 * h)),
		                   SET(lanes));
	return q;
}

/* A bit a lane of a mask. */
INLINE unsigned lane_bits(vec mask)
{
	static const uint32_t bit[4] = { 1, 2, 4, 8 };
	return vaddvq_u32(vandq_u32(mask, vld1q_u32(bit)));
}

INLINE vec blend(vec a, vec b, vec mask) /* b where mask */
{
	return vbslq_u32(mask, b, a);
}

/* v << n, or >> -n; 0 when n is 32 or more either way, up to 127. */
INLINE vec shift(vec v, vec n)
{
	return vshlq_u32(v, SIGNED(n));
}

INLINE vec negative(vec v)
{
	return UNSIGNED(vnegq_s32(SIGNED(v)));
}

INLINE vec gather(const uint32_t *base, vec index)
{
	vec v = vdupq_n_u32(base[vgetq_lane_u32(index, 0)]);
	v = vsetq_lane_u32(base[vgetq_lane_u32(index, 1)], v, 1);
	v = vsetq_lane_u32(base[vgetq_lane_u32(index, 2)], v, 2);
	return vsetq_lane_u32(base[vgetq_lane_u32(index, 3)], v, 3);
}

/* For each mask of 4 lanes: the bytes of the words in order that a lane takes
 * (spread); those of the lanes' low words, pushed to the end (packed). */
extern const uint8_t kvi_neon_spread[16][16], kvi_neon_packed[16][8];

/* spec rans 2: renorm of 4 lanes. */
INLINE vec renorm(vec st, vec active, const uint8_t **p)
{
	vec low = vandq_u32(vcltq_u32(st, SET(KVI_RANS_LOW)), active);
	unsigned m = lane_bits(low);
	uint8x16_t words = vcombine_u8(vld1_u8(*p), vdup_n_u8(0));
	*p += 2 * (unsigned)__builtin_popcount(m);
	words = vqtbl1q_u8(words, vld1q_u8(kvi_neon_spread[m]));
	return blend(st,
	             vorrq_u32(vshlq_n_u32(st, 16),
	                       vreinterpretq_u32_u8(words)),
	             low);
}

/* Phase 1 of a decoder's step; returns the symbols. */
INLINE struct parts symbols_take(struct parts *st, const uint32_t *lut,
                                 const struct parts *table,
                                 const struct parts *active,
                                 const uint8_t **p)
{
	struct parts symbol;
	EACH {
		vec slot = vandq_u32(st->v[h], SET(KVI_PROB_TOTAL - 1));
		vec row = vshlq_n_u32(table->v[h], KVI_PROB_BITS);
		vec entry = gather(lut, vorrq_u32(row, slot));
		vec off = vandq_u32(vshrq_n_u32(entry, 9), SET(2047));
		symbol.v[h] = vandq_u32(entry, SET(511));
		st->v[h] = vmlaq_u32(off, vshrq_n_u32(st->v[h], KVI_PROB_BITS),
		                     vshrq_n_u32(entry, 20));
	}
	EACH
		st->v[h] = renorm(st->v[h], active->v[h], p);
	return symbol;
}

/* Writes the low words of the lanes in mask downwards from *w. Stores 4 words,
 * those below the ones in mask are overwritten later. */
INLINE vec words_put(vec st, vec mask, uint16_t **w)
{
	unsigned m = lane_bits(mask);
	uint8x8_t packed = vqtbl1_u8(vreinterpretq_u8_u32(st),
	                             vld1_u8(kvi_neon_packed[m]));
	vst1_u8((uint8_t *)(*w - 4), packed);
	*w -= __builtin_popcount(m);
	return blend(st, vshrq_n_u32(st, 16), mask);
}

/*
 * st / freq by way of binary32, in whatever rounding mode is set. The state is
 * below freq * 2^21: two roundings move the quotient by less than one.
 */
INLINE vec symbol_put(vec st, vec enc, vec active, uint16_t **w)
{
	vec freq = vandq_u32(enc, SET(0xffff)), cum = vshrq_n_u32(enc, 16);
	vec over = vcgeq_u32(vshrq_n_u32(st, 21), freq);
	st = words_put(st, vandq_u32(over, active), w);
	vec q = vcvtq_u32_f32(
		vdivq_f32(vcvtq_f32_u32(st), vcvtq_f32_u32(freq)));
	vec r = vmlsq_u32(st, q, freq);
	vec less = UNSIGNED(vshrq_n_s32(SIGNED(r), 31));
	q = vaddq_u32(q, less);
	r = vaddq_u32(r, vandq_u32(less, freq));
	vec more = vcgeq_u32(r, freq);
	q = vsubq_u32(q, more);
	r = vsubq_u32(r, vandq_u32(more, freq));
	return vaddq_u32(vshlq_n_u32(q, KVI_PROB_BITS), vaddq_u32(cum, r));
}

/* Entries of kvi_tables.enc. */
INLINE struct parts entries_load(const struct kvi_tables *tables,
                                 const struct parts *table,
                                 const struct parts *symbol)
{
	vec stride = SET(__builtin_ctz((unsigned)tables->stride));
	struct parts e;
	EACH
		e.v[h] = gather(tables->enc,
		                vaddq_u32(shift(table->v[h], stride),
		                          symbol->v[h]));
	return e;
}

INLINE void symbols_put(struct parts *st, const struct parts *entry,
                        const struct parts *active, uint16_t **w)
{
	EACH_BACK
		st->v[h] = symbol_put(st->v[h], entry->v[h], active->v[h], w);
}

#endif
