/* SPDX-License-Identifier: BSD-3-Clause */
/* repack_plan.c - which segments are needed of archives that no manifest names */
#include "config.h"

#include "repack_plan.h"

#include <stdlib.h>
#include <string.h>

/* The rank of archives that nothing needs: they are about to be removed. */
#define LEAVES UINT64_MAX
enum { SORT_LEAST = 1024 };

struct repack_planning {
	struct kvi_gc *g;
	struct kvi_list *candidates;
};

int kvi_needed_order(const void *a, const void *b)
{
	const struct kvi_needed_segment *x = a, *y = b;
	if (x->track != y->track)
		return x->track < y->track ? -1 : 1;
	return (x->t0 > y->t0) - (x->t0 < y->t0);
}

/* ----- candidates ------------------------------------------------ */

static int smallest_first(const void *a, const void *b)
{
	const struct kvi_map_pack *x = ((const struct kvi_candidate *)a)->pack;
	const struct kvi_map_pack *y = ((const struct kvi_candidate *)b)->pack;
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
		if (!p->needed || p->named || p->encrypted || !kvi_gc_is_old(x->g, p))
			continue;
		struct kvi_candidate *c = kvi_list_add(l, &x->g->s->alloc, sizeof *c);
		if (!c)
			return kvi_fail_alloc(x->g->s->error, &x->g->s->alloc);
		c->pack = p;
	}
	if (l->n)
		qsort(l->p, l->n, sizeof(struct kvi_candidate), smallest_first);
	for (size_t i = 0; i < l->n; i++)
		KVI_LIST(struct kvi_candidate, *l, i)->pack->rank = i + 1;
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
static void sort_needed(struct kvi_candidate *c)
{
	struct kvi_list *l = &c->needed;
	size_t n = 0;
	if (l->n)
		qsort(l->p, l->n, sizeof(struct kvi_needed_segment), kvi_needed_order);
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_needed_segment *s = KVI_LIST(struct kvi_needed_segment, *l, i);
		if (n && kvi_needed_order(s, KVI_LIST(struct kvi_needed_segment, *l, n - 1)) == 0)
			continue;
		*KVI_LIST(struct kvi_needed_segment, *l, n) = *s;
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
	struct kvi_candidate *c = KVI_LIST(struct kvi_candidate, *x->candidates, rank - 1);
	/* Each turn of a session needs nearly the same. */
	if (c->needed.n >= 2 * c->unique + SORT_LEAST)
		sort_needed(c);
	struct kvi_needed_segment *n = kvi_list_add(&c->needed, &x->g->s->alloc, sizeof *n);
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

kvarc_ret kvi_repack_plan(struct kvi_gc *g, struct kvi_list *candidates)
{
	struct repack_planning x = { g, candidates };
	kvarc_ret ret = find_candidates(&x);
	if (!ret && candidates->n)
		ret = find_needed(&x);
	for (size_t i = 0; i < candidates->n; i++)
		sort_needed(KVI_LIST(struct kvi_candidate, *candidates, i));
	return ret;
}

void kvi_repack_plan_free(struct kvi_gc *g, struct kvi_list *candidates)
{
	for (size_t i = 0; i < candidates->n; i++)
		kvi_free(&g->s->alloc, KVI_LIST(struct kvi_candidate, *candidates, i)->needed.p);
	kvi_free(&g->s->alloc, candidates->p);
	*candidates = (struct kvi_list){ 0 };
}
