/* SPDX-License-Identifier: BSD-3-Clause */
/* below.h - transforms of what tensors before them leave (spec klt 2) */
#ifndef KVI_TRAIN_BELOW_H
#define KVI_TRAIN_BELOW_H

#include "trainer.h"

enum { KVI_TRAIN_BELOW_KEPT = 8 };

/* A tensor that others may be predicted from: numbers in units of 2^step about its means. */
struct kvi_train_kept {
	const struct kvi_model *m;
	int16_t *z;   /* C rows of all tokens */
	double noise; /* variance that decoded elements of a head of weight 1 will have about them,
	                     * in those units */
};
struct kvi_train_below {
	size_t n;
	struct kvi_train_kept kept[KVI_TRAIN_BELOW_KEPT];
};
/* Sources for a model that has none, of tensors that are kept; those of layers further below are
 * freed. tokens: that can be fitted. */
void kvi_train_below_choose(kvarc_trainer *t, struct kvi_train_below *b, struct kvi_model *m,
                            double tokens);
/* Takes z. */
void kvi_train_below_keep(kvarc_trainer *t, struct kvi_train_below *b, const struct kvi_model *m,
                          int16_t *z, double noise);
void kvi_train_below_free(kvarc_trainer *t, struct kvi_train_below *b);

/*
 * Rows of A of a model whose means and steps are there; cov: of each of its heads the covariance of
 * what they leave, in units of 2^step. w: weights of the tokens. Returns OK, or no memory.
 */
kvarc_ret kvi_train_below_fit(kvarc_trainer *t, const struct kvi_train_below *b,
                              struct kvi_model *m, const int16_t *z, const float *w,
                              size_t n_tokens, double *cov);

#endif
