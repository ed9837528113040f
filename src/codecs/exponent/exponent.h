/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent.h - what the sources of the exponent codec share (spec exponent) */
#ifndef KVI_EXPONENT_H
#define KVI_EXPONENT_H

#include "codecs/coder.h"

/*
 * Splits n elements into exponent fields, one byte per element, and planes of the other bits, which
 * are written from `to`. Returns the end of the planes; NULL: no memory.
 */
uint8_t *kvi_exponent_split(struct kvi_coder *c, unsigned dtype, const uint8_t *packed, size_t n,
                            uint8_t *e, uint8_t *to);
/* The inverse for all dtypes but bf16. DATA: an exponent field that the dtype does not have.
 * Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_exponent_merge(struct kvi_coder *c, unsigned dtype, const uint8_t *e, size_t n,
                             struct kvi_in *in, uint8_t *packed);
/* The inverse for bf16, whose only plane `rest` is. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_exponent_merge_bf16(struct kvi_coder *c, const uint8_t *e, const uint8_t *rest,
                                  size_t n, uint8_t *packed);

/* The exponent fields alone; false: no memory. */
bool kvi_exponent_fields(struct kvi_coder *c, unsigned dtype, const uint8_t *packed, size_t n,
                         uint8_t *e);

/* Fits the parameters to the elements of a job. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_exponent_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                           struct kvi_params **out);

#endif
