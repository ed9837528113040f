/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_map.c - where the elements of a file go in a shorter one */
#include "llama_map.h"

#include "util/list.h"

size_t kvi_llama_map_piece(const struct kvi_llama_map *m, uint64_t at)
{
	size_t lo = 0, hi = m->plan->n_pieces;
	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;
		if (m->starts[mid] <= at)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

bool kvi_llama_map_add(struct kvi_llama_map *m, uint64_t from, uint64_t to, uint64_t bytes)
{
	struct kvi_llama_moved *last = m->n ? &m->list[m->n - 1] : NULL;
	if (last && last->from + last->bytes == from && last->to + last->bytes == to) {
		last->bytes += bytes;
		return true;
	}
	if (!kvi_array_grow(m->alloc, &m->list, &m->cap, m->n, sizeof *m->list))
		return false;
	m->list[m->n++] = (struct kvi_llama_moved){ from, to, bytes };
	return true;
}

kvarc_ret kvi_llama_map_sort(struct kvi_llama_map *m)
{
	m->intervals = kvi_array(m->alloc, m->n + 1, sizeof *m->intervals);
	if (!m->intervals)
		return kvi_alloc_error(m->alloc);
	for (size_t i = 0; i < m->n; i++) {
		const struct kvi_llama_moved *e = &m->list[i];
		m->intervals[i] = (struct kvi_interval){ e->from, e->from + e->bytes, 0, i };
	}
	kvi_intervals_sort(m->intervals, m->n);
	return KVARC_OK;
}

/* The tokens of an area that have bytes in [lo, hi) of it; all where that is not plain. */
static struct kvi_token_span tokens_of(const struct kvi_piece *p, uint64_t lo, uint64_t hi)
{
	const struct kvi_area_view *v = &p->views[0];
	const uint64_t step = v->token_stride;
	struct kvi_token_span span = { 0, p->n_tokens };
	uint64_t row = 0; /* of all tokens */
	if (step && p->n_tokens * step == p->bytes)
		row = p->bytes;
	else if (step && p->n_tokens * step == v->block_stride) /* channel-major */
		row = v->block_stride;
	if (row && lo / row == (hi - 1) / row) {
		span.begin = lo % row / step;
		span.end = (hi - 1) % row / step + 1;
	}
	span.begin += p->t0;
	span.end += p->t0;
	return span;
}

static void add_span(struct kvi_token_span *to, struct kvi_token_span span)
{
	if (to->begin == to->end)
		*to = span;
	to->begin = span.begin < to->begin ? span.begin : to->begin;
	to->end = span.end > to->end ? span.end : to->end;
}

void kvi_llama_map_spans(const struct kvi_llama_map *m, struct kvi_token_span *spans)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct kvi_llama_moved *e = &m->list[i];
		const uint64_t end = e->from + e->bytes;
		size_t k = kvi_llama_map_piece(m, e->from);
		for (; k < m->plan->n_pieces && m->starts[k] < end; k++) {
			const struct kvi_piece *p = &m->plan->pieces[k];
			uint64_t start = m->starts[k], next = m->starts[k + 1];
			uint64_t lo = e->from > start ? e->from - start : 0;
			uint64_t hi = (end < next ? end : next) - start;
			if (p->type == KVI_PIECE_AREA && lo < hi)
				add_span(&spans[p->track], tokens_of(p, lo, hi));
		}
	}
}

/* Bytes of the file on their way. */
struct moving {
	const struct kvi_llama_map *m;
	const uint8_t *data;
	uint64_t at, end;
};

/* A kvi_interval_fn. */
static int move_part(void *opaque, size_t id)
{
	const struct moving *x = opaque;
	const struct kvi_llama_moved *e = &x->m->list[id];
	const kvarc_sink *sink = x->m->sink;
	uint64_t lo = e->from > x->at ? e->from : x->at;
	uint64_t end = e->from + e->bytes, hi = end < x->end ? end : x->end;
	return sink->write(sink->opaque, x->data + (lo - x->at), (size_t)(hi - lo),
	                   e->to + (lo - e->from));
}

static int write_moved(void *opaque, const void *data, size_t bytes, uint64_t offset)
{
	const struct kvi_llama_map *m = opaque;
	struct moving x = { m, data, offset, offset + bytes };
	return bytes ? kvi_intervals_search(m->intervals, m->n, offset, offset + bytes, move_part,
	                                    &x)
	             : 0;
}

kvarc_sink kvi_llama_map_sink(struct kvi_llama_map *m)
{
	return (kvarc_sink){ .write = write_moved, .opaque = m };
}

void kvi_llama_map_free(struct kvi_llama_map *m)
{
	kvi_free(m->alloc, m->list);
	kvi_free(m->alloc, m->intervals);
	*m = (struct kvi_llama_map){ .alloc = m->alloc };
}
