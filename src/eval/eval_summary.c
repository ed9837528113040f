/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_summary.c - results of a tier over sequences, and gates of one */
#include <string.h>

#include "eval_state.h"
#include "statistics.h"

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
	kvi_bootstrap(means, n, seed, draws, DRAWS);
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
