/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_encode_body.h - encodes streams of codec 5 (spec rans 6, grid 7), by warps */
#ifndef KVI_GPU_STREAM_ENCODE_BODY_H
#define KVI_GPU_STREAM_ENCODE_BODY_H

#include "grid_decode_body.h"

/* Words on their way out: they are written downwards from `at`. */
struct words_out {
	span<uint16_t> p;
	uint32_t at;
};

/* Lanes of `over` write their low word. The decoder reads lanes in ascending order. */
WARP_FN u32v word_out(words_out *w, u32v st, boolv over)
{
	const uint32_t mask = mask_of(over);
	w->at -= count(mask);
	st_if(w->p, below(mask) + w->at, st & 0xffff, over);
	return select(over, st >> 16, st);
}

/* n bits of lanes; n is 0 to 16. */
WARP_FN u32v bits_out(words_out *w, u32v st, u32v n, u32v bits, boolv active)
{
	st = word_out(w, st, active & (shift_right(st, 32 - n) != 0));
	return select(active, st << n | bits, st);
}

/* The tables of encoders in shared memory. enc: frequency | cumulative frequency << 16 of symbols;
 * inverse: fl((2^32 - 1) / frequency). */
struct encode_shared {
	span<uint32_t> enc, inverse;
	grid_shared grid; /* enc, too, and token */
};

/* A symbol, by its number in enc. The quotient by the inverse is right or 1 too small. */
template <bool ALL>
WARP_FN u32v symbol_out(words_out *w, u32v s, const encode_shared *t, u32v number, boolv active)
{
	const u32v e = ld(t->enc, number), f = e & 0xffff;
	boolv over = s >> 21 >= f;
	if (!ALL)
		over = over & active;
	s = word_out(w, s, over);
	u32v q = product_high32(s, ld(t->inverse, number)), r = s - q * f;
	const boolv more = r >= f;
	q = select(more, q + 1, q);
	r = select(more, r - f, r);
	const u32v next = (q << 11) + (e >> 16) + r;
	return ALL ? next : select(active, next, s);
}

/* The inverses of n entries of enc, by all warps of a block, behind a barrier. */
WARP_FN void inverse_tables(const encode_shared *t, uint32_t n, uint32_t warp, uint32_t warps)
{
	for (uint32_t i = warp * 32; i < n; i += warps * 32) {
		const u32v at = lanes() + i;
		const u32v f = ld_if(t->enc, at, at < n) & 0xffff;
		st_if(t->inverse, at, splat(~0u) / select(f == 0, splat(1), f), at < n);
	}
}

/* Goes back by a step in a ring of R entries. */
WARP_FN uint32_t ring_back(uint32_t at, uint32_t ring)
{
	return at >= 32 ? at - 32 : at + ring - 32;
}

/* An element of codec 5 as symbol and raw bits; escaped ones have symbol 40 and none. */
struct grid_code {
	u32v symbol, raw, bits;
};

/* Raw bits of an element in the cell at zero; escaped: none of them reach it. */
template <int D>
WARP_FN void grid_code_zero(u32v magnitude, u32v start, boolv zero, grid_code *code, boolv *escaped)
{
	constexpr uint32_t m = grid_format<D>::m, Z = grid_format<D>::zeros;
	const u32v field = magnitude >> m, low = magnitude & ((1u << m) - 1);
	const u32v zeros = start - field;
	const boolv normal = field != 0, under = less_signed(start, splat(1));
	const boolv over = less_signed(splat(0), start); /* not under */
	const u32v deepest = min_signed(start, splat(Z));
	const boolv near = (normal & less_signed(zeros, deepest)) |
	                   ((field == 0) & less_signed(start, splat(Z + 1)));
	const boolv lost = zero & over & !near, good = zero & over & near;
	const u32v bits = select(normal, low << 1 | 1, low);
	const u32v shift = select(good, zeros, splat(0));
	code->raw = select(good, bits << shift, code->raw);
	code->bits = select(good, shift + m + select(normal, splat(1), splat(0)), code->bits);
	code->raw = select(zero & under, magnitude, code->raw);
	code->bits = select(zero & under, start + m, code->bits);
	*escaped = lost;
}

/* The inverse of a decoder's step. */
template <int D> WARP_FN grid_code grid_encode_element(u32v x, u32v context, const grid_shared *t)
{
	constexpr uint32_t m = grid_format<D>::m, width = grid_format<D>::bits;
	const u32v start = (context >> 8 & 255) - (BIAS - grid_format<D>::least);
	const u32v magnitude = x & ((1u << (width - 1)) - 1), field = magnitude >> m;
	const u32v one = select(field != 0, splat(1u << m), splat(0));
	const u32v full = (magnitude & ((1u << m) - 1)) | one;
	/* the cell is 2^size steps of the element wide */
	const u32v size = start + (m + 1) - select(field != 0, field, splat(1));
	boolv escaped = less_signed(size, splat(0u - 10));
	const u32v down = max_signed(size, splat(0)), up = max_signed(0 - size, splat(0));
	const u32v j = shift_right(full << select(escaped, splat(0), up), down);
	const boolv zero = (j == 0) & (escaped == 0), cell = j != 0;
	grid_code code;
	code.bits = select(cell, down, splat(0));
	code.raw = low_bits(full, code.bits);
	boolv lost;
	grid_code_zero<D>(magnitude, start, zero, &code, &lost);
	const u32v minus = sar((x << (32 - width)) ^ context, 31);
	const u32v d = (j ^ minus) - (context >> 16 & 0x7fff);
	const u32v side = d >> 31, e = d ^ sar(d, 31);
	const u32v log = high_bit(e | 1);
	u32v pair = select(e < 256, log + 11, splat(19));
	pair = select(e < 32, (e >> 2) + 8, pair);
	pair = select(e < 16, (e >> 1) + 4, pair);
	pair = select(e < 8, e, pair);
	const u32v token = ld(t->token, pair * 2), nb = token >> 9 & 15;
	code.raw = code.raw << nb | (e - (token >> 16));
	code.bits += nb;
	escaped = escaped | lost | (e >= 768) | (code.bits > 16) | (zero & (nb > 1));
	code.symbol = select(escaped, splat(GRID_ESCAPE), pair * 2 + side);
	code.raw = select(escaped, splat(0), code.raw);
	code.bits = select(escaped, splat(0), code.bits);
	return code;
}

/* One step of codec 5; x: elements. */
template <int D, bool ALL>
WARP_FN u32v grid_encode_step(words_out *w, u32v s, const encode_shared *t, u32v context, u32v x,
                              boolv active)
{
	grid_code code = grid_encode_element<D>(x, context, &t->grid);
	const boolv escaped = (code.symbol == GRID_ESCAPE) & active;
	if (mask_of(escaped)) { /* rare */
		s = bits_out(w, s, splat(grid_format<D>::bits), x, escaped);
	}
	s = bits_out(w, s, code.bits, code.raw, active);
	return symbol_out<ALL>(w, s, t, (context & 255) * GRID_SYMBOLS + code.symbol, active);
}

/* The stream of `rows` tokens from first_row on, words to `w`; returns the states. The contexts are
 * there. */
template <int D>
WARP_FN u32v grid_encode(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, const encode_shared *t,
                         uint32_t first_row, uint32_t rows, words_out *w)
{
	typedef typename element_of<format<D>::size>::type element;
	const uint32_t C = o->columns, n = uniform(rows * C), first = first_row * C;
	const uint32_t ring = uniform(o->ring), total = ring ? ring + 128 : o->rows * C;
	span<const element> in =
		span_at<const element>(c->packed + (uint64_t)first * format<D>::size, n);
	span<const uint32_t> contexts = span_at<const uint32_t>(c->contexts, total);
	const u32v l = lanes();
	const boolv all = l < 32;
	uint32_t at = n / 32 * 32, r = ring ? at % ring : first + at;
	u32v s = splat(STATE_LOW);
	if (at < n) {
		const boolv active = l + at < n;
		s = grid_encode_step<D, false>(w, s, t, ld_if(contexts, l + r, active),
		                               ld_if(in, l + at, active), active);
	}
	while (at) {
		at -= 32;
		r = ring ? ring_back(r, ring) : r - 32;
		s = grid_encode_step<D, true>(w, s, t, ld(contexts, l + r), ld(in, l + at), all);
	}
	return s;
}

#endif
