/* SPDX-License-Identifier: BSD-3-Clause */
/* test_model_codec.c - codec 8: tensors near and far from what is expected, there and back */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coders_util.h"
#include "profile/expect.h"
#include "numeric/formats.h"
#include "profile/profile_internal.h"
#include "util/bytes.h"
#include "random.h"

enum { N_TENSORS = 2, CHECK = 8 };

/* --------------------------------------------------------------- worlds */

/* How elements are made. HOLES: near what is expected, but for one that is no number. */
enum model_pattern { NEAR, CONSTANT, FAR, ANY, HOLES, PATTERNS };

/* A key and a value of one layer, what is expected of them, and a profile. */
struct model_world {
	struct kvi_profile *profile;
	kvarc_rope rope;
	uint64_t freq[32];
	unsigned dtype, level;
	enum model_pattern pattern;
	uint32_t n_tokens, heads;
	int32_t positions[256];
	int step, noise; /* of all slots: 2^step, 2^noise */
	struct kvi_chunk chunk[N_TENSORS];
	struct kvi_linear_in in[N_TENSORS];
	struct kvi_features *features[N_TENSORS];
	int16_t *expected[N_TENSORS];
	uint8_t *raw[N_TENSORS];
};

static void small_run(void *ctx, int16_t *p, size_t n)
{
	(void)ctx;
	for (size_t i = 0; i < n; i++)
		p[i] = (int16_t)between(-100, 100);
}

static void random_model(struct model_world *w, unsigned kind)
{
	static const uint32_t channels[] = { 1, 3, 8, 9, 16, 23, 32, 47, 64 };
	struct kvi_profile *p = w->profile;
	struct kvi_model *m = &p->models[kind];
	p->n_models = kind + 1;
	m->level = (uint8_t)w->level;
	m->kind = (uint8_t)kind;
	m->heads = w->heads;
	m->head_channels = channels[below(9)];
	m->rope = m->head_channels >= w->rope.rotary && kind == KVARC_KEY;
	m->flags = (uint8_t)below(8);
	if (!(m->flags & KVI_MODEL_SELF))
		m->flags &= ~KVI_MODEL_SELF_HEAD & 0xff;
	if (kind && below(4))
		m->same[m->n_same++].scope = (uint8_t)below(2);
	if (m->flags & KVI_MODEL_SCALE) {
		m->n0 = (uint8_t)between(20, 255);
		m->beta = kind ? (uint8_t)below(17) : 0;
	}
	assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
	for (size_t c = 0; c < m->C; c++) {
		m->step[c] = (int16_t)w->step;
		m->k[c] = (int16_t)(4 * w->noise);
		m->mean[c] = between(-30, 30);
		if (!m->b_stride)
			continue;
		m->qb[c] = 16;
		kvi_model_row_b(m, c, small_run, NULL);
	}
}

static uint32_t from_float(unsigned dtype, float f)
{
	uint32_t b;
	memcpy(&b, &f, 4);
	uint32_t sign = b >> 31, man = b & 0x7fffff;
	const struct kvi_float_format *fmt = kvi_float_format(dtype);
	int m = (int)fmt->mant_bits, bits = (int)fmt->exp_bits;
	int e = (int)(b >> 23 & 255) - 127 + (1 << (bits - 1)) - 1;
	if (e < 1)
		e = (int)(man = 0);
	return sign << (bits + m) | (uint32_t)e << m | man >> (23 - m);
}

static void put(const struct model_world *w, size_t i, size_t t, size_t c, uint32_t v)
{
	size_t size = kvarc_dtype_bytes(w->dtype);
	uint8_t *to = w->raw[i] + (t * kvi_chunk_channels(&w->chunk[i]) + c) * size;
	for (size_t b = 0; b < size; b++)
		to[b] = (uint8_t)(v >> 8 * b);
}

/* Values of the slots of one head of a token, turned where they turn. */
static void put_head(const struct model_world *w, size_t i, size_t t, size_t head, float *x,
                     const struct kvi_rotations *turns)
{
	const struct kvi_model *m = w->in[i].model;
	for (size_t s = 0; s < m->rotary; s += 2) {
		const int16_t *turn = turns->turn + 2 * (s / 2 * turns->tokens_capacity + t);
		float c = (float)turn[0] / 16384, n = (float)turn[1] / 16384;
		float a = x[s], b = x[s + 1];
		x[s] = a * c - b * n;
		x[s + 1] = b * c + a * n;
	}
	for (size_t s = 0; s < m->head_channels; s++) {
		size_t c = head * m->head_channels + kvi_slot_channel(m, &w->rope, s);
		uint32_t v = from_float(w->dtype, x[s]);
		if (w->pattern == CONSTANT && c % 3 == 1)
			v = c % 2 ? from_float(w->dtype, 1.5f) : 0;
		if (w->pattern == ANY)
			v = rnd() << 8 ^ rnd();
		put(w, i, t, c, v);
	}
}

static float unit(int e)
{
	float f = 1;
	for (; e; e += e < 0 ? 1 : -1)
		f *= e < 0 ? 0.5f : 2.0f;
	return f;
}

static void fill(struct model_world *w, size_t i)
{
	const struct kvi_model *m = w->in[i].model;
	struct kvi_rotations turns;
	void *buffer = malloc(kvi_rotations_bytes(32, w->n_tokens));
	float x[64];
	assert_non_null(buffer);
	if (m->rotary)
		kvi_rotations_make(&turns, buffer, &w->rope, w->positions, w->n_tokens);
	for (size_t t = 0; t < w->n_tokens; t++)
		for (size_t c = 0; c < m->C; c++) {
			int16_t *e = w->expected[i] + t * m->C + c;
			size_t s = c % m->head_channels;
			*e = (int16_t)between(-2000, 2000);
			x[s] = (float)(m->mean[c] + *e) * unit(w->step) + normal() * unit(w->noise);
			if (below(200) == 0) /* and mean: over the limit */
				*e = below(2) ? 32767 : -32767;
			if (w->pattern == FAR)
				*e = (int16_t)between(-32767, 32767);
			if (s == m->head_channels - 1)
				put_head(w, i, t, c / m->head_channels, x, &turns);
		}
	free(buffer);
	if (w->pattern != HOLES)
		return;
	uint32_t nan = w->dtype == KVARC_E4M3 ? 0xff : 0x7fffffff;
	if (w->dtype != KVARC_E4M3)
		nan >>= 32 - 8 * kvarc_dtype_bytes(w->dtype);
	put(w, i, below(w->n_tokens), below((uint32_t)m->C), nan);
}

static void make_rope(struct model_world *w)
{
	w->rope.pairing = below(2) ? KVARC_ROPE_HALF : KVARC_ROPE_INTERLEAVED;
	w->rope.rotary = 2 * (1 + below(12));
	w->rope.freq = w->freq;
	for (unsigned i = 0; i < 32; i++)
		w->freq[i] = ((uint64_t)rnd() << 31 ^ rnd()) >> below(40);
	w->profile->n_ropes = 1;
	w->profile->ropes = kvi_calloc(&alloc, 1, sizeof *w->profile->ropes);
	w->profile->ropes->rotary = w->rope.rotary;
	w->profile->ropes->freq = kvi_calloc(&alloc, w->rope.rotary / 2, 8);
	assert_non_null(w->profile->ropes->freq);
}

/* What the stream gives a codec for tensor i. */
static void connect(struct model_world *w, size_t i)
{
	struct kvi_linear_in *in = &w->in[i];
	const struct kvi_model *m = &w->profile->models[i];
	assert_int_equal(kvi_features_open(&w->features[i], &alloc, m, w->n_tokens), KVARC_OK);
	assert_null(w->features[i]->z);
	w->expected[i] = malloc(m->C * w->n_tokens * sizeof **w->expected);
	assert_non_null(w->expected[i]);
	*in = (struct kvi_linear_in){
		.model = m,
		.dtype = (uint8_t)w->dtype,
		.n_tokens = w->n_tokens,
		.positions = w->positions,
		.rope = m->rope ? &w->rope : NULL,
		.same = { i ? w->features[0] : NULL },
		.scale = m->scale_source ? w->features[0] : NULL,
		.expected = w->expected[i],
	};
	w->chunk[i] = (struct kvi_chunk){
		.dtype = (uint8_t)w->dtype,
		.n_tokens = w->n_tokens,
		.heads = m->heads,
		.head_channels = m->head_channels,
		.positions = w->positions,
		.rope = in->rope,
		.linear = in,
		.features = w->features[i],
	};
	w->raw[i] = malloc(kvi_chunk_bytes(&w->chunk[i]));
	assert_non_null(w->raw[i]);
	fill(w, i);
}

static void make_world(struct model_world *w, unsigned round)
{
	static const uint32_t tokens[] = { 5, 31, 32, 33, 95, 96, 255, 256 };
	static const unsigned dtypes[] = { KVARC_BF16, KVARC_F16, KVARC_F32, KVARC_E4M3 };
	*w = (struct model_world){ .level = 4 + round % 4,
		                   .heads = 1 + below(4),
		                   .n_tokens = tokens[below(8)],
		                   .dtype = dtypes[round / 4 % 4],
		                   .pattern = (enum model_pattern)(round % PATTERNS),
		                   .step = between(-10, -8),
		                   .noise = -5 };
	int32_t at = (int32_t)below(100000);
	for (uint32_t t = 0; t < w->n_tokens; t++)
		w->positions[t] = below(50) ? at++ : (int32_t)rnd();
	assert_int_equal(kvi_profile_new(&w->profile, &alloc), KVARC_OK);
	w->profile->models = kvi_calloc(&alloc, N_TENSORS, sizeof *w->profile->models);
	assert_non_null(w->profile->models);
	make_rope(w);
	for (unsigned i = 0; i < N_TENSORS; i++)
		random_model(w, i);
	assert_int_equal(kvi_profile_finish(w->profile), KVARC_OK);
	for (size_t i = 0; i < N_TENSORS; i++)
		connect(w, i);
}

static void free_world(struct model_world *w)
{
	for (size_t i = 0; i < N_TENSORS; i++) {
		kvi_features_close(w->features[i], &alloc);
		free(w->raw[i]);
		free(w->expected[i]);
	}
	kvi_profile_free(w->profile);
}

/* ---------------------------------------------------------- round trips */

/* r, then w and n. */
static uint8_t *features_copy(const struct model_world *w, size_t i, size_t *bytes)
{
	const struct kvi_model *m = w->in[i].model;
	const struct kvi_features *f = w->features[i];
	size_t n = m->heads * kvi_head_stride(m) * f->tokens_capacity * 2;
	*bytes = n + 4 * f->tokens_capacity + 4;
	uint8_t *all = malloc(*bytes);
	assert_non_null(all);
	memcpy(all, f->r, n);
	memcpy(all + n, f->w, 4 * f->tokens_capacity);
	memcpy(all + n + 4 * f->tokens_capacity, &f->n, 4);
	return all;
}

static void spoil_features(const struct model_world *w, size_t i)
{
	const struct kvi_model *m = w->in[i].model;
	struct kvi_features *f = w->features[i];
	memset(f->r, 0x55, m->heads * kvi_head_stride(m) * f->tokens_capacity * 2);
	memset(f->w, 0x55, 4 * f->tokens_capacity);
	f->n = 0x55;
}

static void features_are(const struct model_world *w, size_t i, const uint8_t *wanted)
{
	size_t n;
	uint8_t *got = features_copy(w, i, &n);
	assert_memory_equal(got, wanted, n);
	free(got);
}

static void drop(struct kvi_encoded *e)
{
	kvi_params_free(e->params);
	kvi_free(&alloc, e->params_content);
}

static void decode_all(struct model_world *w, size_t i, const struct kvi_encoded *e,
                       const uint8_t *payload, const uint8_t *features)
{
	size_t n = kvi_chunk_bytes(&w->chunk[i]);
	uint8_t *back = malloc(n);
	assert_non_null(back);
	for (int k = 0; k < n_coders; k++) {
		memset(back, 0xaa, n);
		spoil_features(w, i);
		assert_int_equal(decode_payload(coders[k], &w->chunk[i], e->codec, e->cut,
		                                e->params, payload, e->payload_bytes, back),
		                 KVARC_OK);
		assert_memory_equal(back, w->raw[i], n);
		features_are(w, i, features);
	}
	free(back);
}

/* A payload of codec 8 as other codec, in other circumstances, and damaged. */
static void refuse(struct model_world *w, size_t i, struct kvi_chunk_cut cut,
                   const uint8_t *payload, size_t n)
{
	struct kvi_chunk_cut less = cut, more = cut;
	uint8_t *bad = malloc(n);
	uint8_t *back = calloc(1, kvi_chunk_bytes(&w->chunk[i]));
	struct kvi_linear_in in = w->in[i];
	struct kvi_chunk chunk = w->chunk[i];
	const size_t all = kvi_chunk_channels(&chunk) * chunk.n_tokens;
	chunk.features = NULL;
	chunk.linear = &in;
	assert_true(bad && back);
	less.section_bytes -= CHECK;
	more.section_bytes++;
#define ANSWER(codec, cut, p, bytes) \
	decode_payload(coders[0], &chunk, codec, cut, NULL, p, bytes, back)
	assert_int_equal(ANSWER(8, cut, payload, n), KVARC_OK);
	assert_int_equal(ANSWER(8, more, payload, n), KVARC_DATA);
	assert_int_equal(ANSWER(7, cut, payload, n), KVARC_DATA);
	assert_int_equal(ANSWER(7, less, payload + CHECK, n - CHECK), KVARC_DATA);
	assert_int_equal(ANSWER(8, cut, payload, CHECK - 1), KVARC_DATA);
	for (int round = 0; round < 3; round++) {
		memcpy(bad, payload, n);
		bad[below(CHECK)] ^= (uint8_t)(1 << below(8));
		assert_int_equal(ANSWER(8, cut, bad, n), KVARC_PREDICTOR);
		memcpy(bad, payload, n);
		bad[CHECK + below((uint32_t)n - CHECK)] ^= (uint8_t)(1 << below(8));
		kvarc_ret ret = ANSWER(8, cut, bad, n);
		assert_true(ret == KVARC_OK || ret == KVARC_DATA);
		ret = ANSWER(8, cut, payload, CHECK + below((uint32_t)n - CHECK));
		assert_int_equal(ret, KVARC_DATA);
	}
	size_t at = below((uint32_t)all);
	w->expected[i][at] ^= 1;
	assert_int_equal(ANSWER(8, cut, payload, n), KVARC_PREDICTOR);
	w->expected[i][at] ^= 1;
	in.expected = NULL;
	assert_int_equal(ANSWER(8, cut, payload, n), KVARC_DATA);
	assert_int_equal(ANSWER(7, less, payload + CHECK, n - CHECK), KVARC_DATA);
	/* Without expectations a model of these levels is of no use. */
	struct kvi_encoded e;
	assert_int_equal(kvi_chunk_encode(coders[0], &chunk, (int)w->level, NULL, w->raw[i], &e),
	                 KVARC_OK);
	assert_false(kvi_codec_predicts(e.codec));
	drop(&e);
	chunk.features = w->features[i];
	assert_int_equal(kvi_chunk_features(coders[0], &chunk, w->raw[i], false), KVARC_DATA);
	chunk.features = NULL;
	chunk.linear = NULL;
	assert_int_equal(ANSWER(8, cut, payload, n), KVARC_PREDICTOR);
#undef ANSWER
	free(back);
	free(bad);
}

/* Puts the hash of E of tensor i, as files have it, at `to`. */
static uint8_t *put_hash(const struct model_world *w, size_t i, uint8_t *to)
{
	size_t n = kvi_chunk_channels(&w->chunk[i]) * w->n_tokens;
	uint8_t *bytes = malloc(2 * n);
	assert_non_null(bytes);
	for (size_t k = 0; k < n; k++)
		kvi_store16(bytes + 2 * k, (uint16_t)w->expected[i][k]);
	kvi_store64(to, kvi_h64(bytes, 2 * n));
	free(bytes);
	return to + 8;
}

/* The check is of E of the sources, of which all are tensor 0, and of the tensor itself. */
static void check_is(const struct model_world *w, size_t i, const uint8_t *payload)
{
	const struct kvi_model *m = w->in[i].model;
	uint8_t hashes[(KVI_SAME_MAX + 2) * 8], *at = hashes;
	for (unsigned k = 0; k < m->n_same; k++)
		at = put_hash(w, 0, at);
	if (m->scale_source)
		at = put_hash(w, 0, at);
	at = put_hash(w, i, at);
	assert_true(kvi_load64(payload) == kvi_h64(hashes, (size_t)(at - hashes)));
}

static unsigned n_model[PATTERNS], n_other[PATTERNS];

static void round_trip(struct model_world *w, size_t i)
{
	const struct kvi_chunk *chunk = &w->chunk[i];
	struct kvi_encoded e, first = { 0 };
	uint8_t *payload = NULL, *features = NULL;
	size_t bytes;
	for (int k = 0; k < n_coders; k++) {
		spoil_features(w, i);
		assert_int_equal(
			kvi_chunk_encode(coders[k], chunk, (int)w->level, NULL, w->raw[i], &e),
			KVARC_OK);
		if (k == 0) {
			first = e;
			payload = malloc(e.payload_bytes);
			assert_non_null(payload);
			memcpy(payload, e.payload, e.payload_bytes);
			features = features_copy(w, i, &bytes);
			continue;
		}
		assert_int_equal(e.codec, first.codec);
		assert_int_equal(e.payload_bytes, first.payload_bytes);
		assert_memory_equal(e.payload, payload, e.payload_bytes);
		features_are(w, i, features);
		drop(&e);
	}
	assert_int_not_equal(first.codec, KVI_CODEC_LINEAR);
	decode_all(w, i, &first, payload, features);
	if (first.codec == KVI_CODEC_MODEL) {
		assert_true(kvi_floats_finite(w->dtype, w->raw[i],
		                              kvi_chunk_channels(chunk) * w->n_tokens));
		check_is(w, i, payload);
		refuse(w, i, first.cut, payload, first.payload_bytes);
	}
	++(first.codec == KVI_CODEC_MODEL ? n_model : n_other)[w->pattern];
	drop(&first);
	spoil_features(w, i);
	for (int k = 0; k < n_coders; k++) {
		assert_int_equal(kvi_chunk_features(coders[k], chunk, w->raw[i], false), KVARC_OK);
		features_are(w, i, features);
	}
	free(payload);
	free(features);
}

static void test_round_trips(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 160; round++) {
		struct model_world w;
		make_world(&w, round);
		for (size_t i = 0; i < N_TENSORS; i++)
			round_trip(&w, i);
		free_world(&w);
	}
	for (int i = 0; i < PATTERNS; i++)
		print_message("pattern %d: %u chunks of codec 8, %u of others\n", i, n_model[i],
		              n_other[i]);
	assert_true(n_model[NEAR] > 4 * n_other[NEAR]);
	assert_true(n_model[CONSTANT] > 2 * n_other[CONSTANT]);
	assert_true(n_model[FAR] < n_other[FAR]);
	assert_int_equal(n_model[HOLES], 0);
}

/* ------------------------------------------------------ what is observed */

/* |X| with its sign, as spec linear 2 has it for bf16. */
static int32_t to_units(uint16_t x, int step)
{
	int e = x >> 7 & 255, sh = 150 + step - (e ? e : 1);
	uint32_t man = (uint32_t)(x & 127) << 16 | (e ? 1u << 23 : 0);
	sh = sh < 1 ? 1 : sh > 31 ? 31 : sh;
	uint32_t v = (man + (1u << (sh - 1))) >> sh;
	v = v > 32767 ? 32767 : v;
	return x >> 15 ? -(int32_t)v : (int32_t)v;
}

static int32_t limited(int32_t v)
{
	return v > 32767 ? 32767 : v < -32767 ? -32767 : v;
}

/* r = U - (mean + E), slot by slot, where nothing turns. */
static void test_observed(void **state)
{
	unsigned done = 0;
	(void)state;
	for (unsigned round = 0; done < 10; round++) {
		struct model_world w;
		make_world(&w, round);
		const struct kvi_model *m = w.in[1].model;
		const struct kvi_features *f = w.features[1];
		size_t head = kvi_head_stride(m) * KVI_LANES;
		bool fit = w.dtype == KVARC_BF16 && w.pattern != ANY;
		for (size_t i = 0; i < N_TENSORS && fit; i++)
			assert_int_equal(kvi_chunk_features(coders[done % (unsigned)n_coders],
			                                    &w.chunk[i], w.raw[i], false),
			                 KVARC_OK);
		for (size_t t = 0; t < w.n_tokens && fit; t++)
			for (size_t c = 0; c < m->C; c++) {
				size_t k = t * m->C + c, s = c % m->head_channels;
				int32_t u = to_units(kvi_load16(w.raw[1] + 2 * k), m->step[c]);
				int32_t base = m->mean[c] + w.expected[1][k];
				size_t at = (t / 32 * m->heads + c / m->head_channels) * head +
				            s / 2 * 64 + t % 32 * 2 + s % 2;
				assert_int_equal(f->r[at], limited(u - limited(base)));
			}
		done += fit;
		free_world(&w);
	}
}

/* ------------------------------------------------------------------ size */

/* With a good expectation, and with the same profile a level lower. */
static void test_size(void **state)
{
	size_t bytes[2];
	(void)state;
	for (int with = 0; with < 2; with++) {
		struct kvi_profile *p;
		struct model_world w = { .level = with ? 5 : 2,
			                 .heads = 2,
			                 .n_tokens = 256,
			                 .dtype = KVARC_BF16,
			                 .step = -9,
			                 .noise = -5 };
		struct kvi_encoded e;
		seed = 7;
		assert_int_equal(kvi_profile_new(&p, &alloc), KVARC_OK);
		p->models = kvi_calloc(&alloc, 1, sizeof *p->models);
		p->n_models = 1;
		p->models[0] = (struct kvi_model){ .level = (uint8_t)w.level,
			                           .kind = KVARC_VALUE,
			                           .heads = 2,
			                           .head_channels = 32 };
		struct kvi_model *m = &p->models[0];
		assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
		for (size_t c = 0; c < m->C; c++) {
			m->step[c] = -9;
			m->k[c] = with ? -20 : 5; /* sigma is 2^-5, 2^1.2 */
		}
		assert_int_equal(kvi_profile_finish(p), KVARC_OK);
		w.profile = p;
		connect(&w, 0);
		if (!with)
			w.in[0].expected = NULL;
		assert_int_equal(
			kvi_chunk_encode(coders[0], &w.chunk[0], (int)w.level, NULL, w.raw[0], &e),
			KVARC_OK);
		assert_int_equal(e.codec, with ? KVI_CODEC_MODEL : KVI_CODEC_LINEAR);
		bytes[with] = e.payload_bytes;
		drop(&e);
		kvi_features_close(w.features[0], &alloc);
		free(w.raw[0]);
		free(w.expected[0]);
		kvi_profile_free(p);
	}
	print_message("codec 7: %zu bytes, codec 8: %zu\n", bytes[0], bytes[1]);
	assert_true(bytes[1] < bytes[0] * 6 / 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_observed),
		cmocka_unit_test(test_size),
	};
	return cmocka_run_group_tests(tests, open_coders, close_coders);
}
