/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_product_body.h - products of integer operands on tensor cores (spec/arithmetic.md 3) */
#ifndef KVI_GPU_EXACT_PRODUCT_BODY_H
#define KVI_GPU_EXACT_PRODUCT_BODY_H

#include "exact_job.h"
#include "warp_float.h"

/* An accumulator that begins at this pattern is the pattern of 12582912 + I at the end, |I| below
 * 2^22: a subtraction gives f(I), exact. */
constexpr uint32_t EXACT_MAGIC_BITS = 0x4b400000;
constexpr float EXACT_MAGIC = 12582912.0f;

/* Sizes of exact_job.h, for arithmetic with numbers of lanes. */
constexpr uint32_t CHUNK_BYTES = KVI_GPU_CHUNK_BYTES, PIECE_BYTES = 512,
		   TILE_ROWS = KVI_GPU_TILE_ROWS, TILE_OUTPUTS = KVI_GPU_TILE_OUTPUTS;

/* The sums of a lane, of 16 rows and 8 columns of integers (add_products). */
struct exact_sums {
	u32v v[4];
};

/* Lane 4 * g + i of a warp, as add_products has it. */
WARP_FN u32v lane_row(void)
{
	return lanes() >> 2;
}
WARP_FN u32v lane_column(void)
{
	return lanes() & 3;
}

WARP_FN void begin_products(exact_sums *c, uint32_t start)
{
	UNROLL
	for (int e = 0; e < 4; e++)
		c->v[e] = splat(start);
}

/* The integers so far, times 128. */
WARP_FN void shift_products(exact_sums *c)
{
	UNROLL
	for (int e = 0; e < 4; e++)
		c->v[e] = c->v[e] << 7;
}

/* A piece of an operand (exact_job.h): a step of 16 rows of activations, a chunk of 8 rows of
 * weights. */
struct exact_piece {
	u32v words[4];
};

/* Piece `first` + `further`: the second is known when the kernel is compiled, so that it becomes
 * part of an instruction, and the address of the first serves many pieces. */
WARP_FN exact_piece load_piece(span<const uint32_t> s, uint32_t first, uint32_t further)
{
	exact_piece r;
	ldg_words(s, lanes() + first * 32, further * 32, r.words);
	return r;
}

/* Adds a step; half: which one of its chunk. */
WARP_FN void add_step(exact_sums *c, const exact_piece *a, const exact_piece *b, int half)
{
	add_products<true, true>(c->v, a->words, b->words + 2 * half);
}

/* f(I) of integers that began at EXACT_MAGIC_BITS, or (LIMBS 2) at 0. */
template <int LIMBS> WARP_FN f32v float_of_sum(u32v sum)
{
	return LIMBS == 1 ? f_sub(f_of_bits(sum), f_splat(EXACT_MAGIC)) : f_int(sum);
}

/* Parts of a warp's tile: of 16 rows, of 8 outputs. */
constexpr int TILE_MS = KVI_GPU_TILE_ROWS / 16, TILE_NS = KVI_GPU_TILE_OUTPUTS / 8;

/* The operands that a warp reads, and its sums: NS parts of a tile of outputs. */
template <int LIMBS, int PLANES, int NS> struct exact_tile {
	span<const uint32_t> a[LIMBS], w[PLANES], a_scale, w_scale, a_sum, w_minimum;
	uint32_t row_tile, output_tile, first; /* part of the tile */
	f32v acc[TILE_MS][NS][4];
};

/* The integers of a group by 8 outputs; half: that of a chunk where the group begins. */
template <int LIMBS, int STEPS>
WARP_FN void sum_group(exact_sums c[TILE_MS], const exact_piece a[LIMBS][TILE_MS][STEPS],
                       const exact_piece w[(STEPS + 1) / 2], int half)
{
	UNROLL
	for (int m = 0; m < TILE_MS; m++)
		begin_products(&c[m], LIMBS == 1 ? EXACT_MAGIC_BITS : 0);
	UNROLL
	for (int limb = 0; limb < LIMBS; limb++) {
		UNROLL
		for (int s = 0; s < STEPS; s++)
			UNROLL
		for (int m = 0; m < TILE_MS; m++)
			add_step(&c[m], &a[limb][m][s], &w[s / 2], half + s % 2);
		UNROLL
		for (int m = 0; limb + 1 < LIMBS && m < TILE_MS; m++)
			shift_products(&c[m]);
	}
}

/* Numbers of 4 rows and a group (exact_job.h), of all lanes. */
WARP_FN void load_row_numbers(span<const uint32_t> s, uint32_t tile, uint32_t groups,
                              uint32_t group, u32v to[2 * TILE_MS])
{
	ldg_words(s, lane_row() + (tile * groups + group) * 8, 0, to);
}

/* Numbers of 4 outputs: of parts n and n + 1 of the warp, n even. */
template <int LIMBS, int PLANES, int NS>
WARP_FN void load_output_numbers(const exact_tile<LIMBS, PLANES, NS> *t, span<const uint32_t> s,
                                 uint32_t groups, uint32_t group, int n, u32v to[4])
{
	const uint32_t first = (t->output_tile * groups + group) * 16 + t->first / 2;
	ldg_words(s, lane_column() * 4 + first, n / 2, to);
}

/* acc = fma(f(integers), scale, acc); up: 128 for the first of two planes. */
template <int LIMBS, int NS>
WARP_FN void scale_group(f32v acc[TILE_MS][NS][4], int n, const f32v f[TILE_MS][4],
                         const u32v sa[2 * TILE_MS], const u32v scale[4], float up)
{
	UNROLL
	for (int m = 0; m < TILE_MS; m++)
		UNROLL
	for (int e = 0; e < 4; e++) {
		f32v s = f_of_bits(scale[n % 2 * 2 + e % 2]);
		if (up > 1)
			s = f_mul(f_splat(up), s);
		if (LIMBS == 1)
			s = f_mul(f_of_bits(sa[2 * m + e / 2]), s);
		acc[m][n][e] = f_fma(f[m][e], s, acc[m][n][e]);
	}
}

/* Adds the minima of a group. */
template <int LIMBS, int PLANES, int NS>
WARP_FN void add_minima(exact_tile<LIMBS, PLANES, NS> *t, uint32_t groups, uint32_t group,
                        const u32v sa[2 * TILE_MS])
{
	u32v sum[2 * TILE_MS];
	f32v f[TILE_MS][4];
	load_row_numbers(t->a_sum, t->row_tile, groups, group, sum);
	UNROLL
	for (int m = 0; m < TILE_MS; m++)
		UNROLL
	for (int e = 0; e < 4; e++)
		f[m][e] = f_int(sum[2 * m + e / 2]);
	UNROLL
	for (int n = 0; n < NS; n++) {
		u32v minimum[4];
		load_output_numbers(t, t->w_minimum, groups, group, n & ~1, minimum);
		scale_group<LIMBS, NS>(t->acc, n, f, sa, minimum, 1);
	}
}

/* Group `group` of a tile. A group of one step is half a chunk. */
template <int LIMBS, int PLANES, int STEPS, bool MINIMA, int NS>
WARP_FN void add_group(exact_tile<LIMBS, PLANES, NS> *t, const kvi_gpu_product *p, uint32_t group,
                       int half)
{
	const uint32_t rows = t->row_tile * (p->stride / 32) + group * STEPS;
	const uint32_t outputs = t->output_tile * (p->stride / 64) + group * STEPS / 2;
	exact_piece a[LIMBS][TILE_MS][STEPS];
	UNROLL
	for (int limb = 0; limb < LIMBS; limb++)
		UNROLL
	for (int m = 0; m < TILE_MS; m++)
		UNROLL
	for (int s = 0; s < STEPS; s++)
		a[limb][m][s] = load_piece(t->a[limb], rows * TILE_MS, s * TILE_MS + m);
	u32v sa[2 * TILE_MS], scale[4];
	if (LIMBS == 1)
		load_row_numbers(t->a_scale, t->row_tile, p->groups, group, sa);
	UNROLL
	for (int n = 0; n < NS; n++) {
		if (n % 2 == 0)
			load_output_numbers(t, t->w_scale, p->groups, group, n, scale);
		UNROLL
		for (int plane = 0; plane < PLANES; plane++) {
			exact_piece w[(STEPS + 1) / 2];
			exact_sums c[TILE_MS];
			f32v f[TILE_MS][4];
			UNROLL
			for (int k = 0; k < (STEPS + 1) / 2; k++)
				w[k] = load_piece(t->w[plane], outputs * TILE_NS + t->first,
				                  k * TILE_NS + n);
			sum_group<LIMBS, STEPS>(c, a, w, half);
			UNROLL
			for (int m = 0; m < TILE_MS; m++)
				UNROLL
			for (int e = 0; e < 4; e++)
				f[m][e] = float_of_sum<LIMBS>(c[m].v[e]);
			scale_group<LIMBS, NS>(t->acc, n, f, sa, scale,
			                       plane + 1 < PLANES ? 128 : 1);
		}
	}
	if (MINIMA)
		add_minima(t, p->groups, group, sa);
}

/* Writes 32 rows of 8 * NS outputs. */
template <int LIMBS, int PLANES, int NS>
WARP_FN void store_tile(const exact_tile<LIMBS, PLANES, NS> *t, const kvi_gpu_product *p)
{
	span<uint32_t> y = span_at<uint32_t>(p->y, (size_t)p->rows * p->y_stride);
	span<const uint32_t> bias = span_at<const uint32_t>(p->bias, p->bias ? p->outputs : 0);
	span<const uint32_t> scale = span_at<const uint32_t>(p->a_scale, LIMBS == 2 ? p->rows : 0);
	UNROLL
	for (int m = 0; m < TILE_MS; m++)
		UNROLL
	for (int half = 0; half < 2; half++) {
		const u32v row = lane_row() + t->row_tile * TILE_ROWS + m * 16 + half * 8;
		const boolv here = row < p->rows;
		const f32v sa = LIMBS == 2 ? ldg_float_if(scale, row, here) : f_splat(1);
		UNROLL
		for (int n = 0; n < NS; n++)
			UNROLL
		for (int e = 0; e < 2; e++) {
			const u32v at = lane_column() * 2 + t->output_tile * TILE_OUTPUTS +
			                t->first * 8 + n * 8 + e;
			const boolv ok = here & (at < p->outputs);
			f32v v = t->acc[m][n][half * 2 + e];
			if (LIMBS == 2)
				v = f_mul(v, sa);
			if (p->bias)
				v = f_add(v, ldg_float_if(bias, at, ok));
			st_float_if(y, row * p->y_stride + at, v, ok);
		}
	}
}

/*
 * y of TILE_ROWS rows and 8 * NS outputs, by a warp. LIMBS: 2 of A12 and A15; PLANES: 2 of W15;
 * STEPS: 32 columns of a group. Groups come in ascending order, as the sum has one order.
 */
template <int LIMBS, int PLANES, int STEPS, bool MINIMA, int NS>
WARP_FN void run_product(const kvi_gpu_product *p, uint32_t row_tile, uint32_t output_part)
{
	const uint32_t row_tiles = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
	const uint32_t output_tiles = (p->outputs + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
	if (row_tile >= row_tiles || output_part * NS >= output_tiles * TILE_NS)
		return;
	const size_t a_words = (size_t)row_tiles * TILE_ROWS * (p->stride / 4);
	const size_t w_words = (size_t)output_tiles * TILE_OUTPUTS * (p->stride / 4);
	const size_t a_numbers = (size_t)row_tiles * p->groups * TILE_ROWS;
	const size_t w_numbers = (size_t)output_tiles * p->groups * TILE_OUTPUTS;
	exact_tile<LIMBS, PLANES, NS> t;
	t.row_tile = row_tile;
	t.output_tile = output_part * NS / TILE_NS;
	t.first = output_part * NS % TILE_NS;
	for (int i = 0; i < LIMBS; i++)
		t.a[i] = span_at<const uint32_t>(p->a[i], a_words);
	for (int i = 0; i < PLANES; i++)
		t.w[i] = span_at<const uint32_t>(p->w[i], w_words);
	t.a_scale = span_at<const uint32_t>(p->a_scale, LIMBS == 1 ? a_numbers : 0);
	t.a_sum = span_at<const uint32_t>(p->a_sum, MINIMA ? a_numbers : 0);
	t.w_scale = span_at<const uint32_t>(p->w_scale, w_numbers);
	t.w_minimum = span_at<const uint32_t>(p->w_minimum, MINIMA ? w_numbers : 0);
	UNROLL
	for (int m = 0; m < TILE_MS; m++)
		UNROLL
	for (int n = 0; n < NS; n++)
		UNROLL
	for (int e = 0; e < 4; e++)
		t.acc[m][n][e] = f_splat(0);
	constexpr int together = STEPS < 2 ? 2 : 1;
	for (uint32_t g = 0; g < p->groups; g += together) {
		UNROLL
		for (int i = 0; i < together; i++)
			if (g + i < p->groups)
				add_group<LIMBS, PLANES, STEPS, MINIMA, NS>(&t, p, g + i, i);
	}
	store_tile(&t, p);
}

#endif
