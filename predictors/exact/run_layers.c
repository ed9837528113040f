/* SPDX-License-Identifier: BSD-3-Clause */
/* run_layers.c - a sequence of tokens through an engine (spec/arithmetic.md 8) */
#include <string.h>

#include "util/fpmode.h"
#include "run_state.h"

enum { TOKENS_STEP = 16 }; /* tokens of a step of a parallel loop */

static size_t whole(size_t n)
{
	return (n + 15) & ~(size_t)15;
}

/* Buffers for x in any form and groups. */
static kvarc_ret open_activations(struct kvi_run *r)
{
	size_t columns = r->m->width, bytes;
	if (r->m->ffn > columns)
		columns = r->m->ffn;
	if ((size_t)r->m->heads * r->m->head_channels > columns)
		columns = (size_t)r->m->heads * r->m->head_channels;
	if (!kvi_activations_bytes(KVI_RUN_TOKENS, columns, 16, true, &bytes))
		return KVARC_MEM;
	r->activations = kvi_malloc(r->o.alloc, bytes);
	return r->activations ? KVARC_OK : kvi_alloc_error(r->o.alloc);
}

static kvarc_ret open_rows(struct kvi_run *r)
{
	const struct kvi_model_file *m = r->m;
	r->width = whole(m->width);
	r->kv = whole((size_t)m->kv_heads * m->head_channels);
	r->heads = whole((size_t)m->heads * m->head_channels);
	r->ffn = whole(m->ffn);
	struct {
		float **p;
		size_t n;
	} rows[] = {
		{ &r->h, r->width },  { &r->x, r->width }, { &r->k, r->kv },
		{ &r->v, r->kv },     { &r->q, r->heads }, { &r->attended, r->heads },
		{ &r->gate, r->ffn }, { &r->up, r->ffn },  { &r->root, 1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		*rows[i].p = kvi_array(r->o.alloc, rows[i].n, KVI_RUN_TOKENS * sizeof(float));
		if (!*rows[i].p)
			return kvi_alloc_error(r->o.alloc);
	}
	return open_activations(r);
}

static kvarc_ret open_all(struct kvi_run *r)
{
	const struct kvi_model_file *m = r->m;
	kvarc_ret ret = open_rows(r);
	if (ret)
		return ret;
	for (unsigned i = 0; i < m->n_ropes; i++) {
		r->rotations_memory[i] = kvi_malloc(
			r->o.alloc, kvi_rotations_bytes(m->ropes[i].rotary / 2, KVI_RUN_TOKENS));
		if (!r->rotations_memory[i])
			return kvi_alloc_error(r->o.alloc);
	}
	r->caches = kvi_calloc(r->o.alloc, m->n_layers, kvi_run_lanes(r) * sizeof *r->caches);
	for (size_t i = 0; r->caches && i < kvi_run_lanes(r) * m->n_layers; i++)
		r->caches[i] = (struct kvi_cache){ .model = m,
			                           .arithmetic = &r->o.engine->arithmetic };
	r->scratch_bytes = kvi_attention_bytes(m->heads / m->kv_heads, m->head_channels);
	r->scratch_bytes = (r->scratch_bytes + 63) & ~(size_t)63;
	r->scratch = kvi_array(r->o.alloc, kvi_pool_workers(r->o.pool), r->scratch_bytes);
	return r->caches && r->scratch ? KVARC_OK : kvi_alloc_error(r->o.alloc);
}

static kvarc_ret open_ones(struct kvi_run *r)
{
	size_t n = r->m->width > r->m->head_channels ? r->m->width : r->m->head_channels;
	r->ones = kvi_array(r->o.alloc, n, sizeof *r->ones);
	for (size_t i = 0; r->ones && i < n; i++)
		r->ones[i] = 1;
	return r->ones ? KVARC_OK : kvi_alloc_error(r->o.alloc);
}

kvarc_ret kvi_run_open(struct kvi_run **out, const struct kvi_run_options *options)
{
	struct kvi_run *r = kvi_calloc(options->alloc, 1, sizeof *r);
	*out = r;
	if (!r)
		return kvi_alloc_error(options->alloc);
	r->o = *options;
	r->m = options->engine->file;
	r->kernels = options->kernels ? options->kernels : kvi_exact_kernels_get(options->isa_mask);
	r->elementwise = kvi_elementwise_get(options->isa_mask);
	r->format = options->round_to ? &kvi_float_format(options->round_to)->grid : NULL;
	kvarc_ret ret = open_all(r);
	if (!ret && r->format)
		ret = open_ones(r);
	if (ret)
		kvi_run_close(out);
	return ret;
}

void kvi_run_close(struct kvi_run **run)
{
	struct kvi_run *r = *run;
	if (!r)
		return;
	const struct kvi_alloc *alloc = r->o.alloc;
	float *const rows[] = { r->h,        r->x,    r->k,  r->v,    r->q,
		                r->attended, r->gate, r->up, r->root, r->ones };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		kvi_free(alloc, rows[i]);
	kvi_free(alloc, r->activations);
	for (unsigned i = 0; i < 2; i++)
		kvi_free(alloc, r->rotations_memory[i]);
	for (size_t i = 0; r->caches && i < kvi_run_lanes(r) * r->m->n_layers; i++)
		kvi_cache_free(&r->caches[i], alloc);
	kvi_free(alloc, r->caches);
	kvi_free(alloc, r->scratch);
	kvi_free(alloc, r);
	*run = NULL;
}

/* fn for each token, some at a time. */
struct tokens {
	struct kvi_run *r;
	void (*fn)(struct kvi_run *r, size_t t);
};

static void some_tokens(void *opaque, size_t i, unsigned worker)
{
	const struct tokens *x = opaque;
	size_t end = (i + 1) * TOKENS_STEP;
	(void)worker;
	for (size_t t = i * TOKENS_STEP; t < end && t < x->r->n; t++)
		x->fn(x->r, t);
}

static void each_token(struct kvi_run *r, void (*fn)(struct kvi_run *r, size_t t))
{
	struct tokens x = { r, fn };
	kvi_parallel(r->o.pool, (r->n + TOKENS_STEP - 1) / TOKENS_STEP, some_tokens, &x);
}

struct quantising {
	struct kvi_run *r;
	const float *x;
	size_t stride;
};

static void quantise_some(void *opaque, size_t i, unsigned worker)
{
	const struct quantising *q = opaque;
	size_t first = i * TOKENS_STEP, n = q->r->n - first;
	(void)worker;
	q->r->kernels->quantise(&q->r->a, q->x + first * q->stride, q->stride, first,
	                        n < TOKENS_STEP ? n : TOKENS_STEP);
}

/* x as an operand for w; nothing is done when it is that already. */
static void quantise(struct kvi_run *r, const float *x, size_t stride, const struct kvi_operand *w,
                     bool wide)
{
	if (r->quantised == x && r->a.group == w->group && r->a.wide == wide)
		return;
	kvi_activations_init(&r->a, r->activations, r->n, w->columns, w->group, wide);
	struct quantising q = { r, x, stride };
	kvi_parallel(r->o.pool, (r->n + TOKENS_STEP - 1) / TOKENS_STEP, quantise_some, &q);
	r->quantised = x;
}

/* y = W x (+ bias) */
static void linear(struct kvi_run *r, const float *x, size_t x_stride, const struct kvi_operand *w,
                   enum kvi_matrix_kind kind, const float *bias, float *y, size_t y_stride)
{
	if (!w->e4m3)
		quantise(r, x, x_stride, w, kvi_wide(&r->o.engine->arithmetic, kind));
	const struct kvi_product p = { .a = &r->a,
		                       .w = w,
		                       .x = x,
		                       .rows = r->n,
		                       .x_stride = x_stride,
		                       .blocks = kvi_operand_blocks(w),
		                       .y = y,
		                       .y_stride = y_stride };
	kvi_product_all(r->kernels, r->o.pool, &p);
	for (size_t t = 0; bias && t < r->n; t++)
		r->elementwise->add(y + t * y_stride, bias, w->rows);
	for (size_t t = 0; r->format && t < r->n; t++)
		kvi_run_round(r, y + t * y_stride, w->rows);
}

/* y = norm of x; engines round it before they take gains that are stored as they are. */
static float norm(const struct kvi_run *r, float *y, const float *x, const float *gain,
                  const float *bias, size_t n)
{
	bool twice = r->format && !r->m->layer_norm && !r->m->norm_plus_one;
	float root = r->elementwise->norm(y, x, twice ? r->ones : gain, bias, n,
	                                  r->m->norm_epsilon);
	kvi_run_round(r, y, n);
	for (size_t i = 0; twice && i < n; i++)
		y[i] *= gain[i];
	if (twice)
		kvi_run_round(r, y, n);
	return root;
}

static void norm_input(struct kvi_run *r, size_t t)
{
	const struct kvi_engine_layer *l = kvi_run_layer(r);
	r->root[t] = norm(r, r->x + t * r->width, r->h + t * r->width, l->norm, l->norm_bias,
	                  r->m->width);
}

static void norm_ffn(struct kvi_run *r, size_t t)
{
	const struct kvi_engine_layer *l = kvi_run_layer(r);
	norm(r, r->x + t * r->width, r->h + t * r->width, l->ffn_norm, l->ffn_norm_bias,
	     r->m->width);
}

static void norm_heads(const struct kvi_run *r, float *x, size_t heads, const float *gain)
{
	size_t n = r->m->head_channels;
	for (size_t i = 0; gain && i < heads; i++, x += n)
		norm(r, x, x, gain, NULL, n);
}

static void norm_keys(struct kvi_run *r, size_t t)
{
	norm_heads(r, r->k + t * r->kv, r->m->kv_heads, kvi_run_layer(r)->k_norm);
}

/* Cosine, sine, products and sums are all rounded. */
static void turn_rounded(const struct kvi_run *r, float *x, float c, float s)
{
	float part[6] = { c, s };
	kvi_run_round(r, part, 2);
	c = part[0];
	s = part[1];
	part[2] = x[0] * c;
	part[3] = x[1] * s;
	part[4] = x[1] * c;
	part[5] = x[0] * s;
	kvi_run_round(r, part + 2, 4);
	x[0] = part[2] - part[3];
	x[1] = part[4] + part[5];
	kvi_run_round(r, x, 2);
}

/* spec/arithmetic.md 5 */
static void rotate(const struct kvi_run *r, size_t t, float *x, size_t heads)
{
	const struct kvi_model_rope *rope = kvi_run_layer(r)->rope;
	if (!rope)
		return;
	const struct kvi_rotations *turns = &r->turns[rope - r->m->ropes];
	for (size_t h = 0; h < heads; h++, x += r->m->head_channels) {
		const int16_t *turn = turns->turn + 2 * t;
		for (size_t p = 0; p < turns->pairs; p++) {
			float c = (float)turn[0] * 0x1p-14f;
			float s = (float)turn[1] * 0x1p-14f;
			float a = x[2 * p], b = x[2 * p + 1];
			if (r->format) {
				turn_rounded(r, x + 2 * p, c, s);
			} else {
				x[2 * p] = a * c - b * s;
				x[2 * p + 1] = b * c + a * s;
			}
			turn += 2 * turns->tokens_capacity;
		}
	}
}

static void finish_queries(struct kvi_run *r, size_t t)
{
	float *q = r->q + t * r->heads;
	norm_heads(r, q, r->m->heads, kvi_run_layer(r)->q_norm);
	rotate(r, t, q, r->m->heads);
}

/* The residual takes up what a branch gives, here in x. */
static void add_branch(struct kvi_run *r, size_t t, const float *gain)
{
	float *x = r->x + t * r->width, *h = r->h + t * r->width;
	if (gain)
		norm(r, x, x, gain, NULL, r->m->width);
	r->elementwise->add(h, x, r->m->width);
	kvi_run_round(r, h, r->m->width);
}

static void add_attention(struct kvi_run *r, size_t t)
{
	add_branch(r, t, kvi_run_layer(r)->after_attention);
}

static void add_ffn(struct kvi_run *r, size_t t)
{
	add_branch(r, t, kvi_run_layer(r)->after_ffn);
}

static void activate(struct kvi_run *r, size_t t)
{
	bool gated = kvi_run_layer(r)->gate.rows;
	float *up = r->up + t * r->ffn;
	float *gate = gated ? r->gate + t * r->ffn : up;
	const float *by = gated && !r->format ? up : NULL;
	if (r->m->activation == KVI_SILU)
		r->elementwise->silu(gate, by, r->m->ffn);
	else
		r->elementwise->gelu(gate, by, r->m->ffn);
	kvi_run_round(r, gate, r->m->ffn);
	for (size_t i = 0; r->format && gated && i < r->m->ffn; i++)
		gate[i] *= up[i];
	if (gated)
		kvi_run_round(r, gate, r->m->ffn);
}

static void round_attended(struct kvi_run *r, size_t t)
{
	kvi_run_round(r, r->attended + t * r->heads, (size_t)r->m->heads * r->m->head_channels);
}

/* Tokens that attention takes at a time: of one sequence. */
static size_t attended_step(const struct kvi_run *r)
{
	return r->o.lanes ? 1 : kvi_attention_tokens(r->m->heads / r->m->kv_heads);
}

/* Rows t and on, to a head of keys; the first one is token `first`. */
static void attend(struct kvi_run *r, size_t t, size_t head, size_t first, unsigned worker)
{
	size_t each = r->m->heads / r->m->kv_heads;
	size_t tokens = r->at ? 1 : attended_step(r);
	size_t at = t * r->heads + head * each * r->m->head_channels;
	size_t lane = r->o.lanes ? t : 0;
	const struct kvi_attention a = {
		.kernels = r->kernels,
		.elementwise = r->elementwise,
		.cache = &r->caches[r->layer * kvi_run_lanes(r) + lane],
		.kv_head = head,
		.queries_per_head = each,
		.channels = r->m->head_channels,
		.first = first,
		.n = r->n - t < tokens ? r->n - t : tokens,
		.window = kvi_run_layer(r)->window,
		.scale = r->m->attention_scale,
		.q = r->q + at,
		.o = r->attended + at,
		.stride = r->heads,
	};
	kvi_attention_run(&a, r->scratch + worker * r->scratch_bytes);
}

static void attend_some(void *opaque, size_t i, unsigned worker)
{
	struct kvi_run *r = opaque;
	size_t head = i % r->m->kv_heads;
	size_t t = i / r->m->kv_heads * attended_step(r);
	attend(r, t, head, r->before + (r->o.lanes ? 0 : t), worker);
}

struct candidate {
	struct kvi_run *r;
	size_t t;
};

static void attend_candidate(void *opaque, size_t head, unsigned worker)
{
	const struct candidate *c = opaque;
	attend(c->r, c->t, head, c->r->at[c->t], worker);
}

/* Candidates are attended one after the other, because those of a token share its row of the
 * cache. */
static void attend_candidates(struct kvi_run *r, const float *k, const float *v, size_t stride)
{
	struct candidate c = { r, 0 };
	for (; c.t < r->n; c.t++) {
		/* The cache has that row: no allocation can fail. */
		(void)kvi_run_put(r, r->layer, r->at[c.t], k + c.t * stride, v + c.t * stride,
		                  stride, 1);
		kvi_parallel(r->o.pool, r->m->kv_heads, attend_candidate, &c);
	}
}

static void attention(struct kvi_run *r, const float *k, const float *v, size_t stride)
{
	const struct kvi_engine_layer *l = kvi_run_layer(r);
	size_t tokens = attended_step(r);
	linear(r, r->x, r->width, &l->q, KVI_MATRIX_Q, l->q_bias, r->q, r->heads);
	each_token(r, finish_queries);
	if (r->at)
		attend_candidates(r, k, v, stride);
	else
		kvi_parallel(r->o.pool, (r->n + tokens - 1) / tokens * r->m->kv_heads, attend_some,
		             r);
	if (r->format)
		each_token(r, round_attended);
	linear(r, r->attended, r->heads, &l->o, KVI_MATRIX_O, l->o_bias, r->x, r->width);
	each_token(r, add_attention);
}

static void feed_forward(struct kvi_run *r)
{
	const struct kvi_engine_layer *l = kvi_run_layer(r);
	each_token(r, norm_ffn);
	r->quantised = NULL;
	if (l->gate.rows)
		linear(r, r->x, r->width, &l->gate, KVI_MATRIX_FFN, NULL, r->gate, r->ffn);
	linear(r, r->x, r->width, &l->up, KVI_MATRIX_FFN, l->up_bias, r->up, r->ffn);
	each_token(r, activate);
	linear(r, l->gate.rows ? r->gate : r->up, r->ffn, &l->down, KVI_MATRIX_DOWN, l->down_bias,
	       r->x, r->width);
	each_token(r, add_ffn);
}

struct kvi_predicted kvi_run_predict(struct kvi_run *r)
{
	const struct kvi_engine_layer *l = kvi_run_layer(r);
	uint64_t mode = kvi_fp_exact(); /* biases are added here, not by workers */
	each_token(r, norm_input);
	r->quantised = NULL;
	linear(r, r->x, r->width, &l->k, KVI_MATRIX_KV, l->k_bias, r->k, r->kv);
	linear(r, r->x, r->width, &l->v, KVI_MATRIX_KV, l->v_bias, r->v, r->kv);
	if (l->k_norm)
		each_token(r, norm_keys);
	kvi_fp_restore(mode);
	return (struct kvi_predicted){ r->k, r->v, r->kv };
}

struct kvi_hidden kvi_run_hidden(struct kvi_run *r)
{
	return (struct kvi_hidden){ r->h, r->root, r->width };
}

/* Adds keys and values of the segment to the layer's caches, which attention reads. */
static kvarc_ret keep(struct kvi_run *r, const float *k, const float *v, size_t stride)
{
	size_t lanes = kvi_run_lanes(r), each = r->o.lanes ? 1 : r->n;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < lanes && !ret; i++) {
		struct kvi_cache *cache = &r->caches[r->layer * lanes + i];
		cache->kernels = r->kernels;
		ret = kvi_cache_add(cache, r->o.alloc, r->before, each, k + i * stride,
		                    v + i * stride, stride);
	}
	return ret;
}

kvarc_ret kvi_run_advance(struct kvi_run *r, const float *k, const float *v, size_t stride,
                          bool corrected)
{
	if (r->layer + 1 == r->m->n_layers && !r->o.whole)
		return KVARC_OK; /* no caller reads the last layer's output */
	uint64_t mode = kvi_fp_exact();
	kvarc_ret ret = k && !r->at ? keep(r, k, v, stride) : KVARC_OK;
	if (ret == KVARC_OK) {
		if (corrected) {
			each_token(r, norm_input);
			r->quantised = NULL;
		}
		attention(r, k, v, stride);
		feed_forward(r);
		r->layer++;
	}
	kvi_fp_restore(mode);
	return ret;
}

struct kvi_queries kvi_run_queries(const struct kvi_run *r)
{
	return (struct kvi_queries){ r->q, r->heads };
}

void kvi_run_rotate_row(const struct kvi_run *r, size_t t, float *k)
{
	rotate(r, t, k, r->m->kv_heads);
}

void kvi_run_rotate(struct kvi_run *r, float *k, size_t stride)
{
	uint64_t mode = kvi_fp_exact();
	for (size_t t = 0; t < r->n; t++)
		kvi_run_rotate_row(r, t, k + t * stride);
	kvi_fp_restore(mode);
}
