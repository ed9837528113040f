/* SPDX-License-Identifier: BSD-3-Clause */
/* models.h - the model of --model, or the one that is found for an archive, as a predictor */
#ifndef KVI_MODELS_H
#define KVI_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"
#include "cli/options.h"
#include "kvarc/tools.h"

/* Levels by what they need. */
enum {
	LEVEL_MODEL = 4,    /* first level with a model */
	LEVEL_BASIS = 9,    /* level of a profile with transforms for --tier klt */
	LEVEL_MODELS = 7,   /* the last one with models of its own in a profile */
	LEVEL_PREDICTED = 8 /* uses those */
};

/* Opens it if the verb may predict with it. false: a message was shown. */
bool models_open(const struct options *options);
/* Closes the model. */
void models_close(void);
/* NULL: none. */
const kvarc_predictor *models_given(void);
/*
 * Looks, without --model, for the model that the archive names. true: it was
 * found, models_given returns it until the next call, and the archive has to be opened again with
 * it.
 */
bool models_find(const char *file, const kvarc_reader *r);
/* Returns the model of --model also where the verb or the level predicts nothing with it: for the
 * facts that it has about caches. NULL: none, or one that the library does not know. */
const kvarc_predictor *models_known(void);
/* Name by which archives call the model. */
const char *models_name(void);
/* Writes the value of --predict for a number of kvarc_predictor_open_blind; 0: "token". */
void models_predict_text(char out[16], unsigned blind);
/* Tokens that it has to go through to read an archive or to pack an import (the other is NULL), for
 * progress_tokens; 0: it is not used. */
uint64_t models_tokens(const kvarc_reader *r, const kvarc_import *im);
/* Whether the model is a folder: it has no GGUF header then. model NULL: there is none. */
bool models_is_folder(const char *model);
/* The score of --scores that a model computes; KVARC_SCORE_NONE: scores come from a file, or none
 * are given. */
kvarc_score scores_kind(const char *scores);

#endif
