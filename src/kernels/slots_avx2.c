/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_avx2.c - slots of the linear codec, 4 x 8 tokens a step */
#include "config.h"

#include "context_avx2.h"
#include "grid_avx2.h"

#define states quad
#define states_keep states_store

#define v_load load
#define v_store store
#define v_add _mm256_add_epi32
#define v_sub _mm256_sub_epi32
#define v_mul _mm256_mullo_epi32
#define v_madd _mm256_madd_epi16
#define v_abs _mm256_abs_epi32
#define v_min _mm256_min_epi32
#define v_max _mm256_max_epi32
#define v_and _mm256_and_si256
#define v_or _mm256_or_si256
#define v_xor _mm256_xor_si256
#define v_shl _mm256_slli_epi32
#define v_shr _mm256_srli_epi32
#define v_sar _mm256_srai_epi32
#define v_shr_each _mm256_srlv_epi32

INLINE vec v_load_i16(const int16_t *p)
{
	return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p));
}

INLINE vec v_load_u16(const uint16_t *p)
{
	return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}

INLINE vec v_load_u8(const uint8_t *p)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

INLINE vec v_sar_by(vec v, unsigned n)
{
	return _mm256_sra_epi32(v, _mm_cvtsi32_si128((int)n));
}

INLINE vec v_where(vec some, vec v) /* v where some is not 0, else 0 */
{
	return except(is_zero(some), v);
}

INLINE vec v_negated_where(vec x, int bit, vec v) /* where x has the bit */
{
	return _mm256_sign_epi32(
		v, v_or(_mm256_slli_epi32(x, 31 - bit), SET(1)));
}

INLINE vec v_float_bits(vec v) /* exact in any rounding mode */
{
	return _mm256_castps_si256(_mm256_cvtepi32_ps(v));
}

/* REC of spec linear 4. */
INLINE vec v_reciprocal(vec k)
{
	const vec table = _mm256_setr_epi32(32768, 27554, 23170, 19484, 32768,
	                                    27554, 23170, 19484);
	return _mm256_permutevar8x32_epi32(table, k); /* by its low bits */
}

/* Two slots next to each other, as in a feature row; |a|, |b| < 2^15. */
INLINE vec v_side_by_side(vec a, vec b)
{
	return _mm256_blend_epi16(a, v_shl(b, 16), 0xaa);
}

INLINE vec v_negated_low(vec v)
{
	return _mm256_sign_epi16(v, SET(0x0001ffff));
}

INLINE vec v_negated_high(vec v)
{
	return _mm256_sign_epi16(v, SET(0xffff0001));
}

INLINE vec v_exchanged(vec v)
{
	return v_or(v_shl(v, 16), v_shr(v, 16));
}

/* A row of ROT (spec grid 2), 16 entries in each half of a vector. */
struct classes {
	vec part[4];
};

INLINE struct classes classes_load(const int8_t *scales)
{
	struct classes c;
	for (int i = 0; i < 4; i++)
		c.part[i] = _mm256_broadcastsi128_si256(
			_mm_loadu_si128((const __m128i *)(scales + 16 * i)));
	return c;
}

/* An index byte with bit 7 set looks up 0. */
INLINE vec class_of(const struct classes *c, vec angle)
{
	vec v = SET(0);
	for (int i = 0; i < 4; i++) {
		vec at = v_sub(angle, SET(16 * i));
		at = v_or(at, greater(at, SET(15)));
		v = v_or(v, _mm256_shuffle_epi8(c->part[i], at));
	}
	return v_sar(v_shl(v, 24), 24);
}

#include "slots_vector.h"

/* `rows` rows, a constant, of a step: all sums stay in registers. Three rows of four vectors take
 * the fewest loads for each sum that 16 registers allow. */
INLINE void rows_some(const struct kvi_rows *r, size_t step, size_t first,
                      const size_t rows)
{
	int32_t *sum = r->sum + step * r->sum_step + first * KVI_LANES;
	const int16_t *coef = r->coef + first * r->coef_row;
	const size_t coef_row = r->coef_row;
	vec acc[3][PARTS], c[3];
	UNROLL for (size_t i = 0; i < rows; i++)
		EACH acc[i][h] = SET(kvi_rows_half(r, first + i));
	for (size_t k = 0; k < r->n_parts; k++) {
		const struct kvi_rows_part *part = &r->part[k];
		const int16_t *f = part->features + step * part->step;
		const int16_t *end = coef + 2 * part->n_pairs;
		for (; coef != end; coef += 2, f += KVI_PAIR_STEP) {
			UNROLL for (size_t i = 0; i < rows; i++)
				c[i] = coefficients(coef + i * coef_row);
			EACH {
				vec x = v_load(f + 2 * WIDTH * h);
				UNROLL for (size_t i = 0; i < rows; i++)
					acc[i][h] = v_add(acc[i][h],
					                  v_madd(x, c[i]));
			}
		}
	}
	UNROLL for (size_t i = 0; i < rows; i++)
		EACH v_store(sum + i * KVI_LANES + WIDTH * h, acc[i][h]);
}

void kvi_avx2_slot_rows(const struct kvi_rows *r)
{
	enum { GROUP = 3 };
	for (size_t step = 0; step < r->steps; step++) {
		size_t i = 0;
		for (; i + GROUP <= r->rows; i += GROUP)
			rows_some(r, step, i, GROUP);
		if (i + 2 == r->rows)
			rows_some(r, step, i, 2);
		else if (i < r->rows)
			rows_some(r, step, i, 1);
	}
}

bool kvi_avx2_slot(const struct kvi_slot_block *b,
                   const struct kvi_slot_job *j)
{
	return slot_any(b, j);
}
