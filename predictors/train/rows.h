/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.h - rows of coefficients as integers (spec profile 3) */
#ifndef KVI_TRAIN_ROWS_H
#define KVI_TRAIN_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* What rounding may add to the variance of a residual, as a part of it: cheap bits of the
 * profile against dear ones of the archives. */
#define KVI_TRAIN_NOISE_A 0.0005
#define KVI_TRAIN_NOISE_B 0.001

/*
 * q and the coefficients b[i] * 2^q, rounded: the least q with which rounding adds about
 * `noise` or less to the variance, var[i] being those of the features. Less where a row
 * would become too large. Zero everywhere when b has a value that is no number.
 */
uint8_t kvi_train_round_row(const double *b, const double *var, size_t n,
                            double noise, int16_t *to);

#endif
