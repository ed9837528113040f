/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_tensors.c - profiles in memory: make, free, look up, finish (spec profile 2) */
#include "profile_tensors.h"

#include <stdlib.h>

#include "format/geometry_check.h"
#include "numeric/formats.h"
#include "profile_internal.h"

kvarc_ret kvi_profile_new(struct kvi_profile **out, const struct kvi_alloc *alloc)
{
	struct kvi_profile *p = kvi_calloc(alloc, 1, sizeof *p);
	*out = p;
	if (!p)
		return kvi_alloc_error(alloc);
	p->alloc = alloc;
	return KVARC_OK;
}

void kvi_profile_free(struct kvi_profile *p)
{
	if (!p)
		return;
	for (size_t i = 0; p->models && i < p->n_models; i++)
		kvi_model_free(p, &p->models[i]);
	kvi_free(p->alloc, p->models);
	for (size_t i = 0; p->ropes && i < p->n_ropes; i++)
		kvi_free(p->alloc, p->ropes[i].freq);
	kvi_free(p->alloc, p->ropes);
	kvi_identity_free(&p->identity, p->alloc);
	kvi_free(p->alloc, p);
}

void kvi_model_expect_nothing(struct kvi_model *m)
{
	enum {
		NARROW = -2, /* class of a residual of less than a step */
		FOLLOWS = 8  /* n0: how fast the scale does */
	};
	m->flags |= KVI_MODEL_SCALE;
	m->n0 = FOLLOWS;
	for (size_t c = 0; c < m->C; c++) {
		int k = 4 * m->step[c] + NARROW;
		m->k[c] = (int16_t)(k < -400 ? -400 : k > 400 ? 400 : k);
	}
}

int kvi_model_compare(const void *a, const void *b)
{
	const struct kvi_model *x = a, *y = b;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	return (x->kind > y->kind) - (x->kind < y->kind);
}

const struct kvi_model *kvi_profile_model(const struct kvi_profile *p, unsigned level,
                                          uint32_t layer, unsigned kind)
{
	if (level > UINT8_MAX || kind > UINT8_MAX || p->n_models == 0)
		return NULL;
	const struct kvi_model key = { .level = (uint8_t)kvi_models_level(level),
		                       .layer = layer,
		                       .kind = (uint8_t)kind };
	return bsearch(&key, p->models, p->n_models, sizeof key, kvi_model_compare);
}

bool kvi_model_fits(const struct kvi_model *m, const kvarc_tensor *t, const kvarc_rope *rope)
{
	return m->heads == t->heads && m->head_channels == t->channels && t->first_head == 0 &&
	       (t->total_heads == 0 || t->total_heads == t->heads) && t->role == KVARC_WHOLE &&
	       kvi_float_format(t->dtype) && m->rotary == (rope ? rope->rotary : 0);
}

uint64_t kvi_model_coefficients(const struct kvi_model *m)
{
	return kvi_model_entries_a(m) + kvi_model_entries_b(m) + kvi_model_entries_d(m) +
	       kvi_model_entries_m(m);
}

/* What the parser has checked by reading it. */
static bool head_good(const struct kvi_profile *p)
{
	if (p->identity.n > KVI_PROFILE_PAIRS || p->n_ropes > KVI_MAX_ROPES || p->n_models < 1 ||
	    p->n_models > KVI_MODELS_MAX)
		return false;
	for (size_t i = 1; i < p->identity.n; i++)
		if (strcmp(p->identity.pairs[i - 1].key, p->identity.pairs[i].key) >= 0)
			return false;
	for (size_t i = 0; i < p->n_ropes; i++) {
		uint32_t rotary = p->ropes[i].rotary;
		if (rotary < 2 || rotary > KVI_MAX_ROTARY || rotary % 2)
			return false;
	}
	return true;
}

kvarc_ret kvi_profile_finish(struct kvi_profile *p)
{
	if (!head_good(p))
		return KVARC_DATA;
	qsort(p->models, p->n_models, sizeof *p->models, kvi_model_compare);
	for (size_t i = 0; i < p->n_models; i++) {
		struct kvi_model *m = &p->models[i];
		if (i && kvi_model_compare(m - 1, m) >= 0)
			return KVARC_DATA;
		kvarc_ret ret = kvi_model_resolve(p, m);
		if (ret)
			return ret;
		/* The strides of the arrays have to fit the sources that were resolved just now. */
		if (m->a_stride != kvi_model_stride_a(m) || m->b_stride != kvi_model_stride_b(m) ||
		    m->d_stride != kvi_model_stride_d(m) || m->m_stride != kvi_model_stride_m(m) ||
		    !kvi_model_values_good(m))
			return KVARC_DATA;
	}
	return KVARC_OK;
}
