/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_resume.c - finds the end of an archive, for a writer that continues it (spec 9.3) */
#include "reader_resume.h"

#include "reader_frames.h"
#include "reader_ids.h"
#include "reader_lists.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "format/commit.h"

/* Fills `to` from the FOOTER. DATA: there is none. */
static kvarc_ret read_footer(kvarc_reader *r, struct kvi_resume *to)
{
	const uint64_t size = r->in.source.size;
	struct kvi_buffer buf = { 0 };
	struct kvi_footer foot;
	struct kvi_frame f;
	kvarc_ret ret = size < KVI_SUPERBLOCK_BYTES + KVI_FOOTER_FRAME_BYTES
	                        ? KVARC_DATA
	                        : kvi_frame_read(&r->in, size - KVI_FOOTER_FRAME_BYTES, &buf, &f,
	                                         r->error);
	if (ret == KVARC_END ||
	    (!ret && (f.head.type != KVI_FRAME_FOOTER ||
	              !kvi_footer_parse(&foot, f.payload, f.head.payload_bytes))))
		ret = KVARC_DATA;
	kvi_free(&r->alloc, buf.p);
	if (ret)
		return ret;
	to->offset = size;
	to->sequence = f.head.sequence + 1;
	to->last_index = foot.index;
	to->last_index_bytes = foot.index_bytes;
	to->last_commit = foot.commit;
	to->last_commit_bytes = foot.commit_bytes;
	return KVARC_OK;
}

/* Takes the entries of the last INDEX for the next one, which may then follow the one before. */
static kvarc_ret restate(kvarc_reader *r, struct kvi_resume *to)
{
	enum { ENTRIES_MOST = 8192 };
	struct kvi_buffer buf = { 0 };
	struct kvi_index_reader ir;
	struct kvi_index_entry e;
	struct kvi_frame f;
	const uint8_t *content;
	uint8_t *owned = NULL;
	kvarc_ret ret = kvi_frame_read(&r->in, to->last_index, &buf, &f, r->error);
	if (!ret && f.head.type != KVI_FRAME_INDEX)
		ret = KVARC_DATA;
	if (!ret)
		ret = kvi_frame_content(&r->packer, &f, &content, &owned, r->error);
	if (!ret && !kvi_index_begin(&ir, content, f.head.decoded_bytes))
		ret = KVARC_DATA;
	if (!ret && ir.left <= ENTRIES_MOST) {
		while (kvi_index_next(&ir, &e))
			if (!kvi_pending_add(&to->pending, &e))
				ret = kvi_fail_alloc(r->error, &r->alloc);
		if (!ret && !kvi_index_end(&ir))
			ret = KVARC_DATA;
		to->pending.chunks = 0;
		to->pending.restated = to->pending.n;
		to->pending.follows = ir.head.follows;
		to->pending.follows_bytes = ir.head.follows_bytes;
	}
	kvi_free(&r->alloc, owned);
	kvi_free(&r->alloc, buf.p);
	return ret == KVARC_END ? KVARC_DATA : ret;
}

/* Reads the identity and counts BLOB bytes of items, from frames before the end alone. */
static kvarc_ret take_frame(kvarc_reader *r, const struct kvi_walk_frame *w)
{
	struct kvi_blob b;
	if (w->frame.head.type == KVI_FRAME_IDENTITY)
		return kvi_reader_meta(r, &w->frame, w->content, w->content_bytes, r->error);
	if (w->frame.head.type != KVI_FRAME_BLOB ||
	    !kvi_blob_parse(&b, w->content, w->content_bytes) || b.item >= r->meta.items.n)
		return KVARC_OK;
	struct kvi_item *item = KVI_LIST(struct kvi_item, r->meta.items, b.item);
	item->next = b.offset == item->next ? b.offset + b.bytes : KVARC_UNKNOWN;
	return KVARC_OK;
}

/* An INDEX says which PARAMS are copies; a pass over the frames does not. */
static void note_copies(kvarc_reader *r, const struct kvi_walk_frame *w)
{
	struct kvi_index_reader ir;
	struct kvi_index_entry e;
	if (!kvi_index_begin(&ir, w->content, w->content_bytes))
		return;
	while (kvi_index_next(&ir, &e)) {
		struct kvi_params_ref *p = e.type == KVI_FRAME_PARAMS && e.params
		                                   ? kvi_index_params(&r->index, e.sequence)
		                                   : NULL;
		if (p)
			p->copy_of = e.params;
	}
}

static kvarc_ret list_frame(kvarc_reader *r, const struct kvi_walk_frame *w, struct kvi_resume *to)
{
	bool good = true;
	if (w->frame.head.type == KVI_FRAME_LIST) { /* it has what it lists */
		struct kvi_out list;
		kvi_out_init(&list, &r->alloc);
		good = kvi_pending_take_chunks(&to->pending, &list);
		kvi_out_free(&list);
		if (!good)
			return kvi_fail_alloc(r->error, &r->alloc);
	}
	if (w->frame.head.type == KVI_FRAME_INDEX) {
		note_copies(r, w);
		kvi_pending_clear(&to->pending);
	} else if (w->frame.head.type != KVI_FRAME_FOOTER) {
		good = kvi_pending_add(&to->pending, &w->entry);
	}
	return good ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
}

/* Goes through the frames of an archive without a FOOTER, up to its last COMMIT. */
static kvarc_ret walk(kvarc_reader *r, struct kvi_walk *w, struct kvi_resume *to)
{
	const bool whole = r->state == KVARC_STATE_CLOSED || r->state == KVARC_STATE_OPEN;
	const uint64_t end = whole ? r->in.source.size : r->seq.stop;
	kvarc_ret ret = KVARC_OK;
	kvi_identity_free(&r->meta.identity, &r->alloc);
	do {
		ret = kvi_walk_next(w, r->error);
		if (!ret && w->current.frame.head.type == KVI_FRAME_GEOMETRY)
			ret = kvi_walk_geometry(w, &r->geometry, &r->order, r->error);
		if (!ret)
			ret = take_frame(r, &w->current);
		if (!ret)
			ret = list_frame(r, &w->current, to);
	} while (!ret && w->offset < end);
	to->offset = w->offset;
	to->sequence = w->sequence;
	to->codecs = w->listing.codecs;
	const struct kvi_walk_index *last = kvi_walk_last_index(w);
	to->last_index = last ? last->offset : 0;
	to->last_index_bytes = last ? last->bytes : 0;
	to->last_commit = w->commit.offset;
	to->last_commit_bytes = (uint32_t)(w->commit.end - w->commit.offset);
	return ret;
}

/* Checks that the packed files are complete. blobs: literal bytes were counted. */
static kvarc_ret check_items(kvarc_reader *r, bool blobs)
{
	bool good = true;
	for (size_t i = r->meta.first_item; blobs && i < r->meta.items.n; i++) {
		const struct kvi_item *item = KVI_LIST(struct kvi_item, r->meta.items, i);
		good = good && item->next == item->literal_bytes;
	}
	for (uint32_t t = 0; t < r->geometry.n_tracks; t++)
		good = good && kvi_reader_item_tokens(r, t) <= r->index.tokens[t];
	return good ? KVARC_OK
	            : kvi_fail(r->error, KVARC_DATA,
	                       "the archive was cut while files were packed, which are not "
	                       "complete: pack them again");
}

/* A frame that was found; *is: it is a whole COMMIT that is a checkpoint. */
static kvarc_ret is_checkpoint(kvarc_reader *r, uint64_t offset, struct kvi_buffer *buf,
                               uint64_t *tokens, bool *is)
{
	struct kvi_commit c;
	struct kvi_frame f;
	kvarc_ret ret = kvi_frame_read(&r->in, offset, buf, &f, NULL);
	*is = !ret && f.head.type == KVI_FRAME_COMMIT &&
	      kvi_commit_parse(&c, tokens, r->geometry.n_tracks, f.payload, f.head.payload_bytes) &&
	      c.checkpoint.number;
	return ret == KVARC_DATA || ret == KVARC_END ? KVARC_OK : ret;
}

/* Whether a checkpoint stands behind the commit at which a damaged file is left. */
static kvarc_ret checkpoint_follows(kvarc_reader *r, bool *follows)
{
	struct kvi_window window = { 0 };
	struct kvi_buffer buf = { 0 };
	uint64_t *tokens = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *tokens);
	uint64_t at = r->seq.stop;
	kvarc_ret ret = tokens ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
	*follows = false;
	while (!ret && !*follows) {
		ret = kvi_frame_find(&r->in, at, &window, &at, r->error);
		if (ret || at >= r->in.source.size)
			break;
		ret = is_checkpoint(r, at, &buf, tokens, follows);
		at += KVI_FRAME_ALIGN;
	}
	kvi_free(&r->alloc, window.buffer.p);
	kvi_free(&r->alloc, buf.p);
	kvi_free(&r->alloc, tokens);
	return ret;
}

/* Finds the end of the archive: fills what of *to is of the end. */
static kvarc_ret find_end(kvarc_reader *r, bool lenient, struct kvi_resume *to)
{
	struct kvi_walk w;
	bool lost = r->state == KVARC_STATE_DAMAGED;
	if (lost && lenient && r->seq.stop) {
		kvarc_ret ret = checkpoint_follows(r, &lost);
		if (ret)
			return ret;
	}
	if (lost)
		return kvi_reason(r->error, KVARC_REASON_SALVAGE,
		                  kvi_fail(r->error, KVARC_DATA,
		                           "the archive is damaged behind its last commit: salvage "
		                           "it, or cut what is good"));
	if (r->state == KVARC_STATE_CLOSED) {
		kvarc_ret ret = read_footer(r, to);
		if (!ret && r->by_index)
			ret = restate(r, to);
		return ret ? ret : check_items(r, false);
	}
	kvi_walk_init(&w, &r->in, &r->packer);
	w.skim = true;
	kvarc_ret ret = walk(r, &w, to);
	kvi_walk_free(&w);
	/* Nothing is committed: what comes behind GEOMETRY does not count. */
	if (!ret && !to->last_commit)
		r->meta.first_item = r->meta.items.n;
	return ret ? ret : check_items(r, true);
}

kvarc_ret kvi_reader_resume(kvarc_reader *r, bool lenient, struct kvi_resume *to)
{
	const struct kvi_list *l = &r->index.checkpoints;
	*to = (struct kvi_resume){ .superblock = &r->sb,
		                   .identity = &r->meta.identity,
		                   .params = &r->index.params,
		                   .crypt = r->in.crypt,
		                   .geometry_hash = r->chains.geometry,
		                   .sync = r->in.sync,
		                   .file_bytes = r->in.source.size,
		                   .n_segments = r->index.segments.n,
		                   .codecs = r->totals.codecs,
		                   .closed = r->state == KVARC_STATE_CLOSED };
	if (l->n)
		to->checkpoint = KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->number;
	kvi_pending_init(&to->pending, &r->alloc);
	if (r->sb.ro_compat)
		return kvi_reason(r->error, KVARC_REASON_NEWER,
		                  kvi_fail_at(r->error, KVARC_OPTIONS, 0, KVARC_UNKNOWN,
		                              "the archive has features (%#x) of a newer version "
		                              "of kvarc that forbid an append",
		                              (unsigned)r->sb.ro_compat));
	return find_end(r, lenient, to);
}

uint64_t kvi_reader_item_tokens(const kvarc_reader *r, uint32_t track)
{
	uint64_t end = 0;
	if (r->meta.set_closed)
		return 0;
	for (size_t i = r->meta.first_item; i < r->meta.items.n; i++) {
		const struct kvi_restore *x = &KVI_LIST(struct kvi_item, r->meta.items, i)->restore;
		for (size_t k = 0; k < x->n_pieces; k++) {
			const struct kvi_piece *p = &x->pieces[k];
			if (p->type == KVI_PIECE_AREA && p->track == track &&
			    end < p->t0 + p->n_tokens)
				end = p->t0 + p->n_tokens;
		}
	}
	return end;
}

/* The segment of the last state that holds a token of a track. */
static const struct kvi_segment_ref *segment_with(const kvarc_reader *r, uint32_t track,
                                                  uint64_t token)
{
	uint64_t p = r->index.last[track];
	const struct kvi_segment_ref *s = NULL;
	while (p && (s = KVI_LIST(struct kvi_segment_ref, r->index.segments, p - 1))->t0 > token)
		p = s->parent;
	return p ? s : NULL;
}

/* The chain value of a segment's first n tokens, in place of the value before the segment; s: its
 * content. Unknown where a model that is not here has coded its ids. */
static kvarc_ret link(kvarc_reader *r, const struct kvi_segment_ref *segment, uint32_t n,
                      struct kvi_segment *s, struct kvi_chain *chain)
{
	const struct kvi_chain before = *chain;
	kvarc_ret ret = kvi_reader_segment(r, segment, s);
	if (ret)
		return ret;
	ret = kvi_reader_first_ids(r, kvi_reader_codes_ids(r, segment->sequence), s, n, NULL);
	*chain = (struct kvi_chain){ false, { 0, 0 } };
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(r->error, &r->alloc);
	if (ret || !before.known || !s->has_ids)
		return KVARC_OK;
	chain->known = true;
	s->track = kvi_segment_named(r, segment);
	ret = kvi_chain_link(&chain->value, &r->chains.scratch, before.value, s, n);
	return ret ? kvi_fail_alloc(r->error, &r->alloc) : KVARC_OK;
}

/* A segment, and how many of its tokens count. */
struct chain_step {
	const struct kvi_segment_ref *segment;
	uint32_t n;
};

/* Lists the segments from one back to the one whose chain value holds for all its tokens that
 * count, or to the first of the track. */
static kvarc_ret steps_back(kvarc_reader *r, const struct kvi_segment_ref *segment, uint64_t end,
                            struct kvi_list *steps)
{
	for (; segment; segment = kvi_index_before(&r->index, segment)) {
		struct chain_step *x = kvi_list_add(steps, &r->alloc, sizeof *x);
		if (!x)
			return kvi_fail_alloc(r->error, &r->alloc);
		*x = (struct chain_step){ segment, (uint32_t)(end - segment->t0) };
		end = segment->t0;
		if (x->n == segment->n || !segment->chain.known)
			break;
	}
	return KVARC_OK;
}

static kvarc_ret chain_of(kvarc_reader *r, const struct kvi_segment_ref *segment, uint64_t end,
                          struct kvi_segment *s, struct kvi_chain *to)
{
	struct kvi_list steps = { 0 };
	kvarc_ret ret = steps_back(r, segment, end, &steps);
	to->known = !ret;
	if (!ret &&
	    kvi_chain_root(&to->value, &r->chains.scratch, r->chains.geometry, &r->meta.identity))
		ret = kvi_fail_alloc(r->error, &r->alloc);
	for (size_t i = steps.n; i-- > 0 && !ret;) {
		const struct chain_step *x = KVI_LIST(struct chain_step, steps, i);
		if (x->n == x->segment->n || !x->segment->chain.known)
			*to = x->segment->chain;
		else
			ret = link(r, x->segment, x->n, s, to);
	}
	kvi_free(&r->alloc, steps.p);
	return ret;
}

kvarc_ret kvi_reader_track_end(kvarc_reader *r, uint32_t track, uint64_t t0,
                               struct kvi_track_end *to)
{
	const struct kvi_segment_ref *p = t0 ? segment_with(r, track, t0 - 1) : NULL;
	*to = (struct kvi_track_end){ 0 };
	if (!p)
		return KVARC_OK;
	/* The chain value is enough behind a whole segment. */
	to->no_position = p->stored && !r->options.stored_read && t0 == p->t0 + p->n;
	struct kvi_segment *s = kvi_malloc(&r->alloc, sizeof *s);
	kvarc_ret ret = s ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
	if (!ret && !to->no_position)
		ret = kvi_reader_segment(r, p, s);
	if (!ret && !to->no_position)
		to->position = (int64_t)s->positions[t0 - 1 - p->t0] + 1;
	if (!ret)
		ret = chain_of(r, p, t0, s, &to->chain);
	kvi_free(&r->alloc, s);
	return ret;
}

uint64_t kvi_reader_predictor_like(const kvarc_reader *r, uint64_t sequence,
                                   const struct kvi_predictor *like, bool embedded)
{
	struct kvi_predictor_ref *x = kvi_reader_predictor_before(&r->predictors, sequence);
	if (!x || x->p.kind != like->kind || x->p.level != like->level ||
	    !kvi_h128_equal(x->p.digest, like->digest))
		return 0;
	return !embedded || kvi_reader_embedding(r, x) ? x->sequence : 0;
}

/* The last segment of the file with the tokens of a segment; NULL: there is none. */
static const struct kvi_segment_ref *last_segment(const kvarc_reader *r,
                                                  const struct kvi_segment *segment)
{
	for (size_t i = r->index.segments.n; i-- > 0;) {
		const struct kvi_segment_ref *x = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (x->track == segment->track && x->t0 == segment->t0 && x->n == segment->n &&
		    !x->stored)
			return x;
	}
	return NULL;
}

/* The chunk of heads of a tensor in a segment; NULL: there is none. */
static const struct kvi_chunk_ref *chunk_of(const kvarc_reader *r,
                                            const struct kvi_segment_ref *segment, uint32_t tensor,
                                            uint16_t head, uint16_t heads)
{
	const struct kvi_chunk_ref *c = kvi_segment_chunks(&r->index, segment);
	for (uint64_t i = segment->first; i < segment->end; i++)
		if (c[i].tensor == tensor && c[i].head == head && c[i].heads == heads)
			return &c[i];
	return NULL;
}

kvarc_ret kvi_reader_find_state(kvarc_reader *r, const struct kvi_segment *segment, uint32_t tensor,
                                uint16_t head, uint16_t heads, struct kvi_buffer *buffer,
                                struct kvi_frame *frame, kvarc_error *error)
{
	const struct kvi_segment_ref *x = last_segment(r, segment);
	struct kvi_chunk_header h;
	kvarc_ret listed = x ? kvi_reader_list_segment(r, x, error) : KVARC_END;
	if (listed)
		return listed;
	const struct kvi_chunk_ref *ref = chunk_of(r, x, tensor, head, heads);
	if (!ref)
		return KVARC_END;
	uint64_t offset = ref->offset, sequence = ref->sequence;
	for (int i = 0; i < 2; i++) {
		kvarc_ret ret = kvi_reader_read_frame(r, offset, KVI_FRAME_CHUNK, sequence, buffer,
		                                      frame, error);
		if (ret)
			return ret;
		if (!kvi_chunk_header_parse(&h, frame->payload, frame->head.payload_bytes))
			return KVARC_DATA;
		if (h.codec != KVI_CODEC_STATE ||
		    !kvi_state_reference(frame->payload + KVI_CHUNK_HEADER_BYTES,
		                         frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES,
		                         &sequence, &offset))
			return kvi_state_may_refer(h.codec) && h.n == segment->n &&
			                       h.tensor == tensor
			               ? KVARC_OK
			               : KVARC_DATA;
	}
	return KVARC_DATA;
}
