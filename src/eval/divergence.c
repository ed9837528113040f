/* SPDX-License-Identifier: BSD-3-Clause */
/* divergence.c - how far one distribution of the next token is from another */
#include "divergence.h"

#include <math.h>

static size_t best_of(const float *z, size_t n)
{
	size_t best = 0;
	for (size_t i = 1; i < n; i++)
		if (z[i] > z[best])
			best = i;
	return best;
}

/* Subtracts the largest logit, in double: sums neither overflow nor lose a token. */
struct kvi_divergence kvi_divergence(const float *exact, const float *other, size_t n, int32_t next)
{
	size_t a = best_of(exact, n), b = best_of(other, n);
	double sum = 0, other_sum = 0, difference = 0;
	for (size_t i = 0; i < n; i++) {
		double x = (double)exact[i] - (double)exact[a];
		double y = (double)other[i] - (double)other[b];
		double p = exp(x);
		sum += p;
		other_sum += exp(y);
		difference += p * (x - y);
	}
	double shift = log(other_sum) - log(sum); /* 0 for the same logits, as the difference */
	struct kvi_divergence d = { .kl = difference / sum + shift,
		                    .best = { (int32_t)a, (int32_t)b } };
	if (!isfinite(d.kl))
		d.kl = INFINITY;
	else if (d.kl < 0) /* rounding: some 1e-15 */
		d.kl = 0;
	if (next >= 0 && (size_t)next < n)
		d.delta_nll = ((double)exact[next] - (double)exact[a]) -
		              ((double)other[next] - (double)other[b]) + shift;
	return d;
}
