/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_plan.c - finds the models of tensors and their sources in the same track */
#include "linear_plan.h"

#include "format/segment.h"

/* What the search for sources goes through. */
struct planning {
	const kvarc_geometry *g;
	const struct kvi_order *order;
	struct kvi_linear_plan *plan;
	uint32_t first, end; /* the track's indices in the order of chunks */
};

static const kvarc_tensor *tensor_at(const struct planning *p, uint32_t place)
{
	return &p->g->tensors[p->order->tensors[place]];
}

/* The first place of a layer and kind, or behind it. */
static uint32_t place_of(const struct planning *p, uint32_t layer, unsigned kind)
{
	uint32_t lo = p->first, hi = p->end;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const kvarc_tensor *t = tensor_at(p, mid);
		if (t->layer < layer || (t->layer == layer && t->kind < kind))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The tensor that a source means: the first of its layer and kind that has the
 * source's model. False: there is none. */
static bool find_source(const struct planning *p, const struct kvi_model *m, bool whole,
                        uint32_t *place)
{
	for (uint32_t i = place_of(p, m->layer, m->kind); i < p->end; i++) {
		const kvarc_tensor *t = tensor_at(p, i);
		if (t->layer != m->layer || t->kind != m->kind)
			return false;
		*place = i;
		if (p->plan->of[i].model == m)
			return !whole || p->plan->of[i].complete;
	}
	return false;
}

static bool find_sources(const struct planning *p, struct kvi_planned *x)
{
	const struct kvi_model *m = x->model;
	for (unsigned i = 0; i < m->n_lower; i++)
		if (!find_source(p, m->lower[i].model, false, &x->lower[i]))
			return false;
	for (unsigned i = 0; i < m->n_same; i++)
		if (!find_source(p, m->same[i].model, true, &x->same[i]))
			return false;
	return !m->scale_source || find_source(p, m->scale_source, true, &x->scale);
}

static void plan_track(struct planning *p, const struct kvi_profile *profile, unsigned level,
                       uint64_t chunk_max)
{
	for (uint32_t i = p->first; i < p->end; i++) {
		const kvarc_tensor *t = tensor_at(p, i);
		const struct kvi_model *m = kvi_profile_model(profile, level, t->layer, t->kind);
		if (m && (uint64_t)kvi_tensor_bytes(t) * KVI_SEGMENT_TOKENS <= chunk_max &&
		    kvi_model_fits(m, t, kvi_tensor_rope(p->g, t)))
			p->plan->of[i].model = m;
	}
	/* Sources come before what is predicted from them. */
	for (uint32_t i = p->first; i < p->end; i++) {
		struct kvi_planned *x = &p->plan->of[i];
		x->complete = x->model && find_sources(p, x);
		p->plan->n_complete += x->complete;
	}
}

kvarc_ret kvi_linear_plan_make(struct kvi_linear_plan **out, const struct kvi_alloc *alloc,
                               const struct kvi_profile *profile, unsigned level,
                               const kvarc_geometry *g, const struct kvi_order *order,
                               uint64_t chunk_max)
{
	struct kvi_linear_plan *plan =
		kvi_calloc(alloc, 1, sizeof *plan + g->n_tensors * sizeof(struct kvi_planned));
	*out = plan;
	if (!plan)
		return kvi_alloc_error(alloc);
	plan->profile = profile;
	for (size_t i = 0; i < g->n_tracks; i++) {
		struct planning p = { g, order, plan, order->first[i], order->first[i + 1] };
		plan_track(&p, profile, level, chunk_max);
	}
	return KVARC_OK;
}
