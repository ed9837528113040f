/* SPDX-License-Identifier: BSD-3-Clause */
/* walk.h - archives in the folders that the command line names */
#ifndef KVARC_CLI_WALK_H
#define KVARC_CLI_WALK_H

#include <stdbool.h>

#include "options.h"

/*
 * Replaces with -r each folder among the files by the archives in it and below it, by their first
 * bytes, in the order of their names; hidden files and symbolic links in it are left out. Without
 * -r folders are removed, with a message. For verbs that take -r. false: out of memory.
 */
bool walk_folders(struct options *options);

#endif
