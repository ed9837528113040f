/* SPDX-License-Identifier: BSD-3-Clause */
/* repack.c - copies of what is needed of archives that others need little of */
#include "config.h"

#include "repack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "files/keep_segments.h"
#include "repack_plan.h"
#include "save_archive.h"
#include "util/ckd.h"

/* A gc has half an hour for all of it: no copy begins later than this. */
enum { BEGIN_SECONDS = 600 };

/* An archive that is copied. */
struct repack_copy {
	struct kvi_gc *g;
	struct kvarc_store *s;
	const struct kvi_candidate *c;
	struct kvi_open_pack from;
	struct kvi_new_archive to;
	struct kvi_list rows;   /* struct kvi_index_row: what the index says that it holds */
	uint64_t *ends;         /* of each track: behind the last token that is needed */
	uint64_t bytes, needed; /* raw bytes of what it holds, and of what is needed of that */
	size_t found;           /* segments that are needed */
	struct kvi_store_rows *named; /* tokens of each track, of other archives */
};

/* ----- whether it is worth it ------------------------------------------------ */

static bool is_needed(const struct repack_copy *x, const kvarc_stored *s)
{
	const struct kvi_needed_segment key = { s->track, s->t0 };
	const struct kvi_list *l = &x->c->needed;
	return bsearch(&key, l->p, l->n, sizeof key, kvi_needed_order) != NULL;
}

/* END: at least half of it is needed. */
static kvarc_ret measure(struct repack_copy *x)
{
	const kvarc_geometry *g = kvarc_reader_geometry(x->from.r);
	kvarc_ret ret = KVARC_OK;
	x->ends = kvi_calloc(&x->s->alloc, g->n_tracks + 1, sizeof *x->ends);
	x->named = kvi_calloc(&x->s->alloc, g->n_tracks + 1, sizeof *x->named);
	if (!x->ends || !x->named)
		return kvi_fail_alloc(x->s->error, &x->s->alloc);
	for (uint64_t i = 0; !ret; i++) {
		kvarc_stored s;
		unsigned flags;
		ret = kvarc_reader_segment_at(x->from.r, i, &s, &flags);
		if (ret || (flags & KVARC_SEGMENT_STORED))
			continue;
		const bool needed = is_needed(x, &s);
		if (kvi_add(x->bytes, s.bytes, &x->bytes))
			return KVARC_END;
		x->needed += needed ? s.bytes : 0;
		x->found += needed;
		if (needed)
			x->ends[s.track] = s.t0 + s.n;
	}
	if (ret != KVARC_END)
		return ret;
	return x->found == x->c->needed.n && x->needed < x->bytes - x->needed ? KVARC_OK
	                                                                      : KVARC_END;
}

/* ----- what becomes of each segment ------------------------------------------------ */

static kvarc_ret add_row(void *opaque, const struct kvi_index_row *row)
{
	struct repack_copy *x = opaque;
	struct kvi_index_row *to = kvi_list_add(&x->rows, &x->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(x->s->error, &x->s->alloc);
	*to = *row;
	return KVARC_OK;
}

static kvarc_ret list_rows(struct repack_copy *x)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_pack(x->s->index, x->c->pack->id, &pack);
	return ret ? ret : kvi_index_rows(x->s->index, pack, add_row, x);
}

static kvarc_ret missing(struct repack_copy *x)
{
	return kvi_fail(x->s->error, KVARC_STORE,
	                "store: a segment before those that are needed "
	                "is missing");
}

/* One that the archive holds. Where it cannot be decoded (damage, no profile) nobody could verify a
 * copy. */
static kvarc_ret find_own(struct repack_copy *x, const kvarc_stored *s, struct kvi_kept *kept)
{
	for (size_t i = 0; i < x->rows.n; i++) {
		struct kvi_index_row *row = KVI_LIST(struct kvi_index_row, x->rows, i);
		if (row->track != s->track || row->t0 != s->t0)
			continue;
		kvarc_ret ret = row->has_digest ? KVARC_OK : kvi_row_digest(x->s, row);
		memcpy(kept->digest, row->digest, sizeof kept->digest);
		return ret;
	}
	return missing(x);
}

/* One of another archive: chain values are checked with its tokens. */
static kvarc_ret name_other(struct repack_copy *x, const kvarc_stored *s, struct kvi_kept *kept)
{
	struct kvi_store_rows *rows = &x->named[s->track];
	struct kvi_index_row row;
	kvarc_ret ret = KVARC_OK;
	if (!s->has_chain)
		return KVARC_OK;
	if (!rows->views)
		ret = kvi_rows_make(x->s, rows, kvarc_reader_geometry(x->from.r), s->track);
	if (!ret)
		ret = kvi_content_find(x->s, NULL, x->from.name_space, s->chain, NULL, &row);
	if (!ret)
		ret = kvi_rows_read(x->s, &row, rows, false);
	if (ret == KVARC_END || (!ret && (rows->n != s->n || !rows->has_ids)))
		return missing(x);
	kept->has_ids = true;
	memcpy(kept->ids, rows->ids, s->n * sizeof *kept->ids);
	memcpy(kept->positions, rows->positions, s->n * sizeof *kept->positions);
	return ret;
}

static kvarc_ret keep(void *opaque, const kvarc_stored *s, unsigned flags, struct kvi_kept *kept)
{
	struct repack_copy *x = opaque;
	if (flags & KVARC_SEGMENT_STORED)
		return name_other(x, s, kept);
	kept->copied = is_needed(x, s);
	return find_own(x, s, kept);
}

/* ----- the copy ------------------------------------------------ */

/* END: it is not smaller than three quarters. */
static kvarc_ret write_copy(struct repack_copy *x)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_ret ret = list_rows(x);
	if (!ret)
		ret = kvi_new_archive_begin(&x->to, x->s);
	if (ret)
		return ret;
	wo.common = x->s->options.common;
	wo.common.error = x->s->error;
	wo.flags = KVARC_WRITE_FILE_ID | KVARC_WRITE_STORED;
	memcpy(wo.file_id, x->to.id, sizeof wo.file_id);
	ret = kvi_keep_segments(x->from.r, &x->to.sink, &wo, x->ends, keep, x);
	if (ret && x->from.error.code == ret)
		kvi_fail(x->s->error, ret, "store: %s: %s", x->from.key, x->from.error.text);
	if (!ret)
		ret = kvi_new_archive_end(&x->to, x->s);
	return !ret && x->to.bytes > x->c->pack->bytes / 4 * 3 ? KVARC_END : ret;
}

/* Savers of this machine find it at once. It is a cache: a failure shows itself when it is used. */
static void add_to_index(struct repack_copy *x)
{
	struct kvi_store_index *own = x->g->own;
	kvarc_reader_options o;
	kvarc_error e = { .text = "" };
	kvarc_reader *r;
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_pack_reader_options(x->s, &o, &e);
	kvi_pack_key(key, x->to.id);
	if (x->s->backend->calls->stat(x->s->backend, key, &object, NULL) ||
	    kvarc_reader_open(&r, &x->to.source, &o))
		return;
	if (kvi_index_begin_change(own) == KVARC_OK) {
		kvarc_ret ret = kvi_index_fill(x->s, own, x->to.id, &object, r, NULL, true);
		(void)kvi_index_end_change(own, ret);
	}
	kvarc_reader_close(&r);
}

static kvarc_ret put_copy(struct repack_copy *x)
{
	struct kvi_backend *b = x->s->backend;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, x->to.id);
	kvarc_ret ret = b->calls->put(b, key, &x->to.source, x->s->error);
	if (!ret)
		add_to_index(x);
	return ret == KVARC_END ? kvi_fail(x->s->error, KVARC_IO, "store: %s is there already", key)
	                        : ret;
}

static void end(struct repack_copy *x)
{
	for (uint32_t i = 0; x->named && i < kvarc_reader_geometry(x->from.r)->n_tracks; i++)
		kvi_rows_free(x->s, &x->named[i]);
	kvi_free(&x->s->alloc, x->named);
	kvi_free(&x->s->alloc, x->ends);
	kvi_free(&x->s->alloc, x->rows.p);
	kvi_new_archive_close(&x->to);
	kvi_pack_close(&x->from);
}

/* END: it stays as it is. */
static kvarc_ret copy(struct kvi_gc *g, const struct kvi_candidate *c)
{
	struct repack_copy x = { .g = g, .s = g->s, .c = c, .to = { .fd = -1 } };
	kvarc_ret ret = kvi_pack_open(g->s, &x.from, c->pack->id, false, NULL);
	if (ret)
		return ret;
	ret = measure(&x);
	if (!ret)
		ret = write_copy(&x);
	if (!ret && !g->o->dry_run)
		ret = put_copy(&x);
	if (!ret)
		c->pack->copy_bytes = x.to.bytes;
	end(&x);
	return ret;
}

/* ----- all of them ------------------------------------------------ */

static kvarc_ret count_row(void *opaque, const struct kvi_index_row *row)
{
	(void)row;
	++*(uint64_t *)opaque;
	return KVARC_OK;
}

/* All of it is needed, as of most: without opening it. */
static bool is_whole(struct kvi_gc *g, const struct kvi_candidate *c)
{
	uint64_t n = 0;
	int64_t pack;
	return kvi_index_find_pack(g->s->index, c->pack->id, &pack) == KVARC_OK &&
	       kvi_index_rows(g->s->index, pack, count_row, &n) == KVARC_OK && n == c->needed.n;
}

static void report(struct kvi_gc *g, const struct kvi_candidate *c)
{
	const struct kvi_map_pack *p = c->pack;
	char hex[33];
	kvi_hex(hex, p->id);
	g->result->repacked += g->o->dry_run != 0;
	g->result->repacked_bytes += g->o->dry_run ? p->bytes - p->copy_bytes : 0;
	if (g->o->dry_run)
		kvi_map_report(&g->map,
		               "archive %s: a copy of what is needed takes %" PRIu64 " of %" PRIu64
		               " bytes",
		               hex, p->copy_bytes, p->bytes);
}

/* *go_on false: the store has no capacity for copies; archives that need none may still go. */
static kvarc_ret repack(struct kvi_gc *g, struct kvi_candidate *c, bool *go_on)
{
	char hex[33];
	if (!c->needed.n) {
		c->pack->needed = 0;
		return KVARC_OK;
	}
	if (!*go_on || is_whole(g, c) || kvi_gc_is_taken(g, c->pack))
		return KVARC_OK;
	kvarc_ret ret = copy(g, c);
	if (!ret) {
		report(g, c);
		c->pack->needed = g->o->dry_run ? c->pack->needed : 0;
		return KVARC_OK;
	}
	if (ret == KVARC_MEM || kvi_index_damaged(g->s->index))
		return ret;
	kvi_hex(hex, c->pack->id);
	if (ret != KVARC_END)
		kvi_map_report(&g->map, "archive %s stays as it is: %.300s", hex,
		               g->s->error->text);
	*go_on = ret != KVARC_IO;
	return KVARC_OK;
}

kvarc_ret kvi_repack(struct kvi_gc *g)
{
	struct kvi_list candidates = { 0 };
	bool go_on = true;
	kvarc_ret ret = kvi_repack_plan(g, &candidates);
	for (size_t i = 0; i < candidates.n && !ret; i++) {
		go_on = go_on && kvi_store_now() - g->now <= BEGIN_SECONDS;
		ret = repack(g, KVI_LIST(struct kvi_candidate, candidates, i), &go_on);
	}
	kvi_repack_plan_free(g, &candidates);
	/* The rest of the gc needs less memory. */
	if (ret == KVARC_MEMLIMIT) {
		kvi_map_report(&g->map, "no archive was repacked: %.300s", g->s->error->text);
		ret = KVARC_OK;
	}
	return ret;
}
