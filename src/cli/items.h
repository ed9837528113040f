/* SPDX-License-Identifier: BSD-3-Clause */
/* items.h - the files that an archive gives back */
#ifndef KVARC_CLI_ITEMS_H
#define KVARC_CLI_ITEMS_H

#include <stdbool.h>
#include <stddef.h>

#include "kvarc.h"
#include "options.h"
#include "outfile.h"

struct item {
	struct output out;
	char *path;      /* where it goes, for messages */
	uint64_t bytes;
	bool open;
};

struct items {
	const struct options *o;
	const char *archive;
	mode_t mode;
	struct item **list;
	size_t n;
	bool failed;     /* a message was shown */
};

/* Checks that the items of the archive can go where -o says. */
bool items_check(struct items *s, kvarc_reader *r);
/* A kvarc_item_open; opaque is the items. */
int items_open(void *opaque, const kvarc_item *item, kvarc_sink *sink);
/* The output that failed to write, NULL if none did. */
const struct output *items_failed_output(const struct items *s);
/* Gives all files their names; false: a message was shown. */
bool items_commit(struct items *s);
/* Removes what is not finished, frees. */
void items_free(struct items *s);

#endif
