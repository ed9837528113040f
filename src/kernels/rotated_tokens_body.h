/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rotated_tokens_body.h - contexts of rotating channels of many tokens (spec grid 2, 3) with
 * AVX-512; kvi_coding_kernels.rotated_tokens
 *
 * Included after rotation_body.h. A pair has one row of the table of scales for all tokens, which
 * two registers hold: a permutation finds the scales of 32 tokens. (A gather of those of 16 pairs
 * of a token takes 24 of 86 cycles.) What else a pair has in all tokens stays in registers, too.
 */
#ifndef KVI_ROTATED_TOKENS_BODY_H
#define KVI_ROTATED_TOKENS_BODY_H

/* Scales of 16 pairs: number 2j + i is of tokens j, 8 + j, 16 + j, 24 + j, one a quarter, with
 * those of pairs 8i to 8i + 7 each. */
struct token_scales {
	vec of[16];
};

/* Looks up the scales. first: begin of each pair's row in the table. */
INLINE struct token_scales token_scales_find(const uint16_t *scales, vec first,
                                             const uint16_t *classes, size_t stride)
{
	struct token_scales x;
	vec s[16], two[16], four[16];
	uint32_t row[WIDTH];
	v_store(row, first);
	KVI_UNROLL(16)
	for (int p = 0; p < 16; p++) {
		const uint16_t *table = scales + row[p];
		s[p] = _mm512_permutex2var_epi16(v_load(table), v_load(classes + p * stride),
		                                 v_load(table + 32));
	}
	/* The transposition within quarters goes from four tokens of two pairs to two of four
	 * pairs, then one of eight. */
	KVI_UNROLL(16)
	for (int p = 0; p < 16; p += 2) {
		two[p] = _mm512_unpacklo_epi16(s[p], s[p + 1]);
		two[p + 1] = _mm512_unpackhi_epi16(s[p], s[p + 1]);
	}
	KVI_UNROLL(16)
	for (int p = 0; p < 16; p += 4) {
		KVI_UNROLL(16)
		for (int i = 0; i < 2; i++) {
			four[p + 2 * i] = _mm512_unpacklo_epi32(two[p + i], two[p + 2 + i]);
			four[p + 2 * i + 1] = _mm512_unpackhi_epi32(two[p + i], two[p + 2 + i]);
		}
	}
	KVI_UNROLL(16)
	for (int p = 0; p < 16; p += 8) {
		KVI_UNROLL(16)
		for (int i = 0; i < 4; i++) {
			x.of[4 * i + p / 8] = _mm512_unpacklo_epi64(four[p + i], four[p + 4 + i]);
			x.of[4 * i + 2 + p / 8] = _mm512_unpackhi_epi64(four[p + i],
			                                                four[p + 4 + i]);
		}
	}
	return x;
}

/* The scales of a token, sign-extended, a pair a lane. */
INLINE vec scales_of(const int16_t *stored, size_t t)
{
	const int16_t *at = stored + t % 8 * 64 + t / 8 * 8;
	__m256i eight = _mm256_castsi128_si256(_mm_load_si128((const __m128i *)at));
	return _mm512_cvtepi16_epi32(
		_mm256_inserti128_si256(eight, _mm_load_si128((const __m128i *)(at + 32)), 1));
}

/* Vectors of 16 pairs of a head that all tokens share. */
struct pair_constants {
	vec mean, e, k;
};

/* Rotates 16 pairs of a head for one token; ctx: the head's. */
INLINE void rotate_token(uint32_t *ctx, const struct kvi_rotation *r, size_t i, vec turn,
                         vec scales, const struct pair_constants *constants)
{
	struct pair_channels out;
	out.a = rotated(v_madd(constants->mean, v_negated_high(turn)), constants->e,
	                v_add(constants->k, v_sar(v_shl(scales, 24), 24)), r);
	out.b = rotated(v_madd(constants->mean, v_exchanged(turn)), constants->e,
	                v_add(constants->k, v_sar(scales, 8)), r);
	channels_store(ctx, r, i, first_lanes(WIDTH), &out);
}

/* Rotates 16 pairs of a head for all tokens. */
INLINE void rotate_head(uint32_t *ctx, const struct kvi_rotation *r, size_t i, size_t at,
                        const struct kvi_rotated *tokens)
{
	int16_t stored[16 * KVI_LANES] __attribute__((aligned(64)));
	const struct pair_channels k = channels_load(r->k + at, r, i, first_lanes(WIDTH));
	const struct pair_constants x = { means_load(r->mean + at, r, i, first_lanes(WIDTH)),
		                          pair_exponent(&k), k.b };
	const struct token_scales scales = token_scales_find(
		r->scales, pair_row(&k), tokens->classes + i * tokens->stride, tokens->stride);
	KVI_UNROLL(16)
	for (int v = 0; v < 16; v++)
		v_store(stored + v * KVI_LANES, scales.of[v]);
	for (size_t t = 0; t < tokens->n; t++)
		rotate_token(ctx + t * tokens->row + at, r, i, v_load(r->turn + t * r->pairs + i),
		             scales_of(stored, t), &x);
}

static void rotated_tokens(uint32_t *ctx, const struct kvi_rotation *r,
                           const struct kvi_rotated *tokens)
{
	const size_t heads = kvi_rotation_heads(r);
	for (size_t h = 0; h < heads; h++)
		for (size_t i = 0; i < r->pairs; i += WIDTH)
			rotate_head(ctx, r, i, h * r->head_channels, tokens);
}

#endif
