/* SPDX-License-Identifier: BSD-3-Clause */
/* context_avx512.c - contexts of 16 elements at a time (spec grid 2, 3) */
#include "config.h"

#include "context_avx512.h"

INLINE vec clamp(vec v, int limit)
{
	return _mm512_max_epi32(_mm512_min_epi32(v, SET(limit)), SET(-limit));
}

INLINE __mmask16 first_lanes(size_t n)
{
	return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff);
}

/* Lanes that are not active are 0. */
INLINE vec load_i16(const int16_t *p, __mmask16 active)
{
	return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(active, p));
}

void kvi_avx512_grid_contexts(uint32_t *ctx, const uint32_t *mu_bits,
                              const int16_t *k, size_t n,
                              const struct kvi_grid_format *fmt)
{
	for (size_t i = 0; i < n; i += 16) {
		__mmask16 act = first_lanes(n - i);
		vec mu = _mm512_maskz_loadu_epi32(act, mu_bits + i);
		vec c = contexts_of(mu, load_i16(k + i, act), fmt);
		_mm512_mask_storeu_epi32(ctx + i, act, c);
	}
}

/* Channels a and b of 16 pairs. */
struct channels {
	vec a, b;
};

INLINE struct channels channels_load(const int16_t *p,
                                     const struct kvi_rotation *r, size_t i,
                                     __mmask16 act)
{
	struct channels c;
	if (!r->interleaved) {
		c.a = load_i16(p + i, act);
		c.b = load_i16(p + r->pairs + i, act);
	} else {
		vec both = _mm512_maskz_loadu_epi32(act, p + 2 * i);
		c.a = _mm512_srai_epi32(_mm512_slli_epi32(both, 16), 16);
		c.b = _mm512_srai_epi32(both, 16);
	}
	return c;
}

INLINE void channels_store(uint32_t *ctx, const struct kvi_rotation *r,
                           size_t i, __mmask16 act, const struct channels *c)
{
	const vec low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18,
	                                 2, 17, 1, 16, 0);
	if (!r->interleaved) {
		_mm512_mask_storeu_epi32(ctx + i, act, c->a);
		_mm512_mask_storeu_epi32(ctx + r->pairs + i, act, c->b);
	} else {
		uint32_t lanes = _pdep_u32(act, 0x55555555);
		lanes |= lanes << 1;
		_mm512_mask_storeu_epi32(
			ctx + 2 * i, (__mmask16)lanes,
			_mm512_permutex2var_epi32(c->a, low, c->b));
		_mm512_mask_storeu_epi32(
			ctx + 2 * i + 16, (__mmask16)(lanes >> 16),
			_mm512_permutex2var_epi32(
				c->a, _mm512_add_epi32(low, SET(8)), c->b));
	}
}

/* Entries of 16 and 8 bits, read as whole words of the table. */
INLINE vec lookup_i16(const int16_t *table, vec index)
{
	vec word = _mm512_i32gather_epi32(_mm512_srli_epi32(index, 1), table, 4);
	vec up = _mm512_slli_epi32(_mm512_andnot_si512(index, SET(1)), 4);
	return _mm512_srai_epi32(_mm512_sllv_epi32(word, up), 16);
}

INLINE vec lookup_i8(const int8_t *table, vec index)
{
	vec word = _mm512_i32gather_epi32(_mm512_srli_epi32(index, 2), table, 4);
	vec up = _mm512_slli_epi32(_mm512_andnot_si512(index, SET(3)), 3);
	return _mm512_srai_epi32(_mm512_sllv_epi32(word, up), 24);
}

/* What 16 pairs of all heads share: cosine, sine, angle classes of a and b. */
struct turn {
	vec c, s, class_a, class_b;
};

INLINE struct turn turn_of(const struct kvi_rotation *r, size_t i,
                           __mmask16 act)
{
	struct turn t;
	vec angle = _mm512_and_si512(
		load_i16((const int16_t *)r->angle + i, act), SET(4095));
	vec turned = _mm512_and_si512(_mm512_add_epi32(angle, SET(3072)),
	                              SET(4095));
	t.c = lookup_i16(r->cosines, angle);
	t.s = lookup_i16(r->cosines, turned);
	t.class_a = _mm512_and_si512(_mm512_srli_epi32(angle, 5), SET(63));
	/* 32 further, modulo 64 */
	t.class_b = _mm512_xor_si512(t.class_a, SET(32));
	return t;
}

INLINE struct channels rotate(const struct channels *mean,
                              const struct channels *k, const struct turn *t,
                              const struct kvi_rotation *r)
{
	struct channels out;
	vec va = _mm512_sub_epi32(_mm512_mullo_epi32(mean->a, t->c),
	                          _mm512_mullo_epi32(mean->b, t->s));
	vec vb = _mm512_add_epi32(_mm512_mullo_epi32(mean->b, t->c),
	                          _mm512_mullo_epi32(mean->a, t->s));
	vec e = _mm512_sub_epi32(
		_mm512_srai_epi32(_mm512_max_epi32(k->a, k->b), 2), SET(12));
	vec row = clamp(_mm512_sub_epi32(k->a, k->b), 32);
	row = _mm512_slli_epi32(_mm512_add_epi32(row, SET(32)), 6);
	vec sa = lookup_i8(r->scales, _mm512_or_si512(row, t->class_a));
	vec sb = lookup_i8(r->scales, _mm512_or_si512(row, t->class_b));
	out.a = contexts_of(scaled_bits(_mm512_srai_epi32(va, 6), e),
	                    clamp(_mm512_add_epi32(k->b, sa), 400), r->fmt);
	out.b = contexts_of(scaled_bits(_mm512_srai_epi32(vb, 6), e),
	                    clamp(_mm512_add_epi32(k->b, sb), 400), r->fmt);
	return out;
}

void kvi_avx512_rotated_contexts(uint32_t *ctx, const struct kvi_rotation *r)
{
	const size_t heads = kvi_rotation_heads(r);
	for (size_t i = 0; i < r->pairs; i += 16) {
		__mmask16 act = first_lanes(r->pairs - i);
		struct turn t = turn_of(r, i, act);
		for (size_t h = 0; h < heads; h++) {
			size_t at = h * r->head_channels;
			struct channels mean =
				channels_load(r->mean + at, r, i, act);
			struct channels k =
				channels_load(r->k + at, r, i, act);
			struct channels out = rotate(&mean, &k, &t, r);
			channels_store(ctx + at, r, i, act, &out);
		}
	}
}
