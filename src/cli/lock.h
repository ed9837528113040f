/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.h - one process at a time changes an archive in place */
#ifndef KVARC_CLI_LOCK_H
#define KVARC_CLI_LOCK_H

#include <stdbool.h>

/*
 * Locks an open file for this process, without waiting; the lock ends when it is closed. name is
 * the path that it was opened by. false, with a message: another process has it, or the name stands
 * for another file now.
 */
bool lock_file(int fd, const char *name);

/*
 * Locks a file that will be replaced, as lock_file does: *fd is to be closed after that; -1: there
 * is no file, or none that this process could change, and nothing is locked.
 */
bool lock_replaced(const char *name, int *fd);

#endif
