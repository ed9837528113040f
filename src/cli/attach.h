/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.h - --attach: a folder beside a cache, into an archive and out of it */
#ifndef KVARC_CLI_ATTACH_H
#define KVARC_CLI_ATTACH_H

#include <stdbool.h>
#include <stddef.h>

#include "kvarc.h"
#include "options.h"

/* The tar of the folder of --attach, in a temporary file without a name. All zero: none. */
struct workspace {
	bool open;
	int fd;
	kvarc_source source;
	kvarc_sink sink;
	kvarc_error error;
};

/* Attaches the folder of --attach to an import, without the n files of `exclude`, which may be NULL
 * and need not exist; does nothing without the option. w stays until the import is closed. false: a
 * message was shown. */
bool workspace_attach(struct workspace *w, const struct options *options, kvarc_import *im,
                      const char *const *exclude, size_t n);
/* NULL-safe in all members. */
void workspace_close(struct workspace *w);

/* Whether the folder of --attach, if there is one, can be extracted to; false: a message was
 * shown. */
bool workspace_check(const struct options *options);
/* Opens an item that is a workspace, for a kvarc_item_open: 0 and a sink with --attach; 1 without,
 * after a note; -1: a message was shown. */
int workspace_item(struct workspace *w, const struct options *options, const char *archive,
                   kvarc_sink *sink);
/* Extracts the workspace that the sink of workspace_item got into the folder of --attach. false: a
 * message was shown. An archive without a workspace gets a warning. */
bool workspace_extract(struct workspace *w, const struct options *options, const char *archive);

#endif
