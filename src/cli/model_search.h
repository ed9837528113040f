/* SPDX-License-Identifier: BSD-3-Clause */
/* model_search.h - looks for the model of an archive in the folders of KVARC_MODEL_PATH */
#ifndef KVARC_CLI_MODEL_SEARCH_H
#define KVARC_CLI_MODEL_SEARCH_H

#include <stdbool.h>

#include "kvarc.h"
#include "options.h"

/*
 * The model with the weights that the archive names, from the folders of KVARC_MODEL_PATH: first
 * those that have the name of the archive's model, then others of its shape. Its weights are read
 * once, or come from the weight cache. NULL: the archive needs none, or none was found, which a
 * message says. file is for that message. *path: where the model is, until model_search_close.
 */
const kvarc_predictor *model_search(const struct options *options, const char *file,
                                    const kvarc_reader *r, const char **path);
/* Closes all models that were found. */
void model_search_close(void);

#endif
