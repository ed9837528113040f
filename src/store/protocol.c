/* SPDX-License-Identifier: BSD-3-Clause */
/* protocol.c - what savers and gc owe each other (docs/store.md): which archives a version needs */
#include "store_state.h"

#include <string.h>

/* ----- what an archive needs ------------------------------------------------ */

struct needs {
	struct kvarc_store *s;
	struct kvi_store_index *x;
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

enum { HOLDERS_MOST = 16 };

/* Of several archives that hold a segment one is enough: one that is needed anyway, else the oldest
 * in the index. One whose digest is not known may be another segment: all of these are needed. */
static kvarc_ret add_holders(void *opaque, const struct kvi_index_ref *ref)
{
	struct needs *n = opaque;
	struct kvi_index_row rows[HOLDERS_MOST];
	size_t count, best = HOLDERS_MOST;
	kvarc_ret ret = kvi_index_holders(n->x, ref->name_space, ref->key, rows, HOLDERS_MOST,
	                                  &count);
	for (size_t i = 0; i < count && !ret; i++) {
		if (rows[i].has_digest && memcmp(rows[i].digest, ref->digest, 16) == 0 &&
		    (best == HOLDERS_MOST || kvi_protocol_has(n->ids, rows[i].id)))
			best = i;
	}
	if (!ret && best < HOLDERS_MOST)
		return add_id(n, rows[best].id);
	bool any = false;
	for (size_t i = 0; i < count && !ret; i++)
		if (!rows[i].has_digest) {
			any = true;
			ret = add_id(n, rows[i].id);
		}
	n->lacking |= !any;
	return ret;
}

/* What a manifest lists, as far as it is there. */
static kvarc_ret add_listed(struct needs *n, const struct kvi_needs *needs)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_any(n->x, needs->pack, &pack);
	if (!ret)
		ret = add_id(n, needs->pack);
	for (uint32_t i = 0; i < needs->n && !ret; i++) {
		ret = kvi_index_find_any(n->x, needs->others[i], &pack);
		n->lacking |= ret == KVARC_END;
		ret = ret == KVARC_END ? KVARC_OK : ret ? ret : add_id(n, needs->others[i]);
	}
	return ret ? ret : n->lacking ? KVARC_END : KVARC_OK;
}

kvarc_ret kvi_protocol_needs(struct kvarc_store *s, struct kvi_store_index *x,
                             const struct kvi_needs *needs, struct kvi_list *ids)
{
	struct needs n = { .s = s, .x = x, .ids = ids };
	int64_t pack;
	if (needs->encrypted)
		return add_listed(&n, needs);
	kvarc_ret ret = kvi_index_find_pack(x, needs->pack, &pack);
	if (!ret)
		ret = add_id(&n, needs->pack);
	if (!ret)
		ret = kvi_index_refs(x, pack, add_holders, &n);
	return ret ? ret : n.lacking ? KVARC_END : KVARC_OK;
}

/* ----- whether they stay ------------------------------------------------ */

struct retired {
	struct kvarc_store *s;
	const struct kvi_list *ids;
	struct kvi_list found; /* ids that are retired or gone */
	kvarc_ret ret;
};

static kvarc_ret add_found(struct retired *r, const uint8_t id[16])
{
	uint8_t *to = kvi_list_add(&r->found, &r->s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(r->s->error, &r->s->alloc);
	memcpy(to, id, 16);
	return KVARC_OK;
}

static int see_retired(void *opaque, const struct kvi_object *object)
{
	struct retired *r = opaque;
	uint8_t id[16];
	if (kvi_retired_key_parse(id, object->key) && kvi_protocol_has(r->ids, id))
		r->ret = add_found(r, id);
	return r->ret != KVARC_OK;
}

/* Tombstones first: an archive whose tombstone is gone, too, is missing by then. */
static kvarc_ret find_retired(struct retired *r)
{
	struct kvi_backend *b = r->s->backend;
	kvarc_ret ret = b->calls->list(b, KVI_RETIRED, see_retired, r, r->s->error);
	if (r->ret)
		ret = r->ret;
	for (size_t i = 0; i < r->ids->n && !ret; i++) {
		const uint8_t *id = (const uint8_t *)r->ids->p + 16 * i;
		struct kvi_object object;
		char key[KVI_PACK_KEY];
		kvi_pack_key(key, id);
		ret = b->calls->stat(b, key, &object, r->s->error);
		if (ret == KVARC_END)
			ret = add_found(r, id);
	}
	return ret;
}

kvarc_ret kvi_protocol_confirm(struct kvarc_store *s, const struct kvi_list *ids)
{
	struct retired r = { .s = s, .ids = ids };
	kvarc_ret ret = find_retired(&r);
	if (!ret && r.found.n) {
		ret = kvi_index_begin_change(s->index);
		for (size_t i = 0; i < r.found.n && !ret; i++) {
			const uint8_t *id = (const uint8_t *)r.found.p + 16 * i;
			kvi_pack_forget(s, id);
			ret = kvi_index_remove_pack(s->index, id);
		}
		ret = kvi_index_end_change(s->index, ret);
		ret = ret ? ret : KVARC_END;
	}
	kvi_free(&s->alloc, r.found.p);
	return ret;
}
