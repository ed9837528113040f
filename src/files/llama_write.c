/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_write.c - a llama.cpp file from tensors of an archive */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ggml_types.h"
#include "import_internal.h"
#include "llama_convert.h"
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
	struct rebuilt *keys, *values; /* by layer */
	bool has_values;
	int32_t *ids, *positions;
	struct kvi_restore *plan;
	struct kvi_out *out;
	size_t before; /* literal bytes that have a piece */
	const char *why;
};

static kvarc_ret not_rebuilt(struct rebuilding *rebuilding, const char *why)
{
	rebuilding->why = why;
	return KVARC_END;
}

/* ----- what is there -------------------------------------------------- */

/* Describes the file by its pair; without one: the newest version, as far as tensors and identity
 * show what it needs. */
static kvarc_ret describe(struct rebuilding *rebuilding)
{
	const kvarc_geometry *g = kvarc_reader_geometry(rebuilding->r);
	const char *pair = kvarc_reader_identity(rebuilding->r, KVI_LLAMA_PAIR);
	const char *engine = kvarc_reader_identity(rebuilding->r, "engine");
	const char *layout = kvarc_reader_identity(rebuilding->r, "layout");
	if (!engine || strcmp(engine, "llama.cpp") != 0)
		return not_rebuilt(rebuilding, "its tensors do not come from llama.cpp");
	if (pair && !kvi_llama_describe_parse(&rebuilding->d, pair))
		return not_rebuilt(rebuilding,
		                   "its description of the llama.cpp file is not valid");
	if (!pair) {
		rebuilding->d.version = LATEST_SEQUENCE;
		rebuilding->d.streams = 1;
		rebuilding->d.transposed = layout && strstr(layout, "values: channel") != NULL;
	}
	for (size_t i = 0; i < g->n_tensors && !pair; i++)
		if (g->tensors[i].flags & KVARC_TENSOR_HADAMARD)
			return not_rebuilt(rebuilding,
			                   "it does not say how its tensors were rotated");
	if (rebuilding->d.memories > 1 || (rebuilding->d.memories == 0 && g->n_tracks > 1))
		return not_rebuilt(rebuilding,
		                   "the file had several memories, of which one is not enough; "
		                   "take the archive that was made from it");
	if (rebuilding->d.extension)
		return not_rebuilt(rebuilding, "its positions have several parts");
	if (rebuilding->d.version < (rebuilding->d.session ? OLDEST_SESSION : OLDEST_SEQUENCE) ||
	    rebuilding->d.version > (rebuilding->d.session ? LATEST_SESSION : LATEST_SEQUENCE))
		return not_rebuilt(rebuilding, "a file of its version cannot be made");
	if (rebuilding->d.streams > STREAMS_MAX ||
	    (rebuilding->d.streams && rebuilding->d.stream >= rebuilding->d.streams))
		return not_rebuilt(rebuilding,
		                   "its description of the llama.cpp file is not valid");
	return rebuilding->d.session && !rebuilding->d.arch[0]
	               ? not_rebuilt(rebuilding, "the architecture is not known")
	               : KVARC_OK;
}

static const struct kvi_ggml_type *type_of(const kvarc_tensor *tensor)
{
	if (tensor->role != KVARC_WHOLE)
		return tensor->source_type >= BLOCK_TYPE
		               ? kvi_ggml_type(tensor->source_type - BLOCK_TYPE)
		               : NULL;
	switch (tensor->dtype) {
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

/* Adds tensor i of the geometry as a plane of keys or values. */
static kvarc_ret add_tensor(struct rebuilding *rebuilding, struct rebuilt *rebuilt, uint32_t i)
{
	const kvarc_tensor *t = &kvarc_reader_geometry(rebuilding->r)->tensors[i];
	const struct kvi_ggml_type *type = type_of(t);
	uint64_t elems = (uint64_t)t->heads * t->channels;
	for (uint8_t p = 0; type && p < type->n_planes; p++) {
		const struct kvi_ggml_plane *plane = &type->planes[p];
		uint64_t width = elems / plane->elems * type->block_elems;
		if (plane->role != t->role || plane->dtype != t->dtype ||
		    (rebuilt->planes >> p & 1))
			continue;
		if (elems % plane->elems || width > KVI_IMPORT_WIDTH_MAX ||
		    (rebuilt->type && (rebuilt->type != type || rebuilt->width != width)))
			break;
		rebuilt->type = type;
		rebuilt->width = (uint32_t)width;
		rebuilt->tensor[p] = i;
		rebuilt->planes |= 1u << p;
		return KVARC_OK;
	}
	return not_rebuilt(rebuilding, "a tensor is none of llama.cpp's");
}

static kvarc_ret find_tensors(struct rebuilding *rebuilding)
{
	const kvarc_geometry *g = kvarc_reader_geometry(rebuilding->r);
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		if (g->tensors[i].track != rebuilding->track)
			continue;
		if (g->tensors[i].layer >= LAYERS_MAX)
			return not_rebuilt(rebuilding, "it has too many layers");
		if (g->tensors[i].layer >= rebuilding->n_layers)
			rebuilding->n_layers = g->tensors[i].layer + 1;
	}
	if (rebuilding->d.layers && rebuilding->n_layers != rebuilding->d.layers)
		return not_rebuilt(rebuilding, "it does not hold all layers");
	rebuilding->keys = kvi_calloc(rebuilding->alloc, 2 * (size_t)rebuilding->n_layers + 1,
	                              sizeof *rebuilding->keys);
	if (!rebuilding->keys)
		return kvi_alloc_error(rebuilding->alloc);
	rebuilding->values = rebuilding->keys + rebuilding->n_layers;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		bool value = t->kind == KVARC_VALUE;
		if (t->track != rebuilding->track)
			continue;
		if (!value && t->kind != KVARC_KEY && t->kind != KVARC_MLA_LATENT)
			return not_rebuilt(rebuilding,
			                   "it holds other tensors than keys and values");
		kvarc_ret ret = add_tensor(
			rebuilding, &(value ? rebuilding->values : rebuilding->keys)[t->layer], i);
		if (ret)
			return ret;
		rebuilding->has_values = rebuilding->has_values || value;
	}
	return KVARC_OK;
}

static kvarc_ret check_tensors(struct rebuilding *rebuilding)
{
	size_t n = (size_t)rebuilding->n_layers * (rebuilding->has_values ? 2 : 1);
	for (size_t i = 0; i < n; i++) {
		const struct rebuilt *m = &rebuilding->keys[i];
		if (!m->type || m->planes != (1u << m->type->n_planes) - 1)
			return not_rebuilt(rebuilding, "it does not hold all layers");
		if (i >= rebuilding->n_layers && rebuilding->d.transposed &&
		    m->type->block_elems > 1)
			return not_rebuilt(rebuilding, "a tensor is none of llama.cpp's");
	}
	return n ? KVARC_OK : not_rebuilt(rebuilding, "it holds no keys");
}

static kvarc_ret read_tokens(struct rebuilding *rebuilding)
{
	if (rebuilding->n > INT32_MAX)
		return not_rebuilt(rebuilding, "it has too many tokens");
	rebuilding->ids = kvi_array(rebuilding->alloc, (size_t)rebuilding->n,
	                            2 * sizeof *rebuilding->ids);
	if (!rebuilding->ids)
		return kvi_alloc_error(rebuilding->alloc);
	rebuilding->positions = rebuilding->ids + rebuilding->n;
	kvarc_ret ret = kvarc_reader_read_tokens(rebuilding->r, rebuilding->track, 0, rebuilding->n,
	                                         rebuilding->ids, rebuilding->positions);
	return ret == KVARC_OPTIONS ? not_rebuilt(rebuilding, "it holds no token ids") : ret;
}

/* ----- the file ------------------------------------------------------- */

static void put_tokens(struct rebuilding *rebuilding)
{
	const struct kvi_llama_description *d = &rebuilding->d;
	kvi_put32(rebuilding->out, d->session ? KVI_LLAMA_SESSION_MAGIC : KVI_LLAMA_SEQ_MAGIC);
	kvi_put32(rebuilding->out, d->version);
	kvi_put32(rebuilding->out, (uint32_t)rebuilding->n + (d->packed ? PACKED_WORDS : 0));
	if (d->packed) {
		kvi_put32(rebuilding->out, UINT32_MAX);
		kvi_put32(rebuilding->out, PACKED_VERSION);
		kvi_put32(rebuilding->out, (uint32_t)rebuilding->n);
	}
	for (uint64_t i = 0; i < rebuilding->n; i++)
		kvi_put32(rebuilding->out, (uint32_t)rebuilding->ids[i]);
	if (d->packed)
		kvi_put32(rebuilding->out, 0); /* no media */
	if (d->session) {
		kvi_put32(rebuilding->out, (uint32_t)strlen(d->arch));
		kvi_put_bytes(rebuilding->out, d->arch, strlen(d->arch));
	}
}

/* Cells are of sequence 0: engines ignore the number in sequence files. */
static void put_cells(struct rebuilding *rebuilding)
{
	const struct kvi_llama_description *d = &rebuilding->d;
	if (d->streams)
		kvi_put32(rebuilding->out, d->streams);
	for (uint32_t i = 0; d->streams && i < d->stream; i++)
		kvi_put32(rebuilding->out, 0);
	kvi_put32(rebuilding->out, (uint32_t)rebuilding->n);
	for (uint64_t i = 0; i < rebuilding->n; i++) {
		kvi_put32(rebuilding->out, (uint32_t)rebuilding->positions[i]);
		kvi_put32(rebuilding->out, 1);
		kvi_put32(rebuilding->out, 0);
	}
	kvi_put32(rebuilding->out, rebuilding->has_values && d->transposed);
	kvi_put32(rebuilding->out, rebuilding->n_layers);
	if (d->version >= (d->session ? 11u : 4u)) {
		kvi_put32(rebuilding->out, d->rotation_k);
		kvi_put32(rebuilding->out, d->rotation_v);
	}
}

/* The literal bytes since the last piece. */
static void put_literal(struct rebuilding *rebuilding)
{
	struct kvi_piece *p = &rebuilding->plan->pieces[rebuilding->plan->n_pieces];
	if (rebuilding->out->n == rebuilding->before)
		return;
	*p = (struct kvi_piece){ .type = KVI_PIECE_LITERAL,
		                 .bytes = rebuilding->out->n - rebuilding->before };
	rebuilding->plan->n_pieces++;
	rebuilding->plan->file_bytes += p->bytes;
	rebuilding->before = rebuilding->out->n;
}

static kvarc_ret put_matrix(struct rebuilding *rebuilding, const struct rebuilt *rebuilt,
                            bool trans)
{
	const struct kvi_ggml_type *type = rebuilt->type;
	uint64_t row = (uint64_t)rebuilt->width / type->block_elems * type->block_bytes;
	const struct kvi_ggml_rows rows = { rebuilt->width, (uint32_t)rebuilding->n,
		                            trans ? type->block_bytes : row, trans };
	kvi_put32(rebuilding->out, (uint32_t)type->type);
	if (trans) {
		kvi_put32(rebuilding->out, type->block_bytes);
		kvi_put32(rebuilding->out, rebuilt->width);
	} else {
		kvi_put64(rebuilding->out, row);
	}
	put_literal(rebuilding);
	struct kvi_area_view *views = kvi_array(rebuilding->alloc, type->n_planes, sizeof *views);
	if (!views)
		return kvi_alloc_error(rebuilding->alloc);
	for (uint8_t i = 0; i < type->n_planes; i++) {
		views[i] = kvi_ggml_view(type, &type->planes[i], &rows);
		views[i].tensor = rebuilt->tensor[i];
	}
	struct kvi_piece *p = &rebuilding->plan->pieces[rebuilding->plan->n_pieces++];
	*p = (struct kvi_piece){ .type = KVI_PIECE_AREA,
		                 .track = rebuilding->track,
		                 .bytes = row * rebuilding->n,
		                 .n_tokens = rebuilding->n,
		                 .n_views = type->n_planes,
		                 .views = views };
	rebuilding->plan->file_bytes += p->bytes;
	return KVARC_OK;
}

static kvarc_ret put_file(struct rebuilding *rebuilding)
{
	size_t n = (size_t)rebuilding->n_layers * (rebuilding->has_values ? 2 : 1);
	kvarc_ret ret = KVARC_OK;
	rebuilding->plan->kind = rebuilding->d.session ? KVI_ITEM_LLAMA_SESSION
	                                               : KVI_ITEM_LLAMA_SEQ;
	rebuilding->plan->pieces = kvi_calloc(rebuilding->alloc, 2 * n + 1,
	                                      sizeof *rebuilding->plan->pieces);
	if (!rebuilding->plan->pieces)
		return kvi_alloc_error(rebuilding->alloc);
	put_tokens(rebuilding);
	put_cells(rebuilding);
	for (size_t i = 0; i < n && !ret; i++)
		ret = put_matrix(rebuilding, &rebuilding->keys[i],
		                 i >= rebuilding->n_layers && rebuilding->d.transposed);
	for (uint32_t i = rebuilding->d.stream + 1; i < rebuilding->d.streams; i++)
		kvi_put32(rebuilding->out, 0);
	put_literal(rebuilding);
	return ret || !rebuilding->out->failed ? ret : kvi_alloc_error(rebuilding->alloc);
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
	uint64_t flags, state_version;
	const kvarc_sink *sink; /* NULL: nothing is written */
	struct kvi_llama_item item;
	struct kvi_llama_short shorter;
	struct kvi_llama_map map;
	kvarc_slot_prefix *prefix;
};

static kvarc_ret refuse_export(struct llama_export *export, const char *why)
{
	export->prefix->why = why;
	return kvi_fail(kvi_reader_error(export->r), KVARC_OPTIONS,
	                "no llama.cpp file can be written: %s", why);
}

static kvarc_ret no_memory(struct llama_export *export, kvarc_ret ret)
{
	return kvi_reader_fail(export->r, ret, "not enough memory for a llama.cpp file");
}

/* Whether an engine can restore a range: all layers, from the first token on. NULL: yes. */
static const char *check_range(const struct llama_export *export)
{
	const kvarc_geometry *g = kvarc_reader_geometry(export->r);
	if (export->range.t0)
		return "an engine restores tokens from the first one on";
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].track == export->range.track &&
		    !kvi_range_has(&export->range, &g->tensors[i]))
			return "an engine restores all layers";
	return NULL;
}

/* The file in the archive, or one that is made. */
static kvarc_ret open_item(struct llama_export *export)
{
	struct kvi_restore plan = { 0 };
	struct kvi_out literals;
	const char *why = NULL;
	bool first;
	size_t i = kvi_llama_item_find(export->r, export->range.track, &first);
	if (i < kvi_reader_n_items(export->r)) {
		if (!first)
			return refuse_export(export, "the track is not the first one of its file");
		kvarc_ret ret = kvi_llama_item_open(&export->item, export->r, i);
		return ret == KVARC_END
		               ? refuse_export(export, "bytes outside its tensors are lost")
		               : ret;
	}
	kvi_out_init(&literals, kvi_reader_alloc(export->r));
	kvarc_ret ret = kvi_llama_rebuild(export->r, export->range.track, export->range.n, &plan,
	                                  &literals, &why);
	if (ret == KVARC_END)
		ret = refuse_export(export, why);
	if (!ret)
		ret = kvi_llama_item_make(&export->item, export->r, &plan, literals.p, literals.n);
	export->item.rebuilt = true;
	kvi_restore_free(&plan, kvi_reader_alloc(export->r));
	kvi_out_free(&literals);
	return ret;
}

/* Makes the file one of the version that is asked for. */
static kvarc_ret convert(struct llama_export *export)
{
	const char *why = NULL;
	if (!export->state_version)
		return KVARC_OK;
	kvarc_ret ret = kvi_llama_convert(&export->item, export->r,
	                                  (uint32_t) export->state_version, &why);
	return ret == KVARC_END ? refuse_export(export, why ? why : "it is none") : ret;
}

/* Chooses the number of tokens of the file. */
static kvarc_ret choose(struct llama_export *export)
{
	struct kvi_llama_short *s = &export->shorter;
	const char *why = NULL;
	kvarc_ret ret = kvi_llama_parse(&s->f, s->alloc, s->s, &why);
	if (ret == KVARC_END)
		return refuse_export(export, why ? why : "it is none");
	if (!ret)
		ret = kvi_llama_choose(s);
	if (ret)
		return ret;
	/* where all cells are wanted the list is whole, and may name more tokens than the cells */
	export->prefix->tokens = s->all || s->f.n_tokens < s->limit ? s->f.n_tokens : s->limit;
	why = s->all && kvi_llama_all_whole(s, true) ? NULL : kvi_llama_obstacle(s);
	if (!why && s->tokens == 0)
		why = s->base ? "the sliding window or the recurrent state that goes with these "
		                "tokens is not there, and no context checkpoint before"
		              : "no token from position 0 on is whole in all layers";
	if (why)
		return refuse_export(export, why);
	export->prefix->whole_tokens = s->tokens;
	if ((export->flags & KVARC_LLAMA_EXACT) && s->tokens < export->prefix->tokens)
		return refuse_export(export, "an engine can go on from fewer tokens alone");
	return KVARC_OK;
}

/* Writes literal bytes, then the elements. */
static kvarc_ret write_file(struct llama_export *export)
{
	struct kvi_llama_short *s = &export->shorter;
	const kvarc_geometry *g = kvarc_reader_geometry(export->r);
	struct kvi_token_span *spans = kvi_calloc(s->alloc, g->n_tracks, sizeof *spans);
	kvarc_ret ret = spans ? kvi_llama_put(s) : kvi_alloc_error(s->alloc);
	export->prefix->bytes = s->at;
	if (!ret)
		ret = kvi_llama_map_sort(&export->map);
	if (ret == KVARC_IO)
		ret = kvi_reader_fail(export->r, ret, "writing the file failed");
	else if (ret)
		ret = no_memory(export, ret);
	if (!ret && export->sink) {
		kvarc_sink sink = kvi_llama_map_sink(&export->map);
		kvi_llama_map_spans(&export->map, spans);
		ret = kvi_unpack_elements(export->r, export->item.plan, &sink, spans);
	}
	if (!ret && export->sink && export->sink->flush &&
	    export->sink->flush(export->sink->opaque))
		ret = kvi_reader_fail(export->r, KVARC_IO, "writing the file failed");
	kvi_free(s->alloc, spans);
	return ret;
}

static kvarc_ret export_item(struct llama_export *export)
{
	struct kvi_llama_short *s = &export->shorter;
	*s = (struct kvi_llama_short){ .alloc = kvi_reader_alloc(export->r),
		                       .plan = export->item.plan,
		                       .whole = export->item.whole,
		                       .limit = export->limit,
		                       .strict = export->item.rebuilt,
		                       .sink = export->sink,
		                       .map = &export->map };
	export->map = (struct kvi_llama_map){ .alloc = s->alloc,
		                              .plan = export->item.plan,
		                              .starts = export->item.starts,
		                              .sink = export->sink };
	s->s = kvi_scan_open(s->alloc, &export->item.source);
	s->buffer = kvi_malloc(s->alloc, KVI_LLAMA_COPY_BYTES);
	kvarc_ret ret = s->s && s->buffer ? choose(export) : kvi_alloc_error(s->alloc);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		ret = no_memory(export, ret);
	if (!ret)
		ret = write_file(export);
	kvi_llama_map_free(&export->map);
	kvi_llama_free(&s->f, s->alloc);
	kvi_free(s->alloc, s->buffer);
	kvi_free(s->alloc, s->s);
	return ret;
}

static kvarc_ret check_arguments(kvarc_reader *r, const kvarc_sink *sink,
                                 const kvarc_llama_options *options)
{
	kvarc_error *e = kvi_reader_error(r);
	kvarc_ret ret = sink ? kvi_check_sink(e, "kvarc_export_llama", sink) : KVARC_OK;
	if (ret || !options)
		return ret;
	if (options->flags & ~(uint64_t)KVARC_LLAMA_EXACT)
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_export_llama: kvarc_llama_options.flags has unknown bits");
	if (options->state_version && (options->state_version < KVI_LLAMA_OLDEST_STATE ||
	                               options->state_version > KVI_LLAMA_LATEST_STATE))
		return kvi_fail(
			e, KVARC_PROG,
			"kvarc_export_llama: kvarc_llama_options.state_version is not known: "
			"give 2 to 4");
	return KVI_CHECK_RESERVED(e, "kvarc_export_llama", "kvarc_llama_options", options);
}

kvarc_ret kvarc_export_llama(kvarc_reader *r, const kvarc_range *range, const kvarc_sink *sink,
                             const kvarc_llama_options *options, kvarc_slot_prefix *prefix)
{
	kvarc_slot_prefix unused;
	if (!r || !range)
		return KVARC_PROG;
	struct llama_export x = { .r = r,
		                  .flags = options ? options->flags : 0,
		                  .state_version = options ? options->state_version : 0,
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
	ret = kvi_range_resolve(r, &x.range);
	if (ret)
		return ret;
	const char *why = check_range(&x);
	ret = why ? refuse_export(&x, why) : open_item(&x);
	if (!ret)
		ret = convert(&x);
	if (!ret)
		ret = export_item(&x);
	else if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		ret = no_memory(&x, ret);
	kvi_llama_item_free(&x.item);
	return ret;
}
