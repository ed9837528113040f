/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_open.c - how a writer begins and ends: a new archive, one that is appended to */
#include "config.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "writer_append.h"
#include "writer_frames.h"
#include "writer_predictors.h"
#include "writer_state.h"
#include "format/crypt.h"
#include "format/identity.h"
#include "format/params_header.h"
#include "format/superblock.h"
#include "reader/reader_frames.h"
#include "reader/reader_resume.h"
#include "reader/reader_internal.h"
#include "util/arguments.h"
#include "util/key_hash.h"
#include "util/string_field.h"

/* ==== The writer's public calls: open, geometry, identity, commit, close ==== */

enum { SEGMENT_TOKENS_MIN = 32 };
enum { CHUNK_BYTES_DEFAULT = 1 << 20, CHUNK_BYTES_MIN = 64 << 10 };
#define FLAGS_KNOWN                                                          \
	(KVARC_WRITE_VERIFY | KVARC_WRITE_STREAMABLE | KVARC_WRITE_FILE_ID | \
	 KVARC_WRITE_EMBED_PROFILE | KVARC_WRITE_STORED | KVARC_WRITE_KEEP_WHOLE)

static bool has_level(const struct kvi_profile *profile, unsigned level)
{
	for (size_t i = 0; i < profile->n_models; i++)
		if (profile->models[i].level == kvi_models_level(level))
			return true;
	return false;
}

int kvi_writer_level(const kvarc_writer_options *options)
{
	if (options->level == KVARC_LEVEL(0))
		return 0;
	/* An invalid level stays invalid. */
	return options->level == 0  ? KVARC_LEVEL_DEFAULT
	       : options->level < 0 ? INT_MIN
	                            : options->level;
}

static kvarc_ret options_check(const kvarc_writer_options *options, kvarc_error *error)
{
	const char *wrong = NULL;
	if (options->level < 0 || options->level > KVARC_LEVEL_MAX)
		return kvi_fail(error, KVARC_OPTIONS,
		                "kvarc_writer_options.level %d is unknown: KVARC_LEVEL(0) to "
		                "KVARC_LEVEL(%d)",
		                options->level, KVARC_LEVEL_MAX);
	if (options->flags & ~FLAGS_KNOWN)
		wrong = "unknown flags in the writer's options";
	else if (options->segment_tokens && (options->segment_tokens < SEGMENT_TOKENS_MIN ||
	                                     options->segment_tokens > KVI_SEGMENT_TOKENS))
		wrong = "segment_tokens is not 0 or 32 to 256";
	else if (options->token_ids != KVARC_TOKEN_IDS_STORED &&
	         options->token_ids != KVARC_TOKEN_IDS_MODEL)
		wrong = "token_ids is neither stored nor by the model";
	else if (options->lossy && !kvi_lossy_valid(options->lossy))
		wrong = "the lossy tier's numbers are out of range";
	else if ((options->flags & KVARC_WRITE_EMBED_PROFILE) && !options->profile)
		wrong = "a profile is to be embedded, but there is none";
	else if (!kvi_string_fits(options->profile_name) ||
	         !kvi_string_fits(options->predictor_name))
		wrong = "the name of the profile or the model is too long";
	if (wrong)
		return kvi_fail(error, KVARC_PROG, "kvarc_writer_open: %s", wrong);
	kvarc_ret ret = KVI_CHECK_RESERVED(error, "kvarc_writer_open", "kvarc_writer_options",
	                                   options);
	if (!ret)
		ret = kvi_crypt_check(error, "kvarc_writer_open", options->keys, true);
	if (!ret)
		ret = kvi_writer_parity_check(options->parity, error);
	if (ret)
		return ret;
	if (options->lossy && !options->lossy->token_rate &&
	    (options->lossy->select.keep || options->lossy->select.top ||
	     options->lossy->select.spread))
		return kvi_fail(error, KVARC_OPTIONS,
		                "keep, top and spread of a lossy tier need token scores");
	if (options->token_ids && options->level < KVI_LEVEL_MODEL)
		return kvi_fail(error, KVARC_OPTIONS,
		                "token ids can be coded by a model at levels 4 "
		                "to 8, not at level %d",
		                options->level);
	if (options->lossy && options->lossy->tier == KVARC_TIER_KLT &&
	    !(options->profile && has_level(kvi_profile_of(options->profile), KVI_LEVEL_BASIS)))
		return kvi_fail(error, KVARC_PREDICTOR,
		                "tier klt needs a profile with transforms of the model");
	if (options->level < KVI_LEVEL_PROFILE)
		return KVARC_OK;
	if (options->lossy)
		return kvi_fail(error, KVARC_OPTIONS,
		                "this lossy tier works with levels 0 and 1, not with level %d",
		                options->level);
	if (!options->profile)
		return kvi_fail(error, KVARC_PREDICTOR,
		                options->level >= KVI_LEVEL_MODEL && !options->predictor
		                        ? "level %d needs the model and a profile of it"
		                        : "level %d needs a profile of the model",
		                options->level);
	if (!has_level(kvi_profile_of(options->profile), (unsigned)options->level))
		return kvi_fail(error, KVARC_PREDICTOR, "the profile has no models of level %d",
		                options->level);
	if (options->level >= KVI_LEVEL_MODEL && !options->predictor)
		return kvi_fail(error, KVARC_PREDICTOR, "level %d needs the model", options->level);
	return KVARC_OK;
}

kvarc_ret kvarc_writer_open(kvarc_writer **out, const kvarc_sink *sink,
                            const kvarc_writer_options *options)
{
	static const kvarc_writer_options defaults = KVARC_WRITER_OPTIONS_INIT;
	kvarc_writer_options resolved = options ? *options : defaults;
	const kvarc_writer_options *o = &resolved;
	kvarc_error *e = o->common.error;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	resolved.level = kvi_writer_level(o);
	kvarc_ret ret = kvi_check_sink(e, "kvarc_writer_open", sink);
	if (!ret)
		ret = options_check(o, e);
	if (!ret)
		ret = kvi_handle_new(out, sizeof **out, offsetof(kvarc_writer, alloc), &o->common,
		                     o->common.memlimit);
	if (ret)
		return ret;
	kvarc_writer *w = *out;
	w->process = getpid();
	w->error = e;
	w->options = *o;
	if (o->lossy) {
		w->lossy = *o->lossy;
		w->options.lossy = &w->lossy;
	}
	w->options.common.overlap = o->common.overlap && (o->level > 0 || o->lossy);
	if (o->level >= KVI_LEVEL_MODEL)
		w->options.flags |= KVARC_WRITE_VERIFY;
	if (!w->options.segment_tokens)
		w->options.segment_tokens = KVI_SEGMENT_TOKENS;
	if (!w->options.chunk_bytes)
		w->options.chunk_bytes = CHUNK_BYTES_DEFAULT;
	if (w->options.chunk_bytes < CHUNK_BYTES_MIN)
		w->options.chunk_bytes = CHUNK_BYTES_MIN;
	w->out.alloc = &w->alloc;
	w->out.error = e;
	ret = kvi_writer_open_output(&w->out, sink, o->parity);
	w->options.parity = NULL;
	if (ret)
		kvarc_writer_abort(out);
	return ret;
}

void kvarc_writer_abort(kvarc_writer **out)
{
	kvarc_writer *w = out ? *out : NULL;
	if (!w)
		return;
	kvi_writer_free_workers(w);
	for (size_t i = 0; w->tracks && i < w->geometry.n_tracks; i++)
		if (w->tracks[i].waiting) {
			kvi_free(&w->alloc, w->tracks[i].waiting->data);
			kvi_free(&w->alloc, w->tracks[i].waiting);
		}
	for (size_t i = 0; w->tracks && i < w->geometry.n_tracks; i++) {
		kvi_token_coder_close(w->tracks[i].ids);
		kvi_prediction_close(w->tracks[i].prediction);
		kvi_free(&w->alloc, w->tracks[i].written.p);
		kvi_out_free(&w->tracks[i].written_contents);
	}
	for (size_t i = 0; w->groups && i < w->n_groups; i++)
		kvi_params_free(w->groups[i].params);
	kvi_free(&w->alloc, w->tracks);
	kvi_free(&w->alloc, w->tokens);
	kvi_free(&w->alloc, w->groups);
	kvi_free(&w->alloc, w->plan);
	kvi_identity_free(&w->identity, &w->alloc);
	kvi_order_free(&w->order, &w->alloc);
	kvi_geometry_free(&w->geometry, &w->alloc);
	kvi_writer_close_output(&w->out);
	kvarc_reader_close(&w->archive);
	kvi_free(&w->alloc, w);
	*out = NULL;
}

/* Bytes of one head of a tensor, a token. */
static uint32_t head_bytes(const kvarc_tensor *tensor)
{
	return tensor->channels * (uint32_t)kvarc_dtype_bytes(tensor->dtype);
}

/* The tokens of a segment of a track: fewer where one head of a full one exceeds chunk_bytes. */
static uint32_t track_tokens(const kvarc_writer *w, uint32_t track)
{
	uint32_t n = w->options.segment_tokens;
	for (uint32_t i = w->order.first[track]; i < w->order.first[track + 1]; i++) {
		uint32_t most = w->options.chunk_bytes /
		                head_bytes(&w->geometry.tensors[w->order.tensors[i]]);
		if (n > most)
			n = most ? most : 1;
	}
	return n;
}

/* Cuts the tensors of a track into groups of heads, or counts them. */
static uint32_t cut_groups(kvarc_writer *w, uint32_t track, uint32_t at, struct kvi_group *groups)
{
	const struct kvi_writer_track *t = &w->tracks[track];
	for (uint32_t i = w->order.first[track]; i < w->order.first[track + 1]; i++) {
		uint32_t tensor = w->order.tensors[i];
		const kvarc_tensor *x = &w->geometry.tensors[tensor];
		uint32_t one = head_bytes(x) * t->segment_tokens;
		uint32_t most = w->options.chunk_bytes / one;
		if (w->plan && w->plan->of[i].model)
			most = x->heads; /* spec linear */
		else if (most == 0)
			most = 1;
		for (uint32_t h = 0; h < x->heads; h += most, at++) {
			uint32_t n = x->heads - h < most ? x->heads - h : most;
			if (w->chunk_max < n * one)
				w->chunk_max = n * one;
			if (groups)
				groups[at] = (struct kvi_group){ .tensor = tensor,
					                         .order_index = i,
					                         .head = (uint16_t)h,
					                         .heads = (uint16_t)n };
		}
	}
	return at;
}

static kvarc_ret make_tracks(kvarc_writer *w)
{
	size_t n = w->geometry.n_tracks;
	uint32_t groups = 0;
	w->tracks = kvi_calloc(&w->alloc, n, sizeof *w->tracks);
	w->tokens = kvi_calloc(&w->alloc, n, sizeof *w->tokens);
	if (!w->tracks || !w->tokens)
		return kvi_fail_alloc(w->error, &w->alloc);
	for (uint32_t i = 0; i < n; i++) {
		kvi_out_init(&w->tracks[i].written_contents, &w->alloc);
		w->tracks[i].segment_tokens = track_tokens(w, i);
		w->tracks[i].first_group = groups;
		groups = cut_groups(w, i, groups, NULL);
		w->tracks[i].end_group = groups;
	}
	if (groups == 0)
		return KVARC_OK;
	w->groups = kvi_calloc(&w->alloc, groups, sizeof *w->groups);
	if (!w->groups)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->n_groups = groups;
	for (uint32_t i = 0; i < n; i++)
		cut_groups(w, i, w->tracks[i].first_group, w->groups);
	return KVARC_OK;
}

/* Makes tracks, groups and models for a geometry, which is copied; writes nothing. Returns OK, MEM,
 * MEMLIMIT, PREDICTOR, OPTIONS. */
static kvarc_ret take_geometry(kvarc_writer *w, const kvarc_geometry *geometry)
{
	if (kvi_geometry_copy(&w->geometry, &w->alloc, geometry) ||
	    kvi_order_make(&w->order, &w->alloc, &w->geometry))
		return kvi_fail_alloc(w->error, &w->alloc);
	kvarc_ret ret = kvi_writer_plan(w);
	if (ret == KVARC_OK)
		ret = make_tracks(w);
	if (ret == KVARC_OK && w->plan)
		ret = kvi_writer_predictions(w);
	return ret;
}

static kvarc_ret set_geometry(kvarc_writer *w, const kvarc_geometry *geometry)
{
	struct kvi_index_entry entry = { 0 };
	kvarc_ret ret = take_geometry(w, geometry);
	if (ret == KVARC_OK)
		ret = kvi_writer_begin_file(&w->out, &w->options);
	if (ret)
		return ret;
	w->options.keys = NULL; /* the caller may wipe them */
	w->has_geometry = true;
	w->out.content.n = 0;
	kvi_geometry_put(&w->out.content, &w->geometry);
	if (w->out.content.failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->geometry_hash = kvi_b128(w->out.content.p, w->out.content.n);
	return kvi_writer_emit_content(&w->out, KVI_FRAME_GEOMETRY, w->out.content.p,
	                               w->out.content.n, true, &entry);
}

kvarc_ret kvarc_writer_set_geometry(kvarc_writer *w, const kvarc_geometry *geometry)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	if (w->has_geometry || !geometry)
		return kvi_fail(w->error, KVARC_PROG, "kvarc_writer_set_geometry: %s",
		                geometry ? "the geometry is set already" : "geometry is NULL");
	kvarc_ret ret = kvi_check_geometry(geometry, "kvarc_writer_set_geometry", w->error);
	if (ret)
		return ret;
	return kvi_writer_set_error(w, set_geometry(w, geometry));
}

kvarc_ret kvi_writer_frame(kvarc_writer *w, uint16_t type, const void *content, size_t bytes,
                           bool packed)
{
	struct kvi_index_entry entry = { 0 };
	if (kvi_writer_refuses(w))
		return w->sticky;
	if (!w->has_geometry || (w->started && type != KVI_FRAME_RESTORE &&
	                         type != KVI_FRAME_BLOB && type != KVI_FRAME_PROFILE))
		return kvi_fail(w->error, KVARC_PROG,
		                "identity and files are written between geometry and tokens");
	kvarc_ret ret = kvi_writer_flush_tracks(w);
	if (!ret)
		ret = kvi_writer_emit_content(&w->out, type, content, bytes, packed, &entry);
	return kvi_writer_set_error(w, ret);
}

kvarc_ret kvarc_writer_identity(kvarc_writer *w, size_t n, const char *const keys[],
                                const char *const values[])
{
	struct kvi_identity id = { 0 };
	kvarc_ret ret = KVARC_OK;
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	if (n && (!keys || !values))
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_identity: keys or values are NULL");
	if (w->resumed.n_segments)
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_identity: the tokens of an archive that is appended "
		                "to have their identity");
	for (size_t i = 0; i < n && ret == KVARC_OK; i++)
		ret = kvi_identity_set(&id, &w->alloc, keys[i], values[i]);
	for (size_t i = 0; i < id.n && ret == KVARC_OK; i++)
		ret = kvi_identity_set(&w->identity, &w->alloc, id.pairs[i].key, id.pairs[i].value);
	if (ret == KVARC_PROG)
		kvi_fail(w->error, ret,
		         "kvarc_writer_identity: too many pairs, or one that is NULL or too long");
	else if (ret)
		kvi_writer_set_error(w, kvi_fail_alloc(w->error, &w->alloc));
	struct kvi_out out;
	kvi_out_init(&out, &w->alloc);
	if (ret == KVARC_OK && n) {
		kvi_identity_put(&out, &id);
		ret = out.failed ? kvi_writer_set_error(w, kvi_fail_alloc(w->error, &w->alloc))
		                 : kvi_writer_frame(w, KVI_FRAME_IDENTITY, out.p, out.n, true);
	}
	kvi_out_free(&out);
	kvi_identity_free(&id, &w->alloc);
	return ret;
}

static kvarc_ret commit(kvarc_writer *w)
{
	kvarc_ret ret = kvi_writer_flush_tracks(w);
	if (ret == KVARC_OK && w->out.uncommitted)
		ret = kvi_writer_emit_commit(w, NULL);
	return ret ? ret : kvi_writer_flush(&w->out, true);
}

kvarc_ret kvarc_writer_commit(kvarc_writer *w)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	if (!w->has_geometry)
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_commit: call kvarc_writer_set_geometry first");
	return kvi_writer_set_error(w, commit(w));
}

void kvi_writer_set_ends(kvarc_writer *w)
{
	w->ends = true;
}

void kvarc_writer_get_stats(const kvarc_writer *w, kvarc_writer_stats *stats)
{
	if (w && stats)
		*stats = w->out.stats;
}

kvarc_ret kvarc_writer_close(kvarc_writer **out)
{
	kvarc_writer *w = out ? *out : NULL;
	if (!w)
		return KVARC_PROG;
	kvarc_ret ret = kvi_writer_refuses(w) ? w->sticky : KVARC_OK;
	if (ret == KVARC_OK && !w->has_geometry)
		ret = kvi_fail(w->error, KVARC_PROG,
		               "kvarc_writer_close: call kvarc_writer_set_geometry first");
	if (ret == KVARC_OK)
		ret = kvi_writer_flush_tracks(w);
	if (ret == KVARC_OK)
		ret = kvi_writer_finish(w);
	if (ret == KVARC_OK)
		ret = kvi_writer_flush(&w->out, false);
	kvarc_writer_abort(out);
	return ret;
}

/* ==== A writer that continues an archive (spec 9.3) ==== */

static kvarc_ret open_archive(kvarc_writer *w, const kvarc_source *source)
{
	kvarc_reader_options o = { .common = w->options.common, .keys = w->options.keys };
	uint64_t used = atomic_load(&w->alloc.used);
	o.common.progress = NULL;
	o.stored_read = w->options.stored_read;
	o.stored_opaque = w->options.stored_opaque;
	o.common.memlimit = w->alloc.limit > used ? w->alloc.limit - used : 1;
	kvarc_ret ret = kvi_check_source(w->error, "kvarc_writer_open_append", source, true);
	if (ret)
		return ret;
	if (source->size == KVARC_UNKNOWN)
		return kvi_reason(w->error, KVARC_REASON_NEEDS_SEEK,
		                  kvi_fail(w->error, KVARC_OPTIONS,
		                           "kvarc_writer_open_append needs a source that can seek, "
		                           "not a pipe"));
	return kvarc_reader_open(&w->archive, source, &o);
}

/* Leaves the writer the memory that the reader of the archive leaves of the limit. */
static void share_limit(kvarc_writer *w)
{
	uint64_t used = atomic_load(&kvi_reader_alloc(w->archive)->used);
	w->alloc.limit = w->alloc.limit > used ? w->alloc.limit - used : 1;
}

/* Checks that the archive allows what the options ask for. */
static kvarc_ret check_options(kvarc_writer *w)
{
	const kvarc_writer_options *o = &w->options;
	const struct kvi_resume *from = &w->resumed;
	static const uint8_t none[sizeof o->file_id];
	bool id = o->flags & KVARC_WRITE_FILE_ID || memcmp(o->file_id, none, sizeof none);
	if (id && memcmp(o->file_id, from->superblock->file_id, sizeof o->file_id))
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_open_append: file_id is not that of the archive");
	if (o->level >= KVI_LEVEL_MODEL)
		return kvi_fail(w->error, KVARC_OPTIONS,
		                "kvarc_writer_open_append: level %d needs a model to go through "
		                "all tokens again; append at levels 0 to 3, then compact",
		                o->level);
	if (o->lossy && from->n_segments && !kvi_identity_get(from->identity, "lossy"))
		return kvi_fail(w->error, KVARC_LOSSY,
		                "a lossy tier is asked for, but the archive holds tokens without "
		                "one and says so: write another archive");
	return KVARC_OK;
}

static kvarc_ret take_identity(kvarc_writer *w)
{
	const struct kvi_identity *id = w->resumed.identity;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < id->n && !ret; i++)
		ret = kvi_identity_set(&w->identity, &w->alloc, id->pairs[i].key,
		                       id->pairs[i].value);
	return ret ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* Whether positions of tokens that were left out may come last (spec 5.1). */
static bool leaves_out(const char *lossy)
{
	static const char end[] = " tokens left out";
	size_t n = lossy ? strlen(lossy) : 0;
	return n >= sizeof end - 1 && !strcmp(lossy + n - (sizeof end - 1), end);
}

/* Continues the tracks. lenient: the last segment may be damaged, if a rewind replaces it first. */
static kvarc_ret take_tracks(kvarc_writer *w, bool lenient)
{
	const bool unknown = leaves_out(kvi_identity_get(w->resumed.identity, "lossy"));
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < w->geometry.n_tracks && !ret; i++) {
		struct kvi_writer_track *t = &w->tracks[i];
		struct kvi_track_end end;
		const uint64_t tokens = kvarc_reader_tokens(w->archive, i);
		ret = kvi_reader_track_end(w->archive, i, tokens, &end);
		if (ret == KVARC_DATA && lenient) {
			end = (struct kvi_track_end){ .no_position = true };
			ret = KVARC_OK;
		}
		t->archived = i;
		t->n_written = t->n_committed = t->n_submitted = tokens;
		t->n_appended = t->n_total = t->n_written;
		t->next_position = end.position;
		t->chain = end.chain;
		t->wants_positions = (unknown && t->n_written) || end.no_position;
		t->item_tokens = kvi_reader_item_tokens(w->archive, i);
	}
	return ret;
}

/* The last PREDICTOR of the archive serves where it says what a new one would say. */
static void take_predictor(kvarc_writer *w)
{
	const bool embedded = w->options.flags & KVARC_WRITE_EMBED_PROFILE;
	uint64_t sequence = w->plan ? kvi_reader_predictor_like(w->archive, w->resumed.sequence,
	                                                        &w->predictor.content, embedded)
	                            : 0;
	if (sequence)
		w->predictor.sequence = sequence;
}

/* The group of a PARAMS frame that has none yet; NULL: there is none. */
static struct kvi_group *group_of(kvarc_writer *w, const struct kvi_params_ref *params)
{
	const struct kvi_writer_track *t;
	if (params->copy_of || params->tensor >= w->geometry.n_tensors)
		return NULL;
	t = &w->tracks[w->geometry.tensors[params->tensor].track];
	for (uint32_t i = t->first_group; i < t->end_group; i++) {
		struct kvi_group *g = &w->groups[i];
		if (g->tensor == params->tensor && g->head == params->head &&
		    g->heads == params->heads)
			return g->params_sequence ? NULL : g;
	}
	return NULL;
}

/* Takes the parameters of a group; what cannot be used is left out. */
static kvarc_ret take_params(kvarc_writer *w, struct kvi_group *group,
                             const struct kvi_params_ref *params)
{
	kvarc_reader *r = w->archive;
	const kvarc_tensor *t = &w->geometry.tensors[group->tensor];
	struct kvi_out content;
	struct kvi_params_header h;
	kvi_out_init(&content, kvi_reader_alloc(r));
	group->params_sequence = params->sequence;
	kvarc_ret ret = kvi_reader_content(r, params->offset, KVI_FRAME_PARAMS, params->sequence,
	                                   &content);
	if (!ret && kvi_params_header_parse(&h, content.p, content.n) &&
	    h.tensor == group->tensor && h.head == group->head && h.heads == group->heads) {
		ret = kvi_params_parse(&group->params, &w->alloc, h.codec, t->dtype, h.heads,
		                       t->channels, kvi_tensor_rope(&w->geometry, t),
		                       content.p + KVI_PARAMS_HEADER_BYTES,
		                       content.n - KVI_PARAMS_HEADER_BYTES);
		if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
			kvi_fail_alloc(w->error, &w->alloc);
		/* Another encoder may have left out symbols that come now. */
		if (!ret && !kvi_params_may_encode(group->params)) {
			kvi_params_free(group->params);
			group->params = NULL;
		}
	}
	kvi_out_free(&content);
	return ret == KVARC_DATA || ret == KVARC_OPTIONS ? KVARC_OK : ret;
}

/* The last PARAMS of each group: short segments have none of their own. */
static kvarc_ret take_all_params(kvarc_writer *w)
{
	const struct kvi_list *l = w->resumed.params;
	kvarc_ret ret = KVARC_OK;
	size_t left = w->options.flags & KVARC_WRITE_STREAMABLE ? 0 : w->n_groups;
	for (size_t i = l->n; i-- > 0 && left && !ret;) {
		const struct kvi_params_ref *p = KVI_LIST(struct kvi_params_ref, *l, i);
		struct kvi_group *g = group_of(w, p);
		if (!g)
			continue;
		ret = take_params(w, g, p);
		left--;
	}
	return ret;
}

/* Continues the archive that w->archive reads. */
static kvarc_ret resume(kvarc_writer *w, bool lenient)
{
	struct kvi_resume *end = &w->resumed;
	share_limit(w);
	kvarc_ret ret = kvi_reader_resume(w->archive, lenient, end);
	if (!ret)
		ret = check_options(w);
	if (!ret)
		ret = take_geometry(w, kvarc_reader_geometry(w->archive));
	if (!ret)
		ret = take_identity(w);
	if (!ret)
		ret = take_tracks(w, lenient);
	if (!ret)
		ret = take_all_params(w);
	if (!ret)
		take_predictor(w);
	w->geometry_hash = end->geometry_hash;
	w->has_geometry = !ret;
	if (!ret)
		ret = kvi_writer_continue_file(&w->out, &w->resumed, w->options.keys);
	w->options.keys = NULL; /* the caller may wipe them */
	kvi_out_free(&end->pending.entries);
	return ret;
}

kvarc_ret kvi_writer_open_behind(kvarc_writer **w, kvarc_reader **archive, const kvarc_sink *sink,
                                 const kvarc_writer_options *options)
{
	kvarc_ret ret = kvarc_writer_open(w, sink, options);
	if (!ret) {
		(*w)->archive = *archive;
		*archive = NULL;
		ret = resume(*w, true);
	}
	if (ret && w)
		kvarc_writer_abort(w);
	return ret;
}

kvarc_ret kvarc_writer_open_append(kvarc_writer **w, const kvarc_source *source,
                                   const kvarc_sink *sink, const kvarc_writer_options *options)
{
	kvarc_ret ret = kvarc_writer_open(w, sink, options);
	if (!ret)
		ret = open_archive(*w, source);
	if (!ret)
		ret = resume(*w, false);
	if (ret && w)
		kvarc_writer_abort(w);
	return ret;
}
