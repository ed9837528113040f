/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_seq.c - segments in the order of the file, also from a pipe */
#include "reader_decode.h"
#include "reader_ids.h"
#include "reader_load.h"
#include "reader_prediction.h"
#include "reader_range.h"
#include "reader_salvage.h"
#include "reader_segments.h"
#include "reader_seq.h"
#include "reader_state.h"

/* Whether the walk is behind the last commit of a file that was cut or is damaged there. */
static bool at_stop(const kvarc_reader *r)
{
	return (r->state == KVARC_STATE_CUT || r->state == KVARC_STATE_DAMAGED) &&
	       kvi_input_seekable(&r->in) && r->seq.walk.offset >= r->seq.stop &&
	       r->seq.walk.sequence > 0;
}

/* Moves to the next frame, or to the one that open has found already. */
static kvarc_ret next_frame(kvarc_reader *r)
{
	if (r->seq.pending) {
		r->seq.pending = false;
		if (r->seq.pending_ret && r->seq.pending_ret != KVARC_END && r->error)
			*r->error = r->seq.pending_error;
		return r->seq.pending_ret ? r->seq.pending_ret : kvi_reader_pass_items(r, r->error);
	}
	if (r->options.checkpoint && r->seq.walk.commit.checkpoint == r->options.checkpoint)
		return KVARC_END;
	if (at_stop(r)) {
		if (r->error)
			*r->error = r->seq.cut_error;
		return KVARC_DATA;
	}
	kvarc_ret ret = kvi_walk_next(&r->seq.walk, r->error);
	if (!kvi_input_seekable(&r->in))
		r->totals.frames = r->seq.walk.sequence;
	return ret ? ret : kvi_reader_pass_items(r, r->error);
}

/* Frames that mean the same wherever they are. */
static kvarc_ret common_frame(kvarc_reader *r, bool deliver_blobs, kvarc_error *error)
{
	const struct kvi_walk_frame *w = &r->seq.walk.current;
	kvarc_ret ret;
	switch (w->frame.head.type) {
	case KVI_FRAME_PARAMS:
		return kvi_reader_add_params(r, &w->frame, w->frame.head.sequence, w->content,
		                             w->content_bytes, NULL, error);
	case KVI_FRAME_BLOB:
		return kvi_reader_blob(r, &w->frame, w->content, w->content_bytes, deliver_blobs,
		                       error);
	case KVI_FRAME_IDENTITY:
		ret = kvi_reader_meta(r, &w->frame, w->content, w->content_bytes, error);
		return ret ? ret : kvi_reader_check_root(r, error);
	case KVI_FRAME_PREDICTOR:
	case KVI_FRAME_PROFILE:
	case KVI_FRAME_RESTORE:
		return kvi_reader_meta(r, &w->frame, w->content, w->content_bytes, error);
	case KVI_FRAME_COMMIT:
		if (kvi_input_seekable(&r->in))
			return KVARC_OK;
		memcpy(r->index.tokens, r->seq.walk.commit.tokens,
		       r->geometry.n_tracks * sizeof *r->index.tokens);
		return KVARC_OK;
	default:
		return KVARC_OK;
	}
}

static kvarc_ret open_geometry(kvarc_reader *r)
{
	const struct kvi_walk_frame *w = &r->seq.walk.current;
	kvarc_ret ret = kvi_walk_first(&r->seq.walk, r->error);
	if (ret == KVARC_END)
		return kvi_fail_at(r->error, KVARC_DATA, r->seq.walk.offset, 0,
		                   "the file is cut after its first %d bytes",
		                   KVI_SUPERBLOCK_BYTES);
	if (ret == KVARC_OK && !r->index.tokens)
		ret = kvi_reader_geometry(r, &w->frame, w->content, w->content_bytes);
	if (ret == KVARC_OK)
		ret = kvi_walk_geometry(&r->seq.walk, &r->geometry, &r->order, r->error);
	return ret;
}

kvarc_ret kvi_reader_pipe_open(kvarc_reader *r)
{
	kvi_walk_init(&r->seq.walk, &r->in, &r->packer);
	r->seq.next_part = SIZE_MAX; /* a STOREREF may be pending */
	kvarc_ret ret = open_geometry(r);
	while (ret == KVARC_OK) {
		ret = kvi_walk_next(&r->seq.walk, &r->seq.pending_error);
		if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO ||
		    ret == KVARC_OPTIONS) {
			if (r->error)
				*r->error = r->seq.pending_error;
			return ret;
		}
		/* Items and identity come first; what follows has to wait,
		 * and so has an error in it. */
		if (ret || r->seq.walk.past_items) {
			r->seq.pending = true;
			r->seq.pending_ret = ret;
			r->totals.frames = r->seq.walk.sequence;
			return KVARC_OK;
		}
		ret = common_frame(r, false, r->error);
	}
	return ret;
}

/* The file ends: how? */
static kvarc_ret finish(kvarc_reader *r)
{
	bool here = r->options.checkpoint && r->seq.walk.commit.checkpoint == r->options.checkpoint;
	kvarc_ret ret = r->options.checkpoint && !here ? kvi_reader_no_checkpoint(r, r->error)
	                                               : kvi_walk_end(&r->seq.walk, r->error);
	if (ret == KVARC_OK)
		ret = kvi_reader_blobs_end(r, r->error);
	if (ret)
		return ret;
	r->seq.ended = true;
	if (!kvi_input_seekable(&r->in))
		r->state = here || r->seq.walk.last_type == KVI_FRAME_FOOTER ? KVARC_STATE_CLOSED
		                                                             : KVARC_STATE_OPEN;
	return KVARC_END;
}

/* A file that was cut ends with its last commit, if the files in it are complete there. */
static kvarc_ret finish_cut(kvarc_reader *r)
{
	kvarc_ret ret = kvi_reader_blobs_end(r, r->error);
	if (ret && r->error)
		*r->error = r->seq.cut_error;
	r->seq.ended = !ret;
	return ret ? ret : KVARC_END;
}

/* The segment in r->seq.segment, of the file or a store; ref: NULL on a pipe. */
static kvarc_ret show_segment(kvarc_reader *r, struct kvi_segment_ref *ref, kvarc_segment *segment)
{
	struct kvi_segment *s = &r->seq.segment->segment;
	r->seq.in_segment = true;
	const uint64_t sequence = ref ? ref->sequence : r->seq.walk.segment.sequence;
	s->left = ref ? ref->left : s->n;
	s->sequence = ref ? ref->listed : sequence;
	kvarc_ret ret = kvi_reader_pass_ids(r, kvi_reader_codes_ids(r, sequence), s, r->error);
	if (!ret || ret == KVARC_END)
		ret = kvi_reader_check_chain(r, s, ref, r->error);
	if (ret)
		return ret;
	*segment = (kvarc_segment){ .track = s->track,
		                    .t0 = s->t0,
		                    .n = s->left,
		                    .ids = s->has_ids ? s->ids : NULL,
		                    .positions = s->positions,
		                    .ids_coded = s->coded };
	if (!kvi_input_seekable(&r->in)) {
		kvi_reader_count(r, s->track, s->n);
		r->totals.segments++;
		r->totals.stored_tokens += r->seq.in_part ? s->n : 0;
	}
	return KVARC_OK;
}

/* The index entry of the current segment, or of segment `part` of a STOREREF; NULL: on a pipe. */
static struct kvi_segment_ref *ref_of(const kvarc_reader *r, size_t part)
{
	struct kvi_segment_ref *ref = kvi_input_seekable(&r->in)
	                                      ? kvi_index_segment(&r->index,
	                                                          r->seq.walk.segment.sequence)
	                                      : NULL;
	return ref ? ref + part : NULL;
}

static kvarc_ret new_segment(kvarc_reader *r)
{
	kvi_segment_use_release(r, r->seq.segment);
	r->seq.segment = kvi_segment_use_new(r);
	r->seq.forked = 0;
	return r->seq.segment ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
}

static kvarc_ret begin_segment(kvarc_reader *r, kvarc_segment *segment)
{
	kvarc_ret ret = new_segment(r);
	if (ret)
		return ret;
	r->seq.segment->segment = r->seq.walk.segment.content;
	r->seq.in_part = false;
	return show_segment(r, ref_of(r, 0), segment);
}

/* Begins the next segment of the current STOREREF. */
static kvarc_ret begin_part(kvarc_reader *r, kvarc_segment *segment)
{
	const size_t part = r->seq.next_part++;
	const kvarc_stored *key = KVI_LIST(kvarc_stored, r->seq.walk.segment.stored, part);
	struct kvi_segment_ref *ref = ref_of(r, part);
	const char *ns = kvi_identity_get(&r->meta.identity, "namespace");
	kvarc_ret ret = new_segment(r);
	if (ret)
		return ret;
	struct kvi_segment_use *use = r->seq.segment;
	ret = ref ? kvi_stored_get_ref(r, ref, &use->stored, r->error)
	          : kvi_stored_get(r, key, ns ? ns : "", &use->stored, r->error);
	if (ret)
		return ret;
	use->segment = use->stored->segment;
	use->segment.part = (uint32_t)part;
	r->seq.in_part = true;
	return show_segment(r, ref, segment);
}

/* Begins the next segment of the current FORK. */
static kvarc_ret begin_forked(kvarc_reader *r, kvarc_segment *segment)
{
	struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                       r->seq.fork_next);
	kvi_segment_use_release(r, r->seq.segment);
	r->seq.in_part = false;
	r->seq.forked = ++r->seq.fork_next;
	kvarc_ret ret = kvi_segment_use_load(r, &r->packer, ref, &r->seq.segment, r->error);
	return ret ? ret : show_segment(r, ref, segment);
}

/* Whether a chunk has to do with the features of its segment. */
static bool foreseen(kvarc_reader *r, const struct kvi_chunk_header *header, uint32_t order_index)
{
	struct kvi_feature_table *t = r->seq.segment->features;
	if (!t || header->heads == r->geometry.tensors[header->tensor].heads)
		return t;
	if (header->head == 0)
		kvi_feature_table_leave(t, order_index); /* no source (spec linear 6) */
	if (r->seq.segment->prediction &&
	    kvi_prediction_covers(r->seq.segment->prediction, order_index))
		kvi_prediction_mark_lost(r->seq.segment->prediction, order_index, header->t0);
	return false;
}

/* Hands the chunk in the walk's buffer to a worker. */
static kvarc_ret take_chunk(kvarc_reader *r, kvarc_deliver deliver, void *opaque)
{
	struct kvi_walk_frame *w = &r->seq.walk.current;
	const struct kvi_chunk_header *h = &w->chunk;
	const struct kvi_chunk_ref c = kvi_chunk_ref(&w->frame, h);
	const struct kvi_segment_ref s = { .sequence = h->segment, .t0 = h->t0, .n = h->n };
	struct kvi_decode_task task = kvi_decode_task(
		&s, &c, r->seq.segment,
		foreseen(r, h, w->order_index) ? w->order_index : KVI_NO_ORDER_INDEX);
	task.count = r->seq.segment->segment.left;
	task.deliver = deliver;
	task.opaque = opaque;
	return kvi_reader_decode(r, &task, &w->frame, &w->buffer);
}

/* Hands the elements of a segment in a store to workers. */
static kvarc_ret take_part(kvarc_reader *r, kvarc_deliver deliver, void *opaque)
{
	struct kvi_segment_use *use = r->seq.segment;
	const struct kvi_segment *x = &use->segment;
	const struct kvi_segment_ref s = { .offset = r->seq.walk.current.frame.offset,
		                           .sequence = x->sequence,
		                           .t0 = x->t0,
		                           .track = x->track,
		                           .n = x->n,
		                           .stored = 1 };
	const uint64_t end = kvi_segment_chunks_end(r, &s);
	/* A model goes through all elements; a profile is of the chunks of the file alone. */
	kvarc_ret ret = r->seq.walk.segment.predictor.is_model
	                        ? kvi_reader_foresee(r, r->seq.walk.segment.predictor.sequence, use)
	                        : KVARC_OK;
	for (uint64_t i = 0; i < end && !ret; i++) {
		const struct kvi_chunk_ref c = kvi_segment_chunk(r, &s, i);
		struct kvi_decode_task task =
			kvi_decode_task(&s, &c, use,
		                        use->features ? r->order.first[x->track] + (uint32_t)i
		                                      : KVI_NO_ORDER_INDEX);
		task.stored = kvi_stored_elements(use, c.tensor);
		task.count = x->left;
		task.deliver = deliver;
		task.opaque = opaque;
		ret = kvi_reader_decode(r, &task, NULL, NULL);
	}
	return ret;
}

/* Reads the frames of the current segment, up to its COMMIT. */
static kvarc_ret take_frames(kvarc_reader *r, bool decode, kvarc_deliver deliver, void *opaque)
{
	kvarc_ret ret = decode ? kvi_reader_foresee(r, r->seq.walk.segment.predictor.sequence,
	                                            r->seq.segment)
	                       : KVARC_OK;
	while (ret == KVARC_OK && r->seq.in_segment) {
		ret = next_frame(r);
		if (ret == KVARC_END)
			ret = kvi_walk_end(&r->seq.walk, r->error);
		if (ret)
			break;
		uint16_t type = r->seq.walk.current.frame.head.type;
		if (type == KVI_FRAME_CHUNK && !kvi_input_seekable(&r->in)) {
			r->totals.chunks++;
			r->totals.codecs = r->seq.walk.listing.codecs;
		}
		if (type == KVI_FRAME_CHUNK && decode)
			ret = take_chunk(r, deliver, opaque);
		else
			ret = common_frame(r, true, r->error);
		r->seq.in_segment = type != KVI_FRAME_COMMIT;
	}
	return ret;
}

/* A caller that reads segments in order reads all of them: where that is not much, threads take
 * longer than they save. */
static void spare_threads(kvarc_reader *r)
{
	if (r->workers.pool || !kvi_input_seekable(&r->in) || r->predictors.list.n ||
	    kvi_reader_raw_bytes(r) >= KVI_POOL_STARTS)
		return;
	r->options.common.threads = 1;
	r->options.common.overlap = 0;
}

/* Goes to the end of a segment of a FORK: the walk has passed its chunks. */
static kvarc_ret pass_forked(kvarc_reader *r, bool decode, kvarc_deliver deliver, void *opaque)
{
	const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                             r->seq.forked - 1);
	const struct kvi_range all = {
		ref->track, 0, UINT64_MAX, ref->t0, ref->t0 + ref->left, NULL
	};
	r->seq.in_segment = false;
	if (!decode)
		return KVARC_OK;
	kvarc_ret ret = kvi_reader_segment_chunks(r, ref, &all, deliver, opaque);
	kvi_reader_cut_models(r, ref);
	return ret;
}

/* Goes to the end of the current segment. */
static kvarc_ret pass_segment(kvarc_reader *r, bool decode, kvarc_deliver deliver, void *opaque)
{
	const struct kvi_segment_ref *ref = ref_of(r, r->seq.segment->segment.part);
	if (r->seq.forked)
		return pass_forked(r, decode, deliver, opaque);
	if (decode)
		spare_threads(r);
	kvarc_ret ret = decode ? kvi_reader_start(r) : KVARC_OK;
	if (ret == KVARC_OK && !r->seq.in_part)
		ret = take_frames(r, decode, deliver, opaque);
	else if (ret == KVARC_OK && decode)
		ret = take_part(r, deliver, opaque);
	if (r->seq.in_part)
		r->seq.in_segment = false;
	ret = decode ? kvi_reader_drain(r, ret) : ret;
	if (decode)
		kvi_reader_cut_models(r, ref);
	return ret;
}

/* Whether the current STOREREF has a next segment with tokens left; segments without are passed: a
 * store need not have them. */
static bool next_part(kvarc_reader *r)
{
	const struct kvi_segment_ref *ref = ref_of(r, 0);
	const size_t n = r->seq.walk.segment.stored.n;
	while (r->seq.next_part < n && ref && !ref[r->seq.next_part].left)
		r->seq.next_part++;
	return r->seq.next_part < n;
}

/* The current frame is a FORK: its segments come next. */
static void begin_fork(kvarc_reader *r)
{
	const struct kvi_list *l = &r->index.segments;
	const uint64_t sequence = r->seq.walk.current.frame.head.sequence;
	const struct kvi_segment_ref *first = kvi_index_segment(&r->index, sequence);
	r->seq.fork_next = first ? (size_t)(first - KVI_LIST(struct kvi_segment_ref, *l, 0)) : l->n;
	r->seq.fork_end = r->seq.fork_next;
	while (r->seq.fork_end < l->n &&
	       KVI_LIST(struct kvi_segment_ref, *l, r->seq.fork_end)->listed == sequence)
		r->seq.fork_end++;
}

/* Whether the current FORK has a next segment with tokens left. */
static bool next_forked(kvarc_reader *r)
{
	while (r->seq.fork_next < r->seq.fork_end &&
	       !KVI_LIST(struct kvi_segment_ref, r->index.segments, r->seq.fork_next)->left)
		r->seq.fork_next++;
	return r->seq.fork_next < r->seq.fork_end;
}

static kvarc_ret next_segment(kvarc_reader *r, kvarc_segment *segment)
{
	kvarc_ret ret = KVARC_OK;
	if (r->seq.ended)
		return KVARC_END;
	if (!r->seq.started && kvi_input_seekable(&r->in)) {
		kvi_walk_init(&r->seq.walk, &r->in, &r->packer);
		if (r->group > 1)
			r->seq.walk.pass_chunks = true;
		else
			kvi_walk_all(&r->seq.walk);
		ret = open_geometry(r);
	}
	r->seq.started = true;
	if (ret == KVARC_OK && r->seq.in_segment)
		ret = pass_segment(r, false, NULL, NULL);
	while (ret == KVARC_OK) {
		if (next_part(r))
			return begin_part(r, segment);
		if (next_forked(r))
			return begin_forked(r, segment);
		if (at_stop(r) && r->state == KVARC_STATE_CUT)
			return finish_cut(r);
		ret = next_frame(r);
		if (ret == KVARC_END)
			return finish(r);
		if (ret)
			return ret;
		const struct kvi_segment_ref *ref = ref_of(r, 0);
		if (r->seq.walk.current.frame.head.type == KVI_FRAME_STOREREF)
			r->seq.next_part = 0;
		else if (r->seq.walk.current.frame.head.type == KVI_FRAME_FORK)
			begin_fork(r);
		else if (r->seq.walk.current.frame.head.type != KVI_FRAME_SEGMENT)
			ret = common_frame(r, true, r->error);
		else if (!ref || ref->left)
			return begin_segment(r, segment);
	}
	return ret;
}

/* Makes a failure stick: a reader in order stands in the middle of the file. */
static kvarc_ret stick(kvarc_reader *r, kvarc_ret ret)
{
	if ((ret == KVARC_MEMLIMIT || ret == KVARC_STORE) && !r->sticky)
		r->sticky = ret;
	return kvi_reader_set_error(r, ret);
}

kvarc_ret kvarc_reader_next_segment(kvarc_reader *r, kvarc_segment *segment)
{
	if (!r || !segment)
		return KVARC_PROG;
	if (r->sticky)
		return r->sticky;
	if (r->salvage)
		return stick(r, kvi_salvage_next(r, segment));
	return stick(r, next_segment(r, segment));
}

kvarc_ret kvarc_reader_segment_deliver(kvarc_reader *r, kvarc_deliver deliver, void *opaque)
{
	if (!r)
		return KVARC_PROG;
	if (r->sticky)
		return r->sticky;
	if (!deliver || !r->seq.in_segment)
		return kvi_fail(r->error, KVARC_PROG,
		                "kvarc_reader_segment_deliver needs a callback, and follows "
		                "kvarc_reader_next_segment, once");
	if (r->salvage)
		return stick(r, kvi_salvage_deliver(r, deliver, opaque));
	return stick(r, pass_segment(r, true, deliver, opaque));
}
