/* SPDX-License-Identifier: BSD-3-Clause */
/* protocol.c - what savers and gc owe each other (docs/store.md): which archives a version needs */
#include "store_state.h"

#include <string.h>

/* ----- what an archive needs ------------------------------------------------ */

struct needs {
	struct kvarc_store *s;
	struct kvi_list *ids;
	bool lacking;
};

bool kvi_protocol_has(const struct kvi_list *ids, const uint8_t id[16])
{
	for (size_t i = 0; i < ids->n; i++)
		if (memcmp((const uint8_t *)ids->p + 16 * i, id, 16) == 0)
			return true;
	return false;
}

static kvarc_ret add_id(struct needs *n, const uint8_t id[16])
{
	if (kvi_protocol_has(n->ids, id))
		return KVARC_OK;
	uint8_t *to = kvi_list_add(n->ids, &n->s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(n->s->error, &n->s->alloc);
	memcpy(to, id, 16);
	return KVARC_OK;
}

/* ----- which archive holds a segment ------------------------------------------------ */

/* Looks: gc may put an archive in place of another one meanwhile. */
enum { HOLDERS_MOST = 16, LOOKS_MOST = 3 };

/* Query for the archives that hold the segments which an archive names, one after the other. */
struct holders {
	struct kvarc_store *s;
	const uint8_t *id; /* id of the archive that names them */
	const struct kvi_holder_rank *rank;
	const struct kvi_list *ids; /* ids of archives that are needed anyway; NULL: none */
	kvi_holder_fn fn;
	void *opaque;
	bool lacking;
	/* State of the current segment. */
	const struct kvi_index_ref *ref;
	struct kvi_index_row rows[HOLDERS_MOST];
	uint64_t ranks[HOLDERS_MOST];
	size_t n;
};

/* Content without token ids may be that of a cache with other tensors, which serves nobody else. */
static bool is_other(const struct holders *holders, size_t i)
{
	if (holders->rows[i].has_digest &&
	    memcmp(holders->rows[i].digest, holders->ref->digest, 16) != 0)
		return true;
	return !holders->ref->has_chain && holders->n > 1 &&
	       !kvi_packs_alike(holders->s, holders->id, holders->rows[i].id);
}

/* Damage is no reason to stop: what cannot be compared may be the segment. */
static kvarc_ret find_digest(struct holders *holders, size_t i)
{
	kvarc_ret ret = holders->rows[i].has_digest ? KVARC_OK
	                                            : kvi_row_digest(holders->s, &holders->rows[i]);
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO ||
	                       kvi_index_damaged(holders->s->index)
	               ? ret
	               : KVARC_OK;
}

/* Finds the rows that may hold the segment. Where one of several is to be avoided, all are
 * compared. */
static kvarc_ret find_rows(struct holders *holders)
{
	bool ranked = false;
	size_t n = 0;
	kvarc_ret ret = kvi_index_holders(holders->s->index, holders->ref->name_space,
	                                  holders->ref->key, false, holders->rows, HOLDERS_MOST,
	                                  &holders->n);
	for (size_t i = 0; i < holders->n; i++)
		ranked |= holders->rank &&
		          holders->rank->rank(holders->rank->opaque, holders->rows[i].id);
	for (size_t i = 0; i < holders->n && !ret && ranked && holders->n > 1; i++)
		ret = find_digest(holders, i);
	for (size_t i = 0; i < holders->n; i++)
		if (!is_other(holders, i))
			holders->rows[n++] = holders->rows[i];
	holders->n = n; /* not before: is_other looks at it */
	for (size_t i = 0; i < n; i++)
		holders->ranks[i] = holders->rank ? holders->rank->rank(holders->rank->opaque,
		                                                        holders->rows[i].id)
		                                  : 0;
	return ret;
}

/* Chooses one row of those that surely hold the segment and are not to be avoided: one of an
 * archive that is needed anyway, else the first. NULL: there is none. */
static const struct kvi_index_row *choose(const struct holders *holders)
{
	const struct kvi_index_row *best = NULL;
	for (size_t i = 0; i < holders->n; i++)
		if (holders->rows[i].has_digest && !holders->ranks[i] &&
		    (!best ||
		     (holders->ids && kvi_protocol_has(holders->ids, holders->rows[i].id))))
			best = &holders->rows[i];
	return best;
}

static kvarc_ret take_holders(void *opaque, const struct kvi_index_ref *ref)
{
	struct holders *h = opaque;
	uint64_t lowest = UINT64_MAX;
	h->ref = ref;
	kvarc_ret ret = find_rows(h);
	if (ret)
		return ret;
	h->lacking |= !h->n;
	const struct kvi_index_row *one = choose(h);
	if (one)
		return h->fn(h->opaque, one);
	for (size_t i = 0; i < h->n; i++)
		if (h->rows[i].has_digest && h->ranks[i] < lowest)
			lowest = h->ranks[i];
	for (size_t i = 0; i < h->n && !ret; i++)
		if (!h->rows[i].has_digest || h->ranks[i] == lowest)
			ret = h->fn(h->opaque, &h->rows[i]);
	return ret;
}

static kvarc_ret find_holders(struct holders *holders, const uint8_t id[16])
{
	int64_t pack;
	holders->id = id;
	kvarc_ret ret = kvi_index_find_pack(holders->s->index, id, &pack);
	return ret ? ret : kvi_index_refs(holders->s->index, pack, take_holders, holders);
}

kvarc_ret kvi_protocol_holders(struct kvarc_store *store, const uint8_t id[16],
                               const struct kvi_holder_rank *rank, kvi_holder_fn fn, void *opaque)
{
	struct holders *h = kvi_calloc(&store->alloc, 1, sizeof *h);
	if (!h)
		return kvi_fail_alloc(store->error, &store->alloc);
	*h = (struct holders){ .s = store, .rank = rank, .fn = fn, .opaque = opaque };
	kvarc_ret ret = find_holders(h, id);
	if (!ret && h->lacking)
		ret = KVARC_END;
	kvi_free(&store->alloc, h);
	return ret;
}

/* ----- what a version needs ------------------------------------------------ */

static kvarc_ret add_holder(void *opaque, const struct kvi_index_row *row)
{
	return add_id(opaque, row->id);
}

/* Adds the archives that a manifest lists and the index has. Returns also END: one is missing. */
static kvarc_ret add_listed(struct needs *n, const struct kvi_needs *needs)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_locked(n->s->index, needs->pack, &pack);
	if (!ret)
		ret = add_id(n, needs->pack);
	for (uint32_t i = 0; i < needs->n && !ret; i++) {
		ret = kvi_index_find_locked(n->s->index, needs->others[i], &pack);
		n->lacking |= ret == KVARC_END;
		ret = ret == KVARC_END ? KVARC_OK : ret ? ret : add_id(n, needs->others[i]);
	}
	return ret ? ret : n->lacking ? KVARC_END : KVARC_OK;
}

kvarc_ret kvi_protocol_needs(struct kvarc_store *store, const struct kvi_needs *needs,
                             const struct kvi_holder_rank *rank, struct kvi_list *ids)
{
	struct needs n = { .s = store, .ids = ids };
	int64_t pack;
	if (needs->encrypted)
		return add_listed(&n, needs);
	struct holders *h = kvi_calloc(&store->alloc, 1, sizeof *h);
	if (!h)
		return kvi_fail_alloc(store->error, &store->alloc);
	*h = (struct holders){
		.s = store, .rank = rank, .ids = ids, .fn = add_holder, .opaque = &n
	};
	kvarc_ret ret = kvi_index_find_pack(store->index, needs->pack, &pack);
	if (!ret)
		ret = add_id(&n, needs->pack);
	if (!ret)
		ret = find_holders(h, needs->pack);
	if (!ret && h->lacking)
		ret = KVARC_END;
	kvi_free(&store->alloc, h);
	return ret;
}

/* ----- whether they stay ------------------------------------------------ */

static kvarc_ret add_copy(struct kvarc_store *store, struct kvi_list *ids, const uint8_t id[16])
{
	struct needs n = { .s = store, .ids = ids };
	return add_id(&n, id);
}

struct retired {
	struct kvarc_store *s;
	struct kvi_list *ids;
	kvarc_ret ret;
};

static int see_retired(void *opaque, const struct kvi_object *object)
{
	struct retired *r = opaque;
	uint8_t id[16];
	if (kvi_retired_key_parse(id, object->key))
		r->ret = add_copy(r->s, r->ids, id);
	return r->ret != KVARC_OK;
}

kvarc_ret kvi_protocol_retired(struct kvarc_store *store, struct kvi_list *ids)
{
	struct retired r = { .s = store, .ids = ids };
	kvarc_ret ret = store->backend->calls->list(store->backend, KVI_RETIRED, see_retired, &r,
	                                            store->error);
	return r.ret ? r.ret : ret;
}

uint64_t kvi_protocol_rank_listed(void *opaque, const uint8_t id[16])
{
	return kvi_protocol_has(opaque, id);
}

/* Whether an object is the one that the index has read, as far as its size and stamp show it. */
static bool is_known(struct kvarc_store *store, const uint8_t id[16],
                     const struct kvi_object *object)
{
	struct kvi_index_pack known;
	return kvi_index_get_pack(store->index, id, &known) != KVARC_OK ||
	       kvi_index_same_object(&known, object);
}

/* Adds to `found` those of ids that are retired or gone. Tombstones are listed first: an archive
 * whose tombstone is gone, too, is missing by then. *changed: objects of other archives differ from
 * those that the index knows, and were read again. */
static kvarc_ret find_retired(struct kvarc_store *store, const struct kvi_list *ids,
                              struct kvi_list *found, bool *changed)
{
	struct kvi_backend *b = store->backend;
	struct kvi_list retired = { 0 };
	kvarc_ret ret = kvi_protocol_retired(store, &retired);
	for (size_t i = 0; i < ids->n && !ret; i++) {
		const uint8_t *id = (const uint8_t *)ids->p + 16 * i;
		struct kvi_object object;
		char key[KVI_PACK_KEY];
		kvi_pack_key(key, id);
		ret = kvi_protocol_has(&retired, id)
		              ? KVARC_END
		              : b->calls->stat(b, key, &object, store->error);
		if (ret == KVARC_END) {
			ret = add_copy(store, found, id);
		} else if (!ret && !is_known(store, id, &object)) {
			*changed = true;
			ret = kvi_index_renew(store, id, &object);
		}
	}
	kvi_free(&store->alloc, retired.p);
	return ret;
}

kvarc_ret kvi_protocol_confirm(struct kvarc_store *store, const struct kvi_list *ids)
{
	struct kvi_list found = { 0 };
	bool changed = false;
	kvarc_ret ret = find_retired(store, ids, &found, &changed);
	if (!ret && found.n) {
		ret = kvi_index_begin_change(store->index);
		for (size_t i = 0; i < found.n && !ret; i++) {
			const uint8_t *id = (const uint8_t *)found.p + 16 * i;
			kvi_pack_forget(store, id);
			ret = kvi_index_remove_pack(store->index, id);
		}
		ret = kvi_index_end_change(store->index, ret);
	}
	if (!ret && (found.n || changed))
		ret = KVARC_END;
	kvi_free(&store->alloc, found.p);
	return ret;
}

/* Checks once that what a version needs stays: a retired archive counts only where no other one
 * holds a segment. */
static kvarc_ret look(struct kvarc_store *store, const struct kvi_needs *needs)
{
	struct kvi_list ids = { 0 }, retired = { 0 };
	const struct kvi_holder_rank rank = { kvi_protocol_rank_listed, &retired };
	uint64_t unreadable = 0;
	kvarc_ret ret = kvi_protocol_retired(store, &retired);
	if (!ret)
		ret = kvi_protocol_needs(store, needs, &rank, &ids);
	if (ret == KVARC_END) {
		ids.n = 0;
		ret = kvi_index_refresh(store, store->index, NULL, NULL, &unreadable);
		if (!ret)
			ret = kvi_protocol_needs(store, needs, &rank, &ids);
	}
	if (!ret)
		ret = kvi_protocol_confirm(store, &ids);
	kvi_free(&store->alloc, ids.p);
	kvi_free(&store->alloc, retired.p);
	return ret;
}

kvarc_ret kvi_protocol_stays(struct kvarc_store *store, const struct kvi_needs *needs)
{
	kvarc_ret ret = KVARC_END;
	for (int i = 0; i < LOOKS_MOST && ret == KVARC_END; i++)
		ret = look(store, needs);
	return ret;
}
