/* SPDX-License-Identifier: BSD-3-Clause */
/* unpack_files.c - the files of an archive: all of them, or those of one state past damage */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kvarc.h"
#include "literals.h"
#include "locked.h"
#include "references.h"
#include "strided.h"
#include "unpack_elements.h"
#include "format/geometry_check.h"
#include "reader/reader_internal.h"
#include "util/ckd.h"
#include "util/intervals.h"

/* ==== Rows of several planes, stored until every plane has come ==== */

/* Rows of an area that wait for planes. */
struct token_rows {
	struct token_rows *next, *previous; /* neighbours in the list of all rows */
	struct token_rows *next_in_area;
	size_t area;
	uint64_t t0;
	uint32_t n;
	size_t size, filled;    /* bytes */
	const kvarc_sink *sink; /* sink of the rows, and offset there */
	uint64_t at;
	uint8_t *bytes; /* zero where nothing came yet */
};

/*
 * Not thread-safe: the caller holds its lock. However many areas wait for a plane, rows are found
 * among those of their own area: a few for each segment that is read at once.
 */
struct assembly {
	const struct kvi_alloc *alloc;
	struct token_rows *list;
	struct token_rows **of_area; /* by area: the first rows */
};

/* Opens an assembly of areas 0 to n_areas - 1; alloc must outlive it. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret assembly_open(struct assembly *assembly, const struct kvi_alloc *alloc,
                               size_t n_areas)
{
	*assembly = (struct assembly){ .alloc = alloc };
	if (n_areas == 0)
		return KVARC_OK;
	assembly->of_area = kvi_calloc(alloc, n_areas, sizeof(struct token_rows *));
	return assembly->of_area ? KVARC_OK : kvi_alloc_error(alloc);
}

static void insert(struct assembly *assembly, struct token_rows *r)
{
	r->next = assembly->list;
	if (r->next)
		r->next->previous = r;
	assembly->list = r;
	r->next_in_area = assembly->of_area[r->area];
	assembly->of_area[r->area] = r;
}

static void take_out(struct assembly *assembly, struct token_rows *r)
{
	struct token_rows **link = &assembly->of_area[r->area];
	while (*link != r)
		link = &(*link)->next_in_area;
	*link = r->next_in_area;
	if (r->previous)
		r->previous->next = r->next;
	else
		assembly->list = r->next;
	if (r->next)
		r->next->previous = r->previous;
}

static void release(struct assembly *assembly, struct token_rows *r)
{
	take_out(assembly, r);
	kvi_free(assembly->alloc, r->bytes);
	kvi_free(assembly->alloc, r);
}

/* The rows [t0, t0 + n) of an area, new if there are none; NULL: no memory. */
static struct token_rows *assembly_get(struct assembly *assembly, size_t area, uint64_t t0,
                                       uint32_t n, size_t row_bytes)
{
	size_t size;
	for (struct token_rows *r = assembly->of_area[area]; r; r = r->next_in_area)
		if (r->t0 == t0 && r->n == n)
			return r;
	if (kvi_mul(row_bytes, n, &size))
		return NULL;
	struct token_rows *r = kvi_calloc(assembly->alloc, 1, sizeof *r);
	uint8_t *bytes = kvi_calloc(assembly->alloc, size, 1);
	if (!r || !bytes) {
		kvi_free(assembly->alloc, r);
		kvi_free(assembly->alloc, bytes);
		return NULL;
	}
	*r = (struct token_rows){ .area = area, .t0 = t0, .n = n, .size = size, .bytes = bytes };
	insert(assembly, r);
	return r;
}

static int write_row(struct assembly *assembly, struct token_rows *r)
{
	int ret = r->sink->write(r->sink->opaque, r->bytes, r->size, r->at);
	release(assembly, r);
	return ret;
}

/* Says that bytes more are filled in; complete rows are written and freed.
 * Not 0: the sink failed. */
static int assembly_put(struct assembly *assembly, struct token_rows *rows, size_t bytes)
{
	rows->filled += bytes;
	return rows->filled < rows->size ? 0 : write_row(assembly, rows);
}

/* Writes what is there, incomplete rows as well. Not 0: the sink failed. */
static int assembly_flush(struct assembly *assembly)
{
	int ret = 0;
	while (assembly->list)
		ret |= write_row(assembly, assembly->list);
	return ret;
}

/* Frees rows without writing them. a may be all zeros. */
static void assembly_free(struct assembly *assembly)
{
	while (assembly->list)
		release(assembly, assembly->list);
	kvi_free(assembly->alloc, assembly->of_area);
	assembly->of_area = NULL;
}

/* ==== Tokens of a tensor that lie together in a file, written at once ==== */

/* Most bytes of groups; views for which there are none are written part by part. */
enum { GROUPS_MAX = 16 << 20 };

/* The tokens of a view that are being read, on their way to a file. */
struct token_group {
	struct token_group *next;
	size_t target;       /* number of the view */
	size_t size, filled; /* bytes of the tokens; of those that came */
	uint8_t *bytes;      /* their runs; NULL: there is no memory for them */
	size_t capacity;
};

/* Groups that are not full, and those that were, for others. Not thread-safe: the caller holds its
 * lock. */
struct grouping {
	const struct kvi_alloc *alloc; /* NULL: nothing is grouped */
	uint64_t t0, end;              /* tokens that are being read */
	struct token_group *list, *spare;
	size_t bytes; /* capacity of all */
};

/* Gives a group memory, if there is some. */
static void reserve_group(struct grouping *grouping, struct token_group *group)
{
	if (group->capacity >= group->size)
		return;
	kvi_free(grouping->alloc, group->bytes);
	grouping->bytes -= group->capacity;
	group->capacity = 0;
	group->bytes = NULL;
	if (group->size <= GROUPS_MAX && grouping->bytes <= GROUPS_MAX - group->size)
		group->bytes = kvi_malloc(grouping->alloc, group->size);
	if (group->bytes)
		group->capacity = group->size;
	grouping->bytes += group->capacity;
}

/* The group of a view, new if there is none; NULL: no memory. */
static struct token_group *group_get(struct grouping *grouping, size_t target, size_t size)
{
	struct token_group *g = grouping->list;
	while (g && g->target != target)
		g = g->next;
	if (g)
		return g;
	g = grouping->spare;
	if (g)
		grouping->spare = g->next;
	else
		g = kvi_calloc(grouping->alloc, 1, sizeof *g);
	if (!g)
		return NULL;
	g->target = target;
	g->size = size;
	g->filled = 0;
	reserve_group(grouping, g);
	g->next = grouping->list;
	grouping->list = g;
	return g;
}

/* Says that bytes more came, each once (the index has every element once); true: all did, and the
 * group is a spare one from now on. */
static bool group_put(struct grouping *grouping, struct token_group *group, size_t bytes)
{
	struct token_group **link = &grouping->list;
	group->filled += bytes;
	if (group->filled < group->size)
		return false;
	while (*link != group)
		link = &(*link)->next;
	*link = group->next;
	group->next = grouping->spare;
	grouping->spare = group;
	return true;
}

static void free_groups(const struct kvi_alloc *alloc, struct token_group *list)
{
	while (list) {
		struct token_group *g = list;
		list = g->next;
		kvi_free(alloc, g->bytes);
		kvi_free(alloc, g);
	}
}

/* ==== What a packed file of an archive is ==== */

kvarc_ret kvarc_reader_item(kvarc_reader *r, size_t i, kvarc_item *item)
{
	if (!r || !item)
		return KVARC_PROG;
	if (i >= kvi_reader_n_items(r))
		return KVARC_END;
	const struct kvi_restore *plan = kvi_reader_restore(r, i);
	*item = (kvarc_item){
		.index = i, .kind = plan->kind, .name = plan->name, .bytes = plan->file_bytes
	};
	return KVARC_OK;
}

/* The files come after the elements: those of one that was cut are behind its end. */
static kvarc_ret unpack_no_files(kvarc_reader *r)
{
	kvarc_info info;
	kvarc_ret ret = kvarc_reader_get_info(r, &info);
	if (!ret && info.state == KVARC_STATE_CUT)
		return kvi_reader_fail(r, KVARC_OPTIONS,
		                       "the archive was cut, and ends before its files; "
		                       "salvage or export its tensors");
	return kvi_reader_fail(r, KVARC_OPTIONS,
	                       "the archive holds no files; export its tensors instead");
}

/* ==== The files of an archive: all of them, or those of one state past damage ==== */

/* ==== The files of one state of an archive, past what is damaged elsewhere in it ==== */

enum { PIECE = 1 << 16 };

/* Files on their way out of an archive that is damaged. */
struct past_damage {
	kvarc_reader *r;
	struct kvi_literals literals;
	struct kvi_token_span *spans;
	uint8_t *buffer;
};

static kvarc_ret no_memory(const struct past_damage *damage)
{
	return kvi_reader_fail(damage->r, kvi_alloc_error(kvi_reader_alloc(damage->r)),
	                       "not enough memory to put the files together");
}

/* Writes literal bytes of an item of the archive at an offset of a file. */
static kvarc_ret put_bytes(struct past_damage *damage, const kvarc_sink *sink, uint64_t at,
                           uint64_t item, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t n = bytes < PIECE ? (size_t)bytes : PIECE;
		ret = kvi_literals_read(&damage->literals, item, from, n, damage->buffer);
		if (!ret && sink->write(sink->opaque, damage->buffer, n, at))
			ret = kvi_reader_fail(damage->r, KVARC_IO, "writing a file failed");
		at += n;
		from += n;
		bytes -= n;
	}
	return ret;
}

static void extend(struct kvi_token_span *span, const struct kvi_piece *piece)
{
	if (span->begin == span->end)
		*span = (struct kvi_token_span){ piece->t0, piece->t0 };
	if (piece->t0 < span->begin)
		span->begin = piece->t0;
	if (piece->t0 + piece->n_tokens > span->end)
		span->end = piece->t0 + piece->n_tokens;
}

static kvarc_ret put_item(struct past_damage *damage, size_t i, const kvarc_sink *sink)
{
	const struct kvi_restore *plan = kvi_reader_restore(damage->r, i);
	const uint64_t number = kvi_reader_earlier_items(damage->r) + i;
	uint64_t at = 0, literals = 0;
	kvarc_ret ret = KVARC_OK;
	for (uint32_t t = 0; t < kvarc_reader_geometry(damage->r)->n_tracks; t++)
		damage->spans[t] = (struct kvi_token_span){ 0, 0 };
	for (size_t k = 0; k < plan->n_pieces && !ret; k++) {
		const struct kvi_piece *p = &plan->pieces[k];
		if (p->type == KVI_PIECE_AREA)
			extend(&damage->spans[p->track], p);
		else if (p->type == KVI_PIECE_REFERENCE)
			ret = put_bytes(damage, sink, at, p->item, p->from, p->bytes);
		else
			ret = put_bytes(damage, sink, at, number, literals, p->bytes);
		literals += p->type == KVI_PIECE_LITERAL ? p->bytes : 0;
		at += p->bytes;
	}
	return ret ? ret : kvi_unpack_elements(damage->r, plan, sink, damage->spans);
}

static kvarc_ret put_items(struct past_damage *damage, kvi_item_sink_fn *sink_of, void *opaque)
{
	const struct kvi_alloc *alloc = kvi_reader_alloc(damage->r);
	damage->buffer = kvi_malloc(alloc, PIECE);
	damage->spans = kvi_array(alloc, kvarc_reader_geometry(damage->r)->n_tracks,
	                          sizeof *damage->spans);
	kvarc_ret ret = damage->buffer && damage->spans
	                        ? kvi_literals_open(&damage->literals, damage->r)
	                        : no_memory(damage);
	for (size_t i = 0; i < kvi_reader_n_items(damage->r) && !ret; i++) {
		const kvarc_sink *sink = sink_of(opaque, i);
		if (sink)
			ret = put_item(damage, i, sink);
	}
	kvi_literals_free(&damage->literals);
	kvi_free(alloc, damage->buffer);
	kvi_free(alloc, damage->spans);
	return ret;
}

/*
 * After DATA of an unpack: what is damaged may be of earlier states alone, which later appends have
 * replaced. Writes each item again, of the frames that the state of r needs, and of no others.
 * Returns OK; DATA, as before, where one of these is damaged, or the archive has no index; or as
 * kvarc_reader_read_deliver.
 */
static kvarc_ret unpack_state(kvarc_reader *r, kvi_item_sink_fn *sink_of, void *opaque)
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

/* A view of an area, which a tensor's elements go to. */
struct target {
	uint32_t tensor;
	size_t item, piece, view;
	uint64_t base; /* offset of the area in the file */
	size_t area;   /* number of the area, over all items */
	bool rows;     /* whole rows of several planes: to be assembled */
};

struct unpack_item {
	const struct kvi_restore *plan;
	kvarc_sink sink;
	bool skip;
	/* Piece of the next literal byte. */
	size_t piece;
	uint64_t file_at; /* offset of that piece in the file */
	uint64_t blob_at; /* literals before that piece */
};

struct unpacking {
	kvarc_read_call read; /* reads ranges; NULL: kvarc_reader_read_deliver */
	void *read_opaque;
	kvarc_reader *r;
	const kvarc_geometry *geometry;
	const struct kvi_alloc *alloc;
	const struct kvi_restore *plan; /* plan of the only item; NULL: plans of the reader */
	struct unpack_item *items;
	size_t n_items, n_targets, n_areas;
	struct target *targets;      /* sorted by tensor */
	struct kvi_interval *tokens; /* intervals of targets; sorted within a tensor */
	size_t *first;               /* by tensor: first index in both; n_tensors + 1 */
	struct assembly assembly;
	struct grouping grouping;
	struct kvi_references references;
	kvarc_ret failed;     /* failure in a worker */
	pthread_mutex_t lock; /* guards the sinks, the assembly, the groups and failed */
};

/* ----- targets ------------------------------------------------------- */

/* Whether one token of a view stays inside a row. */
static bool inside_row(const struct kvi_area_view *view, const kvarc_tensor *tensor, uint64_t row)
{
	uint64_t width = kvi_tensor_width(tensor);
	uint64_t blocks = (width - 1) / view->block_elems;
	uint64_t in_block = width < view->block_elems ? width : view->block_elems;
	uint64_t end = view->offset, step;
	return !kvi_mul(blocks, view->block_stride, &step) && !kvi_add(end, step, &end) &&
	       !kvi_mul(in_block - 1, view->elem_stride, &step) && !kvi_add(end, step, &end) &&
	       !kvi_add(end, kvarc_dtype_bytes(tensor->dtype), &end) && end <= row;
}

/* Whether the views are planes of rows that lie one after another. */
static bool is_rows(const struct kvi_piece *piece, const kvarc_geometry *geometry)
{
	uint64_t row = piece->bytes / piece->n_tokens;
	if (piece->n_views < 2 || piece->bytes % piece->n_tokens)
		return false;
	for (size_t i = 0; i < piece->n_views; i++) {
		const struct kvi_area_view *v = &piece->views[i];
		if (v->token_stride != row || !inside_row(v, &geometry->tensors[v->tensor], row))
			return false;
	}
	return true;
}

static size_t count_targets(const struct unpacking *unpacking)
{
	size_t n = 0;
	for (size_t i = 0; i < unpacking->n_items; i++)
		for (size_t k = 0; k < unpacking->items[i].plan->n_pieces; k++)
			n += unpacking->items[i].plan->pieces[k].n_views;
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

static void fill_targets(struct unpacking *unpacking)
{
	size_t n = 0, area = 0;
	for (size_t i = 0; i < unpacking->n_items; i++) {
		const struct kvi_restore *plan = unpacking->items[i].plan;
		uint64_t base = 0;
		for (size_t k = 0; k < plan->n_pieces; k++) {
			const struct kvi_piece *p = &plan->pieces[k];
			bool rows = p->n_views && is_rows(p, unpacking->geometry);
			for (size_t v = 0; v < p->n_views; v++)
				unpacking->targets[n++] = (struct target){
					p->views[v].tensor, i, k, v, base, area, rows
				};
			area += p->n_views > 0;
			base += p->bytes;
		}
	}
	if (n)
		qsort(unpacking->targets, n, sizeof *unpacking->targets, by_tensor);
	unpacking->n_targets = n;
	unpacking->n_areas = area;
}

/* Fills `first`, and for each tensor the tokens of its targets, ready to be searched. */
static void index_targets(struct unpacking *unpacking)
{
	size_t k = 0;
	for (size_t i = 0; i < unpacking->geometry->n_tensors; i++) {
		unpacking->first[i] = k;
		for (; k < unpacking->n_targets && unpacking->targets[k].tensor == i; k++) {
			const struct target *t = &unpacking->targets[k];
			const struct kvi_piece *p =
				&unpacking->items[t->item].plan->pieces[t->piece];
			unpacking->tokens[k] = (struct kvi_interval){ p->t0, p->t0 + p->n_tokens, 0,
				                                      k };
		}
		kvi_intervals_sort(unpacking->tokens + unpacking->first[i],
		                   k - unpacking->first[i]);
	}
	unpacking->first[unpacking->geometry->n_tensors] = k;
}

static kvarc_ret prepare(struct unpacking *unpacking)
{
	unpacking->items = kvi_calloc(unpacking->alloc, unpacking->n_items,
	                              sizeof *unpacking->items);
	unpacking->first = kvi_array(unpacking->alloc, unpacking->geometry->n_tensors + 1,
	                             sizeof *unpacking->first);
	if (!unpacking->items || !unpacking->first)
		return kvi_alloc_error(unpacking->alloc);
	for (size_t i = 0; i < unpacking->n_items; i++)
		unpacking->items[i].plan = unpacking->plan ? unpacking->plan
		                                           : kvi_reader_restore(unpacking->r, i);
	size_t n = count_targets(unpacking);
	/* an entry more, so that the arrays are never NULL */
	unpacking->targets = kvi_array(unpacking->alloc, n + 1, sizeof *unpacking->targets);
	unpacking->tokens = kvi_array(unpacking->alloc, n + 1, sizeof *unpacking->tokens);
	if (!unpacking->targets || !unpacking->tokens)
		return kvi_alloc_error(unpacking->alloc);
	fill_targets(unpacking);
	index_targets(unpacking);
	kvarc_ret ret = unpacking->plan ? KVARC_OK
	                                : kvi_references_open(&unpacking->references, unpacking->r);
	return ret ? ret
	           : assembly_open(&unpacking->assembly, unpacking->alloc, unpacking->n_areas);
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

/* A kvi_reference_fn: writes literal bytes of an item that another one refers to. */
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

/* Stores a part of a row area until all planes of its tokens have come. */
static kvarc_ret assemble(struct unpacking *unpacking, const struct target *target,
                          const struct kvi_piece *piece, const struct kvi_block *block,
                          const void *src)
{
	struct unpack_item *it = &unpacking->items[target->item];
	uint64_t row = piece->bytes / piece->n_tokens;
	size_t bytes = (size_t)block->n * block->channels * block->elem_bytes;
	kvarc_ret ret = KVARC_OK;
	pthread_mutex_lock(&unpacking->lock);
	struct token_rows *rows = assembly_get(&unpacking->assembly, target->area, block->t0,
	                                       block->n, (size_t)row);
	if (rows) {
		rows->sink = &it->sink;
		rows->at = target->base + block->t0 * row;
	}
	pthread_mutex_unlock(&unpacking->lock);
	if (!rows)
		return kvi_alloc_error(unpacking->alloc);
	/* planes do not touch each other's bytes */
	kvi_strided_copy(rows->bytes, block->t0 * row, &piece->views[target->view], block, src);
	pthread_mutex_lock(&unpacking->lock);
	if (assembly_put(&unpacking->assembly, rows, bytes))
		ret = KVARC_IO;
	pthread_mutex_unlock(&unpacking->lock);
	return ret;
}

/* Writes a block of a view. */
static kvarc_ret put_block(struct unpacking *unpacking, const struct target *target,
                           const struct kvi_area_view *view, const struct kvi_block *block,
                           const void *src)
{
	struct kvi_locked l = { &unpacking->lock, &unpacking->items[target->item].sink };
	kvarc_sink sink = kvi_locked_sink(&l);
	return kvi_strided_write(unpacking->alloc, &sink, target->base, view, block, src);
}

/* Stores a block of the tokens from t0 on that are being read, of which all have these runs, until
 * the others have come. */
static kvarc_ret put_in_group(struct unpacking *unpacking, const struct target *target,
                              const struct kvi_area_view *view, const struct kvi_strided_runs *runs,
                              uint64_t t0, const struct kvi_block *block, const void *src)
{
	struct grouping *grouping = &unpacking->grouping;
	struct kvi_block in_group = *block;
	in_group.t0 -= t0;
	pthread_mutex_lock(&unpacking->lock);
	struct token_group *g = group_get(grouping, (size_t)(target - unpacking->targets),
	                                  (size_t)(runs->n * runs->bytes));
	pthread_mutex_unlock(&unpacking->lock);
	kvarc_ret ret = g ? KVARC_OK : kvi_alloc_error(unpacking->alloc);
	/* blocks do not touch each other's bytes */
	if (g && g->bytes)
		kvi_strided_copy(g->bytes, 0, &runs->view, &in_group, src);
	else if (g)
		ret = put_block(unpacking, target, view, block, src);
	pthread_mutex_lock(&unpacking->lock);
	if (!ret &&
	    group_put(grouping, g, (size_t)block->n * block->channels * block->elem_bytes) &&
	    g->bytes)
		ret = kvi_strided_runs_write(&unpacking->items[target->item].sink, target->base,
		                             view, t0, runs, g->bytes);
	pthread_mutex_unlock(&unpacking->lock);
	return ret;
}

/* The tokens of a block that are in an area. */
static kvarc_ret take_part(struct unpacking *unpacking, const struct target *target,
                           const struct kvi_block *whole, const uint8_t *src)
{
	struct unpack_item *it = &unpacking->items[target->item];
	const struct kvi_piece *p = &it->plan->pieces[target->piece];
	uint64_t end = whole->t0 + whole->n, p_end = p->t0 + p->n_tokens;
	uint64_t lo = whole->t0 > p->t0 ? whole->t0 : p->t0;
	uint64_t hi = end < p_end ? end : p_end;
	if (it->skip || lo >= hi)
		return KVARC_OK;
	struct kvi_block b = *whole;
	b.t0 = lo - p->t0;
	b.n = (uint32_t)(hi - lo);
	src += (lo - whole->t0) * whole->channels * whole->elem_bytes;
	if (target->rows)
		return assemble(unpacking, target, p, &b, src);
	struct grouping *grouping = &unpacking->grouping;
	struct kvi_strided_runs runs;
	const uint64_t from = grouping->t0 > p->t0 ? grouping->t0 : p->t0;
	const uint64_t to = grouping->end < p_end ? grouping->end : p_end;
	const kvarc_tensor *t = &unpacking->geometry->tensors[target->tensor];
	const struct kvi_area_view *view = &p->views[target->view];
	if (grouping->alloc &&
	    kvi_strided_runs(view, kvi_tensor_width(t), b.elem_bytes, to - from, &runs))
		return put_in_group(unpacking, target, view, &runs, from - p->t0, &b, src);
	return put_block(unpacking, target, view, &b, src);
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

static kvarc_ret open_items(struct unpacking *unpacking, kvarc_item_open open, void *opaque)
{
	size_t lost = 0;
	for (size_t i = 0; i < unpacking->n_items; i++) {
		struct unpack_item *it = &unpacking->items[i];
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
			return kvi_reader_fail(unpacking->r, KVARC_IO,
			                       "file %zu of the archive could not be made", i);
		if (ret == 0 && !it->sink.write)
			return KVARC_PROG;
	}
	if (lost == unpacking->n_items)
		return kvi_reader_fail(unpacking->r, KVARC_DATA,
		                       "how the files were made "
		                       "up is lost; export the tensors instead");
	return KVARC_OK;
}

static kvarc_ret flush_rows(struct unpacking *unpacking)
{
	/* Planes that salvage lost leave rows incomplete. */
	if (assembly_flush(&unpacking->assembly))
		return kvi_reader_fail(unpacking->r, KVARC_IO, "writing a file failed");
	return KVARC_OK;
}

/* Reads all segments in order. At the end the reader has checked that every literal byte
 * and every token of an item came. */
static kvarc_ret read_segments(struct unpacking *unpacking)
{
	for (;;) {
		kvarc_segment segment;
		kvarc_ret ret = kvarc_reader_next_segment(unpacking->r, &segment);
		if (ret == KVARC_END)
			return KVARC_OK;
		if (!ret)
			ret = kvarc_reader_segment_deliver(unpacking->r, deliver, unpacking);
		if (!ret)
			ret = flush_rows(unpacking);
		if (ret)
			return ret;
	}
}

/* ROUNDS: rounds between two waits for all workers; SEGMENT_TOKENS: size of most segments;
 * GROUP_BYTES: of a tensor that are written at once. */
enum { ROUNDS = 4, SEGMENT_TOKENS = 256, GROUP_BYTES = 1 << 20 };

static kvarc_ret read_range(struct unpacking *unpacking, const kvarc_range *range)
{
	struct grouping *grouping = &unpacking->grouping;
	grouping->t0 = range->t0;
	grouping->end = range->t0 + range->n;
	kvarc_ret ret = unpacking->read ? unpacking->read(unpacking->read_opaque, unpacking->r,
	                                                  range, deliver, unpacking)
	                                : kvarc_reader_read_deliver(unpacking->r, range, deliver,
	                                                            unpacking);
	/* A group of other tokens never gets those of the next range. */
	if (!ret && grouping->list)
		ret = kvi_reader_fail(unpacking->r, KVARC_DATA,
		                      "chunks of the tokens from %llu on are missing",
		                      (unsigned long long)range->t0);
	return ret ? ret : flush_rows(unpacking);
}

/* As read_segments, where several segments at once are faster: all frames pass in order and are
 * checked, and are decoded a range behind. */
static kvarc_ret read_ranges(struct unpacking *unpacking, unsigned at_once)
{
	kvarc_range range = { .n = 0 };
	unsigned segments = 0;
	for (;;) {
		kvarc_segment s;
		kvarc_ret next = kvarc_reader_next_segment(unpacking->r, &s);
		if (next && next != KVARC_END)
			return next;
		if (segments && (next || segments == at_once || s.track != range.track)) {
			kvarc_ret ret = read_range(unpacking, &range);
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

static kvarc_ret read_tokens(struct unpacking *unpacking)
{
	unsigned at_once = kvi_reader_segments_at_once(unpacking->r);
	const unsigned group = unpacking->read ? 1
	                                       : kvi_reader_read_groups(unpacking->r, GROUP_BYTES);
	if (group > 1) {
		unpacking->grouping.alloc = unpacking->alloc;
		return read_ranges(unpacking, group);
	}
	if (!unpacking->read && (at_once == 1 || kvi_reader_is_salvage(unpacking->r) ||
	                         !kvi_reader_can_seek(unpacking->r)))
		return read_segments(unpacking);
	return read_ranges(unpacking, ROUNDS * at_once);
}

static kvarc_ret flush_items(struct unpacking *unpacking)
{
	for (size_t i = 0; i < unpacking->n_items; i++) {
		const kvarc_sink *sink = &unpacking->items[i].sink;
		if (!unpacking->items[i].skip && sink->flush && sink->flush(sink->opaque))
			return kvi_reader_fail(unpacking->r, KVARC_IO, "writing a file failed");
	}
	return KVARC_OK;
}

/* Reports a failure in the caller's words, and frees all but the sinks. */
static kvarc_ret finish_unpacking(struct unpacking *unpacking, kvarc_ret ret)
{
	if (unpacking->failed == KVARC_MEM || unpacking->failed == KVARC_MEMLIMIT)
		ret = kvi_reader_fail(unpacking->r, unpacking->failed,
		                      "not enough memory to put the files together");
	else if (unpacking->failed)
		ret = kvi_reader_fail(unpacking->r, unpacking->failed, "writing a file failed");
	if (!ret)
		ret = flush_items(unpacking);
	kvi_references_free(&unpacking->references, unpacking->alloc);
	assembly_free(&unpacking->assembly);
	free_groups(unpacking->alloc, unpacking->grouping.list);
	free_groups(unpacking->alloc, unpacking->grouping.spare);
	kvi_free(unpacking->alloc, unpacking->items);
	kvi_free(unpacking->alloc, unpacking->targets);
	kvi_free(unpacking->alloc, unpacking->tokens);
	kvi_free(unpacking->alloc, unpacking->first);
	pthread_mutex_destroy(&unpacking->lock);
	return ret;
}

static const kvarc_sink *sink_of_file(void *opaque, size_t i)
{
	const struct unpacking *u = opaque;
	return u->items[i].skip ? NULL : &u->items[i].sink;
}

static kvarc_ret start(struct unpacking *unpacking)
{
	pthread_mutex_init(&unpacking->lock, NULL);
	kvarc_ret ret = prepare(unpacking);
	return ret ? kvi_reader_fail(unpacking->r, ret,
	                             "not enough memory to put the files together")
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
		return unpack_no_files(r);
	kvarc_ret ret = start(&u);
	if (!ret)
		ret = open_items(&u, open, opaque);
	kvi_reader_set_blob_handler(r, take_blob, &u);
	if (!ret)
		ret = read_tokens(&u);
	kvi_reader_set_blob_handler(r, NULL, NULL);
	if (ret == KVARC_DATA)
		ret = unpack_state(r, sink_of_file, &u);
	return finish_unpacking(&u, ret);
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
	return finish_unpacking(&u, ret);
}
