/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_run.c - the host's part: the jobs that take all tokens of a sequence through a model */
#include "exact_run.h"

#include <string.h>

#include "exact/engine_internal.h"

/* Parts of memory are multiples of RUN_PART; rows have whole ROW_NUMBERS. */
enum { RUN_PART = 256, ROW_NUMBERS = 16 };

static uint32_t whole(uint32_t n, uint32_t of)
{
	return (n + of - 1) / of * of;
}

/* ----- memory ------------------------------------------------ */

/* Memory on its way. */
struct run_memory {
	uint64_t at;
	bool too_large; /* an array has 2^32 bytes */
};

/* An array of rows of `bytes` bytes; both numbers are below 2^32. */
static uint64_t take_bytes(struct run_memory *m, uint64_t rows, uint64_t bytes)
{
	const uint64_t at = m->at;
	m->too_large |= bytes && rows > UINT32_MAX / bytes;
	m->at += m->too_large ? 0 : (rows * bytes + RUN_PART - 1) / RUN_PART * RUN_PART;
	return at;
}

static uint64_t take_rows(struct run_memory *m, uint64_t rows, uint64_t numbers)
{
	return take_bytes(m, rows, numbers * sizeof(float));
}

/* Integers of rows of `stride` bytes, and of their groups. */
static struct kvi_gpu_integers take_integers(struct run_memory *m, uint64_t rows, uint32_t stride,
                                             bool two, uint64_t groups, bool sums)
{
	struct kvi_gpu_integers i = { { take_bytes(m, rows, stride), 0 }, 0, 0 };
	if (two)
		i.to[1] = take_bytes(m, rows, stride);
	i.scale = take_rows(m, rows, groups);
	if (sums)
		i.sum = take_rows(m, rows, groups);
	return i;
}

/* A head is one group. */
static uint32_t head_group(const struct kvi_gpu_exact_model *m)
{
	return whole(m->channels, KVI_GPU_STEP_COLUMNS);
}

/* Lays out the arrays that attention needs beside h and x. */
static void place_attention(struct kvi_gpu_exact_run *r, struct run_memory *m)
{
	const struct kvi_gpu_exact_model *x = r->m;
	const struct kvi_arithmetic *a = &x->arithmetic;
	const uint32_t stride = kvi_gpu_operand_stride(x->channels, head_group(x));
	const uint64_t q_rows = whole(r->tokens, KVI_GPU_TILE_ROWS);
	const uint64_t k_rows = whole(r->tokens, KVI_GPU_KEY_BLOCK);
	const uint32_t v_rows = whole(x->channels, 8);
	const bool two_keys = kvi_twelve(a, KVI_MATRIX_KEYS) || kvi_wide(a, KVI_MATRIX_KEYS) ||
	                      kvi_planes(a, KVI_MATRIX_KEYS) == 2;
	r->q = take_rows(m, r->tokens, r->heads);
	r->attended = take_rows(m, r->tokens, r->heads);
	r->query = take_integers(m, x->heads * q_rows, stride, two_keys, 1, false);
	r->key = take_integers(m, x->kv_heads * k_rows, stride, two_keys, 1, false);
	r->value.to[0] = take_bytes(m, x->kv_heads * k_rows, v_rows);
	r->value.to[1] = kvi_planes(a, KVI_MATRIX_VALUES) == 2
	                         ? take_bytes(m, x->kv_heads * k_rows, v_rows)
	                         : 0;
	r->value.scale = take_rows(m, x->kv_heads * k_rows, 1);
}

uint64_t kvi_gpu_exact_place(struct kvi_gpu_exact_run *r, uint64_t base)
{
	const struct kvi_gpu_exact_model *m = r->m;
	struct run_memory at = { base, r->tokens > UINT32_MAX - KVI_GPU_KEY_BLOCK };
	r->width = whole(m->width, ROW_NUMBERS);
	r->kv = whole(m->kv_heads * m->channels, ROW_NUMBERS);
	r->heads = whole(m->heads * m->channels, ROW_NUMBERS);
	r->ffn = whole(m->ffn, ROW_NUMBERS);
	if (at.too_large)
		return 0;
	r->h = take_rows(&at, r->tokens, r->width);
	r->x = take_rows(&at, r->tokens, r->width);
	r->k = take_rows(&at, r->tokens, r->kv);
	r->v = take_rows(&at, r->tokens, r->kv);
	r->root = take_rows(&at, r->tokens, 1);
	r->activations = take_integers(&at, whole(r->tokens, KVI_GPU_TILE_ROWS), m->most_stride,
	                               true, m->most_groups, true);
	/* attention is over when the rest of the layer begins */
	struct run_memory attention = at;
	place_attention(r, &attention);
	r->gate = take_rows(&at, r->tokens, r->ffn);
	r->up = take_rows(&at, r->tokens, r->ffn);
	r->ret = KVARC_OK;
	r->quantised.x = 0;
	if (at.too_large || attention.too_large)
		return 0;
	return (at.at > attention.at ? at.at : attention.at) - base;
}

/* ----- jobs ------------------------------------------------ */

static void run_step(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_step *s)
{
	if (!r->ret)
		r->ret = r->run_step(r->opaque, s);
}

static void quantise(struct kvi_gpu_exact_run *r, const struct kvi_gpu_quantise *q)
{
	const struct kvi_gpu_exact_step s = { KVI_GPU_EXACT_QUANTISE, { .quantise = *q } };
	run_step(r, &s);
}

/* Integers of rows of x for products with an operand; none where they are there. */
static void quantise_rows(struct kvi_gpu_exact_run *r, uint64_t x, uint32_t stride,
                          uint32_t columns, const struct kvi_gpu_weights *w, bool wide)
{
	const struct kvi_gpu_quantise q = {
		.x = x,
		.to = { r->activations.to[0], wide ? r->activations.to[1] : 0 },
		.scale = r->activations.scale,
		.sum = w->minimum ? r->activations.sum : 0,
		.tokens = r->tokens,
		.parts = 1,
		.x_stride = stride,
		.columns = columns,
		.group = w->group,
		.stride = w->stride,
		.part_rows = whole(r->tokens, KVI_GPU_TILE_ROWS),
		.largest = wide ? KVI_A15_MAX : KVI_A8_MAX,
		.row_scale = wide,
	};
	if (!memcmp(&q, &r->quantised, sizeof q))
		return;
	r->quantised = q;
	quantise(r, &q);
}

/* Rows have changed: integers of them are not what they were. */
static void changed(struct kvi_gpu_exact_run *r, uint64_t x)
{
	if (r->quantised.x == x)
		r->quantised.x = 0;
}

/* y = W x (+ bias) */
static void multiply(struct kvi_gpu_exact_run *r, uint64_t x, uint32_t x_stride, uint32_t columns,
                     const struct kvi_gpu_weights *w, enum kvi_matrix_kind kind, uint64_t bias,
                     uint64_t y, uint32_t y_stride)
{
	const bool wide = kvi_wide(&r->m->arithmetic, kind);
	quantise_rows(r, x, x_stride, columns, w, wide);
	const struct kvi_gpu_exact_step s = { KVI_GPU_EXACT_PRODUCT,
		                              { .product = {
							.a = { r->activations.to[0],
		                                               wide ? r->activations.to[1] : 0 },
							.a_scale = r->activations.scale,
							.a_sum = w->minimum ? r->activations.sum
		                                                            : 0,
							.w = { w->w[0], w->w[1] },
							.w_scale = w->scale,
							.w_minimum = w->minimum,
							.bias = bias,
							.y = y,
							.rows = r->tokens,
							.outputs = w->outputs,
							.group = w->group,
							.groups = w->groups,
							.stride = w->stride,
							.y_stride = y_stride,
						} } };
	changed(r, y);
	run_step(r, &s);
}

/* y = norm of parts of rows of x. */
static void norm(struct kvi_gpu_exact_run *r, uint64_t y, uint64_t x, uint32_t stride,
                 uint32_t parts, uint32_t columns, uint64_t gain, uint64_t bias, uint64_t root)
{
	const struct kvi_gpu_exact_step s = { KVI_GPU_EXACT_NORM,
		                              { .norm = {
							.x = x,
							.y = y,
							.gain = gain,
							.bias = bias,
							.root = root,
							.tokens = r->tokens,
							.parts = parts,
							.columns = columns,
							.x_stride = stride,
							.y_stride = stride,
							.epsilon = r->m->epsilon,
						} } };
	changed(r, y);
	run_step(r, &s);
}

static void combine(struct kvi_gpu_exact_run *r, uint64_t x, uint64_t y, uint32_t columns,
                    uint32_t stride, uint32_t operation)
{
	const struct kvi_gpu_exact_step s = { KVI_GPU_EXACT_ROWS,
		                              { .rows = {
							.x = x,
							.y = y,
							.operation = operation,
							.tokens = r->tokens,
							.columns = columns,
							.x_stride = stride,
							.y_stride = stride,
						} } };
	changed(r, x);
	run_step(r, &s);
}

static void rotate(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l, uint64_t x,
                   uint32_t heads, uint32_t stride)
{
	if (l->rope >= r->m->n_ropes || !r->m->pairs[l->rope])
		return;
	const struct kvi_gpu_exact_step s = { KVI_GPU_EXACT_ROTATE,
		                              { .rotate = {
							.x = x,
							.turn = r->turns[l->rope],
							.tokens = r->tokens,
							.heads = heads,
							.channels = r->m->channels,
							.pairs = r->m->pairs[l->rope],
							.x_stride = stride,
							.capacity = r->capacity,
						} } };
	run_step(r, &s);
}

static void norm_input(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l)
{
	norm(r, r->x, r->h, r->width, 1, r->m->width, l->norm, l->norm_bias, r->root);
}

kvarc_ret kvi_gpu_exact_begin(struct kvi_gpu_exact_run *r)
{
	const struct kvi_gpu_exact_model *m = r->m;
	const struct kvi_gpu_exact_step s = { KVI_GPU_EXACT_EMBED,
		                              { .embed = {
							.table = m->embedding,
							.ids = r->ids,
							.positions = m->positions,
							.position_ids = r->positions,
							.y = r->h,
							.tokens = r->tokens,
							.columns = m->width,
							.y_stride = r->width,
							.rows = m->vocabulary,
							.position_rows = m->position_rows,
							.scale = m->embedding_scale,
						} } };
	run_step(r, &s);
	return r->ret;
}

kvarc_ret kvi_gpu_exact_predict(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l)
{
	const struct kvi_gpu_exact_model *m = r->m;
	norm_input(r, l);
	multiply(r, r->x, r->width, m->width, &l->k, KVI_MATRIX_KV, l->k_bias, r->k, r->kv);
	multiply(r, r->x, r->width, m->width, &l->v, KVI_MATRIX_KV, l->v_bias, r->v, r->kv);
	if (l->k_norm)
		norm(r, r->k, r->k, r->kv, m->kv_heads, m->channels, l->k_norm, 0, 0);
	return r->ret;
}

kvarc_ret kvi_gpu_exact_turn(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l,
                             uint64_t k, uint32_t stride)
{
	rotate(r, l, k, r->m->kv_heads, stride);
	return r->ret;
}

/* ----- through a layer ------------------------------------------------ */

/* Rows of heads as one group each: queries, or keys. */
static void quantise_heads(struct kvi_gpu_exact_run *r, uint64_t x, uint32_t stride, uint32_t heads,
                           const struct kvi_gpu_integers *to, uint32_t part_rows, uint32_t largest,
                           bool keys)
{
	const uint32_t group = head_group(r->m);
	const struct kvi_gpu_quantise q = {
		.x = x,
		.to = { to->to[0], largest > KVI_W8_MAX ? to->to[1] : 0 },
		.scale = to->scale,
		.tokens = r->tokens,
		.parts = heads,
		.x_stride = stride,
		.columns = r->m->channels,
		.group = group,
		.stride = kvi_gpu_operand_stride(r->m->channels, group),
		.part_rows = part_rows,
		.largest = largest,
		.row_scale = 1,
		.keys = keys,
		.planes = keys && largest == KVI_W15_MAX,
		.finite = keys,
	};
	quantise(r, &q);
}

static void quantise_values(struct kvi_gpu_exact_run *r, uint64_t v, uint32_t stride,
                            uint32_t blocks)
{
	const struct kvi_gpu_exact_step s = { KVI_GPU_EXACT_VALUES,
		                              { .values = {
							.x = v,
							.to = { r->value.to[0], r->value.to[1] },
							.scale = r->value.scale,
							.tokens = r->tokens,
							.heads = r->m->kv_heads,
							.channels = r->m->channels,
							.x_stride = stride,
							.v_rows = whole(r->m->channels, 8),
							.blocks = blocks,
						} } };
	run_step(r, &s);
}

/* Largest magnitude of queries, or of probabilities. */
static uint32_t largest_of(const struct kvi_arithmetic *a, enum kvi_matrix_kind kind)
{
	return kvi_twelve(a, kind) ? KVI_A12_MAX : kvi_wide(a, kind) ? KVI_A15_MAX : KVI_A8_MAX;
}

static void attend(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l, uint64_t k,
                   uint64_t v, uint32_t stride)
{
	const struct kvi_gpu_exact_model *m = r->m;
	const struct kvi_arithmetic *a = &m->arithmetic;
	const bool twelve = kvi_twelve(a, KVI_MATRIX_KEYS);
	const uint32_t queries = largest_of(a, KVI_MATRIX_KEYS);
	const uint32_t keys = twelve                                ? KVI_W12_MAX
	                      : kvi_planes(a, KVI_MATRIX_KEYS) == 2 ? KVI_W15_MAX
	                                                            : KVI_W8_MAX;
	const uint32_t q_rows = whole(r->tokens, KVI_GPU_TILE_ROWS);
	const uint32_t k_rows = whole(r->tokens, KVI_GPU_KEY_BLOCK);
	quantise_heads(r, r->q, r->heads, m->heads, &r->query, q_rows, queries, false);
	quantise_heads(r, k, stride, m->kv_heads, &r->key, k_rows, keys, true);
	quantise_values(r, v, stride, k_rows / KVI_GPU_KEY_BLOCK);
	const struct kvi_gpu_exact_step
		s = { KVI_GPU_EXACT_ATTENTION,
		      { .attention = {
				.q = { r->query.to[0], queries > KVI_W8_MAX ? r->query.to[1] : 0 },
				.q_scale = r->query.scale,
				.k = { r->key.to[0], keys > KVI_W8_MAX ? r->key.to[1] : 0 },
				.k_scale = r->key.scale,
				.v = { r->value.to[0], r->value.to[1] },
				.v_scale = r->value.scale,
				.o = r->attended,
				.tokens = r->tokens,
				.heads = m->heads,
				.kv_heads = m->kv_heads,
				.channels = m->channels,
				.stride = kvi_gpu_operand_stride(m->channels, head_group(m)),
				.q_rows = q_rows,
				.k_rows = k_rows,
				.v_rows = whole(m->channels, 8),
				.o_stride = r->heads,
				.window = l->window,
				.twelve = twelve,
				.largest = largest_of(a, KVI_MATRIX_VALUES),
				.scale = m->attention_scale,
			} } };
	run_step(r, &s);
}

/* The residual takes up what a branch gives, here in x. */
static void add_branch(struct kvi_gpu_exact_run *r, uint64_t gain)
{
	if (gain)
		norm(r, r->x, r->x, r->width, 1, r->m->width, gain, 0, 0);
	combine(r, r->h, r->x, r->m->width, r->width, KVI_GPU_ADD);
}

static void feed_forward(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l)
{
	const struct kvi_gpu_exact_model *m = r->m;
	const bool gated = l->gate.outputs != 0;
	const uint64_t g = gated ? r->gate : r->up;
	norm(r, r->x, r->h, r->width, 1, m->width, l->ffn_norm, l->ffn_norm_bias, 0);
	if (gated)
		multiply(r, r->x, r->width, m->width, &l->gate, KVI_MATRIX_FFN, 0, r->gate, r->ffn);
	multiply(r, r->x, r->width, m->width, &l->up, KVI_MATRIX_FFN, l->up_bias, r->up, r->ffn);
	combine(r, g, gated ? r->up : 0, m->ffn, r->ffn, m->activation);
	multiply(r, g, r->ffn, m->ffn, &l->down, KVI_MATRIX_DOWN, l->down_bias, r->x, r->width);
	add_branch(r, l->after_ffn);
}

kvarc_ret kvi_gpu_exact_advance(struct kvi_gpu_exact_run *r, const struct kvi_gpu_exact_layer *l,
                                uint64_t k, uint64_t v, uint32_t stride, bool corrected)
{
	const struct kvi_gpu_exact_model *m = r->m;
	if (corrected)
		norm_input(r, l);
	multiply(r, r->x, r->width, m->width, &l->q, KVI_MATRIX_Q, l->q_bias, r->q, r->heads);
	if (l->q_norm)
		norm(r, r->q, r->q, r->heads, m->heads, m->channels, l->q_norm, 0, 0);
	rotate(r, l, r->q, m->heads, r->heads);
	attend(r, l, k, v, stride);
	changed(r, r->attended);
	multiply(r, r->attended, r->heads, m->heads * m->channels, &l->o, KVI_MATRIX_O, l->o_bias,
	         r->x, r->width);
	add_branch(r, l->after_attention);
	feed_forward(r, l);
	return r->ret;
}
