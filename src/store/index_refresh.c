/* SPDX-License-Identifier: BSD-3-Clause */
/* index_refresh.c - brings the index of a store up to date with the archives that are there */
#include "store_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BATCH = 64,       /* archives between two commits: others write to the index meanwhile */
	BULK_LEAST = 256, /* archives from which on look-ups wait for all of them */
	REPORT_MOST = 320
};

/* An archive that the store has. */
struct listed_pack {
	uint8_t id[16];
	struct kvi_object object; /* without its key */
	bool in_index;
};

struct refreshing {
	struct kvarc_store *s;
	struct kvi_store_index *x;
	struct kvi_list packs; /* struct listed_pack, by id */
	struct kvi_list gone;  /* ids of archives to remove, or to read again */
	kvarc_ret ret;
	void (*report)(void *opaque, const char *text);
	void *opaque;
	uint64_t unreadable;
	struct kvi_h128 listing;
};

/* ----- what is there ------------------------------------------------ */

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct listed_pack *)a)->id, ((const struct listed_pack *)b)->id, 16);
}

static int add_listed(void *opaque, const struct kvi_object *object)
{
	struct refreshing *f = opaque;
	struct listed_pack p = { .object = *object }, *to;
	p.object.key = NULL;
	if (!kvi_pack_key_parse(p.id, object->key))
		return 0;
	to = kvi_list_add(&f->packs, &f->s->alloc, sizeof *to);
	if (!to) {
		f->ret = kvi_fail_alloc(f->s->error, &f->s->alloc);
		return 1;
	}
	*to = p;
	return 0;
}

static kvarc_ret list_packs(struct refreshing *refreshing)
{
	kvarc_ret ret = refreshing->s->backend->calls->list(
		refreshing->s->backend, KVI_PACKS, add_listed, refreshing, refreshing->s->error);
	if (refreshing->ret)
		ret = refreshing->ret;
	if (!ret && refreshing->packs.n)
		qsort(refreshing->packs.p, refreshing->packs.n, sizeof(struct listed_pack), by_id);
	return ret;
}

static kvarc_ret compare(void *opaque, const struct kvi_index_pack *pack)
{
	struct refreshing *f = opaque;
	struct listed_pack key, *found = NULL;
	memcpy(key.id, pack->id, 16);
	if (f->packs.n)
		found = bsearch(&key, f->packs.p, f->packs.n, sizeof key, by_id);
	if (found && !pack->lacks && kvi_index_same_object(pack, &found->object)) {
		/* A locked archive is tried again where there are keys. */
		found->in_index = !pack->locked || !f->s->options.keys;
		/* An archive that is not whole counts as unreadable each time. */
		f->unreadable += pack->broken;
		return KVARC_OK;
	}
	uint8_t *to = kvi_list_add(&f->gone, &f->s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(f->s->error, &f->s->alloc);
	memcpy(to, pack->id, 16);
	return KVARC_OK;
}

/* ----- changes ------------------------------------------------ */

static void report_pack(struct refreshing *refreshing)
{
	char text[REPORT_MOST];
	refreshing->unreadable++;
	if (!refreshing->report)
		return;
	snprintf(text, sizeof text, "%s", refreshing->s->error->text);
	refreshing->report(refreshing->opaque, text);
}

/* Adds the contents of an open archive to the index. */
static kvarc_ret fill(struct refreshing *refreshing, struct listed_pack *pack,
                      struct kvi_open_pack *open, bool last)
{
	kvarc_ret ret = kvi_index_fill(refreshing->s, refreshing->x, pack->id, &pack->object,
	                               open->r, NULL, last);
	if (ret && ret != KVARC_END && *open->error.text)
		kvi_fail(refreshing->s->error, ret, "store: %s: %s", open->key, open->error.text);
	return ret;
}

/* Lists an archive that no key opens: gc sees that it exists, its contents are not known. */
static kvarc_ret add_locked(struct refreshing *refreshing, struct listed_pack *listed_pack)
{
	struct kvi_index_pack pack = { .bytes = listed_pack->object.bytes,
		                       .time = listed_pack->object.time,
		                       .stamp = listed_pack->object.stamp,
		                       .encrypted = true,
		                       .locked = true };
	memcpy(pack.id, listed_pack->id, 16);
	listed_pack->in_index = true;
	kvarc_ret ret = kvi_index_remove_pack(refreshing->x, listed_pack->id);
	return ret ? ret : kvi_index_add_pack(refreshing->x, &pack);
}

/* Lists an archive that cannot be opened, for gc and verify: its contents are not known. */
static kvarc_ret add_broken(struct refreshing *refreshing, const struct listed_pack *listed_pack)
{
	struct kvi_index_pack pack = { .bytes = listed_pack->object.bytes,
		                       .time = listed_pack->object.time,
		                       .stamp = listed_pack->object.stamp };
	memcpy(pack.id, listed_pack->id, 16);
	kvarc_ret ret = kvi_index_add_pack(refreshing->x, &pack);
	return ret ? ret : kvi_index_break(refreshing->x, pack.id);
}

/* Marks an archive that is not whole as broken: loads alone read the rest of it. */
static kvarc_ret break_pack(struct refreshing *refreshing, const struct listed_pack *pack,
                            const struct kvi_open_pack *open)
{
	kvi_fail(refreshing->s->error, KVARC_DATA,
	         "store: %s: is not whole: its end is missing or damaged", open->key);
	report_pack(refreshing);
	return kvi_index_break(refreshing->x, pack->id);
}

/* Inside of a transaction. *later: it needs others to be in the index first. */
static kvarc_ret add_pack(struct refreshing *refreshing, struct listed_pack *pack, bool last,
                          bool *later)
{
	struct kvi_open_pack open;
	kvarc_ret ret = kvi_pack_open(refreshing->s, &open, pack->id, true, NULL);
	bool gone = ret == KVARC_END; /* removed since it was listed */
	*later = false;
	if (ret == KVARC_AUTH)
		return add_locked(refreshing, pack);
	if (!ret) {
		ret = fill(refreshing, pack, &open, last || !open.whole);
		if (!ret && !open.whole)
			ret = break_pack(refreshing, pack, &open);
		kvi_pack_close(&open);
		*later = ret == KVARC_END;
		gone = !*later && kvi_pack_gone(refreshing->s, pack->id, ret) == KVARC_END;
	}
	pack->in_index = !*later;
	if (!ret ||
	    (!gone && (ret == KVARC_MEM || ret == KVARC_IO || kvi_index_damaged(refreshing->x))))
		return ret;
	const bool damaged = ret == KVARC_DATA || ret == KVARC_FORMAT;
	if (!gone && !*later)
		report_pack(refreshing);
	ret = kvi_index_remove_pack(refreshing->x, pack->id);
	return !ret && damaged && !gone && !*later ? add_broken(refreshing, pack) : ret;
}

/* Adds the archives that are not in the index, once; *left: the number of those to be tried
 * again. */
static kvarc_ret add_packs(struct refreshing *refreshing, bool last, size_t *left)
{
	kvarc_ret ret = KVARC_OK;
	*left = 0;
	for (size_t i = 0; i < refreshing->packs.n && !ret;) {
		ret = kvi_index_begin_change(refreshing->x);
		if (ret)
			break;
		for (size_t k = 0; i < refreshing->packs.n && k < BATCH && !ret; i++) {
			struct listed_pack *p = KVI_LIST(struct listed_pack, refreshing->packs, i);
			bool later;
			if (p->in_index)
				continue;
			k++;
			ret = add_pack(refreshing, p, last, &later);
			*left += later;
		}
		ret = kvi_index_end_change(refreshing->x, ret);
	}
	return ret;
}

/* Archives that name others are tried until those are in the index. */
static kvarc_ret add_all(struct refreshing *refreshing)
{
	size_t before = SIZE_MAX, left = 0;
	kvarc_ret ret = add_packs(refreshing, false, &left);
	while (!ret && left && left < before) {
		before = left;
		ret = add_packs(refreshing, false, &left);
	}
	return ret || !left ? ret : add_packs(refreshing, true, &left);
}

static kvarc_ret remove_gone(struct refreshing *refreshing)
{
	if (!refreshing->gone.n)
		return KVARC_OK;
	kvarc_ret ret = kvi_index_begin_change(refreshing->x);
	if (ret)
		return ret;
	for (size_t i = 0; i < refreshing->gone.n && !ret; i++)
		ret = kvi_index_remove_pack(refreshing->x,
		                            (const uint8_t *)refreshing->gone.p + 16 * i);
	return kvi_index_end_change(refreshing->x, ret);
}

static size_t missing(const struct refreshing *refreshing)
{
	size_t n = 0;
	for (size_t i = 0; i < refreshing->packs.n; i++)
		n += !KVI_LIST(struct listed_pack, refreshing->packs, i)->in_index;
	return n;
}

/* The names of all archives that were listed, as one number. */
static struct kvi_h128 hash_listing(const struct refreshing *refreshing)
{
	struct {
		struct kvi_h128 before;
		uint8_t id[16];
	} next = { .before = { 0, 0 } };
	for (size_t i = 0; i < refreshing->packs.n; i++) {
		memcpy(next.id, KVI_LIST(struct listed_pack, refreshing->packs, i)->id, 16);
		next.before = kvi_h128(&next, sizeof next);
	}
	return next.before;
}

/* kvi_index_refresh of what is in *f. */
static kvarc_ret refresh(struct refreshing *f)
{
	kvarc_ret ret = list_packs(f);
	if (!ret)
		ret = kvi_index_packs(f->x, true, compare, f);
	if (!ret)
		ret = remove_gone(f);
	/* Cut segments need look-ups: they come in a second go. */
	const bool bulk = !ret && missing(f) >= BULK_LEAST && missing(f) == f->packs.n;
	size_t left = 0;
	if (bulk)
		ret = kvi_index_bulk(f->x, true);
	if (bulk && !ret)
		ret = add_packs(f, false, &left);
	if (bulk && !ret)
		ret = kvi_index_bulk(f->x, false);
	if (!ret)
		ret = add_all(f);
	f->listing = hash_listing(f);
	kvi_free(&f->s->alloc, f->packs.p);
	kvi_free(&f->s->alloc, f->gone.p);
	return ret;
}

kvarc_ret kvi_index_refresh(struct kvarc_store *store, struct kvi_store_index *index,
                            void (*report)(void *opaque, const char *text), void *opaque,
                            uint64_t *unreadable)
{
	struct refreshing f = { .s = store, .x = index, .report = report, .opaque = opaque };
	kvarc_ret ret = refresh(&f);
	*unreadable = f.unreadable;
	return ret;
}

kvarc_ret kvi_index_refresh_until(struct kvarc_store *store, struct kvi_store_index *index,
                                  kvarc_ret (*ask)(void *opaque), void *opaque)
{
	enum { LISTINGS_MOST = 8 }; /* archives come and go between two listings again and again */
	struct kvi_h128 before = { 0, 0 };
	kvarc_ret ret = KVARC_END;
	for (int i = 0; i < LISTINGS_MOST && ret == KVARC_END; i++) {
		struct refreshing f = { .s = store, .x = index };
		ret = refresh(&f);
		if (!ret)
			ret = ask(opaque);
		if (i && kvi_h128_equal(before, f.listing))
			break;
		before = f.listing;
	}
	return ret;
}

kvarc_ret kvi_index_renew(struct kvarc_store *store, const uint8_t id[16],
                          const struct kvi_object *object)
{
	struct refreshing f = { .s = store, .x = store->index };
	struct listed_pack p = { .object = *object };
	bool later;
	memcpy(p.id, id, 16);
	kvi_pack_forget(store, id);
	kvarc_ret ret = kvi_index_begin_change(store->index);
	if (ret)
		return ret;
	ret = kvi_index_remove_pack(store->index, id);
	if (!ret)
		ret = add_pack(&f, &p, true, &later);
	return kvi_index_end_change(store->index, ret);
}
