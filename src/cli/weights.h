/* SPDX-License-Identifier: BSD-3-Clause */
/* weights.h - where the converted weights of models are kept: KVARC_CACHE, KVARC_CACHE_SIZE */
#ifndef KVARC_CLI_WEIGHTS_H
#define KVARC_CLI_WEIGHTS_H

#include <stdbool.h>

#include "kvarc.h"
#include "options.h"

/* Reads the environment, where a model is given. false: a message was shown. */
bool weights_init(const char *model, const struct verb *verb);
/* Returns the weight cache; NULL: weights are not cached, or the verb uses no model. */
const kvarc_weight_cache *weights_cache(void);

#endif
