/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_body.h - a step of the grid codec (spec grid 4), for sets whose masks are vectors
 *
 * Included after step_body.h and escapes_body.h. Uses, beside what these do: v_xor, v_min, v_max,
 * v_is_zero, v_blend, v_shr_each, v_shl_any, v_shr_any, v_float_bits, v_log2, token_tables,
 * token_tables_load, token_info (contracts in ops.h). What it defines, grid_avx512_body.h
 * defines for AVX-512:
 *
 *   step_take(st, ctx, lut, tokens, f, lanes, p, x, y)
 *                           decodes a step of the first lanes: the elements to x and, the same,
 *                           to y, with 0 in the other lanes; returns the next word. The words
 *                           of a step are there (kvi_feed).
 *   encoder_tables, encoder_tables_load()
 *                           what element_code and step_put look up
 *   coded_lanes, element_code(x, ctx, tokens, f)
 *                           symbols and raw bits of a vector's elements; the escaped ones have
 *                           symbol 40 and none
 *   step_put(st, ctx, x, tables, tokens, f, active, w)
 *                           encodes a step
 * ctx: a context a lane (kvi_grid_context). f: the format's numbers, best constants.
 */
#ifndef KVI_GRID_BODY_H
#define KVI_GRID_BODY_H

#include "grid_numbers.h"

INLINE vec low_bits(vec v, vec n)
{
	return v_and(v, v_sub(v_shl_each(SET(1), n), SET(1)));
}

INLINE vec grid_start(vec ctx, const struct grid_numbers *numbers) /* G - emin */
{
	return v_sub(v_and(v_shr(ctx, 8), SET(255)), SET(127 + numbers->emin));
}

INLINE vec grid_mean(vec ctx)
{
	return v_and(v_shr(ctx, 16), SET(0x7fff));
}

/* The cell at zero: an element's magnitude (decoder) or raw bits (encoder), the number of raw bits,
 * and a mask of the escaped lanes. */
typedef struct {
	vec value, bits, escaped;
} zero_cell;

INLINE zero_cell zero_decode(vec st, vec gs, const struct grid_numbers *numbers)
{
	zero_cell c;
	vec one = SET(1), z = SET(numbers->z), zero = SET(0);
	vec deepest = numbers->subnormals ? v_min(gs, z) : z;
	/* The lowest set bit of `stop` is at most bit 11 unless gs < 0, where the result is not
	 * used. */
	vec stop = v_or(st, v_shl_each(one, deepest));
	vec zeros = v_log2(v_and(stop, v_sub(zero, stop)));
	vec found = v_gt(deepest, zeros);
	vec skip = v_min(v_add(zeros, one), deepest);
	vec mant = v_and(v_shr_each(st, skip), SET((1 << numbers->m) - 1));
	vec field = v_and(found, v_sub(gs, zeros));
	c.value = v_add(v_shl(field, numbers->m), mant);
	c.escaped = v_except(found, numbers->subnormals ? v_gt(gs, z) : SET(-1));
	c.bits = v_blend(v_add(skip, SET(numbers->m)), deepest, c.escaped);
	if (numbers->subnormals) {
		vec above = v_gt(gs, zero);
		vec n = v_add(gs, SET(numbers->m));
		c.bits = v_blend(n, c.bits, above);
		c.value = v_blend(low_bits(st, n), c.value, above);
		c.escaped = v_and(c.escaped, above);
	}
	return c;
}

/*
 * Cells beside zero: the element's magnitude of cell j in *magnitude and the
 * number of raw bits in it. As binary32, j is exact and has the exponent and
 * the upper bits of the mantissa where the element wants them.
 */
INLINE vec cell_bits(vec st, vec j, vec gs, const struct grid_numbers *numbers, vec *magnitude)
{
	vec zero = SET(0), up;
	if (!numbers->subnormals) {
		vec bits = v_float_bits(j);
		up = v_max(v_sub(SET(127 + numbers->m), v_shr(bits, 23)), zero);
		vec base = v_shl(v_sub(gs, SET(126)), numbers->m);
		*magnitude = v_add(v_add(v_shr(bits, 23 - numbers->m), base), low_bits(st, up));
		return up;
	}
	vec level = v_log2(j), n = v_sub(SET(numbers->m), level);
	vec base = v_shl(v_add(gs, level), numbers->m);
	vec n_max = v_add(gs, SET(numbers->m));
	base = v_except(v_gt(n, n_max), base);
	n = v_min(n, n_max);
	up = v_max(n, zero);
	vec down = v_max(v_sub(zero, n), zero);
	vec full = v_or(v_shl_each(j, up), low_bits(st, up));
	*magnitude = v_add(base, v_shr_each(full, down));
	return up;
}

/* Phase 2 of a vector's lanes: the elements, the lanes that are escaped. */
INLINE vec raw_take(vec *state, vec symbol, vec ctx, const token_tables *tables,
                    const struct grid_numbers *numbers, vec *escaped)
{
	vec st = *state, zero = SET(0), lo, nb;
	vec gs = grid_start(ctx, numbers);
	vec esc40 = v_eq(symbol, SET(KVI_GRID_SYMBOLS - 1));
	token_info(tables, v_shr(symbol, 1), &lo, &nb);
	vec e = v_add(lo, low_bits(st, nb));
	st = v_shr_each(st, nb);
	vec side = v_sub(zero, v_and(symbol, SET(1)));
	vec pos = v_add(grid_mean(ctx), v_xor(e, side));
	vec below = v_sar(pos, 31);
	vec j = v_xor(pos, below);

	vec magnitude, up = cell_bits(st, j, gs, numbers, &magnitude);

	vec at_zero = v_is_zero(j), esc = esc40;
	if (v_bits(at_zero)) {
		zero_cell c = zero_decode(st, gs, numbers);
		vec far = v_and(at_zero, v_gt(nb, SET(1)));
		up = v_except(far, v_blend(up, c.bits, at_zero));
		magnitude = v_blend(magnitude, c.value, at_zero);
		esc = v_or(esc, v_or(far, v_and(at_zero, c.escaped)));
	}
	/* Symbol 40 takes nothing; its NB is 0 in the tables. */
	*state = v_shr_each(st, v_except(esc40, up));
	*escaped = esc;
	vec sign = v_shr(v_xor(below, ctx), 31);
	vec x = v_or(v_shl(sign, numbers->w - 1), magnitude);
	return v_and(x, SET(numbers->w == 16 ? 0xffff : 0xff));
}

INLINE const uint8_t *step_take(struct parts *st, const vec *ctx, const uint32_t *lut,
                                const token_tables *tokens, const struct grid_numbers *numbers,
                                unsigned lanes, const uint8_t *p, uint16_t *x, vec *y)
{
	const active_lanes active = first_active(lanes);
	struct parts table, symbol, element;
	uint32_t escaped = 0;
	EACH
		table.v[h] = v_and(ctx[h], SET(255));
	symbol = symbols_take(st, lut, &table, active, &p);
	EACH {
		vec esc;
		element.v[h] = raw_take(&st->v[h], symbol.v[h], ctx[h], tokens, numbers, &esc);
		escaped |= v_bits(v_and(esc, active.mask.v[h])) << WIDTH * h;
	}
	EACH {
		st->v[h] = v_renorm(st->v[h], active.mask.v[h], &p);
		y[h] = element.v[h] = v_and(element.v[h], active.mask.v[h]);
	}
	words16_store(x, &element, active);
	if (__builtin_expect(escaped != 0, 0)) {
		p = escapes_take16(st, escaped, x, (unsigned)numbers->w, p);
		element = words16_load(x, active);
		EACH
			y[h] = element.v[h];
	}
	return p;
}

/* Elements as symbol, raw bits and their number; mask: escaped ones. */
typedef struct {
	vec symbol, raw, bits, escaped;
} coded_lanes;

/* Raw bits of elements in the cell at zero. */
INLINE zero_cell zero_encode(vec magnitude, vec field, vec gs, const struct grid_numbers *numbers)
{
	zero_cell c;
	vec one = SET(1), z = SET(numbers->z), zero = SET(0);
	vec mant = v_and(magnitude, SET((1 << numbers->m) - 1));
	vec zeros = v_sub(gs, field);
	vec deepest = numbers->subnormals ? v_min(gs, z) : z;
	vec subnormal = v_is_zero(field);
	vec raw = v_blend(v_or(v_shl(mant, 1), one), mant, subnormal);
	c.value = v_shl_each(raw, zeros);
	/* a normal number has one bit more: the 1 after the zeros */
	c.bits = v_add(v_add(zeros, SET(numbers->m + 1)), subnormal);
	c.escaped = v_except(v_gt(deepest, zeros), SET(-1));
	if (numbers->subnormals) {
		vec above = v_gt(gs, zero), under = v_gt(gs, z);
		c.escaped = v_blend(c.escaped, under, subnormal);
		c.value = v_blend(magnitude, c.value, above);
		c.bits = v_blend(v_add(gs, SET(numbers->m)), c.bits, above);
		c.escaped = v_and(c.escaped, above);
	}
	return c;
}

/* Token pair of e, which is below 768 where it counts. */
INLINE vec token_of(vec e)
{
	vec by2 = v_add(v_shr(e, 1), SET(4));
	vec by4 = v_add(v_shr(e, 2), SET(8));
	vec far = v_min(v_add(v_log2(e), SET(11)), SET(19));
	vec pair = v_blend(e, by2, v_gt(e, SET(7)));
	pair = v_blend(pair, by4, v_gt(e, SET(15)));
	return v_blend(pair, far, v_gt(e, SET(31)));
}

typedef token_tables encoder_tables;
#define encoder_tables_load token_tables_load

INLINE coded_lanes element_code(vec x, vec ctx, const encoder_tables *tables,
                                const struct grid_numbers *numbers)
{
	coded_lanes c;
	vec one = SET(1), zero = SET(0), lo, nb;
	vec gs = grid_start(ctx, numbers);
	vec magnitude = v_and(x, SET((1 << (numbers->w - 1)) - 1));
	vec field = v_shr(magnitude, numbers->m);
	vec mant = v_and(magnitude, SET((1 << numbers->m) - 1));
	vec full = v_or(mant, v_except(v_is_zero(field), SET(1 << numbers->m)));

	/* The cell is 2^size steps of the element wide. */
	vec size = v_sub(v_add(gs, SET(numbers->m + 1)), v_max(field, one));
	vec up = v_max(v_sub(zero, size), zero);
	vec down = v_max(size, zero);
	vec j = v_shr_any(v_shl_any(full, up), down);
	c.raw = low_bits(full, down);
	c.bits = down;
	c.escaped = v_gt(SET(-10), size);
	vec at_zero = v_is_zero(j);
	if (v_bits(at_zero)) {
		zero_cell z = zero_encode(magnitude, field, gs, numbers);
		c.raw = v_blend(c.raw, z.value, at_zero);
		c.bits = v_blend(c.bits, z.bits, at_zero);
		c.escaped = v_or(c.escaped, v_and(at_zero, z.escaped));
	}

	vec sign = v_shr(x, numbers->w - 1);
	vec below = v_sub(zero, v_xor(sign, v_shr(ctx, 31)));
	vec d = v_sub(v_xor(j, below), grid_mean(ctx));
	vec side = v_sar(d, 31), e = v_xor(d, side);
	c.escaped = v_or(c.escaped, v_gt(e, SET(767)));
	vec pair = token_of(e);
	token_info(tables, pair, &lo, &nb);
	c.escaped = v_or(c.escaped, v_and(at_zero, v_gt(nb, one)));
	c.raw = v_or(v_shl_each(c.raw, nb), v_sub(e, lo));
	c.bits = v_add(c.bits, nb);
	c.escaped = v_or(c.escaped, v_gt(c.bits, SET(16)));
	c.raw = v_except(c.escaped, c.raw);
	c.bits = v_except(c.escaped, c.bits);
	c.symbol = v_sub(v_shl(pair, 1), side);
	c.symbol = v_blend(c.symbol, SET(KVI_GRID_SYMBOLS - 1), c.escaped);
	return c;
}

/* Phase 2 of an encoder: raw bits of a vector's lanes. */
INLINE vec raw_put(vec st, const coded_lanes *lanes, vec active, uint16_t **w)
{
	vec over = v_shr_each(st, v_sub(SET(32), lanes->bits));
	st = v_words_put(st, v_except(v_is_zero(over), active), w);
	return v_or(v_shl_each(st, lanes->bits), lanes->raw);
}

INLINE void step_put(struct parts *st, const struct parts *ctx, const uint16_t *x,
                     const struct kvi_tables *tables, const encoder_tables *tokens,
                     const struct grid_numbers *numbers, active_lanes active, uint16_t **w)
{
	const struct parts element = words16_load(x, active);
	coded_lanes code[PARTS];
	struct parts table, symbol;
	uint32_t escaped = 0;
	EACH {
		code[h] = element_code(element.v[h], ctx->v[h], tokens, numbers);
		table.v[h] = v_and(ctx->v[h], SET(255));
		symbol.v[h] = code[h].symbol;
		escaped |= v_bits(v_and(code[h].escaped, active.mask.v[h])) << WIDTH * h;
	}
	struct parts entry = entries_load(tables, &table, &symbol);
	if (__builtin_expect(escaped != 0, 0))
		escapes_put16(st, escaped, x, (unsigned)numbers->w, w);
	EACH_BACK
	st->v[h] = raw_put(st->v[h], &code[h], active.mask.v[h], w);
	symbols_put(st, &entry, active, w);
}

#endif
