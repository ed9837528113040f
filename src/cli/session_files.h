/* SPDX-License-Identifier: BSD-3-Clause */
/* session_files.h - kvarc session save, load, find: files into a store, and out of it */
#ifndef KVARC_CLI_SESSION_FILES_H
#define KVARC_CLI_SESSION_FILES_H

#include "kvarc/server.h"
#include "store_access.h"

/* Whether a text is "NAME@N". */
bool session_is_version(const char *text);
/* Splits "NAME@N": *name is allocated, *number 0 without "@N". false: a message was shown. */
bool session_split(const char *text, char **name, uint64_t *number);

/* Origin of a file that a server has written. */
struct session_origin {
	const kvarc_server *server;
	const kvarc_import *computed; /* caches of kvarc_canary_ids; NULL: none */
	const kvarc_next_words *next; /* words that may follow these */
};
/* Saves a file as the next version, and shows a report. origin: recorded; NULL: not known. false:
 * nothing was saved, a message was shown. */
bool session_save(const struct options *options, struct store_access *access, const char *name,
                  const char *file, const struct session_origin *origin);
/* Loads a version, "NAME[@N]", into the file of -o, and shows a report or a message. */
void session_load(const struct options *options, struct store_access *access, const char *version);
/* Loads a version into a file, and reports nothing. false: a message was shown. */
bool session_load_into(const struct options *options, struct store_access *access,
                       const char *version, const char *path);
/* Lists the sessions that begin as a file does, or shows a message. */
void session_find(const struct options *options, struct store_access *access, const char *file);

#endif
