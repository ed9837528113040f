/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_merge.c - the models of several profiles in one */
#include "profile_io.h"

#include <stdlib.h>
#include <string.h>

/* Memory for everything that the profiles hold. */
static bool make_room(struct kvi_profile *profile, const struct kvi_profile *const *list, size_t n)
{
	size_t models = 0, ropes = 0;
	for (size_t i = 0; i < n; i++) {
		models += list[i]->n_models;
		ropes += list[i]->n_ropes;
	}
	profile->models = kvi_calloc(profile->alloc, models, sizeof *profile->models);
	if (ropes)
		profile->ropes = kvi_calloc(profile->alloc, ropes, sizeof *profile->ropes);
	return profile->models && (profile->ropes || !ropes);
}

/* 1 + index of an equal rope, which is added when there is none; 0: no memory. */
static uint32_t take_rope(struct kvi_profile *profile, const struct kvi_profile_rope *r)
{
	const size_t bytes = r->rotary / 2 * sizeof *r->freq;
	for (size_t i = 0; i < profile->n_ropes; i++)
		if (profile->ropes[i].rotary == r->rotary &&
		    !memcmp(profile->ropes[i].freq, r->freq, bytes))
			return (uint32_t)i + 1;
	struct kvi_profile_rope *x = &profile->ropes[profile->n_ropes];
	x->freq = kvi_malloc(profile->alloc, bytes);
	if (!x->freq)
		return 0;
	x->rotary = r->rotary;
	memcpy(x->freq, r->freq, bytes);
	return (uint32_t)++profile->n_ropes;
}

static void copy_arrays(struct kvi_model *model, const struct kvi_model *m)
{
	const size_t n = m->C;
	memcpy(model->step, m->step, n * sizeof *model->step);
	memcpy(model->k, m->k, n * sizeof *model->k);
	memcpy(model->mean, m->mean, n * sizeof *model->mean);
	if (model->a) {
		memcpy(model->qa, m->qa, n);
		memcpy(model->a, m->a, n * m->a_stride * sizeof *model->a);
	}
	if (model->b) {
		memcpy(model->qb, m->qb, n);
		memcpy(model->b, m->b, n * m->b_stride * sizeof *model->b);
	}
	if (model->m) {
		memcpy(model->qm, m->qm, n);
		memcpy(model->m, m->m, n * m->m_stride * sizeof *model->m);
	}
	if (model->ids) {
		memcpy(model->ids, m->ids, m->n_ids * sizeof *model->ids);
		memcpy(model->table, m->table, m->n_ids * n);
	}
	if (model->d) {
		memcpy(model->e, m->e, m->width);
		memcpy(model->d, m->d, m->width * m->d_stride * sizeof *model->d);
	}
}

static kvarc_ret take_model(struct kvi_profile *profile, const struct kvi_profile *from,
                            const struct kvi_model *model, bool corrected)
{
	struct kvi_model *x = &profile->models[profile->n_models];
	*x = *model;
	if (corrected)
		x->flags &= (uint8_t)~KVI_MODEL_CORRECTS;
	x->step = x->k = x->a = x->b = x->d = x->m = NULL;
	x->mean = x->ids = NULL;
	x->qa = x->qb = x->e = x->qm = NULL;
	x->table = NULL;
	if (model->rope) {
		x->rope = take_rope(profile, &from->ropes[model->rope - 1]);
		if (!x->rope)
			return kvi_alloc_error(profile->alloc);
	}
	kvarc_ret ret = kvi_model_reserve(profile, x);
	if (ret)
		return ret;
	copy_arrays(x, model);
	profile->n_models++;
	return KVARC_OK;
}

/* Whether all sources of a model were copied from the same profile. */
static bool has_sources(const struct kvi_profile *from, const struct kvi_model *model,
                        const bool *taken)
{
	bool all = !model->scale_source || taken[model->scale_source - from->models];
	for (unsigned i = 0; i < model->n_lower; i++)
		all = all && taken[model->lower[i].model - from->models];
	for (unsigned i = 0; i < model->n_same; i++)
		all = all && taken[model->same[i].model - from->models];
	return all;
}

/* The model of the key's level, layer and kind among the first n, which are in order; NULL:
 * none. */
static const struct kvi_model *find(const struct kvi_profile *profile, size_t n,
                                    const struct kvi_model *key)
{
	return n ? bsearch(key, profile->models, n, sizeof *key, kvi_model_compare) : NULL;
}

/* Whether one of the first n models corrects the layer of `model`: only the first to come may. */
static bool corrected(const struct kvi_profile *profile, size_t n, const struct kvi_model *model)
{
	struct kvi_model key = *model;
	for (key.kind = 0; key.kind <= KVARC_MLA_LATENT; key.kind++) {
		const struct kvi_model *x = find(profile, n, &key);
		if (x && x->flags & KVI_MODEL_CORRECTS)
			return true;
	}
	return false;
}

/* Models of tensors that have none yet; sources come before what needs them. */
static kvarc_ret take_models(struct kvi_profile *profile, const struct kvi_profile *from)
{
	const size_t before = profile->n_models;
	bool *taken = kvi_calloc(profile->alloc, from->n_models, sizeof *taken);
	kvarc_ret ret = taken ? KVARC_OK : kvi_alloc_error(profile->alloc);
	for (size_t i = 0; i < from->n_models && ret == KVARC_OK; i++) {
		const struct kvi_model *m = &from->models[i];
		taken[i] = !find(profile, before, m) && has_sources(from, m, taken);
		if (taken[i])
			ret = take_model(profile, from, m, corrected(profile, before, m));
	}
	kvi_free(profile->alloc, taken);
	/* sorted for the next search; kvi_profile_finish resolves sources again */
	if (profile->n_models)
		qsort(profile->models, profile->n_models, sizeof *profile->models,
		      kvi_model_compare);
	return ret;
}

/* Adds a pair. Where the profile has another value of its key, that stays; but values of fitted_on
 * are joined, and two models or weights do not go together (GEOMETRY). */
static kvarc_ret take_pair(struct kvi_profile *profile, const struct kvi_pair *pair)
{
	const char *have = kvi_identity_get(&profile->identity, pair->key);
	if (!have)
		return kvi_identity_set(&profile->identity, profile->alloc, pair->key, pair->value);
	if (!strcmp(have, pair->value))
		return KVARC_OK;
	if (!strcmp(pair->key, "model") || !strcmp(pair->key, "weights"))
		return KVARC_GEOMETRY;
	if (strcmp(pair->key, "fitted_on"))
		return KVARC_OK;
	size_t a = strlen(have), b = strlen(pair->value);
	char *both = kvi_malloc(profile->alloc, a + b + 3);
	if (!both)
		return kvi_alloc_error(profile->alloc);
	memcpy(both, have, a);
	memcpy(both + a, "; ", 2);
	memcpy(both + a + 2, pair->value, b + 1);
	kvarc_ret ret = kvi_identity_set(&profile->identity, profile->alloc, pair->key, both);
	kvi_free(profile->alloc, both);
	return ret == KVARC_PROG ? KVARC_OK : ret; /* both are too long: the first stays */
}

kvarc_ret kvi_profile_merge(struct kvi_profile **out, const struct kvi_alloc *alloc,
                            const struct kvi_profile *const *list, size_t n)
{
	struct kvi_profile *p;
	kvarc_ret ret = kvi_profile_new(&p, alloc);
	*out = p;
	if (ret == KVARC_OK && !make_room(p, list, n))
		ret = kvi_alloc_error(alloc);
	for (size_t i = 0; i < n && ret == KVARC_OK; i++) {
		const struct kvi_identity *id = &list[i]->identity;
		ret = take_models(p, list[i]);
		for (size_t k = 0; k < id->n && ret == KVARC_OK; k++)
			ret = take_pair(p, &id->pairs[k]);
	}
	if (ret == KVARC_OK)
		ret = kvi_profile_finish(p);
	if (ret) {
		kvi_profile_free(p);
		*out = NULL;
	}
	return ret;
}
