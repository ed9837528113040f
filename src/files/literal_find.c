/* SPDX-License-Identifier: BSD-3-Clause */
/* literal_find.c - finds bytes that the items of an archive's last state have as literals */
#include "literal_find.h"

#include "literals.h"

/* Blocks of the known bytes at multiples of their size are in the table, so every match of twice
 * the size is found; a shorter one is hardly worth a reference. */
enum { BLOCK = 32 };

static kvarc_ret add_span(struct kvi_literal_find *x, uint64_t item, uint64_t from, uint64_t bytes)
{
	struct kvi_literal_span *last =
		x->spans.n ? KVI_LIST(struct kvi_literal_span, x->spans, x->spans.n - 1) : NULL;
	if (last && last->item == item && last->from + last->bytes == from) {
		last->bytes += bytes;
		return KVARC_OK;
	}
	struct kvi_literal_span *to = kvi_list_add(&x->spans, x->alloc, sizeof *to);
	if (!to)
		return kvi_alloc_error(x->alloc);
	*to = (struct kvi_literal_span){ item, from, bytes };
	return KVARC_OK;
}

/* The literal bytes of an item and those it refers to, as spans. */
static kvarc_ret add_item(struct kvi_literal_find *x, const struct kvi_restore *plan,
                          uint64_t number, uint64_t *bytes)
{
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < plan->n_pieces && !ret; i++) {
		const struct kvi_piece *p = &plan->pieces[i];
		if (p->type == KVI_PIECE_AREA)
			continue;
		bool own = p->type == KVI_PIECE_LITERAL;
		ret = add_span(x, own ? number : p->item, own ? at : p->from, p->bytes);
		at += own ? p->bytes : 0;
		*bytes += p->bytes;
	}
	return ret;
}

static kvarc_ret read_spans(struct kvi_literal_find *x, kvarc_reader *r)
{
	struct kvi_literals literals;
	size_t at = 0;
	kvarc_ret ret = kvi_literals_open(&literals, r);
	for (size_t i = 0; i < x->spans.n && !ret; i++) {
		const struct kvi_literal_span *s = KVI_LIST(struct kvi_literal_span, x->spans, i);
		ret = kvi_literals_read(&literals, s->item, s->from, (size_t)s->bytes, x->p + at);
		at += (size_t)s->bytes;
		x->ends[i] = at;
	}
	kvi_literals_free(&literals);
	return ret;
}

static void fill_table(struct kvi_literal_find *x)
{
	for (size_t i = 0; i + BLOCK <= x->n; i += BLOCK) {
		uint32_t *to = &x->table[kvi_h64(x->p + i, BLOCK) & x->mask];
		if (!*to)
			*to = 1 + (uint32_t)(i / BLOCK);
	}
}

kvarc_ret kvi_literal_find_open(struct kvi_literal_find *x, kvarc_reader *r)
{
	uint64_t bytes = 0;
	kvarc_ret ret = KVARC_OK;
	size_t entries = 1;
	*x = (struct kvi_literal_find){ .alloc = &r->alloc };
	for (size_t i = 0; i < kvi_reader_n_items(r) && !ret; i++)
		ret = add_item(x, kvi_reader_restore(r, i), kvi_reader_earlier_items(r) + i,
		               &bytes);
	x->wanted = bytes;
	if (ret || !bytes || bytes > r->alloc.limit / KVI_LITERAL_SHARE || bytes > UINT32_MAX)
		return ret ? kvi_reader_fail(r, ret, "not enough memory for the packed files")
		           : KVARC_OK;
	while (entries < 4 * (size_t)bytes / BLOCK)
		entries *= 2;
	x->mask = entries - 1;
	x->p = kvi_malloc(x->alloc, (size_t)bytes);
	x->ends = kvi_array(x->alloc, x->spans.n, sizeof *x->ends);
	x->table = kvi_calloc(x->alloc, entries, sizeof *x->table);
	if (!x->p || !x->ends || !x->table)
		return kvi_reader_fail(r, kvi_alloc_error(x->alloc),
		                       "not enough memory for the packed files");
	ret = read_spans(x, r);
	x->n = ret ? 0 : (size_t)bytes;
	if (!ret)
		fill_table(x);
	return ret;
}

void kvi_literal_find_close(struct kvi_literal_find *x)
{
	if (!x->alloc)
		return;
	kvi_free(x->alloc, x->p);
	kvi_free(x->alloc, x->spans.p);
	kvi_free(x->alloc, x->ends);
	kvi_free(x->alloc, x->table);
	*x = (struct kvi_literal_find){ 0 };
}

/* A block that was found, and all equal bytes around it, back to `at`. */
static struct kvi_literal_match extend(const struct kvi_literal_find *x, const uint8_t *p, size_t n,
                                       size_t at, struct kvi_literal_match m)
{
	while (m.at > at && m.from && p[m.at - 1] == x->p[m.from - 1]) {
		m.at--;
		m.from--;
		m.n++;
	}
	while (m.at + m.n < n && m.from + m.n < x->n && p[m.at + m.n] == x->p[m.from + m.n])
		m.n++;
	return m;
}

struct kvi_literal_match kvi_literal_find_next(const struct kvi_literal_find *x, const uint8_t *p,
                                               size_t n, size_t at)
{
	for (size_t i = at; x->n && i + BLOCK <= n; i++) {
		uint32_t block = x->table[kvi_h64(p + i, BLOCK) & x->mask];
		size_t from = ((size_t)block - 1) * BLOCK;
		if (block && !memcmp(x->p + from, p + i, BLOCK))
			return extend(x, p, n, at, (struct kvi_literal_match){ i, from, BLOCK });
	}
	return (struct kvi_literal_match){ n, 0, 0 };
}

struct kvi_literal_span kvi_literal_find_span(const struct kvi_literal_find *x, size_t from,
                                              size_t n)
{
	size_t lo = 0, hi = x->spans.n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (x->ends[mid] <= from)
			lo = mid + 1;
		else
			hi = mid;
	}
	struct kvi_literal_span s = *KVI_LIST(struct kvi_literal_span, x->spans, lo);
	const size_t begin = x->ends[lo] - (size_t)s.bytes;
	s.from += from - begin;
	s.bytes -= from - begin;
	s.bytes = s.bytes < n ? s.bytes : n;
	return s;
}
