/* SPDX-License-Identifier: BSD-3-Clause */
/* test_state.c - the codec of states: with and without a reference, and hostile input */
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

enum { SEQUENCE = 77, OFFSET = 4096, MOST = 256 * 128 * 4 };

static uint8_t raw[MOST], before[MOST], again[MOST], payload[2 * MOST];

static const uint8_t floats[] = { KVARC_F32, KVARC_F16, KVARC_BF16, KVARC_E4M3, KVARC_E5M2 };

/* A request for a state of some rows and columns. */
static struct kvi_encode_request state_of(uint8_t dtype, uint32_t rows, uint32_t channels)
{
	return (struct kvi_encode_request){ .chunk = { .dtype = dtype,
		                                       .n_tokens = rows,
		                                       .heads = 1,
		                                       .head_channels = channels },
		                            .kind = KVARC_RECURRENT_STATE,
		                            .level = 1 };
}

/* The request may refer to `before`. */
static void set_before(struct kvi_encode_request *request)
{
	request->before = before;
	request->before_sequence = SEQUENCE;
	request->before_offset = OFFSET;
}

/* A state whose rows, and columns of each 64 rows, have scales; `left` of the one before is left.
 */
static void fill(const struct kvi_chunk *c, float left)
{
	static const float scales[] = { 0.01f, 0.1f, 1, 8, 30 };
	const size_t C = c->head_channels, size = kvarc_dtype_bytes(c->dtype);
	for (size_t i = 0; i < c->n_tokens * C; i++) {
		size_t row = i / C, column = i % C;
		float s = scales[row % 5] * scales[(column + row / 64) % 5] * 0.05f, old = normal(),
		      now = left * old + (1 - left) * normal();
		old *= s;
		now *= s;
		kvi_floats_store(c->dtype, &old, 1, before + i * size);
		kvi_floats_store(c->dtype, &now, 1, raw + i * size);
	}
}

/* Writes over some elements what numbers can be, and constant rows and columns. */
static void add_specials(const struct kvi_chunk *c)
{
	const size_t C = c->head_channels, size = kvarc_dtype_bytes(c->dtype);
	const size_t n = c->n_tokens * C;
	for (size_t i = 0; i < n; i += 1 + rnd() % 7) {
		static const uint8_t top[] = { 0x7f, 0xff, 0x80, 0x00, 0x7e, 0xfe, 0x7d };
		uint8_t *at = (rnd() & 1 ? raw : before) + i * size;
		for (size_t k = 0; k < size; k++)
			at[k] = (uint8_t)(rnd() % 3 ? rnd() : 0);
		at[size - 1] = top[rnd() % sizeof top];
	}
	if (rnd() & 1)
		memset(raw + rnd() % c->n_tokens * C * size, 0, C * size);
	size_t column = rnd() % C;
	for (size_t i = 0; i < c->n_tokens; i++)
		memset(raw + (i * C + column) * size, 0x21, size);
}

/* Encodes with every instruction set, which have to agree; leaves the payload of the first. */
static struct kvi_encoded encode(const struct kvi_encode_request *request)
{
	struct kvi_encoded first = { 0 };
	for (int i = 0; i < n_coders; i++) {
		struct kvi_encoded e;
		assert_int_equal(kvi_chunk_encode(coders[i], request, raw, &e), KVARC_OK);
		if (i) {
			assert_int_equal(e.payload_bytes, first.payload_bytes);
			assert_memory_equal(e.payload, payload, e.payload_bytes);
		} else {
			first = e;
			assert_true(e.payload_bytes <= sizeof payload);
			memcpy(payload, e.payload, e.payload_bytes);
		}
		kvi_params_free(e.params);
		kvi_free(&alloc, e.params_content);
	}
	first.payload = payload;
	first.params = NULL;
	return first;
}

static void decodes(const struct kvi_encode_request *request, const struct kvi_encoded *e)
{
	const struct kvi_decode_request p = decode_of(request, e, payload);
	const size_t n = kvi_chunk_bytes(&request->chunk);
	for (int i = 0; i < n_coders; i++) {
		uint64_t check;
		memset(again, 0x5a, n);
		assert_int_equal(kvi_chunk_decode(coders[i], &p, again, &check), KVARC_OK);
		assert_memory_equal(again, raw, n);
		assert_true(check == e->raw_check);
	}
}

static void test_round_trip(void **state)
{
	static const uint32_t rows[] = { 5, 33, 64, 100, 200, 256 };
	(void)state;
	for (size_t d = 0; d < sizeof floats; d++)
		for (int round = 0; round < 48; round++) {
			struct kvi_encode_request c = state_of(floats[d], rows[round % 6],
			                                       round % 5 ? 16u + rnd() % 112 : 128);
			fill(&c.chunk, (float)(round % 3) * 0.45f);
			if (round & 1)
				add_specials(&c.chunk);
			if (round & 2)
				set_before(&c);
			struct kvi_encoded e = encode(&c);
			if (e.codec == KVI_CODEC_STATE)
				decodes(&c, &e);
			else
				assert_true(c.chunk.n_tokens < 64 ||
				            kvarc_dtype_bytes(c.chunk.dtype) < 4 || round & 1);
		}
}

/* What it is for: against the rows of the grid, and against the state alone. */
static void test_sizes(void **state)
{
	struct kvi_encode_request c = state_of(KVARC_F32, 256, 128);
	(void)state;
	fill(&c.chunk, 0.9f);
	c.kind = KVARC_VALUE;
	struct kvi_encoded grid = encode(&c);
	c.kind = KVARC_RECURRENT_STATE;
	struct kvi_encoded alone = encode(&c);
	assert_int_equal(alone.codec, KVI_CODEC_STATE);
	assert_false(alone.refers);
	assert_int_equal(payload[16], 63); /* the rows of a group, less 1 */
	assert_true(alone.payload_bytes < grid.payload_bytes * 96 / 100);
	set_before(&c);
	struct kvi_encoded refers = encode(&c);
	uint64_t sequence, offset;
	assert_true(refers.refers);
	assert_true(refers.payload_bytes < alone.payload_bytes * 92 / 100);
	assert_true(kvi_state_reference(payload, refers.payload_bytes, &sequence, &offset));
	assert_true(sequence == SEQUENCE && offset == OFFSET);
	decodes(&c, &refers);
	/* another state of which nothing is left */
	fill(&c.chunk, 0);
	assert_false(encode(&c).refers);
}

/* Without the reference nothing comes out, and with another one something else. */
static void test_reference(void **state)
{
	struct kvi_encode_request c = state_of(KVARC_BF16, 128, 64);
	(void)state;
	fill(&c.chunk, 0.8f);
	set_before(&c);
	struct kvi_encoded e = encode(&c);
	assert_true(e.refers);
	struct kvi_decode_request p = decode_of(&c, &e, payload);
	uint64_t check;
	p.before = NULL;
	assert_int_equal(kvi_chunk_decode(coders[0], &p, again, &check), KVARC_DATA);
	before[1] ^= 0x40;
	p.before = before;
	kvarc_ret ret = kvi_chunk_decode(coders[0], &p, again, &check);
	assert_true(ret == KVARC_DATA || memcmp(again, raw, kvi_chunk_bytes(&c.chunk)));
}

/* Whatever the payload says, the answer is an error or some elements. */
static void test_hostile(void **state)
{
	(void)state;
	for (int round = 0; round < 4000; round++) {
		struct kvi_encode_request c = state_of(floats[rnd() % 2 * 2], 70, 40);
		static struct kvi_encoded e;
		if (round % 50 == 0) {
			c.chunk.dtype = floats[round / 50 % 5];
			fill(&c.chunk, 0.7f);
			set_before(&c);
			e = encode(&c);
			if (e.codec != KVI_CODEC_STATE)
				continue;
		}
		static uint8_t bad[sizeof payload];
		memcpy(bad, payload, e.payload_bytes);
		size_t bytes = rnd() % 4 ? e.payload_bytes : rnd() % (e.payload_bytes + 1);
		for (unsigned k = 1 + rnd() % 3; k && bytes; k--)
			bad[rnd() % 3 ? rnd() % bytes : rnd() % (bytes < 900 ? bytes : 900)] ^=
				(uint8_t)(1 << rnd() % 8);
		struct kvi_decode_request p = decode_of(&c, &e, bad);
		p.codec = KVI_CODEC_STATE;
		p.payload_bytes = bytes;
		p.before = rnd() & 1 ? before : NULL;
		for (int i = 0; i < n_coders; i++) {
			uint64_t check;
			kvarc_ret ret = kvi_chunk_decode(coders[i], &p, again, &check);
			assert_true(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_hostile),
	};
	return cmocka_run_group_tests(tests, open_coders, close_coders);
}
