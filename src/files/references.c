/* SPDX-License-Identifier: BSD-3-Clause */
/* references.c - pieces of items that are literal bytes of earlier items (spec 10) */
#include "references.h"

#include <stdlib.h>

static size_t count(const kvarc_reader *r)
{
	size_t n = 0;
	for (size_t i = 0; i < kvi_reader_n_items(r); i++) {
		const struct kvi_restore *plan = kvi_reader_restore(r, i);
		for (size_t k = 0; k < plan->n_pieces; k++)
			n += plan->pieces[k].type == KVI_PIECE_REFERENCE;
	}
	return n;
}

static void fill(struct kvi_references *references, const kvarc_reader *r)
{
	for (size_t i = 0; i < kvi_reader_n_items(r); i++) {
		const struct kvi_restore *plan = kvi_reader_restore(r, i);
		uint64_t at = 0;
		for (size_t k = 0; k < plan->n_pieces; k++) {
			const struct kvi_piece *p = &plan->pieces[k];
			if (p->type == KVI_PIECE_REFERENCE)
				references->list[references->n++] =
					(struct kvi_reference){ p->item, p->from, p->bytes, i, at };
			at += p->bytes;
		}
	}
}

static int by_source(const void *a, const void *b)
{
	const struct kvi_reference *p = a, *q = b;
	return (p->source > q->source) - (p->source < q->source);
}

/* The first reference to this item or a later one. */
static size_t find(const struct kvi_references *references, uint64_t source)
{
	size_t lo = 0, hi = references->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (references->list[mid].source < source)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

kvarc_ret kvi_references_open(struct kvi_references *references, const kvarc_reader *r)
{
	const struct kvi_alloc *alloc = kvi_reader_alloc(r);
	const size_t n = count(r);
	*references = (struct kvi_references){ 0 };
	if (!n)
		return KVARC_OK;
	references->list = kvi_array(alloc, n, sizeof *references->list);
	references->intervals = kvi_array(alloc, n, sizeof *references->intervals);
	if (!references->list || !references->intervals)
		return kvi_alloc_error(alloc);
	fill(references, r);
	qsort(references->list, references->n, sizeof *references->list, by_source);
	for (size_t i = 0; i < references->n; i++) {
		const struct kvi_reference *p = &references->list[i];
		references->intervals[i] = (struct kvi_interval){ p->from, p->from + p->bytes, 0,
			                                          i };
	}
	for (size_t i = 0, end; i < references->n; i = end) {
		end = find(references, references->list[i].source + 1);
		kvi_intervals_sort(references->intervals + i, end - i);
	}
	return KVARC_OK;
}

void kvi_references_free(struct kvi_references *references, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, references->list);
	kvi_free(alloc, references->intervals);
	*references = (struct kvi_references){ 0 };
}

/* Literal bytes on their way. */
struct giving {
	const struct kvi_references *x;
	const struct kvi_literal_bytes *b;
	kvi_reference_fn fn;
	void *opaque;
};

/* A kvi_interval_fn. */
static int give_part(void *opaque, size_t id)
{
	const struct giving *g = opaque;
	const struct kvi_reference *p = &g->x->list[id];
	const struct kvi_literal_bytes *b = g->b;
	uint64_t lo = p->from > b->offset ? p->from : b->offset;
	uint64_t end = p->from + p->bytes, b_end = b->offset + b->bytes;
	uint64_t hi = end < b_end ? end : b_end;
	return g->fn(g->opaque, p->item, p->at + (lo - p->from), b->data + (lo - b->offset),
	             (size_t)(hi - lo));
}

int kvi_references_give(const struct kvi_references *references,
                        const struct kvi_literal_bytes *bytes, kvi_reference_fn fn, void *opaque)
{
	struct giving g = { references, bytes, fn, opaque };
	size_t first = find(references, bytes->item), end = find(references, bytes->item + 1);
	if (first == end || !bytes->bytes)
		return 0;
	return kvi_intervals_search(references->intervals + first, end - first, bytes->offset,
	                            bytes->offset + bytes->bytes, give_part, &g);
}
