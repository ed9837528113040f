/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_range.c - part of an archive: which chunks a range needs, and how it gets them */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "reader_decode.h"
#include "reader_ids.h"
#include "reader_lists.h"
#include "reader_prediction.h"
#include "reader_range.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "util/arguments.h"
#include "util/view.h"

/* ==== What a range needs of a segment: predictors, features, tokens ==== */

/* How far a range is read ahead, in the order of the index: what it needs up to a chunk is in
 * memory, as far as memory allows, or was. segment 0, chunk 0: nothing yet. */
struct ahead {
	const struct kvi_range *range;
	size_t segment; /* first segment that is not read ahead, from this chunk on */
	uint64_t chunk;
};

/* A segment whose chunks are being decoded for a range; s is set by the caller. */
struct segment_part {
	const struct kvi_segment_ref *s;
	struct kvi_segment_use *use;
	uint64_t next, end;          /* chunks (kvi_segment_chunk) */
	uint32_t order_index;        /* from which to look for the next chunk */
	uint64_t last_place;         /* the end of the last chunk (place_of) */
	uint32_t from, to;           /* tokens of the segment that the range has */
	uint32_t need_from, need_to; /* tokens that are needed of each chunk; need_to 0: all */
	unsigned helpers;            /* workers that wait while one of its chunks is decoded */
	size_t index;                /* index of s */
	struct ahead *ahead;         /* NULL, or what to read ahead before each chunk */
	unsigned batch;              /* without it: first batch with frames of s */
};

/* The predictor of a segment if a wanted chunk needs one. NULL: *needed is false, or it is lost. */
static struct kvi_predictor_ref *range_predictor(kvarc_reader *r,
                                                 const struct kvi_segment_ref *segment,
                                                 const struct kvi_range *range, bool *needed)
{
	*needed = false;
	for (uint64_t i = segment->first; i < segment->end; i++) {
		const struct kvi_chunk_ref c = kvi_segment_chunk(r, segment, i);
		if (!c.linear || !kvi_range_wants(r, range, c.tensor))
			continue;
		*needed = true;
		return kvi_reader_find_predictor(r, c.params);
	}
	return NULL;
}

/* The predictor of a segment, if it is a model. */
static struct kvi_predictor_ref *model_before(const struct kvi_reader_predictors *predictors,
                                              const struct kvi_segment_ref *segment)
{
	struct kvi_predictor_ref *x = kvi_reader_predictor_before(predictors, segment->sequence);
	return x && x->p.kind == KVI_PREDICTOR_MODEL ? x : NULL;
}

/* Whether the model predicts tensors of a track: it has their layers and shapes. */
static bool can_predict(const kvarc_reader *r, const struct kvi_predictor_ref *predictor,
                        uint32_t track)
{
	const struct kvi_prediction_options o = kvi_reader_prediction_options(r, predictor, track);
	return predictor->sessions[track] || !kvi_prediction_fits(&o, NULL);
}

/* Whether a model that no chunk of the segment needs can pass the segment. */
static bool is_at(const struct kvi_predictor_ref *predictor, const struct kvi_segment_ref *segment)
{
	const struct kvi_prediction *g = predictor->sessions[segment->track];
	return segment->t0 == 0 || (g && kvi_prediction_next(g) == segment->t0);
}

/* The model that goes through a segment although no chunk needs it (needed is false); NULL: there
 * is none. */
static struct kvi_predictor_ref *
range_passes_model(kvarc_reader *r, const struct kvi_segment_ref *segment, bool needed)
{
	struct kvi_predictor_ref *y = needed ? NULL : model_before(&r->predictors, segment);
	return y && !kvi_reader_load_predictor(r, y, NULL) && is_at(y, segment) &&
	                       can_predict(r, y, segment->track)
	               ? y
	               : NULL;
}

/* The segment, with the features of its tensors if there are any. */
static kvarc_ret load_segment(kvarc_reader *r, const struct kvi_segment_ref *segment,
                              const struct kvi_range *range, struct kvi_segment_use **use)
{
	bool needed;
	struct kvi_predictor_ref *predictor = range_predictor(r, segment, range, &needed);
	/* Only its payload says whether a chunk needs positions: they are always read. */
	kvarc_ret ret = kvi_segment_use_load(r, &r->packer, segment, use, r->error);
	/* A model passes all segments, also where no chunk needs it; but it is not run over the
	 * earlier tokens for a range that does not need it at all. */
	struct kvi_predictor_ref *passes = range_passes_model(r, segment, needed);
	predictor = passes ? passes : predictor;
	if (ret || !(needed || passes))
		return ret;
	ret = kvi_reader_predict(r, predictor, segment->track, range->layer_end, *use);
	if (!ret && (*use)->features)
		kvi_reader_plan_features(r, segment, range, *use);
	/* A damaged profile is the loss of the chunks; a missing one is an error, as the caller
	 * can give it. */
	if (ret || !(*use)->predictor_ret || ((*use)->predictor_ret == KVARC_DATA && r->salvage))
		return ret;
	if (r->error)
		*r->error = (*use)->predictor_error;
	return (*use)->predictor_ret;
}

/*
 * The most tokens that a stream of a chunk has whose features others need, or that needs those of
 * others. Its frame is not verified yet: its job finds out if the header is not as it was.
 */
static size_t stream_tokens(kvarc_reader *r, const struct kvi_chunk_ref *chunk)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES];
	struct kvi_chunk_header h;
	struct kvi_frame f;
	if (kvi_frame_peek(&r->in, chunk->offset, head, KVI_CHUNK_HEADER_BYTES, &f, NULL) ||
	    !kvi_chunk_header_parse(&h, f.payload, f.head.payload_bytes) ||
	    !kvi_codec_has_streams(h.codec) || kvi_codec_uses_prediction(h.codec))
		return KVI_SEGMENT_TOKENS;
	return (size_t)KVI_SMALLEST_STREAM << h.cut.stream_size;
}

/*
 * The tokens that chunks need that are predicted from each other: whole streams, of the chunk that
 * has the longest ones, so that each chunk has what those that are predicted from it need.
 */
static void plan_tokens(kvarc_reader *r, const struct kvi_range *range, struct segment_part *part)
{
	struct kvi_feature_table *t = part->use->features;
	uint32_t at = t->first, order_index;
	size_t tokens = KVI_SMALLEST_STREAM;
	for (uint64_t i = part->s->first; i < part->s->end && tokens < part->s->n; i++) {
		const struct kvi_chunk_ref chunk = kvi_segment_chunk(r, part->s, i), *c = &chunk;
		if (!kvi_reader_order_index(r, part->s, c, &at, &order_index) || !c->linear ||
		    !(kvi_range_wants(r, range, c->tensor) ||
		      kvi_feature_slot_needed(kvi_feature_slot(t, order_index))))
			continue;
		size_t n = stream_tokens(r, c);
		tokens = n > tokens ? n : tokens;
	}
	part->need_from = (uint32_t)(part->from / tokens * tokens);
	part->need_to = (uint32_t)((part->to + tokens - 1) / tokens * tokens);
	part->need_to = part->need_to < part->s->n ? part->need_to : part->s->n;
}

/* Fills all of part but `helpers`: reads the segment, loads what predicts it, and finds the tokens
 * that are needed. The caller releases part->use, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, PREDICTOR, IO. */
static kvarc_ret range_prepare(kvarc_reader *r, const struct kvi_range *range,
                               struct segment_part *part)
{
	const struct kvi_segment_ref *s = part->s;
	const uint64_t end = s->t0 + s->left < range->t_end ? s->t0 + s->left : range->t_end;
	part->next = s->first;
	part->end = kvi_segment_chunks_end(r, s);
	part->order_index = r->order.first[s->track];
	part->from = s->t0 < range->t0 ? (uint32_t)(range->t0 - s->t0) : 0;
	part->to = (uint32_t)(end - s->t0);
	part->need_from = part->need_to = 0;
	kvarc_ret ret = load_segment(r, s, range, &part->use);
	if (ret || part->use->prediction || (part->from == 0 && part->to == s->n))
		return ret;
	part->need_from = part->from;
	part->need_to = part->to;
	if (part->use->features)
		plan_tokens(r, range, part);
	return KVARC_OK;
}

/* ==== Which frames a range needs: their plan, and reading them ahead ==== */

/* Frames in the order of their use. */
struct frames {
	kvarc_reader *r;
	struct kvi_list *list; /* kvarc_byte_range */
	uint64_t bytes, most;
	bool failed; /* out of memory */
};

/* False: no more frames fit, or out of memory (failed). */
static bool add_frame(struct frames *frames, uint64_t offset, uint32_t bytes)
{
	const uint64_t size = frames->r->in.source.size;
	if (!bytes || offset >= size)
		return true; /* the frame is read when it is used */
	if (bytes > size - offset)
		bytes = (uint32_t)(size - offset);
	if (frames->bytes + bytes > frames->most)
		return false;
	kvarc_byte_range *x = kvi_list_add(frames->list, &frames->r->alloc, sizeof *x);
	frames->failed = !x;
	if (!x)
		return false;
	x->offset = offset;
	x->bytes = bytes;
	frames->bytes += bytes;
	return true;
}

/* The PARAMS of a chunk, unless they are here. */
static bool add_params(struct frames *frames, const struct kvi_chunk_ref *chunk)
{
	struct kvi_params_store *store = &frames->r->workers.store;
	const struct kvi_params_ref *p =
		chunk->params && !chunk->linear ? kvi_index_params(&frames->r->index, chunk->params)
						: NULL;
	struct kvi_params_use *use = p ? kvi_params_store_find(store,
	                                                       kvi_chunk_named(frames->r, chunk),
	                                                       chunk->head, chunk->params)
	                               : NULL;
	if (use)
		kvi_params_store_release(store, use);
	return !p || use || add_frame(frames, p->offset, p->bytes);
}

/* The embedded profile of a predictor, which then can say more; on its own: all of it is needed
 * before the first chunk. */
static kvarc_ret load_profile(kvarc_reader *r, struct kvi_predictor_ref *predictor)
{
	struct kvi_list list = { 0 };
	struct frames f = { .r = r, .list = &list, .most = kvi_ahead_budget(&r->ahead) };
	for (size_t i = 0; i < predictor->parts.n && predictor->p.embedded && !predictor->looked;
	     i++) {
		const struct kvi_blob_ref *part = KVI_LIST(struct kvi_blob_ref, predictor->parts,
		                                           i);
		if (!add_frame(&f, part->offset, part->bytes))
			break;
	}
	kvarc_ret ret = kvi_ahead_read(&r->ahead, &r->in.source, &list, KVI_AHEAD_OPENING,
	                               r->error);
	kvi_free(&r->alloc, list.p);
	if (!ret)
		(void)kvi_reader_load_predictor(r, predictor, NULL); /* chunks report a failure */
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_OPENING);
	return ret;
}

/* Finds the chunks of a segment whose features a range needs. *features: the caller closes it;
 * NULL: none. *all: those of all tensors of the range's layers and below. */
static kvarc_ret find_needs(kvarc_reader *r, const struct kvi_range *range,
                            const struct kvi_segment_ref *segment,
                            struct kvi_feature_table **features, bool *all)
{
	bool needed;
	struct kvi_segment_use use = { .known = true };
	struct kvi_predictor_ref *x = range_predictor(r, segment, range, &needed);
	*features = NULL;
	*all = false;
	if (!needed || !x)
		x = range_passes_model(r, segment, needed);
	if (!x)
		return KVARC_OK;
	kvarc_ret ret = load_profile(r, x);
	*all = x->p.kind == KVI_PREDICTOR_MODEL;
	if (ret || x->ret || *all || !x->plan)
		return ret;
	if (kvi_reader_open_features(r, segment->track, x->plan, features, NULL))
		return KVARC_OK; /* decoding reports the failure */
	use.features = *features;
	kvi_reader_plan_features(r, segment, range, &use);
	return KVARC_OK;
}

/* Adds the frames that a segment needs, from a chunk on. *next: first chunk that did not fit. */
static kvarc_ret add_segment(struct frames *frames, const struct kvi_range *range,
                             const struct kvi_segment_ref *segment, uint64_t chunk, uint64_t *next)
{
	kvarc_reader *r = frames->r;
	struct kvi_feature_table *t;
	uint32_t at = r->order.first[segment->track], order_index;
	bool all,
		fits = chunk > segment->first || add_frame(frames, segment->offset, segment->bytes);
	kvarc_ret ret = find_needs(r, range, segment, &t, &all);
	for (*next = segment->first; *next < segment->end && fits && !ret; *next += fits) {
		const struct kvi_chunk_ref ref = kvi_segment_chunk(r, segment, *next), *c = &ref;
		uint32_t layer = r->geometry.tensors[c->tensor].layer;
		bool wants = kvi_range_wants(r, range, c->tensor) ||
		             (all && layer < range->layer_end);
		if (t && kvi_reader_order_index(r, segment, c, &at, &order_index))
			wants = wants || kvi_feature_slot_needed(kvi_feature_slot(t, order_index));
		if (wants && *next >= chunk)
			fits = add_params(frames, c) && add_frame(frames, c->offset, c->bytes);
	}
	kvi_feature_table_close(t);
	return ret;
}

/* Whether a range has a chunk of a segment. */
static bool range_touches(const kvarc_reader *r, const struct kvi_range *range,
                          const struct kvi_segment_ref *segment)
{
	const uint64_t end = kvi_segment_chunks_end(r, segment);
	for (uint64_t i = segment->first; i < end; i++)
		if (kvi_range_wants(r, range, kvi_segment_chunk(r, segment, i).tensor))
			return true;
	return false;
}

/* Adds frames of segments from the position of ahead on; moves it to the first that did not fit. */
static kvarc_ret add_segments(struct frames *frames, struct ahead *ahead)
{
	const struct kvi_reader_index *x = &frames->r->index;
	kvarc_ret ret = KVARC_OK;
	for (; ahead->segment < x->segments.n && !ret && !frames->failed; ahead->segment++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, x->segments,
		                                           ahead->segment);
		uint64_t next = s->end;
		if (kvi_segment_has(s, ahead->range->track, ahead->range->t0,
		                    ahead->range->t_end) &&
		    range_touches(frames->r, ahead->range, s))
			ret = add_segment(frames, ahead->range, s, ahead->chunk, &next);
		ahead->chunk = next < s->end ? next : 0;
		if (next < s->end)
			break;
	}
	return ret;
}

static kvarc_ret fetch(kvarc_reader *r, struct frames *frames)
{
	return frames->failed
	               ? kvi_fail_alloc(r->error, &r->alloc)
	               : kvi_ahead_read(&r->ahead, &r->in.source, frames->list,
	                                r->batch % 2 ? KVI_AHEAD_ODD : KVI_AHEAD_EVEN, r->error);
}

/*
 * Reads ahead the chunks of the segment with this index, from `chunk` on, and as many behind them
 * as fit, unless that was done. The batch before the last one is dropped once its jobs are done.
 * Only a failure to read counts; damage is found where a frame is used. Returns OK, MEM, IO, and
 * what jobs returned.
 */
static kvarc_ret read_ahead(kvarc_reader *r, struct ahead *ahead, size_t segment, uint64_t chunk)
{
	struct kvi_list list = { 0 };
	struct frames f = { .r = r, .list = &list };
	if (!r->in.ahead || segment < ahead->segment ||
	    (segment == ahead->segment && chunk < ahead->chunk))
		return KVARC_OK;
	ahead->segment = segment;
	ahead->chunk = chunk;
	r->batch++;
	kvarc_ret ret = r->batch > 1 ? kvi_reader_reap(r, r->batch - 2) : KVARC_OK;
	kvi_ahead_drop(&r->ahead, r->batch % 2 ? KVI_AHEAD_ODD : KVI_AHEAD_EVEN);
	f.most = kvi_ahead_budget(&r->ahead);
	if (ret == KVARC_OK)
		ret = add_segments(&f, ahead);
	if (ret == KVARC_OK)
		ret = fetch(r, &f);
	kvi_free(&r->alloc, list.p);
	/* A frame that does not fit alone is read when it is used. */
	if (ahead->segment == segment && ahead->chunk <= chunk)
		ahead->chunk = chunk + 1;
	return ret;
}

/* Drops all batches; no job is under way. */
static void drop_ahead(kvarc_reader *r)
{
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_EVEN);
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_ODD);
}

/* Reads the SEGMENT frames of a range ahead, as far as memory allows. Returns OK, MEM, IO. */
static kvarc_ret read_segments_ahead(kvarc_reader *r, const struct kvi_range *range)
{
	struct kvi_list list = { 0 };
	struct frames f = { .r = r, .list = &list };
	if (!r->in.ahead)
		return KVARC_OK;
	r->batch++;
	drop_ahead(r);
	f.most = kvi_ahead_budget(&r->ahead);
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (kvi_segment_has(s, range->track, range->t0, range->t_end) &&
		    !add_frame(&f, s->offset, s->bytes))
			break;
	}
	kvarc_ret ret = fetch(r, &f);
	kvi_free(&r->alloc, list.p);
	return ret;
}

/* The token at which a model that predicts a part of the range has to begin; the first token of
 * the range when none does. */
static uint64_t model_begins(kvarc_reader *r, const struct kvi_range *range)
{
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		bool needed;
		if (!kvi_segment_has(s, range->track, range->t0, range->t_end))
			continue;
		struct kvi_predictor_ref *x = range_predictor(r, s, range, &needed);
		if (!x || x->p.kind != KVI_PREDICTOR_MODEL || kvi_reader_load_predictor(r, x, NULL))
			continue; /* the segment itself reports why the model is missing */
		const struct kvi_prediction *at = x->sessions[range->track];
		uint64_t layers = at ? kvi_prediction_layers(at) : 0;
		bool goes_on = at && kvi_prediction_next(at) <= s->t0 &&
		               (layers >= range->layer_end ||
		                layers == kvi_predictor_shape(r->options.predictor)->layers);
		return goes_on ? kvi_prediction_next(at) : 0;
	}
	return range->t0;
}

/* Begins a range. before: the tokens and layers through which a model goes before it comes to the
 * range; its t0 is its t_end where there is none. */
static kvarc_ret begin_range(kvarc_reader *r, const struct kvi_range *range,
                             struct kvi_range *before)
{
	*before = (struct kvi_range){ .track = range->track };
	kvarc_ret ret = kvi_reader_list_range(r, range->track, range->t0, range->t_end);
	if (ret)
		return ret;
	*before = (struct kvi_range){ range->track,           0,         range->layer_end,
		                      model_begins(r, range), range->t0, NULL };
	return before->t0 < before->t_end
	               ? kvi_reader_list_range(r, before->track, before->t0, before->t_end)
	               : KVARC_OK;
}

kvarc_ret kvarc_reader_plan(kvarc_reader *r, const kvarc_range *range, const kvarc_view *views,
                            const kvarc_byte_range **ranges, size_t *n)
{
	struct kvi_range g, before;
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
	struct ahead c = { .range = &before };
	ret = begin_range(r, &g, &before);
	if (ret == KVARC_OK && before.t0 < before.t_end)
		ret = add_segments(&f, &c);
	c = (struct ahead){ .range = &g };
	if (ret == KVARC_OK && g.t0 < g.t_end)
		ret = add_segments(&f, &c);
	if (ret == KVARC_OK && (f.failed || !kvi_ahead_join_list(&r->ahead, &r->plan)))
		ret = kvi_fail_alloc(r->error, &r->alloc);
	if (ret)
		return kvi_reader_set_error(r, ret);
	*ranges = r->plan.n ? r->plan.p : NULL;
	*n = r->plan.n;
	return KVARC_OK;
}

/* ==== Part of an archive: only the chunks that a range touches ==== */

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

static struct kvi_view_block view_block(const kvarc_tensor *tensor, uint64_t row, uint32_t n,
                                        uint32_t head, uint32_t heads)
{
	return (struct kvi_view_block){ row, n, head * tensor->channels, heads * tensor->channels,
		                        (uint32_t)kvarc_dtype_bytes(tensor->dtype) };
}

/* The memory of the view that a chunk can be decoded to without a copy: all of it is wanted, and
 * the view is packed; else NULL. Salvage decodes to no view, as a chunk may be lost. */
static uint8_t *direct_to(const kvarc_reader *r, const struct kvi_range *range,
                          const struct kvi_decode_task *task)
{
	const struct kvi_chunk_ref *c = &task->ref;
	struct kvi_view_block b = view_block(&r->geometry.tensors[c->tensor], task->t0 - range->t0,
	                                     task->n, c->head, c->heads);
	return range->views && !r->salvage && task->count == task->n
	               ? kvi_view_packed(&range->views[c->tensor], &b)
	               : NULL;
}

/* Has a chunk of a segment decoded: for the caller, or for the features that others need of it. */
static kvarc_ret decode(kvarc_reader *r, const struct kvi_range *range,
                        const struct kvi_chunk_ref *chunk, const struct segment_part *part,
                        uint32_t order_index, kvarc_deliver deliver, void *opaque)
{
	struct kvi_decode_task task = kvi_decode_task(part->s, chunk, part->use, order_index);
	task.from += part->from;
	task.count = part->to - part->from;
	task.need_from = part->need_from;
	task.need_to = part->need_to;
	task.stored = kvi_stored_elements(part->use, kvi_chunk_named(r, chunk));
	task.helpers = part->helpers;
	task.batch = part->ahead ? r->batch : part->batch;
	if (kvi_range_wants(r, range, chunk->tensor)) {
		task.direct = direct_to(r, range, &task);
		task.deliver = task.direct ? NULL : deliver;
		task.opaque = opaque;
	}
	return kvi_reader_decode(r, &task, NULL, NULL);
}

/* A number for tensor and head, ascending in the order of chunks. */
static uint64_t place_of(uint32_t tensor, uint32_t head)
{
	return (uint64_t)tensor << 32 | head;
}

/*
 * Salvage checks no order: a damaged file may have elements in two chunks. Then the chunks before
 * are finished first, so that two threads never deliver the same elements at once.
 */
static kvarc_ret finish_overlaps(kvarc_reader *r, const struct kvi_chunk_ref *chunk,
                                 struct segment_part *part)
{
	bool ascends = place_of(chunk->tensor, chunk->head) >= part->last_place;
	part->last_place = place_of(chunk->tensor, chunk->head + chunk->heads);
	return r->salvage && !ascends ? kvi_reader_drain(r, KVARC_OK) : KVARC_OK;
}

/* Starts the next chunk of a segment that is needed. */
static kvarc_ret start_next(kvarc_reader *r, const struct kvi_range *range,
                            struct segment_part *part, kvarc_deliver deliver, void *opaque)
{
	const struct kvi_segment_ref *s = part->s;
	while (part->next < part->end) {
		const struct kvi_chunk_ref chunk = kvi_segment_chunk(r, s, part->next++),
					   *c = &chunk;
		uint32_t order_index = KVI_NO_ORDER_INDEX;
		struct kvi_feature_slot *slot = NULL;
		if (part->use && part->use->features &&
		    kvi_reader_order_index(r, s, c, &part->order_index, &order_index))
			slot = kvi_feature_slot(part->use->features, order_index);
		if (!kvi_range_wants(r, range, c->tensor) &&
		    !(slot && kvi_feature_slot_needed(slot)))
			continue;
		if (c->heads != r->geometry.tensors[c->tensor].heads)
			order_index = KVI_NO_ORDER_INDEX;
		kvarc_ret ret = part->ahead && !s->stored
		                        ? read_ahead(r, part->ahead, part->index, part->next - 1)
		                        : KVARC_OK;
		if (ret == KVARC_OK)
			ret = finish_overlaps(r, c, part);
		return ret ? ret : decode(r, range, c, part, order_index, deliver, opaque);
	}
	return KVARC_OK;
}

/*
 * Starts the chunks of several segments, of each one in turn: those of one
 * segment may wait for each other, those of different ones never do.
 */
static kvarc_ret start_parts(kvarc_reader *r, const struct kvi_range *range,
                             struct segment_part *parts, size_t n, kvarc_deliver deliver,
                             void *opaque)
{
	const unsigned workers = kvi_pool_workers(r->workers.pool);
	kvarc_ret ret = KVARC_OK;
	size_t left = 0;
	for (size_t i = 0; i < n && ret == KVARC_OK; i++) {
		struct segment_part *p = &parts[i];
		ret = range_prepare(r, range, p);
		p->helpers = n < workers ? (unsigned)(workers / n) - 1 : 0;
		left += p->next < p->end;
	}
	while (left && ret == KVARC_OK) {
		left = 0;
		for (size_t i = 0; i < n && ret == KVARC_OK; i++) {
			ret = start_next(r, range, &parts[i], deliver, opaque);
			left += parts[i].next < parts[i].end;
		}
	}
	for (size_t i = 0; i < n; i++)
		kvi_segment_use_release(r, parts[i].use);
	return ret;
}

kvarc_ret kvi_reader_segment_chunks(kvarc_reader *r, const struct kvi_segment_ref *segment,
                                    const struct kvi_range *range, kvarc_deliver deliver,
                                    void *opaque)
{
	struct segment_part part = { .s = segment };
	kvarc_ret ret = kvi_reader_start(r);
	if (ret == KVARC_OK)
		ret = kvi_reader_list_segment(r, segment, r->error);
	if (ret == KVARC_OK && range_touches(r, range, segment))
		ret = start_parts(r, range, &part, 1, deliver, opaque);
	return kvi_reader_drain(r, ret);
}

/* A model takes segments one after the other. */
static bool has_model(const struct kvi_reader_predictors *predictors)
{
	for (size_t i = 0; i < predictors->list.n; i++) {
		const struct kvi_predictor_ref *x = *KVI_LIST(struct kvi_predictor_ref *,
		                                              predictors->list, i);
		if (x->p.kind == KVI_PREDICTOR_MODEL)
			return true;
	}
	return false;
}

/* Several segments keep workers busy where the tensors of one wait for each other. */
unsigned kvi_reader_segments_at_once(const kvarc_reader *r)
{
	unsigned workers = r->options.common.threads;
	if (r->predictors.list.n == 0 || workers < 2)
		return 1;
	/* A segment from a store is in memory as a whole. */
	if (has_model(&r->predictors) || r->index.stored.n)
		return 1;
	return workers < PARTS_MAX ? workers : PARTS_MAX;
}

uint64_t kvi_reader_raw_bytes(const kvarc_reader *r)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < r->geometry.n_tensors; i++) {
		const kvarc_tensor *t = &r->geometry.tensors[i];
		sum += r->index.tokens[t->track] * kvi_tensor_bytes(t);
	}
	return sum;
}

unsigned kvi_reader_read_groups(kvarc_reader *r, uint64_t bytes)
{
	uint64_t largest = 1;
	for (size_t i = 0; i < r->geometry.n_tensors; i++) {
		const uint64_t of = kvi_tensor_bytes(&r->geometry.tensors[i]) * KVI_SEGMENT_TOKENS;
		largest = of > largest ? of : largest;
	}
	/* A source that says how it reads many ranges takes long for each read. */
	if (!kvi_input_seekable(&r->in) || r->in.crypt || r->in.source.read_ranges || r->salvage ||
	    r->predictors.list.n || r->index.stored.n || r->state != KVARC_STATE_CLOSED ||
	    kvi_reader_raw_bytes(r) < KVI_POOL_STARTS)
		return 1;
	const uint64_t segments = (bytes + largest - 1) / largest;
	r->group = segments < PARTS_MAX ? (unsigned)segments : PARTS_MAX;
	return r->group;
}

/* Begins a range, and runs a model over the segments before it. */
static kvarc_ret run_model_before(kvarc_reader *r, const struct kvi_range *range)
{
	struct kvi_range before;
	struct ahead ahead = { .range = &before };
	kvarc_ret ret = begin_range(r, range, &before);
	const uint64_t from = before.t0;
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		struct segment_part part = { .s = s, .index = i, .ahead = &ahead };
		const struct kvi_range all = { range->track, 0,   range->layer_end, s->t0,
			                       s->t0 + s->n, NULL };
		if (!kvi_segment_has(s, range->track, from, range->t0) ||
		    s->t0 + s->left > range->t0)
			continue;
		ret = read_ahead(r, &ahead, i, s->first);
		if (ret == KVARC_OK)
			ret = start_parts(r, &all, &part, 1, NULL, NULL);
		ret = kvi_reader_drain(r, ret);
		kvi_reader_cut_models(r, s);
	}
	return ret;
}

/*
 * As start_parts, with read-ahead. A single part reads later chunks ahead when it comes to them.
 * Several parts take turns: all frames that they need are read before, into two batches; frames
 * that do not fit are read chunk by chunk, and so are all of groups.
 */
static kvarc_ret start_ahead(kvarc_reader *r, struct ahead *ahead, struct segment_part *parts,
                             size_t n, kvarc_deliver deliver, void *opaque)
{
	const size_t end = parts[n - 1].index + 1;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < n; i++)
		parts[i].batch = r->batch;
	if (r->group > 1)
		return start_parts(r, ahead->range, parts, n, deliver, opaque);
	if (n == 1) {
		parts->ahead = ahead;
		ret = read_ahead(r, ahead, parts->index, parts->s->first);
	} else if (ahead->segment < end) {
		bool within = ahead->segment > parts->index ||
		              (ahead->segment == parts->index && ahead->chunk);
		if (!within)
			ret = read_ahead(r, ahead, parts->index, 0);
		for (size_t i = 0; i < n; i++)
			parts[i].batch = r->batch;
		if (ret == KVARC_OK && ahead->segment < end)
			ret = read_ahead(r, ahead, ahead->segment, ahead->chunk);
		if (ahead->segment < end)
			*ahead = (struct ahead){ .range = ahead->range, .segment = end };
	}
	return ret ? ret : start_parts(r, ahead->range, parts, n, deliver, opaque);
}

static kvarc_ret read_range(kvarc_reader *r, const struct kvi_range *range, kvarc_deliver deliver,
                            void *opaque)
{
	struct segment_part parts[PARTS_MAX];
	if (range->t0 == range->t_end)
		return KVARC_OK;
	kvarc_ret ret = kvi_reader_start(r);
	if (ret == KVARC_OK)
		ret = run_model_before(r, range);
	struct ahead ahead = { .range = range };
	size_t n = 0, most = r->group > 1 ? r->group : kvi_reader_segments_at_once(r);
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (!kvi_segment_has(s, range->track, range->t0, range->t_end) ||
		    !range_touches(r, range, s))
			continue;
		parts[n++] = (struct segment_part){ .s = s, .index = i };
		if (n < most)
			continue;
		ret = start_ahead(r, &ahead, parts, n, deliver, opaque);
		if (has_model(&r->predictors))
			ret = kvi_reader_drain(r, ret);
		kvi_reader_cut_models(r, s);
		n = 0;
	}
	if (n && ret == KVARC_OK)
		ret = start_ahead(r, &ahead, parts, n, deliver, opaque);
	ret = kvi_reader_drain(r, ret);
	drop_ahead(r);
	return ret;
}

/* Views as a deliver. */
struct view_sink {
	const kvarc_geometry *geometry;
	const kvarc_view *views;
	uint64_t t0; /* index of the token of row 0 */
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

static kvarc_ret copy_tokens(kvarc_reader *r, const struct kvi_segment_ref *segment,
                             const struct kvi_range *range, int32_t *ids, int32_t *positions)
{
	struct kvi_segment seg;
	uint64_t from = segment->t0 > range->t0 ? segment->t0 : range->t0;
	uint64_t end = segment->t0 + segment->left < range->t_end ? segment->t0 + segment->left
	                                                          : range->t_end;
	if (!segment->offset)
		return kvi_fail_at(r->error, KVARC_DATA, KVARC_UNKNOWN, segment->sequence,
		                   "the ids and positions of tokens from %llu on are lost",
		                   (unsigned long long)segment->t0);
	kvarc_ret ret = kvi_reader_read_segment(r, &r->packer, segment, &seg, r->error);
	if (!ret && ids)
		ret = kvi_reader_ids(r, kvi_reader_codes_ids(r, segment->sequence), &seg, r->error);
	if (ret)
		return ret == KVARC_END ? KVARC_PREDICTOR : ret;
	if (ids && !seg.has_ids)
		return kvi_fail_at(r->error, KVARC_OPTIONS, segment->offset, segment->sequence,
		                   "token ids are not in the file");
	for (uint64_t t = from; t < end; t++) {
		if (ids)
			ids[t - range->t0] = seg.ids[t - segment->t0];
		if (positions)
			positions[t - range->t0] = seg.positions[t - segment->t0];
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
	ret = read_segments_ahead(r, &g);
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (kvi_segment_has(s, g.track, g.t0, g.t_end))
			ret = copy_tokens(r, s, &g, ids, positions);
	}
	drop_ahead(r);
	/* Ids that are not stored, or coded by a model, are an answer and do not stick. */
	return ret == KVARC_OPTIONS || ret == KVARC_PREDICTOR ? ret : kvi_reader_set_error(r, ret);
}
