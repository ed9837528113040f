/* SPDX-License-Identifier: BSD-3-Clause */
/* store_rows.c - segments of archives of a store: what is under a key, and its tokens */
#include "store_state.h"

#include <string.h>

#include "util/ckd.h"

enum { HOLDERS_MOST = 16 };

static uint64_t token_bytes(const kvarc_tensor *tensor)
{
	return (uint64_t)tensor->heads * tensor->channels * kvarc_dtype_bytes(tensor->dtype);
}

kvarc_ret kvi_rows_make(struct kvarc_store *store, struct kvi_store_rows *rows,
                        const kvarc_geometry *geometry, uint32_t track)
{
	uint64_t bytes = 0, at = 0;
	memset(rows, 0, sizeof *rows);
	rows->geometry = geometry;
	rows->track = track;
	for (size_t i = 0; i < geometry->n_tensors; i++)
		if (geometry->tensors[i].track == track &&
		    kvi_add(bytes, token_bytes(&geometry->tensors[i]), &bytes))
			return kvi_fail(store->error, KVARC_GEOMETRY,
			                "store: the tensors are too wide");
	rows->views = kvi_calloc(&store->alloc, geometry->n_tensors + 1, sizeof *rows->views);
	/* Capacity for at least one byte per token: a track may have no tensor. */
	rows->data = kvi_array(&store->alloc, KVI_SEGMENT_MOST, bytes + 1);
	if (!rows->views || !rows->data)
		return kvi_fail_alloc(store->error, &store->alloc);
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];
		if (t->track != track)
			continue;
		rows->views[i].data = rows->data + at;
		rows->views[i].token_stride = token_bytes(t);
		rows->views[i].block_elems = t->heads * t->channels;
		rows->views[i].elem_stride = (uint32_t)kvarc_dtype_bytes(t->dtype);
		at += KVI_SEGMENT_MOST * token_bytes(t);
	}
	return KVARC_OK;
}

void kvi_rows_free(struct kvarc_store *store, struct kvi_store_rows *rows)
{
	kvi_free(&store->alloc, rows->views);
	kvi_free(&store->alloc, rows->data);
	rows->views = NULL;
	rows->data = NULL;
}

/* Equal chain values say so, unless the archive is a forgery: then views would be too small.
 * Content digests, keys of segments without ids, do not: they are of the tensors of one track. */
static bool same_tensors(const kvarc_geometry *geometry, const kvarc_geometry *b)
{
	if (geometry->n_tensors != b->n_tensors || geometry->n_tracks != b->n_tracks)
		return false;
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *x = &geometry->tensors[i], *y = &b->tensors[i];
		if (x->track != y->track || x->heads != y->heads || x->channels != y->channels ||
		    x->dtype != y->dtype || x->layer != y->layer || x->kind != y->kind)
			return false;
	}
	return true;
}

bool kvi_packs_alike(struct kvarc_store *store, const uint8_t a[16], const uint8_t b[16])
{
	kvarc_reader *x, *y;
	if (kvi_pack_reader(store, a, false, &x) || kvi_pack_reader(store, b, false, &y))
		return true;
	return same_tensors(kvarc_reader_geometry(x), kvarc_reader_geometry(y));
}

/* The archive that an error of one of its calls is about. */
static kvarc_ret fail_pack(struct kvarc_store *store, const uint8_t id[16], kvarc_ret ret)
{
	const struct kvi_open_pack *p = kvi_pack_find(store, id);
	if (p)
		kvi_fail(store->error, ret, "store: %s: %s", p->key, p->error.text);
	if (p && !kvarc_usable(ret))
		kvi_pack_forget(store, id);
	return kvi_pack_gone(store, id, ret);
}

static kvarc_ret read_tokens(kvarc_reader *r, const struct kvi_index_row *row, int32_t *ids,
                             int32_t *positions, bool *has_ids)
{
	kvarc_ret ret = kvarc_reader_read_tokens(r, row->track, row->t0, row->n, ids, positions);
	*has_ids = ret != KVARC_OPTIONS;
	return ret == KVARC_OPTIONS
	               ? kvarc_reader_read_tokens(r, row->track, row->t0, row->n, NULL, positions)
	               : ret;
}

/* Whether a segment of that length can lie there, and the archive is of the namespace and the key
 * that the index says: who can write to the index cannot exchange it for another archive. Where it
 * is not so, although the archive is whole, the index has it wrong, and forgets it to read it
 * again. */
static bool is_there(struct kvarc_store *store, kvarc_reader *r, const struct kvi_index_row *row)
{
	const uint64_t tokens = kvarc_reader_tokens(r, row->track);
	const struct kvi_open_pack *p = kvi_pack_find(store, row->id);
	const bool there = p && p->name_space == row->name_space && row->n >= 1 &&
	                   row->n <= KVI_SEGMENT_MOST && row->t0 <= tokens &&
	                   row->n <= tokens - row->t0;
	if (p && p->whole && !there)
		(void)kvi_index_remove_pack(store->index, row->id);
	return there;
}

/* The reader of the archive of a row that can be read as rows of geometry; NULL: as tokens. END: it
 * cannot. */
static kvarc_ret open_row(struct kvarc_store *store, const struct kvi_index_row *row,
                          const kvarc_geometry *geometry, bool any, kvarc_reader **r)
{
	kvarc_ret ret = kvi_pack_reader(store, row->id, any, r);
	if (ret)
		return ret;
	return is_there(store, *r, row) &&
	                       (!geometry || same_tensors(kvarc_reader_geometry(*r), geometry))
	               ? KVARC_OK
	               : KVARC_END;
}

bool kvi_store_is_damage(const struct kvarc_store *store, kvarc_ret ret)
{
	return (ret == KVARC_DATA || ret == KVARC_FORMAT) && !kvi_index_damaged(store->index);
}

kvarc_ret kvi_row_read(struct kvarc_store *store, const struct kvi_index_row *row,
                       const kvarc_geometry *geometry, bool any, int32_t *ids, int32_t *positions,
                       const kvarc_view *views, bool *has_ids)
{
	kvarc_reader *r;
	kvarc_ret ret = open_row(store, row, views ? geometry : NULL, any, &r);
	if (ret)
		return ret;
	ret = read_tokens(r, row, ids, positions, has_ids);
	const kvarc_range range = { row->track, 0, UINT32_MAX, row->t0, row->n, { 0 } };
	if (!ret && views)
		ret = kvarc_reader_read(r, &range, views);
	if (!ret)
		return KVARC_OK;
	ret = fail_pack(store, row->id, ret);
	if (kvi_store_is_damage(store, ret)) {
		const kvarc_error was = *store->error;
		(void)kvi_index_set_doubt(store->index, row->row, true);
		*store->error = was;
	}
	return ret;
}

kvarc_ret kvi_rows_read(struct kvarc_store *store, const struct kvi_index_row *row,
                        struct kvi_store_rows *rows, bool elements)
{
	rows->n = row->n;
	return kvi_row_read(store, row, rows->geometry, false, rows->ids, rows->positions,
	                    elements ? rows->views : NULL, &rows->has_ids);
}

/* ----- what is under a key ------------------------------------------------ */

/* A row whose digest is not in the index. */
static kvarc_ret find_digest(struct kvarc_store *store, const kvarc_geometry *geometry,
                             struct kvi_index_row *row)
{
	struct kvi_store_rows rows;
	kvarc_ret ret = kvi_rows_make(store, &rows, geometry, row->track);
	if (!ret)
		ret = kvi_rows_read(store, row, &rows, true);
	if (!ret) {
		ret = kvarc_content_digest(geometry, row->track, row->n,
		                           rows.has_ids ? rows.ids : NULL, rows.positions,
		                           rows.views, row->digest);
		ret = kvi_fail_memory(store->error, ret, &store->alloc);
	}
	kvi_rows_free(store, &rows);
	if (!ret) {
		kvi_veil_hash(&kvi_pack_find(store, row->id)->veil, row->digest, row->digest);
		row->has_digest = true;
		/* The digest is stored for the next time; a failure (a full disk) loses nothing. */
		(void)kvi_index_set_known(store->index, row);
	}
	return ret;
}

kvarc_ret kvi_row_digest(struct kvarc_store *store, struct kvi_index_row *row)
{
	kvarc_reader *r;
	kvarc_ret ret = kvi_pack_reader(store, row->id, false, &r);
	return ret ? ret : find_digest(store, kvarc_reader_geometry(r), row);
}

bool kvi_store_may_pass(kvarc_ret ret)
{
	return ret == KVARC_END || ret == KVARC_DATA || ret == KVARC_FORMAT ||
	       ret == KVARC_PREDICTOR || ret == KVARC_STORE || ret == KVARC_GEOMETRY;
}

/* Whether the archive of a row has the tensors of geometry, so that a segment can be read from
 * it. */
static bool holder_fits(struct kvarc_store *store, const struct kvi_index_row *row,
                        const kvarc_geometry *geometry)
{
	kvarc_reader *r;
	return open_row(store, row, geometry, false, &r) == KVARC_OK;
}

kvarc_ret kvi_content_find(struct kvarc_store *store, const kvarc_geometry *geometry,
                           uint64_t name_space, const uint8_t key[16], const uint8_t *digest,
                           struct kvi_index_row *row)
{
	struct kvi_index_row rows[HOLDERS_MOST];
	const bool by_content = geometry && digest && memcmp(key, digest, 16) == 0;
	size_t n;
	kvarc_ret ret = kvi_index_holders(store->index, name_space, key, false, rows, HOLDERS_MOST,
	                                  &n);
	for (size_t i = 0; i < n && !ret; i++) {
		if (digest && !rows[i].has_digest && geometry) {
			ret = find_digest(store, geometry, &rows[i]);
			if (ret && kvi_store_may_pass(ret) && !kvi_index_damaged(store->index)) {
				ret = KVARC_OK;
				continue;
			}
		}
		if (!ret && (!digest || memcmp(rows[i].digest, digest, 16) == 0) &&
		    (!by_content || holder_fits(store, &rows[i], geometry))) {
			*row = rows[i];
			return KVARC_OK;
		}
	}
	return ret ? ret : KVARC_END;
}
