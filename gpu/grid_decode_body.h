/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_decode_body.h - decodes streams of codec 5 (spec grid 4), a warp a stream
 *
 * A symbol is looked up in two steps: the one of slot 8 * fl(slot / 8), then forwards.
 */
#ifndef KVI_GPU_GRID_DECODE_BODY_H
#define KVI_GPU_GRID_DECODE_BODY_H

#include "grid_contexts_body.h"

constexpr uint32_t GRID_TABLES = 192, GRID_SYMBOLS = 41, GRID_ESCAPE = 40, GRID_FIRSTS = 256;

/*
 * What a block has in shared memory. enc: frequency | cumulative frequency << 16; first: of every
 * eighth slot the symbol; token: 2^NB - 1 in bits 0 to 8, NB from bit 9 on, and from bit 16 on LO
 * or -LO - 1, with a sign.
 */
struct grid_shared {
	span<uint32_t> enc, token;
	span<uint8_t> first;
};

/* enc and token, by all warps of a block. */
WARP_FN void grid_codes(const grid_shared *s, const kvi_gpu_tables *tables, uint32_t warp,
                         uint32_t warps)
{
	span<const uint32_t> from =
		span_at<const uint32_t>(tables->grid, GRID_TABLES * GRID_SYMBOLS);
	for (uint32_t i = warp * 32; i < GRID_TABLES * GRID_SYMBOLS; i += warps * 32)
		st(s->enc, lanes() + i, ldg(from, lanes() + i));
	if (warp)
		return;
	for (uint32_t i = 0; i < 64; i += 32) {
		const u32v symbol = lanes() + i, t = symbol >> 1;
		u32v lo = select(t < 8, t, (t - 4) * 2), nb = select(t < 8, splat(0), splat(1));
		lo = select(t < 12, lo, (t - 8) * 4);
		nb = select(t < 12, nb, splat(2));
		const u32v far = t - 16; /* 32, 64, 128, 256 with 5, 6, 7, 9 bits */
		lo = select(t < 16, lo, splat(32) << (far & 3));
		nb = select(t < 16, nb, far + 5 + (far >> 1 & far & 1));
		const u32v base = select((symbol & 1) != 0, 0 - lo - 1, lo);
		const u32v token = ((splat(1) << nb) - 1) | nb << 9 | base << 16;
		st(s->token, symbol, select(t < 20, token, splat(0)));
	}
}

/* Phase 0 of a decoder, by all warps of a block. */
WARP_FN void grid_tables(const grid_shared *s, const kvi_gpu_tables *tables, uint32_t warp,
                         uint32_t warps)
{
	span<const uint8_t> from =
		span_at<const uint8_t>(tables->first, GRID_TABLES * GRID_FIRSTS);
	grid_codes(s, tables, warp, warps);
	for (uint32_t i = warp; i < GRID_TABLES * GRID_FIRSTS / 32; i += warps) {
		st(s->first, lanes() + i * 32, ldg(from, lanes() + i * 32));
	}
}

/* The magnitude of elements, and how many raw bits it takes. */
struct grid_value {
	u32v magnitude, used;
	boolv escaped;
};

/* The value of an element of cell j, which is not 0; start: G - emin. */
template <int D> WARP_FN grid_value grid_cell(u32v raw, u32v j, u32v start)
{
	constexpr uint32_t m = grid_format<D>::m;
	const u32v level = high_bit(j | 1);
	u32v n = m - level, base = (start + level) << m;
	if (grid_format<D>::subnormals) {
		const boolv normal = !less_signed(start + m, n);
		base = select(normal, base, splat(0));
		n = select(normal, n, start + m);
	}
	const u32v up = max_signed(n, splat(0)), down = up - n;
	grid_value v;
	v.magnitude = base + ((j >> down) << up) + low_bits(raw, up);
	v.used = up;
	v.escaped = lanes() > 31;
	return v;
}

/* The value of an element of the cell at zero. */
template <int D> WARP_FN grid_value grid_zero_cell(u32v raw, u32v start)
{
	constexpr uint32_t m = grid_format<D>::m, Z = grid_format<D>::zeros;
	grid_value v;
	if (!grid_format<D>::subnormals) {
		const u32v zeros = low_zeros(raw | 1u << Z);
		v.magnitude = ((start - zeros) << m) + (raw >> (zeros + 1) & ((1u << m) - 1));
		v.escaped = zeros == Z;
		v.used = select(v.escaped, splat(Z), zeros + (m + 1));
		return v;
	}
	const boolv under = less_signed(start, splat(1));
	const u32v deepest = min_signed(max_signed(start, splat(0)), splat(Z));
	const u32v zeros = low_zeros(raw | splat(1) << deepest);
	const boolv found = zeros < deepest;
	const u32v skip = select(found, zeros + 1, deepest);
	v.magnitude = select(found, (start - zeros) << m, splat(0)) +
	              (raw >> skip & ((1u << m) - 1));
	v.escaped = (zeros >= deepest) & less_signed(splat(Z), start);
	v.used = select(v.escaped, deepest, skip + m);
	v.magnitude = select(under, low_bits(raw, start + m), v.magnitude);
	v.used = select(under, start + m, v.used);
	return v;
}

/* Phase 1 of a step: the symbols. */
template <bool ALL>
WARP_FN u32v grid_symbols(words_in *w, u32v *state, const grid_shared *t, u32v table, boolv active)
{
	const u32v slot = *state & 2047, row = table * GRID_SYMBOLS;
	u32v at = row + ld(t->first, (slot >> 3) + table * GRID_FIRSTS);
	u32v e = ld(t->enc, at), rest = slot - (e >> 16);
	boolv on = rest >= (e & 0xffff);
	while (mask_of(on)) {
		at += select(on, splat(1), splat(0));
		e = ld(t->enc, at);
		rest = slot - (e >> 16);
		on = rest >= (e & 0xffff);
	}
	const u32v next = (e & 0xffff) * (*state >> 11) + rest;
	const u32v s = ALL ? next : select(active, next, *state);
	*state = renorm(w, s, s < STATE_LOW);
	words_refill(w);
	return at - row;
}

/* One step; returns the coded elements, with any bits above them. */
template <int D, bool ALL>
WARP_FN u32v grid_step(words_in *w, u32v *state, const grid_shared *t, u32v context, boolv active)
{
	constexpr uint32_t width = grid_format<D>::bits;
	const u32v symbol = grid_symbols<ALL>(w, state, t, context & 255, active);
	u32v s = *state;
	const u32v token = ld(t->token, symbol), more = s & token & 511, side = sar(token, 31);
	const u32v x = ((context >> 16 & 0x7fff) + sar(token, 16)) + ((more ^ side) - side);
	const u32v minus = sar(x, 31), j = x ^ minus;
	const u32v raw = shift_right_modulo(s, token >> 9);
	const u32v start = (context >> 8 & 255) - (BIAS - grid_format<D>::least);
	grid_value v = grid_cell<D>(raw, j, start);
	const grid_value z = grid_zero_cell<D>(raw, start);
	const boolv zero = j == 0, far = (token & 510) != 0, none = symbol == GRID_ESCAPE;
	v.magnitude = select(zero, z.magnitude, v.magnitude);
	v.used = select(zero, select(far, splat(0), z.used), v.used);
	boolv escaped = (zero & (far | z.escaped)) | none;
	v.used = select(none, splat(0), v.used);
	u32v out = v.magnitude | ((minus ^ context) >> 31) << (width - 1);
	s = ALL ? raw >> v.used : select(active, raw >> v.used, s);
	s = renorm(w, s, s < STATE_LOW);
	if (!ALL)
		escaped = escaped & active;
	const uint32_t mask = mask_of(escaped);
	if (mask) { /* rare */
		words_refill(w);
		out = select(escaped, s & ((1u << width) - 1), out);
		s = select(escaped, s >> width, s);
		s = renorm(w, s, lane_in(mask & mask_of(s < STATE_LOW)));
	}
	words_refill(w);
	*state = s;
	return out;
}

/* Phase 1. Whether the stream was good. */
template <int D>
WARP_FN bool grid_decode(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t number,
                         const grid_shared *t)
{
	typedef typename element_of<format<D>::size>::type element;
	const uint32_t C = o->columns, first = number * o->stream_tokens * C;
	const uint32_t n = uniform(stream_elements(o, number));
	const uint32_t ring = uniform(o->ring), total = ring ? ring + 128 : o->rows * C;
	span<element> out = span_at<element>(c->packed + (uint64_t)first * format<D>::size, n);
	span<const uint32_t> contexts = span_at<const uint32_t>(c->contexts, total);
	words_in w;
	words_open(&w, c->payload + o->stream[number].words, uniform(o->stream[number].n_words));
	const u32v l = lanes();
	u32v s = ldg(span_at<const uint32_t>(c->payload + o->stream[number].states, 32), l);
	const boolv all = l < 32;

	uint32_t at = ring ? 0 : first, left = n;
	u32v next[2];
	UNROLL
	for (uint32_t k = 0; k < 2; k++)
		next[k] = ld_if(contexts, l + (at + 32 * k), l + 32 * k < left);
	while (left >= 64) {
		const u32v context[2] = { next[0], next[1] };
		left -= 64;
		at += 64;
		at = ring && at >= ring ? at - ring : at;
		UNROLL
		for (uint32_t k = 0; k < 2; k++)
			next[k] = ld_if(contexts, l + (at + 32 * k), l + 32 * k < left);
		UNROLL
		for (uint32_t k = 0; k < 2; k++) {
			const u32v x = grid_step<D, true>(&w, &s, t, context[k], all);
			st_once(out, l + 32 * k, x);
		}
		out = skip(out, 64);
	}
	for (uint32_t k = 0; k < left; k += 32) {
		const boolv active = l + k < left;
		const u32v x = grid_step<D, false>(&w, &s, t, k ? next[1] : next[0], active);
		st_if(out, l + k, x, active);
	}
	return stream_ended(&w, s);
}

#endif
