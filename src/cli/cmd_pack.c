/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_pack.c - kvarc pack: caches into archives */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "engine_files.h"
#include "gpu_files.h"
#include "identities.h"
#include "secrets.h"
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

/* One file on its way into an archive. */
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
	uint64_t tokens; /* that a model goes through; 0: none does */
	double start, seconds;
	kvarc_lossy tier;
	double max_error; /* of attention outputs, by the tier; 0: not wanted */
	int16_t *token_rates;
	kvarc_gate *gate;
	int level; /* of the archive */
	struct workspace workspace;
	const kvarc_keys *keys;
	struct gpu *gpu; /* d NULL: there is none */
	struct gpu_files on_gpu;
};

/* Level 0 has no use for the rotary embedding: not worth a search, which takes longer than all
 * the rest. */
static const char *rope_of(const struct options *o)
{
	bool for_free = o->model || o->profiles.n;

	return o->rope || o->level > 0 || for_free ? o->rope : "none";
}

/* Read errors follow from a change of the source: the message is about the change. */
static void report_failure(const struct pack_job *j, kvarc_ret ret, const struct input *in)
{
	char what[96];

	if (watch_changed(&j->watch, &j->in, what, sizeof(what)))
		msg_error(j->in.name,
		          "changed while it was packed (%s): %s; pack it again when it is complete",
		          what,
		          j->out.direct ? "the archive that was written is not valid"
		                        : "no archive was written");
	else
		library_error(j->in.name, ret, &j->error, in, &j->out);
}

static bool is_unchanged(const struct pack_job *j)
{
	char what[96];

	if (!watch_changed(&j->watch, &j->in, what, sizeof(what)))
		return true;
	report_failure(j, KVARC_OK, NULL);
	return false;
}

static bool import(struct pack_job *j)
{
	const struct options *o = j->o;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	const char *name = j->in.is_stdin ? NULL : paths_base(j->in.name);
	struct engine_file pages;
	kvarc_ret ret;

	readers_import_options(o, &io, &j->error);
	io.rope = rope_of(o);
	io.profiles = profiles_given(&io.n_profiles);
	io.opaque = o->opaque;
	io.members = o->members;
	if (!engine_file_options(o, j->in.name, &pages, &io))
		return false;
	if (o->model && !models_is_folder(o)) {
		if (!input_open(&j->model, o->model, true))
			return false;
		j->model_source = input_source(&j->model);
		io.model = &j->model_source;
	}
	j->source = input_source(&j->in);
	ret = kvarc_import_open(&j->im, &j->source, name, &io);
	if (ret != KVARC_OK) {
		report_failure(j, ret, j->model.error ? &j->model : &j->in);
		return false;
	}
	if (!workspace_attach(&j->workspace, o, j->im, (const char *[]){ j->in.name, j->target },
	                      2))
		return false;
	kvarc_import_sizes(j->im, &j->raw_bytes, &j->tensor_bytes);
	if (!o->opaque)
		library_warn_import(j->in.name, j->im);
	if (kvarc_import_members(j->im) && (o->opaque || !kvarc_import_note(j->im)))
		msg_note(j->in.name, "its %zu files come back, the container itself does not",
		         kvarc_import_members(j->im));
	return true;
}

/* A level above 1 without a profile: one of this file alone, inside the archive, when that is
 * smaller than level 1. */
static bool fit(struct pack_job *j, kvarc_writer_options *wo)
{
	progress_start(j->in.name, j->tensor_bytes);
	progress_phase("fitting");
	progress_unit("");
	bool predicts = j->o->level >= LEVEL_MODEL;
	kvarc_ret ret = kvarc_train_import(&j->fitted, j->im, j->o->level,
	                                   predicts ? j->o->model : NULL,
	                                   predicts ? j->o->blind : 0, &wo->common);
	progress_stop();
	if (ret != KVARC_OK && ret != KVARC_MEMLIMIT) {
		library_error(j->in.name, ret, &j->error, &j->in, NULL);
		return false;
	}
	wo->level = 1;
	if (j->fitted) {
		wo->level = profiles_highest_level(j->fitted);
		if (wo->level == LEVEL_MODELS)
			wo->level = KVARC_LEVEL(j->o->level);
		wo->profile = j->fitted;
		wo->profile_name = KVARC_PROFILE_NAME_FITTED;
		wo->flags |= KVARC_WRITE_EMBED_PROFILE;
		if (wo->level >= LEVEL_MODEL) {
			wo->predictor = models_given();
			wo->predictor_name = models_name();
		}
	} else if (j->tensor_bytes || msg_level() > 0) {
		const char *why = profiles_why_unused(kvarc_import_geometry(j->im));

		msg_result(j->in.name, "level 1; %s",
		           ret   ? "fitting a profile to it needs more memory (-M)"
		           : why ? why
		                 : "a profile fitted to it would not make it smaller");
	}
	return true;
}

static bool codes_ids(const struct options *o)
{
	return o->token_ids == 1 + KVARC_TOKEN_IDS_MODEL;
}

static void report_gate(const struct pack_job *j, const kvarc_gate_result *r, bool passed)
{
	char limit[48], found[48], layers[80] = "";

	if (j->max_error > 0) {
		snprintf(limit, sizeof(limit), "an error of %g", j->max_error);
		snprintf(found, sizeof(found), "error of attention %.2g", r->worst_error);
	} else {
		snprintf(limit, sizeof(limit), "a KL of %g", j->o->max_kl);
		snprintf(found, sizeof(found), "KL %.2g", r->eval.mean_kl);
	}
	if (r->raised || r->unchanged)
		snprintf(layers, sizeof(layers),
		         ": of %u layers %u have more bits, %u stay as they are",
		         (unsigned)r->layers, (unsigned)r->raised, (unsigned)r->unchanged);
	if (passed)
		msg_note(j->in.name, "%s%s", found, layers);
	else
		msg_warning(j->in.name, "no rate of the tier meets %s: nothing was changed", limit);
}

/* Rates of layers that keep what the model says within --max-kl, or attention within --max-error,
 * or no tier. */
static bool pass_gate(struct pack_job *j, kvarc_writer_options *wo)
{
	kvarc_gate_options go = KVARC_GATE_OPTIONS_INIT;
	kvarc_gate_result r;
	kvarc_ret ret;

	go.common = wo->common;
	if (!j->o->memlimit) /* as large as the model and the cache */
		go.common.memlimit = 0;
	go.predictor = models_given();
	go.writer = wo;
	go.max_kl = j->o->max_kl;
	go.max_error = j->max_error;
	progress_start(j->in.name, KVARC_UNKNOWN);
	progress_phase("measuring");
	progress_unit("tokens");
	ret = kvarc_gate_import(&j->gate, j->im, &go);
	progress_stop();
	if (ret == KVARC_OK)
		ret = kvarc_gate_get_result(j->gate, &r);
	if (ret != KVARC_OK) {
		library_error(j->in.name, ret, &j->error, &j->in, NULL);
		return false;
	}
	wo->lossy = kvarc_gate_lossy(j->gate);
	report_gate(j, &r, wo->lossy);
	return true;
}

static bool choose_profile(struct pack_job *j, kvarc_writer_options *wo)
{
	bool ok = true;

	if (j->o->tiers.n) {
		wo->lossy = &j->tier;
		wo->level = j->o->level_given ? j->o->level : 1;
		ok = profiles_tier(j->o, &j->tier, kvarc_import_geometry(j->im), wo);
		if (ok && scores_wanted(&j->tier))
			ok = scores_rate(j->o, j->in.name, j->im, &wo->common, &j->tier,
			                 &j->token_rates);
		if (ok && (j->o->max_kl > 0 || j->max_error > 0))
			ok = pass_gate(j, wo);
	} else {
		ok = profiles_fit_wanted(j->o)
		             ? fit(j, wo)
		             : profiles_writer(j->o, kvarc_import_geometry(j->im), wo);
	}
	if (codes_ids(j->o) && wo->level >= LEVEL_MODEL)
		wo->token_ids = KVARC_TOKEN_IDS_MODEL;
	return ok;
}

static bool pack(struct pack_job *j)
{
	const struct options *o = j->o;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_parity parity;
	kvarc_sink sink;
	kvarc_ret ret;

	library_common(o, &wo.common, &j->error);
	if (!choose_profile(j, &wo)) {
		output_abort(&j->out);
		return false;
	}
	if (o->verify || o->remove)
		wo.flags |= KVARC_WRITE_VERIFY;
	/* What goes down a pipe must be readable from one. */
	if (o->streamable || j->out.direct)
		wo.flags |= KVARC_WRITE_STREAMABLE;
	wo.keys = j->keys;
	library_parity(o, &parity, &wo);
	sink = output_sink(&j->out);
	progress_start(j->in.name, j->tensor_bytes);
	j->tokens = wo.level < LEVEL_MODEL ? 0 : models_tokens(NULL, j->im);
	progress_phase(j->tokens ? "running the model, packing" : "packing");
	progress_tokens(j->tokens);
	if (j->gpu->d) {
		j->on_gpu.geometry = kvarc_import_geometry(j->im);
		j->on_gpu.gpu = j->gpu;
		kvarc_import_append_by(j->im, gpu_files_append, &j->on_gpu);
	}
	ret = kvarc_pack(j->im, &sink, &wo, &j->stats);
	progress_stop();
	if (ret != KVARC_OK) {
		gpu_files_error(&j->on_gpu, &j->error);
		report_failure(j, ret, &j->in);
	}
	if (ret != KVARC_OK || !is_unchanged(j)) {
		output_abort(&j->out);
		return false;
	}
	if (!output_commit(&j->out))
		return false;
	j->seconds = units_now() - j->start;
	j->level = profiles_level_used(j->in.name, &wo, kvarc_import_geometry(j->im));
	if (codes_ids(o) && j->level < LEVEL_MODEL)
		msg_warning(j->in.name, "no model predicts it (level %d): its token ids are stored",
		            j->level);
	profiles_check_weights(o, &wo);
	return true;
}

static void report(const struct pack_job *j)
{
	const kvarc_writer_stats *s = &j->stats;
	struct report r;

	report_start(&r, j->o->json);
	report_string(&r, "file", j->in.name);
	report_string(&r, "output", j->target);
	report_string(&r, "input_format", kvarc_import_format(j->im));
	report_string(&r, "note", kvarc_import_note(j->im));
	report_u64(&r, "members", kvarc_import_members(j->im));
	report_u64(&r, "level", (uint64_t)j->level);
	report_u64(&r, "raw_bytes", j->raw_bytes);
	report_u64(&r, "file_bytes", s->file_bytes);
	report_real(&r, ".ratio", (double)j->raw_bytes / (double)s->file_bytes, 0);
	report_u64(&r, "elements", s->elements);
	report_real(&r, "bits_per_element", 8.0 * (double)s->file_bytes / (double)s->elements, 4);
	report_u64(&r, "dropped_tokens", s->dropped_tokens);
	report_real(&r, "seconds", j->seconds, 4);
	report_real(&r, ".rate", (double)j->raw_bytes / j->seconds, 0);
	report_real(&r, ".speed", (double)j->tokens / j->seconds, 0);
	if (j->gpu->d) {
		report_string(&r, "device", j->gpu->info.name);
		report_u64(&r, "device_chunks", j->on_gpu.chunks);
		report_u64(&r, "host_chunks", j->on_gpu.host_chunks);
	}
	report_string(&r, ".fitted", j->fitted ? " with a profile fitted to it" : "");
	report_note(&r, j->in.name,
	            "{raw_bytes:B} -> {file_bytes:B}, {.ratio:.2fx}"
	            "[, {bits_per_element:.2f} bits per element]"
	            "[, {dropped_tokens} tokens left out], {.rate:R}[, {.speed:.0f} tokens/s]");
	if (msg_level() > 0)
		report_note(&r, j->in.name, "{input_format} -> {output}, level {level}{.fitted}");
	report_end(&r);
	if (j->gpu->d)
		gpu_files_note(&j->on_gpu, j->in.name);
}

static bool open_target(struct pack_job *j)
{
	const struct options *o = j->o;

	j->target = paths_pack_target(j->in.name, o->output);
	if (!j->target) {
		msg_error(NULL, "out of memory");
		return false;
	}
	/* Before the work, not after it. */
	if (!engine_file_target(o, j->in.name, j->target) || !output_check(j->target, o->force))
		return false;
	if (o->force && strcmp(j->target, "-") != 0 && !lock_replaced(j->target, &j->replaced))
		return false;
	if (!import(j))
		return false;
	if (!identities_record(o, &j->in, j->im, &j->error) || !paths_make_folder(o) ||
	    !output_open(&j->out, j->target, paths_output_flags(o), o->encrypt ? 0600 : j->in.mode))
		return false;
	output_set_time(&j->out, j->in.mtime);
	return true;
}

static void pack_one(const struct options *o, const char *file, const kvarc_lossy *tier,
                     double max_error, const kvarc_keys *keys, struct gpu *gpu)
{
	struct pack_job j = { .o = o,
		              .gpu = gpu,
		              .keys = keys,
		              .model = { .fd = -1 },
		              .replaced = -1,
		              .start = units_now(),
		              .tier = *tier,
		              .max_error = max_error };

	if (!input_open(&j.in, file, true))
		return;
	if (o->remove)
		watch_start_removal(&j.watch, &j.in);
	else
		watch_start(&j.watch, &j.in);
	if (!o->opaque && input_is_archive(&j.in))
		msg_error(file, "is a kvarc archive already; --opaque packs it all the same");
	else if (open_target(&j)) {
		if (pack(&j)) {
			report(&j);
			if (o->remove)
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

/* Before files are read. */
static bool check_scores(const struct options *o, const kvarc_lossy *tier)
{
	if (scores_wanted(tier) && !o->scores)
		msg_error(NULL, "pack: keep=, top= and spread= of --tier need "
		                "--scores: h2o or surprisal, with --model, or a file");
	else if (o->scores && !scores_wanted(tier))
		msg_error(NULL, "pack: --scores is for a --tier with keep=, top= or spread=");
	else if (scores_kind(o) && !o->model)
		msg_error(NULL, "pack: --scores %s needs the model (--model)", o->scores);
	else
		return true;
	return false;
}

/* --max-error with --tier had or klt: of attention outputs. NULL where it stands alone or is
 * missing. */
static const char *limit_of_tier(const struct options *o)
{
	bool first = o->tiers.n == 2 && o->tiers.p[0] == o->near_tier;
	bool second = o->tiers.n == 2 && o->tiers.p[1] == o->near_tier;

	return first != second ? strchr(o->near_tier, ':') + 1 : NULL;
}

/* What --tier, --max-error and --max-kl say together. */
static bool check_tiers(const struct options *o, kvarc_lossy *tier, double *max_error)
{
	const char *limit = limit_of_tier(o);
	bool is_first = o->tiers.n && (!limit || o->tiers.p[0] != o->near_tier);
	const char *text = o->tiers.n ? o->tiers.p[!is_first] : NULL;
	kvarc_error error = { 0 };
	char *end;

	*max_error = limit ? strtod(limit, &end) : 0;
	if (o->tiers.n > 1 && !limit)
		msg_error(NULL, "pack: one --tier or --max-error at a time");
	else if (o->remove && o->tiers.n)
		msg_error(NULL, "pack: --rm would delete data that --tier cannot restore");
	else if (text && kvarc_lossy_parse(tier, text, &error))
		msg_error(NULL, "pack: %s", error.text);
	else if (limit && tier->tier != KVARC_TIER_HAD && tier->tier != KVARC_TIER_KLT)
		msg_error(NULL, "pack: --max-error is used with --tier had or klt, or alone");
	else if (limit && (*end || !(*max_error > 0 && *max_error < 1)))
		msg_error(NULL,
		          "pack: '%s' is not a value for --max-error with a "
		          "--tier; give the error of attention outputs, above 0 and below 1",
		          limit);
	else {
		tier->note = text;
		return true;
	}
	return false;
}

void cmd_pack(const struct options *o)
{
	kvarc_lossy tier = { 0 };
	const kvarc_keys *keys;
	double max_error;
	struct gpu gpu;

	if (!paths_check_operands(o))
		return;
	if (!profiles_check_level(o, true))
		return;
	if (codes_ids(o) && (!models_given() || (o->level_given && o->level < LEVEL_MODEL))) {
		msg_error(NULL, "pack: --token-ids model needs --model MODEL and a "
		                "level of 4 to 8");
		return;
	}
	if (o->remove && (paths_to_stdout(o) || strcmp(o->files[0], "-") == 0)) {
		msg_error(NULL, "pack: --rm needs named files on both sides");
		return;
	}
	if (!check_tiers(o, &tier, &max_error))
		return;
	if (!check_scores(o, &tier))
		return;
	if (!keys_writer(o, false, &keys) || !gpu_open(&gpu, o))
		return;
	for (size_t i = 0; i < o->n_files; i++)
		pack_one(o, o->files[i], &tier, max_error, keys, &gpu);
	gpu_close(&gpu);
}
