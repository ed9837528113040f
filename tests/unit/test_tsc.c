/* SPDX-License-Identifier: BSD-3-Clause */
/* test_tsc.c - codec 11: what comes back is near, errors do not add up, hostile bodies */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coders_util.h"
#include "numeric/formats.h"
#include "random.h"
#include "stream_util.h"

static kvarc_lossy tier(const char *text)
{
	kvarc_lossy l;
	assert_int_equal(kvarc_lossy_parse(&l, text, NULL), KVARC_OK);
	return l;
}

static struct kvi_encode_request request_of(unsigned dtype, uint32_t n, uint32_t heads,
                                            uint32_t channels)
{
	return (struct kvi_encode_request){ .chunk = { .dtype = (uint8_t)dtype,
		                                       .n_tokens = n,
		                                       .heads = heads,
		                                       .head_channels = channels },
		                            .kind = KVARC_VALUE,
		                            .level = 1 };
}

/* Each channel goes its own way, by at most `most` from token to token. */
static void walk(float *x, const struct kvi_chunk *chunk, float most)
{
	size_t C = kvi_chunk_channels(chunk);
	for (size_t i = 0; i < C; i++)
		x[i] = (float)between(-1000, 1000) / 1000.0f;
	for (size_t i = C; i < C * chunk->n_tokens; i++)
		x[i] = x[i - C] + most * (float)between(-1000, 1000) / 1000.0f;
}

/* Encodes with every set; what comes back and the payload are the same. NULL: lossless. */
static uint8_t *encode(const struct kvi_encode_request *request, const kvarc_lossy *how,
                       uint8_t *raw, size_t *bytes)
{
	const struct kvi_chunk *chunk = &request->chunk;
	size_t n = kvi_chunk_bytes(chunk);
	uint8_t *first = NULL, *back = malloc(n), *given = malloc(n);
	memcpy(given, raw, n);
	for (int i = 0; i < n_coders; i++) {
		struct kvi_encoded e;
		uint8_t *changed = malloc(n);
		memcpy(changed, given, n);
		assert_int_equal(kvi_chunk_encode_lossy(coders[i], request, how, changed, &e),
		                 KVARC_OK);
		if (e.codec != KVI_CODEC_TSC) {
			kvi_params_free(e.params);
			kvi_free(&alloc, e.params_content);
			free(changed);
			break;
		}
		assert_null(e.params);
		if (!i) {
			first = malloc(e.payload_bytes);
			memcpy(first, e.payload, e.payload_bytes);
			*bytes = e.payload_bytes;
			memcpy(raw, changed, n);
		}
		assert_int_equal(e.payload_bytes, *bytes);
		assert_memory_equal(e.payload, first, *bytes);
		assert_memory_equal(changed, raw, n);
		assert_int_equal(
			decode_payload(coders[i], chunk, e.codec, e.cut, NULL, first, *bytes, back),
			KVARC_OK);
		assert_memory_equal(back, raw, n);
		free(changed);
	}
	free(given);
	free(back);
	return first;
}

static void round_trips(void **state)
{
	static const char *const tiers[] = { "tsc:4",
		                             "tsc:8",
		                             "tsc:2,block=5",
		                             "tsc:3,kappa=2,block=1",
		                             "tsc:4,kappa=64,block=100",
		                             "tsc:8,kappa=256" };
	static const uint32_t tokens[] = { 1, 2, 31, 33, 256 };
	size_t coded = 0;
	(void)state;
	for (unsigned dtype = KVARC_F32; dtype <= KVARC_E5M2; dtype++)
		for (size_t i = 0; i < 6 * 5; i++) {
			struct kvi_encode_request c = request_of(dtype, tokens[i % 5], 3,
			                                         i % 2 ? 16 : 33);
			size_t n = kvi_chunk_bytes(&c.chunk), bytes;
			float *x = malloc(n * sizeof *x);
			uint8_t *raw = malloc(n);
			kvarc_lossy how = tier(tiers[i / 5]);
			how.exact_tokens = i % 3 ? 0 : 4;
			walk(x, &c.chunk, 0.2f);
			kvi_floats_store(dtype, x, kvi_chunk_channels(&c.chunk) * c.chunk.n_tokens,
			                 raw);
			uint8_t *payload = encode(&c, &how, raw, &bytes);
			coded += payload != NULL;
			free(payload);
			free(x);
			free(raw);
		}
	assert_true(coded >= 60); /* not all tokens are few or exact */
}

/*
 * Steps are largest / 7 rounded up to bf16: |x - decoded before| is at most the walk's step and the
 * error before, so no error is above step / 14 * (1 + 1/13 ...) < 0.08 of a step; open loop would
 * add them up.
 */
static void errors_do_not_add_up(void **state)
{
	struct kvi_encode_request c = request_of(KVARC_F32, 256, 2, 32);
	size_t n = kvi_chunk_bytes(&c.chunk), bytes, numbers = n / 4;
	float *x = malloc(n), *y = malloc(n);
	uint8_t *raw = malloc(n);
	kvarc_lossy how = tier("tsc:4,kappa=256,exact=0");
	(void)state;
	walk(x, &c.chunk, 1.0f);
	kvi_floats_store(c.chunk.dtype, x, numbers, raw);
	uint8_t *payload = encode(&c, &how, raw, &bytes);
	assert_non_null(payload);
	kvi_floats_exact(c.chunk.dtype, raw, numbers, y);
	for (size_t i = 0; i < numbers; i++) {
		float error = x[i] < y[i] ? y[i] - x[i] : x[i] - y[i];
		assert_true(error <= 0.08f);
	}
	free(payload);
	free(x);
	free(y);
	free(raw);
}

/* A difference that no scale is large enough for: that token stays, the others do not mind. */
static void too_far(void **state)
{
	struct kvi_encode_request c = request_of(KVARC_F32, 12, 1, 40);
	size_t n = kvi_chunk_bytes(&c.chunk), C = 40, bytes;
	float x[12 * 40];
	uint8_t raw[sizeof x], given[sizeof x];
	kvarc_lossy how = tier("tsc:2,kappa=256,exact=0");
	(void)state;
	walk(x, &c.chunk, 0.1f);
	for (size_t i = 0; i < C; i++)
		x[5 * C + i] = i % 2 ? 3e38f : -3e38f;
	for (size_t i = 0; i < C; i++)
		x[6 * C + i] = i % 2 ? -3e38f : 3e38f;
	kvi_floats_store(c.chunk.dtype, x, n / 4, raw);
	memcpy(given, raw, n);
	uint8_t *payload = encode(&c, &how, raw, &bytes);
	assert_non_null(payload);
	assert_int_equal(payload[1], 1); /* exact tokens */
	assert_memory_equal(raw + 6 * C * 4, given + 6 * C * 4, C * 4);
	free(payload);
}

/* What is wrong with a body; the payload starts with generation and flags. */
enum { HEAD = 2, SCALES = HEAD + 6 };

static void expect(const struct kvi_chunk *chunk, const uint8_t *payload, size_t bytes,
                   kvarc_ret ret)
{
	uint8_t *raw = malloc(kvi_chunk_bytes(chunk));
	uint8_t *exact = malloc(bytes ? bytes : 1);
	memcpy(exact, payload, bytes);
	for (int i = 0; i < n_coders; i++)
		assert_int_equal(decode_payload(coders[i], chunk, KVI_CODEC_TSC, no_streams, NULL,
		                                exact, bytes, raw),
		                 ret);
	free(exact);
	free(raw);
}

static void hostile_bodies(void **state)
{
	/* 2 tokens of 2 channels, kappa 2: a keyframe, a difference; codes as bytes. */
	static const uint8_t good[] = {
		1, 0,   2,    0, 2, 0,   127, 7, 0, 0x80, 0x80, 0x3f, 0x3e, /* steps 1 and 1/4 */
		0, 100, 0x9c, 0, 7, 0xf9                                    /* 100, -100; 7, -7 */
	};
	static const struct {
		size_t at;
		uint8_t value;
		kvarc_ret ret;
	} cases[] = { { HEAD, 0, KVARC_DATA },          { HEAD + 1, 1, KVARC_DATA },
		      { HEAD + 1, 255, KVARC_DATA },    { HEAD + 2, 0, KVARC_DATA },
		      { HEAD + 4, 0, KVARC_DATA },      { HEAD + 4, 128, KVARC_DATA },
		      { HEAD + 5, 0, KVARC_DATA },      { HEAD + 4, 99, KVARC_DATA },
		      { HEAD + 5, 6, KVARC_DATA },      { SCALES, 1, KVARC_DATA },
		      { SCALES, 2, KVARC_OPTIONS },     { SCALES + 3, 0, KVARC_OK },
		      { SCALES + 3, 0x7f, KVARC_DATA }, { SCALES + 3, 0xbf, KVARC_DATA },
		      { SCALES + 5, 1, KVARC_DATA },    { SCALES + 5, 2, KVARC_OPTIONS },
		      { SCALES + 6, 0x80, KVARC_DATA }, { SCALES + 8, 1, KVARC_DATA },
		      { SCALES + 9, 8, KVARC_DATA },    { SCALES + 9, 0xf8, KVARC_DATA } };
	static const uint8_t elements[] = {
		0xc8, 0x42, 0xc8, 0xc2, 0xcc, 0x42, 0xcc, 0xc2 /* 100, 102 */
	};
	struct kvi_encode_request c = request_of(KVARC_BF16, 2, 1, 2);
	uint8_t b[sizeof good + 1], raw[8];
	(void)state;
	expect(&c.chunk, good, sizeof good, KVARC_OK);
	assert_int_equal(decode_payload(coders[0], &c.chunk, KVI_CODEC_TSC, no_streams, NULL, good,
	                                sizeof good, raw),
	                 KVARC_OK);
	assert_memory_equal(raw, elements, sizeof elements);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		memcpy(b, good, sizeof good);
		b[cases[i].at] = cases[i].value;
		expect(&c.chunk, b, sizeof good, cases[i].ret);
	}
	memcpy(b, good, sizeof good);
	memset(b + SCALES + 1, 0, 4); /* steps of nothing */
	expect(&c.chunk, b, sizeof good, KVARC_DATA);
	memcpy(b, good, sizeof good);
	b[sizeof good] = 0;
	expect(&c.chunk, b, sizeof b, KVARC_DATA);
	for (size_t n = 0; n < sizeof good; n++)
		expect(&c.chunk, good, n, KVARC_DATA);
}

/* A class out of range, and every cut and many flips of a body with streams. */
static void hostile_streams(void **state)
{
	struct kvi_encode_request c = request_of(KVARC_BF16, 70, 2, 24);
	size_t n = kvi_chunk_bytes(&c.chunk), bytes, at = 0;
	float *x = malloc(2 * n);
	uint8_t *raw = malloc(n);
	kvarc_lossy how = tier("tsc:3,block=24,exact=0");
	(void)state;
	walk(x, &c.chunk, 0.3f);
	kvi_floats_store(c.chunk.dtype, x, n / 2, raw);
	uint8_t *p = encode(&c, &how, raw, &bytes);
	assert_non_null(p);
	at = SCALES + 1 + 2 * 70 * 2;
	if (p[SCALES])
		at = SCALES + 3 + (p[SCALES + 1] & 127) + ((size_t)p[SCALES + 2] << 7);
	assert_int_equal(p[at], 1); /* a stream */
	p[at + 1] ^= 0x80;
	expect(&c.chunk, p, bytes, KVARC_DATA);
	p[at + 1] ^= 0x80;
	for (size_t i = 0; i < bytes; i += 7)
		expect(&c.chunk, p, i, KVARC_DATA);
	for (size_t i = 0; i < bytes; i++) {
		p[i] ^= (uint8_t)(1u << i % 8);
		(void)!decode_payload(coders[0], &c.chunk, KVI_CODEC_TSC, no_streams, NULL, p,
		                      bytes, raw);
		p[i] ^= (uint8_t)(1u << i % 8);
	}
	free(p);
	free(x);
	free(raw);
}

/* Tokens that are appended leave the file as it was, and what was in it. */
static void appending(void **state)
{
	enum { FIRST = 40 };
	struct memfile f = { .fail_at = -1 };
	struct cache c, before, after;
	kvarc_lossy how = tier("tsc:4,kappa=8");
	kvarc_writer_options wo = { .level = 1, .lossy = &how };
	kvarc_reader_options ro = { .flags = KVARC_READ_ALLOW_LOSSY };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	kvarc_state how_it_ended;
	kvarc_view views[16];
	(void)state;
	cache_make(&c, 0, 5);
	assert_int_equal(c.g.n_tracks, 1);
	assert_true(c.n[0] > FIRST);
	assert_int_equal(kvarc_writer_open(&w, &sink, &wo), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	assert_int_equal(kvarc_writer_append(w, 0, FIRST, c.ids[0], c.positions[0], c.views),
	                 KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	size_t n = f.n;
	uint8_t *old = malloc(n);
	memcpy(old, f.p, n);
	struct memfile first = { .p = old, .n = n, .fail_at = -1 };
	cache_make_empty(&before, &c);
	assert_int_equal(cache_read_seq(&before, &first, &ro, &how_it_ended), KVARC_OK);
	cache_views_at(&c, FIRST, views);
	assert_int_equal(kvarc_writer_append(w, 0, c.n[0] - FIRST,
	                                     c.ids[0] ? c.ids[0] + FIRST : NULL,
	                                     c.positions[0] ? c.positions[0] + FIRST : NULL, views),
	                 KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	assert_memory_equal(f.p, old, n);
	cache_make_empty(&after, &c);
	assert_int_equal(cache_read_seq(&after, &f, &ro, &how_it_ended), KVARC_OK);
	for (uint32_t i = 0; i < c.g.n_tensors; i++) {
		size_t token = cache_bytes(&c, i) / c.n[0];
		assert_memory_equal(before.data[i], after.data[i], FIRST * token);
	}
	assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
	cache_free(&c);
	cache_free(&before);
	cache_free(&after);
	memfile_free(&f);
	free(old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),     cmocka_unit_test(errors_do_not_add_up),
		cmocka_unit_test(too_far),         cmocka_unit_test(hostile_bodies),
		cmocka_unit_test(hostile_streams), cmocka_unit_test(appending),
	};
	return cmocka_run_group_tests(tests, open_lossy, close_coders);
}
