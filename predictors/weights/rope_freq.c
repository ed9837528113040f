/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rope_freq.c - frequencies of rotary embeddings, the same on every machine
 *
 * Predictors depend on each bit of them, so no library function is used: powers are made
 * of integers, scaling of additions, products and quotients of binary64 (spec/arithmetic.md 8).
 */
#include "model_internal.h"

#include <string.h>

/* The high half of a product. */
static uint64_t mul_high(uint64_t a, uint64_t b)
{
	uint64_t al = a & UINT32_MAX, ah = a >> 32;
	uint64_t bl = b & UINT32_MAX, bh = b >> 32;
	uint64_t low = al * bl, mid = ah * bl + (low >> 32);
	uint64_t mid2 = al * bh + (mid & UINT32_MAX);
	return ah * bh + (mid >> 32) + (mid2 >> 32);
}

enum { FRACTION = 57 }; /* bits of logarithms; the integers are below 64 */

/* log2(x) of 1 <= x < 2^63 */
static uint64_t log2_fixed(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	uint64_t log = (bits >> 52) - 1023;
	uint64_t y = (bits << 11) | (uint64_t)1 << 63; /* 1 <= y < 2, in 2^-63 */
	for (int i = 0; i < FRACTION; i++) {
		y = mul_high(y, y);          /* in 2^-62 */
		log = log << 1 | y >> 63;    /* 2 or more? */
		y <<= !(y >> 63);
	}
	return log;
}

/* 2^x of 0 <= x < 1, in 2^-64; in 2^-63 */
static uint64_t exp2_fixed(uint64_t x)
{
	const uint64_t ln2 = 0xb17217f7d1cf79ac; /* in 2^-64 */
	const uint64_t one = (uint64_t)1 << 63;
	uint64_t y = mul_high(x, ln2), r = one;
	for (unsigned k = 20; k > 0; k--)
		r = one + mul_high(r, y) / k;
	return r;
}

/* theta^(-2i / rotary) / (2 pi), in 2^-64, rounded to a multiple of 2^-48 */
static uint64_t turns(uint64_t log_theta, uint32_t i, uint32_t rotary)
{
	const uint64_t log_2pi = 0x054d90e6931bbeeb; /* log2(2 pi) in 2^-57 */
	uint64_t e = log_theta / rotary * (2 * i) +
	             log_theta % rotary * (2 * i) / rotary + log_2pi;
	uint64_t whole = (e >> FRACTION) + 1; /* 2^-e = 2^(whole - e) / 2^whole */
	uint64_t rest = (whole << FRACTION) - e;
	uint64_t f = rest >> FRACTION ? (uint64_t)1 << 63 >> (whole - 2)
	                              : exp2_fixed(rest << (64 - FRACTION)) >> (whole - 1);
	return (f + (1 << 15)) >> 16 << 16;
}

bool kvi_rope_divide(uint64_t *freq, double by)
{
	if (!(by >= 0.25) || !(by <= 1048576))
		return false;
	*freq = (uint64_t)((double)(*freq >> 16) / by + 0.5) << 16;
	return true;
}

/* Slow pairs by the factor, fast ones as they are, between them a blend. */
static bool scale_llama3(const struct kvi_rope_rule *r, uint64_t *freq)
{
	double f = (double)(*freq >> 16), waves = f * 0x1p-48 * r->context;
	if (waves >= r->high)
		return true;
	if (waves <= r->low)
		return kvi_rope_divide(freq, r->factor);
	double blend = (waves - r->low) / (r->high - r->low);
	f = (1 - blend) * (f / r->factor) + blend * f;
	*freq = (uint64_t)(f + 0.5) << 16;
	return true;
}

bool kvi_rope_rule_freq(const struct kvi_rope_rule *r, uint64_t *freq)
{
	if (!(r->theta > 1) || !(r->theta <= 1e12) || r->rotary % 2 ||
	    (r->scaling && (!(r->factor >= 1) || !(r->factor <= 1048576))))
		return false;
	if (r->scaling == KVI_ROPE_LLAMA3 &&
	    (!(r->low > 0) || !(r->high > r->low) || !(r->high <= 1e6) ||
	     !(r->context >= 1) || !(r->context <= 1e9)))
		return false;
	uint64_t log_theta = log2_fixed(r->theta);
	bool good = true;
	for (uint32_t i = 0; i < r->rotary / 2; i++) {
		freq[i] = turns(log_theta, i, r->rotary);
		if (r->scaling == KVI_ROPE_LINEAR)
			good = kvi_rope_divide(&freq[i], r->factor) && good;
		else if (r->scaling == KVI_ROPE_LLAMA3)
			good = scale_llama3(r, &freq[i]) && good;
	}
	return good;
}
