/* SPDX-License-Identifier: BSD-3-Clause */
/* items.h - writes the files that an archive holds */
#ifndef KVARC_CLI_ITEMS_H
#define KVARC_CLI_ITEMS_H

#include <stdbool.h>
#include <stddef.h>

#include "kvarc.h"
#include "options.h"
#include "outfile.h"
#include "attach.h"

/* A packed file that is being unpacked. */
struct item {
	struct output out;
	char *path;   /* where it goes, for messages */
	char *name;   /* in the archive; below a folder that -o names, its path */
	size_t index; /* in the archive */
	bool slot;    /* a llama.cpp slot, which salvage can shorten */
	uint64_t bytes;
	uint64_t tokens, whole_tokens; /* of a slot that salvage has shortened, else 0 */
	bool open;
};

/* All packed files of an archive. */
struct items {
	const struct options *o;
	const char *archive;
	mode_t mode;
	struct timespec mtime; /* zero: none */
	struct item **list;
	size_t n;
	struct staging *staging; /* of many; NULL: each has its temporary file */
	struct workspace workspace;
	bool failed;             /* a message was shown */
};

/* Checks that the items of the archive can go where -o says. false: a message was shown. */
bool items_check(struct items *s, kvarc_reader *r);
/* A kvarc_item_open; opaque is the items. */
int items_open(void *opaque, const kvarc_item *item, kvarc_sink *sink);
/* The output that failed to write, NULL if none did. */
const struct output *items_failed_output(const struct items *s);
/* After salvage: llama.cpp slots that lost something get only their leading tokens that
 * are whole. false: a message says what cannot be written, and nothing is to be. */
bool items_shorten(struct items *s, kvarc_reader *r);
/* Gives all files their names; false: a message was shown. */
bool items_commit(struct items *s);
/* Removes what is not finished, frees. */
void items_free(struct items *s);

#endif
