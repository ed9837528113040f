/* SPDX-License-Identifier: BSD-3-Clause */
/* train_predict.c - the sequences of a stack go through a model in exact arithmetic */
#include "train_predict.h"

#include <string.h>

#include "exact/head.h"
#include "exact/self_test.h"
#include "util/error.h"
#include "train_walk.h"
#include "weight_cache/weight_cache.h"

enum {
	TAUGHT = 16384, /* tokens for the teacher: D has some hundred columns */
	WORK = 16       /* of a walk, in what reading its layer's bytes counts */
};

kvarc_ret kvi_train_predictor_open(kvarc_trainer *t, const char *path, unsigned level)
{
	struct kvi_train_predictor *p = kvi_calloc(&t->alloc, 1, sizeof *p);
	if (!p)
		return kvi_train_no_memory(t);
	p->level = level;
	const struct kvi_engine_level own = kvi_train_level_of(t, level);
	const struct kvi_engine_level l = kvi_engine_choice(&own, t->options.model.arithmetic,
	                                                    t->options.model.loop);
	p->arithmetic = l.arithmetic;
	p->closed = l.closed;
	kvarc_ret ret = kvi_model_file_open(&p->file, &t->alloc, path, t->error);
	if (ret) {
		kvi_free(&t->alloc, p);
		return ret;
	}
	t->predictor = p;
	p->corrects = p->closed && p->file->n_layers > 1 &&
	              !(t->options.flags & (KVARC_TRAIN_IN_FILE | KVARC_TRAIN_NO_STAGES));
	p->width = p->file->width;
	p->kv = (size_t)p->file->kv_heads * p->file->head_channels;
	p->layer_work = WORK * 2 * p->kv;
	return KVARC_OK;
}

static void stop(kvarc_trainer *t)
{
	struct kvi_train_predictor *p = t->predictor;
	kvi_train_walk_close(t, &p->real);
	kvi_train_walk_close(t, &p->pupil);
	kvi_train_walk_close(t, &p->teacher);
	kvi_free(&t->alloc, p->blind_k);
	p->blind_k = p->blind_v = NULL;
	if (p->exact != p->engine)
		kvi_engine_close(&p->exact);
	kvi_engine_close(&p->engine);
	p->exact = NULL;
}

void kvi_train_predictor_close(kvarc_trainer *t)
{
	if (!t->predictor)
		return;
	stop(t);
	kvi_model_file_close(&t->predictor->file);
	kvi_free(&t->alloc, t->predictor);
	t->predictor = NULL;
}

/* ---- whether the caches are this model's ---- */

static kvarc_ret refuse(kvarc_trainer *t, const char *what)
{
	return kvi_fail(t->error, KVARC_GEOMETRY, "the caches are not of the given model: %s",
	                what);
}

/* The caches' frequencies are those that count (spec/arithmetic.md 5); they come from a search
 * maybe, with a little error. */
static bool take_rope(const kvarc_trainer *t, struct kvi_train_predictor *p,
                      const struct kvi_train_shape *s)
{
	struct kvi_model_layer *l = &p->file->layers[s->layer];
	struct kvi_model_rope *own = l->rope < p->file->n_ropes ? &p->file->ropes[l->rope] : NULL;
	uint32_t rotary = own ? own->rotary : 0;
	if (!s->rope)
		return rotary == 0;
	const struct kvi_profile_rope *r = &t->ropes[s->rope - 1];
	if (r->rotary != rotary)
		return false;
	for (uint32_t i = 0; i < rotary / 2; i++) {
		uint64_t a = own->freq[i], b = r->freq[i];
		if ((a > b ? a - b : b - a) > a >> 12)
			return false;
	}
	memcpy(own->freq, r->freq, rotary / 2 * sizeof *own->freq);
	return true;
}

static kvarc_ret check_stack(kvarc_trainer *t, const struct kvi_train_stack *s)
{
	struct kvi_train_predictor *p = t->predictor;
	if (t->n_stacks > 1 || s->n_shapes != 2 * (size_t)p->file->n_layers)
		return refuse(t, "it has another number of layers, or the cache "
		                 "keeps those with a window apart");
	for (size_t i = 0; i < s->n_shapes; i++) {
		const struct kvi_train_shape *x = &s->shapes[i];
		if (x->layer != i / 2 || x->kind != (i & 1 ? KVARC_VALUE : KVARC_KEY))
			return refuse(t, "layers are missing");
		if (x->heads != p->file->kv_heads || x->channels != p->file->head_channels)
			return refuse(t, "heads or their channels differ");
		if (x->kind == KVARC_KEY && !take_rope(t, p, x))
			return refuse(t, "its rotary embedding differs");
		if (x->kind == KVARC_VALUE && x->rope)
			return refuse(t, "its values are not rotated");
	}
	return KVARC_OK;
}

static kvarc_ret embed_block(kvarc_trainer *t, const struct kvi_train_stack *s,
                             struct kvi_train_walk *w, const struct kvi_train_block *b, void *arg)
{
	const struct kvi_train_cache *c = s->caches[b->cache];
	(void)arg;
	kvi_run_place(w->run, 0, 0, c->positions, 0);
	kvarc_ret ret = kvi_run_segment(w->run, c->ids + b->t0, c->positions + b->t0, b->n);
	if (ret == KVARC_DATA)
		return refuse(t, "it lacks one of their token ids or positions");
	if (ret)
		return kvi_train_no_memory(t);
	kvi_train_block_save(t->predictor, w, b);
	return KVARC_OK;
}

struct place {
	uint32_t layer;
	bool store;                          /* predictions become what an engine stores */
	const struct kvi_train_layer *truth; /* of the caches; NULL: of... */
	const struct kvi_train_walk *from;   /* this walk */
};

static kvarc_ret predict_block(kvarc_trainer *t, const struct kvi_train_stack *s,
                               struct kvi_train_walk *w, const struct kvi_train_block *b, void *arg)
{
	const struct kvi_train_predictor *p = t->predictor;
	const struct place *l = arg;
	float *k = w->k + b->at * p->kv, *v = w->v + b->at * p->kv;
	kvi_train_block_place(s, p, w, b, l->layer);
	struct kvi_predicted x = kvi_run_predict(w->run);
	kvi_train_copy_rows(k, p->kv, x.k, x.stride, b->n, p->kv);
	kvi_train_copy_rows(v, p->kv, x.v, x.stride, b->n, p->kv);
	memcpy(w->root + b->at, kvi_run_hidden(w->run).root, b->n * sizeof *w->root);
	if (l->store) {
		kvi_run_rotate(w->run, k, p->kv);
		kvi_train_block_round(s, b, 2 * (size_t)l->layer, k, b->n * p->kv);
		kvi_train_block_round(s, b, 2 * (size_t)l->layer + 1, v, b->n * p->kv);
	}
	return kvi_train_progress(t, b->n * p->layer_work / 4);
}

static kvarc_ret advance_block(kvarc_trainer *t, const struct kvi_train_stack *s,
                               struct kvi_train_walk *w, const struct kvi_train_block *b, void *arg)
{
	const struct kvi_train_predictor *p = t->predictor;
	const struct place *l = arg;
	size_t n = b->n * p->kv;
	float *k = kvi_array(&t->alloc, n, 2 * sizeof *k);
	if (!k)
		return kvi_train_no_memory(t);
	float *v = k + n;
	kvi_train_block_place(s, p, w, b, l->layer);
	if (l->truth) {
		kvi_train_block_true(s, b, &l->truth->tensors[0], 2 * (size_t)l->layer, k);
		kvi_train_block_true(s, b, &l->truth->tensors[1], 2 * (size_t)l->layer + 1, v);
	} else {
		memcpy(k, l->from->k + b->at * p->kv, n * sizeof *k);
		memcpy(v, l->from->v + b->at * p->kv, n * sizeof *v);
		if (!l->store) /* predicted: not rotated yet */
			kvi_run_rotate(w->run, k, p->kv);
	}
	/* "corrected": its norm has not been made since it was placed */
	kvarc_ret ret = kvi_run_advance(w->run, k, v, p->kv, true);
	kvi_free(&t->alloc, k);
	if (ret)
		return kvi_train_no_memory(t);
	kvi_train_block_save(p, w, b);
	if (b->t0 + b->n == s->caches[b->cache]->n)
		kvi_run_forget(w->run, l->layer);
	return kvi_train_progress(t, b->n * p->layer_work - b->n * p->layer_work / 4);
}

/* ---- all of it ---- */

/* How many of the caches the teacher gets: the first ones, until there are tokens enough, and
 * until those are among them that it makes. */
static size_t caches_to_teach(const struct kvi_train_predictor *p, const struct kvi_train_stack *s)
{
	size_t n = 0, tokens = 0;
	while (p->corrects && n < s->n_caches && tokens < TAUGHT)
		tokens += s->caches[n++]->held;
	for (size_t i = n; i < s->n_caches; i++)
		if (s->caches[i]->origin)
			n = i + 1;
	return n;
}

static size_t tokens_to_teach(const struct kvi_train_predictor *p, const struct kvi_train_stack *s)
{
	size_t n = caches_to_teach(p, s);
	return n ? s->caches[n - 1]->first + s->caches[n - 1]->n : 0;
}

uint64_t kvi_train_predictor_work(const kvarc_trainer *t, const struct kvi_train_stack *s)
{
	const struct kvi_train_predictor *p = t->predictor;
	uint64_t tokens = s->n_tokens + kvi_train_write_work(s);
	tokens += (1 + p->corrects) * (uint64_t)tokens_to_teach(p, s);
	return tokens * p->file->n_layers * p->layer_work;
}

/* The engine that made the caches computed in their dtype; one of 8 bits is what it stores. */
static unsigned teachers_dtype(const struct kvi_train_stack *s)
{
	unsigned dtype = kvi_train_tensor_of(s->caches[0], 0)->dtype;
	return dtype == KVARC_F32 ? 0 : dtype == KVARC_F16 ? KVARC_F16 : KVARC_BF16;
}

/* Engines that run quantised weights make 8-bit integers of the activations, too, and compute in
 * fp32 between. */
static bool is_quantised(const struct kvi_train_predictor *p)
{
	return kvi_number_groups(p->file->layers[0].q.type).group != 0;
}

static kvarc_ret open_engine(kvarc_trainer *t, const struct kvi_arithmetic *a,
                             struct kvi_engine **e)
{
	const struct kvi_engine_options o = { .alloc = &t->alloc,
		                              .file = t->predictor->file,
		                              .arithmetic = *a,
		                              .pool = t->pool,
		                              .error = t->error,
		                              .cache = t->options.common.weight_cache };
	return kvi_kept_engine(e, &o);
}

static kvarc_ret open_exact(kvarc_trainer *t)
{
	struct kvi_train_predictor *p = t->predictor;
	const struct kvi_arithmetic exact = kvi_engine_level(is_quantised(p) ? 4 : 7).arithmetic;
	if (kvi_arithmetic_equal(&p->arithmetic, &exact)) {
		p->exact = p->engine;
		return KVARC_OK;
	}
	return open_engine(t, &exact, &p->exact);
}

static kvarc_ret open_teacher(kvarc_trainer *t, const struct kvi_train_stack *s, size_t n)
{
	struct kvi_train_predictor *p = t->predictor;
	kvarc_ret ret = KVARC_OK;
	if (p->corrects)
		ret = kvi_train_walk_open(t, s, p->engine, 0, n, &p->pupil);
	if (!ret)
		ret = kvi_train_walk_open(t, s, p->exact, is_quantised(p) ? 0 : teachers_dtype(s),
		                          n, &p->teacher);
	if (!ret)
		ret = kvi_train_each_block(t, s, &p->pupil, embed_block, NULL);
	if (!ret)
		ret = kvi_train_each_block(t, s, &p->teacher, embed_block, NULL);
	return ret;
}

kvarc_ret kvi_train_predictor_start(kvarc_trainer *t, const struct kvi_train_stack *s)
{
	struct kvi_train_predictor *p = t->predictor;
	const uint32_t isa = t->options.common.isa_mask;
	kvarc_ret ret = check_stack(t, s);
	if (!ret)
		ret = kvi_exact_test(&t->alloc, kvi_exact_kernels_get(isa),
		                     kvi_elementwise_get(isa), t->error);
	if (!ret)
		ret = open_engine(t, &p->arithmetic, &p->engine);
	if (!ret && t->options.model.blind)
		ret = kvi_engine_add_head(p->engine, t->pool, t->error);
	if (!ret)
		ret = kvi_train_identify(t);
	size_t taught = caches_to_teach(p, s);
	if (!ret && taught)
		ret = open_exact(t);
	if (!ret)
		ret = kvi_train_write(t, s);
	if (!ret)
		ret = kvi_train_walk_open(t, s, p->engine, 0, s->n_caches, &p->real);
	if (!ret)
		ret = kvi_train_each_block(t, s, &p->real, embed_block, NULL);
	if (!ret && t->options.model.blind)
		ret = kvi_train_token_blind_start(t, s);
	if (!ret && taught)
		ret = open_teacher(t, s, taught);
	return ret;
}

kvarc_ret kvi_train_predict_layer(kvarc_trainer *t, const struct kvi_train_stack *s, uint32_t layer)
{
	struct kvi_train_predictor *p = t->predictor;
	struct place l = { .layer = layer };
	kvarc_ret ret = KVARC_OK;
	if (p->blind_k)
		kvi_train_token_blind_take(t, s, layer);
	else
		ret = kvi_train_each_block(t, s, &p->real, predict_block, &l);
	if (!ret)
		ret = kvi_train_each_block(t, s, &p->pupil, predict_block, &l);
	l.store = true;
	if (!ret)
		ret = kvi_train_each_block(t, s, &p->teacher, predict_block, &l);
	return ret;
}

/* ---- the pupil's residual of the teacher's keys and values ---- */

struct taught_job {
	kvarc_trainer *t;
	const struct kvi_train_stack *stack;
	struct kvi_train_tensor *x;
	size_t shape;
	atomic_bool failed;
};

static void fill_taught(void *arg, size_t cache)
{
	struct taught_job *j = arg;
	const struct kvi_train_predictor *p = j->t->predictor;
	const struct kvi_train_cache *c = j->stack->caches[cache];
	struct kvi_train_tensor *x = j->x;
	const float *rows = kvi_train_walk_rows(&p->teacher, x->shape->kind);
	size_t entries = x->rows * KVI_TRAIN_BLOCK;
	int32_t *X = kvi_calloc(&j->t->alloc, 2 * entries, sizeof *X);
	if (!X) {
		atomic_store(&j->failed, true);
		return;
	}
	for (size_t t0 = 0; t0 < c->n; t0 += KVI_TRAIN_BLOCK) {
		size_t n = c->n - t0 < KVI_TRAIN_BLOCK ? c->n - t0 : KVI_TRAIN_BLOCK;
		kvi_train_units(x, rows + (c->first + t0) * p->kv, p->kv, n, X);
		kvi_train_remove_rope(j->stack, cache, j->shape, x, t0, n, X, X + entries);
		kvi_train_fill_z(j->t->kernels, x, c->first + t0, n, X + entries);
	}
	kvi_free(&j->t->alloc, X);
}

/* The layer as the teacher has it: z is its own. */
static kvarc_ret make_taught(kvarc_trainer *t, const struct kvi_train_task *k,
                             struct kvi_train_layer *taught)
{
	const struct kvi_train_predictor *p = t->predictor;
	kvarc_ret ret = KVARC_OK;
	*taught = *k->layer;
	for (size_t i = 0; i < taught->n; i++) {
		taught->tensors[i].z = NULL;
		taught->tensors[i].expected = NULL;
	}
	for (size_t i = 0; i < taught->n && !ret; i++) {
		struct kvi_train_tensor *x = &taught->tensors[i];
		struct taught_job j = { t, k->stack, x, k->first + i, false };
		x->predicted = kvi_train_walk_rows(&p->pupil, x->shape->kind);
		x->z = kvi_calloc(&t->alloc, x->rows, x->capacity * sizeof *x->z);
		if (!x->z)
			return kvi_train_no_memory(t);
		ret = kvi_train_expect(t, k->stack, x);
		if (!ret)
			kvi_train_parallel(t, p->teacher.n_caches, fill_taught, &j);
		if (!ret && atomic_load(&j.failed))
			ret = kvi_train_no_memory(t);
	}
	return ret;
}

/* D from the teacher's tokens, with weights of their own. */
static kvarc_ret teach(kvarc_trainer *t, struct kvi_train_task *k,
                       const struct kvi_train_layer *taught)
{
	const struct kvi_train_stack *s = k->stack;
	struct kvi_train_weights w = *k->weights;
	size_t n = t->predictor->teacher.n_caches;
	size_t end = s->caches[n - 1]->first + s->caches[n - 1]->n;
	w.bad = kvi_calloc(&t->alloc, s->n_tokens, 1);
	w.w = kvi_calloc(&t->alloc, s->n_tokens, sizeof *w.w);
	kvarc_ret ret = KVARC_OK;
	if (w.bad && w.w) {
		kvi_train_weigh_tokens(t->kernels, taught, s, false, &w);
		memset(w.w + end, 0, (s->n_tokens - end) * sizeof *w.w);
		ret = kvi_train_correct_fit(t, k, taught, w.w);
	} else {
		ret = kvi_train_no_memory(t);
	}
	kvi_free(&t->alloc, w.bad);
	kvi_free(&t->alloc, w.w);
	return ret;
}

static kvarc_ret correct(kvarc_trainer *t, struct kvi_train_task *k)
{
	struct kvi_train_predictor *p = t->predictor;
	struct kvi_train_layer taught;
	kvarc_ret ret = make_taught(t, k, &taught);
	if (!ret)
		ret = teach(t, k, &taught);
	if (!ret) {
		kvi_train_correct(t, k, k->layer, &p->real);
		kvi_train_correct(t, k, &taught, &p->pupil);
	}
	for (size_t i = 0; i < taught.n; i++) {
		kvi_free(&t->alloc, taught.tensors[i].z);
		kvi_free(&t->alloc, taught.tensors[i].expected);
	}
	return ret;
}

kvarc_ret kvi_train_advance_layer(kvarc_trainer *t, struct kvi_train_task *k)
{
	struct kvi_train_predictor *p = t->predictor;
	uint32_t layer = k->layer->tensors[0].shape->layer;
	struct place l = { .layer = layer, .from = &p->real };
	kvarc_ret ret = KVARC_OK;
	if (layer + 1 == p->file->n_layers)
		return KVARC_OK;
	if (p->closed)
		l.truth = k->layer;
	if (p->corrects)
		ret = correct(t, k);
	if (!ret && !p->blind_k)
		ret = kvi_train_each_block(t, k->stack, &p->real, advance_block, &l);
	l = (struct place){ .layer = layer, .store = true, .from = &p->teacher };
	if (!ret)
		ret = kvi_train_each_block(t, k->stack, &p->pupil, advance_block, &l);
	if (!ret)
		ret = kvi_train_each_block(t, k->stack, &p->teacher, advance_block, &l);
	return ret;
}
