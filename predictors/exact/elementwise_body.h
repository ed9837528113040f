/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * elementwise_body.h - the text of elementwise.h, included once for each instruction set
 *
 * 16 lanes whatever the set: compilers cut them into what it has.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "exact/elementwise.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__FAST_MATH__)
#error "fast-math changes results: build without it"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "fp32 must not be computed in more precision");

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(64)));
typedef int32_t ints __attribute__((vector_size(64)));
typedef uint32_t bits __attribute__((vector_size(64)));

#define MAGIC 12582912.0f /* 1.5 * 2^23 */

static inline lanes load(const float *x)
{
	lanes v;
	memcpy(&v, x, sizeof v);
	return v;
}

static inline void store(float *y, lanes v)
{
	memcpy(y, &v, sizeof v);
}

/* The first n of 16 numbers, then zeros. */
static inline lanes load_some(const float *x, size_t n)
{
	lanes v = { 0 };
	if (n >= LANES)
		return load(x);
	memcpy(&v, x, n * sizeof *x);
	return v;
}

static inline void store_some(float *y, lanes v, size_t n)
{
	if (n >= LANES)
		store(y, v);
	else
		memcpy(y, &v, n * sizeof *y);
}

static inline lanes choose(ints mask, lanes yes, lanes no)
{
	return (lanes)(((bits)mask & (bits)yes) | (~(bits)mask & (bits)no));
}

static inline lanes absolute(lanes x)
{
	return (lanes)((bits)x & 0x7fffffffu);
}

/* spec/arithmetic.md 1. Lanes below -87, and NaN, are zero. */
static inline lanes exp_of(lanes x)
{
	lanes t = x * 0x1.715476p+0f + MAGIC;
	lanes f = t - MAGIC;
	bits n = (bits)t - 0x4b400000u;
	lanes r = (x - f * 0x1.63p-1f) - f * -0x1.bd0106p-13f;
	lanes p = 0x1.a0d2cep-13f * r + 0x1.6e879cp-10f;
	p = p * r + 0x1.11121p-7f;
	p = p * r + 0x1.555382p-5f;
	p = p * r + 0x1.555554p-3f;
	p = p * r + 0.5f;
	p = (p * (r * r) + r) + 1.0f;
	lanes y = p * (lanes)((n + 127) << 23);
	return choose(x > -87.0f, y, (lanes){ 0 });
}

static inline float sum_lanes(lanes v)
{
	float x[LANES];
	memcpy(x, &v, sizeof x);
	for (size_t w = LANES / 2; w; w /= 2)
		for (size_t j = 0; j < w; j++)
			x[j] = x[j] + x[j + w];
	return x[0];
}

/* a > b ? a : b */
static inline lanes larger(lanes a, lanes b)
{
#if defined(__AVX512F__)
	return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
#else
	return choose(a > b, a, b);
#endif
}

static inline float max_lanes(lanes v)
{
#if defined(__AVX512F__)
	return _mm512_reduce_max_ps((__m512)v);
#else
	float x[LANES];
	memcpy(x, &v, sizeof x);
	for (size_t w = LANES / 2; w; w /= 2)
		for (size_t j = 0; j < w; j++)
			x[j] = x[j + w] > x[j] ? x[j + w] : x[j];
	return x[0];
#endif
}

/* A last part of fewer than 16 numbers adds zeros to its other lanes: no change, as
 * their sums are never -0. */
static float norm(float *y, const float *x, const float *gain, const float *bias, size_t n,
                  float epsilon)
{
	lanes sum = { 0 };
	float mean = 0;
	if (bias) {
		for (size_t i = 0; i < n; i += LANES)
			sum = sum + load_some(x + i, n - i);
		mean = sum_lanes(sum) / (float)n;
		sum = (lanes){ 0 };
	}
	for (size_t i = 0; i < n; i += LANES) {
		lanes d = load_some(x + i, n - i);
		if (bias) {
			d = d - mean;
			if (n - i < LANES) { /* lanes past the end are no numbers */
				float some[LANES];
				store(some, d);
				d = load_some(some, n - i);
			}
		}
		sum = sum + d * d;
	}
	float root = sqrtf(sum_lanes(sum) / (float)n + epsilon);
	float inverse = 1.0f / root;
	for (size_t i = 0; i < n; i += LANES) {
		lanes d = load_some(x + i, n - i);
		lanes g = load_some(gain + i, n - i);
		if (bias)
			d = ((d - mean) * inverse) * g + load_some(bias + i, n - i);
		else
			d = (d * inverse) * g;
		store_some(y + i, d, n - i);
	}
	return root;
}

static inline lanes silu_of(lanes x)
{
	lanes e = exp_of(-absolute(x));
	lanes one = (lanes){ 0 } + 1.0f;
	return x * (choose(x >= 0.0f, one, e) / (1.0f + e));
}

static inline lanes gelu_of(lanes x)
{
	lanes u = 0x1.988454p-1f * (x + 0x1.6e4e26p-5f * ((x * x) * x));
	lanes e = exp_of(-(2.0f * absolute(u)));
	lanes h = (1.0f - e) / (1.0f + e);
	lanes t = choose(u >= 0.0f, h, -h);
	return (0.5f * x) * (1.0f + t);
}

/* g = of(g), times u where there is one. */
static inline __attribute__((always_inline)) void activate(float *g, const float *u, size_t n,
                                                           lanes (*of)(lanes))
{
	for (size_t i = 0; i < n; i += LANES) {
		lanes v = of(load_some(g + i, n - i));
		if (u)
			v = v * load_some(u + i, n - i);
		store_some(g + i, v, n - i);
	}
}

static void silu(float *g, const float *u, size_t n)
{
	activate(g, u, n, silu_of);
}

static void gelu(float *g, const float *u, size_t n)
{
	activate(g, u, n, gelu_of);
}

static void add(float *y, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = y[i] + x[i];
}

static void blend(float *y, float a, const float *x, float b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = y[i] * a + x[i] * b;
}

/* v where the tokens from i on are seen, else other. */
static inline lanes where_seen(const struct kvi_scores *scores, size_t i, lanes v, float other)
{
	if (i >= scores->first && i + LANES <= scores->end)
		return v;
	ints at;
	for (int j = 0; j < LANES; j++)
		at[j] = (int32_t)i + j;
	ints seen = (at >= (int32_t)scores->first) & (at < (int32_t)scores->end);
	return choose(seen, v, (lanes){ 0 } + other);
}

/* Tokens that are not seen get scores that cannot be a maximum, and p = 0. */
static void softmax(struct kvi_scores *scores)
{
	const struct kvi_scores s = *scores;
	const size_t from = s.first & ~(size_t)(LANES - 1);
	lanes most = (lanes){ 0 } - FLT_MAX;
	bits total = { 0 };
	memset(s.z, 0, from * sizeof *s.z);
	for (size_t i = from; i < s.end; i += LANES) {
		lanes z = where_seen(&s, i, load(s.z + i) * s.scale, -FLT_MAX);
		store(s.z + i, z);
		most = larger(z, most);
	}
	const float m = max_lanes(most);
	for (size_t i = from; i < s.end; i += LANES) {
		lanes p = where_seen(&s, i, exp_of(load(s.z + i) - m), 0);
		total = total + ((bits)(p * 0x1p20f + MAGIC) - 0x4b400000u);
		store(s.z + i, p * load(s.sv + i));
	}
	size_t end = (s.end + LANES - 1) & ~(size_t)(LANES - 1);
	memset(s.z + end, 0, (256 - end) * sizeof *s.z);
	uint32_t sum = 0;
	for (int i = 0; i < LANES; i++)
		sum += total[i];
	scores->m = m;
	scores->l = (float)sum * 0x1p-20f;
}

static float exp_one(float x)
{
	return exp_of((lanes){ x })[0];
}

#define KVI_ELEMENTWISE(name) \
	const struct kvi_elementwise name = { norm, silu, gelu, add, softmax, blend, exp_one }
