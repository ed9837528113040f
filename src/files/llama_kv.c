/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_kv.c - llama.cpp slot and session files as tracks, areas and tensors */
#include <stdio.h>
#include <string.h>

#include "import_internal.h"
#include "ggml_types.h"
#include "llama_parse.h"

/* The position runs of a section's cells. */
static kvarc_ret read_positions(kvarc_import *im, struct kvi_imp_track *t,
                                struct kvi_scan *s,
                                const struct kvi_llama_file *f,
                                const struct kvi_llama_section *k)
{
	kvarc_ret ret = KVARC_OK;
	kvi_scan_seek(s, k->cells_at);
	for (uint32_t i = 0; i < k->n_cells && !ret; i++) {
		int32_t position;
		if (!kvi_llama_cell(s, &f->grammar, &position))
			return KVARC_IO; /* the file changed since the parse */
		ret = kvi_import_position(im, t, position);
	}
	return ret;
}

/* Token p of the list is the one at position p, where that is certain: one
 * sequence, positions in order. */
static void find_ids(struct kvi_imp_track *t, uint32_t item,
                     const struct kvi_llama_file *f)
{
	if (!f->tokens_at || t->n_runs != 1)
		return;
	uint64_t first = (uint64_t)t->runs[0].first;
	if (first + t->n > f->n_tokens)
		return;
	t->has_ids = true;
	t->ids_item = item;
	t->ids_at = f->tokens_at + 4 * first;
	t->ids_bytes = 4;
}

/* How a key or value of this width splits into heads, if the model told. */
static uint32_t model_heads(const struct kvi_gguf *g, uint32_t width, bool value)
{
	uint32_t channels = value ? g->value_channels : g->key_channels;
	if (!g->present || channels == 0 || width % channels)
		return 1;
	return width / channels;
}

static kvarc_ret add_matrix(kvarc_import *im, uint32_t item, uint32_t track,
                            const struct kvi_llama_matrix *m, uint32_t n_cells,
                            const kvarc_tensor *like, const char *name)
{
	const struct kvi_ggml_type *type = kvi_ggml_type(m->type);
	if (!kvi_import_add_area(im, item, track, m->at, m->bytes))
		return kvi_import_full(im);
	for (uint8_t i = 0; i < type->n_planes; i++) {
		static const char *const suffix[] = {
			"", ".scale", ".minimum", ".payload", ".high_bits"
		};
		const struct kvi_ggml_plane *p = &type->planes[i];
		struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
		if (!t)
			return kvi_import_full(im);
		uint32_t es = (uint32_t)kvarc_dtype_bytes(p->dtype);
		t->pub = *like;
		t->pub.track = track;
		t->pub.role = p->role;
		t->pub.dtype = p->dtype;
		if (p->role != KVARC_WHOLE)
			t->pub.source_type = (uint16_t)(0x100 + m->type);
		kvi_import_shape(&t->pub,
		                 (uint64_t)m->width / type->block_elems *
		                 p->elems, like->heads);
		snprintf(t->name, sizeof t->name, "%s%s", name,
		         suffix[p->role]);
		t->at.offset = p->offset;
		t->at.elem_stride = es;
		if (m->trans) {
			t->at.token_stride = es;
			t->at.block_elems = 1;
			t->at.block_stride = (uint64_t)n_cells * es;
		} else {
			t->at.token_stride = m->row_bytes;
			t->at.block_elems = p->elems;
			t->at.block_stride = type->block_bytes;
		}
		if (!m->trans && type->block_elems == 1) /* plain rows */
			t->at.block_elems = m->width;
		if (!m->trans && type->block_elems == 1)
			t->at.block_stride = m->row_bytes;
	}
	return KVARC_OK;
}

/* Layers are counted in file order: the file does not number them. */
static kvarc_ret add_layers(kvarc_import *im, uint32_t item, uint32_t track,
                            const struct kvi_llama_file *f,
                            const struct kvi_llama_section *k, uint32_t layer0)
{
	const struct kvi_llama_matrix *m = f->matrices + k->first_matrix;
	/* Keys alone: MLA; behind another memory: the keys of an indexer. */
	uint8_t key = k->values ? KVARC_KEY
	              : k->blob ? KVARC_INDEXER_KEY : KVARC_MLA_LATENT;
	for (uint32_t i = 0; i < k->n_layers * (k->values ? 2 : 1); i++) {
		bool value = k->values && i % 2;
		uint32_t layer = k->values ? i / 2 : i;
		const struct kvi_llama_matrix *x =
			&m[value ? k->n_layers + layer : layer];
		uint32_t rotation = value ? k->rotation_v : k->rotation_k;
		char name[40];
		kvarc_tensor like = {
			.layer = layer0 + layer,
			.kind = value ? KVARC_VALUE : key,
			.flags = (uint8_t)((value ? 0 : KVARC_TENSOR_POST_ROPE) |
			                   (rotation ? KVARC_TENSOR_HADAMARD : 0)),
			.heads = model_heads(&im->gguf, x->width, value),
		};
		snprintf(name, sizeof name, "layers.%u.%s", like.layer,
		         kvarc_kind_name(like.kind));
		kvarc_ret ret = add_matrix(im, item, track, x, k->n_cells,
		                           &like, name);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret add_section(kvarc_import *im, uint32_t item, struct kvi_scan *s,
                             const struct kvi_llama_file *f, size_t index)
{
	const struct kvi_llama_section *k = &f->sections[index];
	uint32_t of_blob = 0, layer0 = 0;
	for (size_t i = 0; i < f->n_sections; i++)
		of_blob += f->sections[i].blob == k->blob;
	/* A window's layers are others than those of the full memory. */
	if (k->blob && k->values)
		layer0 = f->sections[0].n_layers;
	struct kvi_imp_track *t = kvi_import_add_track(im, k->n_cells);
	if (!t)
		return kvi_import_full(im);
	t->pub.kind = !k->blob ? KVARC_TRACK_SELF
	              : k->values ? KVARC_TRACK_WINDOW : KVARC_TRACK_OTHER;
	snprintf(t->label, sizeof t->label, "stream %u%s", k->stream,
	         !k->blob ? "" : k->values ? " window" : " indexer");
	uint32_t track = (uint32_t)im->n_tracks - 1;
	kvarc_ret ret = read_positions(im, t, s, f, k);
	if (ret)
		return ret;
	if (of_blob == 1)
		find_ids(t, item, f);
	return add_layers(im, item, track, f, k, layer0);
}

static void describe(kvarc_import *im, const struct kvi_llama_file *f,
                     const char *what)
{
	bool trans = false;
	for (size_t i = 0; i < f->n_matrices; i++)
		trans = trans || f->matrices[i].trans;
	snprintf(im->format, sizeof im->format, "llama.cpp %s file, version %u",
	         what, f->grammar.version);
	snprintf(im->layout, sizeof im->layout, "%s", trans
	         ? "token, head, channel; values: channel, token"
	         : "token, head, channel");
	im->engine = "llama.cpp";
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
		kvi_import_note(im, "llama.cpp %s file, version %u: %s; kept "
		                "as an opaque file", what, f.grammar.version,
		                why);
	if (!ret) {
		it->kind = f.grammar.session ? KVI_ITEM_LLAMA_SESSION
		                             : KVI_ITEM_LLAMA_SEQ;
		for (size_t i = 0; i < f.n_sections && !ret; i++)
			ret = add_section(im, item, s, &f, i);
		if (!ret)
			describe(im, &f, what);
		kvi_llama_free(&f, &im->alloc);
	}
	kvi_free(&im->alloc, s);
	return ret;
}
