/* SPDX-License-Identifier: BSD-3-Clause */
/* store_access.h - the store that the command line or the environment names */
#ifndef KVARC_CLI_STORE_ACCESS_H
#define KVARC_CLI_STORE_ACCESS_H

#include <stdbool.h>

#include "kvarc/store.h"
#include "options.h"

/* A store that is open, and what it uses. Must stay where it is. */
struct store_access {
	kvarc_store *s;
	kvarc_error error;
	char *given;       /* the URL that opens it */
	char *url, *index; /* url: for messages and results, without a password */
};

/* Opens --store, $KVARC_STORE or the folder of the user. create: it is made when it is missing.
 * false: a message was shown. */
bool store_access_open(struct store_access *access, const struct store_options *store,
                       const struct key_options *keys, const struct work_options *work,
                       bool create);
/* A URL of a store or a server as it is shown: without user and password. Allocated; NULL: a
 * message was shown. */
char *store_access_shown(const char *url);
/* Closes and frees. */
void store_access_close(struct store_access *access);
/* The path of a store in a folder; of another one its URL, which is no path. Until it is closed. */
const char *store_access_folder(const struct store_access *access);
/* Shows what a call returned, about a session or a file; NULL: about the store. */
void store_access_error(const struct store_access *access, const char *what, kvarc_ret ret);

#endif
