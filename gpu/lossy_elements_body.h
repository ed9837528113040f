/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lossy_elements_body.h - coefficients of channels to elements: gain, mean or prediction, RoPE, the
 * dtype (spec lossy 2, 3, had 3, klt 2); exact tokens
 *
 * fp32 in patterns, every operation rounded for itself.
 */
#ifndef KVI_GPU_LOSSY_ELEMENTS_BODY_H
#define KVI_GPU_LOSSY_ELEMENTS_BODY_H

#include "lossy_transform_body.h"

/* Words that a warp has in shared memory: a row is a channel, of 32 tokens, and one word more, so
 * that columns are in different banks, too. */
constexpr uint32_t TILE_ROW = 33, TILE_WORDS = 32 * TILE_ROW;
constexpr uint32_t FLIPPED_LOW = 0x7f4a7c15, FLIPPED_HIGH = 0x9e3779b9, ROOT_HALF = 0x3f3504f3;

/* The least exponent of a format, its largest finite pattern. */
template <int D> struct lossy_format;
template <> struct lossy_format<1> {
	static constexpr int emin = -126;
	static constexpr uint32_t largest = 0x7f7fffff;
};
template <> struct lossy_format<2> {
	static constexpr int emin = -14;
	static constexpr uint32_t largest = 0x7bff;
};
template <> struct lossy_format<3> {
	static constexpr int emin = -126;
	static constexpr uint32_t largest = 0x7f7f;
};
template <> struct lossy_format<4> {
	static constexpr int emin = -6;
	static constexpr uint32_t largest = 0x7e;
};
template <> struct lossy_format<5> {
	static constexpr int emin = -14;
	static constexpr uint32_t largest = 0x7b;
};

/* Numbers as elements (spec lossy 2). */
template <int D> WARP_FN u32v narrow(u32v x)
{
	constexpr int m = format<D>::m, emin = lossy_format<D>::emin;
	constexpr uint32_t lost = 23 - m;
	const u32v size = x & 0x7fffffff;
	u32v code = size;
	if (lost)
		code = (size + ((1u << lost >> 1) - 1) + (size >> lost & 1)) >> lost;
	if (emin != -126) {
		/* below the smallest normal number: units of the smallest of all */
		const u32v units = float_sum(float_product(size, splat(power_of(m - emin))),
		                             splat(0x4b400000));
		code = select(size < power_of(emin), units - 0x4b400000,
		              code - ((uint32_t)(126 + emin) << m));
	}
	code = select(code < lossy_format<D>::largest, code, splat(lossy_format<D>::largest));
	code |= x >> 31 << (8 * format<D>::size - 1);
	return select(size <= 0x7f800000, code, splat(0));
}

/* A block of 32 tokens on its way. */
struct lossy_tile {
	u32v token;
	span<const uint32_t> z, turns;           /* z: of the block */
	uint32_t channels, rotary, padded, step; /* channels: of a head; step: of its body */
	uint32_t row, rows;                      /* its tokens in o->token */
	bool interleaved;
	/* codec 13 */
	bool hadamard;
	span<const uint32_t> mean;
	/* codec 14 */
	u32v unit;
	span<const uint8_t> qm;
	span<const uint32_t> numbers; /* of slots (kvi_gpu_model) */
	span<const int16_t> bases;
};

WARP_FN void tile_open(lossy_tile *x, const kvi_gpu_chunk *c, const kvi_gpu_opened *o,
                       uint32_t block)
{
	uint32_t i = o->n_bodies - 1;
	while (o->body[i].block > block)
		i--;
	const kvi_gpu_body *body = &o->body[i];
	const uint32_t first = (block - body->block) * 32, left = body->rows - first;
	span<const uint16_t> token = span_at<const uint16_t>((uint64_t)(uintptr_t)o->token,
	                                                     KVI_GPU_TOKENS);
	x->row = body->row + first;
	x->rows = left < 32 ? left : 32;
	x->token = ld_if(token, lanes() + x->row, lanes() < x->rows);
	x->z = coefficients_at<const uint32_t>(c, o, block);
	x->channels = c->head_channels;
	x->padded = padded_tokens(c);
	x->step = body->step;
}

WARP_FN void tile_parameters(lossy_tile *x, const kvi_gpu_chunk *c)
{
	const kvi_gpu_params *p = (const kvi_gpu_params *)(uintptr_t)c->params;
	x->rotary = p->rotary;
	x->interleaved = p->interleaved != 0;
	x->hadamard = p->hadamard != 0;
	x->mean = span_at<const uint32_t>(p->mean, p->channels);
	x->turns = span_at<const uint32_t>(c->columns, x->rotary / 2 * x->padded);
}

WARP_FN void tile_model(lossy_tile *x, const kvi_gpu_chunk *c)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = m->heads * m->head_channels;
	x->rotary = m->rotary;
	x->interleaved = l->interleaved != 0;
	x->unit = float_product(splat(x->step), splat(power_of(-5)));
	x->qm = span_at<const uint8_t>(m->qm, C);
	x->numbers = span_at<const uint32_t>(m->slots, C * 4);
	x->bases = span_at<const int16_t>(l->bases, C * x->padded);
	x->turns = span_at<const uint32_t>(l->turns, x->rotary / 2 * x->padded);
}

/* Whether the sign of channel n of a head changes before it is transformed. */
WARP_FN bool is_flipped(uint32_t n)
{
	return (n & 32 ? FLIPPED_HIGH : FLIPPED_LOW) >> (n & 31) & 1;
}

/* The gain of a transform of 2^m channels times 2^-e, without rounding: 2^(-m/2 - e), or the root
 * of a half times 2^(-(m - 1)/2 - e). */
WARP_FN uint32_t gain_of(uint32_t m, uint32_t e)
{
	e += m / 2;
	return m & 1 ? ROOT_HALF - (e << 23) : power_of(-(int32_t)e);
}

/* Channel n of a head before RoPE, codec 13; head: its first channel. */
WARP_FN u32v had_number(const lossy_tile *x, uint32_t head, uint32_t n)
{
	const uint32_t m = x->hadamard ? part_of(x->channels, n) : 0;
	u32v z = ld(x->z, lanes() + (head + n) * 32);
	if (x->hadamard && is_flipped(n))
		z = 0 - z; /* before it is a float: there is no -0 */
	const u32v gain = float_product(splat(x->step), splat(gain_of(m, 5)));
	return float_sum(float_product(float_bits(z), gain), splat(ldg_one(x->mean, head + n)));
}

/* The same of codec 14. */
WARP_FN u32v klt_number(const lossy_tile *x, uint32_t head, uint32_t n)
{
	const uint32_t half = x->rotary / 2;
	const uint32_t pair = n < half ? 2 * n : 2 * (n - half) + 1;
	const uint32_t slot = head + (x->interleaved || n >= x->rotary ? n : pair);
	const int32_t q = (int32_t)ldg_one(x->qm, slot) - 128;
	const u32v gain = float_product(x->unit, splat(power_of(q)));
	const u32v unit = splat(power_of((int32_t)ldg_one(x->numbers, slot * 4)));
	const u32v base = ld(x->bases, x->token + slot * x->padded);
	return float_sum(float_product(float_bits(ld(x->z, lanes() + slot * 32)), gain),
	                 float_product(float_bits(base), unit));
}

template <uint32_t CODEC> WARP_FN u32v tile_number(const lossy_tile *x, uint32_t head, uint32_t n)
{
	return CODEC == CODEC_HAD ? had_number(x, head, n) : klt_number(x, head, n);
}

/* Cosines and sines of 32 tokens, as fp32 in patterns. */
struct turn_numbers {
	u32v cosine, sine;
};
WARP_FN turn_numbers turn_of(u32v both)
{
	const u32v unit = splat(power_of(-14));
	return { float_product(float_bits(sar(both << 16, 16)), unit),
		 float_product(float_bits(sar(both, 16)), unit) };
}

/* Channel n of a head, with RoPE. */
template <uint32_t CODEC> WARP_FN u32v tile_rotated(const lossy_tile *x, uint32_t head, uint32_t n)
{
	const uint32_t half = x->rotary / 2;
	const u32v one = tile_number<CODEC>(x, head, n);
	if (n >= x->rotary)
		return one;
	const bool second = x->interleaved ? n % 2 : n >= half;
	const uint32_t pair = x->interleaved ? n / 2 : second ? n - half : n;
	const uint32_t away = x->interleaved ? 1 : half;
	const u32v other = tile_number<CODEC>(x, head, second ? n - away : n + away);
	const turn_numbers t = turn_of(ld(x->turns, x->token + pair * x->padded));
	/* a cos - b sin, b cos + a sin */
	const u32v more = float_product(other, t.sine);
	return float_sum(float_product(one, t.cosine), second ? more : more ^ 0x80000000);
}

/* Elements of n channels from number `first` on, of a block, in the rows of `tile`. */
template <int D, uint32_t CODEC>
WARP_FN void make_tile(const lossy_tile *x, uint32_t first, uint32_t n, span<uint32_t> tile)
{
	uint32_t channel = first % x->channels, head = first - channel;
	for (uint32_t i = 0; i < n; i++) {
		st(tile, lanes() + i * TILE_ROW, narrow<D>(tile_rotated<CODEC>(x, head, channel)));
		channel++;
		head += channel == x->channels ? channel : 0;
		channel = channel == x->channels ? 0 : channel;
	}
}

/* Their columns, each to its token. */
template <int D>
WARP_FN void store_tile(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, const lossy_tile *x,
                        uint32_t first, uint32_t n, span<uint32_t> tile)
{
	typedef typename element_of<format<D>::size>::type element;
	for (uint32_t i = 0; i < x->rows; i++) {
		const uint64_t row = o->token[x->row + i] * (uint64_t)o->columns + first;
		st_if(span_at<element>(c->packed + row * sizeof(element), n), lanes(),
		      ld(tile, lanes() * TILE_ROW + i), lanes() < n);
	}
}

/* An exact token: row `number` behind those of the bodies. */
template <int SIZE>
WARP_FN void store_exact(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t number)
{
	typedef typename element_of<SIZE>::type element;
	const uint32_t C = o->columns, plane = (c->tokens - o->rows) * C;
	const uint64_t token = o->token[o->rows + number];
	span<const uint8_t> p = span_at<const uint8_t>(c->payload, c->payload_bytes);
	span<element> to = span_at<element>(c->packed + token * C * SIZE, C);
	for (uint32_t i = 0; i < C; i += 32) {
		const boolv on = lanes() + i < C;
		u32v v = splat(0);
		UNROLL
		for (uint32_t b = 0; b < SIZE; b++)
			v |= ldg_if(p, lanes() + (o->exact + b * plane + number * C + i), on)
			     << 8 * b;
		st_if(to, lanes() + i, v, on);
	}
}

/* Warp `warp` of a chunk whose bodies are good: 32 channels of a block, or an exact token. `tile`:
 * TILE_WORDS, the warp's. */
template <int D>
WARP_FN void store_elements(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t warp,
                            span<uint32_t> tile)
{
	const uint32_t groups = (o->columns + 31) / 32, tiles = lossy_blocks(o) * groups;
	if (warp >= tiles) {
		if (warp - tiles < c->tokens - o->rows)
			store_exact<format<D>::size>(c, o, warp - tiles);
		return;
	}
	const uint32_t first = warp % groups * 32, left = o->columns - first;
	const uint32_t n = left < 32 ? left : 32;
	lossy_tile x;
	tile_open(&x, c, o, warp / groups);
	if (c->codec == CODEC_HAD) {
		tile_parameters(&x, c);
		make_tile<D, CODEC_HAD>(&x, first, n, tile);
	} else {
		tile_model(&x, c);
		make_tile<D, CODEC_KLT>(&x, first, n, tile);
	}
	warp_barrier();
	store_tile<D>(c, o, &x, first, n, tile);
}

#endif
