/* SPDX-License-Identifier: BSD-3-Clause */
/* slot_version.h - a slot file of llama.cpp as a server of another version writes it */
#ifndef KVARC_CLI_SLOT_VERSION_H
#define KVARC_CLI_SLOT_VERSION_H

#include <stdbool.h>
#include <sys/types.h>

#include "kvarc.h"
#include "options.h"

/* Version of a llama.cpp sequence file; 0: it is another file. */
unsigned slot_version(const kvarc_import *im);

/* A file that is not there yet, of a name that is removed when the command is interrupted. */
struct slot_target {
	int dirfd;
	const char *name, *path; /* in the folder; for messages */
	mode_t mode;
};

/*
 * Writes the file of an import as one of this version. The import is of no use afterwards. *why:
 * why the file cannot be of that version, a clause in static storage, or NULL. Takes as much disk
 * again in the folder of temporary files. false: it was not written; where *why is NULL a message
 * was shown.
 */
bool slot_version_write(const struct work_options *work, kvarc_import *im, unsigned version,
                        const struct slot_target *to, const char **why);

#endif
