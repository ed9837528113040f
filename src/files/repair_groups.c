/* SPDX-License-Identifier: BSD-3-Clause */
/* repair_groups.c - finds rows of parity and restores what they cover (frames.md 12.2) */
#include "repair_groups.h"

#include <string.h>

#include "format/parity.h"
#include "util/bytes.h"

/* A group in hand: the pieces of its table, and its rows by number. */
struct repair_group {
	const uint8_t *table; /* payload of its first row, without the row */
	unsigned pieces, rows;
	uint32_t row_bytes;
	const struct kvi_repair_row *of[KVI_PARITY_MOST]; /* NULL: it is lost */
	unsigned n_rows;
	unsigned lost[KVI_PARITY_MOST]; /* pieces */
	unsigned n_lost;
};

/* How often all groups are looked at: what one restores may be rows of another. */
enum { PASSES = 64 };
/* Bytes that are restored at a time. */
enum { STEP = 64 << 10 };

void kvi_repair_found(struct kvi_repair *x, uint64_t offset, uint64_t bytes, bool restored)
{
	kvarc_repair_report *r = x->report;
	*(restored ? &r->restored_pieces : &r->lost_places) += 1;
	*(restored ? &r->restored_bytes : &r->lost_bytes) += bytes;
	if (x->options.found)
		x->options.found(x->options.opaque, offset, bytes, restored);
}

/* The frame at an offset, if it is a row that may be used. Returns OK, END (it is not), MEM,
 * MEMLIMIT, IO. */
static kvarc_ret look_at(struct kvi_repair *x, const uint8_t *head, uint64_t offset)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	struct kvi_parity_head h;
	const uint64_t sync = kvi_load64(head);
	const struct kvi_input in = { .source = kvi_view_source(&x->view, x->view.size),
		                      .alloc = &x->alloc,
		                      .sync = sync };
	kvarc_ret ret = kvi_frame_read(&in, offset, &buf, &f, x->error);
	if (ret == KVARC_OK && f.head.type == KVI_FRAME_PARITY && !f.head.flags &&
	    kvi_parity_parse(&h, f.payload, f.head.payload_bytes, offset)) {
		struct kvi_repair_row *r = kvi_list_add(&x->rows, &x->alloc, sizeof *r);
		if (r)
			*r = (struct kvi_repair_row){ .offset = offset,
				                      .sequence = f.head.sequence,
				                      .sync = sync,
				                      .payload_bytes = f.head.payload_bytes,
				                      .row_bytes = h.row_bytes,
				                      .pieces = h.pieces,
				                      .row = h.row,
				                      .rows = h.rows };
		else
			ret = kvi_fail_alloc(x->error, &x->alloc);
	} else if (ret == KVARC_OK || ret == KVARC_DATA) {
		ret = KVARC_END;
	}
	kvi_free(&x->alloc, buf.p);
	return ret;
}

static bool is_row_head(const uint8_t *p, uint64_t offset)
{
	struct kvi_frame_head h;
	return kvi_load16(p + 8) == KVI_FRAME_PARITY &&
	       kvi_frame_head_parse(&h, p, kvi_load64(p), offset) &&
	       h.payload_bytes <= KVI_FRAME_MAX;
}

/* All rows of the archive, at multiples of 16. */
static kvarc_ret find_rows(struct kvi_repair *x)
{
	enum { WINDOW = 1 << 20 };
	uint8_t *p = kvi_malloc(&x->alloc, WINDOW);
	kvarc_ret ret = p ? KVARC_OK : kvi_fail_alloc(x->error, &x->alloc);
	x->rows.n = 0;
	for (uint64_t at = 0; !ret && at < x->view.size; at += WINDOW - KVI_FRAME_HEAD_BYTES) {
		size_t got;
		ret = kvi_view_read(&x->view, p, WINDOW, at, &got);
		for (size_t i = 0; !ret && i + KVI_FRAME_HEAD_BYTES < got; i += KVI_FRAME_ALIGN) {
			if (i >= WINDOW - KVI_FRAME_HEAD_BYTES)
				break; /* the next window has it */
			if (is_row_head(p + i, at + i))
				ret = look_at(x, p + i, at + i);
			ret = ret == KVARC_END ? KVARC_OK : ret;
		}
	}
	kvi_free(&x->alloc, p);
	return ret;
}

/* head and pieces of a row, in memory of the allocator. */
static kvarc_ret read_table(struct kvi_repair *x, const struct kvi_repair_row *r, uint8_t **table)
{
	const size_t bytes = kvi_parity_table_bytes(r->pieces);
	size_t got;
	*table = kvi_malloc(&x->alloc, bytes);
	if (!*table)
		return kvi_fail_alloc(x->error, &x->alloc);
	return kvi_view_read(&x->view, *table, bytes, r->offset + KVI_FRAME_HEAD_BYTES, &got);
}

/* The rows of the group whose first one that is there has index i. */
static kvarc_ret gather_rows(struct kvi_repair *x, size_t i, struct repair_group *g)
{
	struct kvi_repair_row *rows = x->rows.p;
	kvarc_ret ret = KVARC_OK;
	for (size_t k = i; k < x->rows.n && !ret; k++) {
		uint8_t *other;
		/* They stand one after another. */
		if (rows[k].pieces != g->pieces || rows[k].rows != g->rows)
			continue;
		if (rows[k].offset - rows[i].offset >
		    (uint64_t)g->rows * kvi_frame_bytes(rows[i].payload_bytes))
			break;
		ret = read_table(x, &rows[k], &other);
		if (!ret && kvi_parity_same_group(g->table, other, g->pieces) &&
		    !g->of[rows[k].row]) {
			g->of[rows[k].row] = &rows[k];
			g->n_rows++;
			rows[k].done = k != i;
		}
		kvi_free(&x->alloc, other);
	}
	return ret;
}

static kvarc_ret find_lost(struct kvi_repair *x, struct repair_group *g)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned j = 0; j < g->pieces && !ret; j++) {
		const struct kvi_parity_piece p = kvi_parity_get(g->table, j);
		struct kvi_h128 h = { 0, 0 };
		bool there;
		ret = kvi_view_hash(&x->view, p.offset, p.bytes, &h, &there);
		if (!ret && (!there || !kvi_h128_equal(h, p.check)))
			g->lost[g->n_lost++] = j;
	}
	return ret;
}

static bool is_lost(const struct repair_group *g, unsigned j)
{
	for (unsigned i = 0; i < g->n_lost; i++)
		if (g->lost[i] == j)
			return true;
	return false;
}

/* Adds what the pieces that are there have at [at, at + n) to a value of row r. */
static kvarc_ret add_pieces(struct kvi_repair *x, const struct repair_group *g,
                            const unsigned *rows, unsigned n_rows, uint8_t *values,
                            uint8_t *scratch, uint32_t at, uint32_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned j = 0; j < g->pieces && !ret; j++) {
		const struct kvi_parity_piece p = kvi_parity_get(g->table, j);
		size_t got;
		if (at >= p.bytes || is_lost(g, j))
			continue;
		const uint32_t m = n < p.bytes - at ? n : p.bytes - at;
		ret = kvi_view_read(&x->view, scratch, m, p.offset + at, &got);
		for (unsigned i = 0; i < n_rows && !ret; i++)
			kvi_parity_add(values + (size_t)i * STEP,
			               kvi_parity_factor(g->pieces, rows[i], j), scratch, m);
	}
	return ret;
}

/* What is solved: memory for a step of each row, of each lost piece, and one more. */
struct solving {
	unsigned rows[KVI_PARITY_MOST]; /* that are used */
	uint8_t *inverse;               /* n x 2n, its right half */
	uint8_t *values, *scratch;
	uint8_t *found[KVI_PARITY_MOST]; /* the lost pieces */
};

static void solving_free(struct kvi_repair *x, struct solving *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		kvi_free(&x->alloc, s->found[i]);
	kvi_free(&x->alloc, s->inverse);
	kvi_free(&x->alloc, s->values);
	kvi_free(&x->alloc, s->scratch);
}

static kvarc_ret solving_make(struct kvi_repair *x, const struct repair_group *g, struct solving *s)
{
	const unsigned n = g->n_lost;
	unsigned used = 0;
	for (unsigned r = 0; r < g->rows && used < n; r++)
		if (g->of[r])
			s->rows[used++] = r;
	s->inverse = kvi_calloc(&x->alloc, 2 * n, n);
	s->values = kvi_calloc(&x->alloc, n, STEP);
	s->scratch = kvi_malloc(&x->alloc, STEP);
	bool ok = s->inverse && s->values && s->scratch;
	for (unsigned i = 0; i < n && ok; i++) {
		s->found[i] = kvi_calloc(&x->alloc, g->row_bytes, 1);
		ok = s->found[i];
	}
	for (unsigned i = 0; i < n && ok; i++)
		for (unsigned j = 0; j < n; j++)
			s->inverse[i * 2 * n + j] = kvi_parity_factor(g->pieces, s->rows[i],
			                                              g->lost[j]);
	return ok ? KVARC_OK : kvi_fail_alloc(x->error, &x->alloc);
}

/* Bytes [at, at + n) of all lost pieces. */
static kvarc_ret solve_step(struct kvi_repair *x, const struct repair_group *g, struct solving *s,
                            uint32_t at, uint32_t n)
{
	const unsigned e = g->n_lost;
	kvarc_ret ret = KVARC_OK;
	for (unsigned i = 0; i < e && !ret; i++) {
		const struct kvi_repair_row *r = g->of[s->rows[i]];
		size_t got;
		ret = kvi_view_read(&x->view, s->values + (size_t)i * STEP, n,
		                    r->offset + KVI_FRAME_HEAD_BYTES +
		                            kvi_parity_table_bytes(g->pieces) + at,
		                    &got);
	}
	if (!ret)
		ret = add_pieces(x, g, s->rows, e, s->values, s->scratch, at, n);
	for (unsigned j = 0; j < e && !ret; j++)
		for (unsigned i = 0; i < e; i++)
			kvi_parity_add(s->found[j] + at, s->inverse[j * 2 * e + e + i],
			               s->values + (size_t)i * STEP, n);
	return ret;
}

/* The lost pieces, each with its hash, or none. *done: they are restored. */
static kvarc_ret restore(struct kvi_repair *x, const struct repair_group *g, bool *done)
{
	struct solving s = { .inverse = NULL };
	kvarc_ret ret = solving_make(x, g, &s);
	if (!ret && !kvi_parity_invert(s.inverse, g->n_lost)) {
		solving_free(x, &s, g->n_lost);
		return KVARC_OK;
	}
	for (uint32_t at = 0; at < g->row_bytes && !ret; at += STEP)
		ret = solve_step(x, g, &s, at, g->row_bytes - at < STEP ? g->row_bytes - at : STEP);
	bool right = !ret;
	for (unsigned i = 0; i < g->n_lost && right; i++) {
		const struct kvi_parity_piece p = kvi_parity_get(g->table, g->lost[i]);
		right = kvi_h128_equal(kvi_h128(s.found[i], p.bytes), p.check);
	}
	for (unsigned i = 0; i < g->n_lost && right && !ret; i++) {
		const struct kvi_parity_piece p = kvi_parity_get(g->table, g->lost[i]);
		ret = kvi_view_patch(&x->view, p.offset, p.bytes, s.found[i]);
		s.found[i] = NULL;
		if (!ret)
			kvi_repair_found(x, p.offset, p.bytes, true);
	}
	*done = right && !ret;
	solving_free(x, &s, g->n_lost);
	return ret;
}

/* Row r of a group whose pieces are all there, as a frame in `frame`. */
static kvarc_ret make_row(struct kvi_repair *x, const struct repair_group *g, uint8_t *frame,
                          unsigned r, const struct kvi_repair_row *any, uint64_t offset)
{
	const size_t table = kvi_parity_table_bytes(g->pieces);
	const struct kvi_frame_head h = { KVI_FRAME_PARITY, 0, any->payload_bytes,
		                          any->payload_bytes, any->sequence + r - any->row };
	uint8_t *memory = kvi_malloc(&x->alloc, 2 * (size_t)STEP);
	kvarc_ret ret = memory ? KVARC_OK : kvi_fail_alloc(x->error, &x->alloc);
	kvi_frame_head_write(frame, &h, any->sync, offset);
	memcpy(frame + KVI_FRAME_HEAD_BYTES, g->table, table);
	kvi_store16(frame + KVI_FRAME_HEAD_BYTES + 2, (uint16_t)r);
	for (uint32_t at = 0; at < g->row_bytes && !ret; at += STEP) {
		const uint32_t n = g->row_bytes - at < STEP ? g->row_bytes - at : STEP;
		memset(memory, 0, STEP);
		ret = add_pieces(x, g, &r, 1, memory, memory + STEP, at, n);
		memcpy(frame + KVI_FRAME_HEAD_BYTES + table + at, memory, n);
	}
	kvi_free(&x->alloc, memory);
	kvi_frame_close(frame, offset, any->payload_bytes);
	return ret;
}

/* Whether a whole frame of any kind stands at an offset: it is left alone. */
static kvarc_ret has_frame(struct kvi_repair *x, uint64_t offset, bool *there)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES];
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	size_t got;
	*there = false;
	kvarc_ret ret = kvi_view_read(&x->view, head, sizeof head, offset, &got);
	if (ret || got < sizeof head)
		return ret;
	const struct kvi_input in = { .source = kvi_view_source(&x->view, x->view.size),
		                      .alloc = &x->alloc,
		                      .sync = kvi_load64(head) };
	ret = kvi_frame_read(&in, offset, &buf, &f, x->error);
	*there = ret == KVARC_OK;
	kvi_free(&x->alloc, buf.p);
	return ret == KVARC_DATA || ret == KVARC_END ? KVARC_OK : ret;
}

/* Rows that are lost, of a group whose pieces are all there. */
static kvarc_ret restore_rows(struct kvi_repair *x, const struct repair_group *g, size_t first,
                              bool *done)
{
	const struct kvi_repair_row any = *KVI_LIST(struct kvi_repair_row, x->rows, first);
	const uint64_t size = kvi_frame_bytes(any.payload_bytes);
	kvarc_ret ret = KVARC_OK;
	for (unsigned r = 0; r < g->rows && !ret; r++) {
		const uint64_t back = any.row > r ? (uint64_t)(any.row - r) : 0;
		bool taken;
		if (g->of[r] || back > any.sequence || back * size + 64 > any.offset)
			continue;
		const uint64_t offset = any.offset + r * size - any.row * size;
		ret = has_frame(x, offset, &taken);
		if (ret || taken)
			continue;
		uint8_t *frame = kvi_malloc(&x->alloc, (size_t)size);
		ret = frame ? make_row(x, g, frame, r, &any, offset)
		            : kvi_fail_alloc(x->error, &x->alloc);
		if (ret) {
			kvi_free(&x->alloc, frame);
			break;
		}
		ret = kvi_view_patch(&x->view, offset, size, frame);
		if (!ret)
			kvi_repair_found(x, offset, size, true);
		*done = true;
	}
	return ret;
}

/* The group whose first row that is there has index i. *changed: something was restored. */
static kvarc_ret repair_group(struct kvi_repair *x, size_t i, bool *changed)
{
	struct kvi_repair_row *first = KVI_LIST(struct kvi_repair_row, x->rows, i);
	struct repair_group g = { .pieces = first->pieces,
		                  .rows = first->rows,
		                  .row_bytes = first->row_bytes };
	uint8_t *table;
	bool done = false;
	kvarc_ret ret = read_table(x, first, &table);
	g.table = table;
	if (!ret)
		ret = gather_rows(x, i, &g);
	if (!ret)
		ret = find_lost(x, &g);
	x->report->groups++;
	x->report->rows += g.n_rows;
	if (!ret && g.n_lost && g.n_lost <= g.n_rows) {
		ret = restore(x, &g, &done);
		g.n_lost = done ? 0 : g.n_lost;
	}
	if (!ret && !g.n_lost && g.n_rows < g.rows)
		ret = restore_rows(x, &g, i, &done);
	*changed = *changed || done;
	kvi_free(&x->alloc, table);
	return ret;
}

kvarc_ret kvi_repair_groups(struct kvi_repair *x)
{
	bool changed = true;
	kvarc_ret ret = KVARC_OK;
	for (unsigned pass = 0; pass < PASSES && changed && !ret; pass++) {
		changed = false;
		ret = find_rows(x);
		x->report->groups = x->report->rows = 0;
		for (size_t i = 0; i < x->rows.n && !ret; i++)
			if (!KVI_LIST(struct kvi_repair_row, x->rows, i)->done)
				ret = repair_group(x, i, &changed);
	}
	return ret;
}
