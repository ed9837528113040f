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
 * over after STALE_SECONDS. Between them lies what clocks may differ by, which is an hour. The
 * grace period is longer than that: what was put or loaded within the hour before a gc stays, also
 * when the clock of the gc is early and the one of the load late.
 */
enum { GRACE_SECONDS = 7200, DELETE_SECONDS = 1800, STALE_SECONDS = 7200 };
/* A look at the keys of all manifests is good for this long, or for as long as it took itself. */
enum { LOOK_MILLISECONDS = 20 };

/* The grace period in seconds. */
static int64_t gc_grace(const struct kvi_gc *gc)
{
	return gc->o->no_grace ? 0 : gc->o->grace ? (int64_t)gc->o->grace : GRACE_SECONDS;
}

/* Whether an archive is older than the grace period, as far as its time is known. */
static bool gc_is_old(const struct kvi_gc *gc, const struct kvi_map_pack *pack)
{
	return pack->time <= gc->now - gc_grace(gc);
}

/* The tombstone of an archive. *stale: its gc must have ended. Returns OK, END (there is none),
 * IO. */
static kvarc_ret find_tombstone(struct kvi_gc *gc, const struct kvi_map_pack *pack, bool *stale)
{
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_retired_key(key, pack->id);
	kvarc_ret ret = gc->s->backend->calls->stat(gc->s->backend, key, &object, gc->s->error);
	*stale = !ret && object.time && object.time <= gc->now - STALE_SECONDS;
	return ret;
}

/* Whether an archive has the tombstone of another gc that may be at work. */
static bool gc_is_taken(struct kvi_gc *gc, const struct kvi_map_pack *pack)
{
	bool stale;
	return find_tombstone(gc, pack, &stale) != KVARC_END && !stale;
}

static int64_t read_tombstone(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	memcpy(buf, (const char *)opaque + offset, bytes);
	return (int64_t)bytes;
}

kvarc_ret kvi_gc_retire(struct kvi_gc *gc, struct kvi_map_pack *pack)
{
	static char text[] = "retired\n";
	const struct kvi_backend_calls *calls = gc->s->backend->calls;
	kvarc_source source = {
		.read = read_tombstone, .opaque = text, .size = sizeof text - 1, .memory = text
	};
	char key[KVI_PACK_KEY];
	kvi_retired_key(key, pack->id);
	kvarc_ret ret = calls->put(gc->s->backend, key, &source, gc->s->error);
	/* A full disk may have a name left, though no block: what a tombstone says is its name. */
	if (ret == KVARC_IO) {
		source.size = 0;
		ret = calls->put(gc->s->backend, key, &source, gc->s->error);
	}
	pack->retired = ret == KVARC_OK;
	if (ret == KVARC_END)
		ret = find_tombstone(gc, pack, &pack->retired);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* ----- the second look ------------------------------------------------ */

/* Archives that are needed now are needed in the first map. */
static void count_again(struct kvi_gc *gc, const struct kvi_store_map *again)
{
	for (size_t i = 0; i < again->packs.n; i++) {
		const struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, again->packs, i);
		struct kvi_map_pack *first = kvi_map_find(&gc->map, p->id);
		if (first)
			first->needed += p->needed;
	}
}

/* Whether a version that was listed is there, still: else it is no loss that its archive is not. */
static bool gc_version_there(struct kvi_gc *gc, const struct kvi_map_version *version)
{
	struct kvi_manifest m;
	char key[KVI_KEY_MAX + 1];
	return kvi_version_key(key, version->key.name_space, version->key.name,
	                       version->key.number) &&
	       kvi_manifest_read(gc->s, key, &m) != KVARC_END;
}

/* Whether the archive of a version that is lost is there, but cannot be read: what it names is not
 * known. Of one that is gone nothing can be loaded any more, whatever it has named. */
static bool gc_is_unreadable(struct kvi_gc *gc, const struct kvi_map_version *version)
{
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, version->id);
	return gc->s->backend->calls->stat(gc->s->backend, key, &object, NULL) != KVARC_END;
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
static bool was_seen(const struct kvi_gc *gc, const char *key, uint8_t hash[16])
{
	kvi_store_h128(hash, kvi_h128(key, strlen(key)));
	return gc->seen.n && bsearch(hash, gc->seen.p, gc->seen.n, 16, by_hash);
}

static kvarc_ret note_seen(struct kvi_gc *gc, const char *key)
{
	uint8_t hash[16], *to;
	if (was_seen(gc, key, hash))
		return KVARC_OK;
	to = kvi_list_add(&gc->seen, &gc->s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(gc->s->error, &gc->s->alloc);
	memcpy(to, hash, 16);
	return KVARC_OK;
}

static void sort_seen(struct kvi_gc *gc)
{
	if (gc->seen.n)
		qsort(gc->seen.p, gc->seen.n, 16, by_hash);
}

void kvi_gc_free(struct kvi_gc *gc)
{
	kvi_map_free(&gc->map);
	kvi_free(&gc->s->alloc, gc->seen.p);
	kvi_free(&gc->s->alloc, gc->retired.p);
	gc->seen = gc->retired = (struct kvi_list){ 0 };
}

static kvarc_ret fail_unknown(struct kvi_gc *gc)
{
	return kvi_fail(gc->s->error, KVARC_DATA,
	                "store: no more archives were removed, as a version that was saved "
	                "meanwhile cannot be read; try again");
}

/* Notes the versions that were read, so that they are not read again. */
static kvarc_ret note_versions(struct kvi_gc *gc, const struct kvi_store_map *again)
{
	kvarc_ret ret = KVARC_OK;
	gc->seen.n = 0;
	for (size_t i = 0; i < again->versions.n && !ret; i++) {
		const struct kvi_session_key *k =
			&KVI_LIST(struct kvi_map_version, again->versions, i)->key;
		char key[KVI_KEY_MAX + 1];
		if (kvi_version_key(key, k->name_space, k->name, k->number)) {
			uint8_t *to = kvi_list_add(&gc->seen, &gc->s->alloc, 16);
			if (!to)
				return kvi_fail_alloc(gc->s->error, &gc->s->alloc);
			kvi_store_h128(to, kvi_h128(key, strlen(key)));
		}
	}
	sort_seen(gc);
	return ret;
}

/* Tombstones are listed first: an archive whose tombstone is gone, too, is missing by then. */
kvarc_ret kvi_gc_look_again(struct kvi_gc *gc)
{
	struct kvi_store_map again = { 0 };
	const struct kvi_holder_rank rank = { kvi_protocol_rank_listed, &gc->retired };
	bool unknown = false;
	gc->looked = milliseconds();
	gc->retired.n = 0;
	kvarc_ret ret = kvi_protocol_retired(gc->s, &gc->retired);
	if (!ret)
		ret = kvi_map_make(&again, gc->s, gc->own, &rank, NULL, NULL);
	for (size_t i = 0; i < again.versions.n && !ret; i++) {
		const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, again.versions,
		                                           i);
		unknown |= v->lost && gc_is_unreadable(gc, v);
	}
	if (!ret && (again.unreadable || unknown))
		ret = fail_unknown(gc);
	if (!ret)
		ret = note_versions(gc, &again);
	if (!ret)
		count_again(gc, &again);
	kvi_map_free(&again);
	return ret;
}

static bool skip_seen(void *opaque, const char *key)
{
	uint8_t hash[16];
	return was_seen(opaque, key, hash);
}

/* A version that was put since the last look keeps what it needs. */
static kvarc_ret keep_new(void *opaque, const char *key, const struct kvi_session_key *session_key,
                          const struct kvi_manifest *manifest, kvarc_ret wrong)
{
	struct kvi_gc *g = opaque;
	const struct kvi_holder_rank rank = { kvi_protocol_rank_listed, &g->retired };
	struct kvi_map_version v = { .key = *session_key };
	struct kvi_list ids = { 0 };
	uint64_t unreadable = 0;
	if (wrong)
		return wrong == KVARC_IO ? wrong : fail_unknown(g);
	kvarc_ret ret = kvi_index_refresh(g->s, g->s->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(g->s, &manifest->needs, &rank, &ids);
	memcpy(v.id, manifest->needs.pack, 16);
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

static kvarc_ret look_at_new(struct kvi_gc *gc)
{
	const int64_t begin = milliseconds();
	const int64_t good = gc->took > LOOK_MILLISECONDS ? gc->took : LOOK_MILLISECONDS;
	if (begin - gc->looked < good)
		return KVARC_OK;
	kvarc_ret ret = kvi_manifests(gc->s, KVI_SESSIONS, skip_seen, keep_new, gc);
	sort_seen(gc);
	gc->looked = begin;
	gc->took = milliseconds() - begin;
	return ret;
}

/* ----- and out ------------------------------------------------ */

static kvarc_ret remove_tombstone(struct kvi_gc *gc, struct kvi_map_pack *pack)
{
	char key[KVI_PACK_KEY];
	kvi_retired_key(key, pack->id);
	kvarc_ret ret = gc->s->backend->calls->remove(gc->s->backend, key, gc->s->error);
	pack->retired = false;
	return ret;
}

static kvarc_ret delete_pack(struct kvi_gc *gc, struct kvi_map_pack *pack)
{
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, pack->id);
	kvi_pack_forget(gc->s, pack->id);
	kvarc_ret ret = gc->s->backend->calls->remove(gc->s->backend, key, gc->s->error);
	if (ret)
		return ret;
	gc->result->repacked += pack->copy_bytes != 0;
	gc->result->repacked_bytes += pack->copy_bytes ? pack->bytes - pack->copy_bytes : 0;
	gc->result->removed += !pack->copy_bytes;
	gc->result->removed_bytes += pack->copy_bytes ? 0 : pack->bytes;
	/* The index is a cache: a failure shows itself when it is used. */
	if (kvi_index_begin_change(gc->own) == KVARC_OK)
		(void)kvi_index_end_change(gc->own, kvi_index_remove_pack(gc->own, pack->id));
	return remove_tombstone(gc, pack);
}

kvarc_ret kvi_gc_delete(struct kvi_gc *gc)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < gc->map.packs.n && !ret; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, gc->map.packs, i);
		if (!p->retired || p->needed)
			continue;
		if (kvi_store_now() - gc->now > DELETE_SECONDS)
			return kvi_fail(gc->s->error, KVARC_IO,
			                "store: gc took more than half an hour and stopped; run it "
			                "again");
		ret = look_at_new(gc);
		if (!ret && !p->needed)
			ret = delete_pack(gc, p);
	}
	return ret;
}

kvarc_ret kvi_gc_undo(struct kvi_gc *gc)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < gc->map.packs.n; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, gc->map.packs, i);
		kvarc_ret one = p->retired ? remove_tombstone(gc, p) : KVARC_OK;
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
static kvarc_ret gc_sweep(struct kvi_gc *gc)
{
	struct kvi_backend *b = gc->s->backend;
	struct sweeping w = { .g = gc };
	kvarc_ret ret = b->calls->list(b, KVI_RETIRED, see_tombstone, &w, gc->s->error);
	for (size_t i = 0; i < w.ids.n && !ret; i++) {
		char key[KVI_PACK_KEY];
		kvi_retired_key(key, (const uint8_t *)w.ids.p + 16 * i);
		ret = b->calls->remove(b, key, gc->s->error);
	}
	kvi_free(&gc->s->alloc, w.ids.p);
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
	size_t unique;          /* length of `needed` when it was sorted last */
};

/* The rank of archives that nothing needs: they are about to be removed. */
#define LEAVES UINT64_MAX
enum { SORT_LEAST = 1024 };

struct repack_planning {
	struct kvi_gc *g;
	struct kvi_list *candidates;
};

/* Compares two struct needed_segment, for qsort and bsearch. */
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

static kvarc_ret find_candidates(struct repack_planning *planning)
{
	struct kvi_list *l = planning->candidates;
	for (size_t i = 0; i < planning->g->map.packs.n; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, planning->g->map.packs, i);
		p->rank = p->needed ? 0 : LEAVES;
		if (!p->needed || p->named || p->encrypted || !gc_is_old(planning->g, p))
			continue;
		struct unnamed_pack *c = kvi_list_add(l, &planning->g->s->alloc, sizeof *c);
		if (!c)
			return kvi_fail_alloc(planning->g->s->error, &planning->g->s->alloc);
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
static void sort_needed(struct unnamed_pack *pack)
{
	struct kvi_list *l = &pack->needed;
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
	l->n = pack->unique = n;
}

static kvarc_ret take_row(void *opaque, const struct kvi_index_row *row)
{
	struct repack_planning *x = opaque;
	const uint64_t rank = rank_of(x, row->id);
	if (!rank || rank == LEAVES)
		return KVARC_OK;
	struct unnamed_pack *c = KVI_LIST(struct unnamed_pack, *x->candidates, rank - 1);
	/* Most segments occur again for each turn of a session. */
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

static kvarc_ret list_archives(struct repack_planning *planning, struct kvi_list *ids)
{
	const struct kvi_list *l = &planning->g->map.versions;
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, *l, i);
		uint8_t *to = v->removed || v->encrypted
		                      ? NULL
		                      : kvi_list_add(ids, &planning->g->s->alloc, 16);
		if (to)
			memcpy(to, v->id, 16);
		else if (!v->removed && !v->encrypted)
			return kvi_fail_alloc(planning->g->s->error, &planning->g->s->alloc);
	}
	if (ids->n)
		qsort(ids->p, ids->n, 16, by_archive);
	return KVARC_OK;
}

static kvarc_ret find_needed(struct repack_planning *planning)
{
	const struct kvi_holder_rank rank = { rank_of, planning };
	struct kvi_list ids = { 0 };
	kvarc_ret ret = list_archives(planning, &ids);
	for (size_t i = 0; i < ids.n && !ret; i++) {
		const uint8_t *id = (const uint8_t *)ids.p + 16 * i;
		if (i && memcmp(id - 16, id, 16) == 0)
			continue;
		ret = kvi_protocol_holders(planning->g->s, id, &rank, take_row, planning);
		if (ret == KVARC_END) /* END: something is missing, which was reported */
			ret = KVARC_OK;
	}
	kvi_free(&planning->g->s->alloc, ids.p);
	return ret;
}

/*
 * Finds those of a gc's map that are old enough, neither encrypted nor named by a manifest, and
 * what is needed of them: of several archives that hold a segment those that have to stay count
 * before candidates, and of these the smallest. Sets `rank` in the map. Entries of candidates are
 * struct unnamed_pack; repack_plan_free frees them, also after a failure. Returns OK, MEM,
 * MEMLIMIT, IO, DATA.
 */
static kvarc_ret repack_plan(struct kvi_gc *gc, struct kvi_list *candidates)
{
	struct repack_planning x = { gc, candidates };
	kvarc_ret ret = find_candidates(&x);
	if (!ret && candidates->n)
		ret = find_needed(&x);
	for (size_t i = 0; i < candidates->n; i++)
		sort_needed(KVI_LIST(struct unnamed_pack, *candidates, i));
	return ret;
}

/* Frees what repack_plan has made. */
static void repack_plan_free(struct kvi_gc *gc, struct kvi_list *candidates)
{
	for (size_t i = 0; i < candidates->n; i++)
		kvi_free(&gc->s->alloc, KVI_LIST(struct unnamed_pack, *candidates, i)->needed.p);
	kvi_free(&gc->s->alloc, candidates->p);
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
	uint64_t *ends;         /* per track the end of the tokens that are needed */
	uint64_t bytes, needed; /* raw bytes of what it holds, and of what is needed of that */
	size_t found;           /* segments that are needed */
	struct kvi_store_rows *named; /* tokens of each track, of other archives */
};

/* ----- whether it is worth it ------------------------------------------------ */

static bool is_needed(const struct repack_copy *copy, const kvarc_stored *stored)
{
	const struct needed_segment key = { stored->track, stored->t0 };
	const struct kvi_list *l = &copy->c->needed;
	return bsearch(&key, l->p, l->n, sizeof key, needed_order) != NULL;
}

/* END: at least half of it is needed. */
static kvarc_ret measure(struct repack_copy *copy)
{
	const kvarc_geometry *g = kvarc_reader_geometry(copy->from.r);
	kvarc_ret ret = KVARC_OK;
	copy->ends = kvi_calloc(&copy->s->alloc, g->n_tracks + 1, sizeof *copy->ends);
	copy->named = kvi_calloc(&copy->s->alloc, g->n_tracks + 1, sizeof *copy->named);
	if (!copy->ends || !copy->named)
		return kvi_fail_alloc(copy->s->error, &copy->s->alloc);
	for (uint64_t i = 0; !ret; i++) {
		kvarc_stored s;
		unsigned flags;
		ret = kvarc_reader_segment_at(copy->from.r, i, &s, &flags);
		if (!ret && flags & KVARC_SEGMENT_FORKED)
			return KVARC_END; /* no store has made it */
		if (ret || (flags & KVARC_SEGMENT_STORED))
			continue;
		const bool needed = is_needed(copy, &s);
		if (kvi_add(copy->bytes, s.bytes, &copy->bytes))
			return KVARC_END;
		copy->needed += needed ? s.bytes : 0;
		copy->found += needed;
		if (needed)
			copy->ends[s.track] = s.t0 + s.n;
	}
	if (ret != KVARC_END)
		return ret;
	return copy->found == copy->c->needed.n && copy->needed < copy->bytes - copy->needed
	               ? KVARC_OK
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

static kvarc_ret list_rows(struct repack_copy *copy)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_pack(copy->s->index, copy->c->pack->id, &pack);
	return ret ? ret : kvi_index_rows(copy->s->index, pack, add_row, copy);
}

static kvarc_ret missing(struct repack_copy *copy)
{
	return kvi_fail(copy->s->error, KVARC_STORE,
	                "store: a segment before those that are needed "
	                "is missing");
}

/* Finds a segment that the archive holds. Nobody could verify a copy of one that cannot be decoded
 * (damage, no profile). */
static kvarc_ret find_own(struct repack_copy *copy, const kvarc_stored *stored,
                          struct kvi_kept *kept)
{
	for (size_t i = 0; i < copy->rows.n; i++) {
		struct kvi_index_row *row = KVI_LIST(struct kvi_index_row, copy->rows, i);
		if (row->track != stored->track || row->t0 != stored->t0)
			continue;
		kvarc_ret ret = row->has_digest ? KVARC_OK : kvi_row_digest(copy->s, row);
		memcpy(kept->digest, row->digest, sizeof kept->digest);
		return ret;
	}
	return missing(copy);
}

/* Names a segment of another archive: its tokens check the chain value. */
static kvarc_ret name_other(struct repack_copy *copy, const kvarc_stored *stored,
                            struct kvi_kept *kept)
{
	struct kvi_store_rows *rows = &copy->named[stored->track];
	struct kvi_index_row row;
	kvarc_ret ret = KVARC_OK;
	if (!stored->has_chain)
		return KVARC_OK;
	if (!rows->views)
		ret = kvi_rows_make(copy->s, rows, kvarc_reader_geometry(copy->from.r),
		                    stored->track);
	if (!ret)
		ret = kvi_content_find(copy->s, NULL, copy->from.name_space, stored->chain, NULL,
		                       &row);
	if (!ret)
		ret = kvi_rows_read(copy->s, &row, rows, false);
	if (ret == KVARC_END || (!ret && (rows->n != stored->n || !rows->has_ids)))
		return missing(copy);
	kept->has_ids = true;
	memcpy(kept->ids, rows->ids, stored->n * sizeof *kept->ids);
	memcpy(kept->positions, rows->positions, stored->n * sizeof *kept->positions);
	return ret;
}

static kvarc_ret keep(void *opaque, const kvarc_stored *stored, unsigned flags,
                      struct kvi_kept *kept)
{
	struct repack_copy *x = opaque;
	if (flags & KVARC_SEGMENT_STORED)
		return name_other(x, stored, kept);
	kept->copied = is_needed(x, stored);
	return find_own(x, stored, kept);
}

/* ----- the copy ------------------------------------------------ */

/* END: it is not smaller than three quarters. */
static kvarc_ret write_copy(struct repack_copy *copy)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_ret ret = list_rows(copy);
	if (!ret)
		ret = kvi_new_archive_begin(&copy->to, copy->s);
	if (ret)
		return ret;
	wo.common = copy->s->options.common;
	wo.common.error = copy->s->error;
	wo.flags = KVARC_WRITE_FILE_ID | KVARC_WRITE_STORED;
	memcpy(wo.file_id, copy->to.id, sizeof wo.file_id);
	ret = kvi_keep_segments(copy->from.r, &copy->to.sink, &wo, copy->ends, keep, copy);
	if (ret && copy->from.error.code == ret)
		kvi_fail(copy->s->error, ret, "store: %s: %s", copy->from.key,
		         copy->from.error.text);
	if (!ret)
		ret = kvi_new_archive_end(&copy->to, copy->s);
	return !ret && copy->to.bytes > copy->c->pack->bytes / 4 * 3 ? KVARC_END : ret;
}

/* Savers of this machine find it at once. It is a cache: a failure shows itself when it is used. */
static void add_to_index(struct repack_copy *copy)
{
	struct kvi_store_index *own = copy->g->own;
	kvarc_reader_options o;
	kvarc_error e = { .text = "" };
	kvarc_reader *r;
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_pack_reader_options(copy->s, &o, &e);
	kvi_pack_key(key, copy->to.id);
	if (copy->s->backend->calls->stat(copy->s->backend, key, &object, NULL) ||
	    kvarc_reader_open(&r, &copy->to.source, &o))
		return;
	if (kvi_index_begin_change(own) == KVARC_OK) {
		kvarc_ret ret = kvi_index_fill(copy->s, own, copy->to.id, &object, r, NULL, true);
		(void)kvi_index_end_change(own, ret);
	}
	kvarc_reader_close(&r);
}

static kvarc_ret put_copy(struct repack_copy *copy)
{
	struct kvi_backend *b = copy->s->backend;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, copy->to.id);
	kvarc_ret ret = b->calls->put(b, key, &copy->to.source, copy->s->error);
	if (!ret)
		add_to_index(copy);
	return ret == KVARC_END
	               ? kvi_fail(copy->s->error, KVARC_IO, "store: %s is there already", key)
	               : ret;
}

static void end(struct repack_copy *copy)
{
	for (uint32_t i = 0; copy->named && i < kvarc_reader_geometry(copy->from.r)->n_tracks; i++)
		kvi_rows_free(copy->s, &copy->named[i]);
	kvi_free(&copy->s->alloc, copy->named);
	kvi_free(&copy->s->alloc, copy->ends);
	kvi_free(&copy->s->alloc, copy->rows.p);
	kvi_new_archive_close(&copy->to);
	kvi_pack_close(&copy->from);
}

/* END: it stays as it is. */
static kvarc_ret copy(struct kvi_gc *gc, const struct unnamed_pack *pack)
{
	struct repack_copy x = { .g = gc, .s = gc->s, .c = pack, .to = { .fd = -1 } };
	kvarc_ret ret = kvi_pack_open(gc->s, &x.from, pack->pack->id, false, NULL);
	if (ret)
		return ret;
	ret = measure(&x);
	if (!ret)
		ret = write_copy(&x);
	if (!ret && !gc->o->dry_run)
		ret = put_copy(&x);
	if (!ret)
		pack->pack->copy_bytes = x.to.bytes;
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

/* Whether the index shows that all segments of an archive are needed, as is so for most: then it
 * need not be opened. */
static bool is_whole(struct kvi_gc *gc, const struct unnamed_pack *unnamed_pack)
{
	uint64_t n = 0;
	int64_t pack;
	return kvi_index_find_pack(gc->s->index, unnamed_pack->pack->id, &pack) == KVARC_OK &&
	       kvi_index_rows(gc->s->index, pack, count_row, &n) == KVARC_OK &&
	       n == unnamed_pack->needed.n;
}

static void report(struct kvi_gc *gc, const struct unnamed_pack *pack)
{
	const struct kvi_map_pack *p = pack->pack;
	char hex[33];
	kvi_hex(hex, p->id);
	gc->result->repacked += gc->o->dry_run != 0;
	gc->result->repacked_bytes += gc->o->dry_run ? p->bytes - p->copy_bytes : 0;
	if (gc->o->dry_run)
		kvi_map_report(&gc->map,
		               "archive %s: a copy of what is needed takes %" PRIu64 " of %" PRIu64
		               " bytes",
		               hex, p->copy_bytes, p->bytes);
}

/* *go_on false: the store has no capacity for copies; archives that need none may still go. */
static kvarc_ret repack(struct kvi_gc *gc, struct unnamed_pack *pack, bool *go_on)
{
	char hex[33];
	if (!pack->needed.n) {
		pack->pack->needed = 0;
		return KVARC_OK;
	}
	if (!*go_on || is_whole(gc, pack) || gc_is_taken(gc, pack->pack))
		return KVARC_OK;
	kvarc_ret ret = copy(gc, pack);
	if (!ret) {
		report(gc, pack);
		pack->pack->needed = gc->o->dry_run ? pack->pack->needed : 0;
		return KVARC_OK;
	}
	if (ret == KVARC_MEM || kvi_index_damaged(gc->s->index))
		return ret;
	kvi_hex(hex, pack->pack->id);
	if (ret != KVARC_END)
		kvi_map_report(&gc->map, "archive %s stays as it is: %.300s", hex,
		               gc->s->error->text);
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
static kvarc_ret repack_all(struct kvi_gc *gc)
{
	struct kvi_list candidates = { 0 };
	bool go_on = true;
	kvarc_ret ret = repack_plan(gc, &candidates);
	for (size_t i = 0; i < candidates.n && !ret; i++) {
		go_on = go_on && kvi_store_now() - gc->now <= BEGIN_SECONDS;
		ret = repack(gc, KVI_LIST(struct unnamed_pack, candidates, i), &go_on);
	}
	repack_plan_free(gc, &candidates);
	/* The rest of the gc needs less memory. */
	if (ret == KVARC_MEMLIMIT) {
		kvi_map_report(&gc->map, "no archive was repacked: %.300s", gc->s->error->text);
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
static void keep_last(struct kvi_store_map *map, uint64_t keep)
{
	for (size_t end = map->versions.n, i = map->versions.n; i-- > 0;) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, map->versions, i);
		if (v->last)
			end = i + 1;
		if (end - i > keep)
			kvi_map_remove(map, v);
	}
}

/* Whether a version was saved or loaded lately: a budget is no reason to remove what is in use. */
static bool is_young(const struct kvi_gc *gc, const struct kvi_map_version *version)
{
	return version->used > gc->now - gc_grace(gc);
}

static kvarc_ret meet_budget(struct kvi_gc *gc)
{
	struct kvi_store_map *m = &gc->map;
	struct kvi_map_version **order = kvi_array(&m->s->alloc, m->versions.n + 1, sizeof(void *));
	if (!order)
		return kvi_fail_alloc(m->s->error, &m->s->alloc);
	for (size_t i = 0; i < m->versions.n; i++)
		order[i] = KVI_LIST(struct kvi_map_version, m->versions, i);
	qsort((void *)order, m->versions.n, sizeof *order, least_recently_used);
	for (size_t i = 0; i < m->versions.n && kvi_map_needed_bytes(m) > gc->o->budget; i++) {
		if (!is_young(gc, order[i]))
			kvi_map_remove(m, order[i]);
	}
	const uint64_t needed = kvi_map_needed_bytes(m);
	gc->result->over_budget = needed > gc->o->budget ? needed - gc->o->budget : 0;
	kvi_free(&m->s->alloc, (void *)order);
	return KVARC_OK;
}

/* The mark for all versions of a session that go, the first of which is number i of the map. */
static kvarc_ret mark_session(struct kvi_gc *gc, size_t i)
{
	const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, gc->map.versions, i);
	const struct kvi_map_version *highest = v;
	while (!v->last) {
		v = KVI_LIST(struct kvi_map_version, gc->map.versions, ++i);
		highest = v->removed ? v : highest;
	}
	return kvi_version_mark(gc->s, &highest->key);
}

static kvarc_ret evict(struct kvi_gc *gc)
{
	bool is_marked = false; /* whether the session of the current version has its mark */
	kvarc_ret ret = KVARC_OK;
	if (gc->o->keep)
		keep_last(&gc->map, gc->o->keep);
	if (gc->o->budget)
		ret = meet_budget(gc);
	/* Versions go in the order of their numbers: if this ends early, a session has its last
	 * versions. */
	for (size_t i = 0; i < gc->map.versions.n && !ret; i++) {
		struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, gc->map.versions, i);
		if (!v->removed) {
			is_marked = is_marked && !v->last;
			continue;
		}
		if (!gc->o->dry_run && !is_marked)
			ret = mark_session(gc, i);
		is_marked = !v->last;
		if (!ret && !gc->o->dry_run)
			ret = kvi_version_remove(gc->s, &v->key, v->digest);
		gc->result->versions += !ret;
		if (!ret)
			kvi_map_report(&gc->map, "%s %s@%" PRIu64,
			               gc->o->dry_run ? "would remove" : "removed", v->key.name,
			               v->key.number);
		if (ret == KVARC_END) /* others have removed it */
			ret = KVARC_OK;
	}
	return ret;
}

/* ----- which archives go ------------------------------------------------ */

/* Fails where a manifest, or the archive of a version, cannot be read: it may name anything, so
 * nothing is removed. */
static kvarc_ret check_readable(struct kvi_gc *gc)
{
	uint64_t unreadable = gc->map.unreadable;
	for (size_t i = 0; i < gc->map.versions.n; i++) {
		const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, gc->map.versions,
		                                           i);
		if ((!v->lost && !v->lacking) || !gc_version_there(gc, v))
			continue;
		kvi_map_report(&gc->map, "%s@%" PRIu64 ": an archive that it needs is missing",
		               v->key.name, v->key.number);
		unreadable += v->lost && gc_is_unreadable(gc, v);
	}
	gc->result->unreadable = gc->map.unreadable + gc->map.unreadable_packs;
	if (!unreadable)
		return KVARC_OK;
	return kvi_fail(gc->s->error, KVARC_DATA,
	                "store: nothing was removed, as what names archives cannot be read: see "
	                "'kvarc store verify'");
}

/* Archives that nothing needs and that are old enough, as far as their time is known. What is not
 * whole stays. */
static bool may_go(const struct kvi_gc *gc, const struct kvi_map_pack *pack)
{
	return !pack->needed && !pack->broken && gc_is_old(gc, pack);
}

static void count(struct kvi_gc *gc)
{
	for (size_t i = 0; i < gc->map.packs.n; i++) {
		const struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, gc->map.packs, i);
		gc->result->archives++;
		gc->result->archive_bytes += p->bytes;
		gc->result->young += !p->needed && !may_go(gc, p);
	}
}

static kvarc_ret remove_packs(struct kvi_gc *gc)
{
	kvarc_ret ret = gc->o->no_repack ? KVARC_OK : repack_all(gc);
	bool retired = false, full = false;
	for (size_t i = 0; i < gc->map.packs.n && !ret && !full; i++) {
		struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, gc->map.packs, i);
		if (!may_go(gc, p))
			continue;
		if (gc->o->dry_run) {
			gc->result->removed++;
			gc->result->removed_bytes += p->bytes;
		} else {
			ret = kvi_gc_retire(gc, p);
			/* Archives that are retired so far make space on a full disk for the
			 * rest. */
			full = ret == KVARC_IO && retired;
			retired |= p->retired;
			ret = full ? KVARC_OK : ret;
		}
	}
	if (full)
		kvi_map_report(&gc->map, "%s; run gc again for the rest", gc->s->error->text);
	if (!ret && !gc->o->dry_run)
		ret = kvi_gc_look_again(gc);
	if (!ret && !gc->o->dry_run)
		ret = kvi_gc_delete(gc);
	/* Tombstones of archives that stay go also after a failure: no save should wait for a
	 * removal that does not come. */
	kvarc_ret undone = gc->o->dry_run ? KVARC_OK : kvi_gc_undo(gc);
	return ret ? ret : undone;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret run(struct kvi_gc *gc)
{
	kvarc_ret ret = kvi_fresh_index(gc->s, &gc->own);
	if (!ret)
		ret = kvi_map_make(&gc->map, gc->s, gc->own, NULL, gc->o->report, gc->o->opaque);
	if (!ret)
		ret = check_readable(gc);
	if (!ret)
		ret = evict(gc);
	if (!ret) {
		count(gc);
		ret = remove_packs(gc);
	}
	if (!ret && !gc->o->dry_run)
		ret = gc_sweep(gc);
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
