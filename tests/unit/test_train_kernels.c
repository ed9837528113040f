/* SPDX-License-Identifier: BSD-3-Clause */
/* test_train_kernels.c - loops of fits: the same bits in every instruction set; eigenvalues */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/linear_formulas.h"
#include "numeric/formats.h"
#include "random.h"
#include "train/dense.h"
#include "train/train_kernels.h"

enum { MOST = 300, ROUNDS = 200, K = 70 };

/* Any number, or one of those at the ends. */
static int16_t number(int most)
{
	const int ends[] = { 0, 1, -1, most, -most };
	const uint32_t i = below(20);
	return (int16_t)(i < 5 ? ends[i] : between(-most, most));
}

static double real(void)
{
	return ((double)rnd() + (double)rnd() * 0x1p-31) * 0x1p-30 - 1;
}

static const struct kvi_train_kernels *const plain = &kvi_train_kernels_scalar;

static void each_set(void (*test)(const struct kvi_train_kernels *k))
{
	const uint32_t sets[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512 };
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
		test(kvi_train_kernels_get(sets[i]));
}

static void fill(int16_t *x, size_t n, int16_t most)
{
	for (size_t i = 0; i < n; i++)
		x[i] = number(most);
}

static void some_moments(const struct kvi_train_kernels *k)
{
	enum { TILE = KVI_GRAM_TILE, N = KVI_GRAM_TOKENS };
	int16_t *rows = aligned_alloc(64, sizeof(int16_t[2 * TILE][N]));
	assert_non_null(rows);
	fill(rows, 2 * TILE * N, KVI_GRAM_LIMIT);
	for (size_t i = 0; i < N; i++) /* the largest sum */
		rows[i] = rows[TILE * N + i] = -KVI_GRAM_LIMIT;
	for (size_t n = 64; n <= N; n += 192) {
		int64_t a[TILE * TILE], b[TILE * TILE];
		plain->gram(a, rows, rows + TILE * N, N, n);
		k->gram(b, rows, rows + TILE * N, N, n);
		assert_memory_equal(a, b, sizeof a);
		assert_int_equal(a[0], (int64_t)n * KVI_GRAM_LIMIT * KVI_GRAM_LIMIT);
	}
	free(rows);
}

static void some_products(const struct kvi_train_kernels *k)
{
	static double a[K * K], b[K * K], c[K * K], d[K * K];
	for (size_t round = 0; round < ROUNDS; round++) {
		const size_t m = 1 + below(9), n = 1 + below(K), depth = below(K);
		for (size_t i = 0; i < K * K; i++) {
			a[i] = real();
			b[i] = real();
			c[i] = d[i] = real();
		}
		k->subtract(c, K, a, K, b, K, m, n, depth);
		for (size_t i = 0; i < m; i++)
			for (size_t j = 0; j < n; j++)
				for (size_t x = 0; x < depth; x++)
					d[i * K + j] -= a[i * K + x] * b[x * K + j];
		assert_memory_equal(c, d, sizeof c);
		k->add(c, a, b[0], n);
		for (size_t i = 0; i < n; i++)
			d[i] += b[0] * a[i];
		assert_memory_equal(c, d, sizeof c);
	}
}

static void some_rows(const struct kvi_train_kernels *k)
{
	static int16_t coef[MOST], rows[MOST * 64];
	for (size_t round = 0; round < ROUNDS; round++) {
		const size_t n_rows = below(MOST);
		int32_t a[64];
		uint32_t b[64];
		fill(coef, MOST, 200);
		fill(rows, MOST * 64, 32767);
		for (size_t i = 0; i < 64; i++)
			b[i] = (uint32_t)(a[i] = number(32767));
		k->weigh(a, coef, rows, 64, n_rows, 64);
		for (size_t i = 0; i < 64 * n_rows; i++)
			b[i % 64] += (uint32_t)(coef[i / 64] * rows[i]);
		assert_memory_equal(a, b, sizeof a);
	}
}

static void some_integers(const struct kvi_train_kernels *k)
{
	const unsigned dtypes[] = { KVARC_BF16, KVARC_F16, KVARC_E4M3, KVARC_E5M2 };
	for (size_t round = 0; round < ROUNDS; round++) {
		const struct kvi_grid_format *f = &kvi_float_format(dtypes[round % 4])->grid;
		const size_t n = below(MOST);
		const int step = between(-100, 100);
		uint16_t x[MOST];
		int32_t to[MOST] = { 0 };
		for (size_t i = 0; i < n; i++)
			x[i] = (uint16_t)below((uint32_t)1 << f->elem_bits);
		k->integers(to, x, f, step, n);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(to[i], kvi_linear_integer(x[i], f, step));
		for (size_t i = n; i < MOST; i++)
			assert_int_equal(to[i], 0);
	}
}

static void some_features(const struct kvi_train_kernels *k)
{
	for (size_t round = 0; round < ROUNDS; round++) {
		const size_t n = below(MOST);
		const int32_t mean = number(32767);
		int32_t u[MOST];
		int16_t less[MOST], z[MOST] = { 0 }, y[MOST] = { 0 };
		fill(less, MOST, 32767);
		for (size_t i = 0; i < n; i++)
			u[i] = 2 * number(32767);
		k->centred(z, u, round % 2 ? less : NULL, mean, n);
		for (size_t i = 0; i < n; i++)
			y[i] = (int16_t)kvi_linear_limited(u[i] - mean - (round % 2 ? less[i] : 0));
		assert_memory_equal(z, y, sizeof z);
		k->shifted(z, 2 * mean, n);
		for (size_t i = 0; i < n; i++)
			y[i] = (int16_t)kvi_linear_limited(y[i] - 2 * mean);
		assert_memory_equal(z, y, sizeof z);
	}
}

static void some_sizes(const struct kvi_train_kernels *k)
{
	for (size_t round = 0; round < ROUNDS; round++) {
		const size_t n = below(MOST);
		float sum[MOST] = { 0 }, f = (float)real();
		int16_t z[MOST];
		fill(z, MOST, 32767);
		for (size_t t = 0; t < 2; t++)
			k->sizes(sum, z + t, f, n < MOST - 1 ? n : MOST - 1);
		for (size_t i = 0; i < n && i < MOST - 1; i++) {
			float s = 0;
			for (size_t t = 0; t < 2; t++)
				s += (float)abs(z[i + t]) * f;
			assert_memory_equal(&s, &sum[i], sizeof s);
		}
	}
}

static void some_entries(const struct kvi_train_kernels *k)
{
	for (size_t round = 0; round < ROUNDS; round++) {
		const size_t n = below(MOST);
		const float unit = (float)below(64) / 8;
		int16_t z[MOST], to[MOST] = { 0 };
		float w[MOST];
		fill(z, MOST, 8 * KVI_GRAM_LIMIT / 7);
		for (size_t i = 0; i < n; i++)
			w[i] = (float)(1 + below(8)) / 8;
		k->entries(to, z, w, unit, n);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(to[i], kvi_gram_entry((float)z[i] * unit * w[i]));
	}
}

static void test_moments(void **state)
{
	(void)state;
	each_set(some_moments);
}

static void test_products(void **state)
{
	(void)state;
	each_set(some_products);
}

static void test_rows(void **state)
{
	(void)state;
	each_set(some_rows);
}

static void test_integers(void **state)
{
	(void)state;
	each_set(some_integers);
	each_set(some_features);
}

static void test_weights(void **state)
{
	(void)state;
	each_set(some_sizes);
	each_set(some_entries);
}

/* Values in descending order, each with its column. */
static void test_eigen(void **state)
{
	enum { N = 7 };
	double a[N * N] = { 0 }, v[N * N], value[N];
	(void)state;
	for (size_t i = 0; i < N; i++)
		a[i * N + i] = (double)(i * 3 % N);
	kvi_eigen(N, a, v, value);
	for (size_t j = 0; j < N; j++) {
		assert_true(value[j] == (double)(N - 1 - j));
		for (size_t i = 0; i < N; i++)
			assert_true(fabs(v[i * N + j]) == (i * 3 % N == N - 1 - j ? 1 : 0));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moments), cmocka_unit_test(test_products),
		cmocka_unit_test(test_rows),    cmocka_unit_test(test_integers),
		cmocka_unit_test(test_weights), cmocka_unit_test(test_eigen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
