/* SPDX-License-Identifier: BSD-3-Clause */
/* tiers.h - the ways to write a cache that --tier names */
#ifndef KVARC_CLI_TIERS_H
#define KVARC_CLI_TIERS_H

#include "kvarc.h"
#include "options.h"

/* A tier of --tier: its name and the options that write it. */
struct tier {
	char *name;
	kvarc_writer_options writer;
	kvarc_lossy lossy; /* tier 0: it is lossless */
};
/* All tiers of the command line. */
struct tiers {
	struct tier *list;
	size_t n;
};
/* Parses the names of all --tier; false: a message was shown. */
bool tiers_parse(struct tiers *tiers, const struct option_list *names);
/* Frees the list. */
void tiers_free(struct tiers *tiers);

#endif
