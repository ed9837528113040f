/* SPDX-License-Identifier: BSD-3-Clause */
/* divergence.h - how far one distribution of the next token is from another */
#ifndef KVI_DIVERGENCE_H
#define KVI_DIVERGENCE_H

#include <stddef.h>
#include <stdint.h>

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
