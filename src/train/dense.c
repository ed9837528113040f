/* SPDX-License-Identifier: BSD-3-Clause */
/* dense.c - Cholesky's factor, triangular systems, products */
#include "dense.h"
#include "train_run.h"

#include <math.h>
#include <string.h>

enum { PART = 64 }; /* rows or columns of a block */

/* Stands for the root of a pivot that is none. */
static const double LEFT_OUT = 0x1p300;

static size_t parts(size_t n)
{
	return (n + PART - 1) / PART;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

struct factor_job {
	const struct kvi_train_kernels *kernels;
	double *a;
	size_t n, stride, at, end; /* the block of columns */
	double *panel;             /* rows below the block, transposed */
};

/* Rows and columns at..end-1; the diagonal was as large as scale before. */
static void factor_block(struct factor_job *job, const double *diagonal)
{
	double *a = job->a;
	for (size_t c = job->at; c < job->end; c++) {
		double *row = a + c * job->stride, pivot = row[c];
		for (size_t k = job->at; k < c; k++)
			pivot -= row[k] * row[k];
		bool ok = pivot > 1e-10 * diagonal[c] && pivot > 0;
		row[c] = ok ? sqrt(pivot) : LEFT_OUT;
		for (size_t i = c + 1; i < job->end; i++) {
			double *r = a + i * job->stride, s = r[c];
			for (size_t k = job->at; k < c; k++)
				s -= r[k] * row[k];
			r[c] = s / row[c];
		}
	}
}

/* Factors some rows below the block, which become columns: so several are in one vector. */
static void factor_rows(void *arg, size_t i)
{
	struct factor_job *j = arg;
	size_t below = j->n - j->end, first = i * PART, rows = least(PART, below - first);
	double *row = j->a + (j->end + first) * j->stride, *columns = j->panel + first;
	for (size_t r = 0; r < rows; r++)
		for (size_t c = j->at; c < j->end; c++)
			columns[(c - j->at) * below + r] = row[r * j->stride + c];
	for (size_t c = j->at; c < j->end; c++) {
		const double *l = j->a + c * j->stride;
		double *to = columns + (c - j->at) * below;
		j->kernels->subtract(to, below, l + j->at, j->stride, columns, below, 1, rows,
		                     c - j->at);
		for (size_t r = 0; r < rows; r++)
			row[r * j->stride + c] = to[r] /= l[c];
	}
}

static void update_rows(void *arg, size_t i)
{
	struct factor_job *j = arg;
	size_t below = j->n - j->end;
	size_t first = i * PART, last = least(first + PART, below);
	double *c = j->a + (j->end + first) * j->stride + j->end;
	j->kernels->subtract(c, j->stride, j->a + (j->end + first) * j->stride + j->at, j->stride,
	                     j->panel, below, last - first, last, j->end - j->at);
}

bool kvi_train_cholesky(kvarc_trainer *trainer, double *a, size_t n, size_t stride)
{
	struct factor_job j = { trainer->kernels, a, n, stride, 0, 0, NULL };
	double *work = kvi_array(&trainer->alloc, (PART + 1) * n, sizeof *work);
	if (!work)
		return false;
	j.panel = work + n;
	for (size_t i = 0; i < n; i++)
		work[i] = a[i * stride + i];
	for (; j.at < n; j.at = j.end) {
		j.end = least(j.at + PART, n);
		factor_block(&j, work);
		kvi_train_parallel(trainer, parts(n - j.end), factor_rows, &j);
		kvi_train_parallel(trainer, parts(n - j.end), update_rows, &j);
	}
	kvi_free(&trainer->alloc, work);
	return true;
}

struct solve_job {
	const struct kvi_train_kernels *kernels;
	const double *l, *up; /* up: L transposed, n x n */
	size_t n, stride;
	double *x;
	size_t m;
};

static void solve_columns(void *arg, size_t i)
{
	const struct solve_job *j = arg;
	size_t first = i * PART, cols = least(PART, j->m - first), m = j->m;
	double *x = j->x + first;
	for (size_t at = 0, end; at < j->n; at = end) {
		end = least(at + PART, j->n);
		j->kernels->subtract(x + at * m, m, j->l + at * j->stride, j->stride, x, m,
		                     end - at, cols, at);
		for (size_t r = at; r < end; r++) {
			const double *l = j->l + r * j->stride;
			j->kernels->subtract(x + r * m, m, l + at, j->stride, x + at * m, m, 1,
			                     cols, r - at);
			for (size_t c = 0; c < cols; c++)
				x[r * m + c] /= l[r];
		}
	}
	for (size_t k = parts(j->n); k-- > 0;) {
		size_t at = k * PART, end = least(at + PART, j->n);
		j->kernels->subtract(x + at * m, m, j->up + at * j->n + end, j->n, x + end * m, m,
		                     end - at, cols, j->n - end);
		for (size_t r = end; r-- > at;) {
			const double *u = j->up + r * j->n;
			j->kernels->subtract(x + r * m, m, u + r + 1, j->n, x + (r + 1) * m, m, 1,
			                     cols, end - r - 1);
			for (size_t c = 0; c < cols; c++)
				x[r * m + c] /= u[r];
		}
	}
}

void kvi_train_solve(kvarc_trainer *trainer, const double *l, size_t n, size_t stride, double *x,
                     size_t m, double *work)
{
	struct solve_job j = { trainer->kernels, l, work, n, stride, x, m };
	for (size_t r = 0; r < n; r++)
		for (size_t c = r; c < n; c++)
			work[r * n + c] = l[c * stride + r];
	kvi_train_parallel(trainer, parts(m), solve_columns, &j);
}

struct product_job {
	const struct kvi_train_kernels *kernels;
	double *c;
	const double *a, *b;
	size_t c_stride, a_stride, b_stride, m, n, k;
};

static void product_rows(void *arg, size_t i)
{
	const struct product_job *j = arg;
	size_t first = i * PART, rows = least(PART, j->m - first);
	for (size_t at = 0; at < j->k; at += PART)
		j->kernels->subtract(j->c + first * j->c_stride, j->c_stride,
		                     j->a + first * j->a_stride + at, j->a_stride,
		                     j->b + at * j->b_stride, j->b_stride, rows, j->n,
		                     least(PART, j->k - at));
}

void kvi_train_subtract(kvarc_trainer *trainer, double *c, size_t c_stride, const double *a,
                        size_t a_stride, const double *b, size_t b_stride, size_t m, size_t n,
                        size_t k)
{
	struct product_job j = { trainer->kernels, c, a, b, c_stride, a_stride, b_stride, m, n, k };
	kvi_train_parallel(trainer, parts(m), product_rows, &j);
}

void kvi_train_regress(const struct kvi_train_kernels *kernels, const double *l, size_t stride,
                       size_t c, size_t p, double *b)
{
	memcpy(b, l + c * stride, p * sizeof *b);
	for (size_t k = p; k-- > 0;) {
		const double *row = l + k * stride;
		double f = b[k] / row[k];
		kernels->add(b, row, -f, k);
		b[k] = f;
	}
}
