/* SPDX-License-Identifier: BSD-3-Clause */
/* test_eval.c - evaluations: caches of all shapes behind the same text, through archives, and what
 * shows that an evaluation is not valid */
#include <math.h>
#include <stdio.h>

#include "eval/eval_state.h"
#include "exact/head.h"
#include "exact/round.h"
#include "numeric/formats.h"
#include "small_model.h"

enum { PREFIX = 300, CONTINUED = 40, ALL = PREFIX + CONTINUED };

static int32_t ids[ALL], positions[ALL];

static void make_ids(int words)
{
	uint64_t seed = 5;
	for (int i = 0; i < ALL; i++) {
		ids[i] = (int32_t)(rand_next(&seed) % (unsigned)words);
		positions[i] = i;
	}
}

/* ---- caches in memory ---- */

/* Of the small model: bf16, channels in halves; heads one behind the other, or side by side. */
struct small {
	kvarc_predictor *p;
	struct kvi_alloc alloc;
	struct kvi_pool *pool;
	struct kvi_model_geometry g;
	struct kvi_teacher_forced *f;
	kvarc_view views[2 * LAYERS];
	uint16_t data[2 * LAYERS][PREFIX * KV];
};

static void lay_out(struct small *s, bool heads_apart)
{
	for (size_t i = 0; i < 2 * LAYERS; i++)
		s->views[i] = (kvarc_view){ .data = s->data[i],
			                    .token_stride = heads_apart ? 2 * CHANNELS : 2 * KV,
			                    .block_stride = heads_apart ? 2 * CHANNELS * PREFIX : 0,
			                    .block_elems = heads_apart ? CHANNELS : KV,
			                    .elem_stride = 2 };
}

static void open_small(struct small *s, uint8_t pairing, bool heads_apart, unsigned threads,
                       uint32_t isa)
{
	make_ids(WORDS);
	memset(s, 0, sizeof *s);
	kvi_alloc_init(&s->alloc, NULL, 0);
	assert_int_equal(kvarc_predictor_open_model(&s->p, folder, NULL), KVARC_OK);
	assert_int_equal(kvi_pool_open(&s->pool, &s->alloc, threads), KVARC_OK);
	assert_int_equal(kvi_model_geometry_make(&s->g, &s->alloc, kvi_predictor_file(s->p),
	                                         KVARC_BF16, pairing),
	                 KVARC_OK);
	lay_out(s, heads_apart);
	const struct kvi_teacher_forced_options o = { .predictor = s->p,
		                                      .geometry = &s->g.geometry,
		                                      .arithmetic = kvi_engine_level(7).arithmetic,
		                                      .alloc = &s->alloc,
		                                      .pool = s->pool,
		                                      .isa_mask = isa };
	assert_int_equal(kvi_teacher_forced_open(&s->f, &o, NULL), KVARC_OK);
}

static void close_small(struct small *s)
{
	kvi_teacher_forced_close(&s->f);
	kvi_model_geometry_free(&s->g, &s->alloc);
	kvi_pool_close(s->pool);
	kvarc_predictor_close(&s->p);
	assert_int_equal(s->alloc.used, 0);
}

static const struct kvi_teacher_forced_text before = { ids, positions, PREFIX };
static const struct kvi_teacher_forced_text after = { ids + PREFIX, positions + PREFIX, CONTINUED };

static void prefill(struct small *s)
{
	const struct kvi_teacher_forced_cache c = { s->views, PREFIX };
	assert_int_equal(kvi_teacher_forced_prefill(s->f, &before, s->views), KVARC_OK);
	assert_int_equal(kvi_teacher_forced_exact(s->f, &c, &after), KVARC_OK);
}

static void compare(struct small *s, uint64_t n, struct kvi_divergence *d)
{
	const struct kvi_teacher_forced_cache c = { s->views, n };
	assert_int_equal(kvi_teacher_forced_compare(s->f, &c, d), KVARC_OK);
}

static double mean(const struct kvi_divergence *d)
{
	double sum = 0;
	for (int i = 0; i < CONTINUED; i++) {
		assert_true(d[i].kl >= 0);
		sum += d[i].kl / CONTINUED;
	}
	return sum;
}

/* The low bits of all elements are lost. */
static void cut_bits(struct small *s, unsigned bits)
{
	for (size_t i = 0; i < 2 * LAYERS; i++)
		for (size_t k = 0; k < PREFIX * KV; k++)
			s->data[i][k] &= (uint16_t)(0xffffu << bits);
}

/* The less there is left of a cache, the more is lost; whatever its layout, threads and kernels, to
 * the last bit. */
static void test_caches(void **state)
{
	static const struct {
		uint8_t pairing;
		bool heads_apart;
		unsigned threads;
		uint32_t isa;
	} ways[] = {
		{ KVARC_ROPE_HALF, false, 1, 0 },
		{ KVARC_ROPE_HALF, true, 3, 0 },
		{ KVARC_ROPE_INTERLEAVED, false, 1, KVARC_ISA_SCALAR },
		{ KVARC_ROPE_INTERLEAVED, true, 2, 0 },
	};
	static struct kvi_divergence d[6][CONTINUED], first[6][CONTINUED];
	static struct small s;
	(void)state;
	if (!reads_folders())
		skip();
	for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
		open_small(&s, ways[w].pairing, ways[w].heads_apart, ways[w].threads, ways[w].isa);
		prefill(&s);
		compare(&s, PREFIX, d[0]);
		compare(&s, PREFIX - 1, d[1]); /* the last one is dropped */
		compare(&s, 0, d[2]);
		for (unsigned i = 0; i < 3; i++) {
			cut_bits(&s, 3 + 2 * i);
			compare(&s, PREFIX, d[3 + i]);
		}
		assert_true(mean(d[0]) == 0);
		for (int i = 0; i < CONTINUED; i++)
			assert_int_equal(d[0][i].best[0], d[0][i].best[1]);
		assert_true(mean(d[1]) > 0 && mean(d[2]) > mean(d[1]));
		assert_true(mean(d[3]) > 0 && mean(d[4]) > 2 * mean(d[3]) &&
		            mean(d[5]) > 2 * mean(d[4]));
		if (w == 0)
			memcpy(first, d, sizeof d);
		assert_memory_equal(first, d, sizeof d);
		close_small(&s);
	}
}

/* What the model says without any of this: one run, and the keys and values that it stores. */
static void say(const struct small *s, int32_t *best)
{
	struct kvi_run_options o = { .alloc = &s->alloc, .pool = s->pool, .whole = true };
	const struct kvi_arithmetic a = kvi_engine_level(7).arithmetic;
	static float k[KV], v[KV];
	struct kvi_run *run;
	struct kvi_head *head;
	assert_int_equal(kvi_predictor_head(s->p, &a, 0, &o.engine, NULL), KVARC_OK);
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	assert_int_equal(kvi_head_open(&head, &o), KVARC_OK);
	for (int t = 0; t < ALL; t++) {
		assert_int_equal(kvi_run_segment(run, ids + t, positions + t, 1), KVARC_OK);
		for (int l = 0; l < LAYERS; l++) {
			struct kvi_predicted p = kvi_run_predict(run);
			memcpy(k, p.k, sizeof k);
			memcpy(v, p.v, sizeof v);
			kvi_run_rotate(run, k, KV);
			kvi_round_floats(k, KV, &kvi_float_format(KVARC_BF16)->grid);
			kvi_round_floats(v, KV, &kvi_float_format(KVARC_BF16)->grid);
			assert_int_equal(kvi_run_advance(run, k, v, KV, false), KVARC_OK);
		}
		struct kvi_logits z = kvi_head_logits(head, kvi_run_hidden(run).h, WIDTH, 1);
		if (t >= PREFIX)
			best[t - PREFIX] = kvi_divergence(z.z, z.z, WORDS, -1).best[0];
	}
	kvi_head_close(&head);
	kvi_run_close(&run);
}

static void test_alone(void **state)
{
	static struct kvi_divergence d[CONTINUED];
	static struct small s;
	int32_t best[CONTINUED];
	(void)state;
	if (!reads_folders())
		skip();
	open_small(&s, KVARC_ROPE_HALF, false, 1, 0);
	prefill(&s);
	compare(&s, PREFIX, d);
	say(&s, best);
	for (int i = 0; i < CONTINUED; i++)
		assert_int_equal(d[i].best[0], best[i]);
	close_small(&s);
}

/* Caches that are not the model's. */
static void test_others(void **state)
{
	static struct small s;
	struct kvi_teacher_forced *f;
	kvarc_error error;
	(void)state;
	if (!reads_folders())
		skip();
	open_small(&s, KVARC_ROPE_HALF, false, 1, 0);
	kvarc_geometry *g = &s.g.geometry;
	kvarc_tensor *t = (kvarc_tensor *)(uintptr_t)g->tensors;
	const struct kvi_teacher_forced_options o = {
		.predictor = s.p, .geometry = g, .alloc = &s.alloc, .pool = s.pool
	};
	for (int i = 0; i < 6; i++) {
		kvarc_tensor was = t[1];
		if (i == 0)
			t[1].dtype = KVARC_I8;
		else if (i == 1)
			t[1].layer = 7;
		else if (i == 2)
			t[1].flags = KVARC_TENSOR_HADAMARD;
		else if (i == 3)
			t[1].heads = 1;
		else if (i == 4)
			g->n_tensors--;
		else
			s.g.ropes[0].rotary -= 2;
		error.text[0] = '\0';
		assert_int_equal(kvi_teacher_forced_open(&f, &o, &error), KVARC_PREDICTOR);
		assert_null(f);
		assert_string_not_equal(error.text, "");
		t[1] = was;
		g->n_tensors = 2 * LAYERS;
	}
	s.g.ropes[0].rotary += 2;
	close_small(&s);
}

/* ---- through archives ---- */

static kvarc_predictor *open_data(const char *name)
{
	const char *dir = getenv("srcdir"); /* set by `make check' */
	kvarc_predictor *p;
	char path[1024];
	snprintf(path, sizeof path, "%s/tests/data/models/%s", dir ? dir : ".", name);
	assert_int_equal(kvarc_predictor_open_model(&p, path, NULL), KVARC_OK);
	make_ids(5);
	return p;
}

static kvarc_eval_options options_of(const kvarc_predictor *p, kvarc_error *error)
{
	kvarc_eval_options o = KVARC_EVAL_OPTIONS_INIT;
	o.common.error = error;
	o.predictor = p;
	o.prefix = PREFIX;
	o.continuation = CONTINUED;
	return o;
}

/* Lossless tiers lose nothing, caches of zeros much, in all dtypes and arithmetics. */
static void test_archives(void **state)
{
	static const unsigned dtypes[] = { KVARC_BF16, KVARC_F16, KVARC_F32 };
	kvarc_writer_options tiers[2] = { KVARC_WRITER_OPTIONS_INIT, KVARC_WRITER_OPTIONS_INIT };
	kvarc_eval_result results[2], checks[KVARC_EVAL_CHECKS];
	double kl[CONTINUED];
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_error error;
	(void)state;
	tiers[1].level = KVARC_LEVEL(0);
	for (size_t i = 0; i < 3; i++) {
		kvarc_eval_options o = options_of(p, &error);
		kvarc_eval *e;
		o.dtype = dtypes[i];
		o.arithmetic = i == 1 ? KVARC_ARITHMETIC_W8A8 : 0;
		o.common.threads = (unsigned)i;
		assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
		assert_int_equal(kvarc_eval_trusted(e, 0), KVARC_PROG);
		memset(results, 0, sizeof results);
		memset(checks, 0, sizeof checks);
		checks[KVARC_EVAL_ZEROED].token_kl = kl;
		for (int twice = 0; twice < 2; twice++)
			assert_int_equal(kvarc_eval_sequence(e, ids, 2, tiers, results, checks),
			                 KVARC_OK);
		for (int k = 0; k < 2; k++) {
			assert_true(results[k].mean_kl == 0 && results[k].max_kl == 0 &&
			            results[k].delta_nll == 0);
			assert_true(results[k].agreement == 1);
			assert_true(results[k].first_diverging == KVARC_UNKNOWN);
			assert_int_equal(results[k].kept_tokens, PREFIX);
			assert_true(kvarc_eval_passes(&results[k], 1e-9));
		}
		/* one layer of a head of 16 channels */
		assert_int_equal(results[0].elements, 2 * 16 * PREFIX);
		assert_int_equal(results[0].archive_bytes, checks[KVARC_EVAL_FLOOR].archive_bytes);
		assert_true(results[1].archive_bytes > 16 * PREFIX);
		const kvarc_eval_result *z = &checks[KVARC_EVAL_ZEROED];
		assert_true(z->mean_kl > 1 && z->max_kl == z->p99_kl);
		assert_true(z->first_diverging < CONTINUED && z->agreement < 1);
		double sum = 0;
		for (int t = 0; t < CONTINUED; t++)
			sum += kl[t] / CONTINUED;
		assert_true(fabs(sum - z->mean_kl) < 1e-12);
		assert_int_equal(kvarc_eval_trusted(e, 0.1), KVARC_OK);
		assert_int_equal(kvarc_eval_trusted(e, 10), KVARC_PREDICTOR);
		kvarc_eval_close(&e);
	}
	kvarc_predictor_close(&p);
}

/* ---- evaluations that are not valid ---- */

static kvarc_ret put_nothing(struct kvi_run *run, size_t layer, size_t at, const float *k,
                             const float *v, size_t stride, size_t n)
{
	(void)run, (void)layer, (void)at, (void)k, (void)v, (void)stride, (void)n;
	return KVARC_OK;
}

/* Not the first time: then the exact cache is put. */
static kvarc_ret put_else(struct kvi_run *run, size_t layer, size_t at, const float *k,
                          const float *v, size_t stride, size_t n)
{
	static int calls;
	return kvi_run_put(run, layer, at, k, calls++ < 2 ? v : k, stride, n);
}

static void test_worthless(void **state)
{
	static const struct {
		kvi_teacher_forced_put put;
		const char *says;
	} cases[] = {
		{ put_nothing, "does not read the cache" },
		{ put_else, "evaluation is broken" },
	};
	kvarc_eval_result checks[KVARC_EVAL_CHECKS] = { 0 };
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_error error;
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		kvarc_eval_options o = options_of(p, &error);
		kvarc_eval *e;
		assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
		assert_int_equal(kvi_eval_use_put(e, cases[i].put), KVARC_OK);
		for (int twice = 0; twice < 2; twice++)
			assert_int_equal(kvarc_eval_sequence(e, ids, 0, NULL, NULL, checks),
			                 KVARC_PREDICTOR);
		assert_non_null(strstr(error.text, cases[i].says));
		kvarc_eval_close(&e);
	}
	kvarc_predictor_close(&p);
}

/* Windows count tokens, not positions. */
static void test_windows(void **state)
{
	kvarc_predictor *p = open_data("gemma3.gguf");
	kvarc_error error;
	kvarc_eval_options o = options_of(p, &error);
	kvarc_eval_result checks[KVARC_EVAL_CHECKS] = { 0 };
	struct kvi_divergence d[CONTINUED];
	kvarc_eval *e;
	(void)state;
	assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
	assert_int_equal(kvarc_eval_sequence(e, ids, 0, NULL, NULL, checks), KVARC_OK);
	struct kvi_teacher_forced_cache c = { e->exact.views, PREFIX };
	assert_int_equal(kvi_teacher_forced_compare(e->runs, &c, d), KVARC_OK);
	c.n = PREFIX - 1;
	assert_int_equal(kvi_teacher_forced_compare(e->runs, &c, d), KVARC_OPTIONS);
	kvarc_eval_close(&e);
	kvarc_predictor_close(&p);
}

/* ---- wrong calls, and what fails ---- */

static void test_wrong(void **state)
{
	kvarc_eval_result checks[KVARC_EVAL_CHECKS] = { 0 };
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_error error;
	kvarc_eval_options o = options_of(p, &error);
	kvarc_eval *e;
	(void)state;
	assert_int_equal(kvarc_eval_open(NULL, &o), KVARC_PROG);
	assert_int_equal(kvarc_eval_open(&e, NULL), KVARC_PROG);
	for (int i = 0; i < 4; i++) {
		o = options_of(i == 0 ? NULL : p, &error);
		o.reserved[0] = i == 1;
		o.continuation = i == 2 ? 1 : CONTINUED;
		o.dtype = i == 3 ? KVARC_E4M3 : KVARC_BF16;
		assert_int_equal(kvarc_eval_open(&e, &o), KVARC_PROG);
		assert_null(e);
	}
	o = options_of(p, &error);
	o.prefix = INT32_MAX;
	assert_int_equal(kvarc_eval_open(&e, &o), KVARC_DATA);
	o = options_of(p, &error);
	assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
	assert_int_equal(kvarc_eval_sequence(e, NULL, 0, NULL, NULL, checks), KVARC_PROG);
	assert_int_equal(kvarc_eval_sequence(e, ids, 1, NULL, NULL, checks), KVARC_PROG);
	ids[PREFIX + 3] = 99;
	assert_int_equal(kvarc_eval_sequence(e, ids, 0, NULL, NULL, checks), KVARC_DATA);
	assert_non_null(strstr(error.text, "token id"));
	kvarc_eval_close(&e);
	kvarc_eval_close(&e);
	kvarc_eval_close(NULL);
	kvarc_predictor_close(&p);
}

static int stop(void *opaque, uint64_t done, uint64_t total)
{
	uint64_t *most = opaque;
	assert_true(done <= total);
	*most = done > *most ? done : *most;
	return done >= PREFIX + 2 * CONTINUED;
}

static void test_stopped(void **state)
{
	kvarc_eval_result checks[KVARC_EVAL_CHECKS] = { 0 };
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_error error;
	kvarc_eval_options o = options_of(p, &error);
	uint64_t most = 0;
	kvarc_eval *e;
	(void)state;
	o.common.progress = stop;
	o.common.progress_opaque = &most;
	assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
	assert_int_equal(kvarc_eval_sequence(e, ids, 0, NULL, NULL, checks), KVARC_IO);
	assert_int_equal(most, PREFIX + 2 * CONTINUED);
	kvarc_eval_close(&e);
	kvarc_predictor_close(&p);
}

static kvarc_ret whole(const kvarc_eval_options *o)
{
	const kvarc_writer_options tier = KVARC_WRITER_OPTIONS_INIT;
	kvarc_eval_result r = { 0 }, checks[KVARC_EVAL_CHECKS] = { 0 };
	kvarc_eval *e;
	kvarc_ret ret = kvarc_eval_open(&e, o);
	if (ret == KVARC_OK)
		ret = kvarc_eval_sequence(e, ids, 1, &tier, &r, checks);
	kvarc_eval_close(&e);
	return ret;
}

static void test_memory(void **state)
{
	struct counting c = { .fail_at = -1, .sticky = true };
	const kvarc_allocator allocator = counting_allocator(&c);
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_error error;
	kvarc_eval_options o = options_of(p, &error);
	long calls, step;
	(void)state;
	o.prefix = 40;
	o.continuation = 3;
	o.common.allocator = &allocator;
	assert_int_equal(whole(&o), KVARC_OK);
	calls = c.calls;
	step = calls / 150 + 1;
	for (long i = 0; i < calls; i += i < 60 ? 1 : step) {
		c.calls = 0;
		c.fail_at = i;
		kvarc_ret ret = whole(&o);
		if (ret != KVARC_MEM)
			fail_msg("%ld of %ld: %d %s", i, calls, ret, error.text);
		assert_int_equal(c.held, 0);
	}
	c.fail_at = -1;
	o.common.memlimit = 20000;
	assert_int_equal(whole(&o), KVARC_MEMLIMIT);
	kvarc_predictor_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_caches),    cmocka_unit_test(test_alone),
		cmocka_unit_test(test_others),    cmocka_unit_test(test_archives),
		cmocka_unit_test(test_worthless), cmocka_unit_test(test_windows),
		cmocka_unit_test(test_wrong),     cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_memory),
	};
	if (make_folder())
		return 1;
	int ret = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return ret;
}
