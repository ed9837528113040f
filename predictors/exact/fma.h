/* SPDX-License-Identifier: BSD-3-Clause */
/* fma.h - the fused multiply-add of spec/arithmetic.md 1 in portable C */
#ifndef KVI_FMA_H
#define KVI_FMA_H

#include <stdint.h>
#include <string.h>

/*
 * a * b + c, rounded once, as instructions for it give it; what is not finite as a * b + c gives
 * it. In binary64 the product is exact and the sum has a known error, so that the sum can be
 * rounded to odd: of the two numbers around it the one whose last bit is set. Those 53 bits are
 * more than 24 + 2, so that rounding them to fp32, subnormal or not, rounds the exact result.
 */
static inline float kvi_fma(float a, float b, float c)
{
	double p = (double)a * b, s = p + c;
	double t = s - p, error = (p - (s - t)) + (c - t);
	uint64_t bits;

	memcpy(&bits, &s, sizeof bits);
	if ((error > 0 || error < 0) && !(bits & 1)) { /* both are false where s is not finite */
		bits += (error > 0) == (s > 0) ? 1 : (uint64_t)-1;
		memcpy(&s, &bits, sizeof s);
	}
	return (float)s;
}

#endif
