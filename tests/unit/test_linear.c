/* SPDX-License-Identifier: BSD-3-Clause */
/* test_linear.c - codec 7: random models and tensors there and back on every instruction set */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coders_util.h"
#include "numeric/formats.h"
#include "profile/linear_model.h"
#include "random.h"

enum { LAYERS = 2, KINDS = 2, N_TENSORS = LAYERS * KINDS, TABLE_IDS = 40 };

/* --------------------------------------------------------------- models */

/* A cache of two layers of keys and values, and a profile for it. */
struct linear_world {
	struct kvi_profile *profile;
	kvarc_rope rope;
	uint64_t freq[32];
	unsigned dtype, level;
	uint32_t n_tokens, heads;
	int32_t positions[256], ids[256];
	bool with_ids;
	struct kvi_encode_request request[N_TENSORS];
	struct kvi_linear_in in[N_TENSORS];
	struct kvi_features *features[N_TENSORS];
	uint8_t *raw[N_TENSORS];
	float scale; /* sigma of the elements */
};

static void random_rows(int16_t *rows, size_t C, size_t stride, uint8_t *q)
{
	for (size_t c = 0; c < C; c++) {
		/* small enough to leave codec 7 the winner, mostly */
		int most = stride < 500 ? 100 : 65536 / (int)stride;
		q[c] = (uint8_t)between(13, 16);
		if (below(100) == 0 && stride > 1) {
			/* the largest sums that are allowed */
			rows[c * stride] = 32767;
			rows[c * stride + 1] = -32768;
			q[c] = (uint8_t)below(17);
			continue;
		}
		for (size_t i = 0; i < stride; i++)
			rows[c * stride + i] = (int16_t)between(-most, most);
	}
}

/* Zeros where a row has no feature (profile.h). */
static void clear_gaps(int16_t *rows, const struct kvi_model *m, size_t stride,
                       const struct kvi_source *s, unsigned n)
{
	size_t at = 0;
	for (unsigned i = 0; i < n; i++) {
		const struct kvi_model *from = s[i].model;
		size_t heads = s[i].scope ? 1 : from->heads;
		for (size_t h = 0; h < heads; h++) {
			at += kvi_head_stride(from);
			for (size_t c = 0; c < m->C && from->head_channels % 2; c++)
				rows[c * stride + at - 1] = 0;
		}
	}
}

static void clear_later(struct kvi_model *m)
{
	size_t own = 0, stride = kvi_head_stride(m);
	bool one = m->flags & KVI_MODEL_SELF_HEAD;
	for (unsigned i = 0; i < m->n_same; i++)
		own += (m->same[i].scope ? 1 : m->same[i].model->heads) *
		       kvi_head_stride(m->same[i].model);
	for (size_t c = 0; c < m->C; c++) {
		size_t h = c / m->head_channels, s = c % m->head_channels;
		int16_t *row = m->b + c * m->b_stride + own;
		if (s < m->rotary)
			s &= ~(size_t)1;
		for (size_t i = 0; i < m->b_stride - own; i++) {
			size_t from = i / stride, slot = i % stride;
			if (one ? slot >= s
			        : from > h || (from == h && slot >= s) || slot >= m->head_channels)
				row[i] = 0;
		}
	}
}

static void random_slots(struct kvi_model *m, const struct linear_world *w)
{
	int e = 0;
	for (float s = w->scale; s > 1.5f; s /= 2)
		e++;
	for (float s = w->scale; s < 0.75f; s *= 2)
		e--;
	for (size_t c = 0; c < m->C; c++) {
		size_t s = c % m->head_channels;
		bool second = s < m->rotary && s % 2;
		m->step[c] = second ? m->step[c - 1] : (int16_t)(e - between(4, 8));
		m->k[c] = (int16_t)(4 * e + between(-2, 2));
		m->mean[c] = between(-3, 3);
	}
	if (below(8) == 0) { /* extremes */
		size_t c = below((uint32_t)m->C) & ~(size_t)1;
		m->k[c] = below(2) ? 400 : -400;
		m->mean[c] = below(2) ? 32767 : -32767;
	}
}

static void random_table(struct kvi_model *m)
{
	m->tshift = below(4) ? 0 : (uint8_t)below(9);
	m->unknown = (uint8_t)below(4);
	for (uint32_t i = 0; i < m->n_ids; i++)
		m->ids[i] = (int32_t)(3 * i) - 20;
	for (size_t i = 0; i < m->n_ids * m->C; i++)
		m->table[i] = (int8_t)(below(500) ? between(-3, 3) : between(-128, 127));
}

static void random_model(struct linear_world *w, unsigned layer, unsigned kind)
{
	static const uint32_t channels[] = { 1, 3, 8, 9, 16, 23, 32, 47, 64 };
	struct kvi_profile *p = w->profile;
	struct kvi_model *m = &p->models[layer * KINDS + kind];
	p->n_models = layer * KINDS + kind + 1;
	m->level = (uint8_t)w->level;
	m->layer = layer;
	m->kind = (uint8_t)kind;
	m->heads = w->heads;
	m->head_channels = channels[below(9)];
	m->rope = m->head_channels >= w->rope.rotary && kind == KVARC_KEY;
	if (below(4))
		m->flags = KVI_MODEL_SELF;
	if (m->flags && below(2))
		m->flags |= KVI_MODEL_SELF_HEAD;
	if (below(3))
		m->flags |= KVI_MODEL_SCALE;
	if (below(4) == 0)
		m->flags |= KVI_MODEL_TABLE;
	m->n_ids = m->flags & KVI_MODEL_TABLE ? below(TABLE_IDS) : 0;
	if (w->level == 3 && layer)
		for (unsigned i = 0; i < 2; i++)
			m->lower[m->n_lower++] = (struct kvi_source){ 1, (uint8_t)i,
				                                      (uint8_t)below(2), NULL };
	if (kind && below(4))
		m->same[m->n_same++] = (struct kvi_source){ 0, 0, (uint8_t)below(2), NULL };
	if (m->flags & KVI_MODEL_SCALE) {
		m->n0 = (uint8_t)between(20, 255);
		m->beta = kind ? (uint8_t)below(17) : 0;
	}
	assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
	random_slots(m, w);
	if (m->a_stride) {
		random_rows(m->a, m->C, m->a_stride, m->qa);
		clear_gaps(m->a, m, m->a_stride, m->lower, m->n_lower);
	}
	if (m->b_stride) {
		random_rows(m->b, m->C, m->b_stride, m->qb);
		clear_gaps(m->b, m, m->b_stride, m->same, m->n_same);
		if (m->flags & KVI_MODEL_SELF)
			clear_later(m);
	}
	random_table(m);
}

/* ------------------------------------------------------------- elements */

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
	if (e >= 1 << bits)
		e = (1 << bits) - 1;
	return sign << (bits + m) | (uint32_t)e << m | man >> (23 - m);
}

static uint32_t element(const struct linear_world *w, unsigned pattern, size_t t, size_t c)
{
	uint32_t sign = (uint32_t)1 << (8 * kvarc_dtype_bytes(w->dtype) - 1);
	if (pattern == 1 && c % 3 == 1)
		return c % 2 ? from_float(w->dtype, w->scale) : sign;
	if (pattern == 2 && rnd() % 7 == 0)
		return rnd() << 8 ^ rnd(); /* NaN, infinities and all others */
	if (pattern == 3)
		return (rnd() & 3) | (rnd() & 1 ? sign : 0);
	float token = pattern == 4 ? 0.1f * (float)(t % 40 + 1) : 1;
	return from_float(w->dtype, w->scale * token * normal());
}

static void fill(const struct linear_world *w, uint8_t *raw, size_t C)
{
	size_t size = kvarc_dtype_bytes(w->dtype);
	unsigned pattern = below(10);
	for (size_t t = 0; t < w->n_tokens; t++)
		for (size_t c = 0; c < C; c++, raw += size) {
			uint32_t v = element(w, pattern, t, c);
			for (size_t i = 0; i < size; i++)
				raw[i] = (uint8_t)(v >> 8 * i);
		}
}

/* --------------------------------------------------------------- worlds */

static void make_rope(struct linear_world *w)
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
static void connect(struct linear_world *w, size_t i)
{
	struct kvi_linear_in *in = &w->in[i];
	const struct kvi_model *m = &w->profile->models[i];
	*in = (struct kvi_linear_in){
		.model = m,
		.dtype = (uint8_t)w->dtype,
		.n_tokens = w->n_tokens,
		.positions = w->positions,
		.ids = w->with_ids ? w->ids : NULL,
		.rope = m->rope ? &w->rope : NULL,
	};
	for (unsigned k = 0; k < m->n_lower; k++)
		in->lower[k] = w->features[m->lower[k].model - w->profile->models];
	for (unsigned k = 0; k < m->n_same; k++)
		in->same[k] = w->features[m->same[k].model - w->profile->models];
	if (m->scale_source)
		in->scale = w->features[m->scale_source - w->profile->models];
	w->request[i] = (struct kvi_encode_request){
		.chunk = { .dtype = (uint8_t)w->dtype,
		           .n_tokens = w->n_tokens,
		           .heads = m->heads,
		           .head_channels = m->head_channels,
		           .positions = w->positions,
		           .rope = in->rope },
		.level = (int)w->level,
		.linear = { in, w->features[i] },
	};
}

static void make_world(struct linear_world *w, unsigned round)
{
	static const uint32_t tokens[] = { 1, 31, 32, 33, 95, 96, 255, 256 };
	static const unsigned dtypes[] = { KVARC_BF16, KVARC_F16, KVARC_F32, KVARC_E4M3,
		                           KVARC_E5M2 };
	*w = (struct linear_world){ .level = 2 + (round & 1),
		                    .heads = 1 + below(4),
		                    .n_tokens = tokens[below(8)],
		                    .dtype = dtypes[round / 2 % 5],
		                    .with_ids = below(2),
		                    .scale = 1 };
	for (int i = between(-3, 3); i; i += i < 0 ? 1 : -1)
		w->scale *= i < 0 ? 0.5f : 2.0f;
	int32_t at = (int32_t)below(100000);
	for (uint32_t t = 0; t < w->n_tokens; t++) {
		w->positions[t] = below(50) ? at++ : (int32_t)rnd();
		w->ids[t] = (int32_t)below(120) - 20;
	}
	assert_int_equal(kvi_profile_new(&w->profile, &alloc), KVARC_OK);
	w->profile->models = kvi_calloc(&alloc, N_TENSORS, sizeof *w->profile->models);
	assert_non_null(w->profile->models);
	make_rope(w);
	for (unsigned i = 0; i < N_TENSORS; i++)
		random_model(w, i / KINDS, i % KINDS);
	assert_int_equal(kvi_profile_finish(w->profile), KVARC_OK);
	for (size_t i = 0; i < N_TENSORS; i++) {
		const struct kvi_model *m = &w->profile->models[i];
		assert_int_equal(kvi_features_open(&w->features[i], &alloc, m, w->n_tokens),
		                 KVARC_OK);
		connect(w, i);
		w->raw[i] = malloc(kvi_chunk_bytes(&w->request[i].chunk));
		assert_non_null(w->raw[i]);
		fill(w, w->raw[i], m->C);
	}
}

static void free_world(struct linear_world *w)
{
	for (size_t i = 0; i < N_TENSORS; i++) {
		kvi_features_close(w->features[i], &alloc);
		free(w->raw[i]);
	}
	kvi_profile_free(w->profile);
}

/* ---------------------------------------------------------- round trips */

static size_t feature_bytes(const struct linear_world *w, size_t i)
{
	const struct kvi_model *m = &w->profile->models[i];
	return m->heads * kvi_head_stride(m) * w->features[i]->tokens_capacity * 2;
}

/* r, then z, then w and n. */
static uint8_t *features_copy(const struct linear_world *w, size_t i, size_t *bytes)
{
	const struct kvi_features *f = w->features[i];
	size_t n = feature_bytes(w, i), z = f->z ? n : 0;
	*bytes = n + z + 4 * f->tokens_capacity + 4;
	uint8_t *all = malloc(*bytes);
	assert_non_null(all);
	memcpy(all, f->r, n);
	if (z)
		memcpy(all + n, f->z, n);
	memcpy(all + n + z, f->w, 4 * f->tokens_capacity);
	memcpy(all + n + z + 4 * f->tokens_capacity, &f->n, 4);
	return all;
}

static void spoil_features(const struct linear_world *w, size_t i)
{
	struct kvi_features *f = w->features[i];
	memset(f->r, 0x55, feature_bytes(w, i));
	if (f->z)
		memset(f->z, 0x55, feature_bytes(w, i));
	memset(f->w, 0x55, 4 * f->tokens_capacity);
	f->n = 0x55;
}

static void features_are(const struct linear_world *w, size_t i, const uint8_t *wanted)
{
	size_t n;
	uint8_t *got = features_copy(w, i, &n);
	assert_memory_equal(got, wanted, n);
	free(got);
}

static unsigned n_linear, n_other;

static void drop(struct kvi_encoded *e)
{
	kvi_params_free(e->params);
	kvi_free(&alloc, e->params_content);
}

static void decode_all(struct linear_world *w, size_t i, const struct kvi_encoded *e,
                       const uint8_t *payload, const uint8_t *features)
{
	size_t n = kvi_chunk_bytes(&w->request[i].chunk);
	uint8_t *back = malloc(n);
	assert_non_null(back);
	struct kvi_decode_request r = decode_of(&w->request[i], e, payload);
	for (int k = 0; k < n_coders; k++) {
		memset(back, 0xaa, n);
		spoil_features(w, i);
		assert_int_equal(kvi_chunk_decode(coders[k], &r, back, NULL), KVARC_OK);
		assert_memory_equal(back, w->raw[i], n);
		features_are(w, i, features);
	}
	r.linear.features = NULL;
	memset(back, 0xaa, n);
	assert_int_equal(kvi_chunk_decode(coders[0], &r, back, NULL), KVARC_OK);
	assert_memory_equal(back, w->raw[i], n);
	free(back);
}

/* Wrong bytes give an error or other elements, nothing worse. */
static void damage(struct linear_world *w, size_t i, const struct kvi_encoded *e,
                   const uint8_t *payload)
{
	uint8_t *bad = malloc(e->payload_bytes);
	uint8_t *back[2];
	struct kvi_decode_request r = decode_of(&w->request[i], e, bad);
	r.linear.features = NULL;
	for (int k = 0; k < 2; k++)
		back[k] = calloc(1, kvi_chunk_bytes(&r.chunk));
	for (int round = 0; round < 3; round++) {
		size_t n = e->payload_bytes;
		memcpy(bad, payload, n);
		if (round)
			bad[below((uint32_t)n)] ^= (uint8_t)(1 << below(8));
		else
			n -= 1 + below((uint32_t)n);
		kvarc_ret first = KVARC_OK;
		r.payload_bytes = n;
		for (int k = 0; k < n_coders; k++) {
			kvarc_ret ret = kvi_chunk_decode(coders[k], &r, back[k != 0], NULL);
			if (k == 0)
				first = ret;
			assert_int_equal(ret, first);
			if (k && ret == KVARC_OK)
				assert_memory_equal(back[0], back[1], kvi_chunk_bytes(&r.chunk));
		}
	}
	r.payload = payload;
	r.payload_bytes = e->payload_bytes;
	r.cut = (struct kvi_chunk_cut){ .stream_size = 0 };
	assert_int_equal(kvi_chunk_decode(coders[0], &r, back[0], NULL), KVARC_DATA);
	r.cut = no_streams;
	r.linear.in = NULL;
	assert_int_equal(kvi_chunk_decode(coders[0], &r, back[0], NULL), KVARC_PREDICTOR);
	free(back[0]);
	free(back[1]);
	free(bad);
}

static void round_trip(struct linear_world *w, size_t i)
{
	const struct kvi_encode_request *request = &w->request[i];
	const struct kvi_linear_io *linear = &request->linear;
	const struct kvi_tokens all = { 0, 0 };
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
	decode_all(w, i, &first, payload, features);
	if (first.codec == KVI_CODEC_LINEAR)
		damage(w, i, &first, payload);
	*(first.codec == KVI_CODEC_LINEAR ? &n_linear : &n_other) += 1;
	spoil_features(w, i);
	for (int k = 0; k < n_coders; k++) {
		assert_int_equal(kvi_chunk_features(coders[k], &request->chunk, linear, all,
		                                    w->raw[i], true),
		                 KVARC_OK);
		w->features[i]->has_z = true;
		assert_int_equal(kvi_chunk_features(coders[k], &request->chunk, linear, all,
		                                    w->raw[i], false),
		                 KVARC_OK);
		w->features[i]->has_z = false;
		features_are(w, i, features);
	}
	drop(&first);
	free(payload);
	free(features);
}

static void test_round_trips(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 150; round++) {
		struct linear_world w;
		make_world(&w, round);
		for (size_t i = 0; i < N_TENSORS; i++)
			round_trip(&w, i);
		free_world(&w);
	}
	print_message("%u chunks of codec 7, %u of others\n", n_linear, n_other);
	assert_true(n_linear > n_other / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),
	};
	return cmocka_run_group_tests(tests, open_coders, close_coders);
}
