/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction.c - a model at work next to the coder (spec model 2, 3) */
#include <string.h>

#include "util/fpmode.h"
#include "numeric/formats.h"
#include "prediction_state.h"

/* With the lock. */
static void fail(struct kvi_prediction *g, kvarc_ret ret, const char *why)
{
	g->lost = true;
	g->ret = ret;
	g->why = why;
	pthread_cond_broadcast(&g->changed);
}

/* With the lock. */
static void predict(struct kvi_prediction *g)
{
	kvarc_ret ret = g->ops->predict(g->run, &g->p);
	if (ret)
		fail(g, ret, kvi_prediction_failed_text);
}

uint64_t kvi_prediction_next(const struct kvi_prediction *g)
{
	return g->t0;
}

size_t kvi_prediction_layers(const struct kvi_prediction *g)
{
	return g->limit;
}

/* No segment is in hand, and nothing was lost. */
static void forget_segment(struct kvi_prediction *g)
{
	g->n = g->layer = g->observed = 0;
	g->lost = false;
	g->lost_t0 = UINT64_MAX;
	g->lost_from = SIZE_MAX;
	g->why = NULL;
	g->ret = KVARC_DATA;
}

void kvi_prediction_restart(struct kvi_prediction *g, size_t layers)
{
	kvarc_ret ret = g->ops->restart(g->run);
	g->limit = layers < g->shape->layers ? layers : g->shape->layers;
	g->t0 = 0;
	forget_segment(g);
	if (ret)
		fail(g, ret, kvi_prediction_failed_text);
}

void kvi_prediction_rewind(struct kvi_prediction *g, uint64_t t0)
{
	kvarc_ret ret = g->ops->rewind ? g->ops->rewind(g->run, t0) : KVARC_OPTIONS;
	g->t0 = t0;
	forget_segment(g);
	if (ret)
		fail(g, ret, "this predictor cannot go back to earlier tokens");
}

bool kvi_prediction_is_lost(struct kvi_prediction *g)
{
	pthread_mutex_lock(&g->lock);
	bool lost = g->lost || g->lost_t0 != UINT64_MAX;
	pthread_mutex_unlock(&g->lock);
	return lost;
}

const char *kvi_prediction_failure(struct kvi_prediction *g)
{
	pthread_mutex_lock(&g->lock);
	const char *why = g->why;
	pthread_mutex_unlock(&g->lock);
	return why;
}

/* The layer and kind of the tensor at an index of the order of chunks. */
static bool find(const struct kvi_prediction *g, uint32_t order_index, size_t *layer,
                 unsigned *kind)
{
	const kvarc_tensor *t = kvi_prediction_tensor(&g->o, order_index);
	*layer = t->layer;
	*kind = t->kind == KVARC_KEY ? KEY : VALUE;
	return (t->kind == KVARC_KEY || t->kind == KVARC_VALUE) && t->layer < g->limit &&
	       g->layers[t->layer].order_index[*kind] == order_index;
}

bool kvi_prediction_covers(const struct kvi_prediction *g, uint32_t order_index)
{
	size_t layer;
	unsigned kind;
	return find(g, order_index, &layer, &kind);
}

/* With the lock: nobody else has anything to do meanwhile. */
static void begin(struct kvi_prediction *g, const struct kvi_segment *s)
{
	if (!s->has_ids) {
		fail(g, KVARC_DATA, "tokens without ids cannot be predicted by a model");
		return;
	}
	kvarc_ret ret = g->ops->segment(g->run, s);
	if (ret) {
		fail(g, ret,
		     g->file ? "a token id or position is not one of the model"
		             : kvi_prediction_failed_text);
		return;
	}
	g->n = s->n;
	g->layer = g->observed = 0;
	predict(g);
}

/* Elements as numbers, those of keys in slots. */
static void take(struct kvi_prediction *g, const struct kvi_model *m, const kvarc_tensor *t,
                 const uint8_t *raw, float *to)
{
	const kvarc_rope *rope = kvi_tensor_rope(g->o.geometry, t);
	size_t size = kvarc_dtype_bytes(t->dtype), hd = t->channels;
	float x[KVI_GROUP_MAX];
	for (size_t i = 0; i < g->n * t->heads; i++, raw += hd * size) {
		kvi_floats_exact(t->dtype, raw, hd, x);
		for (size_t c = 0; c < hd; c++)
			*to++ = x[g->file ? kvi_slot_channel(m, rope, c) : c];
	}
}

/* The tensor whose model corrects the hidden state; BOTH: none does. */
static unsigned corrector(const struct kvi_prediction *g)
{
	const struct layer *l = &g->layers[g->layer];
	unsigned k = KEY;
	if (l->exact == (1u << KEY | 1u << VALUE))
		return BOTH; /* spec predicted 3 */
	while (k < BOTH && !(l->model[k]->flags & KVI_MODEL_CORRECTS))
		k++;
	/* An external predictor has no such state. */
	return g->file && g->o.description->closed ? k : BOTH;
}

static void correct(struct kvi_prediction *g, unsigned kind)
{
	const struct kvi_model *m = g->layers[g->layer].model[kind];
	struct kvi_features *const *f = g->layers[g->layer].f;
	const struct kvi_features *same[KVI_SAME_MAX];
	struct kvi_hidden h = kvi_run_hidden(g->run);
	for (unsigned i = 0; i < m->n_same; i++)
		same[i] = f[m->same[i].kind == KVARC_KEY ? KEY : VALUE];
	kvi_model_correct(m, same, f[kind], g->kernels, h.h, h.width, h.root, 0, g->n, g->scratch);
}

/* With the lock: both tensors are known. there: attention has their elements since before. */
static kvarc_ret go_through(struct kvi_prediction *g, bool there)
{
	bool closed = g->o.description->closed;
	unsigned kind = corrector(g);
	bool corrects = kind < BOTH;
	size_t stride = g->C;
	const float *k = there ? NULL : g->true_values[KEY];
	const float *v = g->true_values[VALUE];
	uint64_t mode = kvi_fp_exact();
	if (corrects)
		correct(g, kind);
	if (!closed) {
		stride = g->p.stride;
		k = g->p.k;
		v = g->p.v;
		if (g->ops->rotate)
			g->ops->rotate(g->run, &g->p);
	}
	kvi_fp_restore(mode);
	return g->ops->advance(g->run, k, v, stride, corrects);
}

/* With the lock: on to the next layer, or segment. */
static void advance(struct kvi_prediction *g)
{
	kvarc_ret ret = go_through(g, false);
	if (ret) {
		fail(g, g->file ? KVARC_DATA : ret,
		     g->file ? "no memory for the model's keys and values"
		             : kvi_prediction_failed_text);
		return;
	}
	g->observed = 0;
	if (++g->layer < g->limit) {
		predict(g);
	} else {
		g->t0 += g->n;
		g->n = 0;
	}
	pthread_cond_broadcast(&g->changed);
}

/* With the lock: the layer's prediction once more, by scalar arithmetic from the first layer on. In
 * an open loop attention keeps what was predicted of earlier segments: their checks held. */
static void predict_again(struct kvi_prediction *g, const struct kvi_segment *s)
{
	size_t layer = g->layer;
	if (g->ops->again(g->run, s))
		return;
	g->fell_back = true;
	g->kernels = kvi_kernels_get(KVARC_ISA_SCALAR);
	for (g->layer = 0; g->layer < layer; g->layer++) {
		predict(g);
		if (go_through(g, true))
			break; /* cannot be: it was gone through before */
	}
	g->layer = layer;
	predict(g);
}

/* With the lock. */
static void answer(struct kvi_prediction *g, unsigned kind, struct kvi_prediction_request *a)
{
	const kvarc_tensor *t = kvi_prediction_tensor(&g->o, a->order_index);
	uint64_t mode = kvi_fp_exact();
	if (a->expected)
		kvi_model_expect(g->layers[g->layer].model[kind], kind == KEY ? g->p.k : g->p.v,
		                 g->p.stride, g->n, a->expected);
	a->exact = a->raw && kvi_prediction_is_exact(g, t, a->raw);
	if (a->predicted && !a->exact)
		kvi_prediction_elements(g, t, a->predicted);
	kvi_fp_restore(mode);
}

/* Whether an answer is what it should be. */
static bool holds(const struct kvi_prediction *g, const struct kvi_prediction_request *a)
{
	const kvarc_tensor *t = kvi_prediction_tensor(&g->o, a->order_index);
	size_t n = g->n * g->C;
	return !a->check ||
	       *a->check == (a->predicted ? kvi_h64(a->predicted, n * kvarc_dtype_bytes(t->dtype))
	                                  : kvi_expected_check(a->in));
}

/* With the lock: waits for the layer of a segment. False: the model will never be there. */
static bool wait_for(struct kvi_prediction *g, const struct kvi_segment *s, size_t layer,
                     unsigned kind)
{
	for (;;) {
		bool here = g->n && g->t0 == s->t0 && g->layer == layer;
		bool past = g->t0 > s->t0 || (here && g->observed >> kind & 1) ||
		            (g->n && g->t0 == s->t0 && g->layer > layer);
		bool never = s->t0 > g->lost_t0 || (s->t0 == g->lost_t0 && layer >= g->lost_from);
		if (g->lost || past || never)
			break;
		if (!g->n && g->t0 == s->t0)
			begin(g, s);
		else if (here)
			break;
		else
			pthread_cond_wait(&g->changed, &g->lock);
	}
	return !g->lost && g->n && g->t0 == s->t0 && g->layer == layer;
}

kvarc_ret kvi_prediction_get(struct kvi_prediction *g, struct kvi_prediction_request *a)
{
	size_t layer;
	unsigned kind;
	if (!find(g, a->order_index, &layer, &kind))
		return KVARC_DATA;
	pthread_mutex_lock(&g->lock);
	bool there = wait_for(g, a->s, layer, kind);
	if (there)
		answer(g, kind, a);
	if (there && g->o.decodes && !g->fell_back && !holds(g, a)) {
		predict_again(g, a->s);
		answer(g, kind, a);
	}
	kvarc_ret ret = there ? KVARC_OK : g->lost ? g->ret : KVARC_DATA;
	pthread_mutex_unlock(&g->lock);
	return ret;
}

bool kvi_prediction_fell_back(struct kvi_prediction *g)
{
	pthread_mutex_lock(&g->lock);
	bool fell_back = g->fell_back;
	pthread_mutex_unlock(&g->lock);
	return fell_back;
}

void kvi_prediction_observe(struct kvi_prediction *g, uint32_t order_index, const uint8_t *raw,
                            const struct kvi_features *f, bool exact)
{
	size_t layer;
	unsigned kind;
	if (!find(g, order_index, &layer, &kind))
		return;
	const struct kvi_model *m = g->layers[layer].model[kind];
	const kvarc_tensor *t = kvi_prediction_tensor(&g->o, order_index);
	if (g->o.description->closed) {
		uint64_t mode = kvi_fp_exact();
		take(g, m, t, raw, g->true_values[kind]);
		kvi_fp_restore(mode);
		memcpy(g->layers[layer].f[kind]->r, f->r,
		       m->heads * kvi_head_stride(m) * f->tokens_capacity * sizeof *f->r);
	}
	pthread_mutex_lock(&g->lock);
	unsigned *all = &g->layers[layer].exact, bit = 1u << kind;
	*all = exact ? *all | bit : *all & ~bit;
	g->observed |= bit;
	if (g->observed == 3 && !g->lost)
		advance(g);
	pthread_mutex_unlock(&g->lock);
}

void kvi_prediction_mark_lost(struct kvi_prediction *g, uint32_t order_index, uint64_t t0)
{
	size_t layer;
	unsigned kind;
	if (!find(g, order_index, &layer, &kind))
		return;
	pthread_mutex_lock(&g->lock);
	if (t0 < g->lost_t0 || (t0 == g->lost_t0 && layer < g->lost_from)) {
		g->lost_t0 = t0;
		g->lost_from = layer + 1;
	}
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}
