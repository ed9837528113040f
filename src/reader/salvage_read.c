/* SPDX-License-Identifier: BSD-3-Clause */
/* salvage_read.c - reading the good frames of a damaged archive (spec 9.4) */
#include "reader_range.h"
#include "reader_salvage.h"
#include "reader_stored.h"

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
	r->in.stored = true; /* nobody knows */
	r->sb.incompat = 0;  /* what the frames show counts */
	struct kvi_region *g = kvi_list_add(&r->losses.regions, &r->alloc, sizeof *g);
	if (!g)
		return kvi_fail_alloc(r->error, &r->alloc);
	g->bytes = KVI_SUPERBLOCK_BYTES;
	r->totals.dropped = g->bytes;
	return h.type == KVI_FRAME_KEY || h.type == KVI_FRAME_ENCRYPTED ? kvi_salvage_file_id(r)
	                                                                : KVARC_OK;
}

/* The first frame; without it nothing makes sense. */
static kvarc_ret load_geometry(kvarc_reader *r)
{
	struct kvi_walk w;
	kvi_walk_init(&w, &r->in, &r->packer);
	kvarc_ret ret = r->in.crypt ? kvi_salvage_keys(r, &w.offset, &w.sequence) : KVARC_OK;
	r->losses.geometry = w.offset;
	if (ret == KVARC_OK)
		ret = kvi_walk_next(&w, r->error);
	if (ret == KVARC_OK)
		ret = kvi_reader_geometry(r, &w.frame, w.content, w.content_bytes);
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
	ret = kvi_salvage_scan(r);
	if (ret == KVARC_OK)
		ret = kvi_salvage_losses(r);
	for (uint32_t i = 0; i < r->geometry.n_tracks && ret == KVARC_OK; i++)
		kvi_reader_count(r, i, r->index.tokens[i]);
	kvi_reader_count_stored(r);
	r->totals.chunks = r->index.chunks.n;
	r->totals.segments = r->index.segments.n;
	return ret;
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
		if (ret == KVARC_DATA) { /* of an item that is lost */
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

/* Of the segment in hand. Ids before it may be lost, and with them what is coded. */
static kvarc_ret known_ids(kvarc_reader *r, const struct kvi_segment_ref *s)
{
	const kvarc_damage d = { .offset = s->offset,
		                 .track = s->track,
		                 .tensor = UINT32_MAX,
		                 .t0 = s->t0,
		                 .what = "token ids are lost: a model has coded "
		                         "them, and those before them are damaged or missing" };
	kvarc_ret ret = kvi_reader_ids(r, kvi_reader_codes_ids(r, s->sequence),
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
