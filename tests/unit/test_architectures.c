/* SPDX-License-Identifier: BSD-3-Clause */
/* test_architectures.c - the exact engine against the caches that transformers made of the same
 * models (tests/data/models/make_caches.py), from both kinds of file */
#include "config.h"

#include "made_caches.h"
#include "models_util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "exact/head.h"
#include "util/bytes.h"

static const struct kvi_arithmetic w8a8 = { 0, 0, false }, w15a15 = { 0x7f, 0x7f, false };

/* Most of the relative error of keys or values of a layer, or of the logits: about three times
 * what it is. */
static const struct expected_model {
	const char *name;
	bool gguf;
	double open, closed, w8a8;
} models[] = {
	{ "llama", true, 4e-4, 4e-4, .04 },  { "mistral", false, 4e-4, 4e-4, .05 },
	{ "qwen2", true, 4e-4, 4e-4, .04 },  { "qwen2-windows", false, 4e-4, 4e-4, .05 },
	{ "qwen3", true, 5e-4, 5e-4, .06 },  { "gemma3", true, 2.5e-4, 2.5e-4, .03 },
	{ "gpt2", true, 3e-4, 2.5e-4, .03 },
};
enum { MODELS = sizeof models / sizeof *models };

static struct kvi_alloc alloc;
static struct kvi_model_file *open_model(const char *name, bool gguf)
{
	struct kvi_model_file *m;
	kvarc_error error = { .text = "" };
	struct blob file = made_entry(name, gguf ? "model.gguf" : "model.safetensors");
	const struct model_folder folder = { made_entry(name, "config.json"), 1, { file } };
	kvarc_ret ret = gguf ? load_gguf(&m, &alloc, &file, &error)
	                     : load_folder(&m, &alloc, &folder, &error);
	if (ret)
		fail_msg("%s: %s", name, error.text);
	assert_int_equal(m->n_layers, LAYERS);
	return m;
}

/* RoPE rotates channels i and i + rotary / 2 together; in slots they are neighbours. */
static void to_slots(const struct kvi_model_file *m, size_t layer, float *x)
{
	const struct kvi_model_rope *rope = &m->ropes[m->layers[layer].rope];
	uint32_t turning = m->n_ropes ? rope->rotary : 0;
	float head[ROW_MAX];
	for (size_t h = 0; h < m->kv_heads; h++, x += m->head_channels) {
		memcpy(head, x, m->head_channels * sizeof *x);
		for (uint32_t i = 0; i < turning; i++)
			x[i] = head[i / 2 + (i % 2 ? turning / 2 : 0)];
	}
}

struct way {
	struct kvi_arithmetic arithmetic;
	size_t cut;
	unsigned threads;
	bool closed;
};

struct result {
	double square[LAYERS + 1][2], all[LAYERS + 1][2]; /* of errors, of true numbers; the
	                                                   * last ones of logits */
	struct kvi_h128 digest, head;                     /* of the engine */
	float z[TOKENS_MAX][WORDS];
	float k[LAYERS][TOKENS_MAX][ROW_MAX], v[LAYERS][TOKENS_MAX][ROW_MAX];
};

/* Most of the relative root mean square errors. */
static double worst(const struct result *r)
{
	double most = 0;
	for (int i = 0; i < 2 * LAYERS + 1; i++) {
		double e = sqrt(r->square[i / 2][i % 2] / r->all[i / 2][i % 2]);
		most = e > most || isnan(e) ? e : most;
	}
	return most;
}

static void compare(struct result *r, size_t layer, int value, const float *x, const float *y,
                    size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double d = (double)x[i] - (double)y[i];
		r->square[layer][value] += d * d;
		r->all[layer][value] += (double)y[i] * (double)y[i];
	}
}

static void go_layer(struct kvi_run *run, const struct kvi_model_file *m,
                     const struct made_cache *c, const struct way *w, struct result *r,
                     size_t layer, size_t at, size_t n)
{
	static float k[256 * ROW_MAX], v[256 * ROW_MAX], truth[2][ROW_MAX];
	struct kvi_predicted p = kvi_run_predict(run);
	for (size_t t = 0; t < n; t++) {
		memcpy(k + t * ROW_MAX, p.k + t * p.stride, c->row * sizeof *k);
		memcpy(v + t * ROW_MAX, p.v + t * p.stride, c->row * sizeof *v);
	}
	kvi_run_rotate(run, k, ROW_MAX);
	for (size_t t = 0; t < n; t++) {
		float *x = k + t * ROW_MAX, *y = v + t * ROW_MAX;
		memcpy(r->k[layer][at + t], x, c->row * sizeof *x);
		memcpy(r->v[layer][at + t], y, c->row * sizeof *y);
		if (at + t < c->first)
			continue;
		made_row(c, layer, 0, at + t, truth[0]);
		made_row(c, layer, 1, at + t, truth[1]);
		to_slots(m, layer, truth[0]);
		compare(r, layer, 0, x, truth[0], c->row);
		compare(r, layer, 1, y, truth[1], c->row);
		if (w->closed) {
			memcpy(x, truth[0], c->row * sizeof *x);
			memcpy(y, truth[1], c->row * sizeof *y);
		}
	}
	assert_int_equal(kvi_run_advance(run, k, v, ROW_MAX, false), KVARC_OK);
}

/* After the last layer. */
static void go_head(struct kvi_run *run, struct kvi_head *head, const struct made_cache *c,
                    struct result *r, size_t at, size_t n)
{
	const struct kvi_hidden h = kvi_run_hidden(run);
	float truth[WORDS];
	for (size_t t = 0; t < n; t += KVI_HEAD_TOKENS) {
		size_t some = n - t < KVI_HEAD_TOKENS ? n - t : KVI_HEAD_TOKENS;
		struct kvi_logits z = kvi_head_logits(head, h.h + t * h.width, h.width, some);
		for (size_t i = 0; i < some; i++)
			memcpy(r->z[at + t + i], z.z + i * z.stride, sizeof r->z[0]);
	}
	for (size_t t = at; t < at + n; t++) {
		if (t < c->first)
			continue;
		made_load_row(made_numbers(c, LAYERS, 0), t - c->first, WORDS, truth);
		compare(r, LAYERS, 0, r->z[t], truth, WORDS);
	}
}

static void go(const struct kvi_model_file *m, const struct made_cache *c, const struct way *w,
               struct result *r)
{
	struct kvi_pool *pool;
	struct kvi_engine *e;
	struct kvi_run *run;
	struct kvi_head *head;
	kvarc_error error = { .text = "" };
	memset(r, 0, sizeof *r);
	assert_int_equal(m->vocabulary, WORDS);
	assert_int_equal(c->row, m->kv_heads * m->head_channels);
	assert_int_equal(kvi_pool_open(&pool, &alloc, w->threads), KVARC_OK);
	if (kvi_engine_open(&e, &alloc, m, &w->arithmetic, pool, &error))
		fail_msg("%s", error.text);
	const struct kvi_run_options o = {
		.engine = e, .alloc = &alloc, .pool = pool, .whole = true
	};
	if (kvi_engine_add_head(e, pool, &error))
		fail_msg("%s", error.text);
	r->digest = kvi_engine_digest(e);
	r->head = kvi_engine_head_digest(e);
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	assert_int_equal(kvi_head_open(&head, &o), KVARC_OK);
	for (size_t at = 0; at < c->tokens; at += w->cut) {
		size_t n = c->tokens - at < w->cut ? c->tokens - at : w->cut;
		assert_int_equal(kvi_run_segment(run, c->ids + at, c->positions + at, n), KVARC_OK);
		for (size_t l = 0; l < LAYERS; l++)
			go_layer(run, m, c, w, r, l, at, n);
		go_head(run, head, c, r, at, n);
	}
	kvi_head_close(&head);
	kvi_run_close(&run);
	kvi_engine_close(&e);
	kvi_pool_close(pool);
}

/* From both kinds of file, as far as this build reads them. */
static void each_file(const struct expected_model *x,
                      void (*fn)(const struct expected_model *x, const struct kvi_model_file *m,
                                 const struct made_cache *c))
{
	const struct made_cache c = made_cache(x->name);
	for (int gguf = !reads_safetensors(); gguf <= x->gguf; gguf++) {
		struct kvi_model_file *m = open_model(x->name, gguf);
		fn(x, m, &c);
		unload(&m);
	}
	assert_int_equal(alloc.used, 0);
}

static void check_open(const struct expected_model *x, const struct kvi_model_file *m,
                       const struct made_cache *c)
{
	static const size_t cuts[] = { 256, 40, 7, 1 };
	static struct result r, first;
	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		const struct way w = { w15a15, cuts[i], 1 + i % 2, false };
		go(m, c, &w, i ? &r : &first);
		if (i)
			assert_memory_equal(&r, &first, sizeof r);
	}
	double e = worst(&first);
	print_message("%s: open loop, W15A15 %.1e", x->name, e);
	assert_true(e < x->open);
	const struct way coarse = { w8a8, 40, 2, false };
	go(m, c, &coarse, &r);
	e = worst(&r);
	print_message(", W8A8 %.1e\n", e);
	assert_true(e < x->w8a8);
}

static void test_open_loop(void **state)
{
	(void)state;
	for (size_t i = 0; i < MODELS; i++)
		each_file(&models[i], check_open);
}

static void check_closed(const struct expected_model *x, const struct kvi_model_file *m,
                         const struct made_cache *c)
{
	static const size_t cuts[] = { 256, 7 };
	static struct result r;
	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		const struct way w = { w15a15, cuts[i], 2, true };
		go(m, c, &w, &r);
		double e = worst(&r);
		print_message("%s: closed loop %.1e\n", x->name, e);
		assert_true(e < x->closed);
	}
}

static void test_closed_loop(void **state)
{
	(void)state;
	for (size_t i = 0; i < MODELS; i++)
		each_file(&models[i], check_closed);
}

/* The same numbers have one name, and make the same predictions. (Factors of llama 3's rope are
 * rounded to fp32 in a GGUF, which at these positions changes no turn.) */
static void test_both_files(void **state)
{
	static struct result r[2];
	(void)state;
	if (!reads_safetensors())
		skip();
	for (size_t i = 0; i < MODELS; i++) {
		const struct made_cache c = made_cache(models[i].name);
		const struct way w = { w15a15, 40, 1, false };
		for (int gguf = 0; gguf < 2 && models[i].gguf; gguf++) {
			struct kvi_model_file *m = open_model(models[i].name, gguf);
			go(m, &c, &w, &r[gguf]);
			unload(&m);
		}
		if (models[i].gguf)
			assert_memory_equal(&r[0], &r[1], sizeof *r);
	}
}

/* Another library has switched subnormals off, and changed the rounding: biases, too, are added
 * as ever. */
static void test_callers_mode(void **state)
{
	(void)state;
#if defined(__SSE2__)
	static const char *const biased[] = { "llama", "qwen2", "gpt2" };
	static struct result r, other;
	for (size_t i = 0; i < sizeof biased / sizeof *biased; i++) {
		const struct made_cache c = made_cache(biased[i]);
		struct kvi_model_file *m = open_model(biased[i], true);
		const struct way w = { w8a8, 40, 2, false };
		go(m, &c, &w, &r);
		unsigned old = _mm_getcsr();
		_mm_setcsr(0x1f80 | 0x8040 | 0x6000);
		go(m, &c, &w, &other);
		_mm_setcsr(old);
		assert_memory_equal(r.k, other.k, sizeof r.k);
		assert_memory_equal(r.v, other.v, sizeof r.v);
		unload(&m);
	}
#endif
}

int main(void)
{
	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_loop),
		cmocka_unit_test(test_closed_loop),
		cmocka_unit_test(test_both_files),
		cmocka_unit_test(test_callers_mode),
	};
	return cmocka_run_group_tests(tests, made_load, made_free);
}
