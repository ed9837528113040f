/* SPDX-License-Identifier: BSD-3-Clause */
/* test_codecs.c - chunks in, payloads out and back, good ones and hostile ones */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coders_util.h"
#include "codecs/grid/grid_sets.h"
#include "codecs/mask.h"
#include "kernels/rans.h"
#include "numeric/rope_search.h"
#include "numeric/rotate.h"
#include "random.h"

/* ------------------------------------------------------------- patterns */

enum pattern {
	NORMAL,
	RANDOM_BITS,
	ALL_NAN,
	ZEROS,
	MINUS_ZERO,
	SUBNORMAL,
	DEAD_CHANNELS,
	CONSTANT_ROWS,
	SPECIALS,
	DRIFTING,
	FAR,
	N_PATTERNS
};

static uint32_t from_float(unsigned dtype, float f)
{
	uint32_t b;
	memcpy(&b, &f, 4);
	uint32_t sign = b >> 31;
	int e = (int)(b >> 23 & 255) - 127;
	uint32_t man = b & 0x7fffff;
	switch (dtype) {
	case KVARC_F32:
		return b;
	case KVARC_BF16:
		return b >> 16;
	case KVARC_F16:
		return e < -14 || e > 15 ? sign << 15
		                         : sign << 15 | (uint32_t)(e + 15) << 10 | man >> 13;
	case KVARC_E4M3:
		return e < -6 || e > 7 ? sign << 7 : sign << 7 | (uint32_t)(e + 7) << 3 | man >> 20;
	case KVARC_E5M2:
		return e < -14 || e > 15 ? sign << 7
		                         : sign << 7 | (uint32_t)(e + 15) << 2 | man >> 21;
	default:
		return (uint32_t)(int32_t)(f * 20);
	}
}

static void put(uint8_t *p, size_t size, uint32_t v)
{
	for (size_t i = 0; i < size; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t element(enum pattern p, unsigned dtype, size_t t, size_t c)
{
	size_t size = kvarc_dtype_bytes(dtype);
	uint32_t sign = (uint32_t)1 << (8 * size - 1);
	float mean = (float)(c * 7 % 11) - 5, scale = 1.0f + (float)(c % 3);
	switch (p) {
	case RANDOM_BITS:
		return rnd() << 8 ^ rnd();
	case ALL_NAN:
		return (t + c) % 5 ? sign - 1 : 2 * sign - 1;
	case ZEROS:
		return 0;
	case MINUS_ZERO:
		return (rnd() & 7) ? sign : 0;
	case SUBNORMAL:
		return (rnd() & 3) | (rnd() & 1 ? sign : 0);
	case DEAD_CHANNELS:
		if (c % 3 == 1 || c % 17 == 0)
			return c % 2 ? 0 : sign;
		break;
	case CONSTANT_ROWS:
		if (t % 4 == 2)
			return (uint32_t)(t * 77);
		if (c % 5 == 0)
			return 3;
		break;
	case SPECIALS:
		if (rnd() % 13 == 0)
			return rnd() << 8 ^ rnd();
		if (t == 0)
			return from_float(dtype, 300 * normal());
		break;
	case FAR: /* as biases of keys make channels */
		mean *= c % 2 ? 40 : 1;
		break;
	case DRIFTING:
		scale *= 0.01f * (float)(t + 1);
		break;
	default:
		break;
	}
	return from_float(dtype, mean + scale * normal());
}

static void fill(uint8_t *raw, const struct kvi_chunk *chunk, enum pattern p)
{
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	size_t C = kvi_chunk_channels(chunk);
	for (size_t t = 0; t < chunk->n_tokens; t++)
		for (size_t c = 0; c < C; c++)
			put(raw + (t * C + c) * size, size, element(p, chunk->dtype, t, c));
}

/* ---------------------------------------------------------- round trips */

static void drop(struct kvi_encoded *e)
{
	kvi_params_free(e->params);
	kvi_free(&alloc, e->params_content);
}

/* Decodes with every instruction set, with parameters read from their bytes. */
static void check_chunks(const struct kvi_chunk *chunk, const struct kvi_encoded *e,
                         const struct kvi_params *current, const uint8_t *raw)
{
	size_t n = kvi_chunk_bytes(chunk);
	uint8_t *back = malloc(n), *payload = malloc(e->payload_bytes);
	struct kvi_params *parsed = NULL;
	memcpy(payload, e->payload, e->payload_bytes);
	if (e->params) {
		assert_int_equal(e->params_codec, kvi_codec_params(e->codec));
		assert_int_equal(kvi_params_parse(&parsed, &alloc, e->params_codec, chunk->dtype,
		                                  chunk->heads, chunk->head_channels, chunk->rope,
		                                  e->params_content, e->params_bytes),
		                 KVARC_OK);
		assert_int_equal(kvi_params_rotates(parsed), kvi_params_rotates(e->params));
	}
	for (int i = 0; i < n_coders; i++) {
		memset(back, 0x5a, n);
		const struct kvi_decode_request p = {
			.chunk = *chunk,
			.codec = e->codec,
			.cut = e->cut,
			.params = !e->uses_params ? NULL
			          : parsed        ? parsed
			                          : current,
			.payload = payload,
			.payload_bytes = e->payload_bytes,
		};
		uint64_t raw_check = 0;
		assert_int_equal(kvi_chunk_decode(coders[i], &p, back, &raw_check), KVARC_OK);
		assert_int_equal(raw_check, e->raw_check);
		assert_memory_equal(back, raw, n);
	}
	kvi_params_free(parsed);
	free(payload);
	free(back);
}

/* Encodes with every set: the same bytes. *e is the first one's. */
static void check_encode(const struct kvi_chunk *chunk, int level, const struct kvi_params *current,
                         const uint8_t *raw, struct kvi_encoded *e)
{
	const struct kvi_encode_request request = { .chunk = *chunk,
		                                    .level = level,
		                                    .params = current };
	for (int i = 0; i < n_coders; i++) {
		struct kvi_encoded other;
		assert_int_equal(kvi_chunk_encode(coders[i], &request, raw, i ? &other : e),
		                 KVARC_OK);
		if (!i)
			continue;
		assert_int_equal(other.codec, e->codec);
		assert_int_equal(other.payload_bytes, e->payload_bytes);
		assert_memory_equal(other.payload, e->payload, e->payload_bytes);
		assert_int_equal(other.params_bytes, e->params_bytes);
		if (e->params_bytes)
			assert_memory_equal(other.params_content, e->params_content,
			                    e->params_bytes);
		drop(&other);
	}
	assert_true(e->payload_bytes <= kvi_chunk_bytes(chunk));
}

/* Two chunks in a row: the second may use the parameters of the first. */
static void round_trip(struct kvi_chunk chunk, int level, enum pattern first, enum pattern second)
{
	struct kvi_encoded a, b;
	uint8_t *raw = malloc(kvi_chunk_bytes(&chunk));
	fill(raw, &chunk, first);
	check_encode(&chunk, level, NULL, raw, &a);
	check_chunks(&chunk, &a, NULL, raw);
	fill(raw, &chunk, second);
	check_encode(&chunk, level, a.params, raw, &b);
	check_chunks(&chunk, &b, a.params, raw);
	drop(&a);
	drop(&b);
	free(raw);
}

static const struct codec_shape {
	uint32_t tokens, heads, channels;
} shapes[] = {
	{ 1, 1, 1 },   { 1, 3, 64 },   { 2, 1, 7 },   { 5, 2, 33 },  { 31, 1, 32 },  { 32, 1, 1 },
	{ 33, 5, 12 }, { 64, 1, 100 }, { 97, 1, 31 }, { 256, 1, 1 }, { 255, 2, 24 }, { 256, 3, 64 },
};

static void test_round_trips(void **state)
{
	(void)state;
	for (uint8_t dtype = KVARC_BYTES; dtype <= KVARC_U8; dtype++)
		for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
			for (int p = 0; p < N_PATTERNS; p++) {
				struct kvi_chunk c = { .dtype = dtype,
					               .n_tokens = shapes[s].tokens,
					               .heads = shapes[s].heads,
					               .head_channels = shapes[s].channels };
				int next = (p + dtype) % N_PATTERNS;
				for (int level = 0; level < 2; level++)
					round_trip(c, level, (enum pattern)p, (enum pattern)next);
			}
}

static void test_rotation(void **state)
{
	static const int32_t starts[] = { 0, -100, 1000000, INT32_MAX - 300, INT32_MIN };
	struct kvi_rope r;
	(void)state;
	for (size_t i = 0; i < 5 * 4; i++) {
		int32_t positions[256];
		for (int t = 0; t < 256; t++)
			positions[t] = starts[i / 4] + t;
		assert_true(kvi_rope_make(&r, 1e4, i & 1 ? 64 : 40, i >> 1 & 1));
		kvarc_rope rope = { .pairing = r.pairing, .rotary = r.rotary, .freq = r.freq };
		struct kvi_chunk c = { .dtype = KVARC_BF16,
			               .n_tokens = 200,
			               .heads = 2,
			               .head_channels = 64,
			               .positions = positions,
			               .rope = &rope };
		for (int p = 0; p < N_PATTERNS; p++)
			round_trip(c, 1, (enum pattern)p, NORMAL);
	}
}

/* Keys made by turning a mean: the encoder must see it, and gain. */
static void test_rotation_pays(void **state)
{
	enum { T = 256, D = 64 };
	static uint16_t raw[T * D];
	int32_t positions[T];
	struct kvi_rope r;
	struct kvi_encoded with, without;
	(void)state;
	assert_true(kvi_rope_make(&r, 1e5, D, KVARC_ROPE_HALF));
	kvarc_rope rope = { .pairing = r.pairing, .rotary = r.rotary, .freq = r.freq };
	for (int t = 0; t < T; t++) {
		positions[t] = 500 + t;
		for (uint32_t i = 0; i < D / 2; i++) {
			uint32_t a = kvi_rotate_angle(r.freq[i], positions[t]);
			float c = (float)kvi_cos4096[a] / 16384;
			float s = (float)kvi_cos4096[(a + 3072) & 4095] / 16384;
			float x = 6 + normal(), y = normal() * 0.3f;
			kvi_store16(&raw[t * D + i],
			            (uint16_t)from_float(KVARC_BF16, x * c - y * s));
			kvi_store16(&raw[t * D + i + D / 2],
			            (uint16_t)from_float(KVARC_BF16, y * c + x * s));
		}
	}
	struct kvi_chunk chunk = { .dtype = KVARC_BF16,
		                   .n_tokens = T,
		                   .heads = 1,
		                   .head_channels = D,
		                   .positions = positions,
		                   .rope = &rope };
	check_encode(&chunk, 1, NULL, (const uint8_t *)raw, &with);
	check_chunks(&chunk, &with, NULL, (const uint8_t *)raw);
	assert_true(kvi_params_rotates(with.params));
	size_t bytes = with.payload_bytes;
	chunk.rope = NULL;
	check_encode(&chunk, 1, NULL, (const uint8_t *)raw, &without);
	assert_true(bytes * 10 < without.payload_bytes * 9);
	drop(&with);
	drop(&without);
}

/* What the encoder is expected to choose. */
static void test_choice(void **state)
{
	static const struct {
		enum pattern p;
		uint8_t dtype;
		int level;
		unsigned codec;
	} cases[] = {
		{ NORMAL, KVARC_BF16, 0, KVI_CODEC_LAYERS },
		{ NORMAL, KVARC_BF16, 1, KVI_CODEC_CELLS },
		{ NORMAL, KVARC_F16, 1, KVI_CODEC_CELLS },
		{ NORMAL, KVARC_F32, 1, KVI_CODEC_CELLS },
		{ NORMAL, KVARC_E4M3, 1, KVI_CODEC_GRID },
		{ FAR, KVARC_BF16, 1, KVI_CODEC_GRID },
		{ NORMAL, KVARC_I8, 1, KVI_CODEC_BYTES },
		{ ZEROS, KVARC_F16, 1, KVI_CODEC_CONSTANT },
		{ RANDOM_BITS, KVARC_BF16, 1, KVI_CODEC_RAW },
		{ RANDOM_BITS, KVARC_BYTES, 1, KVI_CODEC_RAW },
		{ ALL_NAN, KVARC_BF16, 1, KVI_CODEC_ZSTD },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kvi_chunk c = {
			.dtype = cases[i].dtype, .n_tokens = 256, .heads = 2, .head_channels = 64
		};
		struct kvi_encoded e;
		uint8_t *raw = malloc(kvi_chunk_bytes(&c));
		fill(raw, &c, cases[i].p);
		check_encode(&c, cases[i].level, NULL, raw, &e);
		assert_int_equal(e.codec, cases[i].codec);
		drop(&e);
		free(raw);
	}
	assert_string_equal(kvi_codec_name(KVI_CODEC_GRID), "grid");
	assert_null(kvi_codec_name(KVI_N_CODECS));
}

/* ------------------------------------------------------------ bad input */

/* Some coded chunk with its parameters, to be damaged. */
struct victim {
	struct kvi_chunk chunk;
	struct kvi_encoded e;
	uint8_t *raw, *payload;
	kvarc_rope rope;
	struct kvi_rope r;
	int32_t positions[256];
};

static void make_victim(struct victim *v, uint8_t dtype, int level, enum pattern p, uint32_t tokens)
{
	assert_true(kvi_rope_make(&v->r, 1e4, 24, 0));
	v->rope = (kvarc_rope){ .pairing = v->r.pairing, .rotary = v->r.rotary, .freq = v->r.freq };
	for (int t = 0; t < 256; t++)
		v->positions[t] = t;
	v->chunk = (struct kvi_chunk){ .dtype = dtype,
		                       .n_tokens = tokens,
		                       .heads = dtype == KVARC_I8 ? 12 : 2,
		                       .head_channels = 24,
		                       .positions = v->positions,
		                       .rope = &v->rope };
	v->raw = malloc(kvi_chunk_bytes(&v->chunk));
	fill(v->raw, &v->chunk, p);
	check_encode(&v->chunk, level, NULL, v->raw, &v->e);
	assert_true(v->e.codec == KVI_CODEC_LAYERS || v->e.params);
	v->payload = malloc(v->e.payload_bytes + 1);
	memcpy(v->payload, v->e.payload, v->e.payload_bytes);
	v->payload[v->e.payload_bytes] = 0;
}

static void free_victim(struct victim *v)
{
	drop(&v->e);
	free(v->raw);
	free(v->payload);
}

static kvarc_ret decode(const struct victim *v, const uint8_t *payload, size_t bytes)
{
	/* exactly as large as it is, for the sanitizers */
	uint8_t *copy = malloc(bytes ? bytes : 1);
	uint8_t *back = malloc(kvi_chunk_bytes(&v->chunk));
	kvarc_ret first = KVARC_OK;
	memcpy(copy, payload, bytes);
	for (int i = 0; i < n_coders; i++) {
		kvarc_ret ret = decode_payload(coders[i], &v->chunk, v->e.codec, v->e.cut,
		                               v->e.params, copy, bytes, back);
		if (!i)
			first = ret;
		assert_int_equal(ret, first);
	}
	free(copy);
	free(back);
	return first;
}

static void damage(struct victim *v)
{
	size_t n = v->e.payload_bytes;
	assert_int_equal(decode(v, v->payload, n), KVARC_OK);
	assert_int_equal(decode(v, v->payload, n + 1), KVARC_DATA);
	for (size_t cut = 0; cut < n; cut += cut < 300 ? 1 : 1 + n / 50)
		assert_int_equal(decode(v, v->payload, cut), KVARC_DATA);
	for (int i = 0; i < 700; i++) {
		size_t at = i < 500 ? (size_t)i / 2 % n : rnd() % n;
		uint8_t old = v->payload[at];
		v->payload[at] = (uint8_t)(i & 1 ? rnd() : old ^ 1u << (rnd() & 7));
		kvarc_ret ret = decode(v, v->payload, n);
		assert_true(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS);
		v->payload[at] = old;
	}
	for (int i = 0; i < 100; i++) {
		size_t bytes = rnd() % n;
		for (size_t j = 0; j < bytes; j++)
			v->payload[j] = (uint8_t)(rnd() >> (i & 15));
		kvarc_ret ret = decode(v, v->payload, bytes);
		assert_true(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS);
	}
}

static void test_damage(void **state)
{
	static const uint8_t dtypes[] = { KVARC_BF16, KVARC_F16,  KVARC_F32,
		                          KVARC_E4M3, KVARC_E5M2, KVARC_I8 };
	(void)state;
	for (size_t d = 0; d < sizeof dtypes; d++)
		for (int level = 0; level < 2; level++)
			for (int p = 0; p < 2; p++) {
				struct victim v;
				make_victim(&v, dtypes[d], level, p ? DEAD_CHANNELS : NORMAL,
				            p ? 255 : 254);
				damage(&v);
				free_victim(&v);
			}
}

/* Chunks of 8 heads of 128 channels: streams of 32 tokens, each with its check. */
static void test_streams(void **state)
{
	static const enum pattern patterns[] = { NORMAL, DEAD_CHANNELS, CONSTANT_ROWS, SPECIALS };
	static const uint32_t tokens[] = { 256, 200, 33 };
	(void)state;
	for (size_t i = 0; i < 2 * 4 * 3; i++) {
		struct kvi_chunk c = { .dtype = KVARC_BF16,
			               .n_tokens = tokens[i / 8],
			               .heads = 8,
			               .head_channels = 128 };
		uint8_t *raw = malloc(kvi_chunk_bytes(&c));
		struct kvi_encoded e;
		fill(raw, &c, patterns[i / 2 % 4]);
		check_encode(&c, (int)(i & 1), NULL, raw, &e);
		check_chunks(&c, &e, NULL, raw);
		assert_true(e.cut.stream_size < KVI_ONE_STREAM || patterns[i / 2 % 4] != NORMAL ||
		            c.n_tokens < 64);
		if (e.cut.stream_size == KVI_ONE_STREAM) {
			drop(&e);
			free(raw);
			continue;
		}
		uint8_t *bad = malloc(e.payload_bytes);
		memcpy(bad, e.payload, e.payload_bytes);
		const struct kvi_decode_request p = { .chunk = c,
			                              .codec = e.codec,
			                              .cut = e.cut,
			                              .params = e.params,
			                              .payload = bad,
			                              .payload_bytes = e.payload_bytes };
		uint64_t check;
		/* the second stream's check, behind the section */
		const size_t table = (e.cut.section_bytes + 15) / 16 * 16;
		bad[table + 8] ^= 1;
		assert_int_equal(kvi_chunk_decode(coders[0], &p, raw, NULL), KVARC_OK);
		assert_int_equal(kvi_chunk_decode(coders[0], &p, raw, &check), KVARC_DATA);
		free(bad);
		free(raw);
		drop(&e);
	}
}

/* Keys and values of a layer of 1024 tokens, 8 heads of 128 channels: 64 streams or more. */
static void test_parallel(void **state)
{
	(void)state;
	for (int level = 0; level < 2; level++) {
		unsigned streams = 0;
		for (unsigned chunk = 0; chunk < 2 * 1024 / 256; chunk++) {
			struct kvi_chunk c = { .dtype = KVARC_BF16,
				               .n_tokens = 256,
				               .heads = 8,
				               .head_channels = 128 };
			uint8_t *raw = malloc(kvi_chunk_bytes(&c));
			struct kvi_encoded e;
			fill(raw, &c, NORMAL);
			check_encode(&c, level, NULL, raw, &e);
			streams += 8u >> e.cut.stream_size;
			free(raw);
			drop(&e);
		}
		assert_true(streams >= 64);
	}
}

/* One field at a time is wrong. */
static void test_rules(void **state)
{
	struct victim v;
	uint8_t *raw;
	(void)state;
	make_victim(&v, KVARC_BF16, 1, NORMAL, 254);
	raw = malloc(kvi_chunk_bytes(&v.chunk));
	size_t n = v.e.payload_bytes;
	enum { TABLE = 16 };
	v.payload[0] = 4; /* reserved mask flag */
	assert_int_equal(decode(&v, v.payload, n), KVARC_DATA);
	v.payload[0] = 0;
	memset(v.payload + TABLE + 12, 0, 4); /* a state below 2^16 */
	assert_int_equal(decode(&v, v.payload, n), KVARC_DATA);

	/* streams, parameters, codec, dtype */
	struct kvi_coder *c = coders[0];
	const uint8_t *p = v.payload;
	const struct kvi_chunk_cut one = v.e.cut, two = { 2, 1 }, longer = { 3, 2 };
#define ANSWER(codec, cut, params, n) decode_payload(c, &v.chunk, codec, cut, params, p, n, raw)
	assert_int_equal(ANSWER(KVI_CODEC_CELLS, two, v.e.params, n), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_CODEC_CELLS, longer, v.e.params, n), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_CODEC_CELLS, one, NULL, n), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_CODEC_GRID, one, v.e.params, n), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_CODEC_LAYERS, one, v.e.params, n), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_CODEC_RAW, two, NULL, n), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_CODEC_RAW, no_streams, NULL, n), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_CODEC_CONSTANT, no_streams, NULL, 1), KVARC_DATA);
	assert_int_equal(ANSWER(KVI_N_CODECS, no_streams, NULL, n), KVARC_OPTIONS);
	assert_int_equal(ANSWER(KVI_CODEC_LINEAR, one, NULL, n), KVARC_PREDICTOR);
	v.chunk.n_tokens = 257;
	assert_int_equal(ANSWER(KVI_CODEC_RAW, no_streams, NULL, n), KVARC_PROG);
#undef ANSWER
	v.chunk.n_tokens = 254;
	free(raw);
	free_victim(&v);
}

static kvarc_ret parse(const struct victim *v, const uint8_t *content, size_t bytes,
                       const kvarc_rope *rope)
{
	uint8_t *copy = malloc(bytes ? bytes : 1);
	struct kvi_params *p;
	memcpy(copy, content, bytes);
	kvarc_ret ret = kvi_params_parse(&p, &alloc, v->e.params_codec, v->chunk.dtype,
	                                 v->chunk.heads, v->chunk.head_channels, rope, copy, bytes);
	assert_true(ret == KVARC_OK ? p != NULL : p == NULL);
	kvi_params_free(p);
	free(copy);
	return ret;
}

/* A mask section has one form: flags, bitmaps with a bit and no padding but zeros, a value each. */
static void test_mask_sections(void **state)
{
	struct kvi_mask_run runs[8];
	uint8_t section[] = { 3, 0x81, 1, 7, 8, 9, 0x04, 5 };
	struct kvi_mask m = { .T = 5, .C = 10, .size = 1, .runs = runs };
	struct kvi_in in = kvi_in_make(section, sizeof section);
	(void)state;
	assert_true(kvi_mask_parse(&m, &in));
	assert_int_equal(kvi_in_remaining(&in), 0);
	assert_int_equal(m.rows, 4);
	assert_int_equal(m.channels, 7);
	static const struct {
		size_t at;
		uint8_t byte;
	} wrong[] = { { 0, 7 }, { 2, 1 | 4 }, { 2, 0x81 }, { 6, 0x24 }, { 6, 0 } };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		const uint8_t was = section[wrong[i].at];
		section[wrong[i].at] = wrong[i].byte;
		in = kvi_in_make(section, sizeof section);
		assert_false(kvi_mask_parse(&m, &in));
		section[wrong[i].at] = was;
	}
	for (size_t n = 0; n < sizeof section; n++) {
		in = kvi_in_make(section, n);
		assert_false(kvi_mask_parse(&m, &in));
	}
}

static void test_params(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct victim v;
		make_victim(&v, i ? KVARC_I8 : KVARC_BF16, 1, NORMAL, 254);
		uint8_t *content = v.e.params_content;
		size_t n = v.e.params_bytes;
		for (size_t cut = 0; cut < n; cut++)
			assert_int_equal(parse(&v, content, cut, &v.rope), KVARC_DATA);
		for (int j = 0; j < 3000; j++) {
			size_t at = rnd() % n;
			uint8_t old = content[at];
			content[at] = (uint8_t)rnd();
			kvarc_ret ret = parse(&v, content, n, &v.rope);
			assert_true(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS);
			content[at] = old;
		}
		for (int j = 0; j < 300; j++) {
			size_t bytes = rnd() % n;
			for (size_t k = 0; k < bytes; k++)
				content[k] = (uint8_t)rnd();
			assert_int_not_equal(parse(&v, content, bytes, &v.rope), KVARC_OK);
		}
		free_victim(&v);
	}
}

/* The rules of codecs/grid.md 1, one at a time. */
static void test_grid_params(void **state)
{
	enum { C = 48 };
	struct victim v;
	(void)state;
	make_victim(&v, KVARC_BF16, 1, NORMAL, 254);
	uint8_t *content = v.e.params_content;
	size_t n = v.e.params_bytes;
	assert_int_equal(n, 1 + C * 5);
	content[0] = 1;
	assert_int_equal(parse(&v, content, n, &v.rope), KVARC_OK);
	assert_int_equal(parse(&v, content, n, NULL), KVARC_DATA);
	content[0] = 2;
	assert_int_equal(parse(&v, content, n, &v.rope), KVARC_DATA);
	content[0] = 0;
	assert_int_equal(parse(&v, content, n, NULL), KVARC_OK);
	content[1] = KVI_GRID_SETS;
	assert_int_equal(parse(&v, content, n, NULL), KVARC_OPTIONS);
	content[1] = 0;
	content[1 + C] = 401 & 255; /* k of channel 0 */
	content[1 + 2 * C] = 401 >> 8;
	assert_int_equal(parse(&v, content, n, NULL), KVARC_DATA);
	content[1 + C] = 400 & 255;
	assert_int_equal(parse(&v, content, n, NULL), KVARC_OK);
	free_victim(&v);
}

/* ----------------------------------------------------- memory and tables */

struct codec_failing {
	long left; /* allocations until the failing one */
};

static void *failing_alloc(void *opaque, size_t bytes)
{
	struct codec_failing *f = opaque;
	return f->left-- > 0 ? malloc(bytes) : NULL;
}

static void failing_free(void *opaque, void *p)
{
	(void)opaque;
	free(p);
}

/* Every allocation fails once: a code, no crash, no leak. */
static void test_no_memory(void **state)
{
	(void)state;
	for (int v = 0; v < 12; v++) {
		struct kvi_chunk c = { .dtype = (uint8_t)(KVARC_F32 + v % 6),
			               .n_tokens = 70,
			               .heads = 1,
			               .head_channels = 65 };
		uint8_t *raw = malloc(kvi_chunk_bytes(&c));
		const struct kvi_encode_request request = { .chunk = c, .level = v / 6 };
		fill(raw, &c, v & 1 ? DEAD_CHANNELS : NORMAL);
		kvarc_ret ret = KVARC_MEM;
		for (long n = 0; ret; n++) {
			struct codec_failing f = { n };
			kvarc_allocator user = { .alloc = failing_alloc,
				                 .free = failing_free,
				                 .opaque = &f };
			struct kvi_alloc a;
			struct kvi_coder *coder = NULL;
			struct kvi_encoded e = { 0 };
			kvi_alloc_init(&a, &user, 0);
			ret = kvi_coder_open(&coder, &a, tables, 0);
			if (!ret)
				ret = kvi_chunk_encode(coder, &request, raw, &e);
			assert_true(ret == KVARC_OK || ret == KVARC_MEM);
			kvi_params_free(e.params);
			kvi_free(&a, e.params_content);
			kvi_coder_close(coder);
			assert_int_equal(a.used, 0);
		}
		free(raw);
	}
}

/* A chunk of 1 MiB needs little more than itself in scratch memory. */
static void test_scratch(void **state)
{
	(void)state;
	for (uint8_t dtype = KVARC_BYTES; dtype <= KVARC_U8; dtype++)
		for (int level = 0; level < 2; level++) {
			uint32_t size = (uint32_t)kvarc_dtype_bytes(dtype);
			struct kvi_chunk c = { .dtype = dtype,
				               .n_tokens = 256,
				               .heads = 8,
				               .head_channels = 512 / size };
			const struct kvi_encode_request request = { .chunk = c, .level = level };
			struct kvi_alloc a;
			struct kvi_coder *coder;
			struct kvi_encoded e;
			uint8_t *raw = malloc(kvi_chunk_bytes(&c));
			fill(raw, &c, NORMAL);
			kvi_alloc_init(&a, NULL, 0);
			assert_int_equal(kvi_coder_open(&coder, &a, tables, 0), KVARC_OK);
			assert_int_equal(kvi_chunk_encode(coder, &request, raw, &e), KVARC_OK);
			assert_int_equal(decode_payload(coder, &c, e.codec, e.cut, e.params,
			                                e.payload, e.payload_bytes, raw),
			                 KVARC_OK);
			kvi_params_free(e.params);
			kvi_free(&a, e.params_content);
			kvi_coder_close(coder);
			free(raw);
			/* elements of one byte are widened on the way */
			assert_true(a.peak < (uint64_t)(size == 1 ? 13 : 8) << 20);
		}
}

/* The arrays of the library are the numbers of the specification. */
static void check_table(const char *name, const void *array, size_t n,
                        int (*at)(const void *, size_t))
{
	const char *dir = getenv("srcdir");
	char path[512], line[4096];
	size_t i = 0;
	snprintf(path, sizeof path, "%s/spec/tables/%s", dir ? dir : ".", name);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		char *p = line, *end;
		if (*p == '#')
			continue;
		for (long v = strtol(p, &end, 10); end != p; p = end, v = strtol(p, &end, 10)) {
			assert_true(i < n);
			assert_int_equal(v, at(array, i));
			i++;
		}
	}
	fclose(f);
	assert_int_equal(i, n);
}

static int at_i8(const void *p, size_t i)
{
	return ((const int8_t *)p)[i];
}
static int at_i16(const void *p, size_t i)
{
	return ((const int16_t *)p)[i];
}
static int at_u16(const void *p, size_t i)
{
	return ((const uint16_t *)p)[i];
}

static void test_tables(void **state)
{
	(void)state;
	check_table("cos4096.txt", kvi_cos4096, 4096, at_i16);
	check_table("rot.txt", kvi_rot_scale, 65 * 64, at_i8);
	check_table("grid-set-0.txt", kvi_grid_set_0, KVI_GRID_TABLES * KVI_GRID_SYMBOLS, at_u16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),   cmocka_unit_test(test_rotation),
		cmocka_unit_test(test_rotation_pays), cmocka_unit_test(test_choice),
		cmocka_unit_test(test_damage),        cmocka_unit_test(test_rules),
		cmocka_unit_test(test_streams),       cmocka_unit_test(test_parallel),
		cmocka_unit_test(test_params),        cmocka_unit_test(test_grid_params),
		cmocka_unit_test(test_no_memory),     cmocka_unit_test(test_scratch),
		cmocka_unit_test(test_tables),        cmocka_unit_test(test_mask_sections),
	};
	return cmocka_run_group_tests(tests, open_coders, close_coders);
}
