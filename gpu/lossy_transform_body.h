/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lossy_transform_body.h - points to coefficients of channels: the Hadamard transform of codec 13
 * (spec had 3), the basis of codec 14 (spec klt 2); whole numbers, a lane a token
 */
#ifndef KVI_GPU_LOSSY_TRANSFORM_BODY_H
#define KVI_GPU_LOSSY_TRANSFORM_BODY_H

#include "lossy_codes_body.h"
#include "warp_float.h"

/* Numbers in patterns. */
WARP_FN u32v float_product(u32v a, u32v b)
{
	return f_bits(f_mul(f_of_bits(a), f_of_bits(b)));
}
WARP_FN u32v float_sum(u32v a, u32v b)
{
	return f_bits(f_add(f_of_bits(a), f_of_bits(b)));
}
WARP_FN u32v float_difference(u32v a, u32v b)
{
	return f_bits(f_sub(f_of_bits(a), f_of_bits(b)));
}

/* 2^e, -149 .. 127; 0 for others. */
WARP_FN uint32_t power_of(int32_t e)
{
	return e < -149 || e > 127 ? 0 : e < -126 ? 1u << (149 + e) : (uint32_t)(127 + e) << 23;
}

/* The length, as a power of two, of the part that has channel n of a head of `channels`: parts are
 * the bits of that number, so that n differs from it in none above. */
WARP_FN uint32_t part_of(uint32_t channels, uint32_t n)
{
	return first_lane(high_bit(splat(channels ^ n)));
}

/* The rows of points of a head of a block. */
WARP_FN span<const uint32_t> head_points(const kvi_gpu_chunk *c, uint32_t block, uint32_t head)
{
	const uint32_t pairs = (c->head_channels + 1) / 2;
	const uint64_t row = (uint64_t)block * lossy_pairs(c) + head * pairs;
	return span_at<const uint32_t>(c->decoded + row * (32 * sizeof(uint32_t)), pairs * 32);
}

/* A point of channel n of a head, whose rows are `from`. */
WARP_FN u32v load_point(span<const uint32_t> from, uint32_t n)
{
	const u32v pair = ld(from, lanes() + n / 2 * 32);
	return n % 2 ? sar(pair, 16) : sar(pair << 16, 16);
}

/* The butterflies of 2^STAGES rows that are `step` rows apart, over distances of step, 2 * step and
 * so on. points: rows of the head, where the transform begins; then n is the channel. FLOATS: rows
 * are fp32 numbers, which are there. */
template <uint32_t STAGES, bool FLOATS>
WARP_FN void mix_rows(span<uint32_t> z, uint32_t step, span<const uint32_t> points, bool begins,
                      uint32_t n)
{
	constexpr uint32_t R = 1u << STAGES;
	u32v v[R];
	UNROLL
	for (uint32_t i = 0; i < R; i++)
		v[i] = !FLOATS && begins ? load_point(points, n + i)
		                         : ld(z, lanes() + i * step * 32);
	UNROLL
	for (uint32_t s = 0; s < STAGES; s++)
		UNROLL
	for (uint32_t i = 0; i < R; i++)
		if (!(i >> s & 1)) {
			const u32v a = v[i], b = v[i + (1u << s)];
			v[i] = FLOATS ? float_sum(a, b) : a + b;
			v[i + (1u << s)] = FLOATS ? float_difference(a, b) : a - b;
		}
	UNROLL
	for (uint32_t i = 0; i < R; i++)
		st(z, lanes() + i * step * 32, v[i]);
}

/* One pass of STAGES stages over the 2^m rows of a part; done: stages before it. */
template <uint32_t STAGES, bool FLOATS>
WARP_FN void mix_pass(span<uint32_t> z, span<const uint32_t> points, uint32_t first, uint32_t m,
                      uint32_t done)
{
	const uint32_t step = 1u << done;
	for (uint32_t i = 0; i < 1u << (m - STAGES); i++) {
		const uint32_t n = (i >> done << (done + STAGES)) + (i & (step - 1));
		mix_rows<STAGES, FLOATS>(skip(z, n * 32), step, points, !done, first + n);
	}
}

/* The transform of a part of a head, whose rows are z; first: its first channel. */
template <bool FLOATS>
WARP_FN void mix_part(span<uint32_t> z, span<const uint32_t> points, uint32_t first, uint32_t m)
{
	uint32_t done = 0;
	for (; m - done >= 3; done += 3)
		mix_pass<3, FLOATS>(z, points, first, m, done);
	if (m - done == 2)
		mix_pass<2, FLOATS>(z, points, first, m, done);
	if (m - done == 1)
		mix_pass<1, FLOATS>(z, points, first, m, done);
	if (!m && !FLOATS)
		st(z, lanes(), load_point(points, first));
}

/* A head of a block of codec 13. */
WARP_FN void transform_head(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t block,
                            uint32_t head)
{
	const uint32_t hc = c->head_channels;
	const kvi_gpu_params *p = (const kvi_gpu_params *)(uintptr_t)c->params;
	const span<const uint32_t> points = head_points(c, block, head);
	span<uint32_t> z = skip(coefficients_at<uint32_t>(c, o, block), head * hc * 32);
	if (!p->hadamard) {
		for (uint32_t n = 0; n < hc; n++)
			st(z, lanes() + n * 32, load_point(points, n));
		return;
	}
	for (uint32_t n = 0; n < hc;) {
		const uint32_t m = part_of(hc, n);
		mix_part<false>(skip(z, n * 32), points, n, m);
		n += 1u << m;
	}
}

/* Sums of the slots of a panel over points: of low and of high bytes of coefficients. */
struct basis_sums {
	u32v low[PANEL], high[PANEL];
};

/* Adds n rows of points, whose coefficients are n * PANEL words. */
WARP_FN void add_points(basis_sums *s, span<const uint32_t> points,
                        span<const uint32_t> coefficients, uint32_t n)
{
	const u32v l = lanes();
	for (uint32_t p = 0; p < n; p++) {
		const u32v f = ld(points, l);
		const quad x = ldg_quad(coefficients, 0), y = ldg_quad(coefficients, 4);
		points = skip(points, 32);
		coefficients = skip(coefficients, PANEL);
		UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			s->low[i] = dot_low(f, x.v[i], s->low[i]);
			s->high[i] = dot_high(f, x.v[i], s->high[i]);
			s->low[i + 4] = dot_low(f, y.v[i], s->low[i + 4]);
			s->high[i + 4] = dot_high(f, y.v[i], s->high[i + 4]);
		}
	}
}

/* The products of a panel of a block with the rows of points of its head. matrix: of all panels. */
WARP_FN void panel_sums_of(basis_sums *s, const kvi_gpu_chunk *c, uint32_t block,
                           const linear_panel *p, uint64_t matrix)
{
	const uint32_t pairs = (c->head_channels + 1) / 2;
	const uint64_t rows = matrix + (uint64_t)p->number * pairs * PANEL * sizeof(uint32_t);
	UNROLL
	for (uint32_t i = 0; i < PANEL; i++)
		s->low[i] = s->high[i] = splat(0);
	add_points(s, head_points(c, block, p->head), span_at<const uint32_t>(rows, pairs * PANEL),
	           pairs);
}

/* A panel of a block of codec 14, by its number in the chunk. */
WARP_FN void transform_panel(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t block,
                             uint32_t number)
{
	const kvi_gpu_model *m = model_of(linear_of(c));
	const uint32_t panels = panels_of(m->head_channels);
	const linear_panel p = panel_at(m->head_channels, number / panels, number % panels);
	span<uint32_t> z = coefficients_at<uint32_t>(c, o, block);
	basis_sums s;
	panel_sums_of(&s, c, block, &p, m->basis);
	UNROLL
	for (uint32_t i = 0; i < PANEL; i++)
		st_if(z, lanes() + (p.c + i) * 32, s.low[i] + (s.high[i] << 8), splat(i) < p.slots);
}

/* Warps of a block of a chunk. */
WARP_FN uint32_t transform_warps(const kvi_gpu_chunk *c)
{
	if (c->codec == CODEC_HAD)
		return c->heads;
	return c->heads * panels_of(c->head_channels);
}

/* Angles of a rotated pair of codec 13 at all tokens. */
WARP_FN void find_lossy_turns(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint32_t pair)
{
	const kvi_gpu_params *p = (const kvi_gpu_params *)(uintptr_t)c->params;
	const uint32_t pairs = p->rotary / 2, n = padded_tokens(c);
	if (pair >= pairs)
		return;
	const u64v f = ld64(span_at<const uint64_t>(p->rope, pairs), splat(pair));
	span<uint32_t> turns = span_at<uint32_t>(c->columns, pairs * n);
	for (uint32_t t = 0; t < n; t += 32) {
		u32v angle;
		st(turns, lanes() + (pair * n + t), turns_at(c, tables, f, t, &angle));
	}
}

#endif
