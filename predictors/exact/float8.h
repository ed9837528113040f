/* SPDX-License-Identifier: BSD-3-Clause */
/* float8.h - numbers of 8 bits, e4m3, and operands of them (spec/arithmetic.md 2, E4M3) */
#ifndef KVI_FLOAT8_H
#define KVI_FLOAT8_H

#include <string.h>

#include "exact/matmul.h"

#define KVI_E4M3_MAX 448.0f

/* The nearest e4m3 number, ties to even; what is above the largest becomes the largest. Zeros have
 * no sign. */
uint8_t kvi_e4m3_of(float x);
/* The value of an E4M3 code. */
static inline float kvi_e4m3_value(uint8_t code)
{
	uint32_t m = code & 0x7f, b = (m << 20) + (120u << 23);
	float x = (float)m * 0x1p-9f;
	if (m >= 8)
		memcpy(&x, &b, sizeof x);
	return code & 0x80 ? -x : x;
}

/* Bytes of memory, a multiple of 64, that an operand needs. False: overflow. */
bool kvi_e4m3_bytes(size_t rows, size_t columns, size_t *bytes);
/* Lays an empty operand (all zero) into memory of that size, 64-byte aligned. */
void kvi_e4m3_init(struct kvi_operand *w, void *memory, size_t rows, size_t columns);
/* The operand that lies there. */
void kvi_e4m3_at(struct kvi_operand *w, const void *memory, size_t rows, size_t columns);
/* Rounds row r of the operand to E4M3 and stores it; x: its columns. */
void kvi_e4m3_put(struct kvi_operand *w, size_t r, const float *x);

#endif
