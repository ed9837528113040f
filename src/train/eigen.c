/* SPDX-License-Identifier: BSD-3-Clause */
/* eigen.c - eigenvectors of a symmetric matrix by Jacobi's method */
#include "eigen.h"

#include <math.h>
#include <string.h>

enum { SWEEPS = 24 };

/* Applies one rotation of Jacobi's method: a[p][q] becomes 0. v: eigenvectors, in columns. */
static void rotate(double *a, double *v, size_t n, size_t p, size_t q)
{
	double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
	double t = 1 / ((theta < 0 ? -theta : theta) + sqrt(theta * theta + 1));
	t = theta < 0 ? -t : t;
	double c = 1 / sqrt(t * t + 1), s = t * c;
	for (size_t i = 0; i < n; i++) {
		double x = a[p * n + i], y = a[q * n + i];
		a[p * n + i] = c * x - s * y;
		a[q * n + i] = s * x + c * y;
	}
	for (size_t i = 0; i < n; i++) {
		double x = a[i * n + p], y = a[i * n + q];
		a[i * n + p] = c * x - s * y;
		a[i * n + q] = s * x + c * y;
		x = v[i * n + p];
		y = v[i * n + q];
		v[i * n + p] = c * x - s * y;
		v[i * n + q] = s * x + c * y;
	}
}

/* Makes a diagonal; v: eigenvectors, in columns. */
static void diagonalise(double *a, double *v, size_t n)
{
	double all = 0, off = 1;
	memset(v, 0, n * n * sizeof *v);
	for (size_t i = 0; i < n; i++)
		v[i * n + i] = 1;
	for (size_t i = 0; i < n * n; i++)
		all += a[i] * a[i];
	for (unsigned sweep = 0; sweep < SWEEPS && off > 1e-18 * all; sweep++) {
		off = 0;
		for (size_t p = 0; p + 1 < n; p++)
			for (size_t q = p + 1; q < n; q++) {
				double x = a[p * n + q];
				off += x * x;
				if (x * x > 1e-26 * all)
					rotate(a, v, n, p, q);
			}
	}
}

void kvi_eigen(size_t n, double *a, double *v, double *value)
{
	diagonalise(a, v, n);
	for (size_t j = 0; j < n; j++)
		value[j] = a[j * n + j] > 0 ? a[j * n + j] : 0;
	for (size_t j = 0; j < n; j++) { /* selection sort: values and columns */
		size_t most = j;
		for (size_t k = j + 1; k < n; k++)
			if (value[k] > value[most])
				most = k;
		double x = value[j];
		value[j] = value[most];
		value[most] = x;
		for (size_t i = 0; most != j && i < n; i++) {
			x = v[i * n + j];
			v[i * n + j] = v[i * n + most];
			v[i * n + most] = x;
		}
	}
}
