/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rotation_body.h - contexts of arrays and of rotating channels (spec grid 2, 3);
 * kvi_coding_kernels.grid_contexts, rotated_contexts
 *
 * Included after context_body.h. Uses, beside what that does: v_madd, v_negated_high, v_exchanged,
 * v_lookup_u16, first_lanes, LANES_DONE, v_load_some, v_load_i16_some, v_store_some, v_store_pairs
 * (contracts in ops.h).
 */
#ifndef KVI_ROTATION_BODY_H
#define KVI_ROTATION_BODY_H

static void grid_contexts(uint32_t *ctx, const uint32_t *mu_bits, const int16_t *k, size_t n,
                          const struct kvi_grid_format *fmt)
{
	size_t i = 0;
	for (; i < LANES_DONE(n); i += WIDTH) {
		some_lanes some = first_lanes(n - i);
		v_store_some(ctx + i,
		             contexts_of(v_load_some(mu_bits + i, some),
		                         v_load_i16_some(k + i, some), fmt),
		             some);
	}
	if (i < n)
		kvi_scalar_grid_contexts(ctx + i, mu_bits + i, k + i, n - i, fmt);
}

/* Channels a and b of as many pairs as a vector has lanes. */
struct pair_channels {
	vec a, b;
};

/* Loads channels of the head at p from pair i on. */
INLINE struct pair_channels channels_load(const int16_t *p, const struct kvi_rotation *r, size_t i,
                                          some_lanes some)
{
	struct pair_channels c;
	if (r->interleaved) {
		vec two = v_load_some(p + 2 * i, some);
		c.a = v_sar(v_shl(two, 16), 16);
		c.b = v_sar(two, 16);
	} else {
		c.a = v_load_i16_some(p + i, some);
		c.b = v_load_i16_some(p + r->pairs + i, some);
	}
	return c;
}

/* Loads channels of the head at p from pair i on, side by side: a in the low halves, b in the high
 * halves. */
INLINE vec means_load(const int16_t *p, const struct kvi_rotation *r, size_t i, some_lanes some)
{
	if (r->interleaved)
		return v_load_some(p + 2 * i, some);
	return v_low_high(v_load_i16_some(p + i, some),
	                  v_shl(v_load_i16_some(p + r->pairs + i, some), 16));
}

INLINE void channels_store(uint32_t *ctx, const struct kvi_rotation *r, size_t i, some_lanes some,
                           const struct pair_channels *channels)
{
	if (r->interleaved) {
		v_store_pairs(ctx + 2 * i, channels->a, channels->b, some);
	} else {
		v_store_some(ctx + i, channels->a, some);
		v_store_some(ctx + r->pairs + i, channels->b, some);
	}
}

/* Numbers of pairs that all heads share: (cosine, -sine) and (sine, cosine) in halves of lanes, the
 * angle class. */
struct pair_turns {
	vec a, b, angle_class;
};

INLINE struct pair_turns turns_load(const struct kvi_rotation *r, size_t i, some_lanes some)
{
	vec turn = v_load_some(r->turn + i, some);
	return (struct pair_turns){ v_negated_high(turn), v_exchanged(turn),
		                    v_load_i16_some((const int16_t *)r->angle_class + i, some) };
}

/* Contexts of one channel. v: 64 times its predicted means; k: its classes. */
INLINE vec rotated(vec v, vec e, vec k, const struct kvi_rotation *r)
{
	return contexts_of(scaled_bits(v_sar(v, 6), e), k, r->fmt);
}

/* The exponent that means of a pair share. */
INLINE vec pair_exponent(const struct pair_channels *channels)
{
	return v_sub(v_sar(v_max(channels->a, channels->b), 2), SET(12));
}

/* Begin of each pair's row in the table of scales. */
INLINE vec pair_row(const struct pair_channels *channels)
{
	return v_shl(v_add(clamp(v_sub(channels->a, channels->b), 32), SET(32)), 6);
}

/* Contexts of rotated pairs. mean: a in the low halves, b in the high halves. */
INLINE struct pair_channels rotate(vec mean, const struct pair_channels *channels,
                                   const struct pair_turns *turns, const struct kvi_rotation *r)
{
	vec e = pair_exponent(channels);
	vec scales = v_lookup_u16(r->scales, v_or(pair_row(channels), turns->angle_class));
	vec sa = v_sar(v_shl(scales, 24), 24), sb = v_sar(v_shl(scales, 16), 24);
	return (struct pair_channels){
		rotated(v_madd(mean, turns->a), e, v_add(channels->b, sa), r),
		rotated(v_madd(mean, turns->b), e, v_add(channels->b, sb), r)
	};
}

static void rotated_contexts(uint32_t *ctx, const struct kvi_rotation *r)
{
	const size_t heads = kvi_rotation_heads(r);
	size_t i = 0;
	for (; i < LANES_DONE(r->pairs); i += WIDTH) {
		some_lanes some = first_lanes(r->pairs - i);
		struct pair_turns t = turns_load(r, i, some);
		for (size_t h = 0; h < heads; h++) {
			size_t at = h * r->head_channels;
			vec mean = means_load(r->mean + at, r, i, some);
			struct pair_channels k = channels_load(r->k + at, r, i, some);
			struct pair_channels out = rotate(mean, &k, &t, r);
			channels_store(ctx + at, r, i, some, &out);
		}
	}
	if (i < r->pairs)
		kvi_scalar_rotate_pairs(ctx, r, i);
}

#endif
