/* SPDX-License-Identifier: BSD-3-Clause */
/* made_model.c - a model in memory whose matrices and heads are larger than tiles of kernels */
#include "config.h"

#include "made_model.h"

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 330, FFN = 200, HEADS = 4, KV_HEADS = 2, VOCABULARY = 29, WINDOW = 300 };

static float made_noise(struct made_model *m)
{
	int sum = 0;
	for (int i = 0; i < 4; i++) {
		m->seed = m->seed * 1664525u + 1013904223u;
		sum += (int)(m->seed >> 24);
	}
	return (float)(sum - 510) * 0x1p-8f;
}

static struct kvi_matrix made_matrix(struct made_model *m, size_t rows, size_t columns, float scale,
                                     float plus)
{
	float *x = m->numbers + m->used;
	m->used += rows * columns;
	if (m->used > m->capacity) {
		fputs("made_model: more numbers than memory\n", stderr);
		exit(2);
	}
	for (size_t i = 0; i < rows * columns; i++)
		x[i] = made_noise(m) * scale + plus;
	return (struct kvi_matrix){
		.type = KVI_NUM_F32, .rows = rows, .columns = columns, .data = (const uint8_t *)x
	};
}

static void make_layer(struct made_model *m, struct kvi_model_layer *l, size_t channels)
{
	const size_t q = HEADS * channels, kv = KV_HEADS * channels;
	const float gain = .0625f;
	l->input_norm = made_matrix(m, 1, WIDTH, .1f, 1);
	l->q = made_matrix(m, q, WIDTH, gain, 0);
	l->k = made_matrix(m, kv, WIDTH, gain, 0);
	l->v = made_matrix(m, kv, WIDTH, gain, 0);
	l->o = made_matrix(m, WIDTH, q, gain, 0);
	l->q_norm = made_matrix(m, 1, channels, .1f, 1);
	l->k_norm = made_matrix(m, 1, channels, .1f, 1);
	l->v_bias = made_matrix(m, 1, kv, .1f, 0);
	l->ffn_norm = made_matrix(m, 1, WIDTH, .1f, 1);
	l->gate = made_matrix(m, FFN, WIDTH, gain, 0);
	l->up = made_matrix(m, FFN, WIDTH, gain, 0);
	l->down = made_matrix(m, WIDTH, FFN, gain, 0);
}

void made_model_open(struct made_model *m, const struct kvi_alloc *alloc, uint32_t head_channels)
{
	*m = (struct made_model){ .capacity = 1 << 22, .seed = 1 };
	m->numbers = malloc(m->capacity * sizeof *m->numbers);
	if (!m->numbers) {
		fputs("made_model: out of memory\n", stderr);
		exit(2);
	}
	m->file = (struct kvi_model_file){
		.alloc = alloc,
		.arch = "qwen3",
		.n_layers = MADE_LAYERS,
		.width = WIDTH,
		.heads = HEADS,
		.kv_heads = KV_HEADS,
		.head_channels = head_channels,
		.ffn = FFN,
		.vocabulary = VOCABULARY,
		.norm_epsilon = 1e-6f,
		.attention_scale = .0625f,
		.embedding_scale = 1,
		.activation = KVI_SILU,
		.n_ropes = 1,
		.layers = m->layers,
	};
	for (uint32_t i = 0; i < head_channels / 2; i++)
		m->freq[i] = (0x28be60db9391ull >> i % 40) << 16;
	m->file.ropes[0] = (struct kvi_model_rope){ head_channels / 2 * 2, m->freq };
	m->file.embedding = made_matrix(m, VOCABULARY, WIDTH, 1, 0);
	for (int i = 0; i < MADE_LAYERS; i++)
		make_layer(m, &m->layers[i], head_channels);
	m->layers[1].window = WINDOW;
}

void made_model_close(struct made_model *m)
{
	free(m->numbers);
	*m = (struct made_model){ .used = 0 };
}
