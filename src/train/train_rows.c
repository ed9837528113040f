/* SPDX-License-Identifier: BSD-3-Clause */
/* train_rows.c - rows of coefficients as integers, by rate and distortion */
#include "train_rows.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "train_layer.h"

enum { SHIFT_MAX = 16, SWEEPS = 6 };

/* Bits of a deviation of one variance, an element: log2(e) / 2. */
static const double BITS = 0.7213475;

double kvi_train_rate(int32_t v)
{
	static const double of_bits[] = { 0.5, 3,     4.25, 5.5,   6.75, 8,     9.25, 10.5, 11.75,
		                          13,  14.25, 15.5, 16.75, 18,   19.25, 20.5, 21.75 };
	uint32_t m = (uint32_t)(v < 0 ? -v : v);
	return of_bits[32 - __builtin_clz(m | 1) - (m == 0)];
}

/* The q at which a digit more costs as much as it saves. */
static int choose_shift(const struct kvi_train_row *r, const double *b)
{
	double noise = 0, count = 0, worth = r->tokens * BITS / r->left;
	for (size_t i = 0; i < r->p; i++) {
		double var = r->diagonal[i];
		if (worth * var * b[i] * b[i] < 1)
			continue; /* will be zero */
		noise += worth * var / 12;
		count++;
	}
	int q = 0;
	while (q < SHIFT_MAX && noise * 0.75 > count) {
		noise /= 4;
		q++;
	}
	return q;
}

bool kvi_train_round_all(const double *b, size_t n, int q, int16_t *to, uint64_t *sum)
{
	double scale = kvi_train_power(q);
	*sum = 0;
	for (size_t i = 0; i < n; i++) {
		double v = b[i] * scale;
		if (!(v <= INT16_MAX && v >= -INT16_MAX))
			return false;
		to[i] = (int16_t)(v + copysign(0.5, v));
		*sum += (uint64_t)(to[i] < 0 ? -to[i] : to[i]);
	}
	return *sum <= KVI_COEF_SUM_MAX;
}

static int32_t magnitude(int32_t v)
{
	return v < 0 ? -v : v;
}

/* An integer for a coefficient whose optimum is u, and what it costs. */
struct rounding {
	int32_t v;
	double cost;
};

static void consider(struct rounding *best, int32_t v, double u, double worth)
{
	double cost = worth * (v - u) * (v - u) + kvi_train_rate(v);
	if (cost < best->cost)
		*best = (struct rounding){ v, cost };
}

/* The best integer for a coefficient, whose optimum is u: the nearest one, the largest one of one
 * bit less if that is next to it, or zero. */
static int32_t choose(double u, double worth, int32_t now)
{
	int32_t near = (int32_t)(u + copysign(0.5, u)), m = magnitude(near);
	struct rounding best = { now, worth * (now - u) * (now - u) + kvi_train_rate(now) };
	if (near != now)
		consider(&best, near, u, worth);
	if (m > 1 && (m & (m - 1)) == 0)
		consider(&best, near > 0 ? near - 1 : near + 1, u, worth);
	if (m)
		consider(&best, 0, u, worth);
	return best.v;
}

/* Whether that is `now`, which is the nearest integer, and nothing nearer to zero is worth it: any
 * optimum within a half of it is at least that half above the smaller ones. */
static bool stays(double worth, int32_t now)
{
	double m = magnitude(now);
	bool one_bit_less = (magnitude(now) & (magnitude(now) - 1)) == 0;
	return now == 0 || (!one_bit_less && worth * m * (m - 1) > kvi_train_rate(now));
}

/* Passes once over the coefficients; h: as in set_rest. True when one changed. */
static bool sweep(const struct kvi_train_kernels *kernels, const struct kvi_train_row *r,
                  double worth, int16_t *to, double *h, uint64_t *sum)
{
	bool changed = false;
	for (size_t i = 0; i < r->p; i++) {
		double var = r->diagonal[i] * (1 + r->ridge);
		if (!(var > 0))
			continue;
		if (h[i] < 0.5 * var && h[i] > -0.5 * var && stays(worth * var, to[i]))
			continue;
		double u = to[i] + h[i] / var;
		u = u > INT16_MAX ? INT16_MAX : u < -INT16_MAX ? -INT16_MAX : u;
		int32_t v = choose(u, worth * var, to[i]);
		uint64_t other = *sum - (uint64_t)magnitude(to[i]);
		if (v == to[i] || other + (uint64_t)magnitude(v) > KVI_COEF_SUM_MAX)
			continue;
		int32_t d = v - to[i];
		kernels->add(h, r->s + i * r->stride, -d, r->p);
		h[i] -= d * r->diagonal[i] * r->ridge;
		to[i] = (int16_t)v;
		*sum = other + (uint64_t)magnitude(v);
		changed = true;
	}
	return changed;
}

/* h: g - S b in units of the integers, for what to[] has. */
static void set_rest(const struct kvi_train_kernels *kernels, const struct kvi_train_row *r,
                     double unit, const int16_t *to, double *h)
{
	for (size_t i = 0; i < r->p; i++)
		h[i] = r->g[i] / unit;
	for (size_t i = 0; i < r->p; i++)
		if (to[i]) {
			kernels->add(h, r->s + i * r->stride, -to[i], r->p);
			h[i] -= to[i] * r->diagonal[i] * r->ridge;
		}
}

uint8_t kvi_train_round_row(const struct kvi_train_kernels *kernels, const struct kvi_train_row *r,
                            double *b, int16_t *to, double *work)
{
	int q = r->left > 0 ? choose_shift(r, b) : 0;
	uint64_t sum = 0;
	while (q >= 0 && !kvi_train_round_all(b, r->p, q, to, &sum))
		q--;
	if (q < 0 || !(r->left > 0)) {
		memset(to, 0, r->p * sizeof *to);
		memset(b, 0, r->p * sizeof *b);
		return 0;
	}
	double unit = 1 / kvi_train_power(q);
	double left = r->left;
	if (r->few) {
		memset(to, 0, r->p * sizeof *to);
		sum = 0;
		left = r->all;
	}
	set_rest(kernels, r, unit, to, work);
	for (int k = 0; k < SWEEPS; k++) {
		double worth = r->tokens * BITS / left * unit * unit;
		if (!sweep(kernels, r, worth, to, work, &sum))
			break;
		left = r->all;
		for (size_t i = 0; i < r->p; i++)
			left -= to[i] * unit * (r->g[i] + work[i] * unit);
		left *= r->share;
		left = left > r->left ? left : r->left;
	}
	for (size_t i = 0; i < r->p; i++)
		b[i] = to[i] * unit;
	return (uint8_t)q;
}
