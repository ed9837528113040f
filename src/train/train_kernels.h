/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * train_kernels.h - the loops in which fitting spends its time, by instruction set
 *
 * Every set gives the same numbers: integers are summed exactly, and doubles
 * one element at a time in the same order, without contraction.
 */
#ifndef KVI_TRAIN_KERNELS_H
#define KVI_TRAIN_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

struct kvi_grid_format;

/* Tile sizes and limits of the kernels. */
enum {
	KVI_GRAM_TILE = 4,
	KVI_GRAM_TOKENS = 1024, /* tokens of a call at most; a multiple of 64 */
	KVI_GRAM_LIMIT = 4095,  /* limit of a feature: a 32-bit sum of a kernel gets at most 128
	                         * products (avx2: 2 of 16 tokens), and 128 * 4095^2 < 2^31 */
	KVI_DENSE_TILE = 4,
	KVI_WEIGH_ROWS = 128 /* rows that are added up at once; even */
};

/* Pragma in front of a short loop over values that are to stay in registers. */
#define KVI_UNROLL _Pragma("GCC unroll 8")

/* A weighted feature in units of the Gram matrix, rounded and limited to KVI_GRAM_LIMIT. */
static inline int16_t kvi_gram_entry(float v)
{
	v = v > KVI_GRAM_LIMIT ? KVI_GRAM_LIMIT : v < -KVI_GRAM_LIMIT ? -KVI_GRAM_LIMIT : v;
	return (int16_t)(v + copysignf(0.5f, v)); /* signs are not to be foreseen */
}

/* Kernels of one instruction set; all sets give the same numbers. Pure; the caller owns all
 * memory. */
struct kvi_train_kernels {
	/* sums[i * 4 + j] = a[i] . b[j], rows of n features (a multiple of 64, 64-aligned). */
	void (*gram)(int64_t sums[16], const int16_t *a, const int16_t *b, size_t stride, size_t n);
	/* c[i][j] -= sum over k of a[i][k] * b[k][j]: m x n, depth k. */
	void (*subtract)(double *c, size_t c_stride, const double *a, size_t a_stride,
	                 const double *b, size_t b_stride, size_t m, size_t n, size_t k);
	/* y[i] += f * x[i] */
	void (*add)(double *y, const double *x, double f, size_t n);
	/* acc[t] += sum over j of coef[j] * rows[j * stride + t]; wraps. n: a multiple of 32. */
	void (*weigh)(int32_t *acc, const int16_t *coef, const int16_t *rows, size_t stride,
	              size_t n_rows, size_t n);
	/* to[t] = kvi_linear_integer(x[t], fmt, step) */
	void (*integers)(int32_t *to, const uint16_t *x, const struct kvi_grid_format *fmt,
	                 int step, size_t n);
	/* z[t] = kvi_linear_limited(u[t] - mean - less[t]); less NULL: zeros. */
	void (*centred)(int16_t *z, const int32_t *u, const int16_t *less, int32_t mean, size_t n);
	/* z[t] = kvi_linear_limited(z[t] - by) */
	void (*shifted)(int16_t *z, int32_t by, size_t n);
	/* sum[t] += |z[t]| * f */
	void (*sizes)(float *sum, const int16_t *z, float f, size_t n);
	/* to[t] = kvi_gram_entry(z[t] * unit * w[t]) */
	void (*entries)(int16_t *to, const int16_t *z, const float *w, float unit, size_t n);
};

/* The best set that the processor and isa_mask allow. Static memory. */
const struct kvi_train_kernels *kvi_train_kernels_get(uint32_t isa_mask);

extern const struct kvi_train_kernels kvi_train_kernels_scalar;
#if defined(KVI_AVX2)
extern const struct kvi_train_kernels kvi_train_kernels_avx2;
#endif
#if defined(KVI_AVX512)
extern const struct kvi_train_kernels kvi_train_kernels_avx512;
#endif

#endif
