/* SPDX-License-Identifier: BSD-3-Clause */
/* context_avx2.c - contexts of 8 elements at a time (spec grid 2, 3) */
#include "config.h"

#include "avx2.h"

enum { LANES = 8 };

/* Binary32 mantissas, 0 where the exponent is 0, shifted right. */
INLINE vec mantissa_shifted(vec bits, vec exponent, vec shift)
{
	vec man = _mm256_or_si256(_mm256_and_si256(bits, SET(0x7fffff)),
	                          SET(0x800000));
	vec none = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
	return _mm256_andnot_si256(none, _mm256_srlv_epi32(man, shift));
}

/* The steps of kvi_grid_context, in the same order. */
INLINE vec contexts_of(vec mu, vec k, const struct kvi_grid_format *fmt)
{
	/* mantissas of 2^(k / 4), the leading one included */
	const vec m4 = _mm256_setr_epi32(0x800000, 0x9837f0, 0xb504f3, 0xd744fd,
	                                 0x800000, 0x9837f0, 0xb504f3,
	                                 0xd744fd);
	const int m = fmt->mant_bits;
	vec am = _mm256_min_epu32(_mm256_and_si256(mu, SET(0x7fffffff)),
	                          SET(0x7f000000));
	vec kq = _mm256_srai_epi32(k, 2);
	vec xa = _mm256_srli_epi32(am, 23), xs = _mm256_add_epi32(kq, SET(128));
	vec x = _mm256_max_epi32(xa, xs);
	vec ma = mantissa_shifted(am, xa, _mm256_sub_epi32(x, xa));
	vec ms = _mm256_srlv_epi32(
		_mm256_permutevar8x32_epi32(m4, k), /* by its low bits */
		_mm256_sub_epi32(x, xs));
	vec e = _mm256_add_epi32(
		x, _mm256_srli_epi32(_mm256_add_epi32(ma, ms), 24));
	vec g = _mm256_max_epi32(_mm256_add_epi32(kq, SET(126)),
	                         _mm256_sub_epi32(e, SET(m)));
	g = _mm256_max_epi32(g, SET(fmt->emin - m + 127));

	vec ar = _mm256_add_epi32(am, SET(1 << (22 - m)));
	vec man = _mm256_or_si256(_mm256_and_si256(ar, SET(0x7fffff)),
	                          SET(0x800000));
	vec sh = _mm256_sub_epi32(_mm256_add_epi32(g, SET(20)),
	                          _mm256_srli_epi32(ar, 23));
	vec y = _mm256_srlv_epi32(man, sh);
	vec class = _mm256_sub_epi32(
		k, _mm256_slli_epi32(_mm256_sub_epi32(g, SET(127)), 2));
	class = _mm256_max_epi32(_mm256_min_epi32(class, SET(7)), SET(-16));
	vec table = _mm256_add_epi32(
		_mm256_slli_epi32(_mm256_add_epi32(class, SET(16)), 3),
		_mm256_and_si256(y, SET(7)));
	vec high = _mm256_or_si256(
		_mm256_slli_epi32(_mm256_srli_epi32(y, 3), 16),
		_mm256_and_si256(mu, SET(0x80000000)));
	return _mm256_or_si256(_mm256_or_si256(table, high),
	                       _mm256_slli_epi32(g, 8));
}

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

/* v * 2^e as binary32 patterns; |v| <= 2^24 is exact in any rounding mode. */
INLINE vec scaled_bits(vec v, vec e)
{
	vec bits = _mm256_castps_si256(_mm256_cvtepi32_ps(v));
	vec none = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
	return _mm256_andnot_si256(
		none, _mm256_add_epi32(bits, _mm256_slli_epi32(e, 23)));
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
