/* SPDX-License-Identifier: BSD-3-Clause */
/* train_in_file.c - profiles that are fitted to the file that they go into */
#include "profile/profile_io.h"
#include "profile/profile_handle.h"
#include "train_rows.h"
#include "trainer.h"

double kvi_train_cost(const kvarc_trainer *t, unsigned level)
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

bool kvi_train_enough(const kvarc_trainer *t)
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

bool kvi_train_hopeless(kvarc_trainer *t, size_t done, size_t all)
{
	enum { LAYERS = 2, SHARE = 8 };
	bool waits = t->profile->profile->n_models < LAYERS * KVI_TRAIN_TENSORS;
	if (!(t->options.flags & KVARC_TRAIN_IN_FILE) || t->predictor || waits ||
	    done * SHARE < all || done == all)
		return false;
	double plain = kvi_train_cost(t, 1);
	double cost = kvi_train_cost(t, t->options.levels >> 3 & 1 ? 3 : 2);
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
