/* SPDX-License-Identifier: BSD-3-Clause */
/* models.c - the model of --model, as a predictor */
#include "config.h"

#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library.h"
#include "message.h"
#include "model_search.h"
#include "paths.h"
#include "signals.h"
#include "weights.h"

static struct {
	const struct options *o;
	kvarc_predictor *p;
	bool predicts;
	kvarc_error error; /* the predictor keeps where it is */
	char *bus_error;
	const kvarc_predictor *found; /* found by models_find, which owns it */
} opened;

bool models_is_folder(const struct options *options)
{
	struct stat s;

	return options->model && stat(options->model, &s) == 0 && S_ISDIR(s.st_mode);
}

kvarc_score scores_kind(const struct options *options)
{
	if (!options->scores)
		return KVARC_SCORE_NONE;
	if (strcmp(options->scores, "h2o") == 0)
		return KVARC_SCORE_H2O;
	return strcmp(options->scores, "surprisal") == 0 ? KVARC_SCORE_SURPRISAL : KVARC_SCORE_NONE;
}

/* Readers may meet an archive that needs it; writers say so by the level. */
static bool may_predict(const struct options *options)
{
	bool reads = options->verb->bit &
	             (VERB_UNPACK | VERB_TEST | VERB_CUT | VERB_COMPACT | VERB_EVAL);

	return options->model &&
	       (reads || models_is_folder(options) || options->max_kl > 0 || scores_kind(options) ||
	        (options->level_given ? options->level >= LEVEL_MODEL : options->profiles.n > 0));
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
	char *before = opened.bus_error;
	size_t n;
	FILE *f = open_memstream(&opened.bus_error, &n);

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
		signals_explain_bus_error(opened.bus_error);
	free(before);
}

bool models_open(const struct options *options)
{
	kvarc_common common;
	kvarc_ret ret;

	opened.o = options;
	opened.predicts = may_predict(options) && !(options->verb->bit & VERB_TRAIN);
	if (!options->model)
		return true;
	explain_bus_error(options->model);
	library_common(options, &common, &opened.error);
	common.progress = progress_opening;
	common.progress_opaque = (void *)(uintptr_t)paths_base(options->model);
	ret = options->blind ? kvarc_predictor_open_blind(&opened.p, options->model, options->blind,
	                                                  &common)
	                     : kvarc_predictor_open_model(&opened.p, options->model, &common);
	if (ret != KVARC_OK && opened.predicts)
		tell(options->model, opened.error.text);
	return ret == KVARC_OK || !opened.predicts;
}

void models_close(void)
{
	kvarc_predictor_close(&opened.p);
	opened.found = NULL;
	model_search_close();
}

const kvarc_predictor *models_given(void)
{
	return opened.predicts ? opened.p : opened.found;
}

bool models_find(const char *file, const kvarc_reader *r)
{
	const char *path = NULL;

	opened.found = model_search(opened.o, file, r, &path);
	if (opened.found)
		explain_bus_error(path);
	return opened.found;
}

const kvarc_predictor *models_known(void)
{
	return opened.p;
}

const char *models_name(void)
{
	static kvarc_predictor_model m;
	static char name[512];

	if (!models_given() || kvarc_predictor_get_model(opened.p, &m) != KVARC_OK)
		return "";
	if (!m.name[0])
		return paths_base(opened.o->model);
	if (!opened.o->blind || strchr(m.name, ' '))
		return m.name;
	snprintf(name, sizeof(name), "%s %s", paths_base(opened.o->model), m.name);
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
