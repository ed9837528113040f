/* SPDX-License-Identifier: BSD-3-Clause */
/* test_vq.c - codec 12: codebooks that suit, tokens that they do not suit, hostile parameters */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codecs/coder.h"
#include "coders_util.h"
#include "numeric/formats.h"
#include "random.h"
#include "util/bytes.h"

enum { HEADS = 2, CHANNELS = 20, C = HEADS * CHANNELS, TOKENS = 256 };

static kvarc_lossy tier(const char *text)
{
	kvarc_lossy l;
	assert_int_equal(kvarc_lossy_parse(&l, text, NULL), KVARC_OK);
	l.exact_tokens = 0;
	return l;
}

static struct kvi_encode_request request_of(unsigned dtype, uint32_t n)
{
	return (struct kvi_encode_request){ .chunk = { .dtype = (uint8_t)dtype,
		                                       .n_tokens = n,
		                                       .heads = HEADS,
		                                       .head_channels = CHANNELS },
		                            .kind = KVARC_VALUE,
		                            .level = 1 };
}

/* A chunk, its elements before and after, and what it became. */
struct vq_coded {
	struct kvi_encode_request request;
	float x[TOKENS * C], y[TOKENS * C];
	uint8_t raw[4 * TOKENS * C];
	uint8_t *payload, *content;
	size_t bytes, content_bytes;
	struct kvi_params *params;
	bool lossy, fresh;
};

static void drop(struct vq_coded *d)
{
	kvi_params_free(d->params);
	free(d->payload);
	free(d->content);
}

/* The same with every set, and every set gives it back, by parameters that were read. */
static void code(struct vq_coded *d, const kvarc_lossy *how, const struct kvi_params *current)
{
	const size_t numbers = C * d->request.chunk.n_tokens;
	const size_t n = kvi_chunk_bytes(&d->request.chunk);
	uint8_t *given = malloc(n), *back = malloc(n);
	d->payload = d->content = NULL;
	d->request.params = current;
	d->params = NULL;
	kvi_floats_store(d->request.chunk.dtype, d->x, numbers, given);
	for (int i = 0; i < n_coders; i++) {
		struct kvi_encoded e;
		memcpy(d->raw, given, n);
		assert_int_equal(kvi_chunk_encode_lossy(coders[i], &d->request, how, d->raw, &e),
		                 KVARC_OK);
		d->lossy = e.codec == KVI_CODEC_VQ;
		d->fresh = e.params != NULL;
		if (!i && d->lossy) {
			d->bytes = e.payload_bytes;
			d->payload = malloc(d->bytes);
			memcpy(d->payload, e.payload, d->bytes);
			d->content_bytes = e.params_bytes;
			d->content = malloc(e.params_bytes + 1);
			if (e.params)
				memcpy(d->content, e.params_content, e.params_bytes);
			if (e.params)
				assert_int_equal(kvi_params_parse(&d->params, &alloc, e.codec,
				                                  d->request.chunk.dtype, HEADS,
				                                  CHANNELS, NULL, d->content,
				                                  d->content_bytes),
				                 KVARC_OK);
			if (e.params) /* parameters of the next chunk */
				d->params->expected = e.params->expected;
		}
		if (d->lossy) {
			assert_int_equal(e.payload_bytes, d->bytes);
			assert_memory_equal(e.payload, d->payload, d->bytes);
			assert_int_equal(e.params_bytes, d->content_bytes);
			assert_int_equal(decode_payload(coders[i], &d->request.chunk, e.codec,
			                                e.cut, d->params ? d->params : current,
			                                d->payload, d->bytes, back),
			                 KVARC_OK);
			assert_memory_equal(back, d->raw, n);
		} else {
			assert_memory_equal(given, d->raw, n);
		}
		kvi_params_free(e.params);
		kvi_free(&alloc, e.params_content);
	}
	kvi_floats_exact(d->request.chunk.dtype, d->raw, numbers, d->y);
	free(given);
	free(back);
}

static void fill(struct vq_coded *d)
{
	for (size_t i = 0; i < (size_t)C * d->request.chunk.n_tokens; i++)
		d->x[i] = normal() * (1.0f + (float)(i % 3));
}

/* Error in tokens [from, to), relative. */
static double error_of(const struct vq_coded *d, size_t from, size_t to)
{
	double e = 0, s = 0;
	for (size_t i = from * C; i < to * C; i++) {
		e += ((double)d->x[i] - (double)d->y[i]) * ((double)d->x[i] - (double)d->y[i]);
		s += (double)d->x[i] * (double)d->x[i];
	}
	return e / s;
}

static struct vq_coded *coded_new(unsigned dtype, uint32_t n)
{
	struct vq_coded *d = calloc(1, sizeof *d);
	d->request = request_of(dtype, n);
	fill(d);
	return d;
}

/* More bits, less error: of normal data, and 20 channels of a head are not whole vectors. */
static void rates(void **state)
{
	static const struct {
		const char *text;
		double most;
	} cases[] = { { "vq:1", 0.32 },
		      { "vq:2", 0.12 },
		      { "vq:2,pq", 0.12 },
		      { "vq:3", 0.05 },
		      { "vq:4", 0.012 } };
	(void)state;
	for (unsigned dtype = KVARC_F32; dtype <= KVARC_E5M2; dtype++)
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			struct vq_coded *d = coded_new(dtype, TOKENS);
			kvarc_lossy how = tier(cases[i].text);
			code(d, &how, NULL);
			assert_true(d->lossy && d->fresh);
			assert_true(error_of(d, 0, TOKENS) < cases[i].most);
			drop(d);
			free(d);
		}
}

/* Codebooks are sent once, and serve chunks of any number of tokens. */
static void codebooks_serve_again(void **state)
{
	static const uint32_t tokens[] = { 256, 33, 1 };
	struct vq_coded *a = coded_new(KVARC_BF16, TOKENS);
	kvarc_lossy how = tier("vq:2");
	(void)state;
	code(a, &how, NULL);
	for (size_t i = 0; i < 3; i++) {
		struct vq_coded *b = coded_new(KVARC_BF16, tokens[i]);
		code(b, &how, a->params);
		if (tokens[i] > 1)
			assert_true(b->lossy && !b->fresh);
		drop(b);
		free(b);
	}
	/* Too few vectors for a codebook: lossless. */
	struct vq_coded *few = coded_new(KVARC_BF16, 60);
	code(few, &how, NULL);
	assert_false(few->lossy);
	drop(few);
	free(few);
	drop(a);
	free(a);
}

/* Tokens beyond the threshold are exact tokens; that costs no new codebook. */
static void fallback(void **state)
{
	struct vq_coded *a = coded_new(KVARC_F16, TOKENS);
	struct vq_coded *b = coded_new(KVARC_F16, TOKENS);
	kvarc_lossy how = tier("vq:3,fallback=0.25");
	size_t exact = 0;
	(void)state;
	for (size_t t = 100; t < 110; t++) /* one channel alone: no entry is like it */
		for (size_t i = 0; i < C; i++)
			b->x[t * C + i] *= (i + t) % 8 ? 0.3f : 3.0f;
	code(a, &how, NULL);
	assert_true(a->lossy);
	code(b, &how, a->params);
	assert_true(b->lossy && !b->fresh);
	assert_int_equal(b->payload[1], 1);
	for (size_t t = 0; t < TOKENS; t++) {
		double e = error_of(b, t, t + 1);
		assert_true(e <= 0.25 * 0.25 * 1.01);
		exact += b->payload[2 + t / 8] >> t % 8 & 1;
	}
	assert_true(exact >= 5 && exact < 60);
	drop(a);
	drop(b);
	free(a);
	free(b);
}

/* All heads zero, and numbers that have no scale. */
static void extremes(void **state)
{
	struct vq_coded *d = coded_new(KVARC_F32, TOKENS);
	kvarc_lossy how = tier("vq:1");
	(void)state;
	memset(d->x + 7 * C, 0, C * sizeof *d->x);
	d->x[9 * C] = 3.4e38f; /* above the largest bf16 */
	code(d, &how, NULL);
	assert_true(d->lossy);
	assert_int_equal(d->payload[2 + 1], 2);
	assert_true(d->y[9 * C] == d->x[9 * C]);
	for (size_t i = 0; i < C; i++)
		assert_true(d->y[7 * C + i] < 1e-30f && d->y[7 * C + i] > -1e-30f);
	drop(d);
	free(d);
}

static kvarc_ret parse(const uint8_t *content, size_t bytes)
{
	struct kvi_params *p = NULL;
	uint8_t *exact = malloc(bytes ? bytes : 1);
	memcpy(exact, content, bytes);
	kvarc_ret ret = kvi_params_parse(&p, &alloc, KVI_CODEC_VQ, KVARC_BF16, HEADS, CHANNELS,
	                                 NULL, exact, bytes);
	kvi_params_free(p);
	free(exact);
	return ret;
}

static void hostile_parameters(void **state)
{
	enum { BOOK = 3, TABLE = BOOK + 256 * 8 };
	static const uint8_t shapes[][3] = { { 0, 1, 1 },  { 1, 1, 1 },      { 3, 1, 1 },
		                             { 16, 1, 1 }, { 8, 0, 1 },      { 8, 2, 1 },
		                             { 4, 3, 1 },  { 2, 5, 1 },      { 8, 1, 0 },
		                             { 8, 1, 4 },  { 255, 255, 255 } };
	struct vq_coded *d = coded_new(KVARC_BF16, TOKENS);
	kvarc_lossy how = tier("vq:1");
	(void)state;
	code(d, &how, NULL);
	uint8_t *p = d->content;
	size_t n = d->content_bytes;
	assert_int_equal(parse(p, n), KVARC_OK);
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		uint8_t was[3];
		memcpy(was, p, 3);
		memcpy(p, shapes[i], 3);
		assert_int_equal(parse(p, n), KVARC_DATA);
		memcpy(p, was, 3);
	}
	for (size_t i = 0; i < n; i += i < TABLE ? 97 : 1)
		assert_int_equal(parse(p, i), KVARC_DATA);
	p[n] = 0;
	assert_int_equal(parse(p, n + 1), KVARC_DATA);
	assert_int_equal(p[n - 1], 1); /* the escape */
	p[n - 1] = 0;
	assert_int_equal(parse(p, n), KVARC_DATA);
	p[n - 1] = 2;
	assert_int_equal(parse(p, n), KVARC_DATA);
	p[n - 1] = 1;
	p[TABLE] ^= 1; /* they no longer add up */
	assert_int_equal(parse(p, n), KVARC_DATA);
	drop(d);
	free(d);
}

static void hostile_bodies(void **state)
{
	struct vq_coded *d = coded_new(KVARC_BF16, 40);
	struct vq_coded *a = coded_new(KVARC_BF16, TOKENS);
	kvarc_lossy how = tier("vq:2");
	(void)state;
	code(a, &how, NULL);
	code(d, &how, a->params);
	assert_true(d->lossy && !d->fresh);
	uint8_t *p = d->payload, *exact;
	for (size_t i = 0; i < d->bytes; i++) {
		exact = malloc(i ? i : 1);
		memcpy(exact, p, i);
		assert_int_equal(decode_payload(coders[0], &d->request.chunk, KVI_CODEC_VQ,
		                                no_streams, a->params, exact, i, d->raw),
		                 KVARC_DATA);
		free(exact);
	}
	for (size_t i = 0; i < 8 * d->bytes; i += 3) {
		p[i / 8] ^= (uint8_t)(1u << i % 8);
		(void)!decode_payload(coders[0], &d->request.chunk, KVI_CODEC_VQ, no_streams,
		                      a->params, p, d->bytes, d->raw);
		p[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(decode_payload(coders[0], &d->request.chunk, KVI_CODEC_VQ, no_streams,
	                                NULL, p, d->bytes, d->raw),
	                 KVARC_DATA);
	assert_int_equal(decode_payload(coders[0], &d->request.chunk, KVI_CODEC_VQ, no_streams,
	                                a->params, p, d->bytes, d->raw),
	                 KVARC_OK);
	drop(d);
	free(d);
	drop(a);
	free(a);
}

/* Names and options, and what they mean. */
static void tiers(void **state)
{
	static const char *const wrong[] = { "vq:0",
		                             "vq:5",
		                             "vq:1.5",
		                             "vq:1,pq",
		                             "vq:2,pq,keys=+1",
		                             "tsc:1",
		                             "tsc:9",
		                             "tsc:4.5",
		                             "tsc:4,kappa=0",
		                             "tsc:4,kappa=257",
		                             "tsc:4,block=0",
		                             "tsc:4,fallback=0.1",
		                             "vq:1,kappa=2",
		                             "had:4,pq",
		                             "had:4,kappa=3",
		                             "vq:1,fallback=1.1",
		                             "vq:1,fallback=x",
		                             "vq-84",
		                             "vq-84xx",
		                             "tsc-8x:4",
		                             "tsc-8x,what",
		                             "tsc:4,keys=+0.5" };
	static const struct {
		const char *name, *same;
	} presets[] = { { "tsc-8x", "tsc:4,block=256" },
		        { "tsc-63x", "tsc:4,kappa=64,block=256" },
		        { "vq-84x", "tsc:4,kappa=64,block=256,keep=0.75" },
		        { "vq-219x", "vq:2,pq,fallback=0.33" },
		        { "vq-429x", "vq:4" },
		        { "vq-1034x", "vq:1" },
		        { "vq-1034x,exact=0", "vq:1,exact=0" } };
	kvarc_lossy a, b;
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(kvarc_lossy_parse(&a, wrong[i], NULL), KVARC_OPTIONS);
	for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
		assert_int_equal(kvarc_lossy_parse(&a, presets[i].name, NULL), KVARC_OK);
		assert_int_equal(kvarc_lossy_parse(&b, presets[i].same, NULL), KVARC_OK);
		assert_memory_equal(&a, &b, sizeof a);
	}
	assert_int_equal(a.rate, 16);
	assert_int_equal(a.tier, KVARC_TIER_VQ);
	assert_int_equal(a.exact_tokens, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates),
		cmocka_unit_test(codebooks_serve_again),
		cmocka_unit_test(fallback),
		cmocka_unit_test(extremes),
		cmocka_unit_test(hostile_parameters),
		cmocka_unit_test(hostile_bodies),
		cmocka_unit_test(tiers),
	};
	return cmocka_run_group_tests(tests, open_lossy, close_coders);
}
