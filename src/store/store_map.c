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

void kvi_map_report(const struct kvi_store_map *m, const char *format, ...)
{
	char text[REPORT_MOST];
	va_list args;
	if (!m->report)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	m->report(m->opaque, text);
}

/* ----- archives ------------------------------------------------ */

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct kvi_map_pack *)a)->id, ((const struct kvi_map_pack *)b)->id,
	              16);
}

static kvarc_ret add_pack(void *opaque, const struct kvi_index_pack *p)
{
	struct kvi_store_map *m = opaque;
	struct kvi_map_pack *to = kvi_list_add(&m->packs, &m->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(m->s->error, &m->s->alloc);
	memcpy(to->id, p->id, 16);
	to->bytes = p->bytes;
	to->time = p->time;
	to->encrypted = p->encrypted;
	to->broken = p->broken;
	return KVARC_OK;
}

struct kvi_map_pack *kvi_map_find(const struct kvi_store_map *m, const uint8_t id[16])
{
	struct kvi_map_pack key;
	memcpy(key.id, id, 16);
	return m->packs.n ? bsearch(&key, m->packs.p, m->packs.n, sizeof key, by_id) : NULL;
}

uint64_t kvi_map_needed_bytes(const struct kvi_store_map *m)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < m->packs.n; i++) {
		const struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, m->packs, i);
		bytes += p->needed ? p->bytes : 0;
	}
	return bytes;
}

/* ----- versions ------------------------------------------------ */

static kvarc_ret add_version(void *opaque, const char *key, const struct kvi_session_key *k,
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
	v->key = *k;
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
	/* As other hosts have used it, where a load sets that (store_load.c). */
	if (v->used < k->touched)
		v->used = k->touched;
	return ret;
}

static void find_last(struct kvi_store_map *m)
{
	for (size_t i = 0; i < m->versions.n; i++) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, m->versions, i);
		const struct kvi_map_version *next = i + 1 < m->versions.n ? v + 1 : NULL;
		v->last = !next || strcmp(next->key.name, v->key.name) != 0 ||
		          strcmp(next->key.name_space, v->key.name_space) != 0;
	}
}

/* Those of the archives that its manifest names are counted once more, or not any more. */
static void count_named(struct kvi_store_map *m, const struct kvi_map_version *v, int by)
{
	for (size_t i = 0; i < v->needs.n && (v->encrypted || i == 0); i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, m->packs,
		                                  *KVI_LIST(size_t, v->needs, i));
		p->named += (uint64_t)by;
	}
}

/* Numbers of the archives with these ids, each counted. */
static kvarc_ret count_needs(struct kvi_store_map *m, struct kvi_map_version *v,
                             const struct kvi_list *ids)
{
	for (size_t i = 0; i < ids->n; i++) {
		struct kvi_map_pack *p = kvi_map_find(m, (const uint8_t *)ids->p + 16 * i);
		size_t *to = p ? kvi_list_add(&v->needs, &m->s->alloc, sizeof *to) : NULL;
		if (p && !to)
			return kvi_fail_alloc(m->s->error, &m->s->alloc);
		if (p) {
			*to = (size_t)(p - (struct kvi_map_pack *)m->packs.p);
			p->needed++;
		}
	}
	count_named(m, v, 1);
	return KVARC_OK;
}

kvarc_ret kvi_map_needs(struct kvi_store_map *m, const struct kvi_map_version *v,
                        const struct kvi_holder_rank *rank, struct kvi_list *ids)
{
	struct kvi_needs needs = { .encrypted = v->encrypted, .n = (uint32_t)v->named.n };
	memcpy(needs.pack, v->id, 16);
	if (needs.n)
		memcpy(needs.others, v->named.p, 16 * v->named.n);
	return kvi_protocol_needs(m->s, &needs, rank, ids);
}

static kvarc_ret find_needs(struct kvi_store_map *m, struct kvi_map_version *v,
                            const struct kvi_holder_rank *rank)
{
	struct kvi_list ids = { 0 };
	kvarc_ret ret = kvi_map_needs(m, v, rank, &ids);
	if (ret == KVARC_END) {
		v->lost = !ids.n;
		v->lacking = !v->lost;
		ret = KVARC_OK;
	}
	/* Without its key, too. */
	const struct kvi_map_pack *own = kvi_map_find(m, v->id);
	v->lost |= own && v->pack_bytes && own->bytes != v->pack_bytes;
	if (!ret)
		ret = count_needs(m, v, &ids);
	kvi_free(&m->s->alloc, ids.p);
	return ret;
}

void kvi_map_remove(struct kvi_store_map *m, struct kvi_map_version *v)
{
	if (v->removed)
		return;
	v->removed = true;
	count_named(m, v, -1);
	for (size_t i = 0; i < v->needs.n; i++)
		KVI_LIST(struct kvi_map_pack, m->packs, *KVI_LIST(size_t, v->needs, i))->needed--;
}

kvarc_ret kvi_map_make(struct kvi_store_map *m, struct kvarc_store *s, struct kvi_store_index *uses,
                       const struct kvi_holder_rank *rank,
                       void (*report)(void *opaque, const char *text), void *opaque)
{
	memset(m, 0, sizeof *m);
	m->s = s;
	m->uses = uses;
	m->report = report;
	m->opaque = opaque;
	kvarc_ret ret = kvi_manifests(s, KVI_SESSIONS, NULL, add_version, m);
	if (!ret)
		ret = kvi_index_refresh(s, s->index, report, opaque, &m->unreadable_packs);
	if (!ret)
		ret = kvi_index_packs(s->index, false, add_pack, m);
	if (ret)
		return ret;
	if (m->packs.n)
		qsort(m->packs.p, m->packs.n, sizeof(struct kvi_map_pack), by_id);
	find_last(m);
	for (size_t i = 0; i < m->versions.n && !ret; i++)
		ret = find_needs(m, KVI_LIST(struct kvi_map_version, m->versions, i), rank);
	return ret;
}

void kvi_map_free(struct kvi_store_map *m)
{
	if (!m->s)
		return;
	for (size_t i = 0; i < m->versions.n; i++) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, m->versions, i);
		kvi_free(&m->s->alloc, v->needs.p);
		kvi_free(&m->s->alloc, v->named.p);
	}
	kvi_free(&m->s->alloc, m->versions.p);
	kvi_free(&m->s->alloc, m->packs.p);
	memset(m, 0, sizeof *m);
}

/* ----- the index ------------------------------------------------ */

kvarc_ret kvi_fresh_index(struct kvarc_store *s, struct kvi_store_index **own)
{
	bool made;
	const char *why;
	struct kvi_store_index *x;
	*own = s->index;
	kvarc_ret ret = kvi_index_open(&x, NULL, s->options.common.allocator, &made, &why,
	                               s->error);
	if (!ret)
		s->index = x;
	return ret;
}

static kvarc_ret teach_broken(void *opaque, const struct kvi_index_pack *p)
{
	return p->broken ? kvi_index_break(opaque, p->id) : KVARC_OK;
}

static kvarc_ret teach_doubt(void *opaque, const struct kvi_index_row *row)
{
	return kvi_index_doubt_at(opaque, row);
}

/* It is a cache: where it cannot be written, the next load finds the damage again. */
void kvi_own_index(struct kvarc_store *s, struct kvi_store_index **own)
{
	const kvarc_error was = *s->error;
	if (s->index != *own) {
		(void)kvi_index_packs(s->index, false, teach_broken, *own);
		(void)kvi_index_doubts(s->index, teach_doubt, *own);
		kvi_index_close(&s->index);
	}
	s->index = *own;
	*s->error = was;
}
