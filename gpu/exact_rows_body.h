/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_rows_body.h - everything between products, but attention (spec/arithmetic.md 1, 4, 5) */
#ifndef KVI_GPU_EXACT_ROWS_BODY_H
#define KVI_GPU_EXACT_ROWS_BODY_H

#include "exact_job.h"
#include "warp_float.h"

/* spec/arithmetic.md 1: of numbers that are not above 0. */
WARP_FN f32v exact_exp(f32v x)
{
	const f32v magic = f_splat(12582912.0f);
	const f32v t = f_add(f_mul(x, f_splat(0x1.715476p+0f)), magic), f = f_sub(t, magic);
	const u32v n = f_bits(t) - 0x4b400000u;
	const f32v r = f_sub(f_sub(x, f_mul(f, f_splat(0x1.63p-1f))),
	                     f_mul(f, f_splat(-0x1.bd0106p-13f)));
	f32v p = f_add(f_mul(f_splat(0x1.a0d2cep-13f), r), f_splat(0x1.6e879cp-10f));
	p = f_add(f_mul(p, r), f_splat(0x1.11121p-7f));
	p = f_add(f_mul(p, r), f_splat(0x1.555382p-5f));
	p = f_add(f_mul(p, r), f_splat(0x1.555554p-3f));
	p = f_add(f_mul(p, r), f_splat(0.5f));
	p = f_add(f_add(f_mul(p, f_mul(r, r)), r), f_splat(1));
	const f32v y = f_mul(p, f_of_bits((n + 127) << 23));
	return f_choose(f_greater(x, f_splat(-87)), y, f_splat(0));
}

WARP_FN f32v exact_silu(f32v x)
{
	const f32v e = exact_exp(f_negative(f_abs(x))), one = f_splat(1);
	const f32v over = f_choose(f_at_least(x, f_splat(0)), one, e);
	return f_mul(x, f_div(over, f_add(one, e)));
}

WARP_FN f32v exact_gelu(f32v x)
{
	const f32v one = f_splat(1), cube = f_mul(f_mul(x, x), x);
	const f32v u = f_mul(f_splat(0x1.988454p-1f),
	                     f_add(x, f_mul(f_splat(0x1.6e4e26p-5f), cube)));
	const f32v e = exact_exp(f_negative(f_mul(f_splat(2), f_abs(u))));
	const f32v h = f_div(f_sub(one, e), f_add(one, e));
	const f32v t = f_choose(f_at_least(u, f_splat(0)), h, f_negative(h));
	return f_mul(f_mul(f_splat(0.5f), x), f_add(one, t));
}

/* A token, by a warp. */
WARP_FN void run_embed(const kvi_gpu_embed *p, uint32_t token)
{
	if (token >= p->tokens)
		return;
	const bool more = p->positions != 0;
	span<const uint32_t> ids = span_at<const uint32_t>(p->ids, p->tokens);
	span<const uint32_t> at = span_at<const uint32_t>(p->position_ids, more ? p->tokens : 0);
	span<const uint32_t> table = span_at<const uint32_t>(p->table,
	                                                     (size_t)p->rows * p->columns);
	span<const uint32_t> positions = span_at<const uint32_t>(
		p->positions, more ? (size_t)p->position_rows * p->columns : 0);
	span<uint32_t> y = span_at<uint32_t>(p->y, (size_t)p->tokens * p->y_stride);
	const uint32_t row = ldg_one(ids, token) * p->columns;
	const uint32_t position = more ? ldg_one(at, token) * p->columns : 0;
	for (uint32_t c = 0; c < p->columns; c += 32) {
		const u32v column = lanes() + c;
		const boolv ok = column < p->columns;
		f32v v = f_mul(ldg_float_if(table, column + row, ok), f_splat(p->scale));
		if (more)
			v = f_add(v, ldg_float_if(positions, column + position, ok));
		st_float_if(y, column + token * p->y_stride, v, ok);
	}
}

/* Half a warp has a row, in the 16 lanes of sum16. */
constexpr uint32_t NORM_LANES = 16, NORM_ROWS = 2;

/* The end of sum16: the sum of each half warp, in all of its lanes. */
WARP_FN f32v sum_of_half(f32v v)
{
	for (uint32_t w = NORM_LANES / 2; w; w /= 2)
		v = f_add(v, f_of_bits(shuffle(f_bits(v), lanes() + w)));
	return f_of_bits(shuffle(f_bits(v), lanes() & NORM_LANES));
}

/* Two rows, in halves of a warp. */
struct norm_rows {
	span<uint32_t> x;
	u32v at; /* of the lane's first number */
	boolv here;
};

/* sum16 of x (SQUARES: of the squares of x - mean). Lanes behind the last number add 0, which
 * changes no sum, as it is never -0. */
template <bool SQUARES>
WARP_FN f32v norm_sum(const kvi_gpu_norm *p, const norm_rows *r, f32v mean, bool centred)
{
	f32v sum = f_splat(0);
	for (uint32_t c = 0; c < p->columns; c += NORM_LANES) {
		const u32v column = (lanes() & (NORM_LANES - 1)) + c;
		const boolv ok = r->here & (column < p->columns);
		f32v d = ld_float_if(r->x, r->at + c, ok);
		if (SQUARES && centred)
			d = f_choose(ok, f_sub(d, mean), f_splat(0));
		sum = f_add(sum, SQUARES ? f_mul(d, d) : d);
	}
	return sum_of_half(sum);
}

/* Rows NORM_ROWS * pair and the next one, by a warp. */
WARP_FN void run_norm(const kvi_gpu_norm *p, uint32_t pair)
{
	const u32v row = (lanes() >> 4) + pair * NORM_ROWS;
	const u32v token = row / p->parts, part = row % p->parts;
	const bool centred = p->bias != 0;
	norm_rows r;
	r.x = span_at<uint32_t>(p->x, (size_t)p->tokens * p->x_stride);
	r.here = token < p->tokens;
	r.at = token * p->x_stride + part * p->columns + (lanes() & (NORM_LANES - 1));
	span<uint32_t> y = span_at<uint32_t>(p->y, (size_t)p->tokens * p->y_stride);
	span<uint32_t> roots = span_at<uint32_t>(p->root,
	                                         p->root ? (size_t)p->tokens * p->parts : 0);
	span<const uint32_t> gain = span_at<const uint32_t>(p->gain, p->columns);
	span<const uint32_t> bias = span_at<const uint32_t>(p->bias, centred ? p->columns : 0);
	const f32v n = f_int(splat(p->columns));
	f32v mean = f_splat(0);
	if (centred)
		mean = f_div(norm_sum<false>(p, &r, mean, centred), n);
	const f32v square = f_div(norm_sum<true>(p, &r, mean, centred), n);
	const f32v root = f_sqrt(f_add(square, f_splat(p->epsilon)));
	const f32v inverse = f_div(f_splat(1), root);
	if (p->root)
		st_float_if(roots, row, root, r.here & ((lanes() & (NORM_LANES - 1)) == 0));
	for (uint32_t c = 0; c < p->columns; c += NORM_LANES) {
		const u32v column = (lanes() & (NORM_LANES - 1)) + c;
		const boolv ok = r.here & (column < p->columns);
		f32v d = ld_float_if(r.x, r.at + c, ok);
		if (centred)
			d = f_sub(d, mean);
		d = f_mul(f_mul(d, inverse), ldg_float_if(gain, column, ok));
		if (centred)
			d = f_add(d, ldg_float_if(bias, column, ok));
		st_float_if(y, token * p->y_stride + part * p->columns + column, d, ok);
	}
}

/* A token, by a warp: a lane a pair of a head. */
WARP_FN void run_rotate(const kvi_gpu_rotate *p, uint32_t token)
{
	if (token >= p->tokens)
		return;
	span<uint32_t> x = span_at<uint32_t>(p->x, (size_t)p->tokens * p->x_stride);
	span<const uint32_t> turn = span_at<const uint32_t>(p->turn,
	                                                    (size_t)p->pairs * p->capacity);
	const f32v unit = f_splat(0x1p-14f);
	for (uint32_t i = 0; i < p->heads * p->pairs; i += 32) {
		const u32v item = lanes() + i, pair = item % p->pairs;
		const boolv ok = item < p->heads * p->pairs;
		const u32v at = item / p->pairs * p->channels + pair * 2 + token * p->x_stride;
		const u32v both = ldg_if(turn, pair * p->capacity + token, ok);
		const f32v c = f_mul(f_int(sar(both << 16, 16)), unit);
		const f32v s = f_mul(f_int(sar(both, 16)), unit);
		const f32v a = ld_float_if(x, at, ok), b = ld_float_if(x, at + 1, ok);
		st_float_if(x, at, f_sub(f_mul(a, c), f_mul(b, s)), ok);
		st_float_if(x, at + 1, f_add(f_mul(b, c), f_mul(a, s)), ok);
	}
}

/* A token, by a warp. */
template <int OPERATION> WARP_FN void run_rows(const kvi_gpu_rows *p, uint32_t token)
{
	if (token >= p->tokens)
		return;
	span<uint32_t> x = span_at<uint32_t>(p->x, (size_t)p->tokens * p->x_stride);
	span<const uint32_t> y =
		span_at<const uint32_t>(p->y, p->y ? (size_t)p->tokens * p->y_stride : 0);
	for (uint32_t c = 0; c < p->columns; c += 32) {
		const u32v column = lanes() + c;
		const boolv ok = column < p->columns;
		const u32v at = column + token * p->x_stride;
		f32v v = ld_float_if(x, at, ok), w = f_splat(0);
		if (p->y)
			w = ldg_float_if(y, column + token * p->y_stride, ok);
		if (OPERATION == KVI_GPU_ADD) {
			v = f_add(v, w);
		} else {
			v = OPERATION == KVI_GPU_SILU ? exact_silu(v) : exact_gelu(v);
			if (p->y)
				v = f_mul(v, w);
		}
		st_float_if(x, at, v, ok);
	}
}

#endif
