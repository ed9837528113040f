/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_summary.h - results of a tier over sequences, and gates of one; means, ranks, intervals */
#ifndef KVI_EVAL_SUMMARY_H
#define KVI_EVAL_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

/* ==== Means, ranks and intervals of a few numbers ==== */

/* Mean of n > 0 numbers; infinities count as the largest. */
double kvi_mean(const double *x, size_t n);
/* Standard deviation of a sample; 0 for one number. */
double kvi_deviation(const double *x, size_t n);
/* Sorts n numbers in ascending order. */
void kvi_sort(double *x, size_t n);
/* Value at the nearest rank of a part, above 0 and up to 1, of n > 0 sorted numbers. */
double kvi_rank(const double *sorted, size_t n, double part);

/* ==== How far one distribution of the next token is from another ==== */

/* Difference of two distributions at one position, in nats. */
struct kvi_divergence {
	double kl;        /* KL(exact || other); never negative, 0 for equal
	                     * logits, infinite where it is undefined */
	double delta_nll; /* increase of the next token's negative log-likelihood; 0: not known */
	int32_t best[2];  /* likeliest token of the exact and of the other distribution, the first
	                     * of several */
};

/* exact and other: n > 0 logits each, not normalised. next: the token that comes, -1: not known. */
struct kvi_divergence kvi_divergence(const float *exact, const float *other, size_t n,
                                     int32_t next);

#endif
