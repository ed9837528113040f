/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_avx512_body.h - a step of the grid codec (spec grid 4) in AVX-512, 2 x 16 lanes
 *
 * Defines what grid_body.h defines (contracts there) with masks of a bit a lane. bf16 has steps of
 * its own (grid_words_body.h), which take tails, too, but not those of encoders.
 */
#ifndef KVI_GRID_AVX512_BODY_H
#define KVI_GRID_AVX512_BODY_H

#include "ops_avx512.h"

#include "escapes_body.h"
#include "grid_numbers.h"
#include "grid_words_body.h"

/* A table of 64 entries. */
typedef struct {
	vec lo, hi;
	struct words_tables words; /* tables of bf16 */
} token_tables;

INLINE token_tables token_tables_load(void)
{
	token_tables t = { v_load(kvi_grid_tokens), v_load(kvi_grid_tokens + 32),
		           words_tables_load() };
	return t;
}

INLINE vec token_info(const token_tables *tables, vec symbol)
{
	return _mm512_permutex2var_epi16(tables->lo, symbol, tables->hi);
}

/* token_info for tables whose pairs of entries differ in bit 15 alone, as the numbers of the
 * entries do in bit 0: one instruction instead of three. */
INLINE vec token_pair(const token_tables *tables, vec symbol)
{
	return _mm512_permutex2var_epi32(tables->lo, _mm512_srli_epi32(symbol, 1), tables->hi);
}

INLINE vec log2_floor(vec v) /* -1 for 0 */
{
	return _mm512_sub_epi32(SET(31), _mm512_lzcnt_epi32(v));
}

INLINE vec low_bits(vec v, vec n)
{
	return _mm512_andnot_si512(_mm512_sllv_epi32(SET(-1), n), v);
}

INLINE vec grid_start(vec ctx, const struct grid_numbers *numbers) /* G - emin */
{
	vec g = _mm512_and_si512(_mm512_srli_epi32(ctx, 8), SET(255));
	return _mm512_sub_epi32(g, SET(127 + numbers->emin));
}

INLINE vec grid_mean(vec ctx)
{
	return _mm512_and_si512(_mm512_srli_epi32(ctx, 16), SET(0x7fff));
}

/* The cell at zero: an element's magnitude (decoder) or raw bits (encoder), the number of raw bits,
 * and a mask of the escaped lanes. */
typedef struct {
	vec value, bits;
	__mmask16 escaped;
} zero_cell;

INLINE zero_cell zero_decode(vec st, vec gs, const struct grid_numbers *numbers)
{
	zero_cell c;
	vec one = SET(1), z = SET(numbers->z);
	vec deepest = _mm512_min_epi32(gs, z);
	vec stop = _mm512_or_si512(st, _mm512_sllv_epi32(one, deepest));
	vec zeros =
		log2_floor(_mm512_and_si512(stop, _mm512_sub_epi32(_mm512_setzero_si512(), stop)));
	__mmask16 found = _mm512_cmplt_epi32_mask(zeros, deepest);
	vec skip = _mm512_mask_add_epi32(deepest, found, zeros, one);
	vec mant = _mm512_and_si512(_mm512_srlv_epi32(st, skip), SET((1 << numbers->m) - 1));
	vec field = _mm512_maskz_sub_epi32(found, gs, zeros);
	c.value = _mm512_add_epi32(_mm512_slli_epi32(field, (unsigned)numbers->m), mant);
	c.escaped = (__mmask16)~found & _mm512_cmpgt_epi32_mask(gs, z);
	c.bits = _mm512_add_epi32(skip, SET(numbers->m));
	c.bits = _mm512_mask_mov_epi32(c.bits, c.escaped, deepest);
	__mmask16 flat = _mm512_cmple_epi32_mask(gs, _mm512_setzero_si512());
	vec n = _mm512_add_epi32(gs, SET(numbers->m));
	c.bits = _mm512_mask_mov_epi32(c.bits, flat, n);
	c.value = _mm512_mask_mov_epi32(c.value, flat, low_bits(st, n));
	c.escaped &= (__mmask16)~flat;
	return c;
}

/* 16 lanes between the phases of a step: states without their raw bits, magnitudes, sign bits, and
 * the lanes that are escaped. */
struct taken_lanes {
	vec st, magnitude, sign;
	__mmask16 escaped;
};

/* Cells as magnitudes; some are at zero. */
INLINE void cells_take(struct taken_lanes *lanes, vec j, vec nb, vec gs, __mmask16 at_zero,
                       __mmask16 esc40, const struct grid_numbers *numbers)
{
	vec st = lanes->st, zero = _mm512_setzero_si512();
	vec level = log2_floor(j), n = _mm512_sub_epi32(SET(numbers->m), level);
	vec base = _mm512_slli_epi32(_mm512_add_epi32(gs, level), (unsigned)numbers->m);
	vec n_max = _mm512_add_epi32(gs, SET(numbers->m));
	__mmask16 normal = _mm512_cmple_epi32_mask(n, n_max);
	base = _mm512_maskz_mov_epi32(normal, base);
	n = _mm512_min_epi32(n, n_max);
	vec up = _mm512_max_epi32(n, zero);
	vec down = _mm512_max_epi32(_mm512_sub_epi32(zero, n), zero);
	vec full = _mm512_or_si512(_mm512_sllv_epi32(j, up), low_bits(st, up));
	lanes->magnitude = _mm512_add_epi32(base, _mm512_srlv_epi32(full, down));
	lanes->escaped = esc40;
	if (at_zero) {
		zero_cell c = zero_decode(st, gs, numbers);
		__mmask16 far = _mm512_mask_cmpgt_epi32_mask(at_zero, nb, SET(1));
		up = _mm512_mask_mov_epi32(up, at_zero, c.bits);
		up = _mm512_mask_mov_epi32(up, far, zero);
		lanes->magnitude = _mm512_mask_mov_epi32(lanes->magnitude, at_zero, c.value);
		lanes->escaped |= far | (at_zero & c.escaped);
	}
	/* Symbol 40 takes nothing; its NB is 0 in the table. */
	lanes->st = _mm512_srlv_epi32(st, _mm512_mask_mov_epi32(up, esc40, zero));
}

/* Phase 2 of 16 lanes. */
INLINE struct taken_lanes raw_take(vec st, vec symbol, vec ctx, const token_tables *tables,
                                   const struct grid_numbers *numbers)
{
	struct taken_lanes a;
	vec gs = grid_start(ctx, numbers), token = token_pair(tables, symbol);
	__mmask16 esc40 = _mm512_cmpeq_epi32_mask(symbol, SET(KVI_GRID_SYMBOLS - 1));
	vec nb = _mm512_and_si512(_mm512_srli_epi32(token, 11), SET(15));
	vec e = _mm512_add_epi32(_mm512_and_si512(token, SET(511)), low_bits(st, nb));
	a.st = _mm512_srlv_epi32(st, nb);
	vec side = _mm512_srai_epi32(_mm512_slli_epi32(symbol, 31), 31);
	vec pos = _mm512_add_epi32(grid_mean(ctx), _mm512_xor_si512(e, side));
	vec j = _mm512_xor_si512(pos, _mm512_srai_epi32(pos, 31));
	__mmask16 at_zero = _mm512_testn_epi32_mask(j, j);
	a.sign = _mm512_xor_si512(pos, ctx);
	cells_take(&a, j, nb, gs, at_zero, esc40, numbers);
	return a;
}

INLINE vec taken_element(const struct taken_lanes *lanes, const struct grid_numbers *numbers)
{
	vec sign = _mm512_and_si512(_mm512_srli_epi32(lanes->sign, 32 - (unsigned)numbers->w),
	                            SET(1 << (numbers->w - 1)));
	vec x = _mm512_or_si512(sign, lanes->magnitude);
	return numbers->w == 16 ? x : _mm512_and_si512(x, SET(255));
}

INLINE const uint8_t *step_take(struct parts *st, const vec *ctx, const uint32_t *lut,
                                const token_tables *tokens, const struct grid_numbers *numbers,
                                unsigned lanes, const uint8_t *p, uint16_t *x, vec *y)
{
	if (!numbers->subnormals)
		return words_step_take(st, ctx, lut, &tokens->words, lanes, p, x, y);
	const active_lanes active = first_active(lanes);
	struct parts table, symbol;
	struct taken_lanes a[2];
	EACH
		table.v[h] = _mm512_and_si512(ctx[h], SET(255));
	symbol = symbols_take(st, lut, &table, active, &p);
	EACH
		a[h] = raw_take(st->v[h], symbol.v[h], ctx[h], tokens, numbers);
	uint32_t escaped = (a[0].escaped | (uint32_t)a[1].escaped << 16) & active;
	EACH {
		__mmask16 act = ACTIVE(active, h);
		st->v[h] = v_renorm(a[h].st, act, &p);
		y[h] = _mm512_maskz_mov_epi32(act, taken_element(&a[h], numbers));
		_mm512_mask_cvtepi32_storeu_epi16(x + 16 * h, act, y[h]);
	}
	if (__builtin_expect(escaped != 0, 0)) {
		p = escapes_take16(st, escaped, x, (unsigned)numbers->w, p);
		symbol = words16_load(x, active);
		EACH
			y[h] = symbol.v[h];
	}
	return p;
}

/* An element as symbol, raw bits and their number; mask: it is escaped. */
typedef struct {
	vec symbol, raw, bits;
	__mmask16 escaped;
} coded_lanes;

/* Raw bits of an element in the cell at zero. */
INLINE zero_cell zero_encode(vec magnitude, vec field, vec gs, const struct grid_numbers *numbers)
{
	zero_cell c;
	vec one = SET(1), z = SET(numbers->z), zero = _mm512_setzero_si512();
	vec mant = _mm512_and_si512(magnitude, SET((1 << numbers->m) - 1));
	vec zeros = _mm512_sub_epi32(gs, field);
	vec deepest = _mm512_min_epi32(gs, z);
	__mmask16 normal = _mm512_test_epi32_mask(field, field);
	vec raw = _mm512_mask_or_epi32(mant, normal, _mm512_slli_epi32(mant, 1), one);
	c.value = _mm512_sllv_epi32(raw, zeros);
	c.bits = _mm512_add_epi32(zeros, SET(numbers->m));
	c.bits = _mm512_mask_add_epi32(c.bits, normal, c.bits, one);
	c.escaped = _mm512_cmpge_epi32_mask(zeros, deepest);
	__mmask16 under = _mm512_cmpgt_epi32_mask(gs, z);
	c.escaped = (__mmask16)((c.escaped & normal) | (under & ~normal));
	__mmask16 flat = _mm512_cmple_epi32_mask(gs, zero);
	c.value = _mm512_mask_mov_epi32(c.value, flat, magnitude);
	c.bits = _mm512_mask_add_epi32(c.bits, flat, gs, SET(numbers->m));
	c.escaped &= (__mmask16)~flat;
	return c;
}

/* Token pairs of the distances below 64. */
static const uint16_t near_tokens[64] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  8,  9,  9,  10,
	                                  10, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14,
	                                  14, 14, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 16,
	                                  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
	                                  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16 };

/* Token pair of e, which is below 768 where it counts. */
INLINE vec token_of(vec e, const token_tables *near)
{
	vec pair = token_info(near, _mm512_and_si512(e, SET(63)));
	__mmask16 far = _mm512_cmpgt_epi32_mask(e, SET(63));
	if (far) {
		vec big = _mm512_add_epi32(log2_floor(e), SET(11));
		pair = _mm512_mask_min_epi32(pair, far, big, SET(19));
	}
	return pair;
}

/* Tables of the symbols, and of the distances below 64. */
typedef struct {
	token_tables all, near;
	struct words_encoder words;
} encoder_tables;

INLINE encoder_tables encoder_tables_load(void)
{
	encoder_tables t = { .all = token_tables_load(),
		             .near = { .lo = v_load(near_tokens), .hi = v_load(near_tokens + 32) },
		             .words = words_encoder_load() };
	return t;
}

INLINE coded_lanes element_code(vec x, vec ctx, const encoder_tables *tables,
                                const struct grid_numbers *numbers)
{
	coded_lanes c;
	vec one = SET(1), zero = _mm512_setzero_si512();
	vec gs = grid_start(ctx, numbers);
	vec magnitude = _mm512_and_si512(x, SET((1 << (numbers->w - 1)) - 1));
	vec field = _mm512_srli_epi32(magnitude, (unsigned)numbers->m);
	vec mant = _mm512_and_si512(magnitude, SET((1 << numbers->m) - 1));
	__mmask16 normal = _mm512_test_epi32_mask(field, field);
	vec full = _mm512_mask_or_epi32(mant, normal, mant, SET(1 << numbers->m));

	/* The cell is 2^shift steps of the element wide. */
	vec shift = _mm512_sub_epi32(_mm512_add_epi32(gs, SET(numbers->m + 1)),
	                             _mm512_max_epi32(field, one));
	vec up = _mm512_max_epi32(_mm512_sub_epi32(zero, shift), zero);
	vec down = _mm512_max_epi32(shift, zero);
	vec j = _mm512_srlv_epi32(_mm512_sllv_epi32(full, up), down);
	c.raw = low_bits(full, down);
	c.bits = down;
	c.escaped = _mm512_cmplt_epi32_mask(shift, SET(-10));
	__mmask16 at_zero = _mm512_testn_epi32_mask(j, j);
	if (at_zero) {
		zero_cell z = zero_encode(magnitude, field, gs, numbers);
		c.raw = _mm512_mask_mov_epi32(c.raw, at_zero, z.value);
		c.bits = _mm512_mask_mov_epi32(c.bits, at_zero, z.bits);
		c.escaped |= at_zero & z.escaped;
	}

	vec sign = _mm512_srli_epi32(x, (unsigned)numbers->w - 1);
	vec below = _mm512_sub_epi32(zero, _mm512_xor_si512(sign, _mm512_srli_epi32(ctx, 31)));
	vec d = _mm512_sub_epi32(_mm512_xor_si512(j, below), grid_mean(ctx));
	vec side = _mm512_srai_epi32(d, 31), e = _mm512_xor_si512(d, side);
	c.escaped |= _mm512_cmpge_epu32_mask(e, SET(768));
	c.symbol = _mm512_sub_epi32(_mm512_slli_epi32(token_of(e, &tables->near), 1), side);
	vec token = token_info(&tables->all, c.symbol);
	vec nb = _mm512_and_si512(_mm512_srli_epi32(token, 11), SET(15));
	vec rest = _mm512_sub_epi32(e, _mm512_and_si512(token, SET(511)));
	c.escaped |= _mm512_mask_cmpgt_epi32_mask(at_zero, nb, one);
	c.raw = _mm512_or_si512(_mm512_sllv_epi32(c.raw, nb), rest);
	c.bits = _mm512_add_epi32(c.bits, nb);
	c.escaped |= _mm512_cmpgt_epi32_mask(c.bits, SET(16));
	__mmask16 coded = (__mmask16)~c.escaped;
	c.raw = _mm512_maskz_mov_epi32(coded, c.raw);
	c.bits = _mm512_maskz_mov_epi32(coded, c.bits);
	c.symbol = _mm512_mask_mov_epi32(SET(KVI_GRID_SYMBOLS - 1), coded, c.symbol);
	return c;
}

INLINE void step_put(struct parts *st, const struct parts *ctx, const uint16_t *x,
                     const struct kvi_tables *tables, const encoder_tables *tokens,
                     const struct grid_numbers *numbers, active_lanes active, uint16_t **w)
{
	if (!numbers->subnormals) {
		words_step_put(st, ctx->v, x, tables, &tokens->words, w);
		return;
	}
	const struct parts element = words16_load(x, active);
	const __m128i stride = _mm_cvtsi32_si128(__builtin_ctz((unsigned)tables->stride));
	coded_lanes code[PARTS];
	struct parts entry;
	EACH {
		code[h] = element_code(element.v[h], ctx->v[h], tokens, numbers);
		vec row = _mm512_sll_epi32(_mm512_and_si512(ctx->v[h], SET(255)), stride);
		entry.v[h] = v_gather(tables->enc, v_add(row, code[h].symbol));
	}
	uint32_t escaped = (code[0].escaped | (uint32_t)code[1].escaped << 16) & active;
	if (__builtin_expect(escaped != 0, 0))
		escapes_put16(st, escaped, x, (unsigned)numbers->w, w);
	EACH_BACK
	st->v[h] = raw_put(st->v[h], code[h].raw, code[h].bits, ACTIVE(active, h), w);
	symbols_put(st, &entry, active, w);
}

#endif
