/* SPDX-License-Identifier: BSD-3-Clause */
/* teacher_forced.c - teacher-forced logits of a text after a cache */
#include "teacher_forced.h"

#include <string.h>

#include "exact/head.h"
#include "util/parallel.h"
#include "format/chunk_order.h"
#include "util/error.h"
#include "predict/prediction.h"
#include "util/ckd.h"

enum { KEY, VALUE, BOTH };

struct kvi_teacher_forced {
	struct kvi_teacher_forced_options o;
	const struct kvi_model_file *m;
	struct kvi_run *run;
	struct kvi_head *head;
	uint32_t *tensors; /* of the geometry: key and value of each layer */
	bool windows;      /* of some layers */
	size_t C;          /* floats of a row */
	float *rows[BOTH]; /* of KVI_TEACHER_FORCED_STEP tokens */
	uint8_t *elements; /* of one of them */
	struct kvi_teacher_forced_text text;
	float *logits;   /* of the text after the exact cache */
	size_t capacity; /* floats of them */
};

/* ---- opening ---- */

static kvarc_ret refuse(kvarc_error *error, kvarc_ret ret, const char *what)
{
	return kvi_fail(error, ret, "%s", what);
}

/* A tensor that is all of a layer's keys or values, in floats. */
static bool takes(const struct kvi_teacher_forced *f, const kvarc_tensor *t)
{
	return t->track == f->o.track && t->kind <= KVARC_VALUE && t->role == KVARC_WHOLE &&
	       t->heads == f->m->kv_heads && t->channels == f->m->head_channels &&
	       t->dtype >= KVARC_F32 && t->dtype <= KVARC_E5M2 && t->layer < f->m->n_layers &&
	       !(t->flags & KVARC_TENSOR_HADAMARD);
}

static kvarc_ret find_tensors(struct kvi_teacher_forced *f, kvarc_error *error)
{
	const kvarc_geometry *g = f->o.geometry;
	size_t n = BOTH * (size_t)f->m->n_layers;
	f->tensors = kvi_array(f->o.alloc, n, sizeof *f->tensors);
	if (!f->tensors)
		return kvi_fail_alloc(error, f->o.alloc);
	for (size_t i = 0; i < n; i++)
		f->tensors[i] = UINT32_MAX;
	for (size_t i = g->n_tensors; i-- > 0;)
		if (takes(f, &g->tensors[i]))
			f->tensors[BOTH * g->tensors[i].layer + g->tensors[i].kind] = (uint32_t)i;
	for (size_t i = 0; i < n; i++)
		if (f->tensors[i] == UINT32_MAX)
			return refuse(error, KVARC_PREDICTOR,
			              "the model does not make this cache: its layers, heads or "
			              "types are others");
	return KVARC_OK;
}

/* The cache's frequencies, which are those that count (spec/arithmetic.md 5). */
static kvarc_ret find_ropes(const struct kvi_teacher_forced *f, struct kvi_run_options *run,
                            kvarc_error *error)
{
	struct kvi_order order;
	kvarc_ret ret = kvi_order_make(&order, f->o.alloc, f->o.geometry);
	const struct kvi_prediction_options o = { .predictor = f->o.predictor,
		                                  .geometry = f->o.geometry,
		                                  .order = &order,
		                                  .track = f->o.track };
	if (ret)
		return kvi_fail_alloc(error, f->o.alloc);
	ret = kvi_prediction_ropes(&o, run->freq, error);
	kvi_order_free(&order, f->o.alloc);
	return ret;
}

static kvarc_ret open_buffers(struct kvi_teacher_forced *f)
{
	const struct kvi_alloc *alloc = f->o.alloc;
	for (unsigned k = KEY; k < BOTH; k++) {
		f->rows[k] = kvi_array(alloc, f->C, KVI_TEACHER_FORCED_STEP * sizeof(float));
		if (!f->rows[k])
			return kvi_alloc_error(alloc);
	}
	f->elements = kvi_array(alloc, f->C, KVI_TEACHER_FORCED_STEP * sizeof(float));
	return f->elements ? KVARC_OK : kvi_alloc_error(alloc);
}

static kvarc_ret open_runs(struct kvi_teacher_forced *f, kvarc_error *error)
{
	struct kvi_run_options o = { .alloc = f->o.alloc,
		                     .pool = f->o.pool,
		                     .isa_mask = f->o.isa_mask,
		                     .whole = true,
		                     .kernels = kvi_predictor_kernels(f->o.predictor,
		                                                      f->o.isa_mask) };
	kvarc_ret ret = find_ropes(f, &o, error);
	if (!ret)
		ret = kvi_predictor_head(f->o.predictor, &f->o.arithmetic, f->o.isa_mask, &o.engine,
		                         error);
	if (ret)
		return ret;
	ret = open_buffers(f);
	if (!ret)
		ret = kvi_run_open(&f->run, &o);
	if (!ret)
		ret = kvi_head_open(&f->head, &o);
	return kvi_fail_memory(error, ret, f->o.alloc);
}

kvarc_ret kvi_teacher_forced_open(struct kvi_teacher_forced **out,
                                  const struct kvi_teacher_forced_options *o, kvarc_error *error)
{
	*out = NULL;
	if (!kvi_predictor_file(o->predictor) || kvi_predictor_token_blind(o->predictor))
		return refuse(error, KVARC_OPTIONS,
		              "this needs a model that sees its tokens, and runs here");
	struct kvi_teacher_forced *f = kvi_calloc(o->alloc, 1, sizeof *f);
	if (!f)
		return kvi_fail_alloc(error, o->alloc);
	f->o = *o;
	f->o.put = o->put ? o->put : kvi_run_put;
	f->m = kvi_predictor_file(o->predictor);
	f->C = (size_t)f->m->kv_heads * f->m->head_channels;
	for (uint32_t l = 0; l < f->m->n_layers; l++)
		f->windows = f->windows || f->m->layers[l].window;
	kvarc_ret ret = find_tensors(f, error);
	if (!ret)
		ret = open_runs(f, error);
	if (ret)
		kvi_teacher_forced_close(&f);
	*out = f;
	return ret;
}

void kvi_teacher_forced_close(struct kvi_teacher_forced **out)
{
	struct kvi_teacher_forced *f = *out;
	if (!f)
		return;
	const struct kvi_alloc *alloc = f->o.alloc;
	kvi_head_close(&f->head);
	kvi_run_close(&f->run);
	kvi_free(alloc, f->tensors);
	for (unsigned k = KEY; k < BOTH; k++)
		kvi_free(alloc, f->rows[k]);
	kvi_free(alloc, f->elements);
	kvi_free(alloc, f->logits);
	kvi_free(alloc, f);
	*out = NULL;
}

/* ---- tokens through the model ---- */

static struct kvi_teacher_forced_rows rows_of(const struct kvi_teacher_forced *f, size_t layer,
                                              unsigned kind, const kvarc_view *views, uint64_t t0,
                                              size_t n)
{
	uint32_t tensor = f->tensors[BOTH * layer + kind];
	return (struct kvi_teacher_forced_rows){ .geometry = f->o.geometry,
		                                 .tensor = &f->o.geometry->tensors[tensor],
		                                 .view = views ? &views[tensor] : NULL,
		                                 .t0 = t0,
		                                 .n = n,
		                                 .elements = f->elements };
}

static void take_rows(const struct kvi_teacher_forced *f, float *to, const float *from,
                      size_t stride, size_t n)
{
	for (size_t t = 0; t < n; t++)
		memcpy(to + t * f->C, from + t * stride, f->C * sizeof *to);
}

/* Tokens [t0, t0 + n) on their way through the layers. */
struct step {
	struct kvi_teacher_forced *f;
	const kvarc_view *views;
	const struct kvi_teacher_forced_observer *watch;
	size_t t0, n;
};

/* Attention sees the rows as the cache stores them. */
static kvarc_ret store_rows(void *opaque, size_t layer, struct kvi_predicted *p)
{
	const struct step *s = opaque;
	struct kvi_teacher_forced *f = s->f;
	take_rows(f, f->rows[KEY], p->k, p->stride, s->n);
	take_rows(f, f->rows[VALUE], p->v, p->stride, s->n);
	for (unsigned k = KEY; k < BOTH; k++) {
		struct kvi_teacher_forced_rows r = rows_of(f, layer, k, s->views, s->t0, s->n);
		kvi_teacher_forced_store(&r, f->rows[k]);
	}
	*p = (struct kvi_predicted){ f->rows[KEY], f->rows[VALUE], f->C };
	return KVARC_OK;
}

static kvarc_ret watch_queries(void *opaque, size_t layer)
{
	const struct step *s = opaque;
	if (!s->watch || !s->watch->queries)
		return KVARC_OK;
	struct kvi_queries q = kvi_run_queries(s->f->run);
	return s->watch->queries(s->watch->opaque, layer, &q, s->t0, s->n);
}

/* Tokens [t0, t0 + n) of a text, at most KVI_TEACHER_FORCED_STEP; views: where their elements go,
 * NULL: nowhere. */
static kvarc_ret through(struct kvi_teacher_forced *f, const struct kvi_teacher_forced_text *text,
                         const kvarc_view *views, const struct kvi_teacher_forced_observer *watch,
                         size_t t0, size_t n)
{
	struct step s = { f, views, watch, t0, n };
	const struct kvi_run_pass pass = { .opaque = &s,
		                           .rows = store_rows,
		                           .advanced = watch_queries };
	return kvi_run_through(f->run, text->ids + t0, text->positions + t0, n, &pass);
}

static size_t step_tokens(size_t n, size_t t0)
{
	return n - t0 < KVI_TEACHER_FORCED_STEP ? n - t0 : KVI_TEACHER_FORCED_STEP;
}

/* Of the n tokens that the run was advanced through last, some at a time. */
static kvarc_ret each_logits(struct kvi_teacher_forced *f,
                             const struct kvi_teacher_forced_observer *to, size_t t0, size_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t t = 0; t < n && !ret; t += KVI_HEAD_TOKENS) {
		size_t some = n - t < KVI_HEAD_TOKENS ? n - t : KVI_HEAD_TOKENS;
		struct kvi_hidden h = kvi_run_hidden(f->run);
		struct kvi_logits z = kvi_head_logits(f->head, h.h + t * h.width, h.width, some);
		ret = to->logits(to->opaque, &z, t0 + t, some);
	}
	return ret;
}

kvarc_ret kvi_teacher_forced_observed(struct kvi_teacher_forced *f,
                                      const struct kvi_teacher_forced_text *text,
                                      const kvarc_view *views,
                                      const struct kvi_teacher_forced_observer *watch)
{
	kvarc_ret ret = KVARC_OK;
	kvi_run_restart(f->run);
	for (size_t t0 = 0; t0 < text->n && !ret; t0 += KVI_TEACHER_FORCED_STEP) {
		size_t n = step_tokens(text->n, t0);
		ret = through(f, text, views, watch, t0, n);
		if (!ret && watch && watch->logits)
			ret = each_logits(f, watch, t0, n);
		if (!ret && watch && watch->done)
			ret = watch->done(watch->opaque, t0, n);
	}
	return ret;
}

kvarc_ret kvi_teacher_forced_prefill(struct kvi_teacher_forced *f,
                                     const struct kvi_teacher_forced_text *text,
                                     const kvarc_view *views)
{
	return kvi_teacher_forced_observed(f, text, views, NULL);
}

void kvi_teacher_forced_keys(const struct kvi_teacher_forced *f, size_t layer,
                             const kvarc_view *views, uint64_t t0, size_t n, float *k)
{
	const struct kvi_teacher_forced_rows r = rows_of(f, layer, KEY, views, t0, n);
	kvi_teacher_forced_load(&r, k);
}

/* ---- other caches instead of the exact one ---- */

static kvarc_ret inject_layer(struct kvi_teacher_forced *f, size_t layer,
                              const struct kvi_teacher_forced_cache *c)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t t0 = 0; t0 < c->n && !ret; t0 += KVI_TEACHER_FORCED_STEP) {
		size_t n = step_tokens((size_t)c->n, t0);
		for (unsigned k = KEY; k < BOTH; k++) {
			struct kvi_teacher_forced_rows r = rows_of(f, layer, k, c->views, t0, n);
			kvi_teacher_forced_load(&r, f->rows[k]);
		}
		ret = f->o.put(f->run, layer, t0, f->rows[KEY], f->rows[VALUE], f->C, n);
	}
	return ret;
}

/* The text follows the cache. Rows of the run behind it are not read any more. */
static kvarc_ret inject(struct kvi_teacher_forced *f, const struct kvi_teacher_forced_cache *c)
{
	kvarc_ret ret = KVARC_OK;
	if (f->windows && c->n != (uint64_t)f->text.positions[0])
		return KVARC_OPTIONS;
	for (size_t l = 0; l < f->m->n_layers && !ret; l++)
		ret = inject_layer(f, l, c);
	kvi_run_place(f->run, 0, (size_t)c->n, f->text.positions, 0);
	return ret;
}

/* Logits of the text after a cache, to `to`. */
static kvarc_ret force(struct kvi_teacher_forced *f, const struct kvi_teacher_forced_cache *c,
                       const struct kvi_teacher_forced_observer *to)
{
	kvarc_ret ret = inject(f, c);
	for (size_t t0 = 0; t0 < f->text.n && !ret; t0 += KVI_TEACHER_FORCED_STEP) {
		size_t n = step_tokens(f->text.n, t0);
		ret = through(f, &f->text, NULL, NULL, t0, n);
		if (!ret)
			ret = each_logits(f, to, t0, n);
	}
	return ret;
}

static kvarc_ret keep(void *opaque, const struct kvi_logits *z, size_t t, size_t n)
{
	struct kvi_teacher_forced *f = opaque;
	size_t words = f->m->vocabulary;
	for (size_t i = 0; i < n; i++)
		memcpy(f->logits + (t + i) * words, z->z + i * z->stride, words * sizeof *z->z);
	return KVARC_OK;
}

kvarc_ret kvi_teacher_forced_exact(struct kvi_teacher_forced *f,
                                   const struct kvi_teacher_forced_cache *cache,
                                   const struct kvi_teacher_forced_text *text)
{
	size_t capacity;
	if (kvi_mul(text->n, (size_t)f->m->vocabulary, &capacity))
		return KVARC_MEM;
	if (capacity > f->capacity) {
		kvi_free(f->o.alloc, f->logits);
		f->capacity = 0;
		f->logits = kvi_array(f->o.alloc, capacity, sizeof *f->logits);
		if (!f->logits)
			return kvi_alloc_error(f->o.alloc);
		f->capacity = capacity;
	}
	f->text = *text;
	const struct kvi_teacher_forced_observer to = { .opaque = f, .logits = keep };
	return force(f, cache, &to);
}

struct comparison {
	struct kvi_teacher_forced *f;
	const struct kvi_logits *z;
	size_t t;
	struct kvi_divergence *d;
};

static void compare_one(void *opaque, size_t i, unsigned worker)
{
	const struct comparison *c = opaque;
	const struct kvi_teacher_forced *f = c->f;
	size_t t = c->t + i;
	(void)worker;
	c->d[t] = kvi_divergence(f->logits + t * f->m->vocabulary, c->z->z + i * c->z->stride,
	                         f->m->vocabulary, t + 1 < f->text.n ? f->text.ids[t + 1] : -1);
}

static kvarc_ret compare(void *opaque, const struct kvi_logits *z, size_t t, size_t n)
{
	struct comparison *c = opaque;
	c->z = z;
	c->t = t;
	kvi_parallel(c->f->o.pool, n, compare_one, c);
	return KVARC_OK;
}

kvarc_ret kvi_teacher_forced_compare(struct kvi_teacher_forced *f,
                                     const struct kvi_teacher_forced_cache *cache,
                                     struct kvi_divergence *d)
{
	struct comparison c = { .f = f, .d = d };
	const struct kvi_teacher_forced_observer to = { .opaque = &c, .logits = compare };
	return force(f, cache, &to);
}
