/* SPDX-License-Identifier: BSD-3-Clause */
/* float8.c - numbers of 8 bits, and rows of weights in them (spec/arithmetic.md 2, E4M3) */
#include "exact/float8.h"

#include "exact/quantise.h"
#include "util/ckd.h"

enum { ALIGN = 64, ROWS = KVI_OPERAND_ROWS, LARGEST = 0x7e, BIAS = 120 };

static uint32_t bits_of(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	return b;
}

uint8_t kvi_e4m3_of(float x)
{
	uint32_t b = bits_of(x) & 0x7fffffff, code;
	float magnitude;
	memcpy(&magnitude, &b, sizeof b);
	if (magnitude < 0x1p-6f) { /* subnormals: units of 2^-9 */
		code = (uint32_t)kvi_quantised(magnitude, 0x1p9f, LARGEST);
	} else {
		b += 0x7ffff + (b >> 20 & 1); /* 3 of the 23 bits stay */
		code = (b >> 20) - (BIAS << 3);
		code = code < LARGEST ? code : LARGEST;
	}
	return (uint8_t)(code | (code && x < 0 ? 0x80 : 0));
}

/* Weights: by block, column and row of the block; then a scale for each row of all blocks. */
static bool parts(size_t rows, size_t columns, size_t *scales, size_t *bytes)
{
	size_t blocks = rows / ROWS + (rows % ROWS != 0), n;
	return !kvi_mul(blocks, columns, &n) && !kvi_mul(n, ROWS, &n) &&
	       !kvi_add(n, ALIGN - 1, &n) && (*scales = n / ALIGN * ALIGN, true) &&
	       !kvi_mul(blocks, ROWS * sizeof(float), &n) && !kvi_add(*scales, n, bytes);
}

bool kvi_e4m3_bytes(size_t rows, size_t columns, size_t *bytes)
{
	size_t scales;
	return parts(rows, columns, &scales, bytes);
}

void kvi_e4m3_at(struct kvi_operand *w, const void *memory, size_t rows, size_t columns)
{
	size_t scales, bytes;
	*w = (struct kvi_operand){ .rows = rows, .columns = columns };
	if (!parts(rows, columns, &scales, &bytes)) /* kvi_e4m3_bytes said no */
		return;
	w->e4m3 = memory;
	w->scale = (const float *)(const void *)(w->e4m3 + scales);
}

void kvi_e4m3_init(struct kvi_operand *w, void *memory, size_t rows, size_t columns)
{
	size_t bytes;
	if (kvi_e4m3_bytes(rows, columns, &bytes))
		memset(memory, 0, bytes);
	kvi_e4m3_at(w, memory, rows, columns);
}

void kvi_e4m3_put(struct kvi_operand *w, size_t r, const float *x)
{
	uint8_t *to = (uint8_t *)(uintptr_t)w->e4m3 + r / ROWS * w->columns * ROWS + r % ROWS;
	float s = kvi_amax(x, w->columns) / KVI_E4M3_MAX;
	s = s > KVI_SCALE_MIN ? s : KVI_SCALE_MIN;
	float inverse = 1 / s;
	for (size_t c = 0; c < w->columns; c++)
		to[c * ROWS] = kvi_e4m3_of(x[c] * inverse);
	((float *)(uintptr_t)w->scale)[r] = s;
}
