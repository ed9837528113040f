/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_avx512vnni.c - exact products with instructions for sums of products */
#include "config.h"

#include "kernels/slots.h"
#include "exact/attention_rows.h"

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

/* Probabilities of some rows as bytes: integers are 256 * high + low. */
struct shares {
	uint8_t low[TILE_ROWS][KVI_GROUP_MAX], high[TILE_ROWS][KVI_GROUP_MAX];
	uint64_t some_high; /* quads with a high byte that is not 0, in any row */
	size_t quads;       /* behind these all are 0 */
};

static FUNCTION void split_shares(struct shares *shares, const struct kvi_activations *activations,
                                  size_t row, int rows)
{
	/* bytes of two quads, 0, 2, 1, 3, of 16 bits: the low ones in order, the high ones */
	const vec order = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15));
	const vec halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	uint64_t some = 0;

	shares->some_high = 0;
	for (int r = 0; r < rows; r++) {
		const int16_t *from = activations->a15 + (row + (size_t)r) * activations->stride;
		for (size_t c = 0; c < KVI_GROUP_MAX; c += 32) { /* 8 quads */
			vec x = _mm512_shuffle_epi8(v_load(from + c), order);
			x = _mm512_permutexvar_epi64(halves, x);
			uint64_t some_of = _mm512_test_epi32_mask(x, x);
			_mm256_store_si256((__m256i *)(void *)(shares->low[r] + c),
			                   _mm512_castsi512_si256(x));
			_mm256_store_si256((__m256i *)(void *)(shares->high[r] + c),
			                   _mm512_extracti64x4_epi64(x, 1));
			shares->some_high |= some_of >> 8 << c / QUAD;
			some |= ((some_of | some_of >> 8) & 255) << c / QUAD;
		}
	}
	shares->quads = some ? 64 - (size_t)__builtin_clzll(some) : 0;
}

/* y of some rows and one or two blocks. Most high bytes are 0: few tokens have a large share. */
KERNEL void shares_tile(const struct kvi_product *product, const struct shares *shares, size_t row,
                        size_t block, int rows, int vectors)
{
	const struct kvi_operand *w = product->w;
	const size_t w_stride = KVI_GROUP_MAX / QUAD * STEP;
	vflt acc[TILE_ROWS][TILE_VECTORS];

	UNROLL
	for (int r = 0; r < rows; r++)
		UNROLL
	for (int v = 0; v < vectors; v++)
		acc[r][v] = f_zero();
	for (unsigned i = 0; i < w->planes; i++) {
		const int8_t *from = w->w[i] + block * w_stride;
		const float up = i + 1 < w->planes ? 128.0f : 1.0f;
		vint sums[TILE_ROWS][TILE_VECTORS];
		UNROLL
		for (int r = 0; r < rows; r++)
			UNROLL
		for (int v = 0; v < vectors; v++)
			sums[r][v] = v_zero();
		for (uint64_t left = shares->some_high; left; left &= left - 1) {
			size_t q = (size_t)__builtin_ctzll(left);
			dots_bytes(sums, shares->high[0] + q * QUAD, KVI_GROUP_MAX, from + q * STEP,
			           w_stride, 1, rows, vectors);
		}
		UNROLL
		for (int r = 0; r < rows; r++)
			UNROLL
		for (int v = 0; v < vectors; v++)
			sums[r][v] = (vint)_mm512_slli_epi32((vec)sums[r][v], 8);
		dots_bytes(sums, shares->low[0], KVI_GROUP_MAX, from, w_stride, shares->quads, rows,
		           vectors);
		UNROLL
		for (int v = 0; v < vectors; v++) {
			vflt sw = f_mul(f_set(up), f_load(w->scale + (block + (size_t)v) * ROWS));
			UNROLL
			for (int r = 0; r < rows; r++)
				acc[r][v] = f_fma(f_of(sums[r][v]), sw, acc[r][v]);
		}
	}
	UNROLL
	for (int r = 0; r < rows; r++) {
		float *y = product->y + (row + (size_t)r) * product->y_stride + block * ROWS;
		UNROLL
		for (int v = 0; v < vectors; v++)
			f_store(y + v * LANES,
			        f_mul(f_set(product->a->scale[row + (size_t)r]), acc[r][v]));
	}
}

KERNEL void shares_rows(const struct kvi_product *product, size_t row, int rows)
{
	const size_t end = product->first + product->blocks;
	struct shares s __attribute__((aligned(64)));
	size_t b = product->first;

	split_shares(&s, product->a, row, rows);
	for (; b + 2 <= end; b += 2)
		shares_tile(product, &s, row, b, rows, 2);
	if (b < end)
		shares_tile(product, &s, row, b, rows, 1);
}

static FUNCTION void shares_8(const struct kvi_product *product, size_t row)
{
	shares_rows(product, row, TILE_ROWS);
}

static FUNCTION void shares_1(const struct kvi_product *product, size_t row)
{
	shares_rows(product, row, 1);
}

/* The form of a block of values of attention has instructions of its own. */
static void product_or_shares(const struct kvi_product *p)
{
	size_t row = 0;

	if (!p->positive || !p->a->wide || p->w->words || p->w->columns != KVI_GROUP_MAX) {
		product(p);
		return;
	}
	for (; row + TILE_ROWS <= p->a->rows; row += TILE_ROWS)
		shares_8(p, row);
	for (; row < p->a->rows; row++)
		shares_1(p, row);
}

const struct kvi_exact_kernels kvi_exact_avx512vnni = { "avx512vnni", kvi_avx512_quantise,
	                                                product_or_shares,
	                                                kvi_avx512_product_floats,
	                                                kvi_avx512vnni_attend };
#endif
