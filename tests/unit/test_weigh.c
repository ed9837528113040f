/* SPDX-License-Identifier: BSD-3-Clause */
/* test_weigh.c - what changes of single heads do to a model's answers, and transforms that heed
 * it */
#include "eval/eval_state.h"
#include "eval/sensitivity.h"
#include "profile/profile_io.h"
#include "small_model.h"
#include "train/basis.h"
#include "train/train_run.h"

enum { PREFIX = 200, CONTINUED = 40, ALL = PREFIX + CONTINUED, N_HEADS = 2 * LAYERS * KV_HEADS };

static int32_t ids[ALL];

static kvarc_predictor *open_model(void)
{
	uint64_t seed = 5;
	kvarc_predictor *p;
	for (int i = 0; i < ALL; i++)
		ids[i] = (int32_t)(rand_next(&seed) % WORDS);
	assert_int_equal(kvarc_predictor_open_model(&p, folder, NULL), KVARC_OK);
	return p;
}

/* The model does not get to see the values of the last layer's head 1. */
static kvarc_ret put_part(struct kvi_run *run, size_t layer, size_t at, const float *k,
                          const float *v, size_t stride, size_t n)
{
	static float part[256 * KV];
	assert_true(n <= 256);
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < KV; i++)
			part[t * KV + i] = layer == LAYERS - 1 && i >= CHANNELS ? 0
			                                                        : v[t * stride + i];
	for (size_t t = 0; t < n; t++) {
		kvarc_ret ret = kvi_run_put(run, layer, at + t, k + t * stride, part + t * KV,
		                            stride, 1);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

/* Nothing comes of a head that nobody sees; something of all others, whatever the threads. */
static void test_harm(void **state)
{
	double sensitivity[2][N_HEADS] = { { 0 } };
	(void)state;
	kvarc_predictor *p = open_model();
	for (unsigned i = 0; i < 2; i++) {
		kvarc_eval_options o = KVARC_EVAL_OPTIONS_INIT;
		kvarc_eval *e;
		o.common.threads = 1 + 2 * i;
		o.predictor = p;
		o.prefix = PREFIX;
		o.continuation = CONTINUED;
		assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
		assert_int_equal(kvi_sensitivity_heads(e), N_HEADS);
		assert_int_equal(kvi_sensitivity_tokens(e), ALL);
		assert_int_equal(kvi_eval_use_put(e, put_part), KVARC_OK);
		assert_int_equal(kvi_sensitivity_add(e, ids, sensitivity[i]), KVARC_OK);
		kvarc_eval_close(&e);
	}
	for (size_t i = 0; i < N_HEADS; i++) {
		bool hidden = i == N_HEADS - 1; /* keys, then values of a layer */
		assert_true(hidden ? sensitivity[0][i] == 0 : sensitivity[0][i] > 0);
		assert_true(sensitivity[0][i] == sensitivity[1][i]);
	}
	kvarc_predictor_close(&p);
}

/* ---- training ---- */

struct weigh_way {
	const kvarc_predictor *p;
	unsigned threads;
	bool no_ids;
};

static kvarc_ret train(const struct cache *c, const struct weigh_way *w, kvarc_trainer **t,
                       kvarc_error *e)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	o.common.error = e;
	o.common.threads = w->threads;
	o.mode = KVARC_TRAIN_KLT;
	o.klt.sensitivity = w->p;
	assert_int_equal(kvarc_trainer_open(t, &o), KVARC_OK);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(
			kvarc_trainer_add(*t, &c[i].g, 0, c[i].n[0], w->no_ids ? NULL : c[i].ids[0],
		                          c[i].positions[0], cache_fetch, (void *)(uintptr_t)&c[i]),
			KVARC_OK);
	return kvarc_trainer_run(*t);
}

static struct cache caches[2];

static int setup(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 2; i++)
		make(&caches[i], 100 + i, 0x1p-7f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++)
		cache_free(&caches[i]);
	return 0;
}

static struct kvi_h128 digest_of(const struct weigh_way *w)
{
	kvarc_trainer *t;
	kvarc_profile *p;
	assert_int_equal(train(caches, w, &t, NULL), KVARC_OK);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
	struct kvi_h128 d = kvi_profile_of(p)->digest;
	kvarc_profile_close(&p);
	kvarc_trainer_close(&t);
	return d;
}

/* What weighs more has finer steps, and is expected to take more bits; the sum stays. */
static void test_units(void **state)
{
	kvarc_trainer *t[2];
	int sum = 0, least = 0, most = 0;
	(void)state;
	kvarc_predictor *p = open_model();
	assert_int_equal(train(caches, &(struct weigh_way){ .p = p }, &t[1], NULL), KVARC_OK);
	assert_int_equal(train(caches, &(struct weigh_way){ .p = NULL }, &t[0], NULL), KVARC_OK);
	assert_int_equal(t[0]->n_units, 0);
	assert_int_equal(t[1]->n_units, N_HEADS);
	const struct kvi_profile *with = kvi_train_profile(t[1]);
	const struct kvi_profile *without = kvi_train_profile(t[0]);
	for (size_t i = 0; i < N_HEADS; i++) {
		const struct kvi_train_unit *u = &t[1]->units[i];
		const struct kvi_model *a = kvi_profile_model(without, 9, u->layer,
		                                              (kvarc_kind)u->kind);
		const struct kvi_model *b = kvi_profile_model(with, 9, u->layer,
		                                              (kvarc_kind)u->kind);
		const size_t c = u->head * CHANNELS;
		sum += u->unit;
		least = u->unit < least ? u->unit : least;
		most = u->unit > most ? u->unit : most;
		/* Without sources the residual is the same: classes are half octaves of
		 * squares. */
		if (!a->n_lower)
			assert_in_range(b->k[c] - a->k[c] + u->unit / 4 + 100, 99, 101);
	}
	assert_true(sum < N_HEADS * 8 && sum > -N_HEADS * 8);
	assert_true(least < -4 && most > 4);
	for (int i = 0; i < 2; i++)
		kvarc_trainer_close(&t[i]);
	kvarc_predictor_close(&p);
}

/* Threads make no difference. Nothing can be weighed without token ids. */
static void test_same(void **state)
{
	(void)state;
	kvarc_predictor *p = open_model();
	struct kvi_h128 d[5] = { digest_of(&(struct weigh_way){ p, 1, false }),
		                 digest_of(&(struct weigh_way){ p, 3, false }),
		                 digest_of(&(struct weigh_way){ p, 2, true }),
		                 digest_of(&(struct weigh_way){ NULL, 1, true }),
		                 digest_of(&(struct weigh_way){ NULL, 1, false }) };
	assert_memory_equal(&d[0], &d[1], sizeof *d);
	assert_memory_equal(&d[2], &d[3], sizeof *d);
	assert_memory_equal(&d[2], &d[4], sizeof *d);
	assert_memory_not_equal(&d[0], &d[2], sizeof *d);
	kvarc_predictor_close(&p);
}

/* Another model than that of the caches; other levels; no more memory. */
static void test_wrong(void **state)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	(void)state;
	kvarc_predictor *p = open_model();
	o.klt.sensitivity = p;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	struct cache *c = &caches[0];
	kvarc_geometry was = c->g;
	kvarc_tensor *less = malloc(was.n_tensors * sizeof *less);
	memcpy(less, was.tensors, was.n_tensors * sizeof *less);
	less[1].heads = 1;
	for (size_t i = 0; i < 2; i++)
		caches[i].g.tensors = less;
	assert_int_equal(train(caches, &(struct weigh_way){ .p = p }, &t, &e), KVARC_PREDICTOR);
	assert_non_null(strstr(e.text, "not of the model"));
	for (size_t i = 0; i < 2; i++)
		caches[i].g.tensors = was.tensors;
	kvarc_trainer_close(&t);
	free(less);
	kvarc_predictor_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_harm),
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_same),
		cmocka_unit_test(test_wrong),
	};
	int ret = make_folder();
	bool reads = ret == 0 && reads_folders();
	if (ret == 0 && reads)
		ret = cmocka_run_group_tests(tests, setup, teardown);
	remove_folder();
	return ret == 0 && !reads ? 77 : ret;
}
