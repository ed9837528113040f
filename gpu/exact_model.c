/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_model.c - the host's part: a model of the exact engine in device memory */
#include "exact_model.h"

#include <string.h>

#include "exact/engine_internal.h"

/* Parts of memory are multiples of this. */
enum { EXACT_PART = 16 };

/* Numbers of kinds of arrays that a layer has. */
enum { OPERANDS = 7, VECTORS = 14 };

/* An operand of a layer, and what it is for. */
struct layer_operand {
	const struct kvi_operand *w;
	struct kvi_gpu_weights *to;
	enum kvi_matrix_kind kind;
};

static void operands_of(struct layer_operand to[OPERANDS], const struct kvi_engine_layer *l,
                        struct kvi_gpu_exact_layer *x)
{
	const struct layer_operand all[OPERANDS] = {
		{ &l->q, &x->q, KVI_MATRIX_Q },          { &l->k, &x->k, KVI_MATRIX_KV },
		{ &l->v, &x->v, KVI_MATRIX_KV },         { &l->o, &x->o, KVI_MATRIX_O },
		{ &l->gate, &x->gate, KVI_MATRIX_FFN },  { &l->up, &x->up, KVI_MATRIX_FFN },
		{ &l->down, &x->down, KVI_MATRIX_DOWN },
	};
	memcpy(to, all, sizeof all);
}

/* A vector of a layer. */
struct layer_vector {
	const float *x;
	size_t n;
	uint64_t *to;
};

static void vectors_of(struct layer_vector to[VECTORS], const struct kvi_engine *e,
                       const struct kvi_engine_layer *l, struct kvi_gpu_exact_layer *x)
{
	const struct kvi_model_file *m = e->file;
	const size_t q = (size_t)m->heads * m->head_channels;
	const size_t kv = (size_t)m->kv_heads * m->head_channels;
	const struct layer_vector all[VECTORS] = {
		{ l->norm, m->width, &x->norm },
		{ l->norm_bias, m->width, &x->norm_bias },
		{ l->q_bias, q, &x->q_bias },
		{ l->k_bias, kv, &x->k_bias },
		{ l->v_bias, kv, &x->v_bias },
		{ l->o_bias, m->width, &x->o_bias },
		{ l->q_norm, m->head_channels, &x->q_norm },
		{ l->k_norm, m->head_channels, &x->k_norm },
		{ l->after_attention, m->width, &x->after_attention },
		{ l->ffn_norm, m->width, &x->ffn_norm },
		{ l->ffn_norm_bias, m->width, &x->ffn_norm_bias },
		{ l->up_bias, m->ffn, &x->up_bias },
		{ l->down_bias, m->width, &x->down_bias },
		{ l->after_ffn, m->width, &x->after_ffn },
	};
	memcpy(to, all, sizeof all);
}

/* ----- what kernels take ------------------------------------------------ */

/* Whether there is a kernel for products with an operand (exact_kernels.cu), of arrays below 2^32
 * bytes. */
static bool product_taken(const struct kvi_operand *w, bool wide)
{
	const uint64_t rows = (uint64_t)w->rows + KVI_GPU_TILE_OUTPUTS;
	const bool form = w->planes == 2 ? wide && w->group == 128 && !w->minimum
	                                 : w->group <= 32 || (w->group == 64 && !w->minimum);
	return form && !w->e4m3 && !w->words &&
	       rows * kvi_gpu_operand_stride(w->columns, w->group) <= UINT32_MAX &&
	       rows * kvi_operand_groups(w) * sizeof(float) <= UINT32_MAX;
}

static bool layer_taken(struct kvi_gpu_exact_model *m, const struct kvi_engine_layer *l)
{
	struct kvi_gpu_exact_layer none;
	struct layer_operand all[OPERANDS];
	operands_of(all, l, &none);
	for (size_t i = 0; i < OPERANDS; i++) {
		const struct kvi_operand *w = all[i].w;
		if (!w->rows)
			continue;
		if (!product_taken(w, kvi_wide(&m->arithmetic, all[i].kind)))
			return false;
		const uint32_t stride = kvi_gpu_operand_stride(w->columns, w->group);
		const uint32_t groups = (uint32_t)kvi_operand_groups(w);
		m->most_stride = stride > m->most_stride ? stride : m->most_stride;
		m->most_groups = groups > m->most_groups ? groups : m->most_groups;
	}
	return true;
}

static bool table_taken(const struct kvi_matrix *t)
{
	return t->rows <= UINT32_MAX / sizeof(float) / t->columns;
}

bool kvi_gpu_exact_model_of(struct kvi_gpu_exact_model *m, const struct kvi_engine *e)
{
	const struct kvi_model_file *f = e->file;
	*m = (struct kvi_gpu_exact_model){
		.arithmetic = e->arithmetic,
		.n_layers = f->n_layers,
		.width = f->width,
		.heads = f->heads,
		.kv_heads = f->kv_heads,
		.channels = f->head_channels,
		.ffn = f->ffn,
		.vocabulary = f->vocabulary,
		.position_rows = f->positions.data ? (uint32_t)f->positions.rows : 0,
		.n_ropes = f->n_ropes,
		.epsilon = f->norm_epsilon,
		.attention_scale = f->attention_scale,
		.embedding_scale = f->embedding_scale,
		.activation = f->activation == KVI_SILU ? KVI_GPU_SILU : KVI_GPU_GELU,
	};
	for (unsigned i = 0; i < f->n_ropes; i++)
		m->pairs[i] = f->ropes[i].rotary / 2;
	bool taken = kvi_gpu_exact_takes(&e->arithmetic) && table_taken(&f->embedding) &&
	             (!f->positions.data || table_taken(&f->positions));
	for (uint32_t l = 0; l < f->n_layers && taken; l++)
		taken = layer_taken(m, &e->layers[l]);
	return taken;
}

/* ----- a layer in memory ------------------------------------------------ */

/* Memory on its way; memory NULL: its size alone is wanted. */
struct layer_filling {
	uint8_t *memory;
	uint64_t address, at;
};

/* The next part. */
static uint8_t *next_part(struct layer_filling *f, uint64_t bytes, uint64_t *address)
{
	uint8_t *part = f->memory ? f->memory + f->at : NULL;
	*address = f->address + f->at;
	f->at += (bytes + EXACT_PART - 1) / EXACT_PART * EXACT_PART;
	return part;
}

static void put_layer(struct layer_filling *f, struct kvi_gpu_exact_layer *out,
                      const struct kvi_engine *e, size_t number)
{
	const struct kvi_engine_layer *l = &e->layers[number];
	struct layer_operand operands[OPERANDS];
	struct layer_vector vectors[VECTORS];
	uint64_t at;
	*out = (struct kvi_gpu_exact_layer){ .window = l->window, .rope = e->file->n_ropes };
	if (l->rope)
		out->rope = (uint32_t)(l->rope - e->file->ropes);
	operands_of(operands, l, out);
	vectors_of(vectors, e, l, out);
	for (size_t i = 0; i < OPERANDS; i++) {
		if (!operands[i].w->rows)
			continue;
		uint8_t *to = next_part(f, kvi_gpu_weights_bytes(operands[i].w), &at);
		if (to)
			kvi_gpu_weights_fill(operands[i].to, operands[i].w, to, at);
	}
	for (size_t i = 0; i < VECTORS; i++) {
		if (!vectors[i].x)
			continue;
		uint8_t *to = next_part(f, vectors[i].n * sizeof(float), vectors[i].to);
		if (to)
			memcpy(to, vectors[i].x, vectors[i].n * sizeof(float));
	}
}

uint64_t kvi_gpu_exact_layer_bytes(const struct kvi_engine *e, size_t l)
{
	struct kvi_gpu_exact_layer none;
	struct layer_filling f = { NULL, 0, 0 };
	put_layer(&f, &none, e, l);
	return f.at;
}

void kvi_gpu_exact_layer_fill(struct kvi_gpu_exact_layer *out, const struct kvi_engine *e, size_t l,
                              uint8_t *memory, uint64_t address)
{
	struct layer_filling f = { memory, address, 0 };
	put_layer(&f, out, e, l);
}
