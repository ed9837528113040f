/* SPDX-License-Identifier: BSD-3-Clause */
/* append_files.c - a file becomes the next checkpoint: what is new of it */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "counted.h"
#include "import_internal.h"
#include "item_put.h"
#include "literals.h"
#include "pack_files.h"
#include "plan.h"
#include "reader_bounds.h"
#include "whole_chunks.h"
#include "codecs/streams.h"
#include "format/geometry_check.h"
#include "format/levels.h"
#include "reader/reader_segments.h"
#include "reader/reader_state.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/parallel.h"
#include "util/source.h"
#include "writer/writer_internal.h"

/* ==== Finds bytes that the items of an archive's last state have as literals ==== */

/* Literal bytes are looked at while they take this share of the memory limit, or less. */
enum { LITERAL_SHARE = 8 };

/* Literal bytes of an item, by its number in the archive. */
struct literal_span {
	uint64_t item, from, bytes;
};

/* The literal bytes of all items of a state, one after another, and where the archive has them. */
struct literal_find {
	const struct kvi_alloc *alloc;
	uint8_t *p;
	size_t n;
	uint64_t wanted;       /* bytes that the items have; n where they could be read */
	struct kvi_list spans; /* struct literal_span: of p, in order */
	size_t *ends;          /* of the spans in p */
	uint32_t *table;       /* by hash of a block of p: 1 + its number, 0: none */
	size_t mask;           /* entries of the table - 1 */
};

/* Bytes that were found: n of them at `at` of those that were searched are those at `from` of p. */
struct literal_match {
	size_t at, from, n;
};

/* Blocks of the known bytes at multiples of their size are in the table, so every match of twice
 * the size is found; a shorter one is hardly worth a reference. */
enum { BLOCK = 32 };

static kvarc_ret add_span(struct literal_find *x, uint64_t item, uint64_t from, uint64_t bytes)
{
	struct literal_span *last =
		x->spans.n ? KVI_LIST(struct literal_span, x->spans, x->spans.n - 1) : NULL;
	if (last && last->item == item && last->from + last->bytes == from) {
		last->bytes += bytes;
		return KVARC_OK;
	}
	struct literal_span *to = kvi_list_add(&x->spans, x->alloc, sizeof *to);
	if (!to)
		return kvi_alloc_error(x->alloc);
	*to = (struct literal_span){ item, from, bytes };
	return KVARC_OK;
}

/* The literal bytes of an item and those it refers to, as spans. */
static kvarc_ret add_item(struct literal_find *x, const struct kvi_restore *plan, uint64_t number,
                          uint64_t *bytes)
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

static kvarc_ret read_spans(struct literal_find *x, kvarc_reader *r)
{
	struct kvi_literals literals;
	size_t at = 0;
	kvarc_ret ret = kvi_literals_open(&literals, r);
	for (size_t i = 0; i < x->spans.n && !ret; i++) {
		const struct literal_span *s = KVI_LIST(struct literal_span, x->spans, i);
		ret = kvi_literals_read(&literals, s->item, s->from, (size_t)s->bytes, x->p + at);
		at += (size_t)s->bytes;
		x->ends[i] = at;
	}
	kvi_literals_free(&literals);
	return ret;
}

static void fill_table(struct literal_find *x)
{
	for (size_t i = 0; i + BLOCK <= x->n; i += BLOCK) {
		uint32_t *to = &x->table[kvi_h64(x->p + i, BLOCK) & x->mask];
		if (!*to)
			*to = 1 + (uint32_t)(i / BLOCK);
	}
}

/*
 * Reads them. Of a state that has more than its share of the reader's memory limit none are
 * read, and nothing will be found. To be freed, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO.
 */
static kvarc_ret literal_find_open(struct literal_find *x, kvarc_reader *r)
{
	uint64_t bytes = 0;
	kvarc_ret ret = KVARC_OK;
	size_t entries = 1;
	*x = (struct literal_find){ .alloc = &r->alloc };
	for (size_t i = 0; i < kvi_reader_n_items(r) && !ret; i++)
		ret = add_item(x, kvi_reader_restore(r, i), kvi_reader_earlier_items(r) + i,
		               &bytes);
	x->wanted = bytes;
	if (ret || !bytes || bytes > r->alloc.limit / LITERAL_SHARE || bytes > UINT32_MAX)
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

/* Frees what it has. */
static void literal_find_close(struct literal_find *x)
{
	if (!x->alloc)
		return;
	kvi_free(x->alloc, x->p);
	kvi_free(x->alloc, x->spans.p);
	kvi_free(x->alloc, x->ends);
	kvi_free(x->alloc, x->table);
	*x = (struct literal_find){ 0 };
}

/* A block that was found, and all equal bytes around it, back to `at`. */
static struct literal_match extend_literal(const struct literal_find *x, const uint8_t *p, size_t n,
                                           size_t at, struct literal_match m)
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

/* The first match in p[at .. n - 1] of some bytes; .n 0: there is none. */
static struct literal_match literal_find_next(const struct literal_find *x, const uint8_t *p,
                                              size_t n, size_t at)
{
	for (size_t i = at; x->n && i + BLOCK <= n; i++) {
		uint32_t block = x->table[kvi_h64(p + i, BLOCK) & x->mask];
		size_t from = ((size_t)block - 1) * BLOCK;
		if (block && !memcmp(x->p + from, p + i, BLOCK))
			return extend_literal(x, p, n, at,
			                      (struct literal_match){ i, from, BLOCK });
	}
	return (struct literal_match){ n, 0, 0 };
}

/* The first part of a match that lies in one item, at most `n` bytes from `from` on. */
static struct literal_span literal_find_span(const struct literal_find *x, size_t from, size_t n)
{
	size_t lo = 0, hi = x->spans.n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (x->ends[mid] <= from)
			lo = mid + 1;
		else
			hi = mid;
	}
	struct literal_span s = *KVI_LIST(struct literal_span, x->spans, lo);
	const size_t begin = x->ends[lo] - (size_t)s.bytes;
	s.from += from - begin;
	s.bytes -= from - begin;
	s.bytes = s.bytes < n ? s.bytes : n;
	return s;
}

/* ==== Whether an import continues an archive: the same model, cache and layout ==== */

static kvarc_ret other(kvarc_reader *r, const char *what, uint64_t file, uint64_t archive)
{
	return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
	                "it cannot be appended: it has %llu %s, and the archive has %llu: give "
	                "another archive, or another file",
	                (unsigned long long)file, what, (unsigned long long)archive);
}

/* Heads and channels are a matter of how an import was made: their product is not. */
static bool same_tensor(const kvarc_tensor *a, const kvarc_tensor *b)
{
	return a->layer == b->layer && a->kind == b->kind && a->role == b->role &&
	       a->track == b->track && a->source_type == b->source_type &&
	       kvi_tensor_width(a) == kvi_tensor_width(b);
}

static kvarc_ret match_tensor(kvarc_reader *r, const kvarc_tensor *file,
                              const kvarc_tensor *archive)
{
	if (file->dtype != archive->dtype)
		return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
		                "it cannot be appended: its layer %u has elements of type %s, that "
		                "of the archive %s: give another archive, or another file",
		                (unsigned)file->layer, kvarc_dtype_name(file->dtype),
		                kvarc_dtype_name(archive->dtype));
	if (!same_tensor(file, archive))
		return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
		                "it cannot be appended: the tensors of its layer %u are not those "
		                "of the archive: give another archive, or another file",
		                (unsigned)file->layer);
	return KVARC_OK;
}

static kvarc_ret match_geometry(kvarc_reader *r, const kvarc_geometry *file)
{
	const kvarc_geometry *archive = kvarc_reader_geometry(r);
	kvarc_ret ret = KVARC_OK;
	if (file->n_tracks != archive->n_tracks)
		return other(r, "tracks", file->n_tracks, archive->n_tracks);
	if (file->n_tensors != archive->n_tensors)
		return other(r, "tensors", file->n_tensors, archive->n_tensors);
	for (size_t i = 0; i < file->n_tracks; i++)
		if (file->tracks[i].kind != archive->tracks[i].kind)
			return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
			                "it cannot be appended: its track %zu is of another kind "
			                "than that of the archive: give another archive",
			                i);
	for (size_t i = 0; i < file->n_tensors && !ret; i++)
		ret = match_tensor(r, &file->tensors[i], &archive->tensors[i]);
	return ret;
}

/* A pair that only one of them has says nothing. */
static kvarc_ret match_pair(kvarc_reader *r, const char *key, const char *file)
{
	const char *archive = kvarc_reader_identity(r, key);
	if (!file || !*file || !archive || !*archive || !strcmp(file, archive))
		return KVARC_OK;
	return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
	                "it cannot be appended: its %.30s is '%.50s', that of the archive '%.50s': "
	                "give another archive",
	                key, file, archive);
}

static kvarc_ret match_identity(kvarc_reader *r, const kvarc_import *im)
{
	static const char *const keys[] = { "engine", "layout", "model" };
	const char *own[] = { im->engine, im->layout, kvarc_import_model(im) };
	const struct kvi_identity *given = &im->identity;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < sizeof keys / sizeof *keys && !ret; i++)
		if (!kvi_identity_get(given, keys[i]))
			ret = match_pair(r, keys[i], own[i]);
	for (size_t i = 0; i < given->n && !ret; i++)
		if (strcmp(given->pairs[i].key, "time"))
			ret = match_pair(r, given->pairs[i].key, given->pairs[i].value);
	return ret;
}

/*
 * Compares the geometry and identity of an import with those of a reader, and makes the import's
 * tensors have the heads and channels of the archive. Returns OK, GEOMETRY (they differ; nothing
 * has changed), LOSSY (a tier has changed the tokens of the archive).
 */
static kvarc_ret append_match(kvarc_reader *r, kvarc_import *im)
{
	const kvarc_geometry *archive = kvarc_reader_geometry(r);
	if (kvarc_reader_identity(r, "lossy"))
		return kvi_fail(kvi_reader_error(r), KVARC_LOSSY,
		                "a lossy tier has changed the tokens of the archive, so no file "
		                "continues it: give another archive");
	kvarc_ret ret = match_geometry(r, &im->geometry);
	if (!ret)
		ret = match_identity(r, im);
	for (size_t i = 0; i < archive->n_tensors && !ret; i++) {
		im->pub_tensors[i].heads = im->tensors[i].pub.heads = archive->tensors[i].heads;
		im->pub_tensors[i].channels = im->tensors[i].pub.channels =
			archive->tensors[i].channels;
	}
	return ret;
}

/* ==== The files of an append: literal bytes that the archive has are references ==== */

/* A track of an import beside that of an archive. */
struct append_track {
	uint64_t n;     /* tokens of the import */
	uint64_t shift; /* the archive's token that is its first */
	uint64_t kept;  /* its leading tokens that the archive has from there on */
	uint64_t lost;  /* those behind that the archive had, but of which the first are damaged */
};

/* The items of an import as an archive will have them. */
struct append_items {
	kvarc_import *im;
	kvarc_reader *r;
	struct kvi_restore *plans; /* one an item */
	uint64_t first;            /* number of the first one in the archive */
	uint64_t lost;             /* literal bytes of the last state that are damaged in part */
	bool same;                 /* the last checkpoint of the archive has these very items */
};

static kvarc_ret items_memory(const struct append_items *x)
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
	struct kvi_piece *last = to->list.n ? KVI_LIST(struct kvi_piece, to->list, to->list.n - 1)
	                                    : NULL;
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

static void add_references(struct piece_list *to, const struct literal_find *find, size_t from,
                           size_t n)
{
	while (n) {
		const struct literal_span s = literal_find_span(find, from, n);
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
static void add_found(struct piece_list *to, const struct literal_find *find, const uint8_t *p,
                      size_t n)
{
	for (size_t at = 0; at < n;) {
		const struct literal_match m = literal_find_next(find, p, n, at);
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

static kvarc_ret find_literal(struct append_items *x, struct piece_list *to,
                              const struct literal_find *find, size_t item, uint64_t at,
                              uint64_t bytes, struct sameness *y)
{
	if (!find->n || bytes > find->alloc->limit / LITERAL_SHARE) {
		y->same = false;
		add_literal(to, bytes);
		return KVARC_OK;
	}
	uint8_t *p = kvi_malloc(&x->im->alloc, (size_t)bytes);
	if (!p)
		return items_memory(x);
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
static kvarc_ret refer(struct append_items *x, const struct literal_find *find, size_t item,
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
		return ret ? ret : items_memory(x);
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

static bool same_items(const struct append_items *x)
{
	bool same = kvi_reader_n_items(x->r) == x->im->n_items && x->r->meta.set_closed;
	for (size_t i = 0; i < x->im->n_items && same; i++)
		same = same_plans(&x->plans[i], kvi_reader_restore(x->r, i));
	return same;
}

/* ----- all of it ----------------------------------------------------------- */

static kvarc_ret make_plan(struct append_items *x, size_t item, const struct append_track *tracks)
{
	struct kvi_restore *plan = &x->plans[item];
	if (kvi_plan_make(x->im, (uint32_t)item, plan))
		return items_memory(x);
	for (size_t i = 0; i < plan->n_pieces; i++)
		if (plan->pieces[i].type == KVI_PIECE_AREA)
			plan->pieces[i].t0 += tracks[plan->pieces[i].track].shift;
	return KVARC_OK;
}

/* Makes them; tracks: of the import. To be freed, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO; the reader's kvarc_error has the text. */
static kvarc_ret append_items_make(struct append_items *x, kvarc_reader *r, kvarc_import *im,
                                   const struct append_track *tracks)
{
	struct literal_find find;
	struct sameness y = { .same = true };
	*x = (struct append_items){ .im = im,
		                    .r = r,
		                    .first = kvi_reader_earlier_items(r) + kvi_reader_n_items(r) };
	x->plans = kvi_calloc(&im->alloc, im->n_items, sizeof *x->plans);
	kvarc_ret ret = x->plans ? literal_find_open(&find, r) : items_memory(x);
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
	literal_find_close(&find);
	return ret;
}

/* Writes RESTORE and BLOB frames, for the checkpoint that follows. error: the writer's. */
static kvarc_ret append_items_put(const struct append_items *x, kvarc_writer *w, kvarc_error *error)
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

/* Frees the plans. */
static void append_items_free(struct append_items *x)
{
	for (size_t i = 0; x->plans && i < x->im->n_items; i++)
		kvi_restore_free(&x->plans[i], &x->im->alloc);
	if (x->plans)
		kvi_free(&x->im->alloc, x->plans);
	x->plans = NULL;
}

/* ==== Which tokens of an import an archive has already, by ids and bytes ==== */

enum { BATCH = 1024 }; /* tokens that are compared at once */

/* A segment of the last state. */
struct compared_segment {
	const struct kvi_segment_ref *s;
	uint64_t t0, end; /* its tokens that are compared: none where end is not above */
	bool whole;       /* all of it, by its checks */
	bool holds;       /* they are right */
	bool failed;      /* the import cannot be read */
};

/* Memory of a thread. */
struct compare_worker {
	struct kvi_buffer rows; /* of a chunk */
	struct kvi_whole_memory frames;
};

struct comparing {
	kvarc_reader *r;
	kvarc_import *im;
	uint32_t track;
	uint64_t shift;
	bool decode;
	struct kvi_list segments; /* struct compared_segment, in order */
	struct kvi_pool *pool;
	struct compare_worker *workers;
	struct kvi_whole whole;
	uint64_t lost; /* tokens that are the same, but not kept: the first ones are damaged */
	/* While segments are decoded: */
	pthread_mutex_t lock;
	uint64_t differs; /* the first token of the archive's track that is another one */
	bool failed;      /* the import cannot be read */
};

static const char compare_memory[] = "not enough memory to compare the file";

static kvarc_ret no_input(const struct comparing *c)
{
	return kvi_reader_fail(c->r, KVARC_IO, "reading the input failed");
}

/* ----- token ids and positions ----------------------------------------- */

/* Tokens of both sides, BATCH each. */
struct token_pair {
	int32_t ids[2][BATCH], positions[2][BATCH];
};

/* n tokens from token i of the import on; *same: how many leading ones are equal. */
static kvarc_ret compare_batch(struct comparing *c, struct token_pair *t, uint64_t i, uint32_t n,
                               bool ids, uint32_t *same)
{
	kvarc_ret ret = kvarc_reader_read_tokens(c->r, c->track, c->shift + i, n,
	                                         ids ? t->ids[0] : NULL, t->positions[0]);
	if (ret)
		return ret;
	if (kvarc_import_read_tokens(c->im, c->track, i, n, ids ? t->ids[1] : NULL,
	                             t->positions[1]))
		return no_input(c);
	*same = 0;
	while (*same < n && t->positions[0][*same] == t->positions[1][*same] &&
	       (!ids || t->ids[0][*same] == t->ids[1][*same]))
		++*same;
	return KVARC_OK;
}

/* How many of the first n tokens of the import have the same ids and positions. */
static kvarc_ret compare_tokens(struct comparing *c, struct token_pair *t, uint64_t n,
                                uint64_t *equal)
{
	const kvarc_range first = { c->track, 0, UINT32_MAX, c->shift, 1, { 0 } };
	const bool ids = c->im->tracks[c->track].has_ids;
	bool stored = false;
	*equal = 0;
	kvarc_ret ret = n ? kvi_range_has_ids(c->r, &first, &stored) : KVARC_OK;
	while (!ret && stored == ids && *equal < n) {
		uint32_t k = n - *equal < BATCH ? (uint32_t)(n - *equal) : BATCH;
		uint32_t same = 0;
		ret = compare_batch(c, t, *equal, k, ids, &same);
		if (ret == KVARC_OPTIONS)
			return KVARC_OK; /* no ids in this part */
		if (ret)
			break;
		*equal += same;
		if (same < k)
			break;
	}
	return ret;
}

/* The archive's token with the position of the import's first one: where a window begins. */
static kvarc_ret find_shift(struct comparing *c, struct token_pair *t, uint64_t n)
{
	int32_t first;
	c->shift = 0;
	if (kvarc_import_read_tokens(c->im, c->track, 0, 1, NULL, &first))
		return no_input(c);
	for (uint64_t i = 0; i < n; i += BATCH) {
		uint32_t k = n - i < BATCH ? (uint32_t)(n - i) : BATCH;
		kvarc_ret ret = kvarc_reader_read_tokens(c->r, c->track, i, k, NULL,
		                                         t->positions[0]);
		if (ret)
			return ret;
		for (uint32_t j = 0; j < k; j++) {
			if (t->positions[0][j] != first)
				continue;
			c->shift = i + j;
			return KVARC_OK;
		}
		if (i == 0 && c->im->pub_tracks[c->track].kind != KVARC_TRACK_WINDOW)
			break;
	}
	return KVARC_OK;
}

/* ----- bytes, by their checks ------------------------------------------- */

/* Rows of the import that a chunk would hold; NULL: they cannot be read. */
static const uint8_t *fetch_rows(const struct comparing *c, const struct kvi_chunk_ref *ref,
                                 const struct kvi_segment_ref *s, size_t bytes,
                                 struct kvi_buffer *rows)
{
	if (!kvi_buffer_grow(rows, &c->r->alloc, bytes, 0) ||
	    kvarc_import_fetch(c->im, ref->tensor, ref->head, ref->heads, s->t0 - c->shift, s->n,
	                       rows->p))
		return NULL;
	return rows->p;
}

static kvarc_ret check(const kvarc_append_options *o, const kvarc_sink *sink);

/* Whether a chunk is whole, and its raw_check that of the import's rows. False also where constant
 * rows of a chunk with several streams move their bounds, which only its payload says. */
static bool chunk_holds(struct comparing *c, struct compared_segment *x,
                        const struct kvi_chunk_ref *ref, struct compare_worker *w)
{
	const kvarc_tensor *t = &c->r->geometry.tensors[ref->tensor];
	const size_t channels = (size_t)ref->heads * t->channels;
	const unsigned size = (unsigned)kvarc_dtype_bytes(t->dtype);
	struct kvi_mask all = { .T = x->s->n, .C = channels, .rows = x->s->n, .size = size };
	uint64_t check[KVI_STREAMS_MAX];
	struct kvi_chunk_header h;
	struct kvi_streams streams;
	if (!kvi_whole_chunk(&c->whole, x->s, ref, &w->frames, &h) ||
	    !kvi_streams_cut(&streams, h.cut.stream_size, x->s->n))
		return false;
	const uint8_t *p = fetch_rows(c, ref, x->s, x->s->n * channels * size, &w->rows);
	x->failed = !p;
	return p && kvi_streams_check(&streams, &all, p, check) == h.raw_check;
}

/* A kvi_parallel_fn: the chunks of a segment. */
static void check_segment(void *opaque, size_t i, unsigned worker)
{
	struct comparing *c = opaque;
	struct compared_segment *x = KVI_LIST(struct compared_segment, c->segments, i);
	x->holds = x->whole && x->s->first < x->s->end;
	for (uint64_t k = x->s->first; k < x->s->end && x->holds; k++)
		x->holds = chunk_holds(c, x, KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks, k),
		                       &c->workers[worker]);
}

/* ----- bytes, decoded ---------------------------------------------------- */

static void note_difference(struct comparing *c, bool failed, uint64_t token)
{
	pthread_mutex_lock(&c->lock);
	c->failed = c->failed || failed;
	if (!failed && token < c->differs)
		c->differs = token;
	pthread_mutex_unlock(&c->lock);
}

/* A kvarc_deliver: a decoded block beside that of the import. */
static int compare_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, const void *src)
{
	struct comparing *c = opaque;
	const kvarc_tensor *t = &c->r->geometry.tensors[tensor];
	const size_t row = (size_t)heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint8_t *rows = kvi_array(&c->r->alloc, n, row);
	bool failed = !rows ||
	              kvarc_import_fetch(c->im, tensor, head, heads, t0 - c->shift, n, rows);
	if (failed)
		note_difference(c, true, 0);
	for (uint32_t i = 0; i < n && !failed; i++) {
		if (!memcmp(rows + i * row, (const uint8_t *)src + i * row, row))
			continue;
		note_difference(c, false, t0 + i);
		break;
	}
	kvi_free(&c->r->alloc, rows);
	return failed;
}

/* Decodes tokens of the archive's track. *end becomes the first one that differs, if one does. */
static kvarc_ret compare_decoded(struct comparing *c, uint64_t t0, uint64_t *end)
{
	const kvarc_range range = { c->track, 0, UINT32_MAX, t0, *end - t0, { 0 } };
	c->differs = UINT64_MAX;
	kvarc_ret ret = kvarc_reader_read_deliver(c->r, &range, compare_block, c);
	if (ret == KVARC_IO && c->failed)
		return no_input(c);
	if (!ret && c->differs < *end)
		*end = c->differs;
	return ret;
}

/* ----- a track ----------------------------------------------------------- */

/* The segments that hold tokens up to `end` of the archive's track. */
static kvarc_ret list_segments(struct comparing *c, uint64_t end)
{
	const struct kvi_list *l = &c->r->index.segments;
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (!kvi_segment_has(s, c->track, c->shift, end))
			continue;
		struct compared_segment *x = kvi_list_add(&c->segments, &c->r->alloc, sizeof *x);
		if (!x)
			return kvi_reader_fail(c->r, kvi_alloc_error(&c->r->alloc), compare_memory);
		*x = (struct compared_segment){ .s = s,
			                        .t0 = s->t0 > c->shift ? s->t0 : c->shift,
			                        .end = s->t0 + s->left < end ? s->t0 + s->left
			                                                     : end };
		x->whole = !c->decode && x->t0 == s->t0 && x->end == s->t0 + s->n;
	}
	return KVARC_OK;
}

static kvarc_ret check_segments(struct comparing *c)
{
	kvarc_ret ret = kvi_pool_open(&c->pool, &c->r->alloc, c->r->options.common.threads);
	unsigned workers = ret ? 0 : kvi_pool_workers(c->pool);
	c->workers = kvi_calloc(&c->r->alloc, workers + 1, sizeof *c->workers);
	if (!ret)
		ret = c->workers ? kvi_whole_open(&c->whole, c->r) : kvi_alloc_error(&c->r->alloc);
	if (ret)
		ret = kvi_reader_fail(c->r, ret, compare_memory);
	else
		kvi_parallel(c->pool, c->segments.n, check_segment, c);
	kvi_pool_close(c->pool);
	for (unsigned i = 0; c->workers && i < workers; i++) {
		kvi_free(&c->r->alloc, c->workers[i].rows.p);
		if (c->whole.r)
			kvi_whole_free(&c->whole, &c->workers[i].frames);
	}
	kvi_free(&c->r->alloc, c->workers);
	kvi_whole_close(&c->whole);
	return ret;
}

/* Of tokens up to *end of the archive's track, whose ids are equal: where bytes first differ. */
static kvarc_ret compare_bytes(struct comparing *c, uint64_t *end)
{
	kvarc_ret ret = list_segments(c, *end);
	if (!ret)
		ret = check_segments(c);
	for (size_t i = 0; i < c->segments.n && !ret; i++) {
		const struct compared_segment *x = KVI_LIST(struct compared_segment, c->segments,
		                                            i);
		uint64_t to = x->end;
		if (x->failed)
			ret = no_input(c);
		else if (!x->holds)
			ret = compare_decoded(c, x->t0, &to);
		if (ret == KVARC_DATA) {
			kvi_reader_forgive(c->r);
			ret = KVARC_OK;
			to = x->t0;
			c->lost = *end - to;
		}
		if (ret || to == x->end)
			continue;
		*end = to;
		break;
	}
	return ret;
}

/* The leading tokens of the archive's track whose ids and positions can be read. */
static kvarc_ret find_whole(struct comparing *c, uint64_t *there)
{
	const struct kvi_list *l = &c->r->index.segments;
	struct kvi_segment *s = kvi_malloc(&c->r->alloc, sizeof *s);
	kvarc_ret ret = s ? KVARC_OK
	                  : kvi_reader_fail(c->r, kvi_alloc_error(&c->r->alloc), compare_memory);
	for (size_t i = 0; i < l->n && !ret; i++) {
		const struct kvi_segment_ref *x = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (!kvi_segment_has(x, c->track, 0, *there))
			continue;
		ret = kvi_reader_read_segment(c->r, &c->r->packer, x, s, c->r->error);
		if (ret != KVARC_DATA)
			continue;
		kvi_reader_forgive(c->r);
		ret = KVARC_OK;
		*there = x->t0;
	}
	kvi_free(&c->r->alloc, s);
	return ret;
}

/* How many of the first tokens of the archive's track are the import's, by ids and positions. */
static kvarc_ret compare_ids(struct comparing *c, struct token_pair *t, uint64_t there, uint64_t n,
                             uint64_t *equal)
{
	*equal = 0;
	kvarc_ret ret = there ? find_shift(c, t, there) : KVARC_OK;
	if (!ret && there)
		ret = compare_tokens(c, t, there - c->shift < n ? there - c->shift : n, equal);
	return ret;
}

static kvarc_ret compare_track(struct comparing *c, struct token_pair *t, struct append_track *to)
{
	const uint64_t all = kvarc_reader_tokens(c->r, c->track);
	uint64_t there = all, equal = 0;
	kvarc_ret ret = compare_ids(c, t, there, to->n, &equal);
	if (ret == KVARC_DATA) {
		kvi_reader_forgive(c->r);
		ret = find_whole(c, &there);
		if (!ret)
			ret = compare_ids(c, t, there, to->n, &equal);
	}
	uint64_t end = c->shift + equal, behind = 0;
	/* whether those behind lost ids are the same is not known */
	if (!ret && there < all && end == there)
		behind = (all - c->shift < to->n ? all - c->shift : to->n) - equal;
	if (!ret && equal)
		ret = compare_bytes(c, &end);
	to->kept = ret ? 0 : end - c->shift;
	to->shift = to->kept ? c->shift : 0;
	if (!ret && (c->lost || end == c->shift + equal))
		to->lost = c->lost + behind;
	return ret;
}

/*
 * Finds what the archive has of the tokens of a track: ids, positions and the bytes of all tensors
 * are the same, and whole: the check of every frame that they need is verified. Damaged tokens are
 * not kept, nor are those behind them. The last state of r; im: matches it (append_files.h).
 * decode: bytes are compared, not their checks. A window whose first token is not that of the
 * archive is looked for by its position. Returns OK, or what readers return; IO: of the import,
 * too.
 */
static kvarc_ret append_compare(kvarc_reader *r, kvarc_import *im, uint32_t track, bool decode,
                                struct append_track *to)
{
	struct comparing c = { .r = r, .im = im, .track = track, .decode = decode };
	*to = (struct append_track){ .n = im->tracks[track].n };
	if (!to->n || !kvarc_reader_tokens(r, track))
		return KVARC_OK;
	struct token_pair *t = kvi_malloc(&r->alloc, sizeof *t);
	if (!t)
		return kvi_reader_fail(r, kvi_alloc_error(&r->alloc), compare_memory);
	pthread_mutex_init(&c.lock, NULL);
	kvarc_ret ret = compare_track(&c, t, to);
	pthread_mutex_destroy(&c.lock);
	kvi_free(&r->alloc, t);
	kvi_free(&r->alloc, c.segments.p);
	return ret;
}

/* ==== A file becomes the next checkpoint of an archive: what is new of it ==== */

/* An import on its way into an archive. */
struct appending {
	kvarc_import *im;
	const kvarc_append_options *options;
	kvarc_reader *r;
	kvarc_writer *w;
	struct append_track *tracks;
	struct append_items items;
	struct kvi_counted counted;
	bool same;             /* the last checkpoint is this very file */
	bool wants_checkpoint; /* the last state has none yet, and would be lost */
	uint64_t remove_to;    /* the size of a closed archive, 0: of one that is not closed */
	kvarc_append_result result;
};

static kvarc_error *error_of(const struct appending *a)
{
	return a->options->writer.common.error;
}

static kvarc_ret check(const kvarc_append_options *o, const kvarc_sink *sink)
{
	static const char call[] = "kvarc_append_import";
	kvarc_error *e = o->writer.common.error;
	kvarc_ret ret = kvi_check_sink(e, call, sink);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_append_options", o);
	if (ret)
		return ret;
	if (kvi_writer_level(&o->writer) >= KVI_LEVEL_MODEL)
		return kvi_fail(e, KVARC_OPTIONS,
		                "level %d needs a model to go through all tokens again at each "
		                "append: append at levels 0 to 3, then compact",
		                kvi_writer_level(&o->writer));
	if (o->writer.lossy)
		return kvi_fail(e, KVARC_LOSSY,
		                "what is appended must be what was packed: no lossy tier");
	if (o->writer.flags & KVARC_WRITE_STREAMABLE)
		return kvi_fail(e, KVARC_PROG,
		                "%s: an append refers back: not with KVARC_WRITE_STREAMABLE", call);
	return KVARC_OK;
}

/* ----- what is there ------------------------------------------------------ */

static kvarc_ret open_reader(struct appending *a, const kvarc_source *source)
{
	kvarc_reader_options o = a->options->reader;
	o.common = a->options->writer.common;
	o.common.progress = NULL;
	o.checkpoint = 0;
	o.flags = 0;
	kvarc_ret ret = kvarc_reader_open(&a->r, source, &o);
	if (!ret && !kvi_reader_can_seek(a->r))
		ret = kvi_reason(error_of(a), KVARC_REASON_NEEDS_SEEK,
		                 kvi_fail(error_of(a), KVARC_OPTIONS,
		                          "an append needs a source that can seek, not a pipe"));
	return ret;
}

static kvarc_ret compare_file(struct appending *a)
{
	const bool decode = a->options->writer.flags & KVARC_WRITE_VERIFY;
	kvarc_ret ret = append_match(a->r, a->im);
	a->tracks = kvi_calloc(&a->im->alloc, a->im->n_tracks + 1, sizeof *a->tracks);
	if (!ret && !a->tracks)
		ret = kvi_fail_alloc(error_of(a), &a->im->alloc);
	for (uint32_t i = 0; i < a->im->n_tracks && !ret; i++) {
		const struct append_track *t = &a->tracks[i];
		ret = append_compare(a->r, a->im, i, decode, &a->tracks[i]);
		a->result.lost_tokens += t->lost;
		if (t->n <= a->result.tokens)
			continue;
		a->result.tokens = t->n;
		a->result.kept_tokens = t->kept;
	}
	if (!ret)
		ret = append_items_make(&a->items, a->r, a->im, a->tracks);
	a->result.lost_bytes = a->items.lost;
	return ret;
}

/* Notes whether the last checkpoint is this very file. */
static void note_same(struct appending *a)
{
	const struct kvi_list *l = &a->r->index.checkpoints;
	a->same = a->items.same && !a->options->label;
	for (uint32_t i = 0; i < a->im->n_tracks; i++)
		a->same = a->same && a->tracks[i].kept >= a->tracks[i].n;
	if (a->same)
		a->result.checkpoint = KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->number;
}

/* Notes what is asked of the reader after the writer has it. */
static void note_end(struct appending *a)
{
	const struct kvarc_reader *r = a->r;
	a->wants_checkpoint = !r->meta.set_closed && r->index.segments.n &&
	                      (kvi_reader_n_items(r) || !r->index.checkpoints.n);
	a->remove_to = r->state == KVARC_STATE_CLOSED ? r->in.source.size : 0;
}

/* ----- what is new --------------------------------------------------------- */

/* The tokens behind those that are kept; they replace those that the archive has there. */
static kvarc_ret put_track(struct appending *a, uint32_t track)
{
	const struct append_track *t = &a->tracks[track];
	const uint64_t there = kvarc_writer_tokens(a->w, track);
	uint64_t from = t->kept;
	/* A track becomes shorter with a segment alone: the last token is written again. */
	if (from && from == t->n && t->shift + from < there)
		from--;
	if (from == t->n)
		return KVARC_OK;
	kvarc_ret ret = kvarc_writer_rewind(a->w, track, t->shift + from);
	return ret ? ret : kvi_pack_tokens(a->im, a->w, &a->options->writer, track, from, t->shift);
}

static kvarc_ret write_all(struct appending *a)
{
	const kvarc_append_options *o = a->options;
	kvarc_ret ret = a->wants_checkpoint ? kvarc_writer_checkpoint(a->w, NULL, 0, NULL)
	                                    : KVARC_OK;
	for (uint32_t i = 0; i < a->im->n_tracks && !ret; i++)
		ret = put_track(a, i);
	if (!ret)
		ret = append_items_put(&a->items, a->w, error_of(a));
	return ret ? ret : kvarc_writer_checkpoint(a->w, o->label, o->time, &a->result.checkpoint);
}

/* After a failure the archive has no remains of it, if the sink can do that much. */
static void undo(struct appending *a)
{
	const kvarc_sink *to = &a->counted.to;
	if (a->counted.end && to->truncate && a->remove_to)
		(void)to->truncate(to->opaque, a->remove_to);
}

static kvarc_ret extend_archive(struct appending *a)
{
	kvarc_sink counting = kvi_counted_sink(&a->counted);
	note_end(a);
	kvarc_ret ret = kvi_writer_open_behind(&a->w, &a->r, &counting, &a->options->writer);
	/* Of the same file alone the end of the archive is written again. */
	if (!ret && !a->same)
		ret = write_all(a);
	if (!ret)
		ret = kvarc_writer_close(&a->w);
	kvarc_writer_abort(&a->w);
	if (ret)
		undo(a);
	a->result.written_bytes = a->counted.bytes;
	a->result.archive_bytes = a->counted.end;
	return ret;
}

static kvarc_ret continue_archive(struct appending *a, const kvarc_source *source)
{
	kvarc_ret ret = open_reader(a, source);
	if (!ret)
		ret = compare_file(a);
	if (!ret)
		note_same(a);
	if (!ret && a->same && a->r->state == KVARC_STATE_CLOSED)
		a->result.archive_bytes = source->size;
	else if (!ret)
		ret = extend_archive(a);
	append_items_free(&a->items);
	kvi_free(&a->im->alloc, a->tracks);
	kvarc_reader_close(&a->r);
	return ret;
}

static kvarc_ret begin_archive(struct appending *a)
{
	struct kvi_pack_checkpoint c = { a->options->label, a->options->time, 0 };
	kvarc_writer_stats stats;
	kvarc_ret ret = kvi_pack_checkpoint(a->im, &a->counted.to, &a->options->writer, &c, &stats);
	for (uint32_t i = 0; i < a->im->n_tracks; i++)
		if (a->im->tracks[i].n > a->result.tokens)
			a->result.tokens = a->im->tracks[i].n;
	if (ret)
		return ret;
	a->result.checkpoint = c.number;
	a->result.written_bytes = a->result.archive_bytes = stats.file_bytes;
	return ret;
}

kvarc_ret kvarc_append_import(kvarc_import *im, const kvarc_source *source, const kvarc_sink *sink,
                              const kvarc_append_options *options, kvarc_append_result *result)
{
	static const kvarc_append_options defaults = KVARC_APPEND_OPTIONS_INIT;
	struct appending a = { .im = im, .options = options ? options : &defaults };
	if (result)
		*result = a.result;
	if (!im)
		return KVARC_PROG;
	kvarc_ret ret = check(a.options, sink);
	if (ret)
		return ret;
	a.counted.to = *sink;
	kvarc_import_sizes(im, &a.result.file_bytes, NULL);
	ret = source ? continue_archive(&a, source) : begin_archive(&a);
	if (!ret && result)
		*result = a.result;
	return ret;
}
