/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_load.c - where the frames are: from the index, else by a scan (spec 9) */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "reader_frames.h"
#include "reader_lists.h"
#include "reader_load.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "format/commit.h"
#include "util/key_hash.h"

/* ==== Every frame of an archive and its check, without decoding chunks ==== */

static kvarc_ret walk_frames(kvarc_reader *r, struct kvi_walk *w)
{
	kvarc_ret ret;
	kvi_walk_all(w);
	do {
		ret = kvi_walk_next(w, r->error);
		if (!ret && w->sequence == 1)
			ret = kvi_walk_geometry(w, &r->geometry, &r->order, r->error);
	} while (!ret);
	return ret == KVARC_END ? kvi_walk_end(w, r->error) : ret;
}

kvarc_ret kvi_reader_check_frames(kvarc_reader *r)
{
	struct kvi_walk w;
	kvi_walk_init(&w, &r->in, &r->packer);
	kvarc_ret ret = walk_frames(r, &w);
	kvi_walk_free(&w);
	return kvi_reader_set_error(r, ret);
}

/* ==== The lists of frames, and what they are of ==== */

kvarc_ret kvi_reader_geometry(kvarc_reader *r, const struct kvi_frame *frame,
                              const uint8_t *content, size_t bytes)
{
	kvarc_ret ret = kvi_geometry_parse(&r->geometry, &r->alloc, content, bytes);
	if (ret == KVARC_DATA)
		return kvi_fail_at(r->error, ret, frame->offset, 0,
		                   "the GEOMETRY frame is not valid");
	if (ret == KVARC_OPTIONS)
		return kvi_reason(r->error, KVARC_REASON_NEWER,
		                  kvi_fail_at(r->error, ret, frame->offset, 0,
		                              "the geometry has a dtype or axes "
		                              "that need a newer version of kvarc"));
	if (ret == KVARC_OK)
		ret = kvi_order_make(&r->order, &r->alloc, &r->geometry);
	if (ret)
		return kvi_fail_alloc(r->error, &r->alloc);
	r->index.tokens = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *r->index.tokens);
	r->chains.last = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *r->chains.last);
	r->chains.geometry = kvi_b128(content, bytes);
	r->index.last = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *r->index.last);
	return r->index.tokens && r->index.last && r->chains.last
	               ? KVARC_OK
	               : kvi_fail_alloc(r->error, &r->alloc);
}

void kvi_reader_count(kvarc_reader *r, uint32_t track, uint64_t n)
{
	for (uint32_t i = r->order.first[track]; i < r->order.first[track + 1]; i++) {
		const kvarc_tensor *t = &r->geometry.tensors[r->order.tensors[i]];
		r->totals.raw_bytes += n * kvi_tensor_bytes(t);
		r->totals.elements += n * kvi_tensor_width(t);
	}
}

/* Tokens of segments that lie in a store. */
static void count_stored(kvarc_reader *r)
{
	const struct kvi_list *l = &r->index.segments;
	r->totals.stored_tokens = 0;
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i);
		r->totals.stored_tokens += s->stored ? s->left : 0;
	}
}

/* Takes the elements of tokens that forks share, and that were counted for each track, off the
 * totals. */
static kvarc_ret count_forked(kvarc_reader *r)
{
	const struct kvi_list *l = &r->index.segments;
	uint32_t *counted = kvi_calloc(&r->alloc, l->n, sizeof *counted); /* tokens, by segment */
	if (!counted)
		return kvi_fail_alloc(r->error, &r->alloc);
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i);
		uint32_t *of = &counted[s->origin ? s->origin - 1 : i];
		const uint64_t again = s->left < *of ? s->left : *of;
		*of = s->left > *of ? s->left : *of;
		for (uint32_t k = r->order.first[s->track]; k < r->order.first[s->track + 1]; k++)
			r->totals.elements -=
				again * kvi_tensor_width(&r->geometry.tensors[r->order.tensors[k]]);
	}
	kvi_free(&r->alloc, counted);
	return KVARC_OK;
}

kvarc_ret kvi_reader_count_all(kvarc_reader *r)
{
	for (uint32_t i = 0; i < r->geometry.n_tracks; i++)
		kvi_reader_count(r, i, r->index.tokens[i]);
	count_stored(r);
	r->totals.chunks = r->index.chunks.n;
	for (size_t i = 0; i < r->index.lists.n; i++)
		r->totals.chunks += KVI_LIST(struct kvi_chunk_list, r->index.lists, i)->n;
	r->totals.segments = r->index.segments.n - r->index.forked;
	return r->index.forked ? count_forked(r) : KVARC_OK;
}

static kvarc_ret wrong_index(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	return kvi_fail_at(r->error, KVARC_DATA, entry->offset, entry->sequence,
	                   "the index is inconsistent at frame %llu",
	                   (unsigned long long)entry->sequence);
}

/* Whether some chunks of the last segment are in the index, and others not. */
static bool is_partial(const struct kvi_reader_index *index)
{
	const size_t n = index->segments.n;
	if (!n || kvi_order_done(&index->chunk_order))
		return false;
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, index->segments, n - 1);
	return !s->list && s->first < s->end;
}

static kvarc_ret add_segment(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	if (entry->tensor >= r->geometry.n_tracks ||
	    entry->segment > r->index.tokens[entry->tensor] || entry->segment > UINT32_MAX ||
	    is_partial(&r->index))
		return wrong_index(r, entry);
	struct kvi_segment_ref *s = kvi_list_add(&r->index.segments, &r->alloc, sizeof *s);
	if (!s)
		return kvi_fail_alloc(r->error, &r->alloc);
	*s = (struct kvi_segment_ref){ .offset = entry->offset,
		                       .sequence = entry->sequence,
		                       .t0 = entry->segment,
		                       .listed = entry->sequence,
		                       .first = r->index.chunks.n,
		                       .end = r->index.chunks.n,
		                       .track = entry->tensor,
		                       .n = entry->n,
		                       .bytes = entry->bytes,
		                       .most = entry->n,
		                       .chain = { entry->has_chain, entry->chain } };
	kvi_index_link(&r->index);
	kvi_reader_begin_set(r);
	kvi_order_begin(&r->index.chunk_order, &r->order, entry->tensor);
	return KVARC_OK;
}

static kvarc_ret add_chunk(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	struct kvi_segment_ref *s = r->index.segments.n
	                                    ? KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                               r->index.segments.n - 1)
	                                    : NULL;
	if (!s || s->listed != entry->segment || s->list ||
	    !kvi_reader_all_listed(r, r->index.segments.n - 1) ||
	    !kvi_order_next(&r->index.chunk_order, &r->order, &r->geometry, entry->tensor,
	                    entry->head, entry->heads))
		return wrong_index(r, entry);
	struct kvi_chunk_ref *c = kvi_list_add(&r->index.chunks, &r->alloc, sizeof *c);
	if (!c)
		return kvi_fail_alloc(r->error, &r->alloc);
	const struct kvi_predictor_ref *x = kvi_reader_predictor_before(&r->predictors,
	                                                                s->sequence);
	*c = (struct kvi_chunk_ref){ .offset = entry->offset,
		                     .sequence = entry->sequence,
		                     .params = entry->params,
		                     .tensor = entry->tensor,
		                     .head = entry->head,
		                     .heads = entry->heads,
		                     .bytes = entry->bytes,
		                     .linear = x && x->sequence == entry->params };
	s->end = r->index.chunks.n;
	r->index.unlisted = r->index.segments.n;
	return KVARC_OK;
}

/* A FORK frame, which must be what its entry says. */
static kvarc_ret add_fork(kvarc_reader *r, const struct kvi_frame *frame,
                          const struct kvi_index_entry *entry)
{
	struct kvi_fork f;
	kvarc_ret ret = KVARC_DATA;
	if (frame->head.decoded_bytes == frame->head.payload_bytes &&
	    kvi_fork_parse(&f, frame->payload, frame->head.payload_bytes) &&
	    f.track == entry->tensor && f.from == entry->params && f.n == entry->segment)
		ret = kvi_index_fork(r, &f, entry->sequence, false);
	if (ret == KVARC_OK)
		kvi_reader_begin_set(r);
	return ret == KVARC_DATA ? kvi_reader_not_valid(frame, r->error) : ret;
}

static kvarc_ret add_blob(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	struct kvi_blob_ref *b = kvi_list_add(&r->index.blobs, &r->alloc, sizeof *b);
	if (!b)
		return kvi_fail_alloc(r->error, &r->alloc);
	*b = (struct kvi_blob_ref){ entry->offset, entry->sequence, entry->bytes };
	return KVARC_OK;
}

/* Adds the next frame of the file to the lists. Returns OK, MEM, MEMLIMIT, DATA. */
static kvarc_ret add_entry(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	if (entry->type == KVI_FRAME_SEGMENT)
		return add_segment(r, entry);
	if (entry->type == KVI_FRAME_CHUNK)
		return add_chunk(r, entry);
	if ((entry->type == KVI_FRAME_STOREREF || entry->type == KVI_FRAME_FORK) &&
	    is_partial(&r->index))
		return wrong_index(r, entry);
	if (entry->type == KVI_FRAME_COMMIT && entry->number)
		return kvi_index_checkpoint(r, entry);
	if (entry->type == KVI_FRAME_BLOB)
		return add_blob(r, entry);
	if (entry->type != KVI_FRAME_PARAMS)
		return KVARC_OK;
	struct kvi_params_ref *p = kvi_list_add(&r->index.params, &r->alloc, sizeof *p);
	if (!p)
		return kvi_fail_alloc(r->error, &r->alloc);
	*p = (struct kvi_params_ref){ .offset = entry->offset,
		                      .sequence = entry->sequence,
		                      .copy_of = entry->params,
		                      .tensor = entry->tensor,
		                      .head = entry->head,
		                      .heads = entry->heads,
		                      .bytes = entry->bytes };
	return KVARC_OK;
}

/* ==== By a scan: all frames in order ==== */

/* Lengths of the lists up to the last commit. */
struct index_mark {
	size_t chunks, segments, params, checkpoints, blobs, items, first_item;
	bool set_closed, any; /* any: there is a commit */
};

/* Drops what came after the last commit. */
static void roll_back(kvarc_reader *r, const struct index_mark *mark)
{
	r->index.segments.n = mark->segments;
	r->index.chunks.n = mark->chunks;
	r->index.params.n = mark->params;
	r->index.checkpoints.n = mark->checkpoints;
	r->index.blobs.n = mark->blobs;
	r->index.unlisted = mark->segments;
	while (mark->any && r->meta.items.n > mark->items)
		kvi_restore_free(
			&KVI_LIST(struct kvi_item, r->meta.items, --r->meta.items.n)->restore,
			&r->alloc);
	r->meta.first_item = mark->any ? mark->first_item : 0;
	r->meta.set_closed = mark->set_closed;
}

/* Whether the sync mark of the file is anywhere behind an offset. */
static kvarc_ret has_sync(kvarc_reader *r, uint64_t offset, bool *found)
{
	enum { WINDOW = 64 << 10, MARK = 8 };
	uint8_t mark[MARK];
	uint8_t *window = kvi_malloc(&r->alloc, WINDOW);
	kvarc_ret ret = window ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
	size_t got = WINDOW;
	kvi_store64(mark, r->in.sync);
	*found = false;
	for (; ret == KVARC_OK && got >= MARK && !*found; offset += WINDOW - MARK) {
		ret = kvi_input_read(&r->in, window, WINDOW, offset, &got, r->error);
		for (size_t i = 0; ret == KVARC_OK && i + MARK <= got && !*found; i++) {
			const uint8_t *p = memchr(window + i, mark[0], got - MARK + 1 - i);
			if (!p)
				break;
			i = (size_t)(p - window);
			*found = memcmp(p, mark, MARK) == 0;
		}
	}
	kvi_free(&r->alloc, window);
	return ret;
}

/* Whether nothing but the remains of one write follows: the frame at an offset is not whole, and
 * none begins behind it, good or bad, aligned or shifted. */
static kvarc_ret is_cut(kvarc_reader *r, uint64_t offset, bool *cut)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	bool others = false;
	kvarc_ret ret = kvi_frame_read(&r->in, offset, &buf, &f, NULL);
	bool whole = f.check_good;
	kvi_free(&r->alloc, buf.p);
	if (ret == KVARC_DATA)
		ret = has_sync(r, offset + 1, &others);
	*cut = !whole && !others;
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* The walk met something that is no good at an offset; mark: what is committed. */
static kvarc_ret stop_at(kvarc_reader *r, const struct kvi_walk *w, uint64_t offset,
                         const struct index_mark *mark)
{
	bool cut;
	kvarc_ret ret = is_cut(r, offset, &cut);
	roll_back(r, mark);
	r->state = cut ? KVARC_STATE_CUT : KVARC_STATE_DAMAGED;
	r->seq.stop = w->commit.end;
	r->totals.dropped = r->in.source.size - (r->seq.stop ? r->seq.stop : KVI_SUPERBLOCK_BYTES);
	return ret;
}

static kvarc_ret scan_all(kvarc_reader *r, struct kvi_walk *w)
{
	struct index_mark m = { 0 };
	const struct kvi_walk_frame *f = &w->current;
	uint64_t at = w->offset; /* offset of the current frame */
	kvarc_ret ret;
	kvi_walk_all(w);
	while ((ret = kvi_walk_next(w, &r->seq.cut_error)) == KVARC_OK) {
		ret = add_entry(r, &f->entry);
		if (ret == KVARC_OK && f->frame.head.type == KVI_FRAME_STOREREF)
			ret = kvi_reader_add_storeref(r, &f->frame, f->content, &f->entry);
		else if (ret == KVARC_OK && f->frame.head.type == KVI_FRAME_FORK)
			ret = add_fork(r, &f->frame, &f->entry);
		else if (ret == KVARC_OK)
			ret = kvi_reader_meta(r, &f->frame, f->content, f->content_bytes,
			                      &r->seq.cut_error);
		if (ret)
			break;
		if (f->frame.head.type == KVI_FRAME_COMMIT)
			m = (struct index_mark){
				r->index.chunks.n,      r->index.segments.n, r->index.params.n,
				r->index.checkpoints.n, r->index.blobs.n,    r->meta.items.n,
				r->meta.first_item,     r->meta.set_closed,  true
			};
		at = w->offset;
		if (kvi_index_is_there(r))
			return KVARC_OK;
	}
	r->totals.frames = w->sequence;
	if (r->options.checkpoint && (ret == KVARC_END || ret == KVARC_DATA))
		return kvi_reader_no_checkpoint(r, r->error);
	if (ret == KVARC_END)
		ret = kvi_walk_end(w, &r->seq.cut_error);
	if (ret == KVARC_OK) {
		r->state = w->last_type == KVI_FRAME_FOOTER ? KVARC_STATE_CLOSED : KVARC_STATE_OPEN;
		return KVARC_OK;
	}
	if (ret != KVARC_DATA) {
		if (r->error && r->seq.cut_error.code)
			*r->error = r->seq.cut_error;
		return ret;
	}
	return stop_at(r, w, at, &m);
}

/* ==== From the index ==== */

/* Adds a range to a list, as far as it is in the file. */
static kvarc_ret add_range(kvarc_reader *r, struct kvi_list *ranges, uint64_t offset,
                           uint64_t bytes)
{
	const uint64_t size = r->in.source.size;
	if (!r->in.ahead || offset >= size || !bytes)
		return KVARC_OK;
	kvarc_byte_range *x = kvi_list_add(ranges, &r->alloc, sizeof *x);
	if (!x)
		return kvi_fail_alloc(r->error, &r->alloc);
	*x = (kvarc_byte_range){ .offset = offset,
		                 .bytes = bytes < size - offset ? bytes : size - offset };
	return KVARC_OK;
}

/* Reads ranges in one request, as far as memory allows, and empties the list. */
static kvarc_ret read_ranges(kvarc_reader *r, struct kvi_list *ranges)
{
	kvarc_ret ret = kvi_ahead_read(&r->ahead, &r->in.source, ranges, KVI_AHEAD_OPENING,
	                               r->error);
	ranges->n = 0;
	return ret;
}

/* Whether load_other needs nothing of a frame of this type. */
static bool is_skipped(uint8_t type)
{
	return kvi_frame_known(type) || type == KVI_FRAME_PARITY || type == KVI_FRAME_KEY ||
	       type == KVI_FRAME_PAD;
}

/* Bytes that load_other reads of a frame. */
static uint64_t named_bytes(const struct kvi_index_entry *entry)
{
	switch (entry->type) {
	case KVI_FRAME_IDENTITY:
	case KVI_FRAME_PREDICTOR:
	case KVI_FRAME_RESTORE:
	case KVI_FRAME_STOREREF:
		return entry->bytes;
	default:
		return is_skipped(entry->type) ? 0 : KVI_FRAME_HEAD_BYTES;
	}
}

/* Frames that the index names but does not describe. */
static kvarc_ret load_other(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	const uint8_t *content;
	uint8_t *owned = NULL, head[KVI_FRAME_HEAD_BYTES];
	kvarc_ret ret;
	switch (entry->type) {
	case KVI_FRAME_IDENTITY:
	case KVI_FRAME_PREDICTOR:
	case KVI_FRAME_RESTORE:
	case KVI_FRAME_STOREREF:
	case KVI_FRAME_FORK:
		ret = kvi_reader_read_frame(r, entry->offset, entry->type, entry->sequence, &buf,
		                            &f, r->error);
		if (ret == KVARC_OK)
			ret = kvi_frame_spend(&f, &r->meta.decode_left, r->error);
		if (ret == KVARC_OK && entry->type != KVI_FRAME_FORK)
			ret = kvi_frame_content(&r->packer, &f, &content, &owned, r->error);
		if (ret == KVARC_OK && entry->type == KVI_FRAME_STOREREF)
			ret = kvi_reader_add_storeref(r, &f, content, entry);
		else if (ret == KVARC_OK && entry->type == KVI_FRAME_FORK)
			ret = add_fork(r, &f, entry);
		else if (ret == KVARC_OK)
			ret = kvi_reader_meta(r, &f, content, f.head.decoded_bytes, r->error);
		kvi_free(&r->alloc, owned);
		kvi_free(&r->alloc, buf.p);
		return ret;
	case KVI_FRAME_PROFILE:
		return kvi_reader_add_part(r, entry->offset, entry->sequence, entry->bytes,
		                           r->error);
	default: /* the frame may be of a type that must not be skipped */
		if (is_skipped(entry->type))
			return KVARC_OK;
		ret = kvi_frame_peek(&r->in, entry->offset, head, 0, &f, r->error);
		if (ret == KVARC_END)
			return wrong_index(r, entry);
		return ret ? ret : kvi_frame_meaning(&f, r->error);
	}
}

/* Reads the INDEX frame at offset; its content is in *content. */
static kvarc_ret read_index(kvarc_reader *r, uint64_t offset, struct kvi_buffer *buf,
                            uint8_t **owned, struct kvi_index_reader *ir, uint64_t *sequence)
{
	struct kvi_frame f;
	const uint8_t *content;
	kvi_free(&r->alloc, *owned);
	*owned = NULL;
	kvarc_ret ret = kvi_frame_read(&r->in, offset, buf, &f, r->error);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(&f, r->error);
	if (ret == KVARC_OK && f.head.type == KVI_FRAME_INDEX)
		ret = kvi_frame_content(&r->packer, &f, &content, owned, r->error);
	else if (ret == KVARC_OK || ret == KVARC_END)
		ret = KVARC_DATA;
	if (ret)
		return ret;
	*sequence = f.head.sequence;
	if (!kvi_index_begin(ir, content, f.head.decoded_bytes))
		return KVARC_DATA;
	return kvi_frame_spend_entries(&f, ir->head.follows, &r->meta.decode_left, r->error);
}

/* Reads the frames that the INDEX frames name and do not describe in one request. */
static kvarc_ret read_named(kvarc_reader *r, const struct kvi_list *offsets, struct kvi_buffer *buf,
                            uint8_t **owned)
{
	struct kvi_list ranges = { 0 };
	struct kvi_index_reader ir;
	struct kvi_index_entry e;
	uint64_t at = 0, sequence;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = offsets->n; i-- > 0 && r->in.ahead && !ret;) {
		const uint64_t offset = *KVI_LIST(uint64_t, *offsets, i);
		ret = read_index(r, offset, buf, owned, &ir, &sequence);
		while (!ret && kvi_index_next(&ir, &e)) {
			/* So there are no more ranges than frames. */
			const bool ascends = e.offset >= at && e.offset + e.bytes <= offset;
			ret = ascends ? add_range(r, &ranges, e.offset, named_bytes(&e))
			              : KVARC_DATA;
			at = e.offset + e.bytes;
		}
	}
	if (!ret)
		ret = read_ranges(r, &ranges);
	kvi_free(&r->alloc, ranges.p);
	return ret;
}

/* The LIST that has the chunks of segments before a checkpoint may stand behind it. */
static kvarc_ret list_beyond(kvarc_reader *r, struct kvi_index_reader *ir)
{
	struct kvi_index_entry e;
	if (kvi_reader_all_listed(r, r->index.segments.n))
		return KVARC_OK;
	while (kvi_index_next(ir, &e))
		if (e.type == KVI_FRAME_LIST)
			return kvi_reader_add_list(r, &e, true);
	return KVARC_OK;
}

/* Adds all entries of the INDEX frames whose offsets are in the list, the last frame first, up to
 * the checkpoint that the file is opened at. */
static kvarc_ret read_entries(kvarc_reader *r, const struct kvi_list *offsets,
                              struct kvi_buffer *buf, uint8_t **owned)
{
	struct kvi_index_reader ir;
	struct kvi_index_entry e;
	uint64_t at = 0, after = 0, sequence;
	for (size_t i = offsets->n; i-- > 0;) {
		uint64_t offset = *KVI_LIST(uint64_t, *offsets, i);
		kvarc_ret ret = read_index(r, offset, buf, owned, &ir, &sequence);
		if (ret)
			return ret;
		while (!kvi_index_is_there(r) && kvi_index_next(&ir, &e)) {
			if (e.offset < at || e.offset + e.bytes > offset || e.sequence < after ||
			    e.sequence >= sequence)
				return wrong_index(r, &e);
			at = e.offset + e.bytes;
			after = e.sequence + 1;
			ret = e.type == KVI_FRAME_LIST ? kvi_reader_add_list(r, &e, false)
			                               : add_entry(r, &e);
			if (ret == KVARC_OK)
				ret = load_other(r, &e);
			if (ret)
				return ret;
		}
		if (kvi_index_is_there(r))
			return list_beyond(r, &ir);
		if (!kvi_index_end(&ir))
			return KVARC_DATA;
	}
	return r->options.checkpoint ? kvi_reader_no_checkpoint(r, r->error) : KVARC_OK;
}

static kvarc_ret check_commit(kvarc_reader *r, const struct kvi_footer *foot,
                              struct kvi_buffer *buf)
{
	const struct kvi_list *l = &r->index.checkpoints;
	uint64_t at = r->options.checkpoint
	                      ? KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->offset
	                      : foot->commit;
	struct kvi_frame f;
	struct kvi_commit c;
	size_t n = r->geometry.n_tracks;
	uint64_t *tokens = kvi_calloc(&r->alloc, n, sizeof *tokens);
	if (!tokens)
		return kvi_fail_alloc(r->error, &r->alloc);
	kvarc_ret ret = kvi_frame_read(&r->in, at, buf, &f, r->error);
	if (ret == KVARC_END ||
	    (ret == KVARC_OK &&
	     (f.head.type != KVI_FRAME_COMMIT ||
	      !kvi_commit_parse(&c, tokens, n, f.payload, f.head.payload_bytes) ||
	      memcmp(tokens, r->index.tokens, n * sizeof *tokens))))
		ret = KVARC_DATA;
	kvi_free(&r->alloc, tokens);
	return ret;
}

/* Loads the INDEX frames that the FOOTER names. DATA: there is none, or an INDEX is not good. */
static kvarc_ret load_index(kvarc_reader *r)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_list offsets = { 0 };
	struct kvi_index_reader ir = { 0 };
	struct kvi_footer foot;
	struct kvi_frame f = { 0 };
	struct kvi_list ranges = { 0 };
	uint8_t *owned = NULL;
	uint32_t bytes = 0;
	uint64_t sequence, end = r->in.source.size - KVI_FOOTER_FRAME_BYTES;
	if (r->in.source.size < KVI_SUPERBLOCK_BYTES + KVI_FOOTER_FRAME_BYTES ||
	    end % KVI_FRAME_ALIGN)
		return KVARC_DATA;
	kvarc_ret ret = kvi_frame_read(&r->in, end, &buf, &f, r->error);
	if (ret == KVARC_OK && (f.head.type != KVI_FRAME_FOOTER ||
	                        !kvi_footer_parse(&foot, f.payload, f.head.payload_bytes) ||
	                        foot.frames != f.head.sequence))
		ret = KVARC_DATA;
	r->totals.frames = f.head.sequence + 1;
	if (!ret)
		ret = add_range(r, &ranges, foot.commit, foot.commit_bytes);
	bytes = ret ? 0 : foot.index_bytes;
	for (uint64_t at = ret ? 0 : foot.index; at && ret == KVARC_OK; at = ir.head.follows) {
		uint64_t *o = at < end ? kvi_list_add(&offsets, &r->alloc, sizeof *o) : NULL;
		if (!o) {
			ret = at < end ? kvi_fail_alloc(r->error, &r->alloc) : KVARC_DATA;
			break;
		}
		*o = end = at;
		ret = add_range(r, &ranges, at, bytes);
		if (ret == KVARC_OK)
			ret = read_ranges(r, &ranges);
		if (ret == KVARC_OK)
			ret = read_index(r, at, &buf, &owned, &ir, &sequence);
		r->totals.codecs |= ret ? 0 : ir.head.codecs;
		bytes = ir.head.follows_bytes;
	}
	if (ret == KVARC_OK)
		ret = read_named(r, &offsets, &buf, &owned);
	if (ret == KVARC_OK)
		ret = read_entries(r, &offsets, &buf, &owned);
	if (ret == KVARC_OK &&
	    (is_partial(&r->index) || !kvi_reader_all_listed(r, r->index.segments.n)))
		ret = KVARC_DATA;
	if (ret == KVARC_OK)
		ret = check_commit(r, &foot, &buf);
	kvi_free(&r->alloc, owned);
	kvi_free(&r->alloc, offsets.p);
	kvi_free(&r->alloc, ranges.p);
	kvi_free(&r->alloc, buf.p);
	return ret;
}

static void forget(kvarc_reader *r)
{
	for (size_t i = 0; i < r->meta.items.n; i++)
		kvi_restore_free(&KVI_LIST(struct kvi_item, r->meta.items, i)->restore, &r->alloc);
	r->meta.items.n = r->index.chunks.n = r->index.segments.n = r->index.params.n = 0;
	r->index.checkpoints.n = r->index.stored.n = r->index.blobs.n = 0;
	r->index.unlisted = 0;
	kvi_reader_free_lists(r);
	r->meta.first_item = 0;
	r->meta.set_closed = false;
	kvi_reader_forget_predictors(r);
	kvi_identity_free(&r->meta.identity, &r->alloc);
	kvi_index_finish(&r->index, r->geometry.n_tracks);
}

static kvarc_ret load(kvarc_reader *r, struct kvi_walk *w)
{
	const struct kvi_walk_frame *f = &w->current;
	kvarc_ret ret = kvi_walk_first(w, r->error);
	if (ret == KVARC_END)
		return kvi_fail_at(r->error, KVARC_DATA, w->offset, 0,
		                   "the file is cut after its first %d bytes",
		                   KVI_SUPERBLOCK_BYTES);
	if (ret == KVARC_OK)
		ret = kvi_reader_geometry(r, &f->frame, f->content, f->content_bytes);
	if (ret == KVARC_OK)
		ret = kvi_walk_geometry(w, &r->geometry, &r->order, r->error);
	if (ret)
		return ret;
	ret = load_index(r);
	if (ret == KVARC_DATA) {
		forget(r);
		r->meta.decode_left = r->alloc.limit;
		ret = scan_all(r, w);
		r->totals.codecs = w->listing.codecs;
	} else {
		r->state = KVARC_STATE_CLOSED;
		r->by_index = ret == KVARC_OK;
	}
	kvi_index_finish(&r->index, r->geometry.n_tracks);
	return ret ? ret : kvi_reader_count_all(r);
}

kvarc_ret kvi_reader_load(kvarc_reader *r)
{
	struct kvi_walk w;
	kvi_walk_init(&w, &r->in, &r->packer);
	w.skim = true;
	w.decode_left = &r->meta.decode_left;
	kvarc_ret ret = load(r, &w);
	kvi_walk_free(&w);
	return ret;
}

/* The longest track of a state. */
static uint32_t longest(const kvarc_reader *r, const uint64_t *tokens)
{
	uint32_t track = 0;
	for (uint32_t i = 1; i < r->geometry.n_tracks; i++)
		track = tokens[i] > tokens[track] ? i : track;
	return track;
}

/* The first token of a track that was written between two frames; `none` where none was. */
static uint64_t first_written(const kvarc_reader *r, uint32_t track, uint64_t after,
                              uint64_t before, uint64_t none)
{
	uint64_t first = none;
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (s->track == track && !s->origin && s->listed > after && s->listed < before)
			first = s->t0 < first ? s->t0 : first;
	}
	return first;
}

kvarc_ret kvarc_reader_checkpoint(kvarc_reader *r, size_t i, kvarc_checkpoint *checkpoint)
{
	struct kvi_commit c;
	if (!r || !checkpoint)
		return KVARC_PROG;
	if (i >= r->index.checkpoints.n)
		return KVARC_END;
	const struct kvi_checkpoint_ref *ref = KVI_LIST(struct kvi_checkpoint_ref,
	                                                r->index.checkpoints, i);
	struct kvi_frame f;
	size_t n = r->geometry.n_tracks;
	uint64_t *tokens = kvi_calloc(&r->alloc, n, sizeof *tokens), most, first;
	kvarc_ret ret = tokens ? kvi_reader_read_frame(r, ref->offset, KVI_FRAME_COMMIT,
	                                               ref->sequence, &r->meta.commit, &f, r->error)
	                       : kvi_fail_alloc(r->error, &r->alloc);
	if (!ret && (!kvi_commit_parse(&c, tokens, n, f.payload, f.head.payload_bytes) ||
	             c.checkpoint.number != ref->number))
		ret = kvi_reader_not_valid(&f, r->error);
	uint32_t track = ret ? 0 : longest(r, tokens);
	most = ret ? 0 : tokens[track];
	kvi_free(&r->alloc, tokens);
	if (ret)
		return kvi_reader_set_error(r, ret);
	first = first_written(r, track, i ? ref[-1].sequence : 0, ref->sequence, most);
	*checkpoint =
		(kvarc_checkpoint){ .number = c.checkpoint.number,
		                    .time = c.checkpoint.time,
		                    .label = (const char *)c.checkpoint.label,
		                    .label_bytes = c.checkpoint.label_bytes,
		                    .tokens = most,
		                    .new_tokens = most - first,
		                    .end = ref->offset + kvi_frame_bytes(f.head.payload_bytes) };
	return KVARC_OK;
}
