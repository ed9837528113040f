/* SPDX-License-Identifier: BSD-3-Clause */
/* gram.h - second moments of the features of weighted tokens, summed exactly */
#ifndef KVI_TRAIN_GRAM_H
#define KVI_TRAIN_GRAM_H

#include "kvarc/tools.h"
#include "trainer.h"

/* Feature of a linear fit: a row over all tokens. */
struct kvi_train_feature {
	const int16_t *z; /* values of all tokens */
	double sigma;     /* estimate; 0: a constant feature */
};

/* Computes mean (n) and covariance g (n x n) of the features; tokens count w^2 each. Returns OK, or
 * no memory. */
kvarc_ret kvi_train_gram(kvarc_trainer *trainer, const struct kvi_train_feature *feature, size_t n,
                         const float *w, size_t n_tokens, double *g, double *mean);

#endif
