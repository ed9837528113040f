/* SPDX-License-Identifier: BSD-3-Clause */
/* store_gc.c - removes versions beyond a budget, and archives that no version needs */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "repack.h"
#include "util/arguments.h"

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
	return v->used > g->now - kvi_gc_grace(g);
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
		kvi_map_report(m, "the budget is not met: %" PRIu64 " version%s used within the "
		               "grace period", young, young == 1 ? " was" : "s were");
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
		if ((!v->lost && !v->lacking) || !kvi_gc_version_there(g, v))
			continue;
		kvi_map_report(&g->map, "%s@%" PRIu64 ": an archive that it needs is missing",
		               v->key.name, v->key.number);
		unreadable += v->lost && kvi_gc_is_unreadable(g, v);
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
	return !p->needed && !p->broken && kvi_gc_is_old(g, p);
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
	kvarc_ret ret = g->o->no_repack ? KVARC_OK : kvi_repack(g);
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
		ret = kvi_gc_sweep(g);
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
