/* SPDX-License-Identifier: BSD-3-Clause */
/* dense.h - symmetric systems in double: factors, products, eigenvectors, second moments */
#ifndef KVI_DENSE_H
#define KVI_DENSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "kvarc/tools.h"
#include "train/train_kernels.h"
#include "train/trainer.h"

/* ==== Second moments of the features of weighted tokens, summed exactly ==== */

/* Feature of a linear fit: a row over all tokens. */
struct kvi_train_feature {
	const int16_t *z; /* values of all tokens */
	double sigma;     /* estimate; 0: a constant feature */
};

/* Computes mean (n) and covariance g (n x n) of the features; tokens count w^2 each. Returns OK, or
 * no memory. */
kvarc_ret kvi_train_gram(kvarc_trainer *trainer, const struct kvi_train_feature *feature, size_t n,
                         const float *w, size_t n_tokens, double *g, double *mean);

/* ==== Eigenvectors of a symmetric matrix ==== */

/*
 * Eigenvalues and eigenvectors of a symmetric, positive semidefinite n x n matrix a, by Jacobi's
 * method in a fixed order with + - * / and sqrt alone: the same numbers everywhere. v: n x n, the
 * eigenvectors in columns; value: n, in descending order, none negative. a is overwritten. Runs
 * under kvi_fp_exact.
 */
void kvi_eigen(size_t n, double *a, double *v, double *value);

/* ==== Symmetric systems in double, by blocks, in several threads ==== */

/*
 * a = L L^T in place, n x n, row-major; what is above the diagonal is not read and not set.
 * A variable that the ones before it determine is left out: its row of L is such that
 * nothing is predicted from it. False: no memory.
 */
bool kvi_train_cholesky(kvarc_trainer *trainer, double *a, size_t n, size_t stride);
/* x (n x m) becomes the solution of L L^T X = x; work: n * n. */
void kvi_train_solve(kvarc_trainer *trainer, const double *l, size_t n, size_t stride, double *x,
                     size_t m, double *work);
/* c -= a b: c is m x n, a is m x k, b is k x n. */
void kvi_train_subtract(kvarc_trainer *trainer, double *c, size_t c_stride, const double *a,
                        size_t a_stride, const double *b, size_t b_stride, size_t m, size_t n,
                        size_t k);
/*
 * b[0..p-1]: regression of variable c on the first p variables of a Cholesky factor, p <= c;
 * row c of L is its regression on the scaled residuals.
 */
void kvi_train_regress(const struct kvi_train_kernels *kernels, const double *l, size_t stride,
                       size_t c, size_t p, double *b);

#endif
