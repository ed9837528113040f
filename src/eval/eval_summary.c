/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_summary.c - results of a tier over sequences, and gates of one; means, ranks, intervals */
#include "eval_summary.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "eval_state.h"
#include "util/hash.h"

/* ==== Means, ranks and intervals of a few numbers ==== */

double kvi_mean(const double *x, size_t n)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

double kvi_deviation(const double *x, size_t n)
{
	double mean = kvi_mean(x, n), sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += (x[i] - mean) * (x[i] - mean);
	return n > 1 ? sqrt(sum / (double)(n - 1)) : 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

void kvi_sort(double *x, size_t n)
{
	qsort(x, n, sizeof *x, compare);
}

double kvi_rank(const double *sorted, size_t n, double part)
{
	/* 0.95 of 20 is number 19, though 0.95 * 20 is a little more */
	double rank = ceil(part * (double)n - 1e-9);
	return sorted[rank > 1 ? (size_t)rank - 1 : 0];
}

/* Draws n numbers out of x, with replacement, `draws` times, and stores their means in means,
 * sorted. */
static void bootstrap(const double *x, size_t n, uint64_t seed, double *means, size_t draws)
{
	for (size_t d = 0; d < draws; d++) {
		double sum = 0;
		for (size_t i = 0; i < n; i++)
			sum += x[(kvi_splitmix64(&seed) >> 32) * n >> 32];
		means[d] = sum / (double)n;
	}
	kvi_sort(means, draws);
}

/* ==== How far one distribution of the next token is from another ==== */

static size_t best_of(const float *z, size_t n)
{
	size_t best = 0;
	for (size_t i = 1; i < n; i++)
		if (z[i] > z[best])
			best = i;
	return best;
}

/* Subtracts the largest logit, in double: sums neither overflow nor lose a token. */
struct kvi_divergence kvi_divergence(const float *exact, const float *other, size_t n, int32_t next)
{
	size_t a = best_of(exact, n), b = best_of(other, n);
	double sum = 0, other_sum = 0, difference = 0;
	for (size_t i = 0; i < n; i++) {
		double x = (double)exact[i] - (double)exact[a];
		double y = (double)other[i] - (double)other[b];
		double p = exp(x);
		sum += p;
		other_sum += exp(y);
		difference += p * (x - y);
	}
	double shift = log(other_sum) - log(sum); /* 0 for the same logits, as the difference */
	struct kvi_divergence d = { .kl = difference / sum + shift,
		                    .best = { (int32_t)a, (int32_t)b } };
	if (!isfinite(d.kl))
		d.kl = INFINITY;
	else if (d.kl < 0) /* rounding: some 1e-15 */
		d.kl = 0;
	if (next >= 0 && (size_t)next < n)
		d.delta_nll = ((double)exact[next] - (double)exact[a]) -
		              ((double)other[next] - (double)other[b]) + shift;
	return d;
}

/* ==== Results of a tier over sequences, and gates of one ==== */

enum { DRAWS = 2000 };

/* Percentiles are looser than means: tails are heavy. */
static const double p99_to_mean = 30;

int kvarc_eval_passes(const kvarc_eval_result *r, double max_kl)
{
	return r && r->mean_kl <= max_kl && r->p99_kl <= p99_to_mean * max_kl;
}

/* Summarises the divergences of all tokens of a text. */
void kvi_eval_take(kvarc_eval_result *r, const struct kvi_divergence *divergence, size_t n,
                   double *sorted)
{
	size_t same = 0;
	r->tokens = n;
	r->first_diverging = KVARC_UNKNOWN;
	r->delta_nll = 0;
	for (size_t t = 0; t < n; t++) {
		sorted[t] = divergence[t].kl;
		if (divergence[t].best[0] == divergence[t].best[1])
			same++;
		else if (r->first_diverging == KVARC_UNKNOWN)
			r->first_diverging = t;
		if (t + 1 < n)
			r->delta_nll += divergence[t].delta_nll / (double)(n - 1);
	}
	r->agreement = (double)same / (double)n;
	r->mean_kl = kvi_mean(sorted, n);
	if (r->token_kl)
		memcpy(r->token_kl, sorted, n * sizeof *sorted);
	kvi_sort(sorted, n);
	r->p99_kl = kvi_rank(sorted, n, 0.99);
	r->p999_kl = kvi_rank(sorted, n, 0.999);
	r->max_kl = sorted[n - 1];
}

static void add_up(kvarc_eval_summary *summary, const kvarc_eval_result *results, size_t n,
                   double *means)
{
	double bytes = 0, elements = 0, tokens = 0, share = 1 / (double)n;
	for (size_t i = 0; i < n; i++) {
		const kvarc_eval_result *r = &results[i];
		means[i] = r->mean_kl;
		if (i == 0 || r->mean_kl > summary->worst_kl) {
			summary->worst_kl = r->mean_kl;
			summary->worst = i;
		}
		bytes += (double)r->archive_bytes;
		elements += (double)r->elements;
		tokens += (double)r->cache_tokens;
		summary->kept += (double)r->kept_tokens;
		summary->agreement += r->agreement * share;
		summary->delta_nll += r->delta_nll * share;
		summary->diverging += r->first_diverging != KVARC_UNKNOWN;
	}
	summary->sequences = n;
	summary->bits_per_element = elements > 0 ? 8 * bytes / elements : 0;
	summary->kept = tokens > 0 ? summary->kept / tokens : 0;
}

static void take_means(kvarc_eval_summary *summary, double *means, size_t n, uint64_t seed,
                       double *draws)
{
	summary->mean_kl = kvi_mean(means, n);
	summary->deviation_kl = kvi_deviation(means, n);
	bootstrap(means, n, seed, draws, DRAWS);
	summary->low_kl = kvi_rank(draws, DRAWS, 0.025);
	summary->high_kl = kvi_rank(draws, DRAWS, 0.975);
	kvi_sort(means, n);
	summary->p95_kl = kvi_rank(means, n, 0.95);
}

/* Tokens of all sequences; 0: one has none. */
static size_t count_tokens(const kvarc_eval_result *results, size_t n)
{
	size_t sum = 0;
	for (size_t i = 0; i < n; i++) {
		if (!results[i].token_kl)
			return 0;
		sum += (size_t)results[i].tokens;
	}
	return sum;
}

static void take_tokens(kvarc_eval_summary *summary, const kvarc_eval_result *results, size_t n,
                        double *kl, size_t tokens)
{
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		size_t some = (size_t)results[i].tokens;
		memcpy(kl + at, results[i].token_kl, some * sizeof *kl);
		at += some;
	}
	kvi_sort(kl, tokens);
	summary->p99_kl = kvi_rank(kl, tokens, 0.99);
	summary->p999_kl = kvi_rank(kl, tokens, 0.999);
	summary->max_kl = kl[tokens - 1];
}

kvarc_ret kvarc_eval_summarise(kvarc_eval_summary *summary, const kvarc_eval_result *results,
                               size_t n, uint64_t seed)
{
	struct kvi_alloc alloc;
	kvarc_ret ret = KVARC_OK;
	if (!summary || !results || !n)
		return KVARC_PROG;
	memset(summary, 0, sizeof *summary);
	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	size_t tokens = count_tokens(results, n);
	double *means = kvi_array(&alloc, n, sizeof *means);
	double *draws = kvi_array(&alloc, DRAWS, sizeof *draws);
	double *kl = kvi_array(&alloc, tokens + 1, sizeof *kl);
	if (means && draws && kl) {
		add_up(summary, results, n, means);
		take_means(summary, means, n, seed, draws);
		if (tokens)
			take_tokens(summary, results, n, kl, tokens);
	} else {
		ret = KVARC_MEM;
	}
	kvi_free(&alloc, means);
	kvi_free(&alloc, draws);
	kvi_free(&alloc, kl);
	return ret;
}
