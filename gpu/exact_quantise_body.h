/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_quantise_body.h - integers of floats, as operands of products (spec/arithmetic.md 2) */
#ifndef KVI_GPU_EXACT_QUANTISE_BODY_H
#define KVI_GPU_EXACT_QUANTISE_BODY_H

#include "exact_product_body.h"

/* Columns that a lane has: they are 8 bytes of a step. */
constexpr uint32_t UNIT = 8, KEY_BLOCK = KVI_GPU_KEY_BLOCK;

/* The larger one of lanes that differ in bits below `lanes_a_group`; patterns of numbers that are
 * not negative are ordered as integers. */
WARP_FN u32v most_of_lanes(u32v bits, uint32_t lanes_a_group)
{
	for (uint32_t d = 1; d < lanes_a_group; d *= 2)
		bits = max_signed(bits, shuffle(bits, lanes() ^ d));
	return bits;
}

WARP_FN u32v sum_of_lanes(u32v v, uint32_t lanes_a_group)
{
	for (uint32_t d = 1; d < lanes_a_group; d *= 2)
		v += shuffle(v, lanes() ^ d);
	return v;
}

/* The scale of a group whose largest magnitude has these bits. */
WARP_FN f32v group_scale(u32v most, f32v largest)
{
	return f_max(f_div(f_of_bits(most), largest), f_splat(0x1p-60f));
}

/* clamp(rint(x * inverse), largest). The magnitude is below 2^22: x is not above the maximum that
 * the scale is of. */
WARP_FN u32v quantised(f32v x, f32v inverse, uint32_t largest)
{
	const f32v t = f_add(f_mul(x, inverse), f_splat(EXACT_MAGIC));
	const u32v v = f_bits(t) - EXACT_MAGIC_BITS;
	return max_signed(min_signed(v, splat(largest)), splat(0u - largest));
}

/* The low bytes of four integers. */
WARP_FN u32v pack_bytes(u32v a, u32v b, u32v c, u32v d)
{
	return bytes_of(bytes_of(a, b, splat(0x0040)), bytes_of(c, d, splat(0x0040)),
	                splat(0x5410));
}

/* High bytes of integers of more bits: planes of W15, or limbs. */
WARP_FN u32v high_part(u32v v, bool planes)
{
	return sar(planes ? v + 64 : v, 7);
}

/* x, or 0 where it is not finite. */
WARP_FN u32v finite_bits(u32v bits)
{
	return select((bits & 0x7f800000) == 0x7f800000, splat(0), bits);
}

/* Where a row lies, and what it has. */
struct quantise_row {
	span<const uint32_t> x;
	uint32_t at; /* of x */
	bool whole;  /* units are 16 bytes, aligned, and whole */
};

WARP_FN quantise_row row_of(const kvi_gpu_quantise *q, uint32_t token, uint32_t part)
{
	quantise_row r;
	r.x = span_at<const uint32_t>(q->x, (size_t)q->tokens * q->x_stride);
	r.at = token * q->x_stride + part * q->columns;
	r.whole = r.at % 4 == 0 && q->columns % UNIT == 0;
	return r;
}

/* The numbers of a unit of each lane; 0 behind the last column. */
WARP_FN void load_unit(const kvi_gpu_quantise *q, const quantise_row *r, u32v unit, u32v x[UNIT])
{
	if (r->whole) {
		const boolv ok = unit * UNIT < q->columns;
		const u32v at = unit * 2 + r->at / 4;
		ldg_words_if(r->x, at, ok, x);
		ldg_words_if(r->x, at + 1, ok, x + 4);
	} else {
		UNROLL
		for (uint32_t i = 0; i < UNIT; i++) {
			const u32v column = unit * UNIT + i;
			x[i] = ldg_if(r->x, column + r->at, column < q->columns);
		}
	}
	UNROLL
	for (uint32_t i = 0; q->finite && i < UNIT; i++)
		x[i] = finite_bits(x[i]);
}

WARP_FN u32v most_of_unit(const u32v x[UNIT])
{
	u32v most = splat(0);
	UNROLL
	for (uint32_t i = 0; i < UNIT; i++)
		most = max_signed(most, x[i] & 0x7fffffff);
	return most;
}

/* Stores the bytes of integers v of a unit, 4 at byte `at` of memory, 4 `apart` bytes further. */
WARP_FN void store_unit(span<uint32_t> to, u32v at, uint32_t apart, const u32v v[UNIT], boolv ok)
{
	st_if(to, at >> 2, pack_bytes(v[0], v[1], v[2], v[3]), ok);
	st_if(to, (at + apart) >> 2, pack_bytes(v[4], v[5], v[6], v[7]), ok);
}

/* Integers of a unit, and their sum. */
WARP_FN u32v put_unit(const kvi_gpu_quantise *q, const span<uint32_t> to[2], u32v at,
                      const u32v x[UNIT], f32v inverse, boolv ok)
{
	u32v v[UNIT], high[UNIT], sum = splat(0);
	UNROLL
	for (uint32_t i = 0; i < UNIT; i++) {
		v[i] = quantised(f_of_bits(x[i]), inverse, q->largest);
		sum += v[i];
		high[i] = high_part(v[i], q->planes != 0);
	}
	const uint32_t apart = q->keys ? 4 : 8;
	if (!q->to[1]) {
		store_unit(to[0], at, apart, v, ok);
		return sum;
	}
	store_unit(to[0], at, apart, high, ok);
	UNROLL
	for (uint32_t i = 0; i < UNIT; i++)
		v[i] -= high[i] << 7;
	store_unit(to[1], at, apart, v, ok);
	return sum;
}

/* Units of a group, and where they lie. */
struct quantise_groups {
	uint32_t units, steps, n; /* of a group: units, steps; groups of a row */
};

WARP_FN quantise_groups groups_of(const kvi_gpu_quantise *q)
{
	quantise_groups g;
	g.units = q->group / UNIT;
	g.steps = g.units < 4 ? 1 : g.units / 4;
	g.n = (q->columns + q->group - 1) / q->group;
	return g;
}

/* Where a unit of row `row` of the operand begins (exact_job.h). */
WARP_FN u32v unit_byte(const kvi_gpu_quantise *q, const quantise_groups *g, u32v unit, uint32_t row)
{
	const u32v group = unit / g->units, in = unit % g->units;
	const u32v step = group * g->steps + (in >> 2), column = in & 3;
	if (q->keys) {
		const uint32_t tile = row / TILE_OUTPUTS * (q->stride / 64);
		const u32v piece = ((step >> 1) + tile) * (TILE_OUTPUTS / 8) +
		                   row % TILE_OUTPUTS / 8;
		return piece * PIECE_BYTES + column * 16 + (step & 1) * 8 + row % 8 * 64;
	}
	const uint32_t tile = row / TILE_ROWS * (q->stride / 32);
	const u32v piece = (step + tile) * (TILE_ROWS / 16) + row % TILE_ROWS / 16;
	return piece * PIECE_BYTES + column * 16 + row % 8 * 64 + row / 8 % 2 * 4;
}

/* The largest magnitude of a row. */
WARP_FN u32v most_of_row(const kvi_gpu_quantise *q, const quantise_row *r)
{
	u32v most = splat(0);
	for (uint32_t unit = 0; unit * UNIT < q->columns; unit += 32) {
		u32v x[UNIT];
		load_unit(q, r, lanes() + unit, x);
		most = max_signed(most, most_of_unit(x));
	}
	return most_of_lanes(most, 32);
}

/* A row of a token, by a warp. */
WARP_FN void run_quantise(const kvi_gpu_quantise *q, uint32_t row)
{
	const uint32_t token = row / q->parts, part = row % q->parts;
	if (token >= q->tokens)
		return;
	const quantise_row r = row_of(q, token, part);
	const quantise_groups g = groups_of(q);
	const uint32_t out = part * q->part_rows + token;
	const size_t rows = (size_t)q->parts * q->part_rows;
	const size_t words = rows * (q->stride / 4), numbers = rows * g.n;
	const span<uint32_t> to[2] = { span_at<uint32_t>(q->to[0], words),
		                       span_at<uint32_t>(q->to[1], q->to[1] ? words : 0) };
	span<uint32_t> scales = span_at<uint32_t>(q->scale, q->row_scale ? rows : numbers);
	span<uint32_t> sums = span_at<uint32_t>(q->sum, q->sum ? numbers : 0);
	const f32v largest = f_int(splat(q->largest));
	const uint32_t in_tile = kvi_gpu_row_at(out % TILE_ROWS);
	const uint32_t tile = out / TILE_ROWS;
	f32v scale = f_splat(0);
	if (q->row_scale) {
		scale = group_scale(most_of_row(q, &r), largest);
		st_float_if(scales, splat(out), scale, lanes() == 0);
	}
	for (uint32_t first = 0; first * UNIT < q->columns; first += 32) {
		const u32v unit = lanes() + first, group = unit / g.units;
		/* of keys what no column has is 0, too, up to the end of the chunk */
		const boolv ok = unit < (q->keys ? q->stride / UNIT : g.n * g.units);
		const boolv leads = (group < g.n) & (unit % g.units == 0);
		const u32v at = (group + tile * g.n) * TILE_ROWS + in_tile;
		u32v x[UNIT];
		load_unit(q, &r, unit, x);
		if (!q->row_scale) {
			scale = group_scale(most_of_lanes(most_of_unit(x), g.units), largest);
			st_float_if(scales, at, scale, leads);
		}
		const u32v byte = unit_byte(q, &g, unit, out);
		const u32v sum = put_unit(q, to, byte, x, f_div(f_splat(1), scale), ok);
		if (q->sum)
			st_if(sums, at, sum_of_lanes(sum, g.units), leads);
	}
}

/* Bytes of a lane of attention in a step of 32 tokens: byte i is token 8 * (i / 2) + 2 * column +
 * i % 2 of it, the scores that the lane has (add_products). */
WARP_FN uint32_t value_token(uint32_t column, uint32_t i)
{
	return i / 2 * 8 + column * 2 + i % 2;
}

/* The scales of 32 tokens, a lane a token, from `first` on. */
WARP_FN f32v value_scales(const kvi_gpu_values *q, span<const uint32_t> x, uint32_t head,
                          uint32_t first, f32v largest)
{
	const u32v token = lanes() + first;
	const boolv here = token < q->tokens;
	u32v most = splat(0);
	for (uint32_t c = 0; c < q->channels; c++) {
		const u32v at = token * q->x_stride + head * q->channels + c;
		most = max_signed(most, finite_bits(ldg_if(x, at, here)) & 0x7fffffff);
	}
	return group_scale(most, largest);
}

/* Step `step` of 32 tokens of a head of keys, by a warp: a lane a token, then a channel. */
WARP_FN void run_values(const kvi_gpu_values *q, uint32_t head, uint32_t step)
{
	const bool wide = q->to[1] != 0;
	const uint32_t largest = wide ? 16319 : 127, first = step * KVI_GPU_STEP_COLUMNS;
	const uint32_t block = first / KEY_BLOCK, in_block = first % KEY_BLOCK;
	if (head >= q->heads || block >= q->blocks)
		return;
	const size_t rows = (size_t)q->heads * q->blocks * q->v_rows;
	const size_t words = rows * (KEY_BLOCK / 4);
	const span<uint32_t> top = span_at<uint32_t>(q->to[0], words);
	const span<uint32_t> low = span_at<uint32_t>(wide ? q->to[1] : q->to[0], words);
	span<uint32_t> scales = span_at<uint32_t>(q->scale,
	                                          (size_t)q->heads * q->blocks * KEY_BLOCK);
	span<const uint32_t> x = span_at<const uint32_t>(q->x, (size_t)q->tokens * q->x_stride);
	const f32v scale = value_scales(q, x, head, first, f_int(splat(largest)));
	const f32v inverse = f_div(f_splat(1), scale);
	st_float_if(scales, lanes() + head * q->blocks * KEY_BLOCK + first, scale, lanes() < 32);
	for (uint32_t c = 0; c < q->v_rows; c += 32) {
		const u32v channel = lanes() + c;
		const boolv ok = channel < q->v_rows;
		const uint32_t of_block = (head * q->blocks + block) * q->v_rows * KEY_BLOCK;
		const uint32_t of_step = in_block / 64 * PIECE_BYTES + in_block / 32 % 2 * 8;
		const u32v at = (channel >> 3) * (8 * KEY_BLOCK) + (channel & 7) * 64 +
		                (of_block + of_step);
		for (uint32_t column = 0; column < 4; column++) {
			u32v v[UNIT], high[UNIT];
			UNROLL
			for (uint32_t i = 0; i < UNIT; i++) {
				const uint32_t k = value_token(column, i);
				const uint32_t token = first + k;
				const boolv here = channel < (token < q->tokens ? q->channels : 0);
				const u32v from = channel + token * q->x_stride +
				                  head * q->channels;
				const u32v bits = finite_bits(ldg_if(x, from, here));
				v[i] = quantised(f_of_bits(bits),
				                 f_of_bits(shuffle(f_bits(inverse), splat(k))),
				                 largest);
				high[i] = high_part(v[i], true);
			}
			if (wide) {
				store_unit(top, at + column * 16, 4, high, ok);
				UNROLL
				for (uint32_t i = 0; i < UNIT; i++)
					v[i] -= high[i] << 7;
			}
			store_unit(low, at + column * 16, 4, v, ok);
		}
	}
}

#endif
