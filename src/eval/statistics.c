/* SPDX-License-Identifier: BSD-3-Clause */
/* statistics.c - means, ranks and intervals of a few numbers */
#include "statistics.h"

#include <math.h>
#include <stdlib.h>

#include "util/hash.h"

double kvi_mean(const double *x, size_t n)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

double kvi_deviation(const double *x, size_t n)
{
	double mean = kvi_mean(x, n), sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += (x[i] - mean) * (x[i] - mean);
	return n > 1 ? sqrt(sum / (double)(n - 1)) : 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

void kvi_sort(double *x, size_t n)
{
	qsort(x, n, sizeof *x, compare);
}

double kvi_rank(const double *sorted, size_t n, double part)
{
	/* 0.95 of 20 is number 19, though 0.95 * 20 is a little more */
	double rank = ceil(part * (double)n - 1e-9);
	return sorted[rank > 1 ? (size_t)rank - 1 : 0];
}

void kvi_bootstrap(const double *x, size_t n, uint64_t seed, double *means, size_t draws)
{
	for (size_t d = 0; d < draws; d++) {
		double sum = 0;
		for (size_t i = 0; i < n; i++)
			sum += x[(kvi_splitmix64(&seed) >> 32) * n >> 32];
		means[d] = sum / (double)n;
	}
	kvi_sort(means, draws);
}
