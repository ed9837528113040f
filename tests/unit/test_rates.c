/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rates.c - tokens of a lossy chunk with rates of their own: errors, exact ones, hostile
 * bytes */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coders_util.h"
#include "codecs/coder.h"
#include "codecs/lossy/payload_parts.h"
#include "numeric/formats.h"
#include "random.h"

enum {
	TOKENS = 256,
	HEADS = 3,
	CHANNELS = 64,
	WIDTH = HEADS * CHANNELS,
	BYTES = TOKENS * WIDTH * 4
};
enum { FLAGS = 1 };
#define STAYS KVARC_LOSSY_NOTHING

static float was[TOKENS * WIDTH], is[TOKENS * WIDTH];

static kvarc_lossy tier(const char *text)
{
	kvarc_lossy l;
	assert_int_equal(kvarc_lossy_parse(&l, text, NULL), KVARC_OK);
	l.exact_tokens = 0;
	return l;
}

static struct kvi_encode_request request_of(unsigned kind, const int16_t *rates)
{
	return (struct kvi_encode_request){ .chunk = { .dtype = KVARC_F32,
		                                       .n_tokens = TOKENS,
		                                       .heads = HEADS,
		                                       .head_channels = CHANNELS },
		                            .kind = (uint8_t)kind,
		                            .token_rate = rates,
		                            .level = 1 };
}

/* Normal numbers, of tsc from token to token. */
static void make(bool walk)
{
	for (size_t i = 0; i < TOKENS * WIDTH; i++) {
		was[i] = normal();
		if (walk && i >= WIDTH)
			was[i] = was[i - WIDTH] + was[i] / 8;
	}
}

struct rate_coded {
	unsigned codec;
	uint8_t *payload;
	size_t bytes;
	struct kvi_params *params;
};

static void coded_free(struct rate_coded *o)
{
	free(o->payload);
	kvi_params_free(o->params);
}

/* `was` with every set: the same payload, and `is` from it. fresh: whether parameters came along.
 * */
static struct rate_coded code(const struct kvi_encode_request *request, const kvarc_lossy *how,
                              const struct kvi_params *current, bool *fresh)
{
	struct kvi_encode_request with = *request;
	struct rate_coded o = { .payload = NULL };
	with.params = current;
	for (int i = 0; i < n_coders; i++) {
		struct kvi_encoded e;
		uint8_t *raw = malloc(BYTES), *back = malloc(BYTES);
		kvi_floats_store(KVARC_F32, was, TOKENS * WIDTH, raw);
		assert_int_equal(kvi_chunk_encode_lossy(coders[i], &with, how, raw, &e), KVARC_OK);
		assert_true(kvi_codec_lossy(e.codec));
		if (!i) {
			o = (struct rate_coded){ e.codec, malloc(e.payload_bytes), e.payload_bytes,
				                 e.params };
			memcpy(o.payload, e.payload, o.bytes);
			kvi_floats_exact(KVARC_F32, raw, TOKENS * WIDTH, is);
			if (fresh)
				*fresh = e.params != NULL;
		}
		assert_int_equal(e.payload_bytes, o.bytes);
		assert_memory_equal(e.payload, o.payload, o.bytes);
		assert_int_equal(decode_payload(coders[i], &request->chunk, (uint8_t)e.codec, e.cut,
		                                e.params ? e.params : current, o.payload, o.bytes,
		                                back),
		                 KVARC_OK);
		assert_memory_equal(raw, back, BYTES);
		kvi_free(&alloc, e.params_content);
		if (i)
			kvi_params_free(e.params);
		free(raw);
		free(back);
	}
	return o;
}

/* Mean square of the error of tokens with a rate; rates NULL: of all. */
static double error_of(const int16_t *rates, int rate)
{
	double sum = 0;
	size_t n = 0;
	for (size_t i = 0; i < TOKENS * WIDTH; i++)
		if (!rates || rates[i / WIDTH] == rate) {
			double e = (double)was[i] - (double)is[i];
			sum += e * e;
			n++;
		}
	return sum / (double)n;
}

/* Rates of tokens, each of n of them by turns but not evenly. */
static void spread(int16_t *rates, const int16_t *from, size_t n)
{
	for (size_t t = 0; t < TOKENS; t++)
		rates[t] = from[(t * t + t / 5) % n];
}

/* Tokens are as good as if the whole chunk had their rate, and those that stay stay. */
static void errors(void **state)
{
	static const int16_t some[] = { 0, 16, -12, 40, STAYS, 0 };
	static const int more[] = { 0, 16, -12, 40 };
	static const char *const tiers[] = { "had:2.5", "had:2.5,identity,keys=+1",
		                             "had:2,outliers=64" };
	int16_t rates[TOKENS];
	(void)state;
	spread(rates, some, 6);
	for (size_t k = 0; k < 3; k++) {
		kvarc_lossy how = tier(tiers[k]);
		unsigned kind = k ? KVARC_KEY : KVARC_VALUE;
		struct kvi_encode_request request = request_of(kind, rates),
					  plain = request_of(kind, NULL);
		double mixed[4];
		make(false);
		struct rate_coded o = code(&request, &how, NULL, NULL);
		assert_int_equal(o.payload[FLAGS], KVI_FLAG_EXACT | KVI_FLAG_RATES);
		assert_true(error_of(rates, STAYS) == 0);
		for (size_t i = 0; i < 4; i++)
			mixed[i] = error_of(rates, more[i]);
		coded_free(&o);
		for (size_t i = 0; i < 4; i++) {
			kvarc_lossy alone = how;
			alone.rate += more[i];
			o = code(&plain, &alone, NULL, NULL);
			double e = error_of(NULL, 0) / mixed[i];
			if (e < 0.95 || e > 1.05)
				fail_msg("%s: class %zu is off by %f", tiers[k], i, e);
			coded_free(&o);
		}
	}
}

/* Payloads without rates are those that they always were; so are those with one. */
static void one_rate(void **state)
{
	static const char *const tiers[] = { "had:3", "tsc:4", "near:0.01", "vq:2" };
	static const int16_t same[] = { 0, 0, 0, 16, -16, STAYS };
	int16_t rates[TOKENS];
	(void)state;
	make(false);
	for (size_t k = 0; k < 4; k++) {
		struct kvi_encode_request plain = request_of(KVARC_VALUE, NULL), request = plain;
		kvarc_lossy how = tier(tiers[k]);
		struct rate_coded o = code(&plain, &how, NULL, NULL), other;
		assert_int_equal(o.payload[FLAGS], 0);
		request.token_rate = rates;
		/* near and vq have one for all, whatever is asked for. */
		spread(rates, same, k < 2 ? 3 : 5);
		other = code(&request, &how, NULL, NULL);
		assert_int_equal(o.bytes, other.bytes);
		assert_memory_equal(o.payload, other.payload, o.bytes);
		coded_free(&other);
		spread(rates, same, 6);
		other = code(&request, &how, NULL, NULL);
		assert_int_equal(other.payload[FLAGS], k < 2 ? 3 : KVI_FLAG_EXACT);
		assert_true(error_of(rates, STAYS) == 0);
		coded_free(&other);
		coded_free(&o);
		for (size_t t = 0; t < TOKENS; t++)
			rates[t] = 16;
		other = code(&request, &how, NULL, NULL);
		how.rate += k < 2 ? 16 : 0;
		o = code(&plain, &how, NULL, NULL);
		assert_int_equal(o.bytes, other.bytes);
		assert_memory_equal(o.payload, other.payload, o.bytes);
		coded_free(&other);
		coded_free(&o);
	}
}

/* Differences are from the token before of a class, so that its errors do not add up. */
static void tsc_closed_loop(void **state)
{
	int16_t rates[TOKENS];
	kvarc_lossy how = tier("tsc:3,kappa=256,block=16");
	struct kvi_encode_request request = request_of(KVARC_KEY, rates);
	(void)state;
	for (size_t t = 0; t < TOKENS; t++)
		rates[t] = t % 3 ? 0 : 32;
	make(true);
	struct rate_coded o = code(&request, &how, NULL, NULL);
	assert_int_equal(o.payload[FLAGS], KVI_FLAG_RATES);
	/* A difference of two steps of the walk has a step of 1/3 of the largest of 16 numbers, 2
	 * of deviation at most: (2 * 0.125 * 1.42 / 3)^2 / 12; of 1/15 for the others. */
	double coarse = error_of(rates, 0), fine = error_of(rates, 32);
	assert_true(coarse > 0 && coarse < 0.002);
	assert_true(fine > 0 && fine < coarse / 10);
	for (size_t i = 255 * (size_t)WIDTH; i < TOKENS * WIDTH; i++)
		assert_true(fabsf(was[i] - is[i]) < 0.1f);
	coded_free(&o);
}

static void rates_of_tiers(void **state)
{
	static const struct {
		const char *tier;
		int kind, more, rate;
	} cases[] = { { "had:4", KVARC_KEY, 0, 64 },
		      { "had:4", KVARC_KEY, 7, 71 },
		      { "had:4", KVARC_KEY, 1000, 104 },
		      { "had:4", KVARC_KEY, -1000, 16 },
		      { "had:4", KVARC_VALUE, KVARC_LOSSY_DROP, 16 },
		      { "had:4,keys=+1", KVARC_KEY, 40, 104 },
		      { "klt:1", KVARC_KEY, -15, 4 },
		      { "tsc:4", KVARC_KEY, 7, 64 },
		      { "tsc:4", KVARC_KEY, 8, 80 },
		      { "tsc:4", KVARC_KEY, -8, 64 },
		      { "tsc:4", KVARC_KEY, -9, 48 },
		      { "tsc:4", KVARC_KEY, 1000, 128 },
		      { "tsc:4", KVARC_KEY, -1000, 32 },
		      { "tsc:4,keys=+2", KVARC_KEY, 1000, 96 },
		      { "tsc:4,keys=+2", KVARC_VALUE, 1000, 128 },
		      { "vq:2", KVARC_KEY, 16, 32 },
		      { "near:0.1", KVARC_KEY, 16, 0 } };
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		kvarc_lossy how = tier(cases[i].tier);
		assert_int_equal(kvi_lossy_token_rate(&how, (unsigned)cases[i].kind, cases[i].more),
		                 cases[i].rate);
	}
}

/* Too many rates, and classes that cost more than they save: tokens get more, never less. */
static void few_classes(void **state)
{
	static const struct {
		size_t tokens[6];
		int more[6];
		unsigned n;
		int rate[4];
	} cases[] = {
		{ { 40, 40, 40, 40, 40, 56 }, { -40, -30, -10, 0, 10, 30 }, 4, { 34, 64, 74, 94 } },
		{ { 256 }, { 5 }, 1, { 69 } },
		{ { 1, 255 }, { -16, 0 }, 1, { 64 } },
		{ { 1, 255 }, { 16, 0 }, 2, { 64, 80 } },
		{ { 5, 251 }, { -16, 0 }, 1, { 64 } },
		{ { 6, 250 }, { -16, 0 }, 2, { 48, 64 } },
		{ { 6, 3, 200, 47 }, { -16, -14, 0, 16 }, 3, { 50, 64, 80 } },
		{ { 6, 200, 50 }, { STAYS, 0, 16 }, 2, { 64, 80 } },
		{ { 256 }, { STAYS }, 1, { 64 } }
	};
	kvarc_lossy how = tier("had:4");
	(void)state;
	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		int16_t rates[TOKENS];
		struct kvi_encode_request request = request_of(KVARC_VALUE, rates);
		struct kvi_parts p;
		int rate[KVI_RATES_MAX];
		size_t at = 0;
		kvi_parts_open(&p, &request.chunk);
		for (size_t i = 0; i < 6; i++)
			for (size_t t = 0; t < cases[k].tokens[i]; t++)
				rates[at++ * 7 % TOKENS] = (int16_t)cases[k].more[i];
		for (size_t t = 0; t < TOKENS; t++)
			if (rates[t] == STAYS)
				p.part[t] = KVI_EXACT;
		kvi_rates_choose(&p, &request, &how, rate);
		assert_int_equal(p.n_rates, cases[k].n);
		for (size_t i = 0; i < p.n_rates; i++)
			assert_int_equal(rate[i], cases[k].rate[i]);
		for (size_t t = 0; t < TOKENS; t++)
			for (size_t i = 0; i < p.n_rates; i++)
				if (p.part[t] == 1u << i) {
					assert_true(rate[i] >= 64 + rates[t]);
					assert_true(!i || rate[i - 1] < 64 + rates[t]);
				}
	}
}

/* Other shares of the rates do not make new parameters; tokens that they do not fit stay exact. */
static void parameters_serve(void **state)
{
	static const int16_t two[] = { 0, 32, 32 };
	int16_t rates[TOKENS];
	kvarc_lossy how = tier("had:3");
	struct kvi_encode_request plain = request_of(KVARC_VALUE, NULL), mixed = plain;
	bool fresh;
	(void)state;
	mixed.token_rate = rates;
	spread(rates, two, 3);
	make(false);
	struct rate_coded a = code(&plain, &how, NULL, &fresh);
	assert_true(fresh);
	struct rate_coded b = code(&mixed, &how, a.params, &fresh);
	assert_false(fresh);
	assert_int_equal(b.payload[FLAGS], KVI_FLAG_RATES);
	coded_free(&b);
	coded_free(&a);
	a = code(&mixed, &how, NULL, &fresh);
	assert_true(fresh);
	for (size_t t = 0; t < TOKENS; t++)
		rates[t] = rates[t] ? 0 : 32;
	b = code(&mixed, &how, a.params, &fresh);
	assert_false(fresh);
	coded_free(&b);
	b = code(&plain, &how, a.params, &fresh);
	assert_false(fresh);
	coded_free(&b);
	/* One in each class that the step of its class is too small for. */
	spread(rates, two, 3);
	was[10 * WIDTH + 5] = 1000;
	was[12 * WIDTH + 6] = -1000;
	assert_int_not_equal(rates[10], rates[12]);
	b = code(&mixed, &how, a.params, &fresh);
	assert_int_equal(b.payload[FLAGS], KVI_FLAG_EXACT | KVI_FLAG_RATES);
	for (size_t i = 0; i < WIDTH; i++) {
		assert_true(was[10 * WIDTH + i] == is[10 * WIDTH + i]);
		assert_true(was[12 * WIDTH + i] == is[12 * WIDTH + i]);
	}
	coded_free(&b);
	coded_free(&a);
}

/* What is wrong with classes, raw_check apart. */
static void hostile(void **state)
{
	/* 5 tokens of 1 channel of tsc, kappa 1: steps of 1, codes as bytes; classes 0 1 2 1 0. */
	static const uint8_t good[] = {
		1,    KVI_FLAG_RATES, 3,    0x64, 0, 14, 14, 1, 0, 1, 0, 7, 7, 0,
		0x80, 0x80,           0x3f, 0x3f, 0, 1,  2,  1, 0, 1, 0, 7, 7, 0,
		0x80, 0x80,           0x3f, 0x3f, 0, 3,  4,  1, 0, 1, 0, 7, 7, 0,
		0x80, 0x3f,           0,    5
	};
	static const struct {
		size_t at;
		uint8_t value;
	} cases[] = { { 1, 0 },    { 1, 6 },   { 2, 0 },    { 2, 1 },    { 2, 2 },    { 2, 4 },
		      { 2, 5 },    { 2, 255 }, { 3, 0x65 }, { 3, 0x67 }, { 3, 0x44 }, { 4, 4 },
		      { 4, 0x80 }, { 5, 0 },   { 5, 13 },   { 5, 15 },   { 5, 127 },  { 5, 0x8e },
		      { 6, 0 },    { 6, 13 },  { 6, 15 },   { 6, 25 },   { 6, 26 } };
	static const float want[] = { 1, 3, 5, 4, 2 };
	struct kvi_chunk chunk = {
		.dtype = KVARC_F32, .n_tokens = 5, .heads = 1, .head_channels = 1
	};
	uint8_t raw[20];
	float x[5];
	(void)state;
	for (int i = 0; i < n_coders; i++) {
		assert_int_equal(decode_payload(coders[i], &chunk, KVI_CODEC_TSC, no_streams, NULL,
		                                good, sizeof good, raw),
		                 KVARC_OK);
		kvi_floats_exact(KVARC_F32, raw, 5, x);
		assert_memory_equal(x, want, sizeof x);
		for (size_t n = 0; n < sizeof good; n++) {
			uint8_t *cut = malloc(n ? n : 1);
			memcpy(cut, good, n);
			assert_int_equal(decode_payload(coders[i], &chunk, KVI_CODEC_TSC,
			                                no_streams, NULL, cut, n, raw),
			                 KVARC_DATA);
			free(cut);
		}
		/* A byte behind each body. */
		for (size_t k = 0; k < 3; k++) {
			uint8_t bad[sizeof good + 1] = { 0 };
			const size_t end = k < 2 ? 7 + 14 * (k + 1) : sizeof good;
			memcpy(bad, good, end);
			memcpy(bad + end + 1, good + end, sizeof good - end);
			bad[5 + k] = (uint8_t)(bad[5 + k] + (k < 2));
			assert_int_equal(decode_payload(coders[i], &chunk, KVI_CODEC_TSC,
			                                no_streams, NULL, bad, sizeof bad, raw),
			                 KVARC_DATA);
		}
		for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
			uint8_t bad[sizeof good];
			memcpy(bad, good, sizeof good);
			bad[cases[k].at] = cases[k].value;
			if (decode_payload(coders[i], &chunk, KVI_CODEC_TSC, no_streams, NULL, bad,
			                   sizeof bad, raw) != KVARC_DATA)
				fail_msg("%u at %zu was taken", cases[k].value, cases[k].at);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors),          cmocka_unit_test(one_rate),
		cmocka_unit_test(tsc_closed_loop), cmocka_unit_test(rates_of_tiers),
		cmocka_unit_test(few_classes),     cmocka_unit_test(parameters_serve),
		cmocka_unit_test(hostile),
	};
	return cmocka_run_group_tests(tests, open_lossy, close_coders);
}
