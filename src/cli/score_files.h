/* SPDX-License-Identifier: BSD-3-Clause */
/* score_files.h - --scores: how much each token matters, for tiers that ask */
#ifndef KVI_SCORE_FILES_H
#define KVI_SCORE_FILES_H

#include "kvarc.h"
#include "options.h"

/* Whether a tier needs them. */
bool scores_wanted(const kvarc_lossy *l);
/* What a model is to say; KVARC_SCORE_NONE: a file, or not given. */
kvarc_score scores_kind(const struct options *o);
/* Those of the tokens of a file that is packed, as rates of the tier; *rates is the caller's, to be
 * freed. error: of common. false: a message was shown. */
bool scores_rate(const struct options *o, const char *file, kvarc_import *im,
                 const kvarc_common *common, kvarc_lossy *l, int16_t **rates);

#endif
