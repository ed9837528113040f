/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - how an imported file is put together again (spec 10) */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "import_internal.h"

static int by_offset(const void *a, const void *b)
{
	const struct kvi_imp_area *const *x = a, *const *y = b;
	if ((*x)->offset != (*y)->offset)
		return (*x)->offset < (*y)->offset ? -1 : 1;
	return 0;
}

static void put_literal(struct kvi_restore *r, uint64_t bytes)
{
	if (bytes == 0)
		return;
	struct kvi_piece *p = &r->pieces[r->n_pieces++];
	p->type = KVI_PIECE_LITERAL;
	p->bytes = bytes;
}

static bool put_area(struct kvi_restore *r, const kvarc_import *im, const struct kvi_imp_area *area)
{
	struct kvi_piece *p = &r->pieces[r->n_pieces++];
	p->type = KVI_PIECE_AREA;
	p->bytes = area->bytes;
	p->track = area->track;
	p->t0 = area->t0;
	p->n_tokens = area->n_tokens;
	p->views = kvi_array(&im->alloc, area->n_tensors, sizeof *p->views);
	if (!p->views)
		return false;
	p->n_views = area->n_tensors;
	for (uint32_t i = 0; i < area->n_tensors; i++) {
		p->views[i] = im->tensors[area->first_tensor + i].at;
		p->views[i].tensor = area->first_tensor + i;
	}
	return true;
}

static bool put_pieces(struct kvi_restore *r, const kvarc_import *im,
                       const struct kvi_imp_area *const *areas, size_t n)
{
	uint64_t at = 0;
	bool good = true;
	for (size_t i = 0; i < n && good; i++) {
		put_literal(r, areas[i]->offset - at);
		good = put_area(r, im, areas[i]);
		at = areas[i]->offset + areas[i]->bytes;
	}
	if (good)
		put_literal(r, r->file_bytes - at);
	return good;
}

/* The pieces of an item: the first n_areas areas of the import, as far as they are of it, and
 * literals. */
static kvarc_ret make(const kvarc_import *im, uint32_t item, size_t n_areas, struct kvi_restore *r)
{
	const struct kvi_imp_item *it = &im->items[item];
	const struct kvi_imp_area **areas = NULL;
	size_t n = 0, name_bytes = strlen(it->name) + 1;
	bool good;
	memset(r, 0, sizeof *r);
	for (size_t i = 0; i < n_areas; i++)
		n += im->areas[i].item == item;
	r->kind = it->kind;
	r->file_bytes = it->src.size;
	r->name = kvi_malloc(&im->alloc, name_bytes);
	r->pieces = kvi_calloc(&im->alloc, 2 * n + 1, sizeof *r->pieces);
	areas = kvi_array(&im->alloc, n + 1, sizeof(void *));
	good = r->name && r->pieces && areas;
	if (good) {
		size_t k = 0;
		memcpy(r->name, it->name, name_bytes);
		for (size_t i = 0; i < n_areas; i++)
			if (im->areas[i].item == item)
				areas[k++] = &im->areas[i];
		qsort((void *)areas, n, sizeof *areas, by_offset);
		good = put_pieces(r, im, areas, n);
	}
	kvi_free(&im->alloc, (void *)areas);
	if (!good) {
		kvi_restore_free(r, &im->alloc);
		return kvi_alloc_error(&im->alloc);
	}
	return KVARC_OK;
}

kvarc_ret kvi_plan_make(const kvarc_import *im, uint32_t item, struct kvi_restore *r)
{
	return make(im, item, im->n_areas, r);
}

kvarc_ret kvi_plan_whole(const kvarc_import *im, uint32_t item, struct kvi_restore *r)
{
	return make(im, item, 0, r);
}
