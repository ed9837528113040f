/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_contexts_body.h - contexts of elements of codec 5 (spec grid 2, 3), a lane a channel */
#ifndef KVI_GPU_GRID_CONTEXTS_BODY_H
#define KVI_GPU_GRID_CONTEXTS_BODY_H

#include "stream_words_body.h"

constexpr uint32_t BIAS = 127;

/* The coded element of a format (spec grid). emin without its sign. */
template <int D> struct grid_format {
	static constexpr uint32_t m = format<D>::m;
	static constexpr uint32_t least = D == 3 ? 126 : D == 4 ? 6 : 14;
	static constexpr uint32_t zeros = D == 2 ? 5 : D == 4 ? 11 : 7;
	static constexpr uint32_t bits = format<D>::size == 1 ? 8 : 16;
	/* whether a grid can be near subnormal numbers: not that of bf16, as k is at least -400 */
	static constexpr bool subnormals = D != 3;
};

/* v * 2^e as a binary32 pattern; |v| <= 2^24, the products are normal numbers or 0. */
WARP_FN u32v scaled_bits(u32v v, u32v e)
{
	return select(v != 0, float_bits(v) + (e << 23), splat(0));
}

WARP_FN u32v mantissa(u32v bits)
{
	return (bits & 0x7fffff) | 0x800000;
}

/* The context of elements whose mean has the bit pattern mu, and whose class is k. */
template <int D> WARP_FN u32v grid_context(u32v mu, u32v k)
{
	constexpr uint32_t m = grid_format<D>::m;
	const u32v kq = sar(k, 2), am = mu & 0x7fffffff;
	u32v ms = select((k & 1) != 0, splat(0x9837f0), splat(0x800000));
	ms = select((k & 2) != 0, select((k & 1) != 0, splat(0xd744fd), splat(0xb504f3)), ms);
	/* the exponent of |mu| + 2 sigma: that of 2 sigma is 28 at least, so that a mu with
	 * exponent 0 is shifted out */
	const u32v xa = am >> 23, xs = kq + 128, x = max_signed(xa, xs);
	const u32v sum = shift_right(mantissa(am), x - xa) + shift_right(ms, x - xs);
	u32v g = max_signed(kq + 126, x + (sum >> 24) - m);
	if (grid_format<D>::subnormals)
		g = max_signed(g, splat(BIAS - grid_format<D>::least - m));
	const u32v ar = am + (1u << (22 - m));
	const u32v y = shift_right(mantissa(ar), g + 20 - (ar >> 23));
	u32v k4 = k - (g - BIAS) * 4;
	k4 = max_signed(min_signed(k4, splat(7)), splat(0u - 16));
	const u32v table = (k4 + 16) * 8 + (y & 7);
	return table | g << 8 | y >> 3 << 16 | (mu & 0x80000000);
}

/* The channels of columns; without work memory nothing is masked. */
WARP_FN u32v column_channel(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, u32v column, boolv on)
{
	if (!c->columns)
		return column;
	return ld_if(span_at<const uint32_t>(c->columns, o->columns), column, on);
}

/* The context of a channel whose mean does not rotate. */
template <int D>
WARP_FN u32v fixed_context(span<const int16_t> mean, span<const int16_t> k, u32v channel, boolv on)
{
	const u32v class_ = ldg_if(k, channel, on);
	return grid_context<D>(scaled_bits(ldg_if(mean, channel, on), sar(class_, 2) - 4), class_);
}

/* A ring of contexts: nothing rotates, so that all tokens have the same ones. A warp for each 32
 * entries. */
template <int D>
WARP_FN void ring_contexts(const kvi_gpu_chunk *c, kvi_gpu_opened *o, const kvi_gpu_params *p,
                           uint32_t warp)
{
	const uint32_t ring = ring_length(o->columns), n = ring + 128;
	span<const int16_t> mean = span_at<const int16_t>(p->mean, p->channels);
	span<const int16_t> k = span_at<const int16_t>(p->k, p->channels);
	span<const uint32_t> columns = span_at<const uint32_t>(c->columns, o->columns);
	span<uint32_t> to = span_at<uint32_t>(c->contexts, n);
	o->ring = ring;
	if (warp * 32 >= n)
		return;
	const u32v at = lanes() + warp * 32;
	const boolv on = at < n;
	st_if(to, at, fixed_context<D>(mean, k, ld_if(columns, at % o->columns, on), on), on);
}

/* A channel, and the other one of its pair. Where it does not rotate, k_a and k_b are its own. */
struct channel_pair {
	u64v frequency;
	u32v own, other, k_a, k_b; /* means; classes of channels a and b */
	boolv second, rotates;     /* it is b */
};

WARP_FN channel_pair channel_pair_of(const kvi_gpu_params *p, span<const int16_t> mean,
                                     span<const int16_t> k, u32v channel, boolv on)
{
	const uint32_t half = p->rotary / 2;
	const u32v n = channel % p->head_channels;
	channel_pair x;
	x.rotates = on & (n < p->rotary);
	x.second = p->interleaved ? (n & 1) != 0 : n >= half;
	const u32v i = p->interleaved ? n >> 1 : select(x.second, n - half, n);
	const uint32_t step = p->interleaved ? 1 : half;
	const u32v other = select(x.second, channel - step, channel + step);
	span<const uint64_t> frequency = span_at<const uint64_t>(p->rope, half);
	x.frequency = ld64(frequency, select(x.rotates, i, splat(0)));
	x.own = ldg_if(mean, channel, on);
	x.other = ldg_if(mean, other, x.rotates);
	const u32v own = ldg_if(k, channel, on);
	const u32v paired = select(x.rotates, ldg_if(k, other, x.rotates), own);
	x.k_a = select(x.second, paired, own);
	x.k_b = select(x.second, own, paired);
	return x;
}

/* A pair of rotating channels, as the lane of one of the two knows it. */
struct rotating_pair {
	u64v frequency;
	u32v own, other;      /* means; other with the sign of sine */
	u32v least, exponent; /* k of b; of both means */
	u32v scales, turned;  /* row of the scales; 32 for b */
	boolv rotates;
};

WARP_FN rotating_pair pair_of(const kvi_gpu_params *p, span<const int16_t> mean,
                              span<const int16_t> k, u32v channel, boolv on)
{
	const channel_pair x = channel_pair_of(p, mean, k, channel, on);
	const u32v d = max_signed(min_signed(x.k_a - x.k_b, splat(32)), splat(0u - 32));
	rotating_pair r;
	r.frequency = x.frequency;
	r.own = x.own;
	r.other = select(x.second, x.other, 0 - x.other);
	r.least = x.k_b;
	r.exponent = sar(max_signed(x.k_a, x.k_b), 2) - 12;
	r.scales = (d + 32) * 64;
	r.turned = select(x.second, splat(32), splat(0));
	r.rotates = x.rotates;
	return r;
}

/* Contexts of all tokens of 32 columns. */
template <int D>
WARP_FN void rotated_contexts(const kvi_gpu_chunk *c, kvi_gpu_opened *o, const kvi_gpu_params *p,
                              const kvi_gpu_tables *tables, uint32_t warp)
{
	const uint32_t n = o->columns;
	span<const int16_t> mean = span_at<const int16_t>(p->mean, p->channels);
	span<const int16_t> k = span_at<const int16_t>(p->k, p->channels);
	span<const int16_t> cosine = span_at<const int16_t>(tables->cosine, 4096);
	span<const int8_t> scale = span_at<const int8_t>(tables->scale, 65 * 64);
	span<const int32_t> positions = span_at<const int32_t>(c->positions, c->tokens);
	span<uint32_t> to = span_at<uint32_t>(c->contexts, (size_t)o->rows * n);
	o->ring = 0;
	if (warp * 32 >= n)
		return;
	const u32v column = lanes() + warp * 32;
	const boolv on = column < n;
	const u32v channel =
		ld_if(span_at<const uint32_t>(c->columns, n), column, on);
	const rotating_pair r = pair_of(p, mean, k, channel, on);
	const u32v fixed = fixed_context<D>(mean, k, channel, on);
	for (uint32_t row = 0; row < o->rows; row++) {
		const uint32_t position = ldg_one(positions, o->token[row]);
		const u64v turn = r.frequency * (uint64_t)(int64_t)(int32_t)position;
		const u32v angle = ((low_half(turn >> (uint64_t)51) + 1) >> 1) & 4095;
		const u32v cos = ldg(cosine, angle), sin = ldg(cosine, (angle + 3072) & 4095);
		const u32v v = sar(r.own * cos + r.other * sin, 6);
		const u32v class_ = r.least + ldg(scale, r.scales | ((angle >> 5 & 63) ^ r.turned));
		const u32v x = grid_context<D>(scaled_bits(v, r.exponent), class_);
		st_if(to, column + row * n, select(r.rotates, x, fixed), on);
	}
}

/* Warps that a chunk needs. */
WARP_FN uint32_t context_warps(const kvi_gpu_opened *o, const kvi_gpu_params *p)
{
	return ((p->rotary ? o->columns : ring_length(o->columns) + 128) + 31) / 32;
}

#endif
