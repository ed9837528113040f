/* SPDX-License-Identifier: BSD-3-Clause */
/* append_files.c - files that are appended to an archive, with the chunks that it has already */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "counted.h"
#include "import.h"
#include "import_internal.h"
#include "item_put.h"
#include "literals.h"
#include "pack_files.h"
#include "plan.h"
#include "reader_bounds.h"
#include "codecs/codec.h"
#include "codecs/streams.h"
#include "format/geometry_check.h"
#include "format/levels.h"
#include "reader/reader_frames.h"
#include "reader/reader_index.h"
#include "reader/reader_lists.h"
#include "reader/reader_internal.h"
#include "reader/reader_predictors.h"
#include "reader/reader_segments.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/parallel.h"
#include "util/source.h"
#include "writer/writer_internal.h"

/* ==== Whether chunks of an archive are whole, by the checks of their frames ==== */

/* Results of checks of the frames that several chunks use. */
struct whole_chunks {
	kvarc_reader *r;
	const struct kvi_alloc *alloc;
	const struct kvi_reader_index *index;
	_Atomic uint8_t *params; /* by PARAMS frame of the index: the result */
};

static kvarc_ret other(kvarc_reader *r, const char *what, uint64_t file, uint64_t archive);

/* Memory of a worker. */
struct whole_chunks_memory {
	struct kvi_buffer chunk, other;
};

enum { NOT_KNOWN, WHOLE, NOT_WHOLE };

/* Opens checks of chunks of a reader that can seek. The caller closes them, also on failure.
 * Returns OK, MEM, MEMLIMIT. */
static kvarc_ret whole_open(struct whole_chunks *whole, kvarc_reader *r)
{
	*whole = (struct whole_chunks){ .r = r,
		                        .alloc = kvi_reader_alloc(r),
		                        .index = kvi_reader_index(r) };
	whole->params = kvi_calloc(whole->alloc, whole->index->params.n + 1, sizeof *whole->params);
	return whole->params ? KVARC_OK : kvi_alloc_error(whole->alloc);
}

/* Frees the results. */
static void whole_close(struct whole_chunks *whole)
{
	if (whole->r)
		kvi_free(whole->alloc, whole->params);
	whole->params = NULL;
}

/* Frees the memory of a worker. */
static void whole_free(const struct whole_chunks *whole, struct whole_chunks_memory *memory)
{
	kvi_free(whole->alloc, memory->chunk.p);
	kvi_free(whole->alloc, memory->other.p);
}

static bool params_are_whole(struct whole_chunks *whole, uint64_t sequence,
                             struct whole_chunks_memory *memory)
{
	const struct kvi_params_ref *p = kvi_index_params(whole->index, sequence);
	if (!p)
		return false;
	_Atomic uint8_t *known =
		&whole->params[p - (const struct kvi_params_ref *)whole->index->params.p];
	uint8_t is = atomic_load(known);
	struct kvi_frame f;
	if (is == NOT_KNOWN) {
		is = kvi_reader_read_frame(whole->r, p->offset, KVI_FRAME_PARAMS, sequence,
		                           &memory->other, &f, NULL)
		             ? NOT_WHOLE
		             : WHOLE;
		atomic_store(known, is);
	}
	return is == WHOLE;
}

/* Whether PARAMS or the embedded profile that a chunk is decoded with are whole. */
static bool has_parameters(struct whole_chunks *whole, const struct kvi_chunk_ref *chunk,
                           struct whole_chunks_memory *memory)
{
	if (chunk->linear) {
		struct kvi_predictor_ref *p = kvi_reader_find_predictor(whole->r, chunk->params);
		return p && (!p->p.embedded ||
		             kvi_reader_load_predictor(whole->r, p, NULL) != KVARC_DATA);
	}
	return !chunk->params || params_are_whole(whole, chunk->params, memory);
}

/* The chunk that another one repeats or refers to; *needed: there is one. */
static bool has_other(struct whole_chunks *whole, const struct kvi_frame *frame,
                      const struct kvi_chunk_header *header, struct whole_chunks_memory *memory)
{
	const uint8_t *p = frame->payload + KVI_CHUNK_HEADER_BYTES;
	const size_t bytes = frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame other;
	uint64_t sequence, offset;
	if (header->codec == KVI_CODEC_REPEAT) {
		if (bytes != KVI_REPEAT_BYTES)
			return false;
		sequence = kvi_load64(p);
		offset = kvi_load64(p + 8);
	} else if (header->codec != KVI_CODEC_STATE ||
	           !kvi_state_reference(p, bytes, &sequence, &offset)) {
		return true;
	}
	if (kvi_reader_read_frame(whole->r, offset, KVI_FRAME_CHUNK, sequence, &memory->other,
	                          &other, NULL) ||
	    !kvi_chunk_header_parse(&there, other.payload, other.head.payload_bytes))
		return false;
	const struct kvi_chunk_ref c = kvi_chunk_ref(&other, &there);
	/* a predicted chunk also needs other chunks of its segment */
	return !c.linear && has_parameters(whole, &c, memory);
}

/*
 * Whether the frame of a chunk, and those that decoding it needs, are as they were written: its
 * PARAMS, an embedded profile, the chunk that it repeats or refers to. *header: its header. False
 * also where only decoding can say it. From any thread.
 */
static bool whole_chunk(struct whole_chunks *whole, const struct kvi_segment_ref *segment,
                        const struct kvi_chunk_ref *ref, struct whole_chunks_memory *memory,
                        struct kvi_chunk_header *header)
{
	struct kvi_frame f;
	return kvi_reader_read_frame(whole->r, ref->offset, KVI_FRAME_CHUNK, ref->sequence,
	                             &memory->chunk, &f, NULL) == KVARC_OK &&
	       kvi_chunk_header_parse(header, f.payload, f.head.payload_bytes) &&
	       header->segment == segment->sequence && header->tensor == ref->tensor &&
	       header->head == ref->head && header->heads == ref->heads &&
	       header->t0 == segment->t0 && header->n == segment->n &&
	       has_other(whole, &f, header, memory) && has_parameters(whole, ref, memory);
}

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
	struct kvi_list spans; /* struct literal_span: spans of p, in order */
	size_t *ends;          /* ends of the spans in p */
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

static kvarc_ret add_span(struct literal_find *find, uint64_t item, uint64_t from, uint64_t bytes)
{
	struct literal_span *last = find->spans.n ? KVI_LIST(struct literal_span, find->spans,
	                                                     find->spans.n - 1)
	                                          : NULL;
	if (last && last->item == item && last->from + last->bytes == from) {
		last->bytes += bytes;
		return KVARC_OK;
	}
	struct literal_span *to = kvi_list_add(&find->spans, find->alloc, sizeof *to);
	if (!to)
		return kvi_alloc_error(find->alloc);
	*to = (struct literal_span){ item, from, bytes };
	return KVARC_OK;
}

/* The literal bytes of an item and those it refers to, as spans. */
static kvarc_ret add_item(struct literal_find *find, const struct kvi_restore *plan,
                          uint64_t number, uint64_t *bytes)
{
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < plan->n_pieces && !ret; i++) {
		const struct kvi_piece *p = &plan->pieces[i];
		if (p->type == KVI_PIECE_AREA)
			continue;
		bool own = p->type == KVI_PIECE_LITERAL;
		ret = add_span(find, own ? number : p->item, own ? at : p->from, p->bytes);
		at += own ? p->bytes : 0;
		*bytes += p->bytes;
	}
	return ret;
}

static kvarc_ret read_spans(struct literal_find *find, kvarc_reader *r)
{
	struct kvi_literals literals;
	size_t at = 0;
	kvarc_ret ret = kvi_literals_open(&literals, r);
	for (size_t i = 0; i < find->spans.n && !ret; i++) {
		const struct literal_span *s = KVI_LIST(struct literal_span, find->spans, i);
		ret = kvi_literals_read(&literals, s->item, s->from, (size_t)s->bytes,
		                        find->p + at);
		at += (size_t)s->bytes;
		find->ends[i] = at;
	}
	kvi_literals_free(&literals);
	return ret;
}

static void fill_table(struct literal_find *find)
{
	for (size_t i = 0; i + BLOCK <= find->n; i += BLOCK) {
		uint32_t *to = &find->table[kvi_h64(find->p + i, BLOCK) & find->mask];
		if (!*to)
			*to = 1 + (uint32_t)(i / BLOCK);
	}
}

/*
 * Reads them. Of a state that has more than its share of the reader's memory limit none are
 * read, and nothing will be found. To be freed, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO.
 */
static kvarc_ret literal_find_open(struct literal_find *find, kvarc_reader *r)
{
	uint64_t bytes = 0;
	kvarc_ret ret = KVARC_OK;
	size_t entries = 1;
	*find = (struct literal_find){ .alloc = kvi_reader_alloc(r) };
	for (size_t i = 0; i < kvi_reader_n_items(r) && !ret; i++)
		ret = add_item(find, kvi_reader_restore(r, i), kvi_reader_earlier_items(r) + i,
		               &bytes);
	find->wanted = bytes;
	if (ret || !bytes || bytes > find->alloc->limit / LITERAL_SHARE || bytes > UINT32_MAX)
		return ret ? kvi_reader_fail(r, ret, "not enough memory for the packed files")
		           : KVARC_OK;
	while (entries < 4 * (size_t)bytes / BLOCK)
		entries *= 2;
	find->mask = entries - 1;
	find->p = kvi_malloc(find->alloc, (size_t)bytes);
	find->ends = kvi_array(find->alloc, find->spans.n, sizeof *find->ends);
	find->table = kvi_calloc(find->alloc, entries, sizeof *find->table);
	if (!find->p || !find->ends || !find->table)
		return kvi_reader_fail(r, kvi_alloc_error(find->alloc),
		                       "not enough memory for the packed files");
	ret = read_spans(find, r);
	find->n = ret ? 0 : (size_t)bytes;
	if (!ret)
		fill_table(find);
	return ret;
}

/* Frees what it has. */
static void literal_find_close(struct literal_find *find)
{
	if (!find->alloc)
		return;
	kvi_free(find->alloc, find->p);
	kvi_free(find->alloc, find->spans.p);
	kvi_free(find->alloc, find->ends);
	kvi_free(find->alloc, find->table);
	*find = (struct literal_find){ 0 };
}

/* A block that was found, and all equal bytes around it, back to `at`. */
static struct literal_match extend_literal(const struct literal_find *find, const uint8_t *p,
                                           size_t n, size_t at, struct literal_match match)
{
	while (match.at > at && match.from && p[match.at - 1] == find->p[match.from - 1]) {
		match.at--;
		match.from--;
		match.n++;
	}
	while (match.at + match.n < n && match.from + match.n < find->n &&
	       p[match.at + match.n] == find->p[match.from + match.n])
		match.n++;
	return match;
}

/* The first match in p[at .. n - 1] of some bytes; .n 0: there is none. */
static struct literal_match literal_find_next(const struct literal_find *find, const uint8_t *p,
                                              size_t n, size_t at)
{
	for (size_t i = at; find->n && i + BLOCK <= n; i++) {
		uint32_t block = find->table[kvi_h64(p + i, BLOCK) & find->mask];
		size_t from = ((size_t)block - 1) * BLOCK;
		if (block && !memcmp(find->p + from, p + i, BLOCK))
			return extend_literal(find, p, n, at,
			                      (struct literal_match){ i, from, BLOCK });
	}
	return (struct literal_match){ n, 0, 0 };
}

/* The first part of a match that lies in one item, at most `n` bytes from `from` on. */
static struct literal_span literal_find_span(const struct literal_find *find, size_t from, size_t n)
{
	size_t lo = 0, hi = find->spans.n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (find->ends[mid] <= from)
			lo = mid + 1;
		else
			hi = mid;
	}
	struct literal_span s = *KVI_LIST(struct literal_span, find->spans, lo);
	const size_t begin = find->ends[lo] - (size_t)s.bytes;
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
static bool same_tensor(const kvarc_tensor *tensor, const kvarc_tensor *b)
{
	return tensor->layer == b->layer && tensor->kind == b->kind && tensor->role == b->role &&
	       tensor->track == b->track && tensor->source_type == b->source_type &&
	       kvi_tensor_width(tensor) == kvi_tensor_width(b);
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
	if (file->n_tensors && !archive->n_tensors)
		return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
		                "it cannot be appended: the archive keeps its files whole, without "
		                "tensors: give another archive");
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
	uint64_t shift; /* index in the archive's track of the import's first token */
	uint64_t kept;  /* leading tokens of the import that the archive has from there on */
	uint64_t lost;  /* tokens behind those that the archive had, the first ones damaged */
};

/* The items of an import as an archive will have them. */
struct append_items {
	kvarc_import *im;
	kvarc_reader *r;
	struct kvi_restore *plans; /* by item */
	uint64_t first;            /* number of the first item in the archive */
	uint64_t lost;             /* literal bytes of the last state that are damaged in part */
	bool same;                 /* the last checkpoint of the archive has these very items */
};

static kvarc_ret items_memory(const struct append_items *items)
{
	return kvi_reader_fail(items->r, kvi_alloc_error(&items->im->alloc),
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

/* Whether a file is equal to another one, without regard to where its literal bytes are. */
struct sameness {
	size_t literals; /* literal bytes of the old file that were compared */
	bool same;
};

static kvarc_ret find_literal(struct append_items *items, struct piece_list *to,
                              const struct literal_find *find, size_t item, uint64_t at,
                              uint64_t bytes, struct sameness *sameness)
{
	if (!find->n || bytes > find->alloc->limit / LITERAL_SHARE) {
		sameness->same = false;
		add_literal(to, bytes);
		return KVARC_OK;
	}
	uint8_t *p = kvi_malloc(&items->im->alloc, (size_t)bytes);
	if (!p)
		return items_memory(items);
	kvarc_ret ret = kvi_source_read(&items->im->items[item].src, p, (size_t)bytes, at);
	if (ret)
		ret = kvi_reader_fail(items->r, KVARC_IO, "reading the input failed");
	else
		add_found(to, find, p, (size_t)bytes);
	sameness->same = !ret && sameness->same && bytes <= find->n - sameness->literals &&
	                 !memcmp(find->p + sameness->literals, p, (size_t)bytes);
	sameness->literals += sameness->same ? (size_t)bytes : 0;
	kvi_free(&items->im->alloc, p);
	return ret;
}

/* Replaces literal bytes of an item that the archive has by references. */
static kvarc_ret refer(struct append_items *items, const struct literal_find *find, size_t item,
                       struct sameness *sameness)
{
	struct kvi_restore *plan = &items->plans[item];
	struct piece_list to = { .alloc = &items->im->alloc };
	uint64_t at = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < plan->n_pieces && !ret; i++) {
		const struct kvi_piece *p = &plan->pieces[i];
		if (p->type == KVI_PIECE_LITERAL)
			ret = find_literal(items, &to, find, item, at, p->bytes, sameness);
		else
			add_piece(&to, p);
		at += p->bytes;
	}
	if (ret || to.failed) {
		kvi_free(to.alloc, to.list.p);
		return ret ? ret : items_memory(items);
	}
	kvi_free(&items->im->alloc, plan->pieces);
	plan->pieces = to.list.p;
	plan->n_pieces = to.list.n;
	return KVARC_OK;
}

/* ----- whether nothing is new --------------------------------------------- */

static bool same_areas(const struct kvi_piece *piece, const struct kvi_piece *b)
{
	if (piece->track != b->track || piece->t0 != b->t0 || piece->n_tokens != b->n_tokens ||
	    piece->bytes != b->bytes || piece->n_views != b->n_views)
		return false;
	for (size_t i = 0; i < piece->n_views; i++) {
		const struct kvi_area_view *x = &piece->views[i], *y = &b->views[i];
		if (x->tensor != y->tensor || x->block_elems != y->block_elems ||
		    x->offset != y->offset || x->token_stride != y->token_stride ||
		    x->block_stride != y->block_stride || x->elem_stride != y->elem_stride)
			return false;
	}
	return true;
}

/* The next area of a plan from piece *i on, and the literal bytes before it; NULL: none is left. */
static const struct kvi_piece *next_area(const struct kvi_restore *restore, size_t *i,
                                         uint64_t *before)
{
	for (*before = 0; *i < restore->n_pieces && restore->pieces[*i].type != KVI_PIECE_AREA;
	     ++*i)
		*before += restore->pieces[*i].bytes;
	return *i < restore->n_pieces ? &restore->pieces[(*i)++] : NULL;
}

static bool same_plans(const struct kvi_restore *restore, const struct kvi_restore *b)
{
	const struct kvi_piece *p, *q;
	size_t i = 0, k = 0;
	uint64_t before_p, before_q;
	if (restore->kind != b->kind || strcmp(restore->name, b->name) ||
	    restore->file_bytes != b->file_bytes)
		return false;
	do {
		p = next_area(restore, &i, &before_p);
		q = next_area(b, &k, &before_q);
		if (before_p != before_q || !p != !q || (p && !same_areas(p, q)))
			return false;
	} while (p);
	return true;
}

static bool same_items(const struct append_items *items)
{
	bool same = kvi_reader_n_items(items->r) == items->im->n_items &&
	            kvi_reader_at_checkpoint(items->r);
	for (size_t i = 0; i < items->im->n_items && same; i++)
		same = same_plans(&items->plans[i], kvi_reader_restore(items->r, i));
	return same;
}

/* ----- all of it ----------------------------------------------------------- */

static kvarc_ret make_plan(struct append_items *items, size_t item,
                           const struct append_track *tracks)
{
	struct kvi_restore *plan = &items->plans[item];
	if (kvi_plan_make(items->im, (uint32_t)item, plan))
		return items_memory(items);
	for (size_t i = 0; i < plan->n_pieces; i++)
		if (plan->pieces[i].type == KVI_PIECE_AREA)
			plan->pieces[i].t0 += tracks[plan->pieces[i].track].shift;
	return KVARC_OK;
}

/* Makes them; tracks: of the import. To be freed, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO; the reader's kvarc_error has the text. */
static kvarc_ret append_items_make(struct append_items *items, kvarc_reader *r, kvarc_import *im,
                                   const struct append_track *tracks)
{
	struct literal_find find;
	struct sameness y = { .same = true };
	*items = (struct append_items){
		.im = im, .r = r, .first = kvi_reader_earlier_items(r) + kvi_reader_n_items(r)
	};
	items->plans = kvi_calloc(&im->alloc, im->n_items, sizeof *items->plans);
	kvarc_ret ret = items->plans ? literal_find_open(&find, r) : items_memory(items);
	if (!items->plans)
		return ret;
	/* Damaged literal bytes are not referred to: all are written again. */
	if (ret == KVARC_DATA) {
		kvi_reader_forgive(r);
		items->lost = find.wanted;
		ret = KVARC_OK;
	}
	for (size_t i = 0; i < im->n_items && !ret; i++) {
		ret = make_plan(items, i, tracks);
		if (!ret)
			ret = refer(items, &find, i, &y);
	}
	items->same = !ret && y.same && y.literals == find.n && same_items(items);
	literal_find_close(&find);
	return ret;
}

/* Writes RESTORE and BLOB frames, for the checkpoint that follows. error: the writer's. */
static kvarc_ret append_items_put(const struct append_items *items, kvarc_writer *w,
                                  kvarc_error *error)
{
	const struct kvi_alloc *alloc = &items->im->alloc;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < items->im->n_items && !ret; i++)
		ret = kvi_item_put_plan(w, error, alloc, &items->plans[i]);
	for (size_t i = 0; i < items->im->n_items && !ret; i++) {
		struct kvi_item_put put;
		kvi_item_put_begin(&put, w, error, alloc, items->first + i);
		ret = kvi_item_put_literals(&put, &items->plans[i], &items->im->items[i].src);
		ret = kvi_item_put_end(&put, ret);
	}
	return ret;
}

/* Frees the plans. */
static void append_items_free(struct append_items *items)
{
	for (size_t i = 0; items->plans && i < items->im->n_items; i++)
		kvi_restore_free(&items->plans[i], &items->im->alloc);
	if (items->plans)
		kvi_free(&items->im->alloc, items->plans);
	items->plans = NULL;
}

/* ==== Which tokens of an import an archive has already, by ids and bytes ==== */

enum { BATCH = 1024 }; /* tokens that are compared at once */

/* A segment of the last state. */
struct compared_segment {
	const struct kvi_segment_ref *s;
	uint64_t t0, end; /* tokens that are compared: none where end is not above t0 */
	bool whole;       /* all frames are whole, by their checks */
	bool holds;       /* the bytes are equal */
	bool failed;      /* the import cannot be read */
};

/* Memory of a thread. */
struct compare_worker {
	struct kvi_buffer rows; /* elements of a chunk */
	struct whole_chunks_memory frames;
};

struct comparing {
	kvarc_reader *r;
	const struct kvi_alloc *alloc;
	const struct kvi_reader_index *index;
	const kvarc_geometry *geometry;
	kvarc_import *im;
	uint32_t track;
	uint64_t shift;
	bool decode;
	struct kvi_list segments; /* struct compared_segment, in order */
	struct kvi_pool *pool;
	struct compare_worker *workers;
	struct whole_chunks whole;
	uint64_t lost; /* equal tokens that are written again: the first ones are damaged */
	/* Results of segments that are decoded, guarded by lock: */
	pthread_mutex_t lock;
	uint64_t differs; /* index of the first token of the archive's track that differs */
	bool failed;      /* the import cannot be read */
};

static const char compare_memory[] = "not enough memory to compare the file";

static kvarc_ret no_input(const struct comparing *comparing)
{
	return kvi_reader_fail(comparing->r, KVARC_IO, "reading the input failed");
}

/* ----- token ids and positions ----------------------------------------- */

/* Tokens of both sides, BATCH each. */
struct token_pair {
	int32_t ids[2][BATCH], positions[2][BATCH];
};

/* Compares n tokens from token i of the import on; *same: number of equal leading tokens. */
static kvarc_ret compare_batch(struct comparing *comparing, struct token_pair *pair, uint64_t i,
                               uint32_t n, bool ids, uint32_t *same)
{
	kvarc_ret ret = kvarc_reader_read_tokens(comparing->r, comparing->track,
	                                         comparing->shift + i, n, ids ? pair->ids[0] : NULL,
	                                         pair->positions[0]);
	if (ret)
		return ret;
	if (kvarc_import_read_tokens(comparing->im, comparing->track, i, n,
	                             ids ? pair->ids[1] : NULL, pair->positions[1]))
		return no_input(comparing);
	*same = 0;
	while (*same < n && pair->positions[0][*same] == pair->positions[1][*same] &&
	       (!ids || pair->ids[0][*same] == pair->ids[1][*same]))
		++*same;
	return KVARC_OK;
}

/* Counts the leading tokens, n at most, of the import that have the same ids and positions. */
static kvarc_ret compare_tokens(struct comparing *comparing, struct token_pair *pair, uint64_t n,
                                uint64_t *equal)
{
	const kvarc_range first = { comparing->track, 0, UINT32_MAX, comparing->shift, 1, { 0 } };
	const bool ids = comparing->im->tracks[comparing->track].has_ids;
	bool stored = false;
	*equal = 0;
	kvarc_ret ret = n ? kvi_range_has_ids(comparing->r, &first, &stored) : KVARC_OK;
	while (!ret && stored == ids && *equal < n) {
		uint32_t k = n - *equal < BATCH ? (uint32_t)(n - *equal) : BATCH;
		uint32_t same = 0;
		ret = compare_batch(comparing, pair, *equal, k, ids, &same);
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
static kvarc_ret find_shift(struct comparing *comparing, struct token_pair *pair, uint64_t n)
{
	int32_t first;
	comparing->shift = 0;
	if (kvarc_import_read_tokens(comparing->im, comparing->track, 0, 1, NULL, &first))
		return no_input(comparing);
	for (uint64_t i = 0; i < n; i += BATCH) {
		uint32_t k = n - i < BATCH ? (uint32_t)(n - i) : BATCH;
		kvarc_ret ret = kvarc_reader_read_tokens(comparing->r, comparing->track, i, k, NULL,
		                                         pair->positions[0]);
		if (ret)
			return ret;
		for (uint32_t j = 0; j < k; j++) {
			if (pair->positions[0][j] != first)
				continue;
			comparing->shift = i + j;
			return KVARC_OK;
		}
		if (i == 0 &&
		    comparing->im->pub_tracks[comparing->track].kind != KVARC_TRACK_WINDOW)
			break;
	}
	return KVARC_OK;
}

/* ----- bytes, by their checks ------------------------------------------- */

/* Rows of the import that a chunk would hold; NULL: they cannot be read. */
static const uint8_t *fetch_rows(const struct comparing *comparing, const struct kvi_chunk_ref *ref,
                                 const struct kvi_segment_ref *segment, size_t bytes,
                                 struct kvi_buffer *rows)
{
	if (!kvi_buffer_grow(rows, comparing->alloc, bytes, 0) ||
	    kvarc_import_fetch(comparing->im, ref->tensor, ref->head, ref->heads,
	                       segment->t0 - comparing->shift, segment->n, rows->p))
		return NULL;
	return rows->p;
}

static kvarc_ret check(const kvarc_append_options *options, const kvarc_sink *sink);

/* Whether a chunk is whole, and its raw_check that of the import's rows. False also where constant
 * rows of a chunk with several streams move their bounds, which only its payload says. */
static bool chunk_holds(struct comparing *comparing, struct compared_segment *segment,
                        const struct kvi_chunk_ref *ref, struct compare_worker *w)
{
	const kvarc_tensor *t = &comparing->geometry->tensors[ref->tensor];
	const size_t channels = (size_t)ref->heads * t->channels;
	const unsigned size = (unsigned)kvarc_dtype_bytes(t->dtype);
	struct kvi_mask all = {
		.T = segment->s->n, .C = channels, .rows = segment->s->n, .size = size
	};
	uint64_t check[KVI_STREAMS_MAX];
	struct kvi_chunk_header h;
	struct kvi_streams streams;
	if (!whole_chunk(&comparing->whole, segment->s, ref, &w->frames, &h) ||
	    !kvi_streams_cut(&streams, h.cut.stream_size, segment->s->n))
		return false;
	const uint8_t *p = fetch_rows(comparing, ref, segment->s, segment->s->n * channels * size,
	                              &w->rows);
	segment->failed = !p;
	return p && kvi_streams_check(&streams, &all, p, check) == h.raw_check;
}

/* A kvi_parallel_fn: the chunks of a segment. */
static void check_segment(void *opaque, size_t i, unsigned worker)
{
	struct comparing *c = opaque;
	struct compared_segment *x = KVI_LIST(struct compared_segment, c->segments, i);
	x->holds = x->whole && x->s->first < x->s->end;
	for (uint64_t k = x->s->first; k < x->s->end && x->holds; k++)
		x->holds = chunk_holds(c, x, KVI_LIST(struct kvi_chunk_ref, c->index->chunks, k),
		                       &c->workers[worker]);
}

/* ----- bytes, decoded ---------------------------------------------------- */

static void note_difference(struct comparing *comparing, bool failed, uint64_t token)
{
	pthread_mutex_lock(&comparing->lock);
	comparing->failed = comparing->failed || failed;
	if (!failed && token < comparing->differs)
		comparing->differs = token;
	pthread_mutex_unlock(&comparing->lock);
}

/* A kvarc_deliver: a decoded block beside that of the import. */
static int compare_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, const void *src)
{
	struct comparing *c = opaque;
	const kvarc_tensor *t = &c->geometry->tensors[tensor];
	const size_t row = (size_t)heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint8_t *rows = kvi_array(c->alloc, n, row);
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
	kvi_free(c->alloc, rows);
	return failed;
}

/* Decodes tokens of the archive's track. *end becomes the first one that differs, if one does. */
static kvarc_ret compare_decoded(struct comparing *comparing, uint64_t t0, uint64_t *end)
{
	const kvarc_range range = { comparing->track, 0, UINT32_MAX, t0, *end - t0, { 0 } };
	comparing->differs = UINT64_MAX;
	kvarc_ret ret = kvarc_reader_read_deliver(comparing->r, &range, compare_block, comparing);
	if (ret == KVARC_IO && comparing->failed)
		return no_input(comparing);
	if (!ret && comparing->differs < *end)
		*end = comparing->differs;
	return ret;
}

/* ----- a track ----------------------------------------------------------- */

/* The segments that hold tokens up to `end` of the archive's track. */
static kvarc_ret list_segments(struct comparing *comparing, uint64_t end)
{
	const struct kvi_list *l = &comparing->index->segments;
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (!kvi_segment_has(s, comparing->track, comparing->shift, end))
			continue;
		struct compared_segment *x = kvi_list_add(&comparing->segments, comparing->alloc,
		                                          sizeof *x);
		if (!x)
			return kvi_reader_fail(comparing->r, kvi_alloc_error(comparing->alloc),
			                       compare_memory);
		*x = (struct compared_segment){
			.s = s,
			.t0 = s->t0 > comparing->shift ? s->t0 : comparing->shift,
			.end = s->t0 + s->left < end ? s->t0 + s->left : end
		};
		/* Chunks of a FORK name tensors of another track. */
		x->whole = !comparing->decode && !s->origin && x->t0 == s->t0 &&
		           x->end == s->t0 + s->n;
	}
	return KVARC_OK;
}

static kvarc_ret check_segments(struct comparing *comparing)
{
	kvarc_ret ret = kvi_pool_open(&comparing->pool, comparing->alloc,
	                              kvi_reader_common(comparing->r)->threads);
	unsigned workers = ret ? 0 : kvi_pool_workers(comparing->pool);
	comparing->workers = kvi_calloc(comparing->alloc, workers + 1, sizeof *comparing->workers);
	if (!ret)
		ret = comparing->workers ? whole_open(&comparing->whole, comparing->r)
		                         : kvi_alloc_error(comparing->alloc);
	if (ret)
		ret = kvi_reader_fail(comparing->r, ret, compare_memory);
	else
		kvi_parallel(comparing->pool, comparing->segments.n, check_segment, comparing);
	kvi_pool_close(comparing->pool);
	for (unsigned i = 0; comparing->workers && i < workers; i++) {
		kvi_free(comparing->alloc, comparing->workers[i].rows.p);
		if (comparing->whole.r)
			whole_free(&comparing->whole, &comparing->workers[i].frames);
	}
	kvi_free(comparing->alloc, comparing->workers);
	whole_close(&comparing->whole);
	return ret;
}

/* Moves *end, up to which ids are equal in the archive's track, to where bytes first differ. */
static kvarc_ret compare_bytes(struct comparing *comparing, uint64_t *end)
{
	kvarc_ret ret = list_segments(comparing, *end);
	if (!ret)
		ret = check_segments(comparing);
	for (size_t i = 0; i < comparing->segments.n && !ret; i++) {
		const struct compared_segment *x = KVI_LIST(struct compared_segment,
		                                            comparing->segments, i);
		uint64_t to = x->end;
		if (x->failed)
			ret = no_input(comparing);
		else if (!x->holds)
			ret = compare_decoded(comparing, x->t0, &to);
		if (ret == KVARC_DATA) {
			kvi_reader_forgive(comparing->r);
			ret = KVARC_OK;
			to = x->t0;
			comparing->lost = *end - to;
		}
		if (ret || to == x->end)
			continue;
		*end = to;
		break;
	}
	return ret;
}

/* The leading tokens of the archive's track whose ids and positions can be read. */
static kvarc_ret find_whole(struct comparing *comparing, uint64_t *there)
{
	const struct kvi_list *l = &comparing->index->segments;
	struct kvi_segment *s = kvi_malloc(comparing->alloc, sizeof *s);
	kvarc_ret ret = s ? KVARC_OK
	                  : kvi_reader_fail(comparing->r, kvi_alloc_error(comparing->alloc),
	                                    compare_memory);
	for (size_t i = 0; i < l->n && !ret; i++) {
		const struct kvi_segment_ref *x = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (!kvi_segment_has(x, comparing->track, 0, *there))
			continue;
		ret = kvi_reader_segment(comparing->r, x, s);
		if (ret != KVARC_DATA)
			continue;
		kvi_reader_forgive(comparing->r);
		ret = KVARC_OK;
		*there = x->t0;
	}
	kvi_free(comparing->alloc, s);
	return ret;
}

/* Counts leading tokens of the archive's track that the import has, by ids and positions. */
static kvarc_ret compare_ids(struct comparing *comparing, struct token_pair *pair, uint64_t there,
                             uint64_t n, uint64_t *equal)
{
	*equal = 0;
	kvarc_ret ret = there ? find_shift(comparing, pair, there) : KVARC_OK;
	if (!ret && there)
		ret = compare_tokens(comparing, pair,
		                     there - comparing->shift < n ? there - comparing->shift : n,
		                     equal);
	return ret;
}

static kvarc_ret compare_track(struct comparing *comparing, struct token_pair *pair,
                               struct append_track *to)
{
	const uint64_t all = kvarc_reader_tokens(comparing->r, comparing->track);
	uint64_t there = all, equal = 0;
	kvarc_ret ret = compare_ids(comparing, pair, there, to->n, &equal);
	if (ret == KVARC_DATA) {
		kvi_reader_forgive(comparing->r);
		ret = find_whole(comparing, &there);
		if (!ret)
			ret = compare_ids(comparing, pair, there, to->n, &equal);
	}
	uint64_t end = comparing->shift + equal, behind = 0;
	/* tokens behind lost ids may be the same or not */
	if (!ret && there < all && end == there)
		behind = (all - comparing->shift < to->n ? all - comparing->shift : to->n) - equal;
	if (!ret && equal)
		ret = compare_bytes(comparing, &end);
	to->kept = ret ? 0 : end - comparing->shift;
	to->shift = to->kept ? comparing->shift : 0;
	if (!ret && (comparing->lost || end == comparing->shift + equal))
		to->lost = comparing->lost + behind;
	return ret;
}

/*
 * Finds the tokens of a track that the archive has: ids, positions and the bytes of all tensors are
 * the same, and whole: the check of every frame that they need is verified. Damaged tokens do not
 * count, nor do those behind them. The last state of r; im: matches it (append_files.h).
 * decode: bytes are compared, not their checks. A window whose first token is not that of the
 * archive is looked for by its position. Returns OK, or what readers return; IO: of the import,
 * too.
 */
static kvarc_ret append_compare(kvarc_reader *r, kvarc_import *im, uint32_t track, bool decode,
                                struct append_track *to)
{
	struct comparing c = { .r = r,
		               .alloc = kvi_reader_alloc(r),
		               .index = kvi_reader_index(r),
		               .geometry = kvarc_reader_geometry(r),
		               .im = im,
		               .track = track,
		               .decode = decode };
	*to = (struct append_track){ .n = im->tracks[track].n };
	if (!to->n || !kvarc_reader_tokens(r, track))
		return KVARC_OK;
	kvarc_ret ret = kvi_reader_list_all(r);
	struct token_pair *t = kvi_malloc(c.alloc, sizeof *t);
	if (!t)
		return kvi_reader_fail(r, kvi_alloc_error(c.alloc), compare_memory);
	pthread_mutex_init(&c.lock, NULL);
	if (!ret)
		ret = compare_track(&c, t, to);
	pthread_mutex_destroy(&c.lock);
	kvi_free(c.alloc, t);
	kvi_free(c.alloc, c.segments.p);
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
	bool same;             /* the last checkpoint has this very file */
	bool wants_checkpoint; /* the last state has none yet, and would be lost */
	uint64_t remove_to;    /* size of the archive, if it is closed; 0: it is not */
	kvarc_append_result result;
};

static kvarc_error *error_of(const struct appending *appending)
{
	return appending->options->writer.common.error;
}

static kvarc_ret check(const kvarc_append_options *options, const kvarc_sink *sink)
{
	static const char call[] = "kvarc_append_import";
	kvarc_error *e = options->writer.common.error;
	kvarc_ret ret = kvi_check_sink(e, call, sink);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_append_options", options);
	if (ret)
		return ret;
	if (kvi_writer_level(&options->writer) >= KVI_LEVEL_MODEL)
		return kvi_fail(e, KVARC_OPTIONS,
		                "level %d needs a model to go through all tokens again at each "
		                "append: append at levels 0 to 3, then compact",
		                kvi_writer_level(&options->writer));
	if (options->writer.lossy)
		return kvi_fail(e, KVARC_LOSSY,
		                "what is appended must be what was packed: no lossy tier");
	if (options->writer.flags & KVARC_WRITE_STREAMABLE)
		return kvi_fail(e, KVARC_PROG,
		                "%s: an append refers back: not with KVARC_WRITE_STREAMABLE", call);
	return KVARC_OK;
}

/* ----- what is there ------------------------------------------------------ */

static kvarc_ret open_reader(struct appending *appending, const kvarc_source *source)
{
	kvarc_reader_options o = appending->options->reader;
	o.common = appending->options->writer.common;
	o.common.progress = NULL;
	o.checkpoint = 0;
	o.flags = 0;
	kvarc_ret ret = kvarc_reader_open(&appending->r, source, &o);
	if (!ret && !kvi_reader_can_seek(appending->r))
		ret = kvi_reason(error_of(appending), KVARC_REASON_NEEDS_SEEK,
		                 kvi_fail(error_of(appending), KVARC_OPTIONS,
		                          "an append needs a source that can seek, not a pipe"));
	return ret;
}

static kvarc_ret compare_file(struct appending *appending)
{
	const bool decode = appending->options->writer.flags & KVARC_WRITE_VERIFY;
	kvarc_ret ret = append_match(appending->r, appending->im);
	appending->tracks = kvi_calloc(&appending->im->alloc, appending->im->n_tracks + 1,
	                               sizeof *appending->tracks);
	if (!ret && !appending->tracks)
		ret = kvi_fail_alloc(error_of(appending), &appending->im->alloc);
	for (uint32_t i = 0; i < appending->im->n_tracks && !ret; i++) {
		const struct append_track *t = &appending->tracks[i];
		ret = append_compare(appending->r, appending->im, i, decode, &appending->tracks[i]);
		appending->result.lost_tokens += t->lost;
		if (t->n <= appending->result.tokens || !kvi_import_counts(appending->im, i))
			continue;
		appending->result.tokens = t->n;
		appending->result.kept_tokens = t->kept;
	}
	if (!ret)
		ret = append_items_make(&appending->items, appending->r, appending->im,
		                        appending->tracks);
	appending->result.lost_bytes = appending->items.lost;
	return ret;
}

/* Notes whether the last checkpoint is this very file, and what else is asked of the reader, which
 * the writer gets. */
static void note_state(struct appending *appending)
{
	const struct kvarc_reader *r = appending->r;
	const struct kvi_reader_index *index = kvi_reader_index(r);
	const struct kvi_list *l = &index->checkpoints;
	kvarc_info info = { .state = KVARC_STATE_UNKNOWN };
	(void)kvarc_reader_get_info(r, &info);
	appending->remove_to = info.state == KVARC_STATE_CLOSED ? info.file_bytes : 0;
	appending->wants_checkpoint = !kvi_reader_at_checkpoint(r) && index->segments.n &&
	                              (kvi_reader_n_items(r) || !l->n);
	appending->same = appending->items.same && !appending->options->label;
	for (uint32_t i = 0; i < appending->im->n_tracks; i++)
		appending->same = appending->same &&
		                  appending->tracks[i].kept >= appending->tracks[i].n;
	if (appending->same)
		appending->result.checkpoint =
			KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->number;
}

/* ----- what is new --------------------------------------------------------- */

/* Writes the tokens behind those that the archive has; they replace its tokens there. */
static kvarc_ret put_track(struct appending *appending, uint32_t track)
{
	const struct append_track *t = &appending->tracks[track];
	const uint64_t there = kvarc_writer_tokens(appending->w, track);
	uint64_t from = t->kept;
	/* A track becomes shorter with a segment alone: the last token is written again. */
	if (from && from == t->n && t->shift + from < there)
		from--;
	if (from == t->n)
		return KVARC_OK;
	const struct kvi_pack_range range = { track, from, t->n, t->shift };
	kvarc_ret ret = kvarc_writer_rewind(appending->w, track, t->shift + from);
	return ret ? ret
	           : kvi_pack_tokens(appending->im, appending->w, &appending->options->writer,
	                             &range);
}

static kvarc_ret write_all(struct appending *appending)
{
	const kvarc_append_options *o = appending->options;
	kvarc_ret ret = appending->wants_checkpoint
	                        ? kvarc_writer_checkpoint(appending->w, NULL, 0, NULL)
	                        : KVARC_OK;
	for (uint32_t i = 0; i < appending->im->n_tracks && !ret; i++)
		ret = put_track(appending, i);
	if (!ret)
		ret = append_items_put(&appending->items, appending->w, error_of(appending));
	return ret ? ret
	           : kvarc_writer_checkpoint(appending->w, o->label, o->time,
	                                     &appending->result.checkpoint);
}

/* Cuts a failed append off the archive, if the sink can truncate. */
static void undo(struct appending *appending)
{
	const kvarc_sink *to = &appending->counted.to;
	if (appending->counted.end && to->truncate && appending->remove_to)
		(void)to->truncate(to->opaque, appending->remove_to);
}

static kvarc_ret extend_archive(struct appending *appending)
{
	kvarc_sink counting = kvi_counted_sink(&appending->counted);
	kvarc_ret ret = kvi_writer_open_behind(&appending->w, &appending->r, &counting,
	                                       &appending->options->writer);
	/* For the same file only the end of the archive is written again. */
	if (!ret && !appending->same)
		ret = write_all(appending);
	if (!ret)
		ret = kvarc_writer_close(&appending->w);
	kvarc_writer_abort(&appending->w);
	if (ret)
		undo(appending);
	appending->result.written_bytes = appending->counted.bytes;
	appending->result.archive_bytes = appending->counted.end;
	return ret;
}

static kvarc_ret continue_archive(struct appending *appending, const kvarc_source *source)
{
	kvarc_ret ret = open_reader(appending, source);
	if (!ret)
		ret = compare_file(appending);
	if (!ret)
		note_state(appending);
	if (!ret && appending->same && appending->remove_to)
		appending->result.archive_bytes = appending->remove_to;
	else if (!ret)
		ret = extend_archive(appending);
	append_items_free(&appending->items);
	kvi_free(&appending->im->alloc, appending->tracks);
	kvarc_reader_close(&appending->r);
	return ret;
}

static kvarc_ret begin_archive(struct appending *appending)
{
	struct kvi_pack_checkpoint c = { appending->options->label, appending->options->time, 0 };
	kvarc_writer_stats stats;
	kvarc_ret ret = kvi_pack_checkpoint(appending->im, &appending->counted.to,
	                                    &appending->options->writer, &c, &stats);
	for (uint32_t i = 0; i < appending->im->n_tracks; i++)
		if (appending->im->tracks[i].n > appending->result.tokens &&
		    kvi_import_counts(appending->im, i))
			appending->result.tokens = appending->im->tracks[i].n;
	if (ret)
		return ret;
	appending->result.checkpoint = c.number;
	appending->result.written_bytes = appending->result.archive_bytes = stats.file_bytes;
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
