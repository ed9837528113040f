/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent.h - what the sources of the exponent codec share (spec exponent) */
#ifndef KVI_EXPONENT_H
#define KVI_EXPONENT_H

#include "codecs/coder.h"

/*
 * Splits n elements into exponent fields, one byte per element, and planes of the other bits, which
 * are written from `to`. Returns the end of the planes; NULL: no memory.
 */
uint8_t *kvi_exponent_split(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed,
                            size_t n, uint8_t *e, uint8_t *to);
/* The planes of elements that are being decoded. */
struct kvi_exponent_planes {
	const uint8_t *values[3]; /* a byte of each element; of f16 planes as they are stored */
	unsigned lo[3], n;        /* the first bit of each in the rest; number of planes */
};
/* Reads the planes of n elements. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_exponent_planes_get(struct kvi_coder *coder, unsigned dtype, size_t n,
                                  struct kvi_in *in, struct kvi_exponent_planes *planes);
/* The buffer for the n elements that kvi_exponent_merge makes: for dtypes of 16 bits as of
 * kvi_elements16_buffer, for others `packed`. NULL: no memory. */
void *kvi_exponent_buffer(struct kvi_coder *coder, unsigned dtype, uint8_t *packed, size_t n);
/*
 * The inverse of kvi_exponent_split for the elements at .. at + n - 1; at: a multiple of 32. fields
 * and planes are those of all elements, `to` is kvi_exponent_buffer. False: an exponent field that
 * the dtype does not have.
 */
bool kvi_exponent_merge(const struct kvi_kernels *kernels, unsigned dtype, const uint8_t *fields,
                        const struct kvi_exponent_planes *planes, size_t at, size_t n, void *to);

/* The exponent fields alone; false: no memory. */
bool kvi_exponent_fields(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed, size_t n,
                         uint8_t *e);

/* Fits the parameters to the elements of a job. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_exponent_fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                           struct kvi_params **out);

#endif
