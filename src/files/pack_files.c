/* SPDX-License-Identifier: BSD-3-Clause */
/* pack_files.c - an import becomes an archive */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "codecs/codec.h"
#include "format/frame.h"
#include "format/geometry_check.h"
#include "format/levels.h"
#include "counted.h"
#include "input_hash.h"
#include "plan.h"
#include "import_internal.h"
#include "item_put.h"
#include "pack_files.h"
#include "pack_parts.h"
#include "prefixes.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/pool.h"
#include "writer/writer_internal.h"

enum {
	NOTE_BYTES = 512,
	OWN_PAIRS = 5,
	BATCH_SEGMENTS = 16 /* segments that are appended at once */
};

struct packing {
	kvarc_import *im;
	kvarc_writer *w;
	kvarc_writer_options options;
	struct kvi_pack_checkpoint *checkpoint; /* NULL: none */
	struct kvi_restore *plans;              /* by item */
	struct kvi_prefix *prefixes;            /* by track; NULL: not looked for */
	const char **keys, **values;
	size_t n_pairs, n_own;    /* n_own: leading pairs that do not come from the caller */
	uint64_t tokens, dropped; /* tokens of all tracks; tokens that a tier leaves out */
	char note[NOTE_BYTES];
	bool whole; /* files are literal bytes alone, and there are no tensors */
};

/* The geometry of files that are kept whole: an archive needs a track. */
static const kvarc_track no_tokens = { .label = "" };
static const kvarc_geometry no_tensors = { .n_tracks = 1, .tracks = &no_tokens };

static const kvarc_geometry *geometry_of(const struct packing *packing)
{
	return packing->whole ? &no_tensors : &packing->im->geometry;
}

static void add_pair(struct packing *packing, const char *key, const char *value)
{
	if (!value || !*value || kvi_identity_get(&packing->im->identity, key))
		return;
	packing->keys[packing->n_pairs] = key;
	packing->values[packing->n_pairs++] = value;
}

/* Tokens that are appended at once, but for a model on a GPU. */
static uint32_t batch_of(const kvarc_writer_options *options)
{
	uint32_t segment = options->segment_tokens ? options->segment_tokens : 256;
	return segment * BATCH_SEGMENTS;
}

/* Counts the tokens of a track that the writer will leave out. */
static uint64_t drops(const struct packing *packing, uint64_t n)
{
	uint64_t batch = batch_of(&packing->options), dropped = 0;
	for (uint64_t t0 = 0; t0 < n; t0 += batch) {
		uint64_t end = n - t0 < batch ? n : t0 + batch;
		for (uint64_t i = t0; i < end; i++)
			dropped += kvi_lossy_rate_at(packing->options.lossy, i, end) ==
			           KVARC_LOSSY_DROP;
	}
	return dropped;
}

/* The note of the tier, with the number of dropped tokens: readers count by that. */
static const char *make_note(struct packing *packing)
{
	const kvarc_lossy *how = packing->options.lossy;
	for (uint32_t i = 0; how && how->token_rate && i < packing->im->n_tracks; i++) {
		packing->tokens += packing->im->tracks[i].n;
		packing->dropped += drops(packing, packing->im->tracks[i].n);
	}
	if (!packing->dropped)
		return how ? how->note : NULL;
	snprintf(packing->note, sizeof packing->note,
	         "%.400s%s%" PRIu64 " of %" PRIu64 " tokens left out", how->note ? how->note : "",
	         how->note ? "; " : "", packing->dropped, packing->tokens);
	return packing->note;
}

/* The library's own pairs in ascending order of the keys, then those of the caller, likewise. */
static kvarc_ret make_identity(struct packing *packing)
{
	const struct kvi_identity *given = &packing->im->identity;
	size_t most = OWN_PAIRS + given->n;
	packing->keys = kvi_array(&packing->im->alloc, most, 2 * sizeof *packing->keys);
	if (!packing->keys)
		return kvi_fail_alloc(packing->options.common.error, &packing->im->alloc);
	packing->values = packing->keys + most;
	add_pair(packing, "created_by", "kvarc " KVARC_VERSION_STRING);
	add_pair(packing, "engine", packing->im->engine);
	add_pair(packing, "layout", packing->whole ? NULL : packing->im->layout);
	add_pair(packing, "lossy", make_note(packing));
	add_pair(packing, "model", kvarc_import_model(packing->im));
	packing->n_own = packing->n_pairs;
	for (size_t i = 0; i < given->n; i++) {
		if (!*given->pairs[i].value)
			continue;
		packing->keys[packing->n_pairs] = given->pairs[i].key;
		packing->values[packing->n_pairs++] = given->pairs[i].value;
	}
	return KVARC_OK;
}

static kvarc_ret make_plans(struct packing *packing)
{
	kvarc_import *im = packing->im;
	kvarc_ret (*const plan)(const kvarc_import *, uint32_t, struct kvi_restore *) =
		packing->whole ? kvi_plan_whole : kvi_plan_make;
	packing->plans = kvi_calloc(&im->alloc, im->n_items, sizeof *packing->plans);
	if (!packing->plans)
		return kvi_fail_alloc(packing->options.common.error, &im->alloc);
	for (uint32_t i = 0; i < im->n_items; i++)
		if (plan(im, i, &packing->plans[i]))
			return kvi_fail_alloc(packing->options.common.error, &im->alloc);
	return KVARC_OK;
}

static kvarc_ret read_failed(const kvarc_writer_options *options)
{
	return kvi_fail(options->common.error, KVARC_IO, "reading the input failed");
}

/* Adds the digest of the profile: it determines predictions and models of levels 4 to 7. */
static void put_profile(struct kvi_out *out, const kvarc_profile *profile)
{
	kvarc_profile_info info = { .levels = 0 };
	if (profile && kvarc_profile_get_info(profile, &info) == KVARC_OK)
		kvi_put_bytes(out, info.digest, sizeof info.digest);
}

static void put_name(struct kvi_out *out, const char *name)
{
	kvi_put_bytes(out, name ? name : "", strlen(name ? name : "") + 1);
}

/* The names that PREDICTOR frames record, and how a model is used. The name of a fitted profile
 * adds nothing, every other one does, none included: so archives of pack -2 keep their file id. */
static kvarc_ret put_predictor(struct kvi_out *out, const kvarc_writer_options *options)
{
	uint8_t digest[16];
	if (!options->profile_name || strcmp(options->profile_name, KVARC_PROFILE_NAME_FITTED))
		put_name(out, options->profile_name);
	if (kvi_writer_level(options) < KVI_LEVEL_MODEL || !options->predictor)
		return KVARC_OK;
	kvarc_ret ret = kvarc_predictor_digest(options->predictor, digest);
	if (ret)
		return kvi_fail(options->common.error, ret,
		                "the weights of the model cannot be read");
	kvi_put_bytes(out, digest, sizeof digest);
	put_name(out, options->predictor_name);
	kvi_put32(out, (uint32_t)options->arithmetic);
	kvi_put32(out, (uint32_t)options->loop);
	kvi_put32(out, (uint32_t)options->token_ids);
	return KVARC_OK;
}

static void put_rates(struct kvi_out *out, const int16_t *rates, uint64_t n)
{
	kvi_put64(out, rates ? n : 0);
	for (uint64_t i = 0; rates && i < n; i++)
		kvi_put16(out, (uint16_t)rates[i]);
}

/* Adds all numbers of the tier, as callers need not have a note. */
static void put_tier(struct kvi_out *out, const kvarc_lossy *lossy)
{
	const uint32_t numbers[] = { (uint32_t)lossy->tier,      (uint32_t)lossy->rate,
		                     (uint32_t)lossy->key_rate,  lossy->exact_tokens,
		                     lossy->generation,          lossy->flags,
		                     lossy->params.tsc.keyframe, lossy->params.tsc.block,
		                     lossy->params.vq.fallback,  lossy->params.bound.max_error,
		                     lossy->tail_tokens,         lossy->outliers };
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		kvi_put32(out, numbers[i]);
	put_rates(out, lossy->layer_rate, lossy->n_layers);
	put_rates(out, lossy->token_rate, lossy->n_token_rates);
}

static kvarc_ret put_settings(struct packing *packing, struct kvi_out *out)
{
	const kvarc_writer_options *o = &packing->options;
	const kvarc_lossy *l = o->lossy;
	kvarc_ret ret = KVARC_OK;
	kvi_put_bytes(out, KVARC_VERSION_STRING, sizeof KVARC_VERSION_STRING);
	kvi_put32(out, (uint32_t)kvi_writer_level(o));
	kvi_put32(out, o->flags & (KVARC_WRITE_STREAMABLE | KVARC_WRITE_EMBED_PROFILE));
	kvi_put32(out, o->segment_tokens);
	kvi_put32(out, o->chunk_bytes);
	if (kvi_writer_level(o) >= KVI_LEVEL_PROFILE || (l && l->tier == KVARC_TIER_KLT)) {
		put_profile(out, o->profile);
		ret = put_predictor(out, o);
	}
	if (l)
		put_tier(out, l);
	if (packing->n_pairs > packing->n_own)
		kvi_put32(out, (uint32_t)packing->n_own);
	for (size_t i = 0; i < packing->n_pairs; i++) {
		if (i >= packing->n_own)
			put_name(out, packing->keys[i]);
		put_name(out, packing->values[i]);
	}
	return ret;
}

/* Hashes all settings that determine the bytes of the archive, but not the input. */
static kvarc_ret hash_settings(struct packing *packing, struct kvi_h128 *hash)
{
	const struct kvi_alloc *alloc = &packing->im->alloc;
	struct kvi_out out;
	kvarc_geometry g;
	kvarc_ret ret = kvi_geometry_copy(&g, alloc, geometry_of(packing));
	if (ret)
		return kvi_fail_alloc(packing->options.common.error, alloc);
	kvi_out_init(&out, alloc);
	ret = put_settings(packing, &out);
	kvi_geometry_put(&out, &g);
	for (size_t i = 0; i < packing->im->n_items; i++)
		kvi_restore_put(&out, &packing->plans[i]);
	if (!ret && out.failed)
		ret = kvi_fail_alloc(packing->options.common.error, alloc);
	if (!ret)
		*hash = kvi_h128(out.p, out.n);
	kvi_geometry_free(&g, &packing->im->alloc);
	kvi_out_free(&out);
	return ret;
}

/*
 * The file id (spec 2): the same for the same input and settings, and for
 * nothing else. So all of the input is hashed, which costs one more pass.
 */
static kvarc_ret derive_file_id(struct packing *packing)
{
	static const uint8_t zero[16];
	struct kvi_h128 c;
	/* A hash of the input would identify the content of an encrypted archive. */
	if (packing->options.keys || (packing->options.flags & KVARC_WRITE_FILE_ID) ||
	    memcmp(packing->options.file_id, zero, sizeof zero))
		return KVARC_OK;
	kvarc_ret ret = hash_settings(packing, &c);
	if (ret)
		return ret;
	ret = kvi_input_hash(packing->im, &c);
	if (ret == KVARC_IO || ret == KVARC_END)
		ret = read_failed(&packing->options);
	else
		ret = kvi_fail_memory(packing->options.common.error, ret, &packing->im->alloc);
	if (!ret) {
		kvi_store_h128(packing->options.file_id, c);
		packing->options.flags |= KVARC_WRITE_FILE_ID;
	}
	return ret;
}

static kvarc_ret put_restores(struct packing *packing)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < packing->im->n_items && !ret; i++)
		ret = kvi_item_put_plan(packing->w, packing->options.common.error,
		                        &packing->im->alloc, &packing->plans[i]);
	return ret;
}

static kvarc_ret put_literals(struct packing *packing)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < packing->im->n_items && !ret; i++) {
		struct kvi_item_put x;
		kvi_item_put_begin(&x, packing->w, packing->options.common.error,
		                   &packing->im->alloc, i);
		ret = kvi_item_put_literals(&x, &packing->plans[i], &packing->im->items[i].src);
		ret = kvi_item_put_end(&x, ret);
	}
	return ret;
}

/* A kvarc_fetch for a writer whose track begins before the import's. */
struct shifted {
	kvarc_import *im;
	uint64_t shift;
};

static int fetch_shifted(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, void *dst)
{
	const struct shifted *s = opaque;
	return kvarc_import_fetch(s->im, tensor, head, heads, t0 - s->shift, n, dst);
}

static kvarc_ret append_fetch(void *opaque, kvarc_writer *w, uint32_t track, uint64_t n,
                              const int32_t *ids, const int32_t *positions, kvarc_fetch fetch,
                              void *fetch_opaque)
{
	(void)opaque;
	return kvarc_writer_append_fetch(w, track, n, ids, positions, fetch, fetch_opaque);
}

void kvarc_import_append_by(kvarc_import *im, kvarc_append_call append, void *opaque)
{
	if (!im)
		return;
	im->append = append;
	im->append_opaque = opaque;
}

kvarc_ret kvi_pack_tokens(kvarc_import *im, kvarc_writer *w, const kvarc_writer_options *options,
                          const struct kvi_pack_range *range)
{
	const struct kvi_imp_track *t = &im->tracks[range->track];
	const bool all = im->append && t->n && t->n <= UINT32_MAX &&
	                 kvi_writer_level(options) >= KVI_LEVEL_MODEL;
	const uint32_t batch = all ? (uint32_t)t->n : batch_of(options);
	const kvarc_append_call append = im->append ? im->append : append_fetch;
	struct shifted s = { im, range->shift };
	int32_t *positions = kvi_array(&im->alloc, batch, 2 * sizeof *positions);
	kvarc_ret ret = KVARC_OK;
	if (!positions)
		return kvi_fail_alloc(options->common.error, &im->alloc);
	int32_t *ids = positions + batch;
	for (uint64_t t0 = range->from, n; t0 < range->to && !ret; t0 += n) {
		n = range->to - t0 < batch ? range->to - t0 : batch;
		if (kvi_import_tokens(im, range->track, t0, (uint32_t)n, positions, ids))
			ret = read_failed(options);
		else
			ret = append(im->append_opaque, w, range->track, n, t->has_ids ? ids : NULL,
			             positions, fetch_shifted, &s);
	}
	kvi_free(&im->alloc, positions);
	return ret;
}

/* Whether tokens that several tracks begin with may be written once: no model has to go through all
 * tokens, no tier says which of a track are exact, and the archive may refer back. */
static bool may_share(const struct packing *packing)
{
	const kvarc_writer_options *o = &packing->options;
	return packing->im->n_tracks > 1 && !packing->whole && !o->lossy &&
	       kvi_writer_level(o) < KVI_LEVEL_MODEL && !(o->flags & KVARC_WRITE_STREAMABLE);
}

/* Writes the tokens of a track, but for those that it has of an earlier one. */
static kvarc_ret put_track(const struct packing *packing, uint32_t track)
{
	static const struct kvi_prefix none = { 0 };
	const struct kvi_prefix *p = packing->prefixes ? &packing->prefixes[track] : &none;
	const uint64_t end = packing->im->tracks[track].n;
	struct kvi_pack_range range = { .track = track, .to = p->shared };
	kvarc_ret ret = p->shared ? kvarc_writer_fork(packing->w, track, p->from, p->shared)
	                          : KVARC_OK;
	for (size_t i = 0; i <= p->n_cuts && !ret; i++) {
		range.from = range.to;
		range.to = i < p->n_cuts && p->cuts[i] < end ? p->cuts[i] : end;
		if (range.from < range.to)
			ret = kvi_pack_tokens(packing->im, packing->w, &packing->options, &range);
	}
	return ret;
}

static kvarc_ret write_all(struct packing *packing)
{
	const uint32_t n_tracks = packing->whole ? 0 : (uint32_t)packing->im->n_tracks;
	kvarc_ret ret = kvarc_writer_set_geometry(packing->w, geometry_of(packing));
	if (!ret)
		ret = kvarc_writer_identity(packing->w, packing->n_pairs, packing->keys,
		                            packing->values);
	/* A file with dropped tokens cannot be restored: it gets no items. */
	if (!ret && !packing->dropped)
		ret = put_restores(packing);
	if (!ret && !packing->dropped)
		ret = put_literals(packing);
	if (!ret && !packing->checkpoint)
		kvi_writer_set_ends(packing->w);
	for (uint32_t i = 0; i < n_tracks && !ret; i++)
		ret = put_track(packing, i);
	if (!ret && packing->checkpoint)
		ret = kvarc_writer_checkpoint(packing->w, packing->checkpoint->label,
		                              packing->checkpoint->time,
		                              &packing->checkpoint->number);
	return ret;
}

/* Little to code at levels 0 and 1 takes less time than threads do. */
static void spare_threads(struct packing *packing)
{
	kvarc_common *c = &packing->options.common;
	uint64_t bytes;
	kvarc_import_sizes(packing->im, NULL, &bytes);
	if (bytes >= KVI_POOL_STARTS || kvi_writer_level(&packing->options) > 1 ||
	    packing->options.lossy)
		return;
	c->threads = 1;
	c->overlap = 0;
}

static kvarc_ret run(struct packing *packing, const kvarc_sink *to, kvarc_writer_stats *stats)
{
	struct kvi_counted counted = { .to = *to };
	kvarc_sink sink = kvi_counted_sink(&counted);
	kvarc_ret ret = make_identity(packing);
	if (!ret)
		ret = make_plans(packing);
	/* A file that will grow is not its first content: its id is random. */
	if (!ret && !packing->checkpoint)
		ret = derive_file_id(packing);
	spare_threads(packing);
	if (!ret && may_share(packing))
		ret = kvi_prefixes_find(packing->im, &packing->prefixes);
	if (!ret)
		ret = kvarc_writer_open(&packing->w, &sink, &packing->options);
	if (!ret)
		ret = write_all(packing);
	return kvi_counted_close(&counted, &packing->w, ret, stats);
}

static void free_parts(struct packing *packing)
{
	for (size_t i = 0; packing->plans && i < packing->im->n_items; i++)
		kvi_restore_free(&packing->plans[i], &packing->im->alloc);
	kvi_free(&packing->im->alloc, packing->plans);
	kvi_prefixes_free(packing->im, packing->prefixes);
	kvi_free(&packing->im->alloc, packing->keys);
}

kvarc_ret kvi_pack_chain_root(kvarc_import *im, uint8_t root[16], kvarc_error *error)
{
	struct packing p = { .im = im, .options.common.error = error };
	kvarc_ret ret = make_identity(&p);
	if (!ret) {
		ret = kvarc_chain_root(&im->geometry, p.n_pairs, p.keys, p.values, root);
		ret = kvi_fail_memory(error, ret, &im->alloc);
	}
	free_parts(&p);
	return ret;
}

kvarc_ret kvi_pack_begin(kvarc_import *im, kvarc_writer *w, kvarc_error *error)
{
	struct packing p = { .im = im, .w = w, .options.common.error = error };
	kvarc_ret ret = kvarc_writer_set_geometry(w, &im->geometry);
	if (!ret)
		ret = make_identity(&p);
	if (!ret)
		ret = kvarc_writer_identity(w, p.n_pairs, p.keys, p.values);
	free_parts(&p);
	return ret;
}

kvarc_ret kvi_pack_items(kvarc_import *im, kvarc_writer *w, kvarc_error *error)
{
	struct packing p = { .im = im, .w = w, .options.common.error = error };
	kvarc_ret ret = make_plans(&p);
	if (!ret)
		ret = put_restores(&p);
	if (!ret)
		ret = put_literals(&p);
	free_parts(&p);
	return ret;
}

/* ==== Files that are smaller without tensors (KVARC_WRITE_KEEP_WHOLE) ==== */

/* Bytes of files that are kept whole, at most: the frames of a cache weigh on few tokens alone.
 * Bytes of files of which every archive is mostly frames, at most. Bytes that an archive may be
 * larger than its files. Tensors of files of TENSORS_LEAST bytes and more may cost one part in
 * TENSORS_COST of the archive without them. */
enum {
	WHOLE_MAX = 1 << 20,
	MOSTLY_FRAMES = 4 << 10,
	MAY_GROW = 200,
	TENSORS_LEAST = 64 << 10,
	TENSORS_COST = 32
};

/* Whether an archive without tensors may be wanted, in place of that of the cache. */
static bool may_keep_whole(const struct packing *packing)
{
	const kvarc_writer_options *o = &packing->options;
	uint64_t bytes;
	kvarc_import_sizes(packing->im, &bytes, NULL);
	return o->flags & KVARC_WRITE_KEEP_WHOLE && !packing->checkpoint && !o->lossy &&
	       packing->im->n_tensors && bytes <= WHOLE_MAX;
}

/* The write of a sink whose opaque is a struct kvi_out. */
static int write_memory(void *opaque, const void *bytes, size_t n, uint64_t offset)
{
	struct kvi_out *out = opaque;
	if (offset != out->n)
		return -1;
	kvi_put_bytes(out, bytes, n);
	return out->failed ? -1 : 0;
}

/* An archive in memory. */
static kvarc_ret run_to_memory(struct packing *packing, struct kvi_out *out,
                               kvarc_writer_stats *stats)
{
	const kvarc_sink sink = { .write = write_memory, .opaque = out };
	kvarc_ret ret = run(packing, &sink, stats);
	free_parts(packing);
	return out->failed ? kvi_fail_alloc(packing->options.common.error, out->alloc) : ret;
}

/* Writes an archive that is in memory. */
static kvarc_ret deliver(const struct kvi_out *archive, const kvarc_sink *sink, kvarc_error *error)
{
	errno = 0;
	if (sink->write(sink->opaque, archive->p, archive->n, 0) ||
	    (sink->flush && sink->flush(sink->opaque)))
		return kvi_fail_callback(error, 0, KVARC_UNKNOWN,
		                         "writing %zu bytes at offset 0 failed", archive->n);
	return KVARC_OK;
}

/* Whether files of `bytes` are kept whole, by the sizes of both archives; no_cache: the tensors
 * are none of a cache. Tensors are worth more than bytes of a file of which every archive is mostly
 * frames. */
static bool whole_wins(uint64_t bytes, size_t as_cache, size_t as_file, bool no_cache)
{
	if (bytes >= TENSORS_LEAST && as_file + as_file / TENSORS_COST < as_cache)
		return true;
	return as_file < as_cache &&
	       (no_cache || (as_cache > bytes + MAY_GROW &&
	                     (as_file <= bytes + MAY_GROW || bytes > MOSTLY_FRAMES)));
}

/* Packs the files as a cache, or whole where that is clearly smaller. */
static kvarc_ret run_either(struct packing *packing, const kvarc_sink *sink,
                            kvarc_writer_stats *stats)
{
	struct packing whole = { .im = packing->im, .options = packing->options, .whole = true };
	struct kvi_out as_cache, as_file;
	kvarc_writer_stats of_file;
	uint64_t bytes;
	kvarc_import_sizes(packing->im, &bytes, NULL);
	kvi_out_init(&as_cache, &packing->im->alloc);
	kvi_out_init(&as_file, &packing->im->alloc);
	kvarc_ret ret = run_to_memory(packing, &as_cache, stats);
	const bool no_cache = packing->im->typing;
	if (!ret && (as_cache.n > bytes + MAY_GROW || bytes >= TENSORS_LEAST || no_cache))
		ret = run_to_memory(&whole, &as_file, &of_file);
	const bool smaller = as_file.n && whole_wins(bytes, as_cache.n, as_file.n, no_cache);
	if (smaller && stats)
		*stats = of_file;
	if (!ret)
		ret = deliver(smaller ? &as_file : &as_cache, sink, packing->options.common.error);
	kvi_out_free(&as_cache);
	kvi_out_free(&as_file);
	return ret;
}

static kvarc_ret pack(kvarc_import *im, const kvarc_sink *sink, const kvarc_writer_options *options,
                      struct kvi_pack_checkpoint *checkpoint, kvarc_writer_stats *stats)
{
	static const kvarc_writer_options defaults = KVARC_WRITER_OPTIONS_INIT;
	struct packing p = { .im = im,
		             .options = options ? *options : defaults,
		             .checkpoint = checkpoint };
	kvarc_ret ret = kvi_check_sink(p.options.common.error, "kvarc_pack", sink);
	if (ret)
		return ret;
	if (p.options.segment_tokens > 256)
		return kvi_fail(p.options.common.error, KVARC_PROG,
		                "kvarc_pack: segment_tokens is at most 256");
	if (may_keep_whole(&p))
		return run_either(&p, sink, stats);
	ret = run(&p, sink, stats);
	free_parts(&p);
	return ret;
}

kvarc_ret kvarc_pack(kvarc_import *im, const kvarc_sink *sink, const kvarc_writer_options *options,
                     kvarc_writer_stats *stats)
{
	return im ? pack(im, sink, options, NULL, stats) : KVARC_PROG;
}

kvarc_ret kvi_pack_checkpoint(kvarc_import *im, const kvarc_sink *sink,
                              const kvarc_writer_options *options,
                              struct kvi_pack_checkpoint *checkpoint, kvarc_writer_stats *stats)
{
	return pack(im, sink, options, checkpoint, stats);
}
