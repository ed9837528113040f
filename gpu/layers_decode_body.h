/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_decode_body.h - decodes tops and streams of codec 4 (spec layers), by warps */
#ifndef KVI_GPU_LAYERS_DECODE_BODY_H
#define KVI_GPU_LAYERS_DECODE_BODY_H

#include "stream_words_body.h"

constexpr uint32_t LAYERS = 4, LAYER_BLOCK = 256, LAYER_BITS = 2, LAYER_NEXT = 3, LAYER_BYTE = 12;

/* The value of a code below LAYER_NEXT in a layer. */
WARP_FN u32v layer_value(uint32_t layer, u32v code)
{
	const uint32_t values = layer == 0   ? 0x040302
	                        : layer == 1 ? 0x060105
	                        : layer == 2 ? 0x090807
	                                     : 0x0b0a00;
	return splat(values) >> code * 8 & 255;
}

/* ----- planes ------------------------------------------------ */

/* Bits of an element in a plane of the rest. */
template <int D> WARP_FN uint32_t plane_bits(int i)
{
	if (D == 4)
		return 4;
	return i == 0 ? 8 : i == 1 ? 2 : 1;
}

/* Bytes of a plane of n codes of k bits. */
WARP_FN uint32_t plane_bytes(uint32_t n, uint32_t k)
{
	return n / LAYER_BLOCK * (LAYER_BLOCK / 8 * k) + (n % LAYER_BLOCK * k + 7) / 8;
}

/* n codes of k bits. */
struct code_plane {
	span<const uint8_t> p;
	uint32_t n, k;
};

WARP_FN code_plane plane_at(uint64_t address, uint32_t n, uint32_t k)
{
	return code_plane{ span_at<const uint8_t>(address, plane_bytes(n, k)), n, k };
}

/* The codes of lanes, number i of a block of `codes` at byte `block`; 0 where on is false. */
WARP_FN u32v block_codes(const code_plane *plane, uint32_t block, uint32_t codes, u32v i, boolv on)
{
	const uint32_t k = plane->k, bytes = (codes * k + 7) / 8;
	const u32v row = codes == LAYER_BLOCK ? i / (LAYER_BLOCK / 8 * k) : i / bytes;
	const u32v byte = ldg_if(plane->p, i - row * bytes + block, on);
	return shift_right_modulo(byte, row * k) & ((1u << k) - 1);
}

/* The codes `first` to first + 31, a multiple of 32; 0 where the plane has none. */
WARP_FN u32v plane_codes(const code_plane *plane, uint32_t first)
{
	const uint32_t begin = first / LAYER_BLOCK * LAYER_BLOCK, left = plane->n - begin;
	const u32v i = lanes() + (first - begin);
	return block_codes(plane, begin / 8 * plane->k, left < LAYER_BLOCK ? left : LAYER_BLOCK, i,
	                   i < left);
}

/* Whether bits that no code uses are 0. */
WARP_FN bool plane_ends(const code_plane *plane)
{
	const uint32_t codes = plane->n % LAYER_BLOCK, k = plane->k;
	const u32v i = lanes() + codes;
	if (!codes)
		return true;
	return any_of(block_codes(plane, plane->n / LAYER_BLOCK * (LAYER_BLOCK / 8 * k), codes, i,
	                          i * k < (codes * k + 7) / 8 * 8)) == 0;
}

/* ----- values ------------------------------------------------ */

/* Values in layers: counts of the codes of each and of the bytes, and where they begin. */
struct layers_in {
	uint32_t n[LAYERS + 1];
	uint64_t part[LAYERS + 1];
};

/* n values at `address`; counts: the four behind n. */
WARP_FN layers_in layers_at(uint64_t address, uint32_t n, uint64_t counts)
{
	span<const uint32_t> words = span_at<const uint32_t>(counts, LAYERS);
	layers_in in;
	in.n[0] = n;
	in.part[0] = address;
	UNROLL
	for (uint32_t i = 0; i < LAYERS; i++) {
		in.n[i + 1] = ldg_one(words, i);
		in.part[i + 1] = in.part[i] + plane_bytes(in.n[i], LAYER_BITS);
	}
	return in;
}

/* A layer that is read from its begin on, and what its codes LAYER_NEXT take. */
struct layer_in {
	code_plane plane;
	span<const uint8_t> next;
	uint32_t layer, n_next, used;
};

/* next: the values of the next layer. */
WARP_FN layer_in layer_open(const layers_in *in, uint32_t layer, span<const uint8_t> next)
{
	return layer_in{ plane_at(in->part[layer], in->n[layer], LAYER_BITS), next, layer,
		         in->n[layer + 1], 0 };
}

/* The values `first` to first + 31; undefined where the layer has none, or the next one too few. */
WARP_FN u32v layer_step(layer_in *in, uint32_t first)
{
	const u32v code = plane_codes(&in->plane, first);
	const uint32_t deeper = mask_of(code == LAYER_NEXT);
	const u32v at = below(deeper) + in->used;
	const u32v next = ld_if(in->next, at, lane_in(deeper) & (at < in->n_next));
	in->used += count(deeper);
	return select(lane_in(deeper), next, layer_value(in->layer, code));
}

/* Whether a layer that was read to its end is good. */
WARP_FN bool layer_ended(const layer_in *in)
{
	return in->used == in->n_next && plane_ends(&in->plane);
}

/* All values of a layer. */
WARP_FN bool layer_decode(const layers_in *in, uint32_t layer, span<const uint8_t> next,
                          span<uint8_t> to)
{
	layer_in l = layer_open(in, layer, next);
	for (uint32_t i = 0; i < in->n[layer]; i += 32) {
		const u32v v = layer_step(&l, i);
		st_if(to, lanes() + i, v, lanes() + i < in->n[layer]);
	}
	warp_barrier();
	return layer_ended(&l);
}

/* The values of layer 2 to `to`; limit: what all values are below. to, other: memory for as many
 * values as layer 1 has. */
WARP_FN bool layers_deeper(const layers_in *in, uint32_t limit, uint64_t to, uint64_t other)
{
	const uint32_t n = in->n[LAYERS];
	span<const uint8_t> bytes = span_at<const uint8_t>(in->part[LAYERS], n);
	uint32_t bad = 0;
	for (uint32_t i = 0; i < n; i += 32) {
		const boolv on = lanes() + i < n;
		const u32v v = ldg_if(bytes, lanes() + i, on);
		bad |= mask_of(on & ((v < LAYER_BYTE) | (v >= limit)));
	}
	span<uint8_t> a = span_at<uint8_t>(to, in->n[0]), b = span_at<uint8_t>(other, in->n[0]);
	return !bad && layer_decode(in, 3, bytes, a) &&
	       layer_decode(in, 2, span_at<const uint8_t>(to, in->n[3]), b) &&
	       layer_decode(in, 1, span_at<const uint8_t>(other, in->n[2]), a);
}

/* ----- tops ------------------------------------------------ */

/* The tops of the remaining channels to `tops`: base where o->tops is 0, else less the values
 * there. Their counts do not grow. Work memory of the elements is used. */
template <int D> WARP_FN bool layers_tops(const kvi_gpu_chunk *c, const kvi_gpu_opened *o)
{
	constexpr uint32_t limit = 1u << format<D>::e;
	const uint32_t n = o->columns;
	span<uint32_t> to = span_at<uint32_t>(c->columns, n);
	warp_barrier(); /* what is there was written by other lanes */
	if (!o->tops) {
		for (uint32_t i = 0; i < n; i += 32)
			st_if(to, lanes() + i, splat(o->base), lanes() + i < n);
		return true;
	}
	const layers_in in = layers_at(c->payload + o->tops, n, c->payload + o->tops_counts);
	if (!layers_deeper(&in, limit, c->decoded, c->packed))
		return false;
	layer_in l = layer_open(&in, 0, span_at<const uint8_t>(c->decoded, in.n[1]));
	for (uint32_t i = 0; i < n; i += 32) {
		const u32v v = layer_step(&l, i);
		st_if(to, lanes() + i, (o->base - v) & (limit - 1), lanes() + i < n);
	}
	return layer_ended(&l);
}

/* ----- elements ------------------------------------------------ */

/* The planes of the rest of a stream; those that are absent have no codes. */
template <int D> struct rest_planes {
	code_plane plane[format<D>::planes];
};

/* Opens the planes of n elements; returns the address behind them, where layer 1 begins. */
template <int D>
WARP_FN uint64_t rest_open(rest_planes<D> *r, uint64_t at, uint32_t n, uint32_t absent)
{
	UNROLL
	for (int i = 0; i < format<D>::planes; i++) {
		const uint32_t k = plane_bits<D>(i), codes = absent >> i & 1 ? 0 : n;
		r->plane[i] = plane_at(at, codes, k);
		at += (plane_bytes(codes, k) + 3) & ~3u;
	}
	return at;
}

/* The rest of elements `first` to first + 31. */
template <int D> WARP_FN u32v rest_step(const rest_planes<D> *r, uint32_t first)
{
	u32v rest = splat(0);
	uint32_t low = 0;
	UNROLL
	for (int i = 0; i < format<D>::planes; i++) {
		if (r->plane[i].n)
			rest |= plane_codes(&r->plane[i], first) << low;
		low += plane_bits<D>(i);
	}
	return rest;
}

template <int D> WARP_FN bool rest_ended(const rest_planes<D> *r)
{
	bool good = true;
	UNROLL
	for (int i = 0; i < format<D>::planes; i++)
		good = plane_ends(&r->plane[i]) && good;
	return good;
}

/* The elements of a stream; its values of layers 2 and 3 go to its part of `decoded` and of
 * `packed`, where elements are not yet. Whether the stream was good. */
template <int D>
WARP_FN bool layers_decode(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t number)
{
	typedef typename element_of<format<D>::size>::type element;
	constexpr uint32_t e = format<D>::e, m = format<D>::m;
	const uint32_t C = o->columns, n = uniform(stream_elements(o, number));
	const uint64_t first = (uint64_t)number * o->stream_tokens * C * format<D>::size;
	span<element> out = span_at<element>(c->packed + first, n);
	span<const uint32_t> tops = span_at<const uint32_t>(c->columns, C);
	rest_planes<D> rest;
	const uint64_t layers = rest_open<D>(&rest, c->payload + o->stream[number].planes, n,
	                                     o->absent);
	const layers_in in = layers_at(layers, n, c->payload + o->stream[number].counts);
	if (!layers_deeper(&in, 1u << e, c->decoded + first, c->packed + first))
		return false;
	layer_in l = layer_open(&in, 0, span_at<const uint8_t>(c->decoded + first, in.n[1]));
	u32v channel = lanes() % C;
	for (uint32_t i = 0; i < n; i += 32) {
		const u32v v = layer_step(&l, i);
		const u32v x = (ld(tops, channel) - v) & ((1u << e) - 1);
		const u32v y = x << (m + 1) | rest_step<D>(&rest, i);
		st_if(out, lanes() + i, y >> 1 | (y & 1) << (e + m), lanes() + i < n);
		channel += 32 % C;
		channel = select(channel >= C, channel - C, channel);
	}
	return layer_ended(&l) && rest_ended<D>(&rest);
}

#endif
