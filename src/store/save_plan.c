/* SPDX-License-Identifier: BSD-3-Clause */
/* save_plan.c - which tokens of a file a store has already, in whole segments */
#include "save_plan.h"

#include <string.h>

#include "files/pack_parts.h"

enum { MATCHES_MOST = 16 };

/* ----- tokens of the file ------------------------------------------------ */

uint64_t kvi_plan_bytes(const struct kvi_save_plan *p, uint32_t track, uint32_t n)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < p->g->n_tensors; i++) {
		const kvarc_tensor *t = &p->g->tensors[i];
		if (t->track == track)
			bytes += (uint64_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
	}
	return n * bytes;
}

static kvarc_ret fail_read(struct kvi_save_plan *p)
{
	return kvi_fail(p->s->error, KVARC_IO, "reading the file that is saved failed");
}

static kvarc_ret read_elements(struct kvi_save_plan *p, uint32_t track, uint64_t t0, uint32_t n)
{
	for (size_t i = 0; i < p->g->n_tensors; i++) {
		const kvarc_tensor *t = &p->g->tensors[i];
		if (t->track == track && kvarc_import_fetch(p->im, (uint32_t)i, 0, t->heads, t0, n,
		                                            p->rows.views[i].data))
			return fail_read(p);
	}
	return KVARC_OK;
}

kvarc_ret kvi_plan_read(struct kvi_save_plan *p, uint32_t track, uint64_t t0, uint32_t n,
                        bool elements)
{
	struct kvi_store_rows *rows = &p->rows;
	rows->n = n;
	rows->has_ids = p->tracks[track].has_ids;
	kvarc_ret ret = kvarc_import_read_tokens(p->im, track, t0, n,
	                                         rows->has_ids ? rows->ids : NULL, rows->positions);
	if (ret)
		return kvi_fail(p->s->error, ret == KVARC_MEM ? ret : KVARC_IO,
		                "reading the token ids of the file that is saved failed");
	return elements ? read_elements(p, track, t0, n) : KVARC_OK;
}

kvarc_ret kvi_plan_digest(struct kvi_save_plan *p, uint32_t n, uint8_t digest[16])
{
	const struct kvi_store_rows *rows = &p->rows;
	kvarc_ret ret = kvarc_content_digest(p->g, rows->track, n, rows->has_ids ? rows->ids : NULL,
	                                     rows->positions, rows->views, digest);
	return kvi_fail_memory(p->s->error, ret, &p->s->alloc);
}

/* ----- pieces ------------------------------------------------ */

struct kvi_piece_kept *kvi_plan_add(struct kvi_save_plan *p, uint32_t track)
{
	struct kvi_piece_kept *k = kvi_list_add(&p->tracks[track].pieces, &p->s->alloc, sizeof *k);
	if (k)
		memcpy(k->before, p->tracks[track].chain, 16);
	else
		kvi_fail_alloc(p->s->error, &p->s->alloc);
	return k;
}

kvarc_ret kvi_piece_cut(struct kvi_save_plan *p, struct kvi_piece_kept *k)
{
	const uint32_t n = p->other.n;
	k->tokens = kvi_array(&p->s->alloc, n, 2 * sizeof *k->tokens);
	if (!k->tokens)
		return kvi_fail_alloc(p->s->error, &p->s->alloc);
	memcpy(k->tokens, p->other.ids, n * sizeof *k->tokens);
	memcpy(k->tokens + n, p->other.positions, n * sizeof *k->tokens);
	return KVARC_OK;
}

static kvarc_ret add_whole(struct kvi_save_plan *p, const struct kvi_index_row *row, uint32_t track,
                           uint64_t t0, const uint8_t *chain, const uint8_t digest[16])
{
	struct kvi_piece_kept *k = kvi_plan_add(p, track);
	if (!k)
		return kvi_alloc_error(&p->s->alloc);
	k->stored.track = track;
	k->stored.n = k->use = row->n;
	k->stored.t0 = t0;
	k->stored.bytes = kvi_plan_bytes(p, track, row->n);
	k->stored.has_chain = row->has_chain;
	if (chain)
		memcpy(k->stored.chain, chain, 16);
	memcpy(k->stored.digest, digest, 16);
	memcpy(k->pack, row->id, 16);
	return KVARC_OK;
}

/* The hashes of a whole segment, which lies in p->other, as they are in its archive. END: they are
 * not those of the index. */
static kvarc_ret whole_hashes(struct kvi_save_plan *p, const struct kvi_index_row *row,
                              kvarc_stored *st)
{
	const struct kvi_store_rows *o = &p->other;
	if (!o->has_ids)
		return KVARC_END;
	kvarc_ret ret = kvarc_chain_next(p->tracks[st->track].chain, st->track, o->n, o->ids,
	                                 o->positions, st->chain);
	if (!ret)
		ret = kvarc_content_digest(p->g, st->track, o->n, o->ids, o->positions, o->views,
		                           st->digest);
	if (!ret && (!kvi_veil_equal(p->veil, row->whole_chain, st->chain) ||
	             !kvi_veil_equal(p->veil, row->whole_digest, st->digest)))
		return KVARC_END;
	return kvi_fail_memory(p->s->error, ret, &p->s->alloc);
}

/* Tokens that another version has cut off a segment: the segment is named, and cut again. Returns
 * END when it is in no archive any more. */
static kvarc_ret add_cut(struct kvi_save_plan *p, const struct kvi_index_row *row, uint32_t track,
                         uint64_t t0, const uint8_t *chain, const uint8_t digest[16])
{
	struct kvi_index_row whole;
	kvarc_stored st = { .track = track, .t0 = t0, .has_chain = 1 };
	kvarc_ret ret = kvi_content_find(p->s, p->g, row->name_space, row->whole_chain,
	                                 row->whole_digest, &whole);
	if (!ret && whole.n != row->whole_n)
		ret = KVARC_END;
	if (!ret)
		ret = kvi_rows_read(p->s, &whole, &p->other, true);
	if (!ret)
		ret = whole_hashes(p, row, &st);
	struct kvi_piece_kept *k = ret ? NULL : kvi_plan_add(p, track);
	if (!k)
		return ret ? ret : kvi_alloc_error(&p->s->alloc);
	st.n = whole.n;
	st.bytes = kvi_plan_bytes(p, track, whole.n);
	k->stored = st;
	memcpy(k->pack, whole.id, 16);
	memcpy(k->digest, digest, 16);
	memcpy(k->chain, chain, 16);
	k->first = p->other.ids[0];
	k->use = row->n;
	return kvi_piece_cut(p, k);
}

/* ----- the walk ------------------------------------------------ */

bool kvi_plan_final(const struct kvi_save_plan *p, kvarc_ret ret)
{
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO ||
	       kvi_index_damaged(p->s->index);
}

/* The content digest of a row of the index, from the archive where it is not in the index. */
static kvarc_ret row_digest(struct kvi_save_plan *p, struct kvi_index_row *row)
{
	struct kvi_index_row whole = *row;
	kvarc_ret ret = KVARC_OK;
	if (row->has_digest)
		return KVARC_OK;
	if (row->whole_n)
		ret = kvi_content_find(p->s, p->g, row->name_space, row->whole_chain,
		                       row->whole_digest, &whole);
	if (!ret)
		ret = kvi_rows_read(p->s, &whole, &p->other, true);
	if (!ret && p->other.n < row->n)
		ret = KVARC_END;
	if (!ret)
		ret = kvarc_content_digest(p->g, p->other.track, row->n,
		                           p->other.has_ids ? p->other.ids : NULL,
		                           p->other.positions, p->other.views, row->digest);
	row->has_digest = !ret;
	if (!ret)
		kvi_veil_hash(p->veil, row->digest, row->digest);
	if (!ret)
		(void)kvi_index_set_digest(p->s->index, row->row, row->digest);
	return ret;
}

/* Uses one of the rows that has the elements of the file. END: none has. */
static kvarc_ret use_row(struct kvi_save_plan *p, struct kvi_index_row *rows, size_t count,
                         uint32_t track, uint32_t n, const uint8_t chain[16])
{
	struct kvi_track_plan *t = &p->tracks[track];
	uint8_t digest[16];
	kvarc_ret ret = kvi_plan_read(p, track, t->kept, n, true);
	if (!ret)
		ret = kvi_plan_digest(p, n, digest);
	if (ret)
		return ret;
	for (size_t i = 0; i < count; i++) {
		ret = row_digest(p, &rows[i]);
		if (!ret && kvi_veil_equal(p->veil, rows[i].digest, digest)) {
			ret = rows[i].whole_n
			              ? add_cut(p, &rows[i], track, t->kept, chain, digest)
			              : add_whole(p, &rows[i], track, t->kept, chain, digest);
			if (!ret)
				return ret;
		}
		if (ret && kvi_plan_final(p, ret))
			return ret;
	}
	return KVARC_END;
}

static void keep(struct kvi_save_plan *p, uint32_t track, uint32_t n)
{
	p->tracks[track].kept += n;
	p->kept += n;
	p->kept_bytes += kvi_plan_bytes(p, track, n);
}

/* One step: the longest tokens that follow. END: none does. */
static kvarc_ret step_chain(struct kvi_save_plan *p, uint32_t track)
{
	struct kvi_track_plan *t = &p->tracks[track];
	struct kvi_index_row rows[MATCHES_MOST];
	const uint64_t left = t->tokens - t->kept, parent = kvi_veil_word(p->veil, t->chain);
	uint32_t lengths[KVI_SEGMENT_MOST];
	size_t n_lengths, count;
	kvarc_ret ret = kvi_index_lengths(p->s->index, parent, lengths, &n_lengths);
	if (!ret && n_lengths)
		ret = kvi_plan_read(p, track, t->kept,
		                    (uint32_t)(left < KVI_SEGMENT_MOST ? left : KVI_SEGMENT_MOST),
		                    false);
	for (size_t i = 0; i < n_lengths && !ret; i++) {
		uint8_t chain[16], veiled[16];
		if (lengths[i] > left)
			continue;
		ret = kvarc_chain_next(t->chain, track, lengths[i], p->rows.ids, p->rows.positions,
		                       chain);
		ret = kvi_fail_memory(p->s->error, ret, &p->s->alloc);
		kvi_veil_hash(p->veil, veiled, chain);
		if (!ret)
			ret = kvi_index_match(p->s->index, p->name_space, parent, veiled, rows,
			                      MATCHES_MOST, &count);
		if (ret || !count)
			continue;
		ret = use_row(p, rows, count, track, lengths[i], chain);
		if (ret == KVARC_END) {
			ret = KVARC_OK;
			continue;
		}
		if (ret)
			return ret;
		memcpy(t->chain, chain, 16);
		keep(p, track, lengths[i]);
		return KVARC_OK;
	}
	return ret ? ret : KVARC_END;
}

/* Tokens without a chain value: segments of the usual length, by their content. END: there is no
 * such one. */
static kvarc_ret step_digest(struct kvi_save_plan *p, uint32_t track)
{
	struct kvi_track_plan *t = &p->tracks[track];
	const uint64_t left = t->tokens - t->kept;
	const uint32_t n = left < KVI_SEGMENT_MOST ? (uint32_t)left : KVI_SEGMENT_MOST;
	struct kvi_index_row row;
	uint8_t digest[16], veiled[16];
	kvarc_ret ret = kvi_plan_read(p, track, t->kept, n, true);
	if (!ret)
		ret = kvi_plan_digest(p, n, digest);
	if (ret)
		return ret;
	kvi_veil_hash(p->veil, veiled, digest);
	ret = kvi_content_find(p->s, p->g, p->name_space, veiled, veiled, &row);
	if (!ret && (row.n != n || row.has_chain))
		ret = KVARC_END;
	if (!ret)
		ret = add_whole(p, &row, track, t->kept, NULL, digest);
	if (!ret)
		keep(p, track, n);
	return ret;
}

/* As writers do: positions count from 0, and ids say all. */
static kvarc_ret find_chained(struct kvi_save_plan *p, uint32_t track)
{
	struct kvi_track_plan *t = &p->tracks[track];
	t->chained = t->has_ids;
	for (uint64_t t0 = 0; t0 < t->tokens && t->chained; t0 += KVI_SEGMENT_MOST) {
		const uint64_t left = t->tokens - t0;
		const uint32_t n = left < KVI_SEGMENT_MOST ? (uint32_t)left : KVI_SEGMENT_MOST;
		kvarc_ret ret = kvi_plan_read(p, track, t0, n, false);
		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			t->chained &= p->rows.ids[i] >= 0 &&
			              p->rows.positions[i] == (int64_t)(t0 + i);
	}
	memcpy(t->chain, p->root, 16);
	return KVARC_OK;
}

/* A cut takes effect with the next segment. Where none would follow, the last piece is looked for
 * once more, so that a token follows. */
static kvarc_ret end_with_token(struct kvi_save_plan *p, uint32_t track)
{
	struct kvi_track_plan *t = &p->tracks[track];
	struct kvi_piece_kept *k =
		t->pieces.n ? KVI_LIST(struct kvi_piece_kept, t->pieces, t->pieces.n - 1) : NULL;
	if (!k || k->use == k->stored.n || t->kept < t->tokens)
		return KVARC_OK;
	memcpy(t->chain, k->before, 16);
	t->kept -= k->use;
	p->kept -= k->use;
	p->kept_bytes -= kvi_plan_bytes(p, track, k->use);
	kvi_free(&p->s->alloc, k->tokens);
	t->pieces.n--;
	return kvi_plan_partial(p, track);
}

static kvarc_ret plan_track(struct kvi_save_plan *p, uint32_t track)
{
	struct kvi_track_plan *t = &p->tracks[track];
	int32_t id;
	t->tokens = kvarc_import_tokens(p->im, track);
	p->tokens += t->tokens;
	if (!t->tokens)
		return KVARC_OK;
	t->has_ids = kvarc_import_read_tokens(p->im, track, 0, 1, &id, NULL) == KVARC_OK;
	kvarc_ret ret = kvi_rows_make(p->s, &p->rows, p->g, track);
	if (!ret)
		ret = kvi_rows_make(p->s, &p->other, p->g, track);
	if (!ret)
		ret = find_chained(p, track);
	while (!ret && !p->alone && t->kept < t->tokens)
		ret = t->chained ? step_chain(p, track) : step_digest(p, track);
	if (ret == KVARC_END)
		ret = t->chained ? kvi_plan_partial(p, track) : KVARC_OK;
	else if (!ret && !p->alone)
		ret = end_with_token(p, track);
	kvi_rows_free(p->s, &p->rows);
	kvi_rows_free(p->s, &p->other);
	return ret;
}

kvarc_ret kvi_plan_save(struct kvi_save_plan *p, struct kvarc_store *s, kvarc_import *im,
                        const struct kvi_veil *veil, bool alone)
{
	memset(p, 0, sizeof *p);
	p->veil = veil;
	p->alone = alone;
	p->name_space = kvi_veil_space(veil, s->name_space);
	p->s = s;
	p->im = im;
	p->g = kvarc_import_geometry(im);
	p->tracks = kvi_calloc(&s->alloc, p->g->n_tracks + 1, sizeof *p->tracks);
	kvarc_ret ret = p->tracks ? kvi_pack_chain_root(im, p->root, s->error)
	                          : kvi_fail_alloc(s->error, &s->alloc);
	for (uint32_t i = 0; i < p->g->n_tracks && !ret; i++)
		ret = plan_track(p, i);
	return ret;
}

void kvi_plan_free(struct kvi_save_plan *p)
{
	if (!p->tracks)
		return;
	for (size_t i = 0; i < p->g->n_tracks; i++) {
		struct kvi_list *l = &p->tracks[i].pieces;
		for (size_t k = 0; k < l->n; k++)
			kvi_free(&p->s->alloc, KVI_LIST(struct kvi_piece_kept, *l, k)->tokens);
		kvi_free(&p->s->alloc, l->p);
	}
	kvi_free(&p->s->alloc, p->tracks);
	p->tracks = NULL;
}
