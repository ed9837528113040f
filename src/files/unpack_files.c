/* SPDX-License-Identifier: BSD-3-Clause */
/* unpack_files.c - the files of an archive: all of them, or those of one state past damage */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "assembly.h"
#include "literals.h"
#include "locked.h"
#include "references.h"
#include "strided.h"
#include "unpack_elements.h"
#include "format/geometry_check.h"
#include "reader/reader_internal.h"
#include "util/ckd.h"
#include "util/intervals.h"

/* ==== The files of one state of an archive, past what is damaged elsewhere in it ==== */

enum { PIECE = 1 << 16 };

/* Files on their way out of an archive that is damaged. */
struct past_damage {
	kvarc_reader *r;
	struct kvi_literals literals;
	struct kvi_token_span *spans;
	uint8_t *buffer;
};

static kvarc_ret no_memory(const struct past_damage *x)
{
	return kvi_reader_fail(x->r, kvi_alloc_error(kvi_reader_alloc(x->r)),
	                       "not enough memory to put the files together");
}

/* Literal bytes of an item of the archive, to an offset of a file. */
static kvarc_ret put_bytes(struct past_damage *x, const kvarc_sink *sink, uint64_t at,
                           uint64_t item, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t n = bytes < PIECE ? (size_t)bytes : PIECE;
		ret = kvi_literals_read(&x->literals, item, from, n, x->buffer);
		if (!ret && sink->write(sink->opaque, x->buffer, n, at))
			ret = kvi_reader_fail(x->r, KVARC_IO, "writing a file failed");
		at += n;
		from += n;
		bytes -= n;
	}
	return ret;
}

static void extend(struct kvi_token_span *span, const struct kvi_piece *p)
{
	if (span->begin == span->end)
		*span = (struct kvi_token_span){ p->t0, p->t0 };
	if (p->t0 < span->begin)
		span->begin = p->t0;
	if (p->t0 + p->n_tokens > span->end)
		span->end = p->t0 + p->n_tokens;
}

static kvarc_ret put_item(struct past_damage *x, size_t i, const kvarc_sink *sink)
{
	const struct kvi_restore *plan = kvi_reader_restore(x->r, i);
	const uint64_t number = kvi_reader_earlier_items(x->r) + i;
	uint64_t at = 0, literals = 0;
	kvarc_ret ret = KVARC_OK;
	for (uint32_t t = 0; t < kvarc_reader_geometry(x->r)->n_tracks; t++)
		x->spans[t] = (struct kvi_token_span){ 0, 0 };
	for (size_t k = 0; k < plan->n_pieces && !ret; k++) {
		const struct kvi_piece *p = &plan->pieces[k];
		if (p->type == KVI_PIECE_AREA)
			extend(&x->spans[p->track], p);
		else if (p->type == KVI_PIECE_REFERENCE)
			ret = put_bytes(x, sink, at, p->item, p->from, p->bytes);
		else
			ret = put_bytes(x, sink, at, number, literals, p->bytes);
		literals += p->type == KVI_PIECE_LITERAL ? p->bytes : 0;
		at += p->bytes;
	}
	return ret ? ret : kvi_unpack_elements(x->r, plan, sink, x->spans);
}

static kvarc_ret put_items(struct past_damage *x, kvi_item_sink_fn *sink_of, void *opaque)
{
	const struct kvi_alloc *alloc = kvi_reader_alloc(x->r);
	x->buffer = kvi_malloc(alloc, PIECE);
	x->spans = kvi_array(alloc, kvarc_reader_geometry(x->r)->n_tracks, sizeof *x->spans);
	kvarc_ret ret = x->buffer && x->spans ? kvi_literals_open(&x->literals, x->r)
	                                      : no_memory(x);
	for (size_t i = 0; i < kvi_reader_n_items(x->r) && !ret; i++) {
		const kvarc_sink *sink = sink_of(opaque, i);
		if (sink)
			ret = put_item(x, i, sink);
	}
	kvi_literals_free(&x->literals);
	kvi_free(alloc, x->buffer);
	kvi_free(alloc, x->spans);
	return ret;
}

kvarc_ret kvi_unpack_state(kvarc_reader *r, kvi_item_sink_fn *sink_of, void *opaque)
{
	struct past_damage x = { .r = r };
	kvarc_error *e = kvi_reader_error(r), first = { 0 };
	kvarc_info info;
	if (kvi_reader_is_salvage(r) || !kvi_reader_can_seek(r) ||
	    kvarc_reader_get_info(r, &info) || info.state != KVARC_STATE_CLOSED)
		return KVARC_DATA;
	if (e)
		first = *e;
	kvi_reader_forgive(r);
	kvarc_ret ret = put_items(&x, sink_of, opaque);
	if (ret == KVARC_DATA && e)
		*e = first;
	return ret;
}

/* ==== Restores the files that an archive was made from (spec 10) ==== */

/* One view of an area: where a tensor's elements go. */
struct target {
	uint32_t tensor;
	size_t item, piece, view;
	uint64_t base; /* of the area in the file */
	size_t area;   /* number of the area, over all items */
	bool rows;     /* whole rows of several planes: to be assembled */
};

struct unpack_item {
	const struct kvi_restore *plan;
	kvarc_sink sink;
	bool skip;
	/* where the next literal byte goes */
	size_t piece;
	uint64_t file_at; /* of that piece */
	uint64_t blob_at; /* literals before that piece */
};

struct unpacking {
	kvarc_read_call read; /* of ranges; NULL: kvarc_reader_read_deliver */
	void *read_opaque;
	kvarc_reader *r;
	const kvarc_geometry *geometry;
	const struct kvi_alloc *alloc;
	const struct kvi_restore *plan; /* of the only item; NULL: those of the reader */
	struct unpack_item *items;
	size_t n_items, n_targets, n_areas;
	struct target *targets;      /* by tensor */
	struct kvi_interval *tokens; /* of targets; those of a tensor are sorted */
	size_t *first;               /* of tensor i in both; n_tensors + 1 */
	struct kvi_assembly assembly;
	struct kvi_references references;
	kvarc_ret failed;     /* in a worker */
	pthread_mutex_t lock; /* of the sinks, the assembly and failed */
};

/* ----- targets ------------------------------------------------------- */

/* Does one token of a view stay inside a row? */
static bool inside_row(const struct kvi_area_view *v, const kvarc_tensor *t, uint64_t row)
{
	uint64_t width = kvi_tensor_width(t);
	uint64_t blocks = (width - 1) / v->block_elems;
	uint64_t in_block = width < v->block_elems ? width : v->block_elems;
	uint64_t end = v->offset, step;
	return !kvi_mul(blocks, v->block_stride, &step) && !kvi_add(end, step, &end) &&
	       !kvi_mul(in_block - 1, v->elem_stride, &step) && !kvi_add(end, step, &end) &&
	       !kvi_add(end, kvarc_dtype_bytes(t->dtype), &end) && end <= row;
}

/* True when the views are planes of rows that lie one after another. */
static bool is_rows(const struct kvi_piece *p, const kvarc_geometry *g)
{
	uint64_t row = p->bytes / p->n_tokens;
	if (p->n_views < 2 || p->bytes % p->n_tokens)
		return false;
	for (size_t i = 0; i < p->n_views; i++) {
		const struct kvi_area_view *v = &p->views[i];
		if (v->token_stride != row || !inside_row(v, &g->tensors[v->tensor], row))
			return false;
	}
	return true;
}

static size_t count_targets(const struct unpacking *u)
{
	size_t n = 0;
	for (size_t i = 0; i < u->n_items; i++)
		for (size_t k = 0; k < u->items[i].plan->n_pieces; k++)
			n += u->items[i].plan->pieces[k].n_views;
	return n;
}

static int by_tensor(const void *a, const void *b)
{
	const struct target *x = a, *y = b;
	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	if (x->area != y->area)
		return x->area < y->area ? -1 : 1;
	return (x->view > y->view) - (x->view < y->view);
}

static void fill_targets(struct unpacking *u)
{
	size_t n = 0, area = 0;
	for (size_t i = 0; i < u->n_items; i++) {
		const struct kvi_restore *plan = u->items[i].plan;
		uint64_t base = 0;
		for (size_t k = 0; k < plan->n_pieces; k++) {
			const struct kvi_piece *p = &plan->pieces[k];
			bool rows = p->n_views && is_rows(p, u->geometry);
			for (size_t v = 0; v < p->n_views; v++)
				u->targets[n++] = (struct target){
					p->views[v].tensor, i, k, v, base, area, rows
				};
			area += p->n_views > 0;
			base += p->bytes;
		}
	}
	if (n)
		qsort(u->targets, n, sizeof *u->targets, by_tensor);
	u->n_targets = n;
	u->n_areas = area;
}

/* first, and for each tensor the tokens of its targets, ready to be searched. */
static void index_targets(struct unpacking *u)
{
	size_t k = 0;
	for (size_t i = 0; i < u->geometry->n_tensors; i++) {
		u->first[i] = k;
		for (; k < u->n_targets && u->targets[k].tensor == i; k++) {
			const struct target *t = &u->targets[k];
			const struct kvi_piece *p = &u->items[t->item].plan->pieces[t->piece];
			u->tokens[k] = (struct kvi_interval){ p->t0, p->t0 + p->n_tokens, 0, k };
		}
		kvi_intervals_sort(u->tokens + u->first[i], k - u->first[i]);
	}
	u->first[u->geometry->n_tensors] = k;
}

static kvarc_ret prepare(struct unpacking *u)
{
	u->items = kvi_calloc(u->alloc, u->n_items, sizeof *u->items);
	u->first = kvi_array(u->alloc, u->geometry->n_tensors + 1, sizeof *u->first);
	if (!u->items || !u->first)
		return kvi_alloc_error(u->alloc);
	for (size_t i = 0; i < u->n_items; i++)
		u->items[i].plan = u->plan ? u->plan : kvi_reader_restore(u->r, i);
	size_t n = count_targets(u);
	/* one more: never NULL, not even where no item has an area */
	u->targets = kvi_array(u->alloc, n + 1, sizeof *u->targets);
	u->tokens = kvi_array(u->alloc, n + 1, sizeof *u->tokens);
	if (!u->targets || !u->tokens)
		return kvi_alloc_error(u->alloc);
	fill_targets(u);
	index_targets(u);
	kvarc_ret ret = u->plan ? KVARC_OK : kvi_references_open(&u->references, u->r);
	return ret ? ret : kvi_assembly_open(&u->assembly, u->alloc, u->n_areas);
}

/* ----- literals ------------------------------------------------------- */

/* The next literal piece that holds literal byte `offset`. */
static bool seek_literal(struct unpack_item *it, uint64_t offset)
{
	const struct kvi_restore *plan = it->plan;
	for (; it->piece < plan->n_pieces; it->piece++) {
		const struct kvi_piece *p = &plan->pieces[it->piece];
		if (p->type == KVI_PIECE_LITERAL) {
			if (offset - it->blob_at < p->bytes)
				return true;
			it->blob_at += p->bytes;
		}
		it->file_at += p->bytes;
	}
	return false;
}

/* Literal bytes of an item that another one refers to. A kvi_reference_fn. */
static int take_referred(void *opaque, size_t item, uint64_t at, const uint8_t *data, size_t bytes)
{
	struct unpacking *u = opaque;
	struct kvi_locked l = { &u->lock, &u->items[item].sink };
	kvarc_sink sink = kvi_locked_sink(&l);
	return !u->items[item].skip && sink.write(sink.opaque, data, bytes, at);
}

static int take_blob(void *opaque, uint64_t item, uint64_t offset, const uint8_t *data,
                     size_t bytes)
{
	struct unpacking *u = opaque;
	const uint64_t earlier = kvi_reader_earlier_items(u->r);
	const struct kvi_literal_bytes b = { item, offset, data, bytes };
	if (kvi_references_give(&u->references, &b, take_referred, u))
		return 1;
	if (item < earlier)
		return 0;
	if (item - earlier >= u->n_items)
		return 1;
	struct unpack_item *it = &u->items[item - earlier];
	while (bytes) {
		if (offset < it->blob_at || !seek_literal(it, offset))
			return 1;
		uint64_t skip = offset - it->blob_at;
		uint64_t capacity = it->plan->pieces[it->piece].bytes - skip;
		size_t n = bytes < capacity ? bytes : (size_t)capacity;
		struct kvi_locked l = { &u->lock, &it->sink };
		kvarc_sink sink = kvi_locked_sink(&l);
		if (!it->skip && sink.write(sink.opaque, data, n, it->file_at + skip))
			return 1;
		data += n;
		bytes -= n;
		offset += n;
	}
	return 0;
}

/* ----- areas ----------------------------------------------------------- */

/* A part of a row area: kept until all planes of its tokens came. */
static kvarc_ret assemble(struct unpacking *u, const struct target *t, const struct kvi_piece *p,
                          const struct kvi_block *b, const void *src)
{
	struct unpack_item *it = &u->items[t->item];
	uint64_t row = p->bytes / p->n_tokens;
	size_t bytes = (size_t)b->n * b->channels * b->elem_bytes;
	kvarc_ret ret = KVARC_OK;
	pthread_mutex_lock(&u->lock);
	struct kvi_token_rows *rows = kvi_assembly_get(&u->assembly, t->area, b->t0, b->n,
	                                               (size_t)row);
	if (rows) {
		rows->sink = &it->sink;
		rows->at = t->base + b->t0 * row;
	}
	pthread_mutex_unlock(&u->lock);
	if (!rows)
		return kvi_alloc_error(u->alloc);
	/* planes do not touch each other's bytes */
	kvi_strided_copy(rows->bytes, b->t0 * row, &p->views[t->view], b, src);
	pthread_mutex_lock(&u->lock);
	if (kvi_assembly_put(&u->assembly, rows, bytes))
		ret = KVARC_IO;
	pthread_mutex_unlock(&u->lock);
	return ret;
}

/* The tokens of a block that are in an area. */
static kvarc_ret take_part(struct unpacking *u, const struct target *t,
                           const struct kvi_block *whole, const uint8_t *src)
{
	struct unpack_item *it = &u->items[t->item];
	const struct kvi_piece *p = &it->plan->pieces[t->piece];
	uint64_t end = whole->t0 + whole->n, p_end = p->t0 + p->n_tokens;
	uint64_t lo = whole->t0 > p->t0 ? whole->t0 : p->t0;
	uint64_t hi = end < p_end ? end : p_end;
	if (it->skip || lo >= hi)
		return KVARC_OK;
	struct kvi_block b = *whole;
	b.t0 = lo - p->t0;
	b.n = (uint32_t)(hi - lo);
	src += (lo - whole->t0) * whole->channels * whole->elem_bytes;
	if (t->rows)
		return assemble(u, t, p, &b, src);
	struct kvi_locked l = { &u->lock, &it->sink };
	kvarc_sink sink = kvi_locked_sink(&l);
	return kvi_strided_write(u->alloc, &sink, t->base, &p->views[t->view], &b, src);
}

/* A block of decoded tokens on its way to the areas that hold some of them. */
struct delivery {
	struct unpacking *u;
	struct kvi_block block;
	const void *src;
};

/* A kvi_interval_fn; id is that of a target. */
static int deliver_part(void *opaque, size_t id)
{
	const struct delivery *d = opaque;
	struct unpacking *u = d->u;
	kvarc_ret ret = take_part(u, &u->targets[id], &d->block, d->src);
	if (ret) {
		pthread_mutex_lock(&u->lock);
		u->failed = ret;
		pthread_mutex_unlock(&u->lock);
	}
	return ret != KVARC_OK;
}

static int deliver(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                   uint32_t n, const void *src)
{
	struct unpacking *u = opaque;
	const kvarc_tensor *t = &u->geometry->tensors[tensor];
	struct delivery d = { u,
		              { t0, n, head * t->channels, heads * t->channels,
		                (uint32_t)kvarc_dtype_bytes(t->dtype) },
		              src };
	return kvi_intervals_search(u->tokens + u->first[tensor],
	                            u->first[tensor + 1] - u->first[tensor], t0, t0 + n,
	                            deliver_part, &d);
}

/* ----- all of it -------------------------------------------------------- */

static kvarc_ret open_items(struct unpacking *u, kvarc_item_open open, void *opaque)
{
	size_t lost = 0;
	for (size_t i = 0; i < u->n_items; i++) {
		struct unpack_item *it = &u->items[i];
		kvarc_item item = { .index = i,
			            .kind = it->plan->kind,
			            .name = it->plan->name,
			            .bytes = it->plan->file_bytes };
		if (item.kind == KVI_ITEM_LOST) {
			it->skip = true;
			lost++;
			continue;
		}
		int ret = open(opaque, &item, &it->sink);
		it->skip = ret == 1;
		if (ret != 0 && ret != 1)
			return kvi_reader_fail(u->r, KVARC_IO,
			                       "file %zu of the archive could not be made", i);
		if (ret == 0 && !it->sink.write)
			return KVARC_PROG;
	}
	if (lost == u->n_items)
		return kvi_reader_fail(u->r, KVARC_DATA,
		                       "how the files were made "
		                       "up is lost; export the tensors instead");
	return KVARC_OK;
}

static kvarc_ret flush_rows(struct unpacking *u)
{
	/* Planes that salvage lost leave rows incomplete. */
	if (kvi_assembly_flush(&u->assembly))
		return kvi_reader_fail(u->r, KVARC_IO, "writing a file failed");
	return KVARC_OK;
}

/* At the end of the archive the reader has seen to it that every literal byte
 * and every token of an item came. */
static kvarc_ret read_segments(struct unpacking *u)
{
	for (;;) {
		kvarc_segment segment;
		kvarc_ret ret = kvarc_reader_next_segment(u->r, &segment);
		if (ret == KVARC_END)
			return KVARC_OK;
		if (!ret)
			ret = kvarc_reader_segment_deliver(u->r, deliver, u);
		if (!ret)
			ret = flush_rows(u);
		if (ret)
			return ret;
	}
}

/* ROUNDS: between two waits for all workers; SEGMENT_TOKENS: of most archives. */
enum { ROUNDS = 4, SEGMENT_TOKENS = 256 };

/* The same where segments are faster together: all frames pass in order and are
 * checked, what they hold is decoded a range behind. */
static kvarc_ret read_ranges(struct unpacking *u, unsigned at_once)
{
	kvarc_range range = { .n = 0 };
	unsigned segments = 0;
	for (;;) {
		kvarc_segment s;
		kvarc_ret next = kvarc_reader_next_segment(u->r, &s);
		if (next && next != KVARC_END)
			return next;
		if (segments && (next || segments == at_once || s.track != range.track)) {
			kvarc_ret ret = u->read ? u->read(u->read_opaque, u->r, &range, deliver, u)
			                        : kvarc_reader_read_deliver(u->r, &range, deliver,
			                                                    u);
			ret = ret ? ret : flush_rows(u);
			if (ret)
				return ret;
			segments = 0;
		}
		if (next)
			return KVARC_OK;
		if (segments++ == 0)
			range = (kvarc_range){ .track = s.track,
				               .n_layers = UINT32_MAX,
				               .t0 = s.t0 };
		range.n += s.n;
	}
}

static kvarc_ret read_tokens(struct unpacking *u)
{
	unsigned at_once = kvi_reader_segments_at_once(u->r);
	if (!u->read && (at_once == 1 || kvi_reader_is_salvage(u->r) || !kvi_reader_can_seek(u->r)))
		return read_segments(u);
	return read_ranges(u, ROUNDS * at_once);
}

static kvarc_ret flush_items(struct unpacking *u)
{
	for (size_t i = 0; i < u->n_items; i++) {
		const kvarc_sink *sink = &u->items[i].sink;
		if (!u->items[i].skip && sink->flush && sink->flush(sink->opaque))
			return kvi_reader_fail(u->r, KVARC_IO, "writing a file failed");
	}
	return KVARC_OK;
}

/* What is wrong, in the caller's words, and the end of all but the sinks. */
static kvarc_ret finish(struct unpacking *u, kvarc_ret ret)
{
	if (u->failed == KVARC_MEM || u->failed == KVARC_MEMLIMIT)
		ret = kvi_reader_fail(u->r, u->failed,
		                      "not enough memory to put the files together");
	else if (u->failed)
		ret = kvi_reader_fail(u->r, u->failed, "writing a file failed");
	if (!ret)
		ret = flush_items(u);
	kvi_references_free(&u->references, u->alloc);
	kvi_assembly_free(&u->assembly);
	kvi_free(u->alloc, u->items);
	kvi_free(u->alloc, u->targets);
	kvi_free(u->alloc, u->tokens);
	kvi_free(u->alloc, u->first);
	pthread_mutex_destroy(&u->lock);
	return ret;
}

static const kvarc_sink *sink_of_file(void *opaque, size_t i)
{
	const struct unpacking *u = opaque;
	return u->items[i].skip ? NULL : &u->items[i].sink;
}

static kvarc_ret start(struct unpacking *u)
{
	pthread_mutex_init(&u->lock, NULL);
	kvarc_ret ret = prepare(u);
	return ret ? kvi_reader_fail(u->r, ret, "not enough memory to put the files together")
	           : KVARC_OK;
}

kvarc_ret kvarc_unpack(kvarc_reader *r, kvarc_item_open open, void *opaque)
{
	return kvarc_unpack_by(r, open, opaque, NULL, NULL);
}

kvarc_ret kvarc_unpack_by(kvarc_reader *r, kvarc_item_open open, void *opaque, kvarc_read_call read,
                          void *read_opaque)
{
	if (!r || !open || kvi_reader_started(r) ||
	    (read && (kvi_reader_is_salvage(r) || !kvi_reader_can_seek(r))))
		return KVARC_PROG;
	struct unpacking u = { .r = r,
		               .read = read,
		               .read_opaque = read_opaque,
		               .geometry = kvarc_reader_geometry(r),
		               .alloc = kvi_reader_alloc(r),
		               .n_items = kvi_reader_n_items(r) };
	if (u.n_items == 0)
		return kvi_unpack_no_files(r);
	kvarc_ret ret = start(&u);
	if (!ret)
		ret = open_items(&u, open, opaque);
	kvi_reader_set_blob_handler(r, take_blob, &u);
	if (!ret)
		ret = read_tokens(&u);
	kvi_reader_set_blob_handler(r, NULL, NULL);
	if (ret == KVARC_DATA)
		ret = kvi_unpack_state(r, sink_of_file, &u);
	return finish(&u, ret);
}

kvarc_ret kvi_unpack_elements(kvarc_reader *r, const struct kvi_restore *plan,
                              const kvarc_sink *sink, const struct kvi_token_span *spans)
{
	struct unpacking u = { .r = r,
		               .geometry = kvarc_reader_geometry(r),
		               .alloc = kvi_reader_alloc(r),
		               .plan = plan,
		               .n_items = 1 };
	const uint64_t step = (uint64_t)ROUNDS * kvi_reader_segments_at_once(r) * SEGMENT_TOKENS;
	kvarc_ret ret = start(&u);
	if (!ret)
		u.items[0].sink = *sink;
	for (uint32_t i = 0; i < u.geometry->n_tracks; i++) {
		kvarc_range range = { .track = i, .n_layers = UINT32_MAX };
		for (range.t0 = spans[i].begin; range.t0 < spans[i].end && !ret; range.t0 += step) {
			uint64_t left = spans[i].end - range.t0;
			range.n = left < step ? left : step;
			ret = kvarc_reader_read_deliver(r, &range, deliver, &u);
			if (!ret)
				ret = flush_rows(&u);
		}
	}
	return finish(&u, ret);
}
