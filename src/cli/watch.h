/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - whether a file changes while it is read, and its removal when it does not */
#ifndef KVARC_CLI_WATCH_H
#define KVARC_CLI_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "infile.h"

/* A regular file's inode as it was before its first byte was read. */
struct watch {
	struct stat st;
	bool active;     /* false: a pipe, of which there is a copy */
	bool has_writer; /* watch_start_removal: another process had it open for writing */
};

/*
 * Records the state of an open input, before it is read. Waits for some milliseconds when the file
 * was written just now, so that every later write gets a time stamp of its own.
 */
void watch_start(struct watch *w, const struct input *in);
/*
 * Records the state of a file that watch_remove is to remove, as watch_start does, and whether
 * another process has it open for writing, or maps it so, which its times do not show. Only where
 * the system gives leases on the file: it does so to its owner, on local file systems of Linux.
 */
void watch_start_removal(struct watch *w, const struct input *in);

/*
 * Whether the open file is not what it was at watch_start: size, modification time or status
 * change time, device, inode. Then `what`, of `bytes` bytes, says which in a few words; NULL and 0:
 * nobody asks.
 */
bool watch_changed(const struct watch *w, const struct input *in, char *what, size_t bytes);

/* watch_changed by what input_open saw, for verbs that only read. */
bool watch_input_changed(const struct input *in, char *what, size_t bytes);

/*
 * Removes the input's file, if it is the one that was read, nothing has changed it since
 * watch_start_removal, and no other process has it open for writing; else a warning says why it
 * stays.
 */
void watch_remove(const struct watch *w, const struct input *in);

#endif
