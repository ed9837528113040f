/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_avx512.c - slots of the linear codec, 2 x 16 tokens a step */
#include "config.h"

#include "context_avx512.h"
#include "grid_avx512.h"

enum { PARTS = 2 };
#define EACH HALVES
#define states pair
#define states_keep(st, p, lanes) states_store(st, p, lanes_mask(lanes))

INLINE vec v_load(const void *p)
{
	return _mm512_loadu_si512(p);
}

INLINE void v_store(void *p, vec v)
{
	_mm512_storeu_si512(p, v);
}

INLINE vec v_load_i16(const int16_t *p)
{
	return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

INLINE vec v_load_u16(const uint16_t *p)
{
	return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

INLINE vec v_load_u8(const uint8_t *p)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

#define v_add _mm512_add_epi32
#define v_sub _mm512_sub_epi32
#define v_mul _mm512_mullo_epi32
#define v_madd _mm512_madd_epi16
#define v_abs _mm512_abs_epi32
#define v_min _mm512_min_epi32
#define v_max _mm512_max_epi32
#define v_and _mm512_and_si512
#define v_or _mm512_or_si512
#define v_xor _mm512_xor_si512
#define v_shl(v, n) _mm512_slli_epi32(v, (unsigned)(n))
#define v_shr(v, n) _mm512_srli_epi32(v, (unsigned)(n))
#define v_sar(v, n) _mm512_srai_epi32(v, (unsigned)(n))
#define v_shr_each _mm512_srlv_epi32

INLINE vec v_sar_by(vec v, unsigned n)
{
	return _mm512_sra_epi32(v, _mm_cvtsi32_si128((int)n));
}

INLINE vec v_where(vec some, vec v) /* v where some is not 0, else 0 */
{
	return _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(some, some), v);
}

INLINE vec v_negated_where(vec x, int bit, vec v) /* where x has the bit */
{
	return _mm512_mask_sub_epi32(
		v, _mm512_test_epi32_mask(x, SET(1 << bit)),
		_mm512_setzero_si512(), v);
}

INLINE vec v_float_bits(vec v)
{
	return _mm512_castps_si512(_mm512_cvt_roundepi32_ps(
		v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* REC of spec linear 4. */
INLINE vec v_reciprocal(vec k)
{
	const vec table = _mm512_set4_epi32(19484, 23170, 27554, 32768);
	return _mm512_permutexvar_epi32(k, table); /* by its low bits */
}

/* Two slots next to each other, as in a feature row; |a|, |b| < 2^15. */
INLINE vec v_side_by_side(vec a, vec b)
{
	return _mm512_mask_blend_epi16(0xaaaaaaaa, a, v_shl(b, 16));
}

INLINE vec v_negated_low(vec v)
{
	return _mm512_mask_sub_epi16(v, 0x55555555, _mm512_setzero_si512(), v);
}

INLINE vec v_negated_high(vec v)
{
	return _mm512_mask_sub_epi16(v, 0xaaaaaaaa, _mm512_setzero_si512(), v);
}

INLINE vec v_exchanged(vec v)
{
	return _mm512_rol_epi32(v, 16);
}

/* A row of ROT (spec grid 2). */
struct classes {
	vec lo, hi;
};

INLINE struct classes classes_load(const int8_t *scales)
{
	struct classes c = {
		_mm512_cvtepi8_epi16(
			_mm256_loadu_si256((const __m256i *)scales)),
		_mm512_cvtepi8_epi16(
			_mm256_loadu_si256((const __m256i *)(scales + 32)))
	};
	return c;
}

INLINE vec class_of(const struct classes *c, vec angle)
{
	vec v = _mm512_permutex2var_epi16(c->lo, angle, c->hi);
	return v_sar(v_shl(v, 16), 16);
}

#include "slots_vector.h"

/* --------------------------------------------------------- dot products */

INLINE vec dot_madd(vec sum, vec features, vec coef)
{
	return v_add(sum, v_madd(features, coef));
}

/*
 * `rows` rows, a constant, of one step: all sums stay in registers. A macro,
 * for a set of its own that has a multiply-add of pairs.
 */
#define ROWS(name, dot, target)                                               \
	target INLINE void name##_some(const struct kvi_rows *r, size_t step, \
	                               size_t first, const size_t rows)       \
	{                                                                     \
		int32_t *sum = r->sum + step * r->sum_step +                  \
		               first * KVI_LANES;                             \
		const int16_t *coef = r->coef + first * r->coef_row;          \
		const size_t coef_row = r->coef_row;                          \
		vec acc[KVI_PANEL][2];                                        \
		UNROLL for (size_t i = 0; i < rows; i++)                      \
			acc[i][0] = acc[i][1] =                               \
				SET(kvi_rows_half(r, first + i));             \
		for (size_t k = 0; k < r->n_parts; k++) {                     \
			const struct kvi_rows_part *part = &r->part[k];       \
			const int16_t *f =                                    \
				part->features + step * part->step;           \
			const int16_t *end = coef + 2 * part->n_pairs;        \
			for (; coef != end; coef += 2, f += KVI_PAIR_STEP) {  \
				vec x0 = v_load(f), x1 = v_load(f + 32);      \
				UNROLL for (size_t i = 0; i < rows; i++) {    \
					vec c = coefficients(coef +           \
					                     i * coef_row);   \
					acc[i][0] = dot(acc[i][0], x0, c);    \
					acc[i][1] = dot(acc[i][1], x1, c);    \
				}                                             \
			}                                                     \
		}                                                             \
		UNROLL for (size_t i = 0; i < rows; i++) {                    \
			v_store(sum + i * KVI_LANES, acc[i][0]);              \
			v_store(sum + i * KVI_LANES + 16, acc[i][1]);         \
		}                                                             \
	}                                                                     \
	target void name(const struct kvi_rows *r)                            \
	{                                                                     \
		for (size_t step = 0; step < r->steps; step++) {              \
			size_t i = 0;                                         \
			for (; i + KVI_PANEL <= r->rows; i += KVI_PANEL)      \
				name##_some(r, step, i, KVI_PANEL);           \
			for (; i < r->rows; i++)                              \
				name##_some(r, step, i, 1);                   \
		}                                                             \
	}

ROWS(kvi_avx512_slot_rows, dot_madd, )
#if defined(KVI_AVX512VNNI)
ROWS(kvi_avx512vnni_slot_rows, _mm512_dpwssd_epi32,
     __attribute__((target("avx512vnni"))))
#endif

bool kvi_avx512_slot(const struct kvi_slot_block *b,
                     const struct kvi_slot_job *j)
{
	return slot_any(b, j);
}
