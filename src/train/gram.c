/* SPDX-License-Identifier: BSD-3-Clause */
/* gram.c - second moments of features */
#include "gram.h"
#include "train_run.h"

#include <math.h>
#include <string.h>

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
