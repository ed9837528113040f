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
static double train_cost(const kvarc_trainer *t, unsigned level)
{
	double bits = 0;
	size_t at = 0;
	for (size_t i = 0; i < t->n_stacks; i++)
		for (size_t k = 0; k < t->stacks[i].n_shapes && at < t->n_report; k++, at++) {
			const struct kvi_train_stack *s = &t->stacks[i];
			bits += t->report[at].bits[level] * s->all_tokens * s->shapes[k].heads *
			        s->shapes[k].channels;
		}
	return bits / 8;
}

/* Level 3 has three times the coefficients of level 2: with few tokens they cannot pay. */
static bool train_enough(const kvarc_trainer *t)
{
	for (size_t i = 0; i < t->n_stacks; i++) {
		const struct kvi_train_stack *s = &t->stacks[i];
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
static double packed_bytes(kvarc_trainer *t)
{
	const struct kvi_profile *p = t->profile->profile;
	for (; t->n_packed < p->n_models; t->n_packed++) {
		const struct kvi_model *m = &p->models[t->n_packed];
		for (size_t x = 0; m->a && x < m->C * m->a_stride; x++)
			t->packed_bits += kvi_train_rate(m->a[x]);
		for (size_t x = 0; m->b && x < m->C * m->b_stride; x++)
			t->packed_bits += kvi_train_rate(m->b[x]);
		t->packed_bits += 8 * 4 * (double)m->C;
	}
	return 1.15 * t->packed_bits / 8;
}

/* Whether a fit for a file will not pay, or by less than one in a hundred, as `done` of `all`
 * shapes of a stack show: an eighth of them do, as the lowest layers gain the most. Then
 * t->hopeless is set, and t->plain is estimated. */
static bool train_hopeless(kvarc_trainer *t, size_t done, size_t all)
{
	enum { LAYERS = 2, SHARE = 8 };
	bool waits = t->profile->profile->n_models < LAYERS * KVI_TRAIN_TENSORS;
	if (!(t->options.flags & KVARC_TRAIN_IN_FILE) || t->predictor || waits ||
	    done * SHARE < all || done == all)
		return false;
	double plain = train_cost(t, 1);
	double cost = train_cost(t, t->options.levels >> 3 & 1 ? 3 : 2);
	t->hopeless = cost + packed_bytes(t) > 0.99 * plain;
	t->plain = plain * (double)all / (double)done;
	return t->hopeless;
}

/* A profile for an import, and bytes: of its chunks at level 1, and with it, all counted. */
struct fitted {
	kvarc_profile *profile; /* NULL: none that would pay */
	double plain, cost;
	bool predicted; /* all that was looked at, bit for bit */
};

/* Of one level, or of level 2 when it has to be. */
static kvarc_ret fit_import(struct fitted *f, kvarc_import *im, int level, const char *model,
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
	*f = (struct fitted){ .plain = 0 };
	if (common)
		o.common = *common;
	kvarc_ret ret = kvarc_trainer_open(&t, &o);
	if (!ret)
		ret = kvarc_trainer_add_import(t, im);
	if (!ret)
		ret = kvarc_trainer_run(t);
	if (!ret) {
		f->predicted = t->n_predicted && t->n_predicted * 2 == t->n_report;
		f->plain = t->plain;
		f->cost = t->cost;
		ret = kvarc_trainer_profile(t, &f->profile);
	}
	kvarc_trainer_close(&t);
	/* nothing to fit is nothing to gain */
	return ret == KVARC_END || (ret == KVARC_GEOMETRY && !model) ? KVARC_OK : ret;
}

/* The smaller one stays in a. */
static void choose(struct fitted *a, struct fitted *b)
{
	if (b->profile && (!a->profile || b->cost < a->cost)) {
		struct fitted other = *a;
		*a = *b;
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
	if (!ret && best.predicted) { /* no other comes near it */
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
	SCALE_TOKENS = 4096,  /* to find scales with */
	SCALE_IN_FILE = 256,  /* and when it must be quick, */
	PLAIN_IN_FILE = 128,  /* for level 1 */
	REPORT_TOKENS = 8192, /* to measure */
	WORTH = 32768         /* tokens whose bits weigh as much as the profile's */
};

/* ---- the profile ---- */

static kvarc_ret copy_ropes(kvarc_trainer *t, struct kvi_profile *p)
{
	if (!t->n_ropes)
		return KVARC_OK;
	p->ropes = kvi_calloc(p->alloc, t->n_ropes, sizeof *p->ropes);
	if (!p->ropes)
		return KVARC_MEM;
	p->n_ropes = t->n_ropes;
	for (size_t i = 0; i < t->n_ropes; i++) {
		size_t bytes = t->ropes[i].rotary / 2 * sizeof(uint64_t);
		p->ropes[i].rotary = t->ropes[i].rotary;
		p->ropes[i].freq = kvi_malloc(p->alloc, bytes);
		if (!p->ropes[i].freq)
			return KVARC_MEM;
		memcpy(p->ropes[i].freq, t->ropes[i].freq, bytes);
	}
	return KVARC_OK;
}

static kvarc_ret open_profile(kvarc_trainer *t)
{
	size_t n = 0;
	kvarc_common common = t->options.common;
	common.error = NULL;
	for (size_t i = 0; i < t->n_stacks; i++)
		n += 2 * t->stacks[i].n_shapes;
	if (n > KVI_MODELS_MAX)
		return kvi_fail(t->error, KVARC_GEOMETRY, "too many tensors");
	if (kvi_profile_handle_new(&t->profile, &common))
		return kvi_train_no_memory(t);
	kvarc_profile *h = t->profile;
	if (kvi_profile_new(&h->profile, &h->alloc))
		return kvi_fail_alloc(t->error, &h->alloc);
	struct kvi_profile *p = h->profile;
	p->models = kvi_calloc(p->alloc, n, sizeof *p->models);
	if (!p->models || copy_ropes(t, p))
		return kvi_fail_alloc(t->error, &h->alloc);
	for (size_t i = 0; i < t->identity.n; i++)
		if (kvi_identity_set(&p->identity, p->alloc, t->identity.pairs[i].key,
		                     t->identity.pairs[i].value))
			return kvi_fail_alloc(t->error, &h->alloc);
	return KVARC_OK;
}

static kvarc_ret finish_profile(kvarc_trainer *t)
{
	kvarc_profile *h = t->profile;
	if (t->options.levels == 1u << KVI_LEVEL_BASIS && h->profile->n_models == 0)
		return kvi_fail(t->error, KVARC_GEOMETRY, "no transform can be fitted: %s",
		                t->no_transform[0] ? t->no_transform
		                                   : "transforms are for keys and values, "
		                                     "and there are none");
	kvarc_ret ret = kvi_profile_finish(h->profile);
	if (!ret)
		ret = kvi_profile_handle_finish(h);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(t->error, &h->alloc);
	return ret ? kvi_fail(t->error, KVARC_PROG, "the models do not make a profile") : KVARC_OK;
}

/* ---- what a layer may use ---- */

static size_t sources_of(const struct kvi_train_task *k, bool lower)
{
	size_t n = 0;
	for (size_t i = 0; i < k->layer->n; i++)
		n += k->layer->tensors[i].rows;
	for (size_t b = 0; lower && b < k->n_below; b++)
		for (size_t i = 0; i < k->below[b]->n; i++)
			n += k->below[b]->tensors[i].rows;
	return n / (k->plan.head ? k->layer->tensors[0].shape->heads : 1);
}

/* By head only if all of them have as many. */
static bool same_heads(const struct kvi_train_task *k)
{
	uint32_t heads = k->layer->tensors[0].shape->heads;
	for (size_t i = 0; i < k->layer->n; i++)
		if (k->layer->tensors[i].shape->heads != heads)
			return false;
	for (size_t b = 0; b < k->n_below; b++)
		for (size_t i = 0; i < k->below[b]->n; i++)
			if (k->below[b]->tensors[i].shape->heads != heads)
				return false;
	return true;
}

/* Few tokens for many coefficients: a stronger ridge, then by head, then without lower layers,
 * then without sources. */
static void make_plan(kvarc_trainer *t, struct kvi_train_task *k)
{
	size_t tokens = k->weights->fitted, wide = 0;
	bool few = false, in_file = t->options.flags & KVARC_TRAIN_IN_FILE;
	k->plan = (struct kvi_train_plan){ 0 };
	if (t->options.flags & KVARC_TRAIN_NO_STAGES)
		return;
	for (size_t i = 0; i < k->layer->n; i++)
		if (k->layer->tensors[i].rows > wide)
			wide = k->layer->tensors[i].rows;
	k->plan = (struct kvi_train_plan){ .self = true };
	k->plan.head = same_heads(k) &&
	               (t->options.flags & KVARC_TRAIN_HEAD_BLOCK ||
	                (wide > KVI_TRAIN_WIDE && !(t->options.flags & KVARC_TRAIN_WHOLE_LAYER)));
	if (in_file) { /* every coefficient has to pay: no rules are needed */
		k->plan.tokens = k->stack->all_tokens;
		k->plan.ridge_a = k->plan.ridge_b = 0.001;
		return;
	}
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(k, true) && !k->plan.head && same_heads(k) &&
	    !(t->options.flags & KVARC_TRAIN_WHOLE_LAYER))
		k->plan.head = few = true;
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(k, true) && k->n_below > 1) {
		k->n_below = 1;
		few = true;
	}
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(k, true) && k->n_below) {
		k->n_below = 0;
		few = true;
	}
	if (tokens < KVI_TRAIN_ENOUGH * sources_of(k, false)) {
		/* a model that corrects sees the whole layer */
		k->plan.self = t->predictor || tokens > sources_of(k, false);
		few = true;
	}
	double part = tokens ? (double)sources_of(k, true) / (double)tokens : 1;
	k->plan.tokens = WORTH;
	k->plan.ridge_a = 0.001 + 0.01 * part;
	k->plan.ridge_b = 0.001 + 0.01 * part;
	if (few && !t->few)
		kvi_train_note(t,
		               "%zu tokens are few for this model: some stages "
		               "are left out (%u and more are better)",
		               tokens, 30000);
	t->few |= few;
}

/* ---- one layer ---- */

static void set_bits(const kvarc_trainer *t, kvarc_trained *out, const struct kvi_train_view *v,
                     unsigned level, uint64_t price)
{
	level = kvi_train_level(t, level);
	out->elements = (uint64_t)v->n * v->model->C;
	out->bits[level] = (double)price / 256 / (double)out->elements;
}

static kvarc_ret measure(kvarc_trainer *t, struct kvi_train_task *k,
                         const struct kvi_train_pieces *p, unsigned level, int16_t *const *k1,
                         kvarc_trained *out)
{
	struct kvi_train_view v[KVI_TRAIN_TENSORS];
	kvarc_ret ret = kvi_train_view_make(t, k, p, level, v);
	for (size_t i = 0; i < k->layer->n && !ret; i++) {
		const struct kvi_model *m = v[i].model;
		bool follow = level > KVI_LEVEL_GRID && m->flags & KVI_MODEL_SCALE;
		struct kvi_train_scale s = { .k = level > KVI_LEVEL_GRID ? m->k : k1[i],
			                     .n0 = follow ? m->n0 : 0,
			                     .beta = follow ? m->beta : 0,
			                     .unknown = level > KVI_LEVEL_GRID ? m->unknown : 0,
			                     .source = i && follow ? v[i - 1].scale : NULL };
		set_bits(t, &out[i], &v[i], level, kvi_train_price(t, &v[i], &s, NULL));
	}
	kvi_train_view_free(t, v);
	return ret;
}

/* Also what the tokens that they are fitted to cost then. */
static kvarc_ret fit_scales(kvarc_trainer *t, struct kvi_train_task *k, unsigned level,
                            int16_t *const *k1, kvarc_trained *out)
{
	struct kvi_train_pieces p;
	struct kvi_train_view v[KVI_TRAIN_TENSORS];
	size_t most = !(t->options.flags & KVARC_TRAIN_IN_FILE) ? SCALE_TOKENS
	              : level == KVI_LEVEL_GRID                 ? PLAIN_IN_FILE
	                                                        : SCALE_IN_FILE;
	kvarc_ret ret = kvi_train_pieces_choose(t, k, false, most, &p);
	if (ret)
		return ret;
	ret = kvi_train_view_make(t, k, &p, level, v);
	for (size_t i = 0; i < k->layer->n && !ret; i++) {
		uint64_t price;
		ret = kvi_train_fit_scales(t, &v[i], (struct kvi_model *)v[i].model,
		                           i ? &v[i - 1] : NULL,
		                           level == KVI_LEVEL_GRID ? k1[i] : NULL, &price);
		if (!ret && v[i].n)
			set_bits(t, &out[i], &v[i], level, price);
	}
	kvi_train_view_free(t, v);
	kvi_free(&t->alloc, p.p);
	return ret;
}

/* Scales on fitted tokens, then what a file would have, on others. */
static kvarc_ret fit_and_measure(kvarc_trainer *t, struct kvi_train_task *k, kvarc_trained *out)
{
	struct kvi_train_pieces held = { 0 };
	int16_t *k1[KVI_TRAIN_TENSORS] = { 0 };
	kvarc_ret ret = kvi_train_pieces_choose(t, k, true, REPORT_TOKENS, &held);
	for (size_t i = 0; i < k->layer->n && !ret; i++) {
		k1[i] = kvi_calloc(&t->alloc, k->layer->tensors[i].rows, sizeof *k1[i]);
		if (!k1[i])
			ret = kvi_train_no_memory(t);
		out[i].layer = k->layer->tensors[i].shape->layer;
		out[i].kind = k->layer->tensors[i].shape->kind;
		out[i].measured = held.n > 0;
	}
	for (unsigned level = KVI_LEVEL_GRID; level <= KVI_LEVEL_LOWER && !ret; level++) {
		if (level > KVI_LEVEL_GRID && !(t->options.levels >> level & 1))
			continue;
		ret = fit_scales(t, k, level, k1, out);
		if (!ret && held.n)
			ret = measure(t, k, &held, level, k1, out);
	}
	for (size_t i = 0; i < KVI_TRAIN_TENSORS; i++)
		kvi_free(&t->alloc, k1[i]);
	kvi_free(&t->alloc, held.p);
	return ret;
}

/* Level 3 of the lowest layer is fitted to the residual of its token tables. */
static kvarc_ret fit_tables(kvarc_trainer *t, struct kvi_train_task *k)
{
	struct kvi_train_residual left;
	struct kvi_train_task over = *k;
	kvarc_ret ret = kvi_train_tables(t, k, &left);
	over.layer = &left.layer;
	over.weights = &left.weights;
	if (!ret)
		ret = kvi_train_fit(t, &over, 1u << 3);
	kvi_train_residual_free(t, &left);
	return ret;
}

/* Upper layers see a tensor about the mean of its model of level 3. */
static void take_means(const kvarc_trainer *t, const struct kvi_train_task *k)
{
	for (size_t i = 0; i < k->layer->n; i++) {
		const struct kvi_model *m = k->models[1][i];
		for (size_t c = 0; c < m->C; c++)
			kvi_train_centre_row(t->kernels, &k->layer->tensors[i],
			                     kvi_train_row_of(m, c), m->mean[c],
			                     k->stack->n_tokens);
	}
}

static kvarc_ret fit_models(kvarc_trainer *t, struct kvi_train_task *k, bool lowest)
{
	unsigned levels = t->options.levels;
	struct kvi_train_ids ids = { 0 };
	kvarc_ret ret = KVARC_OK;
	if (lowest && levels >> 3 & 1 &&
	    !(t->options.flags & (KVARC_TRAIN_NO_TABLE | KVARC_TRAIN_IN_FILE)))
		ret = kvi_train_ids_collect(t, k, &ids);
	if (!ret)
		ret = kvi_train_add_models(t, k, &ids);
	if (ids.n)
		levels &= ~(1u << 3);
	if (!ret && levels && !(t->options.flags & KVARC_TRAIN_NO_STAGES))
		ret = kvi_train_fit(t, k, levels);
	if (!ret && ids.n)
		ret = fit_tables(t, k);
	kvi_free(&t->alloc, ids.id);
	if (!ret && t->options.levels >> 3 & 1)
		take_means(t, k);
	return ret;
}

/* Its chunks are nothing but checks: what stays is for segments that nobody has looked at. */
static kvarc_ret add_predicted(kvarc_trainer *t, struct kvi_train_task *k, kvarc_trained *out)
{
	const struct kvi_train_ids none = { 0 };
	k->plan = (struct kvi_train_plan){ 0 };
	kvarc_ret ret = kvi_train_add_models(t, k, &none);
	for (size_t i = 0; i < k->layer->n && !ret; i++) {
		struct kvi_model *m = k->models[0][i];
		memset(m->mean, 0, m->C * sizeof *m->mean);
		kvi_model_expect_nothing(m);
		out[i].layer = m->layer;
		out[i].kind = m->kind;
		out[i].elements = (uint64_t)k->stack->n_tokens * m->C;
	}
	t->n_predicted += !ret;
	return ret;
}

static kvarc_ret fit_layer(kvarc_trainer *t, struct kvi_train_task *k, kvarc_trained *out)
{
	bool same = false;
	kvarc_ret ret = KVARC_OK;
	if (t->predictor && t->options.flags & KVARC_TRAIN_IN_FILE)
		ret = kvi_train_compare_layer(t, k, &same);
	if (ret || same)
		return ret ? ret : add_predicted(t, k, out);
	make_plan(t, k);
	ret = fit_models(t, k, k->first == 0);
	return ret ? ret : fit_and_measure(t, k, out);
}

static kvarc_ret run_layer(kvarc_trainer *t, struct kvi_train_task *k, struct kvi_train_weights *w)
{
	size_t n = kvi_train_layer_shapes(k->stack, k->first);
	kvarc_ret ret = KVARC_OK;
	if (t->predictor)
		ret = kvi_train_predict_layer(t, k->stack, k->stack->shapes[k->first].layer);
	if (!ret)
		ret = kvi_train_layer_load(t, k->stack, k->first, n, w, k->layer);
	for (size_t i = 0; i < n && !ret; i++)
		if (!kvi_array_grow(&t->alloc, &t->report, &t->cap_report, t->n_report + i,
		                    sizeof *t->report))
			ret = kvi_train_no_memory(t);
	if (!ret) {
		memset(t->report + t->n_report, 0, n * sizeof *t->report);
		ret = fit_layer(t, k, t->report + t->n_report);
		t->n_report += n;
	}
	if (!ret && t->predictor)
		ret = kvi_train_advance_layer(t, k);
	kvi_train_layer_rest(t, k->layer);
	return ret;
}

static kvarc_ret run_layers(kvarc_trainer *t, const struct kvi_train_stack *s,
                            struct kvi_train_weights *w)
{
	enum { KEEP = KVI_TRAIN_BELOW + 1 };
	struct kvi_train_layer layers[KEEP];
	kvarc_ret ret = KVARC_OK;
	size_t count = 0;
	memset(layers, 0, sizeof layers);
	for (size_t first = 0; first < s->n_shapes && !ret; count++) {
		struct kvi_train_task k = {
			.stack = s, .first = first, .layer = &layers[count % KEEP], .weights = w
		};
		uint32_t layer = s->shapes[first].layer;
		bool wanted = t->options.levels >> 3 & 1;
		for (size_t b = 1; wanted && b <= KVI_TRAIN_BELOW && b <= count; b++) {
			const struct kvi_train_layer *l = &layers[(count - b) % KEEP];
			if (layer - l->tensors[0].shape->layer <= UINT8_MAX)
				k.below[k.n_below++] = l;
		}
		kvi_train_layer_free(t, k.layer);
		ret = run_layer(t, &k, w);
		first += kvi_train_layer_shapes(s, first);
		if (!ret && train_hopeless(t, first, s->n_shapes))
			break;
	}
	for (size_t i = 0; i < KEEP; i++)
		kvi_train_layer_free(t, &layers[i]);
	return ret;
}

static kvarc_ret run_stack(kvarc_trainer *t, const struct kvi_train_stack *s)
{
	struct kvi_train_weights w = { 0 };
	w.bad = kvi_calloc(&t->alloc, s->n_tokens, 1);
	w.w = kvi_calloc(&t->alloc, s->n_tokens, sizeof *w.w);
	kvarc_ret ret = w.bad && w.w ? run_layers(t, s, &w) : kvi_train_no_memory(t);
	if (!ret && w.n_bad)
		kvi_train_note(t, "%zu tokens have infinities or NaNs and were left out", w.n_bad);
	kvi_free(&t->alloc, w.bad);
	kvi_free(&t->alloc, w.w);
	return ret;
}

static uint64_t bytes_of(const struct kvi_train_stack *s)
{
	uint64_t sum = 0;
	for (size_t k = 0; k < s->n_caches; k++)
		for (size_t i = 0; i < s->n_shapes; i++) {
			const struct kvi_train_cache *c = s->caches[k];
			sum += c->n * kvi_tensor_bytes(&c->geometry.tensors[c->tensors[i]]);
		}
	return sum;
}

static void set_costs(kvarc_trainer *t)
{
	unsigned level = t->options.levels >> 3 & 1 ? 3 : 2;
	/* Level 1 of the residual of a transformer's predictions is not level 1 of the caches. */
	t->plain = t->predictor ? 0 : train_cost(t, 1);
	t->cost = train_cost(t, kvi_train_level(t, level)) + (double)t->profile->file_bytes;
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
		t->total *= 2; /* once more, in integers */
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
	for (size_t i = 0; i < t->n_stacks && !ret && !t->hopeless; i++)
		ret = bases ? kvi_train_bases(t, &t->stacks[i]) : run_stack(t, &t->stacks[i]);
	if (!ret && !t->hopeless)
		ret = finish_profile(t);
	if (!ret && !bases && !t->hopeless)
		set_costs(t);
	if (ret || t->hopeless)
		kvarc_profile_close(&t->profile);
	kvi_train_predictor_close(t);
	kvi_train_prices_close(t->prices);
	kvi_pool_close(t->pool);
	return ret;
}

kvarc_ret kvarc_trainer_profile(kvarc_trainer *t, kvarc_profile **p)
{
	if (p)
		*p = NULL;
	if (t && p && t->hopeless)
		return KVARC_END;
	if (!t || !p || !t->profile)
		return KVARC_PROG;
	if (t->options.flags & KVARC_TRAIN_IN_FILE && t->plain > 0 && !(t->cost < t->plain))
		return KVARC_END;
	*p = t->profile;
	t->profile = NULL;
	return KVARC_OK;
}
