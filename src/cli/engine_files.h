/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_files.h - files of engines that do not say what they are: --raw and --layout */
#ifndef KVARC_CLI_ENGINE_FILES_H
#define KVARC_CLI_ENGINE_FILES_H

#include <stdbool.h>

#include "kvarc.h"
#include "options.h"

/* Description of one file by --raw or --layout. */
struct engine_file {
	char raw[192];
};

/*
 * Sets io->raw, which points into engine_file, or leaves it alone without the options. With
 * --layout the config.json is read that stands beside the file, in up to three folders above, or
 * beside the folder of a rank of vLLM. false: a message was shown.
 */
bool engine_file_options(const struct import_options *import, const char *file,
                         struct engine_file *engine_file, kvarc_import_options *io);

/* Whether a file made from `file` may be written to target: with --layout not into the folder of
 * the engine, which may take it for one of its own. false: a message was shown. */
bool engine_file_target(const struct import_options *import, const char *file, const char *target);

#endif
