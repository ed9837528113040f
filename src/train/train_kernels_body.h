/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * train_kernels_body.h - the kernels that need no instructions by name
 *
 * Included once for each instruction set, with BYTES, the size of its vectors,
 * and its flags.
 */
#include <string.h>

#include "kernels/linear_formulas.h"
#include "train_kernels.h"

typedef double doubles __attribute__((vector_size(BYTES)));
typedef float floats __attribute__((vector_size(BYTES)));
typedef int32_t ints __attribute__((vector_size(BYTES)));
typedef uint16_t ushorts __attribute__((vector_size(BYTES / 2)));
typedef int16_t shorts __attribute__((vector_size(BYTES / 2)));

enum { DOUBLES = BYTES / sizeof(double), COLUMNS = 2 * DOUBLES, INTS = BYTES / sizeof(int32_t) };

/* rows: KVI_DENSE_TILE or 1. */
static inline __attribute__((always_inline)) void subtract_tile(double *c, size_t c_stride,
                                                                const double *a, size_t a_stride,
                                                                const double *b, size_t b_stride,
                                                                size_t k, const size_t rows)
{
	doubles s[KVI_DENSE_TILE][2];
	KVI_UNROLL
	for (size_t i = 0; i < rows; i++)
		memcpy(s[i], c + i * c_stride, sizeof s[i]);
	for (size_t x = 0; x < k; x++, b += b_stride) {
		doubles v[2];
		memcpy(v, b, sizeof v);
		KVI_UNROLL
		for (size_t i = 0; i < rows; i++) {
			double f = a[i * a_stride + x];
			s[i][0] -= f * v[0];
			s[i][1] -= f * v[1];
		}
	}
	KVI_UNROLL
	for (size_t i = 0; i < rows; i++)
		memcpy(c + i * c_stride, s[i], sizeof s[i]);
}

static inline void subtract_rest(double *c, size_t c_stride, const double *a, size_t a_stride,
                                 const double *b, size_t b_stride, size_t m, size_t n, size_t k)
{
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++) {
			double s = c[i * c_stride + j];
			for (size_t x = 0; x < k; x++)
				s -= a[i * a_stride + x] * b[x * b_stride + j];
			c[i * c_stride + j] = s;
		}
}

static void subtract(double *c, size_t c_stride, const double *a, size_t a_stride, const double *b,
                     size_t b_stride, size_t m, size_t n, size_t k)
{
	size_t rows = m - m % KVI_DENSE_TILE, columns = n - n % COLUMNS;
	for (size_t j = 0; j < columns; j += COLUMNS) {
		size_t i = 0;
		for (; i < rows; i += KVI_DENSE_TILE)
			subtract_tile(c + i * c_stride + j, c_stride, a + i * a_stride, a_stride,
			              b + j, b_stride, k, KVI_DENSE_TILE);
		for (; i < m; i++)
			subtract_tile(c + i * c_stride + j, c_stride, a + i * a_stride, a_stride,
			              b + j, b_stride, k, 1);
	}
	subtract_rest(c + columns, c_stride, a, a_stride, b + columns, b_stride, m, n - columns, k);
}

static void add(double *y, const double *x, double f, size_t n)
{
	size_t i = 0;
	for (; i + DOUBLES <= n; i += DOUBLES) {
		doubles a, b;
		memcpy(&a, y + i, sizeof a);
		memcpy(&b, x + i, sizeof b);
		a += f * b;
		memcpy(y + i, &a, sizeof a);
	}
	for (; i < n; i++)
		y[i] += f * x[i];
}

/* Rows whose coefficients are not 0, in order. */
struct weighed {
	size_t n;
	int16_t coef[KVI_WEIGH_ROWS + 1];
	const int16_t *row[KVI_WEIGH_ROWS + 1];
};

#ifndef WEIGH_PAIRS
static inline void weigh_some(int32_t *acc, const struct weighed *w, size_t n)
{
	enum { STEP = 32, VECTORS = STEP / INTS };
	for (size_t t = 0; t < n; t += STEP) {
		ints s[VECTORS];
		memcpy(s, acc + t, sizeof s);
		for (size_t j = 0; j < w->n; j++) {
			KVI_UNROLL
			for (size_t v = 0; v < VECTORS; v++) {
				shorts x;
				memcpy(&x, w->row[j] + t + v * INTS, sizeof x);
				s[v] += __builtin_convertvector(x, ints) * w->coef[j];
			}
		}
		memcpy(acc + t, s, sizeof s);
	}
}
#else
/* Adds pairs of rows: each half of a lane of `both` is the coefficient of one row. */
static inline void weigh_some(int32_t *acc, const struct weighed *w, size_t n)
{
	for (size_t t = 0; t < n; t += WEIGH_PAIRS) {
		pairs sums[2];
		memset(sums, 0, sizeof sums);
		for (size_t j = 0; j < w->n; j += 2) {
			int32_t both;
			memcpy(&both, &w->coef[j], sizeof both);
			add_pair(sums, w->row[j] + t, w->row[j + 1] + t, both);
		}
		put_pairs(acc + t, sums);
	}
}
#endif

static void weigh(int32_t *acc, const int16_t *coef, const int16_t *rows, size_t stride,
                  size_t n_rows, size_t n)
{
	struct weighed w;
	for (size_t first = 0; first < n_rows; first += KVI_WEIGH_ROWS) {
		size_t end = n_rows - first < KVI_WEIGH_ROWS ? n_rows : first + KVI_WEIGH_ROWS;
		w.n = 0;
		for (size_t j = first; j < end; j++) {
			w.coef[w.n] = coef[j];
			w.row[w.n] = rows + j * stride;
			w.n += coef[j] != 0;
		}
		w.coef[w.n] = 0;
		w.row[w.n] = rows;
		weigh_some(acc, &w, n);
	}
}

/* ---- numbers of tokens; a comparison of vectors is -1 where it holds ---- */

static inline ints limited(ints v, int32_t lo, int32_t hi)
{
	const ints less = v<lo, more = v> hi;
	return (v & ~(less | more)) | (less & lo) | (more & hi);
}

static void centred(int16_t *z, const int32_t *u, const int16_t *less, int32_t mean, size_t n)
{
	size_t i = 0;
	for (; i + INTS <= n; i += INTS) {
		shorts x = { 0 };
		ints v;
		memcpy(&v, u + i, sizeof v);
		if (less)
			memcpy(&x, less + i, sizeof x);
		v = limited(v - mean - __builtin_convertvector(x, ints), -KVI_LINEAR_LIMIT,
		            KVI_LINEAR_LIMIT);
		x = __builtin_convertvector(v, shorts);
		memcpy(z + i, &x, sizeof x);
	}
	for (; i < n; i++)
		z[i] = (int16_t)kvi_linear_limited(u[i] - mean - (less ? less[i] : 0));
}

static void shifted(int16_t *z, int32_t by, size_t n)
{
	size_t i = 0;
	for (; i + INTS <= n; i += INTS) {
		shorts x;
		memcpy(&x, z + i, sizeof x);
		const ints v = limited(__builtin_convertvector(x, ints) - by, -KVI_LINEAR_LIMIT,
		                       KVI_LINEAR_LIMIT);
		x = __builtin_convertvector(v, shorts);
		memcpy(z + i, &x, sizeof x);
	}
	for (; i < n; i++)
		z[i] = (int16_t)kvi_linear_limited(z[i] - by);
}

static void sizes(float *sum, const int16_t *z, float f, size_t n)
{
	size_t i = 0;
	for (; i + INTS <= n; i += INTS) {
		shorts x;
		floats s;
		memcpy(&x, z + i, sizeof x);
		memcpy(&s, sum + i, sizeof s);
		ints v = __builtin_convertvector(x, ints), below = v < 0;
		s += __builtin_convertvector((v ^ below) - below, floats) * f;
		memcpy(sum + i, &s, sizeof s);
	}
	for (; i < n; i++)
		sum[i] += (float)(z[i] < 0 ? -z[i] : z[i]) * f;
}

static void entries(int16_t *to, const int16_t *z, const float *w, float unit, size_t n)
{
	const floats half = (floats){ 0 } + 0.5f;
	size_t i = 0;
	for (; i + INTS <= n; i += INTS) {
		shorts x;
		floats by, v;
		memcpy(&x, z + i, sizeof x);
		memcpy(&by, w + i, sizeof by);
		v = __builtin_convertvector(__builtin_convertvector(x, ints), floats) * unit * by;
		v += (floats)(((ints)v & INT32_MIN) | (ints)half);
		/* a half is beyond the limits only where they hold */
		const ints more = v > KVI_GRAM_LIMIT, less = v < -KVI_GRAM_LIMIT;
		v = (floats)((ints)v & ~(more | less));
		const ints r = __builtin_convertvector(v, ints) + (more & KVI_GRAM_LIMIT) -
		               (less & KVI_GRAM_LIMIT);
		x = __builtin_convertvector(r, shorts);
		memcpy(to + i, &x, sizeof x);
	}
	for (; i < n; i++)
		to[i] = kvi_gram_entry((float)z[i] * unit * w[i]);
}

static void integers(int32_t *to, const uint16_t *x, const struct kvi_grid_format *fmt, int step,
                     size_t n)
{
	const int m = fmt->mant_bits, top = fmt->elem_bits - 1;
	size_t i = 0;
	for (; i + INTS <= n; i += INTS) {
		ushorts e;
		memcpy(&e, x + i, sizeof e);
		const ints v = __builtin_convertvector(e, ints);
		const ints magnitude = v & ((1 << top) - 1), none = (magnitude >> m) == 0;
		const ints man = (magnitude << (23 - m) & 0x7fffff) | (0x800000 & ~none);
		const ints sh = limited(24 - fmt->emin + step + none - (magnitude >> m), 1, 31);
		const ints u = (man + (((ints){ 0 } + 1) << (sh - 1))) >> sh;
		const ints below = -(v >> top & 1);
		const ints r = (limited(u, 0, KVI_LINEAR_LIMIT) ^ below) - below;
		memcpy(to + i, &r, sizeof r);
	}
	for (; i < n; i++)
		to[i] = kvi_linear_integer(x[i], fmt, step);
}

#define KERNELS                                                                        \
	{                                                                              \
		gram, subtract, add, weigh, integers, centred, shifted, sizes, entries \
	}
