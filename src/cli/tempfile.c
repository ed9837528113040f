/* SPDX-License-Identifier: BSD-3-Clause */
/* tempfile.c - temporary files and folders next to the output: made, locked, and stale ones removed
 */
#include "config.h"

#include "tempfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "signals.h"

/* Folders beyond FOLDERS_MAX are left for another run. */
enum { LONGEST_NAME = 255, DIGITS = 8, STALE_SECONDS = 60, FOLDERS_MAX = 64, TRIES = 100 };

static const char mark[] = ".kvarc-", folder_mark[] = ".d";
enum { ENDING = sizeof(mark) - 1 + DIGITS, FOLDER_ENDING = sizeof(folder_mark) - 1 };

/* Differs by process, time and attempt. NULL: out of memory. */
static char *new_name(const char *base, bool is_folder, unsigned attempt)
{
	struct timespec t;
	size_t keep = strlen(base);
	char *name = malloc(LONGEST_NAME + 1);

	if (!name)
		return NULL;
	if (keep > LONGEST_NAME - 1 - ENDING - FOLDER_ENDING)
		keep = LONGEST_NAME - 1 - ENDING - FOLDER_ENDING;
	clock_gettime(CLOCK_MONOTONIC, &t);
	snprintf(name, LONGEST_NAME + 1, ".%.*s%s%08" PRIx32 "%s", (int)keep, base, mark,
	         (uint32_t)(((uint64_t)t.tv_nsec << 12) ^ ((uint64_t)getpid() * 2654435761u) ^
	                    attempt),
	         is_folder ? folder_mark : "");
	return name;
}

static bool is_temporary_name(const char *name, bool *is_folder)
{
	size_t n = strlen(name);

	*is_folder = n > FOLDER_ENDING && strcmp(name + n - FOLDER_ENDING, folder_mark) == 0;
	n -= *is_folder ? FOLDER_ENDING : 0;
	return name[0] == '.' && n > ENDING &&
	       memcmp(name + n - ENDING, mark, sizeof(mark) - 1) == 0 &&
	       strspn(name + n - DIGITS, "0123456789abcdef") == DIGITS;
}

static bool lock(int fd)
{
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static bool same_file(const struct stat *stat, const struct stat *b)
{
	return stat->st_dev == b->st_dev && stat->st_ino == b->st_ino;
}

/* Whether the folder was not looked at before. */
static bool is_new_folder(int dirfd)
{
	static struct stat seen[FOLDERS_MAX];
	static size_t n;
	struct stat st;

	if (n == FOLDERS_MAX || fstat(dirfd, &st) != 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (same_file(&seen[i], &st))
			return false;
	}
	seen[n++] = st;
	return true;
}

/* Calls visit for all names in a folder. */
static void visit_names(int dirfd, void (*visit)(int dirfd, const char *name, time_t now),
                        time_t now)
{
	int again = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = again < 0 ? NULL : fdopendir(again);
	const struct dirent *entry;

	if (!d && again >= 0)
		close(again);
	while (d && (entry = readdir(d)) != NULL)
		visit(dirfd, entry->d_name, now);
	if (d)
		closedir(d);
}

static void remove_numbered(int dirfd, const char *name, time_t unused)
{
	(void)unused;
	if (name[strspn(name, "0123456789")] == '\0')
		unlinkat(dirfd, name, 0);
}

static void remove_if_stale(int dirfd, const char *name, time_t now)
{
	struct stat st, again;
	bool is_folder;
	int fd;

	if (!is_temporary_name(name, &is_folder) ||
	    fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
	    (st.st_mode & S_IFMT) != (is_folder ? S_IFDIR : S_IFREG) || st.st_uid != geteuid() ||
	    now - st.st_mtime < STALE_SECONDS)
		return;
	/* O_RDWR: over NFS only a file that is open for writing can be locked. */
	fd = openat(dirfd, name,
	            (is_folder ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK |
	                    O_CLOEXEC);
	if (fd < 0)
		return;
	if (lock(fd) && fstat(fd, &again) == 0 && same_file(&st, &again) &&
	    fstatat(dirfd, name, &again, AT_SYMLINK_NOFOLLOW) == 0 && same_file(&st, &again)) {
		if (is_folder)
			visit_names(fd, remove_numbered, now);
		unlinkat(dirfd, name, is_folder ? AT_REMOVEDIR : 0);
	}
	close(fd);
}

/* Makes and registers. O_EXCL and mkdir keep us off what someone else put there. */
static int make(int dirfd, const char *name, const unsigned *n_files, int *error)
{
	int flags = n_files ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT | O_EXCL;
	bool made = false;
	int fd = -1;

	signals_hold();
	if (!n_files || mkdirat(dirfd, name, 0700) == 0) {
		fd = openat(dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
		made = n_files || fd >= 0;
	}
	*error = errno;
	if (fd >= 0 && !signals_remember(dirfd, name, fd, n_files)) {
		*error = ENOMEM;
		close(fd);
		fd = -1;
	}
	if (fd < 0 && made)
		unlinkat(dirfd, name, n_files ? AT_REMOVEDIR : 0);
	signals_release();
	return fd;
}

int tempfile_make(int dirfd, const char *base, const unsigned *n_files, char **name)
{
	struct stat own;
	int fd = -1, error = EEXIST;

	for (unsigned i = 0; i < TRIES && fd < 0 && error == EEXIST; i++) {
		*name = new_name(base, n_files, i);
		error = ENOMEM;
		if (*name)
			fd = make(dirfd, *name, n_files, &error);
		if (fd < 0)
			free(*name);
	}
	if (fd < 0) {
		*name = NULL;
		errno = error;
		return -1;
	}
	bool ignored = lock(fd);
	(void)ignored;
	if (is_new_folder(dirfd) && fstat(fd, &own) == 0)
		visit_names(dirfd, remove_if_stale, own.st_mtime);
	return fd;
}

int tempfile_close(int *fd)
{
	int error = *fd >= 0 && close(*fd) != 0 ? errno : 0;

	*fd = -1;
	return error == EINTR ? 0 : error;
}
