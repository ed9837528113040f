/* SPDX-License-Identifier: BSD-3-Clause */
/* tempfile.h - temporary files next to the output: their names, locks, and stale ones */
#ifndef KVARC_CLI_TEMPFILE_H
#define KVARC_CLI_TEMPFILE_H

/* A new name ".BASE.kvarc-1a2b3c4d" for an output file called base, which is cut to what a folder
 * can hold; differs by process, time and attempt. The caller frees it. NULL: out of memory. */
char *tempfile_name(const char *base, unsigned attempt);

/* Marks a temporary file as in use until fd and its duplicates are closed, by an advisory lock,
 * which ends with the process, however that ends. Without locks in the file system nothing is. */
void tempfile_lock(int fd);

/*
 * Removes the temporary files that killed runs left in the folder dirfd: regular files of this user
 * with such a name that nobody has locked, last changed a minute or more before the file fd, which
 * has just been made in the folder and locked: the clock is that of the file system. Looks at a
 * folder once in a run. A file that cannot be locked or removed stays; nothing is reported.
 */
void tempfile_remove_stale(int dirfd, int fd);

#endif
