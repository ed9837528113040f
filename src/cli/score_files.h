/* SPDX-License-Identifier: BSD-3-Clause */
/* score_files.h - --scores: the weight of each token, for tiers with token rates */
#ifndef KVARC_CLI_SCORE_FILES_H
#define KVARC_CLI_SCORE_FILES_H

#include "kvarc/tools.h"
#include "options.h"

/* True if a tier needs scores. */
bool scores_wanted(const kvarc_lossy *lossy);
/* Turns the scores of the tokens of im, read from file, into rates of the tier lossy. The caller
 * frees *rates; common->error receives errors. false: a message was shown. */
bool scores_rate(const struct options *options, const char *file, kvarc_import *im,
                 const kvarc_common *common, kvarc_lossy *lossy, int16_t **rates);

#endif
