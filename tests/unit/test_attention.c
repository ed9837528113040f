/* SPDX-License-Identifier: BSD-3-Clause */
/* test_attention.c - attention over blocks: every instruction set against scalar C, for shapes and
 * numbers that the small models of test_engine.c do not have */
#include "config.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exact/engine_internal.h"
#include "kernels/slots.h"
#include "random.h"

enum { TOKENS_MAX = 900, KV_HEADS_MAX = 2, ROUNDS = 120 };

static struct kvi_alloc alloc;

/* Heads that look at a cache. */
struct attention_case {
	struct kvi_model_file file;
	struct kvi_arithmetic arithmetic;
	size_t tokens, first, n, queries_per_head, stride;
	uint32_t window;
	float *k, *v, *q;
};

static const struct kvi_arithmetic arithmetics[] = {
	{ KVI_ATTENTION_12, KVI_ATTENTION_12, false },
	{ KVI_ATTENTION_12 | 1 << KVI_MATRIX_VALUES, KVI_ATTENTION_12, false },
	{ KVI_ATTENTION_12, 0, false },
	{ 0, KVI_ATTENTION_12, false },
	{ KVI_WIDE_ATTENTION, KVI_WIDE_ATTENTION, false },
};
enum { ARITHMETICS = sizeof arithmetics / sizeof *arithmetics };

static float *numbers(size_t n, float scale, bool extremes)
{
	float *x = malloc(n * sizeof *x);
	assert_non_null(x);
	for (size_t i = 0; i < n; i++)
		x[i] = normal() * scale;
	for (size_t i = 0; extremes && i < n / 100; i++)
		x[below((uint32_t)n)] = below(4) ? 0 : below(2) ? NAN : -INFINITY;
	return x;
}

static void make_case(struct attention_case *c, size_t round)
{
	static const uint16_t channels[] = { 16, 24, 40, 64, 80, 128, 256 };
	const size_t heads = 1 + below(KV_HEADS_MAX), hd = channels[below(7)];
	const size_t most = kvi_attention_tokens(c->queries_per_head = 1 + below(9));

	c->arithmetic = arithmetics[round % ARITHMETICS];
	c->tokens = 1 + below(TOKENS_MAX);
	c->first = below(4) ? below((uint32_t)c->tokens) : 0;
	c->n = 1 + below((uint32_t)(c->tokens - c->first));
	if (c->n > most)
		c->n = most;
	c->window = below(3) ? 0 : 1 + below(500);
	c->file = (struct kvi_model_file){
		.alloc = &alloc,
		.heads = (uint32_t)(heads * c->queries_per_head),
		.kv_heads = (uint32_t)heads,
		.head_channels = (uint32_t)hd,
	};
	c->stride = heads * c->queries_per_head * hd;
	/* scores from almost equal ones to those far below -87 under the largest */
	c->k = numbers(c->tokens * heads * hd, 1, below(2));
	c->v = numbers(c->tokens * heads * hd, below(4) ? 1 : 0x1p-58f, below(2));
	c->q = numbers(c->n * c->stride, ldexpf(1, between(-6, 6)), false);
	for (size_t i = 0; below(3) == 0 && i < hd; i++)
		c->v[below((uint32_t)(c->tokens * heads)) * hd + i] *= 1000;
}

static void free_case(const struct attention_case *c)
{
	free(c->k);
	free(c->v);
	free(c->q);
}

/* Outputs of all heads. */
static float *attended(const struct attention_case *c, const struct kvi_exact_kernels *kernels,
                       const struct kvi_elementwise *elementwise)
{
	const size_t hd = c->file.head_channels, row = c->file.kv_heads * hd;
	const size_t bytes = kvi_attention_bytes(c->queries_per_head, hd);
	struct kvi_cache cache = { .model = &c->file,
		                   .arithmetic = &c->arithmetic,
		                   .kernels = kernels };
	uint8_t *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	float *o = calloc(c->n * c->stride, sizeof *o);

	assert_non_null(memory);
	assert_non_null(o);
	memset(memory, 0xff, bytes);
	assert_int_equal(kvi_cache_add(&cache, &alloc, 0, c->tokens, c->k, c->v, row), KVARC_OK);
	for (size_t h = 0; h < c->file.kv_heads; h++) {
		const size_t at = h * c->queries_per_head * hd;
		const struct kvi_attention a = {
			.kernels = kernels,
			.elementwise = elementwise,
			.cache = &cache,
			.kv_head = h,
			.queries_per_head = c->queries_per_head,
			.channels = hd,
			.first = c->first,
			.n = c->n,
			.window = c->window,
			.scale = 0.125f,
			.q = c->q + at,
			.o = o + at,
			.stride = c->stride,
		};
		kvi_attention_run(&a, memory);
	}
	kvi_cache_free(&cache, &alloc);
	free(memory);
	return o;
}

static void test_sets(void **state)
{
	const uint32_t isas[] = { KVARC_ISA_AVX2, KVARC_ISA_AVX512, KVARC_ISA_NEON };
	struct attention_case c;

	(void)state;
	for (size_t round = 0; round < ROUNDS; round++) {
		make_case(&c, round);
		float *want = attended(&c, &kvi_exact_scalar, &kvi_elementwise_scalar);
		for (size_t i = 0; i < c.n * c.stride; i++)
			assert_true(isfinite(want[i]));
		for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
			if (!(kvarc_isa_available() & isas[i]))
				continue;
			float *got = attended(&c, kvi_exact_kernels_get(isas[i]),
			                      kvi_elementwise_get(isas[i]));
			assert_memory_equal(got, want, c.n * c.stride * sizeof *got);
			free(got);
		}
		free(want);
		free_case(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_sets) };

	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
