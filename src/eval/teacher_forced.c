/* SPDX-License-Identifier: BSD-3-Clause */
/* teacher_forced.c - teacher-forced logits of a text after a cache, whose rows it reads */
#include "teacher_forced.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "exact/head.h"
#include "format/chunk_order.h"
#include "format/geometry_check.h"
#include "numeric/formats.h"
#include "numeric/rotate.h"
#include "predict/prediction.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/fpmode.h"
#include "util/parallel.h"
#include "util/view.h"

/* ==== Elements of a cache as the rows of numbers that attention looks at ==== */

/* rows.c: n tokens of a tensor from t0 on, to be converted between elements and rows of floats. */
struct teacher_forced_rows {
	const kvarc_geometry *geometry;
	const kvarc_tensor *tensor;
	const kvarc_view *view; /* NULL: rounded alone */
	uint64_t t0;
	size_t n;
	uint8_t *elements; /* work memory for n tokens, packed */
};

static struct kvi_view_block block_of(const struct teacher_forced_rows *r)
{
	return (struct kvi_view_block){ .row = r->t0,
		                        .n = (uint32_t)r->n,
		                        .c0 = 0,
		                        .nc = kvi_tensor_width(r->tensor),
		                        .elem = (uint32_t)kvarc_dtype_bytes(r->tensor->dtype) };
}

/* Elements of all heads to rows, or rows to elements. */
static void convert(const struct teacher_forced_rows *r, float *x, bool store)
{
	const kvarc_tensor *t = r->tensor;
	const kvarc_rope *rope = kvi_tensor_rope(r->geometry, t);
	size_t hd = t->channels, bytes = hd * kvarc_dtype_bytes(t->dtype);
	uint8_t *elements = r->elements;
	float channels[KVI_GROUP_MAX]; /* no head of an engine has more */
	uint64_t mode = kvi_fp_exact();
	for (size_t i = 0; i < r->n * t->heads; i++) {
		for (size_t c = 0; store && c < hd; c++)
			channels[kvi_rope_channel(rope, c)] = x[c];
		if (store)
			kvi_floats_store(t->dtype, channels, hd, elements);
		kvi_floats_exact(t->dtype, elements, hd, channels);
		for (size_t c = 0; c < hd; c++)
			x[c] = channels[kvi_rope_channel(rope, c)];
		x += hd;
		elements += bytes;
	}
	kvi_fp_restore(mode);
}

/* Elements of the view as floats x: n rows of heads x channels, keys in slots. */
static void teacher_forced_load(const struct teacher_forced_rows *r, float *x)
{
	const struct kvi_view_block b = block_of(r);
	kvi_view_gather(r->view, &b, r->elements);
	convert(r, x, false);
}

/* Rounds x to elements, writes those to the view, if any, and their values to x. */
static void teacher_forced_store(const struct teacher_forced_rows *r, float *x)
{
	const struct kvi_view_block b = block_of(r);
	convert(r, x, true);
	if (r->view)
		kvi_view_scatter(r->view, &b, r->elements);
}

/* ==== Teacher-forced logits of a text after a cache ==== */

enum { KEY, VALUE, BOTH };

struct kvi_teacher_forced {
	struct kvi_teacher_forced_options o;
	const struct kvi_model_file *m;
	struct kvi_run *run;
	struct kvi_head *head;
	uint32_t *tensors; /* indices in the geometry: key and value of each layer */
	bool windows;      /* some layers have windows */
	size_t C;          /* floats of a row */
	float *rows[BOTH]; /* rows of KVI_TEACHER_FORCED_STEP tokens */
	uint8_t *elements; /* elements of one of these rows */
	struct kvi_teacher_forced_text text;
	float *logits;   /* logits of the text after the exact cache */
	size_t capacity; /* floats in logits */
};

/* ---- opening ---- */

static kvarc_ret refuse(kvarc_error *error, kvarc_ret ret, const char *what)
{
	return kvi_fail(error, ret, "%s", what);
}

/* A tensor that is all of a layer's keys or values, in floats. */
static bool takes(const struct kvi_teacher_forced *teacher, const kvarc_tensor *tensor)
{
	return tensor->track == teacher->o.track && tensor->kind <= KVARC_VALUE &&
	       tensor->role == KVARC_WHOLE && tensor->heads == teacher->m->kv_heads &&
	       tensor->channels == teacher->m->head_channels && tensor->dtype >= KVARC_F32 &&
	       tensor->dtype <= KVARC_E5M2 && tensor->layer < teacher->m->n_layers &&
	       !(tensor->flags & KVARC_TENSOR_HADAMARD);
}

static kvarc_ret find_tensors(struct kvi_teacher_forced *teacher, kvarc_error *error)
{
	const kvarc_geometry *g = teacher->o.geometry;
	size_t n = BOTH * (size_t)teacher->m->n_layers;
	teacher->tensors = kvi_array(teacher->o.alloc, n, sizeof *teacher->tensors);
	if (!teacher->tensors)
		return kvi_fail_alloc(error, teacher->o.alloc);
	for (size_t i = 0; i < n; i++)
		teacher->tensors[i] = UINT32_MAX;
	for (size_t i = g->n_tensors; i-- > 0;)
		if (takes(teacher, &g->tensors[i]))
			teacher->tensors[BOTH * g->tensors[i].layer + g->tensors[i].kind] =
				(uint32_t)i;
	for (size_t i = 0; i < n; i++)
		if (teacher->tensors[i] == UINT32_MAX)
			return refuse(error, KVARC_PREDICTOR,
			              "the model does not make this cache: its layers, heads or "
			              "types are others");
	return KVARC_OK;
}

/* The cache's frequencies, which are those that count (spec/arithmetic.md 5). */
static kvarc_ret find_ropes(const struct kvi_teacher_forced *teacher, struct kvi_run_options *run,
                            kvarc_error *error)
{
	struct kvi_order order;
	kvarc_ret ret = kvi_order_make(&order, teacher->o.alloc, teacher->o.geometry);
	const struct kvi_prediction_options o = { .predictor = teacher->o.predictor,
		                                  .geometry = teacher->o.geometry,
		                                  .order = &order,
		                                  .track = teacher->o.track };
	if (ret)
		return kvi_fail_alloc(error, teacher->o.alloc);
	ret = kvi_prediction_ropes(&o, run->freq, error);
	kvi_order_free(&order, teacher->o.alloc);
	return ret;
}

static kvarc_ret open_buffers(struct kvi_teacher_forced *teacher)
{
	const struct kvi_alloc *alloc = teacher->o.alloc;
	for (unsigned k = KEY; k < BOTH; k++) {
		teacher->rows[k] = kvi_array(alloc, teacher->C,
		                             KVI_TEACHER_FORCED_STEP * sizeof(float));
		if (!teacher->rows[k])
			return kvi_alloc_error(alloc);
	}
	teacher->elements = kvi_array(alloc, teacher->C, KVI_TEACHER_FORCED_STEP * sizeof(float));
	return teacher->elements ? KVARC_OK : kvi_alloc_error(alloc);
}

static kvarc_ret open_runs(struct kvi_teacher_forced *teacher, kvarc_error *error)
{
	struct kvi_run_options o = { .alloc = teacher->o.alloc,
		                     .pool = teacher->o.pool,
		                     .isa_mask = teacher->o.isa_mask,
		                     .whole = true,
		                     .kernels = kvi_predictor_kernels(teacher->o.predictor,
		                                                      teacher->o.isa_mask) };
	kvarc_ret ret = find_ropes(teacher, &o, error);
	if (!ret)
		ret = kvi_predictor_head(teacher->o.predictor, &teacher->o.arithmetic,
		                         teacher->o.isa_mask, &o.engine, error);
	if (ret)
		return ret;
	ret = open_buffers(teacher);
	if (!ret)
		ret = kvi_run_open(&teacher->run, &o);
	if (!ret)
		ret = kvi_head_open(&teacher->head, &o);
	return kvi_fail_memory(error, ret, teacher->o.alloc);
}

kvarc_ret kvi_teacher_forced_open(struct kvi_teacher_forced **out,
                                  const struct kvi_teacher_forced_options *options,
                                  kvarc_error *error)
{
	*out = NULL;
	if (!kvi_predictor_file(options->predictor) ||
	    kvi_predictor_token_blind(options->predictor))
		return refuse(error, KVARC_OPTIONS,
		              "this needs a model that sees its tokens, and runs here");
	struct kvi_teacher_forced *f = kvi_calloc(options->alloc, 1, sizeof *f);
	if (!f)
		return kvi_fail_alloc(error, options->alloc);
	f->o = *options;
	f->o.put = options->put ? options->put : kvi_run_put;
	f->m = kvi_predictor_file(options->predictor);
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

static struct teacher_forced_rows rows_of(const struct kvi_teacher_forced *teacher,
                                              size_t layer, unsigned kind, const kvarc_view *views,
                                              uint64_t t0, size_t n)
{
	uint32_t tensor = teacher->tensors[BOTH * layer + kind];
	return (struct teacher_forced_rows){ .geometry = teacher->o.geometry,
		                                 .tensor = &teacher->o.geometry->tensors[tensor],
		                                 .view = views ? &views[tensor] : NULL,
		                                 .t0 = t0,
		                                 .n = n,
		                                 .elements = teacher->elements };
}

static void take_rows(const struct kvi_teacher_forced *teacher, float *to, const float *from,
                      size_t stride, size_t n)
{
	for (size_t t = 0; t < n; t++)
		memcpy(to + t * teacher->C, from + t * stride, teacher->C * sizeof *to);
}

/* Tokens [t0, t0 + n) on their way through the layers. */
struct step {
	struct kvi_teacher_forced *f;
	const kvarc_view *views;
	const struct kvi_teacher_forced_observer *watch;
	size_t t0, n;
};

/* Attention sees the rows as the cache stores them. */
static kvarc_ret store_rows(void *opaque, size_t layer, struct kvi_predicted *predicted)
{
	const struct step *s = opaque;
	struct kvi_teacher_forced *f = s->f;
	take_rows(f, f->rows[KEY], predicted->k, predicted->stride, s->n);
	take_rows(f, f->rows[VALUE], predicted->v, predicted->stride, s->n);
	for (unsigned k = KEY; k < BOTH; k++) {
		struct teacher_forced_rows r = rows_of(f, layer, k, s->views, s->t0, s->n);
		teacher_forced_store(&r, f->rows[k]);
	}
	*predicted = (struct kvi_predicted){ f->rows[KEY], f->rows[VALUE], f->C };
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
static kvarc_ret through(struct kvi_teacher_forced *teacher,
                         const struct kvi_teacher_forced_text *text, const kvarc_view *views,
                         const struct kvi_teacher_forced_observer *watch, size_t t0, size_t n)
{
	struct step s = { teacher, views, watch, t0, n };
	const struct kvi_run_pass pass = { .opaque = &s,
		                           .rows = store_rows,
		                           .advanced = watch_queries };
	return kvi_run_through(teacher->run, text->ids + t0, text->positions + t0, n, &pass);
}

static size_t step_tokens(size_t n, size_t t0)
{
	return n - t0 < KVI_TEACHER_FORCED_STEP ? n - t0 : KVI_TEACHER_FORCED_STEP;
}

/* Reports the logits of the n tokens through which the run was advanced last, in batches. */
static kvarc_ret each_logits(struct kvi_teacher_forced *teacher,
                             const struct kvi_teacher_forced_observer *to, size_t t0, size_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t t = 0; t < n && !ret; t += KVI_HEAD_TOKENS) {
		size_t some = n - t < KVI_HEAD_TOKENS ? n - t : KVI_HEAD_TOKENS;
		struct kvi_hidden h = kvi_run_hidden(teacher->run);
		struct kvi_logits z = kvi_head_logits(teacher->head, h.h + t * h.width, h.width,
		                                      some);
		ret = to->logits(to->opaque, &z, t0 + t, some);
	}
	return ret;
}

kvarc_ret kvi_teacher_forced_observed(struct kvi_teacher_forced *teacher,
                                      const struct kvi_teacher_forced_text *text,
                                      const kvarc_view *views,
                                      const struct kvi_teacher_forced_observer *watch)
{
	kvarc_ret ret = KVARC_OK;
	kvi_run_restart(teacher->run);
	for (size_t t0 = 0; t0 < text->n && !ret; t0 += KVI_TEACHER_FORCED_STEP) {
		size_t n = step_tokens(text->n, t0);
		ret = through(teacher, text, views, watch, t0, n);
		if (!ret && watch && watch->logits)
			ret = each_logits(teacher, watch, t0, n);
		if (!ret && watch && watch->done)
			ret = watch->done(watch->opaque, t0, n);
	}
	return ret;
}

kvarc_ret kvi_teacher_forced_prefill(struct kvi_teacher_forced *teacher,
                                     const struct kvi_teacher_forced_text *text,
                                     const kvarc_view *views)
{
	return kvi_teacher_forced_observed(teacher, text, views, NULL);
}

void kvi_teacher_forced_keys(const struct kvi_teacher_forced *teacher, size_t layer,
                             const kvarc_view *views, uint64_t t0, size_t n, float *k)
{
	const struct teacher_forced_rows r = rows_of(teacher, layer, KEY, views, t0, n);
	teacher_forced_load(&r, k);
}

/* ---- other caches instead of the exact one ---- */

static kvarc_ret inject_layer(struct kvi_teacher_forced *teacher, size_t layer,
                              const struct kvi_teacher_forced_cache *cache)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t t0 = 0; t0 < cache->n && !ret; t0 += KVI_TEACHER_FORCED_STEP) {
		size_t n = step_tokens((size_t)cache->n, t0);
		for (unsigned k = KEY; k < BOTH; k++) {
			struct teacher_forced_rows r = rows_of(teacher, layer, k, cache->views,
			                                           t0, n);
			teacher_forced_load(&r, teacher->rows[k]);
		}
		ret = teacher->o.put(teacher->run, layer, t0, teacher->rows[KEY],
		                     teacher->rows[VALUE], teacher->C, n);
	}
	return ret;
}

/* The text follows the cache. Rows of the run behind it are not read any more. */
static kvarc_ret inject(struct kvi_teacher_forced *teacher,
                        const struct kvi_teacher_forced_cache *cache)
{
	kvarc_ret ret = KVARC_OK;
	if (teacher->windows && cache->n != (uint64_t)teacher->text.positions[0])
		return KVARC_OPTIONS;
	for (size_t l = 0; l < teacher->m->n_layers && !ret; l++)
		ret = inject_layer(teacher, l, cache);
	kvi_run_place(teacher->run, 0, (size_t)cache->n, teacher->text.positions, 0);
	return ret;
}

/* Logits of the text after a cache, to `to`. */
static kvarc_ret force(struct kvi_teacher_forced *teacher,
                       const struct kvi_teacher_forced_cache *cache,
                       const struct kvi_teacher_forced_observer *to)
{
	kvarc_ret ret = inject(teacher, cache);
	for (size_t t0 = 0; t0 < teacher->text.n && !ret; t0 += KVI_TEACHER_FORCED_STEP) {
		size_t n = step_tokens(teacher->text.n, t0);
		ret = through(teacher, &teacher->text, NULL, NULL, t0, n);
		if (!ret)
			ret = each_logits(teacher, to, t0, n);
	}
	return ret;
}

static kvarc_ret keep(void *opaque, const struct kvi_logits *logits, size_t t, size_t n)
{
	struct kvi_teacher_forced *f = opaque;
	size_t words = f->m->vocabulary;
	for (size_t i = 0; i < n; i++)
		memcpy(f->logits + (t + i) * words, logits->z + i * logits->stride,
		       words * sizeof *logits->z);
	return KVARC_OK;
}

kvarc_ret kvi_teacher_forced_exact(struct kvi_teacher_forced *teacher,
                                   const struct kvi_teacher_forced_cache *cache,
                                   const struct kvi_teacher_forced_text *text)
{
	size_t capacity;
	if (kvi_mul(text->n, (size_t)teacher->m->vocabulary, &capacity))
		return KVARC_MEM;
	if (capacity > teacher->capacity) {
		kvi_free(teacher->o.alloc, teacher->logits);
		teacher->capacity = 0;
		teacher->logits = kvi_array(teacher->o.alloc, capacity, sizeof *teacher->logits);
		if (!teacher->logits)
			return kvi_alloc_error(teacher->o.alloc);
		teacher->capacity = capacity;
	}
	teacher->text = *text;
	const struct kvi_teacher_forced_observer to = { .opaque = teacher, .logits = keep };
	return force(teacher, cache, &to);
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

static kvarc_ret compare(void *opaque, const struct kvi_logits *logits, size_t t, size_t n)
{
	struct comparison *c = opaque;
	c->z = logits;
	c->t = t;
	kvi_parallel(c->f->o.pool, n, compare_one, c);
	return KVARC_OK;
}

kvarc_ret kvi_teacher_forced_compare(struct kvi_teacher_forced *teacher,
                                     const struct kvi_teacher_forced_cache *cache,
                                     struct kvi_divergence *divergence)
{
	struct comparison c = { .f = teacher, .d = divergence };
	const struct kvi_teacher_forced_observer to = { .opaque = &c, .logits = compare };
	return force(teacher, cache, &to);
}
