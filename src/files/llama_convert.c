/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_convert.c - a llama.cpp sequence file as another version of the format writes it */
#include "llama_convert.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ggml_types.h"
#include "llama_parse.h"
#include "util/bytes.h"
#include "util/list.h"

/*
 * Version 3 has the token of a cell behind its position in a picture, for models with n-gram
 * histories; version 4 the sizes of the rotations of keys and values behind the number of layers.
 * A token list of version 2 is plain: servers that pack it write 3 or 4. Whether quantised elements
 * are rotated is in files of version 4 alone, so they do not go from one version to another.
 */
enum {
	EXTENSION_OLD = 8,  /* bytes of a position in a picture */
	EXTENSION_NEW = 12, /* and of a token */
	TOKENS_SINCE = 3,   /* version with tokens in cells */
	ROTATION_SINCE = 4, /* version with sizes of rotations */
	ROTATION_BYTES = 8,
	MATRIX_HEAD = 12,
	TOKENS_AT = 12, /* offset of the token list */
	EDIT_BYTES = 8
};

/* Bytes [at, at + remove) of the file become n others. All of them are literal. */
struct llama_edit {
	uint64_t at;
	uint32_t remove, n;
	uint8_t bytes[EDIT_BYTES];
};

struct llama_converting {
	const struct kvi_alloc *alloc;
	struct kvi_scan *s;
	struct kvi_llama_file f;
	uint32_t version;      /* of the new file */
	struct kvi_list edits; /* struct llama_edit */
	const char *why;
};

static kvarc_ret not_converted(struct llama_converting *converting, const char *why)
{
	converting->why = why;
	return KVARC_END;
}

/* Adds an edit whose new bytes are n of the number `value`, little-endian. */
static kvarc_ret add_edit(struct llama_converting *converting, uint64_t at, uint32_t remove,
                          uint32_t n, uint64_t value)
{
	struct llama_edit *e = kvi_list_add(&converting->edits, converting->alloc, sizeof *e);
	if (!e)
		return kvi_alloc_error(converting->alloc);
	*e = (struct llama_edit){ .at = at, .remove = remove, .n = n };
	kvi_store64(e->bytes, value);
	return KVARC_OK;
}

/* ----- what cannot be converted ---------------------------------------- */

/* Whether the elements of a section are of a type that engines rotate. */
static bool is_quantised(const struct kvi_llama_file *file, const struct kvi_llama_section *section)
{
	for (size_t i = 0; i < kvi_llama_section_matrices(section); i++) {
		const struct kvi_llama_matrix *m = &file->matrices[section->first_matrix + i];
		const struct kvi_ggml_type *type = kvi_ggml_type(m->type);
		if (!type || type->block_elems > 1)
			return true;
	}
	return false;
}

static kvarc_ret check_section(struct llama_converting *converting,
                               const struct kvi_llama_section *section)
{
	const struct kvi_llama_file *f = &converting->f;
	const uint32_t from = f->grammar.version;
	if (is_quantised(f, section))
		return not_converted(converting, "its elements are quantised, and versions 2 and 3 "
		                                 "do not say whether they are rotated");
	if (section->kind == KVI_LLAMA_HISTORY && converting->version < TOKENS_SINCE)
		return not_converted(converting, "its model has an n-gram history, which "
		                                 "version 2 does not know");
	if (section->rotation_k || section->rotation_v)
		return not_converted(converting, "its elements are rotated, which versions 2 and 3 "
		                                 "do not say");
	/* engines rotate the keys of an indexer beside latents, whatever their type is */
	if (from < ROTATION_SINCE && converting->version >= ROTATION_SINCE &&
	    section->kind == KVI_LLAMA_KV && section->blob && !section->values &&
	    !f->sections[0].values)
		return not_converted(converting, "versions 2 and 3 do not say whether the keys of "
		                                 "its indexer are rotated");
	return KVARC_OK;
}

static kvarc_ret check_checkpoints(struct llama_converting *converting)
{
	enum { NO_OTHERS = 16 }; /* two sizes, both 0 */
	const struct kvi_llama_file *f = &converting->f;
	if (f->appendix_at && !f->n_checkpoints)
		return not_converted(converting, "what follows its memory is not understood");
	for (size_t i = 0; i < f->n_checkpoints; i++) {
		const struct kvi_llama_checkpoint *c = &f->checkpoints[i];
		if (!c->understood || c->end != c->state_at + c->state_bytes + NO_OTHERS)
			return not_converted(converting,
			                     "one of its context checkpoints is not understood");
	}
	return KVARC_OK;
}

static kvarc_ret check_file(struct llama_converting *converting)
{
	const struct kvi_llama_file *f = &converting->f;
	const uint32_t from = f->grammar.version, to = converting->version;
	kvarc_ret ret = KVARC_OK;
	if (f->grammar.session)
		return not_converted(converting, "it is a session file, no slot");
	if (!f->tokens_at && to < TOKENS_SINCE)
		return not_converted(converting, "its tokens are not plain text, for which version "
		                                 "2 has no list");
	if (f->memories.compressed && (from < ROTATION_SINCE) != (to < ROTATION_SINCE))
		return not_converted(converting, "it is of a memory that only the engine converts");
	if (f->memories.empty && !f->grammar.streams)
		return not_converted(converting, "one of its memories is empty");
	for (size_t i = 0; i < f->n_sections && !ret; i++)
		ret = check_section(converting, &f->sections[i]);
	return ret ? ret : check_checkpoints(converting);
}

/* ----- edits ------------------------------------------------------------ */

/* The version, and the token list as version 2 has it. */
static kvarc_ret edit_header(struct llama_converting *converting)
{
	enum { MARK_BYTES = 12, MEDIA_BYTES = 4 };
	const struct kvi_llama_file *f = &converting->f;
	kvarc_ret ret = add_edit(converting, 4, 4, 4, converting->version);
	if (ret || converting->version >= TOKENS_SINCE || f->tokens_at == TOKENS_AT)
		return ret;
	ret = add_edit(converting, TOKENS_AT - 4, 4 + MARK_BYTES, 4, f->n_tokens);
	return ret ? ret
	           : add_edit(converting, f->tokens_at + 4 * (uint64_t)f->n_tokens,
	                      (uint32_t)(f->memory_at - f->tokens_at - 4 * (uint64_t)f->n_tokens),
	                      0, 0);
}

/* The token of each cell comes, as that of a picture does, which is none; or goes. */
static kvarc_ret edit_cells(struct llama_converting *converting,
                            const struct kvi_llama_section *section)
{
	enum { EXTENSION_AT = 8, TOKEN_BYTES = 4 };
	const bool comes = converting->f.grammar.ext_bytes == EXTENSION_OLD;
	struct kvi_scan *s = converting->s;
	kvarc_ret ret = KVARC_OK;
	kvi_scan_seek(s, section->cells_at);
	for (uint32_t i = 0; i < section->n_cells && !ret; i++) {
		const uint64_t at = s->at;
		int32_t position;
		kvi_scan_skip(s, EXTENSION_AT);
		const bool none = kvi_scan64(s) == 0;
		kvi_scan_seek(s, at);
		if (!kvi_llama_cell(s, &converting->f.grammar, &position))
			return KVARC_IO;
		if (!comes && none && position)
			return not_converted(converting, "its cells name tokens, which version 2 "
			                                 "has no bytes for");
		ret = add_edit(converting, at + EXTENSION_AT + EXTENSION_OLD,
		               comes ? 0 : TOKEN_BYTES, comes ? TOKEN_BYTES : 0, UINT32_MAX);
	}
	return ret;
}

static kvarc_ret edit_section(struct llama_converting *converting,
                              const struct kvi_llama_section *section)
{
	const struct kvi_llama_file *f = &converting->f;
	const uint32_t from = f->grammar.version, to = converting->version;
	const uint64_t first = f->matrices[section->first_matrix].at - MATRIX_HEAD;
	kvarc_ret ret = KVARC_OK;
	if (section->kind != KVI_LLAMA_KV)
		return KVARC_OK;
	if (!f->grammar.streams)
		ret = add_edit(converting, section->cells_at - 4, 0, 4, 1);
	if (!ret && f->grammar.ext_bytes && (from < TOKENS_SINCE) != (to < TOKENS_SINCE))
		ret = edit_cells(converting, section);
	if (!ret && from < ROTATION_SINCE && to >= ROTATION_SINCE)
		ret = add_edit(converting, first, 0, ROTATION_BYTES, 0);
	if (!ret && from >= ROTATION_SINCE && to < ROTATION_SINCE)
		ret = add_edit(converting, first - ROTATION_BYTES, ROTATION_BYTES, 0, 0);
	return ret;
}

static int by_offset(const void *a, const void *b)
{
	const struct llama_edit *x = a, *y = b;
	return x->at < y->at ? -1 : x->at > y->at;
}

static const struct llama_edit *edit_at(const struct llama_converting *converting, size_t i)
{
	return (const struct llama_edit *)converting->edits.p + i;
}

/* The sizes of the states of checkpoints, in which there are edits. */
static kvarc_ret edit_sizes(struct llama_converting *converting)
{
	enum { SIZE_BYTES = 8 };
	const struct kvi_llama_file *f = &converting->f;
	const size_t n = converting->edits.n;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < f->n_checkpoints && !ret; i++) {
		const struct kvi_llama_checkpoint *c = &f->checkpoints[i];
		uint64_t bytes = c->state_bytes;
		for (size_t k = 0; k < n; k++) {
			const struct llama_edit *e = edit_at(converting, k);
			if (e->at >= c->state_at && e->at < c->state_at + c->state_bytes)
				bytes += (uint64_t)e->n - e->remove;
		}
		ret = add_edit(converting, c->state_at - SIZE_BYTES, SIZE_BYTES, SIZE_BYTES, bytes);
	}
	return ret;
}

static kvarc_ret find_edits(struct llama_converting *converting)
{
	kvarc_ret ret = edit_header(converting);
	for (size_t i = 0; i < converting->f.n_sections && !ret; i++)
		ret = edit_section(converting, &converting->f.sections[i]);
	if (!ret)
		ret = edit_sizes(converting);
	if (!ret)
		qsort(converting->edits.p, converting->edits.n, sizeof(struct llama_edit),
		      by_offset);
	return ret;
}

/* ----- the new file ----------------------------------------------------- */

/* The piece behind those from number i on that are no areas; their bytes follow each other. */
static size_t literal_end(const struct kvi_llama_item *it, size_t i)
{
	while (i < it->plan->n_pieces && it->plan->pieces[i].type != KVI_PIECE_AREA)
		i++;
	return i;
}

/* Adds bytes of the item outside of areas, from piece number i up to `end`, edited. *next: the
 * first edit that lies in them or behind. False: an edit goes beyond them. */
static bool put_edited(const struct llama_converting *converting, const struct kvi_llama_item *it,
                       size_t i, size_t end, struct kvi_out *out, size_t *next)
{
	const uint64_t begin = it->starts[i], behind = it->starts[end];
	const uint8_t *p = it->kept + it->kept_at[i];
	uint64_t at = begin;
	for (; *next < converting->edits.n && edit_at(converting, *next)->at < behind; ++*next) {
		const struct llama_edit *e = edit_at(converting, *next);
		if (e->at < at || e->remove > behind - e->at)
			return false;
		kvi_put_bytes(out, p + (at - begin), (size_t)(e->at - at));
		kvi_put_bytes(out, e->bytes, e->n);
		at = e->at + e->remove;
	}
	kvi_put_bytes(out, p + (at - begin), (size_t)(behind - at));
	return true;
}

static kvarc_ret copy_views(const struct kvi_alloc *alloc, struct kvi_piece *to,
                            const struct kvi_piece *from)
{
	to->views = kvi_array(alloc, from->n_views, sizeof *to->views);
	if (!to->views)
		return kvi_alloc_error(alloc);
	memcpy(to->views, from->views, from->n_views * sizeof *to->views);
	return KVARC_OK;
}

/* The plan of the new file and its literal bytes. */
static kvarc_ret make_plan(struct llama_converting *converting, const struct kvi_llama_item *it,
                           struct kvi_restore *plan, struct kvi_out *out)
{
	const size_t n = it->plan->n_pieces;
	size_t next = 0;
	kvarc_ret ret = KVARC_OK;
	plan->kind = it->plan->kind;
	plan->pieces = kvi_calloc(converting->alloc, n + 1, sizeof *plan->pieces);
	if (!plan->pieces)
		return kvi_alloc_error(converting->alloc);
	for (size_t i = 0, end; i < n && !ret; i = end) {
		const struct kvi_piece *from = &it->plan->pieces[i];
		struct kvi_piece *to = &plan->pieces[plan->n_pieces++];
		const size_t before = out->n;
		end = literal_end(it, i);
		if (end > i) {
			if (!put_edited(converting, it, i, end, out, &next))
				ret = not_converted(converting,
				                    "its parts are not where they were packed");
			*to = (struct kvi_piece){ .type = KVI_PIECE_LITERAL,
				                  .bytes = out->n - before };
		} else {
			end = i + 1;
			*to = *from;
			ret = copy_views(converting->alloc, to, from);
		}
		plan->file_bytes += to->bytes;
	}
	if (!ret && next < converting->edits.n)
		ret = not_converted(converting, "its parts are not where they were packed");
	return ret || !out->failed ? ret : kvi_alloc_error(converting->alloc);
}

/* Puts the new file in place of the item's. */
static kvarc_ret replace(struct llama_converting *converting, struct kvi_llama_item *it,
                         kvarc_reader *r)
{
	struct kvi_restore plan = { 0 };
	struct kvi_llama_item made = { 0 };
	struct kvi_out out;
	kvi_out_init(&out, converting->alloc);
	kvarc_ret ret = make_plan(converting, it, &plan, &out);
	if (!ret)
		ret = kvi_llama_item_make(&made, r, &plan, out.p, out.n);
	kvi_restore_free(&plan, converting->alloc);
	kvi_out_free(&out);
	if (ret) {
		kvi_llama_item_free(&made);
		return ret;
	}
	const bool rebuilt = it->rebuilt;
	kvi_llama_item_free(it);
	*it = made;
	it->plan = &it->made;
	it->source.opaque = it;
	it->rebuilt = rebuilt;
	return KVARC_OK;
}

kvarc_ret kvi_llama_convert(struct kvi_llama_item *it, kvarc_reader *r, uint32_t version,
                            const char **why)
{
	struct llama_converting c = { .alloc = it->alloc, .version = version };
	*why = NULL;
	c.s = kvi_scan_open(c.alloc, &it->source);
	if (!c.s)
		return kvi_alloc_error(c.alloc);
	kvarc_ret ret = kvi_llama_parse(&c.f, c.alloc, c.s, &c.why);
	const bool same = !ret && !c.f.grammar.session && c.f.grammar.version == version;
	if (!ret && !same)
		ret = check_file(&c);
	if (!ret && !same)
		ret = find_edits(&c);
	if (!ret && !same)
		ret = replace(&c, it, r);
	*why = c.why;
	kvi_llama_free(&c.f, c.alloc);
	kvi_free(c.alloc, c.edits.p);
	kvi_free(c.alloc, c.s);
	return ret;
}
