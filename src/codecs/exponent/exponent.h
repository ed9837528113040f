/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent.h - inside codec 4 */
#ifndef KVI_EXPONENT_H
#define KVI_EXPONENT_H

#include "codecs/coder.h"

/*
 * Elements of a dtype to exponent fields (one byte each) and planes of the
 * rest, written from `to`; returns the end, NULL without memory. And back, but
 * bf16; an exponent field that the dtype does not have is "data".
 */
uint8_t *kvi_exponent_split(struct kvi_coder *c, unsigned dtype, const uint8_t *packed, size_t n,
                            uint8_t *e, uint8_t *to);
/* Reads the planes of the other bits and puts them together with the exponent fields. Returns
 * OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_exponent_merge(struct kvi_coder *c, unsigned dtype, const uint8_t *e, size_t n,
                             struct kvi_in *in, uint8_t *packed);

/* bf16 from exponent fields and its only plane. */
kvarc_ret kvi_exponent_merge_bf16(struct kvi_coder *c, const uint8_t *e, const uint8_t *rest,
                                  size_t n, uint8_t *packed);

/* Exponent fields alone; false without memory. */
bool kvi_exponent_fields(struct kvi_coder *c, unsigned dtype, const uint8_t *packed, size_t n,
                         uint8_t *e);

/* Fits the parameters of the exponent codec to the samples of a job. Returns OK, MEM, MEMLIMIT.
 * Fits the parameters of the exponent codec to the samples of a job. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_exponent_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                           struct kvi_params **out);

/* What the codec's decode does, for two chunks at once. */
void kvi_exponent_decode2(struct kvi_coder *const c[2], const struct kvi_coder_job *const job[2],
                          struct kvi_in *const in[2], uint8_t *const packed[2], kvarc_ret ret[2]);

#endif
