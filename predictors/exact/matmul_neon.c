/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_neon.c - exact products and activations with NEON, 4 lanes */
#include "config.h"

/* FUNCTION, KERNEL, TILE_BLOCKS: see matmul_body.h. */
#define FUNCTION
#define KERNEL static inline __attribute__((always_inline))
#define TILE_BLOCKS 1
#include "matmul_neon.h"

/* Operations that quantise_body.h names; those that matmul_body.h names are in the header. */
#define v_sum vaddvq_s32
#define f_sub vsubq_f32
#define f_abs vabsq_f32
#define f_most vmaxvq_f32
#define f_ints vcvtq_s32_f32
/* b where a or b is NaN: vminq_f32 would return the NaN. */
#define f_min(a, b) vbslq_f32(vcltq_f32(a, b), a, b)
#define f_max(a, b) vbslq_f32(vcgtq_f32(a, b), a, b)

KERNEL vint v_bytes(const uint8_t *p)
{
	uint32_t x;

	memcpy(&x, p, sizeof x);
	return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(x)))));
}

/* a + 128 in 8 bits: the sign bit is inverted. */
KERNEL void store_a8(uint8_t *to, const vint v[4])
{
	int16x8_t a = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
	int16x8_t b = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
	int8x16_t c = vcombine_s8(vmovn_s16(a), vmovn_s16(b));
	vst1q_u8(to, veorq_u8(vreinterpretq_u8_s8(c), vdupq_n_u8(128)));
}

/* A15: 16-bit integers, each quad in the order 0, 2, 1, 3 (matmul.h). */
KERNEL void store_a15(int16_t *to, const vint v[4])
{
	UNROLL
	for (int i = 0; i < 4; i++) { /* 0, 2, 1, 3 */
		int16x4_t a = vmovn_s32(v[i]);
		int16x4_t b = vrev64_s16(a);     /* 3, 2, 1, 0 */
		int16x4_t c = vext_s16(b, b, 1); /* 2, 1, 0, 3 */
		int16x4_t d = vext_s16(b, b, 3); /* 0, 3, 2, 1 */
		const uint16x4_t outer = { 65535, 0, 0, 0 }, last = { 0, 0, 0, 65535 };
		b = vbsl_s16(outer, d, b);                  /* 0, 2, 1, 0 */
		vst1_s16(to + 4 * i, vbsl_s16(last, c, b)); /* 0, 2, 1, 3 */
	}
}

/* Writes A8 as integers a in the order of A15; reads and writes two quads at a time. */
KERNEL void widen_bytes(int16_t *to, const uint8_t *a, size_t quads)
{
	for (size_t q = 0; q < quads; q += 2, a += 8, to += 8) {
		uint16x8_t x = vreinterpretq_u16_u8(vcombine_u8(vld1_u8(a), vdup_n_u8(0)));
		uint16x4_t e = vand_u16(vget_low_u16(x), vdup_n_u16(255));
		uint16x4_t o = vshr_n_u16(vget_low_u16(x), 8);
		uint32x2x2_t z = vzip_u32(vreinterpret_u32_u16(e), vreinterpret_u32_u16(o));
		int16x8_t v = vreinterpretq_s16_u32(vcombine_u32(z.val[0], z.val[1]));
		vst1q_s16(to, vsubq_s16(v, vdupq_n_s16(128)));
	}
}

/* 16-bit weights of a block's quad: columns 0 and 2 of all rows, then 1 and 3. */
KERNEL void widen_weights(int16_t *to, const int8_t *w)
{
	UNROLL
	for (int v = 0; v < ROWS / LANES; v++) {
		int16x8_t x = vreinterpretq_s16_s8(vld1q_s8(w + v * LANES * QUAD));
		vst1q_s16(to + v * LANES * 2, vshrq_n_s16(vshlq_n_s16(x, 8), 8));
		vst1q_s16(to + 2 * ROWS + v * LANES * 2, vshrq_n_s16(x, 8));
	}
}

/* dots_wide of matmul_body.h. rows01, rows23: two rows of a vector each; a row has two sums, of
 * columns 0 and 1 and of 2 and 3, which are added at the end. widened: w is of widen_weights, else
 * bytes. */
KERNEL void dots_wide(vint sums[TILE_ROWS][TILE_VECTORS], const int16_t *a, size_t a_stride,
                      const void *w, size_t w_stride, size_t quads, int rows, int vectors,
                      bool widened)
{
	(void)w_stride; /* a tile has one block */
	UNROLL
	for (int v = 0; v < vectors; v++) {
		vint rows01[TILE_ROWS], rows23[TILE_ROWS];
		UNROLL
		for (int r = 0; r < rows; r++)
			rows01[r] = rows23[r] = v_zero();
		for (size_t q = 0; q < quads; q++) {
			int16x8_t even, odd;
			if (widened) {
				const int16_t *p = (const int16_t *)w + q * STEP + v * LANES * 2;
				even = vld1q_s16(p);
				odd = vld1q_s16(p + 2 * ROWS);
			} else {
				odd = vreinterpretq_s16_s8(
					vld1q_s8((const int8_t *)w + q * STEP + v * LANES * QUAD));
				even = vshrq_n_s16(vshlq_n_s16(odd, 8), 8);
				odd = vshrq_n_s16(odd, 8);
			}
			UNROLL
			for (int r = 0; r < rows; r++) {
				const int16_t *p = a + (size_t)r * a_stride + q * QUAD;
				int32x2_t both = vld1_s32((const int32_t *)(const void *)p);
				int16x4_t a02 = vreinterpret_s16_s32(vdup_lane_s32(both, 0));
				int16x4_t a13 = vreinterpret_s16_s32(vdup_lane_s32(both, 1));
				rows01[r] = vmlal_s16(rows01[r], vget_low_s16(even), a02);
				rows23[r] = vmlal_s16(rows23[r], vget_high_s16(even), a02);
				rows01[r] = vmlal_s16(rows01[r], vget_low_s16(odd), a13);
				rows23[r] = vmlal_s16(rows23[r], vget_high_s16(odd), a13);
			}
		}
		UNROLL
		for (int r = 0; r < rows; r++)
			sums[r][v] = vaddq_s32(sums[r][v], vpaddq_s32(rows01[r], rows23[r]));
	}
}

#include "matmul_body.h"
#include "quantise_body.h"
#include "float8_body.h"

/* For kvi_exact_neondot, which has a product of its own for bytes. */
void kvi_neon_quantise(struct kvi_activations *activations, const float *x, size_t x_stride,
                       size_t first, size_t n)
{
	quantise(activations, x, x_stride, first, n);
}

void kvi_neon_product(const struct kvi_product *p)
{
	product(p);
}

void kvi_neon_product_floats(const struct kvi_product *product)
{
	product_floats(product);
}

const struct kvi_exact_kernels kvi_exact_neon = { "neon", quantise, product, product_floats, NULL };
