/* SPDX-License-Identifier: BSD-3-Clause */
/* round.h - fp32 numbers as engines of fewer bits have them, for trainers */
#ifndef KVI_ROUND_H
#define KVI_ROUND_H

#include <stddef.h>

#include "numeric/formats.h"

/* Rounds n numbers to nearest, ties to even. Numbers too large for the format stay. */
void kvi_round_floats(float *x, size_t n, const struct kvi_grid_format *format);

#endif
