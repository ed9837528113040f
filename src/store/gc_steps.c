/* SPDX-License-Identifier: BSD-3-Clause */
/* gc_steps.c - the steps in which gc removes an archive while others save (docs/store.md) */
#include "config.h"

#include "gc_steps.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/hash.h"

/*
 * A gc deletes within DELETE_SECONDS of its start, or not at all; another one takes its tombstones
 * over after STALE_SECONDS. Between them lies what clocks may differ by.
 */
enum { GRACE_SECONDS = 3600, DELETE_SECONDS = 1800, STALE_SECONDS = 7200 };
/* A look at the keys of all manifests is good for this long, or for as long as it took itself. */
enum { LOOK_MILLISECONDS = 20 };

int64_t kvi_gc_grace(const struct kvi_gc *g)
{
	return g->o->no_grace ? 0 : g->o->grace ? (int64_t)g->o->grace : GRACE_SECONDS;
}

bool kvi_gc_is_old(const struct kvi_gc *g, const struct kvi_map_pack *p)
{
	return p->time <= g->now - kvi_gc_grace(g);
}

/* The tombstone of an archive. *stale: its gc must have ended. Returns OK, END (there is none),
 * IO. */
static kvarc_ret find_tombstone(struct kvi_gc *g, const struct kvi_map_pack *p, bool *stale)
{
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_retired_key(key, p->id);
	kvarc_ret ret = g->s->backend->calls->stat(g->s->backend, key, &object, g->s->error);
	*stale = !ret && object.time && object.time <= g->now - STALE_SECONDS;
	return ret;
}

bool kvi_gc_is_taken(struct kvi_gc *g, const struct kvi_map_pack *p)
{
	bool stale;
	return find_tombstone(g, p, &stale) != KVARC_END && !stale;
}

static int64_t read_tombstone(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	memcpy(buf, (const char *)opaque + offset, bytes);
	return (int64_t)bytes;
}

kvarc_ret kvi_gc_retire(struct kvi_gc *g, struct kvi_map_pack *p)
{
	static char text[] = "retired\n";
	const struct kvi_backend_calls *calls = g->s->backend->calls;
	kvarc_source source = {
		.read = read_tombstone, .opaque = text, .size = sizeof text - 1, .memory = text
	};
	char key[KVI_PACK_KEY];
	kvi_retired_key(key, p->id);
	kvarc_ret ret = calls->put(g->s->backend, key, &source, g->s->error);
	/* A full disk may have a name left, though no block: what a tombstone says is its name. */
	if (ret == KVARC_IO) {
		source.size = 0;
		ret = calls->put(g->s->backend, key, &source, g->s->error);
	}
	p->retired = ret == KVARC_OK;
	if (ret == KVARC_END)
		ret = find_tombstone(g, p, &p->retired);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* ----- the second look ------------------------------------------------ */

/* Archives that are needed now are needed in the first map. */
static void count_again(struct kvi_gc *g, const struct kvi_store_map *again)
{
	for (size_t i = 0; i < again->packs.n; i++) {
		const struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, again->packs, i);
		struct kvi_map_pack *first = kvi_map_find(&g->map, p->id);
		if (first)
			first->needed += p->needed;
	}
}

bool kvi_gc_version_there(struct kvi_gc *g, const struct kvi_map_version *v)
{
	struct kvi_manifest m;
	char key[KVI_KEY_MAX + 1];
	return kvi_version_key(key, v->key.name_space, v->key.name, v->key.number) &&
	       kvi_manifest_read(g->s, key, &m) != KVARC_END;
}

bool kvi_gc_is_unreadable(struct kvi_gc *g, const struct kvi_map_version *v)
{
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, v->id);
	return g->s->backend->calls->stat(g->s->backend, key, &object, NULL) != KVARC_END;
}

static int64_t milliseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int by_hash(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

/* *hash: of a key. Returns whether it was seen. */
static bool was_seen(const struct kvi_gc *g, const char *key, uint8_t hash[16])
{
	kvi_store_h128(hash, kvi_h128(key, strlen(key)));
	return g->seen.n && bsearch(hash, g->seen.p, g->seen.n, 16, by_hash);
}

static kvarc_ret note_seen(struct kvi_gc *g, const char *key)
{
	uint8_t hash[16], *to;
	if (was_seen(g, key, hash))
		return KVARC_OK;
	to = kvi_list_add(&g->seen, &g->s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(g->s->error, &g->s->alloc);
	memcpy(to, hash, 16);
	return KVARC_OK;
}

static void sort_seen(struct kvi_gc *g)
{
	if (g->seen.n)
		qsort(g->seen.p, g->seen.n, 16, by_hash);
}

void kvi_gc_free(struct kvi_gc *g)
{
	kvi_map_free(&g->map);
	kvi_free(&g->s->alloc, g->seen.p);
	kvi_free(&g->s->alloc, g->retired.p);
	g->seen = g->retired = (struct kvi_list){ 0 };
}

static kvarc_ret fail_unknown(struct kvi_gc *g)
{
	return kvi_fail(g->s->error, KVARC_DATA,
	                "store: no more archives were removed, as a version that was saved "
	                "meanwhile cannot be read; try again");
}

/* What it has seen it need not read again. */
static kvarc_ret note_versions(struct kvi_gc *g, const struct kvi_store_map *again)
{
	kvarc_ret ret = KVARC_OK;
	g->seen.n = 0;
	for (size_t i = 0; i < again->versions.n && !ret; i++) {
		const struct kvi_session_key *k =
			&KVI_LIST(struct kvi_map_version, again->versions, i)->key;
		char key[KVI_KEY_MAX + 1];
		if (kvi_version_key(key, k->name_space, k->name, k->number)) {
			uint8_t *to = kvi_list_add(&g->seen, &g->s->alloc, 16);
			if (!to)
				return kvi_fail_alloc(g->s->error, &g->s->alloc);
			kvi_store_h128(to, kvi_h128(key, strlen(key)));
		}
	}
	sort_seen(g);
	return ret;
}

/* Tombstones are listed first: an archive whose tombstone is gone, too, is missing by then. */
kvarc_ret kvi_gc_look_again(struct kvi_gc *g)
{
	struct kvi_store_map again = { 0 };
	const struct kvi_holder_rank rank = { kvi_protocol_rank_listed, &g->retired };
	bool unknown = false;
	g->looked = milliseconds();
	g->retired.n = 0;
	kvarc_ret ret = kvi_protocol_retired(g->s, &g->retired);
	if (!ret)
		ret = kvi_map_make(&again, g->s, g->own, &rank, NULL, NULL);
	for (size_t i = 0; i < again.versions.n && !ret; i++) {
		const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, again.versions,
		                                           i);
		unknown |= v->lost && kvi_gc_is_unreadable(g, v);
	}
	if (!ret && (again.unreadable || unknown))
		ret = fail_unknown(g);
	if (!ret)
		ret = note_versions(g, &again);
	if (!ret)
		count_again(g, &again);
	kvi_map_free(&again);
	return ret;
}

static bool skip_seen(void *opaque, const char *key)
{
	uint8_t hash[16];
	return was_seen(opaque, key, hash);
}

/* A version that was put since the last look keeps what it needs. */
static kvarc_ret keep_new(void *opaque, const char *key, const struct kvi_session_key *k,
                          const struct kvi_manifest *m, kvarc_ret wrong)
{
	struct kvi_gc *g = opaque;
	const struct kvi_holder_rank rank = { kvi_protocol_rank_listed, &g->retired };
	struct kvi_map_version v = { .key = *k };
	struct kvi_list ids = { 0 };
	uint64_t unreadable = 0;
	if (wrong)
		return wrong == KVARC_IO ? wrong : fail_unknown(g);
	kvarc_ret ret = kvi_index_refresh(g->s, g->s->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(g->s, &m->needs, &rank, &ids);
	memcpy(v.id, m->needs.pack, 16);
	if (ret == KVARC_END)
		ret = !ids.n && kvi_gc_is_unreadable(g, &v) ? fail_unknown(g) : KVARC_OK;
	for (size_t i = 0; i < ids.n && !ret; i++) {
		struct kvi_map_pack *p = kvi_map_find(&g->map, (const uint8_t *)ids.p + 16 * i);
		if (p)
			p->needed++;
	}
	kvi_free(&g->s->alloc, ids.p);
	return ret ? ret : note_seen(g, key);
}

static kvarc_ret look_at_new(struct kvi_gc *g)
{
	const int64_t begin = milliseconds();
	const int64_t good = g->took > LOOK_MILLISECONDS ? g->took : LOOK_MILLISECONDS;
	if (begin - g->looked < good)
		return KVARC_OK;
	kvarc_ret ret = kvi_manifests(g->s, KVI_SESSIONS, skip_seen, keep_new, g);
	sort_seen(g);
	g->looked = begin;
	g->took = milliseconds() - begin;
	return ret;
}

/* ----- and out ------------------------------------------------ */

static kvarc_ret remove_tombstone(struct kvi_gc *g, struct kvi_map_pack *p)
{
	char key[KVI_PACK_KEY];
	kvi_retired_key(key, p->id);
	kvarc_ret ret = g->s->backend->calls->remove(g->s->backend, key, g->s->error);
	p->retired = false;
	return ret;
}

static kvarc_ret delete_pack(struct kvi_gc *g, struct kvi_map_pack *p)
{
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, p->id);
	kvi_pack_forget(g->s, p->id);
	kvarc_ret ret = g->s->backend->calls->remove(g->s->backend, key, g->s->error);
	if (ret)
		return ret;
	g->result->repacked += p->copy_bytes != 0;
	g->result->repacked_bytes += p->copy_bytes ? p->bytes - p->copy_bytes : 0;
	g->result->removed += !p->copy_bytes;
	g->result->removed_bytes += p->copy_bytes ? 0 : p->bytes;
	/* It is a cache: a failure shows itself when it is used. */
	if (kvi_index_begin_change(g->own) == KVARC_OK)
		(void)kvi_index_end_change(g->own, kvi_index_remove_pack(g->own, p->id));
	return remove_tombstone(g, p);
}

kvarc_ret kvi_gc_delete(struct kvi_gc *g)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < g->map.packs.n && !ret; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, g->map.packs, i);
		if (!p->retired || p->needed)
			continue;
		if (kvi_store_now() - g->now > DELETE_SECONDS)
			return kvi_fail(g->s->error, KVARC_IO,
			                "store: gc took more than half an hour and stopped; run it "
			                "again");
		ret = look_at_new(g);
		if (!ret && !p->needed)
			ret = delete_pack(g, p);
	}
	return ret;
}

kvarc_ret kvi_gc_undo(struct kvi_gc *g)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < g->map.packs.n; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, g->map.packs, i);
		kvarc_ret one = p->retired ? remove_tombstone(g, p) : KVARC_OK;
		ret = ret ? ret : one;
	}
	return ret;
}

/* ----- what an earlier gc has left ------------------------------------------------ */

struct sweeping {
	struct kvi_gc *g;
	struct kvi_list ids;
};

static int see_tombstone(void *opaque, const struct kvi_object *object)
{
	struct sweeping *w = opaque;
	uint8_t id[16], *to;
	if (!kvi_retired_key_parse(id, object->key) || kvi_map_find(&w->g->map, id) ||
	    !object->time || object->time > w->g->now - STALE_SECONDS)
		return 0;
	to = kvi_list_add(&w->ids, &w->g->s->alloc, 16);
	if (to)
		memcpy(to, id, 16);
	return 0;
}

kvarc_ret kvi_gc_sweep(struct kvi_gc *g)
{
	struct kvi_backend *b = g->s->backend;
	struct sweeping w = { .g = g };
	kvarc_ret ret = b->calls->list(b, KVI_RETIRED, see_tombstone, &w, g->s->error);
	for (size_t i = 0; i < w.ids.n && !ret; i++) {
		char key[KVI_PACK_KEY];
		kvi_retired_key(key, (const uint8_t *)w.ids.p + 16 * i);
		ret = b->calls->remove(b, key, g->s->error);
	}
	kvi_free(&g->s->alloc, w.ids.p);
	return ret;
}
