/* SPDX-License-Identifier: BSD-3-Clause */
/* test_head.c - where a model's head is, whether it has one, and what is picked of its words */
#include "config.h"

#include "models_util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "format/frame.h"
#include "exact/head.h"
#include "random.h"

static struct kvi_alloc alloc;

static int reset(void **state)
{
	(void)state;
	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	return 0;
}

/* A model of tests/data/models whose config.json says more, behind `{` or another text. */
static struct kvi_model_file *open_with(const char *name, const char *behind, const char *more)
{
	struct kvi_model_file *m;
	struct model_folder f = folder_load(name);
	kvarc_error error = { .text = "" };
	char *p = calloc(f.config.n + strlen(more) + 1, 1), *at;
	assert_non_null(p);
	memcpy(p, f.config.p, f.config.n);
	at = strstr(p, behind);
	assert_non_null(at);
	at += strlen(behind);
	memmove(at + strlen(more), at, strlen(at));
	memcpy(at, more, strlen(more));
	free(f.config.p);
	f.config.p = (uint8_t *)p;
	f.config.n += strlen(more);
	if (load_folder(&m, &alloc, &f, &error))
		fail_msg("%s", error.text);
	folder_free(&f);
	return m;
}

/* "mistral" has an output matrix of its own, "llama" has none. */
static void test_tied(void **state)
{
	static const char yes[] = "\"tie_word_embeddings\": true,";
	static const char no[] = "\"tie_word_embeddings\": false,";
	static const struct {
		const char *name, *said;
		bool embedding, none;
	} cases[] = {
		{ "mistral", "", false, false }, { "mistral", no, false, false },
		{ "mistral", yes, true, false }, { "llama", "", true, false },
		{ "llama", yes, true, false },   { "llama", no, false, true },
	};
	(void)state;
	if (!reads_safetensors())
		skip();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kvi_model_file *m = open_with(cases[i].name, "{", cases[i].said);
		assert_int_equal(m->output.data == m->embedding.data, cases[i].embedding);
		assert_int_equal(m->output.data == NULL, cases[i].none);
		unload(&m);
	}
}

static void test_said(void **state)
{
	(void)state;
	if (!reads_safetensors())
		skip();
	struct kvi_model_file *m =
		open_with("gemma3", "\"text_config\": {",
	                  "\"bos_token_id\": 2, \"final_logit_softcapping\": 30.0,");
	assert_int_equal(m->first_token, 2);
	assert_true(m->logit_cap == 30);
	unload(&m);
	m = open_with("llama", "{", "\"bos_token_id\": 5,"); /* it has 5 words */
	assert_int_equal(m->first_token, -1);
	assert_true(m->logit_cap == 0);
	unload(&m);
}

static kvarc_ret head_of(const struct kvi_model_file *m, struct kvi_h128 digest[2])
{
	static const struct kvi_arithmetic w8a8 = { 0, 0, false };
	kvarc_error error = { .text = "" };
	struct kvi_engine *e;
	struct kvi_pool *pool;
	assert_int_equal(kvi_pool_open(&pool, &alloc, 1), KVARC_OK);
	if (kvi_engine_open(&e, &alloc, m, &w8a8, pool, &error))
		fail_msg("%s", error.text);
	kvarc_ret ret = kvi_engine_add_head(e, pool, &error);
	assert_int_equal(error.code, ret);
	digest[0] = kvi_engine_digest(e);
	digest[1] = kvi_engine_head_digest(e);
	kvi_engine_close(&e);
	kvi_pool_close(pool);
	return ret;
}

/* Engines of models without a head, or with a damaged one, are as they were; those with another
 * head are another model to the head alone. */
static void test_heads(void **state)
{
	static const float caps[] = { 0, 30, -1, INFINITY };
	static const kvarc_ret expected[] = { KVARC_OK, KVARC_OK, KVARC_DATA, KVARC_DATA };
	struct blob b = blob_load("../models/gpt2.gguf");
	struct kvi_model_file *m;
	struct kvi_h128 digest[4][2], other[2];
	(void)state;
	assert_int_equal(load_gguf(&m, &alloc, &b, NULL), KVARC_OK);
	for (int i = 0; i < 4; i++) {
		m->logit_cap = caps[i];
		assert_int_equal(head_of(m, digest[i]), expected[i]);
		assert_memory_equal(&digest[i][0], &digest[0][0], sizeof **digest);
	}
	assert_memory_not_equal(&digest[0][1], &digest[1][1], sizeof **digest);
	m->logit_cap = 0;
	m->output.rows--;
	assert_int_equal(head_of(m, other), KVARC_DATA);
	m->output.rows++;
	struct kvi_matrix *parts[] = { &m->output_norm_bias, &m->output_norm, &m->output };
	for (int i = 0; i < 3; i++) {
		parts[i]->data = NULL;
		assert_int_equal(head_of(m, other), i ? KVARC_OPTIONS : KVARC_DATA);
		assert_memory_equal(&other[0], &digest[0][0], sizeof *other);
	}
	unload(&m);
	blob_free(&b);
	assert_int_equal(alloc.used, 0);
}

/* Logits of one hidden state by an engine with a head over the layers of another. */
static struct kvi_h128 logits_over(const struct kvi_engine *base, struct kvi_pool *pool,
                                   struct kvi_h128 *logits)
{
	const struct kvi_model_file *m = kvi_engine_model(base);
	struct kvi_run_options o = { .alloc = &alloc, .pool = pool };
	struct kvi_engine *e;
	struct kvi_head *head;
	float h[256];
	assert_true(m->width <= 256);
	for (uint32_t i = 0; i < m->width; i++)
		h[i] = (float)(i % 7) - 3;
	assert_int_equal(kvi_engine_with_head(&e, base, pool, NULL), KVARC_OK);
	o.engine = e;
	assert_int_equal(kvi_head_open(&head, &o), KVARC_OK);
	struct kvi_logits z = kvi_head_logits(head, h, m->width, 1);
	*logits = kvi_h128(z.z, m->vocabulary * sizeof *z.z);
	struct kvi_h128 digest = kvi_engine_head_digest(e);
	kvi_head_close(&head);
	kvi_engine_close(&e);
	return digest;
}

/* The head is the same whatever the arithmetic of the layers, also FP8, and leaves the engine that
 * it is made over as it was. */
static void test_over(void **state)
{
	static const struct kvi_arithmetic arithmetics[] = { { 0, 0, false },
		                                             { KVI_WIDE_ALL, KVI_WIDE_ALL, false },
		                                             { 0, 0, true } };
	struct kvi_model_file *m;
	struct kvi_pool *pool;
	struct kvi_h128 first[2], next[2], alone[2];
	(void)state;
	if (!reads_safetensors())
		skip();
	m = open_with("llama", "", "");
	assert_int_equal(head_of(m, alone), KVARC_OK);
	assert_int_equal(kvi_pool_open(&pool, &alloc, 1), KVARC_OK);
	for (int i = 0; i < 3; i++) {
		struct kvi_engine *e;
		assert_int_equal(kvi_engine_open(&e, &alloc, m, &arithmetics[i], pool, NULL),
		                 KVARC_OK);
		next[0] = logits_over(e, pool, &next[1]);
		assert_true(kvi_h128_equal(next[0], alone[1]));
		assert_true(i == 0 || kvi_h128_equal(next[1], first[1]));
		assert_true(kvi_h128_equal(kvi_engine_digest(e), alone[0]));
		memcpy(first, next, sizeof first);
		kvi_engine_close(&e);
	}
	kvi_pool_close(pool);
	unload(&m);
	assert_int_equal(alloc.used, 0);
}

enum { LANES = 3, STEPS = 6, CHANNELS_MAX = 64 };

/* Hidden states of sequences, side by side or each on its own. */
static void go_lanes(const struct kvi_engine *e, struct kvi_pool *pool, size_t first, size_t lanes,
                     bool alone, size_t width, float h[LANES][STEPS][CHANNELS_MAX])
{
	const struct kvi_model_file *m = kvi_engine_model(e);
	const struct kvi_run_options o = { .engine = e,
		                           .alloc = &alloc,
		                           .pool = pool,
		                           .whole = true,
		                           .lanes = alone ? 0 : lanes };
	size_t kv = (size_t)m->kv_heads * m->head_channels;
	float k[LANES * CHANNELS_MAX], v[LANES * CHANNELS_MAX];
	struct kvi_run *run;
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	for (size_t at = 0; at < STEPS; at++) {
		int32_t ids[LANES], positions[LANES];
		for (size_t i = 0; i < lanes; i++) {
			ids[i] = (int32_t)((at * (first + i + 2)) % m->vocabulary);
			positions[i] = (int32_t)at;
		}
		assert_int_equal(kvi_run_segment(run, ids, positions, lanes), KVARC_OK);
		for (uint32_t l = 0; l < m->n_layers; l++) {
			struct kvi_predicted x = kvi_run_predict(run);
			for (size_t i = 0; i < lanes; i++) {
				memcpy(k + i * kv, x.k + i * x.stride, kv * sizeof *k);
				memcpy(v + i * kv, x.v + i * x.stride, kv * sizeof *v);
			}
			kvi_run_rotate(run, k, kv);
			assert_int_equal(kvi_run_advance(run, k, v, kv, false), KVARC_OK);
		}
		const struct kvi_hidden x = kvi_run_hidden(run);
		for (size_t i = 0; i < lanes; i++)
			memcpy(h[first + i][at], x.h + i * x.width, width * sizeof *x.h);
	}
	kvi_run_close(&run);
}

static void test_lanes(void **state)
{
	static const struct kvi_arithmetic w8a8 = { 0, 0, false };
	static float h[2][LANES][STEPS][CHANNELS_MAX];
	struct blob b = blob_load("../models/gemma3.gguf"); /* it has windows */
	struct kvi_model_file *m;
	struct kvi_engine *e;
	struct kvi_pool *pool;
	(void)state;
	assert_int_equal(load_gguf(&m, &alloc, &b, NULL), KVARC_OK);
	assert_true(m->width <= CHANNELS_MAX && m->kv_heads * m->head_channels <= CHANNELS_MAX);
	assert_int_equal(kvi_pool_open(&pool, &alloc, 2), KVARC_OK);
	assert_int_equal(kvi_engine_open(&e, &alloc, m, &w8a8, pool, NULL), KVARC_OK);
	go_lanes(e, pool, 0, LANES, false, m->width, h[0]);
	for (size_t i = 0; i < LANES; i++)
		go_lanes(e, pool, i, 1, true, m->width, h[1]);
	assert_memory_equal(h[0], h[1], sizeof *h);
	kvi_engine_close(&e);
	kvi_pool_close(pool);
	unload(&m);
	blob_free(&b);
	assert_int_equal(alloc.used, 0);
}

/* As often as a distribution says, and at both ends. */
static void test_pick(void **state)
{
	enum { WORDS = 7, PICKS = 200000 };
	static const float z[WORDS] = { -3, 1, -20, 2, 0.5f, -14, 2 };
	size_t counts[WORDS] = { 0 };
	double sum = 0;
	(void)state;
	for (size_t i = 0; i < WORDS; i++)
		sum += exp((double)z[i]);
	for (int i = 0; i < PICKS; i++)
		counts[kvi_head_pick(z, WORDS, (uint64_t)rnd() << 33 | (uint64_t)rnd() << 2)]++;
	for (size_t i = 0; i < WORDS; i++) {
		double p = exp((double)z[i]) / sum, n = (double)counts[i];
		assert_true(fabs(n - p * PICKS) < 5 * sqrt(p * PICKS) + 1);
	}
	assert_int_equal(counts[2], 0);
	assert_int_equal(kvi_head_pick(z, WORDS, 0), 0);
	assert_int_equal(kvi_head_pick(z, WORDS, UINT64_MAX), 6);
	assert_int_equal(kvi_head_pick(z + 2, 2, 0), 1); /* nothing weighs nothing */
	assert_int_equal(kvi_head_pick(z, 1, UINT64_MAX), 0);
	/* two words of the same weight meet in the middle */
	static const float same[2] = { 4, 4 };
	assert_int_equal(kvi_head_pick(same, 2, ((uint64_t)1 << 63) - 1), 0);
	assert_int_equal(kvi_head_pick(same, 2, (uint64_t)1 << 63), 1);
}

/* As the specification has it, for more words than one worker takes; nothing weighs nothing. */
static void test_weights(void **state)
{
	enum { WORDS = 5000 };
	static float z[WORDS];
	static uint32_t w[WORDS];
	struct kvi_pool *pool;
	(void)state;
	assert_int_equal(kvi_pool_open(&pool, &alloc, 3), KVARC_OK);
	for (size_t n = 1; n <= WORDS; n += n < 3 ? 1 : 1249) {
		uint64_t sum = 0;
		for (size_t i = 0; i < n; i++)
			z[i] = (float)((int)(rnd() % 40000) - 30000) / 1000;
		z[n / 2] = 12;
		uint64_t total = kvi_head_coder_weights(pool, z, n, w);
		for (size_t i = 0; i < n; i++) {
			double exact = 1 + exp((double)(z[i] - 12)) * 0x1p24;
			assert_true(fabs((double)w[i] - exact) < 1 + 1e-6 * exact);
			sum += w[i];
		}
		assert_true(sum == total);
		assert_int_equal(w[n / 2], (1 << 24) + 1);
	}
	/* logits that are not numbers: the first is the most as long as none is greater */
	static const float bad[][3] = { { NAN, 1, 2 },
		                        { 1, NAN, -20 },
		                        { INFINITY, 1, INFINITY },
		                        { -INFINITY, NAN, -INFINITY } };
	static const uint32_t expected[][3] = {
		{ 1, 1, 1 }, { (1 << 24) + 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }
	};
	for (size_t i = 0; i < 4; i++) {
		kvi_head_coder_weights(pool, bad[i], 3, w);
		assert_memory_equal(w, expected[i], sizeof expected[i]);
	}
	kvi_pool_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_tied, reset),
		cmocka_unit_test_setup(test_said, reset),
		cmocka_unit_test_setup(test_heads, reset),
		cmocka_unit_test_setup(test_over, reset),
		cmocka_unit_test_setup(test_lanes, reset),
		cmocka_unit_test_setup(test_pick, reset),
		cmocka_unit_test_setup(test_weights, reset),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
