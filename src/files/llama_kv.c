/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_kv.c - llama.cpp slot and session files as tracks, areas and tensors */
#include <stdio.h>
#include <string.h>

#include "import_internal.h"
#include "ggml_types.h"
#include "llama_parse.h"
#include "llama_share.h"

/* The position runs of a section's cells. */
static kvarc_ret read_positions(kvarc_import *im, struct kvi_imp_track *t, struct kvi_scan *s,
                                const struct kvi_llama_file *f, const struct kvi_llama_section *k)
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
static void find_ids(struct kvi_imp_track *t, uint32_t item, const struct kvi_llama_file *f)
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

/* Number of heads of a key or value of this width, by the metadata of the model; 1: not known. */
static uint32_t model_heads(const struct kvi_gguf *g, uint32_t width, bool value)
{
	uint32_t channels = value ? g->value_channels : g->key_channels;
	if (!g->present || channels == 0 || width % channels)
		return 1;
	return width / channels;
}

/* The tensors of the last area: one a plane. */
static kvarc_ret add_planes(kvarc_import *im, const struct kvi_llama_matrix *m, uint32_t n_cells,
                            const kvarc_tensor *like, const char *name)
{
	const struct kvi_ggml_type *type = kvi_ggml_type(m->type);
	const struct kvi_ggml_rows rows = { m->width, n_cells, m->row_bytes, m->trans };
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
			t->pub.source_type = (uint16_t)(0x100 + m->type);
		kvi_import_shape(&t->pub, (uint64_t)m->width / type->block_elems * p->elems,
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
	struct kvi_llama_shared shared;
};

/* Matrix number i of the common track's sections: the area of each of their spans. */
static kvarc_ret add_shared_matrix(struct llama *x, uint32_t track, size_t i,
                                   const kvarc_tensor *like, const char *name)
{
	const struct kvi_llama_file *f = x->f;
	for (size_t k = 0; k < x->shared.n_spans; k++) {
		const struct kvi_llama_span *p = &x->shared.spans[k];
		const struct kvi_llama_section *section = &f->sections[p->section];
		const struct kvi_llama_matrix *m = &f->matrices[section->first_matrix + i];
		uint64_t at = m->at + p->cell * m->row_bytes;
		uint64_t bytes = p->n * m->row_bytes;
		uint64_t t0 = x->shared.runs[p->run].t0 + p->skip;
		struct kvi_imp_area *area = k ? kvi_import_add_part(x->im, at, bytes, t0, p->n)
		                              : kvi_import_add_area(x->im, x->item, track, at,
		                                                    bytes);
		if (!area)
			return kvi_import_full(x->im);
		area->t0 = t0;
		area->n_tokens = p->n;
		kvarc_ret ret = k ? KVARC_OK : add_planes(x->im, m, 0, like, name);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret add_matrix(struct llama *x, uint32_t track, const struct kvi_llama_section *k,
                            size_t i, const kvarc_tensor *like, const char *name)
{
	const struct kvi_llama_matrix *m = &x->f->matrices[k->first_matrix + i];
	if (k == &x->f->sections[x->shared.like] && x->shared.n_spans)
		return add_shared_matrix(x, track, i, like, name);
	if (!kvi_import_add_area(x->im, x->item, track, m->at, m->bytes))
		return kvi_import_full(x->im);
	return add_planes(x->im, m, k->n_cells, like, name);
}

/* Keys alone: MLA; behind another memory: the keys of an indexer. */
static uint8_t kind_of(const struct kvi_llama_section *k, bool second)
{
	if (second)
		return KVARC_VALUE;
	return k->values ? KVARC_KEY : k->blob ? KVARC_INDEXER_KEY : KVARC_MLA_LATENT;
}

/* Layers are counted in file order: the file does not number them. */
static kvarc_ret add_layers(struct llama *x, uint32_t track, const struct kvi_llama_section *k,
                            uint32_t layer0)
{
	for (uint32_t i = 0; i < kvi_llama_section_matrices(k); i++) {
		bool second = k->values && i % 2;
		uint32_t layer = k->values ? i / 2 : i;
		uint32_t matrix = second ? k->n_layers + layer : layer;
		uint32_t rotation = second ? k->rotation_v : k->rotation_k;
		char name[40];
		kvarc_tensor like = {
			.layer = layer0 + layer,
			.kind = kind_of(k, second),
			.flags = (uint8_t)((second ? 0 : KVARC_TENSOR_POST_ROPE) |
			                   (rotation ? KVARC_TENSOR_HADAMARD : 0)),
			.heads = model_heads(&x->im->gguf,
			                     x->f->matrices[k->first_matrix + matrix].width,
			                     second),
		};
		snprintf(name, sizeof name, "layers.%u.%s", like.layer, kvarc_kind_name(like.kind));
		kvarc_ret ret = add_matrix(x, track, k, matrix, &like, name);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static void label_track(struct kvi_imp_track *t, const struct kvi_llama_section *k)
{
	char checkpoint[32] = "";
	t->pub.kind = !k->blob && !k->checkpoint ? KVARC_TRACK_SELF
	              : k->values                ? KVARC_TRACK_WINDOW
	                                         : KVARC_TRACK_OTHER;
	if (k->checkpoint)
		snprintf(checkpoint, sizeof checkpoint, " checkpoint %u", k->checkpoint - 1);
	snprintf(t->label, sizeof t->label, "stream %u%s%s", k->stream,
	         !k->blob    ? ""
	         : k->values ? " window"
	                     : " indexer",
	         checkpoint);
}

/* Positions and ids of the common track. */
static kvarc_ret shared_positions(struct llama *x, struct kvi_imp_track *t)
{
	const struct kvi_llama_shared *sh = &x->shared;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < sh->n_runs && !ret; i++)
		for (uint32_t k = 0; k < sh->runs[i].n && !ret; k++)
			ret = kvi_import_position(x->im, t, sh->runs[i].position + k);
	return ret;
}

/*
 * Recurrent states have no token axis. One row of each would say too little of its
 * elements, so they are cut into rows of STATE_CHANNELS, which stand as tokens.
 */
static kvarc_ret add_states(struct llama *x, const struct kvi_llama_section *k, bool second)
{
	enum { STATE_CHANNELS = 128 };
	const struct kvi_llama_matrix *m =
		&x->f->matrices[k->first_matrix + (second ? k->n_layers : 0)];
	uint32_t channels = STATE_CHANNELS;
	const struct kvi_ggml_type *type = kvi_ggml_type(m->type);
	for (uint32_t i = 0; i < k->n_layers; i++)
		if (m[i].width == 0 || m[i].width != m->width || m[i].type != m->type)
			return KVARC_OK; /* literals, then */
	while (m->width % channels)
		channels /= 2;
	uint64_t rows = (uint64_t)k->n_cells * (m->width / channels);
	struct kvi_imp_track *t = kvi_import_add_track(x->im, rows);
	if (!t)
		return kvi_import_full(x->im);
	uint32_t track = (uint32_t)x->im->n_tracks - 1;
	const char *kind = kvarc_kind_name(second ? KVARC_RECURRENT_STATE : KVARC_CONV_STATE);
	t->pub.kind = KVARC_TRACK_STATE;
	snprintf(t->label, sizeof t->label, "%s", kind);
	if (k->checkpoint)
		snprintf(t->label, sizeof t->label, "%s checkpoint %u", kind, k->checkpoint - 1);
	for (uint32_t i = 0; i < k->n_layers; i++) {
		struct kvi_llama_matrix row = m[i];
		char name[40];
		kvarc_tensor like = { .layer = i,
			              .heads = 1,
			              .kind = second ? KVARC_RECURRENT_STATE : KVARC_CONV_STATE };
		row.width = channels;
		row.row_bytes = (uint64_t)channels * type->block_bytes;
		snprintf(name, sizeof name, "layers.%u.%s", i, kind);
		if (!kvi_import_add_area(x->im, x->item, track, row.at, row.bytes))
			return kvi_import_full(x->im);
		kvarc_ret ret = add_planes(x->im, &row, 0, &like, name);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret add_section(struct llama *x, size_t index)
{
	const struct kvi_llama_file *f = x->f;
	const struct kvi_llama_section *k = &f->sections[index];
	bool common = kvi_llama_shares(&x->shared, index);
	uint32_t of_blob = 0, layer0 = 0;
	if (k->recurrent) {
		kvarc_ret ret = add_states(x, k, false);
		return ret ? ret : add_states(x, k, true);
	}
	if (common && index != x->shared.like)
		return KVARC_OK;
	for (size_t i = 0; i < f->n_sections; i++)
		of_blob += f->sections[i].blob == k->blob && !f->sections[i].recurrent &&
		           !f->sections[i].checkpoint;
	/* A window's layers are others than those of the full memory. */
	if (k->blob && k->values)
		layer0 = f->sections[0].n_layers;
	struct kvi_imp_track *t = kvi_import_add_track(x->im,
	                                               common ? x->shared.n_tokens : k->n_cells);
	if (!t)
		return kvi_import_full(x->im);
	label_track(t, k);
	uint32_t track = (uint32_t)x->im->n_tracks - 1;
	kvarc_ret ret = common ? shared_positions(x, t) : read_positions(x->im, t, x->s, f, k);
	if (ret)
		return ret;
	if (of_blob == 1)
		find_ids(t, x->item, f);
	return add_layers(x, track, k, layer0);
}

/* The last of the slot's own sections is the one that checkpoints hold parts of. */
static kvarc_ret add_sections(struct llama *x)
{
	size_t like = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < x->f->n_sections; i++)
		if (!x->f->sections[i].checkpoint && !x->f->sections[i].recurrent)
			like = i;
	if (x->f->n_sections && x->f->n_checkpoints)
		ret = kvi_llama_share(&x->shared, &x->im->alloc, x->s, x->f, like);
	for (size_t i = 0; i < x->f->n_sections && !ret; i++)
		ret = add_section(x, i);
	kvi_llama_shared_free(&x->shared, &x->im->alloc);
	return ret;
}

static void describe(kvarc_import *im, const struct kvi_llama_file *f, const char *what)
{
	bool trans = false;
	for (size_t i = 0; i < f->n_matrices; i++)
		trans = trans || f->matrices[i].trans;
	int n = snprintf(im->format, sizeof im->format, "llama.cpp %s file, version %u", what,
	                 f->grammar.version);
	if (f->n_checkpoints)
		snprintf(im->format + n, sizeof im->format - (size_t)n,
		         ", with %zu context checkpoint%s", f->n_checkpoints,
		         f->n_checkpoints == 1 ? "" : "s");
	snprintf(im->layout, sizeof im->layout, "%s",
	         trans ? "token, head, channel; values: channel, token" : "token, head, channel");
	im->engine = "llama.cpp";
	im->streams = f->n_sections ? f->sections[0].n_streams : 0;
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
