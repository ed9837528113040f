/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profile_corrects.c - models that correct a hidden state: layout, rules, merging */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "profile/profile_io.h"
#include "util/bytes.h"

static struct kvi_alloc alloc;

static int begin(void **state)
{
	(void)state;
	kvi_alloc_init(&alloc, NULL, 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	return alloc.used != 0;
}

/* A key 2 x 3 and a value 2 x 1 of level 5, which corrects a state of 2. */
static struct kvi_profile *small(void)
{
	struct kvi_profile *p;
	assert_int_equal(kvi_profile_new(&p, &alloc), KVARC_OK);
	p->models = kvi_calloc(&alloc, 2, sizeof *p->models);
	p->n_models = 2;
	p->models[0] =
		(struct kvi_model){ .level = 5, .kind = KVARC_KEY, .heads = 2, .head_channels = 3 };
	p->models[1] = (struct kvi_model){ .level = 5,
		                           .kind = KVARC_VALUE,
		                           .heads = 2,
		                           .head_channels = 1,
		                           .n_same = 1,
		                           .flags = KVI_MODEL_CORRECTS,
		                           .width = 2 };
	p->models[1].same[0].scope = 1; /* B sees 3 slots of the key, D all 6 */
	for (int i = 0; i < 2; i++)
		assert_int_equal(kvi_model_reserve(p, &p->models[i]), KVARC_OK);
	return p;
}

static const uint8_t head_of_both[] = {
	0, 0, 2,                            /* pairs, ropes, models */
	5, 0, 0, 2, 3, 0, 0, 0, 0,          /* the key's head */
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* step */
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* k */
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* mean */
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 2, 1, 0, 16, 0, 1, 0, 1, /* the value's */
	0, 0, 0, 0, 0, 0, 0, 0,                                               /* step, k */
	0, 0, 0, 0, 0, 0, 0, 0,                                               /* mean */
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                             /* qb, B: 2 x 3 */
};

/* Numbers of spec profile 3, by hand. */
static void test_layout(void **state)
{
	static const uint8_t d[] = { 2,  0,  63,                       /* width, e */
		                     2,  3,  6,  20, 22, 24, 8,  10,   /* lowest bytes, zigzag */
		                     12, 14, 16, 26, 28, 30, 18, 0xff, /* of the second row */
		                     0,  0,  0,  0,  0,  0,  0,  0,    2, 0, 0, 0, 0, 0, 0, 0xff };
	struct kvi_profile *p = small(), *q;
	struct kvi_model *m = &p->models[1];
	struct kvi_out out;
	(void)state;
	/* two heads of 3 channels and one of padding, two heads of 1 + 1 */
	const int16_t rows[2][12] = { { 1, -2, 3, 0, 10, 11, 12, 0, 4, 0, 5, 0 },
		                      { 0x106, 7, 8, 0, 13, 14, 15, 0, 9, 0, -32768, 0 } };
	assert_int_equal(m->d_stride, 12);
	memcpy(m->d, rows, sizeof rows);
	m->e[1] = 63;
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	assert_int_equal(kvi_model_coefficients(m), 2 * 3 + 2 * 8);
	kvi_out_init(&out, &alloc);
	kvi_profile_put(p, &out);
	assert_int_equal(out.n, sizeof head_of_both + sizeof d);
	assert_memory_equal(out.p, head_of_both, sizeof head_of_both);
	assert_memory_equal(out.p + sizeof head_of_both, d, sizeof d);
	assert_int_equal(kvi_profile_parse(&q, &alloc, out.p, out.n), KVARC_OK);
	assert_int_equal(q->models[1].width, 2);
	assert_memory_equal(q->models[1].d, rows, sizeof rows);
	assert_memory_equal(q->models[1].e, m->e, 2);
	kvi_profile_free(q);
	/* where nothing is stored nothing may be */
	for (size_t i = 0; i < 24; i++) {
		bool stored = i % 12 < 8 ? i % 4 != 3 : i % 2 == 0;
		m->d[i] += 1;
		assert_int_equal(kvi_profile_finish(p), stored ? KVARC_OK : KVARC_DATA);
		m->d[i] -= 1;
	}
	kvi_out_free(&out);
	kvi_profile_free(p);
}

/* Widths that cannot be cost no memory. */
static void test_width(void **state)
{
	static const uint8_t widths[][4] = { { 0, 0 },
		                             { 3, 0 },
		                             { 0x80, 0x80, 0x40, 0 },
		                             { 0x81, 0x80, 0x40, 0 },
		                             { 0xff, 0xff, 0xff, 0x7f } };
	uint8_t b[sizeof head_of_both + 3 + 32] = { 0 };
	const size_t at = sizeof head_of_both;
	struct kvi_profile *p;
	(void)state;
	memcpy(b, head_of_both, at);
	b[at] = 2;
	for (size_t n = 0; n < sizeof b; n++) {
		assert_int_equal(kvi_profile_parse(&p, &alloc, b, n), KVARC_DATA);
		assert_null(p);
	}
	assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof b), KVARC_OK);
	kvi_profile_free(p);
	alloc.peak = 0;
	for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
		memcpy(b + at, widths[i], 4);
		assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof b), KVARC_DATA);
		assert_null(p);
	}
	assert_true(alloc.peak < 4096);
}

static void set_width(struct kvi_profile *p, uint32_t width)
{
	p->models[1].width = width;
	assert_int_equal(kvi_model_reserve(p, &p->models[1]), KVARC_OK);
}

/* What parse and finish say to the content of p. */
static kvarc_ret answer(struct kvi_profile *p)
{
	struct kvi_profile *q;
	struct kvi_out out;
	kvi_out_init(&out, &alloc);
	kvi_profile_put(p, &out);
	kvarc_ret ret = kvi_profile_parse(&q, &alloc, out.p, out.n);
	kvi_profile_free(q);
	kvi_out_free(&out);
	assert_int_equal(kvi_profile_finish(p), ret);
	return ret;
}

/* One correction a layer and level; the largest width; flags that do not go with levels. */
static void test_rules(void **state)
{
	struct kvi_profile *p = small();
	struct kvi_model *m = p->models;
	(void)state;
	assert_int_equal(answer(p), KVARC_OK);
	m[0].flags = KVI_MODEL_CORRECTS;
	m[0].width = 2;
	assert_int_equal(kvi_model_reserve(p, &m[0]), KVARC_OK);
	assert_int_equal(answer(p), KVARC_DATA);
	m[1].flags = 0;
	/* its buffer was allocated for a correction */
	assert_int_equal(kvi_profile_finish(p), KVARC_DATA);
	assert_int_equal(kvi_model_reserve(p, &m[1]), KVARC_OK);
	assert_int_equal(answer(p), KVARC_OK);
	m[1].flags = KVI_MODEL_CORRECTS;
	m[1].layer = 1;
	m[1].n_same = 0;
	set_width(p, KVI_CORRECTS_WIDTH_MAX);
	assert_int_equal(answer(p), KVARC_OK);
	set_width(p, KVI_CORRECTS_WIDTH_MAX + 1);
	assert_int_equal(answer(p), KVARC_DATA);
	kvi_profile_free(p);
	for (unsigned level = 1; level <= 8; level++) {
		p = small();
		p->models[0].level = p->models[1].level = (uint8_t)level;
		kvarc_ret ret = answer(p);
		assert_int_equal(ret, level > 3 && level < 8 ? KVARC_OK : KVARC_DATA);
		p->models[1].flags = 0;
		set_width(p, 0);
		ret = answer(p);
		assert_int_equal(ret, level > 1 && level < 8 ? KVARC_OK : KVARC_DATA);
		kvi_profile_free(p);
	}
}

/* Of two profiles that correct a layer with different tensors the first one does it. */
static void test_merge(void **state)
{
	struct kvi_profile *p = small(), *q = small(), *out;
	const struct kvi_profile *const both[2] = { p, q };
	(void)state;
	/* p: a key alone, which corrects */
	kvi_model_free(p, &p->models[--p->n_models]);
	p->models[0].flags = KVI_MODEL_CORRECTS;
	p->models[0].width = 7;
	assert_int_equal(kvi_model_reserve(p, &p->models[0]), KVARC_OK);
	p->models[0].d[6 * 8] = 11;
	q->models[1].n_same = 0; /* q's key is not taken */
	assert_int_equal(kvi_model_reserve(q, &q->models[1]), KVARC_OK);
	q->models[1].d[2] = 5;
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	assert_int_equal(kvi_profile_finish(q), KVARC_OK);
	assert_int_equal(kvi_profile_merge(&out, &alloc, both, 2), KVARC_OK);
	assert_int_equal(out->n_models, 2);
	assert_int_equal(out->models[0].flags, KVI_MODEL_CORRECTS);
	assert_int_equal(out->models[0].width, 7);
	assert_int_equal(out->models[0].d[6 * 8], 11);
	assert_int_equal(out->models[1].flags, 0);
	assert_null(out->models[1].d);
	kvi_profile_free(out);
	kvi_profile_free(p);
	kvi_profile_free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_layout, begin, end),
		cmocka_unit_test_setup_teardown(test_width, begin, end),
		cmocka_unit_test_setup_teardown(test_rules, begin, end),
		cmocka_unit_test_setup_teardown(test_merge, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
