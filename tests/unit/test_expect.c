/* SPDX-License-Identifier: BSD-3-Clause */
/* test_expect.c - expectations as integers, and corrections, against plain computations */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "profile/expect.h"
#include "profile/profile_io.h"
#include "random.h"

static struct kvi_alloc alloc;
static float from_bits(uint32_t b)
{
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

static double power(int e)
{
	double f = 1;
	for (; e; e += e < 0 ? 1 : -1)
		f *= e < 0 ? 0.5 : 2;
	return f;
}

/* ---------------------------------------------------------- expectations */

static const struct {
	uint32_t p; /* bits */
	int step;
	int16_t e;
} cases[] = { { 0x3f000000, 0, 0 },        { 0x3fc00000, 0, 2 },     /* 0.5, 1.5 */
	      { 0x40200000, 0, 2 },        { 0xbf000000, 0, 0 },     /* 2.5, -0.5 */
	      { 0xc0600000, 0, -4 },       { 0x3f000001, 0, 1 },     /* -3.5, above 0.5 */
	      { 0x46fffe00, 0, 32767 },    { 0x46ffff00, 0, 32767 }, /* 32767, + 0.5 */
	      { 0x47000000, 0, 32767 },    { 0xc7000000, 0, -32767 },    { 0x7f7fffff, 100, 32767 },
	      { 0x7f7fffff, -100, 32767 }, { 0xff7fffff, -100, -32767 }, { 0x7f800000, 7, 32767 },
	      { 0xff800000, -7, -32767 },  { 0x7fc00000, 0, 0 },         { 0xffc00001, 5, 0 },
	      { 0x00000001, -100, 0 },     { 0x80000001, 100, 0 },       { 0, 0, 0 },
	      { 0x0d800000, -100, 1 }, /* 2^-100 */
	      { 0x3f800000, -14, 16384 },  { 0x3f800000, -15, 32767 },   { 0x3f800000, 1, 0 },
	      { 0x40400000, 1, 2 } };
enum { CASES = sizeof cases / sizeof cases[0] };

static void test_cases(void **state)
{
	int16_t step[CASES], e[3 * CASES];
	float p[3 * (CASES + 5)];
	const struct kvi_model m = { .C = CASES, .step = step };
	(void)state;
	for (size_t c = 0; c < CASES; c++) {
		step[c] = (int16_t)cases[c].step;
		for (size_t t = 0; t < 3; t++)
			p[t * (CASES + 5) + c] = from_bits(cases[c].p);
	}
	kvi_model_expect(&m, p, CASES + 5, 3, e);
	for (size_t i = 0; i < 3 * CASES; i++)
		if (e[i] != cases[i % CASES].e)
			fail_msg("case %zu: %d", i % CASES, e[i]);
}

/* The check of 3 and -2, two bytes each, behind the hashes of a source and of a scale source. */
static void test_check(void **state)
{
	static const int16_t two[] = { 3, -2 };
	static const uint8_t bytes[] = { 3, 0, 0xfe, 0xff };
	const struct kvi_features source = { .expected_hash = 0x1122334455667788 },
	                          scale = { .expected_hash = 0x99aabbccddeeff00 };
	struct kvi_model m = { .C = 1 };
	struct kvi_linear_in in = { .model = &m, .n_tokens = 2, .expected = two };
	uint8_t hashes[24];
	(void)state;
	assert_true(kvi_expected_hash(&in) == kvi_h64(bytes, 4));
	kvi_store64(hashes, source.expected_hash);
	kvi_store64(hashes + 8, scale.expected_hash);
	kvi_store64(hashes + 16, kvi_h64(bytes, 4));
	assert_true(kvi_expected_check(&in) == kvi_h64(hashes + 16, 8));
	m.n_same = 1;
	in.same[0] = &source;
	m.scale_source = &m;
	in.scale = &scale;
	assert_true(kvi_expected_check(&in) == kvi_h64(hashes, 24));
}

static void test_random(void **state)
{
	const double half = 6755399441055744.0; /* 1.5 x 2^52 */
	(void)state;
	for (int round = 0; round < 200000; round++) {
		int16_t step = (int16_t)between(-100, 100), e;
		const struct kvi_model m = { .C = 1, .step = &step };
		uint32_t bits = rnd() << 16 ^ rnd();
		if (round % 4) { /* near the range */
			int exponent = 127 + step + between(-2, 16);
			bits = (bits & 0x807fffff) | (uint32_t)exponent << 23;
		}
		float p = from_bits(bits);
		double q = (double)p * power(-step);
		int want = p != p       ? 0
		           : q > 32767  ? 32767
		           : q < -32767 ? -32767
		                        : (int)((q + half) - half);
		kvi_model_expect(&m, &p, 1, 1, &e);
		assert_int_equal(e, want);
	}
}

/* ----------------------------------------------------------- corrections */

enum { MAX_TOKENS = 256 };

struct expect_filler {
	int left;
};

static void fill_run(void *ctx, int16_t *p, size_t n)
{
	struct expect_filler *f = ctx;
	for (size_t i = 0; i < n; i++) {
		int most = f->left < 800 ? f->left : 800;
		if (below(40) == 0)
			most = f->left < 32767 ? f->left : 32767;
		p[i] = (int16_t)between(-most, most);
		f->left -= abs(p[i]);
	}
}

/* A key and a value, one of which corrects. */
static struct kvi_profile *profile(void)
{
	static const uint32_t channels[] = { 1, 3, 5, 8, 16, 17 };
	static const uint32_t widths[] = { 1, 2, 31, 32, 33, 70 };
	struct kvi_profile *p;
	assert_int_equal(kvi_profile_new(&p, &alloc), KVARC_OK);
	p->models = kvi_calloc(&alloc, 2, sizeof *p->models);
	p->n_models = 2;
	for (unsigned kind = 0; kind < 2; kind++) {
		struct kvi_model *m = &p->models[kind];
		*m = (struct kvi_model){ .level = 4,
			                 .kind = (uint8_t)kind,
			                 .heads = (kind + 1) * 2,
			                 .n_same = kind,
			                 .head_channels = channels[below(6)] };
		m->same[0].scope = (uint8_t)below(2);
		if (kind == 1) {
			m->flags = KVI_MODEL_CORRECTS;
			m->width = widths[below(6)];
		}
		assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
	}
	struct kvi_model *m = &p->models[1];
	for (size_t i = 0; i < m->width; i++) {
		struct expect_filler f = { KVI_COEF_SUM_MAX };
		m->e[i] = (uint8_t)between(0, 63);
		kvi_model_row_d(m, i, fill_run, &f);
	}
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	return p;
}

static struct kvi_features *features(const struct kvi_model *m, size_t n)
{
	struct kvi_features *f;
	assert_int_equal(kvi_features_open(&f, &alloc, m, n), KVARC_OK);
	bool most = below(4) == 0;
	for (size_t i = 0; i < m->heads * kvi_head_stride(m) * f->tokens_capacity; i++)
		f->r[i] = most ? 32767 : (int16_t)between(-32767, 32767);
	return f;
}

/* r of a slot, and its coefficient by its index in the file. */
static int64_t part(const struct kvi_model *m, const struct kvi_features *f, const int16_t *d,
                    size_t t)
{
	size_t stride = kvi_head_stride(m);
	int64_t sum = 0;
	for (size_t h = 0; h < m->heads; h++)
		for (size_t s = 0; s < m->head_channels; s++)
			sum += (int64_t)d[h * stride + s] *
			       f->r[((t / 32 * m->heads + h) * stride / 2 + s / 2) * 64 +
			            t % 32 * 2 + s % 2];
	return sum;
}

static void plain(const struct kvi_model *m, const struct kvi_features *same,
                  const struct kvi_features *own, float *h, float root, size_t t)
{
	const struct kvi_model *key = m->same[0].model;
	for (size_t i = 0; i < m->width; i++) {
		const int16_t *d = m->d + i * m->d_stride;
		int64_t sum = part(key, same, d, t) +
		              part(m, own, d + key->heads * kvi_head_stride(key), t);
		volatile float f = (float)sum;
		volatile float s = (float)((double)f * power(-m->e[i]));
		volatile float x = root * s;
		h[i] = h[i] + x;
	}
}

static void correct_round(void)
{
	static const uint32_t sets[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512,
		                         KVARC_ISA_NEON };
	static float before[MAX_TOKENS * 80], want[MAX_TOKENS * 80], got[MAX_TOKENS * 80];
	float root[MAX_TOKENS];
	struct kvi_profile *p = profile();
	const struct kvi_model *m = &p->models[1];
	size_t n = 1 + below(MAX_TOKENS), first = below((uint32_t)n) / 32 * 32;
	size_t some = 1 + below((uint32_t)(n - first)), stride = m->width + below(10);
	struct kvi_features *same = features(&p->models[0], n);
	struct kvi_features *own = features(m, n);
	const struct kvi_features *const list[] = { same };
	for (size_t i = 0; i < n * stride; i++)
		before[i] = (float)between(-1000000, 1000000) / 1000;
	for (size_t t = 0; t < n; t++)
		root[t] = (float)between(1, 1000000) / 7000;
	memcpy(want, before, sizeof want);
	for (size_t t = first; t < first + some; t++)
		plain(m, same, own, want + t * stride, root[t], t);
	for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++) {
		if (!(sets[k] & kvarc_isa_available()))
			continue;
		void *scratch = kvi_malloc(&alloc, kvi_model_correct_bytes(some));
		memcpy(got, before, sizeof got);
		kvi_model_correct(m, list, own, kvi_kernels_get(sets[k]), got, stride, root, first,
		                  some, scratch);
		assert_memory_equal(got, want, sizeof got);
		kvi_free(&alloc, scratch);
	}
	kvi_features_close(same, &alloc);
	kvi_features_close(own, &alloc);
	kvi_profile_free(p);
}

static void test_correct(void **state)
{
	(void)state;
	kvi_alloc_init(&alloc, NULL, 0);
	for (int round = 0; round < 60; round++)
		correct_round();
	assert_int_equal(alloc.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_correct),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
