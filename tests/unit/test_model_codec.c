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
#include "model_world.h"
#include "numeric/formats.h"
#include "profile/profile_io.h"
#include "util/bytes.h"
#include "random.h"

enum { CHECK = 8 };

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

static const struct kvi_tokens whole = { 0, 0 };

static void drop(struct kvi_encoded *e)
{
	kvi_params_free(e->params);
	kvi_free(&alloc, e->params_content);
}

static void decode_all(struct model_world *w, size_t i, const struct kvi_encoded *e,
                       const uint8_t *payload, const uint8_t *features)
{
	const struct kvi_decode_request r = decode_of(&w->request[i], e, payload);
	size_t n = kvi_chunk_bytes(&r.chunk);
	uint8_t *back = malloc(n);
	assert_non_null(back);
	for (int k = 0; k < n_coders; k++) {
		memset(back, 0xaa, n);
		spoil_features(w, i);
		assert_int_equal(kvi_chunk_decode(coders[k], &r, back, NULL), KVARC_OK);
		assert_memory_equal(back, w->raw[i], n);
		features_are(w, i, features);
	}
	free(back);
}

static kvarc_ret answer(const struct kvi_encode_request *request, uint8_t codec,
                        struct kvi_chunk_cut cut, const uint8_t *payload, size_t n, uint8_t *back)
{
	const struct kvi_encoded e = { .codec = codec, .cut = cut, .payload_bytes = n };
	const struct kvi_decode_request r = decode_of(request, &e, payload);
	return kvi_chunk_decode(coders[0], &r, back, NULL);
}

/* A payload of codec 8 as other codec, in other circumstances, and damaged. */
static void refuse(struct model_world *w, size_t i, struct kvi_chunk_cut cut,
                   const uint8_t *payload, size_t n)
{
	struct kvi_chunk_cut less = cut, more = cut;
	uint8_t *bad = malloc(n);
	uint8_t *back = calloc(1, kvi_chunk_bytes(&w->request[i].chunk));
	struct kvi_linear_in in = w->in[i];
	struct kvi_encode_request request = w->request[i];
	const struct kvi_chunk *chunk = &request.chunk;
	const size_t all = kvi_chunk_channels(chunk) * chunk->n_tokens;
	request.linear = (struct kvi_linear_io){ &in, NULL };
	assert_true(bad && back);
	less.section_bytes -= CHECK;
	more.section_bytes++;
#define ANSWER(codec, cut, p, bytes) answer(&request, codec, cut, p, bytes, back)
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
		/* OPTIONS: a plane of f32 by a method that is not known */
		assert_true(ret == KVARC_OK || ret == KVARC_DATA ||
		            (ret == KVARC_OPTIONS && w->dtype == KVARC_F32));
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
	assert_int_equal(kvi_chunk_encode(coders[0], &request, w->raw[i], &e), KVARC_OK);
	assert_false(kvi_codec_predicts(e.codec));
	drop(&e);
	request.linear.features = w->features[i];
	assert_int_equal(
		kvi_chunk_features(coders[0], chunk, &request.linear, whole, w->raw[i], false),
		KVARC_DATA);
	request.linear = (struct kvi_linear_io){ NULL, NULL };
	assert_int_equal(ANSWER(8, cut, payload, n), KVARC_PREDICTOR);
#undef ANSWER
	free(back);
	free(bad);
}

/* Puts the hash of E of tensor i, as files have it, at `to`. */
static uint8_t *put_hash(const struct model_world *w, size_t i, uint8_t *to)
{
	size_t n = kvi_chunk_channels(&w->request[i].chunk) * w->n_tokens;
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
	const struct kvi_encode_request *request = &w->request[i];
	struct kvi_encoded e, first = { 0 };
	uint8_t *payload = NULL, *features = NULL;
	size_t bytes;
	for (int k = 0; k < n_coders; k++) {
		spoil_features(w, i);
		assert_int_equal(kvi_chunk_encode(coders[k], request, w->raw[i], &e), KVARC_OK);
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
		                              kvi_chunk_channels(&request->chunk) * w->n_tokens));
		check_is(w, i, payload);
		refuse(w, i, first.cut, payload, first.payload_bytes);
	}
	++(first.codec == KVI_CODEC_MODEL ? n_model : n_other)[w->pattern];
	drop(&first);
	spoil_features(w, i);
	for (int k = 0; k < n_coders; k++) {
		assert_int_equal(kvi_chunk_features(coders[k], &request->chunk, &request->linear,
		                                    whole, w->raw[i], false),
		                 KVARC_OK);
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
		model_world_make(&w, round);
		for (size_t i = 0; i < N_TENSORS; i++)
			round_trip(&w, i);
		model_world_free(&w);
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
		model_world_make(&w, round);
		const struct kvi_model *m = w.in[1].model;
		const struct kvi_features *f = w.features[1];
		size_t head = kvi_head_stride(m) * KVI_LANES;
		bool fit = w.dtype == KVARC_BF16 && w.pattern != ANY;
		for (size_t i = 0; i < N_TENSORS && fit; i++)
			assert_int_equal(kvi_chunk_features(coders[done % (unsigned)n_coders],
			                                    &w.request[i].chunk,
			                                    &w.request[i].linear, whole, w.raw[i],
			                                    false),
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
		model_world_free(&w);
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
		model_world_seed(7);
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
		model_world_connect(&w, 0);
		if (!with)
			w.in[0].expected = NULL;
		assert_int_equal(kvi_chunk_encode(coders[0], &w.request[0], w.raw[0], &e),
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
