/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exactness_digest.c - the numbers of the exact engine, by instruction set, threads and cut
 *
 * Runs a small model made up on the spot through the engine in every way and prints one digest
 * of all keys and values that it predicts; status 1 if two ways differ. Layers of floats and
 * of quantised blocks, with biases, norms of heads and a window; open and closed loop.
 * exactness.sh builds it with many compilers. usage: digest [all]
 * all: every cut from 1 to 256 tokens.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(KVI_NEON)
#include <sys/auxv.h>
#endif

#include "kernels/slots.h"
#include "exact/elementwise.h"
#include "exact/engine.h"
#include "exact/engine_internal.h"
#include "util/bytes.h"

enum {
	LAYERS = 3,
	WIDTH = 96,
	HEADS = 6,
	KV_HEADS = 2,
	CHANNELS = 16,
	FFN = 160,
	WORDS = 61,
	TOKENS = 270,
	SEGMENT = 256,
	WINDOW = 100,
	THREADS = 8,
	LEVELS = 3,
	KV = KV_HEADS * CHANNELS,
	Q = HEADS * CHANNELS,
	MODEL_BYTES = 1 << 20
};

/* Stands in for kernels/kernel_sets.c, whose coders the engine does not use, and which takes
 * the products in one instruction wherever the processor has it. */
#if defined(KVI_AVX512)
const struct kvi_kernels kvi_kernels_avx512vnni = { .name = "avx512vnni", .isa = KVARC_ISA_AVX512 };
#endif
#if defined(KVI_NEON)
static const struct kvi_kernels neon_dots = { .name = "neondot", .isa = KVARC_ISA_NEON };
#endif
static const struct set {
	const struct kvi_kernels *kernels;
	const char *feature; /* of the processor */
} sets[] = {
	{ &(const struct kvi_kernels){ .name = "scalar", .isa = KVARC_ISA_SCALAR }, NULL },
#if defined(KVI_AVX2)
	{ &(const struct kvi_kernels){ .name = "avx2", .isa = KVARC_ISA_AVX2 }, "avx2" },
#endif
#if defined(KVI_AVX512)
	{ &(const struct kvi_kernels){ .name = "avx512", .isa = KVARC_ISA_AVX512 }, "avx512bw" },
	{ &kvi_kernels_avx512vnni, "avx512vnni" },
#endif
#if defined(KVI_NEON)
	{ &(const struct kvi_kernels){ .name = "neon", .isa = KVARC_ISA_NEON }, NULL },
	{ &neon_dots, "asimddp" },
#endif
};
enum { SETS = sizeof sets / sizeof *sets };
static const struct kvi_kernels *chosen;

const struct kvi_kernels *kvi_kernels_get(uint32_t isa_mask)
{
	(void)isa_mask;
	return chosen;
}

#if defined(KVI_NEON)
bool kvi_arm_has_dots(void)
{
	return chosen == &neon_dots;
}
#endif

static bool have(const struct set *s)
{
#if defined(KVI_NEON)
	if (s->feature)
		return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#endif
#if defined(KVI_AVX512)
	if (s->feature && strcmp(s->feature, "avx512bw") == 0)
		return __builtin_cpu_supports("avx512bw");
	if (s->feature && strcmp(s->feature, "avx512vnni") == 0)
		return __builtin_cpu_supports("avx512vnni");
#endif
#if defined(KVI_AVX2)
	if (s->feature)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
	return !s->feature;
}

/* ------------------------------------------------------------------ model */

static struct kvi_alloc alloc;
static struct kvi_model_layer layers[LAYERS];
static uint64_t freq[CHANNELS / 2];
static int32_t ids[TOKENS], positions[TOKENS];
static uint8_t *bytes;
static size_t used;
static uint32_t seed = 1;

static unsigned random_byte(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 24;
}

static void fail(const char *what)
{
	fprintf(stderr, "digest: %s\n", what);
	exit(2);
}

static uint8_t *take(size_t n)
{
	uint8_t *p = bytes + used;

	used += (n + 3) / 4 * 4;
	if (used > MODEL_BYTES)
		fail("the model is too large");
	return p;
}

/* Sums of four bytes, scaled: nothing of the model comes from a library's functions. */
static float noise(void)
{
	int sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (int)random_byte();
	return (float)(sum - 510) * 0x1p-8f;
}

static struct kvi_matrix floats(unsigned type, size_t rows, size_t columns, float scale, float plus)
{
	const size_t size = type == KVI_NUM_F32 ? 4 : 2;
	struct kvi_matrix m = { .type = (uint8_t)type, .rows = rows, .columns = columns };
	uint8_t *p = take(rows * columns * size);

	m.data = p;
	for (size_t i = 0; i < rows * columns; i++, p += size) {
		float x = noise() * scale + plus;
		uint32_t bits;
		memcpy(&bits, &x, sizeof bits);
		if (size == 4)
			kvi_store32(p, bits);
		else
			kvi_store16(p, (uint16_t)(bits >> 16));
	}
	return m;
}

/* A scale in F16: sign and exponent given, mantissa random. */
static void half(uint8_t *p, unsigned bits)
{
	kvi_store16(p, (uint16_t)(bits | random_byte()));
}

static struct kvi_matrix blocks(unsigned type, size_t rows, size_t columns)
{
	const size_t size = type == KVI_NUM_Q4_1 ? 20 : 34;
	struct kvi_matrix m = { .type = (uint8_t)type, .rows = rows, .columns = columns };
	uint8_t *p = take(rows * columns / 32 * size);

	m.data = p;
	for (size_t i = 0; i < rows * columns / 32; i++, p += size) {
		for (size_t j = 0; j < size; j++)
			p[j] = (uint8_t)random_byte();
		half(p, type == KVI_NUM_Q4_1 ? 0x2400 : 0x1400);
		if (type == KVI_NUM_Q4_1)
			half(p + 2, 0xb100); /* the minimum */
	}
	return m;
}

static struct kvi_matrix weights(unsigned type, size_t rows, size_t columns)
{
	return type == KVI_NUM_F32 || type == KVI_NUM_BF16
	               ? floats(type, rows, columns, columns == FFN ? .09375f : .125f, 0)
	               : blocks(type, rows, columns);
}

static void make_layer(struct kvi_model_layer *l, unsigned type)
{
	l->input_norm = floats(KVI_NUM_F32, 1, WIDTH, .1f, 1);
	l->q = weights(type, Q, WIDTH);
	l->k = weights(type, KV, WIDTH);
	l->v = weights(type, KV, WIDTH);
	l->o = weights(type, WIDTH, Q);
	l->ffn_norm = floats(KVI_NUM_F32, 1, WIDTH, .1f, 1);
	l->gate = weights(type, FFN, WIDTH);
	l->up = weights(type, FFN, WIDTH);
	l->down = weights(type, WIDTH, FFN);
}

static struct kvi_model_file make_model(void)
{
	struct kvi_model_file f = {
		.alloc = &alloc,
		.arch = "qwen2",
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
		.ropes = { { CHANNELS, freq } },
		.layers = layers,
	};

	for (int i = 0; i < CHANNELS / 2; i++)
		freq[i] = 0x28be60db9391054aull >> (i + i / 4);
	f.embedding = floats(KVI_NUM_BF16, WORDS, WIDTH, 1, 0);
	make_layer(&layers[0], KVI_NUM_BF16);
	make_layer(&layers[1], KVI_NUM_Q4_1);
	make_layer(&layers[2], KVI_NUM_Q8_0);
	layers[0].q_bias = floats(KVI_NUM_F32, 1, Q, .25f, 0);
	layers[0].k_bias = floats(KVI_NUM_F32, 1, KV, .25f, 0);
	layers[0].v_bias = floats(KVI_NUM_F32, 1, KV, .25f, 0);
	layers[2].q_norm = floats(KVI_NUM_F32, 1, CHANNELS, .1f, 1);
	layers[2].k_norm = floats(KVI_NUM_F32, 1, CHANNELS, .1f, 1);
	layers[2].window = WINDOW;
	for (int i = 0; i < TOKENS; i++) {
		ids[i] = (int32_t)(random_byte() % WORDS);
		positions[i] = i;
	}
	return f;
}

/* -------------------------------------------------------------------- run */

static float predicted[2][LAYERS][TOKENS][KV];

/* What another engine would have stored: odd levels here are a closed loop. */
static float stored(float x, size_t t, size_t c, bool closed)
{
	return closed ? x + (float)((t * 7 + c * 3) % 11) * 0x1p-8f : x;
}

static void go_layer(struct kvi_run *run, size_t layer, size_t first, size_t n, bool closed)
{
	static float k[SEGMENT][KV], v[SEGMENT][KV];
	const struct kvi_predicted p = kvi_run_predict(run);

	for (size_t t = 0; t < n; t++)
		for (size_t c = 0; c < KV; c++) {
			predicted[0][layer][first + t][c] = p.k[t * p.stride + c];
			predicted[1][layer][first + t][c] = p.v[t * p.stride + c];
			k[t][c] = stored(p.k[t * p.stride + c], first + t, c, closed);
			v[t][c] = stored(p.v[t * p.stride + c], first + t, c, closed);
		}
	kvi_run_rotate(run, k[0], KV);
	if (closed) {
		const struct kvi_hidden h = kvi_run_hidden(run);
		for (size_t i = 0; i < n * WIDTH; i++)
			h.h[i / WIDTH * h.width + i % WIDTH] += h.root[i / WIDTH] * 0x1p-6f;
	}
	if (kvi_run_advance(run, k[0], v[0], KV, closed) != KVARC_OK)
		fail("no memory");
}

static uint64_t digest(const struct kvi_engine *e, struct kvi_pool *pool, size_t cut, bool closed)
{
	const struct kvi_run_options o = { .engine = e, .alloc = &alloc, .pool = pool };
	struct kvi_run *run;

	memset(predicted, 0xff, sizeof predicted);
	if (kvi_run_open(&run, &o) != KVARC_OK)
		fail("no memory");
	for (size_t at = 0, n; at < TOKENS; at += n) {
		n = TOKENS - at < cut ? TOKENS - at : cut;
		if (kvi_run_segment(run, ids + at, positions + at, n) != KVARC_OK)
			fail("a segment is refused");
		for (size_t l = 0; l < LAYERS; l++)
			go_layer(run, l, at, n, closed);
	}
	kvi_run_close(&run);
	return kvi_h64(predicted, sizeof predicted);
}

/* -------------------------------------------------------------------- ways */

static const struct {
	struct kvi_arithmetic arithmetic;
	bool closed;
} levels[LEVELS] = { { { 0, 0, false }, false },
	             { { 0x81, 0x9f, false }, true },
	             { { 0x7f, 0x7f, false }, true } };
static uint64_t first[LEVELS];
static unsigned ways, differ;

static void check(const struct set *s, unsigned level, unsigned threads, size_t cut, uint64_t d)
{
	ways++;
	if (!first[level])
		first[level] = d;
	if (d != first[level] && differ++ < 10)
		fprintf(stderr,
		        "%s, arithmetic %u, %u threads, cut %zu: 0x%016llx, not 0x%016llx\n",
		        s->kernels->name, level, threads, cut, (unsigned long long)d,
		        (unsigned long long)first[level]);
}

/* Runs all cuts of a kernel set with engines of 1 to THREADS threads. */
static void go_set(const struct set *s, const struct kvi_model_file *file, bool all)
{
	static const size_t cuts[] = { SEGMENT, 255, 128, 101, 64, 33, 31, 7, 2, 1 };
	const size_t n = all ? SEGMENT : sizeof cuts / sizeof *cuts;

	chosen = s->kernels;
	for (unsigned threads = 1; threads <= THREADS; threads++) {
		struct kvi_pool *pool;
		struct kvi_engine *e;
		if (kvi_pool_open(&pool, &alloc, threads) != KVARC_OK)
			fail("no threads");
		for (unsigned level = 0; level < LEVELS; level++) {
			if (kvi_engine_open(&e, &alloc, file, &levels[level].arithmetic, pool,
			                    NULL) != KVARC_OK)
				fail("the model is refused");
			for (size_t i = 0; i < n; i++) {
				size_t cut = all ? SEGMENT - i : cuts[i];
				if (i && i % THREADS != threads - 1)
					continue;
				check(s, level, threads, cut,
				      digest(e, pool, cut, levels[level].closed));
			}
			kvi_engine_close(&e);
		}
		kvi_pool_close(pool);
	}
}

int main(int argc, char **argv)
{
	const bool all = argc > 1 && strcmp(argv[1], "all") == 0;
	struct kvi_model_file file;

	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	bytes = calloc(1, MODEL_BYTES);
	if (!bytes)
		fail("no memory");
	file = make_model();
	for (size_t i = 0; i < SETS; i++) {
		unsigned before = ways;
		if (!have(&sets[i]))
			continue;
		go_set(&sets[i], &file, all);
		printf("%s %u  ", sets[i].kernels->name, ways - before);
		fflush(stdout);
	}
	printf("0x%016llx%s\n", (unsigned long long)kvi_h64(first, sizeof first),
	       differ ? " differ" : "");
	free(bytes);
	return differ != 0;
}
