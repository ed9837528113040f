/* SPDX-License-Identifier: BSD-3-Clause */
/* tempfile.h - temporary files and folders next to the output: made, locked, and stale ones removed
 */
#ifndef KVARC_CLI_TEMPFILE_H
#define KVARC_CLI_TEMPFILE_H

/*
 * Makes an empty file ".BASE.kvarc-1a2b3c4d" in the folder dirfd for an output file called base,
 * which is cut to what a folder can hold, or with n_files a folder ".BASE.kvarc-1a2b3c4d.d" for
 * files with the names "0" to *n_files - 1. Returns its descriptor (a file: open for reading and
 * writing) and in name its name, which the caller frees after signals_forget or signals_remove; -1:
 * errno is set.
 *
 * Registered (signals.h) and in use, by an advisory lock, until the descriptor and its duplicates
 * are closed, which the end of the process does, too; without locks in the file system nothing is.
 *
 * The first call in a folder removes what killed runs left there: files and folders of this user
 * with such names that nobody has locked, last changed a minute or more before the new one, by the
 * clock of the file system. What cannot be locked or removed stays; nothing is reported.
 */
int tempfile_make(int dirfd, const char *base, const unsigned *n_files, char **name);
/* Closes *fd unless it is -1, and sets it to -1. Returns 0 or the errno. */
int tempfile_close(int *fd);

#endif
