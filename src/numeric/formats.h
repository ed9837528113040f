/* SPDX-License-Identifier: BSD-3-Clause */
/* formats.h - the floating-point dtypes in numbers (spec 4.1) */
#ifndef KVI_FORMATS_H
#define KVI_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/rans.h"

/* Bits of an element: sign, exp_bits, mant_bits. grid describes the coded
 * element of the grid codec, for f32 that is its high half. */
struct kvi_float_format {
	unsigned exp_bits, mant_bits;
	struct kvi_grid_format grid;
};

/* The format of a dtype; NULL: it is not floating point. */
const struct kvi_float_format *kvi_float_format(unsigned dtype);

/*
 * Converts n elements of a floating-point dtype to binary32, for statistics: exact but for f32 (its
 * high half). Infinities and NaNs of a format of 5 exponent bits or fewer become large numbers.
 */
void kvi_floats_widen(unsigned dtype, const uint8_t *from, size_t n, float *to);
/* Whether none of n elements is an infinity or not a number. */
bool kvi_floats_finite(unsigned dtype, const uint8_t *from, size_t n);

/* Converts n elements of a floating-point dtype to binary32, for predictors: exact for all dtypes;
 * infinities and NaNs become 0. Needs subnormals (util/fpmode.h). */
void kvi_floats_exact(unsigned dtype, const uint8_t *from, size_t n, float *to);

/* Converts n numbers to elements of a dtype, to nearest, ties to even (spec predicted 1). */
void kvi_floats_store(unsigned dtype, const float *from, size_t n, uint8_t *to);

#endif
