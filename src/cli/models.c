/* SPDX-License-Identifier: BSD-3-Clause */
/* models.c - the model of --model, or the one that is found for an archive, as a predictor */
#include "config.h"

#include "models.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library.h"
#include "message.h"
#include "paths.h"
#include "signals.h"
#include "units.h"
#include "weights.h"

/* ==== Looks for the model of an archive in the folders of KVARC_MODEL_PATH ==== */

enum { DEPTH = 5, PATH_BYTES = 4096 };

/* A file or folder that may be a model. */
struct model_file {
	char *path;
	kvarc_predictor *p; /* NULL: not opened yet, or no model */
	kvarc_predictor_model model;
	kvarc_error error; /* the predictor keeps where it is */
	bool opened, has_digest;
	uint8_t digest[16];
};

static struct {
	struct model_file **list;
	size_t n;
	bool walked;
} found_model;

/* Takes ownership of path. */
static void add(char *path)
{
	struct model_file **list = realloc(found_model.list, (found_model.n + 1) * sizeof(void *));
	struct model_file *c = calloc(1, sizeof(*c));

	if (list)
		found_model.list = list;
	if (!list || !c || !path) {
		free(c);
		free(path);
		return;
	}
	c->path = path;
	found_model.list[found_model.n++] = c;
}

static bool holds_model(const char *folder)
{
	char path[PATH_BYTES];

	return (size_t)snprintf(path, sizeof(path), "%s/config.json", folder) < sizeof(path) &&
	       access(path, R_OK) == 0;
}

static int is_visible(const struct dirent *dirent)
{
	return dirent->d_name[0] != '.';
}

/* Models in a folder and below, as deep as those of a hub's cache lie. */
static void walk(const char *folder, unsigned depth)
{
	struct dirent **entries;
	int n;

	if (holds_model(folder))
		add(strdup(folder));
	n = depth < DEPTH ? scandir(folder, &entries, is_visible, alphasort) : 0;
	if (n <= 0)
		return;
	for (int i = 0; i < n; i++) {
		char *path = paths_join(folder, entries[i]->d_name);
		struct stat st;

		if (path && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			walk(path, depth + 1);
		else if (path && S_ISREG(st.st_mode) && paths_ends_with(path, ".gguf"))
			add(strdup(path));
		free(path);
		free(entries[i]);
	}
	free(entries);
}

static void walk_all(void)
{
	char folder[PATH_BYTES];

	for (const char *path = getenv("KVARC_MODEL_PATH"); path && *path; path += *path == ':') {
		size_t n = strcspn(path, ":");

		if (n && n < sizeof(folder)) {
			memcpy(folder, path, n);
			folder[n] = '\0';
			walk(folder, 0);
		}
		path += n;
	}
	found_model.walked = true;
}

/* Reads the header, not the weights. */
static bool opens(const struct work_options *work, struct model_file *file)
{
	kvarc_common common;

	if (!file->opened) {
		file->opened = true;
		library_common(work, &common, &file->error);
		common.progress = progress_opening;
		common.progress_opaque = (void *)(uintptr_t)paths_base(file->path);
		if (kvarc_predictor_open_model(&file->p, file->path, &common) == KVARC_OK &&
		    kvarc_predictor_get_model(file->p, &file->model) != KVARC_OK)
			kvarc_predictor_close(&file->p);
	}
	return file->p;
}

/* Whether archives call the model by this name. */
static bool has_name(const struct model_file *file, const char *name)
{
	return strcmp(file->model.name[0] ? file->model.name : paths_base(file->path), name) == 0;
}

/* Whether it could have made keys and values of this shape, of all layers or of the first ones. */
static bool has_shape(const struct model_file *file, const kvarc_geometry *geometry)
{
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];

		if (t->role == KVARC_WHOLE && t->layer < file->model.layers &&
		    (uint64_t)t->heads * t->channels ==
		            (uint64_t)file->model.heads * file->model.channels)
			return true;
	}
	return false;
}

static bool has_weights(struct model_file *file, const uint8_t weights[16])
{
	if (!file->has_digest && kvarc_predictor_digest(file->p, file->digest) != KVARC_OK) {
		kvarc_predictor_close(&file->p);
		return false;
	}
	file->has_digest = true;
	return memcmp(file->digest, weights, 16) == 0;
}

static const struct model_file *find(const struct work_options *work,
                                     const kvarc_predictor_info *info,
                                     const kvarc_geometry *geometry)
{
	for (int by_name = 1; by_name >= 0; by_name--) {
		for (size_t i = 0; i < found_model.n; i++) {
			struct model_file *c = found_model.list[i];

			if (opens(work, c) && has_name(c, info->model_name) == by_name &&
			    has_shape(c, geometry) && has_weights(c, info->weights)) {
				msg_note(c->path, "has the weights that are needed");
				return c;
			}
		}
	}
	return NULL;
}

/*
 * The model with the weights that the archive names, from the folders of KVARC_MODEL_PATH: first
 * those that have the name of the archive's model, then others of its shape. Its weights are read
 * once, or come from the weight cache. NULL: the archive needs none, or none was found, which a
 * message says. file is for that message. *path: where the model is, until model_search_close.
 */
static const kvarc_predictor *model_search(const struct work_options *work, const char *file,
                                           const kvarc_reader *r, const char **path)
{
	const struct model_file *c = NULL;
	kvarc_predictor_info x;
	char hex[33];

	for (size_t i = 0; kvarc_reader_predictor(r, i, &x) == KVARC_OK && !c; i++) {
		if (!x.model)
			continue;
		if (!found_model.walked)
			walk_all();
		c = find(work, &x, kvarc_reader_geometry(r));
		if (!c)
			msg_result(file,
			           "none of %zu models in KVARC_MODEL_PATH has the weights %s",
			           found_model.n, units_digest(hex, x.weights));
	}
	*path = c ? c->path : NULL;
	return c ? c->p : NULL;
}

/* Closes all models that were found. */
static void model_search_close(void)
{
	for (size_t i = 0; i < found_model.n; i++) {
		kvarc_predictor_close(&found_model.list[i]->p);
		free(found_model.list[i]->path);
		free(found_model.list[i]);
	}
	free(found_model.list);
	memset(&found_model, 0, sizeof(found_model));
}

/* ==== The model of --model, as a predictor ==== */

static struct {
	const struct work_options *work;
	const struct coding_options *coding;
	kvarc_predictor *p;
	bool predicts, searches;
	kvarc_error error; /* the predictor keeps where it is */
	char *bus_error;
	const kvarc_predictor *found; /* found by models_find, which owns it */
} opened_models;

bool models_is_folder(const char *model)
{
	struct stat s;

	return model && stat(model, &s) == 0 && S_ISDIR(s.st_mode);
}

kvarc_score scores_kind(const char *scores)
{
	if (!scores)
		return KVARC_SCORE_NONE;
	if (strcmp(scores, "h2o") == 0)
		return KVARC_SCORE_H2O;
	return strcmp(scores, "surprisal") == 0 ? KVARC_SCORE_SURPRISAL : KVARC_SCORE_NONE;
}

/* Readers may meet an archive that needs it; writers say so by the level. */
static bool may_predict(const struct options *options)
{
	const struct coding_options *coding = &options->coding;
	bool reads = options->verb->bit &
	             (VERB_UNPACK | VERB_TEST | VERB_CUT | VERB_COMPACT | VERB_EVAL);

	return coding->model &&
	       (reads || models_is_folder(coding->model) || options->lossy.max_kl > 0 ||
	        scores_kind(options->lossy.scores) ||
	        (coding->level_given ? coding->level >= LEVEL_MODEL : coding->profiles.n > 0));
}

/* The library's text, which may name the file itself. */
static void tell(const char *path, const char *text)
{
	size_t n = strlen(path);

	if (strncmp(text, path, n) == 0 && text[n] == ':')
		text += n + 1 + (text[n + 1] == ' ');
	msg_error(path, "%s", text);
}

/* Weights are read from the mapped files as they are needed. */
static void explain_bus_error(const char *path)
{
	const kvarc_weight_cache *cache = weights_cache();
	char *before = opened_models.bus_error;
	size_t n;
	FILE *f = open_memstream(&opened_models.bus_error, &n);

	if (!f)
		return;
	fprintf(f, "%skvarc: ", isatty(STDERR_FILENO) ? "\r\033[K" : "");
	msg_put_safe(f, path);
	fputs(": the model", f);
	if (cache) {
		fputs(", or its converted weights in ", f);
		msg_put_safe(f, cache->folder);
		fputs(",", f);
	}
	fputs(" became shorter while in use, or the disk failed; what was not "
	      "finished was removed\n",
	      f);
	if (fclose(f) == 0)
		signals_explain_bus_error(opened_models.bus_error);
	free(before);
}

bool models_open(const struct options *options)
{
	const struct coding_options *coding = &options->coding;
	kvarc_common common;
	kvarc_ret ret;

	opened_models.work = &options->work;
	opened_models.coding = coding;
	opened_models.searches = paths_have_models(coding->model, options->verb);
	opened_models.predicts = may_predict(options) && !(options->verb->bit & VERB_TRAIN);
	if (!coding->model)
		return true;
	explain_bus_error(coding->model);
	library_common(&options->work, &common, &opened_models.error);
	common.progress = progress_opening;
	common.progress_opaque = (void *)(uintptr_t)paths_base(coding->model);
	ret = coding->blind ? kvarc_predictor_open_blind(&opened_models.p, coding->model,
	                                                 coding->blind, &common)
	                    : kvarc_predictor_open_model(&opened_models.p, coding->model, &common);
	if (ret != KVARC_OK && opened_models.predicts)
		tell(coding->model, opened_models.error.text);
	return ret == KVARC_OK || !opened_models.predicts;
}

void models_close(void)
{
	kvarc_predictor_close(&opened_models.p);
	opened_models.found = NULL;
	model_search_close();
}

const kvarc_predictor *models_given(void)
{
	return opened_models.predicts ? opened_models.p : opened_models.found;
}

bool models_find(const char *file, const kvarc_reader *r)
{
	const char *path = NULL;

	if (opened_models.searches)
		opened_models.found = model_search(opened_models.work, file, r, &path);
	if (opened_models.found)
		explain_bus_error(path);
	return opened_models.found;
}

const kvarc_predictor *models_known(void)
{
	return opened_models.p;
}

const char *models_name(void)
{
	static kvarc_predictor_model m;
	static char name[512];

	if (!models_given() || kvarc_predictor_get_model(opened_models.p, &m) != KVARC_OK)
		return "";
	if (!m.name[0])
		return paths_base(opened_models.coding->model);
	if (!opened_models.coding->blind || strchr(m.name, ' '))
		return m.name;
	snprintf(name, sizeof(name), "%s %s", paths_base(opened_models.coding->model), m.name);
	return name;
}

void models_predict_text(char out[16], unsigned blind)
{
	if (blind == KVARC_BLIND_EMBEDDING)
		strcpy(out, "embedding");
	else if (blind)
		snprintf(out, 16, "top-%u", blind);
	else
		strcpy(out, "token");
}

/* A pipe names its predictors later. */
static bool is_needed(const kvarc_reader *r)
{
	kvarc_predictor_info x;
	bool needed = kvarc_reader_predictor(r, 0, &x) != KVARC_OK;

	for (size_t i = 0; kvarc_reader_predictor(r, i, &x) == KVARC_OK; i++)
		needed = needed || x.model;
	return needed;
}

uint64_t models_tokens(const kvarc_reader *r, const kvarc_import *im)
{
	const kvarc_geometry *g = r ? kvarc_reader_geometry(r) : kvarc_import_geometry(im);
	uint64_t n = 0;

	if (r && models_given() && !is_needed(r))
		return 0;
	for (uint32_t i = 0; models_given() && i < g->n_tracks; i++)
		n += r ? kvarc_reader_tokens(r, i) : kvarc_import_tokens(im, i);
	return n;
}
