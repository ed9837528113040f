/* SPDX-License-Identifier: BSD-3-Clause */
/* test_klt.c - codec 14 with a basis that is known: errors, sizes, turned keys, what does not fit
 * */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coders_util.h"
#include "numeric/formats.h"
#include "profile/linear_model.h"
#include "random.h"

enum { TOKENS = 200, HEADS = 2, CHANNELS = 16, WIDTH = HEADS * CHANNELS, N = TOKENS * WIDTH };
enum { ROTARY = 12, PAIRS = ROTARY / 2, FLAGS = 1, NOWHERE = -30 };

static uint64_t freq[PAIRS];
static const kvarc_rope ropes[2] = {
	{ .pairing = KVARC_ROPE_HALF, .rotary = ROTARY, .freq = freq },
	{ .pairing = KVARC_ROPE_INTERLEAVED, .rotary = ROTARY, .freq = freq }
};

/* A profile with a basis for keys with RoPE, and one for values. */
struct klt_world {
	struct kvi_profile *profile;
	const struct kvi_model *model;
	struct kvi_linear_in in;
	struct kvi_encode_request request;
	int32_t positions[TOKENS];
	float was[N], is[N];
	uint8_t raw[N * sizeof(float)];
};

static int open_klt(void **state)
{
	for (size_t i = 0; i < PAIRS; i++)
		freq[i] = 0x28be60db9391054au >> 2 * i;
	return open_lossy(state);
}

static kvarc_lossy tier(const char *text)
{
	kvarc_lossy l;
	assert_int_equal(kvarc_lossy_parse(&l, text, NULL), KVARC_OK);
	l.exact_tokens = 0;
	return l;
}

/* Rows of signs, orthogonal; those of odd slots count twice. Half of the coefficients of a head are
 * nearly nothing. */
static void fill_model(struct kvi_model *m)
{
	for (size_t c = 0; c < WIDTH; c++) {
		size_t slot = c % CHANNELS;
		m->qm[c] = (uint8_t)(114 + slot % 2); /* 4096 * 2^-14 = 1/4 */
		m->k[c] = (int16_t)(slot % 2 ? NOWHERE : (int)slot / 2);
		m->step[c] = -4;
		m->mean[c] = (int)slot / 2 * 20 - 40;
		for (size_t j = 0; j < CHANNELS; j++) {
			unsigned odd = 0;
			for (size_t both = slot & j; both; both >>= 1)
				odd ^= both & 1;
			m->m[c * m->m_stride + j] = odd ? -4096 : 4096;
		}
	}
}

static void make_profile(struct klt_world *w)
{
	assert_int_equal(kvi_profile_new(&w->profile, &alloc), KVARC_OK);
	struct kvi_profile *p = w->profile;
	p->models = kvi_calloc(&alloc, 2, sizeof *p->models);
	p->ropes = kvi_calloc(&alloc, 1, sizeof *p->ropes);
	assert_true(p->models && p->ropes);
	p->n_ropes = 1;
	p->ropes->rotary = ROTARY;
	p->ropes->freq = kvi_calloc(&alloc, PAIRS, sizeof *freq);
	assert_non_null(p->ropes->freq);
	memcpy(p->ropes->freq, freq, sizeof freq);
	for (uint8_t kind = 0; kind < 2; kind++) {
		struct kvi_model *m = &p->models[p->n_models++];
		*m = (struct kvi_model){ .level = KVI_LEVEL_BASIS,
			                 .kind = kind,
			                 .heads = HEADS,
			                 .head_channels = CHANNELS,
			                 .rope = kind == KVARC_KEY,
			                 .flags = KVI_MODEL_BASIS };
		assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
		fill_model(m);
	}
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
}

static void turn(struct klt_world *w, size_t t, float *x)
{
	const kvarc_rope *rope = w->request.chunk.rope;
	for (size_t i = 0; i < PAIRS; i++) {
		bool half = rope->pairing == KVARC_ROPE_HALF;
		size_t a = half ? i : 2 * i, b = half ? i + PAIRS : 2 * i + 1;
		uint64_t part = freq[i] * (uint64_t)(int64_t)w->positions[t];
		double angle = (double)part * 0x1p-64 * 2 * 3.14159265358979;
		float c = (float)cos(angle), s = (float)sin(angle);
		float xa = x[a], xb = x[b];
		x[a] = xa * c - xb * s;
		x[b] = xb * c + xa * s;
	}
}

/* Coefficients as large as k says, turned into elements. */
static void make_elements(struct klt_world *w)
{
	const struct kvi_model *m = w->model;
	for (size_t i = 0; i < N; i += CHANNELS) {
		const size_t head = i % WIDTH;
		float y[CHANNELS];
		for (size_t j = 0; j < CHANNELS; j++)
			y[j] = normal() * exp2f((float)m->k[head + j] / 4);
		for (size_t s = 0; s < CHANNELS; s++) {
			float sum = 0;
			for (size_t j = 0; j < CHANNELS; j++)
				sum += (float)m->m[(head + s) * m->m_stride + j] * y[j];
			w->was[i + kvi_slot_channel(m, w->request.chunk.rope, s)] =
				sum * exp2f((float)m->qm[head + s] - 128) +
				(float)m->mean[head + s] / 16;
		}
		if (m->rotary)
			turn(w, i / WIDTH, w->was + i);
	}
	kvi_floats_store(KVARC_F32, w->was, N, w->raw);
}

/* kind: of the chunk; pairing of its rope. */
static void make_world(struct klt_world *w, unsigned kind, unsigned pairing)
{
	make_profile(w);
	w->model = kvi_profile_model(w->profile, KVI_LEVEL_BASIS, 0, kind);
	assert_non_null(w->model);
	for (int i = 0; i < TOKENS; i++)
		w->positions[i] = 3 * i - 50 + (i > 99 ? 1000000 : 0);
	w->in = (struct kvi_linear_in){
		.model = w->model, .dtype = KVARC_F32, .n_tokens = TOKENS, .positions = w->positions
	};
	w->request = (struct kvi_encode_request){
		.chunk = { .dtype = KVARC_F32,
		           .n_tokens = TOKENS,
		           .heads = HEADS,
		           .head_channels = CHANNELS,
		           .positions = w->positions,
		           .rope = kind == KVARC_KEY ? &ropes[pairing] : NULL },
		.kind = (uint8_t)kind,
		.level = 1,
		.linear.in = &w->in,
	};
	w->in.rope = w->request.chunk.rope;
	make_elements(w);
}

/* Every set writes the same bytes, and reads what was to come back. The payload and its bytes;
 * NULL: it is not one of codec 14. */
static uint8_t *code(struct klt_world *w, const kvarc_lossy *how, size_t *bytes)
{
	uint8_t *first = NULL, *back = malloc(sizeof w->raw), *raw = malloc(sizeof w->raw);
	for (int i = 0; i < n_coders; i++) {
		struct kvi_encoded e;
		memcpy(raw, w->raw, sizeof w->raw);
		assert_int_equal(kvi_chunk_encode_lossy(coders[i], &w->request, how, raw, &e),
		                 KVARC_OK);
		if (e.codec != KVI_CODEC_KLT) {
			assert_memory_equal(raw, w->raw, sizeof w->raw);
			kvi_params_free(e.params);
			kvi_free(&alloc, e.params_content);
			break;
		}
		assert_true(!e.params && !e.uses_params);
		if (!i) {
			first = malloc(e.payload_bytes);
			memcpy(first, e.payload, e.payload_bytes);
			*bytes = e.payload_bytes;
			kvi_floats_exact(KVARC_F32, raw, N, w->is);
		}
		assert_int_equal(e.payload_bytes, *bytes);
		assert_memory_equal(e.payload, first, *bytes);
		const struct kvi_decode_request r = decode_of(&w->request, &e, first);
		assert_int_equal(kvi_chunk_decode(coders[i], &r, back, NULL), KVARC_OK);
		assert_memory_equal(back, raw, sizeof w->raw);
	}
	free(back);
	free(raw);
	return first;
}

/* Slots have weight one or two; tokens from `first` on, in steps. */
static double error_of(const struct klt_world *w, bool twice, size_t first, size_t step)
{
	double sum = 0;
	size_t n = 0;
	for (size_t t = first; t < TOKENS; t += step)
		for (size_t h = 0; h < WIDTH; h += CHANNELS)
			for (size_t s = twice; s < CHANNELS; s += 2) {
				size_t i = t * WIDTH + h +
				           kvi_slot_channel(w->model, w->request.chunk.rope, s);
				double e = (double)w->was[i] - (double)w->is[i];
				sum += e * e;
				n++;
			}
	return sum / (double)n;
}

/* What a rate makes of coefficients, half of which are smaller than its step. */
static double nominal(int rate)
{
	const double step = exp2((33 - rate) / 16.0);
	return (step * step / 12 + exp2(NOWHERE / 2.0)) / 2;
}

static double nominal_bits(int rate)
{
	double sum = 0;
	for (int k = 0; k < CHANNELS / 2; k++)
		sum += k / 4.0 + rate / 16.0;
	return sum / CHANNELS;
}

static void near_to(double x, double want, double share)
{
	if (x < want * (1 - share) || x > want * (1 + share))
		fail_msg("%g instead of %g", x, want);
}

/* An error in a slot that counts twice is twice as large: its row is. */
static void errors_and_sizes(void **state)
{
	static const char *const texts[] = { "klt:3", "klt:4.5", "klt:2.5,keys=+1" };
	static const int rates[] = { 48, 72, 40 };
	(void)state;
	for (size_t k = 0; k < 9; k++) {
		struct klt_world *w = calloc(1, sizeof *w);
		kvarc_lossy how = tier(texts[k % 3]);
		size_t bytes = 0;
		unsigned kind = k < 3 ? KVARC_VALUE : KVARC_KEY;
		int rate = rates[k % 3] + (kind == KVARC_KEY ? how.key_rate : 0);
		make_world(w, kind, k >= 6);
		uint8_t *payload = code(w, &how, &bytes);
		assert_non_null(payload);
		assert_int_equal(payload[FLAGS], 0);
		if (kind == KVARC_VALUE) {
			near_to(error_of(w, false, 0, 1), nominal(rate), 0.08);
			near_to(error_of(w, true, 0, 1), 4 * nominal(rate), 0.08);
		} else { /* pairs of both kinds are mixed where they turn */
			near_to(error_of(w, false, 0, 1) + error_of(w, true, 0, 1),
			        5 * nominal(rate), 0.08);
		}
		near_to(8 * (double)(bytes - 142) / N, nominal_bits(rate), 0.04);
		free(payload);
		kvi_profile_free(w->profile);
		free(w);
	}
}

/* Tokens with rates of their own, and one that stays; a number that no code is for. */
static void tokens_apart(void **state)
{
	static int16_t rates[TOKENS];
	struct klt_world *w = calloc(1, sizeof *w);
	kvarc_lossy how = tier("klt:3");
	size_t bytes = 0;
	(void)state;
	for (size_t t = 0; t < TOKENS; t++)
		rates[t] = t % 2 ? 24 : 0;
	rates[7] = KVARC_LOSSY_NOTHING;
	make_world(w, KVARC_VALUE, 0);
	w->request.token_rate = rates;
	w->was[50 * WIDTH + 3] = 3e7f;
	kvi_floats_store(KVARC_F32, w->was, N, w->raw);
	uint8_t *payload = code(w, &how, &bytes);
	assert_non_null(payload);
	assert_int_equal(payload[FLAGS], 3);
	for (size_t i = 0; i < WIDTH; i++) {
		assert_true(w->was[7 * WIDTH + i] == w->is[7 * WIDTH + i]);
		assert_true(w->was[50 * WIDTH + i] == w->is[50 * WIDTH + i]);
	}
	near_to(error_of(w, false, 0, 2), nominal(48), 0.1);
	near_to(error_of(w, false, 1, 2), nominal(72), 0.1);
	free(payload);
	kvi_profile_free(w->profile);
	free(w);
}

static void expect(const struct kvi_encode_request *request, unsigned size, const uint8_t *payload,
                   size_t bytes, kvarc_ret ret)
{
	uint8_t *cut = malloc(bytes ? bytes : 1), *raw = malloc(4 * N * sizeof(float));
	memcpy(cut, payload, bytes);
	const struct kvi_encoded e = { .codec = KVI_CODEC_KLT,
		                       .cut = { .stream_size = (uint8_t)size },
		                       .payload_bytes = bytes };
	const struct kvi_decode_request r = decode_of(request, &e, cut);
	for (int i = 0; i < n_coders; i++)
		assert_int_equal(kvi_chunk_decode(coders[i], &r, raw, NULL), ret);
	free(cut);
	free(raw);
}

static void what_does_not_fit(void **state)
{
	struct klt_world *w = calloc(1, sizeof *w);
	kvarc_lossy how = tier("klt:3");
	size_t bytes = 0;
	(void)state;
	make_world(w, KVARC_KEY, 0);
	uint8_t *payload = code(w, &how, &bytes);
	const struct kvi_encode_request good = w->request;
	for (int i = 0; i < 4; i++) {
		w->request = good;
		switch (i) {
		case 0:
			w->request.linear.in = NULL;
			break;
		case 1:
			w->request.chunk.heads *= 2;
			w->request.chunk.head_channels /= 2; /* too few for the rope */
			w->request.chunk.rope = NULL;
			break;
		case 2:
			w->request.chunk.heads = 4 * HEADS;
			w->request.chunk.n_tokens /= 4;
			break;
		default:
			w->request.chunk.head_channels *= 2;
			w->request.chunk.n_tokens /= 2;
			w->in.n_tokens /= 2;
		}
		assert_null(code(w, &how, &bytes));
		expect(&w->request, 3, payload, bytes, KVARC_PREDICTOR);
	}
	w->request = good;
	w->in.n_tokens = TOKENS;
	expect(&good, 3, payload, bytes, KVARC_OK);
	expect(&good, 0, payload, bytes, KVARC_DATA);
	for (size_t n = 0; n < bytes; n += n < 150 ? 1 : 37)
		expect(&good, 3, payload, n, KVARC_DATA);
	free(payload);
	kvi_profile_free(w->profile);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_and_sizes),
		cmocka_unit_test(tokens_apart),
		cmocka_unit_test(what_does_not_fit),
	};
	return cmocka_run_group_tests(tests, open_klt, close_coders);
}
