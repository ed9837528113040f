/* SPDX-License-Identifier: BSD-3-Clause */
/* operand.c - memory of operands, and rows of weights (spec/arithmetic.md 2) */
#include "config.h"

#include <string.h>

#include "matmul.h"
#include "quantise.h"
#include "util/ckd.h"

/* The parts of an operand or of activations; bytes of each are multiples of 64. */
enum { ALIGN = 64, PARTS_MAX = 6 };

struct operand_parts {
	size_t at[PARTS_MAX]; /* begin of each part */
	size_t n, bytes;
};

/* Adds a part of n * m * size bytes; false: overflow. */
static bool add_part(struct operand_parts *parts, size_t n, size_t m, size_t size)
{
	size_t bytes;

	parts->at[parts->n++] = parts->bytes;
	return !kvi_mul(n, m, &bytes) && !kvi_mul(bytes, size, &bytes) &&
	       !kvi_add(bytes, ALIGN - 1, &bytes) &&
	       !kvi_add(parts->bytes, bytes / ALIGN * ALIGN, &parts->bytes);
}

/* ------------------------------------------------------------- weights */

/* Weights and sums of each plane, scales, minima. */
static bool operand_parts(const struct kvi_operand *w, bool minima, struct operand_parts *parts)
{
	size_t blocks = w->rows / KVI_OPERAND_ROWS + (w->rows % KVI_OPERAND_ROWS != 0);
	size_t quads = w->columns / KVI_OPERAND_QUAD + (w->columns % KVI_OPERAND_QUAD != 0);
	size_t groups = w->columns / w->group + (w->columns % w->group != 0);
	size_t per_group;
	bool fits = !kvi_mul(blocks, groups, &per_group);

	*parts = (struct operand_parts){ .n = 0 };
	for (unsigned i = 0; i < w->planes; i++) {
		fits = fits && add_part(parts, blocks, quads, KVI_OPERAND_ROWS * KVI_OPERAND_QUAD);
		fits = fits && add_part(parts, per_group, KVI_OPERAND_ROWS, sizeof(int32_t));
	}
	fits = fits && add_part(parts, per_group, KVI_OPERAND_ROWS, sizeof(float));
	return fits && (!minima || add_part(parts, per_group, KVI_OPERAND_ROWS, sizeof(float)));
}

bool kvi_operand_bytes(size_t rows, size_t columns, unsigned group, unsigned planes, bool minima,
                       size_t *bytes)
{
	const struct kvi_operand w = {
		.rows = rows, .columns = columns, .group = group, .planes = planes
	};
	struct operand_parts p;

	if (!operand_parts(&w, minima, &p))
		return false;
	*bytes = p.bytes;
	return true;
}

void kvi_operand_at(struct kvi_operand *w, const void *memory, size_t rows, size_t columns,
                    unsigned group, unsigned planes, bool minima)
{
	const char *base = memory;
	struct operand_parts p;
	size_t n = 0;

	*w = (struct kvi_operand){
		.rows = rows, .columns = columns, .group = group, .planes = planes
	};
	if (!operand_parts(w, minima, &p)) /* kvi_operand_bytes said no */
		return;
	for (unsigned i = 0; i < planes; i++) {
		w->w[i] = (const int8_t *)(base + p.at[n++]);
		w->sum[i] = (const int32_t *)(base + p.at[n++]);
	}
	w->scale = (const float *)(base + p.at[n++]);
	if (minima)
		w->minimum = (const float *)(base + p.at[n++]);
}

void kvi_operand_init(struct kvi_operand *w, void *memory, size_t rows, size_t columns,
                      unsigned group, unsigned planes, bool minima)
{
	size_t bytes;

	if (kvi_operand_bytes(rows, columns, group, planes, minima, &bytes))
		memset(memory, 0, bytes);
	kvi_operand_at(w, memory, rows, columns, group, planes, minima);
}

/* Begin of the numbers of row r in arrays by block, group and row of the block; those of the next
 * group are KVI_OPERAND_ROWS further. */
static size_t row_groups(const struct kvi_operand *w, size_t r)
{
	return r / KVI_OPERAND_ROWS * kvi_operand_groups(w) * KVI_OPERAND_ROWS +
	       r % KVI_OPERAND_ROWS;
}

/* Columns [c, c + n) of row r in one plane, which are (part of) group g. */
static void put_group(struct kvi_operand *w, unsigned plane, size_t r, size_t g, const int8_t *q,
                      size_t n)
{
	enum { QUAD = KVI_OPERAND_QUAD, STEP = KVI_OPERAND_ROWS * QUAD };
	int8_t *to = (int8_t *)w->w[plane] +
	             (r / KVI_OPERAND_ROWS * kvi_quads(w->columns) + g * w->group / QUAD) * STEP +
	             r % KVI_OPERAND_ROWS * QUAD;
	int32_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		to[i / QUAD * STEP + i % QUAD] = q[i];
		sum += q[i];
	}
	((int32_t *)w->sum[plane])[row_groups(w, r) + g * KVI_OPERAND_ROWS] = sum;
}

static size_t group_columns(const struct kvi_operand *w, size_t g)
{
	size_t rest = w->columns - g * w->group;
	return rest < w->group ? rest : w->group;
}

void kvi_operand_put(struct kvi_operand *w, size_t r, const int8_t *const q[2], const float *scale,
                     const float *minimum)
{
	size_t at = row_groups(w, r);

	for (size_t g = 0; g < kvi_operand_groups(w); g++, at += KVI_OPERAND_ROWS) {
		for (unsigned i = 0; i < w->planes; i++)
			put_group(w, i, r, g, q[i] + g * w->group, group_columns(w, g));
		((float *)w->scale)[at] = scale[g];
		if (w->minimum)
			((float *)w->minimum)[at] = minimum[g];
	}
}

void kvi_operand_put_floats(struct kvi_operand *w, size_t r, const float *x)
{
	size_t at = row_groups(w, r);

	for (size_t g = 0; g < kvi_operand_groups(w); g++, at += KVI_OPERAND_ROWS) {
		int8_t high[KVI_GROUP_MAX], low[KVI_GROUP_MAX], *const q[2] = { high, low };
		size_t n = group_columns(w, g);

		((float *)w->scale)[at] = kvi_quantise_weights(x, n, w->planes, q);
		for (unsigned i = 0; i < w->planes; i++)
			put_group(w, i, r, g, q[i], n);
		x += n;
	}
}

/* --------------------------------------------------------- activations */

/* Integers of a row: whole vectors, and not a power of two, so that the rows of a tile do not
 * fall into the same sets of the L1 cache. */
static bool activation_stride(size_t columns, size_t *stride)
{
	size_t lines = columns / ALIGN + (columns % ALIGN != 0);

	return !kvi_mul(lines | 1, (size_t)ALIGN, stride);
}

/* Integers, scales and sums. */
static bool activation_parts(size_t rows, size_t columns, unsigned group, bool wide,
                             struct operand_parts *parts)
{
	size_t groups = columns / group + (columns % group != 0), stride;

	*parts = (struct operand_parts){ .n = 0 };
	return activation_stride(columns, &stride) &&
	       add_part(parts, rows, stride, wide ? sizeof(int16_t) : sizeof(int8_t)) &&
	       add_part(parts, rows, groups, sizeof(float)) &&
	       add_part(parts, rows, groups, sizeof(int32_t));
}

bool kvi_activations_bytes(size_t rows, size_t columns, unsigned group, bool wide, size_t *bytes)
{
	struct operand_parts p;

	if (!activation_parts(rows, columns, group, wide, &p))
		return false;
	*bytes = p.bytes;
	return true;
}

void kvi_activations_init(struct kvi_activations *activations, void *memory, size_t rows,
                          size_t columns, unsigned group, bool wide)
{
	char *base = memory;
	struct operand_parts p;

	*activations = (struct kvi_activations){
		.rows = rows,
		.columns = columns,
		.group = group,
		.wide = wide,
		.largest = wide ? KVI_A15_MAX : KVI_A8_MAX,
	};
	if (!activation_parts(rows, columns, group, wide, &p))
		return;
	activation_stride(columns, &activations->stride);
	if (wide)
		activations->a15 = (int16_t *)base;
	else
		activations->a8 = (uint8_t *)base;
	activations->scale = (float *)(base + p.at[1]);
	activations->sum = (int32_t *)(base + p.at[2]);
}
