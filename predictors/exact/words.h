/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - operands of weights of 12 bits in 16 (spec/arithmetic.md 2, W12) */
#ifndef KVI_WORDS_H
#define KVI_WORDS_H

#include "exact/matmul.h"

/*
 * Number of the integer of row r, column c: block after block, quad after quad; of a quad columns
 * 0 and 2 of all rows, then 1 and 3. So A12's pairs meet the right ones, and instructions for
 * pairs of 16 bits need nothing else.
 */
static inline size_t kvi_words_at(const struct kvi_operand *w, size_t r, size_t c)
{
	enum { ROWS = KVI_OPERAND_ROWS, QUAD = KVI_OPERAND_QUAD };
	size_t quad = r / ROWS * kvi_quads(w->columns) + c / QUAD;
	return quad * ROWS * QUAD + c % 2 * 2 * ROWS + r % ROWS * 2 + c % QUAD / 2;
}

/* Bytes of memory, a multiple of 64, that an operand of at most KVI_GROUP_MAX columns needs.
 * False: overflow. */
bool kvi_words_bytes(size_t rows, size_t columns, size_t *bytes);
/* Lays an empty operand (all zero) into memory of that size, 64-byte aligned. */
void kvi_words_init(struct kvi_operand *w, void *memory, size_t rows, size_t columns);
/* Row r of the operand from a row of A12, whose integers and scale are those of W12; behind the
 * last column up to a whole quad zeros. */
void kvi_words_put(struct kvi_operand *w, size_t r, const int16_t *a, float scale);

#endif
