/* SPDX-License-Identifier: BSD-3-Clause */
/* compact.c - the last state of an archive as a new archive, without what it no longer needs */
#include <string.h>

#include "counted.h"
#include "format/frame.h"
#include "literals.h"
#include "transfer.h"
#include "util/arguments.h"
#include "writer/writer_internal.h"

/* An archive on its way. */
struct compacting {
	kvarc_reader *r;
	kvarc_writer *w;
	const struct kvi_alloc *alloc;
	const kvarc_geometry *geometry;
	uint32_t *same; /* i, of each tensor */
	uint32_t segment_tokens;
	struct kvi_literals literals;
	/* BLOB content that is being filled. */
	struct kvi_out blob;
	uint64_t item, item_bytes; /* item_bytes: literal bytes of it before the BLOB */
	size_t blob_bytes;
};

static kvarc_ret no_memory(const struct compacting *c)
{
	return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
	                       "not enough memory to compact the archive");
}

/* ----- items ----------------------------------------------------------- */

static bool is_literal(const struct kvi_piece *p)
{
	return p->type != KVI_PIECE_AREA;
}

/* RESTORE: references become literal pieces, of which neighbours are one. */
static kvarc_ret put_restore(struct compacting *c, const struct kvi_restore *from)
{
	struct kvi_restore to = *from;
	struct kvi_out out;
	to.n_pieces = 0;
	to.pieces = kvi_array(c->alloc, from->n_pieces + 1, sizeof *to.pieces);
	if (!to.pieces)
		return no_memory(c);
	for (size_t i = 0; i < from->n_pieces; i++) {
		const struct kvi_piece *p = &from->pieces[i];
		if (is_literal(p) && to.n_pieces && is_literal(&to.pieces[to.n_pieces - 1])) {
			to.pieces[to.n_pieces - 1].bytes += p->bytes;
			continue;
		}
		to.pieces[to.n_pieces] = *p;
		if (is_literal(p))
			to.pieces[to.n_pieces].type = KVI_PIECE_LITERAL;
		to.n_pieces++;
	}
	kvi_out_init(&out, c->alloc);
	kvi_restore_put(&out, &to);
	kvarc_ret ret = out.failed ? no_memory(c)
	                           : kvi_writer_frame(c->w, KVI_FRAME_RESTORE, out.p, out.n, true);
	kvi_out_free(&out);
	kvi_free(c->alloc, to.pieces);
	return ret;
}

static kvarc_ret put_blob(struct compacting *c)
{
	kvarc_ret ret = c->blob_bytes
	                        ? kvi_writer_frame(c->w, KVI_FRAME_BLOB, c->blob.p, c->blob.n, true)
	                        : KVARC_OK;
	c->item_bytes += c->blob_bytes;
	c->blob_bytes = 0;
	c->blob.n = 0;
	return ret;
}

/* Literal bytes of an item of the reader, for the item in hand. */
static kvarc_ret put_bytes(struct compacting *c, uint64_t item, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t left = KVI_BLOB_BYTES - c->blob_bytes;
		size_t n = bytes < left ? (size_t)bytes : left;
		if (!c->blob_bytes)
			kvi_blob_put_head(&c->blob, c->item, c->item_bytes);
		uint8_t *to = kvi_out_reserve(&c->blob, n);
		if (!to)
			return no_memory(c);
		ret = kvi_literals_read(&c->literals, item, from, n, to);
		c->blob.n += n;
		c->blob_bytes += n;
		from += n;
		bytes -= n;
		if (!ret && c->blob_bytes == KVI_BLOB_BYTES)
			ret = put_blob(c);
	}
	return ret;
}

static kvarc_ret put_literals(struct compacting *c, size_t i)
{
	const struct kvi_restore *x = kvi_reader_restore(c->r, i);
	const uint64_t number = kvi_reader_earlier_items(c->r) + i;
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	c->item = i;
	c->item_bytes = 0;
	for (size_t k = 0; k < x->n_pieces && !ret; k++) {
		const struct kvi_piece *p = &x->pieces[k];
		if (p->type == KVI_PIECE_REFERENCE)
			ret = put_bytes(c, p->item, p->from, p->bytes);
		else if (p->type == KVI_PIECE_LITERAL)
			ret = put_bytes(c, number, at, p->bytes);
		at += p->type == KVI_PIECE_LITERAL ? p->bytes : 0;
	}
	return ret ? ret : put_blob(c);
}

/* The tokens of all areas are there, as in an archive that is not cut. */
static kvarc_ret check_areas(struct compacting *c)
{
	for (size_t i = 0; i < kvi_reader_n_items(c->r); i++) {
		const struct kvi_restore *x = kvi_reader_restore(c->r, i);
		for (size_t k = 0; k < x->n_pieces; k++) {
			const struct kvi_piece *p = &x->pieces[k];
			uint64_t n = p->type == KVI_PIECE_AREA ? kvarc_reader_tokens(c->r, p->track)
			                                       : UINT64_MAX;
			if (p->t0 > n || p->n_tokens > n - p->t0)
				return kvi_reader_fail(c->r, KVARC_DATA,
				                       "packed files need tokens that are not "
				                       "in the archive: it was cut");
		}
	}
	return KVARC_OK;
}

static kvarc_ret put_items(struct compacting *c)
{
	const size_t n = kvi_reader_n_items(c->r);
	kvarc_ret ret = check_areas(c);
	if (!ret && n)
		ret = kvi_literals_open(&c->literals, c->r);
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_restore(c, kvi_reader_restore(c->r, i));
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_literals(c, i);
	return ret;
}

/* ----- tokens ----------------------------------------------------------- */

/* A segment of a track whose tokens have ids, or not. */
struct id_run {
	uint64_t end; /* tokens of the track up to its last one */
	bool ids;
};

/* The next run of tokens of a track from `at` on that all have ids, or none of which has. */
static kvarc_ret next_run(struct compacting *c, uint32_t track, uint64_t at, size_t *i,
                          struct kvi_segment *s, struct id_run *run)
{
	const struct kvi_list *l = &c->r->index.segments;
	*run = (struct id_run){ at, false };
	for (; *i < l->n; ++*i) {
		const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, *l, *i);
		if (ref->track != track || !ref->left)
			continue;
		kvarc_ret ret = kvi_reader_read_segment(c->r, &c->r->packer, ref, s, c->r->error);
		if (ret)
			return kvi_reader_set_error(c->r, ret);
		const bool ids = s->has_ids || s->coded;
		if (run->end > at && ids != run->ids)
			break;
		*run = (struct id_run){ ref->t0 + ref->left, ids };
	}
	return KVARC_OK;
}

static kvarc_ret put_runs(struct compacting *c, struct kvi_transfer *t, struct kvi_segment *s)
{
	struct id_run run;
	size_t i = 0;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t at = 0; at < t->range.n && !ret; at = run.end) {
		ret = next_run(c, t->track, at, &i, s, &run);
		if (!ret)
			ret = kvi_transfer_tokens(t, at, run.end, run.ids);
	}
	return ret;
}

static kvarc_ret put_track(struct compacting *c, uint32_t track)
{
	struct kvi_transfer t = { .r = c->r,
		                  .w = c->w,
		                  .range = KVARC_RANGE_ALL(track),
		                  .track = track,
		                  .tensors = c->geometry->tensors,
		                  .n_tensors = c->geometry->n_tensors,
		                  .source = c->same,
		                  .to_of = c->same,
		                  .segment_tokens = c->segment_tokens,
		                  .short_segments = true };
	t.range.n = kvarc_reader_tokens(c->r, track);
	if (!t.range.n)
		return KVARC_OK;
	struct kvi_segment *s = kvi_malloc(c->alloc, sizeof *s);
	kvarc_ret ret = s ? kvi_transfer_begin(&t) : no_memory(c);
	if (!ret)
		ret = put_runs(c, &t, s);
	kvi_transfer_end(&t);
	kvi_free(c->alloc, s);
	return ret;
}

static kvarc_ret write_all(struct compacting *c)
{
	kvarc_ret ret = kvarc_writer_set_geometry(c->w, c->geometry);
	if (!ret)
		ret = kvi_transfer_identity(c->r, c->w, NULL, NULL);
	if (!ret)
		ret = put_items(c);
	for (uint32_t i = 0; i < c->geometry->n_tracks && !ret; i++)
		ret = put_track(c, i);
	return ret;
}

/* ----- all of it -------------------------------------------------------- */

static kvarc_ret check(const kvarc_reader *r, const kvarc_writer_options *o)
{
	kvarc_error *e = kvi_reader_error(r);
	if (!kvi_reader_can_seek(r))
		return kvi_reason(e, KVARC_REASON_NEEDS_SEEK,
		                  kvi_fail(e, KVARC_OPTIONS,
		                           "kvarc_compact needs a source that can seek, not a "
		                           "pipe"));
	if (kvi_reader_is_salvage(r) || kvi_reader_started(r))
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_compact takes a reader without KVARC_READ_SALVAGE, before "
		                "segments are read");
	if (r->state == KVARC_STATE_DAMAGED)
		return kvi_reason(e, KVARC_REASON_SALVAGE,
		                  kvi_fail(e, KVARC_DATA,
		                           "the archive is damaged behind its last commit: salvage "
		                           "it"));
	if (o && o->lossy)
		return kvi_fail(e, KVARC_PROG, "kvarc_compact takes no lossy tier");
	return KVARC_OK;
}

kvarc_ret kvarc_compact(kvarc_reader *r, const kvarc_sink *sink,
                        const kvarc_writer_options *options, kvarc_writer_stats *stats)
{
	if (!r)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_sink(kvi_reader_error(r), "kvarc_compact", sink);
	if (ret)
		return ret;
	struct kvi_counted counted = { .to = *sink };
	kvarc_sink counting = kvi_counted_sink(&counted);
	struct compacting c = { .r = r,
		                .alloc = kvi_reader_alloc(r),
		                .geometry = kvarc_reader_geometry(r),
		                .segment_tokens = options ? options->segment_tokens : 0 };
	ret = check(r, options);
	if (ret)
		return ret;
	kvi_out_init(&c.blob, c.alloc);
	c.same = kvi_array(c.alloc, c.geometry->n_tensors + 1, sizeof *c.same);
	for (uint32_t i = 0; c.same && i < c.geometry->n_tensors; i++)
		c.same[i] = i;
	ret = c.same ? kvarc_writer_open(&c.w, &counting, options) : no_memory(&c);
	if (!ret)
		ret = write_all(&c);
	ret = kvi_counted_close(&counted, &c.w, ret, stats);
	kvi_literals_free(&c.literals);
	kvi_out_free(&c.blob);
	kvi_free(c.alloc, c.same);
	return ret;
}
