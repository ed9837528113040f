/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_neon.h - vectors of exact products, 4 numbers; after KERNEL and TILE_BLOCKS */
#ifndef KVI_MATMUL_NEON_H
#define KVI_MATMUL_NEON_H

#include <arm_neon.h>

/* Shape of the tiles of matmul_tile.h. */
enum { LANES = 4, TILE_ROWS = 4 };
#include "matmul_tile.h"

typedef int32x4_t vint;
typedef float32x4_t vflt;
#define v_zero() vdupq_n_s32(0)
#define v_add vaddq_s32
#define f_zero() vdupq_n_f32(0)
#define f_load vld1q_f32
#define f_store vst1q_f32
#define f_set vdupq_n_f32
#define f_add vaddq_f32
#define f_mul vmulq_f32
#define f_fma(a, b, c) vfmaq_f32(c, a, b)
#define f_int(p) vcvtq_f32_s32(vdupq_n_s32(*(p)))
#define f_of vcvtq_f32_s32

/* kvi_exact_kernels.quantise. */
void kvi_neon_quantise(struct kvi_activations *activations, const float *x, size_t x_stride,
                       size_t first, size_t n);
/* kvi_exact_kernels.product. */
void kvi_neon_product(const struct kvi_product *p);
/* kvi_exact_kernels.product_floats. */
void kvi_neon_product_floats(const struct kvi_product *product);

#endif
