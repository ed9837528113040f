/* SPDX-License-Identifier: BSD-3-Clause */
/* statistics.h - means, ranks and intervals of a few numbers */
#ifndef KVI_STATISTICS_H
#define KVI_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Mean of n > 0 numbers; infinities count as the largest. */
double kvi_mean(const double *x, size_t n);
/* Standard deviation of a sample; 0 for one number. */
double kvi_deviation(const double *x, size_t n);
/* Sorts n numbers in ascending order. */
void kvi_sort(double *x, size_t n);
/* Value at the nearest rank of a part, above 0 and up to 1, of n > 0 sorted numbers. */
double kvi_rank(const double *sorted, size_t n, double part);

/* Draws n numbers out of x, with replacement, `draws` times, and stores their means in means,
 * sorted. */
void kvi_bootstrap(const double *x, size_t n, uint64_t seed, double *means, size_t draws);

#endif
