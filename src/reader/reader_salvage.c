/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_salvage.c - the intact part of a damaged archive (spec 9.4) */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "reader_frames.h"
#include "reader_ids.h"
#include "reader_load.h"
#include "reader_range.h"
#include "reader_salvage.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "format/commit.h"
#include "format/crypt.h"
#include "util/string_field.h"

/* ==== Finds KEY frames and the first encrypted frame of a damaged archive (frames.md 12.1) ==== */

/* Goes through the headers of a file. */
struct key_scan {
	struct kvi_input in; /* reads frames without decryption */
	struct kvi_window window;
	struct kvi_frame f; /* the header alone */
	uint64_t at;
};

/* The next good header. Returns OK, END, MEM, MEMLIMIT, IO. */
static kvarc_ret next_header(struct key_scan *scan, kvarc_error *error)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES];
	kvarc_ret ret = kvi_frame_find(&scan->in, scan->at, &scan->window, &scan->at, error);
	if (ret)
		return ret;
	if (scan->at >= scan->in.source.size)
		return KVARC_END;
	ret = kvi_frame_peek(&scan->in, scan->at, head, 0, &scan->f, error);
	scan->at += KVI_FRAME_ALIGN;
	return ret == KVARC_DATA ? KVARC_END : ret; /* the source has changed */
}

static struct key_scan begin(const kvarc_reader *r)
{
	struct key_scan s = { .in = r->in, .at = KVI_SUPERBLOCK_BYTES };
	s.in.crypt = NULL;
	return s;
}

/* Restores the lost file id of an encrypted archive from a KEY frame. Returns OK, MEM, MEMLIMIT,
 * DATA, OPTIONS, IO. */
static kvarc_ret salvage_file_id(kvarc_reader *r)
{
	enum { AT = 32 };
	struct key_scan s = begin(r);
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	kvarc_ret ret;
	r->sb.incompat = KVI_INCOMPAT_ENCRYPTED;
	while ((ret = next_header(&s, r->error)) == KVARC_OK) {
		if (s.f.head.type != KVI_FRAME_KEY ||
		    s.f.head.payload_bytes != KVI_KEY_PAYLOAD_BYTES)
			continue;
		ret = kvi_frame_read(&s.in, s.f.offset, &buf, &f, r->error);
		if (ret == KVARC_OK && kvi_frame_sync(f.payload + AT) == r->in.sync) {
			memcpy(r->sb.file_id, f.payload + AT, sizeof r->sb.file_id);
			break;
		}
		if (ret != KVARC_OK && ret != KVARC_DATA)
			break;
	}
	kvi_free(&r->alloc, buf.p);
	kvi_free(&r->alloc, s.window.buffer.p);
	return ret != KVARC_END ? ret
	                        : kvi_fail_at(r->error, KVARC_DATA, 0, KVARC_UNKNOWN,
	                                      "the first 64 bytes and all KEY frames are damaged: "
	                                      "nothing can be saved");
}

/* An encrypted archive: tries the keys on KEY frames wherever they are, until one fits. Offset and
 * sequence number of the first ENCRYPTED frame, or what they were. Returns OK, MEM, MEMLIMIT,
 * IO. */
static kvarc_ret salvage_keys(kvarc_reader *r, uint64_t *offset, uint64_t *sequence)
{
	struct key_scan s = begin(r);
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	bool found = false;
	kvarc_ret ret = KVARC_OK;
	while (!(found && r->in.crypt->known) && (ret = next_header(&s, r->error)) == KVARC_OK) {
		if (s.f.head.type == KVI_FRAME_KEY)
			ret = kvi_frame_read(&r->in, s.f.offset, &buf, &f, r->error);
		if (ret != KVARC_OK && ret != KVARC_DATA)
			break;
		if (!found && s.f.head.type == KVI_FRAME_ENCRYPTED) {
			*offset = s.f.offset;
			*sequence = s.f.head.sequence;
			found = true;
		}
	}
	kvi_free(&r->alloc, buf.p);
	kvi_free(&r->alloc, s.window.buffer.p);
	return ret == KVARC_END || ret == KVARC_DATA ? KVARC_OK : ret;
}

/* ==== Looks for good frames wherever they are (spec 9.4) ==== */

struct scan {
	kvarc_reader *r;
	uint64_t offset, frames;
	uint64_t next_sequence; /* sequence number after the last good frame */
	uint16_t last_type;     /* 0: a region */
	uint16_t last_good;
	uint64_t *committed; /* by track: tokens of the current COMMIT */
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

static kvarc_ret add_region(struct scan *scan, uint64_t offset, uint64_t bytes)
{
	struct kvi_region *g = kvi_list_add(&scan->r->losses.regions, &scan->r->alloc, sizeof *g);
	if (!g)
		return no_memory(scan->r);
	g->offset = offset;
	g->bytes = bytes;
	scan->r->totals.dropped += bytes;
	return KVARC_OK;
}

/* An item whose RESTORE frame was lost keeps its number. */
static kvarc_ret add_lost_item(struct scan *scan, uint64_t sequence)
{
	kvarc_reader *r = scan->r;
	struct kvi_item *items = r->meta.items.p;
	const size_t at = kvi_list_search(&r->meta.items, sizeof *items,
	                                  offsetof(struct kvi_item, sequence), sequence);
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
static kvarc_ret segment_of(struct scan *scan, const struct kvi_chunk_header *header,
                            struct kvi_segment_ref **out)
{
	kvarc_reader *r = scan->r;
	uint32_t track = r->geometry.tensors[header->tensor].track;
	struct kvi_segment_ref *last = r->index.segments.n
	                                       ? KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                                  r->index.segments.n - 1)
	                                       : NULL;
	*out = last;
	if (last && last->listed == header->segment)
		return !last->stored && last->track == track && last->t0 == header->t0 &&
		                       last->n == header->n
		               ? KVARC_OK
		               : KVARC_DATA;
	if (last && last->listed > header->segment)
		return KVARC_DATA;
	*out = kvi_list_add(&r->index.segments, &r->alloc, sizeof **out);
	if (!*out)
		return no_memory(r);
	kvi_reader_begin_set(r);
	**out = (struct kvi_segment_ref){ .sequence = header->segment,
		                          .t0 = header->t0,
		                          .listed = header->segment,
		                          .n = header->n,
		                          .most = header->n,
		                          .track = track,
		                          .first = r->index.chunks.n,
		                          .end = r->index.chunks.n };
	kvi_index_link(&r->index);
	return KVARC_OK;
}

static kvarc_ret take_chunk(struct scan *scan, const struct kvi_frame *frame)
{
	kvarc_reader *r = scan->r;
	struct kvi_chunk_header h;
	struct kvi_segment_ref *segment;
	if (!kvi_chunk_header_parse(&h, frame->payload, frame->head.payload_bytes))
		return KVARC_DATA;
	kvarc_ret ret = kvi_chunk_check(&r->geometry, &h, frame, r->error);
	if (ret == KVARC_OK)
		ret = segment_of(scan, &h, &segment);
	if (ret)
		return ret;
	struct kvi_chunk_ref *c = kvi_list_add(&r->index.chunks, &r->alloc, sizeof *c);
	if (!c)
		return no_memory(r);
	*c = kvi_chunk_ref(frame, &h);
	segment->end = r->index.chunks.n;
	return KVARC_OK;
}

static kvarc_ret take_segment(struct scan *scan, const struct kvi_frame *frame,
                              const uint8_t *content, size_t bytes)
{
	kvarc_reader *r = scan->r;
	struct kvi_segment seg;
	if (!kvi_segment_parse(&seg, content, bytes) || seg.track >= r->geometry.n_tracks ||
	    seg.t0 > UINT32_MAX)
		return KVARC_DATA;
	struct kvi_segment_ref *ref = kvi_list_add(&r->index.segments, &r->alloc, sizeof *ref);
	if (!ref)
		return no_memory(r);
	kvi_reader_begin_set(r);
	*ref = (struct kvi_segment_ref){ .offset = frame->offset,
		                         .sequence = frame->head.sequence,
		                         .t0 = seg.t0,
		                         .listed = frame->head.sequence,
		                         .first = r->index.chunks.n,
		                         .end = r->index.chunks.n,
		                         .bytes = (uint32_t)frame->bytes,
		                         .track = seg.track,
		                         .n = seg.n,
		                         .most = seg.n,
		                         .chain = { seg.has_chain, seg.chain } };
	kvi_index_link(&r->index);
	return KVARC_OK;
}

/* Segments of the other track that are lost are lost to this one, too. */
static kvarc_ret take_fork(struct scan *scan, const struct kvi_frame *frame)
{
	struct kvi_fork f;
	if (frame->head.decoded_bytes != frame->head.payload_bytes ||
	    !kvi_fork_parse(&f, frame->payload, frame->head.payload_bytes))
		return KVARC_DATA;
	kvi_reader_begin_set(scan->r);
	return kvi_index_fork(scan->r, &f, frame->head.sequence, true);
}

static kvarc_ret take_params(struct scan *scan, const struct kvi_frame *frame,
                             const uint8_t *content, size_t bytes)
{
	kvarc_reader *r = scan->r;
	struct kvi_params_header h;
	if (!kvi_params_header_parse(&h, content, bytes))
		return KVARC_DATA;
	kvarc_ret ret = kvi_params_check(&r->geometry, &h, frame, r->error);
	if (ret)
		return ret;
	struct kvi_params_ref *p = kvi_list_add(&r->index.params, &r->alloc, sizeof *p);
	if (!p)
		return no_memory(r);
	*p = (struct kvi_params_ref){ .offset = frame->offset,
		                      .sequence = frame->head.sequence,
		                      .tensor = h.tensor,
		                      .head = h.head,
		                      .heads = h.heads,
		                      .bytes = (uint32_t)frame->bytes };
	return KVARC_OK;
}

/* Tokens that the index lists are known to be missing where they are not found; as with COMMIT
 * frames the last word counts. */
static void expect_segment(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	if (entry->tensor < r->geometry.n_tracks && entry->segment <= UINT32_MAX)
		r->losses.expected[entry->tensor] = entry->segment + entry->n; /* FORK: n is 0 */
}

/* The index says which PARAMS are copies and where RESTORE frames were. */
static kvarc_ret take_index(struct scan *scan, const struct kvi_frame *frame,
                            const uint8_t *content, size_t bytes)
{
	kvarc_reader *r = scan->r;
	struct kvi_index_reader ir;
	struct kvi_index_entry e;
	kvarc_ret ret = KVARC_OK;
	if (!kvi_index_begin(&ir, content, bytes))
		return KVARC_DATA;
	while (ret == KVARC_OK && kvi_index_next(&ir, &e)) {
		if (e.offset + e.bytes > frame->offset)
			return KVARC_DATA;
		struct kvi_params_ref *p = e.type == KVI_FRAME_PARAMS
		                                   ? kvi_index_params(&r->index, e.sequence)
		                                   : NULL;
		if (p)
			p->copy_of = e.params;
		else if (e.type == KVI_FRAME_RESTORE)
			ret = add_lost_item(scan, e.sequence);
		else if (e.type == KVI_FRAME_SEGMENT || e.type == KVI_FRAME_STOREREF ||
		         e.type == KVI_FRAME_FORK)
			expect_segment(r, &e);
	}
	scan->has_index = true;
	return ret ? ret : kvi_index_end(&ir) ? KVARC_OK : KVARC_DATA;
}

static kvarc_ret take_blob(struct scan *scan, const struct kvi_frame *frame)
{
	struct kvi_blob_ref *b = kvi_list_add(&scan->r->index.blobs, &scan->r->alloc, sizeof *b);
	if (!b)
		return no_memory(scan->r);
	*b = (struct kvi_blob_ref){ frame->offset, frame->head.sequence, (uint32_t)frame->bytes };
	return KVARC_OK;
}

static kvarc_ret take_commit(struct scan *scan, const struct kvi_frame *frame)
{
	kvarc_reader *r = scan->r;
	struct kvi_commit c;
	if (!kvi_commit_parse(&c, scan->committed, r->geometry.n_tracks, frame->payload,
	                      frame->head.payload_bytes))
		return KVARC_DATA;
	for (size_t i = 0; i < r->geometry.n_tracks; i++)
		r->losses.expected[i] = scan->committed[i];
	if (!c.checkpoint.number)
		return KVARC_OK;
	const struct kvi_index_entry e = { .offset = frame->offset,
		                           .sequence = frame->head.sequence,
		                           .number = c.checkpoint.number };
	return kvi_index_checkpoint(r, &e);
}

static kvarc_ret take_content(struct scan *scan, const struct kvi_frame *frame,
                              const uint8_t *content, size_t bytes)
{
	kvarc_reader *r = scan->r;
	switch (frame->head.type) {
	case KVI_FRAME_PARAMS:
		return take_params(scan, frame, content, bytes);
	case KVI_FRAME_SEGMENT:
		return take_segment(scan, frame, content, bytes);
	case KVI_FRAME_STOREREF:
		return kvi_reader_add_storeref(r, frame, content, NULL);
	case KVI_FRAME_INDEX:
		return take_index(scan, frame, content, bytes);
	case KVI_FRAME_BLOB:
		return take_blob(scan, frame);
	case KVI_FRAME_RESTORE:
		scan->gap_in_items = scan->gap_in_items || scan->gap;
		return kvi_reader_meta(r, frame, content, bytes, r->error);
	default:
		return kvi_reader_meta(r, frame, content, bytes, r->error);
	}
}

/* A good frame. DATA: its content makes no sense here. */
static kvarc_ret take(struct scan *scan, const struct kvi_frame *frame)
{
	kvarc_reader *r = scan->r;
	const uint8_t *content = NULL;
	uint8_t *owned = NULL, head[KVI_SKIM_BYTES];
	kvarc_ret ret = kvi_frame_meaning(frame, r->error);
	if (ret)
		return ret;
	if (frame->head.sequence < scan->next_sequence)
		return KVARC_DATA;
	switch (frame->head.type) {
	case KVI_FRAME_CHUNK:
		return take_chunk(scan, frame);
	case KVI_FRAME_COMMIT:
		return take_commit(scan, frame);
	case KVI_FRAME_FORK:
		return take_fork(scan, frame);
	case KVI_FRAME_FOOTER:
		return KVARC_OK;
	case KVI_FRAME_GEOMETRY:
		return frame->offset == r->losses.geometry ? KVARC_OK
		                                           : KVARC_DATA; /* a second GEOMETRY */
	default:
		break;
	}
	if (!kvi_frame_known(frame->head.type))
		return KVARC_OK;
	if (kvi_frame_skims(&frame->head)) {
		content = head;
		ret = kvi_frame_skim(&r->packer, frame, head, r->error);
	} else {
		ret = kvi_frame_spend_entries(frame, 0, &r->meta.decode_left, r->error);
		if (ret == KVARC_OK)
			ret = kvi_frame_content(&r->packer, frame, &content, &owned, r->error);
	}
	if (ret == KVARC_OK)
		ret = take_content(scan, frame, content, frame->head.decoded_bytes);
	kvi_free(&r->alloc, owned);
	return ret;
}

/* Scans a good frame, or a region without one. */
static kvarc_ret scan_step(struct scan *scan)
{
	kvarc_reader *r = scan->r;
	struct kvi_frame f;
	uint64_t next;
	kvarc_ret ret = kvi_frame_read(&r->in, scan->offset, &scan->buffer, &f, r->error);
	bool whole = f.head_good && !f.cut && f.head.payload_bytes <= KVI_FRAME_MAX;
	if (ret == KVARC_OK)
		ret = take(scan, &f);
	if (ret == KVARC_OK) {
		scan->next_sequence = f.head.sequence + 1;
		if (kvi_frame_counts(f.head.type))
			scan->last_type = scan->last_good = f.head.type;
		scan->frames++;
		scan->offset += f.bytes;
		return KVARC_OK;
	}
	if (ret != KVARC_DATA)
		return ret;
	if (whole && f.head.type == KVI_FRAME_RESTORE)
		ret = add_lost_item(scan, f.head.sequence);
	else
		ret = KVARC_OK;
	if (!whole || f.head.type == KVI_FRAME_ENCRYPTED)
		scan->gap = true;
	next = scan->offset + f.bytes;
	if (ret == KVARC_OK && !whole)
		ret = kvi_frame_find(&r->in, scan->offset + KVI_FRAME_ALIGN, &scan->window, &next,
		                     r->error);
	if (ret == KVARC_OK)
		ret = add_region(scan, scan->offset, next - scan->offset);
	scan->last_type = 0;
	scan->offset = next;
	return ret;
}

/* Forgets all items, when the item of a BLOB is not known: better none than a wrong one. */
static void forget_items(kvarc_reader *r)
{
	for (size_t i = 0; i < r->meta.items.n; i++)
		kvi_restore_free(&KVI_LIST(struct kvi_item, r->meta.items, i)->restore, &r->alloc);
	r->meta.items.n = r->index.blobs.n = r->meta.first_item = 0;
}

static void set_state(struct scan *scan)
{
	kvarc_reader *r = scan->r;
	const struct kvi_region *g = r->losses.regions.p;
	bool tail = r->losses.regions.n == 1 && g->offset + g->bytes == r->in.source.size;
	r->losses.end_known = scan->last_type == KVI_FRAME_COMMIT ||
	                      scan->last_good == KVI_FRAME_FOOTER;
	if (r->losses.regions.n)
		r->state = tail ? KVARC_STATE_CUT : KVARC_STATE_DAMAGED;
	else if (scan->last_type == KVI_FRAME_FOOTER || kvi_index_is_there(r))
		r->state = KVARC_STATE_CLOSED;
	else if (scan->last_type == KVI_FRAME_COMMIT)
		r->state = KVARC_STATE_OPEN;
	else
		r->state = KVARC_STATE_CUT;
	r->totals.frames = scan->frames;
}

static kvarc_ret scan(struct scan *s)
{
	kvarc_reader *r = s->r;
	kvarc_ret ret = KVARC_OK;
	while (ret == KVARC_OK && s->offset < r->in.source.size && !kvi_index_is_there(r))
		ret = scan_step(s);
	if (ret == KVARC_OK && r->options.checkpoint && !kvi_index_is_there(r))
		ret = kvi_reader_no_checkpoint(r, r->error);
	if (ret)
		return ret;
	kvi_index_finish(&r->index, r->geometry.n_tracks);
	if (s->gap_in_items && !s->has_index)
		forget_items(r);
	set_state(s);
	/* Cut between two frames: a region without bytes. */
	bool cut = r->state == KVARC_STATE_CUT && r->losses.regions.n == 0;
	return cut ? add_region(s, r->in.source.size, 0) : KVARC_OK;
}

/* The scan (reader_salvage.c): good frames into the index, the rest into regions; expected and
 * end_known from COMMIT, INDEX and FOOTER frames. Returns OK, MEM, MEMLIMIT, OPTIONS, IO. */
static kvarc_ret salvage_scan(kvarc_reader *r)
{
	struct scan s = { .r = r, .offset = KVI_SUPERBLOCK_BYTES };
	s.committed = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *s.committed);
	kvarc_ret ret = s.committed ? scan(&s) : no_memory(r);
	kvi_free(&r->alloc, s.buffer.p);
	kvi_free(&r->alloc, s.window.buffer.p);
	kvi_free(&r->alloc, s.committed);
	return ret;
}

/* ==== Reading the good frames of a damaged archive (spec 9.4) ==== */

kvarc_ret kvi_salvage_superblock(kvarc_reader *r)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES];
	struct kvi_frame_head h;
	size_t got;
	kvarc_ret ret = kvi_input_read(&r->in, head, sizeof head, KVI_SUPERBLOCK_BYTES, &got,
	                               r->error);
	if (ret)
		return ret;
	/* The header of the first frame proves its own sync mark. */
	if (got < sizeof head ||
	    !kvi_frame_head_parse(&h, head, kvi_load64(head), KVI_SUPERBLOCK_BYTES))
		return kvi_fail_at(r->error, KVARC_DATA, 0, KVARC_UNKNOWN,
		                   "the start of the file is damaged so much that nothing can be "
		                   "saved");
	r->in.sync = kvi_load64(head);
	r->in.stored = true; /* unknown, so STOREREF frames are allowed */
	r->sb.incompat = 0;  /* unknown: only the frames count */
	struct kvi_region *g = kvi_list_add(&r->losses.regions, &r->alloc, sizeof *g);
	if (!g)
		return kvi_fail_alloc(r->error, &r->alloc);
	g->bytes = KVI_SUPERBLOCK_BYTES;
	r->totals.dropped = g->bytes;
	return h.type == KVI_FRAME_KEY || h.type == KVI_FRAME_ENCRYPTED ? salvage_file_id(r)
	                                                                : KVARC_OK;
}

/* The first frame; without it nothing makes sense. */
static kvarc_ret load_geometry(kvarc_reader *r)
{
	struct kvi_walk w;
	kvi_walk_init(&w, &r->in, &r->packer);
	kvarc_ret ret = r->in.crypt ? salvage_keys(r, &w.offset, &w.sequence) : KVARC_OK;
	r->losses.geometry = w.offset;
	if (ret == KVARC_OK)
		ret = kvi_walk_next(&w, r->error);
	if (ret == KVARC_OK)
		ret = kvi_reader_geometry(r, &w.current.frame, w.current.content,
		                          w.current.content_bytes);
	if (ret == KVARC_DATA || ret == KVARC_END)
		ret = kvi_fail_at(r->error, KVARC_DATA, KVI_SUPERBLOCK_BYTES, 0,
		                  "the GEOMETRY frame is damaged: without it nothing can be saved");
	kvi_walk_free(&w);
	return ret;
}

kvarc_ret kvi_salvage_load(kvarc_reader *r)
{
	kvarc_ret ret = load_geometry(r);
	if (ret)
		return ret;
	r->losses.expected = kvi_calloc(&r->alloc, r->geometry.n_tracks,
	                                sizeof *r->losses.expected);
	if (!r->losses.expected)
		return kvi_fail_alloc(r->error, &r->alloc);
	ret = salvage_scan(r);
	if (ret == KVARC_OK)
		ret = kvi_salvage_losses(r);
	return ret ? ret : kvi_reader_count_all(r);
}

static kvarc_ret give_blobs(kvarc_reader *r)
{
	struct kvi_loaded x = { 0 };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < r->index.blobs.n && ret == KVARC_OK; i++) {
		const struct kvi_blob_ref *b = KVI_LIST(struct kvi_blob_ref, r->index.blobs, i);
		ret = kvi_reader_load_frame(r, &r->packer, b->offset, KVI_FRAME_BLOB, b->sequence,
		                            &x, r->error);
		if (ret == KVARC_OK)
			ret = kvi_reader_blob(r, &x.frame, x.content, x.frame.head.decoded_bytes,
			                      true, r->error);
		if (ret == KVARC_DATA) { /* the item of the BLOB is lost */
			kvarc_damage d = { .offset = b->offset,
				           .track = UINT32_MAX,
				           .tensor = UINT32_MAX,
				           .what = "bytes of an unknown item" };
			ret = kvi_salvage_lose(r, &d, 0, 0);
		}
	}
	kvi_loaded_free(&x, &r->alloc);
	return ret ? ret : kvi_salvage_literals(r);
}

/* Decodes the ids of the current segment; a loss where earlier ids, which they need, are lost. */
static kvarc_ret known_ids(kvarc_reader *r, const struct kvi_segment_ref *segment)
{
	const kvarc_damage d = { .offset = segment->offset,
		                 .track = segment->track,
		                 .tensor = UINT32_MAX,
		                 .t0 = segment->t0,
		                 .what = "token ids are lost: a model has coded "
		                         "them, and those before them are damaged or missing" };
	kvarc_ret ret = kvi_reader_ids(r, kvi_reader_codes_ids(r, segment->sequence),
	                               &r->seq.segment->segment, r->error);
	if (ret == KVARC_DATA)
		return kvi_salvage_lose(r, &d, 0, 0);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_salvage_next(kvarc_reader *r, kvarc_segment *segment)
{
	if (!r->seq.started) {
		r->seq.started = true;
		kvarc_ret ret = give_blobs(r);
		if (ret)
			return ret;
	}
	kvi_segment_use_release(r, r->seq.segment);
	r->seq.segment = NULL;
	while (r->seq.salvage_at < r->index.segments.n &&
	       !KVI_LIST(struct kvi_segment_ref, r->index.segments, r->seq.salvage_at)->left)
		r->seq.salvage_at++;
	r->seq.in_segment = r->seq.salvage_at < r->index.segments.n;
	if (!r->seq.in_segment)
		return KVARC_END;
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                           r->seq.salvage_at++);
	*segment = (kvarc_segment){ .track = s->track, .t0 = s->t0, .n = s->left };
	kvarc_ret ret = kvi_segment_use_load(r, &r->packer, s, &r->seq.segment, r->error);
	if (ret || !s->offset)
		return ret;
	const struct kvi_segment *full = &r->seq.segment->segment;
	segment->positions = full->positions;
	ret = known_ids(r, s);
	if (ret)
		return ret;
	segment->ids = full->has_ids ? full->ids : NULL;
	segment->ids_coded = full->coded;
	return KVARC_OK;
}

kvarc_ret kvi_salvage_deliver(kvarc_reader *r, kvarc_deliver deliver, void *opaque)
{
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                           r->seq.salvage_at - 1);
	const struct kvi_range all = { s->track, 0, UINT64_MAX, s->t0, s->t0 + s->left, NULL };
	r->seq.in_segment = false;
	return kvi_reader_segment_chunks(r, s, &all, deliver, opaque);
}
