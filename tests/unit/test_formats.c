/* SPDX-License-Identifier: BSD-3-Clause */
/* test_formats.c - numbers as elements of float formats: to nearest, ties to even, at the ends */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvarc.h"
#include "numeric/formats.h"
#include "util/bytes.h"

static const unsigned dtypes[] = { KVARC_F16, KVARC_BF16, KVARC_E4M3, KVARC_E5M2 };

static uint32_t stored(unsigned dtype, float x)
{
	uint8_t to[4] = { 0 };
	kvi_floats_store(dtype, &x, 1, to);
	return kvi_load32(to);
}

static float widened(unsigned dtype, uint32_t code)
{
	uint8_t from[4];
	float x;
	kvi_store32(from, code);
	kvi_floats_exact(dtype, from, 1, &x);
	return x;
}

/* The largest code of a finite positive number. */
static uint32_t largest(unsigned dtype)
{
	const struct kvi_float_format *f = kvi_float_format(dtype);
	return dtype == KVARC_E4M3 ? 0x7e : (((1u << f->exp_bits) - 1) << f->mant_bits) - 1;
}

/* Of each two neighbours: themselves, what is nearer to one of them, and the middle. */
static void test_nearest(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
		const unsigned dtype = dtypes[i];
		const uint32_t sign = 1u << (8 * kvarc_dtype_bytes(dtype) - 1);
		for (uint32_t code = 0; code < largest(dtype); code++) {
			const float a = widened(dtype, code), b = widened(dtype, code + 1);
			const float middle = (float)(((double)a + (double)b) / 2);
			assert_true(a < middle && middle < b);
			assert_int_equal(stored(dtype, a), code);
			assert_int_equal(stored(dtype, -b), sign | (code + 1));
			assert_int_equal(stored(dtype, nextafterf(middle, 0)), code);
			assert_int_equal(stored(dtype, nextafterf(middle, b)), code + 1);
			assert_int_equal(stored(dtype, middle), code + (code & 1));
		}
	}
}

static void test_limits(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
		const unsigned dtype = dtypes[i];
		const uint32_t most = largest(dtype), code = stored(dtype, INFINITY);
		const float x = widened(dtype, most);
		assert_int_equal(stored(dtype, x), most);
		/* of what lies beyond: an infinity where the format has one, else the largest */
		assert_int_equal(code, dtype == KVARC_E4M3 ? most : most + 1);
		assert_int_equal(stored(dtype, nextafterf(x, INFINITY)), most);
		assert_int_equal(stored(dtype, NAN), 0);
	}
	assert_int_equal(stored(KVARC_E4M3, 1e30f), 0x7e);
	assert_int_equal(stored(KVARC_E4M3, -1e30f), 0xfe);
	assert_int_equal(stored(KVARC_F32, 1.5f), 0x3fc00000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
