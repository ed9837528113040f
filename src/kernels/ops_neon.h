/* SPDX-License-Identifier: BSD-3-Clause */
/* ops_neon.h - the operations of ops.h in NEON, 4 lanes a vector */
#ifndef KVI_OPS_NEON_H
#define KVI_OPS_NEON_H

#include <arm_neon.h>

typedef uint32x4_t vec;
enum { PARTS = 8 };
#include "ops.h"

#define SET(x) vdupq_n_u32((uint32_t)(x))
#define SIGNED(v) vreinterpretq_s32_u32(v)
#define UNSIGNED(v) vreinterpretq_u32_s32(v)
#define HALF_WORDS(v) vreinterpretq_s16_u32(v)
#define WORDS(v) vreinterpretq_u32_s16(v)
#define BYTES(v) vreinterpretq_u8_u32(v)
#define OF_BYTES(v) vreinterpretq_u32_u8(v)

#define v_add vaddq_u32
#define v_sub vsubq_u32
#define v_mul vmulq_u32
#define v_and vandq_u32
#define v_or vorrq_u32
#define v_xor veorq_u32
#define v_except(m, v) vbicq_u32(v, m)
/* Operators, so that shifts by constants become immediates. */
#define v_shl(v, n) ((vec)((v) << (n)))
#define v_shr(v, n) ((vec)((v) >> (n)))
#define v_sar(v, n) UNSIGNED(SIGNED(v) >> (n))
#define v_gt(a, b) vcgtq_s32(SIGNED(a), SIGNED(b))
#define v_eq vceqq_u32
#define v_is_zero(v) vceqq_u32(v, SET(0))
#define v_blend(a, b, mask) vbslq_u32(mask, b, a)

INLINE vec v_load(const void *p)
{
	return OF_BYTES(vld1q_u8(p));
}

INLINE void v_store(void *p, vec v)
{
	vst1q_u8(p, BYTES(v));
}

INLINE vec v_load_u8(const uint8_t *p)
{
	return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(kvi_load32(p)))));
}

INLINE vec v_load_u16(const uint16_t *p)
{
	return vmovl_u16(vld1_u16(p));
}

INLINE vec v_load_i16(const int16_t *p)
{
	return UNSIGNED(vmovl_s16(vld1_s16(p)));
}

INLINE struct parts v_load_bytes(const uint8_t *p)
{
	struct parts q;
	for (int i = 0; i < 2; i++) {
		uint8x16_t b = vld1q_u8(p + 16 * i);
		uint16x8_t lo = vmovl_u8(vget_low_u8(b));
		uint16x8_t hi = vmovl_u8(vget_high_u8(b));
		q.v[4 * i] = vmovl_u16(vget_low_u16(lo));
		q.v[4 * i + 1] = vmovl_u16(vget_high_u16(lo));
		q.v[4 * i + 2] = vmovl_u16(vget_low_u16(hi));
		q.v[4 * i + 3] = vmovl_u16(vget_high_u16(hi));
	}
	return q;
}

INLINE void v_store_u16(uint16_t *p, vec v)
{
	vst1_u16(p, vmovn_u32(v));
}

INLINE vec v_madd(vec a, vec b)
{
	int16x8_t x = HALF_WORDS(a), y = HALF_WORDS(b);
	return UNSIGNED(
		vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
}

INLINE vec v_abs(vec v)
{
	return UNSIGNED(vabsq_s32(SIGNED(v)));
}

INLINE vec v_min(vec a, vec b)
{
	return UNSIGNED(vminq_s32(SIGNED(a), SIGNED(b)));
}

INLINE vec v_max(vec a, vec b)
{
	return UNSIGNED(vmaxq_s32(SIGNED(a), SIGNED(b)));
}

INLINE vec v_sar_by(vec v, unsigned n)
{
	return v_sar(v, (int)n);
}

INLINE vec v_shl_each(vec v, vec n)
{
	return vshlq_u32(v, SIGNED(n));
}

INLINE vec v_shr_each(vec v, vec n)
{
	return vshlq_u32(v, vnegq_s32(SIGNED(n)));
}

INLINE vec v_shl_any(vec v, vec n)
{
	return v_shl_each(v, vminq_u32(n, SET(32)));
}

INLINE vec v_shr_any(vec v, vec n)
{
	return v_shr_each(v, vminq_u32(n, SET(32)));
}

INLINE unsigned v_bits(vec mask)
{
	static const uint32_t bit[4] = { 1, 2, 4, 8 };
	return vaddvq_u32(v_and(mask, vld1q_u32(bit)));
}

INLINE vec v_where(vec some, vec v)
{
	return v_except(v_is_zero(some), v);
}

INLINE vec v_negated_where(vec x, int bit, vec v)
{
	return v_blend(v, UNSIGNED(vnegq_s32(SIGNED(v))), vtstq_u32(x, SET((uint32_t)1 << bit)));
}

INLINE vec v_or_some(vec a, vec b, vec m)
{
	return v_or(a, v_and(b, m));
}

INLINE vec v_scaled(vec v, int e)
{
	float32x4_t power = vreinterpretq_f32_u32(SET((uint32_t)(e + 127) << 23));
	return vreinterpretq_u32_f32(vmulq_f32(vcvtq_f32_s32(SIGNED(v)), power));
}

INLINE vec v_float_bits(vec v)
{
	return vreinterpretq_u32_f32(vcvtq_f32_s32(SIGNED(v)));
}

INLINE vec v_log2(vec v)
{
	return v_sub(SET(31), vclzq_u32(v));
}

INLINE vec v_quotient(vec n, vec d)
{
	return vcvtq_u32_f32(vdivq_f32(vcvtq_f32_u32(n), vcvtq_f32_u32(d)));
}

INLINE vec v_gather(const uint32_t *base, vec index)
{
	vec v = vdupq_n_u32(base[vgetq_lane_u32(index, 0)]);
	v = vsetq_lane_u32(base[vgetq_lane_u32(index, 1)], v, 1);
	v = vsetq_lane_u32(base[vgetq_lane_u32(index, 2)], v, 2);
	return vsetq_lane_u32(base[vgetq_lane_u32(index, 3)], v, 3);
}

INLINE vec v_lookup_u16(const uint16_t *table, vec index)
{
	vec v = SET(table[vgetq_lane_u32(index, 0)]);
	v = vsetq_lane_u32(table[vgetq_lane_u32(index, 1)], v, 1);
	v = vsetq_lane_u32(table[vgetq_lane_u32(index, 2)], v, 2);
	return vsetq_lane_u32(table[vgetq_lane_u32(index, 3)], v, 3);
}

INLINE vec v_pick(uint32_t a, uint32_t b, uint32_t c, uint32_t d, vec k)
{
	const uint32_t table[4] = { a, b, c, d };
	vec at = vmlaq_u32(SET(0x03020100), v_and(k, SET(3)), SET(0x04040404));
	return OF_BYTES(vqtbl1q_u8(BYTES(vld1q_u32(table)), BYTES(at)));
}

typedef int some_lanes; /* empty: loops run over whole vectors */
#define LANES_DONE(n) ((n) / WIDTH * WIDTH)
#define first_lanes(n) 0
#define v_load_some(p, some) ((void)(some), v_load(p))
#define v_load_i16_some(p, some) ((void)(some), v_load_i16(p))
#define v_store_some(p, v, some) ((void)(some), v_store(p, v))

INLINE void v_store_pairs(uint32_t *p, vec a, vec b, some_lanes all)
{
	uint32x4x2_t two = { { a, b } };
	(void)all;
	vst2q_u32(p, two);
}

INLINE vec v_side_by_side(vec a, vec b)
{
	return v_blend(v_shl(b, 16), a, SET(0xffff));
}

INLINE vec v_low_high(vec a, vec b)
{
	return v_blend(b, a, SET(0xffff));
}

INLINE vec v_side_by_side_limited(vec a, vec b)
{
	int16x8_t both = vcombine_s16(vqmovn_s32(SIGNED(a)), vqmovn_s32(SIGNED(b)));
	both = vmaxq_s16(both, vdupq_n_s16(-32767));
	return WORDS(vzip1q_s16(both, vextq_s16(both, both, 4)));
}

INLINE vec v_negated_low(vec v)
{
	return v_blend(v, WORDS(vnegq_s16(HALF_WORDS(v))), SET(0xffff));
}

INLINE vec v_negated_high(vec v)
{
	return v_blend(WORDS(vnegq_s16(HALF_WORDS(v))), v, SET(0xffff));
}

INLINE vec v_exchanged(vec v)
{
	return WORDS(vrev32q_s16(HALF_WORDS(v)));
}

/* Table by mask of 4 lanes: the bytes of each lane's word among the words in order; NO: none. */
#define NO 127
#define TAKE(r) (uint8_t)(2 * (r)), (uint8_t)(2 * (r) + 1), 255, 255
#define SPREAD(a, b, c, d)                         \
	{                                          \
		TAKE(a), TAKE(b), TAKE(c), TAKE(d) \
	}
static const uint8_t spread_lanes[16][16] = {
	SPREAD(NO, NO, NO, NO), SPREAD(0, NO, NO, NO), SPREAD(NO, 0, NO, NO), SPREAD(0, 1, NO, NO),
	SPREAD(NO, NO, 0, NO),  SPREAD(0, NO, 1, NO),  SPREAD(NO, 0, 1, NO),  SPREAD(0, 1, 2, NO),
	SPREAD(NO, NO, NO, 0),  SPREAD(0, NO, NO, 1),  SPREAD(NO, 0, NO, 1),  SPREAD(0, 1, NO, 2),
	SPREAD(NO, NO, 0, 1),   SPREAD(0, NO, 1, 2),   SPREAD(NO, 0, 1, 2),   SPREAD(0, 1, 2, 3)
};
/* Table by mask of 4 lanes: the bytes of their low words, pushed to the end. */
#define LOW(l) (uint8_t)(4 * (l)), (uint8_t)(4 * (l) + 1)
#define PACKED(a, b, c, d)                     \
	{                                      \
		LOW(a), LOW(b), LOW(c), LOW(d) \
	}
static const uint8_t packed_lanes[16][8] = {
	PACKED(0, 0, 0, 0), PACKED(0, 0, 0, 0), PACKED(0, 0, 0, 1), PACKED(0, 0, 0, 1),
	PACKED(0, 0, 0, 2), PACKED(0, 0, 0, 2), PACKED(0, 0, 1, 2), PACKED(0, 0, 1, 2),
	PACKED(0, 0, 0, 3), PACKED(0, 0, 0, 3), PACKED(0, 0, 1, 3), PACKED(0, 0, 1, 3),
	PACKED(0, 0, 2, 3), PACKED(0, 0, 2, 3), PACKED(0, 1, 2, 3), PACKED(0, 1, 2, 3)
};

INLINE vec v_renorm(vec st, vec active, const uint8_t **p)
{
	vec low = v_and(vcltq_u32(st, SET(KVI_RANS_LOW)), active);
	unsigned m = v_bits(low);
	uint8x16_t words = vcombine_u8(vld1_u8(*p), vdup_n_u8(0));
	*p += 2 * (unsigned)__builtin_popcount(m);
	words = vqtbl1q_u8(words, vld1q_u8(spread_lanes[m]));
	return v_blend(st, v_or(v_shl(st, 16), OF_BYTES(words)), low);
}

INLINE vec v_words_put(vec st, vec mask, uint16_t **w)
{
	unsigned m = v_bits(mask);
	vst1_u8((uint8_t *)(*w - 4), vqtbl1_u8(BYTES(st), vld1_u8(packed_lanes[m])));
	*w -= __builtin_popcount(m);
	return v_blend(st, v_shr(st, 16), mask);
}

/* LO, less one for the last, and NB of token pairs. */
typedef struct {
	uint8x16x2_t lo, nb;
} token_tables;

INLINE token_tables token_tables_load(void)
{
	static const uint8_t lo[32] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,   10,
		                        12, 14, 16, 20, 24, 28, 32, 64, 128, 255 };
	static const uint8_t nb[32] = {
		0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 5, 6, 7, 9
	};
	token_tables t = { { { vld1q_u8(lo), vld1q_u8(lo + 16) } },
		           { { vld1q_u8(nb), vld1q_u8(nb + 16) } } };
	return t;
}

/* The upper bytes of an index look up entry 0, which is 0. */
INLINE void token_info(const token_tables *tables, vec pair, vec *lo, vec *nb)
{
	*lo = v_sub(OF_BYTES(vqtbl2q_u8(tables->lo, BYTES(pair))), v_eq(pair, SET(19)));
	*nb = OF_BYTES(vqtbl2q_u8(tables->nb, BYTES(pair)));
}

typedef struct {
	uint8x16x4_t all;
} class_row;

INLINE class_row class_row_load(const int8_t *row)
{
	const uint8_t *p = (const uint8_t *)row;
	class_row c = { { { vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48) } } };
	return c;
}

INLINE vec class_of(const class_row *row, vec angle)
{
	vec v = OF_BYTES(vqtbl4q_u8(row->all, BYTES(angle)));
	return v_sar(v_shl(v, 24), 24);
}

#endif
