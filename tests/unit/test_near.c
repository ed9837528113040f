/* SPDX-License-Identifier: BSD-3-Clause */
/* test_near.c - codec 10: no element is off by more than its bound, and those of hostile payloads
 * */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codecs/near/near.h"
#include "coders_util.h"
#include "random.h"

enum { TOKENS = 70, HEADS = 3, CHANNELS = 10, C = HEADS * CHANNELS, PAIRS = 4 };

static const uint8_t dtypes[] = { KVARC_F32, KVARC_F16, KVARC_BF16, KVARC_E4M3, KVARC_E5M2 };
enum { N_DTYPES = sizeof dtypes };

static kvarc_rope rope;
static int32_t positions[TOKENS];

static struct kvi_encode_request request_of(unsigned dtype, int kind, bool turns)
{
	static uint64_t freq[PAIRS];
	for (size_t i = 0; i < PAIRS; i++)
		freq[i] = (UINT64_C(1) << 61) >> (2 * i);
	for (int32_t t = 0; t < TOKENS; t++)
		positions[t] = 3 * t;
	rope = (kvarc_rope){ .rotary = 2 * PAIRS, .freq = freq, .pairing = KVARC_ROPE_HALF };
	return (struct kvi_encode_request){ .chunk = { .dtype = (uint8_t)dtype,
		                                       .n_tokens = TOKENS,
		                                       .heads = HEADS,
		                                       .head_channels = CHANNELS,
		                                       .positions = turns ? positions : NULL,
		                                       .rope = turns ? &rope : NULL },
		                            .kind = (uint8_t)kind,
		                            .level = 1 };
}

/* Channels with means of both signs, of sizes that a lattice makes a few cells or one of. */
static void fill(const struct kvi_chunk *chunk, uint8_t *raw)
{
	float x[TOKENS * C];
	for (size_t t = 0; t < TOKENS; t++)
		for (size_t c = 0; c < C; c++) {
			float sigma = ldexpf(1, (int)(c % 7) - 5);
			x[t * C + c] = sigma * ((float)(c % 5) - 2) * 4 + sigma * normal();
		}
	kvi_floats_store(chunk->dtype, x, (size_t)TOKENS * C, raw);
}

static kvarc_lossy bound(double error)
{
	return (kvarc_lossy){ .tier = KVARC_TIER_NEAR,
		              .params.bound.max_error = (uint32_t)(error * 1e9 + 0.5) };
}

static void drop(struct kvi_encoded *e)
{
	kvi_params_free(e->params);
	kvi_free(&alloc, e->params_content);
}

/* The greatest error of tokens, and their root mean square. */
static double off(const struct kvi_chunk *chunk, const uint8_t *a, const uint8_t *b, double *rms)
{
	const size_t n = kvi_chunk_channels(chunk) * chunk->n_tokens;
	float x[TOKENS * C], y[TOKENS * C];
	double most = 0, sum = 0;
	kvi_floats_exact(chunk->dtype, a, n, x);
	kvi_floats_exact(chunk->dtype, b, n, y);
	for (size_t i = 0; i < n; i++) {
		double d = fabs((double)x[i] - (double)y[i]);
		most = d > most ? d : most;
		sum += (double)x[i] * (double)x[i];
	}
	*rms = sqrt(sum / (double)n);
	return most;
}

/* Every coder makes the same payload, and decodes what the encoder says. */
static size_t check(const struct kvi_encode_request *request, const kvarc_lossy *how,
                    const uint8_t *raw, uint8_t *changed)
{
	const struct kvi_chunk *chunk = &request->chunk;
	const size_t n = kvi_chunk_bytes(chunk);
	size_t bytes = 0;
	uint8_t *first = NULL, *back = malloc(n);
	for (int i = 0; i < n_coders; i++) {
		struct kvi_encoded e;
		memcpy(changed, raw, n);
		assert_int_equal(kvi_chunk_encode_lossy(coders[i], request, how, changed, &e),
		                 KVARC_OK);
		assert_int_equal(e.codec, KVI_CODEC_NEAR);
		if (!first) {
			bytes = e.payload_bytes;
			first = malloc(bytes);
			memcpy(first, e.payload, bytes);
		}
		assert_int_equal(e.payload_bytes, bytes);
		assert_memory_equal(e.payload, first, bytes);
		struct kvi_params *p = NULL;
		assert_int_equal(kvi_params_parse(&p, &alloc, e.params_codec, chunk->dtype, HEADS,
		                                  CHANNELS, chunk->rope, e.params_content,
		                                  e.params_bytes),
		                 KVARC_OK);
		assert_int_equal(
			decode_payload(coders[i], chunk, e.codec, e.cut, p, first, bytes, back),
			KVARC_OK);
		assert_memory_equal(back, changed, n);
		kvi_params_free(p);
		drop(&e);
	}
	free(first);
	free(back);
	return bytes;
}

static void test_bound(void **state)
{
	static const double errors[] = { 0.003, 0.01, 0.03, 0.1, 0.5, 1 };
	uint8_t raw[4 * TOKENS * C], changed[4 * TOKENS * C];
	(void)state;
	for (size_t d = 0; d < N_DTYPES; d++)
		for (int turns = 0; turns < 2; turns++) {
			struct kvi_encode_request request = request_of(dtypes[d], KVARC_KEY, turns);
			size_t before = SIZE_MAX;
			fill(&request.chunk, raw);
			for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
				kvarc_lossy how = bound(errors[e]);
				double rms;
				size_t n = check(&request, &how, raw, changed);
				double most = off(&request.chunk, raw, changed, &rms);
				assert_true(most <= errors[e] * rms);
				/* by more than a quarter: or it is not used */
				if (kvarc_dtype_bytes(dtypes[d]) > 1)
					assert_true(most >= errors[e] * rms / 4);
				assert_true(n <= before);
				before = n;
			}
		}
}

static void test_keys(void **state)
{
	uint8_t raw[2 * TOKENS * C], changed[2 * TOKENS * C];
	kvarc_lossy how = bound(0.1);
	double rms;
	(void)state;
	how.key_rate = 32;
	for (int kind = KVARC_KEY; kind <= KVARC_VALUE; kind++) {
		struct kvi_encode_request request = request_of(KVARC_F16, kind, false);
		fill(&request.chunk, raw);
		check(&request, &how, raw, changed);
		double most = off(&request.chunk, raw, changed, &rms) / rms;
		assert_true(kind == KVARC_KEY ? most <= 0.025 : most > 0.025 && most <= 0.1);
	}
}

/* Tokens of an f32 number that the lattice does not reach stay exact. */
static void test_refused(void **state)
{
	uint8_t raw[4 * TOKENS * C], changed[4 * TOKENS * C];
	struct kvi_encode_request request = request_of(KVARC_F32, KVARC_VALUE, false);
	kvarc_lossy how = bound(0.001);
	const size_t row = (size_t)4 * C;
	(void)state;
	fill(&request.chunk, raw);
	kvi_store32(raw + 20 * row, 0x4b000001);
	kvi_store32(raw + 33 * row + 8, 0xff7fffff);
	check(&request, &how, raw, changed);
	assert_memory_equal(raw + 20 * row, changed + 20 * row, row);
	assert_memory_equal(raw + 33 * row, changed + 33 * row, row);
	assert_true(memcmp(raw + 34 * row, changed + 34 * row, row));
}

/* All elements of a dtype on all of its lattices: nearest points, ties to even ones, and points are
 * themselves. */
static void test_lattice(void **state)
{
	(void)state;
	for (size_t d = 1; d < N_DTYPES; d++) {
		struct kvi_lattice l;
		const unsigned dtype = dtypes[d];
		const size_t size = kvarc_dtype_bytes(dtype);
		int least = kvi_lattice_exponent(dtype, 0);
		assert_false(kvi_lattice_make(&l, dtype, least - 1));
		assert_false(kvi_lattice_make(&l, dtype, 113));
		for (int F = least; F <= 112; F += d < 3 ? 5 : 1) {
			assert_true(kvi_lattice_make(&l, dtype, F));
			for (uint32_t b = 0; b < 1u << 8 * size; b++) {
				uint8_t e[4], back[4], again[4];
				uint16_t code, same;
				float x, y;
				kvi_store32(e, b);
				if (!kvi_floats_finite(dtype, e, 1))
					continue;
				assert_true(kvi_lattice_codes(&l, e, 1, &code));
				kvi_lattice_elements(&l, &code, 1, back);
				kvi_floats_exact(dtype, e, 1, &x);
				kvi_floats_exact(dtype, back, 1, &y);
				double q = ldexp((double)x, -F);
				double r = ldexp(nearbyint(q), F);
				if ((float)r == (float)r && fabs(r) < 240)
					assert_true(y == (float)r);
				assert_true(fabs((double)x - (double)y) <= ldexp(0.5, F));
				if (fabs((double)y) < 240) {
					assert_true(kvi_lattice_codes(&l, back, 1, &same));
					kvi_lattice_elements(&l, &same, 1, again);
					assert_memory_equal(back, again, size);
				}
			}
		}
	}
}

static void test_exponent(void **state)
{
	(void)state;
	assert_int_equal(kvi_lattice_exponent(KVARC_BF16, 1), 1);
	assert_int_equal(kvi_lattice_exponent(KVARC_BF16, 1.99), 1);
	assert_int_equal(kvi_lattice_exponent(KVARC_BF16, 0.499), -1);
	assert_int_equal(kvi_lattice_exponent(KVARC_F16, 1e-30), -24);
	assert_int_equal(kvi_lattice_exponent(KVARC_F32, 1e-300), -140);
	assert_int_equal(kvi_lattice_exponent(KVARC_F32, 1e38), 112);
}

/* Damaged payloads give an answer, whatever it is. */
static void test_hostile(void **state)
{
	uint8_t raw[4 * TOKENS * C], back[4 * TOKENS * C];
	kvarc_lossy how = bound(0.02);
	(void)state;
	how.exact_tokens = 2;
	for (size_t round = 0; round < 2000; round++) {
		struct kvi_encode_request request = request_of(dtypes[round % N_DTYPES], KVARC_KEY,
		                                               round & 8);
		struct kvi_encoded e;
		fill(&request.chunk, raw);
		assert_int_equal(kvi_chunk_encode_lossy(coders[0], &request, &how, raw, &e),
		                 KVARC_OK);
		uint8_t *payload = malloc(e.payload_bytes);
		size_t n = e.payload_bytes;
		memcpy(payload, e.payload, n);
		for (unsigned i = 0; i <= round % 4; i++)
			payload[rnd() % (round & 1 ? n : 200)] ^= (uint8_t)(1u << rnd() % 8);
		if (round % 3 == 0)
			n = rnd() % n;
		for (int i = 0; i < n_coders; i++) {
			kvarc_ret ret = decode_payload(coders[i], &request.chunk, e.codec, e.cut,
			                               e.params, payload, n, back);
			assert_true(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS);
		}
		free(payload);
		drop(&e);
	}
}

static void test_text(void **state)
{
	static const char *const bad[] = { "near",     "near:",    "near:0",    "near:0.0000001",
		                           "near:1.1", "near:10",  "near:-0.1", "near:0.01x",
		                           "near:.1",  "near:1e-3" };
	kvarc_lossy l;
	kvarc_error e;
	(void)state;
	assert_int_equal(kvarc_lossy_parse(&l, "near:0.0125,keys=+1,exact=7", &e), KVARC_OK);
	assert_int_equal(l.tier, KVARC_TIER_NEAR);
	assert_int_equal(l.params.bound.max_error, 12500000);
	assert_int_equal(l.rate, 0);
	assert_int_equal(l.key_rate, 16);
	assert_int_equal(l.exact_tokens, 7);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kvarc_lossy_parse(&l, bad[i], &e), KVARC_OPTIONS);
	assert_int_equal(kvarc_lossy_parse(&l, "had:4", NULL), KVARC_OK);
	assert_int_equal(l.params.bound.max_error, 0);
	l.params.bound.max_error = 1000000;
	assert_false(kvi_lossy_valid(&l));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bound),    cmocka_unit_test(test_keys),
		cmocka_unit_test(test_refused),  cmocka_unit_test(test_lattice),
		cmocka_unit_test(test_exponent), cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_text),
	};
	return cmocka_run_group_tests(tests, open_lossy, close_coders);
}
