/* SPDX-License-Identifier: BSD-3-Clause */
/* store_content.c - tokens that archives of a store hold */
#include "store_state.h"

#include <errno.h>
#include <string.h>

#include "util/ckd.h"

enum { HOLDERS_MOST = 16 };

static uint64_t token_bytes(const kvarc_tensor *t)
{
	return (uint64_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
}

kvarc_ret kvi_rows_make(struct kvarc_store *s, struct kvi_store_rows *rows, const kvarc_geometry *g,
                        uint32_t track)
{
	uint64_t bytes = 0, at = 0;
	memset(rows, 0, sizeof *rows);
	rows->geometry = g;
	rows->track = track;
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].track == track &&
		    kvi_add(bytes, token_bytes(&g->tensors[i]), &bytes))
			return kvi_fail(s->error, KVARC_GEOMETRY,
			                "store: the tensors are too wide");
	rows->views = kvi_calloc(&s->alloc, g->n_tensors + 1, sizeof *rows->views);
	/* One byte more: there may be no tensor. */
	rows->data = kvi_array(&s->alloc, KVI_SEGMENT_MOST, bytes + 1);
	if (!rows->views || !rows->data)
		return kvi_fail_alloc(s->error, &s->alloc);
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
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

void kvi_rows_free(struct kvarc_store *s, struct kvi_store_rows *rows)
{
	kvi_free(&s->alloc, rows->views);
	kvi_free(&s->alloc, rows->data);
	rows->views = NULL;
	rows->data = NULL;
}

/* Equal chain values say so, unless the archive is a forgery: then views would be too small.
 * Content digests, keys of segments without ids, do not: they are of the tensors of one track. */
static bool same_tensors(const kvarc_geometry *a, const kvarc_geometry *b)
{
	if (a->n_tensors != b->n_tensors || a->n_tracks != b->n_tracks)
		return false;
	for (size_t i = 0; i < a->n_tensors; i++) {
		const kvarc_tensor *x = &a->tensors[i], *y = &b->tensors[i];
		if (x->track != y->track || x->heads != y->heads || x->channels != y->channels ||
		    x->dtype != y->dtype || x->layer != y->layer || x->kind != y->kind)
			return false;
	}
	return true;
}

bool kvi_packs_alike(struct kvarc_store *s, const uint8_t a[16], const uint8_t b[16])
{
	kvarc_reader *x, *y;
	if (kvi_pack_reader(s, a, false, &x) || kvi_pack_reader(s, b, false, &y))
		return true;
	return same_tensors(kvarc_reader_geometry(x), kvarc_reader_geometry(y));
}

/* The archive that an error of one of its calls is about. */
static kvarc_ret fail_pack(struct kvarc_store *s, const uint8_t id[16], kvarc_ret ret)
{
	const struct kvi_open_pack *p = kvi_pack_find(s, id);
	if (p)
		kvi_fail(s->error, ret, "store: %s: %s", p->key, p->error.text);
	if (p && !kvarc_usable(ret))
		kvi_pack_forget(s, id);
	return kvi_pack_gone(s, id, ret);
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
static bool is_there(struct kvarc_store *s, kvarc_reader *r, const struct kvi_index_row *row)
{
	const uint64_t tokens = kvarc_reader_tokens(r, row->track);
	const struct kvi_open_pack *p = kvi_pack_find(s, row->id);
	const bool there = p && p->name_space == row->name_space && row->n >= 1 &&
	                   row->n <= KVI_SEGMENT_MOST && row->t0 <= tokens &&
	                   row->n <= tokens - row->t0;
	if (p && p->whole && !there)
		(void)kvi_index_remove_pack(s->index, row->id);
	return there;
}

/* The reader of the archive of a row that can be read as rows of g. END: it cannot. */
static kvarc_ret open_row(struct kvarc_store *s, const struct kvi_index_row *row,
                          const kvarc_geometry *g, bool any, kvarc_reader **r)
{
	kvarc_ret ret = kvi_pack_reader(s, row->id, any, r);
	if (ret)
		return ret;
	return is_there(s, *r, row) && same_tensors(kvarc_reader_geometry(*r), g) ? KVARC_OK
	                                                                          : KVARC_END;
}

/* What a failure says of an archive, and not of anything else. */
static bool is_damage(const struct kvarc_store *s, kvarc_ret ret)
{
	return (ret == KVARC_DATA || ret == KVARC_FORMAT) && !kvi_index_damaged(s->index);
}

/* any: of an archive that is not whole, too. What is damaged is doubted at once. */
static kvarc_ret read_row(struct kvarc_store *s, const struct kvi_index_row *row,
                          const kvarc_geometry *g, bool any, int32_t *ids, int32_t *positions,
                          const kvarc_view *views, bool *has_ids)
{
	kvarc_reader *r;
	kvarc_ret ret = open_row(s, row, g, any, &r);
	if (ret)
		return ret;
	ret = read_tokens(r, row, ids, positions, has_ids);
	const kvarc_range range = { row->track, 0, UINT32_MAX, row->t0, row->n, { 0 } };
	if (!ret && views)
		ret = kvarc_reader_read(r, &range, views);
	if (!ret)
		return KVARC_OK;
	ret = fail_pack(s, row->id, ret);
	if (is_damage(s, ret)) {
		const kvarc_error was = *s->error;
		(void)kvi_index_set_doubt(s->index, row->row, true);
		*s->error = was;
	}
	return ret;
}

kvarc_ret kvi_rows_read(struct kvarc_store *s, const struct kvi_index_row *row,
                        struct kvi_store_rows *rows, bool elements)
{
	rows->n = row->n;
	return read_row(s, row, rows->geometry, false, rows->ids, rows->positions,
	                elements ? rows->views : NULL, &rows->has_ids);
}

/* ----- what is under a key ------------------------------------------------ */

/* A row whose digest is not in the index. */
static kvarc_ret find_digest(struct kvarc_store *s, const kvarc_geometry *g,
                             struct kvi_index_row *row)
{
	struct kvi_store_rows rows;
	kvarc_ret ret = kvi_rows_make(s, &rows, g, row->track);
	if (!ret)
		ret = kvi_rows_read(s, row, &rows, true);
	if (!ret) {
		ret = kvarc_content_digest(g, row->track, row->n, rows.has_ids ? rows.ids : NULL,
		                           rows.positions, rows.views, row->digest);
		ret = kvi_fail_memory(s->error, ret, &s->alloc);
	}
	kvi_rows_free(s, &rows);
	if (!ret) {
		kvi_veil_hash(&kvi_pack_find(s, row->id)->veil, row->digest, row->digest);
		row->has_digest = true;
		/* For the next time; where that fails (a full disk), nothing is lost. */
		(void)kvi_index_set_digest(s->index, row->row, row->digest);
	}
	return ret;
}

kvarc_ret kvi_row_digest(struct kvarc_store *s, struct kvi_index_row *row)
{
	kvarc_reader *r;
	kvarc_ret ret = kvi_pack_reader(s, row->id, false, &r);
	return ret ? ret : find_digest(s, kvarc_reader_geometry(r), row);
}

/* Damage, or nothing there: another archive may have it. */
static bool may_pass(kvarc_ret ret)
{
	return ret == KVARC_END || ret == KVARC_DATA || ret == KVARC_FORMAT ||
	       ret == KVARC_PREDICTOR || ret == KVARC_STORE || ret == KVARC_GEOMETRY;
}

/* Whether the archive of a row has the tensors of g, so that a segment can be read from it. */
static bool holder_fits(struct kvarc_store *s, const struct kvi_index_row *row,
                        const kvarc_geometry *g)
{
	kvarc_reader *r;
	return open_row(s, row, g, false, &r) == KVARC_OK;
}

kvarc_ret kvi_content_find(struct kvarc_store *s, const kvarc_geometry *g, uint64_t name_space,
                           const uint8_t key[16], const uint8_t *digest, struct kvi_index_row *row)
{
	struct kvi_index_row rows[HOLDERS_MOST];
	const bool by_content = g && digest && memcmp(key, digest, 16) == 0;
	size_t n;
	kvarc_ret ret = kvi_index_holders(s->index, name_space, key, false, rows, HOLDERS_MOST,
	                                  &n);
	for (size_t i = 0; i < n && !ret; i++) {
		if (digest && !rows[i].has_digest && g) {
			ret = find_digest(s, g, &rows[i]);
			if (ret && may_pass(ret) && !kvi_index_damaged(s->index)) {
				ret = KVARC_OK;
				continue;
			}
		}
		if (!ret && (!digest || memcmp(rows[i].digest, digest, 16) == 0) &&
		    (!by_content || holder_fits(s, &rows[i], g))) {
			*row = rows[i];
			return KVARC_OK;
		}
	}
	return ret ? ret : KVARC_END;
}

/* A segment that an archive asks for, and where its tokens go. */
struct asked_segment {
	struct kvi_store_content *c;
	uint64_t name_space;
	uint8_t key[16], digest[16];
	uint32_t n;
	int32_t *ids, *positions;
	const kvarc_view *views;
};

static kvarc_ret read_asked(const struct asked_segment *a)
{
	struct kvi_store_content *c = a->c;
	struct kvi_index_row row;
	bool has_ids;
	kvarc_ret ret = kvi_content_find(c->s, c->geometry, a->name_space, a->key, a->digest, &row);
	if (!ret && row.n != a->n)
		ret = KVARC_END;
	return ret ? ret
	           : read_row(c->s, &row, c->geometry, false, a->ids, a->positions, a->views,
	                      &has_ids);
}

/* END: other elements than those that were asked for. */
static kvarc_ret compare_digest(const struct asked_segment *a, const struct kvi_index_row *row,
                                bool has_ids)
{
	uint8_t digest[16];
	kvarc_ret ret = kvarc_content_digest(a->c->geometry, row->track, row->n,
	                                     has_ids ? a->ids : NULL, a->positions, a->views,
	                                     digest);
	if (ret)
		return kvi_fail_memory(a->c->s->error, ret, &a->c->s->alloc);
	kvi_veil_hash(&a->c->veil, digest, digest);
	return memcmp(digest, a->digest, 16) == 0 ? KVARC_OK : KVARC_END;
}

/* One of several that may hold it. What is whole is not doubted any more. */
static kvarc_ret try_row(const struct asked_segment *a, struct kvi_index_row *row, bool doubted)
{
	struct kvi_store_content *c = a->c;
	const bool any = doubted && c->any;
	bool has_ids;
	kvarc_ret ret = row->has_digest || any ? KVARC_OK : kvi_row_digest(c->s, row);
	if (!ret &&
	    (row->n != a->n || (row->has_digest && memcmp(row->digest, a->digest, 16) != 0)))
		return KVARC_END;
	if (!ret)
		ret = read_row(c->s, row, c->geometry, any, a->ids, a->positions, a->views,
		               &has_ids);
	if (!ret && !row->has_digest && a->views)
		ret = compare_digest(a, row, has_ids);
	const bool damage = is_damage(c->s, ret);
	const struct kvi_open_pack *p = kvi_pack_find(c->s, row->id);
	const bool whole = !ret && p && p->whole;
	c->has_cut |= !ret && !whole;
	if (damage) {
		c->has_damaged = true;
		memcpy(c->damaged, row->id, 16);
	}
	if (doubted && whole)
		(void)kvi_index_set_doubt(c->s->index, row->row, false);
	return damage ? KVARC_END : ret;
}

/* Damage of one archive is no reason to fail while another one holds the segment. */
static kvarc_ret try_all(const struct asked_segment *a)
{
	struct kvi_index_row rows[HOLDERS_MOST];
	kvarc_ret ret = KVARC_END;
	for (int doubted = 0; doubted < 2 && ret == KVARC_END; doubted++) {
		size_t n;
		ret = kvi_index_holders(a->c->s->index, a->name_space, a->key, doubted, rows,
		                        HOLDERS_MOST, &n);
		ret = ret ? ret : KVARC_END;
		for (size_t i = 0; i < n && ret == KVARC_END; i++)
			ret = try_row(a, &rows[i], doubted);
	}
	return ret;
}

struct row_list {
	struct kvarc_store *s;
	struct kvi_list *list;
};

static kvarc_ret add_row(void *opaque, const struct kvi_index_row *row)
{
	struct row_list *l = opaque;
	struct kvi_index_row *to = kvi_list_add(l->list, &l->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(l->s->error, &l->s->alloc);
	*to = *row;
	return KVARC_OK;
}

kvarc_ret kvi_doubt_damaged(struct kvarc_store *s, const uint8_t id[16])
{
	struct kvi_list list = { 0 };
	int64_t pack;
	kvarc_ret ret = kvi_index_find_pack(s->index, id, &pack);
	if (!ret)
		ret = kvi_index_rows(s->index, pack, add_row, &(struct row_list){ s, &list });
	for (size_t i = 0; i < list.n && !ret; i++) {
		ret = kvi_row_digest(s, KVI_LIST(struct kvi_index_row, list, i));
		if (is_damage(s, ret))
			ret = KVARC_OK;
	}
	kvi_free(&s->alloc, list.p);
	return ret;
}

int kvi_content_read(void *opaque, const kvarc_stored *st, const char *ns, int32_t *ids,
                     int32_t *positions, const kvarc_view *views)
{
	struct kvi_store_content *c = opaque;
	struct asked_segment a = { .c = c,
		                   .name_space = kvi_veil_space(&c->veil, ns),
		                   .n = st->n,
		                   .ids = ids,
		                   .positions = positions,
		                   .views = views };
	uint64_t unreadable = 0;
	if (!c->geometry)
		return 1;
	kvi_veil_hash(&c->veil, a.key, st->has_chain ? st->chain : st->digest);
	kvi_veil_hash(&c->veil, a.digest, st->digest);
	kvarc_ret ret = read_asked(&a);
	/* Other processes have put it lately, or gc has put another archive in place of one. */
	if (ret == KVARC_END) {
		ret = kvi_index_refresh(c->s, c->s->index, NULL, NULL, &unreadable);
		if (!ret)
			ret = read_asked(&a);
	}
	if (ret == KVARC_END || is_damage(c->s, ret))
		ret = try_all(&a);
	if (ret && !may_pass(ret)) {
		c->failed = ret;
		errno = 0;
		return -1;
	}
	return ret ? 1 : 0;
}
