/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_scalar.c - exact products in C: what the other kernels must be equal to */
#include "config.h"

#include "float8.h"
#include "fma.h"
#include "quantise.h"
#include "words.h"

enum { ROWS = KVI_OPERAND_ROWS, QUAD = KVI_OPERAND_QUAD };

/* Column of an A15 quad that is at i. */
static size_t wide_order(size_t i)
{
	static const uint8_t order[QUAD] = { 0, 2, 1, 3 };
	return i / QUAD * QUAD + order[i % QUAD];
}

/* Integers of a group of n columns, from `at` on; what is missing in the last quad is 0. */
static void quantise_group(struct kvi_activations *activations, size_t at, const float *x, size_t n,
                           float inverse, int32_t *group_sum)
{
	int32_t sum = 0;

	for (size_t i = 0; i < kvi_quads(n) * QUAD; i++) {
		int32_t v = i < n ? kvi_quantised(x[i], inverse, activations->largest) : 0;
		if (activations->wide)
			activations->a15[at + wide_order(i)] = (int16_t)v;
		else
			activations->a8[at + i] = (uint8_t)(v + 128);
		sum += v;
	}
	*group_sum = sum;
}

static void quantise(struct kvi_activations *activations, const float *x, size_t x_stride,
                     size_t first, size_t n)
{
	size_t groups = kvi_groups(activations->columns, activations->group);

	for (size_t r = first; r < first + n; r++, x += x_stride) {
		if (activations->wide)
			activations->scale[r] = kvi_group_scale(kvi_amax(x, activations->columns),
			                                        activations->largest);
		for (size_t g = 0; g < groups; g++) {
			size_t c = g * activations->group, rest = activations->columns - c;
			size_t columns = rest < activations->group ? rest : activations->group,
			       at = r * groups + g;
			if (!activations->wide)
				activations->scale[at] = kvi_group_scale(kvi_amax(x + c, columns),
				                                         activations->largest);
			quantise_group(activations, r * activations->stride + c, x + c, columns,
			               1 / activations->scale[activations->wide ? r : at],
			               &activations->sum[at]);
		}
	}
}

static int32_t activation(const struct kvi_activations *activations, size_t at)
{
	return activations->wide ? activations->a15[wide_order(at)] : activations->a8[at] - 128;
}

/* I of a block's rows: integers from quad q to `end` of row r of a. */
static void integers(int32_t sum[ROWS], const struct kvi_activations *activations, size_t r,
                     const int8_t *w, size_t q, size_t end)
{
	size_t at = r * activations->stride;

	for (size_t i = 0; i < ROWS; i++)
		sum[i] = 0;
	for (; q < end; q++) {
		int32_t v[QUAD];
		for (size_t c = 0; c < QUAD; c++)
			v[c] = activation(activations, at + q * QUAD + c);
		for (size_t i = 0; i < ROWS; i++) {
			const int8_t *p = w + (q * ROWS + i) * QUAD;
			sum[i] += v[0] * p[0] + v[1] * p[1] + v[2] * p[2] + v[3] * p[3];
		}
	}
}

/* Dot products of row r with a block of W12, which is one group. */
static void word_integers(int32_t sum[ROWS], const struct kvi_activations *activations, size_t r,
                          const struct kvi_operand *w, size_t block)
{
	for (size_t i = 0; i < ROWS; i++) {
		sum[i] = 0;
		for (size_t c = 0; c < w->columns; c++)
			sum[i] += activation(activations, r * activations->stride + c) *
			          w->words[kvi_words_at(w, block * ROWS + i, c)];
	}
}

static void row_by_block(float y[ROWS], const struct kvi_product *product, size_t r, size_t block)
{
	const struct kvi_operand *w = product->w;
	size_t quads = kvi_quads(w->columns), groups = kvi_operand_groups(w);
	float acc[ROWS] = { 0 };

	for (size_t g = 0; g < groups; g++) {
		size_t q = g * w->group / QUAD, end = q + w->group / QUAD;
		size_t at = (block * groups + g) * ROWS;
		float sa = product->a->wide ? 1 : product->a->scale[r * groups + g];

		for (unsigned i = 0; i < w->planes; i++) {
			float up = i + 1 < w->planes ? 128.0f : 1.0f;
			int32_t sum[ROWS];

			if (w->words)
				word_integers(sum, product->a, r, w, block);
			else
				integers(sum, product->a, r, w->w[i] + block * quads * ROWS * QUAD,
				         q, end < quads ? end : quads);
			for (size_t j = 0; j < ROWS; j++)
				acc[j] = kvi_fma((float)sum[j], sa * (up * w->scale[at + j]),
				                 acc[j]);
		}
		for (size_t j = 0; w->minimum && j < ROWS; j++)
			acc[j] = kvi_fma((float)product->a->sum[r * groups + g],
			                 sa * w->minimum[at + j], acc[j]);
	}
	for (size_t j = 0; j < ROWS; j++)
		y[j] = product->a->wide ? acc[j] * product->a->scale[r] : acc[j];
}

static void product(const struct kvi_product *p)
{
	for (size_t b = p->first; b < p->first + p->blocks; b++)
		for (size_t r = 0; r < p->a->rows; r++)
			row_by_block(p->y + r * p->y_stride + b * ROWS, p, r, b);
}

/* The terms of each sum come in the order of the columns. */
static void floats_by_block(float y[ROWS], const struct kvi_product *product, size_t r,
                            size_t block)
{
	const struct kvi_operand *w = product->w;
	const uint8_t *e4m3 = w->e4m3 + block * w->columns * ROWS;
	float acc[ROWS] = { 0 };

	for (size_t c = 0; c < w->columns; c++, e4m3 += ROWS)
		for (size_t j = 0; j < ROWS; j++)
			acc[j] = acc[j] +
			         product->x[r * product->x_stride + c] * kvi_e4m3_value(e4m3[j]);
	for (size_t j = 0; j < ROWS; j++)
		y[j] = acc[j] * w->scale[block * ROWS + j];
}

static void product_floats(const struct kvi_product *product)
{
	for (size_t b = product->first; b < product->first + product->blocks; b++)
		for (size_t r = 0; r < product->rows; r++)
			floats_by_block(product->y + r * product->y_stride + b * ROWS, product, r,
			                b);
}

const struct kvi_exact_kernels kvi_exact_scalar = { "scalar", quantise, product, product_floats,
	                                            NULL };
