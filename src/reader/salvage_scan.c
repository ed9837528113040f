/* SPDX-License-Identifier: BSD-3-Clause */
/* salvage_scan.c - looks for good frames wherever they are (spec 9.4) */
#include "format/commit.h"
#include "util/string_field.h"
#include "reader_salvage.h"
#include "reader_stored.h"

struct scan {
	kvarc_reader *r;
	uint64_t offset, frames;
	uint64_t next_sequence; /* after the last good frame */
	uint16_t last_type;     /* 0: a region */
	uint16_t last_good;
	uint64_t *committed; /* a track: tokens of the COMMIT in hand */
	struct kvi_buffer buffer;
	struct kvi_window window;
	bool gap;          /* a frame of unknown type was lost ... */
	bool gap_in_items; /* ... before a RESTORE frame */
	bool has_index;
};

static kvarc_ret no_memory(const kvarc_reader *r)
{
	return kvi_fail_alloc(r->error, &r->alloc);
}

static kvarc_ret add_region(struct scan *s, uint64_t offset, uint64_t bytes)
{
	struct kvi_region *g = kvi_list_add(&s->r->losses.regions, &s->r->alloc, sizeof *g);
	if (!g)
		return no_memory(s->r);
	g->offset = offset;
	g->bytes = bytes;
	s->r->totals.dropped += bytes;
	return KVARC_OK;
}

/* An item whose RESTORE frame was lost keeps its number. */
static kvarc_ret add_lost_item(struct scan *s, uint64_t sequence)
{
	kvarc_reader *r = s->r;
	size_t at = r->meta.items.n;
	struct kvi_item *items = r->meta.items.p;
	while (at && items[at - 1].sequence >= sequence)
		at--;
	if (at < r->meta.items.n && items[at].sequence == sequence)
		return KVARC_OK;
	char *name = kvi_string_copy(&r->alloc, NULL);
	if (!name || !kvi_list_add(&r->meta.items, &r->alloc, sizeof *items)) {
		kvi_free(&r->alloc, name);
		return no_memory(r);
	}
	items = r->meta.items.p;
	memmove(items + at + 1, items + at, (r->meta.items.n - 1 - at) * sizeof *items);
	r->meta.first_item += at < r->meta.first_item;
	items[at] = (struct kvi_item){ .restore = { .kind = KVI_ITEM_LOST, .name = name },
		                       .sequence = sequence };
	return KVARC_OK;
}

/* The segment of a chunk; made up from the chunk when it was lost. DATA: the
 * chunk does not fit what is known. */
static kvarc_ret segment_of(struct scan *s, const struct kvi_chunk_header *h,
                            struct kvi_segment_ref **out)
{
	kvarc_reader *r = s->r;
	uint32_t track = r->geometry.tensors[h->tensor].track;
	struct kvi_segment_ref *last = r->index.segments.n
	                                       ? KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                                  r->index.segments.n - 1)
	                                       : NULL;
	*out = last;
	if (last && last->sequence == h->segment)
		return !last->stored && last->track == track && last->t0 == h->t0 && last->n == h->n
		               ? KVARC_OK
		               : KVARC_DATA;
	if (last && last->sequence > h->segment)
		return KVARC_DATA;
	*out = kvi_list_add(&r->index.segments, &r->alloc, sizeof **out);
	if (!*out)
		return no_memory(r);
	kvi_reader_begin_set(r);
	**out = (struct kvi_segment_ref){ .sequence = h->segment,
		                          .t0 = h->t0,
		                          .n = h->n,
		                          .track = track,
		                          .first = r->index.chunks.n,
		                          .end = r->index.chunks.n };
	kvi_index_link(&r->index);
	return KVARC_OK;
}

static kvarc_ret take_chunk(struct scan *s, const struct kvi_frame *f)
{
	kvarc_reader *r = s->r;
	struct kvi_chunk_header h;
	struct kvi_segment_ref *segment;
	if (!kvi_chunk_header_parse(&h, f->payload, f->head.payload_bytes))
		return KVARC_DATA;
	kvarc_ret ret = kvi_chunk_check(&r->geometry, &h, f, r->error);
	if (ret == KVARC_OK)
		ret = segment_of(s, &h, &segment);
	if (ret)
		return ret;
	struct kvi_chunk_ref *c = kvi_list_add(&r->index.chunks, &r->alloc, sizeof *c);
	if (!c)
		return no_memory(r);
	*c = kvi_chunk_ref(f, &h);
	segment->end = r->index.chunks.n;
	return KVARC_OK;
}

static kvarc_ret take_segment(struct scan *s, const struct kvi_frame *f, const uint8_t *content,
                              size_t bytes)
{
	kvarc_reader *r = s->r;
	struct kvi_segment seg;
	if (!kvi_segment_parse(&seg, content, bytes) || seg.track >= r->geometry.n_tracks ||
	    seg.t0 > UINT32_MAX)
		return KVARC_DATA;
	struct kvi_segment_ref *ref = kvi_list_add(&r->index.segments, &r->alloc, sizeof *ref);
	if (!ref)
		return no_memory(r);
	kvi_reader_begin_set(r);
	*ref = (struct kvi_segment_ref){ .offset = f->offset,
		                         .sequence = f->head.sequence,
		                         .t0 = seg.t0,
		                         .first = r->index.chunks.n,
		                         .end = r->index.chunks.n,
		                         .track = seg.track,
		                         .n = seg.n,
		                         .chain = { seg.has_chain, seg.chain } };
	kvi_index_link(&r->index);
	return KVARC_OK;
}

static kvarc_ret take_params(struct scan *s, const struct kvi_frame *f, const uint8_t *content,
                             size_t bytes)
{
	kvarc_reader *r = s->r;
	struct kvi_params_header h;
	if (!kvi_params_header_parse(&h, content, bytes))
		return KVARC_DATA;
	kvarc_ret ret = kvi_params_check(&r->geometry, &h, f, r->error);
	if (ret)
		return ret;
	struct kvi_params_ref *p = kvi_list_add(&r->index.params, &r->alloc, sizeof *p);
	if (!p)
		return no_memory(r);
	*p = (struct kvi_params_ref){ .offset = f->offset,
		                      .sequence = f->head.sequence,
		                      .tensor = h.tensor,
		                      .head = h.head,
		                      .heads = h.heads };
	return KVARC_OK;
}

/* Tokens that the index lists are known to be missing where they are not found; as with COMMIT
 * frames the last word counts. */
static void expect_segment(kvarc_reader *r, const struct kvi_index_entry *e)
{
	if (e->tensor < r->geometry.n_tracks && e->segment <= UINT32_MAX)
		r->losses.expected[e->tensor] = e->segment + e->n;
}

/* The index says which PARAMS are copies and where RESTORE frames were. */
static kvarc_ret take_index(struct scan *s, const uint8_t *content, size_t bytes)
{
	kvarc_reader *r = s->r;
	struct kvi_index_reader ir;
	struct kvi_index_entry e;
	kvarc_ret ret = KVARC_OK;
	if (!kvi_index_begin(&ir, content, bytes))
		return KVARC_DATA;
	while (ret == KVARC_OK && kvi_index_next(&ir, &e)) {
		struct kvi_params_ref *p = e.type == KVI_FRAME_PARAMS
		                                   ? kvi_index_params(&r->index, e.sequence)
		                                   : NULL;
		if (p)
			p->copy_of = e.params;
		else if (e.type == KVI_FRAME_RESTORE)
			ret = add_lost_item(s, e.sequence);
		else if (e.type == KVI_FRAME_SEGMENT || e.type == KVI_FRAME_STOREREF)
			expect_segment(r, &e);
	}
	s->has_index = true;
	return ret ? ret : kvi_index_end(&ir) ? KVARC_OK : KVARC_DATA;
}

static kvarc_ret take_blob(struct scan *s, const struct kvi_frame *f)
{
	struct kvi_blob_ref *b = kvi_list_add(&s->r->index.blobs, &s->r->alloc, sizeof *b);
	if (!b)
		return no_memory(s->r);
	*b = (struct kvi_blob_ref){ .offset = f->offset, .sequence = f->head.sequence };
	return KVARC_OK;
}

static kvarc_ret take_commit(struct scan *s, const struct kvi_frame *f)
{
	kvarc_reader *r = s->r;
	struct kvi_commit c;
	if (!kvi_commit_parse(&c, s->committed, r->geometry.n_tracks, f->payload,
	                      f->head.payload_bytes))
		return KVARC_DATA;
	for (size_t i = 0; i < r->geometry.n_tracks; i++)
		r->losses.expected[i] = s->committed[i];
	if (!c.checkpoint.number)
		return KVARC_OK;
	const struct kvi_index_entry e = { .offset = f->offset,
		                           .sequence = f->head.sequence,
		                           .number = c.checkpoint.number };
	return kvi_index_checkpoint(r, &e);
}

static kvarc_ret take_content(struct scan *s, const struct kvi_frame *f, const uint8_t *content,
                              size_t bytes)
{
	kvarc_reader *r = s->r;
	switch (f->head.type) {
	case KVI_FRAME_PARAMS:
		return take_params(s, f, content, bytes);
	case KVI_FRAME_SEGMENT:
		return take_segment(s, f, content, bytes);
	case KVI_FRAME_STOREREF:
		return kvi_reader_add_storeref(r, f, content, NULL);
	case KVI_FRAME_INDEX:
		return take_index(s, content, bytes);
	case KVI_FRAME_BLOB:
		return take_blob(s, f);
	case KVI_FRAME_RESTORE:
		s->gap_in_items = s->gap_in_items || s->gap;
		return kvi_reader_meta(r, f, content, bytes, r->error);
	default:
		return kvi_reader_meta(r, f, content, bytes, r->error);
	}
}

/* A good frame. DATA: its content makes no sense here. */
static kvarc_ret take(struct scan *s, const struct kvi_frame *f)
{
	kvarc_reader *r = s->r;
	const uint8_t *content = NULL;
	uint8_t *owned = NULL, head[KVI_SKIM_BYTES];
	kvarc_ret ret = kvi_frame_meaning(f, r->error);
	if (ret)
		return ret;
	if (f->head.sequence < s->next_sequence)
		return KVARC_DATA;
	switch (f->head.type) {
	case KVI_FRAME_CHUNK:
		return take_chunk(s, f);
	case KVI_FRAME_COMMIT:
		return take_commit(s, f);
	case KVI_FRAME_FOOTER:
		return KVARC_OK;
	case KVI_FRAME_GEOMETRY:
		return f->offset == r->losses.geometry ? KVARC_OK
		                                       : KVARC_DATA; /* it was taken before */
	default:
		break;
	}
	if (!kvi_frame_known(f->head.type))
		return KVARC_OK;
	if (kvi_frame_skims(&f->head)) {
		content = head;
		ret = kvi_frame_skim(&r->packer, f, head, r->error);
	} else {
		ret = kvi_frame_spend(f, &r->meta.decode_left, r->error);
		if (ret == KVARC_OK)
			ret = kvi_frame_content(&r->packer, f, &content, &owned, r->error);
	}
	if (ret == KVARC_OK)
		ret = take_content(s, f, content, f->head.decoded_bytes);
	kvi_free(&r->alloc, owned);
	return ret;
}

/* One step: a good frame, or a region without. */
static kvarc_ret step(struct scan *s)
{
	kvarc_reader *r = s->r;
	struct kvi_frame f;
	uint64_t next;
	kvarc_ret ret = kvi_frame_read(&r->in, s->offset, &s->buffer, &f, r->error);
	bool whole = f.head_good && !f.cut && f.head.payload_bytes <= KVI_FRAME_MAX;
	if (ret == KVARC_OK)
		ret = take(s, &f);
	if (ret == KVARC_OK) {
		s->next_sequence = f.head.sequence + 1;
		if (kvi_frame_counts(f.head.type))
			s->last_type = s->last_good = f.head.type;
		s->frames++;
		s->offset += f.bytes;
		return KVARC_OK;
	}
	if (ret != KVARC_DATA)
		return ret;
	if (whole && f.head.type == KVI_FRAME_RESTORE)
		ret = add_lost_item(s, f.head.sequence);
	else
		ret = KVARC_OK;
	if (!whole || f.head.type == KVI_FRAME_ENCRYPTED)
		s->gap = true;
	next = s->offset + f.bytes;
	if (ret == KVARC_OK && !whole)
		ret = kvi_frame_find(&r->in, s->offset + KVI_FRAME_ALIGN, &s->window, &next,
		                     r->error);
	if (ret == KVARC_OK)
		ret = add_region(s, s->offset, next - s->offset);
	s->last_type = 0;
	s->offset = next;
	return ret;
}

/* Which item a BLOB is of is not known: better none than a wrong one. */
static void forget_items(kvarc_reader *r)
{
	for (size_t i = 0; i < r->meta.items.n; i++)
		kvi_restore_free(&KVI_LIST(struct kvi_item, r->meta.items, i)->restore, &r->alloc);
	r->meta.items.n = r->index.blobs.n = r->meta.first_item = 0;
}

static void set_state(struct scan *s)
{
	kvarc_reader *r = s->r;
	const struct kvi_region *g = r->losses.regions.p;
	bool tail = r->losses.regions.n == 1 && g->offset + g->bytes == r->in.source.size;
	r->losses.end_known = s->last_type == KVI_FRAME_COMMIT || s->last_good == KVI_FRAME_FOOTER;
	if (r->losses.regions.n)
		r->state = tail ? KVARC_STATE_CUT : KVARC_STATE_DAMAGED;
	else if (s->last_type == KVI_FRAME_FOOTER || kvi_index_is_there(r))
		r->state = KVARC_STATE_CLOSED;
	else if (s->last_type == KVI_FRAME_COMMIT)
		r->state = KVARC_STATE_OPEN;
	else
		r->state = KVARC_STATE_CUT;
	r->totals.frames = s->frames;
}

static kvarc_ret scan(struct scan *s)
{
	kvarc_reader *r = s->r;
	kvarc_ret ret = KVARC_OK;
	while (ret == KVARC_OK && s->offset < r->in.source.size && !kvi_index_is_there(r))
		ret = step(s);
	if (ret == KVARC_OK && r->options.checkpoint && !kvi_index_is_there(r))
		ret = kvi_reader_no_checkpoint(r, r->error);
	if (ret)
		return ret;
	kvi_index_settle(&r->index, r->geometry.n_tracks);
	if (s->gap_in_items && !s->has_index)
		forget_items(r);
	set_state(s);
	/* Cut between two frames: a region without bytes. */
	bool cut = r->state == KVARC_STATE_CUT && r->losses.regions.n == 0;
	return cut ? add_region(s, r->in.source.size, 0) : KVARC_OK;
}

kvarc_ret kvi_salvage_scan(kvarc_reader *r)
{
	struct scan s = { .r = r, .offset = KVI_SUPERBLOCK_BYTES };
	s.committed = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *s.committed);
	kvarc_ret ret = s.committed ? scan(&s) : no_memory(r);
	kvi_free(&r->alloc, s.buffer.p);
	kvi_free(&r->alloc, s.window.buffer.p);
	kvi_free(&r->alloc, s.committed);
	return ret;
}
