/* SPDX-License-Identifier: BSD-3-Clause */
/* train_rows.h - rows of coefficients as few, small integers (spec profile 3) */
#ifndef KVI_TRAIN_ROWS_H
#define KVI_TRAIN_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_kernels.h"

/* The regression of one target on p features. */
struct kvi_train_row {
	const double *s; /* second moments of the features */
	size_t stride, p;
	const double *diagonal; /* diagonal of s, contiguous: eight entries a cache line */
	const double *g;        /* second moments of the features with the target */
	double ridge;           /* ridge, in parts of the diagonal of s */
	double all;             /* variance of the target */
	double share;           /* part of this row's residual that remains in the end */
	double left;            /* lower bound of the residual's variance */
	bool few;               /* too few tokens: b says little, the row begins at zero */
	double tokens;          /* tokens to be coded with it: the worth of its digits */
};

/* Approximate cost of an integer in a packed profile, in bits; |v| < 2^16. */
double kvi_train_rate(int32_t v);
/* Rounds n coefficients * 2^q to integers, *sum: of their magnitudes. False: they break a limit of
 * a row (spec profile 3). */
bool kvi_train_round_all(const double *b, size_t n, int q, int16_t *to, uint64_t *sum);
/*
 * q and coefficients * 2^q, where digits and coefficients that save less bits in those tokens
 * than they cost in the profile are left out: each in turn takes the best integer given the
 * others, beginning at b. b becomes what the integers mean. work: p.
 */
uint8_t kvi_train_round_row(const struct kvi_train_kernels *kernels, const struct kvi_train_row *r,
                            double *b, int16_t *to, double *work);

#endif
