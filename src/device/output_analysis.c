/* SPDX-License-Identifier: BSD-3-Clause */
/* output_analysis.c - inverses of the bases of codec klt among the constants of a plan */
#include "config.h"

#include "plan_state.h"

#include "codecs/had/had.h"
#include "util/error.h"
#include "util/fpmode.h"

/* Makes it in memory of its own. *good: it can be computed. */
static kvarc_ret make(struct kvarc_device_plan *p, const struct kvi_model *m,
                      struct kvi_klt_analysis *a, bool *good)
{
	const struct kvi_alloc *alloc = &p->d->alloc;
	a->rows = kvi_array(alloc, m->C * m->m_stride, sizeof *a->rows);
	a->unit = kvi_array(alloc, m->C, sizeof *a->unit);
	a->turned = kvi_array(alloc, m->head_channels * m->m_stride, sizeof *a->turned);
	a->gain = kvi_array(alloc, (size_t)m->head_channels + KVI_LANES, sizeof *a->gain);
	if (!a->rows || !a->unit || !a->turned || !a->gain)
		return kvi_fail_alloc(p->d->error, alloc);
	const uint64_t mode = kvi_fp_exact();
	*good = kvi_klt_analysis_make(a, m, 0);
	kvi_fp_restore(mode);
	return KVARC_OK;
}

/* Adds it: *at is the offset of its matrix, the units are behind that. */
static kvarc_ret add(struct kvarc_device_plan *p, const struct kvi_model *m, uint64_t *at)
{
	struct kvi_klt_analysis a = { 0 };
	uint64_t unit;
	bool good = false;
	kvarc_ret ret = make(p, m, &a, &good);
	*at = 0;
	if (!ret && good) {
		uint8_t *to = kvi_plan_reserve(p, kvi_gpu_basis_bytes(m), at);
		if (to)
			kvi_gpu_basis_fill(m, a.rows, to);
		to = to ? kvi_plan_reserve(p, m->C * sizeof *a.unit, &unit) : NULL;
		if (to)
			memcpy(to, a.unit, m->C * sizeof *a.unit);
		else
			ret = kvi_fail_alloc(p->d->error, &p->d->alloc);
	}
	kvi_free(&p->d->alloc, a.rows);
	kvi_free(&p->d->alloc, a.unit);
	kvi_free(&p->d->alloc, a.turned);
	kvi_free(&p->d->alloc, a.gain);
	return ret;
}

kvarc_ret kvi_plan_add_analysis(struct kvarc_device_plan *p, const struct kvi_model *m,
                                struct kvi_gpu_quantiser *q)
{
	struct kvi_model_constants *x = NULL;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = p->analyses.n; i-- > 0 && !x;) {
		x = KVI_LIST(struct kvi_model_constants, p->analyses, i);
		x = x->model == m ? x : NULL;
	}
	if (!x) {
		uint64_t at;
		ret = add(p, m, &at);
		x = ret ? NULL : kvi_list_add(&p->analyses, &p->d->alloc, sizeof *x);
		if (!x)
			return ret ? ret : kvi_fail_alloc(p->d->error, &p->d->alloc);
		*x = (struct kvi_model_constants){ m, at };
	}
	q->analysis = x->at;
	q->gains = x->at ? x->at + kvi_part_aligned(kvi_gpu_basis_bytes(m)) : 0;
	return KVARC_OK;
}
