/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_rebuild.c - a llama.cpp file from tensors of an archive that does not hold one */
#include "llama_rebuild.h"

#include <string.h>

#include "ggml_types.h"
#include "import_internal.h"
#include "llama_describe.h"
#include "llama_parse.h"
#include "reader/reader_internal.h"

enum {
	LAYERS_MAX = 4096,
	STREAMS_MAX = 256,
	BLOCK_TYPE = 0x100, /* source_type of planes: this and the ggml type */
	TYPE_F32 = 0,
	TYPE_F16 = 1,
	TYPE_BF16 = 30,
	PACKED_VERSION = 1,
	PACKED_WORDS = 4,
	OLDEST_SEQUENCE = 2,
	LATEST_SEQUENCE = 4,
	OLDEST_SESSION = 10, /* version 9 has outputs of the last token */
	LATEST_SESSION = 11
};

/* Keys or values of a layer: a tensor for each plane of their type. */
struct rebuilt {
	const struct kvi_ggml_type *type; /* NULL: there are none */
	uint32_t width;
	uint32_t tensor[KVI_GGML_PLANES_MAX];
	unsigned planes; /* bit p: plane p is there */
};

struct rebuilding {
	kvarc_reader *r;
	const struct kvi_alloc *alloc;
	uint32_t track, n_layers;
	uint64_t n;
	struct kvi_llama_description d;
	struct rebuilt *keys, *values; /* of each layer */
	bool has_values;
	int32_t *ids, *positions;
	struct kvi_restore *plan;
	struct kvi_out *out;
	size_t before; /* literal bytes that have a piece */
	const char *why;
};

static kvarc_ret refuse(struct rebuilding *x, const char *why)
{
	x->why = why;
	return KVARC_END;
}

/* ----- what is there -------------------------------------------------- */

/* Without a pair: the newest version, as far as tensors and identity show what it needs. */
static kvarc_ret describe(struct rebuilding *x)
{
	const kvarc_geometry *g = kvarc_reader_geometry(x->r);
	const char *pair = kvarc_reader_identity(x->r, KVI_LLAMA_PAIR);
	const char *engine = kvarc_reader_identity(x->r, "engine");
	const char *layout = kvarc_reader_identity(x->r, "layout");
	if (!engine || strcmp(engine, "llama.cpp") != 0)
		return refuse(x, "its tensors do not come from llama.cpp");
	if (pair && !kvi_llama_describe_parse(&x->d, pair))
		return refuse(x, "its description of the llama.cpp file is not valid");
	if (!pair) {
		x->d.version = LATEST_SEQUENCE;
		x->d.streams = 1;
		x->d.transposed = layout && strstr(layout, "values: channel") != NULL;
	}
	for (size_t i = 0; i < g->n_tensors && !pair; i++)
		if (g->tensors[i].flags & KVARC_TENSOR_HADAMARD)
			return refuse(x, "it does not say how its tensors were rotated");
	if (x->d.memories > 1 || (x->d.memories == 0 && g->n_tracks > 1))
		return refuse(x, "the file had several memories, of which one is not enough; "
		                 "take the archive that was made from it");
	if (x->d.extension)
		return refuse(x, "its positions have several parts");
	if (x->d.version < (x->d.session ? OLDEST_SESSION : OLDEST_SEQUENCE) ||
	    x->d.version > (x->d.session ? LATEST_SESSION : LATEST_SEQUENCE))
		return refuse(x, "a file of its version cannot be made");
	if (x->d.streams > STREAMS_MAX || (x->d.streams && x->d.stream >= x->d.streams))
		return refuse(x, "its description of the llama.cpp file is not valid");
	return x->d.session && !x->d.arch[0] ? refuse(x, "the architecture is not known")
	                                     : KVARC_OK;
}

static const struct kvi_ggml_type *type_of(const kvarc_tensor *t)
{
	if (t->role != KVARC_WHOLE)
		return t->source_type >= BLOCK_TYPE ? kvi_ggml_type(t->source_type - BLOCK_TYPE)
		                                    : NULL;
	switch (t->dtype) {
	case KVARC_F32:
		return kvi_ggml_type(TYPE_F32);
	case KVARC_F16:
		return kvi_ggml_type(TYPE_F16);
	case KVARC_BF16:
		return kvi_ggml_type(TYPE_BF16);
	default:
		return NULL;
	}
}

/* Tensor i of the geometry as a plane of keys or values. */
static kvarc_ret add_tensor(struct rebuilding *x, struct rebuilt *m, uint32_t i)
{
	const kvarc_tensor *t = &kvarc_reader_geometry(x->r)->tensors[i];
	const struct kvi_ggml_type *type = type_of(t);
	uint64_t elems = (uint64_t)t->heads * t->channels;
	for (uint8_t p = 0; type && p < type->n_planes; p++) {
		const struct kvi_ggml_plane *plane = &type->planes[p];
		uint64_t width = elems / plane->elems * type->block_elems;
		if (plane->role != t->role || plane->dtype != t->dtype || (m->planes >> p & 1))
			continue;
		if (elems % plane->elems || width > KVI_IMPORT_WIDTH_MAX ||
		    (m->type && (m->type != type || m->width != width)))
			break;
		m->type = type;
		m->width = (uint32_t)width;
		m->tensor[p] = i;
		m->planes |= 1u << p;
		return KVARC_OK;
	}
	return refuse(x, "a tensor is none of llama.cpp's");
}

static kvarc_ret find_tensors(struct rebuilding *x)
{
	const kvarc_geometry *g = kvarc_reader_geometry(x->r);
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		if (g->tensors[i].track != x->track)
			continue;
		if (g->tensors[i].layer >= LAYERS_MAX)
			return refuse(x, "it has too many layers");
		if (g->tensors[i].layer >= x->n_layers)
			x->n_layers = g->tensors[i].layer + 1;
	}
	if (x->d.layers && x->n_layers != x->d.layers)
		return refuse(x, "it does not hold all layers");
	x->keys = kvi_calloc(x->alloc, 2 * (size_t)x->n_layers + 1, sizeof *x->keys);
	if (!x->keys)
		return kvi_alloc_error(x->alloc);
	x->values = x->keys + x->n_layers;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		bool value = t->kind == KVARC_VALUE;
		if (t->track != x->track)
			continue;
		if (!value && t->kind != KVARC_KEY && t->kind != KVARC_MLA_LATENT)
			return refuse(x, "it holds other tensors than keys and values");
		kvarc_ret ret = add_tensor(x, &(value ? x->values : x->keys)[t->layer], i);
		if (ret)
			return ret;
		x->has_values = x->has_values || value;
	}
	return KVARC_OK;
}

static kvarc_ret check_tensors(struct rebuilding *x)
{
	size_t n = (size_t)x->n_layers * (x->has_values ? 2 : 1);
	for (size_t i = 0; i < n; i++) {
		const struct rebuilt *m = &x->keys[i];
		if (!m->type || m->planes != (1u << m->type->n_planes) - 1)
			return refuse(x, "it does not hold all layers");
		if (i >= x->n_layers && x->d.transposed && m->type->block_elems > 1)
			return refuse(x, "a tensor is none of llama.cpp's");
	}
	return n ? KVARC_OK : refuse(x, "it holds no keys");
}

static kvarc_ret read_tokens(struct rebuilding *x)
{
	if (x->n > INT32_MAX)
		return refuse(x, "it has too many tokens");
	x->ids = kvi_array(x->alloc, (size_t)x->n, 2 * sizeof *x->ids);
	if (!x->ids)
		return kvi_alloc_error(x->alloc);
	x->positions = x->ids + x->n;
	kvarc_ret ret = kvarc_reader_read_tokens(x->r, x->track, 0, x->n, x->ids, x->positions);
	return ret == KVARC_OPTIONS ? refuse(x, "it holds no token ids") : ret;
}

/* ----- the file ------------------------------------------------------- */

static void put_tokens(struct rebuilding *x)
{
	const struct kvi_llama_description *d = &x->d;
	kvi_put32(x->out, d->session ? KVI_LLAMA_SESSION_MAGIC : KVI_LLAMA_SEQ_MAGIC);
	kvi_put32(x->out, d->version);
	kvi_put32(x->out, (uint32_t)x->n + (d->packed ? PACKED_WORDS : 0));
	if (d->packed) {
		kvi_put32(x->out, UINT32_MAX);
		kvi_put32(x->out, PACKED_VERSION);
		kvi_put32(x->out, (uint32_t)x->n);
	}
	for (uint64_t i = 0; i < x->n; i++)
		kvi_put32(x->out, (uint32_t)x->ids[i]);
	if (d->packed)
		kvi_put32(x->out, 0); /* no media */
	if (d->session) {
		kvi_put32(x->out, (uint32_t)strlen(d->arch));
		kvi_put_bytes(x->out, d->arch, strlen(d->arch));
	}
}

/* A cell is of sequence 0: of a sequence file the number is not looked at. */
static void put_cells(struct rebuilding *x)
{
	const struct kvi_llama_description *d = &x->d;
	if (d->streams)
		kvi_put32(x->out, d->streams);
	for (uint32_t i = 0; d->streams && i < d->stream; i++)
		kvi_put32(x->out, 0);
	kvi_put32(x->out, (uint32_t)x->n);
	for (uint64_t i = 0; i < x->n; i++) {
		kvi_put32(x->out, (uint32_t)x->positions[i]);
		kvi_put32(x->out, 1);
		kvi_put32(x->out, 0);
	}
	kvi_put32(x->out, x->has_values && d->transposed);
	kvi_put32(x->out, x->n_layers);
	if (d->version >= (d->session ? 11u : 4u)) {
		kvi_put32(x->out, d->rotation_k);
		kvi_put32(x->out, d->rotation_v);
	}
}

/* The literal bytes since the last piece. */
static void put_literal(struct rebuilding *x)
{
	struct kvi_piece *p = &x->plan->pieces[x->plan->n_pieces];
	if (x->out->n == x->before)
		return;
	*p = (struct kvi_piece){ .type = KVI_PIECE_LITERAL, .bytes = x->out->n - x->before };
	x->plan->n_pieces++;
	x->plan->file_bytes += p->bytes;
	x->before = x->out->n;
}

static kvarc_ret put_matrix(struct rebuilding *x, const struct rebuilt *m, bool trans)
{
	const struct kvi_ggml_type *type = m->type;
	uint64_t row = (uint64_t)m->width / type->block_elems * type->block_bytes;
	const struct kvi_ggml_rows rows = { m->width, (uint32_t)x->n,
		                            trans ? type->block_bytes : row, trans };
	kvi_put32(x->out, (uint32_t)type->type);
	if (trans) {
		kvi_put32(x->out, type->block_bytes);
		kvi_put32(x->out, m->width);
	} else {
		kvi_put64(x->out, row);
	}
	put_literal(x);
	struct kvi_area_view *views = kvi_array(x->alloc, type->n_planes, sizeof *views);
	if (!views)
		return kvi_alloc_error(x->alloc);
	for (uint8_t i = 0; i < type->n_planes; i++) {
		views[i] = kvi_ggml_view(type, &type->planes[i], &rows);
		views[i].tensor = m->tensor[i];
	}
	struct kvi_piece *p = &x->plan->pieces[x->plan->n_pieces++];
	*p = (struct kvi_piece){ .type = KVI_PIECE_AREA,
		                 .track = x->track,
		                 .bytes = row * x->n,
		                 .n_tokens = x->n,
		                 .n_views = type->n_planes,
		                 .views = views };
	x->plan->file_bytes += p->bytes;
	return KVARC_OK;
}

static kvarc_ret put_file(struct rebuilding *x)
{
	size_t n = (size_t)x->n_layers * (x->has_values ? 2 : 1);
	kvarc_ret ret = KVARC_OK;
	x->plan->kind = x->d.session ? KVI_ITEM_LLAMA_SESSION : KVI_ITEM_LLAMA_SEQ;
	x->plan->pieces = kvi_calloc(x->alloc, 2 * n + 1, sizeof *x->plan->pieces);
	if (!x->plan->pieces)
		return kvi_alloc_error(x->alloc);
	put_tokens(x);
	put_cells(x);
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_matrix(x, &x->keys[i], i >= x->n_layers && x->d.transposed);
	for (uint32_t i = x->d.stream + 1; i < x->d.streams; i++)
		kvi_put32(x->out, 0);
	put_literal(x);
	return ret || !x->out->failed ? ret : kvi_alloc_error(x->alloc);
}

kvarc_ret kvi_llama_rebuild(kvarc_reader *r, uint32_t track, uint64_t n, struct kvi_restore *plan,
                            struct kvi_out *literals, const char **why)
{
	struct rebuilding x = { .r = r,
		                .alloc = kvi_reader_alloc(r),
		                .track = track,
		                .n = n,
		                .plan = plan,
		                .out = literals };
	*plan = (struct kvi_restore){ 0 };
	kvarc_ret ret = describe(&x);
	if (!ret)
		ret = find_tensors(&x);
	if (!ret)
		ret = check_tensors(&x);
	if (!ret)
		ret = read_tokens(&x);
	if (!ret)
		ret = put_file(&x);
	*why = x.why;
	kvi_free(x.alloc, x.keys);
	kvi_free(x.alloc, x.ids);
	return ret;
}
