/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_avx512vnni.c - exact products with instructions for sums of products */
#include "config.h"

#include "kernels/slots.h"

#if defined(KVI_AVX512VNNI)

#define FUNCTION __attribute__((target("avx512vnni")))
#define KERNEL static inline __attribute__((always_inline, target("avx512vnni")))
#include "matmul_avx512.h"

#define v_dot(sum, a, b) ((vint)_mm512_dpwssd_epi32((vec)(sum), a, b))
#define KVI_BYTE_DOTS 1

/* Unsigned by signed bytes. */
KERNEL void dots_bytes(vint sums[TILE_ROWS][TILE_VECTORS], const uint8_t *a, size_t a_stride,
                       const int8_t *w, size_t w_stride, size_t quads, int rows, int vectors)
{
	UNROLL_QUADS
	for (size_t q = 0; q < quads; q++, a += QUAD, w += STEP) {
		vec x[TILE_VECTORS];
		UNROLL
		for (int v = 0; v < vectors; v++)
			x[v] = v_load(w + (size_t)v * w_stride);
		UNROLL
		for (int r = 0; r < rows; r++) {
			vec four = v_pair(a + (size_t)r * a_stride);
			UNROLL
			for (int v = 0; v < vectors; v++)
				sums[r][v] = (vint)_mm512_dpbusd_epi32((vec)sums[r][v], four, x[v]);
		}
	}
}

#include "matmul_x86.h"
#include "matmul_body.h"

const struct kvi_exact_kernels kvi_exact_avx512vnni = { "avx512vnni", kvi_avx512_quantise, product,
	                                                kvi_avx512_product_floats };
#endif
