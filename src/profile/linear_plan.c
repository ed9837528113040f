/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_plan.c - finds the models of tensors and their sources in the same track */
#include "linear_plan.h"

#include "format/segment.h"

/* The arguments of the search for models and sources in a track. */
struct planning {
	const kvarc_geometry *g;
	const struct kvi_order *order;
	struct kvi_linear_plan *plan;
	uint32_t first, end; /* the track's indices in the order of chunks */
};

static const kvarc_tensor *tensor_at(const struct planning *planning, uint32_t place)
{
	return &planning->g->tensors[planning->order->tensors[place]];
}

/* The first place of a layer and kind, or behind it. */
static uint32_t place_of(const struct planning *planning, uint32_t layer, unsigned kind)
{
	uint32_t lo = planning->first, hi = planning->end;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const kvarc_tensor *t = tensor_at(planning, mid);
		if (t->layer < layer || (t->layer == layer && t->kind < kind))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The tensor that a source means: the first of its layer and kind that has the
 * source's model. False: there is none. */
static bool find_source(const struct planning *planning, const struct kvi_model *model, bool whole,
                        uint32_t *place)
{
	for (uint32_t i = place_of(planning, model->layer, model->kind); i < planning->end; i++) {
		const kvarc_tensor *t = tensor_at(planning, i);
		if (t->layer != model->layer || t->kind != model->kind)
			return false;
		*place = i;
		if (planning->plan->of[i].model == model)
			return !whole || planning->plan->of[i].complete;
	}
	return false;
}

static bool find_sources(const struct planning *planning, struct kvi_planned *planned)
{
	const struct kvi_model *m = planned->model;
	for (unsigned i = 0; i < m->n_lower; i++)
		if (!find_source(planning, m->lower[i].model, false, &planned->lower[i]))
			return false;
	for (unsigned i = 0; i < m->n_same; i++)
		if (!find_source(planning, m->same[i].model, true, &planned->same[i]))
			return false;
	return !m->scale_source || find_source(planning, m->scale_source, true, &planned->scale);
}

static void plan_track(struct planning *planning, const struct kvi_profile *profile, unsigned level,
                       uint64_t chunk_max)
{
	for (uint32_t i = planning->first; i < planning->end; i++) {
		const kvarc_tensor *t = tensor_at(planning, i);
		const struct kvi_model *m = kvi_profile_model(profile, level, t->layer, t->kind);
		if (m && (uint64_t)kvi_tensor_bytes(t) * KVI_SEGMENT_TOKENS <= chunk_max &&
		    kvi_model_fits(m, t, kvi_tensor_rope(planning->g, t)))
			planning->plan->of[i].model = m;
	}
	/* Sources come before the tensors that are predicted from them. */
	for (uint32_t i = planning->first; i < planning->end; i++) {
		struct kvi_planned *x = &planning->plan->of[i];
		x->complete = x->model && find_sources(planning, x);
		planning->plan->n_complete += x->complete;
	}
}

kvarc_ret kvi_linear_plan_make(struct kvi_linear_plan **out, const struct kvi_alloc *alloc,
                               const struct kvi_profile *profile, unsigned level,
                               const kvarc_geometry *geometry, const struct kvi_order *order,
                               uint64_t chunk_max)
{
	struct kvi_linear_plan *plan = kvi_calloc(
		alloc, 1, sizeof *plan + geometry->n_tensors * sizeof(struct kvi_planned));
	*out = plan;
	if (!plan)
		return kvi_alloc_error(alloc);
	plan->profile = profile;
	for (size_t i = 0; i < geometry->n_tracks; i++) {
		struct planning p = { geometry, order, plan, order->first[i], order->first[i + 1] };
		plan_track(&p, profile, level, chunk_max);
	}
	return KVARC_OK;
}
