/* SPDX-License-Identifier: BSD-3-Clause */
/* dense.c - symmetric systems in double: factors, products, eigenvectors, second moments */
#include "dense.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "train_run.h"

/* ==== Eigenvectors of a symmetric matrix by Jacobi's method ==== */

enum { SWEEPS = 24 };

/* Applies one rotation of Jacobi's method: a[p][q] becomes 0. v: eigenvectors, in columns. */
static void rotate(double *a, double *v, size_t n, size_t p, size_t q)
{
	double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
	double t = 1 / ((theta < 0 ? -theta : theta) + sqrt(theta * theta + 1));
	t = theta < 0 ? -t : t;
	double c = 1 / sqrt(t * t + 1), s = t * c;
	for (size_t i = 0; i < n; i++) {
		double x = a[p * n + i], y = a[q * n + i];
		a[p * n + i] = c * x - s * y;
		a[q * n + i] = s * x + c * y;
	}
	for (size_t i = 0; i < n; i++) {
		double x = a[i * n + p], y = a[i * n + q];
		a[i * n + p] = c * x - s * y;
		a[i * n + q] = s * x + c * y;
		x = v[i * n + p];
		y = v[i * n + q];
		v[i * n + p] = c * x - s * y;
		v[i * n + q] = s * x + c * y;
	}
}

/* Makes a diagonal; v: eigenvectors, in columns. */
static void diagonalise(double *a, double *v, size_t n)
{
	double all = 0, off = 1;
	memset(v, 0, n * n * sizeof *v);
	for (size_t i = 0; i < n; i++)
		v[i * n + i] = 1;
	for (size_t i = 0; i < n * n; i++)
		all += a[i] * a[i];
	for (unsigned sweep = 0; sweep < SWEEPS && off > 1e-18 * all; sweep++) {
		off = 0;
		for (size_t p = 0; p + 1 < n; p++)
			for (size_t q = p + 1; q < n; q++) {
				double x = a[p * n + q];
				off += x * x;
				if (x * x > 1e-26 * all)
					rotate(a, v, n, p, q);
			}
	}
}

void kvi_eigen(size_t n, double *a, double *v, double *value)
{
	diagonalise(a, v, n);
	for (size_t j = 0; j < n; j++)
		value[j] = a[j * n + j] > 0 ? a[j * n + j] : 0;
	for (size_t j = 0; j < n; j++) { /* selection sort: values and columns */
		size_t most = j;
		for (size_t k = j + 1; k < n; k++)
			if (value[k] > value[most])
				most = k;
		double x = value[j];
		value[j] = value[most];
		value[most] = x;
		for (size_t i = 0; most != j && i < n; i++) {
			x = v[i * n + j];
			v[i * n + j] = v[i * n + most];
			v[i * n + most] = x;
		}
	}
}

/* ==== Cholesky's factor, triangular systems, products ==== */

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

/* ==== Second moments of features ==== */

/* UNIT: sigma of a weighted feature; values up to ten sigmas are not clamped. */
enum { UNIT = 400, ROWS = 32 };

struct gram_job {
	const struct kvi_train_kernels *kernels;
	const struct kvi_train_feature *f;
	size_t n, capacity; /* capacity: n and the weights, rounded up to tiles */
	const float *w;     /* weights of the tokens of the block */
	const size_t *token;
	size_t count;  /* tokens in the block, the rest is zero */
	int16_t *rows; /* capacity x KVI_GRAM_TOKENS; row n: the weights */
	float one;     /* unit of the weights */
	int64_t *sums; /* capacity^2, tiles on and above the diagonal */
	double *g, *mean, norm;
};

static float unit_of(const struct kvi_train_feature *feature)
{
	return feature->sigma > 0 ? (float)(UNIT / feature->sigma) : 0;
}

static void fill_row(void *arg, size_t r)
{
	const struct gram_job *j = arg;
	int16_t *to = j->rows + r * KVI_GRAM_TOKENS, some[KVI_GRAM_TOKENS];
	const int16_t *z = j->f[r].z + j->token[0];
	const bool gaps = j->token[j->count - 1] - j->token[0] >= j->count;
	for (size_t i = 0; gaps && i < j->count; i++)
		some[i] = j->f[r].z[j->token[i]];
	j->kernels->entries(to, gaps ? some : z, j->w, unit_of(&j->f[r]), j->count);
	memset(to + j->count, 0, (KVI_GRAM_TOKENS - j->count) * sizeof *to);
}

/* Adds the products of some rows with all rows from them on: a tile of those others is read once
 * for all of the some, which stay in the cache. */
static void add_rows(void *arg, size_t i)
{
	const struct gram_job *j = arg;
	size_t first = i * ROWS, n = (j->count + 63) & ~(size_t)63;
	size_t end = first + ROWS < j->capacity ? first + ROWS : j->capacity;
	int64_t sums[KVI_GRAM_TILE * KVI_GRAM_TILE];
	for (size_t c = first; c < j->capacity; c += KVI_GRAM_TILE)
		for (size_t r = first; r < end && r <= c; r += KVI_GRAM_TILE) {
			int64_t *to = j->sums + r * j->capacity + c;
			j->kernels->gram(sums, j->rows + r * KVI_GRAM_TOKENS,
			                 j->rows + c * KVI_GRAM_TOKENS, KVI_GRAM_TOKENS, n);
			for (size_t k = 0; k < KVI_GRAM_TILE * KVI_GRAM_TILE; k++)
				to[k / KVI_GRAM_TILE * j->capacity + k % KVI_GRAM_TILE] += sums[k];
		}
}

static void finish_mean(void *arg, size_t r)
{
	const struct gram_job *j = arg;
	double f = (double)unit_of(&j->f[r]) * j->one * j->norm;
	j->mean[r] = f > 0 ? (double)j->sums[r * j->capacity + j->n] / f : 0;
}

/* Row r from the diagonal on, and column r. */
static void finish_row(void *arg, size_t r)
{
	const struct gram_job *j = arg;
	for (size_t c = r; c < j->n; c++) {
		double f = (double)unit_of(&j->f[r]) * unit_of(&j->f[c]);
		double sum = (double)j->sums[r * j->capacity + c];
		double moment = f > 0 ? sum / f / j->norm - j->mean[r] * j->mean[c] : 0;
		j->g[r * j->n + c] = j->g[c * j->n + r] = moment;
	}
}

/* Adds one block of tokens. */
static void add_block(kvarc_trainer *trainer, struct gram_job *job)
{
	int16_t *weights = job->rows + job->n * KVI_GRAM_TOKENS;
	for (size_t i = 0; i < KVI_GRAM_TOKENS; i++)
		weights[i] = i < job->count ? kvi_gram_entry(job->w[i] * job->one) : 0;
	kvi_train_parallel(trainer, job->n, fill_row, job);
	kvi_train_parallel(trainer, (job->capacity + ROWS - 1) / ROWS, add_rows, job);
	job->count = 0;
}

kvarc_ret kvi_train_gram(kvarc_trainer *trainer, const struct kvi_train_feature *feature, size_t n,
                         const float *w, size_t n_tokens, double *g, double *mean)
{
	size_t capacity = (n + KVI_GRAM_TILE) / KVI_GRAM_TILE * KVI_GRAM_TILE;
	float weights[KVI_GRAM_TOKENS], most = 0;
	size_t token[KVI_GRAM_TOKENS];
	struct gram_job j = { .kernels = trainer->kernels,
		              .f = feature,
		              .n = n,
		              .capacity = capacity,
		              .w = weights,
		              .token = token,
		              .g = g,
		              .mean = mean };
	j.rows = kvi_calloc(&trainer->alloc, capacity, KVI_GRAM_TOKENS * sizeof *j.rows);
	j.sums = kvi_calloc(&trainer->alloc, capacity, capacity * sizeof *j.sums);
	bool ok = j.rows && j.sums;
	for (size_t v = 0; v < n_tokens; v++)
		most = w[v] > most ? w[v] : most;
	j.one = most > 0 ? KVI_GRAM_LIMIT / most : 0;
	for (size_t v = 0; ok && v <= n_tokens; v++) {
		if (v < n_tokens && w[v] > 0) {
			weights[j.count] = w[v];
			token[j.count++] = v;
			j.norm += (double)w[v] * w[v];
		}
		if (j.count == KVI_GRAM_TOKENS || (v == n_tokens && j.count))
			add_block(trainer, &j);
	}
	if (ok) {
		kvi_train_parallel(trainer, n, finish_mean, &j);
		kvi_train_parallel(trainer, n, finish_row, &j);
	}
	kvi_free(&trainer->alloc, j.rows);
	kvi_free(&trainer->alloc, j.sums);
	return ok ? KVARC_OK : kvi_train_no_memory(trainer);
}
