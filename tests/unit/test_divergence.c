/* SPDX-License-Identifier: BSD-3-Clause */
/* test_divergence.c - KL of two distributions, and statistics of sequences */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "eval/eval_state.h"
#include "eval/eval_summary.h"
#include "random.h"

enum { WORDS = 1000 };

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-9 * (1 + fabs(b));
}

/* Two words: 3/4 and 1/4 against 1/2 and 1/2. */
static void test_known(void **state)
{
	const float p[2] = { logf(3) - 40, -40 }, q[2] = { 1e4f, 1e4f };
	struct kvi_divergence d = kvi_divergence(p, q, 2, 1);
	(void)state;
	assert_true(fabs(d.kl - (0.75 * log(1.5) + 0.25 * log(0.5))) < 1e-5);
	assert_true(fabs(d.delta_nll - (log(2) - log(4))) < 1e-5);
	assert_int_equal(d.best[0], 0);
	assert_int_equal(d.best[1], 0);
	d = kvi_divergence(q, p, 2, -1);
	assert_true(fabs(d.kl - (0.5 * log(2.0 / 3) + 0.5 * log(2))) < 1e-5);
	assert_true(d.delta_nll == 0);
	assert_true(kvi_divergence(p, p, 1, 0).kl == 0);
}

/* Exactly 0 for the same logits, never negative, and the same of distributions as of logits that
 * are shifted. */
static void test_signs(void **state)
{
	static float p[WORDS], q[WORDS];
	(void)state;
	for (int round = 0; round < 200; round++) {
		float spread = (float)(1 + round % 40), shift = (float)between(-9, 9);
		for (int i = 0; i < WORDS; i++) {
			p[i] = normal() * spread;
			q[i] = p[i] + shift;
		}
		assert_true(kvi_divergence(p, p, WORDS, 3).kl == 0);
		assert_true(kvi_divergence(p, p, WORDS, 3).delta_nll == 0);
		double kl = kvi_divergence(p, q, WORDS, -1).kl;
		assert_true(kl >= 0 && kl < 1e-10);
		for (int i = 0; i < WORDS; i++)
			q[i] += normal() * 1e-3f;
		kl = kvi_divergence(p, q, WORDS, -1).kl;
		assert_true(kl >= 0 && kl < 1e-4);
	}
}

/* What is not a number is no agreement. */
static void test_bad(void **state)
{
	const float p[3] = { 1, 2, 3 };
	const float bad[][3] = { { 1, 2, NAN },
		                 { 1, INFINITY, 3 },
		                 { -INFINITY, 2, 3 },
		                 { -INFINITY, -INFINITY, -INFINITY },
		                 { NAN, NAN, NAN } };
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_true(isinf(kvi_divergence(p, bad[i], 3, -1).kl));
		kvarc_eval_result r = { .mean_kl = kvi_divergence(bad[i], p, 3, -1).kl };
		assert_false(kvarc_eval_passes(&r, 100));
	}
}

static void test_ranks(void **state)
{
	double x[200];
	(void)state;
	for (int i = 0; i < 200; i++)
		x[i] = (i * 37) % 200 + 1;
	kvi_sort(x, 200);
	assert_true(kvi_rank(x, 200, 0.5) == 100 && kvi_rank(x, 200, 0.99) == 198);
	assert_true(kvi_rank(x, 200, 0.999) == 200 && kvi_rank(x, 200, 1) == 200);
	assert_true(kvi_rank(x, 20, 0.95) == 19 && kvi_rank(x, 1, 0.01) == 1);
	assert_true(near(kvi_mean(x, 200), 100.5));
	assert_true(near(kvi_deviation(x, 2), sqrt(0.5)));
	assert_true(kvi_deviation(x, 1) == 0);
}

/* Of divergences to results of a sequence. */
static void test_sequence(void **state)
{
	enum { N = 200 };
	struct kvi_divergence d[N];
	double buffer[N], kl[N];
	kvarc_eval_result r = { .token_kl = kl };
	(void)state;
	for (int i = 0; i < N; i++)
		d[i] = (struct kvi_divergence){ .kl = (double)((i * 7) % N + 1),
			                        .delta_nll = i % 2,
			                        .best = { i, i >= 150 && i % 10 == 0 ? -1 : i } };
	d[N - 1].delta_nll = 1000; /* nobody knows what comes after it */
	kvi_eval_take(&r, d, N, buffer);
	assert_true(near(r.mean_kl, 100.5) && r.p99_kl == 198);
	assert_true(r.p999_kl == 200 && r.max_kl == 200);
	assert_true(near(r.agreement, 195.0 / 200));
	assert_true(near(r.delta_nll, 99.0 / 199));
	assert_int_equal(r.first_diverging, 150);
	assert_true(kl[1] == 8);
	assert_false(kvarc_eval_passes(&r, 100));
	assert_true(kvarc_eval_passes(&r, 101));
	r.p99_kl = 30 * 101 + 1;
	assert_false(kvarc_eval_passes(&r, 101));
	assert_false(kvarc_eval_passes(NULL, 101));
}

static void test_summary(void **state)
{
	enum { N = 50, TOKENS = 4 };
	static double kl[N][TOKENS];
	static kvarc_eval_result r[N];
	kvarc_eval_summary s, again;
	(void)state;
	for (int i = 0; i < N; i++) {
		for (int t = 0; t < TOKENS; t++)
			kl[i][t] = (double)(i * TOKENS + t);
		r[i] = (kvarc_eval_result){ .token_kl = kl[i],
			                    .tokens = TOKENS,
			                    .elements = 100,
			                    .cache_tokens = 10,
			                    .kept_tokens = i % 2 ? 10 : 5,
			                    .archive_bytes = 50,
			                    .mean_kl = (double)((i + 20) % N),
			                    .agreement = 0.5,
			                    .delta_nll = i % 2,
			                    .first_diverging = i % 5 ? KVARC_UNKNOWN : 1 };
	}
	assert_int_equal(kvarc_eval_summarise(&s, r, N, 1), KVARC_OK);
	assert_int_equal(s.sequences, N);
	assert_true(near(s.bits_per_element, 4) && near(s.kept, 0.75));
	assert_true(near(s.mean_kl, 24.5) && near(s.agreement, 0.5));
	assert_true(near(s.delta_nll, 0.5) && near(s.deviation_kl, 14.577379737));
	/* the mean of 50 has a standard error of 2.06 */
	assert_true(s.low_kl > 24.5 - 5 && s.low_kl < 24.5 - 3);
	assert_true(s.high_kl < 24.5 + 5 && s.high_kl > 24.5 + 3);
	assert_true(s.p95_kl == 47 && s.worst_kl == 49);
	assert_int_equal(s.worst, 29);
	assert_true(s.p99_kl == 197 && s.p999_kl == 199 && s.max_kl == 199);
	assert_int_equal(s.diverging, 10);
	assert_int_equal(kvarc_eval_summarise(&again, r, N, 1), KVARC_OK);
	assert_memory_equal(&s, &again, sizeof s);
	assert_int_equal(kvarc_eval_summarise(&again, r, N, 2), KVARC_OK);
	assert_true(s.low_kl != again.low_kl);
	r[3].token_kl = NULL;
	r[3].mean_kl = INFINITY;
	assert_int_equal(kvarc_eval_summarise(&s, r, N, 1), KVARC_OK);
	assert_true(s.max_kl == 0 && isinf(s.worst_kl) && s.worst == 3);
	assert_int_equal(kvarc_eval_summarise(&s, r, 1, 1), KVARC_OK);
	assert_true(s.low_kl == 20 && s.high_kl == 20 && s.deviation_kl == 0);
	assert_int_equal(kvarc_eval_summarise(&s, r, 0, 1), KVARC_PROG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),    cmocka_unit_test(test_signs),
		cmocka_unit_test(test_bad),      cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_sequence), cmocka_unit_test(test_summary),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
