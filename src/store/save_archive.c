/* SPDX-License-Identifier: BSD-3-Clause */
/* save_archive.c - the archive of a save: what the store has is named, the rest is written */
#include "config.h"

#include "save_archive.h"

#include <string.h>

#include "files/pack_parts.h"

enum { RUN_MOST = 1024, BATCH_SEGMENTS = 16 };

struct save_writing {
	struct kvi_save_plan *p;
	kvarc_writer *w;
	struct kvi_list *known;
	uint32_t segment_tokens;
	/* Stored segments of one call, and their tokens. */
	kvarc_stored *stored;
	int32_t *ids, *positions;
	size_t n, n_tokens;
};

/* ----- what the store has ------------------------------------------------ */

static kvarc_ret flush_run(struct save_writing *x, uint32_t track)
{
	const bool ids = x->p->tracks[track].has_ids;
	kvarc_ret ret = KVARC_OK;
	if (x->n)
		ret = kvarc_writer_append_stored(x->w, x->n, x->stored, ids ? x->ids : NULL,
		                                 x->positions);
	x->n = x->n_tokens = 0;
	return ret;
}

static kvarc_ret add_stored(struct save_writing *x, uint32_t track, const struct kvi_piece_kept *k)
{
	struct kvi_store_rows *rows = &x->p->rows;
	const uint32_t n = k->stored.n;
	kvarc_ret ret = KVARC_OK;
	if (x->n == RUN_MOST)
		ret = flush_run(x, track);
	if (!ret && !k->tokens)
		ret = kvi_plan_read(x->p, track, k->stored.t0, n, false);
	if (ret)
		return ret;
	memcpy(x->ids + x->n_tokens, k->tokens ? k->tokens : rows->ids, n * sizeof *x->ids);
	memcpy(x->positions + x->n_tokens, k->tokens ? k->tokens + n : rows->positions,
	       n * sizeof *x->ids);
	x->stored[x->n++] = k->stored;
	x->n_tokens += n;
	return KVARC_OK;
}

static struct kvi_known *add_known(struct save_writing *x)
{
	struct kvi_known *k = kvi_list_add(x->known, &x->p->s->alloc, sizeof *k);
	if (!k)
		kvi_fail_alloc(x->p->s->error, &x->p->s->alloc);
	return k;
}

static kvarc_ret know_cut(struct save_writing *x, uint32_t track, const struct kvi_piece_kept *k)
{
	struct kvi_known *known = add_known(x);
	if (!known)
		return kvi_alloc_error(&x->p->s->alloc);
	known->track = track;
	known->n = k->use;
	known->t0 = k->stored.t0;
	known->first = k->first;
	known->has_first = true;
	memcpy(known->digest, k->digest, 16);
	memcpy(known->chain, k->chain, 16);
	return KVARC_OK;
}

static kvarc_ret put_kept(struct save_writing *x, uint32_t track)
{
	const struct kvi_list *l = &x->p->tracks[track].pieces;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < l->n && !ret; i++) {
		const struct kvi_piece_kept *k = KVI_LIST(struct kvi_piece_kept, *l, i);
		ret = add_stored(x, track, k);
		if (ret || k->use == k->stored.n)
			continue;
		ret = flush_run(x, track);
		if (!ret)
			ret = kvarc_writer_rewind(x->w, track, k->stored.t0 + k->use);
		if (!ret)
			ret = know_cut(x, track, k);
	}
	return ret ? ret : flush_run(x, track);
}

/* ----- what is new ------------------------------------------------ */

/* Content digests of the segments that the next append makes. */
static kvarc_ret know_new(struct save_writing *x, uint32_t track, uint64_t t0, uint32_t n)
{
	for (uint32_t at = 0; at < n; at += x->segment_tokens) {
		struct kvi_known *k = add_known(x);
		uint32_t m = n - at < x->segment_tokens ? n - at : x->segment_tokens;
		if (!k)
			return kvi_alloc_error(&x->p->s->alloc);
		kvarc_ret ret = kvi_plan_read(x->p, track, t0 + at, m, true);
		if (!ret)
			ret = kvi_plan_digest(x->p, m, k->digest);
		if (ret)
			return ret;
		k->track = track;
		k->n = m;
		k->t0 = t0 + at;
		k->has_first = x->p->rows.has_ids;
		k->first = x->p->rows.has_ids ? x->p->rows.ids[0] : 0;
	}
	return KVARC_OK;
}

static kvarc_ret put_new(struct save_writing *x, uint32_t track)
{
	const struct kvi_track_plan *t = &x->p->tracks[track];
	const uint32_t batch = x->segment_tokens * BATCH_SEGMENTS;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t t0 = t->kept; t0 < t->tokens && !ret; t0 += batch) {
		uint32_t n = t->tokens - t0 < batch ? (uint32_t)(t->tokens - t0) : batch;
		ret = know_new(x, track, t0, n);
		if (!ret)
			ret = kvarc_import_read_tokens(x->p->im, track, t0, n,
			                               t->has_ids ? x->ids : NULL, x->positions);
		if (!ret)
			ret = kvarc_writer_append_fetch(x->w, track, n, t->has_ids ? x->ids : NULL,
			                                x->positions, kvarc_import_fetch, x->p->im);
	}
	return ret;
}

static kvarc_ret put_track(struct save_writing *x, uint32_t track)
{
	if (!x->p->tracks[track].tokens)
		return KVARC_OK;
	kvarc_ret ret = kvi_rows_make(x->p->s, &x->p->rows, x->p->g, track);
	if (!ret)
		ret = put_kept(x, track);
	if (!ret)
		ret = put_new(x, track);
	kvi_rows_free(x->p->s, &x->p->rows);
	return ret;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret write_all(struct save_writing *x, const kvarc_save_options *o)
{
	kvarc_error *e = x->p->s->error;
	kvarc_ret ret = kvi_pack_begin(x->p->im, x->w, e);
	for (uint32_t i = 0; i < x->p->g->n_tracks && !ret; i++)
		ret = put_track(x, i);
	if (!ret)
		ret = kvi_pack_items(x->p->im, x->w, e);
	return ret ? ret : kvarc_writer_checkpoint(x->w, o->label, o->time, NULL);
}

static kvarc_ret open_writer(struct save_writing *x, struct kvi_new_archive *a,
                             const kvarc_save_options *o, const kvarc_keys *keys)
{
	struct kvarc_store *s = x->p->s;
	kvarc_writer_options wo = o->writer;
	const size_t tokens = (size_t)RUN_MOST * KVI_SEGMENT_MOST;
	x->stored = kvi_array(&s->alloc, RUN_MOST, sizeof *x->stored);
	x->ids = kvi_array(&s->alloc, tokens, 2 * sizeof *x->ids);
	if (!x->stored || !x->ids)
		return kvi_fail_alloc(s->error, &s->alloc);
	x->positions = x->ids + tokens;
	memcpy(wo.file_id, a->id, sizeof wo.file_id);
	wo.flags |= KVARC_WRITE_FILE_ID | KVARC_WRITE_STORED;
	wo.common.error = s->error;
	wo.keys = keys;
	return kvarc_writer_open(&x->w, &a->sink, &wo);
}

kvarc_ret kvi_save_write(struct kvi_new_archive *a, struct kvi_save_plan *p,
                         const kvarc_save_options *o, const kvarc_keys *keys,
                         struct kvi_list *known)
{
	struct kvarc_store *s = p->s;
	struct save_writing x = { .p = p, .known = known };
	x.segment_tokens = o->writer.segment_tokens ? o->writer.segment_tokens : KVI_SEGMENT_MOST;
	kvarc_ret ret = kvi_new_archive_begin(a, s);
	if (!ret)
		ret = open_writer(&x, a, o, keys);
	if (!ret)
		ret = write_all(&x, o);
	if (ret)
		kvarc_writer_abort(&x.w);
	else
		ret = kvarc_writer_close(&x.w);
	if (!ret)
		ret = kvi_new_archive_end(a, s);
	kvi_free(&s->alloc, x.stored);
	kvi_free(&s->alloc, x.ids);
	return ret;
}
