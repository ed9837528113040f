/* SPDX-License-Identifier: BSD-3-Clause */
/* quantiser_scales.h - what the codecs with a scale for each block of channels share (spec tsc,
 * vq) */
#ifndef KVI_QUANTISER_SCALES_H
#define KVI_QUANTISER_SCALES_H

#include "codecs/coder.h"

/* The least scale that is not below v >= 0: a bf16 pattern, positive and normal; 0: there is
 * none. */
uint16_t kvi_scale_of(float v);
/* The value of a scale. */
float kvi_scale_value(uint16_t scale);

/* Writes n scales as planes (spec tsc 2). Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_scales_put(struct kvi_coder *coder, const uint16_t *scales, size_t n,
                         struct kvi_out *out);
/* Reads n scales. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_scales_get(struct kvi_coder *coder, struct kvi_in *in, size_t n, uint16_t *to);

/* Numbers to elements (spec lossy 2). x is changed. */
void kvi_lossy_store(unsigned dtype, float *x, size_t n, uint8_t *to);
/* The sum of the squares of n finite elements. */
double kvi_lossy_squares(unsigned dtype, const uint8_t *elements, size_t n);

#endif
