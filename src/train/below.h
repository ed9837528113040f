/* SPDX-License-Identifier: BSD-3-Clause */
/* below.h - linear predictions between tensors that klt transforms (spec klt 2) */
#ifndef KVI_TRAIN_BELOW_H
#define KVI_TRAIN_BELOW_H

#include "kvarc/tools.h"
#include "trainer.h"

/* The largest number of source tensors held in memory. */
enum { KVI_TRAIN_BELOW_KEPT = 8 };

/* A tensor that others may be predicted from: numbers in units of 2^step about its means. */
struct kvi_train_kept {
	const struct kvi_model *m;
	int16_t *z;   /* C rows of all tokens */
	double noise; /* variance that decoded elements of a head of weight 1 will have about them,
	                     * in those units */
};

/* The tensors of lower layers that a transform may predict from, in the order of
 * kvi_train_below_keep(). */
struct kvi_train_below {
	size_t n;
	struct kvi_train_kept kept[KVI_TRAIN_BELOW_KEPT];
};

/* Sets the sources of m, which has none, from the tensors in *b; frees those of layers that are
 * too low. tokens: the number of tokens to fit on. */
void kvi_train_below_choose(kvarc_trainer *t, struct kvi_train_below *b, struct kvi_model *m,
                            double tokens);
/* Adds a tensor to *b. Takes ownership of z (C rows of all tokens); frees it when *b is full. */
void kvi_train_below_keep(kvarc_trainer *t, struct kvi_train_below *b, const struct kvi_model *m,
                          int16_t *z, double noise);
/* Frees all z in *b. */
void kvi_train_below_free(kvarc_trainer *t, struct kvi_train_below *b);

/*
 * Fits the rows of A of a model that has its means and steps. cov, written: the covariance of the
 * residual of each head, in units of 2^step. w: weights of the tokens. Returns OK, MEM, MEMLIMIT.
 */
kvarc_ret kvi_train_below_fit(kvarc_trainer *t, const struct kvi_train_below *b,
                              struct kvi_model *m, const int16_t *z, const float *w,
                              size_t n_tokens, double *cov);

#endif
