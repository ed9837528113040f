/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_check.c - what a model must keep (spec profile 3) */
#include "format/geometry_check.h"
#include "profile_tensors.h"
#include "profile_internal.h"

enum {
	FLAGS_KNOWN = KVI_MODEL_SELF | KVI_MODEL_SELF_HEAD | KVI_MODEL_SCALE | KVI_MODEL_TABLE |
	              KVI_MODEL_CORRECTS | KVI_MODEL_BASIS
};

static bool shape_good(const struct kvi_profile *p, const struct kvi_model *m)
{
	return ((m->level >= KVI_LEVEL_PROFILE && m->level <= KVI_LEVEL_LAST) ||
	        m->level == KVI_LEVEL_BASIS) &&
	       m->layer <= UINT16_MAX && m->heads >= 1 && m->heads <= UINT16_MAX &&
	       m->head_channels >= 1 && m->head_channels <= UINT16_MAX &&
	       (uint64_t)m->heads * m->head_channels <= KVI_MAX_WIDTH && m->rope <= p->n_ropes &&
	       (!m->rope || p->ropes[m->rope - 1].rotary <= m->head_channels);
}

static bool numbers_good(const struct kvi_model *m)
{
	if (m->flags & ~FLAGS_KNOWN)
		return false;
	if (m->level == KVI_LEVEL_BASIS || m->flags & KVI_MODEL_BASIS)
		return m->level == KVI_LEVEL_BASIS && m->flags == KVI_MODEL_BASIS &&
		       m->n_lower <= KVI_LOWER_MAX && !m->n_same;
	if ((m->flags & KVI_MODEL_SELF_HEAD) && !(m->flags & KVI_MODEL_SELF))
		return false;
	if (m->n_lower > (m->level == KVI_LEVEL_LOWER ? KVI_LOWER_MAX : 0) ||
	    m->n_same > KVI_SAME_MAX)
		return false;
	if (m->flags & (m->level < KVI_LEVEL_MODEL ? KVI_MODEL_CORRECTS : KVI_MODEL_TABLE))
		return false;
	if ((m->flags & KVI_MODEL_SCALE) && (m->n0 == 0 || m->beta > KVI_BETA_MAX))
		return false;
	return !(m->flags & KVI_MODEL_TABLE) ||
	       (m->tshift <= KVI_TABLE_SHIFT_MAX && m->unknown <= KVI_UNKNOWN_MAX &&
	        m->n_ids <= KVI_TABLE_ROWS_MAX);
}

static bool resolve(const struct kvi_profile *p, const struct kvi_model *m, struct kvi_source *s)
{
	if (s->scope > 1 || s->delta > m->layer)
		return false;
	s->model = kvi_profile_model(p, m->level, m->layer - s->delta, s->kind);
	return s->model && (s->scope == 0 || m->heads % s->model->heads == 0);
}

/* At level 9 tensors of the same layer are among the lower ones. */
static bool comes_before(const struct kvi_model *m, const struct kvi_source *s)
{
	return s->delta || (m->level == KVI_LEVEL_BASIS && s->kind < m->kind);
}

static bool resolve_all(const struct kvi_profile *p, struct kvi_model *m)
{
	for (unsigned i = 0; i < m->n_lower; i++)
		if (!comes_before(m, &m->lower[i]) || !resolve(p, m, &m->lower[i]))
			return false;
	for (unsigned i = 0; i < m->n_same; i++)
		if (m->same[i].delta != 0 || m->same[i].kind >= m->kind ||
		    !resolve(p, m, &m->same[i]))
			return false;
	m->scale_source = NULL;
	if (!(m->flags & KVI_MODEL_SCALE) || m->beta == 0)
		return true;
	if (m->scale_kind >= m->kind)
		return false;
	m->scale_source = kvi_profile_model(p, m->level, m->layer, m->scale_kind);
	return m->scale_source;
}

/* Whether a model before it corrects the same layer. */
static bool corrected(const struct kvi_profile *p, const struct kvi_model *m)
{
	for (unsigned kind = 0; kind < m->kind; kind++) {
		const struct kvi_model *x = kvi_profile_model(p, m->level, m->layer, kind);
		if (x && x->flags & KVI_MODEL_CORRECTS)
			return true;
	}
	return false;
}

kvarc_ret kvi_model_resolve(const struct kvi_profile *p, struct kvi_model *m)
{
	if (m->kind != KVARC_KEY && m->kind != KVARC_VALUE && m->kind != KVARC_MLA_LATENT)
		return KVARC_OPTIONS;
	if (!shape_good(p, m) || !numbers_good(m) || !resolve_all(p, m) ||
	    (m->flags & KVI_MODEL_CORRECTS && corrected(p, m)))
		return KVARC_DATA;
	m->C = (size_t)m->heads * m->head_channels;
	m->rotary = m->rope ? p->ropes[m->rope - 1].rotary : 0;
	return KVARC_OK;
}

/* In blocks of a constant size, which compilers make vectors of; at most 2^15 * 64 each. */
static void add_absolute(void *ctx, int16_t *p, size_t n)
{
	enum { BLOCK = 64 };
	uint64_t *sum = ctx;
	for (; n >= BLOCK; n -= BLOCK, p += BLOCK) {
		int32_t block = 0;
		for (size_t i = 0; i < BLOCK; i++)
			block += p[i] < 0 ? -p[i] : p[i];
		*sum += (uint32_t)block;
	}
	for (; n; n--, p++)
		*sum += (uint32_t)(*p < 0 ? -*p : *p);
}

typedef void row_walk(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx);

/* Small enough for 32 bits in a kernel, and zero where nothing is stored. */
static bool rows_good(const struct kvi_model *m, size_t n, row_walk *walk, int16_t *rows,
                      size_t stride, const uint8_t *q, int most)
{
	for (size_t c = 0; c < n; c++) {
		uint64_t stored = 0, all = 0;
		walk(m, c, add_absolute, &stored);
		add_absolute(&all, rows + c * stride, stride);
		if (q[c] > most || all > KVI_COEF_SUM_MAX || all != stored)
			return false;
	}
	return true;
}

static bool slot_good(const struct kvi_model *m, size_t c)
{
	size_t s = c % m->head_channels;
	if (s < m->rotary && s % 2 && m->step[c] != m->step[c - 1])
		return false;
	return m->step[c] >= KVI_STEP_MIN && m->step[c] <= KVI_STEP_MAX &&
	       m->k[c] >= -KVI_CLASS_MAX && m->k[c] <= KVI_CLASS_MAX &&
	       m->mean[c] >= -KVI_UNIT_MAX && m->mean[c] <= KVI_UNIT_MAX;
}

static bool width_good(const struct kvi_model *m)
{
	return m->width >= 1 && m->width <= KVI_CORRECTS_WIDTH_MAX;
}

bool kvi_model_values_good(const struct kvi_model *m)
{
	for (size_t c = 0; c < m->C; c++)
		if (!slot_good(m, c))
			return false;
	if (m->flags & KVI_MODEL_TABLE)
		for (size_t i = 1; i < m->n_ids; i++)
			if (m->ids[i - 1] >= m->ids[i])
				return false;
	return (!m->a_stride ||
	        rows_good(m, m->C, kvi_model_row_a, m->a, m->a_stride, m->qa, KVI_SHIFT_MAX)) &&
	       (!m->b_stride ||
	        rows_good(m, m->C, kvi_model_row_b, m->b, m->b_stride, m->qb, KVI_SHIFT_MAX)) &&
	       (!m->m_stride ||
	        rows_good(m, m->C, kvi_model_row_m, m->m, m->m_stride, m->qm, UINT8_MAX)) &&
	       (!m->d_stride ||
	        (width_good(m) && rows_good(m, m->width, kvi_model_row_d, m->d, m->d_stride, m->e,
	                                    KVI_CORRECTS_SHIFT_MAX)));
}
