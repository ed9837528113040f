/* SPDX-License-Identifier: BSD-3-Clause */
/* train_walk.c - blocks of tokens at the input of a layer */
#include "train_walk.h"

#include <string.h>

#include "exact/round.h"
#include "numeric/formats.h"
#include "numeric/rotate.h"
#include "util/error.h"

void kvi_train_walk_close(kvarc_trainer *t, struct kvi_train_walk *w)
{
	kvi_run_close(&w->run);
	kvi_free(&t->alloc, w->h);
	kvi_free(&t->alloc, w->root);
	kvi_free(&t->alloc, w->k);
	kvi_free(&t->alloc, w->v);
	*w = (struct kvi_train_walk){ 0 };
}

kvarc_ret kvi_train_walk_open(kvarc_trainer *t, const struct kvi_train_stack *s,
                              const struct kvi_engine *e, unsigned round_to, size_t n_caches,
                              struct kvi_train_walk *w)
{
	const struct kvi_train_predictor *p = t->predictor;
	const struct kvi_run_options o = {
		.engine = e,
		.alloc = &t->alloc,
		.pool = t->pool,
		.isa_mask = t->options.common.isa_mask,
		.round_to = round_to,
	};
	size_t n = s->n_tokens;
	w->n_caches = n_caches;
	w->h = kvi_array(&t->alloc, n, p->width * sizeof *w->h);
	w->root = kvi_array(&t->alloc, n, sizeof *w->root);
	w->k = kvi_calloc(&t->alloc, n, p->kv * sizeof *w->k);
	w->v = kvi_calloc(&t->alloc, n, p->kv * sizeof *w->v);
	if (!w->h || !w->root || !w->k || !w->v)
		return kvi_train_no_memory(t);
	return kvi_fail_memory(t->error, kvi_run_open(&w->run, &o), &t->alloc);
}

kvarc_ret kvi_train_each_block(kvarc_trainer *t, const struct kvi_train_stack *s,
                               struct kvi_train_walk *w, kvi_train_block_fn *fn, void *arg)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t k = 0; k < w->n_caches && !ret; k++) {
		const struct kvi_train_cache *c = s->caches[k];
		for (size_t t0 = 0; t0 < c->n && !ret; t0 += KVI_TRAIN_BLOCK) {
			size_t n = c->n - t0;
			n = n < KVI_TRAIN_BLOCK ? n : KVI_TRAIN_BLOCK;
			const struct kvi_train_block b = { k, t0, n, c->first + t0 };
			ret = fn(t, s, w, &b, arg);
		}
	}
	return ret;
}

void kvi_train_copy_rows(float *to, size_t to_stride, const float *from, size_t stride, size_t n,
                         size_t columns)
{
	for (size_t i = 0; i < n; i++)
		memcpy(to + i * to_stride, from + i * stride, columns * sizeof *to);
}

void kvi_train_block_save(const struct kvi_train_predictor *p, struct kvi_train_walk *w,
                          const struct kvi_train_block *b)
{
	struct kvi_hidden h = kvi_run_hidden(w->run);
	kvi_train_copy_rows(w->h + b->at * p->width, p->width, h.h, h.width, b->n, p->width);
}

static void set_state(const struct kvi_train_predictor *p, struct kvi_train_walk *w,
                      const struct kvi_train_block *b)
{
	struct kvi_hidden h = kvi_run_hidden(w->run);
	kvi_train_copy_rows(h.h, h.width, w->h + b->at * p->width, p->width, b->n, p->width);
}

void kvi_train_block_place(const struct kvi_train_stack *s, const struct kvi_train_predictor *p,
                           struct kvi_train_walk *w, const struct kvi_train_block *b,
                           uint32_t layer)
{
	kvi_run_place(w->run, layer, b->t0, s->caches[b->cache]->positions + b->t0, b->n);
	set_state(p, w, b);
}

void kvi_train_block_round(const struct kvi_train_stack *s, const struct kvi_train_block *b,
                           size_t shape, float *x, size_t n)
{
	unsigned dtype = kvi_train_tensor_of(s->caches[b->cache], shape)->dtype;
	if (dtype != KVARC_F32)
		kvi_round_floats(x, n, &kvi_float_format(dtype)->grid);
}

void kvi_train_block_true(const struct kvi_train_stack *s, const struct kvi_train_block *b,
                          const struct kvi_train_tensor *x, size_t shape, float *to)
{
	const kvarc_tensor *g = kvi_train_tensor_of(s->caches[b->cache], shape);
	const kvarc_rope *rope = kvi_tensor_rope(&s->caches[b->cache]->geometry, g);
	size_t head = g->channels * kvarc_dtype_bytes(g->dtype);
	const uint8_t *raw = x->raw + x->raw_at[b->cache] + b->t0 * kvi_tensor_bytes(g);
	float channels[KVI_GROUP_MAX]; /* no head of an engine has more */
	for (size_t i = 0; i < b->n * g->heads; i++, raw += head) {
		kvi_floats_exact(g->dtype, raw, g->channels, channels);
		for (size_t c = 0; c < g->channels; c++)
			*to++ = channels[kvi_rope_channel(rope, c)];
	}
}

/* ---- whether all is as predicted ---- */

struct walk_comparison {
	const struct kvi_train_layer *layer;
	size_t first; /* of its shapes */
	bool differs;
};

static kvarc_ret compare_block(kvarc_trainer *t, const struct kvi_train_stack *s,
                               struct kvi_train_walk *w, const struct kvi_train_block *b, void *arg)
{
	const struct kvi_train_predictor *p = t->predictor;
	struct walk_comparison *c = arg;
	size_t n = b->n * p->kv;
	if (c->differs)
		return KVARC_OK;
	float *x = kvi_array(&t->alloc, n, 2 * sizeof *x);
	if (!x)
		return kvi_train_no_memory(t);
	float *is = x + n;
	kvi_run_place(w->run, c->layer->tensors[0].shape->layer, b->t0,
	              s->caches[b->cache]->positions + b->t0, b->n);
	for (unsigned i = 0; i < 2 && !c->differs; i++) {
		const struct kvi_train_tensor *y = &c->layer->tensors[i];
		const float *rows = kvi_train_walk_rows(w, y->shape->kind);
		memcpy(x, rows + b->at * p->kv, n * sizeof *x);
		if (y->shape->kind == KVARC_KEY)
			kvi_run_rotate(w->run, x, p->kv);
		kvi_train_block_round(s, b, c->first + i, x, n);
		kvi_train_block_true(s, b, y, c->first + i, is);
		c->differs = memcmp(x, is, n * sizeof *x) != 0;
	}
	kvi_free(&t->alloc, x);
	return KVARC_OK;
}

kvarc_ret kvi_train_compare_layer(kvarc_trainer *t, const struct kvi_train_task *k, bool *same)
{
	struct walk_comparison c = { k->layer, k->first, false };
	kvarc_ret ret = kvi_train_each_block(t, k->stack, &t->predictor->real, compare_block, &c);
	*same = !ret && !c.differs;
	return ret;
}
