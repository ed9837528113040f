/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_avx2.c - the kernels of codec cells (spec cells) in AVX2 */
#include "config.h"

#include "cells_parts.h"
#include "feed.h"
#include "util/unroll.h"
#include "words_avx2.h"
#include "word_shuffles.h"

#define UNROLL KVI_UNROLL(8)

/* 32 numbers that are bytes in halves of 16 lanes. */
INLINE vec narrowed(vec a, vec b)
{
	return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
}

INLINE __m128i half_of(vec v, unsigned half)
{
	return half ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v);
}

/* The context of the next step. */
INLINE size_t next_context(size_t context, size_t step, size_t period)
{
	context += step;
	return context < period ? context : context - period;
}

/* ----- states ------------------------------------------------ */

/* The states of 16 lanes, so that their low halves make a vector after a shift. */
struct states {
	vec even, odd;
};

INLINE struct states states_load(const uint32_t state[HALF])
{
	const __m256 a = _mm256_castsi256_ps(load(state)), b = _mm256_castsi256_ps(load(state + 8));
	return (struct states){
		_mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), 0xd8),
		_mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8),
	};
}

INLINE void states_store(struct states st, uint32_t state[HALF])
{
	const vec a = _mm256_unpacklo_epi32(st.even, st.odd);
	const vec b = _mm256_unpackhi_epi32(st.even, st.odd);
	store(state, _mm256_permute2x128_si256(a, b, 0x20));
	store(state + 8, _mm256_permute2x128_si256(a, b, 0x31));
}

/* The low halves of two vectors, which alternate. */
INLINE vec low_halves(vec even, vec odd)
{
	return _mm256_blend_epi16(even, d_shl(odd, 16), 0xaa);
}

/* 16 numbers of 16 bits as those of even and of odd lanes. */
INLINE struct states widened(vec v)
{
	return (struct states){ _mm256_blend_epi16(v, _mm256_setzero_si256(), 0xaa), d_shr(v, 16) };
}

INLINE struct states shifted_right(struct states st, vec n)
{
	const struct states by = widened(n);
	return (struct states){ d_shr_each(st.even, by.even), d_shr_each(st.odd, by.odd) };
}

/* b in the lanes of masks of 32 bits. */
INLINE struct states blended(struct states a, struct states b, struct states masks)
{
#define BLEND(x, y, m)                                                                       \
	_mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), \
	                                     _mm256_castsi256_ps(m)))
	return (struct states){ BLEND(a.even, b.even, masks.even), BLEND(a.odd, b.odd, masks.odd) };
#undef BLEND
}

/* States whose high halves are 0: masks that hold in the high halves of lanes. */
INLINE struct states below_low(struct states st)
{
	const vec zero = _mm256_setzero_si256();
	return (struct states){ w_eq(st.even, zero), w_eq(st.odd, zero) };
}

/* The high halves of masks: bits of lanes 0 to 7, and 16 bits further those of lanes 8 to 15. */
INLINE uint32_t lanes_where(struct states masks)
{
	const vec lanes = _mm256_blend_epi16(d_shr(masks.even, 16), masks.odd, 0xaa);
	return lanes_of(_mm256_packs_epi16(lanes, _mm256_setzero_si256()));
}

/* A word more in the states that are below 2^16. */
INLINE struct states renormalised(struct states st, const uint8_t **words)
{
	const struct states low = below_low(st);
	const uint32_t lanes = lanes_where(low), first = lanes & 0xff, second = lanes >> 16;
	const uint8_t *next = *words + 2 * (unsigned)_mm_popcnt_u32(first);
	const vec more = b_lookup(load_halves(*words, next),
	                          load_halves(word_expansions[first], word_expansions[second]));
	*words = next + 2 * (unsigned)_mm_popcnt_u32(second);
	const struct states longer = { _mm256_blend_epi16(d_shl(st.even, 16), more, 0x55),
		                       _mm256_blend_epi16(d_shl(st.odd, 16), d_shr(more, 16),
		                                          0x55) };
	return blended(st, longer, low);
}

/* ----- reading ------------------------------------------------ */

/* Elements of a block before their raw bits: codes with second ones added; for whole steps the cell
 * with which the code's interval begins, log2 of its size, and the context's grid without class. */
struct cells_known {
	uint8_t codes[BLOCK];
	uint16_t begin[BLOCK], nb[BLOCK], base[BLOCK];
};

/* Codes of a block of n; those behind are escapes. Returns the end of the second codes that were
 * taken. */
INLINE const uint8_t *get_codes(const uint8_t *block, size_t n, const uint8_t *second,
                                uint8_t codes[BLOCK])
{
	const vec most = SET8(MORE);
	uint8_t last[HALF_BLOCK]; /* a block that is not full, as one that is */
	if (n < BLOCK) {
		unpack_codes(block, n, 0, codes);
		memset(codes + n, 0, BLOCK - n);
		put_codes(codes, BLOCK, CODE_BITS, 0, last);
		block = last;
	}
	UNROLL for (unsigned i = 0; i < BLOCK; i += WIDTH)
	{
		vec code = load(block + i % HALF_BLOCK);
		code = v_and(i < HALF_BLOCK ? code : w_shr(code, 4), most);
		const vec more = b_eq(code, most);
		store(codes + i, v_blend(code, expanded(lanes_of(more), &second), more));
	}
	memset(codes + n, ESCAPE, BLOCK - n);
	return second;
}

/* Bytes for each code and class of a table for fine classes, which have bits 5 and 6 of `class`. */
INLINE vec of_codes(const void *table, vec codes, vec class)
{
	const uint8_t *row = (const uint8_t *)table + KVI_CELLS_FINE * KVI_CELLS_ROW;
	const vec bit1 = w_shl(class, 2), bit2 = w_shl(class, 1);
	vec part[2];
	UNROLL for (unsigned i = 0; i < 2; i++)
	{
		vec of_class[4];
		UNROLL for (unsigned j = 0; j < 4; j++)
			of_class[j] = b_lookup(TABLE(row + j * KVI_CELLS_ROW + i * 16), codes);
		part[i] = v_blend(v_blend(of_class[0], of_class[1], bit1),
		                  v_blend(of_class[2], of_class[3], bit1), bit2);
	}
	return v_blend(part[0], part[1], w_shl(codes, 3));
}

/* Does what add_step does, for elements of lower classes, from element i of a block on. */
static void add_coarse(const int16_t *mean, const uint16_t *grid, struct cells_known *to, size_t i)
{
	for (size_t end = i + WIDTH; i < end; i++, mean++, grid++)
		if (*grid & KVI_CELLS_COARSE) {
			const size_t at = kvi_cells_class(*grid) * KVI_CELLS_ROW + to->codes[i];
			to->begin[i] = (uint16_t)(*mean + kvi_cells_lo[at]);
			to->nb[i] = kvi_cells_nb[at];
		}
}

/* Adds what contexts have of a step to the codes from i on. */
INLINE void add_step(const int16_t *mean, const uint16_t *grid, struct cells_known *to, size_t i)
{
	const vec class_bits = SET16(0x7f), a = load(grid), b = load(grid + HALF);
	const vec code = load(to->codes + i);
	const vec class = narrowed(v_and(a, class_bits), v_and(b, class_bits));
	const vec lo = of_codes(kvi_cells_lo, code, class),
		  nb = of_codes(kvi_cells_nb, code, class);
	UNROLL for (unsigned h = 0; h < 2; h++)
	{
		const size_t at = i + h * HALF;
		store(to->begin + at, w_add(load(mean + h * HALF), w_of_bytes(half_of(lo, h))));
		store(to->nb + at, _mm256_cvtepu8_epi16(half_of(nb, h)));
		store(to->base + at, v_except(class_bits, h ? b : a));
	}
	if (__builtin_expect(lanes_of(w_shl(class, 3)) != 0, 0))
		add_coarse(mean, grid, to, i);
}

/* Tables and constants for raw bits in elements of a format. */
struct raw_tables {
	vec ones, behind_one, by_low, by_middle, by_high;
	vec one, nibble, multiplier, most_cell;
	struct powers powers;
};

INLINE struct raw_tables raw_tables_load(const unsigned mantissa)
{
	static const uint8_t ones[16] = { 0, 1, 3, 7, 15, 31, 63, 127 };
	/* Bits up to the lowest one of a number, by that one's product with 0x09af. */
	static const uint8_t behind_one[16] = { 1,  2, 3, 6,  4,  10, 7,  12,
		                                16, 5, 9, 11, 15, 8,  14, 13 };
	/* m less log2 of a number, by its lowest 4 bits, the next ones, and the highest ones. */
	static const uint8_t by_low[2][16] = {
		{ 7, 7, 6, 6, 5, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4 },
		{ 10, 10, 9, 9, 8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7 },
	};
	static const uint8_t by_middle[2][16] = {
		{ 15, 3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 },
		{ 15, 6, 5, 5, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3 },
	};
	static const uint8_t by_high[16] = { 15, 2, 1, 1, 0, 0, 0, 0 };
	return (struct raw_tables){
		.ones = KEPT_TABLE(ones),
		.behind_one = KEPT_TABLE(behind_one),
		.by_low = KEPT_TABLE(by_low[mantissa > 7]),
		.by_middle = KEPT_TABLE(by_middle[mantissa > 7]),
		.by_high = KEPT_TABLE(by_high),
		.one = KEPT16(1),
		.nibble = KEPT16(15),
		.multiplier = KEPT16(0x09af),
		.most_cell = KEPT16((2 << mantissa) - 1),
		.powers = powers_load(),
	};
}

/* How many bits of a cell j are not in its number, m less log2 of j; 0 for larger ones. */
INLINE vec rest_of(const struct raw_tables *c, vec j, const unsigned mantissa)
{
	const vec cell = _mm256_min_epu16(j, c->most_cell);
	vec middle = w_shr(cell, 4);
	if (mantissa > 7)
		middle = v_and(middle, c->nibble);
	const vec rest = b_min(b_lookup(c->by_low, v_and(cell, c->nibble)),
	                       b_lookup(c->by_middle, v_or(middle, c->powers.high_only)));
	const vec high = v_or(w_shr(cell, 8), c->powers.high_only);
	return mantissa > 7 ? b_min(rest, b_lookup(c->by_high, high)) : rest;
}

/* Elements of 16 lanes as parts of the states. */
struct half_parts {
	vec cell, j;   /* the cell; its number, which the element's own bits continue */
	vec rest, own; /* how many of these; them, below other bits of the state */
	vec finer;     /* how many bits are behind those of the code's interval */
};

/* Takes the bits of elements from element i of a block on; escaped: lanes, if there are `any`,
 * whose states stay as they are. *most gathers the bits of the numbers of raw bits. */
INLINE struct half_parts take_half(const struct raw_tables *c, struct states *st,
                                   const struct cells_known *known, size_t i, vec escaped, bool any,
                                   const uint8_t **words, vec *most, const unsigned mantissa)
{
	const vec zero = _mm256_setzero_si256(), sign = c->powers.high_only;
	const vec low = low_halves(st->even, st->odd), nb = load(known->nb + i);
	const vec within = v_and(low, b_lookup(c->ones, nb));
	const vec cell = w_add(load(known->begin + i), within);
	const vec j = v_xor(cell, w_sar(cell, 15));
	/* Where a cell begins at zero, zeros and a one follow. */
	const vec more = v_or(v_xor(low, within), sign);
	const vec lowest = v_and(more, w_sub(zero, more));
	const vec number = w_shr(w_mul(lowest, c->multiplier), 12);
	const vec behind = b_lookup(c->behind_one, v_or(number, sign));
	const vec before = v_blend(nb, behind, w_eq(j, zero));
	const vec rest = rest_of(c, j, mantissa);
	vec n = w_add(before, rest);
	struct states next = shifted_right(*st, before);
	const struct half_parts parts = { cell, j, rest, low_halves(next.even, next.odd),
		                          w_sub(n, nb) };
	next = shifted_right(next, rest);
	if (any) {
		n = v_except(escaped, n);
		next = blended(next, *st, (struct states){ d_shl(escaped, 16), escaped });
	}
	*most = v_or(*most, n);
	*st = renormalised(next, words);
	return parts;
}

/* The elements; base: of their contexts. */
INLINE vec half_elements(const struct raw_tables *c, const struct half_parts *parts, vec base,
                         const unsigned mantissa)
{
	const vec sign = c->powers.high_only;
	const vec wide = mantissa > 7 ? power(&c->powers, twice(parts->rest))
	                              : small_power(&c->powers, parts->rest);
	const vec own = v_and(parts->own, w_sub(wide, c->one));
	const vec full = w_add(w_mul(_mm256_max_epu16(parts->j, c->one), wide), own);
	const vec magnitude = w_add(w_sub(base, w_shl(parts->finer, (int)mantissa)), full);
	return v_or(v_except(sign, magnitude), v_and(parts->cell, sign));
}

/* The escapes of the lanes of a step. Returns the end of those that were taken, NULL: there are too
 * few. */
static const uint8_t *get_escapes(uint32_t lanes, const uint8_t *escape, const uint8_t *end,
                                  uint16_t *elements)
{
	for (; lanes; lanes &= lanes - 1, escape += 2) {
		if (escape == end)
			return NULL;
		elements[__builtin_ctz(lanes)] = kvi_load16(escape);
	}
	return escape;
}

INLINE bool get_elements(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                         uint16_t *elements, const unsigned mantissa)
{
	const struct raw_tables tables = raw_tables_load(mantissa);
	const struct kvi_stream stream = { .words = in->words, .n_words = in->n_words };
	const uint8_t *second = second_codes(in), *second_end = second + in->n_second;
	const uint8_t *escape = in->escapes, *escapes_end = escape + 2 * in->n_escapes;
	const size_t context_step = WIDTH % contexts->period;
	struct kvi_feed feed;
	const uint8_t *words = kvi_feed_open(&feed, &stream);
	struct states st[2] = { states_load(in->state), states_load(in->state + HALF) };
	struct cells_known known;
	uint16_t last[WIDTH];
	uint32_t state[KVI_LANES];
	vec most = _mm256_setzero_si256();
	size_t context = 0;
	for (size_t at = 0; at < in->n; at += WIDTH) {
		const size_t i = at % BLOCK, left = in->n - at;
		uint16_t *to = left < WIDTH ? last : elements + at;
		if (i == 0) {
			const size_t n = block_codes(in->n, at);
			second = get_codes(in->codes + at / 2, n, second, known.codes);
			if (second > second_end)
				return false;
			for (size_t j = 0; j < n; j += WIDTH) {
				add_step(contexts->mean + context, contexts->grid + context, &known,
				         j);
				context = next_context(context, context_step, contexts->period);
			}
		}
		KVI_FEED_CHECK(&feed, words);
		const vec escaped = b_eq(load(known.codes + i), SET8(ESCAPE));
		const uint32_t escapes = lanes_of(escaped);
		/* The bits, which the next step waits for, come first. */
		struct half_parts parts[2];
		UNROLL for (unsigned h = 0; h < 2; h++) parts[h] = take_half(
			&tables, &st[h], &known, i + h * HALF, w_of_bytes(half_of(escaped, h)),
			__builtin_expect(escapes != 0, 0), &words, &most, mantissa);
		UNROLL for (unsigned h = 0; h < 2; h++) store(
			to + h * HALF, half_elements(&tables, &parts[h],
		                                     load(known.base + i + h * HALF), mantissa));
		if (__builtin_expect(escapes != 0, 0)) {
			escape = get_escapes(escapes & first_lanes(left), escape, escapes_end, to);
			if (!escape)
				return false;
		}
		if (left < WIDTH)
			memcpy(elements + at, last, left * sizeof *last);
	}
	states_store(st[0], state);
	states_store(st[1], state + HALF);
	return kvi_feed_done(&feed, words, state) && second == second_end &&
	       escape == escapes_end && !lanes_of(w_gt(most, SET16(KVI_CELLS_BITS)));
}

bool kvi_avx2_cells_get(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                        unsigned mantissa, uint16_t *elements)
{
	return mantissa == 7 ? get_elements(in, contexts, elements, 7)
	                     : get_elements(in, contexts, elements, 10);
}

/* ----- writing ------------------------------------------------ */

/* Elements of a block, for whole steps: the numbers of their entries of kvi_cells_code, and then
 * these; the raw bits behind a cell, and how many (too many: the element has no cell). In stages,
 * because a processor overlaps loads from a table only if they are close together. */
struct cells_stage {
	uint16_t entry[BLOCK], rest[BLOCK], bits[BLOCK];
};

/* The begin of each class in kvi_cells_code, and there distance 0. */
INLINE vec class_row(vec grid)
{
	const vec coarse = w_sar(w_shl(grid, 11), 15);
	const vec fine = w_shl(v_and(grid, SET16(0x60)), 3);
	const vec row = v_blend(w_add(fine, SET16(2 * KVI_CELLS_REACH * KVI_CELLS_FINE)),
	                        w_shl(v_and(grid, SET16(15)), 8), coarse);
	return w_add(row, SET16(KVI_CELLS_REACH));
}

/* The cells of 16 elements, from element i of a block on. */
INLINE void draft_cells(const struct powers *c, vec element, vec mean, vec grid,
                        struct cells_stage *to, size_t i, const unsigned mantissa)
{
	const int m = (int)mantissa, hidden = 1 << m;
	const vec one = SET16(1), zero = _mm256_setzero_si256();
	const vec field = w_shr(w_add(element, element), m + 1);
	const vec full = v_or(v_and(element, SET16(hidden - 1)), SET16(hidden));
	/* The cell is 2^shift steps of the element wide; too large where there is none. */
	vec shift = w_sub(w_add(w_shr(grid, m), one), field);
	shift = v_or(shift, w_eq(field, zero));
	const vec twice_shift = twice(shift), wide = power(c, twice_shift);
	const vec j = w_mul_high(w_add(full, full), power_from_15(c, twice_shift));
	const vec cell = v_xor(j, w_sar(element, 15));
	/* The smallest and the largest distance have no codes. */
	const vec distance = w_min(w_max(w_sub(cell, mean), SET16(-KVI_CELLS_REACH)),
	                           SET16(KVI_CELLS_REACH - 1));
	/* Below the cell's number: its rest, or where that is 0, zeros, a one and the mantissa. */
	const vec behind = v_or(w_shl(element, 16 - m), SET16(1 << (15 - m)));
	const vec rest = v_blend(v_and(full, w_sub(wide, one)), w_mul_high(behind, wide),
	                         w_eq(j, zero));
	store(to->entry + i, w_add(class_row(grid), distance));
	store(to->rest + i, rest);
	store(to->bits + i, shift);
}

/* 16 elements of a block from i on as codes, raw bits and their numbers. */
INLINE vec draft_codes(const struct powers *c, const struct cells_stage *stage, size_t i,
                       uint16_t *raw, vec *bits)
{
	const vec escape = SET16(ESCAPE), most = SET16(KVI_CELLS_BITS);
	const vec entry = load(stage->entry + i), code = v_and(entry, SET16(31));
	const vec nb = v_and(w_shr(entry, 5), SET16(7));
	const vec all = _mm256_adds_epu16(nb, load(stage->bits + i));
	const vec coded = v_except(w_eq(code, escape), w_eq(_mm256_min_epu16(all, most), all));
	const vec both = w_add(w_mul(load(stage->rest + i), small_power(c, nb)), w_shr(entry, 8));
	store(raw, v_and(both, coded));
	*bits = v_and(all, coded);
	return v_blend(escape, code, coded);
}

/* A full block of codes of 4 bits. */
INLINE void put_block(const uint8_t codes[BLOCK], uint8_t *block)
{
	for (unsigned i = 0; i < HALF_BLOCK; i += WIDTH)
		store(block + i, v_or(load(codes + i), w_shl(load(codes + HALF_BLOCK + i), 4)));
}

/* The codes of n elements of a block at `from`; codes: for whole steps. */
INLINE void draft_steps(const struct powers *c, const struct cells_stage *stage, size_t n,
                        const uint16_t *from, struct cells_draft *draft, uint8_t codes[BLOCK])
{
	const vec more = SET8(MORE);
	for (size_t i = 0; i < n; i += WIDTH) {
		const uint32_t lanes = first_lanes(n - i);
		vec bits[2], half[2];
		UNROLL for (unsigned h = 0; h < 2; h++) half[h] =
			draft_codes(c, stage, i + h * HALF, draft->raw + i + h * HALF, &bits[h]);
		store(draft->bits + i, narrowed(bits[0], bits[1]));
		const vec code = narrowed(half[0], half[1]), first = b_min(code, more);
		store(codes + i, first);
		draft->second = compressed(b_sub(code, more), lanes_of(b_eq(first, more)) & lanes,
		                           draft->second);
		uint32_t escapes = lanes_of(b_eq(code, SET8(ESCAPE))) & lanes;
		for (; escapes; escapes &= escapes - 1)
			*draft->escapes++ = from[i + (unsigned)__builtin_ctz(escapes)];
	}
	draft->raw += n;
	draft->bits += n;
}

/* Codes and raw bits of all elements and 31 more; sets the counts of second codes and escapes. */
INLINE void draft_elements(const uint16_t *elements, size_t n,
                           const struct kvi_cells_contexts *contexts,
                           const struct cells_draft *draft, struct kvi_cells_out *out,
                           const unsigned mantissa)
{
	const struct powers two = powers_load();
	const size_t context_step = WIDTH % contexts->period;
	struct cells_draft to = *draft;
	struct cells_stage stage;
	uint8_t codes[BLOCK];
	size_t context = 0;
	for (size_t at = 0; at < n; at += BLOCK) {
		const size_t end = block_codes(n, at);
		const uint16_t *from = elements + at;
		uint16_t last[BLOCK];
		if (end < BLOCK) {
			memset(last, 0, sizeof last);
			from = memcpy(last, from, end * sizeof *from);
		}
		for (size_t i = 0; i < end; i += WIDTH) {
			UNROLL for (size_t h = 0; h < WIDTH; h += HALF) draft_cells(
				&two, load(from + i + h), load(contexts->mean + context + h),
				load(contexts->grid + context + h), &stage, i + h, mantissa);
			context = next_context(context, context_step, contexts->period);
		}
		for (size_t i = 0; i < end; i += WIDTH)
			UNROLL for (size_t j = i; j < i + WIDTH; j++)
				stage.entry[j] = kvi_cells_code[stage.entry[j]];
		draft_steps(&two, &stage, end, from, &to, codes);
		if (end == BLOCK)
			put_block(codes, out->to + at / 2);
		else
			put_codes(codes, end, CODE_BITS, 0, out->to + at / 2);
	}
	memset(to.raw, 0, WIDTH * sizeof *to.raw);
	memset(to.bits, 0, WIDTH);
	out->n_second = (uint32_t)(to.second - draft->second);
	out->n_escapes = (uint32_t)(to.escapes - draft->escapes);
}

/* Puts raw bits into 16 lanes, and words that have no place in states below *words. */
INLINE struct states put_half(struct states st, vec n, vec raw, uint16_t **words)
{
	const vec zero = _mm256_setzero_si256(), all = _mm256_set1_epi32(32);
	const struct states by = widened(n), more = widened(raw);
	const struct states fits = {
		_mm256_cmpeq_epi32(d_shr_each(st.even, _mm256_sub_epi32(all, by.even)), zero),
		_mm256_cmpeq_epi32(d_shr_each(st.odd, _mm256_sub_epi32(all, by.odd)), zero)
	};
	const uint32_t lanes = ~lanes_where(fits), first = lanes & 0xff,
		       second = lanes >> 16 & 0xff;
	const vec v = b_lookup(low_halves(st.even, st.odd),
	                       load_halves(word_packings[first], word_packings[second]));
	_mm_storeu_si128((__m128i *)(void *)(*words - 8), half_of(v, 1));
	*words -= _mm_popcnt_u32(second);
	_mm_storeu_si128((__m128i *)(void *)(*words - 8), half_of(v, 0));
	*words -= _mm_popcnt_u32(first);
	st = blended((struct states){ d_shr(st.even, 16), d_shr(st.odd, 16) }, st, fits);
	return (struct states){ v_or(d_shl_each(st.even, by.even), more.even),
		                v_or(d_shl_each(st.odd, by.odd), more.odd) };
}

uint8_t *kvi_avx2_cells_put(const uint16_t *elements, size_t n,
                            const struct kvi_cells_contexts *contexts, unsigned mantissa,
                            struct kvi_cells_out *out)
{
	const struct cells_draft draft = cells_draft_of(out->work, n);
	const vec low = _mm256_set1_epi32(KVI_RANS_LOW);
	struct states st[2] = { { low, low }, { low, low } };
	uint16_t *words = draft.words;
	if (mantissa == 7)
		draft_elements(elements, n, contexts, &draft, out, 7);
	else
		draft_elements(elements, n, contexts, &draft, out, 10);
	for (size_t at = (n + WIDTH - 1) / WIDTH * WIDTH; at > 0; at -= WIDTH)
		UNROLL for (unsigned i = 1; i <= 2; i++)
		{
			const size_t first = at - i * HALF;
			const __m128i bits = _mm_loadu_si128(
				(const __m128i *)(const void *)(draft.bits + first));
			st[2 - i] = put_half(st[2 - i], _mm256_cvtepu8_epi16(bits),
			                     load(draft.raw + first), &words);
		}
	states_store(st[0], out->state);
	states_store(st[1], out->state + HALF);
	out->n_words = (uint32_t)(draft.words - words);
	return put_parts(&draft, n, out);
}

const struct kvi_cell_kernels kvi_avx2_cells = {
	.get = kvi_avx2_cells_get,
	.put = kvi_avx2_cells_put,
	.rotated = kvi_avx2_cells_rotate,
};
