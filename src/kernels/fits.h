/* SPDX-License-Identifier: BSD-3-Clause */
/* fits.h - what fits of parameters share with the kernels that read their elements */
#ifndef KVI_FITS_H
#define KVI_FITS_H

/* Floats: channels side by side, and the sample of each. */
enum { KVI_FIT_FLOATS = 8, KVI_FIT_SAMPLE = 16 };

/* Numbers of channels: values less `mean`, times `scale`, count where their square is at most
 * `limit`. */
struct kvi_near {
	float mean[KVI_FIT_FLOATS], scale[KVI_FIT_FLOATS], limit[KVI_FIT_FLOATS];
};

/* Sums of channels: the number of values that count, the sum of their products and of the
 * squares. */
struct kvi_near_sums {
	float n[KVI_FIT_FLOATS], s1[KVI_FIT_FLOATS], s2[KVI_FIT_FLOATS];
};

#endif
