/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_neon.c - slots of the linear codec, 8 x 4 tokens a step */
#include "config.h"

#include "grid_neon.h"

#define states parts
#define states_keep states_store

#define v_add vaddq_u32
#define v_sub vsubq_u32
#define v_mul vmulq_u32
#define v_min least
#define v_max greatest
#define v_and vandq_u32
#define v_or vorrq_u32
#define v_xor veorq_u32
#define v_shl(v, n) shift(v, SET(n))
#define v_shr(v, n) shift(v, SET(-(n)))
#define v_sar(v, n) UNSIGNED(vshlq_s32(SIGNED(v), vdupq_n_s32(-(n))))
#define HALF_WORDS(v) vreinterpretq_s16_u32(v)
#define WORDS(v) vreinterpretq_u32_s16(v)

INLINE vec v_load(const void *p)
{
	return vreinterpretq_u32_u8(vld1q_u8(p));
}

INLINE void v_store(void *p, vec v)
{
	vst1q_u8(p, vreinterpretq_u8_u32(v));
}

INLINE vec v_load_i16(const int16_t *p)
{
	return UNSIGNED(vmovl_s16(vld1_s16(p)));
}

INLINE vec v_load_u16(const uint16_t *p)
{
	return vmovl_u16(vld1_u16(p));
}

INLINE vec v_load_u8(const uint8_t *p)
{
	return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(kvi_load32(p)))));
}

INLINE vec v_madd(vec a, vec b)
{
	int16x8_t x = HALF_WORDS(a), y = HALF_WORDS(b);
	return UNSIGNED(vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)),
	                           vmull_high_s16(x, y)));
}

INLINE vec v_abs(vec v)
{
	return UNSIGNED(vabsq_s32(SIGNED(v)));
}

INLINE vec v_sar_by(vec v, unsigned n)
{
	return v_sar(v, (int)n);
}

INLINE vec v_shr_each(vec v, vec n) /* 0 beyond 31 */
{
	return shift(v, negative(vminq_u32(n, SET(32))));
}

INLINE vec v_where(vec some, vec v) /* v where some is not 0, else 0 */
{
	return except(is_zero(some), v);
}

INLINE vec v_negated_where(vec x, int bit, vec v) /* where x has the bit */
{
	return blend(v, negative(v), vtstq_u32(x, SET((uint32_t)1 << bit)));
}

INLINE vec v_float_bits(vec v) /* exact in any rounding mode */
{
	return vreinterpretq_u32_f32(vcvtq_f32_s32(SIGNED(v)));
}

/* One of four numbers by the low bits of k. */
INLINE vec one_of(const uint32_t table[4], vec k)
{
	vec at = vmlaq_u32(SET(0x03020100), v_and(k, SET(3)), SET(0x04040404));
	return vreinterpretq_u32_u8(vqtbl1q_u8(
		vreinterpretq_u8_u32(vld1q_u32(table)),
		vreinterpretq_u8_u32(at)));
}

/* REC of spec linear 4. */
INLINE vec v_reciprocal(vec k)
{
	static const uint32_t table[4] = { 32768, 27554, 23170, 19484 };
	return one_of(table, k);
}

/* Two slots next to each other, as in a feature row; |a|, |b| < 2^15. */
INLINE vec v_side_by_side(vec a, vec b)
{
	return blend(vshlq_n_u32(b, 16), a, SET(0xffff));
}

INLINE vec v_negated_low(vec v)
{
	return blend(v, WORDS(vnegq_s16(HALF_WORDS(v))), SET(0xffff));
}

INLINE vec v_negated_high(vec v)
{
	return blend(WORDS(vnegq_s16(HALF_WORDS(v))), v, SET(0xffff));
}

INLINE vec v_exchanged(vec v)
{
	return WORDS(vrev32q_s16(HALF_WORDS(v)));
}

/* A row of ROT (spec grid 2). */
struct classes {
	uint8x16x4_t all;
};

INLINE struct classes classes_load(const int8_t *scales)
{
	const uint8_t *p = (const uint8_t *)scales;
	struct classes c = { { { vld1q_u8(p), vld1q_u8(p + 16),
		                 vld1q_u8(p + 32), vld1q_u8(p + 48) } } };
	return c;
}

INLINE vec class_of(const struct classes *c, vec angle)
{
	vec v = vreinterpretq_u32_u8(
		vqtbl4q_u8(c->all, vreinterpretq_u8_u32(angle)));
	return v_sar(v_shl(v, 24), 24);
}

/* A binary32 pattern's mantissa, the leading one included. */
INLINE vec mantissa(vec bits)
{
	return v_or(v_and(bits, SET(0x7fffff)), SET(0x800000));
}

/* The steps of kvi_grid_context, in the same order (spec grid 3). */
INLINE vec contexts_of(vec mu, vec k, const struct kvi_grid_format *fmt)
{
	/* mantissas of 2^(k / 4), the leading one included */
	static const uint32_t m4[4] = { 0x800000, 0x9837f0, 0xb504f3,
		                        0xd744fd };
	const int m = fmt->mant_bits;
	vec am = vminq_u32(v_and(mu, SET(0x7fffffff)), SET(0x7f000000));
	vec kq = v_sar(k, 2);
	vec xa = vshrq_n_u32(am, 23), xs = v_add(kq, SET(128));
	vec x = v_max(xa, xs);
	vec ma = v_shr_each(mantissa(am), v_sub(x, xa));
	vec ms = v_shr_each(one_of(m4, k), v_sub(x, xs));
	vec e = v_add(x, vshrq_n_u32(v_add(ma, ms), 24));
	vec g = v_max(v_add(kq, SET(126)), v_sub(e, SET(m)));
	g = v_max(g, SET(fmt->emin - m + 127));

	vec ar = v_add(am, SET(1 << (22 - m)));
	vec sh = v_sub(v_add(g, SET(20)), vshrq_n_u32(ar, 23));
	vec y = v_shr_each(mantissa(ar), sh);
	vec class = v_max(v_sub(k, v_shl(g, 2)), SET(-4 * 127 - 16));
	vec table = v_add(v_shl(class, 3), v_add(v_and(y, SET(7)),
	                                         SET(8 * (4 * 127 + 16))));
	vec high = v_or(v_and(v_shl(y, 13), SET(0x7fff0000)),
	                v_and(mu, SET(0x80000000)));
	return v_or(v_or(table, high), v_shl(g, 8));
}

/* v * 2^e as binary32 patterns; |v| <= 2^24. */
INLINE vec scaled_bits(vec v, vec e)
{
	return v_where(v, v_add(v_float_bits(v), v_shl(e, 23)));
}

#include "slots_vector.h"

/* `rows` rows, a constant, of 8 tokens from t of a step on: all sums stay in
 * registers. */
INLINE void rows_some(const struct kvi_rows *r, size_t step, size_t t,
                      size_t first, const size_t rows)
{
	int32_t *sum = r->sum + step * r->sum_step + first * KVI_LANES + t;
	const int16_t *coef = r->coef + first * r->coef_row;
	int32x4_t acc[KVI_PANEL][2];
	UNROLL for (size_t i = 0; i < rows; i++)
		acc[i][0] = acc[i][1] =
			vdupq_n_s32(kvi_rows_half(r, first + i));
	for (size_t k = 0; k < r->n_parts; k++) {
		const struct kvi_rows_part *part = &r->part[k];
		const int16_t *f = part->features + step * part->step + 2 * t;
		const int16_t *end = coef + 2 * part->n_pairs;
		for (; coef != end; coef += 2, f += KVI_PAIR_STEP) {
			const int16x8x2_t x = vld2q_s16(f);
			const int16x4_t a = vget_low_s16(x.val[0]);
			const int16x4_t b = vget_low_s16(x.val[1]);
			UNROLL for (size_t i = 0; i < rows; i++) {
				const int16_t *c = coef + i * r->coef_row;
				acc[i][0] = vmlal_n_s16(acc[i][0], a, c[0]);
				acc[i][0] = vmlal_n_s16(acc[i][0], b, c[1]);
				acc[i][1] = vmlal_high_n_s16(acc[i][1],
				                             x.val[0], c[0]);
				acc[i][1] = vmlal_high_n_s16(acc[i][1],
				                             x.val[1], c[1]);
			}
		}
	}
	UNROLL for (size_t i = 0; i < rows; i++) {
		vst1q_s32(sum + i * KVI_LANES, acc[i][0]);
		vst1q_s32(sum + i * KVI_LANES + 4, acc[i][1]);
	}
}

void kvi_neon_slot_rows(const struct kvi_rows *r)
{
	for (size_t part = 0; part < 4 * r->steps; part++) {
		size_t step = part / 4, t = part % 4 * 8, i = 0;
		for (; i + KVI_PANEL <= r->rows; i += KVI_PANEL)
			rows_some(r, step, t, i, KVI_PANEL);
		for (; i < r->rows; i++)
			rows_some(r, step, t, i, 1);
	}
}

bool kvi_neon_slot(const struct kvi_slot_block *b,
                   const struct kvi_slot_job *j)
{
	return slot_any(b, j);
}
