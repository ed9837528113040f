/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * change_source.c - changes a file at a given system call of the command (LD_PRELOAD)
 *
 * CHANGE_FILE: the file. CHANGE_AT: "fsync:N", "pread:N", "pwrite:N" or "flock:N", before the Nth
 * call (from 1) of that function in the process. CHANGE_HOW: "append" a byte, "overwrite" the last
 * byte, "empty" it, or "replace" it by the file of that name with ".new" behind.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FSYNC, PREAD, PWRITE, FLOCK, N_FUNCTIONS };
static atomic_int calls[N_FUNCTIONS];

int flock(int fd, int operation);
int fsync(int fd);
ssize_t pread(int fd, void *buf, size_t bytes, off_t offset);
ssize_t pread64(int fd, void *buf, size_t bytes, off64_t offset);
ssize_t pwrite(int fd, const void *buf, size_t bytes, off_t offset);
ssize_t pwrite64(int fd, const void *buf, size_t bytes, off64_t offset);

static void replace(const char *file)
{
	char other[256];

	snprintf(other, sizeof(other), "%s.new", file);
	if (rename(other, file) != 0)
		abort();
}

static void change(const char *file)
{
	const char *how = getenv("CHANGE_HOW");
	if (how && strcmp(how, "replace") == 0) {
		replace(file);
		return;
	}
	int fd = open(file, O_RDWR | O_CLOEXEC);
	off_t end = lseek(fd, 0, SEEK_END);

	if (how && strcmp(how, "overwrite") == 0)
		end--;
	bool done = how && strcmp(how, "empty") == 0
	                    ? ftruncate(fd, 0) == 0
	                    : end >= 0 && lseek(fd, end, SEEK_SET) == end && write(fd, "!", 1) == 1;
	if (!done)
		abort();
	close(fd);
}

static void count(int which, const char *name)
{
	const char *file = getenv("CHANGE_FILE"), *at = getenv("CHANGE_AT");
	size_t n = strlen(name);

	if (file && at && strncmp(at, name, n) == 0 && at[n] == ':' &&
	    atomic_fetch_add(&calls[which], 1) + 1 == atoi(at + n + 1))
		change(file);
}

/* The function of that name which this one stands in front of. */
static void next_function(const char *name, void *function)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort();
	memcpy(function, &p, sizeof(p));
}

int flock(int fd, int operation)
{
	int (*next)(int, int);

	next_function("flock", &next);
	count(FLOCK, "flock");
	return next(fd, operation);
}

int fsync(int fd)
{
	int (*next)(int);

	next_function("fsync", &next);
	count(FSYNC, "fsync");
	return next(fd);
}

ssize_t pread(int fd, void *buf, size_t bytes, off_t offset)
{
	ssize_t (*next)(int, void *, size_t, off_t);

	next_function("pread", &next);
	count(PREAD, "pread");
	return next(fd, buf, bytes, offset);
}

ssize_t pread64(int fd, void *buf, size_t bytes, off64_t offset)
{
	ssize_t (*next)(int, void *, size_t, off64_t);

	next_function("pread64", &next);
	count(PREAD, "pread");
	return next(fd, buf, bytes, offset);
}

ssize_t pwrite(int fd, const void *buf, size_t bytes, off_t offset)
{
	ssize_t (*next)(int, const void *, size_t, off_t);

	next_function("pwrite", &next);
	count(PWRITE, "pwrite");
	return next(fd, buf, bytes, offset);
}

ssize_t pwrite64(int fd, const void *buf, size_t bytes, off64_t offset)
{
	ssize_t (*next)(int, const void *, size_t, off64_t);

	next_function("pwrite64", &next);
	count(PWRITE, "pwrite");
	return next(fd, buf, bytes, offset);
}
