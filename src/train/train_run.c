/* SPDX-License-Identifier: BSD-3-Clause */
/* train_run.c - layer after layer: fit, measure, and the profile in the end */
#include "train_run.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "basis.h"
#include "train_predict.h"
#include "train_rows.h"
#include "train_sample.h"
#include "train_table.h"
#include "trainer.h"
#include "profile/profile_handle.h"
#include "profile/profile_io.h"
#include "util/error.h"
#include "util/parallel.h"

/* ==== Profiles that are fitted to the file that they go into ==== */

/* in_file.c: bytes of all tokens at a level, of the tensors in the report so far. */
static double train_cost(const kvarc_trainer *trainer, unsigned level)
{
	double bits = 0;
	size_t at = 0;
	for (size_t i = 0; i < trainer->n_stacks; i++)
		for (size_t k = 0; k < trainer->stacks[i].n_shapes && at < trainer->n_report;
		     k++, at++) {
			const struct kvi_train_stack *s = &trainer->stacks[i];
			bits += trainer->report[at].bits[level] * s->all_tokens *
			        s->shapes[k].heads * s->shapes[k].channels;
		}
	return bits / 8;
}

/* Level 3 has three times the coefficients of level 2: with few tokens they cannot pay. */
static bool train_enough(const kvarc_trainer *trainer)
{
	for (size_t i = 0; i < trainer->n_stacks; i++) {
		const struct kvi_train_stack *s = &trainer->stacks[i];
		size_t n = kvi_train_layer_shapes(s, 0), rows = 0;
		for (size_t k = 0; k < n; k++)
			rows += kvi_train_rows(&s->shapes[k]);
		if (s->all_tokens > (double)(KVI_TRAIN_ENOUGH * (1 + KVI_TRAIN_BELOW) * rows))
			return true;
	}
	return false;
}

/* Bytes of the models so far once packed, about: rows by the rate that they were rounded by, which
 * was measured to be 15 % too low, and four bytes a slot. */
static double packed_bytes(kvarc_trainer *trainer)
{
	const struct kvi_profile *p = trainer->profile->profile;
	for (; trainer->n_packed < p->n_models; trainer->n_packed++) {
		const struct kvi_model *m = &p->models[trainer->n_packed];
		for (size_t x = 0; m->a && x < m->C * m->a_stride; x++)
			trainer->packed_bits += kvi_train_rate(m->a[x]);
		for (size_t x = 0; m->b && x < m->C * m->b_stride; x++)
			trainer->packed_bits += kvi_train_rate(m->b[x]);
		trainer->packed_bits += 8 * 4 * (double)m->C;
	}
	return 1.15 * trainer->packed_bits / 8;
}

/* Whether a fit for a file will not pay, or by less than one in a hundred, as `done` of `all`
 * shapes of a stack show: an eighth of them do, as the lowest layers gain the most. Then
 * trainer->unprofitable is set, and trainer->plain is estimated. */
static bool train_unprofitable(kvarc_trainer *trainer, size_t done, size_t all)
{
	enum { LAYERS = 2, SHARE = 8 };
	bool waits = trainer->profile->profile->n_models < LAYERS * KVI_TRAIN_TENSORS;
	if (!(trainer->options.flags & KVARC_TRAIN_IN_FILE) || trainer->predictor || waits ||
	    done * SHARE < all || done == all)
		return false;
	double plain = train_cost(trainer, 1);
	double cost = train_cost(trainer, trainer->options.levels >> 3 & 1 ? 3 : 2);
	trainer->unprofitable = cost + packed_bytes(trainer) > 0.99 * plain;
	trainer->plain = plain * (double)all / (double)done;
	return trainer->unprofitable;
}

/* A profile for an import, and bytes: of its chunks at level 1, and with it, all counted. */
struct fitted {
	kvarc_profile *profile; /* NULL: none that would pay */
	double plain, cost;
	bool predicted; /* all elements of the sample are as predicted, bit for bit */
};

/* Fits models of one level, or of level 2 when it has to be. */
static kvarc_ret fit_import(struct fitted *fitted, kvarc_import *im, int level, const char *model,
                            unsigned blind, const kvarc_common *common)
{
	kvarc_trainer_options o = { .flags = KVARC_TRAIN_IN_FILE };
	if (model) {
		o.mode = KVARC_TRAIN_MODEL;
		o.model.path = model;
		o.model.level = (int)kvi_models_level((unsigned)level);
		o.model.blind = blind;
	} else {
		o.levels = 1u << level;
	}
	kvarc_trainer *t;
	*fitted = (struct fitted){ .plain = 0 };
	if (common)
		o.common = *common;
	kvarc_ret ret = kvarc_trainer_open(&t, &o);
	if (!ret)
		ret = kvarc_trainer_add_import(t, im);
	if (!ret)
		ret = kvarc_trainer_run(t);
	if (!ret) {
		fitted->predicted = t->n_predicted && t->n_predicted * 2 == t->n_report;
		fitted->plain = t->plain;
		fitted->cost = t->cost;
		ret = kvarc_trainer_profile(t, &fitted->profile);
	}
	kvarc_trainer_close(&t);
	/* without anything to fit there is nothing to gain */
	return ret == KVARC_END || (ret == KVARC_GEOMETRY && !model) ? KVARC_OK : ret;
}

/* The smaller one stays in a. */
static void choose(struct fitted *fitted, struct fitted *b)
{
	if (b->profile && (!fitted->profile || b->cost < fitted->cost)) {
		struct fitted other = *fitted;
		*fitted = *b;
		*b = other;
	}
	kvarc_profile_close(&b->profile);
}

kvarc_ret kvarc_train_import(kvarc_profile **p, kvarc_import *im, int level, const char *model,
                             unsigned blind, const kvarc_common *common)
{
	struct fitted best, other = { .plain = 0 };
	bool predicts = level >= KVI_LEVEL_MODEL;
	if (!p || !im || level < KVI_LEVEL_PROFILE || level > KVARC_LEVEL_MAX ||
	    predicts != (model != NULL) || (blind && !predicts))
		return KVARC_PROG;
	*p = NULL;
	kvarc_ret ret = fit_import(&best, im, level, model, blind, common);
	if (!ret && best.predicted) { /* no other profile comes near it */
		*p = best.profile;
		return KVARC_OK;
	}
	if (!ret && level > KVI_LEVEL_PROFILE)
		ret = fit_import(&other, im, 2, NULL, 0, common);
	if (!ret && predicts && best.cost >= other.plain)
		kvarc_profile_close(&best.profile);
	choose(&best, &other);
	if (ret)
		kvarc_profile_close(&best.profile);
	*p = best.profile;
	return ret;
}

/* ==== Layer after layer: fit, measure, and the profile in the end ==== */

enum {
	SCALE_TOKENS = 4096,  /* tokens to find scales with */
	SCALE_IN_FILE = 256,  /* tokens for scales when it must be quick */
	PLAIN_IN_FILE = 128,  /* tokens for level 1 when it must be quick */
	REPORT_TOKENS = 8192, /* tokens to measure with */
	WORTH = 32768         /* tokens whose bits weigh as much as the profile's */
};

/* ---- the profile ---- */

static kvarc_ret copy_ropes(kvarc_trainer *trainer, struct kvi_profile *profile)
{
	if (!trainer->n_ropes)
		return KVARC_OK;
	profile->ropes = kvi_calloc(profile->alloc, trainer->n_ropes, sizeof *profile->ropes);
	if (!profile->ropes)
		return KVARC_MEM;
	profile->n_ropes = trainer->n_ropes;
	for (size_t i = 0; i < trainer->n_ropes; i++) {
		size_t bytes = trainer->ropes[i].rotary / 2 * sizeof(uint64_t);
		profile->ropes[i].rotary = trainer->ropes[i].rotary;
		profile->ropes[i].freq = kvi_malloc(profile->alloc, bytes);
		if (!profile->ropes[i].freq)
			return KVARC_MEM;
		memcpy(profile->ropes[i].freq, trainer->ropes[i].freq, bytes);
	}
	return KVARC_OK;
}

static kvarc_ret open_profile(kvarc_trainer *trainer)
{
	size_t n = 0;
	kvarc_common common = trainer->options.common;
	common.error = NULL;
	for (size_t i = 0; i < trainer->n_stacks; i++)
		n += 2 * trainer->stacks[i].n_shapes;
	if (n > KVI_MODELS_MAX)
		return kvi_fail(trainer->error, KVARC_GEOMETRY, "too many tensors");
	if (kvi_profile_handle_new(&trainer->profile, &common))
		return kvi_train_no_memory(trainer);
	kvarc_profile *h = trainer->profile;
	if (kvi_profile_new(&h->profile, &h->alloc))
		return kvi_fail_alloc(trainer->error, &h->alloc);
	struct kvi_profile *p = h->profile;
	p->models = kvi_calloc(p->alloc, n, sizeof *p->models);
	if (!p->models || copy_ropes(trainer, p))
		return kvi_fail_alloc(trainer->error, &h->alloc);
	for (size_t i = 0; i < trainer->identity.n; i++)
		if (kvi_identity_set(&p->identity, p->alloc, trainer->identity.pairs[i].key,
		                     trainer->identity.pairs[i].value))
			return kvi_fail_alloc(trainer->error, &h->alloc);
	return KVARC_OK;
}

static kvarc_ret finish_profile(kvarc_trainer *trainer)
{
	kvarc_profile *h = trainer->profile;
	if (trainer->options.levels == 1u << KVI_LEVEL_BASIS && h->profile->n_models == 0)
		return kvi_fail(trainer->error, KVARC_GEOMETRY, "no transform can be fitted: %s",
		                trainer->no_transform[0] ? trainer->no_transform
		                                         : "transforms are for keys and values, "
		                                           "and there are none");
	kvarc_ret ret = kvi_profile_finish(h->profile);
	if (!ret)
		ret = kvi_profile_handle_finish(h);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(trainer->error, &h->alloc);
	return ret ? kvi_fail(trainer->error, KVARC_PROG, "the models do not make a profile")
	           : KVARC_OK;
}

/* ---- what a layer may use ---- */

static size_t sources_of(const struct kvi_train_task *task, bool lower)
{
	size_t n = 0;
	for (size_t i = 0; i < task->layer->n; i++)
		n += task->layer->tensors[i].rows;
	for (size_t b = 0; lower && b < task->n_below; b++)
		for (size_t i = 0; i < task->below[b]->n; i++)
			n += task->below[b]->tensors[i].rows;
	return n / (task->plan.head ? task->layer->tensors[0].shape->heads : 1);
}

/* Whether all tensors of a task have the same number of heads, so that sources can be by head. */
static bool same_heads(const struct kvi_train_task *task)
{
	uint32_t heads = task->layer->tensors[0].shape->heads;
	for (size_t i = 0; i < task->layer->n; i++)
		if (task->layer->tensors[i].shape->heads != heads)
			return false;
	for (size_t b = 0; b < task->n_below; b++)
		for (size_t i = 0; i < task->below[b]->n; i++)
			if (task->below[b]->tensors[i].shape->heads != heads)
				return false;
	return true;
}

/* Few tokens for many coefficients: a stronger ridge, then by head, then without lower layers,
 * then without sources. */
static void make_plan(kvarc_trainer *trainer, struct kvi_train_task *task)
{
	size_t tokens = task->weights->fitted, wide = 0;
	bool few = false, in_file = trainer->options.flags & KVARC_TRAIN_IN_FILE;
	task->plan = (struct kvi_train_plan){ 0 };
	if (trainer->options.flags & KVARC_TRAIN_NO_STAGES)
		return;
	for (size_t i = 0; i < task->layer->n; i++)
		if (task->layer->tensors[i].rows > wide)
			wide = task->layer->tensors[i].rows;
	task->plan = (struct kvi_train_plan){ .self = true };
	task->plan.head =
		same_heads(task) &&
		(trainer->options.flags & KVARC_TRAIN_HEAD_BLOCK ||
	         (wide > KVI_TRAIN_WIDE && !(trainer->options.flags & KVARC_TRAIN_WHOLE_LAYER)));
	if (in_file) { /* every coefficient has to pay: no rules are needed */
		task->plan.tokens = task->stack->all_tokens;
		task->plan.ridge_a = task->plan.ridge_b = 0.001;
		return;
	}
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(task, true) && !task->plan.head &&
	    same_heads(task) && !(trainer->options.flags & KVARC_TRAIN_WHOLE_LAYER))
		task->plan.head = few = true;
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(task, true) && task->n_below > 1) {
		task->n_below = 1;
		few = true;
	}
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(task, true) && task->n_below) {
		task->n_below = 0;
		few = true;
	}
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(task, false)) {
		/* a model that corrects sees the whole layer */
		task->plan.self = trainer->predictor || tokens > sources_of(task, false);
		few = true;
	}
	double part = tokens ? (double)sources_of(task, true) / (double)tokens : 1;
	task->plan.tokens = WORTH;
	task->plan.ridge_a = 0.001 + 0.01 * part;
	task->plan.ridge_b = 0.001 + 0.01 * part;
	if (few && !trainer->few)
		kvi_train_note(trainer,
		               "%zu tokens are few for this model: some stages "
		               "are left out (%u and more are better)",
		               tokens, 30000);
	trainer->few |= few;
}

/* ---- one layer ---- */

static void set_bits(const kvarc_trainer *trainer, kvarc_trained *out,
                     const struct kvi_train_view *view, unsigned level, uint64_t price)
{
	level = kvi_train_level(trainer, level);
	out->elements = (uint64_t)view->n * view->model->C;
	out->bits[level] = (double)price / 256 / (double)out->elements;
}

static kvarc_ret measure(kvarc_trainer *trainer, struct kvi_train_task *task,
                         const struct kvi_train_pieces *pieces, unsigned level, int16_t *const *k1,
                         kvarc_trained *out)
{
	struct kvi_train_view v[KVI_TRAIN_TENSORS];
	kvarc_ret ret = kvi_train_view_make(trainer, task, pieces, level, v);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		const struct kvi_model *m = v[i].model;
		bool follow = level > KVI_LEVEL_CELLS && m->flags & KVI_MODEL_SCALE;
		struct kvi_train_scale s = { .k = level > KVI_LEVEL_CELLS ? m->k : k1[i],
			                     .n0 = follow ? m->n0 : 0,
			                     .beta = follow ? m->beta : 0,
			                     .unknown = level > KVI_LEVEL_CELLS ? m->unknown : 0,
			                     .source = i && follow ? v[i - 1].scale : NULL };
		set_bits(trainer, &out[i], &v[i], level, kvi_train_price(trainer, &v[i], &s, NULL));
	}
	kvi_train_view_free(trainer, v);
	return ret;
}

/* Fits the scales, and measures the cost of the tokens that they are fitted to. */
static kvarc_ret fit_scales(kvarc_trainer *trainer, struct kvi_train_task *task, unsigned level,
                            int16_t *const *k1, kvarc_trained *out)
{
	struct kvi_train_pieces p;
	struct kvi_train_view v[KVI_TRAIN_TENSORS];
	size_t most = !(trainer->options.flags & KVARC_TRAIN_IN_FILE) ? SCALE_TOKENS
	              : level == KVI_LEVEL_CELLS                      ? PLAIN_IN_FILE
	                                                              : SCALE_IN_FILE;
	kvarc_ret ret = kvi_train_pieces_choose(trainer, task, false, most, &p);
	if (ret)
		return ret;
	ret = kvi_train_view_make(trainer, task, &p, level, v);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		uint64_t price;
		ret = kvi_train_fit_scales(trainer, &v[i], (struct kvi_model *)v[i].model,
		                           i ? &v[i - 1] : NULL,
		                           level == KVI_LEVEL_CELLS ? k1[i] : NULL, &price);
		if (!ret && v[i].n)
			set_bits(trainer, &out[i], &v[i], level, price);
	}
	kvi_train_view_free(trainer, v);
	kvi_free(&trainer->alloc, p.p);
	return ret;
}

/* Scales on fitted tokens, then what a file would have, on others. */
static kvarc_ret fit_and_measure(kvarc_trainer *trainer, struct kvi_train_task *task,
                                 kvarc_trained *out)
{
	struct kvi_train_pieces held = { 0 };
	int16_t *k1[KVI_TRAIN_TENSORS] = { 0 };
	kvarc_ret ret = kvi_train_pieces_choose(trainer, task, true, REPORT_TOKENS, &held);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		k1[i] = kvi_calloc(&trainer->alloc, task->layer->tensors[i].rows, sizeof *k1[i]);
		if (!k1[i])
			ret = kvi_train_no_memory(trainer);
		out[i].layer = task->layer->tensors[i].shape->layer;
		out[i].kind = task->layer->tensors[i].shape->kind;
		out[i].measured = held.n > 0;
	}
	for (unsigned level = KVI_LEVEL_CELLS; level <= KVI_LEVEL_LOWER && !ret; level++) {
		if (level > KVI_LEVEL_CELLS && !(trainer->options.levels >> level & 1))
			continue;
		ret = fit_scales(trainer, task, level, k1, out);
		if (!ret && held.n)
			ret = measure(trainer, task, &held, level, k1, out);
	}
	for (size_t i = 0; i < KVI_TRAIN_TENSORS; i++)
		kvi_free(&trainer->alloc, k1[i]);
	kvi_free(&trainer->alloc, held.p);
	return ret;
}

/* Level 3 of the lowest layer is fitted to the residual of its token tables. */
static kvarc_ret fit_tables(kvarc_trainer *trainer, struct kvi_train_task *task)
{
	struct kvi_train_residual left;
	struct kvi_train_task over = *task;
	kvarc_ret ret = kvi_train_tables(trainer, task, &left);
	over.layer = &left.layer;
	over.weights = &left.weights;
	if (!ret)
		ret = kvi_train_fit(trainer, &over, 1u << 3);
	kvi_train_residual_free(trainer, &left);
	return ret;
}

/* Upper layers see a tensor about the mean of its model of level 3. */
static void take_means(const kvarc_trainer *trainer, const struct kvi_train_task *task)
{
	for (size_t i = 0; i < task->layer->n; i++) {
		const struct kvi_model *m = task->models[1][i];
		for (size_t c = 0; c < m->C; c++)
			kvi_train_centre_row(trainer->kernels, &task->layer->tensors[i],
			                     kvi_train_row_of(m, c), m->mean[c],
			                     task->stack->n_tokens);
	}
}

static kvarc_ret fit_models(kvarc_trainer *trainer, struct kvi_train_task *task, bool lowest)
{
	unsigned levels = trainer->options.levels;
	struct kvi_train_ids ids = { 0 };
	kvarc_ret ret = KVARC_OK;
	if (lowest && levels >> 3 & 1 &&
	    !(trainer->options.flags & (KVARC_TRAIN_NO_TABLE | KVARC_TRAIN_IN_FILE)))
		ret = kvi_train_ids_collect(trainer, task, &ids);
	if (!ret)
		ret = kvi_train_add_models(trainer, task, &ids);
	if (ids.n)
		levels &= ~(1u << 3);
	if (!ret && levels && !(trainer->options.flags & KVARC_TRAIN_NO_STAGES))
		ret = kvi_train_fit(trainer, task, levels);
	if (!ret && ids.n)
		ret = fit_tables(trainer, task);
	kvi_free(&trainer->alloc, ids.id);
	if (!ret && trainer->options.levels >> 3 & 1)
		take_means(trainer, task);
	return ret;
}

/* Adds models of a layer that is as predicted: its chunks are nothing but checks, and the models
 * serve segments that were not looked at. */
static kvarc_ret add_predicted(kvarc_trainer *trainer, struct kvi_train_task *task,
                               kvarc_trained *out)
{
	const struct kvi_train_ids none = { 0 };
	task->plan = (struct kvi_train_plan){ 0 };
	kvarc_ret ret = kvi_train_add_models(trainer, task, &none);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		struct kvi_model *m = task->models[0][i];
		memset(m->mean, 0, m->C * sizeof *m->mean);
		kvi_model_expect_nothing(m);
		out[i].layer = m->layer;
		out[i].kind = m->kind;
		out[i].elements = (uint64_t)task->stack->n_tokens * m->C;
	}
	trainer->n_predicted += !ret;
	return ret;
}

static kvarc_ret fit_layer(kvarc_trainer *trainer, struct kvi_train_task *task, kvarc_trained *out)
{
	bool same = false;
	kvarc_ret ret = KVARC_OK;
	if (trainer->predictor && trainer->options.flags & KVARC_TRAIN_IN_FILE)
		ret = kvi_train_compare_layer(trainer, task, &same);
	if (ret || same)
		return ret ? ret : add_predicted(trainer, task, out);
	make_plan(trainer, task);
	ret = fit_models(trainer, task, task->first == 0);
	return ret ? ret : fit_and_measure(trainer, task, out);
}

static kvarc_ret run_layer(kvarc_trainer *trainer, struct kvi_train_task *task,
                           struct kvi_train_weights *w)
{
	size_t n = kvi_train_layer_shapes(task->stack, task->first);
	kvarc_ret ret = KVARC_OK;
	if (trainer->predictor)
		ret = kvi_train_predict_layer(trainer, task->stack,
		                              task->stack->shapes[task->first].layer);
	if (!ret)
		ret = kvi_train_layer_load(trainer, task->stack, task->first, n, w, task->layer);
	for (size_t i = 0; i < n && !ret; i++)
		if (!kvi_array_grow(&trainer->alloc, &trainer->report, &trainer->cap_report,
		                    trainer->n_report + i, sizeof *trainer->report))
			ret = kvi_train_no_memory(trainer);
	if (!ret) {
		memset(trainer->report + trainer->n_report, 0, n * sizeof *trainer->report);
		ret = fit_layer(trainer, task, trainer->report + trainer->n_report);
		trainer->n_report += n;
	}
	if (!ret && trainer->predictor)
		ret = kvi_train_advance_layer(trainer, task);
	kvi_train_layer_rest(trainer, task->layer);
	return ret;
}

static kvarc_ret run_layers(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                            struct kvi_train_weights *w)
{
	enum { KEEP = KVI_TRAIN_BELOW + 1 };
	struct kvi_train_layer layers[KEEP];
	kvarc_ret ret = KVARC_OK;
	size_t count = 0;
	memset(layers, 0, sizeof layers);
	for (size_t first = 0; first < stack->n_shapes && !ret; count++) {
		struct kvi_train_task k = {
			.stack = stack, .first = first, .layer = &layers[count % KEEP], .weights = w
		};
		uint32_t layer = stack->shapes[first].layer;
		bool wanted = trainer->options.levels >> 3 & 1;
		for (size_t b = 1; wanted && b <= KVI_TRAIN_BELOW && b <= count; b++) {
			const struct kvi_train_layer *l = &layers[(count - b) % KEEP];
			if (layer - l->tensors[0].shape->layer <= UINT8_MAX)
				k.below[k.n_below++] = l;
		}
		kvi_train_layer_free(trainer, k.layer);
		ret = run_layer(trainer, &k, w);
		first += kvi_train_layer_shapes(stack, first);
		if (!ret && train_unprofitable(trainer, first, stack->n_shapes))
			break;
	}
	for (size_t i = 0; i < KEEP; i++)
		kvi_train_layer_free(trainer, &layers[i]);
	return ret;
}

static kvarc_ret run_stack(kvarc_trainer *trainer, const struct kvi_train_stack *stack)
{
	struct kvi_train_weights w = { 0 };
	w.bad = kvi_calloc(&trainer->alloc, stack->n_tokens, 1);
	w.w = kvi_calloc(&trainer->alloc, stack->n_tokens, sizeof *w.w);
	kvarc_ret ret = w.bad && w.w ? run_layers(trainer, stack, &w)
	                             : kvi_train_no_memory(trainer);
	if (!ret && w.n_bad)
		kvi_train_note(trainer, "%zu tokens have infinities or NaNs and were left out",
		               w.n_bad);
	kvi_free(&trainer->alloc, w.bad);
	kvi_free(&trainer->alloc, w.w);
	return ret;
}

static uint64_t bytes_of(const struct kvi_train_stack *stack)
{
	uint64_t sum = 0;
	for (size_t k = 0; k < stack->n_caches; k++)
		for (size_t i = 0; i < stack->n_shapes; i++) {
			const struct kvi_train_cache *c = stack->caches[k];
			sum += c->n * kvi_tensor_bytes(&c->geometry.tensors[c->tensors[i]]);
		}
	return sum;
}

static void set_costs(kvarc_trainer *trainer)
{
	unsigned level = trainer->options.levels >> 3 & 1 ? 3 : 2;
	/* Level 1 of the residual of a transformer's predictions is not level 1 of the caches. */
	trainer->plain = trainer->predictor ? 0 : train_cost(trainer, 1);
	trainer->cost = train_cost(trainer, kvi_train_level(trainer, level)) +
	                (double)trainer->profile->file_bytes;
}

kvarc_ret kvarc_trainer_run(kvarc_trainer *t)
{
	if (!t || t->ran)
		return KVARC_PROG;
	t->ran = true;
	if (t->n_stacks == 0 && t->n_without_ids)
		return kvi_fail(t->error, KVARC_GEOMETRY,
		                "a model needs caches with their token "
		                "ids, from position 0 on: there are none");
	if (t->n_stacks == 0)
		return kvi_fail(t->error, KVARC_GEOMETRY, "no caches to fit to");
	for (size_t i = 0; i < t->n_stacks; i++)
		t->total += bytes_of(&t->stacks[i]);
	if (t->options.levels == 1u << KVI_LEVEL_BASIS && t->options.klt.group != 1)
		t->total *= 2; /* a second time, in integers */
	if (t->predictor)
		t->total += kvi_train_predictor_work(t, &t->stacks[0]);
	if (t->n_without_ids)
		kvi_train_note(t,
		               "%zu caches were skipped: a model needs token ids, "
		               "and positions that start at 0",
		               t->n_without_ids);
	if (t->options.flags & KVARC_TRAIN_IN_FILE && !train_enough(t))
		t->options.levels = 1u << 2;
	t->kernels = kvi_train_kernels_get(t->options.common.isa_mask);
	kvarc_ret ret = kvi_pool_open(&t->pool, &t->alloc, t->options.common.threads);
	if (!ret)
		ret = kvi_train_prices_open(&t->prices, &t->alloc);
	if (ret)
		ret = kvi_train_no_memory(t);
	if (!ret && t->predictor)
		ret = kvi_train_predictor_start(t, &t->stacks[0]);
	if (!ret)
		ret = open_profile(t);
	const bool bases = t->options.levels == 1u << KVI_LEVEL_BASIS;
	if (!ret && bases)
		ret = kvi_train_weigh(t);
	for (size_t i = 0; i < t->n_stacks && !ret && !t->unprofitable; i++)
		ret = bases ? kvi_train_bases(t, &t->stacks[i]) : run_stack(t, &t->stacks[i]);
	if (!ret && !t->unprofitable)
		ret = finish_profile(t);
	if (!ret && !bases && !t->unprofitable)
		set_costs(t);
	if (ret || t->unprofitable)
		kvarc_profile_close(&t->profile);
	kvi_train_predictor_close(t);
	kvi_train_prices_close(t->prices);
	kvi_pool_close(t->pool);
	return ret;
}

kvarc_ret kvarc_trainer_profile(kvarc_trainer *t, kvarc_profile **profile)
{
	if (profile)
		*profile = NULL;
	if (t && profile && t->unprofitable)
		return KVARC_END;
	if (!t || !profile || !t->profile)
		return KVARC_PROG;
	if (t->options.flags & KVARC_TRAIN_IN_FILE && t->plain > 0 && !(t->cost < t->plain))
		return KVARC_END;
	*profile = t->profile;
	t->profile = NULL;
	return KVARC_OK;
}
