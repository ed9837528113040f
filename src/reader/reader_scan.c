/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_scan.c - the index of a file without a good one: from all frames in order (spec 9) */
#include "reader_state.h"
#include "reader_stored.h"

/* How much of the lists is committed. */
struct index_mark {
	size_t chunks, segments, params, checkpoints, blobs, items, first_item;
	bool set_closed, any; /* any: there is a commit */
};

/* Drops what came after the last commit. */
static void roll_back(kvarc_reader *r, const struct index_mark *m)
{
	r->index.segments.n = m->segments;
	r->index.chunks.n = m->chunks;
	r->index.params.n = m->params;
	r->index.checkpoints.n = m->checkpoints;
	r->index.blobs.n = m->blobs;
	while (m->any && r->meta.items.n > m->items)
		kvi_restore_free(
			&KVI_LIST(struct kvi_item, r->meta.items, --r->meta.items.n)->restore,
			&r->alloc);
	r->meta.first_item = m->any ? m->first_item : 0;
	r->meta.set_closed = m->set_closed;
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

/* The walk met something that is no good at an offset; m: what is committed. */
static kvarc_ret stop_at(kvarc_reader *r, const struct kvi_walk *w, uint64_t offset,
                         const struct index_mark *m)
{
	bool cut;
	kvarc_ret ret = is_cut(r, offset, &cut);
	roll_back(r, m);
	r->state = cut ? KVARC_STATE_CUT : KVARC_STATE_DAMAGED;
	r->seq.stop = w->commit_end;
	r->totals.dropped = r->in.source.size - (r->seq.stop ? r->seq.stop : KVI_SUPERBLOCK_BYTES);
	return ret;
}

kvarc_ret kvi_reader_scan(kvarc_reader *r, struct kvi_walk *w)
{
	struct index_mark m = { 0 };
	uint64_t at = w->offset; /* of the frame in hand */
	kvarc_ret ret;
	kvi_walk_all(w);
	while ((ret = kvi_walk_next(w, &r->seq.cut_error)) == KVARC_OK) {
		ret = kvi_index_add(r, &w->entry);
		if (ret == KVARC_OK && w->frame.head.type == KVI_FRAME_STOREREF)
			ret = kvi_reader_add_storeref(r, &w->frame, w->content, &w->entry);
		else if (ret == KVARC_OK)
			ret = kvi_reader_meta(r, &w->frame, w->content, w->content_bytes,
			                      &r->seq.cut_error);
		if (ret)
			break;
		if (w->frame.head.type == KVI_FRAME_COMMIT)
			m = (struct index_mark){
				r->index.chunks.n,      r->index.segments.n, r->index.params.n,
				r->index.checkpoints.n, r->index.blobs.n,    r->meta.items.n,
				r->meta.first_item,     r->meta.set_closed,  true
			};
		at = w->offset;
		kvi_index_end_frame(&r->index, at);
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
