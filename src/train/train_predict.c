/* SPDX-License-Identifier: BSD-3-Clause */
/* train_predict.c - the sequences of a stack through a model */
#include "train_predict.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "train_run.h"
#include "exact/head.h"
#include "exact/round.h"
#include "exact/self_test.h"
#include "format/frame.h"
#include "numeric/formats.h"
#include "numeric/rotate.h"
#include "token_blind/token_blind.h"
#include "util/bytes.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/hash.h"
#include "weight_cache/weight_cache.h"

/* ==== Blocks of tokens at the input of a layer ==== */

/* n tokens of a sequence from t0 on; at: of the first one in the rows of the stack. */
struct train_block {
	size_t cache, t0, n, at;
};
typedef kvarc_ret kvi_train_block_fn(kvarc_trainer *t, const struct kvi_train_stack *s,
                                     struct kvi_train_walk *w, const struct train_block *b,
                                     void *arg);

/* Frees the run and the rows of *w. */
static void train_walk_close(kvarc_trainer *trainer, struct kvi_train_walk *w)
{
	kvi_run_close(&w->run);
	kvi_free(&trainer->alloc, w->h);
	kvi_free(&trainer->alloc, w->root);
	kvi_free(&trainer->alloc, w->k);
	kvi_free(&trainer->alloc, w->v);
	*w = (struct kvi_train_walk){ 0 };
}

/* Allocates the rows of the first n_caches sequences of stack and a run of engine. Call
 * train_walk_close() also after a failure. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret train_walk_open(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                                 const struct kvi_engine *engine, unsigned round_to,
                                 size_t n_caches, struct kvi_train_walk *w)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	const struct kvi_run_options o = {
		.engine = engine,
		.alloc = &trainer->alloc,
		.pool = trainer->pool,
		.isa_mask = trainer->options.common.isa_mask,
		.round_to = round_to,
	};
	size_t n = stack->n_tokens;
	w->n_caches = n_caches;
	w->h = kvi_array(&trainer->alloc, n, p->width * sizeof *w->h);
	w->root = kvi_array(&trainer->alloc, n, sizeof *w->root);
	w->k = kvi_calloc(&trainer->alloc, n, p->kv * sizeof *w->k);
	w->v = kvi_calloc(&trainer->alloc, n, p->kv * sizeof *w->v);
	if (!w->h || !w->root || !w->k || !w->v)
		return kvi_train_no_memory(trainer);
	return kvi_fail_memory(trainer->error, kvi_run_open(&w->run, &o), &trainer->alloc);
}

/* Calls fn for each block, in order, until one call does not return OK; returns its code. */
static kvarc_ret train_each_block(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                                  struct kvi_train_walk *w, kvi_train_block_fn *fn, void *arg)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t k = 0; k < w->n_caches && !ret; k++) {
		const struct kvi_train_cache *c = stack->caches[k];
		for (size_t t0 = 0; t0 < c->n && !ret; t0 += KVI_TRAIN_BLOCK) {
			size_t n = c->n - t0;
			n = n < KVI_TRAIN_BLOCK ? n : KVI_TRAIN_BLOCK;
			const struct train_block b = { k, t0, n, c->first + t0 };
			ret = fn(trainer, stack, w, &b, arg);
		}
	}
	return ret;
}

/* Copies n rows of `columns` floats; strides in floats. */
static void train_copy_rows(float *to, size_t to_stride, const float *from, size_t stride, size_t n,
                            size_t columns)
{
	for (size_t i = 0; i < n; i++)
		memcpy(to + i * to_stride, from + i * stride, columns * sizeof *to);
}

/* The hidden state of the run, after it went through a layer, into the rows of the walk. */
static void train_block_save(const struct kvi_train_predictor *predictor, struct kvi_train_walk *w,
                             const struct train_block *block)
{
	struct kvi_hidden h = kvi_run_hidden(w->run);
	train_copy_rows(w->h + block->at * predictor->width, predictor->width, h.h, h.width,
	                block->n, predictor->width);
}

static void set_state(const struct kvi_train_predictor *predictor, struct kvi_train_walk *w,
                      const struct train_block *block)
{
	struct kvi_hidden h = kvi_run_hidden(w->run);
	train_copy_rows(h.h, h.width, w->h + block->at * predictor->width, predictor->width,
	                block->n, predictor->width);
}

/* Sets the hidden state of the run from the rows of the walk, at the input of `layer`. */
static void train_block_place(const struct kvi_train_stack *stack,
                              const struct kvi_train_predictor *predictor, struct kvi_train_walk *w,
                              const struct train_block *block, uint32_t layer)
{
	kvi_run_place(w->run, layer, block->t0, stack->caches[block->cache]->positions + block->t0,
	              block->n);
	set_state(predictor, w, block);
}

/* n numbers as the caches have those of a shape. */
static void train_block_round(const struct kvi_train_stack *stack, const struct train_block *block,
                              size_t shape, float *x, size_t n)
{
	unsigned dtype = kvi_train_tensor_of(stack->caches[block->cache], shape)->dtype;
	if (dtype != KVARC_F32)
		kvi_round_floats(x, n, &kvi_float_format(dtype)->grid);
}

/* Keys and values of the caches as they are stored, in slots. */
static void train_block_true(const struct kvi_train_stack *stack, const struct train_block *block,
                             const struct kvi_train_tensor *tensor, size_t shape, float *to)
{
	const kvarc_tensor *g = kvi_train_tensor_of(stack->caches[block->cache], shape);
	const kvarc_rope *rope = kvi_tensor_rope(&stack->caches[block->cache]->geometry, g);
	size_t head = g->channels * kvarc_dtype_bytes(g->dtype);
	const uint8_t *raw = tensor->raw + tensor->raw_at[block->cache] +
	                     block->t0 * kvi_tensor_bytes(g);
	float channels[KVI_GROUP_MAX]; /* no head of an engine has more */
	for (size_t i = 0; i < block->n * g->heads; i++, raw += head) {
		kvi_floats_exact(g->dtype, raw, g->channels, channels);
		for (size_t c = 0; c < g->channels; c++)
			*to++ = channels[kvi_rope_channel(rope, c)];
	}
}

/* ---- whether all is as predicted ---- */

struct walk_comparison {
	const struct kvi_train_layer *layer;
	size_t first; /* index of the first of its shapes */
	bool differs;
};

static kvarc_ret compare_block(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                               struct kvi_train_walk *w, const struct train_block *block, void *arg)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	struct walk_comparison *c = arg;
	size_t n = block->n * p->kv;
	if (c->differs)
		return KVARC_OK;
	float *x = kvi_array(&trainer->alloc, n, 2 * sizeof *x);
	if (!x)
		return kvi_train_no_memory(trainer);
	float *is = x + n;
	kvi_run_place(w->run, c->layer->tensors[0].shape->layer, block->t0,
	              stack->caches[block->cache]->positions + block->t0, block->n);
	for (unsigned i = 0; i < 2 && !c->differs; i++) {
		const struct kvi_train_tensor *y = &c->layer->tensors[i];
		const float *rows = kvi_train_walk_rows(w, y->shape->kind);
		memcpy(x, rows + block->at * p->kv, n * sizeof *x);
		if (y->shape->kind == KVARC_KEY)
			kvi_run_rotate(w->run, x, p->kv);
		train_block_round(stack, block, c->first + i, x, n);
		train_block_true(stack, block, y, c->first + i, is);
		c->differs = memcmp(x, is, n * sizeof *x) != 0;
	}
	kvi_free(&trainer->alloc, x);
	return KVARC_OK;
}

kvarc_ret kvi_train_compare_layer(kvarc_trainer *trainer, const struct kvi_train_task *task,
                                  bool *same)
{
	struct walk_comparison c = { task->layer, task->first, false };
	kvarc_ret ret = train_each_block(trainer, task->stack, &trainer->predictor->real,
	                                 compare_block, &c);
	*same = !ret && !c.differs;
	return ret;
}

/* ==== The sequences of a stack through a predictor that does not see the token ==== */

static kvarc_ret blind_cache(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                             struct kvi_token_blind *blind, const struct kvi_train_cache *cache)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	kvarc_ret ret = KVARC_OK;
	kvi_token_blind_restart(blind);
	for (size_t t0 = 0; t0 < cache->n && !ret; t0 += KVI_TRAIN_BLOCK) {
		size_t n = cache->n - t0 < KVI_TRAIN_BLOCK ? cache->n - t0 : KVI_TRAIN_BLOCK;
		if (kvi_token_blind_segment(blind, cache->ids + t0, cache->positions + t0, n))
			return kvi_train_no_memory(trainer);
		for (uint32_t l = 0; l < p->file->n_layers; l++) {
			const struct kvi_predicted x = kvi_token_blind_predict(blind, l);
			size_t at = (l * stack->n_tokens + cache->first + t0) * p->kv;
			memcpy(p->blind_k + at, x.k, n * p->kv * sizeof *x.k);
			memcpy(p->blind_v + at, x.v, n * p->kv * sizeof *x.v);
		}
		ret = kvi_train_progress(trainer, n * p->layer_work * p->file->n_layers);
	}
	return ret;
}

/* blind.c: predicts all layers at once without the current token: no layer needs the models of
 * the one below. Returns OK, MEM, MEMLIMIT, IO. */
static kvarc_ret train_token_blind_start(kvarc_trainer *trainer,
                                         const struct kvi_train_stack *stack)
{
	struct kvi_train_predictor *p = trainer->predictor;
	const struct kvi_run_options o = {
		.engine = p->engine,
		.alloc = &trainer->alloc,
		.pool = trainer->pool,
		.isa_mask = trainer->options.common.isa_mask,
	};
	size_t floats;
	struct kvi_token_blind *b = NULL;
	if (kvi_mul(stack->n_tokens * p->kv, p->file->n_layers, &floats))
		return kvi_train_no_memory(trainer);
	p->blind_k = kvi_array(&trainer->alloc, floats, 2 * sizeof *p->blind_k);
	if (!p->blind_k)
		return kvi_train_no_memory(trainer);
	p->blind_v = p->blind_k + floats;
	kvarc_ret ret = kvi_token_blind_open(&b, &o, trainer->options.model.blind);
	ret = kvi_fail_memory(trainer->error, ret, &trainer->alloc);
	for (size_t i = 0; i < stack->n_caches && !ret; i++)
		ret = blind_cache(trainer, stack, b, stack->caches[i]);
	kvi_token_blind_close(&b);
	return ret;
}

/* Copies the predictions of a layer into the walk `real`. */
static void train_token_blind_take(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                                   uint32_t layer)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	size_t n = stack->n_tokens * p->kv;
	memcpy(p->real.k, p->blind_k + layer * n, n * sizeof *p->real.k);
	memcpy(p->real.v, p->blind_v + layer * n, n * sizeof *p->real.v);
}

/* ==== Token ids that a model writes itself, some sequences side by side ==== */

enum {
	LANES = 8, /* sequences at once: each stores all layers of its keys and values */
	COST = 4   /* cost of a token, in tokens that go in blocks */
};

struct lane {
	struct kvi_train_cache *cache;
	uint64_t random;
};

struct write_writing {
	kvarc_trainer *t;
	struct kvi_run *run;
	struct kvi_head *head;
	struct lane lanes[LANES];
	size_t n, longest;
};

/* Writes one more token of each sequence. Tokens behind the end of a shorter one are dropped. */
static kvarc_ret write_step(struct write_writing *w, size_t at)
{
	const struct kvi_train_predictor *p = w->t->predictor;
	int32_t ids[LANES], positions[LANES];
	for (size_t i = 0; i < w->n; i++) {
		const struct kvi_train_cache *c = w->lanes[i].cache;
		ids[i] = c->ids[at < c->n ? at : 0];
		positions[i] = (int32_t)at;
	}
	kvarc_ret ret = kvi_run_through(w->run, ids, positions, w->n, NULL);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_train_no_memory(w->t);
	if (ret)
		return kvi_fail(w->t->error, ret,
		                "the model cannot generate: its embeddings are damaged");
	const struct kvi_hidden h = kvi_run_hidden(w->run);
	const struct kvi_logits z = kvi_head_logits(w->head, h.h, h.width, w->n);
	for (size_t i = 0; i < w->n; i++) {
		struct lane *lane = &w->lanes[i];
		size_t id = kvi_head_pick(z.z + i * z.stride, p->file->vocabulary,
		                          kvi_splitmix64(&lane->random));
		if (at + 1 < lane->cache->n)
			lane->cache->ids[at + 1] = (int32_t)id;
	}
	return kvi_train_progress(w->t, COST * w->n * p->file->n_layers * p->layer_work);
}

static kvarc_ret write_all(struct write_writing *w)
{
	kvarc_trainer *t = w->t;
	const struct kvi_train_predictor *p = t->predictor;
	const struct kvi_run_options o = {
		.engine = p->exact,
		.alloc = &t->alloc,
		.pool = t->pool,
		.isa_mask = t->options.common.isa_mask,
		.lanes = w->n,
		.whole = true,
	};
	kvarc_ret ret = kvi_run_open(&w->run, &o);
	if (!ret)
		ret = kvi_head_open(&w->head, &o);
	ret = kvi_fail_memory(t->error, ret, &t->alloc);
	for (size_t at = 0; at + 1 < w->longest && !ret; at++)
		ret = write_step(w, at);
	return ret;
}

static void close_writing(struct write_writing *w)
{
	kvi_head_close(&w->head);
	kvi_run_close(&w->run);
	w->n = w->longest = 0;
}

static void add_lane(struct write_writing *w, struct kvi_train_cache *cache)
{
	uint8_t seed[8];
	kvi_store64(seed, cache->seed);
	w->lanes[w->n++] = (struct lane){ cache, kvi_h64(seed, sizeof seed) };
	w->longest = cache->n > w->longest ? cache->n : w->longest;
}

static bool is_written(const struct kvi_train_stack *stack, size_t i)
{
	return stack->caches[i]->origin == KVI_TRAIN_WRITTEN;
}

/* Work of writing a stack, in tokens that go through a layer in blocks. */
static uint64_t train_write_work(const struct kvi_train_stack *stack)
{
	uint64_t tokens = 0;
	for (size_t i = 0; i < stack->n_caches; i++)
		if (is_written(stack, i))
			tokens += stack->caches[i]->n;
	return COST * tokens;
}

/* write.c: the ids of caches that the model writes itself, on p->exact. Returns OK, MEM, MEMLIMIT,
 * OPTIONS (a model without a head), DATA. */
static kvarc_ret train_write(kvarc_trainer *trainer, const struct kvi_train_stack *stack)
{
	struct write_writing w = { .t = trainer };
	kvarc_ret ret = KVARC_OK;
	if (train_write_work(stack) && !(trainer->options.model.blind &&
	                                 trainer->predictor->exact == trainer->predictor->engine))
		ret = kvi_engine_add_head(trainer->predictor->exact, trainer->pool, trainer->error);
	for (size_t i = 0; i < stack->n_caches && !ret; i++) {
		if (is_written(stack, i))
			add_lane(&w, stack->caches[i]);
		if (w.n && (w.n == LANES || i + 1 == stack->n_caches)) {
			ret = write_all(&w);
			close_writing(&w);
		}
	}
	return ret;
}

/* ==== What a profile says of the predictor that it was fitted to ==== */

/* identify.c: arithmetic and loop of a level of the profile. */
static struct kvi_engine_level train_level_of(const kvarc_trainer *trainer, unsigned level)
{
	const struct kvi_engine_level own = kvi_engine_level(level);
	return trainer->options.model.blind
	               ? kvi_engine_choice(&own, KVARC_ARITHMETIC_LEVEL, KVARC_LOOP_OPEN)
	               : own;
}

/* Adds what identifies the model to the identity of the profile. Returns OK, MEM, MEMLIMIT,
 * PROG. */
static kvarc_ret train_identify(kvarc_trainer *trainer)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	uint8_t b[16];
	char text[2 * sizeof b + 1];
	kvi_store_h128(b, kvi_token_blind_digest(p->engine, trainer->options.model.blind));
	for (size_t i = 0; i < sizeof b; i++)
		snprintf(text + 2 * i, 3, "%02x", b[i]);
	kvarc_ret ret = kvarc_trainer_identity(trainer, "weights", text);
	const struct kvi_engine_level own = train_level_of(trainer, p->level);
	const struct kvi_engine_level l = { p->arithmetic, p->closed };
	char key[KVI_ARITHMETIC_KEY_BYTES];
	kvi_arithmetic_key(key, p->level);
	if (!ret && !kvi_engine_level_equal(&own, &l))
		ret = kvarc_trainer_identity(trainer, key, kvi_engine_text(&l));
	if (!ret && p->file->name[0] && !kvi_identity_get(&trainer->identity, "model"))
		ret = kvarc_trainer_identity(trainer, "model", p->file->name);
	return ret;
}

/* ==== The sequences of a stack go through a model in exact arithmetic ==== */

enum {
	TAUGHT = 16384, /* tokens for the teacher: D has some hundred columns */
	WORK = 16       /* work of a walk, in units of reading its layer's bytes */
};

kvarc_ret kvi_train_predictor_open(kvarc_trainer *trainer, const char *path, unsigned level)
{
	struct kvi_train_predictor *p = kvi_calloc(&trainer->alloc, 1, sizeof *p);
	if (!p)
		return kvi_train_no_memory(trainer);
	p->level = level;
	const struct kvi_engine_level own = train_level_of(trainer, level);
	const struct kvi_engine_level l = kvi_engine_choice(&own, trainer->options.model.arithmetic,
	                                                    trainer->options.model.loop);
	p->arithmetic = l.arithmetic;
	p->closed = l.closed;
	kvarc_ret ret = kvi_model_file_open(&p->file, &trainer->alloc, path, trainer->error);
	if (ret) {
		kvi_free(&trainer->alloc, p);
		return ret;
	}
	trainer->predictor = p;
	p->corrects = p->closed && p->file->n_layers > 1 &&
	              !(trainer->options.flags & (KVARC_TRAIN_IN_FILE | KVARC_TRAIN_NO_STAGES));
	p->width = p->file->width;
	p->kv = (size_t)p->file->kv_heads * p->file->head_channels;
	p->layer_work = WORK * 2 * p->kv;
	return KVARC_OK;
}

static void stop(kvarc_trainer *trainer)
{
	struct kvi_train_predictor *p = trainer->predictor;
	train_walk_close(trainer, &p->real);
	train_walk_close(trainer, &p->student);
	train_walk_close(trainer, &p->teacher);
	kvi_free(&trainer->alloc, p->blind_k);
	p->blind_k = p->blind_v = NULL;
	if (p->exact != p->engine)
		kvi_engine_close(&p->exact);
	kvi_engine_close(&p->engine);
	p->exact = NULL;
}

void kvi_train_predictor_close(kvarc_trainer *trainer)
{
	if (!trainer->predictor)
		return;
	stop(trainer);
	kvi_model_file_close(&trainer->predictor->file);
	kvi_free(&trainer->alloc, trainer->predictor);
	trainer->predictor = NULL;
}

/* ---- whether the caches are this model's ---- */

static kvarc_ret refuse(kvarc_trainer *trainer, const char *what)
{
	return kvi_fail(trainer->error, KVARC_GEOMETRY, "the caches are not of the given model: %s",
	                what);
}

/* The caches' frequencies are those that count (spec/arithmetic.md 5); they come from a search
 * maybe, with a little error. */
static bool take_rope(const kvarc_trainer *trainer, struct kvi_train_predictor *predictor,
                      const struct kvi_train_shape *shape)
{
	struct kvi_model_layer *l = &predictor->file->layers[shape->layer];
	struct kvi_model_rope *own = l->rope < predictor->file->n_ropes
	                                     ? &predictor->file->ropes[l->rope]
	                                     : NULL;
	uint32_t rotary = own ? own->rotary : 0;
	if (!shape->rope)
		return rotary == 0;
	const struct kvi_profile_rope *r = &trainer->ropes[shape->rope - 1];
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

static kvarc_ret check_stack(kvarc_trainer *trainer, const struct kvi_train_stack *stack)
{
	struct kvi_train_predictor *p = trainer->predictor;
	if (trainer->n_stacks > 1 || stack->n_shapes != 2 * (size_t)p->file->n_layers)
		return refuse(trainer, "it has another number of layers, or the cache "
		                       "keeps those with a window apart");
	for (size_t i = 0; i < stack->n_shapes; i++) {
		const struct kvi_train_shape *x = &stack->shapes[i];
		if (x->layer != i / 2 || x->kind != (i & 1 ? KVARC_VALUE : KVARC_KEY))
			return refuse(trainer, "layers are missing");
		if (x->heads != p->file->kv_heads || x->channels != p->file->head_channels)
			return refuse(trainer, "heads or their channels differ");
		if (x->kind == KVARC_KEY && !take_rope(trainer, p, x))
			return refuse(trainer, "its rotary embedding differs");
		if (x->kind == KVARC_VALUE && x->rope)
			return refuse(trainer, "its values are not rotated");
	}
	return KVARC_OK;
}

static kvarc_ret embed_block(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                             struct kvi_train_walk *w, const struct train_block *block, void *arg)
{
	const struct kvi_train_cache *c = stack->caches[block->cache];
	(void)arg;
	kvi_run_place(w->run, 0, 0, c->positions, 0);
	kvarc_ret ret = kvi_run_segment(w->run, c->ids + block->t0, c->positions + block->t0,
	                                block->n);
	if (ret == KVARC_DATA)
		return refuse(trainer, "it lacks one of their token ids or positions");
	if (ret)
		return kvi_train_no_memory(trainer);
	train_block_save(trainer->predictor, w, block);
	return KVARC_OK;
}

struct place {
	uint32_t layer;
	bool store;                          /* predictions become what an engine stores */
	const struct kvi_train_layer *truth; /* layer of the caches; NULL: `from` has them */
	const struct kvi_train_walk *from;   /* walk with keys and values, where truth is NULL */
};

static kvarc_ret predict_block(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                               struct kvi_train_walk *w, const struct train_block *block, void *arg)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	const struct place *l = arg;
	float *k = w->k + block->at * p->kv, *v = w->v + block->at * p->kv;
	train_block_place(stack, p, w, block, l->layer);
	struct kvi_predicted x = kvi_run_predict(w->run);
	train_copy_rows(k, p->kv, x.k, x.stride, block->n, p->kv);
	train_copy_rows(v, p->kv, x.v, x.stride, block->n, p->kv);
	memcpy(w->root + block->at, kvi_run_hidden(w->run).root, block->n * sizeof *w->root);
	if (l->store) {
		kvi_run_rotate(w->run, k, p->kv);
		train_block_round(stack, block, 2 * (size_t)l->layer, k, block->n * p->kv);
		train_block_round(stack, block, 2 * (size_t)l->layer + 1, v, block->n * p->kv);
	}
	return kvi_train_progress(trainer, block->n * p->layer_work / 4);
}

static kvarc_ret advance_block(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                               struct kvi_train_walk *w, const struct train_block *block, void *arg)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	const struct place *l = arg;
	size_t n = block->n * p->kv;
	float *k = kvi_array(&trainer->alloc, n, 2 * sizeof *k);
	if (!k)
		return kvi_train_no_memory(trainer);
	float *v = k + n;
	train_block_place(stack, p, w, block, l->layer);
	if (l->truth) {
		train_block_true(stack, block, &l->truth->tensors[0], 2 * (size_t)l->layer, k);
		train_block_true(stack, block, &l->truth->tensors[1], 2 * (size_t)l->layer + 1, v);
	} else {
		memcpy(k, l->from->k + block->at * p->kv, n * sizeof *k);
		memcpy(v, l->from->v + block->at * p->kv, n * sizeof *v);
		if (!l->store) /* predicted: not rotated yet */
			kvi_run_rotate(w->run, k, p->kv);
	}
	/* "corrected": its norm has not been made since it was placed */
	kvarc_ret ret = kvi_run_advance(w->run, k, v, p->kv, true);
	kvi_free(&trainer->alloc, k);
	if (ret)
		return kvi_train_no_memory(trainer);
	train_block_save(p, w, block);
	if (block->t0 + block->n == stack->caches[block->cache]->n)
		kvi_run_forget(w->run, l->layer);
	return kvi_train_progress(trainer, block->n * p->layer_work - block->n * p->layer_work / 4);
}

/* ---- all of it ---- */

/* Number of the caches that the teacher gets: the first ones, until there are tokens enough, and
 * until all caches that it makes are among them. */
static size_t caches_to_teach(const struct kvi_train_predictor *predictor,
                              const struct kvi_train_stack *stack)
{
	size_t n = 0, tokens = 0;
	while (predictor->corrects && n < stack->n_caches && tokens < TAUGHT)
		tokens += stack->caches[n++]->held;
	for (size_t i = n; i < stack->n_caches; i++)
		if (stack->caches[i]->origin)
			n = i + 1;
	return n;
}

static size_t tokens_to_teach(const struct kvi_train_predictor *predictor,
                              const struct kvi_train_stack *stack)
{
	size_t n = caches_to_teach(predictor, stack);
	return n ? stack->caches[n - 1]->first + stack->caches[n - 1]->n : 0;
}

uint64_t kvi_train_predictor_work(const kvarc_trainer *trainer, const struct kvi_train_stack *stack)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	uint64_t tokens = stack->n_tokens + train_write_work(stack);
	tokens += (1 + p->corrects) * (uint64_t)tokens_to_teach(p, stack);
	return tokens * p->file->n_layers * p->layer_work;
}

/* The engine that made the caches computed in their dtype; one of 8 bits is what it stores. */
static unsigned teachers_dtype(const struct kvi_train_stack *stack)
{
	unsigned dtype = kvi_train_tensor_of(stack->caches[0], 0)->dtype;
	return dtype == KVARC_F32 ? 0 : dtype == KVARC_F16 ? KVARC_F16 : KVARC_BF16;
}

/* Engines that run quantised weights make 8-bit integers of the activations, too, and compute in
 * fp32 between. */
static bool is_quantised(const struct kvi_train_predictor *predictor)
{
	return kvi_number_groups(predictor->file->layers[0].q.type).group != 0;
}

static kvarc_ret open_engine(kvarc_trainer *trainer, const struct kvi_arithmetic *arithmetic,
                             struct kvi_engine **engine)
{
	const struct kvi_engine_options o = { .alloc = &trainer->alloc,
		                              .file = trainer->predictor->file,
		                              .arithmetic = *arithmetic,
		                              .pool = trainer->pool,
		                              .error = trainer->error,
		                              .cache = trainer->options.common.weight_cache };
	return kvi_cached_engine(engine, &o);
}

static kvarc_ret open_exact(kvarc_trainer *trainer)
{
	struct kvi_train_predictor *p = trainer->predictor;
	const struct kvi_arithmetic exact = kvi_engine_level(is_quantised(p) ? 4 : 7).arithmetic;
	if (kvi_arithmetic_equal(&p->arithmetic, &exact)) {
		p->exact = p->engine;
		return KVARC_OK;
	}
	return open_engine(trainer, &exact, &p->exact);
}

static kvarc_ret open_teacher(kvarc_trainer *trainer, const struct kvi_train_stack *stack, size_t n)
{
	struct kvi_train_predictor *p = trainer->predictor;
	kvarc_ret ret = KVARC_OK;
	if (p->corrects)
		ret = train_walk_open(trainer, stack, p->engine, 0, n, &p->student);
	if (!ret)
		ret = train_walk_open(trainer, stack, p->exact,
		                      is_quantised(p) ? 0 : teachers_dtype(stack), n, &p->teacher);
	if (!ret)
		ret = train_each_block(trainer, stack, &p->student, embed_block, NULL);
	if (!ret)
		ret = train_each_block(trainer, stack, &p->teacher, embed_block, NULL);
	return ret;
}

kvarc_ret kvi_train_predictor_start(kvarc_trainer *trainer, const struct kvi_train_stack *stack)
{
	struct kvi_train_predictor *p = trainer->predictor;
	const uint32_t isa = trainer->options.common.isa_mask;
	kvarc_ret ret = check_stack(trainer, stack);
	if (!ret)
		ret = kvi_exact_test(&trainer->alloc, kvi_exact_kernels_get(isa),
		                     kvi_elementwise_get(isa), trainer->error);
	if (!ret)
		ret = open_engine(trainer, &p->arithmetic, &p->engine);
	if (!ret && trainer->options.model.blind)
		ret = kvi_engine_add_head(p->engine, trainer->pool, trainer->error);
	if (!ret)
		ret = train_identify(trainer);
	size_t taught = caches_to_teach(p, stack);
	if (!ret && taught)
		ret = open_exact(trainer);
	if (!ret)
		ret = train_write(trainer, stack);
	if (!ret)
		ret = train_walk_open(trainer, stack, p->engine, 0, stack->n_caches, &p->real);
	if (!ret)
		ret = train_each_block(trainer, stack, &p->real, embed_block, NULL);
	if (!ret && trainer->options.model.blind)
		ret = train_token_blind_start(trainer, stack);
	if (!ret && taught)
		ret = open_teacher(trainer, stack, taught);
	return ret;
}

kvarc_ret kvi_train_predict_layer(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                                  uint32_t layer)
{
	struct kvi_train_predictor *p = trainer->predictor;
	struct place l = { .layer = layer };
	kvarc_ret ret = KVARC_OK;
	if (p->blind_k)
		train_token_blind_take(trainer, stack, layer);
	else
		ret = train_each_block(trainer, stack, &p->real, predict_block, &l);
	if (!ret)
		ret = train_each_block(trainer, stack, &p->student, predict_block, &l);
	l.store = true;
	if (!ret)
		ret = train_each_block(trainer, stack, &p->teacher, predict_block, &l);
	return ret;
}

/* ---- the student's residual of the teacher's keys and values ---- */

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
static kvarc_ret make_taught(kvarc_trainer *trainer, const struct kvi_train_task *task,
                             struct kvi_train_layer *taught)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	kvarc_ret ret = KVARC_OK;
	*taught = *task->layer;
	for (size_t i = 0; i < taught->n; i++) {
		taught->tensors[i].z = NULL;
		taught->tensors[i].expected = NULL;
	}
	for (size_t i = 0; i < taught->n && !ret; i++) {
		struct kvi_train_tensor *x = &taught->tensors[i];
		struct taught_job j = { trainer, task->stack, x, task->first + i, false };
		x->predicted = kvi_train_walk_rows(&p->student, x->shape->kind);
		x->z = kvi_calloc(&trainer->alloc, x->rows, x->capacity * sizeof *x->z);
		if (!x->z)
			return kvi_train_no_memory(trainer);
		ret = kvi_train_expect(trainer, task->stack, x);
		if (!ret)
			kvi_train_parallel(trainer, p->teacher.n_caches, fill_taught, &j);
		if (!ret && atomic_load(&j.failed))
			ret = kvi_train_no_memory(trainer);
	}
	return ret;
}

/* D from the teacher's tokens, with weights of their own. */
static kvarc_ret teach(kvarc_trainer *trainer, struct kvi_train_task *task,
                       const struct kvi_train_layer *taught)
{
	const struct kvi_train_stack *s = task->stack;
	struct kvi_train_weights w = *task->weights;
	size_t n = trainer->predictor->teacher.n_caches;
	size_t end = s->caches[n - 1]->first + s->caches[n - 1]->n;
	w.bad = kvi_calloc(&trainer->alloc, s->n_tokens, 1);
	w.w = kvi_calloc(&trainer->alloc, s->n_tokens, sizeof *w.w);
	kvarc_ret ret = KVARC_OK;
	if (w.bad && w.w) {
		kvi_train_weigh_tokens(trainer->kernels, taught, s, false, &w);
		memset(w.w + end, 0, (s->n_tokens - end) * sizeof *w.w);
		ret = kvi_train_correct_fit(trainer, task, taught, w.w);
	} else {
		ret = kvi_train_no_memory(trainer);
	}
	kvi_free(&trainer->alloc, w.bad);
	kvi_free(&trainer->alloc, w.w);
	return ret;
}

static kvarc_ret correct(kvarc_trainer *trainer, struct kvi_train_task *task)
{
	struct kvi_train_predictor *p = trainer->predictor;
	struct kvi_train_layer taught;
	kvarc_ret ret = make_taught(trainer, task, &taught);
	if (!ret)
		ret = teach(trainer, task, &taught);
	if (!ret) {
		kvi_train_correct(trainer, task, task->layer, &p->real);
		kvi_train_correct(trainer, task, &taught, &p->student);
	}
	for (size_t i = 0; i < taught.n; i++) {
		kvi_free(&trainer->alloc, taught.tensors[i].z);
		kvi_free(&trainer->alloc, taught.tensors[i].expected);
	}
	return ret;
}

kvarc_ret kvi_train_advance_layer(kvarc_trainer *trainer, struct kvi_train_task *task)
{
	struct kvi_train_predictor *p = trainer->predictor;
	uint32_t layer = task->layer->tensors[0].shape->layer;
	struct place l = { .layer = layer, .from = &p->real };
	kvarc_ret ret = KVARC_OK;
	if (layer + 1 == p->file->n_layers)
		return KVARC_OK;
	if (p->closed)
		l.truth = task->layer;
	if (p->corrects)
		ret = correct(trainer, task);
	if (!ret && !p->blind_k)
		ret = train_each_block(trainer, task->stack, &p->real, advance_block, &l);
	l = (struct place){ .layer = layer, .store = true, .from = &p->teacher };
	if (!ret)
		ret = train_each_block(trainer, task->stack, &p->student, advance_block, &l);
	if (!ret)
		ret = train_each_block(trainer, task->stack, &p->teacher, advance_block, &l);
	return ret;
}
