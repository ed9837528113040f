/* SPDX-License-Identifier: BSD-3-Clause */
/* eigen.h - eigenvectors of a symmetric matrix */
#ifndef KVI_EIGEN_H
#define KVI_EIGEN_H

#include <stddef.h>

/*
 * Eigenvalues and eigenvectors of a symmetric, positive semidefinite n x n matrix a, by Jacobi's
 * method in a fixed order with + - * / and sqrt alone: the same numbers everywhere. v: n x n, the
 * eigenvectors in columns; value: n, in descending order, none negative. a is overwritten. Runs
 * under kvi_fp_exact.
 */
void kvi_eigen(size_t n, double *a, double *v, double *value);

#endif
