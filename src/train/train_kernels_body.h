/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * train_kernels_body.h - the kernels that need no instructions by name
 *
 * Included once for each instruction set, with BYTES, the size of its vectors,
 * and its flags.
 */
#include <string.h>

#include "train_kernels.h"

typedef double doubles __attribute__((vector_size(BYTES)));
typedef int32_t ints __attribute__((vector_size(BYTES)));
typedef int16_t shorts __attribute__((vector_size(BYTES / 2)));

enum { DOUBLES = BYTES / sizeof(double), COLUMNS = 2 * DOUBLES, INTS = BYTES / sizeof(int32_t) };

static inline void subtract_tile(double *c, size_t c_stride, const double *a, size_t a_stride,
                                 const double *b, size_t b_stride, size_t k)
{
	doubles s[KVI_DENSE_TILE][2];
	KVI_UNROLL
	for (size_t i = 0; i < KVI_DENSE_TILE; i++)
		memcpy(s[i], c + i * c_stride, sizeof s[i]);
	for (size_t x = 0; x < k; x++, b += b_stride) {
		doubles v[2];
		memcpy(v, b, sizeof v);
		KVI_UNROLL
		for (size_t i = 0; i < KVI_DENSE_TILE; i++) {
			double f = a[i * a_stride + x];
			s[i][0] -= f * v[0];
			s[i][1] -= f * v[1];
		}
	}
	KVI_UNROLL
	for (size_t i = 0; i < KVI_DENSE_TILE; i++)
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
	for (size_t j = 0; j < columns; j += COLUMNS)
		for (size_t i = 0; i < rows; i += KVI_DENSE_TILE)
			subtract_tile(c + i * c_stride + j, c_stride, a + i * a_stride, a_stride,
			              b + j, b_stride, k);
	subtract_rest(c + columns, c_stride, a, a_stride, b + columns, b_stride, rows, n - columns,
	              k);
	subtract_rest(c + rows * c_stride, c_stride, a + rows * a_stride, a_stride, b, b_stride,
	              m - rows, n, k);
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
/* Both halves of a lane of `both` are coefficients, those of two rows. */
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
