/* SPDX-License-Identifier: BSD-3-Clause */
/* guide.c - a model at work next to the coder (spec model 2, 3) */
#include "stream/guide.h"

#include <pthread.h>
#include <string.h>

#include "exact/fpmode.h"
#include "model/expect.h"
#include "model/formats.h"
#include "stream/error.h"

enum { KEY, VALUE, BOTH };

/* A layer's first key and value tensor. */
struct layer {
	uint32_t place[BOTH];
	const struct kvi_model *model[BOTH];
	struct kvi_features *f[BOTH]; /* shared by all layers unless they are kept */
};

struct kvi_guide {
	struct kvi_guide_options o;
	const struct kvi_alloc *alloc;
	const struct kvi_model_file *file; /* NULL: an external predictor */
	const kvarc_predictor_model *shape;
	const struct kvi_kernels *kernels;
	struct kvi_pool *pool;
	const struct kvi_guide_ops *ops;
	void *run;
	struct kvi_external_layer *external;
	size_t C;
	struct layer *layers;
	/* The segment in hand, or the next one when n is 0. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool has_lock, has_changed;
	uint64_t t0;
	size_t n, layer, limit;      /* limit: layers that it goes through */
	unsigned told;               /* bits KEY and VALUE of the layer */
	bool lost;
	/* The first segment with a loss, and its layers that will never be reached. */
	uint64_t lost_t0;
	size_t lost_from;
	const char *why;
	kvarc_ret ret;               /* why, as a code */
	struct kvi_predicted p;
	float *true_values[BOTH];    /* keys in slots */
	bool keeps;                  /* the features of all layers, of the segment in hand */
	bool fell_back;              /* to scalar arithmetic */
	void *scratch;               /* of corrections */
};

static const char external_failed[] = "the external predictor failed";

/* With the lock. */
static void fail(struct kvi_guide *g, kvarc_ret ret, const char *why)
{
	g->lost = true;
	g->ret = ret;
	g->why = why;
	pthread_cond_broadcast(&g->changed);
}

/* With the lock. */
static void predict(struct kvi_guide *g)
{
	kvarc_ret ret = g->ops->predict(g->run, &g->p);
	if (ret)
		fail(g, ret, external_failed);
}

static const kvarc_tensor *tensor_at(const struct kvi_guide_options *o,
                                     uint32_t place)
{
	return &o->geometry->tensors[o->order->tensors[place]];
}

/* The first tensor of a layer and kind in the track; UINT32_MAX: none. */
static uint32_t first_of(const struct kvi_guide_options *o, uint32_t layer,
                         unsigned kind)
{
	uint32_t end = o->order->first[o->track + 1];
	for (uint32_t i = o->order->first[o->track]; i < end; i++)
		if (tensor_at(o, i)->layer == layer &&
		    tensor_at(o, i)->kind == kind)
			return i;
	return UINT32_MAX;
}

/* Attention rotates with the cache's own frequencies (spec/arithmetic.md 5): one set for each of
 * the model's. */
static bool same_rope(const struct kvi_guide_options *o,
                      const struct kvi_model_file *m, uint32_t layer,
                      const kvarc_rope *rope)
{
	uint32_t first = 0;
	while (m->layers[first].rope != m->layers[layer].rope)
		first++;
	uint32_t place = first_of(o, first, KVARC_KEY);
	const kvarc_rope *other = place == UINT32_MAX ? NULL
		: kvi_tensor_rope(o->geometry, tensor_at(o, place));
	return other && other->rotary == rope->rotary &&
	       !memcmp(other->freq, rope->freq,
	               rope->rotary / 2 * sizeof *rope->freq);
}

static const char *why_no_rope(const struct kvi_guide_options *o, uint32_t layer,
                               const kvarc_rope *rope)
{
	const struct kvi_model_file *m = kvi_predictor_file(o->predictor);
	if (!m)
		return NULL; /* it tells keys as they are stored */
	uint32_t rotary = m->n_ropes
		? m->ropes[m->layers[layer].rope].rotary : 0;
	if ((rope ? rope->rotary : 0) != rotary)
		return "the RoPE of its keys is not known, or not the model's";
	return rope && !same_rope(o, m, layer, rope)
	       ? "layers that the model turns alike have several RoPEs" : NULL;
}

static const char *why_not(const struct kvi_guide_options *o, uint32_t layer,
                           unsigned kind)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(o->predictor);
	uint32_t place = first_of(o, layer, kind);
	if (place == UINT32_MAX)
		return "a layer of it is missing";
	const kvarc_tensor *t = tensor_at(o, place);
	if (t->heads != m->heads || t->channels != m->channels)
		return "its heads are not those of the model";
	const char *why = kind == KVARC_KEY
		? why_no_rope(o, layer, kvi_tensor_rope(o->geometry, t)) : NULL;
	if (why)
		return why;
	const struct kvi_model_file *file = kvi_predictor_file(o->predictor);
	const struct kvi_planned *p = &o->plan->of[place];
	if (file && p->complete && p->model->flags & KVI_MODEL_CORRECTS &&
	    p->model->width != file->width)
		return "the profile corrects a state of another width";
	return p->complete ? NULL : "the profile is not one for it";
}

kvarc_ret kvi_guide_fits(const struct kvi_guide_options *o, kvarc_error *error)
{
	const kvarc_predictor_model *m = kvi_predictor_shape(o->predictor);
	for (uint32_t l = 0; l < m->layers; l++) {
		const char *why = why_not(o, l, KVARC_KEY);
		if (!why)
			why = why_not(o, l, KVARC_VALUE);
		if (why)
			return kvi_fail(error, KVARC_PREDICTOR, KVARC_UNKNOWN,
			                KVARC_UNKNOWN, "the model (%s, %u layers "
			                "of %u x %u) does not predict this "
			                "cache: %s (layer %u)", m->arch,
			                (unsigned)m->layers, (unsigned)m->heads,
			                (unsigned)m->channels, why,
			                (unsigned)l);
	}
	return KVARC_OK;
}

static kvarc_ret open_layers(struct kvi_guide *g)
{
	g->layers = kvi_calloc(g->alloc, g->shape->layers, sizeof *g->layers);
	if (!g->layers)
		return kvi_alloc_error(g->alloc);
	for (uint32_t l = 0; l < g->shape->layers; l++)
		for (unsigned k = KEY; k < BOTH; k++) {
			uint32_t place = first_of(&g->o, l, k == KEY
				? KVARC_KEY : KVARC_VALUE);
			g->layers[l].place[k] = place;
			g->layers[l].model[k] = g->o.plan->of[place].model;
		}
	return KVARC_OK;
}

/* To go through a segment again takes the features of its layers: as much as the keys and values
 * that attention looks at take for 256 tokens. */
static kvarc_ret open_features(struct kvi_guide *g, unsigned k)
{
	for (uint32_t l = 0; l < g->shape->layers; l++) {
		struct layer *x = &g->layers[l];
		x->f[k] = g->layers[0].f[k];
		if ((l == 0 || g->keeps) &&
		    kvi_features_open(&x->f[k], g->alloc, x->model[k],
		                      KVI_SEGMENT_TOKENS))
			return kvi_alloc_error(g->alloc);
	}
	return KVARC_OK;
}

static kvarc_ret open_rooms(struct kvi_guide *g)
{
	g->keeps = g->o.decodes && g->o.description->closed;
	for (unsigned k = KEY; k < BOTH; k++) {
		g->true_values[k] = kvi_array(g->alloc, KVI_SEGMENT_TOKENS * g->C,
		                              sizeof(float));
		if (!g->true_values[k])
			return kvi_alloc_error(g->alloc);
		kvarc_ret ret = open_features(g, k);
		if (ret)
			return ret;
	}
	g->scratch = kvi_malloc(g->alloc,
	                        kvi_model_correct_bytes(KVI_SEGMENT_TOKENS));
	return g->scratch ? KVARC_OK : kvi_alloc_error(g->alloc);
}

static kvarc_ret open_run(struct kvi_guide *g)
{
	const struct kvi_arithmetic a = {
		g->o.description->wide_weights,
		g->o.description->wide_activations,
		g->o.description->fp8
	};
	struct kvi_run_options run = {
		.alloc = g->alloc, .pool = g->pool, .isa_mask = g->o.isa_mask,
		.kernels = kvi_predictor_kernels(g->o.predictor,
		                                 g->o.isa_mask)
	};
	for (uint32_t l = g->shape->layers; l-- > 0;) {
		const kvarc_tensor *t = tensor_at(&g->o,
		                                  g->layers[l].place[KEY]);
		const kvarc_rope *rope = kvi_tensor_rope(g->o.geometry, t);
		if (rope)
			run.freq[g->file->layers[l].rope] = rope->freq;
	}
	kvarc_ret ret = kvi_predictor_engine(g->o.predictor, &a,
	                                     g->o.isa_mask, &run.engine, NULL);
	struct kvi_run *opened = NULL;
	if (!ret)
		ret = kvi_run_open(&opened, &run);
	g->ops = &kvi_guide_exact;
	g->run = opened;
	return ret;
}

static kvarc_ret open_external(struct kvi_guide *g)
{
	const struct kvi_external_options o = {
		g->alloc, kvi_predictor_external(g->o.predictor),
		g->external = kvi_calloc(g->alloc, g->shape->layers,
		                         sizeof *g->external)
	};
	if (!g->external)
		return kvi_alloc_error(g->alloc);
	for (uint32_t l = 0; l < g->shape->layers; l++)
		g->external[l] = (struct kvi_external_layer){
			g->layers[l].model[KEY],
			kvi_tensor_rope(g->o.geometry, tensor_at(&g->o,
				g->layers[l].place[KEY]))
		};
	g->ops = &kvi_guide_external;
	return kvi_external_open(&g->run, &o);
}

static kvarc_ret open_all(struct kvi_guide *g)
{
	if (pthread_mutex_init(&g->lock, NULL))
		return KVARC_MEM;
	g->has_lock = true;
	if (pthread_cond_init(&g->changed, NULL))
		return KVARC_MEM;
	g->has_changed = true;
	kvarc_ret ret = kvi_pool_open(&g->pool, g->alloc, g->o.threads);
	if (!ret)
		ret = open_layers(g);
	if (!ret)
		ret = open_rooms(g);
	if (ret)
		return ret;
	return g->file ? open_run(g) : open_external(g);
}

kvarc_ret kvi_guide_open(struct kvi_guide **out,
                         const struct kvi_guide_options *o, kvarc_error *error)
{
	const struct kvi_alloc *alloc = kvi_predictor_alloc(o->predictor);
	struct kvi_guide *g = kvi_calloc(alloc, 1, sizeof *g);
	*out = g;
	if (!g)
		return kvi_fail_alloc(error, alloc);
	g->o = *o;
	g->alloc = alloc;
	g->file = kvi_predictor_file(o->predictor);
	g->shape = kvi_predictor_shape(o->predictor);
	g->limit = g->shape->layers;
	g->lost_t0 = UINT64_MAX;
	g->lost_from = SIZE_MAX;
	g->ret = KVARC_DATA;
	g->kernels = kvi_kernels_get(o->isa_mask);
	g->C = (size_t)g->shape->heads * g->shape->channels;
	kvarc_ret ret = open_all(g);
	if (ret) {
		kvi_guide_close(g);
		*out = NULL;
	}
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(error, alloc);
	return ret == KVARC_PREDICTOR && !kvi_predictor_file(o->predictor)
		? kvi_fail(error, ret, KVARC_UNKNOWN, KVARC_UNKNOWN, "%s",
		           external_failed) : ret;
}

void kvi_guide_close(struct kvi_guide *g)
{
	if (!g)
		return;
	if (g->run)
		g->ops->close(g->run);
	kvi_pool_close(g->pool);
	for (unsigned k = KEY; k < BOTH; k++) {
		kvi_free(g->alloc, g->true_values[k]);
		for (size_t l = 0; g->layers && l < g->shape->layers; l++)
			if (l == 0 || g->keeps)
				kvi_features_close(g->layers[l].f[k], g->alloc);
	}
	kvi_free(g->alloc, g->layers);
	kvi_free(g->alloc, g->external);
	kvi_free(g->alloc, g->scratch);
	if (g->has_changed)
		pthread_cond_destroy(&g->changed);
	if (g->has_lock)
		pthread_mutex_destroy(&g->lock);
	kvi_free(g->alloc, g);
}

uint64_t kvi_guide_next(const struct kvi_guide *g)
{
	return g->t0;
}

size_t kvi_guide_layers(const struct kvi_guide *g)
{
	return g->limit;
}

void kvi_guide_restart(struct kvi_guide *g, size_t layers)
{
	kvarc_ret ret = g->ops->restart(g->run);
	g->limit = layers < g->shape->layers ? layers : g->shape->layers;
	g->t0 = 0;
	g->n = g->layer = g->told = 0;
	g->lost = false;
	g->lost_t0 = UINT64_MAX;
	g->lost_from = SIZE_MAX;
	g->why = NULL;
	g->ret = KVARC_DATA;
	if (ret)
		fail(g, ret, external_failed);
}

bool kvi_guide_lost(struct kvi_guide *g)
{
	pthread_mutex_lock(&g->lock);
	bool lost = g->lost || g->lost_t0 != UINT64_MAX;
	pthread_mutex_unlock(&g->lock);
	return lost;
}

const char *kvi_guide_why(struct kvi_guide *g)
{
	pthread_mutex_lock(&g->lock);
	const char *why = g->why;
	pthread_mutex_unlock(&g->lock);
	return why;
}

/* The layer and kind of a place. */
static bool find(const struct kvi_guide *g, uint32_t place, size_t *layer,
                 unsigned *kind)
{
	const kvarc_tensor *t = tensor_at(&g->o, place);
	*layer = t->layer;
	*kind = t->kind == KVARC_KEY ? KEY : VALUE;
	return (t->kind == KVARC_KEY || t->kind == KVARC_VALUE) &&
	       t->layer < g->limit &&
	       g->layers[t->layer].place[*kind] == place;
}

bool kvi_guide_tells(const struct kvi_guide *g, uint32_t place)
{
	size_t layer;
	unsigned kind;
	return find(g, place, &layer, &kind);
}

/* With the lock: nobody else has anything to do meanwhile. */
static void begin(struct kvi_guide *g, const struct kvi_segment *s)
{
	if (!s->has_ids) {
		fail(g, KVARC_DATA, "tokens without ids cannot be predicted by a model");
		return;
	}
	kvarc_ret ret = g->ops->segment(g->run, s);
	if (ret) {
		fail(g, ret, g->file ? "a token id or position is not one of the "
		     "model" : external_failed);
		return;
	}
	g->n = s->n;
	g->layer = g->told = 0;
	predict(g);
}

/* Elements as numbers, those of keys in slots. */
static void take(struct kvi_guide *g, const struct kvi_model *m,
                 const kvarc_tensor *t, const uint8_t *raw, float *to)
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
static unsigned corrector(const struct kvi_guide *g)
{
	const struct layer *l = &g->layers[g->layer];
	unsigned k = KEY;
	while (k < BOTH && !(l->model[k]->flags & KVI_MODEL_CORRECTS))
		k++;
	/* An external predictor has no such state. */
	return g->file && g->o.description->closed ? k : BOTH;
}

static void correct(struct kvi_guide *g, unsigned kind)
{
	const struct kvi_model *m = g->layers[g->layer].model[kind];
	struct kvi_features *const *f = g->layers[g->layer].f;
	const struct kvi_features *same[KVI_SAME_MAX];
	struct kvi_hidden h = kvi_run_hidden(g->run);
	for (unsigned i = 0; i < m->n_same; i++)
		same[i] = f[m->same[i].kind == KVARC_KEY ? KEY : VALUE];
	kvi_model_correct(m, same, f[kind], g->kernels, h.h, h.width,
	                  h.root, 0, g->n, g->scratch);
}

/* With the lock: both tensors are known. there: attention has their elements since before. */
static kvarc_ret go_through(struct kvi_guide *g, bool there)
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
		kvi_run_rotate(g->run, (float *)(uintptr_t)k, stride);
	}
	kvi_fp_restore(mode);
	return g->ops->advance(g->run, k, v, stride, corrects);
}

/* With the lock: on to the next layer, or segment. */
static void advance(struct kvi_guide *g)
{
	kvarc_ret ret = go_through(g, false);
	if (ret) {
		fail(g, g->file ? KVARC_DATA : ret, g->file
		     ? "no memory for the model's keys and values"
		     : external_failed);
		return;
	}
	g->told = 0;
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
static void predict_again(struct kvi_guide *g, const struct kvi_segment *s)
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

static void make_expected(const struct kvi_guide *g, size_t layer,
                          unsigned kind, int16_t *expected)
{
	uint64_t mode = kvi_fp_exact();
	kvi_model_expect(g->layers[layer].model[kind],
	                 kind == KEY ? g->p.k : g->p.v, g->p.stride, g->n,
	                 expected);
	kvi_fp_restore(mode);
}

kvarc_ret kvi_guide_expect(struct kvi_guide *g, uint32_t place,
                           const struct kvi_segment *s,
                           const uint64_t *check, int16_t *expected)
{
	size_t layer;
	unsigned kind;
	if (!find(g, place, &layer, &kind))
		return KVARC_DATA;
	pthread_mutex_lock(&g->lock);
	for (;;) {
		bool here = g->n && g->t0 == s->t0 && g->layer == layer;
		bool past = g->t0 > s->t0 || (here && g->told >> kind & 1) ||
			(g->n && g->t0 == s->t0 && g->layer > layer);
		bool never = s->t0 > g->lost_t0 ||
			(s->t0 == g->lost_t0 && layer >= g->lost_from);
		if (g->lost || past || never)
			break;
		if (!g->n && g->t0 == s->t0)
			begin(g, s);
		else if (here)
			break;
		else
			pthread_cond_wait(&g->changed, &g->lock);
	}
	bool there = !g->lost && g->n && g->t0 == s->t0 && g->layer == layer;
	size_t C = g->layers[layer].model[kind]->C;
	if (there)
		make_expected(g, layer, kind, expected);
	if (there && check && g->o.decodes && !g->fell_back &&
	    kvi_expected_check(expected, g->n * C) != *check) {
		predict_again(g, s);
		make_expected(g, layer, kind, expected);
	}
	kvarc_ret ret = there ? KVARC_OK : g->lost ? g->ret : KVARC_DATA;
	pthread_mutex_unlock(&g->lock);
	return ret;
}

bool kvi_guide_fell_back(struct kvi_guide *g)
{
	pthread_mutex_lock(&g->lock);
	bool fell_back = g->fell_back;
	pthread_mutex_unlock(&g->lock);
	return fell_back;
}

void kvi_guide_tell(struct kvi_guide *g, uint32_t place, const uint8_t *raw,
                    const struct kvi_features *f)
{
	size_t layer;
	unsigned kind;
	if (!find(g, place, &layer, &kind))
		return;
	const struct kvi_model *m = g->layers[layer].model[kind];
	const kvarc_tensor *t = tensor_at(&g->o, place);
	if (g->o.description->closed) {
		uint64_t mode = kvi_fp_exact();
		take(g, m, t, raw, g->true_values[kind]);
		kvi_fp_restore(mode);
		memcpy(g->layers[layer].f[kind]->r, f->r, m->heads * kvi_head_room(m) *
		       f->tokens_room * sizeof *f->r);
	}
	pthread_mutex_lock(&g->lock);
	g->told |= 1u << kind;
	if (g->told == 3 && !g->lost)
		advance(g);
	pthread_mutex_unlock(&g->lock);
}

void kvi_guide_lose(struct kvi_guide *g, uint32_t place, uint64_t t0)
{
	size_t layer;
	unsigned kind;
	if (!find(g, place, &layer, &kind))
		return;
	pthread_mutex_lock(&g->lock);
	if (t0 < g->lost_t0 || (t0 == g->lost_t0 && layer < g->lost_from)) {
		g->lost_t0 = t0;
		g->lost_from = layer + 1;
	}
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}
