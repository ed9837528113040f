/* SPDX-License-Identifier: BSD-3-Clause */
/* near.h - the codec near: a bound on the error of each element */
#ifndef KVI_NEAR_H
#define KVI_NEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codecs/coder.h"
#include "kernels/rans.h"

/* The points that elements of a dtype are rounded to: multiples of 2^F, or themselves where
 * the steps of the dtype are wider. */
struct kvi_lattice {
	const struct kvi_grid_format *fmt; /* format of codes, in units of 2^F */
	unsigned dtype, size;
	int exponent;      /* F */
	unsigned depth;    /* F - (emin - m) */
	unsigned low_bits; /* bits of f32 below the 14 mantissa bits that codes have */
	uint32_t largest;  /* largest pattern, without low_bits */
};

/* Makes the lattice of an exponent F; false: F is out of its range. */
bool kvi_lattice_make(struct kvi_lattice *lattice, unsigned dtype, int exponent);
/* The F with errors up to `most`, as far as the range goes. */
int kvi_lattice_exponent(unsigned dtype, double most);
/* Codes of n finite elements; false: some are too large. */
bool kvi_lattice_codes(const struct kvi_lattice *lattice, const uint8_t *elements, size_t n,
                       uint16_t *codes);
/* The elements of any n codes. */
void kvi_lattice_elements(const struct kvi_lattice *lattice, const uint16_t *codes, size_t n,
                          uint8_t *elements);

#endif
