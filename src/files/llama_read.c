/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_read.c - llama.cpp slot, session and state files as tracks, areas and tensors */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml_types.h"
#include "import_internal.h"
#include "llama_parse.h"
#include "track_labels.h"
#include "util/list.h"
#include "util/source.h"

/* ==== One track for a memory and its context checkpoints ==== */

/* Tokens of the common track that lie in a section as cells [cell, cell + n). */
struct llama_run {
	int64_t position; /* position of the first token, the others follow */
	uint64_t t0;      /* tokens [t0, t0 + n) of the track */
	size_t section;
	uint32_t cell, n;
};

/* Cells [cell, cell + n) of a section: tokens from `skip` on of a run. */
struct llama_span {
	size_t section, run;
	uint32_t cell, n, skip;
};

/*
 * Checkpoints hold rows of tokens that the slot itself, or another checkpoint, has as
 * well. The common track has each of them once, in order of position; rows of the same
 * position that differ are tokens of their own.
 */
struct llama_shared {
	size_t like;              /* the slot's own section */
	struct llama_run *runs;   /* in order of t0 */
	struct llama_span *spans; /* in order of section and cell */
	size_t n_runs, cap_runs, n_spans, cap_spans;
	uint64_t n_tokens;
};

enum {
	RUNS_MAX = 1024, /* more are not shared, as each is compared with each new one */
	SECTION_RUNS_MAX = 64,
	COMPARE_BYTES = 1 << 16
};

struct sharing {
	struct llama_shared *sh;
	const struct kvi_alloc *alloc;
	struct kvi_scan *s;
	const struct kvi_llama_file *f;
	uint8_t *buffer[2]; /* COMPARE_BYTES each */
	bool full;          /* too many runs */
};

/* Whether two sections have the same layers, types and widths, by rows. */
static bool alike(const struct kvi_llama_file *file, size_t a, size_t b)
{
	const struct kvi_llama_section *x = &file->sections[a], *y = &file->sections[b];
	if (x->kind != KVI_LLAMA_KV || y->kind != KVI_LLAMA_KV || x->blob != y->blob ||
	    x->n_layers != y->n_layers || x->values != y->values ||
	    x->rotation_k != y->rotation_k || x->rotation_v != y->rotation_v)
		return false;
	for (size_t i = 0; i < kvi_llama_section_matrices(x); i++) {
		const struct kvi_llama_matrix *m = &file->matrices[x->first_matrix + i];
		const struct kvi_llama_matrix *n = &file->matrices[y->first_matrix + i];
		if (m->trans || n->trans || m->type != n->type || m->row_bytes != n->row_bytes)
			return false;
	}
	return true;
}

/* Compares bytes of the file. Returns 1: equal, 0: different, -1: reading failed. */
static int compare(struct sharing *sharing, uint64_t a, uint64_t b, uint64_t bytes)
{
	while (bytes) {
		size_t n = bytes < COMPARE_BYTES ? (size_t)bytes : COMPARE_BYTES;
		if (kvi_source_read(sharing->s->src, sharing->buffer[0], n, a) ||
		    kvi_source_read(sharing->s->src, sharing->buffer[1], n, b))
			return -1;
		if (memcmp(sharing->buffer[0], sharing->buffer[1], n))
			return 0;
		a += n;
		b += n;
		bytes -= n;
	}
	return 1;
}

/* Compares the rows of two cells and of the n - 1 behind them in all matrices; as compare. */
static int same_rows(struct sharing *sharing, size_t section_a, uint32_t cell_a, size_t section_b,
                     uint32_t cell_b, uint32_t n)
{
	const struct kvi_llama_section *a = &sharing->f->sections[section_a];
	const struct kvi_llama_section *b = &sharing->f->sections[section_b];
	int ret = 1;
	for (size_t i = 0; i < kvi_llama_section_matrices(a) && ret == 1; i++) {
		const struct kvi_llama_matrix *m = &sharing->f->matrices[a->first_matrix + i];
		const struct kvi_llama_matrix *k = &sharing->f->matrices[b->first_matrix + i];
		ret = compare(sharing, m->at + cell_a * m->row_bytes, k->at + cell_b * k->row_bytes,
		              n * m->row_bytes);
	}
	return ret;
}

static kvarc_ret add_span(struct sharing *sharing, const struct llama_span *span)
{
	struct llama_shared *sh = sharing->sh;
	if (!kvi_array_grow(sharing->alloc, &sh->spans, &sh->cap_spans, sh->n_spans,
	                    sizeof *sh->spans))
		return kvi_alloc_error(sharing->alloc);
	sh->spans[sh->n_spans++] = *span;
	return KVARC_OK;
}

static kvarc_ret add_run(struct sharing *sharing, const struct llama_run *run)
{
	struct llama_shared *sh = sharing->sh;
	sharing->full = sharing->full || sh->n_runs == RUNS_MAX;
	if (sharing->full)
		return KVARC_OK;
	if (!kvi_array_grow(sharing->alloc, &sh->runs, &sh->cap_runs, sh->n_runs, sizeof *sh->runs))
		return kvi_alloc_error(sharing->alloc);
	sh->runs[sh->n_runs] = *run;
	const struct llama_span span = { run->section, sh->n_runs++, run->cell, run->n, 0 };
	return add_span(sharing, &span);
}

/* The run that has a position, or else n_runs; *n becomes how many positions from there
 * on all are in it, or in none. */
static size_t find_run(const struct llama_shared *sh, int64_t position, uint32_t *n)
{
	size_t found = sh->n_runs;
	for (size_t i = 0; i < sh->n_runs; i++) {
		const struct llama_run *r = &sh->runs[i];
		int64_t end = r->position + r->n;
		if (position >= r->position && position < end) {
			if (end - position < *n)
				*n = (uint32_t)(end - position);
			return i;
		}
		if (r->position > position && r->position - position < *n)
			*n = (uint32_t)(r->position - position);
	}
	return found;
}

/* Cells whose positions follow each other: shared where they can be, else new. */
static kvarc_ret add_cells(struct sharing *sharing, struct llama_run rest)
{
	kvarc_ret ret = KVARC_OK;
	while (rest.n && !ret && !sharing->full) {
		struct llama_run part = rest;
		size_t i = find_run(sharing->sh, rest.position, &part.n);
		int same = 0;
		if (i < sharing->sh->n_runs) {
			const struct llama_run *r = &sharing->sh->runs[i];
			uint32_t skip = (uint32_t)(rest.position - r->position);
			const struct llama_span span = { rest.section, i, rest.cell, part.n, skip };
			same = same_rows(sharing, r->section, r->cell + skip, rest.section,
			                 rest.cell, part.n);
			if (same < 0)
				return KVARC_IO;
			if (same)
				ret = add_span(sharing, &span);
		}
		if (!same)
			ret = add_run(sharing, &part);
		rest.cell += part.n;
		rest.position += part.n;
		rest.n -= part.n;
	}
	return ret;
}

static kvarc_ret add_shared_section(struct sharing *sharing, size_t section)
{
	const struct kvi_llama_section *k = &sharing->f->sections[section];
	struct llama_run run = { .section = section };
	unsigned runs = 0;
	kvarc_ret ret = KVARC_OK;
	uint64_t at = k->cells_at;
	for (uint32_t i = 0; i <= k->n_cells && !ret && !sharing->full; i++) {
		int32_t position = -1;
		kvi_scan_seek(sharing->s, at); /* comparing moves the scan */
		if (i < k->n_cells && !kvi_llama_cell(sharing->s, &sharing->f->grammar, &position))
			return KVARC_IO; /* the file changed since the parse */
		at = sharing->s->at;
		if (run.n && i < k->n_cells && run.position + run.n == position) {
			run.n++;
			continue;
		}
		if (run.n) {
			sharing->full = sharing->full || ++runs > SECTION_RUNS_MAX;
			ret = add_cells(sharing, run);
		}
		run.position = position;
		run.cell = i;
		run.n = 1;
	}
	return ret;
}

struct ordered {
	struct llama_run run;
	size_t was;
};

static int by_position(const void *a, const void *b)
{
	const struct ordered *x = a, *y = b;
	if (x->run.position != y->run.position)
		return x->run.position < y->run.position ? -1 : 1;
	return x->was < y->was ? -1 : x->was > y->was;
}

/* Puts the runs in order of position and numbers their tokens. */
static kvarc_ret order_runs(struct sharing *sharing)
{
	struct llama_shared *sh = sharing->sh;
	struct ordered *o = kvi_array(sharing->alloc, sh->n_runs, sizeof *o);
	size_t *now = kvi_array(sharing->alloc, sh->n_runs, sizeof *now);
	kvarc_ret ret = o && now ? KVARC_OK : kvi_alloc_error(sharing->alloc);
	for (size_t i = 0; i < sh->n_runs && !ret; i++)
		o[i] = (struct ordered){ sh->runs[i], i };
	if (!ret)
		qsort(o, sh->n_runs, sizeof *o, by_position);
	for (size_t i = 0; i < sh->n_runs && !ret; i++) {
		now[o[i].was] = i;
		sh->runs[i] = o[i].run;
		sh->runs[i].t0 = sh->n_tokens;
		sh->n_tokens += sh->runs[i].n;
	}
	for (size_t i = 0; i < sh->n_spans && !ret; i++)
		sh->spans[i].run = now[sh->spans[i].run];
	kvi_free(sharing->alloc, o);
	kvi_free(sharing->alloc, now);
	return ret;
}

static kvarc_ret share_all(struct sharing *sharing, size_t like)
{
	kvarc_ret ret = add_shared_section(sharing, like);
	for (size_t i = 0; i < sharing->f->n_sections && !ret && !sharing->full; i++)
		if (sharing->f->sections[i].checkpoint && alike(sharing->f, like, i))
			ret = add_shared_section(sharing, i);
	return ret || sharing->full ? ret : order_runs(sharing);
}

static void llama_shared_free(struct llama_shared *sh, const struct kvi_alloc *alloc);

/*
 * Finds what section `like` and the checkpoints of its memory have in common by
 * comparing their bytes in the source. OK with n_spans 0: nothing to be shared, for
 * example because values are channel-major. On OK free with llama_shared_free.
 * Returns OK, IO, MEM, MEMLIMIT.
 */
static kvarc_ret llama_share(struct llama_shared *sh, const struct kvi_alloc *alloc,
                             struct kvi_scan *scan, const struct kvi_llama_file *file, size_t like)
{
	struct sharing x = { .sh = sh, .alloc = alloc, .s = scan, .f = file };
	bool any = false;
	*sh = (struct llama_shared){ .like = like };
	for (size_t i = 0; i < file->n_sections; i++)
		any = any || (file->sections[i].checkpoint && alike(file, like, i));
	if (!any || !alike(file, like, like))
		return KVARC_OK;
	x.buffer[0] = kvi_malloc(alloc, COMPARE_BYTES);
	x.buffer[1] = kvi_malloc(alloc, COMPARE_BYTES);
	kvarc_ret ret = x.buffer[0] && x.buffer[1] ? share_all(&x, like) : kvi_alloc_error(alloc);
	kvi_free(alloc, x.buffer[0]);
	kvi_free(alloc, x.buffer[1]);
	if (ret || x.full)
		llama_shared_free(sh, alloc);
	return ret;
}

/* Frees what llama_share allocated. */
static void llama_shared_free(struct llama_shared *sh, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, sh->runs);
	kvi_free(alloc, sh->spans);
	*sh = (struct llama_shared){ .like = sh->like };
}

/* Whether a section shares the common track. */
static bool llama_shares(const struct llama_shared *sh, size_t section)
{
	for (size_t i = 0; i < sh->n_spans; i++)
		if (sh->spans[i].section == section)
			return true;
	return false;
}

/* ==== Llama.cpp slot and session files as tracks, areas and tensors ==== */

/* The position runs of a section's cells. */
static kvarc_ret read_positions(kvarc_import *im, struct kvi_imp_track *track,
                                struct kvi_scan *scan, const struct kvi_llama_file *file,
                                const struct kvi_llama_section *section)
{
	kvarc_ret ret = KVARC_OK;
	kvi_scan_seek(scan, section->cells_at);
	for (uint32_t i = 0; i < section->n_cells && !ret; i++) {
		int32_t position;
		if (!kvi_llama_cell(scan, &file->grammar, &position))
			return KVARC_IO; /* the file changed since the parse */
		ret = kvi_import_position(im, track, position);
	}
	return ret;
}

/* Token p of the list is the one at position p, where that is certain: one
 * sequence, positions in order. */
static void find_ids(struct kvi_imp_track *track, uint32_t item, const struct kvi_llama_file *file)
{
	if (!file->tokens_at || track->n_runs != 1)
		return;
	uint64_t first = (uint64_t)track->runs[0].first;
	if (first + track->n > file->n_tokens)
		return;
	track->has_ids = true;
	track->ids_item = item;
	track->ids_at = file->tokens_at + 4 * first;
	track->ids_bytes = 4;
}

/* Number of heads of a key or value of this width, by the metadata of the model; 1: not known. */
static uint32_t model_heads(const struct kvi_gguf *gguf, uint32_t width, bool value)
{
	uint32_t channels = value ? gguf->value_channels : gguf->key_channels;
	if (!gguf->present || channels == 0 || width % channels)
		return 1;
	return width / channels;
}

/* The tensors of the last area: one a plane. */
static kvarc_ret add_planes(kvarc_import *im, const struct kvi_llama_matrix *matrix,
                            uint32_t n_cells, const kvarc_tensor *like, const char *name)
{
	const struct kvi_ggml_type *type = kvi_ggml_type(matrix->type);
	const struct kvi_ggml_rows rows = { matrix->width, n_cells, matrix->row_bytes,
		                            matrix->trans };
	const uint8_t payload = kvi_ggml_payload(type);
	const uint32_t whole = (uint32_t)im->n_tensors + payload + 1;
	for (uint8_t i = 0; i < type->n_planes; i++) {
		static const char *const suffix[] = { "", ".scale", ".minimum", ".payload",
			                              ".high_bits" };
		const struct kvi_ggml_plane *p = &type->planes[i];
		struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
		if (!t)
			return kvi_import_full(im);
		uint32_t track = t->pub.track;
		t->pub = *like;
		t->pub.track = track;
		t->pub.role = p->role;
		t->pub.dtype = p->dtype;
		if (p->role != KVARC_WHOLE)
			t->pub.source_type = (uint16_t)(0x100 + matrix->type);
		if (i != payload && type->planes[payload].elems % p->elems == 0) {
			t->pub.belongs_to = whole;
			t->pub.group = type->planes[payload].elems / p->elems;
		}
		kvi_import_shape(&t->pub, (uint64_t)matrix->width / type->block_elems * p->elems,
		                 like->heads);
		snprintf(t->name, sizeof t->name, "%s%s", name, suffix[p->role]);
		t->at = kvi_ggml_view(type, p, &rows);
	}
	return KVARC_OK;
}

struct llama {
	kvarc_import *im;
	uint32_t item;
	struct kvi_scan *s;
	const struct kvi_llama_file *f;
	struct llama_shared shared;
};

/* Adds matrix i of the sections of the common track: an area for each span. */
static kvarc_ret add_shared_matrix(struct llama *llama, uint32_t track, size_t i,
                                   const kvarc_tensor *like, const char *name)
{
	const struct kvi_llama_file *f = llama->f;
	for (size_t k = 0; k < llama->shared.n_spans; k++) {
		const struct llama_span *p = &llama->shared.spans[k];
		const struct kvi_llama_section *section = &f->sections[p->section];
		const struct kvi_llama_matrix *m = &f->matrices[section->first_matrix + i];
		uint64_t at = m->at + p->cell * m->row_bytes;
		uint64_t bytes = p->n * m->row_bytes;
		uint64_t t0 = llama->shared.runs[p->run].t0 + p->skip;
		struct kvi_imp_area *area = k ? kvi_import_add_part(llama->im, at, bytes, t0, p->n)
		                              : kvi_import_add_area(llama->im, llama->item, track,
		                                                    at, bytes);
		if (!area)
			return kvi_import_full(llama->im);
		area->t0 = t0;
		area->n_tokens = p->n;
		kvarc_ret ret = k ? KVARC_OK : add_planes(llama->im, m, 0, like, name);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret add_matrix_tensor(struct llama *llama, uint32_t track,
                                   const struct kvi_llama_section *section, size_t i,
                                   const kvarc_tensor *like, const char *name)
{
	const struct kvi_llama_matrix *m = &llama->f->matrices[section->first_matrix + i];
	if (section == &llama->f->sections[llama->shared.like] && llama->shared.n_spans)
		return add_shared_matrix(llama, track, i, like, name);
	if (!kvi_import_add_area(llama->im, llama->item, track, m->at, m->bytes))
		return kvi_import_full(llama->im);
	return add_planes(llama->im, m, section->n_cells, like, name);
}

/* Keys alone behind another memory: those of an indexer, but for the window of a model with an
 * indexer before it, and for the window of DeepSeek V4. */
static bool is_indexer(const struct kvi_llama_file *file, const struct kvi_llama_section *section)
{
	const struct kvi_llama_memories *m = &file->memories;
	return section->blob && !section->values && !m->compressed &&
	       (m->n_kv < 3 || !section->held);
}

static uint8_t kind_of(const struct kvi_llama_file *file, const struct kvi_llama_section *section,
                       bool second)
{
	if (second)
		return KVARC_VALUE;
	return section->values             ? KVARC_KEY
	       : is_indexer(file, section) ? KVARC_INDEXER_KEY
	                                   : KVARC_MLA_LATENT;
}

/* Layers are counted in file order: the file does not number them. */
static kvarc_ret add_layers(struct llama *llama, uint32_t track,
                            const struct kvi_llama_section *section, uint32_t layer0)
{
	for (uint32_t i = 0; i < kvi_llama_section_matrices(section); i++) {
		bool second = section->values && i % 2;
		uint32_t layer = section->values ? i / 2 : i;
		uint32_t matrix = second ? section->n_layers + layer : layer;
		uint32_t rotation = second ? section->rotation_v : section->rotation_k;
		char name[40];
		kvarc_tensor like = {
			.layer = layer0 + layer,
			.kind = kind_of(llama->f, section, second),
			.flags = (uint8_t)((second ? 0 : KVARC_TENSOR_POST_ROPE) |
			                   (rotation ? KVARC_TENSOR_HADAMARD : 0)),
			.heads = model_heads(
				&llama->im->gguf,
				llama->f->matrices[section->first_matrix + matrix].width, second),
		};
		snprintf(name, sizeof name, "layers.%u.%s", like.layer, kvarc_kind_name(like.kind));
		kvarc_ret ret = add_matrix_tensor(llama, track, section, matrix, &like, name);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static void label_track(struct kvi_imp_track *track, const struct kvi_llama_file *file,
                        const struct kvi_llama_section *section)
{
	char checkpoint[32] = "";
	const bool indexer = is_indexer(file, section);
	track->pub.kind = indexer                                ? KVARC_TRACK_OTHER
	                  : section->blob || section->checkpoint ? KVARC_TRACK_WINDOW
	                                                         : KVARC_TRACK_SELF;
	if (section->checkpoint)
		snprintf(checkpoint, sizeof checkpoint, KVI_CHECKPOINT_LABEL "%u",
		         section->checkpoint - 1);
	snprintf(track->label, sizeof track->label, "stream %u%s%s", section->stream,
	         !section->blob ? ""
	         : indexer      ? " indexer"
	                        : " window",
	         checkpoint);
}

/* Positions and ids of the common track. */
static kvarc_ret shared_positions(struct llama *llama, struct kvi_imp_track *track)
{
	const struct llama_shared *sh = &llama->shared;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < sh->n_runs && !ret; i++)
		for (uint32_t k = 0; k < sh->runs[i].n && !ret; k++)
			ret = kvi_import_position(llama->im, track, sh->runs[i].position + k);
	return ret;
}

/* The track of states, or of rows that are none of single tokens; NULL: as kvi_import_add_track. */
static struct kvi_imp_track *add_rows_track(struct llama *llama,
                                            const struct kvi_llama_section *section, uint64_t rows,
                                            uint8_t kind, const char *label)
{
	struct kvi_imp_track *t = kvi_import_add_track(llama->im, rows);
	if (!t)
		return NULL;
	t->pub.kind = kind;
	if (section->checkpoint)
		snprintf(t->label, sizeof t->label, "%s" KVI_CHECKPOINT_LABEL "%u", label,
		         section->checkpoint - 1);
	else
		snprintf(t->label, sizeof t->label, "%s", label);
	return t;
}

/* The tensors of a matrix on the last track. */
static kvarc_ret add_rows(struct llama *llama, const struct kvi_llama_matrix *rows, uint32_t layer,
                          uint8_t kind, const char *name)
{
	char text[64];
	const kvarc_tensor like = { .layer = layer, .heads = 1, .kind = kind };
	snprintf(text, sizeof text, "layers.%u.%s", layer, name);
	if (!kvi_import_add_area(llama->im, llama->item, (uint32_t)llama->im->n_tracks - 1,
	                         rows->at, rows->bytes))
		return kvi_import_full(llama->im);
	return add_planes(llama->im, rows, 0, &like, text);
}

/*
 * Recurrent states have no token axis. One row of each would say too little of its
 * elements, so they are cut into rows of STATE_CHANNELS, which stand as tokens. n matrices from
 * number `first` of the section on.
 */
static kvarc_ret add_states(struct llama *llama, const struct kvi_llama_section *section,
                            size_t first, uint32_t n, uint8_t kind, const char *name)
{
	enum { STATE_CHANNELS = 128 };
	const struct kvi_llama_matrix *m = &llama->f->matrices[section->first_matrix + first];
	uint32_t channels = STATE_CHANNELS;
	const struct kvi_ggml_type *type = kvi_ggml_type(m->type);
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < n; i++)
		if (m[i].width == 0 || m[i].width != m->width || m[i].type != m->type)
			return KVARC_OK; /* literals, then */
	while (m->width % channels)
		channels /= 2;
	if (!add_rows_track(llama, section, (uint64_t)section->n_cells * (m->width / channels),
	                    KVARC_TRACK_STATE, name))
		return kvi_import_full(llama->im);
	for (uint32_t i = 0; i < n && !ret; i++) {
		struct kvi_llama_matrix row = m[i];
		row.width = channels;
		row.row_bytes = (uint64_t)channels * type->block_bytes;
		ret = add_rows(llama, &row, i, kind, name);
	}
	return ret;
}

/* Tokens of a row of keys number `blob` of DeepSeek V4, by its compressor; 0: not known. */
static uint32_t tokens_of_row(const struct kvi_llama_file *file, uint32_t blob)
{
	for (size_t i = 0; i < file->n_sections; i++)
		if (file->sections[i].kind == KVI_LLAMA_COMPRESSOR &&
		    file->sections[i].blob == blob)
			return file->sections[i].ratio;
	return 0;
}

/* Keys of blocks of tokens, or the rows of a compressor and their scores. */
static kvarc_ret add_compressed(struct llama *llama, const struct kvi_llama_section *section)
{
	enum { INDEXER = 2 }; /* number of its keys */
	const bool keys = section->kind == KVI_LLAMA_COMPRESSED;
	const bool indexer = section->blob == INDEXER;
	const uint8_t kind = !keys     ? KVARC_RECURRENT_STATE
	                     : indexer ? KVARC_INDEXER_KEY
	                               : KVARC_MLA_LATENT;
	const struct kvi_llama_matrix *m = &llama->f->matrices[section->first_matrix];
	char label[40];
	kvarc_ret ret = KVARC_OK;
	snprintf(label, sizeof label, "%s%s of %u", indexer ? "indexer " : "",
	         keys ? "blocks" : "compressor", tokens_of_row(llama->f, section->blob));
	if (!add_rows_track(llama, section, section->n_cells,
	                    keys ? KVARC_TRACK_OTHER : KVARC_TRACK_STATE, label))
		return kvi_import_full(llama->im);
	for (uint32_t i = 0; i < section->n_layers && !ret; i++) {
		const struct kvi_llama_matrix *row = keys ? &m[i] : &m[2 * (size_t)i];
		ret = add_rows(llama, row, i, kind, kvarc_kind_name(kind));
		if (!ret && !keys)
			ret = add_rows(llama, row + 1, i, KVARC_CONV_STATE, "compressor-score");
	}
	return ret;
}

/* The tensors of a section that is no KV memory. */
static kvarc_ret add_other_section(struct llama *llama, const struct kvi_llama_section *section)
{
	const uint32_t n = section->n_layers;
	if (section->kind == KVI_LLAMA_HISTORY)
		return add_states(llama, section, 0, n, KVARC_CONV_STATE, "ngram-history");
	if (section->kind != KVI_LLAMA_STATES)
		return add_compressed(llama, section);
	kvarc_ret ret = add_states(llama, section, 0, n, KVARC_CONV_STATE,
	                           kvarc_kind_name(KVARC_CONV_STATE));
	return ret ? ret
	           : add_states(llama, section, n, n, KVARC_RECURRENT_STATE,
	                        kvarc_kind_name(KVARC_RECURRENT_STATE));
}

static kvarc_ret add_section_tensors(struct llama *llama, size_t index)
{
	const struct kvi_llama_file *f = llama->f;
	const struct kvi_llama_section *k = &f->sections[index];
	bool common = llama_shares(&llama->shared, index);
	uint32_t of_blob = 0, layer0 = 0;
	if (k->kind != KVI_LLAMA_KV)
		return add_other_section(llama, k);
	if (common && index != llama->shared.like)
		return KVARC_OK;
	for (size_t i = 0; i < f->n_sections; i++)
		of_blob += f->sections[i].blob == k->blob && f->sections[i].kind == KVI_LLAMA_KV &&
		           !f->sections[i].checkpoint;
	/* A window's layers are others than those of the full memory. */
	if (k->blob && f->sections[0].blob != k->blob && !is_indexer(f, k))
		layer0 = f->sections[0].n_layers;
	struct kvi_imp_track *t = kvi_import_add_track(llama->im, common ? llama->shared.n_tokens
	                                                                 : k->n_cells);
	if (!t)
		return kvi_import_full(llama->im);
	label_track(t, f, k);
	uint32_t track = (uint32_t)llama->im->n_tracks - 1;
	kvarc_ret ret = common ? shared_positions(llama, t)
	                       : read_positions(llama->im, t, llama->s, f, k);
	if (ret)
		return ret;
	if (of_blob == 1)
		find_ids(t, llama->item, f);
	return add_layers(llama, track, k, layer0);
}

/* The last of the slot's own sections is the one that checkpoints hold parts of. */
static kvarc_ret add_sections(struct llama *llama)
{
	size_t like = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < llama->f->n_sections; i++)
		if (!llama->f->sections[i].checkpoint &&
		    llama->f->sections[i].kind == KVI_LLAMA_KV && llama->f->sections[i].held)
			like = i;
	if (llama->f->n_sections && llama->f->n_checkpoints)
		ret = llama_share(&llama->shared, &llama->im->alloc, llama->s, llama->f, like);
	for (size_t i = 0; i < llama->f->n_sections && !ret; i++)
		ret = add_section_tensors(llama, i);
	llama_shared_free(&llama->shared, &llama->im->alloc);
	return ret;
}

static void describe(kvarc_import *im, const struct kvi_llama_file *file, const char *what)
{
	bool trans = false;
	for (size_t i = 0; i < file->n_matrices; i++)
		trans = trans || file->matrices[i].trans;
	int n = snprintf(im->format, sizeof im->format, "llama.cpp %s file, version %u", what,
	                 file->grammar.version);
	if (file->n_checkpoints)
		snprintf(im->format + n, sizeof im->format - (size_t)n,
		         ", with %zu context checkpoint%s", file->n_checkpoints,
		         file->n_checkpoints == 1 ? "" : "s");
	snprintf(im->layout, sizeof im->layout, "%s",
	         trans ? "token, head, channel; values: channel, token" : "token, head, channel");
	im->engine = "llama.cpp";
	im->streams = file->n_sections ? file->sections[0].n_streams : 0;
}

kvarc_ret kvi_import_llama_state(kvarc_import *im, uint32_t item, uint64_t at, uint64_t ids_at,
                                 uint32_t n_ids)
{
	struct kvi_llama_file f;
	const char *why = "";
	struct kvi_scan *s = kvi_scan_open(&im->alloc, &im->items[item].src);
	if (!s)
		return kvi_import_full(im);
	kvarc_ret ret = kvi_llama_parse_state(&f, &im->alloc, s, at, &why);
	if (!ret) {
		f.tokens_at = ids_at;
		f.n_tokens = n_ids;
		ret = add_sections(&(struct llama){ im, item, s, &f, { 0 } });
		if (!ret)
			describe(im, &f, "sequence");
		kvi_llama_free(&f, &im->alloc);
	}
	kvi_free(&im->alloc, s);
	return ret;
}

kvarc_ret kvi_import_llama(kvarc_import *im, uint32_t item)
{
	struct kvi_imp_item *it = &im->items[item];
	struct kvi_llama_file f;
	const char *why = "";
	struct kvi_scan *s = kvi_scan_open(&im->alloc, &it->src);
	if (!s)
		return kvi_import_full(im);
	kvarc_ret ret = kvi_llama_parse(&f, &im->alloc, s, &why);
	const char *what = f.grammar.session ? "session" : "sequence";
	if (ret == KVARC_END && f.grammar.version)
		kvi_import_note(im, "llama.cpp %s file, version %u: %s; kept as an opaque file",
		                what, f.grammar.version, why);
	if (!ret) {
		it->kind = f.grammar.session ? KVI_ITEM_LLAMA_SESSION : KVI_ITEM_LLAMA_SEQ;
		ret = add_sections(&(struct llama){ im, item, s, &f, { 0 } });
		if (!ret)
			describe(im, &f, what);
		kvi_llama_free(&f, &im->alloc);
	}
	kvi_free(&im->alloc, s);
	return ret;
}
