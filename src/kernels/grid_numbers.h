/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_numbers.h - the numbers of a format, for the vector kernels of the grid codec */
#ifndef KVI_GRID_NUMBERS_H
#define KVI_GRID_NUMBERS_H

#include "rans.h"

/* The numbers of a kvi_grid_format as m, w, Z and emin of spec grid. subnormals: whether a grid
 * can be near subnormal numbers; not that of bf16, as k is at least -400 (spec grid 1). */
struct grid_numbers {
	int m, w, z, emin;
	bool subnormals;
};

/* The numbers of any format, with subnormals. */
static inline struct grid_numbers numbers_of(const struct kvi_grid_format *format)
{
	struct grid_numbers n = { format->mant_bits, format->elem_bits, format->max_zeros,
		                  format->emin, true };
	return n;
}

/* The numbers of bf16, as constants. */
static const struct grid_numbers bf16_numbers = { 7, 16, 7, -126, false };

#endif
