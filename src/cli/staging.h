/* SPDX-License-Identifier: BSD-3-Clause */
/* staging.h - a temporary folder for more files than there are descriptors */
#ifndef KVARC_CLI_STAGING_H
#define KVARC_CLI_STAGING_H

#include <stdbool.h>

/* A folder with files "0", "1", ..., the last used of which are open. One thread at a time. */
struct staging;

/* Makes the folder in the folder dirfd, named after base (tempfile.h). The caller frees it with
 * staging_close. NULL: errno is set. */
struct staging *staging_open(int dirfd, const char *base);
/* Removes the folder with its files, frees; staging may be NULL. */
void staging_close(struct staging *staging);

/* Whether files can get a name in the folder dirfd: the same file system. */
bool staging_reaches(const struct staging *staging, int dirfd);
/* The descriptor of the folder, which stays that of staging. */
int staging_folder(const struct staging *staging);

/* Makes an empty file. Returns its name, which the caller frees; NULL: errno is set. */
char *staging_make(struct staging *staging, unsigned *number);
/* Opens the file for reading and writing, unless it is; the descriptor stays that of staging, until
 * the next call. -1: errno is set, also by a failure to close another file. */
int staging_fd(struct staging *staging, unsigned number);
/* Closes the file if it is open. Returns 0 or the errno. */
int staging_close_file(struct staging *staging, unsigned number);

#endif
