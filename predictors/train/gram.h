/* SPDX-License-Identifier: BSD-3-Clause */
/* gram.h - second moments of the features of weighted tokens, summed exactly */
#ifndef KVI_TRAIN_GRAM_H
#define KVI_TRAIN_GRAM_H

#include "train.h"

struct kvi_train_feature {
	const int16_t *z;  /* of all tokens */
	double sigma;      /* about; 0: a feature that says nothing */
};

/* g (n x n): sum of w^2 z z' over sum of w^2. Returns OK, or no memory. */
kvarc_ret kvi_train_gram(kvarc_trainer *t, const struct kvi_train_feature *f,
                         size_t n, const float *w, size_t n_tokens, double *g);

#endif
