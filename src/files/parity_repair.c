/* SPDX-License-Identifier: BSD-3-Clause */
/* parity_repair.c - an archive once more, with what its parity restores (frames 12.2) */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/commit.h"
#include "format/frame_input.h"
#include "format/parity.h"
#include "format/superblock.h"
#include "util/arguments.h"
#include "util/bytes.h"
#include "util/error.h"
#include "util/list.h"

/* ==== A damaged archive with what was restored of it so far ==== */

/* Bytes in place of those of the source. */
struct repair_patch {
	uint64_t offset, bytes;
	uint8_t *p;
};

/* The source under its patches; behind its end, and in gaps, there are zeros. */
struct repair_view {
	const kvarc_source *source;
	const struct kvi_alloc *alloc;
	struct kvi_list patches; /* struct repair_patch, the later ones above */
	uint64_t size;
	kvarc_error *error;
};

/* Takes over memory of the allocator. Returns OK, MEM, MEMLIMIT; then p is freed. */
static kvarc_ret view_patch(struct repair_view *view, uint64_t offset, uint64_t bytes, uint8_t *p)
{
	struct repair_patch *patch = kvi_list_add(&view->patches, view->alloc, sizeof *patch);
	if (!patch) {
		kvi_free(view->alloc, p);
		return kvi_fail_alloc(view->error, view->alloc);
	}
	*patch = (struct repair_patch){ offset, bytes, p };
	view->size = offset + bytes > view->size ? offset + bytes : view->size;
	return KVARC_OK;
}

/* Frees all patches. */
static void view_free(struct repair_view *view)
{
	for (size_t i = 0; i < view->patches.n; i++)
		kvi_free(view->alloc, KVI_LIST(struct repair_patch, view->patches, i)->p);
	kvi_free(view->alloc, view->patches.p);
	view->patches = (struct kvi_list){ 0 };
}

/* Reads from the source alone, without patches; zeros behind its end. */
static kvarc_ret read_source(const struct repair_view *view, uint8_t *buf, size_t bytes,
                             uint64_t offset)
{
	const struct kvi_input in = { .source = *view->source, .alloc = view->alloc };
	size_t got;
	kvarc_ret ret = kvi_input_read(&in, buf, bytes, offset, &got, view->error);
	if (ret == KVARC_OK)
		memset(buf + got, 0, bytes - got);
	return ret;
}

/* Bytes at an offset; *got: fewer at the end. Returns OK, IO. */
static kvarc_ret view_read(const struct repair_view *view, void *buf, size_t bytes, uint64_t offset,
                           size_t *got)
{
	*got = 0;
	if (offset >= view->size)
		return KVARC_OK;
	bytes = bytes < view->size - offset ? bytes : (size_t)(view->size - offset);
	kvarc_ret ret = read_source(view, buf, bytes, offset);
	for (size_t i = 0; i < view->patches.n && !ret; i++) {
		const struct repair_patch *p = KVI_LIST(struct repair_patch, view->patches, i);
		const uint64_t from = p->offset > offset ? p->offset : offset;
		const uint64_t p_end = p->offset + p->bytes, end = offset + bytes;
		const uint64_t to = p_end < end ? p_end : end;
		if (from < to)
			memcpy((uint8_t *)buf + (from - offset), p->p + (from - p->offset),
			       (size_t)(to - from));
	}
	*got = ret ? 0 : bytes;
	return ret;
}

/* Hashes bytes of the view (H128). *there: false behind the end. Returns OK, MEM,
 * MEMLIMIT, IO. */
static kvarc_ret view_hash(const struct repair_view *view, uint64_t offset, uint32_t bytes,
                           struct kvi_h128 *hash, bool *there)
{
	size_t got;
	*there = offset <= view->size && bytes <= view->size - offset;
	if (!*there)
		return KVARC_OK;
	uint8_t *p = kvi_malloc(view->alloc, bytes);
	kvarc_ret ret = p ? view_read(view, p, bytes, offset, &got)
	                  : kvi_fail_alloc(view->error, view->alloc);
	if (!ret)
		*hash = kvi_h128(p, bytes);
	kvi_free(view->alloc, p);
	return ret;
}

static int64_t view_source_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	size_t got;
	return view_read(opaque, buf, bytes, offset, &got) ? -1 : (int64_t)got;
}

/* A source of the first `size` bytes of it; the view must stay where it is. */
static kvarc_source view_source(struct repair_view *view, uint64_t size)
{
	return (kvarc_source){ .read = view_source_read, .opaque = view, .size = size };
}

/* ==== Finds rows of parity and restores the pieces of their groups (frames.md 12.2) ==== */

/* The repair of an archive. */
struct repairing {
	struct kvi_alloc alloc;
	kvarc_repair_options options;
	kvarc_error *error;
	struct repair_view view;
	kvarc_repair_report *report;
	struct kvi_list rows; /* struct repair_row, ascending */
};

/* A PARITY frame that may be used. */
struct repair_row {
	uint64_t offset, sequence, sync;
	uint32_t payload_bytes, row_bytes;
	uint16_t pieces, row, rows;
	bool done; /* a row before this one stands for the group */
};

/* The current group: the pieces of its table, and its rows by number. */
struct repair_group {
	const uint8_t *table; /* payload of its first row, without the row */
	unsigned pieces, rows;
	uint32_t row_bytes;
	const struct repair_row *of[KVI_PARITY_MOST]; /* NULL: the row is lost */
	unsigned n_rows;
	unsigned lost[KVI_PARITY_MOST]; /* pieces */
	unsigned n_lost;
};

/* Passes over all groups, at most: pieces that a group restores may be rows of another. */
enum { PASSES = 64 };
/* Bytes that are restored at a time. */
enum { RESTORE_STEP = 64 << 10 };

/* Notes restored bytes. */
static void repair_found(struct repairing *repairing, uint64_t offset, uint64_t bytes,
                         bool restored)
{
	kvarc_repair_report *r = repairing->report;
	*(restored ? &r->restored_pieces : &r->lost_places) += 1;
	*(restored ? &r->restored_bytes : &r->lost_bytes) += bytes;
	if (repairing->options.found)
		repairing->options.found(repairing->options.opaque, offset, bytes, restored);
}

/* The frame at an offset, if it is a row that may be used. Returns OK, END (it is not), MEM,
 * MEMLIMIT, IO. */
static kvarc_ret look_at(struct repairing *repairing, const uint8_t *head, uint64_t offset)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	struct kvi_parity_head h;
	const uint64_t sync = kvi_load64(head);
	const struct kvi_input in = { .source = view_source(&repairing->view, repairing->view.size),
		                      .alloc = &repairing->alloc,
		                      .sync = sync };
	kvarc_ret ret = kvi_frame_read(&in, offset, &buf, &f, repairing->error);
	if (ret == KVARC_OK && f.head.type == KVI_FRAME_PARITY && !f.head.flags &&
	    kvi_parity_parse(&h, f.payload, f.head.payload_bytes, offset)) {
		struct repair_row *r = kvi_list_add(&repairing->rows, &repairing->alloc, sizeof *r);
		if (r)
			*r = (struct repair_row){ .offset = offset,
				                  .sequence = f.head.sequence,
				                  .sync = sync,
				                  .payload_bytes = f.head.payload_bytes,
				                  .row_bytes = h.row_bytes,
				                  .pieces = h.pieces,
				                  .row = h.row,
				                  .rows = h.rows };
		else
			ret = kvi_fail_alloc(repairing->error, &repairing->alloc);
	} else if (ret == KVARC_OK || ret == KVARC_DATA) {
		ret = KVARC_END;
	}
	kvi_free(&repairing->alloc, buf.p);
	return ret;
}

static bool is_row_head(const uint8_t *p, uint64_t offset)
{
	struct kvi_frame_head h;
	return kvi_load16(p + 8) == KVI_FRAME_PARITY &&
	       kvi_frame_head_parse(&h, p, kvi_load64(p), offset) &&
	       h.payload_bytes <= KVI_FRAME_MAX;
}

/* Finds all rows of the archive, at multiples of 16. */
static kvarc_ret find_rows(struct repairing *repairing)
{
	enum { WINDOW = 1 << 20 };
	uint8_t *p = kvi_malloc(&repairing->alloc, WINDOW);
	kvarc_ret ret = p ? KVARC_OK : kvi_fail_alloc(repairing->error, &repairing->alloc);
	repairing->rows.n = 0;
	for (uint64_t at = 0; !ret && at < repairing->view.size;
	     at += WINDOW - KVI_FRAME_HEAD_BYTES) {
		size_t got;
		ret = view_read(&repairing->view, p, WINDOW, at, &got);
		for (size_t i = 0; !ret && i + KVI_FRAME_HEAD_BYTES < got; i += KVI_FRAME_ALIGN) {
			if (i >= WINDOW - KVI_FRAME_HEAD_BYTES)
				break; /* the next window has it */
			if (is_row_head(p + i, at + i))
				ret = look_at(repairing, p + i, at + i);
			ret = ret == KVARC_END ? KVARC_OK : ret;
		}
	}
	kvi_free(&repairing->alloc, p);
	return ret;
}

/* Reads head and pieces of a row, into memory of the allocator. */
static kvarc_ret read_table(struct repairing *repairing, const struct repair_row *r,
                            uint8_t **table)
{
	const size_t bytes = kvi_parity_table_bytes(r->pieces);
	size_t got;
	*table = kvi_malloc(&repairing->alloc, bytes);
	if (!*table)
		return kvi_fail_alloc(repairing->error, &repairing->alloc);
	return view_read(&repairing->view, *table, bytes, r->offset + KVI_FRAME_HEAD_BYTES, &got);
}

/* The rows of the group whose first one that is there has index i. */
static kvarc_ret gather_rows(struct repairing *repairing, size_t i, struct repair_group *group)
{
	struct repair_row *rows = repairing->rows.p;
	kvarc_ret ret = KVARC_OK;
	for (size_t k = i; k < repairing->rows.n && !ret; k++) {
		uint8_t *other;
		/* The rows of a group stand one after another. */
		if (rows[k].pieces != group->pieces || rows[k].rows != group->rows)
			continue;
		if (rows[k].offset - rows[i].offset >
		    (uint64_t)group->rows * kvi_frame_bytes(rows[i].payload_bytes))
			break;
		ret = read_table(repairing, &rows[k], &other);
		if (!ret && kvi_parity_same_group(group->table, other, group->pieces) &&
		    !group->of[rows[k].row]) {
			group->of[rows[k].row] = &rows[k];
			group->n_rows++;
			rows[k].done = k != i;
		}
		kvi_free(&repairing->alloc, other);
	}
	return ret;
}

static kvarc_ret find_lost(struct repairing *repairing, struct repair_group *group)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned j = 0; j < group->pieces && !ret; j++) {
		const struct kvi_parity_piece p = kvi_parity_get(group->table, j);
		struct kvi_h128 h = { 0, 0 };
		bool there;
		ret = view_hash(&repairing->view, p.offset, p.bytes, &h, &there);
		if (!ret && (!there || !kvi_h128_equal(h, p.check)))
			group->lost[group->n_lost++] = j;
	}
	return ret;
}

static bool is_lost(const struct repair_group *group, unsigned j)
{
	for (unsigned i = 0; i < group->n_lost; i++)
		if (group->lost[i] == j)
			return true;
	return false;
}

/* Adds what the pieces that are there have at [at, at + n) to a value of row r. */
static kvarc_ret add_pieces(struct repairing *repairing, const struct repair_group *group,
                            const unsigned *rows, unsigned n_rows, uint8_t *values,
                            uint8_t *scratch, uint32_t at, uint32_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned j = 0; j < group->pieces && !ret; j++) {
		const struct kvi_parity_piece p = kvi_parity_get(group->table, j);
		size_t got;
		if (at >= p.bytes || is_lost(group, j))
			continue;
		const uint32_t m = n < p.bytes - at ? n : p.bytes - at;
		ret = view_read(&repairing->view, scratch, m, p.offset + at, &got);
		for (unsigned i = 0; i < n_rows && !ret; i++)
			kvi_parity_add(values + (size_t)i * RESTORE_STEP,
			               kvi_parity_factor(group->pieces, rows[i], j), scratch, m);
	}
	return ret;
}

/* Equations of a group: memory for a step of each row, of each lost piece, and one more. */
struct solving {
	unsigned rows[KVI_PARITY_MOST]; /* rows that are used */
	uint8_t *inverse;               /* n x 2n; the right half is the inverse */
	uint8_t *values, *scratch;
	uint8_t *found[KVI_PARITY_MOST]; /* the lost pieces */
};

static void solving_free(struct repairing *repairing, struct solving *solving, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		kvi_free(&repairing->alloc, solving->found[i]);
	kvi_free(&repairing->alloc, solving->inverse);
	kvi_free(&repairing->alloc, solving->values);
	kvi_free(&repairing->alloc, solving->scratch);
}

static kvarc_ret solving_make(struct repairing *repairing, const struct repair_group *group,
                              struct solving *solving)
{
	const unsigned n = group->n_lost;
	unsigned used = 0;
	for (unsigned r = 0; r < group->rows && used < n; r++)
		if (group->of[r])
			solving->rows[used++] = r;
	solving->inverse = kvi_calloc(&repairing->alloc, 2 * n, n);
	solving->values = kvi_calloc(&repairing->alloc, n, RESTORE_STEP);
	solving->scratch = kvi_malloc(&repairing->alloc, RESTORE_STEP);
	bool ok = solving->inverse && solving->values && solving->scratch;
	for (unsigned i = 0; i < n && ok; i++) {
		solving->found[i] = kvi_calloc(&repairing->alloc, group->row_bytes, 1);
		ok = solving->found[i];
	}
	for (unsigned i = 0; i < n && ok; i++)
		for (unsigned j = 0; j < n; j++)
			solving->inverse[i * 2 * n + j] =
				kvi_parity_factor(group->pieces, solving->rows[i], group->lost[j]);
	return ok ? KVARC_OK : kvi_fail_alloc(repairing->error, &repairing->alloc);
}

/* Bytes [at, at + n) of all lost pieces. */
static kvarc_ret solve_step(struct repairing *repairing, const struct repair_group *group,
                            struct solving *solving, uint32_t at, uint32_t n)
{
	const unsigned e = group->n_lost;
	kvarc_ret ret = KVARC_OK;
	for (unsigned i = 0; i < e && !ret; i++) {
		const struct repair_row *r = group->of[solving->rows[i]];
		size_t got;
		ret = view_read(&repairing->view, solving->values + (size_t)i * RESTORE_STEP, n,
		                r->offset + KVI_FRAME_HEAD_BYTES +
		                        kvi_parity_table_bytes(group->pieces) + at,
		                &got);
	}
	if (!ret)
		ret = add_pieces(repairing, group, solving->rows, e, solving->values,
		                 solving->scratch, at, n);
	for (unsigned j = 0; j < e && !ret; j++)
		for (unsigned i = 0; i < e; i++)
			kvi_parity_add(solving->found[j] + at, solving->inverse[j * 2 * e + e + i],
			               solving->values + (size_t)i * RESTORE_STEP, n);
	return ret;
}

/* The lost pieces, each with its hash, or none. *done: they are restored. */
static kvarc_ret restore(struct repairing *repairing, const struct repair_group *group, bool *done)
{
	struct solving s = { .inverse = NULL };
	kvarc_ret ret = solving_make(repairing, group, &s);
	if (!ret && !kvi_parity_invert(s.inverse, group->n_lost)) {
		solving_free(repairing, &s, group->n_lost);
		return KVARC_OK;
	}
	for (uint32_t at = 0; at < group->row_bytes && !ret; at += RESTORE_STEP)
		ret = solve_step(repairing, group, &s, at,
		                 group->row_bytes - at < RESTORE_STEP ? group->row_bytes - at
		                                                      : RESTORE_STEP);
	bool right = !ret;
	for (unsigned i = 0; i < group->n_lost && right; i++) {
		const struct kvi_parity_piece p = kvi_parity_get(group->table, group->lost[i]);
		right = kvi_h128_equal(kvi_h128(s.found[i], p.bytes), p.check);
	}
	for (unsigned i = 0; i < group->n_lost && right && !ret; i++) {
		const struct kvi_parity_piece p = kvi_parity_get(group->table, group->lost[i]);
		ret = view_patch(&repairing->view, p.offset, p.bytes, s.found[i]);
		s.found[i] = NULL;
		if (!ret)
			repair_found(repairing, p.offset, p.bytes, true);
	}
	*done = right && !ret;
	solving_free(repairing, &s, group->n_lost);
	return ret;
}

/* Makes row r of a group whose pieces are all there, as a frame in `frame`. */
static kvarc_ret make_row(struct repairing *repairing, const struct repair_group *group,
                          uint8_t *frame, unsigned r, const struct repair_row *any, uint64_t offset)
{
	const size_t table = kvi_parity_table_bytes(group->pieces);
	const struct kvi_frame_head h = { KVI_FRAME_PARITY, 0, any->payload_bytes,
		                          any->payload_bytes, any->sequence + r - any->row };
	uint8_t *memory = kvi_malloc(&repairing->alloc, 2 * (size_t)RESTORE_STEP);
	kvarc_ret ret = memory ? KVARC_OK : kvi_fail_alloc(repairing->error, &repairing->alloc);
	kvi_frame_head_write(frame, &h, any->sync, offset);
	memcpy(frame + KVI_FRAME_HEAD_BYTES, group->table, table);
	kvi_store16(frame + KVI_FRAME_HEAD_BYTES + 2, (uint16_t)r);
	for (uint32_t at = 0; at < group->row_bytes && !ret; at += RESTORE_STEP) {
		const uint32_t n = group->row_bytes - at < RESTORE_STEP ? group->row_bytes - at
		                                                        : RESTORE_STEP;
		memset(memory, 0, RESTORE_STEP);
		ret = add_pieces(repairing, group, &r, 1, memory, memory + RESTORE_STEP, at, n);
		memcpy(frame + KVI_FRAME_HEAD_BYTES + table + at, memory, n);
	}
	kvi_free(&repairing->alloc, memory);
	kvi_frame_close(frame, offset, any->payload_bytes,
	                kvi_frame_rest(frame, any->payload_bytes));
	return ret;
}

/* Whether a whole frame of any kind stands at an offset: it is left alone. */
static kvarc_ret has_frame(struct repairing *repairing, uint64_t offset, bool *there)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES];
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	size_t got;
	*there = false;
	kvarc_ret ret = view_read(&repairing->view, head, sizeof head, offset, &got);
	if (ret || got < sizeof head)
		return ret;
	const struct kvi_input in = { .source = view_source(&repairing->view, repairing->view.size),
		                      .alloc = &repairing->alloc,
		                      .sync = kvi_load64(head) };
	ret = kvi_frame_read(&in, offset, &buf, &f, repairing->error);
	*there = ret == KVARC_OK;
	kvi_free(&repairing->alloc, buf.p);
	return ret == KVARC_DATA || ret == KVARC_END ? KVARC_OK : ret;
}

/* Rows that are lost, of a group whose pieces are all there. */
static kvarc_ret restore_rows(struct repairing *repairing, const struct repair_group *group,
                              size_t first, bool *done)
{
	const struct repair_row any = *KVI_LIST(struct repair_row, repairing->rows, first);
	const uint64_t size = kvi_frame_bytes(any.payload_bytes);
	kvarc_ret ret = KVARC_OK;
	for (unsigned r = 0; r < group->rows && !ret; r++) {
		const uint64_t back = any.row > r ? (uint64_t)(any.row - r) : 0;
		bool taken;
		if (group->of[r] || back > any.sequence || back * size + 64 > any.offset)
			continue;
		const uint64_t offset = any.offset + r * size - any.row * size;
		ret = has_frame(repairing, offset, &taken);
		if (ret || taken)
			continue;
		uint8_t *frame = kvi_malloc(&repairing->alloc, (size_t)size);
		ret = frame ? make_row(repairing, group, frame, r, &any, offset)
		            : kvi_fail_alloc(repairing->error, &repairing->alloc);
		if (ret) {
			kvi_free(&repairing->alloc, frame);
			break;
		}
		ret = view_patch(&repairing->view, offset, size, frame);
		if (!ret)
			repair_found(repairing, offset, size, true);
		*done = true;
	}
	return ret;
}

/* The group whose first row that is there has index i. *changed: something was restored. */
static kvarc_ret repair_group(struct repairing *repairing, size_t i, bool *changed)
{
	struct repair_row *first = KVI_LIST(struct repair_row, repairing->rows, i);
	struct repair_group g = { .pieces = first->pieces,
		                  .rows = first->rows,
		                  .row_bytes = first->row_bytes };
	uint8_t *table;
	bool done = false;
	kvarc_ret ret = read_table(repairing, first, &table);
	g.table = table;
	if (!ret)
		ret = gather_rows(repairing, i, &g);
	if (!ret)
		ret = find_lost(repairing, &g);
	repairing->report->groups++;
	repairing->report->rows += g.n_rows;
	if (!ret && g.n_lost && g.n_lost <= g.n_rows) {
		ret = restore(repairing, &g, &done);
		g.n_lost = done ? 0 : g.n_lost;
	}
	if (!ret && !g.n_lost && g.n_rows < g.rows)
		ret = restore_rows(repairing, &g, i, &done);
	*changed = *changed || done;
	kvi_free(&repairing->alloc, table);
	return ret;
}

/* Restores what can be, as patches of the view. Returns OK, MEM, MEMLIMIT, IO. */
static kvarc_ret repair_groups(struct repairing *repairing)
{
	bool changed = true;
	kvarc_ret ret = KVARC_OK;
	for (unsigned pass = 0; pass < PASSES && changed && !ret; pass++) {
		changed = false;
		ret = find_rows(repairing);
		repairing->report->groups = repairing->report->rows = 0;
		for (size_t i = 0; i < repairing->rows.n && !ret; i++)
			if (!KVI_LIST(struct repair_row, repairing->rows, i)->done)
				ret = repair_group(repairing, i, &changed);
	}
	return ret;
}

/* ==== Writes an archive once more, with what its parity restores (frames.md 12.2) ==== */

/* The state of the frames of the result, up to and behind the last lost range. */
struct repair_end {
	uint64_t end, sequence;   /* offset and number behind the leading good frames */
	uint64_t lost_at, lost;   /* the last range that is no good frame */
	uint64_t ranges;          /* number of ranges that are no good frames */
	uint16_t last, lost_type; /* types: last good frame before it, good head in it; 0: none */
	bool others_behind;       /* frames but INDEX and FOOTER come behind it */
	bool footer, footer_fits; /* a FOOTER comes; it counts one frame between */
	bool encrypted;
};

static kvarc_ret copy(struct repairing *repairing, const kvarc_sink *sink, uint64_t size)
{
	enum { STEP = 1 << 20 };
	uint8_t *p = kvi_malloc(&repairing->alloc, STEP);
	kvarc_ret ret = p ? KVARC_OK : kvi_fail_alloc(repairing->error, &repairing->alloc);
	for (uint64_t at = 0; at < size && !ret;) {
		size_t want = size - at < STEP ? (size_t)(size - at) : STEP, got;
		ret = view_read(&repairing->view, p, want, at, &got);
		errno = 0;
		if (!ret && sink->write(sink->opaque, p, got, at))
			ret = kvi_fail_callback(repairing->error, at, KVARC_UNKNOWN,
			                        "writing %zu bytes at offset %llu failed", got,
			                        (unsigned long long)at);
		at += got;
	}
	kvi_free(&repairing->alloc, p);
	return ret;
}

/* The sync mark: of the superblock, or of the first frame where that is damaged; else FORMAT. */
static kvarc_ret find_sync(struct repairing *repairing, uint64_t *sync, bool *superblock,
                           bool *encrypted)
{
	uint8_t b[KVI_SUPERBLOCK_BYTES + KVI_FRAME_HEAD_BYTES];
	struct kvi_superblock sb;
	struct kvi_frame_head h;
	size_t got;
	kvarc_ret ret = view_read(&repairing->view, b, sizeof b, 0, &got);
	if (ret)
		return ret;
	ret = got < KVI_SUPERBLOCK_BYTES ? KVARC_FORMAT : kvi_superblock_parse(&sb, b);
	*superblock = ret == KVARC_OK || ret == KVARC_OPTIONS;
	*encrypted = *superblock && sb.incompat & KVI_INCOMPAT_ENCRYPTED;
	*sync = *superblock ? kvi_frame_sync(sb.file_id) : 0;
	if (*superblock)
		return KVARC_OK;
	*sync = got < sizeof b ? 0 : kvi_load64(b + KVI_SUPERBLOCK_BYTES);
	if (got == sizeof b &&
	    kvi_frame_head_parse(&h, b + KVI_SUPERBLOCK_BYTES, *sync, KVI_SUPERBLOCK_BYTES))
		return KVARC_OK;
	return kvi_fail_at(repairing->error, KVARC_FORMAT, 0, KVARC_UNKNOWN,
	                   "this is not a kvarc file, or its start is lost and nothing in it "
	                   "restores that");
}

/* A range without a good frame. */
static void add_lost(struct repairing *repairing, struct repair_end *w, uint64_t at, uint64_t next)
{
	if (w->ranges && w->lost_at + w->lost == at) {
		w->lost = next - w->lost_at;
		return;
	}
	if (w->ranges++)
		repair_found(repairing, w->lost_at, w->lost, false);
	w->lost_at = at;
	w->lost = next - at;
	w->others_behind = w->footer = w->footer_fits = false;
	w->lost_type = 0;
}

static void good_frame(struct repair_end *w, const struct kvi_frame *frame)
{
	struct kvi_footer foot;
	const uint16_t type = frame->head.type;
	if (!w->ranges) {
		w->end = frame->offset + frame->bytes;
		w->sequence = frame->head.sequence + 1;
		w->last = type;
	} else if (type == KVI_FRAME_FOOTER &&
	           kvi_footer_parse(&foot, frame->payload, frame->head.payload_bytes)) {
		w->footer = true;
		w->footer_fits = foot.frames == w->sequence + 1;
	} else if (type != KVI_FRAME_INDEX) {
		w->others_behind = true;
	}
}

/* A PARITY frame whose row is lost: without a row it is no fault (rule R12.11). */
static kvarc_ret empty_row(struct repairing *repairing, struct kvi_frame *f, uint64_t sync)
{
	uint8_t *frame = kvi_calloc(&repairing->alloc, (size_t)f->bytes, 1);
	if (!frame)
		return kvi_fail_alloc(repairing->error, &repairing->alloc);
	kvi_frame_head_write(frame, &f->head, sync, f->offset);
	kvi_frame_close(frame, f->offset, f->head.payload_bytes,
	                kvi_frame_rest(frame, f->head.payload_bytes));
	repairing->report->emptied_rows++;
	return view_patch(&repairing->view, f->offset, f->bytes, frame);
}

/* Goes through the frames of the result, whatever is in them. */
static kvarc_ret walk(struct repairing *repairing, struct repair_end *w, uint64_t sync)
{
	const struct kvi_input in = { .source = view_source(&repairing->view, repairing->view.size),
		                      .alloc = &repairing->alloc,
		                      .sync = sync };
	struct kvi_window window = { .bytes = 0 };
	struct kvi_buffer buf = { 0 };
	kvarc_ret ret = KVARC_OK;
	w->end = KVI_SUPERBLOCK_BYTES;
	for (uint64_t at = w->end; at < repairing->view.size && !ret;) {
		struct kvi_frame f;
		uint64_t next;
		ret = kvi_frame_read(&in, at, &buf, &f, repairing->error);
		next = at + f.bytes;
		if (ret == KVARC_DATA && f.head_good && !f.cut && !f.head.flags &&
		    f.head.type == KVI_FRAME_PARITY)
			ret = empty_row(repairing, &f, sync);
		if (ret == KVARC_OK)
			good_frame(w, &f);
		else if (ret == KVARC_DATA) {
			ret = f.head_good && !f.cut
			              ? KVARC_OK
			              : kvi_frame_find(&in, at + KVI_FRAME_ALIGN, &window, &next,
			                               repairing->error);
			const bool is_new = !w->ranges || w->lost_at + w->lost != at;
			if (!ret)
				add_lost(repairing, w, at, next);
			if (is_new && f.head_good)
				w->lost_type = f.head.type;
		}
		at = next;
	}
	kvi_free(&repairing->alloc, window.buffer.p);
	kvi_free(&repairing->alloc, buf.p);
	return ret;
}

/* Whether what is good ends in front of what is lost, so that an end can be put there. */
static bool has_end(const struct repair_end *w)
{
	return w->ranges ? w->ranges == 1 && !w->others_behind : w->last != KVI_FRAME_FOOTER;
}

/* Whether nothing but INDEX and FOOTER is lost, or missing. */
static bool end_alone(const struct repair_end *w)
{
	if (!w->ranges)
		return w->last != KVI_FRAME_FOOTER;
	return w->lost_type == KVI_FRAME_INDEX || w->lost_type == KVI_FRAME_FOOTER ||
	       (w->footer && w->footer_fits) ||
	       (w->last == KVI_FRAME_INDEX && w->lost <= KVI_FOOTER_FRAME_BYTES);
}

/* Writes INDEX and FOOTER behind the good frames, which were written. Returns OK; END: they cannot
 * be made; IO. */
static kvarc_ret make_end(struct repairing *repairing, const kvarc_sink *sink,
                          const struct repair_end *w)
{
	kvarc_source source = view_source(&repairing->view, w->end);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	const kvarc_sink behind = { .write = sink->write, .opaque = sink->opaque };
	kvarc_writer *writer;
	uint64_t used = atomic_load(&repairing->alloc.used);
	o.common = repairing->options.common;
	o.common.progress = NULL;
	o.common.error = NULL;
	o.common.memlimit = repairing->alloc.limit > used ? repairing->alloc.limit - used : 1;
	o.keys = w->encrypted ? repairing->options.keys : NULL;
	kvarc_ret ret = kvarc_writer_open_append(&writer, &source, &behind, &o);
	if (!ret)
		ret = kvarc_writer_close(&writer);
	if (ret == KVARC_IO)
		return kvi_fail(repairing->error, ret, "writing the end of the archive failed");
	return ret ? KVARC_END : KVARC_OK;
}

/* A sink that counts; to: NULL, or where its bytes go. */
struct counting_sink {
	const kvarc_sink *to;
	uint64_t size;
};

static int count_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct counting_sink *c = opaque;
	c->size = offset + bytes;
	return c->to ? c->to->write(c->to->opaque, buf, bytes, offset) : 0;
}

static kvarc_ret write_result(struct repairing *repairing, const kvarc_sink *sink,
                              struct repair_end *w)
{
	struct counting_sink counted = { .size = 0 };
	const kvarc_sink count = { .write = count_write, .opaque = &counted };
	/* A trial without the sink comes first, as the sink gets each byte once. */
	bool end = repairing->options.flags & KVARC_REPAIR_END && has_end(w) &&
	           make_end(repairing, &count, w) == KVARC_OK;
	if (w->ranges && !(end && end_alone(w)))
		repair_found(repairing, w->lost_at, w->lost, false);
	counted.to = sink;
	kvarc_ret ret = copy(repairing, &count, end ? w->end : repairing->view.size);
	if (!ret && end)
		ret = make_end(repairing, &count, w);
	repairing->report->end_made = end;
	repairing->report->file_bytes = counted.size;
	errno = 0;
	if (!ret && sink->flush && sink->flush(sink->opaque))
		ret = kvi_fail_callback(repairing->error, counted.size, KVARC_UNKNOWN,
		                        "flushing the output failed");
	return ret;
}

static kvarc_ret repair(struct repairing *repairing, const kvarc_source *source,
                        const kvarc_sink *sink)
{
	struct repair_end w = { .ranges = 0 };
	uint64_t sync;
	bool superblock;
	repairing->view = (struct repair_view){ .source = source,
		                                .alloc = &repairing->alloc,
		                                .size = source->size,
		                                .error = repairing->error };
	kvarc_ret ret = repair_groups(repairing);
	if (!ret)
		ret = find_sync(repairing, &sync, &superblock, &w.encrypted);
	if (!ret && !superblock)
		repair_found(repairing, 0, KVI_SUPERBLOCK_BYTES, false);
	if (!ret)
		ret = walk(repairing, &w, sync);
	if (!ret)
		ret = write_result(repairing, sink, &w);
	view_free(&repairing->view);
	kvi_free(&repairing->alloc, repairing->rows.p);
	return ret;
}

static kvarc_ret check(const kvarc_source *source, const kvarc_sink *sink,
                       const kvarc_repair_options *options)
{
	static const char call[] = "kvarc_repair";
	kvarc_error *e = options->common.error;
	kvarc_ret ret = kvi_check_common(&options->common);
	if (!ret)
		ret = kvi_check_source(e, call, source, true);
	if (!ret)
		ret = kvi_check_sink(e, call, sink);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_repair_options", options);
	if (!ret && options->flags & ~KVARC_REPAIR_END)
		ret = kvi_fail(e, KVARC_PROG, "%s: unknown flags in the options", call);
	if (!ret && source->size == KVARC_UNKNOWN)
		ret = kvi_reason(e, KVARC_REASON_NEEDS_SEEK,
		                 kvi_fail(e, KVARC_OPTIONS,
		                          "%s needs a source that can seek, not a pipe", call));
	return ret;
}

kvarc_ret kvarc_repair(const kvarc_source *source, const kvarc_sink *sink,
                       const kvarc_repair_options *options, kvarc_repair_report *report)
{
	static const kvarc_repair_options defaults = KVARC_REPAIR_OPTIONS_INIT;
	const kvarc_repair_options *o = options ? options : &defaults;
	kvarc_repair_report none;
	kvarc_ret ret = check(source, sink, o);
	if (ret)
		return ret;
	struct repairing x = { .options = *o,
		               .error = o->common.error,
		               .report = report ? report : &none };
	*x.report = (kvarc_repair_report){ 0 };
	kvi_alloc_init(&x.alloc, o->common.allocator, o->common.memlimit);
	return repair(&x, source, sink);
}
