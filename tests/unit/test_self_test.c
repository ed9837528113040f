/* SPDX-License-Identifier: BSD-3-Clause */
/* test_self_test.c - the known answer of the exact arithmetic, from good kernels and bad ones */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kernels/rans.h"
#include "exact/self_test.h"

static struct kvi_alloc alloc;

static kvarc_ret answer(const struct kvi_exact_kernels *k, const struct kvi_elementwise *e)
{
	kvarc_error error = { .text = "" };
	kvarc_ret ret = kvi_exact_test(&alloc, k, e, &error);
	if (ret == KVARC_PREDICTOR) {
		assert_int_equal(error.code, KVARC_PREDICTOR);
		assert_non_null(strstr(error.text, "self-test of the exact "
		                                   "arithmetic failed (isa "));
		assert_non_null(strstr(error.text, k->name));
		assert_non_null(strstr(error.text, "--isa scalar"));
	}
	return ret;
}

static void test_good(void **state)
{
	static const uint32_t sets[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512,
		                         KVARC_ISA_NEON, 0 };
	(void)state;
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		if (sets[i] && !(kvarc_isa_available() & sets[i]))
			continue;
		const struct kvi_exact_kernels *k = kvi_exact_kernels_get(sets[i]);
		struct kvi_h128 h;
		clock_t start = clock();
		assert_int_equal(kvi_exact_answer(&alloc, k, kvi_elementwise_get(sets[i]), &h),
		                 KVARC_OK);
		print_message("%s: 0x%016llx, 0x%016llx, %.2f ms\n", k->name,
		              (unsigned long long)h.lo, (unsigned long long)h.hi,
		              (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC);
		assert_int_equal(answer(k, kvi_elementwise_get(sets[i])), KVARC_OK);
	}
}

/* ---- kernels that are wrong by one last bit, in one place ---- */

static enum { ANYWHERE, WIDE_PLANES, NARROW, MINIMA, VALUES, SCALES } where;

static void spoil(float *x)
{
	uint32_t bits;
	memcpy(&bits, x, sizeof bits);
	bits ^= 1;
	memcpy(x, &bits, sizeof bits);
}

static bool here(const struct kvi_product *p)
{
	return where == ANYWHERE || (where == WIDE_PLANES && p->a->wide && p->w->planes == 2) ||
	       (where == NARROW && !p->a->wide) || (where == MINIMA && p->w->minimum) ||
	       (where == VALUES && p->w->columns == 256);
}

static void bad_product(const struct kvi_product *p)
{
	kvi_exact_scalar.product(p);
	if (here(p))
		spoil(p->y + (p->a->rows - 1) * p->y_stride + p->w->rows - 1);
}

static void bad_floats(const struct kvi_product *p)
{
	kvi_exact_scalar.product_floats(p);
	spoil(p->y + (p->rows - 1) * p->y_stride + p->w->rows - 1);
}

static void bad_quantise(struct kvi_activations *a, const float *x, size_t x_stride, size_t first,
                         size_t n)
{
	kvi_exact_scalar.quantise(a, x, x_stride, first, n);
	if (where == SCALES)
		spoil(a->scale);
	else if (a->wide)
		a->a15[(first + n - 1) * a->stride]++;
	else
		a->a8[(first + n - 1) * a->stride]++;
}

static float bad_norm(float *y, const float *x, const float *gain, const float *bias, size_t n,
                      float epsilon)
{
	float root = kvi_elementwise_scalar.norm(y, x, gain, bias, n, epsilon);
	if (bias)
		spoil(&root);
	return root;
}
static void bad_silu(float *g, const float *u, size_t n)
{
	kvi_elementwise_scalar.silu(g, u, n);
	if (u)
		spoil(g + n - 1);
}
static void bad_gelu(float *g, const float *u, size_t n)
{
	kvi_elementwise_scalar.gelu(g, u, n);
	if (!u)
		spoil(g);
}
static void bad_add(float *y, const float *x, size_t n)
{
	kvi_elementwise_scalar.add(y, x, n);
	spoil(y + n - 1);
}
static void bad_blend(float *y, float a, const float *x, float b, size_t n)
{
	kvi_elementwise_scalar.blend(y, a, x, b, n);
	spoil(y + n - 1);
}
static void bad_softmax(struct kvi_scores *s)
{
	kvi_elementwise_scalar.softmax(s);
	spoil(&s->l);
}
static float bad_exp(float x)
{
	x = kvi_elementwise_scalar.exp(x);
	spoil(&x);
	return x;
}

static void test_bad_kernels(void **state)
{
	struct kvi_exact_kernels k = kvi_exact_scalar;
	(void)state;
	k.product = bad_product;
	for (where = ANYWHERE; where <= VALUES; where++)
		assert_int_equal(answer(&k, &kvi_elementwise_scalar), KVARC_PREDICTOR);
	k = kvi_exact_scalar;
	k.product_floats = bad_floats;
	assert_int_equal(answer(&k, &kvi_elementwise_scalar), KVARC_PREDICTOR);
	k = kvi_exact_scalar;
	k.quantise = bad_quantise;
	for (where = VALUES; where <= SCALES; where++)
		assert_int_equal(answer(&k, &kvi_elementwise_scalar), KVARC_PREDICTOR);
}

static void test_bad_elements(void **state)
{
	struct kvi_elementwise e[7];
	(void)state;
	for (int i = 0; i < 7; i++)
		e[i] = kvi_elementwise_scalar;
	e[0].norm = bad_norm;
	e[1].silu = bad_silu;
	e[2].gelu = bad_gelu;
	e[3].add = bad_add;
	e[4].blend = bad_blend;
	e[5].softmax = bad_softmax;
	e[6].exp = bad_exp;
	for (int i = 0; i < 7; i++)
		assert_int_equal(answer(&kvi_exact_scalar, &e[i]), KVARC_PREDICTOR);
}

static void test_no_memory(void **state)
{
	struct kvi_alloc little;
	(void)state;
	kvi_alloc_init(&little, NULL, 100);
	assert_int_equal(kvi_exact_test(&little, &kvi_exact_scalar, &kvi_elementwise_scalar, NULL),
	                 KVARC_MEMLIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad_kernels),
		cmocka_unit_test(test_bad_elements),
		cmocka_unit_test(test_no_memory),
	};
	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
