/* SPDX-License-Identifier: BSD-3-Clause */
/* index_fill.c - what the index of a store says of an archive, from the archive's own INDEX */
#include "store_state.h"

#include <stdio.h>
#include <string.h>

#include "reader/reader_internal.h"
#include "util/arguments.h"
#include "util/bytes.h"

/* Progress of a track: the chain value of its tokens so far. */
struct fill_track {
	uint64_t tokens;
	bool known;
	uint8_t chain[16];
};

struct filling {
	struct kvarc_store *s;
	struct kvi_store_index *x;
	kvarc_reader *r;
	const kvarc_geometry *g;
	const struct kvi_list *known;
	bool last;
	const uint8_t *id; /* id of the archive */
	int64_t pack;      /* number of the archive in the index */
	uint64_t name_space;
	struct kvi_veil veil;
	uint8_t root[16];
	struct fill_track *tracks;
};

/* ----- chain values ------------------------------------------------ */

static kvarc_ret find_root(struct filling *filling)
{
	const char *key, *value, **pairs;
	size_t n = 0, i = 0;
	while (kvarc_reader_identity_at(filling->r, n, &key, &value) == KVARC_OK)
		n++;
	pairs = kvi_array(&filling->s->alloc, n + 1, 2 * sizeof *pairs);
	if (!pairs)
		return kvi_fail_alloc(filling->s->error, &filling->s->alloc);
	while (i < n &&
	       kvarc_reader_identity_at(filling->r, i, &pairs[i], &pairs[n + i]) == KVARC_OK)
		i++;
	kvarc_ret ret = kvarc_chain_root(filling->g, i, pairs, pairs + n, filling->root);
	kvi_free(&filling->s->alloc, (void *)pairs);
	return kvi_fail_memory(filling->s->error, ret, &filling->s->alloc);
}

static const struct kvi_known *find_known(const struct filling *filling, const kvarc_stored *st,
                                          uint32_t n)
{
	for (size_t i = 0; filling->known && i < filling->known->n; i++) {
		const struct kvi_known *k = KVI_LIST(struct kvi_known, *filling->known, i);
		if (k->track == st->track && k->t0 == st->t0 && k->n == n)
			return k;
	}
	return NULL;
}

/* The chain value of the tokens before a segment; NULL: there is none. */
static const uint8_t *chain_before(const struct filling *filling, const kvarc_stored *st)
{
	const struct fill_track *t = &filling->tracks[st->track];
	if (st->t0 == 0)
		return filling->root;
	return t->known && t->tokens == st->t0 ? t->chain : NULL;
}

/* The tokens that are left of a cut segment, from the archive that holds it. */
static kvarc_ret read_cut(struct filling *filling, const kvarc_stored *st, struct kvi_known *known)
{
	struct kvi_index_row row;
	struct kvi_store_rows rows;
	const uint8_t *before = chain_before(filling, st);
	uint8_t key[16];
	kvi_veil_hash(&filling->veil, key, st->chain);
	kvarc_ret ret = kvi_content_find(filling->s, NULL, filling->name_space, key, NULL, &row);
	if (ret)
		return ret;
	ret = kvi_rows_make(filling->s, &rows, filling->g, st->track);
	if (!ret)
		ret = kvi_rows_read(filling->s, &row, &rows, false);
	if (!ret && (rows.n < st->left || !rows.has_ids))
		ret = KVARC_END;
	if (!ret) {
		ret = kvarc_chain_next(before, st->track, st->left, rows.ids, rows.positions,
		                       known->chain);
		ret = kvi_fail_memory(filling->s->error, ret, &filling->s->alloc);
		known->has_first = true;
		known->first = rows.ids[0];
	}
	kvi_rows_free(filling->s, &rows);
	return ret;
}

/* ----- segments ------------------------------------------------ */

static kvarc_ret add_row(struct filling *filling, const kvarc_stored *st, const uint8_t *before,
                         const struct kvi_known *known)
{
	struct kvi_index_row row = { .pack = filling->pack,
		                     .name_space = filling->name_space,
		                     .parent = before ? kvi_veil_word(&filling->veil, before) : 0,
		                     .track = st->track,
		                     .n = st->left,
		                     .t0 = st->t0,
		                     .has_chain = st->has_chain };
	kvi_veil_hash(&filling->veil, row.chain, st->chain);
	memcpy(row.id, filling->id, 16);
	if (known) {
		row.has_first = known->has_first;
		row.first = kvi_veil_first(&filling->veil, row.parent, known->first);
		row.has_digest = !kvi_all_zero(known->digest, 16);
		kvi_veil_hash(&filling->veil, row.digest, known->digest);
	}
	if (st->left < st->n) {
		row.whole_n = st->n;
		kvi_veil_hash(&filling->veil, row.whole_chain, st->chain);
		kvi_veil_hash(&filling->veil, row.whole_digest, st->digest);
		kvi_veil_hash(&filling->veil, row.chain, known->chain);
	}
	return kvi_index_add_row(filling->x, &row);
}

/* A segment of another archive. */
static kvarc_ret add_named(struct filling *filling, const kvarc_stored *st)
{
	struct fill_track *t = &filling->tracks[st->track];
	struct kvi_index_ref ref = { .pack = filling->pack,
		                     .name_space = filling->name_space,
		                     .track = st->track,
		                     .n = st->n,
		                     .left = st->left,
		                     .t0 = st->t0,
		                     .has_chain = st->has_chain };
	const uint8_t *before = chain_before(filling, st);
	kvarc_ret ret;
	kvi_veil_hash(&filling->veil, ref.key, st->has_chain ? st->chain : st->digest);
	kvi_veil_hash(&filling->veil, ref.digest, st->digest);
	ret = kvi_index_add_ref(filling->x, &ref);
	t->known = st->has_chain;
	if (ret || st->left == st->n || !st->has_chain || !before) {
		t->known = t->known && st->left == st->n;
		memcpy(t->chain, st->chain, 16);
		return ret;
	}
	struct kvi_known found = { 0 };
	const struct kvi_known *k = find_known(filling, st, st->left);
	if (!k) {
		ret = read_cut(filling, st, &found);
		k = &found;
	}
	if (!ret)
		ret = add_row(filling, st, before, k);
	t->known = !ret;
	memcpy(t->chain, k->chain, 16);
	return ret && filling->last && ret != KVARC_MEM && ret != KVARC_IO ? KVARC_OK : ret;
}

/* Content digests are the keys of segments without chain values: they are computed at once. */
static kvarc_ret compute_digest(struct filling *filling, const kvarc_stored *st,
                                struct kvi_known *known)
{
	const kvarc_range range = { st->track, 0, UINT32_MAX, st->t0, st->n, { 0 } };
	struct kvi_store_rows rows;
	kvarc_ret ret = kvi_rows_make(filling->s, &rows, filling->g, st->track);
	if (!ret)
		ret = kvarc_reader_read_tokens(filling->r, st->track, st->t0, st->n, rows.ids,
		                               rows.positions);
	rows.has_ids = ret == KVARC_OK;
	if (ret == KVARC_OPTIONS)
		ret = kvarc_reader_read_tokens(filling->r, st->track, st->t0, st->n, NULL,
		                               rows.positions);
	if (!ret)
		ret = kvarc_reader_read(filling->r, &range, rows.views);
	if (!ret)
		ret = kvarc_content_digest(filling->g, st->track, st->n,
		                           rows.has_ids ? rows.ids : NULL, rows.positions,
		                           rows.views, known->digest);
	kvi_rows_free(filling->s, &rows);
	return ret;
}

static kvarc_ret add_own(struct filling *filling, const kvarc_stored *st)
{
	struct fill_track *t = &filling->tracks[st->track];
	struct kvi_known found = { 0 };
	const struct kvi_known *k = find_known(filling, st, st->n);
	kvarc_ret ret = KVARC_OK;
	if (!st->has_chain && !k) {
		ret = compute_digest(filling, st, &found);
		k = &found;
	}
	if (!ret)
		ret = add_row(filling, st, st->has_chain ? chain_before(filling, st) : NULL, k);
	t->known = st->has_chain;
	memcpy(t->chain, st->chain, 16);
	return ret;
}

static kvarc_ret fill_segments(struct filling *filling)
{
	kvarc_ret ret = KVARC_OK;
	for (uint64_t i = 0; !ret; i++) {
		kvarc_stored st;
		unsigned flags;
		ret = kvarc_reader_segment_at(filling->r, i, &st, &flags);
		if (ret)
			break;
		if (flags & KVARC_SEGMENT_FORKED) /* of another track, which has a row for it */
			filling->tracks[st.track].known = false;
		else if (flags & KVARC_SEGMENT_STORED)
			ret = add_named(filling, &st);
		else if (st.left == st.n) /* others are not made by stores */
			ret = add_own(filling, &st);
		filling->tracks[st.track].tokens = st.t0 + st.left;
		if (ret)
			return ret;
	}
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_index_fill(struct kvarc_store *store, struct kvi_store_index *index,
                         const uint8_t id[16], const struct kvi_object *object, kvarc_reader *r,
                         const struct kvi_list *known, bool last)
{
	const char *name_space = kvarc_reader_identity(r, "namespace");
	struct kvi_index_pack pack = { .bytes = object->bytes,
		                       .time = object->time,
		                       .stamp = object->stamp };
	struct filling f = { .s = store,
		             .x = index,
		             .r = r,
		             .g = kvarc_reader_geometry(r),
		             .known = known,
		             .id = id,
		             .last = last };
	const uint8_t *domain = kvi_reader_domain(r);
	memcpy(pack.id, id, 16);
	kvarc_ret ret = kvi_index_find_pack(index, id, &f.pack);
	if (ret != KVARC_END)
		return ret;
	f.veil.on = pack.encrypted = domain != NULL;
	if (domain)
		memcpy(f.veil.key, domain, sizeof f.veil.key);
	f.name_space = kvi_veil_space(&f.veil, name_space ? name_space : "");
	/* The index may list the archive as one that could not be opened, or was not whole. */
	ret = kvi_index_remove_pack(index, id);
	if (ret)
		return ret;
	f.tracks = kvi_calloc(&store->alloc, f.g->n_tracks + 1, sizeof *f.tracks);
	ret = f.tracks ? find_root(&f) : kvi_fail_alloc(store->error, &store->alloc);
	if (!ret)
		ret = kvi_index_add_pack(index, &pack);
	f.pack = pack.pack;
	if (!ret)
		ret = fill_segments(&f);
	if (!ret)
		ret = kvi_index_end_pack(index, f.pack);
	kvi_free(&store->alloc, f.tracks);
	return ret;
}
