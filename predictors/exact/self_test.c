/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * self_test.c - a known answer of the exact arithmetic, before it is relied on
 *
 * What a compiler or a processor gets wrong here would become an archive that nobody else can
 * read. Numbers are made of integers alone, so the answer is one number for every machine. All
 * lengths end within a vector, and some integers are as large as they can be.
 */
#include <string.h>

#include "util/bytes.h"
#include "util/hash.h"
#include "exact/engine_internal.h"
#include "exact/float8.h"
#include "util/fpmode.h"
#include "exact/self_test.h"
#include "util/error.h"

enum {
	ROWS = 5,
	COLUMNS = 140,
	OUTPUTS = 37,
	Y_STRIDE = 48,
	N = 203, /* numbers of elementwise functions */
	MOST = 256,
	TOKENS = 259,
	CHANNELS = 20,
	QUERIES = 2,
	LAST = 2,
	WINDOW = 100
};

struct buffers {
	float x[ROWS * COLUMNS], y[ROWS * Y_STRIDE];
	float a[256], b[256], c[256];
	float k[TOKENS * CHANNELS], v[TOKENS * CHANNELS];
	float q[LAST * QUERIES * CHANNELS], o[LAST * QUERIES * CHANNELS];
};

struct test {
	const struct kvi_alloc *alloc;
	const struct kvi_exact_kernels *kernels;
	const struct kvi_elementwise *elementwise;
	struct buffers *buffers;
	uint32_t seed;
	struct kvi_h128 chain;
};

static int32_t number(struct test *test)
{
	test->seed = test->seed * 1664525u + 1013904223u;
	return (int32_t)(test->seed >> 8 & 0xffff) - 0x8000;
}

/* n numbers of many sizes below 2^exponent. */
static void fill(struct test *test, float *x, size_t n, int exponent)
{
	uint32_t bits = (uint32_t)(127 + exponent - 15) << 23;
	float unit;
	memcpy(&unit, &bits, sizeof unit);
	for (size_t i = 0; i < n; i++) {
		int32_t m = number(test);
		x[i] = (float)(i % 7 ? m : m / 64) * unit;
	}
}

/* Adds n numbers, 1 to MOST, whose bytes go from the lowest to the highest on any machine. */
static void see(struct test *test, const float *x, size_t n)
{
	uint8_t chain[16], bytes[4 * MOST];
	kvi_store_h128(chain, test->chain);
	memcpy(bytes, x, 4 * n);
	kvi_to_little_32(bytes, n);
	test->chain = kvi_h128_2(chain, sizeof chain, bytes, 4 * n);
}

/* Integers of all values, rows of the largest and the smallest among them. */
static void put_row(struct test *test, struct kvi_operand *w, size_t r)
{
	int8_t q[2][COLUMNS];
	const int8_t *const planes[2] = { q[0], q[1] };
	float scale[COLUMNS], minimum[COLUMNS];
	size_t groups = kvi_operand_groups(w);
	for (size_t i = 0; i < COLUMNS; i++)
		for (unsigned p = 0; p < w->planes; p++)
			q[p][i] = r == 1 ? 127 : r == 2 ? -128 : (int8_t)(number(test) % 128);
	fill(test, scale, groups, -4);
	fill(test, minimum, groups, -1);
	kvi_operand_put(w, r, planes, scale, w->minimum ? minimum : NULL);
}

static kvarc_ret product(struct test *test, unsigned group, bool wide, unsigned planes, bool minima)
{
	struct kvi_operand w;
	struct kvi_activations a;
	size_t w_bytes, a_bytes;
	if (!kvi_operand_bytes(OUTPUTS, COLUMNS, group, planes, minima, &w_bytes) ||
	    !kvi_activations_bytes(ROWS, COLUMNS, group, wide, &a_bytes))
		return KVARC_MEM;
	void *memory[2] = { kvi_malloc(test->alloc, w_bytes), kvi_malloc(test->alloc, a_bytes) };
	if (memory[0] && memory[1]) {
		kvi_operand_init(&w, memory[0], OUTPUTS, COLUMNS, group, planes, minima);
		for (size_t r = 0; r < OUTPUTS; r++)
			put_row(test, &w, r);
		kvi_activations_init(&a, memory[1], ROWS, COLUMNS, group, wide);
		test->kernels->quantise(&a, test->buffers->x, COLUMNS, 0, ROWS);
		const struct kvi_product p = { .a = &a,
			                       .w = &w,
			                       .blocks = kvi_operand_blocks(&w),
			                       .y = test->buffers->y,
			                       .y_stride = Y_STRIDE };
		test->kernels->product(&p);
		for (size_t r = 0; r < ROWS; r++)
			see(test, test->buffers->y + r * Y_STRIDE, OUTPUTS);
	}
	kvi_free(test->alloc, memory[0]);
	kvi_free(test->alloc, memory[1]);
	return memory[0] && memory[1] ? KVARC_OK : kvi_alloc_error(test->alloc);
}

static kvarc_ret products(struct test *test)
{
	kvarc_ret ret = KVARC_OK;
	fill(test, test->buffers->x, ROWS * COLUMNS, 3);
	for (size_t i = 0; i < COLUMNS; i++) {
		test->buffers->x[i] = 1; /* the largest integers */
		test->buffers->x[COLUMNS + i] = i % 2 ? -3 : 3;
	}
	for (unsigned group = 16; group <= 256; group *= 2)
		for (unsigned form = 0; form < 6 && !ret; form++)
			ret = product(test, group, form & 1, form < 4 ? 1 : 2, form / 2 == 1);
	return ret;
}

/* Weights in e4m3 with large and subnormal ones, and floats. */
static kvarc_ret floats(struct test *test)
{
	struct buffers *r = test->buffers;
	struct kvi_operand w;
	size_t bytes;
	if (!kvi_e4m3_bytes(OUTPUTS, COLUMNS, &bytes))
		return KVARC_MEM;
	void *memory = kvi_malloc(test->alloc, bytes);
	if (!memory)
		return kvi_alloc_error(test->alloc);
	kvi_e4m3_init(&w, memory, OUTPUTS, COLUMNS);
	for (size_t i = 0; i < OUTPUTS; i++) {
		fill(test, r->a, COLUMNS, -2);
		r->a[i] *= 64;
		kvi_e4m3_put(&w, i, r->a);
	}
	const struct kvi_product p = { .w = &w,
		                       .x = r->x,
		                       .rows = ROWS,
		                       .x_stride = COLUMNS,
		                       .blocks = kvi_operand_blocks(&w),
		                       .y = r->y,
		                       .y_stride = Y_STRIDE };
	test->kernels->product_floats(&p);
	for (size_t i = 0; i < ROWS; i++)
		see(test, r->y + i * Y_STRIDE, OUTPUTS);
	kvi_free(test->alloc, memory);
	return KVARC_OK;
}

static void elementwise(struct test *test)
{
	const struct kvi_elementwise *e = test->elementwise;
	struct buffers *r = test->buffers;
	float numbers[2];
	fill(test, r->a, N, 5);
	fill(test, r->b, N, 1);
	fill(test, r->c, 256, 2);
	numbers[0] = e->norm(r->y, r->a, r->b, NULL, N, 1e-5f);
	see(test, r->y, N);
	numbers[1] = e->norm(r->y, r->a, r->b, r->c, N, 1e-6f);
	see(test, r->y, N);
	see(test, numbers, 2);
	for (unsigned way = 0; way < 4; way++) {
		memcpy(r->y, r->a, N * sizeof *r->y);
		(way & 1 ? e->silu : e->gelu)(r->y, way & 2 ? r->b : NULL, N);
		see(test, r->y, N);
	}
	e->add(r->y, r->c, N);
	e->blend(r->y, 0x1.8p-1f, r->a, 0x1.4cccccp-2f, N);
	for (size_t i = 0; i < N; i++)
		r->b[i] = e->exp(r->a[i] > 0 ? -3 * r->a[i] : 3 * r->a[i]);
	see(test, r->y, N);
	see(test, r->b, N);
	for (size_t i = 0; i < 256; i++)
		r->a[i] = r->c[255 - i] * 4;
	struct kvi_scores s = {
		.z = r->a, .first = 3, .end = 250, .sv = r->c, .scale = 0x1.6a09e6p-1f
	};
	e->softmax(&s);
	see(test, r->a, 256);
	see(test, &s.m, 1);
	see(test, &s.l, 1);
}

/* The last tokens of two blocks, without and with a window. */
static kvarc_ret attention(struct test *test, const struct kvi_arithmetic *arithmetic)
{
	const struct kvi_model_file m = { .head_channels = CHANNELS, .kv_heads = 1 };
	struct buffers *r = test->buffers;
	struct kvi_cache cache = { .model = &m,
		                   .arithmetic = arithmetic,
		                   .kernels = test->kernels };
	fill(test, r->k, TOKENS * CHANNELS, 2);
	fill(test, r->v, TOKENS * CHANNELS, 0);
	fill(test, r->q, LAST * QUERIES * CHANNELS, 2);
	void *memory = kvi_malloc(test->alloc, kvi_attention_bytes(QUERIES, CHANNELS));
	kvarc_ret ret = !memory ? kvi_alloc_error(test->alloc)
	                        : kvi_cache_add(&cache, test->alloc, 0, TOKENS, r->k, r->v,
	                                        CHANNELS);
	for (uint32_t window = 0; !ret && window <= WINDOW; window += WINDOW) {
		const struct kvi_attention a = { .kernels = test->kernels,
			                         .elementwise = test->elementwise,
			                         .cache = &cache,
			                         .queries_per_head = QUERIES,
			                         .channels = CHANNELS,
			                         .first = TOKENS - LAST,
			                         .n = LAST,
			                         .window = window,
			                         .scale = 0x1.c9f25cp-3f,
			                         .q = r->q,
			                         .o = r->o,
			                         .stride = QUERIES * CHANNELS };
		kvi_attention_run(&a, memory);
		see(test, r->o, sizeof r->o / sizeof *r->o);
	}
	kvi_cache_free(&cache, test->alloc);
	kvi_free(test->alloc, memory);
	return ret;
}

kvarc_ret kvi_exact_answer(const struct kvi_alloc *alloc, const struct kvi_exact_kernels *kernels,
                           const struct kvi_elementwise *elements, struct kvi_h128 *answer)
{
	struct test t = { .alloc = alloc, .kernels = kernels, .elementwise = elements };
	t.buffers = kvi_malloc(alloc, sizeof *t.buffers);
	if (!t.buffers)
		return kvi_alloc_error(alloc);
	uint64_t mode = kvi_fp_exact();
	kvarc_ret ret = products(&t);
	elementwise(&t);
	static const struct kvi_arithmetic widths[] = {
		{ KVI_WIDE_ATTENTION, KVI_WIDE_ATTENTION, false },
		{ 0, 1 << KVI_MATRIX_VALUES, false },
		{ 1 << KVI_MATRIX_VALUES, 1 << KVI_MATRIX_KEYS, false },
		{ 0, 0, false },
		{ KVI_ATTENTION_12, KVI_ATTENTION_12, false },
		{ KVI_ATTENTION_12 | 1 << KVI_MATRIX_VALUES, KVI_ATTENTION_12, false },
	};
	for (size_t i = 0; !ret && i < sizeof widths / sizeof *widths; i++)
		ret = attention(&t, &widths[i]);
	if (!ret)
		ret = floats(&t);
	kvi_fp_restore(mode);
	kvi_free(alloc, t.buffers);
	*answer = t.chain;
	return ret;
}

kvarc_ret kvi_exact_test(const struct kvi_alloc *alloc, const struct kvi_exact_kernels *kernels,
                         const struct kvi_elementwise *elements, kvarc_error *error)
{
	static const struct kvi_h128 known = { 0xc74cfd94976a7163, 0xe389c5705767f37a };
	struct kvi_h128 answer;
	if (kvi_exact_answer(alloc, kernels, elements, &answer))
		return kvi_fail_alloc(error, alloc);
	return kvi_h128_equal(answer, known)
	               ? KVARC_OK
	               : kvi_fail(error, KVARC_PREDICTOR,
	                          "self-test of the exact arithmetic failed (isa "
	                          "%s): use --isa scalar, and report this processor",
	                          kernels->name);
}
