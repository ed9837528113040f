/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profile_merge.c - the models of several profiles in one */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "profile/profile_io.h"
#include "profile_util.h"

enum { SEEDS = 40 };

static struct kvi_alloc alloc;

/* Which of both profiles a merged model comes from. */
static const struct kvi_profile *origin(const struct kvi_profile *p, const struct kvi_profile *q,
                                        const struct kvi_model *m)
{
	return kvi_profile_model(p, m->level, m->layer, m->kind) ? p : q;
}

static void array_same(const void *a, const void *b, size_t bytes)
{
	assert_true(!a == !b);
	if (a)
		assert_memory_equal(a, b, bytes);
}

static void check_merged(const struct kvi_profile *out, const struct kvi_profile *p,
                         const struct kvi_profile *q)
{
	size_t from_p = 0;
	for (size_t i = 0; i < out->n_models; i++) {
		const struct kvi_model *m = &out->models[i];
		const struct kvi_profile *from = origin(p, q, m);
		const struct kvi_model *x = kvi_profile_model(from, m->level, m->layer, m->kind);
		from_p += from == p;
		assert_non_null(x);
		assert_int_equal(m->rotary, x->rotary);
		array_same(m->step, x->step, m->C * sizeof *m->step);
		array_same(m->mean, x->mean, m->C * sizeof *m->mean);
		array_same(m->a, x->a, m->C * m->a_stride * sizeof *m->a);
		array_same(m->b, x->b, m->C * m->b_stride * sizeof *m->b);
		array_same(m->table, x->table, m->n_ids * m->C);
		if (m->rope)
			assert_memory_equal(out->ropes[m->rope - 1].freq,
			                    from->ropes[x->rope - 1].freq,
			                    m->rotary / 2 * sizeof(uint64_t));
		for (unsigned k = 0; k < m->n_lower; k++)
			assert_ptr_equal(origin(p, q, m->lower[k].model), from);
		for (unsigned k = 0; k < m->n_same; k++)
			assert_ptr_equal(origin(p, q, m->same[k].model), from);
	}
	assert_int_equal(from_p, p->n_models);
}

/* Without its last models: nothing before them is predicted from them. */
static void shorten(struct kvi_profile *p, size_t n)
{
	while (p->n_models > n)
		kvi_model_free(p, &p->models[--p->n_models]);
}

static void test_merge(void **state)
{
	size_t merged = 0, added = 0;
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		kvi_alloc_init(&alloc, NULL, 0);
		struct kvi_profile *p = profile_make(&alloc, seed), *out;
		struct kvi_profile *q = profile_make(&alloc, seed + SEEDS);
		const struct kvi_profile *const both[2] = { p, q };
		const struct kvi_profile *const twice[2] = { p, p };
		struct kvi_out a, b;
		shorten(p, 1 + seed % p->n_models);
		kvi_out_init(&a, &alloc);
		kvi_out_init(&b, &alloc);
		/* With itself it is what it was. */
		assert_int_equal(kvi_profile_merge(&out, &alloc, twice, 2), KVARC_OK);
		assert_int_equal(kvi_profile_serialise(p, &a), KVARC_OK);
		assert_int_equal(kvi_profile_serialise(out, &b), KVARC_OK);
		assert_int_equal(out->n_models, p->n_models);
		if (p->n_ropes == out->n_ropes) {
			assert_int_equal(a.n, b.n);
			assert_memory_equal(a.p, b.p, a.n);
		}
		kvi_profile_free(out);
		kvarc_ret ret = kvi_profile_merge(&out, &alloc, both, 2);
		assert_true(ret == KVARC_OK || ret == KVARC_GEOMETRY);
		if (ret == KVARC_OK) {
			check_merged(out, p, q);
			added += out->n_models - p->n_models;
			merged++;
		}
		kvi_profile_free(out);
		kvi_out_free(&a);
		kvi_out_free(&b);
		kvi_profile_free(p);
		kvi_profile_free(q);
		assert_int_equal(alloc.used, 0);
	}
	assert_true(merged > SEEDS / 4 && added > SEEDS / 4);
}

/* Too little memory is an error, and all memory is freed. */
static void test_merge_memory(void **state)
{
	(void)state;
	kvi_alloc_init(&alloc, NULL, 0);
	struct kvi_profile *p = profile_make(&alloc, 3), *out;
	const struct kvi_profile *const list[1] = { p };
	kvarc_ret ret = KVARC_MEMLIMIT;
	unsigned failures = 0;
	for (uint64_t limit = 1000; ret; limit += limit / 8, failures++) {
		struct kvi_alloc small;
		kvi_alloc_init(&small, NULL, limit);
		ret = kvi_profile_merge(&out, &small, list, 1);
		assert_true(ret == KVARC_OK || ret == KVARC_MEMLIMIT);
		kvi_profile_free(out);
		assert_int_equal(small.used, 0);
	}
	assert_true(failures > 5);
	kvi_profile_free(p);
	assert_int_equal(alloc.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_merge_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
