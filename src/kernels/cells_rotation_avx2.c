/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_rotation_avx2.c - contexts of rotating channels for codec cells (spec cells 2) in AVX2 */
#include "config.h"

#include "cells.h"
#include "words_avx2.h"

/* 16 pairs of numbers. */
struct channel_pairs {
	vec a, b;
};

/* Pairs whose numbers are side by side. */
INLINE struct channel_pairs pairs_load(const void *from)
{
	const vec order = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
	const vec x = b_lookup(load(from), order);
	const vec y = b_lookup(load((const uint8_t *)from + WIDTH), order);
	return (struct channel_pairs){ _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(x, y), 0xd8),
		                       _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(x, y),
		                                                0xd8) };
}

/* Pairs of channels of a head from pair i on. */
INLINE struct channel_pairs channels_load(const struct kvi_rotation *r, const int16_t *head,
                                          size_t i)
{
	if (r->interleaved)
		return pairs_load(head + 2 * i);
	return (struct channel_pairs){ load(head + i), load(head + r->pairs + i) };
}

INLINE void channels_store(const struct kvi_rotation *r, struct channel_pairs pairs, size_t i,
                           void *head)
{
	uint16_t *to = head;
	if (r->interleaved) {
		const vec x = _mm256_unpacklo_epi16(pairs.a, pairs.b);
		const vec y = _mm256_unpackhi_epi16(pairs.a, pairs.b);
		store(to + 2 * i, _mm256_permute2x128_si256(x, y, 0x20));
		store(to + 2 * i + HALF, _mm256_permute2x128_si256(x, y, 0x31));
	} else {
		store(to + i, pairs.a);
		store(to + r->pairs + i, pairs.b);
	}
}

/* Twice a cosine or sine, limited to what mulhrs takes. */
INLINE vec factor_of(vec value)
{
	return w_max(w_add_limited(value, value), SET16(-INT16_MAX));
}

/* Means in cells that are 2^n times as wide, n >= 0. */
INLINE vec wider_cells(const struct powers *c, vec mean, vec n)
{
	const vec most = SET16(16), small = w_min(n, most);
	const vec wider = w_mul_rounded(mean, power_from_15(c, twice(small)));
	return v_blend(wider, mean, w_eq(n, _mm256_setzero_si256()));
}

/* Contexts of channels whose means are in 1/16 of 2^top, of classes k, as make_context in
 * cells_scalar.c has them: the grid's; *mean becomes M. */
INLINE vec make_contexts(const struct powers *c, const struct kvi_grid_format *format, vec *mean,
                         vec top, vec k)
{
	const int m = format->mant_bits, least = format->emin + 127 + 15 - m;
	const vec zero = _mm256_setzero_si256(), one = SET16(1);
	const vec q = w_sar(k, 2), quarter = v_and(k, SET16(3));
	const __m128i shift = _mm_cvtsi32_si128(m), shift_more = _mm_cvtsi32_si128(m + 1);
	const vec sum = w_add_limited(*mean, _mm256_sra_epi16(*mean, shift_more));
	const vec finer = small_power(c, w_sub(top, q));
	vec cell = w_sar(w_add(w_mul(sum, finer), one), 1);
	vec g = w_add(q, SET16(124)), class = w_shl(quarter, 5);
	const vec size = w_add(_mm256_abs_epi16(cell), SET16(64));
	const vec coarse = v_or(w_gt(size, SET16((2 << m) - 1)), w_gt(SET16(least), g));
	if (__builtin_expect(lanes_of(coarse) != 0, 0)) {
		vec wider = zero;
		for (int i = m + 1; i < 15; i++)
			wider = w_sub(wider, w_gt(size, SET16((1 << i) - 1)));
		cell = wider_cells(c, cell, wider);
		const vec missing = w_max(w_sub(SET16(least), w_add(g, wider)), zero);
		cell = wider_cells(c, cell, missing);
		wider = w_add(wider, missing);
		g = w_add(g, wider);
		const vec low = w_max(w_sub(w_add(quarter, SET16(KVI_CELLS_FINE)), w_shl(wider, 2)),
		                      zero);
		class = v_blend(class, v_or(low, SET16(KVI_CELLS_COARSE)),
		                w_gt(SET16(KVI_CELLS_FINE), low));
	}
	const vec base = w_min(w_add(g, SET16(m - 127 - format->emin)), SET16((1 << (15 - m)) - 1));
	*mean = cell;
	return v_or(_mm256_sll_epi16(base, shift), class);
}

/* The entries of a table whose numbers are in `at`. */
INLINE vec looked_up(const uint16_t *table, const uint16_t at[HALF])
{
	__m128i a = _mm_setzero_si128(), b = _mm_setzero_si128();
#define ENTRY(i)                                  \
	a = _mm_insert_epi16(a, table[at[i]], i); \
	b = _mm_insert_epi16(b, table[at[8 + (i)]], i)
	ENTRY(0);
	ENTRY(1);
	ENTRY(2);
	ENTRY(3);
	ENTRY(4);
	ENTRY(5);
	ENTRY(6);
	ENTRY(7);
#undef ENTRY
	return _mm256_set_m128i(b, a);
}

/* Cosines and sines of pairs i to i + 15 of n tokens, which all heads share, as factors. */
INLINE void load_turns(const struct kvi_rotation *r, size_t n, size_t i, struct channel_pairs *turn)
{
	for (size_t t = 0; t < n; t++) {
		const struct channel_pairs angle = pairs_load(r->turn + t * r->pairs + i);
		turn[t] = (struct channel_pairs){ factor_of(angle.a), factor_of(angle.b) };
	}
}

/* Contexts of pairs i to i + 15 of a head, whose first channel is `first`, of n tokens. */
INLINE void rotate_pairs(const struct powers *c, const struct kvi_rotation *r,
                         const struct channel_pairs *turn, size_t n, size_t row, size_t first,
                         size_t i, int16_t *mean, uint16_t *grid)
{
	const struct channel_pairs means = channels_load(r, r->mean + first, i);
	const struct channel_pairs k = channels_load(r, r->k + first, i);
	const vec larger = w_max(k.a, k.b), top = w_sar(larger, 2);
	const vec least = w_sub(larger, SET16(16));
	const vec apart = w_min(w_max(w_sub(k.a, k.b), SET16(-32)), SET16(32));
	const vec scale_row = w_shl(w_add(apart, SET16(32)), 6);
	for (size_t t = 0; t < n; t++) {
		const vec cosine = turn[t].a, sine = turn[t].b;
		uint16_t at[HALF];
		store(at, w_add(scale_row, load(r->angle_class + t * r->pairs + i)));
		const vec scales = looked_up(r->scales, at);
		const vec x = w_add(k.b, w_sar(w_shl(scales, 8), 8));
		const vec y = w_add(k.b, w_sar(scales, 8));
		struct channel_pairs rotated = {
			w_sub_limited(w_mul_rounded(means.a, cosine), w_mul_rounded(means.b, sine)),
			w_add_limited(w_mul_rounded(means.b, cosine), w_mul_rounded(means.a, sine))
		};
		struct channel_pairs grids;
		grids.a = make_contexts(c, r->fmt, &rotated.a, top, w_max(x, least));
		grids.b = make_contexts(c, r->fmt, &rotated.b, top, w_max(y, least));
		channels_store(r, rotated, i, mean + t * row + first);
		channels_store(r, grids, i, grid + t * row + first);
	}
}

void kvi_avx2_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row, int16_t *mean,
                           uint16_t *grid)
{
	const struct powers two = powers_load();
	const size_t pairs = rotation->pairs;
	struct channel_pairs turn[KVI_CELLS_TOKENS];
	if (pairs < HALF) {
		kvi_scalar_cells_rotate(rotation, n, row, mean, grid);
		return;
	}
	for (size_t done = 0; done < pairs; done += HALF) {
		/* The last vector begins where it ends with the last pair. */
		const size_t i = done + HALF <= pairs ? done : pairs - HALF;
		load_turns(rotation, n, i, turn);
		for (size_t h = 0; h < rotation->heads; h++)
			rotate_pairs(&two, rotation, turn, n, row, h * rotation->head_channels, i,
			             mean, grid);
	}
}
