/* SPDX-License-Identifier: BSD-3-Clause */
/* container_import.c - members of zip (npz) and tar files, where they lie in the container */
#include <stdlib.h>
#include <string.h>

#include "container.h"
#include "util/error.h"
#include "util/list.h"

enum { TAR_MAGIC_AT = 257, SNIFF_BYTES = TAR_MAGIC_AT + 5, MEMBERS_MAX = 1 << 16 };

/* "zip", "tar" or NULL. */
static const char *sniff(const kvarc_source *src, kvarc_ret *ret)
{
	uint8_t head[SNIFF_BYTES];
	size_t n = src->size < sizeof head ? (size_t)src->size : sizeof head;
	*ret = kvi_source_read(src, head, n, 0);
	if (*ret)
		*ret = KVARC_IO;
	else if (n >= 4 && !memcmp(head, "PK\3\4", 4))
		return "zip";
	else if (n == sizeof head && !memcmp(head + TAR_MAGIC_AT, "ustar", 5))
		return "tar";
	return NULL;
}

struct listing {
	kvarc_import *im;
	struct kvi_container *c;
};

static kvarc_ret add_member(void *opaque, const struct kvi_member *m)
{
	struct listing *l = opaque;
	struct kvi_container *c = l->c;
	const struct kvi_alloc *alloc = &l->im->alloc;
	if (c->n >= MEMBERS_MAX) {
		kvi_import_note(l->im,
		                "more than %d members: the %s file is kept as an opaque file",
		                MEMBERS_MAX, c->what);
		return KVARC_END;
	}
	if (!kvi_array_grow(alloc, &c->list, &c->cap, c->n, sizeof *c->list))
		return kvi_fail_alloc(l->im->error, alloc);
	struct kvi_listed *x = &c->list[c->n];
	*x = (struct kvi_listed){ *m, NULL };
	if (m->name) {
		size_t n = strlen(m->name) + 1;
		x->name = kvi_malloc(alloc, n);
		if (!x->name)
			return kvi_fail_alloc(l->im->error, alloc);
		memcpy(x->name, m->name, n);
	}
	x->m.name = NULL;
	c->packed += m->kind == KVI_MEMBER_DEFLATED || m->kind == KVI_MEMBER_PACKED;
	c->n++;
	return KVARC_OK;
}

static int by_place(const void *a, const void *b)
{
	const struct kvi_member *x = &((const struct kvi_listed *)a)->m;
	const struct kvi_member *y = &((const struct kvi_listed *)b)->m;
	return (x->header_at > y->header_at) - (x->header_at < y->header_at);
}

static bool is_disjoint(const struct kvi_container *c)
{
	for (size_t i = 1; i < c->n; i++) {
		const struct kvi_member *m = &c->list[i - 1].m;
		if (m->offset + m->packed > c->list[i].m.header_at)
			return false;
	}
	return true;
}

static kvarc_ret list_members(kvarc_import *im, struct kvi_container *c)
{
	struct listing l = { im, c };
	kvarc_ret ret = (*c->what == 'z' ? kvi_zip_scan : kvi_tar_scan)(&im->container, &im->alloc,
	                                                                add_member, &l);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(im->error, &im->alloc);
	if (!ret && c->n)
		qsort(c->list, c->n, sizeof *c->list, by_place);
	if (ret == KVARC_END || (!ret && !is_disjoint(c))) {
		kvi_import_note(im,
		                "looks like a %s file, but is not one to its exact "
		                "end: kept as an opaque file",
		                c->what);
		ret = KVARC_END;
	}
	return ret;
}

/* ----- members in place ---------------------------------------------- */

static int64_t read_member(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct kvi_member_window *w = opaque;
	if (offset >= w->bytes)
		return 0;
	if (bytes > w->bytes - offset)
		bytes = (size_t)(w->bytes - offset);
	return w->container->read(w->container->opaque, buf, bytes, w->base + offset);
}

kvarc_ret kvi_member_in_place(kvarc_import *im, const struct kvi_listed *x, const char *name)
{
	struct kvi_imp_item *item = kvi_import_add_item(im, name);
	if (!item)
		return kvi_import_full(im);
	item->window = kvi_malloc(&im->alloc, sizeof *item->window);
	if (!item->window)
		return kvi_fail_alloc(im->error, &im->alloc);
	*item->window = (struct kvi_member_window){ &im->container, x->m.offset, x->m.packed };
	item->src =
		(kvarc_source){ .read = read_member, .opaque = item->window, .size = x->m.packed };
	return KVARC_OK;
}

/* What is not a plain file is part of the container's own bytes. */
static kvarc_ret take_stored(kvarc_import *im, const struct kvi_container *c)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < c->n && !ret; i++)
		if (c->list[i].m.kind == KVI_MEMBER_STORED)
			ret = kvi_member_in_place(im, &c->list[i], c->list[i].name);
	return ret;
}

static kvarc_ret take(kvarc_import *im, struct kvi_container *c)
{
	kvarc_ret ret = list_members(im, c);
	if (!ret && im->options.members) {
		ret = kvi_members_take(im, c);
		if (ret != KVARC_END) {
			im->n_members = im->n_items;
			return ret;
		}
		kvi_import_drop_items(im);
		ret = KVARC_OK;
	}
	if (ret)
		return ret;
	if (c->packed) {
		kvi_import_note(im,
		                "%zu of %zu members are compressed: the %s file is "
		                "kept as an opaque file; --members packs its members instead",
		                c->packed, c->n, c->what);
		return KVARC_END;
	}
	return take_stored(im, c);
}

kvarc_ret kvi_import_container(kvarc_import *im, const kvarc_source *src)
{
	struct kvi_container c = { .n = 0 };
	kvarc_ret ret;
	c.what = sniff(src, &ret);
	if (ret || !c.what)
		return ret ? ret : KVARC_END;
	im->container = *src;
	im->container_kind = c.what;
	ret = take(im, &c);
	for (size_t i = 0; i < c.n; i++)
		kvi_free(&im->alloc, c.list[i].name);
	kvi_free(&im->alloc, c.list);
	return ret ? ret : im->n_items ? KVARC_OK : KVARC_END;
}

void kvi_import_join_members(kvarc_import *im)
{
	for (size_t i = 0; i < im->n_areas; i++) {
		struct kvi_imp_area *a = &im->areas[i];
		a->offset += im->items[a->item].window->base;
		a->item = 0;
	}
	for (size_t i = 0; i < im->n_tracks; i++) {
		struct kvi_imp_track *t = &im->tracks[i];
		if (!t->has_ids)
			continue;
		t->ids_at += im->items[t->ids_item].window->base;
		t->ids_item = 0;
	}
	kvi_import_drop_items(im);
}
