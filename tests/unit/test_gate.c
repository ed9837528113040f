/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gate.c - the gate without a model: errors of attention outputs, and rates of layers by
 * them */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/gate_pack.h"
#include "import_files.h"

enum { LAYERS = 6, HEADS = 2, CHANNELS = 16, WIDTH = HEADS * CHANNELS, TOKENS = 150 };

static double uniform(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(*seed >> 33) / 2147483648.0 - 0.5;
}

/* ---- the measure ---- */

/* Layer 0: keys and values; 1: keys; 2: other heads; 3: integers; 4: nothing; 5: as 0. */
static const kvarc_tensor tensors[] = {
	{ .layer = 0, .kind = KVARC_KEY, .dtype = KVARC_F32, .heads = 2, .channels = 16 },
	{ .layer = 0, .kind = KVARC_VALUE, .dtype = KVARC_F32, .heads = 2, .channels = 16 },
	{ .layer = 1, .kind = KVARC_KEY, .dtype = KVARC_F32, .heads = 2, .channels = 16 },
	{ .layer = 2, .kind = KVARC_KEY, .dtype = KVARC_F32, .heads = 2, .channels = 16 },
	{ .layer = 2, .kind = KVARC_VALUE, .dtype = KVARC_F32, .heads = 1, .channels = 16 },
	{ .layer = 3, .kind = KVARC_KEY, .dtype = KVARC_I8, .heads = 2, .channels = 16 },
	{ .layer = 3, .kind = KVARC_VALUE, .dtype = KVARC_I8, .heads = 2, .channels = 16 },
	{ .layer = 5, .kind = KVARC_VALUE, .dtype = KVARC_F32, .heads = 2, .channels = 8 },
	{ .layer = 5, .kind = KVARC_KEY, .dtype = KVARC_F32, .heads = 2, .channels = 16 },
};
static const kvarc_track track = { .label = "" };
static const kvarc_geometry geometry = { .n_tracks = 1,
	                                 .tracks = &track,
	                                 .tensors = tensors,
	                                 .n_tensors = sizeof tensors / sizeof *tensors };

struct measured {
	kvarc_eval e;
	struct kvi_proxy *p;
	double error[LAYERS];
};

static float *numbers(struct kvi_eval_cache *c, size_t tensor)
{
	return (float *)(void *)c->views[tensor].data;
}

static void open_measured(struct measured *m, uint32_t tokens, unsigned threads)
{
	uint64_t seed = 3;
	memset(m, 0, sizeof *m);
	m->e.o.prefix = tokens;
	m->e.o.common.threads = threads;
	m->e.geometry = &geometry;
	kvi_alloc_init(&m->e.alloc, NULL, 0);
	assert_int_equal(kvi_eval_start_caches(&m->e), KVARC_OK);
	for (size_t i = 0; i < geometry.n_tensors; i++)
		if (tensors[i].dtype == KVARC_F32)
			for (size_t k = 0;
			     k < (size_t)tokens * tensors[i].heads * tensors[i].channels; k++)
				numbers(&m->e.exact, i)[k] = (float)uniform(&seed);
	memcpy(m->e.back.memory, m->e.exact.memory, m->e.exact.bytes);
	assert_int_equal(kvi_proxy_open(&m->p, &m->e, LAYERS), KVARC_OK);
}

static void close_measured(struct measured *m)
{
	kvi_proxy_close(&m->p);
	kvi_eval_stop(&m->e);
	assert_int_equal(m->e.alloc.used, 0);
}

static void test_layers(void **state)
{
	static const enum kvi_proxy_layer has[LAYERS] = {
		KVI_PROXY_ATTENTION, KVI_PROXY_OTHER,   KVI_PROXY_OTHER,
		KVI_PROXY_OTHER,     KVI_PROXY_NOTHING, KVI_PROXY_ATTENTION
	};
	struct measured m;
	(void)state;
	open_measured(&m, TOKENS, 1);
	kvi_proxy_measure(m.p, m.error);
	for (uint32_t l = 0; l < LAYERS; l++) {
		assert_int_equal(kvi_proxy_has(m.p, l), has[l]);
		assert_true(m.error[l] == 0);
	}
	close_measured(&m);
	open_measured(&m, 1, 1); /* nothing to look back at */
	kvi_proxy_measure(m.p, m.error);
	assert_int_equal(kvi_proxy_has(m.p, 0), KVI_PROXY_OTHER);
	assert_true(m.error[0] == 0);
	close_measured(&m);
}

/* Twice the noise is some twice the error, of keys as of values; of one head it counts as much as
 * of both, and for other layers not at all. */
static void test_noise(void **state)
{
	static const float sizes[] = { 0.01f, 0.02f, 0.04f };
	(void)state;
	for (size_t tensor = 0; tensor < 2; tensor++) {
		double before = 0;
		for (size_t s = 0; s < 3; s++) {
			struct measured m;
			uint64_t seed = 9;
			open_measured(&m, TOKENS, 2);
			float *x = numbers(&m.e.back, tensor);
			for (size_t t = 0; t < TOKENS; t++)
				for (size_t c = 0; c < CHANNELS; c++)
					x[t * WIDTH + c] += sizes[s] * (float)uniform(&seed);
			kvi_proxy_measure(m.p, m.error);
			assert_true(m.error[0] > 0.001 && m.error[0] < 0.3);
			assert_true(!s || (m.error[0] > 1.8 * before && m.error[0] < 2.2 * before));
			assert_true(m.error[5] == 0);
			before = m.error[0];
			close_measured(&m);
		}
	}
}

/* The last token has nobody to look back at it; any other has. */
static void test_reach(void **state)
{
	struct measured m;
	(void)state;
	open_measured(&m, TOKENS, 1);
	numbers(&m.e.back, 1)[(TOKENS - 1) * WIDTH] += 1;
	kvi_proxy_measure(m.p, m.error);
	assert_true(m.error[0] == 0);
	numbers(&m.e.back, 1)[(TOKENS - 2) * WIDTH] += 1;
	kvi_proxy_measure(m.p, m.error);
	assert_true(m.error[0] > 0);
	close_measured(&m);
}

/* Numbers for which there is no error to speak of. */
static void test_no_numbers(void **state)
{
	struct measured m;
	(void)state;
	open_measured(&m, TOKENS, 1);
	memset(numbers(&m.e.exact, 1), 0, sizeof(float) * TOKENS * WIDTH);
	memset(numbers(&m.e.back, 1), 0, sizeof(float) * TOKENS * WIDTH);
	kvi_proxy_measure(m.p, m.error);
	assert_true(m.error[0] == 0); /* zeros stay zeros */
	numbers(&m.e.back, 1)[7] = 1e-6f;
	kvi_proxy_measure(m.p, m.error);
	assert_true(isinf(m.error[0]));
	numbers(&m.e.back, 1)[7] = 0;
	numbers(&m.e.back, 8)[0] = NAN;
	kvi_proxy_measure(m.p, m.error);
	assert_true(m.error[0] == 0 && isinf(m.error[5]));
	/* Keys that are all the same, and very large ones. */
	memcpy(m.e.back.memory, m.e.exact.memory, m.e.exact.bytes);
	for (size_t k = 0; k < TOKENS * WIDTH; k++) {
		numbers(&m.e.exact, 8)[k] = numbers(&m.e.back, 8)[k] = 1;
		numbers(&m.e.exact, 0)[k] = numbers(&m.e.back, 0)[k] *= 3e38f;
	}
	kvi_proxy_measure(m.p, m.error);
	assert_true(m.error[0] == 0 && m.error[5] == 0);
	close_measured(&m);
}

/* ---- rates ---- */

/* A safetensors file: layer 0 is noise; values of layer 1 are all nearly the same, so that no bits
 * can be too few; 2 has an element that is no number; 3 keys alone. */
static struct blob make_file(void)
{
	enum { EACH = TOKENS * WIDTH * 4, ALL = 7 * EACH };
	static const char *const names[] = { "0.key", "0.value", "1.key", "1.value",
		                             "2.key", "2.value", "3.key" };
	char head[2048];
	size_t n = 8;
	uint64_t seed = 1;
	for (size_t i = 0; i < 7; i++)
		n += (size_t)snprintf(head + n, sizeof head - n,
		                      "%c\"layers.%s\":"
		                      "{\"dtype\":\"F32\",\"shape\":[%d,%d,%d],"
		                      "\"data_offsets\":[%zu,%zu]}",
		                      i ? ',' : '{', names[i], HEADS, TOKENS, CHANNELS, i * EACH,
		                      (i + 1) * EACH);
	head[n++] = '}';
	while (n % 8)
		head[n++] = ' ';
	memset(head, 0, 8);
	head[0] = (char)((n - 8) & 0xff);
	head[1] = (char)((n - 8) >> 8);
	struct blob b = { .p = malloc(n + ALL), .n = n + ALL, .cap = n + ALL, .fail_after = -1 };
	assert_non_null(b.p);
	memcpy(b.p, head, n);
	for (size_t i = 0; i < ALL / 4; i++) {
		float x = (float)uniform(&seed);
		if (i / (EACH / 4) == 3)
			x = 1 + 0.01f * x;
		if (i == 5 * EACH / 4 + 1000)
			x = NAN;
		memcpy(b.p + n + 4 * i, &x, 4);
	}
	return b;
}

static kvarc_gate_result run_gate(kvarc_gate **g, struct blob *file, const char *tier, double limit)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_gate_options go = KVARC_GATE_OPTIONS_INIT;
	kvarc_source source = blob_source(file);
	kvarc_gate_result r;
	kvarc_import *im;
	kvarc_lossy lossy;
	io.rope = "none";
	assert_int_equal(kvarc_import_open(&im, &source, NULL, &io), KVARC_OK);
	assert_int_equal(kvarc_lossy_parse(&lossy, tier, NULL), KVARC_OK);
	lossy.note = tier;
	wo.level = 1;
	wo.lossy = &lossy;
	go.writer = &wo;
	go.max_error = limit;
	assert_int_equal(kvarc_gate_import(g, im, &go), KVARC_OK);
	assert_int_equal(kvarc_gate_get_result(*g, &r), KVARC_OK);
	kvarc_import_close(&im);
	return r;
}

static void test_rates(void **state)
{
	static const double limits[] = { 0.3, 0.1, 0.06 };
	kvarc_gate *g;
	int before = 0;
	(void)state;
	if (!reads_safetensors())
		skip();
	struct blob file = make_file();
	for (size_t i = 0; i < 3; i++) {
		kvarc_gate_result r = run_gate(&g, &file, "had:1.5", limits[i]);
		const kvarc_lossy *l = kvarc_gate_lossy(g);
		assert_true(r.passed && r.worst_error <= limits[i]);
		assert_true(r.worst_error > limits[i] / 2); /* no bits are wasted */
		assert_int_equal(r.layers, 4);
		assert_int_equal(r.unchanged, 2);
		assert_true(r.raised == 1 && r.archives >= 2 && r.archives <= 12);
		assert_true(r.eval.archive_bytes > 0);
		assert_true(l && l->n_layers == 4);
		assert_int_equal(l->layer_rate[1], 0);
		assert_true(l->layer_rate[0] > before);
		assert_int_equal(l->layer_rate[2], KVARC_LOSSY_NOTHING);
		assert_int_equal(l->layer_rate[3], KVARC_LOSSY_NOTHING);
		assert_non_null(strstr(l->note, "had:1.5; gate: error of"));
		assert_non_null(strstr(l->note, "2 unchanged"));
		before = l->layer_rate[0];
		kvarc_gate_close(&g);
	}
	/* What the tier cannot do: nothing may change. */
	kvarc_gate_result r = run_gate(&g, &file, "had:1.5", 1e-9);
	assert_true(!r.passed && r.unchanged == 4);
	assert_null(kvarc_gate_lossy(g));
	kvarc_gate_close(&g);
	/* What is good enough stays; that layer 2 cannot is seen in the first archive. */
	r = run_gate(&g, &file, "had:6.5", 0.5);
	assert_true(r.passed && !r.raised && r.archives == 2);
	kvarc_gate_close(&g);
	blob_free(&file);
}

/* Whichever allocation fails, the gate says so and keeps nothing. */
static void test_memory(void **state)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_gate_options go = KVARC_GATE_OPTIONS_INIT;
	kvarc_ret ret = KVARC_MEM;
	struct failing f;
	kvarc_import *im;
	kvarc_lossy lossy;
	kvarc_gate *g;
	(void)state;
	if (!reads_safetensors())
		skip();
	struct blob file = make_file();
	kvarc_source source = blob_source(&file);
	assert_int_equal(kvarc_import_open(&im, &source, NULL, &io), KVARC_OK);
	assert_int_equal(kvarc_lossy_parse(&lossy, "had:4", NULL), KVARC_OK);
	wo.lossy = &lossy;
	go.writer = &wo;
	go.max_error = 0.5;
	go.common.allocator = &f.fn;
	long n = 0;
	for (; ret == KVARC_MEM; n++) {
		failing_init(&f, n);
		ret = kvarc_gate_import(&g, im, &go);
		assert_true(ret == KVARC_MEM || ret == KVARC_OK);
		assert_int_equal(g != NULL, ret == KVARC_OK);
		kvarc_gate_close(&g);
		assert_int_equal(f.held, 0);
	}
	assert_true(ret == KVARC_OK && n > 20);
	go.common.allocator = NULL;
	go.common.memlimit = 100000;
	assert_int_equal(kvarc_gate_import(&g, im, &go), KVARC_MEMLIMIT);
	kvarc_import_close(&im);
	blob_free(&file);
}

static void test_options(void **state)
{
	kvarc_lossy lossy = { .tier = KVARC_TIER_TSC, .rate = 64 };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	kvarc_gate *g;
	(void)state;
	if (!reads_safetensors())
		skip();
	struct blob file = make_file();
	kvarc_source source = blob_source(&file);
	assert_int_equal(kvarc_import_open(&im, &source, NULL, &io), KVARC_OK);
	wo.lossy = &lossy;
	const struct {
		kvarc_gate_options o;
		kvarc_ret ret;
	} wrong[] = {
		{ { .writer = &wo, .prefix = 9, .max_error = 0.1 }, KVARC_OPTIONS },
		{ { .writer = &wo, .prefix = 9, .max_error = 1 }, KVARC_PROG },
		{ { .writer = &wo, .prefix = 9, .max_error = NAN }, KVARC_PROG },
		{ { .writer = &wo, .prefix = 9, .max_error = -1 }, KVARC_PROG },
		{ { .writer = &wo, .max_error = 0.1, .reserved = { 1 } }, KVARC_PROG },
		{ { .prefix = 9, .max_error = 0.1 }, KVARC_PROG },
		{ { .writer = &wo, .prefix = 9, .max_error = 0.1, .max_kl = 1 }, KVARC_PROG },
		{ { .writer = &wo, .prefix = 9, .continuation = 9, .max_kl = 1 }, KVARC_PROG },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_int_equal(kvarc_gate_import(&g, im, &wrong[i].o), wrong[i].ret);
		assert_null(g);
	}
	kvarc_import_close(&im);
	blob_free(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),  cmocka_unit_test(test_noise),
		cmocka_unit_test(test_reach),   cmocka_unit_test(test_no_numbers),
		cmocka_unit_test(test_rates),   cmocka_unit_test(test_memory),
		cmocka_unit_test(test_options),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
