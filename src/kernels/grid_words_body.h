/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_words_body.h - a step of the grid codec (spec grid 4) for bf16 in AVX-512
 *
 * Included after ops_avx512.h, escapes_body.h and grid_numbers.h. All numbers of a bf16 element and
 * of its context have 16 bits, and so have its raw bits: a vector holds the 32 lanes of a step,
 * which halves the instructions of phase 2. In such a vector of halves lane i is the low half of
 * word i, and lane i + 16 its high half. Grids are not near subnormal numbers (grid_numbers.h).
 */
#ifndef KVI_GRID_WORDS_BODY_H
#define KVI_GRID_WORDS_BODY_H

#define SET16(x) _mm512_set1_epi16((short)(x))
/* Hides that v is a constant, which compilers otherwise load in every step. */
#define OPAQUE(v) __asm__("" : "+v"(v))

enum { WORDS_M = 7 };

/* A decoder's tables, 32 numbers of 16 bits each, and constants. */
struct words_tables {
	vec lo, nb; /* LO and NB of token pairs; lo of the escape is 0x8000 */
	/* raw bits up to the first one, by the lowest 5 bits and, where these are 0, by 2 more;
	 * bit 15: these are 0, too */
	vec zeros, zeros2;
	vec order;             /* halves to the natural order of lanes */
	vec m_lz;              /* leading zeros, as lzcnt has them, of a cell that has m + 1 bits */
	vec level;             /* G - emin + level of g = 0 and a cell without leading zeros */
	vec slot, byte, least; /* 2047, 255 and 2^16, of 32 bits */
	vec one, far, high;    /* 1, 16 and 0x8000 */
};

static const uint16_t words_lo[32] = { 0,  1,  2,  3,  4,  5,  6,  7,   8,   10,    12,
	                               14, 16, 20, 24, 28, 32, 64, 128, 256, 0x8000 };
static const uint16_t words_nb[32] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 5, 6, 7, 9 };

INLINE struct words_tables words_tables_load(void)
{
	static const uint16_t zeros[32] = { 0, 1, 2, 1, 3, 1, 2, 1, 4, 1, 2, 1, 3, 1, 2, 1,
		                            5, 1, 2, 1, 3, 1, 2, 1, 4, 1, 2, 1, 3, 1, 2, 1 };
	const __m128i four = _mm_set1_epi64x(0x0006000700068007);
	struct words_tables t = {
		.lo = v_load(words_lo),
		.nb = v_load(words_nb),
		.zeros = v_load(zeros),
		.zeros2 = _mm512_broadcast_i32x4(four),
		.order = halves_order(true),
		.m_lz = SET((31 - WORDS_M) | (15 - WORDS_M) << 16),
		.level = SET(30 | 14 << 16),
		.slot = SET(KVI_PROB_TOTAL - 1),
		.byte = SET(255),
		.least = SET(KVI_RANS_LOW),
		.one = SET16(1),
		.far = SET16(16),
		.high = SET16(0x8000),
	};
	OPAQUE(t.order);
	OPAQUE(t.m_lz);
	OPAQUE(t.level);
	OPAQUE(t.slot);
	OPAQUE(t.byte);
	OPAQUE(t.least);
	OPAQUE(t.far);
	OPAQUE(t.one);
	OPAQUE(t.high);
	return t;
}

/* A step in phase 2, in halves. */
struct words_cells {
	vec grid, high;  /* contexts: G, and M with neg above it */
	vec st, nb;      /* low halves of the states; NB */
	vec zeros;       /* raw bits that say the binade of a cell at zero, 0 of others */
	vec j, lz;       /* the cells, at least 1; leading zeros, of low halves 16 more */
	vec up, bits;    /* raw bits inside the cells, and all */
	__mmask32 below; /* signs are not those of the means */
	__mmask32 escaped;
};

/* Phase 2 up to the cells. st: low halves; symbol: numbers of 6 bits, any bits above. */
INLINE struct words_cells words_cells_find(vec st, vec symbol, const vec *ctx,
                                           const struct words_tables *tables)
{
	struct words_cells a = { .grid = _mm512_srli_epi16(halves_low(ctx[0], ctx[1]), 8),
		                 .high = halves_high(ctx[0], ctx[1]) };
	const vec mean = _mm512_andnot_si512(tables->high, a.high), all = SET(-1);
	vec pair = _mm512_srli_epi16(symbol, 1), lo = _mm512_permutexvar_epi16(pair, tables->lo);
	a.nb = _mm512_permutexvar_epi16(pair, tables->nb);
	__mmask32 side = _mm512_test_epi16_mask(symbol, tables->one);
	/* symbols of NB < 2, and 40 */
	__mmask32 near = _mm512_cmplt_epu16_mask(lo, tables->far),
		  escape = _mm512_movepi16_mask(lo);
	vec e = _mm512_add_epi16(lo, _mm512_andnot_si512(_mm512_sllv_epi16(all, a.nb), st));
	a.st = _mm512_srlv_epi16(st, a.nb);
	/* the zeros that say the binade of a cell at zero, and the 1 that ends them */
	a.zeros = _mm512_permutexvar_epi16(a.st, tables->zeros);
	__mmask32 deep = _mm512_testn_epi16_mask(a.zeros, a.zeros);
	a.zeros = _mm512_mask_permutexvar_epi16(a.zeros, deep, _mm512_srli_epi16(a.st, 5),
	                                        tables->zeros2);

	/* M + e, or M - e - 1, which is below 0 where e >= M */
	a.below = _mm512_mask_cmpge_epu16_mask(side, e, mean);
	vec j = _mm512_add_epi16(mean, e);
	j = _mm512_mask_sub_epi16(j, side, _mm512_add_epi16(mean, all), e);
	j = _mm512_mask_sub_epi16(j, a.below, all, j);

	/* A cell at zero with z zeros decodes like cell 1, z binades lower. */
	__mmask32 at_zero = _mm512_mask_testn_epi16_mask(near, j, j);
	a.zeros = _mm512_maskz_mov_epi16(at_zero, a.zeros);
	a.escaped = _kor_mask32(_kandn_mask32(near, _mm512_testn_epi16_mask(j, j)), escape);
	a.escaped = _kor_mask32(a.escaped, _mm512_movepi16_mask(a.zeros));
	a.j = _mm512_max_epu16(j, tables->one);
	return a;
}

/* Counts the raw bits. */
INLINE void words_bits_find(struct words_cells *cells, const struct words_tables *tables)
{
	vec lz = _mm512_lzcnt_epi32(_mm512_maskz_mov_epi16(LOW_HALVES, cells->j));
	cells->lz = _mm512_or_si512(lz, _mm512_slli_epi32(_mm512_lzcnt_epi32(cells->j), 16));
	cells->up = _mm512_subs_epu16(cells->lz, tables->m_lz);
	cells->bits = _mm512_add_epi16(_mm512_add_epi16(cells->nb, cells->zeros), cells->up);
}

/* Corrects the count of raw bits of escaped lanes. */
INLINE void words_escapes_repair(struct words_cells *cells)
{
	cells->bits = _mm512_mask_sub_epi16(cells->bits, cells->escaped, cells->bits, cells->up);
	cells->bits = _mm512_and_si512(cells->bits, SET16(31));
}

/* The elements, in halves. */
INLINE vec words_elements(const struct words_cells *cells, const struct words_tables *tables)
{
	vec st = _mm512_srlv_epi16(cells->st, cells->zeros),
	    down = _mm512_subs_epu16(tables->m_lz, cells->lz);
	vec own = _mm512_andnot_si512(_mm512_sllv_epi16(SET(-1), cells->up), st);
	vec full = _mm512_or_si512(_mm512_sllv_epi16(cells->j, cells->up), own);
	vec level = _mm512_sub_epi16(_mm512_add_epi16(cells->grid, tables->level),
	                             _mm512_add_epi16(cells->lz, cells->zeros));
	vec magnitude = _mm512_add_epi16(_mm512_slli_epi16(level, WORDS_M),
	                                 _mm512_srlv_epi16(full, down));
	vec sign = _mm512_mask_add_epi16(cells->high, cells->below, cells->high, tables->high);
	return _mm512_ternarylogic_epi32(magnitude, sign, tables->high, 0xf8);
}

/* Kinds of table lookups; constant in each caller. */
enum words_lookup { BY_GATHERS, BY_LOADS };

INLINE vec words_lookup(const uint32_t *table, vec index, const enum words_lookup how)
{
	return how == BY_GATHERS ? v_gather(table, index) : v_gather_each(table, index);
}

/* Phase 1 without its words: entries of the symbols, and the states behind them. */
INLINE struct parts words_symbols_take(struct parts *st, const vec *ctx, const uint32_t *lut,
                                       const struct words_tables *tables,
                                       const enum words_lookup how)
{
	struct parts entry;
	EACH {
		vec row = _mm512_slli_epi32(_mm512_and_si512(ctx[h], tables->byte), KVI_PROB_BITS);
		vec index = _mm512_ternarylogic_epi32(row, st->v[h], tables->slot, 0xf8);
		entry.v[h] = words_lookup(lut, index, how);
	}
	EACH
		st->v[h] = symbol_take(st->v[h], entry.v[h], tables->slot);
	return entry;
}

/* Takes the words that the states want; without their raw bits, if there are. */
INLINE const uint8_t *words_renorm(struct parts *st, const vec *bits,
                                   const struct words_tables *tables, active_lanes active,
                                   const uint8_t *p)
{
	const struct parts n = halves_widen(bits ? *bits : SET(0));
	EACH {
		vec left = bits ? _mm512_srlv_epi32(st->v[h], n.v[h]) : st->v[h];
		st->v[h] = renorm(left, tables->least, ACTIVE(active, h), &p);
	}
	return p;
}

/* step_take of bf16 (contract in grid_body.h). */
INLINE const uint8_t *words_step_take(struct parts *st, const vec *ctx, const uint32_t *lut,
                                      const struct words_tables *tables, unsigned lanes,
                                      const uint8_t *p, uint16_t *x, vec *y)
{
	const active_lanes active = first_active(lanes);
	struct parts entry = words_symbols_take(st, ctx, lut, tables, BY_GATHERS);
	p = words_renorm(st, NULL, tables, active, p);
	struct words_cells a = words_cells_find(halves_low(st->v[0], st->v[1]),
	                                        halves_low(entry.v[0], entry.v[1]), ctx, tables);
	words_bits_find(&a, tables);
	if (__builtin_expect(a.escaped != 0, 0))
		words_escapes_repair(&a);
	p = words_renorm(st, &a.bits, tables, active, p);
	const vec elements = words_elements(&a, tables);
	_mm512_mask_storeu_epi16(x, active, _mm512_permutexvar_epi16(tables->order, elements));
	const struct parts widened = halves_widen(elements);
	EACH
		y[h] = _mm512_maskz_mov_epi32(ACTIVE(active, h), widened.v[h]);
	if (__builtin_expect(a.escaped != 0, 0)) {
		uint32_t escaped = halves_lanes(a.escaped) & active;
		p = escapes_take16(st, escaped, x, 16, p);
		struct parts all = words16_load(x, active);
		EACH
			y[h] = all.v[h];
	}
	return p;
}

/* An encoder's tables and constants. */
struct words_encoder {
	vec lo, nb, near; /* LO and NB of token pairs; pairs of distances below 32 */
	vec order;        /* natural order of lanes to halves */
	vec one, high, m; /* 1, 0x8000, 0x7f */
};

INLINE struct words_encoder words_encoder_load(void)
{
	static const uint16_t near[32] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  8,  9,
		                           9,  10, 10, 11, 11, 12, 12, 12, 12, 13, 13,
		                           13, 13, 14, 14, 14, 14, 15, 15, 15, 15 };
	struct words_encoder t = {
		.lo = v_load(words_lo),
		.nb = v_load(words_nb),
		.near = v_load(near),
		.order = halves_order(false),
		.one = SET16(1),
		.high = SET16(0x8000),
		.m = SET16((1 << WORDS_M) - 1),
	};
	OPAQUE(t.order);
	OPAQUE(t.one);
	OPAQUE(t.high);
	OPAQUE(t.m);
	return t;
}

/* A step's elements as symbols, raw bits and their numbers, in halves. */
struct words_code {
	vec symbol, raw, bits;
	__mmask32 escaped;
};

INLINE struct words_code words_code(vec x, const vec *ctx, const struct words_encoder *encoder)
{
	const vec grid = _mm512_srli_epi16(halves_low(ctx[0], ctx[1]), 8);
	const vec high = halves_high(ctx[0], ctx[1]);
	const vec mean = _mm512_andnot_si512(encoder->high, high);
	const vec all = SET(-1);
	struct words_code c;
	vec field = _mm512_srli_epi16(_mm512_andnot_si512(encoder->high, x), WORDS_M);
	vec mant = _mm512_and_si512(x, encoder->m);
	__mmask32 normal = _mm512_test_epi16_mask(field, field);
	vec full = _mm512_mask_add_epi16(mant, normal, mant, SET16(1 << WORDS_M));

	/* The cell is 2^down, or 2^-up, steps of the element wide. */
	vec own = _mm512_max_epu16(field, encoder->one);
	vec start = _mm512_add_epi16(grid, SET16(WORDS_M));
	vec up = _mm512_subs_epu16(own, start), down = _mm512_subs_epu16(start, own);
	vec j = _mm512_srlv_epi16(_mm512_sllv_epi16(full, up), down);
	__mmask32 at_zero = _mm512_testn_epi16_mask(j, j);
	c.escaped = _mm512_cmpgt_epu16_mask(up, SET16(8)); /* counts for normal numbers */
	/* Raw bits at zero: the binade as zeros and a 1, then the mantissa; `down` of them. */
	vec zero_raw = _mm512_add_epi16(_mm512_add_epi16(mant, mant), encoder->one);
	zero_raw = _mm512_sllv_epi16(zero_raw, _mm512_sub_epi16(down, SET16(WORDS_M + 1)));
	c.escaped |= at_zero & (~normal | _mm512_cmpgt_epu16_mask(down, SET16(2 * WORDS_M)));
	c.raw = _mm512_andnot_si512(_mm512_sllv_epi16(all, down), full);
	c.raw = _mm512_mask_mov_epi16(c.raw, at_zero, zero_raw);

	/* M + j on the other side of zero, or the distance of j from M; at most 2^16 - 1 */
	__mmask32 across = _mm512_movepi16_mask(_mm512_xor_si512(x, high));
	__mmask32 above = _mm512_cmpge_epu16_mask(j, mean);
	vec e = _mm512_mask_adds_epu16(_mm512_sub_epi16(j, mean), across, j, mean);
	e = _mm512_mask_sub_epi16(e, ~across & ~above, _mm512_add_epi16(mean, all), j);
	__mmask32 side = across | ~above;
	__mmask32 middle = _mm512_cmpgt_epu16_mask(e, SET16(31));
	vec pair = _mm512_permutexvar_epi16(e, encoder->near);
	pair = _mm512_mask_mov_epi16(pair, middle, SET16(16));
	if (__builtin_expect(middle != 0, 0)) {
		__mmask32 far = _mm512_cmpgt_epu16_mask(e, SET16(63));
		pair = _mm512_mask_add_epi16(pair, far, pair, encoder->one);
		far = _mm512_cmpgt_epu16_mask(e, SET16(127));
		pair = _mm512_mask_add_epi16(pair, far, pair, encoder->one);
		far = _mm512_cmpgt_epu16_mask(e, SET16(255));
		pair = _mm512_mask_add_epi16(pair, far, pair, encoder->one);
		c.escaped |= _mm512_cmpgt_epu16_mask(e, SET16(767));
	}
	c.symbol = _mm512_add_epi16(pair, pair);
	c.symbol = _mm512_mask_add_epi16(c.symbol, side, c.symbol, encoder->one);
	vec nb = _mm512_permutexvar_epi16(pair, encoder->nb);
	vec rest = _mm512_sub_epi16(e, _mm512_permutexvar_epi16(pair, encoder->lo));
	c.escaped |= _mm512_mask_cmpgt_epu16_mask(at_zero, nb, encoder->one);
	c.raw = _mm512_or_si512(_mm512_sllv_epi16(c.raw, nb), rest);
	c.bits = _mm512_add_epi16(down, nb);
	return c;
}

/* Takes the escaped lanes out of a step, and puts their elements x. */
INLINE void words_escapes_put(struct words_code *code, struct parts *st, const uint16_t *x,
                              uint16_t **w)
{
	code->raw = _mm512_maskz_mov_epi16(~code->escaped, code->raw);
	code->bits = _mm512_maskz_mov_epi16(~code->escaped, code->bits);
	code->symbol = _mm512_mask_mov_epi16(code->symbol, code->escaped,
	                                     SET16(KVI_GRID_SYMBOLS - 1));
	escapes_put16(st, halves_lanes(code->escaped), x, 16, w);
}

/* Entries of the symbols. */
INLINE struct parts words_entries(vec symbols, const vec *ctx, const struct kvi_tables *tables,
                                  const enum words_lookup how)
{
	const __m128i stride = _mm_cvtsi32_si128(__builtin_ctz((unsigned)tables->stride));
	const struct parts symbol = halves_widen(symbols);
	struct parts entry;
	EACH {
		vec row = _mm512_sll_epi32(_mm512_and_si512(ctx[h], SET(255)), stride);
		entry.v[h] = words_lookup(tables->enc, v_add(row, symbol.v[h]), how);
	}
	return entry;
}

/* Phase 2. */
INLINE void words_raw_put(struct parts *st, const struct words_code *code, uint16_t **w)
{
	const struct parts raw = halves_widen(code->raw), bits = halves_widen(code->bits);
	EACH_BACK
	st->v[h] = raw_put(st->v[h], raw.v[h], bits.v[h], ACTIVE(ALL_LANES, h), w);
}

/* step_put of bf16 (contract in grid_body.h) for all lanes. */
INLINE void words_step_put(struct parts *st, const vec *ctx, const uint16_t *x,
                           const struct kvi_tables *tables, const struct words_encoder *encoder,
                           uint16_t **w)
{
	struct words_code c = words_code(_mm512_permutexvar_epi16(encoder->order, v_load(x)), ctx,
	                                 encoder);
	if (__builtin_expect(c.escaped != 0, 0))
		words_escapes_put(&c, st, x, w);
	const struct parts entry = words_entries(c.symbol, ctx, tables, BY_GATHERS);
	words_raw_put(st, &c, w);
	symbols_put(st, &entry, ALL_LANES, w);
}

#endif
