/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * matmul_neondot.c - exact products of bytes with an instruction for sums of four (sdot)
 *
 * A8 becomes signed where it is loaded. A15 is split into two bytes, a = 128 * high + low:
 * first the high ones are multiplied, then their sums by 128, then the low ones are added.
 */
#include "config.h"

#define FUNCTION
#define KERNEL static inline __attribute__((always_inline))
#define TILE_BLOCKS 2 /* words are split for both */
#include "matmul_neon.h"

#define KVI_BYTE_DOTS 1
#define KVI_LIMBS 1
#define v_start(p) ((void)(p), v_zero())

enum { BLOCK_VECTORS = ROWS / LANES };

KERNEL void no_sums(vint s[TILE_ROWS][BLOCK_VECTORS], int rows)
{
	UNROLL
	for (int r = 0; r < rows; r++)
		UNROLL
	for (int v = 0; v < BLOCK_VECTORS; v++)
		s[r][v] = v_zero();
}

/* Two quads of 16 bytes: high bytes of the first quad, its low ones, those of the second. */
KERNEL void split_words(int16_t *to, const int16_t *a, size_t quads)
{
	static const uint8_t bytes[16] = { 8, 10, 9, 11, 0, 2, 1, 3, 12, 14, 13, 15, 4, 6, 5, 7 };
	const uint8x16_t order = vld1q_u8(bytes);

	for (size_t q = 0; q < quads; q += 2, a += 8, to += 8) {
		int16x8_t x = vld1q_s16(a);
		int8x8_t low = vand_s8(vmovn_s16(x), vdup_n_s8(127));
		int8x16_t both = vcombine_s8(low, vshrn_n_s16(x, 7));
		vst1q_s16(to, vreinterpretq_s16_s8(vqtbl1q_s8(both, order)));
	}
}

/* n quads, at most 4, of a row of A8. */
KERNEL int8x16_t load_bytes(const uint8_t *a, size_t n)
{
	uint8x16_t x = vdupq_n_u8(0);

	if (n == 4)
		x = vld1q_u8(a);
	else
		memcpy(&x, a, n * QUAD);
	return vreinterpretq_s8_u8(veorq_u8(x, vdupq_n_u8(128)));
}

/* sum + w * the quad of a that is in a lane. */
KERNEL vint dot_lane(vint sum, int8x16_t w, int8x16_t a, int lane)
{
	switch (lane) {
	case 0:
		return vdotq_laneq_s32(sum, w, a, 0);
	case 1:
		return vdotq_laneq_s32(sum, w, a, 1);
	case 2:
		return vdotq_laneq_s32(sum, w, a, 2);
	default:
		return vdotq_laneq_s32(sum, w, a, 3);
	}
}

/* n quads of a block, which are in lanes first, first + step ... of a row's a. */
KERNEL void sdot_lanes(vint sums[TILE_ROWS][BLOCK_VECTORS], const int8x16_t a[TILE_ROWS],
                       const int8_t *w, int n, int first, int step, int rows)
{
	UNROLL
	for (int i = 0; i < n; i++) {
		UNROLL
		for (int v = 0; v < BLOCK_VECTORS; v++) {
			int8x16_t x = vld1q_s8(w + i * STEP + v * LANES * QUAD);
			UNROLL
			for (int r = 0; r < rows; r++)
				sums[r][v] = dot_lane(sums[r][v], x, a[r], first + i * step);
		}
	}
}

KERNEL void sdot_bytes(vint sums[TILE_ROWS][BLOCK_VECTORS], const uint8_t *a, size_t a_stride,
                       const int8_t *w, size_t quads, int rows)
{
	int8x16_t x[TILE_ROWS];
	size_t q = 0;

	for (; q + 4 <= quads; q += 4) {
		UNROLL
		for (int r = 0; r < rows; r++)
			x[r] = load_bytes(a + (size_t)r * a_stride + q * QUAD, 4);
		sdot_lanes(sums, x, w + q * STEP, 4, 0, 1, rows);
	}
	for (; q < quads; q++) {
		UNROLL
		for (int r = 0; r < rows; r++)
			x[r] = load_bytes(a + (size_t)r * a_stride + q * QUAD, 1);
		sdot_lanes(sums, x, w + q * STEP, 1, 0, 1, rows);
	}
}

/* High (limb 0) or low bytes of what split_words made; an odd quad is followed by another. */
KERNEL void sdot_limb(vint sums[TILE_ROWS][BLOCK_VECTORS], const int16_t *a, size_t a_stride,
                      const int8_t *w, size_t quads, int limb, int rows)
{
	int8x16_t x[TILE_ROWS];
	size_t q = 0;

	for (; q + 2 <= quads; q += 2) {
		UNROLL
		for (int r = 0; r < rows; r++)
			x[r] = vld1q_s8((const int8_t *)(a + (size_t)r * a_stride + q * QUAD));
		sdot_lanes(sums, x, w + q * STEP, 2, limb, 2, rows);
	}
	if (q < quads) {
		UNROLL
		for (int r = 0; r < rows; r++)
			x[r] = vld1q_s8((const int8_t *)(a + (size_t)r * a_stride + q * QUAD));
		sdot_lanes(sums, x, w + q * STEP, 1, limb, 2, rows);
	}
}

/* Block by block: the sums of more do not fit into the registers. */
KERNEL void add_block(vint sums[TILE_ROWS][TILE_VECTORS], int block,
                      const vint s[TILE_ROWS][BLOCK_VECTORS], int rows)
{
	UNROLL
	for (int r = 0; r < rows; r++)
		UNROLL
	for (int v = 0; v < BLOCK_VECTORS; v++) {
		vint *to = &sums[r][block * BLOCK_VECTORS + v];
		*to = v_add(*to, s[r][v]);
	}
}

KERNEL void dots_bytes(vint sums[TILE_ROWS][TILE_VECTORS], const uint8_t *a, size_t a_stride,
                       const int8_t *w, size_t w_stride, size_t quads, int rows, int vectors)
{
	UNROLL
	for (int b = 0; b < vectors / BLOCK_VECTORS; b++, w += w_stride) {
		vint s[TILE_ROWS][BLOCK_VECTORS];
		no_sums(s, rows);
		sdot_bytes(s, a, a_stride, w, quads, rows);
		add_block(sums, b, s, rows);
	}
}

KERNEL void dots_wide(vint sums[TILE_ROWS][TILE_VECTORS], const int16_t *a, size_t a_stride,
                      const void *weights, size_t w_stride, size_t quads, int rows, int vectors,
                      bool widened)
{
	const int8_t *w = weights;

	(void)widened; /* never */
	UNROLL
	for (int b = 0; b < vectors / BLOCK_VECTORS; b++, w += w_stride) {
		vint s[TILE_ROWS][BLOCK_VECTORS];
		no_sums(s, rows);
		sdot_limb(s, a, a_stride, w, quads, 0, rows);
		UNROLL
		for (int r = 0; r < rows; r++)
			UNROLL
		for (int v = 0; v < BLOCK_VECTORS; v++)
			s[r][v] = vshlq_n_s32(s[r][v], 7);
		sdot_limb(s, a, a_stride, w, quads, 1, rows);
		add_block(sums, b, s, rows);
	}
}

#include "matmul_body.h"

/* Words are not split. */
static void product_or_words(const struct kvi_product *p)
{
	if (p->w->words)
		kvi_neon_product(p);
	else
		product(p);
}

const struct kvi_exact_kernels kvi_exact_neondot = { "neondot", kvi_neon_quantise, product_or_words,
	                                             kvi_neon_product_floats, NULL };
