/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_oracle.c - what the grid codec's integer tables lose to exact probabilities
 *
 * Elements are drawn from the distribution that table set 0 stands for (spec grid 5), about a known
 * mu and with a known sigma, and rounded to a dtype. The oracle's price of an element is what the
 * distribution itself, in binary64, gives to all numbers that round to it. The codec knows mu, and
 * sigma in quarters of a binade; cells, phases and frequencies of 11 bits are its own.
 */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "numeric/formats.h"
#include "random.h"
#include "train/train_sample.h"
#include "util/bytes.h"

enum { N = 4096 };

/* spec/tables/make_tables.py: weight, and width in sigmas. */
static const struct {
	double weight, width;
} shape[] = { { .950, .98 }, { .045, 1.7 }, { .004, 4 }, { .001, 16 } };
enum { SHAPES = sizeof shape / sizeof *shape };

/* In (0, 1). */
static double uniform(void)
{
	return (rnd() + 0.5) / 2147483648.0;
}

static double draw(double mu, double sigma)
{
	double which = uniform();
	int i = 0;
	while (i + 1 < SHAPES && which >= shape[i].weight)
		which -= shape[i++].weight;
	return mu + sigma * shape[i].width * sqrt(-2 * log(uniform())) *
	                    cos(6.283185307179586 * uniform());
}

/* Of what lies between, as small as it may be. */
static double mass(double low, double high, double mu, double sigma)
{
	double sum = 0;
	if (low + high > 2 * mu) { /* the same on the other side, where digits are */
		double l = 2 * mu - high;
		high = 2 * mu - low;
		low = l;
	}
	for (int i = 0; i < SHAPES; i++) {
		double s = sigma * shape[i].width * sqrt(2);
		sum += shape[i].weight * .5 * (erfc((mu - high) / s) - erfc((mu - low) / s));
	}
	return sum;
}

static float number(unsigned dtype, uint32_t pattern)
{
	const uint8_t b[4] = { (uint8_t)pattern, (uint8_t)(pattern >> 8) };
	float x;
	kvi_floats_exact(dtype, b, 1, &x);
	return x;
}

/* Bits of an element: all that rounds to it. Zeros of both signs have a half each. */
static double price(unsigned dtype, uint32_t pattern, double mu, double sigma)
{
	const struct kvi_grid_format *f = &kvi_float_format(dtype)->grid;
	uint32_t sign = 1u << (f->elem_bits - 1), size = pattern & (sign - 1);
	double x = (double)number(dtype, size);
	double next = (double)number(dtype, size + 1);
	double before = size ? (double)number(dtype, size - 1) : x;
	double low = (x + before) / 2, high = (x + next) / 2;
	return -log2(pattern & sign ? mass(-high, -low, mu, sigma) : mass(low, high, mu, sigma));
}

/* Bits an element that the tables take more than the oracle. */
static double loss(const struct kvi_train_prices *p, unsigned dtype, float mu, double sigma,
                   double *oracle)
{
	static uint16_t element[N];
	static uint32_t mus[N];
	static int16_t k[N];
	*oracle = 0;
	for (size_t i = 0; i < N; i++) {
		uint8_t b[4] = { 0 };
		float x = (float)draw((double)mu, sigma);
		kvi_floats_store(dtype, &x, 1, b);
		element[i] = (uint16_t)(b[0] | b[1] << 8);
		memcpy(&mus[i], &mu, sizeof mu);
		k[i] = (int16_t)lrint(4 * log2(sigma));
		*oracle += price(dtype, element[i], (double)mu, sigma) / N;
	}
	return (double)kvi_train_prices_sum(p, dtype, element, mus, k, N) / 256 / N - *oracle;
}

/* Sigmas between the classes, and mu from nothing to far beyond it, on and off the grid. */
static void test_loss(void **state)
{
	static const struct {
		unsigned dtype;
		int first, last;   /* 4 log2 sigma */
		double mean, most; /* bits: a quarter more than they are */
	} all[] = {
		{ KVARC_BF16, -60, 12, .035, .10 },
		{ KVARC_F16, -28, 12, .050, .21 },
		{ KVARC_E4M3, -12, 0, .052, .21 },
		{ KVARC_E5M2, -20, 12, .080, .73 },
	};
	struct kvi_alloc alloc;
	struct kvi_train_prices *p;
	(void)state;
	kvi_alloc_init(&alloc, NULL, 0);
	assert_int_equal(kvi_train_prices_open(&p, &alloc), KVARC_OK);
	for (size_t d = 0; d < sizeof all / sizeof *all; d++) {
		double sum = 0, most = 0, least = 9, bits = 0, o;
		int n = 0;
		for (int k = all[d].first; k <= all[d].last; k += 3)
			for (int far = -2; far <= 6; far++, n++) {
				double sigma = exp2((k + between(-49, 49) / 100.0) / 4);
				float mu = far < -1 ? 0
				                    : (float)(sigma * exp2(far) * (1 + uniform()));
				double x = loss(p, all[d].dtype, far & 1 ? -mu : mu, sigma, &o);
				sum += x;
				bits += o;
				most = x > most ? x : most;
				least = x < least ? x : least;
			}
		print_message("dtype %u: oracle %.3f bits, tables %.4f more, "
		              "%.4f to %.4f\n",
		              all[d].dtype, bits / n, sum / n, least, most);
		assert_true(sum / n < all[d].mean && most < all[d].most);
		assert_true(least > -.02); /* nothing is for free */
	}
	kvi_train_prices_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_loss) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
