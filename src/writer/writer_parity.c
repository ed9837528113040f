/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_parity.c - parity of what a writer writes, in groups that take turns (frames.md 12.2) */
#include <stdlib.h>
#include <string.h>

#include "format/parity.h"
#include "writer_state.h"

/* Groups that are open at a time; pieces of larger frames. */
enum { TURNS = 4, PIECE_MAX = 4 << 20, PIECES_DEFAULT = 16, PIECES_MOST = KVI_PARITY_MOST - 1 };

/* A group that is not full yet. */
struct parity_group {
	struct kvi_parity_piece pieces[PIECES_MOST];
	unsigned n;
	uint64_t bytes;     /* of all pieces */
	uint32_t row_bytes; /* of the longest piece */
	/* One row: the sum of the pieces so far, in `capacity` bytes. */
	uint8_t *sum;
	size_t capacity;
	/* Several rows: their factors depend on the number of pieces, which are kept until then. */
	uint8_t *data[PIECES_MOST];
};

/* The groups of a writer. */
struct kvi_writer_parity {
	unsigned pieces, rows;
	unsigned turn; /* of the next piece */
	bool emitting; /* rows of a group: nothing comes between */
	struct kvi_out frame;
	struct parity_group groups[TURNS];
};

kvarc_ret kvi_writer_parity_check(const kvarc_parity *p, kvarc_error *e)
{
	if (!p)
		return KVARC_OK;
	const uint64_t pieces = p->pieces ? p->pieces : PIECES_DEFAULT;
	if (p->reserved[0] || p->reserved[1] || pieces + (p->rows ? p->rows : 1) > KVI_PARITY_MOST)
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_writer_open: pieces and rows of parity are 256 at most, and "
		                "reserved members zero");
	return KVARC_OK;
}

kvarc_ret kvi_writer_parity_open(kvarc_writer *w)
{
	const kvarc_parity *o = w->options.parity;
	if (!o)
		return KVARC_OK;
	struct kvi_writer_parity *p = kvi_calloc(&w->alloc, 1, sizeof *p);
	if (!p)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->parity = p;
	w->options.parity = NULL;
	p->pieces = o->pieces ? o->pieces : PIECES_DEFAULT;
	p->rows = o->rows ? o->rows : 1;
	kvi_out_init(&p->frame, &w->alloc);
	return KVARC_OK;
}

static void forget(kvarc_writer *w, struct parity_group *g)
{
	for (unsigned i = 0; i < g->n; i++)
		kvi_free(&w->alloc, g->data[i]);
	kvi_free(&w->alloc, g->sum);
	*g = (struct parity_group){ .n = 0 };
}

void kvi_writer_parity_close(kvarc_writer *w)
{
	if (!w->parity)
		return;
	for (unsigned i = 0; i < TURNS; i++)
		forget(w, &w->parity->groups[i]);
	kvi_out_free(&w->parity->frame);
	kvi_free(&w->alloc, w->parity);
	w->parity = NULL;
}

bool kvi_writer_parity_busy(const kvarc_writer *w)
{
	return w->parity && w->parity->emitting;
}

/* Adds bytes to the one row of a group, which becomes as long as they are. */
static bool add_to_sum(kvarc_writer *w, struct parity_group *g, const uint8_t *bytes, size_t n)
{
	if (n > g->capacity) {
		uint8_t *sum = kvi_calloc(&w->alloc, n, 1);
		if (!sum)
			return false;
		if (g->capacity)
			memcpy(sum, g->sum, g->capacity);
		kvi_free(&w->alloc, g->sum);
		g->sum = sum;
		g->capacity = n;
	}
	kvi_parity_add(g->sum, 1, bytes, n);
	return true;
}

static kvarc_ret add_piece(kvarc_writer *w, struct parity_group *g, const uint8_t *bytes,
                           uint32_t n, uint64_t offset)
{
	bool ok;
	if (w->parity->rows == 1) {
		ok = add_to_sum(w, g, bytes, n);
	} else {
		uint8_t *copy = kvi_malloc(&w->alloc, n);
		ok = copy;
		if (copy)
			memcpy(copy, bytes, n);
		g->data[g->n] = copy;
	}
	if (!ok)
		return kvi_fail_alloc(w->error, &w->alloc);
	g->pieces[g->n++] = (struct kvi_parity_piece){ offset, n, kvi_h128(bytes, n) };
	g->bytes += n;
	g->row_bytes = n > g->row_bytes ? n : g->row_bytes;
	return KVARC_OK;
}

static void make_row(const struct parity_group *g, unsigned r, uint8_t *to)
{
	memset(to, 0, g->row_bytes);
	if (g->sum)
		memcpy(to, g->sum, g->row_bytes);
	for (unsigned j = 0; j < g->n && !g->sum; j++)
		kvi_parity_add(to, kvi_parity_factor(g->n, r, j), g->data[j], g->pieces[j].bytes);
}

static kvarc_ret emit_row(kvarc_writer *w, const struct parity_group *g, unsigned r)
{
	struct kvi_writer_parity *p = w->parity;
	const struct kvi_parity_head h = { (uint16_t)g->n, (uint16_t)r, (uint16_t)p->rows,
		                           g->row_bytes };
	const size_t table = kvi_parity_table_bytes(g->n), bytes = table + g->row_bytes;
	struct kvi_index_entry entry = { 0 };
	p->frame.n = 0;
	if (!kvi_out_reserve(&p->frame, (size_t)kvi_frame_bytes((uint32_t)bytes)))
		return kvi_fail_alloc(w->error, &w->alloc);
	kvi_parity_put(p->frame.p + KVI_FRAME_HEAD_BYTES, &h, g->pieces);
	make_row(g, r, p->frame.p + KVI_FRAME_HEAD_BYTES + table);
	return kvi_writer_emit(w, KVI_FRAME_PARITY, p->frame.p, (uint32_t)bytes, (uint32_t)bytes,
	                       &entry);
}

static kvarc_ret emit_group(kvarc_writer *w, struct parity_group *g)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned r = 0; r < w->parity->rows && g->n && !ret; r++) {
		w->parity->emitting = r + 1 < w->parity->rows;
		ret = emit_row(w, g, r);
	}
	w->parity->emitting = false;
	forget(w, g);
	return ret;
}

/* Where its data are goes with a piece. */
struct sorted_piece {
	struct kvi_parity_piece piece;
	uint8_t *data;
};

static int by_offset(const void *a, const void *b)
{
	const struct sorted_piece *x = a, *y = b;
	return x->piece.offset < y->piece.offset ? -1 : x->piece.offset > y->piece.offset;
}

/* A group of that many pieces and bytes: short ones add little to what its rows cost, so that full
 * is what has the bytes of `pieces` long ones. */
static bool fits(const struct kvi_writer_parity *p, unsigned n, uint64_t bytes, uint64_t row_bytes)
{
	return n + p->rows <= KVI_PARITY_MOST && bytes <= p->pieces * row_bytes;
}

/* Makes one of two short groups. */
static kvarc_ret join(kvarc_writer *w, struct parity_group *to, struct parity_group *from)
{
	struct sorted_piece all[PIECES_MOST];
	const unsigned n = to->n + from->n;
	const uint64_t longest = from->row_bytes > to->row_bytes ? from->row_bytes : to->row_bytes;
	if (!from->n || !fits(w->parity, n, to->bytes + from->bytes, longest))
		return KVARC_OK;
	if (from->sum && !add_to_sum(w, to, from->sum, from->row_bytes))
		return kvi_fail_alloc(w->error, &w->alloc);
	for (unsigned i = 0; i < n; i++) {
		struct parity_group *g = i < to->n ? to : from;
		const unsigned k = i < to->n ? i : i - to->n;
		all[i] = (struct sorted_piece){ g->pieces[k], g->data[k] };
	}
	qsort(all, n, sizeof *all, by_offset);
	to->bytes += from->bytes;
	to->row_bytes = (uint32_t)longest;
	from->n = 0; /* its data are of the other one */
	forget(w, from);
	to->n = n;
	for (unsigned i = 0; i < n; i++) {
		to->pieces[i] = all[i].piece;
		to->data[i] = all[i].data;
	}
	return KVARC_OK;
}

kvarc_ret kvi_writer_parity_flush(kvarc_writer *w)
{
	struct kvi_writer_parity *p = w->parity;
	kvarc_ret ret = KVARC_OK;
	if (!p)
		return ret;
	/* Neighbours stay apart: what is damaged may lie across the end of a frame. */
	for (unsigned i = 0; i < TURNS / 2 && !ret; i++)
		ret = join(w, &p->groups[i], &p->groups[i + TURNS / 2]);
	for (unsigned i = 0; i < TURNS && !ret; i++)
		ret = emit_group(w, &p->groups[i]);
	p->turn = 0;
	return ret;
}

/* Whether the groups, each of which has had its turn, are full. */
static bool is_full(const struct kvi_writer_parity *p)
{
	uint64_t bytes = 0, rows = 0;
	unsigned most = 0;
	for (unsigned i = 0; i < TURNS; i++) {
		bytes += p->groups[i].bytes;
		rows += p->groups[i].row_bytes;
		most = p->groups[i].n > most ? p->groups[i].n : most;
	}
	return !fits(p, most + 1, bytes + rows / 2, rows);
}

kvarc_ret kvi_writer_cover(kvarc_writer *w, uint16_t type, const uint8_t *bytes, uint64_t n,
                           uint64_t offset)
{
	struct kvi_writer_parity *p = w->parity;
	kvarc_ret ret = KVARC_OK;
	if (!p || type == KVI_FRAME_PARITY || type == KVI_FRAME_FOOTER)
		return KVARC_OK;
	while (n && !ret) {
		const uint32_t step = n < PIECE_MAX ? (uint32_t)n : PIECE_MAX;
		ret = add_piece(w, &p->groups[p->turn], bytes, step, offset);
		bytes += step;
		offset += step;
		n -= step;
		p->turn = (p->turn + 1) % TURNS;
		if (!ret && p->turn == 0 && is_full(p))
			ret = kvi_writer_parity_flush(w);
	}
	return ret;
}
