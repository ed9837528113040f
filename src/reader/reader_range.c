/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_range.c - part of an archive: only the chunks that a range touches */
#include "reader_cover.h"
#include "reader_salvage.h"
#include "reader_stored.h"
#include "util/arguments.h"
#include "util/view.h"

static kvarc_ret past_tokens(kvarc_reader *r, uint32_t track, uint64_t tokens)
{
	kvi_fail(r->error, KVARC_GEOMETRY,
	         "track %u has %llu tokens, and the range ends behind them", (unsigned)track,
	         (unsigned long long)tokens);
	if (r->error) {
		r->error->track = track;
		r->error->tokens = tokens;
	}
	return kvi_reason(r->error, KVARC_REASON_PAST_TOKENS, KVARC_GEOMETRY);
}

static kvarc_ret past_layers(kvarc_reader *r, uint32_t layers)
{
	kvi_fail(r->error, KVARC_GEOMETRY,
	         "the cache has %u layers, and the range ends behind them", (unsigned)layers);
	if (r->error)
		r->error->layer = layers;
	return kvi_reason(r->error, KVARC_REASON_PAST_LAYERS, KVARC_GEOMETRY);
}

void kvi_range_of(kvarc_range *to, const kvarc_range *range)
{
	*to = *range;
	if (!range->layer0 && !range->n_layers && !range->t0 && !range->n) {
		to->n_layers = UINT32_MAX;
		to->n = UINT64_MAX;
	}
}

static kvarc_ret check_range(kvarc_reader *r, const kvarc_range *given, struct kvi_range *out)
{
	kvarc_range all, *range = &all;
	if (!given)
		return kvi_fail(r->error, KVARC_PROG, "the range is NULL");
	kvi_range_of(range, given);
	kvarc_ret ret = KVI_CHECK_RESERVED(r->error, "range", "kvarc_range", range);
	if (ret)
		return ret;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			r->error, KVARC_REASON_NEEDS_SEEK,
			kvi_reader_fail(
				r, KVARC_OPTIONS,
				"reading a range needs a source that can seek, not a pipe"));
	if (range->track >= r->geometry.n_tracks)
		return kvi_fail_track(r->error, range->track, r->geometry.n_tracks);
	uint64_t tokens = r->index.tokens[range->track];
	uint64_t n = range->n == UINT64_MAX && range->t0 <= tokens ? tokens - range->t0 : range->n;
	if (range->t0 > tokens || n > tokens - range->t0)
		return past_tokens(r, range->track, tokens);
	uint32_t layers = 0;
	for (size_t i = 0; i < r->geometry.n_tensors; i++)
		if (r->geometry.tensors[i].layer >= layers)
			layers = r->geometry.tensors[i].layer + 1;
	if (range->layer0 > layers || (range->layer0 == layers && layers && range->n_layers) ||
	    (range->n_layers != UINT32_MAX && range->n_layers > layers - range->layer0))
		return past_layers(r, layers);
	*out = (struct kvi_range){ range->track,
		                   range->layer0,
		                   range->n_layers == UINT32_MAX
		                           ? UINT64_MAX
		                           : (uint64_t)range->layer0 + range->n_layers,
		                   range->t0,
		                   range->t0 + n,
		                   NULL };
	return KVARC_OK;
}

/* Segments that are decoded together. */
enum { PARTS_MAX = 16 };

static struct kvi_view_block view_block(const kvarc_tensor *t, uint64_t row, uint32_t n,
                                        uint32_t head, uint32_t heads)
{
	return (struct kvi_view_block){ row, n, head * t->channels, heads * t->channels,
		                        (uint32_t)kvarc_dtype_bytes(t->dtype) };
}

/* Where a chunk can be decoded to without a copy: all of it is wanted, and the
 * view is packed. Salvage leaves views alone where a chunk is lost. */
static uint8_t *direct_to(const kvarc_reader *r, const struct kvi_range *g,
                          const struct kvi_decode_job *j)
{
	const struct kvi_chunk_ref *c = &j->ref;
	struct kvi_view_block b = view_block(&r->geometry.tensors[c->tensor], j->t0 - g->t0, j->n,
	                                     c->head, c->heads);
	return g->views && !r->salvage && j->count == j->n
	               ? kvi_view_packed(&g->views[c->tensor], &b)
	               : NULL;
}

static kvarc_ret submit(kvarc_reader *r, const struct kvi_range *g, const struct kvi_segment_ref *s,
                        const struct kvi_chunk_ref *c, struct kvi_part *p, uint32_t order_index,
                        kvarc_deliver deliver, void *opaque)
{
	struct kvi_params_use *use = NULL;
	struct kvi_decode_job *j;
	kvarc_ret ret = kvi_reader_job(r, &j);
	if (ret == KVARC_OK)
		ret = kvi_reader_params(r, &r->packer, c, &use, r->error);
	kvi_reader_assign(r, j, s, c, p->use, order_index);
	j->from = s->t0 + p->from;
	j->count = p->to - p->from;
	j->need_from = p->need_from;
	j->need_to = p->need_to;
	j->helpers = p->helpers;
	j->batch = p->cover ? r->batch : p->batch;
	if (ret == KVARC_DATA && r->salvage) {
		/* A chunk without order_index was marked as lost by the plan. */
		if (j->features)
			kvi_feature_table_leave(p->use->features, order_index);
		if (j->features && p->use->prediction)
			kvi_prediction_mark_lost(p->use->prediction, order_index, s->t0);
		return kvi_salvage_chunk(r, j);
	}
	if (ret)
		return ret;
	j->params = use;
	j->stored = kvi_stored_elements(p->use, c->tensor);
	j->direct = kvi_range_wants(r, g, c->tensor) ? direct_to(r, g, j) : NULL;
	j->deliver = !j->direct && kvi_range_wants(r, g, c->tensor) ? deliver : NULL;
	j->opaque = opaque;
	j->job.run = kvi_reader_run_job;
	kvi_reader_submit(r, j);
	return KVARC_OK;
}

/* Tensor and head as one number, ascending in the order of chunks. */
static uint64_t place_of(uint32_t tensor, uint32_t head)
{
	return (uint64_t)tensor << 32 | head;
}

/*
 * Salvage checks no order: a damaged file may have elements in two chunks. Then the chunks before
 * are finished first, so that two threads never deliver the same elements at once.
 */
static kvarc_ret finish_overlaps(kvarc_reader *r, const struct kvi_chunk_ref *c, struct kvi_part *p)
{
	bool ascends = place_of(c->tensor, c->head) >= p->covered;
	p->covered = place_of(c->tensor, c->head + c->heads);
	return r->salvage && !ascends ? kvi_reader_drain(r, KVARC_OK) : KVARC_OK;
}

/* Starts the next chunk of a segment that is needed. */
static kvarc_ret start_next(kvarc_reader *r, const struct kvi_range *g, struct kvi_part *p,
                            kvarc_deliver deliver, void *opaque)
{
	const struct kvi_segment_ref *s = p->s;
	while (p->next < p->end) {
		const struct kvi_chunk_ref chunk = kvi_segment_chunk(r, s, p->next++), *c = &chunk;
		uint32_t order_index = KVI_NO_ORDER_INDEX;
		struct kvi_feature_slot *slot = NULL;
		if (p->use && p->use->features &&
		    kvi_reader_order_index(r, s, c, &p->order_index, &order_index))
			slot = kvi_feature_slot(p->use->features, order_index);
		if (!kvi_range_wants(r, g, c->tensor) && !(slot && kvi_feature_slot_needed(slot)))
			continue;
		if (c->heads != r->geometry.tensors[c->tensor].heads)
			order_index = KVI_NO_ORDER_INDEX;
		kvarc_ret ret = p->cover && !s->stored
		                        ? kvi_cover(r, p->cover, p->index, p->next - 1)
		                        : KVARC_OK;
		if (ret == KVARC_OK)
			ret = finish_overlaps(r, c, p);
		return ret ? ret : submit(r, g, s, c, p, order_index, deliver, opaque);
	}
	return KVARC_OK;
}

bool kvi_range_touches(const kvarc_reader *r, const struct kvi_range *g,
                       const struct kvi_segment_ref *s)
{
	const uint64_t end = kvi_segment_chunks_end(r, s);
	for (uint64_t i = s->first; i < end; i++)
		if (kvi_range_wants(r, g, kvi_segment_chunk(r, s, i).tensor))
			return true;
	return false;
}

/*
 * Starts the chunks of several segments, of each one in turn: those of one
 * segment may wait for each other, those of different ones never do.
 */
static kvarc_ret start_parts(kvarc_reader *r, const struct kvi_range *g, struct kvi_part *parts,
                             size_t n, kvarc_deliver deliver, void *opaque)
{
	const unsigned workers = kvi_pool_workers(r->workers.pool);
	kvarc_ret ret = KVARC_OK;
	size_t left = 0;
	for (size_t i = 0; i < n && ret == KVARC_OK; i++) {
		struct kvi_part *p = &parts[i];
		ret = kvi_range_prepare(r, g, p);
		p->helpers = n < workers ? (unsigned)(workers / n) - 1 : 0;
		left += p->next < p->end;
	}
	while (left && ret == KVARC_OK) {
		left = 0;
		for (size_t i = 0; i < n && ret == KVARC_OK; i++) {
			ret = start_next(r, g, &parts[i], deliver, opaque);
			left += parts[i].next < parts[i].end;
		}
	}
	for (size_t i = 0; i < n; i++)
		kvi_segment_use_release(r, parts[i].use);
	return ret;
}

kvarc_ret kvi_reader_segment_chunks(kvarc_reader *r, const struct kvi_segment_ref *s,
                                    const struct kvi_range *g, kvarc_deliver deliver, void *opaque)
{
	struct kvi_part part = { .s = s };
	kvarc_ret ret = kvi_reader_start(r);
	if (ret == KVARC_OK && kvi_range_touches(r, g, s))
		ret = start_parts(r, g, &part, 1, deliver, opaque);
	return kvi_reader_drain(r, ret);
}

/* A model takes segments one after the other. */
static bool has_model(const struct kvi_reader_predictors *p)
{
	for (size_t i = 0; i < p->list.n; i++) {
		const struct kvi_predictor_ref *x = *KVI_LIST(struct kvi_predictor_ref *, p->list,
		                                              i);
		if (x->p.kind == KVI_PREDICTOR_MODEL)
			return true;
	}
	return false;
}

/* Where tensors wait for each other, workers need segments to be busy. */
unsigned kvi_reader_segments_at_once(const kvarc_reader *r)
{
	unsigned workers = r->options.common.threads;
	if (r->predictors.list.n == 0 || workers < 2)
		return 1;
	/* One that lies in a store is in memory as a whole. */
	if (has_model(&r->predictors) || r->index.stored.n)
		return 1;
	return workers < PARTS_MAX ? workers : PARTS_MAX;
}

/* Where a model that predicts a part of the range has to begin; the range's own
 * beginning when none does. */
static uint64_t model_begins(kvarc_reader *r, const struct kvi_range *g)
{
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		bool needed;
		if (!kvi_segment_has(s, g->track, g->t0, g->t_end))
			continue;
		struct kvi_predictor_ref *x = kvi_range_predictor(r, s, g, &needed);
		if (!x || x->p.kind != KVI_PREDICTOR_MODEL || kvi_reader_load_predictor(r, x, NULL))
			continue; /* the segment itself reports why it is not there */
		const struct kvi_prediction *at = x->sessions[g->track];
		uint64_t layers = at ? kvi_prediction_layers(at) : 0;
		bool goes_on = at && kvi_prediction_next(at) <= s->t0 &&
		               (layers >= g->layer_end ||
		                layers == kvi_predictor_shape(r->options.predictor)->layers);
		return goes_on ? kvi_prediction_next(at) : 0;
	}
	return g->t0;
}

struct kvi_range kvi_range_lead(kvarc_reader *r, const struct kvi_range *g)
{
	return (struct kvi_range){ g->track, 0, g->layer_end, model_begins(r, g), g->t0, NULL };
}

/* Takes a model through the segments before a range. */
static kvarc_ret lead_model(kvarc_reader *r, const struct kvi_range *g)
{
	const struct kvi_range lead = kvi_range_lead(r, g);
	const uint64_t from = lead.t0;
	struct kvi_cover cover = { .g = &lead };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		struct kvi_part part = { .s = s, .index = i, .cover = &cover };
		const struct kvi_range all = {
			g->track, 0, g->layer_end, s->t0, s->t0 + s->n, NULL
		};
		if (!kvi_segment_has(s, g->track, from, g->t0) || s->t0 + s->left > g->t0)
			continue;
		ret = kvi_cover(r, &cover, i, s->first);
		if (ret == KVARC_OK)
			ret = start_parts(r, &all, &part, 1, NULL, NULL);
		ret = kvi_reader_drain(r, ret);
		kvi_reader_cut_models(r, s);
	}
	return ret;
}

/*
 * As start_parts, with what they need in memory. A single part covers its later chunks when it
 * comes to them. Several take turns: all that they need comes before, in the two batches that
 * stay; what does not fit is read chunk by chunk.
 */
static kvarc_ret start_covered(kvarc_reader *r, struct kvi_cover *cover, struct kvi_part *parts,
                               size_t n, kvarc_deliver deliver, void *opaque)
{
	const size_t end = parts[n - 1].index + 1;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < n; i++)
		parts[i].batch = r->batch;
	if (n == 1) {
		parts->cover = cover;
		ret = kvi_cover(r, cover, parts->index, parts->s->first);
	} else if (cover->segment < end) {
		bool within = cover->segment > parts->index ||
		              (cover->segment == parts->index && cover->chunk);
		if (!within)
			ret = kvi_cover(r, cover, parts->index, 0);
		for (size_t i = 0; i < n; i++)
			parts[i].batch = r->batch;
		if (ret == KVARC_OK && cover->segment < end)
			ret = kvi_cover(r, cover, cover->segment, cover->chunk);
		if (cover->segment < end)
			*cover = (struct kvi_cover){ .g = cover->g, .segment = end };
	}
	return ret ? ret : start_parts(r, cover->g, parts, n, deliver, opaque);
}

static kvarc_ret read_range(kvarc_reader *r, const struct kvi_range *g, kvarc_deliver deliver,
                            void *opaque)
{
	struct kvi_part parts[PARTS_MAX];
	if (g->t0 == g->t_end)
		return KVARC_OK;
	kvarc_ret ret = kvi_reader_start(r);
	if (ret == KVARC_OK)
		ret = lead_model(r, g);
	struct kvi_cover cover = { .g = g };
	size_t n = 0, most = kvi_reader_segments_at_once(r);
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (!kvi_segment_has(s, g->track, g->t0, g->t_end) || !kvi_range_touches(r, g, s))
			continue;
		parts[n++] = (struct kvi_part){ .s = s, .index = i };
		if (n < most)
			continue;
		ret = start_covered(r, &cover, parts, n, deliver, opaque);
		if (has_model(&r->predictors))
			ret = kvi_reader_drain(r, ret);
		kvi_reader_cut_models(r, s);
		n = 0;
	}
	if (n && ret == KVARC_OK)
		ret = start_covered(r, &cover, parts, n, deliver, opaque);
	ret = kvi_reader_drain(r, ret);
	kvi_cover_end(r);
	return ret;
}

/* Views as a deliver. */
struct view_sink {
	const kvarc_geometry *geometry;
	const kvarc_view *views;
	uint64_t t0; /* token of row 0 */
};

static int deliver_views(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, const void *src)
{
	const struct view_sink *s = opaque;
	const kvarc_tensor *t = &s->geometry->tensors[tensor];
	struct kvi_view_block b = view_block(t, t0 - s->t0, n, head, heads);
	kvi_view_scatter(&s->views[tensor], &b, src);
	return 0;
}

kvarc_ret kvi_range_check(kvarc_reader *r, const kvarc_range *range, struct kvi_range *g)
{
	if (!r)
		return KVARC_PROG;
	return r->sticky ? r->sticky : check_range(r, range, g);
}

kvarc_ret kvarc_reader_read(kvarc_reader *r, const kvarc_range *range, const kvarc_view *views)
{
	struct kvi_range g;
	kvarc_ret ret = kvi_range_check(r, range, &g);
	if (ret)
		return ret;
	if (!views)
		return kvi_fail(r->error, KVARC_PROG, "kvarc_reader_read: views is NULL");
	for (uint32_t i = 0; i < r->geometry.n_tensors && !ret; i++)
		if (views[i].data && r->geometry.tensors[i].track == g.track &&
		    kvi_range_wants(r, &g, i))
			ret = kvi_check_view(r->error, "kvarc_reader_read", &views[i], i,
			                     &r->geometry.tensors[i], g.t_end - g.t0);
	if (ret)
		return ret;
	struct view_sink sink = { &r->geometry, views, g.t0 };
	g.views = views;
	return kvi_reader_set_error(r, read_range(r, &g, deliver_views, &sink));
}

kvarc_ret kvarc_reader_read_deliver(kvarc_reader *r, const kvarc_range *range,
                                    kvarc_deliver deliver, void *opaque)
{
	struct kvi_range g;
	kvarc_ret ret = kvi_range_check(r, range, &g);
	if (ret)
		return ret;
	if (!deliver)
		return kvi_fail(r->error, KVARC_PROG, "kvarc_reader_read_deliver: deliver is NULL");
	return kvi_reader_set_error(r, read_range(r, &g, deliver, opaque));
}

static kvarc_ret copy_tokens(kvarc_reader *r, const struct kvi_segment_ref *s,
                             const struct kvi_range *g, int32_t *ids, int32_t *positions)
{
	struct kvi_segment seg;
	uint64_t from = s->t0 > g->t0 ? s->t0 : g->t0;
	uint64_t end = s->t0 + s->left < g->t_end ? s->t0 + s->left : g->t_end;
	if (!s->offset)
		return kvi_fail_at(r->error, KVARC_DATA, KVARC_UNKNOWN, s->sequence,
		                   "the ids and positions of tokens from %llu on are lost",
		                   (unsigned long long)s->t0);
	kvarc_ret ret = kvi_reader_read_segment(r, &r->packer, s, &seg, r->error);
	if (!ret && ids)
		ret = kvi_reader_ids(r, kvi_reader_codes_ids(r, s->sequence), &seg, r->error);
	if (ret)
		return ret == KVARC_END ? KVARC_PREDICTOR : ret;
	if (ids && !seg.has_ids)
		return kvi_fail_at(r->error, KVARC_OPTIONS, s->offset, s->sequence,
		                   "token ids are not in the file");
	for (uint64_t t = from; t < end; t++) {
		if (ids)
			ids[t - g->t0] = seg.ids[t - s->t0];
		if (positions)
			positions[t - g->t0] = seg.positions[t - s->t0];
	}
	return KVARC_OK;
}

kvarc_ret kvarc_reader_read_tokens(kvarc_reader *r, uint32_t track, uint64_t t0, uint64_t n,
                                   int32_t *ids, int32_t *positions)
{
	const kvarc_range range = { .track = track, .n_layers = UINT32_MAX, .t0 = t0, .n = n };
	struct kvi_range g;
	kvarc_ret ret = kvi_range_check(r, &range, &g);
	if (ret)
		return ret;
	ret = kvi_cover_segments(r, &g);
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (kvi_segment_has(s, g.track, g.t0, g.t_end))
			ret = copy_tokens(r, s, &g, ids, positions);
	}
	kvi_cover_end(r);
	/* That a file holds no ids, or a model does, is an answer, not a failure. */
	return ret == KVARC_OPTIONS || ret == KVARC_PREDICTOR ? ret : kvi_reader_set_error(r, ret);
}
