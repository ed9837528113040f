/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * elementwise.h - everything between the products, in fp32 of a fixed order
 * (spec/arithmetic.md 1, 4, 6), by instruction set
 *
 * Every set runs the same text (elementwise_body.h) and gives the same bits: each operation
 * is rounded on its own, sums have 16 lanes.
 */
#ifndef KVI_ELEMENTWISE_H
#define KVI_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/shared.h"

/* A row of scores of a block of attention. */
struct kvi_scores {
	float *z;          /* 256 scores; afterwards p_j * sv_j */
	size_t first, end; /* tokens of the block that are seen; not empty */
	const float *sv;   /* 256 scales of values */
	float scale;       /* attention scale */
	float m, l;        /* outputs */
};

/* Elementwise functions of the exact arithmetic; every set gives the same bits. */
struct kvi_elementwise {
	/* y = norm of n numbers; returns the root. bias NULL: root mean square. */
	float (*norm)(float *y, const float *x, const float *gain, const float *bias, size_t n,
	              float epsilon);
	/* g = act(g) * u, or act(g) when u is NULL. */
	void (*silu)(float *g, const float *u, size_t n);
	void (*gelu)(float *g, const float *u, size_t n);
	/* y = y + x */
	void (*add)(float *y, const float *x, size_t n);
	void (*softmax)(struct kvi_scores *s);
	/* y = y * a + x * b */
	void (*blend)(float *y, float a, const float *x, float b, size_t n);
	float (*exp)(float x);
};

KVI_SHARED const struct kvi_elementwise *kvi_elementwise_get(uint32_t isa_mask);

extern const struct kvi_elementwise kvi_elementwise_scalar;
#if defined(KVI_AVX2)
extern const struct kvi_elementwise kvi_elementwise_avx2;
#endif
#if defined(KVI_AVX512)
extern const struct kvi_elementwise kvi_elementwise_avx512;
#endif

#endif
