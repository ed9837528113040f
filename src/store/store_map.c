/* SPDX-License-Identifier: BSD-3-Clause */
/* store_map.c - all versions of a store, and which archives each needs */
#include "config.h"

#include "store_map.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_MOST = 512 };

void kvi_map_report(const struct kvi_store_map *map, const char *format, ...)
{
	char text[REPORT_MOST];
	va_list args;
	if (!map->report)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	map->report(map->opaque, text);
}

/* ----- archives ------------------------------------------------ */

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct kvi_map_pack *)a)->id, ((const struct kvi_map_pack *)b)->id,
	              16);
}

static kvarc_ret add_pack(void *opaque, const struct kvi_index_pack *pack)
{
	struct kvi_store_map *m = opaque;
	struct kvi_map_pack *to = kvi_list_add(&m->packs, &m->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(m->s->error, &m->s->alloc);
	memcpy(to->id, pack->id, 16);
	to->bytes = pack->bytes;
	to->time = pack->time;
	to->encrypted = pack->encrypted;
	to->broken = pack->broken;
	return KVARC_OK;
}

struct kvi_map_pack *kvi_map_find(const struct kvi_store_map *map, const uint8_t id[16])
{
	struct kvi_map_pack key;
	memcpy(key.id, id, 16);
	return map->packs.n ? bsearch(&key, map->packs.p, map->packs.n, sizeof key, by_id) : NULL;
}

uint64_t kvi_map_needed_bytes(const struct kvi_store_map *map)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < map->packs.n; i++) {
		const struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, map->packs, i);
		bytes += p->needed ? p->bytes : 0;
	}
	return bytes;
}

/* ----- versions ------------------------------------------------ */

static kvarc_ret add_version(void *opaque, const char *key,
                             const struct kvi_session_key *session_key,
                             const struct kvi_manifest *manifest, kvarc_ret wrong)
{
	struct kvi_store_map *m = opaque;
	struct kvi_map_version *v;
	if (wrong == KVARC_IO)
		return wrong;
	if (wrong) {
		m->unreadable++;
		kvi_map_report(m, "%s", m->s->error->text);
		return KVARC_OK;
	}
	v = kvi_list_add(&m->versions, &m->s->alloc, sizeof *v);
	if (!v)
		return kvi_fail_alloc(m->s->error, &m->s->alloc);
	v->key = *session_key;
	v->bytes = manifest->bytes;
	v->pack_bytes = manifest->pack_bytes;
	memcpy(v->digest, manifest->digest, 16);
	memcpy(v->id, manifest->needs.pack, 16);
	v->encrypted = manifest->needs.encrypted;
	for (uint32_t i = 0; i < manifest->needs.n; i++) {
		uint8_t *to = kvi_list_add(&v->named, &m->s->alloc, 16);
		if (!to)
			return kvi_fail_alloc(m->s->error, &m->s->alloc);
		memcpy(to, manifest->needs.others[i], 16);
	}
	kvarc_ret ret = kvi_index_last_use(m->uses, key, &v->used);
	if (v->used < (int64_t)(manifest->time / 1000))
		v->used = (int64_t)(manifest->time / 1000);
	/* Use by other hosts: a load sets the time of the manifest (store_load.c). */
	if (v->used < session_key->touched)
		v->used = session_key->touched;
	return ret;
}

static void find_last(struct kvi_store_map *map)
{
	for (size_t i = 0; i < map->versions.n; i++) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, map->versions, i);
		const struct kvi_map_version *next = i + 1 < map->versions.n ? v + 1 : NULL;
		v->last = !next || strcmp(next->key.name, v->key.name) != 0 ||
		          strcmp(next->key.name_space, v->key.name_space) != 0;
	}
}

/* Adds `by`, 1 or -1, to the counts of the archives that a version's manifest names. */
static void count_named(struct kvi_store_map *map, const struct kvi_map_version *version, int by)
{
	for (size_t i = 0; i < version->needs.n && (version->encrypted || i == 0); i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, map->packs,
		                                  *KVI_LIST(size_t, version->needs, i));
		p->named += (uint64_t)by;
	}
}

/* Numbers of the archives with these ids, each counted. */
static kvarc_ret count_needs(struct kvi_store_map *map, struct kvi_map_version *version,
                             const struct kvi_list *ids)
{
	for (size_t i = 0; i < ids->n; i++) {
		struct kvi_map_pack *p = kvi_map_find(map, (const uint8_t *)ids->p + 16 * i);
		size_t *to = p ? kvi_list_add(&version->needs, &map->s->alloc, sizeof *to) : NULL;
		if (p && !to)
			return kvi_fail_alloc(map->s->error, &map->s->alloc);
		if (p) {
			*to = (size_t)(p - (struct kvi_map_pack *)map->packs.p);
			p->needed++;
		}
	}
	count_named(map, version, 1);
	return KVARC_OK;
}

kvarc_ret kvi_map_needs(struct kvi_store_map *map, const struct kvi_map_version *version,
                        const struct kvi_holder_rank *rank, struct kvi_list *ids)
{
	struct kvi_needs needs = { .encrypted = version->encrypted,
		                   .n = (uint32_t)version->named.n };
	memcpy(needs.pack, version->id, 16);
	if (needs.n)
		memcpy(needs.others, version->named.p, 16 * version->named.n);
	return kvi_protocol_needs(map->s, &needs, rank, ids);
}

static kvarc_ret find_needs(struct kvi_store_map *map, struct kvi_map_version *version,
                            const struct kvi_holder_rank *rank)
{
	struct kvi_list ids = { 0 };
	kvarc_ret ret = kvi_map_needs(map, version, rank, &ids);
	if (ret == KVARC_END) {
		version->lost = !ids.n;
		version->lacking = !version->lost;
		ret = KVARC_OK;
	}
	/* The size shows it without a key, too. */
	const struct kvi_map_pack *own = kvi_map_find(map, version->id);
	version->lost |= own && version->pack_bytes && own->bytes != version->pack_bytes;
	if (!ret)
		ret = count_needs(map, version, &ids);
	kvi_free(&map->s->alloc, ids.p);
	return ret;
}

void kvi_map_remove(struct kvi_store_map *map, struct kvi_map_version *version)
{
	if (version->removed)
		return;
	version->removed = true;
	count_named(map, version, -1);
	for (size_t i = 0; i < version->needs.n; i++)
		KVI_LIST(struct kvi_map_pack, map->packs, *KVI_LIST(size_t, version->needs, i))
			->needed--;
}

kvarc_ret kvi_map_make(struct kvi_store_map *map, struct kvarc_store *store,
                       struct kvi_store_index *uses, const struct kvi_holder_rank *rank,
                       void (*report)(void *opaque, const char *text), void *opaque)
{
	memset(map, 0, sizeof *map);
	map->s = store;
	map->uses = uses;
	map->report = report;
	map->opaque = opaque;
	kvarc_ret ret = kvi_manifests(store, KVI_SESSIONS, NULL, add_version, map);
	if (!ret)
		ret = kvi_index_refresh(store, store->index, report, opaque,
		                        &map->unreadable_packs);
	if (!ret)
		ret = kvi_index_packs(store->index, false, add_pack, map);
	if (ret)
		return ret;
	if (map->packs.n)
		qsort(map->packs.p, map->packs.n, sizeof(struct kvi_map_pack), by_id);
	find_last(map);
	for (size_t i = 0; i < map->versions.n && !ret; i++)
		ret = find_needs(map, KVI_LIST(struct kvi_map_version, map->versions, i), rank);
	return ret;
}

void kvi_map_free(struct kvi_store_map *map)
{
	if (!map->s)
		return;
	for (size_t i = 0; i < map->versions.n; i++) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, map->versions, i);
		kvi_free(&map->s->alloc, v->needs.p);
		kvi_free(&map->s->alloc, v->named.p);
	}
	kvi_free(&map->s->alloc, map->versions.p);
	kvi_free(&map->s->alloc, map->packs.p);
	memset(map, 0, sizeof *map);
}

/* ----- the index ------------------------------------------------ */

kvarc_ret kvi_fresh_index(struct kvarc_store *store, struct kvi_store_index **own)
{
	bool made;
	const char *why;
	struct kvi_store_index *x;
	*own = store->index;
	kvarc_ret ret = kvi_index_open(&x, NULL, store->options.common.allocator, &made, &why,
	                               store->error);
	if (!ret)
		store->index = x;
	return ret;
}

static kvarc_ret teach_broken(void *opaque, const struct kvi_index_pack *pack)
{
	return pack->broken ? kvi_index_break(opaque, pack->id) : KVARC_OK;
}

static kvarc_ret teach_damage(void *opaque, const struct kvi_index_row *row)
{
	return kvi_index_doubt_at(opaque, row);
}

/* The index is a cache: where it cannot be written, the next load finds the damage again. */
void kvi_own_index(struct kvarc_store *store, struct kvi_store_index **own)
{
	const kvarc_error was = *store->error;
	if (store->index != *own) {
		(void)kvi_index_packs(store->index, false, teach_broken, *own);
		(void)kvi_index_doubts(store->index, teach_damage, *own);
		kvi_index_close(&store->index);
	}
	store->index = *own;
	*store->error = was;
}
