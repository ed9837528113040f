/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_train.c - kvarc train, and what it reports */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "engine_files.h"
#include "ids.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "units.h"
#include "kvarc/tools.h"

/* ==== Bits per element with a new profile, layer by layer ==== */

enum { FIRST_LEVEL = 1, LEVELS = 8 };

/* Sums over tensors, weighted by their elements. */
struct totals {
	double bits[LEVELS];
	double elements;
	bool measured;
};

static struct totals add_up(const kvarc_trainer *trainer, bool klt)
{
	struct totals sum = { .measured = true };
	kvarc_trained x;

	for (size_t i = 0; kvarc_trainer_report(trainer, i, &x) == KVARC_OK; i++) {
		for (int l = 0; l < LEVELS; l++)
			sum.bits[l] += (klt ? x.klt_bits : x.bits)[l] * (double)x.elements;
		sum.elements += (double)x.elements;
		sum.measured = sum.measured && x.measured;
	}
	for (int l = 0; l < LEVELS; l++)
		sum.bits[l] /= sum.elements > 0 ? sum.elements : 1;
	return sum;
}

/* Fields of bits by level, or by rate of transforms; text has all of them. */
static void report_bits(struct report *r, bool klt, const double bits[LEVELS])
{
	static const char *const levels[LEVELS] = { "",        "level_1", "level_2", "level_3",
		                                    "level_4", "level_5", "level_6", "level_7" };
	static const char *const rates[LEVELS] = { "",      "klt_1", "klt_2", "klt_3",
		                                   "klt_4", "klt_5", "klt_6", "klt_7" };

	for (int l = FIRST_LEVEL; l < LEVELS; l++) {
		if (bits[l] > 0 || (klt && !r->json))
			report_real(r, (klt ? rates : levels)[l], bits[l], 4);
		else if (!r->json)
			report_real(r, levels[l], NAN, 0);
	}
}

/* The columns of the table: rates, or levels 2 and 3, or the one that a transformer predicts
 * for. */
static unsigned columns(bool klt, const double all[LEVELS])
{
	unsigned mask = 1u << 1, model = 0;

	if (klt)
		return 1u << 2 | 1u << 3 | 1u << 4;
	for (int l = 2; l < LEVELS; l++) {
		mask |= all[l] > 0 ? 1u << l : 0;
		model |= l >= LEVEL_MODEL ? mask >> l & 1 : 0;
	}
	return model ? mask : mask | 1u << 2 | 1u << 3;
}

static void print_columns(const struct report *r, bool klt, unsigned mask)
{
	char template[32];

	for (int l = FIRST_LEVEL; l < LEVELS; l++) {
		snprintf(template, sizeof(template), "  {%s_%d:7.3f}", klt ? "klt" : "level", l);
		if (mask >> l & 1)
			report_print(r, template);
	}
	report_print(r, "\n");
}

static void report_table(struct report *r, const kvarc_trainer *trainer, bool klt,
                         const struct totals *sum)
{
	const unsigned mask = columns(klt, sum->bits);
	kvarc_trained x;

	report_print(r, "layer  tensor");
	for (int l = FIRST_LEVEL; l < LEVELS && !r->json; l++) {
		if (mask >> l & 1)
			printf(klt ? "    klt:%d" : "  level %d", l);
	}
	report_print(r, "\n");
	report_array(r, "per_tensor");
	for (size_t i = 0; kvarc_trainer_report(trainer, i, &x) == KVARC_OK; i++) {
		report_object(r, NULL);
		report_u64(r, "layer", x.layer);
		report_string(r, "kind", kvarc_kind_name(x.kind));
		report_bits(r, klt, klt ? x.klt_bits : x.bits);
		report_print(r, "{layer:5}  {kind:-6}");
		print_columns(r, klt, mask);
		report_end_object(r);
	}
	report_end_array(r);
	report_print(r, "  all        ");
	print_columns(r, klt, mask);
	report_print(r, klt ? "bits per element, expected of caches like those that were fitted\n"
	                : sum->measured
	                        ? "bits per element, estimated on tokens that were held out\n"
	                        : "bits per element, estimated on the tokens that were fitted: "
	                          "others cost more\n");
}

/* Writes the names of the inputs to text: "2 inputs and text of its own". */
static void train_inputs(char *text, size_t capacity, const struct train_options *train, size_t n)
{
	int at = 0;

	text[0] = '\0';
	if (n || !train->write)
		at = snprintf(text, capacity, "%zu input%s%s", n, n == 1 ? "" : "s",
		              train->write ? " and " : "");
	if (train->write && at >= 0 && (size_t)at < capacity)
		snprintf(text + at, capacity - (size_t)at, "text of its own");
}

/* The command that packs with a profile of these levels. */
static void put_use(char *text, size_t capacity, const struct options *options, unsigned levels)
{
	const char *profile = paths_to_stdout(options) ? "PROFILE" : options->output;
	const char *model = options->coding.model ? options->coding.model : "MODEL";
	int level = LEVEL_MODELS;

	while (level > 1 && !(levels >> level & 1))
		level--;
	if (level >= LEVEL_MODEL)
		snprintf(text, capacity, "kvarc pack -%d --model %s --profile %s FILE", level,
		         model, profile);
	else if (level > 1)
		snprintf(text, capacity, "kvarc pack -%d --profile %s FILE", level, profile);
	else
		snprintf(text, capacity, "kvarc pack --tier klt:RATE --profile %s FILE", profile);
}

/* "level 1 13.35, level 2 11.90": bits per element of all tensors. */
static void report_gain(const struct options *options, const struct totals *sum)
{
	const unsigned mask = columns(options->train.klt, sum->bits);
	char text[256] = "";
	size_t n = 0;

	for (int l = FIRST_LEVEL; l < LEVELS && n < sizeof(text); l++) {
		if (!(mask >> l & 1) || !(sum->bits[l] > 0))
			continue;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s%d %.2f", n ? ", " : "",
		                      options->train.klt ? "klt:" : "level ", l, sum->bits[l]);
	}
	if (n)
		msg_result(paths_to_stdout(options) ? "(stdout)" : options->output,
		           "%s bits per element, %s%s", text,
		           options->train.klt ? "of caches like those that were fitted"
		           : sum->measured    ? "of tokens that were held out"
		                              : "of the tokens that were fitted: others cost more",
		           msg_level() > 0 ? "" : "; -v shows each tensor");
}

/* Prints a table, or JSON, on standard output. n_profiles of the inputs are profiles that were
 * merged, not data. */
static void train_report(const struct options *options, const kvarc_trainer *trainer,
                         size_t n_profiles, const kvarc_profile *profile, double seconds)
{
	const size_t n = options->n_files - n_profiles;
	const bool fitted = n || options->train.write;
	const struct totals sum = add_up(trainer, options->train.klt);
	kvarc_profile_info info;
	struct report r;
	char digest[33], inputs[64], use[1024];

	if (kvarc_profile_get_info(profile, &info) != KVARC_OK)
		return;
	train_inputs(inputs, sizeof(inputs), &options->train, n);
	put_use(use, sizeof(use), options, info.levels);
	report_start(&r, options->json);
	report_string(&r, "output", options->output);
	report_string(&r, "digest", units_digest(digest, info.digest));
	report_u64(&r, "file_bytes", info.file_bytes);
	report_u64(&r, "coefficients", info.coefficients);
	report_u64(&r, "inputs", options->n_files);
	report_string(&r, ".inputs", inputs);
	report_u64(&r, ".profiles", n_profiles);
	report_u64(&r, "tokens", kvarc_trainer_tokens(trainer));
	report_bool(&r, "held_out", sum.measured);
	report_bits(&r, options->train.klt, sum.bits);
	if (options->json || (fitted && msg_level() > 0 && !paths_to_stdout(options)))
		report_table(&r, trainer, options->train.klt, &sum);
	report_real(&r, "seconds", seconds, 4);
	report_string(&r, ".use", use);
	msg_flush();
	if (fitted && !options->json)
		report_gain(options, &sum);
	report_result(&r, paths_to_stdout(options) ? "(stdout)" : options->output,
	              fitted ? "{file_bytes:B}, fitted to {tokens:C} tokens of {.inputs} in "
	                       "{seconds:.0f} s[, merged with {.profiles} profile{.profiles:s}]; "
	                       "use it with: {.use}"
	                     : "{file_bytes:B}, merged from {.profiles} profile{.profiles:s}; "
	                       "use it with: {.use}");
	report_end(&r);
}

/* ==== kvarc train: caches of a model, and older profiles, become its profile ==== */

/* An input, a cache or a profile; it stays open until the end of the run. */
struct input_cache {
	struct input in;
	kvarc_source source;
	kvarc_import *import;
	kvarc_reader *reader;
	kvarc_profile *profile;
};

struct training {
	const struct options *o;
	struct input model;
	kvarc_source model_source;
	kvarc_error error;
	struct input_cache *caches;
	size_t n_profiles;    /* number of profiles among the inputs */
	const char *ids_file; /* file of ids that is being read */
	kvarc_trainer *trainer;
	kvarc_profile *profile;
	struct output out;
	double start;
};

/* A transformer predicts first; other levels take RoPE from --model alone. */
static bool predicts(const struct coding_options *coding)
{
	return coding->level_given && coding->level >= 4;
}

/* The library runs it: it may weigh heads. */
static const kvarc_predictor *weighs(const struct train_options *train)
{
	return train->klt ? models_known() : NULL;
}

/* Whether there are caches to fit to; without them profiles are merged alone. */
static bool fits(const struct training *training)
{
	return training->n_profiles < training->o->n_files || training->o->train.write;
}

static size_t n_caches(const struct options *options)
{
	return options->n_files + options->train.measure.n;
}

static bool open_trainer(struct training *training)
{
	const struct options *o = training->o;
	kvarc_trainer_options to = KVARC_TRAINER_OPTIONS_INIT;

	library_common(&o->work, &to.common, &training->error);
	if (predicts(&o->coding)) {
		to.mode = KVARC_TRAIN_MODEL;
		to.model =
			(kvarc_train_model){ .path = o->coding.model,
			                     .level = o->coding.level,
			                     .arithmetic = (kvarc_arithmetic)o->coding.arithmetic,
			                     .loop = (kvarc_loop)o->coding.loop,
			                     .blind = o->coding.blind };
	} else if (o->train.klt) {
		to.mode = KVARC_TRAIN_KLT;
		to.klt = (kvarc_train_klt){ .group = (unsigned)o->train.group,
			                    .sensitivity = weighs(&o->train) };
	} else if (o->coding.level_given) {
		to.levels = 1u << o->coding.level;
	}
	if ((to.model.path || to.klt.sensitivity) && !o->work.memlimit) /* needs the model's size */
		to.common.memlimit = UINT64_MAX;
	to.held_out = o->train.held_out ? (unsigned)o->train.held_out : KVARC_TRAIN_NONE_HELD_OUT;
	to.flags = (o->train.head_block ? KVARC_TRAIN_HEAD_BLOCK : 0) |
	           (o->train.whole_layer ? KVARC_TRAIN_WHOLE_LAYER : 0) |
	           (o->train.no_table ? KVARC_TRAIN_NO_TABLE : 0) |
	           (o->train.no_stages ? KVARC_TRAIN_NO_STAGES : 0);
	kvarc_ret ret = kvarc_trainer_open(&training->trainer, &to);
	if (ret != KVARC_OK)
		library_error(to.model.path, ret, &training->error, NULL, NULL);
	return ret == KVARC_OK;
}

/* A GGUF says more of the caches of its model than they do. */
static bool open_model(struct training *training)
{
	if (!training->o->coding.model || paths_is_folder(training->o->coding.model))
		return true;
	if (!input_open(&training->model, training->o->coding.model, true))
		return false;
	training->model_source = input_source(&training->model);
	return true;
}

static kvarc_ret import(struct training *training, struct input_cache *cache)
{
	const struct options *o = training->o;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	struct engine_file pages;
	kvarc_ret ret;

	readers_import_options(&o->work, &o->import, &io, &training->error);
	io.rope = o->import.rope;
	io.members = 1; /* compressed ones as well: nothing has to come back */
	if (!engine_file_options(&o->import, cache->in.name, &pages, &io))
		return KVARC_END;
	io.model = training->model_source.opaque ? &training->model_source : NULL;
	ret = kvarc_import_open(&cache->import, &cache->source, paths_base(cache->in.name), &io);
	if (ret == KVARC_OK && kvarc_import_note(cache->import))
		msg_warning(cache->in.name, "%s", kvarc_import_note(cache->import));
	return ret ? ret : kvarc_trainer_add_import(training->trainer, cache->import);
}

static bool take_ids(void *opaque, const int32_t *ids, size_t n)
{
	struct training *t = opaque;
	kvarc_ret ret = kvarc_trainer_add_ids(t->trainer, n, ids, t->o->dtype);

	if (ret != KVARC_OK)
		library_error(t->ids_file, ret, &t->error, NULL, NULL);
	return ret == KVARC_OK;
}

/* Token ids: the model makes the cache. */
static bool add_ids(struct training *training, struct input_cache *cache, const char *file)
{
	if (!predicts(&training->o->coding)) {
		msg_error(file, "these are token ids: they need --level 4 to 7 and the "
		                "model (--model)");
		return false;
	}
	training->ids_file = file;
	return ids_read(&cache->in, take_ids, training);
}

/* Adds the caches whose tokens the model generates. */
static bool add_written(struct training *training)
{
	const struct options *o = training->o;
	kvarc_ret ret = KVARC_OK;

	if (o->train.write)
		ret = kvarc_trainer_write(training->trainer, o->train.write, o->train.first_token,
		                          o->train.seed, o->dtype);
	if (ret != KVARC_OK)
		library_error(o->coding.model, ret, &training->error, NULL, NULL);
	return ret == KVARC_OK;
}

static bool add(struct training *training, struct input_cache *cache, const char *file)
{
	kvarc_ret ret;

	if (!input_open(&cache->in, file, true))
		return false;
	if (profiles_is_one(&cache->in)) {
		cache->profile = profiles_read(&training->o->work, &cache->in);
		training->n_profiles += cache->profile != NULL;
		return cache->profile != NULL;
	}
	if (ids_is_text(&cache->in))
		return add_ids(training, cache, file);
	cache->source = input_source(&cache->in);
	if (input_is_archive(&cache->in)) {
		cache->reader = readers_open(&training->o->work, &training->o->reading, &cache->in,
		                             0, &training->error);
		if (!cache->reader)
			return false;
		ret = kvarc_trainer_add_reader(training->trainer, cache->reader);
	} else {
		ret = import(training, cache);
	}
	if (ret != KVARC_OK)
		library_error(file, ret, &training->error,
		              training->model.error ? &training->model : &cache->in, NULL);
	return ret == KVARC_OK;
}

/* Adds the caches that are only measured, after all that are fitted. */
static bool add_measured(struct training *training)
{
	const struct options *o = training->o;
	bool ok = kvarc_trainer_held_out(training->trainer, 100) == KVARC_OK;

	for (size_t i = 0; i < o->train.measure.n && ok; i++)
		ok = add(training, &training->caches[o->n_files + i], o->train.measure.p[i]);
	return ok;
}

static bool set_identity(struct training *training, const char *key, const char *value)
{
	kvarc_ret ret = kvarc_trainer_identity(training->trainer, key, value);

	if (ret != KVARC_OK)
		library_error(NULL, ret, &training->error, NULL, NULL);
	return ret == KVARC_OK;
}

/* Name of the model, from the first archive or GGUF that has one. */
static const char *model_name(const struct training *training)
{
	const char *name = NULL;

	for (size_t i = 0; i < training->o->n_files && !name; i++) {
		const struct input_cache *c = &training->caches[i];

		if (c->reader)
			name = kvarc_reader_identity(c->reader, "model");
		else if (c->import)
			name = kvarc_import_model(c->import);
	}
	return name;
}

static bool identify(struct training *training)
{
	const struct options *o = training->o;
	const char *name = model_name(training);
	char inputs[64], fitted[128];
	bool ok;

	train_inputs(inputs, sizeof(inputs), &o->train, o->n_files - training->n_profiles);
	snprintf(fitted, sizeof(fitted), "%s, %" PRIu64 " tokens", inputs,
	         kvarc_trainer_tokens(training->trainer));
	ok = set_identity(training, "created_by", "kvarc " KVARC_VERSION_STRING) &&
	     set_identity(training, "fitted_on", fitted) &&
	     (!name || set_identity(training, "model", name));
	for (size_t i = 0; i < o->archive.identity.n && ok; i++) {
		const char *equal = strchr(o->archive.identity.p[i], '=');
		char *key = strndup(o->archive.identity.p[i],
		                    (size_t)(equal - o->archive.identity.p[i]));
		ok = key && set_identity(training, key, equal + 1);
		free(key);
	}
	return ok;
}

static bool run(struct training *training)
{
	const char *note;
	kvarc_ret ret;

	progress_start(training->o->output, KVARC_UNKNOWN);
	progress_phase("fitting");
	progress_unit("");
	ret = kvarc_trainer_run(training->trainer);
	progress_stop();
	if (ret == KVARC_OK)
		ret = kvarc_trainer_profile(training->trainer, &training->profile);
	if (ret != KVARC_OK) {
		struct input *in = NULL;
		for (size_t i = 0; i < n_caches(training->o) && !in; i++)
			in = training->caches[i].in.error ? &training->caches[i].in : NULL;
		bool one_file = training->o->n_files == 1 &&
		                (ret == KVARC_PREDICTOR || ret == KVARC_DATA);
		library_error(one_file ? training->o->files[0] : NULL, ret, &training->error, in,
		              NULL);
		return false;
	}
	for (size_t i = 0; (note = kvarc_trainer_note(training->trainer, i)); i++)
		msg_warning(NULL, "%s", note);
	return true;
}

/* Merges the fitted profile with models that the given profiles have beside it. */
static bool merge(struct training *training)
{
	const kvarc_profile **list;
	kvarc_profile *all = NULL;
	kvarc_common common;
	size_t n = 0;
	kvarc_ret ret = KVARC_MEM;

	if (training->n_profiles == 0)
		return true;
	library_common(&training->o->work, &common, &training->error);
	list = calloc(training->n_profiles + 1, sizeof(*list));
	if (list && training->profile)
		list[n++] = training->profile;
	for (size_t i = 0; list && i < training->o->n_files; i++) {
		if (training->caches[i].profile)
			list[n++] = training->caches[i].profile;
	}
	if (list)
		ret = kvarc_profile_merge(&all, list, n, &common);
	free(list);
	if (ret != KVARC_OK) {
		library_error(NULL, ret, &training->error, NULL, NULL);
		return false;
	}
	kvarc_profile_close(&training->profile);
	training->profile = all;
	return true;
}

static bool fit(struct training *training)
{
	const struct options *o = training->o;

	if (fits(training))
		return run(training);
	if (o->coding.level_given || o->archive.identity.n || o->train.klt) {
		msg_usage("--level and --identity are for what is fitted; there are only profiles");
		return false;
	}
	return true;
}

static bool write_profile(struct training *training)
{
	kvarc_sink sink = output_sink(&training->out);
	kvarc_ret ret = kvarc_profile_write(training->profile, &sink);

	if (ret != KVARC_OK) {
		library_error(training->o->output, ret, &training->error, NULL, &training->out);
		return false;
	}
	return true;
}

static void train(struct training *training)
{
	const struct options *o = training->o;
	bool ok = open_model(training) && open_trainer(training);

	if (ok && o->train.klt && o->coding.model && !weighs(&o->train))
		msg_warning(o->coding.model, "this model cannot run here: all heads get the "
		                             "same quantisation steps");
	for (size_t i = 0; i < o->n_files && ok; i++)
		ok = add(training, &training->caches[i], o->files[i]);
	ok = ok && add_written(training);
	ok = ok && (!fits(training) || identify(training));
	ok = ok && (o->train.measure.n == 0 || add_measured(training));
	if (!ok || !output_open(&training->out, o->output, o->force ? OUTPUT_FORCE : 0, 0))
		return;
	if (!fit(training) || !merge(training) || !write_profile(training))
		output_abort(&training->out);
	else if (output_commit(&training->out))
		train_report(o, training->trainer, training->n_profiles, training->profile,
		             units_now() - training->start);
}

static void close_all(struct training *training)
{
	kvarc_profile_close(&training->profile);
	kvarc_trainer_close(&training->trainer);
	for (size_t i = 0; i < n_caches(training->o); i++) {
		kvarc_import_close(&training->caches[i].import);
		kvarc_reader_close(&training->caches[i].reader);
		kvarc_profile_close(&training->caches[i].profile);
		input_close(&training->caches[i].in);
	}
	input_close(&training->model);
}

static bool check(const struct options *options)
{
	if ((options->n_files || !options->train.write) && !paths_check_reading(options))
		return false;
	if (paths_is_folder(options->output)) {
		msg_error(options->output, "is a folder; give a file name with -o");
		return false;
	}
	if (predicts(&options->coding) && !options->coding.model) {
		msg_usage("levels 4 to 7 need the model: --model GGUF, or a folder with "
		          "config.json and safetensors");
		return false;
	}
	if (options->json && paths_to_stdout(options)) {
		msg_usage("--json needs standard output for itself; use -o FILE");
		return false;
	}
	return output_check(options->output, options->force);
}

void cmd_train(const struct options *options)
{
	struct training t = { .o = options, .model = { .fd = -1 }, .start = units_now() };

	if (!check(options))
		return;
	t.caches = calloc(n_caches(options) + 1, sizeof(*t.caches));
	if (!t.caches) {
		msg_error(NULL, "out of memory");
		return;
	}
	for (size_t i = 0; i < n_caches(options); i++)
		t.caches[i].in.fd = -1;
	train(&t);
	close_all(&t);
	free(t.caches);
}
