/* SPDX-License-Identifier: BSD-3-Clause */
/* index_copy.c - an index in memory in place of a file that cannot be written */
#include "config.h"

#include "index_state.h"

#include <stdio.h>
#include <string.h>

enum { URI_BYTES = 3 * 4096 };

/* A URI of a file that nobody changes. SQLite needs no file beside it then, which it could not make
 * in a folder that cannot be written. False: the path is too long. */
static bool make_uri(char uri[URI_BYTES], const char *path)
{
	size_t n = (size_t)sprintf(uri, "file:");
	for (; *path && n < URI_BYTES - 32; path++)
		n += (size_t)sprintf(uri + n, strchr("%?#", *path) ? "%%%02X" : "%c",
		                     (unsigned char)*path);
	sprintf(uri + n, "?immutable=1");
	return !*path;
}

/* Copies all pages of a file. What is not a database of ours is found by those who open it. */
static bool copy_pages(sqlite3 *to, const char *name, int flags)
{
	sqlite3 *from = NULL;
	bool done = false;
	if (sqlite3_open_v2(name, &from, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | flags,
	                    NULL) == SQLITE_OK) {
		sqlite3_backup *copy = sqlite3_backup_init(to, "main", from, "main");
		done = copy && sqlite3_backup_step(copy, -1) == SQLITE_DONE;
		done = copy && sqlite3_backup_finish(copy) == SQLITE_OK && done;
	}
	sqlite3_close(from);
	return done;
}

bool kvi_index_copy(sqlite3 *to, const char *path)
{
	char uri[URI_BYTES];
	return copy_pages(to, path, 0) ||
	       (make_uri(uri, path) && copy_pages(to, uri, SQLITE_OPEN_URI));
}
