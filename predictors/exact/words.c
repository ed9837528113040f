/* SPDX-License-Identifier: BSD-3-Clause */
/* words.c - rows of weights of 12 bits (spec/arithmetic.md 2, W12) */
#include "exact/words.h"

#include <string.h>

#include "util/ckd.h"

enum { ROWS = KVI_OPERAND_ROWS, QUAD = KVI_OPERAND_QUAD };

/* Integers, then a scale for each row of all blocks; both are whole 64 bytes. */
static bool parts(size_t rows, size_t columns, size_t *scales, size_t *bytes)
{
	size_t blocks = rows / ROWS + (rows % ROWS != 0), n;
	return !kvi_mul(blocks, kvi_quads(columns), &n) &&
	       !kvi_mul(n, ROWS * QUAD * sizeof(int16_t), scales) &&
	       !kvi_mul(blocks, ROWS * sizeof(float), &n) && !kvi_add(*scales, n, bytes);
}

bool kvi_words_bytes(size_t rows, size_t columns, size_t *bytes)
{
	size_t scales;
	return columns <= KVI_GROUP_MAX && parts(rows, columns, &scales, bytes);
}

void kvi_words_init(struct kvi_operand *w, void *memory, size_t rows, size_t columns)
{
	size_t scales, bytes;
	*w = (struct kvi_operand){
		.rows = rows, .columns = columns, .group = KVI_GROUP_MAX, .planes = 1
	};
	if (!parts(rows, columns, &scales, &bytes)) /* kvi_words_bytes said no */
		return;
	memset(memory, 0, bytes);
	w->words = memory;
	w->scale = (const float *)(const void *)((const char *)memory + scales);
}

void kvi_words_put(struct kvi_operand *w, size_t r, const int16_t *a, float scale)
{
	int16_t *to = (int16_t *)w->words + kvi_words_at(w, r, 0);
	for (size_t q = 0; q < kvi_quads(w->columns); q++, a += QUAD, to += ROWS * QUAD) {
		memcpy(to, a, 2 * sizeof *a);
		memcpy(to + 2 * ROWS, a + 2, 2 * sizeof *a);
	}
	((float *)w->scale)[r] = scale;
}
