/* SPDX-License-Identifier: BSD-3-Clause */
/* tempfile.c - temporary files next to the output: their names, locks, and stale ones */
#include "tempfile.h"

#include <dirent.h>
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

/* Folders beyond FOLDERS_MAX are left for another run. */
enum { LONGEST_NAME = 255, DIGITS = 8, STALE_SECONDS = 60, FOLDERS_MAX = 64 };

static const char mark[] = ".kvarc-";
enum { ENDING = sizeof(mark) - 1 + DIGITS };

char *tempfile_name(const char *base, unsigned attempt)
{
	struct timespec t;
	size_t keep = strlen(base);
	char *name = malloc(LONGEST_NAME + 1);

	if (!name)
		return NULL;
	if (keep > LONGEST_NAME - 1 - ENDING)
		keep = LONGEST_NAME - 1 - ENDING;
	clock_gettime(CLOCK_MONOTONIC, &t);
	snprintf(name, LONGEST_NAME + 1, ".%.*s%s%08" PRIx32, (int)keep, base, mark,
	         (uint32_t)(((uint64_t)t.tv_nsec << 12) ^ ((uint64_t)getpid() * 2654435761u) ^
	                    attempt));
	return name;
}

static bool is_temporary_name(const char *name)
{
	size_t n = strlen(name);
	const char *end = name + n - ENDING;

	return name[0] == '.' && n > ENDING && memcmp(end, mark, sizeof(mark) - 1) == 0 &&
	       strspn(end + sizeof(mark) - 1, "0123456789abcdef") == DIGITS;
}

static bool lock(int fd)
{
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void tempfile_lock(int fd)
{
	bool ignored = lock(fd);

	(void)ignored;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
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

static void remove_if_stale(int dirfd, const char *name, time_t now)
{
	struct stat st, again;
	int fd;

	if (!is_temporary_name(name) || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
	    !S_ISREG(st.st_mode) || st.st_uid != geteuid() || now - st.st_mtime < STALE_SECONDS)
		return;
	/* Over NFS only a file that is open for writing can be locked. */
	fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	if (lock(fd) && fstat(fd, &again) == 0 && same_file(&st, &again) &&
	    fstatat(dirfd, name, &again, AT_SYMLINK_NOFOLLOW) == 0 && same_file(&st, &again))
		unlinkat(dirfd, name, 0);
	close(fd);
}

void tempfile_remove_stale(int dirfd, int fd)
{
	const struct dirent *entry;
	struct stat own;
	int again;
	DIR *d;

	if (!is_new_folder(dirfd) || fstat(fd, &own) != 0)
		return;
	again = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = again < 0 ? NULL : fdopendir(again);
	if (!d && again >= 0)
		close(again);
	while (d && (entry = readdir(d)) != NULL)
		remove_if_stale(dirfd, entry->d_name, own.st_mtime);
	if (d)
		closedir(d);
}
