/* SPDX-License-Identifier: BSD-3-Clause */
/* context_avx2.c - contexts of 8 elements at a time (spec grid 2, 3) */
#include "config.h"

#include "context_avx2.h"

enum { LANES = 8 };

INLINE vec load_i16(const int16_t *p)
{
	return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p));
}

void kvi_avx2_grid_contexts(uint32_t *ctx, const uint32_t *mu_bits,
                            const int16_t *k, size_t n,
                            const struct kvi_grid_format *fmt)
{
	size_t i = 0;
	for (; i + LANES <= n; i += LANES)
		store(ctx + i,
		      contexts_of(load(mu_bits + i), load_i16(k + i), fmt));
	kvi_scalar_grid_contexts(ctx + i, mu_bits + i, k + i, n - i, fmt);
}

/* Entries of 16 and 8 bits, read as whole words of the table. */
INLINE vec lookup_i16(const int16_t *table, vec index)
{
	vec word = _mm256_i32gather_epi32((const int *)(const void *)table,
	                                  _mm256_srli_epi32(index, 1), 4);
	vec up = _mm256_slli_epi32(_mm256_andnot_si256(index, SET(1)), 4);
	return _mm256_srai_epi32(_mm256_sllv_epi32(word, up), 16);
}

INLINE vec lookup_i8(const int8_t *table, vec index)
{
	vec word = _mm256_i32gather_epi32((const int *)(const void *)table,
	                                  _mm256_srli_epi32(index, 2), 4);
	vec up = _mm256_slli_epi32(_mm256_andnot_si256(index, SET(3)), 3);
	return _mm256_srai_epi32(_mm256_sllv_epi32(word, up), 24);
}

INLINE vec clamp(vec v, int limit)
{
	return _mm256_max_epi32(_mm256_min_epi32(v, SET(limit)), SET(-limit));
}

/* Channels a and b of 8 pairs. */
struct channels {
	vec a, b;
};

/* What 8 pairs of all heads share: cosine, sine, angle classes of a and b. */
struct turn {
	vec c, s, class_a, class_b;
};

INLINE struct turn turn_of(const struct kvi_rotation *r, size_t i)
{
	struct turn t;
	vec angle = _mm256_cvtepu16_epi32(
		_mm_loadu_si128((const __m128i *)(r->angle + i)));
	angle = _mm256_and_si256(angle, SET(4095));
	vec turned = _mm256_and_si256(_mm256_add_epi32(angle, SET(3072)),
	                              SET(4095));
	t.c = lookup_i16(r->cosines, angle);
	t.s = lookup_i16(r->cosines, turned);
	t.class_a = _mm256_and_si256(_mm256_srli_epi32(angle, 5), SET(63));
	/* 32 further, modulo 64 */
	t.class_b = _mm256_xor_si256(t.class_a, SET(32));
	return t;
}

INLINE struct channels rotate(const struct channels *mean,
                              const struct channels *k, const struct turn *t,
                              const struct kvi_rotation *r)
{
	struct channels out;
	vec va = _mm256_sub_epi32(_mm256_mullo_epi32(mean->a, t->c),
	                          _mm256_mullo_epi32(mean->b, t->s));
	vec vb = _mm256_add_epi32(_mm256_mullo_epi32(mean->b, t->c),
	                          _mm256_mullo_epi32(mean->a, t->s));
	vec e = _mm256_sub_epi32(
		_mm256_srai_epi32(_mm256_max_epi32(k->a, k->b), 2), SET(12));
	vec row = clamp(_mm256_sub_epi32(k->a, k->b), 32);
	row = _mm256_slli_epi32(_mm256_add_epi32(row, SET(32)), 6);
	vec sa = lookup_i8(r->scales, _mm256_or_si256(row, t->class_a));
	vec sb = lookup_i8(r->scales, _mm256_or_si256(row, t->class_b));
	out.a = contexts_of(scaled_bits(_mm256_srai_epi32(va, 6), e),
	                    clamp(_mm256_add_epi32(k->b, sa), 400), r->fmt);
	out.b = contexts_of(scaled_bits(_mm256_srai_epi32(vb, 6), e),
	                    clamp(_mm256_add_epi32(k->b, sb), 400), r->fmt);
	return out;
}

INLINE struct channels channels_load(const int16_t *p, bool interleaved,
                                     size_t pairs)
{
	struct channels c;
	if (interleaved) {
		vec two = load(p);
		c.a = _mm256_srai_epi32(_mm256_slli_epi32(two, 16), 16);
		c.b = _mm256_srai_epi32(two, 16);
	} else {
		c.a = load_i16(p);
		c.b = load_i16(p + pairs);
	}
	return c;
}

INLINE void channels_store(uint32_t *ctx, bool interleaved, size_t pairs,
                           const struct channels *c)
{
	if (interleaved) {
		vec lo = _mm256_unpacklo_epi32(c->a, c->b);
		vec hi = _mm256_unpackhi_epi32(c->a, c->b);
		store(ctx, _mm256_permute2x128_si256(lo, hi, 0x20));
		store(ctx + LANES, _mm256_permute2x128_si256(lo, hi, 0x31));
	} else {
		store(ctx, c->a);
		store(ctx + pairs, c->b);
	}
}

void kvi_avx2_rotated_contexts(uint32_t *ctx, const struct kvi_rotation *r)
{
	const bool two = r->interleaved;
	const size_t heads = kvi_rotation_heads(r);
	size_t i = 0;
	for (; i + LANES <= r->pairs; i += LANES) {
		struct turn t = turn_of(r, i);
		for (size_t h = 0; h < heads; h++) {
			size_t at = h * r->head_channels + (two ? 2 * i : i);
			struct channels mean =
				channels_load(r->mean + at, two, r->pairs);
			struct channels k =
				channels_load(r->k + at, two, r->pairs);
			struct channels out = rotate(&mean, &k, &t, r);
			channels_store(ctx + at, two, r->pairs, &out);
		}
	}
	kvi_scalar_rotate_pairs(ctx, r, i);
}
