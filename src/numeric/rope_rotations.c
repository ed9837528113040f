/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rope_rotations.c - frequencies of rotary embeddings, the same on every machine
 *
 * Predictors of models depend on each bit of them, so no library function is used, but
 * integers alone.
 */
#include "rope_rotations.h"

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

uint64_t kvi_rope_log(double theta)
{
	uint64_t bits;
	memcpy(&bits, &theta, sizeof bits);
	uint64_t log = (bits >> 52) - 1023;
	uint64_t y = (bits << 11) | (uint64_t)1 << 63; /* 1 <= y < 2, in 2^-63 */
	for (int i = 0; i < FRACTION; i++) {
		y = mul_high(y, y);       /* y in 2^-62 */
		log = log << 1 | y >> 63; /* bit: y is 2 or more */
		y <<= !(y >> 63);
	}
	return log;
}

/* 2^x of 0 <= x < 1, in 2^-64; in 2^-63 */
static uint64_t exp2_fixed(uint64_t x)
{
	const uint64_t ln2 = 0xb17217f7d1cf79ac; /* ln 2 in 2^-64 */
	const uint64_t one = (uint64_t)1 << 63;
	uint64_t y = mul_high(x, ln2), r = one;
	for (unsigned k = 20; k > 0; k--)
		r = one + mul_high(r, y) / k;
	return r;
}

uint64_t kvi_rope_rotations(uint64_t log_theta, uint32_t i, uint32_t rotary)
{
	const uint64_t log_2pi = 0x054d90e6931bbeeb; /* log2(2 pi) in 2^-57 */
	uint64_t e = log_theta / rotary * (2 * i) + log_theta % rotary * (2 * i) / rotary + log_2pi;
	uint64_t whole = (e >> FRACTION) + 1; /* 2^-e = 2^(whole - e) / 2^whole */
	uint64_t rest = (whole << FRACTION) - e;
	uint64_t f = rest >> FRACTION ? (uint64_t)1 << 63 >> (whole - 2)
	                              : exp2_fixed(rest << (64 - FRACTION)) >> (whole - 1);
	return (f + (1 << 15)) >> 16 << 16;
}
