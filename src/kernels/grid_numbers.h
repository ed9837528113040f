/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_numbers.h - a dtype's numbers, for the vector kernels of the grid codec */
#ifndef KVI_GRID_NUMBERS_H
#define KVI_GRID_NUMBERS_H

#include "rans.h"

/* subnormals is false for bf16: its grid is never near them, because k is at least
 * -400 (spec grid 1). */
struct grid_numbers {
	int m, w, z, emin;
	bool subnormals;
};

static inline struct grid_numbers numbers_of(const struct kvi_grid_format *f)
{
	struct grid_numbers n = { f->mant_bits, f->elem_bits, f->max_zeros, f->emin,
		             true };
	return n;
}

static const struct grid_numbers bf16_numbers = { 7, 16, 7, -126, false };

#endif
