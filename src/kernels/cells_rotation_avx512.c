/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cells_rotation_avx512.c - contexts of rotating channels for codec cells (spec cells 2), AVX-512
 *
 * Lanes are words: 32 pairs of a head for one token. Only scales, which a pair has by angle class,
 * are looked up for 32 tokens of a pair at once, and transposed.
 */
#include "config.h"

#include "cells.h"
#include "ops_avx512.h"
#include "util/unroll.h"

#define SET16(x) _mm512_set1_epi16((short)(x))

enum {
	LANES = KVI_CELLS_TOKENS, /* of a vector of words */
	EIGHT = 8,
	APART = 32 /* most distance of the classes of a pair that has scales of its own */
};

/* ----- pairs of words --------------------------------------------- */

/* The first n of 64 words, all for more. */
INLINE __mmask64 first_words(size_t n)
{
	return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

INLINE vec load_words(const void *from, __mmask64 words)
{
	return _mm512_maskz_loadu_epi16((__mmask32)words, from);
}

/* Words of 32 pairs: the first ones of pairs, the second ones. */
struct word_pairs {
	vec first, second;
};

/* The numbers 0 to 15, of 32 bits. */
INLINE vec ascending(void)
{
	return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* n pairs that are one behind the other, zeros for others. */
INLINE struct word_pairs load_pairs(const void *from, size_t n)
{
	const __mmask64 words = first_words(2 * n);
	const vec a = load_words(from, words);
	const vec b = load_words((const uint16_t *)from + LANES, words >> LANES);
	const vec even = v_add(v_mul(ascending(), SET(0x00040004)), SET(0x00020000));
	return (struct word_pairs){
		_mm512_permutex2var_epi16(a, even, b),
		_mm512_permutex2var_epi16(a, _mm512_add_epi16(even, SET16(1)), b),
	};
}

/* The inverse. */
INLINE void store_pairs(void *to, struct word_pairs pairs, size_t n)
{
	const __mmask64 words = first_words(2 * n);
	const vec order = v_add(v_mul(ascending(), SET(0x00010001)), SET(LANES << 16));
	_mm512_mask_storeu_epi16(to, (__mmask32)words,
	                         _mm512_permutex2var_epi16(pairs.first, order, pairs.second));
	_mm512_mask_storeu_epi16(
		(uint16_t *)to + LANES, (__mmask32)(words >> LANES),
		_mm512_permutex2var_epi16(pairs.first, _mm512_add_epi16(order, SET16(LANES / 2)),
	                                  pairs.second));
}

/* n pairs of a head, from number `first` on. */
struct pair_range {
	const struct kvi_rotation *rotation;
	size_t first, n;
};

/* Pairs of a head's channels. */
INLINE struct word_pairs load_channels(const struct pair_range *range, const int16_t *head)
{
	const __mmask64 words = first_words(range->n);
	if (range->rotation->interleaved)
		return load_pairs(head + 2 * range->first, range->n);
	head += range->first;
	return (struct word_pairs){ load_words(head, words),
		                    load_words(head + range->rotation->pairs, words) };
}

INLINE void store_channels(const struct pair_range *range, void *head, struct word_pairs pairs)
{
	const __mmask32 words = (__mmask32)first_words(range->n);
	uint16_t *to = head;
	if (range->rotation->interleaved) {
		store_pairs(to + 2 * range->first, pairs, range->n);
		return;
	}
	_mm512_mask_storeu_epi16(to + range->first, words, pairs.first);
	_mm512_mask_storeu_epi16(to + range->rotation->pairs + range->first, words, pairs.second);
}

/* ----- transposition ------------------------------------------------ */

/* 32 rows of 32 words by columns: [i][j] has those of rows 8i to 8i + 7 in columns j, j + 8, j + 16
 * and j + 24, a quarter each. */
struct columns {
	vec quarters[4][EIGHT];
};

/* Sets the rows of a group of 8. */
INLINE void columns_set(struct columns *columns, size_t group, const vec row[EIGHT])
{
	vec two[EIGHT], four[EIGHT];
	KVI_UNROLL(8)
	for (int i = 0; i < EIGHT; i += 2) {
		two[i] = _mm512_unpacklo_epi16(row[i], row[i + 1]);
		two[i + 1] = _mm512_unpackhi_epi16(row[i], row[i + 1]);
	}
	KVI_UNROLL(8)
	for (int i = 0; i < EIGHT; i += 4) {
		KVI_UNROLL(8)
		for (int k = 0; k < 2; k++) {
			four[i + 2 * k] = _mm512_unpacklo_epi32(two[i + k], two[i + k + 2]);
			four[i + 2 * k + 1] = _mm512_unpackhi_epi32(two[i + k], two[i + k + 2]);
		}
	}
	KVI_UNROLL(8)
	for (int i = 0; i < EIGHT / 2; i++) {
		columns->quarters[group][2 * i] = _mm512_unpacklo_epi64(four[i], four[i + 4]);
		columns->quarters[group][2 * i + 1] = _mm512_unpackhi_epi64(four[i], four[i + 4]);
	}
}

INLINE vec column(const struct columns *columns, size_t i)
{
	const __m128i *from = (const __m128i *)&columns->quarters[0][i % EIGHT] + i / EIGHT;
	const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(from[0]),
	                                            from[4 * EIGHT], 1);
	const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(from[8 * EIGHT]),
	                                             from[12 * EIGHT], 1);
	return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* ----- contexts ------------------------------------------------ */

/* Numbers of a format, in all lanes. */
struct constants {
	int m; /* bits of mantissa */
	vec mantissa, mantissa1;
	vec most;       /* of |mean| where the class is that of the parameters */
	vec least;      /* of k >> 2 there */
	vec base, last; /* the grid's exponent of k >> 2 = 0, and the largest one */
};

static struct constants constants_of(const struct kvi_grid_format *format)
{
	const int m = format->mant_bits;
	return (struct constants){ .m = m,
		                   .mantissa = SET16(m),
		                   .mantissa1 = SET16(m + 1),
		                   .most = SET16((2 << m) - 65),
		                   .least = SET16(format->emin + 127 + 15 - m - 124),
		                   .base = SET16(124 - 127 - format->emin + m),
		                   .last = SET16((1 << (15 - m)) - 1) };
}

/* A context of 32 channels. */
struct context {
	vec mean, grid;
};

/* The grid's exponent of k >> 2 and the rest of an entry. */
INLINE vec grid_of(const struct constants *c, vec scale, vec rest)
{
	const vec base = _mm512_min_epi16(_mm512_add_epi16(scale, c->base), c->last);
	return v_or(_mm512_sllv_epi16(base, c->mantissa), rest);
}

/* Means in cells that are 2^n times as wide. */
INLINE vec widened(vec mean, vec n)
{
	const vec half = _mm512_srli_epi16(_mm512_sllv_epi16(SET16(1), n), 1);
	return _mm512_maskz_srav_epi16(_mm512_cmple_epu16_mask(n, SET16(15)),
	                               _mm512_add_epi16(mean, half), n);
}

/* Contexts, some of which have wider cells than their classes say. mean: in cells of those. */
static __attribute__((noinline)) struct context coarse_context(const struct constants *c, vec mean,
                                                               vec k)
{
	const vec zero = _mm512_setzero_si512(), one = SET16(1), fine = SET16(KVI_CELLS_FINE);
	const vec size = _mm512_add_epi16(_mm512_abs_epi16(mean), SET16(64));
	vec scale = _mm512_srai_epi16(k, 2), wider = zero;
	for (int bits = c->m + 1; bits < 15; bits++)
		wider = _mm512_mask_add_epi16(
			wider, _mm512_cmpge_epu16_mask(size, SET16(1 << bits)), wider, one);
	mean = widened(mean, wider);
	scale = _mm512_add_epi16(scale, wider);
	const vec below = _mm512_max_epi16(_mm512_sub_epi16(c->least, scale), zero);
	mean = widened(mean, below);
	scale = _mm512_add_epi16(scale, below);
	const vec lower = _mm512_slli_epi16(_mm512_add_epi16(wider, below), 2);
	const vec class = _mm512_max_epi16(
		_mm512_sub_epi16(_mm512_add_epi16(fine, v_and(k, SET16(3))), lower), zero);
	const vec rest = _mm512_mask_mov_epi16(_mm512_slli_epi16(_mm512_sub_epi16(class, fine), 5),
	                                       _mm512_cmplt_epi16_mask(class, fine),
	                                       v_or(class, SET16(KVI_CELLS_COARSE)));
	return (struct context){ mean, grid_of(c, scale, rest) };
}

/* Contexts of classes k from means in 1/16 of 2^top. */
INLINE struct context context_of(const struct constants *c, vec mean, vec top, vec k)
{
	const vec scale = _mm512_srai_epi16(k, 2);
	mean = _mm512_adds_epi16(mean, _mm512_srav_epi16(mean, c->mantissa1));
	mean = _mm512_sllv_epi16(mean, _mm512_sub_epi16(top, scale));
	mean = _mm512_srai_epi16(_mm512_add_epi16(mean, SET16(1)), 1);
	const __mmask32 coarse = _mm512_cmpgt_epu16_mask(_mm512_abs_epi16(mean), c->most) |
	                         _mm512_cmplt_epi16_mask(scale, c->least);
	if (__builtin_expect(coarse != 0, 0))
		return coarse_context(c, mean, k);
	return (struct context){ mean,
		                 grid_of(c, scale, _mm512_slli_epi16(v_and(k, SET16(3)), 5)) };
}

/* ----- rotation ------------------------------------------------ */

/* Looks up the scales of pairs: rows are pairs, columns tokens. k: classes of the pairs. */
INLINE void find_scales(const uint16_t *scales, const struct columns *classes, struct word_pairs k,
                        struct columns *found)
{
	uint16_t row[LANES];
	const vec apart = _mm512_min_epi16(
		_mm512_max_epi16(_mm512_subs_epi16(k.first, k.second), SET16(-APART)),
		SET16(APART));
	v_store(row, _mm512_slli_epi16(_mm512_add_epi16(apart, SET16(APART)), 6));
	for (size_t group = 0; group < LANES / EIGHT; group++) {
		vec scale[EIGHT];
		KVI_UNROLL(8)
		for (size_t i = 0; i < EIGHT; i++) {
			const uint16_t *table = scales + row[group * EIGHT + i];
			scale[i] = _mm512_permutex2var_epi16(v_load(table),
			                                     column(classes, group * EIGHT + i),
			                                     v_load(table + LANES));
		}
		columns_set(found, group, scale);
	}
}

/* Numbers of some pairs that all heads share: cosines and sines by token, doubled; angle classes,
 * whose rows are tokens. */
struct angles {
	struct word_pairs turn[LANES];
	struct columns classes;
};

INLINE void load_angles(const struct pair_range *range, size_t n, struct angles *angles)
{
	const size_t pairs = range->rotation->pairs;
	for (size_t t = 0; t < n; t++) {
		struct word_pairs turn =
			load_pairs(range->rotation->turn + t * pairs + range->first, range->n);
		turn.first = _mm512_adds_epi16(turn.first, turn.first);
		turn.second = _mm512_adds_epi16(turn.second, turn.second);
		angles->turn[t] = (struct word_pairs){
			_mm512_max_epi16(turn.first, SET16(-INT16_MAX)),
			_mm512_max_epi16(turn.second, SET16(-INT16_MAX)),
		};
	}
	for (size_t group = 0; group < LANES / EIGHT; group++) {
		vec row[EIGHT];
		for (size_t i = 0, t = group * EIGHT; i < EIGHT; i++, t++)
			row[i] = load_words(range->rotation->angle_class + (t < n ? t : 0) * pairs +
			                            range->first,
			                    t < n ? first_words(range->n) : 0);
		columns_set(&angles->classes, group, row);
	}
}

/* Makes the contexts of some pairs of a head, which begins at channel `at`. */
INLINE void rotate_head(const struct pair_range *range, const struct angles *angles, size_t at,
                        size_t n, size_t row, int16_t *to_mean, uint16_t *to_grid)
{
	const struct constants c = constants_of(range->rotation->fmt);
	const struct word_pairs mean = load_channels(range, range->rotation->mean + at);
	const struct word_pairs k = load_channels(range, range->rotation->k + at);
	const vec top = _mm512_max_epi16(k.first, k.second);
	const vec least = _mm512_sub_epi16(top, SET16(16)), top_scale = _mm512_srai_epi16(top, 2);
	struct columns scales;
	find_scales(range->rotation->scales, &angles->classes, k, &scales);
	for (size_t t = 0; t < n; t++, at += row) {
		const struct word_pairs turn = angles->turn[t];
		const vec scale = column(&scales, t);
		const vec low = _mm512_srai_epi16(_mm512_slli_epi16(scale, 8), 8);
		const vec high = _mm512_srai_epi16(scale, 8);
		const struct context a = context_of(
			&c,
			_mm512_subs_epi16(_mm512_mulhrs_epi16(mean.first, turn.first),
		                          _mm512_mulhrs_epi16(mean.second, turn.second)),
			top_scale, _mm512_max_epi16(_mm512_add_epi16(k.second, low), least));
		const struct context b = context_of(
			&c,
			_mm512_adds_epi16(_mm512_mulhrs_epi16(mean.second, turn.first),
		                          _mm512_mulhrs_epi16(mean.first, turn.second)),
			top_scale, _mm512_max_epi16(_mm512_add_epi16(k.second, high), least));
		store_channels(range, to_mean + at, (struct word_pairs){ a.mean, b.mean });
		store_channels(range, to_grid + at, (struct word_pairs){ a.grid, b.grid });
	}
}

void kvi_avx512_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row,
                             int16_t *mean, uint16_t *grid)
{
	struct angles angles;
	for (size_t first = 0; first < rotation->pairs; first += LANES) {
		const size_t left = rotation->pairs - first;
		const struct pair_range range = { rotation, first, left < LANES ? left : LANES };
		load_angles(&range, n, &angles);
		for (size_t h = 0; h < rotation->heads; h++)
			rotate_head(&range, &angles, h * rotation->head_channels, n, row, mean,
			            grid);
	}
}

const struct kvi_cell_kernels kvi_avx512_cells = {
	.get = kvi_avx2_cells_get,
	.put = kvi_avx2_cells_put,
	.rotated = kvi_avx512_cells_rotate,
};
