/* SPDX-License-Identifier: BSD-3-Clause */
/* model_world.c - a key and a value of a layer with what a transformer is to expect of them */
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
#include "random.h"

void model_world_seed(uint64_t first)
{
	seed = first;
}

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
	if (w->width && kind == KVARC_VALUE) {
		m->flags |= KVI_MODEL_CORRECTS;
		m->width = w->width;
	}
	assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
	for (size_t i = 0; i < m->width; i++) {
		m->e[i] = (uint8_t)between(0, 63);
		kvi_model_row_d(m, i, small_run, NULL);
	}
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
	uint8_t *to = w->raw[i] + (t * kvi_chunk_channels(&w->request[i].chunk) + c) * size;
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
void model_world_connect(struct model_world *w, size_t i)
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
	w->raw[i] = malloc(kvi_chunk_bytes(&w->request[i].chunk));
	assert_non_null(w->raw[i]);
	fill(w, i);
}

void model_world_make(struct model_world *w, unsigned round)
{
	static const uint32_t tokens[] = { 5, 31, 32, 33, 95, 96, 255, 256 };
	static const unsigned dtypes[] = { KVARC_BF16, KVARC_F16, KVARC_F32, KVARC_E4M3,
		                           KVARC_E5M2 };
	*w = (struct model_world){ .level = 4 + round % 4,
		                   .heads = 1 + below(4),
		                   .n_tokens = tokens[below(8)],
		                   .dtype = dtypes[round / 4 % 5],
		                   .pattern = (enum model_pattern)(round % PATTERNS),
		                   .step = between(-10, -8),
		                   .noise = -5,
		                   .width = round % 3 ? 1 + below(round % 7 ? 40 : 300) : 0 };
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
		model_world_connect(w, i);
}

void model_world_free(struct model_world *w)
{
	for (size_t i = 0; i < N_TENSORS; i++) {
		kvi_features_close(w->features[i], &alloc);
		free(w->raw[i]);
		free(w->expected[i]);
	}
	kvi_profile_free(w->profile);
}
