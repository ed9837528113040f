/* SPDX-License-Identifier: BSD-3-Clause */
/* append_items.c - the files of an append: literal bytes that the archive has are references */
#include "append_items.h"

#include <string.h>

#include "import_internal.h"
#include "item_put.h"
#include "plan.h"
#include "util/source.h"

static kvarc_ret no_memory(const struct kvi_append_items *x)
{
	return kvi_reader_fail(x->r, kvi_alloc_error(&x->im->alloc),
	                       "not enough memory for the packed files");
}

/* ----- references -------------------------------------------------------- */

/* Pieces that are being made. */
struct piece_list {
	const struct kvi_alloc *alloc;
	struct kvi_list list; /* struct kvi_piece */
	bool failed;
};

static void add_piece(struct piece_list *to, const struct kvi_piece *piece)
{
	struct kvi_piece *last =
		to->list.n ? KVI_LIST(struct kvi_piece, to->list, to->list.n - 1) : NULL;
	if (last && last->type == KVI_PIECE_LITERAL && piece->type == KVI_PIECE_LITERAL) {
		last->bytes += piece->bytes;
		return;
	}
	struct kvi_piece *p = kvi_list_add(&to->list, to->alloc, sizeof *p);
	if (p)
		*p = *piece;
	to->failed = to->failed || !p;
}

static void add_literal(struct piece_list *to, uint64_t bytes)
{
	const struct kvi_piece p = { .type = KVI_PIECE_LITERAL, .bytes = bytes };
	if (bytes)
		add_piece(to, &p);
}

static void add_references(struct piece_list *to, const struct kvi_literal_find *find, size_t from,
                           size_t n)
{
	while (n) {
		const struct kvi_literal_span s = kvi_literal_find_span(find, from, n);
		const struct kvi_piece p = { .type = KVI_PIECE_REFERENCE,
			                     .bytes = s.bytes,
			                     .item = s.item,
			                     .from = s.from };
		add_piece(to, &p);
		from += (size_t)s.bytes;
		n -= (size_t)s.bytes;
	}
}

/* A literal piece, whose bytes are at p, by what the archive has of it. */
static void add_found(struct piece_list *to, const struct kvi_literal_find *find, const uint8_t *p,
                      size_t n)
{
	for (size_t at = 0; at < n;) {
		const struct kvi_literal_match m = kvi_literal_find_next(find, p, n, at);
		add_literal(to, m.at - at);
		add_references(to, find, m.from, m.n);
		at = m.at + m.n;
	}
}

/* What a file is beside another one, without regard to where its literal bytes are. */
struct sameness {
	size_t literals; /* bytes of the old ones that were compared */
	bool same;
};

static kvarc_ret find_literal(struct kvi_append_items *x, struct piece_list *to,
                              const struct kvi_literal_find *find, size_t item, uint64_t at,
                              uint64_t bytes, struct sameness *y)
{
	if (!find->n || bytes > find->alloc->limit / KVI_LITERAL_SHARE) {
		y->same = false;
		add_literal(to, bytes);
		return KVARC_OK;
	}
	uint8_t *p = kvi_malloc(&x->im->alloc, (size_t)bytes);
	if (!p)
		return no_memory(x);
	kvarc_ret ret = kvi_source_read(&x->im->items[item].src, p, (size_t)bytes, at);
	if (ret)
		ret = kvi_reader_fail(x->r, KVARC_IO, "reading the input failed");
	else
		add_found(to, find, p, (size_t)bytes);
	y->same = !ret && y->same && bytes <= find->n - y->literals &&
	          !memcmp(find->p + y->literals, p, (size_t)bytes);
	y->literals += y->same ? (size_t)bytes : 0;
	kvi_free(&x->im->alloc, p);
	return ret;
}

/* Literal bytes that the archive has become references. */
static kvarc_ret refer(struct kvi_append_items *x, const struct kvi_literal_find *find, size_t item,
                       struct sameness *y)
{
	struct kvi_restore *plan = &x->plans[item];
	struct piece_list to = { .alloc = &x->im->alloc };
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < plan->n_pieces && !ret; i++) {
		const struct kvi_piece *p = &plan->pieces[i];
		if (p->type == KVI_PIECE_LITERAL)
			ret = find_literal(x, &to, find, item, at, p->bytes, y);
		else
			add_piece(&to, p);
		at += p->bytes;
	}
	if (ret || to.failed) {
		kvi_free(to.alloc, to.list.p);
		return ret ? ret : no_memory(x);
	}
	kvi_free(&x->im->alloc, plan->pieces);
	plan->pieces = to.list.p;
	plan->n_pieces = to.list.n;
	return KVARC_OK;
}

/* ----- whether nothing is new --------------------------------------------- */

static bool same_areas(const struct kvi_piece *a, const struct kvi_piece *b)
{
	if (a->track != b->track || a->t0 != b->t0 || a->n_tokens != b->n_tokens ||
	    a->bytes != b->bytes || a->n_views != b->n_views)
		return false;
	for (size_t i = 0; i < a->n_views; i++) {
		const struct kvi_area_view *x = &a->views[i], *y = &b->views[i];
		if (x->tensor != y->tensor || x->block_elems != y->block_elems ||
		    x->offset != y->offset || x->token_stride != y->token_stride ||
		    x->block_stride != y->block_stride || x->elem_stride != y->elem_stride)
			return false;
	}
	return true;
}

/* The next area of a plan from piece *i on, and the literal bytes before it; NULL: none is left. */
static const struct kvi_piece *next_area(const struct kvi_restore *x, size_t *i, uint64_t *before)
{
	for (*before = 0; *i < x->n_pieces && x->pieces[*i].type != KVI_PIECE_AREA; ++*i)
		*before += x->pieces[*i].bytes;
	return *i < x->n_pieces ? &x->pieces[(*i)++] : NULL;
}

static bool same_plans(const struct kvi_restore *a, const struct kvi_restore *b)
{
	const struct kvi_piece *p, *q;
	size_t i = 0, k = 0;
	uint64_t before_p, before_q;
	if (a->kind != b->kind || strcmp(a->name, b->name) || a->file_bytes != b->file_bytes)
		return false;
	do {
		p = next_area(a, &i, &before_p);
		q = next_area(b, &k, &before_q);
		if (before_p != before_q || !p != !q || (p && !same_areas(p, q)))
			return false;
	} while (p);
	return true;
}

static bool same_items(const struct kvi_append_items *x)
{
	bool same = kvi_reader_n_items(x->r) == x->im->n_items && x->r->meta.set_closed;
	for (size_t i = 0; i < x->im->n_items && same; i++)
		same = same_plans(&x->plans[i], kvi_reader_restore(x->r, i));
	return same;
}

/* ----- all of it ----------------------------------------------------------- */

static kvarc_ret make_plan(struct kvi_append_items *x, size_t item,
                           const struct kvi_append_track *tracks)
{
	struct kvi_restore *plan = &x->plans[item];
	if (kvi_plan_make(x->im, (uint32_t)item, plan))
		return no_memory(x);
	for (size_t i = 0; i < plan->n_pieces; i++)
		if (plan->pieces[i].type == KVI_PIECE_AREA)
			plan->pieces[i].t0 += tracks[plan->pieces[i].track].shift;
	return KVARC_OK;
}

kvarc_ret kvi_append_items_make(struct kvi_append_items *x, kvarc_reader *r, kvarc_import *im,
                                const struct kvi_append_track *tracks)
{
	struct kvi_literal_find find;
	struct sameness y = { .same = true };
	*x = (struct kvi_append_items){
		.im = im, .r = r, .first = kvi_reader_earlier_items(r) + kvi_reader_n_items(r)
	};
	x->plans = kvi_calloc(&im->alloc, im->n_items, sizeof *x->plans);
	kvarc_ret ret = x->plans ? kvi_literal_find_open(&find, r) : no_memory(x);
	if (!x->plans)
		return ret;
	/* What is damaged is not referred to: all of it is written again. */
	if (ret == KVARC_DATA) {
		kvi_reader_forgive(r);
		x->lost = find.wanted;
		ret = KVARC_OK;
	}
	for (size_t i = 0; i < im->n_items && !ret; i++) {
		ret = make_plan(x, i, tracks);
		if (!ret)
			ret = refer(x, &find, i, &y);
	}
	x->same = !ret && y.same && y.literals == find.n && same_items(x);
	kvi_literal_find_close(&find);
	return ret;
}

kvarc_ret kvi_append_items_put(const struct kvi_append_items *x, kvarc_writer *w,
                               kvarc_error *error)
{
	const struct kvi_alloc *alloc = &x->im->alloc;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < x->im->n_items && !ret; i++)
		ret = kvi_item_put_plan(w, error, alloc, &x->plans[i]);
	for (size_t i = 0; i < x->im->n_items && !ret; i++) {
		struct kvi_item_put put;
		kvi_item_put_begin(&put, w, error, alloc, x->first + i);
		ret = kvi_item_put_literals(&put, &x->plans[i], &x->im->items[i].src);
		ret = kvi_item_put_end(&put, ret);
	}
	return ret;
}

void kvi_append_items_free(struct kvi_append_items *x)
{
	for (size_t i = 0; x->plans && i < x->im->n_items; i++)
		kvi_restore_free(&x->plans[i], &x->im->alloc);
	if (x->plans)
		kvi_free(&x->im->alloc, x->plans);
	x->plans = NULL;
}
