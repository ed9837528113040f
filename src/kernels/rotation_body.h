/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rotation_body.h - contexts of arrays and of rotating channels (spec grid 2, 3);
 * kvi_kernels.grid_contexts, rotated_contexts
 *
 * Included after context_body.h. Uses, beside what that does: v_mul, v_xor, v_lookup_i16,
 * v_lookup_i8, first_lanes, LANES_DONE, v_load_some, v_load_i16_some, v_store_some, v_store_pairs
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

/* From pair i of the head at p on. */
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

INLINE void channels_store(uint32_t *ctx, const struct kvi_rotation *r, size_t i, some_lanes some,
                           const struct pair_channels *c)
{
	if (r->interleaved) {
		v_store_pairs(ctx + 2 * i, c->a, c->b, some);
	} else {
		v_store_some(ctx + i, c->a, some);
		v_store_some(ctx + r->pairs + i, c->b, some);
	}
}

/* What pairs have in common in all heads: cosine, sine, angle classes of a and b. */
struct pair_angles {
	vec c, s, class_a, class_b;
};

INLINE struct pair_angles angles_of(const struct kvi_rotation *r, size_t i, some_lanes some)
{
	struct pair_angles t;
	vec angle = v_and(v_load_i16_some((const int16_t *)r->angle + i, some), SET(4095));
	t.c = v_lookup_i16(r->cosines, angle);
	t.s = v_lookup_i16(r->cosines, v_and(v_add(angle, SET(3072)), SET(4095)));
	t.class_a = v_and(v_shr(angle, 5), SET(63));
	/* 32 further, modulo 64 */
	t.class_b = v_xor(t.class_a, SET(32));
	return t;
}

/* v: 64 times the expectations of one channel, k: its classes. */
INLINE vec rotated(vec v, vec e, vec k, const struct kvi_rotation *r)
{
	return contexts_of(scaled_bits(v_sar(v, 6), e), k, r->fmt);
}

INLINE struct pair_channels rotate(const struct pair_channels *mean, const struct pair_channels *k,
                                   const struct pair_angles *t, const struct kvi_rotation *r)
{
	struct pair_channels out;
	vec va = v_sub(v_mul(mean->a, t->c), v_mul(mean->b, t->s));
	vec vb = v_add(v_mul(mean->b, t->c), v_mul(mean->a, t->s));
	vec e = v_sub(v_sar(v_max(k->a, k->b), 2), SET(12));
	vec row = clamp(v_sub(k->a, k->b), 32);
	row = v_shl(v_add(row, SET(32)), 6);
	vec sa = v_lookup_i8(r->scales, v_or(row, t->class_a));
	vec sb = v_lookup_i8(r->scales, v_or(row, t->class_b));
	out.a = rotated(va, e, v_add(k->b, sa), r);
	out.b = rotated(vb, e, v_add(k->b, sb), r);
	return out;
}

static void rotated_contexts(uint32_t *ctx, const struct kvi_rotation *r)
{
	const size_t heads = kvi_rotation_heads(r);
	size_t i = 0;
	for (; i < LANES_DONE(r->pairs); i += WIDTH) {
		some_lanes some = first_lanes(r->pairs - i);
		struct pair_angles t = angles_of(r, i, some);
		for (size_t h = 0; h < heads; h++) {
			size_t at = h * r->head_channels;
			struct pair_channels mean = channels_load(r->mean + at, r, i, some);
			struct pair_channels k = channels_load(r->k + at, r, i, some);
			struct pair_channels out = rotate(&mean, &k, &t, r);
			channels_store(ctx + at, r, i, some, &out);
		}
	}
	if (i < r->pairs)
		kvi_scalar_rotate_pairs(ctx, r, i);
}

#endif
