/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_formulas.h - the formulas of the linear codec for one element (spec linear 2 to 4)
 *
 * The scalar slot kernel codes with them, and the trainer prices with them. Pure functions.
 */
#ifndef KVI_LINEAR_FORMULAS_H
#define KVI_LINEAR_FORMULAS_H

#include <string.h>

#include "rans.h"

/* Limits and constants of the codec. */
enum {
	KVI_LINEAR_LIMIT = 32767,        /* largest integer of an element, base, prediction */
	KVI_LINEAR_K_LIMIT = 400,        /* largest scale class, either sign */
	KVI_LINEAR_SHIFT_LIMIT = 32,     /* largest class of a token; difference of a pair's */
	KVI_LINEAR_DISTANCE_LIMIT = 127, /* largest distance */
	KVI_LINEAR_DISTANCE_START = 13,  /* mean distance that the slots' scales assume */
	KVI_SCALE_SLOTS = 65536          /* w and n stop there */
};

/* A cosine and a sine in 1/16384. */
enum { KVI_LINEAR_COSINE_ONE = 14 };

/* floor(a / 4), also of negative numbers */
static inline int kvi_quarter(int a)
{
	return (a - (a & 3)) / 4;
}

/* v, or the limit that it is beyond; lo <= hi. */
static inline int kvi_clamp(int v, int lo, int hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

/* v * 2^e as a binary32 pattern. |v| <= 2^24; the product is a normal number or 0. */
static inline uint32_t kvi_scaled_bits(int32_t v, int e)
{
	uint32_t bits;
	float f = (float)v;
	memcpy(&bits, &f, sizeof(bits));
	return v ? bits + ((uint32_t)e << 23) : 0;
}

/* v limited to [-KVI_LINEAR_LIMIT, KVI_LINEAR_LIMIT]. */
static inline int32_t kvi_linear_limited(int32_t v)
{
	return kvi_clamp(v, -KVI_LINEAR_LIMIT, KVI_LINEAR_LIMIT);
}

/* Half of a unit of a sum with q fraction bits, which rounds it; q <= 30. */
static inline int32_t kvi_linear_half(unsigned q)
{
	return (int32_t)1 << q >> 1;
}

/* Element x as an integer in units of 2^step (spec linear 2). */
static inline int32_t kvi_linear_integer(uint32_t x, const struct kvi_grid_format *fmt, int step)
{
	int m = fmt->mant_bits;
	uint32_t magnitude = x & (((uint32_t)1 << (fmt->elem_bits - 1)) - 1);
	int field = (int)(magnitude >> m);
	uint32_t man = magnitude << (23 - m) & 0x7fffff;
	if (field)
		man |= 0x800000;
	else
		field = 1;
	int sh = kvi_clamp(24 - fmt->emin + step - field, 1, 31);
	uint32_t v = (man + ((uint32_t)1 << (sh - 1))) >> sh;
	int32_t most = v < KVI_LINEAR_LIMIT ? (int32_t)v : KVI_LINEAR_LIMIT;
	return x >> (fmt->elem_bits - 1) & 1 ? -most : most;
}

/* Applies RoPE to the predictions of a pair; v in units of 2^(step - 6). */
static inline void kvi_linear_apply_rope(int32_t a, int32_t b, int32_t cosine, int32_t sine,
                                         int32_t v[2])
{
	v[0] = (a * cosine - b * sine + 128) >> 8;
	v[1] = (b * cosine + a * sine + 128) >> 8;
}

/* A value of kvi_linear_apply_rope() in units of 2^step. */
static inline int32_t kvi_linear_expected(int32_t v)
{
	return (v + 32) >> 6;
}

/* Removes RoPE from the integers of a pair (spec linear 2). */
static inline void kvi_linear_remove_rope(int32_t a, int32_t b, int32_t cosine, int32_t sine,
                                          int32_t u[2])
{
	const int32_t half = kvi_linear_half(KVI_LINEAR_COSINE_ONE);
	u[0] = (a * cosine + b * sine + half) >> KVI_LINEAR_COSINE_ONE;
	u[1] = (b * cosine - a * sine + half) >> KVI_LINEAR_COSINE_ONE;
}

/* The distance v of spec linear 4. d: X - M in units of 2^step; k: the slot's k'. */
static inline uint32_t kvi_linear_distance(int32_t d, int k, int step)
{
	static const uint32_t reciprocal[4] = { 32768, 27554, 23170, 19484 };
	uint32_t far = (uint32_t)(d < 0 ? -d : d);
	if (far > 65535)
		far = 65535;
	int shift = kvi_clamp(kvi_quarter(k) - step + 11, 0, 31);
	uint32_t v = far * reciprocal[k & 3] >> shift;
	return v < KVI_LINEAR_DISTANCE_LIMIT ? v : KVI_LINEAR_DISTANCE_LIMIT;
}

/* The classes that a token adds to k', from the sum w of n of its distances (spec linear 4). */
static inline int kvi_linear_token_class(uint32_t w, uint32_t n)
{
	int32_t d = (int32_t)(kvi_scaled_bits((int32_t)w, 0) -
	                      kvi_scaled_bits((int32_t)(KVI_LINEAR_DISTANCE_START * n), 0));
	int o = (d + (1 << 20)) >> 21;
	return o > -KVI_LINEAR_SHIFT_LIMIT ? o : -KVI_LINEAR_SHIFT_LIMIT;
}

/* k' and the token's class together, as the context takes it. */
static inline int kvi_linear_class(int k, int token_class)
{
	return kvi_clamp(k + token_class, -KVI_LINEAR_K_LIMIT, KVI_LINEAR_K_LIMIT);
}

#endif
