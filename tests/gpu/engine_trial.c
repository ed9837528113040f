/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_trial.c - a sequence through an engine by the kernels of gpu/ on the host */
#include "config.h"

#include "engine_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exact/engine_internal.h"
#include "exact_host_run.h"
#include "exact_plan.h"
#include "numeric/rope_angles.h"

struct engine_trial {
	const struct kvi_engine *e;
	const struct kvi_model_file *m;
	size_t n, layer;
	size_t width, kv, heads, ffn; /* numbers of a row */
	float *h, *x, *k, *v, *q, *attended, *gate, *up, *root;
	void *turns_memory[2];
	struct kvi_rotations turns[2];
};

/* Zeros, aligned as kernels want it, of a size that accesses are compared with. */
static void *memory(size_t bytes)
{
	void *p = NULL;
	if (posix_memalign(&p, 64, bytes ? bytes : 1)) {
		fputs("check_engine: out of memory\n", stderr);
		exit(2);
	}
	return memset(p, 0, bytes);
}

static uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static size_t whole(size_t n, size_t of)
{
	return (n + of - 1) / of * of;
}

/* All rows of a matrix in fp32; NULL: it has none. */
static float *table_of(const struct kvi_matrix *m)
{
	float *x = m->data ? memory(m->rows * m->columns * sizeof(float)) : NULL;
	for (uint64_t r = 0; x && r < m->rows; r++)
		if (!kvi_matrix_row(m, r, x + r * m->columns)) {
			fputs("check_engine: a row of the embedding is not finite\n", stderr);
			exit(2);
		}
	return x;
}

static void embed(const struct engine_trial *t, const int32_t *ids, const int32_t *positions)
{
	const struct kvi_model_file *m = t->m;
	float *table = table_of(&m->embedding), *more = table_of(&m->positions);
	int32_t *id = memory(t->n * sizeof *id), *position = memory(t->n * sizeof *position);
	memcpy(id, ids, t->n * sizeof *id);
	memcpy(position, positions, t->n * sizeof *position);
	const struct kvi_gpu_embed p = {
		.table = address(table),
		.ids = address(id),
		.positions = address(more),
		.position_ids = address(position),
		.y = address(t->h),
		.tokens = (uint32_t)t->n,
		.columns = m->width,
		.y_stride = (uint32_t)t->width,
		.rows = m->vocabulary,
		.position_rows = (uint32_t)m->positions.rows,
		.scale = m->embedding_scale,
	};
	kvi_gpu_host_embed(&p);
	free(table);
	free(more);
	free(id);
	free(position);
}

static struct kvi_gpu_rows rows_of(const struct engine_trial *t, float *x, const float *y,
                                   size_t columns, size_t stride, uint32_t operation)
{
	return (struct kvi_gpu_rows){
		.x = address(x),
		.y = address(y),
		.operation = operation,
		.tokens = (uint32_t)t->n,
		.columns = (uint32_t)columns,
		.x_stride = (uint32_t)stride,
		.y_stride = (uint32_t)stride,
	};
}

static void open_turns(struct engine_trial *t, const int32_t *positions)
{
	for (unsigned i = 0; i < t->m->n_ropes; i++) {
		const struct kvi_model_rope *r = &t->m->ropes[i];
		const kvarc_rope rope = { .rotary = r->rotary, .freq = r->freq };
		t->turns_memory[i] = memory(kvi_rotations_bytes(r->rotary / 2, t->n));
		kvi_rotations_make(&t->turns[i], t->turns_memory[i], &rope, positions, t->n);
	}
}

struct engine_trial *engine_trial_open(const struct kvi_engine *e, const int32_t *ids,
                                       const int32_t *positions, size_t n)
{
	struct engine_trial *t = memory(sizeof *t);
	const struct kvi_model_file *m = kvi_engine_model(e);
	t->e = e;
	t->m = m;
	t->n = n;
	t->width = whole(m->width, 16);
	t->kv = whole((size_t)m->kv_heads * m->head_channels, 16);
	t->heads = whole((size_t)m->heads * m->head_channels, 16);
	t->ffn = whole(m->ffn, 16);
	struct {
		float **p;
		size_t n;
	} rows[] = {
		{ &t->h, t->width },  { &t->x, t->width }, { &t->k, t->kv },
		{ &t->v, t->kv },     { &t->q, t->heads }, { &t->attended, t->heads },
		{ &t->gate, t->ffn }, { &t->up, t->ffn },  { &t->root, 1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		*rows[i].p = memory(n * rows[i].n * sizeof(float));
	embed(t, ids, positions);
	open_turns(t, positions);
	return t;
}

void engine_trial_close(struct engine_trial *t)
{
	float *const rows[] = {
		t->h, t->x, t->k, t->v, t->q, t->attended, t->gate, t->up, t->root
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		free(rows[i]);
	for (unsigned i = 0; i < 2; i++)
		free(t->turns_memory[i]);
	free(t);
}

static const struct kvi_engine_layer *layer_of(const struct engine_trial *t)
{
	return &t->e->layers[t->layer];
}

/* Rows of integers, and their scales. */
struct integers {
	void *to[2], *scale, *sum;
	uint32_t stride;
};

static void free_integers(struct integers *i)
{
	free(i->to[0]);
	free(i->to[1]);
	free(i->scale);
	free(i->sum);
}

/* All of q is set but what is memory and follows from it. */
static struct integers quantise(struct kvi_gpu_quantise q, bool limbs, bool sums)
{
	const size_t rows = (size_t)q.parts * q.part_rows;
	const size_t groups = kvi_groups(q.columns, q.group);
	struct integers i = { .stride = kvi_gpu_operand_stride(q.columns, q.group) };
	i.to[0] = memory(rows * i.stride);
	i.to[1] = limbs ? memory(rows * i.stride) : NULL;
	i.scale = memory(rows * groups * sizeof(float));
	i.sum = sums ? memory(rows * groups * sizeof(int32_t)) : NULL;
	q.to[0] = address(i.to[0]);
	q.to[1] = address(i.to[1]);
	q.scale = address(i.scale);
	q.sum = address(i.sum);
	q.stride = i.stride;
	kvi_gpu_host_quantise(&q);
	return i;
}

/* y = W x (+ bias) */
static void linear(const struct engine_trial *t, const float *x, size_t x_stride,
                   const struct kvi_operand *w, enum kvi_matrix_kind kind, const float *bias,
                   float *y, size_t y_stride)
{
	const bool wide = kvi_wide(&t->e->arithmetic, kind);
	struct integers a = quantise(
		(struct kvi_gpu_quantise){
			.x = address(x),
			.tokens = (uint32_t)t->n,
			.parts = 1,
			.x_stride = (uint32_t)x_stride,
			.columns = (uint32_t)w->columns,
			.group = w->group,
			.part_rows = (uint32_t)whole(t->n, KVI_GPU_TILE_ROWS),
			.largest = wide ? KVI_A15_MAX : KVI_A8_MAX,
			.row_scale = wide,
		},
		wide, w->minimum != NULL);
	uint8_t *weights = memory(kvi_gpu_weights_bytes(w));
	float *biases = bias ? memory(w->rows * sizeof(float)) : NULL;
	if (bias)
		memcpy(biases, bias, w->rows * sizeof(float));
	struct kvi_gpu_weights at;
	kvi_gpu_weights_fill(&at, w, weights, address(weights));
	const struct kvi_gpu_product p = {
		.a = { address(a.to[0]), address(a.to[1]) },
		.a_scale = address(a.scale),
		.a_sum = address(a.sum),
		.w = { at.w[0], at.w[1] },
		.w_scale = at.scale,
		.w_minimum = at.minimum,
		.bias = address(biases),
		.y = address(y),
		.rows = (uint32_t)t->n,
		.outputs = at.outputs,
		.group = at.group,
		.groups = at.groups,
		.stride = at.stride,
		.y_stride = (uint32_t)y_stride,
	};
	kvi_gpu_host_product(&p);
	free_integers(&a);
	free(weights);
	free(biases);
}

/* y = norm of parts of rows of x */
static void norm(const struct engine_trial *t, float *y, const float *x, size_t stride,
                 size_t parts, size_t columns, const float *gain, const float *bias, float *root)
{
	float *gains = memory(columns * sizeof(float));
	float *biases = bias ? memory(columns * sizeof(float)) : NULL;
	memcpy(gains, gain, columns * sizeof(float));
	if (bias)
		memcpy(biases, bias, columns * sizeof(float));
	const struct kvi_gpu_norm p = {
		.x = address(x),
		.y = address(y),
		.gain = address(gains),
		.bias = address(biases),
		.root = address(root),
		.tokens = (uint32_t)t->n,
		.parts = (uint32_t)parts,
		.columns = (uint32_t)columns,
		.x_stride = (uint32_t)stride,
		.y_stride = (uint32_t)stride,
		.epsilon = t->m->norm_epsilon,
	};
	kvi_gpu_host_norm(&p);
	free(gains);
	free(biases);
}

static void norm_input(const struct engine_trial *t)
{
	const struct kvi_engine_layer *l = layer_of(t);
	norm(t, t->x, t->h, t->width, 1, t->m->width, l->norm, l->norm_bias, t->root);
}

struct kvi_predicted engine_trial_predict(struct engine_trial *t)
{
	const struct kvi_engine_layer *l = layer_of(t);
	norm_input(t);
	linear(t, t->x, t->width, &l->k, KVI_MATRIX_KV, l->k_bias, t->k, t->kv);
	linear(t, t->x, t->width, &l->v, KVI_MATRIX_KV, l->v_bias, t->v, t->kv);
	if (l->k_norm)
		norm(t, t->k, t->k, t->kv, t->m->kv_heads, t->m->head_channels, l->k_norm, NULL,
		     NULL);
	return (struct kvi_predicted){ t->k, t->v, t->kv };
}

struct kvi_hidden engine_trial_hidden(struct engine_trial *t)
{
	return (struct kvi_hidden){ t->h, t->root, t->width };
}

static void rotate(const struct engine_trial *t, float *x, size_t heads, size_t stride)
{
	const struct kvi_model_rope *rope = layer_of(t)->rope;
	if (!rope || !rope->rotary)
		return;
	const struct kvi_rotations *turns = &t->turns[rope - t->m->ropes];
	const struct kvi_gpu_rotate p = {
		.x = address(x),
		.turn = address(turns->turn),
		.tokens = (uint32_t)t->n,
		.heads = (uint32_t)heads,
		.channels = t->m->head_channels,
		.pairs = (uint32_t)turns->pairs,
		.x_stride = (uint32_t)stride,
		.capacity = (uint32_t)turns->tokens_capacity,
	};
	kvi_gpu_host_rotate(&p);
}

void engine_trial_rotate(struct engine_trial *t, float *k, size_t stride)
{
	rotate(t, k, t->m->kv_heads, stride);
}

/* Rows of heads as one group: queries, or keys. */
static struct integers quantise_heads(const struct engine_trial *t, const float *x, size_t stride,
                                      size_t heads, size_t part_rows, int largest, bool keys)
{
	return quantise(
		(struct kvi_gpu_quantise){
			.x = address(x),
			.tokens = (uint32_t)t->n,
			.parts = (uint32_t)heads,
			.x_stride = (uint32_t)stride,
			.columns = t->m->head_channels,
			.group = (uint32_t)whole(t->m->head_channels, KVI_GPU_STEP_COLUMNS),
			.part_rows = (uint32_t)part_rows,
			.largest = (uint32_t)largest,
			.row_scale = 1,
			.keys = keys,
			.planes = keys && largest == KVI_W15_MAX,
			.finite = keys,
		},
		largest > KVI_W8_MAX, false);
}

static struct integers quantise_values(const struct engine_trial *t, const float *v, size_t stride,
                                       size_t v_rows, size_t blocks)
{
	const bool wide = kvi_planes(&t->e->arithmetic, KVI_MATRIX_VALUES) == 2;
	const size_t bytes = t->m->kv_heads * blocks * v_rows * KVI_GPU_KEY_BLOCK;
	struct integers i = { .stride = KVI_GPU_KEY_BLOCK };
	i.to[0] = memory(bytes);
	i.to[1] = wide ? memory(bytes) : NULL;
	i.scale = memory(t->m->kv_heads * blocks * KVI_GPU_KEY_BLOCK * sizeof(float));
	const struct kvi_gpu_values p = {
		.x = address(v),
		.to = { address(i.to[0]), address(i.to[1]) },
		.scale = address(i.scale),
		.tokens = (uint32_t)t->n,
		.heads = t->m->kv_heads,
		.channels = t->m->head_channels,
		.x_stride = (uint32_t)stride,
		.v_rows = (uint32_t)v_rows,
		.blocks = (uint32_t)blocks,
	};
	kvi_gpu_host_values(&p);
	return i;
}

/* Largest magnitude of operands of attention: with 12 bits, wide or not. */
static int largest_of(const struct kvi_arithmetic *a, enum kvi_matrix_kind kind)
{
	return kvi_twelve(a, kind) ? KVI_A12_MAX : kvi_wide(a, kind) ? KVI_A15_MAX : KVI_A8_MAX;
}

static void attend(const struct engine_trial *t, const float *k, const float *v, size_t stride)
{
	const struct kvi_model_file *m = t->m;
	const struct kvi_arithmetic *a = &t->e->arithmetic;
	const bool twelve = kvi_twelve(a, KVI_MATRIX_KEYS);
	const int keys = twelve                                ? KVI_W12_MAX
	                 : kvi_planes(a, KVI_MATRIX_KEYS) == 2 ? KVI_W15_MAX
	                                                       : KVI_W8_MAX;
	const size_t blocks = whole(t->n, KVI_GPU_KEY_BLOCK) / KVI_GPU_KEY_BLOCK;
	const size_t v_rows = whole(m->head_channels, 8);
	const size_t q_rows = whole(t->n, KVI_GPU_TILE_ROWS), k_rows = blocks * KVI_GPU_KEY_BLOCK;
	struct integers query = quantise_heads(t, t->q, t->heads, m->heads, q_rows,
	                                       largest_of(a, KVI_MATRIX_KEYS), false);
	struct integers key = quantise_heads(t, k, stride, m->kv_heads, k_rows, keys, true);
	struct integers value = quantise_values(t, v, stride, v_rows, blocks);
	const struct kvi_gpu_attention p = {
		.q = { address(query.to[0]), address(query.to[1]) },
		.q_scale = address(query.scale),
		.k = { address(key.to[0]), address(key.to[1]) },
		.k_scale = address(key.scale),
		.v = { address(value.to[0]), address(value.to[1]) },
		.v_scale = address(value.scale),
		.o = address(t->attended),
		.tokens = (uint32_t)t->n,
		.heads = m->heads,
		.kv_heads = m->kv_heads,
		.channels = m->head_channels,
		.stride = key.stride,
		.q_rows = (uint32_t)q_rows,
		.k_rows = (uint32_t)k_rows,
		.v_rows = (uint32_t)v_rows,
		.o_stride = (uint32_t)t->heads,
		.window = layer_of(t)->window,
		.twelve = twelve,
		.largest = (uint32_t)largest_of(a, KVI_MATRIX_VALUES),
		.scale = m->attention_scale,
	};
	kvi_gpu_host_attention(&p);
	free_integers(&query);
	free_integers(&key);
	free_integers(&value);
}

/* The residual takes up what a branch gives, here in x. */
static void add_branch(const struct engine_trial *t, const float *gain)
{
	if (gain)
		norm(t, t->x, t->x, t->width, 1, t->m->width, gain, NULL, NULL);
	const struct kvi_gpu_rows add = rows_of(t, t->h, t->x, t->m->width, t->width, KVI_GPU_ADD);
	kvi_gpu_host_rows(&add);
}

static void feed_forward(const struct engine_trial *t)
{
	const struct kvi_engine_layer *l = layer_of(t);
	const bool gated = l->gate.rows;
	float *g = gated ? t->gate : t->up;
	norm(t, t->x, t->h, t->width, 1, t->m->width, l->ffn_norm, l->ffn_norm_bias, NULL);
	if (gated)
		linear(t, t->x, t->width, &l->gate, KVI_MATRIX_FFN, NULL, t->gate, t->ffn);
	linear(t, t->x, t->width, &l->up, KVI_MATRIX_FFN, l->up_bias, t->up, t->ffn);
	const struct kvi_gpu_rows act = rows_of(t, g, gated ? t->up : NULL, t->m->ffn, t->ffn,
	                                        t->m->activation == KVI_SILU ? KVI_GPU_SILU
	                                                                     : KVI_GPU_GELU);
	kvi_gpu_host_rows(&act);
	linear(t, g, t->ffn, &l->down, KVI_MATRIX_DOWN, l->down_bias, t->x, t->width);
	add_branch(t, l->after_ffn);
}

void engine_trial_advance(struct engine_trial *t, const float *k, const float *v, size_t stride,
                          bool corrected)
{
	const struct kvi_engine_layer *l = layer_of(t);
	const struct kvi_model_file *m = t->m;
	if (corrected)
		norm_input(t);
	linear(t, t->x, t->width, &l->q, KVI_MATRIX_Q, l->q_bias, t->q, t->heads);
	if (l->q_norm)
		norm(t, t->q, t->q, t->heads, m->heads, m->head_channels, l->q_norm, NULL, NULL);
	rotate(t, t->q, m->heads, t->heads);
	attend(t, k, v, stride);
	linear(t, t->attended, t->heads, &l->o, KVI_MATRIX_O, l->o_bias, t->x, t->width);
	add_branch(t, l->after_attention);
	feed_forward(t);
	t->layer++;
}
