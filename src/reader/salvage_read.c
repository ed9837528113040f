/* SPDX-License-Identifier: BSD-3-Clause */
/* salvage_read.c - what is lost, and reading what is left (spec 9.4) */
#include "reader_state.h"

kvarc_ret kvi_salvage_superblock(kvarc_reader *r)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES];
	struct kvi_frame_head h;
	size_t got;
	kvarc_ret ret = kvi_input_read(&r->in, head, sizeof head,
	                               KVI_SUPERBLOCK_BYTES, &got, r->error);
	if (ret)
		return ret;
	/* The header of the first frame proves its own sync mark. */
	if (got < sizeof head ||
	    !kvi_frame_head_parse(&h, head, kvi_load64(head),
	                          KVI_SUPERBLOCK_BYTES))
		return kvi_fail(r->error, KVARC_DATA, 0, KVARC_UNKNOWN,
		                "the start of the file is damaged so much that "
		                "nothing can be saved");
	r->in.sync = kvi_load64(head);
	struct kvi_region *g =
		kvi_list_add(&r->regions, &r->alloc, sizeof *g);
	if (!g)
		return kvi_fail_alloc(r->error, &r->alloc);
	g->bytes = KVI_SUPERBLOCK_BYTES;
	r->dropped = g->bytes;
	return KVARC_OK;
}

static kvarc_ret add_loss(kvarc_reader *r, const kvarc_damage *d)
{
	kvarc_damage *to = kvi_list_add(&r->losses, &r->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(r->error, &r->alloc);
	*to = *d;
	if (r->state == KVARC_STATE_CLOSED || r->state == KVARC_STATE_OPEN)
		r->state = KVARC_STATE_DAMAGED;
	return KVARC_OK;
}

/* Puts the place of the first region between two offsets into a loss. */
static void explain(kvarc_reader *r, uint64_t after, uint64_t before,
                    kvarc_damage *d)
{
	struct kvi_region *g = r->regions.p;
	for (size_t i = 0; i < r->regions.n; i++)
		if (g[i].offset >= after && g[i].offset < before) {
			g[i].explained = true;
			d->offset = g[i].offset;
			d->bytes = g[i].bytes;
			return;
		}
}

static kvarc_ret lose_chunk(kvarc_reader *r, const struct kvi_segment_ref *s,
                            uint32_t tensor, uint64_t after, uint64_t before)
{
	kvarc_damage d = {
		.offset = KVARC_UNKNOWN, .track = s->track, .tensor = tensor,
		.t0 = s->t0, .n = s->n, .what = "a chunk is damaged or missing"
	};
	explain(r, after, before, &d);
	return add_loss(r, &d);
}

/* Chunks that should be in a segment and are not; end is where it ends at the
 * latest. */
static kvarc_ret lost_chunks(kvarc_reader *r, const struct kvi_segment_ref *s,
                             uint64_t end)
{
	const struct kvi_chunk_ref *c = r->chunks.p;
	uint64_t i = s->first, after = s->offset;
	kvarc_ret ret = KVARC_OK;
	for (uint32_t k = r->order.first[s->track];
	     k < r->order.first[s->track + 1] && ret == KVARC_OK; k++) {
		uint32_t tensor = r->order.tensors[k];
		uint32_t heads = r->geometry.tensors[tensor].heads, got = 0;
		/* A REPEAT of heads cannot hide a hole: heads only add up to
		 * all of them when each is there once. */
		uint64_t from = after;
		for (; i < s->end && c[i].tensor == tensor; i++) {
			if (c[i].head != got)
				break;
			got += c[i].heads;
			after = c[i].offset;
		}
		if (got == heads)
			continue;
		ret = lose_chunk(r, s, tensor, got ? after : from,
		                 i < s->end ? c[i].offset : end);
		for (; i < s->end && c[i].tensor == tensor; i++)
			after = c[i].offset;
	}
	return ret;
}

static kvarc_ret lost_tokens(kvarc_reader *r, uint32_t track, uint64_t t0,
                             uint64_t end, uint64_t after, uint64_t before)
{
	kvarc_damage d = {
		.offset = KVARC_UNKNOWN, .track = track, .tensor = UINT32_MAX,
		.t0 = t0, .n = (uint32_t)(end - t0),
		.what = "tokens of all tensors are missing"
	};
	explain(r, after, before, &d);
	return add_loss(r, &d);
}

/* Where a segment begins, as far as that is known. */
static uint64_t begin_of(const kvarc_reader *r, size_t segment)
{
	if (segment >= r->segments.n)
		return r->in.source.size;
	const struct kvi_segment_ref *s =
		KVI_LIST(struct kvi_segment_ref, r->segments, segment);
	if (s->offset || s->first == s->end)
		return s->offset;
	return KVI_LIST(struct kvi_chunk_ref, r->chunks, s->first)->offset;
}

static kvarc_ret find_losses(kvarc_reader *r, const uint64_t *committed)
{
	size_t n = r->geometry.n_tracks;
	uint64_t before = 0;
	kvarc_ret ret = KVARC_OK;
	uint64_t *tokens = kvi_calloc(&r->alloc, n, sizeof *tokens);
	if (!tokens)
		return kvi_fail_alloc(r->error, &r->alloc);
	for (size_t i = 0; i < r->segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s =
			KVI_LIST(struct kvi_segment_ref, r->segments, i);
		uint64_t begin = begin_of(r, i);
		kvarc_damage d = {
			.offset = KVARC_UNKNOWN, .track = s->track,
			.tensor = UINT32_MAX, .t0 = s->t0,
			.what = "token ids and positions are lost"
		};
		if (s->t0 > tokens[s->track])
			ret = lost_tokens(r, s->track, tokens[s->track], s->t0,
			                  before, begin);
		tokens[s->track] = s->t0 + s->n;
		if (ret == KVARC_OK && !s->offset) {
			explain(r, before, begin, &d);
			ret = add_loss(r, &d);
		}
		before = begin;
		if (ret == KVARC_OK)
			ret = lost_chunks(r, s, begin_of(r, i + 1));
	}
	for (uint32_t i = 0; i < n && ret == KVARC_OK; i++)
		if (committed[i] > tokens[i])
			ret = lost_tokens(r, i, tokens[i], committed[i], before,
			                  r->in.source.size);
	kvi_free(&r->alloc, tokens);
	return ret;
}

/* The first frame; without it nothing makes sense. */
static kvarc_ret load_geometry(kvarc_reader *r)
{
	struct kvi_walk w;
	kvi_walk_init(&w, &r->in, &r->packer);
	kvarc_ret ret = kvi_walk_next(&w, r->error);
	if (ret == KVARC_OK)
		ret = kvi_reader_geometry(r, &w.frame, w.content,
		                          w.content_bytes);
	if (ret == KVARC_DATA || ret == KVARC_END)
		ret = kvi_fail(r->error, KVARC_DATA, KVI_SUPERBLOCK_BYTES, 0,
		               "the GEOMETRY frame is damaged: without it "
		               "nothing can be saved");
	kvi_walk_free(&w);
	return ret;
}

kvarc_ret kvi_salvage_load(kvarc_reader *r)
{
	kvarc_ret ret = load_geometry(r);
	if (ret)
		return ret;
	uint64_t *committed = kvi_calloc(&r->alloc, r->geometry.n_tracks,
	                                 sizeof *committed);
	if (!committed)
		return kvi_fail_alloc(r->error, &r->alloc);
	ret = kvi_salvage_scan(r, committed);
	if (ret == KVARC_OK)
		ret = find_losses(r, committed);
	kvi_free(&r->alloc, committed);
	for (uint32_t i = 0; i < r->geometry.n_tracks && ret == KVARC_OK; i++)
		kvi_reader_count(r, i, r->tokens[i]);
	r->n_chunks = r->chunks.n;
	r->n_segments = r->segments.n;
	return ret;
}

kvarc_ret kvi_salvage_chunk(kvarc_reader *r, const struct kvi_decode_job *j,
                            kvarc_error *e)
{
	const kvarc_damage *list = r->losses.p;
	uint32_t track = r->geometry.tensors[j->ref.tensor].track;
	kvarc_damage d = {
		.offset = j->ref.offset, .track = track,
		.tensor = j->ref.tensor, .t0 = j->t0, .n = j->n,
		.what = "a chunk cannot be decoded: it, its parameters or its "
		        "positions are lost"
	};
	(void)e;
	if (j->ref.linear)
		d.what = j->segment && j->segment->predictor_ret
			? "the profile that is needed is damaged in the archive "
			  "(its file would do)"
			: "a chunk cannot be decoded: what it is predicted from, or "
			  "its positions, are lost";
	for (size_t i = 0; i < r->losses.n; i++)
		if (list[i].offset == d.offset && list[i].tensor == d.tensor)
			return KVARC_OK;
	return add_loss(r, &d);
}

static kvarc_ret give_blobs(kvarc_reader *r)
{
	struct kvi_buffer buf = { 0 };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < r->blobs.n && ret == KVARC_OK; i++) {
		const struct kvi_blob_ref *b =
			KVI_LIST(struct kvi_blob_ref, r->blobs, i);
		const uint8_t *content;
		uint8_t *owned = NULL;
		struct kvi_frame f;
		ret = kvi_reader_read_frame(r, b->offset, KVI_FRAME_BLOB,
		                            b->sequence, &buf, &f, r->error);
		if (ret == KVARC_OK)
			ret = kvi_frame_content(&r->packer, &f, &content,
			                        &owned, r->error);
		if (ret == KVARC_OK)
			ret = kvi_reader_blob(r, &f, content,
			                      f.head.decoded_bytes, true,
			                      r->error);
		kvi_free(&r->alloc, owned);
		if (ret == KVARC_DATA) { /* of an item that is lost */
			kvarc_damage d = {
				.offset = b->offset, .track = UINT32_MAX,
				.tensor = UINT32_MAX,
				.what = "bytes of an unknown item"
			};
			ret = add_loss(r, &d);
		}
	}
	kvi_free(&r->alloc, buf.p);
	return ret;
}

/* Of the segment in hand. Ids before it may be lost, and with them what is coded. */
static kvarc_ret known_ids(kvarc_reader *r, const struct kvi_segment_ref *s)
{
	const kvarc_damage d = {
		.offset = s->offset, .track = s->track, .tensor = UINT32_MAX,
		.t0 = s->t0, .what = "token ids are lost: a model has coded "
		"them, and those before them are damaged or missing"
	};
	kvarc_ret ret = kvi_reader_ids(r, kvi_reader_codes_ids(r, s->sequence),
	                               &r->segment->segment, r->error);
	if (ret == KVARC_DATA)
		return add_loss(r, &d);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_salvage_next(kvarc_reader *r, kvarc_segment *segment)
{
	if (!r->started) {
		r->started = true;
		kvarc_ret ret = give_blobs(r);
		if (ret)
			return ret;
	}
	kvi_segment_use_release(r, r->segment);
	r->segment = NULL;
	r->in_segment = r->salvage_at < r->segments.n;
	if (!r->in_segment)
		return KVARC_END;
	const struct kvi_segment_ref *s = KVI_LIST(
		struct kvi_segment_ref, r->segments, r->salvage_at++);
	r->segment = kvi_segment_use_new(r);
	if (!r->segment)
		return kvi_fail_alloc(r->error, &r->alloc);
	const struct kvi_segment *full = &r->segment->segment;
	*segment = (kvarc_segment){ .track = s->track, .t0 = s->t0, .n = s->n };
	if (!s->offset)
		return KVARC_OK;
	segment->positions = full->positions;
	kvarc_ret ret = kvi_reader_read_segment(r, &r->packer, s,
	                                        &r->segment->segment, r->error);
	if (!ret)
		ret = known_ids(r, s);
	if (ret)
		return ret;
	segment->ids = full->has_ids ? full->ids : NULL;
	segment->ids_coded = full->coded;
	return KVARC_OK;
}

kvarc_ret kvi_salvage_deliver(kvarc_reader *r, kvarc_deliver deliver,
                              void *opaque)
{
	const struct kvi_segment_ref *s = KVI_LIST(
		struct kvi_segment_ref, r->segments, r->salvage_at - 1);
	const struct kvi_range all = {
		s->track, 0, UINT64_MAX, s->t0, s->t0 + s->n, NULL
	};
	kvarc_ret ret = kvi_reader_start(r);
	r->in_segment = false;
	if (ret == KVARC_OK)
		ret = kvi_reader_segment_chunks(r, s, &all, deliver, opaque);
	return r->jobs ? kvi_reader_drain(r, ret) : ret;
}

uint64_t kvarc_reader_damage(kvarc_reader *r, kvarc_damage_fn damage,
                             void *opaque)
{
	uint64_t places = 0;
	if (!r)
		return 0;
	for (size_t i = 0; i < r->regions.n; i++) {
		const struct kvi_region *g =
			KVI_LIST(struct kvi_region, r->regions, i);
		kvarc_damage d = {
			.offset = g->offset, .bytes = g->bytes,
			.track = UINT32_MAX, .tensor = UINT32_MAX,
			.what = "no valid frame here"
		};
		if (g->explained)
			continue;
		places++;
		if (damage)
			damage(opaque, &d);
	}
	for (size_t i = 0; i < r->losses.n; i++, places++)
		if (damage)
			damage(opaque, KVI_LIST(kvarc_damage, r->losses, i));
	return places;
}
