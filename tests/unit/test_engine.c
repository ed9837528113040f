/* SPDX-License-Identifier: BSD-3-Clause */
/* test_engine.c - the exact engine: the same bits for any cut, thread and instruction set;
 * close to the same model in doubles (spec/arithmetic.md) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exact/engine.h"
#include "util/bytes.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum {
	LAYERS = 3,
	WIDTH = 96,
	HEADS = 6,
	KV_HEADS = 2,
	CHANNELS = 16,
	FFN = 160,
	WORDS = 61,
	TOKENS = 530,
	KV = KV_HEADS * CHANNELS,
	Q = HEADS * CHANNELS
};

static struct kvi_alloc alloc;

static uint32_t seed;
static float noise(void)
{
	int sum = 0;
	for (int i = 0; i < 4; i++) {
		seed = seed * 1664525u + 1013904223u;
		sum += (int)(seed >> 24);
	}
	return (float)(sum - 510) * 0x1p-8f;
}

/* A model made up on the spot, in fp32. */
struct engine_model {
	struct kvi_model_file file;
	struct kvi_model_layer layers[LAYERS];
	uint64_t freq[CHANNELS / 2];
	float *memory;
	size_t used;
};

static struct kvi_matrix matrix(struct engine_model *m, size_t rows, size_t columns, float scale,
                                float plus)
{
	float *x = m->memory + m->used;
	m->used += rows * columns;
	for (size_t i = 0; i < rows * columns; i++)
		x[i] = noise() * scale + plus;
	return (struct kvi_matrix){
		.type = KVI_NUM_F32, .rows = rows, .columns = columns, .data = (const uint8_t *)x
	};
}

/* Gain of a product of n inputs, about 1.2 / sqrt(n). Nothing of the model comes from a
 * library's functions: digests hold everywhere. */
static float gain(size_t n)
{
	return n == WIDTH ? .125f : .09375f;
}

static void make_layer(struct engine_model *m, struct kvi_model_layer *l)
{
	l->input_norm = matrix(m, 1, WIDTH, .1f, 1);
	l->q = matrix(m, Q, WIDTH, gain(WIDTH), 0);
	l->k = matrix(m, KV, WIDTH, gain(WIDTH), 0);
	l->v = matrix(m, KV, WIDTH, gain(WIDTH), 0);
	l->o = matrix(m, WIDTH, Q, gain(Q), 0);
	l->ffn_norm = matrix(m, 1, WIDTH, .1f, 1);
	l->gate = matrix(m, FFN, WIDTH, gain(WIDTH), 0);
	l->up = matrix(m, FFN, WIDTH, gain(WIDTH), 0);
	l->down = matrix(m, WIDTH, FFN, gain(FFN), 0);
}

static void make_model(struct engine_model *m)
{
	memset(m, 0, sizeof *m);
	m->memory = calloc(1000000, sizeof(float));
	assert_non_null(m->memory);
	seed = 1;
	m->file = (struct kvi_model_file){
		.alloc = &alloc,
		.arch = "llama",
		.n_layers = LAYERS,
		.width = WIDTH,
		.heads = HEADS,
		.kv_heads = KV_HEADS,
		.head_channels = CHANNELS,
		.ffn = FFN,
		.vocabulary = WORDS,
		.norm_epsilon = 1e-5f,
		.attention_scale = .25f,
		.embedding_scale = 1,
		.activation = KVI_SILU,
		.n_ropes = 1,
		.layers = m->layers,
	};
	for (int i = 0; i < CHANNELS / 2; i++)
		m->freq[i] = 0x28be60db9391054aull >> (i + i / 4);
	m->file.ropes[0] = (struct kvi_model_rope){ CHANNELS, m->freq };
	m->file.embedding = matrix(m, WORDS, WIDTH, 1, 0);
	for (int i = 0; i < LAYERS; i++)
		make_layer(m, &m->layers[i]);
}

struct engine_tokens {
	int32_t ids[TOKENS], positions[TOKENS];
};

static void make_tokens(struct engine_tokens *t)
{
	seed = 7;
	for (int i = 0; i < TOKENS; i++) {
		seed = seed * 1664525u + 1013904223u;
		t->ids[i] = (int32_t)((seed >> 16) % WORDS);
		t->positions[i] = i;
	}
}

/* Predictions of all layers and tokens. */
struct engine_result {
	float k[LAYERS][TOKENS][KV], v[LAYERS][TOKENS][KV];
};

struct engine_way {
	struct kvi_arithmetic arithmetic;
	size_t cut;
	unsigned threads;
	uint32_t isa;
	bool closed;
};

/* What an engine of another kind would have stored, and how the hidden state is mended. */
static float disturbed(float x, size_t t, size_t c)
{
	return x + (float)((t * 7 + c * 3) % 11) * 0x1p-8f;
}

static void go_layer(struct kvi_run *run, const struct engine_way *w, struct engine_result *out,
                     size_t layer, size_t first, size_t n)
{
	static float k[256 * KV], v[256 * KV];
	struct kvi_predicted p = kvi_run_predict(run);
	for (size_t t = 0; t < n; t++)
		for (size_t c = 0; c < KV; c++) {
			float a = p.k[t * p.stride + c];
			float b = p.v[t * p.stride + c];
			out->k[layer][first + t][c] = a;
			out->v[layer][first + t][c] = b;
			k[t * KV + c] = w->closed ? disturbed(a, t + first, c) : a;
			v[t * KV + c] = w->closed ? disturbed(b, t + first, c) : b;
		}
	kvi_run_rotate(run, k, KV);
	if (w->closed) {
		struct kvi_hidden h = kvi_run_hidden(run);
		for (size_t t = 0; t < n; t++)
			for (size_t i = 0; i < WIDTH; i++)
				h.h[t * h.width + i] += h.root[t] * 0x1p-6f;
	}
	assert_int_equal(kvi_run_advance(run, k, v, KV, w->closed), KVARC_OK);
}

static void go(const struct engine_model *m, const struct engine_tokens *t,
               const struct engine_way *w, struct engine_result *out)
{
	struct kvi_pool *pool;
	struct kvi_engine *e;
	struct kvi_run *run;
	kvarc_error error;
	assert_int_equal(kvi_pool_open(&pool, &alloc, w->threads), KVARC_OK);
	assert_int_equal(kvi_engine_open(&e, &alloc, &m->file, &w->arithmetic, pool, &error),
	                 KVARC_OK);
	const struct kvi_run_options o = {
		.engine = e, .alloc = &alloc, .pool = pool, .isa_mask = w->isa
	};
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	for (size_t at = 0; at < TOKENS; at += w->cut) {
		size_t n = TOKENS - at < w->cut ? TOKENS - at : w->cut;
		assert_int_equal(kvi_run_segment(run, t->ids + at, t->positions + at, n), KVARC_OK);
		for (size_t l = 0; l < LAYERS; l++)
			go_layer(run, w, out, l, at, n);
	}
	kvi_run_close(&run);
	kvi_engine_close(&e);
	kvi_pool_close(pool);
}

/* The model in doubles, one token after the other. */
static void norm(double *y, const double *x, const struct kvi_matrix *g)
{
	const float *gains = (const float *)(const void *)g->data;
	double sum = 0;
	for (int i = 0; i < WIDTH; i++)
		sum += x[i] * x[i];
	for (int i = 0; i < WIDTH; i++)
		y[i] = x[i] / sqrt(sum / WIDTH + 1e-5) * (double)gains[i];
}

static void multiply(double *y, const struct kvi_matrix *m, const double *x)
{
	const float *w = (const float *)(const void *)m->data;
	for (size_t r = 0; r < m->rows; r++) {
		y[r] = 0;
		for (size_t c = 0; c < m->columns; c++)
			y[r] += (double)w[r * m->columns + c] * x[c];
	}
}

/* Rows of the file are half-split: channel i turns with i + rotary / 2. */
static void turn(const struct engine_model *m, double *x, size_t heads, int position)
{
	uint32_t half = m->file.ropes[0].rotary / 2;
	for (size_t h = 0; h < heads; h++, x += CHANNELS)
		for (uint32_t i = 0; i < half; i++) {
			double f = (double)m->freq[i] / pow(2, 64) * 6.283185307179586 * position;
			double a = x[i], b = x[i + half];
			x[i] = a * cos(f) - b * sin(f);
			x[i + half] = b * cos(f) + a * sin(f);
		}
}

struct doubles {
	double k[LAYERS][TOKENS][KV], v[LAYERS][TOKENS][KV];
	double plain[LAYERS][TOKENS][KV]; /* keys before RoPE */
};

static void attend(const struct doubles *d, int l, int t, const double *q, double *o)
{
	for (int h = 0; h < HEADS; h++) {
		int kv = h / (HEADS / KV_HEADS) * CHANNELS;
		double p[TOKENS], sum = 0;
		for (int j = 0; j <= t; j++) {
			double s = 0;
			for (int c = 0; c < CHANNELS; c++)
				s += q[h * CHANNELS + c] * d->k[l][j][kv + c];
			p[j] = exp(s * .25);
			sum += p[j];
		}
		for (int c = 0; c < CHANNELS; c++) {
			o[h * CHANNELS + c] = 0;
			for (int j = 0; j <= t; j++)
				o[h * CHANNELS + c] += p[j] / sum * d->v[l][j][kv + c];
		}
	}
}

static void token_in_doubles(const struct engine_model *m, struct doubles *d, int t, int id)
{
	double h[WIDTH], x[WIDTH], q[Q], o[Q], a[WIDTH], g[FFN], u[FFN];
	const float *row = (const float *)(const void *)m->file.embedding.data;
	for (int i = 0; i < WIDTH; i++)
		h[i] = (double)row[id * WIDTH + i];
	for (int l = 0; l < LAYERS; l++) {
		const struct kvi_model_layer *w = &m->layers[l];
		norm(x, h, &w->input_norm);
		multiply(d->plain[l][t], &w->k, x);
		memcpy(d->k[l][t], d->plain[l][t], sizeof d->k[l][t]);
		multiply(d->v[l][t], &w->v, x);
		multiply(q, &w->q, x);
		turn(m, d->k[l][t], KV_HEADS, t);
		turn(m, q, HEADS, t);
		attend(d, l, t, q, o);
		multiply(a, &w->o, o);
		for (int i = 0; i < WIDTH; i++)
			h[i] += a[i];
		norm(x, h, &w->ffn_norm);
		multiply(g, &w->gate, x);
		multiply(u, &w->up, x);
		for (int i = 0; i < FFN; i++)
			g[i] = g[i] / (1 + exp(-g[i])) * u[i];
		multiply(a, &w->down, g);
		for (int i = 0; i < WIDTH; i++)
			h[i] += a[i];
	}
}

/* Slot c of a head is channel of the file's order. */
static size_t channel(size_t c, uint32_t rotary)
{
	size_t i = c % CHANNELS;
	return i < rotary ? c - i + i / 2 + (i & 1 ? rotary / 2 : 0) : c;
}

static double error_of(const struct engine_result *r, const struct doubles *d, uint32_t rotary)
{
	double sum = 0, all = 0;
	for (int l = 0; l < LAYERS; l++)
		for (int t = 0; t < TOKENS; t++)
			for (size_t c = 0; c < KV; c++) {
				double k = d->plain[l][t][channel(c, rotary)];
				double v = d->v[l][t][c];
				double a = (double)r->k[l][t][c] - k;
				double b = (double)r->v[l][t][c] - v;
				sum += a * a + b * b;
				all += k * k + v * v;
			}
	return sqrt(sum / all);
}

/* those of 12 bits in attention alone */
static const struct kvi_arithmetic w8a8 = { 0, 0, false }, w8a15 = { 0x61, 0x7f, false },
				   w8a12 = { 0x80, 0x80, false }, w15a12 = { 0xdf, 0x9f, false },
				   w15a15 = { 0x7f, 0x7f, false }, fp8 = { 0x60, 0x60, true };

/* RoPE rotates some channels of each head, or all. */
static void close_to_doubles(uint32_t rotary)
{
	struct engine_model m;
	struct engine_tokens t;
	struct engine_result *r = calloc(1, sizeof *r);
	struct doubles *d = calloc(1, sizeof *d);
	make_model(&m);
	m.file.ropes[0].rotary = rotary;
	make_tokens(&t);
	for (int i = 0; i < TOKENS; i++)
		token_in_doubles(&m, d, i, t.ids[i]);
	const struct {
		struct kvi_arithmetic a;
		double most, least;
	} levels[] = {
		{ w8a8, .03, .003 }, { w8a15, .02, .001 }, { w8a12, .03, .001 },
		{ w15a12, 1e-3, 0 }, { w15a15, 1e-3, 0 },  { fp8, .1, .01 },
	};
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
		struct engine_way w = { .arithmetic = levels[i].a, .cut = 256, .threads = 1 };
		go(&m, &t, &w, r);
		double e = error_of(r, d, rotary);
		print_message("level %d: relative error %.2e\n", (int)i, e);
		assert_true(e < levels[i].most && e > levels[i].least);
	}
	free(r);
	free(d);
	free(m.memory);
}

static void test_close_to_doubles(void **state)
{
	(void)state;
	close_to_doubles(CHANNELS);
	close_to_doubles(CHANNELS / 2 - 2);
}

static uint64_t digest(const struct engine_model *m, const struct engine_tokens *t,
                       const struct engine_way *w, struct engine_result *r)
{
	memset(r, 0xff, sizeof *r);
	go(m, t, w, r);
	return kvi_h64(r, sizeof *r);
}

/* The numbers say: an engine that gives others reads no archive of this version. */
static void test_same_bits(void **state)
{
	struct engine_model m;
	struct engine_tokens t;
	struct engine_result *r = calloc(1, sizeof *r);
	static const size_t cuts[] = { 256, 1, 7, 64, 255, 101 };
	static const uint32_t sets[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512,
		                         KVARC_ISA_NEON };
	static const struct {
		struct kvi_arithmetic a;
		bool closed;
		uint64_t digest;
	} known[] = {
		{ { 0, 0, false }, false, 0xf456c82f99a52c60u },
		{ { 0x81, 0x81, false }, true, 0x0e9487c20a1a091eu },
		{ { 0xc1, 0x9f, false }, true, 0x9492ebad423ec430u },
		{ { 0x21, 0x61, false }, true, 0x8bf14da58b566d3cu },
		{ { 0x61, 0x7f, false }, true, 0xd690adb4165d69a9u },
		{ { 0x7f, 0x7f, false }, true, 0xe097a8621540135du },
		{ { 0x60, 0x60, true }, false, 0xc9488adda8d7a051u },
		{ { 0x60, 0x60, true }, true, 0xc6198c1a5756d2d8u },
	};
	(void)state;
	make_model(&m);
	make_tokens(&t);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		struct engine_way w = { known[i].a, 256, 1, 0, known[i].closed };
		uint64_t d = digest(&m, &t, &w, r);
		print_message("digest %d: 0x%016llx\n", (int)i, (unsigned long long)d);
		assert_int_equal(d, known[i].digest);
		for (size_t j = 1; j < sizeof cuts / sizeof *cuts; j++) {
			w.cut = cuts[j];
			w.threads = (unsigned)j % 3 + 1;
			assert_int_equal(digest(&m, &t, &w, r), d);
		}
		for (size_t j = 0; j < sizeof sets / sizeof *sets; j++) {
			w.isa = sets[j];
			w.cut = 256;
			if (kvarc_isa_available() & sets[j])
				assert_int_equal(digest(&m, &t, &w, r), d);
		}
	}
	free(r);
	free(m.memory);
}

/* Another library has switched subnormals off, and changed the rounding. */
static void test_callers_mode(void **state)
{
#if defined(__SSE2__)
	struct engine_model m;
	struct engine_tokens t;
	struct engine_result *r = calloc(1, sizeof *r);
	/* open loop: no arithmetic of the test's own */
	struct engine_way w = { w8a8, 256, 2, 0, false };
	make_model(&m);
	make_tokens(&t);
	uint64_t d = digest(&m, &t, &w, r);
	unsigned old = _mm_getcsr();
	_mm_setcsr(0x1f80 | 0x8040 | 0x6000);
	uint64_t again = digest(&m, &t, &w, r);
	unsigned after = _mm_getcsr();
	_mm_setcsr(old);
	assert_int_equal(again, d);
	assert_int_equal(after & 0xe040, 0xe040);
	free(r);
	free(m.memory);
#endif
	(void)state;
}

static void test_other_ids(void **state)
{
	struct engine_model m;
	struct kvi_pool *pool;
	struct kvi_engine *e;
	struct kvi_run *run;
	const int32_t positions[2] = { 0, 1 };
	const int32_t ids[2] = { 0, WORDS }, negative[2] = { -1, 0 };
	(void)state;
	make_model(&m);
	assert_int_equal(kvi_pool_open(&pool, &alloc, 1), KVARC_OK);
	assert_int_equal(kvi_engine_open(&e, &alloc, &m.file, &w8a8, pool, NULL), KVARC_OK);
	const struct kvi_run_options o = { .engine = e, .alloc = &alloc, .pool = pool };
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	assert_int_equal(kvi_run_segment(run, ids, positions, 2), KVARC_DATA);
	kvi_run_close(&run);
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	assert_int_equal(kvi_run_segment(run, negative, positions, 2), KVARC_DATA);
	kvi_run_close(&run);
	kvi_engine_close(&e);
	kvi_pool_close(pool);
	free(m.memory);
}

/* The digest names the numbers, not how they are stored. */
static void test_digest(void **state)
{
	struct engine_model m;
	struct kvi_pool *pool;
	struct kvi_engine *e;
	(void)state;
	make_model(&m);
	assert_int_equal(kvi_pool_open(&pool, &alloc, 2), KVARC_OK);
	struct kvi_h128 d[5];
	for (int i = 0; i < 5; i++) {
		uint32_t window = m.layers[LAYERS - 1].window;
		float *x = (float *)(uintptr_t)m.layers[1].up.data;
		float old = x[5];
		if (i == 2)
			x[5] = nextafterf(old, 10);
		if (i == 4)
			m.layers[LAYERS - 1].window++;
		assert_int_equal(
			kvi_engine_open(&e, &alloc, &m.file, i == 1 ? &w15a15 : &w8a8, pool, NULL),
			KVARC_OK);
		d[i] = kvi_engine_digest(e);
		kvi_engine_close(&e);
		x[5] = old;
		m.layers[LAYERS - 1].window = window;
		if (i == 2)
			m.file.norm_epsilon = 1e-6f;
	}
	assert_memory_equal(&d[0], &d[1], sizeof d[0]);
	assert_memory_not_equal(&d[0], &d[2], sizeof d[0]);
	assert_memory_not_equal(&d[0], &d[3], sizeof d[0]);
	assert_memory_not_equal(&d[3], &d[4], sizeof d[0]);
	float *x = (float *)(uintptr_t)m.layers[0].down.data;
	x[3] = INFINITY;
	kvarc_error error;
	assert_int_equal(kvi_engine_open(&e, &alloc, &m.file, &w8a8, pool, &error), KVARC_DATA);
	assert_null(e);
	assert_non_null(strstr(error.text, "down (layer 0)"));
	kvi_pool_close(pool);
	free(m.memory);
}

/* Models with the same rows in different matrices have different digests. */
static void test_digest_labels(void **state)
{
	struct engine_model m;
	struct kvi_pool *pool;
	struct kvi_engine *e;
	struct kvi_h128 d[2];
	(void)state;
	make_model(&m);
	assert_int_equal(kvi_pool_open(&pool, &alloc, 1), KVARC_OK);
	struct kvi_model_layer *l = &m.layers[1];
	const struct kvi_matrix gains = {
		.type = KVI_NUM_F32, .rows = 1, .columns = m.file.head_channels, .data = l->up.data
	};
	struct kvi_matrix *norm[2] = { &l->q_norm, &l->k_norm };
	for (int i = 0; i < 2; i++) {
		const struct kvi_matrix none = { 0 };
		*norm[i] = gains;
		*norm[!i] = none;
		assert_int_equal(kvi_engine_open(&e, &alloc, &m.file, &w8a8, pool, NULL), KVARC_OK);
		d[i] = kvi_engine_digest(e);
		kvi_engine_close(&e);
	}
	assert_memory_not_equal(&d[0], &d[1], sizeof d[0]);
	kvi_pool_close(pool);
	free(m.memory);
}

enum breaking {
	WIDE_HEADS,
	HEADS_DO_NOT_DIVIDE,
	NO_KV_HEADS,
	NO_WIDTH,
	NO_FFN,
	NO_LAYERS,
	HUGE_HEADS,
	HUGE_CHANNELS,
	NO_VOCABULARY,
	BIG_VOCABULARY,
	SHORT_ROWS,
	SHORT_EMBEDDING,
	SHORT_NORM,
	NO_VALUES,
	NO_NORM_BIAS,
	LOST_BIAS,
	LONG_BIAS,
	NO_SCALE,
	NAN_SCALE,
	NAN_EPSILON,
	ODD_ROTARY,
	LONG_ROTARY,
	NO_FREQUENCIES,
	OTHER_ROPE,
	MANY_ROPES,
	OTHER_ACTIVATION,
	TURNED_BLOCKS,
	BREAKINGS
};

static void break_model(struct engine_model *m, enum breaking how)
{
	struct kvi_model_file *f = &m->file;
	struct kvi_model_layer *l = &m->layers[LAYERS - 1];
	switch (how) {
	case WIDE_HEADS:
		f->head_channels = 257;
		break;
	case HEADS_DO_NOT_DIVIDE:
		f->kv_heads = 4;
		break;
	case NO_KV_HEADS:
		f->kv_heads = 0;
		break;
	case NO_WIDTH:
		f->width = 0;
		break;
	case NO_FFN:
		f->ffn = 0;
		break;
	case NO_LAYERS:
		f->n_layers = 0;
		break;
	case HUGE_HEADS:
		f->heads = UINT32_MAX - 1;
		break;
	case HUGE_CHANNELS:
		f->head_channels = UINT32_MAX;
		break;
	case NO_VOCABULARY:
		f->vocabulary = 0;
		break;
	case BIG_VOCABULARY:
		f->vocabulary++;
		break;
	case SHORT_ROWS:
		l->down.columns--;
		break;
	case SHORT_EMBEDDING:
		f->embedding.columns++;
		break;
	case SHORT_NORM:
		l->ffn_norm.columns--;
		break;
	case NO_VALUES:
		l->v.data = NULL;
		break;
	case NO_NORM_BIAS:
		f->layer_norm = true;
		break;
	case LOST_BIAS:
		l->input_norm_bias = l->input_norm;
		break;
	case LONG_BIAS:
		l->k_bias = l->input_norm;
		break;
	case NO_SCALE:
		f->attention_scale = 0;
		break;
	case NAN_SCALE:
		f->embedding_scale = NAN;
		break;
	case NAN_EPSILON:
		f->norm_epsilon = NAN;
		break;
	case ODD_ROTARY:
		f->ropes[0].rotary = 7;
		break;
	case LONG_ROTARY:
		f->ropes[0].rotary = CHANNELS + 2;
		break;
	case NO_FREQUENCIES:
		f->ropes[0].freq = NULL;
		break;
	case OTHER_ROPE:
		l->rope = 1;
		break;
	case MANY_ROPES:
		f->n_ropes = 3;
		break;
	case OTHER_ACTIVATION:
		f->activation = 2;
		break;
	case TURNED_BLOCKS:
		l->up.transposed = true;
		l->up.type = KVI_NUM_Q8_0;
		break;
	default:
		break;
	}
}

/* What the engine would not compute, or would compute wrongly, it does not open. */
static void test_refused(void **state)
{
	struct engine_model m;
	struct kvi_pool *pool;
	struct kvi_engine *e;
	(void)state;
	assert_int_equal(kvi_pool_open(&pool, &alloc, 1), KVARC_OK);
	for (int how = 0; how < BREAKINGS; how++) {
		kvarc_error error = { .text = "" };
		make_model(&m);
		break_model(&m, (enum breaking)how);
		bool known = how == WIDE_HEADS || how == OTHER_ACTIVATION;
		kvarc_ret ret = kvi_engine_open(&e, &alloc, &m.file, &w8a8, pool, &error);
		if (ret != (known ? KVARC_OPTIONS : KVARC_DATA))
			fail_msg("%d: %d %s", how, ret, error.text);
		assert_null(e);
		assert_true(strlen(error.text) > 20);
		assert_null(strchr(error.text, '\n'));
		if (how == WIDE_HEADS)
			assert_non_null(strstr(error.text, "257 channels"));
		free(m.memory);
	}
	kvi_pool_close(pool);
}

/* FP8 is made of floats alone. */
static void test_fp8_of_quantised(void **state)
{
	static const uint8_t blocks[WIDTH * FFN / 32 * 34];
	struct engine_model m;
	struct kvi_pool *pool;
	struct kvi_engine *e;
	kvarc_error error = { .text = "" };
	(void)state;
	make_model(&m);
	m.layers[1].down.type = KVI_NUM_Q8_0;
	m.layers[1].down.data = blocks;
	assert_int_equal(kvi_pool_open(&pool, &alloc, 1), KVARC_OK);
	assert_int_equal(kvi_engine_open(&e, &alloc, &m.file, &w8a8, pool, &error), KVARC_OK);
	kvi_engine_close(&e);
	assert_int_equal(kvi_engine_open(&e, &alloc, &m.file, &fp8, pool, &error), KVARC_OPTIONS);
	assert_null(e);
	assert_non_null(strstr(error.text, "down (layer 1)"));
	kvi_pool_close(pool);
	free(m.memory);
}

int main(void)
{
	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_to_doubles), cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_callers_mode),     cmocka_unit_test(test_other_ids),
		cmocka_unit_test(test_digest),           cmocka_unit_test(test_digest_labels),
		cmocka_unit_test(test_refused),          cmocka_unit_test(test_fp8_of_quantised),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
