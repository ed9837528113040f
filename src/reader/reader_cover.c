/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_cover.c - which frames a range needs: their plan, and reading them ahead */
#include "reader_cover.h"

/* Frames in the order of their use. */
struct frames {
	kvarc_reader *r;
	struct kvi_list *list; /* kvarc_byte_range */
	uint64_t bytes, most;
	bool failed; /* out of memory */
};

/* False: no more of them. */
static bool add_frame(struct frames *f, uint64_t offset, uint32_t bytes)
{
	const uint64_t size = f->r->in.source.size;
	if (!bytes || offset >= size)
		return true; /* read when it is used */
	if (bytes > size - offset)
		bytes = (uint32_t)(size - offset);
	if (f->bytes + bytes > f->most)
		return false;
	kvarc_byte_range *x = kvi_list_add(f->list, &f->r->alloc, sizeof *x);
	f->failed = !x;
	if (!x)
		return false;
	x->offset = offset;
	x->bytes = bytes;
	f->bytes += bytes;
	return true;
}

/* The PARAMS of a chunk, unless they are here. */
static bool add_params(struct frames *f, const struct kvi_chunk_ref *c)
{
	struct kvi_params_store *store = &f->r->workers.store;
	const struct kvi_params_ref *p = c->params && !c->linear
	                                         ? kvi_index_params(&f->r->index, c->params)
	                                         : NULL;
	struct kvi_params_use *use = p ? kvi_params_store_find(store, c->tensor, c->head, c->params)
	                               : NULL;
	if (use)
		kvi_params_store_release(store, use);
	return !p || use || add_frame(f, p->offset, p->bytes);
}

/* The embedded profile of a predictor, which then can say more; on its own: all of it is needed
 * before the first chunk. */
static kvarc_ret load_profile(kvarc_reader *r, struct kvi_predictor_ref *x)
{
	struct kvi_list list = { 0 };
	struct frames f = { .r = r, .list = &list, .most = kvi_ahead_budget(&r->ahead) };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < x->parts.n && x->p.embedded && !x->looked; i++) {
		const struct kvi_blob_ref *part = KVI_LIST(struct kvi_blob_ref, x->parts, i);
		if (!add_frame(&f, part->offset, part->bytes))
			break;
	}
	kvarc_byte_range *p = list.p;
	if (list.n && kvi_array_reserve(&r->alloc, &list.p, &list.cap, list.n,
	                                2 * list.n + r->ahead.blocks.n, sizeof *p)) {
		p = list.p;
		size_t n = kvi_ahead_join(&r->ahead, p, list.n, list.cap);
		ret = kvi_ahead_fetch(&r->ahead, &r->in.source, p, n, KVI_AHEAD_OPENING, r->error);
	}
	kvi_free(&r->alloc, list.p);
	if (!ret)
		(void)kvi_reader_load_predictor(r, x, NULL); /* its chunks report why not */
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_OPENING);
	return ret;
}

/* Whose features are needed in a segment. *features: to be closed, NULL: of none; all: that of all
 * tensors of the range's layers and below. */
static kvarc_ret find_needs(kvarc_reader *r, const struct kvi_range *g,
                            const struct kvi_segment_ref *s, struct kvi_feature_table **features,
                            bool *all)
{
	bool needed;
	struct kvi_segment_use use = { .known = true };
	struct kvi_predictor_ref *x = kvi_range_predictor(r, s, g, &needed);
	*features = NULL;
	*all = false;
	if (!needed || !x)
		x = kvi_range_passes_model(r, s, needed);
	if (!x)
		return KVARC_OK;
	kvarc_ret ret = load_profile(r, x);
	*all = x->p.kind == KVI_PREDICTOR_MODEL;
	if (ret || x->ret || *all || !x->plan)
		return ret;
	if (kvi_reader_open_features(r, s->track, x->plan, features, NULL))
		return KVARC_OK; /* reported where it is needed */
	use.features = *features;
	kvi_reader_plan_features(r, s, g, &use);
	return KVARC_OK;
}

/* What a segment needs, from a chunk on. *next: the first chunk that did not fit. */
static kvarc_ret add_segment(struct frames *f, const struct kvi_range *g,
                             const struct kvi_segment_ref *s, uint64_t chunk, uint64_t *next)
{
	kvarc_reader *r = f->r;
	struct kvi_feature_table *t;
	uint32_t at = r->order.first[s->track], order_index;
	bool all, fits = chunk > s->first || add_frame(f, s->offset, s->bytes);
	kvarc_ret ret = find_needs(r, g, s, &t, &all);
	for (*next = s->first; *next < s->end && fits && !ret; *next += fits) {
		const struct kvi_chunk_ref *c = KVI_LIST(struct kvi_chunk_ref, r->index.chunks,
		                                         *next);
		uint32_t layer = r->geometry.tensors[c->tensor].layer;
		bool wants = kvi_range_wants(r, g, c->tensor) || (all && layer < g->layer_end);
		if (t && kvi_reader_order_index(r, s, c, &at, &order_index))
			wants = wants || kvi_feature_slot_needed(kvi_feature_slot(t, order_index));
		if (wants && *next >= chunk)
			fits = add_params(f, c) && add_frame(f, c->offset, c->bytes);
	}
	kvi_feature_table_close(t);
	return ret;
}

/* Segments from one on, from a chunk on; c: up to where they fit. */
static kvarc_ret add_segments(struct frames *f, struct kvi_cover *c)
{
	const struct kvi_reader_index *x = &f->r->index;
	kvarc_ret ret = KVARC_OK;
	for (; c->segment < x->segments.n && !ret && !f->failed; c->segment++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, x->segments,
		                                           c->segment);
		uint64_t next = s->end;
		if (kvi_segment_has(s, c->g->track, c->g->t0, c->g->t_end) &&
		    kvi_range_touches(f->r, c->g, s))
			ret = add_segment(f, c->g, s, c->chunk, &next);
		c->chunk = next < s->end ? next : 0;
		if (next < s->end)
			break;
	}
	return ret;
}

/* Makes a list ascend and its ranges large. False: out of memory. */
static bool join(kvarc_reader *r, struct kvi_list *list)
{
	if (!list->n)
		return true;
	if (!kvi_array_reserve(&r->alloc, &list->p, &list->cap, list->n,
	                       2 * list->n + r->ahead.blocks.n, sizeof(kvarc_byte_range)))
		return false;
	list->n = kvi_ahead_join(&r->ahead, list->p, list->n, list->cap);
	return true;
}

static kvarc_ret fetch(kvarc_reader *r, struct frames *f)
{
	kvarc_ret ret = f->failed || !join(r, f->list) ? kvi_fail_alloc(r->error, &r->alloc)
	                                               : KVARC_OK;
	if (ret == KVARC_OK && f->list->n)
		ret = kvi_ahead_fetch(&r->ahead, &r->in.source, f->list->p, f->list->n,
		                      r->batch % 2 ? KVI_AHEAD_ODD : KVI_AHEAD_EVEN, r->error);
	return ret;
}

kvarc_ret kvi_cover(kvarc_reader *r, struct kvi_cover *c, size_t segment, uint64_t chunk)
{
	struct kvi_list list = { 0 };
	struct frames f = { .r = r, .list = &list };
	if (!r->in.ahead || segment < c->segment || (segment == c->segment && chunk < c->chunk))
		return KVARC_OK;
	c->segment = segment;
	c->chunk = chunk;
	r->batch++;
	kvarc_ret ret = r->batch > 1 ? kvi_reader_reap(r, r->batch - 2) : KVARC_OK;
	kvi_ahead_drop(&r->ahead, r->batch % 2 ? KVI_AHEAD_ODD : KVI_AHEAD_EVEN);
	f.most = kvi_ahead_budget(&r->ahead);
	if (ret == KVARC_OK)
		ret = add_segments(&f, c);
	if (ret == KVARC_OK)
		ret = fetch(r, &f);
	kvi_free(&r->alloc, list.p);
	/* A frame that does not fit alone is read when it is used. */
	if (c->segment == segment && c->chunk <= chunk)
		c->chunk = chunk + 1;
	return ret;
}

kvarc_ret kvi_cover_segments(kvarc_reader *r, const struct kvi_range *g)
{
	struct kvi_list list = { 0 };
	struct frames f = { .r = r, .list = &list };
	if (!r->in.ahead)
		return KVARC_OK;
	r->batch++;
	kvi_cover_end(r);
	f.most = kvi_ahead_budget(&r->ahead);
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (kvi_segment_has(s, g->track, g->t0, g->t_end) &&
		    !add_frame(&f, s->offset, s->bytes))
			break;
	}
	kvarc_ret ret = fetch(r, &f);
	kvi_free(&r->alloc, list.p);
	return ret;
}

void kvi_cover_end(kvarc_reader *r)
{
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_EVEN);
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_ODD);
}

kvarc_ret kvarc_reader_plan(kvarc_reader *r, const kvarc_range *range, const kvarc_view *views,
                            const kvarc_byte_range **ranges, size_t *n)
{
	struct kvi_range g, lead;
	if (ranges)
		*ranges = NULL;
	if (n)
		*n = 0;
	kvarc_ret ret = kvi_range_check(r, range, &g);
	if (ret)
		return ret;
	if (!ranges || !n)
		return kvi_fail(r->error, KVARC_PROG, "kvarc_reader_plan: ranges or n is NULL");
	r->plan.n = 0;
	if (!r->in.ahead)
		return KVARC_OK;
	g.views = views;
	struct frames f = { .r = r, .list = &r->plan, .most = UINT64_MAX / 2 };
	struct kvi_cover c = { .g = &lead };
	lead = kvi_range_lead(r, &g);
	if (lead.t0 < lead.t_end)
		ret = add_segments(&f, &c);
	c = (struct kvi_cover){ .g = &g };
	if (ret == KVARC_OK && g.t0 < g.t_end)
		ret = add_segments(&f, &c);
	if (ret == KVARC_OK && (f.failed || !join(r, &r->plan)))
		ret = kvi_fail_alloc(r->error, &r->alloc);
	if (ret)
		return kvi_reader_set_error(r, ret);
	*ranges = r->plan.n ? r->plan.p : NULL;
	*n = r->plan.n;
	return KVARC_OK;
}
