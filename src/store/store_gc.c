/* SPDX-License-Identifier: BSD-3-Clause */
/* store_gc.c - removes what no version needs: steps of gc, archives written again */
#include "config.h"

#include "store_gc.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "new_archive.h"
#include "files/rewrite.h"
#include "util/arguments.h"
#include "util/ckd.h"
#include "util/hash.h"

/* ==== The steps in which gc removes an archive while others save (docs/store.md) ==== */

/*
 * A gc deletes within DELETE_SECONDS of its start, or not at all; another one takes its tombstones
 * over after STALE_SECONDS. Between them lies what clocks may differ by.
 */
enum { GRACE_SECONDS = 3600, DELETE_SECONDS = 1800, STALE_SECONDS = 7200 };
/* A look at the keys of all manifests is good for this long, or for as long as it took itself. */
enum { LOOK_MILLISECONDS = 20 };

/* The grace period in seconds. */
static int64_t gc_grace(const struct kvi_gc *g)
{
	return g->o->no_grace ? 0 : g->o->grace ? (int64_t)g->o->grace : GRACE_SECONDS;
}

/* Whether an archive is older than the grace period, as far as its time is known. */
static bool gc_is_old(const struct kvi_gc *g, const struct kvi_map_pack *p)
{
	return p->time <= g->now - gc_grace(g);
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

/* Whether an archive has the tombstone of another gc that may be at work. */
static bool gc_is_taken(struct kvi_gc *g, const struct kvi_map_pack *p)
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

/* Whether a version that was listed is there, still: else it is no loss that its archive is not. */
static bool gc_version_there(struct kvi_gc *g, const struct kvi_map_version *v)
{
	struct kvi_manifest m;
	char key[KVI_KEY_MAX + 1];
	return kvi_version_key(key, v->key.name_space, v->key.name, v->key.number) &&
	       kvi_manifest_read(g->s, key, &m) != KVARC_END;
}

/* Whether the archive of a version that is lost is there, but cannot be read: what it names is not
 * known. Of one that is gone nothing can be loaded any more, whatever it has named. */
static bool gc_is_unreadable(struct kvi_gc *g, const struct kvi_map_version *v)
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
		unknown |= v->lost && gc_is_unreadable(g, v);
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
		ret = !ids.n && gc_is_unreadable(g, &v) ? fail_unknown(g) : KVARC_OK;
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

/* Removes old tombstones of archives that are gone. */
static kvarc_ret gc_sweep(struct kvi_gc *g)
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

/* ==== Which segments are needed of archives that no manifest names ==== */

/* A segment of an archive, by its first token. */
struct needed_segment {
	uint32_t track;
	uint64_t t0;
};

/* An archive that lives only because others name segments of it. */
struct unnamed_pack {
	struct kvi_map_pack *pack;
	struct kvi_list needed; /* struct needed_segment, ascending: what it alone is to hold */
	size_t unique;          /* of `needed`, when it was sorted last */
};

/* The rank of archives that nothing needs: they are about to be removed. */
#define LEAVES UINT64_MAX
enum { SORT_LEAST = 1024 };

struct repack_planning {
	struct kvi_gc *g;
	struct kvi_list *candidates;
};

/* For qsort and bsearch over struct needed_segment. */
static int needed_order(const void *a, const void *b)
{
	const struct needed_segment *x = a, *y = b;
	if (x->track != y->track)
		return x->track < y->track ? -1 : 1;
	return (x->t0 > y->t0) - (x->t0 < y->t0);
}

/* ----- candidates ------------------------------------------------ */

static int smallest_first(const void *a, const void *b)
{
	const struct kvi_map_pack *x = ((const struct unnamed_pack *)a)->pack;
	const struct kvi_map_pack *y = ((const struct unnamed_pack *)b)->pack;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return memcmp(x->id, y->id, 16);
}

static kvarc_ret find_candidates(struct repack_planning *x)
{
	struct kvi_list *l = x->candidates;
	for (size_t i = 0; i < x->g->map.packs.n; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, x->g->map.packs, i);
		p->rank = p->needed ? 0 : LEAVES;
		if (!p->needed || p->named || p->encrypted || !gc_is_old(x->g, p))
			continue;
		struct unnamed_pack *c = kvi_list_add(l, &x->g->s->alloc, sizeof *c);
		if (!c)
			return kvi_fail_alloc(x->g->s->error, &x->g->s->alloc);
		c->pack = p;
	}
	if (l->n)
		qsort(l->p, l->n, sizeof(struct unnamed_pack), smallest_first);
	for (size_t i = 0; i < l->n; i++)
		KVI_LIST(struct unnamed_pack, *l, i)->pack->rank = i + 1;
	return KVARC_OK;
}

/* ----- what is needed ------------------------------------------------ */

static uint64_t rank_of(void *opaque, const uint8_t id[16])
{
	const struct repack_planning *x = opaque;
	const struct kvi_map_pack *p = kvi_map_find(&x->g->map, id);
	return p ? p->rank : 0;
}

/* Ascending, each once. */
static void sort_needed(struct unnamed_pack *c)
{
	struct kvi_list *l = &c->needed;
	size_t n = 0;
	if (l->n)
		qsort(l->p, l->n, sizeof(struct needed_segment), needed_order);
	for (size_t i = 0; i < l->n; i++) {
		const struct needed_segment *s = KVI_LIST(struct needed_segment, *l, i);
		if (n && needed_order(s, KVI_LIST(struct needed_segment, *l, n - 1)) == 0)
			continue;
		*KVI_LIST(struct needed_segment, *l, n) = *s;
		n++;
	}
	l->n = c->unique = n;
}

static kvarc_ret take_row(void *opaque, const struct kvi_index_row *row)
{
	struct repack_planning *x = opaque;
	const uint64_t rank = rank_of(x, row->id);
	if (!rank || rank == LEAVES)
		return KVARC_OK;
	struct unnamed_pack *c = KVI_LIST(struct unnamed_pack, *x->candidates, rank - 1);
	/* Each turn of a session needs nearly the same. */
	if (c->needed.n >= 2 * c->unique + SORT_LEAST)
		sort_needed(c);
	struct needed_segment *n = kvi_list_add(&c->needed, &x->g->s->alloc, sizeof *n);
	if (!n)
		return kvi_fail_alloc(x->g->s->error, &x->g->s->alloc);
	n->track = row->track;
	n->t0 = row->t0;
	return KVARC_OK;
}

/* Forks have one archive. */
static int by_archive(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static kvarc_ret list_archives(struct repack_planning *x, struct kvi_list *ids)
{
	const struct kvi_list *l = &x->g->map.versions;
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, *l, i);
		uint8_t *to = v->removed || v->encrypted ? NULL
		                                         : kvi_list_add(ids, &x->g->s->alloc, 16);
		if (to)
			memcpy(to, v->id, 16);
		else if (!v->removed && !v->encrypted)
			return kvi_fail_alloc(x->g->s->error, &x->g->s->alloc);
	}
	if (ids->n)
		qsort(ids->p, ids->n, 16, by_archive);
	return KVARC_OK;
}

static kvarc_ret find_needed(struct repack_planning *x)
{
	const struct kvi_holder_rank rank = { rank_of, x };
	struct kvi_list ids = { 0 };
	kvarc_ret ret = list_archives(x, &ids);
	for (size_t i = 0; i < ids.n && !ret; i++) {
		const uint8_t *id = (const uint8_t *)ids.p + 16 * i;
		if (i && memcmp(id - 16, id, 16) == 0)
			continue;
		ret = kvi_protocol_holders(x->g->s, id, &rank, take_row, x);
		if (ret == KVARC_END) /* what is missing was reported */
			ret = KVARC_OK;
	}
	kvi_free(&x->g->s->alloc, ids.p);
	return ret;
}

/*
 * Finds those of a gc's map that are old enough, neither encrypted nor named by a manifest, and
 * what is needed of them: of several archives that hold a segment those that have to stay count
 * before candidates, and of these the smallest. Sets `rank` in the map. Entries of candidates are
 * struct unnamed_pack; repack_plan_free frees them, also after a failure. Returns OK, MEM,
 * MEMLIMIT, IO, DATA.
 */
static kvarc_ret repack_plan(struct kvi_gc *g, struct kvi_list *candidates)
{
	struct repack_planning x = { g, candidates };
	kvarc_ret ret = find_candidates(&x);
	if (!ret && candidates->n)
		ret = find_needed(&x);
	for (size_t i = 0; i < candidates->n; i++)
		sort_needed(KVI_LIST(struct unnamed_pack, *candidates, i));
	return ret;
}

/* Frees what repack_plan has made. */
static void repack_plan_free(struct kvi_gc *g, struct kvi_list *candidates)
{
	for (size_t i = 0; i < candidates->n; i++)
		kvi_free(&g->s->alloc, KVI_LIST(struct unnamed_pack, *candidates, i)->needed.p);
	kvi_free(&g->s->alloc, candidates->p);
	*candidates = (struct kvi_list){ 0 };
}

/* ==== Copies of what is needed of archives that others need little of ==== */

/* A gc has half an hour for all of it: no copy begins later than this. */
enum { BEGIN_SECONDS = 600 };

/* An archive that is copied. */
struct repack_copy {
	struct kvi_gc *g;
	struct kvarc_store *s;
	const struct unnamed_pack *c;
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
	const struct needed_segment key = { s->track, s->t0 };
	const struct kvi_list *l = &x->c->needed;
	return bsearch(&key, l->p, l->n, sizeof key, needed_order) != NULL;
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
static kvarc_ret copy(struct kvi_gc *g, const struct unnamed_pack *c)
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
static bool is_whole(struct kvi_gc *g, const struct unnamed_pack *c)
{
	uint64_t n = 0;
	int64_t pack;
	return kvi_index_find_pack(g->s->index, c->pack->id, &pack) == KVARC_OK &&
	       kvi_index_rows(g->s->index, pack, count_row, &n) == KVARC_OK && n == c->needed.n;
}

static void report(struct kvi_gc *g, const struct unnamed_pack *c)
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
static kvarc_ret repack(struct kvi_gc *g, struct unnamed_pack *c, bool *go_on)
{
	char hex[33];
	if (!c->needed.n) {
		c->pack->needed = 0;
		return KVARC_OK;
	}
	if (!*go_on || is_whole(g, c) || gc_is_taken(g, c->pack))
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

/*
 * Puts a copy of what is needed of archives that no manifest names, and less than half of which is
 * needed. These archives are then not `needed` in the map of the gc, and archives are not either
 * if others hold all that is needed of them: the steps of the gc follow. A dry run puts nothing,
 * and counts them. An archive that cannot be copied is reported, and stays. Returns OK, MEM, IO,
 * DATA (the index).
 */
static kvarc_ret repack_all(struct kvi_gc *g)
{
	struct kvi_list candidates = { 0 };
	bool go_on = true;
	kvarc_ret ret = repack_plan(g, &candidates);
	for (size_t i = 0; i < candidates.n && !ret; i++) {
		go_on = go_on && kvi_store_now() - g->now <= BEGIN_SECONDS;
		ret = repack(g, KVI_LIST(struct unnamed_pack, candidates, i), &go_on);
	}
	repack_plan_free(g, &candidates);
	/* The rest of the gc needs less memory. */
	if (ret == KVARC_MEMLIMIT) {
		kvi_map_report(&g->map, "no archive was repacked: %.300s", g->s->error->text);
		ret = KVARC_OK;
	}
	return ret;
}

/* ==== Removes versions beyond a budget, and archives that no version needs ==== */

/* ----- which versions go ------------------------------------------------ */

/*
 * The policy of a budget: a comparison for qsort over struct kvi_map_version pointers, those that
 * go first in front. Another one can be put beside it.
 */
static int least_recently_used(const void *a, const void *b)
{
	const struct kvi_map_version *x = *(struct kvi_map_version *const *)a;
	const struct kvi_map_version *y = *(struct kvi_map_version *const *)b;
	if (x->last != y->last)
		return x->last ? 1 : -1;
	if (x->used != y->used)
		return x->used < y->used ? -1 : 1;
	return (x->key.number > y->key.number) - (x->key.number < y->key.number);
}

/* Versions before the last `keep` of their session. */
static void keep_last(struct kvi_store_map *m, uint64_t keep)
{
	for (size_t end = m->versions.n, i = m->versions.n; i-- > 0;) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, m->versions, i);
		if (v->last)
			end = i + 1;
		if (end - i > keep)
			kvi_map_remove(m, v);
	}
}

/* One that was saved or loaded lately stays: a budget is no reason to remove what is in use. */
static bool is_young(const struct kvi_gc *g, const struct kvi_map_version *v)
{
	return v->used > g->now - gc_grace(g);
}

static kvarc_ret meet_budget(struct kvi_gc *g)
{
	struct kvi_store_map *m = &g->map;
	uint64_t young = 0;
	struct kvi_map_version **order = kvi_array(&m->s->alloc, m->versions.n + 1, sizeof(void *));
	if (!order)
		return kvi_fail_alloc(m->s->error, &m->s->alloc);
	for (size_t i = 0; i < m->versions.n; i++)
		order[i] = KVI_LIST(struct kvi_map_version, m->versions, i);
	qsort((void *)order, m->versions.n, sizeof *order, least_recently_used);
	for (size_t i = 0; i < m->versions.n && kvi_map_needed_bytes(m) > g->o->budget; i++) {
		if (is_young(g, order[i]))
			young++;
		else
			kvi_map_remove(m, order[i]);
	}
	if (kvi_map_needed_bytes(m) > g->o->budget && young)
		kvi_map_report(m,
		               "the budget is not met: %" PRIu64 " version%s used within the "
		               "grace period",
		               young, young == 1 ? " was" : "s were");
	kvi_free(&m->s->alloc, (void *)order);
	return KVARC_OK;
}

/* The mark for all versions of a session that go, the first of which is number i of the map. */
static kvarc_ret mark_session(struct kvi_gc *g, size_t i)
{
	const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, g->map.versions, i);
	const struct kvi_map_version *highest = v;
	while (!v->last) {
		v = KVI_LIST(struct kvi_map_version, g->map.versions, ++i);
		highest = v->removed ? v : highest;
	}
	return kvi_version_mark(g->s, &highest->key);
}

static kvarc_ret evict(struct kvi_gc *g)
{
	bool is_marked = false; /* the session of the version in hand */
	kvarc_ret ret = KVARC_OK;
	if (g->o->keep)
		keep_last(&g->map, g->o->keep);
	if (g->o->budget)
		ret = meet_budget(g);
	/* In the order of their numbers: if this ends early, a session has its last versions. */
	for (size_t i = 0; i < g->map.versions.n && !ret; i++) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, g->map.versions, i);
		if (!v->removed) {
			is_marked = is_marked && !v->last;
			continue;
		}
		if (!g->o->dry_run && !is_marked)
			ret = mark_session(g, i);
		is_marked = !v->last;
		if (!ret && !g->o->dry_run)
			ret = kvi_version_remove(g->s, &v->key, v->digest);
		g->result->versions += !ret;
		if (!ret)
			kvi_map_report(&g->map, "%s %s@%" PRIu64,
			               g->o->dry_run ? "would remove" : "removed", v->key.name,
			               v->key.number);
		if (ret == KVARC_END) /* others have removed it */
			ret = KVARC_OK;
	}
	return ret;
}

/* ----- which archives go ------------------------------------------------ */

/* What cannot be read may name anything: then nothing is removed. */
static kvarc_ret check_readable(struct kvi_gc *g)
{
	uint64_t unreadable = g->map.unreadable;
	for (size_t i = 0; i < g->map.versions.n; i++) {
		const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, g->map.versions,
		                                           i);
		if ((!v->lost && !v->lacking) || !gc_version_there(g, v))
			continue;
		kvi_map_report(&g->map, "%s@%" PRIu64 ": an archive that it needs is missing",
		               v->key.name, v->key.number);
		unreadable += v->lost && gc_is_unreadable(g, v);
	}
	g->result->unreadable = g->map.unreadable + g->map.unreadable_packs;
	if (!unreadable)
		return KVARC_OK;
	return kvi_fail(g->s->error, KVARC_DATA,
	                "store: nothing was removed, as what names archives cannot be read: see "
	                "'kvarc store verify'");
}

/* Archives that nothing needs and that are old enough, as far as their time is known. What is not
 * whole stays. */
static bool may_go(const struct kvi_gc *g, const struct kvi_map_pack *p)
{
	return !p->needed && !p->broken && gc_is_old(g, p);
}

static void count(struct kvi_gc *g)
{
	for (size_t i = 0; i < g->map.packs.n; i++) {
		const struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, g->map.packs, i);
		g->result->archives++;
		g->result->archive_bytes += p->bytes;
		g->result->young += !p->needed && !may_go(g, p);
	}
}

static kvarc_ret remove_packs(struct kvi_gc *g)
{
	kvarc_ret ret = g->o->no_repack ? KVARC_OK : repack_all(g);
	bool retired = false, full = false;
	for (size_t i = 0; i < g->map.packs.n && !ret && !full; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, g->map.packs, i);
		if (!may_go(g, p))
			continue;
		if (g->o->dry_run) {
			g->result->removed++;
			g->result->removed_bytes += p->bytes;
		} else {
			ret = kvi_gc_retire(g, p);
			/* On a full disk those that are retired so far make space for the rest. */
			full = ret == KVARC_IO && retired;
			retired |= p->retired;
			ret = full ? KVARC_OK : ret;
		}
	}
	if (full)
		kvi_map_report(&g->map, "%s; run gc again for the rest", g->s->error->text);
	if (!ret && !g->o->dry_run)
		ret = kvi_gc_look_again(g);
	if (!ret && !g->o->dry_run)
		ret = kvi_gc_delete(g);
	/* Also after a failure: nobody is to wait for what does not come. */
	kvarc_ret undone = g->o->dry_run ? KVARC_OK : kvi_gc_undo(g);
	return ret ? ret : undone;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret run(struct kvi_gc *g)
{
	kvarc_ret ret = kvi_fresh_index(g->s, &g->own);
	if (!ret)
		ret = kvi_map_make(&g->map, g->s, g->own, NULL, g->o->report, g->o->opaque);
	if (!ret)
		ret = check_readable(g);
	if (!ret)
		ret = evict(g);
	if (!ret) {
		count(g);
		ret = remove_packs(g);
	}
	if (!ret && !g->o->dry_run)
		ret = gc_sweep(g);
	return ret;
}

kvarc_ret kvarc_store_gc(kvarc_store *s, const kvarc_gc_options *options, kvarc_gc_result *result)
{
	static const kvarc_gc_options defaults = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result unused;
	if (!s)
		return KVARC_PROG;
	struct kvi_gc g = { .s = s,
		            .o = options ? options : &defaults,
		            .result = result ? result : &unused,
		            .now = kvi_store_now() };
	memset(g.result, 0, sizeof *g.result);
	kvarc_ret ret = KVI_CHECK_RESERVED(s->error, "kvarc_store_gc", "options", g.o);
	if (ret)
		return ret;
	g.own = s->index;
	ret = run(&g);
	kvi_gc_free(&g);
	kvi_own_index(s, &g.own);
	return ret;
}
