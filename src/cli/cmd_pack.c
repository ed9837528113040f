/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_pack.c - kvarc pack: caches into archives */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "engine_files.h"
#include "gpu.h"
#include "identities.h"
#include "secrets.h"
#include "installed.h"
#include "library.h"
#include "lock.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "report.h"
#include "score_files.h"
#include "units.h"
#include "watch.h"
#include "attach.h"
#include "readers.h"

/* A file on its way into an archive. */
struct pack_job {
	const struct options *o;
	struct input in, model;
	struct watch watch;
	kvarc_source source, model_source;
	struct output out;
	char *target;
	int replaced; /* the locked file of that name, -1: none */
	kvarc_import *im;
	kvarc_profile *fitted;
	kvarc_error error;
	kvarc_writer_stats stats;
	uint64_t raw_bytes, tensor_bytes;
	uint64_t tokens; /* tokens that a model is run over; 0: there is no model */
	double start, seconds;
	kvarc_lossy tier;
	double max_error; /* limit for the error of attention outputs, by the tier; 0: not wanted */
	int16_t *token_rates;
	kvarc_gate *gate;
	int level; /* level of the archive */
	struct workspace workspace;
	const kvarc_keys *keys;
	struct gpu *gpu; /* d NULL: there is none */
	struct gpu_files on_gpu;
};

/* Level 0 has no use for the rotary embedding: not worth a search, which takes longer than all
 * the rest. */
static const char *rope_of(const struct options *options)
{
	bool for_free = options->coding.model || options->coding.profiles.n;

	return options->import.rope || options->coding.level > 0 || for_free ? options->import.rope
	                                                                     : "none";
}

/* Read errors follow from a change of the source: the message is about the change. */
static void report_failure(const struct pack_job *job, kvarc_ret ret, const struct input *in)
{
	char what[96];

	if (watch_changed(&job->watch, &job->in, what, sizeof(what)))
		msg_error(job->in.name,
		          "changed while it was packed (%s): %s; pack it again when it is complete",
		          what,
		          job->out.direct ? "the archive that was written is not valid"
		                          : "no archive was written");
	else
		library_error(job->in.name, ret, &job->error, in, &job->out);
}

static bool is_unchanged(const struct pack_job *job)
{
	char what[96];

	if (!watch_changed(&job->watch, &job->in, what, sizeof(what)))
		return true;
	report_failure(job, KVARC_OK, NULL);
	return false;
}

static bool import(struct pack_job *job)
{
	const struct options *o = job->o;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	const char *name = job->in.is_stdin ? NULL : paths_base(job->in.name);
	struct engine_file pages;
	kvarc_ret ret;

	if (!o->lossy.tiers.n)
		installed_choose(o, &job->in);
	readers_import_options(&o->work, &o->import, &io, &job->error);
	io.rope = rope_of(o);
	io.profiles = profiles_given(&io.n_profiles);
	io.opaque = o->import.opaque;
	io.members = o->import.members;
	io.by_type = !o->lossy.tiers.n; /* what is no cache stays as it is */
	if (!engine_file_options(&o->import, job->in.name, &pages, &io))
		return false;
	if (o->coding.model && !models_is_folder(o->coding.model)) {
		if (!input_open(&job->model, o->coding.model, true))
			return false;
		job->model_source = input_source(&job->model);
		io.model = &job->model_source;
	}
	input_map(&job->in);
	job->source = input_source(&job->in);
	ret = kvarc_import_open(&job->im, &job->source, name, &io);
	if (ret != KVARC_OK) {
		report_failure(job, ret, job->model.error ? &job->model : &job->in);
		return false;
	}
	if (!workspace_attach(&job->workspace, o, job->im,
	                      (const char *[]){ job->in.name, job->target }, 2))
		return false;
	kvarc_import_sizes(job->im, &job->raw_bytes, &job->tensor_bytes);
	if (!o->import.opaque)
		library_warn_import(job->in.name, job->im);
	if (kvarc_import_members(job->im) && (o->import.opaque || !kvarc_import_note(job->im)))
		msg_note(job->in.name, "its %zu files come back, the container itself does not",
		         kvarc_import_members(job->im));
	return true;
}

/* A level above 1 without a profile: one of this file alone, inside the archive, when that is
 * smaller than level 1. */
static bool fit(struct pack_job *job, kvarc_writer_options *wo)
{
	progress_start(job->in.name, job->tensor_bytes);
	progress_phase("fitting");
	progress_unit("");
	bool predicts = job->o->coding.level >= LEVEL_MODEL;
	kvarc_ret ret = kvarc_train_import(&job->fitted, job->im, job->o->coding.level,
	                                   predicts ? job->o->coding.model : NULL,
	                                   predicts ? job->o->coding.blind : 0, &wo->common);
	progress_stop();
	if (ret != KVARC_OK && ret != KVARC_MEMLIMIT) {
		library_error(job->in.name, ret, &job->error, &job->in, NULL);
		return false;
	}
	wo->level = 1;
	if (job->fitted) {
		wo->level = profiles_highest_level(job->fitted);
		if (wo->level < LEVEL_MODEL && wo->level < job->o->coding.level)
			msg_result(job->in.name,
			           "level %d: level 3 would not be smaller with a "
			           "profile fitted to this file alone",
			           wo->level);
		if (wo->level == LEVEL_MODELS)
			wo->level = KVARC_LEVEL(job->o->coding.level);
		wo->profile = job->fitted;
		wo->profile_name = KVARC_PROFILE_NAME_FITTED;
		wo->flags |= KVARC_WRITE_EMBED_PROFILE;
		if (wo->level >= LEVEL_MODEL) {
			wo->predictor = models_given();
			wo->predictor_name = models_name();
		}
	} else if (job->tensor_bytes || msg_level() > 0) {
		const char *why = profiles_why_unused(kvarc_import_geometry(job->im));

		msg_result(job->in.name, "level 1; %s",
		           ret   ? "fitting a profile to it needs more memory (-M)"
		           : why ? why
		                 : "a profile fitted to it would not make it smaller");
	}
	return true;
}

static bool codes_ids(const struct archive_options *archive)
{
	return archive->token_ids == 1 + KVARC_TOKEN_IDS_MODEL;
}

static void report_gate(const struct pack_job *job, const kvarc_gate_result *r, bool passed)
{
	char limit[48], found[48], layers[80] = "";

	if (job->max_error > 0) {
		snprintf(limit, sizeof(limit), "an error of %g", job->max_error);
		snprintf(found, sizeof(found), "error of attention %.2g", r->worst_error);
	} else {
		snprintf(limit, sizeof(limit), "a KL of %g", job->o->lossy.max_kl);
		snprintf(found, sizeof(found), "KL %.2g", r->eval.mean_kl);
	}
	if (r->raised || r->unchanged)
		snprintf(layers, sizeof(layers),
		         ": of %u layers %u have more bits, %u stay as they are",
		         (unsigned)r->layers, (unsigned)r->raised, (unsigned)r->unchanged);
	if (passed)
		msg_note(job->in.name, "%s%s", found, layers);
	else
		msg_warning(job->in.name, "no rate of the tier meets %s: nothing was changed",
		            limit);
}

/* Rates of layers that keep what the model says within --max-kl, or attention within --max-error,
 * or no tier. */
static bool pass_gate(struct pack_job *job, kvarc_writer_options *wo)
{
	kvarc_gate_options go = KVARC_GATE_OPTIONS_INIT;
	kvarc_gate_result r;
	kvarc_ret ret;

	go.common = wo->common;
	go.predictor = models_given();
	go.writer = wo;
	go.max_kl = job->o->lossy.max_kl;
	go.max_error = job->max_error;
	progress_start(job->in.name, KVARC_UNKNOWN);
	progress_phase("measuring");
	progress_unit("tokens");
	ret = kvarc_gate_import(&job->gate, job->im, &go);
	progress_stop();
	if (ret == KVARC_OK)
		ret = kvarc_gate_get_result(job->gate, &r);
	if (ret != KVARC_OK) {
		library_error(job->in.name, ret, &job->error, &job->in, NULL);
		return false;
	}
	wo->lossy = kvarc_gate_lossy(job->gate);
	report_gate(job, &r, wo->lossy);
	return true;
}

static bool choose_profile(struct pack_job *job, kvarc_writer_options *wo)
{
	bool ok = true;

	if (job->o->lossy.tiers.n) {
		wo->lossy = &job->tier;
		wo->level = job->o->coding.level_given ? job->o->coding.level : 1;
		ok = profiles_tier(&job->tier, kvarc_import_geometry(job->im), wo);
		if (wo->profile && job->o->coding.embed_profile)
			wo->flags |= KVARC_WRITE_EMBED_PROFILE;
		if (ok && scores_wanted(&job->tier))
			ok = scores_rate(job->o, job->in.name, job->im, &wo->common, &job->tier,
			                 &job->token_rates);
		if (ok && (job->o->lossy.max_kl > 0 || job->max_error > 0))
			ok = pass_gate(job, wo);
	} else {
		ok = profiles_fit_wanted(&job->o->coding)
		             ? fit(job, wo)
		             : profiles_writer(&job->o->coding, kvarc_import_geometry(job->im),
		                               true, wo);
	}
	if (codes_ids(&job->o->archive) && wo->level >= LEVEL_MODEL)
		wo->token_ids = KVARC_TOKEN_IDS_MODEL;
	return ok;
}

static bool pack(struct pack_job *job)
{
	const struct options *o = job->o;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_parity parity;
	kvarc_sink sink;
	kvarc_ret ret;

	library_common(&o->work, &wo.common, &job->error);
	if (!choose_profile(job, &wo)) {
		output_abort(&job->out);
		return false;
	}
	if (o->remove)
		wo.flags |= KVARC_WRITE_VERIFY;
	/* An archive that goes down a pipe must be readable from one. */
	library_archive(&o->archive, job->out.direct, &parity, &wo);
	wo.keys = job->keys;
	if (!o->import.as_cache)
		wo.flags |= KVARC_WRITE_KEEP_WHOLE;
	sink = output_sink(&job->out);
	progress_start(job->in.name, job->tensor_bytes);
	job->tokens = wo.level < LEVEL_MODEL ? 0 : models_tokens(NULL, job->im);
	progress_phase(job->tokens ? "running the model, packing" : "packing");
	progress_tokens(job->tokens);
	if (job->gpu->d) {
		job->on_gpu.geometry = kvarc_import_geometry(job->im);
		job->on_gpu.gpu = job->gpu;
		kvarc_import_append_by(job->im, gpu_files_append, &job->on_gpu);
	}
	ret = kvarc_pack(job->im, &sink, &wo, &job->stats);
	progress_stop();
	if (ret != KVARC_OK) {
		gpu_files_error(&job->on_gpu, &job->error);
		report_failure(job, ret, &job->in);
	}
	if (ret != KVARC_OK || !is_unchanged(job)) {
		output_abort(&job->out);
		return false;
	}
	if (!output_commit(&job->out))
		return false;
	job->seconds = units_now() - job->start;
	job->level = profiles_level_used(job->in.name, &wo, kvarc_import_geometry(job->im));
	if (codes_ids(&o->archive) && job->level < LEVEL_MODEL)
		msg_warning(job->in.name,
		            "no model predicts it (level %d): its token ids are stored",
		            job->level);
	profiles_check_weights(o->coding.model, &wo);
	return true;
}

/* Whether the archive has the file without its tensors. */
static bool is_whole(const struct pack_job *job)
{
	return job->tensor_bytes && !job->stats.elements;
}

/* Whether the tensors are of no cache. */
static bool has_rows(const struct pack_job *job)
{
	return kvarc_import_geometry(job->im)->tracks[0].kind == KVARC_TRACK_OTHER;
}

static void report(const struct pack_job *job)
{
	const kvarc_writer_stats *s = &job->stats;
	struct report r;

	report_start(&r, job->o->json);
	report_string(&r, "file", job->in.name);
	report_string(&r, "output", job->target);
	report_string(&r, "input_format", kvarc_import_format(job->im));
	report_string(&r, "note", kvarc_import_note(job->im));
	report_u64(&r, "members", kvarc_import_members(job->im));
	report_u64(&r, "level", (uint64_t)job->level);
	if (is_whole(job))
		report_bool(&r, "kept_whole", true);
	report_u64(&r, "raw_bytes", job->raw_bytes);
	report_u64(&r, "file_bytes", s->file_bytes);
	report_real(&r, ".ratio", (double)job->raw_bytes / (double)s->file_bytes, 0);
	report_u64(&r, "elements", s->elements);
	report_real(&r, "bits_per_element", 8.0 * (double)s->file_bytes / (double)s->elements, 4);
	report_u64(&r, "dropped_tokens", s->dropped_tokens);
	report_real(&r, "seconds", job->seconds, 4);
	report_real(&r, ".rate", (double)job->raw_bytes / job->seconds, 0);
	report_real(&r, ".speed", (double)job->tokens / job->seconds, 0);
	if (job->gpu->d) {
		report_string(&r, "device", job->gpu->info.name);
		report_u64(&r, "device_chunks", job->on_gpu.chunks);
		report_u64(&r, "host_chunks", job->on_gpu.host_chunks);
	}
	report_string(&r, ".fitted", job->fitted ? " with a profile fitted to it" : "");
	report_note(&r, job->in.name,
	            "{raw_bytes:B} -> {file_bytes:B}, {.ratio:.2fx}"
	            "[, {bits_per_element:.2f} bits per element]"
	            "[, {dropped_tokens} tokens left out], {.rate:R}[, {.speed:.0f} tokens/s]");
	if (msg_level() > 0)
		report_note(&r, job->in.name, "{input_format} -> {output}, level {level}{.fitted}");
	report_end(&r);
	if (is_whole(job) && !has_rows(job))
		msg_result(job->in.name, "kept whole, without tensors and ranges: few tokens are "
		                         "larger as a cache (--as-cache)");
	if (job->gpu->d)
		gpu_files_note(&job->on_gpu, job->in.name);
}

static bool open_target(struct pack_job *job)
{
	const struct options *o = job->o;

	job->target = paths_pack_target(job->in.name, o->output);
	if (!job->target) {
		msg_error(NULL, "out of memory");
		return false;
	}
	/* Checks the target before the work, not after it. */
	if (!engine_file_target(&o->import, job->in.name, job->target) ||
	    !output_check(job->target, o->force))
		return false;
	if (o->force && strcmp(job->target, "-") != 0 &&
	    !lock_replaced(job->target, &job->replaced))
		return false;
	if (!import(job))
		return false;
	if (!identities_record(&o->archive.identity, &job->in, job->im, &job->error) ||
	    !paths_make_folder(o->output) ||
	    !output_open(&job->out, job->target, paths_output_flags(o),
	                 o->keys.encrypt ? 0600 : job->in.mode))
		return false;
	job->out.mtime = job->in.mtime;
	return true;
}

static void pack_one(const struct options *options, const char *file, const kvarc_lossy *tier,
                     double max_error, const kvarc_keys *keys, struct gpu *gpu)
{
	struct pack_job j = { .o = options,
		              .gpu = gpu,
		              .keys = keys,
		              .model = { .fd = -1 },
		              .replaced = -1,
		              .start = units_now(),
		              .tier = *tier,
		              .max_error = max_error };

	if (!input_open(&j.in, file, true))
		return;
	if (options->remove)
		watch_start_removal(&j.watch, &j.in);
	else
		watch_start(&j.watch, &j.in);
	if (!options->import.opaque && input_is_archive(&j.in))
		msg_error(file, "is a kvarc archive already; --opaque packs it all the same");
	else if (open_target(&j)) {
		if (pack(&j)) {
			report(&j);
			if (options->remove)
				watch_remove(&j.watch, &j.in);
		}
	}
	kvarc_profile_close(&j.fitted);
	kvarc_gate_close(&j.gate);
	gpu_files_free(&j.on_gpu);
	free(j.token_rates);
	kvarc_import_close(&j.im);
	workspace_close(&j.workspace);
	free(j.target);
	if (j.replaced >= 0)
		close(j.replaced);
	input_close(&j.model);
	input_close(&j.in);
}

/* Checks the options about scores before files are read. */
static bool check_scores(const struct options *options, const kvarc_lossy *tier)
{
	if (scores_wanted(tier) && !options->lossy.scores)
		msg_usage("keep=, top= and spread= of --tier need --scores: h2o or surprisal, with "
		          "--model, or a file");
	else if (options->lossy.scores && !scores_wanted(tier))
		msg_usage("--scores is for a --tier with keep=, top= or spread=");
	else if (scores_kind(options->lossy.scores) && !options->coding.model)
		msg_usage("--scores %s needs the model (--model)", options->lossy.scores);
	else
		return true;
	return false;
}

/* --max-error with --tier had or klt: of attention outputs. NULL where it stands alone or is
 * missing. */
static const char *limit_of_tier(const struct lossy_options *lossy)
{
	bool first = lossy->tiers.n == 2 && lossy->tiers.p[0] == lossy->near_tier;
	bool second = lossy->tiers.n == 2 && lossy->tiers.p[1] == lossy->near_tier;

	return first != second ? strchr(lossy->near_tier, ':') + 1 : NULL;
}

/* Resolves --tier, --max-error and --max-kl to one tier and its limit. */
static bool check_tiers(const struct options *options, kvarc_lossy *tier, double *max_error)
{
	const struct option_list *tiers = &options->lossy.tiers;
	const char *limit = limit_of_tier(&options->lossy);
	bool is_first = tiers->n && (!limit || tiers->p[0] != options->lossy.near_tier);
	const char *text = tiers->n ? tiers->p[!is_first] : NULL;
	kvarc_error error = { 0 };
	char *end;

	*max_error = limit ? strtod(limit, &end) : 0;
	if (tiers->n > 1 && !limit)
		msg_usage("one --tier or --max-error at a time");
	else if (options->remove && tiers->n)
		msg_usage("--rm would delete data that --tier cannot restore");
	else if (text && kvarc_lossy_parse(tier, text, &error))
		msg_usage("%s", error.text);
	else if (limit && tier->tier != KVARC_TIER_HAD && tier->tier != KVARC_TIER_KLT)
		msg_usage("--max-error is used with --tier had or klt, or alone");
	else if (limit && (*end || !(*max_error > 0 && *max_error < 1)))
		msg_usage("'%s' is not a value for --max-error with a --tier; give the error of "
		          "attention outputs, above 0 and below 1",
		          limit);
	else {
		tier->note = text;
		return true;
	}
	return false;
}

void cmd_pack(const struct options *options)
{
	kvarc_lossy tier = { 0 };
	const kvarc_keys *keys;
	double max_error;
	struct gpu gpu;

	if (!paths_check_operands(options))
		return;
	if (!profiles_check_level(&options->coding, true))
		return;
	if (codes_ids(&options->archive) &&
	    (!models_given() ||
	     (options->coding.level_given && options->coding.level < LEVEL_MODEL))) {
		msg_usage("--token-ids model needs --model MODEL and a level of 4 to 8");
		return;
	}
	if (options->remove && (paths_to_stdout(options) || strcmp(options->files[0], "-") == 0)) {
		msg_usage("--rm needs named files on both sides");
		return;
	}
	if (!check_tiers(options, &tier, &max_error))
		return;
	if (!check_scores(options, &tier))
		return;
	if (!keys_writer(&options->keys, false, &keys) ||
	    !gpu_open(&gpu, &options->device, &options->work))
		return;
	for (size_t i = 0; i < options->n_files; i++)
		pack_one(options, options->files[i], &tier, max_error, keys, &gpu);
	gpu_close(&gpu);
}
