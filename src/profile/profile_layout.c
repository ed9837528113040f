/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_layout.c - how a model's coefficients lie in memory (spec profile 3) */
#include "profile_tensors.h"
#include "profile_internal.h"

/* Channels that a source gives to a slot, and the entries that they take. */
static size_t source_channels(const struct kvi_model *from, unsigned scope)
{
	return scope ? from->head_channels : (size_t)from->heads * from->head_channels;
}

static size_t source_capacity(const struct kvi_model *from, unsigned scope)
{
	return (scope ? 1 : (size_t)from->heads) * kvi_head_stride(from);
}

static unsigned self_scope(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_SELF_HEAD ? 1 : 0;
}

static size_t block_capacity(const struct kvi_source *s, unsigned n)
{
	size_t sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += source_capacity(s[i].model, s[i].scope);
	return sum;
}

static uint64_t block_channels(const struct kvi_source *s, unsigned n)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += source_channels(s[i].model, s[i].scope);
	return sum;
}

size_t kvi_model_stride_a(const struct kvi_model *m)
{
	return block_capacity(m->lower, m->n_lower);
}

size_t kvi_model_stride_b(const struct kvi_model *m)
{
	size_t self = m->flags & KVI_MODEL_SELF ? source_capacity(m, self_scope(m)) : 0;
	return block_capacity(m->same, m->n_same) + self;
}

/* The state has no heads: a row of D sees all of them. */
size_t kvi_model_stride_d(const struct kvi_model *m)
{
	size_t sum = source_capacity(m, 0);
	for (unsigned i = 0; i < m->n_same; i++)
		sum += source_capacity(m->same[i].model, 0);
	return m->flags & KVI_MODEL_CORRECTS ? sum : 0;
}

size_t kvi_model_stride_m(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_BASIS ? kvi_head_stride(m) : 0;
}

/* Slots of its own head that come before slot c: a pair is one step. */
static size_t earlier_in_head(const struct kvi_model *m, size_t c)
{
	size_t s = c % m->head_channels;
	return s < m->rotary ? s & ~(size_t)1 : s;
}

static uint64_t earlier_slots(const struct kvi_model *m)
{
	uint64_t n = m->head_channels, h = m->heads;
	uint64_t in_heads = h * (n * (n - 1) / 2 - m->rotary / 2);
	if (!(m->flags & KVI_MODEL_SELF))
		return 0;
	return self_scope(m) ? in_heads : in_heads + n * n * (h * (h - 1) / 2);
}

uint64_t kvi_model_entries_a(const struct kvi_model *m)
{
	return m->C * block_channels(m->lower, m->n_lower);
}

uint64_t kvi_model_entries_b(const struct kvi_model *m)
{
	return m->C * block_channels(m->same, m->n_same) + earlier_slots(m);
}

uint64_t kvi_model_entries_d(const struct kvi_model *m)
{
	uint64_t sum = m->C;
	for (unsigned i = 0; i < m->n_same; i++)
		sum += m->same[i].model->C;
	return m->flags & KVI_MODEL_CORRECTS ? m->width * sum : 0;
}

uint64_t kvi_model_entries_m(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_BASIS ? m->C * (uint64_t)m->head_channels : 0;
}

/* n channels of whole heads, from the first one on. */
static void run_heads(int16_t *p, const struct kvi_model *from, size_t n, kvi_run *run, void *ctx)
{
	size_t each = from->head_channels, stride = kvi_head_stride(from);
	if (each == stride)
		each = n; /* no gaps */
	for (; n > each; n -= each, p += stride)
		run(ctx, p, each);
	if (n)
		run(ctx, p, n);
}

static int16_t *run_sources(int16_t *p, const struct kvi_source *s, unsigned n, kvi_run *run,
                            void *ctx)
{
	for (unsigned i = 0; i < n; i++) {
		run_heads(p, s[i].model, source_channels(s[i].model, s[i].scope), run, ctx);
		p += source_capacity(s[i].model, s[i].scope);
	}
	return p;
}

void kvi_model_row_a(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx)
{
	run_sources(m->a + c * m->a_stride, m->lower, m->n_lower, run, ctx);
}

void kvi_model_row_b(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx)
{
	int16_t *p = run_sources(m->b + c * m->b_stride, m->same, m->n_same, run, ctx);
	size_t n = earlier_in_head(m, c);
	if (!(m->flags & KVI_MODEL_SELF))
		return;
	if (!self_scope(m))
		n += c - c % m->head_channels;
	run_heads(p, m, n, run, ctx);
}

void kvi_model_row_d(const struct kvi_model *m, size_t i, kvi_run *run, void *ctx)
{
	int16_t *p = m->d + i * m->d_stride;
	for (unsigned k = 0; k < m->n_same; k++) {
		const struct kvi_model *from = m->same[k].model;
		run_heads(p, from, from->C, run, ctx);
		p += source_capacity(from, 0);
	}
	run_heads(p, m, m->C, run, ctx);
}

void kvi_model_row_m(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx)
{
	run(ctx, m->m + c * m->m_stride, m->head_channels);
}

void kvi_model_free(const struct kvi_profile *p, struct kvi_model *m)
{
	kvi_free(p->alloc, m->step);
	kvi_free(p->alloc, m->k);
	kvi_free(p->alloc, m->mean);
	kvi_free(p->alloc, m->qa);
	kvi_free(p->alloc, m->qb);
	kvi_free(p->alloc, m->a);
	kvi_free(p->alloc, m->b);
	kvi_free(p->alloc, m->ids);
	kvi_free(p->alloc, m->table);
	kvi_free(p->alloc, m->e);
	kvi_free(p->alloc, m->d);
	kvi_free(p->alloc, m->qm);
	kvi_free(p->alloc, m->m);
	m->step = m->k = m->a = m->b = m->d = m->m = NULL;
	m->mean = m->ids = NULL;
	m->qa = m->qb = m->e = m->qm = NULL;
	m->table = NULL;
	m->a_stride = m->b_stride = m->d_stride = m->m_stride = 0;
}

/* A trainer's models need not be in order yet. */
static bool find_sources(const struct kvi_profile *p, const struct kvi_model *m,
                         struct kvi_source *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		s[i].model = NULL;
		for (size_t k = 0; k < p->n_models && !s[i].model; k++) {
			const struct kvi_model *x = &p->models[k];
			if (x->level == m->level && x->kind == s[i].kind &&
			    x->layer + s[i].delta == m->layer)
				s[i].model = x;
		}
		if (!s[i].model)
			return false;
	}
	return true;
}

static bool make_room(const struct kvi_alloc *alloc, struct kvi_model *m)
{
	size_t n = m->C;
	m->step = kvi_calloc(alloc, n, sizeof *m->step);
	m->k = kvi_calloc(alloc, n, sizeof *m->k);
	m->mean = kvi_calloc(alloc, n, sizeof *m->mean);
	if (!m->step || !m->k || !m->mean)
		return false;
	if (m->a_stride) {
		m->qa = kvi_calloc(alloc, n, sizeof *m->qa);
		m->a = kvi_calloc(alloc, n, m->a_stride * sizeof *m->a);
		if (!m->qa || !m->a)
			return false;
	}
	if (m->b_stride) {
		m->qb = kvi_calloc(alloc, n, sizeof *m->qb);
		m->b = kvi_calloc(alloc, n, m->b_stride * sizeof *m->b);
		if (!m->qb || !m->b)
			return false;
	}
	if (m->d_stride) {
		m->e = kvi_calloc(alloc, m->width, sizeof *m->e);
		m->d = kvi_calloc(alloc, m->width, m->d_stride * sizeof *m->d);
		if (!m->e || !m->d)
			return false;
	}
	if (m->m_stride) {
		m->qm = kvi_calloc(alloc, n, sizeof *m->qm);
		m->m = kvi_calloc(alloc, n, m->m_stride * sizeof *m->m);
		if (!m->qm || !m->m)
			return false;
	}
	if (!(m->flags & KVI_MODEL_TABLE) || m->n_ids == 0)
		return true;
	m->ids = kvi_calloc(alloc, m->n_ids, sizeof *m->ids);
	m->table = kvi_calloc(alloc, m->n_ids, n);
	return m->ids && m->table;
}

kvarc_ret kvi_model_make_arrays(const struct kvi_profile *p, struct kvi_model *m)
{
	kvi_model_free(p, m);
	m->a_stride = kvi_model_stride_a(m);
	m->b_stride = kvi_model_stride_b(m);
	m->d_stride = kvi_model_stride_d(m);
	m->m_stride = kvi_model_stride_m(m);
	if (make_room(p->alloc, m))
		return KVARC_OK;
	kvi_model_free(p, m);
	return kvi_alloc_error(p->alloc);
}

kvarc_ret kvi_model_reserve(const struct kvi_profile *p, struct kvi_model *m)
{
	if (m->n_lower > KVI_LOWER_MAX || m->n_same > KVI_SAME_MAX || m->rope > p->n_ropes ||
	    m->heads == 0 || m->head_channels == 0 || !find_sources(p, m, m->lower, m->n_lower) ||
	    !find_sources(p, m, m->same, m->n_same))
		return KVARC_DATA;
	m->C = (size_t)m->heads * m->head_channels;
	m->rotary = m->rope ? p->ropes[m->rope - 1].rotary : 0;
	return kvi_model_make_arrays(p, m);
}
