/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_write.c - a llama.cpp file from tensors of an archive */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ggml_types.h"
#include "import_internal.h"
#include "llama_describe.h"
#include "llama_item.h"
#include "llama_shorten.h"
#include "reader_bounds.h"
#include "unpack_elements.h"
#include "reader/reader_internal.h"
#include "util/arguments.h"
#include "util/error.h"

/* ==== A llama.cpp file from tensors of an archive that does not hold one ==== */

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

static kvarc_ret not_rebuilt(struct rebuilding *x, const char *why)
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
		return not_rebuilt(x, "its tensors do not come from llama.cpp");
	if (pair && !kvi_llama_describe_parse(&x->d, pair))
		return not_rebuilt(x, "its description of the llama.cpp file is not valid");
	if (!pair) {
		x->d.version = LATEST_SEQUENCE;
		x->d.streams = 1;
		x->d.transposed = layout && strstr(layout, "values: channel") != NULL;
	}
	for (size_t i = 0; i < g->n_tensors && !pair; i++)
		if (g->tensors[i].flags & KVARC_TENSOR_HADAMARD)
			return not_rebuilt(x, "it does not say how its tensors were rotated");
	if (x->d.memories > 1 || (x->d.memories == 0 && g->n_tracks > 1))
		return not_rebuilt(x, "the file had several memories, of which one is not enough; "
		                      "take the archive that was made from it");
	if (x->d.extension)
		return not_rebuilt(x, "its positions have several parts");
	if (x->d.version < (x->d.session ? OLDEST_SESSION : OLDEST_SEQUENCE) ||
	    x->d.version > (x->d.session ? LATEST_SESSION : LATEST_SEQUENCE))
		return not_rebuilt(x, "a file of its version cannot be made");
	if (x->d.streams > STREAMS_MAX || (x->d.streams && x->d.stream >= x->d.streams))
		return not_rebuilt(x, "its description of the llama.cpp file is not valid");
	return x->d.session && !x->d.arch[0] ? not_rebuilt(x, "the architecture is not known")
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
	return not_rebuilt(x, "a tensor is none of llama.cpp's");
}

static kvarc_ret find_tensors(struct rebuilding *x)
{
	const kvarc_geometry *g = kvarc_reader_geometry(x->r);
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		if (g->tensors[i].track != x->track)
			continue;
		if (g->tensors[i].layer >= LAYERS_MAX)
			return not_rebuilt(x, "it has too many layers");
		if (g->tensors[i].layer >= x->n_layers)
			x->n_layers = g->tensors[i].layer + 1;
	}
	if (x->d.layers && x->n_layers != x->d.layers)
		return not_rebuilt(x, "it does not hold all layers");
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
			return not_rebuilt(x, "it holds other tensors than keys and values");
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
			return not_rebuilt(x, "it does not hold all layers");
		if (i >= x->n_layers && x->d.transposed && m->type->block_elems > 1)
			return not_rebuilt(x, "a tensor is none of llama.cpp's");
	}
	return n ? KVARC_OK : not_rebuilt(x, "it holds no keys");
}

static kvarc_ret read_tokens(struct rebuilding *x)
{
	if (x->n > INT32_MAX)
		return not_rebuilt(x, "it has too many tokens");
	x->ids = kvi_array(x->alloc, (size_t)x->n, 2 * sizeof *x->ids);
	if (!x->ids)
		return kvi_alloc_error(x->alloc);
	x->positions = x->ids + x->n;
	kvarc_ret ret = kvarc_reader_read_tokens(x->r, x->track, 0, x->n, x->ids, x->positions);
	return ret == KVARC_OPTIONS ? not_rebuilt(x, "it holds no token ids") : ret;
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

/*
 * The file of the first n tokens of a track: its plan, which the caller frees, also on failure, and
 * its literal bytes. Returns OK; END (*why says why not, static storage); as
 * kvarc_reader_read_tokens.
 */
static kvarc_ret kvi_llama_rebuild(kvarc_reader *r, uint32_t track, uint64_t n,
                                   struct kvi_restore *plan, struct kvi_out *literals,
                                   const char **why)
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

/* ==== Tokens of an archive as a file that llama.cpp restores ==== */

struct llama_export {
	kvarc_reader *r;
	kvarc_range range;
	uint64_t limit; /* tokens, UINT64_MAX: all */
	uint64_t flags;
	const kvarc_sink *sink; /* NULL: nothing is written */
	struct kvi_llama_item item;
	struct kvi_llama_short shorter;
	struct kvi_llama_map map;
	kvarc_slot_prefix *prefix;
};

static kvarc_ret refuse_export(struct llama_export *x, const char *why)
{
	x->prefix->why = why;
	return kvi_fail(kvi_reader_error(x->r), KVARC_OPTIONS,
	                "no llama.cpp file can be written: %s", why);
}

static kvarc_ret no_memory(struct llama_export *x, kvarc_ret ret)
{
	return kvi_reader_fail(x->r, ret, "not enough memory for a llama.cpp file");
}

/* All layers of a range, and the first token. */
static const char *check_range(const struct llama_export *x)
{
	const kvarc_geometry *g = kvarc_reader_geometry(x->r);
	if (x->range.t0)
		return "an engine restores tokens from the first one on";
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].track == x->range.track &&
		    !kvi_range_has(&x->range, &g->tensors[i]))
			return "an engine restores all layers";
	return NULL;
}

/* The file in the archive, or one that is made. */
static kvarc_ret open_item(struct llama_export *x)
{
	struct kvi_restore plan = { 0 };
	struct kvi_out literals;
	const char *why = NULL;
	bool first;
	size_t i = kvi_llama_item_find(x->r, x->range.track, &first);
	if (i < kvi_reader_n_items(x->r)) {
		if (!first)
			return refuse_export(x, "the track is not the first one of its file");
		kvarc_ret ret = kvi_llama_item_open(&x->item, x->r, i);
		return ret == KVARC_END ? refuse_export(x, "bytes outside its tensors are lost")
		                        : ret;
	}
	kvi_out_init(&literals, kvi_reader_alloc(x->r));
	kvarc_ret ret = kvi_llama_rebuild(x->r, x->range.track, x->range.n, &plan, &literals, &why);
	if (ret == KVARC_END)
		ret = refuse_export(x, why);
	if (!ret)
		ret = kvi_llama_item_make(&x->item, x->r, &plan, literals.p, literals.n);
	kvi_restore_free(&plan, kvi_reader_alloc(x->r));
	kvi_out_free(&literals);
	return ret;
}

/* How many tokens the file has. */
static kvarc_ret choose(struct llama_export *x)
{
	struct kvi_llama_short *s = &x->shorter;
	const char *why = NULL;
	kvarc_ret ret = kvi_llama_parse(&s->f, s->alloc, s->s, &why);
	if (ret == KVARC_END)
		return refuse_export(x, why ? why : "it is none");
	if (!ret)
		ret = kvi_llama_choose(s);
	if (ret)
		return ret;
	/* where all cells are wanted the list comes whole, which may name more tokens than these */
	x->prefix->tokens = s->all || s->f.n_tokens < s->limit ? s->f.n_tokens : s->limit;
	why = s->all && kvi_llama_all_whole(s, true) ? NULL : kvi_llama_obstacle(s);
	if (!why && s->tokens == 0)
		why = s->base ? "the sliding window or the recurrent state that goes with these "
		                "tokens is not there, and no context checkpoint before"
		              : "no token from position 0 on is whole in all layers";
	if (why)
		return refuse_export(x, why);
	x->prefix->whole_tokens = s->tokens;
	if ((x->flags & KVARC_LLAMA_EXACT) && s->tokens < x->prefix->tokens)
		return refuse_export(x, "an engine can go on from fewer tokens alone");
	return KVARC_OK;
}

/* Literal bytes, then the elements. */
static kvarc_ret write_file(struct llama_export *x)
{
	struct kvi_llama_short *s = &x->shorter;
	const kvarc_geometry *g = kvarc_reader_geometry(x->r);
	struct kvi_token_span *spans = kvi_calloc(s->alloc, g->n_tracks, sizeof *spans);
	kvarc_ret ret = spans ? kvi_llama_put(s) : kvi_alloc_error(s->alloc);
	x->prefix->bytes = s->at;
	if (!ret)
		ret = kvi_llama_map_sort(&x->map);
	if (ret == KVARC_IO)
		ret = kvi_reader_fail(x->r, ret, "writing the file failed");
	else if (ret)
		ret = no_memory(x, ret);
	if (!ret && x->sink) {
		kvarc_sink sink = kvi_llama_map_sink(&x->map);
		kvi_llama_map_spans(&x->map, spans);
		ret = kvi_unpack_elements(x->r, x->item.plan, &sink, spans);
	}
	if (!ret && x->sink && x->sink->flush && x->sink->flush(x->sink->opaque))
		ret = kvi_reader_fail(x->r, KVARC_IO, "writing the file failed");
	kvi_free(s->alloc, spans);
	return ret;
}

static kvarc_ret export_item(struct llama_export *x)
{
	struct kvi_llama_short *s = &x->shorter;
	*s = (struct kvi_llama_short){ .alloc = kvi_reader_alloc(x->r),
		                       .plan = x->item.plan,
		                       .whole = x->item.whole,
		                       .limit = x->limit,
		                       .strict = x->item.plan == &x->item.made,
		                       .sink = x->sink,
		                       .map = &x->map };
	x->map = (struct kvi_llama_map){
		.alloc = s->alloc, .plan = x->item.plan, .starts = x->item.starts, .sink = x->sink
	};
	s->s = kvi_scan_open(s->alloc, &x->item.source);
	s->buffer = kvi_malloc(s->alloc, KVI_LLAMA_COPY_BYTES);
	kvarc_ret ret = s->s && s->buffer ? choose(x) : kvi_alloc_error(s->alloc);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		ret = no_memory(x, ret);
	if (!ret)
		ret = write_file(x);
	kvi_llama_map_free(&x->map);
	kvi_llama_free(&s->f, s->alloc);
	kvi_free(s->alloc, s->buffer);
	kvi_free(s->alloc, s->s);
	return ret;
}

static kvarc_ret check_arguments(kvarc_reader *r, const kvarc_sink *sink,
                                 const kvarc_llama_options *o)
{
	kvarc_error *e = kvi_reader_error(r);
	kvarc_ret ret = sink ? kvi_check_sink(e, "kvarc_export_llama", sink) : KVARC_OK;
	if (ret || !o)
		return ret;
	if (o->flags & ~(uint64_t)KVARC_LLAMA_EXACT)
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_export_llama: kvarc_llama_options.flags has unknown bits");
	return KVI_CHECK_RESERVED(e, "kvarc_export_llama", "kvarc_llama_options", o);
}

kvarc_ret kvarc_export_llama(kvarc_reader *r, const kvarc_range *range, const kvarc_sink *sink,
                             const kvarc_llama_options *options, kvarc_slot_prefix *prefix)
{
	kvarc_slot_prefix unused;
	if (!r || !range)
		return KVARC_PROG;
	struct llama_export x = { .r = r,
		                  .flags = options ? options->flags : 0,
		                  .sink = sink,
		                  .prefix = prefix ? prefix : &unused };
	*x.prefix = (kvarc_slot_prefix){ 0 };
	kvi_range_of(&x.range, range);
	x.limit = x.range.n;
	kvarc_ret ret = check_arguments(r, sink, options);
	if (ret)
		return ret;
	if (!kvi_reader_can_seek(r))
		return refuse_export(
			&x, "the archive comes from a pipe; it needs a source that can seek");
	ret = kvi_range_settle(r, &x.range);
	if (ret)
		return ret;
	const char *why = check_range(&x);
	ret = why ? refuse_export(&x, why) : open_item(&x);
	if (!ret)
		ret = export_item(&x);
	else if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		ret = no_memory(&x, ret);
	kvi_llama_item_free(&x.item);
	return ret;
}
