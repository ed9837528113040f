/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent_decode_body.h - decodes streams of codec 4 (spec exponent), a warp a stream */
#ifndef KVI_GPU_EXPONENT_DECODE_BODY_H
#define KVI_GPU_EXPONENT_DECODE_BODY_H

#include "stream_words_body.h"

constexpr uint32_t EXP_SYMBOLS = 32, EXP_ESCAPE = 31;

/*
 * An entry of a table: frequency in bits 0..10, symbol in 11..15, slot - cum in 21..31: one
 * instruction takes out each number.
 */
template <int D> WARP_FN u32v entry_symbol(u32v e)
{
	constexpr int s = format<D>::shift;
	return e >> (11 - s) & (EXP_ESCAPE << s);
}

/* Phase 0: tables of a tensor, in shared memory, by all warps of a block; a lane is a symbol. */
WARP_FN void exp_tables(span<uint32_t> lut, const kvi_gpu_params *p, uint32_t warp, uint32_t warps)
{
	span<const uint16_t> freq = span_at<const uint16_t>(p->freq, p->n_tables * EXP_SYMBOLS);
	for (uint32_t t = warp; t < p->n_tables; t += warps) {
		u32v f = ldg(freq, lanes() + t * EXP_SYMBOLS), cum = f;
		for (uint32_t d = 1; d < 32; d *= 2) {
			u32v up = shuffle(cum, lanes() - d);
			cum += select(lanes() >= d, up, splat(0));
		}
		cum -= f;
		/* the last symbol that begins at or before the slot: one of frequency 0 does not
		 * matter, as the next one begins there, too */
		for (uint32_t s = 0; s < SLOTS; s += 32) {
			u32v slot = lanes() + s, sym = splat(0);
			for (uint32_t d = 16; d; d /= 2) {
				u32v at = sym + d;
				sym = select(shuffle(cum, at) <= slot, at, sym);
			}
			u32v e = shuffle(f, sym) | sym << 11 | (slot - shuffle(cum, sym)) << 21;
			st(lut, slot + t * SLOTS, e);
		}
	}
}

/* ring: of each element's channel where its table begins, in bytes, and above it the top. */
template <int D>
WARP_FN void exp_ring(span<uint32_t> ring, const kvi_gpu_params *p, const kvi_gpu_opened *o,
                      span<const uint32_t> columns, uint32_t warp, uint32_t warps)
{
	span<const uint8_t> table = span_at<const uint8_t>(p->table, p->channels);
	span<const uint8_t> top = span_at<const uint8_t>(p->top, p->channels);
	const uint32_t n = ring_length(o->columns) + 128;
	for (uint32_t i = warp * 32; i < n; i += warps * 32) {
		u32v at = lanes() + i;
		boolv in = at < n;
		u32v channel = ldg_if(columns, at % o->columns, in);
		u32v t = ldg_if(table, channel, in), x = ldg_if(top, channel, in);
		st_if(ring, at, t * (4 * SLOTS) | x << (16 + format<D>::shift), in);
	}
}

/* One step; returns the exponents, moved by shift; `bad` collects what is no exponent. */
template <int D, bool ALL>
WARP_FN u32v exp_step(words_in *w, u32v *state, span<const uint32_t> lut, u32v ring, u32v *bad,
                      boolv active)
{
	u32v s = *state;
	u32v e = ld_byte_at(lut, (s & 2047) * 4 + (ring & 0xffff));
	u32v next = (e & 2047) * (s >> 11) + (e >> 21);
	s = ALL ? next : select(active, next, s);
	s = renorm(w, s, s < STATE_LOW);
	u32v sym = entry_symbol<D>(e);
	u32v x = (ring >> 16) - sym;
	boolv escaped = sym == EXP_ESCAPE << format<D>::shift;
	if (!ALL)
		escaped = escaped & active;
	uint32_t mask = mask_of(escaped);
	if (mask) { /* rare */
		words_refill(w);
		u32v raw = s & 255;
		s = select(escaped, s >> 8, s);
		s = renorm(w, s, lane_in(mask & mask_of(s < STATE_LOW)));
		x = select(escaped, raw << format<D>::shift, x);
	}
	words_refill(w);
	*bad |= ALL ? x : select(active, x, splat(0));
	*state = s;
	return x;
}

/* Sign and mantissa of elements, in position, from their planes (spec rans 5). */
template <int D> struct rest_planes {
	span<const uint8_t> p[3];
	uint32_t keep[3];
};

/* Bits of an element in each plane. */
template <int D> WARP_FN uint32_t plane_bits(int i)
{
	if (D == 4)
		return 4;
	return i == 0 ? 8 : i == 1 ? 2 : 1;
}

/* The byte of element first + lane in a plane with 2^PER elements a byte; first: n * 32. */
template <int D, int PER>
WARP_FN u32v plane_byte(const rest_planes<D> *r, int plane, uint32_t first, boolv in)
{
	return ldg_if(r->p[plane], (lanes() + first) >> PER & r->keep[plane], in);
}

/* The plane bits of element first + lane behind those that were skipped; bf16: the byte of its
 * plane. */
template <int D> WARP_FN u32v rest_load(const rest_planes<D> *r, uint32_t first, boolv in)
{
	const u32v l = lanes();
	if (D == 4) {
		u32v v = plane_byte<D, 1>(r, 0, first, in) >> (l & 1) * 4;
		return (v & 7) | (v & 8) << 4;
	}
	u32v a = plane_byte<D, 0>(r, 0, first, in);
	if (D == 3)
		return a;
	return a | (plane_byte<D, 2>(r, 1, first, in) >> (l & 3) * 2 & 3) << 8 |
	       (plane_byte<D, 3>(r, 2, first, in) >> (l & 7) & 1) << 15;
}

/* Skips n elements, a multiple of 32. */
template <int D> WARP_FN void rest_skip(rest_planes<D> *r, uint32_t n)
{
	UNROLL
	for (int i = 0; i < format<D>::planes; i++) {
		const uint32_t bits = plane_bits<D>(i);
		r->p[i] = skip(r->p[i], n / 8 * bits & r->keep[i]);
	}
}

template <int D>
WARP_FN void rest_open(rest_planes<D> *r, const kvi_gpu_chunk *c, const kvi_gpu_opened *o,
                       uint32_t first)
{
	const uint32_t n = o->rows * o->columns;
	UNROLL
	for (int i = 0; i < format<D>::planes; i++) {
		const uint32_t keep = o->plane[i].keep;
		const uint32_t bytes = keep ? (n * plane_bits<D>(i) + 7) / 8 : 1;
		r->keep[i] = keep;
		r->p[i] = span_at<const uint8_t>(c->payload + o->plane[i].at, bytes);
	}
	rest_skip(r, first);
}

/* Exponents and the rest as elements. bf16: its plane has sign and mantissa in one byte. */
template <int D> WARP_FN u32v exp_merge(u32v x, u32v rest)
{
	if (D == 3)
		return (bytes_of(rest, rest, splat(0x4400)) & 0x807f) | x;
	return rest | x << (format<D>::m - format<D>::shift);
}

/* Phase 1. Whether the stream was good. */
template <int D>
WARP_FN bool exp_decode(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t number,
                        span<const uint32_t> lut, span<const uint32_t> ring)
{
	typedef typename element_of<format<D>::size>::type element;
	const uint32_t C = o->columns, first_row = number * o->stream_tokens;
	const uint32_t rows = o->rows - first_row;
	const uint32_t n = uniform((rows < o->stream_tokens ? rows : o->stream_tokens) * C);
	const uint32_t length = uniform(ring_length(C)), first = first_row * C;
	span<element> out =
		span_at<element>(c->packed + (uint64_t)first * format<D>::size, n);
	words_in w;
	words_open(&w, c->payload + o->stream[number].words, uniform(o->stream[number].n_words));
	u32v l = lanes(), bad = splat(0);
	u32v s = ldg(span_at<const uint32_t>(c->payload + o->stream[number].states, 32), l);
	rest_planes<D> planes;
	rest_open<D>(&planes, c, o, first);
	const boolv all = l < 32;

	uint32_t at = 0, left = n;
	if (left >= 128) {
		u32v rest[4];
		UNROLL
		for (uint32_t k = 0; k < 4; k++)
			rest[k] = rest_load<D>(&planes, 32 * k, all);
		while (left >= 128) {
			left -= 128;
			rest_skip(&planes, left >= 128 ? 128 : 0);
			u32v next[4];
			UNROLL
			for (uint32_t k = 0; k < 4; k++)
				next[k] = rest_load<D>(&planes, 32 * k, all);
			UNROLL
			for (uint32_t k = 0; k < 4; k++) {
				u32v x = exp_step<D, true>(&w, &s, lut, ld(ring, l + (at + 32 * k)),
				                           &bad, all);
				st_once(out, l + 32 * k, exp_merge<D>(x, rest[k]));
				rest[k] = next[k];
			}
			out = skip(out, 128);
			at += 128;
			at = at >= length ? at - length : at;
		}
		rest_skip(&planes, left ? 128 : 0);
	}
	for (uint32_t i = 0; i < left; i += 32, at += 32) {
		boolv active = l + i < left;
		u32v x = exp_step<D, false>(&w, &s, lut, ld(ring, l + at), &bad, active);
		x = exp_merge<D>(x, rest_load<D>(&planes, i, active));
		st_if(out, l + i, x, active);
	}
	return stream_ended(&w, s) && any_of(bad) >> (format<D>::e + format<D>::shift) == 0;
}

#endif
